"""Conversations that are analysed again and again while they grow: each time, only what is new is read and compared."""

from collections import OrderedDict
from collections.abc import Generator
from contextlib import contextmanager
from threading import Lock

from contextc.analysis.conversation_loader import ConversationLoader
from contextc.analysis.element_parser import ElementParser
from contextc.analysis.stored_conversation import StoredConversation
from contextc.store import Store

MAX_CONVERSATIONS = 4
"""The number of conversations that are kept. A long one takes some 100 MB."""


class _Analysed:
    """One conversation, with its loader."""

    def __init__(self, store: Store, name: str) -> None:
        self._store, self._loader = store, ConversationLoader(store, name)
        self._view: StoredConversation | None = None
        self.lock = Lock()

    @property
    def parser(self) -> ElementParser:
        return self._loader.parser

    def update(self) -> StoredConversation:
        loaded = self._loader.load()
        if self._view is None:
            self._view = StoredConversation(self._store, loaded)
        else:
            self._view.update(loaded)
        return self._view


class AnalysedConversations:
    """The most recently analysed conversations of a store. It can be used by several threads."""

    def __init__(self, store: Store, limit: int = MAX_CONVERSATIONS) -> None:
        self._store, self._limit = store, limit
        self._entries: OrderedDict[str, _Analysed] = OrderedDict()
        self._lock = Lock()

    @contextmanager
    def open(self, name: str) -> Generator[StoredConversation]:
        """Return the present state of a conversation, for one thread at a time. Raises `UnknownConversation`.

        What was computed from an earlier state is used again. After an error, nothing of it is kept.
        """
        entry = self._find(name)
        with entry.lock, self._keep_unless_error(name, entry):
            yield entry.update()

    @contextmanager
    def use_parser(self, name: str) -> Generator[ElementParser]:
        """Return the parser of a conversation, which keeps what it parsed; a new one if another thread uses it."""
        entry = self._find(name)
        if not entry.lock.acquire(blocking=False):
            yield ElementParser()
            return
        try:
            with self._keep_unless_error(name, entry):
                yield entry.parser
        finally:
            entry.lock.release()

    def _find(self, name: str) -> _Analysed:
        with self._lock:
            entry = self._entries.pop(name, None) or _Analysed(self._store, name)
            self._entries[name] = entry
            while len(self._entries) > self._limit:
                self._entries.popitem(last=False)
        return entry

    @contextmanager
    def _keep_unless_error(self, name: str, entry: _Analysed) -> Generator[None]:
        try:
            yield
        except BaseException:
            with self._lock:
                if self._entries.get(name) is entry:
                    del self._entries[name]
            raise
