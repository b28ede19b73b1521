"""Endpoint for AG-UI clients: starts a run and streams its events. `HttpAgent` works without changes.

The store is authoritative: of the messages that a client sends, only the last user messages count that are not stored
yet. Nothing is rewritten. A client without new messages gets a snapshot and the events of the running turn.

A client may have tools of its own. A call of one ends the run, and the turn waits. The next run has the result as a
tool message, and continues the turn, on any server of the store.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import NamedTuple, cast

from msgspec import Struct, field

from contextc._json import JSON, JSONObject
from contextc._worker_threads import run_blocking
from contextc.errors import InvalidRequest, UnknownConversation
from contextc.events import ApprovalRequest
from contextc.executor.client_tools import add_definitions
from contextc.messages import Message
from contextc.store import Store
from contextc.store.backend_interface import Transaction
from contextc.store.events_by_type import load_events_of_types
from contextc.store.message_rows import load_tip
from contextc.tools.function_tool import TOOL_NAME
from contextc.tools.spec import Tool
from contextc.web.app_state import AppState
from contextc.web.client_history import check_client_messages, new_user_messages
from contextc.web.endpoint_registry import EventStream, endpoint
from contextc.web.http_errors import HTTPError
from contextc.web.streams.agui_encoder import AGUITurnEncoder
from contextc.web.streams.agui_messages import decode_messages, encode_messages
from contextc.web.streams.sse import (
    continued_stream,
    load_turn_start,
    parse_event_number,
    stream_turn,
    stream_waiting_turn,
)
from contextc.web.turn_manager import NOT_PENDING, UNKNOWN_APPROVAL_KIND

TAG = "agui"
SNAPSHOT_MESSAGES = 1_000
"""Maximum number of messages in a snapshot."""
MAX_REQUESTS = 200
"""Number of last requests for approval among which those of a waiting turn are searched."""


class InterruptAnswer(Struct, frozen=True, kw_only=True):
    """The answer to an interrupt: `payload` is `{"approved": true}`, or has a reason `why`."""

    interruptId: str
    status: str
    payload: JSON = None


class ClientTool(Struct, frozen=True, kw_only=True):
    """The definition of a tool that the client runs itself."""

    name: str
    description: str = ""
    parameters: JSON = None


class RunInput(Struct, frozen=True, kw_only=True):
    """AG-UI's `RunAgentInput`. `threadId` is the name of the conversation; `forwardedProps.model` names a model.

    `tools` are those of the client itself, for the turn of its new messages.
    """

    threadId: str
    runId: str
    messages: list[JSONObject] = []
    tools: list[ClientTool] = field(default_factory=list[ClientTool])
    forwardedProps: JSON = None
    resume: list[InterruptAnswer] = field(default_factory=list[InterruptAnswer])

    @property
    def model(self) -> str | None:
        match self.forwardedProps:
            case {"model": str(model)}:
                return model
            case _:
                return None


@endpoint("POST", "/agui", media_type="text/event-stream")
async def run(app: AppState, body: RunInput) -> EventStream:
    """Run an agent and stream its events as AG-UI events."""
    telling = AGUITurnEncoder(body.threadId, body.runId)
    if body.resume:
        after = await _apply_decisions(app, body)
        return EventStream(await continued_stream(app, body.threadId, after, telling))
    fresh, ours = await run_blocking(_new_and_stored_messages, app.store, body)
    results = await run_blocking(_find_results, app, body)
    if results:
        after = await _apply_results(app, body.threadId, results, fresh)
        telling.client_calls = frozenset([each.call for each in results])
        return EventStream(await continued_stream(app, body.threadId, after, telling))
    if not fresh and (begun := await app.turns.find_running(body.threadId)) is not None:
        turn = stream_turn(app, begun, begun.after, telling)
        return EventStream(_stream_with_snapshot(app, body.threadId, begun.after, turn, telling))
    if not fresh and await run_blocking(app.turns.waiting_turn, body.threadId) is not None:
        start = await run_blocking(load_turn_start, app.store, body.threadId, app.options.agent)
        turn = stream_waiting_turn(app, body.threadId, start, telling)
        return EventStream(_stream_with_snapshot(app, body.threadId, start, turn, telling))
    await app.turns.check_model(body.threadId, body.model)
    await app.turns.cancel_attended(body.threadId)
    try:
        begun = await app.turns.start(body.threadId, fresh or None, model=body.model, attended=True)
    except HTTPError as refused:
        if refused.problem.kind != "NothingNew":
            raise
        return EventStream(_stream_snapshot(telling, ours))
    return EventStream(stream_turn(app, begun, begun.after, telling))


def _new_and_stored_messages(store: Store, body: RunInput) -> tuple[list[Message], list[Message]]:
    """Return the new messages and the stored ones."""
    theirs, tools = decode_messages(body.messages), _definitions(body.tools)
    check_client_messages(theirs)
    try:
        ours = store.load(body.threadId)
    except UnknownConversation:
        ours = []
    return [add_definitions(each, tools) for each in new_user_messages(ours, theirs)], ours


def _definitions(tools: list[ClientTool]) -> list[Tool]:
    """Return the definitions of a client's tools as they are sent to a model."""
    found: list[Tool] = []
    for index, each in enumerate(tools):
        if not TOOL_NAME.fullmatch(each.name):
            raise InvalidRequest(f"must match {TOOL_NAME.pattern}", path=f"tools[{index}].name", got=each.name[:100])
        if not isinstance(each.parameters, dict | None):
            got = type(each.parameters).__name__
            raise InvalidRequest("must be a JSON schema", path=f"tools[{index}].parameters", got=got)
        schema = cast(JSONObject, each.parameters or {"type": "object", "properties": {}})
        found.append(Tool(name=each.name, description=each.description, parameters=schema))
    return found


