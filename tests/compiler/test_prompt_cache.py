"""The option `cache`: what a request asks of the provider's prompt cache, and what it gets from caches that follow the
vendors' rules.
"""

import asyncio
from itertools import pairwise
from typing import Any, cast, get_args

import pytest

import contextc as cc
from contextc._json import JSONObject, decode, encode
from contextc.compiler.prompt_cache import MINUTES, CacheLifetime
from contextc.errors import InvalidSetting
from contextc.formats import formatter
from contextc.providers import ProviderCall, endpoint
from contextc.tools import NativeTool
from tests.conftest import some
from tests.fake_vendors import KEY, FakeVendors
from tests.fake_vendors.replies import Reply
from tests.fake_vendors.responses import RequestHead
from tests.formats.known import problems

LONG = "Be careful with this project, and follow its rules. " * 800
VARIABLE = "CONTEXTC_STANDIN_KEY"
CLAUDE, BEDROCK = "anthropic:claude-opus-5-5", "bedrock:us.anthropic.claude-opus-5-5"
RESPONSES, CHAT = "openai:gpt-6-sol", "openai-chat:gpt-6-sol"
LIFETIMES = [
    *((CLAUDE, ttl) for ttl in ("5m", "1h")),
    *((BEDROCK, ttl) for ttl in ("5m", "1h")),
    ("bedrock:us.amazon.nova-pro-v1:0", "5m"),
    *((RESPONSES, ttl) for ttl in ("30m", "12h")),
    (CHAT, "30m"),
    *(("openrouter:anthropic/claude-opus-5.5", ttl) for ttl in ("5m", "1h")),
]


def talk(model: str | cc.Provider, count: int = 3, *, store: cc.Store | None = None, **options: Any) -> cc.Compiled:
    """Return the last of some requests of a conversation. Each of them can be rebuilt from the store."""
    compiler = cc.MessageCompiler(store or cc.open_store("memory:"), model, **options)
    compiled = None
    for number in range(count):
        compiler.store.append("demo", cc.user(f"Question {number}. " * 40))
        compiled = compiler.compile("demo", instructions=LONG)
        compiler.begin(compiled)
        compiler.commit(compiled, cc.assistant(f"Answer {number}."))
        assert compiler.rebuild("demo") == compiled.body
    assert compiled is not None
    return compiled


def marks_of(value: object) -> list[JSONObject]:
    """Return all cache breakpoints in a body, in the order of the text."""
    if isinstance(value, list):
        return [mark for each in cast(list[object], value) for mark in marks_of(each)]
    if not isinstance(value, dict):
        return []
    found: list[JSONObject] = []
    for name, each in cast(JSONObject, value).items():
        is_mark = name in ("cache_control", "cachePoint", "prompt_cache_breakpoint")
        found += [each] if is_mark else marks_of(each)
    return found


@pytest.mark.parametrize(("model", "ttl"), LIFETIMES)
def test_each_lifetime_is_asked_for_as_the_vendor_takes_it(model: str, ttl: str) -> None:
    """Guarantee 23.2: a field that the vendor does not have is refused. The types are those of the vendors' SDKs."""
    compiled = talk(model, cache=ttl)
    body = decode(compiled.body)
    marks = marks_of(body)
    assert 2 <= len(marks) <= 4
    if compiled.provider.name.startswith("openai"):
        assert body["prompt_cache_options"] == {"ttl": ttl}
        assert marks == [{"mode": "explicit"}] * len(marks)
    else:
        assert {mark["ttl"] for mark in marks} == {ttl}
    assert cc.lint(body, format=compiled.formatter.name) == []
    if compiled.formatter.name != "openai_chat" or compiled.provider.name == "openai-chat":
        assert problems(compiled.formatter.name, body) == []


@pytest.mark.parametrize("model", [CLAUDE, BEDROCK, "openrouter:anthropic/claude-opus-5.5"])
def test_auto_is_the_default_lifetime_of_the_provider(model: str) -> None:
    """Requests stay as they were before there was a choice."""
    body = decode(talk(model, cache="auto").body)
    assert talk(model).body == talk(model, cache="auto").body
    marks = marks_of(body)
    assert len(marks) == 3
    assert not any("ttl" in mark for mark in marks)


