"""OpenRouter and Vercel's gateway: OpenAI's chat format with their own reasoning, cache points and errors.

Turns go through OpenAI's SDK to a stand-in that refuses what OpenRouter, its SDK's types, or Claude behind it would.
"""

import asyncio
from collections.abc import Iterator
from itertools import pairwise

import pytest

import contextc as cc
from contextc._json import JSON, JSONObject, decode, encode
from contextc.errors import FailureKind, ProviderFailed
from contextc.events import AnyEvent, ReasoningDelta, RetryScheduled, TurnFinish
from contextc.formats.base import Request
from contextc.providers import ProviderCall, endpoint, openai
from contextc.providers.error_mapping import map_error, with_provider_rules
from tests.executor.scripted_provider import played, rebuilt
from tests.fake_vendors import KEY, AcceptedRequest, FakeVendors, Reply, RequestRecord, faults
from tests.fake_vendors import ScriptedCall as Asked
from tests.fake_vendors.vendors.openrouter import COST, PROCESSING, foreign_to_types, types
from tests.formats.traffic import Exchange, accepted, normal
from tests.providers.loopback_server import Answer, loopback

VARIABLE = "CONTEXTC_STANDIN_KEY"
CLAUDE, GPT = "anthropic/claude-opus-5.5", "openai/gpt-5"
PROMPT = "You look at things, and say what they are like. " * 120
"""Long enough to be cached."""
MARK: JSONObject = {"type": "ephemeral"}
WHOLE: JSONObject = {"stream": False, "stream_options": None}
PNG = b"\x89PNG"


# ── facts ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("spec", "name", "model"),
    [
        ("openrouter:anthropic/claude-opus-4.5", "openrouter", "claude-opus-4-5"),
        ("openrouter:anthropic/claude-3.7-sonnet:thinking", "openrouter", "claude-3-7-sonnet"),
        ("openrouter:anthropic/claude-sonnet-4.5:nitro", "openrouter", "claude-sonnet-4-5"),
        ("openrouter:google/gemini-2.0-flash-exp:free", "openrouter", "gemini-2.0-flash"),
        ("openrouter:deepseek/deepseek-r1-0528:free", "openrouter", "deepseek-reasoner"),
        ("openrouter:openai/gpt-oss-120b:exacto", "openrouter", "gpt-oss-120b"),
        ("vercel:openai/gpt-5", "vercel-gateway", "gpt-5"),
        ("vercel:xai/grok-4", "vercel-gateway", "grok-4"),
        ("vercel:alibaba/qwen3-max", "vercel-gateway", "qwen3-max"),
        ("ai-gateway:anthropic/claude-haiku-5.5", "vercel-gateway", "claude-haiku-5-5"),
    ],
)
def test_a_model_behind_a_gateway_has_its_facts(spec: str, name: str, model: str) -> None:
    """Guarantee 9.11: by the name that the gateway has for it, with its tags; that name goes into the request."""
    found = cc.provider(spec)
    assert (found.name, found.model.name, found.client, found.format) == (name, model, "openai", "openai_chat")
    assert found.model_id == spec.partition(":")[2]


# ── requests ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def compiled(spec: str, *messages: cc.Message, prompt: str = PROMPT, settings: JSONObject | None = None) -> cc.Compiled:
    with cc.open_store("memory:") as store:
        for message in messages:
            store.append("demo", message)
        fragments = [cc.PromptFragment("identity", prompt)] if prompt else []
        compiler = cc.MessageCompiler(store, cc.provider(spec))
        found = compiler.compile("demo", instructions=fragments, tools=[TOOL], settings=settings)
        assert decode(found.body) == found.params
        return found


TOOL = cc.Tool(name="look", description="Look at a thing.", parameters={"type": "object", "properties": {}})
LONG = cc.user("What is this? " * 400)


