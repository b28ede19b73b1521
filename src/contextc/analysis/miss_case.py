"""One request that used a cache: the request it is compared with, what it could have read, and the first difference."""

import re
from functools import cached_property
from typing import Literal, TypeAlias

from msgspec.structs import replace

from contextc._common_prefix import count_common_prefix
from contextc._json import JSON, encode
from contextc.analysis.cache_model import (
    MAX_SEARCH,
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
)
from contextc.analysis.changed_content import Move, TextChange, count_common_end, find_leaf, find_move, recognise
from contextc.analysis.finding import Evidence, RequestPlace, shorten
from contextc.analysis.request_elements import Element, text_of
from contextc.analysis.request_view import RequestView
from contextc.inspection.prefix_break import MISSED_SHARE, MISSED_TOKENS

SIMILAR = 0.5
MAX_DIFFERENCE = 0.25
FIRST_MESSAGES = 64
COMPACTED = ("compacted by the client", "compaction")
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
        if previous is None or scope_of(previous) == scope_of(self.now):
            return False
        if self.comparison is None or self.is_first:
            return _continues(previous, self.now)
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
        """The same, from our own count of each element. It is never more than the provider counted in all: the sizes of
        images and documents can only be guessed.
        """
        return min(self._count_potential(), self.now.input)

    def _count_potential(self) -> int:
        comparison, now = self.comparison, self.now
        if comparison is None:
            return 0
        if comparison.is_extension:
            return now.charged_before(comparison.before.count)
        if self.is_compaction:
            return min(comparison.before.input, now.input)
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
        start, size = count_common_prefix(old, new), min(len(old), len(new))
        same = start + count_common_end(old, new, size - start)
        return one.kind != "message" and same > SIMILAR * max(len(old), len(new))

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
        if any(b'"additional_tools"' in each.at(index).element.raw[:200] for each in views):
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
        if not self.is_first or previous is None or scope_of(previous) == scope_of(self.now):
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


def _continues(previous: RequestView, now: RequestView) -> bool:
    """Return True if a request has messages of another one, in any format."""
    known = {each.key for each in previous.elements(previous.head_ends[2])[:FIRST_MESSAGES]}
    return any(each.key in known for each in now.elements(now.head_ends[2])[:FIRST_MESSAGES])


def scope_of(request: RequestView) -> tuple[str, str]:
    """Return provider and model, which have a cache of their own."""
    return request.channel.provider, request.channel.model