@pytest.mark.parametrize("model", [CLAUDE, BEDROCK, RESPONSES, CHAT, "mistral:mistral-large-latest", "xai:grok-4"])
def test_off_asks_for_nothing(model: str) -> None:
    """No breakpoints, no key, no header: nothing that costs more than plain input, or that links requests."""
    compiled = talk(model, cache="off")
    assert b"cache" not in compiled.body.lower()
    assert compiled.headers == {}


def test_breakpoints_stand_at_the_end_of_the_head_and_of_the_messages() -> None:
    """Guarantee 10.4: in Chat Completions the system prompt has one, too. `instructions` of Responses can have none."""
    chat = decode(talk(CHAT, cache="30m").body)["messages"]
    assert [index for index, message in enumerate(chat) if marks_of(message)] == [0, 3, 5]
    responses = decode(talk(RESPONSES, cache="30m").body)
    assert [index for index, item in enumerate(responses["input"]) if marks_of(item)] == [2, 4]
    assert responses["instructions"] == LONG


def test_messages_are_the_same_with_and_without_breakpoints() -> None:
    """Guarantee 9.2: only the breakpoints move, so that the prefix stays the same."""
    for model, ttl in LIFETIMES:
        with_marks, without = talk(model, cache=ttl), talk(model, cache="off")
        form, key = with_marks.formatter, with_marks.formatter.messages_key
        assert form.without_cache_breakpoints(decode(with_marks.body)[key]) == decode(without.body)[key]


def test_a_result_that_is_a_plain_string_is_not_marked() -> None:
    """OpenAI marks the end of a request itself. A string in another form might be another prefix to it."""
    form = formatter("openai_responses")
    result: JSONObject = {"type": "function_call_output", "call_id": "a", "output": "1"}
    assert form.with_cache_breakpoint(result, "30m") is None
    listed = {**result, "output": [{"type": "input_text", "text": "1"}]}
    marked = form.with_cache_breakpoint(listed, "30m")
    assert marked is not None
    assert marked["output"][0]["prompt_cache_breakpoint"] == {"mode": "explicit"}
    assert form.without_cache_breakpoints([marked]) == [listed]
    for role in ("assistant", "user"):
        reply: JSONObject = {"role": role, "content": [{"type": "output_text", "text": "1"}]}
        assert form.with_cache_breakpoint(reply, "30m") is None


# ── the order of lifetimes ────────────────────────────────────────────────────────────────────────────────────────────


def web_search(ttl: str) -> NativeTool:
    mark: JSONObject = {"type": "ephemeral", **({"ttl": ttl} if ttl else {})}
    return NativeTool(
        provider="anthropic", data={"type": "web_search_20250305", "name": "web_search", "cache_control": mark}
    )


@pytest.mark.parametrize(("of_tool", "asked", "sent"), [("5m", "1h", "5m"), ("", "1h", "5m"), ("1h", "5m", "5m")])
def test_longer_lifetimes_stand_before_shorter_ones(of_tool: str, asked: CacheLifetime, sent: str) -> None:
    """Guarantee 23.2: any other order is refused. The caller's breakpoints stay; the manifest says what changed."""
    compiler = cc.MessageCompiler(cc.open_store("memory:"), CLAUDE, cache=asked)
    compiler.store.append("demo", cc.user("Look."))
    compiled = compiler.compile("demo", instructions=LONG, tools=[web_search(of_tool)])
    marks = marks_of({"tools": compiled.params["tools"], "system": compiled.params["system"]})
    assert [mark.get("ttl", "") for mark in marks] == [of_tool, sent]
    assert cc.lint(compiled.params, format="anthropic") == []
    assert bool(compiled.record.remarks) == (asked != sent)


@pytest.mark.parametrize("asked", ["auto", "5m", "1h"])
def test_an_automatic_breakpoint_of_the_caller_has_the_lifetime_of_all(asked: CacheLifetime) -> None:
    """The vendor sets it on the last block, where another lifetime is refused."""
    settings: JSONObject = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
    compiler = cc.MessageCompiler(cc.open_store("memory:"), CLAUDE, cache=asked)
    compiler.store.append("demo", cc.user("Look."))
    compiled = compiler.compile("demo", instructions=LONG, settings=settings)
    assert {mark["ttl"] for mark in marks_of(compiled.params)} == {"1h"}
    assert bool(compiled.record.remarks) == (asked == "5m")


