"""The cases of each format in tests/data/cases: messages and the body they become, bodies and what is wrong with them.

A case has one input, and what it states of the output is compared whole:

| input | output |
|---|---|
| `messages`, `system`, `tools`, `settings` | `body`, which breaks no rule and the vendor's types accept; `notes` |
| `body` | `codes` of the rules it breaks (none, if not given) and the `fixed` body; `decoded`, `again`, `converted` |
| `messages` of a segment | `encoded`, `notes` |
| `reply` or `events` | the `message` it is decoded as |
| `call`, a method of the formatter, `with` its arguments | what it `gives` |

`options` are those of the formatter. A message of one text is written `{"user": "hi"}`, and others as they are stored.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import msgspec
import pytest

import contextc as cc
from contextc._json import JSON, JSONObject
from contextc.formats.base import Formatter, Request
from contextc.tools.definitions import NativeTool
from tests.formats.known import problems

DATA = Path(__file__).parent.parent / "data"
TEXT = {"user": cc.user, "assistant": cc.assistant, "system": cc.system}


def read_cases() -> Iterator[object]:
    """Yield the cases of each behaviour, with the format their file is named for."""
    for path in sorted((DATA / "cases").glob("*.json")):
        for name, group in load(path.read_text(encoding="utf-8")).items():
            cases = [{"format": path.stem, **case} for case in group.get("cases", [group])]
            yield pytest.param(cases, id=f"{path.stem}: {name}")


def load(text: str) -> dict[str, JSONObject]:
    """Read a file. `"$user hi"` is the value of that name in its `names`."""
    groups = json.loads(text)
    names = groups.pop("names", {})

    def resolve(value: JSON) -> JSON:
        if isinstance(value, dict):
            return {name: resolve(each) for name, each in cast(JSONObject, value).items()}
        if isinstance(value, list):
            return [resolve(each) for each in cast(list[JSON], value)]
        if isinstance(value, str) and value[:1] == "$" and value[1:] in names:
            return resolve(names[value[1:]])
        return value

    return cast(dict[str, JSONObject], resolve(groups))


def read_message(value: JSONObject) -> cc.Message:
    (name, text), *more = value.items()
    return TEXT[name](text) if name in TEXT and not more else msgspec.convert(value, cc.Message)


def read_tool(value: JSONObject) -> cc.Tool | NativeTool:
    return msgspec.convert(value, NativeTool if "provider" in value else cc.Tool)


def read_request(value: JSONObject) -> Request:
    system = value.get("system")
    return Request(
        messages=tuple(read_message(each) for each in value["messages"]),
        system=None if system is None else cc.system(system) if isinstance(system, str) else read_message(system),
        tools=tuple(read_tool(each) for each in value.get("tools", ())),
        settings=value.get("settings", {}),
    )


def check_encoded(form: Formatter, case: JSONObject) -> None:
    """A list as `body` is what `format` makes of the messages alone; `encoded` is a segment of a history."""
    request = read_request(case)
    if "encoded" in case:
        segment = form.encode(request.messages)
        assert list(segment.messages) == case["encoded"]
        assert [str(note) for note in segment.notes] == case.get("notes", [])
        return
    body = case["body"]
    if isinstance(body, list):
        made = cast(JSON, form.format(request.messages, request.system.text if request.system else None))
    else:
        written = form.encode_with_notes(request)
        made = written.body
        if "notes" in case:
            assert [str(note) for note in written.notes] == case["notes"]
    assert made == body
    assert [found.code for found in cc.lint(made, format=form.name)] == case.get("codes", [])
    if not case.get("refused"):
        assert problems(form.name, made) == []


def check_body(form: Formatter, case: JSONObject) -> None:
    body = cast(JSONObject, case["body"])
    found = cc.lint(body, format=form.name)
    codes = case.get("codes", [])
    assert [each.code for each in found] == codes
    for name in {"path", "error", "message"} & case.keys():
        assert [getattr(each, name) for each in found] == case[name]
    fixed, repairs = cc.fix(body, format=form.name)
    assert fixed == case.get("fixed", body)
    assert bool(repairs) is bool(codes)
    if codes:
        assert [each.code for each in cc.lint(fixed, format=form.name)] == case.get("codes after", [])
    if "repairs" in case:
        assert [each.repair for each in repairs] == case["repairs"]
    if case.get("sound"):
        assert problems(form.name, body) == []
    if "decoded" in case:
        request = form.decode_request(body)
        assert msgspec.structs.replace(request, source=None) == read_request(case["decoded"])
    if "again" in case:
        assert form.encode_request(form.decode_request(body)) == case["again"]
    for target, expected in case.get("converted", {}).items():
        made = cc.convert(body, source=form.name, target=target)
        assert made == expected["body"]
        assert made.warnings == expected.get("warnings", [])


@pytest.mark.parametrize("cases", [*read_cases()])
def test_cases(cases: list[JSONObject]) -> None:
    """Guarantee 10.1: one more case is one more entry in the file of its format."""
    for case in cases:
        check_case(case)


def check_case(case: JSONObject) -> None:
    form = cc.formatter(case["format"])
    if "options" in case:
        form = type(form)(**case["options"])
    if "call" in case:
        assert getattr(form, case["call"])(*case["with"]) == case["gives"]
    elif "messages" in case:
        check_encoded(form, case)
    elif "body" in case:
        check_body(form, case)
    else:
        if "reply" in case:
            assert form.decode_reply(case["reply"]) == read_message(case["message"])
        if "events" in case:
            assert form.decode_stream(case["events"]) == read_message(case["message"])
