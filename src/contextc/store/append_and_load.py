"""Append messages to a chain, and load them.

An append reads one conversation row and one message row, and writes one row, whatever the length of the history.
"""

import os
from collections.abc import Sequence
from itertools import count
from time import time_ns
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from contextc.errors import (
    InvalidInput,
    InvalidMessage,
    KeyReused,
    StaleParent,
)
from contextc.messages import (
    Media,
    Message,
    ProviderBlock,
    ValidatedMessage,
    canonical_content,
    decode_message,
    encode_message,
    make_chain_id,
    make_root_id,
    validate_message,
)
from contextc.store.backend_interface import Transaction
from contextc.store.conversation_types import Reference
from contextc.store.message_rows import (
    DECODE_ERRORS,
    MAX_NAME,
    NUMBERED_TABLES,
    SEQ_BITS,
    SEQ_MASK,
    UID_PATTERN,
    BranchTip,
    check_name,
    check_new_name,
    decode_message_row,
    find_by_name,
    find_gap_error,
    find_message,
    find_tip,
    hash_mismatch_error,
    load_branch_base,
    load_lineage,
    load_root,
    load_tip,
    load_tip_of_branch,
    make_place,
    missing_message_error,
    set_last_active,
    split_by_branch,
    to_id,
)

# ── comparison of a client's history ──────────────────────────────────────────────────────────────────────────────────
# Stateless clients send their whole history with every request. It may lack entries that they never received (system
# messages, tool calls, a reply whose connection broke). It is therefore matched as a subsequence of the stored chain:
# by uid if the client sends one, otherwise by role, author, text, media and call ids. The unmatched end is new.
#
# User messages are never skipped. If one is missing or has other content, even under the same uid, the client edited
# its history. The new tail then goes to a new branch after the last common message.


VERSION_SEPARATOR = "~"  # an edit under the same uid is stored as `uid~2`, `uid~3` …


class HistoryDifference(NamedTuple):
    """The result of a comparison: the last `new_count` messages of the client are new and follow message `after`.

    `rewrites` is True if other messages follow there in the stored chain.
    """

    new_count: int
    after: int
    rewrites: bool


def compare_histories(stored: Sequence[Message], client_messages: Sequence[Message]) -> HistoryDifference:
    matched, cursor = 0, 0
    for message in client_messages:
        found = _find_in_chain(stored, cursor, message)
        if found is None:
            break
        matched, cursor = matched + 1, found + 1
    if matched == len(client_messages):
        return HistoryDifference(0, len(stored), False)
    first = client_messages[matched]
    rewrites = any(_was_omitted(message, first) for message in stored[cursor:])
    return HistoryDifference(len(client_messages) - matched, cursor if rewrites else len(stored), rewrites)


def original_uid(uid: str) -> str:
    """Return the uid that the client uses for a message, without the version suffix."""
    before, _, version = uid.rpartition(VERSION_SEPARATOR)
    return before if before and version.isdigit() else uid


def _find_in_chain(ours: Sequence[Message], start: int, wanted: Message) -> int | None:
    for index in range(start, len(ours)):
        if _is_same_message(ours[index], wanted) or (ours[index].redacted and _was_redacted_as(ours, index, wanted)):
            return index
        if ours[index].role == "user" and _may_share_author(ours[index], wanted):
            return None
    return None


def _is_same_message(ours: Message, theirs: Message) -> bool:
    if theirs.uid:
        known = ours.uid == theirs.uid or original_uid(ours.uid) == theirs.uid
        return known and (
            ours.role != "user" or ours.redacted or _comparable_content(ours) == _comparable_content(theirs)
        )
    calls = _call_ids(theirs)
    return (
        not ours.redacted
        and ours.role == theirs.role
        and _may_share_author(ours, theirs)
        and (not calls or calls == _call_ids(ours))
        and (theirs.role == "tool" or _comparable_content(ours) == _comparable_content(theirs))
    )


def _was_redacted_as(ours: Sequence[Message], index: int, theirs: Message) -> bool:
    """Return True if a redacted message had this content, judged by its id: it must not be stored again as new.

    A message without an author matches any author.
    """
    gone = ours[index]
    before = bytes.fromhex(ours[index - 1].id) if index else None
    versions = [replace(theirs, author=author) for author in (theirs.author, gone.author)]
    return gone.role == theirs.role and (
        before is None
        or any(make_chain_id(before, canonical_content(version)).hex() == gone.id for version in versions)
    )


