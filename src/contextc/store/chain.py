"""Appending to a chain and reading it back: the two things that happen all the time.

A chain is read along its lineage: the branch itself, then the part of its parent up to where it begins, and so on to
the root. Each stretch is one range of the message table. An append looks at one conversation row and one message row,
whatever the length of the history, and writes one row.
"""

import os
import re
from collections.abc import Iterator, Sequence
from itertools import count
from time import time_ns
from typing import NamedTuple

from msgspec import MsgspecError
from msgspec.structs import replace

from contextc.errors import (
    InvalidInput,
    InvalidMessage,
    KeyReused,
    StaleParent,
    StoreCorrupt,
    UnknownConversation,
    UnknownMessage,
)
from contextc.messages import (
    Admitted,
    Message,
    chain_id,
    content_of,
    from_json,
    new_root,
    to_json,
)
from contextc.store.base import Reference, Transaction

SEQ_BITS = 32
SEQ_MASK = (1 << SEQ_BITS) - 1
MAX_NAME = 512
UID = re.compile("([0-9a-f]{1,8})-([0-9a-f]{1,8})-[0-9a-f]{16}")
ID = re.compile("([0-9a-f]{8})[0-9a-f]{4,32}")
LOOK_BACK = 10_000


class Head(NamedTuple):
    """Where a conversation's current branch ends: its last message, or the root."""

    conversation: int
    tree: int
    branch: int
    revision: int
    seq: int
    id: bytes


class Spot(NamedTuple):
    """A message found: the branch that holds it, its seq and its id. Seq 0 is the root."""

    branch: int
    seq: int
    id: bytes


class Entry(NamedTuple):
    """A message on its way in, with what stays the same if its transaction has to be run again.

    Its uid is the one it brought, or its place and `mark`, which is random.
    """

    admitted: Admitted
    mark: str
    time: int


def place(branch: int, seq: int) -> int:
    return branch << SEQ_BITS | seq


def now_ms() -> int:
    return time_ns() // 1_000_000


