"""The causes of cache misses: one function per cause, and the requests that they explain.

A request is compared with the earlier request that it has most in common with. If it read less than it could have, the
functions are called in an order: causes outside of the content first, then the first difference in the order in which
providers cache, then the rules of the cache. The first that applies is the cause.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Literal, NamedTuple, TypeAlias

from msgspec import Struct

from contextc._json import JSON, encode
from contextc.analysis.cache_model import CACHING_STATUSES, CacheModel, CacheOutlook, count_readable_tokens
from contextc.analysis.cache_rules import MEDIA, CacheRules, find_cache_rules, read_field
from contextc.analysis.changed_text import (
    DESCRIPTIONS,
    TextChange,
    count_common,
    count_common_end,
    find_leaf,
    recognise,
)
from contextc.analysis.finding import Evidence, Finding, shorten
from contextc.analysis.prefix_comparison import (
    Comparison,
    MessageChange,
    classify_message_change,
    count_equal,
    count_equal_rows,
    count_repeated_tokens,
    find_reformatted,
    is_system_element,
    reordered_tools,
)
from contextc.analysis.registry import FindingCode, get_code, register_code
from contextc.analysis.request_elements import Element, text_of
from contextc.analysis.request_view import ConversationView, RequestView
from contextc.models.model_info import MILLION
from contextc.store.ledger_schema import Channel

MISSED_TOKENS = 1_024
MISSED_SHARE = 0.05
SAME_EFFECT = 0.8
SIMILAR = 0.5
FIRST_MESSAGES = 64
MAX_SILENT = 4
SURELY_LONG = 1.25
COMPACTED = ("compacted by the client", "compaction")
SUMMARY_WORDS = re.compile(
    r"summar|compact(?:ed|ion)|condensed|snapshot|recap\b|continued from a previous|started to solve this problem"
    r"|conversation (?:so far|to date)|spoke to you previously",
    re.IGNORECASE,
)
SUMMARY_SHARE = 0.7
SHORT_SUMMARY, SUMMARY_LENGTH = 120, 600
"""Characters of a text that is taken for a summary: if it says so, and if it does not."""
UNRELATED_SETTINGS = frozenset((
    *("model", "max_tokens", "max_completion_tokens", "max_output_tokens", "stream", "stream_options"),
    *("temperature", "top_p", "top_k", "stop", "stop_sequences", "seed", "metadata", "user"),
    *("safety_identifier", "n", "store", "include", "truncation", "background", "cache_control"),
    *("prompt_cache_options", "prompt_cache_retention", "presence_penalty", "frequency_penalty"),
    *("logprobs", "top_logprobs", "logit_bias", "parallel_tool_calls", "tool_choice", "generationConfig"),
    *("inferenceConfig", "requestMetadata", "safetySettings", "client_metadata", "diagnostics"),
))  # fmt: skip
"""Settings that are no part of a prefix."""
Part: TypeAlias = Literal["", "settings", "tools", "system", "messages"]


class Diagnosis(Struct, frozen=True, kw_only=True):
    """The cause of one miss: its evidence, and a more specific title and fix than those of its code."""

    evidence: tuple[Evidence, ...]
    title: str = ""
    fix: str = ""
    confidence: float = 0.95


class MissCase:
    """A request, what precedes it, and what it could have read.

    `previous` is the request before it in the same conversation, of any model. `read` are the tokens that were read
    from the cache, as the provider reported them, or else as expected. If it `is_first`, it is the first request of its
    conversation to its model, and is compared with those of other conversations of the session.
    """

    def __init__(
        self,
        now: RequestView,
        rules: CacheRules,
        outlook: CacheOutlook,
        previous: RequestView | None,
        *,
        reports: bool,
        is_first: bool = False,
    ) -> None:
        self.now, self.rules, self.outlook, self.previous, self.is_first = now, rules, outlook, previous, is_first
        usage = now.usage if reports else None
        self.is_reported = usage is not None
        self.read = usage.cache_read if usage is not None else outlook.tokens

    @property
    def comparison(self) -> Comparison | None:
        return self.outlook.comparison

    @cached_property
    def is_other_model(self) -> bool:
        """True if the previous request went to another model, and this one has more in common with it than with all
        earlier ones of its own model.
        """
        previous = self.previous
        if previous is None or _scope(previous) == _scope(self.now):
            return False
        if self.comparison is None or self.is_first:
            return _continues(previous, self.now)
        return count_equal_rows(previous, self.now) > count_equal_rows(self.comparison.before, self.now)

    @cached_property
    def potential(self) -> int:
        """The tokens that could have been read if nothing had broken: what the earlier request had sent too."""
        comparison, now = self.comparison, self.now
        if comparison is None:
            return 0
        if comparison.is_extension:
            return round(now.tokens_before(comparison.before.count) * now.scale)
        if self.is_compaction:
            return now.input
        before, shared = comparison.before, comparison.shared
        repeated = count_repeated_tokens(before, now, shared)
        if not repeated and self._is_similar_element(comparison.equal):
            repeated = now.tokens_before(comparison.equal + 1) - now.tokens_before(shared)
        return round((now.tokens_before(shared) + repeated) * now.scale)

    def _is_similar_element(self, index: int) -> bool:
        comparison = self.comparison
        if comparison is None or index >= min(comparison.before.count, self.now.count):
            return False
        one, other = comparison.before.at(index).element, self.now.at(index).element
        if (one.kind, one.role) != (other.kind, other.role):
            return False
        old, new = one.text, other.text
        if recognise(old, new).kind not in ("text", "shortened"):
            return True
        start, size = count_common(old, new), min(len(old), len(new))
        same = start + count_common_end(old, new, size - start)
        return one.kind != "message" and same > SIMILAR * max(len(old), len(new))

    @property
    def missed(self) -> int:
        return max(0, self.potential - self.read)

    @property
    def missed_of_previous(self) -> int:
        """The tokens of the previous request, of whatever model, that were not read."""
        return max(0, min(self.previous.input, self.now.input) - self.read) if self.previous is not None else 0

    @property
    def threshold(self) -> float:
        """The number of missed tokens from which on a miss is a finding."""
        return max(MISSED_TOKENS, self.rules.block, self.potential * MISSED_SHARE)

    # ── the first difference ──────────────────────────────────────────────────────────────────────────────────────────

    @cached_property
    def break_part(self) -> Part:
        """The part of the request with the first difference in cache order; "" if the prefix is the same."""
        comparison = self.comparison
        if comparison is None or comparison.is_extension:
            return "" if self.reformatted is None else self.part_at(self.reformatted)
        if comparison.shared < comparison.equal:
            return "settings"
        return self.part_at(comparison.equal)

    @cached_property
    def break_at(self) -> int:
        """The index of the first different element."""
        assert self.comparison is not None
        return self.reformatted if self.reformatted is not None else self.comparison.equal

    @cached_property
    def reformatted(self) -> int | None:
        """The index of an element that is the same content in other bytes, where the provider's figures show a miss."""
        comparison = self.comparison
        if comparison is None or not comparison.is_extension or not self.is_reported:
            return None
        if self.outlook.tokens < self.potential - self.threshold:
            return None
        index = find_reformatted(comparison.before, self.now)
        if index is None or self.read > self.now.tokens_before(index) * self.now.scale + self.threshold:
            return None
        return index

    def part_at(self, index: int) -> Part:
        """Return the part of the request to which an element belongs."""
        comparison = self.comparison
        assert comparison is not None
        ends = comparison.before.head_ends, self.now.head_ends
        if any(index < each[0] for each in ends):
            return "tools"
        if any(index < each[2] for each in ends):
            return "system"
        views = [view for view in (comparison.before, self.now) if index < view.count]
        if any(b'"additional_tools"' in each.at(index).element.raw[:200] for each in views):
            return "tools"
        return "system" if views and all(is_system_element(each, index) for each in views) else "messages"

    @cached_property
    def message_change(self) -> MessageChange:
        """How the messages differ from the first different element on."""
        if self.comparison is None or self.reformatted is not None:
            return "changed"
        return classify_message_change(self.comparison.before, self.now, self.break_at)

    @cached_property
    def is_compaction(self) -> bool:
        """True if a summary replaced earlier messages."""
        comparison = self.comparison
        if comparison is None or comparison.is_extension:
            return False
        return _is_compaction(comparison.before, self.now)

    @cached_property
    def is_expired(self) -> bool:
        """True if everything that the earlier request left in the cache may have expired."""
        branch, time = self.outlook.branch, self.now.began
        return branch is not None and bool(branch.entries) and all(each.is_expired(time) for each in branch.entries)

    @property
    def is_never_written(self) -> bool:
        """True if neither this request nor the earlier one has a breakpoint, so that nothing could be cached."""
        branch = self.outlook.branch
        return self.rules.explicit and branch is not None and not branch.entries and not branch.tip.marks

    @cached_property
    def other_settings(self) -> tuple[str, ...]:
        """Changed settings that are not known to be part of the prefix, and may be."""
        if self.comparison is None or self.comparison.before.settings is self.now.settings:
            return ()
        before, now = self.comparison.before.settings, self.now.settings
        names = [name for name in {**before, **now} if before.get(name) != now.get(name)]
        return tuple([name for name in names if name not in UNRELATED_SETTINGS])

    def tokens_at(self, position: int) -> int:
        """Return the tokens of a readable prefix."""
        return count_readable_tokens(self.rules, self.comparison, position) if self.comparison is not None else 0

    # ── evidence ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def evidence(self, path: str = "", before: str = "", after: str = "") -> Evidence:
        return Evidence(
            request=self.now.number, channel=self.now.channel_id, path=path, before=before, after=after
        )  # fmt: skip

    def element_evidence(self, index: int, *, is_whole: bool = False) -> tuple[Evidence, TextChange]:
        """Return evidence for a difference at an element, and what changed there. `is_whole`: it is another element,
        not another version of the same one.
        """
        assert self.comparison is not None
        before, now = self.comparison.before, self.now
        old = before.at(index) if index < before.count else None
        new = now.at(index) if index < now.count else None
        place = new or old
        assert place is not None
        one, other = old and old.element, new and new.element
        if one and other and ((one.kind, one.role, one.type) != (other.kind, other.role, other.type) or is_whole):
            change, path = TextChange("text", shorten(one.text), shorten(other.text)), ""
        else:
            change, path = compare_elements(one, other)
        return self.evidence(place.path + path, change.before, change.after), change


