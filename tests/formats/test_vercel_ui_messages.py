"""UI messages of the AI SDK, converted to our messages."""

import pytest

import contextc as cc
from contextc._json import JSONObject
from contextc.formats.vercel.ui_messages import collect_events
from contextc.messages import validate_message
from tests.formats.test_vercel import BASE64, UI_TURN, VERCEL, call, result, text


def test_a_ui_message_becomes_a_message_per_step() -> None:
    """Guarantee 2.7: call and result are one part in a UIMessage; its id is the uid of the first message."""
    wire: list[JSONObject] = [{"id": "m1", "role": "user", "parts": [{"type": "text", "text": "How big?"}]}, UI_TURN]
    request = VERCEL.decode_request({"messages": wire})
    assert [(message.role, message.uid) for message in request.messages] == [
        ("user", "m1"),
        ("assistant", "m2"),
        ("tool", ""),
        ("assistant", ""),
    ]
    assert request.messages[1].meta == {"model": "x"}
    assert request.messages[3].parts[:2] == (
        cc.messages.ProviderBlock(provider="vercel", data=UI_TURN["parts"][6]),
        cc.messages.ProviderBlock(provider="vercel", data=UI_TURN["parts"][7]),
    )
    assert VERCEL.encode_history(request.messages) == [
        {"role": "user", "content": "How big?"},
        {
            "role": "assistant",
            "content": [
                {"type": "reasoning", "text": "Hm.", "providerOptions": {"anthropic": {"signature": "sig"}}},
                text("Let me look."),
                call("a", "read", {"path": "x"}),
                call("b", "list", {"dir": "y"}),
            ],
        },
        {
            "role": "tool",
            "content": [
                result("a", "read", {"type": "json", "value": {"size": 3}}),
                result("b", "list", {"type": "error-text", "value": "no such folder"}),
            ],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "file", "mediaType": "image/png", "data": f"data:image/png;base64,{BASE64}"},
                text("Three bytes."),
            ],
        },
    ]


@pytest.mark.parametrize("state", ["approval-requested", "approval-responded"])
def test_a_call_that_waits_for_approval_has_no_result(state: str) -> None:
    """Guarantee 5.3: whatever a person decided, the tool did not run yet."""
    approval = {"id": "ok1", **({"approved": True} if state == "approval-responded" else {})}
    part = {"type": "tool-f", "toolCallId": "a", "state": state, "input": {"x": 1}, "approval": approval}
    messages = VERCEL.decode_request({"messages": [{"id": "m", "role": "assistant", "parts": [part]}]}).messages
    assert messages[0].tool_calls[0].arguments == {"x": 1}
    assert not any(message.tool_results for message in messages)
    for message in messages:
        validate_message(message)


ASKED_IN_STREAM: list[JSONObject] = [
    {"type": "tool-input-available", "toolCallId": "a", "toolName": "read", "input": {"path": "x"}},
    {"type": "tool-approval-request", "toolCallId": "a", "approvalId": "ok1"},
]


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([*ASKED_IN_STREAM], {"state": "approval-requested", "approval": {"id": "ok1"}}),
        (
            [
                *ASKED_IN_STREAM,
                {"type": "tool-approval-response", "approvalId": "ok1", "approved": False, "reason": "no"},
            ],
            {"state": "approval-responded", "approval": {"id": "ok1", "approved": False, "reason": "no"}},
        ),
        (
            [*ASKED_IN_STREAM, {"type": "tool-approval-response", "approvalId": "other", "approved": True}],
            {"state": "approval-requested", "approval": {"id": "ok1"}},
        ),
        (
            [*ASKED_IN_STREAM, {"type": "tool-output-denied", "toolCallId": "a"}],
            {"state": "output-denied", "approval": {"id": "ok1"}},
        ),
        (
            [ASKED_IN_STREAM[0], {"type": "tool-output-error", "toolCallId": "a", "errorText": "no file"}],
            {"state": "output-error", "errorText": "no file"},
        ),
        (
            [
                {**ASKED_IN_STREAM[0], "providerMetadata": {"x": {"n": 1}}},
                {
                    "type": "tool-output-available",
                    "toolCallId": "a",
                    "output": "1",
                    "providerMetadata": {"x": {"n": 2}},
                },
            ],
            {
                "state": "output-available",
                "output": "1",
                "callProviderMetadata": {"x": {"n": 1}},
                "resultProviderMetadata": {"x": {"n": 2}},
            },
        ),
    ],
)
def test_the_chunks_of_a_call_give_its_state(events: list[JSONObject], expected: JSONObject) -> None:
    called = {"type": "dynamic-tool", "toolCallId": "a", "toolName": "read", "input": {"path": "x"}}
    assert collect_events(events)["parts"] == [{**called, **expected}]
    assert [each.id for each in VERCEL.decode_stream(events).tool_calls] == ["a"]


def test_input_that_the_sdk_could_not_read_is_a_failed_call() -> None:
    (part,) = collect_events(
        [{"type": "tool-input-error", "toolCallId": "a", "toolName": "read", "input": "{", "errorText": "no JSON"}]
    )["parts"]
    assert (part["state"], part["input"], part["errorText"]) == ("output-error", "{", "no JSON")
