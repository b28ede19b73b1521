"""What a model says, in nobody's words: a script returns it, and a vendor's file puts it into its own shape.

A reply stands for one turn of a model: reasoning, then text, then calls. `text=None` says nothing at all, `text=""` is
the empty block that models do return beside calls. A call's arguments are an object, or the text a model wrote where
it is no JSON; not every vendor can pass that on.
"""

from collections.abc import Sequence
from typing import Literal, TypeAlias

from msgspec import Struct

from contextc._json import JSONObject, canonical, encode

Finish: TypeAlias = Literal["stop", "tool_calls", "length", "filter"]


class Call(Struct, frozen=True):
    """A tool the model asks for. Without an id it gets one of the vendor's making."""

    name: str
    arguments: JSONObject | str = {}
    id: str = ""

    @property
    def written(self) -> str:
        """The arguments as text."""
        return self.arguments if isinstance(self.arguments, str) else encode(self.arguments).decode()

    @property
    def meant(self) -> bytes:
        """What two calls have in common that ask for the same."""
        return canonical([self.name, self.arguments])


class Reply(Struct, frozen=True):
    """One turn of a model. `output` is how many tokens it shall have cost, where counting them will not do."""

    text: str | None = None
    calls: Sequence[Call] = ()
    reasoning: str = ""
    finish: Finish | None = None
    output: int | None = None

    @property
    def ended(self) -> Finish:
        return self.finish or ("tool_calls" if self.calls else "stop")


class Tokens(Struct, frozen=True, kw_only=True):
    """What a request took. `input` holds what was read from the cache and written to it; `output` the reasoning."""

    input: int
    read: int = 0
    written: int = 0
    output: int = 0
    reasoning: int = 0


def pieces(text: str) -> list[str]:
    """A text as it is streamed: in pieces of uneven length, the same every time."""
    found: list[str] = []
    start, length = 0, 3
    while start < len(text):
        found.append(text[start : start + length])
        start, length = start + length, length * 5 % 23 + 4
    return found