def compare_elements(old: Element | None, new: Element | None) -> tuple[TextChange, str]:
    """Return what changed between two elements, and the path of the change within them."""
    if old is None or new is None:
        text = shorten((old or new or _NOTHING).text) if (old or new) else ""
        return TextChange("text", text if old else "", text if new else ""), ""
    one: JSON = old.value
    other: JSON = new.value
    if (isinstance(one, str) or isinstance(other, str)) and type(one) is not type(other):
        one, other = text_of(one), text_of(other)
    leaf = find_leaf(one, other)
    before, after = (_text_of_leaf(each) for each in (leaf.before, leaf.after))
    return recognise(before, after), leaf.path


_NOTHING = Element("message", "text", "", "", "", b"", b'""', "")


def _text_of_leaf(value: JSON) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else encode(value).decode()


CauseFunction: TypeAlias = Callable[[MissCase], Diagnosis | None]
_causes: list[tuple[FindingCode, CauseFunction]] = []


def cause(code: str, name: str, *, title: str, fix: str) -> Callable[[CauseFunction], CauseFunction]:
    """Register a function that recognises one cause."""

    def register(function: CauseFunction) -> CauseFunction:
        _causes.append((register_code(code, name, title=title, fix=fix, description=function.__doc__), function))
        return function

    return register


