"""The account of a request that was just compiled, made when somebody asks: its record, its manifest, what it costs.

And what the lines of any manifest say: every message and inserted text, shown or not, as what, and why.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from contextc.compiler.ask import Ask
from contextc.compiler.assembly import Assembled
from contextc.compiler.compiled import Account, Cost, HeadParts
from contextc.draft import Draft
from contextc.ledger.items import Item
from contextc.ledger.look import Sight
from contextc.ledger.standing import Head, Standing
from contextc.manifest import Fragment, Line, Manifest, Record
from contextc.messages import Message, Reasoning, Usage
from contextc.models import cost as price_of
from contextc.store.places import SEQ_MASK

REVERTED = "the session goes back to where it stood: the request before this one came to nothing ({why})"


def account_of(
    ask: Ask, draft: Draft, standing: Standing, assembled: Assembled, head: HeadParts, session: str
) -> Account:
    """The account of a request. `standing` is where the channel stands once it is committed."""
    sight = ask.sight
    shared, shared_bytes, lost = _shared(sight, draft, assembled, standing.head)
    signed = 0
    if draft.kept is not None:
        signed = sum([item.signed and item.bare for item in draft.kept]) - sum(
            [item.bare for each in sight.shown.sealed for item in each.row.items]
        )
    fragments = _fragments(ask, draft)
    first = not sight.standing.requests  # a fork's begins with rows of its parent's, and no epoch
    record = Record(
        request=sight.standing.requests + 1,
        mode="resume" if draft.resume else "full",
        epoch=standing.epoch,
        why=draft.epoch,
        rows=sight.standing.rows + len(assembled.new),
        layout=() if assembled.order is not None or first else None,
        head=head.hash.hex(),
        chain=standing.chain,
        marks=draft.marks,
        added=len(assembled.new) if assembled.order is None else len(assembled.order),
        session=session,
        new=draft.new,
        fragments=tuple(fragments()) if draft.epoch or first else (),
        left=draft.left,
        remarks=_remarks(ask, draft, assembled),
        budget=draft.budget,
        shared=min(shared, draft.budget.input),
        shared_bytes=shared_bytes,
        signed_lost=max(0, signed),
        branch=sight.at.branch,
        tip=sight.at.seq,
    )
    if ask.elsewhere is not None:  # nothing was shown here yet: what another channel holds is of no use
        lost, signed = ask.elsewhere.above + ask.elsewhere.tokens, _not_taken_along(ask)
    price = price_of(ask.provider.model, Usage(input=lost, cache_write=lost)) if lost else 0.0
    manifest = Manifest(ask.channel, record, lambda: _lines(ask, draft), fragments)
    return Account(record, manifest, Cost(lost, shared, max(0, signed), price))


def _remarks(ask: Ask, draft: Draft, assembled: Assembled) -> tuple[str, ...]:
    warnings = ask.terms.prompt.warnings
    failed = ask.sight.attempt if draft.resume else None
    if not (draft.remarks or draft.unread or warnings or assembled.notes or failed):
        return ()
    return (
        *((REVERTED.format(why=failed.error or "it was interrupted"),) if failed else ()),
        *draft.remarks,
        *(f"skipped the log up to message {draft.unread}: it does not fit" for _ in range(bool(draft.unread))),
        *(warning.message for warning in warnings),
        *dict.fromkeys(str(note) for note in assembled.notes),
    )


def _not_taken_along(ask: Ask) -> int:
    """How many messages have signed reasoning of somebody else's."""
    own = ask.provider.formatter.provider
    signed = [
        {part.provider for part in message.parts if type(part) is Reasoning and (part.signature or part.data)}
        for _, message in ask.sight.log
    ]
    return sum(bool(providers - {own}) for providers in signed)