@pytest.mark.parametrize("gateway", ["openrouter", "vercel"])
def test_claude_behind_a_gateway_gets_cache_points(gateway: str) -> None:
    """Guarantees 8.2, 10.4: behind the system prompt and at the end, on the text."""
    found = compiled(f"{gateway}:{CLAUDE}", LONG)
    system, user = found.params["messages"]
    assert system == {"role": "system", "content": [{"type": "text", "text": PROMPT, "cache_control": MARK}]}
    assert user["content"] == [{"type": "text", "text": LONG.text, "cache_control": MARK}]
    assert [*foreign_to_types(found.params)] == []


@pytest.mark.parametrize("spec", [f"openrouter:{GPT}", f"vercel:{GPT}", f"openai-chat:{CLAUDE}", f"openai-chat:{GPT}"])
def test_no_other_provider_is_sent_any(spec: str) -> None:
    """Models that cache by themselves, and endpoints of which it is not known that they take points."""
    assert b"cache_control" not in compiled(spec, LONG).body


def test_tools_are_marked_where_there_is_no_prompt() -> None:
    """They come first in what is cached."""
    formatter = cc.OpenAIFormatter(cache_marks=True)
    request = Request(messages=(cc.user("hi"),), tools=(TOOL,))
    body = formatter.with_head_breakpoint(formatter.encode_request(request))
    assert [tool["cache_control"] for tool in body["tools"]] == [MARK]
    assert body["messages"] == [{"role": "user", "content": "hi"}]
    assert formatter.list_cache_lifetimes(body["tools"]) == [""]
    assert cc.OpenAIFormatter().with_head_breakpoint(body | {"tools": []}) == body | {"tools": []}


def test_a_cache_point_is_on_texts() -> None:
    """Empty text takes none, OpenRouter's types have it on text alone, and calls come behind the text."""
    formatter = cc.OpenAIFormatter(cache_marks=True)
    picture = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
    text: JSONObject = {"type": "text", "text": "a"}
    shown: JSONObject = {"role": "user", "content": [text, picture]}
    marked = formatter.with_cache_breakpoint(shown)
    assert marked is not None
    assert marked == {"role": "user", "content": [text | {"cache_control": MARK}, picture]}
    assert formatter.without_cache_breakpoints([marked]) == [shown]
    for content in (None, "", " ", [], [picture]):
        assert formatter.with_cache_breakpoint({"role": "tool", "tool_call_id": "a", "content": content}) is None
    assert formatter.with_cache_breakpoint({"role": "assistant", "content": "a", "tool_calls": [{}]}) is None
    plain: JSONObject = {"role": "tool", "tool_call_id": "a", "content": "1"}
    again = formatter.with_cache_breakpoint(plain)
    assert again is not None
    assert again == plain | {"content": [{"type": "text", "text": "1", "cache_control": MARK}]}
    assert formatter.without_cache_breakpoints([again]) == [plain]


def test_points_of_the_callers_own_are_counted() -> None:
    """There are four, and the automatic one at the top is one of them."""
    theirs: JSONObject = {"cache_control": MARK}
    found = compiled(f"openrouter:{CLAUDE}", LONG, settings=theirs)
    assert found.draft.breakpoints_left == 3


def test_a_picture_stays_in_the_result_where_that_may_hold_it() -> None:
    """Guarantee 2.6: a tool message of OpenRouter's takes parts; others are shown it in a message of the user."""
    inspected = cc.assistant(tool_calls=[cc.tool_call("a", "look", {})])
    result = cc.tool_result("a", "look", [cc.Text("It is:"), cc.Media(mime_type="image/png", data=PNG)])
    router, gateway = (
        compiled(f"{each}:{CLAUDE}", LONG, inspected, result, prompt="") for each in ("openrouter", "vercel")
    )
    *_, last = router.params["messages"]
    assert [part["type"] for part in last["content"]] == ["text", "image_url"]
    assert [*foreign_to_types(router.params)] == []
    assert [message["role"] for message in gateway.params["messages"]][-2:] == ["tool", "user"]


