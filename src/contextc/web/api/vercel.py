"""Endpoints for the Vercel AI SDK: `useChat` works without changes, because these are its default paths.

The store is authoritative. Of the history that a client sends, the last user message counts, and its position:
regenerating an answer and editing a message continue from there, on a new branch. A client that disconnects or stops
ends its turn, unless it reconnects within seconds.
"""

from collections.abc import Iterable
from typing import Literal, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from contextc._json import JSON, JSONObject, decode
from contextc._worker_threads import run_blocking
from contextc.errors import InvalidRequest, UnknownConversation
from contextc.events import (
    AnyEvent,
    ApprovalRequest,
    ReasoningDelta,
    StepStart,
    TextDelta,
    ToolCallDelta,
    ToolCallEnded,
    ToolFailed,
    TurnFinish,
    TurnInterrupted,
    UsageReport,
)
from contextc.executor.tool_runner import DECLINED_RESULT
from contextc.formats.vercel import VercelFormatter, ui_messages
from contextc.messages import Message
from contextc.store import Store, message_log
from contextc.store.message_log import load_tip
from contextc.web.api.agui import PROCESS_ENDED
from contextc.web.app_state import AppState
from contextc.web.client_history import check_client_messages, find_continuation
from contextc.web.router import EventStream, RawResponse, endpoint
from contextc.web.sse import continued_stream, frame, parse_event_number, stream_turn, stream_waiting_turn

# ── events ────────────────────────────────────────────────────────────────────────────────────────────────────────────
# Encoding of events as Vercel AI SDK UI message chunks, version 1: a turn is one assistant message.
#
# It is a pure state machine, like `AGUIEncoder`. Events without an equivalent are transient `data-contextc` parts,
# which clients get by `onData`. Context use is a persistent `data-context` part. Only features that SDK versions 5 to
# 7 share are used.


HEADERS = {"x-vercel-ai-ui-message-stream": "v1"}
DONE_FRAME = b"data: [DONE]\n\n"
FINISH_REASONS = {"stop": "stop", "length": "length", "content_filter": "content-filter", "refusal": "content-filter"}
CONTEXT_FIELDS = ("provider", "model", "used", "available", "cut")
MessageEvent = TextDelta | ReasoningDelta | ToolCallDelta | StepStart | UsageReport | ToolCallEnded | ApprovalRequest
"""Events that are part of the message."""
_encode = msgspec.json.Encoder().encode