@pytest.mark.parametrize(("of_tool", "asked"), [("1h", "5m"), ("5m", "1h"), ("1h", "auto")])
def test_a_tool_that_comes_later_has_no_breakpoint(of_tool: str, asked: CacheLifetime) -> None:
    """Guarantee 23.2: it stands after ours, where a longer lifetime is refused, and a fifth breakpoint would be."""
    claude = cc.provider(CLAUDE, betas=["inline-tools-2026-09-15"])
    compiler = cc.MessageCompiler(cc.open_store("memory:"), claude, cache=asked)
    mark: JSONObject = {"type": "ephemeral", "ttl": of_tool}
    look = cc.Tool(name="look", description="Look.")
    find = cc.Tool(name="find", description="Find.", extra={"anthropic": {"cache_control": mark}})
    changes: list[int] = []
    for number, tools in enumerate(([look], [look, find], [look, find])):
        compiler.store.append("demo", cc.user(f"Question {number}. " * 40))
        compiled = compiler.compile("demo", instructions=LONG, tools=tools)
        compiler.begin(compiled)
        compiler.commit(compiled, cc.assistant("Yes."))
        assert compiler.rebuild("demo") == compiled.body
        blocks = [block for message in compiled.params["messages"] for block in message["content"]]
        changes.append(len([block for block in blocks if block["type"] == "tool_addition"]))
        assert {found.get("ttl", "auto") for found in marks_of(compiled.params)} == {asked}
    assert changes == [0, 1, 1]


# ── what a provider does not have ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("model", "cache"), [(CLAUDE, "30m"), (BEDROCK, "12h"), (CHAT, "12h"), (RESPONSES, "1h")])
def test_a_lifetime_that_the_provider_does_not_have_is_an_error(model: str, cache: CacheLifetime) -> None:
    """Guarantee 23.2: the error says what it has, before anything is sent."""
    lifetimes = " or ".join(map(repr, cc.provider(model).cache_lifetimes))
    with pytest.raises(InvalidSetting, match=f"has no lifetime '{cache}'") as caught:
        cc.MessageCompiler(cc.open_store("memory:"), model, cache=cache)
    assert all(each in str(caught.value) for each in lifetimes.split(" or "))
    with pytest.raises(InvalidSetting, match="has no lifetime"):
        cc.Agent(model, cache=cache)


def test_an_implicit_cache_has_no_lifetime_to_ask_for() -> None:
    """The request is sent without one, and the manifest says so."""
    for model in ("mistral:mistral-large-latest", "openai:gpt-5", "gemini:gemini-2.5-pro", "xai:grok-4"):
        compiled = talk(model, cache="1h")
        assert marks_of(decode(compiled.body)) == []
        assert b"prompt_cache_options" not in compiled.body
        assert any("cache lifetime 1h is not asked for" in remark for remark in compiled.record.remarks)


def test_other_models_of_an_agent_get_the_next_longer_lifetime() -> None:
    """One option is for all models of an agent, and vendors have different lifetimes."""
    agent = cc.Agent([CLAUDE, RESPONSES, "gemini:gemini-2.5-pro"], cache="1h")
    configs = (agent.executor.config, *agent.executor.config.fallbacks)
    assert [each.compiler.options.cache for each in configs] == ["1h", "12h", "1h"]
    shorter = cc.Agent([RESPONSES, CLAUDE], cache="12h").executor.config.fallbacks[0]
    assert shorter.compiler.options.cache == "1h"


def test_the_option_of_an_agent_replaces_that_of_its_compiler() -> None:
    options = cc.CompilerOptions(cache="5m", keep_words=0.2)
    assert cc.Agent(CLAUDE, compiler=options).executor.compiler.options.cache == "5m"
    found = cc.Agent(CLAUDE, compiler=options, cache="1h").executor.compiler.options
    assert (found.cache, found.keep_words) == ("1h", 0.2)
    with pytest.raises(InvalidSetting, match="cache: expected one of 'auto', '5m'"):
        cc.Agent(CLAUDE, cache=cast(Any, "2h"))


def test_every_lifetime_has_a_length() -> None:
    assert {*get_args(CacheLifetime)} == {*MINUTES, "auto", "off"} - {""}
    for model, ttl in LIFETIMES:
        offered = cc.provider(model).cache_lifetimes
        assert ttl in offered
        assert all(MINUTES[one] < MINUTES[other] for one, other in pairwise(offered))


# ── keys ──────────────────────────────────────────────────────────────────────────────────────────────────────────────

KEYED = [RESPONSES, CHAT, "openai:gpt-4.1", "openai-session:gpt-6-sol", "mistral:mistral-large-latest"]


