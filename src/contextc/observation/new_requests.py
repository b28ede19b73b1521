"""Observed requests as they are recorded, by whichever process, read from the store.

One query returns the last request of each channel of the conversations that were active last; only new requests are
loaded.
"""

from typing import NamedTuple

from contextc.observation.conversation_finder import load_record
from contextc.observation.observed_request import ObservedRequest
from contextc.store import Store
from contextc.store.conversation_list import RECENT_CONVERSATIONS
from contextc.store.ledger_schema import Channel
from contextc.store.message_log import SEQ_MASK, make_place
from contextc.store.transaction_engine import Transaction


class _Position(NamedTuple):
    """The end of what was read: the number of the newest channel, and of the last request of each channel."""

    newest: int
    last: dict[int, int]


class NewRequestReader:
    """The requests that are recorded after this was created."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._position, _ = store.read(lambda tx: self._load(tx, None))

    def read_new(self) -> list[ObservedRequest]:
        """Return the requests that were recorded since the last call, oldest first."""
        self._position, found = self._store.read(lambda tx: self._load(tx, self._position))
        return sorted(found, key=lambda each: each.record.time)

    def _load(self, tx: Transaction, before: _Position | None) -> tuple[_Position, list[ObservedRequest]]:
        rows = tx.rows(
            "SELECT h.number, h.conversation, h.agent, h.provider, h.model, h.directory,"
            " (SELECT max(place) FROM main.manifest"
            " WHERE place BETWEEN h.number * 4294967296 AND h.number * 4294967296 + 4294967295)"
            " FROM main.channel h WHERE h.conversation IN (SELECT name FROM main.conversation"
            f" ORDER BY spoken DESC, number DESC LIMIT {RECENT_CONVERSATIONS:d})"
        )
        last = {row[0]: (row[6] or 0) & SEQ_MASK for row in rows}
        if before is None:
            newest = tx.row("SELECT max(number) FROM main.channel")
            return _Position((newest[0] if newest else 0) or 0, last), []
        found: list[ObservedRequest] = []
        for number, *names, _ in rows:
            known = before.last.get(number)
            if known is None:  # a new channel, or one that was not active for long
                known = 0 if number > before.newest else last[number] - 1
            for request in range(known + 1, last[number] + 1):
                record = load_record(tx, make_place(number, request))
                if record is not None and record.observed is not None:
                    found.append(
                        ObservedRequest(store=self._store, channel=Channel(*names), request=request, record=record)
                    )
        return _Position(max([before.newest, *last]), {**before.last, **last}), found
