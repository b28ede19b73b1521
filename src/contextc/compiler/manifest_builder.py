"""Build the record, the manifest and the cost of a compiled request on demand, and the lines of any manifest.

A line describes one message or inserted text: whether it was sent, in which form, and why. It has the text as the model
read it, beside the stored text. A result may have been sent as a stub or shortened, a user message escaped, a reply
without its reasoning, old messages as a summary. Everything that displays a request takes its texts from here.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from contextc.compiler.compiled import Cost, HeadParts, RequestAccount
from contextc.compiler.draft import Draft
from contextc.compiler.history_tools import FETCH_TOOL
from contextc.compiler.ledger.channel_loader import ChannelSnapshot
from contextc.compiler.ledger.row_encoding import AssembledRows, render_item
from contextc.compiler.manifest import Fragment, Manifest, ManifestLine, RequestRecord
from contextc.compiler.options import distribute
from contextc.compiler.request_head import CompileInput
from contextc.messages import Message, Reasoning, Usage
from contextc.messages.message import to_plain_text
from contextc.models import cost as price_of
from contextc.store.ledger_schema import ChannelState, Item
from contextc.store.message_rows import SEQ_MASK

_FETCH = FETCH_TOOL.name.encode()


class SentItem(NamedTuple):
    """One item: the message that the model read, and the stored message it was rendered from.

    `original` is None if the two are equal, or if the item has no stored message. `text` and `original_text` are both
    as plain text.
    """

    message: Message
    original: Message | None

    @property
    def text(self) -> str:
        return to_plain_text(self.message)

    @property
    def original_text(self) -> str:
        return to_plain_text(self.original)


def render_sent(item: Item, message: Message | None, *, fetchable: bool = True) -> SentItem:
    """Return what a model read for an item. `fetchable`: the request had the tool `fetch_result`."""
    if message is not None and item.kind == "message" and message.redacted:
        return SentItem(message, None)
    shown = render_item(item, message, fetchable=fetchable)
    is_same = message is None or item.kind != "message" or shown.parts == message.parts
    return SentItem(shown, None if is_same else message)


def render_sent_items(
    items: Iterable[Item], messages: Mapping[int, Message], *, fetchable: bool = True
) -> list[tuple[Item, SentItem]]:
    """Return every item of a request with what the model read for it. `messages` are the stored messages by place."""
    return [(item, render_sent(item, messages.get(item.place), fetchable=fetchable)) for item in items]


def offers_fetch(head: bytes | None) -> bool:
    """Return True if a request with this head has the tool `fetch_result`. A missing head counts as True."""
    return head is None or _FETCH in head


REVERTED_REMARK = "the session goes back to where it stood: the request before this one came to nothing ({why})"


def build_account(
    ask: CompileInput, draft: Draft, standing: ChannelState, assembled: AssembledRows, head: HeadParts, session: str
) -> RequestAccount:
    """Build the account of a request. `standing` is the state of the channel after its commit."""
    sight = ask.snapshot
    shared, shared_bytes, lost = _shared(sight, assembled, standing)
    whole = standing.above + (standing.tokens if draft.kept is None else sum([item.tokens for item in draft.kept]))
    signed = 0
    if draft.kept is not None:
        signed = sum([item.signed and item.bare for item in draft.kept]) - sum(
            [item.bare for each in sight.cached.rows for item in each.row.items]
        )
    fragments = _fragments(ask, draft)
    # a fork begins with rows of its parent, and a session whose cursor was set with none, without a new epoch
    first = not sight.state.requests or bool(sight.state.held)
    record = RequestRecord(
        request=sight.state.requests + 1,
        mode="resume" if draft.resume else "full",
        epoch=standing.epoch,
        why=draft.epoch,
        rows=sight.state.rows + len(assembled.new_rows),
        layout=() if assembled.order is not None or first else None,
        head=head.hash.hex(),
        chain=standing.chain,
        marks=draft.marks,
        added=len(assembled.new_rows) if assembled.order is None else len(assembled.order),
        session=session,
        held=sight.state.held if draft.resume else 0,
        new=draft.new,
        fragments=tuple(fragments()) if draft.epoch or first else (),
        left=draft.left,
        skipped=_skipped(sight),
        remarks=_remarks(ask, draft, assembled),
        budget=draft.budget,
        shared=min(draft.budget.input, shared * draft.budget.input // whole if whole else 0),
        shared_bytes=shared_bytes,
        signed_lost=max(0, signed),
        branch=sight.tip.branch,
        tip=sight.tip.seq,
    )
    if ask.other_channel_state is not None:  # the first request here: another channel's cache is lost
        lost, signed = ask.other_channel_state.above + ask.other_channel_state.tokens, _count_foreign_reasoning(ask)
    price = price_of(ask.provider.model, Usage(input=lost, cache_write=lost)) if lost else 0.0
    manifest = Manifest(ask.channel, record, lambda: _lines(ask, draft, draft.budget.messages), fragments)
    return RequestAccount(record, manifest, Cost(lost, shared, max(0, signed), price))


def _remarks(ask: CompileInput, draft: Draft, assembled: AssembledRows) -> tuple[str, ...]:
    warnings = ask.terms.prompt.warnings
    failed = ask.snapshot.attempt if draft.resume else None
    if not (draft.remarks or draft.unread_until or warnings or assembled.notes or failed):
        return ()
    return (
        *((REVERTED_REMARK.format(why=failed.error or "it was interrupted"),) if failed else ()),
        *draft.remarks,
        *(
            f"skipped the log up to message {draft.unread_until}: it does not fit"
            for _ in range(bool(draft.unread_until))
        ),
        *(warning.message for warning in warnings),
        *dict.fromkeys(str(note) for note in assembled.notes),
    )


def _count_foreign_reasoning(ask: CompileInput) -> int:
    """Return the number of messages with signed reasoning of another provider."""
    own = ask.provider.formatter.provider
    signed = [
        {part.provider for part in message.parts if type(part) is Reasoning and (part.signature or part.data)}
        for _, message in ask.snapshot.log
    ]
    return sum(bool(providers - {own}) for providers in signed)


def _skipped(sight: ChannelSnapshot) -> int:
    """Return the number of messages that were not read, because they are too far back to fit."""
    if not sight.unread_until:
        return 0
    read = {where for where, _ in sight.log} | set(sight.leading)
    return max(
        0, sight.unread_until - sight.state.seen - sum([where & SEQ_MASK <= sight.unread_until for where in read])
    )


def _shared(sight: ChannelSnapshot, assembled: AssembledRows, standing: ChannelState) -> tuple[int, int, int]:
    """Return the tokens and the bytes of the prefix that the previous request had too, and the lost tokens, by our own
    count.
    """
    before, head = sight.cached.standing, standing.head
    if not before.requests and not before.layout:
        return 0, 0, 0
    old = before.head
    above = standing.above if (old.static, old.tools) == (head.static, head.tools) else 0
    total = before.above + before.tokens
    if assembled.order is None:
        return above + before.tokens, before.size, max(0, total - above - before.tokens)
    tokens = size = 0
    if above or not (old.static or old.tools):
        for each, mine in zip(assembled.order, sight.cached.rows, strict=False):
            if each is not mine:
                break
            tokens, size = tokens + mine.row.tokens, size + len(mine.chunk)
    return above + tokens, size, max(0, total - above - tokens)


def _fragments(ask: CompileInput, draft: Draft) -> Callable[[], Sequence[Fragment]]:
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
                tokens=ask.counter.count_text(each.text),
            )
            for each in (*ask.terms.prompt.static, *ask.terms.prompt.dynamic)
        ]

    return read


def _lines(ask: CompileInput, draft: Draft, used: int) -> list[ManifestLine]:
    items: list[Item]
    if draft.kept is not None:
        items = list(draft.kept)
    else:
        items = [item for each in draft.rows for item in each.row.items] + [entry.item for entry in draft.tail]
    left = {**ask.load_left_out(ask.snapshot, items), **{each.place: each.why for each in draft.left}}
    held = sum([len(each.row.items) for each in draft.rows]) if draft.resume else 0
    produced = draft.held_places if draft.resume else ()
    return build_lines(
        items,
        left,
        lambda places: ask.fetch(places, ()).messages,
        dict(draft.log),
        held=held,
        produced=produced,
        used=used,
        fetchable=draft.fetchable,
    )


def build_lines(
    items: Iterable[Item],
    left_out: Mapping[int, str],
    load_messages: Callable[[Sequence[int]], Mapping[int, Message]],
    known: Mapping[int, Message] = {},
    *,
    held: int = 0,
    produced: Collection[int] = (),
    used: int | None = None,
    fetchable: bool = True,
) -> list[ManifestLine]:
    """Return the lines of all items as the model read them, then those of what was left out.

    `used` is the total of the items' tokens, distributed over the lines; without it, lines have our own count. The
    first `held` items, and those at the places in `produced`, were in the session before this request.
    """
    items = list(items)
    places = find_included_places(items)
    hidden = sorted([where for where in left_out if where not in places], key=lambda where: where & SEQ_MASK)
    wanted = [*(item.place for item in items if item.place), *hidden]
    messages = {**load_messages([where for where in dict.fromkeys(wanted) if where not in known]), **known}
    counted = [item.tokens for item in items]
    tokens = counted if used is None else distribute(used, counted)
    lines = [
        replace(build_included_line(item, sent, taken), sent=index >= held and item.place not in produced)
        for index, ((item, sent), taken) in enumerate(
            zip(render_sent_items(items, messages, fetchable=fetchable), tokens, strict=True)
        )
    ]
    return lines + [build_left_out_line(where, messages.get(where), left_out[where]) for where in hidden]


def find_included_places(items: Iterable[Item]) -> set[int]:
    """Return the places of the messages that are sent. A summary is excluded: its place is that of a message it
    replaces.
    """
    return {item.place for item in items if item.kind != "summary"}


def build_included_line(item: Item, sent: SentItem, tokens: int) -> ManifestLine:
    return ManifestLine(
        seq=item.place & SEQ_MASK,
        kind=item.kind,
        role=item.role,
        shown=True,
        tokens=tokens,
        why=_describe_changes(item),
        text=sent.text,
        original=sent.original_text,
    )


def build_left_out_line(where: int, message: Message | None, why: str) -> ManifestLine:
    return ManifestLine(
        seq=where & SEQ_MASK,
        kind="message",
        role=message.role if message is not None else "",
        shown=False,
        sent=False,
        why=why,
        text=to_plain_text(message),
    )


def is_reduced(item: Item) -> bool:
    """Return True if a result is a stub, or shortened to its head and tail."""
    return item.decayed or bool(item.limit) or item.calls == "short"


REDUCED_CALLS = ("calls without arguments", "only its id, can be fetched")
"""How a call and its result are sent as the shortest valid pair."""


def _describe_changes(item: Item) -> str:
    """Return how an item differs from its stored message."""
    notes = [
        f"as {item.prefix.strip()}" if item.prefix else "",
        "result left out, can be fetched" if item.decayed else "",
        REDUCED_CALLS[item.role == "tool"] if item.calls == "short" else "without its calls" if item.calls else "",
        "shortened" if item.limit else "",
        "without its reasoning" if item.bare else "",
        "reasoning joined in" if item.inline else "",
        "broke off" if item.failed else "",
        "media described" if item.blind else "",
    ]
    return ", ".join(note for note in notes if note)
