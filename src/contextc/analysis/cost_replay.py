"""The cost of a recorded conversation if it had been made in another way, by a replay through the cache model.

Both the recorded requests and the changed ones are replayed, and the difference of their predicted costs is reported.
So errors of the model affect both alike. Answers are assumed to stay the same.
"""

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cached_property
from itertools import pairwise
from math import ceil
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from contextc._json import encode
from contextc._sequence_comparison import count_common_ends, count_common_prefix
from contextc.analysis.cache_misses import find_cache_misses, find_ignored_blocks
from contextc.analysis.cache_model import CACHING_STATUSES, CacheModel, CacheRules, find_cache_rules
from contextc.analysis.conversation_loader import StoredConversation, load_conversation_view
from contextc.analysis.element_costs import tool_name
from contextc.analysis.request_elements import RequestView, Rows, Section, make_element, with_long_writes
from contextc.analysis.window_findings import find_unused_tools
from contextc.inspection.request_timeline import SentRequest
from contextc.models import cost
from contextc.models.billing import average_write_price
from contextc.models.model_info import MILLION
from contextc.store import Store

# ── changes ───────────────────────────────────────────────────────────────────────────────────────────────────────────
# Changes of recorded requests for a replay: what a client could have done differently.


LETTERS_PER_TOKEN = 4
CHANGED_SHARE = 0.5
"""The share of a system block up to which its change counts as a detail that could be elsewhere."""
SUMMARY_TOKENS = 2_000
KEPT_SHARE = 0.25
"""The share of the limit that a compaction keeps of the newest messages."""
FIXED_SHARE = 0.5
"""The share of the limit up to which system prompt, tools and summary leave enough room for messages."""
WARM_SHARE = 0.9
"""The share of an entry's lifetime after which it is read again to keep it."""


class ChangedRequest(RequestView):
    """A request with other content or at another time. `extra` are further input tokens, `spent` further dollars.

    If it `writes`, it writes to the cache although the recorded request may have not. With `other_lifetime`, its marks
    say how long what it writes is kept.
    """

    def __init__(self, original: RequestView) -> None:
        SentRequest.__init__(self, original.channel, original.number, original.record, original.step, original.model)
        self.original, self._facts, self.usage = original, original._facts, None
        self.head, self.rows = original.head, original.rows
        self.tools, self.system, self.leading = original.tools, original.system, original.leading
        self.began, self.ended, self.marks = original.began, original.ended, original.marks
        self.extra, self.spent, self.is_changed, self.writes, self.other_lifetime = 0, 0.0, False, False, False

    @property
    def counted(self) -> int:
        """Input tokens by our own count."""
        return sum([each.total for each in self.head_sections]) + (self.rows.totals[-1] if self.rows.totals else 0)

    @property
    def estimated(self) -> int:
        return self.counted

    @cached_property
    def scale(self) -> float:
        original = self.original
        rows = original.rows.totals[-1] if original.rows.totals else 0
        counted = original.head_totals[2] + rows
        return (original.input - self.overhead) / counted if counted else 1.0

    @cached_property
    def overhead(self) -> int:
        return self.original.overhead

    @cached_property
    def input(self) -> int:
        """Input tokens as the provider would count them."""
        return self.overhead + round(self.counted * self.scale) + self.extra

    def change(
        self,
        *,
        tools: Section | None = None,
        system: Section | None = None,
        leading: Section | None = None,
        rows: Rows | None = None,
    ) -> None:
        """Replace parts of the content."""
        self.tools, self.system, self.leading = tools or self.tools, system or self.system, leading or self.leading
        self.rows, self.is_changed = rows or self.rows, True
        for name in ("head_ends", "head_totals", "input"):
            self.__dict__.pop(name, None)  # cached properties

    def keep_marks(self, kept: Sequence[int]) -> None:
        """Move the cache breakpoints to the elements that are left. `kept` are their old indexes."""
        moved = {bisect_right(kept, mark) - 1: ttl for mark, ttl in self.original.marks.items()}
        self.marks = {mark: ttl for mark, ttl in sorted(moved.items()) if mark >= 0}


def count_fixed(request: RequestView) -> int:
    """Return the tokens that a compaction leaves: system prompt, tools, and the summary."""
    return request.overhead + round(request.head_totals[2] * request.scale) + SUMMARY_TOKENS


