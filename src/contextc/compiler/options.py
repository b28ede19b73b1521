"""The options of a compiler, and the token budget of a request."""

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Literal, TypeAlias, TypedDict

from msgspec import Struct
from msgspec.structs import replace

from contextc.formats.reasoning_policy import ReasoningPolicy

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