@pytest.mark.parametrize("model", KEYED)
def test_a_channel_has_one_key(model: str) -> None:
    """Guarantee 23.2: the vendor finds the entries of a conversation by it. Names in it would be seen by the vendor."""
    store = cc.open_store("memory:")
    keys = [decode(talk(model, 1, store=store).body)["prompt_cache_key"] for _ in range(3)]
    assert len({*keys}) == 1
    assert len(keys[0]) == 32
    compiler = cc.MessageCompiler(store, model)
    others = [compiler.compile("demo", name="other"), compiler.compile("demo", instructions=LONG)]
    assert [decode(each.body)["prompt_cache_key"] == keys[0] for each in others] == [False, True]
    store.append("elsewhere", cc.user("hi"))
    assert decode(compiler.compile("elsewhere").body)["prompt_cache_key"] != keys[0]
    assert cc.lint(decode(others[0].body), format=compiler.provider.formatter.name) == []


def test_a_fork_keeps_the_key_of_its_parent() -> None:
    """Guarantee 9.9a: another key would miss what the parent has in the cache."""
    store = cc.open_store("memory:")
    before = decode(talk(RESPONSES, store=store).body)
    store.fork("demo", "fork")
    store.append("fork", cc.user("And now?"))
    compiler = cc.MessageCompiler(store, RESPONSES)
    for _ in range(2):
        compiled = compiler.compile("fork", instructions=LONG)
        after = decode(compiled.body)
        assert after["prompt_cache_key"] == before["prompt_cache_key"]
        assert after["input"][: len(before["input"])] == before["input"]
        compiler.begin(compiled)
        compiler.commit(compiled, cc.assistant("Now."))
        store.append("fork", cc.user("And then?"))


def test_another_server_gets_a_key_only_if_a_lifetime_is_asked_for() -> None:
    """Servers with OpenAI's API may refuse fields that they do not know."""
    url = "http://127.0.0.1:9/v1"
    assert b"prompt_cache" not in talk(cc.provider(RESPONSES, url=url)).body
    assert b"prompt_cache_key" in talk(cc.provider(RESPONSES, url=url), cache="30m").body
    for model in ("azure:gpt-6-sol", "groq:gpt-6-sol", "deepseek:deepseek-v4-pro"):
        assert b"prompt_cache" not in talk(cc.provider(model, url=url), cache="30m").body


def test_the_callers_own_key_stays() -> None:
    compiler = cc.MessageCompiler(cc.open_store("memory:"), RESPONSES, cache="12h")
    compiler.store.append("demo", cc.user("hi"))
    own: JSONObject = {"prompt_cache_key": "mine", "prompt_cache_options": {"mode": "explicit"}}
    body = decode(compiler.compile("demo", settings=own).body)
    assert body["prompt_cache_key"] == "mine"
    assert body["prompt_cache_options"] == {"ttl": "12h", "mode": "explicit"}


def test_a_header_names_the_channel_where_the_vendor_has_one() -> None:
    """For callers with a client of their own, too."""
    for model, header in (("xai:grok-4", "x-grok-conv-id"), ("openrouter:openai/gpt-5", "x-session-id")):
        first, again = talk(model, 1), talk(model, 2)
        assert [*first.headers] == [header]
        assert first.headers == again.headers
        assert b"prompt_cache_key" not in first.body


# ── caches that follow the vendors' rules ─────────────────────────────────────────────────────────────────────────────


def day(model: str, gaps: list[int], **options: Any) -> tuple[list[float], list[cc.Usage]]:
    """Return the share of the input that the cache served, for requests with gaps of some minutes, and their usage."""
    time = [1_790_000_000.0]
    name = model.partition(":")[0]
    format = cc.provider(model).format
    compiler = cc.MessageCompiler(cc.open_store("memory:"), model, **options)
    shares, usages = list[float](), list[cc.Usage]()
    with FakeVendors(lambda ask: Reply("Yes."), clock=lambda: time[0]) as standin:
        sent = cc.provider(model, url=standin.url(format), key=VARIABLE)

        async def ask(compiled: cc.Compiled) -> cc.Message:
            reader = sent.formatter.create_reader()
            async with endpoint(sent) as line:
                async for event in line.stream(ProviderCall(provider=sent, body=compiled.body, stream=True)):
                    reader.read(event)
            return reader.message()

        for number, gap in enumerate([0, *gaps]):
            time[0] += gap * 60
            compiler.store.append("demo", cc.user(f"Question {number}. " * 40))
            settings = {**sent.settings, **sent.stream_settings}
            compiled = compiler.compile("demo", instructions=LONG, settings=settings, max_output_tokens=1_000)
            compiler.begin(compiled)
            reply = asyncio.run(ask(compiled))
            compiler.commit(compiled, reply)
            assert reply.usage is not None
            shares.append(reply.usage.cache_read / reply.usage.input)
            usages.append(reply.usage)
        assert standin.refused == [], name
    return shares, usages