CASES = [each for each in accepted("openai_chat") if each.vendor == "openrouter"]


@pytest.mark.parametrize("exchange", CASES, ids=lambda each: each.case)
def test_what_openrouter_accepted_is_accepted_here(exchange: Exchange) -> None:
    """Guarantee 10.5: clean by our rules, and equal after reading and writing it by this provider's own formatter."""
    formatter = cc.provider("openrouter:x", window=9_000).formatter
    assert cc.lint(exchange.request, format="openai_chat") == []
    assert normal(formatter.encode_request(formatter.decode_request(exchange.request))) == normal(exchange.request)


# ── turns ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def looks(ask: AcceptedRequest) -> Reply:
    """Thinks, looks at the thing, thinks again, and answers."""
    last = ask.request.messages[-1]
    if last.role == "tool":
        return Reply(f"{last.tool_results[0].text} That is all.", reasoning="So it is round.")
    return Reply("Let me look.", [Asked("look", {"thing": last.text})], reasoning=f"What is {last.text}?")


def look(thing: str) -> str:
    """Look at a thing."""
    return f"{thing} is round."


class Room:
    """An agent behind a gateway, in a conversation."""

    def __init__(self, standin: FakeVendors, store: cc.Store, *, settings: JSONObject | None = None) -> None:
        self.standin, self.store, self.settings = standin, store, settings
        self.url = f"{standin.url()}/api/v1"

    def agent(self, model: str = CLAUDE, gateway: str = "openrouter", window: int | None = None) -> cc.AgentExecutor:
        there = cc.provider(f"{gateway}:{model}", url=self.url, key=VARIABLE, window=window)
        return cc.AgentExecutor(
            self.store, there, tools=[look], instructions=PROMPT, settings=self.settings, triggers=()
        )

    def say(self, agent: cc.AgentExecutor, *texts: str) -> list[AnyEvent]:
        async def all_of_them() -> list[AnyEvent]:
            async with agent:
                return [event for text in texts for event in await played(agent, "demo", text)]

        return asyncio.run(all_of_them())

    @property
    def bodies(self) -> list[JSONObject]:
        return [decode(record.raw) for record in self.standin.records]

    def thoughts(self, number: int = -1) -> list[JSON]:
        """The blocks of reasoning in a request, message by message."""
        return [each["reasoning_details"] for each in self.bodies[number]["messages"] if "reasoning_details" in each]


@pytest.fixture
def store() -> Iterator[cc.Store]:
    with cc.open_store("memory:") as opened:
        yield opened


@pytest.fixture(autouse=True)
def _ready(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, KEY)
    types()


def refused(standin: FakeVendors) -> list[str]:
    return [record.refused for record in standin.refused] + standin.defects


@pytest.mark.parametrize("gateway", ["openrouter", "vercel"])
@pytest.mark.parametrize("settings", [None, WHOLE], ids=["streamed", "whole"])
def test_reasoning_that_is_bound_comes_back_with_every_step(
    store: cc.Store, settings: JSONObject | None, gateway: str
) -> None:
    """Guarantees 2.4, 9.2, 11.1: signed over everything before it, and checked so; cache points do not break it."""
    with FakeVendors(looks) as standin:
        room = Room(standin, store, settings=settings)
        agent = room.agent(gateway=gateway)
        events = room.say(agent, "a ball", "a cube", "a cone")
        assert refused(standin) == []
        assert [each.finish for each in events if isinstance(each, TurnFinish)] == ["stop"] * 3
        assert len(room.thoughts()) == len(standin.records) - 1 == 5
        assert all(
            [block["type"] for block in blocks] == ["reasoning.text"] for blocks in map(_blocks, room.thoughts())
        )
        assert [_marks(record) for record in standin.records] == [2, 3, 3, 3, 3, 3]
        assert _prefixes_hold(room, agent)
        assert standin.breaks() == []
        assert rebuilt(agent, "demo", 6) == [record.raw for record in standin.records]
    thought = "".join(each.text for each in events if isinstance(each, ReasoningDelta))
    assert thought.startswith("What is a ball?So it is round.")
    usage = [message.usage for message in store.load("demo") if message.usage]
    assert usage[0].cache_write
    assert all(each.cache_read for each in usage[1:])
    replies = [message.extra or {} for message in store.load("demo") if message.role == "assistant"]
    name = agent.provider.name
    assert {(each[f"{name} reply"]["cost"], each[f"{name} reply"]["provider"]) for each in replies} == {
        (COST, "Anthropic")
    }


