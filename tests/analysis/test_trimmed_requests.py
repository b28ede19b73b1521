"""Requests that the compiler or the proxy trimmed to fit: the cause of the miss is the trim, with its own fix."""

from typing import Any

import pytest

import contextc as cc
from contextc._json import decode, encode
from contextc.analysis import Finding
from contextc.compiler.manifest import ProxyAction
from contextc.observation import observe
from contextc.proxy.request_lint import fit_request
from tests.analysis.observed_run import find_by_request, words
from tests.analysis.traces.simulated_cache import SimulatedCache

PROVIDERS = {
    "anthropic": "anthropic:claude-sonnet-4-5",
    "chat": "openai-chat:gpt-4.1",
    "responses": "openai:gpt-5.4",
    "gemini": "gemini:gemini-2.5-pro",
    "bedrock": "bedrock:us.anthropic.claude-sonnet-4-5-20250929-v1:0",
}
READ = cc.Tool(name="read", description=words(300, "t"), parameters={"type": "object", "properties": {}})
START = 1_790_000_000_000
SYSTEM = words(3_000, "s")


def converse(wire: str, count: int, **options: Any) -> tuple[cc.Store, list[int]]:
    """Let a compiler with a small window send requests to a simulated cache. Return the numbers of trimmed ones."""
    store, cache = cc.open_store("memory:"), SimulatedCache(wire)
    given = cc.provider(PROVIDERS[wire], window=16_000, output=500)
    compiler = cc.MessageCompiler(store, given, **options)
    trimmed: list[int] = []
    for number in range(1, count + 1):
        if number % 2:
            store.append("c", cc.user(f"Question {number}: {words(1_400, f'q{number}')}"))
        else:
            store.append("c", cc.tool_result(f"call{number - 1}", "read", words(2_000, f"r{number}")))
        compiled = compiler.compile("c", instructions=SYSTEM, tools=[READ])
        if compiled.manifest.why == "over budget":
            trimmed.append(number)
        use = cache.send(compiled.params, given.model_id, number * 10_000, number * 10_000 + 1_000)
        usage = cc.Usage(input=use.total, output=10, cache_read=use.read, cache_write=use.written)
        call = cc.ToolCall(id=f"call{number}", name="read", arguments={"path": f"{number}.py"})
        reply = cc.assistant(tool_calls=[call]) if number % 2 else cc.assistant(f"Answer {number}.")
        compiler.commit(compiled, reply, usage=usage)
    return store, trimmed


def misses(store: cc.Store, name: str = "c") -> list[Finding]:
    return [
        each
        for each in find_by_request(store, name)
        if each.code.startswith("CAC") and each.cause not in ("first_request", "below_minimum")
    ]


@pytest.mark.parametrize("wire", list(PROVIDERS))
def test_a_trim_of_the_compiler_is_named(wire: str) -> None:
    store, trimmed = converse(wire, 24)
    assert len(trimmed) >= 2
    found = misses(store)
    assert [(each.request, each.cause) for each in found] == [(number, "trimmed") for number in trimmed]
    for each in found:
        assert each.title.startswith("The context was trimmed to fit: ")
        assert "lower `low`" in each.fix
        assert each.tokens > 1_000
    assert any(" messages were left out" in each.title for each in found)


def test_a_trim_with_every_request_is_named_each_time() -> None:
    store, trimmed = converse("anthropic", 24, strategy="oldest")
    found = misses(store)
    assert len(trimmed) > 5
    assert {each.cause for each in found} == {"trimmed"}
    assert {each.request for each in found} <= set(trimmed)
    assert all('strategy "chunked"' in each.fix for each in found)


def test_an_edit_is_no_trim() -> None:
    """The context was trimmed before. Now the user edits a message: this request is not over its budget."""
    store, trimmed = converse("anthropic", 18)
    compiler = cc.MessageCompiler(store, cc.provider(PROVIDERS["anthropic"], window=16_000, output=500))
    question = [each for each in store.load("c") if each.role == "user"][-2]
    store.edit("c", question.id, cc.user("Another question."))
    compiled = compiler.compile("c", instructions=SYSTEM, tools=[READ])
    assert compiled.manifest.why not in ("", "over budget")
    compiler.commit(compiled, cc.assistant("Yes."), usage=cc.Usage(input=compiled.estimated_input, output=5))
    assert {each.request for each in misses(store) if each.cause == "trimmed"} == set(trimmed)


ADDRESS = "https://api.openai.com/v1/chat/completions"


class FittedClient:
    """A client whose requests pass a proxy with `--fit`, to a model with a window of 8,192 tokens."""

    def __init__(self) -> None:
        self.store, self.cache = cc.open_store("memory:"), SimulatedCache("chat")
        self.messages: list[dict[str, Any]] = [{"role": "system", "content": words(2_400, "s")}]
        self.number = 0

    def send(self, question: str) -> None:
        self.number += 1
        self.messages.append({"role": "user", "content": question})
        sent, actions = encode({"model": "gpt-4", "messages": self.messages}), list[ProxyAction]()
        if (changed := fit_request(sent, "openai_chat", ADDRESS)) is not None:
            sent, actions = changed.body, [changed.action]
        time = START + 10_000 * self.number
        use = self.cache.send(decode(sent), "gpt-4", time, time + 500)
        answer = {"role": "assistant", "content": f"Answer {self.number}."}
        reply = {
            "id": "r", "object": "chat.completion", "model": "gpt-4",
            "choices": [{"index": 0, "message": answer, "finish_reason": "stop"}],
            "usage": {
                "prompt_tokens": use.total, "completion_tokens": 4, "total_tokens": use.total + 4,
                "prompt_tokens_details": {"cached_tokens": use.read},
            },
        }  # fmt: skip
        observe(
            self.store, request=sent, reply=reply, format="openai_chat", conversation="c", time=time, ended=time + 900,
            url=ADDRESS, actions=actions,
        )  # fmt: skip
        self.messages.append(answer)


def test_a_trim_of_the_proxy_is_named() -> None:
    client = FittedClient()
    for number in range(14):
        client.send(f"Question {number}: {words(1_000, f'q{number}')}")
    found = misses(client.store)
    assert found
    for each in found:
        assert each.cause == "trimmed"
        assert each.title.startswith("The context was trimmed to fit by `contextc proxy --fit`: ")
        assert "messages were left out" in each.title
        assert each.fix.startswith("Let the client compact its history")


def test_a_change_of_the_client_in_a_fitted_request_is_its_own() -> None:
    client = FittedClient()
    for number in range(9):
        client.send(f"Question {number}: {words(1_000, f'q{number}')}")
    before = len(misses(client.store))
    client.messages[-4]["content"] = "[redacted] " + client.messages[-4]["content"]
    client.send("One more.")
    *_, last = misses(client.store)
    assert len(misses(client.store)) == before + 1
    assert (last.cause, last.request) == ("message_changed", 10)
