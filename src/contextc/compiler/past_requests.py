"""Past requests: load their manifests, and rebuild their bytes from the ledger."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, cast

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from contextc._json import JSON, JSONObject, as_object, decode, encode
from contextc.compiler import ledger
from contextc.compiler.compaction import load_compactions
from contextc.compiler.draft import (
    DraftEntry,
    LeftOutMessage,
    hash_chunks,
    merge_adjacent_fragments,
    render_item,
    slice_at_replies,
)
from contextc.compiler.facts_in_texts import describe_kept_facts
from contextc.compiler.ledger import MAX_LEADING, join_messages, load_messages_by_place, split_chunk
from contextc.compiler.manifest import Fragment, Manifest, ManifestLine, ObservedFacts, RequestRecord, record_from_json
from contextc.compiler.step import (
    MESSAGES_PLACEHOLDER,
    Compiled,
    HeadParts,
    build_lines,
    find_included_places,
    list_leading_messages,
    mark_chunk,
    offers_fetch,
    with_breakpoints,
)
from contextc.errors import InvalidInput, StoreCorrupt, UnknownModel, UnknownRequest
from contextc.formats.base import Formatter
from contextc.messages import AnyPart, Message, ToolResult, Usage
from contextc.models import Bill, Model, bill, model
from contextc.providers import Provider, provider
from contextc.providers.registry import ProviderFacts
from contextc.store import Store
from contextc.store.ledger_schema import Channel, ChannelState, Item, LeftOutReason, RowRange, StoredRow, extend_layout
from contextc.store.message_log import (
    FIRST_UNANSWERED,
    SEQ_BITS,
    SEQ_MASK,
    load_context_start,
    load_lineage,
    split_by_branch,
)
from contextc.store.transaction_engine import Transaction

# ── bodies in elements ────────────────────────────────────────────────────────────────────────────────────────────────
# Split the bytes of a request into its head and the elements of its conversation, and join them again to the byte.
#
# The head is everything but the conversation, with a placeholder where the conversation was. Leading system messages
# are part of it. A body that cannot be split so that joining gives the same bytes is stored whole.


PLACEHOLDER = encode(MESSAGES_PLACEHOLDER)
SYSTEM_ROLES = ("system", "developer")
WHITE = b" \t\n\r"
COMMON_GAPS = (b",", b", ")
_decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_elements = msgspec.json.Decoder(list[Raw]).decode
MARK_FIELDS = ("cache_control", "prompt_cache_breakpoint")
"""Fields that are cache breakpoints, in the formats of Anthropic and OpenAI."""
MARK_BLOCK = "cachePoint"
"""The block that is a cache breakpoint, in the format of Bedrock."""
MARK_NAMES = tuple([f'"{name}"'.encode() for name in (*MARK_FIELDS, MARK_BLOCK)])
_MARKS = (
    re.compile(rb',\s*"(?:cache_control|prompt_cache_breakpoint)"\s*:\s*(?:\{[^{}]*\}|null)'),
    re.compile(rb'"(?:cache_control|prompt_cache_breakpoint)"\s*:\s*(?:\{[^{}]*\}|null)\s*,\s*'),
    re.compile(rb',\s*\{\s*"cachePoint"\s*:\s*\{[^{}]*\}\s*\}'),
)
MARKED_FIELDS = ("content", "toolResult", "toolSpec", "output", "parts")
"""Fields whose values may have cache breakpoints inside."""
TEXT_TYPES = ("text", "input_text")


class BodyParts(NamedTuple):
    """The parts of a body. `gaps` are the separators of the elements: none if all are commas, one if all are equal."""

    head: bytes
    elements: list[bytes]
    gaps: tuple[str, ...] = ()


class EncodedElement(NamedTuple):
    """One element of a conversation: its bytes without cache breakpoints, and the breakpoints with their offsets."""

    base: bytes
    marks: tuple[tuple[int, str], ...] = ()


def split_at_conversation(body: bytes, key: str) -> BodyParts | None:
    """Return the parts of a body whose conversation is the field `key`; None if it cannot be split."""
    try:
        span = _find_field(body, key)
        if span is None:
            return None
        parts = _split_at(body, *span)
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError, RecursionError):
        return None
    return parts if join_body(parts.head, parts.elements, parts.gaps) == body else None


def join_body(head: bytes, elements: Sequence[bytes], gaps: Sequence[str] = ()) -> bytes:
    """Return the bytes of a request. This reverses `split_at_conversation`."""
    before, _, after = head.partition(PLACEHOLDER)
    if not elements:
        return before.removesuffix(b",") + after
    if len(gaps) <= 1:
        return before + (gaps[0].encode() if gaps else b",").join(elements) + after
    joined = b"".join(
        [part for pair in zip(elements, [*gaps, ""], strict=True) for part in (pair[0], pair[1].encode())]
    )
    return before + joined + after


def split_elements(chunk: bytes) -> list[bytes]:
    """Return the elements of a row, whose bytes are joined by commas."""
    return [bytes(raw) for raw in _decode_elements(b"[%b]" % chunk)]


def strip_marks(raw: bytes) -> EncodedElement:
    """Return an element without its cache breakpoints, which move with every request and are not content."""
    if not any(name in raw for name in MARK_NAMES):
        return EncodedElement(raw)
    found: list[tuple[int, int]] = []
    for pattern in _MARKS:
        for match in pattern.finditer(raw):
            if all(match.end() <= start or match.start() >= end for start, end in found):
                found.append(match.span())
    base, marks, at = bytearray(), list[tuple[int, str]](), 0
    for start, end in sorted(found):
        base += raw[at:start]
        marks.append((len(base), raw[start:end].decode("utf-8", "replace")))
        at = end
    base += raw[at:]
    stripped = bytes(base)
    if not marks or comparable_bytes(stripped) != comparable_bytes(raw) or insert_marks(stripped, marks) != raw:
        return EncodedElement(raw)
    return EncodedElement(stripped, tuple(marks))


def insert_marks(base: bytes, marks: Sequence[tuple[int, str]]) -> bytes:
    """Return an element with its cache breakpoints. This reverses `strip_marks`."""
    for offset, text in reversed(marks):
        base = base[:offset] + text.encode() + base[offset:]
    return base


def comparable_bytes(raw: bytes) -> bytes:
    """Return an element in the form in which prefixes are compared: compact, without cache breakpoints.

    A list of one plain text equals the text: clients switch between the two when they move a breakpoint.
    """
    try:
        return encode(comparable(decode(raw)))
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError, RecursionError):
        return raw


def comparable(value: JSON) -> JSON:
    """Return a message, a tool or a system prompt without cache breakpoints, with a list of one text as that text."""
    if isinstance(value, list):
        blocks = [comparable(each) for each in cast(list[JSON], value) if not _is_mark_block(each)]
        only = as_object(blocks[0]) if len(blocks) == 1 else {}
        return only["text"] if only.keys() == {"type", "text"} and only["type"] in TEXT_TYPES else blocks
    return _without_mark_fields(value, comparable)


def without_marks(value: JSON) -> JSON:
    """Return JSON without cache breakpoints, at any depth where a provider accepts them."""
    if isinstance(value, list):
        return [without_marks(each) for each in cast(list[JSON], value) if not _is_mark_block(each)]
    return _without_mark_fields(value, without_marks)


def head_without_marks(head: JSONObject, messages_key: str) -> JSONObject:
    """Return a head without cache breakpoints. Its conversation consists of the leading system messages."""
    lead = [comparable(each) for each in list_leading_messages(head, messages_key)]
    return {
        name: lead if name == messages_key else without_marks(value) if isinstance(value, list) else value
        for name, value in {**head, messages_key: lead}.items()
        if name not in MARK_FIELDS
    }


def _without_mark_fields(value: JSON, inner: Callable[[JSON], JSON]) -> JSON:
    if not isinstance(value, dict):
        return value
    return {
        name: inner(each) if name in MARKED_FIELDS else each
        for name, each in cast(JSONObject, value).items()
        if name not in MARK_FIELDS
    }


def _is_mark_block(value: JSON) -> bool:
    return as_object(value).keys() == {MARK_BLOCK}


def _find_field(body: bytes, key: str) -> tuple[int, int] | None:
    """Return the span of the value of a top-level field. A field that occurs twice makes the scan fail."""
    at = _skip(body, 0)
    for name, raw in _decode_fields(body).items():
        at = _skip(body, at + 1)  # after "{" or ","
        end = _string_end(body, at)
        if body[at : at + 1] != b'"' or decode(body[at:end]) != name:
            raise ValueError(name)
        at = _skip(body, _skip(body, end) + 1)
        if not body.startswith(raw, at):
            raise ValueError(name)
        if name == key:
            return at, at + len(memoryview(raw))
        at = _skip(body, at + len(memoryview(raw)))
    return None


def _skip(body: bytes, at: int) -> int:
    while body[at : at + 1] and body[at] in WHITE:
        at += 1
    return at


def _string_end(body: bytes, at: int) -> int:
    """Return the position after the string that begins at a position."""
    end = at + 1
    while True:
        end = body.index(b'"', end)
        slashes = 0
        while body[end - 1 - slashes : end - slashes] == b"\\":
            slashes += 1
        end += 1
        if not slashes % 2:
            return end


def _split_at(body: bytes, start: int, end: int) -> BodyParts:
    if body[start : start + 1] != b"[":  # a plain text, or one object
        return BodyParts(body[:start] + PLACEHOLDER + body[end:], [body[start:end]])
    elements = [bytes(raw) for raw in _decode_elements(body[start:end])]
    first = next((number for number, each in enumerate(elements) if not _is_system(each)), len(elements))
    at = _skip(body, start + 1)
    for each in elements[:first]:
        if not body.startswith(each, at):
            raise ValueError
        at = _skip(body, at + len(each))
        if body[at : at + 1] == b",":
            at = _skip(body, at + 1)
    rest = elements[first:]
    if not rest:
        return BodyParts(body[:at] + (b"," if first else b"") + PLACEHOLDER + body[at:], [])
    for gap in COMMON_GAPS:
        joined = gap.join(rest)
        if body.startswith(joined, at):
            gaps = () if gap == b"," else (gap.decode(),)
            return BodyParts(body[:at] + PLACEHOLDER + body[at + len(joined) :], rest, gaps)
    found: list[str] = []
    cursor = at
    for each in rest:
        begin = _skip(body, cursor)
        if begin > cursor or found or cursor > at:
            begin = _skip(body, begin + 1) if body[begin : begin + 1] == b"," else begin
            found.append(body[cursor:begin].decode())
        if not body.startswith(each, begin):
            raise ValueError
        cursor = begin + len(each)
    gaps = (found[0],) if len(set(found)) == 1 else tuple(found)
    return BodyParts(body[:at] + PLACEHOLDER + body[cursor:], rest, gaps)


def _is_system(raw: bytes) -> bool:
    return any(role in raw for role in (b'"system"', b'"developer"')) and _role(raw) in SYSTEM_ROLES


def _role(raw: bytes) -> str:
    return str(as_object(decode(raw)).get("role"))


MANIFESTS_PER_BATCH = 64
CLEARED = "the context was cleared after it"
TOO_FAR_BACK = "too far back to fit"


class _LeftOutPart(Struct, frozen=True):
    """The left-out messages of a record. Decoding only these takes half the time of decoding the whole record."""

    left: tuple[LeftOutMessage, ...] = ()


_left_from_json = msgspec.json.Decoder(_LeftOutPart).decode


class PastRequest(Struct, frozen=True, kw_only=True):
    """A committed request as loaded from the store."""

    number: int
    record: RequestRecord
    rows: list[StoredRow]
    fragments: tuple[Fragment, ...] = ()
    """The prompt fragments with which its epoch began."""
    fetchable: bool = True


def load_channel_formatter(store: Store, channel: Channel) -> Formatter:
    """Return the formatter that the channel's last request used, as its provider needs it."""
    return load_channel_provider(store, channel).formatter