def drop_tools(requests: Sequence[ChangedRequest], unused: dict[str, set[str]]) -> None:
    names = unused.get(requests[0].channel_id, set())
    sections: dict[int, tuple[Section, list[int]]] = {}
    for request in requests if names else ():
        tools = request.tools
        if id(tools) not in sections:
            kept = [at for at, each in enumerate(tools.elements) if tool_name(each) not in names]
            sections[id(tools)] = _keep_elements(tools, kept), kept
        section, kept = sections[id(tools)]
        if len(kept) == len(tools.elements):
            continue
        request.keep_marks([*kept, *range(len(tools.elements), request.original.count)])
        request.change(tools=section)


def sort_tools(requests: Sequence[ChangedRequest], channels: Collection[str]) -> None:
    """Send the tools sorted by name. `channels` are the short ids of those with tools in changing orders.

    A breakpoint after some number of tools stays there.
    """
    sections: dict[int, Section] = {}
    for request in requests if requests[0].channel_id in channels else ():
        tools = request.tools
        if id(tools) not in sections:
            order = sorted(range(len(tools.elements)), key=lambda at: (tool_name(tools.elements[at]), at))
            sections[id(tools)] = tools if order == sorted(order) else _keep_elements(tools, order)
        if sections[id(tools)] is not tools:
            request.change(tools=sections[id(tools)])


def set_breakpoints(requests: Sequence[ChangedRequest], channels: Collection[str]) -> None:
    """Set breakpoints after the system prompt, where the request before ended, and at the end. `channels` are the short
    ids of those where breakpoints are missing or too far apart.
    """
    before: ChangedRequest | None = None
    for request in requests if requests[0].channel_id in channels else ():
        rules, old = find_cache_rules(request), request.marks
        if rules is None or not rules.explicit or not request.count:
            before = request
            continue
        ends = {request.head_ends[2], request.count}
        if before is not None and before.count < request.count:
            ends.add(before.count)
        ttl = old[max(old)] if old else ""
        made = {end - 1: old.get(end - 1, ttl) for end in sorted(ends) if end}
        if made.keys() - old.keys():
            request.marks, request.writes, request.is_changed = made, True, True
        before = request


def set_lifetime(requests: Sequence[ChangedRequest], ttl: str) -> None:
    """Keep all that is written to the cache for another time, such as "1h", if the prices of both are known."""
    for request in requests:
        rules, price = find_cache_rules(request), request.original.price
        if price is None or price.cache_write_long is None or not request.marks:
            continue
        if rules is None or not rules.explicit or ttl not in rules.ttl:
            continue
        if {rules.lifetime(each) for each in request.marks.values()} != {rules.ttl[ttl]}:
            request.marks, request.other_lifetime = dict.fromkeys(request.marks, ttl), True
            request.is_changed = True


def _keep_elements(section: Section, kept: Sequence[int]) -> Section:
    tokens = tuple([section.tokens[at] for at in kept])
    return replace(
        section,
        elements=tuple([section.elements[at] for at in kept]),
        tokens=tokens,
        messages=tuple([section.messages[at] for at in kept]),
        ends=tuple([section.ends[at] for at in kept]),
        total=sum(tokens),
    )


def keep_system(requests: Sequence[ChangedRequest]) -> None:
    first = requests[0]
    for request in requests[1:]:
        changed = [
            _count_changed(one, other)
            for one, other in ((first.system, request.system), (first.leading, request.leading))
        ]
        if None in changed or not any(changed):
            continue
        request.extra = round(sum([each or 0 for each in changed]) * request.scale)
        request.change(system=first.original.system, leading=first.original.leading)


def _count_changed(one: Section, other: Section) -> int | None:
    """Return the tokens of what changed; None if it is too much to be a detail."""
    if one.elements == other.elements:
        return 0
    if len(one.elements) != len(other.elements):
        return None
    tokens = 0
    for before, now in zip(one.elements, other.elements, strict=True):
        if before.key == now.key:
            continue
        old, new = before.text, now.text
        changed = len(new) - sum(count_common_ends(old, new))
        if changed > max(1, len(new)) * CHANGED_SHARE:
            return None
        tokens += ceil(max(1, changed) / LETTERS_PER_TOKEN)
    return tokens


