"""Past requests: their manifests read again, and their bytes built again from the ledger."""

from msgspec import Struct

from contextc._json import JSONObject, decode
from contextc.compiler.assembly import chained
from contextc.compiler.compiled import HeadParts, with_marks
from contextc.compiler.telling import lines_of
from contextc.errors import InvalidInput, StoreCorrupt, UnknownModel
from contextc.formats.base import Formatter
from contextc.formats.named import formatter as formatter_named
from contextc.ledger import book
from contextc.ledger.look import messages_at
from contextc.ledger.standing import Channel, Sealed, Stretch, with_rows
from contextc.ledger.warm import joined, listed
from contextc.manifest import Fragment, Line, Manifest, Record, record_from_json
from contextc.models import cost, model
from contextc.store import Store
from contextc.store.base import Transaction
from contextc.store.places import SEQ_BITS, SEQ_MASK, lineage, stretches

AT_ONCE = 64


class Past(Struct, frozen=True, kw_only=True):
    """A request as the store has it."""

    number: int
    record: Record
    rows: list[Sealed]
    fragments: tuple[Fragment, ...] = ()
    """Those its epoch began with."""


def formatter_of(store: Store, channel: Channel) -> Formatter:
    """The format that a channel was last spoken to in."""
    standing = store.read(lambda tx: book.stood(tx, channel))
    if standing is None or not standing.head.encoder:
        raise InvalidInput(_nothing(channel))
    return formatter_named(standing.head.encoder.partition("/")[0])


def records(store: Store, channel: Channel) -> list[Record]:
    """What was stored of every request of a channel, oldest first."""

    def work(tx: Transaction) -> list[Record]:
        found = book.find(tx, channel)
        return [] if found is None else [record_from_json(body) for body in book.manifests(tx, found.number)][::-1]

    return store.read(work)


def spent(channel: Channel, record: Record) -> float | None:
    """What a request cost in dollars, where its usage and the model's prices are known."""
    if record.usage is None:
        return None
    try:
        return cost(model(channel.model), record.usage)
    except UnknownModel:
        return None


def explain(store: Store, channel: Channel, request: int | None = None) -> Manifest:
    """The manifest of a request that was committed; by default of the last."""
    past = store.read(lambda tx: _past(tx, channel, request))

    def lines() -> list[Line]:
        items = [item for row in past.rows for item in row.row.items]
        record = past.record
        left = {each.place: each.why for each in record.left}
        left = left_before(store, channel, record.branch, record.tip, record.request) | left
        return lines_of(items, left, lambda places: store.read(lambda tx: messages_at(tx, places)))

    return Manifest(channel, past.record, lines, lambda: past.fragments)


def left_before(store: Store, channel: Channel, branch: int, tip: int, request: int) -> dict[int, str]:
    """What requests before this one had left out, by place, as far as it is on the line that ends at `tip`."""

    def work(tx: Transaction) -> dict[int, str]:
        found = book.find(tx, channel)
        if found is None or request < 2:
            return {}
        line = {branch: (first, last) for branch, first, last in stretches(lineage(tx, branch), 0, tip)}
        some = [record_from_json(body) for body in book.manifests(tx, found.number, request - 1)]

        def is_on_it(where: int) -> bool:
            first, last = line.get(where >> SEQ_BITS, (1, 0))
            return first <= where & SEQ_MASK <= last

        return {each.place: each.why for record in reversed(some) for each in record.left if is_on_it(each.place)}

    return store.read(work)


def rebuild(store: Store, channel: Channel, formatter: Formatter, request: int | None = None) -> bytes:
    """The bytes of a request that was committed, as they went out."""

    def work(tx: Transaction) -> tuple[Past, bytes, bytes | None]:
        past = _past(tx, channel, request)
        whole = book.replaced(tx, past.number, past.record.request)
        head = book.head(tx, past.number, bytes.fromhex(past.record.head))
        if head is None:
            raise InvalidInput(
                f"Request {past.record.request} of {channel}: something in its system prompt was redacted since."
            )
        return past, head, whole

    past, stored, whole = store.read(work)
    record = past.record
    if whole is not None:
        if not whole:
            raise InvalidInput(f"Request {record.request} of {channel} was sent in another form, which was redacted.")
        return whole
    _check(past, channel)
    rows = past.rows[len(past.rows) - record.added :] if record.mode == "resume" else past.rows
    messages: list[JSONObject] = []
    before = 0
    for index, row in enumerate(rows):
        if index == len(rows) - record.added:
            before = len(messages)
        if row.row.drop and record.mode != "resume":
            before = min(before, len(messages) - row.row.drop)
            del messages[len(messages) - row.row.drop :]
        messages += listed(row.chunk)
    body: JSONObject = decode(stored)
    head = HeadParts.of(formatter.messages_key, body, {})
    return head.bytes([joined(with_marks(formatter, record.marks, messages, before))], record.session or None)


def _past(tx: Transaction, channel: Channel, request: int | None) -> Past:
    found = book.find(tx, channel)
    last = book.manifests(tx, found.number, last=1) if found else []
    if found is None or not last:
        raise InvalidInput(_nothing(channel))
    wanted = record_from_json(last[0])
    if request is not None and request != wanted.request:
        if not 1 <= request < wanted.request:
            raise InvalidInput(f"{channel} has requests 1 to {wanted.request} in {channel.conversation!r}.")
        wanted = record_from_json(book.manifests(tx, found.number, request, last=1)[0])
    start = epoch_start(tx, found.number, wanted)
    layout: tuple[Stretch, ...] = start.layout or ()
    layout = with_rows(layout, found.number, start.rows + 1, wanted.rows) if start is not wanted else layout
    return Past(number=found.number, record=wanted, rows=book.load_rows(tx, layout), fragments=start.fragments)


def _nothing(channel: Channel) -> str:
    return f"Conversation {channel.conversation!r} has no request for {channel}. Only committed requests are stored."


def epoch_start(tx: Transaction, channel: int, wanted: Record) -> Record:
    """The record of the request with which the epoch began."""
    upto = wanted.request
    while wanted.layout is None and upto > 0:
        some = [record_from_json(body) for body in book.manifests(tx, channel, upto, last=AT_ONCE)]
        for record in some:
            if record.layout is not None:
                return record
        upto = some[-1].request - 1 if some else 0
    return wanted


def _check(past: Past, channel: Channel) -> None:
    """What is stored must be what was sent, to the byte."""
    if chained("", [row.chunk for row in past.rows]) == past.record.chain:
        return
    what = f"Request {past.record.request} of {channel}"
    if any(not row.chunk for row in past.rows):
        raise InvalidInput(f"{what} held something that was redacted since, and cannot be built again.")
    raise StoreCorrupt(f"{what}: what is stored of it is not what was sent. Run `contextc doctor`.")
