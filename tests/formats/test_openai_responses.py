"""Requests to OpenAI's Responses API, encoded and decoded."""

import base64
from typing import cast

from contextc import (
    Media,
    assistant,
    system,
    tool_call,
    tool_result,
    user,
)
from contextc._json import JSON, JSONObject
from contextc.formats.base import ConversionNote, split_segments
from contextc.formats.openai_chat import OpenAIFormatter
from contextc.formats.openai_responses import OpenAIResponsesFormatter
from contextc.messages import pair_tool_calls
from tests.formats.traffic import accepted

RESPONSES = OpenAIResponsesFormatter()
PNG = b"\x89PNG"
PICTURE: JSONObject = {
    "type": "input_image",
    "detail": "auto",
    "image_url": f"data:image/png;base64,{base64.b64encode(PNG).decode()}",
}

# These are taken from the recordings in pydantic-ai's test suite (MIT licence), shortened where nothing is read:
# tests/models/cassettes/test_bedrock_mantle/test_reused_tool_call_ids_gpt_5_5.yaml and
# tests/models/cassettes/test_openai_responses/test_prompted_output.yaml.
LONG_CALL_ID = "resp_2vmnquymsguw3uup3fg2bsvkq3joan3ebjhg2hhvviozugqqmufa:call_0"
REAL_REQUESTS: list[JSONObject] = [
    {
        "include": ["reasoning.encrypted_content"],
        "input": [
            {"content": "Follow the tool instructions.", "role": "user"},
            {
                "arguments": "{}",
                "call_id": LONG_CALL_ID,
                "id": "fc_36f011262abb5556b74096db18b12fcc",
                "name": "first_tool",
                "type": "function_call",
            },
            {"call_id": LONG_CALL_ID, "output": "first result", "type": "function_call_output"},
            {
                "content": [{"annotations": [], "text": "First tool result: first result", "type": "output_text"}],
                "id": "msg_b71e73d593275be8bb6ac78a8590ac0c",
                "phase": "final_answer",
                "role": "assistant",
                "status": "completed",
                "type": "message",
            },
            {"content": "Reply with exactly OK.", "role": "user"},
        ],
        "model": "openai.gpt-5.5",
        "stream": False,
    },
    {
        "input": [
            {"content": "Always respond with a JSON object.", "role": "system"},
            {"content": "What is the largest city in the user country?", "role": "user"},
            {"content": "", "role": "assistant"},
            {
                "arguments": "{}",
                "call_id": "call_FrlL4M0CbAy8Dhv4VqF1Shom",
                "name": "get_user_country",
                "type": "function_call",
            },
            {"call_id": "call_FrlL4M0CbAy8Dhv4VqF1Shom", "output": "Mexico", "type": "function_call_output"},
        ],
        "model": "gpt-4o",
        "stream": False,
        "text": {"format": {"type": "json_object"}},
        "tool_choice": "auto",
        "tools": [
            {
                "description": "",
                "name": "get_user_country",
                "parameters": {"additionalProperties": False, "properties": {}, "type": "object"},
                "strict": False,
                "type": "function",
            }
        ],
    },
]


def normal(value: JSON) -> JSON:
    """A body without null fields, and with a single plain text as a string: neither makes a difference."""
    if isinstance(value, dict):
        items = cast(JSONObject, value).items()
        return {name: normal(_shortest(name, each)) for name, each in items if each is not None}
    if isinstance(value, list):
        return [normal(each) for each in cast(list[JSON], value)]
    return value


def _shortest(name: str, value: JSON) -> JSON:
    if name in ("content", "output") and isinstance(value, list):
        blocks = cast(list[JSONObject], value)
        if len(blocks) == 1 and blocks[0].keys() == {"type", "text"}:
            return blocks[0]["text"]
    return cast(JSON, value)


def call(id: str, name: str, arguments: str) -> JSONObject:
    return {"type": "function_call", "call_id": id, "name": name, "arguments": arguments}


def output(id: str, content: JSON) -> JSONObject:
    return {"type": "function_call_output", "call_id": id, "output": content}


