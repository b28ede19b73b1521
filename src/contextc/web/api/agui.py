"""Endpoint for AG-UI clients: starts a run and streams its events. `HttpAgent` works without changes.

The store is authoritative: of the messages that a client sends, only the last user messages count that are not stored
yet. Nothing is rewritten. A client without new messages gets a snapshot and the events of the running turn.

A client may have tools of its own. A call of one ends the run, and the turn waits. The next run has the result as a
tool message, and continues the turn, on any server of the store.
"""

from base64 import b64decode
from binascii import Error as NoBase64
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing
from typing import NamedTuple, assert_never, cast

import msgspec
from msgspec import Struct, field

from contextc._json import JSON, JSONObject, encode
from contextc._worker_threads import run_blocking
from contextc.errors import InvalidRequest, UnknownConversation
from contextc.events import (
    AnyEvent,
    ApprovalAnswered,
    ApprovalRequest,
    CompactionFinished,
    ErrorOccurred,
    ReasoningDelta,
    StepFinish,
    StepStart,
    SystemMessageCreated,
    TextDelta,
    ToolCallDelta,
    ToolCallEnded,
    ToolFailed,
    ToolStart,
    TurnFinish,
    TurnInterrupted,
    TurnStart,
    TurnWaiting,
    UsageReport,
)
from contextc.executor.agent_config import add_definitions
from contextc.messages import AnyPart, Media, Message, Reasoning, Text, Usage
from contextc.store import Store
from contextc.store.message_log import load_tip, original_uid
from contextc.store.transaction_engine import Transaction
from contextc.store.turn_records import load_events_of_types
from contextc.tools.definitions import Tool
from contextc.tools.function_tool import TOOL_NAME
from contextc.web.app_state import AppState
from contextc.web.client_history import check_client_messages, new_user_messages
from contextc.web.http_errors import HTTPError
from contextc.web.router import EventStream, endpoint
from contextc.web.sse import (
    continued_stream,
    frame,
    load_turn_start,
    parse_event_number,
    stream_turn,
    stream_waiting_turn,
)
from contextc.web.turn_manager import NOT_PENDING, UNKNOWN_APPROVAL_KIND

# ── messages ──────────────────────────────────────────────────────────────────────────────────────────────────────────
# Conversion of AG-UI messages: decode a client's messages, and encode stored messages as a snapshot.


OPTIONAL_TEXTS = ("role", "name", "toolCallId", "error")
DEFAULT_MIME_TYPES = {
    "image": "image/png",
    "audio": "audio/mpeg",
    "video": "video/mp4",
    "document": "application/octet-stream",
}


def decode_messages(client_messages: list[JSONObject]) -> list[Message]:
    """Decode a client's messages. Only the content of user messages is decoded."""
    found: list[Message] = []
    for index, each in enumerate(client_messages):
        role, uid, content = each.get("role"), each.get("id"), each.get("content")
        if not isinstance(uid, str):
            raise InvalidRequest("must be a string", path=f"messages[{index}].id", got=type(uid).__name__)
        for name in OPTIONAL_TEXTS:
            if not isinstance(value := each.get(name), str | None):
                raise InvalidRequest("must be a string", path=f"messages[{index}].{name}", got=type(value).__name__)
        if role == "user":
            found.append(Message(role="user", uid=uid, parts=_parts(content, f"messages[{index}].content")))
        elif role in ("assistant", "tool"):
            found.append(Message(role="assistant", uid=uid, parts=(Text("…"),)))
    return found


def encode_messages(messages: list[Message]) -> list[JSONObject]:
    """Encode stored messages as AG-UI messages. Media are URLs."""
    return [each for message in messages for each in _encode_message(message)]


def _parts(content: JSON, path: str) -> tuple[AnyPart, ...]:
    if isinstance(content, str):
        return (Text(content),)
    if not isinstance(content, list):
        raise InvalidRequest("must be a string or a list of parts", path=path, got=type(content).__name__)
    parts = cast(list[JSON], content)
    return tuple([_part(each, f"{path}[{number}]") for number, each in enumerate(parts)])


def _part(part: JSON, path: str) -> AnyPart:
    match part:
        case {"type": "text", "text": str(text)}:
            return Text(text)
        case {"type": "image" | "audio" | "video" | "document" as kind, "source": {"value": str(value), **source}}:
            mime, provider = str(source.get("mimeType") or DEFAULT_MIME_TYPES[kind]), source.get("provider")
            match source.get("type"):
                case "data":
                    return Media(mime_type=mime, data=_bytes(value, path))
                case "url":
                    return Media(mime_type=mime, url=value)
                case "file":
                    return Media(mime_type=mime, file_id=value, provider=str(provider) if provider else None)
                case _:
                    pass
        case _:
            pass
    raise InvalidRequest("must be a text, image, audio, video or document part of AG-UI.", path=path)