def _blocks(value: JSON) -> list[JSONObject]:
    assert isinstance(value, list)
    return value  # pyright: ignore[reportUnknownVariableType]


def _marks(record: RequestRecord) -> int:
    return record.raw.count(b'"cache_control"')


def _prefixes_hold(room: Room, agent: cc.AgentExecutor) -> bool:
    """Whether every request begins with the one before it, but for cache points."""
    plain = [agent.provider.formatter.without_cache_breakpoints(body["messages"]) for body in room.bodies]
    return all(later[: len(earlier)] == earlier for earlier, later in pairwise(plain))


@pytest.mark.parametrize(
    ("gateway", "model", "header"),
    [("openrouter", CLAUDE, "x-session-id"), ("xai", "grok-4", "x-grok-conv-id")],
    ids=["openrouter", "xai"],
)
def test_a_conversation_is_identified_by_a_header_that_does_not_contain_its_name(
    store: cc.Store, gateway: str, model: str, header: str
) -> None:
    """Guarantees 9.2, 13.3: the same in all its requests, so that one machine gets them; other calls have none."""
    long, short = "Café with Ada " * 30, "Ada"

    async def talk(room: Room) -> None:
        async with room.agent(model, gateway) as router, room.agent(gateway="vercel") as other:
            for name in (long, short, long):
                await played(router, name, "a ball")
            await played(other, short, "a ball")
            alone = ProviderCall(provider=router.provider, body=room.standin.records[0].raw)
            async with endpoint(router.provider) as line:
                assert [event async for event in line.stream(alone)]

    with FakeVendors(looks) as standin:
        asyncio.run(talk(Room(standin, store)))
        assert refused(standin) == []
        found = [record.headers.get(header) for record in standin.records]
    first, second = found[0], found[2]
    assert found == [first, first, second, second, first, first, None, None, None]
    assert first
    assert second
    assert first != second
    for value in (first, second):
        assert 16 <= len(value) <= 256
        assert "Ada" not in value


def test_a_conversation_continues_with_another_vendors_model_and_comes_back(store: cc.Store) -> None:
    """Guarantees 9.10, 2.4: each is given its own reasoning, and nothing it cannot read."""
    with FakeVendors(looks) as standin:
        room = Room(standin, store)
        room.say(room.agent("anthropic/claude-sonnet-4.5"), "a ball")
        room.say(room.agent(GPT), "a cube", "a pen")
        types = {block["type"] for blocks in room.thoughts() for block in _blocks(blocks)}
        assert types == {"reasoning.summary", "reasoning.encrypted"}
        room.say(room.agent("anthropic/claude-sonnet-4.5"), "a cone")
        assert {block["format"] for blocks in room.thoughts() for block in _blocks(blocks)} == {"anthropic-claude-v1"}
        assert len(room.thoughts()) == 3
        assert refused(standin) == []


def test_reasoning_of_another_claude_is_left_out_where_it_is_bound(store: cc.Store) -> None:
    """Guarantee 9.3: what it signed is a past as it was shown that one."""
    with FakeVendors(looks) as standin:
        room = Room(standin, store)
        room.say(room.agent("anthropic/claude-haiku-5.5"), "a ball")
        room.say(room.agent(), "a cube")
        assert refused(standin) == []
        assert len(room.thoughts()) == 1


