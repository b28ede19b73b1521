"""Keep a request within its budget. If it does not fit, begin a new epoch and trim the context there.

Trimming happens in this order: fragments of earlier turns go; old tool results are replaced by stubs; calls and stubs
become the shortest valid pair; calls and results are left out, so that only the text of a reply is left; a summary is
inserted; the same is done to recent results; whole turns are dropped (oldest first), then the oldest steps of one long
turn. So no text goes while results could, and the latest of what a summary covers stays beside it while there is room
(`keep_summarized`). What people wrote stays as a quote, and an index names what left (`kept_history.py`). It goes down
to the low mark, so that the prefix, and with it the provider's cache, is stable for many steps. Calls and results are
already grouped and are never separated. The new message, pinned messages, the latest summary and the step that waits
for an answer are never dropped. Fragments of the current turn go if it would not fit otherwise. If the rest does not
fit, results of the step that waits are shortened, the longest first; if that is not enough, nothing is sent. A message
that is too long, and was never answered, is protected only until the next one comes. A new message of a trigger is not
protected: it is left out before anything that must stay.

    Before (available 1,000)            After (low mark 700)
    user       Find the bug.     50     user       Find the bug.                        50
    assistant  calls read_file   40     assistant  calls read_file                      40
    tool       900 lines        700     tool       [left out: fetch_result r3]          48
    assistant  calls test        40     assistant  calls test                           40
    tool       2 failed         300     tool       2 failed                            300
"""

from collections.abc import Collection, Iterator, Sequence
from itertools import accumulate, groupby, pairwise, takewhile
from math import ceil
from operator import itemgetter

from msgspec import Struct
from msgspec.structs import replace

from contextc.compiler.agent_view import find_character_limit, select_visible
from contextc.compiler.draft import Budget, Draft, LeftOutMessage, render_item
from contextc.compiler.kept_history import KeptHistory, ShownTexts
from contextc.compiler.message_cache import derive
from contextc.errors import ContextOverflow
from contextc.messages import Message, Text, ToolResult
from contextc.models.tokens import estimate_next_input
from contextc.providers import Provider
from contextc.store.ledger_schema import (
    CHANGE_KINDS,
    CallForm,
    EpochReason,
    Item,
    ItemKind,
    LeftOutReason,
    StoredRow,
    find_latest_copies,
)
from contextc.store.message_log import SEQ_MASK

MIN_STUB_TOKENS = 48  # minimum tokens of a stub
EXAMPLE_STUB = (
    "[The result of some_tool, 100,000 characters, was left out to save room. Call fetch_result with id "
    '"r9999" to read it.]'
)
MIN_RESERVE = 4_000
MAX_PENDING = 32
INDEX_GROWTH = 3
"""An index grows by this part of itself from one epoch to the next."""
KEPT_KINDS: tuple[ItemKind, ...] = ("words", "index")
PINNED_KINDS: tuple[ItemKind, ...] = ("summary", "dynamic", *CHANGE_KINDS)
COVERED_REASONS = (LeftOutReason.TURN_CUT, LeftOutReason.STEP_CUT)
BRANCH_REASONS = (EpochReason.EDITED, EpochReason.FORKED)
STEPS_LEFT_OUT_TEXT = "[Earlier steps of this turn were left out to save room.]"
OLD_RESULTS_SHARE = 0.8
"""Old results go down to this share of the mark, because they can be fetched: so the next cut comes later."""
OF_EARLIER_TURNS = "left out: the fragment {!r} of earlier turns".format
DOES_NOT_FIT = "left out: the fragment {!r} of this turn, which does not fit".format
MESSAGE_LEFT_OUT_TEXT = "[A message that stood here was too long to be shown, and was left out.]"


def find_compaction(draft: Draft) -> Draft:
    """Begin an epoch if the provider has compacted the conversation itself: what its block stands for is not sent.

    Runs before fragments are inserted, because their copies before the block are gone, too. A session has the block,
    so nothing is sent again there.
    """
    items = [*(draft.kept or ()), *[entry.item for entry in draft.tail]]
    found = [index for index, item in enumerate(items) if item.compacts]
    if not found or draft.resume or draft.for_summary:
        return draft
    at = found[-1]
    if at == 0 and (draft.kept is not None or not draft.rows):
        return draft
    standing = replace(draft.standing, fragments=find_latest_copies(items[at:]))
    why = draft.epoch or EpochReason.PROVIDER_COMPACTED
    return replace(draft, compaction=items[at].place, epoch=why, standing=standing)


def fit_budget(draft: Draft) -> Draft:
    tail = sum([entry.item.tokens for entry in draft.tail])
    draft = _with_measured_tokens(draft, tail)
    if draft.resume and draft.provider.compacts_itself and not draft.unread_until:
        return draft
    too_long = draft.budget.used + draft.headroom > draft.budget.available * draft.options.high
    if too_long or draft.unread_until or draft.compacted or draft.compaction:
        return _begin_epoch(draft, draft.epoch or EpochReason.OVER_BUDGET, cut=True)
    if draft.epoch:
        return _begin_epoch(draft, draft.epoch, cut=False)
    return draft


