"""Run the tool calls of one step, in parallel if allowed, and store each result as it arrives.

A tool runs only after the reply that calls it is stored, and it is never run twice: calls left open by a dead process
are answered as interrupted. Without an approval a tool that requires one does not run. A provider that runs tools
itself calls ours in the middle of its reply; the reply so far is stored first.
"""

import asyncio
import inspect
import logging
import secrets
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from time import monotonic
from typing import cast

from contextc._json import encode_canonical
from contextc._worker_threads import CALLBACK_SLOTS, STORE_SLOTS, run_blocking, run_in_thread, wait_until_done
from contextc.compiler.fetch_result import FETCH_TOOL
from contextc.errors import LeaseLost
from contextc.events import ApprovalRequest, ToolProgress, ToolStart
from contextc.executor.agent_config import AgentConfig, ApprovalAnswer, Approve, PendingApprovals
from contextc.executor.turn_store import NOT_RUN_RESULT, TurnStore
from contextc.messages import Message, ToolCall, ToolResult
from contextc.tools import FunctionTool, ToolContext, tool, unknown_tool_result
from contextc.tools.spec import Tool
from contextc.triggers import Evaluation, Trigger, TriggerContext, evaluate_triggers

log = logging.getLogger("contextc.executor")
NO_APPROVER_RESULT = "Not run: this tool needs a person's approval, and nobody is there to give it."
DECLINED_RESULT = "Not run: the user declined."
ALTERED_RESULT = "Not run: the call was altered while it waited for approval."
PROGRESS_SECONDS = 0.25


