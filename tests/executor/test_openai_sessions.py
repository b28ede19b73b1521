"""Turns in OpenAI's two kinds of sessions, with OpenAI's SDK and a fake that keeps sessions.

What counts is what the model sees in the end: what OpenAI holds of earlier requests, and what comes with this one. The
stand-in puts both together for every request, and its script writes them down. Each message of ours is to be in there
once, whatever went wrong before.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import cast

import pytest

import contextc as cc
from contextc._json import JSONObject, decode
from contextc.compiler.manifest import Manifest
from contextc.errors import ContextcError, ProviderFailed
from contextc.events import AnyEvent, RetryScheduled, StepStart
from contextc.formats.base import Request
from contextc.messages import Message
from contextc.triggers import TriggerContext, trigger
from tests.conftest import often, some
from tests.executor.scripted_provider import played
from tests.fake_vendors import (
    KEY,
    AcceptedRequest,
    FakeVendors,
    RandomFaults,
    Reply,
    RequestRecord,
    ScriptedCall,
    faults,
    listed,
)
from tests.fake_vendors.faults import QUICK
from tests.fake_vendors.vendors._openai_state import Kept

FORMAT, VARIABLE = "openai_responses", "CONTEXTC_STANDIN_KEY"
SESSION, CONVERSATION = KINDS = ("openai-session", "openai-conversation")
LOST, DOUBTFUL = "the provider no longer has the session", "an earlier prompt may be in the session"
UNNAMED = "the last reply came without a session"
TURNS, ROOMS = often(18, 30), 3
KINDS_OF_FAULTS = often(4, 6)


class Model:
    """A script that calls the tool once for each message, then answers. `seen` has the requests."""

    def __init__(self) -> None:
        self.seen: list[Request] = []

    def __call__(self, ask: AcceptedRequest) -> Reply:
        self.seen.append(ask.request)
        seen = ask.request.messages
        last = next(message for message in reversed(seen) if message.role in ("user", "tool"))
        if last.role == "tool":
            return Reply(f"Answer {len(self.seen)}.", reasoning="Hm.")
        return Reply(calls=[ScriptedCall("look", {"thing": last.text})], reasoning="Let me look.")


class Room:
    """A fake vendor, and an agent in a conversation. The system prompt contains its name."""

    def __init__(
        self,
        standin: FakeVendors,
        model: Model,
        store: cc.Store,
        name: str,
        conversation: str = "demo",
        settings: JSONObject | None = None,
    ) -> None:
        self.standin, self.model, self.store, self.name, self.conversation = standin, model, store, name, conversation
        self.prompt = f"You look at things in {conversation}."
        self.while_looking: Callable[[], None] = lambda: None
        self.provider = cc.provider(f"{name}:gpt-5.6", url=standin.url(FORMAT), key=VARIABLE)
        self.agent = cc.AgentExecutor(
            store,
            self.provider,
            tools=[self.look],
            triggers=[reminder],
            instructions=self.prompt,
            settings=settings,
        )

    def look(self, thing: str) -> str:
        """Look at a thing."""
        self.while_looking()
        return f"{thing} is round."

    @property
    def kept(self) -> Kept:
        return cast(Kept, self.standin.memory(FORMAT))

    @property
    def contexts(self) -> list[Sequence[Message]]:
        """What the model has seen of this conversation, request by request."""
        seen = self.model.seen
        return [request.messages for request in seen if request.system and request.system.text == self.prompt]

    @property
    def asked(self) -> list[RequestRecord]:
        """The requests that a model was asked with, without those that begin a conversation."""
        return [record for record in self.standin.records if record.path == "/v1/responses"]

    def say(self, *texts: str) -> list[AnyEvent]:
        """Run several turns; before each but the first a note is appended."""

        async def all_of_them() -> list[AnyEvent]:
            events: list[AnyEvent] = []
            async with self.agent:
                for text in texts:
                    if self.contexts:
                        self.store.append(self.conversation, cc.system(f"Note for: {text}"))
                    events += await played(self.agent, self.conversation, text)
            return events

        return asyncio.run(all_of_them())

    def lose(self) -> None:
        """OpenAI no longer has what it kept."""
        self.kept.responses.clear()
        self.kept.conversations.clear()

    def check(self) -> None:
        """Everything that was said is in what the model saw last, once and in order, and nothing was ever doubled."""
        stored = self.store.load(self.conversation)
        assert told(self.contexts[-1]) == told(stored)[: -1 if stored[-1].role == "assistant" else None]
        for context in self.contexts:
            assert [text for text, times in Counter(ours(context)).items() if times > 1] == []
            assert ours(context) == ours(stored)[: len(ours(context))]
        assert self.standin.defects == []


@trigger("reminder")
def reminder(moment: TriggerContext) -> str | None:
    return f"Reminder {moment.turn}: you have looked." if moment.step == 2 else None


def told(messages: Sequence[Message]) -> list[tuple[str, str]]:
    """Return texts, calls and results with their roles."""
    return [
        (message.role, message.text or "".join(f"{part.name} {part.arguments}" for part in message.tool_calls))
        if message.role != "tool"
        else ("tool", "".join(part.text for part in message.tool_results))
        for message in messages
    ]


def ours(messages: Sequence[Message]) -> list[str]:
    """What people and triggers said. No two of them are the same."""
    return [message.text for message in messages if message.role in ("user", "system")]


def starts(events: Sequence[AnyEvent]) -> list[tuple[str, str]]:
    return [(event.mode, event.why) for event in events if isinstance(event, StepStart)]


@pytest.fixture
def model() -> Model:
    return Model()


@pytest.fixture
def standin(model: Model, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeVendors]:
    monkeypatch.setenv(VARIABLE, KEY)
    with FakeVendors(model) as running:
        yield running


@pytest.fixture
def on_disk(tmp_path: Path) -> Iterator[cc.Store]:
    with cc.open_store(f"sqlite:///{tmp_path / 'sessions.db'}") as opened:
        yield opened


@pytest.fixture(params=KINDS)
def room(request: pytest.FixtureRequest, standin: FakeVendors, model: Model, on_disk: cc.Store) -> Room:
    return Room(standin, model, on_disk, request.param)


def test_ten_turns_with_notes_and_tools_in_one_session(room: Room) -> None:
    """Guarantee 9.4: every message reaches the model once, and a request holds only what is new."""
    events = room.say(*[f"thing {number}" for number in range(10)])
    assert starts(events) == [("full", "first request"), *[("resume", "")] * 19]
    assert len(room.contexts) == 20
    assert room.standin.refused == []
    items = [len(decode(record.raw)["input"]) for record in room.asked]
    assert items == [1, *[2] * 19]  # a note and a question; a result and a reminder
    lengths = [len(record.raw) for record in room.asked]
    assert max(lengths[2:]) - min(lengths[2:]) < 150
    room.check()
    held = room.kept.conversations if room.name == CONVERSATION else {"": [*room.kept.responses.values()][-1]}
    (items,) = held.values()
    said = [str(item["content"]) for item in items if item["type"] == "message" and item["role"] != "assistant"]
    assert len(said) == len(set(said)) == 29


def test_a_session_that_openai_has_lost_is_replaced_with_the_whole_context(room: Room) -> None:
    """Guarantees 9.5, 9.6: in the same step, announced, and gone on with afterwards."""
    room.say("the moon", "the sun")
    room.lose()
    events = room.say("the earth")
    assert starts(events) == [("resume", ""), ("full", LOST), ("resume", "")]
    assert room.agent.compiler.explain("demo", 5).why == LOST
    assert starts(room.say("mars")) == [("resume", "")] * 2
    assert [record.status for record in room.standin.refused] == [400 if room.name == SESSION else 404]
    room.check()


def test_a_session_that_is_lost_between_a_call_and_its_result(room: Room) -> None:
    """Guarantees 5.1, 9.6: the call goes along with its result into the new session."""
    room.say("the moon")
    room.while_looking = room.lose
    events = room.say("the sun")
    assert starts(events) == [("resume", ""), ("resume", ""), ("full", LOST)]
    room.check()


def test_a_provider_that_is_overloaded_is_asked_again(room: Room) -> None:
    """Guarantee 9.8: whether a conversation holds a prompt that failed cannot be known, so a new one begins. A response
    is continued from the one before it, as if nothing had been.
    """
    room.say("the moon")
    room.standin.desk.faults = listed(None, None, faults.overloaded())
    events = room.say("the sun")
    tries = [("resume", ""), ("resume", "") if room.name == SESSION else ("full", DOUBTFUL)]
    assert starts(events) == [*tries, ("resume", "")]
    assert [event.kind for event in events if isinstance(event, RetryScheduled)] == ["transient"]
    assert len(room.kept.conversations) == (2 if room.name == CONVERSATION else 0)
    room.check()


@pytest.mark.parametrize("number", range(2))
def test_a_reply_that_was_cut_off_is_not_in_the_way_of_the_next_turn(room: Room, number: int) -> None:
    """Guarantee 9.8: once is better than twice or never, whether OpenAI has completed the reply or not."""
    room.say("the moon", *[f"star {each}" for each in range(number)])
    room.standin.desk.faults = listed(*[None] * (2 * number + 3), faults.cut(0.8))
    with pytest.raises(ProviderFailed):
        room.say("the sun")
    assert room.store.load("demo")[-1].status == "error"
    events = room.say("mars")
    assert starts(events)[0] == (("resume", "") if room.name == SESSION else ("full", DOUBTFUL))
    assert room.agent.compiler.explain("demo").mode == "resume"
    assert ours(room.contexts[-1]) == ours(room.store.load("demo"))
    assert room.standin.refused == []


@pytest.mark.parametrize("who", ["the caller", "the organization", "an organization that does not say so"])
def test_where_nothing_is_stored_every_request_is_whole(
    who: str, standin: FakeVendors, model: Model, on_disk: cc.Store
) -> None:
    """Guarantees 9.4, 9.5: if OpenAI stores nothing, no content is lost, and the epoch states the reason."""
    settings = {"store": False} if who == "the caller" else {}
    room = Room(standin, model, on_disk, SESSION, settings=settings)
    room.kept.forgets, room.kept.owns_up = who != "the caller", who == "the organization"
    events = room.say("the moon", "the sun")
    if who == "an organization that does not say so":
        assert starts(events) == [("full", "first request"), *[("resume", ""), ("full", LOST)] * 3]
    else:
        assert starts(events) == [("full", "first request"), *[("full", UNNAMED)] * 3]
        assert standin.refused == []
    room.check()


# ── random faults ─────────────────────────────────────────────────────────────────────────────────────────────────────


class Person:
    """Says something, and leaves notes; may lose patience, and have OpenAI forget."""

    def __init__(self, room: Room, seed: int) -> None:
        self.room, self.chance = room, Random(seed)

    async def turn(self, number: int) -> None:
        room, chance = self.room, self.chance
        if number and chance.random() < 0.4:
            room.store.append(room.conversation, cc.system(f"Note {number}."))
        if chance.random() < 0.15:
            room.lose()
        turn = room.agent.start(room.conversation, f"thing {number}")
        patience = chance.randint(1, 12) if chance.random() < 0.2 else None
        try:
            seen = 0
            async for _ in turn.events():
                seen += 1
                if seen == patience:
                    turn.cancel()
        except ContextcError:
            pass  # a line that was cut
        await turn.wait()


@pytest.mark.parametrize("name", some(KINDS, 1))
def test_nothing_is_lost_or_doubled_with_random_faults(
    name: str, standin: FakeVendors, model: Model, on_disk: cc.Store
) -> None:
    """Guarantees 9.6 to 9.8: in several conversations at once, for everything that the model has ever seen."""
    rooms = [Room(standin, model, on_disk, name, f"room {number}") for number in range(ROOMS)]
    standin.desk.faults = RandomFaults(5, share=0.3, draws=QUICK)

    def find_faults() -> Counter[str]:
        return Counter(record.fault for record in standin.records if record.fault)

    async def live(room: Room, seed: int) -> None:
        """Take some turns, and more of them until the weather has been varied enough."""
        person = Person(room, seed)
        async with room.agent:
            number = 0
            while number < TURNS // ROOMS or (len(find_faults()) < KINDS_OF_FAULTS and number < TURNS):
                await person.turn(number)
                number += 1

    async def all_of_them() -> None:
        await asyncio.gather(*(live(room, seed) for seed, room in enumerate(rooms)))

    asyncio.run(all_of_them())
    met = find_faults()
    standin.desk.faults = None
    whys = Counter(manifest.why for room in rooms for manifest in _manifests(room))
    for room in rooms:
        room.say("the last thing")
        _is_whole(room)
    assert whys.keys() <= {"", "first request", LOST, DOUBTFUL}
    assert whys[""] > TURNS // 3
    assert whys[LOST]
    assert (DOUBTFUL in whys) is (name == CONVERSATION)
    assert all("not found" in record.refused for record in standin.refused)
    assert standin.defects == []
    assert len(met) >= KINDS_OF_FAULTS


def _is_whole(room: Room) -> None:
    """The model has seen everything at last, nothing of it twice, and every call with its result."""
    stored = ours(room.store.load(room.conversation))
    assert ours(room.contexts[-1]) == stored
    for context in room.contexts:
        assert ours(context) == stored[: len(ours(context))]
        results = Counter(part.call_id for message in context for part in message.tool_results)
        assert results.keys() == {call.id for message in context for call in message.tool_calls}
        assert set(results.values()) <= {1}


def _manifests(room: Room) -> list[Manifest]:
    (known,) = cc.SessionManager(room.store).sessions(room.conversation)
    return [room.agent.compiler.explain(room.conversation, number) for number in range(1, known.requests + 1)]
