"""The cache misses of a conversation, each with its cause.

A request is compared with the earlier request that it has most in common with. If it read less than it could have, the
functions of `cache_miss_causes.py` are called in an order: causes outside of the content first, then the first
difference in the order in which providers cache, then the rules of the cache. The first that applies is the cause.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from contextc._sequence_comparison import count_common_prefix
from contextc.analysis.cache_miss_causes import (
    CAUSES,
    COMPACTED,
    TRIMMED,
    CauseFunction,
    Diagnosis,
    MissCase,
    below_minimum,
    breakpoint_missing,
    cache_expired,
    compacted,
    first_request,
    model_changed,
    parallel_request,
    unknown_setting_changed,
)
from contextc.analysis.cache_model import (
    CACHING_STATUSES,
    CacheModel,
    CacheOutlook,
    CacheRules,
    count_equal,
    count_equal_rows,
    count_readable_tokens,
    count_repeated_tokens,
    find_cache_rules,
    find_tier_starts,
    reordered_tools,
)
from contextc.analysis.cache_neighbours import compare_with_overlapping
from contextc.analysis.conversation_loader import load_conversation_view, load_request_views
from contextc.analysis.finding import Finding, FindingCode, RequestLoss, get_code
from contextc.analysis.request_elements import ConversationView, ElementParser, RequestView, Rows, with_long_writes
from contextc.compiler.draft import NewRow
from contextc.compiler.manifest import ObservedFacts, RequestRecord
from contextc.compiler.step import Compiled
from contextc.inspection.line_details import compute_miss_cost
from contextc.inspection.prefix_break import MISSED_TOKENS
from contextc.messages import Usage
from contextc.models.billing import apply_price
from contextc.store import Store
from contextc.store.ledger_schema import Channel, EpochReason, LeftOutReason, StoredRow

# ── trimmed requests ──────────────────────────────────────────────────────────────────────────────────────────────────
# Requests that the compiler or the proxy trimmed, as their manifests record it.


TRIM_RULE = "fit"
"""The option of the proxy that trims requests."""
STUB_WORDS = "was left out to save room"
"""Words of the texts that replace trimmed results."""
LEFT_OUT = (LeftOutReason.TURN_CUT, LeftOutReason.STEP_CUT, LeftOutReason.CUT, LeftOutReason.TOO_LONG)
"""The reasons for which trimming leaves out messages, as in a manifest."""


class Trim(NamedTuple):
    """The title and the fix of a finding about a trimmed request."""

    title: str
    fix: str


def describe_trim(request: RequestView, changed: str, *, is_removed: bool) -> Trim | None:
    """Return how a request was trimmed to fit; None if it was not, or if that is not known to be the reason.

    `changed` is the text at the first difference, and `is_removed` is True if messages are missing there. The proxy
    trims each request of a long conversation in the same way, so not every difference in one of them is a trim.
    """
    record = request.record
    if record.observed is None:
        return _describe_compiled(record) if record.why == EpochReason.OVER_BUDGET else None
    action = next((each for each in record.observed.actions if each.rule == TRIM_RULE and not each.failed), None)
    if action is None or not (is_removed or STUB_WORDS in changed):
        return None
    return Trim(
        f"{TRIMMED.title} by `contextc proxy --fit`: {'; '.join(action.changes)}",
        "Let the client compact its history before the window is full, or use a model with a larger window.",
    )


def _describe_compiled(record: RequestRecord) -> Trim:
    budget, reasons = record.budget, Counter([each.why for each in record.left])
    left, summed = record.skipped + sum([reasons[each] for each in LEFT_OUT]), reasons[LeftOutReason.SUMMED_UP]
    parts = [
        f"{budget.wanted:,} tokens of messages became {budget.used:,}",
        *([f"{left:,} {'message was' if left == 1 else 'messages were'} left out"] if left else []),
        *([f"a summary replaced {summed:,}"] if summed else []),
    ]
    return Trim(f"{TRIMMED.title}: {', '.join(parts)}", TRIMMED.fix)


# ── misses ────────────────────────────────────────────────────────────────────────────────────────────────────────────


SAME_EFFECT = 0.8
MAX_SILENT = 4
IGNORED_SHARE = 0.5
SURELY_LONG = 1.25
SURE_PART, SURE_SHARE = 2, 0.1
"""The size of a miss in a request that read another part of its prefix: a multiple of the threshold, and a share of
what it could have read. The boundary of the prefix is known by our own count only.
"""
SMALL_TOKENS = 64
MIN_REPEATED, MAX_SHOWN = 3, 4
CHANGES = (
    *("settings_changed", "tools_reordered", "tools_changed", "system_changed"),
    *("message_removed", "message_inserted", "message_changed"),
)
"""Causes whose small losses are added up: differences between requests."""
CONTRADICTED = 0.5
"""The factor of the confidence in a cause, if the provider names another one."""
PARTS_OF_COMPACTION = (
    *("tools_changed", "tools_reordered", "system_changed", "settings_changed", "message_changed", "message_removed"),
    "message_inserted",
)
"""Causes that are part of a compaction, where the client is known to have compacted."""
CHANGED_MESSAGES = ("message_changed", "message_removed", "message_inserted", "compacted")
"""Causes that the compiler or the proxy brings about by trimming a request."""
SHORT_TOKENS = 2_048
"""The tokens that the requests of a channel repeat below the minimum of their model. With fewer, none is reported."""


_CODES = {function: code for code, function in CAUSES}


def find_cache_misses(view: ConversationView) -> Iterator[Finding]:
    """Return at most one finding per request."""
    return view.keep(_CacheHistory).find()


class _SmallLoss(NamedTuple):
    """A loss that is too small to be a finding of its own."""

    case: MissCase
    code: FindingCode
    found: Diagnosis
    tokens: int


def _explain_small_loss(case: MissCase) -> _SmallLoss | None:
    """Return the cause of a loss below the threshold. Only a difference between requests counts: without one, a small
    loss may be an error of the estimate, or the step in which a provider caches.
    """
    if case.is_first or case.potential < case.rules.minimum:
        return None
    tokens = case.repeated_after_break
    if tokens <= max(SMALL_TOKENS, case.rules.block):
        return None
    found = _first_cause(case, [function for code, function in CAUSES if code.cause in CHANGES])
    return _SmallLoss(case, *found, tokens) if found is not None else None


def _add_up(conversation: str, losses: Sequence[_SmallLoss]) -> Finding | None:
    """Return one finding for small losses of one cause, about the request with which their sum is as large as a miss;
    None if it never is.
    """
    sums = list(accumulate([each.tokens for each in losses]))
    at = next((at for at, (each, tokens) in enumerate(zip(losses, sums, strict=True))
               if at + 1 >= MIN_REPEATED and tokens >= each.case.threshold), None)  # fmt: skip
    if at is None:
        return None
    case, code, found, _ = losses[at]
    others = [each for number, each in enumerate(losses) if number != at][-MAX_SHOWN:]
    costs = [compute_cost(each.case, each.tokens) for each in losses]
    return code.make(
        conversation,
        [*found.evidence, *[each.found.evidence[0] for each in others]],
        tokens=sums[-1],
        cost=None if None in costs else sum([each or 0.0 for each in costs]),
        title=f"{found.title or code.title}, in {len(losses):,} requests with a small loss each",
        fix=found.fix,
        confidence=round(found.confidence * (1.0 if case.is_reported else 0.75), 2),
        losses=[
            RequestLoss(
                channel=each.case.now.channel_id, request=each.case.now.number, tokens=each.tokens, cost=each_cost
            )
            for each, each_cost in zip(losses, costs, strict=True)
        ],
    )


def _drop_short(found: Sequence[tuple[Channel, Finding]]) -> Iterator[Finding]:
    """Return findings without those about short prefixes on channels where these cost almost nothing."""
    repeated: Counter[Channel] = Counter()
    for channel, each in found:
        repeated[channel] += each.tokens if each.cause == "below_minimum" else 0
    for channel, each in found:
        if each.cause != "below_minimum" or repeated[channel] >= SHORT_TOKENS:
            yield each


class _Request(NamedTuple):
    """A request that uses a cache, before it is known whether its provider reports what was read.

    `detour` is what it could read of the previous request, if that has more of its messages than the most similar one:
    tools, system prompt or settings are those of an earlier request again.
    """

    now: RequestView
    rules: CacheRules
    outlook: CacheOutlook
    previous: RequestView | None
    is_first: bool
    detour: CacheOutlook | None = None


def iter_cases(view: ConversationView) -> Iterator[MissCase]:
    """Return all requests that use a cache, each with what it could have read."""
    return view.keep(_CacheHistory).cases()


class _CacheHistory:
    """The requests of a view that use a cache, each with what it could have read. Findings about them are kept."""

    def __init__(self, view: ConversationView) -> None:
        self._view, self._ignored = view, IgnoredBlocks()
        self._clear()

    def _clear(self) -> None:
        self._count = 0
        self._requests: list[_Request] = []
        self._models: dict[tuple[str, ...], CacheModel] = {}
        self._previous: dict[tuple[str, str], RequestView] = {}
        self._following: dict[int, RequestView] = {}
        self._found: dict[int, tuple[object, Finding | _SmallLoss | None]] = {}

    def find(self) -> Iterator[Finding]:
        """Return the findings about all requests. Those that were added to the view since are compared first."""
        channels = self._update()
        small: dict[tuple[Channel, str], list[_SmallLoss]] = {}
        found: list[tuple[Channel, Finding]] = []
        for each in self._requests:
            reports, following = each.now.channel in channels, self._following.get(id(each.now))
            is_compacted = following is not None and following.record.why in COMPACTED
            known = self._found.get(id(each.now))
            if known is None or known[0] != (reports, is_compacted):
                case = _make_case(each, reports, following)
                cause = explain_miss(case)
                explained = _explain_small_loss(case) if cause is None else _make_finding(self._view.name, case, *cause)
                known = self._found[id(each.now)] = (reports, is_compacted), explained
            if isinstance(known[1], Finding):
                found.append((each.now.channel, known[1]))
            elif known[1] is not None:
                small.setdefault((each.now.channel, known[1].code.cause), []).append(known[1])
        yield from _drop_short(found)
        for losses in small.values():
            if (added := _add_up(self._view.name, losses)) is not None:
                yield added

    def cases(self) -> Iterator[MissCase]:
        """Return all requests, each with what it could have read."""
        channels = self._update()
        for each in self._requests:
            yield _make_case(each, each.now.channel in channels, self._following.get(id(each.now)))

    def _update(self) -> set[Channel]:
        """Compare the requests that were added to the view. Return the channels whose figures can be trusted."""
        if self._ignored.add(self._view.requests[self._count :]):
            self._clear()
        for now in self._view.requests[self._count :]:
            self._add(now)
        self._count = len(self._view.requests)
        return _find_reporting(self._requests)

    def _add(self, now: RequestView) -> None:
        rules = find_cache_rules(now)
        if rules is None or now.status not in CACHING_STATUSES or now.is_without_answer:
            return
        flow = (now.channel.agent, now.channel.directory)
        model = self._models.setdefault((*flow, *now.scope), CacheModel(self._ignored.paths))
        continued = self._view.continued
        if continued is not None and not self._requests:
            model.add(rules, continued, model.expect(rules, continued))
            self._previous[flow] = continued
        outlook, previous = model.expect(rules, now), self._previous.get(flow)
        is_first = outlook.comparison is None
        shown = outlook
        if is_first:
            own = [each.now for each in self._requests if each.now.channel != now.channel]
            shown = compare_with_overlapping(rules, now, [*self._view.overlapping, *own], self._ignored.paths)
        detour = _find_detour(rules, model, outlook, previous, now)
        self._requests.append(_Request(now, rules, shown, previous, is_first, detour))
        model.add(rules, now, outlook)
        self._previous[flow] = now
        if previous is not None:
            self._following[id(previous)] = now


def _make_case(each: _Request, reports: bool, following: RequestView | None) -> MissCase:
    now, rules, outlook, previous, is_first, detour = each
    case = MissCase(now, rules, outlook, previous, reports=reports, is_first=is_first, following=following)
    if detour is None or case.missed >= case.threshold:
        return case
    other = MissCase(now, rules, detour, previous, reports=reports, following=following)
    other.read = case.read
    return other if other.missed > case.missed else case


def _find_detour(
    rules: CacheRules, model: CacheModel, outlook: CacheOutlook, before: RequestView | None, now: RequestView
) -> CacheOutlook | None:
    """Return what a request could read of the previous one, if another one is more similar and has less messages."""
    reference = outlook.comparison
    if before is None or reference is None or reference.before is before or before.scope != now.scope:
        return None
    if count_equal_rows(before, now) <= count_equal_rows(reference.before, now):
        return None
    return model.expect_from(rules, before, now)


def _find_reporting(requests: Iterable[_Request]) -> set[Channel]:
    """Return the channels whose figures of the cache can be trusted.

    Figures that are always 0 are none. A provider that does not report caches is not one that always misses: with
    breakpoints, a long request that reads nothing would write something.
    """
    by_channel: dict[Channel, list[_Request]] = {}
    for each in requests:
        by_channel.setdefault(each.now.channel, []).append(each)
    found: set[Channel] = set()
    for channel, some in by_channel.items():
        usages = [each.now.usage for each in some if each.now.usage is not None]
        if any([usage.cache_read or usage.cache_write for usage in usages]):
            found.add(channel)
            continue
        silent = sum([_should_report(each) for each in some])
        if some[0].rules.reports and silent < (1 if some[0].rules.explicit else MAX_SILENT):
            found.add(channel)
    return found


def _should_report(each: _Request) -> bool:
    """Return True if a request should have read or written something."""
    if each.now.usage is None:
        return False
    if not each.rules.explicit:
        comparison = each.outlook.comparison
        return comparison is not None and comparison.is_extension and each.outlook.tokens > 0
    marks = each.now.marks
    return bool(marks) and each.now.charged_before(max(marks) + 1) > each.rules.minimum * SURELY_LONG


class IgnoredBlocks:
    """The paths of system blocks that the provider leaves out of its prefix, such as an attribution line: they changed,
    and the provider reports that it read most of what follows them.
    """

    def __init__(self) -> None:
        self.paths: frozenset[str] = frozenset()
        self._last: dict[Channel, RequestView] = {}

    def add(self, requests: Iterable[RequestView]) -> bool:
        """Add requests. Return True if there are further paths since."""
        before = self.paths
        for now in requests:
            self._compare(self._last.get(now.channel), now)
            self._last[now.channel] = now
        return self.paths != before

    def _compare(self, before: RequestView | None, now: RequestView) -> None:
        if before is None or before.head is now.head or now.usage is None or not now.usage.cache_read:
            return
        while True:
            equal = count_equal(before, now, self.paths)
            if not now.head_part_at(equal) == before.head_part_at(equal) == "system":
                break
            start = now.charged_before(equal + 1)
            after = min(before.input, now.input) - start
            if now.usage.cache_read - start <= max(MISSED_TOKENS, after * IGNORED_SHARE):
                break
            path = now.at(equal).element.suffix
            if path in self.paths:
                break
            self.paths |= {path}


def find_ignored_blocks(requests: Sequence[RequestView]) -> frozenset[str]:
    """Return the paths of system blocks that the provider leaves out of its prefix."""
    found = IgnoredBlocks()
    found.add(requests)
    return found.paths


def explain_miss(case: MissCase) -> tuple[FindingCode, Diagnosis] | None:
    """Return the cause of a miss; None if the cache was read as it should have been."""
    if case.is_first:
        # If it read something, another request had written it.
        if not case.read:
            return _first_cause(case, [model_changed, compacted, parallel_request, first_request])
        is_sure = case.missed >= max(SURE_PART * case.threshold, SURE_SHARE * case.potential)
        return _first_cause(case, [parallel_request]) if is_sure else None
    if case.potential < case.rules.minimum:
        # what was read before is cached, whatever our minimum: then only a pause explains it
        return _first_cause(case, [cache_expired if case.was_read else below_minimum]) if case.potential else None
    if case.is_missed_of_previous:
        return _first_cause(case, [model_changed])
    if case.missed < case.threshold:
        return None
    if case.is_other_model:
        return _first_cause(case, [model_changed])
    if case.is_never_written:
        return _first_cause(case, [breakpoint_missing])
    if case.is_missed_before_break and (found := _first_cause(case, [cache_expired, parallel_request])) is not None:
        return found
    found = _first_cause(case, [function for _, function in CAUSES if function not in (first_request, below_minimum)])
    if found is None and (guess := unknown_setting_changed(case)) is not None:
        found = get_code("settings_changed"), guess
    return _prefer_compaction(case, *found) if found is not None else None


def _prefer_compaction(case: MissCase, code: FindingCode, found: Diagnosis) -> tuple[FindingCode, Diagnosis]:
    """Return the compaction as the cause, if the client compacted here: it changed everything else for that."""
    if code.cause in CHANGED_MESSAGES:
        changed = case.now.at(case.break_at).element.text if case.break_at < case.now.count else ""
        trim = describe_trim(case.now, changed, is_removed=code.cause == "message_removed")
        if trim is not None:
            made = Diagnosis(evidence=found.evidence, title=trim.title, fix=trim.fix, confidence=found.confidence)
            return TRIMMED, made
    if code.cause not in PARTS_OF_COMPACTION:
        return code, found
    if case.is_recorded_compaction:
        return get_code("compacted"), Diagnosis(evidence=found.evidence, confidence=found.confidence)
    if case.is_summary_request and code.cause != "provider_missed":
        made = Diagnosis(
            evidence=found.evidence,
            title="The request for a summary has another prefix than the conversation",
            fix="Ask for a summary with the system prompt and the tools of the conversation, so that it is read from "
            "the cache.",
            confidence=found.confidence,
        )
        return get_code("compacted"), made
    return code, found


def _first_cause(case: MissCase, functions: Sequence[CauseFunction]) -> tuple[FindingCode, Diagnosis] | None:
    return next(
        ((_CODES[function], found) for function in functions if (found := function(case)) is not None), None
    )  # fmt: skip


def find_other_causes(case: MissCase, main: str) -> Iterator[str]:
    """Return further causes that alone would have had the same effect."""
    if main == "compacted" and case.is_compaction_for_other_model:
        yield "model_changed"
        return
    comparison = case.comparison
    if comparison is None:
        return
    before, now = comparison.before, case.now
    if case.is_expired and main != "cache_expired":
        yield "cache_expired"
    if not case.break_part or case.reformatted is not None:
        return
    least = case.missed * SAME_EFFECT
    total = case.potential

    def loses(index: int) -> bool:
        return total - now.charged_before(index) >= least

    differences = [_count_in_part(before, now, part) for part in range(3)]
    tools, system, rows = (None if at is None or at < comparison.shared else at for at in differences)
    if main not in ("tools_changed", "tools_reordered") and tools is not None and loses(tools):
        yield "tools_reordered" if reordered_tools(before, now) else "tools_changed"
    if main != "system_changed" and system is not None and loses(system):
        yield "system_changed"
    if main != "settings_changed" and any(loses(find_tier_starts(now)[tier]) for _, tier in comparison.settings):
        yield "settings_changed"
    if case.break_part != "messages" and rows is not None and loses(rows) and not case.is_compaction:
        old_at = before.head_ends[2] + rows - now.head_ends[2]
        if count_repeated_tokens(before, now, rows, old_at) * now.scale >= least:
            yield "message_changed"


def _count_in_part(before: RequestView, now: RequestView, part: int) -> int | None:
    """Return the index of the first difference within tools (0), system prompt (1) or messages (2); None if it is the
    same or was only extended.
    """
    if part == 2:
        same = count_equal_rows(before, now)
        return None if same >= before.rows.count else now.head_ends[2] + same
    sections = [(view.tools,) if part == 0 else (view.system, view.leading) for view in (before, now)]
    one, other = ([each.key for section in some for each in section.elements] for some in sections)
    if one == other:
        return None
    return count_common_prefix(one, other) + now.head_start("system" if part else "tools")


def _make_finding(conversation: str, case: MissCase, code: FindingCode, found: Diagnosis) -> Finding:
    tokens = 0 if code.cause == "first_request" else case.missed
    is_other_model = code.cause == "compacted" and case.is_compaction_for_other_model
    if code.cause == "model_changed" or is_other_model:
        tokens = case.missed_of_previous
    confidence = found.confidence if case.is_reported or code.cause == "first_request" else found.confidence * 0.75
    also = tuple(dict.fromkeys(find_other_causes(case, code.cause))) if tokens else ()
    vendor = case.now.observed.miss_reason if case.now.observed is not None else case.now.record.miss_reason
    agrees, title = case.rules.agrees(vendor, (code.cause, *also)), found.title
    before = case.comparison.before.channel.conversation if case.comparison is not None else conversation
    if before != conversation and not case.is_first:
        title = f"{title or code.title}; before, the conversation was recorded as {before}"
    if agrees is False:
        title, confidence = f"{title or code.title}; the provider says: {vendor}", confidence * CONTRADICTED
    return code.make(
        conversation,
        found.evidence,
        tokens=tokens,
        cost=compute_cost(case, tokens),
        title=title,
        fix=found.fix,
        confidence=round(confidence, 2),
        also=also,
        vendor=vendor,
        vendor_agrees=agrees,
    )


def compute_cost(case: MissCase, tokens: int) -> float | None:
    """Return what missed tokens cost more than a read from the cache, in dollars; None if the price is unknown."""
    usage = case.now.usage
    if usage is None:  # a request that is marked writes everything up to the last breakpoint
        written = tokens if case.rules.explicit and case.now.marks else 0
        usage = with_long_writes(Usage(cache_write=written), case.now.marks)
    return compute_miss_cost(case.now.price, usage, tokens)


# ── expected cache reads ──────────────────────────────────────────────────────────────────────────────────────────────
# Predicted cache reads: those of sent requests, beside what was reported, and those of the next one.


# ── sent requests ─────────────────────────────────────────────────────────────────────────────────────────────────────
# Cache reads of each request: what the provider's cache rules predict, beside what the provider reported.


class CacheRead(Struct, frozen=True, kw_only=True):
    """The cache reads of one request, in tokens.

    `possible` could have been read if nothing had changed since an earlier request, and `expected` is what the cache
    rules of the provider predict. `reported` is None if the provider reported no usage. `cause` is the cause of a cache
    miss, "" if there is none; `provider_missed` if the rules do not explain the difference.
    """

    request: int
    channel: str
    provider: str
    input: int
    possible: int
    expected: int
    reported: int | None
    cause: str


class ConversationCacheReads(Struct, frozen=True, kw_only=True):
    """The cache reads of a conversation, in the order of its requests. Requests that use no cache are left out."""

    conversation: str
    requests: tuple[CacheRead, ...]


def cache_reads(store: Store, conversation: str) -> ConversationCacheReads:
    """Return what each request of a conversation should have read from the cache, and what was reported.

    Raises `UnknownConversation`.
    """
    return list_cache_reads(load_conversation_view(store, conversation))


def list_cache_reads(view: ConversationView) -> ConversationCacheReads:
    reads: list[CacheRead] = []
    for case in iter_cases(view):
        found = explain_miss(case)
        reads.append(
            CacheRead(
                request=case.now.number,
                channel=case.now.channel_id,
                provider=case.now.channel.provider,
                input=case.now.input,
                possible=case.potential,
                expected=case.outlook.tokens,
                reported=case.read if case.is_reported else None,
                cause=found[0].cause if found is not None else "",
            )
        )
    return ConversationCacheReads(conversation=view.name, requests=tuple(reads))


# ── the next request ──────────────────────────────────────────────────────────────────────────────────────────────────


RECENT = 6
"""The number of last requests that are compared. Each is compared with the one before it."""
MIN_MISSES = 2
PASSING = (
    *("first_request", "below_minimum", "model_changed", "compacted", "trimmed", "cache_expired"),
    "parallel_request",
)
"""Causes of a miss that do not show that the next request will miss, too."""
END = 1 << 31


class RepeatedMiss(Struct, frozen=True, kw_only=True):
    """The last requests missed the cache, each of them. `code`, `cause` and `title` are those of the last miss, and
    `read` are the most tokens that one of them read.
    """

    count: int
    code: str
    cause: str
    title: str
    read: int


class ExpectedCache(Struct, frozen=True, kw_only=True):
    """The cache of a request that was not sent. `usage` is what the provider is expected to report.

    `paid_again` are tokens that an earlier request wrote to the cache, and that are not expected to be read: it has
    expired, or the last requests missed it each time. `dollars` is what they cost more than reading them; None if the
    price is unknown. With `cost_is_lower_bound` a factor of it is unknown, which the last request had. `idle` are the
    milliseconds since the cache was used, and `life` those for which it is kept.
    """

    usage: Usage
    is_expired: bool
    paid_again: int
    dollars: float | None
    idle: int
    life: int
    missed: RepeatedMiss | None
    cost_is_lower_bound: bool = False


def expect_cache(store: Store, compiled: Compiled, time: int) -> ExpectedCache | None:
    """Return what the cache should have of a request that would be sent at a time, in Unix milliseconds.

    None if that is unknown: for the first request of a channel, a resumed session, and a provider without a known
    cache. Dynamic fragments and everything else that the program changes are taken to stay as they are.
    """
    last = compiled.request - 1
    if not last or compiled.mode != "full":
        return None
    parser = ElementParser()
    numbers = range(max(1, last - RECENT + 1), last + 1)
    recent = load_request_views(store, [(compiled.channel, each) for each in numbers], parser)
    now = _make_view(compiled, recent[-1], parser, time)
    rules = find_cache_rules(now)
    return _expect_read(rules, recent, now) if rules is not None else None


def _make_view(compiled: Compiled, last: RequestView, parser: ElementParser, time: int) -> RequestView:
    """Return a compiled request with the head of the last one, which it repeats."""
    rows = Rows()
    for row in _list_rows(compiled):
        if row.row.drop:
            rows = rows.without_last(row.row.drop, parser.shortened)
        if row.chunk:
            rows = rows.extended([parser.section(row.chunk, row.row.tokens, row.row.items)])
    return last.followed_by(_set_time(compiled.record, last, len(rows.sections), time), rows, parser)


def _list_rows(compiled: Compiled) -> Sequence[StoredRow | NewRow]:
    new, order = compiled.rows.new_rows, compiled.rows.order
    if order is None:
        return [*compiled.snapshot.cached.rows, *new]
    return [new[each] if isinstance(each, int) else each for each in order]


def _set_time(record: RequestRecord, last: RequestView, rows: int, time: int) -> RequestRecord:
    """Return a record with its time. If other software sent the last request, it has breakpoints as that one."""
    facts = last.observed
    if facts is None:
        return replace(record, time=time)
    marks = {row: some for row, some in facts.marks.items() if row < rows}
    if facts.marks and rows:
        *_, (_, text) = facts.marks[max(facts.marks)]
        marks[rows - 1] = ((END, text),)
    return replace(record, observed=ObservedFacts(began=time, ended=time, marks=marks))


def _expect_read(rules: CacheRules, recent: Sequence[RequestView], now: RequestView) -> ExpectedCache:
    model = CacheModel(find_ignored_blocks(recent))
    for each in recent:
        own = find_cache_rules(each)
        if own is not None and each.status in CACHING_STATUSES and not each.is_without_answer:
            model.add(own, each, model.expect(own, each))
    outlook = model.expect(rules, now)
    branch, comparison, read = outlook.branch, outlook.comparison, outlook.tokens
    possible = read
    if comparison is not None:  # what was measured of the earlier request is at most what is left of it
        cached = comparison.before.input // rules.block * rules.block
        possible = min(cached, count_readable_tokens(rules, comparison, outlook.prefix.unexpired))
        read = min(cached, read)
    missed = _find_repeated_miss(now.channel.conversation, recent) if read else None
    if missed is not None:
        read = min(read, missed.read)
    last = recent[-1].usage or Usage()
    usage = replace(_make_usage(rules, now, read), tier=last.tier, speed=last.speed, region=last.region)
    applied = apply_price(now.model, usage) if now.model is not None else None
    entries = branch.entries if branch is not None else []
    return ExpectedCache(
        usage=usage,
        is_expired=bool(entries) and all([each.is_probably_expired(now.began) for each in entries]),
        paid_again=possible - read,
        dollars=compute_miss_cost(applied.price, usage, possible - read) if applied is not None else None,
        cost_is_lower_bound=applied is not None and applied.is_lower_bound,
        idle=now.began - max([each.ended for each in entries]) if entries else 0,
        life=max([each.life for each in entries], default=0),
        missed=missed,
    )


def _find_repeated_miss(conversation: str, recent: Sequence[RequestView]) -> RepeatedMiss | None:
    """Return the misses of the last requests, if each of them missed for a reason that is likely to remain."""
    reads: list[int] = []
    named: tuple[str, str, str] | None = None
    for case in reversed(list(iter_cases(ConversationView(conversation, recent)))):
        found = explain_miss(case) if case.is_reported and not case.is_first else None
        if found is None or found[0].cause in PASSING:
            break
        code, diagnosis = found
        named = named or (code.code, code.cause, diagnosis.title or code.title)
        reads.append(case.read)
    if named is None or len(reads) < MIN_MISSES:
        return None
    code, cause, title = named
    return RepeatedMiss(count=len(reads), code=code, cause=cause, title=title, read=max(reads))


def _make_usage(rules: CacheRules, now: RequestView, read: int) -> Usage:
    """Return the usage of a request that reads some tokens, and writes what follows them up to its last breakpoint."""
    written = 0
    if rules.explicit and now.marks:
        end = min(now.charged_before(max(now.marks) + 1), now.input)
        written = end - read if end >= max(rules.minimum, read) else 0
    return with_long_writes(Usage(input=now.input, cache_read=read, cache_write=written), now.marks)
