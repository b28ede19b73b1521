"""The conversation store, compared with pydantic-ai's own store in memory."""

import asyncio
import multiprocessing
import random
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

import pytest
from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationEntry,
    ConversationRecord,
    ConversationStore,
    InMemoryConversationStore,
)
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import (
    BinaryImage,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.tools import DeferredToolRequests
from pydantic_ai.usage import RequestUsage, RunUsage

import contextc as cc
from contextc.adapters.pydantic_ai import ContextcConversationStore
from contextc.adapters.pydantic_ai.message_conversion import convert_messages
from tests.conftest import often

PROCESSES, SAVES = 8, 6
NAMES = ("a", "b", "c", "d")


class Compared(ConversationStore):
    """Calls the primitives of two stores, and compares what they return and raise."""

    def __init__(self, ours: ConversationStore) -> None:
        self.ours, self.theirs = ours, InMemoryConversationStore()

    async def _both(self, name: str, *values: object, **named: object) -> object:
        outcomes: list[tuple[str, object]] = []
        for store in (self.theirs, self.ours):
            try:
                outcomes.append(("returned", await getattr(store, name)(*values, **named)))
            except (ConversationConflict, KeyError) as error:
                outcomes.append(("raised", error))
        (how, expected), (ours_how, got) = outcomes
        if how == "raised":
            assert (ours_how, type(got)) == (how, type(expected)), (name, values, expected, got)
            raise expected
        assert (ours_how, got) == (how, expected), (name, values)
        return got

    async def read_record(self, conversation_id: str) -> ConversationRecord | None:
        return await self._both("read_record", conversation_id)

    async def read_records(self, *, scope: str | None = None, limit: int | None = None) -> Sequence[ConversationRecord]:
        return await self._both("read_records", scope=scope, limit=limit)

    async def write_record(self, record: ConversationRecord, **named: object) -> None:
        await self._both("write_record", record, **named)

    async def delete_record(self, conversation_id: str, *, expected_revision: str) -> None:
        await self._both("delete_record", conversation_id, expected_revision=expected_revision)

    async def read_entry(self, entry_id: str) -> ConversationEntry:
        return await self._both("read_entry", entry_id)

    async def read_history(self, head_id: str | None, *, limit: int | None = None) -> list[ConversationEntry]:
        return await self._both("read_history", head_id, limit=limit)


def random_messages(chance: random.Random) -> list[ModelMessage]:
    """Some messages as a run adds them: a prompt, perhaps calls with results, an answer."""
    number = chance.randrange(10**6)
    picture = BinaryImage(data=bytes([number % 256]) * 9, media_type="image/png")
    content = chance.choice([f"question {number}", [f"see {number}", picture]])
    found: list[ModelMessage] = [
        ModelRequest(parts=[UserPromptPart(content)], instructions="Be brief.", run_id=f"run {number}")
    ]
    if chance.random() < 0.2:
        found[0] = replace(found[0], parts=[SystemPromptPart("You are a test."), *found[0].parts])
    for step in range(chance.randrange(3)):
        calls = [f"call_{number}_{step}_{each}" for each in range(chance.choice((1, 1, 2)))]
        thought = ThinkingPart("hm", signature="c2ln", provider_name="anthropic", id="t")
        parts = [ToolCallPart("look", chance.choice(['{"at": 1}', {"at": [1, None]}]), tool_call_id=id) for id in calls]
        usage = RequestUsage(input_tokens=number, output_tokens=7, details={"reasoning_tokens": 3})
        found.append(ModelResponse(parts=[thought, *parts], usage=usage, model_name="m", provider_name="anthropic"))
        results = [ToolReturnPart("look", chance.choice(["ok", {"x": 1}, [1, 2]]), tool_call_id=id) for id in calls]
        found.append(ModelRequest(parts=results))
    found.append(ModelResponse(parts=[TextPart(f"answer {number}")], finish_reason="stop"))
    return found


class RandomUser:
    """Uses a conversation store as applications do, in random order, also with outdated copies."""

    def __init__(self, seed: int, store: ConversationStore) -> None:
        self.chance, self.store = random.Random(seed), store
        self.held: list[Conversation] = []
        self.seen: list[str] = []

    async def act(self) -> None:
        action = self.chance.choice(
            [self.start, self.save, self.save, self.save, self.rewrite, self.branch, self.fork, self.load, self.delete]
        )
        with suppress(ConversationConflict, UserError):
            await action()

    def scope(self) -> str | None:
        return self.chance.choice([None, None, "ann", "bob"])

    async def start(self) -> None:
        usage = RunUsage(requests=1, input_tokens=5)
        conversation = Conversation(
            messages=random_messages(self.chance), conversation_id=self.chance.choice(NAMES), usage=usage
        )
        await self.store.save(conversation, scope=self.scope())
        self.held.append(conversation)

    async def save(self) -> None:
        if self.held:
            conversation = self.chance.choice(self.held)
            conversation.messages += random_messages(self.chance)
            if self.chance.random() < 0.3:
                call = ToolCallPart("pay", {"amount": 5}, tool_call_id="p1")
                conversation.deferred_tool_requests = DeferredToolRequests(approvals=[call], metadata={"p1": {"a": 1}})
            self.seen += [entry.id for entry in await self.store.save(conversation, scope=self.scope())]

    async def rewrite(self) -> None:
        if self.held:
            conversation = self.chance.choice(self.held)
            keep = self.chance.randrange(len(conversation.messages) + 1)
            conversation.messages = [*conversation.messages[:keep], *random_messages(self.chance)]
            await self.store.save(conversation)

    async def branch(self) -> None:
        if self.held:
            old = self.chance.choice(self.held)
            point = {"at": self.chance.randrange(6)} if self.chance.random() < 0.6 or not self.seen else {}
            point = point or {"from_entry": self.chance.choice(self.seen)}
            self.held.append(
                await self.store.branch(
                    old.conversation_id, expected_revision=old.revision, scope=self.scope(), **point
                )
            )

    async def fork(self) -> None:
        at = self.chance.choice([None, self.chance.randrange(6)])
        name = self.chance.choice([*NAMES, f"fork {self.chance.randrange(99)}"])
        self.held.append(await self.store.fork(self.chance.choice(NAMES), at=at, new_conversation_id=name))

    async def load(self) -> None:
        limit = self.chance.choice([None, None, 0, 1, 3])
        loaded = await self.store.load(self.chance.choice(NAMES), limit=limit, scope=self.scope())
        if loaded is not None:
            self.held.append(loaded)
        await self.store.list_conversations(scope=self.scope(), limit=self.chance.choice([None, 1, 2]))

    async def delete(self) -> None:
        if self.chance.random() < 0.4:
            await self.store.delete(self.chance.choice(NAMES), scope=self.scope())


@pytest.mark.parametrize("seed", range(often(8, 60)))
def test_random_use_is_that_of_the_store_in_memory(store: cc.Store, seed: int) -> None:
    """Guarantee 21.1: every primitive returns and raises what pydantic-ai's own store does."""

    async def main() -> None:
        compared = Compared(ContextcConversationStore(store))
        user = RandomUser(seed, compared)
        for _ in range(60):
            await user.act()
        for record in await compared.list_conversations():
            for tip in [record.head_id, *record.branches]:
                history = await compared.read_history(tip)
                for entry in history:
                    await compared.read_entry(entry.id)

    asyncio.run(main())


def test_what_is_saved_is_a_conversation_of_contextc_too(store: cc.Store) -> None:
    """Guarantee 21.1: the messages are recorded once, in order; a fork is a fork, and a rewritten history a branch."""

    async def main() -> None:
        conversations = ContextcConversationStore(store)
        chance = random.Random(5)
        conversation = Conversation(messages=random_messages(chance), conversation_id="demo")
        await conversations.save(conversation)
        conversation.messages += random_messages(chance)
        await conversations.save(conversation)
        await conversations.save(conversation)
        expected = convert_messages(conversation.messages)
        assert [each.role for each in store.load("demo")] == [each.role for each in expected]
        assert [each.text for each in store.load("demo")] == [each.text for each in expected]

        await conversations.fork("demo", at=1, new_conversation_id="fork")
        assert store.conversation("fork").root == store.conversation("demo").root

        branched = await conversations.branch("demo", at=1, expected_revision=conversation.revision)
        branched.messages.append(ModelResponse(parts=[TextPart("another answer")]))
        await conversations.save(branched)
        assert store.load("demo")[-1].text == "another answer"
        assert len(store.branches("demo")) == 2

        await conversations.delete("demo")
        assert [each.name for each in store.conversations()] == ["fork"]
        assert (await conversations.load("fork")) is not None

    asyncio.run(main())


def test_another_process_gets_equal_messages_back(shared_address: str) -> None:
    """Guarantee 21.1: also bytes, signatures, usage and instructions."""
    messages = random_messages(random.Random(11))

    async def load_again() -> Conversation | None:
        with cc.open_store(shared_address) as store:
            return await ContextcConversationStore(store).load("demo")

    async def save() -> None:
        with cc.open_store(shared_address) as store:
            await ContextcConversationStore(store).save(Conversation(messages=messages, conversation_id="demo"))

    asyncio.run(save())
    loaded = asyncio.run(load_again())
    assert loaded is not None
    assert loaded.messages == messages


def test_a_redacted_message_is_gone_from_the_history(store: cc.Store) -> None:
    """Guarantee 21.1: redaction removes the copy that pydantic-ai would load; the conversation goes on."""

    async def main() -> None:
        conversations = ContextcConversationStore(store)
        asked = ModelRequest(parts=[UserPromptPart("my number is 12345")])
        answered = ModelResponse(parts=[TextPart("noted")])
        await conversations.save(Conversation(messages=[asked, answered], conversation_id="demo"))
        store.redact("demo", 1)
        loaded = await conversations.load("demo")
        assert loaded is not None
        assert "12345" not in repr(loaded.messages)
        assert [type(each) for each in loaded.messages] == [ModelRequest, ModelResponse]
        loaded.messages.append(ModelRequest(parts=[UserPromptPart("go on")]))
        await conversations.save(loaded)
        assert store.load("demo")[-1].text == "go on"
        assert store.conversation("demo").length == 3

    asyncio.run(main())


def save_repeatedly(address: str, process: int) -> None:
    async def main() -> None:
        with cc.open_store(address) as store:
            conversations = ContextcConversationStore(store)
            for number in range(SAVES):
                while True:
                    conversation = await conversations.load("shared") or Conversation(conversation_id="shared")
                    text = f"{process}-{number}"
                    conversation.messages.append(ModelRequest(parts=[UserPromptPart(text)]))
                    conversation.messages.append(ModelResponse(parts=[TextPart(f"answer {text}")]))
                    try:
                        await conversations.save(conversation)
                        break
                    except ConversationConflict:
                        continue

    asyncio.run(main())


def test_eight_processes_lose_nothing_and_store_nothing_twice(shared_address: str) -> None:
    """Guarantee 21.3: langgraph#8115, adk-python#4751: concurrent runs on one conversation lose messages."""
    cc.open_store(shared_address).close()
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=save_repeatedly, args=(shared_address, number)) for number in range(PROCESSES)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * PROCESSES

    async def load() -> Conversation | None:
        return await ContextcConversationStore(store).load("shared")

    with cc.open_store(shared_address) as store:
        loaded = asyncio.run(load())
        assert loaded is not None
        texts = [message.text for message in store.load("shared") if message.role == "user"]
        assert convert_messages(loaded.messages)[0].text in texts
        asked = [part.content for each in loaded.messages for part in each.parts if isinstance(part, UserPromptPart)]
        assert sorted(asked) == sorted(f"{process}-{number}" for process in range(PROCESSES) for number in range(SAVES))
        assert texts == asked
