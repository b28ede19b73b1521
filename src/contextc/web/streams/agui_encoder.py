"""Encoding of events as AG-UI events, version 1.0: a turn is a run. Every event is also a complete CUSTOM event.

It is a pure state machine: its output depends only on its input, and AG-UI's verifier accepts the output for any input.
Every event is inside a run; an event without a turn gets a run of its own if none is open. Concurrent turns of several
agents are one run, which ends with the last of them. A stream may start anywhere: parts whose start was not seen are
opened under the same id.

One part of a reply is open at a time: text, reasoning or a tool call. A part that continues after another one is opened
again under its id, which appends to it.
"""

from collections.abc import Mapping
from typing import assert_never

import msgspec

from contextc._json import JSONObject
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
from contextc.messages import Usage
from contextc.web.streams.sse import frame

VERSION = "1.0"
CONTEXT, COMPACTION, SYSTEM = "contextc.context", "contextc.compaction", "contextc.system-message"
PROCESS_ENDED = "The process that ran this turn ended. What it had said is kept; the turn can be resumed."
STREAM_ENDED = "The server ended this stream. The turn may continue."
NO_END_EVENT = "This turn has no end event."
CONTEXT_FIELDS = ("provider", "model", "request", "mode", "epoch", "why", "used", "available", "cut")
INTERRUPT_ANSWER_SCHEMA: JSONObject = {
    "type": "object",
    "properties": {"approved": {"type": "boolean"}, "why": {"type": "string"}},
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
            return self._run_of_one_event(event)
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

    def _run_of_one_event(self, event: AnyEvent) -> list[JSONObject]:
        """Return an event without a turn, in a run of its own."""
        started = self._start(f"event-{event.number}")
        return [started, *_equivalents(event), _custom(event), self._end({"outcome": {"type": "success"}})]

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
        "message": f"Approve {event.name}?",
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
