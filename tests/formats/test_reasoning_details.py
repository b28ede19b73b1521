"""Reasoning blocks of gateways: decoded, streamed, and returned to models that accept them."""

from copy import deepcopy
from typing import cast

import pytest

import contextc as cc
from contextc._json import JSONObject
from contextc.compiler.draft import has_signed_reasoning
from contextc.formats.base import Request
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
SEARCHED: JSONObject = {
    "type": "reasoning.server_tool_call",
    "tool_name": "openrouter:fusion",
    "arguments": "{}",
    "result": "3",
    "index": 1,
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


@pytest.mark.parametrize(
    "details",
    [[SIGNED], [SUMMARY, SECRET], [SIGNED, SEARCHED, SIGNED], [SECRET], [{"type": "reasoning.new", "x": [1]}]],
)
def test_blocks_go_back_unmodified_and_in_order(details: list[JSONObject]) -> None:
    """Guarantee 2.4: fields that are null, too."""
    message = ROUTER.decode_reply(reply(details, reasoning="Let me look."))
    assert back(message) == {"role": "assistant", "content": "Here.", "reasoning_details": details}
    wire = [{"role": "user", "content": "hi"}, back(message)]
    assert ROUTER.encode_request(ROUTER.decode_request(wire))["messages"] == wire


def test_a_signed_block_is_reasoning_that_its_provider_vouches_for() -> None:
    """Guarantee 9.3: so that it is left out where what it is bound to has changed."""
    message = ROUTER.decode_reply(reply([SIGNED], reasoning="Let me look."))
    thought = message.parts[0]
    assert isinstance(thought, cc.Reasoning)
    assert (thought.text, thought.signature, thought.model) == ("Let me look.", "c2ln", CLAUDE)
    assert has_signed_reasoning(message, "openrouter")
    assert [part.text for part in message.parts if isinstance(part, cc.Reasoning)] == ["Let me look."]


def test_a_block_without_reasoning_is_described_in_other_formats() -> None:
    """Guarantee 2.5."""
    message = ROUTER.decode_reply(reply([SIGNED, SEARCHED]))
    assert isinstance(message.parts[1], cc.messages.ProviderBlock)
    told = cc.AnthropicFormatter().format([cc.user("hi"), message])[1]["content"]
    assert told == [
        {"type": "text", "text": "[openrouter reasoning.server_tool_call; not shown]"},
        {"type": "text", "text": "Here."},
    ]


@pytest.mark.parametrize("broken", [3, {}, [3], [{"text": "no type"}], [{"type": "reasoning.text", "text": 3}], []])
def test_invalid_blocks_are_kept_unchanged(broken: object) -> None:
    """Guarantee 10.5: nothing that came is lost, and nothing crashes."""
    wire = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "a", "reasoning_details": broken}]
    assert ROUTER.encode_request(ROUTER.decode_request(cast(list[JSONObject], wire)))["messages"] == wire
    said = ROUTER.decode_reply(reply(broken, reasoning="Hm.", model=CLAUDE))
    assert said.parts == (cc.Reasoning(text="Hm.", provider="openrouter", model=CLAUDE), cc.Text("Here."))


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


def test_an_unsigned_block_is_plain_text() -> None:
    """Claude refuses it. A stream that breaks off leaves such blocks; their text is kept."""
    message = ROUTER.decode_stream(chunks({"content": "Here.", "reasoning_details": [piece(text="Let me")]})[:1])
    assert [part.text for part in message.parts if isinstance(part, cc.Reasoning)] == ["Let me"]
    assert back(message) == {"role": "assistant", "content": "Here."}


@pytest.mark.parametrize(
    ("asked", "given"),
    [
        (CLAUDE, True),
        ("anthropic/claude-haiku-5.5", True),
        ("~anthropic/claude-opus-latest", True),
        ("openrouter/auto", True),
        ("claude-opus-5-5", True),
        (GPT, False),
        ("google/gemini-3.6-flash", False),
    ],
)
def test_another_vendors_model_is_not_given_what_it_cannot_read(asked: str, given: bool) -> None:
    """Guarantees 2.4, 9.10: a conversation may go on with any model behind a gateway, and come back."""
    message = ROUTER.decode_reply(reply([SIGNED, SEARCHED]))
    formatter = cc.OpenAIFormatter(provider="openrouter", model=asked)
    assert back(message, formatter)["reasoning_details"] == ([SIGNED, SEARCHED] if given else [SEARCHED])
    notes = formatter.encode_with_notes(Request(messages=(cc.user("hi"), message))).notes
    assert ("left out: reasoning of another vendor's model" in map(str, notes)) is not given


@pytest.mark.parametrize("formatter", [cc.OpenAIFormatter(), cc.OpenAIFormatter(provider="vercel-gateway")])
def test_another_provider_is_given_none_of_it(formatter: cc.OpenAIFormatter) -> None:
    """Guarantee 2.4."""
    message = ROUTER.decode_reply(reply([SIGNED], reasoning="Let me look."))
    assert back(message, formatter) == {"role": "assistant", "content": "Here."}


def test_policies_hold_for_blocks_too() -> None:
    """Guarantee 2.4: `inline` and `drop`."""
    message = ROUTER.decode_reply(reply([SIGNED], reasoning="Let me look."))
    assert back(message, cc.OpenAIFormatter(provider="openrouter", reasoning="drop"))["content"] == "Here."
    inline = back(message, cc.OpenAIFormatter(provider="openrouter", reasoning="inline"))
    assert inline == {"role": "assistant", "content": "Let me look.Here."}


def test_a_reply_of_nothing_but_reasoning_goes_back() -> None:
    """A model that ran out of tokens while it thought."""
    message = ROUTER.decode_reply(reply([SIGNED], content=None))
    assert back(message) == {"role": "assistant", "content": None, "reasoning_details": [SIGNED]}


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