def _bytes(value: str, path: str) -> bytes:
    try:
        return b64decode(value, validate=True)
    except NoBase64 as error:
        raise InvalidRequest(f"invalid base64: {error}.", path=path) from None


def _encode_message(message: Message) -> Iterator[JSONObject]:
    uid = original_uid(message.uid)
    match message.role:
        case "user":
            yield {"id": uid, "role": "user", "content": _content(message)}
        case "system":
            yield {"id": uid, "role": "system", "content": message.text}
        case "tool":
            for number, result in enumerate(message.tool_results):
                error = {"error": result.text} if result.is_error else {}
                name = f"{uid}-{number}" if number else uid
                yield {"id": name, "role": "tool", "toolCallId": result.call_id, "content": result.text, **error}
        case "assistant":
            thought = "".join([part.text for part in message.parts if isinstance(part, Reasoning)])
            if thought:
                yield {"id": f"{uid}-reasoning", "role": "reasoning", "content": thought}
            calls = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.raw or encode(call.arguments).decode()},
                }
                for call in message.tool_calls
            ]
            yield {
                "id": uid,
                "role": "assistant",
                "content": message.text,
                **({"toolCalls": calls} if calls else {}),
            }


def _content(message: Message) -> JSON:
    media = [part for part in message.parts if isinstance(part, Media)]
    if not media:
        return message.text
    pictures = [
        {
            "type": part.kind,
            "source": {"type": "url", "value": part.url or f"/api/blobs/{part.blob}", "mimeType": part.mime_type},
        }
        for part in media
    ]
    return [*([{"type": "text", "text": message.text}] if message.text else []), *pictures]


# ── events ────────────────────────────────────────────────────────────────────────────────────────────────────────────
# Encoding of events as AG-UI events, version 1.0: a turn is a run. Every event is also a complete CUSTOM event.
#
# It is a pure state machine: its output depends only on its input, and AG-UI's verifier accepts the output for any
# input. Every event is inside a run; an event without a turn gets a run of its own if none is open. Concurrent turns
# of several agents are one run, which ends with the last of them. A stream may start anywhere: parts whose start was
# not seen are opened under the same id.
#
# One part of a reply is open at a time: text, reasoning or a tool call. A part that continues after another one is
# opened again under its id, which appends to it.


VERSION = "1.0"
CONTEXT, COMPACTION, SYSTEM = "contextc.context", "contextc.compaction", "contextc.system-message"
PROCESS_ENDED = "The process that ran this turn ended. What it had said is kept; the turn can be resumed."
STREAM_ENDED = "The server ended this stream. The turn may continue."
NO_END_EVENT = "This turn has no end event."
CONTEXT_FIELDS = ("provider", "model", "request", "mode", "epoch", "why", "used", "available", "cut")
INTERRUPT_ANSWER_SCHEMA: JSONObject = {
    "type": "object",
    "properties": {"approved": {"type": "boolean"}, "why": {"type": "string"}, "content": {"type": "object"}},
    "required": ["approved"],
}
"""JSON schema of the answer to an interrupt."""
_encode = msgspec.json.Encoder().encode


class _AgentState:
    """Open state of one agent's turn."""

    def __init__(self, turn: int) -> None:
        self.turn, self.step = turn, ""
        self.piece: tuple[str, str] | None = None
        self.failure = ""
        self.context: JSONObject = {}
        """Provider, model and context use."""


