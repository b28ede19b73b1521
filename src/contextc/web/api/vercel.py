"""Endpoints for the Vercel AI SDK: `useChat` works without changes, because these are its default paths.

The store is authoritative. Of the history that a client sends, the last user message counts, and its position:
regenerating an answer and editing a message continue from there, on a new branch. A client that disconnects or stops
ends its turn, unless it reconnects within seconds.
"""

from typing import Literal, cast

from msgspec import Struct
from msgspec.structs import replace

from contextc._json import JSON, JSONObject
from contextc.errors import InvalidRequest, UnknownConversation
from contextc.executor.threads import durable
from contextc.formats.vercel import VercelFormatter, ui
from contextc.messages import Message
from contextc.store import Store, chain
from contextc.store.places import head
from contextc.web.desk import Desk
from contextc.web.endpoint import Content, Stream, endpoint
from contextc.web.histories import check, placed
from contextc.web.problems import Refused
from contextc.web.running import LATE, NOT_PENDING, Begun
from contextc.web.streams.sse import event_number, followed
from contextc.web.streams.vercel import HEADERS, Chunks

EVENTS = "text/event-stream"


class Chat(Struct, frozen=True, kw_only=True):
    """The body that `useChat` sends. `id` is the conversation's name; `model` can be added with the option `body`."""

    id: str
    messages: list[JSONObject]
    trigger: Literal["submit-message", "regenerate-message"] = "submit-message"
    messageId: str | None = None
    model: str | None = None


class Answered(Struct, frozen=True):
    """A decision on an approval, from a message part. `after` is the number of the approval's event."""

    approval: str
    after: int
    approve: bool
    why: str


@endpoint("POST", "/chat", media_type=EVENTS)
async def chat(desk: Desk, body: Chat) -> Stream:
    """Answer the last message of a client, as a stream of Vercel AI SDK chunks."""
    if not body.messages:
        raise InvalidRequest("must not be empty", path="messages", got=[])
    last = body.messages[-1]
    if last.get("role") == "assistant" and body.trigger == "submit-message":
        return await _goes_on(desk, body.id, last)
    theirs = await durable(_read, body.messages)
    await desk.running.check(body.id, body.model)
    await desk.running.displace(body.id)  # the request is valid, so the next turn can start
    given = await durable(_taken_in, desk.store, desk.options.agent, body.id, theirs)
    begun = await desk.running.start(body.id, given or None, model=body.model, attended=True)
    return Stream(followed(desk, begun, begun.after, Chunks(one=True)), headers=HEADERS)


@endpoint("GET", "/chat/{id}/stream", media_type=EVENTS)
async def resume_chat(desk: Desk, id: str) -> Stream | Content:
    """Stream the running answer from its start; 204 if no turn runs."""
    begun = desk.running.turn(id)
    if begun is None:
        return Content(b"", EVENTS, status=204)
    return Stream(followed(desk, begun, begun.after, Chunks(one=True)), headers=HEADERS)


async def _goes_on(desk: Desk, name: str, last: JSONObject) -> Stream:
    """Apply decisions on approvals, and continue the message."""
    parts = _tool_parts(last)
    words = [word for part in parts if part.get("state") == "approval-responded" and (word := _word(part))]
    begun: Begun | None = desk.running.turn(name)
    if not words:
        problem = "the last message is of the assistant and has no approval response"
        raise InvalidRequest(problem, path="messages", fix="Send a user message.")
    if begun is None:
        raise Refused(409, NOT_PENDING.format(words[-1].approval), LATE)
    pending = {word.approval: word for word in words if desk.running.is_pending(name, word.approval)}
    for word in pending.values() or words[-1:]:  # a message may still contain decisions that were applied before
        desk.running.answer(name, word.approval, word.approve, word.why)
    seen = [cast(str, part["toolCallId"]) for part in parts]
    telling = Chunks(message=str(last.get("id") or ""), seen=seen, one=True)
    return Stream(followed(desk, begun, words[-1].after, telling), headers=HEADERS)


def _tool_parts(message: JSONObject) -> list[JSONObject]:
    """Return the tool parts of an assistant message."""
    parts: JSON = message.get("parts") or []
    if not isinstance(parts, list):
        raise InvalidRequest("parts of a message must be a list", path="messages", got=type(parts).__name__)
    found: list[JSONObject] = []
    for part in cast(list[JSON], parts):
        match part:
            case {"type": str(), "toolCallId": str()}:
                found += [part] if ui.is_tool(part) else []
            case {"type": str()}:
                pass
            case _:
                raise InvalidRequest("a part must be an object with a type", path="messages", got=type(part).__name__)
    return found


def _word(part: JSONObject) -> Answered | None:
    told = ui.told(part)
    number, colon, approval = str(told["approvalId"]).partition(":") if told is not None else ("", "", "")
    after = event_number(number)
    if told is None or not colon or after is None:
        return None
    return Answered(approval, after, told.get("approved") is True, str(told.get("reason") or ""))


def _taken_in(store: Store, agent: str, name: str, theirs: list[Message]) -> list[Message]:
    """Return the new messages, after rewinding the conversation to where the client continues.

    Raises `ConversationBusy` if it must be rewound while a turn runs.
    """
    try:
        ours = store.load(name)
    except UnknownConversation:
        ours = []
    if not ours:
        return _begun(store, name, theirs)
    where = placed(ours, theirs)
    if where.after is not None:
        with store.lease(name, agent):
            store.rewind(name, where.after)
    return store.read(
        lambda tx: [
            replace(message, uid=chain.free_uid(tx, head(tx, name).tree, message.uid)) for message in where.messages
        ]
    )


def _begun(store: Store, name: str, theirs: list[Message]) -> list[Message]:
    """Store the history of a new conversation, and return its last user messages, which start the turn."""
    end = len(theirs)
    while end and theirs[end - 1].role == "user":
        end -= 1
    store.extend(name, theirs[:end])
    return theirs[end:]


def _read(messages: list[JSONObject]) -> list[Message]:
    """Decode a client's messages, and check that its user messages can be stored."""
    try:
        found = list(VercelFormatter().decode_request({"messages": messages}).messages)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise InvalidRequest(
            f"expected UIMessages of the Vercel AI SDK ({type(error).__name__}: {str(error)[:100]}).", path="messages"
        ) from error
    check(found)
    return found
