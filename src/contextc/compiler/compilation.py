"""One compilation: from what the store says to a compiled request. It reads, decides, and writes nothing."""

from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import NamedTuple, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from contextc._json import JSONObject, canonical
from contextc.compiler.assembly import Assembled, Fetch, assemble, chained
from contextc.compiler.compiled import HERE, SESSION, Compiled, Cost, HeadParts
from contextc.compiler.telling import lines_of
from contextc.draft import Budget, Draft, Options
from contextc.errors import InvalidInput
from contextc.formats.base import Request
from contextc.formats.settings import Settings
from contextc.ledger.items import Item
from contextc.ledger.look import Sight
from contextc.ledger.overlays import Summary
from contextc.ledger.render import FETCH
from contextc.ledger.standing import Channel, Head, Standing
from contextc.manifest import Fragment, Line, Manifest, Record
from contextc.messages import Reasoning, Usage, system
from contextc.models import cost as price_of
from contextc.passes import PASSES
from contextc.prompts import Prompt
from contextc.providers import Provider
from contextc.store.places import SEQ_MASK
from contextc.tokens import Counter
from contextc.tools import NativeTool, Tool

AnyTool: TypeAlias = Tool | NativeTool

OUTPUT, LONGEST_OUTPUT = 8_000, 32_000
SMALL_WINDOW, MARGIN = 1_024, 256
FIRST, NEW_ENCODER = "first request", "new encoder version"
HEADS_KEPT = 64


class Tools(NamedTuple):
    """The tools of a request: ours with the one that fetches results, as they are sent, their hash and their tokens."""

    tools: tuple[AnyTool, ...]
    hash: str
    tokens: int
    given: tuple[AnyTool, ...]
    """As the caller gave them."""
    marks: int = 0
    """How many cache points they came with."""


class Ask(Struct, frozen=True, kw_only=True):
    """What a caller asks for, with what the store says about it."""

    provider: Provider
    counter: Counter
    options: Options
    channel: Channel
    prompt: Prompt
    tools: Tools
    system_tokens: int
    settings: JSONObject = {}
    budget: int | None = None
    output: int | None = None
    run: str | None = None
    running: frozenset[str] | None = None
    runs: str = ""
    sight: Sight
    summary: Summary | None = None
    counts: Mapping[int, int] = {}
    factor: float = 1.0
    fetch: Fetch
    heads: dict[object, HeadParts]
    again: bool = False
    dry_run: bool = False
    left_before: Callable[[Sight], dict[int, str]] = lambda _: {}
    """What requests before this one left out, by place."""
    elsewhere: Standing | None = None
    """Where the channel stands that this agent's conversation went to last, if nothing was shown on this one yet."""


def compiled_from(ask: Ask) -> Compiled:
    sight = ask.sight
    standing = sight.standing
    why, resume, revert = _session(ask)
    if standing.requests and not standing.layout and standing.lost:
        why = standing.lost
    changed, compacted = -1, False
    head = _head_hashes(ask, standing)
    if standing.requests or standing.layout:
        broken = _broken(ask, standing.head, head, resume)
        compacted = _is_newer(ask.summary, standing)
        why = why or sight.why or broken or ("compaction" if compacted else "")
        changed = 0 if broken in ("system prompt changed", "tools changed", NEW_ENCODER) else -1
    else:
        compacted = _is_newer(ask.summary, standing)
        why = why or FIRST
    resume = resume and not why
    draft = _draft(ask, why=why, resume=resume, changed=changed, compacted=compacted)
    passed = _passed(draft)
    if resume and passed.epoch:  # it cannot be extended after all, so the whole context goes into a new session
        why, resume, revert = passed.epoch, False, None
        passed = _passed(_draft(ask, why=why, resume=False, changed=-1, compacted=compacted))
    return _compiled(ask, passed, head, resume=resume, revert=revert)


def _session(ask: Ask) -> tuple[str, bool, str | None]:
    """Why a stateful provider needs a new session, whether one is resumed, and where it must go back to first."""
    provider, sight = ask.provider, ask.sight
    if not provider.session_resumption:
        return "", False, None
    session = sight.standing.session
    if session is None:
        shown = sight.standing.requests or sight.standing.layout
        return (sight.standing.lost or "no session" if shown else ""), False, None
    if sight.attempt is None:
        return "", True, None
    if provider.reverts:
        return "", True, session.cursor or session.id
    return "an earlier prompt may be in the session", False, None


