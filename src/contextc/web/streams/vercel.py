"""Our events as chunks of the Vercel AI SDK's UI message stream, version 1: a turn is one message of the assistant.

A state machine without a clock or a store, as `agui` is one. What the SDK has no word for is a `data-contextc` part,
which a page gets by `onData` and which is not kept in the message; how full the context is stays in it, as
`data-context`. Nothing is said that only the newest version of the SDK knows, so pages of versions 5 to 7 can read it.
"""

from collections.abc import Iterable

import msgspec

from contextc._json import JSON, JSONObject, decode
from contextc.events import (
    AnyEvent,
    ApprovalRequest,
    Interrupted,
    ReasoningDelta,
    StepStart,
    TextDelta,
    ToolAnswer,
    ToolCallDelta,
    ToolError,
    TurnFinish,
    UsageReport,
)
from contextc.executor.tools import DECLINED
from contextc.web.streams.agui import GONE
from contextc.web.streams.sse import frame

HEADERS = {"x-vercel-ai-ui-message-stream": "v1"}
DONE = b"data: [DONE]\n\n"
FINISH = {"stop": "stop", "length": "length", "content_filter": "content-filter", "refusal": "content-filter"}
MEASURED = ("provider", "model", "used", "available", "cut")
SHOWN = TextDelta | ReasoningDelta | ToolCallDelta | StepStart | UsageReport | ToolAnswer | ApprovalRequest
"""What stays in the message."""
_encode = msgspec.json.Encoder().encode


