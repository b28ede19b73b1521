"""Past requests: load their manifests, and rebuild their bytes from the ledger."""

from collections.abc import Sequence

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from contextc._json import JSONObject, decode
from contextc.compiler.body_splitting import insert_marks, join_body, split_elements
from contextc.compiler.compaction import load_compactions
from contextc.compiler.compaction_receipt import describe_receipt
from contextc.compiler.compiled import HeadParts, mark_chunk, with_breakpoints
from contextc.compiler.draft import LeftOutMessage
from contextc.compiler.ledger import repository
from contextc.compiler.ledger.channel_loader import MAX_LEADING, load_messages_at
from contextc.compiler.ledger.channel_row_cache import join_messages, split_chunk
from contextc.compiler.ledger.row_encoding import hash_chunks
from contextc.compiler.manifest import Fragment, Manifest, ManifestLine, ObservedFacts, RequestRecord, record_from_json
from contextc.compiler.manifest_builder import build_lines, find_included_places, offers_fetch
from contextc.errors import InvalidInput, StoreCorrupt, UnknownModel, UnknownRequest
from contextc.formats.base import Formatter
from contextc.models import Model, cost, model
from contextc.providers import Provider, provider
from contextc.providers.registry import ProviderFacts
from contextc.store import Store
from contextc.store.backend_interface import Transaction
from contextc.store.ledger_schema import Channel, ChannelState, Item, RowRange, StoredRow, extend_layout
from contextc.store.message_rows import (
    FIRST_UNANSWERED,
    SEQ_BITS,
    SEQ_MASK,
    load_context_start,
    load_lineage,
    split_by_branch,
)

MANIFESTS_PER_BATCH = 64
CLEARED, SUMMED_UP = "the context was cleared after it", "summed up"
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
        found = repository.find_channel(tx, channel)
        last = repository.load_manifests(tx, found.number, limit=1) if found else []
        if found is not None and not last and (kept := repository.load_unanswered(tx, found.number)) is not None:
            last = [kept[1]]
        if found is None or not last:
            raise UnknownRequest(channel.conversation, channel, None, last=0)
        return repository.decode_state(channel.conversation, found.state), record_from_json(last[0]).budget.window

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
        found = repository.find_channel(tx, channel)
        return (
            []
            if found is None
            else [record_from_json(body) for body in repository.load_manifests(tx, found.number)][::-1]
        )

    return store.read(work)


def compute_request_cost(channel: Channel, record: RequestRecord) -> float | None:
    """Return the cost of a request in dollars; None if its usage or the model's prices are unknown."""
    known = find_channel_model(channel) if record.usage is not None else None
    return cost(known, record.usage) if known is not None and record.usage is not None else None


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
            lambda places: store.read(lambda tx: load_messages_at(tx, places)),
            held=held,
            produced=produced,
            used=record.corrected_budget.messages,
            fetchable=past.fetchable,
        )
        kept = {each.upto: each.receipt for each in load_compactions(store, channel.conversation, channel.author)}
        return [
            replace(line, why=describe_receipt(receipt))
            if line.kind == "summary" and (receipt := kept.get(line.seq)) is not None
            else line
            for line in found
        ]

    def fragments() -> tuple[Fragment, ...]:
        if past.record.mode != "resume" or load_channel_provider(store, channel).resends_head:
            return past.fragments
        return tuple([replace(each, shown=False) if each.lifecycle == "static" else each for each in past.fragments])

    return Manifest(channel, past.record, lines, fragments)


def _produced(tx: Transaction, number: int, request: int) -> tuple[int, ...]:
    """Return the places of the messages that a request produced."""
    found = repository.load_manifests(tx, number, request, limit=1)
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
        found = repository.find_channel(tx, channel)
        some = repository.load_manifests(tx, found.number, request - 1) if found is not None and request > 1 else []
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
    return SUMMED_UP if seq <= summed_up else TOO_FAR_BACK


def _lead(tx: Transaction, missing: Sequence[int], edge: int) -> set[int]:
    """Return the places of the system messages at the start of the branch, or right after a context edge."""
    first = [where for where in missing if edge < where & SEQ_MASK <= edge + MAX_LEADING]
    messages = load_messages_at(tx, first)
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
        whole = repository.load_replaced(tx, past.number, key)
        head = repository.load_head(tx, past.number, bytes.fromhex(past.record.head))
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
    return head.bytes(_chunks(formatter, record, rows), record.session or None)


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
        return past, repository.load_head(tx, past.number, bytes.fromhex(start.head))

    past, stored = store.read(work)
    if past.record.mode != "resume" or stored is None:
        return rebuild(store, channel, formatter, request)
    _check_rows(past, channel)
    return HeadParts.from_body(formatter.messages_key, decode(stored), {}).bytes([row.chunk for row in past.rows], None)


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
                chunks[last] = mark_chunk(formatter, chunks[last])
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
    return [join_messages(with_breakpoints(formatter, record.marks, messages, before))]


def _load_past(tx: Transaction, channel: Channel, request: int | None) -> PastRequest:
    number, wanted = find_request(tx, channel, request)
    layout, start = load_request_layout(tx, number, wanted)
    return PastRequest(
        number=number,
        record=wanted,
        rows=repository.load_rows(tx, layout),
        fragments=start.fragments,
        fetchable=offers_fetch(repository.load_head(tx, number, bytes.fromhex(start.head))),
    )


def find_request(tx: Transaction, channel: Channel, request: int | None = None) -> tuple[int, RequestRecord]:
    """Return the number of a channel and the record of one of its requests; by default of the last answered one."""
    found = repository.find_channel(tx, channel)
    last = repository.load_manifests(tx, found.number, limit=1) if found else []
    if found is not None and request is not None and request > FIRST_UNANSWERED:
        kept = repository.load_unanswered(tx, found.number, request) if request <= SEQ_MASK else None
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
        some = repository.load_manifests(tx, found.number, request, limit=1)
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
        some = [
            record_from_json(body) for body in repository.load_manifests(tx, channel, upto, limit=MANIFESTS_PER_BATCH)
        ]
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
