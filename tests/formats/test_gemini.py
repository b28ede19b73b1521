"""Google's generateContent: complete bodies, recorded traffic both ways, and replies whole or streamed."""

import json
from typing import cast

import pytest

from contextc._json import JSONObject
from contextc.formats.base import OPENING_TEXT, Request, split_segments
from contextc.formats.gemini import GeminiFormatter
from contextc.formats.gemini.encode import PLACEHOLDER_SIGNATURE
from contextc.messages import (
    Media,
    Message,
    ProviderBlock,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
    Usage,
    assistant,
    system,
    tool_call,
    tool_result,
    user,
)
from contextc.messages.pairing import pair_tool_calls
from contextc.tools.spec import NativeTool, Tool
from tests.formats.traffic import accepted, events, normal

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


def test_results_stand_alone_even_after_a_reply_that_says_nothing() -> None:
    """Guarantee 10.4: a blank reply is not sent, and what follows it is still no part of the results before it."""
    call = assistant(tool_calls=[tool_call("a", "run", {})])
    contents = GOOGLE.format([user("go"), call, tool_result("a", "run", "done"), assistant(Text(" ")), user("And?")])
    assert contents[2:] == [
        {"role": "user", "parts": [{"functionResponse": {"id": "a", "name": "run", "response": {"output": "done"}}}]},
        {"role": "user", "parts": [{"text": "And?"}]},
    ]


def test_notes_say_what_could_not_be_said() -> None:
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


def test_stand_in_signature_is_for_models_that_ask_for_one() -> None:
    """Guarantee 10.4: models before Gemini 3 sign nothing, and need no stand-in."""
    history = [user("go"), assistant(tool_calls=[tool_call("a", "run", {})]), tool_result("a", "run", "done")]
    model = GeminiFormatter(signatures=False).format(history)[1]
    assert model == {"role": "model", "parts": [{"functionCall": {"id": "a", "name": "run", "args": {}}}]}


def test_media_in_a_result_goes_where_the_api_takes_it() -> None:
    """Guarantee 2.6: pictures stand inside the response; a sound follows the results in a content of its own."""
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


def test_what_google_said_is_told_to_google_alone() -> None:
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