class Chunks:
    """Translates the events of one agent's turns. `message` is the name of the message, where it has one already.

    `seen` are the calls that the message has. With `one`, all that comes is one message, which `end` ends.
    """

    def __init__(self, *, message: str = "", seen: Iterable[str] = (), one: bool = False) -> None:
        self._message, self._one = message, one
        self._started = self._in_step = False
        self._piece: tuple[str, str] | None = None
        self._name, self._written = "", list[str]()
        self._seen = set(seen)
        self._count = 0
        self._context: JSONObject = {}
        self._last: TurnFinish | Interrupted | None = None
        self.waits = False
        """Whether the last event asked a person for a word, so that the message ends here for now."""

    def frames(self, event: AnyEvent) -> bytes:
        """The event as frames; its number stands on the last of them."""
        *before, last = [_encode(each) for each in self.take(event)]
        return b"".join([frame(each) for each in before]) + frame(last, id=event.number)

    def take(self, event: AnyEvent) -> list[JSONObject]:
        """What an event of ours is in the SDK's words; at least one chunk."""
        told = self._begun(event)
        match event:
            case TextDelta() | ReasoningDelta():
                return [*told, *self._words(event)]
            case ToolCallDelta():
                return [*told, *self._called(event)]
            case StepStart():
                self._context = {name: getattr(event, name) for name in MEASURED}
                told += [*self._closed(), *self._step_ended(), {"type": "start-step"}, self._gauge()]
                self._in_step = True
            case UsageReport():
                self._context |= {"used": event.used, "available": event.available, "cost": event.cost}
                told.append(self._gauge())
            case ToolAnswer():
                told += [*self._closed(), *self._shown(event.id, event.name, {}), _answered(event)]
            case ApprovalRequest():
                self.waits = True
                asked: JSONObject = {"approvalId": f"{event.number}:{event.approval}", "toolCallId": event.id}
                told += [*self._closed(), *self._asked(event)]
                told.append({"type": "tool-approval-request", **asked})
            case TurnFinish() | Interrupted():
                self._last = event
                return [*told, _custom(event), *([] if self._one else self.end())]
            case _:
                pass
        return [*told, _custom(event)]

    def end(self) -> list[JSONObject]:
        """What ends a message: how its last turn ended, or that it waits."""
        told = [*self._closed(), *self._step_ended()]
        last, self._last, started = self._last, None, self._started
        self._started, self._message, self._seen = False, "", set[str]()
        match last:
            case TurnFinish(finish="cancelled"):
                return [*told, {"type": "abort"}]
            case TurnFinish(finish="error"):
                return [*told, {"type": "error", "errorText": last.error or "The turn failed."}]
            case Interrupted():
                return [*told, {"type": "error", "errorText": GONE}]
            case TurnFinish():
                about: JSONObject = {"finish": last.finish, "steps": last.steps, "cost": last.cost}
                reason = FINISH.get(last.finish, "other")
                return [*told, {"type": "finish", "finishReason": reason, "messageMetadata": {"contextc": about}}]
            case None:
                return [*told, {"type": "finish", "finishReason": "tool-calls"}] if started else told

    def ended(self) -> bytes:
        """The end of a stream."""
        return b"".join([frame(_encode(each)) for each in self.end()]) + DONE

    def _begun(self, event: AnyEvent) -> list[JSONObject]:
        """The beginning of the message, with the first event of its turn; or of one that is not told from it."""
        if self._started or not (event.turn or isinstance(event, SHOWN)):
            return []
        self._started = True
        return [{"type": "start", "messageId": self._message or f"turn-{event.turn}"}]

    # ── pieces ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _words(self, event: TextDelta | ReasoningDelta) -> list[JSONObject]:
        kind = "text" if isinstance(event, TextDelta) else "reasoning"
        told: list[JSONObject] = []
        if self._piece is None or self._piece[0] != kind or not self._piece[1].startswith(f"{event.uid}."):
            told = self._closed()
            self._count += 1
            self._piece = kind, f"{event.uid}.{self._count}"
            told.append({"type": f"{kind}-start", "id": self._piece[1]})
        return [*told, {"type": f"{kind}-delta", "id": self._piece[1], "delta": event.text}]

    def _called(self, event: ToolCallDelta) -> list[JSONObject]:
        told: list[JSONObject] = []
        if self._piece != ("call", event.id):
            told = self._closed()
            self._piece, self._name = ("call", event.id), event.name
            self._seen.add(event.id)
            told.append({"type": "tool-input-start", "toolCallId": event.id, "toolName": event.name, "dynamic": True})
        self._written.append(event.arguments)
        return [*told, {"type": "tool-input-delta", "toolCallId": event.id, "inputTextDelta": event.arguments}]

    def _closed(self) -> list[JSONObject]:
        """The piece that is open, ended."""
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

    def _shown(self, id: str, name: str, arguments: JSONObject) -> list[JSONObject]:
        """A call that this message does not show yet."""
        if id in self._seen:
            return []
        self._seen.add(id)
        return [_input(id, name, arguments)]

    def _asked(self, event: ApprovalRequest) -> list[JSONObject]:
        """Exactly what would run. The SDK tells calls apart by their ids, which a model may use for several."""
        self._seen.add(event.id)
        return [_input(event.id, event.name, event.arguments)]

    def _step_ended(self) -> list[JSONObject]:
        ended, self._in_step = self._in_step, False
        return [{"type": "finish-step"}] if ended else []

    def _gauge(self) -> JSONObject:
        return {"type": "data-context", "id": "context", "data": dict(self._context)}


def _input(id: str, name: str, arguments: JSONObject) -> JSONObject:
    return {"type": "tool-input-available", "toolCallId": id, "toolName": name, "input": arguments, "dynamic": True}


def _answered(event: ToolAnswer) -> JSONObject:
    about: JSONObject = {"toolCallId": event.id}
    if not isinstance(event, ToolError):
        return {"type": "tool-output-available", **about, "output": event.text}
    if event.text.startswith(DECLINED[:-1]):
        return {"type": "tool-output-denied", **about}
    return {"type": "tool-output-error", **about, "errorText": event.text}


def _custom(event: AnyEvent) -> JSONObject:
    """The event whole, for who wants to know more; it does not stay in the message."""
    data: JSON = msgspec.to_builtins(event)
    return {"type": "data-contextc", "data": data, "transient": True}
