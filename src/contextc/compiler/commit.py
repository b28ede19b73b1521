"""Begin and commit: check that nothing changed since the compile, then write rows, channel state and manifest.

All functions run in the transaction that stores the reply, so a commit is atomic.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from contextc._json import JSONObject, encode, id_text
from contextc.compiler import ledger
from contextc.compiler.agent_view import view_inserted_messages
from contextc.compiler.draft import (
    apply_reasoning_policy,
    has_signed_reasoning,
    list_media,
    read_compaction,
    render_item,
)
from contextc.compiler.ledger import (
    CachedChannelRows,
    CommitTail,
    is_message_lost,
    load_messages_by_place,
)
from contextc.compiler.manifest import record_from_json, record_to_json
from contextc.compiler.prompt_cache import ReplyFacts, read_reply_facts
from contextc.errors import StaleCompile
from contextc.formats.base import as_json
from contextc.messages import (
    Message,
    Usage,
)
from contextc.models.tokens import Calibration, TokenCounter
from contextc.store import message_log
from contextc.store.leases import check_lease
from contextc.store.ledger_schema import (
    Channel,
    ChannelState,
    EpochReason,
    Item,
    LedgerRow,
    ProviderSession,
    RowRange,
    StoredRow,
    extend_layout,
)
from contextc.store.message_log import (
    FIRST_UNANSWERED,
    SEQ_BITS,
    SEQ_MASK,
    BranchTip,
    Lease,
    find_message,
    find_tip,
    load_lineage,
    make_place,
    set_last_active,
    split_by_branch,
)
from contextc.store.transaction_engine import Transaction

if TYPE_CHECKING:
    from contextc.compiler.compiler import MessageCompiler


from contextc.compiler.step import Compiled

CHANNEL_CHANGED = (
    "the channel changed (another request was committed, its session was invalidated, or content was redacted)"
)
SHORTENED = "the provider shortened its own history"
NO_SESSION = "the client returned no session, so the next request sends everything again"
NO_SESSION_FIELD = f"{NO_SESSION}: set session_field of the provider, or pass session_id to commit"


ALWAYS_SAVED_SAMPLES = 20  # after this many samples, a calibration is stored only if it changed


class CommitPosition(NamedTuple):
    """Position for a reply: the tip of its conversation, the channel's number and version, and the open attempt."""

    tip: BranchTip
    number: int
    version: int
    attempt: ledger.OpenAttempt | None


class CommitResult(NamedTuple):
    """The state of a channel after a commit, and the rows that were added."""

    number: int
    version: int
    standing: ChannelState
    sealed: Sequence[StoredRow]


def append_at_tip(tx: Transaction, compiled: Compiled, entries: Sequence[message_log.PendingMessage]) -> Message | None:
    """Append a single reply with one statement that also checks that the conversation still ends where it was compiled.

    This is the fast path of a commit. The channel's version is checked when its state is written. Returns None, and
    writes nothing, if the conversation has changed or if more than one row is needed.
    """
    sight = compiled.snapshot
    if len(entries) != 1 or not sight.channel or compiled.provider.session_resumption or tx.dialect.row_lock:
        return None
    entry, at = entries[0], sight.tip
    if entry.admitted.blobs or entry.admitted.message.uid:
        return None
    message, row = message_log.build_row(at, entry)
    stored = tx.run(message_log.APPEND_AT_TIP, *message_log.values_at_tip(row, at))
    if stored != 1:
        return None
    set_last_active(tx, at, message.time)
    return message


def check_lease_and_prefetch_channel(tx: Transaction, lease: Lease, channel: Channel) -> None:
    """Check the lease, and load the channel's row in the same round trip, locked after the conversation."""
    ledger.prefetch_locked_channel(tx, channel)
    check_lease(tx, lease, channel.conversation)


def locate_reply(tx: Transaction, compiled: Compiled) -> CommitPosition:
    """Return the position for the reply. Raises `StaleCompile` if what was sent is no longer on the current branch."""
    ledger.prefetch_locked_channel(tx, compiled.channel)
    at = find_tip(tx, compiled.channel.conversation, True)
    if at is None:
        raise StaleCompile(compiled.channel.conversation, compiled.channel, "the conversation was deleted")
    number, version, attempt = lock_channel(tx, compiled)
    _check_branch(tx, compiled, at)
    return CommitPosition(at, number, version, attempt)


