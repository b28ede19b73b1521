"""The loop of a turn: prepare → call → store → tools → decide, until the model makes no more tool calls.

Step N is stored completely before step N+1 is prepared. Every request is compiled from the store, never from memory.
Blocking work runs on worker threads. A turn always ends with one transaction that answers open calls and stores the
finish reason.
"""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Literal, NamedTuple

from msgspec.structs import replace

from contextc._json import JSONObject, fix_surrogates
from contextc._worker_threads import as_exception
from contextc.compiler import Compiled
from contextc.compiler.ledger.sessions import SessionManager
from contextc.errors import ContextcError, ContextOverflow, LeaseLost, ProviderFailed, describe_error
from contextc.events import ErrorKind, RetryScheduled, ToolStart
from contextc.executor.blocking import CALLBACK_SLOTS, run_blocking
from contextc.executor.limits import MAX_CALLS_PER_REPLY, MAX_COST, MAX_SECONDS, MAX_STEPS, MAX_TOOL_CALLS, TurnResult
from contextc.executor.model_call import MAX_RETRIES, MAX_RETRY_SECONDS, ReplyStream, retry_delay
from contextc.executor.step_preparation import PreparedStep, StepPreparer
from contextc.executor.summarizer import run_compaction
from contextc.executor.tool_runner import ToolHost, ToolRunner
from contextc.executor.turn_lifecycle import CANCELLED_REASON, FAILED_REASON
from contextc.executor.turn_state import TurnState
from contextc.executor.turn_store import TurnStore, total_usage
from contextc.messages import Message
from contextc.prompts import PromptContext
from contextc.providers import Provider
from contextc.providers.client import Endpoint
from contextc.store.streams import drop_incomplete_call, may_have_run
from contextc.triggers import TriggerContext

if TYPE_CHECKING:
    from contextc.executor.agent_executor import AgentExecutor

log = logging.getLogger("contextc.executor")
RETRY_BUDGET_SHARE = 0.75
MAX_CONTINUATIONS = 2
"""How many replies in a row that reached the output limit are continued."""


class ReceivedReply(NamedTuple):
    """A reply, with its request and the tools of its step."""

    incoming: ReplyStream
    messages: list[Message]
    compiled: Compiled
    tools: ToolRunner


