"""Endpoint for AG-UI clients: starts a run and streams its events. `HttpAgent` works without changes.

The store is authoritative: of the messages that a client sends, only the last user messages count that are not stored
yet. Nothing is rewritten. A client without new messages gets a snapshot and the events of the running turn.
"""

from collections.abc import AsyncGenerator
from typing import cast

from msgspec import Struct, field

from contextc._json import JSON, JSONObject
from contextc.errors import InvalidRequest, UnknownConversation
from contextc.executor.threads import durable
from contextc.messages import Message
from contextc.store import Store
from contextc.web.desk import Desk
from contextc.web.endpoint import Stream, endpoint
from contextc.web.histories import check, unknown
from contextc.web.problems import Refused
from contextc.web.running import LATE, NOT_PENDING, Begun
from contextc.web.streams.agui import OneRun
from contextc.web.streams.agui_messages import read, shown
from contextc.web.streams.sse import event_number, followed

SHOWN = 1_000
"""Maximum number of messages in a snapshot."""


class Resume(Struct, frozen=True, kw_only=True):
    """The answer to an interrupt: `payload` is `{"approved": true}`, or has a reason `why`."""

    interruptId: str
    status: str
    payload: JSON = None


class Run(Struct, frozen=True, kw_only=True):
    """AG-UI's `RunAgentInput`. `threadId` is the name of the conversation; `forwardedProps.model` names a model."""

    threadId: str
    runId: str
    messages: list[JSONObject] = []
    forwardedProps: JSON = None
    resume: list[Resume] = field(default_factory=list[Resume])

    @property
    def model(self) -> str | None:
        match self.forwardedProps:
            case {"model": str(model)}:
                return model
            case _:
                return None


@endpoint("POST", "/agui", media_type="text/event-stream")
async def run(desk: Desk, body: Run) -> Stream:
    """Run an agent and stream its events as AG-UI events."""
    telling = OneRun(body.threadId, body.runId)
    if body.resume:
        begun, after = _answered(desk, body)
        return Stream(followed(desk, begun, after, telling))
    fresh, ours = await durable(_taken_in, desk.store, body)
    if not fresh and (begun := desk.running.turn(body.threadId)) is not None:
        return Stream(_joined(desk, begun, telling))
    await desk.running.check(body.threadId, body.model)
    await desk.running.displace(body.threadId)
    try:
        begun = await desk.running.start(body.threadId, fresh or None, model=body.model, attended=True)
    except Refused as refused:
        if refused.problem.kind != "NothingNew":
            raise
        return Stream(_only_shown(telling, ours))
    return Stream(followed(desk, begun, begun.after, telling))


def _taken_in(store: Store, body: Run) -> tuple[list[Message], list[Message]]:
    """Return the new messages and the stored ones."""
    theirs = read(body.messages)
    check(theirs)
    try:
        ours = store.load(body.threadId)
    except UnknownConversation:
        ours = []
    return unknown(ours, theirs), ours


def _answered(desk: Desk, body: Run) -> tuple[Begun, int]:
    """Apply decisions on approvals. Return the turn and the event number to continue from."""
    begun, after = desk.running.turn(body.threadId), 0
    words: dict[str, tuple[bool, str]] = {}
    for each in body.resume:
        number, _, approval = each.interruptId.partition(":")
        if (told := event_number(number)) is None:
            raise InvalidRequest("interrupt not found", path="resume", got=each.interruptId)
        if begun is None or not desk.running.is_pending(body.threadId, approval):
            raise Refused(409, NOT_PENDING.format(approval), LATE)
        said = cast(JSONObject, each.payload) if isinstance(each.payload, dict) else {}
        approve = each.status == "resolved" and said.get("approved") is True
        words.setdefault(approval, (approve, str(said.get("why") or "")))
        after = told
    assert begun is not None, "every decision has a pending approval"
    for approval, (approve, why) in words.items():  # all or none
        desk.running.answer(body.threadId, approval, approve, why)
    return begun, after


async def _joined(desk: Desk, begun: Begun, telling: OneRun) -> AsyncGenerator[bytes]:
    """Stream a snapshot from before the turn, then the turn from its start."""

    def before() -> list[Message]:
        started = desk.store.events(begun.turn.conversation, after=begun.after, limit=1)[0]
        return desk.store.load(begun.turn.conversation, upto=getattr(started, "seq", 0), last=SHOWN)

    yield telling.begin(shown(await durable(before)))
    async for told in followed(desk, begun, begun.after, telling):
        yield told


async def _only_shown(telling: OneRun, ours: list[Message]) -> AsyncGenerator[bytes]:
    """Stream a snapshot and the end of a run without a turn."""
    yield telling.begin(shown(ours[-SHOWN:])) + telling.nothing()
