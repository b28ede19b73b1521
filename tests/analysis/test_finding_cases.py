"""The cases in tests/data/findings.toml: what a client sends, and the findings about it.

`steps` are in the language of `traces/script.py`, with these steps for a client of the Messages API (`client` is
"chat" for one of Chat Completions), whose provider reads what the request before sent:

| step | effect |
|---|---|
| `work 4`, `send`, `send 0`, `send seconds=60` | sends requests whose answers call a tool; 0 tokens were read |
| `set messages[2].content "text"`, `add`, `insert`, `delete` | changes a field of the client: messages, tools, … |
| `reverse tools[0]` | another order, of a list or of the keys of an object |
| `wait 6m` | time passes |
| `save`, `restore messages time=500` | fields as they were, or 500 ms after they were saved |

A value is JSON, a text, `user:text` or `assistant:text` (a message), `text:text` (a block) or `tool:name`. With
`client = "run"` it is an `ObservedRun`: `tools read draw:3000`, `ask`, `send`, `call read "result" path=a.txt`, `fail`.

`finds` are the findings: all cache misses after that of the first request, or all with the `code` of the case. `says`
and `fix` are parts of the title and of the fix; `path`, `before` and `after` are those of the first evidence; `tokens`
and `confidence` are ranges; all others are fields of the `Finding`.
"""

import json
import re
import tomllib
from pathlib import Path
from typing import Any, cast

import pytest

from contextc.analysis import Finding
from tests.analysis.cached_client import FILE, SYSTEM, ChatClient, Client, tool
from tests.analysis.observed_run import ObservedRun, define_tool, find_by_request, words
from tests.analysis.traces.script import Steps

DATA = Path(__file__).parent.parent / "data" / "findings.toml"
CASES: dict[str, dict[str, Any]] = tomllib.loads(DATA.read_text(encoding="utf-8"))
VALUES: dict[str, Any] = CASES.pop("values")
FIELD = re.compile(r"\{([a-z]+)(?: ([0-9]+))?(?: ([^{}]*))?\}")
KEY = re.compile(r"[a-z_]+|-?[0-9]*:-?[0-9]*|-?[0-9]+")
READ, WRITE = 0.30, 3.75
"""Dollars per million tokens of the model of an `ObservedRun`."""

MISS = {"tokens": [1_001, 10**6], "confidence": [0.4, 1]}
"""Figures of cache misses, where a case has no others."""


