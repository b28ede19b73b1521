"""The running totals of a turn, for triggers and limits. All of them can be restored from the store."""

from collections.abc import Callable, Sequence
from functools import cache, reduce
from time import monotonic, time

from contextc.compiler import Compiled
from contextc.executor.limits import Limits
from contextc.messages import Message, Usage
from contextc.models import Model, cost
from contextc.store import Store
from contextc.store.turn_and_event_records import TurnRecord
from contextc.tools.todos import Todo
from contextc.triggers import ResourceUsage, TriggerContext, TriggerTime


def add_usage(before: Usage, more: Usage | None) -> Usage:
    if more is None:
        return before
    return Usage(
        input=before.input + more.input,
        output=before.output + more.output,
        cache_read=before.cache_read + more.cache_read,
        cache_write=before.cache_write + more.cache_write,
        reasoning=before.reasoning + more.reasoning,
        cache_write_long=before.cache_write_long + more.cache_write_long,
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
            agent=compiled.channel.author,
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