def test_bound_reasoning_is_left_out_after_a_cut(store: cc.Store) -> None:
    """Guarantees 9.3, 7.4: in a new epoch the past is another, and the signatures over it are void."""
    with FakeVendors(looks) as standin:
        room = Room(standin, store)
        room.say(room.agent(window=8_000), *(f"thing {number} {'x ' * 150}" for number in range(14)))
        assert refused(standin) == []
        begun = next(number for number in range(len(room.bodies)) if _is_cut(room.bodies[number]))
        assert [message["role"] for message in room.bodies[begun]["messages"]].count("assistant") == 1
        assert [len(room.thoughts(number)) for number in range(begun, begun + 3)] == [0, 1, 2]


def _is_cut(body: JSONObject) -> bool:
    """Whether something of the past is in a summary, and the rest as it was said."""
    return "<context-summary>" in str(body["messages"][1]) and len(body["messages"]) > 2


# ── failures ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def said(message: str, code: JSON = None, **fields: JSON) -> JSONObject:
    return {"error": {"message": message, "code": code, **fields}}


def raw(text: str) -> JSONObject:
    return {"raw": text, "provider_name": "Anthropic"}


ROUTER: list[tuple[int | None, JSONObject, FailureKind]] = [
    (400, said("Provider returned error", 400, metadata=raw("prompt is too long: 208310 tokens > 200000")), "context"),
    (400, said("This endpoint's maximum context length is 8192 tokens. However, you requested", 400), "context"),
    (400, said("Provider returned error", 400, metadata=raw("Invalid `signature` in `thinking` block")), "invalid"),
    (401, said("No auth credentials found", 401), "auth"),
    (401, said("User not found.", 401), "auth"),
    (402, said("Insufficient credits. Add more using https://openrouter.ai/settings/credits", 402), "quota"),
    (402, said("This request requires more credits, or fewer max_tokens.", 402), "quota"),
    (403, said('Your chosen model requires moderation and your input was flagged for "x".', 403), "invalid"),
    (403, said("Key limit exceeded (monthly limit).", 403), "quota"),
    (403, said("This key is disabled", 403), "auth"),
    (404, said("No endpoints found for anthropic/nothing.", 404), "invalid"),
    (408, said("Request timed out", 408), "transient"),
    (429, said("Provider returned error", 429, metadata=raw("temporarily rate-limited upstream")), "rate"),
    (429, said("Rate limit exceeded: free-models-per-day. Add 10 credits to unlock more", 429), "quota"),
    (502, said("Provider returned error", 502, metadata=raw("upstream connect error")), "transient"),
    (503, said("No instances available", 503), "transient"),
    (None, said("Insufficient credits", 402), "quota"),
    (None, said("Provider returned error", 502), "transient"),
    (None, said("Rate limit exceeded", 429), "rate"),
    (None, said("Provider disconnected unexpectedly", "server_error"), "transient"),
]
GATEWAY: list[tuple[int | None, JSONObject, FailureKind]] = [
    (401, said("Invalid API key", type="authentication_error"), "auth"),
    (400, said("Invalid input", type="invalid_request_error"), "invalid"),
    (402, said("Insufficient funds. Please add credits", type="insufficient_funds"), "quota"),
    (403, said("A valid credit card is required", type="customer_verification_required"), "quota"),
    (403, said("Denied by a routing rule", type="forbidden", param={"ruleId": "r"}), "invalid"),
    (404, said("Model 'a/b' not found", type="model_not_found", param={"modelId": "a/b"}), "invalid"),
    (424, said("No provider can serve this", type="failed_dependency"), "invalid"),
    (429, said("Rate limit exceeded", type="rate_limit_exceeded"), "rate"),
    (500, said("Internal server error", type="internal_server_error"), "transient"),
    (429, said("Insufficient balance or no resource package. Please recharge.", type="AI_APICallError"), "quota"),
    (None, said("Overloaded", type="internal_server_error"), "transient"),
]