class FindingSteps(Steps):
    """Runs the steps of a case."""

    def __init__(self, kind: str, settings: dict[str, Any]) -> None:
        super().__init__()
        self.client = {"": Client, "chat": ChatClient, "run": ObservedRun}[kind](**settings)
        self.saved: dict[str, Any] = {}

    def run_step(self, verb: str, words: list[str], name: str) -> None:
        getattr(self, f"do_{verb}")(*words)

    def fill(self, text: str) -> str:
        """Return a text with its fields filled."""

        def field(found: re.Match[str]) -> str:
            name, size, rest = found[1], int(found[2] or 0), found[3]
            make = {
                "count": lambda: str(self.count),
                "words": lambda: words(size, (rest or "w").replace("#", str(self.count))),
                "repeat": lambda: rest * size,
                "system": lambda: SYSTEM[: size or None],
                "file": lambda: FILE[: size or None],
            }
            return make[name]() if name in make else str(VALUES[name])

        return FIELD.sub(field, text.replace("\\n", "\n"))

    def value(self, word: str) -> Any:
        kind, is_kind, text = self.fill(word).partition(":")
        if is_kind and kind in ("user", "assistant", "system"):
            is_plain = isinstance(self.client, ChatClient)
            return {"role": kind, "content": text if is_plain else [{"type": "text", "text": text}]}
        if is_kind and kind == "text":
            return {"type": "text", "text": text}
        if is_kind and kind == "tool":
            name, _, description = text.partition(":")
            return tool(name, description)
        if word.startswith("$"):
            return json.loads(json.dumps(VALUES[word[1:]]))
        try:
            return json.loads(word)
        except ValueError:
            return self.fill(word)

    def find(self, path: str) -> tuple[Any, Any]:
        """Return the holder of a value, and its key in it: a name, an index or a slice."""
        at: Any = self.client.__dict__
        *keys, last = [self.key(each) for each in KEY.findall(path)]
        for key in keys:
            at = at[key]
        return at, last

    @staticmethod
    def key(text: str) -> Any:
        if ":" in text:
            return slice(*[int(each) if each else None for each in text.split(":")])
        return int(text) if text.lstrip("-").isdecimal() else text

    def do_set(self, path: str, *given: str) -> None:
        at, key = self.find(path)
        made = [self.value(each) for each in given]
        at[key] = made if isinstance(key, slice) or len(made) > 1 else made[0]

    def do_add(self, path: str, *given: str) -> None:
        at, key = self.find(path)
        at[key] = [*at[key], *[self.value(each) for each in given]]

    def do_insert(self, path: str, *given: str) -> None:
        at, key = self.find(path)
        at[key:key] = [self.value(each) for each in given]

    def do_delete(self, path: str) -> None:
        at, key = self.find(path)
        del at[key]

    def do_reverse(self, path: str) -> None:
        at, key = self.find(path)
        at[key] = dict(reversed(at[key].items())) if isinstance(at[key], dict) else at[key][::-1]

    def do_wait(self, minutes: str) -> None:
        self.client.time += int(minutes.removesuffix("m")) * 60_000

    def do_work(self, count: str) -> None:
        cast(Client, self.client).work(int(count))

    def do_save(self) -> None:
        client = self.client.__dict__
        self.saved = {**client, "messages": [*client["messages"]], "settings": {**client["settings"]}}

    def do_restore(self, *fields: str) -> None:
        for each in fields:
            name, _, later = each.partition("=")
            setattr(self.client, name, self.saved[name] + int(later or 0) if later else self.saved[name])

    def do_send(self, *given: str) -> None:
        options = dict(each.split("=") for each in given if "=" in each)
        self.client.send(
            *[self.value(each) for each in given if "=" not in each],
            **{name: self.value(text) for name, text in options.items()},
        )

    # Of an `ObservedRun`

    def do_tools(self, *given: str) -> None:
        """`name:3000` has a description of that many tokens, `name:3000:deferred` is loaded later."""
        made: list[dict[str, Any]] = []
        for each in given:
            name, _, size = each.partition(":")
            size, _, rest = size.partition(":")
            made.append({**define_tool(name, int(size or 40)), **({"defer_loading": True} if rest else {})})
        self.client.tools = made

    def do_ask(self, *content: str) -> None:
        cast(ObservedRun, self.client).ask(*[self.value(each) for each in content])

    def do_call(self, name: str, result: str, *given: str) -> None:
        arguments = {key: self.fill(text) for key, _, text in [each.partition("=") for each in given]}
        cast(ObservedRun, self.client).call(name, self.value(result), **arguments)

    def do_fail(self, status: str, text: str) -> None:
        cast(ObservedRun, self.client).fail(int(status), self.fill(text))


@pytest.mark.parametrize("name", list(CASES))
def test_findings(name: str) -> None:
    """Guarantee 17.2: one more case is one more table in the file."""
    case = CASES[name]
    steps = FindingSteps(case.get("client", ""), case.get("settings", {}))
    steps.run(case["steps"])
    conversation = "run" if case.get("client") == "run" else "c"
    found = find_by_request(steps.client.store, conversation)
    if "code" in case:
        found = [each for each in found if each.code in case["code"].split()]
    else:
        first, *found = [each for each in found if each.code.startswith("CAC")]
        assert (first.code, first.request, first.tokens, first.cost) == ("CAC001", 1, 0, 0.0)
        assert all((each.cost or 0) > 0 for each in found if each.cause != "first_request")
    assert len(found) == len(case["finds"]), [(each.cause, each.title) for each in found]
    for each, expected in zip(found, case["finds"], strict=True):
        check_finding(each, expected if "code" in case else {**MISS, **expected})


def check_finding(found: Finding, expected: dict[str, Any]) -> None:
    first = found.evidence[0]
    for name, value in expected.items():
        match name:
            case "cause":
                assert found.cause in ([value] if isinstance(value, str) else value)
            case "says" | "fix":
                text = found.title if name == "says" else found.fix
                assert [each for each in value if each not in text] == [], text
            case "path":
                assert first.path == value
            case "before" | "after":
                assert value in getattr(first, name)
            case "paths" | "requests":
                assert [getattr(each, name[:-1]) for each in found.evidence] == value
            case "tokens" | "confidence":
                assert value[0] <= getattr(found, name) <= value[-1]
            case "costs":
                price = (value.get("written", 0) * WRITE + value.get("read", 0) * READ) / 1e6
                assert found.cost == pytest.approx(found.tokens * price, rel=value["rel"])
            case _:
                actual: Any = getattr(found, name)
                assert (list(cast(tuple[Any, ...], actual)) if isinstance(actual, tuple) else actual) == value
