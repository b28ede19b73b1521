"""Several processes on one conversation through an adapter: nothing is lost, and nothing is stored twice."""

import multiprocessing
from collections import Counter
from collections.abc import Callable
from multiprocessing.synchronize import Barrier
from typing import Any

import contextc as cc
from contextc.doctor import scan_store
from tests.fake_vendors.fake import FakeVendors
from tests.fake_vendors.replies import Reply
from tests.fake_vendors.vendor import AcceptedRequest

CONVERSATION = "shared"
WRITERS, TURNS = 8, 3
START_SECONDS, END_SECONDS = 240, 300
PROCESSES = multiprocessing.get_context("forkserver")
Ask = Callable[[str], object]
Work = Callable[[cc.Store, Any], Ask]
"""Makes an agent on the store and the fake vendors, and returns what asks it one question of `CONVERSATION`."""


class _Remote:
    """The fake vendors of another process."""

    def __init__(self, url: str) -> None:
        self._url = url

    def url(self, name: str) -> str:
        return self._url


def check_writers(address: str, vendor: str, work: Work) -> None:
    """Run processes that ask at once, each with a history of its own. Each of them is a branch."""
    start = PROCESSES.Barrier(WRITERS)
    with FakeVendors(_echo) as fake:
        url = fake.url(vendor)
        writers = [PROCESSES.Process(target=_run, args=(address, url, work, each, start)) for each in range(WRITERS)]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join(END_SECONDS)
        assert [writer.exitcode for writer in writers] == [0] * WRITERS
        assert not fake.refused
    with cc.open_store(address) as store:
        assert list(scan_store(store)) == []
        found = Counter(
            (message.role, message.text)
            for branch in store.branches(CONVERSATION)
            for message in store.load(CONVERSATION, branch=branch.number)
            if message.seq > branch.base
        )
    asked = [f"{writer}:{turn}" for writer in range(WRITERS) for turn in range(TURNS)]
    assert found == Counter([*[("user", text) for text in asked], *[("assistant", f"I got {text}.") for text in asked]])


def _echo(ask: AcceptedRequest) -> Reply:
    return Reply(f"I got {ask.request.messages[-1].text}.")


def _run(address: str, url: str, work: Work, writer: int, start: Barrier) -> None:
    with cc.open_store(address) as store:
        ask = work(store, _Remote(url))
        start.wait(START_SECONDS)
        for turn in range(TURNS):
            ask(f"{writer}:{turn}")
