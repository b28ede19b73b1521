"""The first difference between a request and the previous one, and its reason.

The difference is in the system prompt, in the tools, in the settings, or at a message. The rows of the ledger are
compared without cache breakpoints, which move with every request and do not break the prefix. The reason is the one
that was recorded, as a sentence.
"""

from collections.abc import Collection, Iterable, Sequence

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from contextc._json import JSONObject, decode
from contextc.compiler.body_splitting import comparable_bytes, head_without_marks
from contextc.compiler.compiled import Compiled
from contextc.compiler.ledger import repository
from contextc.compiler.ledger.row_encoding import NewRow
from contextc.compiler.manifest import RequestRecord
from contextc.compiler.past_requests import find_epoch_start, find_request, load_request_layout
from contextc.formats.base import Formatter, Request
from contextc.inspection.answered_requests import load_compared_record
from contextc.inspection.head_parts import is_system_first
from contextc.store import Store
from contextc.store.backend_interface import Transaction
from contextc.store.ledger_schema import Channel, StoredRow

REASON_SENTENCES = {
    "first request": "This is the first request of its channel.",
    "forked": "The conversation was forked, and its branch does not contain everything that its parent sent.",
    "over budget": "The request exceeded its budget, so older messages were dropped or shortened.",
    "compaction": "A summary replaced older messages.",
    "compaction undone": "A summary was taken out of use, so the messages that it replaced are sent again.",
    "edited or branched away": "The conversation was edited, or continued from an earlier message.",
    "cleared": "The context was cleared: earlier messages are no longer sent.",
    "redacted": "Content that was sent before has been redacted.",
    "system prompt changed": "The system prompt changed.",
    "tools changed": "The tools, or their order, changed.",
    "reasoning settings changed": "Settings changed that invalidate a provider's cache.",
    "new encoder version": "This version of contextc encodes the format differently than the previous one.",
    "the request before it was replaced": "The previous request was replaced before it was sent.",
    "messages that were sent are missing from the conversation": "Other software deleted messages from the store.",
    "stored system messages keep their place": "System messages at the start were moved out of the system prompt.",
    "no session": "There is no session to resume, so a new session gets the whole context.",
    "an earlier prompt may be in the session": "A failed prompt may be in the session, so a new session begins.",
}
_decode_list = msgspec.json.Decoder(list[Raw]).decode


class PrefixBreak(Struct, frozen=True, kw_only=True):
    """Position at which the prefix broke: "system", "tools", "settings", or "message 12"; "" if it did not break.

    `path` is the same as a path in the request. `why` is a sentence or "". `same` is the number of bytes of messages
    that both requests have; None if they were not compared.
    """

    where: str = ""
    path: str = ""
    why: str = ""
    same: int | None = None


class _WireRequest(Struct, frozen=True):
    """A request in the form that is compared: its head and its messages."""

    head: bytes | None
    messages: list[bytes]


def find_break(store: Store, channel: Channel, formatter: Formatter, request: int) -> PrefixBreak:
    """Return where a sent request first differs from the last answered one before it."""

    def work(tx: Transaction) -> PrefixBreak:
        number, record = find_request(tx, channel, request)
        before = load_compared_record(tx, number, record.request)
        is_previous = before is not None and before.request == record.request - 1
        if not record.why and (before is None or is_previous):
            return PrefixBreak()
        if before is None:
            return PrefixBreak(why=describe_reason(record.why))
        if repository.load_replaced(tx, number, before.request) is not None:
            return PrefixBreak(why=describe_reason(record.why))
        rows = repository.load_rows(tx, load_request_layout(tx, number, record)[0])
        now = _WireRequest(_head(tx, number, record), _messages(rows))
        found = _compare(formatter, _before(tx, number, before), now, record.why)
        # the recorded reason is about the previous request, which was refused
        return found if is_previous else replace(found, why="")

    return store.read(work)


