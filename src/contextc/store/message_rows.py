"""Rows of messages: where a message is, and how a row is decoded.

A branch holds consecutive messages. `make_place` combines the number of a branch and the seq of a message in one
integer. A chain is read along its lineage: the branch itself, then its parent up to where the branch begins, and so on
to the root. No index is needed: an id begins with the seq, and a generated uid contains the place.

Other programs can write to the database. Rows are therefore validated here: a body may not be JSON, a number may be a
text. A row that cannot be decoded raises `StoreCorrupt` with its location and a fix.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TypeVar

from msgspec import MsgspecError, Struct

from contextc.errors import InvalidInput, StoreCorrupt, UnknownBranch, UnknownConversation, UnknownMessage
from contextc.messages import Message, decode_message
from contextc.store.backend_interface import Row, Transaction
from contextc.store.conversation_types import Reference, agent_of

Value = TypeVar("Value")
Source = TypeVar("Source")

SEQ_BITS = 32
SEQ_MASK = (1 << SEQ_BITS) - 1
DECODE_ERRORS = (MsgspecError, UnicodeDecodeError, TypeError, RecursionError)
"""Exceptions that a decoder raises for an invalid body."""
DOCTOR_HINT = "Run `contextc doctor` to list the damage and the possible repairs."


def decode_message_row(tx: Transaction, where: int, body: bytes) -> Message:
    """Decode the message at a place."""
    try:
        return decode_message(body)
    except DECODE_ERRORS as error:
        raise unreadable_error(tx, where, error) from error


def decode_message_rows(tx: Transaction, rows: Sequence[tuple[int, bytes]]) -> list[tuple[int, Message]]:
    """Decode messages. Return them with their places."""
    try:
        return [(where, decode_message(body)) for where, body in rows]
    except DECODE_ERRORS:  # decode one by one to name the unreadable one
        return [(where, decode_message_row(tx, where, body)) for where, body in rows]


def unreadable_error(tx: Transaction, where: int, error: Exception) -> StoreCorrupt:
    return StoreCorrupt(f"{_describe_place(tx, where)} cannot be read: {_error_text(error)}", fix=DOCTOR_HINT)


def hash_mismatch_error(tx: Transaction, where: int) -> StoreCorrupt:
    """Return the error for a row that was changed after it was stored."""
    return StoreCorrupt(
        f"{_describe_place(tx, where)} does not match its hash: the row was changed or damaged", fix=DOCTOR_HINT
    )


def _describe_place(tx: Transaction, where: int) -> str:
    branch, seq = where >> SEQ_BITS, where & SEQ_MASK
    row = tx.row("SELECT conversation FROM branch WHERE number = ?", branch)
    whose = f" of {row[0]!r}" if row and row[0] else ""
    return f"Message {seq} on branch {branch}{whose}"


def decode_row(
    decode: Callable[[Source], Value], body: Source, what: str, fix: str = "Restore a backup of the store."
) -> Value:
    """Decode a row other than a message. `what` names it in the error."""
    try:
        return decode(body)
    except (*DECODE_ERRORS, ValueError) as error:
        raise StoreCorrupt(f"{what} cannot be read: {_error_text(error)}", fix=fix) from error


def decode_rows(decode: Callable[[bytes], Value], bodies: Iterable[bytes], what: str) -> list[Value]:
    return decode_row(lambda given: [decode(body) for body in given], bodies, what)


def decode_readable(decode: Callable[[bytes], Value], rows: Iterable[Row]) -> list[tuple[int, Value]]:
    """Decode rows of a place and a body. Unreadable ones are left out; the doctor reports them."""
    found: list[tuple[int, Value]] = []
    for where, body in rows:
        with suppress(*DECODE_ERRORS):
            found.append((where, decode(body)))
    return found


def bytes_or_none(value: object) -> bytes | None:
    """Return the value if it is bytes, otherwise None."""
    return value if isinstance(value, bytes) else None


def to_id(value: object) -> bytes:
    """Return the id of a message as bytes. A value of another type becomes bytes that match no id."""
    return value if isinstance(value, bytes) else str(value).encode()


def _error_text(error: Exception) -> str:
    return str(error).rstrip(".")


MAX_NAME = 512
DOT_NAMES = (".", "..")
FIRST_UNANSWERED = 1 << 30
"""Rows and manifests of a channel with a higher number belong to unanswered requests."""
UID_PATTERN = re.compile("([0-9a-f]{1,8})-([0-9a-f]{1,8})-[0-9a-f]{16}")
ID_PATTERN = re.compile("([0-9a-f]{8})[0-9a-f]{4,32}")


class BranchTip(Struct, frozen=True, gc=False):
    """The end of a conversation's current branch: its last message, or the root."""

    conversation: int
    tree: int
    branch: int
    revision: int
    seq: int
    id: bytes
    last_active: int = 0
    """The second of the last message as stored in the conversation's row; 0 if unknown."""


