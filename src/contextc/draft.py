"""Everything one model call is about to see: a sealed prefix, and a tail that passes still work on.

A pass takes a draft and returns a new one. It touches the tail only; where what was shown cannot be extended it says so
in `epoch`, and what the new epoch keeps of the prefix stands in `kept`.
"""

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Literal, NamedTuple, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from contextc.formats.reasoning import Policy
from contextc.ledger.items import Item
from contextc.ledger.overlays import Summary
from contextc.ledger.standing import Sealed, Standing
from contextc.messages import Message
from contextc.prompts import Prompt
from contextc.providers import Provider
from contextc.tokens import Counter

Strategy: TypeAlias = Literal["chunked", "oldest"]
Mark: TypeAlias = Literal["head", "previous", "end"]
"""Where a cache point stands: behind the head, behind what the request before ended with, at the end."""


class Options(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a caller wants it: the settings of a compiler."""

    strategy: Strategy = "chunked"
    high: float = 1.0
    low: float = 0.7
    """Past `high` of what is available a cut goes down to `low` of it, and stays there for many steps."""
    decay: bool = True
    recent: float = 0.25
    """The share of what is available, at the end, in which results do not decay."""
    oversized: float = 0.25
    """A result above this share of what is available is shown by its head and its tail."""
    failed: Literal["exclude", "annotate"] = "exclude"
    placement: Literal["tail", "head"] = "tail"
    refresh: int = 20_000
    """A dynamic fragment is sent again, when a turn begins, where its latest copy lies more tokens back than this."""
    static_change: Literal["update", "new session"] = "update"
    keep_media: int = 2
    fetch: bool = True
    """Whether the tool that fetches left-out results is among the tools."""
    reasoning: Policy = "native"
    policy: Literal["", "seed_b"] = ""
    """`seed_b`: single messages are dropped from the front, the reserve is the model's longest output, and reasoning is
    joined into the text.
    """

    @property
    def replay(self) -> Policy:
        return "inline" if self.policy == "seed_b" else self.reasoning


class Entry(NamedTuple):
    """An item, and what is shown for it."""

    item: Item
    message: Message


class Left(Struct, frozen=True):
    """Something of the log that a model is not shown, and why."""

    place: int
    why: str


class Budget(Struct, frozen=True, kw_only=True):
    """Where the tokens go. `used` is what the messages take; `measured` says that a provider's own figure stands behind
    it.
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
    """What the provider counts on this channel beyond our own count, and no correction explains; part of `used`."""
    wanted: int = 0
    """What the messages would have taken, where they were cut down."""

    @property
    def available(self) -> int:
        """For everything from the first message to the newest."""
        return max(0, (self.limit or self.window) - self.system - self.tools - self.reserve - self.margin)

    @property
    def room(self) -> int:
        """For the whole input: system prompt, tools and messages."""
        return max(0, (self.limit or self.window) - self.reserve - self.margin)

    @property
    def input(self) -> int:
        """What the whole request takes."""
        return self.system + self.tools + self.used

    def corrected(self, total: int) -> "Budget":
        """Return the budget of a request that takes `total` tokens by the provider's own figure.

        Every part gets its share of the difference to our own count, except for the overhead, which the provider's
        figure has set.
        """
        overhead = min(self.overhead, total)
        system, tools, used = spread(total - overhead, (self.system, self.tools, max(0, self.used - overhead)))
        return replace(self, system=system, tools=tools, used=used + overhead, measured=True)

    @property
    def share(self) -> float:
        """How much of what is available is used; 1.0 is full."""
        return self.used / self.available if self.available else 1.0


def spread(total: int, counted: Sequence[int]) -> list[int]:
    """Return `total` in parts that are to each other as those that were counted; the parts add up to it."""
    whole = sum(counted)
    if not whole:
        return [*[0] * (len(counted) - 1), total] if counted else []
    ends = [total * end // whole for end in accumulate(counted, initial=0)]
    return [end - start for start, end in pairwise(ends)]


class Draft(Struct, frozen=True, kw_only=True):
    provider: Provider
    counter: Counter
    options: Options
    agent: str
    run: str | None = None
    running: frozenset[str] | None = None
    audiences: frozenset[str]
    resume: bool = False
    prompt: Prompt
    fetchable: bool = True

    sealed: Sequence[Sealed]
    standing: Standing
    log: tuple[tuple[int, Message], ...]
    """What the log has that was not shown: place and message; what the model produced itself comes first."""
    unread: int = 0
    """The seq up to which the log was not read, because it is too far back to fit."""
    opening: int = 0
    """The place of what opened the turn, where the log holds it although it was not read up to there."""
    late: Mapping[int, Message] = {}
    """Messages that were hidden when they came, by place."""
    counts: Mapping[int, int] = {}
    """Tokens of messages of the log by place, where they were counted before."""
    unanswered: Mapping[str, int] = {}
    """Calls that stand while the results they were shown with are gone, with the places of their messages."""
    pins: frozenset[int] = frozenset()
    summary: Summary | None = None
    compacted: bool = False
    """That summary is newer than what was shown, and is to be shown now."""
    factor: float = 1.0

    points: int = 0
    """How many cache points are left to set: what the model takes, less those of the caller."""
    anew: bool = False
    """Rows were encoded otherwise than they would be now, so none is taken over."""
    tail: tuple[Entry, ...] = ()
    new: int = 0
    """How many entries of the tail are input, and not the agent's own words or a dynamic block."""
    left: tuple[Left, ...] = ()
    remarks: tuple[str, ...] = ()
    budget: Budget
    marks: tuple[Mark, ...] = ()
    epoch: str = ""
    kept: tuple[Item, ...] | None = None
    changed: int = -1
    """The index in `kept` from which the prefix is another than before; -1 where that is still to be found."""