class AGUIEncoder:
    """Encoder of the events of one conversation. `run` is the id of the first run; later ids contain the turn."""

    def __init__(self, thread: str, run: str = "") -> None:
        self.thread, self._named = thread, run
        self._run = ""
        self._agents: dict[str, _AgentState] = {}
        self._requests: dict[str, ApprovalRequest] = {}
        """Requests for approval, by their id."""
        self._waited: set[tuple[str, int]] = set()
        """Agents and turns that have waited for approval. They continue in a run with another id."""
        self.client_calls: frozenset[str] = frozenset()
        """Ids of the calls that the client of this stream has run itself. It has their results."""

    def frames(self, event: AnyEvent) -> bytes:
        """Return the event as frames. Only the last has its number, so a client never resumes between them."""
        *before, last = [_encode(each) for each in self.encode(event)]
        return b"".join([frame(each) for each in before]) + frame(last, id=event.number)

    def encode(self, event: AnyEvent) -> list[JSONObject]:
        """Return the AG-UI events of an event; at least one."""
        belongs = bool(event.turn) and not (isinstance(event, ApprovalAnswered) and event.agent not in self._agents)
        if not belongs and not self._run:
            # An event without a turn gets a run of its own.
            started = self._start(f"event-{event.number}")
            return [started, *_equivalents(event), _custom(event), self._end({"outcome": {"type": "success"}})]
        frames = self._open_turn(event) if belongs else []
        agent = self._agents.get(event.agent)
        match event:
            case TextDelta() | ReasoningDelta() | ToolCallDelta() if agent is not None:
                return [*frames, *_delta(self._agents, event)]
            case TurnFinish() | TurnInterrupted() if agent is not None:
                return [*frames, *_end_step(agent), _custom(event), *self._end_turn(agent, event)]
            case TurnWaiting() if agent is not None:
                return [*frames, *_end_step(agent), _custom(event), *self._wait(event)]
            case _:
                if isinstance(event, ApprovalRequest):
                    self._requests[event.approval] = event
                around = _surrounding_events(agent, event) if agent is not None else []
                is_known = isinstance(event, ToolCallEnded) and event.id in self.client_calls
                return [*frames, *around, *([] if is_known else _equivalents(event)), _custom(event)]

    # ── runs ──────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _start(self, name: str) -> JSONObject:
        self._run, self._named = self._named or name, ""
        return {"type": "RUN_STARTED", "threadId": self.thread, "runId": self._run, "protocolVersion": VERSION}

    def _end(self, more: JSONObject) -> JSONObject:
        run, self._run = self._run, ""
        return {"type": "RUN_FINISHED", "threadId": self.thread, "runId": run, **more}

    def _fail(self, message: str, code: str, usage: JSONObject | None = None) -> JSONObject:
        self._run = ""
        return {"type": "RUN_ERROR", "message": message, "code": code, **(usage or {})}

    def _open_turn(self, event: AnyEvent) -> list[JSONObject]:
        """Open the turn of an event, and end the turn that it replaces."""
        events: list[JSONObject] = []
        before = self._agents.get(event.agent)
        if before is not None and (before.turn != event.turn or isinstance(event, TurnStart)):
            events += _end_step(before)
            del self._agents[event.agent]
            if not self._agents:
                events.append(self._fail(NO_END_EVENT, "interrupted"))
        if event.agent not in self._agents:
            self._agents[event.agent] = _AgentState(event.turn)
        if not self._run:
            is_again = (event.agent, event.turn) in self._waited or (isinstance(event, TurnStart) and event.resumed)
            again = f"-{event.number}" if is_again else ""
            events.append(self._start(f"turn-{event.turn}{again}"))
        return events

    def _wait(self, event: TurnWaiting) -> list[JSONObject]:
        """End the run of a turn that waits for approval, if no other agent has a turn."""
        self._waited.add((event.agent, event.turn))
        del self._agents[event.agent]
        if self._agents:
            return []
        known = [self._requests[each] for each in event.approvals if each in self._requests]
        pending = [_interrupt(each) for each in known if not each.client]
        if not pending:  # the client runs the tools, or the stream started later
            return [self._end({"outcome": {"type": "success"}})]
        return [self._end({"outcome": {"type": "interrupt", "interrupts": pending}})]

    def _end_turn(self, agent: _AgentState, event: TurnFinish | TurnInterrupted) -> list[JSONObject]:
        """End a turn, and the run if no other agent has a turn."""
        del self._agents[event.agent]
        if self._agents:
            return []
        if isinstance(event, TurnInterrupted):
            return [self._fail(PROCESS_ENDED, "interrupted")]
        usage: JSONObject = {"usage": [_usage(event.usage, agent)]} if event.usage is not None else {}
        if event.finish == "error":
            return [self._fail(event.error or "The turn failed.", agent.failure or "internal", usage)]
        if event.finish == "cancelled":
            return [self._end({"outcome": {"type": "cancelled"}, **usage})]
        figures = {"finish": event.finish, "steps": event.steps, "toolCalls": event.tool_calls, "cost": event.cost}
        figures |= {"costIsLowerBound": True} if event.cost_is_lower_bound else {}
        result = {name: value for name, value in figures.items() if value is not None}
        return [self._end({"result": result, "outcome": {"type": "success"}, **usage})]