class MessageLocation(Struct, frozen=True, gc=False):
    """The location of a message: its branch, seq and id. Seq 0 is the root."""

    branch: int
    seq: int
    id: bytes


# ── places, branches and messages ─────────────────────────────────────────────────────────────────────────────────────


def make_place(branch: int, seq: int) -> int:
    return branch << SEQ_BITS | seq


def check_name(name: object, what: str = "conversation") -> None:
    if what == "agent" and isinstance(name, str):  # or a run of one
        name = agent_of(name)
    if not isinstance(name, str) or not name or len(name) > MAX_NAME or not name.isprintable():
        got = type(name).__name__ if not isinstance(name, str) else repr(name) if len(name) < 80 else "a longer text"
        raise InvalidInput(f"{what} name must be 1 to {MAX_NAME} printable characters, got {got}.")


def check_new_name(name: str) -> None:
    """Raise `InvalidInput` for "." and "..", which a browser resolves as folders in a URL."""
    if name in DOT_NAMES:
        raise InvalidInput(
            'conversation name must not be "." or "..", which browsers resolve as folders', fix="Choose another name."
        )


def load_tip(tx: Transaction, conversation: str, *, lock: bool = False) -> BranchTip:
    """Return the end of a conversation. With `lock`, its row is locked until the transaction ends."""
    found = find_tip(tx, conversation, lock)
    if found is None:
        raise UnknownConversation(conversation)
    return found


TIP_COLUMNS = "SELECT c.number, c.tree, c.branch, c.revision, c.spoken, b.base_seq, b.base_id, m.place, m.id"
TIP_TABLES = (
    " FROM conversation c"
    " LEFT JOIN branch b ON b.number = c.branch AND b.tree = c.tree AND b.conversation = c.name"
    " LEFT JOIN message m ON m.place = (SELECT max(place) FROM message"
    " WHERE place BETWEEN c.branch * 4294967296 AND c.branch * 4294967296 + 4294967295)"
    " WHERE c.name = ?"
)
FIND_TIP = TIP_COLUMNS + TIP_TABLES
NUMBERED_TABLES = ("event", "step", "turn")
"""Tables whose rows are numbered within their conversation."""
FIND_TIP_AND_NUMBERS = (
    TIP_COLUMNS
    + "".join(
        f", (SELECT max(place) FROM {table}"
        " WHERE place BETWEEN c.number * 4294967296 AND c.number * 4294967296 + 4294967295)"
        for table in NUMBERED_TABLES
    )
    + TIP_TABLES
)
"""As FIND_TIP, with the places of the last records. For a conversation that this transaction has locked."""


def find_tip(tx: Transaction, conversation: str, lock: bool) -> BranchTip | None:
    """Return the end of a conversation, or None if it does not exist."""
    check_name(conversation)
    locked = tx.locked
    if locked is None:
        row = tx.row(FIND_TIP, conversation)
    elif lock or conversation in locked.conversations:
        if conversation not in locked.conversations:
            tx.send(f"SELECT 1 FROM conversation WHERE name = ?{tx.dialect.row_lock}", conversation)
        row = tx.row(FIND_TIP_AND_NUMBERS, conversation)
        if row is not None:
            locked.conversations.add(conversation)
            for table, place in zip(NUMBERED_TABLES, row[9:], strict=True):
                locked.last_numbers[table, row[0]] = (place or 0) & SEQ_MASK
    else:
        row = tx.row(FIND_TIP, conversation)
    if row is None:
        return None
    number, tree, branch, revision, spoken, base, root_id, last, tip = row[:9]
    if not isinstance(base, int):
        raise StoreCorrupt(
            f"Conversation {conversation!r}: current branch {branch} is missing, or belongs to another one",
            fix=DOCTOR_HINT,
        )
    if last is None:
        return BranchTip(number, tree, branch, revision, base, to_id(root_id), spoken)
    if last & SEQ_MASK <= base:
        raise StoreCorrupt(f"Branch {branch} of {conversation!r} ends before its base {base}", fix=DOCTOR_HINT)
    return BranchTip(number, tree, branch, revision, last & SEQ_MASK, to_id(tip), spoken)


LAST_ACTIVE = (
    "COALESCE((SELECT time FROM message WHERE place = (SELECT max(place) FROM message"
    " WHERE place BETWEEN branch * 4294967296 AND branch * 4294967296 + 4294967295)), created) / 1000"
)