# ── causes, in the order in which they are checked ────────────────────────────────────────────────────────────────────


@cause(
    "CAC003",
    "model_changed",
    title="Another model was used than in the request before",
    fix="Keep one model per conversation, or switch at a point where the context is short.",
)
def model_changed(case: MissCase) -> Diagnosis | None:
    """The conversation continues on another model or provider. Each model has a cache of its own, so nothing that an
    earlier model cached can be read.
    """
    previous = case.previous
    if previous is None or not case.is_other_model or case.missed_of_previous < MISSED_TOKENS:
        return None
    old, new = (f"{each.channel.provider}:{each.channel.model}" for each in (previous, case.now))
    return Diagnosis(evidence=(case.evidence("model", old, new),))


@cause(
    "CAC001",
    "first_request",
    title="First request: nothing could have been read from the cache",
    fix="Nothing to do.",
)
def first_request(case: MissCase) -> Diagnosis | None:
    """No earlier request had a prefix that this one could have read. This is no loss, and never an alarm."""
    return Diagnosis(evidence=(case.evidence(),), confidence=1.0) if case.is_first else None


@cause(
    "CAC002",
    "below_minimum",
    title="The prefix is shorter than the model caches",
    fix="Nothing to do while a conversation is short. With many short ones, a longer common prefix can be cheaper.",
)
def below_minimum(case: MissCase) -> Diagnosis | None:
    """The part that both requests have in common is shorter than the minimum that the model caches."""
    if case.potential >= case.rules.minimum or case.read:
        return None
    return Diagnosis(evidence=(case.evidence("", f"{case.potential:,} tokens", f"minimum {case.rules.minimum:,}"),))


