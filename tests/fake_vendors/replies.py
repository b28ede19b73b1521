"""Vendor-neutral replies: a script returns one, and a vendor module encodes it.

A reply is one model response: reasoning, then text, then tool calls. `text=None` has no text block. `text=""` has the
empty block that models do return beside calls. Arguments of a call are an object, or a string that is invalid JSON,
which not every vendor can transmit.
"""

from collections.abc import Sequence
from typing import Literal, TypeAlias

from msgspec import Struct

from contextc._json import JSONObject, encode, encode_canonical

Finish: TypeAlias = Literal["stop", "tool_calls", "length", "filter"]


class ScriptedCall(Struct, frozen=True):
    """A tool call. Without an id, the vendor module generates one."""

    name: str
    arguments: JSONObject | str = {}
    id: str = ""

    @property
    def written(self) -> str:
        """Return the arguments as text."""
        return self.arguments if isinstance(self.arguments, str) else encode(self.arguments).decode()

    @property
    def meant(self) -> bytes:
        """Return a key that is equal for calls with the same name and arguments."""
        return encode_canonical([self.name, self.arguments])


class Reply(Struct, frozen=True):
    """One reply of a model. `output` overrides the counted output tokens."""

    text: str | None = None
    calls: Sequence[ScriptedCall] = ()
    reasoning: str = ""
    finish: Finish | None = None
    output: int | None = None

    @property
    def ended(self) -> Finish:
        return self.finish or ("tool_calls" if self.calls else "stop")


class Tokens(Struct, frozen=True, kw_only=True):
    """Token usage of a request. `input` includes cache reads and writes, `output` includes reasoning, and `written`
    includes `written_long`: what is kept longer than by default.
    """

    input: int
    read: int = 0
    written: int = 0
    written_long: int = 0
    output: int = 0
    reasoning: int = 0


def pieces(text: str) -> list[str]:
    """Split a text into chunks of different lengths, deterministically."""
    found: list[str] = []
    start, length = 0, 3
    while start < len(text):
        found.append(text[start : start + length])
        start, length = start + length, length * 5 % 23 + 4
    return found
