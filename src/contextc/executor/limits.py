"""How far a turn may go, and how it ended."""

from msgspec import Struct
from msgspec.structs import fields

from contextc.errors import InvalidSetting
from contextc.messages import Message, Usage

MAX_STEPS, MAX_TOOL_CALLS, MAX_SECONDS, MAX_COST = "max_steps", "max_tool_calls", "max_seconds", "max_cost"


class Limits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What ends a turn with a finish reason of its own, and no error. None is no limit.

    `seconds` is for the whole turn, `tool_seconds` for one tool that has no limit of its own. `cost` is in US dollars.
    """

    steps: int | None = 250
    tool_calls: int | None = None
    seconds: float | None = None
    tool_seconds: float | None = 120.0
    cost: float | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or value <= 0):
                raise InvalidSetting(f"Limits({field.name}={value!r}): give a number above 0, or None for no limit.")


class TurnResult(Struct, frozen=True, kw_only=True):
    """How a turn ended. `finish` is `stop`, `cancelled`, `error`, a limit, or what a trigger or the model said.

    `message` is the last reply; `error` what ended the turn, where something did.
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
        return self.message.text if self.message is not None else ""


def added(before: Usage, more: Usage | None) -> Usage:
    if more is None:
        return before
    return Usage(
        input=before.input + more.input,
        output=before.output + more.output,
        cache_read=before.cache_read + more.cache_read,
        cache_write=before.cache_write + more.cache_write,
        reasoning=before.reasoning + more.reasoning,
    )
