"""Turns of a process that has died: recognized, closed, and repaired. Every test runs on every store."""

import errno
import os
import signal
import subprocess
import sys
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

import contextc as cc
from contextc.store import leases
from contextc.store.leases import current_process, has_ended, is_running
from contextc.store.transaction_engine import Transaction
from tests.store.test_leases import PROCESSES


def test_looking_for_dead_turns_reads_the_leases_that_are_held_alone(tmp_path: Path) -> None:
    """A server does it every few seconds, however many conversations there are."""
    with cc.open_store(tmp_path / "chat.db") as store:
        asked: list[str] = []

        def look(tx: Transaction) -> list[tuple[object, ...]]:
            class Watched:
                dialect = tx.dialect

                def rows(self, sql: str, *values: object) -> list[tuple[object, ...]]:
                    asked.append(sql)
                    return tx.rows(sql, *values)

            leases.find_dead_turns(Watched())  # pyright: ignore[reportArgumentType]
            return tx.rows(f"EXPLAIN QUERY PLAN {asked[0]}")

        plan = store.read(look)
        assert "lease_held" in str(plan)
        assert len(asked) == 1


def test_this_process_is_there_and_a_made_up_one_is_not() -> None:
    machine, pid, started = current_process().split()
    assert not has_ended(current_process())
    assert has_ended(f"{machine} {pid} {int(started) + 1}")
    assert not has_ended(f"elsewhere {pid} {int(started) + 1}")
    assert not has_ended("unknown 1 ")


def test_a_process_that_cannot_be_seen_is_not_a_dead_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where `/proc` hides other users' processes, a live turn of one must not be taken for a dead one's."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    machine, _, started = current_process().split()
    with child:
        monkeypatch.setattr("contextc.store.leases.PROC", str(tmp_path))
        assert not has_ended(f"{machine} {child.pid} {started}")
        assert not is_running(f"{machine} {child.pid} {started}")
        child.kill()
    assert has_ended(f"{machine} {child.pid} {started}")


def test_a_process_of_another_user_is_not_a_dead_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel refuses to signal it, which it does only where there is such a process."""

    def refuse(pid: int, number: int) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    machine, _, started = current_process().split()
    monkeypatch.setattr("contextc.store.leases.PROC", str(tmp_path))
    monkeypatch.setattr(os, "kill", refuse)
    assert not has_ended(f"{machine} 4711 {started}")


def test_a_dead_process_that_was_not_reaped_is_gone() -> None:
    """Its parent may take its time, or be stuck itself."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, current_process().encode())
        os._exit(0)
    holder = os.read(reader, 1_000).decode()
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    assert has_ended(holder)
    os.waitpid(child, 0)
    os.close(reader)
    os.close(writer)


def die_in_the_middle(address: str, pipe: Connection) -> None:
    """A turn that has asked for two tools, got one result, and is streaming when it is killed."""
    store = cc.open_store(address)
    lease = store.acquire("demo", "coder", ttl=300)
    calls = [cc.ToolCall(id=name, name=name, arguments={}) for name in ("done", "open")]
    store.append("demo", cc.assistant("Let me look.", tool_calls=calls, author="coder", turn=1, step=0), lease=lease)
    store.append("demo", cc.tool_result("done", "done", "ok", author="coder"), lease=lease)
    stream = store.stream(lease)
    stream.write(cc.Reasoning(text="Hm. "))
    stream.write("I would ")
    stream.flush()
    stream.write("say")
    stream.flush()
    pipe.send(stream.uid)
    signal.pause()


def killed(address: str) -> str:
    """Run that turn, kill it with SIGKILL; the uid of what it was writing."""
    ours, theirs = PROCESSES.Pipe()
    child = PROCESSES.Process(target=die_in_the_middle, args=(address, theirs))
    child.start()
    assert ours.poll(60), "the child did not get that far"
    uid = str(ours.recv())
    assert child.pid is not None
    os.kill(child.pid, signal.SIGKILL)
    child.join()
    return uid


def test_what_a_dead_turn_left_is_put_right_on_open(shared_address: str) -> None:
    """Guarantee 3.6: at once on the same machine, although its lease had minutes to go."""
    with cc.open_store(shared_address) as store:
        store.append("demo", cc.user("hi"))
    uid = killed(shared_address)
    with cc.open_store(shared_address) as store:
        (recovered,) = store.recovered
        assert (recovered.conversation, recovered.agent) == ("demo", "coder")
        *_, partial, answer = messages = store.load("demo")
        assert [message.role for message in messages] == ["user", "assistant", "tool", "assistant", "tool"]
        assert (partial.uid, partial.status, partial.text) == (uid, "error", "I would say")
        assert "ended before the turn was over" in (partial.error or "")
        (result,) = answer.tool_results
        assert (result.call_id, result.is_error) == ("open", True)
        assert "it was not run again" in result.text
        assert store.recover() == []
        with store.lease("demo", "coder") as lease:
            store.append("demo", cc.assistant("on we go"), lease=lease)
    with cc.open_store(shared_address) as store:
        assert store.recovered == ()


def test_taking_over_puts_right_what_the_dead_turn_left(shared_address: str) -> None:
    """Guarantee 3.6: also for a process that had the store open all along."""
    with cc.open_store(shared_address) as store:
        store.append("demo", cc.user("hi"))
        killed(shared_address)
        with store.lease("demo", "coder") as lease:
            store.append("demo", cc.assistant("on we go"), lease=lease)
        assert [each.agent for each in store.recovered] == ["coder"]
        assert [message.status for message in store.load("demo")][-3:] == ["error", "sent", "sent"]


def test_another_process_that_is_alive_is_never_touched(shared_address: str) -> None:
    """Guarantee 3.6."""
    with cc.open_store(shared_address) as holder:
        holder.append("demo", cc.user("hi"))
        with holder.lease("demo") as lease, holder.stream(lease) as stream:
            stream.write("I am ")
            stream.flush()
            with cc.open_store(shared_address) as visitor:
                assert visitor.recovered == ()
                assert len(visitor.load("demo")) == 1
            stream.write("alive")
        assert holder.load("demo")[-1].text == "I am alive"