def entry(admitted: Admitted) -> Entry:
    return Entry(admitted, f"{next(_marks):016x}", admitted.message.time or time_ns() // 1_000_000)


def new_marks() -> "count[int]":
    """Numbers no other process counts through: a random start each."""
    return count(int.from_bytes(os.urandom(8)) >> 1)


_marks = new_marks()


def after_fork() -> None:
    global _marks
    _marks = new_marks()


def new_uid() -> str:
    """A name for a message whose place is not known yet."""
    return f"{now_ms():012x}{os.urandom(10).hex()}"


def check_name(name: object, what: str = "conversation") -> None:
    if not isinstance(name, str) or not name or len(name) > MAX_NAME or not name.isprintable():
        raise InvalidInput(f"{name!r} cannot name a {what}: use 1 to {MAX_NAME} printable characters.")


# ── where things are ──────────────────────────────────────────────────────────────────────────────────────────────────


def head(tx: Transaction, conversation: str, *, lock: bool = False) -> Head:
    """The conversation's end. With `lock`, nobody else may move it before this transaction is over."""
    found = _head(tx, conversation, lock)
    if found is None:
        raise UnknownConversation(conversation)
    return found


def _head(tx: Transaction, conversation: str, lock: bool) -> Head | None:
    check_name(conversation)
    if lock and tx.dialect.lock:
        tx.row(f"SELECT 1 FROM conversation WHERE name = ?{tx.dialect.lock}", conversation)
    row = tx.row(
        "SELECT c.number, c.tree, c.branch, c.revision, m.place, m.id"
        " FROM conversation c LEFT JOIN message m ON m.place = (SELECT max(place) FROM message"
        " WHERE place BETWEEN c.branch * 4294967296 AND c.branch * 4294967296 + 4294967295)"
        " WHERE c.name = ?",
        conversation,
    )
    if row is None:
        return None
    number, tree, branch, revision, last, tip = row
    if last is None:
        return Head(number, tree, branch, revision, *_base(tx, branch))
    return Head(number, tree, branch, revision, last & SEQ_MASK, tip)


def branch_end(tx: Transaction, branch: int) -> tuple[int, bytes]:
    last = tx.row(
        "SELECT place, id FROM message WHERE place BETWEEN ? AND ? ORDER BY place DESC LIMIT 1",
        place(branch, 0),
        place(branch, SEQ_MASK),
    )
    return (last[0] & SEQ_MASK, last[1]) if last is not None else _base(tx, branch)


def _base(tx: Transaction, branch: int) -> tuple[int, bytes]:
    row = tx.row("SELECT base_seq, base_id FROM branch WHERE number = ?", branch)
    assert row is not None, "a conversation's branch is there as long as the conversation is"
    return row[0], row[1]


def lineage(tx: Transaction, branch: int) -> list[tuple[int, int]]:
    """The branches a chain runs through, newest first, each with the seq after which it begins."""
    return [
        (number, base)
        for number, base in tx.rows(
            "WITH RECURSIVE line (number, parent, base_seq, depth) AS ("
            " SELECT number, parent, base_seq, 0 FROM branch WHERE number = ?"
            " UNION ALL"
            " SELECT b.number, b.parent, b.base_seq, line.depth + 1 FROM branch b JOIN line ON b.number = line.parent"
            ") SELECT number, base_seq FROM line ORDER BY depth",
            branch,
        )
    ]


def stretches(line: Sequence[tuple[int, int]], after: int, upto: int) -> Iterator[tuple[int, int, int]]:
    """The parts of a lineage that hold the messages after `after` up to `upto`, oldest first: branch, first, last."""
    found: list[tuple[int, int, int]] = []
    for number, base in line:
        if base < upto and after < upto:
            found.append((number, max(base, after) + 1, upto))
        upto = min(upto, base)
    return reversed(found)


def find(tx: Transaction, conversation: str, at: Head, reference: Reference, *, anywhere: bool = False) -> Spot:
    """The message a caller means. `anywhere` also finds those that are on other branches of the conversation's tree."""
    if isinstance(reference, bool) or not isinstance(reference, int | str | Message):
        raise UnknownMessage(conversation, reference)
    if isinstance(reference, int):
        if not 0 <= reference <= at.seq:
            raise UnknownMessage(conversation, reference, hint=f"It has messages 1 to {at.seq}.")
        return _by_seq(tx, at, reference)
    wanted = reference.uid if isinstance(reference, Message) else reference
    spots = _by_name(tx, at.tree, wanted)
    here = list(stretches(lineage(tx, at.branch), 0, at.seq)) if spots else []
    for spot in spots:
        if any(spot.branch == branch and first <= spot.seq <= last for branch, first, last in here):
            return spot
    if spots and anywhere:
        return spots[0]
    hint = f"It is on branch {spots[0].branch}: `switch` to that, or fork there." if spots else ""
    raise UnknownMessage(conversation, wanted, hint=hint)


def _by_seq(tx: Transaction, at: Head, seq: int) -> Spot:
    for branch, first, _ in stretches(lineage(tx, at.branch), seq - 1, seq):
        row = tx.row("SELECT id FROM message WHERE place = ?", place(branch, first))
        if row is not None:
            return Spot(branch, seq, row[0])
    return Spot(at.tree, 0, root(tx, at.tree))


def _by_name(tx: Transaction, tree: int, name: str) -> list[Spot]:
    """The messages of a tree with this uid, or whose id begins so."""
    found: list[Spot] = []
    for where in _possible_places(tx, tree, name):
        row = tx.row(
            "SELECT m.id, m.body FROM message m JOIN branch b ON b.number = ? WHERE m.place = ? AND b.tree = ?",
            where >> SEQ_BITS,
            where,
            tree,
        )
        if row is not None and (row[0].hex().startswith(name) or from_json(row[1]).uid == name):
            found.append(Spot(where >> SEQ_BITS, where & SEQ_MASK, row[0]))
    return found


def _possible_places(tx: Transaction, tree: int, name: str) -> list[int]:
    if not name.isprintable():
        return []
    found: list[int] = [row[0] for row in tx.rows("SELECT place FROM early_uid WHERE tree = ? AND uid = ?", tree, name)]
    if match := UID.fullmatch(name):
        found.append(place(int(match[1], 16), int(match[2], 16)))
    elif match := ID.fullmatch(name):
        found += [
            row[0]
            for row in tx.rows(
                "SELECT m.place FROM branch b JOIN message m ON m.place = b.number * 4294967296 + ? WHERE b.tree = ?",
                int(match[1], 16),
                tree,
            )
        ]
    return found


def root(tx: Transaction, tree: int) -> bytes:
    return _base(tx, tree)[1]


# ── reading ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def messages_between(tx: Transaction, branch: int, after: int, upto: int) -> list[Message]:
    """The messages of a chain that ends on `branch`, those after seq `after` up to seq `upto`."""
    found: list[Message] = []
    for number, first, last in stretches(lineage(tx, branch), after, upto):
        rows = tx.rows(
            "SELECT body FROM message WHERE place BETWEEN ? AND ? ORDER BY place",
            place(number, first),
            place(number, last),
        )
        try:
            found += [from_json(body) for (body,) in rows]
        except MsgspecError as error:
            raise StoreCorrupt(
                f"A message of branch {number} between {first} and {last} cannot be read: {error}. Run `contextc "
                "doctor` to see which."
            ) from error
    return found


def load(
    tx: Transaction,
    conversation: str,
    *,
    last: int | None = None,
    after: Reference | None = None,
    upto: Reference | None = None,
    branch: int | None = None,
) -> list[Message]:
    at = head(tx, conversation)
    if branch is not None and branch != at.branch:
        at = on_branch(tx, conversation, at, branch)
    low = 0 if after is None else find(tx, conversation, at, after).seq
    high = at.seq if upto is None else find(tx, conversation, at, upto).seq
    if last is not None:
        if last < 0:
            raise InvalidInput(f"last={last}: ask for 0 or more messages.")
        low = max(low, high - last)
    return messages_between(tx, at.branch, low, high)


def on_branch(tx: Transaction, conversation: str, at: Head, branch: int) -> Head:
    """The same conversation seen from another of its branches."""
    row = tx.row("SELECT 1 FROM branch WHERE number = ? AND conversation = ?", branch, conversation)
    if row is None:
        raise UnknownMessage(conversation, branch, hint="It has no such branch; `store.branches` lists those it has.")
    seq, tip = branch_end(tx, branch)
    return Head(at.conversation, at.tree, branch, at.revision, seq, tip)


# ── writing ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def append(
    tx: Transaction,
    conversation: str,
    entries: Sequence[Entry],
    *,
    key: str | None = None,
    parent: Reference | None = None,
) -> list[Message]:
    """Put messages at the end of the conversation, which is made if there is none yet."""
    at = _head(tx, conversation, True) or create(tx, conversation)
    if tx.again and (stored := _stored_before(tx, at, entries)):
        return stored
    if key is not None and (known := _by_key(tx, conversation, key, entries[0])):
        return [known]
    if parent is not None and (known := _after_parent(tx, conversation, at, parent, entries[0])):
        return [known]
    stored = place_messages(tx, conversation, at, entries)
    if key is not None:
        values = (conversation, key, place(at.branch, stored[0].seq))
        tx.run("INSERT INTO append_key (conversation, key, place) VALUES (?, ?, ?)", *values)
    return stored


