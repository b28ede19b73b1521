"""Run the tool calls of one step, in parallel if allowed, and store each result as it arrives.

A tool runs only after the reply that calls it is stored, and it is never run twice: calls left open by a dead process
are answered as interrupted. Without an approval a tool that requires one does not run. A provider that runs tools
itself calls ours in the middle of its reply; the reply so far is stored first.

If the turn is suspended for approvals, calls without an answer are left open, in `waiting`. So is a call whose server
asks a question: the question is stored at once, and the call is made again with the answer.
"""

import asyncio
import inspect
import secrets
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, cast

from msgspec.structs import replace

from contextc import telemetry
from contextc._credential_mask import get_logger
from contextc._json import encode_canonical
from contextc._worker_threads import CALLBACK_SLOTS, STORE_SLOTS, run_blocking, run_in_thread, wait_until_done
from contextc.compiler.history import HISTORY_TOOL_NAMES
from contextc.errors import LeaseLost
from contextc.events import ApprovalAnswered, ApprovalRequest, ToolProgress, ToolStart
from contextc.executor.agent_calls import AgentCaller, AgentTool, CallOutcome
from contextc.executor.agent_config import (
    AgentConfig,
    ApprovalAnswer,
    Approve,
    Suspend,
    is_client_tool,
    takes_context,
)
from contextc.executor.event_hub import watch
from contextc.executor.limits import MAX_TOOL_CALLS
from contextc.executor.turn_store import TurnStore
from contextc.messages import Message, ToolCall, ToolResult
from contextc.store import Always, Approval, Store
from contextc.store.agent_calls import AgentCall
from contextc.store.approvals import load_approval
from contextc.store.message_log import now_ms
from contextc.store.store import expire_approvals
from contextc.store.turn_controls import NOT_RUN_RESULT
from contextc.tools import FunctionTool, ToolContext, tool, unknown_tool_result
from contextc.tools.definitions import Tool
from contextc.tools.questions import Question, QuestionAnswer, QuestionExchange
from contextc.triggers import Evaluation, Trigger, TriggerContext, evaluate_triggers

if TYPE_CHECKING:
    from contextc.telemetry.recorder import Recorder