def load_channel_provider(store: Store, channel: Channel) -> Provider:
    """Return the provider of a channel, with the format and the window of its last request.

    Facts that only the sending program configured are restored as far as the ledger implies them: a directory and
    sessions.
    """

    def work(tx: Transaction) -> tuple[ChannelState, int]:
        found = ledger.find_channel(tx, channel)
        last = ledger.load_manifests(tx, found.number, limit=1) if found else []
        if found is not None and not last and (kept := ledger.load_unanswered(tx, found.number)) is not None:
            last = [kept[1]]
        if found is None or not last:
            raise UnknownRequest(channel.conversation, channel, None, last=0)
        return ledger.decode_state(channel.conversation, found.state), record_from_json(last[0]).budget.window

    standing, window = store.read(work)
    facts: ProviderFacts = {}
    if channel.directory:
        facts["directory_bound"] = True
    if standing.session or standing.lost:
        facts["session_resumption"] = True
    format = standing.head.encoder.partition("/")[0] or None
    return provider(f"{channel.provider}:{channel.model}", format=format, window=window, **facts)


def load_records(store: Store, channel: Channel) -> list[RequestRecord]:
    """Return the stored records of all requests of a channel, oldest first."""

    def work(tx: Transaction) -> list[RequestRecord]:
        found = ledger.find_channel(tx, channel)
        return (
            [] if found is None else [record_from_json(body) for body in ledger.load_manifests(tx, found.number)][::-1]
        )

    return store.read(work)


