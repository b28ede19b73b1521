"""The context of a tool call.

A function with a parameter annotated `ToolContext` gets one; the parameter is not part of the schema. Each call has its
own context, because `cancelled` applies to that call alone.
"""

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, cast

import msgspec

from contextc.messages import ToolCall
from contextc.tools.questions import QuestionExchange

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from contextc.store import Store

    D = TypeVar("D", default=Any)  # so that plain `ToolContext` is complete
else:
    from typing import TypeVar

    D = TypeVar("D")


def ignore_progress(_: str) -> None:
    """Ignore a progress report."""


class ToolContext(msgspec.Struct, Generic[D], frozen=True, kw_only=True, eq=False):
    """The context of one tool call. `ToolContext[Shop]` says of which type `deps` are.

    `cancelled` is set when the result is no longer awaited: a long-running function checks it and stops. `progress`
    shows a line to people while the function runs; it may be called from any thread.
    """

    conversation: str = ""
    agent: str = "assistant"
    store: "Store | None" = None
    call: ToolCall = ToolCall(id="", name="", arguments={})
    turn: int = 0
    step: int = 0
    cancelled: threading.Event = msgspec.field(default_factory=threading.Event)
    progress: Callable[[str], None] = ignore_progress
    deps: D = cast(D, None)
    """The dependencies of the run: what the program passed as `deps`."""
    questions: QuestionExchange | None = None
    """For tools of MCP servers: how the call asks a person. None if no person can be asked."""
