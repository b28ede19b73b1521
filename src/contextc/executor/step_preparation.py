"""Prepare the request of a step: steering input, trigger messages, and a summary if the context is full.

Synchronous, and reads only the store. Triggers are evaluated before the context is trimmed. Triggers about context
usage are evaluated last, for the request that would be sent. If that request starts an epoch, warnings that still hold
and are no longer in it are repeated. Trigger messages are stored and the request is compiled again, so that the model
sees them in the same step.
"""

from collections.abc import Generator, Sequence
from typing import Any, NamedTuple

from contextc._json import JSONObject
from contextc.compiler import Compiled, MessageCompiler
from contextc.compiler.compaction import SummarizerInput
from contextc.compiler.ledger.channel_loader import load_messages_at
from contextc.errors import ContextOverflow
from contextc.events import CompactionFinished
from contextc.executor.limits import Limits
from contextc.executor.turn_state import TurnState
from contextc.executor.turn_store import TurnStore
from contextc.messages import Message
from contextc.store.execution_records import TurnRecord
from contextc.tools.todos import Todo
from contextc.triggers import (
    Evaluation,
    Trigger,
    TriggerContext,
    TriggerMessage,
    TriggerMessagesInRequest,
    TriggerTime,
    evaluate_triggers,
    restate_warnings,
)

SUPERSEDED = "superseded"
PROVIDER_COMPACTION_STATE = "contextc.shortened"
"""Name of the state with the last request after which a provider compacted its own session."""
SUMMARY_STATE = "contextc.compacted"
"""Name of the state with the last summary for which `after_compaction` triggers ran."""
MAX_ROUNDS = 3
"""How many times a request that starts an epoch is evaluated again after trigger messages have changed it."""


class PreparedStep(NamedTuple):
    """A request to send, with the trigger states to store with it; or the finish reason in `stop`."""

    compiled: Compiled
    states: dict[str, JSONObject]
    stop: str | None = None
    sums_up: bool = False
    """True if messages would be left out and must be summarized first."""


class UsageMessages(NamedTuple):
    """The messages and new states of the triggers about context usage, for one request."""

    says: list[tuple[Trigger, TriggerMessage]]
    states: dict[str, JSONObject]
    verdicts: list[Evaluation]


