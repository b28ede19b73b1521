"""The rows of an observed request: segments of its elements, their items, and their cache breakpoints."""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from msgspec.structs import replace

from contextc._json import as_object, decode_json
from contextc.compiler.ledger import repository
from contextc.compiler.ledger.observed_compression import pack_wire
from contextc.messages import Message
from contextc.observation.exchange_parser import ParsedElements
from contextc.store.backend_interface import Transaction
from contextc.store.ledger_schema import Item, LedgerRow, RowRange, StoredRow, extend_layout
from contextc.store.message_rows import SEQ_BITS, SEQ_MASK, make_place

MODEL_ROLES = ("assistant", "model")


class Segment(NamedTuple):
    """A row of the request, with the number of its elements: stored already, or new."""

    row: LedgerRow
    size: int
    chunk: bytes
    stored: StoredRow | None = None


def is_model_output(raw: bytes) -> bool:
    """Return True if an element is output of a model."""
    try:
        value = as_object(decode_json(raw))
    except ValueError:
        return False
    role, kind = value.get("role"), str(value.get("type") or "")
    return role in MODEL_ROLES or (role is None and bool(kind) and kind != "message" and not kind.endswith("_output"))


def split_segments(tail: Sequence[bytes], messages: Sequence[Message], items: Sequence[Item]) -> list[Segment]:
    """Return the new elements as rows: each begins with output of the model, and has what follows it."""
    by_model = [is_model_output(raw) for raw in tail]
    starts = [at for at, is_output in enumerate(by_model) if not at or (is_output and not by_model[at - 1])]
    roles = [message.role == "assistant" for message in messages]
    begins = [at for at, is_output in enumerate(roles) if not at or (is_output and not roles[at - 1])]
    if len(starts) != len(begins):
        starts, begins = starts[:1], begins[:1]
    found: list[Segment] = []
    for number, start in enumerate(starts):
        end = starts[number + 1] if number + 1 < len(starts) else len(tail)
        first = begins[number] if begins else 0
        last = begins[number + 1] if number + 1 < len(begins) else len(messages)
        elements, own = tail[start:end], items[first:last]
        row = LedgerRow(
            items=tuple(own),
            tokens=sum([item.tokens for item in own]),
            ids=tuple([call.id for message in messages[first:last] for call in message.tool_calls]),
            end=_end_role(elements[-1]),
        )
        found.append(Segment(row, len(elements), b",".join(elements)))
    return found


def _end_role(raw: bytes) -> str:
    """Return the role of an element, or else its type, which decides what may follow it."""
    try:
        value = as_object(decode_json(raw))
    except ValueError:
        return ""
    return str(value.get("role", value.get("type", "")))


def without_first(row: LedgerRow, skip: int, count: int) -> LedgerRow:
    """Return a row without its first elements. If its items are not one per element, it keeps all of them."""
    items = row.items[skip:] if len(row.items) == count else row.items
    return replace(row, items=items, tokens=sum([item.tokens for item in items]), packed=0)


def number_rows(segments: Sequence[Segment], number: int, first: int) -> tuple[list[StoredRow], list[StoredRow]]:
    """Return all rows of a request, and those that are new."""
    layout: list[StoredRow] = []
    fresh: list[StoredRow] = []
    for segment in segments:
        row = segment.stored
        if row is None:
            row = StoredRow(make_place(number, first + len(fresh)), segment.row, segment.chunk)
            fresh.append(row)
        layout.append(row)
    return layout, fresh


def pack_rows(tx: Transaction, rows: Sequence[StoredRow]) -> list[tuple[LedgerRow, bytes]]:
    """Return new rows as they are stored: compressed against their messages, which contain nearly the same text."""
    places = [item.place for row in rows for item in row.row.items]
    bodies = repository.load_bodies(tx, places) if places else {}
    found: list[tuple[LedgerRow, bytes]] = []
    for row in rows:
        packed = pack_wire(row.chunk, b"".join([bodies.get(item.place, b"") for item in row.row.items]))
        found.append((replace(row.row, packed=len(row.chunk)), packed))
    return found


def find_marks(segments: Sequence[Segment], parsed: ParsedElements) -> dict[int, tuple[tuple[int, str], ...]]:
    """Return the cache breakpoints by row, with their offsets in the row."""
    found: dict[int, tuple[tuple[int, str], ...]] = {}
    ends = list(accumulate([segment.size for segment in segments])) if parsed.marks else []
    for index, marks in sorted(parsed.marks.items()):
        row = bisect_right(ends, index)
        start = ends[row] - segments[row].size
        before = sum([len(each) + 1 for each in parsed.bases[start:index]])
        found[row] = (*found.get(row, ()), *((before + offset, text) for offset, text in marks))
    return found


def make_ranges(layout: Sequence[StoredRow]) -> tuple[RowRange, ...]:
    found: tuple[RowRange, ...] = ()
    for row in layout:
        found = extend_layout(found, row.place >> SEQ_BITS, row.place & SEQ_MASK, row.place & SEQ_MASK)
    return found
