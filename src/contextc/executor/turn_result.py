"""The result of a turn."""

from msgspec import Struct

from contextc.messages import Message, Usage


class TurnResult(Struct, frozen=True, kw_only=True):
    """The result of a turn. `finish` is `stop`, `cancelled`, `error`, a limit, or a trigger's or the model's reason.

    `message` is the last reply. `error` is the exception that ended the turn, if any.
    """

    turn: int
    finish: str
    steps: int = 0
    tool_calls: int = 0
    usage: Usage = Usage()
    cost: float | None = None
    message: Message | None = None
    error: Exception | None = None

    @property
    def text(self) -> str:
        """The text of the final answer; empty if there is none."""
        return self.message.text if self.message is not None else ""
