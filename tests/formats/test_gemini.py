"""Google's generateContent: complete bodies, recorded traffic both ways, and replies whole or streamed."""

import json

from contextc._json import JSONObject
from contextc.formats.base import split_segments
from contextc.formats.gemini import GeminiFormatter
from contextc.formats.gemini.codec import PLACEHOLDER_SIGNATURE
from contextc.messages import (
    Media,
    ProviderBlock,
    Reasoning,
    Text,
    assistant,
    pair_tool_calls,
    system,
    tool_call,
    tool_result,
    user,
)

GOOGLE = GeminiFormatter()

HISTORY = [
    user(["Compare these.", Media(mime_type="image/png", data=b"\xff\xef\xbe")]),
    assistant(
        "I will look.",
        reasoning=Reasoning(text="Both cities.", provider="google"),
        tool_calls=[tool_call("a", "weather", {"city": "Paris"}), tool_call("b", "weather", "{city: Rome")],
    ),
    user("And hurry."),
    tool_result("b", "weather", "no such city", is_error=True),
    tool_result("a", "weather", "sunny"),
    system("Answer in French."),
    assistant(
        [ProviderBlock(provider="anthropic", data={"type": "server_tool_use"}), "Il fait beau."],
        reasoning=Reasoning(text="Hm.", signature="s", provider="anthropic"),
    ),
    assistant([Text("  "), Text("À Paris.")]),
    user([Media(mime_type="video/mp4", url="https://example.com/a.mp4"), "And this?"]),
]

CONTENTS: list[JSONObject] = [
    {
        "role": "user",
        "parts": [{"text": "Compare these."}, {"inlineData": {"mimeType": "image/png", "data": "/+++"}}],
    },
    {
        "role": "model",
        "parts": [
            {"text": "Both cities.", "thought": True},
            {"text": "I will look."},
            {
                "functionCall": {"id": "a", "name": "weather", "args": {"city": "Paris"}},
                "thoughtSignature": PLACEHOLDER_SIGNATURE,
            },
            {"functionCall": {"id": "b", "name": "weather", "args": {"malformed_arguments": "{city: Rome"}}},
        ],
    },
    {
        "role": "user",
        "parts": [
            {"functionResponse": {"id": "a", "name": "weather", "response": {"output": "sunny"}}},
            {"functionResponse": {"id": "b", "name": "weather", "response": {"error": "no such city"}}},
        ],
    },
    {
        "role": "user",
        "parts": [
            {"text": "And hurry."},
            {"text": "<system-reminder>\nAnswer in French.\n</system-reminder>"},
        ],
    },
    {
        "role": "model",
        "parts": [
            {"text": "[anthropic server_tool_use; not shown]"},
            {"text": "Il fait beau."},
            {"text": "À Paris."},
        ],
    },
    {
        "role": "user",
        "parts": [
            {"fileData": {"mimeType": "video/mp4", "fileUri": "https://example.com/a.mp4"}},
            {"text": "And this?"},
        ],
    },
]


def test_segment_by_segment_is_the_same_as_the_whole() -> None:
    """Guarantee 10.1: a sealed segment never changes, however the request around it grows."""
    sealed = [GOOGLE.encode(segment) for segment in split_segments(pair_tool_calls(HISTORY).messages)]
    before = json.dumps([segment.messages for segment in sealed])
    assert GOOGLE.join(sealed) == GOOGLE.format(HISTORY) == CONTENTS
    assert json.dumps([segment.messages for segment in sealed]) == before


def test_notes_report_content_that_was_not_expressed() -> None:
    """Guarantee 10.3: what was left out, described or tagged is reported, not hidden."""
    notes = [note for part in split_segments(pair_tool_calls(HISTORY).messages) for note in GOOGLE.encode(part).notes]
    assert [(note.done, note.text) for note in notes] == [
        ("made up", "a signature for the call of weather, which came from elsewhere"),
        ("changed", "the malformed arguments of weather, into an object that holds their text"),
        ("tagged", "a system message, as user text in <system-reminder>"),
        ("left out", "reasoning of anthropic"),
        ("described", "a block of anthropic"),
    ]


BODIES: dict[str, JSONObject] = {
    "contents that came apart, and results that came with text": {
        "contents": [
            {"role": "user", "parts": [{"text": "a"}]},
            {"role": "user", "parts": [{"text": "b"}]},
            {"role": "model", "parts": [{"text": "c"}]},
            {"role": "model", "parts": [{"functionCall": {"name": "run"}}]},
            {
                "role": "user",
                "parts": [{"functionResponse": {"name": "run", "response": {"status": [1]}}}, {"text": "d"}],
            },
            {"role": "user", "parts": [{"text": ""}]},
        ]
    },
    "parts only Google understands": {
        "contents": [
            {"role": "user", "parts": [{"text": "a"}]},
            {
                "role": "model",
                "parts": [
                    {"text": "hm", "thought": True, "thoughtSignature": "c2ln"},
                    {"executableCode": {"language": "PYTHON", "code": "1"}, "thoughtSignature": "c2ln"},
                    {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}},
                    {"inlineData": {"mimeType": "image/png", "data": "YQ=="}, "thought": True},
                    {"text": "", "thoughtSignature": "c2ln"},
                ],
            },
        ],
        "cachedContent": "cachedContents/1",
    },
    "the other spelling": {
        "contents": [
            {
                "role": "user",
                "parts": [
                    {"inline_data": {"mime_type": "image/jpeg", "data": "_-8="}},
                    {"inlineData": {"mimeType": "image/jpeg", "data": "_-8", "displayName": "b"}},
                    {"fileData": {"file_uri": "gs://bucket/a"}, "video_metadata": {"fps": 1}},
                ],
            },
        ],
        "system_instruction": {"parts": [{"text": "Be brief."}]},
        "generation_config": {"temperature": 0},
        "tools": [
            {"function_declarations": [{"name": "a", "parameters_json_schema": {"type": "object"}}]},
            {
                "functionDeclarations": [{"name": "b"}, {"name": "c", "parameters": {"type": "OBJECT"}}],
                "googleSearch": {},
            },
            {"urlContext": {}},
        ],
    },
}