def compute_usage_bill(channel: Channel, usage: Usage | None) -> Bill | None:
    """Return the cost of a request in dollars; None if its usage or the model's prices are unknown."""
    known = find_channel_model(channel) if usage is not None else None
    return bill(known, usage) if known is not None and usage is not None else None


def find_channel_model(channel: Channel) -> Model | None:
    """Return the channel's model; None if it is unknown."""
    try:
        return model(channel.model)
    except UnknownModel:
        return None


def explain(store: Store, channel: Channel, request: int | None = None) -> Manifest:
    """Return the manifest of a committed request; by default of the last one."""
    past = store.read(lambda tx: _load_past(tx, channel, request))

    def lines() -> list[ManifestLine]:
        items = [item for row in past.rows for item in row.row.items]
        record = past.record
        left = load_left_out_reasons(store, channel, record.branch, record.tip, record.request, items)
        left |= {each.place: each.why for each in record.left}
        held, produced = 0, tuple[int, ...]()
        if record.mode == "resume":
            held = sum([len(row.row.items) for row in past.rows[: len(past.rows) - record.added]])
            if record.held:
                produced = tuple([item.place for item in items if 0 < item.place & SEQ_MASK <= record.held])
            else:
                produced = store.read(lambda tx: _produced(tx, past.number, record.request - 1))
        found = build_lines(
            items,
            left,
            lambda places: store.read(lambda tx: load_messages_by_place(tx, places)),
            held=held,
            produced=produced,
            used=record.corrected_budget.messages,
            fetchable=past.fetchable,
        )
        if not any([line.kind == "summary" for line in found]):
            return found
        kept = load_kept_facts(store, channel)
        return [replace(line, why=kept.get(line.seq, line.why)) if line.kind == "summary" else line for line in found]

    def fragments() -> tuple[Fragment, ...]:
        if past.record.mode != "resume" or load_channel_provider(store, channel).resends_head:
            return past.fragments
        return tuple([replace(each, shown=False) if each.lifecycle == "static" else each for each in past.fragments])

    return Manifest(channel, past.record, lines, fragments)


