"""Beta flags and other headers of requests: sent where they are allowed, named in manifests, never stored by value."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

import contextc as cc
from contextc._json import JSONObject, decode
from contextc.compiler import NativeContext
from contextc.compiler.manifest import RequestRecord
from contextc.errors import InvalidInput, InvalidSetting, ProviderFailed
from contextc.events import RetryScheduled
from contextc.providers.client import ProviderCall
from contextc.providers.http_client import HTTPEndpoint
from contextc.providers.snippets import as_curl, as_python
from tests.executor.scripted_provider import SONNET, Line, Scripted, fails, run_turn, says
from tests.fake_vendors import KEY, FakeVendors, Reply
from tests.fake_vendors import Scripted as Replies

INLINE, EFFORT = "inline-tools-2026-09-15", "mid-conversation-output-config-2026-07-01"
SECRET = "Bearer sk-ant-REDACTED"
OPUS = "anthropic:claude-opus-5-5"


COMPACTED: list[JSONObject] = [
    {"type": "message_start", "message": {"id": "m", "type": "message", "role": "assistant", "content": []}},
    {
        "type": "content_block_start",
        "index": 0,
        "content_block": {"type": "compaction", "content": "They talked.", "signature": "c2lnbmVk"},
    },
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "compaction"}, "usage": {"output_tokens": 9}},
    {"type": "message_stop"},
]
"""The reply to a request for a compaction."""


def refusal_of(flag: str) -> ProviderFailed:
    return fails("invalid", f"Unexpected value(s) `{flag}` for the `anthropic-beta` header")


class Listening(Scripted):
    """A client that keeps the headers of its calls."""

    def __init__(self, *script: Line) -> None:
        super().__init__(*script)
        self.headers: list[dict[str, str]] = []

    async def stream(self, call: ProviderCall) -> AsyncGenerator[JSONObject, None]:
        self.headers.append(dict(call.headers))
        async for event in super().stream(call):
            yield event


def test_flags_and_headers_reach_the_vendor_and_the_manifest_names_the_flags(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Guarantee 23.1: the vendor's own SDK sends them. Values of headers are neither stored nor logged nor printed."""
    monkeypatch.setenv("TEST_KEY", KEY)
    caplog.set_level(logging.DEBUG, logger="contextc")
    file = tmp_path / "chat.db"
    with FakeVendors(Replies([Reply(text="Hello.")])) as standin, cc.open_store(file) as store:
        provider = cc.provider(OPUS, url=standin.url("anthropic"), key="TEST_KEY", betas=[INLINE])
        agent = cc.Agent(provider, store=store, betas=[EFFORT], headers={"x-team": SECRET})
        result = agent.run_sync("Hi!", conversation="demo")
        (record,) = standin.records
        assert record.headers["anthropic-beta"] == f"{INLINE},{EFFORT}"
        assert record.headers["x-team"] == SECRET
        assert result.manifest.record.betas == (INLINE, EFFORT)
        assert f"beta flags: {INLINE}, {EFFORT}" in str(result.manifest)
        assert SECRET not in repr(agent) + repr(agent.executor.provider) + caplog.text
    assert SECRET.encode() not in b"".join([each.read_bytes() for each in tmp_path.iterdir()])


def test_a_request_for_a_client_of_ones_own_says_its_headers() -> None:
    store = cc.open_store("memory:")
    store.append("demo", cc.user("hi"))
    compiled = cc.MessageCompiler(store, cc.provider(OPUS, betas=[INLINE], headers={"x-team": "search"})).compile(
        "demo"
    )
    assert compiled.headers == {"anthropic-beta": INLINE, "x-team": "search"}
    assert cc.MessageCompiler(store, OPUS).compile("demo").headers == {}
    body, provider = compiled.body, cc.provider(OPUS)
    assert f"-H 'anthropic-beta: {INLINE}'" in as_curl(provider, provider.formatter, body, betas=(INLINE,)).replace(
        '"', "'"
    )
    python = as_python(provider, provider.formatter, body, betas=(INLINE,))
    assert "extra_headers=" in python
    assert INLINE in python
    assert "extra_headers" not in as_python(provider, provider.formatter, body)