@cause(
    "CAC014",
    "compacted",
    title="A summary replaced earlier messages",
    fix="Compact rarely, and only when the window requires it: each time, the context is paid for again.",
)
def compacted(case: MissCase) -> Diagnosis | None:
    """The client or the compiler replaced earlier messages by a summary. What follows the system prompt is new to the
    cache.
    """
    if not case.is_compaction or case.break_part not in ("messages", "settings"):
        return None
    return Diagnosis(evidence=(case.element_evidence(case.break_at, is_whole=True)[0],))


@cause(
    "CAC010",
    "settings_changed",
    title="A setting changed that is part of the cached prefix",
    fix="Keep settings such as tool choice, reasoning effort, thinking and output format constant in a conversation.",
)
def settings_changed(case: MissCase) -> Diagnosis | None:
    """A setting of the request changed, and the provider does not use what it cached with another value."""
    comparison = case.comparison
    if case.break_part != "settings" or comparison is None:
        return None
    values = [
        (name, *(_show_setting(each, name) for each in (comparison.before, case.now)))
        for name, _ in comparison.settings
    ]
    names = ", ".join([name for name, *_ in values])
    evidence = tuple([case.evidence(name, before, after) for name, before, after in values])
    return Diagnosis(evidence=evidence, title=f"A setting changed that is part of the cached prefix: {names}")


@cause(
    "CAC005",
    "tools_reordered",
    title="The tools have another order than in the request before",
    fix="Send the tools in a fixed order, for example sorted by name.",
)
def tools_reordered(case: MissCase) -> Diagnosis | None:
    """The request has the same tools as the one before, in another order. Tools come first in the prefix, so nothing
    after them can be read.
    """
    if case.break_part != "tools" or case.comparison is None:
        return None
    if not reordered_tools(case.comparison.before, case.now):
        return None
    names = [shorten(", ".join([tool.name for tool in view.tools.elements]))
             for view in (case.comparison.before, case.now)]  # fmt: skip
    return Diagnosis(evidence=(case.evidence(case.element_evidence(case.break_at)[0].path, *names),))


