"""Past requests: load their manifests, and rebuild their bytes from the ledger."""

from collections.abc import Sequence

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from contextc._json import JSONObject, decode
from contextc.compiler.assembly import chained
from contextc.compiler.compiled import HeadParts, marked_chunk, with_marks
from contextc.compiler.sent import is_fetchable
from contextc.compiler.telling import lines_of, shown_places
from contextc.draft import Left
from contextc.errors import InvalidInput, StoreCorrupt, UnknownModel, UnknownRequest
from contextc.formats.base import Formatter
from contextc.ledger import book
from contextc.ledger.items import Item
from contextc.ledger.look import LEADING, messages_at
from contextc.ledger.standing import Channel, Sealed, Standing, Stretch, with_rows
from contextc.ledger.warm import joined, listed
from contextc.manifest import Fragment, Line, Manifest, Record, record_from_json
from contextc.models import Model, cost, model
from contextc.providers import Provider, provider
from contextc.store import Store
from contextc.store.base import Transaction
from contextc.store.branches import edge_of
from contextc.store.places import SEQ_BITS, SEQ_MASK, UNANSWERED, lineage, stretches

AT_ONCE = 64
CLEARED, SUMMED_UP = "the context was cleared after it", "summed up"
TOO_FAR_BACK = "too far back to fit"


class _LeftOut(Struct, frozen=True):
    """The left-out messages of a record. Decoding only these takes half the time of decoding the whole record."""

    left: tuple[Left, ...] = ()


_left_from_json = msgspec.json.Decoder(_LeftOut).decode


class Past(Struct, frozen=True, kw_only=True):
    """A committed request as loaded from the store."""

    number: int
    record: Record
    rows: list[Sealed]
    fragments: tuple[Fragment, ...] = ()
    """The prompt fragments with which its epoch began."""
    fetchable: bool = True


def formatter_of(store: Store, channel: Channel) -> Formatter:
    """Return the formatter that the channel's last request used, as its provider needs it."""
    return provider_of(store, channel).formatter


def provider_of(store: Store, channel: Channel) -> Provider:
    """Return the provider of a channel, with the format and the window of its last request.

    Facts that only the sending program configured are restored as far as the ledger implies them: a directory and
    sessions.
    """

    def work(tx: Transaction) -> tuple[Standing, int]:
        found = book.find(tx, channel)
        last = book.manifests(tx, found.number, last=1) if found else []
        if found is not None and not last and (kept := book.unanswered(tx, found.number)) is not None:
            last = [kept[1]]
        if found is None or not last:
            raise UnknownRequest(channel.conversation, channel, None, last=0)
        return book.standing_of(channel.conversation, found.state), record_from_json(last[0]).budget.window

    standing, window = store.read(work)
    facts = {"directory_bound": channel.directory, "session_resumption": standing.session or standing.lost}
    given = {fact: True for fact, shown in facts.items() if shown}
    format = standing.head.encoder.partition("/")[0] or None
    return provider(f"{channel.provider}:{channel.model}", format=format, window=window, **given)


def records(store: Store, channel: Channel) -> list[Record]:
    """Return the stored records of all requests of a channel, oldest first."""

    def work(tx: Transaction) -> list[Record]:
        found = book.find(tx, channel)
        return [] if found is None else [record_from_json(body) for body in book.manifests(tx, found.number)][::-1]

    return store.read(work)


def spent(channel: Channel, record: Record) -> float | None:
    """Return the cost of a request in dollars; None if its usage or the model's prices are unknown."""
    known = model_of(channel) if record.usage is not None else None
    return cost(known, record.usage) if known is not None and record.usage is not None else None


def model_of(channel: Channel) -> Model | None:
    """Return the channel's model; None if it is unknown."""
    try:
        return model(channel.model)
    except UnknownModel:
        return None


def explain(store: Store, channel: Channel, request: int | None = None) -> Manifest:
    """Return the manifest of a committed request; by default of the last one."""
    past = store.read(lambda tx: _past(tx, channel, request))

    def lines() -> list[Line]:
        items = [item for row in past.rows for item in row.row.items]
        record = past.record
        left = left_out(store, channel, record.branch, record.tip, record.request, items)
        left |= {each.place: each.why for each in record.left}
        held, produced = 0, tuple[int, ...]()
        if record.mode == "resume":
            held = sum([len(row.row.items) for row in past.rows[: len(past.rows) - record.added]])
            produced = store.read(lambda tx: _produced(tx, past.number, record.request - 1))
        return lines_of(
            items,
            left,
            lambda places: store.read(lambda tx: messages_at(tx, places)),
            held=held,
            produced=produced,
            used=record.figures.used,
            fetchable=past.fetchable,
        )

    def fragments() -> tuple[Fragment, ...]:
        if past.record.mode != "resume" or provider_of(store, channel).resends_head:
            return past.fragments
        return tuple([replace(each, shown=False) if each.lifecycle == "static" else each for each in past.fragments])

    return Manifest(channel, past.record, lines, fragments)


def _produced(tx: Transaction, number: int, request: int) -> tuple[int, ...]:
    """Return the places of the messages that a request produced."""
    found = book.manifests(tx, number, request, last=1)
    return record_from_json(found[0]).produced if found else ()