def test_a_snippet_has_no_values_of_other_headers() -> None:
    """They may be credentials of a gateway."""
    provider = cc.provider(OPUS, headers={"x-gateway": SECRET})
    for make in (as_curl, as_python):
        text = make(provider, provider.formatter, b'{"messages": []}', betas=(INLINE,))
        assert INLINE in text
        assert SECRET not in text


def test_a_request_says_which_call_of_the_sdk_takes_it() -> None:
    """Only the beta namespace of Anthropic's SDK has arguments for beta features."""
    store = cc.open_store("memory:")
    store.append("demo", cc.user("hi"))
    calls = [
        cc.MessageCompiler(store, provider).compile("demo").sdk_call
        for provider in (cc.provider(OPUS), cc.provider(OPUS, betas=[INLINE]), cc.provider("openai:gpt-6-astra"))
    ]
    assert calls == ["client.messages.create", "client.beta.messages.create", "client.responses.create"]
    provider = cc.provider(OPUS)
    python = as_python(provider, provider.formatter, b'{"messages": []}', betas=(INLINE,))
    assert "answer = client.beta.messages.create(" in python


def test_a_header_of_the_agent_replaces_that_of_the_provider() -> None:
    """Names of headers have no case: with both, a server would choose."""
    agent = cc.Agent(cc.provider(OPUS, headers={"X-Team": "search"}), headers={"x-team": "mail"})
    assert agent.executor.provider.headers == (("x-team", "mail"),)