@cause(
    "CAC004",
    "tools_changed",
    title="The tools changed",
    fix="Declare all tools from the start of the conversation, and keep their descriptions constant.",
)
def tools_changed(case: MissCase) -> Diagnosis | None:
    """A tool was added, removed or described differently. Tools come first in the prefix, so nothing after the first
    different tool can be read.
    """
    if case.break_part != "tools" or case.comparison is None:
        return None
    old, new = ({tool.name for tool in view.tools.elements} for view in (case.comparison.before, case.now))
    evidence, change = case.element_evidence(case.break_at)
    if old != new:
        gone, added = sorted(old - new), sorted(new - old)
        words = [f"{count} {verb}: {shorten(', '.join(names), 80)}"
                 for count, verb, names in ((len(added), "added", added), (len(gone), "removed", gone))
                 if names]  # fmt: skip
        return Diagnosis(evidence=(evidence,), title=f"The tools changed ({'; '.join(words)})")
    return _describe(evidence, change, "A tool changed")


@cause(
    "CAC006",
    "system_changed",
    title="The system prompt changed",
    fix="Keep the system prompt constant. Put what changes at the end of the conversation.",
)
def system_changed(case: MissCase) -> Diagnosis | None:
    """The system prompt differs from that of the request before. Nothing after the difference can be read."""
    if case.break_part != "system":
        return None
    return _describe(*case.element_evidence(case.break_at), "The system prompt changed")


@cause(
    "CAC008",
    "message_removed",
    title="Earlier messages were removed",
    fix="Remove old messages rarely and many at a time, so that most requests extend the one before.",
)
def message_removed(case: MissCase) -> Diagnosis | None:
    """Whole messages that the request before contained are missing, and messages that followed them are still there."""
    return _message_case(case, "removed", "")


@cause(
    "CAC009",
    "message_inserted",
    title="A message was inserted before earlier ones",
    fix="Add new messages at the end only.",
)
def message_inserted(case: MissCase) -> Diagnosis | None:
    """A message is new, but not at the end: messages that the request before contained follow it."""
    return _message_case(case, "inserted", "")


@cause(
    "CAC007",
    "message_changed",
    title="An earlier message changed",
    fix="Send earlier messages again exactly as they were sent first.",
)
def message_changed(case: MissCase) -> Diagnosis | None:
    """The content of an earlier message changed: a result was shortened, reasoning or a reminder was removed, text was
    encoded differently.
    """
    return _message_case(case, "changed", "An earlier message changed") or _message_case(
        case, "replaced", "An earlier message changed"
    )


def _message_case(case: MissCase, kind: str, subject: str) -> Diagnosis | None:
    if case.break_part != "messages" or case.message_change != kind:
        return None
    evidence, change = case.element_evidence(case.break_at, is_whole=not subject)
    return _describe(evidence, change, subject) if subject else Diagnosis(evidence=(evidence,))


def _describe(evidence: Evidence, change: TextChange, subject: str) -> Diagnosis:
    """Return a diagnosis that names what changed."""
    words, fix = DESCRIPTIONS[change.kind]
    title = f"{subject}: {words}" if change.kind != "text" else subject
    return Diagnosis(evidence=(evidence,), title=title, fix=fix if change.kind != "text" else "")


@cause(
    "CAC011",
    "cache_expired",
    title="The cache had expired",
    fix="Continue sooner, set a longer ttl where pauses are common, or accept the cost after a long pause.",
)
def cache_expired(case: MissCase) -> Diagnosis | None:
    """More time passed since the last request with this prefix than the provider keeps it."""
    prefix, branch = case.outlook.prefix, case.outlook.branch
    if branch is None or case.tokens_at(prefix.unexpired) - case.tokens_at(prefix.fresh) <= case.threshold:
        return None
    entry = max(branch.entries, key=lambda each: each.position)
    idle = case.now.began - max([each.used for each in branch.entries])
    is_sure = entry.is_surely_expired(case.now.began)
    words = f"{idle / 60_000:,.1f} minutes without a request", f"kept for {entry.life / 60_000:,.0f} minutes"
    return Diagnosis(evidence=(case.evidence("", *words),), confidence=0.95 if is_sure else 0.7)