def _comparable_content(message: Message) -> tuple[str, list[object]]:
    media = [part for part in message.parts if isinstance(part, Media | ProviderBlock)]
    return message.text.strip(), [
        part.data if isinstance(part, ProviderBlock) else part.blob or part.url or part.file_id or "" for part in media
    ]


def _call_ids(message: Message) -> list[str]:
    asked = [call.id for call in message.tool_calls]
    return asked + [result.call_id for result in message.tool_results]


def _may_share_author(one: Message, other: Message) -> bool:
    """Return True if two messages may have the same author. A message without an author matches any."""
    return one.author is None or other.author is None or one.author == other.author


def _was_omitted(passed: Message, first_new: Message) -> bool:
    """Return True if the client must have received `passed`, so that it was omitted on purpose."""
    if passed.role == "user":
        return _may_share_author(passed, first_new)
    return passed.role == "assistant" and first_new.role == "assistant"


# ── append and load ───────────────────────────────────────────────────────────────────────────────────────────────────


class PendingMessage(Struct, frozen=True, gc=False):
    """A message to append, with the values that stay the same when its transaction is retried.

    Its uid is the given one, or is made of its place and `random_id`, which is random. `attempts` lists the places it
    was written to, each with its id. A retry looks only at these places for a row that an earlier attempt stored.
    """

    admitted: ValidatedMessage
    random_id: int
    time: int
    attempts: list[tuple[int, bytes]]


def now_ms() -> int:
    return time_ns() // 1_000_000


random_ids = count(int.from_bytes(os.urandom(8)) >> 1)  # a random start, different in every process


def _reset_random_ids() -> None:
    global random_ids
    random_ids = count(int.from_bytes(os.urandom(8)) >> 1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_random_ids)


