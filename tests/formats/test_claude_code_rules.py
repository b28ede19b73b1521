"""Lint rules for Claude Code's lines. Each was tried with the real program."""

import json
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import contextc as cc
from contextc._json import JSON, JSONObject
from tests.conftest import often
from tests.formats.claude_code_samples import STREAMS, TRANSCRIPTS, assistant, result, sample, text, use, user


def codes(body: JSON) -> list[tuple[str, str]]:
    return [(each.code, each.path) for each in cc.lint(body, format="claude_code")]


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ([user("hi"), {"type": "wish", "message": {"role": "user"}}], [("CLC001", "[1]")]),
        ([user("hi"), {"message": {"role": "user", "content": "hi"}}], [("CLC001", "[1]")]),
        ([user("hi"), {"type": "assistant"}], [("CLC001", "[1]")]),
        ([user([{"type": "text"}])], [("CLC001", "[0].message.content[0]")]),
        ([], [("CLC002", "")]),
        ([{"type": "user", "message": {"role": "assistant", "content": "hi"}}], [("CLC003", "[0].message.role")]),
        ([user("hi"), assistant(use("a")), user("?")], [("CLC004", "[1].message.content[0]")]),
        ([user("hi"), assistant(use("a"))], [("CLC004", "[1].message.content[0]")]),
        ([user([result("a")])], [("CLC005", "[0].message.content[0]")]),
        ([user("hi"), assistant(use("a")), user([result("a"), result("a")])], [("CLC006", "[2].message.content[1]")]),
    ],
)
def test_what_claude_code_would_drop_or_refuse_is_named(lines: list[JSONObject], found: list[tuple[str, str]]) -> None:
    """Guarantee 10.6."""
    assert codes(lines) == found
    fixed, _ = cc.fix(lines, format="claude_code")
    assert codes(fixed) == []


@pytest.mark.parametrize("name", ["my session", "", "6f1d9a52", 3, "{6f1d9a52-7a1c-4c0e-9a86-0d4c6f1b2e3a}"])
def test_a_session_has_a_uuid_for_a_name(name: JSON) -> None:
    """Guarantee 9.5: the program exits on any other."""
    body: JSONObject = {"resume": name, "messages": [user("hi")]}
    assert codes(body) == [("CLC011", "resume")]
    assert cc.fix(body, format="claude_code")[0] == {"messages": [user([text("hi")])]}


@pytest.mark.parametrize(
    "lines",
    [
        [user("hi"), assistant(use("a")), user([text("and hurry")]), user([result("a")])],
        [user("hi"), assistant(use("a"), use("b")), user([result("b")]), user([result("a")])],
        [user([text(" ")]), assistant(text("Hello."))],
        [assistant(text("Hello.")), user("hi")],
        [{"type": "queue-operation", "operation": "enqueue"}, user("hi"), {"type": "contextc.note", "text": "so"}],
    ],
    ids=["words before a result", "results in two lines", "blank", "begins with a reply", "other lines"],
)
def test_input_that_claude_code_corrects_breaks_no_rule(lines: list[JSONObject]) -> None:
    """Guarantee 10.6: a false alarm costs trust."""
    assert codes(lines) == []


@pytest.mark.parametrize("name", [name for name in STREAMS if name not in ("stdout-overloaded", "stdout-unauthorized")])
def test_what_the_program_wrote_breaks_no_rule(name: str) -> None:
    """Guarantee 10.6: with all lines that are not messages."""
    assert codes(sample(name)) == []


def test_what_is_nearly_a_line_becomes_one() -> None:
    """Guarantee 10.6: a message of the API, a type that is gone, a text."""
    bare: JSONObject = {"role": "user", "content": "hi"}
    given: list[JSON] = [bare, {"type": "human", "message": bare}, "and?"]
    fixed, repairs = cc.fix({"messages": given}, format="claude_code")
    assert fixed == {"messages": [user([text("hi"), text("hi"), text("and?")])]}
    assert [each.code for each in repairs] == ["CLC001"] * 3


ODD: list[JSON] = [None, True, 3, "words", [], {}, [None], {"type": "text"}, [[]]]


@settings(max_examples=often(15, 150), deadline=None)
@given(data=st.data(), name=st.sampled_from(TRANSCRIPTS))
def test_a_damaged_transcript_is_read_and_can_be_fixed(data: st.DataObject, name: str) -> None:
    """Guarantee 15.1: with any values in up to three fields."""
    lines = sample(name)
    for _ in range(data.draw(st.integers(1, 3))):
        held: JSON = data.draw(st.sampled_from(lines))
        while True:
            inside = cast(JSONObject, dict(enumerate(cast(list[JSON], held))) if isinstance(held, list) else held)
            key = data.draw(st.sampled_from(list(inside)))
            if not isinstance(inside[key], dict | list) or not inside[key] or data.draw(st.booleans()):
                break
            held = inside[key]
        cast(JSONObject, held)[key] = json.loads(json.dumps(data.draw(st.sampled_from(ODD))))
    fixed, _ = cc.fix(lines, format="claude_code")
    assert codes(fixed) == []