def left_out(
    store: Store, channel: Channel, branch: int, tip: int, request: int, items: Sequence[Item]
) -> dict[int, str]:
    """Return the messages of a branch up to `tip` that a request leaves out, by place, with the reason.

    `items` are the items of the request. A reason that an earlier request recorded is kept. System messages at the
    start of the branch are not listed, because they are in the system prompt.
    """
    shown = shown_places(items)
    summed_up = max([item.place & SEQ_MASK for item in items if item.kind == "summary"], default=0)

    def work(tx: Transaction) -> dict[int, str]:
        line = list(stretches(lineage(tx, branch), 0, tip))
        missing = [
            where
            for part, first, last in line
            for where in range(part << SEQ_BITS | first, (part << SEQ_BITS | last) + 1)
            if where not in shown
        ]
        if not missing:
            return {}
        found = book.find(tx, channel)
        some = book.manifests(tx, found.number, request - 1) if found is not None and request > 1 else []
        given = {each.place: each.why for body in reversed(some) for each in _left_from_json(body).left}
        edge = edge_of(tx, branch, tip)
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
    first = [where for where in missing if edge < where & SEQ_MASK <= edge + LEADING]
    messages = messages_at(tx, first)
    lead: set[int] = set()
    for seq, where in enumerate(first, edge + 1):
        message = messages.get(where)
        if where & SEQ_MASK != seq or message is None or message.role != "system" or message.audience is not None:
            break
        lead.add(where)
    return lead


def rebuild(store: Store, channel: Channel, formatter: Formatter, request: int | None = None) -> bytes:
    """Return the bytes of a committed request, exactly as they were sent."""

    def work(tx: Transaction) -> tuple[Past, bytes, bytes | None]:
        past = _past(tx, channel, request)
        key = past.record.request if request is None or request <= UNANSWERED else request
        whole = book.replaced(tx, past.number, key)
        head = book.head(tx, past.number, bytes.fromhex(past.record.head))
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
    _check(past, channel)
    rows = past.rows[len(past.rows) - record.added :] if record.mode == "resume" else past.rows
    body: JSONObject = decode(stored)
    head = HeadParts.of(formatter.messages_key, body, {})
    return head.bytes(_chunks(formatter, record, rows), record.session or None)


def as_held(store: Store, channel: Channel, formatter: Formatter, request: int) -> bytes:
    """Return a request as the model saw it: for a resumed session, including everything that the session held."""

    def work(tx: Transaction) -> tuple[Past, bytes | None]:
        past = _past(tx, channel, request)
        start = epoch_start(tx, past.number, past.record)
        return past, book.head(tx, past.number, bytes.fromhex(start.head))

    past, stored = store.read(work)
    if past.record.mode != "resume" or stored is None:
        return rebuild(store, channel, formatter, request)
    _check(past, channel)
    return HeadParts.of(formatter.messages_key, decode(stored), {}).bytes([row.chunk for row in past.rows], None)


def _chunks(formatter: Formatter, record: Record, rows: Sequence[Sealed]) -> list[bytes]:
    """Return the wire messages of the rows with the cache breakpoints of a request. Decode them only where rows replace
    some.
    """
    old = len(rows) - record.added
    if not any([row.row.drop for row in rows]) or record.mode == "resume":
        chunks = [row.chunk for row in rows]
        for mark, upto in (("previous", old), ("end", len(chunks))):
            last = next((index for index in range(upto - 1, -1, -1) if chunks[index]), None)
            if mark in record.marks and last is not None:
                chunks[last] = marked_chunk(formatter, chunks[last])
        return chunks
    messages: list[JSONObject] = []
    before = 0
    for index, row in enumerate(rows):
        if index == old:
            before = len(messages)
        if row.row.drop:
            before = min(before, len(messages) - row.row.drop)
            del messages[len(messages) - row.row.drop :]
        messages += listed(row.chunk)
    return [joined(with_marks(formatter, record.marks, messages, before))]


def _past(tx: Transaction, channel: Channel, request: int | None) -> Past:
    number, wanted = located(tx, channel, request)
    layout, start = laid_out(tx, number, wanted)
    return Past(
        number=number,
        record=wanted,
        rows=book.load_rows(tx, layout),
        fragments=start.fragments,
        fetchable=is_fetchable(book.head(tx, number, bytes.fromhex(start.head))),
    )


def located(tx: Transaction, channel: Channel, request: int | None = None) -> tuple[int, Record]:
    """Return the number of a channel and the record of one of its requests; by default of the last answered one."""
    found = book.find(tx, channel)
    last = book.manifests(tx, found.number, last=1) if found else []
    if found is not None and request is not None and request > UNANSWERED:
        kept = book.unanswered(tx, found.number, request) if request <= SEQ_MASK else None
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
        wanted = record_from_json(book.manifests(tx, found.number, request, last=1)[0])
    return found.number, wanted


def laid_out(tx: Transaction, number: int, wanted: Record) -> tuple[tuple[Stretch, ...], Record]:
    """Return the row ranges of a request, and the record of the first request of its epoch."""
    start = epoch_start(tx, number, wanted)
    layout: tuple[Stretch, ...] = start.layout or ()
    layout = with_rows(layout, number, start.rows + 1, wanted.rows) if start is not wanted else layout
    return layout, start


def epoch_start(tx: Transaction, channel: int, wanted: Record) -> Record:
    """Return the record of the first request of the epoch."""
    upto = wanted.request
    while wanted.layout is None and upto > 0:
        some = [record_from_json(body) for body in book.manifests(tx, channel, upto, last=AT_ONCE)]
        for record in some:
            if record.layout is not None:
                return record
        upto = some[-1].request - 1 if some else 0
    return wanted


def _check(past: Past, channel: Channel) -> None:
    """Verify that the stored rows are the bytes that were sent."""
    if chained("", [row.chunk for row in past.rows]) == past.record.chain:
        return
    what = f"Request {past.record.request} of {channel}"
    if any(not row.chunk for row in past.rows):
        raise InvalidInput(f"{what} cannot be rebuilt: some of its content was redacted since.")
    raise StoreCorrupt(
        f"{what}: the stored rows do not match the hash of what was sent", fix="Verify the store, or restore a backup."
    )
