"""Who watches which conversation, to be told when there is nothing more to watch: it was deleted.

A stream of events has no end of its own. Whoever deletes a conversation says so here, and its streams end at once; what
another process deletes is found by the thread that looks for its events (`executor.watching`).
"""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager

from contextc.executor.watching import hub
from contextc.store import Store


class Watchers:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._leaving: dict[str, set[asyncio.Event]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def count(self) -> int:
        """How many watch something."""
        return sum([len(each) for each in self._leaving.values()])

    @contextmanager
    def watching(self, conversation: str) -> Generator[asyncio.Event]:
        """An event that is set when the conversation is deleted."""
        self._loop = asyncio.get_running_loop()
        gone = asyncio.Event()
        self._leaving.setdefault(conversation, set()).add(gone)
        try:
            yield gone
        finally:
            left = self._leaving[conversation]
            left.discard(gone)
            if not left:
                del self._leaving[conversation]

    def deleted(self, conversation: str) -> None:
        """Say that a conversation is gone. From any thread."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._tell, conversation)

    def _tell(self, conversation: str) -> None:
        for gone in self._leaving.get(conversation, ()):
            gone.set()
        hub(self._store).look(conversation)  # they wait for events, and wake up
