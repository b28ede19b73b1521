"""Record one observed exchange: messages on the chain, rows from what was sent, a manifest. One transaction.

The elements of a request are compared with those of the request before it on its channel. What is new is decoded and
appended; an edit, a rewind or a compaction by the client becomes a branch. Nothing is encoded again: rows are the bytes
that were sent.
"""

from collections.abc import Mapping, Sequence
from threading import Lock
from typing import NamedTuple
from weakref import WeakKeyDictionary

from msgspec import Struct
from msgspec.structs import replace

from contextc.compiler.body_splitting import split_elements
from contextc.compiler.compiled import OBSERVED
from contextc.compiler.draft import Budget
from contextc.compiler.ledger import repository
from contextc.compiler.ledger.packing import pack_record
from contextc.compiler.ledger.row_encoding import has_media, has_signed_reasoning, hash_chunks
from contextc.compiler.manifest import ObservedFacts, RequestRecord, record_to_json
from contextc.compiler.past_requests import compute_request_cost, load_channel_formatter, rebuild
from contextc.errors import ContextcError, InvalidInput
from contextc.messages import Message, Usage
from contextc.models.tokens import TokenCounter
from contextc.models.tokens.counter import get_counter
from contextc.observation.alignment import Alignment, align
from contextc.observation.chain_writer import append_messages, place_messages
from contextc.observation.conversation_finder import (
    ConversationFinder,
    find_recorded,
    load_record,
    make_key,
    save_key,
    save_thread,
)
from contextc.observation.exchange_parser import (
    DECODE_ERRORS,
    ObservedInput,
    ObservedReply,
    ParsedElements,
    as_bytes,
    count_common,
    decode_elements,
    parse_elements,
    parse_input,
    parse_reply,
)
from contextc.observation.head_facts import HeadFacts, hash_head, read_head
from contextc.observation.redaction_patterns import Redaction, make_redactor
from contextc.observation.request_rows import (
    Segment,
    find_marks,
    make_ranges,
    number_rows,
    pack_rows,
    split_segments,
    without_first,
)
from contextc.store import Store, message_chain
from contextc.store.ledger_schema import (
    Channel,
    ChannelState,
    Item,
    StoredRow,
    extend_layout,
)
from contextc.store.message_rows import (
    BranchTip,
    find_tip,
    make_place,
)
from contextc.store.types import DEFAULT_AGENT, Transaction

PARTIAL_REQUEST = "the provider has earlier messages"
MAX_CACHED_BYTES = 64 << 20
REASONS = {
    "rewound": "rewound by the client",
    "changed": "the client changed an earlier message",
    "removed": "the client removed earlier messages",
    "inserted": "the client inserted a message",
    "compacted": "compacted by the client",
}


class ObservedRequest(Struct, frozen=True, kw_only=True):
    """A recorded request: its conversation and channel, its number on the channel, and how it ended."""

    store: Store
    channel: Channel
    request: int
    record: RequestRecord

    @property
    def conversation(self) -> str:
        return self.channel.conversation

    @property
    def body(self) -> bytes:
        """The exact bytes of the request, rebuilt from the store; redacted ones if it is marked inexact."""
        return rebuild(self.store, self.channel, load_channel_formatter(self.store, self.channel), self.request)

    @property
    def status(self) -> str:
        """`ok`, `error`, `unfinished` (the reply broke off) or `unanswered`."""
        return self.record.observed.status if self.record.observed else ""

    @property
    def usage(self) -> Usage | None:
        return self.record.usage

    @property
    def cost(self) -> float | None:
        """The cost in dollars; None if it is unknown."""
        return compute_request_cost(self.channel, self.record)


