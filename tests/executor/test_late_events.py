"""Late events: progress of a tool that has answered, and cancellation of a turn that is ending."""

import asyncio
import gc
import logging

import pytest

import contextc as cc
from contextc.events import ToolProgress
from contextc.executor import TurnResult
from contextc.tools import ToolContext
from tests.executor.scripted_provider import SONNET, Scripted, call, kinds, played, says


def test_tool_progress_is_not_published_after_the_result(store: cc.Store, caplog: pytest.LogCaptureFixture) -> None:
    """Guarantee 12.1: no event follows the end of a turn, and late progress raises no error."""

    def hasty(said: str, context: ToolContext) -> str:
        """Speak, and be gone."""
        context.progress(said)
        return "done"

    executor = cc.AgentExecutor(
        store,
        SONNET,
        tools=[hasty],
        endpoint=Scripted(says(call(1, "hasty", said="Nearly there.")), says("Done.")),
        triggers=(),
    )

    async def turn() -> None:
        await played(executor, "demo")
        await asyncio.sleep(0.4)

    asyncio.run(turn())
    gc.collect()  # a task that has failed says so when it is forgotten

    assert store.load("demo")[2].tool_results[0].text == "done"
    assert kinds(store.events("demo"))[-1] == "turn-finish"
    assert not any(isinstance(event, ToolProgress) for event in store.events("demo"))
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []


@pytest.mark.parametrize("given", ["hello", None], ids=["a turn", "nothing to do"])
def test_a_turn_that_is_stopped_at_any_moment_has_a_result(store: cc.Store, given: str | None) -> None:
    """Guarantee 11.10: also where its end, or that there is nothing to do, is just being written."""
    store.extend("demo", [cc.user("Hello?"), cc.assistant("Hello.")])

    async def stopped(moment: int) -> TurnResult:
        executor = cc.AgentExecutor(store, SONNET, endpoint=Scripted(says("Hello.")), triggers=())
        turn = executor.start("demo", given)
        await asyncio.sleep(moment * 0.0005)
        turn.cancel()
        return await turn.wait()

    async def at_every_moment() -> list[TurnResult]:
        return [await stopped(moment) for moment in range(60)]

    results = asyncio.run(at_every_moment())

    assert {result.finish for result in results} <= {"cancelled", "stop", "nothing to do"}
    asked = [message for message in store.load("demo") if message.role == "user"][1:]
    assert len(asked) == (sum(bool(result.turn) for result in results) if given else 0)
    store.release(store.acquire("demo"))  # nobody holds it any more
