"""Bedrock's Converse: complete bodies, and recorded traffic both ways."""

import json
from typing import cast

import pytest

import contextc as cc
from contextc._json import JSONObject
from contextc.formats.base import OPENING_TEXT, Request, split_segments
from contextc.formats.bedrock import BedrockFormatter
from contextc.formats.bedrock.codec import EMPTY_ERROR_TEXT, PLACEHOLDER_TOOL, encode_tool
from contextc.linting import convert, fix, lint
from contextc.messages import (
    Media,
    Message,
    ProviderBlock,
    Reasoning,
    Text,
    ToolResult,
    assistant,
    pair_tool_calls,
    system,
    tool_call,
    tool_result,
    user,
)
from contextc.tools.definitions import NativeTool, Tool
from tests.formats.bedrock_samples import EVENTS, POINT, REPLY, REQUEST
from tests.formats.known import problems
from tests.formats.traffic import accepted, transcripts

BEDROCK = BedrockFormatter()

HISTORY = [
    user(["Compare these.", Media(mime_type="image/png", data=b"\x89PNG")]),
    assistant(
        "I will look.",
        reasoning=Reasoning(text="Both cities.", signature="c2ln", provider="bedrock"),
        tool_calls=[tool_call("a", "weather", {"city": "Paris"}), tool_call("b/1", "weather", "{city: Rome")],
    ),
    user("And hurry."),
    tool_result("b/1", "weather", "no such city", is_error=True),
    tool_result("a", "weather", ["sunny", Media(mime_type="image/jpeg", data=b"\xff\xd8")]),
    system("Answer in French."),
    assistant(
        [ProviderBlock(provider="anthropic", data={"type": "server_tool_use"}), "Il fait beau."],
        reasoning=Reasoning(text="Hm.", signature="s", provider="anthropic"),
    ),
    assistant([Text("  "), Text("À Paris.")]),
    user([Media(mime_type="video/mp4", url="s3://films/a.mp4"), Media(mime_type="image/png", url="https://e.com/a")]),
]

MESSAGES: list[JSONObject] = [
    {
        "role": "user",
        "content": [{"text": "Compare these."}, {"image": {"format": "png", "source": {"bytes": "iVBORw=="}}}],
    },
    {
        "role": "assistant",
        "content": [
            {"reasoningContent": {"reasoningText": {"text": "Both cities.", "signature": "c2ln"}}},
            {"text": "I will look."},
            {"toolUse": {"toolUseId": "a", "name": "weather", "input": {"city": "Paris"}}},
            {
                "toolUse": {
                    "toolUseId": "b_x2F_1",
                    "name": "weather",
                    "input": {"malformed_arguments": "{city: Rome"},
                }
            },
        ],
    },
    {
        "role": "user",
        "content": [
            {
                "toolResult": {
                    "toolUseId": "a",
                    "content": [{"text": "sunny"}, {"image": {"format": "jpeg", "source": {"bytes": "/9g="}}}],
                }
            },
            {"toolResult": {"toolUseId": "b_x2F_1", "content": [{"text": "no such city"}], "status": "error"}},
            {"text": "And hurry."},
            {"text": "<system-reminder>\nAnswer in French.\n</system-reminder>"},
        ],
    },
    {
        "role": "assistant",
        "content": [
            {"text": "[anthropic server_tool_use; not shown]"},
            {"text": "Il fait beau."},
            {"text": "À Paris."},
        ],
    },
    {
        "role": "user",
        "content": [
            {"video": {"format": "mp4", "source": {"s3Location": {"uri": "s3://films/a.mp4"}}}},
            {"text": "[image: image/png, https://e.com/a; not shown]"},
        ],
    },
]


def body_of(*history: Message, **fields: object) -> JSONObject:
    return BEDROCK.encode_request(Request(messages=history, **fields))  # pyright: ignore[reportArgumentType]


def content_of(*history: Message) -> list[JSONObject]:
    return [block for message in BEDROCK.format(history) for block in message["content"]]


