"""Endpoints for the Vercel AI SDK: `useChat` works without changes, because these are its default paths.

The store is authoritative. Of the history that a client sends, the last user message counts, and its position:
regenerating an answer and editing a message continue from there, on a new branch. A client that disconnects or stops
ends its turn, unless it reconnects within seconds.
"""

from typing import Literal, cast

from msgspec import Struct
from msgspec.structs import replace

from contextc._json import JSON, JSONObject
from contextc._worker_threads import run_blocking
from contextc.errors import InvalidRequest, UnknownConversation
from contextc.formats.vercel import VercelFormatter, ui_messages
from contextc.messages import Message
from contextc.store import Store, append_and_load
from contextc.store.message_rows import load_tip
from contextc.web.app_state import AppState
from contextc.web.client_history import check_client_messages, find_continuation
from contextc.web.endpoint_registry import EventStream, RawResponse, endpoint
from contextc.web.streams.sse import continued_stream, parse_event_number, stream_turn, stream_waiting_turn
from contextc.web.streams.vercel_encoder import HEADERS, VercelEncoder

TAG = "vercel"
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


@endpoint("POST", "/chat", media_type=EVENT_STREAM)
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


@endpoint("GET", "/chat/{id}/stream", media_type=EVENT_STREAM)
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
        return _store_history(store, name, theirs)
    where = find_continuation(ours, theirs)
    if where.after is not None:
        with store.lease(name, agent):
            store.rewind(name, where.after)
    return store.read(
        lambda tx: [
            replace(message, uid=append_and_load.find_free_uid(tx, load_tip(tx, name).tree, message.uid))
            for message in where.messages
        ]
    )


def _store_history(store: Store, name: str, theirs: list[Message]) -> list[Message]:
    """Store the history of a new conversation, and return its last user messages, which start the turn."""
    end = len(theirs)
    while end and theirs[end - 1].role == "user":
        end -= 1
    store.extend(name, theirs[:end])
    return theirs[end:]


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
