"""Prepare the request of a step: steering input, trigger messages, and a summary if the context is full.

Synchronous, and reads only the store. Triggers are evaluated before the context is trimmed. Triggers about context
usage are evaluated last, for the request that would be sent. If that request starts an epoch, warnings that still hold
and are no longer in it are repeated. Trigger messages are stored and the request is compiled again, so that the model
sees them in the same step.
"""

from collections.abc import Generator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from contextc._credential_mask import get_logger
from contextc._json import JSONObject
from contextc.compiler import Compiled
from contextc.compiler.compaction import CompactionSteps
from contextc.compiler.compiler import AgentArguments
from contextc.compiler.fit_budget import CALL_LEFT_OUT, SUMMED_UP
from contextc.compiler.ledger import load_messages_at
from contextc.compiler.summary_request import SummarizerInput
from contextc.errors import ContextOverflow
from contextc.executor.agent_config import AgentConfig
from contextc.executor.turn_store import TurnStore
from contextc.executor.turn_totals import KEPT_STEPS, TurnState
from contextc.messages import Message
from contextc.prompts import PromptContext
from contextc.store.message_rows import SEQ_MASK
from contextc.store.turn_and_event_records import TurnRecord
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

log = get_logger("contextc.executor")
SUPERSEDED = "superseded"
PROVIDER_COMPACTION_STATE = "contextc.shortened"
"""Name of the state with the last request after which a provider compacted its own session."""
SUMMARY_STATE = "contextc.compacted"
"""Name of the state with the last summary for which `after_compaction` triggers ran."""
MAX_ROUNDS = 4
"""How many times a request that starts an epoch is evaluated again after trigger messages have changed it."""


class PreparedStep(NamedTuple):
    """A request to send, with the trigger states to store with it; or the finish reason in `stop`."""

    compiled: Compiled
    states: dict[str, JSONObject]
    stop: str | None = None
    needs_summary: bool = False
    """True if messages would be left out and must be summarized first."""


class UsageMessages(NamedTuple):
    """The messages and new states of the triggers about context usage, for one request."""

    messages: list[tuple[Trigger, TriggerMessage]]
    states: dict[str, JSONObject]
    verdicts: list[Evaluation]

    @property
    def stop(self) -> str | None:
        """The finish reason with which the turn must end, or None."""
        return next((verdict.stop for verdict in self.verdicts if verdict.stop is not None), None)


