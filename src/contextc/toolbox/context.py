"""What a tool may know about the call it answers.

A function that has a parameter annotated `ToolContext` is given one; the model never sees that parameter. There is one
context for each call, because `cancelled` is the sign for that call alone.
"""

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from contextc.messages import ToolCall

if TYPE_CHECKING:
    from contextc.store import Store


def silent(_: str) -> None:
    """Progress that nobody watches."""


class ToolContext(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Where a call comes from. `cancelled` is set when nobody waits for the answer any more: a function that takes
    long looks at it and stops. `progress` shows people a line while it runs; it may be called from any thread."""

    conversation: str = ""
    agent: str = "assistant"
    store: "Store | None" = None
    call: ToolCall = ToolCall(id="", name="", arguments={})
    turn: int = 0
    step: int = 0
    cancelled: threading.Event = msgspec.field(default_factory=threading.Event)
    progress: Callable[[str], None] = silent
