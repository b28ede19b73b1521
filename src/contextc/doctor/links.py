"""Verification of the rows of a chain against their ids. An unreadable row is reported, never raised.

After a wrong row, the next one is checked against the most plausible id of it, so that one fault is one finding.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

from contextc._json import blob_name
from contextc.doctor.findings import Trouble
from contextc.messages import Media, Message, ToolResult, chain_id, content_of, from_json
from contextc.store.base import Transaction
from contextc.store.places import SEQ_BITS, SEQ_MASK, place, stretches
from contextc.store.reading import UNREADABLE, as_id

CHUNK = 1000
RawRow: TypeAlias = tuple[int, bytes, bytes]  # place, id, body
Reader: TypeAlias = Callable[[Callable[[Transaction], list[RawRow]]], list[RawRow]]


class Branch(NamedTuple):
    """A row of the branch table."""

    number: int
    tree: int
    parent: int | None
    base: int
    base_id: bytes
    conversation: str | None
    wrong: str = ""
    """The problem of its parent or base. `parent` and `base` are then the ones that its messages show, if any."""


class Row(NamedTuple):
    """A message of a chain, or the place of a missing one, with its problem."""

    seq: int
    place: int
    id: bytes
    message: Message | None
    trouble: Trouble | None


class Blobs:
    """Check of media bytes: they exist and match their name. Each blob is read once."""

    def __init__(self, fetch: Callable[[str], object]) -> None:
        self._fetch, self._known = fetch, dict[str, str]()

    def wrong(self, message: Message) -> Iterator[tuple[int, str, str]]:
        """Return the parts of a message with missing or changed bytes: index, blob, code."""
        for index, part in enumerate(message.parts):
            for media in media_in(part):
                if media.blob and (code := self._code(media.blob)):
                    yield index, media.blob, code

    def _code(self, name: str) -> str:
        if name not in self._known:
            data = self._fetch(name)
            is_whole = isinstance(data, bytes) and blob_name(data) == name
            self._known[name] = "missing-blob" if data is None else "" if is_whole else "changed-blob"
        return self._known[name]


def fetch_blob(tx: Transaction, name: str) -> object:
    """Return the stored value of a blob, of any type; None if it does not exist."""
    row = tx.row("SELECT data FROM blob WHERE name = ?", name)
    return None if row is None else row[0]


def media_in(part: object) -> tuple[Media, ...]:
    if isinstance(part, Media):
        return (part,)
    if isinstance(part, ToolResult) and not isinstance(part.content, str):
        return tuple([each for each in part.content if isinstance(each, Media)])
    return ()


def lineage_of(branches: dict[int, Branch], number: int) -> list[tuple[int, int]]:
    """Return the branches of a chain, newest first, each with the seq after which it starts."""
    found: list[tuple[int, int]] = []
    at = branches.get(number)
    while at is not None:
        found.append((at.number, at.base))
        at = branches.get(at.parent) if at.parent is not None and at.parent < at.number else None
    return found


def rows_between(read: Reader, line: Sequence[tuple[int, int]], after: int, upto: int) -> Iterator[RawRow]:
    """Return the rows of a lineage after a seq, up to another, read in chunks."""
    for number, first, last in stretches(line, after, upto):
        for low in range(first, last + 1, CHUNK):
            start, stop = place(number, low), place(number, min(low + CHUNK - 1, last))
            yield from read(lambda tx, start=start, stop=stop: _rows(tx, start, stop))


def _rows(tx: Transaction, start: int, stop: int) -> list[RawRow]:
    return [
        (where, as_id(identity), body)
        for where, identity, body in tx.rows(
            "SELECT place, id, body FROM message WHERE place BETWEEN ? AND ? ORDER BY place", start, stop
        )
    ]


def follow(rows: Iterable[RawRow], before: bytes, after: int, upto: int) -> Iterator[Row]:
    """Verify the rows of a chain after message `after`, whose id is `before`, against their ids.

    Consecutive missing messages are one `Row`, also at the end, before `upto`.
    """
    expected, known = after + 1, True
    for where, identity, body in rows:
        seq = where & SEQ_MASK
        if seq != expected:
            yield _missing(where >> SEQ_BITS, expected, seq - 1)
            known = False
        message, trouble = _parsed(seq, body)
        if message is not None:
            made = chain_id(before, content_of(message)) if known and not message.redacted else identity
            if (message.seq, message.id) != (seq, identity.hex()) or made != identity:
                trouble = Trouble("broken-link", seq, "Its content or its position does not match its id.")
                identity = made if message.id == made.hex() else identity
        yield Row(seq, where, identity, message, trouble)
        before, expected, known = identity, seq + 1, True
    if expected <= upto:
        yield _missing(0, expected, upto)


def _missing(branch: int, first: int, last: int) -> Row:
    what = f"Message {first} is missing." if first == last else f"Messages {first} to {last} are missing."
    return Row(first, place(branch, first), b"", None, Trouble("gap", first, what))


def _parsed(seq: int, body: bytes) -> tuple[Message | None, Trouble | None]:
    try:
        return from_json(body), None
    except UNREADABLE as error:
        return None, Trouble("unreadable", seq, f"It cannot be read: {str(error).rstrip('.')}.")
