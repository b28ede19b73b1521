"""Comparison of recorded values with those of today's code: the first difference, with its path."""

import json
import re
from collections.abc import Callable
from typing import Any, cast  # JSON of any kind

SHOWN = 300
UID = re.compile(r"\b[0-9a-f]{1,8}-[0-9a-f]{1,8}-[0-9a-f]{12,16}\b|\b[0-9a-f]{32}\b|\b[0-9a-f]{40}\b")
TIME = re.compile(r"\b1[6-9]\d{11}\b")
MILLISECONDS = re.compile(r', ?"milliseconds": ?\d+')


def difference(expected: Any, found: Any, path: str = "$", *, grows: bool = False) -> str:
    """Return the path of the first difference and both values; empty where there is none.

    With `grows`, objects may have more fields than were recorded.
    """
    if isinstance(expected, dict) and isinstance(found, dict):
        before, after = cast(dict[str, Any], expected), cast(dict[str, Any], found)
        for name in [*before, *(name for name in after if name not in before)]:
            if name not in after:
                return f"{path}.{name}: missing, expected {_short(before[name])}"
            if name not in before:
                if grows:
                    continue
                return f"{path}.{name}: unexpected, got {_short(after[name])}"
            if name == "enum" and {*before[name]} <= {*after[name]}:
                continue  # a value of a schema may be added
            if result := difference(before[name], after[name], f"{path}.{name}", grows=grows):
                return result
        return ""
    if isinstance(expected, list) and isinstance(found, list):
        many, more = cast(list[Any], expected), cast(list[Any], found)
        for index, (one, other) in enumerate(zip(many, more, strict=False)):
            if result := difference(one, other, f"{path}[{index}]", grows=grows):
                return result
        return "" if len(many) == len(more) else f"{path}: expected {len(many)} entries, got {len(more)}"
    if isinstance(expected, str) and isinstance(found, str) and expected != found:
        inside, other = _as_json(expected), _as_json(found)
        if inside is not None and (result := difference(inside, other, f"{path} (JSON)", grows=grows)):
            return result
        at = next((index for index, pair in enumerate(zip(expected, found, strict=False)) if pair[0] != pair[1]), None)
        at = min(len(expected), len(found)) if at is None else at
        some = slice(max(0, at - 60), at + 100)
        return f"{path}, character {at}: expected …{expected[some]!r}…, got …{found[some]!r}…"
    same = type(cast(object, expected)) is type(cast(object, found)) and expected == found
    return "" if same else f"{path}: expected {_short(expected)}, got {_short(found)}"


def assert_same(expected: Any, found: Any, what: str, *, grows: bool = False) -> None:
    result = difference(expected, found, grows=grows)
    assert not result, f"{what} differs from what was recorded: {result}"


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


def _as_json(text: str) -> Any:
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return cast(Any, found) if isinstance(found, dict | list) else None


def mapped(value: Any, change: Callable[[str, Any], Any], name: str = "") -> Any:
    """Return JSON with `change(field, value)` in place of each value; inner values are changed first."""
    if isinstance(value, dict):
        value = {each: mapped(inner, change, each) for each, inner in cast(dict[str, Any], value).items()}
    elif isinstance(value, list):
        value = [mapped(each, change, name) for each in cast(list[Any], value)]
    return change(name, value)


def without_frame(name: str, value: Any) -> Any:
    """Return a compiled or opened request as it is today. Without a system prompt, its frame was recorded
    as one: now it is counted with the tools, and without tools as overhead.
    """
    budget = cast(dict[str, Any], value).get("budget") if isinstance(value, dict) else None
    if budget is None or any(each["lifecycle"] == "static" for each in value.get("fragments", ())):
        return value
    frame, found = budget["system"], {**budget, "system": 0}
    if budget["tools"]:
        found["tools"] += frame
    else:
        names = ("used", "available", "overhead", *(("wanted",) if budget.get("wanted") else ()))
        found |= {each: budget[each] + frame for each in names if each in budget}
        found |= {"share": round(found["used"] / found["available"], 4)} if "share" in budget else {}
    return {**value, "budget": found}


def without_chance(text: str) -> str:
    """Return a text with ids numbered by their first appearance, and without times and durations."""
    seen: dict[str, str] = {}
    text = UID.sub(lambda found: seen.setdefault(found[0], f"<id {len(seen) + 1}>"), text)
    return MILLISECONDS.sub("", TIME.sub('"<time>"', text))
