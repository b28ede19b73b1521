"""One turn, from its input to its end: prepare a step, call the model, store the reply, run tools, go on.

`TurnRunner` is the story. `StepPreparer` compiles the next request with what triggers say. `Turn` is for the caller.
"""

import asyncio
import inspect
import logging
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Collection,
    Coroutine,
    Generator,
    Iterable,
    Sequence,
)
from contextlib import aclosing, nullcontext, suppress
from contextvars import ContextVar
from functools import cache, partial
from math import inf
from typing import TYPE_CHECKING, Literal, NamedTuple

from msgspec.structs import replace

from contextc import telemetry
from contextc._credential_mask import get_logger, mask_secrets
from contextc._json import JSONObject, fix_surrogates
from contextc._worker_threads import CALLBACK_SLOTS, as_exception, run_blocking, wait_until_done
from contextc.compiler import Compiled
from contextc.compiler.agent_view import view_inserted_messages
from contextc.compiler.arguments import AgentArguments
from contextc.compiler.compaction import CompactionSteps, SummarizerInput
from contextc.compiler.ledger import SessionManager, load_messages_by_place
from contextc.errors import (
    ContextcError,
    ContextOverflow,
    ConversationBusy,
    LeaseLost,
    ProviderFailed,
    StaleCompile,
    describe_error,
)
from contextc.events import AnyEvent, ErrorOccurred, FailureDetails, RetryScheduled, StreamEvent, ToolStart
from contextc.executor.agent_calls import AgentCaller, CalledTurnOwner, TurnAccount, with_agent_events
from contextc.executor.agent_config import (
    AgentConfig,
    Suspend,
    handoff_tool_name,
    with_client_tools,
)
from contextc.executor.event_hub import Inbox, event_hub, watch_batches
from contextc.executor.fragment_rendering import TurnFragments
from contextc.executor.limits import MAX_CALLS_PER_REPLY, MAX_COST, MAX_SECONDS, MAX_TOOL_CALLS
from contextc.executor.model_call import (
    MAX_RETRIES,
    MAX_RETRY_SECONDS,
    ReplyStream,
    apply_prepare_callback,
    retry_delay,
)
from contextc.executor.server_tools import ServerTools
from contextc.executor.summaries import ModelSummary, run_compaction, summarize
from contextc.executor.tool_runner import ToolRunner
from contextc.executor.turn_store import (
    CANCELLED_REASON,
    FAILED_REASON,
    KEPT_STEPS,
    GivenInput,
    RunningRuns,
    TurnResult,
    TurnState,
    TurnStore,
    store_waiting_input,
    total_usage,
    withdraw_waiting_input,
)
from contextc.messages import Message, ToolCall, ToolResult, Usage
from contextc.prompts import PromptContext
from contextc.providers import Provider
from contextc.providers.client import Deliver, Endpoint
from contextc.store import Store
from contextc.store.async_store import openings_of_loop, wait_for_lease
from contextc.store.branches import SPEAKER_META
from contextc.store.ledger_schema import LeftOutReason
from contextc.store.message_log import SEQ_MASK, Lease, find_tip, load_tip, run_name
from contextc.store.store import leases_of
from contextc.store.transaction_engine import Transaction
from contextc.store.turn_queue import PROCESS_LESS_STATES
from contextc.store.turn_records import TurnRecord, drop_incomplete_call, load_last_turn, may_have_run
from contextc.tools.todos import Todo
from contextc.triggers import (
    Evaluation,
    Trigger,
    TriggerContext,
    TriggerMessage,
    TriggerMessagesInRequest,
    TriggerTime,
    evaluate_triggers,
    reads_only_its_context,
    restate_warnings,
)

if TYPE_CHECKING:
    from contextc.telemetry.recorder import Recorder

# ── a step before its request ─────────────────────────────────────────────────────────────────────────────────────────
# Prepare the request of a step: steering input, trigger messages, and a summary if the context is full.
#
# Synchronous, and reads only the store. Triggers are evaluated before the context is trimmed. Triggers about context
# usage are evaluated last, for the request that would be sent. If that request starts an epoch, warnings that still
# hold and are no longer in it are repeated. Trigger messages are stored and the request is compiled again, so that the
# model sees them in the same step.


log = get_logger("contextc.executor")
SUPERSEDED = "superseded"
PROVIDER_COMPACTION_STATE = "contextc.shortened"
"""Name of the state with the last request after which a provider compacted its own session."""
SUMMARY_STATE = "contextc.compacted"
"""Name of the state with the last summary for which `after_compaction` triggers ran."""
MAX_ROUNDS = 4
"""Number of times that a request that starts an epoch is evaluated again after trigger messages have changed it."""


