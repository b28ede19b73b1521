"""Limits of a turn, its running totals, and its result.

Triggers and limits read the totals. All of them can be restored from the store.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import cache, reduce
from time import monotonic, time
from types import UnionType
from typing import Never

from msgspec import Struct

from contextc.compiler import Compiled
from contextc.errors import InvalidSetting
from contextc.messages import Message, Usage
from contextc.models import Model, cost
from contextc.store import Store
from contextc.store.execution_records import TurnRecord
from contextc.tools.todos import Todo
from contextc.triggers import ResourceUsage, TriggerContext, TriggerTime

MAX_STEPS, MAX_TOOL_CALLS, MAX_SECONDS, MAX_COST = "max_steps", "max_tool_calls", "max_seconds", "max_cost"
MAX_CALLS_PER_REPLY = "max_calls_per_reply"


@dataclass(frozen=True, init=False)
class Limits:
    """Limits that end a turn with a finish reason of their own, without an error. None means no limit.

    `seconds` applies to the whole turn, `tool_seconds` to one call of a tool without its own timeout. `cost` is in US
    dollars. `calls_per_reply` is the number of calls of one reply that are run. `parallel_tools` is the number of tools
    that run at the same time; it does not end the turn.
    """

    steps: int | None = 250
    tool_calls: int | None = None
    seconds: float | None = None
    tool_seconds: float | None = 120.0
    cost: float | None = None
    calls_per_reply: int | None = 1_000
    parallel_tools: int | None = 32

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
        **others: Never,
    ) -> None:
        for name in others:
            names = ", ".join(field.name for field in fields(self))
            raise InvalidSetting(f"Limits has no option {name!r}", fix=f"Its options are {names}.")
        whole = {"steps": steps, "tool_calls": tool_calls}
        whole |= {"calls_per_reply": calls_per_reply, "parallel_tools": parallel_tools}
        for name, value in whole.items():
            self._set(name, value, int, "an integer above 0")
        for name, value in (("seconds", seconds), ("tool_seconds", tool_seconds), ("cost", cost)):
            self._set(name, value, int | float, "a number above 0")

    def _set(self, name: str, value: float | None, kind: type | UnionType, wanted: str) -> None:
        is_one = isinstance(value, kind) and not isinstance(value, bool) and value is not None and 0 < value < math.inf
        if value is not None and not is_one:
            raise InvalidSetting(f"Limits: {name} must be {wanted}", got=value, fix="Pass None for no limit.")
        object.__setattr__(self, name, value)


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
        return self.message.text if self.message is not None else ""


def add_usage(before: Usage, more: Usage | None) -> Usage:
    if more is None:
        return before
    return Usage(
        input=before.input + more.input,
        output=before.output + more.output,
        cache_read=before.cache_read + more.cache_read,
        cache_write=before.cache_write + more.cache_write,
        reasoning=before.reasoning + more.reasoning,
    )


KEPT_STEPS = 16


class TurnState:
    """Usage, cost and last messages of one turn."""

    def __init__(self, turn: TurnRecord, budget: int | None, resources: Callable[[], ResourceUsage]) -> None:
        self._began = monotonic() - (time() - turn.started / 1000 if turn.started else 0.0)
        self.last_messages: list[Message] = []
        self.reply: Message | None = None
        self.usage = turn.usage or Usage()
        self.cost: float | None = turn.cost if turn.cost is not None else 0.0
        self.budget = budget
        self._resources = resources
        self.truncated_replies = 0
        """Number of replies in a row that reached the output limit."""

    def restore(self, store: Store, conversation: str, turn: TurnRecord) -> None:
        """Load the last steps of a turn that is resumed after an interruption."""
        written = store.load(conversation, after=max(0, turn.opened))
        own = [message for message in written if message.turn == turn.number and message.role in ("assistant", "tool")]
        self.add_messages(own)
        self.reply = next((message for message in reversed(own) if message.role == "assistant"), None)

    def add_usage(self, usage: Usage, model: Model) -> None:
        """Add the usage of a call that is not a step, such as a summary."""
        more = cost(model, usage)
        self.usage = add_usage(self.usage, usage)
        self.cost = None if self.cost is None or more is None else self.cost + more

    def totals_with(self, messages: Sequence[Message], model: Model) -> tuple[Usage, float | None]:
        """Return the turn's usage and cost with one more reply, which may be several messages."""
        usage, spent = self.usage, self.cost
        for message in messages:
            more = cost(model, message.usage) if message.usage is not None else 0.0
            usage, spent = add_usage(usage, message.usage), None if spent is None or more is None else spent + more
        return usage, spent

    def add_reply(self, messages: Sequence[Message], model: Model) -> None:
        """Add the usage and the messages of one reply."""
        self.usage, self.cost = self.totals_with(messages, model)
        self.reply = next((message for message in reversed(messages) if message.role == "assistant"), self.reply)
        self.add_messages(messages)

    def add_messages(self, messages: Sequence[Message]) -> None:
        self.last_messages += messages
        replies = [index for index, message in enumerate(self.last_messages) if message.role == "assistant"]
        if len(replies) > KEPT_STEPS:
            del self.last_messages[: replies[-KEPT_STEPS]]

    @property
    def finish(self) -> str | None:
        return self.reply.finish if self.reply is not None else None

    def trigger_context(
        self,
        when: TriggerTime,
        compiled: Compiled,
        turn: TurnRecord,
        limits: Limits,
        *,
        step: int,
        todos: Sequence[Todo],
        more: int = 0,
        results: Sequence[Message] = (),
        after_cut: bool = False,
    ) -> TriggerContext:
        """Return the context that triggers are evaluated with.

        `more` is the tokens added after compiling, `results` the tool results of the current step. With `after_cut` the
        usage is that of the trimmed request, otherwise that before trimming.
        """
        budget = compiled.budget
        used = (budget.used if after_cut else budget.wanted or budget.used) + more
        return TriggerContext(
            when=when,
            conversation=compiled.channel.conversation,
            agent=turn.agent,
            turn=turn.number,
            step=step,
            used=used,
            available=budget.available,
            share=used / budget.available if budget.available else 1.0,
            steps=turn.steps,
            tool_calls=turn.tool_calls,
            cost=self.cost,
            seconds=monotonic() - self._began,
            last=(*self.last_messages, *results),
            finish=self.finish,
            now=time(),
            step_limit=limits.steps,
            tool_call_limit=limits.tool_calls,
            cost_limit=limits.cost,
            seconds_limit=limits.seconds,
            todos=tuple(todos),
            resources=cache(self._resources),
        )


def total_usage(messages: Sequence[Message]) -> Usage | None:
    """Return the usage of a reply, which may be several messages; None if the provider reported none."""
    found = [message.usage for message in messages if message.usage is not None]
    return found[0] if len(found) == 1 else reduce(add_usage, found, Usage()) if found else None