def test_a_whole_request() -> None:
    """Guarantees 10.1 to 10.4: the complete body."""
    tools = (
        Tool(name="weather", description="Says it.", parameters={"type": "object"}, strict=True),
        NativeTool(provider="bedrock", data={"systemTool": {"name": "nova_grounding"}}),
        NativeTool(provider="google", data={"googleSearch": {}}),
    )
    settings: JSONObject = {"toolConfig": {"toolChoice": {"any": {}}}, "inferenceConfig": {"maxTokens": 9}}
    body = body_of(*HISTORY, system=system("Be brief."), tools=tools, settings=settings)
    assert body == {
        "inferenceConfig": {"maxTokens": 9},
        "system": [{"text": "Be brief."}],
        "toolConfig": {
            "tools": [
                {
                    "toolSpec": {
                        "name": "weather",
                        "description": "Says it.",
                        "inputSchema": {"json": {"type": "object"}},
                        "strict": True,
                    }
                },
                {"systemTool": {"name": "nova_grounding"}},
            ],
            "toolChoice": {"any": {}},
        },
        "messages": MESSAGES,
    }
    assert lint(body, format="bedrock") == []
    assert problems("bedrock", body) == []


def test_segments_make_the_same_request() -> None:
    """Guarantee 10.1."""
    encoded = [
        BEDROCK.encode(segment) for segment in split_segments(pair_tool_calls(HISTORY, unique_ids=True).messages)
    ]
    assert BEDROCK.join(encoded) == MESSAGES


def test_a_system_message_keeps_its_role_where_the_model_takes_it() -> None:
    """Guarantee 10.3: after a user's message, and before the reply."""
    between = BedrockFormatter(system_between=True)
    wire = between.format([user("hi"), system("Be brief."), assistant("Hello."), system("Be long."), user("And?")])
    assert [message["role"] for message in wire] == ["user", "system", "assistant", "user"]
    assert wire[1]["content"] == [{"text": "Be brief."}]
    assert wire[3]["content"][0]["text"] == "<system-reminder>\nBe long.\n</system-reminder>"
    assert lint(wire, format="bedrock") == []


def test_the_first_message_has_the_role_user() -> None:
    """Claude takes it otherwise, others do not."""
    assert BEDROCK.format([assistant("Hello."), user("hi")])[0] == {"role": "user", "content": [{"text": OPENING_TEXT}]}


def test_the_arguments_are_boto3s_own() -> None:
    """Guarantee 10.1: bytes where the body has base64, and nowhere else; the model is one of them."""
    told = Reasoning(data="cmVkYWN0ZWQ=", provider="bedrock")
    body = body_of(
        user(["See", Media(mime_type="image/png", data=b"\x89PNG")]),
        assistant(reasoning=told, tool_calls=[tool_call("a", "put", {"source": {"bytes": "AAAA"}})]),
        tool_result("a", "put", [Media(mime_type="application/pdf", data=b"%PDF")]),
    )
    arguments = BEDROCK.sdk_arguments(body, "amazon.nova-pro-v1:0")
    first, second, third = arguments["messages"]
    assert arguments["modelId"] == "amazon.nova-pro-v1:0"
    assert first["content"][1]["image"]["source"] == {"bytes": b"\x89PNG"}
    assert second["content"][0]["reasoningContent"] == {"redactedContent": b"redacted"}
    assert second["content"][1]["toolUse"]["input"] == {"source": {"bytes": "AAAA"}}
    assert third["content"][0]["toolResult"]["content"][0]["document"]["source"] == {"bytes": b"%PDF"}


def test_a_history_that_has_outlived_its_tools_names_one() -> None:
    """The service: "The toolConfig field must be defined"; the placeholder is not a tool in other formats."""
    call = [user("hi"), assistant(tool_calls=[tool_call("a", "look", "{}")]), tool_result("a", "look", "1")]
    body = body_of(*call)
    assert body["toolConfig"] == {"tools": [encode_tool(PLACEHOLDER_TOOL)]}
    assert "toolConfig" not in body_of(user("hi"), settings={"toolConfig": {"toolChoice": {"auto": {}}}})
    assert BEDROCK.decode_request(body).tools == ()
    assert "tools" not in convert(body, source="bedrock", target="anthropic")


