"""Serves a provider that runs its own loop within one reply, such as Claude Code: its tool calls, and what is between.

The model of such a provider makes many calls within one request. Between two of them triggers are evaluated and
steering input is taken, as between the steps of other turns. What the model must read is stored after the part of the
reply that precedes it, in one transaction, and then handed to the provider. The stored order is that of the model. If
the provider cannot deliver it, it stays outstanding and is sent with the next request. If the process dies in between,
the session is reverted, and the next request contains it.
"""

import asyncio
import inspect
from collections.abc import Collection, Sequence

from contextc._credential_mask import get_logger
from contextc._worker_threads import CALLBACK_SLOTS, as_exception, run_blocking
from contextc.compiler.agent_view import view_inserted_messages
from contextc.executor.limits import MAX_COST, MAX_TOOL_CALLS
from contextc.executor.model_call import ReplyStream
from contextc.executor.step_preparation import StepPreparer
from contextc.executor.tool_runner import ToolRunner
from contextc.messages import Message, ToolCall, ToolResult
from contextc.providers.client import Deliver
from contextc.store.message_rows import load_tip

log = get_logger("contextc.executor")
STOPPED, STOP_REQUEST = "stopped", "stop"
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
        messages, limits = [*stream.stored, *part], tools.config.limits
        if tools.has_reached_limit(messages):
            tools.ended = MAX_TOOL_CALLS
            return []
        context = self._preparer.context_within_reply(
            stream.compiled, messages, tools.count_calls(messages), tools.step
        )
        if limits.cost is not None and context.cost is not None and context.cost >= limits.cost:
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