log = get_logger("contextc.executor")
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
        agents: AgentCaller,
        calls_before: int | None = None,
    ) -> None:
        self.config, self.turn_store, self.step, self._agents = config, turn_store, step, agents
        self.account = agents.account
        self.mid_step_triggers, self._trigger_context = mid_step_triggers, trigger_context
        self._calls_before = turn_store.turn.tool_calls if calls_before is None else calls_before
        self._allowed: int | None = None
        """The number of calls of the reply that are run, once it is known."""
        self._stored_results, self._result_tokens = 0, 0
        """Number of stored results, and their tokens if `mid_step` triggers need them."""
        self._results: list[Message] = []
        self._store_lock = asyncio.Lock()
        at_once = config.limits.parallel_tools
        self._parallel_slots: AbstractAsyncContextManager[None] = (
            asyncio.Semaphore(at_once) if at_once else nullcontext()
        )
        self._progress: dict[str, str] = {}
        self._running: set[str] = set()
        self.pending_approvals: set[str] = set()
        """Ids of calls with a pending approval."""
        self.answers: dict[int, Approval] = {}
        """Stored approvals of calls, by the index of the call."""
        self._asked: set[int] = set()
        """Indexes of the calls whose servers have asked a question that is not answered, or whose rule has ended."""
        self._ruled: set[int] = set()
        """Indexes of the calls without an answer that a rule answers."""
        self.waiting: list[int] = []
        """Indexes of the calls that were left open, because they need an answer, or their agent waits for one."""
        self.waiting_approvals: list[int] = []
        """Indexes of those that need an answer themselves."""
        self.holds_last, self._unstored = False, 0
        """True if the last result is not stored by itself, because the next request follows at once; and the number of
        results that are still to come.
        """
        self.reply_seq = 0
        """The number of the reply, 0 while it is not stored."""
        self._announced: list[ToolCall] = []
        """The calls whose start is stored."""
        self.admitted: set[str] = set()
        """Ids of calls within the reply that a provider was allowed to make."""
        self.refused: set[str] = set()
        """Ids of calls within the reply that a limit did not allow."""
        self.ended: str | None = None
        """The finish reason of the turn, if it must end with this reply."""
        self._noticed_calls, self._exclusive_lock = 0, asyncio.Lock()

    def allowed_calls(self, calls: Sequence[ToolCall]) -> Sequence[ToolCall]:
        """Return the calls of the reply that the tool call limits allow, and reserve them."""
        if self._allowed is None:
            before, wanted = self._calls_before + len(self.admitted), calls[: self.config.limits.calls_per_reply]
            self._allowed = self.account.reserve_calls(before, len(wanted))
        return calls[: self._allowed]

    def calls_without_approval(self, calls: Sequence[ToolCall]) -> list[ToolCall]:
        """Return the calls that start as soon as the reply is stored.

        A call with the id of one that needs approval may have to wait for it. Agents that are tools are not started in
        this sense: a turn that is resumed goes on with them.
        """
        ids = {call.id for call in calls if self._needs_approval(call) or self._agent_tool(call) is not None}
        self._announced = [call for call in self.allowed_calls(calls) if call.id not in ids]
        return self._announced

    async def run(self, calls: Sequence[ToolCall], indexes: Collection[int] | None = None) -> list[Message]:
        """Run the calls, or those with the indexes `indexes`. Return the stored results in the order of the calls."""
        found: dict[int, Message] = {}
        allowed = len(self.allowed_calls(calls))
        wanted = range(len(calls)) if indexes is None else indexes
        await self._find_ruled(calls, [index for index in wanted if index < allowed])
        self.waiting = self._find_waiting(calls, [index for index in wanted if index < allowed])
        self.waiting_approvals = self.waiting
        wanted = [index for index in wanted if index not in self.waiting]
        self._unstored = len(wanted)
        self.holds_last = self.holds_last and len(wanted) == len(calls) == allowed
        for group in self._groups(calls[:allowed]):
            group = [index for index in group if index in wanted]
            if len(group) == 1 and any(calls[other].id == calls[group[0]].id for other in self.waiting):
                self.waiting = [*self.waiting, group[0]]
                continue
            if not group:
                continue
            if len(group) == 1:
                stored = await self._run_and_store(calls[group[0]], group[0], self.answers.get(group[0]))
                self._note_result(found, group[0], stored)
                continue
            tasks = [asyncio.ensure_future(self._run_and_store(calls[index], index)) for index in group]
            try:
                stored = await asyncio.gather(*tasks)
            except BaseException:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                raise
            for index, result in zip(group, stored, strict=True):
                self._note_result(found, index, result)
        rest = [index for index in range(allowed, len(calls)) if index in wanted]
        if rest:
            refused = [
                _error_result(calls[index], NOT_RUN_RESULT.format(why="its limit of tool calls")) for index in rest
            ]
            found |= dict(zip(rest, await run_blocking(self.turn_store.store_refused_results, refused), strict=True))
        return [found[index] for index in sorted(found)]

    def _note_result(self, found: dict[int, Message], index: int, stored: Message | None) -> None:
        """Note the stored result of a call, or that it stays open: its agent goes on later, or its server asks."""
        if stored is not None:
            found[index] = stored
            return
        self.waiting = [*self.waiting, index]
        if index in self._asked:
            self.waiting_approvals = sorted([*self.waiting_approvals, index])

    def _find_waiting(self, calls: Sequence[ToolCall], wanted: Sequence[int]) -> list[int]:
        """Return the calls that wait for an answer, and those that must not run before one of these."""
        found: list[int] = []
        for index in wanted:
            answer = self.answers.get(index)
            if answer is None:
                is_suspending = isinstance(self.config.approve, Suspend) and index not in self._ruled
                waits = is_suspending and self._needs_approval(calls[index])
            else:
                waits = answer.state == "pending"
            if waits or any(calls[other].id == calls[index].id for other in found):
                found.append(index)
        return found

    async def _find_ruled(self, calls: Sequence[ToolCall], wanted: Sequence[int]) -> None:
        """Find the calls that would suspend the turn if no rule answered them."""
        if isinstance(self.config.approve, Suspend):
            asking = [index for index in wanted if index not in self.answers and self._needs_approval(calls[index])]
            asked = {index: self._make_approval(calls[index], self.config.approve, index=index) for index in asking}
            found = await run_blocking(self.turn_store.find_ruled, [*asked.values()]) if asked else []
            self._ruled = {each.index for each in found}

    def new_approvals(self, reply: Message) -> list[Approval]:
        """Return an approval for each call that waits and has none. Of calls with the same id only the first is asked.

        The next one is asked when the first has its result, because only their order tells the results apart.
        """
        approve = self.config.approve
        suspend = approve if isinstance(approve, Suspend) else Suspend()
        found: list[Approval] = []
        seen: set[str] = set()
        for index in self.waiting_approvals:
            call = reply.tool_calls[index]
            if index not in self.answers and call.id not in seen:
                found.append(self._make_approval(call, suspend, seq=reply.seq, index=index))
            seen.add(call.id)
        return found

    def _make_approval(
        self, call: ToolCall, suspend: Suspend, *, seq: int = 0, index: int = 0, question: Question | None = None
    ) -> Approval:
        asked, default = now_ms(), suspend.default if question is None else False
        found = self.config.tools.get(call.name)
        target = self._find_tool(call) if found is not None and found.find_target is not None else None
        return Approval(
            id=secrets.token_urlsafe(16),
            agent=self.turn_store.agent,
            turn=self.turn_store.turn.number,
            step=self.step,
            seq=seq,
            index=index,
            call=call.id,
            name=call.name,
            arguments=call.arguments,
            asked=asked,
            expires=0 if suspend.seconds is None else asked + max(1, int(suspend.seconds * 1000)),
            default_allows=default is True,
            default_reason=default if isinstance(default, str) else "",
            client=is_client_tool(self._find_tool(call)),
            question=question,
            target=target.name if target is not None and target.name != call.name else "",
            speaker=self.config.speaker,
        )

    def _groups(self, calls: Sequence[ToolCall]) -> list[list[int]]:
        """Group adjacent calls that may run in parallel. Any other call is a group of its own.

        Of two calls with the same id the second waits for the first, because only their order tells the results apart.
        """
        groups: list[list[int]] = []
        ids: set[str] = set()
        together = False
        for index, call in enumerate(calls):
            tool = self._find_tool(call)
            parallel = tool is None or (tool.parallel and not tool.approval)
            if parallel and together and call.id not in ids:
                groups[-1].append(index)
            else:
                groups.append([index])
                ids = set()
            ids.add(call.id)
            together = parallel
        return groups

    async def _run_and_store(self, call: ToolCall, index: int, answer: Approval | None = None) -> Message | None:
        async with self._parallel_slots:
            began = monotonic()
            recorder = telemetry.active
            done = await (
                self._run_or_refuse(call, answer, index)
                if recorder is None
                else self._record_call(recorder, call, answer, index)
            )
            if done.result is None:
                return None
            took = int((monotonic() - began) * 1000)
            storing = asyncio.ensure_future(self._store_in_order(done, done.result, took, answer))
            await wait_until_done(storing)  # the result is stored even if the turn is cancelled meanwhile
            return storing.result()

    async def _store_in_order(
        self, done: CallOutcome, result: ToolResult, took: int, answer: Approval | None
    ) -> Message:
        """Store results one after the other, on one thread, however many arrive at once."""
        async with self._store_lock:
            if done.call is not None and done.turn is not None:
                self.account.count(done.call, done.turn)
            self._unstored -= 1
            has_media = not isinstance(result.content, str)  # a request reads it from the store
            is_plain = answer is None and done.call is None and done.turn is None and not has_media
            if self.holds_last and is_plain and not self._unstored:
                return self.turn_store.hold_result(result, took, partial(self._evaluate_result, result))
            return await run_blocking(
                self._store_result,
                result,
                took,
                answer if answer is not None and answer.client else None,
                done.call,
                slots=CALLBACK_SLOTS if self.mid_step_triggers else STORE_SLOTS,
            )

    def _store_result(
        self, result: ToolResult, took: int, applied: Approval | None, answered: AgentCall | None
    ) -> Message:
        """Store a result with the user notices of `mid_step` triggers."""
        verdict = self._evaluate_result(result)
        stored = self.turn_store.store_result(
            result, took, verdict.messages, verdict.states, applied=applied, answered=answered
        )
        self._stored_results += 1
        if self.mid_step_triggers:
            self._result_tokens += self.config.compiler.counter.count_message(stored)
        return stored

    def _evaluate_result(self, result: ToolResult) -> Evaluation:
        """Evaluate the `mid_step` triggers after a result that is about to be stored."""
        if self.mid_step_triggers:
            self._results.append(Message(role="tool", parts=(result,), author=self.turn_store.author, step=self.step))
        return self._evaluate_mid_step(self._calls_before + self._stored_results + 1)

    def _read_history(self, call: ToolCall) -> str:
        where, running = self.turn_store.conversation, self.turn_store.load_running()
        names = running.names if running is not None else None
        return self.config.compiler.fetch(
            where, call, name=self.turn_store.author, run=self.turn_store.run, running=names
        )

    async def _run_or_refuse(self, call: ToolCall, answer: Approval | None, index: int) -> CallOutcome:
        """Run a call. `answer` is its stored approval, if that has an answer."""
        tool = self._find_tool(call)
        agent = self._agent_tool(call)
        if tool is None and call.name in HISTORY_TOOL_NAMES and self.config.compiler.options.fetch:
            text = await run_blocking(lambda: self._read_history(call))
            return CallOutcome(ToolResult(call_id=call.id, name=call.name, content=text))
        if tool is None:
            return CallOutcome(unknown_tool_result(call, self.config.tools))
        if answer is not None and answer.client:  # its result is stored together with the use of the answer
            if refusal := _refusal(call, answer):
                return CallOutcome(_error_result(call, refusal))
            given = ToolResult(call_id=call.id, name=call.name, content=answer.result, is_error=answer.failed)
            return CallOutcome(given)
        is_announced = agent is not None or any(call is each for each in self._announced)
        if answer is not None:
            refusal = _altered(call, answer) if answer.question is not None else _refusal(call, answer)
            await run_blocking(lambda: self.turn_store.use_answer(answer, starts=not refusal and agent is None))
            if refusal:
                return CallOutcome(_error_result(call, refusal))
            is_announced = True
        elif self._needs_approval(call):
            ruled = await self._answer_by_rule(call, index, starts=agent is None)
            if ruled is None and isinstance(self.config.approve, Suspend) and self.reply_seq:
                self._asked.add(index)  # its rule has ended since
                return CallOutcome(None)
            refusal = _refusal(call, ruled) if ruled is not None else await self.ask_approval(call, tool)
            if refusal:
                return CallOutcome(_error_result(call, refusal))
            is_announced = is_announced or ruled is not None
        if not is_announced:
            await run_blocking(self.turn_store.append_events, ToolStart(id=call.id, name=call.name))
        if agent is not None:
            return await self._agents.run(agent, call, seq=self.reply_seq, position=index)
        return await self._run_tool(tool, call, None if answer is None else answer.question_answer(), index)

    async def _run_tool(
        self, tool: FunctionTool, call: ToolCall, answered: QuestionAnswer | None, index: int
    ) -> CallOutcome:
        """Run a tool. If its server asks a question, the call stays open, or waits here if a provider runs it."""
        suspend, store = self.config.approve, self.turn_store.store
        takes_questions = self.config.takes_questions and (self.reply_seq > 0 or isinstance(suspend, Suspend))
        suspend = suspend if isinstance(suspend, Suspend) else Suspend()
        while True:
            questions = QuestionExchange(answered) if takes_questions else None
            context = replace(self._context_of(call), questions=questions)
            self._running.add(call.id)
            self.turn_store.running_calls.add(call.id)
            try:
                result = await tool.run(call, context, timeout=self.config.limits.tool_seconds)
            finally:
                self._running.discard(call.id)
            if questions is None or questions.asked is None:
                return CallOutcome(result)
            asked = self._make_approval(call, suspend, seq=self.reply_seq, index=index, question=questions.asked)
            if self.reply_seq:
                await run_blocking(self.turn_store.request_now, asked)
                self.answers[index] = asked
                self._asked.add(index)
                return CallOutcome(None)
            await self._wait_for_answer(asked)
            given = await run_blocking(store.read, partial(load_approval, id=asked.id))
            await run_blocking(partial(self.turn_store.use_answer, given, starts=True))
            answered = given.question_answer()

    async def _record_call(
        self, recorder: "Recorder", call: ToolCall, answer: Approval | None, index: int
    ) -> CallOutcome:
        """Run a call within a span."""
        found, record = self.config.tools.get(call.name), self.turn_store
        about = found.tool.description if found is not None else ""
        known = call.name if found is not None else ""
        with recorder.tool(record.conversation, record.author, call, known, about) as recorded:
            done = await self._run_or_refuse(call, answer, index)
            if done.result is not None:
                recorder.end_tool(recorded, done.result)
        return done

    def _agent_tool(self, call: ToolCall) -> AgentTool | None:
        tool = self.config.tools.get(call.name)
        return tool if isinstance(tool, AgentTool) else None

    def _context_of(self, call: ToolCall) -> ToolContext[Any]:
        return ToolContext(
            conversation=self.turn_store.conversation,
            agent=self.turn_store.author,
            store=self.turn_store.store,
            call=call,
            turn=self.turn_store.turn.number,
            step=self.step,
            progress=self._progress_callback(call),
            deps=self.config.turn_deps,
        )

    def _find_tool(self, call: ToolCall) -> FunctionTool | None:
        found = self.config.tools.get(call.name)
        return None if found is None else found.for_call(call)

    def _needs_approval(self, call: ToolCall) -> bool:
        tool = self._find_tool(call)
        return tool is not None and tool.approval and not call.malformed

    def admit(self, call: ToolCall) -> str:
        """Return "" if the limit of tool calls allows a call within the reply, else why not. Then the turn ends."""
        if call.id in self.admitted:
            return ""
        if self.account.reserve_calls(self._calls_before + len(self.admitted), 1):
            self.admitted.add(call.id)
            return ""
        self.refused.add(call.id)
        self.ended = MAX_TOOL_CALLS
        return NOT_RUN_RESULT.format(why="its limit of tool calls")

    def count_calls(self, messages: Sequence[Message]) -> int:
        """Return the number of calls that a provider made within these messages, and beside them by its sub-agents."""
        made = [call.id for message in messages for call in message.tool_calls if call.id not in self.refused]
        return len(made) + len(self.admitted.difference(made))

    def has_reached_limit(self, messages: Sequence[Message]) -> bool:
        """Return True if no further call is allowed after these, of a client that makes calls without `admit`."""
        made = {call.id for message in messages for call in message.tool_calls}
        is_checked = made <= self.admitted | self.refused
        return not is_checked and self.count_calls(messages) >= self.account.calls_left(self._calls_before)

    def notice_hosted_calls(self) -> None:
        """Evaluate the `mid_step` triggers for the calls within the reply."""
        verdict = self._evaluate_mid_step(self._calls_before + len(self.admitted))
        if verdict.messages or verdict.states:
            self.turn_store.store_trigger_messages(verdict.messages, verdict.states, step=self.step)

    async def run_hosted_call(self, call: ToolCall) -> ToolResult:
        """Run a call that a provider makes in the middle of its reply, under the same rules as other calls.

        The call is stored before it runs, if the provider has reported it. The result is stored with the reply.
        """
        if refusal := self.admit(call):
            return _error_result(call, refusal)
        await run_blocking(self.notice_hosted_calls, slots=CALLBACK_SLOTS)
        if not self._needs_approval(call):
            self._announced.append(call)
            await run_blocking(
                self.turn_store.append_events, ToolStart(id=call.id, name=call.name)
            )  # raises if the lease is lost
        tool = self._find_tool(call)
        is_parallel = tool is None or (tool.parallel and not tool.approval)
        async with self._parallel_slots if is_parallel else self._exclusive_lock:
            recorder = telemetry.active
            done = await (
                self._run_or_refuse(call, None, 0) if recorder is None else self._record_call(recorder, call, None, 0)
            )
            if done.call is not None and done.turn is not None:
                self.account.count(done.call, done.turn)
            if done.call is not None:
                await run_blocking(self.turn_store.end_agent_call, done.call)
            assert done.result is not None, "a call within a reply does not stay open"
            return done.result

    async def ask_hosted_approval(self, call: ToolCall) -> str:
        """Ask for approval of a tool that the provider runs. Return the reason why it must not, or ""."""
        ruled = await self._answer_by_rule(call, 0, starts=False)
        if ruled is not None:
            return _refusal(call, ruled)
        return await self.ask_approval(call, tool(Tool(name=call.name), _provider_tool, approval=True))

    async def _answer_by_rule(self, call: ToolCall, index: int, *, starts: bool) -> Approval | None:
        """Return the answer of a rule of a person, stored as applied to this call, or None if no rule holds.

        Without `approve`, the agent runs nothing that needs approval, with or without a rule.
        """
        if self.config.approve is None:
            return None
        asked = self._make_approval(call, Suspend(), seq=self.reply_seq, index=index)
        if not await run_blocking(self.turn_store.find_ruled, [asked]):
            return None
        return await run_blocking(partial(self.turn_store.answer_by_rule, asked, starts=starts))

    async def ask_approval(self, call: ToolCall, tool: FunctionTool) -> str:
        """Ask for approval. Return the reason why the call must not run, empty if it was approved."""
        approve = self.config.approve
        if approve is None:
            return NO_APPROVER_RESULT
        self.pending_approvals.add(call.id)
        shown = _canonical_call(call)
        if isinstance(approve, Suspend):
            answer = await self._wait_for_answer(self._make_approval(call, approve))
        else:
            asked = self._make_approval(call, Suspend())
            event = ApprovalRequest(id=call.id, name=call.name, arguments=call.arguments, approval=asked.id)
            await run_blocking(self.turn_store.append_events, event)
            answer = await self._call_approve(approve, call, tool)
            if isinstance(answer, Always):
                done = await run_blocking(self.turn_store.answer_always, asked, answer)
                answer = done.state == "allowed" or done.reason
        self.pending_approvals.discard(call.id)
        if answer is True:
            return "" if _canonical_call(call) == shown else ALTERED_RESULT
        return _declined(answer if isinstance(answer, str) else "")

    async def _wait_for_answer(self, approval: Approval) -> ApprovalAnswer:
        """Store an approval of a provider's own call, and wait in this process until it is answered."""
        store, conversation = self.turn_store.store, self.turn_store.conversation
        number = await run_blocking(self.turn_store.request_now, approval)
        approve = self.config.approve
        seconds = approve.seconds if isinstance(approve, Suspend) else None
        try:
            async with asyncio.timeout(seconds):
                return await _read_answer(store, conversation, approval.id, number)
        except TimeoutError:
            await run_blocking(expire_approvals, store, conversation)
            return await _read_answer(store, conversation, approval.id, number)

    async def _call_approve(self, approve: Approve, call: ToolCall, tool: FunctionTool) -> ApprovalAnswer:
        given = (call, tool, self._context_of(call)) if takes_context(approve) else (call, tool)
        ask = cast(Callable[..., ApprovalAnswer | Awaitable[ApprovalAnswer]], approve)
        if inspect.iscoroutinefunction(ask):
            return await ask(*given)
        answer = await run_in_thread(ask, *given)  # it may block until a person answers
        return await answer if inspect.isawaitable(answer) else answer

    def _evaluate_mid_step(self, number: int) -> Evaluation:
        """Evaluate the `mid_step` triggers, which create user notices."""
        if not self.mid_step_triggers or number <= self._noticed_calls:
            return Evaluation()
        self._noticed_calls = number
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
                try:
                    await run_blocking(self.turn_store.append_progress, ToolProgress(id=call.id, text=text))
                except LeaseLost:  # the turn has ended
                    pass
                except Exception as error:  # the result is stored with retries; progress is not worth one
                    log.warning(
                        "%s: progress of call %s was not stored: %s", self.turn_store.conversation, call.id, error
                    )

        def note(text: str) -> None:
            waits = call.id in self._progress
            self._progress[call.id] = text
            if not waits:
                tasks.add(task := loop.create_task(tell()))
                task.add_done_callback(tasks.discard)

        tasks: set[asyncio.Task[None]] = set()
        return lambda text: cast(None, loop.call_soon_threadsafe(note, str(text)[:500]))


