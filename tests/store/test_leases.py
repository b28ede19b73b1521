"""Leases: one turn at a time, expiry, and recovery after a process dies. Every test runs on every store."""

import math
import multiprocessing
import os
import signal
import sqlite3
import threading
import time
from contextlib import closing
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import contextc as cc
from contextc.store import leases
from contextc.store.store import engine_of, leases_of
from contextc.store.transaction_engine import THREAD_NAME, Scheduler, Transaction
from tests.stress.suspended_process import suspend

PROCESSES = multiprocessing.get_context("forkserver")


def test_a_second_turn_is_refused(store: cc.Store) -> None:
    """Guarantee 3.2: turns never interleave."""
    store.append("demo", cc.user("hi"))
    with store.lease("demo"):
        with pytest.raises(cc.errors.ConversationBusy, match="in a turn of agent 'assistant'"):
            store.acquire("demo")
        with store.lease("demo", "another agent"):
            pass
    with store.lease("demo") as again:
        assert again.number == 2


def test_a_second_turn_may_wait(store: cc.Store) -> None:
    """Guarantee 3.2."""
    store.append("demo", cc.user("hi"))
    lease, had = store.acquire("demo"), threading.Event()

    def wait() -> None:
        with store.lease("demo", wait=60):
            had.set()

    waiting = threading.Thread(target=wait)
    waiting.start()
    while not len(leases_of(store).queue):
        time.sleep(0.001)
    assert not had.is_set()
    store.release(lease)
    waiting.join(60)
    assert had.is_set()


def test_a_turn_may_begin_a_conversation(store: cc.Store) -> None:
    """As an append may: the first thing an agent does is take its turn."""
    with store.lease("demo", "coder") as lease:
        store.append("demo", cc.user("hi"), lease=lease)
    assert len(store.load("demo")) == 1


def test_a_turn_needs_some_time_and_a_name(store: cc.Store) -> None:
    with pytest.raises(cc.errors.InvalidInput, match="ttl must be above 0 seconds, got 0"):
        store.acquire("demo", ttl=0)
    with pytest.raises(cc.errors.InvalidInput, match="agent name must be"):
        store.acquire("demo", "")


def test_a_lease_is_renewed_until_it_is_released(store: cc.Store) -> None:
    store.append("demo", cc.user("hi"))
    with store.lease("demo", ttl=0.3) as lease:
        time.sleep(0.8)
        store.append("demo", cc.assistant("still here"), lease=lease)
    with pytest.raises(cc.errors.LeaseLost):
        store.append("demo", cc.assistant("too late"), lease=lease)
    assert len(store.load("demo")) == 2


def test_leases_that_follow_each_other_are_renewed_by_one_thread(store: cc.Store) -> None:
    """Guarantee 11.1: a turn is cheap, so its lease does not pay for a new thread each time."""

    def keepers() -> set[threading.Thread]:
        return {each for each in threading.enumerate() if each.name == THREAD_NAME}

    before, found = keepers(), set[threading.Thread]()
    for _ in range(20):
        with store.lease("demo"):
            found |= keepers() - before
    assert len(found) == 1


def test_a_task_that_is_removed_before_its_thread_wakes_does_not_end_the_thread() -> None:
    """Guarantee 11.1: the thread was woken for a task, and waits on without one."""
    scheduler: Any = Scheduler()  # what is private, too
    scheduler.run_every(600, lambda: None)()
    thread = scheduler._thread
    for _ in range(3):
        with scheduler._changed:  # so that the thread wakes when the task is removed
            scheduler._wakes_at = math.inf
            scheduler.run_every(5, lambda: None)()
        deadline = time.monotonic() + 60
        while scheduler._wakes_at == math.inf and thread.is_alive() and time.monotonic() < deadline:
            time.sleep(0.001)
    assert scheduler._thread is thread
    assert thread.is_alive()
    scheduler.stop()
    thread.join(60)
    assert not thread.is_alive()


