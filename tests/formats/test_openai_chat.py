"""OpenAI's Chat Completions and compatible APIs, encoded and decoded."""

import base64
from typing import cast

import pytest

import contextc as cc
from contextc._json import JSONObject
from contextc.formats.base import split_segments
from contextc.messages import pair_tool_calls
from tests.formats.traffic import Exchange, accepted, events, normal

CHAT = cc.OpenAIFormatter()
PNG = b"\x89PNG"


def call(id: str, name: str, arguments: str) -> JSONObject:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def test_a_history_with_everything_becomes_one_list() -> None:
    """Guarantee 10.3: parallel calls in one message, a tool message each; media of a result, which the format cannot
    hold there, follows the results in a user message."""
    history = [
        cc.user([cc.Text("What is this?"), cc.Media(mime_type="image/png", data=PNG)]),
        cc.assistant(
            "Let me look.",
            reasoning="Hm.",
            tool_calls=[cc.tool_call("a", "read", {"path": "x"}), cc.tool_call("b", "list", '{"dir": ')],
        ),
        cc.user("and hurry"),
        cc.tool_result("b", "list", "no such folder", is_error=True),
        cc.tool_result("a", "read", [cc.Text("a picture"), cc.Media(mime_type="image/png", data=PNG)]),
        cc.system("Memory is low."),
        cc.user(
            [
                cc.Text("thanks"),
                cc.messages.ProviderBlock(provider="anthropic", data={"type": "server_tool_use"}),
                cc.messages.UserNotice("!"),
            ]
        ),
    ]
    picture = {
        "type": "image_url",
        "image_url": {"url": f"data:image/png;base64,{base64.b64encode(PNG).decode()}"},
    }
    assert CHAT.format(history, "Be brief.") == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "What is this?"}, picture]},
        {
            "role": "assistant",
            "content": "Let me look.",
            "tool_calls": [call("a", "read", '{"path":"x"}'), call("b", "list", '{"dir": ')],
        },
        {"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "a picture"}]},
        {"role": "tool", "tool_call_id": "b", "content": "no such folder"},
        {"role": "user", "content": [{"type": "text", "text": "[media returned by read]"}, picture]},
        {"role": "user", "content": "and hurry"},
        {"role": "system", "content": "Memory is low."},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "thanks"},
                {"type": "text", "text": "[anthropic server_tool_use; not shown]"},
            ],
        },
    ]


def test_the_system_prompt_is_one_of_the_messages() -> None:
    """Guarantee 8.5."""
    assert CHAT.get_system_prompt("Be brief.") is None
    assert CHAT.format([cc.user("hi")], "") == [{"role": "user", "content": "hi"}]


def test_arguments_go_back_as_the_model_wrote_them() -> None:
    """Guarantee 2.3: spaces and order too; a prompt cache compares bytes."""
    written = '{ "b": 1,  "a": 2 }'
    found = CHAT.format([cc.assistant(tool_calls=[cc.tool_call("a", "f", written)]), cc.tool_result("a", "f", "ok")])
    assert found[0]["tool_calls"][0]["function"]["arguments"] == written
    assert found[0]["content"] is None


def test_reasoning_goes_back_only_where_it_has_a_place() -> None:
    """Guarantee 2.4: by the endpoint's facts, and never to another provider."""
    deep = cc.OpenAIFormatter(provider="deepseek", reasoning_field="reasoning_content")
    reply = deep.decode_reply(
        {"choices": [{"message": {"content": "4", "reasoning_content": "2+2"}, "finish_reason": "stop"}]}
    )
    assert reply.parts == (cc.Reasoning(text="2+2", provider="deepseek"), cc.Text("4"))
    assert deep.format([reply]) == [{"role": "assistant", "content": "4", "reasoning_content": "2+2"}]
    assert CHAT.format([reply]) == [{"role": "assistant", "content": "4"}]


def test_a_reply_without_content_is_not_sent_on() -> None:
    """Guarantee 2.2."""
    assert CHAT.format([cc.user("a"), cc.assistant(finish="stop"), cc.user("b")]) == [
        {"role": "user", "content": "a"},
        {"role": "user", "content": "b"},
    ]


def test_a_history_encoded_as_it_grew_equals_the_same_encoded_at_once() -> None:
    """Guarantee 10.1."""
    history: list[cc.Message] = []
    for number in range(10):
        asked = cc.tool_call(f"c{number}", "f", {"n": number})
        history += [cc.user("q"), cc.assistant(tool_calls=[asked]), cc.tool_result(asked.id, "f", None)]
        parts = split_segments(pair_tool_calls(history).messages)
        assert CHAT.join(CHAT.encode(part) for part in parts) == CHAT.format(history)


CASES = accepted("openai_chat")


@pytest.mark.parametrize("exchange", CASES, ids=lambda exchange: exchange.case)
def test_an_accepted_request_comes_back_equal(exchange: Exchange) -> None:
    """Guarantee 10.5: OpenAI, OpenRouter, Groq, Mistral, DeepSeek and others, by facts and not by branches."""
    assert normal(CHAT.encode_request(CHAT.decode_request(exchange.request))) == normal(exchange.request)


@pytest.mark.parametrize("exchange", CASES, ids=lambda exchange: exchange.case)
def test_every_reply_decodes(exchange: Exchange) -> None:
    """Guarantee 10.1: whole or streamed."""
    if isinstance(exchange.reply, str):
        message = CHAT.decode_stream(events(exchange.reply))
    else:
        message = CHAT.decode_reply(exchange.reply)
        said = cast(JSONObject, exchange.reply["choices"][0]["message"])
        calls = cast(list[JSONObject], said.get("tool_calls") or [])
        assert [each.id for each in message.tool_calls] == [each["id"] for each in calls]
        if isinstance(said.get("content"), str):
            assert message.text == said["content"]
    assert message.finish is not None
    assert all("id" not in each and "model" not in each for each in CHAT.encode([message]).messages)
    with cc.open_store("memory:") as store:
        assert store.append("demo", message).parts == message.parts
