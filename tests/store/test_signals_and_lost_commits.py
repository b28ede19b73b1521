"""Signals during a transaction, transactions of other threads, and commits with a lost answer."""

import gc
import signal
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import FrameType, FunctionType
from typing import Any

import pytest

import contextc as cc
from contextc.doctor import scan_store
from contextc.store import branches
from contextc.store.postgres import PostgresEngine, StoreConnection
from contextc.store.sqlite import WriteQueue
from contextc.store.store import open_with
from contextc.store.transaction_engine import ConnectionLost, Result, Transaction

QUEUE_CODE = {each.__code__ for each in vars(WriteQueue).values() if isinstance(each, FunctionType)}


class Late(Exception):
    """What a time limit raises."""


@pytest.fixture
def alarm() -> Iterator["Alarm"]:
    """Raise an exception in this thread, some seconds from now. The event is set then: a destructor may lose it."""
    before = signal.getsignal(signal.SIGALRM)

    def start(seconds: float, kind: type[BaseException]) -> threading.Event:
        rung = threading.Event()

        def ring(*_: object) -> None:
            rung.set()
            raise kind

        signal.signal(signal.SIGALRM, ring)
        signal.setitimer(signal.ITIMER_REAL, seconds)
        return rung

    yield start
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


Alarm = Callable[[float, type[BaseException]], threading.Event]


@pytest.mark.parametrize("kind", [KeyboardInterrupt, Late])
def test_a_signal_while_waiting_for_the_lock_leaves_no_transaction_open(
    tmp_path: Path, alarm: Alarm, kind: type[BaseException]
) -> None:
    """Guarantee 3.2: the next append would be acknowledged, and never committed."""
    path = tmp_path / "chat.db"
    with cc.open_store(path) as store:
        store.append("demo", cc.user("1"))
        other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        other.execute("BEGIN IMMEDIATE")
        release = threading.Timer(0.6, other.execute, ["ROLLBACK"])
        release.start()
        alarm(0.2, kind)
        with pytest.raises(kind):
            store.rewind("demo", 0)
        release.join()
        other.close()
        store.append("demo", cc.user("2"))
        with cc.open_store(path) as elsewhere:
            assert [message.text for message in elsewhere.load("demo")] == ["1", "2"]
            elsewhere.append("demo", cc.user("3"))


def test_a_signal_while_others_write_leaves_nothing_in_line(tmp_path: Path, alarm: Alarm) -> None:
    """Guarantee 3.2: the interrupted write is not stored later, and other writers continue."""
    with cc.open_store(tmp_path / "chat.db") as store:
        store.append("demo", cc.user("0"))
        begun, free = threading.Event(), threading.Event()

        def hold(_: Transaction) -> None:
            begun.set()
            free.wait(60)

        def extend(text: str) -> threading.Thread:
            thread = threading.Thread(target=store.extend, args=("demo", [cc.user(text)]), daemon=True)
            thread.start()
            return thread

        holder = threading.Thread(target=store.write, args=(hold,), daemon=True)
        holder.start()
        assert begun.wait(60)
        behind = extend("1")
        alarm(0.3, KeyboardInterrupt)
        with pytest.raises(KeyboardInterrupt):
            store.extend("demo", [cc.user("interrupted")])
        free.set()
        for thread in (holder, behind, extend("2")):
            thread.join(60)
            assert not thread.is_alive()
        store.append("demo", cc.user("3"))
        assert [message.text for message in store.load("demo")] == ["0", "1", "2", "3"]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of a signal in a destructor
def test_signals_that_come_at_any_moment_leave_no_waiter_behind(tmp_path: Path, alarm: Alarm) -> None:
    """Guarantee 3.2: between any two steps of the main thread, while others write."""
    with cc.open_store(tmp_path / "chat.db") as store:
        stop = threading.Event()

        def work(name: str) -> None:
            while not stop.is_set():
                store.extend(name, [cc.user("x")])

        threads = [threading.Thread(target=work, args=(f"c{number}",), daemon=True) for number in range(3)]
        for thread in threads:
            thread.start()
        acknowledged = 0
        for number in range(200):
            with suppress(Late):
                rung = alarm(0.0005 + number * 0.00001, Late)
                while not rung.is_set():
                    store.extend("main", [cc.user("y")])
                    acknowledged += 1
        stop.set()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
        stored = len(store.load("main"))
        assert acknowledged <= stored <= acknowledged + 200  # a signal may come between a commit and the news of it
        assert list(scan_store(store)) == []


