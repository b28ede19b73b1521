"""A conversation written out: its branches, its messages, its media, its todos and pins, in order and complete."""

import base64
from collections.abc import Iterator
from typing import NamedTuple

from contextc.errors import StoreCorrupt
from contextc.messages import from_json
from contextc.store import Store, places, todos
from contextc.store.base import Transaction
from contextc.store.reading import LOOK, UNREADABLE
from contextc.transfer.lines import (
    CHUNK,
    PLAIN,
    VERSION,
    BlobLine,
    BranchLine,
    Header,
    MessageLine,
    Progress,
    TodosLine,
    blob_names,
    encode_line,
)


class Reach(NamedTuple):
    """How much of a branch belongs to a conversation: the messages after `base` up to `upto`."""

    number: int
    parent: int | None
    base: int
    upto: int
    own: bool


def export_lines(store: Store, conversation: str, progress: Progress | None = None) -> Iterator[bytes]:
    """A conversation as lines of JSON, without their line ends."""
    header, reaches, lists = store.read(lambda tx: _header(tx, conversation))
    yield encode_line(header)
    yield from map(encode_line, lists)
    blobs: set[str] = set()
    done = 0
    for reach in reaches:
        for start in range(reach.base, reach.upto, CHUNK):
            stop = min(start + CHUNK, reach.upto)
            for line in store.read(lambda tx, r=reach, a=start, b=stop: _messages(tx, conversation, r, a, b)):
                for name in blob_names(line.message):
                    if name not in blobs:
                        blobs.add(name)
                        yield encode_line(BlobLine(name=name, data=base64.b64encode(store.blob(name)).decode()))
                yield encode_line(line)
            done += stop - start
            if progress:
                progress(done, header.messages)


def _header(tx: Transaction, conversation: str) -> tuple[Header, list[Reach], list[TodosLine]]:
    at = places.head(tx, conversation)
    reaches = _reaches(tx, conversation)
    lists = [
        TodosLine(agent=agent, todos=tuple(todos.load(tx, conversation, agent)))
        for (agent,) in tx.rows("SELECT DISTINCT agent FROM todo WHERE conversation = ? ORDER BY agent", conversation)
    ]
    lines = tuple(
        BranchLine(
            number=reach.number,
            parent=reach.parent,
            base=reach.base,
            own=reach.own,
            edges=_marked(tx, "edge", reach),
            pins=_marked(tx, "pin", reach),
        )
        for reach in reaches
    )
    header = Header(
        version=VERSION if lists or any(line.pins for line in lines) else PLAIN,
        conversation=conversation,
        root=places.root(tx, at.tree).hex(),
        branch=at.branch,
        branches=lines,
        messages=sum(reach.upto - reach.base for reach in reaches),
    )
    return header, reaches, lists


def _marked(tx: Transaction, table: str, reach: Reach) -> tuple[int, ...]:
    """The messages of a branch that one of our tables names."""
    low, high = places.place(reach.number, 0), places.place(reach.number, reach.upto)
    rows = tx.rows(f"SELECT place FROM {table} WHERE place BETWEEN ? AND ? ORDER BY place", low, high)
    return tuple(row[0] & places.SEQ_MASK for row in rows)


def _reaches(tx: Transaction, conversation: str) -> list[Reach]:
    """The branches of a conversation and those they stand on, oldest first."""
    found: dict[int, Reach] = {}
    own = tx.rows("SELECT number, parent, base_seq FROM branch WHERE conversation = ?", conversation)
    for number, parent, base in own:
        found[number] = Reach(number, parent, base, places.branch_end(tx, number)[0], True)
    below = [(parent, base) for _, parent, base in own]
    while below:
        number, upto = below.pop()
        if number is None or (number in found and (found[number].own or found[number].upto >= upto)):
            continue
        row = tx.row("SELECT parent, base_seq FROM branch WHERE number = ?", number)
        if row is None or (row[0] is not None and row[0] >= number):
            raise StoreCorrupt(f"Branch {number}, on which others begin, is not where it should be. {LOOK}")
        found[number] = Reach(number, row[0], row[1], upto, False)
        below.append((row[0], row[1]))
    return sorted(found.values())


def _messages(tx: Transaction, conversation: str, reach: Reach, after: int, upto: int) -> list[MessageLine]:
    low, high = places.place(reach.number, after + 1), places.place(reach.number, upto)
    keys = dict(
        tx.rows(
            "SELECT place, key FROM append_key WHERE conversation = ? AND place BETWEEN ? AND ?",
            conversation,
            low,
            high,
        )
    )
    rows = tx.rows("SELECT place, body FROM message WHERE place BETWEEN ? AND ? ORDER BY place", low, high)
    try:
        lines = [MessageLine(branch=reach.number, message=from_json(body), key=keys.get(at)) for at, body in rows]
    except UNREADABLE as error:
        raise _damaged(reach, after, upto, f"holds a message that cannot be read: {error}") from error
    if len(lines) != upto - after:
        raise _damaged(reach, after, upto, "is not whole")
    return lines


def _damaged(reach: Reach, after: int, upto: int, what: str) -> StoreCorrupt:
    """Nobody could import what would be written."""
    return StoreCorrupt(
        f"Branch {reach.number} {what}, between messages {after + 1} and {upto}. Run `contextc doctor` to see which. "
        "An export holds every branch: heal the conversation, then export a fork of it, which leaves this one behind."
    )