def _with_measured_tokens(draft: Draft, tail: int) -> Draft:
    """Return the draft with the tokens of its messages."""
    before = draft.standing.tokens if draft.kept is None else sum([item.tokens for item in draft.kept])
    own = {item.place for item in draft.standing.produced}
    replayed = sum([entry.item.tokens for entry in draft.tail if entry.item.place in own])
    last = 0 if draft.epoch else draft.standing.input
    budget = replace(draft.budget, overhead=draft.standing.overhead)
    return replace(draft, budget=measure(budget, last, before, tail, replayed, draft.factor, draft.provider))


def measure(
    budget: Budget, last: int, before: int, tail: int, replayed: int, factor: float, provider: Provider
) -> Budget:
    """Return the budget with the tokens of the messages, based on `last`, the provider's own figure for the last
    request, if there is one.

    `before` and `tail` are our own counts of what was sent and what is new, `replayed` that of the last reply.
    """
    if not last:
        system, tools = int(budget.system * factor), int(budget.tools * factor)
        return replace(budget, system=system, tools=tools, used=int((before + tail) * factor) + budget.overhead)
    total = estimate_next_input(last, replayed, int((tail - replayed) * factor))
    if provider.runs_tools:
        return replace(budget, used=max(0, total - budget.system - budget.tools), measured=True)
    return replace(budget, used=before + tail + budget.overhead).with_total(total)


def _begin_epoch(draft: Draft, reason: str, *, cut: bool) -> Draft:
    shown = draft.kept if draft.kept is not None else [item for each in draft.rows for item in each.row.items]
    before = [item for each in draft.rows for item in each.row.items]
    as_it_was = _first_difference(before, shown) if reason in BRANCH_REASONS and draft.changed < 0 and not cut else 0
    items = _latest_dynamic([*shown, *(entry.item for entry in draft.tail)], as_it_was)
    if draft.options.placement == "head":
        items = [item for item in items if item.kind != "dynamic"]
    if draft.renews_head:
        items = [item for item in items if item.kind not in CHANGE_KINDS]
    left: tuple[LeftOutMessage, ...] = draft.left
    budget = draft.budget
    if cut:
        counted = sum([item.tokens for item in items])
        is_ours = counted and budget.measured and not draft.provider.runs_tools
        factor = max(draft.factor, (budget.used - budget.overhead) / counted) if is_ours else draft.factor
        room = _Trimmer(draft, items, factor)
        try:
            items = room.trim()
        except ContextOverflow:
            needed, room = room.total, _Trimmer(draft, items, factor)
            if not room.shorten_waiting_results(needed):
                raise
            items = room.trim()
        budget = replace(room.budget, wanted=room.wanted)
        left += tuple(room.left)
        gone = [(DOES_NOT_FIT if slot.pinned else OF_EARLIER_TURNS)(slot.item.fragment) for slot in room.fragments_gone]
        draft = replace(draft, remarks=(*draft.remarks, *dict.fromkeys(gone)))
    else:
        used = int(sum([item.tokens for item in items]) * draft.factor)
        budget = replace(budget, used=used + budget.overhead)
    if not as_it_was:
        items = _fewer_media(items, draft.options.keep_media)
    changed = min(_first_difference(before, items), _first_redacted(draft.rows))
    if draft.changed >= 0:
        changed = min(changed, draft.changed)
    if draft.provider.model.binds_reasoning and changed < len(before):
        bound = max(changed, _count_bound(draft, before, items))
        items = [
            replace(item, bare=True) if item.signed and index >= bound else item for index, item in enumerate(items)
        ]
    standing = replace(draft.standing, pending=_still_pending(draft, items)) if cut else draft.standing
    standing = replace(standing, fragments=find_latest_copies(items))
    if len(left) > len(draft.left) or draft.unread_until:
        standing = replace(standing, cut=True)
    return replace(draft, epoch=reason, kept=tuple(items), changed=changed, budget=budget, left=left, standing=standing)


def _count_bound(draft: Draft, before: Sequence[Item], items: Sequence[Item]) -> int:
    """Return the number of items whose reasoning stays valid because they follow the provider's own compaction."""
    if draft.epoch != EpochReason.PROVIDER_COMPACTED:
        return 0
    sent = [*before, *(entry.item for entry in draft.tail)]
    at = next((index for index, item in enumerate(sent) if item.place == draft.compaction), len(sent))
    return _first_difference(sent[at:], items)


