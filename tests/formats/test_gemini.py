"""Google's generateContent: complete bodies, recorded traffic both ways, and replies whole or streamed."""

import json

import pytest

from contextc._json import JSONObject
from contextc.formats.base import OPENING_TEXT, Request, split_segments
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
from contextc.tools.definitions import NativeTool, Tool

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


def test_whole_body_of_a_request_with_everything_in_it() -> None:
    """Guarantees 2.3, 2.4, 2.5, 5.1, 10.3: calls stay together, results follow at once, nothing said is lost."""
    request = Request(
        messages=tuple(HISTORY),
        system=system("Be brief."),
        tools=(
            Tool(name="weather", description="The weather.", parameters={"type": "object"}),
            NativeTool(provider="google", data={"googleSearch": {}}),
            NativeTool(provider="anthropic", data={"type": "web_search"}),
            Tool(name="clock"),
        ),
        settings={"generationConfig": {"maxOutputTokens": 100}},
    )
    assert GOOGLE.encode_request(request) == {
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "generationConfig": {"maxOutputTokens": 100},
        "tools": [
            {
                "functionDeclarations": [
                    {
                        "name": "weather",
                        "description": "The weather.",
                        "parametersJsonSchema": {"type": "object"},
                    },
                    {"name": "clock"},
                ]
            },
            {"googleSearch": {}},
        ],
        "contents": CONTENTS,
    }


def test_segment_by_segment_is_the_same_as_the_whole() -> None:
    """Guarantee 10.1: a sealed segment never changes, however the request around it grows."""
    sealed = [GOOGLE.encode(segment) for segment in split_segments(pair_tool_calls(HISTORY).messages)]
    before = json.dumps([segment.messages for segment in sealed])
    assert GOOGLE.join(sealed) == GOOGLE.format(HISTORY) == CONTENTS
    assert json.dumps([segment.messages for segment in sealed]) == before


def test_results_are_separate_even_after_an_empty_reply() -> None:
    """Guarantee 10.4: a blank reply is not sent, and what follows it is still no part of the results before it."""
    call = assistant(tool_calls=[tool_call("a", "run", {})])
    contents = GOOGLE.format([user("go"), call, tool_result("a", "run", "done"), assistant(Text(" ")), user("And?")])
    assert contents[2:] == [
        {"role": "user", "parts": [{"functionResponse": {"id": "a", "name": "run", "response": {"output": "done"}}}]},
        {"role": "user", "parts": [{"text": "And?"}]},
    ]


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


def test_history_that_begins_with_the_model_gets_an_opening() -> None:
    """Guarantee 10.4: a call must come after a user content, so a user content comes first."""
    assert GOOGLE.format([assistant("Hello!"), user("Hi.")]) == [
        {"role": "user", "parts": [{"text": OPENING_TEXT}]},
        {"role": "model", "parts": [{"text": "Hello!"}]},
        {"role": "user", "parts": [{"text": "Hi."}]},
    ]


def test_a_request_that_came_with_the_model_first_gets_no_opening_and_no_note_of_one() -> None:
    body: JSONObject = {
        "contents": [{"role": "model", "parts": [{"text": "Hello!"}]}, {"role": "user", "parts": [{"text": "Hi."}]}]
    }
    written = GOOGLE.encode_with_notes(GOOGLE.decode_request(body))
    assert (written.body, written.notes) == (body, ())


def test_placeholder_signature_is_for_models_that_require_one() -> None:
    """Guarantee 10.4: models before Gemini 3 sign nothing, and need no placeholder."""
    history = [user("go"), assistant(tool_calls=[tool_call("a", "run", {})]), tool_result("a", "run", "done")]
    model = GeminiFormatter(signatures=False).format(history)[1]
    assert model == {"role": "model", "parts": [{"functionCall": {"id": "a", "name": "run", "args": {}}}]}


def test_media_in_a_result_goes_where_the_api_takes_it() -> None:
    """Guarantee 2.6: pictures are inside the response; audio follows the results in its own content."""
    picture, sound = Media(mime_type="image/png", data=b"a"), Media(mime_type="audio/wav", data=b"b")
    lost = Media(mime_type="image/png", blob="0" * 64, size=7)
    history = [
        user("go"),
        assistant(tool_calls=[tool_call("a", "look", {})]),
        tool_result("a", "look", [Text("seen"), picture, sound, lost]),
    ]
    assert GOOGLE.format(history)[2:] == [
        {
            "role": "user",
            "parts": [
                {
                    "functionResponse": {
                        "id": "a",
                        "name": "look",
                        "response": {"output": "seen\n[image: image/png, 7 bytes; not shown]"},
                        "parts": [{"inlineData": {"mimeType": "image/png", "data": "YQ=="}}],
                    }
                }
            ],
        },
        {
            "role": "user",
            "parts": [
                {"text": "[media returned by look]"},
                {"inlineData": {"mimeType": "audio/wav", "data": "Yg=="}},
            ],
        },
    ]


def test_calls_without_an_id_get_one_and_go_back_without() -> None:
    """Guarantee 5.1: our matching is by id, Google's need not be; the id is the same each time, and is not sent."""
    reply: JSONObject = {
        "candidates": [
            {
                "content": {
                    "role": "model",
                    "parts": [
                        {"functionCall": {"name": "roll", "args": {}}, "thoughtSignature": "c2ln"},
                        {"functionCall": {"name": "roll", "args": {}}},
                    ],
                },
                "finishReason": "STOP",
            }
        ]
    }
    message = GOOGLE.decode_reply(reply)
    one, two = message.tool_calls
    assert one.id != two.id
    assert message == GOOGLE.decode_reply(reply)
    assert message.finish == "tool_calls"
    history = [user("go"), message, tool_result(two.id, "roll", "6"), tool_result(one.id, "roll", "1")]
    contents = GOOGLE.format(history)
    assert contents[1:] == [
        reply["candidates"][0]["content"],
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"name": "roll", "response": {"output": "1"}}},
                {"functionResponse": {"name": "roll", "response": {"output": "6"}}},
            ],
        },
    ]
    assert [call.id for call in GOOGLE.decode_request({"contents": contents}).messages[1].tool_calls] == [
        one.id,
        two.id,
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


@pytest.mark.parametrize("name", BODIES)
def test_a_body_comes_back_as_it_was(name: str) -> None:
    """Guarantee 10.5: wire to messages to wire loses nothing, spelling, signatures and grouping included."""
    assert GOOGLE.encode_request(GOOGLE.decode_request(BODIES[name])) == BODIES[name]


def test_parts_of_a_body_become_ours() -> None:
    """Guarantees 2.4, 2.5: thoughts are reasoning of Google, unknown parts stay whole, files of Google are known as
    such.
    """
    thoughts = GOOGLE.decode_request(BODIES["parts only Google understands"]).messages[1].parts
    assert thoughts[0] == Reasoning(text="hm", signature="c2ln", provider="google")
    assert all(isinstance(part, ProviderBlock) for part in thoughts[1:4])
    assert thoughts[4] == Text("", extra={"google": {"text": "", "thoughtSignature": "c2ln"}})
    first, _, file = GOOGLE.decode_request(BODIES["the other spelling"]).messages[0].parts
    assert isinstance(first, Media)
    assert (first.data, first.mime_type) == (b"\xff\xef", "image/jpeg")
    assert isinstance(file, Media)
    assert (file.file_id, file.provider) == ("gs://bucket/a", "google")