async def _read_answer(store: Store, conversation: str, approval: str, after: int) -> ApprovalAnswer:
    """Wait for the event that answers an approval. Return the answer."""
    async with aclosing(watch(store, conversation, after)) as events:
        async for event in events:
            if isinstance(event, ApprovalAnswered) and event.approval == approval:
                return event.allowed or event.text
    return False


def _refusal(call: ToolCall, answer: Approval) -> str:
    """Return the reason why a call must not run, empty if it was approved as it is."""
    return _declined(answer.reason) if answer.state != "allowed" else _altered(call, answer)


def _altered(call: ToolCall, answer: Approval) -> str:
    """Return why a call must not run, if it is not the one that the answer is about."""
    return "" if _canonical_call(call) == encode_canonical([answer.name, answer.arguments]) else ALTERED_RESULT


def _declined(reason: str) -> str:
    return f"{DECLINED_RESULT[:-1]}: {reason}" if reason.strip() else DECLINED_RESULT


def _canonical_call(call: ToolCall) -> bytes:
    """Return the name and arguments of a call in canonical form, to detect a change during the approval."""
    return encode_canonical([call.name, call.arguments])


def _provider_tool() -> None:
    """Stand in for the function of a provider's own tool, which the provider runs."""


def _error_result(call: ToolCall, why: str) -> ToolResult:
    return ToolResult(call_id=call.id, name=call.name, content=why, is_error=True)
