"""The Vercel AI SDK: ModelMessage encoded and decoded; UIMessage and its stream decoded."""

import base64

import contextc as cc
from contextc._json import JSONObject
from contextc.formats.base import ConversionNote, split_segments
from contextc.formats.vercel import VercelFormatter
from contextc.messages import pair_tool_calls, validate_message

VERCEL = VercelFormatter()
PNG = b"\x89PNG"
BASE64 = base64.b64encode(PNG).decode()


def text(words: str) -> JSONObject:
    return {"type": "text", "text": words}


def call(call_id: str, name: str, given: object) -> JSONObject:
    return {"type": "tool-call", "toolCallId": call_id, "toolName": name, "input": given}


def result(call_id: str, name: str, output: JSONObject) -> JSONObject:
    return {"type": "tool-result", "toolCallId": call_id, "toolName": name, "output": output}


HISTORY = [
    cc.user([cc.Text("What is this?"), cc.Media(mime_type="image/png", data=PNG, name="a.png")]),
    cc.assistant(
        "Let me look.",
        reasoning=cc.Reasoning(text="Hm.", signature="sig", provider="anthropic"),
        tool_calls=[cc.tool_call("a", "read", {"path": "x"}), cc.tool_call("b", "list", '{"dir": ')],
    ),
    cc.user("and hurry"),
    cc.tool_result("b", "list", "no such folder", is_error=True),
    cc.tool_result("a", "read", [cc.Text("a picture"), cc.Media(mime_type="image/png", data=PNG)]),
    cc.system("low memory"),
    cc.assistant([cc.Reasoning(text="unsigned", provider="deepseek"), cc.Text("A file.")]),
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
    sealed = [VERCEL.encode(segment) for segment in split_segments(pair_tool_calls(HISTORY).messages)]
    assert VERCEL.join(sealed) == VERCEL.format(HISTORY)
    assert [note for segment in sealed for note in segment.notes] == [
        ConversionNote("changed", "the malformed arguments of list, into an object that holds their text"),
        ConversionNote("made up", "allowSystemInMessages, because a system message stands among others"),
        ConversionNote("left out", "unsigned reasoning of deepseek"),
        ConversionNote("described", "a block of openai"),
    ]


MODEL_MESSAGES: list[JSONObject] = [
    {
        "role": "system",
        "content": "Be brief.",
        "providerOptions": {"anthropic": {"cacheControl": {"type": "ephemeral"}}},
    },
    {"role": "user", "content": "hi", "providerOptions": {"openai": {"x": 1}}},
    {"role": "user", "content": [{**text("look"), "providerOptions": {"anthropic": {"cacheControl": {}}}}]},
    {
        "role": "user",
        "content": [
            text(""),
            {"type": "image", "image": BASE64},
            {"type": "image", "image": f"data:image/png;base64,{BASE64}", "mediaType": "image/png"},
            {"type": "file", "mediaType": "application/pdf", "data": "https://example.com/a.pdf", "filename": "a.pdf"},
            {"type": "file", "mediaType": "image", "data": {"type": "data", "data": BASE64}},
            {"type": "file", "mediaType": "image/png", "data": {"openai": "file-1"}},
            {"type": "file", "mediaType": "text/plain", "data": "not base64"},
        ],
    },
    {
        "role": "assistant",
        "content": [
            {"type": "reasoning", "text": "Hm.", "providerOptions": {"anthropic": {"signature": "sig"}}},
            {"type": "reasoning", "text": "", "providerOptions": {"anthropic": {"redactedData": "secret"}}},
            {
                "type": "reasoning",
                "text": "So.",
                "providerOptions": {"openai": {"itemId": "rs_1", "reasoningEncryptedContent": None}},
            },
            {"type": "reasoning", "text": "plain"},
            {"type": "reasoning", "text": "routed", "providerOptions": {"openrouter": {"details": [1]}}},
            text("One moment."),
            {**call("a", "read", {"path": "x"}), "providerOptions": {"google": {"thoughtSignature": "g"}}},
            call("b", "list", '{"dir": '),
            call("c", "now", {}),
            call("d", "rate", [1, 2]),
            {**call("e", "web", {"q": "x"}), "providerExecuted": True},
            result("e", "web", {"type": "json", "value": [{"title": "x"}]}),
            {"type": "custom", "kind": "openai.compaction", "providerOptions": {"openai": {"itemId": "c"}}},
            {"type": "tool-approval-request", "approvalId": "ok1", "toolCallId": "c"},
        ],
        "providerOptions": {"anthropic": {"container": "x"}},
    },
    {
        "role": "tool",
        "content": [
            {**result("a", "read", {"type": "json", "value": {"n": 1.5}}), "providerOptions": {"openai": {"x": 1}}},
            result("b", "list", {"type": "error-json", "value": {"code": 2}}),
            {"type": "tool-approval-response", "approvalId": "ok1", "approved": False, "reason": "not now"},
            result("c", "now", {"type": "execution-denied", "reason": "not now"}),
            result(
                "d",
                "rate",
                {
                    "type": "content",
                    "value": [
                        text("chart"),
                        {"type": "image-data", "data": BASE64, "mediaType": "image/png"},
                        {"type": "file-url", "url": "https://example.com/a.pdf"},
                        {"type": "file", "mediaType": "image/png", "data": {"type": "data", "data": BASE64}},
                    ],
                },
            ),
        ],
        "providerOptions": {"anthropic": {"cacheControl": {"type": "ephemeral"}}},
    },
    {"role": "assistant", "content": [text("Denied.")]},
    {"role": "user", "content": "and now?"},
    {"role": "assistant", "content": [call("e", "now", {})]},
    {"role": "tool", "content": [result("e", "now", {"type": "execution-denied"})]},
    {"role": "assistant", "content": "bye"},
]


def test_model_messages_come_back_as_they_were() -> None:
    """Guarantee 10.5: wire, messages, the same wire; 2.5: what we have no part for comes back bit for bit."""
    request = VERCEL.decode_request({"messages": MODEL_MESSAGES})
    assert VERCEL.encode_history(request.messages) == MODEL_MESSAGES


def test_every_decoded_message_may_be_stored() -> None:
    """Guarantee 2.2: an answer to a request for approval is not a result; it is what a person said."""
    for message in VERCEL.decode_request({"messages": MODEL_MESSAGES}).messages:
        validate_message(message)


UI_TURN: JSONObject = {
    "id": "m2",
    "role": "assistant",
    "metadata": {"model": "x"},
    "parts": [
        {"type": "step-start"},
        {"type": "reasoning", "text": "Hm.", "state": "done", "providerMetadata": {"anthropic": {"signature": "sig"}}},
        {"type": "text", "text": "Let me look.", "state": "done"},
        {
            "type": "tool-read",
            "toolCallId": "a",
            "state": "output-available",
            "input": {"path": "x"},
            "output": {"size": 3},
        },
        {
            "type": "dynamic-tool",
            "toolName": "list",
            "toolCallId": "b",
            "state": "output-error",
            "input": {"dir": "y"},
            "errorText": "no such folder",
        },
        {"type": "step-start"},
        {"type": "source-url", "sourceId": "s", "url": "https://example.com"},
        {"type": "data-weather", "data": {"city": "Paris"}},
        {"type": "file", "mediaType": "image/png", "url": f"data:image/png;base64,{BASE64}"},
        {"type": "text", "text": "Three bytes."},
    ],
}
