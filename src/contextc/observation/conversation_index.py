"""The stored index of observed conversations: keys by which a request finds its conversation, sessions, and parents."""

from hashlib import blake2b
from typing import Literal, NamedTuple, TypeAlias

from contextc.compiler.ledger import repository
from contextc.compiler.ledger.observed_compression import unpack_record
from contextc.compiler.manifest import RequestRecord, record_from_json
from contextc.errors import StoreCorrupt
from contextc.observation.chain_writer import find_repaired, is_copy
from contextc.store.backend_interface import Transaction
from contextc.store.ledger_schema import Channel, ChannelState, RowRange
from contextc.store.message_rows import SEQ_BITS, SEQ_MASK, BranchTip, decode_row, make_place

Kind: TypeAlias = Literal["main", "agent", "side"]
MAX_CANDIDATES = 64
KEY_BYTES = 16
OWN_CONTENT = "own"
"""The kind of the key that marks a conversation with content of our own."""


class ConversationMatch(NamedTuple):
    """The conversation of a request; `name` is "" for a new one. `parent` is the request it belongs to, if it is not
    the main conversation of its session.
    """

    name: str = ""
    kind: Kind = "main"
    parent: int = 0
    parent_place: int = 0


class KnownThread(NamedTuple):
    """An observed conversation: number, name, kind, and the place of its last request."""

    number: int
    name: str
    agent: str
    kind: str


def make_key(kind: str, *values: str | bytes) -> bytes:
    """Return the stored form of a key."""
    joined = b"\0".join([kind.encode(), *(each.encode() if isinstance(each, str) else each for each in values)])
    return blake2b(joined, digest_size=KEY_BYTES, person=b"contextc observe").digest()


def content_key(key: bytes, group: str) -> bytes:
    """Return the stored form of the key of a conversation's content, within a group of conversations."""
    return make_key("content", group, key)


def find_by_key(tx: Transaction, key: bytes, model: str = "") -> list[tuple[int, str, int]]:
    """Return conversations with a key: number, name, place of the request. Requests to the model come first, then the
    most recent ones.
    """
    return [
        (number, name, place)
        for place, number, name in tx.rows(
            "SELECT k.place, k.conversation, c.name FROM observed_key k JOIN conversation c"
            " ON c.number = k.conversation LEFT JOIN channel h ON h.number = k.place / 4294967296 WHERE k.key = ?"
            f" ORDER BY CASE WHEN h.model = ? THEN 0 ELSE 1 END, k.place DESC LIMIT {MAX_CANDIDATES}",
            key,
            model,
        )
    ]


def has_key(tx: Transaction, key: bytes, conversation: int) -> bool:
    return tx.row("SELECT 1 FROM observed_key WHERE key = ? AND conversation = ?", key, conversation) is not None


def save_key(tx: Transaction, key: bytes, place: int, conversation: int) -> None:
    tx.run(
        "INSERT INTO observed_key (key, place, conversation) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
        key,
        place,
        conversation,
    )


def find_exchange(tx: Transaction, key: bytes) -> tuple[Channel, RequestRecord] | None:
    """Return the recorded request of an exchange with a key."""
    for (place,) in tx.rows("SELECT place FROM observed_key WHERE key = ?", key):
        sql = "SELECT conversation, agent, provider, model FROM channel WHERE number = ?"
        row, record = tx.row(sql, place >> SEQ_BITS), load_record(tx, place)
        if row is not None and record is not None:
            return Channel(*row), record
    return None


def session_threads(tx: Transaction, session: str) -> list[KnownThread]:
    """Return the conversations of a client's session, oldest first."""
    rows = tx.rows(
        "SELECT o.conversation, c.name, o.agent, o.kind FROM observed_conversation o"
        " JOIN conversation c ON c.number = o.conversation WHERE o.session = ? ORDER BY o.conversation",
        session,
    )
    return [KnownThread(*row) for row in rows]


def save_thread(tx: Transaction, number: int, client: str, session: str, agent: str, match: ConversationMatch) -> None:
    tx.run(
        "INSERT INTO observed_conversation (conversation, client, session, agent, kind, parent, parent_place)"
        " VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (conversation) DO UPDATE SET parent = excluded.parent,"
        " parent_place = excluded.parent_place WHERE observed_conversation.parent = 0 AND excluded.parent > 0",
        number,
        client,
        session,
        agent,
        match.kind,
        match.parent,
        match.parent_place,
    )