@cause(
    "CAC015",
    "parallel_request",
    title="The request before was still being answered",
    fix="Wait for the first words of one reply before sending requests with the same prefix.",
)
def parallel_request(case: MissCase) -> Diagnosis | None:
    """The request began before the reply to the one that writes its prefix. A cache can be read only after that."""
    prefix = case.outlook.prefix
    if case.tokens_at(prefix.ready) - case.tokens_at(prefix.position) <= case.threshold:
        return None
    return Diagnosis(evidence=(case.evidence(),), confidence=0.85)


@cause(
    "CAC012",
    "breakpoint_missing",
    title="No cache breakpoint covers the earlier messages",
    fix="Set a cache breakpoint at the last message of every request.",
)
def breakpoint_missing(case: MissCase) -> Diagnosis | None:
    """The provider caches only up to breakpoints. The request, or the one before, has none near its end."""
    prefix, comparison = case.outlook.prefix, case.comparison
    if not case.rules.explicit or comparison is None:
        return None
    if case.tokens_at(prefix.written) < case.potential - case.threshold:
        marks = comparison.before.marks
        last = comparison.before.at(max(marks)).path if marks else "none"
        return Diagnosis(evidence=(case.evidence("", f"last breakpoint of the request before: {last}"),))
    if case.tokens_at(prefix.found) - case.tokens_at(prefix.position) <= case.threshold:
        return None
    if case.now.marks and max(case.now.marks) + 1 >= prefix.found:
        return None
    last = case.now.at(max(case.now.marks)).path if case.now.marks else "none"
    return Diagnosis(evidence=(case.evidence("", "", f"last breakpoint of this request: {last}"),))


@cause(
    "CAC013",
    "lookback_exceeded",
    title="The last cached block is too far before the breakpoints",
    fix="Set a further breakpoint where the request before ended, or at least every 15 blocks.",
)
def lookback_exceeded(case: MissCase) -> Diagnosis | None:
    """A breakpoint finds only what was cached a limited number of blocks before it. More blocks than that were added
    since the request before.
    """
    prefix = case.outlook.prefix
    if case.tokens_at(prefix.found) - case.tokens_at(prefix.position) <= case.threshold:
        return None
    path = case.now.at(prefix.found - 1).path
    return Diagnosis(evidence=(case.evidence(path, "", f"{case.rules.lookback} positions are searched"),))


@cause(
    "CAC016",
    "provider_missed",
    title="The provider did not use its cache",
    fix="Nothing in the request explains it. Send a stable cache key or session id, so that requests reach one server.",
)
def provider_missed(case: MissCase) -> Diagnosis | None:
    """The prefix is the same, it was written in time, and the provider reports that it was not read. Caches are not
    guaranteed: another server may have answered, or the entry was evicted.
    """
    words = f"expected {case.outlook.tokens:,} tokens", f"read {case.read:,}"
    if case.other_settings and case.is_reported:
        return None
    return Diagnosis(evidence=(case.evidence("", *words),), confidence=0.5) if case.is_reported else None


def unknown_setting_changed(case: MissCase) -> Diagnosis | None:
    """Return a diagnosis for a setting that is not known to be part of the prefix, if nothing else explains a miss."""
    if not case.other_settings or case.comparison is None or not case.is_reported:
        return None
    views = case.comparison.before, case.now
    evidence = [case.evidence(name, *(_show_setting(each, name) for each in views)) for name in case.other_settings]
    return Diagnosis(
        evidence=tuple(evidence),
        title=f"A setting changed that may be part of the cached prefix: {', '.join(case.other_settings)}",
        confidence=0.4,
    )


# ── a conversation ────────────────────────────────────────────────────────────────────────────────────────────────────


def find_cache_misses(view: ConversationView) -> Iterator[Finding]:
    """Return at most one finding per request."""
    for case in iter_cases(view):
        found = explain_miss(case)
        if found is not None:
            yield _make_finding(view.name, case, *found)


class _Request(NamedTuple):
    """A request that uses a cache, before it is known whether its provider reports what was read."""

    now: RequestView
    rules: CacheRules
    outlook: CacheOutlook
    previous: RequestView | None
    is_first: bool