def keep_warm(requests: Sequence[ChangedRequest]) -> None:
    offset = 0
    for before, request in pairwise(requests):
        rules, price = find_cache_rules(before), before.original.price
        gap = request.original.began - before.original.began
        if rules is not None and price is not None and (life := _lifetime(rules, before)) and gap > life:
            pings = ceil(gap / (life * WARM_SHARE)) - 1
            usage = before.original.usage
            paid = average_write_price(price, usage) if usage is not None and usage.cache_write else price.input
            if pings * price.cache_read < paid - price.cache_read:
                request.spent = pings * before.input * price.cache_read / MILLION
                request.is_changed = True
                offset += gap - round(life * WARM_SHARE)
        request.began, request.ended = request.original.began - offset, request.original.ended - offset


def _lifetime(rules: CacheRules, request: RequestView) -> int:
    """Return how long the longest entry of a request exists without use; 0 if it has none."""
    if not rules.explicit:
        return max(rules.kept, rules.lifetime(""))
    return rules.lifetime(request.marks[max(request.marks)]) if request.marks else 0


def compact(requests: Sequence[ChangedRequest], limit: int) -> None:
    cut = 0
    summary: Section | None = None
    before: ChangedRequest | None = None
    count = 0
    if max([count_fixed(each) for each in requests]) > limit * FIXED_SHARE:
        return
    for request in requests:
        if before is not None and count_common_prefix(before.original.rows.sections, request.rows.sections) < cut:
            cut, summary = 0, None  # the client itself changed its history
        totals = request.original.rows.totals
        messages = (totals[-1] if totals else 0) - (totals[cut - 1] if cut else 0)
        used = request.head_totals[2] + messages + (summary.total if summary is not None else 0)
        if request.overhead + used * request.scale > limit:
            kept = _find_cut(request, limit)
            if kept > cut:
                count += 1
                cut, summary = kept, _make_summary(count, request.scale)
                request.spent = _price_summary(request, used)
        if summary is not None:
            _replace_rows(request, cut, summary)
        before = request


def _find_cut(request: ChangedRequest, limit: int) -> int:
    """Return the first row to keep: the newest rows up to a share of the limit, and at least one."""
    totals = request.original.rows.totals
    if len(totals) < 2:
        return 0
    room = limit * KEPT_SHARE / request.scale
    return min(bisect_right(totals, totals[-1] - room) + 1, len(totals) - 1)


def _make_summary(number: int, scale: float) -> Section:
    text = encode(f"summary {number}")
    tokens = round(SUMMARY_TOKENS / scale)
    element = make_element("message", "text", "user", text, ".content")
    return Section((element,), (tokens,), (0,), (len(text),), 1, tokens)


def _price_summary(request: ChangedRequest, used: int) -> float:
    """Return the cost of making a summary: the context is read from the cache, and the summary is the answer."""
    price = request.original.price
    if price is None:
        return 0.0
    return ((request.overhead + used * request.scale) * price.cache_read + SUMMARY_TOKENS * price.output) / MILLION


def _replace_rows(request: ChangedRequest, cut: int, summary: Section) -> None:
    rows = request.original.rows
    removed = rows.ends[cut - 1]
    head = request.head_ends[2]
    marks = {
        (mark if mark < head else mark - removed + 1): ttl
        for mark, ttl in request.original.marks.items()
        if mark < head or mark >= head + removed
    }
    request.marks = marks
    request.change(rows=Rows().extended([summary, *rows.sections[cut:]]))


# ── replays ───────────────────────────────────────────────────────────────────────────────────────────────────────────


COMPACT_SHARE = 0.5
RELIABLE_ERROR = 0.15
SHORT_TTL, LONG_TTL = "5m", "1h"
"""The times for which an explicit cache keeps what is written."""


class Replay(Struct, frozen=True, kw_only=True):
    """The predicted cost of a change, and what it saves compared with the prediction for the recorded requests.

    `name` is drop_tools, constant_system, sort_tools, breakpoints, keep_warm, long_lifetime, short_lifetime or compact.
    `requests` is the number of requests that it changes.
    """

    name: str
    title: str
    cost: float
    saved: float
    requests: int


