"""Reasoning blocks of gateways: decoded, streamed, and returned to models that accept them."""

from copy import deepcopy
from typing import cast

import pytest

import contextc as cc
from contextc._json import JSONObject
from contextc.compiler.draft import has_signed_reasoning
from contextc.formats.openai_chat.codec import collect_events
from contextc.formats.streams import Delta
from contextc.store.turn_records import join_deltas
from tests.formats.traffic import Exchange, accepted

ROUTER = cc.OpenAIFormatter(provider="openrouter")
CLAUDE, GPT = "anthropic/claude-opus-5.5", "openai/gpt-5"
FORMAT = "anthropic-claude-v1"
SIGNED: JSONObject = {
    "type": "reasoning.text",
    "text": "Let me look.",
    "signature": "c2ln",
    "format": FORMAT,
    "index": 0,
    "id": None,
}
SUMMARY: JSONObject = {"type": "reasoning.summary", "summary": "Looked.", "format": "openai-responses-v1", "index": 0}
SECRET: JSONObject = {
    "type": "reasoning.encrypted",
    "data": "gAAAA",
    "id": "rs_1",
    "format": "openai-responses-v1",
    "index": 0,
}


def reply(details: object, *, model: str = CLAUDE, **message: object) -> JSONObject:
    said = {"role": "assistant", "content": "Here.", **message, "reasoning_details": deepcopy(details)}
    return {"id": "gen-1", "model": model, "choices": [{"index": 0, "message": said, "finish_reason": "stop"}]}


def chunks(*deltas: JSONObject, model: str = CLAUDE) -> list[JSONObject]:
    ended: JSONObject = {"model": model, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    return [*({"model": model, "choices": [{"index": 0, "delta": delta}]} for delta in deltas), ended]


def piece(**fields: object) -> JSONObject:
    return {"type": "reasoning.text", "format": FORMAT, "index": 0, **fields}


def back(message: cc.Message, formatter: cc.OpenAIFormatter = ROUTER) -> JSONObject:
    return formatter.format([cc.user("hi"), message])[1]


def test_a_signed_block_is_reasoning_that_its_provider_vouches_for() -> None:
    """Guarantee 9.3: so that it is left out where what it is bound to has changed."""
    message = ROUTER.decode_reply(reply([SIGNED], reasoning="Let me look."))
    thought = message.parts[0]
    assert isinstance(thought, cc.Reasoning)
    assert (thought.text, thought.signature, thought.model) == ("Let me look.", "c2ln", CLAUDE)
    assert has_signed_reasoning(message, "openrouter")
    assert [part.text for part in message.parts if isinstance(part, cc.Reasoning)] == ["Let me look."]


def test_pieces_of_a_stream_become_the_block_that_was_signed() -> None:
    """Guarantee 2.4: a signature holds for the whole text, so pieces that were sent back one by one would be
    refused.
    """
    streamed = chunks(
        {"role": "assistant", "content": "", "reasoning": "Let ", "reasoning_details": [piece(text="Let ")]},
        {"content": "", "reasoning": "me look.", "reasoning_details": [piece(text="me look.")]},
        {"content": "", "reasoning": None, "reasoning_details": [piece(signature="c2ln", id=None)]},
        {"content": "Here."},
    )
    message = ROUTER.decode_stream(streamed)
    assert back(message)["reasoning_details"] == [{name: each for name, each in SIGNED.items() if each is not None}]
    reader = ROUTER.create_reader()
    shown: list[Delta] = [delta for event in streamed for delta in reader.read(event)]
    assert join_deltas(shown) == (
        cc.Reasoning(text="Let me look.", provider="openrouter", model=CLAUDE),
        cc.Text("Here."),
    )


@pytest.mark.parametrize(
    ("pieces", "blocks"),
    [
        ([piece(text="a"), piece(text="b", index=1)], [piece(text="a"), piece(text="b", index=1)]),
        ([piece(text="a", id="x"), piece(text="b", id="y")], [piece(text="a", id="x"), piece(text="b", id="y")]),
        ([piece(text="a", signature="s"), piece(text="b")], [piece(text="a", signature="s"), piece(text="b")]),
        ([piece(text="a"), SECRET, piece(text="b")], [piece(text="a"), SECRET, piece(text="b")]),
        ([SECRET, SECRET], [SECRET, SECRET]),
        ([{**SUMMARY, "summary": "Loo"}, {**SUMMARY, "summary": "ked."}, SECRET], [SUMMARY, SECRET]),
        ([{"type": "reasoning.text", "text": "a"}, {"type": "reasoning.text", "text": "b"}],
         [{"type": "reasoning.text", "text": "ab"}]),
        ([3, piece(text="a")], [3, piece(text="a")]),
    ],
    ids=["index", "name", "after a signature", "another type between", "secrets", "GPT", "no index", "no block"],
)  # fmt: skip
def test_which_pieces_are_of_one_block(pieces: list[JSONObject], blocks: list[JSONObject]) -> None:
    """Some providers give every block the index 0, some none at all."""
    for events in (
        chunks(*({"reasoning_details": [deepcopy(each)]} for each in pieces)),
        chunks({"reasoning_details": deepcopy(pieces)}),
    ):
        assert collect_events(events)["choices"][0]["message"]["reasoning_details"] == blocks


RECORDED = [each for each in accepted("openai_chat") if each.vendor == "openrouter"]


@pytest.mark.parametrize("exchange", RECORDED, ids=lambda each: each.case)
def test_recorded_reasoning_comes_back_as_it_came(exchange: Exchange) -> None:
    """Guarantee 10.5: OpenRouter's own replies, and a stream of the same."""
    given = cast(JSONObject, exchange.reply)
    said: JSONObject = given["choices"][0]["message"]
    whole = ROUTER.decode_reply(given)
    streamed = ROUTER.decode_stream(chunks(said, model=given["model"]))
    assert whole.parts == streamed.parts
    assert back(whole).get("reasoning_details") == said.get("reasoning_details")
    thoughts = [part.text for part in whole.parts if isinstance(part, cc.Reasoning)]
    assert "".join(thoughts) == (said.get("reasoning") or "")


def test_there_is_recorded_reasoning() -> None:
    """So that the test above is about something."""
    assert any("reasoning_details" in str(each.reply) for each in RECORDED)
