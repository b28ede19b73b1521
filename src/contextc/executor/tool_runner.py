"""Run the tool calls of one step, in parallel if allowed, and store each result as it arrives.

A tool runs only after the reply that calls it is stored, and it is never run twice: calls left open by a dead process
are answered as interrupted. Without an approval a tool that requires one does not run. A provider that runs tools
itself calls ours in the middle of its reply; the reply so far is stored first.
"""

import asyncio
import inspect
import logging
import secrets
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext, suppress
from time import monotonic
from typing import TypeAlias, cast

from contextc._json import encode_canonical
from contextc._worker_threads import run_in_thread
from contextc.compiler import MessageCompiler
from contextc.compiler.ledger.rendering import FETCH_TOOL
from contextc.errors import LeaseLost
from contextc.events import ApprovalRequest, ToolProgress, ToolStart
from contextc.executor.blocking import CALLBACK_SLOTS, STORE_SLOTS, run_blocking, wait_until_done
from contextc.executor.limits import Limits
from contextc.executor.turn_lifecycle import NOT_RUN_RESULT
from contextc.executor.turn_store import TurnStore
from contextc.messages import Message, ToolCall, ToolResult
from contextc.tools import FunctionTool, ToolContext, tool, unknown_tool_result
from contextc.tools.spec import Tool
from contextc.triggers import Evaluation, Trigger, TriggerContext, evaluate_triggers

log = logging.getLogger("contextc.executor")
ApprovalAnswer: TypeAlias = bool | str | None
Approve: TypeAlias = Callable[[ToolCall, FunctionTool], ApprovalAnswer | Awaitable[ApprovalAnswer]]
"""Callback before a tool with `approval` runs. True approves. A string declines with a reason, which the model gets if
its provider supports that."""

NO_APPROVER_RESULT = "Not run: this tool needs a person's approval, and nobody is there to give it."
DECLINED_RESULT = "Not run: the user declined."
ALTERED_RESULT = "Not run: the call was altered while it waited for approval."
PROGRESS_SECONDS = 0.25


class PendingApprovals(ABC):
    """An `approve` callback that is answered by approval id. An approval is pending before its event is stored."""

    @abstractmethod
    def asked(self, approval: str, call: ToolCall) -> AbstractContextManager[Awaitable[ApprovalAnswer]]:
        """Keep an approval pending for the duration of the block. The awaitable resolves to the answer."""

    async def __call__(self, call: ToolCall, tool: FunctionTool) -> ApprovalAnswer:
        with self.asked(secrets.token_urlsafe(16), call) as answered:
            return await answered


