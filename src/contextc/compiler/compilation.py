"""One compilation: from the loaded channel to a compiled request. It writes nothing."""

from msgspec.structs import replace

from contextc.compiler.ask import CompileInput
from contextc.compiler.assembly import AssembledRows, assemble_rows, hash_chunks
from contextc.compiler.compiled import Compiled
from contextc.compiler.heads import NEW_ENCODER, build_head, find_prefix_change
from contextc.compiler.telling import build_account
from contextc.draft import Budget, Draft
from contextc.ledger.overlays import Summary
from contextc.ledger.standing import ChannelState
from contextc.passes import PASSES
from contextc.store.places import SEQ_MASK

FIRST_REQUEST = "first request"
PREVIOUS_REPLACED = "the request before it was replaced"


def compile_request(ask: CompileInput) -> Compiled:
    """Compile a request: decide whether a new epoch begins, run the passes, and assemble the rows."""
    sight = ask.sight
    standing = sight.standing
    why, resume, revert = _session(ask)
    if standing.requests and not standing.layout and standing.lost:
        why = standing.lost
    changed, compacted = -1, _is_newer(ask.summary, standing)
    if standing.requests or standing.layout:
        breaks = find_prefix_change(ask, standing.head, resume)
        why = (
            why
            or sight.why
            or breaks
            or (PREVIOUS_REPLACED if standing.replaced else "")
            or ("compaction" if compacted else "")
        )
        changed = (
            0 if why == PREVIOUS_REPLACED or breaks in ("system prompt changed", "tools changed", NEW_ENCODER) else -1
        )
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
    provider, sight = ask.provider, ask.sight
    if not provider.session_resumption:
        return "", False, None
    session = sight.standing.session
    if session is None:
        shown = sight.standing.requests or sight.standing.layout
        why = PREVIOUS_REPLACED if sight.standing.replaced else sight.standing.lost or "no session"
        return (why if shown else ""), False, None
    if sight.attempt is None:
        return "", True, None
    if provider.reverts:
        return "", True, session.cursor or session.id
    return "an earlier prompt may be in the session", False, None


def _is_newer(summary: Summary | None, standing: ChannelState) -> bool:
    return summary is not None and summary.anchor & SEQ_MASK > standing.summary & SEQ_MASK


def _draft(ask: CompileInput, *, why: str, resume: bool, changed: int, compacted: bool) -> Draft:
    sight, terms = ask.sight, ask.terms
    standing, kept = sight.standing, sight.kept
    if why:
        standing = replace(standing, epoch=standing.epoch + 1, input=0)
        if kept is None:
            kept = tuple([item for each in sight.shown.sealed for item in each.row.items])
    return Draft(
        provider=ask.provider,
        counter=ask.counter,
        options=ask.options,
        agent=ask.channel.agent,
        run=ask.run,
        running=ask.running,
        audiences=terms.audiences,
        resume=resume,
        prompt=terms.prompt,
        fetchable=terms.fetchable,
        sealed=sight.shown.sealed,
        standing=standing,
        log=sight.log,
        unread=sight.unread,
        opening=sight.opening,
        late=sight.late,
        counts=ask.counts,
        unanswered=sight.unanswered,
        pins=sight.pins,
        summary=ask.summary,
        compacted=compacted,
        points=terms.points,
        anew=standing.head.encoder not in ("", terms.head.encoder),
        factor=ask.factor,
        budget=terms.budget if why else _epochs_budget(terms.budget, standing.reserve),
        epoch=why,
        kept=kept,
        changed=changed,
    )


def _epochs_budget(budget: Budget, shrunk: int) -> Budget:
    return replace(budget, reserve=min(budget.reserve, shrunk)) if shrunk else budget


def _run_passes(draft: Draft) -> Draft:
    for each in PASSES:
        draft = each(draft)
    return draft


def _compiled(ask: CompileInput, draft: Draft, revert: str | None) -> Compiled:
    sight, resume = ask.sight, draft.resume
    session = sight.standing.session
    session_id = session.id if resume and session is not None else None
    head = build_head(ask, draft.budget, resume=resume, marked="head" in draft.marks)
    assembled = assemble_rows(draft, ask.terms.formatter, sight.shown.used, head.settings, ask.fetch)
    standing = _next_state(ask, draft, assembled)
    is_new = bool(draft.new) or ask.again or sight.standing.again or _is_unanswered(draft)
    if resume and not any(row.chunk for row in assembled.new):
        is_new = False  # an empty delta is never sent
    return Compiled(
        channel=ask.channel,
        provider=ask.provider,
        formatter=ask.terms.formatter,
        draft=draft,
        sight=sight,
        standing=standing,
        assembled=assembled,
        head=head,
        account=lambda: build_account(ask, draft, standing, assembled, head, session_id or ""),
        opening=lambda: build_head(ask, draft.budget, resume=False, marked=False) if resume else head,
        session_id=session_id,
        revert=revert,
        dry_run=ask.dry_run,
        is_new=is_new,
        tools=ask.terms.tools.tools,
    )


def _is_unanswered(draft: Draft) -> bool:
    """Return True if a new epoch ends with input whose answer is on another branch."""
    said = (item for item in reversed(draft.kept or ()) if item.kind in ("message", "late"))
    last = next(said, None)
    return last is not None and last.role != "assistant"


def _next_state(ask: CompileInput, draft: Draft, assembled: AssembledRows) -> ChannelState:
    """Return the state of the channel after this request is committed."""
    standing, sight = draft.standing, ask.sight
    epoch = standing.epoch
    if draft.epoch and not sight.why and epoch == sight.standing.epoch:
        epoch += 1
    if assembled.order is None:
        chunks = [row.chunk for row in assembled.new]
        chain, size = hash_chunks(standing.chain, chunks), standing.size + sum([len(chunk) for chunk in chunks])
        tokens = standing.tokens + sum([row.row.tokens for row in assembled.new])
    else:
        rows = [
            assembled.new[each][:2] if isinstance(each, int) else (each.row, each.chunk) for each in assembled.order
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
        seen=sight.at.seq,
        runs=ask.runs,
        summary=_summary_place(ask, draft, standing),
        reserve=_shrunk_reserve(ask, draft, standing),
        input=0,
    )


def _summary_place(ask: CompileInput, draft: Draft, standing: ChannelState) -> int:
    """Return the place up to which a summary was used, or was considered and rejected."""
    if draft.kept is None:
        return standing.summary
    if draft.compacted and ask.summary is not None:
        return ask.summary.anchor
    return max((item.place for item in draft.kept if item.kind == "summary"), default=0)


def _shrunk_reserve(ask: CompileInput, draft: Draft, standing: ChannelState) -> int:
    """Return the reserve if it had to shrink for this epoch, else 0. Later requests of the epoch do not exceed it."""
    if draft.kept is None:
        return standing.reserve
    return draft.budget.reserve if draft.budget.reserve < ask.terms.budget.reserve else 0