class StepPreparer:
    """Prepares the steps of one turn."""

    def __init__(
        self,
        compiler: MessageCompiler,
        record: TurnStore,
        progress: TurnState,
        limits: Limits,
        triggers: list[Trigger],
        asked: dict[str, Any],  # keyword arguments of `compile`
        *,
        gap: float,
        summarizes: bool,
    ) -> None:
        self.compiler, self.record, self.progress = compiler, record, progress
        self.limits, self.triggers, self._asked = limits, triggers, asked
        self._gap, self._summarizes = gap, summarizes
        self._of_agent = [each for each in triggers if each.scope == "agent"]
        self._of_channel = [each for each in triggers if each.scope == "channel"]
        self._due: list[TriggerTime] = []
        """The `at` values of this step for which triggers about context usage are evaluated."""
        self._todos: list[Todo] | None = None
        """The todos as of the first trigger evaluation in this step."""
        self._shortened = False
        """True if the provider compacted its own session with the request before this step."""

    def step(self, index: int) -> PreparedStep:
        """Prepare the request of step `index`, counted from 1."""
        if index > 1:
            self.record.steer()
        self._due, self._todos, self._shortened = [], None, False
        whens: list[TriggerTime] = ["session_start"] if index == 1 and self._starts_session() else []
        return self._asking([*whens, "before_step"], index)

    def after_compaction(self, index: int, done: CompactionFinished, states: dict[str, JSONObject]) -> PreparedStep:
        """Prepare the request after a summary. `states` are the unstored states of the earlier preparation."""
        self.record.tell(done)
        return self._asking(["after_compaction"], index, states)

    def again(self, index: int, budget: int | None = None) -> PreparedStep:
        """Prepare the request again, optionally with a smaller budget that then applies to the rest of the turn.

        If the messages that must stay need more than that budget, this one request uses what they need.
        """
        before = self.progress.budget
        self.progress.budget = budget or before
        try:
            compiled = self.compile()
        except ContextOverflow as over:
            if budget is None:
                raise
            self.progress.budget = over.needed + over.system + over.tools + over.reserve + over.margin
            prepared = PreparedStep(self.compile(), {})
            self.progress.budget = before
            return prepared
        return self.settled(PreparedStep(compiled, {}), index)

    def compile(self, upcoming: Sequence[Message] = ()) -> Compiled:
        """Compile the request. With `upcoming` messages, compile a dry run that includes them."""
        again = self.progress.finish == "pause"
        asked: dict[str, Any] = {**self._asked, "upcoming": upcoming, "dry_run": True} if upcoming else self._asked
        return self.compiler.compile(self.record.conversation, budget=self.progress.budget, again=again, **asked)

    def summed_up(self) -> Generator[SummarizerInput, str, CompactionFinished | None]:
        """Summarize old messages. Return None if there is nothing to summarize."""
        asked = {"budget": self.progress.budget, **self._asked}
        done = yield from self.compiler.compaction(self.record.conversation, **asked)
        if done is None or done.already:
            return None
        return CompactionFinished(upto=done.upto, before=done.before, after=done.after, fallback=done.fallback)

    def settled(self, prepared: PreparedStep, index: int, *, sums_up: bool = False) -> PreparedStep:
        """Add messages about context usage to the request and, if it starts an epoch, repeat warnings that still hold.

        These messages need tokens. If they start an epoch or trim more, the request is evaluated again. With `sums_up`
        the method returns instead, so that messages are summarized first.
        """
        compiled, states, *_ = prepared
        if not self.triggers or not compiled.is_new:
            return prepared
        for _ in range(MAX_ROUNDS):
            starts = bool(compiled.draft.epoch)
            said = self._said(compiled, index, states)
            states |= said.states
            self._shortened = False
            for verdict in said.verdicts:
                self.record.report(verdict, step=index)
            stop = next((verdict.stop for verdict in said.verdicts if verdict.stop is not None), None)
            if said.says:
                self.record.speak(said.says, states, step=index if index > 1 else None)
                compiled, states = self.compile(), {}
            if stop is not None:
                return PreparedStep(compiled, states, stop)
            if not said.says or not compiled.draft.epoch:
                break
            if sums_up and not starts and leaves_messages_out(compiled):
                return PreparedStep(compiled, states, sums_up=True)
        return PreparedStep(compiled, states)

    def _said(self, compiled: Compiled, index: int, before: dict[str, JSONObject]) -> UsageMessages:
        """Return the messages about a request, with the figures that it has once they are included."""
        said = self._usage(compiled, index, before)
        for _ in range(MAX_ROUNDS if said.says else 0):
            exact = self._usage(self.compile(self.record.messages(said.says)), index, before)
            names, texts = ([(trigger.name, say.text) for trigger, say in each.says] for each in (said, exact))
            if [name for name, _ in names] != [name for name, _ in texts]:
                break
            said = exact
            if names == texts:
                break
        return said

    def _usage(self, compiled: Compiled, index: int, before: dict[str, JSONObject]) -> UsageMessages:
        """Evaluate channel triggers for a request and, if it starts an epoch, repeat warnings that still hold."""
        said = UsageMessages([], {}, [])
        shown = self._shown(compiled) if compiled.draft.epoch else None
        for when in self._due:
            moment = self._moment(when, compiled, index, after_cut=True)
            verdict = evaluate_triggers(self._of_channel, moment, self.record.states | before | said.states, shown)
            said.says.extend(verdict.says)
            said.states.update(verdict.states)
            said.verdicts.append(verdict)
        if shown is None and not self._shortened:
            return said
        moment = self._moment("before_step", compiled, index, after_cut=True)
        known = [*(shown or ()), *[(trigger.name, say.closes) for trigger, say in said.says]]
        verdict = restate_warnings(self.triggers, moment, self.record.states | before | said.states, known)
        said.says.extend(verdict.says)
        said.verdicts.append(verdict)
        return said

    def _shown(self, compiled: Compiled) -> TriggerMessagesInRequest:
        """Return the trigger messages in a request that starts an epoch."""
        places = [item.place for item in compiled.draft.kept or () if item.role == "system" and item.place]
        found = self.record.store.read(lambda tx: load_messages_at(tx, places)) if places else {}
        metas = [found[where].meta or {} for where in places if where in found]
        return [(str(meta["trigger"]), meta.get("closes") is True) for meta in metas if "trigger" in meta]

    def _asking(
        self, whens: list[TriggerTime], index: int, before: dict[str, JSONObject] | None = None
    ) -> PreparedStep:
        compiled = self.compile()
        states = dict(before or {})
        for name, mark in self._compacted(compiled):
            if self.record.states.get(name) != mark:
                states[name] = mark  # reported once, even if the request fails
                whens = ["after_compaction", *[when for when in whens if when != "after_compaction"]]
                self._shortened = self._shortened or name == PROVIDER_COMPACTION_STATE
        if not self.record.stands(compiled.sight.at.branch):
            return PreparedStep(compiled, states, SUPERSEDED)
        for when in whens:
            if not self._of_agent:
                break
            verdict = evaluate_triggers(
                self._of_agent, self._moment(when, compiled, index), self.record.states | states
            )
            self.record.report(verdict, step=index)
            states |= verdict.states
            if verdict.says:
                self.record.speak(verdict.says, states, step=index if index > 1 else None)
                states = {}
                compiled = self.compile()
            if verdict.stop is not None:
                return PreparedStep(compiled, states, verdict.stop)
        self._due = [*whens, *[when for when in self._due if when not in whens]]
        if not compiled.is_new:
            return PreparedStep(compiled, states, self.progress.finish or "stop")
        if self._summarizes and before is None and leaves_messages_out(compiled):
            return PreparedStep(compiled, states, sums_up=True)
        return self.settled(PreparedStep(compiled, states), index, sums_up=self._summarizes and before is None)

    def _compacted(self, compiled: Compiled) -> list[tuple[str, JSONObject]]:
        """Return the compactions that precede this request: the provider's own, and a new summary."""
        standing, summary = compiled.sight.standing, compiled.draft.summary
        found: list[tuple[str, JSONObject]] = []
        if standing.shortened:
            found.append((PROVIDER_COMPACTION_STATE, {"request": standing.requests}))
        if compiled.draft.compacted and summary is not None:
            found.append((SUMMARY_STATE, {"anchor": summary.anchor}))
        return found

    def _moment(self, when: TriggerTime, compiled: Compiled, index: int, *, after_cut: bool = False) -> TriggerContext:
        turn = self.record.turn
        if self._todos is None:
            self._todos = self.record.store.todos(self.record.conversation, turn.agent)
        return self.progress.moment(
            when, compiled, turn, self.limits, step=index, todos=self._todos, after_cut=after_cut
        )

    def _starts_session(self) -> bool:
        before: TurnRecord | None = self.record.previous
        return before is None or self.record.turn.started - before.ended > self._gap * 1000


def leaves_messages_out(compiled: Compiled) -> bool:
    """Return True if messages were left out that a summary could cover."""
    return bool(compiled.budget.wanted and compiled.record.left)