def lock_channel(tx: Transaction, compiled: Compiled) -> tuple[int, int, ledger.OpenAttempt | None]:
    """Return the channel's number, its version and its open attempt, and lock the row until the transaction ends.

    Creates the row if there is none. Raises `StaleCompile` if the channel changed since it was compiled.
    """
    found = ledger.find_channel(tx, compiled.channel, lock=True)
    if found is None and (number := ledger.create_channel(tx, compiled.channel, ChannelState())):
        return number, 1, None
    if found is None:  # another writer created it meanwhile, and its transaction has ended
        found = ledger.find_channel(tx, compiled.channel, lock=True)
    is_first = compiled.snapshot.version == 0 and found is not None and found.version == 1
    if found is None or (found.version != compiled.snapshot.version and not is_first):
        raise StaleCompile(compiled.channel.conversation, compiled.channel, CHANNEL_CHANGED)
    return found.number, found.version, ledger.decode_attempt(found.attempt)


def find_remaining_attempt(compiled: Compiled, attempt: ledger.OpenAttempt | None) -> ledger.OpenAttempt | None:
    """Return the attempt that stays open after the commit, because a session may contain its prompt.

    One that was open when the request was compiled is not: the request began a new session, or reverted this one.
    """
    if attempt is None or attempt == compiled.snapshot.attempt or not compiled.provider.session_resumption:
        return None
    return attempt if attempt.token != compiled.token or attempt.doubtful else None


def load_streamed(tx: Transaction, compiled: Compiled, tip: BranchTip, streamed: Sequence[Message]) -> list[Message]:
    """Return the stored form of messages that were streamed into the conversation."""
    conversation = compiled.channel.conversation
    spots = [find_message(tx, conversation, tip, message.id) for message in streamed]
    stored = load_messages_by_place(tx, [make_place(spot.branch, spot.seq) for spot in spots])
    return [stored[make_place(spot.branch, spot.seq)] for spot in spots]


def _check_branch(tx: Transaction, compiled: Compiled, at: BranchTip) -> None:
    """Raise `StaleCompile` if what was sent is no longer on the conversation's current branch."""
    was = compiled.snapshot.tip
    if (at.branch, at.revision) == (was.branch, was.revision):
        if not is_message_lost(tx, was.branch, was.id, at):
            return
        raise StaleCompile(compiled.channel.conversation, compiled.channel, EpochReason.LOG_LOST)
    if _is_redacted(tx, compiled):
        raise StaleCompile(compiled.channel.conversation, compiled.channel, "a message in it was redacted")
    for branch, first, last in split_by_branch(load_lineage(tx, at.branch), 0, at.seq):
        if branch == was.branch and (first <= was.seq <= last or was.seq == 0):
            return
        if was.seq < first:
            break
    ends = {branch: last for branch, _, last in split_by_branch(load_lineage(tx, at.branch), 0, at.seq)}
    mine = list(split_by_branch(load_lineage(tx, was.branch), 0, was.seq))
    if mine and ends.get(mine[-1][0], -1) >= mine[-1][2]:
        return
    raise StaleCompile(compiled.channel.conversation, compiled.channel, "the conversation was edited or rewound")


def _is_redacted(tx: Transaction, compiled: Compiled) -> bool:
    """Return True if the new rows or the system prompt contain content that has been redacted."""
    wanted = [item.place for row in compiled.rows.new_rows for item in row.row.items if item.place]
    wanted += compiled.snapshot.leading
    return any(message.redacted for message in load_messages_by_place(tx, wanted).values())