@pytest.mark.parametrize(
    ("name", "status", "body", "kind"),
    [
        *(pytest.param("openrouter", *each, id=f"openrouter {each[1]['error']['message']}") for each in ROUTER),
        *(pytest.param("vercel", *each, id=f"vercel {each[1]['error']['message']}") for each in GATEWAY),
    ],
)
def test_what_a_gateways_refusal_means(name: str, status: int | None, body: JSONObject, kind: FailureKind) -> None:
    """Guarantees 11.11, 15.1: also inside a body of status 200, and as an event of a stream."""
    table = with_provider_rules(openai.TABLE, cc.provider(f"{name}:x", window=9_000))
    assert map_error(name, table, body, status=status).kind == kind


@pytest.mark.parametrize("form", ["whole", "event", "comments", "choice", "whole choice"])
def test_an_error_in_an_answer_of_status_200_is_an_error(form: str) -> None:
    """Guarantee 11.11: a body, or the last event of a stream, beside a choice that ended with `error`, or in that
    choice.
    """
    problem: JSONObject = said("Provider returned error", 502, metadata=raw("upstream connect error"))
    broken: JSONObject = {**problem, "choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": "error"}]}
    inside: JSONObject = {"choices": [{**broken["choices"][0], **problem}]}
    sent = {
        "whole": encode(problem),
        "event": _line(broken),
        "comments": PROCESSING * 3 + _line(broken),
        "choice": _line({"choices": [{"index": 0, "delta": {"content": "Hal"}}]}) + _line(inside),
        "whole choice": encode(inside),
    }[form]
    kind = "application/json" if form.startswith("whole") else "text/event-stream"

    async def call() -> list[JSONObject]:
        async with loopback(Answer((sent,), headers=(("content-type", kind),))) as server:
            there = cc.provider(f"openrouter:{CLAUDE}", url=server.url, key=VARIABLE)
            async with endpoint(there) as line:
                return [event async for event in line.stream(ProviderCall(provider=there, body=b'{"stream":true}'))]

    with pytest.raises(ProviderFailed, match="upstream connect error") as failed:
        asyncio.run(call())
    assert (failed.value.kind, failed.value.status) == ("transient", 502)


def _line(event: JSONObject) -> bytes:
    return b"data: " + encode(event) + b"\n\n"


def test_a_failed_choice_is_not_a_reply() -> None:
    """Guarantee 2.1: a gateway may say of the one choice that it failed. Where it gives no error, it did not."""
    choice: JSONObject = {"index": 0, "message": {"role": "assistant", "content": "Hal"}, "finish_reason": "error"}
    formatter = cc.OpenAIFormatter(provider="openrouter")
    assert formatter.decode_reply({"choices": [choice]}).status == "sent"
    choice |= {"error": {"code": 502, "message": "Upstream went away"}}
    message = formatter.decode_reply({"choices": [choice]})
    assert (message.status, message.finish, message.text) == ("error", "error", "Hal")
    assert message.error == "Upstream went away"
    whole: list[JSONObject] = [{"choices": [choice]}]
    streamed: list[JSONObject] = [
        {"choices": [{**choice, "delta": {}}]},
        {"choices": [], "usage": {"prompt_tokens": 1}},
    ]
    for events in (whole, streamed):
        reader = formatter.create_reader()
        for event in events:
            reader.read(event)
        assert not reader.finished
        assert reader.error is not None


@pytest.mark.parametrize(
    "fault", [faults.error_inside(0), faults.overloaded(), faults.unavailable(), faults.rate(0.01)]
)
def test_a_turn_survives_what_passes(store: cc.Store, fault: faults.Fault) -> None:
    """Guarantee 11.11."""
    with FakeVendors(looks, faults=faults.listed(fault)) as standin:
        room = Room(standin, store)
        events = room.say(room.agent(), "a ball")
        assert refused(standin) == []
    assert [type(each) for each in events].count(RetryScheduled) == 1
    assert isinstance(events[-1], TurnFinish)
    assert events[-1].finish == "stop"
