"""Where a request stops being the one before it, and why: in its system prompt, tools, settings, or at a message.

Compared is what the rows of the ledger say, without cache points, because they move along with every request and break
nothing. The reason is the one that was recorded, told in whole sentences.
"""

from collections.abc import Collection, Iterable, Sequence

import msgspec
from msgspec import Raw, Struct

from contextc._json import JSONObject, decode
from contextc.compiler.account import epoch_start, laid_out, located
from contextc.compiler.assembly import NewRow
from contextc.compiler.compiled import Compiled
from contextc.formats.base import Formatter, Request
from contextc.ledger import book
from contextc.ledger.standing import Channel, Sealed
from contextc.manifest import Record, record_from_json
from contextc.store import Store
from contextc.store.base import Transaction

WORDS = {
    "first request": "This is the first request: there was none before it.",
    "forked": "The conversation was forked, and what its parent was shown is not all on its line.",
    "over budget": "It no longer fitted into its budget, so older messages were cut away or shortened.",
    "compaction": "A summary took the place of what was said before.",
    "edited or branched away": "The conversation was edited, or went on from an earlier message.",
    "cleared": "The context was cleared: what was said before is no longer shown.",
    "redacted": "Something that was shown was removed from the conversation.",
    "system prompt changed": "The system prompt is another one than before.",
    "tools changed": "The tools are others than before, or stand in another order.",
    "reasoning settings changed": "Settings have changed with which a provider's cache does not outlive a change.",
    "new encoder version": "This version of contextc writes the format otherwise than the one before.",
    "the request before it was replaced": "The request before was sent in another form than it was compiled to.",
    "no session": "There is no session to go on with, so a new one is told everything.",
    "an earlier prompt may be in the session": "A prompt that failed may be in the session, so a new one is begun.",
}
_listed = msgspec.json.Decoder(list[Raw]).decode


class Break(Struct, frozen=True, kw_only=True):
    """Where the prefix broke: "system", "tools", "settings", or "message 12", which `path` says as the request has it;
    "" where it did not. `why` is a sentence, and "" where there is nothing to say. `same` is how many bytes the
    messages have that are the same in both; None where they were not compared.
    """

    where: str = ""
    path: str = ""
    why: str = ""
    same: int | None = None


class _Wire(Struct, frozen=True):
    """A request as it is compared: what stands around its messages, and those."""

    head: bytes | None
    messages: list[bytes]


def break_of(store: Store, channel: Channel, formatter: Formatter, request: int) -> Break:
    """Where a request that was sent stops being the one before it."""

    def work(tx: Transaction) -> Break:
        number, record = located(tx, channel, request)
        if not record.why:
            return Break()
        if record.request == 1:
            return Break(why=told(record.why))
        before = record_from_json(book.manifests(tx, number, record.request - 1, last=1)[0])
        if book.replaced(tx, number, before.request) is not None:
            return Break(why=told(record.why))
        rows = book.load_rows(tx, laid_out(tx, number, record)[0])
        now = _Wire(_head(tx, number, record), _messages(rows))
        return _compared(formatter, _before(tx, number, before), now, record.why)

    return store.read(work)


def break_ahead(store: Store, compiled: Compiled) -> Break:
    """Where a request that was only compiled would stop being the one before it."""
    record, assembled = compiled.record, compiled.assembled
    if not record.why or record.request == 1:
        return Break(why=told(record.why) if record.why else "")
    order = assembled.order or ()
    chunks = [assembled.new[each] if isinstance(each, int) else each for each in order]
    now = _Wire(msgspec.json.encode(compiled.head.body), _messages(chunks))

    def work(tx: Transaction) -> _Wire:
        number, before = located(tx, compiled.channel, record.request - 1)
        return _before(tx, number, before)

    return _compared(compiled.formatter, store.read(work), now, record.why)


def told(why: str) -> str:
    """A recorded reason as a sentence."""
    return WORDS.get(why) or f"{why[:1].upper()}{why[1:].rstrip('.')}."


def _before(tx: Transaction, number: int, record: Record) -> _Wire:
    rows = book.load_rows(tx, laid_out(tx, number, record)[0])
    whole = record if record.mode == "full" else epoch_start(tx, number, record)
    return _Wire(_head(tx, number, whole), _messages(rows))


def _head(tx: Transaction, number: int, record: Record) -> bytes | None:
    return book.head(tx, number, bytes.fromhex(record.head))


def _messages(rows: Iterable[Sealed | NewRow]) -> list[bytes]:
    """The wire messages of rows, each as its bytes."""
    found: list[bytes] = []
    for each in rows:
        if each.row.drop:
            del found[len(found) - each.row.drop :]
        found += [bytes(message) for message in _listed(b"[%b]" % each.chunk)] if each.chunk else []
    return found


def _compared(formatter: Formatter, before: _Wire, now: _Wire, why: str) -> Break:
    said = told(why)
    lead = 0
    if before.head is not None and now.head is not None:
        heads: list[JSONObject] = [decode(before.head), decode(now.head)]
        lead = len(heads[1][formatter.messages_key]) - 1
        around = [_around(formatter, head) for head in heads]
        if where := _differs(formatter, *around):
            names = formatter.prefix_settings if where == "settings" else [*heads[1].keys() - around[1].settings.keys()]
            return Break(where=where, path=_path(formatter, heads, names), why=said)
    at = first_difference(before.messages, now.messages)
    same = sum(map(len, now.messages[:at]))
    if at in (len(before.messages), len(now.messages)):  # one of them goes on where the other ends
        return Break(why=said, same=same)
    return Break(where=f"message {at + lead}", path=f"{formatter.messages_key}[{at + lead}]", why=said, same=same)


def first_difference(before: Sequence[bytes], now: Sequence[bytes]) -> int:
    """How many of these, from the first, are the same."""
    pairs = enumerate(zip(before, now, strict=False))
    return next((index for index, (one, other) in pairs if one != other), min(len(before), len(now)))


def _differs(formatter: Formatter, before: Request, now: Request) -> str:
    """What stands before the messages and is another, as far as a prefix does not outlive it."""
    if before.system != now.system:
        return "system"
    if before.tools != now.tools:
        return "tools"
    settings = ([each.settings.get(name) for name in formatter.prefix_settings] for each in (before, now))
    return "" if next(settings) == next(settings) else "settings"


def _around(formatter: Formatter, head: JSONObject) -> Request:
    return formatter.decode_request({**head, formatter.messages_key: head[formatter.messages_key][:-1]})


def _path(formatter: Formatter, heads: Sequence[JSONObject], names: Collection[str]) -> str:
    """The first field of a request, of those that count, which is another."""
    before, now = heads
    name = next((name for name in now if name in names and before.get(name) != now[name]), "")
    return f"{name}[0]" if name == formatter.messages_key else name