@pytest.mark.filterwarnings("ignore:.*was deleted while still open:ResourceWarning")  # it is closed then
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of a signal in a destructor
def test_signals_that_come_at_any_moment_leave_no_connection_in_disorder(postgres_address: str, alarm: Alarm) -> None:
    """Guarantee 3.2: an interrupted connection is closed, or answers what it is asked next."""
    with cc.open_store(postgres_address) as store:
        store.append("demo", cc.user("0"))
        acknowledged = 1
        for number in range(60):
            with suppress(Late):
                rung = alarm(0.0005 + number * 0.0002, Late)
                while not rung.is_set():
                    store.extend("demo", [cc.user("y")])
                    acknowledged += 1
            assert store.load("demo", last=1)[0].seq >= acknowledged
        assert acknowledged <= len(store.load("demo")) <= acknowledged + 60
        assert list(scan_store(store)) == []
    gc.collect()  # of what was interrupted, here and not in the next test


def test_a_signals_handler_that_writes_is_refused_inside_a_write(tmp_path: Path) -> None:
    """It runs between two steps of the write that it interrupts, and would wait for that one."""
    with cc.open_store(tmp_path / "chat.db") as store:
        refused: list[cc.errors.InvalidInput] = []

        def write(*_: object) -> None:
            try:
                store.extend("demo", [cc.user("from the handler")])
            except cc.errors.InvalidInput as error:
                refused.append(error)

        before = signal.signal(signal.SIGALRM, write)
        try:
            store.write(lambda _: signal.raise_signal(signal.SIGALRM))
            signal.raise_signal(signal.SIGALRM)
        finally:
            signal.signal(signal.SIGALRM, before)
        assert len(refused) == 1
        assert [message.text for message in store.load("demo")] == ["from the handler"]


def test_a_signal_while_waiting_for_a_row_leaves_no_lock_behind(postgres_address: str, alarm: Alarm) -> None:
    """Guarantee 3.2: a connection that was interrupted must not come back, with its lock, from the pool."""
    with cc.open_store(postgres_address) as store, cc.open_store(postgres_address) as other:
        store.append("demo", cc.user("1"))
        holding, done = threading.Event(), threading.Event()

        def hold(tx: Transaction) -> None:
            tx.row("SELECT 1 FROM main.conversation WHERE name = ? FOR UPDATE", "demo")
            holding.set()
            done.wait(60)

        holder = threading.Thread(target=other.write, args=(hold,))
        holder.start()
        holding.wait(60)
        alarm(0.3, Late)
        with pytest.raises(Late):
            store.append("demo", cc.user("late"))
        done.set()
        holder.join()
        store.append("demo", cc.user("2"))
        assert [message.text for message in other.load("demo")] == ["1", "2"]