def prepare_entry(admitted: ValidatedMessage) -> PendingMessage:
    return PendingMessage(admitted, next(random_ids), admitted.message.time or time_ns() // 1_000_000, [])


def validate_for(message: Message, conversation: str, *, index: int | None = None) -> ValidatedMessage:
    """Validate a message. An error names the conversation, and the message's index in a list."""
    try:
        return validate_message(message)
    except InvalidMessage as error:
        raise error.within(conversation, index) from None


def new_uid() -> str:
    """Return a uid for a message whose place is not known yet."""
    return f"{now_ms():012x}{os.urandom(10).hex()}"


class VerifiedRanges:
    """The range of each branch whose rows a store handle has read and verified against their ids."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[int, int]] = {}

    def first_unverified(self, branch: int, first: int, last: int) -> int:
        """Return the first seq from `first` to `last` that was not verified yet, or a seq after `last` if all were."""
        low, high = self._known.get(branch, (0, 0))
        return high + 1 if low <= first <= high else first

    def add(self, branch: int, first: int, last: int) -> None:
        low, high = self._known.get(branch, (first, last))
        if first <= high + 1 and last >= low - 1:
            self._known[branch] = min(low, first), max(high, last)
        elif last - first > high - low:
            self._known[branch] = first, last


def load_between(
    tx: Transaction, branch: int, after: int, until: int, verified: VerifiedRanges | None = None
) -> list[Message]:
    """Return the messages of the chain that ends on `branch`, after seq `after` up to seq `until`.

    Raises `StoreCorrupt` if a row is missing or does not match its id. Rows in `verified` are not verified again.
    """
    found: list[Message] = []
    for number, first, last in split_by_branch(load_lineage(tx, branch), after, until):
        unknown = first if verified is None else verified.first_unverified(number, first, last)
        if first < unknown:
            found += _load_verified(tx, number, first, min(last, unknown - 1))
        if unknown <= last:
            found += load_and_verify(tx, number, unknown, last)
            if verified is not None:
                verified.add(number, first, last)
    return found


def _load_verified(tx: Transaction, branch: int, first: int, last: int) -> list[Message]:
    """Load messages of a branch that were verified before."""
    low, high = make_place(branch, first), make_place(branch, last)
    rows = tx.rows("SELECT body FROM message WHERE place BETWEEN ? AND ? ORDER BY place", low, high)
    try:
        if len(rows) == last - first + 1:
            return [decode_message(body) for (body,) in rows]
    except DECODE_ERRORS:
        pass
    return load_and_verify(tx, branch, first, last)  # raises, and names the row


def load_and_verify(tx: Transaction, branch: int, first: int, last: int) -> list[Message]:
    """Return the messages `first` to `last` of a branch.

    Raises `StoreCorrupt` if one is missing or does not match its id.
    """
    low, high = make_place(branch, first), make_place(branch, last)
    rows = tx.rows("SELECT place, id, body FROM message WHERE place BETWEEN ? AND ? ORDER BY place", low - 1, high)
    previous = rows.pop(0)[1] if rows and rows[0][0] < low else None
    if len(rows) != last - first + 1:
        raise find_gap_error(tx, branch, [where for where, _, _ in rows], first, last)
    found, before = list[Message](), _find_base_id(tx, branch, first) if previous is None else to_id(previous)
    for where, stored, body in rows:
        message, identity = decode_message_row(tx, where, body), to_id(stored)
        is_right = message.id == identity.hex() and message.seq == where & SEQ_MASK
        if not is_right or not (message.redacted or make_chain_id(before, canonical_content(message)) == identity):
            raise hash_mismatch_error(tx, where)
        found.append(message)
        before = identity
    return found


def _find_base_id(tx: Transaction, branch: int, seq: int) -> bytes:
    """Return the id of the message, or root, after which a branch begins. Raise if `seq` is not its first message."""
    base, base_id = load_branch_base(tx, branch)
    if base != seq - 1:
        raise find_gap_error(tx, branch, [], seq - 1, seq - 1)
    return base_id


def load_messages(
    tx: Transaction,
    conversation: str,
    *,
    last: int | None = None,
    after: Reference | None = None,
    until: Reference | None = None,
    branch: int | None = None,
    verified: VerifiedRanges | None = None,
) -> list[Message]:
    at = load_tip(tx, conversation)
    if branch is not None and branch != at.branch:
        at = load_tip_of_branch(tx, conversation, at, branch)
    low = 0 if after is None else find_message(tx, conversation, at, after).seq
    high = at.seq if until is None else find_message(tx, conversation, at, until).seq
    if last is not None:
        if not isinstance(last, int) or last < 0:
            raise InvalidInput("last must be an integer, 0 or more", got=last)
        low = max(low, high - last)
    return load_between(tx, at.branch, low, high, verified)


class MessageWindow(NamedTuple):
    """A range of messages of a branch, the length of the branch, and its number."""

    messages: list[Message]
    length: int
    branch: int


def load_window(
    tx: Transaction, conversation: str, *, after: int = 0, before: int | None = None, limit: int, branch: int | None
) -> MessageWindow:
    """Load at most `limit` messages: the first ones after a seq, or the last ones before a seq."""
    at = load_tip(tx, conversation)
    if branch is not None and branch != at.branch:
        at = load_tip_of_branch(tx, conversation, at, branch)
    high = at.seq if before is None else max(0, min(at.seq, before - 1))
    low = max(after, high - limit) if before is not None else after
    return MessageWindow(load_between(tx, at.branch, low, min(high, low + limit)), at.seq, at.branch)


def append_messages(
    tx: Transaction,
    conversation: str,
    entries: Sequence[PendingMessage],
    *,
    key: str | None = None,
    parent: Reference | None = None,
) -> list[Message]:
    """Append messages to a conversation, which is created if it does not exist."""
    at = find_tip(tx, conversation, True) or insert_conversation(tx, conversation)
    if tx.is_retry and (stored := find_stored(tx, entries)):
        return stored
    if key is not None and (known := find_by_key(tx, conversation, key, entries[0])):
        return [known]
    if parent is not None and (known := _find_after_parent(tx, conversation, at, parent, entries[0])):
        return [known]
    stored = insert_messages(tx, conversation, at, entries)
    if key is not None:
        values = (conversation, key, make_place(at.branch, stored[0].seq))
        tx.send("INSERT INTO append_key (conversation, key, place) VALUES (?, ?, ?)", *values)
    return stored


def insert_messages(
    tx: Transaction, conversation: str, at: BranchTip, entries: Sequence[PendingMessage]
) -> list[Message]:
    stored: list[Message] = []
    rows: list[tuple[int, bytes, int, bytes]] = []
    for entry in entries:
        message, row = build_row(at, entry)
        if uid := entry.admitted.message.uid:
            _reserve_uid(tx, conversation, at.tree, uid, row[0])
        if entry.admitted.blobs:
            save_blobs(tx, conversation, row[0], entry.admitted.blobs)
        stored.append(message)
        rows.append(row)
        at = BranchTip(at.conversation, at.tree, at.branch, at.revision, message.seq, row[1], at.last_active)
    if len(rows) == 1:
        tx.send(INSERT_MESSAGE, *rows[0])
    elif rows:
        tx.run_many(INSERT_MESSAGE, rows)
    if stored:
        set_last_active(tx, at, stored[-1].time)
    return stored


def build_row(tip: BranchTip, entry: PendingMessage) -> tuple[Message, tuple[int, bytes, int, bytes]]:
    """Return the message as the next one of a conversation, and its row: place, id, time, body."""
    message, moment = entry.admitted.message, entry.time
    branch, seq, identity = tip.branch, tip.seq + 1, make_chain_id(tip.id, entry.admitted.content)
    message = replace(message, uid=_uid(entry, branch, seq), id=identity.hex(), seq=seq, time=moment)
    where = branch << SEQ_BITS | seq
    entry.attempts.append((where, identity))
    return message, (where, identity, moment, encode_message(message))


def _uid(entry: PendingMessage, branch: int, seq: int) -> str:
    return entry.admitted.message.uid or f"{branch:x}-{seq:x}-{entry.random_id:016x}"


INSERT_MESSAGE = "INSERT INTO message (place, id, time, body) VALUES (?, ?, ?, ?)"
APPEND_AT_TIP = (  # SQLite; without an id the row is ignored. A SELECT as the source would need a temporary table
    "INSERT OR IGNORE INTO message (place, id, time, body) VALUES (?, (SELECT ? FROM conversation WHERE number = ?"
    " AND branch = ? AND revision = ? AND EXISTS (SELECT 1 FROM message WHERE place = ? AND id = ?)), ?, ?)"
)


def values_at_tip(row: tuple[int, bytes, int, bytes], tip: BranchTip) -> tuple[object, ...]:
    """Return the values of `APPEND_AT_TIP`: the branch must be current, and its last message where it was seen."""
    place, identity, time, body = row
    return place, identity, tip.conversation, tip.branch, tip.revision, place - 1, tip.id, time, body


def insert_conversation(tx: Transaction, conversation: str, root_id: bytes | None = None) -> BranchTip:
    """Create a conversation with its own root."""
    check_new_name(conversation)
    root_id, moment = root_id or make_root_id(), now_ms()
    made = tx.row(
        "INSERT INTO conversation (name, tree, branch, created, spoken) VALUES (?, 0, 0, ?, ?) ON CONFLICT DO NOTHING"
        " RETURNING number",
        conversation,
        moment,
        moment // 1000,
    )
    if made is None:  # another writer created it; its transaction has ended by now
        return load_tip(tx, conversation, lock=True)
    branch = insert_branch(tx, conversation, tree=None, parent=None, base_seq=0, base_id=root_id)
    tx.send("UPDATE conversation SET tree = ?, branch = ? WHERE name = ?", branch, branch, conversation)
    if tx.locked is not None:  # no other transaction sees it
        tx.locked.conversations.add(conversation)
        tx.locked.last_numbers |= {(table, made[0]): 0 for table in NUMBERED_TABLES}
    return BranchTip(made[0], branch, branch, 0, 0, root_id, moment // 1000)


def insert_branch(
    tx: Transaction, conversation: str, *, tree: int | None, parent: int | None, base_seq: int, base_id: bytes
) -> int:
    """Create a branch that begins after a message. The number of a tree is that of its first branch."""
    row = tx.row(
        "INSERT INTO branch (tree, parent, base_seq, base_id, conversation, created) VALUES (?, ?, ?, ?, ?, ?)"
        " RETURNING number",
        tree or 0,
        parent,
        base_seq,
        base_id,
        conversation,
        now_ms(),
    )
    assert row is not None, "an insert that returns a number returns one"
    number: int = row[0]
    if tree is None:
        tx.send("UPDATE branch SET tree = number WHERE number = ?", number)
    return number


def check_blobs(tx: Transaction, conversation: str, blobs: dict[str, bytes | None]) -> None:
    """Raise `InvalidMessage` if a named blob is not in the store."""
    for name, data in blobs.items():
        if data is None and tx.row(f"SELECT 1 FROM blob WHERE name = ?{tx.dialect.row_lock}", name) is None:
            raise InvalidMessage(
                f"the store has no blob {name}",
                field="blob",
                conversation=conversation,
                fix="Pass the bytes with `data`.",
            )


def save_blobs(tx: Transaction, conversation: str, where: int, blobs: dict[str, bytes | None]) -> None:
    check_blobs(tx, conversation, blobs)
    for name, data in blobs.items():
        if data is not None:
            # The update without effect locks the row: no other transaction can remove the unused blob meanwhile.
            tx.send(
                "INSERT INTO blob (name, data) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET name = excluded.name",
                name,
                data,
            )
        tx.send("INSERT INTO blob_use (name, place) VALUES (?, ?)", name, where)


def find_stored(tx: Transaction, entries: Sequence[PendingMessage]) -> list[Message]:
    """Return the messages that an earlier attempt of the same transaction stored, if its commit was not confirmed.

    A row is ours if it is at a place that was tried, with the id and the uid that were tried there.
    """
    return [message for entry in entries if (message := _find_stored_one(tx, entry)) is not None]


def _find_stored_one(tx: Transaction, entry: PendingMessage) -> Message | None:
    for where, identity in entry.attempts:
        row = tx.row("SELECT body FROM message WHERE place = ? AND id = ? AND time = ?", where, identity, entry.time)
        if row is not None:
            message = decode_message_row(tx, where, row[0])
            if message.uid == _uid(entry, where >> SEQ_BITS, where & SEQ_MASK):
                return message
    return None


def find_by_key(tx: Transaction, conversation: str, key: str, wanted: PendingMessage) -> Message | None:
    """Return the message that was appended with a key. Raises `KeyReused` if it has other content."""
    check_name(key, "key")
    row = tx.row(
        "SELECT k.place, m.body FROM append_key k LEFT JOIN message m ON m.place = k.place"
        " WHERE k.conversation = ? AND k.key = ?",
        conversation,
        key,
    )
    if row is None:
        return None
    if row[1] is None:
        raise missing_message_error(conversation, row[0] & SEQ_MASK)
    stored = decode_message_row(tx, *row)
    if not stored.redacted and canonical_content(stored) != wanted.admitted.content:
        raise KeyReused(conversation, key, seq=stored.seq)
    return stored


def _find_after_parent(
    tx: Transaction, conversation: str, at: BranchTip, parent: Reference, wanted: PendingMessage
) -> Message | None:
    """Return None if the stated parent is the tip, or the message if it already follows that parent."""
    if isinstance(parent, str) and parent == load_root(tx, at.tree).hex():
        parent = 0
    spot = find_message(tx, conversation, at, parent)
    if spot.seq == at.seq:
        return None
    (follower,) = load_between(tx, at.branch, spot.seq, spot.seq + 1)
    if follower.id == make_chain_id(spot.id, wanted.admitted.content).hex():
        return follower
    raise StaleParent(conversation, spot.seq, tip=at.id.hex(), behind=at.seq - spot.seq)


def find_free_uid(tx: Transaction, tree: int, uid: str) -> str:
    """Return the uid, or a new version of it if it is taken."""
    free, version = uid, 1
    while free and find_by_name(tx, tree, free):
        version += 1
        free = f"{uid[: MAX_NAME - 10]}{VERSION_SEPARATOR}{version}"
    return free


def _reserve_uid(tx: Transaction, conversation: str, tree: int, uid: str, where: int) -> None:
    check_name(uid, "message")
    if (UID_PATTERN.fullmatch(uid) and find_by_name(tx, tree, uid)) or not tx.run(
        "INSERT INTO early_uid (tree, uid, place) VALUES (?, ?, ?) ON CONFLICT DO NOTHING", tree, uid, where
    ):
        raise InvalidMessage(
            f"there is already a message {uid!r}",
            field="uid",
            conversation=conversation,
            fix="Leave uid empty for a new message, or use `key` to append once.",
        )