def last_request(tx: Transaction, conversation: str) -> int:
    """Return the place of the last request of a conversation; 0 if it has none."""
    row = tx.row(
        "SELECT max(m.place) FROM channel c JOIN manifest m ON m.place BETWEEN c.number * 4294967296 AND"
        " c.number * 4294967296 + 1073741824 WHERE c.conversation = ?",
        conversation,
    )
    return row[0] if row and row[0] is not None else 0


def load_record(tx: Transaction, place: int) -> RequestRecord | None:
    row = tx.row("SELECT body FROM manifest WHERE place = ?", place)
    return record_from_json(unpack_record(bytes(row[0]))) if row else None


def last_of_channel(tx: Transaction, place: int) -> int:
    """Return the number of the last request on the channel of a request."""
    channel = place >> SEQ_BITS
    row = tx.row(
        "SELECT max(place) FROM manifest WHERE place BETWEEN ? AND ?",
        channel << SEQ_BITS,
        (channel << SEQ_BITS) + (1 << 30),
    )
    return row[0] & SEQ_MASK if row and row[0] is not None else 0


def is_changed_here(tx: Transaction, conversation: str, at: BranchTip, state: ChannelState) -> bool:
    """Return True if a conversation was edited, rewound or continued here: no recent request of a client ends where it
    ends now. `state` is that of the channel that is written next.
    """
    now = make_place(at.branch, at.seq)
    if not at.seq or now in ([each.place for each in state.produced] or [make_place(state.branch, state.seen)]):
        return False
    for number, _, found, _ in repository.load_channels(tx, conversation):
        for request in range(found.requests, max(0, found.requests - MAX_CANDIDATES), -1):
            record = load_record(tx, make_place(number, request))
            if record is not None and record.observed is not None:
                ends = record.produced or (make_place(record.branch, record.tip),)
                if now in ends:
                    return False
    return find_repaired(tx, at) is None or not is_copy(tx, now)


def has_own_content(tx: Transaction, name: str, at: BranchTip) -> bool:
    """Return True if a conversation has a turn, a request or a message that observation has not recorded.

    Observed traffic is never added to it. The result is remembered: such content stays. If nothing happened since the
    last observed request, which was checked too, one request is read. Otherwise all of them are.
    """
    mark = make_key(OWN_CONTENT)
    if has_key(tx, mark, at.conversation):
        return True
    low, high = make_place(at.conversation, 0), make_place(at.conversation, SEQ_MASK)
    if tx.row("SELECT 1 FROM turn WHERE place BETWEEN ? AND ?", low, high) is not None:
        return True
    if tx.row("SELECT 1 FROM observed_conversation WHERE conversation = ?", at.conversation) is None:
        return at.seq > 0
    now = make_place(at.branch, at.seq)
    for number, _, state, _ in repository.load_channels(tx, name):
        ends = [each.place for each in state.produced] or [make_place(state.branch, state.seen)]
        if now in ends and state.revision == at.revision:
            record = load_record(tx, make_place(number, state.requests))
            if record is not None and record.observed is not None:
                return False
    observed = load_observed_places(tx, name)
    branches = tx.rows("SELECT number FROM branch WHERE conversation = ?", name)
    if observed is not None and all(
        place in observed or is_copy(tx, place)
        for (branch,) in branches
        for (place,) in tx.rows(
            "SELECT place FROM message WHERE place BETWEEN ? AND ?", make_place(branch, 0), make_place(branch, SEQ_MASK)
        )
    ):
        return False
    save_key(tx, mark, 0, at.conversation)
    return True


def load_observed_places(tx: Transaction, conversation: str) -> set[int] | None:
    """Return the places of all messages of observed requests; None if there is a request that is not one of them."""
    places: set[int] = set()
    try:
        for channel, _, _, attempt in repository.load_channels(tx, conversation):
            if attempt is not None:
                return None
            for body in repository.load_manifests(tx, channel, SEQ_MASK):
                record = decode_row(record_from_json, body, "The manifest of a request")
                if record.observed is None:
                    return None
                places.update(record.produced)
            for _, row, _ in repository.load_row_items(tx, [RowRange(channel, 0, SEQ_MASK)]):
                places.update([item.place for item in row.items])
    except StoreCorrupt:
        return None
    return places


def link_waiting(tx: Transaction, session: str, parent: int, place: int) -> None:
    """Link side requests that came before the first request of their session's main conversation."""
    tx.run(
        "UPDATE observed_conversation SET parent = ?, parent_place = ? WHERE session = ? AND parent = 0"
        " AND kind <> 'main'",
        parent,
        place,
        session,
    )
