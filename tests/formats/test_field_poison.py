"""Failures known from practice: conversations that one message makes unsendable."""

import json
from collections.abc import Callable
from typing import cast

import pytest

import contextc as cc
from contextc._json import JSONObject
from contextc.formats import formatter
from contextc.messages import SYNTHETIC_RESULTS
from tests.formats.field import IN_TWO, call, codes, every_format, outline, result, sent, sound
from tests.formats.known import PARTIAL, having, known


@every_format
def test_a_dangling_call_spoils_no_later_request(name: str) -> None:
    """pydantic-ai#4728; Guarantee 5.3: and it says the same in all of them, so that the prefix stays."""
    history = [cc.user("hi"), cc.assistant("Hm.", tool_calls=[call("a")])]
    for later in ([], [cc.user("?")], [cc.user("?"), cc.assistant("Yes."), cc.user("!")]):
        wire = sent(name, [*history, *later])
        assert outline(name, wire)[:4] == ["hi", "Hm.", "call a", f"result a: {SYNTHETIC_RESULTS['interrupted']}"]


@every_format
@pytest.mark.parametrize("source", having("HALF_CALL"))
def test_arguments_cut_off_in_a_stream_do_not_poison_the_conversation(source: str, name: str) -> None:
    """pi#5538, vercel/ai#10638; Guarantee 2.3: kept as they were written, sent in a form that is taken, and
    answered.
    """
    reply = formatter(source).decode_stream(known(source).HALF_CALL)
    (made,) = reply.tool_calls
    assert (made.raw, made.malformed) == (PARTIAL, True)
    wire = sent(name, [cc.user("hi"), reply, cc.user("go on")])
    (piece,) = [piece for turn in formatter(name).rules.parse(wire).messages for piece in turn.parts_of("call")]
    if known(name).MALFORMED:
        assert known(name).MALFORMED in (piece.wire, piece.wire.get("function_call"))
    assert known(name).arguments(piece.wire) in (PARTIAL, {"malformed_arguments": PARTIAL})
    said = SYNTHETIC_RESULTS["cancelled" if reply.status == "cancelled" else "interrupted"]
    assert outline(name, wire) == ["hi", "call a", f"result a: {said}", "go on"]


@pytest.mark.parametrize("name", having("ARGUMENTS_AT"))
def test_truncated_arguments_are_reported_and_fixed(name: str) -> None:
    """pi#5538, vercel/ai#10638; Guarantee 10.6: a framework that stored the text, where an object is wanted."""
    whole = formatter(name).format([cc.user("hi"), cc.assistant(tool_calls=[call("a", PARTIAL)]), result("a")])
    *way, last = known(name).ARGUMENTS_AT
    broken = json.loads(json.dumps(whole))
    holder = broken[1]
    for step in way:
        holder = holder[step]
    holder[last] = PARTIAL
    assert codes(name, broken)[0] == formatter(name).rules.rules[0].code
    assert cc.fix(broken, format=name)[0] == whole


@every_format
def test_a_result_whose_approved_call_was_never_stored_is_left_out_alone(name: str) -> None:
    """openai-agents-python#4827; Guarantee 5.3: and if the call is stored after it, that is the call's own fate."""
    assert outline(name, sent(name, [cc.user("hi"), result("a"), cc.user("and?")])) == ["hi", "and?"]
    history = [cc.user("hi"), result("a"), cc.assistant(tool_calls=[call("a")]), cc.user("and?")]
    assert outline(name, sent(name, history)) == [
        "hi",
        "call a",
        f"result a: {SYNTHETIC_RESULTS['interrupted']}",
        "and?",
    ]


def interface(state: str, **fields: object) -> list[JSONObject]:
    """Return a client's history with a user message while a call is in this state."""
    part = {"type": "tool-look", "toolCallId": "a", "state": state, **fields}
    return [
        {"id": "m1", "role": "user", "parts": [{"type": "text", "text": "hi"}]},
        {"id": "m2", "role": "assistant", "parts": [{"type": "step-start"}, part]},
        {"id": "m3", "role": "user", "parts": [{"type": "text", "text": "never mind"}]},
    ]


@every_format
@pytest.mark.parametrize(
    ("state", "fields"),
    [
        ("approval-requested", {"input": {}, "approval": {"id": "ok1"}}),
        ("approval-responded", {"input": {}, "approval": {"id": "ok1", "approved": True}}),
        ("input-available", {"input": {}}),
        ("input-available", {}),
        ("input-streaming", {}),
    ],
)
def test_a_call_that_a_page_left_open_goes_out_with_a_result(name: str, state: str, fields: JSONObject) -> None:
    """vercel/ai#18451, #14349; Guarantee 5.3: an unanswered approval, a call without `input`."""
    history = formatter("vercel").decode_request({"messages": interface(state, **fields)}).messages
    found = [line for line in outline(name, sent(name, history)) if not line.startswith("[vercel ")]
    assert found == ["hi", "call a", f"result a: {SYNTHETIC_RESULTS['interrupted']}", "never mind"]


@every_format
@pytest.mark.parametrize("blank", ["", " ", "\n\t"])
def test_a_blank_reply_makes_no_unsound_request(name: str, blank: str) -> None:
    """hermes-agent#69512; Guarantees 2.2, 10.4."""
    wire = sent(name, [cc.user("hi"), cc.assistant(cc.Text(blank)), cc.user("go on")])
    assert [line for line in outline(name, wire) if line.strip()] == ["hi", "go on"]


@every_format
@pytest.mark.parametrize("remind", [cc.system, cc.user])
def test_a_reminder_between_a_call_and_its_result_comes_after_all_results(
    name: str, remind: Callable[[str], cc.Message]
) -> None:
    """Guarantee 5.2: 400 at most providers."""
    history = [
        cc.user("hi"),
        cc.assistant(tool_calls=[call("a"), call("b")]),
        remind("Be quick."),
        result("b", "2"),
        remind("Be brief."),
        result("a", "1"),
    ]
    assert outline(name, sent(name, history)) == [
        "hi",
        "call a",
        "call b",
        "result a: 1",
        "result b: 2",
        "Be quick.",
        "Be brief.",
    ]


@pytest.mark.parametrize("name", [name for name in IN_TWO if not known(name).RESULTS_ANYWHERE])
def test_a_reminder_before_a_result_is_reported_and_fixed(name: str) -> None:
    """Guarantee 10.6. Responses takes results anywhere after their call,
    Claude Code anywhere before the next reply.
    """
    whole = formatter(name).format([cc.user("hi"), cc.assistant(tool_calls=[call("a")]), result("a")])
    broken = [*whole[:2], cast(JSONObject, formatter(name).rules.message("Be quick.")), *whole[2:]]
    assert known(name).UNANSWERED in codes(name, broken)
    fixed, _ = cc.fix(broken, format=name)
    sound(name, fixed)
    assert outline(name, fixed) == ["hi", "call a", "result a: print(1)", "Be quick."]
