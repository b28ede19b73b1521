"""What providers bill: iterations, tiers, speeds, regions and fallbacks, as replies report them.

No recorded reply with a fast, flex or priority tier, with a fallback, an advisor or a compaction exists here. Such
replies are stand-ins, made from the types of the SDKs; their ids say so. The fields of the others are recorded ones.
"""

from collections.abc import Iterator
from datetime import date
from typing import Any

import msgspec
import pytest

import contextc as cc
from contextc._json import JSONObject
from contextc.analysis import conversation_costs, what_if
from contextc.analysis.cache_misses import expect_cache
from contextc.analysis.cost_replay import add_replays
from contextc.events import TurnFinish, UsageReport
from contextc.executor.turn_store import add_usage
from contextc.formats import formatter
from contextc.formats.streams import encode_reply
from contextc.inspection.preview import bill_lost_cache, preview_request
from contextc.inspection.request_timeline import compute_total_cost, load_timeline
from contextc.messages import BilledCall, Text, decode_message, encode_message
from contextc.models import Bill, bill, list_models, list_vendors, model
from contextc.models.billing_table import load_table
from contextc.providers.http_client import SSEParser
from tests.executor.scripted_provider import Scripted, run_turn

M = 1_000_000
COMPACTION = {"type": "compaction", "input_tokens": 180_000, "output_tokens": 3_500}
DECLINED = {"type": "message", "model": "claude-fable-5", "input_tokens": 408, "output_tokens": 30}
DECLINED_AT_ONCE = {**DECLINED, "output_tokens": 0}
SERVED = {"type": "fallback_message", "model": "claude-opus-4-8", "input_tokens": 412, "output_tokens": 264}
SEARCHES = {"server_tool_use": {"web_search_requests": 3, "web_fetch_requests": 1}}
ADVISOR = {"type": "advisor_message", "model": "claude-opus-5", "input_tokens": 5_000, "output_tokens": 700}


def anthropic(**usage: Any) -> dict[str, Any]:
    return {
        "role": "assistant", "content": [{"type": "text", "text": "Hi."}], "model": "claude-opus-5",
        "stop_reason": "end_turn", "usage": {"input_tokens": 1_000, "output_tokens": 100, **usage},
    }  # fmt: skip


def responses(tier: str | None, **details: Any) -> dict[str, Any]:
    return {
        "object": "response", "status": "completed", "model": "gpt-6-astra", "service_tier": tier,
        "output": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hi."}]}],
        "usage": {"input_tokens": 1_000, "output_tokens": 100, "input_tokens_details": details},
    }  # fmt: skip


def chat(tier: str) -> dict[str, Any]:
    return {
        "model": "gpt-5.5", "service_tier": tier,
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Hi."}}],
        "usage": {"prompt_tokens": 1_000, "completion_tokens": 100},
    }  # fmt: skip


def gemini(**words: str) -> dict[str, Any]:
    return {
        "candidates": [{"content": {"role": "model", "parts": [{"text": "Hi."}]}, "finishReason": "STOP"}],
        "usageMetadata": {"promptTokenCount": 1_000, "candidatesTokenCount": 100, **words},
    }


def bedrock(**fields: Any) -> dict[str, Any]:
    return {
        "output": {"message": {"role": "assistant", "content": [{"text": "Hi."}]}}, "stopReason": "end_turn",
        "usage": {"inputTokens": 1_000, "outputTokens": 100}, **fields,
    }  # fmt: skip


STANDARD = {"speed": "standard", "service_tier": "standard", "inference_geo": "not_available"}
ONE_HOUR = {
    "cache_creation_input_tokens": 500,
    "cache_creation": {"ephemeral_5m_input_tokens": 100, "ephemeral_1h_input_tokens": 400},
}
WRITTEN_FIELDS = ("cache_creation_input_tokens", "cache_creation")