@pytest.fixture(autouse=True)
def with_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, KEY)
    monkeypatch.setenv("AWS_REGION", "us-east-1")


@pytest.mark.parametrize("model", some([CLAUDE, BEDROCK], 1))
@pytest.mark.parametrize(
    ("cache", "hits"),
    [("auto", [True, False, False]), ("5m", [True, False, False]), ("1h", [True, True, False]), ("off", [False] * 3)],
)
def test_entries_live_as_long_as_was_asked_for(model: str, cache: str, hits: list[bool]) -> None:
    """Guarantee 23.2: after 3, 40 and 80 minutes. The vendor refuses more than four breakpoints, or another order."""
    shares, usages = day(model, [3, 40, 80], cache=cache)
    assert [share > 0.8 for share in shares] == [False, *hits]
    assert all(usage.cache_write_long == (usage.cache_write if cache == "1h" else 0) for usage in usages)


@pytest.mark.parametrize(
    ("model", "cache", "hits"),
    [
        (RESPONSES, "30m", [True, False, False]),
        (RESPONSES, "12h", [True, True, True]),
        (CHAT, "30m", [True] + [False] * 2),
    ],
)
def test_openai_keeps_entries_as_long_as_was_asked_for(model: str, cache: str, hits: list[bool]) -> None:
    """After 20, 60 and 600 minutes. The prefix is the same while breakpoints move through it."""
    shares, usages = day(model, [20, 60, 600], cache=cache)
    assert [share > 0.8 for share in shares] == [False, *hits]
    assert [usage.cache_write_long > 0 for usage in usages] == [cache == "12h"] * 4


@pytest.mark.parametrize(("format", "path"), [("openai_chat", "chat/completions"), ("openai_responses", "responses")])
def test_openai_refuses_keys_and_lifetimes_that_it_does_not_take(format: str, path: str) -> None:
    """A fake that took them would hide a request that the vendor refuses. The first error text is the vendor's own."""
    text: JSONObject = {"role": "user", "content": "hi"}
    body: JSONObject = {"model": "gpt-6-sol", formatter(format).messages_key: [text]}
    head = RequestHead(
        "POST", f"/v1/{path}", {}, {"authorization": f"Bearer {KEY}", "content-type": "application/json"}
    )
    standin = FakeVendors(lambda ask: Reply("Yes."))
    said = {
        "prompt_cache_key": ("a" * 65, "Expected a string with maximum length 64, but got a string with length 65"),
        "prompt_cache_options": ({"ttl": "1h"}, "Invalid value: '1h'. Supported values are: '30m'"),
    }
    for name, (value, error) in said.items():
        answer, _ = standin.desk.answer(head, encode({**body, name: value}))
        assert answer.status == 400
        assert error in b"".join([step for step in answer.steps if isinstance(step, bytes)]).decode()
    good = {**body, "prompt_cache_key": "a" * 64, "prompt_cache_options": {"ttl": "30m", "mode": "implicit"}}
    assert standin.desk.answer(head, encode(good))[0].status == 200


def test_vendors_refuse_what_they_do_not_have() -> None:
    """The fakes would otherwise hide a request that the vendor refuses."""
    mark = {"type": "ephemeral"}
    good = decode(talk(CLAUDE).body)
    wrong: list[JSONObject] = [
        {**good, "system": [{"type": "text", "text": "a", "cache_control": {**mark, "ttl": "30m"}}]},
        {**good, "system": [{"type": "text", "text": "a", "cache_control": {**mark, "ttl": "2h"}}]},
        {**good, "system": [{"type": "text", "text": f"{n}", "cache_control": mark} for n in range(5)]},
        {
            **good,
            "tools": [web_search("5m").data],
            "system": [{"type": "text", "text": "a", "cache_control": {**mark, "ttl": "1h"}}],
        },
    ]
    for body in (good, *wrong):
        found = [*cc.lint(body, format="anthropic"), *problems("anthropic", body)]
        assert bool(found) == (body is not good), body["system"]