class VercelEncoder:
    """Encoder of the events of one agent's turns. `message` is the id of a message to continue.

    `seen` are the tool calls that the message already has. With `one`, all events form one message, which `end_chunks`
    ends.
    """

    def __init__(self, *, message: str = "", seen: Iterable[str] = (), one: bool = False) -> None:
        self._message, self._one = message, one
        self._started = self._in_step = False
        self._piece: tuple[str, str] | None = None
        self._name, self._written = "", list[str]()
        self._seen = set(seen)
        self._count = 0
        self._context: JSONObject = {}
        self._last: TurnFinish | TurnInterrupted | None = None
        self.is_waiting = False
        """True if the last event requested an approval, so that the message ends here for now."""

    def frames(self, event: AnyEvent) -> bytes:
        """Return the event as frames; the last one has its number."""
        *before, last = [_encode(each) for each in self.encode(event)]
        return b"".join([frame(each) for each in before]) + frame(last, id=event.number)

    def encode(self, event: AnyEvent) -> list[JSONObject]:
        """Return the chunks of an event; at least one."""
        chunks = self._start_chunk(event)
        match event:
            case TextDelta() | ReasoningDelta():
                return [*chunks, *self._text_delta(event)]
            case ToolCallDelta():
                return [*chunks, *self._call_delta(event)]
            case StepStart():
                self._context = {name: getattr(event, name) for name in CONTEXT_FIELDS}
                chunks += [*self._end_part(), *self._step_ended(), {"type": "start-step"}, self._gauge()]
                self._in_step = True
            case UsageReport():
                self._context |= {"used": event.used, "available": event.available, **_cost_fields(event)}
                chunks.append(self._gauge())
            case ToolCallEnded():
                chunks += self._end_part()
                if event.id not in self._seen:
                    self._seen.add(event.id)
                    chunks.append(_input(event.id, event.name, {}))
                chunks.append(_tool_output(event))
            case ApprovalRequest():
                self.is_waiting = True
                asked: JSONObject = {"approvalId": f"{event.number}:{event.approval}", "toolCallId": event.id}
                # The SDK identifies calls by id, which a model may reuse.
                self._seen.add(event.id)
                chunks += [*self._end_part(), _input(event.id, event.name, event.arguments)]
                chunks += [] if event.client else [{"type": "tool-approval-request", **asked}]
            case TurnFinish() | TurnInterrupted():
                self._last = event
                return [*chunks, _custom(event), *([] if self._one else self.end_chunks())]
            case _:
                pass
        return [*chunks, _custom(event)]

    def end_chunks(self) -> list[JSONObject]:
        """Return the chunks that end a message."""
        chunks = [*self._end_part(), *self._step_ended()]
        last, self._last, started = self._last, None, self._started
        self._started, self._message, self._seen = False, "", set[str]()
        match last:
            case TurnFinish(finish="cancelled"):
                return [*chunks, {"type": "abort"}]
            case TurnFinish(finish="error"):
                return [*chunks, {"type": "error", "errorText": last.error or "The turn failed."}]
            case TurnInterrupted():
                return [*chunks, {"type": "error", "errorText": PROCESS_ENDED}]
            case TurnFinish():
                about: JSONObject = {"finish": last.finish, "steps": last.steps, **_cost_fields(last)}
                reason = FINISH_REASONS.get(last.finish, "other")
                return [*chunks, {"type": "finish", "finishReason": reason, "messageMetadata": {"contextc": about}}]
            case None:
                return [*chunks, {"type": "finish", "finishReason": "tool-calls"}] if started else chunks

    def end_frames(self) -> bytes:
        """Return the final frames of a stream."""
        return b"".join([frame(_encode(each)) for each in self.end_chunks()]) + DONE_FRAME

    def _start_chunk(self, event: AnyEvent) -> list[JSONObject]:
        """Return the start chunk, with the first event of a turn or of its message."""
        if self._started or not (event.turn or isinstance(event, MessageEvent)):
            return []
        self._started = True
        return [{"type": "start", "messageId": self._message or f"turn-{event.turn}"}]

    # ── parts ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _text_delta(self, event: TextDelta | ReasoningDelta) -> list[JSONObject]:
        kind = "text" if isinstance(event, TextDelta) else "reasoning"
        chunks: list[JSONObject] = []
        if self._piece is None or self._piece[0] != kind or not self._piece[1].startswith(f"{event.uid}."):
            chunks = self._end_part()
            self._count += 1
            self._piece = kind, f"{event.uid}.{self._count}"
            chunks.append({"type": f"{kind}-start", "id": self._piece[1]})
        return [*chunks, {"type": f"{kind}-delta", "id": self._piece[1], "delta": event.text}]

    def _call_delta(self, event: ToolCallDelta) -> list[JSONObject]:
        chunks: list[JSONObject] = []
        if self._piece != ("call", event.id):
            chunks = self._end_part()
            self._piece, self._name = ("call", event.id), event.name
            self._seen.add(event.id)
            chunks.append({"type": "tool-input-start", "toolCallId": event.id, "toolName": event.name, "dynamic": True})
        self._written.append(event.arguments)
        return [*chunks, {"type": "tool-input-delta", "toolCallId": event.id, "inputTextDelta": event.arguments}]

    def _end_part(self) -> list[JSONObject]:
        """End the open part."""
        if self._piece is None:
            return []
        (kind, id), self._piece = self._piece, None
        if kind != "call":
            return [{"type": f"{kind}-end", "id": id}]
        written, self._written = "".join(self._written), []
        called: JSONObject = {"toolCallId": id, "toolName": self._name, "dynamic": True}
        try:
            return [{"type": "tool-input-available", **called, "input": decode(written or "{}")}]
        except msgspec.DecodeError as error:
            return [{"type": "tool-input-error", **called, "input": written, "errorText": f"No JSON: {error}."}]

    def _step_ended(self) -> list[JSONObject]:
        ended, self._in_step = self._in_step, False
        return [{"type": "finish-step"}] if ended else []

    def _gauge(self) -> JSONObject:
        return {"type": "data-context", "id": "context", "data": dict(self._context)}


def _cost_fields(event: UsageReport | TurnFinish) -> JSONObject:
    bound: JSONObject = {"costIsLowerBound": True} if event.cost_is_lower_bound else {}
    return {"cost": event.cost, **bound}


def _input(id: str, name: str, arguments: JSONObject) -> JSONObject:
    return {"type": "tool-input-available", "toolCallId": id, "toolName": name, "input": arguments, "dynamic": True}


def _tool_output(event: ToolCallEnded) -> JSONObject:
    about: JSONObject = {"toolCallId": event.id}
    if not isinstance(event, ToolFailed):
        return {"type": "tool-output-available", **about, "output": event.text}
    if event.text.startswith(DECLINED_RESULT[:-1]):
        return {"type": "tool-output-denied", **about}
    return {"type": "tool-output-error", **about, "errorText": event.text}


def _custom(event: AnyEvent) -> JSONObject:
    """Return the complete event as a transient part."""
    data: JSON = msgspec.to_builtins(event)
    return {"type": "data-contextc", "data": data, "transient": True}


# ── endpoints ─────────────────────────────────────────────────────────────────────────────────────────────────────────


EVENT_STREAM = "text/event-stream"


class ChatBody(Struct, frozen=True, kw_only=True):
    """The body that `useChat` sends. `id` is the conversation's name; `model` can be added with the option `body`."""

    id: str
    messages: list[JSONObject]
    trigger: Literal["submit-message", "regenerate-message"] = "submit-message"
    messageId: str | None = None
    model: str | None = None


class ApprovalDecision(Struct, frozen=True):
    """A decision on an approval, from a message part. `after` is the number of the approval's event."""

    approval: str
    after: int
    approve: bool
    why: str