class AGUITurnEncoder(AGUIEncoder):
    """Encoder of one turn for the client that started it.

    At a pending approval, an AG-UI interrupt ends the run; the next run carries the decision. A call that the client
    runs itself ends the run, too; the next run carries its result.
    """

    is_waiting = False
    _asked: ApprovalRequest | None = None

    def start_frames(self, messages: list[JSONObject]) -> bytes:
        """Return the start of a run with a snapshot of the messages before it."""
        return _frames([self._start(""), {"type": "MESSAGES_SNAPSHOT", "messages": messages}])

    def empty_end_frames(self) -> bytes:
        """Return the end of a run without a turn."""
        return _frames([self._end({"outcome": {"type": "success"}})])

    def frames(self, event: AnyEvent) -> bytes:
        if isinstance(event, ApprovalRequest):
            self.is_waiting, self._asked = True, event
        return super().frames(event)

    def end_frames(self) -> bytes:
        """Return the final frames, which end the run if it is still open."""
        if not self._run:
            return b""
        events = [each for agent in self._agents.values() for each in _end_step(agent)]
        if self._asked is None:
            events.append(self._fail(STREAM_ENDED, "ended"))
        elif self._asked.client:
            events.append(self._end({"outcome": {"type": "success"}}))
        else:
            interrupt = {"type": "interrupt", "interrupts": [_interrupt(self._asked)]}
            events.append(self._end({"outcome": interrupt}))
        self._agents.clear()
        return _frames(events)


def _frames(events: list[JSONObject]) -> bytes:
    return b"".join([frame(_encode(each)) for each in events])


# ── open parts of a run ───────────────────────────────────────────────────────────────────────────────────────────────


def _surrounding_events(agent: _AgentState, event: AnyEvent) -> list[JSONObject]:
    """Return the events around an event that is not a delta."""
    match event:
        case StepStart():
            events = _end_step(agent)
            agent.step = f"{event.agent}:{event.step}"
            agent.context = {name: getattr(event, name) for name in CONTEXT_FIELDS}
            return [*events, {"type": "STEP_STARTED", "stepName": agent.step}, _context(agent, event)]
        case UsageReport():
            cost = {"cost": event.cost} if event.cost is not None else {}
            cost |= {"costIsLowerBound": True} if event.cost_is_lower_bound else {}
            agent.context |= {"used": event.used, "available": event.available, **cost}
            return [_context(agent, event)]
        case StepFinish() | ToolCallEnded() | ApprovalRequest() | ToolStart():
            return _end_part(agent)
        case ErrorOccurred():
            agent.failure = event.kind
            return []
        case _:
            return []


def _delta(agents: Mapping[str, _AgentState], event: TextDelta | ReasoningDelta | ToolCallDelta) -> list[JSONObject]:
    """Return a delta, and open its part if needed. A part with the same id of another agent is ended."""
    agent = agents[event.agent]
    match event:
        case TextDelta():
            piece = ("text", event.uid)
            content: JSONObject = {"type": "TEXT_MESSAGE_CONTENT", "messageId": event.uid, "delta": event.text}
            opening = [{"type": "TEXT_MESSAGE_START", "messageId": event.uid, "role": "assistant"}]
        case ReasoningDelta():
            id = f"{event.uid}-reasoning"
            piece = ("reasoning", id)
            content = {"type": "REASONING_MESSAGE_CONTENT", "messageId": id, "delta": event.text}
            opening = [
                {"type": "REASONING_START", "messageId": id},
                {"type": "REASONING_MESSAGE_START", "messageId": id, "role": "reasoning"},
            ]
        case ToolCallDelta():
            piece = ("call", event.id)
            content = {"type": "TOOL_CALL_ARGS", "toolCallId": event.id, "delta": event.arguments}
            called: JSONObject = {"toolCallId": event.id, "toolCallName": event.name, "parentMessageId": event.uid}
            opening = [{"type": "TOOL_CALL_START", **called}]
        case _:
            assert_never(event)
    if agent.piece == piece:
        return [content]
    before = [each for each in agents.values() if each is agent or each.piece == piece]
    events = [end for each in before for end in _end_part(each)]
    agent.piece = piece
    return [*events, *opening, content]


def _end_step(agent: _AgentState) -> list[JSONObject]:
    """End the open part and step of a turn."""
    events = _end_part(agent)
    if agent.step:
        events.append({"type": "STEP_FINISHED", "stepName": agent.step})
        agent.step = ""
    return events