def _broken(ask: Ask, old: Head, new: Head, resume: bool) -> str:
    """Why the prefix cannot stay as it was; empty where it can."""
    if new.encoder != old.encoder:
        return NEW_ENCODER
    keeps = resume and (ask.provider.resends_head or ask.provider.keeps_static)
    if new.static != old.static and not (keeps and ask.options.static_change == "update"):
        return "system prompt changed"
    if new.tools != old.tools and not (resume and ask.provider.resends_head):
        return "tools changed"
    if new.settings != old.settings and not resume:
        return "reasoning settings changed"
    return ""


def _head_hashes(ask: Ask, standing: Standing) -> Head:
    formatter = ask.provider.formatter
    counted = {name: ask.settings[name] for name in formatter.prefix_settings if name in ask.settings}
    static = ask.prompt.static_hash if ask.prompt.static else ""
    if ask.options.placement == "head" and ask.prompt.dynamic:
        static += blake2b(ask.prompt.dynamic_text.encode(), digest_size=8).hexdigest()
    return Head(
        static=static,
        tools=ask.tools.hash,
        settings=blake2b(canonical(counted), digest_size=8).hexdigest() if counted else "",
        encoder=_encoder(ask),
    )


def _encoder(ask: Ask) -> str:
    formatter = ask.provider.formatter
    return f"{formatter.name}/{formatter.version}"


def _is_newer(summary: Summary | None, standing: Standing) -> bool:
    return summary is not None and summary.anchor & SEQ_MASK > standing.summary & SEQ_MASK


def _draft(ask: Ask, *, why: str, resume: bool, changed: int, compacted: bool) -> Draft:
    sight, provider = ask.sight, ask.provider
    kept = sight.kept
    if why and kept is None:
        kept = tuple([item for each in sight.shown.sealed for item in each.row.items])
    standing = sight.standing
    if why:
        standing = replace(standing, epoch=standing.epoch + 1, input=0)
    return Draft(
        provider=provider,
        counter=ask.counter,
        options=ask.options,
        agent=ask.channel.agent,
        run=ask.run,
        running=ask.running,
        audiences=frozenset((ask.channel.agent, f"{provider.name}:{provider.asks_for}", str(ask.channel))),
        resume=resume,
        prompt=ask.prompt,
        fetchable=any(isinstance(tool, Tool) and tool.name == FETCH.name for tool in ask.tools.tools),
        sealed=sight.shown.sealed,
        standing=standing,
        log=sight.log,
        unread=sight.unread,
        late=sight.late,
        counts=ask.counts,
        unanswered=sight.unanswered,
        pins=sight.pins,
        summary=ask.summary,
        compacted=compacted,
        points=provider.model.cache_points - ask.tools.marks - provider.formatter.marks_in([ask.settings]),
        anew=standing.head.encoder not in ("", _encoder(ask)),
        factor=ask.factor,
        budget=_budget(ask) if why else _epochs_budget(ask),
        epoch=why,
        kept=kept,
        changed=changed,
    )