def test_results_are_never_empty_where_that_is_refused() -> None:
    """An error has a text; an empty result is an empty text, which is accepted."""
    calls = assistant(tool_calls=[tool_call("a", "f", "{}"), tool_call("b", "f", "{}")])
    wire = BEDROCK.format([user("hi"), calls, tool_result("a", "f", None), tool_result("b", "f", "", is_error=True)])
    assert wire[2]["content"] == [
        {"toolResult": {"toolUseId": "a", "content": [{"text": ""}]}},
        {"toolResult": {"toolUseId": "b", "content": [{"text": EMPTY_ERROR_TEXT}], "status": "error"}},
    ]
    results = [part for message in BEDROCK.decode_request(wire).messages for part in message.tool_results]
    assert [(result.text, result.is_error) for result in results] == [("", False), ("", True)]


def test_reasoning_goes_back_to_its_provider_and_only_signed() -> None:
    """Guarantee 2.4: unsigned reasoning is not required, and some models refuse it."""
    thoughts = [
        Reasoning(text="signed", signature="s", provider="bedrock"),
        Reasoning(text="plain", provider="bedrock"),
        Reasoning(text="other", signature="s", provider="anthropic"),
        Reasoning(data="cmVk", provider="bedrock"),
    ]
    wire = BEDROCK.format([user("hi"), assistant([*thoughts, "Hello."])])
    assert wire[1]["content"] == [
        {"reasoningContent": {"reasoningText": {"text": "signed", "signature": "s"}}},
        {"reasoningContent": {"redactedContent": "cmVk"}},
        {"text": "Hello."},
    ]


CLAUDE, NOVA = "us.anthropic.claude-sonnet-4-5-20250929-v1:0", "amazon.nova-pro-v1:0"


@pytest.mark.parametrize(
    ("wrote", "asked", "goes_back"),
    [
        (CLAUDE, NOVA, False),
        (CLAUDE, "meta.llama3-3-70b-instruct-v1:0", False),
        (CLAUDE, f"arn:aws:bedrock:us-east-1:123456789012:inference-profile/us.{NOVA}", False),
        (CLAUDE, f"arn:aws:bedrock:us-east-1:123456789012:inference-profile/{CLAUDE}", True),
        (CLAUDE, "anthropic.claude-opus-5-5", True),
        (CLAUDE, "arn:aws:bedrock:us-east-1:123456789012:application-inference-profile/a1b2c3", True),
        (CLAUDE, None, True),
        (None, NOVA, True),
    ],
)
def test_reasoning_signed_by_claude_is_not_sent_to_other_vendors(wrote: str, asked: str, goes_back: bool) -> None:
    """Guarantee 2.4: "This model doesn't support the reasoningContent.reasoningText.signature field."; not said, it
    goes.
    """
    thoughts = [
        Reasoning(text="hm", signature="c2ln", provider="bedrock", model=wrote),
        Reasoning(data="cmVk", provider="bedrock", model=wrote),
    ]
    encoded = BedrockFormatter(model=asked).encode([assistant([*thoughts, "Hello."])])
    assert len(encoded.messages[0]["content"]) == (3 if goes_back else 1)
    assert [str(note) for note in encoded.notes] == (
        [] if goes_back else [f"left out: reasoning that {wrote} signed"] * 2
    )


def test_a_reply_is_of_the_model_that_was_asked() -> None:
    """Replies, whole or streamed, do not name the model; in a decoded request it is unknown."""
    asked = BedrockFormatter(model=CLAUDE)
    expected = Reasoning(text="Hm.", signature="c2ln", provider="bedrock", model=CLAUDE)
    assert asked.decode_reply(REPLY).parts[0] == expected
    assert asked.decode_stream(EVENTS).parts[0] == expected
    reader = asked.create_reader()
    deltas = [delta for event in EVENTS for delta in reader.read(event) if isinstance(delta, Reasoning)]
    assert {delta.model for delta in deltas} == {CLAUDE}
    (message,) = asked.decode_request([REPLY["output"]["message"]]).messages
    assert message.parts[0] == Reasoning(text="Hm.", signature="c2ln", provider="bedrock")


