"""Export of a whole conversation as JSON Lines: branches, messages, media, todos and pins."""

import base64
from collections.abc import Iterator
from typing import NamedTuple

from contextc._json import hash_blob
from contextc.errors import StoreCorrupt
from contextc.interchange.contextc_jsonl_lines import (
    CHUNK,
    VERSION,
    VERSION_WITHOUT_TODOS,
    BlobLine,
    BranchLine,
    HeaderLine,
    MessageLine,
    Progress,
    TodosLine,
    blob_names,
    encode_line,
)
from contextc.store import Store, message_rows, todos
from contextc.store.append_and_load import load_and_verify
from contextc.store.backend_interface import Transaction
from contextc.store.message_rows import DOCTOR_HINT

DAMAGED_BRANCH_FIX = (
    "An export contains every branch. Repair the conversation, then export a fork of it without the damaged branch."
)


class BranchRange(NamedTuple):
    """The range of a branch that belongs to a conversation: the messages after `base` up to `until`."""

    number: int
    parent: int | None
    base: int
    until: int
    own: bool


def export_lines(store: Store, conversation: str, progress: Progress | None = None) -> Iterator[bytes]:
    """Return a conversation as lines of JSON, without their line ends.

    Every message and blob is verified as it is read: one that does not match its hash is `StoreCorrupt`.
    """
    header, ranges, lists = store.read(lambda tx: _header(tx, conversation))
    yield encode_line(header)
    yield from map(encode_line, lists)
    blobs: set[str] = set()
    done = 0
    for each in ranges:
        for start in range(each.base, each.until, CHUNK):
            stop = min(start + CHUNK, each.until)
            for line in store.read(lambda tx, r=each, a=start, b=stop: _messages(tx, conversation, r, a, b)):
                for name in blob_names(line.message):
                    if name not in blobs:
                        blobs.add(name)
                        yield encode_line(BlobLine(name=name, data=base64.b64encode(_blob(store, name)).decode()))
                yield encode_line(line)
            done += stop - start
            if progress:
                progress(done, header.messages)


def _header(tx: Transaction, conversation: str) -> tuple[HeaderLine, list[BranchRange], list[TodosLine]]:
    at = message_rows.load_tip(tx, conversation)
    ranges = _branch_ranges(tx, conversation)
    lists = [
        TodosLine(agent=agent, todos=tuple(todos.load_todos(tx, conversation, agent)))
        for (agent,) in tx.rows("SELECT DISTINCT agent FROM todo WHERE conversation = ? ORDER BY agent", conversation)
    ]
    lines = tuple(
        BranchLine(
            number=each.number,
            parent=each.parent,
            base=each.base,
            own=each.own,
            edges=_marked_seqs(tx, "edge", each),
            pins=_marked_seqs(tx, "pin", each),
        )
        for each in ranges
    )
    header = HeaderLine(
        version=VERSION if lists or any(line.pins for line in lines) else VERSION_WITHOUT_TODOS,
        conversation=conversation,
        root=message_rows.load_root(tx, at.tree).hex(),
        branch=at.branch,
        branches=lines,
        messages=sum(each.until - each.base for each in ranges),
    )
    return header, ranges, lists


def _marked_seqs(tx: Transaction, table: str, range_: BranchRange) -> tuple[int, ...]:
    """Return the seqs of a branch that a table lists."""
    low, high = message_rows.make_place(range_.number, 0), message_rows.make_place(range_.number, range_.until)
    rows = tx.rows(f"SELECT place FROM {table} WHERE place BETWEEN ? AND ? ORDER BY place", low, high)
    return tuple(row[0] & message_rows.SEQ_MASK for row in rows)


def _branch_ranges(tx: Transaction, conversation: str) -> list[BranchRange]:
    """Return the branches of a conversation and their parents, oldest first."""
    found: dict[int, BranchRange] = {}
    own = tx.rows("SELECT number, parent, base_seq FROM branch WHERE conversation = ?", conversation)
    for number, parent, base in own:
        found[number] = BranchRange(number, parent, base, message_rows.load_branch_end(tx, number)[0], True)
    below = [(parent, base) for _, parent, base in own]
    while below:
        number, upto = below.pop()
        if number is None or (number in found and (found[number].own or found[number].until >= upto)):
            continue
        row = tx.row("SELECT parent, base_seq FROM branch WHERE number = ?", number)
        if row is None or (row[0] is not None and row[0] >= number):
            raise StoreCorrupt(
                f"Branch {number}, the parent of other branches, is missing or has an invalid parent. {DOCTOR_HINT}"
            )
        found[number] = BranchRange(number, row[0], row[1], upto, False)
        below.append((row[0], row[1]))
    return sorted(found.values())


def _messages(tx: Transaction, conversation: str, reach: BranchRange, after: int, upto: int) -> list[MessageLine]:
    low, high = message_rows.make_place(reach.number, after + 1), message_rows.make_place(reach.number, upto)
    keys = dict(
        tx.rows(
            "SELECT place, key FROM append_key WHERE conversation = ? AND place BETWEEN ? AND ?",
            conversation,
            low,
            high,
        )
    )
    try:
        found = load_and_verify(tx, reach.number, after + 1, upto)
    except StoreCorrupt as error:
        raise StoreCorrupt(f"{error} {DAMAGED_BRANCH_FIX}") from error
    return [
        MessageLine(branch=reach.number, message=each, key=keys.get(message_rows.make_place(reach.number, each.seq)))
        for each in found
    ]


def _blob(store: Store, name: str) -> bytes:
    data = store.blob(name)
    if hash_blob(data) != name:
        raise StoreCorrupt(f"Blob {name!r} is corrupt: its bytes do not match its hash. {DOCTOR_HINT}")
    return data