class ClientResult(NamedTuple):
    """The result of a call that the client has run: the approval that waits for it, its event, and the call."""

    approval: str
    event: int
    call: str
    text: str
    failed: bool


def _find_results(app: AppState, body: RunInput) -> list[ClientResult]:
    """Return the results of pending calls of the client's tools among its messages."""
    given = {each.get("toolCallId"): each for each in body.messages if each.get("role") == "tool"}
    if not given:
        return []
    try:
        pending = {each.id: each for each in app.store.approvals(body.threadId) if each.client and each.call in given}
    except UnknownConversation:
        return []
    if not pending:
        return []
    numbers = {each.approval: each.number for each in app.store.read(lambda tx: _load_requests(tx, body.threadId))}
    found: list[ClientResult] = []
    for each in pending.values():
        content, error = given[each.call].get("content"), given[each.call].get("error")
        if not isinstance(content, str):
            raise InvalidRequest("the content of a tool message must be a string", path="messages", got=each.call[:100])
        text = content or str(error or "")
        found.append(ClientResult(each.id, numbers.get(each.id, 0), each.call, text, bool(error)))
    return found


def _load_requests(tx: Transaction, conversation: str) -> list[ApprovalRequest]:
    found = load_events_of_types(tx, load_tip(tx, conversation).conversation, [ApprovalRequest], limit=MAX_REQUESTS)
    return [each.event for each in found if isinstance(each.event, ApprovalRequest)]


async def _apply_results(app: AppState, conversation: str, results: list[ClientResult], fresh: list[Message]) -> int:
    """Store the results of the client's tools, and queue its new messages. Return the event to continue from."""
    for message in fresh:  # the turn goes on first
        await run_blocking(lambda each=message: app.store.enqueue(conversation, each, agent=app.options.agent))
    for each in results:
        await app.turns.answer(conversation, each.approval, True, result=each.text, failed=each.failed)
    return max([each.event for each in results])


async def _apply_decisions(app: AppState, body: RunInput) -> int:
    """Apply decisions on approvals. Return the event number to continue from."""
    pending, after = await run_blocking(app.turns.pending_ids, body.threadId), 0
    decisions: dict[str, tuple[bool, str]] = {}
    for each in body.resume:
        number, _, approval = each.interruptId.partition(":")
        if (event_number := parse_event_number(number)) is None:
            raise InvalidRequest("interrupt not found", path="resume", got=each.interruptId)
        if approval not in pending:
            raise HTTPError(409, NOT_PENDING.format(approval), UNKNOWN_APPROVAL_KIND)
        payload = cast(JSONObject, each.payload) if isinstance(each.payload, dict) else {}
        approve = each.status == "resolved" and payload.get("approved") is True
        decisions.setdefault(approval, (approve, str(payload.get("why") or "")))
        after = event_number
    for approval, (approve, why) in decisions.items():  # all or none
        await app.turns.answer(body.threadId, approval, approve, why)
    return after


async def _stream_with_snapshot(
    app: AppState, conversation: str, after: int, turn: AsyncGenerator[bytes], telling: AGUITurnEncoder
) -> AsyncGenerator[bytes]:
    """Stream a snapshot from before the turn, then the turn from its start, which is after event `after`."""

    def before() -> list[Message]:
        started = app.store.events(conversation, after=after, limit=1)[0]
        return app.store.load(conversation, until=getattr(started, "seq", 0), last=SNAPSHOT_MESSAGES)

    async with aclosing(turn):
        yield telling.start_frames(encode_messages(await run_blocking(before)))
        async for frame in turn:
            yield frame


async def _stream_snapshot(telling: AGUITurnEncoder, ours: list[Message]) -> AsyncGenerator[bytes]:
    """Stream a snapshot and the end of a run without a turn."""
    yield telling.start_frames(encode_messages(ours[-SNAPSHOT_MESSAGES:])) + telling.empty_end_frames()