def test_a_conversation_continues_with_a_model_of_another_vendor() -> None:
    """Guarantees 2.4, 9.1: what Claude signed stays in the store, and goes to Claude alone."""
    store = cc.open_store("memory:")
    store.append("demo", user("hi"))
    compiler = cc.MessageCompiler(store, f"bedrock:{CLAUDE}")
    with compiler.attempt(compiler.compile("demo")) as attempt:
        attempt.commit({**REPLY, "output": {"message": {"role": "assistant", "content": [SIGNED, {"text": "Hello."}]}}})
    store.append("demo", user("And?"))
    shown = {
        model: cc.MessageCompiler(store, f"bedrock:{model}").compile("demo").params["messages"][1]["content"]
        for model in (NOVA, CLAUDE)
    }
    assert shown == {NOVA: [{"text": "Hello."}], CLAUDE: [SIGNED, {"text": "Hello."}]}


SIGNED: JSONObject = {"reasoningContent": {"reasoningText": {"text": "Hm.", "signature": "c2ln"}}}


def test_white_space_is_removed_with_the_cache_point_after_it() -> None:
    """The compiler sets other cache points; without one the white space is refused."""
    shown: JSONObject = {"document": {"name": "A", "format": "pdf", "source": {"bytes": "JVBERg=="}}}
    message: JSONObject = {"role": "user", "content": [{"text": "See"}, shown, {"text": "\n"}, POINT]}
    assert BEDROCK.format(BEDROCK.decode_request([message]).messages) == [message]
    assert BEDROCK.without_cache_breakpoints([message]) == [{"role": "user", "content": [{"text": "See"}, shown]}]


def test_an_empty_tool_description_is_omitted() -> None:
    """botocore: at least one character."""
    spec: JSONObject = {"toolSpec": {"name": "f", "description": "", "inputSchema": {"json": {"type": "object"}}}}
    again = BEDROCK.encode_tools(BEDROCK.decode_tools([spec]))
    assert again == [{"toolSpec": {"name": "f", "inputSchema": {"json": {"type": "object"}}}}]


def test_a_request_of_anybodys_making_comes_back_the_same() -> None:
    """Guarantee 10.5: cache points, guarded text, citations, Amazon's own tools, white space before a cache point."""
    request = BEDROCK.decode_request(json.loads(json.dumps(REQUEST)))
    assert BEDROCK.encode_request(request) == REQUEST
    assert lint(REQUEST, format="bedrock") == []
    assert problems("bedrock", REQUEST) == []
    assert request.system is not None
    assert [part.text for part in request.system.parts if isinstance(part, Text)] == ["Be brief.", "Be kind."]
    first, second, third, fourth = request.messages
    assert (first.text, second.text) == ("Is it so?\nWell?", "It is.")
    assert [call.id for call in second.tool_calls] == ["a:1", "b"]
    assert [result.text for result in third.tool_results] == ['{"n":1}', ""]
    assert isinstance(fourth.parts[0], Media)


def test_a_cache_point_is_not_content_in_other_formats() -> None:
    """Guarantee 10.3: the omission is reported."""
    made = convert(REQUEST, source="bedrock", target="openai_chat")
    assert "cachePoint" not in json.dumps(made)
    assert "left out: `cachePoint`, in 4 places" in made.warnings


@pytest.mark.parametrize("exchange", accepted("bedrock"), ids=lambda exchange: exchange.case)
def test_recorded_requests_come_back_the_same(exchange: object) -> None:
    """Guarantee 10.5: also where a conversation begins with the assistant."""
    request = cast(JSONObject, getattr(exchange, "request"))  # noqa: B009 - an id function hides its type
    assert BEDROCK.encode_request(BEDROCK.decode_request(request)) == request


def test_cache_points_are_set_and_taken_out() -> None:
    """Blocks of their own, never behind reasoning or a document; among tools not every model takes one."""
    message: JSONObject = {"role": "user", "content": [{"text": "a"}, {"document": {"name": "b"}}]}
    marked = BEDROCK.with_cache_breakpoint(message) or {}
    assert marked == {"role": "user", "content": [{"text": "a"}, POINT, {"document": {"name": "b"}}]}
    assert BEDROCK.without_cache_breakpoints([marked, message]) == [message, message]
    assert BEDROCK.with_cache_breakpoint({"role": "assistant", "content": [{"reasoningContent": {}}]}) is None
    assert BEDROCK.count_cache_breakpoints([{"text": "a"}, POINT, POINT]) == 2
    head: JSONObject = {"system": [{"text": "a"}], "toolConfig": {"tools": [{}]}, "messages": []}
    assert BEDROCK.with_head_breakpoint(head) == {**head, "system": [{"text": "a"}, POINT]}
    assert BEDROCK.with_head_breakpoint({"toolConfig": {"tools": [{}]}}) == {"toolConfig": {"tools": [{}]}}