class ToolRunner:
    """Runs the tool calls of one reply."""

    def __init__(
        self,
        config: AgentConfig,
        turn_store: TurnStore,
        *,
        step: int,
        mid_step_triggers: Sequence[Trigger],
        trigger_context: Callable[[int, int, Sequence[Message]], TriggerContext],
        calls_before: int | None = None,
    ) -> None:
        self.config, self.turn_store, self.step = config, turn_store, step
        self.mid_step_triggers, self._trigger_context = mid_step_triggers, trigger_context
        limits = config.limits
        self._calls_before = turn_store.turn.tool_calls if calls_before is None else calls_before
        self._calls_left = None if limits.tool_calls is None else max(0, limits.tool_calls - self._calls_before)
        self._stored_results, self._result_tokens = 0, 0
        """Number of stored results, and their tokens if `mid_step` triggers need them."""
        self._results: list[Message] = []
        self._store_lock = asyncio.Lock()
        at_once = limits.parallel_tools
        self._parallel_slots: AbstractAsyncContextManager[None] = (
            asyncio.Semaphore(at_once) if at_once else nullcontext()
        )
        self._progress: dict[str, str] = {}
        self._running: set[str] = set()
        self.pending_approvals: set[str] = set()
        """Ids of calls with a pending approval."""
        self._hosted_calls, self._exclusive_lock = 0, asyncio.Lock()

    def allowed_calls(self, calls: Sequence[ToolCall]) -> Sequence[ToolCall]:
        """Return the calls that the tool call limits allow."""
        bounds = [bound for bound in (self._calls_left, self.config.limits.calls_per_reply) if bound is not None]
        return calls[: min(bounds)] if bounds else calls

    def calls_without_approval(self, calls: Sequence[ToolCall]) -> list[ToolCall]:
        """Return the calls that start as soon as the reply is stored."""
        return [call for call in self.allowed_calls(calls) if not self._needs_approval(call)]

    async def run(self, calls: Sequence[ToolCall], indexes: Collection[int] | None = None) -> list[Message]:
        """Run the calls, or those with the indexes `indexes`. Return the stored results in the order of the calls."""
        found: dict[int, Message] = {}
        allowed = len(self.allowed_calls(calls))
        wanted = range(len(calls)) if indexes is None else indexes
        for group in self._groups(calls[:allowed]):
            group = [index for index in group if index in wanted]
            if not group:
                continue
            if len(group) == 1:
                found[group[0]] = await self._run_and_store(calls[group[0]])
                continue
            tasks = [asyncio.ensure_future(self._run_and_store(calls[index])) for index in group]
            try:
                stored = await asyncio.gather(*tasks)
            except BaseException:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                raise
            found |= dict(zip(group, stored, strict=True))
        rest = [index for index in range(allowed, len(calls)) if index in wanted]
        if rest:
            refused = [
                _error_result(calls[index], NOT_RUN_RESULT.format(why="its limit of tool calls")) for index in rest
            ]
            found |= dict(zip(rest, await run_blocking(self.turn_store.store_refused_results, refused), strict=True))
        return [found[index] for index in sorted(found)]

    def _groups(self, calls: Sequence[ToolCall]) -> list[list[int]]:
        """Group adjacent calls that may run in parallel. Any other call is a group of its own.

        Of two calls with the same id the second waits for the first, because only their order tells the results apart.
        """
        groups: list[list[int]] = []
        ids: set[str] = set()
        together = False
        for index, call in enumerate(calls):
            tool = self.config.tools.get(call.name)
            parallel = tool is None or (tool.parallel and not tool.approval)
            if parallel and together and call.id not in ids:
                groups[-1].append(index)
            else:
                groups.append([index])
                ids = set()
            ids.add(call.id)
            together = parallel
        return groups

    async def _run_and_store(self, call: ToolCall) -> Message:
        async with self._parallel_slots:
            began = monotonic()
            result = await self.run_call(call)
            storing = asyncio.ensure_future(self._store_in_order(result, int((monotonic() - began) * 1000)))
            await wait_until_done(storing)  # the result is stored even if the turn is cancelled meanwhile
            return storing.result()

    async def _store_in_order(self, result: ToolResult, took: int) -> Message:
        """Store results one after the other, on one thread, however many arrive at once."""
        async with self._store_lock:
            return await run_blocking(
                self._store_result, result, took, slots=CALLBACK_SLOTS if self.mid_step_triggers else STORE_SLOTS
            )

    def _store_result(self, result: ToolResult, took: int) -> Message:
        """Store a result with the user notices of `mid_step` triggers."""
        if self.mid_step_triggers:
            self._results.append(Message(role="tool", parts=(result,), author=self.turn_store.agent, step=self.step))
        verdict = self._evaluate_mid_step(self._calls_before + self._stored_results + 1)
        stored = self.turn_store.store_result(result, took, verdict.messages, verdict.states)
        self._stored_results += 1
        if self.mid_step_triggers:
            self._result_tokens += self.config.compiler.counter.count_message(stored)
        return stored

    async def run_call(self, call: ToolCall) -> ToolResult:
        tool = self.config.tools.get(call.name)
        if tool is None and call.name == FETCH_TOOL.name:
            text = await run_blocking(
                lambda: self.config.compiler.fetch(self.turn_store.conversation, call, agent=self.turn_store.agent)
            )
            return ToolResult(call_id=call.id, name=call.name, content=text)
        if tool is None:
            return unknown_tool_result(call, self.config.tools)
        if self._needs_approval(call):
            refusal = await self.ask_approval(call, tool)
            if refusal:
                return _error_result(call, refusal)
            await run_blocking(self.turn_store.append_events, ToolStart(id=call.id, name=call.name))
        context = ToolContext(
            conversation=self.turn_store.conversation,
            agent=self.turn_store.agent,
            store=self.turn_store.store,
            call=call,
            turn=self.turn_store.turn.number,
            step=self.step,
            progress=self._progress_callback(call),
        )
        self._running.add(call.id)
        self.turn_store.running_calls.add(call.id)
        try:
            return await tool.run(call, context, timeout=self.config.limits.tool_seconds)
        finally:
            self._running.discard(call.id)

    def _needs_approval(self, call: ToolCall) -> bool:
        tool = self.config.tools.get(call.name)
        return tool is not None and tool.approval and not call.malformed

    async def run_hosted_call(self, call: ToolCall) -> ToolResult:
        """Run a call that a provider makes in the middle of its reply, under the same rules as other calls.

        The call is stored before it runs, if the provider has reported it. The result is stored with the reply.
        """
        self._hosted_calls += 1
        if self._calls_left is not None and self._hosted_calls > self._calls_left:
            return _error_result(call, NOT_RUN_RESULT.format(why="its limit of tool calls"))
        verdict = await run_blocking(
            self._evaluate_mid_step, self._calls_before + self._hosted_calls, slots=CALLBACK_SLOTS
        )
        if verdict.messages or verdict.states:
            await run_blocking(
                lambda: self.turn_store.store_trigger_messages(verdict.messages, verdict.states, step=self.step)
            )
        if not self._needs_approval(call):
            await run_blocking(
                self.turn_store.append_events, ToolStart(id=call.id, name=call.name)
            )  # raises if the lease is lost
        tool = self.config.tools.get(call.name)
        is_parallel = tool is None or (tool.parallel and not tool.approval)
        async with self._parallel_slots if is_parallel else self._exclusive_lock:
            return await self.run_call(call)

    async def ask_approval(self, call: ToolCall, tool: FunctionTool) -> str:
        """Ask for approval. Return the reason why the call must not run, empty if it was approved."""
        approve = self.config.approve
        if approve is None:
            return NO_APPROVER_RESULT
        self.pending_approvals.add(call.id)
        shown, approval = _canonical_call(call), secrets.token_urlsafe(16)
        event = ApprovalRequest(id=call.id, name=call.name, arguments=call.arguments, approval=approval)
        if isinstance(approve, PendingApprovals):
            with approve.pending(approval, call) as answered:
                await run_blocking(self.turn_store.append_events, event)
                answer = await answered
        else:
            await run_blocking(self.turn_store.append_events, event)
            answer = await self._call_approve(approve, call, tool)
        self.pending_approvals.discard(call.id)
        if answer is True:
            return "" if _canonical_call(call) == shown else ALTERED_RESULT
        return f"{DECLINED_RESULT[:-1]}: {answer}" if isinstance(answer, str) and answer.strip() else DECLINED_RESULT

    async def _call_approve(self, approve: Approve, call: ToolCall, tool: FunctionTool) -> ApprovalAnswer:
        if inspect.iscoroutinefunction(approve):
            return await approve(call, tool)
        answer = await run_in_thread(approve, call, tool)  # it may block until a person answers
        return await answer if inspect.isawaitable(answer) else answer

    def _evaluate_mid_step(self, number: int) -> Evaluation:
        """Evaluate the `mid_step` triggers, which create user notices."""
        if not self.mid_step_triggers:
            return Evaluation()
        verdict = evaluate_triggers(
            self.mid_step_triggers,
            self._trigger_context(self._result_tokens, number, tuple(self._results)),
            self.turn_store.trigger_states,
        )
        self.turn_store.report_failures(verdict, step=self.step)
        return verdict

    def _progress_callback(self, call: ToolCall) -> Callable[[str], None]:
        """Return the progress callback of a call. Reports in quick succession become one event."""
        loop = asyncio.get_running_loop()

        async def tell() -> None:
            await asyncio.sleep(PROGRESS_SECONDS)
            text = self._progress.pop(call.id, "")
            if text and call.id in self._running:  # progress after the result is dropped
                with suppress(LeaseLost):  # the turn has ended
                    await run_blocking(self.turn_store.append_events, ToolProgress(id=call.id, text=text))

        def note(text: str) -> None:
            waits = call.id in self._progress
            self._progress[call.id] = text
            if not waits:
                tasks.add(task := loop.create_task(tell()))
                task.add_done_callback(tasks.discard)

        tasks: set[asyncio.Task[None]] = set()
        return lambda text: cast(None, loop.call_soon_threadsafe(note, str(text)[:500]))


class ToolHost:
    """Serves a provider that runs tools itself: runs our tools for it, and asks for approval of its own.

    The results are part of the provider's reply and are stored with it.
    """

    def __init__(self, tools: ToolRunner) -> None:
        self._runner = tools

    async def approve(self, call: ToolCall) -> str:
        return await self._runner.ask_approval(call, tool(Tool(name=call.name), _provider_tool, approval=True))

    async def run(self, call: ToolCall) -> ToolResult:
        return await self._runner.run_hosted_call(call)


def _canonical_call(call: ToolCall) -> bytes:
    """Return the name and arguments of a call in canonical form, to detect a change during the approval."""
    return encode_canonical([call.name, call.arguments])


def _provider_tool() -> None:
    """Stand in for the function of a provider's own tool, which the provider runs."""


def _error_result(call: ToolCall, why: str) -> ToolResult:
    return ToolResult(call_id=call.id, name=call.name, content=why, is_error=True)
