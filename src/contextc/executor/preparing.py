"""What comes before a request: input that steers, what triggers have to say, a summary where room is short.

Synchronous, and all of it from the store. Triggers are asked before anything is cut. What they say is stored, and the
request is compiled again, so that the model sees it in this very step.
"""

import logging
from collections.abc import Generator
from typing import Any, NamedTuple

from contextc._json import JSONObject
from contextc.compiler import Compiled, MessageCompiler
from contextc.compiler.compaction import Wanted
from contextc.events import Compaction
from contextc.executor.limits import Limits
from contextc.executor.progress import Progress
from contextc.executor.record import Record
from contextc.store.turns import TurnRecord
from contextc.triggers import Moment, Trigger, Verdict, When, evaluate

log = logging.getLogger("contextc.executor")
SUPERSEDED = "superseded"
SHORTENED = "contextc.shortened"
"""Under which it is remembered, with the states of triggers, that a provider's own compaction was told of."""
SESSION_GAP = 3_600_000
"""Milliseconds without a turn after which the next one begins a session."""


class Prepared(NamedTuple):
    """A request that may leave, with states of triggers that are stored when it does; or why none may."""

    compiled: Compiled
    states: dict[str, JSONObject]
    stop: str | None = None


class Preparation:
    """Prepares the steps of one turn."""

    def __init__(
        self,
        compiler: MessageCompiler,
        record: Record,
        progress: Progress,
        limits: Limits,
        triggers: list[Trigger],
        asked: dict[str, Any],  # what `compile` is called with
    ) -> None:
        self.compiler, self.record, self.progress = compiler, record, progress
        self.limits, self.triggers, self._asked = limits, triggers, asked

    def step(self, index: int) -> Prepared:
        """The request of a step, counted from 1."""
        if index > 1:
            self.record.steer()
        whens: list[When] = ["session_start"] if index == 1 and _starts_session(self.record) else []
        return self._asking([*whens, "before_step"], index)

    def after_compaction(self, index: int, done: Compaction, states: dict[str, JSONObject]) -> Prepared:
        """The request after a summary; `states` are those of what was prepared before it, not stored yet."""
        self.record.tell(done)
        return self._asking(["after_compaction"], index, states)

    def again(self, budget: int) -> Compiled:
        """The same request within a harder budget, which holds for the rest of the turn."""
        self.progress.budget = budget
        return self.compile()

    def compile(self) -> Compiled:
        again = self.progress.finish == "pause"
        return self.compiler.compile(self.record.conversation, budget=self.progress.budget, again=again, **self._asked)

    def summed_up(self) -> Generator[Wanted, str, Compaction | None]:
        """Have what is old summed up; None where there is nothing to sum up."""
        asked = {"budget": self.progress.budget, **self._asked}
        done = yield from self.compiler.compaction(self.record.conversation, **asked)
        if done is None or done.already:
            return None
        return Compaction(upto=done.upto, before=done.before, after=done.after, fallback=done.fallback)

    def _asking(self, whens: list[When], index: int, before: dict[str, JSONObject] | None = None) -> Prepared:
        compiled = self.compile()
        states = dict(before or {})
        request = compiled.sight.standing.requests
        if compiled.sight.standing.shortened and self.record.states.get(SHORTENED) != {"request": request}:
            whens = ["after_compaction", *whens]
            states[SHORTENED] = {"request": request}  # it is said once, though the request may fail
        if not self.record.stands(compiled.sight.at.branch):
            return Prepared(compiled, states, SUPERSEDED)
        for when in whens:
            verdict = self._verdict(self._moment(when, compiled, index), states)
            states |= verdict.states
            if verdict.says:
                self.record.speak(verdict.says, states, step=index if index > 1 else None)
                states = {}
                compiled = self.compile()
            if verdict.stop is not None:
                return Prepared(compiled, states, verdict.stop)
        nothing_new = None if compiled.is_new else self.progress.finish or "stop"
        return Prepared(compiled, states, nothing_new)

    def _moment(self, when: When, compiled: Compiled, index: int) -> Moment:
        turn, store = self.record.turn, self.record.store
        todos = store.todos(self.record.conversation, turn.agent) if when != "before_step" else ()
        return self.progress.moment(when, compiled, turn, self.limits, step=index, todos=todos)

    def _verdict(self, moment: Moment, states: dict[str, JSONObject]) -> Verdict:
        if not self.triggers:
            return Verdict()
        verdict = evaluate(self.triggers, moment, self.record.states | states)
        for name, failure in verdict.failures:
            log.warning("%s: trigger %s failed: %s", self.record.conversation, name, failure)
        return verdict


def cuts(compiled: Compiled) -> bool:
    """Whether messages were left out to make room, that a summary could tell of."""
    return bool(compiled.budget.wanted and compiled.record.left)


def _starts_session(record: Record) -> bool:
    before: TurnRecord | None = record.previous
    return before is None or record.turn.started - before.ended > SESSION_GAP
