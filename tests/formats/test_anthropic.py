"""Anthropic's Messages API, encoded and decoded."""

import contextc as cc
from contextc._json import JSONObject
from contextc.formats.base import split_segments
from contextc.messages import ProviderBlock, pair_tool_calls
from tests.formats.traffic import Exchange, accepted, events, normal

PLAIN = cc.AnthropicFormatter()
BETWEEN = cc.AnthropicFormatter(system_between=True)


def text(words: str) -> JSONObject:
    return {"type": "text", "text": words}


def test_a_history_encoded_as_it_grew_equals_the_same_encoded_at_once() -> None:
    """Guarantee 10.1: a segment is encoded once, and never changes."""
    history: list[cc.Message] = []
    sealed: list[JSONObject] = []
    for number in range(20):
        call = cc.tool_call(f"c{number}", "f", {"n": number})
        history += [
            cc.user(f"question {number}"),
            cc.assistant("looking", tool_calls=[call]),
            cc.tool_result(f"c{number}", "f", "ok"),
            *([cc.system("careful")] if number % 3 == 0 else []),
            cc.assistant(f"answer {number}"),
        ]
        parts = list(split_segments(pair_tool_calls(history).messages))
        encoded = [PLAIN.encode(part) for part in parts]
        whole = PLAIN.format(history)
        assert PLAIN.join(encoded) == whole
        assert whole[: len(sealed)] == sealed
        sealed = whole


CASES = accepted("anthropic")


def test_an_accepted_request_comes_back_equal() -> None:
    """Guarantee 10.5: wire, messages, the same wire."""
    for exchange in CASES:
        again = BETWEEN.encode_request(BETWEEN.decode_request(exchange.request))
        assert normal(again) == normal(exchange.request), exchange.case


def test_every_reply_decodes_and_goes_back_as_it_came() -> None:
    """Guarantees 2.4, 2.5: thinking, signatures and native blocks unchanged; whole or streamed."""
    with cc.open_store("memory:") as store:
        for exchange in CASES:
            message = decode_recorded(exchange)
            assert message.finish is not None, exchange.case
            assert message.usage is not None, exchange.case
            assert store.append(exchange.case, message).parts == message.parts


def decode_recorded(exchange: Exchange) -> cc.Message:
    """Decode a recorded reply, and encode it again."""
    if isinstance(exchange.reply, str):
        message = BETWEEN.decode_stream(events(exchange.reply))
    else:
        message = BETWEEN.decode_reply(exchange.reply)
        sent = [block for block in exchange.reply["content"] if block.get("text", "x").strip()]
        replayed = BETWEEN.encode([message]).messages
        assert normal([block for each in replayed for block in each["content"]]) == normal(sent), exchange.case
    return message


def test_a_streamed_compaction_is_read_whole() -> None:
    """The block begins empty, and one delta has all of it. Without its text, the vendor ignores the block."""
    delta: JSONObject = {"type": "compaction_delta", "content": "Ann has a boat.", "encrypted_content": None}
    streamed: list[JSONObject] = [
        {"type": "message_start", "message": {"id": "msg_1", "model": "claude-opus-5-5", "content": []}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "compaction", "content": None}},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}},
        {"type": "message_stop"},
    ]
    formatter = cc.formatter("anthropic")
    reader = formatter.create_reader()
    assert [delta for event in streamed for delta in reader.read(event)] == []
    (part,) = reader.message().parts
    assert isinstance(part, ProviderBlock)
    assert part.data == {"type": "compaction", "content": "Ann has a boat."}
