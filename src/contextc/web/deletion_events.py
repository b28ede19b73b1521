"""Notification of event streams when their conversation is deleted.

An event stream has no end of its own. A deletion in this process ends the streams at once. Deletions by other processes
are found by the thread that polls for events (`executor.event_hub`).
"""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager

from contextc.executor.event_hub import event_hub
from contextc.store import Store


class DeletionEvents:
    """The open event streams, by conversation."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._leaving: dict[str, set[asyncio.Event]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def count(self) -> int:
        """Number of open streams."""
        return sum([len(each) for each in self._leaving.values()])

    @contextmanager
    def watch(self, conversation: str) -> Generator[asyncio.Event]:
        """Yield an event that is set when the conversation is deleted."""
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

    def notify_deleted(self, conversation: str) -> None:
        """Notify the streams of a deleted conversation. Thread-safe."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._notify, conversation)

    def _notify(self, conversation: str) -> None:
        for gone in self._leaving.get(conversation, ()):
            gone.set()
        event_hub(self._store).refresh(conversation)  # wake the streams, which wait for events