def preview_break(store: Store, compiled: Compiled) -> PrefixBreak:
    """Return where a request that was only compiled would first differ from the previous one."""
    record, assembled = compiled.record, compiled.rows
    if not record.why or record.request == 1:
        return PrefixBreak(why=describe_reason(record.why) if record.why else "")
    order = assembled.order or ()
    chunks = [assembled.new_rows[each] if isinstance(each, int) else each for each in order]
    now = _WireRequest(msgspec.json.encode(compiled.head.body), _messages(chunks))

    def work(tx: Transaction) -> _WireRequest:
        number, before = find_request(tx, compiled.channel, record.request - 1)
        return _before(tx, number, before)

    return _compare(compiled.formatter, store.read(work), now, record.why)


def describe_reason(why: str) -> str:
    """Return a recorded reason as a sentence."""
    return REASON_SENTENCES.get(why) or f"{why[:1].upper()}{why[1:].rstrip('.')}."


def _before(tx: Transaction, number: int, record: RequestRecord) -> _WireRequest:
    rows = repository.load_rows(tx, load_request_layout(tx, number, record)[0])
    whole = record if record.mode != "resume" else find_epoch_start(tx, number, record)
    return _WireRequest(_head(tx, number, whole), _messages(rows))


def _head(tx: Transaction, number: int, record: RequestRecord) -> bytes | None:
    return repository.load_head(tx, number, bytes.fromhex(record.head))


def _messages(rows: Iterable[StoredRow | NewRow]) -> list[bytes]:
    """Return the wire messages of rows, each as bytes."""
    found: list[bytes] = []
    for each in rows:
        if each.row.drop:
            del found[len(found) - each.row.drop :]
        found += [bytes(message) for message in _decode_list(b"[%b]" % each.chunk)] if each.chunk else []
    return found


def _compare(formatter: Formatter, before: _WireRequest, now: _WireRequest, why: str) -> PrefixBreak:
    reason = describe_reason(why)
    lead = 0
    if before.head is not None and now.head is not None:
        heads = [head_without_marks(decode(each), formatter.messages_key) for each in (before.head, now.head)]
        lead = len(heads[1][formatter.messages_key])
        around = [formatter.decode_request(head) for head in heads]
        if where := _differs(formatter, *around):
            names = formatter.prefix_settings
            if where != "settings":
                names = [name for name in heads[1].keys() - around[1].settings.keys() if _is_in(name, where)]
            return PrefixBreak(where=where, path=_path(formatter, heads, names), why=reason)
    at = _count_same_messages(before.messages, now.messages)
    same = sum(map(len, now.messages[:at]))
    if at in (len(before.messages), len(now.messages)):  # one is a prefix of the other
        return PrefixBreak(why=reason, same=same)
    return PrefixBreak(
        where=f"message {at + lead}", path=f"{formatter.messages_key}[{at + lead}]", why=reason, same=same
    )


def _differs(formatter: Formatter, before: Request, now: Request) -> str:
    """Return the first part of the head, in cache order, that differs and breaks the prefix; empty if none does."""
    differing = {"tools": before.tools != now.tools, "system": before.system != now.system}
    order = ("system", "tools") if is_system_first(formatter) else ("tools", "system")
    if found := next((part for part in order if differing[part]), ""):
        return found
    settings = ([each.settings.get(name) for name in formatter.prefix_settings] for each in (before, now))
    return "" if next(settings) == next(settings) else "settings"


def _is_in(name: str, part: str) -> bool:
    """Return True if a field of a head can belong to its system prompt or to its tools."""
    return ("tool" in name.lower()) == (part == "tools")


def _count_same_messages(before: Sequence[bytes], now: Sequence[bytes]) -> int:
    """Return the number of leading messages that both have, in whatever form they were written."""
    at = 0
    for one, other in zip(before, now, strict=False):
        if one != other and comparable_bytes(one) != comparable_bytes(other):
            break
        at += 1
    return at


def _path(formatter: Formatter, heads: Sequence[JSONObject], names: Collection[str]) -> str:
    """Return the first field, among `names`, that differs."""
    before, now = heads
    name = next((name for name in now if name in names and before.get(name) != now[name]), "")
    return f"{name}[0]" if name == formatter.messages_key else name
