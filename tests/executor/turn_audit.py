"""Invariants of a conversation after each turn, whatever failed in it.

Three witnesses are held against each other: the store, the stand-in that received the requests, and the tools, which
keep a list of their own. The conversation is read whole every time, because nothing in it may ever change; of requests
and events only those are looked at that are new.
"""

from collections import Counter
from collections.abc import Sequence
from hashlib import blake2b

from msgspec import Struct, field

import contextc as cc
from contextc._json import decode
from contextc.compiler.compaction import LIVE_REQUEST
from contextc.compiler.history import HISTORY_TOOL_NAMES
from contextc.errors import ContextOverflow, ProviderFailed
from contextc.events import (
    AnyEvent,
    CompactionFinished,
    InputQueued,
    ReasoningDelta,
    RetryScheduled,
    StepFinish,
    StepStart,
    TextDelta,
    ToolCallDelta,
    TurnFinish,
    TurnStart,
)
from contextc.messages import Message, ToolCall
from contextc.store.turn_records import StepRecord
from tests.compiler.recorded_replay import begins_with, blocks
from tests.executor.random_user import LOCKED_OUT, Played, Restless
from tests.executor.recording_tools import Deed, Hands
from tests.fake_vendors import FakeVendors, Reply, RequestRecord
from tests.fake_vendors.vendor import vendor

RETRIES = 2
LEAST, LOW_MARK = 0.2, 0.75
"""Shares of the room there is: what has to be new before it is cut again, and how much a cut leaves, or a bit more."""
CLOCK = 0.02
"""Seconds by which two looks at the clock may differ."""


ASKS_FOR_SUMMARY = LIVE_REQUEST.partition(",")[0].encode()


class Sorted:
    """Records of the fake vendor by conversation: the system prompt contains its name. `others` are summaries."""

    def __init__(self, standin: FakeVendors) -> None:
        self.standin = standin
        self.found: dict[str, list[RequestRecord]] = {}
        self.others: list[RequestRecord] = []
        self._read = 0

    def of(self, conversation: str) -> list[RequestRecord]:
        records = self.standin.records
        until = len(records)
        for record in records[self._read : until]:
            _, mark, rest = record.raw.partition(b"conversation <")
            name = rest.partition(b">")[0].decode()
            is_summary = not mark or ASKS_FOR_SUMMARY in record.raw
            (self.others if is_summary else self.found.setdefault(name, [])).append(record)
        self._read = until
        return self.found.setdefault(conversation, [])


class Figures(Struct):
    """Counts of what happened in the turns."""

    turns: int = 0
    steps: int = 0
    calls: int = 0
    retries: int = 0
    compactions: int = 0
    finishes: Counter[str] = field(default_factory=Counter)
    epochs: Counter[str] = field(default_factory=Counter)


class Channel(Struct):
    """The last request of a channel; what there was room for when its epoch began, and how much of it was taken."""

    blocks: list[bytes]
    newest: int
    epoch: int
    available: int
    taken: int