def test_a_plain_append_never_lands_in_another_threads_transaction() -> None:
    """In memory there is one connection, and a transaction that is rolled back takes everything in it along."""
    with cc.open_store("memory:") as store:
        store.append("demo", cc.user("0"))
        acknowledged: list[str] = []

        def append() -> None:
            for _ in range(300):
                acknowledged.append(store.append("demo", cc.user("m")).uid)

        def fail() -> None:
            for _ in range(300):
                with pytest.raises(cc.errors.StaleParent):
                    store.append("demo", cc.user("stale"), parent=0)

        threads = [threading.Thread(target=work) for work in (append, append, fail, fail)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert set(acknowledged) <= {message.uid for message in store.load("demo")}
        assert [message.seq for message in store.load("demo")] == list(range(1, 602))


class LosesAnswers(PostgresEngine):
    """Commits, and then loses the answer, and for a while cannot be reached at all."""

    cuts = 0
    refusals = 0

    def _run(
        self,
        connection: StoreConnection,
        work: Callable[[Transaction], Result],
        *,
        writing: bool,
        again: bool,
    ) -> Result:
        result = super()._run(connection, work, writing=writing, again=again)
        if writing and self.cuts:
            self.cuts -= 1
            connection.close()
            raise ConnectionLost(during_commit=True)
        return result

    def _connect(self) -> StoreConnection:
        if self.refusals:
            self.refusals -= 1
            raise ConnectionLost(during_commit=False, error=cc.errors.StoreUnavailable("connection refused"))
        return super()._connect()


def test_a_server_that_is_away_for_a_moment_is_waited_for(postgres_address: str) -> None:
    """A restart during a commit: the outcome is determined, and a caller is told to retry only if it must."""
    cc.open_store(postgres_address).close()
    engine = LosesAnswers(postgres_address)
    with open_with(engine) as store:
        assert store.conversations() == []
        engine.cuts, engine.refusals = 1, 2
        stored = store.append("demo", cc.user("once"))
        assert store.load("demo") == [stored]
        engine.cuts, engine.refusals, engine.outage_seconds = 1, 10**9, 0.1
        with pytest.raises(cc.errors.StoreUnavailable, match="it is unknown whether the last change was stored"):
            store.append("demo", cc.user("twice?"))
        engine.refusals = 0
        assert [message.text for message in store.load("demo")] == ["once", "twice?"]


def test_a_journal_whose_answer_was_lost_loses_no_text(postgres_address: str) -> None:
    """The same batch comes again, with more in it."""
    cc.open_store(postgres_address).close()
    engine = LosesAnswers(postgres_address)
    with open_with(engine) as store, store.lease("demo") as lease:
        stream = store.stream(lease)
        engine.scheduler.stop()  # this test flushes itself
        stream.write("one ")
        engine.cuts, engine.refusals, engine.outage_seconds = 1, 10**9, 0.1
        with pytest.raises(cc.errors.StoreUnavailable):
            stream.flush()
        engine.refusals = 0
        stream.write("two ")
        stream.flush()
        assert stream.end().text == "one two "


def test_a_fork_and_a_delete_in_one_tree_take_turns(postgres_address: str) -> None:
    """Guarantee 3.5: a fork refers to messages of another conversation, which must not be deleted meanwhile."""
    with cc.open_store(postgres_address) as store, cc.open_store(postgres_address) as other:
        messages = store.extend("a", [cc.user(str(number)) for number in range(8)])
        store.fork("a", "f", at=3)
        deleted, go_on = threading.Event(), threading.Event()

        def delete_slowly(tx: Transaction) -> None:
            branches.delete_conversation(tx, "a")
            deleted.set()
            go_on.wait(60)

        thread = threading.Thread(target=other.write, args=(delete_slowly,))
        thread.start()
        deleted.wait(60)
        threading.Timer(0.3, go_on.set).start()
        with pytest.raises(cc.errors.UnknownMessage):
            store.fork("f", "g", at=messages[7].uid)
        thread.join()
        assert [message.text for message in store.load("f")] == ["0", "1", "2"]
        assert list(scan_store(store)) == []


def test_two_deletes_in_one_tree_leave_nothing(postgres_address: str) -> None:
    """Guarantee 3.4: deleted messages are gone, whichever delete came first."""
    with cc.open_store(postgres_address) as store, cc.open_store(postgres_address) as other:
        store.append("a", cc.user("secret"))
        store.fork("a", "f")
        deleted, go_on = threading.Event(), threading.Event()

        def delete_slowly(tx: Transaction) -> None:
            branches.delete_conversation(tx, "f")
            deleted.set()
            go_on.wait(60)

        thread = threading.Thread(target=other.write, args=(delete_slowly,))
        thread.start()
        deleted.wait(60)
        threading.Timer(0.3, go_on.set).start()
        store.delete("a")
        thread.join()
        assert store.read(lambda tx: tx.row("SELECT count(*) FROM main.message")) == (0,)
        assert store.read(lambda tx: tx.row("SELECT count(*) FROM main.branch")) == (0,)


def test_an_interrupt_at_any_call_of_the_queue_of_writers_leaves_the_store_usable(tmp_path: Path) -> None:
    """Guarantee 3.2: the main thread, which gets signals, writes again afterwards."""
    with cc.open_store(f"sqlite:///{tmp_path}/interrupted.db") as store:
        store.append("demo", cc.user("first"))
        left, number, ended = 0, 0, False

        def interrupt(frame: FrameType, event: str, _: object) -> Any:
            nonlocal left
            if event == "call" and frame.f_code not in QUEUE_CODE:
                return None
            left -= event in ("call", "return")
            if left == 0 and event in ("call", "return"):
                raise KeyboardInterrupt
            return interrupt

        for number in range(1, 60):
            left, before = number, sys.gettrace()
            sys.settrace(interrupt)
            try:
                store.append("demo", cc.user(f"interrupted {number}"))
                ended = left > 0
            except KeyboardInterrupt:
                pass
            finally:
                sys.settrace(before)
            store.append("demo", cc.user(f"after {number}"))
            if ended:
                break
        assert ended
        assert number > 4
