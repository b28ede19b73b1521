"""The content of one model call: a sealed prefix, and a tail that the passes work on.

A pass takes a draft and returns a new one. It changes the tail only. If the prefix cannot be extended, a pass sets
`epoch` to the reason, and `kept` to the items of the prefix that the new epoch keeps.

The last pass, `verify_draft`, checks the invariants and changes nothing. A violation is a defect of contextc and is
raised before anything is sent. It does not use `assert`, which `python -O` removes.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Literal, NamedTuple, TypeAlias, TypedDict

from msgspec import Struct
from msgspec.structs import replace

from contextc.compiler.ledger import Summary
from contextc.errors import InternalError
from contextc.formats.reasoning_policy import ReasoningPolicy
from contextc.messages import Message
from contextc.models.tokens import TokenCounter
from contextc.prompts import Prompt
from contextc.providers import Provider
from contextc.store.ledger_schema import ChannelState, Item, StoredRow
from contextc.store.message_log import SEQ_MASK

# ── options and budget ────────────────────────────────────────────────────────────────────────────────────────────────
# The options of a compiler, and the token budget of a request.


TrimStrategy: TypeAlias = Literal["chunked", "oldest"]
TrimPolicy: TypeAlias = Literal["", "sliding_window"]
PolicyArgument: TypeAlias = Literal["", "default", "sliding_window"]
"""A policy as callers name it: `default` is the empty one."""


class CompilerOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of a compiler."""

    strategy: TrimStrategy = "chunked"
    high: float = 1.0
    low: float = 0.7
    """Above `high` of the available tokens, the context is trimmed to `low` of them."""
    decay: bool = True
    recent: float = 0.25
    """Share of the available tokens, at the end, in which results are not replaced by stubs."""
    oversized: float = 0.25
    """A result above this share of the available tokens is shortened to its head and tail."""
    failed: Literal["exclude", "annotate"] = "exclude"
    placement: Literal["tail", "head"] = "tail"
    refresh: int = 20_000
    """At the start of a turn, a dynamic fragment is sent again if its latest copy is more tokens back than this."""
    static_change: Literal["update", "new session"] = "update"
    keep_media: int = 2
    keep_words: float = 0.15
    """Share of the window for earlier messages of people, kept word for word when their turns are cut away."""
    keep_index: float = 0.03
    """Share of the window for an index of what was cut away: paths, ids, figures, names, each with its message."""
    fetch: bool | Literal["always"] = True
    """True if `fetch_result` and `search_history` are added to the tools of the caller; `always` if they are offered
    also without any, to models that are known to accept tools.
    """
    summary_share: float = 0.05
    """Share of the available tokens that a summary may take, at least 1,000 tokens."""
    reasoning: ReasoningPolicy = "native"
    reserve: Literal["capped", "full"] = "capped"
    """`full` reserves the whole output: the requested length, else the model's maximum."""
    policy: TrimPolicy = ""
    """`sliding_window` drops single messages from the front, reserves the whole output, joins reasoning into the text,
    and uses no summaries.
    """

    @property
    def slides(self) -> bool:
        """True if the policy is `sliding_window`."""
        return self.policy == "sliding_window"

    @property
    def reasoning_policy(self) -> ReasoningPolicy:
        """The reasoning policy that applies: the policy `sliding_window` has one of its own."""
        return "inline" if self.slides else self.reasoning


class CompilerOptionArguments(TypedDict, total=False):
    """The options of a compiler as keyword arguments. `CompilerOptions` describes them."""

    strategy: TrimStrategy
    high: float
    low: float
    decay: bool
    recent: float
    oversized: float
    failed: Literal["exclude", "annotate"]
    placement: Literal["tail", "head"]
    refresh: int
    static_change: Literal["update", "new session"]
    keep_media: int
    keep_words: float
    keep_index: float
    fetch: bool | Literal["always"]
    summary_share: float
    reasoning: ReasoningPolicy
    reserve: Literal["capped", "full"]
    policy: PolicyArgument


class Budget(Struct, frozen=True, kw_only=True):
    """The token budget of a request. `used` are the tokens of the messages. `measured` is True if they are based on a
    provider's own figure.
    """

    window: int
    system: int = 0
    tools: int = 0
    reserve: int = 0
    margin: int = 0
    limit: int | None = None
    used: int = 0
    exact: bool = False
    measured: bool = False
    overhead: int = 0
    """Tokens that the provider counts on this channel beyond what calibration explains; part of `used`."""
    wanted: int = 0
    """Tokens of the messages before they were trimmed, if they were."""

    @property
    def available(self) -> int:
        """Tokens available for messages."""
        return max(0, (self.limit or self.window) - self.system - self.tools - self.reserve - self.margin)

    @property
    def room(self) -> int:
        """Tokens available for the whole input: system prompt, tools and messages."""
        return max(0, (self.limit or self.window) - self.reserve - self.margin)

    @property
    def input(self) -> int:
        """Tokens of the whole request."""
        return self.system + self.tools + self.used

    @property
    def messages(self) -> int:
        """Tokens of the messages, without the overhead."""
        return self.used - min(self.overhead, self.used)

    def with_total(self, total: int) -> "Budget":
        """Return the budget of a request that takes `total` tokens by the provider's own figure.

        Every part gets its share of the difference to our own count, except for the overhead, which the provider's
        figure has set.
        """
        overhead = min(self.overhead, total)
        system, tools, used = distribute(total - overhead, (self.system, self.tools, max(0, self.used - overhead)))
        return replace(self, system=system, tools=tools, used=used + overhead, measured=True)

    @property
    def share(self) -> float:
        """Used share of the available tokens; 1.0 is full."""
        return self.used / self.available if self.available else 1.0


