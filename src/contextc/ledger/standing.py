"""Channels and their state: the position in the log, the rows of the epoch, the session."""

from typing import NamedTuple

import msgspec
from msgspec import Struct

from contextc.ledger.items import FragmentCopy, Item, LedgerRow


class Channel(NamedTuple):
    """One conversation as one agent, provider, model and directory sees it."""

    conversation: str
    agent: str
    provider: str
    model: str
    directory: str = ""

    def __str__(self) -> str:
        where = f" in {self.directory}" if self.directory else ""
        return f"{self.agent} on {self.provider}:{self.model}{where}"


class RowRange(NamedTuple):
    """A range of rows of one channel. A fork begins with ranges of its parent's rows."""

    channel: int
    first: int
    last: int


class HeadHashes(Struct, frozen=True, omit_defaults=True):
    """Hashes of what precedes the messages. A change of one of them changes the prefix."""

    static: str = ""
    tools: str = ""
    settings: str = ""
    encoder: str = ""


class ProviderSession(Struct, frozen=True, omit_defaults=True):
    """A provider's own memory of the conversation. `cursor` is the provider's position after everything sent, if it has
    one.
    """

    id: str
    cursor: str = ""


class ChannelState(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The state of a channel. It is written whole with every commit, so its size does not depend on the history."""

    requests: int = 0
    rows: int = 0
    epoch: int = 0
    layout: tuple[RowRange, ...] = ()
    tokens: int = 0
    """Tokens of all rows of the epoch, by our count."""
    branch: int = 0
    revision: int = 0
    seen: int = 0
    """The seq up to which the log was read."""
    edge: int = 0
    """The seq after which the context was cleared. Messages up to it are not sent."""
    waiting: tuple[int, ...] = ()
    """Places of messages that are hidden now and may become visible."""
    pending: dict[str, str] = {}
    """Calls that were trimmed before their results arrived, with their tools. The results are sent when they arrive."""
    runs: str = ""
    """The run of the last request, and the caller's running runs. While both are unchanged, hidden messages stay
    hidden.
    """
    going: tuple[str, ...] = ()
    """Runs of this agent that have begun and not ended."""
    produced: tuple[Item, ...] = ()
    """The model's last reply. It is part of the next request; a session has it already."""
    head: HeadHashes = HeadHashes()
    tools: tuple[str, ...] = ()
    """Names of the tools in the order they were sent, because another order is another prefix."""
    chain: str = ""
    """Hash of all rows of the epoch."""
    size: int = 0
    """Bytes of all rows of the epoch."""
    above: int = 0
    """Tokens of the system prompt and the tools, by our count."""
    dynamic: str = ""
    """Set by older versions, which sent all dynamic fragments as one block, if this epoch contains such a block."""
    fragments: dict[str, FragmentCopy] = {}
    """The latest copy of each dynamic fragment in this epoch, by its id."""
    answered: bool = True
    """True if the last turn has ended."""
    turn: int = 0
    humans: tuple[str, ...] = ()
    lead: tuple[int, ...] | None = None
    """Places of the system messages at the start of the conversation. They are part of the system prompt."""
    reserve: int = 0
    """Tokens reserved for the answer in this epoch, if the reserve had to shrink."""
    cut: bool = False
    """True if something between the context edge and the first item is left out for lack of room."""
    summary: int = 0
    """The place up to which a summary replaces the messages."""
    session: ProviderSession | None = None
    lost: str = ""
    """The reason why there is no session any more."""
    input: int = 0
    """Input tokens of the epoch's last request as the provider counted them; 0 if it reported none."""
    overhead: int = 0
    """Tokens that the provider counts on this channel beyond our count and beyond what calibration explains."""
    replaced: bool = False
    """True if another request was sent instead of the compiled one, so the prefix is not that of the rows."""
    again: bool = False
    """True if the provider paused and must be called again without new input (`pause_turn`)."""
    shortened: bool = False
    """True if the session shortened its own history with the last request, so old content may be missing."""


class StoredRow(Struct, frozen=True, gc=False):
    """A stored row with its wire messages, as bytes joined by commas. `place` is channel * 2^32 + number."""

    place: int
    row: LedgerRow
    chunk: bytes


state_to_json = msgspec.json.Encoder().encode
state_from_json = msgspec.json.Decoder(ChannelState).decode
row_to_json = msgspec.json.Encoder().encode
rows_from_json = msgspec.json.Decoder(list[LedgerRow]).decode


def extend_layout(layout: tuple[RowRange, ...], channel: int, first: int, last: int) -> tuple[RowRange, ...]:
    """Return the layout extended by rows of a channel."""
    if last < first:
        return layout
    if layout and layout[-1].channel == channel and layout[-1].last == first - 1:
        return (*layout[:-1], RowRange(channel, layout[-1].first, last))
    return (*layout, RowRange(channel, first, last))