class WhatIf(Struct, frozen=True, kw_only=True):
    """`paid` is the cost by the reported usage, `predicted` what the cache model predicts for the same requests.

    Both are None if no price is known. Replays are reliable only if both are near each other. `skipped` has the names
    of replays that make no sense for this conversation, with the reason. With `cost_is_lower_bound` a factor of a price
    is unknown, so that all of these costs are at least what they say.
    """

    conversation: str
    paid: float | None
    predicted: float | None
    replays: tuple[Replay, ...]
    skipped: dict[str, str] = {}
    cost_is_lower_bound: bool = False

    @property
    def error(self) -> float | None:
        """The error of the prediction, as a share of what was paid; None if nothing was paid."""
        return abs((self.predicted or 0.0) - self.paid) / self.paid if self.paid else None

    @property
    def is_reliable(self) -> bool:
        """True if the cache model explains what was paid."""
        return self.error is not None and self.error <= RELIABLE_ERROR


Change = Callable[[list[ChangedRequest]], None]


def what_if(store: Store, conversation: str, *, compact_at: int | None = None) -> WhatIf:
    """Return what a conversation would have cost in other ways. Raises `UnknownConversation`.

    `compact_at` is the number of input tokens from which on the history is replaced by a summary; by default half of
    the largest request, and at least twice the size of what a compaction cannot remove. If too little room would be
    left for messages, or all requests are smaller, nothing is compacted, and `skipped` has the reason.
    """
    return compute_replays(load_conversation_view(store, conversation), compact_at)


def compute_replays(view: StoredConversation, compact_at: int | None = None) -> WhatIf:
    """Return the replays of a conversation, the one that saves most first."""
    requests = [each for each in view.requests if is_replayed(each)]
    if not requests:
        return WhatIf(conversation=view.name, paid=None, predicted=None, replays=())
    paid = sum([each.cost or 0.0 for each in requests])
    base = replay(requests).cost
    channels: dict[str, set[str]] = {}
    for each in find_cache_misses(view):
        channels.setdefault(each.cause, set()).add(each.channel)
    reordered = channels.get("tools_reordered", set())
    unmarked = channels.get("breakpoint_missing", set()) | channels.get("lookback_exceeded", set())
    unused = {run.requests[0].channel_id: {name for _, name in find_unused_tools(view, run)} for run in view.runs}
    limit, reason = _choose_limit(requests, compact_at)
    changes: list[tuple[str, str, Change]] = [
        ("drop_tools", "Do not send the tools that were never called", lambda some: drop_tools(some, unused)),
        ("constant_system", "Keep the system prompt constant, with what changes at the end", keep_system),
        ("sort_tools", "Send the tools sorted by name", lambda some: sort_tools(some, reordered)),
        (
            "breakpoints",
            "Set breakpoints after the system prompt, where the request before ended, and at the end",
            lambda some: set_breakpoints(some, unmarked),
        ),
        ("keep_warm", "Read the cache again before it expires, where that is cheaper", keep_warm),
        ("long_lifetime", "Keep everything in the cache for an hour", lambda some: set_lifetime(some, LONG_TTL)),
        ("short_lifetime", "Keep everything in the cache for five minutes", lambda some: set_lifetime(some, SHORT_TTL)),
        ("compact", f"Replace the history by a summary at {limit:,} tokens", lambda some: compact(some, limit)),
    ]
    replays: list[Replay] = []
    for name, title, change in changes[: -1 if reason else None]:
        found = replay(requests, change)
        if found.changed:
            saved = base - found.cost
            replays.append(Replay(name=name, title=title, cost=found.cost, saved=saved, requests=found.changed))
    replays.sort(key=lambda each: -each.saved)
    return WhatIf(
        conversation=view.name,
        paid=paid,
        predicted=base,
        replays=tuple(replays),
        skipped={"compact": reason} if reason else {},
        cost_is_lower_bound=any([each.cost_is_lower_bound for each in requests]),
    )