def write_commit(
    tx: Transaction,
    compiled: Compiled,
    counter: TokenCounter,
    *,
    number: int,
    version: int,
    branch: int,
    messages: Sequence[Message],
    usage: Usage | None,
    session: ProviderSession | None,
    notes: Sequence[str],
    shortened: bool,
    head_is_stored: bool,
    open_attempt: ledger.OpenAttempt | None,
    facts: ReplyFacts,
) -> CommitResult:
    """Write the rows, the channel state and the manifest. Returns the new state of the channel."""
    assembled, record = compiled.rows, compiled.record
    first = compiled.state.rows + 1
    last = first + len(assembled.new_rows) - 1
    fresh = [
        StoredRow(make_place(number, first + index), row.row, row.chunk) for index, row in enumerate(assembled.new_rows)
    ]
    if assembled.order is None:
        sealed, layout = fresh, extend_layout(compiled.state.layout, number, first, last)
    else:
        sealed = [fresh[each] if isinstance(each, int) else each for each in assembled.order]
        layout = _layout(sealed)
    items, humans = _produced(compiled, counter, messages, branch, usage)
    final = next((message for message in reversed(messages) if message.role == "assistant"), None)
    standing = replace(
        compiled.state,
        requests=record.request,
        rows=last,
        layout=layout,
        tip=messages[-1].id if messages else compiled.snapshot.tip.id.hex(),
        branch=compiled.snapshot.tip.branch,  # as compiled: the next request handles what happened since
        revision=compiled.snapshot.tip.revision,
        produced=(*compiled.snapshot.state.produced, *items) if compiled.draft.repeated else items,
        humans=humans,
        answered=compiled.state.answered if final is None else not final.tool_calls,
        session=None if compiled.replaced else session,
        head_place=(number, compiled.head.hash.hex()),
        replaced=compiled.replaced,
        lost="" if session or not compiled.provider.session_resumption else EpochReason.LOST_SESSION,
        input=compiled.measured_input(usage),
        overhead=compiled.overhead_after(usage),
        again=final is not None and final.finish == "pause",
        shortened=shortened or any([bool(item.compacts) for item in items]),
        reply_id=facts.id,
    )
    if tx.locked is not None:  # with its version, by `lock_channel`
        ledger.update_locked_state(tx, number, version, standing, open_attempt=open_attempt)
    elif not ledger.update_state(tx, number, version, standing, open_attempt=open_attempt):
        raise StaleCompile(compiled.channel.conversation, compiled.channel, CHANNEL_CHANGED)
    kept = replace(
        record,
        rows=last,
        layout=None if record.layout is None else layout,
        time=messages[-1].time if messages else message_log.now_ms(),
        began=compiled.began,
        usage=usage,
        miss_reason=facts.diagnosis.reason,
        miss_tokens=facts.diagnosis.missed,
        partial=bool(usage and usage.input and not compiled.measured_input(usage)),
        gave=session.id if session else "",
        remarks=(
            *record.remarks,
            *notes,
            *_describe_edits(compiled, final),
            *((SHORTENED,) if shortened else ()),
            *_session_remarks(compiled, session),
        ),
        produced=tuple([make_place(branch, message.seq) for message in messages]),
    )
    ledger.write_request(
        tx,
        number,
        record.request,
        record_to_json(kept),
        rows=[(row.row, row.chunk) for row in assembled.new_rows],
        first=first,
        head=None if head_is_stored else (compiled.head.hash, encode(compiled.head.body)),
        whole=compiled.body if compiled.replaced else None,
    )
    return CommitResult(number, version + 1, standing, sealed)


def _describe_edits(compiled: Compiled, reply: Message | None) -> tuple[str, ...]:
    return () if reply is None else compiled.formatter.describe_edits(reply)


def _session_remarks(compiled: Compiled, session: ProviderSession | None) -> tuple[str, ...]:
    provider = compiled.provider
    if session is not None or not provider.session_resumption:
        return ()
    return (NO_SESSION if provider.session_field else NO_SESSION_FIELD,)


def decode_reply(compiled: Compiled, reply: object) -> Message:
    if isinstance(reply, Message):
        return reply
    formatter = compiled.provider.formatter
    return formatter.name_codec.restore_names(formatter.decode_reply(reply), compiled.tools)


def find_session_id(compiled: Compiled, reply: object) -> str | None:
    """Return the session id that a reply contains; None if there is none. A provider's own field may be omitted."""
    field, formatter = compiled.provider.session_field, compiled.provider.formatter
    if not field or reply is None or isinstance(reply, Message):
        return None
    own, reader = as_json(reply), formatter.stream_reader
    if compiled.session_id and (reader is None or field not in reader.session_fields):
        return id_text(own.get(field)) or compiled.session_id
    return formatter.session_id_of(own, field) or None


