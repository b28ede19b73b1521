"""Concurrent writers share one commit, with the same results as separate commits."""

import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import contextc as cc
from contextc.store.sqlite import MAX_GROUP_SIZE, WriteQueue
from contextc.store.store import engine_of
from contextc.store.transaction_engine import Transaction

PATIENCE = 120.0


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with cc.open_store(f"sqlite:///{tmp_path}/chat.db") as handle:
        yield handle


def at_once(store: cc.Store, works: list[Callable[[Transaction], Any]]) -> list[Any]:
    """Queue writers behind an active one, then start them; return their results."""
    found: list[Any] = [None] * len(works)
    begun, free = threading.Event(), threading.Event()

    def first(_: Transaction) -> None:
        begun.set()
        assert free.wait(PATIENCE)

    def write(index: int) -> None:
        try:
            found[index] = store.write(works[index])
        except Exception as error:
            found[index] = error

    leader = threading.Thread(target=store.write, args=(first,))
    leader.start()
    assert begun.wait(PATIENCE)
    threads = [threading.Thread(target=write, args=(index,)) for index in range(len(works))]
    for thread in threads:
        thread.start()
    while len(engine_of(store)._write_queue._waiting) < len(works):  # pyright: ignore[reportAttributeAccessIssue, reportPrivateUsage, reportUnknownMemberType, reportUnknownArgumentType]
        threading.Event().wait(0.001)
    free.set()
    for thread in [leader, *threads]:
        thread.join(PATIENCE)
    return found


def append(name: str) -> Callable[[Transaction], Transaction]:
    def work(tx: Transaction) -> Transaction:
        tx.run("INSERT INTO main.todo (conversation, agent, number, state, text) VALUES (?, 'a', 1, 'open', 't')", name)
        return tx

    return work


def names(store: cc.Store) -> list[str]:
    return store.read(
        lambda tx: [row[0] for row in tx.rows("SELECT conversation FROM main.todo ORDER BY conversation")]
    )


def test_writers_in_line_are_one_transaction(store: cc.Store) -> None:
    """Guarantee 3.2: durable when it returns, with one commit for all waiting writers."""
    found = at_once(store, [append(f"c{number}") for number in range(8)])
    assert len({id(tx) for tx in found}) == 1
    assert names(store) == [f"c{number}" for number in range(8)]


def test_one_that_fails_takes_nothing_along(store: cc.Store) -> None:
    """Guarantee 3.2: all of a write happens, or nothing of it; and others' is not its own."""

    def failing(tx: Transaction) -> None:
        append("never")(tx)
        raise cc.errors.InvalidInput("not so")

    found = at_once(store, [append("a"), failing, append("b")])
    assert isinstance(found[1], cc.errors.InvalidInput)
    assert names(store) == ["a", "b"]


def test_a_refused_group_commit_is_retried_one_by_one(store: cc.Store) -> None:
    """Guarantee 3.2: one broken statement costs the others nothing."""

    def broken(tx: Transaction) -> None:
        tx.run("INSERT INTO nowhere VALUES (1)")

    found = at_once(store, [append("a"), broken, append("b")])
    assert isinstance(found[1], cc.errors.StoreError)
    assert names(store) == ["a", "b"]


def test_more_than_fit_are_written_in_groups(store: cc.Store) -> None:
    found = at_once(store, [append(f"{number:04}") for number in range(MAX_GROUP_SIZE + 20)])
    assert len({id(tx) for tx in found}) > 1
    assert len(names(store)) == MAX_GROUP_SIZE + 20


