"""`PrepareRequests`: requests within the window, the record of them, and the answers of an agent."""

import asyncio
import multiprocessing
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from openai import AsyncOpenAI
from pydantic_ai import Agent, AgentRunResult
from pydantic_ai.capabilities import ProcessHistory
from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import ConversationConflict
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.usage import RequestUsage

import contextc as cc
from contextc.adapters.history_functions import history_functions
from contextc.adapters.pydantic_ai import ContextcConversationStore, PrepareRequests
from contextc.adapters.pydantic_ai.message_conversion import convert_messages
from contextc.adapters.pydantic_ai.request_fitting import find_provider
from contextc.errors import ContextOverflow
from contextc.inspection.request_timeline import load_timeline
from tests.conftest import often
from tests.fake_vendors.fake import FakeVendors
from tests.fake_vendors.replies import Reply, ScriptedCall
from tests.fake_vendors.scripts import Scripted
from tests.fake_vendors.vendor import KEY

STEPS, PROCESSES, FULL = 14, 8, 60_000
SIZES = (40, 900, 150, 4_000, 20, 2_200)


@pytest.fixture
def store() -> Iterator[cc.Store]:
    with cc.open_store("memory:") as opened:
        yield opened


def look(number: int) -> str:
    """Look at a thing."""
    return f"thing {number}: " + "word " * (SIZES[number % len(SIZES)] // 5)


def count_returns(messages: list[ModelMessage]) -> int:
    return sum(isinstance(part, ToolReturnPart) for message in messages for part in message.parts)


class Script:
    """A model that makes `steps` calls, sometimes two at once, and keeps every request."""

    def __init__(self, steps: int = STEPS, *, reports: bool = False) -> None:
        self.steps, self.taken, self.reports = steps, 0, reports
        self.requests: list[list[ModelMessage]] = []
        self.error: Exception | None = None

    def __call__(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if self.error is not None:
            raise self.error
        self.requests.append(messages)
        self.taken += 1
        usage = RequestUsage(input_tokens=100 * self.taken, output_tokens=3) if self.reports else RequestUsage()
        if self.taken % (self.steps + 1) == 0:
            return ModelResponse(parts=[TextPart(f"done after {self.steps} steps")], usage=usage)
        calls = [ToolCallPart("look", {"number": self.taken}, tool_call_id=f"c{self.taken}")]
        if self.taken % 4 == 0:
            calls.append(ToolCallPart("look", {"number": self.taken + 1}, tool_call_id=f"d{self.taken}"))
        return ModelResponse(parts=[TextPart(f"step {self.taken}"), *calls], usage=usage)

    @property
    def model(self) -> FunctionModel:
        return FunctionModel(self)


def make_agent(script: Script, *capabilities: Any, **options: Any) -> Agent[None, str]:
    return Agent(script.model, tools=[look], capabilities=capabilities, **options)


def find_orphans(messages: list[ModelMessage]) -> list[str]:
    """The ids of calls and results whose counterpart is missing, or comes too early."""
    called: list[str] = []
    answered: list[str] = []
    early: list[str] = []
    for message in messages:
        for part in message.parts:
            if isinstance(part, ToolCallPart):
                called.append(part.tool_call_id)
            elif isinstance(part, ToolReturnPart):
                early += [part.tool_call_id] if part.tool_call_id not in called else []
                answered.append(part.tool_call_id)
    return [*early, *(id for id in called if answered.count(id) != 1)]


def parts_of(messages: list[ModelMessage]) -> list[object]:
    return [part for message in messages for part in message.parts]


def test_an_agent_gives_the_same_answers_with_the_capability(store: cc.Store) -> None:
    """Guarantee 21.4: where everything fits, the model gets the same messages."""
    alone, beside = Script(), Script()
    expected = make_agent(alone, instructions="Look.").run_sync("Look at all.")
    result = make_agent(beside, PrepareRequests(store, window=FULL), instructions="Look.").run_sync("Look at all.")
    assert result.output == expected.output
    assert len(result.all_messages()) == len(expected.all_messages())
    for ours, theirs in zip(beside.requests, alone.requests, strict=True):
        assert convert_messages(ours) == convert_messages(theirs)
    assert parts_of(beside.requests[-1]) == parts_of(result.all_messages()[:-1])


def test_the_conversation_and_its_requests_are_recorded(store: cc.Store) -> None:
    """Guarantee 21.6: messages, manifests and reported usage; a second run continues, and stores nothing twice."""
    script = Script(3, reports=True)
    agent = make_agent(script, PrepareRequests(store, window=FULL, agent="looker"), instructions="Look.")
    first = agent.run_sync("Look.", conversation=Conversation(conversation_id="demo"))
    second = agent.run_sync("Again.", conversation=first.conversation)
    recorded, expected = store.load("demo"), convert_messages(second.all_messages())
    assert [(each.role, each.text) for each in recorded] == [(each.role, each.text) for each in expected]
    assert [each.tool_results for each in recorded] == [each.tool_results for each in expected]
    assert len(store.branches("demo")) == 1
    rows = load_timeline(store, "demo")
    assert [row.record.usage.input for row in rows] == [100 * number for number in range(1, 9)]
    assert {row.channel.agent for row in rows} == {"looker"}


@pytest.mark.parametrize("window", range(900, 9_000, often(540, 60)))
def test_at_every_window_calls_and_results_are_together(store: cc.Store, window: int) -> None:
    """Guarantee 21.4: litellm#10696, langchain#38352: a cut must not separate a call from its result."""
    script = Script()
    agent = make_agent(script, PrepareRequests(store, window=window), system_prompt="Look closely.")
    try:
        result = agent.run_sync("Look at all.")
    except ContextOverflow:
        assert window < 4_000
    else:
        assert result.output == f"done after {STEPS} steps"
        assert count_returns(result.all_messages()) == count_returns(script.requests[0]) + STEPS + STEPS // 4
    for messages in script.requests:
        assert find_orphans(messages) == []
        assert parts_of(messages)[0] == SystemPromptPart("Look closely.", timestamp=parts_of(messages)[0].timestamp)
        assert any(isinstance(part, UserPromptPart) and part.content == "Look at all." for part in parts_of(messages))


def test_requests_are_trimmed_rarely(store: cc.Store) -> None:
    """Guarantee 21.5: between two cuts each request begins with the previous one."""
    script = Script(40)
    make_agent(script, PrepareRequests(store, window=9_000)).run_sync("Look at all.")
    requests = [convert_messages(each) for each in script.requests]
    cuts = [later[: len(before)] != before for before, later in pairwise(requests)]
    assert 0 < sum(cuts) <= 5


def test_a_failed_request_is_closed_and_the_next_run_continues(store: cc.Store) -> None:
    """Guarantee 21.6: pydantic-ai#4728: what failed must not make later requests fail."""
    script = Script(2)
    agent = make_agent(script, PrepareRequests(store, window=FULL))
    script.error = RuntimeError("the connection was lost")
    with pytest.raises(RuntimeError):
        agent.run_sync("Look.", conversation=Conversation(conversation_id="demo"))
    script.error = None
    result = agent.run_sync("Look.", conversation=Conversation(conversation_id="demo"))
    assert [each.text for each in store.load("demo")] == [each.text for each in convert_messages(result.all_messages())]


def test_a_history_that_another_capability_summarized_becomes_a_branch(store: cc.Store) -> None:
    """Guarantee 21.3: nothing that was recorded before the summary is lost."""

    def summarize(messages: list[ModelMessage]) -> list[ModelMessage]:
        if len(messages) < 12:
            return messages
        return [ModelRequest(parts=[UserPromptPart("Summary: all was round.")]), *messages[-2:]]

    script = Script(10)
    agent = make_agent(script, ProcessHistory(summarize), PrepareRequests(store, window=FULL))
    result = agent.run_sync("Look at all.", conversation=Conversation(conversation_id="demo"))
    assert [find_orphans(messages) for messages in script.requests] == [[]] * 11
    assert [each.text for each in store.load("demo")] == [each.text for each in convert_messages(result.all_messages())]
    branches = [store.load("demo", branch=each.number) for each in store.branches("demo")]
    calls = {call.id for messages in branches for message in messages for call in message.tool_calls}
    assert len(branches) > 1
    assert {f"c{number}" for number in range(1, 11)} <= calls


def test_streamed_replies_are_recorded(store: cc.Store) -> None:
    """Guarantee 21.6."""

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> Any:
        if count_returns(messages):
            yield "It is "
            yield "round."
        else:
            yield {0: DeltaToolCall("look", '{"number": 1}', tool_call_id="c1")}

    async def main() -> str:
        model = FunctionModel(stream_function=stream)
        agent = Agent(model, tools=[look], capabilities=[PrepareRequests(store, window=FULL)])
        async with agent.run_stream("Look.", conversation=Conversation(conversation_id="demo")) as run:
            return await run.get_output()

    assert asyncio.run(main()) == "It is round."
    assert [each.role for each in store.load("demo")] == ["user", "assistant", "tool", "assistant"]
    assert store.load("demo")[-1].text == "It is round."


def test_the_provider_is_that_of_the_model() -> None:
    """Guarantee 21.6: figures and costs are those of the model that served the request."""
    key = OpenAIProvider(api_key="none")
    assert find_provider(OpenAIResponsesModel("gpt-5.5", provider=key)) == cc.provider("openai:gpt-5.5")
    assert find_provider(OpenAIChatModel("gpt-4.1", provider=key)) == cc.provider("openai-chat:gpt-4.1")
    assert find_provider(FunctionModel(Script()), window=5_000).model.window == 5_000
    with pytest.raises(cc.errors.InvalidSetting, match="Pass window="):
        find_provider(FunctionModel(Script()))


def run_and_save(address: str, process: int) -> None:
    async def main() -> None:
        with cc.open_store(address) as store:
            conversations = ContextcConversationStore(store)
            agent = make_agent(Script(2), PrepareRequests(store, window=FULL))
            while True:
                conversation = await conversations.load("shared") or Conversation(conversation_id="shared")
                result = await agent.run(f"question {process}", conversation=conversation)
                try:
                    await conversations.save(result)
                    return
                except ConversationConflict:
                    continue

    asyncio.run(main())


def test_eight_processes_on_one_conversation_lose_nothing(shared_address: str) -> None:
    """Guarantee 21.3: a run that lost the race is on a branch of its own, and is repeated after the others."""
    cc.open_store(shared_address).close()
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=run_and_save, args=(shared_address, number)) for number in range(PROCESSES)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * PROCESSES
    with cc.open_store(shared_address) as store:
        loaded = asyncio.run(ContextcConversationStore(store).load("shared"))
        assert loaded is not None
        asked = [part.content for part in parts_of(loaded.messages) if isinstance(part, UserPromptPart)]
        assert sorted(asked) == sorted(f"question {number}" for number in range(PROCESSES))
        assert [each.text for each in store.load("shared")] == [each.text for each in convert_messages(loaded.messages)]
        assert isinstance(loaded.messages[0], ModelRequest)


def test_an_agent_searches_its_recorded_history(store: cc.Store) -> None:
    """Guarantee 22.3: pydantic-ai runs the functions as any other tool."""
    call = Reply(None, [ScriptedCall("search_history", {"query": "valve spring"})])

    async def ask(address: str) -> AgentRunResult[str]:
        async with AsyncOpenAI(base_url=address, api_key=KEY, max_retries=0) as client:
            model = OpenAIChatModel("gpt-4.1", provider=OpenAIProvider(openai_client=client))
            agent = Agent(model, tools=[*history_functions(store, "report")], capabilities=[PrepareRequests(store)])
            conversation = Conversation(conversation_id="report")
            first = await agent.run("The valve was replaced in spring.", conversation=conversation)
            return await agent.run("When was it replaced?", conversation=first.conversation)

    with FakeVendors(Scripted(["Noted.", call, "In spring."])) as fake:
        second = asyncio.run(ask(fake.url("openai_chat")))
        assert not fake.refused
    results = [part.content for part in parts_of(second.all_messages()) if isinstance(part, ToolReturnPart)]
    assert "r1 (user)\nThe valve was replaced in spring." in str(results[0])
    assert second.output == "In spring."
