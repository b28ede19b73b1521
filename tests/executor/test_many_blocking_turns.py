"""Many blocking turns at once: none waits for a thread that only another turn can free."""

import asyncio
import socket
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import contextc as cc
from contextc._json import JSONObject
from contextc.store import async_store
from contextc.store.store import leases_of
from tests.executor.scripted_provider import SONNET, Say, Scripted, call, kinds, says

MANY = 64
SECONDS = 60
"""Until a test that hangs is given up; none waits for it."""


class Crowd:
    """A place that opens when so many have come to it: each of them blocks its thread until then."""

    def __init__(self, size: int) -> None:
        self._left, self._lock, self._open = size, threading.Lock(), threading.Event()

    def wait(self) -> None:
        with self._lock:
            self._left -= 1
            if self._left <= 0:
                self._open.set()
        assert self._open.wait(SECONDS)


def resolving(line: Callable[[JSONObject], Say]) -> Scripted:
    """An endpoint that looks up a name before it answers, as an HTTP client does."""

    async def answer(request: JSONObject) -> Say:
        await asyncio.get_running_loop().getaddrinfo("127.0.0.1", 443)
        return line(request)

    return Scripted(answer)


def long_conversations(store: cc.Store) -> list[str]:
    names = [f"c{number}" for number in range(MANY)]
    history = [each for _ in range(6) for each in (cc.user("hello world " * 60), cc.assistant("fine thanks " * 60))]
    for name in names:
        store.extend(name, history)
    return names


async def all_ended(executor: cc.AgentExecutor, names: Sequence[str]) -> list[cc.TurnResult]:
    async with asyncio.timeout(SECONDS):
        return await asyncio.gather(*[executor.start(name, "now?").wait() for name in names])


@pytest.mark.parametrize("kind", ["model", pytest.param("function", marks=pytest.mark.thorough)])
def test_64_long_conversations_compact_and_answer_at_once(kind: str) -> None:
    """A compaction that waits for its summary holds no thread: else as many of them as there are threads wait for
    summaries that need a thread, forever.
    """

    def summarize(messages: Sequence[cc.Message], previous: str | None) -> str:
        return "short summary"

    with cc.open_store("memory:") as store:
        names = long_conversations(store)
        executor = cc.AgentExecutor(
            store,
            SONNET,
            endpoint=resolving(lambda _: says("answer", input=0)),
            max_input_tokens=1_500,
            summarize=summarize if kind == "function" else "model",
            triggers=(),
        )

        results = asyncio.run(all_ended(executor, names))

        assert [(result.finish, result.text) for result in results] == [("stop", "answer")] * MANY
        assert all("compaction" in kinds(store.events(name)) for name in names)


def test_64_turns_whose_tools_summaries_and_name_look_ups_block_at_once_all_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each kind of blocking code has threads that the others do not need, and the store has its own."""
    tools, summaries, look_ups = Crowd(MANY), Crowd(MANY), Crowd(5)  # 5: the default pool may be as small

    def blocked(messages: Sequence[cc.Message], previous: str | None) -> str:
        summaries.wait()
        return "short summary"

    def look() -> str:
        """Look."""
        tools.wait()
        return "seen"

    def resolved(*_: object, **__: object) -> list[Any]:
        look_ups.wait()
        return []

    def asked(request: JSONObject) -> Say:
        is_first = "tool_result" not in str(request["messages"][-1])
        return says(call(1, "look"), input=0) if is_first else says("done", input=0)

    with cc.open_store("memory:") as store:
        names = long_conversations(store)
        executor = cc.AgentExecutor(
            store,
            SONNET,
            tools=[look],
            summarize=blocked,
            endpoint=resolving(asked),
            max_input_tokens=1_500,
            triggers=(),
        )
        monkeypatch.setattr(socket, "getaddrinfo", resolved)

        results = asyncio.run(all_ended(executor, names))

    assert [(result.finish, result.text, result.tool_calls) for result in results] == [("stop", "done", 1)] * MANY


def test_a_turn_needs_no_thread_of_the_default_pool() -> None:
    """Code of users may fill that pool for as long as it likes: turns are prepared, stored and ended all the same."""
    may_end = threading.Event()

    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    def approve(call: cc.ToolCall, tool: cc.tools.FunctionTool) -> bool:
        return True

    def summarize(messages: Sequence[cc.Message], previous: str | None) -> str:
        return "short summary"

    async def main(executor: cc.AgentExecutor) -> cc.TurnResult:
        pool = asyncio.get_running_loop().run_in_executor
        blocked = [pool(None, may_end.wait, SECONDS) for _ in range(MANY)]
        try:
            return (await all_ended(executor, ["c0"]))[0]
        finally:
            may_end.set()
            await asyncio.gather(*blocked)

    with cc.open_store("memory:") as store:
        long_conversations(store)
        script = [says(call(1, a=1, b=2), input=0), says("3", input=0)]
        executor = cc.AgentExecutor(
            store,
            SONNET,
            tools=[cc.tool(add, approval=True)],
            approve=approve,
            summarize=summarize,
            endpoint=Scripted(*script),
            max_input_tokens=1_500,
            triggers=(),
        )
        result = asyncio.run(main(executor))

    assert (result.finish, result.text) == ("stop", "3")


def test_a_turn_sends_its_request_after_turns_that_started_with_it_have_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where many start at one moment, the first event of each comes before the work of the others. Models are slow."""
    monkeypatch.setattr(async_store, "HEAD_START_SECONDS", SECONDS)
    happened, is_asked = list[str](), threading.Event()

    def answer(_: JSONObject) -> Say:
        happened.append("asked")
        is_asked.set()
        return says("Hello.")

    with cc.open_store(f"sqlite:///{tmp_path}/chat.db") as store:
        leases = leases_of(store)
        acquire = leases.try_acquire_with

        def acquire_late(conversation: str, *given: Any, **options: Any) -> Any:
            if conversation == "late":
                is_asked.wait(0.5)
                happened.append("begun")
            return acquire(conversation, *given, **options)

        monkeypatch.setattr(leases, "try_acquire_with", acquire_late)
        executor = cc.AgentExecutor(store, SONNET, endpoint=Scripted(answer), triggers=())
        results = asyncio.run(all_ended(executor, ["early", "late"]))

    assert [result.text for result in results] == ["Hello."] * 2
    assert happened == ["begun", "asked", "asked"]
