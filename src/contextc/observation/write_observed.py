"""Record one observed exchange: messages on the chain, rows from what was sent, a manifest. One transaction.

The elements of a request are compared with those of the request before it on its channel. What is new is decoded and
appended; an edit, a rewind or a compaction by the client becomes a branch. Nothing is encoded again: rows are the bytes
that were sent.
"""

from collections.abc import Sequence
from threading import Lock
from typing import NamedTuple
from weakref import WeakKeyDictionary

from msgspec.structs import replace

from contextc._sequence_comparison import count_common_prefix
from contextc.compiler import ledger
from contextc.compiler.draft import Budget, has_signed_reasoning, hash_chunks, list_media
from contextc.compiler.head_parts import find_shared_head
from contextc.compiler.manifest import ObservedFacts, RequestRecord, SharedHead, record_to_json
from contextc.compiler.past_requests import split_elements
from contextc.compiler.step import OBSERVED
from contextc.errors import ContextcError, StoreCorrupt
from contextc.messages import COMPACTION_SUMMARIES, Message
from contextc.models.tokens import TokenCounter, get_counter
from contextc.observation.chain_writer import (
    append_answers,
    has_generated_ids,
    is_on_branch,
    next_number,
    number_calls,
    place_messages,
)
from contextc.observation.conversation_finder import (
    ConversationFinder,
    find_exchange,
    has_own_content,
    is_changed_here,
    load_record,
    save_thread,
)
from contextc.observation.exchange_parser import (
    DECODE_ERRORS,
    ElementDecoder,
    ObservedInput,
    ObservedReply,
    ParsedElements,
    is_blank,
    parse_elements,
)
from contextc.observation.observed_request import ObservedRequest, RecordOptions, StoredMessages
from contextc.observation.request_rows import (
    HeadFacts,
    RowAlignment,
    RowSegment,
    align,
    assign_row_places,
    find_marks,
    hash_head,
    make_ranges,
    pack_rows,
    read_head,
    split_segments,
    without_first,
    without_redacted,
)
from contextc.store import Store, message_log
from contextc.store.conversation_list import IMPORTED, set_directory
from contextc.store.ledger_schema import (
    Channel,
    ChannelState,
    EpochReason,
    Item,
    StoredRow,
    extend_layout,
    pack_record,
)
from contextc.store.message_log import (
    DEFAULT_AGENT,
    SEQ_BITS,
    SEQ_MASK,
    BranchTip,
    find_tip,
    load_tip_of_branch,
    make_place,
)
from contextc.store.raw_replies import save_raw_reply
from contextc.store.transaction_engine import Transaction

# ── channels in memory ────────────────────────────────────────────────────────────────────────────────────────────────
# Channels as their last request left them, so that the next request of each reads no rows. Limited in bytes.


MAX_CACHED_BYTES = 64 << 20


class KnownChannel(NamedTuple):
    """A channel as its last request left it. `counts` has the number of elements of each row. If it `is_incomplete`,
    rows have lost their bytes, because a message was redacted or damaged, and nothing continues them.
    """

    number: int
    version: int
    state: ChannelState = ChannelState()
    rows: Sequence[StoredRow] = ()
    counts: Sequence[int] = ()
    parsed: ParsedElements = ParsedElements([], [], {}, [], [])
    head: str = ""
    facts: HeadFacts = HeadFacts()
    is_incomplete: bool = False


class ObservedChannelCache:
    """The channels that were written last."""

    def __init__(self) -> None:
        self._known: dict[Channel, KnownChannel] = {}
        self._bytes = 0
        self._lock = Lock()

    def get(self, channel: Channel, number: int, version: int) -> KnownChannel | None:
        found = self._known.get(channel)
        return found if found is not None and (found.number, found.version) == (number, version) else None

    def put(self, channel: Channel, known: KnownChannel) -> None:
        with self._lock:
            self._remove(channel)
            self._known[channel] = known
            self._bytes += ledger.CHANNEL_BYTES + known.state.size
            while self._bytes > MAX_CACHED_BYTES and len(self._known) > 1:
                self._remove(next(iter(self._known)))

    def _remove(self, channel: Channel) -> None:
        if (known := self._known.pop(channel, None)) is not None:
            self._bytes -= ledger.CHANNEL_BYTES + known.state.size