def sampling(input: int, output: int, written: int = 0, **more: Any) -> dict[str, Any]:
    """Return a call of the model within a reply, between which the provider ran tools. Its writes last an hour."""
    lifetimes = {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": written}
    counts = {"input_tokens": input, "output_tokens": output, "cache_creation_input_tokens": written}
    return {"type": "message", **counts, "cache_creation": lifetimes, **more}


LOOP = {
    "input_tokens": 120_000, "output_tokens": 100,
    "iterations": [sampling(50_000, 40), sampling(70_000, 60)],
}  # fmt: skip
LONG_LOOP = {
    "input_tokens": 160_000, "output_tokens": 100,
    "iterations": [sampling(50_000, 40), sampling(110_000, 60)],
}  # fmt: skip
CASES = [
    pytest.param("anthropic", "claude-opus-5", anthropic(**STANDARD), 1_000 * 5 + 100 * 25, False, id="standard"),
    pytest.param(
        "anthropic", "claude-opus-5", anthropic(**ONE_HOUR), 1_000 * 5 + 100 * 6.25 + 400 * 10 + 100 * 25, False,
        id="one-hour writes",
    ),
    pytest.param(
        "anthropic", "claude-opus-5", anthropic(iterations=[{"type": "message", "input_tokens": 2}]),
        1_000 * 5 + 100 * 25, False, id="the last iteration only, as Claude Code sums them up",
    ),
    pytest.param(
        "anthropic", "claude-opus-5", anthropic(speed="fast"), 2 * (1_000 * 5 + 100 * 25), False, id="fast, stand-in"
    ),
    pytest.param(
        "anthropic", "claude-opus-4-6", anthropic(speed="fast"), 6 * (1_000 * 5 + 100 * 25), False,
        id="fast at six times, stand-in",
    ),
    pytest.param(
        "anthropic", "claude-sonnet-5", anthropic(speed="fast"), 1_000 * 2 + 100 * 10, True,
        id="fast of a model without a known factor, stand-in",
    ),
    pytest.param(
        "anthropic", "claude-opus-5", anthropic(speed="fast", inference_geo="us", **ONE_HOUR),
        2 * 1.1 * (1_000 * 5 + 100 * 6.25 + 400 * 10 + 100 * 25), False, id="fast in one region, stand-in",
    ),
    pytest.param(
        "anthropic", "claude-opus-5", anthropic(inference_geo="us"), 1.1 * (1_000 * 5 + 100 * 25), False,
        id="a region, stand-in",
    ),
    pytest.param(
        "anthropic", "claude-opus-5", anthropic(inference_geo="mars"), 1_000 * 5 + 100 * 25, True,
        id="an unknown region, stand-in",
    ),
    pytest.param(
        "anthropic", "claude-opus-5", anthropic(service_tier="batch"), 0.5 * (1_000 * 5 + 100 * 25), False,
        id="batch, stand-in",
    ),
    pytest.param(
        "anthropic", "claude-opus-5", anthropic(iterations=[COMPACTION, {"type": "message"}]),
        1_000 * 5 + 100 * 25 + 180_000 * 5 + 3_500 * 25, False, id="a compaction, stand-in",
    ),
    pytest.param(
        "anthropic", "claude-sonnet-5", anthropic(iterations=[{"type": "message"}, ADVISOR, {"type": "message"}]),
        1_000 * 2 + 100 * 10 + 5_000 * 5 + 700 * 25, False, id="an advisor, stand-in",
    ),
    pytest.param(
        "anthropic", "claude-opus-5", anthropic(iterations=[{"type": "message"}, {"type": "dream"}]),
        1_000 * 5 + 100 * 25, True, id="an iteration of an unknown type, stand-in",
    ),
    pytest.param(
        "anthropic", "claude-fable-5",
        anthropic(input_tokens=412, output_tokens=264, iterations=[DECLINED_AT_ONCE, SERVED]),
        412 * 5 + 264 * 25, False, id="a fallback after a refusal without output, stand-in",
    ),
    pytest.param(
        "anthropic", "claude-fable-5", anthropic(input_tokens=412, output_tokens=264, iterations=[DECLINED, SERVED]),
        412 * 5 + 264 * 25 + 408 * 10 + 30 * 50, False, id="a fallback after a part of an answer, stand-in",
    ),
    pytest.param(
        "anthropic", "claude-haiku-5-5", anthropic(**LOOP), 120_000 * 0.1 + 100 * 0.5, False,
        id="several calls, none of them at the price for long prompts, stand-in",
    ),
    pytest.param(
        "anthropic", "claude-haiku-5-5", anthropic(**LONG_LOOP),
        50_000 * 0.1 + 40 * 0.5 + 110_000 * 0.5 + 60 * 2.5, False,
        id="several calls, one of them at the price for long prompts, stand-in",
    ),
    pytest.param(
        "anthropic", "claude-opus-5", anthropic(**SEARCHES), 1_000 * 5 + 100 * 25 + 3 * 0.01 * M, False,
        id="searches of the web",
    ),
    pytest.param(
        "openai_responses", "gpt-5.2", {**responses(None), "tool_usage": {"web_search": {"num_requests": 2}}},
        1_000 * 1.75 + 100 * 14 + 2 * 0.01 * M, True, id="searches of OpenAI, at least, stand-in",
    ),
    pytest.param(
        "openai_responses", "gpt-5.2",
        {**responses(None), "output": [
            {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": each, "query": "x"}}
            for each in ("search", "open_page", "search")
        ]},
        1_000 * 1.75 + 100 * 14 + 2 * 0.01 * M, True, id="searches of OpenAI, by their items",
    ),
    pytest.param(
        "openai_responses", "gpt-5.2",
        {**responses(None), "output": [{"type": "code_interpreter_call", "id": "ci_1", "status": "completed"}]},
        1_000 * 1.75 + 100 * 14, True, id="a tool whose fee is unknown, stand-in",
    ),
    pytest.param("openai_responses", "gpt-6-astra", responses(None), 1_000 * 10 + 100 * 50, False, id="no tier"),
    pytest.param("openai_responses", "gpt-6-astra", responses("default"), 1_000 * 10 + 100 * 50, False, id="default"),
    pytest.param(
        "openai_responses", "gpt-6-astra", responses("flex"), 0.5 * (1_000 * 10 + 100 * 50), False, id="flex, stand-in"
    ),
    pytest.param(
        "openai_responses", "gpt-6-astra", responses("priority"), 2 * (1_000 * 10 + 100 * 50), False,
        id="priority, stand-in",
    ),
    pytest.param(
        "openai_responses", "gpt-6-astra", responses("fast"), 2 * (1_000 * 10 + 100 * 50), False,
        id="fast is priority, stand-in",
    ),
    pytest.param(
        "openai_responses", "gpt-6-astra", responses("ultrafast"), 6 * (1_000 * 10 + 100 * 50), False,
        id="ultrafast, stand-in",
    ),
    pytest.param(
        "openai_responses", "gpt-5.6-sol", responses("ultrafast"), 1_000 * 4 + 100 * 20, True,
        id="ultrafast of a model without a known factor, stand-in",
    ),
    pytest.param(
        "openai_responses", "gpt-6.1-terra",
        responses("priority", cache_write_tokens=600, cache_write_tokens_details={"ttl_12h_tokens": 400}),
        2 * (400 * 1 + 200 * 1.25 + 400 * 2.5 + 100 * 5), False, id="twelve-hour writes, stand-in",
    ),
    pytest.param(
        "openai_responses", "gpt-6-astra",
        responses(None, cache_write_tokens=600, cache_write_tokens_details={"ttl_12h_tokens": 400}),
        400 * 10 + 600 * 12.5 + 100 * 50, True, id="twelve-hour writes of unknown price, stand-in",
    ),
    pytest.param(
        "openai_chat", "deepseek-v4-pro", chat("default"), 1_000 * 0.66 + 100 * 1.98, True,
        id="a price that is higher at some hours",
    ),
    pytest.param("openai_chat", "gpt-5.5", chat("priority"), 2.5 * (1_000 * 5 + 100 * 30), False, id="chat, stand-in"),
    pytest.param(
        "gemini", "gemini-3.1-pro", gemini(serviceTier="flex"), 0.5 * (1_000 * 2 + 100 * 12), False,
        id="Gemini flex, stand-in",
    ),
    pytest.param(
        "gemini", "gemini-3.1-pro", gemini(trafficType="ON_DEMAND_PRIORITY"), 1.75 * (1_000 * 2 + 100 * 12), True,
        id="Gemini priority, at least, stand-in",
    ),
    pytest.param(
        "gemini", "gemini-3.1-pro", gemini(trafficType="ON_DEMAND"), 1_000 * 2 + 100 * 12, False, id="Gemini on demand"
    ),
    pytest.param(
        "gemini", "gemini-3.1-pro", {**gemini(), "candidates": [
            {**gemini()["candidates"][0], "groundingMetadata": {"webSearchQueries": ["a", "b"]}}
        ]}, 1_000 * 2 + 100 * 12, True, id="searches of Google, of which some are free",
    ),
    pytest.param(
        "bedrock", "global.anthropic.claude-opus-5", bedrock(serviceTier={"type": "default"}), 1_000 * 5 + 100 * 25,
        False, id="Bedrock",
    ),
    pytest.param(
        "bedrock", "us.anthropic.claude-opus-5", bedrock(), 1.1 * (1_000 * 5 + 100 * 25), False,
        id="an inference profile of a region",
    ),
    pytest.param(
        "bedrock", "global.anthropic.claude-opus-5", bedrock(serviceTier={"type": "priority"}), 1_000 * 5 + 100 * 25,
        True, id="Bedrock priority, stand-in",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("format", "requested", "reply", "expected", "is_lower_bound"), CASES)
def test_a_reply_costs_what_the_provider_bills(
    format: str, requested: str, reply: dict[str, Any], expected: float, is_lower_bound: bool
) -> None:
    """A cost that ignores a tier, a region or a further call can be wrong by several times."""
    usage = formatter(format).decode_reply(reply).usage
    assert usage is not None
    found = bill(model(requested), usage)
    assert found is not None
    assert found.dollars == pytest.approx(expected / M)
    assert found.is_lower_bound == is_lower_bound


@pytest.mark.parametrize(
    ("format", "requested", "reply"),
    [
        ("anthropic", "claude-opus-5", anthropic(service_tier="priority")),
        ("openai_responses", "gpt-6-astra", responses("scale")),
        ("gemini", "gemini-3.1-pro", gemini(trafficType="PROVISIONED_THROUGHPUT")),
        ("bedrock", "global.anthropic.claude-opus-5", bedrock(serviceTier={"type": "flex"})),
        ("anthropic", "claude-fable-5", anthropic(iterations=[{**SERVED, "model": "a-model-of-tomorrow"}])),
    ],
)
def test_a_price_that_can_be_lower_than_the_list_price_is_unknown(
    format: str, requested: str, reply: dict[str, Any]
) -> None:
    """Prepaid capacity and unpublished discounts have no lower bound, so the list price would be wrong. Stand-ins."""
    usage = formatter(format).decode_reply(reply).usage
    assert usage is not None
    assert bill(model(requested), usage) is None


# ── streams ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def events_of(format: str, reply: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a stream with the same figures. Anthropic reports the words at its start, the counts at its end."""
    match format:
        case "anthropic":
            first = {name: each for name, each in reply["usage"].items() if name != "iterations"}
            message: JSONObject = {**reply, "content": [], "stop_reason": None, "usage": {**first, "output_tokens": 1}}
            yield {"type": "message_start", "message": message}
            yield {"type": "content_block_start", "index": 0, "content_block": reply["content"][0]}
            yield {"type": "content_block_stop", "index": 0}
            counts = ("input_tokens", "output_tokens", "cache_creation_input_tokens", "server_tool_use", "iterations")
            last = {name: reply["usage"][name] for name in counts if name in reply["usage"]}
            yield {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": last}
            yield {"type": "message_stop"}
        case "openai_responses":
            early: JSONObject = {**reply, "status": "in_progress", "output": [], "usage": None, "service_tier": "auto"}
            yield {"type": "response.created", "response": early}
            yield {"type": "response.completed", "response": reply}
        case "openai_chat":
            head = {name: reply[name] for name in ("model", "service_tier")}
            delta = {"index": 0, "delta": {"role": "assistant", "content": "Hi."}, "finish_reason": "stop"}
            yield {**head, "choices": [delta]}
            yield {**head, "choices": [], "usage": reply["usage"]}
        case "gemini":
            yield {"candidates": [{"content": reply["candidates"][0]["content"]}]}
            yield reply
        case _:
            yield {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"text": "Hi."}}}
            yield {"messageStop": {"stopReason": "end_turn"}}
            yield {"metadata": {name: each for name, each in reply.items() if name not in ("output", "stopReason")}}


@pytest.mark.parametrize(("format", "requested", "reply", "expected", "is_lower_bound"), CASES)
def test_a_streamed_reply_has_the_same_usage(
    format: str, requested: str, reply: dict[str, Any], expected: float, is_lower_bound: bool
) -> None:
    """Most replies are streamed, so a field that only whole replies keep would hardly ever be counted."""
    whole = formatter(format).decode_reply(reply).usage
    assert formatter(format).decode_stream(list(events_of(format, reply))).usage == whole


def test_lifetimes_of_writes_are_those_of_all_calls_in_a_stream() -> None:
    """The first event has the lifetimes of the first call only, and the last one only a sum. Stand-in."""
    twice = [sampling(100, 20, written=500), sampling(50, 30, written=400, cache_read_input_tokens=500)]
    first = {"input_tokens": 100, "output_tokens": 1, **{name: twice[0][name] for name in WRITTEN_FIELDS}}
    counts = {"cache_creation_input_tokens": 900, "cache_read_input_tokens": 500, "iterations": twice}
    last = {"input_tokens": 150, "output_tokens": 50, **counts}
    usage = formatter("anthropic").decode_stream([
        {"type": "message_start", "message": {"role": "assistant", "content": [], "usage": first}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": last},
    ]).usage  # fmt: skip
    assert usage is not None
    assert (usage.cache_write, usage.cache_write_long) == (900, 900)
    assert bill(model("claude-opus-5"), usage) == (pytest.approx((150 * 5 + 900 * 10 + 500 * 0.5 + 50 * 25) / M), False)


# ── stored usage ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_usage_is_stored_whole_and_old_rows_stay_readable() -> None:
    """Costs are computed from stored usage, also from that of earlier versions."""
    usage = cc.Usage(
        input=9, tier="flex", speed="fast", region="us", model="claude-opus-5", input_differs=True,
        calls=(BilledCall(kind="compaction", input=3, output=1, cache_write_long=2),),
    )  # fmt: skip
    message = cc.Message(role="assistant", usage=usage)
    assert decode_message(encode_message(message)).usage == usage
    assert msgspec.json.decode(b'{"input":9,"cache_read":2}', type=cc.Usage) == cc.Usage(input=9, cache_read=2)
    assert msgspec.json.encode(cc.Usage(input=9)) == b'{"input":9}'


REPORTED = [
    pytest.param("xai:grok-4", {"cost_in_usd_ticks": 37_756_000}, 0.0037756, id="ticks of xAI"),
    pytest.param("openrouter:anthropic/claude-opus-5", {"cost": 0.95}, 0.95, id="credits of OpenRouter"),
    pytest.param(
        "openrouter:anthropic/claude-opus-5",
        {"cost": 0.05, "is_byok": True, "cost_details": {"upstream_inference_cost": 0.9}}, 0.95,
        id="a key of one's own at OpenRouter",
    ),
    pytest.param("openrouter:anthropic/claude-opus-5", {"cost": 0.05, "is_byok": True}, None, id="an unknown part"),
    pytest.param("deepseek:deepseek-chat", {"cost": 0.95}, None, id="a field that is not known to be dollars"),
    pytest.param("xai:grok-4", {"cost_in_usd_ticks": -1}, None, id="no cost"),
    pytest.param("xai:grok-4", {"cost_in_usd_ticks": "1"}, None, id="no number"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "fields", "dollars"), REPORTED)
def test_dollars_that_a_reply_reports_are_its_cost(name: str, fields: JSONObject, dollars: float | None) -> None:
    """They include discounts and fees that no table has. The replies are stand-ins, by the vendors' pages:
    docs.x.ai/developers/cost-tracking, openrouter.ai/docs/use-cases/usage-accounting.
    """
    provider = cc.provider(name, window=100_000)
    reply = chat("default")
    usage = provider.formatter.decode_reply({**reply, "usage": {**reply["usage"], **fields}}).usage
    assert usage is not None
    assert usage.dollars == (pytest.approx(dollars) if dollars is not None else None)
    computed = bill(provider.model, msgspec.structs.replace(usage, dollars=None))
    assert bill(provider.model, usage) == ((usage.dollars, False) if dollars is not None else computed)


def test_costs_by_cause_add_up_to_the_dollars_that_a_reply_reports() -> None:
    """Otherwise a table of causes would contradict the total beside it."""
    with cc.open_store("memory:") as store:
        store.append("c", cc.user("hi " * 500))
        compiler = cc.MessageCompiler(store, "xai:grok-4")
        attempt = compiler.compile("c")
        compiler.begin(attempt)
        usage = cc.Usage(input=1_000, output=100, dollars=0.5)
        compiler.commit(attempt, produced=[cc.assistant("Hi.")], usage=usage)
        costs = conversation_costs(store, "c")
        assert costs.cost == pytest.approx(0.5)
        assert sum([each.cost or 0.0 for each in costs.lines]) == pytest.approx(0.5)
        assert compute_total_cost(store, "c") == (pytest.approx(0.5), False)


def test_a_sum_has_reported_dollars_only_if_all_of_it_has() -> None:
    some = cc.Usage(input=10, dollars=0.25)
    assert add_usage(add_usage(cc.Usage(), some), some).dollars == 0.5
    assert add_usage(some, cc.Usage(input=10)).dollars is None
    assert add_usage(cc.Usage(input=10), some).dollars is None


WRITTEN = {
    "anthropic": cc.Usage(
        input=2_000, output=100, cache_read=300, cache_write=500, cache_write_long=400, reasoning=20, tier="batch",
        speed="fast", region="us", model="claude-opus-4-8", input_differs=True,
        calls=(
            BilledCall(kind="compaction", input=180_000, output=3_500, cache_write=50, cache_write_long=50),
            BilledCall(kind="declined", model="claude-fable-5", input=408, output=30),
            BilledCall(kind="advisor_message", model="claude-opus-5", input=5_000, output=700),
            BilledCall(kind="web_search", count=3),
        ),
        iterations=(
            BilledCall(kind="message", input=900, output=40, cache_write=500, cache_write_long=400),
            BilledCall(kind="message", input=1_100, output=60, cache_read=300),
        ),
    ),
    "openai_responses": cc.Usage(
        input=2_000, output=100, cache_read=300, cache_write=500, cache_write_long=400, reasoning=20, tier="flex"
    ),
    "openai_chat": cc.Usage(input=2_000, output=100, cache_read=300, cache_write=500, reasoning=20, tier="priority"),
    "gemini": cc.Usage(input=2_000, output=100, cache_read=300, reasoning=20, tier="flex"),
    "bedrock": cc.Usage(
        input=2_000, output=100, cache_read=300, cache_write=500, cache_write_long=400, tier="bedrock flex"
    ),
}  # fmt: skip


@pytest.mark.parametrize("format", WRITTEN)
def test_a_written_reply_has_the_usage_that_it_was_read_with(format: str) -> None:
    """The proxy converts replies: its client must not see a cheaper one."""
    form, usage = formatter(format), WRITTEN[format]
    body = encode_reply(form, "m", [cc.assistant("Hi.")], usage, {})
    assert form.decode_reply(body).usage == usage
    if form.reply_stream is not None:
        request = {"stream_options": {"include_usage": True}}
        stream = form.reply_stream(request, "m", "r_1")
        parser, message = SSEParser(), cc.assistant("Hi.", usage=usage, finish="stop")
        events = parser.feed(stream.begin() + stream.add(Text(text="Hi.")) + stream.end(message))
        assert form.decode_stream(events).usage == usage


def test_a_tier_that_a_format_does_not_know_is_left_out() -> None:
    """A client would refuse it, or bill it as another one."""
    body = encode_reply(formatter("anthropic"), "m", [cc.assistant("Hi.")], cc.Usage(input=1, tier="flex"), {})
    assert "service_tier" not in body["usage"]


@pytest.mark.parametrize("strange", [None, "x", 5, [None, "x", {"type": 5}], {"type": "message"}])
def test_strange_iterations_do_not_stop_a_reply(strange: Any) -> None:
    """A reply that cannot be decoded would lose the answer."""
    usage = formatter("anthropic").decode_reply(anthropic(iterations=strange, speed=5, inference_geo=[])).usage
    assert usage is not None
    assert (usage.input, usage.output, usage.speed, usage.region) == (1_000, 100, "", "")


def test_a_sum_of_different_tiers_is_no_tier() -> None:
    """A sum has one price only if all of its calls have it."""
    fast, slow = cc.Usage(input=5, speed="fast"), cc.Usage(input=7)
    call = BilledCall(kind="compaction", input=2, output=1)
    assert add_usage(cc.Usage(), fast) == fast
    assert add_usage(fast, slow).speed == "mixed"
    several = cc.Usage(input=2, iterations=(call,))
    assert add_usage(cc.Usage(), several) == several
    assert add_usage(several, slow).iterations == ()
    both = add_usage(cc.Usage(input=1, calls=(call,)), cc.Usage(input=1, calls=(call,)))
    assert both.calls == (BilledCall(kind="compaction", input=4, output=2),)


def test_each_row_of_the_table_has_a_source_and_names_models_that_exist() -> None:
    """A factor without a source cannot be checked, and a misspelled model would never match."""
    table, models, vendors = load_table(), set(list_models()), set(list_vendors())
    for row in table.factor:
        assert row.source
        assert date(2026, 1, 1) <= row.date
        assert set(row.models) <= models, row
        assert set(row.vendors) <= vendors, row
    for name in table.name:
        assert name.source
        assert set(name.models) <= models
    for fee in table.fee:
        assert fee.source
        assert set(fee.vendors) <= vendors


# ── what is shown ─────────────────────────────────────────────────────────────────────────────────────────────────────


def record(store: cc.Store, *replies: dict[str, Any], requested: str = "claude-opus-5") -> None:
    for number, reply in enumerate(replies):
        messages = [{"role": "user", "content": f"Question {each}"} for each in range(number + 1)]
        body = {"model": requested, "max_tokens": 500, "messages": messages[-1:]}
        time = 1_790_000_000_000 + number * 20_000
        cc.observe(store, request=body, reply=reply, format="anthropic", conversation="c", time=time, ended=time + 900)


def test_costs_by_cause_add_up_to_what_is_billed() -> None:
    """The calls that a provider makes beside the answer have a line of their own."""
    with cc.open_store("memory:") as store:
        record(store, anthropic(speed="fast", iterations=[COMPACTION, {"type": "message"}]))
        costs = conversation_costs(store, "c")
        expected = 2 * (1_000 * 5 + 100 * 25 + 180_000 * 5 + 3_500 * 25) / M
        assert costs.cost == pytest.approx(expected)
        assert sum([each.cost or 0.0 for each in costs.lines]) == pytest.approx(expected)
        (line,) = [each for each in costs.lines if each.kind == "answer_calls"]
        assert line.name == "compaction"
        assert line.cost == pytest.approx(2 * (180_000 * 5 + 3_500 * 25) / M)
        assert compute_total_cost(store, "c") == (pytest.approx(expected), False)


def test_an_unknown_factor_makes_each_sum_a_lower_bound() -> None:
    """A sum that hides an unknown part reads like a bill."""
    with cc.open_store("memory:") as store:
        record(store, anthropic(), anthropic(inference_geo="mars"))
        assert [each.cost_is_lower_bound for each in load_timeline(store, "c")] == [False, True]
        total = compute_total_cost(store, "c")
        assert total is not None
        assert total.is_lower_bound
        assert conversation_costs(store, "c").cost_is_lower_bound


def test_a_tier_that_doubled_the_price_is_a_finding() -> None:
    """A default of a project can double a bill without a change in any request."""
    with cc.open_store("memory:") as store:
        record(store, anthropic(), anthropic(speed="fast"), anthropic(inference_geo="us"))
        (found,) = [each for each in cc.findings(store, "c") if each.cause == "costly_tier"]
        assert found.code == "WIN006"
        assert found.cost == pytest.approx((1_000 * 5 + 100 * 25) / M)
        assert found.tokens == 1_100
        assert found.title == "1 request was billed at 2 times the list price: speed fast"
        assert [each.request for each in found.evidence] == [2]


def test_previews_have_the_factors_of_the_last_request() -> None:
    """The next request is likely to be billed as the last one: at twice the list price, or at least at that."""
    opus = cc.provider("anthropic:claude-opus-5")
    losses: list[list[Bill | None]] = []
    for speed, region in (("", ""), ("fast", ""), ("", "mars")):
        with cc.open_store("memory:") as store:
            compiler = cc.MessageCompiler(store, opus)
            for number in range(4):
                store.append("c", cc.user(f"Question {number}. {'Be exact. ' * 800}"))
                compiled = compiler.compile("c", system_prompt="Help. " * 3_000)
                size = compiled.budget.input
                usage = cc.Usage(input=size, output=5, cache_write=size, speed=speed, region=region)
                with compiler.attempt(compiled) as attempt:
                    attempt.commit(cc.assistant("Done.", usage=usage))
            edited = preview_request(store, opus, "c", edit=(1, "Other."))
            expected = expect_cache(store, edited, 1 << 42)  # long after it has expired
            assert expected is not None
            compaction = compiler.preview_compaction("c", max_input_tokens=14_000)
            assert compaction is not None
            losses.append([
                bill_lost_cache(store, edited),
                Bill(expected.dollars or 0.0, expected.cost_is_lower_bound),
                Bill(compaction.cost_before or 0.0, compaction.cost_is_lower_bound),
            ])  # fmt: skip
    listed, double, least = losses
    for one, two, bound in zip(listed, double, least, strict=True):
        assert one is not None
        assert one.dollars > 0
        assert (one.is_lower_bound, two) == (False, (pytest.approx(2 * one.dollars), False))
        assert bound == (pytest.approx(one.dollars), True)


def test_replays_with_an_unknown_factor_are_lower_bounds() -> None:
    """What another way would have cost is no better known than what was paid."""
    for facts, is_lower_bound in (({}, False), ({"inference_geo": "mars"}, True)):
        with cc.open_store("memory:") as store:
            record(store, anthropic(**facts), anthropic(**facts))
            found = what_if(store, "c")
            assert found.paid
            assert found.cost_is_lower_bound is is_lower_bound
            assert add_replays([found, found], "both").cost_is_lower_bound is is_lower_bound


def test_the_default_tier_of_a_project_that_doubled_the_price_is_a_finding() -> None:
    """The requests ask for no tier: only the replies say that each was billed twice."""
    for tier, factor in (("priority", 2), ("default", 0), ("flex", 0)):
        with cc.open_store("memory:") as store:
            for number in range(3):
                usage = {"prompt_tokens": 1_000, "completion_tokens": 100, "total_tokens": 1_100}
                choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Yes."}}
                cc.observe(
                    store, format="openai_chat", provider="openai", conversation="c", time=1 + number * 20_000,
                    request={"model": "gpt-5.4", "messages": [{"role": "user", "content": f"Question {number}"}]},
                    reply={"model": "gpt-5.4", "service_tier": tier, "choices": [choice], "usage": usage},
                )  # fmt: skip
            found = [each for each in cc.findings(store, "c") if each.cause == "costly_tier"]
            titles = [f"3 requests were billed at {factor} times the list price: tier {tier}"] if factor else []
            assert [each.title for each in found] == titles


def test_a_request_that_the_provider_compacted_is_no_sample_of_a_count() -> None:
    """Its figure is that of a smaller input: a factor learned from it would halve the counts of all later requests."""
    opus = cc.provider("anthropic:claude-opus-5")
    factors: list[float] = []
    for more in ({}, {"iterations": [COMPACTION, {"type": "message"}]}):
        with cc.open_store("memory:") as store:
            compiler = cc.MessageCompiler(store, opus)
            store.append("c", cc.user("A long question about many words. " * 400))
            compiled = compiler.compile("c")
            compiler.commit(compiled, anthropic(input_tokens=1_400, **more))
            factors.append(compiler.factor)
            (request,) = load_timeline(store, "c")
            assert request.record.is_input_measured == (not more)
    assert factors[0] < 1
    assert factors[1] == 1


def test_a_turn_knows_that_its_cost_is_a_lower_bound() -> None:
    """A program that adds up the costs of turns has only their results and events."""
    region = list(events_of("anthropic", anthropic(inference_geo="mars")))
    with cc.open_store("memory:") as store:
        executor = cc.AgentExecutor(store, "anthropic:claude-opus-5", endpoint=Scripted(region))
        events = run_turn(executor, "hi", "demo")
        expected = pytest.approx((1_000 * 5 + 100 * 25) / M)
        ends = [each for each in events if isinstance(each, TurnFinish | UsageReport)]
        assert [(each.cost, each.cost_is_lower_bound) for each in ends] == [(expected, True)] * 2
        (turn,) = store.turns("demo")
        assert (turn.cost, turn.cost_is_lower_bound) == (expected, True)
        assert compute_total_cost(store, "demo") == (expected, True)
