"""Bedrock's Converse: complete bodies, and recorded traffic both ways."""

import json

import contextc as cc
from contextc._json import JSONObject
from contextc.formats.base import Request, split_segments
from contextc.formats.bedrock import BedrockFormatter
from contextc.formats.bedrock.codec import PLACEHOLDER_TOOL, encode_tool
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
from contextc.tools.definitions import Tool
from tests.formats.bedrock_samples import EVENTS, REPLY
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


def test_segments_make_the_same_request() -> None:
    """Guarantee 10.1."""
    encoded = [
        BEDROCK.encode(segment) for segment in split_segments(pair_tool_calls(HISTORY, unique_ids=True).messages)
    ]
    assert BEDROCK.join(encoded) == MESSAGES


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


CLAUDE, NOVA = "us.anthropic.claude-sonnet-4-5-20250929-v1:0", "amazon.nova-pro-v1:0"


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


def test_an_empty_tool_description_is_omitted() -> None:
    """botocore: at least one character."""
    spec: JSONObject = {"toolSpec": {"name": "f", "description": "", "inputSchema": {"json": {"type": "object"}}}}
    again = BEDROCK.encode_tools(BEDROCK.decode_tools([spec]))
    assert again == [{"toolSpec": {"name": "f", "inputSchema": {"json": {"type": "object"}}}}]


def test_recorded_requests_come_back_the_same() -> None:
    """Guarantee 10.5: also where a conversation begins with the assistant."""
    for exchange in accepted("bedrock"):
        assert BEDROCK.encode_request(BEDROCK.decode_request(exchange.request)) == exchange.request, exchange.case


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