def test_leases_are_renewed_together_and_one_that_is_lost_takes_none_along(store: cc.Store) -> None:
    """Guarantee 3.2: one that was released is not lost, and is not renewed either."""
    held = {name: store.acquire(name) for name in ("a", "b", "c", "d")}
    engine_of(store).scheduler.stop()  # this test renews itself
    store.release(held["c"])
    store.delete("b")
    store.acquire("b")
    longer = [replace(held[name], ttl=600) for name in ("d", "c", "b", "a")]
    lost = store.write(lambda tx: leases.renew(tx, longer))
    assert [lease.conversation for lease in lost] == ["b"]
    rows = store.read(lambda tx: tx.rows(f"SELECT conversation, expires - {tx.dialect.now} FROM main.lease"))
    assert {name for name, left in rows if left > 500} == {"a", "d"}


def test_a_lease_that_was_lost_is_renewed_no_more(store: cc.Store) -> None:
    lost, kept = store.acquire("lost", ttl=0.3), store.acquire("kept", ttl=0.3)
    result = threading.Event()
    store.on_lease_lost(lost, result.set)
    store.write(lambda tx: tx.run("UPDATE main.lease SET number = number + 1 WHERE conversation = 'lost'"))
    assert result.wait(60)
    assert list(leases_of(store)._renewals) == [kept]  # pyright: ignore[reportPrivateUsage]
    store.append("kept", cc.assistant("still here"), lease=kept)
    with pytest.raises(cc.errors.LeaseLost):
        store.append("lost", cc.assistant("too late"), lease=lost)


def test_renewing_a_lease_does_not_wait_for_writers(postgres_address: str) -> None:
    """Guarantee 3.2: one long write must not end the turns of others."""
    with cc.open_store(postgres_address) as store, cc.open_store(postgres_address) as other:
        lease = store.acquire("demo")
        holding, done = threading.Event(), threading.Event()

        def hold(tx: Transaction) -> None:
            tx.row("SELECT 1 FROM main.conversation WHERE name = ? FOR UPDATE", "demo")
            holding.set()
            done.wait(60)

        def renew(tx: Transaction) -> list[cc.store.Lease]:
            tx.run("SET LOCAL lock_timeout = '2s'")
            return leases.renew(tx, [lease])

        holder = threading.Thread(target=other.write, args=(hold,))
        holder.start()
        assert holding.wait(60)
        try:
            assert store.write(renew) == []
        finally:
            done.set()
            holder.join()


def test_what_is_due_together_is_done_at_once_and_first() -> None:
    """However many there are, and whatever else there is to do: nothing that many share comes late."""
    keeper, calls = Scheduler(), list[object]()
    begun, free, over = threading.Event(), threading.Event(), threading.Event()

    def hold() -> None:
        begun.set()
        free.wait(60)

    def done(call: object) -> None:
        calls.append(call)
        if len(calls) == 2:
            over.set()

    keeper.run_every(0, hold)
    assert begun.wait(60)
    keeper.run_every(0.001, lambda: done("one"))
    for name in ("a", "b", "c"):
        keeper.run_every_for(0.002, name, done)
    time.sleep(0.02)
    free.set()
    assert over.wait(60)
    keeper.stop()
    assert calls[0] == ["a", "b", "c"]


def run_out(store: cc.Store) -> None:
    """Let the time of every lease be over, as it is after a long sleep, or a clock that was set."""
    store.write(lambda tx: tx.run("UPDATE main.lease SET expires = 0"))


def left(store: cc.Store, name: str = "demo") -> float:
    row = store.read(
        lambda tx: tx.row(f"SELECT expires - {tx.dialect.now} FROM main.lease WHERE conversation = ?", name)
    )
    assert row is not None
    return float(row[0])


def test_a_lease_that_ran_out_is_good_until_another_takes_it(store: cc.Store) -> None:
    """A laptop that slept, a clock that was set, a long lock: the turn goes on, and nothing says its process ended."""
    store.append("demo", cc.user("hi"))
    lease = store.acquire("demo", ttl=600)
    run_out(store)
    store.append("demo", cc.assistant("late"), lease=lease)
    assert store.recover() == []
    with pytest.raises(cc.errors.ConversationBusy):
        store.acquire("demo")  # by the process that runs the turn
    assert store.write(lambda tx: leases.renew(tx, [lease])) == []
    assert left(store) > 500
    store.release(lease)
    assert [(message.text, message.status) for message in store.load("demo")] == [("hi", "sent"), ("late", "sent")]


