"""One compilation: load the channel, new messages, summaries and token counts, then build the request. Writes nothing.

All reads use one consistent snapshot of the store. The next step of a channel that this handle used last takes a fast
path with one statement (`channel_loader.load_next`).
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple, cast

from msgspec.structs import replace

from contextc.compiler.compiled import Compiled
from contextc.compiler.draft import Draft
from contextc.compiler.ledger import repository
from contextc.compiler.ledger.channel_loader import (
    ChannelSnapshot,
    load_latest,
    load_messages_at,
    load_next,
    load_snapshot,
    may_have_summaries,
)
from contextc.compiler.ledger.channel_row_cache import ChannelCache
from contextc.compiler.ledger.row_encoding import (
    AssembledRows,
    FetchedMessages,
    assemble_rows,
    hash_chunks,
    list_blob_names,
    list_media,
)
from contextc.compiler.ledger.summaries import Summary, load_latest_summary
from contextc.compiler.manifest_builder import build_account
from contextc.compiler.options import Budget
from contextc.compiler.passes import PASSES
from contextc.compiler.request_head import NEW_ENCODER, CompileInput, RequestTerms, build_head, find_prefix_change
from contextc.errors import ContextOverflow
from contextc.messages import Message, hash_content, validate_message
from contextc.messages.message import may_be_text
from contextc.models.tokens import Calibration, TokenCounter, load_calibration, load_counts
from contextc.providers import Provider
from contextc.store import Reference, Store
from contextc.store.backend_interface import Transaction
from contextc.store.ledger_schema import Channel, ChannelState
from contextc.store.message_rows import SEQ_MASK, find_message, load_tip, make_place

FIRST_REQUEST = "first request"
PREVIOUS_REPLACED = "the request before it was replaced"


def compile_request(ask: CompileInput, renew_terms: Callable[[], RequestTerms]) -> Compiled:
    """Compile a request. If it begins an epoch, it gets the terms with today's tools, unless they do not fit."""
    compiled = _compile(ask)
    if ask.terms.tools.is_former and compiled.draft.epoch:
        with suppress(ContextOverflow):
            return _compile(replace(ask, terms=renew_terms(), renews_tools=True))
    return compiled


def _compile(ask: CompileInput) -> Compiled:
    """Decide whether a new epoch begins, run the passes, and assemble the rows."""
    sight = ask.snapshot
    standing = sight.state
    why, resume, revert = _session(ask)
    if standing.requests and not standing.layout and standing.lost:
        why = standing.lost
    changed, compacted = -1, _is_newer(ask.summary, standing)
    if standing.requests or standing.layout or standing.held:
        is_known = bool(standing.head.encoder) or not standing.held  # a session that was adopted has an unknown head
        breaks = find_prefix_change(ask, standing.head, resume) if is_known else ""
        why = (
            why
            or sight.reason
            or breaks
            or (PREVIOUS_REPLACED if standing.replaced else "")
            or ("compaction" if compacted else "")
        )
        is_other_head = breaks in ("system prompt changed", "tools changed", NEW_ENCODER) or ask.renews_tools
        changed = 0 if why == PREVIOUS_REPLACED or is_other_head else -1
    else:
        why = why or FIRST_REQUEST
    resume = resume and not why
    draft = _draft(ask, why=why, resume=resume, changed=changed, compacted=compacted)
    passed = _run_passes(draft)
    if resume and passed.epoch:  # a pass began an epoch, so the whole context is sent into a new session
        why, resume, revert = passed.epoch, False, None
        passed = _run_passes(_draft(ask, why=why, resume=False, changed=-1, compacted=compacted))
    return _compiled(ask, passed, revert if resume else None)


def _session(ask: CompileInput) -> tuple[str, bool, str | None]:
    """Return why a stateful provider needs a new session, whether one is resumed, and the cursor it must go back to
    first.
    """
    provider, sight = ask.provider, ask.snapshot
    if not provider.session_resumption:
        return "", False, None
    session = sight.state.session
    if session is None:
        shown = sight.state.requests or sight.state.layout
        why = PREVIOUS_REPLACED if sight.state.replaced else sight.state.lost or "no session"
        return (why if shown else ""), False, None
    if sight.attempt is None:
        return "", True, None
    if provider.reverts:
        return "", True, session.cursor or session.id
    return "an earlier prompt may be in the session", False, None


def _is_newer(summary: Summary | None, standing: ChannelState) -> bool:
    if summary is None or summary.waits:
        return False
    return summary.anchor & SEQ_MASK > standing.summary & SEQ_MASK