def observe(
    store: Store,
    *,
    request: bytes | str | Mapping[str, object],
    reply: object = None,
    format: str | None = None,
    conversation: str | None = None,
    time: int | None = None,
    ended: int | None = None,
    headers: Mapping[str, str] | None = None,
    url: str = "",
    status: int | None = None,
    model: str = "",
    provider: str = "",
    redact: Redaction | None = None,
    exchange_id: str = "",
) -> ObservedRequest:
    """Record a request that other software made, and its reply.

    `request` is the body as bytes or JSON. `reply` is whole or a list of events, as bytes, text or JSON; None if there
    was none. Times are in Unix milliseconds: `time` is when the request was sent, `ended` when its reply ended.
    `headers` may contain the client's own ids; they are not stored. Without `conversation`, the conversation is found
    by these ids or by content. `redact` removes text before anything is stored: "keys", "tokens", "mail", regular
    expressions, or True for all built-in patterns. Such a request is marked inexact. An exchange with an `exchange_id`
    is recorded once: if it was recorded before, that record is returned.
    """
    began = time or message_chain.now_ms()
    if not isinstance(began, int) or not isinstance(ended or 0, int):
        raise InvalidInput("time and ended: expected Unix milliseconds", got=(time, ended))
    redactor = make_redactor(store, redact)
    sent, headers = as_bytes(request), headers or {}
    body = redactor.redact_body(sent) if redactor else sent
    given = parse_input(
        body,
        format=format,
        headers=redactor.redact_headers(headers) if redactor else headers,
        url=url,
        model=model,
        provider_name=provider,
        reply=reply,
    )
    answer = parse_reply(given.form, reply, status, ended or began)
    recording = _Recording(
        store,
        given,
        redactor.redact_reply(answer) if redactor else answer,
        conversation,
        began=began,
        ended=ended or 0,
        code=status or 0,
        is_inexact=body != sent,
        exchange_id=exchange_id,
    )
    channel, record, entry = store.write(recording.write)
    if entry is not None:
        _cache_of(store).put(channel, entry)
    return ObservedRequest(store=store, channel=channel, request=record.request, record=record)


class _Known(NamedTuple):
    """A channel as its last request left it. `counts` has the number of elements of each row."""

    number: int
    version: int
    state: ChannelState = ChannelState()
    rows: Sequence[StoredRow] = ()
    counts: Sequence[int] = ()
    parsed: ParsedElements = ParsedElements([], [], {}, [], [])
    head: str = ""
    facts: HeadFacts = HeadFacts()


class _Cache:
    """The channels that were written last, so that the next request of each reads no rows. Limited in bytes."""

    def __init__(self) -> None:
        self._known: dict[Channel, _Known] = {}
        self._bytes = 0
        self._lock = Lock()

    def get(self, channel: Channel, number: int, version: int) -> _Known | None:
        found = self._known.get(channel)
        return found if found is not None and (found.number, found.version) == (number, version) else None

    def put(self, channel: Channel, known: _Known) -> None:
        with self._lock:
            self._remove(channel)
            self._known[channel] = known
            self._bytes += known.state.size
            while self._bytes > MAX_CACHED_BYTES and len(self._known) > 1:
                self._remove(next(iter(self._known)))

    def _remove(self, channel: Channel) -> None:
        if (known := self._known.pop(channel, None)) is not None:
            self._bytes -= known.state.size


_caches: WeakKeyDictionary[Store, _Cache] = WeakKeyDictionary()


def _cache_of(store: Store) -> _Cache:
    return _caches.setdefault(store, _Cache())


