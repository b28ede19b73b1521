"""Files of Claude Code and Codex, taken by `lint`, `fix` and `convert`: their lines are one conversation."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

import contextc as cc
from contextc._json import JSONObject
from contextc.errors import InvalidRequest, InvalidSetting
from contextc.formats import format_names, formatter
from contextc.linting.request_reading import detect_session_format, layout_for, read_requests, write_requests
from tests.formats.claude_code_samples import assistant, text, use, user
from tests.formats.codex_samples import answer, lines, said

DATA = Path(__file__).parent.parent / "data"
SESSIONS = [(form, path.stem) for form in ("claude_code", "codex") for path in sorted((DATA / form).glob("*.jsonl"))]
FAILED = {"stdout-overloaded", "stdout-unauthorized", "exec_failed"}
"""Runs in which nobody but the program said anything."""


def data_of(form: str, name: str) -> bytes:
    return (DATA / form / f"{name}.jsonl").read_bytes()


def session(form: str, name: str) -> list[JSONObject]:
    """The conversation in a file."""
    (body,) = read_requests(data_of(form, name), form).bodies
    return cast(list[JSONObject], body)


def written(values: list[JSONObject]) -> bytes:
    return "\n".join(json.dumps(value) for value in values).encode()


def words(body: JSONObject | list[JSONObject], form: str) -> Iterator[tuple[str, str]]:
    """Yield roles and texts, with the calls and results between."""
    for message in formatter(form).decode_request(body).messages:
        called = [(message.role, f"{call.name} {call.id}") for call in message.tool_calls]
        returned = [(message.role, f"{result.call_id} {result.text}") for result in message.tool_results]
        yield from [*([(message.role, message.text)] if message.text else []), *called, *returned]


@pytest.mark.parametrize(("form", "name"), SESSIONS)
def test_a_file_of_a_program_is_recognised_and_is_one_conversation(form: str, name: str) -> None:
    """Guarantee 10.6: transcripts, standard output, rollouts, `exec --json` and notifications, with nothing to say."""
    data = data_of(form, name)
    assert detect_session_format(data) == form
    found = read_requests(data, form)
    assert (len(found.bodies), found.layout, found.unreadable_lines) == (1, "session", ())
    assert cc.lint(found.bodies[0], format=form) == []
    assert cc.fix(found.bodies[0], format=form) == (found.bodies[0], [])


@pytest.mark.parametrize(("form", "name"), [each for each in SESSIONS if each[1] not in FAILED])
def test_a_session_becomes_a_request_that_its_provider_takes(form: str, name: str) -> None:
    """Guarantee 10.6: converted, in every format, there is nothing left to complain about."""
    body = session(form, name)
    for target in format_names():
        made = cc.convert(body, source=form, target=target)
        assert made
        assert cc.lint(made, format=target) == [], target
        shape = layout_for("session", target)
        assert shape == ("session" if target in ("claude_code", "codex") else "whole")
        assert read_requests(write_requests([made], shape), target).bodies == [made], target


@pytest.mark.parametrize(("form", "name"), [("claude_code", "transcript-parallel"), ("codex", "turn")])
@pytest.mark.parametrize("target", ["anthropic", "openai_chat", "openai_responses", "vercel"])
def test_a_session_converted_and_back_is_the_same(form: str, name: str, target: str) -> None:
    """Guarantee 3.8: texts, calls and results survive both directions."""
    body = session(form, name)
    there = cc.convert(body, source=form, target=target)
    back = cc.convert(there, source=target, target=form)
    assert sorted(words(back, form)) == sorted(words(body, form))
    assert cc.lint(back, format=form) == []


@pytest.mark.parametrize("name", ["stdout-overloaded", "stdout-unauthorized"])
def test_output_of_a_failed_run_is_not_a_request_without_messages(name: str) -> None:
    """Guarantee 10.6: the program's own text is not part of the conversation, and breaks no rule."""
    body = session("claude_code", name)
    assert cc.lint(body, format="claude_code") == []
    without_end = [line for line in body if line["type"] != "result"]
    assert [each.code for each in cc.lint(without_end, format="claude_code")] == ["CLC002"]
    made = cc.convert(body, source="claude_code", target="anthropic")
    assert (made, made.warnings) == (
        [],
        ["empty: nothing of this can be represented there, and a request needs at least one message"],
    )


NEW_IN_CODEX: dict[str, JSONObject] = {
    "rollout": {"timestamp": "2027-01-01T00:00:00Z", "type": "mood", "payload": {"now": "cheerful"}},
    "rollout_compacted": {"timestamp": "2027-01-01T00:00:00Z", "type": "mood"},
    "exec": {"type": "turn.paused", "reason": "lunch"},
    "turn": {"method": "mood/changed", "params": {"now": "cheerful"}},
    "dynamic": {"id": 3, "result": {"thread": {}}},
}