def test_a_turn_that_this_process_gave_up_is_put_right_when_its_time_is_over(store: cc.Store) -> None:
    """A turn whose end could not be stored is renewed no more; the process that runs on puts it right itself."""
    lease = store.acquire("demo")
    leases_of(store).stop_renewing(lease)
    assert store.recover() == []
    run_out(store)
    assert [each.lease for each in store.recover()] == [lease.number]


def test_an_outlived_lease_is_refused(store: cc.Store) -> None:
    """Guarantee 3.2: a process that slept through its own end must not write over its successor."""
    store.append("demo", cc.user("hi"))
    outlived = store.acquire("demo", ttl=600)
    leases_of(store).stop_renewing(outlived)  # as if it were another process's
    run_out(store)
    with store.lease("demo") as successor:
        assert successor.number > outlived.number
        store.append("demo", cc.assistant("alive"), lease=successor)
        with pytest.raises(cc.errors.LeaseLost, match=f"'demo', .* got lease {outlived.number}, which was"):
            store.append("demo", cc.assistant("zombie"), lease=outlived)
        assert store.write(lambda tx: leases.renew(tx, [outlived])) == [outlived]
        store.release(outlived)
        store.append("demo", cc.assistant("still alive"), lease=successor)
    assert [message.text for message in store.load("demo")] == ["hi", "alive", "still alive"]


def hold(address: str, ttl: float, pipe: Connection) -> None:
    """Hold a turn until it is signalled to write; send whether it could, and whether it was notified of a loss."""
    with cc.open_store(address) as store:
        lost = threading.Event()
        lease = store.acquire("demo", ttl=ttl)
        store.on_lease_lost(lease, lost.set)
        store.append("demo", cc.assistant(tool_calls=[cc.tool_call("c1", "t", {})]), lease=lease)
        pipe.send(lease.number)
        pipe.recv()
        try:
            store.append("demo", cc.tool_result("c1", "t", "real"), lease=lease)
            pipe.send(("stored", lost.is_set()))
        except cc.errors.LeaseLost:
            pipe.send(("refused", lost.wait(60)))


@pytest.mark.parametrize("taken", [False, True], ids=["not wanted", "wanted"])
def test_a_suspended_process_keeps_its_turn_until_another_wants_it(shared_address: str, taken: bool) -> None:
    """Ctrl-Z, or a sleeping laptop: opening the store detects that the process lives, and leaves it alone."""
    pipe, theirs = PROCESSES.Pipe()
    child = PROCESSES.Process(target=hold, args=(shared_address, 0.3, theirs))
    child.start()
    assert pipe.poll(60), "the child did not get that far"
    pipe.recv()
    assert child.pid is not None
    suspend(child.pid, shared_address)
    try:
        with cc.open_store(shared_address) as store:
            while left(store) > 0:
                time.sleep(0.02)
            assert store.recover() == []
            with pytest.raises(cc.errors.ConversationBusy):  # one that waits leaves it the time to renew its lease
                leases_of(store).try_acquire("demo", "assistant", ttl=30, patient=True)
            if taken:
                store.release(store.acquire("demo"))
        with cc.open_store(shared_address) as visitor:
            assert visitor.recovered == ()
    finally:
        os.kill(child.pid, signal.SIGCONT)
    pipe.send("go on")
    assert pipe.recv() == (("refused", True) if taken else ("stored", False))
    child.join(60)
    with cc.open_store(shared_address) as store:
        (result,) = store.load("demo")[-1].tool_results
        assert result.text == (leases.RESULT_TAKEN_OVER if taken else "real")


def test_a_lock_that_outlasts_the_lease_does_not_end_the_turn(tmp_path: Path) -> None:
    """A backup, or VACUUM: what waits for it is written afterwards, and the lease is renewed."""
    with cc.open_store(tmp_path / "chat.db") as store, closing(sqlite3.connect(tmp_path / "chat.db")) as other:
        lease = store.acquire("demo", ttl=0.3)
        other.isolation_level = None
        other.execute("BEGIN IMMEDIATE")
        done: list[cc.Message] = []
        writer = threading.Thread(
            target=lambda: done.append(store.append("demo", cc.assistant("patient"), lease=lease))
        )
        writer.start()
        while left(store) > 0:
            time.sleep(0.02)
        other.execute("COMMIT")
        writer.join(60)
        assert [message.text for message in done] == ["patient"]
        while left(store) <= 0:
            time.sleep(0.02)
        assert leases_of(store).holds_lease("demo", "assistant", lease.number)


