"""The causes of cache misses: a request that used a cache, and one function per cause, in the order of the checks."""

import re
from collections.abc import Callable
from functools import cached_property
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from contextc._json import JSON, encode
from contextc._sequence_comparison import count_common_ends
from contextc.analysis.appendable_changes import AppendableChange, find_appendable_effort, find_appendable_tools
from contextc.analysis.cache_model import (
    MAX_SEARCH,
    MEDIA,
    CacheOutlook,
    CacheRules,
    Comparison,
    MessageChange,
    classify_message_change,
    count_equal_rows,
    count_known_tokens,
    count_readable_tokens,
    count_repeated_tokens,
    find_reformatted,
    is_system_element,
    read_field,
    reordered_tools,
)
from contextc.analysis.changed_content import (
    DESCRIPTIONS,
    MOVED_FIX,
    Move,
    TextChange,
    ToolChange,
    describe_way,
    find_leaf,
    find_move,
    find_tool_changes,
    is_reminder,
    name_block,
    recognise,
    summarize_tool_changes,
)
from contextc.analysis.finding import Evidence, FindingCode, RequestPlace, register_code, shorten
from contextc.analysis.request_elements import Element, RequestView, text_of
from contextc.inspection.prefix_break import MISSED_SHARE, MISSED_TOKENS
from contextc.store.ledger_schema import EpochReason

# ── a request that used a cache ───────────────────────────────────────────────────────────────────────────────────────
# One request that used a cache: the request it is compared with, what it could have read, and the first difference.


SIMILAR = 0.5
MAX_DIFFERENCE = 0.25
FIRST_MESSAGES = 64
COMPACTED = (EpochReason.CLIENT_COMPACTED, EpochReason.COMPACTED, EpochReason.PROVIDER_COMPACTED)
SUMMARY_WORDS = re.compile(
    r"summar|compact(?:ed|ion)|condensed|snapshot|recap\b|continued from a previous|started to solve this problem"
    r"|conversation (?:so far|to date)|spoke to you previously",
    re.IGNORECASE,
)
SUMMARY_SHARE, KEPT_SHARE = 0.7, 0.5
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


