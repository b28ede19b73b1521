"""What happens in a conversation, for whoever watches: typed, numbered, stored, and told again from any number.

Numbers grow within a conversation, whoever writes. An event is stored before anybody is told of it, so what was seen
can be seen again. Pieces of a text are events too; several that come close together are one. Their words belong to a
message (`uid`) and go with it when it is redacted.
"""

from typing import Literal, TypeAlias

import msgspec

from contextc._json import JSONObject
from contextc.errors import FailureKind as ProviderKind
from contextc.messages import Usage

FailureKind: TypeAlias = ProviderKind | Literal["internal"]


class Event(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", kw_only=True, gc=False):
    """What every event says: its number, when it was, whose turn, and which step of it (0: of none)."""

    number: int = 0
    time: int = 0
    agent: str = ""
    turn: int = 0
    step: int = 0


class TurnStart(Event, frozen=True, tag="turn-start"):
    """A turn begins. `seq` is the message that opened it; `resumed` says that it goes on after an interruption."""

    seq: int = 0
    resumed: bool = False


class TurnFinish(Event, frozen=True, tag="turn-finish"):
    """A turn is over, and why: `stop`, `cancelled`, `error`, or the limit that ended it."""

    finish: str
    steps: int = 0
    tool_calls: int = 0
    usage: Usage | None = None
    cost: float | None = None
    error: str = ""


class StepStart(Event, frozen=True, tag="step-start"):
    """A request is about to leave. Its input takes `used` of `available` tokens: system prompt, tools and messages.
    `cut` says that some were left out.
    """

    provider: str
    model: str
    request: int
    mode: str
    epoch: int = 0
    why: str = ""
    used: int = 0
    available: int = 0
    cut: bool = False


class StepFinish(Event, frozen=True, tag="step-finish"):
    """The reply is stored, as message `seq`."""

    finish: str = ""
    uid: str = ""
    seq: int = 0
    usage: Usage | None = None
    milliseconds: int = 0


class TextDelta(Event, frozen=True, tag="text-delta"):
    uid: str
    text: str


class ReasoningDelta(Event, frozen=True, tag="reasoning-delta"):
    uid: str
    text: str


class ToolCallDelta(Event, frozen=True, tag="tool-call-delta"):
    """A piece of a call: `arguments` is the next piece of their JSON text."""

    uid: str
    id: str
    name: str
    arguments: str


class ApprovalRequest(Event, frozen=True, tag="approval-request"):
    """A tool waits for a person to say yes. `id` is the model's name of the call, which it may use for others too;
    `approval` is ours, which no other call has and nothing can guess: an answer names that.
    """

    id: str
    name: str
    arguments: JSONObject = {}
    approval: str = ""


class ToolStart(Event, frozen=True, tag="tool-start"):
    id: str
    name: str


class ToolProgress(Event, frozen=True, tag="tool-progress"):
    """What a tool says while it runs."""

    id: str
    text: str


class ToolAnswer(Event, frozen=True):
    """A call has its result. `text` is the beginning of it; message `seq` has it whole."""

    id: str
    name: str
    seq: int = 0
    uid: str = ""
    text: str = ""
    milliseconds: int = 0


class ToolResult(ToolAnswer, frozen=True, tag="tool-result"):
    """A tool has returned."""


class ToolError(ToolAnswer, frozen=True, tag="tool-error"):
    """A tool has failed, or was not run; the model is told so."""


class SystemMessageCreated(Event, frozen=True, tag="system-message-created"):
    """A trigger has spoken to the model, as message `seq`."""

    seq: int
    uid: str
    text: str
    trigger: str


class SystemHint(Event, frozen=True, tag="system-hint"):
    """Words for people only."""

    text: str
    trigger: str = ""


class TriggerFailed(Event, frozen=True, tag="trigger-failed"):
    """A trigger raised, or returned what it may not. The turn goes on without it."""

    trigger: str
    error: str


class QueuedInput(Event, frozen=True, tag="queued-input"):
    """Input waits: to steer the running turn, or for the turn after it."""

    queued: int
    kind: Literal["steer", "follow-up"]
    text: str = ""


class InputTaken(Event, frozen=True, tag="input-taken"):
    """Input that waited is in the conversation now, as message `seq`."""

    queued: int
    seq: int
    uid: str


class Compaction(Event, frozen=True, tag="compaction"):
    """What is old was summed up, up to message `upto`: `before` tokens have become `after`."""

    upto: int
    before: int
    after: int
    fallback: str = ""


class UsageReport(Event, frozen=True, tag="usage"):
    """What a call took, and how full the context is: its whole input and output are `used` of `available` tokens."""

    usage: Usage
    used: int = 0
    available: int = 0
    cost: float | None = None


class Retry(Event, frozen=True, tag="retry"):
    """A call failed before it said anything, and is made again in `seconds`."""

    kind: FailureKind
    seconds: float
    attempt: int
    error: str


class Failure(Event, frozen=True, tag="error"):
    """Something went wrong that ended a turn, or that a person should know."""

    kind: FailureKind
    error: str


class Interrupted(Event, frozen=True, tag="interrupted"):
    """The process that ran a turn died. `messages` were put right: what it was writing, what it had asked for."""

    messages: int = 0


AnyEvent: TypeAlias = (
    TurnStart
    | TurnFinish
    | StepStart
    | StepFinish
    | TextDelta
    | ReasoningDelta
    | ToolCallDelta
    | ApprovalRequest
    | ToolStart
    | ToolProgress
    | ToolResult
    | ToolError
    | SystemMessageCreated
    | SystemHint
    | TriggerFailed
    | QueuedInput
    | InputTaken
    | Compaction
    | UsageReport
    | Retry
    | Failure
    | Interrupted
)
WORDS = ("text", "arguments", "error")
"""Fields that may hold words of a message."""

event_to_json = msgspec.json.Encoder().encode
event_from_json = msgspec.json.Decoder(AnyEvent).decode
