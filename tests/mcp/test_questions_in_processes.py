"""Questions of servers outlive the process that was asked, and workers (guarantees 24.8 and 18.5)."""

import asyncio
import multiprocessing
import os
import signal
from pathlib import Path

import pytest

import contextc as cc
from contextc.cli import worker as command
from contextc.doctor import scan_store
from contextc.errors import AlreadyAnswered
from contextc.events import TurnInterrupted
from contextc.testing import FakeModel
from contextc.worker import TurnWorker, WorkerOptions, submit_sync
from tests.mcp.servers import asking
from tests.worker.worker_process import HEARTBEAT, LEASE, finished, wait_until

PROCESSES = multiprocessing.get_context("forkserver")
PATIENCE = 60
ORDER = cc.tool_call("c1", "asking__order", {"drink": "tea"})


def make_agent(store: cc.Store, folder: Path, server: cc.MCPServer) -> cc.AgentExecutor:
    async def hang() -> str:
        """Never end, if the file `hang` is there."""
        (folder / "hangs").touch()
        while (folder / "hang").exists():
            await asyncio.sleep(0.01)
        return "ended"

    model = FakeModel(
        lambda request: "Done." if request.messages[-1].tool_results else [ORDER, cc.tool_call("c2", "hang", {})]
    )
    return cc.AgentExecutor(
        store, model, tools=[hang], mcp_servers=[server], approve=cc.Suspend(), triggers=(), lease_seconds=LEASE
    )


async def run_turn(executor: cc.AgentExecutor, given: str | None) -> cc.TurnResult:
    async with executor:
        turn = executor.resume("demo") if given is None else executor.start("demo", given)
        return await asyncio.wait_for(turn.wait(), PATIENCE)


def run_first(address: str, folder: Path, server: cc.MCPServer) -> None:
    with cc.open_store(address) as store:
        asyncio.run(run_turn(make_agent(store, folder, server), "Go."))


def run_worker(address: str, folder: Path, server: cc.MCPServer) -> None:
    with cc.open_store(address) as store:
        worker = TurnWorker(store, {"assistant": make_agent(store, folder, server)}, WorkerOptions(heartbeat=HEARTBEAT))
        asyncio.run(command._run(worker, None, 0))  # pyright: ignore[reportPrivateUsage]


def results(store: cc.Store) -> dict[str, cc.ToolResult]:
    return {each.call_id: each for message in store.load("demo") for each in message.tool_results}


def is_sound(store: cc.Store) -> bool:
    return [each for each in scan_store(store) if each.kind == "fault"] == []


def asked(store: cc.Store) -> list[cc.store.Approval]:
    return store.approvals("demo") if store.conversations() else []


def test_killed_while_a_question_waits_and_another_tool_runs(tmp_path: Path) -> None:
    """The question was stored when it was asked: it stays open, and only the other call may have run."""
    address = f"sqlite:///{tmp_path}/chat.db"
    (tmp_path / "hang").touch()
    with cc.open_store(address) as store:
        process = PROCESSES.Process(target=run_first, args=(address, tmp_path, asking()))
        process.start()
        wait_until(lambda: asked(store) and (tmp_path / "hangs").exists(), "the server asked, and the other tool runs")
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join(PATIENCE)
        (tmp_path / "hang").unlink()
        assert asyncio.run(run_turn(make_agent(store, tmp_path, asking()), None)).finish == "waiting"
        assert [each for each in store.events("demo") if isinstance(each, TurnInterrupted)]
        assert {*results(store)} == {"c2"}
        assert "Whether the tool ran is not known" in results(store)["c2"].text
        (question,) = asked(store)
        store.answer_approval(question.id, True, content={"size": "small"})
        assert asyncio.run(run_turn(make_agent(store, tmp_path, asking()), None)).finish == "stop"
        assert results(store)["c1"].text == 'One tea, {"size": "small"}.'
        assert is_sound(store)


def test_a_worker_is_free_while_a_question_waits(new_postgres_address: str, tmp_path: Path) -> None:
    """Asked on one worker, which is killed; answered here, together with the job; done on another one."""
    with cc.open_store(new_postgres_address) as store:
        first = PROCESSES.Process(target=run_worker, args=(new_postgres_address, tmp_path, asking()))
        second = PROCESSES.Process(target=run_worker, args=(new_postgres_address, tmp_path, asking()))
        try:
            first.start()
            submit_sync(store, "demo", "Go.")
            wait_until(lambda: [each.state for each in store.turns("demo")] == ["waiting"], "the turn waits")
            store.release(store.acquire("demo"))
            assert results(store)["c2"].text == "ended"
            first.kill()
            first.join(PATIENCE)
            (question,) = asked(store)
            store.answer_approval(question.id, True, content={"size": "small"}, who="ann")
            with pytest.raises(AlreadyAnswered, match="ann"):
                store.answer_approval(question.id, False, who="bob")
            second.start()
            wait_until(lambda: finished(store), "another worker ended the turn")
            assert results(store)["c1"].text == 'One tea, {"size": "small"}.'
            assert is_sound(store)
        finally:
            for each in (first, second):
                if each.pid is not None:
                    each.kill()
                    each.join(PATIENCE)