def load_kept_facts(store: Store, channel: Channel) -> dict[int, str]:
    """Return what each summary of a channel's agent kept and lost, by the last message that it covers."""
    found = load_compactions(store, channel.conversation, channel.author)
    return {each.upto: describe_kept_facts(each.receipt) for each in found if each.receipt is not None}


def _produced(tx: Transaction, number: int, request: int) -> tuple[int, ...]:
    """Return the places of the messages that a request produced."""
    found = ledger.load_manifests(tx, number, request, limit=1)
    return record_from_json(found[0]).produced if found else ()


def load_left_out_reasons(
    store: Store, channel: Channel, branch: int, tip: int, request: int, items: Sequence[Item]
) -> dict[int, str]:
    """Return the messages of a branch up to `tip` that a request leaves out, by place, with the reason.

    `items` are the items of the request. A reason that an earlier request recorded is kept. System messages at the
    start of the branch are not listed, because they are in the system prompt.
    """
    shown = find_included_places(items)
    summed_up = max([item.place & SEQ_MASK for item in items if item.kind == "summary"], default=0)

    def work(tx: Transaction) -> dict[int, str]:
        line = list(split_by_branch(load_lineage(tx, branch), 0, tip))
        missing = [
            where
            for part, first, last in line
            for where in range(part << SEQ_BITS | first, (part << SEQ_BITS | last) + 1)
            if where not in shown
        ]
        if not missing:
            return {}
        found = ledger.find_channel(tx, channel)
        some = ledger.load_manifests(tx, found.number, request - 1) if found is not None and request > 1 else []
        given = {each.place: each.why for body in reversed(some) for each in _left_from_json(body).left}
        edge = load_context_start(tx, branch, tip)
        lead = _lead(tx, missing, edge)
        return {
            where: given.get(where) or _reason(where & SEQ_MASK, edge, summed_up)
            for where in missing
            if where not in lead
        }

    return store.read(work)