def there_and_back(body: JSONObject) -> JSONObject:
    return RESPONSES.encode_request(RESPONSES.decode_request(body))


def test_media_goes_out_from_wherever_it_lies_and_is_described_where_it_cannot() -> None:
    """Guarantee 2.6: bytes, a blob, an address or a file of this provider; sound and foreign files become one line."""
    parts = [
        Media(mime_type="image/png", blob="b1"),
        Media(mime_type="image/png", url="https://example.org/cat.png"),
        Media(mime_type="image/png", file_id="file-1", provider="openai"),
        Media(mime_type="application/pdf", data=b"%PDF", name="a.pdf"),
        Media(mime_type="application/pdf", data=b"%PDF"),
        Media(mime_type="application/pdf", url="https://example.org/a.pdf"),
        Media(mime_type="application/pdf", file_id="file-2", provider="openai"),
        Media(mime_type="application/pdf", file_id="file-3", provider="anthropic"),
        Media(mime_type="audio/wav", data=b"RIFF"),
    ]
    encoded = RESPONSES.encode([user(parts)], blobs={"b1": PNG})
    assert encoded.messages == (
        {
            "role": "user",
            "content": [
                PICTURE,
                {"type": "input_image", "detail": "auto", "image_url": "https://example.org/cat.png"},
                {"type": "input_image", "detail": "auto", "file_id": "file-1"},
                {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERg=="},
                {"type": "input_file", "filename": "document.pdf", "file_data": "data:application/pdf;base64,JVBERg=="},
                {"type": "input_file", "file_url": "https://example.org/a.pdf"},
                {"type": "input_file", "file_id": "file-2"},
                {"type": "input_text", "text": "[document: application/pdf; not shown]"},
                {"type": "input_text", "text": "[audio: audio/wav; not shown]"},
            ],
        },
    )
    assert encoded.notes == (
        ConversionNote("described", "document of type application/pdf"),
        ConversionNote("described", "audio of type audio/wav"),
    )


def test_segment_by_segment_is_the_same_as_the_whole() -> None:
    """Guarantee 10.1: a sealed segment is never touched again."""
    history = [
        user("a"),
        assistant("b", tool_calls=[tool_call("1", "read", "{}"), tool_call("2", "read", "{}")]),
        system("s"),
        tool_result("2", "read", "two"),
        assistant("c"),
        assistant("d"),
        user("e"),
    ]
    sealed = [RESPONSES.encode(each) for each in split_segments(pair_tool_calls(history).messages)]
    assert RESPONSES.join(sealed) == RESPONSES.encode_history(history)


def test_what_came_from_the_chat_of_the_same_provider_keeps_to_this_format() -> None:
    """Guarantee 10.1: one conversation can go to any format at any step, also to the other one of the same provider."""
    picture = {"type": "image_url", "image_url": {"url": "https://example.org/cat.png", "detail": "low"}}
    request = OpenAIFormatter().decode_request(
        {
            "messages": [
                {"role": "user", "content": [picture], "name": "ada"},
                {"role": "assistant", "content": None, "refusal": "No."},
            ],
            "tools": [{"type": "function", "function": {"name": "read", "parameters": {}, "strict": True}}],
        }
    )
    parameters: JSONObject = {"type": "object", "properties": {}}
    assert RESPONSES.encode_request(request) == {
        "input": [
            {
                "role": "user",
                "content": [{"type": "input_image", "detail": "auto", "image_url": "https://example.org/cat.png"}],
            },
            {"role": "assistant", "content": "No."},
        ],
        "tools": [{"type": "function", "name": "read", "parameters": parameters, "strict": True}],
    }


def test_real_requests_survive_there_and_back() -> None:
    """Guarantee 10.5: what the provider accepted is what it is sent again, in every recording available."""
    recorded = [exchange.request for exchange in accepted("openai_responses")]
    for body in [*REAL_REQUESTS, *recorded]:
        assert normal(there_and_back(body)) == normal(body)
