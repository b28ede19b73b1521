"""The content of one model call: a sealed prefix, and a tail that the passes work on.

A pass takes a draft and returns a new one. It changes the tail only. If the prefix cannot be extended, a pass sets
`epoch` to the reason, and `kept` to the items of the prefix that the new epoch keeps.

The last pass, `verify_draft`, checks the invariants and changes nothing. A violation is a defect of contextc and is
raised before anything is sent. It does not use `assert`, which `python -O` removes.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias

from msgspec import Struct

from contextc.compiler.ledger.summaries import Summary
from contextc.compiler.options import Budget, CompilerOptions
from contextc.errors import InternalError
from contextc.messages import Message
from contextc.models.tokens import TokenCounter
from contextc.prompts import Prompt
from contextc.providers import Provider
from contextc.store.ledger_schema import ChannelState, Item, StoredRow
from contextc.store.message_rows import SEQ_MASK

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