def iter_cases(view: ConversationView) -> Iterator[MissCase]:
    """Return all requests that use a cache, each with what it could have read."""
    found = list(_iter_requests(view))
    channels = _find_reporting(found)
    for now, rules, outlook, previous, is_first in found:
        yield MissCase(now, rules, outlook, previous, reports=now.channel in channels, is_first=is_first)


def _iter_requests(view: ConversationView) -> Iterator[_Request]:
    models: dict[tuple[str, ...], CacheModel] = {}
    ignored = find_ignored_blocks(view.requests)
    previous: dict[tuple[str, str], RequestView] = {}
    for now in view.requests:
        rules = find_cache_rules(now)
        if rules is None or now.status not in CACHING_STATUSES or is_without_answer(now):
            continue
        flow = (now.channel.agent, now.channel.directory)
        model = models.setdefault((*flow, *_scope(now)), CacheModel(ignored))
        outlook = model.expect(rules, now)
        is_first = outlook.comparison is None
        shown = _compare_with_others(rules, now, view.overlapping) if is_first and view.overlapping else outlook
        yield _Request(now, rules, shown, previous.get(flow), is_first)
        model.add(rules, now, outlook)
        previous[flow] = now


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
        return each.outlook.tokens > 0
    marks = each.now.marks
    return bool(marks) and each.now.tokens_before(max(marks) + 1) * each.now.scale > each.rules.minimum * SURELY_LONG


def _compare_with_others(rules: CacheRules, now: RequestView, others: Sequence[RequestView]) -> CacheOutlook:
    """Return what a first request could read from requests of other conversations."""
    model = CacheModel()
    for other in others:
        if other.began <= now.began and _scope(other) == _scope(now):
            model.add(rules, other, model.expect(rules, other))
    return model.expect(rules, now)


def find_ignored_blocks(requests: Sequence[RequestView]) -> frozenset[str]:
    """Return the paths of system blocks that the provider leaves out of its prefix, such as an attribution line: they
    changed, and the provider reports that it read more than what precedes them.
    """
    found: set[str] = set()
    last: dict[Channel, RequestView] = {}
    for now in requests:
        before, last[now.channel] = last.get(now.channel), now
        if before is None or before.head is now.head or now.usage is None or not now.usage.cache_read:
            continue
        while True:
            equal = count_equal(before, now, found)
            tools, _, end = now.head_ends
            if not tools <= equal < min(end, before.head_ends[2]):
                break
            if now.usage.cache_read <= now.tokens_before(equal + 1) * now.scale + MISSED_TOKENS:
                break
            path = now.at(equal).element.suffix
            if path in found:
                break
            found.add(path)
    return frozenset(found)


def is_without_answer(now: RequestView) -> bool:
    """Return True if a request only counted tokens, or continues a session of the provider."""
    is_count = now.observed is not None and now.status == "ok" and now.usage is None and not now.record.produced
    return is_count or now.is_session


def explain_miss(case: MissCase) -> tuple[FindingCode, Diagnosis] | None:
    """Return the cause of a miss; None if the cache was read as it should have been."""
    if case.is_first:
        if case.read:
            return None
        return _first(case, [model_changed, parallel_request, first_request])
    if case.potential < case.rules.minimum:
        return _first(case, [below_minimum]) if case.potential else None
    if case.missed < case.threshold:
        return None
    if case.is_other_model:
        return _first(case, [model_changed])
    if case.is_never_written:
        return _first(case, [breakpoint_missing])
    found = _first(case, [function for _, function in _causes if function not in (first_request, below_minimum)])
    if found is None and (guess := unknown_setting_changed(case)) is not None:
        return get_code("settings_changed"), guess
    return found


def _first(case: MissCase, functions: Sequence[CauseFunction]) -> tuple[FindingCode, Diagnosis] | None:
    codes = {function: code for code, function in _causes}
    return next(
        ((codes[function], found) for function in functions if (found := function(case)) is not None), None
    )  # fmt: skip


