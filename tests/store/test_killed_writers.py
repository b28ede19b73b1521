"""kill -9 at random moments of appending and committing.

A child appends and says so after each append that returned; it is killed at a moment nobody chose. Then every append
that it reported must be there, none may be half there, and the store must open and go on.
"""

import multiprocessing
import os
import random
import signal
import time
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

import contextc as cc
from contextc.doctor import scan_store
from tests.conftest import often

RUNS = {"sqlite": often(2, 200), "postgres": often(2, 40)}
PROCESSES = multiprocessing.get_context("forkserver")


def append_until_killed(address: str, run: int, pipe: Connection) -> None:
    store = cc.open_store(address)
    number = 0
    while True:
        number += 1
        kind = number % 4
        if kind == 0:
            batch = [cc.user(f"{run}:{number}:{each}") for each in range(3)]
            stored = store.extend("demo", batch)
            pipe.send([message.id for message in stored])
        elif kind == 1:
            picture = cc.Media(mime_type="image/png", data=f"{run}:{number}".encode() * 3_000)
            pipe.send([store.append("demo", cc.user([cc.Text("look"), picture])).id])
        elif kind == 2:
            pipe.send([store.append("demo", cc.user(f"{run}:{number}"), key=f"{run}:{number}").id])
        else:
            with store.lease("demo", wait=60) as lease, store.stream(lease) as stream:
                stream.write(f"{run}:{number}")
                stream.flush()
                pipe.send([stream.end().id])


@pytest.mark.parametrize("backend", ["sqlite", "postgres"])
def test_every_append_that_returned_is_there_after_a_kill(
    backend: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Guarantees 3.2, 3.6."""
    sqlite = f"sqlite:///{tmp_path}/chat.db"
    address = sqlite if backend == "sqlite" else str(request.getfixturevalue("postgres_address"))
    chance = random.Random(20261115)
    promised: list[str] = []
    for run in range(RUNS[backend]):
        ours, theirs = PROCESSES.Pipe(duplex=False)
        child = PROCESSES.Process(target=append_until_killed, args=(address, run, theirs))
        child.start()
        theirs.close()
        promised += ours.recv() if ours.poll(60) else []
        time.sleep(chance.uniform(0, 0.02))
        assert child.pid is not None
        os.kill(child.pid, signal.SIGKILL)
        child.join()
        while True:
            try:
                promised += ours.recv()
            except EOFError:
                break
        ours.close()
        if run % 20 == 0 or run == RUNS[backend] - 1:
            check(address, promised)
        else:
            with cc.open_store(address) as store:
                tip = store.load("demo", last=50)
                assert set(promised[-20:]) <= {message.id for message in tip}


def check(address: str, promised: list[str]) -> None:
    with cc.open_store(address) as store:
        messages = store.load("demo")
        assert [message.seq for message in messages] == list(range(1, len(messages) + 1))
        assert set(promised) <= {message.id for message in messages}
        assert [finding for finding in scan_store(store) if finding.kind == "fault"] == []
        assert store.read(lambda tx: tx.row("SELECT count(*) FROM main.stream")) == (0,)
        batches = [message.text for message in messages if message.text.count(":") == 2]
        assert len(batches) % 3 == 0
        assert sum(part.status == "error" for part in messages) <= RUNS["sqlite"]
