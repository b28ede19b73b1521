"""The turns that run in this process, and the approvals of all processes.

A turn runs independently of its watchers. A turn whose tool calls need approval is suspended: the approvals are rows of
the store. Any server on the store lists and answers them, and the one that takes the last answer continues the turn.
Nothing is kept after a turn has ended: the store has it.
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Protocol, TypeAlias
from weakref import WeakValueDictionary

import msgspec
from msgspec import UNSET, Struct, UnsetType, structs

from contextc._credential_mask import get_logger
from contextc._json import JSON, JSONObject, encode_canonical
from contextc._worker_threads import run_blocking
from contextc.app.agent_factory import ModelChoice, resolve_model
from contextc.app.approval_preview import preview_call
from contextc.app.display_text import spell_out_invisible, spell_out_line
from contextc.errors import AlreadyAnswered, ContextcError, UnknownApproval, UnknownConversation
from contextc.events import AnyEvent
from contextc.executor import AgentExecutor, Suspend, Turn
from contextc.executor.agent_config import TurnInput, input_message
from contextc.executor.event_hub import event_hub
from contextc.messages import ToolCall
from contextc.providers import Endpoint
from contextc.store import Always, Approval, Store, TurnRequest
from contextc.store.agent_calls import find_agent_call, find_outermost_caller, load_name
from contextc.store.approvals import load_waiting_names
from contextc.store.conversation_list import ConversationOverview, mark_waiting
from contextc.store.message_log import find_tip
from contextc.store.submitted_turns import load_parked_reasons
from contextc.store.transaction_engine import Transaction
from contextc.store.turn_queue import load_worker_turn
from contextc.store.turn_records import QueuedMessage, QueueKind, TurnRecord, load_last_turn
from contextc.tools.questions import Question, form_schema
from contextc.web.http_errors import HTTPError

# ── pool of executors with their provider clients, one for each model ─────────────────────────────────────────────────
# An executor has no state of a conversation, so all conversations with one model share it. The most recently used ones
# are kept. An executor in use is never closed.


MAX_EXECUTORS = 16

ExecutorFactory: TypeAlias = Callable[[ModelChoice], tuple[AgentExecutor, Endpoint]]


class PooledExecutor:
    """A pooled executor, its provider client, and its number of users."""

    def __init__(self, executor: AgentExecutor, endpoint: Endpoint) -> None:
        self.executor, self.client, self.users = executor, endpoint, 0

    async def close(self) -> None:
        await self.executor.close()
        await self.client.close()


class ExecutorPool:
    """Pool of executors by model spec."""

    def __init__(self, make: ExecutorFactory) -> None:
        self._make = make
        self._lines: OrderedDict[str, PooledExecutor] = OrderedDict()
        self._making: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def __len__(self) -> int:
        return len(self._lines)

    @asynccontextmanager
    async def acquire(self, spec: str) -> AsyncGenerator[AgentExecutor]:
        """Yield the executor of a model, kept open until the block ends. An empty spec is the default model."""
        line = self._lines.get(spec) or await self._open_once(spec)
        self._lines.move_to_end(spec)
        line.users += 1
        try:
            yield line.executor
        finally:
            line.users -= 1
            await self._trim()

    async def _open_once(self, spec: str) -> PooledExecutor:
        """Open an executor. Concurrent callers wait for the same spec only."""
        making = self._making.setdefault(spec, asyncio.Lock())  # dropped with its last reference
        async with making:
            line = self._lines.get(spec) or await run_blocking(self._open, spec)
            self._lines[spec] = line
        return line

    def _open(self, spec: str) -> PooledExecutor:
        return PooledExecutor(*self._make(resolve_model(spec or None)))

    async def _trim(self) -> None:
        """Close the least recently used idle executors above the limit. Closing awaits, so each is chosen again."""
        while len(self._lines) > MAX_EXECUTORS:
            idle = next((spec for spec, line in self._lines.items() if not line.users), None)
            if idle is None:
                return
            await self._lines.pop(idle).close()

    async def close(self) -> None:
        while self._lines:
            await self._lines.popitem()[1].close()


# ── turns ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


log = get_logger(__name__)
MAX_TURNS = 1_000
"""Maximum number of concurrent turns."""
MAX_REMEMBERED_MODELS = 10_000
STOP_TIMEOUT = 10.0
"""Seconds that turns have to end when the server stops."""
FOLLOWER_TIMEOUT = 5.0
"""Seconds that an attended turn continues without a follower."""
APPROVAL_TIMEOUT = 3_600.0
"""Seconds that such a turn waits for a pending approval, if it waits in this process."""
WHO = "http"
"""The value of `who` for answers and requests of clients of this server."""
REPLAY_PROVIDER = "replay"
NOTHING_TO_ANSWER = "Nothing to answer: no message was added since the last answer, and no input is queued. Send input."
SERVER_STOPPING = "The server is stopping. Retry later."
TURN_CANCELLED = "The turn was cancelled before it started. Nothing was stored."
UNKNOWN_APPROVAL_KIND, APPROVAL_CHANGED_KIND = "UnknownApproval", "ApprovalChanged"
"""Error kinds of a decision that is too late, or that is about a changed call."""
NOT_PENDING = "No pending approval {!r}: already answered, or the turn has ended."
APPROVAL_CHANGED = (
    "Approval {!r}: the hash does not match the current preview, got {!r}. Reload the conversation and answer with its "
    "hash."
)
RUNS_ELSEWHERE = "Turn {turn} of conversation {name!r} runs in another process ({process}). Answer it there."


class InputRequestView(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that a server asks for: a form, with the JSON schema of its values, or a visit to `url` on `host`."""

    key: str
    message: str
    schema: JSONObject | UnsetType = UNSET
    url: str | UnsetType = UNSET
    host: str | UnsetType = UNSET