class Audit:
    """One conversation."""

    def __init__(self, person: Restless, store: cc.Store, records: Sorted, hands: Hands, figures: Figures) -> None:
        self.person, self.store, self.records, self.hands, self.figures = person, store, records, hands, figures
        self.name = person.conversation
        self.messages: list[Message] = []
        self.told = self.started = self.cancelled = self.matched = self.steps = 0
        self.channels: dict[str, Channel] = {}
        self.bodies: list[tuple[cc.MessageCompiler, int, bytes]] = []

    def check(self, played: Played) -> None:
        """Everything, after a turn."""
        messages = self.store.load(self.name)
        assert messages[: len(self.messages)] == self.messages, "what was said has changed"
        self.messages = messages
        self._inputs()
        self._calls()
        self._requests()
        self._events(played)
        self._result(played)

    def _inputs(self) -> None:
        """Check that every input is stored once and in order, or is queued."""
        waiting = [each.message.text for each in self.store.queued(self.name)]
        there = [message.text for message in self.messages if message.role == "user"]
        assert sorted([*there, *waiting]) == sorted(said.text for said in self.person.said)
        at_once = [said.text for said in self.person.said if said.kind != "follow-up" and said.text not in waiting]
        assert [text for text in there if text in set(at_once)] == at_once

    # ── tools ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _calls(self) -> None:
        """Every call has one result, which says what the tool returned; no tool ran twice.

        A call is known by its turn and its step too: not every vendor gives calls names of their own.
        """
        calls = {(said.turn, said.step, call.id): call for said in self.messages for call in said.tool_calls}
        results = {(said.turn, said.step, part.call_id): part for said in self.messages for part in said.tool_results}
        assert len(calls) == sum(len(said.tool_calls) for said in self.messages), "two calls have one id"
        assert len(results) == sum(len(said.tool_results) for said in self.messages), "a call was answered twice"
        assert calls.keys() == results.keys(), "a call without a result, or a result without a call"
        deeds = self.hands.of(self.name)
        ran: dict[tuple[int | None, int | None, str], Deed] = {each.place: each for each in deeds}
        assert len(ran) == len(deeds), "a tool ran twice"
        assert ran.keys() <= calls.keys(), "a tool ran that nobody asked for"
        for place, result in results.items():
            assert result.name == calls[place].name
            if not result.is_error and result.name not in HISTORY_TOOL_NAMES:
                assert result.text == ran[place].returned
            elif place in ran:
                _is_reason(result.text, ran[place])

    # ── requests ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _requests(self) -> None:
        """Check that stored steps equal sent requests and replies; a prefix is stable until its end is announced."""
        records = self.records.of(self.name)
        stored = {message.seq: message for message in self.messages}
        steps = [step for step in self.store.steps(self.name) if step.state == "finished"]
        for step in steps[self.steps :]:
            compiler = self._compiler(step)
            body = compiler.rebuild(self.name, step.request)
            answered = (at for at in range(self.matched, len(records)) if records[at].status == 200)
            place = next((at for at in answered if records[at].raw == body), None)
            assert place is not None, f"request {step.request} is rebuilt as one that was never sent"
            self.matched = place + 1
            _is_said(stored[step.seq], records[place].reply)
            self.bodies.append((compiler, step.request, blake2b(body).digest()))
            self._prefix(compiler, step, body)
        self.steps = len(steps)
        replies = [message.seq for message in self.messages if message.role == "assistant" and message.status == "sent"]
        assert replies == [step.seq for step in steps], "a reply without its step, or a step without its reply"

    def look_back(self) -> None:
        """At the end, every request there was is still rebuilt as it was sent."""
        for compiler, request, digest in self.bodies:
            assert blake2b(compiler.rebuild(self.name, request)).digest() == digest, f"request {request} has changed"

    def _compiler(self, step: StepRecord) -> cc.MessageCompiler:
        found = [agent.compiler for agent in self.person.agents.values()]
        return next(
            each for each in found if (each.provider.name, each.provider.model_id) == (step.provider, step.model)
        )

    def _prefix(self, compiler: cc.MessageCompiler, step: StepRecord, body: bytes) -> None:
        name, manifest = f"{step.provider}:{step.model}", compiler.explain(self.name, step.request)
        now, before, budget = blocks(decode(body)), self.channels.get(name), manifest.budget
        newest = max(line.seq for line in manifest.lines)
        if before is None:
            self.channels[name] = Channel(now, newest, manifest.epoch, budget.available, budget.used)
            return
        assert (manifest.epoch > before.epoch) == bool(manifest.why)
        kept = begins_with(now, before.blocks)
        told = f"request {step.request} of {name}: {manifest.why or 'not a word'}"
        assert kept or manifest.why, told
        # A cut may find all that it leaves out in what is new. A summary may turn out not to be worth it.
        cut = manifest.why == "over budget" and any(line.why and line.seq > before.newest for line in manifest.lines)
        assert not kept or cut or manifest.why in ("", "compaction"), told
        before.blocks, before.newest = now, newest
        if manifest.why:
            more, room = budget.wanted - before.taken, budget.available
            summed_up = manifest.why == "compaction"  # by whichever model: a summary is the agent's
            crowded = before.taken > LOW_MARK * room or before.available != room  # more could not be left out then
            grown = f"{told}, too soon: from {before.taken} to {budget.wanted} of {room}"
            assert summed_up or crowded or more > LEAST * room, grown
            self.figures.epochs[f"{manifest.why}, and nothing changed" if kept else manifest.why] += 1
            before.epoch, before.available, before.taken = manifest.epoch, budget.available, budget.used

    # ── events ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _events(self, played: Played) -> None:
        """Check that events are numbered without gaps, replay as they were seen, and contain no wrong retry."""
        events = self.store.events(self.name, after=self.told)
        assert [event.number for event in events] == [*range(self.told + 1, self.told + 1 + len(events))]
        self.told += len(events)
        assert bool(played.events) == bool(played.result.turn)
        if not played.events:
            return
        first, last = played.events[0].number, played.events[-1].number
        assert list(played.events) == [event for event in events if first <= event.number <= last]
        assert isinstance(played.events[0], TurnStart)
        assert isinstance([event for event in played.events if not isinstance(event, InputQueued)][-1], TurnFinish)
        self._tries(played.events)
        self.started += sum(isinstance(event, StepStart) for event in events)
        self.cancelled += played.result.finish == "cancelled"
        sent = len(self.records.of(self.name))
        assert self.started - self.cancelled <= sent <= self.started, "more was sent than the executor knows of"

    def _tries(self, events: Sequence[AnyEvent]) -> None:
        starts = tries = 0
        speaking, waited = False, 0.0
        for event in events:
            match event:
                case StepStart():
                    starts, speaking = starts + 1, False
                    assert event.time / 1000 >= waited - CLOCK, "it did not wait as long as it said"
                    assert starts <= RETRIES + 2  # one more, where the provider found the request too long
                case StepFinish() | TurnFinish():
                    starts = tries = 0
                case TextDelta() | ToolCallDelta() | ReasoningDelta():
                    speaking = True
                case RetryScheduled():
                    tries += 1
                    assert not speaking, "the model had begun to speak"
                    assert event.kind in ("transient", "rate")
                    assert event.attempt == tries <= RETRIES
                    assert event.seconds >= self._asked_to_wait(event)
                    waited = event.time / 1000 + event.seconds
                    self.figures.retries += 1
                case CompactionFinished():
                    self.figures.compactions += 1
                case _:
                    pass

    def _asked_to_wait(self, event: RetryScheduled) -> float:
        """How many seconds the fake wanted to be left alone, with the answer that came before this."""
        records = self.records.of(self.name)
        last = next(record for record in reversed(records) if record.time <= event.time / 1000 + CLOCK)
        kind, _, seconds = last.fault.partition(" in ")
        return float(seconds) if kind == "rate" else 0.0

    def _result(self, played: Played) -> None:
        figures, result, error = self.figures, played.result, played.result.error
        figures.turns += 1
        figures.steps += result.steps
        figures.calls += result.tool_calls
        kind = error.kind if isinstance(error, ProviderFailed) else type(error).__name__
        figures.finishes[result.finish if error is None else f"error: {kind}"] += 1
        if played.who == LOCKED_OUT and result.finish == "error":
            assert kind == "auth"
        if isinstance(error, ContextOverflow):
            assert any(self._is_too_long(record, played) for record in self.records.of(self.name)), str(error)
        else:
            assert error is None or isinstance(error, ProviderFailed), repr(error)
        assert kind != "invalid", str(error)

    def _is_too_long(self, record: RequestRecord, played: Played) -> bool:
        """Whether a request of this turn was found too long, so that the rest of the turn has less room."""
        return record.fault == "too long" and record.time >= played.events[0].time / 1000 - CLOCK


def _is_said(message: Message, reply: Reply | None) -> None:
    """A message is what the model said, all of it and nothing else."""
    assert reply is not None
    assert message.text == (reply.text or "")
    assert [_meant(call) for call in message.tool_calls] == [(call.name, call.arguments) for call in reply.calls]


def _meant(call: ToolCall) -> tuple[str, object]:
    return call.name, call.raw if call.malformed else call.arguments


def _is_reason(text: str, deed: Deed) -> None:
    """A result that is not an answer says why: the tool failed, took too long, or was stopped."""
    stopped = "Interrupted: the turn ended" in text
    assert stopped or (deed.failed in text if deed.failed else deed.failed is not None and "had not ended" in text)


def mistaken(standin: FakeVendors) -> list[str]:
    """Return unexpected refusals and warnings of the fake vendor.

    A wrong key is sent on purpose. Arguments that are not JSON can only be reported, if a vendor accepts objects only.
    """
    refused = [record.refused for record in standin.refused if not record.refused.startswith("key")]
    odd = [said for record in standin.records for said in record.defects if not _is_told(said, record.format)]
    return [*refused, *odd]


def _is_told(defect: str, format: str) -> bool:
    return not vendor(format).free_arguments and "malformed_arguments" in defect