def _draft(ask: CompileInput, *, why: str, resume: bool, changed: int, compacted: bool) -> Draft:
    sight, terms = ask.snapshot, ask.terms
    standing, kept = sight.state, sight.remaining
    if why:
        standing = replace(standing, epoch=standing.epoch + 1, input=0)
        if kept is None:
            kept = tuple([item for each in sight.cached.rows for item in each.row.items])
    return Draft(
        provider=ask.provider,
        counter=ask.counter,
        options=ask.options,
        agent=ask.channel.author,
        run=ask.run,
        running=ask.running,
        audiences=terms.audiences,
        resume=resume,
        prompt=terms.prompt,
        fetchable=terms.fetchable,
        searchable=terms.searchable,
        rows=sight.cached.rows,
        standing=standing,
        log=sight.log,
        unread_until=sight.unread_until,
        turn_opening=sight.turn_opening,
        load_messages=lambda places: ask.fetch(places, ()).messages,
        load_earlier=lambda upto, tokens: ask.load_earlier(sight, upto, tokens),
        revealed=sight.revealed,
        text_files=_load_text_files(ask),
        token_counts=ask.counts,
        unanswered_calls=sight.unanswered_calls,
        pins=sight.pins,
        summary=ask.summary,
        compacted=compacted,
        breakpoints_left=terms.breakpoints_left,
        reencode=standing.head.encoder not in ("", terms.head.encoder),
        factor=ask.factor,
        headroom=ask.headroom,
        budget=terms.budget if why or ask.options.slides else _epochs_budget(terms.budget, standing.reserve),
        epoch=why,
        kept=kept,
        changed=changed,
        remarks=(f"{sight.missing} of its messages are missing from the store",) if sight.missing else (),
    )


def _load_text_files(ask: CompileInput) -> Mapping[str, bytes]:
    messages = [*(message for _, message in ask.snapshot.log), *ask.snapshot.revealed.values()]
    files = [media for message in messages for media in list_media(message) if media.blob and may_be_text(media)]
    return ask.fetch((), [Message(role="user", parts=tuple(files))]).blobs if files else {}


def _epochs_budget(budget: Budget, shrunk: int) -> Budget:
    return replace(budget, reserve=min(budget.reserve, shrunk)) if shrunk else budget


def _run_passes(draft: Draft) -> Draft:
    for each in PASSES:
        draft = each(draft)
    return draft


def _compiled(ask: CompileInput, draft: Draft, revert: str | None) -> Compiled:
    sight, resume = ask.snapshot, draft.resume
    session = sight.state.session
    session_id = session.id if resume and session is not None else None
    head = build_head(ask, draft.budget, resume=resume, marked="head" in draft.marks)
    assembled = assemble_rows(draft, ask.terms.formatter, sight.cached.used, head.settings, ask.fetch)
    standing = _next_state(ask, draft, assembled)
    is_new = bool(draft.new) or ask.retry or sight.state.again or _is_unanswered(draft)
    if resume and not any(row.chunk for row in assembled.new_rows):
        is_new = _ends_with_result(sight.state)  # an empty delta tells a program to go on, and is never sent otherwise
    return Compiled(
        channel=ask.channel,
        provider=ask.provider,
        formatter=ask.terms.formatter,
        draft=draft,
        snapshot=sight,
        state=standing,
        rows=assembled,
        head=head,
        build_account=lambda: build_account(ask, draft, standing, assembled, head, session_id or ""),
        build_session_head=lambda: build_head(ask, draft.budget, resume=False, marked=False) if resume else head,
        session_id=session_id,
        revert_to=revert,
        dry_run=ask.dry_run,
        is_new=is_new,
        tools=ask.terms.tools.tools,
    )


def _is_unanswered(draft: Draft) -> bool:
    """Return True if a new epoch ends with input whose answer is on another branch."""
    said = (item for item in reversed(draft.kept or ()) if item.kind in ("message", "late"))
    last = next(said, None)
    return last is not None and last.role != "assistant"


def _ends_with_result(standing: ChannelState) -> bool:
    """Return True if the last reply of a session was ended before the model answered the results in it."""
    return bool(standing.produced) and standing.produced[-1].role == "tool"