def test_many_threads_that_append_lose_nothing(store: cc.Store) -> None:
    """Guarantee 3.2: with any number of writers."""

    def talk(name: str) -> None:
        for number in range(10):
            with store.lease(name):
                store.append(name, cc.user(f"{number}"))

    threads = [threading.Thread(target=talk, args=(f"c{number}",)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for number in range(20):
        assert [message.text for message in store.load(f"c{number}")] == [str(each) for each in range(10)]


class Crowd:
    """A writer that is active until it is released, and others that come after it. `order` has the writers."""

    def __init__(self, store: cc.Store) -> None:
        self.store, self.order, self.found = store, list[str](), dict[str, Any]()
        self.line: WriteQueue = engine_of(store)._write_queue  # pyright: ignore[reportAttributeAccessIssue, reportPrivateUsage, reportUnknownMemberType]
        self.free, self._threads = threading.Event(), list[threading.Thread]()
        begun = threading.Event()

        def first(_: Transaction) -> None:
            begun.set()
            assert self.free.wait(PATIENCE)

        self.start(store.write, first)
        assert begun.wait(PATIENCE)

    def start(self, target: Callable[..., Any], *given: Any) -> None:
        self._threads.append(threading.Thread(target=target, args=given, daemon=True))
        self._threads[-1].start()

    def write(self, name: str) -> None:
        def work(tx: Transaction) -> Transaction:
            self.order.append(name)
            return append(name)(tx)

        self.found[name] = self.store.write(work)

    def join(self) -> None:
        self.free.set()
        for thread in self._threads:
            thread.join(PATIENCE)
            assert not thread.is_alive()

    def in_line(self, count: int) -> None:
        until(lambda: len(self.line._waiting) == count)  # pyright: ignore[reportPrivateUsage]


def until(true: Callable[[], bool]) -> None:
    for _ in range(int(PATIENCE / 0.001)):
        if true():
            return
        time.sleep(0.001)
    raise AssertionError("it did not come to that")


def test_the_main_thread_writes_for_itself_alone_and_next(store: cc.Store) -> None:
    """Guarantee 3.2: a Ctrl-C in it makes no other thread write twice; and queued writers do not delay it."""
    crowd = Crowd(store)
    crowd.start(crowd.write, "a")
    crowd.in_line(1)
    crowd.start(crowd.write, "b")
    crowd.in_line(2)

    def let_go() -> None:
        until(crowd.line._main_thread.locked)  # pyright: ignore[reportPrivateUsage]
        crowd.free.set()

    crowd.start(let_go)
    crowd.write("main")
    crowd.join()
    assert crowd.order == ["main", "a", "b"]
    assert crowd.found["main"] is not crowd.found["a"]
    assert crowd.found["a"] is crowd.found["b"]
    assert names(store) == ["a", "b", "main"]


def test_the_main_thread_does_not_keep_the_others_waiting(store: cc.Store) -> None:
    """The leader is let through before the main thread writes once more."""
    crowd = Crowd(store)
    crowd.join()

    def first(_: Transaction) -> None:
        crowd.order.append("main")
        crowd.start(crowd.write, "a")
        until(crowd.line._leader_waits.locked)  # pyright: ignore[reportPrivateUsage]

    store.write(first)
    crowd.write("main again")
    crowd.join()
    assert crowd.order == ["main", "a", "main again"]


def test_a_group_that_cannot_be_stored_is_not_tried_again(store: cc.Store) -> None:
    """Guarantee 3.2: one broken statement among many has each of them run once more, alone."""
    runs: Counter[str] = Counter()

    def counted(name: str) -> Callable[[Transaction], None]:
        def work(tx: Transaction) -> None:
            runs[name] += 1
            append(name)(tx) if name != "broken" else tx.run("INSERT INTO nowhere VALUES (1)")

        return work

    found = at_once(store, [*[counted(f"{number:02}") for number in range(30)], counted("broken")])
    assert isinstance(found[30], cc.errors.StoreError)
    assert names(store) == [f"{number:02}" for number in range(30)]
    assert set(runs.values()) == {2}


def test_the_end_of_a_thread_is_its_own(store: cc.Store) -> None:
    """Exceptions that are not ordinary errors also go to the thread that owns the work, and not to the leader."""
    ended: list[BaseException] = []

    def leave(_: Transaction) -> None:
        raise SystemExit

    def write() -> None:
        try:
            store.write(leave)
        except SystemExit as error:
            ended.append(error)

    crowd = Crowd(store)
    crowd.start(crowd.write, "a")
    crowd.in_line(1)
    crowd.start(write)
    crowd.in_line(2)
    crowd.join()
    assert len(ended) == 1
    assert names(store) == ["a"]


def test_a_plain_append_is_used_line_where_there_is_one(store: cc.Store) -> None:
    """Guarantee 3.2: alone it would compete for the file's lock with the group, and lose."""
    store.append("demo", cc.user("0"))
    crowd = Crowd(store)
    crowd.start(store.append, "demo", cc.user("1"))
    crowd.in_line(1)
    crowd.join()
    assert [message.text for message in store.load("demo")] == ["0", "1"]


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
@pytest.mark.parametrize("thread", ["main", "another"])
@pytest.mark.parametrize("how", ["append", "extend"])
def test_a_write_inside_a_write_is_refused(tmp_path: Path, kind: str, thread: str, how: str) -> None:
    """It would wait for itself, forever."""
    address = "memory:" if kind == "memory" else f"sqlite:///{tmp_path}/chat.db"
    with cc.open_store(address) as store:
        store.append("demo", cc.user("0"))

        def nested(tx: Transaction) -> None:
            append("outer")(tx)
            store.append("demo", cc.user("x")) if how == "append" else store.extend("demo", [cc.user("x")])

        def write() -> None:
            try:
                store.write(nested)
            except cc.errors.InvalidInput as error:
                refused.append(str(error))

        refused: list[str] = []
        if thread == "main":
            write()
        else:
            other = threading.Thread(target=write, daemon=True)
            other.start()
            other.join(PATIENCE)
        assert [text for text in refused if "Use the transaction that the work received" in text] == refused != []
        assert names(store) == []
        assert [message.text for message in store.extend("demo", [cc.user("1")])] == ["1"]


def test_a_write_inside_the_work_of_another_is_refused_to_that_one(store: cc.Store) -> None:
    """Whichever thread runs it."""
    found = at_once(store, [append("a"), lambda _: store.extend("demo", [cc.user("x")]), append("b")])
    assert isinstance(found[1], cc.errors.InvalidInput)
    assert names(store) == ["a", "b"]