class PendingChannels:
    """The channels that one transaction has written so far. They are kept if it commits."""

    def __init__(self, cache: ObservedChannelCache) -> None:
        self._cache, self._pending = cache, dict[Channel, KnownChannel]()

    def get(self, channel: Channel, number: int, version: int) -> KnownChannel | None:
        found = self._pending.get(channel)
        if found is not None and (found.number, found.version) == (number, version):
            return found
        return self._cache.get(channel, number, version)

    def put(self, channel: Channel, known: KnownChannel) -> None:
        self._pending[channel] = known

    def keep(self) -> None:
        for channel, known in self._pending.items():
            self._cache.put(channel, known)


_caches: WeakKeyDictionary[Store, ObservedChannelCache] = WeakKeyDictionary()


def cache_of(store: Store) -> ObservedChannelCache:
    return _caches.setdefault(store, ObservedChannelCache())


# ── recording ─────────────────────────────────────────────────────────────────────────────────────────────────────────


REASONS = {
    "rewound": EpochReason.CLIENT_REWOUND,
    "changed": EpochReason.CLIENT_CHANGED,
    "removed": EpochReason.CLIENT_REMOVED,
    "inserted": EpochReason.CLIENT_INSERTED,
    "compacted": EpochReason.CLIENT_COMPACTED,
}


def record_exchange(
    store: Store,
    given: ObservedInput,
    answer: ObservedReply,
    conversation: str | None = None,
    *,
    began: int,
    ended: int = 0,
    first_chunk: int | None = None,
    code: int = 0,
    options: RecordOptions | None = None,
) -> ObservedRequest:
    """Record a parsed exchange in one transaction. If its key was recorded before, return that request."""
    recording = ExchangeRecording(
        given, answer, conversation, began=began, ended=ended, first_chunk=first_chunk, code=code, options=options
    )
    return record_exchanges(store, [recording])[0]


def record_exchanges(store: Store, recordings: Sequence["ExchangeRecording"]) -> list[ObservedRequest]:
    """Record parsed exchanges in their order, in one transaction."""

    def work(tx: Transaction) -> tuple[PendingChannels, list[_Recorded]]:
        pending = PendingChannels(cache_of(store))
        return pending, [each.write(tx, pending) for each in recordings]

    pending, found = store.write(work)
    pending.keep()
    return [
        ObservedRequest(
            store=store,
            channel=each.channel,
            request=each.record.request,
            record=each.record,
            is_new=each.is_new,
            added=each.added,
        )
        for each in found
    ]


class _Recorded(NamedTuple):
    """An exchange within the transaction that recorded it."""

    channel: Channel
    record: RequestRecord
    is_new: bool = False
    added: int = 0