def _next_state(ask: CompileInput, draft: Draft, assembled: AssembledRows) -> ChannelState:
    """Return the state of the channel after this request is committed."""
    standing, sight = draft.standing, ask.snapshot
    epoch = standing.epoch
    if draft.epoch and not sight.reason and epoch == sight.state.epoch:
        epoch += 1
    if assembled.order is None:
        chunks = [row.chunk for row in assembled.new_rows]
        chain, size = hash_chunks(standing.chain, chunks), standing.size + sum([len(chunk) for chunk in chunks])
        tokens = standing.tokens + sum([row.row.tokens for row in assembled.new_rows])
    else:
        rows = [
            assembled.new_rows[each][:2] if isinstance(each, int) else (each.row, each.chunk)
            for each in assembled.order
        ]
        chain = hash_chunks("", [chunk for _, chunk in rows])
        size, tokens = sum([len(chunk) for _, chunk in rows]), sum([row.tokens for row, _ in rows])
    return replace(
        standing,
        epoch=epoch,
        head=ask.terms.head,
        tools=ask.terms.names,
        chain=chain,
        size=size,
        above=ask.terms.budget.system + ask.terms.budget.tools,
        tokens=tokens,
        seen=sight.tip.seq,
        runs=ask.runs,
        summary=_summary_place(ask, draft, standing),
        reserve=_shrunk_reserve(ask, draft, standing),
        input=0,
        held=0,
    )


def _summary_place(ask: CompileInput, draft: Draft, standing: ChannelState) -> int:
    """Return the place up to which a summary was used, or was considered and rejected."""
    if draft.kept is None:
        return standing.summary
    if draft.compacted and ask.summary is not None:
        return ask.summary.anchor
    return max((item.place for item in draft.kept if item.kind == "summary"), default=0)


def _shrunk_reserve(ask: CompileInput, draft: Draft, standing: ChannelState) -> int:
    """Return the reserve if it had to shrink for this epoch, else 0. Later requests of the epoch do not exceed it.

    The policy `sliding_window` computes the reserve of each request by itself.
    """
    if ask.options.slides:
        return 0
    if draft.kept is None:
        return standing.reserve
    return draft.budget.reserve if draft.budget.reserve < ask.terms.budget.reserve else 0


class LoadedContext(NamedTuple):
    """The loaded channel, its summary, and the tokens of new messages."""

    snapshot: ChannelSnapshot
    summary: Summary | None
    counts: Mapping[int, int]
    new_counts: dict[bytes, int]

    def with_appended(self, messages: Sequence[Message]) -> "LoadedContext":
        """Return the same with unsaved messages appended."""
        at, log = self.snapshot.tip, list(self.snapshot.log)
        for seq, message in enumerate(messages, at.seq + 1):
            log.append(
                (
                    make_place(at.branch, seq),
                    replace(validate_message(replace(message, uid="", time=0)).message, seq=seq),
                )
            )
        return self._replace(snapshot=replace(self.snapshot, log=tuple(log)))