def place_messages(tx: Transaction, conversation: str, at: Head, entries: Sequence[Entry]) -> list[Message]:
    stored: list[Message] = []
    for entry in entries:
        message, row = placed(at, entry)
        if uid := entry.admitted.message.uid:
            _keep_uid(tx, conversation, at.tree, uid, row[0])
        tx.run("INSERT INTO message (place, id, time, body) VALUES (?, ?, ?, ?)", *row)
        if entry.admitted.blobs:
            keep_blobs(tx, conversation, row[0], entry.admitted.blobs)
        stored.append(message)
        at = Head(at.conversation, at.tree, at.branch, at.revision, message.seq, row[1])
    return stored


def placed(at: Head, entry: Entry) -> tuple[Message, tuple[int, bytes, int, bytes]]:
    """The message that follows the end of a conversation, and its row: place, id, time, body."""
    (message, content, _), mark, moment = entry
    _, _, branch, _, seq, tip = at
    seq, identity = seq + 1, chain_id(tip, content)
    uid = message.uid or f"{branch:x}-{seq:x}-{mark}"
    message = replace(message, uid=uid, id=identity.hex(), seq=seq, time=moment)
    return message, (branch << SEQ_BITS | seq, identity, moment, to_json(message))


APPEND_AT_TIP = (
    "INSERT INTO message (place, id, time, body) SELECT ?, ?, ?, ?"
    " WHERE EXISTS (SELECT 1 FROM conversation WHERE number = ? AND branch = ? AND revision = ?)"
    " ON CONFLICT DO NOTHING"
)


