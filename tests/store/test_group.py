"""Writers that come at once are brought to the disk together, and none of them notices."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import contextc as cc
from contextc.store.base import Transaction
from contextc.store.group import MOST

PATIENCE = 20.0


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with cc.open_store(f"sqlite:///{tmp_path}/chat.db") as handle:
        yield handle


def at_once(store: cc.Store, works: list[Callable[[Transaction], Any]]) -> list[Any]:
    """Have writers stand in line behind one that is at work, and go; what each got."""
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
    while len(store._line._waiting) < len(works):  # pyright: ignore[reportAttributeAccessIssue, reportPrivateUsage, reportUnknownMemberType, reportUnknownArgumentType]
        threading.Event().wait(0.001)
    free.set()
    for thread in [leader, *threads]:
        thread.join(PATIENCE)
    return found


def append(name: str) -> Callable[[Transaction], Transaction]:
    def work(tx: Transaction) -> Transaction:
        tx.run("INSERT INTO todo (conversation, agent, number, state, text) VALUES (?, 'a', 1, 'open', 't')", name)
        return tx

    return work


def names(store: cc.Store) -> list[str]:
    return store.read(lambda tx: [row[0] for row in tx.rows("SELECT conversation FROM todo ORDER BY conversation")])


def test_writers_in_line_are_one_transaction(store: cc.Store) -> None:
    """SPEC 3.2: durable when it returns, at the price of one commit for all who waited."""
    found = at_once(store, [append(f"c{number}") for number in range(8)])
    assert len({id(tx) for tx in found}) == 1
    assert names(store) == [f"c{number}" for number in range(8)]


def test_one_that_fails_takes_nothing_along(store: cc.Store) -> None:
    """SPEC 3.2: all of a write happens, or nothing of it; and others' is not its own."""

    def failing(tx: Transaction) -> None:
        append("never")(tx)
        raise cc.InvalidInput("not so")

    found = at_once(store, [append("a"), failing, append("b")])
    assert isinstance(found[1], cc.InvalidInput)
    assert names(store) == ["a", "b"]


def test_what_the_store_itself_refuses_makes_everybody_try_alone(store: cc.Store) -> None:
    """SPEC 3.2: one broken statement costs the others nothing."""

    def broken(tx: Transaction) -> None:
        tx.run("INSERT INTO nowhere VALUES (1)")

    found = at_once(store, [append("a"), broken, append("b")])
    assert isinstance(found[1], cc.StoreError)
    assert names(store) == ["a", "b"]


def test_more_than_fit_are_written_in_groups(store: cc.Store) -> None:
    found = at_once(store, [append(f"{number:04}") for number in range(MOST + 20)])
    assert len({id(tx) for tx in found}) > 1
    assert len(names(store)) == MOST + 20


def test_many_threads_that_append_lose_nothing(store: cc.Store) -> None:
    """SPEC 3.2: whoever writes, and however many."""

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


def test_the_main_thread_writes_for_itself_alone(store: cc.Store) -> None:
    """SPEC 3.2: a Ctrl-C that comes to it after a commit cannot make the others write once more."""
    begun, free = threading.Event(), threading.Event()
    found: dict[str, Transaction] = {}

    def first(_: Transaction) -> None:
        begun.set()
        assert free.wait(PATIENCE)

    def write(name: str) -> None:
        found[name] = store.write(append(name))

    def in_line(count: int) -> None:
        while len(store._line._waiting) < count:  # pyright: ignore[reportAttributeAccessIssue, reportPrivateUsage, reportUnknownMemberType, reportUnknownArgumentType]
            threading.Event().wait(0.001)

    def others() -> None:
        in_line(1)  # the main thread
        for thread in behind:
            thread.start()
        in_line(3)
        free.set()

    behind = [threading.Thread(target=write, args=(name,)) for name in ("a", "b")]
    leader, helper = threading.Thread(target=store.write, args=(first,)), threading.Thread(target=others)
    leader.start()
    assert begun.wait(PATIENCE)
    helper.start()
    write("main")
    for thread in (leader, helper, *behind):
        thread.join(PATIENCE)
    assert found["main"] is not found["a"]
    assert found["a"] is found["b"]
    assert names(store) == ["a", "b", "main"]
