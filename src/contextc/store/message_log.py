"""The log: conversations, their branches, and messages that are appended, found and read."""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from hashlib import sha256
from itertools import count
from time import time_ns
from typing import NamedTuple, TypeAlias, TypeVar

import msgspec
from msgspec import MsgspecError, Struct
from msgspec.structs import replace

from contextc.errors import (
    InvalidInput,
    InvalidMessage,
    KeyReused,
    StaleParent,
    StoreCorrupt,
    UnknownBranch,
    UnknownConversation,
    UnknownMessage,
)
from contextc.messages import (
    Message,
    ValidatedMessage,
    canonical_content,
    decode_message,
    encode_message,
    make_chain_id,
    make_root_id,
    validate_message,
)
from contextc.store.transaction_engine import Row, Transaction

# ── types ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
# The types of conversations, branches and leases that a store returns.
#
# `Reference` is the type of an argument that names a message.


Reference: TypeAlias = str | int | Message
"""A message of a conversation: its seq, its uid, its id (or the first 12 characters of it), or the message itself."""

DEFAULT_AGENT = "assistant"
RUN_MARK = "\u2002"
"""The en space between agent and run in names of `run_name`. Names of agents are printable, so they contain none."""


def run_name(agent: str, run: str) -> str:
    """Return the name of the turns and channels of a run that began beside another turn of its agent."""
    return f"{agent}{RUN_MARK}{run}"


def agent_of(name: str) -> str:
    """Return the agent of a turn, a lease or a channel, without the run."""
    return name.partition(RUN_MARK)[0]


class Conversation(msgspec.Struct, frozen=True, kw_only=True, rename={"context_start": "edge"}):
    """The state of a conversation. `revision` grows with every change other than an append.

    The context starts after message `context_start`: earlier ones were cleared from it.
    """

    name: str
    root: str
    tip: str
    length: int
    branch: int
    revision: int
    context_start: int
    created: int


class Branch(msgspec.Struct, frozen=True, kw_only=True):
    """A branch of a conversation. It begins after message `base` (0: at the root) and ends at `tip`."""

    number: int
    parent: int | None
    base: int
    length: int
    tip: str
    current: bool
    created: int


class Recovered(msgspec.Struct, frozen=True, kw_only=True):
    """A turn whose process died, and the messages that recovery appended for it."""

    conversation: str
    agent: str
    lease: int
    messages: tuple[Message, ...]


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """The exclusive right to run one turn of an agent. It is renewed in the background until it is released."""

    conversation: str
    agent: str
    number: int
    ttl: float
    pid: int
    root: int
    """The number of the conversation. A later conversation of the same name has another number."""


