"""Verification of the rows of a chain against their ids. An unreadable row is reported, never raised.

After a wrong row, the next one is checked against the most plausible id of it, so that one fault is one finding.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

from contextc._json import hash_blob
from contextc.doctor.findings import ChainProblem
from contextc.messages import Media, Message, ToolResult, canonical_content, decode_message, make_chain_id
from contextc.store.backend_interface import Transaction
from contextc.store.message_rows import DECODE_ERRORS, SEQ_BITS, SEQ_MASK, make_place, split_by_branch, to_id

CHUNK = 1000
RawRow: TypeAlias = tuple[int, bytes, bytes]  # place, id, body
Reader: TypeAlias = Callable[[Callable[[Transaction], list[RawRow]]], list[RawRow]]


class BranchRow(NamedTuple):
    """A row of the branch table."""

    number: int
    tree: int
    parent: int | None
    base: int
    base_id: bytes
    conversation: str | None
    problem: str = ""
    """The problem of its parent or base. `parent` and `base` are then the ones that its messages show, if any."""


class ChainRow(NamedTuple):
    """A message of a chain, or the place of a missing one, with its problem."""

    seq: int
    place: int
    id: bytes
    message: Message | None
    problem: ChainProblem | None


class BlobCheck:
    """Check of media bytes: they exist and match their name. Each blob is read once."""

    def __init__(self, fetch: Callable[[str], object]) -> None:
        self._fetch, self._known = fetch, dict[str, str]()

    def find_problems(self, message: Message) -> Iterator[tuple[int, str, str]]:
        """Return the parts of a message with missing or changed bytes: index, blob, code."""
        for index, part in enumerate(message.parts):
            for media in media_of(part):
                if media.blob and (code := self._code(media.blob)):
                    yield index, media.blob, code

    def _code(self, name: str) -> str:
        if name not in self._known:
            data = self._fetch(name)
            is_whole = isinstance(data, bytes) and hash_blob(data) == name
            self._known[name] = "missing-blob" if data is None else "" if is_whole else "changed-blob"
        return self._known[name]


def fetch_blob(tx: Transaction, name: str) -> object:
    """Return the stored value of a blob, of any type; None if it does not exist."""
    row = tx.row("SELECT data FROM blob WHERE name = ?", name)
    return None if row is None else row[0]


def media_of(part: object) -> tuple[Media, ...]:
    if isinstance(part, Media):
        return (part,)
    if isinstance(part, ToolResult) and not isinstance(part.content, str):
        return tuple([each for each in part.content if isinstance(each, Media)])
    return ()


def branch_lineage(branches: dict[int, BranchRow], number: int) -> list[tuple[int, int]]:
    """Return the branches of a chain, newest first, each with the seq after which it starts."""
    found: list[tuple[int, int]] = []
    at = branches.get(number)
    while at is not None:
        found.append((at.number, at.base))
        at = branches.get(at.parent) if at.parent is not None and at.parent < at.number else None
    return found


def read_rows(read: Reader, line: Sequence[tuple[int, int]], after: int, until: int) -> Iterator[RawRow]:
    """Return the rows of a lineage after a seq, up to another, read in chunks."""
    for number, first, last in split_by_branch(line, after, until):
        for low in range(first, last + 1, CHUNK):
            start, stop = make_place(number, low), make_place(number, min(low + CHUNK - 1, last))
            yield from read(lambda tx, start=start, stop=stop: _rows(tx, start, stop))


def _rows(tx: Transaction, start: int, stop: int) -> list[RawRow]:
    return [
        (where, to_id(identity), body)
        for where, identity, body in tx.rows(
            "SELECT place, id, body FROM message WHERE place BETWEEN ? AND ? ORDER BY place", start, stop
        )
    ]


def verify_rows(rows: Iterable[RawRow], before: bytes, after: int, until: int) -> Iterator[ChainRow]:
    """Verify the rows of a chain after message `after`, whose id is `before`, against their ids.

    Consecutive missing messages are one `ChainRow`, also at the end, before `until`.
    """
    expected, known = after + 1, True
    for where, identity, body in rows:
        seq = where & SEQ_MASK
        if seq != expected:
            yield _missing(where >> SEQ_BITS, expected, seq - 1)
            known = False
        message, trouble = _parsed(seq, body)
        if message is not None:
            made = make_chain_id(before, canonical_content(message)) if known and not message.redacted else identity
            if (message.seq, message.id) != (seq, identity.hex()) or made != identity:
                trouble = ChainProblem("broken-link", seq, "Its content or its position does not match its id.")
                identity = made if message.id == made.hex() else identity
        yield ChainRow(seq, where, identity, message, trouble)
        before, expected, known = identity, seq + 1, True
    if expected <= until:
        yield _missing(0, expected, until)


def _missing(branch: int, first: int, last: int) -> ChainRow:
    what = f"Message {first} is missing." if first == last else f"Messages {first} to {last} are missing."
    return ChainRow(first, make_place(branch, first), b"", None, ChainProblem("gap", first, what))


def _parsed(seq: int, body: bytes) -> tuple[Message | None, ChainProblem | None]:
    try:
        return decode_message(body), None
    except DECODE_ERRORS as error:
        return None, ChainProblem("unreadable", seq, f"It cannot be read: {str(error).rstrip('.')}.")