def _reason(seq: int, edge: int, summed_up: int) -> str:
    if seq <= edge:
        return CLEARED
    return LeftOutReason.SUMMED_UP if seq <= summed_up else TOO_FAR_BACK


def _lead(tx: Transaction, missing: Sequence[int], edge: int) -> set[int]:
    """Return the places of the system messages at the start of the branch, or right after a context edge."""
    first = [where for where in missing if edge < where & SEQ_MASK <= edge + MAX_LEADING]
    messages = load_messages_by_place(tx, first)
    lead: set[int] = set()
    for seq, where in enumerate(first, edge + 1):
        message = messages.get(where)
        if where & SEQ_MASK != seq or message is None or message.role != "system" or message.audience is not None:
            break
        lead.add(where)
    return lead


def rebuild(store: Store, channel: Channel, formatter: Formatter, request: int | None = None) -> bytes:
    """Return the bytes of a committed request, exactly as they were sent."""

    def work(tx: Transaction) -> tuple[PastRequest, bytes, bytes | None]:
        past = _load_past(tx, channel, request)
        key = past.record.request if request is None or request <= FIRST_UNANSWERED else request
        whole = ledger.load_replaced(tx, past.number, key)
        head = ledger.load_head(tx, past.number, bytes.fromhex(past.record.head))
        if head is None:
            raise InvalidInput(
                f"Request {past.record.request} of {channel} cannot be rebuilt: its system prompt was redacted since."
            )
        return past, head, whole

    past, stored, whole = store.read(work)
    record = past.record
    if whole is not None:
        if not whole:
            raise InvalidInput(
                f"Request {record.request} of {channel} cannot be rebuilt: it was replaced before sending, and the "
                "replacement was redacted since."
            )
        return whole
    _check_rows(past, channel)
    if record.observed is not None:
        return join_observed(stored, [row.chunk for row in past.rows], record.observed)
    rows = past.rows[len(past.rows) - record.added :] if record.mode == "resume" else past.rows
    body: JSONObject = decode(stored)
    head = HeadParts.from_body(formatter.messages_key, body, {})
    return head.to_bytes(_chunks(formatter, record, rows), record.session or None, record.compared)


def join_observed(head: bytes, rows: Sequence[bytes], facts: ObservedFacts) -> bytes:
    """Return the bytes of a request that other software sent, from its head and the bytes of its rows."""
    chunks = [insert_marks(chunk, facts.marks.get(index, ())) for index, chunk in enumerate(rows)]
    if facts.gaps:
        chunks = [element for chunk in chunks for element in split_elements(chunk)]
    return join_body(head, chunks, facts.gaps)


def rebuild_session_view(store: Store, channel: Channel, formatter: Formatter, request: int) -> bytes:
    """Return a request as the model saw it: for a resumed session, including everything that the session held."""

    def work(tx: Transaction) -> tuple[PastRequest, bytes | None]:
        past = _load_past(tx, channel, request)
        start = find_epoch_start(tx, past.number, past.record)
        return past, ledger.load_head(tx, past.number, bytes.fromhex(start.head))

    past, stored = store.read(work)
    if past.record.mode != "resume" or stored is None:
        return rebuild(store, channel, formatter, request)
    _check_rows(past, channel)
    return HeadParts.from_body(formatter.messages_key, decode(stored), {}).to_bytes(
        [row.chunk for row in past.rows], None
    )