class ExchangeRecording:
    """One exchange on its way into the store. `write` may run more than once, so it changes nothing here.

    `began` is 0 if it is not known.
    """

    def __init__(
        self,
        given: ObservedInput,
        answer: ObservedReply,
        conversation: str | None = None,
        *,
        began: int,
        ended: int = 0,
        first_chunk: int | None = None,
        code: int = 0,
        options: RecordOptions | None = None,
    ) -> None:
        self.given, self.answer, self.conversation = given, answer, conversation
        self.is_untimed = not began and not ended
        self.began = began or ended or message_log.now_ms()
        self.ended, self.code, self.options = ended, code, options or RecordOptions()
        self.first_chunk = first_chunk - began if first_chunk is not None and first_chunk >= began else None
        found = given.provider
        self.counter: TokenCounter = get_counter(
            found.model.tokenizer, provider=found.formatter.provider, model=found.model.name
        )
        self.head = read_head(given, self.counter)
        self.decoder = ElementDecoder(given)

    def write(self, tx: Transaction, channels: PendingChannels) -> _Recorded:
        given = self.given
        finder = ConversationFinder(
            given, self.answer, self.conversation, self.began, self.head.hashes, self.options, self.decoder
        )
        if self.options.key and (found := find_exchange(tx, finder.exchange_key)) is not None:
            return _Recorded(found[0], self._finish(tx, *found))
        name, match, place = finder.find(tx)
        existing = find_tip(tx, name, True)
        is_live = self.options.names is None and self.options.stored is None
        if is_live and existing is not None and has_own_content(tx, name, existing):
            name, match, existing = finder.find_linked(tx, name, existing, place)
            place = 0
        channel = Channel(name, DEFAULT_AGENT, given.provider_name, given.model)
        at = existing or message_log.insert_conversation(tx, name)
        if existing is None:
            set_directory(tx, at.conversation, self.options.directory)
        if match is not None and (existing is None or not existing.seq):
            match = finder.add_parent(tx, match)
            session = given.ids.session or (IMPORTED if self.options.names is not None else "")
            save_thread(tx, at.conversation, given.ids.client, session, given.ids.agent, match)
        loaded = self._load(tx, channel, channels)
        record, known, added = self._store(tx, channel, at, loaded, place, finder.is_summarized)
        channels.put(channel, known)
        finder.save_keys(tx, at.conversation, make_place(known.number, record.request))
        if self.options.raw:
            save_raw_reply(tx, known.number, record.request, self.options.raw)
        return _Recorded(channel, record, is_new=True, added=added)

    def _finish(self, tx: Transaction, channel: Channel, record: RequestRecord) -> RequestRecord:
        """Return a recorded request, with the end of its reply if that is known now."""
        facts, stored = record.observed, self.options.stored
        if facts is None or facts.status == "ok" or self.answer.status != "ok" or stored is None:
            return record
        record = replace(
            record,
            usage=self.answer.usage,
            time=self.ended or self.began,
            produced=tuple([where for where, _ in stored.replies]),
            observed=replace(
                facts,
                status="ok",
                ended=self.ended,
                miss_reason=self.answer.diagnosis.reason,
                miss_tokens=self.answer.diagnosis.missed,
            ),
        )
        found = ledger.find_channel(tx, channel, lock=True)
        assert found is not None, "the channel of a recorded request exists"
        ledger.replace_manifest(tx, found.number, record.request, pack_record(record_to_json(record)))
        return record

    # ── the channel ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _load(self, tx: Transaction, channel: Channel, channels: PendingChannels) -> KnownChannel:
        found = ledger.find_channel(tx, channel, lock=True)
        if found is None and (number := ledger.create_channel(tx, channel, ChannelState())):
            return KnownChannel(number, 1)
        if found is None:  # another writer created it meanwhile, and its transaction has ended
            found = ledger.find_channel(tx, channel, lock=True)
        assert found is not None, "a channel that exists is found"
        if (known := channels.get(channel, found.number, found.version)) is not None:
            return known
        state = ledger.decode_state(channel.conversation, found.state)
        try:
            rows = ledger.load_rows(tx, state.layout)
        except StoreCorrupt:  # of a message that is damaged, or was repaired
            rows = []
        wanted = sum([each.last - each.first + 1 for each in state.layout])
        if len(rows) < wanted or not all(row.chunk for row in rows):  # or was redacted
            return KnownChannel(found.number, found.version, state, is_incomplete=True)
        elements = [split_elements(row.chunk) for row in rows]
        raw = [each for some in elements for each in some]
        parsed = parse_elements(raw)._replace(bases=raw)  # as stored: rows of older versions may have cache breakpoints
        return KnownChannel(found.number, found.version, state, rows, [len(some) for some in elements], parsed)

    # ── write ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _store(
        self, tx: Transaction, channel: Channel, at: BranchTip, known: KnownChannel, place: int, is_summarized: bool
    ) -> tuple[RequestRecord, KnownChannel, int]:
        given, answer, before = self.given, self.answer, known.state
        is_partial = given.is_partial
        before_hashes, counts = ((), ()) if is_partial else (known.parsed.hashes, known.counts)
        aligned = align(before_hashes, given.parsed.hashes, counts)
        head = self.head
        why = "" if is_partial and before.requests else self._reason(before, head, self._change(aligned, is_summarized))
        segments = self._reused(known, aligned)
        tail = given.parsed.bases[aligned.elements :]
        remark, stored = "", self.options.stored
        if stored is not None:
            messages, places, tip = self._stored_tail(tx, channel.conversation, at, stored, aligned.elements)
            replies, added, redacted = list(stored.replies), 0, stored.redacted
        else:
            messages, remark = self._decode(aligned.elements)
            used = [id for each in segments for id in each.row.ids]
            if has_generated_ids(messages, b"".join(tail)):
                messages = number_calls(messages, next_number(used))
            answers = answer.messages
            if answer.has_generated_ids:
                used += [call.id for message in messages for call in message.tool_calls]
                answers = [number_calls([each], next_number(used))[0] for each in answers]
            last = self._last_place(tx, at, segments, place if is_partial else None)
            has_reply = bool(answer.messages)
            is_moved = self.options.names is not None and (
                is_changed_here(tx, channel.conversation, at, before) or has_own_content(tx, channel.conversation, at)
            )
            placed = place_messages(
                tx, channel.conversation, at, last, messages, has_reply=has_reply, keeps_current=is_moved
            )
            tip, places, added, redacted = placed
            replies = append_answers(tx, channel.conversation, tip, answers)
            added += len(replies)
        items = [self._item(where, message) for where, message in zip(places, messages, strict=True)]
        fresh_segments = split_segments(tail, messages, items)
        segments += without_redacted(fresh_segments, redacted) if redacted else fresh_segments

        is_redacted = any(each.row.gone for each in segments)
        first = before.rows + 1
        layout, fresh = assign_row_places(segments, known.number, first)
        last_row = first + len(fresh) - 1
        extends = (
            not (is_partial or known.is_incomplete)
            and len(aligned.rows) == len(known.rows)
            and len(fresh) == len(layout) - len(known.rows)
        )
        ranges = extend_layout(before.layout, known.number, first, last_row) if extends else make_ranges(layout)
        chain = hash_chunks(before.chain if extends else "", [row.chunk for row in (fresh if extends else layout)])
        is_same_head = bool(before.requests) and not is_partial and not self._reason(before, head, "")
        shared = layout[: aligned.shared] if is_same_head else []
        part = None if is_same_head or is_partial else self._find_shared_head(tx, before)
        above, tokens = head.system + head.tools, sum([row.row.tokens for row in layout])
        head_hash = hash_head(given.head)
        budget = Budget(window=given.provider.model.window, system=head.system, tools=head.tools, used=tokens)
        shared_head = above if is_same_head else part.count_tokens(budget) if part is not None else 0
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
            new=len(messages) + len(replies) if stored is None else 0,
            remarks=(
                *(each for each in (remark, given.unreadable) if each),
                *(text for action in self.options.actions for text in action.describe()),
            ),
            budget=budget,
            shared=shared_head + sum([row.row.tokens for row in shared]),
            shared_bytes=sum([len(row.chunk) for row in shared]),
            is_bare=not head.hashes.static and not head.tools,
            shared_head=part,
            previous_input=(before.input or before.above + before.tokens) if shared_head or is_same_head else 0,
            branch=tip.branch,
            tip=tip.seq,
            time=self.ended or self.began,
            usage=answer.usage,
            produced=tuple([where for where, _ in replies]),
            observed=ObservedFacts(
                gaps=given.gaps,
                marks=find_marks(segments, given.parsed),
                status=answer.status,
                code=self.code,
                error=answer.error,
                error_type=answer.error_type,
                request_id=answer.request_id,
                began=self.began,
                untimed=self.is_untimed,
                ended=self.ended,
                first_chunk=self.first_chunk,
                inexact=self.options.inexact or is_redacted,
                redacted=self.options.redacted or is_redacted,
                actions=self.options.actions,
                miss_reason=answer.diagnosis.reason,
                miss_tokens=answer.diagnosis.missed,
            ),
        )
        measured, overhead, estimate = before.measured, before.overhead, 0
        if record.usage is not None and record.is_input_measured and not is_partial:
            measured, overhead = (record.budget.input, record.usage.input), record.counted_budget.overhead
        elif record.usage is None and measured[0]:
            record = replace(record, last_measured=measured)
            estimate = record.corrected_budget.input
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
            tip=replies[-1][1].id if replies else tip.id.hex(),
            produced=tuple([self._item(where, message) for where, message in replies[:1]]),
            head=head.hashes,
            head_place=(known.number, record.head),
            tools=head.names,
            chain=chain,
            size=sum([len(row.chunk) for row in layout]),
            above=above,
            answered=not replies or not replies[0][1].tool_calls,
            lead=(),
            input=answer.usage.input if answer.usage and not answer.usage.input_differs else estimate,
            measured=measured,
            overhead=overhead,
            replaced=self.options.inexact or is_redacted,  # what was sent are not the bytes of the rows
            lost="",
        )
        if is_partial:  # the rows are a part of the conversation, so a request of our own begins anew
            state = replace(
                state,
                layout=(),
                tokens=0,
                size=0,
                chain="",
                branch=0,
                seen=0,
                produced=(),
                lost=EpochReason.PARTIAL_REQUEST,
            )
        ledger.update_state(tx, known.number, known.version, state)
        ledger.write_request(
            tx,
            known.number,
            record.request,
            pack_record(record_to_json(record)),
            rows=pack_rows(tx, fresh),
            first=first,
            head=(head_hash, given.head or b"{}") if known.head != record.head else None,
            whole=None if given.is_split else given.body,
        )
        counts = [segment.size for segment in segments]
        entry = KnownChannel(known.number, known.version + 1, state, head=record.head, facts=head)
        if not is_partial:
            entry = entry._replace(rows=layout, counts=counts, parsed=given.parsed)
        return record, entry, added

    def _stored_tail(
        self, tx: Transaction, name: str, at: BranchTip, stored: StoredMessages, elements: int
    ) -> tuple[list[Message], list[int], BranchTip]:
        """Return the stored messages from an element on, their places, and the place before the reply."""
        first = next((index for index, start in enumerate(stored.starts) if start >= elements), len(stored.starts))
        known = [index for index in range(first, len(stored.messages)) if stored.places[index]]
        last = next((each for each in reversed(stored.places) if each), 0)
        end = stored.replies[0][0] - 1 if stored.replies else last
        tip = at
        if end and not is_on_branch(tx, at, end + bool(stored.replies)):
            tip = load_tip_of_branch(tx, name, at, end >> SEQ_BITS)
        tip = replace(tip, seq=end & SEQ_MASK)
        return [stored.messages[each] for each in known], [stored.places[each] for each in known], tip

    def _reason(self, before: ChannelState, head: HeadFacts, change: str) -> str:
        """Return the reason why the request does not extend the prefix of the previous one; "" if it does."""
        if not before.requests:
            return EpochReason.FIRST_REQUEST
        if change == "compacted":
            return REASONS[change]
        old, new = before.head, head.hashes
        if old.tools != new.tools:
            return EpochReason.TOOLS_CHANGED
        if old.static != new.static:
            return EpochReason.SYSTEM_PROMPT_CHANGED
        if old.settings != new.settings:
            return EpochReason.SETTINGS_CHANGED
        return REASONS.get(change, "")

    def _find_shared_head(self, tx: Transaction, before: ChannelState) -> SharedHead | None:
        """Return what the head shares with that of the previous request, if it changed."""
        number, name = before.head_place
        stored = ledger.load_head(tx, number, bytes.fromhex(name)) if name else None
        return find_shared_head(self.given.form, self.given.head or b"{}", stored) if stored is not None else None

    def _change(self, aligned: RowAlignment, is_summarized: bool) -> str:
        """Return how the client changed its history; "" if it only added to it."""
        added = self.given.parsed.bases[aligned.equal :]
        is_compacted = (
            is_summarized
            or self.given.ids.is_compacted
            or any([text.encode() in raw for text in COMPACTION_SUMMARIES for raw in added])
        )
        return "compacted" if aligned.change and is_compacted else aligned.change

    def _reused(self, known: KnownChannel, aligned: RowAlignment) -> list[RowSegment]:
        """Return the leading rows of the request that the previous one had too."""
        bases = self.given.parsed.bases
        same = count_common_prefix(known.parsed.bases, bases)  # most rows are the same bytes
        found: list[RowSegment] = []
        at = 0
        for number, (index, skip) in enumerate(aligned.rows):
            stored, size = known.rows[index], known.counts[index] - skip
            if number == index and not skip and at + size <= same:
                found.append(RowSegment(stored.row, size, stored.chunk, stored))
            else:
                chunk = b",".join(bases[at : at + size]) if not stored.row.gone else b""
                row = without_first(stored.row, skip, known.counts[index]) if skip else stored.row
                found.append(RowSegment(row, size, chunk, stored if stored.chunk == chunk else None))
            at += size
        return found

    def _decode(self, start: int) -> tuple[list[Message], str]:
        """Return the messages of the new elements. What cannot be decoded is stored as bytes only."""
        if start >= len(self.given.parsed.bases):
            return [], ""
        try:
            decoded = self.decoder.decode_from(start)
            decoded = [replace(message, time=self.began, uid="") for message in decoded if not is_blank(message)]
            for message in decoded:
                message_log.validate_for(message, "")
        except (ContextcError, *DECODE_ERRORS) as error:
            return [], f"The messages could not be decoded ({error})"
        return decoded, ""

    def _last_place(self, tx: Transaction, at: BranchTip, segments: Sequence[RowSegment], place: int | None) -> int:
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
            media=bool(list_media(message)),
            results=max(1, len(message.tool_results)),
            verbatim=True,
        )