class QuestionView(Struct, frozen=True, kw_only=True):
    """A question of an MCP server while a tool runs. `message` and the texts of a schema are the server's."""

    server: str
    requests: list[InputRequestView]


class ApprovalView(Struct, frozen=True, kw_only=True):
    """A pending approval of a tool call, with a preview: `what` as text and `lines` in detail.

    `id` is unique and unguessable. `call` is the model's id of the call, which may be reused. `hash` covers the name,
    the arguments, `what` and `lines`: exactly what is displayed. `client` is present, and true, if another client runs
    the tool itself: it can be denied here, and only that client can answer it. `question` is present if the call has
    begun, and its server asks something. Then `hash` covers it, too.
    """

    id: str
    call: str
    name: str
    arguments: JSONObject
    what: str
    lines: list[str]
    hash: str
    client: bool | UnsetType = UNSET
    question: QuestionView | UnsetType = UNSET


def _view_question(question: Question) -> QuestionView:
    requests = [
        InputRequestView(
            key=each.key,
            message=spell_out_invisible(each.message),
            schema=UNSET if each.url else form_schema(each),
            url=each.url or UNSET,
            host=each.host or UNSET,
        )
        for each in question.requests
    ]
    return QuestionView(server=question.server, requests=requests)


class FollowedTurn(Protocol):
    """A turn that streams follow, in this process or in another one."""

    conversation: str

    @property
    def done(self) -> bool: ...

    def cancel(self) -> None: ...

    async def wait(self) -> object: ...

    def batches(
        self, *, after: int | None = None, pulse: float | None = None
    ) -> AsyncGenerator[Sequence[AnyEvent], None]: ...


class RunningTurn(Struct, frozen=True):
    """A running turn; its events come after number `after`. An `attended` turn ends if it has no follower."""

    turn: FollowedTurn
    after: int
    attended: bool = False