def _shared(sight: Sight, draft: Draft, assembled: Assembled, head: Head) -> tuple[int, int, int]:
    """Tokens and bytes of the prefix that the request before had too, and the tokens of it that are lost."""
    before = sight.shown.standing
    if not before.requests and not before.layout:
        return 0, 0, 0
    old = before.head
    above = draft.budget.system + draft.budget.tools if (old.static, old.tools) == (head.static, head.tools) else 0
    total = before.above + before.tokens
    if assembled.order is None:
        return above + before.tokens, before.size, max(0, total - above - before.tokens)
    tokens = size = 0
    if above or not (old.static or old.tools):
        for each, mine in zip(assembled.order, sight.shown.sealed, strict=False):
            if each is not mine:
                break
            tokens, size = tokens + mine.row.tokens, size + len(mine.chunk)
    return above + tokens, size, max(0, total - above - tokens)


def _fragments(ask: Ask, draft: Draft) -> Callable[[], Sequence[Fragment]]:
    def read() -> list[Fragment]:
        shown = {entry.item.fragment for entry in draft.tail}
        at_head = ask.options.placement == "head"
        static = not draft.resume or ask.provider.resends_head
        return [
            Fragment(
                id=each.id,
                lifecycle=each.lifecycle,
                shown=static if each.lifecycle == "static" else at_head or each.id in shown,
                hash=each.hash,
                tokens=ask.counter.text(each.text),
            )
            for each in (*ask.terms.prompt.static, *ask.terms.prompt.dynamic)
        ]

    return read


def _lines(ask: Ask, draft: Draft) -> list[Line]:
    items: list[Item]
    if draft.kept is not None:
        items = list(draft.kept)
    else:
        items = [item for each in draft.sealed for item in each.row.items] + [entry.item for entry in draft.tail]
    left = ask.left_before(ask.sight) | {each.place: each.why for each in draft.left}
    held = sum([len(each.row.items) for each in draft.sealed]) if draft.resume else 0
    produced = [item.place for item in draft.standing.produced] if draft.resume else ()
    return lines_of(items, left, lambda places: ask.fetch(places, ()).messages, dict(draft.log), held, produced)


def lines_of(
    items: Iterable[Item],
    left: Mapping[int, str],
    read: Callable[[Sequence[int]], Mapping[int, Message]],
    known: Mapping[int, Message] = {},
    held: int = 0,
    produced: Collection[int] = (),
) -> list[Line]:
    """Everything shown, then what was not, with the words of each.

    A session held the first `held` items before this request, and what it produced itself, by place.
    """
    items = list(items)
    places = {item.place for item in items}
    hidden = sorted([where for where in left if where not in places], key=lambda where: where & SEQ_MASK)
    wanted = [*(where for where in places if where), *hidden]
    messages = {**read([where for where in dict.fromkeys(wanted) if where not in known]), **known}
    lines = [
        Line(
            seq=item.place & SEQ_MASK,
            kind=item.kind,
            role=item.role,
            shown=True,
            sent=index >= held and item.place not in produced,
            tokens=item.tokens,
            why=_how(item),
            text=words(messages.get(item.place)) if item.kind == "message" else item.text,
        )
        for index, item in enumerate(items)
    ]
    lines += [
        Line(
            seq=where & SEQ_MASK,
            kind="message",
            role=messages[where].role if where in messages else "",
            shown=False,
            sent=False,
            why=left[where],
            text=words(messages.get(where)),
        )
        for where in hidden
    ]
    return lines


def _how(item: Item) -> str:
    """What is not as it was said."""
    notes = [
        f"as {item.prefix.strip()}" if item.prefix else "",
        "result left out, can be fetched" if item.decayed else "",
        "shortened" if item.limit else "",
        "without its reasoning" if item.bare else "",
        "reasoning joined in" if item.inline else "",
        "broke off" if item.failed else "",
        "media described" if item.blind else "",
    ]
    return ", ".join(note for note in notes if note)


def words(message: Message | None) -> str:
    """What a message says, in short."""
    if message is None:
        return ""
    if message.redacted:
        return "[removed]"
    calls = [f"calls {call.name}({', '.join(call.arguments)})" for call in message.tool_calls]
    results = [f"{result.name}: {result.text[:200]}" for result in message.tool_results]
    return " ".join([message.text[:200], *calls, *results]).strip()