def add_replays(found: Iterable[WhatIf], name: str) -> WhatIf:
    """Return the replays of several conversations as one. Where a change does not apply, the cost stays the same."""
    some = [each for each in found if each.paid is not None and each.predicted is not None]
    if not some:
        return WhatIf(conversation=name, paid=None, predicted=None, replays=())
    predicted = sum([each.predicted or 0.0 for each in some])
    groups: dict[str, list[Replay]] = {}
    for replay in [replay for each in some for replay in each.replays]:
        groups.setdefault(replay.name, []).append(replay)
    replays: list[Replay] = []
    for key, same in groups.items():
        saved = sum([each.saved for each in same])
        is_same = len({each.title for each in same}) == 1
        title = same[0].title if is_same else same[0].title.partition(" at ")[0]  # the sizes differ
        requests = sum([each.requests for each in same])
        replays.append(Replay(name=key, title=title, cost=predicted - saved, saved=saved, requests=requests))
    replays.sort(key=lambda each: -each.saved)
    return WhatIf(
        conversation=name,
        paid=sum([each.paid or 0.0 for each in some]),
        predicted=predicted,
        replays=tuple(replays),
        cost_is_lower_bound=any([each.cost_is_lower_bound for each in some]),
    )


def _choose_limit(requests: Sequence[RequestView], wanted: int | None) -> tuple[int, str]:
    """Return the input tokens from which on the history is compacted, and why that makes no sense; "" if it does."""
    largest = max(requests, key=lambda each: each.input)
    fixed = count_fixed(largest)
    least = round(fixed / FIXED_SHARE)
    limit = wanted or max(round(largest.input * COMPACT_SHARE), least)
    parts = f"system prompt, tools and a summary have {fixed:,} tokens"
    if limit < least:
        return limit, f"{parts}, more than half of {limit:,}"
    if not wanted and limit >= largest.input:
        return limit, f"{parts}, and the largest request only {largest.input:,}"
    return limit, ""


def is_replayed(request: RequestView) -> bool:
    """Return True if the cache model can say what a request costs: it has a known cost, an answer and cache rules."""
    return (
        request.status in CACHING_STATUSES
        and request.cost is not None
        and not request.is_without_answer
        and find_cache_rules(request) is not None
    )


class ReplayedCost(NamedTuple):
    """The predicted cost of requests, the tokens that they read from the cache, and the number of changed requests."""

    cost: float
    read: int
    changed: int


def replay(requests: Sequence[RequestView], change: Change | None = None) -> ReplayedCost:
    """Return what the cache model predicts for requests, as they are or after a change."""
    replayed = [ChangedRequest(each) for each in requests]
    if change is not None:
        by_channel: dict[str, list[ChangedRequest]] = {}
        for each in replayed:
            by_channel.setdefault(each.channel_id, []).append(each)
        for some in by_channel.values():
            change(some)
    ignored = find_ignored_blocks(requests)
    models: dict[tuple[str, ...], CacheModel] = {}
    dollars, read = 0.0, 0
    for request in replayed:
        rules = find_cache_rules(request)
        assert rules is not None
        model = models.setdefault(tuple(request.channel[1:]), CacheModel(ignored))
        outlook = model.expect(rules, request)
        dollars += _price(request, rules, outlook.tokens) + request.spent
        read += min(outlook.tokens, request.input)
        model.add(rules, request, outlook)
    return ReplayedCost(dollars, read, sum([each.is_changed for each in replayed]))


def _price(request: ChangedRequest, rules: CacheRules, read: int) -> float:
    """Return the cost of a request that reads some tokens from the cache."""
    usage, model = request.original.usage, request.model
    assert usage is not None
    assert model is not None
    total = request.input
    read = min(read, total)
    written = 0
    if request.writes or (usage.cache_read + usage.cache_write and (usage.cache_write or rules.explicit)):
        end = request.count if not rules.explicit else max([mark + 1 for mark in request.marks], default=0)
        whole = request.charged_before(end)
        written = max(0, min(whole, total) - read) if whole >= rules.minimum else 0
    is_split_known = usage.cache_write > 0 and not request.other_lifetime
    long = round(written * usage.cache_write_long / usage.cache_write) if is_split_known else 0
    found = replace(usage, input=total, cache_read=read, cache_write=written, cache_write_long=long)
    return cost(model, found if is_split_known else with_long_writes(found, request.marks)) or 0.0
