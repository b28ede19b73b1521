"""Stored conversations with the same prefix as an imported one without an id: a log may be cut, rotated or extended.

Only conversations with the same first message are read, each once per import.
"""

from collections.abc import Sequence

from msgspec import MsgspecError

from contextc.interchange.found_conversation import read_origin
from contextc.interchange.stored_tree_match import StoredTree, extend_path
from contextc.messages import Message, decode_message
from contextc.store import Store
from contextc.store.append_and_load import PendingMessage
from contextc.store.backend_interface import Transaction
from contextc.store.message_rows import SEQ_MASK


class PrefixIndex:
    """The stored conversations of one source that have no id there."""

    def __init__(self, store: Store, source: str) -> None:
        self.store, self.source = store, source
        self._by_beginning: dict[bytes, list[str]] | None = None
        self._read: set[str] = set()
        self._by_path: dict[bytes, dict[str, bool]] = {}

    def find_names(self, lines: Sequence[Sequence[PendingMessage]]) -> list[str]:
        """Return the conversations that contain a line or are contained in one, the longest match first."""
        if self._by_beginning is None:
            self._by_beginning = self.store.read(self._beginnings)
        found: dict[str, int] = {}
        for line in lines if self._by_beginning else ():
            ways = _path_hashes([entry.admitted.message for entry in line])
            self._load({name for way in ways[:2] for name in self._by_beginning.get(way, ())})
            for length, way in enumerate(ways, 1):
                for name, is_end in self._by_path.get(way, {}).items():
                    if is_end or length == len(line):
                        found[name] = max(found.get(name, 0), length)
        return sorted(found, key=lambda name: -found[name])

    def _load(self, names: set[str]) -> None:
        """Read the conversations that were not read yet."""
        for name in sorted(names - self._read):
            self._read.add(name)
            for way, is_end in self.store.read(
                lambda tx, name=name: list(StoredTree(tx, name, lock=False).path_hashes())
            ):
                known = self._by_path.setdefault(way, {})
                known[name] = known.get(name, False) or is_end

    def _beginnings(self, tx: Transaction) -> dict[bytes, list[str]]:
        """Return the conversations by their first message; after a system prompt, by the first two."""
        first: dict[str, Message] = {}
        found: dict[bytes, list[str]] = {}
        for name, place, body in tx.rows(
            "SELECT c.name, m.place, m.body FROM conversation c"
            " JOIN branch b ON b.conversation = c.name AND b.tree = c.tree AND b.base_seq < 2"
            " JOIN message m ON m.place BETWEEN b.number * 4294967296 + 1 AND b.number * 4294967296 + 2"
            " ORDER BY m.place"
        ):
            try:
                message = decode_message(body)
            except MsgspecError:
                continue
            if place & SEQ_MASK == 1 and not message.redacted and self._is_nameless(message):
                first[name] = message
                found.setdefault(extend_path(b"", message), []).append(name)
            elif place & SEQ_MASK == 2 and name in first and first[name].role == "system":
                found.setdefault(extend_path(extend_path(b"", first[name]), message), []).append(name)
        alone = {extend_path(b"", message) for message in first.values() if message.role == "system"}
        return {way: names for way, names in found.items() if way not in alone}

    def _is_nameless(self, message: Message) -> bool:
        origin = read_origin(message)
        return origin is not None and origin.source == self.source and not origin.is_unique


def _path_hashes(messages: Sequence[Message]) -> list[bytes]:
    path, found = b"", list[bytes]()
    for message in messages:
        path = extend_path(path, message)
        found.append(path)
    return found
