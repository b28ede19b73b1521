"""Executor functions for servers: model selection, the start of a turn, and events of a summary."""

import asyncio

import pytest

import contextc as cc
from contextc.events import CompactionFinished, TurnFinish
from contextc.messages import ToolCall
from contextc.tools import FunctionTool
from tests.executor.scripted_provider import FIRST_WORD, SONNET, Scripted, call, says


def sign() -> str:
    """Sign something."""
    return "signed"


def test_one_agent_uses_another_approver_in_each_conversation(store: cc.Store) -> None:
    """The client and the tools are shared; the approver is not."""
    script = [says(call(1, "sign")), says("Done."), says(call(2, "sign")), says("Done.")]
    agent = cc.AgentExecutor(
        store, SONNET, endpoint=Scripted(*script), tools=[cc.tool(sign, approval=True)], triggers=()
    )
    asked: list[str] = []

    def asking(name: str, answer: bool) -> cc.AgentExecutor:
        def approve(call: ToolCall, _: FunctionTool) -> bool:
            asked.append(f"{name}: {call.id}")
            return answer

        return agent.asking(approve)

    async def talk() -> None:
        for name, answer in (("anna", True), ("ben", False)):
            _ = [event async for event in asking(name, answer).run(name, "Sign.")]

    asyncio.run(talk())
    assert asked == ["anna: c1", "ben: c2"]
    results = [store.load(name)[2].tool_results[0] for name in ("anna", "ben")]
    assert [result.is_error for result in results] == [False, True]
    assert agent.approve is None
    with pytest.raises(cc.errors.InvalidSetting):
        agent.asking("yes")  # pyright: ignore[reportArgumentType]


async def test_a_turn_reports_its_start_or_its_error(store: cc.Store) -> None:
    """Guarantee 3.2: one turn at a time, and starting another one raises an error at once."""
    refused = False
    slow = says("a b c", silent=FIRST_WORD, until=lambda: refused)
    agent = cc.AgentExecutor(store, SONNET, endpoint=Scripted(slow), triggers=())
    turn = agent.start("demo", "Hello")
    assert await turn.begun() == 1
    with pytest.raises(cc.errors.ConversationBusy):
        await agent.start("demo", "Hello?", wait=0).begun()
    refused = True
    await turn.wait()
    assert await agent.start("demo").begun() == 0


async def test_a_watcher_of_the_end_may_start_the_next_turn(store: cc.Store) -> None:
    """Guarantee 3.2: the lease ends with the turn, in one transaction."""
    agent = cc.AgentExecutor(store, SONNET, endpoint=Scripted(says("One."), says("Two.")), triggers=())
    first = agent.start("demo", "Hello")
    await first.begun()
    while not any(isinstance(event, TurnFinish) for event in store.events("demo")):
        await asyncio.sleep(0)
    await agent.start("demo", "And?").begun()
    await first.wait()


def test_a_requested_summary_is_published_to_watchers(store: cc.Store) -> None:
    """Guarantee 12.1: every compaction is an event, whatever started it."""
    for number in range(20):
        store.append("demo", cc.user(f"Question {number}: " + "why " * 300))
        store.append("demo", cc.assistant(f"Answer {number}: " + "because " * 300))

    async def talk() -> None:
        agent = cc.AgentExecutor(
            store, SONNET, max_input_tokens=12_000, summarize=lambda messages, previous: "It was long.", triggers=()
        )
        done = await agent.compact("demo")
        assert done is not None

    asyncio.run(talk())
    (told,) = store.events("demo")
    assert isinstance(told, CompactionFinished)
    assert told.after < told.before