def test_settings_in_its_own_words() -> None:
    """Guarantee 10.1: and warmer than 1 is not taken."""
    body: JSONObject = {
        "max_completion_tokens": 9,
        "temperature": 1.7,
        "top_p": 0.5,
        "stop": ["END"],
        "reasoning_effort": "minimal",
        "service_tier": "auto",
        "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}},
        "tool_choice": "none",
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
        "messages": [{"role": "user", "content": "hi"}],
    }
    made = convert(body, source="openai_chat", target="bedrock")
    assert {name: made[name] for name in ("inferenceConfig", "outputConfig")} == {
        "inferenceConfig": {"temperature": 1.0, "maxTokens": 9, "topP": 0.5, "stopSequences": ["END"]},
        "outputConfig": {
            "effort": "low",
            "textFormat": {
                "type": "json_schema",
                "structure": {"jsonSchema": {"schema": '{"type":"object"}', "name": "x"}},
            },
        },
    }
    assert problems("bedrock", made) == []
    assert made.warnings == [
        "changed: the setting `temperature`, which bedrock represents differently",
        "left out: the setting `service_tier`, which bedrock does not take as `auto`",
        "changed: the setting `effort` (`reasoning_effort`), which bedrock represents differently",
        "left out: the setting `tool_choice`, which bedrock does not take as `none`",
    ]


def test_tools_are_known_by_their_shape() -> None:
    """Guarantee 10.1: a tool in Bedrock's form is accepted by compilers for every provider."""
    spec: JSONObject = {"toolSpec": {"name": "f", "inputSchema": {"json": {"type": "object"}}}}
    assert BEDROCK.decode_tools([spec]) == (Tool(name="f", parameters={"type": "object"}),)
    assert BEDROCK.is_tool(spec)


def test_whole_conversations_go_over_and_are_sound() -> None:
    """Guarantee 10.5: of a customer-service agent, as OpenAI has them."""
    for messages in transcripts()[:5]:
        body = convert({"messages": messages}, source="openai_chat", target="bedrock")
        assert lint(body, format="bedrock") == []
        assert problems("bedrock", body) == []
        assert fix(body, format="bedrock") == (body, [])
        assert not any(isinstance(part, ToolResult) for part in BEDROCK.decode_request(body).messages[0].parts)


def test_a_compiled_request_without_tools_names_one_as_soon_as_there_are_calls() -> None:
    """Guarantee 9.3: they came over another provider; the epoch that begins with it is announced."""
    store = cc.open_store("memory:")
    compiler = cc.MessageCompiler(store, "bedrock:us.anthropic.claude-opus-5-5")
    store.append("demo", user("hi"))
    first = compiler.compile("demo")
    assert "toolConfig" not in first.params
    with compiler.attempt(first) as attempt:
        attempt.commit({**REPLY, "output": {"message": {"role": "assistant", "content": [{"text": "Hello."}]}}})
    call = assistant(tool_calls=[tool_call("a", "look", "{}")], author="assistant")
    store.extend("demo", [user("Look."), call, tool_result("a", "look", "1")])
    second = compiler.compile("demo")
    assert second.params["toolConfig"] == {"tools": [encode_tool(PLACEHOLDER_TOOL)]}
    assert json.loads(second.body) == second.params
    assert lint(second.params, format="bedrock") == []
    assert second.manifest.why == "tools changed"
    with compiler.attempt(second) as attempt:
        attempt.commit({**REPLY, "output": {"message": {"role": "assistant", "content": [{"text": "One."}]}}})
    store.append("demo", user("And?"))
    assert compiler.compile("demo").manifest.why == ""
