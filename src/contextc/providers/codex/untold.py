"""Calls that Codex makes and says nothing of: what its sandbox denied, a tool that it does not have, its plan.

Codex tells of items, and not every call becomes one. All of them stand in the thread's own record, with what the model
was answered; it is looked at whenever something new begins, and of a call that no item told of, an item is made.
"""

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import cast

from contextc._json import JSON, JSONObject, parse_object

CALLS, RESULTS = ("function_call", "custom_tool_call"), ("function_call_output", "custom_tool_call_output")
BEGINS = ("thread/tokenUsage/updated", "item/started", "turn/completed")
"""Before these it is looked at. What was answered by then stands in the record, unless the API takes no time at all; it
is then told with the next."""


class Untold:
    """Reads along in the record of a thread, from where it ends now. `known` are calls that came with its history."""

    def __init__(self, path: str, known: Collection[str]) -> None:
        self._path, self._known = Path(path) if path else None, known
        self._end = self._path.stat().st_size if self._path is not None and self._path.exists() else 0
        self._asked: dict[str, JSONObject] = {}

    def before(self, message: JSONObject, told: Collection[str]) -> Iterator[JSONObject]:
        """What is to be told before this message. `told` are the names of the items so far."""
        if message["method"] not in BEGINS:
            return
        place = {name: message["params"].get(name) for name in ("threadId", "turnId")}
        for item in self._new():
            name = str(item.get("call_id"))
            if item["type"] in CALLS:
                self._asked[name] = item
            elif name not in told and name not in self._known and (asked := self._asked.pop(name, None)):
                made = {"type": "dynamicToolCall", "id": name, "tool": asked["name"], "arguments": _given(asked)}
                said = {"contentItems": [{"type": "inputText", "text": _text(item.get("output"))}]}
                yield {"method": "item/started", "params": {**place, "item": {**made, "status": "inProgress"}}}
                yield {"method": "item/completed", "params": {**place, "item": {**made, "status": "completed", **said}}}

    def _new(self) -> Iterator[JSONObject]:
        """Calls and results that were written since the last look."""
        if self._path is None:
            return
        try:
            with self._path.open("rb") as file:
                file.seek(self._end)
                written = file.read()
        except OSError:
            return
        whole = written[: written.rfind(b"\n") + 1]
        self._end += len(whole)
        for line in whole.splitlines():
            entry = (parse_object(line.decode("utf-8", "replace")) or {}) if b"_call" in line else {}
            item: JSON = entry.get("payload")
            if entry.get("type") == "response_item" and isinstance(item, dict):
                found = cast(JSONObject, item)
                if found.get("type") in (*CALLS, *RESULTS):
                    yield found


def _given(asked: JSONObject) -> JSONObject:
    if "input" in asked:
        return {"input": asked["input"]}
    written = str(asked.get("arguments") or "{}")
    return parse_object(written) or {"arguments": written}


def _text(output: JSON) -> str:
    if isinstance(output, list):
        blocks = [cast(JSONObject, block) for block in cast(list[JSON], output) if isinstance(block, dict)]
        return "\n".join(str(block.get("text") or "") for block in blocks)
    return output if isinstance(output, str) else ""