class StepPreparer:
    """Prepares the steps of one turn."""

    def __init__(
        self,
        config: AgentConfig,
        turn_store: TurnStore,
        turn_state: TurnState,
    ) -> None:
        self.config, self.turn_store, self.turn_state = config, turn_store, turn_state
        self.triggers, self._compile_arguments = config.step_triggers, config.compile_arguments
        self._has_summaries = config.summarize is not None and not config.compiler.options.slides
        self._agent_triggers = [each for each in self.triggers if each.scope == "agent"]
        self._channel_triggers = [each for each in self.triggers if each.scope == "channel"]
        self._due_times: list[TriggerTime] = []
        """The `at` values of this step for which triggers about context usage are evaluated."""
        self._todos: list[Todo] | None = None
        """The todos as of the first trigger evaluation in this step."""
        self._provider_compacted = False
        """True if the provider compacted its own session with the request before this step."""
        self._headroom = 0
        """The tokens of messages that did not fit in the request of this step, so that it must be trimmed."""

    def prepare(self, index: int) -> PreparedStep:
        """Prepare the request of step `index`, counted from 1."""
        if index > 1:
            self.turn_store.take_steering_input()
        self._compile_arguments = self._load_arguments()
        self._due_times, self._todos, self._provider_compacted, self._headroom = [], None, False, 0
        whens: list[TriggerTime] = ["session_start"] if index == 1 and self._starts_session() else []
        return self._evaluate_step([*whens, "before_step"], index)

    def _load_arguments(self) -> AgentArguments:
        """Return the arguments of this step's `compile` calls. The recipient is by default the turn's sender."""
        asked, sender = self.config.arguments_for(self.turn_store.conversation), self.turn_store.opening_author
        context = asked.get("context") or PromptContext()
        if context.responding_to is None and sender is not None:
            asked["context"] = replace(context, responding_to=sender)
        return {**asked, "agent": self.turn_store.agent, "running": self.turn_store.load_running()}

    def prepare_after_compaction(self, index: int, states: dict[str, JSONObject]) -> PreparedStep:
        """Prepare the request after a summary. `states` are the unstored states of the earlier preparation."""
        return self._evaluate_step(["after_compaction"], index, states)

    def prepare_again(self, index: int, budget: int | None = None) -> PreparedStep:
        """Prepare the request again, optionally with a smaller budget that then applies to the rest of the turn.

        If the messages that must stay need more than that budget, this one request uses what they need.
        """
        before = self.turn_state.budget
        self.turn_state.budget = budget or before
        try:
            compiled = self.compile()
        except ContextOverflow as over:
            if budget is None:
                raise
            self.turn_state.budget = over.needed + over.system + over.tools + over.reserve + over.margin
            prepared = PreparedStep(self.compile(), {})
            self.turn_state.budget = before
            return prepared
        return self.add_usage_messages(PreparedStep(compiled, {}), index)

    def compile(self, upcoming: Sequence[Message] = ()) -> Compiled:
        """Compile the request. With `upcoming` messages, compile a dry run that includes them."""
        return self.config.compiler.compile(
            self.turn_store.conversation,
            budget=self.turn_state.budget,
            retry=self.turn_state.finish == "pause",
            upcoming=upcoming,
            headroom=self._headroom,
            dry_run=bool(upcoming),
            **self._compile_arguments,
        )

    def summarize(self) -> Generator[SummarizerInput, str, bool]:
        """Summarize old messages. Return False if there is nothing to summarize."""
        done = yield from self.config.compiler.compaction(
            self.turn_store.conversation,
            instructions=self.config.summary_instructions,
            from_cache=self.config.summarize == "model",
            in_transaction=self.turn_store.append_compaction,
            budget=self.turn_state.budget,
            **self._compile_arguments,
        )
        if done is None or done.already:
            return False
        self.turn_store.publish_compaction()
        return True

    def summarize_ahead(self, compiled: Compiled) -> CompactionSteps:
        """Summarize old messages for the next trimming. Return None if that would need no summary, because results can
        go: if a window that is just too small for this request would need none.
        """
        conversation, arguments = self.turn_store.conversation, self._compile_arguments
        smaller = compiled.budget.input - 1
        cut = self.config.compiler.compile(conversation, budget=smaller, dry_run=True, **arguments)
        if not leaves_messages_out(cut):
            return None
        return (
            yield from self.config.compiler.compaction(
                conversation,
                instructions=self.config.summary_instructions,
                from_cache=True,
                waits=True,
                budget=self.turn_state.budget,
                **arguments,
            )
        )

    def prepare_with_summary(self, index: int, states: dict[str, JSONObject]) -> PreparedStep:
        """Prepare the request again after a summary was written in the background."""
        compiled = self.compile()
        if leaves_messages_out(compiled):
            return PreparedStep(compiled, states, needs_summary=True)
        return self._evaluate_step([], index, states)

    def add_usage_messages(self, prepared: PreparedStep, index: int, *, sums_up: bool = False) -> PreparedStep:
        """Add messages about context usage to the request and, if it starts an epoch, repeat warnings that still hold.

        These messages need tokens. If the request has no room for them, it is trimmed first and evaluated again, so
        that no request contains both a warning and its end. With `sums_up` the method returns instead of trimming, so
        that messages are summarized first.
        """
        compiled, states, *_ = prepared
        if not self.triggers or not compiled.is_new:
            return prepared
        for _ in range(MAX_ROUNDS):
            said = self._exact_usage_messages(compiled, index, states)
            if said is None:
                compiled = self.compile()
                if sums_up and leaves_messages_out(compiled):
                    return PreparedStep(compiled, states, needs_summary=True)
                continue
            states |= said.states
            self._provider_compacted = False
            for verdict in said.verdicts:
                self.turn_store.report_failures(verdict, step=index)
            if said.messages:
                self.turn_store.store_trigger_messages(said.messages, states, step=index if index > 1 else None)
                compiled, states = self.compile(), {}
            if said.stop is not None:
                return PreparedStep(compiled, states, said.stop)
            if not said.messages or not compiled.draft.epoch:
                break
        return PreparedStep(compiled, states)

    def _exact_usage_messages(
        self, compiled: Compiled, index: int, before: dict[str, JSONObject]
    ) -> UsageMessages | None:
        """Return the messages about a request, with the figures that it has once they are included.

        A message that does not hold once it is in the request, or does not fit, is left out. Return None, and set the
        headroom, if the request must be trimmed to have room for them.
        """
        said = self._evaluate_usage(compiled, index, before)
        for _ in range(MAX_ROUNDS if said.messages and said.stop is None else 0):
            longer = self.compile(self.turn_store.trigger_messages(said.messages))
            if longer.draft.epoch and not compiled.draft.epoch:
                self._headroom = max(1, longer.budget.wanted - compiled.budget.used)
                return None
            if any(each.place & SEQ_MASK > compiled.snapshot.tip.seq for each in longer.draft.left):
                return UsageMessages([], {}, [])
            exact = self._evaluate_usage(longer, index, before)
            texts = [[(trigger.name, say.text) for trigger, say in each.messages] for each in (said, exact)]
            said = exact
            if not exact.messages or texts[0] == texts[1]:
                return said
        return said if said.stop is not None or not said.messages else UsageMessages([], {}, [])

    def _evaluate_usage(self, compiled: Compiled, index: int, before: dict[str, JSONObject]) -> UsageMessages:
        """Evaluate channel triggers for a request and, if it starts an epoch, repeat warnings that still hold."""
        said = UsageMessages([], {}, [])
        shown = self._trigger_messages_in(compiled) if compiled.draft.epoch else None
        for when in self._due_times:
            moment = self._trigger_context(when, compiled, index, after_cut=True)
            verdict = evaluate_triggers(
                self._channel_triggers, moment, self.turn_store.trigger_states | before | said.states, shown
            )
            said.messages.extend(verdict.messages)
            said.states.update(verdict.states)
            said.verdicts.append(verdict)
        if shown is None and not self._provider_compacted:
            return said
        moment = self._trigger_context("before_step", compiled, index, after_cut=True)
        known = [*(shown or ()), *[(trigger.name, say.closes) for trigger, say in said.messages]]
        verdict = restate_warnings(self.triggers, moment, self.turn_store.trigger_states | before | said.states, known)
        said.messages.extend(verdict.messages)
        said.verdicts.append(verdict)
        return said

    def _trigger_messages_in(self, compiled: Compiled) -> TriggerMessagesInRequest:
        """Return the trigger messages in a request that starts an epoch."""
        places = [item.place for item in compiled.draft.kept or () if item.role == "system" and item.place]
        found = self.turn_store.store.read(lambda tx: load_messages_at(tx, places)) if places else {}
        messages = [found[where] for where in places if where in found and found[where].trigger]
        return [(message.trigger, (message.meta or {}).get("closes") is True) for message in messages]

    def _evaluate_step(
        self, whens: list[TriggerTime], index: int, before: dict[str, JSONObject] | None = None
    ) -> PreparedStep:
        compiled = self.compile()
        states = dict(before or {})
        for name, mark in self._new_compactions(compiled):
            if self.turn_store.trigger_states.get(name) != mark:
                states[name] = mark  # reported once, even if the request fails
                whens = ["after_compaction", *[when for when in whens if when != "after_compaction"]]
                self._provider_compacted = self._provider_compacted or name == PROVIDER_COMPACTION_STATE
        if not self.turn_store.is_on_branch(compiled.snapshot.tip.branch):
            return PreparedStep(compiled, states, SUPERSEDED)
        for when in whens:
            if not self._agent_triggers:
                break
            verdict = evaluate_triggers(
                self._agent_triggers,
                self._trigger_context(when, compiled, index),
                self.turn_store.trigger_states | states,
            )
            self.turn_store.report_failures(verdict, step=index)
            states |= verdict.states
            if verdict.messages:
                self.turn_store.store_trigger_messages(verdict.messages, states, step=index if index > 1 else None)
                states = {}
                compiled = self.compile()
            if verdict.stop is not None:
                return PreparedStep(compiled, states, verdict.stop)
        self._due_times = [*whens, *[when for when in self._due_times if when not in whens]]
        if not compiled.is_new:
            if index == 1:
                turn = self.turn_store.turn
                log.warning(
                    "%s: turn %d has no request: no message is new to %s",
                    self.turn_store.conversation,
                    turn.number,
                    compiled.channel,
                )
            return PreparedStep(compiled, states, self.turn_state.finish or "stop")
        if self._has_summaries and before is None and leaves_messages_out(compiled):
            return PreparedStep(compiled, states, needs_summary=True)
        return self.add_usage_messages(
            PreparedStep(compiled, states), index, sums_up=self._has_summaries and before is None
        )

    def context_within_reply(
        self, compiled: Compiled, messages: Sequence[Message], calls: int, index: int
    ) -> TriggerContext:
        """Return the context of triggers within the reply to step `index`, after these messages of it."""
        turn, state = self.turn_store.turn, self.turn_state
        budget, counter = compiled.budget, self.config.compiler.counter
        replies = [place for place, message in enumerate(messages) if message.role == "assistant"]
        measured = next((place for place in reversed(replies) if messages[place].usage is not None), None)
        usage = None if measured is None else messages[measured].usage
        if measured is None or usage is None or not (used := compiled.measured_input(usage)):
            more = sum([counter.count_message(message) for message in messages])
        else:
            results = sum([counter.count_message(message) for message in messages[measured + 1 :]])
            more = used + usage.output + results - budget.input
        context = state.trigger_context(
            "before_step",
            compiled,
            replace(turn, tool_calls=turn.tool_calls + calls),
            self.config.limits,
            step=index + len(replies),
            todos=self.turn_store.store.todos(self.turn_store.conversation, turn.agent),
            more=more,
            results=messages[-2 * KEPT_STEPS :],
            after_cut=True,
        )
        _, cost = state.totals_with(messages, compiled.provider.model)
        return replace(context, cost=cost, finish="tool_calls", within_reply=True)

    def evaluate_within_reply(self, context: TriggerContext, index: int) -> Evaluation:
        """Evaluate all triggers between two calls of a reply to step `index`."""
        verdict = evaluate_triggers(self.triggers, context, self.turn_store.trigger_states)
        self.turn_store.report_failures(verdict, step=index)
        return verdict

    def _new_compactions(self, compiled: Compiled) -> list[tuple[str, JSONObject]]:
        """Return the compactions that precede this request: the provider's own, and a new summary."""
        standing, summary = compiled.snapshot.state, compiled.draft.summary
        found: list[tuple[str, JSONObject]] = []
        if standing.shortened:
            found.append((PROVIDER_COMPACTION_STATE, {"request": standing.requests}))
        if summary is not None and (compiled.draft.compacted or compiled.draft.waiting_summary is not None):
            found.append((SUMMARY_STATE, {"anchor": summary.anchor}))
        return found

    def _trigger_context(
        self, when: TriggerTime, compiled: Compiled, index: int, *, after_cut: bool = False
    ) -> TriggerContext:
        turn = self.turn_store.turn
        if self._todos is None:
            self._todos = self.turn_store.store.todos(self.turn_store.conversation, self.turn_store.author)
        return self.turn_state.trigger_context(
            when, compiled, turn, self.config.limits, step=index, todos=self._todos, after_cut=after_cut
        )

    def _starts_session(self) -> bool:
        before: TurnRecord | None = self.turn_store.previous_turn
        return before is None or self.turn_store.turn.started - before.ended > self.config.session_gap * 1000


def leaves_messages_out(compiled: Compiled) -> bool:
    """Return True if text was left out that a summary could cover, and does not cover yet. Results can be fetched."""
    whys = (CALL_LEFT_OUT, SUMMED_UP)
    return bool(compiled.budget.wanted) and any(each.why not in whys for each in compiled.record.left)