def find_reply_facts(compiled: Compiled, reply: object, events: Sequence[JSONObject]) -> ReplyFacts:
    """Return the id of a reply, and its diagnosis of the cache, if requests of this channel ask for one."""
    if not compiled.draft.options.cache_diagnostics or not compiled.provider.cache_comparison or compiled.replaced:
        return ReplyFacts()
    given = events or ([as_json(reply)] if reply is not None and not isinstance(reply, Message) else [])
    return read_reply_facts(given)


def update_calibration(
    compiled: Compiled, usage: Usage | None, calibrations: Mapping[str, Calibration] | None
) -> Calibration | None:
    """Return the calibration for requests of this kind; None if it has not changed enough to be stored."""
    if compiled.provider.runs_tools:  # its figure includes its own prompt
        return None
    counted = compiled.measured_input(usage)
    if not counted or calibrations is None or compiled.replaced:
        return None
    known = calibrations.get(compiled.request_kind, Calibration())
    counted -= compiled.overhead_after(usage)
    learned = known.with_sample(compiled.estimated_input, counted)
    if learned.samples > ALWAYS_SAVED_SAMPLES and abs(learned.factor - known.factor) < 0.005:
        return None
    return learned


def save_unanswered(tx: Transaction, compiled: Compiled, usage: Usage | None) -> int:
    """Store a request without an answer beside the ledger, for inspection, and return its number.

    Returns 0 if it is not stored, because some of its content has been deleted or redacted.
    """
    found = ledger.find_channel(tx, compiled.channel)
    if (
        found is None
        or compiled.snapshot.channel not in (0, found.number)
        or not _is_whole(tx, compiled, found.version)
    ):
        return 0
    last = ledger.load_unanswered(tx, found.number)
    before = record_from_json(last[1]) if last is not None else None
    assembled, new, first = compiled.rows, list[tuple[LedgerRow, bytes]](), 0
    if before is not None and before.chain == compiled.state.chain:
        layout = before.layout
    else:
        first = ledger.next_row_for_unanswered_request(tx, found.number)
        new = [(row.row, row.chunk) for row in assembled.new_rows]
        fresh = [StoredRow(make_place(found.number, first + index), *row) for index, row in enumerate(new)]
        if assembled.order is None:
            layout = extend_layout(compiled.state.layout, found.number, first, first + len(fresh) - 1)
        else:
            layout = _layout([fresh[each] if isinstance(each, int) else each for each in assembled.order])
    number = last[0] + 1 if last is not None else FIRST_UNANSWERED + 1
    kept = replace(
        compiled.record,
        layout=layout,
        fragments=compiled.manifest.fragments,
        time=message_log.now_ms(),
        usage=usage,
        partial=bool(usage and usage.input and not compiled.measured_input(usage)),
    )
    head, whole = (compiled.head.hash, encode(compiled.head.body)), compiled.body if compiled.replaced else None
    ledger.write_request(tx, found.number, number, record_to_json(kept), rows=new, first=first, head=head, whole=whole)
    return number


def _is_whole(tx: Transaction, compiled: Compiled, version: int) -> bool:
    """Return True if all content of a request is still stored as it was sent."""
    items = [item for row in compiled.rows.new_rows for item in row.row.items]
    wanted = {item.place for item in items if item.place} | set(compiled.snapshot.leading)
    messages = load_messages_by_place(tx, list(wanted))
    if len(messages) < len(wanted) or any([message.redacted for message in messages.values()]):
        return False
    return version == max(1, compiled.snapshot.version) or not any([item.kind == "summary" for item in items])


def build_cache_entry(
    compiled: Compiled, written: CommitResult, stored: Sequence[Message], end: BranchTip
) -> CachedChannelRows:
    """Return the in-memory entry of the channel after the transaction."""
    number, version, standing, sealed = written
    order = compiled.rows.order
    if order is None and compiled.snapshot.cached.number == number:
        shown = compiled.snapshot.cached.extended(version, standing, sealed)
    else:
        before = () if order is not None else compiled.snapshot.cached.rows
        shown = CachedChannelRows.from_rows(number, version, standing, sealed, before)
    shown.lead, shown.since = compiled.snapshot.leading, _since(compiled, stored, end)
    return shown