class TurnRunner:
    """Runs turns under one lease, one after the other, until no input is queued."""

    def __init__(self, executor: "AgentExecutor", record: TurnStore, results: list[TurnResult]) -> None:
        self.executor, self.record, self.results = executor, record, results
        self.cancelled = False
        """True if a turn was cancelled. The finish reason does not tell: a provider may report `cancelled` too."""
        self.lost: LeaseLost | None = None
        """Set before the turn is cancelled because its lease was lost."""
        self._begin()

    def _begin(self) -> None:
        executor, asked = self.executor, self.executor.asked
        context = asked["surroundings"] or PromptContext()
        if context.responding_to is None and self.record.sender is not None:
            asked = {**asked, "surroundings": replace(context, responding_to=self.record.sender)}
        self.progress = TurnState(self.record.turn, executor.budget, executor.resources)
        self.preparation = StepPreparer(
            executor.compiler,
            self.record,
            self.progress,
            executor.limits,
            executor.speaking,
            asked,
            gap=executor.session_gap,
            summarizes=executor.summarizes,
        )

    async def run(self, *, stopped: bool = False) -> None:
        """Run the turns and append the result of each to `results`. With `stopped`, end the first one immediately."""
        exits: BaseException | None = None
        while True:
            finish, error, why = "error", None, FAILED_REASON
            limit: asyncio.Timeout | None = None
            try:
                if stopped:
                    raise asyncio.CancelledError
                async with asyncio.timeout(self.executor.limits.seconds) as limit:
                    finish = await self._steps()
                why = finish
            except asyncio.CancelledError:
                if self.lost is not None:
                    finish, error = "error", self.lost
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
                    self._log(error)
            result = self._result(finish, error)
            try:
                follows = await self._closed(finish, error, why)
            except asyncio.CancelledError:
                stopped = True
                if not self._is_stored(result):  # the cancellation hid the error: end the turn again, as cancelled
                    continue
                follows = self.record.turn.number != result.turn  # cancelled before its first step
            except Exception as failure:  # the result reports what is stored
                result, follows = self._result("error", failure), False
                if not isinstance(failure, LeaseLost):  # the next holder of the lease repairs the unfinished turn
                    await run_blocking(self._give_up)
            self.results.append(result)
            if exits is not None:  # the end of the turn is stored: the process may exit
                raise exits
            if not follows:
                return
            self._begin()

    def _is_stored(self, result: TurnResult) -> bool:
        """Return True if the end of a turn was stored, which may have opened the next turn."""
        turn = self.record.turn
        return turn.number != result.turn or turn.state == "finished"

    def _log(self, failure: Exception) -> None:
        foreseen = isinstance(failure, ContextcError)
        log.log(
            logging.INFO if foreseen else logging.ERROR,
            "%s: turn %d failed: %s",
            self.record.conversation,
            self.record.turn.number,
            failure,
            exc_info=None if foreseen else failure,
        )

    async def _closed(self, finish: str, error: Exception | None, why: str) -> bool:
        """Store the end of the turn. Return True if another turn follows."""
        said = _error_text(error) if error is not None else ""
        kind = _failure_kind(error) if error is not None else "internal"
        return await run_blocking(lambda: self.record.close(finish, error=said, kind=kind, why=why))

    def _give_up(self) -> None:
        with suppress(ContextcError):
            self.record.store.release(self.record.lease, failed=True)

    def _result(self, finish: str, error: Exception | None) -> TurnResult:
        turn, progress = self.record.turn, self.progress
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

    async def _steps(self) -> str:
        """Run steps until the turn is over. Return the finish reason."""
        endpoint = await self.executor.open_endpoint()
        if self.record.turn.steps:  # the turn was interrupted and is resumed
            await run_blocking(self.progress.read_back, self.record.store, self.record.conversation, self.record.turn)
            if (finish := await self._unstarted()) is not None:
                return finish
        while True:
            if (limit := self._limit()) is not None:
                return limit
            index = self.record.turn.steps + 1
            prepared = await run_blocking(self.preparation.step, index, slots=CALLBACK_SLOTS)
            if prepared.sums_up:
                prepared = await self._summed_up(prepared, index)
            if prepared.stop is not None:
                return prepared.stop
            answered = await self._answer(prepared, index, endpoint)
            results = await self._persisted(answered, index)
            if (finish := self._decided(results)) is not None:
                return finish

    async def _unstarted(self) -> str | None:
        """Run the calls of the last reply whose tools were never started, and ask for approval again.

        Return the finish reason, or None if the turn continues.
        """
        left = await run_blocking(self.record.unstarted)
        if left is None:
            return None
        calls, record = left.reply.tool_calls, self.record
        record.step = left.step
        tools = self._tools(None, left.step.index, before=left.before)
        starting = [call for call in tools.starting(calls) if any(call is calls[index] for index in left.calls)]
        if starting:
            await run_blocking(record.tell, *[ToolStart(id=call.id, name=call.name) for call in starting])
        results = await tools.run(calls, left.calls)
        self.progress.take(results)
        return self._decided([*left.results, *results])

    def _limit(self) -> str | None:
        """Return the finish reason of the limit that was reached, or None."""
        limits, turn, spent = self.executor.limits, self.record.turn, self.progress.cost
        if limits.steps is not None and turn.steps >= limits.steps:
            return MAX_STEPS
        if limits.tool_calls is not None and turn.tool_calls >= limits.tool_calls:
            return MAX_TOOL_CALLS
        if limits.cost is not None and spent is not None and spent >= limits.cost:
            return MAX_COST
        reply = self.progress.reply
        if reply is not None and limits.calls_per_reply is not None and len(reply.tool_calls) > limits.calls_per_reply:
            return MAX_CALLS_PER_REPLY
        return None

    def _decided(self, results: list[Message]) -> str | None:
        """Return the finish reason, or None if the turn continues."""
        reply = self.progress.reply
        assert reply is not None, "a step that was stored has a reply"
        finish = reply.finish or "stop"
        self.progress.continued = self.progress.continued + 1 if finish == "length" else 0
        if results:
            proceed = self.executor.should_continue
            return None if proceed is None or proceed(reply, results) else "stop"
        if finish == "pause" or (finish == "length" and self.progress.continued <= MAX_CONTINUATIONS):
            return None
        return {"tool_calls": "stop", "cancelled": "other", "error": "other"}.get(finish, finish)

    # ── the call ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _answer(self, prepared: PreparedStep, index: int, endpoint: Endpoint) -> ReceivedReply:
        """Send the request and return the reply. Retry a transient failure if nothing of the reply had arrived."""
        compiled, states, tries, hardened = prepared.compiled, prepared.states, 0, False
        while True:
            compiled = await self.executor.shown(compiled, index)
            incoming = ReplyStream(self.record, compiled, index, directory=self.executor.directory)
            tools = self._tools(compiled, index)
            before = self.record.step
            try:
                await run_blocking(self._begun, compiled, index, states)
                return ReceivedReply(incoming, await incoming.receive(endpoint, ToolHost(tools)), compiled, tools)
            except BaseException as error:
                if self.record.step is before or isinstance(error, GeneratorExit):  # not started, or cannot be stored
                    raise
                await self._failed(compiled, incoming, error, tools)
                if not isinstance(error, ProviderFailed) or incoming.has_begun:
                    raise
                if error.kind == "context" and not hardened:
                    hardened = True
                    smaller = int(compiled.budget.input * RETRY_BUDGET_SHARE)
                    if compiled.session_id and compiled.provider.compacts_itself:  # its history cannot be trimmed
                        await run_blocking(self._given_up, compiled, "the session has become too long for the model")
                        smaller = min(
                            smaller, int(compiled.estimated * RETRY_BUDGET_SHARE)
                        )  # the rest is the provider's overhead
                    prepared = await run_blocking(self.preparation.again, index, smaller, slots=CALLBACK_SLOTS)
                elif error.kind == "session" and compiled.session_id:
                    await run_blocking(self._given_up, compiled, "the provider no longer has the session")
                    prepared = await run_blocking(self.preparation.again, index, slots=CALLBACK_SLOTS)
                elif error.may_retry and tries < MAX_RETRIES and (error.retry_after or 0) <= MAX_RETRY_SECONDS:
                    await self._pause(error, tries)
                    tries += 1
                    prepared = await run_blocking(self.preparation.again, index, slots=CALLBACK_SLOTS)
                else:
                    raise
                compiled, states = prepared.compiled, states | prepared.states

    def _given_up(self, compiled: Compiled, why: str) -> None:
        """Invalidate the session: the next request sends the whole context into a new one."""
        SessionManager(self.record.store).invalidate(compiled.channel, why)

    def _tools(self, compiled: Compiled | None, index: int, *, before: int | None = None) -> ToolRunner:
        """Return the tools of a step. A resumed step has no compiled request, so no `mid_step` triggers run for it."""
        executor = self.executor

        @cache
        def reply() -> int:
            """Return the tokens of the reply whose tools run, counted once and not with each result."""
            return sum([executor.compiler.counter.message(message) for message in self.progress.last[-1:]])

        def moment(more: int, number: int, results: Sequence[Message]) -> TriggerContext:
            assert compiled is not None, "mid_step triggers need the compiled request"
            return self._between(compiled, more + reply(), number, index, results)

        return ToolRunner(
            executor.tools,
            executor.compiler,
            self.record,
            executor.limits,
            step=index,
            approve=executor.approve,
            hints=executor.hinting if compiled is not None else (),
            moment=moment,
            before=before,
        )

    def _begun(self, compiled: Compiled, index: int, states: dict[str, JSONObject]) -> None:
        also, begun = self.record.step_begins(compiled, index, states)
        self.executor.compiler.begin(compiled, lease=self.record.lease, also=also)
        begun()

    async def _failed(self, compiled: Compiled, incoming: ReplyStream, error: BaseException, tools: ToolRunner) -> None:
        """Store the part of the reply that arrived, with its status. The ledger does not change."""
        cancelled = isinstance(error, asyncio.CancelledError)
        why = "cancelled" if cancelled else _error_text(error)
        partial: list[Message] = []
        if incoming.has_begun:
            with suppress(ProviderFailed):  # the journaled part is stored when the turn ends
                partial = incoming.messages()
                partial = _mark_incomplete(partial, "cancelled" if cancelled else "error", why, compiled.provider)
        stream = incoming.stream if partial else ""
        if compiled.provider.runs_tools:
            calls = {call.id for message in partial for call in message.tool_calls}
            self.record.running |= calls - tools.asking
            turn = self.record.turn
            self.record.turn = replace(turn, tool_calls=turn.tool_calls + len(calls))
        rest = incoming.rest()

        def work() -> None:
            kept = self.executor.compiler.abort(compiled, why, usage=total_usage(partial))
            self.record.step_fails(partial, stream, why, rest, kept=kept)

        if partial:
            self.progress.took(partial, compiled.provider.model)
            self.record.turn = replace(self.record.turn, usage=self.progress.usage, cost=self.progress.cost)
        await run_blocking(work)

    async def _pause(self, error: ProviderFailed, tries: int) -> None:
        seconds = retry_delay(error, tries)
        event = RetryScheduled(kind=error.kind, seconds=round(seconds, 3), attempt=tries + 1, error=str(error))
        await run_blocking(self.record.tell, event)
        await asyncio.sleep(seconds)

    async def _persisted(self, answered: ReceivedReply, index: int) -> list[Message]:
        """Store the reply and the ledger, then run the reply's tools. Return the tool results."""
        executor, record, progress = self.executor, self.record, self.progress
        incoming, messages, compiled, tools = answered
        *produced, message = messages
        calls = message.tool_calls
        usage, spent = progress.with_replies(messages, compiled.provider.model)
        also, ended = record.step_ends(
            rest=incoming.rest(),
            stream=incoming.stream,
            compiled=compiled,
            usage=usage,
            cost=spent,
            calls=len(tools.allowed(calls)) + sum([len(each.tool_calls) for each in produced]),
            starting=tools.starting(calls),
        )
        reader = incoming.reader

        def work() -> list[Message]:
            stored = executor.compiler.commit(
                compiled,
                message,
                produced=produced,
                session_id=incoming.session,
                cursor=reader.cursor,
                notes=reader.notes,
                shortened=reader.compacted,
                lease=record.lease,
                also=also,
            )
            ended()
            return stored

        try:
            stored = await run_blocking(work)
        except Exception as error:  # such as a concurrent change of the conversation: store the reply nevertheless
            await self._failed(compiled, incoming, error, tools)
            raise
        progress.took(stored, compiled.provider.model)
        results = await tools.run(calls) if calls else []
        progress.take(results)
        return results

    def _between(
        self, compiled: Compiled, more: int, number: int, index: int, results: Sequence[Message]
    ) -> TriggerContext:
        """Return the `mid_step` input of triggers after a tool result. `more` is the tokens added since compiling."""
        turn = replace(self.record.turn, tool_calls=number)
        todos = self.record.store.todos(self.record.conversation, turn.agent)
        return self.progress.moment(
            "mid_step", compiled, turn, self.executor.limits, step=index, todos=todos, more=more, results=results
        )

    # ── summaries ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _summed_up(self, prepared: PreparedStep, index: int) -> PreparedStep:
        """Summarize the messages that would be left out, then compile again."""
        done, spent = await run_compaction(self.preparation.summed_up(), self.executor.summarize)
        for usage in spent:
            self.progress.spent(usage, self.executor.provider.model)
        if done is None:
            return await run_blocking(self.preparation.settled, prepared, index, slots=CALLBACK_SLOTS)
        return await run_blocking(self.preparation.after_compaction, index, done, prepared.states, slots=CALLBACK_SLOTS)


def _mark_incomplete(
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


def _error_text(error: BaseException) -> str:
    """Return an exception as text that can be stored: invalid Unicode is replaced."""
    return fix_surrogates(describe_error(error))


def _failure_kind(error: Exception) -> ErrorKind:
    if isinstance(error, ProviderFailed):
        return error.kind
    return "context" if isinstance(error, ContextOverflow) else "internal"