def test_an_error_does_not_repeat_a_header(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guarantee 23.1: errors are stored as events, and a gateway may quote what it refuses."""
    monkeypatch.setenv("TEST_KEY", KEY)
    provider = cc.provider("anthropic:claude-opus-5-5", key="TEST_KEY", headers={"x-gateway": "open sesame please"})
    client = cc.endpoint(provider)
    assert isinstance(client, HTTPEndpoint)
    failure = client._refused({"error": {"message": "no such login: open sesame please"}}, 403, {})  # pyright: ignore[reportPrivateUsage]
    assert "sesame" not in str(failure)


def test_flags_of_one_vendor_are_not_sent_to_another() -> None:
    """The fallback of an agent may be a model that takes no flags at all."""
    agent = cc.Agent([OPUS, "anthropic:claude-sonnet-5", "openai:gpt-6-astra", "gemini-3-pro-preview"], betas=[INLINE])
    config = agent.executor.config
    assert [each.provider.betas for each in (config, *config.fallbacks)] == [(INLINE,), (INLINE,), (), ()]


@pytest.mark.parametrize(
    "name",
    ["betas", "anthropic_beta", "extra_headers", "OpenAI-Beta", "anthropic-version", "x-api-key", "Authorization"],
)
def test_a_setting_that_belongs_into_a_header_is_refused_in_the_body(name: str) -> None:
    """Guarantee 23.1: vendors ignore or refuse it there."""
    store = cc.open_store("memory:")
    store.append("demo", cc.user("hi"))
    compiler = cc.MessageCompiler(store, OPUS)
    with pytest.raises(
        InvalidInput, match=rf"{name} belongs to the call.* Pass (betas=\[…\]|headers=\{{…\}}) to cc.provi"
    ):
        compiler.compile("demo", settings={name: ["x"]})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"betas": "inline"}, "betas: must be a list of flags"),
        ({"headers": {"x team": "a"}}, "headers must be a dict of names and texts of one line"),
        ({"headers": {"x-team": "a\r\nx-other: b"}}, "headers must be a dict of names and texts of one line"),
        ({"headers": ["x-team"]}, "headers must be a dict of names and texts of one line"),
        ({"headers": {"Anthropic-Beta": "a"}}, "Anthropic-Beta is written from betas"),
    ],
    ids=str,
)
def test_flags_and_headers_that_cannot_work_are_refused(given: dict[str, Any], said: str) -> None:
    """At the start, with values kept out of the error."""
    with pytest.raises(InvalidSetting, match=said):
        cc.provider(OPUS, **given)
    with pytest.raises(InvalidSetting, match=said):
        cc.Agent(OPUS, **given)
    with pytest.raises(InvalidSetting, match="betas: no header for beta flags of ollama is known"):
        cc.provider("ollama:llama3.2", betas=["x"])
    with pytest.raises(InvalidSetting, match="headers: codex sends none"):
        cc.provider("codex", headers={"x-team": "search"})


def test_a_flag_that_the_vendor_refuses_is_not_sent_again() -> None:
    """Guarantee 23.1: the turn goes on without it, with an event, and later turns do not ask again."""
    line = Listening(says("one"), refusal_of(INLINE), says("two"), says("three"))
    store = cc.open_store("memory:")
    executor = cc.AgentExecutor(store, SONNET, endpoint=line, betas=[INLINE, EFFORT], triggers=())
    run_turn(executor, "first")
    events = run_turn(executor, "second")
    run_turn(executor, "third")
    sent = [each.get("anthropic-beta") for each in line.headers]
    assert sent == [f"{INLINE},{EFFORT}", f"{INLINE},{EFFORT}", EFFORT, EFFORT]
    (retry,) = [event for event in events if isinstance(event, RetryScheduled)]
    assert INLINE in retry.error
    assert retry.dropped_betas == (INLINE,)
    assert [message.text for message in store.load("demo")] == ["first", "one", "second", "two", "third", "three"]
    assert executor.explain("demo").record.betas == (EFFORT,)


def test_a_flag_that_contextc_sends_by_itself_can_be_refused() -> None:
    """Guarantee 23.1: the request goes on without that part of the provider's context management, and says so."""
    flag = "context-management-2025-06-27"
    line = Listening(refusal_of(flag), says("one"), says("two"))
    native = NativeContext(compact_at=150_000, clear_results_at=100_000)
    compiler = cc.CompilerOptions(native=native)
    executor = cc.AgentExecutor(
        cc.open_store("memory:"), OPUS, endpoint=line, betas=[EFFORT], compiler=compiler, triggers=()
    )
    events = run_turn(executor, "first")
    run_turn(executor, "second")
    sent = [each.get("anthropic-beta", "").split(",") for each in line.headers]
    compaction = ["compact-2026-01-12", EFFORT]
    assert sent == [["compact-2026-01-12", flag, EFFORT], compaction, compaction]
    edits = [[edit["type"] for edit in each["context_management"]["edits"]] for each in line.requests]
    assert edits == [["clear_tool_uses_20250919", "compact_20260112"], ["compact_20260112"], ["compact_20260112"]]
    assert [event.dropped_betas for event in events if isinstance(event, RetryScheduled)] == [(flag,)]
    assert f"{OPUS} does not have: clear_results_at" in executor.explain("demo").record.remarks


def test_other_agents_do_not_send_a_refused_flag_to_the_same_endpoint() -> None:
    """Guarantee 23.1. A program may make an agent for each request."""
    line, store = Listening(refusal_of(INLINE), says("one"), says("two")), cc.open_store("memory:")
    for name in ("ann", "bob"):
        executor = cc.AgentExecutor(store, OPUS, endpoint=line, betas=[INLINE], triggers=(), name=name)
        run_turn(executor, "Hi!")
    assert [each.get("anthropic-beta") for each in line.headers] == [INLINE, None, None]
    other = Listening(says("three"))
    run_turn(cc.AgentExecutor(store, OPUS, endpoint=other, betas=[INLINE], triggers=()), "Hi!")
    assert other.headers == [{"anthropic-beta": INLINE}]


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("in_turn", [True, False])
def test_a_summary_is_written_without_a_refused_flag(native: bool, in_turn: bool) -> None:
    """Guarantee 23.1. Otherwise a digest would take its place, each time."""
    summary = COMPACTED if native else says("They talked.")
    script = [refusal_of(INLINE), says("Hello.")] if in_turn else [says("Hello."), refusal_of(INLINE)]
    line, store = Listening(*script, *[summary] * 3), cc.open_store("memory:")
    for number in range(10):
        store.append("demo", cc.user(f"question {number} " + "word " * 200))
        store.append("demo", cc.assistant(f"answer {number} " + "word " * 200))
    small = cc.provider(OPUS, window=16_000, output=2_000)
    executor = cc.AgentExecutor(store, small, endpoint=line, betas=[INLINE], triggers=())
    run_turn(executor, "first")
    done = asyncio.run(executor.compact("demo", native=native))
    assert done is not None
    assert "They talked." in done.text
    sent = [INLINE in each.get("anthropic-beta", "") for each in line.headers]
    assert sent == ([True, False, False] if in_turn else [True, True, False])


def test_flags_of_bedrock_are_sent_in_the_body(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Converse has no header for them. Flags among the settings of the caller are kept."""
    monkeypatch.setenv("TEST_KEY", KEY)
    monkeypatch.setenv("HOME", str(tmp_path))
    thinking = {"type": "enabled", "budget_tokens": 1024}
    settings = {"additionalModelRequestFields": {"thinking": thinking, "anthropic_beta": ["own-2026-01-01"]}}
    with FakeVendors(Replies([Reply(text="Hello.")])) as standin:
        url = standin.url("bedrock")
        provider = cc.provider("bedrock:us.anthropic.claude-opus-4-5", url=url, key="TEST_KEY", betas=[INLINE])
        result = cc.Agent(provider, settings=settings).run_sync("Hi!")
        (record,) = standin.records
        assert standin.refused == []
        assert decode(record.raw)["additionalModelRequestFields"] == {
            "thinking": thinking,
            "anthropic_beta": ["own-2026-01-01", INLINE],
        }
        assert "anthropic-beta" not in record.headers
        assert result.manifest.record.betas == (INLINE,)
    python = as_python(provider, provider.formatter, b'{"messages": []}', betas=(INLINE,))
    assert "extra_headers" not in python


def test_a_flag_that_bedrock_refuses_is_not_sent_again() -> None:
    """It names the flag in the text of its error, as other vendors do."""
    answer: list[JSONObject] = [
        {"messageStart": {"role": "assistant"}},
        {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"text": "Yes."}}},
        {"contentBlockStop": {"contentBlockIndex": 0}},
        {"messageStop": {"stopReason": "end_turn"}},
    ]
    line = Scripted(fails("invalid", f"invalid beta flag: {INLINE}"), answer, answer)
    provider = cc.provider("bedrock:us.anthropic.claude-opus-4-5", betas=[INLINE, EFFORT])
    executor = cc.AgentExecutor(cc.open_store("memory:"), provider, endpoint=line, triggers=())
    run_turn(executor, "first")
    run_turn(executor, "second")
    sent = [each["additionalModelRequestFields"]["anthropic_beta"] for each in line.requests]
    assert sent == [[INLINE, EFFORT], [EFFORT], [EFFORT]]


def test_a_flag_that_appended_tools_need_can_be_refused_later() -> None:
    """Guarantee 23.1: then the tools go into the head of a new epoch. Otherwise the flag would be sent forever."""

    def read() -> str:
        """Read."""
        return "nothing"

    def write() -> str:
        """Write."""
        return "done"

    line, store = Listening(says("one"), says("two"), refusal_of(INLINE), says("three")), cc.open_store("memory:")
    records: list[RequestRecord] = []
    for index, tools in enumerate(([read], [read, write], [read, write])):
        executor = cc.AgentExecutor(store, OPUS, endpoint=line, betas=[INLINE], tools=tools, triggers=())
        run_turn(executor, f"question {index}")
        records.append(executor.explain("demo").record)
    assert [each.get("anthropic-beta") for each in line.headers] == [INLINE, INLINE, INLINE, None]
    assert [each.features for each in records] == [(), ("inline_tools",), ()]
    assert records[-1].why == "tools changed"


def test_another_refusal_ends_the_turn_as_before() -> None:
    line = Listening(fails("invalid", "messages: must not be empty"))
    executor = cc.AgentExecutor(cc.open_store("memory:"), SONNET, endpoint=line, betas=[INLINE], triggers=())
    with pytest.raises(cc.errors.ProviderFailed, match="must not be empty"):
        run_turn(executor, "first")
    assert len(line.headers) == 1


def test_a_request_for_a_summary_has_the_flags_of_its_conversation() -> None:
    """Otherwise it would be another prefix, and a block that needs a flag would be refused."""
    line, store = Listening(says("Hello."), *[says("They talked.")] * 3), cc.open_store("memory:")
    for number in range(10):
        store.append("demo", cc.user(f"question {number} " + "word " * 200))
        store.append("demo", cc.assistant(f"answer {number} " + "word " * 200))
    small = cc.provider(SONNET, window=16_000, output=2_000)
    executor = cc.AgentExecutor(store, small, endpoint=line, betas=[INLINE], triggers=())
    run_turn(executor, "first")
    assert asyncio.run(executor.compact("demo")) is not None
    assert len(line.headers) >= 2
    assert {each["anthropic-beta"] for each in line.headers} == {INLINE}