def _chunks(formatter: Formatter, record: RequestRecord, rows: Sequence[StoredRow]) -> list[bytes]:
    """Return the wire messages of the rows with the cache breakpoints of a request. Decode them only where rows replace
    some.
    """
    old = len(rows) - record.added
    if not any([row.row.drop for row in rows]) or record.mode == "resume":
        chunks = [row.chunk for row in rows]
        for mark, upto in (("previous", old), ("end", len(chunks))):
            last = next((index for index in range(upto - 1, -1, -1) if chunks[index]), None)
            if mark in record.marks and last is not None:
                chunks[last] = mark_chunk(formatter, chunks[last], record.ttl)
        return chunks
    messages: list[JSONObject] = []
    before = 0
    for index, row in enumerate(rows):
        if index == old:
            before = len(messages)
        if row.row.drop:
            before = min(before, len(messages) - row.row.drop)
            del messages[len(messages) - row.row.drop :]
        messages += split_chunk(row.chunk)
    return [join_messages(with_breakpoints(formatter, record.marks, messages, before, record.ttl))]


def _load_past(tx: Transaction, channel: Channel, request: int | None) -> PastRequest:
    number, wanted = find_request(tx, channel, request)
    layout, start = load_request_layout(tx, number, wanted)
    return PastRequest(
        number=number,
        record=wanted,
        rows=ledger.load_rows(tx, layout),
        fragments=start.fragments,
        fetchable=offers_fetch(ledger.load_head(tx, number, bytes.fromhex(start.head))),
    )


def find_request(tx: Transaction, channel: Channel, request: int | None = None) -> tuple[int, RequestRecord]:
    """Return the number of a channel and the record of one of its requests; by default of the last answered one."""
    found = ledger.find_channel(tx, channel)
    last = ledger.load_manifests(tx, found.number, limit=1) if found else []
    if found is not None and request is not None and request > FIRST_UNANSWERED:
        kept = ledger.load_unanswered(tx, found.number, request) if request <= SEQ_MASK else None
        if kept is None:
            latest = record_from_json(last[0]).request if last else 0
            raise UnknownRequest(channel.conversation, channel, request, last=latest)
        return found.number, record_from_json(kept[1])
    if found is None or not last:
        raise UnknownRequest(channel.conversation, channel, request, last=0)
    wanted = record_from_json(last[0])
    if request is not None and request != wanted.request:
        if not 1 <= request < wanted.request:
            raise UnknownRequest(channel.conversation, channel, request, last=wanted.request)
        some = ledger.load_manifests(tx, found.number, request, limit=1)
        wanted, latest = record_from_json(some[0]) if some else wanted, wanted.request
        if wanted.request != request:  # its manifest could not be read, and was removed by a redaction
            raise UnknownRequest(channel.conversation, channel, request, last=latest)
    return found.number, wanted


def was_answered(store: Store, channel: Channel, request: int | None = None) -> bool:
    """Return True if a request was observed, and its provider answered it; by default the last one.

    Requests of our own are still checked: a caller may commit any reply.
    """
    _, record = store.read(lambda tx: find_request(tx, channel, request))
    return record.observed is not None and record.observed.is_answered


def load_request_layout(
    tx: Transaction, number: int, request_record: RequestRecord
) -> tuple[tuple[RowRange, ...], RequestRecord]:
    """Return the row ranges of a request, and the record of the first request of its epoch."""
    start = find_epoch_start(tx, number, request_record)
    layout: tuple[RowRange, ...] = start.layout or ()
    layout = (
        extend_layout(layout, number, start.rows + 1, request_record.rows) if start is not request_record else layout
    )
    return layout, start


def find_epoch_start(tx: Transaction, channel: int, request_record: RequestRecord) -> RequestRecord:
    """Return the record of the first request of the epoch."""
    upto = request_record.request
    while request_record.layout is None and upto > 0:
        some = [record_from_json(body) for body in ledger.load_manifests(tx, channel, upto, limit=MANIFESTS_PER_BATCH)]
        for record in some:
            if record.layout is not None:
                return record
        upto = some[-1].request - 1 if some else 0
    return request_record