def _end_part(agent: _AgentState) -> list[JSONObject]:
    """End the open part."""
    if agent.piece is None:
        return []
    (kind, id), agent.piece = agent.piece, None
    if kind == "call":
        return [{"type": "TOOL_CALL_END", "toolCallId": id}]
    ends = ("REASONING_MESSAGE_END", "REASONING_END") if kind == "reasoning" else ("TEXT_MESSAGE_END",)
    return [{"type": end, "messageId": id} for end in ends]


# ── AG-UI events ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _equivalents(event: AnyEvent) -> list[JSONObject]:
    """Return the AG-UI equivalents of an event, besides its CUSTOM event."""
    match event:
        case ToolCallEnded():
            about = {"seq": event.seq, "milliseconds": event.milliseconds, "isError": isinstance(event, ToolFailed)}
            return [
                {
                    "type": "TOOL_CALL_RESULT",
                    "messageId": event.uid or f"{event.id}-result-{event.number}",
                    "toolCallId": event.id,
                    "content": event.text,
                    "role": "tool",
                    "metadata": {"contextc": about},
                }
            ]
        case CompactionFinished():
            content: JSONObject = {"upto": event.upto, "before": event.before, "after": event.after}
            return [_activity(f"contextc-compaction-{event.number}", COMPACTION, content)]
        case SystemMessageCreated():
            content = {"text": event.text, "trigger": event.trigger, "seq": event.seq}
            return [_activity(event.uid or f"contextc-system-{event.number}", SYSTEM, content)]
        case _:
            return []


def _interrupt(event: ApprovalRequest) -> JSONObject:
    """Return the interrupt of a pending approval. Its id starts with the event number, where the next run continues.

    `metadata` has the call, because a model may reuse the id of a call.
    """
    return {
        "id": f"{event.number}:{event.approval}",
        "reason": "tool_call",
        "message": event.question or f"Approve {event.name}?",
        "toolCallId": event.id,
        "responseSchema": INTERRUPT_ANSWER_SCHEMA,
        "metadata": {"contextc": {"name": event.name, "arguments": event.arguments}},
    }


def _context(agent: _AgentState, event: AnyEvent) -> JSONObject:
    return _activity(f"contextc-context-{event.agent}", CONTEXT, dict(agent.context))


def _activity(id: str, kind: str, content: JSONObject) -> JSONObject:
    return {"type": "ACTIVITY_SNAPSHOT", "messageId": id, "activityType": kind, "content": content, "replace": True}


def _custom(event: AnyEvent) -> JSONObject:
    name = f"contextc.{event.__struct_config__.tag}"
    return {"type": "CUSTOM", "name": name, "timestamp": event.time, "value": msgspec.to_builtins(event)}


def _usage(usage: Usage, agent: _AgentState) -> JSONObject:
    return {
        **{name: agent.context[name] for name in ("provider", "model") if name in agent.context},
        "inputTokens": usage.input,
        "outputTokens": usage.output,
        "totalTokens": usage.input + usage.output,
        "reasoningTokens": usage.reasoning,
        "cachedInputTokens": usage.cache_read,
        "cacheWriteInputTokens": usage.cache_write,
    }


# ── endpoint ──────────────────────────────────────────────────────────────────────────────────────────────────────────


SNAPSHOT_MESSAGES = 1_000
"""Maximum number of messages in a snapshot."""
MAX_REQUESTS = 200
"""Number of last requests for approval among which those of a waiting turn are searched."""


class InterruptAnswer(Struct, frozen=True, kw_only=True):
    """The answer to an interrupt: `payload` is `{"approved": true}`, or has a reason `why`.

    The answer to a question of an MCP server has the `content` of its form.
    """

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


@endpoint("POST", "/agui", media_type="text/event-stream", tag="agui")
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
    decisions: dict[str, tuple[bool, str, JSONObject | None]] = {}
    for each in body.resume:
        number, _, approval = each.interruptId.partition(":")
        if (event_number := parse_event_number(number)) is None:
            raise InvalidRequest("interrupt not found", path="resume", got=each.interruptId)
        if approval not in pending:
            raise HTTPError(409, NOT_PENDING.format(approval), UNKNOWN_APPROVAL_KIND)
        payload = cast(JSONObject, each.payload) if isinstance(each.payload, dict) else {}
        approve = each.status == "resolved" and payload.get("approved") is True
        content = cast(JSONObject, given) if isinstance(given := payload.get("content"), dict) else None
        decisions.setdefault(approval, (approve, str(payload.get("why") or ""), content))
        after = event_number
    for approval, (approve, why, content) in decisions.items():  # all or none
        await app.turns.answer(body.threadId, approval, approve, why, content=content if approve else None)
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
