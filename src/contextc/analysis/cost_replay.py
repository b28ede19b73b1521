"""The cost of a recorded conversation if it had been made in another way, by a replay through the cache model.

Both the recorded requests and the changed ones are replayed, and the difference of their predicted costs is reported.
So errors of the model affect both alike. Answers are assumed to stay the same.
"""

from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct

from contextc.analysis.cache_misses import find_cache_misses, find_ignored_blocks
from contextc.analysis.cache_model import CACHING_STATUSES, CacheModel
from contextc.analysis.cache_rules import CacheRules, find_cache_rules
from contextc.analysis.replay_changes import (
    FIXED_SHARE,
    ChangedRequest,
    compact,
    count_fixed,
    drop_tools,
    keep_system,
    keep_warm,
    set_breakpoints,
    sort_tools,
)
from contextc.analysis.request_view import RequestView, with_long_writes
from contextc.analysis.stored_conversation import StoredConversation, load_stored_conversation
from contextc.analysis.window_findings import find_unused_tools
from contextc.messages import Usage
from contextc.models import cost
from contextc.store import Store

COMPACT_SHARE = 0.5
RELIABLE_ERROR = 0.15


class Replay(Struct, frozen=True, kw_only=True):
    """The predicted cost of a change, and what it saves compared with the prediction for the recorded requests.

    `name` is drop_tools, constant_system, sort_tools, breakpoints, keep_warm or compact. `requests` is the number of
    requests that it changes.
    """

    name: str
    title: str
    cost: float
    saved: float
    requests: int


class WhatIf(Struct, frozen=True, kw_only=True):
    """`paid` is the cost by the reported usage, `predicted` what the cache model predicts for the same requests.

    Both are None if no price is known. Replays are reliable only if both are near each other. `skipped` has the names
    of replays that make no sense for this conversation, with the reason.
    """

    conversation: str
    paid: float | None
    predicted: float | None
    replays: tuple[Replay, ...]
    skipped: dict[str, str] = {}

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
    return compute_replays(load_stored_conversation(store, conversation), compact_at)


def compute_replays(view: StoredConversation, compact_at: int | None = None) -> WhatIf:
    """Return the replays of a conversation, the one that saves most first."""
    requests = [each for each in view.requests if _is_replayed(each)]
    if not requests:
        return WhatIf(conversation=view.name, paid=None, predicted=None, replays=())
    paid = sum([each.cost or 0.0 for each in requests])
    base, _ = _replay(requests, [])
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
        ("compact", f"Replace the history by a summary at {limit:,} tokens", lambda some: compact(some, limit)),
    ]
    replays: list[Replay] = []
    for name, title, change in changes[: -1 if reason else None]:
        dollars, changed = _replay(requests, [change])
        if changed:
            replays.append(Replay(name=name, title=title, cost=dollars, saved=base - dollars, requests=changed))
    replays.sort(key=lambda each: -each.saved)
    skipped = {"compact": reason} if reason else {}
    return WhatIf(conversation=view.name, paid=paid, predicted=base, replays=tuple(replays), skipped=skipped)


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
        conversation=name, paid=sum([each.paid or 0.0 for each in some]), predicted=predicted, replays=tuple(replays)
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


def _is_replayed(request: RequestView) -> bool:
    return (
        request.status in CACHING_STATUSES
        and request.cost is not None
        and not request.is_without_answer
        and find_cache_rules(request) is not None
    )


def _replay(requests: Sequence[RequestView], changes: Iterable[Change]) -> tuple[float, int]:
    """Return the predicted cost of requests after some changes, and the number of changed requests."""
    replayed = [ChangedRequest(each) for each in requests]
    for change in changes:
        for some in _by_channel(replayed):
            change(some)
    ignored = find_ignored_blocks(requests)
    models: dict[tuple[str, ...], CacheModel] = {}
    dollars = 0.0
    for request in replayed:
        rules = find_cache_rules(request)
        assert rules is not None
        model = models.setdefault(tuple(request.channel[1:]), CacheModel(ignored))
        outlook = model.expect(rules, request)
        dollars += _price(request, rules, outlook.tokens) + request.spent
        model.add(rules, request, outlook)
    return dollars, sum([each.is_changed for each in replayed])


def _by_channel(requests: Iterable[ChangedRequest]) -> list[list[ChangedRequest]]:
    found: dict[str, list[ChangedRequest]] = {}
    for each in requests:
        found.setdefault(each.channel_id, []).append(each)
    return list(found.values())


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
    long = round(written * usage.cache_write_long / usage.cache_write) if usage.cache_write else 0
    found = Usage(input=total, output=usage.output, cache_read=read, cache_write=written, cache_write_long=long)
    return cost(model, found if usage.cache_write else with_long_writes(found, request.marks)) or 0.0