def _since(compiled: Compiled, stored: Sequence[Message], end: BranchTip) -> CommitTail | None:
    """Return the tail with which the next load begins; None if more than the reply was appended to the conversation."""
    at = compiled.snapshot.tip
    if (at.branch, at.revision, at.seq + len(stored)) != (end.branch, end.revision, end.seq) or compiled.draft.repeated:
        return None
    said = tuple([(make_place(end.branch, message.seq), message) for message in stored])
    if any([where != make_place(at.branch, at.seq + index) for index, (where, _) in enumerate(said, 1)]):
        return None
    return CommitTail(end, said, compiled.snapshot.pins, compiled.draft.summary)


def _produced(
    compiled: Compiled, counter: TokenCounter, stored: Sequence[Message], branch: int, usage: Usage | None
) -> tuple[tuple[Item, ...], tuple[str, ...]]:
    """Return the items of the reply, as later requests will send it, and the people that the model knows.

    System and user messages among them are those that the model got in the middle of its reply.
    """
    provider = compiled.formatter.provider
    replies = sum([message.role == "assistant" for message in stored])
    inserted = [(make_place(branch, message.seq), message) for message in stored if message.role in ("system", "user")]
    entries, humans = view_inserted_messages(compiled.draft, inserted) if inserted else ({}, compiled.state.humans)
    items: list[Item] = []
    for message in stored:
        if (entry := entries.get(make_place(branch, message.seq))) is not None:
            items.append(entry.item)
            continue
        item = Item(
            place=make_place(branch, message.seq),
            role=message.role,
            signed=has_signed_reasoning(message, provider),
            media=bool(list_media(message)),
            compacts=read_compaction(message, compiled.formatter) if message.role == "assistant" else "",
        )
        item = apply_reasoning_policy(item, message, compiled.draft.options.reasoning_policy)
        tokens = 0
        if usage is not None and usage.output and replies == 1 and message.role == "assistant" and not item.compacts:
            tokens = usage.output - (0 if item.signed or item.inline else usage.reasoning)
        items.append(replace(item, tokens=max(tokens, 0) or counter.count_message(render_item(item, message))))
    return tuple(items), humans


def find_earlier_commit(
    tx: Transaction,
    compiled: Compiled,
    streamed: Sequence[Message],
    entries: Sequence[message_log.PendingMessage],
) -> tuple[list[Message], CachedChannelRows, BranchTip] | None:
    """Return the result of an earlier try of this commit that succeeded although its confirmation was lost."""
    at = find_tip(tx, compiled.channel.conversation, True)
    found = ledger.find_channel(tx, compiled.channel)
    standing = ledger.load_state(tx, compiled.channel)
    if at is None or found is None or standing is None or standing.requests != compiled.record.request:
        return None
    if standing.chain != compiled.state.chain:
        return None
    stored = [*load_streamed(tx, compiled, at, streamed), *message_log.find_stored(tx, entries)]
    shown = CachedChannelRows.from_rows(found[0], found[1], standing, ledger.load_rows(tx, standing.layout))
    return stored, shown, at


def _layout(sealed: Iterable[StoredRow]) -> tuple[RowRange, ...]:
    """Return the rows as ranges. Consecutive places belong to one channel, because no channel has a row 0."""
    layout: list[RowRange] = []
    start = end = 0
    for each in sealed:
        if each.place != end + 1:
            layout += [_row_range(start, end)] if start else []
            start = each.place
        end = each.place
    return (*layout, _row_range(start, end)) if start else ()


def _row_range(first: int, last: int) -> RowRange:
    return RowRange(first >> SEQ_BITS, first & SEQ_MASK, last & SEQ_MASK)


class Attempt:
    """A request that has begun. Commit it; otherwise it is aborted at the end of the block."""

    def __init__(self, compiler: "MessageCompiler", compiled: Compiled, lease: Lease | None) -> None:
        self.compiler, self.compiled, self.lease = compiler, compiled, lease
        self.committed = False

    def commit(
        self,
        reply: object = None,
        *,
        session_id: str | None = None,
        cursor: str = "",
        produced: Sequence[Message] | None = None,
        usage: Usage | None = None,
        notes: Sequence[str] = (),
        shortened: bool = False,
    ) -> list[Message]:
        """Store the reply and end the attempt. `MessageCompiler.commit` describes the arguments."""
        stored = self.compiler.commit(
            self.compiled,
            reply,
            session_id=session_id,
            cursor=cursor,
            produced=produced,
            usage=usage,
            notes=notes,
            shortened=shortened,
            lease=self.lease,
        )
        self.committed = True
        return stored
