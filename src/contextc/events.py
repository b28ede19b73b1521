"""Events of a conversation: typed, numbered and stored, so that a client can resume from any number.

Numbers grow within a conversation, whichever process writes. An event is stored before it is published. Text deltas
are events too; deltas that arrive close together are merged. Their text belongs to a message (`uid`) and is redacted
with it.
"""

from typing import Literal, TypeAlias

import msgspec

from contextc._json import JSONObject
from contextc.errors import FailureKind as ProviderKind
from contextc.messages import Usage

ErrorKind: TypeAlias = ProviderKind | Literal["internal"]


class Event(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", kw_only=True, gc=False):
    """Base class of all events: number, time, agent, turn, and step (0: outside a step)."""

    number: int = 0
    time: int = 0
    agent: str = ""
    turn: int = 0
    step: int = 0


class TurnStart(Event, frozen=True, tag="turn-start"):
    """A turn started. `seq` is the message that opened it; `resumed` is True after an interruption or a wait."""

    seq: int = 0
    resumed: bool = False


class TurnFinish(Event, frozen=True, tag="turn-finish"):
    """A turn ended. `finish` is `stop`, `cancelled`, `error`, or the limit that ended it.

    With `cost_is_lower_bound` the turn cost at least `cost`: a factor of a price is unknown.
    """

    finish: str
    steps: int = 0
    tool_calls: int = 0
    usage: Usage | None = None
    cost: float | None = None
    cost_is_lower_bound: bool = False
    error: str = ""


class StepStart(Event, frozen=True, tag="step-start"):
    """A request is about to be sent. Its input (system prompt, tools, messages) uses `used` of `available` tokens.

    `cut` is True if messages were left out.
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
    """The reply was stored as message `seq`."""

    finish: str = ""
    uid: str = ""
    seq: int = 0
    usage: Usage | None = None
    milliseconds: int = 0


class TextDelta(Event, frozen=True, tag="text-delta"):
    """More text of the message that is being written."""

    uid: str
    text: str


class ReasoningDelta(Event, frozen=True, tag="reasoning-delta"):
    """More reasoning of the message that is being written."""

    uid: str
    text: str


class ToolCallDelta(Event, frozen=True, tag="tool-call-delta"):
    """A piece of a tool call: `arguments` is the next piece of its JSON text."""

    uid: str
    id: str
    name: str
    arguments: str


class ApprovalRequest(Event, frozen=True, tag="approval-request"):
    """A tool call waits for approval. `id` is the model's id of the call, which it may reuse.

    `approval` is a unique random id, which an answer must name. `client` is True if the client runs the tool itself:
    the answer is its result. `question` is what the server of the tool asks: the call has begun, and waits.
    """

    id: str
    name: str
    arguments: JSONObject = {}
    approval: str = ""
    client: bool = False
    question: str = ""


class ApprovalAnswered(Event, frozen=True, tag="approval-answer"):
    """A pending approval was answered by `who`. `id` is the model's id of the call, `text` the reason of a denial.

    If a rule answered the call, `rule` is its id, and no approval was requested.
    """

    id: str
    name: str
    approval: str
    allowed: bool
    text: str = ""
    who: str = ""
    rule: str = ""


class TurnWaiting(Event, frozen=True, tag="turn-waiting"):
    """A turn waits until one of these approvals is answered. No process runs it meanwhile; it is continued then."""

    approvals: tuple[str, ...] = ()


class ToolStart(Event, frozen=True, tag="tool-start"):
    """A tool call begins to run."""

    id: str
    name: str


class AgentCallStart(Event, frozen=True, tag="agent-call-start"):
    """An agent that is a tool began to work on a call, or goes on. Its own events are in `conversation`, after `after`.

    `called` is the name of that agent.
    """

    id: str
    name: str
    called: str
    conversation: str
    after: int = 0


class ToolProgress(Event, frozen=True, tag="tool-progress"):
    """Progress text of a running tool."""

    id: str
    text: str


class ToolCallEnded(Event, frozen=True):
    """A call got its result. `text` is its beginning; message `seq` has all of it."""

    id: str
    name: str
    seq: int = 0
    uid: str = ""
    text: str = ""
    milliseconds: int = 0


class ToolFinished(ToolCallEnded, frozen=True, tag="tool-result"):
    """A tool returned."""


class ToolFailed(ToolCallEnded, frozen=True, tag="tool-error"):
    """A tool failed, or was not run. The model gets the error."""


class SystemMessageCreated(Event, frozen=True, tag="system-message-created"):
    """A trigger added message `seq` for the model."""

    seq: int
    uid: str
    text: str
    trigger: str


class UserNoticeCreated(Event, frozen=True, tag="system-hint"):
    """A user notice. It is never sent to a model."""

    text: str
    trigger: str = ""


class TriggerFailed(Event, frozen=True, tag="trigger-failed"):
    """A trigger raised an exception, or returned an invalid value. The turn continues without it."""

    trigger: str
    error: str


class InputQueued(Event, frozen=True, tag="queued-input"):
    """Input was queued: to steer the running turn, for the next turn, or for a turn that its caller waits for."""

    queued: int
    kind: Literal["steer", "follow-up", "waiting"]
    text: str = ""


class InputDequeued(Event, frozen=True, tag="input-taken"):
    """Queued input was appended as message `seq`, or was withdrawn by its caller if `seq` is 0."""

    queued: int
    seq: int
    uid: str


class CompactionFinished(Event, frozen=True, tag="compaction"):
    """Messages up to `upto` were summarized: `before` tokens became `after` tokens.

    If `undone` is True, the summary of these messages was taken out of use. `score` is the share of the facts, open
    todos and sentences of people that the next request still has, and `missing` the number of the others. Between two
    turns, `seq` is the last message of the conversation at that time, and `usage` and `cost` are those of the requests
    for the summary. Within a turn they are part of the turn's.
    """

    upto: int
    before: int
    after: int
    fallback: str = ""
    undone: bool = False
    score: float | None = None
    missing: int = 0
    seq: int = 0
    usage: Usage | None = None
    cost: float | None = None
    cost_is_lower_bound: bool = False


class UsageReport(Event, frozen=True, tag="usage"):
    """Token usage of a call. Its whole input and output are `used` of the `available` tokens of the context. `cost` is
    that of the turn so far.
    """

    usage: Usage
    used: int = 0
    available: int = 0
    cost: float | None = None
    cost_is_lower_bound: bool = False


class FailureDetails(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, gc=False):
    """Facts about a provider's failure, for clients that describe it themselves. Each is empty if it is not known.

    `message` is the provider's own text. `fix` is set if the failure has a fix of its own, other than the one for its
    kind. `request_id` is the provider's id of the request. With the case "key", no API key was found, and `detail`
    names the environment variables. With the case "login", `detail` is the command to log in.
    """

    provider: str = ""
    message: str = ""
    fix: str = ""
    case: str = ""
    detail: str = ""
    status: int | None = None
    code: str = ""
    retry_after: float | None = None
    request_id: str = ""


class RetryScheduled(Event, frozen=True, tag="retry"):
    """A call failed before any output, and is retried in `seconds`. Events of older versions have no `failure`.

    `dropped_betas` are the beta flags that the provider refused: this process does not send them to it again.
    """

    kind: ErrorKind
    seconds: float
    attempt: int
    error: str
    failure: FailureDetails | None = None
    dropped_betas: tuple[str, ...] = ()


class ErrorOccurred(Event, frozen=True, tag="error"):
    """An error that ended a turn, or that the user should see. `failure` is set if a provider failed.

    Events of older versions have no `failure`.
    """

    kind: ErrorKind
    error: str
    failure: FailureDetails | None = None


class TurnInterrupted(Event, frozen=True, tag="interrupted"):
    """The process of a turn died. Recovery appended `messages` messages: partial replies and results of open calls."""

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
    | ApprovalAnswered
    | TurnWaiting
    | ToolStart
    | AgentCallStart
    | ToolProgress
    | ToolFinished
    | ToolFailed
    | SystemMessageCreated
    | UserNoticeCreated
    | TriggerFailed
    | InputQueued
    | InputDequeued
    | CompactionFinished
    | UsageReport
    | RetryScheduled
    | ErrorOccurred
    | TurnInterrupted
)


class AgentEvent(Event, frozen=True, tag="agent-event"):
    """An event of an agent that was called as a tool, in the stream of its caller. It is stored in `conversation` only.

    `call` is the id of the caller's call. Number, time, agent, turn and step are those of `event`.
    """

    call: str
    conversation: str
    event: AnyEvent


StreamEvent: TypeAlias = AnyEvent | AgentEvent
"""An event in the stream of a turn."""
TEXT_FIELDS = ("text", "arguments", "error", "question")
"""Fields that may contain text of a message."""
ERROR_FIELDS = ("error", "failure", "fallback")
"""Fields with the text of an error, which may quote any message that was sent."""

encode_event = msgspec.json.Encoder().encode
decode_event = msgspec.json.Decoder(AnyEvent).decode
