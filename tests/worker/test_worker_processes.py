"""Workers that are killed, stopped and ended: turns continue elsewhere, and no tool is begun twice."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import pytest

import contextc as cc
from contextc.doctor import scan_store
from contextc.errors import AlreadyAnswered
from contextc.events import TurnFinish, TurnInterrupted, TurnStart
from contextc.worker import submit_sync
from tests.worker.worker_process import PATIENCE, ToolFiles, events, finished, wait_until, workers

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "fleet"


def check(store: cc.Store, files: ToolFiles, *, turns: int = 1) -> None:
    """Every call has one result, no tool was begun twice, and the conversation is valid."""
    begun = files.begun()
    assert len(begun) == len(set(begun))
    calls = [call.id for message in store.load("demo") for call in message.tool_calls]
    results = [result.call_id for message in store.load("demo") for result in message.tool_results]
    assert sorted(calls) == sorted(results)
    assert [each.number for each in events(store)] == list(range(1, len(events(store)) + 1))
    assert [each.state for each in store.turns("demo")] == ["finished"] * turns
    assert [finding for finding in scan_store(store) if finding.kind == "fault"] == []


def test_killed_in_the_middle_of_a_tool(new_postgres_address: str, tmp_path: Path) -> None:
    """Guarantee 19.3: the turn of a dead worker continues on another one. What it had begun is not begun again."""
    files = ToolFiles(tmp_path)
    with cc.open_store(new_postgres_address) as store, workers(new_postgres_address, tmp_path) as start:
        first = start()
        submit_sync(store, "demo", "work 2")
        wait_until(files.begun, "the first tool began")
        first.send(signal.SIGKILL)
        files.end_all()
        start()
        wait_until(lambda: finished(store), "another worker ended the turn")
        check(store, files)
        assert [each for each in events(store) if isinstance(each, TurnInterrupted)]
        results = [part for message in store.load("demo") for part in message.tool_results]
        assert [each.is_error for each in results] == [True, False]  # begun by the dead worker; run by the other one


def test_stopped_for_longer_than_its_lease(new_postgres_address: str, tmp_path: Path) -> None:
    """Guarantee 19.3: a worker that was stopped and comes back has lost its lease, and writes nothing."""
    files = ToolFiles(tmp_path)
    with cc.open_store(new_postgres_address) as store, workers(new_postgres_address, tmp_path) as start:
        first = start()
        submit_sync(store, "demo", "work 1")
        wait_until(files.begun, "the tool began")
        first.send(signal.SIGSTOP)
        start()
        wait_until(lambda: finished(store), "another worker ended the turn")
        before = store.load("demo"), events(store)
        first.send(signal.SIGCONT)
        files.end_all()
        wait_until(lambda: "expected the current lease" in first.log(), "the first worker lost its lease")
        assert (store.load("demo"), events(store)) == before
        check(store, files)
        submit_sync(store, "other", "work 0")  # both are at work again
        wait_until(lambda: finished(store, name="other"), "another turn ended")


def test_ended_by_a_signal(new_postgres_address: str, tmp_path: Path) -> None:
    """Guarantee 19.4: SIGTERM finishes the step and hands the turn over. Nothing is interrupted."""
    files = ToolFiles(tmp_path)
    with cc.open_store(new_postgres_address) as store, workers(new_postgres_address, tmp_path) as start:
        first = start()
        submit_sync(store, "demo", "work 2")
        wait_until(files.begun, "the first tool began")
        first.send(signal.SIGTERM)
        files.end(1)
        assert first.end() == 0
        assert [each.state for each in store.turns("demo")] == ["queued"]
        files.end_all()
        start()
        wait_until(lambda: finished(store), "another worker ended the turn")
        check(store, files)
        assert [each.resumed for each in events(store) if isinstance(each, TurnStart)] == [False, True]
        assert not [each for each in events(store) if isinstance(each, TurnInterrupted)]
        assert not [part for message in store.load("demo") for part in message.tool_results if part.is_error]


def test_approval_asked_by_one_and_used_by_another(new_postgres_address: str, tmp_path: Path) -> None:
    """Guarantee 19.5: asked on A, which is killed; answered here; done on C. The first answer counts."""
    files = ToolFiles(tmp_path)
    with cc.open_store(new_postgres_address) as store, workers(new_postgres_address, tmp_path) as start:
        first = start()
        submit_sync(store, "demo", "pay 1")
        wait_until(lambda: store.turns("demo") and store.approvals("demo"), "approval was requested")
        first.send(signal.SIGKILL)
        first.end()
        more = submit_sync(store, "demo", "work 0")
        assert more.queued
        (asked,) = store.approvals("demo")
        store.answer_approval(asked.id, True, who="ann")
        with pytest.raises(AlreadyAnswered, match="ann"):
            store.answer_approval(asked.id, False, who="bob")
        start()
        wait_until(lambda: finished(store, 2), "another worker ended both turns")
        check(store, files, turns=2)
        assert len(files.begun()) == 1
        assert [each.finish for each in events(store) if isinstance(each, TurnFinish)] == ["stop", "stop"]


def test_killed_while_one_agent_works_and_another_waits_for_approval(new_postgres_address: str, tmp_path: Path) -> None:
    """Guarantees 18.5, 19.3, 20.11: another worker goes on with the caller and both agents. There is one account."""
    files = ToolFiles(tmp_path)
    with cc.open_store(new_postgres_address) as store, workers(new_postgres_address, tmp_path) as start:
        first = start()
        submit_sync(store, "demo", "Go.", agent="boss")
        wait_until(lambda: files.begun() and store.approvals("demo"), "one agent works, and one waits")
        first.send(signal.SIGKILL)
        first.end()
        files.end_all()
        (asked,) = store.approvals("demo")
        store.answer_approval(asked.id, True)
        start()
        wait_until(lambda: finished(store), "another worker ended the turn")
        check(store, files)
        assert len(files.begun()) == 2
        results = {each.name: each.text for message in store.load("demo") for each in message.tool_results}
        assert results == {"runner": "Did work 1.", "cashier": "Did pay 1."}
        (turn,) = store.turns("demo")
        called = [each.name for each in store.conversations() if each.name != "demo"]
        below = [each for name in called for each in store.turns(name)]
        assert [each.state for each in below] == ["finished"] * 2
        own = [each.usage for each in store.steps("demo") if each.usage is not None]
        all_usage = [*own, *[each.usage for each in below if each.usage is not None]]
        assert turn.usage is not None
        assert turn.usage.output == sum([each.output for each in all_usage])
        assert (turn.agent_steps, turn.agent_tool_calls) == (
            sum([each.steps for each in below]),
            sum([each.tool_calls for each in below]),
        )


def test_the_example_runs_as_a_command(new_postgres_address: str, tmp_path: Path) -> None:
    """Guarantee 19.4: `contextc worker` with the agents of the example serves its health, and ends with 0."""
    command = [sys.executable, "-m", "contextc", "worker", "agents:agents", "--health", "127.0.0.1:0"]
    with subprocess.Popen(
        [*command, "--store", new_postgres_address, "--slots", "anthropic=2"],
        cwd=EXAMPLE,
        stdout=subprocess.PIPE,
        env={**os.environ, "HOME": str(tmp_path), "ANTHROPIC_API_KEY": "unused"},
        text=True,
    ) as worker:
        try:
            assert worker.stdout is not None
            address = worker.stdout.readline().split()[-1]
            assert worker.stdout.readline().startswith("worker of queue contextc runs assistant")
            with urlopen(f"{address}/metrics", timeout=PATIENCE) as answer:
                assert b"contextc_worker_running 0" in answer.read()
            worker.send_signal(signal.SIGTERM)
            assert worker.wait(PATIENCE) == 0
        finally:
            worker.kill()
