"""The types of conversations, branches and leases that a store returns.

`Reference` is the type of an argument that names a message.
"""

from typing import TypeAlias

import msgspec

from contextc.messages import Message

Reference: TypeAlias = str | int | Message
"""A message of a conversation: its seq, its uid, its id (or the first 12 characters of it), or the message itself."""

DEFAULT_AGENT = "assistant"
RUN_MARK = "\u2002"
"""The en space between agent and run in names of `run_name`. Names of agents are printable, so they contain none."""


def run_name(agent: str, run: str) -> str:
    """Return the name of the turns and channels of a run that began beside another turn of its agent."""
    return f"{agent}{RUN_MARK}{run}"


def agent_of(name: str) -> str:
    """Return the agent of a turn, a lease or a channel, without the run."""
    return name.partition(RUN_MARK)[0]


class Conversation(msgspec.Struct, frozen=True, kw_only=True, rename={"context_start": "edge"}):
    """The state of a conversation. `revision` grows with every change other than an append.

    The context starts after message `context_start`: earlier ones were cleared from it.
    """

    name: str
    root: str
    tip: str
    length: int
    branch: int
    revision: int
    context_start: int
    created: int


class Branch(msgspec.Struct, frozen=True, kw_only=True):
    """A branch of a conversation. It begins after message `base` (0: at the root) and ends at `tip`."""

    number: int
    parent: int | None
    base: int
    length: int
    tip: str
    current: bool
    created: int


class Recovered(msgspec.Struct, frozen=True, kw_only=True):
    """A turn whose process died, and the messages that recovery appended for it."""

    conversation: str
    agent: str
    lease: int
    messages: tuple[Message, ...]


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """The exclusive right to run one turn of an agent. It is renewed in the background until it is released."""

    conversation: str
    agent: str
    number: int
    ttl: float
    pid: int
    root: int
    """The number of the conversation. A later conversation of the same name has another number."""