def _still_pending(draft: Draft, kept: Sequence[Item]) -> dict[str, str]:
    """Return trimmed calls whose results may still arrive."""
    places = {item.place for item in kept}
    answered = {result.call_id for entry in draft.tail for result in entry.message.tool_results}
    opened = [(each.row.items, each.row.open) for each in draft.rows if each.row.open]
    opened += [
        ((entry.item,), {call.id: call.name for call in calls if call.id not in answered})
        for entry in draft.tail
        if (calls := entry.message.tool_calls)
    ]
    cut = [
        calls
        for items, calls in opened
        if not any([item.place in places for item in items if item.role == "assistant"])
    ]
    if not cut:
        return draft.standing.pending
    items = [*(item for each in draft.rows for item in each.row.items), *(entry.item for entry in draft.tail)]
    told = [item.text.partition("\n")[0] for item in items if item.kind == "late"]
    pending = draft.standing.pending | {name: tool for calls in cut for name, tool in calls.items()}
    pending = {name: tool for name, tool in pending.items() if not any([f"call {name}," in line for line in told])}
    return dict(list(pending.items())[-MAX_PENDING:])


def _latest_dynamic(items: Sequence[Item], as_it_was: int) -> list[Item]:
    """Return the items of a new epoch with only the latest copy of each dynamic fragment, without withdrawn ones.

    On a branch or a fork, the first `as_it_was` items are
    unchanged, so that the cache and bound reasoning stay valid.
    """
    copies = [item for item in items if item.kind == "dynamic"]
    latest = {item.fragment: item for item in copies}
    in_front = {item.fragment for item in items[:as_it_was]}

    def stays(item: Item) -> bool:
        if not item.fragment:  # a block of an older version with all fragments
            return item is copies[-1]
        return item is latest[item.fragment] and (bool(item.hash) or item.fragment in in_front)

    return [item for index, item in enumerate(items) if item.kind != "dynamic" or index < as_it_was or stays(item)]


def _fewer_media(items: list[Item], keep: int) -> list[Item]:
    """Return the items with only the most recent media. Older media are replaced by descriptions."""
    shown = [index for index, item in enumerate(items) if item.media and not item.blind]
    old = set(shown[: len(shown) - keep] if keep else shown)
    return [replace(item, blind=True) if index in old else item for index, item in enumerate(items)] if old else items


def _first_redacted(rows: Sequence[StoredRow]) -> int:
    """Return the index of the first item of a row with redacted content; the number of items if there is none."""
    return sum([len(each.row.items) for each in takewhile(lambda each: not each.row.gone, rows)])


def _first_difference(before: Sequence[Item], after: Sequence[Item]) -> int:
    for index, (old, new) in enumerate(zip(before, after, strict=False)):
        if old != new:
            return index
    return min(len(before), len(after))


def _pinned(items: Sequence[Item], pins: Collection[int]) -> list[bool]:
    """Return which items must stay: pinned ones, and with them the whole group of a call and its results."""
    turn = max([index for index, item in enumerate(items) if item.opens], default=0)
    held = [
        index
        for index, item in enumerate(items)
        if item.place in pins or item.compacts or item.kind in PINNED_KINDS or (item.kind == "turn" and index > turn)
    ]
    if not held:
        return [False] * len(items)
    groups = list(accumulate([item.role != "tool" for item in items]))
    staying = {groups[index] for index in held}
    return [group in staying for group in groups]


class _TrimSlot(Struct, gc=False):
    """One item during trimming."""

    item: Item
    pinned: bool
    gone: str = ""


def _has_text(message: Message) -> bool:
    return bool(message.text.strip())


def _may_reduce(slot: _TrimSlot) -> bool:
    item = slot.item
    return not (slot.pinned or slot.gone or item.kind != "message" or item.verbatim or item.only or item.failed)


def _may_shorten(slot: _TrimSlot) -> bool:
    item = slot.item
    return not (slot.pinned or item.kind != "message" or item.verbatim or item.decayed or item.texts)