def test_a_locked_lease_takes_no_other_along(postgres_address: str) -> None:
    """The renewal of all goes on without it, and it is not taken for lost."""
    with cc.open_store(postgres_address) as store, cc.open_store(postgres_address) as other:
        held = [store.acquire(name) for name in ("free", "locked")]
        run_out(store)
        locked, done = threading.Event(), threading.Event()

        def lock(tx: Transaction) -> None:
            tx.row("SELECT 1 FROM main.lease WHERE conversation = 'locked' FOR UPDATE")
            locked.set()
            done.wait(60)

        def renew(tx: Transaction) -> list[cc.store.Lease]:
            tx.run("SET LOCAL lock_timeout = '2s'")
            return leases.renew(tx, held)

        holder = threading.Thread(target=other.write, args=(lock,))
        holder.start()
        assert locked.wait(60)
        try:
            assert store.write(renew) == []
        finally:
            done.set()
            holder.join()
        assert left(store, "free") > 0 > left(store, "locked")


def test_turns_that_wait_are_served_in_the_order_they_came(store: cc.Store) -> None:
    """None of many waits forever because others ask more often."""
    first, served, threads = store.acquire("demo"), list[int](), list[threading.Thread]()
    turn = threading.Lock()

    def wait(number: int) -> None:
        with store.lease("demo", wait=60), turn:
            served.append(number)

    for number in range(8):
        threads.append(threading.Thread(target=wait, args=(number,)))
        threads[-1].start()
        while len(leases_of(store).queue) <= number:
            time.sleep(0.001)
    with pytest.raises(cc.errors.ConversationBusy):  # who does not wait comes before none that does
        store.acquire("demo")
    store.release(first)
    for thread in threads:
        thread.join(60)
    assert served == [*range(8)]
    assert not len(leases_of(store).queue)


def test_a_turn_that_comes_later_does_not_overtake_one_that_waits(store: cc.Store) -> None:
    """The lease is free for a moment before the waiter has noticed; a later request is served after it."""
    held, taken = store.acquire("demo"), list[cc.store.Lease]()
    waiting = threading.Thread(target=lambda: taken.append(store.acquire("demo", wait=60)))
    waiting.start()
    while not len(leases_of(store).queue):
        pass
    store.write(lambda tx: leases.release(tx, held, failed=False))
    with pytest.raises(cc.errors.ConversationBusy):
        store.acquire("demo")
    leases_of(store).finish_release(held)  # wakes the one that waits
    waiting.join()
    store.release(taken[0])


def test_one_that_waits_gives_up_when_its_time_is_over(store: cc.Store) -> None:
    with store.lease("demo"):
        with pytest.raises(cc.errors.ConversationBusy):
            store.acquire("demo", wait=0.05)
        assert not len(leases_of(store).queue)
    store.release(store.acquire("demo"))


def test_a_lease_of_another_conversation_is_refused(store: cc.Store) -> None:
    store.append("demo", cc.user("hi"))
    store.append("other", cc.user("hi"))
    with store.lease("demo") as lease:
        with pytest.raises(cc.errors.InvalidInput, match="not for"):
            store.append("other", cc.assistant("x"), lease=lease)
        with pytest.raises(cc.errors.InvalidInput, match=r"lease must be a Lease, got str\. Use: with store\.lease"):
            store.append("demo", cc.assistant("x"), lease="lease 1")  # pyright: ignore[reportArgumentType]


def fail(store: cc.Store) -> None:
    with store.lease("demo", "coder") as lease:
        calls = [cc.ToolCall(id=name, name=name, arguments={}) for name in ("done", "open")]
        store.append("demo", cc.assistant("Let me look.", tool_calls=calls, author="coder"), lease=lease)
        store.append("demo", cc.tool_result("done", "done", "ok"), lease=lease)
        store.stream(lease).write("not yet journaled")
        raise RuntimeError("the tool broke")