def find_other_causes(case: MissCase, main: str) -> Iterator[str]:
    """Return further causes that alone would have had the same effect."""
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
        return total - now.tokens_before(index) * now.scale >= least

    tools, system, rows = (_count_in_part(before, now, part) for part in range(3))
    if main not in ("tools_changed", "tools_reordered") and tools is not None and loses(tools):
        yield "tools_reordered" if reordered_tools(before, now) else "tools_changed"
    if main != "system_changed" and system is not None and loses(system):
        yield "system_changed"
    if main != "settings_changed" and any(
        loses({"all": 0, "system": now.head_ends[0], "messages": now.head_ends[2]}[tier])
        for _, tier in comparison.settings
    ):
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
    same = next(
        (at for at, (old, new) in enumerate(zip(one, other, strict=False)) if old != new), min(map(len, (one, other)))
    )
    return same + (now.head_ends[0] if part else 0)


def _make_finding(conversation: str, case: MissCase, code: FindingCode, found: Diagnosis) -> Finding:
    tokens = 0 if code.cause == "first_request" else case.missed
    if code.cause == "model_changed":
        tokens = case.missed_of_previous
    confidence = found.confidence if case.is_reported or code.cause == "first_request" else found.confidence * 0.75
    return code.make(
        conversation,
        found.evidence,
        tokens=tokens,
        cost=compute_cost(case, tokens),
        title=found.title,
        fix=found.fix,
        confidence=round(confidence, 2),
        also=tuple(dict.fromkeys(find_other_causes(case, code.cause))) if tokens else (),
    )


def compute_cost(case: MissCase, tokens: int) -> float | None:
    """Return what missed tokens cost more than a read from the cache, in dollars; None if the price is unknown."""
    price = case.now.price
    if price is None:
        return None
    usage = case.now.usage
    is_written = usage.cache_write > 0 if usage is not None else case.rules.explicit and bool(case.now.marks)
    paid = price.cache_write if is_written else price.input
    return max(0.0, tokens * (paid - price.cache_read) / MILLION)


def _is_compaction(before: RequestView, now: RequestView) -> bool:
    if now.record.why in COMPACTED:
        return True
    same = count_equal_rows(before, now)
    old_at, new_at = before.head_ends[2] + same, now.head_ends[2] + same
    if same >= before.rows.count or now.message_count >= before.message_count:
        return False
    added = now.elements(new_at)
    known = {each.key for each in before.elements(old_at)}
    if any(each.type == "compaction" and each.key not in known for each in added):
        return True
    index = next((index for index, each in enumerate(added) if each.key not in known), None)
    if index is None or added[index].type != "text" or before.message_count - now.message_count < 1:
        return False
    text = added[index].text
    if len(text) >= SHORT_SUMMARY and SUMMARY_WORDS.search(text[:2_000]):
        return True
    old_size, new_size = before.estimated - before.tokens_before(old_at), now.estimated - now.tokens_before(new_at)
    has_more = any(each.key in known for each in added[index + 1 :])
    return has_more and len(text) > SUMMARY_LENGTH and new_size <= old_size * SUMMARY_SHARE


def _continues(previous: RequestView, now: RequestView) -> bool:
    """Return True if a request has messages of another one, in any format."""
    known = {each.key for each in previous.elements(previous.head_ends[2])[:FIRST_MESSAGES]}
    return any(each.key in known for each in now.elements(now.head_ends[2])[:FIRST_MESSAGES])


def _scope(request: RequestView) -> tuple[str, str]:
    return request.channel.provider, request.channel.model


def _show_setting(request: RequestView, name: str) -> str:
    if name == MEDIA:
        return "no media" if request.rows.media is None else "media"
    value = read_field(request.settings, name)
    return "not set" if value is None else shorten(value if isinstance(value, str) else encode(value).decode())


def all_causes() -> Iterable[str]:
    """Return the names of all causes."""
    return [code.cause for code, _ in _causes]