def _budget(ask: Ask) -> Budget:
    model = ask.provider.model
    window = model.window
    wanted = ask.output if ask.output is not None else min(model.output, OUTPUT)
    reserve = min(wanted, LONGEST_OUTPUT, window // 2)
    if ask.options.policy == "seed_b":
        reserve = min(ask.output or model.output, window)
    margin = max(MARGIN, window // 100) if window > SMALL_WINDOW and ask.options.policy != "seed_b" else 0
    limit = None
    if ask.budget is not None:
        if ask.budget <= 0:
            raise InvalidInput(f"budget={ask.budget}: give the tokens the whole input may take.")
        limit, reserve, margin = min(ask.budget, window), 0, 0
    return Budget(
        window=window,
        system=ask.system_tokens + (ask.counter.settings(ask.settings) if ask.settings else 0),
        tools=ask.tools.tokens,
        reserve=reserve,
        margin=margin,
        limit=limit,
        exact=ask.counter.exact,
    )


def _epochs_budget(ask: Ask) -> Budget:
    budget, shrunk = _budget(ask), ask.sight.standing.reserve
    return replace(budget, reserve=min(budget.reserve, shrunk)) if shrunk else budget


def _passed(draft: Draft) -> Draft:
    for each in PASSES:
        draft = each(draft)
    return draft


def _compiled(ask: Ask, draft: Draft, hashes: Head, *, resume: bool, revert: str | None) -> Compiled:
    sight, provider = ask.sight, ask.provider
    session_id = (sight.standing.session.id if sight.standing.session else None) if resume else None
    head = _head(ask, hashes, draft.budget, resume=resume, marked="head" in draft.marks)
    assembled = assemble(draft, sight.shown.used, head.settings, ask.fetch)
    standing = _standing(ask, draft, hashes, assembled)
    is_new = bool(draft.new) or ask.again or sight.standing.again or _is_unanswered(draft)
    if resume and not any(row.chunk for row in assembled.new):
        is_new = False  # an empty delta is never sent
    shared, shared_bytes, lost = _shared(sight, draft, assembled, hashes)
    signed = sum([item.signed and item.bare for item in draft.kept or ()]) - sum(
        [item.bare for each in sight.shown.sealed for item in each.row.items] if draft.kept is not None else []
    )
    fragments = _fragments(ask, draft)
    record = Record(
        request=sight.standing.requests + 1,
        mode="resume" if resume else "full",
        epoch=standing.epoch,
        why=draft.epoch,
        rows=sight.standing.rows + len(assembled.new),
        layout=() if assembled.order is not None else None,
        head=head.hash.hex(),
        chain=standing.chain,
        marks=draft.marks,
        added=len(assembled.new) if assembled.order is None else len(assembled.order),
        session=session_id or "",
        new=draft.new,
        fragments=tuple(fragments()) if draft.epoch else (),
        left=draft.left,
        remarks=(
            *draft.remarks,
            *(f"skipped the log up to message {draft.unread}: it does not fit" for _ in range(bool(draft.unread))),
            *(warning.message for warning in ask.prompt.warnings),
            *dict.fromkeys(str(note) for note in assembled.notes),
        ),
        budget=draft.budget,
        shared=min(shared, draft.budget.input),
        shared_bytes=shared_bytes,
        signed_lost=max(0, signed),
        branch=sight.at.branch,
        tip=sight.at.seq,
    )
    if ask.elsewhere is not None:  # nothing was shown here yet: what another channel holds is of no use
        lost, signed = ask.elsewhere.above + ask.elsewhere.tokens, _not_taken_along(ask)
    price = price_of(provider.model, Usage(input=lost, cache_write=lost)) if lost else 0.0
    return Compiled(
        channel=ask.channel,
        provider=provider,
        draft=draft,
        sight=sight,
        standing=standing,
        assembled=assembled,
        head=head,
        record=record,
        manifest=Manifest(ask.channel, record, lambda: _lines(ask, draft), fragments),
        session_id=session_id,
        revert=revert if resume else None,
        cost=Cost(lost, shared, max(0, signed), price),
        dry_run=ask.dry_run,
        is_new=is_new,
        estimated=draft.budget.system
        + draft.budget.tools
        + (standing.tokens if draft.kept is None else sum([item.tokens for item in draft.kept])),
        tools=ask.tools.tools,
    )


def _not_taken_along(ask: Ask) -> int:
    """How many messages have signed reasoning of somebody else's."""
    own = ask.provider.formatter.provider
    signed = [
        {part.provider for part in message.parts if type(part) is Reasoning and (part.signature or part.data)}
        for _, message in ask.sight.log
    ]
    return sum(bool(providers - {own}) for providers in signed)


def _is_unanswered(draft: Draft) -> bool:
    """Whether an epoch begins with words that wait for an answer: the one they had was branched away."""
    said = (item for item in reversed(draft.kept or ()) if item.kind in ("message", "late"))
    last = next(said, None)
    return last is not None and last.role != "assistant"


def _standing(ask: Ask, draft: Draft, hashes: Head, assembled: Assembled) -> Standing:
    """Where the channel will stand, once this is committed."""
    standing, sight = draft.standing, ask.sight
    epoch = standing.epoch
    if draft.epoch and not sight.why and epoch == sight.standing.epoch:
        epoch += 1
    if assembled.order is None:
        chunks = [row.chunk for row in assembled.new]
        chain, size = chained(standing.chain, chunks), standing.size + sum([len(chunk) for chunk in chunks])
        tokens = standing.tokens + sum([row.row.tokens for row in assembled.new])
    else:
        rows = [
            assembled.new[each][:2] if isinstance(each, int) else (each.row, each.chunk) for each in assembled.order
        ]
        chain = chained("", [chunk for _, chunk in rows])
        size, tokens = sum([len(chunk) for _, chunk in rows]), sum([row.tokens for row, _ in rows])
    return replace(
        standing,
        epoch=epoch,
        head=hashes,
        tools=tuple([tool_name(tool) for tool in ask.tools.tools]),
        chain=chain,
        size=size,
        above=draft.budget.system + draft.budget.tools,
        tokens=tokens,
        seen=sight.at.seq,
        runs=ask.runs,
        summary=_summed_up(ask, draft, standing),
        reserve=_shrunk(ask, draft, standing),
        input=0,
    )


def _summed_up(ask: Ask, draft: Draft, standing: Standing) -> int:
    """The place up to which a summary was shown, or was looked at and found not worth it."""
    if draft.kept is None:
        return standing.summary
    if draft.compacted and ask.summary is not None:
        return ask.summary.anchor
    return max((item.place for item in draft.kept if item.kind == "summary"), default=0)


def _shrunk(ask: Ask, draft: Draft, standing: Standing) -> int:
    """The reserve, where it had to shrink for this epoch: as long as that lasts, no more is asked for."""
    if draft.kept is None:
        return standing.reserve
    return draft.budget.reserve if draft.budget.reserve < _budget(ask).reserve else 0


def tool_name(tool: AnyTool) -> str:
    return tool.name if isinstance(tool, Tool) else str(tool.data.get("name") or tool.data.get("type") or "")


def _head(ask: Ask, hashes: Head, budget: Budget, *, resume: bool, marked: bool) -> HeadParts:
    """What stands around the messages: made once for as long as nothing in it changes."""
    formatter, output = ask.provider.formatter, ask.output
    bare = resume and not ask.provider.resends_head
    length = None
    if output is not None:  # what was asked for, as long as the window has room for it
        length = output if budget.input + output <= budget.window else budget.reserve or output
    elif formatter.needs_length:
        length = budget.reserve or min(ask.provider.model.output, OUTPUT)
    given = canonical(ask.settings) if ask.settings else b""
    key = ("", "") if bare else (hashes.static, hashes.tools)
    found = ask.heads.get((*key, length, given, resume, marked))
    if found is None:
        text = "" if bare else _static(ask)
        tools = () if bare else ask.tools.tools
        settings = formatter.settings.write(Settings(model=ask.provider.asks_for, max_output_tokens=length)).body
        if resume and ask.provider.session_field:
            settings[ask.provider.session_field] = SESSION
        settings = _over(settings, ask.settings)
        request = Request(messages=(), system=system(text) if text else None, tools=tools, settings=settings)
        request = replace(request, settings=formatter.chosen(request))
        body = formatter.assemble(request, [HERE])
        if marked:
            body = formatter.marked_head(body)
        if len(ask.heads) >= HEADS_KEPT:
            ask.heads.clear()
        found = ask.heads[(*key, length, given, resume, marked)] = HeadParts.of(formatter.messages_key, body, settings)
    return found


def _over(ours: JSONObject, theirs: JSONObject) -> JSONObject:
    """Our settings with the caller's, which win; also inside an object that both speak of."""
    both: JSONObject = {**ours, **theirs}
    for name in ours.keys() & theirs.keys():
        if isinstance(ours[name], dict) and isinstance(theirs[name], dict):
            both[name] = {**ours[name], **theirs[name]}
    return both


def _static(ask: Ask) -> str:
    text = ask.prompt.static_text
    if ask.options.placement == "head" and ask.prompt.dynamic:
        text = f"{text}\n\n{ask.prompt.dynamic_text}" if text else ask.prompt.dynamic_text
    return text


def _shared(sight: Sight, draft: Draft, assembled: Assembled, hashes: Head) -> tuple[int, int, int]:
    """Tokens and bytes of the prefix that the request before had too, and the tokens of it that are lost."""
    before = sight.shown.standing
    if not before.requests and not before.layout:
        return 0, 0, 0
    old = before.head
    head = draft.budget.system + draft.budget.tools if (old.static, old.tools) == (hashes.static, hashes.tools) else 0
    total = before.above + before.tokens
    if assembled.order is None:
        return head + before.tokens, before.size, max(0, total - head - before.tokens)
    tokens = size = 0
    if head or not (old.static or old.tools):
        for each, mine in zip(assembled.order, sight.shown.sealed, strict=False):
            if each is not mine:
                break
            tokens, size = tokens + mine.row.tokens, size + len(mine.chunk)
    return head + tokens, size, max(0, total - head - tokens)


def _fragments(ask: Ask, draft: Draft) -> Callable[[], Sequence[Fragment]]:
    def read() -> list[Fragment]:
        shown = any(entry.item.kind == "dynamic" for entry in draft.tail) or ask.options.placement == "head"
        static = not draft.resume or ask.provider.resends_head
        return [
            Fragment(
                id=each.id,
                lifecycle=each.lifecycle,
                shown=static if each.lifecycle == "static" else shown,
                hash=each.hash,
                tokens=ask.counter.text(each.text),
            )
            for each in (*ask.prompt.static, *ask.prompt.dynamic)
        ]

    return read


def _lines(ask: Ask, draft: Draft) -> list[Line]:
    items: list[Item]
    if draft.kept is not None:
        items = list(draft.kept)
    else:
        items = [item for each in draft.sealed for item in each.row.items] + [entry.item for entry in draft.tail]
    left = ask.left_before(ask.sight) | {each.place: each.why for each in draft.left}
    return lines_of(items, left, lambda places: ask.fetch(places, ()).messages, dict(draft.log))
