"""Base of a turn's store transactions: lease check, event fields, and publishing.

Events are published to watchers after their transaction was committed, never before.
"""

from collections.abc import Collection, Mapping, Sequence
from time import time
from typing import TypeAlias

from msgspec.structs import replace

from contextc._json import JSONObject, encode
from contextc.events import (
    AnyEvent,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    ToolFailed,
    ToolFinished,
)
from contextc.executor.threads import defer
from contextc.executor.watching import event_hub
from contextc.messages import AnyPart, Message, Reasoning, Text, ToolCall, validate_message
from contextc.messages import ToolResult as ResultPart
from contextc.store import Lease, Store, chain, leases, turns
from contextc.store.base import Transaction
from contextc.store.turns import MAX_EVENT_TEXT, StepRecord, TurnRecord

Piece: TypeAlias = tuple[str, AnyPart]
"""The uid of a message, and a part of it that was received."""


def now_ms() -> int:
    return int(time() * 1000)


class TurnWriter:
    """Writes of one turn under one lease. Methods are called one after the other, from any thread."""

    def __init__(
        self,
        store: Store,
        conversation: str,
        agent: str,
        lease: Lease,
        *,
        run: str | None = None,
        channel: str = "",
        of_channel: Collection[str] = (),
    ) -> None:
        self.store, self.conversation, self.agent, self.lease, self.run = store, conversation, agent, lease, run
        self.sender: str | None = None
        """The author of the message that opened the turn."""
        self.channel, self._of_channel = channel, frozenset(of_channel)
        """The channel that requests are sent on, and the triggers whose states and messages belong to it."""
        self._hub = event_hub(store)
        self.turn = TurnRecord(number=0, agent=agent)
        self.step: StepRecord | None = None
        self.states: dict[str, JSONObject] = {}
        self._branch = 0
        """The branch on which the turn's opening message was last found."""
        self.previous: TurnRecord | None = None
        """The turn of this agent before this one."""
        self.running: set[str] = set()
        """Ids of calls whose tool has started and whose result is not stored."""

    def tell(self, *events: AnyEvent, step: int | None = None) -> None:
        """Store and publish events in a transaction of their own."""

        def work(tx: Transaction) -> list[AnyEvent]:
            return turns.append_events(tx, self._checked(tx), [self._stamped(event, step=step) for event in events])

        self._hand_on(self.store.write(work))

    def audience(self, trigger: str) -> str:
        """Return the agent or the channel that a trigger's messages are addressed to."""
        return self.channel if trigger in self._of_channel else self.agent

    def _read_states(self, tx: Transaction, number: int) -> dict[str, JSONObject]:
        states = turns.load_trigger_states(tx, number, self.agent)
        return states | turns.load_trigger_states(tx, number, self.channel) if self._of_channel else states

    def _save_states(self, tx: Transaction, number: int, states: Mapping[str, JSONObject]) -> None:
        for name, state in states.items():
            turns.save_trigger_states(tx, number, self.audience(name), {name: state})

    @property
    def _index(self) -> int | None:
        return self.step.index if self.step is not None else None

    def _checked(self, tx: Transaction) -> int:
        """Lock the conversation and return its number. Raises `LeaseLost` if the lease has ended."""
        leases.check_lease(tx, self.lease, self.conversation)
        return self.lease.root

    def _entry(self, message: Message) -> chain.PendingMessage:
        if self.run is not None and message.role in ("assistant", "tool") and message.author == self.agent:
            message = replace(message, run=message.run or self.run)
        return chain.prepare_entry(validate_message(message))

    def _stamped(self, event: AnyEvent, turn: TurnRecord | None = None, *, step: int | None = None) -> AnyEvent:
        index = step if step is not None else (self._index or 0)
        return replace(event, time=now_ms(), agent=self.agent, turn=(turn or self.turn).number, step=index)

    def _hand_on(self, events: Sequence[AnyEvent]) -> None:
        if events:
            defer(lambda: self._hub.tell(self.conversation, events))


def delta_events(pieces: Sequence[Piece]) -> list[AnyEvent]:
    """Return pieces of a reply as events. A result among them comes from a tool that the provider ran itself."""
    events: list[AnyEvent] = []
    for uid, part in pieces:
        match part:
            case Text():
                events.append(TextDelta(uid=uid, text=part.text))
            case Reasoning():
                if part.text:
                    events.append(ReasoningDelta(uid=uid, text=part.text))
            case ToolCall():
                events.append(ToolCallDelta(uid=uid, id=part.id, name=part.name, arguments=_arguments_text(part)))
            case ResultPart():
                kind = ToolFailed if part.is_error else ToolFinished
                events.append(kind(id=part.call_id, name=part.name, text=part.text[:MAX_EVENT_TEXT]))
            case _:
                pass
    return events


def _arguments_text(call: ToolCall) -> str:
    """Return the arguments as the model wrote them, or encoded if the provider sent them as data."""
    if call.raw is None and call.arguments:
        return encode(call.arguments).decode()
    return call.raw or ""


def result_event(message: Message, milliseconds: int) -> AnyEvent:
    result = message.tool_results[0]
    kind = ToolFailed if result.is_error else ToolFinished
    return kind(
        id=result.call_id,
        name=result.name,
        seq=message.seq,
        uid=message.uid,
        text=result.text[:MAX_EVENT_TEXT],
        milliseconds=milliseconds,
    )