class _Recording:
    """One exchange on its way into the store. `write` may run more than once, so it changes nothing here."""

    def __init__(
        self,
        store: Store,
        given: ObservedInput,
        answer: ObservedReply,
        conversation: str | None,
        *,
        began: int,
        ended: int,
        code: int,
        is_inexact: bool,
        exchange_id: str,
    ) -> None:
        self.store, self.given, self.answer, self.conversation = store, given, answer, conversation
        self.began, self.ended, self.code, self.is_inexact = began, ended, code, is_inexact
        self.key = make_key("exchange", exchange_id) if exchange_id else b""
        found = given.provider
        self.counter: TokenCounter = get_counter(
            found.model.tokenizer, provider=found.formatter.provider, model=found.model.name
        )
        self.head = read_head(given, self.counter)

    def write(self, tx: Transaction) -> tuple[Channel, RequestRecord, _Known | None]:
        given = self.given
        if self.key and (recorded := find_recorded(tx, self.key)) is not None:
            return *recorded, None
        finder = ConversationFinder(given, self.answer, self.conversation, self.began, self.head.hashes)
        name, match, place = finder.find(tx)
        channel = Channel(name, DEFAULT_AGENT, given.provider_name, given.model)
        existing = find_tip(tx, name, True)
        at = existing or message_chain.insert_conversation(tx, name)
        if match is not None and (existing is None or not existing.seq):  # one of our own stays one of our own
            save_thread(tx, at.conversation, given.ids.client, given.ids.session, given.ids.agent, match)
        stored = self._store(tx, channel, at, self._load(tx, channel), place)
        where = make_place(stored[2].number, stored[1].request)
        finder.save_keys(tx, at.conversation, where)
        if self.key:
            save_key(tx, self.key, where, at.conversation)
        return stored

    # ── the channel ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _load(self, tx: Transaction, channel: Channel) -> _Known:
        found = repository.find_channel(tx, channel, lock=True)
        if found is None and (number := repository.create_channel(tx, channel, ChannelState())):
            return _Known(number, 1)
        if found is None:  # another writer created it meanwhile, and its transaction has ended
            found = repository.find_channel(tx, channel, lock=True)
        assert found is not None, "a channel that exists is found"
        if (known := _cache_of(self.store).get(channel, found.number, found.version)) is not None:
            return known
        state = repository.decode_state(channel.conversation, found.state)
        rows = repository.load_rows(tx, state.layout)
        elements = [split_elements(row.chunk) for row in rows]
        parsed = parse_elements([each for some in elements for each in some])
        return _Known(found.number, found.version, state, rows, [len(some) for some in elements], parsed)

    # ── write ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _store(
        self, tx: Transaction, channel: Channel, at: BranchTip, known: _Known, place: int
    ) -> tuple[Channel, RequestRecord, _Known]:
        given, answer, before = self.given, self.answer, known.state
        is_partial = bool(given.previous_response)  # the provider has the rest of the conversation
        before_hashes, counts = ((), ()) if is_partial else (known.parsed.hashes, known.counts)
        aligned = align(before_hashes, given.parsed.hashes, counts)
        head = self.head
        why = "" if is_partial and before.requests else self._reason(before, head, self._change(aligned))
        segments = self._reused(known, aligned)
        tail = given.parsed.bases[aligned.elements :]
        messages, remark = self._decode(tail)
        last = self._last_place(tx, at, segments, place if is_partial else None)
        has_reply = bool(answer.messages)
        tip, places = place_messages(tx, channel.conversation, at, last, messages, has_reply=has_reply)
        items = [self._item(where, message) for where, message in zip(places, messages, strict=True)]
        replies = append_messages(tx, channel.conversation, tip, answer.messages)
        segments += split_segments(tail, messages, items)

        first = before.rows + 1
        layout, fresh = number_rows(segments, known.number, first)
        last_row = first + len(fresh) - 1
        extends = (
            not is_partial and len(aligned.rows) == len(known.rows) and len(fresh) == len(layout) - len(known.rows)
        )
        ranges = extend_layout(before.layout, known.number, first, last_row) if extends else make_ranges(layout)
        chain = hash_chunks(before.chain if extends else "", [row.chunk for row in (fresh if extends else layout)])
        is_same_head = bool(before.requests) and not is_partial and not self._reason(before, head, "")
        shared = layout[: aligned.shared] if is_same_head else []
        above, tokens = head.system + head.tools, sum([row.row.tokens for row in layout])
        head_hash = hash_head(given.head)
        record = RequestRecord(
            request=before.requests + 1,
            mode=OBSERVED,
            epoch=before.epoch + bool(why),
            why=why,
            rows=last_row,
            layout=None if extends and before.layout and not why else ranges,
            head=head_hash.hex(),
            chain=chain,
            added=len(layout) - (0 if why else aligned.shared),
            session=given.previous_response,
            new=len(messages) + len(replies),
            remarks=(remark,) if remark else (),
            budget=Budget(window=given.provider.model.window, system=head.system, tools=head.tools, used=tokens),
            shared=above + sum([row.row.tokens for row in shared]) if is_same_head else 0,
            shared_bytes=sum([len(row.chunk) for row in shared]),
            branch=tip.branch,
            tip=tip.seq,
            time=self.ended or self.began,
            usage=answer.usage,
            produced=tuple([make_place(tip.branch, message.seq) for message in replies]),
            observed=ObservedFacts(
                gaps=given.gaps,
                marks=find_marks(segments, given.parsed),
                status=answer.status,
                code=self.code,
                error=answer.error,
                began=self.began,
                ended=self.ended,
                inexact=self.is_inexact,
            ),
        )
        state = replace(
            before,
            requests=record.request,
            rows=last_row,
            epoch=record.epoch,
            layout=ranges,
            tokens=tokens,
            branch=tip.branch,
            revision=tip.revision,
            seen=tip.seq,
            produced=tuple([self._item(make_place(tip.branch, message.seq), message) for message in replies]),
            head=head.hashes,
            tools=head.names,
            chain=chain,
            size=sum([len(row.chunk) for row in layout]),
            above=above,
            answered=not replies or not replies[-1].tool_calls,
            lead=(),
            input=answer.usage.input if answer.usage else 0,
            replaced=self.is_inexact,  # what was sent are not the bytes of the rows
            lost="",
        )
        if is_partial:  # the rows are a part of the conversation, so a request of our own begins anew
            state = replace(
                state, layout=(), tokens=0, size=0, chain="", branch=0, seen=0, produced=(), lost=PARTIAL_REQUEST
            )
        repository.update_state(tx, known.number, known.version, state)
        repository.write_rows(tx, known.number, first, pack_rows(tx, fresh))
        if not given.is_split:
            repository.save_replaced(tx, known.number, record.request, given.body)
        if known.head != record.head:
            repository.save_head(tx, known.number, head_hash, given.head or b"{}")
        repository.save_manifest(tx, known.number, record.request, pack_record(record_to_json(record)))
        counts = [segment.size for segment in segments]
        entry = _Known(known.number, known.version + 1, state, head=record.head, facts=head)
        if not is_partial:
            entry = entry._replace(rows=layout, counts=counts, parsed=given.parsed)
        return channel, record, entry

    def _reason(self, before: ChannelState, head: HeadFacts, change: str) -> str:
        """Return the reason why the request does not extend the prefix of the previous one; "" if it does."""
        if not before.requests:
            return "first request"
        if change == "compacted":
            return REASONS[change]
        old, new = before.head, head.hashes
        if old.tools != new.tools:
            return "tools changed"
        if old.static != new.static:
            return "system prompt changed"
        if old.settings != new.settings:
            return "reasoning settings changed"
        return REASONS.get(change, "")

    def _change(self, aligned: Alignment) -> str:
        """Return how the client changed its history; "" if it only added to it."""
        ids, added = self.given.ids, self.given.parsed.bases[aligned.equal :]
        has_summary = bool(ids.summary) and any(ids.summary.encode() in raw for raw in added)
        return "compacted" if aligned.change and (ids.is_compacted or has_summary) else aligned.change

    def _reused(self, known: _Known, aligned: Alignment) -> list[Segment]:
        """Return the leading rows of the request that the previous one had too."""
        bases = self.given.parsed.bases
        same = count_common(known.parsed.bases, bases)  # most rows are the same bytes
        found: list[Segment] = []
        at = 0
        for number, (index, skip) in enumerate(aligned.rows):
            stored, size = known.rows[index], known.counts[index] - skip
            if number == index and not skip and at + size <= same:
                found.append(Segment(stored.row, size, stored.chunk, stored))
            else:
                chunk = b",".join(bases[at : at + size])
                row = without_first(stored.row, skip, known.counts[index]) if skip else stored.row
                found.append(Segment(row, size, chunk, stored if stored.chunk == chunk else None))
            at += size
        return found

    def _decode(self, tail: Sequence[bytes]) -> tuple[list[Message], str]:
        """Return the messages of the new elements. What cannot be decoded is stored as bytes only."""
        if not tail:
            return [], ""
        try:
            decoded = decode_elements(self.given.form, tail, is_plain=self.given.is_plain)
            decoded = [replace(message, time=self.began, uid="") for message in decoded]
            for message in decoded:
                message_chain.validate_for(message, "")
        except (ContextcError, *DECODE_ERRORS) as error:
            return [], f"The messages could not be decoded ({error})"
        return decoded, ""

    def _last_place(self, tx: Transaction, at: BranchTip, segments: Sequence[Segment], place: int | None) -> int:
        """Return the place of the message after which the new ones follow; 0 for the start of the conversation.

        `place` is the request that this one continues, if the provider has the rest of the conversation.
        """
        if place is None:
            return next(
                (item.place for each in reversed(segments) for item in reversed(each.row.items) if item.place), 0
            )
        continued = load_record(tx, place) if place else None
        return continued.produced[-1] if continued is not None and continued.produced else make_place(at.branch, at.seq)

    def _item(self, place: int, message: Message) -> Item:
        return Item(
            place=place,
            role=message.role,
            tokens=self.counter.count_message(message),
            opens=message.role == "user",
            signed=has_signed_reasoning(message, self.given.form.provider),
            media=has_media(message),
            results=max(1, len(message.tool_results)),
            verbatim=True,
        )
