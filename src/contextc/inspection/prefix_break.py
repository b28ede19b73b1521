"""The first difference between a request and the previous one, and its reason.

The difference is in the system prompt, in the tools, in the settings, or at a message. The rows of the ledger are
compared without cache breakpoints, which move with every request and do not break the prefix. The reason is the one
that was recorded, as a sentence.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from contextc._json import decode
from contextc.compiler import ledger
from contextc.compiler.draft import NewRow
from contextc.compiler.head_parts import load_whole_head
from contextc.compiler.manifest import RequestRecord, record_from_json
from contextc.compiler.past_requests import (
    comparable_bytes,
    find_request,
    head_without_marks,
    load_request_layout,
)
from contextc.compiler.step import Compiled
from contextc.formats.base import Formatter, Request
from contextc.store import Store
from contextc.store.ledger_schema import Channel, EpochReason, StoredRow
from contextc.store.transaction_engine import Transaction

# ── the request before it ─────────────────────────────────────────────────────────────────────────────────────────────
# The request that another one is compared with: the last one before it that was answered.
#
# A provider that refuses a request does not cache it, so what a corrected retry changed was never cached either.


BATCH = 16
MISSED_TOKENS, MISSED_SHARE = 1_024, 0.05
"""Tokens, and share of what could have been read, from which on a cache reset has lost something."""


class Retry(NamedTuple):
    """The refused request that another one repeats. `is_corrected` is True if its content is another one."""

    request: int
    is_corrected: bool


def was_refused(record: RequestRecord) -> bool:
    """Return True if a request of other software got an error, or no answer at all."""
    return record.observed is not None and record.observed.status in ("error", "unanswered")


def load_compared_record(tx: Transaction, channel: int, request: int) -> RequestRecord | None:
    """Return the last answered request before one on its channel; if none was answered, the previous one."""
    first: RequestRecord | None = None
    until = request - 1
    while until > 0:
        bodies = ledger.load_manifests(tx, channel, until, limit=1 if first is None else BATCH)
        for body in bodies:
            record = record_from_json(body)
            first = first or record
            if not was_refused(record):
                return record
            until = record.request - 1
        if not bodies:
            break
    return first


def find_retried(record: RequestRecord, before: RequestRecord | None) -> Retry | None:
    """Return the refused request that a request repeats: the previous one, with the same content or a corrected one.

    A request that only continues a refused one is none.
    """
    if before is None or not was_refused(before):
        return None
    is_same = (record.head, record.chain) == (before.head, before.chain)
    return Retry(before.request, not is_same) if is_same or record.why else None


def has_lost_cache(record: RequestRecord, before: Sequence[RequestRecord]) -> bool:
    """Return True if a request began a new cache epoch, and did not read what it could have read.

    `before` are the earlier requests of its channel, oldest first. Without figures of the provider, it counts as lost.
    """
    usage = record.usage
    if not record.why or (usage is not None and usage.input and usage.cache_read >= usage.input * (1 - MISSED_SHARE)):
        return False
    compared = next((each for each in reversed(before) if not was_refused(each)), None)
    if compared is None or compared.usage is None or usage is None:
        return True
    possible = min(compared.usage.input, usage.input)
    return possible - usage.cache_read > max(MISSED_TOKENS, possible * MISSED_SHARE)


# ── the first difference ──────────────────────────────────────────────────────────────────────────────────────────────


REASON_SENTENCES: dict[str, str] = {
    EpochReason.FIRST_REQUEST: "This is the first request of its channel.",
    EpochReason.FORKED: "The conversation was forked, and its branch does not contain everything that its parent sent.",
    EpochReason.OVER_BUDGET: "The context was trimmed to fit: older messages were left out or shortened.",
    EpochReason.COMPACTED: "A summary replaced older messages.",
    EpochReason.PROVIDER_COMPACTED: "The provider compacted what came before its own block.",
    EpochReason.COMPACTION_UNDONE: "A summary was taken out of use, so the messages that it replaced are sent again.",
    EpochReason.EDITED: "The conversation was edited, or continued from an earlier message.",
    EpochReason.CLEARED: "The context was cleared: earlier messages are no longer sent.",
    EpochReason.REDACTED: "Content that was sent before has been redacted.",
    EpochReason.SYSTEM_PROMPT_CHANGED: "The system prompt changed.",
    EpochReason.TOOLS_CHANGED: "The tools, or their order, changed.",
    EpochReason.SETTINGS_CHANGED: "Settings changed that invalidate a provider's cache.",
    EpochReason.NEW_ENCODER: "This version of contextc encodes the format differently than the previous one.",
    EpochReason.PREVIOUS_REPLACED: "The previous request was replaced before it was sent.",
    EpochReason.LOG_LOST: "Other software deleted messages from the store.",
    EpochReason.LEAD_MOVED: "System messages at the start were moved out of the system prompt.",
    EpochReason.NO_SESSION: "There is no session to resume, so a new session gets the whole context.",
    EpochReason.UNSURE_SESSION: "A failed prompt may be in the session, so a new session begins.",
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
        if ledger.load_replaced(tx, number, before.request) is not None:
            return PrefixBreak(why=describe_reason(record.why))
        rows = ledger.load_rows(tx, load_request_layout(tx, number, record)[0])
        now = _WireRequest(ledger.load_head(tx, number, bytes.fromhex(record.head)), _wire_messages(rows))
        found = _find_difference(formatter, _load_wire_request(tx, number, before), now, record.why)
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
    now = _WireRequest(msgspec.json.encode(compiled.head.body), _wire_messages(chunks))

    def work(tx: Transaction) -> _WireRequest:
        number, before = find_request(tx, compiled.channel, record.request - 1)
        return _load_wire_request(tx, number, before)

    return _find_difference(compiled.formatter, store.read(work), now, record.why)


def describe_reason(why: str) -> str:
    """Return a recorded reason as a sentence."""
    return REASON_SENTENCES.get(why) or f"{why[:1].upper()}{why[1:].rstrip('.')}."


def _load_wire_request(tx: Transaction, number: int, record: RequestRecord) -> _WireRequest:
    rows = ledger.load_rows(tx, load_request_layout(tx, number, record)[0])
    return _WireRequest(load_whole_head(tx, number, record), _wire_messages(rows))


def _wire_messages(rows: Iterable[StoredRow | NewRow]) -> list[bytes]:
    """Return the wire messages of rows, each as bytes."""
    found: list[bytes] = []
    for each in rows:
        if each.row.drop:
            del found[len(found) - each.row.drop :]
        found += [bytes(message) for message in _decode_list(b"[%b]" % each.chunk)] if each.chunk else []
    return found


def _find_difference(formatter: Formatter, before: _WireRequest, now: _WireRequest, why: str) -> PrefixBreak:
    reason = describe_reason(why)
    lead = 0
    if before.head is not None and now.head is not None:
        heads = [head_without_marks(decode(each), formatter.messages_key) for each in (before.head, now.head)]
        lead = len(heads[1][formatter.messages_key])
        around = [formatter.decode_request(head) for head in heads]
        if where := _differing_part(formatter, *around):
            names = formatter.prefix_settings
            if where != "settings":  # all other fields of the head are of its tools or of its system prompt
                fields = heads[1].keys() - around[1].settings.keys()
                names = [name for name in fields if ("tool" in name.lower()) == (where == "tools")]
            name = next((name for name in heads[1] if name in names and heads[0].get(name) != heads[1][name]), "")
            path = f"{name}[0]" if name == formatter.messages_key else name
            return PrefixBreak(where=where, path=path, why=reason)
    at = _count_same_messages(before.messages, now.messages)
    same = sum(map(len, now.messages[:at]))
    if at in (len(before.messages), len(now.messages)):  # one is a prefix of the other
        return PrefixBreak(why=reason, same=same)
    return PrefixBreak(
        where=f"message {at + lead}", path=f"{formatter.messages_key}[{at + lead}]", why=reason, same=same
    )


def _differing_part(formatter: Formatter, before: Request, now: Request) -> str:
    """Return the first part of the head, in cache order, that differs and breaks the prefix; empty if none does."""
    differing = {"tools": before.tools != now.tools, "system": before.system != now.system}
    order = ("system", "tools") if formatter.caches_system_first else ("tools", "system")
    if found := next((part for part in order if differing[part]), ""):
        return found
    settings = ([each.settings.get(name) for name in formatter.prefix_settings] for each in (before, now))
    return "" if next(settings) == next(settings) else "settings"


def _count_same_messages(before: Sequence[bytes], now: Sequence[bytes]) -> int:
    """Return the number of leading messages that both have, in whatever form they were written."""
    at = 0
    for one, other in zip(before, now, strict=False):
        if one != other and comparable_bytes(one) != comparable_bytes(other):
            break
        at += 1
    return at