@pytest.mark.parametrize("name", NEW_IN_CODEX)
def test_a_line_of_tomorrow_changes_nothing_of_a_session_of_codex(name: str) -> None:
    """Guarantee 10.6: what a newer version writes besides is not a message, and no reason to read nothing."""
    known, new = lines(name), NEW_IN_CODEX[name]
    mixed = [known[0], new, *known[1:], new]
    assert detect_session_format(written(mixed)) == "codex"
    assert cc.lint(mixed, format="codex") == []
    assert list(words(mixed, "codex")) == list(words(known, "codex")) != []
    made = cc.convert(mixed, source="codex", target="anthropic")
    assert made == cc.convert(known, source="codex", target="anthropic")


@pytest.mark.parametrize("name", ["rollout", "turn", "exec"])
def test_what_is_nothing_of_codex_among_its_lines_is_text_and_the_rest_is_read(name: str) -> None:
    """Guarantee 10.6: a foreign line does not cause the loss of other content."""
    known = lines(name)
    strange: JSONObject = {"note": "mind the gap"}
    assert [each.path for each in cc.lint([*known, strange], format="codex")] == [f"[{len(known)}]"]
    fixed, _ = cc.fix([*known, strange], format="codex")
    assert list(words(fixed, "codex"))[:-1] == list(words(known, "codex"))
    assert "mind the gap" in list(words(fixed, "codex"))[-1][1]
    assert cc.lint(fixed, format="codex") == []


def test_a_line_of_tomorrow_changes_nothing_of_a_transcript_of_claude_code() -> None:
    known = session("claude_code", "transcript-parallel")
    mixed = [*known, {"type": "mood", "now": "cheerful", "sessionId": "1"}]
    assert cc.lint(mixed, format="claude_code") == []
    target = "openai_chat"
    assert cc.convert(mixed, source="claude_code", target=target) == cc.convert(
        known, source="claude_code", target=target
    )
    request: list[JSONObject] = [user("hi"), {"type": "mood", "now": "cheerful"}]
    assert [each.code for each in cc.lint(request, format="claude_code")] == ["CLC001"]


def test_a_line_that_was_cut_off_is_left_out_and_counted() -> None:
    """Guarantee 3.8: a program that died while it wrote leaves the rest of its file readable."""
    whole = data_of("claude_code", "transcript-parallel")
    torn = whole + b'{"type":"user","mess'
    found = read_requests(torn, "claude_code")
    assert (found.bodies, found.unreadable_lines) == (
        read_requests(whole, "claude_code").bodies,
        (len(torn.splitlines()),),
    )
    assert detect_session_format(torn) == "claude_code"
    with pytest.raises(InvalidRequest, match="line 3, column 5: this is not JSON: it is truncated"):
        read_requests(b'{"role":"user"}\n{"role":"user"}\n{"ro', "openai_chat")


def test_one_line_is_a_session_too() -> None:
    one = written([user("hi")])
    assert read_requests(one, "claude_code") == ([[user("hi")]], "session", ())
    assert write_requests([[user("hi")]], "session") == (json.dumps(user("hi"), separators=(",", ":")) + "\n").encode()
    assert read_requests(one, "anthropic").layout == "whole"


def test_requests_a_line_stay_requests() -> None:
    """A file of bodies that were compiled for a program is not one conversation."""
    bodies: list[JSONObject] = [{"messages": [user("hi")]}, {"messages": [user("and?")]}]
    assert read_requests(written(bodies), "claude_code") == (bodies, "lines", ())
    threads: list[JSONObject] = [{"items": [said("hi")]}, {"items": [said("hi"), answer("Hello!")]}]
    assert read_requests(written(threads), "codex") == (threads, "lines", ())


def test_a_broken_session_is_fixed_as_lines() -> None:
    """Guarantee 10.6: a call that was never answered, because the program was killed."""
    broken = written([user("hi"), assistant(text("Let me look."), use("a")), user("and?")])
    (body,) = read_requests(broken, "claude_code").bodies
    assert [each.code for each in cc.lint(body, format="claude_code")] == ["CLC004"]
    fixed, repairs = cc.fix(body, format="claude_code")
    again = read_requests(write_requests([fixed], "session"), "claude_code")
    assert (len(repairs), again.layout, cc.lint(again.bodies[0], format="claude_code")) == (1, "session", [])


@pytest.mark.parametrize(
    "given",
    [
        b"",
        b"not JSON",
        b'{"messages": [{"role": "user", "content": "hi"}]}',
        b'{"role": "user", "content": "hi"}\n{"role": "assistant", "content": "Hello!"}',
        b'{"type": "message", "role": "user", "content": "hi"}\n{"type": "function_call", "name": "look"}',
    ],
)
def test_files_that_are_not_sessions_are_not_guessed(given: bytes) -> None:
    with pytest.raises(
        InvalidSetting, match=r"the format cannot be detected\. Give one of anthropic, bedrock, claude_code, "
    ):
        detect_session_format(given)
