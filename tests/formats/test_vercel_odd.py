"""Unusual input of the AI SDK: steering, answers to approvals, and mixed kinds of messages."""

import pytest

import contextc as cc
from contextc._json import JSONObject
from contextc.formats.vercel import VercelFormatter
from contextc.linting import convert, fix, lint
from contextc.messages import validate_message

VERCEL = VercelFormatter()
HI: JSONObject = {"role": "user", "content": "hi"}
PNG = "data:image/png;base64,iVBORw=="


def text(words: str) -> JSONObject:
    return {"type": "text", "text": words}


def call(call_id: str = "a") -> JSONObject:
    return {"type": "tool-call", "toolCallId": call_id, "toolName": "f", "input": {}}


def result(call_id: str, output: JSONObject | None = None) -> JSONObject:
    given = output or {"type": "text", "value": call_id}
    return {"type": "tool-result", "toolCallId": call_id, "toolName": "f", "output": given}


def asked(call_id: str = "a") -> JSONObject:
    return {"type": "tool-approval-request", "approvalId": f"ok-{call_id}", "toolCallId": call_id}


def told(call_id: str = "a", **fields: object) -> JSONObject:
    return {"type": "tool-approval-response", "approvalId": f"ok-{call_id}", "approved": True, **fields}


def said(role: str, *parts: JSONObject) -> JSONObject:
    return {"role": role, "content": list(parts)}


def shown(*parts: JSONObject, role: str = "assistant") -> JSONObject:
    return {"id": "m", "role": role, "parts": list(parts)}


def through(*messages: JSONObject) -> list[JSONObject]:
    return VERCEL.encode_request(VERCEL.decode_request({"messages": list(messages)}))["messages"]


STEERED = shown(
    {"type": "step-start"},
    {"type": "tool-f", "toolCallId": "a", "state": "output-available", "input": {}, "output": "a"},
    {
        "type": "steering-message",
        "id": "s",
        "parts": [text("hurry"), {"type": "file", "mediaType": "image/png", "url": PNG}],
    },
    {"type": "step-start"},
    text("Done."),
)


APPROVED = [
    [HI, said("assistant", text("Hm."), call(), asked()), said("tool", told())],
    [HI, said("assistant", call(), asked()), said("tool", told(approved=False, reason="not now"))],
    [HI, said("assistant", call("a"), call("b"), asked("b")), said("tool", result("a"), told("b"))],
    [HI, said("assistant", call("a"), call("b"), asked("b")), said("tool", result("a")), said("tool", told("b"))],
    [HI, said("assistant", call("a"), call("b"), asked("a"), asked("b")), said("tool", told("a"), told("b"))],
    [HI, said("assistant", call(), asked()), {**said("tool", told()), "providerOptions": {"anthropic": {"x": 1}}}],
    [
        HI,
        said("assistant", call()),
        said("tool", result("a")),
        said("assistant", call(), asked()),
        said("tool", told()),
    ],
    [
        HI,
        said("assistant", call(), asked()),
        said("tool", told()),
        said("tool", result("a")),
        said("assistant", call(), asked()),
        said("tool", told()),
    ],
    [HI, said("assistant", {**call(), "providerOptions": {"google": {"x": 1}}}, asked()), said("tool", told())],
]


@pytest.mark.parametrize("messages", APPROVED)
def test_a_call_that_was_just_approved_goes_back_without_a_result(messages: list[JSONObject]) -> None:
    """Guarantees 10.5, 2.5: the SDK runs it before it asks the model; a result of ours would be taken for the
    tool's.
    """
    assert lint(messages, format="vercel") == []
    assert through(*messages) == messages
    assert convert(messages, source="vercel", target="vercel") == messages
    assert fix([{"role": "user", "content": []}, *messages], format="vercel")[0] == messages
    for message in VERCEL.decode_request({"messages": messages}).messages:
        validate_message(message)


def test_a_reply_leaves_out_nothing_but_results() -> None:
    """Guarantee 10.3: one message for all the steps; what others said meanwhile stays in it, and follows it on the
    wire.
    """
    first, ran, steer, *rest = STEERED["parts"]
    approved = {**ran, "toolCallId": "b", "approval": {"id": "ok-b", "approved": True}}
    reply = VERCEL.decode_reply({**STEERED, "metadata": {"n": 1}, "parts": [first, ran, approved, steer, *rest]})
    assert (reply.text, reply.uid, reply.meta) == ("Done.", "m", {"n": 1})
    assert [each.id for each in reply.tool_calls] == ["a", "b"]
    validate_message(reply)
    results = cc.Message(role="tool", parts=tuple(cc.ToolResult(call_id=each, name="f", content=each) for each in "ab"))
    wire = VERCEL.format([reply, results, cc.user("and?")])
    assert wire == [
        said("assistant", call("a"), call("b"), asked("b"), text("Done.")),
        said("tool", result("a"), told("b"), result("b")),
        said("user", text("hurry"), {"type": "file", "mediaType": "image/png", "data": PNG}),
        {"role": "user", "content": "and?"},
    ]
    assert lint(wire, format="vercel") == []
