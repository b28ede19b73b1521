"""The loop of a turn: prepare → call → store → tools → decide, until the model makes no more tool calls.

Step N is stored completely before step N+1 is prepared. Every request is compiled from the store, never from memory.
Blocking work runs on worker threads. A turn always ends with one transaction that answers open calls and stores the
finish reason.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from functools import cache, partial
from typing import NamedTuple

from msgspec.structs import replace

from contextc._credential_mask import get_logger, mask_secrets
from contextc._json import JSONObject
from contextc._worker_threads import CALLBACK_SLOTS, as_exception, run_blocking
from contextc.compiler import Compiled
from contextc.compiler.ledger import SessionManager
from contextc.compiler.summary_request import SummarizerInput
from contextc.errors import ContextcError, LeaseLost, ProviderFailed
from contextc.events import RetryScheduled, ToolStart
from contextc.executor.agent_config import AgentConfig
from contextc.executor.client_tools import with_client_tools
from contextc.executor.failure_records import error_event, error_text, failure_details, mark_incomplete
from contextc.executor.limits import MAX_CALLS_PER_REPLY, MAX_COST, MAX_SECONDS, MAX_STEPS, MAX_TOOL_CALLS
from contextc.executor.model_call import (
    MAX_RETRIES,
    MAX_RETRY_SECONDS,
    ReplyStream,
    apply_prepare_callback,
    retry_delay,
)
from contextc.executor.program_host import STOP_REQUEST, STOPPED, ProgramHost
from contextc.executor.step_preparation import PreparedStep, StepPreparer
from contextc.executor.summarizer import ModelSummary, run_compaction, summarize
from contextc.executor.tool_runner import ToolRunner
from contextc.executor.turn_result import TurnResult
from contextc.executor.turn_store import CANCELLED_REASON, FAILED_REASON, TurnStore
from contextc.executor.turn_totals import TurnState, total_usage
from contextc.messages import Message, Usage
from contextc.providers.client import Endpoint
from contextc.store.turn_queue import PROCESS_LESS_STATES
from contextc.triggers import TriggerContext

log = get_logger("contextc.executor")
WAITING, HANDED_OVER = "waiting", "handed over"
"""Finish reasons: the turn was suspended until an approval is answered; another process continues it."""
RETRY_BUDGET_SHARE = 0.75
MAX_CONTINUATIONS = 2
"""How many replies in a row that reached the output limit are continued."""


class ReceivedReply(NamedTuple):
    """A reply, with its request and the tools of its step."""

    stream: ReplyStream
    messages: list[Message]
    compiled: Compiled
    tools: ToolRunner


class TurnRunner:
    """Runs turns under one lease, one after the other, until no input is queued."""

    def __init__(self, config: AgentConfig, turn_store: TurnStore, results: list[TurnResult]) -> None:
        self._agent_config, self.turn_store, self.results = config, turn_store, results
        self.cancelled = False
        """True if a turn was cancelled. The finish reason does not tell: a provider may report `cancelled` too."""
        self.lease_lost: LeaseLost | None = None
        """Set before the turn is cancelled because its lease was lost."""
        self._ending = asyncio.Lock()
        """Held while the end of a turn is stored, and while the usage of a summary is counted."""
        self._reset()

    def _reset(self) -> None:
        config = self.config = with_client_tools(self._agent_config, self.turn_store.client_tools)
        self.turn_state = TurnState(self.turn_store.turn, config.budget, config.resources)
        self.preparer = StepPreparer(config, self.turn_store, self.turn_state)

    async def run(self, *, cancelled: bool = False) -> None:
        """Run the turns and append the result of each to `results`. With `cancelled`, end the first one immediately."""
        exits: BaseException | None = None
        while True:
            finish, error, why = "error", None, FAILED_REASON
            limit: asyncio.Timeout | None = None
            try:
                if cancelled:
                    raise asyncio.CancelledError
                async with asyncio.timeout(self.config.limits.seconds) as limit:
                    finish = await self._run_steps()
                why = finish
            except asyncio.CancelledError:
                if self.lease_lost is not None:
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
            result = self._make_result(finish, error)
            try:
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
                self.turn_store.turn = replace(turn, usage=used.usage, cost=used.cost)
            return await run_blocking(store)

    def _release_failed(self) -> None:
        with suppress(ContextcError):
            self.turn_store.store.release(self.turn_store.lease, failed=True)

    def _make_result(self, finish: str, error: Exception | None) -> TurnResult:
        turn, progress = self.turn_store.turn, self.turn_state
        return TurnResult(
            turn=turn.number,
            finish=finish,
            steps=turn.steps,
            tool_calls=turn.tool_calls,
            usage=progress.usage,
            cost=progress.cost,
            message=progress.reply,
            error=error,
        )

    # ── steps ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _run_steps(self) -> str:
        """Run steps until the turn is over. Return the finish reason."""
        endpoint, owner = self.config.clients.get(), self.config.owner
        if owner is not None:
            await run_blocking(owner.check, self.turn_store.turn)
        if self.turn_store.turn.steps:  # the turn was interrupted or suspended, and is resumed
            await run_blocking(
                self.turn_state.restore, self.turn_store.store, self.turn_store.conversation, self.turn_store.turn
            )
            if (finish := await self._run_unstarted_calls()) is not None:
                return finish
        while True:
            if (limit := self._reached_limit()) is not None:
                return limit
            if self.turn_store.end_request == STOP_REQUEST:
                return STOPPED
            if await self._continue_later():
                return HANDED_OVER
            index = self.turn_store.turn.steps + 1
            prepared = await run_blocking(self.preparer.prepare, index, slots=CALLBACK_SLOTS)
            if prepared.needs_summary:
                prepared = await self._summarize(prepared, index)
            if prepared.stop is not None:
                return prepared.stop
            self._summarize_ahead(prepared.compiled)
            answered = await self._call_model(prepared, index, endpoint)
            results = await self._store_and_run_tools(answered, index)
            if (reply := self.turn_state.reply) is not None and answered.tools.waiting:
                if await self._suspend(answered.tools, reply):
                    return WAITING
                finish = await self._run_unstarted_calls()
            else:
                finish = answered.tools.ended or self._finish_reason(results)
            if finish is not None:
                return finish

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
            tools.answers = answers
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
                return self._finish_reason([*left.results, *results])
            if record.end_request == STOP_REQUEST:
                return STOPPED
            if await self._suspend(tools, left.reply):
                return WAITING

    async def _suspend(self, tools: ToolRunner, reply: Message) -> bool:
        """Store the approvals of the calls that wait, and suspend the turn. Return False if it can continue."""
        kept = [tools.answers[index] for index in tools.waiting if index in tools.answers]
        return await self._store_end(partial(self.turn_store.suspend, tools.new_approvals(reply), kept))

    def _reached_limit(self) -> str | None:
        """Return the finish reason of the limit that was reached, or None."""
        limits, turn, spent = self.config.limits, self.turn_store.turn, self.turn_state.cost
        if limits.steps is not None and turn.steps >= limits.steps:
            return MAX_STEPS
        if limits.tool_calls is not None and turn.tool_calls >= limits.tool_calls:
            return MAX_TOOL_CALLS
        if limits.cost is not None and spent is not None and spent >= limits.cost:
            return MAX_COST
        reply = self.turn_state.reply
        if reply is not None and limits.calls_per_reply is not None and len(reply.tool_calls) > limits.calls_per_reply:
            return MAX_CALLS_PER_REPLY
        return None

    def _finish_reason(self, results: list[Message]) -> str | None:
        """Return the finish reason, or None if the turn continues."""
        reply = self.turn_state.reply
        assert reply is not None, "a step that was stored has a reply"
        finish = reply.finish or "stop"
        self.turn_state.truncated_replies = self.turn_state.truncated_replies + 1 if finish == "length" else 0
        if results:
            proceed = self.config.should_continue
            return None if proceed is None or proceed(reply, results) else "stop"
        if finish == "pause" or (finish == "length" and self.turn_state.truncated_replies <= MAX_CONTINUATIONS):
            return None
        return {"tool_calls": "stop", "cancelled": "other", "error": "other"}.get(finish, finish)

    # ── the call ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _call_model(self, prepared: PreparedStep, index: int, endpoint: Endpoint) -> ReceivedReply:
        """Send the request and return the reply. Retry a transient failure if nothing of the reply had arrived."""
        compiled, states, tries, hardened = prepared.compiled, prepared.states, 0, False
        while True:
            compiled = await apply_prepare_callback(self.config, compiled, index)
            incoming = ReplyStream(self.turn_store, compiled, index, directory=self.config.directory)
            tools = self._make_tool_runner(compiled, index)
            before = self.turn_store.step
            try:
                owner = self.config.owner
                async with nullcontext() if owner is None else owner.model_call(self.config.provider):
                    await run_blocking(self._start_step, compiled, index, states)
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
        )

    def _start_step(self, compiled: Compiled, index: int, states: dict[str, JSONObject]) -> None:
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
            self.turn_store.turn = replace(self.turn_store.turn, usage=self.turn_state.usage, cost=self.turn_state.cost)
        await run_blocking(work)

    async def _wait_for_retry(self, error: ProviderFailed, tries: int) -> None:
        seconds = retry_delay(error, tries)
        event = RetryScheduled(
            kind=error.kind,
            seconds=round(seconds, 3),
            attempt=tries + 1,
            error=mask_secrets(str(error)),
            failure=failure_details(error),
        )
        await run_blocking(self.turn_store.append_events, event)
        await asyncio.sleep(seconds)

    async def _store_and_run_tools(self, answered: ReceivedReply, index: int) -> list[Message]:
        """Store the reply and the ledger, then run the reply's tools. Return the tool results."""
        config, record, progress = self.config, self.turn_store, self.turn_state
        incoming, messages, compiled, tools = answered
        has_answer = bool(messages) and messages[-1].role == "assistant"  # else the host has ended the reply before
        message, produced = (messages[-1], messages[:-1]) if has_answer else (None, messages)
        calls = message.tool_calls if message is not None else ()
        if message is not None and record.reply_to and not calls and message.finish != "pause":
            message = replace(message, recipients=record.reply_to)
        usage, spent = progress.totals_with(messages, compiled.provider.model)
        also, ended = record.finish_step(
            rest=incoming.unjournaled_parts(),
            stream=incoming.journal_uid,
            compiled=compiled,
            usage=usage,
            cost=spent,
            calls=len(tools.allowed_calls(calls)) + tools.count_calls(produced),
            starting=tools.calls_without_approval(calls),
            stored_before=len(incoming.stored),
        )
        reader = incoming.reader

        def work() -> list[Message]:
            stored = config.compiler.commit(
                compiled,
                message,
                produced=produced,
                session_id=incoming.session_id,
                cursor=reader.find_cursor(compiled.provider.session_field),
                notes=reader.notes,
                shortened=reader.compacted,
                lease=record.lease,
                in_transaction=also,
            )
            ended()
            return stored

        try:
            stored = await run_blocking(work)
        except Exception as error:  # such as a concurrent change of the conversation: store the reply nevertheless
            await self._store_failure(compiled, incoming, error, tools)
            raise
        progress.add_reply(stored, compiled.provider.model)
        results = await tools.run(calls) if calls else []
        progress.add_messages(results)
        return results

    def _mid_step_context(
        self, compiled: Compiled, more: int, number: int, index: int, results: Sequence[Message]
    ) -> TriggerContext:
        """Return the `mid_step` input of triggers after a tool result. `more` is the tokens added since compiling."""
        turn = replace(self.turn_store.turn, tool_calls=number)
        todos = self.turn_store.store.todos(self.turn_store.conversation, self.turn_store.author)
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
        made, model = await summarize(self.config, wanted), self.config.provider.model
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
