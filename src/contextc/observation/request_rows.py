"""An observed request as rows of the ledger: its head, what the request before it has in common, and its segments."""

from bisect import bisect_right
from collections.abc import Collection, Sequence
from hashlib import blake2b
from itertools import accumulate
from typing import Literal, NamedTuple, TypeAlias

from msgspec.structs import replace

from contextc._json import as_object, decode_json, encode_canonical
from contextc._sequence_comparison import count_common_prefix, find_common_runs
from contextc.compiler import ledger
from contextc.messages import AnyPart, Message, Text
from contextc.models.tokens import TokenCounter
from contextc.observation.client_ids import attributions
from contextc.observation.exchange_parser import ObservedInput, ParsedElements, decode_head
from contextc.prompts import PromptBuilder, PromptFragment, hash_tools
from contextc.store.ledger_schema import HeadHashes, Item, LedgerRow, RowRange, StoredRow, extend_layout, pack_wire
from contextc.store.message_log import SEQ_BITS, SEQ_MASK, make_place
from contextc.store.transaction_engine import Transaction
from contextc.tools.definitions import get_tool_name

# ── the head ──────────────────────────────────────────────────────────────────────────────────────────────────────────
# Facts about the head of a request, for comparisons and figures: hashes, tokens, and the names of its tools.
#
# The hashes are those of the compiler, so a request of our own with the same system prompt and tools extends the
# prefix.


class HeadFacts(NamedTuple):
    """The facts of one head. `system` and `tools` are tokens. Those of the settings count as the tools'; without tools,
    as the system prompt's.
    """

    hashes: HeadHashes = HeadHashes()
    system: int = 0
    tools: int = 0
    names: tuple[str, ...] = ()


def hash_head(head: bytes) -> bytes:
    return blake2b(head, digest_size=16).digest()


_known_heads: dict[tuple[bytes, str, str], HeadFacts] = {}
MAX_KNOWN_HEADS = 256


def read_head(given: ObservedInput, counter: TokenCounter) -> HeadFacts:
    """Return the facts of a head. Most requests have the head of the one before, so the last ones are kept."""
    key = (hash_head(given.head), given.form.name, given.model)
    if key not in _known_heads:
        if len(_known_heads) >= MAX_KNOWN_HEADS:
            _known_heads.clear()
        _known_heads[key] = _read_facts(given, counter)
    return _known_heads[key]


def _read_facts(given: ObservedInput, counter: TokenCounter) -> HeadFacts:
    request = decode_head(given.form, given.head) if given.head else None
    encoder = f"{given.form.name}/{given.form.encoding_version}"
    if request is None:
        return HeadFacts(HeadHashes(static=_hash_hex(given.head) if given.head else "", encoder=encoder))
    settings = {name: request.settings[name] for name in given.form.prefix_settings if name in request.settings}
    prompt = [*([request.system] if request.system is not None else []), *request.messages]
    tools = given.form.encode_tools(request.tools)
    around = counter.count_settings(request.settings, has_tools=bool(tools))
    return HeadFacts(
        HeadHashes(
            static=_hash_prompt(prompt) if prompt else "",
            tools=hash_tools(request.tools) if tools else "",
            settings=_hash_hex(encode_canonical(settings)) if settings else "",
            encoder=encoder,
        ),
        sum([counter.count_system(message.text) for message in prompt]) + (0 if tools else around),
        counter.count_tools(tools) + around if tools else 0,
        tuple([get_tool_name(tool) for tool in request.tools]),
    )


def _hash_prompt(prompt: Sequence[Message]) -> str:
    """Return the hash of a system prompt. One text has the hash that the compiler gives to the same system prompt.

    Attribution lines of clients do not count.
    """
    counted = [(message.role, [each for each in message.parts if not is_attribution(each)]) for message in prompt]
    parts = [part for _, parts in counted for part in parts]
    if len(parts) == 1 and isinstance(parts[0], Text) and prompt[0].role == "system":
        rendered = PromptBuilder([PromptFragment("system_prompt", parts[0].text)]).render()
        return rendered.static_hash if rendered.static else ""
    return _hash_hex(encode_canonical(counted))


def is_attribution(part: AnyPart) -> bool:
    return isinstance(part, Text) and part.text.startswith(attributions())


def _hash_hex(data: bytes) -> str:
    return blake2b(data, digest_size=8).hexdigest()


# ── the request before it ─────────────────────────────────────────────────────────────────────────────────────────────
# Compare the elements of a request with those of the request before it on the same channel.
#
# A row of the ledger holds a segment: the output of the model, and what follows it. Rows are used from an element on
# to their end.


