"""Where a channel stands: what it has read of the log, which rows make its epoch, what its session holds."""

from typing import NamedTuple

import msgspec
from msgspec import Struct

from contextc.ledger.items import Copy, Item, Row


class Channel(NamedTuple):
    """Whom a conversation is shown to: another model, or another directory, is another channel."""

    conversation: str
    agent: str
    provider: str
    model: str
    directory: str = ""

    def __str__(self) -> str:
        where = f" in {self.directory}" if self.directory else ""
        return f"{self.agent} on {self.provider}:{self.model}{where}"


class Stretch(NamedTuple):
    """A run of rows of one channel. A fork begins with stretches of the channel it was forked from."""

    channel: int
    first: int
    last: int


class Head(Struct, frozen=True, omit_defaults=True):
    """Hashes of what comes before the messages. Where one changes, so does the prefix."""

    static: str = ""
    tools: str = ""
    settings: str = ""
    encoder: str = ""


class Session(Struct, frozen=True, omit_defaults=True):
    """A provider's own memory of the conversation: its name for it, and the place in it that is known to hold
    everything shown (`cursor`, in the provider's words, where it has any).
    """

    id: str
    cursor: str = ""


class Standing(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """All that a channel needs to go on. Written whole with every commit, so it does not grow with the history."""

    requests: int = 0
    rows: int = 0
    epoch: int = 0
    layout: tuple[Stretch, ...] = ()
    tokens: int = 0
    """Of all rows of the epoch, by our count."""
    branch: int = 0
    revision: int = 0
    seen: int = 0
    """The seq up to which the log was read."""
    edge: int = 0
    """The seq behind which the context was cleared: what stands before it was not shown, or is no longer."""
    waiting: tuple[int, ...] = ()
    """Places of messages that are hidden now, and may not stay so."""
    pending: dict[str, str] = {}
    """Calls that were cut away before their results came, with their tools: the results are told when they come."""
    runs: str = ""
    """Which run the last request was for, and which the caller said were going: while both stay, the hidden stay so."""
    going: tuple[str, ...] = ()
    """Runs of this agent that have begun and not ended."""
    produced: tuple[Item, ...] = ()
    """What the model answered last: shown with the next request, and known to a session already."""
    head: Head = Head()
    tools: tuple[str, ...] = ()
    """The names of the tools in the order they were shown, because another order is another prefix."""
    chain: str = ""
    """The hash of all rows of the epoch."""
    size: int = 0
    """The bytes of all rows of the epoch."""
    above: int = 0
    """The tokens of the system prompt and the tools, by our count."""
    dynamic: str = ""
    """Set by older versions, which sent all dynamic fragments as one block: such a block stands in this epoch."""
    fragments: dict[str, Copy] = {}
    """The latest copy of each dynamic fragment in this epoch, by its id."""
    answered: bool = True
    """Whether the last turn has ended."""
    turn: int = 0
    humans: tuple[str, ...] = ()
    lead: tuple[int, ...] | None = None
    """Places of the system messages that the conversation begins with: they are part of its prompt."""
    reserve: int = 0
    """What is kept free for the answer in this epoch, where that had to shrink."""
    cut: bool = False
    """Something between the context edge and the first item is not shown, for want of room."""
    summary: int = 0
    """The place up to which a summary stands for what was said."""
    session: Session | None = None
    lost: str = ""
    """Why there is no session any more."""
    input: int = 0
    """What the provider counted as the input of the last request of this epoch; 0 where it did not say."""
    overhead: int = 0
    """What the provider counts on this channel beyond our count, and more than a correction factor explains."""
    replaced: bool = False
    """Somebody sent another request in place of the one that was compiled, so the prefix is not what the rows say."""
    again: bool = False
    """The provider stopped in the middle and is to be asked again, with nothing new (`pause_turn`)."""
    shortened: bool = False
    """The session has shortened its own history with the last request: what was said of old may be gone."""


class Sealed(Struct, frozen=True, gc=False):
    """A row of the ledger with its wire messages, as bytes joined by commas. `place` is channel * 2^32 + number."""

    place: int
    row: Row
    chunk: bytes


standing_to_json = msgspec.json.Encoder().encode
standing_from_json = msgspec.json.Decoder(Standing).decode
row_to_json = msgspec.json.Encoder().encode
rows_from_json = msgspec.json.Decoder(list[Row]).decode


def with_rows(layout: tuple[Stretch, ...], channel: int, first: int, last: int) -> tuple[Stretch, ...]:
    """A layout that goes on with rows of a channel."""
    if last < first:
        return layout
    if layout and layout[-1].channel == channel and layout[-1].last == first - 1:
        return (*layout[:-1], Stretch(channel, layout[-1].first, last))
    return (*layout, Stretch(channel, first, last))