class ToolRunner:
    """Runs the tool calls of one reply."""

    def __init__(
        self,
        tools: Mapping[str, FunctionTool],
        compiler: MessageCompiler,
        record: TurnStore,
        limits: Limits,
        *,
        step: int,
        approve: Approve | None,
        hints: Sequence[Trigger],
        moment: Callable[[int, int, Sequence[Message]], TriggerContext],
        before: int | None = None,
    ) -> None:
        self.tools, self.compiler, self.record, self.limits = tools, compiler, record, limits
        self.step, self.approve, self.hints, self._moment = step, approve, hints, moment
        self._before = record.turn.tool_calls if before is None else before
        self._room = None if limits.tool_calls is None else max(0, limits.tool_calls - self._before)
        self._stored, self._more = 0, 0
        """Number of stored results, and their tokens if `mid_step` triggers need them."""
        self._results: list[Message] = []
        self._storing = asyncio.Lock()
        at_once = limits.parallel_tools
        self._place: AbstractAsyncContextManager[None] = asyncio.Semaphore(at_once) if at_once else nullcontext()
        self._progress: dict[str, str] = {}
        self._running: set[str] = set()
        self.asking: set[str] = set()
        """Ids of calls with a pending approval."""
        self._hosted, self._alone = 0, asyncio.Lock()

    def allowed(self, calls: Sequence[ToolCall]) -> Sequence[ToolCall]:
        """Return the calls that the tool call limits allow."""
        bounds = [bound for bound in (self._room, self.limits.calls_per_reply) if bound is not None]
        return calls[: min(bounds)] if bounds else calls

    def starting(self, calls: Sequence[ToolCall]) -> list[ToolCall]:
        """Return the calls that start as soon as the reply is stored."""
        return [call for call in self.allowed(calls) if not self._asks(call)]

    async def run(self, calls: Sequence[ToolCall], only: Collection[int] | None = None) -> list[Message]:
        """Run the calls, or those with the indexes `only`. Return the stored results in the order of the calls."""
        found: dict[int, Message] = {}
        allowed = len(self.allowed(calls))
        wanted = range(len(calls)) if only is None else only
        for group in self._groups(calls[:allowed]):
            group = [index for index in group if index in wanted]
            if not group:
                continue
            if len(group) == 1:
                found[group[0]] = await self._one(calls[group[0]])
                continue
            tasks = [asyncio.ensure_future(self._one(calls[index])) for index in group]
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
            found |= dict(zip(rest, await run_blocking(self.record.refused, refused), strict=True))
        return [found[index] for index in sorted(found)]

    def _groups(self, calls: Sequence[ToolCall]) -> list[list[int]]:
        """Group adjacent calls that may run in parallel. Any other call is a group of its own.

        Of two calls with the same id the second waits for the first, because only their order tells the results apart.
        """
        groups: list[list[int]] = []
        ids: set[str] = set()
        together = False
        for index, call in enumerate(calls):
            tool = self.tools.get(call.name)
            parallel = tool is None or (tool.parallel and not tool.approval)
            if parallel and together and call.id not in ids:
                groups[-1].append(index)
            else:
                groups.append([index])
                ids = set()
            ids.add(call.id)
            together = parallel
        return groups

    async def _one(self, call: ToolCall) -> Message:
        async with self._place:
            began = monotonic()
            result = await self.answered(call)
            storing = asyncio.ensure_future(self._in_order(result, int((monotonic() - began) * 1000)))
            await wait_until_done(storing)  # the result is stored even if the turn is cancelled meanwhile
            return storing.result()

    async def _in_order(self, result: ToolResult, took: int) -> Message:
        """Store results one after the other, on one thread, however many arrive at once."""
        async with self._storing:
            return await run_blocking(self._store, result, took, slots=CALLBACK_SLOTS if self.hints else STORE_SLOTS)

    def _store(self, result: ToolResult, took: int) -> Message:
        """Store a result with the user notices of `mid_step` triggers."""
        if self.hints:
            self._results.append(Message(role="tool", parts=(result,), author=self.record.agent, step=self.step))
        verdict = self._hints(self._before + self._stored + 1)
        stored = self.record.result(result, took, verdict.says, verdict.states)
        self._stored += 1
        if self.hints:
            self._more += self.compiler.counter.message(stored)
        return stored

    async def answered(self, call: ToolCall) -> ToolResult:
        tool = self.tools.get(call.name)
        if tool is None and call.name == FETCH_TOOL.name:
            text = await run_blocking(
                lambda: self.compiler.fetch(self.record.conversation, call, agent=self.record.agent)
            )
            return ToolResult(call_id=call.id, name=call.name, content=text)
        if tool is None:
            return unknown_tool_result(call, self.tools)
        if self._asks(call):
            refusal = await self.refusal(call, tool)
            if refusal:
                return _error_result(call, refusal)
            await run_blocking(self.record.tell, ToolStart(id=call.id, name=call.name))
        context = ToolContext(
            conversation=self.record.conversation,
            agent=self.record.agent,
            store=self.record.store,
            call=call,
            turn=self.record.turn.number,
            step=self.step,
            progress=self._teller(call),
        )
        self._running.add(call.id)
        self.record.running.add(call.id)
        try:
            return await tool.run(call, context, timeout=self.limits.tool_seconds)
        finally:
            self._running.discard(call.id)

    def _asks(self, call: ToolCall) -> bool:
        tool = self.tools.get(call.name)
        return tool is not None and tool.approval and not call.malformed

    async def hosted(self, call: ToolCall) -> ToolResult:
        """Run a call that a provider makes in the middle of its reply, under the same rules as other calls.

        The call is stored before it runs, if the provider has reported it. The result is stored with the reply.
        """
        self._hosted += 1
        if self._room is not None and self._hosted > self._room:
            return _error_result(call, NOT_RUN_RESULT.format(why="its limit of tool calls"))
        verdict = await run_blocking(self._hints, self._before + self._hosted, slots=CALLBACK_SLOTS)
        if verdict.says or verdict.states:
            await run_blocking(lambda: self.record.speak(verdict.says, verdict.states, step=self.step))
        if not self._asks(call):
            await run_blocking(self.record.tell, ToolStart(id=call.id, name=call.name))  # raises if the lease is lost
        tool = self.tools.get(call.name)
        is_parallel = tool is None or (tool.parallel and not tool.approval)
        async with self._place if is_parallel else self._alone:
            return await self.answered(call)

    async def refusal(self, call: ToolCall, tool: FunctionTool) -> str:
        """Ask for approval. Return the reason why the call must not run, empty if it was approved."""
        if self.approve is None:
            return NO_APPROVER_RESULT
        self.asking.add(call.id)
        shown, approval = _canonical_call(call), secrets.token_urlsafe(16)
        event = ApprovalRequest(id=call.id, name=call.name, arguments=call.arguments, approval=approval)
        if isinstance(self.approve, PendingApprovals):
            with self.approve.asked(approval, call) as answered:
                await run_blocking(self.record.tell, event)
                answer = await answered
        else:
            await run_blocking(self.record.tell, event)
            answer = await self._decided(self.approve, call, tool)
        self.asking.discard(call.id)
        if answer is True:
            return "" if _canonical_call(call) == shown else ALTERED_RESULT
        return f"{DECLINED_RESULT[:-1]}: {answer}" if isinstance(answer, str) and answer.strip() else DECLINED_RESULT

    async def _decided(self, approve: Approve, call: ToolCall, tool: FunctionTool) -> ApprovalAnswer:
        if inspect.iscoroutinefunction(approve):
            return await approve(call, tool)
        answer = await run_in_thread(approve, call, tool)  # it may block until a person answers
        return await answer if inspect.isawaitable(answer) else answer

    def _hints(self, number: int) -> Evaluation:
        """Evaluate the `mid_step` triggers, which create user notices."""
        if not self.hints:
            return Evaluation()
        verdict = evaluate_triggers(
            self.hints, self._moment(self._more, number, tuple(self._results)), self.record.states
        )
        self.record.report(verdict, step=self.step)
        return verdict

    def _teller(self, call: ToolCall) -> Callable[[str], None]:
        """Return the progress callback of a call. Reports in quick succession become one event."""
        loop = asyncio.get_running_loop()

        async def tell() -> None:
            await asyncio.sleep(PROGRESS_SECONDS)
            text = self._progress.pop(call.id, "")
            if text and call.id in self._running:  # progress after the result is dropped
                with suppress(LeaseLost):  # the turn has ended
                    await run_blocking(self.record.tell, ToolProgress(id=call.id, text=text))

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
        self._tools = tools

    async def approve(self, call: ToolCall) -> str:
        return await self._tools.refusal(call, tool(Tool(name=call.name), _provider_tool, approval=True))

    async def run(self, call: ToolCall) -> ToolResult:
        return await self._tools.hosted(call)


def _canonical_call(call: ToolCall) -> bytes:
    """Return the name and arguments of a call in canonical form, to detect a change during the approval."""
    return encode_canonical([call.name, call.arguments])


def _provider_tool() -> None:
    """Stand in for the function of a provider's own tool, which the provider runs."""


def _error_result(call: ToolCall, why: str) -> ToolResult:
    return ToolResult(call_id=call.id, name=call.name, content=why, is_error=True)
