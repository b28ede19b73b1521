"""Cache writes that are kept longer than by default: their figures in replies, and their price."""

from typing import Any

import pytest

import contextc as cc
from contextc.analysis import conversation_costs, what_if
from contextc.formats import formatter
from contextc.messages import decode_message, encode_message
from contextc.models import Price, cost, model

SONNET = "claude-sonnet-4-5"
TEXT = [{"type": "text", "text": "Hi."}]
SYSTEM = "You help with this project, and follow its rules. " * 400
OLD_USAGE = {"input_tokens": 5, "output_tokens": 5, "cache_creation_input_tokens": 4_500}
SPLIT_USAGE = {**OLD_USAGE, "cache_creation": {"ephemeral_5m_input_tokens": 500, "ephemeral_1h_input_tokens": 4_000}}


def reply(usage: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": TEXT, "model": SONNET, "stop_reason": "end_turn", "usage": usage}


@pytest.mark.parametrize(
    ("format", "given"),
    [
        ("anthropic", reply(SPLIT_USAGE)),
        ("bedrock", {
            "output": {"message": {"role": "assistant", "content": [{"text": "Hi."}]}}, "stopReason": "end_turn",
            "usage": {
                "inputTokens": 5, "outputTokens": 5, "cacheWriteInputTokens": 4_500,
                "cacheDetails": [{"ttl": "5m", "inputTokens": 500}, {"ttl": "1h", "inputTokens": 4_000}],
            },
        }),
        ("openai_responses", {
            "object": "response", "status": "completed",
            "output": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hi."}]}],
            "usage": {
                "input_tokens": 4_505, "output_tokens": 5, "input_tokens_details": {
                    "cached_tokens": 0, "cache_write_tokens": 4_500,
                    "cache_write_tokens_details": {"ttl_30m_tokens": 500, "ttl_12h_tokens": 4_000},
                },
            },
        }),
    ],
)  # fmt: skip
def test_replies_report_how_long_writes_are_kept(format: str, given: dict[str, Any]) -> None:
    message = formatter(format).decode_reply(given)
    assert message.usage == cc.Usage(input=4_505, output=5, cache_write=4_500, cache_write_long=4_000)
    assert decode_message(encode_message(message)).usage == message.usage


def test_a_streamed_reply_reports_it_too() -> None:
    start: dict[str, Any] = {"type": "message_start", "message": {**reply(SPLIT_USAGE), "content": []}}
    end = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 9}}
    usage = formatter("anthropic").decode_stream([start, end]).usage
    assert usage is not None
    assert (usage.cache_write, usage.cache_write_long, usage.output) == (4_500, 4_000, 9)


@pytest.mark.parametrize("strange", [None, [], "x", {"ephemeral_1h_input_tokens": None}])
def test_strange_figures_are_none(strange: Any) -> None:
    message = formatter("anthropic").decode_reply(reply({**OLD_USAGE, "cache_creation": strange}))
    assert message.usage == cc.Usage(input=4_505, output=5, cache_write=4_500)


def test_usage_without_long_writes_is_stored_as_before() -> None:
    stored = encode_message(cc.Message(role="assistant", usage=cc.Usage(input=5, cache_write=4)))
    assert b'"usage":{"input":5,"cache_write":4}' in stored


def test_long_writes_cost_twice_the_input() -> None:
    sonnet = model(SONNET)
    assert sonnet.price is not None
    assert (sonnet.price.cache_write, sonnet.price.cache_write_long) == (3.75, 6.0)
    assert cost(sonnet, cc.Usage(input=1_000_000, cache_write=1_000_000)) == pytest.approx(7.5)  # above 200,000
    usage = cc.Usage(input=10_000, cache_write=10_000, cache_write_long=4_000)
    assert cost(sonnet, usage) == pytest.approx((6_000 * 3.75 + 4_000 * 6.0) / 1e6)
    same = model("x", window=1_000, output=100, price=Price(input=1, output=1, cache_read=1, cache_write=2))
    assert cost(same, usage) == pytest.approx(10_000 * 2 / 1e6)


def record(ttl: str, usage: dict[str, Any]) -> cc.Store:
    """Record two requests whose system prompts differ, so that the second one writes all again."""
    store = cc.open_store("memory:")
    for number in range(2):
        mark = {"type": "ephemeral", "ttl": ttl}
        body = {
            "model": SONNET, "max_tokens": 500, "messages": [{"role": "user", "content": "Hi"}],
            "system": [{"type": "text", "text": f"Part {number}. {SYSTEM}", "cache_control": mark}],
        }  # fmt: skip
        time = 1_790_000_000_000 + number * 20_000
        cc.observe(
            store, request=body, reply=reply(usage), format="anthropic", conversation="c", time=time, ended=time + 900
        )
    return store


@pytest.mark.parametrize(
    ("ttl", "usage", "price"),
    [
        ("1h", SPLIT_USAGE, (500 * 3.75 + 4_000 * 6) / 4_500),
        ("5m", OLD_USAGE, 3.75),
        ("1h", OLD_USAGE, 6.0),  # by the breakpoints
    ],
)
def test_the_costs_of_a_conversation_use_it(ttl: str, usage: dict[str, Any], price: float) -> None:
    whole = (4_500 * price + 5 * 3.0 + 5 * 15.0) / 1e6
    with record(ttl, usage) as store:
        costs = conversation_costs(store, "c")
        assert costs.cost == pytest.approx(2 * whole)
        (found,) = [each for each in cc.findings(store, "c") if each.cause == "system_changed"]
        assert found.cost == pytest.approx(found.tokens * (price - 0.3) / 1e6)
        replayed = what_if(store, "c")
        assert replayed.paid == pytest.approx(2 * whole)
        assert replayed.predicted == pytest.approx(2 * whole, rel=0.02)