def test_a_turn_that_fails_leaves_no_call_without_a_result(store: cc.Store) -> None:
    """Guarantee 3.6: an exception is handled no worse than a kill."""
    with pytest.raises(RuntimeError):
        fail(store)
    *_, answer, partial = store.load("demo")
    assert (answer.tool_results[0].call_id, answer.tool_results[0].is_error) == ("open", True)
    assert "ended with an error" in answer.tool_results[0].text
    assert (partial.text, partial.status) == ("not yet journaled", "error")


def test_a_lease_ends_with_its_conversation(store: cc.Store) -> None:
    """Guarantee 3.2: one of the same name is another conversation, and its turn another turn."""
    outlived = store.acquire("demo")
    store.delete("demo")
    with store.lease("demo") as lease:
        with pytest.raises(cc.errors.LeaseLost):
            store.append("demo", cc.assistant("from the past"), lease=outlived)
        store.release(outlived)
        store.append("demo", cc.assistant("now"), lease=lease)
    assert [message.text for message in store.load("demo")] == ["now"]


def test_a_failing_agent_does_not_answer_for_another(store: cc.Store) -> None:
    """Two agents in one conversation: the other one's tool is still running."""
    other = store.acquire("demo", "b")
    store.append("demo", cc.assistant(tool_calls=[cc.tool_call("c1", "t", {})]), lease=other)
    with pytest.raises(RuntimeError), store.lease("demo", "a"):
        raise RuntimeError
    store.append("demo", cc.tool_result("c1", "t", "real"), lease=other)
    assert [result.text for message in store.load("demo") for result in message.tool_results] == ["real"]
    assert store.load("demo")[0].author == "b"
    (replies,) = store.extend("demo", [cc.assistant("done")], lease=other)
    assert replies.author == "b"
    with pytest.raises(cc.errors.InvalidMessage, match="expected a Message, got dict"):
        store.append("demo", {"role": "user"}, lease=other)  # pyright: ignore[reportArgumentType]


def rewind_and_fail(store: cc.Store) -> None:
    with store.lease("demo") as lease:
        store.rewind("demo", 2)
        store.append("demo", cc.assistant(tool_calls=[cc.tool_call("c1", "t", {})]), lease=lease)
        raise RuntimeError


def test_a_turn_that_was_rewound_leaves_no_open_call_either(store: cc.Store) -> None:
    store.extend("demo", [cc.user(str(number)) for number in range(10)])
    with pytest.raises(RuntimeError):
        rewind_and_fail(store)
    assert [message.role for message in store.load("demo", last=2)] == ["assistant", "tool"]


def delete_and_fail(store: cc.Store) -> None:
    with store.lease("demo") as lease:
        store.stream(lease)
        store.delete("demo")
        raise RuntimeError("the real reason")


def test_the_reason_a_turn_failed_is_not_hidden(store: cc.Store) -> None:
    with pytest.raises(RuntimeError, match="the real reason"):
        delete_and_fail(store)


def test_closing_a_store_ends_its_turns(shared_address: str) -> None:
    """An orderly end loses nothing, not even the last quarter of a second."""
    with cc.open_store(shared_address) as store:
        lease = store.acquire("demo")
        store.stream(lease).write("I was say")
    with cc.open_store(shared_address) as store:
        assert store.recovered == ()
        assert [(message.text, message.status) for message in store.load("demo")] == [("I was say", "error")]
        store.acquire("demo")


def test_a_forked_process_cannot_end_its_parents_turn(tmp_path: Path) -> None:
    with cc.open_store(tmp_path / "chat.db") as store:
        store.append("demo", cc.user("hi"))
        lease = store.acquire("demo")
        engine_of(store).scheduler.stop()  # a process with threads is not forked
        child = os.fork()
        if child == 0:
            store.release(lease)
            try:
                store.append("demo", cc.assistant("from the child"), lease=lease)
            except cc.errors.InvalidInput:
                os._exit(7)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        store.append("demo", cc.assistant("still mine"), lease=lease)