def _check_rows(past: PastRequest, channel: Channel) -> None:
    """Verify that the stored rows are the bytes that were sent."""
    if hash_chunks("", [row.chunk for row in past.rows]) == past.record.chain:
        return
    what = f"Request {past.record.request} of {channel}"
    if any(not row.chunk for row in past.rows):
        raise InvalidInput(f"{what} cannot be rebuilt: some of its content was redacted since.")
    raise StoreCorrupt(
        f"{what}: the stored rows do not match the hash of what was sent", fix="Verify the store, or restore a backup."
    )


# ── messages as they were sent ────────────────────────────────────────────────────────────────────────────────────────
# The messages of a compiled request before they are encoded, each with the stored message that it was made from.
#
# Callers that send the request with software of their own replace the messages that contextc changed, and keep the
# rest.


class SentMessage(NamedTuple):
    """A message as it is sent. `seq` is that of the stored message; 0 if there is none, as for a summary.

    `is_changed` is False if it has the content of the stored message, all of it.
    """

    message: Message
    seq: int
    is_changed: bool


def list_sent_messages(compiled: Compiled, stored: Mapping[int, Message]) -> list[SentMessage]:
    """Return the messages of a request in order. `stored` are the messages of the conversation by seq.

    System messages at the start of the conversation come first, although they are sent in the system prompt.
    """
    found = [SentMessage(message, message.seq, False) for message in compiled.snapshot.leading.values()]
    used: set[str] = set()
    entries = [
        DraftEntry(item, render_item(item, _stored_message(item, stored), fetchable=compiled.draft.fetchable))
        for item in _list_items(compiled)
    ]
    for part in slice_at_replies(entries):
        paired = compiled.formatter.pair_calls(merge_adjacent_fragments(part), used_ids=used).messages
        found += _trace(paired, [message for _, message in part], stored)
        encode_id = compiled.formatter.name_codec.encode_id
        used.update([encode_id(call.id) for message in paired for call in message.tool_calls])
    return found


def _list_items(compiled: Compiled) -> list[Item]:
    new, order = compiled.rows.new_rows, compiled.rows.order
    if order is None:
        rows = [*[each.row for each in compiled.snapshot.cached.rows], *[each.row for each in new]]
    else:
        rows = [new[each].row if isinstance(each, int) else each.row for each in order]
    return [item for row in rows for item in row.items]


def _stored_message(item: Item, stored: Mapping[int, Message]) -> Message | None:
    return stored.get(item.place & SEQ_MASK) if item.place and item.kind == "message" else None


def _trace(
    paired: Sequence[Message], rendered: Sequence[Message], stored: Mapping[int, Message]
) -> Iterator[SentMessage]:
    """Yield the messages after pairing. A tool message is split into those that its results come from."""
    origins: dict[str, Message] = {}
    for message in rendered:
        for result in message.tool_results:
            origins.setdefault(result.call_id, message)
    for message in paired:
        if message.role != "tool":
            yield _compare(message, stored)
            continue
        group: list[ToolResult] = []
        origin: Message | None = None
        for part in message.tool_results:
            source = origins.get(part.call_id)
            if group and (source is None or source is not origin):
                yield _compare(_with_results(origin, group), stored)
                group = []
            group.append(part)
            origin = source
        if group:
            yield _compare(_with_results(origin, group), stored)


def _with_results(origin: Message | None, results: Sequence[ToolResult]) -> Message:
    if origin is None:
        return Message(role="tool", parts=tuple(results))
    return replace(origin, parts=tuple(results))


def _compare(message: Message, stored: Mapping[int, Message]) -> SentMessage:
    original = stored.get(message.seq) if message.seq else None
    is_same = (
        original is not None
        and message.role == original.role
        and len(message.parts) == len(original.parts)
        and all([_is_same_part(*pair) for pair in zip(message.parts, original.parts, strict=True)])
    )
    return SentMessage(message, message.seq if original is not None else 0, not is_same)


def _is_same_part(sent: AnyPart, stored: AnyPart) -> bool:
    """Return True if two parts are equal. Pairing gives a result the name of its call, which does not count."""
    if type(sent) is ToolResult and type(stored) is ToolResult:
        sent = replace(sent, name=stored.name)
    return sent == stored
