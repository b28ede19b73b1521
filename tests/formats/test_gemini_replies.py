"""Replies of Gemini, streamed and recorded, as our messages."""

from typing import cast

from contextc._json import JSONObject
from contextc.formats.gemini import GeminiFormatter
from contextc.messages import (
    Message,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
    Usage,
)
from tests.formats.test_gemini import BODIES, GOOGLE
from tests.formats.traffic import accepted, events, normal


def test_google_specific_content_is_sent_to_google_only() -> None:
    """Guarantee 10.1: another endpoint of the same format gets neither signatures nor thoughts nor native parts."""
    messages = GOOGLE.decode_request(BODIES["parts only Google understands"]).messages
    assert GeminiFormatter(provider="elsewhere").format(messages)[1] == {
        "role": "model",
        "parts": [
            {"text": f"[google {kind}; not shown]"} for kind in ("executableCode", "codeExecutionResult", "inlineData")
        ],
    }


def test_refused_prompt_is_a_reply_without_parts() -> None:
    """Guarantee 2.2: an empty reply is kept, with the reason why it is empty."""
    reply: JSONObject = {"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {"promptTokenCount": 4}}
    assert GOOGLE.decode_reply(reply) == Message(
        role="assistant",
        finish="content_filter",
        usage=Usage(input=4),
        extra={"google": {"promptFeedback": {"blockReason": "SAFETY"}}},
    )


def test_stream_keeps_a_signature_on_its_own_part() -> None:
    """Guarantee 2.4: text goes on where it stopped, but a signed part is neither continued nor joined to another."""
    pieces: list[JSONObject] = [
        {"text": "Let me ", "thought": True},
        {"text": "think.", "thought": True},
        {"text": "It "},
        {"text": "is."},
        {"text": ""},
        {"text": "", "thoughtSignature": "c2ln"},
    ]
    usage: JSONObject = {"promptTokenCount": 10, "cachedContentTokenCount": 8, "thoughtsTokenCount": 3}
    chunks: list[JSONObject] = [{"candidates": [{"content": {"parts": [piece]}}]} for piece in pieces]
    chunks.append({"candidates": [{"finishReason": "MAX_TOKENS"}], "usageMetadata": usage})
    message = GOOGLE.decode_stream(chunks)
    assert message.parts == (
        Reasoning(text="Let me think.", provider="google"),
        Text("It is."),
        Text("", extra={"google": {"text": "", "thoughtSignature": "c2ln"}}),
    )
    assert (message.finish, message.usage) == ("length", Usage(input=10, output=3, cache_read=8, reasoning=3))


# Recorded from Google's API by pydantic-ai's test suite (MIT licence):
# test_google_tool_config_any_with_tool_without_args, test_google_url_input[AudioUrl], test_google_model_stream.
CALLING: JSONObject = {
    "contents": [
        {"parts": [{"text": "run bar for me please"}], "role": "user"},
        {
            "parts": [
                {"functionCall": {"args": {}, "id": "pyd_ai_e3268c26ec6340bf82ce92c8342ddad2", "name": "bar"}},
            ],
            "role": "model",
        },
        {
            "parts": [
                {
                    "functionResponse": {
                        "id": "pyd_ai_e3268c26ec6340bf82ce92c8342ddad2",
                        "name": "bar",
                        "response": {"return_value": "hello"},
                    }
                }
            ],
            "role": "user",
        },
    ],
    "generationConfig": {},
    "toolConfig": {"functionCallingConfig": {"allowedFunctionNames": ["bar", "final_result"], "mode": "ANY"}},
    "tools": [
        {
            "functionDeclarations": [
                {"description": "", "name": "bar", "parameters": {"properties": {}, "type": "OBJECT"}},
                {
                    "description": "The final response which ends this conversation",
                    "name": "final_result",
                    "parameters": {"properties": {"bar": {"type": "STRING"}}, "required": ["bar"], "type": "OBJECT"},
                },
            ]
        }
    ],
}


CALLED: JSONObject = {
    "candidates": [
        {
            "avgLogprobs": -0.039950957894325255,
            "content": {
                "parts": [{"functionCall": {"args": {"bar": "hello"}, "name": "final_result"}}],
                "role": "model",
            },
            "finishReason": "STOP",
        }
    ],
    "modelVersion": "gemini-2.0-flash",
    "responseId": "LVteaNDWD5-Yx_APw-Pt8Ao",
    "usageMetadata": {
        "candidatesTokenCount": 5,
        "candidatesTokensDetails": [{"modality": "TEXT", "tokenCount": 5}],
        "promptTokenCount": 27,
        "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 27}],
        "totalTokenCount": 32,
    },
}


LISTENING: JSONObject = {
    "contents": [
        {
            "parts": [
                {"text": "What is the main content of this URL?"},
                {
                    "fileData": {
                        "file_uri": "https://cdn.openai.com/API/docs/audio/alloy.wav",
                        "mime_type": "audio/wav",
                    }
                },
            ],
            "role": "user",
        }
    ],
    "generationConfig": {},
}


STREAMED = (
    'data: {"candidates": [{"content": {"parts": [{"text": "The"}],"role": "model"}}],"usageMetadata": '
    '{"promptTokenCount": 15,"totalTokenCount": 15},"modelVersion": "gemini-2.0-flash-exp"}\r\n\r\n'
    'data: {"candidates": [{"content": {"parts": [{"text": " capital of France"}],"role": "model"}}],"usageMetadata": '
    '{"promptTokenCount": 15,"totalTokenCount": 15},"modelVersion": "gemini-2.0-flash-exp"}\r\n\r\n'
    'data: {"candidates": [{"content": {"parts": [{"text": " is Paris.\\n"}],"role": "model"},"finishReason": "STOP"}],'
    '"usageMetadata": {"promptTokenCount": 13,"candidatesTokenCount": 8,"totalTokenCount": 21},'
    '"modelVersion": "gemini-2.0-flash-exp"}\r\n\r\n'
)


def test_recorded_requests_come_back_as_they_were() -> None:
    """Guarantee 10.5: what Google accepted once, it is given again, an unsigned call of its own included."""
    for body in (CALLING, LISTENING):
        assert GOOGLE.encode_request(GOOGLE.decode_request(body)) == body
    call, result = GOOGLE.decode_request(CALLING).messages[1:]
    assert isinstance(call.parts[0], ToolCall)
    assert isinstance(result.parts[0], ToolResult)
    assert (result.parts[0].call_id, result.parts[0].content) == (call.parts[0].id, "hello")


def test_recorded_replies_become_messages() -> None:
    """Guarantee 10.1: whole and streamed replies are decoded by the same rules."""
    called, streamed = GOOGLE.decode_reply(CALLED), GOOGLE.decode_stream(events(STREAMED))
    assert [(call.name, call.arguments) for call in called.tool_calls] == [("final_result", {"bar": "hello"})]
    assert (called.finish, called.usage) == ("tool_calls", Usage(input=27, output=5))
    assert (streamed.text, streamed.finish) == ("The capital of France is Paris.\n", "stop")
    assert streamed.usage == Usage(input=13, output=8)


def test_every_accepted_request_of_the_corpus_comes_back() -> None:
    """Guarantee 10.5: decoding then encoding loses nothing of any request that Google accepted."""
    for case, _, body, _ in accepted("gemini"):
        assert normal(GOOGLE.encode_request(GOOGLE.decode_request(body))) == normal(body), case


def test_every_reply_of_the_corpus_becomes_a_message() -> None:
    """Guarantee 10.1: each reply has parts, a finish reason, and at least the tokens that Google's total counts."""
    for case, _, _, reply in accepted("gemini"):
        chunks = events(reply) if isinstance(reply, str) else [cast(JSONObject, reply)]
        message = GOOGLE.decode_stream(chunks)
        assert message.parts, case
        assert message.finish, case
        assert message.usage is not None
        total = chunks[-1]["usageMetadata"]["totalTokenCount"]  # a last chunk may forget what earlier ones counted
        assert message.usage.input + message.usage.output >= total, case
        if not isinstance(reply, str):
            assert GOOGLE.decode_reply(reply).text == message.text, case