# ── rows of messages ──────────────────────────────────────────────────────────────────────────────────────────────────
# Rows of messages: where a message is, and how a row is decoded.
#
# A branch holds consecutive messages. `make_place` combines the number of a branch and the seq of a message in one
# integer. A chain is read along its lineage: the branch itself, then its parent up to where the branch begins, and so
# on to the root. No index is needed: an id begins with the seq, and a generated uid contains the place.
#
# Other programs can write to the database. Rows are therefore validated here: a body may not be JSON, a number may be
# a text. A row that cannot be decoded raises `StoreCorrupt` with its location and a fix.


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
    row = tx.row("SELECT conversation FROM main.branch WHERE number = ?", branch)
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

    def followed_by(self, message: Message) -> "BranchTip":
        """Return the end after a message that was stored there."""
        end, second = bytes.fromhex(message.id), message.time // 1000
        return BranchTip(self.conversation, self.tree, self.branch, self.revision, message.seq, end, second)


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
    " FROM main.conversation c"
    " LEFT JOIN main.branch b ON b.number = c.branch AND b.tree = c.tree AND b.conversation = c.name"
    " LEFT JOIN main.message m ON m.place = (SELECT max(place) FROM main.message"
    " WHERE place BETWEEN c.branch * 4294967296 AND c.branch * 4294967296 + 4294967295)"
    " WHERE c.name = ?"
)
FIND_TIP = TIP_COLUMNS + TIP_TABLES
NUMBERED_TABLES = ("event", "step", "turn")
"""Tables whose rows are numbered within their conversation."""
FIND_TIP_AND_NUMBERS = (
    TIP_COLUMNS
    + "".join(
        f", (SELECT max(place) FROM main.{table}"
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
            tx.send(f"SELECT 1 FROM main.conversation WHERE name = ?{tx.dialect.row_lock}", conversation)
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
    "COALESCE((SELECT time FROM main.message WHERE place = (SELECT max(place) FROM main.message"
    " WHERE place BETWEEN branch * 4294967296 AND branch * 4294967296 + 4294967295)), created) / 1000"
)


def update_last_active(tx: Transaction, conversation: str) -> None:
    """Update the time of the last message after a switch to another branch."""
    tx.run(f"UPDATE main.conversation SET spoken = {LAST_ACTIVE} WHERE name = ?", conversation)


def set_last_active(tx: Transaction, at: BranchTip, time: int) -> None:
    """Update the time of the last message after an append; `time` is in milliseconds."""
    if (second := time // 1000) != at.last_active:
        sql = "UPDATE main.conversation SET spoken = ? WHERE number = ? AND branch = ? AND spoken <> ?"
        tx.send(sql, second, at.conversation, at.branch, second)


def lock_tree(tx: Transaction, conversation: str) -> None:
    """Lock a conversation's tree against deletion and redaction. Call it before the conversation is locked."""
    row = tx.row("SELECT tree FROM main.conversation WHERE name = ?", conversation) if tx.dialect.row_lock else None
    if row is not None:
        tx.row(f"SELECT 1 FROM main.branch WHERE number = ?{tx.dialect.row_lock}", row[0])


def load_branch_end(tx: Transaction, branch: int) -> tuple[int, bytes]:
    last = tx.row(
        "SELECT place, id FROM main.message WHERE place BETWEEN ? AND ? ORDER BY place DESC LIMIT 1",
        make_place(branch, 0),
        make_place(branch, SEQ_MASK),
    )
    return (last[0] & SEQ_MASK, to_id(last[1])) if last is not None else load_branch_base(tx, branch)


def load_context_start(tx: Transaction, branch: int, until: int) -> int:
    """Return the seq after which the context of a branch starts, up to message `until`."""
    row = tx.row(
        "SELECT max(place) FROM main.edge WHERE place BETWEEN ? AND ?", make_place(branch, 0), make_place(branch, until)
    )
    return row[0] & SEQ_MASK if row and row[0] is not None else 0


def load_base_seq(tx: Transaction, branch: int) -> int:
    return load_branch_base(tx, branch)[0]


def load_branch_base(tx: Transaction, branch: int) -> tuple[int, bytes]:
    """Return seq and id of the message, or root, after which a branch begins."""
    row = tx.row("SELECT base_seq, base_id FROM main.branch WHERE number = ?", branch)
    if row is None:
        raise StoreCorrupt(f"Branch {branch} is missing, but other branches depend on it", fix=DOCTOR_HINT)
    return row[0], to_id(row[1])


def load_lineage(tx: Transaction, branch: int) -> list[tuple[int, int]]:
    """Return the branches of a chain, newest first, each with the seq after which it begins.

    A parent must be older than its child, so corrupt rows cannot cause a cycle.
    """
    rows = tx.rows(
        "WITH RECURSIVE line (number, parent, base_seq, depth) AS ("
        " SELECT number, parent, base_seq, 0 FROM main.branch WHERE number = ?"
        " UNION ALL"
        " SELECT b.number, b.parent, b.base_seq, line.depth + 1 FROM main.branch b JOIN line ON b.number = line.parent"
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
        row = tx.row("SELECT id FROM main.message WHERE place = ?", make_place(branch, first))
        if row is not None:
            return MessageLocation(branch, seq, to_id(row[0]))
    raise missing_message_error(conversation, seq)


def missing_message_error(conversation: str | None, seq: int) -> StoreCorrupt:
    """Return the error for a missing message."""
    return StoreCorrupt(f"Conversation {conversation!r}: message {seq} is missing from the store", fix=DOCTOR_HINT)


def find_gap_error(tx: Transaction, branch: int, there: Sequence[int], first: int, last: int) -> StoreCorrupt:
    """Return the error for the first message from `first` to `last` of a branch that is not among `there`."""
    found = {where & SEQ_MASK for where in there}
    row = tx.row("SELECT conversation FROM main.branch WHERE number = ?", branch)
    return missing_message_error(
        row[0] if row else None, next(seq for seq in range(first, last + 1) if seq not in found)
    )


def find_by_name(tx: Transaction, tree: int, name: str) -> list[MessageLocation]:
    """Return the messages of a tree with this uid, or with an id that starts with it."""
    found: list[MessageLocation] = []
    for where in _possible_places(tx, tree, name):
        row = tx.row(
            "SELECT m.id, m.body FROM main.message m JOIN main.branch b ON b.number = ?"
            " WHERE m.place = ? AND b.tree = ?",
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
        "SELECT e.place, m.place FROM main.early_uid e LEFT JOIN main.message m ON m.place = e.place"
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
                "SELECT m.place FROM main.branch b JOIN main.message m ON m.place = b.number * 4294967296 + ?"
                " WHERE b.tree = ?",
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
    row = (
        tx.row("SELECT 1 FROM main.branch WHERE number = ? AND conversation = ?", branch, conversation)
        if can_be
        else None
    )
    if row is None:
        raise UnknownBranch(conversation, branch)
    seq, tip = load_branch_end(tx, branch)
    return BranchTip(at.conversation, at.tree, branch, at.revision, seq, tip)


# ── append and load ───────────────────────────────────────────────────────────────────────────────────────────────────
# Append messages to a chain, and load them.
#
# An append reads one conversation row and one message row, and writes one row, whatever the length of the history.


VERSION_SEPARATOR = "~"  # an edit under the same uid is stored as `uid~2`, `uid~3` …


def original_uid(uid: str) -> str:
    """Return the uid that the client uses for a message, without the version suffix."""
    before, _, version = uid.rpartition(VERSION_SEPARATOR)
    return before if before and version.isdigit() else uid


class PendingMessage(Struct, frozen=True, gc=False):
    """A message to append, with the values that stay the same when its transaction is retried.

    Its uid is the given one, or is made of its place and `random_id`, which is random. `attempts` lists the places it
    was written to, each with its id. A retry looks only at these places for a row that an earlier attempt stored.
    """

    admitted: ValidatedMessage
    random_id: int
    time: int
    attempts: list[tuple[int, bytes]]

    @property
    def digest(self) -> bytes:
        """The hash of its content, by which input with a key is recognised while it is queued."""
        return sha256(self.admitted.content).digest()


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


MAX_VERIFIED = 10_000


class VerifiedRanges:
    """The range of each branch whose rows a store handle has read and verified against their ids.

    The branches that were added last are known, so many at most.
    """

    def __init__(self, most: int = MAX_VERIFIED) -> None:
        self._known: dict[int, tuple[int, int]] = {}
        self._most = most

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
        if len(self._known) > self._most:
            self._known.pop(next(iter(self._known)), None)


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
    rows = tx.rows("SELECT body FROM main.message WHERE place BETWEEN ? AND ? ORDER BY place", low, high)
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
    rows = tx.rows("SELECT place, id, body FROM main.message WHERE place BETWEEN ? AND ? ORDER BY place", low - 1, high)
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
    at: BranchTip | None = None,
    key: str | None = None,
    parent: Reference | None = None,
) -> list[Message]:
    """Append messages to a conversation, which is created if it does not exist. `at` is its end, if that is locked."""
    at = at or find_tip(tx, conversation, True) or insert_conversation(tx, conversation)
    if tx.is_retry and (stored := find_stored(tx, entries)):
        return stored
    if key is not None and (known := find_by_key(tx, conversation, key, entries[0])):
        return [known]
    if parent is not None and (known := _find_after_parent(tx, conversation, at, parent, entries[0])):
        return [known]
    stored = insert_messages(tx, conversation, at, entries)
    if key is not None:
        values = (conversation, key, make_place(at.branch, stored[0].seq))
        tx.send("INSERT INTO main.append_key (conversation, key, place) VALUES (?, ?, ?)", *values)
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


INSERT_MESSAGE = "INSERT INTO main.message (place, id, time, body) VALUES (?, ?, ?, ?)"
APPEND_AT_TIP = (  # SQLite; without an id the row is ignored. A SELECT as the source would need a temporary table
    "INSERT OR IGNORE INTO main.message (place, id, time, body) VALUES (?, (SELECT ? FROM main.conversation"
    " WHERE number = ?"
    " AND branch = ? AND revision = ? AND EXISTS (SELECT 1 FROM main.message WHERE place = ? AND id = ?)), ?, ?)"
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
        "INSERT INTO main.conversation (name, tree, branch, created, spoken) VALUES (?, 0, 0, ?, ?)"
        " ON CONFLICT DO NOTHING RETURNING number",
        conversation,
        moment,
        moment // 1000,
    )
    if made is None:  # another writer created it; its transaction has ended by now
        return load_tip(tx, conversation, lock=True)
    branch = insert_branch(tx, conversation, tree=None, parent=None, base_seq=0, base_id=root_id)
    tx.send("UPDATE main.conversation SET tree = ?, branch = ? WHERE name = ?", branch, branch, conversation)
    if tx.locked is not None:  # no other transaction sees it
        tx.locked.conversations.add(conversation)
        tx.locked.last_numbers |= {(table, made[0]): 0 for table in NUMBERED_TABLES}
    return BranchTip(made[0], branch, branch, 0, 0, root_id, moment // 1000)


def insert_branch(
    tx: Transaction, conversation: str, *, tree: int | None, parent: int | None, base_seq: int, base_id: bytes
) -> int:
    """Create a branch that begins after a message. The number of a tree is that of its first branch."""
    row = tx.row(
        "INSERT INTO main.branch (tree, parent, base_seq, base_id, conversation, created) VALUES (?, ?, ?, ?, ?, ?)"
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
        tx.send("UPDATE main.branch SET tree = number WHERE number = ?", number)
    return number


def check_blobs(tx: Transaction, conversation: str, blobs: dict[str, bytes | None]) -> None:
    """Raise `InvalidMessage` if a named blob is not in the store."""
    for name, data in blobs.items():
        if data is None and tx.row(f"SELECT 1 FROM main.blob WHERE name = ?{tx.dialect.row_lock}", name) is None:
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
                "INSERT INTO main.blob (name, data) VALUES (?, ?)"
                " ON CONFLICT (name) DO UPDATE SET name = excluded.name",
                name,
                data,
            )
        tx.send("INSERT INTO main.blob_use (name, place) VALUES (?, ?)", name, where)


def find_stored(tx: Transaction, entries: Sequence[PendingMessage]) -> list[Message]:
    """Return the messages that an earlier attempt of the same transaction stored, if its commit was not confirmed.

    A row is ours if it is at a place that was tried, with the id and the uid that were tried there.
    """
    return [message for entry in entries if (message := _find_stored_one(tx, entry)) is not None]


def _find_stored_one(tx: Transaction, entry: PendingMessage) -> Message | None:
    for where, identity in entry.attempts:
        row = tx.row(
            "SELECT body FROM main.message WHERE place = ? AND id = ? AND time = ?", where, identity, entry.time
        )
        if row is not None:
            message = decode_message_row(tx, where, row[0])
            if message.uid == _uid(entry, where >> SEQ_BITS, where & SEQ_MASK):
                return message
    return None


def find_by_key(tx: Transaction, conversation: str, key: str, wanted: PendingMessage) -> Message | None:
    """Return the message that was appended with a key. Raises `KeyReused` if it has other content."""
    check_name(key, "key")
    row = tx.row(
        "SELECT k.place, m.body FROM main.append_key k LEFT JOIN main.message m ON m.place = k.place"
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
        "INSERT INTO main.early_uid (tree, uid, place) VALUES (?, ?, ?) ON CONFLICT DO NOTHING", tree, uid, where
    ):
        raise InvalidMessage(
            f"there is already a message {uid!r}",
            field="uid",
            conversation=conversation,
            fix="Leave uid empty for a new message, or use `key` to append once.",
        )