def update_last_active(tx: Transaction, conversation: str) -> None:
    """Update the time of the last message after a switch to another branch."""
    tx.run(f"UPDATE conversation SET spoken = {LAST_ACTIVE} WHERE name = ?", conversation)


def set_last_active(tx: Transaction, at: BranchTip, time: int) -> None:
    """Update the time of the last message after an append; `time` is in milliseconds."""
    if (second := time // 1000) != at.last_active:
        sql = "UPDATE conversation SET spoken = ? WHERE number = ? AND branch = ? AND spoken <> ?"
        tx.send(sql, second, at.conversation, at.branch, second)


def lock_tree(tx: Transaction, conversation: str) -> None:
    """Lock a conversation's tree against deletion and redaction. Call it before the conversation is locked."""
    row = tx.row("SELECT tree FROM conversation WHERE name = ?", conversation) if tx.dialect.row_lock else None
    if row is not None:
        tx.row(f"SELECT 1 FROM branch WHERE number = ?{tx.dialect.row_lock}", row[0])


def load_branch_end(tx: Transaction, branch: int) -> tuple[int, bytes]:
    last = tx.row(
        "SELECT place, id FROM message WHERE place BETWEEN ? AND ? ORDER BY place DESC LIMIT 1",
        make_place(branch, 0),
        make_place(branch, SEQ_MASK),
    )
    return (last[0] & SEQ_MASK, to_id(last[1])) if last is not None else load_branch_base(tx, branch)


def load_context_start(tx: Transaction, branch: int, until: int) -> int:
    """Return the seq after which the context of a branch starts, up to message `until`."""
    row = tx.row(
        "SELECT max(place) FROM edge WHERE place BETWEEN ? AND ?", make_place(branch, 0), make_place(branch, until)
    )
    return row[0] & SEQ_MASK if row and row[0] is not None else 0


def load_base_seq(tx: Transaction, branch: int) -> int:
    return load_branch_base(tx, branch)[0]


def load_branch_base(tx: Transaction, branch: int) -> tuple[int, bytes]:
    """Return seq and id of the message, or root, after which a branch begins."""
    row = tx.row("SELECT base_seq, base_id FROM branch WHERE number = ?", branch)
    if row is None:
        raise StoreCorrupt(f"Branch {branch} is missing, but other branches depend on it", fix=DOCTOR_HINT)
    return row[0], to_id(row[1])


def load_lineage(tx: Transaction, branch: int) -> list[tuple[int, int]]:
    """Return the branches of a chain, newest first, each with the seq after which it begins.

    A parent must be older than its child, so corrupt rows cannot cause a cycle.
    """
    rows = tx.rows(
        "WITH RECURSIVE line (number, parent, base_seq, depth) AS ("
        " SELECT number, parent, base_seq, 0 FROM branch WHERE number = ?"
        " UNION ALL"
        " SELECT b.number, b.parent, b.base_seq, line.depth + 1 FROM branch b JOIN line ON b.number = line.parent"
        " WHERE b.number < line.number"
        ") SELECT number, base_seq, parent FROM line ORDER BY depth",
        branch,
    )
    if not rows:
        raise StoreCorrupt(f"Branch {branch} is missing, but other branches depend on it", fix=DOCTOR_HINT)
    if strange := [number for number, base, _ in rows if not isinstance(base, int)]:
        raise StoreCorrupt(f"Branch {strange[0]}: base_seq must be an integer", fix=DOCTOR_HINT)
    if rows and rows[-1][2] is not None and rows[-1][1] != 0:
        raise StoreCorrupt(
            f"Branch {rows[-1][0]}: its parent, branch {rows[-1][2]}, is missing or not older", fix=DOCTOR_HINT
        )
    return [(number, base) for number, base, _ in rows]


def split_by_branch(lineage: Sequence[tuple[int, int]], after: int, until: int) -> Iterator[tuple[int, int, int]]:
    """Yield the ranges of a lineage with the messages after `after` up to `until`, oldest first:

    branch, first, last.
    """
    found: list[tuple[int, int, int]] = []
    for number, base in lineage:
        if base < until and after < until:
            found.append((number, max(base, after) + 1, until))
        until = min(until, base)
    return reversed(found)


def find_message(
    tx: Transaction, conversation: str, tip: BranchTip, reference: Reference, *, anywhere: bool = False
) -> MessageLocation:
    """Return the location of a referenced message. `anywhere` includes other branches of the conversation's tree."""
    if isinstance(reference, bool) or not isinstance(reference, int | str | Message):
        raise UnknownMessage(conversation, reference)
    if isinstance(reference, int):
        if not 0 <= reference <= tip.seq:
            raise UnknownMessage(conversation, reference, hint=f"It has messages 1 to {tip.seq}.")
        return _by_seq(tx, conversation, tip, reference)
    wanted = reference.uid if isinstance(reference, Message) else reference
    spots = find_by_name(tx, tip.tree, wanted)
    here = list(split_by_branch(load_lineage(tx, tip.branch), 0, tip.seq)) if spots else []
    for spot in spots:
        if any(spot.branch == branch and first <= spot.seq <= last for branch, first, last in here):
            return spot
    if spots and anywhere:
        return spots[0]
    hint = f"It is on branch {spots[0].branch}: `switch` to that, or fork there." if spots else ""
    raise UnknownMessage(conversation, wanted, hint=hint)


def _by_seq(tx: Transaction, conversation: str, at: BranchTip, seq: int) -> MessageLocation:
    if seq == 0:
        return MessageLocation(at.tree, 0, load_root(tx, at.tree))
    for branch, first, _ in split_by_branch(load_lineage(tx, at.branch), seq - 1, seq):
        row = tx.row("SELECT id FROM message WHERE place = ?", make_place(branch, first))
        if row is not None:
            return MessageLocation(branch, seq, to_id(row[0]))
    raise missing_message_error(conversation, seq)


def missing_message_error(conversation: str | None, seq: int) -> StoreCorrupt:
    """Return the error for a missing message."""
    return StoreCorrupt(f"Conversation {conversation!r}: message {seq} is missing from the store", fix=DOCTOR_HINT)


def find_gap_error(tx: Transaction, branch: int, there: Sequence[int], first: int, last: int) -> StoreCorrupt:
    """Return the error for the first message from `first` to `last` of a branch that is not among `there`."""
    found = {where & SEQ_MASK for where in there}
    row = tx.row("SELECT conversation FROM branch WHERE number = ?", branch)
    return missing_message_error(
        row[0] if row else None, next(seq for seq in range(first, last + 1) if seq not in found)
    )


def find_by_name(tx: Transaction, tree: int, name: str) -> list[MessageLocation]:
    """Return the messages of a tree with this uid, or with an id that starts with it."""
    found: list[MessageLocation] = []
    for where in _possible_places(tx, tree, name):
        row = tx.row(
            "SELECT m.id, m.body FROM message m JOIN branch b ON b.number = ? WHERE m.place = ? AND b.tree = ?",
            where >> SEQ_BITS,
            where,
            tree,
        )
        if row is not None and (
            to_id(row[0]).hex().startswith(name) or decode_message_row(tx, where, row[1]).uid == name
        ):
            found.append(MessageLocation(where >> SEQ_BITS, where & SEQ_MASK, to_id(row[0])))
    return found


def _possible_places(tx: Transaction, tree: int, name: str) -> list[int]:
    if not name.isprintable():
        return []
    early = tx.rows(
        "SELECT e.place, m.place FROM early_uid e LEFT JOIN message m ON m.place = e.place"
        " WHERE e.tree = ? AND e.uid = ?",
        tree,
        name,
    )
    if any(there is None for _, there in early):
        raise StoreCorrupt(f"Message {name!r} is missing from the store", fix=DOCTOR_HINT)
    found: list[int] = [where for where, _ in early]
    if match := UID_PATTERN.fullmatch(name):
        branch = int(match[1], 16)
        found += [make_place(branch, int(match[2], 16))] if branch < 1 << (SEQ_BITS - 1) else []
    elif match := ID_PATTERN.fullmatch(name):
        found += [
            row[0]
            for row in tx.rows(
                "SELECT m.place FROM branch b JOIN message m ON m.place = b.number * 4294967296 + ? WHERE b.tree = ?",
                int(match[1], 16),
                tree,
            )
        ]
    return found


def load_root(tx: Transaction, tree: int) -> bytes:
    return load_branch_base(tx, tree)[1]


def load_tip_of_branch(tx: Transaction, conversation: str, at: BranchTip, branch: int) -> BranchTip:
    """Return the end of another branch of the conversation."""
    can_be = type(branch) is int and 0 < branch < 1 << (SEQ_BITS - 1)  # larger numbers overflow the place
    row = tx.row("SELECT 1 FROM branch WHERE number = ? AND conversation = ?", branch, conversation) if can_be else None
    if row is None:
        raise UnknownBranch(conversation, branch)
    seq, tip = load_branch_end(tx, branch)
    return BranchTip(at.conversation, at.tree, branch, at.revision, seq, tip)