def distribute(total: int, counted: Sequence[int]) -> list[int]:
    """Divide `total` in proportion to `counted`. The parts add up to `total`."""
    whole = sum(counted)
    if not whole:
        return [*[0] * (len(counted) - 1), total] if counted else []
    ends = [total * end // whole for end in accumulate(counted, initial=0)]
    return [end - start for start, end in pairwise(ends)]


CacheMark: TypeAlias = Literal["head", "previous", "end"]
"""Position of a cache breakpoint: after the head, after the end of the previous request, or at the end."""


class DraftEntry(NamedTuple):
    """An item, and the message rendered for it."""

    item: Item
    message: Message


class LeftOutMessage(Struct, frozen=True):
    """A message of the log that is left out, and why."""

    place: int
    why: str


class Draft(Struct, frozen=True, kw_only=True):
    """The content of one model call while it is compiled."""

    provider: Provider
    counter: TokenCounter
    options: CompilerOptions
    agent: str
    run: str | None = None
    running: frozenset[str] | None = None
    audiences: frozenset[str]
    resume: bool = False
    prompt: Prompt
    fetchable: bool = True
    searchable: bool = True

    rows: Sequence[StoredRow]
    standing: ChannelState
    log: tuple[tuple[int, Message], ...]
    """Messages that were not sent yet, with their places; the model's own last reply comes first."""
    unread_until: int = 0
    """The seq up to which the log was not read, because it is too far back to fit."""
    turn_opening: int = 0
    """Place of the message that opened the turn, if the log contains it although it is in the unread part."""
    load_messages: Callable[[Sequence[int]], Mapping[int, Message]] = lambda places: {}
    """Loads messages by place. Used only where an epoch begins."""
    load_earlier: Callable[[int, int], Mapping[int, Message]] = lambda upto, tokens: {}
    """Loads the latest messages up to a seq, by place, of people so many tokens. Used only where an epoch begins."""
    revealed: Mapping[int, Message] = {}
    """Messages that were hidden when they arrived, by place."""
    text_files: Mapping[str, bytes] = {}
    """The bytes of files in the log that may be text, by blob name."""
    token_counts: Mapping[int, int] = {}
    """Known token counts of messages in the log, by place."""
    unanswered_calls: Mapping[str, int] = {}
    """Calls whose results were removed while the calls remain, with the places of their messages."""
    pins: frozenset[int] = frozenset()
    summary: Summary | None = None
    compacted: bool = False
    """True if the summary is newer than the one that was sent, and must be used now."""
    factor: float = 1.0
    headroom: int = 0
    """Tokens that must be left; otherwise the context is trimmed."""

    breakpoints_left: int = 0
    """Number of cache breakpoints that may still be set: the model's maximum minus those of the caller."""
    reencode: bool = False
    """True if the encoder has changed, so no encoded row can be reused."""
    tail: tuple[DraftEntry, ...] = ()
    new: int = 0
    """Number of entries of the tail that are input, without the agent's own messages and dynamic blocks."""
    left: tuple[LeftOutMessage, ...] = ()
    remarks: tuple[str, ...] = ()
    budget: Budget
    marks: tuple[CacheMark, ...] = ()
    epoch: str = ""
    kept: tuple[Item, ...] | None = None
    changed: int = -1
    """Index in `kept` from which the prefix differs from the previous one; -1 if not determined yet."""

    @property
    def held_places(self) -> frozenset[int]:
        """Places of the messages in the tail that the resumed session has already."""
        held = self.standing.held
        known = [item.place for item in self.standing.produced]
        if held:
            known += [item.place for item, _ in self.tail if item.place and item.place & SEQ_MASK <= held]
        return frozenset(known)

    @property
    def waiting_summary(self) -> Summary | None:
        """The summary that waited until the context is trimmed, if this request uses it."""
        summary, kept = self.summary, self.kept or ()
        if summary is None or not summary.waits:
            return None
        return summary if any(item.kind == "summary" and item.place == summary.anchor for item in kept) else None

    @property
    def oversized(self) -> int:
        """Tokens above which a result or a text file is shortened. A reserve counts for at most half of the window."""
        budget = self.budget
        available = budget.available
        if self.options.slides or self.options.reserve == "full":
            available = max(available, ((budget.limit or budget.window) - budget.system - budget.tools) // 2)
        return int(available * self.options.oversized)


def verify_draft(draft: Draft) -> Draft:
    _check_once([entry.item for entry in draft.tail])
    if draft.kept is not None:
        _check_once(draft.kept)
    budget = draft.budget
    if budget.used > budget.available and not draft.resume:
        raise InternalError(f"Draft: its messages must fit in {budget.available:,} tokens, got {budget.used:,}")
    return draft


def _check_once(items: Sequence[Item]) -> None:
    shown = [(item.place, item.only) for item in items if item.place and item.kind == "message"]
    if len(shown) != len(set(shown)):
        raise InternalError("Draft: each message must occur once, got a duplicate")