class PreparedStep(NamedTuple):
    """A request to send, with the trigger states to store with it; or the finish reason in `stop`."""

    compiled: Compiled
    states: dict[str, JSONObject]
    stop: str | None = None
    needs_summary: bool = False
    """True if messages would be left out and must be summarized first."""
    is_begun: bool = False
    """True if the attempt is stored: the request can be sent."""


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
        self.fragments = TurnFragments(config, turn_store)
        self._rendered: AgentArguments | None = None
        """The arguments of the next step with rendered fragments, if they have functions."""
        self._running: RunningRuns | None = None
        """The other runs that were still going when the arguments were loaded; None if this turn belongs to no run."""
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

    def prepare(self, index: int) -> PreparedStep | None:
        """Prepare the request of step `index`, counted from 1. Return None if the turn shall end before it."""
        if index > 1:
            self.turn_store.take_steering_input()
            if self.turn_store.end_request:
                return None
        self._compile_arguments = self._take_arguments()
        self._due_times, self._provider_compacted, self._headroom = [], False, 0
        self._todos = self.turn_store.read_todos if index > 1 else None
        whens: list[TriggerTime] = ["session_start"] if index == 1 and self._starts_session() else []
        try:
            return self._evaluate_step([*whens, "before_step"], index)
        finally:
            self.turn_store.read_todos = None

    async def render_fragments(self) -> None:
        """Render the fragments of the next step whose functions may be async."""
        if self.fragments.is_needed:
            arguments = await run_blocking(self._load_arguments, slots=CALLBACK_SLOTS)
            self._rendered = await self.fragments.render(arguments)

    def _take_arguments(self) -> AgentArguments:
        arguments, self._rendered = self._rendered or self._load_arguments(), None
        return arguments

    def _load_arguments(self) -> AgentArguments:
        """Return the arguments of this step's `compile` calls. The recipient is by default the turn's sender."""
        asked, sender = self.config.arguments_for(self.turn_store.conversation), self.turn_store.opening_author
        context = asked.get("context") or PromptContext()
        if context.responding_to is None and sender is not None:
            asked["context"] = replace(context, responding_to=sender)
        agent = self.config.channel_agent(self.turn_store.agent)
        self._running = running = self.turn_store.load_running()
        return {**asked, "name": agent, "running": running.names if running is not None else None}

    def prepare_after_compaction(self, index: int, states: dict[str, JSONObject]) -> PreparedStep:
        """Prepare the request after a summary. `states` are the unstored states of the earlier preparation."""
        return self._evaluate_step(["after_compaction"], index, states)

    def prepare_after_change(self, index: int, states: dict[str, JSONObject]) -> PreparedStep:
        """Prepare the request again after others have changed the conversation, which they may have rewound, too."""
        return self._evaluate_step([], index, states)

    def prepare_for_next_model(self, index: int) -> PreparedStep:
        """Prepare step `index` after another model has failed. Its triggers were evaluated, and its input was taken."""
        self._compile_arguments = self._take_arguments()
        return self.prepare_again(index)

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
        """Compile the request. With `upcoming` messages, compile a dry run that includes them.

        A run that began after the arguments were loaded is still going, too: the request is compiled again without its
        messages, because a call without a result would read as interrupted.
        """
        while True:
            held = self.turn_store.prepare_held()
            pending = [held.entry] if held is not None and held.entry is not None else []
            compiled = self.config.compiler.compile(
                self.turn_store.conversation,
                max_input_tokens=self.turn_state.budget,
                retry=self.turn_state.finish == "pause",
                upcoming=[*pending, *upcoming],
                headroom=self._headroom,
                dry_run=bool(upcoming),
                **self._compile_arguments,
            )
            if pending and (compiled.draft.epoch or compiled.budget.wanted):
                self.turn_store.store_held()  # a new epoch is made of what is stored
                continue
            if held is not None and not upcoming:
                self.turn_state.replace_message(held.message, compiled.snapshot.log[-1][1])
            running = self._running
            if running is None or not (begun := self.turn_store.find_begun_runs(compiled, running)):
                return compiled
            self._running = running._replace(names=running.names | begun)
            self._compile_arguments["running"] = self._running.names

    def summarize(self) -> Generator[SummarizerInput, str, bool]:
        """Summarize old messages. Return False if there is nothing to summarize."""
        done = yield from self.config.compiler.compaction(
            self.turn_store.conversation,
            self._compile_arguments,
            max_input_tokens=self.turn_state.budget,
            instructions=self.config.summary_instructions,
            from_cache=self.config.summarize == "model",
            in_transaction=self.turn_store.append_compaction,
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
        cut = self.config.compiler.compile(conversation, max_input_tokens=smaller, dry_run=True, **arguments)
        if not leaves_messages_out(cut):
            return None
        return (
            yield from self.config.compiler.compaction(
                conversation,
                arguments,
                max_input_tokens=self.turn_state.budget,
                instructions=self.config.summary_instructions,
                from_cache=True,
                waits=True,
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
        found = self.turn_store.store.read(lambda tx: load_messages_by_place(tx, places)) if places else {}
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
        _, spent = state.totals_with(messages, compiled.provider.model)
        cost = spent.dollars if spent is not None else None
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
            self._todos = self.turn_store.load_todos()
        return self.turn_state.trigger_context(
            when, compiled, turn, self.config.limits, step=index, todos=self._todos, after_cut=after_cut
        )

    def _starts_session(self) -> bool:
        before: TurnRecord | None = self.turn_store.previous_turn
        return before is None or self.turn_store.turn.started - before.ended > self.config.session_gap * 1000


def leaves_messages_out(compiled: Compiled) -> bool:
    """Return True if text was left out that a summary could cover, and does not cover yet. Results can be fetched."""
    whys = (
        *(LeftOutReason.CALL_LEFT_OUT, LeftOutReason.SUMMED_UP),
        *(LeftOutReason.PROVIDER_COMPACTED, LeftOutReason.FOREIGN_COMPACTION),
    )
    return bool(compiled.budget.wanted) and any(each.why not in whys for each in compiled.record.left)


# ── programs that run tools themselves ────────────────────────────────────────────────────────────────────────────────
# Serves a provider that runs its own loop within one reply, such as Claude Code: its tool calls, and what is between.
#
# The model of such a provider makes many calls within one request. Between two of them triggers are evaluated and
# steering input is taken, as between the steps of other turns. What the model must read is stored after the part of
# the reply that precedes it, in one transaction, and then handed to the provider. The stored order is that of the
# model. If the provider cannot deliver it, it stays outstanding and is sent with the next request. If the process dies
# in between, the session is reverted, and the next request contains it.


STOPPED, STOP_REQUEST, NOTHING_TO_DO = "stopped", "stop", "nothing to do"
ENDED_TEXT = "The turn ends here ({why})."


class ProgramHost:
    """The host of one reply. The results of tools are part of the reply and are stored with it."""

    def __init__(self, stream: ReplyStream, tools: ToolRunner, preparer: StepPreparer) -> None:
        self._stream, self._tools, self._preparer = stream, tools, preparer
        self._turn_store = tools.turn_store
        self._lock = asyncio.Lock()
        self._inserted: list[Message] = []
        """The messages that the model got within this reply."""

    def has_ended(self) -> bool:
        """Return True if the reply must end, or has ended, because of an answer of this host."""
        return self._tools.ended is not None

    async def approve(self, call: ToolCall) -> str:
        await self._stream.flush()
        return await self._tools.ask_hosted_approval(call)

    async def run(self, call: ToolCall) -> ToolResult:
        await self._stream.flush()
        self._stream.has_run_tools = True
        result = await self._tools.run_hosted_call(call)
        self._stream.add_result(result)
        return result

    async def admit(self, call: ToolCall) -> str:
        return self._tools.admit(call)

    async def between_calls(self, deliver: Deliver, results: Collection[str] = ()) -> str:
        async with self._lock:
            try:
                if self._tools.ended is None:
                    await self._stream.wait_for_results([results] if isinstance(results, str) else results)
                    await self._insert(deliver)
            except Exception as error:  # such as a lost lease: the reply fails with it
                self._stream.failure = self._stream.failure or error
                return ENDED_TEXT.format(why="an error")
        return "" if self._tools.ended is None else ENDED_TEXT.format(why=self._tools.ended)

    async def _insert(self, deliver: Deliver) -> None:
        await self._stream.flush_all()
        if not (part := self._stream.complete_part()):
            return
        storing = run_blocking(self._store_messages, part, slots=CALLBACK_SLOTS)
        inserted = await self._stream.store_part(storing)
        if inserted and self._tools.ended is None and await self._deliver(deliver, inserted):
            self._inserted += inserted
            self._stream.stored += inserted

    async def _deliver(self, deliver: Deliver, inserted: Sequence[Message]) -> bool:
        entries, _ = view_inserted_messages(
            self._stream.compiled.draft, [(message.seq, message) for message in (*self._inserted, *inserted)]
        )
        try:
            delivered = deliver([entries[message.seq].message for message in inserted if message.seq in entries])
            return await delivered if inspect.isawaitable(delivered) else delivered
        except Exception as error:
            conversation, why = self._turn_store.conversation, as_exception(error)
            log.warning("%s: messages wait for the next request: %s", conversation, why)
            return False

    def _store_messages(self, part: list[Message]) -> list[Message]:
        """Evaluate triggers and limits after a part of the reply. Return the messages that the model must read."""
        stream, tools, record = self._stream, self._tools, self._turn_store
        tools.notice_hosted_calls()
        is_steered = record.has_steering_input()
        if record.end_request == STOP_REQUEST:
            tools.ended = STOPPED
            return []
        messages = [*stream.stored, *part]
        if tools.has_reached_limit(messages):
            tools.ended = MAX_TOOL_CALLS
            return []
        context = self._preparer.context_within_reply(
            stream.compiled, messages, tools.count_calls(messages), tools.step
        )
        if tools.account.has_reached_cost(context.cost):
            tools.ended = MAX_COST
            return []
        verdict = self._preparer.evaluate_within_reply(context, tools.step)
        if not is_steered and not verdict.messages and not verdict.states:
            return []
        if not record.is_on_branch(record.store.read(lambda tx: load_tip(tx, record.conversation).branch)):
            return []  # the commit of the reply reports it
        is_new = is_steered or any(say.kind == "system" for _, say in verdict.messages)
        before, inserted = record.store_trigger_messages(
            verdict.messages,
            verdict.states,
            step=tools.step,
            reply=part if is_new else (),
            stream=stream.journal_uid if is_new else "",
        )
        if is_new:
            stream.mark_stored(before)
        tools.ended = verdict.stop
        return inserted


# ── failures ──────────────────────────────────────────────────────────────────────────────────────────────────────────
# Records of a failure: the received part of a reply, the text of an error, and its event.


def mark_incomplete(
    messages: list[Message], status: Literal["cancelled", "error"], why: str, provider: Provider
) -> list[Message]:
    """Return the messages of an interrupted reply, the last of them marked as incomplete.

    Calls of a provider that runs tools itself may have run: they are kept, and answered as interrupted.
    """
    if not messages or messages[-1].role != "assistant":
        return messages
    *before, last = messages
    parts = tuple(drop_incomplete_call(last.parts))
    if provider.runs_tools and may_have_run("tool_calls", parts):
        return [*before, replace(last, parts=parts, status="sent", error=None, finish="tool_calls")]
    return [*before, replace(last, status=status, error=why)]


def error_text(error: BaseException) -> str:
    """Return an exception as text that can be stored: invalid Unicode is replaced, and credentials are masked."""
    return mask_secrets(fix_surrogates(describe_error(error)))


def retry_event(error: ProviderFailed, seconds: float, attempt: int, dropped: Iterable[str] = ()) -> RetryScheduled:
    return RetryScheduled(
        kind=error.kind,
        seconds=round(seconds, 3),
        attempt=attempt,
        error=mask_secrets(str(error)),
        failure=failure_details(error),
        dropped_betas=tuple(sorted(dropped)),
    )


def failure_details(error: ProviderFailed) -> FailureDetails:
    return FailureDetails(
        provider=error.provider,
        message=mask_secrets(fix_surrogates(error.said)),
        fix=fix_surrogates(error.way_out),
        case=error.case,
        detail=fix_surrogates(error.detail),
        status=error.status,
        code=fix_surrogates(error.code),
        retry_after=error.retry_after,
        request_id=fix_surrogates(error.request_id),
    )


def error_event(error: Exception) -> ErrorOccurred:
    text = error_text(error)
    if isinstance(error, ProviderFailed):
        return ErrorOccurred(kind=error.kind, error=text, failure=failure_details(error))
    return ErrorOccurred(kind="context" if isinstance(error, ContextOverflow) else "internal", error=text)


# ── the loop ──────────────────────────────────────────────────────────────────────────────────────────────────────────
# The loop of a turn: prepare → call → store → tools → decide, until the model makes no more tool calls.
#
# Step N is stored completely before step N+1 is prepared. Every request is compiled from the store, never from memory.
# Blocking work runs on worker threads. A turn always ends with one transaction that answers open calls and stores the
# finish reason.


WAITING, HANDED_OVER = "waiting", "handed over"
"""Finish reasons: the turn was suspended until an approval is answered; another process continues it."""
RETRY_BUDGET_SHARE = 0.75
LASTING_FAILURES = ("invalid", "abort")
"""Failures that another model would have too, or that were requested."""
MAX_CONTINUATIONS = 2
"""Number of replies in a row that reached the output limit and are continued."""


class ReceivedReply(NamedTuple):
    """A reply, with its request and the tools of its step."""

    stream: ReplyStream
    messages: list[Message]
    compiled: Compiled
    tools: ToolRunner

    @property
    def answer(self) -> Message | None:
        """The last message, unless the host has ended the reply before it."""
        return self.messages[-1] if self.messages and self.messages[-1].role == "assistant" else None

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The calls of the answer: what a provider calls before it answers, it has run itself."""
        return self.answer.tool_calls if self.answer is not None else ()


class TurnRunner:
    """Runs turns under one lease, one after the other, until no input is queued."""

    def __init__(self, config: AgentConfig, turn_store: TurnStore, results: list[TurnResult]) -> None:
        self._first_config, self.turn_store, self.results = config, turn_store, results
        self.cancelled = False
        """True if a turn was cancelled. The finish reason does not tell: a provider may report `cancelled` too."""
        self.lease_lost: LeaseLost | None = None
        """Set before the turn is cancelled because its lease was lost."""
        self.is_given_up = False
        """Set before the turn is cancelled because another process runs that of its caller, and will go on with it."""
        self._ending = asyncio.Lock()
        """Held while the end of a turn is stored, and while the usage of a summary is counted."""
        self._ended: tuple[TurnResult, bool] | None = None
        """The result of a turn whose end was stored with its last reply, and True if another turn follows."""
        self._reset()

    def _reset(self) -> None:
        config = self._first_config
        self.turn_state = TurnState(self.turn_store.turn, config.max_input_tokens, config.resources, config.turn_deps)
        above = config.owner.account if isinstance(config.owner, CalledTurnOwner) else None
        self.account = TurnAccount(config.limits, self.turn_store, self.turn_state, above)
        self._use(config)

    def _use(self, config: AgentConfig) -> None:
        """Go on with this configuration: that of the agent, or of its next model."""
        config = self._agent_config = config.without_refused_betas()
        self.config = with_client_tools(config, self.turn_store.client_tools)
        self._server_tools = ServerTools()
        self.preparer = StepPreparer(self.config, self.turn_store, self.turn_state)

    async def run(self, *, cancelled: bool = False) -> None:
        """Run the turns and append the result of each to `results`. With `cancelled`, end the first one immediately."""
        exits: BaseException | None = None
        while True:
            finish, error, why, self._ended = "error", None, FAILED_REASON, None
            limit: asyncio.Timeout | None = None
            try:
                if cancelled:
                    raise asyncio.CancelledError
                async with asyncio.timeout(self.config.limits.seconds) as limit:
                    recorder = telemetry.active
                    finish = await (self._run_steps() if recorder is None else self._record_turn(recorder))
                why = finish
            except asyncio.CancelledError:
                if self._ended is not None:
                    cancelled = True
                elif self.lease_lost is not None:
                    finish, error = "error", self.lease_lost
                else:
                    finish, why, self.cancelled = "cancelled", CANCELLED_REASON, True
            except GeneratorExit:  # the event loop is closed: nothing can be awaited
                raise
            except BaseException as failure:
                if limit is not None and limit.expired() and isinstance(failure, TimeoutError):
                    finish, why = MAX_SECONDS, "its time limit"
                else:
                    error = as_exception(failure)
                    exits = failure if isinstance(failure, KeyboardInterrupt | SystemExit) else None
                    self._log_failure(error)
            if self.turn_store.turn.state in PROCESS_LESS_STATES:  # it is stored: no lease is held any more
                self.results.append(await self._waiting_result(finish))
                return
            result, follows = self._ended or (self._make_result(finish, error), False)
            if self.is_given_up and self._ended is None:
                await run_blocking(self._release_failed)
                self.results.append(self._make_result(HANDED_OVER, error))
                return
            try:
                if self._ended is None:
                    if error is not None and await self._continue_later(error):
                        self.results.append(self._make_result(HANDED_OVER, error))
                        return
                    follows = await self._close(finish, error, why)
            except asyncio.CancelledError:
                cancelled = True
                if not self._is_end_stored(result):  # the cancellation hid the error: end the turn again, as cancelled
                    continue
                follows = self.turn_store.turn.number != result.turn  # cancelled before its first step
            except Exception as failure:  # the result reports what is stored
                result, follows = self._make_result("error", failure), False
                if not isinstance(failure, LeaseLost):  # the next holder of the lease repairs the unfinished turn
                    await run_blocking(self._release_failed)
            self.results.append(result)
            if exits is not None:  # the end of the turn is stored: the process may exit
                raise exits
            if not follows:
                return
            self._reset()

    async def _record_turn(self, recorder: "Recorder") -> str:
        """Run the steps of the turn within a span."""
        record, before = self.turn_store, self.turn_store.turn
        finish = "error"
        with recorder.turn(record.conversation, record.author, self.config.provider, before.number) as recorded:
            try:
                finish = await self._run_steps()
            except asyncio.CancelledError:
                finish = "cancelled"
                raise
            finally:
                # Its end may be stored with the last reply, and the next turn open.
                done = self._make_result(finish, None) if self._ended is None else self._ended[0]
                recorder.end_turn(
                    recorded,
                    finish=done.finish,
                    usage=done.usage,
                    cost=done.cost,
                    steps=done.steps,
                    calls=done.tool_calls,
                    reply=done.message,
                )
        return finish

    async def _waiting_result(self, finish: str) -> TurnResult:
        """Return the result of a suspended turn, which ends if it was cancelled at the same time."""
        if finish == "cancelled":
            await run_blocking(self.config.store.cancel_turn, self.turn_store.conversation, self.turn_store.agent)
            return self._make_result(finish, None)
        return self._make_result(WAITING if self.turn_store.turn.state == "waiting" else HANDED_OVER, None)

    async def _continue_later(self, error: Exception | None = None) -> bool:
        """Hand the turn over to its owner, because it asks for that or after a failure. Return False if it ends."""
        owner, turn = self.config.owner, self.turn_store.turn
        if owner is None or not (
            owner.wants_back() if error is None else await run_blocking(owner.retries, turn, error)
        ):
            return False
        return await self._store_end(partial(self.turn_store.hand_over, partial(owner.store_continuation, error=error)))

    def _is_end_stored(self, result: TurnResult) -> bool:
        """Return True if the end of a turn was stored, which may have opened the next turn."""
        turn = self.turn_store.turn
        return turn.number != result.turn or turn.state == "finished"

    def _log_failure(self, failure: Exception) -> None:
        foreseen = isinstance(failure, ContextcError)
        log.log(
            logging.INFO if foreseen else logging.ERROR,
            "%s: turn %d failed: %s",
            self.turn_store.conversation,
            self.turn_store.turn.number,
            str(failure).strip() or type(failure).__name__,
            exc_info=None if foreseen else failure,
        )

    async def _close(self, finish: str, error: Exception | None, why: str) -> bool:
        """Store the end of the turn. Return True if another turn follows."""
        failed = error_event(error) if error is not None else None
        return await self._store_end(lambda: self.turn_store.close(finish, failed=failed, why=why))

    async def _store_end(self, store: Callable[[], bool]) -> bool:
        """Store that the turn has ended, or waits, with all that it has used so far."""
        async with self._ending:
            turn, used = self.turn_store.turn, self.turn_state
            if used.usage != (turn.usage or Usage()):
                self.turn_store.turn = used.stored_in(turn)
            return await run_blocking(store)

    def _release_failed(self) -> None:
        with suppress(ContextcError):
            self.turn_store.store_held()
        with suppress(ContextcError):
            self.turn_store.store.release(self.turn_store.lease, failed=True)

    def _make_result(self, finish: str, error: Exception | None, turn: TurnRecord | None = None) -> TurnResult:
        turn, progress = turn or self.turn_store.turn, self.turn_state
        return TurnResult(
            turn=turn.number,
            finish=finish,
            steps=turn.steps + turn.agent_steps,
            tool_calls=turn.tool_calls + turn.agent_tool_calls,
            usage=progress.usage,
            cost=progress.cost,
            cost_is_lower_bound=progress.bill is not None and progress.bill.is_lower_bound,
            message=progress.reply,
            error=error,
            model=self.config.provider.model_id,
            agent=self.config.speaker or self.turn_store.author,
            request=progress.last_request,
        )

    # ── handoffs and fallbacks ────────────────────────────────────────────────────────────────────────────────────────

    async def _select_agent(self, *, has_open_calls: bool = False) -> None:
        """Go on with the agent that the conversation was handed over to; with open calls, with the one that made them.

        The store tells who that is, so that a turn is continued by the same agent in any process.
        """
        entrance = self._first_config
        if entrance.handoffs is not None:
            speaker, called = await run_blocking(self.turn_store.load_last_speaker)
            others = entrance.handoffs(entrance.store)
            by_tool = {handoff_tool_name(each): each for each in (*others, entrance.agent)}
            handed = [by_tool[each] for each in called if each in by_tool]
            wanted = handed[-1] if handed and not has_open_calls else speaker
            name = wanted if wanted in others else ""
            if name != self.config.speaker:
                config = entrance.handed_over_to(name, self.turn_store.conversation) if name else entrance
                self.turn_state.budget = config.max_input_tokens
                self._use(config)
        await self._use_channel()

    async def _use_channel(self) -> None:
        """Let the states and messages of triggers belong to the channel of the configuration."""
        config, record = self.config, self.turn_store
        agent = config.channel_agent(record.agent)
        channel = str(config.compiler.channel(record.conversation, name=agent, directory=config.directory or None))
        if channel != record.channel:
            await run_blocking(record.use_channel, channel, config.channel_trigger_names)

    async def _load_server_tools(self) -> None:
        """Take over the tools of MCP servers as they are now."""
        config, record = self._agent_config, self.turn_store
        if config.servers is None:
            return
        agent = config.channel_agent(record.agent)
        channel = config.compiler.channel(record.conversation, name=agent, directory=config.directory or None)
        found = await self._server_tools.configure(config, channel, self.turn_state.last_messages)
        if found is not None:
            self.config = self.preparer.config = with_client_tools(found, record.client_tools)

    # ── steps ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _run_steps(self) -> str:
        """Run steps until the turn is over. Return the finish reason."""
        await openings_of_loop().wait()
        owner = self.config.owner
        if owner is not None:
            await run_blocking(owner.check, self.turn_store.turn)
        await self._select_agent(has_open_calls=bool(self.turn_store.turn.steps))
        await self._load_server_tools()
        if self.turn_store.turn.steps:  # the turn was interrupted or suspended, and is resumed
            await run_blocking(
                self.turn_state.restore, self.turn_store.store, self.turn_store.conversation, self.turn_store.turn
            )
            if self.turn_store.has_called_agents:
                await run_blocking(self.account.restore)
            if (finish := await self._run_unstarted_calls()) is not None:
                return finish
            await self._select_agent()
            if (finish := await run_blocking(self._stored_finish)) is not None:
                return finish
        while True:
            if (limit := self.account.begin_step() or self._call_limit()) is not None:
                return limit
            if self.turn_store.end_request == STOP_REQUEST:
                return STOPPED
            if await self._continue_later():
                return HANDED_OVER
            index = self.turn_store.turn.steps + 1
            await self._load_server_tools()
            prepared = await self._prepare(self.preparer.prepare, index)
            if prepared is None:
                if self.turn_store.end_request == CANCEL_REQUEST:
                    await asyncio.sleep(0)  # the cancellation comes here
                    raise asyncio.CancelledError  # or a callback has swallowed it
                continue
            if prepared.stop is not None:
                return prepared.stop
            answered = await self._call_models(prepared, index)
            finish = await self._store_reply(answered)
            if calls := answered.calls:
                answered.tools.holds_last = self._begins_next_step(answered)
                results = await answered.tools.run(calls)
                self.turn_state.add_messages(results)
                reply = self.turn_state.reply
                if reply is not None and answered.tools.waiting:
                    if await self._continue_later():
                        return HANDED_OVER
                    if await self._suspend(answered.tools, reply):
                        return WAITING
                    finish = await self._run_unstarted_calls()
                else:
                    finish = answered.tools.ended or self._finish_reason(reply, results)
            if finish is not None:
                return finish
            if self.config.handoffs is not None:
                await self._select_agent()

    def _begins_next_step(self, answered: ReceivedReply) -> bool:
        """Return True if the next request follows the last result of a step at once: no code of the program is between
        the two, which might read the store, and nothing that is awaited.
        """
        config, provider = self.config, self.config.provider
        callbacks = config.owner, config.handoffs, config.servers, config.on_prepare_messages, config.should_continue
        return (
            all([each is None for each in callbacks])
            and not callable(config.context)
            and all(map(reads_only_its_context, (*config.step_triggers, *config.mid_step_triggers)))
            and config.run is None
            and config.clients.is_open
            and not (provider.session_resumption or provider.runs_tools or self.preparer.fragments.is_needed)
            and not (answered.tools.ended or self.turn_store.end_request)
            and (self.account.find_reached() or self._call_limit()) is None
        )

    async def _run_unstarted_calls(self) -> str | None:
        """Run the calls of the last reply whose tools were never started, as far as they are approved.

        Suspend the turn for the others, or ask for their approval. Return the finish reason, or None if the turn
        continues.
        """
        while True:
            found = await run_blocking(self.turn_store.load_unstarted_calls)
            if found is None:
                return None
            left, answers = found
            calls, record = left.reply.tool_calls, self.turn_store
            record.step = left.step
            tools = self._make_tool_runner(None, left.step.index, before=left.calls_before)
            tools.answers, tools.reply_seq = answers, left.reply.seq
            starting = [
                call
                for call in tools.calls_without_approval(calls)
                if any(call is calls[index] for index in left.indexes if index not in answers)
            ]
            if starting:
                await run_blocking(record.append_events, *[ToolStart(id=call.id, name=call.name) for call in starting])
            results = await tools.run(calls, left.indexes)
            self.turn_state.add_messages(results)
            if not tools.waiting:
                return self._finish_reason(self.turn_state.reply, [*left.results, *results])
            if record.end_request == STOP_REQUEST:
                return STOPPED
            if await self._continue_later():
                return HANDED_OVER
            if await self._suspend(tools, left.reply):
                return WAITING

    async def _suspend(self, tools: ToolRunner, reply: Message) -> bool:
        """Store the approvals of the calls that wait, and suspend the turn. Return False if it can continue."""
        kept = [tools.answers[index] for index in tools.waiting_approvals if index in tools.answers]
        return await self._store_end(partial(self.turn_store.suspend, tools.new_approvals(reply), kept))

    def _call_limit(self) -> str | None:
        """Return the finish reason if the last reply has more calls than are run, or None."""
        reply, limit = self.turn_state.reply, self.config.limits.calls_per_reply
        return MAX_CALLS_PER_REPLY if reply is not None and limit and len(reply.tool_calls) > limit else None

    def _finish_reason(self, reply: Message | None, results: list[Message]) -> str | None:
        """Return the finish reason after a reply and its results, or None if the turn continues."""
        assert reply is not None, "a step that ends has a reply"
        finish = reply.finish or "stop"
        self.turn_state.truncated_replies = self.turn_state.truncated_replies + 1 if finish == "length" else 0
        if results:
            proceed = self.config.should_continue
            return None if proceed is None or proceed(reply, results) else "stop"
        if finish == "pause" or (finish == "length" and self.turn_state.truncated_replies <= MAX_CONTINUATIONS):
            return None
        return {"tool_calls": "stop", "cancelled": "other", "error": "other"}.get(finish, finish)

    def _stored_finish(self) -> str | None:
        """Return the finish reason of a resumed turn if one of several models has answered it already.

        The first of them has not seen that answer, and would be asked again.
        """
        progress = self.turn_state
        reply, last = progress.reply, progress.last_messages[-1:]
        if not self._agent_config.fallbacks or reply is None or last != [reply] or reply.status != "sent":
            return None
        return None if reply.tool_calls or self.turn_store.has_steering_input() else self._finish_reason(reply, [])

    # ── the call ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _prepare(self, prepare: Callable[[int], PreparedStep | None], index: int) -> PreparedStep | None:
        """Prepare a step, after a summary if it needs one, and start the next summary.

        If nothing has to happen between the two, the attempt is stored on the same thread, with the last result of the
        step before. That is stored by itself if this step sends no request yet.
        """
        await self.preparer.render_fragments()
        config = self.config
        begins = config.owner is None and config.on_prepare_messages is None and config.clients.is_open
        begun: list[Compiled] = []

        def work() -> PreparedStep | None:
            try:
                prepared = prepare(index)
                if not begins or prepared is None or prepared.stop is not None or prepared.needs_summary:
                    return prepared
                try:
                    self._start_step(prepared.compiled, index, prepared.states)
                except StaleCompile:
                    if self.turn_store.held is None:
                        raise
                    self.turn_store.store_held()  # after what was added meanwhile
                    prepared = self.preparer.prepare_after_change(index, prepared.states)
                    if prepared.stop is not None:
                        return prepared
                    self._start_step(prepared.compiled, index, prepared.states)
                begun.append(prepared.compiled)
                return prepared._replace(is_begun=True)
            finally:
                self.turn_store.store_held()

        try:
            prepared = await run_blocking(work, slots=CALLBACK_SLOTS)
        except asyncio.CancelledError as error:
            for compiled in begun:
                incoming = ReplyStream(self.turn_store, compiled, index, directory=config.directory)
                await self._store_failure(compiled, incoming, error, self._make_tool_runner(compiled, index))
            raise
        if prepared is not None and prepared.needs_summary:
            prepared = await self._summarize(prepared, index)
        if prepared is not None and prepared.stop is None:
            self._summarize_ahead(prepared.compiled)
        return prepared

    async def _call_models(self, prepared: PreparedStep, index: int) -> ReceivedReply:
        """Call the model. If it fails for good, go on with the next one: the turn, its input and its results stay.

        If it refuses a beta flag, go on without that, now and in later turns.
        """
        while True:
            try:
                endpoint, recorder = self.config.clients.get(), telemetry.active
                call = self._call_model(prepared, index, endpoint)
                return await (call if recorder is None else self._record_call(recorder, prepared.compiled, call))
            except ProviderFailed as failure:
                sent = prepared.compiled.record.betas
                refused = self.config.clients.note_refusal(failure, self.config.provider, sent)
                if not refused and (failure.kind in LASTING_FAILURES or not self._agent_config.fallbacks):
                    raise
                await run_blocking(self.turn_store.append_events, retry_event(failure, 0.0, 1, refused))
                self._use(self._agent_config if refused else self._agent_config.with_next_model())
                await self._use_channel()
                await self._load_server_tools()
                following = await self._prepare(self.preparer.prepare_for_next_model, index)
                assert following is not None, "only a step that has not begun is not prepared"
                prepared = following

    async def _record_call(
        self, recorder: "Recorder", compiled: Compiled, call: Coroutine[None, None, ReceivedReply]
    ) -> ReceivedReply:
        """Call the model within a span, which covers retries."""
        record = self.turn_store
        with recorder.chat(record.conversation, record.author, self.config.provider) as recorded:
            try:
                received = await call
                compiled = received.compiled
            finally:
                recorder.add_request(recorded, compiled)
            usage = total_usage(received.messages)
            recorder.add_reply(recorded, received.messages, usage, received.stream.first_chunk_seconds)
        return received

    async def _call_model(self, prepared: PreparedStep, index: int, endpoint: Endpoint) -> ReceivedReply:
        """Send the request and return the reply. Retry a transient failure if nothing of the reply had arrived."""
        compiled, states, tries, hardened = prepared.compiled, prepared.states, 0, False
        is_begun = prepared.is_begun
        while True:
            if not is_begun:
                compiled = await apply_prepare_callback(self.config, compiled, index)
            incoming = ReplyStream(self.turn_store, compiled, index, directory=self.config.directory)
            tools = self._make_tool_runner(compiled, index)
            before = None if is_begun else self.turn_store.step
            try:
                owner = self.config.owner
                async with nullcontext() if owner is None else owner.model_call(self.config.provider):
                    if not is_begun:
                        await run_blocking(self._start_step, compiled, index, states)
                    is_begun = False
                    host = ProgramHost(incoming, tools, self.preparer)
                    messages = await incoming.receive(endpoint, host, host.has_ended)
                await self.config.background.wait_until_prepared(self.turn_store.conversation)
                return ReceivedReply(incoming, messages, compiled, tools)
            except BaseException as error:
                if self.turn_store.step is before or isinstance(
                    error, GeneratorExit
                ):  # not started, or cannot be stored
                    raise
                await self._store_failure(compiled, incoming, error, tools)
                if not isinstance(error, ProviderFailed) or incoming.has_started:
                    raise
                if error.kind == "context" and not hardened:
                    hardened = True
                    smaller = int(compiled.budget.input * RETRY_BUDGET_SHARE)
                    if compiled.session_id and compiled.provider.compacts_itself:  # its history cannot be trimmed
                        await run_blocking(
                            self._invalidate_session, compiled, "the session has become too long for the model"
                        )
                        smaller = min(
                            smaller, int(compiled.estimated_input * RETRY_BUDGET_SHARE)
                        )  # the rest is the provider's overhead
                    prepared = await run_blocking(self.preparer.prepare_again, index, smaller, slots=CALLBACK_SLOTS)
                elif error.kind == "session" and compiled.session_id:
                    await run_blocking(self._invalidate_session, compiled, "the provider no longer has the session")
                    prepared = await run_blocking(self.preparer.prepare_again, index, slots=CALLBACK_SLOTS)
                elif error.may_retry and tries < MAX_RETRIES and (error.retry_after or 0) <= MAX_RETRY_SECONDS:
                    await self._wait_for_retry(error, tries)
                    tries += 1
                    prepared = await run_blocking(self.preparer.prepare_again, index, slots=CALLBACK_SLOTS)
                else:
                    raise
                compiled, states = prepared.compiled, states | prepared.states

    def _invalidate_session(self, compiled: Compiled, why: str) -> None:
        """Invalidate the session: the next request sends the whole context into a new one."""
        SessionManager(self.turn_store.store).invalidate(compiled.channel, why)

    def _make_tool_runner(self, compiled: Compiled | None, index: int, *, before: int | None = None) -> ToolRunner:
        """Return the tools of a step. A resumed step has no compiled request, so no `mid_step` triggers run for it."""
        config = self.config

        @cache
        def reply() -> int:
            """Return the tokens of the reply whose tools run, counted once and not with each result."""
            return sum(
                [config.compiler.counter.count_message(message) for message in self.turn_state.last_messages[-1:]]
            )

        def moment(more: int, number: int, results: Sequence[Message]) -> TriggerContext:
            assert compiled is not None, "mid_step triggers need the compiled request"
            return self._mid_step_context(compiled, more + reply(), number, index, results)

        return ToolRunner(
            config,
            self.turn_store,
            step=index,
            mid_step_triggers=config.mid_step_triggers if compiled is not None else (),
            trigger_context=moment,
            calls_before=before,
            agents=AgentCaller(config, self.turn_store, self.account, lambda: self.lease_lost is not None),
        )

    def _start_step(self, compiled: Compiled, index: int, states: dict[str, JSONObject]) -> None:
        states = {**states, **self.preparer.fragments.unstored_state}
        also, begun = self.turn_store.start_step(compiled, index, states)
        self.config.compiler.begin(compiled, lease=self.turn_store.lease, in_transaction=also)
        begun()

    async def _store_failure(
        self, compiled: Compiled, incoming: ReplyStream, error: BaseException, tools: ToolRunner
    ) -> None:
        """Store the part of the reply that arrived, with its status. The ledger does not change."""
        cancelled = isinstance(error, asyncio.CancelledError)
        why = "cancelled" if cancelled else error_text(error)
        partial: list[Message] = []
        if incoming.has_started:
            with suppress(ProviderFailed):  # the journaled part is stored when the turn ends
                partial = incoming.received_messages()
                partial = mark_incomplete(partial, "cancelled" if cancelled else "error", why, compiled.provider)
        stream = incoming.journal_uid if partial else ""
        if compiled.provider.runs_tools:
            calls = {call.id for message in partial for call in message.tool_calls}
            self.turn_store.running_calls |= calls - tools.pending_approvals
            turn = self.turn_store.turn
            made = tools.count_calls([*incoming.stored, *partial])
            self.turn_store.turn = replace(turn, tool_calls=turn.tool_calls + made)
        rest, before = incoming.unjournaled_parts(), incoming.stored

        def work() -> None:
            kept = self.config.compiler.abort(compiled, why, usage=total_usage([*before, *partial]))
            self.turn_store.fail_step(partial, stream, why, rest, before=before, kept=kept)

        if partial or before:
            self.turn_state.add_reply([*before, *partial], compiled.provider.model)
            self.turn_store.turn = self.turn_state.stored_in(self.turn_store.turn)
        await run_blocking(work)

    async def _wait_for_retry(self, error: ProviderFailed, tries: int) -> None:
        seconds = retry_delay(error, tries)
        await run_blocking(self.turn_store.append_events, retry_event(error, seconds, tries + 1))
        await asyncio.sleep(seconds)

    async def _store_reply(self, answered: ReceivedReply) -> str | None:
        """Store the reply and the ledger, and the end of the turn if it calls no tools and nothing more follows.

        Return the finish reason of a turn that is over.
        """
        config, record, progress = self.config, self.turn_store, self.turn_state
        incoming, messages, compiled, tools = answered
        message, calls = answered.answer, answered.calls
        produced = messages if message is None else messages[:-1]
        if message is not None and record.reply_to and not calls and message.finish != "pause":
            message = replace(message, recipients=record.reply_to)
        if message is not None and config.speaker:
            message = replace(message, meta={**(message.meta or {}), SPEAKER_META: config.speaker})
        finish = None if calls else tools.ended or self._finish_reason(message or progress.reply, [])
        reader, model = incoming.reader, compiled.provider.model

        def work() -> None:
            usage, spent = progress.totals_with(messages, model)
            also, ended = record.finish_step(
                rest=incoming.unjournaled_parts(),
                stream=incoming.journal_uid,
                compiled=compiled,
                usage=usage,
                cost=spent,
                calls=len(tools.allowed_calls(calls)) + tools.count_calls(produced),
                starting=tools.calls_without_approval(calls),
                stored_before=len(incoming.stored),
                first_chunk=incoming.first_chunk_seconds,
                ends_with=finish,
            )
            stored = config.compiler.commit(
                compiled,
                message,
                produced=produced,
                session_id=incoming.session_id,
                cursor=reader.find_cursor(compiled.provider.session_field),
                notes=reader.notes,
                shortened=reader.compacted,
                events=reader.events,
                lease=record.lease,
                in_transaction=also,
            )
            progress.add_reply(stored, model)
            progress.last_request = compiled.channel, compiled.request
            tools.reply_seq = progress.reply.seq if progress.reply is not None else 0
            follows = ended()
            if finish is not None:
                self._ended = self._make_result(finish, None, record.previous_turn), follows

        try:
            async with self._ending:
                await run_blocking(work)
        except Exception as error:  # such as a concurrent change of the conversation: store the reply nevertheless
            await self._store_failure(compiled, incoming, error, tools)
            raise
        return finish

    def _mid_step_context(
        self, compiled: Compiled, more: int, number: int, index: int, results: Sequence[Message]
    ) -> TriggerContext:
        """Return the `mid_step` input of triggers after a tool result. `more` is the tokens added since compiling."""
        turn = replace(self.turn_store.turn, tool_calls=number)
        todos = self.turn_store.load_todos()
        return self.turn_state.trigger_context(
            "mid_step", compiled, turn, self.config.limits, step=index, todos=todos, more=more, results=results
        )

    # ── summaries ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _summarize_ahead(self, compiled: Compiled) -> None:
        """Start a summary in the background if the context is almost full."""
        config, provider = self.config, self.config.provider
        if config.summarize == "model" and not (provider.session_resumption or provider.runs_tools):
            steps = partial(self.preparer.summarize_ahead, compiled)
            counted = partial(self._counted_summary, self.turn_store.turn.number)
            config.background.start(config, self.turn_store.conversation, compiled.budget.share, steps, counted)

    async def _counted_summary(self, turn: int, wanted: SummarizerInput) -> ModelSummary:
        """Return a summary, and count what it has used: in this turn, or in its record if it no longer runs here."""
        recorder, provider = telemetry.active, self.config.provider
        model = provider.model
        if recorder is None or self.config.summarize != "model":
            made = await summarize(self.config, wanted)
        else:
            with recorder.chat(self.turn_store.conversation, self.turn_store.author, provider) as recorded:
                made = await summarize(self.config, wanted)
                recorder.add_reply(recorded, (), made.usage)
        if made.usage is not None:
            async with self._ending:
                now, ended = self.turn_store.turn, [result.turn for result in self.results]
                if (now.number, now.state) == (turn, "running") and turn not in ended:
                    self.turn_state.add_usage(made.usage, model)
                else:
                    await run_blocking(self.turn_store.add_usage, turn, made.usage, model)
        return made

    async def _summarize(self, prepared: PreparedStep, index: int) -> PreparedStep:
        """Summarize the messages that would be left out, then compile again."""
        if await self.config.background.wait(self.turn_store.conversation):
            prepared = await run_blocking(
                self.preparer.prepare_with_summary, index, prepared.states, slots=CALLBACK_SLOTS
            )
            if not prepared.needs_summary:
                return prepared
        counted = partial(self._counted_summary, self.turn_store.turn.number)
        done = await run_compaction(self.preparer.summarize(), counted)
        if not done:
            return await run_blocking(self.preparer.add_usage_messages, prepared, index, slots=CALLBACK_SLOTS)
        return await run_blocking(self.preparer.prepare_after_compaction, index, prepared.states, slots=CALLBACK_SLOTS)


# ── the handle of a caller ────────────────────────────────────────────────────────────────────────────────────────────
# The handle of a running turn: its events, its cancellation and its result.
#
# The turn runs in a task of its own, independent of readers. An error that ends it becomes an event, is stored in the
# result, and is raised to readers of its events.


CANCEL_REQUEST = "cancel"
_running: ContextVar[frozenset[tuple[Store, str, str]]] = ContextVar("contextc.running_turns", default=frozenset())
"""The turns whose task, or a callback of which, is running: store, conversation and agent."""


class Turn:
    """A turn, and the turns that follow it because input was queued when it ended.

    `async for event in turn` yields their events. `results` holds the result of each, in order.
    """

    def __init__(
        self,
        config: AgentConfig,
        conversation: str,
        given: list[Message],
        *,
        resume: bool,
        wait: float | None,
        key: str | None = None,
    ) -> None:
        self.config, self.conversation = config, conversation
        self._input, self._resume = GivenInput(given, key), resume
        self._wait = 0.0 if self._is_within_own_turn() else inf if wait is None else wait
        self.results: list[TurnResult] = []
        self._is_cancelled = False
        self._lease: Lease | None = None
        self._turn_store: TurnStore | None = None
        self._loop: TurnRunner | None = None
        self._first_event = 0
        self._opened = asyncio.Event()
        self._has_reader = False
        self._inbox = Inbox()
        self._inboxes = [self._inbox]
        event_hub(config.store).add_watcher(conversation, self._inbox)
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"turn of {conversation}")
        self._task.add_done_callback(self._on_done)

    def __repr__(self) -> str:
        finishes = ", ".join([result.finish for result in self.results])
        state = (finishes or "failed") if self.done else "running"
        return f"<Turn of {self.conversation!r} for {self.agent!r}: {state}>"

    def cancel(self) -> None:
        """Cancel the turn. The reply so far is stored with its status, and open calls are answered."""
        if not self._is_cancelled:  # a second call has no effect: the turn is ending
            self._is_cancelled = True
            self._task.cancel()

    def give_up(self) -> None:
        """End the turn as one whose process died: another process runs that of its caller, and will go on with it."""
        if self._loop is None or self._lease is None:
            return self.cancel()
        self._loop.is_given_up = True
        self._on_lease_lost(self._lease)

    @property
    def agent(self) -> str:
        """The name of the agent, and of the run if it began beside another turn. Events of the turn have it, too."""
        return self.config.agent if self._turn_store is None else self._turn_store.agent

    @property
    def done(self) -> bool:
        """True if the turn has ended."""
        return self._task.done()

    async def begun(self) -> int:
        """Wait until the turn has started and return the number of its first event, 0 if there was nothing to do.

        Raises the error that kept it from starting, such as `ConversationBusy`.
        """
        await self._opened.wait()
        if not self._first_event and self.results and (error := self.results[0].error) is not None:
            raise error
        if not self._first_event and self._task.done() and not self._task.cancelled():
            self._task.result()
        return self._first_event

    async def wait(self) -> TurnResult:
        """Wait for this turn and those that follow it, and return this turn's result. `results` has all of them."""
        await asyncio.wait({self._task})
        self._task.result()
        return self.results[0]

    def __aiter__(self) -> AsyncIterator[StreamEvent]:
        return self.events()

    async def events(self) -> AsyncGenerator[StreamEvent, None]:
        """Yield the events from the start of the turn to its end. Raises the error that ended it, if any.

        Events of agents that it calls as tools are among them, each as an `AgentEvent`.
        """
        store = self.config.store
        async with aclosing(self.batches()) as batches, aclosing(with_agent_events(store, batches)) as found:
            async for event in found:
                yield event
        await self.wait()
        if (error := self.results[-1].error) is not None:
            raise error

    async def batches(
        self, *, after: int | None = None, pulse: float | None = None
    ) -> AsyncGenerator[Sequence[AnyEvent], None]:
        """Yield batches of events, from the start of the turn or after an event number, as `watch_batches` does."""
        inbox, look = self._inbox, self._has_reader or after not in (None, self._first_event - 1)
        if look:  # the inbox already has a reader, or it may have missed events
            inbox = Inbox()
            if not self._task.done():
                self._inboxes.append(inbox)
                event_hub(self.config.store).add_watcher(self.conversation, inbox)
        else:
            self._has_reader = True
        try:
            await self._opened.wait()
            if self._first_event:
                start = self._first_event - 1 if after is None else after
                store = self.config.store
                found = watch_batches(
                    store, self.conversation, start, inbox=inbox, done=self._task.done, read_first=look, heartbeat=pulse
                )
                async with aclosing(found):
                    async for events in found:
                        yield [event for event in events if event.agent == self.agent]
        finally:
            if look and inbox in self._inboxes:
                self._inboxes.remove(inbox)
                event_hub(self.config.store).remove_watcher(self.conversation, inbox)

    def _on_done(self, _: "asyncio.Task[None]") -> None:
        self._opened.set()
        for inbox in self._inboxes:
            event_hub(self.config.store).remove_watcher(self.conversation, inbox)
            inbox.wake()

    async def _run(self) -> None:
        _running.set(_running.get() | {(self.config.store, self.conversation, self.config.agent)})
        try:
            await self._run_turns()
        finally:  # a lease that was not released expires: no turn runs under it any more
            if self._lease is not None:
                leases_of(self.config.store).stop_renewing(self._lease)

    async def _run_turns(self) -> None:
        stopped = False
        try:
            record = await self._acquire_and_open()
        except (Exception, asyncio.CancelledError) as error:
            if self._turn_store is None or not self._turn_store.turn.number:
                self.results.append(await self._unstarted_result(error))
                return
            record, stopped = self._turn_store, True  # the turn was stored nevertheless
        if not record.turn.number:
            await self._release(record.lease)
            self.results.append(_unopened_result(record))
            self._first_event = record.first_event if record.waiting is not None else 0
            return
        self._first_event = record.first_event
        self._opened.set()
        for inbox in self._inboxes:
            inbox.wake()
        loop = self._loop = TurnRunner(self.config, record, self.results)
        await loop.run(cancelled=stopped)
        if loop.cancelled and not self._is_cancelled:
            raise asyncio.CancelledError

    async def _acquire_and_open(self) -> TurnStore:
        """Acquire the lease, waiting if necessary, then open the turn and return its record.

        A run does not wait for another run of its agent: it gets a lease, a turn and a channel of its own.
        """
        config = self.config
        agent, beside = config.agent, "" if config.run is None else run_name(config.agent, config.run)
        if not beside:
            return await self._open_as(agent, self._wait)
        if await run_blocking(self._find_open_turn, beside) is None:
            running: TurnRecord | None = None
            for _ in range(2):
                with suppress(ConversationBusy):
                    return await self._open_as(agent, 0)
                running = await run_blocking(self._find_open_turn, agent)
                if running is not None:
                    break  # otherwise it has ended meanwhile, and the name is free
            if running is not None and running.run is None:  # nothing tells its messages from those of this run
                return await self._open_as(agent, self._wait)
        return await self._open_as(beside, self._wait)

    def _find_open_turn(self, name: str) -> TurnRecord | None:
        """Return the last turn under this name, unless it has ended."""

        def work(tx: Transaction) -> TurnRecord | None:
            here = find_tip(tx, self.conversation, False)
            last = None if here is None else load_last_turn(tx, here.conversation, name)
            return last if last is not None and last.state != "finished" else None

        return self.config.store.read(work)

    async def _open_as(self, agent: str, wait: float) -> TurnStore:
        config = self.config
        store, ttl = config.store, config.lease_seconds
        loop = asyncio.get_running_loop()

        def on_loop(call: Callable[[], None]) -> None:
            with suppress(RuntimeError):  # the loop was closed: nothing to wake or to cancel
                loop.call_soon_threadsafe(call)

        callback = config.approve is not None and not isinstance(config.approve, Suspend)
        channel = config.compiler.channel(self.conversation, name=agent, directory=config.directory or None)

        def begin(patient: bool) -> TurnStore:
            turn_store = TurnStore(
                store,
                self.conversation,
                agent,
                run=config.run,
                channel=str(channel),
                channel_triggers=config.channel_trigger_names,
                directory=config.directory,
            )
            work, opened = turn_store.opening(
                self._input, resume=self._resume, ask_again=callback, only_submitted=config.owner is not None
            )
            lease, done = leases_of(store).try_acquire_with(self.conversation, agent, work, ttl=ttl, patient=patient)
            self._lease, self._turn_store = lease, turn_store
            store.on_lease_lost(lease, lambda: on_loop(lambda: self._on_lease_lost(lease)))
            leases_of(store).on_end_request(lease, lambda kind: on_loop(lambda: self._on_end_request(lease, kind)))
            opened(done)
            return turn_store

        keep = partial(store_waiting_input, store, self.conversation, agent, self._input)
        try:
            return await wait_for_lease(
                store,
                self.conversation,
                agent,
                wait=wait,
                ttl=ttl,
                take=begin,
                before_waiting=keep if self._input.messages else None,
            )
        except (ContextcError, asyncio.CancelledError):
            if self._input.queued and (self._turn_store is None or not self._turn_store.turn.number):
                withdraw = run_blocking(withdraw_waiting_input, store, self.conversation, agent, self._input)
                await wait_until_done(asyncio.ensure_future(withdraw))
            raise

    def _is_within_own_turn(self) -> bool:
        """Return True if a callback of a turn of this agent starts this one: it cannot wait for the end of that one."""
        return (self.config.store, self.conversation, self.config.agent) in _running.get()

    def _on_lease_lost(self, lease: Lease) -> None:
        """Cancel the turn: another process holds the lease, so this one can store nothing more."""
        if self._loop is not None and not self._task.done():
            self._loop.lease_lost = LeaseLost(lease.conversation, lease.agent, number=lease.number)
            self._task.cancel()

    def _on_end_request(self, lease: Lease, kind: str) -> None:
        """End the turn, because any process requested it: at once, or after the step."""
        if self._turn_store is None or self._turn_store.lease != lease or self._task.done():
            return
        self._turn_store.end_request = kind
        if kind == CANCEL_REQUEST:
            self.cancel()

    async def _unstarted_result(self, error: Exception | asyncio.CancelledError) -> TurnResult:
        """Return the result of a turn that failed or was cancelled before it was opened."""
        if self._lease is not None:
            with suppress(ContextcError):  # the first error matters more than this one
                await self._release(self._lease)
        if isinstance(error, Exception):
            return TurnResult(turn=0, finish="error", error=error)
        if not self._is_cancelled:
            raise error
        return TurnResult(turn=0, finish="cancelled")

    async def _release(self, lease: Lease) -> None:
        try:
            await run_blocking(self.config.store.release, lease)
        except asyncio.CancelledError:  # the lease is released nevertheless
            if not self._is_cancelled:
                raise


def _unopened_result(record: TurnStore) -> TurnResult:
    """Return the result if no turn was opened: there was nothing to do, the input was answered before, or it was queued
    for a waiting turn.
    """
    waiting = record.waiting
    if record.answered is not None:
        return record.answered
    if record.is_withdrawn:
        return TurnResult(turn=0, finish="cancelled")
    if waiting is None:
        return TurnResult(turn=0, finish=NOTHING_TO_DO)
    return TurnResult(turn=waiting.number, finish=WAITING, steps=waiting.steps, tool_calls=waiting.tool_calls)


async def run_turn(start: Callable[[], Turn]) -> AsyncGenerator[StreamEvent, None]:
    """Start a turn and yield its events. Leaving the loop early cancels the turn."""
    turn = start()
    try:
        async with aclosing(turn.events()) as events:
            async for event in events:
                yield event
    finally:
        if not turn.done:
            turn.cancel()
            await turn.wait()