Change: TypeAlias = Literal["", "rewound", "changed", "removed", "inserted"]


class RowAlignment(NamedTuple):
    """The rows of the previous request that are the leading elements of this one.

    `rows` are their indexes, each with the number of elements to skip. The first `shared` are the same prefix.
    `elements` is the number of elements in all of them, `equal` the number of leading elements that both requests have.
    `change` is how the client broke the prefix.
    """

    rows: list[tuple[int, int]]
    shared: int
    elements: int
    equal: int
    change: Change


def align(before: Sequence[bytes], now: Sequence[bytes], counts: Sequence[int]) -> RowAlignment:
    """Compare two requests by the hashes of their elements. `counts` has the number of elements of each row before."""
    before, now = [*before], [*now]
    equal = count_common_prefix(before, now)
    ends = list(accumulate(counts))
    shared = sum(1 for end in ends if end <= equal)
    kept = ends[shared - 1] if shared else 0
    rows = [(index, 0) for index in range(shared)]
    if equal == len(before):
        return RowAlignment(rows, shared, kept, equal, "")
    if equal == len(now):
        return RowAlignment(rows, shared, kept, equal, "rewound")
    runs = list(find_common_runs(before[equal:], now[equal:]))
    if not runs:
        return RowAlignment(rows, shared, kept, equal, "rewound" if len(now) - equal == 1 else "changed")
    removed, inserted, _ = runs[0]
    if inserted or equal > kept:
        return RowAlignment(rows, shared, kept, equal, "inserted" if not removed else "changed")
    at = kept
    for start, other, length in runs:
        if equal + other != at:
            break
        first_row = bisect_right(ends, equal + start)
        skip = equal + start - (ends[first_row] - counts[first_row])
        for index in range(first_row, len(counts)):
            size = counts[index] - skip
            if at + size > equal + other + length:
                break
            rows.append((index, skip))
            at, skip = at + size, 0
    return RowAlignment(rows, shared, at, equal, "removed" if len(rows) > shared else "changed")


# ── rows ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


MODEL_ROLES = ("assistant", "model")


class RowSegment(NamedTuple):
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


def split_segments(tail: Sequence[bytes], messages: Sequence[Message], items: Sequence[Item]) -> list[RowSegment]:
    """Return the new elements as rows: each begins with output of the model, and has what follows it."""
    by_model = [is_model_output(raw) for raw in tail]
    starts = [at for at, is_output in enumerate(by_model) if not at or (is_output and not by_model[at - 1])]
    roles = [message.role == "assistant" for message in messages]
    begins = [at for at, is_output in enumerate(roles) if not at or (is_output and not roles[at - 1])]
    if len(starts) != len(begins):
        starts, begins = starts[:1], begins[:1]
    found: list[RowSegment] = []
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
        found.append(RowSegment(row, len(elements), b",".join(elements)))
    return found


def _end_role(raw: bytes) -> str:
    """Return the role of an element, or else its type, which decides what may follow it."""
    try:
        value = as_object(decode_json(raw))
    except ValueError:
        return ""
    return str(value.get("role", value.get("type", "")))


def without_redacted(segments: Sequence[RowSegment], redacted: Collection[int]) -> list[RowSegment]:
    """Return segments without the bytes of those that contain redacted messages."""
    return [
        each._replace(row=replace(each.row, gone=True), chunk=b"", stored=None)
        if any(item.place in redacted for item in each.row.items)
        else each
        for each in segments
    ]


def without_first(row: LedgerRow, skip: int, count: int) -> LedgerRow:
    """Return a row without its first elements. If its items are not one per element, it keeps all of them."""
    items = row.items[skip:] if len(row.items) == count else row.items
    return replace(row, items=items, tokens=sum([item.tokens for item in items]), packed=0)


def assign_row_places(
    segments: Sequence[RowSegment], number: int, first: int
) -> tuple[list[StoredRow], list[StoredRow]]:
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
    bodies = ledger.load_bodies(tx, places) if places else {}
    found: list[tuple[LedgerRow, bytes]] = []
    for row in rows:
        if not row.chunk:  # redacted
            found.append((row.row, b""))
            continue
        packed = pack_wire(row.chunk, b"".join([bodies.get(item.place, b"") for item in row.row.items]))
        found.append((replace(row.row, packed=len(row.chunk)), packed))
    return found


def find_marks(segments: Sequence[RowSegment], parsed: ParsedElements) -> dict[int, tuple[tuple[int, str], ...]]:
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
