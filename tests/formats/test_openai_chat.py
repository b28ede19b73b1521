"""OpenAI's Chat Completions and compatible APIs, encoded and decoded."""

from typing import cast

import contextc as cc
from contextc._json import JSONObject
from contextc.formats.base import split_segments
from contextc.messages import pair_tool_calls
from tests.formats.traffic import Exchange, accepted, events, normal

CHAT = cc.OpenAIFormatter()


def test_a_history_encoded_as_it_grew_equals_the_same_encoded_at_once() -> None:
    """Guarantee 10.1."""
    history: list[cc.Message] = []
    for number in range(10):
        asked = cc.tool_call(f"c{number}", "f", {"n": number})
        history += [cc.user("q"), cc.assistant(tool_calls=[asked]), cc.tool_result(asked.id, "f", None)]
        parts = split_segments(pair_tool_calls(history).messages)
        assert CHAT.join(CHAT.encode(part) for part in parts) == CHAT.format(history)


CASES = accepted("openai_chat")


def test_an_accepted_request_comes_back_equal() -> None:
    """Guarantee 10.5: OpenAI, OpenRouter, Groq, Mistral, DeepSeek and others, by facts and not by branches."""
    for exchange in CASES:
        again = CHAT.encode_request(CHAT.decode_request(exchange.request))
        assert normal(again) == normal(exchange.request), exchange.case


def test_every_reply_decodes() -> None:
    """Guarantee 10.1: whole or streamed."""
    with cc.open_store("memory:") as store:
        for exchange in CASES:
            message = decode_recorded(exchange)
            assert message.finish is not None, exchange.case
            assert all("id" not in each and "model" not in each for each in CHAT.encode([message]).messages)
            assert store.append(exchange.case, message).parts == message.parts


def decode_recorded(exchange: Exchange) -> cc.Message:
    """Decode a recorded reply, and compare its calls and its text."""
    if isinstance(exchange.reply, str):
        message = CHAT.decode_stream(events(exchange.reply))
    else:
        message = CHAT.decode_reply(exchange.reply)
        said = cast(JSONObject, exchange.reply["choices"][0]["message"])
        calls = cast(list[JSONObject], said.get("tool_calls") or [])
        assert [each.id for each in message.tool_calls] == [each["id"] for each in calls]
        if isinstance(said.get("content"), str):
            assert message.text == said["content"]
    return message
