"""Limits of a turn."""

import math
from dataclasses import dataclass, fields
from types import UnionType
from typing import Never

from contextc.errors import InvalidSetting

MAX_STEPS, MAX_TOOL_CALLS, MAX_SECONDS, MAX_COST = "max_steps", "max_tool_calls", "max_seconds", "max_cost"
MAX_CALLS_PER_REPLY = "max_calls_per_reply"


@dataclass(frozen=True, init=False)
class Limits:
    """Limits that end a turn with a finish reason of their own, without an error. None means no limit.

    `seconds` applies to the whole turn, `tool_seconds` to one call of a tool without its own timeout. `cost` is in US
    dollars. `calls_per_reply` is the number of calls of one reply that are run. `parallel_tools` is the number of tools
    that run at the same time, and `agent_depth` how deep agents call agents as tools; these do not end the turn.
    What a called agent does counts as done by its caller, while it does it.
    """

    steps: int | None = 250
    tool_calls: int | None = None
    seconds: float | None = None
    tool_seconds: float | None = 120.0
    cost: float | None = None
    calls_per_reply: int | None = 1_000
    parallel_tools: int | None = 32
    agent_depth: int | None = 5

    def __init__(
        self,
        *,
        steps: int | None = 250,
        tool_calls: int | None = None,
        seconds: float | None = None,
        tool_seconds: float | None = 120.0,
        cost: float | None = None,
        calls_per_reply: int | None = 1_000,
        parallel_tools: int | None = 32,
        agent_depth: int | None = 5,
        **others: Never,
    ) -> None:
        for name in others:
            names = ", ".join(field.name for field in fields(self))
            raise InvalidSetting(f"Limits has no option {name!r}", fix=f"Its options are {names}.")
        whole = {"steps": steps, "tool_calls": tool_calls}
        whole |= {"calls_per_reply": calls_per_reply, "parallel_tools": parallel_tools, "agent_depth": agent_depth}
        for name, value in whole.items():
            self._set(name, value, int, "an integer above 0")
        for name, value in (("seconds", seconds), ("tool_seconds", tool_seconds), ("cost", cost)):
            self._set(name, value, int | float, "a number above 0")

    def _set(self, name: str, value: float | None, kind: type | UnionType, wanted: str) -> None:
        is_one = isinstance(value, kind) and not isinstance(value, bool) and value is not None and 0 < value < math.inf
        if value is not None and not is_one:
            raise InvalidSetting(f"Limits: {name} must be {wanted}", got=value, fix="Pass None for no limit.")
        object.__setattr__(self, name, value)
