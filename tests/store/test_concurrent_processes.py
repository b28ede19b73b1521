"""Many processes at once: no lost, doubled or reordered message."""

import multiprocessing
import os
import threading
from collections import Counter
from multiprocessing.synchronize import Barrier

import contextc as cc
from contextc.doctor import scan_store
from tests.conftest import often

WRITERS, APPENDS = 8, often(25, 500)
PROCESSES = multiprocessing.get_context("forkserver")


def append_many(address: str, writer: int, start: Barrier) -> None:
    with cc.open_store(address) as store:
        start.wait(60)
        for number in range(APPENDS):
            store.append("demo", cc.user(f"{writer}:{number}"))


def test_eight_processes_make_one_unbroken_chain(shared_address: str) -> None:
    """Guarantee 3.2, langgraph#8115: eight writers on other stores keep one message in eight. The losers of a race are
    retried inside, so none of them may end with an error; they also open the new store at the same moment."""
    start = PROCESSES.Barrier(WRITERS)
    writers = [PROCESSES.Process(target=append_many, args=(shared_address, number, start)) for number in range(WRITERS)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(240)
    assert [writer.exitcode for writer in writers] == [0] * WRITERS

    with cc.open_store(shared_address) as store:
        messages = store.load("demo")
        assert [message.seq for message in messages] == list(range(1, WRITERS * APPENDS + 1))
        assert list(scan_store(store)) == []
    texts = [message.text.split(":") for message in messages]
    assert Counter(writer for writer, _ in texts) == {str(number): APPENDS for number in range(WRITERS)}
    for number in range(WRITERS):
        assert [int(text) for writer, text in texts if writer == str(number)] == list(range(APPENDS))
    assert len({message.uid for message in messages}) == WRITERS * APPENDS


def test_many_threads_share_one_store(store: cc.Store) -> None:
    """A service calls the store from its worker threads."""
    failures: list[BaseException] = []

    def work(writer: int) -> None:
        try:
            for number in range(50):
                store.append("demo", cc.user(f"{writer}:{number}"), key=f"{writer}:{number}")
                store.load("demo", last=3)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert [message.seq for message in store.load("demo")] == list(range(1, 301))


def retry_the_same(address: str, start: Barrier) -> None:
    with cc.open_store(address) as store:
        start.wait(60)
        for number in range(50):
            store.append("demo", cc.user(str(number)), key=f"k{number}")


def test_the_same_keys_from_many_processes_are_stored_once(shared_address: str) -> None:
    """Guarantee 2.7: idempotent under concurrency too."""
    with cc.open_store(shared_address) as store:
        store.append("demo", cc.user("begin"))
    start = PROCESSES.Barrier(4)
    writers = [PROCESSES.Process(target=retry_the_same, args=(shared_address, start)) for _ in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    assert [writer.exitcode for writer in writers] == [0] * 4
    with cc.open_store(shared_address) as store:
        assert sorted(message.text for message in store.load("demo", after=1)) == sorted(map(str, range(50)))


def test_a_forked_process_gets_its_own_connections(shared_address: str) -> None:
    """Servers fork their workers after opening what they need; a shared connection would corrupt both."""
    with cc.open_store(shared_address) as store:
        store.append("demo", cc.user("parent"))
        child = os.fork()
        if child == 0:
            for _ in range(50):
                store.append("demo", cc.user("child"))
            os._exit(0)
        for _ in range(50):
            store.append("demo", cc.user("parent"))
        assert os.waitpid(child, 0)[1] == 0
        messages = store.load("demo")
        assert Counter(message.text for message in messages) == {"parent": 51, "child": 50}
        assert len({message.uid.rpartition("-")[2] for message in messages}) == 101