class MissCase:
    """A request, what precedes it, and what it could have read.

    `previous` is the request before it in the same conversation, of any model. `read` are the tokens that were read
    from the cache, as the provider reported them, or else as expected. If it `is_first`, it is the first request of its
    channel, and is compared with requests of other channels that were being answered when it began. `following` is
    the next request of the same conversation.
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
        following: RequestView | None = None,
    ) -> None:
        self.following = following
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
        if previous is None or previous.scope == self.now.scope:
            return False
        if self.comparison is None or self.is_first:
            # It continues the other request if it has messages of it, in any format.
            known = {each.key for each in previous.elements(previous.head_ends[2])[:FIRST_MESSAGES]}
            return any(each.key in known for each in self.now.elements(self.now.head_ends[2])[:FIRST_MESSAGES])
        return count_equal_rows(previous, self.now) > count_equal_rows(self.comparison.before, self.now)

    @property
    def models(self) -> tuple[str, str]:
        """The models of the previous request and of this one, each with its provider."""
        views = self.previous or self.now, self.now
        old, new = (f"{each.channel.provider}:{each.channel.model}" for each in views)
        return old, new

    @cached_property
    def potential(self) -> int:
        """The tokens that could have been read if nothing had broken: what the earlier request had sent too.

        If that is the whole earlier request, the provider's own count of it is used. The first request of a channel
        could have read what another one writes, if it had waited for that.
        """
        if self.is_first:
            return self.tokens_at(self.outlook.prefix.ready)
        estimate, comparison = self.estimated_potential, self.comparison
        if comparison is None or not comparison.is_extension or not self.is_reported:
            return estimate
        counted = min(comparison.before.input, self.now.input)
        return counted if abs(counted - estimate) < MAX_DIFFERENCE * estimate else estimate

    @cached_property
    def estimated_potential(self) -> int:
        """The same, from our own count of each element. It is never more than either request had in all: the sizes of
        images and documents can only be guessed, and our count of the same text is corrected differently per request.
        """
        comparison = self.comparison
        return min(self._count_potential(), self.now.input, comparison.before.input) if comparison is not None else 0

    def _count_potential(self) -> int:
        comparison, now = self.comparison, self.now
        assert comparison is not None
        if comparison.is_extension:
            return now.charged_before(comparison.before.count)
        if self.is_compaction:
            return comparison.before.input
        before, shared = comparison.before, comparison.shared
        is_moved = shared == comparison.equal and self.move is not None
        repeated = (count_known_tokens if is_moved else count_repeated_tokens)(before, now, shared)
        if not repeated and self._is_similar_element(comparison.equal):
            repeated = now.tokens_before(comparison.equal + 1) - now.tokens_before(shared)
        return now.overhead + round((now.tokens_before(shared) + repeated) * now.scale)

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
        return one.kind != "message" and sum(count_common_ends(old, new)) > SIMILAR * max(len(old), len(new))

    @property
    def was_read(self) -> bool:
        """True if the earlier request, which this one extends, was read from the cache."""
        comparison = self.comparison
        usage = comparison.before.usage if comparison is not None and comparison.is_extension else None
        return usage is not None and bool(usage.cache_read)

    @property
    def is_missed_before_break(self) -> bool:
        """True if both requests begin with almost all that could have been read: no difference explains the miss."""
        return self.comparison is not None and self.potential - self.comparison.shared_tokens < self.threshold

    @property
    def missed(self) -> int:
        return max(0, self.potential - self.read)

    @cached_property
    def missed_of_previous(self) -> int:
        """The tokens of the previous request, of whatever model, that this one has too, and that were not read."""
        previous, now = self.previous, self.now
        if previous is None:
            return 0
        least = min(previous.input, now.input)
        if not self.is_first:
            repeated = now.head_ends[2] + count_equal_rows(previous, now)
            least = min(least, now.charged_before(repeated))
        return max(0, least - self.read)

    @property
    def is_missed_of_previous(self) -> bool:
        """True if the previous request went to another model, and what it added is a miss by its size."""
        previous = self.previous
        if previous is None or not self.is_other_model:
            return False
        return self.missed_of_previous >= max(self.threshold, previous.input * MISSED_SHARE)

    @cached_property
    def repeated_after_break(self) -> int:
        """The missed tokens that follow the first difference, and that the earlier request had too."""
        if self.comparison is None or self.comparison.is_extension or self.is_compaction:
            return 0
        return min(self.missed, max(0, self.estimated_potential - self.comparison.shared_tokens))

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
        if self.outlook.tokens < self.estimated_potential - self.threshold:
            return None
        index = find_reformatted(comparison.before, self.now)
        if index is None or self.read > self.now.charged_before(index) + self.threshold:
            return None
        return index

    def part_at(self, index: int) -> Part:
        """Return the part of the request to which an element belongs."""
        comparison = self.comparison
        assert comparison is not None
        for part, *ends in zip(self.now.head_parts, comparison.before.head_ends, self.now.head_ends, strict=True):
            if index < max(ends):
                return part
        views = [view for view in (comparison.before, self.now) if index < view.count]
        if any(each.at(index).element.type == "tool" for each in views):
            return "tools"
        return "system" if views and all(is_system_element(each, index) for each in views) else "messages"

    @cached_property
    def message_change(self) -> MessageChange:
        """The kind of difference, from the first different element on."""
        if self.comparison is None or self.reformatted is not None:
            return "changed"
        return classify_message_change(self.comparison.before, self.now, self.break_at)

    @cached_property
    def removed_element(self) -> Element | None:
        """The first different element of the earlier request, if this one has what followed it, but not the element."""
        comparison, at = self.comparison, self.break_at
        if comparison is None or self.reformatted is not None or at >= min(comparison.before.count, self.now.count):
            return None
        old = comparison.before.elements(at)
        first = self.now.at(at).element.key
        if old[0].key == first or first not in {each.key for each in old[1:]}:
            return None
        return old[0]

    @cached_property
    def move(self) -> Move | None:
        """The later place of the first different block of the earlier request, if it moved, counted from the break."""
        comparison, at = self.comparison, self.break_at
        if comparison is None or self.reformatted is not None or at < self.now.head_ends[2]:
            return None
        return find_move(*(view.elements(at)[:MAX_SEARCH] for view in (comparison.before, self.now)))

    @cached_property
    def is_compaction(self) -> bool:
        """True if a summary replaced earlier messages."""
        comparison = self.comparison
        if comparison is None or comparison.is_extension:
            return False
        return _is_compaction(comparison.before, self.now)

    @cached_property
    def is_compaction_for_other_model(self) -> bool:
        """True if this is the first request to its model, which continues with the system prompt and the tools of
        another one, and with a summary of its messages.
        """
        previous = self.previous
        if not self.is_first or previous is None or previous.scope == self.now.scope:
            return False
        heads = [
            [each.key for section in view.head_sections for each in section.elements] for view in (previous, self.now)
        ]
        return heads[0] == heads[1] and _is_compaction(previous, self.now)

    @property
    def is_recorded_compaction(self) -> bool:
        """True if the client or the compiler compacted the conversation with this request."""
        return self.now.record.why in COMPACTED

    @property
    def is_summary_request(self) -> bool:
        """True if this request asked for the summary of a compaction: the next one continues with the summary, and with
        the tools and the system prompt from before.
        """
        previous, now, following = self.previous, self.now, self.following
        if previous is None or following is None or following.record.why not in COMPACTED:
            return False
        heads = [
            [each.key for section in view.head_sections[:2] for each in section.elements]
            for view in (previous, now, following)
        ]
        return heads[0] == heads[2] != heads[1]

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

    def evidence(
        self, path: str = "", before: str = "", after: str = "", *, compared: RequestView | None = None
    ) -> Evidence:
        """Return evidence for a change. `compared` is the earlier request, by default the most similar one."""
        other = compared or (self.comparison.before if self.comparison is not None else None)
        is_previous = other is None or (other.channel == self.now.channel and other.number == self.now.number - 1)
        return Evidence(
            request=self.now.number,
            channel=self.now.channel_id,
            path=path,
            before=before,
            after=after,
            compared=None
            if other is None or is_previous
            else RequestPlace(conversation=other.channel.conversation, channel=other.channel_id, request=other.number),
        )

    def facts(self, *words: str, path: str = "") -> Evidence:
        """Return evidence of one or two facts, where nothing changed."""
        return replace(self.evidence(path, *words), is_change=False)

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
        one, other = old.element if old else None, new.element if new else None
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
    if old.type == new.type == "media" and min(len(before), len(after)) >= MEDIA_TEXT:
        return TextChange("media", f"{len(before):,} characters", f"{len(after):,} characters"), leaf.path
    return recognise(before, after), leaf.path


MEDIA_TEXT = 100
"""Characters from which on a text of media is taken for its data, which tells a reader nothing."""
_NOTHING = Element("message", "text", "", "", "", b"", b'""', "")


def _text_of_leaf(value: JSON) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else encode(value).decode()


def _is_compaction(before: RequestView, now: RequestView) -> bool:
    if now.record.why in COMPACTED:
        return True
    is_shorter = now.message_count < before.message_count
    if is_shorter and any(_is_summary(each) for each in _added_instructions(before, now)):
        return True
    same = count_equal_rows(before, now)
    old_at, new_at = before.head_ends[2] + same, now.head_ends[2] + same
    if same >= before.rows.count:
        return False
    added = now.elements(new_at)
    known = {each.key for each in before.elements(old_at)}
    if any(each.type == "compaction" and each.key not in known for each in added):
        return True
    index = next((index for index, each in enumerate(added) if each.key not in known), None)
    if index is None or added[index].type != "text":
        return False
    kept = len(known & {each.key for each in added})
    if not is_shorter and kept > len(known) * KEPT_SHARE:
        return False
    if _is_summary(added[index]):
        return True
    old_size, new_size = before.estimated - before.tokens_before(old_at), now.estimated - now.tokens_before(new_at)
    has_more = any(each.key in known or each.type == "tool_call" for each in added[index + 1 :])
    return has_more and len(added[index].text) > SUMMARY_LENGTH and new_size <= old_size * SUMMARY_SHARE


def _is_summary(element: Element) -> bool:
    text = element.text
    return len(text) >= SHORT_SUMMARY and bool(SUMMARY_WORDS.search(text[:2_000]))


def _added_instructions(before: RequestView, now: RequestView) -> tuple[Element, ...]:
    """Return the leading system messages that were added after those of the earlier request."""
    old, new = before.leading.elements, now.leading.elements
    is_extension = len(new) > len(old) and [each.key for each in old] == [each.key for each in new[: len(old)]]
    return new[len(old) :] if is_extension and before.system.elements == now.system.elements else ()


# ── causes ────────────────────────────────────────────────────────────────────────────────────────────────────────────


MAX_TOOLS = 4
"""The number of tools that are evidence of one miss."""
REMOVED_PARTS = {
    "reasoning": "Reasoning was removed from an earlier message",
    "reminder": "A reminder was removed from an earlier message",
    "media": "Media were removed from an earlier message",
    "tool_result": "A tool result was removed from an earlier message",
}
"""Titles for parts of messages that were removed."""


class Diagnosis(Struct, frozen=True, kw_only=True):
    """The cause of one miss: its evidence, and a more specific title and fix than those of its code."""

    evidence: tuple[Evidence, ...]
    title: str = ""
    fix: str = ""
    confidence: float = 0.95


CauseFunction: TypeAlias = Callable[[MissCase], Diagnosis | None]
CAUSES: list[tuple[FindingCode, CauseFunction]] = []


def cause(code: str, name: str, *, title: str, fix: str) -> Callable[[CauseFunction], CauseFunction]:
    """Register a function that recognises one cause."""

    def register(function: CauseFunction) -> CauseFunction:
        CAUSES.append((register_code(code, name, title=title, fix=fix, description=function.__doc__), function))
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
    return Diagnosis(evidence=(case.evidence("model", *case.models, compared=previous),))


@cause(
    "CAC001",
    "first_request",
    title="First request: nothing could have been read from the cache",
    fix="Nothing to do.",
)
def first_request(case: MissCase) -> Diagnosis | None:
    """No earlier request begins like this one, so nothing could be read from the cache. It costs nothing extra."""
    return Diagnosis(evidence=(case.evidence(),), confidence=1.0) if case.is_first else None


@cause(
    "CAC002",
    "below_minimum",
    title="The prefix is shorter than the model caches",
    fix="Nothing to do while a conversation is short. With many short ones, a longer common prefix can be cheaper.",
)
def below_minimum(case: MissCase) -> Diagnosis | None:
    """The part that both requests have in common is shorter than the minimum that the model caches.

    It is reported if a cache breakpoint was set, or is not necessary, and if the requests of a channel repeat at least
    2,048 tokens in this way. A short conversation costs almost nothing.
    """
    if case.potential >= case.rules.minimum or case.read or (case.rules.explicit and not case.now.marks):
        return None
    return Diagnosis(evidence=(case.facts(f"{case.potential:,} tokens", f"minimum {case.rules.minimum:,}"),))


@cause(
    "CAC014",
    "compacted",
    title="A summary replaced earlier messages",
    fix="Compact rarely, and only when the window requires it: each time, the context is paid for again.",
)
def compacted(case: MissCase) -> Diagnosis | None:
    """The client or the compiler replaced earlier messages by a summary. What follows the system prompt is new to the
    cache. If the request was recorded as a compaction, other changes in it count as part of it, and are in `also`. The
    same is true of the request for the summary, which some clients send without tools. If another model continues with
    the summary, `also` has `model_changed`.
    """
    if case.is_first:
        if not case.is_compaction_for_other_model or case.missed_of_previous < MISSED_TOKENS:
            return None
        title = "A summary replaced earlier messages, and another model continues"
        return Diagnosis(evidence=(case.evidence("model", *case.models, compared=case.previous),), title=title)
    is_after_head = case.comparison is not None and case.break_at >= case.comparison.before.head_ends[2]
    if not case.is_compaction or not (case.break_part in ("messages", "settings") or is_after_head):
        return None
    return Diagnosis(evidence=(case.element_evidence(case.break_at, is_whole=True)[0],))


@cause(
    "CAC010",
    "settings_changed",
    title="A setting changed that is part of the cached prefix",
    fix="Keep settings such as tool choice, reasoning effort, thinking and output format constant in a conversation.",
)
def settings_changed(case: MissCase) -> Diagnosis | None:
    """A setting of the request changed, and the provider does not use what it cached with another value.

    If only the effort changed, and provider and model accept another effort as a message, title and fix say so, as for
    tools (CAC004).
    """
    comparison = case.comparison
    if case.break_part != "settings" or comparison is None:
        return None
    values = [
        (name, *(_show_setting(each, name) for each in (comparison.before, case.now)))
        for name, _ in comparison.settings
    ]
    names = ", ".join([name for name, *_ in values])
    evidence = tuple([case.evidence(name, before, after) for name, before, after in values])
    found = Diagnosis(evidence=evidence, title=f"A setting changed that is part of the cached prefix: {names}")
    return _with_appendable(found, find_appendable_effort(comparison))


TRIMMED = register_code(
    "CAC017",
    "trimmed",
    title="The context was trimmed to fit",
    fix="Trim rarely, and more at once: lower `low`, the share of the budget that is left, and keep the strategy "
    '"chunked". A larger budget, shorter tool results and summaries make it rarer too.',
    description="""
    The compiler shortened results or left out messages because the request was over its budget, as its manifest says,
    or `contextc proxy --fit` did. No user and no client changed anything. The fix is about the size of the trim
    ([compiler.md](compiler.md#trimming)).
    """,
)
"""It is found where a request differs from the one before, so no function of its own finds it."""


def _with_appendable(found: Diagnosis, change: AppendableChange | None) -> Diagnosis:
    """Return a diagnosis that says how the change could have been appended, if it could. What has a fix of its own,
    such as a clock in a definition, keeps it.
    """
    if change is None or found.fix:
        return found
    return replace(found, title=f"{found.title}; {change.words}", fix=change.fix)


@cause(
    "CAC005",
    "tools_reordered",
    title="The tools have another order than in the request before",
    fix="Send the tools in a fixed order, for example sorted by name.",
)
def tools_reordered(case: MissCase) -> Diagnosis | None:
    """The request has the same tools as the one before, in another order. Tools come first in the prefix, so nothing
    after them can be read. On Gemini, the system prompt comes before the tools, and can still be read.
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
    """A tool was added, removed or described differently. The evidence names up to four of them, each with its
    definition or with what changed in it. Tools come first in the prefix, so nothing after the first different tool can
    be read. On Gemini, the system prompt comes before the tools, and can still be read.

    Some providers and models accept such a change as a message, so that the prefix stays
    ([compiler.md](compiler.md#tools-that-come-and-go)). If they would have, and nothing else changed, the title says
    so, and the fix names the beta flags to allow.
    """
    if case.break_part != "tools" or case.comparison is None:
        return None
    changes = find_tool_changes(case.comparison.before, case.now)
    if not changes:  # a list of tools among the messages
        return _describe(*case.element_evidence(case.break_at), "A tool changed")
    if len(changes) == 1 and changes[0].kind == "changed":
        evidence, change = _tool_evidence(case, changes[0])
        name = shorten(changes[0].name, 80)
        found = _describe(evidence, change, f"The definition of the tool {name} changed")
    else:
        evidences = tuple([_tool_evidence(case, each)[0] for each in changes[:MAX_TOOLS]])
        found = Diagnosis(evidence=evidences, title=f"The tools changed ({summarize_tool_changes(changes)})")
    return _with_appendable(found, find_appendable_tools(case.comparison, changes))


def _tool_evidence(case: MissCase, change: ToolChange) -> tuple[Evidence, TextChange]:
    """Return evidence for a tool: its definition if it was added or removed, else the words that changed in it."""
    found, path = compare_elements(change.before, change.after)
    return replace(case.evidence(change.path + path, found.before, found.after), name=change.name), found


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
    return _message_case(case, "removed")


@cause(
    "CAC009",
    "message_inserted",
    title="A message was inserted before earlier ones",
    fix="Add new messages at the end only.",
)
def message_inserted(case: MissCase) -> Diagnosis | None:
    """A message is new, but not at the end: messages that the request before contained follow it."""
    return _message_case(case, "inserted")


@cause(
    "CAC007",
    "message_changed",
    title="An earlier message changed",
    fix="Send earlier messages again exactly as they were sent first.",
)
def message_changed(case: MissCase) -> Diagnosis | None:
    """The content of an earlier message changed: a result was shortened, reasoning or a reminder was removed, text was
    encoded differently.

    A block that left its place for a later one is a change of this kind, also if it is a whole message: for example a
    reminder that is at the end of each request. The title says from which message to which it moved.

    A client without ids that changes its first message begins a new conversation in the store. Its first request is
    compared with the conversation that it continues, and the title names that: both have the same system prompt, tools
    and settings, the last message is the same, and so are at least half of the others, each at its place. If more
    changed, nothing shows that both belong together, and the request counts as a first one.
    """
    if case.break_part != "messages":
        return None
    if (moved := _describe_moved(case)) is not None:
        return moved
    if case.message_change not in ("changed", "replaced"):
        return None
    gone = case.removed_element
    if gone is not None:
        kind = "reminder" if is_reminder(gone) else gone.type
        evidence, _ = case.element_evidence(case.break_at, is_whole=True)
        return Diagnosis(
            evidence=(evidence,), title=REMOVED_PARTS.get(kind, "A part of an earlier message was removed")
        )
    return _describe(*case.element_evidence(case.break_at), "An earlier message changed")


def _describe_moved(case: MissCase) -> Diagnosis | None:
    """Return a diagnosis for a block that moved to a later place; None if none did."""
    move, comparison = case.move, case.comparison
    if move is None or comparison is None:
        return None
    old, new = comparison.before.at(case.break_at), case.now.at(case.break_at + move.offset)
    words = f"left {old.path}: {shorten(old.element.text)}", f"now at {new.path}"
    title = f"{name_block(old.element)} moved {describe_way(old.path, new.path, is_same=move.is_same)}"
    return Diagnosis(evidence=(case.facts(*words, path=new.path),), title=title, fix=MOVED_FIX)


def _message_case(case: MissCase, kind: MessageChange) -> Diagnosis | None:
    if case.break_part != "messages" or case.message_change != kind or case.move is not None:
        return None
    return Diagnosis(evidence=(case.element_evidence(case.break_at, is_whole=True)[0],))


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
    return Diagnosis(evidence=(case.facts(*words),), confidence=0.95 if is_sure else 0.7)


@cause(
    "CAC015",
    "parallel_request",
    title="A request with the same prefix was still being answered",
    fix="Send one request first, wait for the first token of its reply, and then send the others with its prefix.",
)
def parallel_request(case: MissCase) -> Diagnosis | None:
    """The request began before the reply to the one that writes its prefix. A cache can be read only after that. The
    evidence names that request.

    Sub-agents and other conversations that begin at once with the same tools and system prompt are compared with each
    other: each of them pays for the prefix that they share. The first one has to write it, and has no finding. Those
    that read the prefix, because an earlier request wrote it, have none either. This needs the times at which replies
    ended: logs without them show no such findings.
    """
    prefix, branch = case.outlook.prefix, case.outlook.branch
    if branch is None or case.tokens_at(prefix.ready) - case.tokens_at(prefix.position) <= case.threshold:
        return None
    tip, now = branch.tip, case.now
    name = f"request {tip.number}"
    if tip.channel.conversation != now.channel.conversation:
        name += f" of {tip.channel.conversation}"
    elif tip.channel.agent != now.channel.agent:
        name += f" of {tip.channel.agent}"
    left = max(0, tip.ended - now.began) / 1_000
    evidence = case.facts(f"{name} was still being answered", f"began {left:,.1f} s before its reply ended")
    if not case.is_first:
        return Diagnosis(evidence=(evidence,), confidence=0.85)
    return Diagnosis(
        evidence=(evidence,),
        title="Another conversation with the same prefix began at the same time",
        fix="Send the first of these requests alone, wait for the first token of its reply, and then send the others: "
        "they read the prefix that they share from the cache.",
        confidence=0.85,
    )


@cause(
    "CAC012",
    "breakpoint_missing",
    title="No cache breakpoint covers the earlier messages",
    fix="Set a cache breakpoint at the last message of every request. In a program of others, "
    "only its makers can do that: report it to them.",
)
def breakpoint_missing(case: MissCase) -> Diagnosis | None:
    """The provider caches only up to breakpoints. The request, or the one before, has none near its end."""
    prefix, comparison = case.outlook.prefix, case.comparison
    if not case.rules.explicit or comparison is None:
        return None
    if case.tokens_at(prefix.written) < case.estimated_potential - case.threshold:
        marks = comparison.before.marks
        last = comparison.before.at(max(marks)).path if marks else "none"
        return Diagnosis(evidence=(case.facts(f"last breakpoint of the request before: {last}"),))
    if case.tokens_at(prefix.found) - case.tokens_at(prefix.position) <= case.threshold:
        return None
    if case.now.marks and max(case.now.marks) + 1 >= prefix.found:
        return None
    last = case.now.at(max(case.now.marks)).path if case.now.marks else "none"
    return Diagnosis(evidence=(case.facts(f"last breakpoint of this request: {last}"),))


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
    return Diagnosis(evidence=(case.facts(f"{case.rules.lookback} positions are searched", path=path),))


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
    return Diagnosis(evidence=(case.facts(*words),), confidence=0.5) if case.is_reported else None


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


def _show_setting(request: RequestView, name: str) -> str:
    if name == MEDIA:
        return "no media" if request.rows.media is None else "media"
    value = read_field(request.settings, name)
    return "not set" if value is None else shorten(value if isinstance(value, str) else encode(value).decode())