class ContextLoader:
    """Reads a store for one provider. `calibration` is None until the first read."""

    def __init__(self, store: Store, provider: Provider, counter: TokenCounter, cache: ChannelCache) -> None:
        self.store, self.provider, self.counter, self._cache = store, provider, counter, cache
        self.calibration: Calibration | None = None
        self.skip_summarized = False
        """True if messages that the latest summary covers are not read."""
        self.assumed_summary: Summary | None = None
        """A summary that is not stored, and is used as if it were the latest one."""

    @property
    def factor(self) -> float:
        return self.calibration.factor if self.calibration is not None else 1.0

    @property
    def is_calibrated(self) -> bool:
        """True if a calibration of the model is stored."""
        return self.calibration is not None and self.calibration.samples > 0

    def load(
        self,
        channel: Channel,
        runs: str,
        edit: tuple[Reference, Message] | None,
        rewind: Reference | None,
        *,
        has_instructions: bool,
    ) -> LoadedContext:
        """Load a channel as it is now, or as it would be after an edit or a rewind."""
        seen = self._load_next(channel, has_instructions) if edit is None and rewind is None else None
        seen = seen or self._load_snapshot(channel, runs, edit, rewind, has_instructions)
        return seen if self.assumed_summary is None else seen._replace(summary=self.assumed_summary)

    def _load_next(self, channel: Channel, has_instructions: bool) -> LoadedContext | None:
        """Load the next step of a channel by the fast path; None if the full load is needed."""
        if self.calibration is None or (sight := load_next(self.store, self._cache, channel)) is None:
            return None
        if sight.leading and has_instructions:
            return None
        counts, fresh = dict[int, int](), dict[bytes, int]()
        if self.counter.exact:
            counts, fresh = self.store.read(lambda tx: self._counts(tx, sight))
        since = sight.cached.since
        return LoadedContext(sight, since.summary if since else None, counts, fresh)

    def _load_snapshot(
        self,
        channel: Channel,
        runs: str,
        edit: tuple[Reference, Message] | None,
        rewind: Reference | None,
        has_instructions: bool,
    ) -> LoadedContext:
        room, read, counter = self.provider.model.window, 0, self.counter
        counted: dict[int, int] = {}

        def seen_tokens(where: int, message: Message) -> int:
            """Return the tokens that a message may take, as far as known before all messages are read."""
            if message.redacted or message.status != "sent" or message.audience not in (None, channel.author):
                return 0
            if message.author in (None, channel.author) or message.role == "user":
                tokens = counted[where] = counter.count_message(message)
                return tokens
            return counter.count_text(message.text) if message.role == "assistant" else 0

        def enough(block: Sequence[tuple[int, Message]]) -> bool:
            nonlocal read
            read += sum([seen_tokens(where, message) for where, message in block])
            return read > room

        def work(tx: Transaction) -> LoadedContext:
            nonlocal read
            read, upto = 0, None
            counted.clear()
            if edit is not None or rewind is not None:
                at = load_tip(tx, channel.conversation)
                where = find_message(
                    tx, channel.conversation, at, edit[0] if edit is not None else cast(Reference, rewind)
                )
                upto = where.seq - 1 if edit is not None else where.seq
            since = None
            if self.skip_summarized and may_have_summaries(at := load_tip(tx, channel.conversation)):
                since = load_latest_summary(tx, channel.author, at, counter.count_system)
            sight = load_snapshot(
                tx,
                self._cache,
                channel,
                window=room,
                runs=runs,
                is_full=enough,
                until=upto,
                since=since,
                has_instructions=has_instructions,
            )
            if self.calibration is None:
                self.calibration = load_calibration(tx, self.provider.model_id)
            counts, fresh = self._counts(tx, sight, counted)
            summary = None
            if may_have_summaries(sight.tip):
                summary = load_latest_summary(tx, channel.author, sight.tip, counter.count_system)
            if summary is not None and summary.anchor & SEQ_MASK <= sight.state.edge:
                summary = None  # the context was cleared after it
            if self.skip_summarized and summary is not None:
                summary = summary._replace(waits=False)
            return LoadedContext(sight, summary, counts, fresh)

        seen = self.store.read(work)
        return seen if edit is None else seen.with_appended([edit[1]])

    def load_other_channel_state(self, channel: Channel, sight: ChannelSnapshot) -> ChannelState | None:
        """Return the state of the channel that this agent used last, if it never used this one."""
        if sight.state.requests or sight.state.layout:
            return None
        channels = self.store.read(lambda tx: repository.load_channels(tx, channel.conversation))
        others = [
            standing for _, other, standing, _ in channels if other.author == channel.author and standing.requests
        ]
        return max(others, key=lambda standing: standing.seen, default=None)

    def _counts(
        self, tx: Transaction, sight: ChannelSnapshot, counted: Mapping[int, int] = {}
    ) -> tuple[Mapping[int, int], dict[bytes, int]]:
        """Return the tokens of new messages by place, and newly counted tokens by content hash.

        `counted` are counts made while reading. Estimates are not cached: computing one is cheaper than looking it up.
        """
        if not self.counter.exact or not sight.log:
            return counted, {}
        names = {where: hash_content(message) for where, message in sight.log}
        found = load_counts(tx, self.counter.tokenizer, list(names.values()))
        fresh: dict[bytes, int] = {}
        for where, message in sight.log:
            if (name := names[where]) not in found:
                found[name] = fresh[name] = counted.get(where) or self.counter.count_message(message)
        return {where: found[name] for where, name in names.items()}, fresh

    def load_earlier(self, sight: ChannelSnapshot, upto: int, tokens: int) -> Mapping[int, Message]:
        """Return the latest messages after the context edge and up to a seq, by place, and of people so many tokens."""
        found = self.store.read(lambda tx: load_latest(tx, sight.tip, sight.state.edge, upto))
        block = {where: message for where, message in found.items() if message.role == "user"}
        upto = min([where & SEQ_MASK for where in found], default=0) - 1
        while True:
            tokens -= sum([self.counter.count_text(message.text) for message in block.values()])
            if tokens <= 0 or upto <= sight.state.edge:
                return found
            block = self.store.read(lambda tx, upto=upto: load_latest(tx, sight.tip, sight.state.edge, upto, "user"))
            found |= block
            upto = min([where & SEQ_MASK for where in block], default=0) - 1

    def fetch_messages(self, places: Sequence[int], also: Sequence[Message]) -> FetchedMessages:
        """Return messages by place, and the bytes of their media and of the media of `also`."""

        def work(tx: Transaction) -> FetchedMessages:
            messages = load_messages_at(tx, places)
            names = list_blob_names([*messages.values(), *also])
            blobs: dict[str, bytes] = {}
            for name in names:
                row = tx.row("SELECT data FROM blob WHERE name = ?", name)
                if row is not None:
                    blobs[name] = bytes(row[0])
            return FetchedMessages(messages, blobs)

        return self.store.read(work)