@endpoint("POST", "/chat", media_type=EVENT_STREAM, tag="vercel")
async def chat(app: AppState, body: ChatBody) -> EventStream:
    """Answer the last message of a client, as a stream of Vercel AI SDK chunks."""
    if not body.messages:
        raise InvalidRequest("must not be empty", path="messages", got=[])
    last = body.messages[-1]
    if last.get("role") == "assistant" and body.trigger == "submit-message":
        return await _continue_message(app, body.id, last)
    theirs = await run_blocking(_decode_messages, body.messages)
    await app.turns.check_model(body.id, body.model)
    await app.turns.cancel_attended(body.id)  # the request is valid, so the next turn can start
    given = await run_blocking(_rewind_and_new_messages, app.store, app.options.agent, body.id, theirs)
    begun = await app.turns.start(body.id, given or None, model=body.model, attended=True)
    return EventStream(stream_turn(app, begun, begun.after, VercelEncoder(one=True)), headers=HEADERS)


@endpoint("GET", "/chat/{id}/stream", media_type=EVENT_STREAM, tag="vercel")
async def resume_chat(app: AppState, id: str) -> EventStream | RawResponse:
    """Stream the running or waiting answer from its start; 204 if there is none."""
    begun = await app.turns.find_running(id)
    if begun is None and await run_blocking(app.turns.waiting_turn, id) is not None:
        return EventStream(stream_waiting_turn(app, id, None, VercelEncoder(one=True)), headers=HEADERS)
    if begun is None:
        return RawResponse(b"", EVENT_STREAM, status=204)
    return EventStream(stream_turn(app, begun, begun.after, VercelEncoder(one=True)), headers=HEADERS)


async def _continue_message(app: AppState, name: str, last: JSONObject) -> EventStream:
    """Apply decisions on approvals, and continue the message."""
    parts = _tool_parts(last)
    decisions = [
        decision for part in parts if part.get("state") == "approval-responded" and (decision := _decision_of(part))
    ]
    if not decisions:
        problem = "the last message is of the assistant and has no approval response"
        raise InvalidRequest(problem, path="messages", fix="Send a user message.")
    waiting = await run_blocking(app.turns.pending_ids, name)
    pending = {decision.approval: decision for decision in decisions if decision.approval in waiting}
    for decision in (
        pending.values() or decisions[-1:]
    ):  # a message may still contain decisions that were applied before
        await app.turns.answer(name, decision.approval, decision.approve, decision.why)
    seen = [cast(str, part["toolCallId"]) for part in parts]
    telling = VercelEncoder(message=str(last.get("id") or ""), seen=seen, one=True)
    return EventStream(await continued_stream(app, name, decisions[-1].after, telling), headers=HEADERS)


def _tool_parts(message: JSONObject) -> list[JSONObject]:
    """Return the tool parts of an assistant message."""
    parts: JSON = message.get("parts") or []
    if not isinstance(parts, list):
        raise InvalidRequest("parts of a message must be a list", path="messages", got=type(parts).__name__)
    found: list[JSONObject] = []
    for part in cast(list[JSON], parts):
        match part:
            case {"type": str(), "toolCallId": str()}:
                found += [part] if ui_messages.is_tool_part(part) else []
            case {"type": str()}:
                pass
            case _:
                raise InvalidRequest("a part must be an object with a type", path="messages", got=type(part).__name__)
    return found


def _decision_of(part: JSONObject) -> ApprovalDecision | None:
    response = ui_messages.approval_response(part)
    number, colon, approval = str(response["approvalId"]).partition(":") if response is not None else ("", "", "")
    after = parse_event_number(number)
    if response is None or not colon or after is None:
        return None
    return ApprovalDecision(approval, after, response.get("approved") is True, str(response.get("reason") or ""))


def _rewind_and_new_messages(store: Store, agent: str, name: str, theirs: list[Message]) -> list[Message]:
    """Return the new messages, after rewinding the conversation to where the client continues.

    Raises `ConversationBusy` if it must be rewound while a turn runs.
    """
    try:
        ours = store.load(name)
    except UnknownConversation:
        ours = []
    if not ours:
        # A new conversation. Its last user messages start the turn.
        end = len(theirs)
        while end and theirs[end - 1].role == "user":
            end -= 1
        store.extend(name, theirs[:end])
        return theirs[end:]
    where = find_continuation(ours, theirs)
    if where.after is not None:
        with store.lease(name, agent):
            store.rewind(name, where.after)
    return store.read(
        lambda tx: [
            replace(message, uid=message_log.find_free_uid(tx, load_tip(tx, name).tree, message.uid))
            for message in where.messages
        ]
    )


def _decode_messages(messages: list[JSONObject]) -> list[Message]:
    """Decode a client's messages, and check that its user messages can be stored."""
    try:
        found = list(VercelFormatter().decode_request({"messages": messages}).messages)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise InvalidRequest(
            f"expected UIMessages of the Vercel AI SDK ({type(error).__name__}: {str(error)[:100]}).", path="messages"
        ) from error
    check_client_messages(found)
    return found