def create(tx: Transaction, conversation: str, root_id: bytes | None = None) -> Head:
    """A new conversation, with a root of its own."""
    root_id, moment = root_id or new_root(), now_ms()
    made = tx.row(
        "INSERT INTO conversation (name, tree, branch, created) VALUES (?, 0, 0, ?) ON CONFLICT DO NOTHING"
        " RETURNING number",
        conversation,
        moment,
    )
    if made is None:  # another writer was faster; its transaction is over by now
        return head(tx, conversation, lock=True)
    branch = new_branch(tx, conversation, tree=None, parent=None, base_seq=0, base_id=root_id)
    tx.run("UPDATE conversation SET tree = ?, branch = ? WHERE name = ?", branch, branch, conversation)
    return Head(made[0], branch, branch, 0, 0, root_id)


def new_branch(
    tx: Transaction, conversation: str, *, tree: int | None, parent: int | None, base_seq: int, base_id: bytes
) -> int:
    """A branch that begins after a message; the first of its tree gives the tree its number."""
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
        tx.run("UPDATE branch SET tree = number WHERE number = ?", number)
    return number


def keep_blobs(tx: Transaction, conversation: str, where: int, blobs: dict[str, bytes | None]) -> None:
    for name, data in blobs.items():
        if data is not None:
            # The update that changes nothing locks the row, so that nobody takes an unused blob away meanwhile.
            tx.run(
                "INSERT INTO blob (name, data) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET name = excluded.name",
                name,
                data,
            )
        elif tx.row(f"SELECT 1 FROM blob WHERE name = ?{tx.dialect.lock}", name) is None:
            raise InvalidMessage(
                f"the store has no blob {name}. Give the bytes with `data`.", field="blob", conversation=conversation
            )
        tx.run("INSERT INTO blob_use (name, place) VALUES (?, ?)", name, where)


def _stored_before(tx: Transaction, at: Head, entries: Sequence[Entry]) -> list[Message]:
    """What an earlier try of the same transaction left, whose answer was lost on the way."""
    recent = messages_between(tx, at.branch, max(0, at.seq - LOOK_BACK), at.seq)
    marks = {entry.admitted.message.uid or entry.mark for entry in entries}
    return [message for message in recent if message.uid in marks or message.uid.rpartition("-")[2] in marks]


def _by_key(tx: Transaction, conversation: str, key: str, wanted: Entry) -> Message | None:
    check_name(key, "key")
    row = tx.row(
        "SELECT m.body FROM append_key k JOIN message m ON m.place = k.place WHERE k.conversation = ? AND k.key = ?",
        conversation,
        key,
    )
    if row is None:
        return None
    stored = from_json(row[0])
    if not stored.redacted and content_of(stored) != wanted.admitted.content:
        raise KeyReused(conversation, key, seq=stored.seq)
    return stored


def _after_parent(tx: Transaction, conversation: str, at: Head, parent: Reference, wanted: Entry) -> Message | None:
    """None where the stated parent is the tip; the message itself where it already follows that parent."""
    if isinstance(parent, str) and parent == root(tx, at.tree).hex():
        parent = 0
    spot = find(tx, conversation, at, parent)
    if spot.seq == at.seq:
        return None
    (follower,) = messages_between(tx, at.branch, spot.seq, spot.seq + 1)
    if follower.id == chain_id(spot.id, wanted.admitted.content).hex():
        return follower
    raise StaleParent(conversation, spot.seq, tip=at.id.hex(), behind=at.seq - spot.seq)


def _keep_uid(tx: Transaction, conversation: str, tree: int, uid: str, where: int) -> None:
    check_name(uid, "message")
    if (UID.fullmatch(uid) and _by_name(tx, tree, uid)) or not tx.run(
        "INSERT INTO early_uid (tree, uid, place) VALUES (?, ?, ?) ON CONFLICT DO NOTHING", tree, uid, where
    ):
        raise InvalidMessage(
            f"there is already a message {uid!r}. Leave uid empty for a new message; use `key` to append once.",
            field="uid",
            conversation=conversation,
        )