class RequestedTurn:
    """A requested turn and its follow-up turns, from the request until they have ended.

    It can be stopped at any time, also while its executor is being opened.
    """

    def __init__(self, conversation: str) -> None:
        self.conversation = conversation
        self.turn: Turn | None = None
        self.is_cancelled = False

    @property
    def is_over(self) -> bool:
        return self.turn is not None and self.turn.done

    def cancel(self) -> None:
        self.is_cancelled = True
        if self.turn is not None:
            self.turn.cancel()


class TurnManager:
    """Starts, follows and stops the turns of this process."""

    def __init__(
        self,
        store: Store,
        make: ExecutorFactory,
        *,
        agent: str,
        model: str | None,
        root: Path,
        suspend: Suspend | None = None,
    ) -> None:
        self.store, self.agent, self.model, self.root = store, agent, model or "", root
        self._suspend = suspend or Suspend()
        self.executors = ExecutorPool(make)
        self._turns: dict[str, RunningTurn] = {}
        self._followers: dict[str, int] = {}
        self._watching: set[asyncio.Task[None]] = set()
        self._answered_before: set[tuple[str, str, int]] = set()
        self._asked: dict[asyncio.Task[None], RequestedTurn] = {}
        self._models: OrderedDict[str, str] = OrderedDict()
        self._closing = False

    # ── turns ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def running_conversations(self) -> list[str]:
        """Conversations with a running turn in this process."""
        return list(self._turns)

    def running_turn(self, conversation: str) -> RunningTurn | None:
        """Return the running turn of this process, if any."""
        begun = self._turns.get(conversation)
        return begun if begun is not None and not begun.turn.done else None

    async def find_running(self, conversation: str) -> RunningTurn | None:
        """Return the running turn that this server can follow, if any."""
        return self.running_turn(conversation)

    async def start(
        self,
        conversation: str,
        input: TurnInput = None,
        *,
        model: str | None = None,
        resume: bool = False,
        attended: bool = False,
    ) -> RunningTurn:
        """Start a turn, and return when it has started. Raises the error that prevents it."""
        if self._closing or len(self._asked) >= MAX_TURNS:
            raise HTTPError(
                503,
                SERVER_STOPPING
                if self._closing
                else f"The server runs its maximum of {MAX_TURNS:,} turns. Retry later.",
                "Overloaded",
            )
        begun: asyncio.Future[RunningTurn] = asyncio.get_running_loop().create_future()
        asked = RequestedTurn(conversation)
        task = asyncio.get_running_loop().create_task(
            self._run(asked, input, model, resume, attended, begun), name=f"turn of {conversation}"
        )
        self._asked[task] = asked
        task.add_done_callback(self._asked.pop)
        return await asyncio.shield(begun)

    async def _run(
        self,
        asked: RequestedTurn,
        given: TurnInput,
        model: str | None,
        resume: bool,
        attended: bool,
        begun: "asyncio.Future[RunningTurn]",
    ) -> None:
        """Run one turn and its follow-up turns to their end."""
        conversation = asked.conversation
        try:
            spec = await self._model_for(conversation, model)
            async with self.executors.acquire(spec) as shared:
                self._refuse_if_stopped(asked)
                executor = shared.asking(self._suspend)
                turn = executor.resume(conversation, wait=0) if resume else executor.start(conversation, given, wait=0)
                asked.turn = turn
                first = await turn.begun()
                if not first:
                    self._refuse_if_stopped(asked)
                    raise HTTPError(409, NOTHING_TO_ANSWER, "NothingNew")
                self._turns[conversation] = found = RunningTurn(turn, first - 1, attended)
                self.remember_model(conversation, spec)
                if not begun.done():
                    begun.set_result(found)
                await turn.wait()
        except (Exception, asyncio.CancelledError) as error:
            if begun.done():
                raise
            begun.set_exception(
                error if isinstance(error, Exception) else HTTPError(503, SERVER_STOPPING, "Overloaded")
            )
            begun.exception()  # the caller may have gone
        finally:
            if (found := self._turns.get(conversation)) is not None and found.turn is asked.turn:
                del self._turns[conversation]

    def _refuse_if_stopped(self, asked: RequestedTurn) -> None:
        if asked.is_cancelled:
            status, why, kind = (
                (503, SERVER_STOPPING, "Overloaded") if self._closing else (409, TURN_CANCELLED, "Cancelled")
            )
            raise HTTPError(status, why, kind)

    async def check_model(self, conversation: str, model: str | None) -> None:
        """Raise the error that a turn with this model would raise at its start."""
        async with self.executors.acquire(await self._model_for(conversation, model)):
            pass

    def cancel(self, conversation: str) -> bool:
        """Cancel the running or starting turn; return False if there is none. Partial output is kept."""
        found = [asked for asked in self._asked.values() if asked.conversation == conversation and not asked.is_over]
        for asked in found:
            asked.cancel()
        return bool(found)

    async def cancel_anywhere(self, conversation: str, agent: str) -> TurnRequest:
        """Cancel a turn that waits, or that another process runs. Raises `UnknownConversation`."""
        request = await run_blocking(lambda: self.store.cancel_turn(conversation, agent, who=WHO))
        event_hub(self.store).refresh(conversation)
        return request

    async def cancel_attended(self, conversation: str) -> None:
        """Cancel an attended or a waiting turn because a client starts the next one, and wait for its end."""
        begun = self.running_turn(conversation)
        if begun is not None and begun.attended:
            begun.turn.cancel()
            await begun.turn.wait()
        if await run_blocking(self.waiting_turn, conversation) is not None:
            await self.cancel_anywhere(conversation, self.agent)

    @contextmanager
    def following(self, begun: RunningTurn) -> Generator[None]:
        """Count a follower of a turn. An attended turn is cancelled when all followers have left and none returns.

        So closing a client ends its turn, and reloading it does not.
        """
        conversation = begun.turn.conversation
        self._followers[conversation] = self._followers.get(conversation, 0) + 1
        try:
            yield
        finally:
            self._followers[conversation] -= 1
            if not self._followers[conversation]:
                del self._followers[conversation]
            if begun.attended and not begun.turn.done:
                self._cancel_later(begun, FOLLOWER_TIMEOUT, APPROVAL_TIMEOUT)

    def _cancel_later(self, begun: RunningTurn, seconds: float, patience: float) -> None:
        """Cancel a turn after some seconds if it has no followers then."""
        task = asyncio.get_running_loop().create_task(self._cancel_if_unattended(begun, seconds, patience))
        self._watching.add(task)
        task.add_done_callback(self._watching.discard)

    async def _cancel_if_unattended(self, begun: RunningTurn, seconds: float, patience: float) -> None:
        """Cancel a turn without followers. With a pending approval it waits for `patience` seconds first."""
        await asyncio.sleep(seconds)
        conversation = begun.turn.conversation
        if conversation in self._followers or begun.turn.done:
            return
        if patience and await run_blocking(self.pending_ids, conversation):
            self._cancel_later(begun, patience, 0.0)
        elif conversation not in self._followers:
            begun.turn.cancel()

    async def queue_input(self, conversation: str, text: str, kind: QueueKind) -> QueuedMessage:
        """Queue input, to steer the running turn or to follow it. Raises `UnknownConversation`."""
        message = input_message(text, self.agent)

        def work() -> QueuedMessage:
            self.store.conversation(conversation)
            return self.store.enqueue(conversation, message, kind=kind, agent=self.agent)

        queued = await run_blocking(work)
        event_hub(self.store).refresh(conversation)
        return queued

    @asynccontextmanager
    async def executor_for(self, conversation: str, model: str | None = None) -> AsyncGenerator[AgentExecutor]:
        """Yield the agent of a conversation, for other work than turns. Raises `UnknownConversation`."""
        await run_blocking(self.store.conversation, conversation)
        async with self.executors.acquire(await self._model_for(conversation, model)) as executor:
            yield executor

    # ── approvals ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def approvals(self, conversation: str) -> list[ApprovalView]:
        """Return the pending approvals of any process. Blocking: reads the store, and files for previews."""
        return [self._preview(each) for each in self.store.approvals(conversation)]

    def pending_ids(self, conversation: str) -> frozenset[str]:
        """Return the ids of the pending approvals; none if the conversation does not exist. Blocking."""
        try:
            return frozenset(each.id for each in self.store.approvals(conversation))
        except UnknownConversation:
            return frozenset()

    def waiting_turn(self, conversation: str) -> TurnRecord | None:
        """Return the turn of this agent that waits for approval, in no process. Blocking: reads the store."""

        def work(tx: Transaction) -> TurnRecord | None:
            here = find_tip(tx, conversation, False)
            return load_last_turn(tx, here.conversation, self.agent) if here is not None else None

        turn = self.store.read(work)
        return turn if turn is not None and turn.state == "waiting" else None

    def waiting_conversations(self) -> frozenset[str]:
        """Return the conversations with a pending approval, of any process. Blocking: reads the store."""
        return self.store.read(load_waiting_names)

    def with_approvals(self, found: Sequence[ConversationOverview]) -> list[ConversationOverview]:
        """Return entries of the list of conversations with `needs_approval` and `parked`. Blocking: reads the store."""
        return mark_waiting(found, self.waiting_conversations(), self.parked_conversations())

    def parked_conversations(self) -> Mapping[str, str]:
        """Return why turns are parked, by the name of the conversation. Blocking: reads the store."""
        return self.store.read(load_parked_reasons)

    def _preview(self, approval: Approval) -> ApprovalView:
        call = ToolCall(id=approval.call, name=approval.name, arguments=approval.arguments)
        what, lines = preview_call(call, self.root)
        covered: list[JSON] = [call.name, call.arguments, what, lines]
        asked = approval.question
        if asked is not None:
            what = spell_out_line(asked.text)
            covered += [what, msgspec.to_builtins(asked.requests)]
        return ApprovalView(
            id=approval.id,
            call=call.id,
            name=call.name,
            arguments=call.arguments,
            what=what,
            lines=lines,
            hash=sha256(encode_canonical(covered)).hexdigest(),
            client=approval.client or UNSET,
            question=UNSET if asked is None else _view_question(asked),
        )

    async def answer_previewed(
        self,
        conversation: str,
        id: str,
        hash: str,
        approve: bool,
        why: str = "",
        *,
        content: JSONObject | None = None,
        cancel: bool = False,
        always: Always | None = None,
    ) -> None:
        """Answer an approval as previewed. Rejected if the preview has changed."""
        shown = await run_blocking(lambda: self._preview(self._pending_approval(conversation, id)))
        if shown.hash != hash:
            raise HTTPError(409, APPROVAL_CHANGED.format(id, hash[:100]), APPROVAL_CHANGED_KIND)
        await self.answer(conversation, id, approve, why, content=content, cancel=cancel, always=always)
        try:
            await self.resume_answered(conversation)
        except (ContextcError, HTTPError) as error:  # the answer is stored: any server can continue the turn
            log.warning("%s: the turn was not continued after an answer: %s", conversation, error)

    async def answer(
        self,
        conversation: str,
        id: str,
        approve: bool,
        why: str = "",
        *,
        result: str | None = None,
        failed: bool = False,
        content: JSONObject | None = None,
        cancel: bool = False,
        always: Always | None = None,
    ) -> None:
        """Approve or deny a call. The model gets the reason `why`. The turn is not continued by this.

        `result` is what the client's own tool returned, and `failed` is true if it failed. `content` and `cancel`
        answer a question. With `always`, the answer makes a rule.
        """

        def work() -> None:
            self._pending_approval(conversation, id)
            reason = "" if approve else why
            verdict = approve if always is None else structs.replace(always, allow=approve)
            who = WHO if always is None else always.who or WHO
            self.store.answer_approval(
                id, verdict, reason=reason, who=who, result=result, failed=failed, content=content, cancel=cancel
            )

        try:
            await run_blocking(work)
        except (AlreadyAnswered, UnknownApproval):  # by another server in this moment
            raise HTTPError(409, NOT_PENDING.format(id), UNKNOWN_APPROVAL_KIND) from None
        event_hub(self.store).refresh(conversation)

    async def resume_answered(self, conversation: str, *, attended: bool = False) -> RunningTurn | None:
        """Continue the waiting turn if all its approvals are answered. Return it, or None.

        If it belongs to an agent that was called as a tool, the turn of the outermost caller is continued.
        """
        conversation = await run_blocking(self._outermost_caller, conversation)
        turn = await run_blocking(self.waiting_turn, conversation)
        if turn is None or await run_blocking(self._is_run_by_workers, conversation):
            return None
        pending = await run_blocking(self.store.approvals, conversation)
        if any(each.turn == turn.number or each.conversation != conversation for each in pending):
            return None
        return await self.start(conversation, resume=True, attended=attended)

    def _outermost_caller(self, conversation: str) -> str:
        """Return the conversation whose turn goes on when that of this one does. Blocking: reads the store."""

        def work(tx: Transaction) -> str:
            here = find_tip(tx, conversation, False)
            call = find_agent_call(tx, here.conversation) if here is not None else None
            if call is None:
                return conversation
            number, _ = find_outermost_caller(tx, call.conversation, call.agent)
            return load_name(tx, number) or conversation

        return self.store.read(work)

    def _is_run_by_workers(self, conversation: str) -> bool:
        """Return True if workers continue the turns of this agent. Blocking: reads the store."""

        def work(tx: Transaction) -> bool:
            here = find_tip(tx, conversation, False)
            return here is not None and load_worker_turn(tx, here.conversation, self.agent) is not None

        return self.store.read(work)

    async def resume_abandoned(self) -> None:
        """Continue waiting turns of this agent that were answered a while ago, and that no server has continued."""
        found = {each for each in await run_blocking(self.store.answered_turns) if each[1] == self.agent}
        late, self._answered_before = found & self._answered_before, found
        for conversation, _, _ in late:
            try:
                await self.resume_answered(conversation)
            except (ContextcError, HTTPError) as error:  # such as another server that was faster
                log.info("%s: the waiting turn was not continued: %s", conversation, error)

    def _pending_approval(self, conversation: str, id: str) -> Approval:
        """Return a pending approval of a conversation. Blocking: reads the store."""
        with suppress(UnknownConversation):
            for each in self.store.approvals(conversation):
                if each.id == id:
                    return each
        raise HTTPError(409, NOT_PENDING.format(id), UNKNOWN_APPROVAL_KIND)

    # ── models ────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _model_for(self, conversation: str, wanted: str | None) -> str:
        """Return the model to use: the given one, else the last one of this conversation, else the server's."""
        known = (wanted or "").strip() or self._models.get(conversation)
        return known or await run_blocking(self._stored_model, conversation) or self.model

    def _stored_model(self, conversation: str) -> str:
        """Return the last model according to the store, as clients show it, also if other software used it.

        Recordings are skipped, because their file is not stored.
        """
        with suppress(ContextcError):
            spec = self.store.overview(conversation).model
            if spec and not spec.startswith(f"{REPLAY_PROVIDER}:"):
                resolve_model(spec)  # raises if it no longer exists
                return spec
        return ""

    def remember_model(self, conversation: str, spec: str) -> None:
        self._models[conversation] = spec
        self._models.move_to_end(conversation)
        if len(self._models) > MAX_REMEMBERED_MODELS:
            self._models.popitem(last=False)

    async def close(self) -> None:
        """Stop every turn, and close the executors."""
        self._closing = True
        for asked in self._asked.values():
            asked.cancel()
        if self._asked:
            _, late = await asyncio.wait(set(self._asked), timeout=STOP_TIMEOUT)
            for task in late:
                log.warning("%s did not end within %s seconds", task.get_name(), STOP_TIMEOUT)
                task.cancel()
        for task in self._watching:
            task.cancel()
        await self.executors.close()
