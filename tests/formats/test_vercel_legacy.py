"""The Vercel AI SDK's older format: one call per message, role function, no ids; nothing is lost."""

import base64

import contextc as cc
from contextc._json import JSONObject
from contextc.formats.base import ConversionNote, split_segments
from contextc.formats.vercel_legacy import VercelLegacyFormatter
from contextc.messages import pair_tool_calls, validate_message

LEGACY = VercelLegacyFormatter()
PNG = b"\x89PNG"
PICTURE: JSONObject = {"contentType": "image/png", "url": f"data:image/png;base64,{base64.b64encode(PNG).decode()}"}

HISTORY = [
    cc.user([cc.Text("What is this?"), cc.Media(mime_type="image/png", data=PNG)]),
    cc.assistant(
        "Let me look.",
        reasoning=cc.Reasoning(text="Hm.", signature="sig", provider="anthropic"),
        tool_calls=[cc.tool_call("a", "read", '{"path":  "x"}'), cc.tool_call("b", "list", '{"dir": ')],
    ),
    cc.user("and hurry"),
    cc.tool_result("b", "list", "no such folder", is_error=True),
    cc.tool_result("a", "read", [cc.Text("a picture"), cc.Media(mime_type="image/png", data=PNG)]),
    cc.system("low memory"),
    cc.assistant(tool_calls=[cc.tool_call("c", "now", {})]),
    cc.tool_result("c", "now", "noon"),
    cc.assistant("A file."),
    cc.user(
        [
            cc.Text("thanks"),
            cc.messages.ProviderBlock(provider="openai", data={"type": "program"}),
            cc.messages.UserNotice("for people"),
        ]
    ),
]


def test_segment_by_segment_is_the_same_as_at_once() -> None:
    """Guarantee 10.1: what was sent is sealed, so a longer history must begin with the same messages."""
    sealed = [LEGACY.encode(segment) for segment in split_segments(pair_tool_calls(HISTORY).messages)]
    assert LEGACY.join(sealed) == LEGACY.format(HISTORY)
    assert [note for segment in sealed for note in segment.notes] == [
        ConversionNote("left out", "reasoning of another provider"),
        ConversionNote("moved", "media of read, into a user message after the results"),
        ConversionNote("left out", "that the result of list is an error"),
        ConversionNote("described", "a block of openai"),
    ]


def test_what_we_have_no_place_for_comes_back() -> None:
    """Guarantees 10.5, 2.5: ids, dates, role data, and a function_call that was still text."""
    wire: list[JSONObject] = [
        {"id": "m1", "createdAt": "2024-01-01", "role": "user", "content": "hi", "experimental_attachments": [PICTURE]},
        {"id": "m2", "role": "data", "content": "", "data": {"progress": 1}},
        {"id": "m3", "role": "assistant", "content": "yes", "reasoning": "Hm.", "annotations": [1]},
    ]
    body: JSONObject = {"messages": wire, "functions": [{"name": "f", "parameters": {}, "strict": True}], "model": "x"}
    request = LEGACY.decode_request(body)
    assert [message.uid for message in request.messages] == ["m1", "", "m3"]
    assert LEGACY.encode_request(request) == body
    assert request.settings == {"model": "x"}
    for message in request.messages:
        validate_message(message)


def test_parts_keep_their_order_and_their_steps() -> None:
    """Guarantee 10.3: what was said before a call stays before it; a text after calls begins a step."""
    asked = {"state": "result", "toolCallId": "a", "toolName": "f", "args": {"n": 1}, "result": "1"}
    wire: JSONObject = {
        "id": "m",
        "role": "assistant",
        "content": "Let me look.Done.",
        "reasoning": "Hm.",
        "annotations": [1],
        "toolInvocations": [asked, {**asked, "toolCallId": "b", "step": 1}],
        "parts": [
            {"type": "step-start"},
            {"type": "reasoning", "reasoning": "Hm.", "details": [{"type": "text", "text": "Hm."}]},
            {"type": "text", "text": "Let me look."},
            {"type": "tool-invocation", "toolInvocation": asked},
            {"type": "text", "text": "Done."},
            {"type": "file", "mimeType": "image/png", "data": base64.b64encode(PNG).decode()},
            {"type": "source", "source": {"id": "s", "url": "https://example.com"}},
        ],
    }
    request = LEGACY.decode_request({"messages": [wire]})
    assert request.messages == (
        cc.Message(
            role="assistant",
            parts=(
                cc.Reasoning(text="Hm.", provider="vercel_legacy"),
                cc.Text("Let me look."),
                cc.tool_call("a", "f", {"n": 1}),
            ),
            uid="m",
            extra={"vercel_legacy": {"id": "m", "annotations": [1]}},
        ),
        cc.tool_result("a", "f", "1"),
        cc.assistant(
            [
                cc.Text("Done."),
                cc.Media(mime_type="image/png", data=PNG),
                cc.messages.ProviderBlock(provider="vercel_legacy", data=wire["parts"][6]),
            ],
            tool_calls=[cc.tool_call("b", "f", {"n": 1})],
        ),
        cc.tool_result("b", "f", "1"),
    )
    sent = LEGACY.encode_with_notes(request)
    assert [(each["role"], each["content"]) for each in sent.body["messages"]] == [
        ("assistant", "Let me look."),
        ("function", "1"),
        ("assistant", "Done.[image: image/png; not shown]"),
        ("function", "1"),
    ]
    assert ConversionNote("left out", "source, which only a user interface is shown") in sent.notes