class _Trimmer:
    """Trims items in order. It uses tokens by our count; `factor` converts them to the provider's."""

    def __init__(self, draft: Draft, items: list[Item], factor: float) -> None:
        self.draft, self.options, self.factor = draft, draft.options, factor
        self.keeps = draft.options.strategy == "chunked" and not draft.options.slides
        self.earlier = [item for item in items if item.is_kept_history]
        """The items that the previous epoch kept of messages that it did not show."""
        items = [item for item in items if not item.is_kept_history]
        self.messages = self._load_messages(items) if self.keeps else {}
        self.history = KeptHistory(draft, self.messages, factor)
        self.kept_words = 0
        """Tokens of people's words that are not shown as messages any more."""
        self.kept_index = 0
        """Tokens that the index may take."""
        self.must = 0
        self.summed_up_to = max([item.place & SEQ_MASK for item in items if item.kind == "summary"], default=0)
        """The last message that the summary covers."""
        self.slots = [_TrimSlot(item, pinned) for item, pinned in zip(items, _pinned(items, draft.pins), strict=True)]
        self.budget = draft.budget
        self.overhead = ceil(self.budget.overhead / factor)
        """The provider's overhead in tokens by our count. Trimming does not reduce it."""
        self.total = self.overhead + sum([item.tokens for item in items])
        self.wanted = draft.budget.used
        """Tokens of the messages before trimming."""
        self.left: list[LeftOutMessage] = []
        self.from_triggers = {entry.item.place for entry in draft.tail if entry.message.trigger}
        self.fragments_gone: list[_TrimSlot] = []

    def trim(self) -> list[Item]:
        self._drop_fragments_of_earlier_turns()
        self._drop_compacted()
        if self.options.slides:
            self._drop_single()
        else:
            self._set_aside()
            self.turns = self._turns()
            self.target = self._mark()
            self._reserve_for_history()
            is_chunked = self.options.strategy == "chunked"
            if self.draft.unread_until or (self.draft.compacted and not (is_chunked and self._exceeds_window())):
                self._sum_up(keep=0)
            if self._is_over():
                if is_chunked:
                    self._spare_results(self._recent())
                    self._limit_index()
                    if self.total > self.target or self.draft.compacted:
                        self._sum_up(keep=self.options.keep_summarized)
                    self._spare_results(self._staying()[0], last=True)
                self._drop_turns()
                self._drop_steps()
        kept = self._keep_history() if self.keeps else []
        self._shrink_reserve()
        self._drop_fragments([slot for slot in self.slots if slot.pinned], int(self.budget.available / self.factor))
        self.budget = replace(self.budget, used=int(self.total * self.factor), measured=False)
        if self.budget.used > self.budget.available:
            raise ContextOverflow(
                needed=self.budget.used,
                available=self.budget.available,
                window=self.budget.limit or self.budget.window,
                system=self.budget.system,
                tools=self.budget.tools,
                reserve=self.budget.reserve,
                margin=self.budget.margin,
                overhead=self.budget.overhead,
                pinned=int(sum([slot.item.tokens for slot in self.slots if slot.pinned]) * self.factor),
            )
        summary = [slot.item for slot in self.slots if not slot.gone and slot.item.kind == "summary"]
        rest = [slot.item for slot in self.slots if not slot.gone and slot.item.kind != "summary"]
        start = 0  # nothing comes before the provider's own compaction, or between its calls and their results
        if rest and rest[0].compacts:
            start = next((index for index, item in enumerate(rest) if index and item.role != "tool"), len(rest))
        return [*rest[:start], *summary, *kept, *rest[start:]]

    def _drop_compacted(self) -> None:
        """Drop what the provider's own compaction stands for."""
        if not self.draft.compaction:
            return
        for slot in self.slots:
            if slot.item.place == self.draft.compaction:
                break
            self._drop(slot, LeftOutReason.PROVIDER_COMPACTED, forced=True)
        self.slots = [slot for slot in self.slots if not slot.gone]
        self.wanted = int(self.total * self.factor) if self._exceeds_window() else 0

    def _drop_fragments_of_earlier_turns(self) -> None:
        """Drop all of them, so that the next cut comes later; with the other strategies, as many as it takes."""
        is_chunked = self.options.strategy == "chunked" and not self.options.slides
        room = 0 if is_chunked else int(self.budget.available / self.factor)
        self._drop_fragments([slot for slot in self.slots if not slot.pinned], room)
        self.slots = [slot for slot in self.slots if not slot.gone]

    def _drop_fragments(self, slots: Sequence[_TrimSlot], room: int) -> None:
        """Drop fragments of turns among the slots, oldest first, until the request has this size."""
        for slot in slots:
            if slot.item.kind == "turn" and not slot.gone and self.total > room:
                self._drop(slot, LeftOutReason.CUT, forced=True)
                self.fragments_gone.append(slot)

    def _load_messages(self, items: Sequence[Item]) -> dict[int, Message]:
        """Return the messages of items, and those that the previous epoch kept something of, by place."""
        draft = self.draft
        known = dict(draft.log) | dict(draft.revealed)
        known |= {entry.item.place: entry.message for entry in draft.tail if not entry.item.limit}  # others are whole
        wanted = dict.fromkeys([item.place for item in items if item.kind == "message"])
        wanted |= dict.fromkeys([where for item in self.earlier for where in item.places])
        missing = [where for where in wanted if where and where not in known]
        return known | dict(draft.load_messages(missing) if missing else {})

    def _keep_history(self) -> list[Item]:
        """Return what the epoch keeps of messages that it does not show, and count it."""
        self.total -= self.kept_words + self.kept_index
        whole = [slot.item for slot in self.slots if not slot.gone and slot.item.kind == "message"]
        shown = {item.place for item in whole if not (item.decayed or item.calls or item.limit)}
        left = {where for item in self.earlier for where in item.places} | {each.place for each in self.left}
        left |= {item.place for item in whole if item.decayed or item.calls or item.limit}
        summary = next((slot.item for slot in self.slots if not slot.gone and slot.item.kind == "summary"), None)
        unread = max(self.draft.unread_until, summary.place & SEQ_MASK if summary is not None else 0)
        if unread and not self.earlier and self.history.words_room + self.history.index_room:
            earlier = self.draft.load_earlier(unread, self.history.words_room)
            self.messages |= select_visible(self.draft, earlier)
            left |= earlier.keys()
        texts = ShownTexts()
        if summary is not None:
            texts.add(summary.text)
        for item in whole if self.history.index_room else ():
            message = self.messages.get(item.place)
            if message is not None and not item.decayed:
                texts.add_message(message, item)
        room = max(0, int(self.budget.available / self.factor) - self.total)
        kept = self.history.build({where for where in left if where not in shown}, texts, room, self.kept_index)
        self.total += sum([item.tokens for item in kept])
        return kept

    def _set_aside(self) -> None:
        """Of several messages that wait for one answer, drop those that do not fit beside the latest one.

        This happens before any other trimming, which would not help. Another of the messages then opens the turn.
        """
        said = {where for where, message in self.draft.log if message.role == "user"}
        start = self._turns()[-1]
        last = max([index for index, slot in enumerate(self.slots) if slot.item.role == "assistant"], default=0)
        waiting = [
            slot
            for slot in self.slots[max(start, last) :]
            if slot.item.place in said and slot.item.role == "user" and slot.item.kind == "message"
        ]
        if len(waiting) < 2:
            return
        step = [slot for slot in self.slots[last:] if slot.item.role in ("assistant", "tool")] if last > start else []
        staying = [*step, waiting[-1], *([self.slots[start]] if step else [])]
        staying += [slot for slot in self.slots if slot.pinned and not any(slot is each for each in staying)]
        room = self._max_room() - self.overhead - sum([slot.item.tokens for slot in staying])
        gone = [slot for slot in waiting[:-1] if slot.item.tokens > room and self._drop(slot, LeftOutReason.TOO_LONG)]
        if not gone:
            return
        first = next(slot for slot in waiting if not slot.gone)
        if any(slot.item.opens for slot in gone):
            first.item = replace(first.item, opens=True)
        place = next(index for index, slot in enumerate(self.slots) if slot.gone)
        self.slots = [slot for slot in self.slots if not slot.gone]
        tokens = self.draft.counter.count_message(Message(role="user", parts=(Text(MESSAGE_LEFT_OUT_TEXT),)))
        if tokens <= room - (first.item.tokens if first is not waiting[-1] else 0):
            self.slots.insert(
                place, _TrimSlot(Item(kind="notice", role="user", text=MESSAGE_LEFT_OUT_TEXT, tokens=tokens), True)
            )
            self.total += tokens

    def _mark(self) -> int:
        """Return the target of trimming."""
        last, opening = self._staying()
        staying = [
            slot.item.tokens
            for index, slot in enumerate(self.slots)
            if slot.pinned or index >= last or index == opening
        ]
        self.must = self.overhead + sum(staying)
        return self._mark_beside(self.must, int(self.budget.available / self.factor))

    def _mark_beside(self, must: int, room: int) -> int:
        """Return the target of trimming. If what must stay leaves little room above the low mark, half of the rest is
        kept.
        """
        if self.options.strategy != "chunked":
            return room
        low = int(room * self.options.low)
        return low if must < low * 3 // 4 else max(low, must + (room - must) // 2)

    def _max_room(self) -> int:
        """Return the tokens of messages that fit if the reserve shrinks as far as it may."""
        return int((self.budget.available + max(0, self.budget.reserve - MIN_RESERVE)) / self.factor)

    def shorten_waiting_results(self, needed: int) -> bool:
        """Shorten the results that wait for an answer, the longest first, because all that must stay needs so many
        tokens. Return False if that saves nothing.

        Each of them is within the limit of one result, but a step may have many.
        """
        self.turns = self._turns()
        waiting = [slot for slot in self.slots[self._staying()[0] :] if slot.item.role == "tool" and _may_shorten(slot)]
        if self.options.slides or not waiting:
            return False
        before, counter, fetchable = self.total, self.draft.counter, self.draft.fetchable
        mark = self._mark_beside(needed - sum([slot.item.tokens for slot in waiting]), self._max_room())
        target, most = before - (needed - mark), self.draft.oversized
        known = self.messages or self._load_messages([slot.item for slot in waiting])
        while self.total > target and most > MIN_STUB_TOKENS:
            most = most * 3 // 4
            for slot in waiting:
                message = known.get(slot.item.place)
                if message is None or slot.item.tokens <= most:
                    continue
                if limit := find_character_limit([result.text for result in message.tool_results], most, counter):
                    item = replace(slot.item, limit=limit)
                    tokens = counter.count_message(render_item(item, message, fetchable=fetchable))
                    if tokens < slot.item.tokens:
                        self._set_item(slot, replace(item, tokens=tokens))
        return self.total < before

    def _reserve_for_history(self) -> None:
        """Count what is kept of messages that are not shown: what was kept before, and room for the index.

        It takes at most half of what must not stay anyway. An index that was full may grow into the room that people's
        words do not need.
        """
        if self.keeps:
            self.history.limit_to((self.target - self.must) // 2)
            words, index = [sum([item.tokens for item in self.earlier if item.kind == kind]) for kind in KEPT_KINDS]
            self.kept_words = min(words, self.history.words_room)
            most = self.history.index_room + self.history.words_room - self.kept_words
            self.kept_index = min(most, max(self.history.index_room, index + index // INDEX_GROWTH))
            self.total += self.kept_words + self.kept_index

    def _limit_index(self) -> None:
        """Give back what the index may take beyond its own room, if no text has to go then."""
        over = self.total - self.target
        if 0 < over <= self.kept_index - self.history.index_room:
            self.kept_index -= over
            self.total -= over

    def _staying(self) -> tuple[int, int]:
        """Return the index of the step that waits for an answer, and of the message that opened the turn."""
        steps = self._steps()
        return steps[-1] if steps else len(self.slots) - 1, self.turns[-1]

    def _shorten(self) -> None:
        """Shorten results that are too large for this window, although they were not for an earlier one."""
        most = int(self.budget.available * self.options.oversized / self.factor)
        if most <= MIN_STUB_TOKENS:
            return
        last, opening = self._staying()
        for index, slot in enumerate(self.slots[:last]):
            if self.total <= self.target:
                return
            item = slot.item
            if item.tokens <= most or slot.pinned or index == opening:
                continue
            if item.role == "tool" and not item.decayed and item.tokens > most * max(item.results, 1):
                slot.item = replace(item, limit=most * 2, tokens=most * max(item.results, 1))
                self.total -= item.tokens - slot.item.tokens

    def _turns(self) -> list[int]:
        """Return the start of each turn. The first one includes everything before it."""
        return [0, *(index for index, slot in enumerate(self.slots) if slot.item.opens and index)]

    def _steps(self) -> list[int]:
        """Return the start of each step of the current turn."""
        start = self.turns[-1]
        return [index for index in range(start, len(self.slots)) if self.slots[index].item.role == "assistant"]

    def _spare_results(self, end: int, *, last: bool = False) -> None:
        """Make results before a slot shorter, then calls and stubs, then leave these out; at last, all calls."""
        mark = self.target
        if not last:
            self.target = int(mark * OLD_RESULTS_SHARE)
        if self.options.decay:
            self._decay(end)
        if self.total <= mark:
            self.target = mark
        self._shorten()
        if self.options.decay:
            self._reduce_calls(end)
            if last:
                self._reduce_calls(end, all_steps=True)
            if any(slot.gone and slot.item.role == "assistant" for slot in self.slots[self.turns[-1] :]):
                self._say_that_steps_left()
            self.slots = [slot for slot in self.slots if not slot.gone]
            self.turns = self._turns()
        self.target = mark

    def _recent(self) -> int:
        """Return the first slot whose results are recent."""
        steps = self._steps()
        end = steps[-1] if steps else self.turns[-1]
        recent, index = int(self.budget.available * self.options.recent / self.factor), len(self.slots)
        while index > 0 and recent > 0:
            index -= 1
            recent -= self.slots[index].item.tokens
        return min(end, index)

    def _decay(self, end: int) -> None:
        example = Message(role="tool", parts=(ToolResult(call_id="", name="some_tool", content=EXAMPLE_STUB),))
        line = max(MIN_STUB_TOKENS, self.draft.counter.count_message(example))
        for slot in self.slots[:end]:
            if self.total <= self.target:
                return
            item, tokens = slot.item, line * slot.item.results
            if item.role == "tool" and not item.decayed and not slot.pinned and item.tokens > 2 * tokens:
                slot.item = replace(item, decayed=True, limit=0, tokens=tokens)
                self.total -= item.tokens - tokens

    def _list_steps_with_results(self, end: int, *, all_steps: bool) -> list[list[_TrimSlot]]:
        """Return the steps before a slot whose calls may be sent in a shorter form: each call has its result, and a
        result was replaced by a stub, or the steps may be `all_steps`.
        """
        found: list[list[_TrimSlot]] = []
        starts = [*[index for index, slot in enumerate(self.slots) if slot.item.role != "tool"], len(self.slots)]
        for start, stop in pairwise(starts):
            if stop > end:
                break
            if stop - start == 1:
                continue
            step = self.slots[start:stop]
            if not all_steps and not any([slot.item.decayed or slot.item.calls for slot in step[1:]]):
                continue
            said = self.messages.get(step[0].item.place)
            calls = said.tool_calls if said is not None else ()
            if calls and len(calls) == sum([slot.item.results for slot in step[1:]]) and all(map(_may_reduce, step)):
                found.append(step)
        return found

    def _reduce_calls(self, end: int, *, all_steps: bool = False) -> None:
        """Send the calls and stubs of old steps in a shorter form; if that is not enough, not at all.

        Where the model wrote what it does, its text is the record of steps without text. Otherwise these are cut away,
        and a summary should cover them.
        """
        if self.total <= self.target:
            return
        steps = self._list_steps_with_results(end, all_steps=all_steps)
        slots = [slot for step in steps for slot in step]
        tokens = sum([slot.item.tokens for slot in slots])
        without: dict[int, Item | None] = {}
        if not all_steps and self.total - tokens // 2 > self.target:  # the shorter form will hardly be enough
            without = {id(slot): self._with_calls(slot, "none") for slot in slots}
        least = self.total - tokens + sum([item.tokens for item in without.values() if item is not None])
        if not all_steps and least <= self.target:
            for step in steps:
                if self.total <= self.target:
                    return
                for slot in step:
                    if (item := self._with_calls(slot, "short")) is not None:
                        self._set_item(slot, item)
        narrated: bool | None = None
        for step in steps:
            if self.total <= self.target:
                return
            recorded = derive(self.messages[step[0].item.place], _has_text)
            if not (recorded or all_steps):
                recorded = narrated = self._is_narrated(end) if narrated is None else narrated
            for slot in step:
                item = without[id(slot)] if without else self._with_calls(slot, "none")
                if item is None:
                    self._drop(slot, LeftOutReason.CALL_LEFT_OUT if recorded else LeftOutReason.STEP_CUT)
                else:
                    self._set_item(slot, item)

    def _set_item(self, slot: _TrimSlot, item: Item) -> None:
        self.total -= slot.item.tokens - item.tokens
        slot.item = item

    def _with_calls(self, slot: _TrimSlot, form: CallForm) -> Item | None:
        """Return an item with its calls or stubs in a shorter form; None if nothing is left of it."""
        item = slot.item
        if form == "none" and item.role == "tool":
            return None
        item = replace(item, calls=form, decayed=False, limit=0, bare=item.bare or (form == "none" and item.signed))
        shown = render_item(item, self.messages.get(item.place), fetchable=self.draft.fetchable)
        if form == "none" and not shown.text.strip():
            return None
        return replace(item, tokens=min(item.tokens, self.draft.counter.count_message(shown)))

    def _is_narrated(self, end: int) -> bool:
        """Return True if at least every fourth reply before a slot has text."""
        replies = [self.messages.get(slot.item.place) for slot in self.slots[:end] if slot.item.role == "assistant"]
        return 4 * sum([reply is not None and derive(reply, _has_text) for reply in replies]) >= len(replies)

    def _is_over(self) -> bool:
        """Return True if more than a summary is needed.

        Without a summary, trimming always goes down to its mark, even if dropping dynamic blocks would be enough for
        this request. The next request would exceed the budget again.
        """
        if not (self.draft.compacted or self.draft.unread_until or self.draft.compaction):
            return True
        return self._exceeds_window() or bool(self.draft.unread_until and self.draft.summary is None)

    def _exceeds_window(self) -> bool:
        return self.total * self.factor > self.budget.available * self.options.high

    def _sum_up(self, *, keep: int) -> None:
        """Insert the summary, and drop what it covers, but for the latest turns and steps of at most `keep` tokens."""
        summary = self.draft.summary
        if summary is None:
            return
        item = Item(kind="summary", place=summary.anchor, role="user", text=summary.text, tokens=summary.tokens)
        if any(slot.item.kind == "summary" and slot.item.place == item.place for slot in self.slots):
            return
        steps = self._steps()
        last = steps[-1] if steps else len(self.slots) - 1
        anchor = summary.anchor & SEQ_MASK
        self._release_compaction(anchor)
        upto = max((index for index, slot in enumerate(self.slots) if slot.item.place == summary.anchor), default=last)
        covered = [
            (index, slot)
            for index, slot in enumerate(self.slots)
            if index < last
            and index <= upto
            and not (slot.item.opens and index == self.turns[-1])
            and (slot.item.kind == "summary" or (slot.item.place and slot.item.place & SEQ_MASK <= anchor))
            and (not slot.pinned or slot.item.kind == "summary")
        ]
        rest, stays = sum([slot.item.tokens for _, slot in covered]), False
        if rest <= item.tokens and not self.draft.unread_until:
            return
        for index, slot in covered:
            starts = slot.item.opens or (slot.item.role == "assistant" and index > self.turns[-1])
            stays = stays or (starts and rest <= keep)
            rest -= slot.item.tokens
            if not stays or slot.item.kind == "summary":
                self._drop(slot, LeftOutReason.SUMMED_UP, forced=True)
        self.slots.insert(0, _TrimSlot(item, True))
        self.total += item.tokens
        self.summed_up_to = anchor
        self.turns = self._turns()

    def _release_compaction(self, anchor: int) -> None:
        """Let the provider's own compaction go, with results of its calls, if our summary stands for all of that."""
        at = next((index for index, slot in enumerate(self.slots) if slot.item.compacts), len(self.slots))
        for index, slot in enumerate(self.slots[at:]):
            item = slot.item
            if (index and item.role != "tool") or item.place & SEQ_MASK > anchor or item.place in self.draft.pins:
                return
            slot.pinned = False

    def _drop_turns(self) -> None:
        for start, end in pairwise(self.turns):
            if self.total <= self.target:
                return
            for slot in self.slots[start:end]:
                self._drop(slot, LeftOutReason.TURN_CUT)

    def _drop_steps(self) -> None:
        steps = self._steps()
        tokens = self.draft.counter.count_message(Message(role="user", parts=(Text(STEPS_LEFT_OUT_TEXT),)))
        dropped = False
        for unit, target in self._units(steps):
            if self.total + tokens * dropped <= target:
                break
            for slot in unit:
                if slot.item.place in self.from_triggers:
                    self._drop(slot, LeftOutReason.NO_ROOM_FOR_TRIGGER)
                elif slot.item.kind != "dynamic":  # the latest copy would not be sent again
                    dropped = self._drop(slot, LeftOutReason.STEP_CUT) or dropped
        if dropped:
            self._say_that_steps_left()

    def _say_that_steps_left(self) -> None:
        """Insert one line where the first step of the current turn was."""
        tokens = self.draft.counter.count_message(Message(role="user", parts=(Text(STEPS_LEFT_OUT_TEXT),)))
        start = next((index for index in range(self.turns[-1], len(self.slots)) if self.slots[index].gone), 0)
        for slot in self.slots:
            if slot.item.kind == "notice":
                self._drop(slot, LeftOutReason.SAID_ANEW)
        item = Item(kind="notice", role="user", text=STEPS_LEFT_OUT_TEXT, tokens=tokens)
        self.slots.insert(start, _TrimSlot(item, False))
        self.total += tokens

    def _units(self, steps: Sequence[int]) -> Iterator[tuple[Sequence[_TrimSlot], int]]:
        """Yield what may be dropped inside the current turn, oldest first, with the target size.

        First texts before its first step, then its steps, last what came after the last reply. The message that opened
        the turn and the newest message are excluded.
        """
        newest = self._newest()
        first = steps[0] if steps else len(self.slots)
        room = int(self.budget.available / self.factor)

        def texts(start: int, end: int) -> Iterator[Sequence[_TrimSlot]]:
            slots = [slot for index, slot in enumerate(self.slots[start:end], start) if index != newest]
            for slot in sorted(slots, key=lambda slot: slot.item.place not in self.from_triggers):
                if not slot.item.opens and slot.item.place and slot.item.role in ("user", "system"):
                    yield (slot,)

        for unit in texts(self.turns[-1], first):
            yield unit, self.target if steps else room
        for start, end in pairwise(steps):
            yield self.slots[start:end], self.target
        if steps:
            for unit in texts(steps[-1], len(self.slots)):
                yield unit, room

    def _drop_single(self) -> None:
        """Drop single messages from the front until the request fits (policy `sliding_window`).

        A message with calls counts as one with their results. The newest one stays, other than those of triggers, and
        a user's newest message.
        """
        room = int(self.budget.available / self.factor)
        groups = list(accumulate([slot.item.role != "tool" for slot in self.slots]))
        newest = groups[self._newest()] if groups else 0
        said = [slot for slot in self.slots if slot.item.role == "user" and slot.item.kind == "message"][-1:]
        for group, slots in groupby(zip(groups, self.slots, strict=True), key=itemgetter(0)):
            if self.total <= room:
                return
            for _, slot in slots:
                if group != newest and not any(slot is each for each in said):
                    self._drop(slot, LeftOutReason.CUT)

    def _newest(self) -> int:
        """Return the index of the newest message, other than those of triggers."""
        places = [slot.item.place for slot in self.slots]
        return max(
            (index for index, where in enumerate(places) if where and where not in self.from_triggers), default=0
        )

    def _drop(self, slot: _TrimSlot, why: LeftOutReason, *, forced: bool = False) -> bool:
        if slot.gone or (slot.pinned and not forced):
            return False
        if why in COVERED_REASONS and 0 < slot.item.place & SEQ_MASK <= self.summed_up_to:
            why = LeftOutReason.SUMMED_UP
        slot.gone = why
        self.total -= slot.item.tokens
        if self.keeps and slot.item.kind == "message" and self.history.is_said(slot.item.place):
            kept = min(slot.item.tokens, self.history.words_room - self.kept_words)
            self.kept_words += kept
            self.total += kept
        if slot.item.place and slot.item.kind != "summary":
            self.left.append(LeftOutMessage(slot.item.place, why))
        return True

    def _shrink_reserve(self) -> None:
        budget, used = self.budget, int(self.total * self.factor)
        if used <= budget.available or not budget.reserve:
            return
        if self.options.slides:  # the newest message is sent in any case, with the rest of the window for the answer
            rest = budget.window - budget.system - budget.tools - used
            self.budget = replace(budget, reserve=max(1, min(rest, budget.reserve)))
        elif budget.reserve > (least := min(MIN_RESERVE, budget.window // 2)):
            self.budget = replace(budget, reserve=least)  # in one step, so that the next requests fit too
