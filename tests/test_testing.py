"""`contextc.testing`: a fake model in place of a provider, and an agent whose model a test replaces."""

import asyncio
from pathlib import Path

import msgspec
import pytest

import contextc as cc
from contextc.errors import InvalidSetting, ProviderFailed
from contextc.formats.base import Request
from contextc.testing import FakeModel

pytest_plugins = ["pytester"]


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


CALL = cc.tool_call("c1", "add", {"a": 1, "b": 2})
PROVIDERS = (
    *("anthropic:claude-opus-5-5", "openai:gpt-5.5", "openai-chat:gpt-4o", "gemini:gemini-3-pro"),
    *("bedrock:us.anthropic.claude-sonnet-4-5-20250929-v1:0", "ollama:llama3", "mistral:mistral-large-latest"),
)


def test_it_answers_in_order_and_keeps_what_was_sent() -> None:
    model = FakeModel(CALL, "It is 3.")
    agent = cc.Agent(model, tools=[add], instructions="Be brief.")
    result = agent.run_sync("1 + 2?")
    assert (result.text, result.steps, result.tool_calls) == ("It is 3.", 2, 1)
    assert [message.role for message in model.requests[1].messages] == ["user", "assistant", "tool"]
    assert model.requests[1].messages[-1].tool_results[0].text == "3"
    assert model.requests[0].system is not None
    assert model.requests[0].system.text == "Be brief."
    assert "add" in [tool.name for tool in model.requests[0].tools if isinstance(tool, cc.Tool)]
    assert result.usage.input > 0
    assert model.unused == 0


@pytest.mark.parametrize("provider", PROVIDERS)
def test_it_stands_for_a_model_of_any_provider_that_is_called_directly(provider: str) -> None:
    """Text and calls of one reply arrive, and the request has the provider's form."""
    model = FakeModel(["I add.", CALL], cc.assistant("It is 3."), provider=provider)
    result = cc.Agent(model, tools=[add]).run_sync("1 + 2?")
    assert [message.text for message in result.messages] == ["1 + 2?", "I add.", "", "It is 3."]
    assert result.finish == "stop"


@pytest.mark.parametrize("provider", ["claude-code:default", "codex:default"])
def test_programs_cannot_be_faked(provider: str) -> None:
    with pytest.raises(InvalidSetting, match=r"replies of '.*' cannot be made"):
        FakeModel("Hello.", provider=provider)


def test_a_function_sees_the_request_and_answers_all_of_them() -> None:
    def answer(request: Request) -> str:
        return f"{len(request.messages)}: {request.messages[-1].text}"

    agent = cc.Agent(FakeModel(answer))
    assert agent.run_sync("one", conversation="demo").text == "1: one"
    assert agent.run_sync("two", conversation="demo").text == "3: two"


def test_an_error_is_raised_as_a_provider_would_fail() -> None:
    model = FakeModel(ProviderFailed("fake", "quota", "no credit left"), "Better.")
    agent = cc.Agent(model)
    with pytest.raises(ProviderFailed, match="no credit left"):
        agent.run_sync("hi", conversation="demo")
    assert agent.run_sync("again", conversation="demo").text == "Better."


def test_a_request_without_an_answer_says_how_many_were_given() -> None:
    with pytest.raises(ProviderFailed, match="no answer to request 2: 1 were given"):
        cc.Agent(FakeModel(CALL), tools=[add]).run_sync("1 + 2?")


@pytest.mark.parametrize("answer", [7, cc.user("no"), ["text", 7]])
def test_an_answer_that_is_none_is_refused_when_it_is_given(answer: object) -> None:
    with pytest.raises(InvalidSetting, match="answer 1 must be a text, a tool call"):
        FakeModel(answer)  # pyright: ignore[reportArgumentType]


def test_typed_answers_are_read_from_text() -> None:
    class Person(msgspec.Struct):
        name: str

    agent = cc.Agent(FakeModel('{"name": "Ann"}'), output_type=Person)
    assert agent.run_sync("Who?").output == Person("Ann")


def test_an_agent_answers_with_another_model_and_store_inside_the_block(tmp_path: Path) -> None:
    agent = cc.Agent("anthropic:claude-opus-5-5", tools=[add], instructions="Be brief.")
    model = FakeModel(CALL, "It is 3.")
    with agent.override(model, store=tmp_path / "test.db"):
        assert agent.run_sync("1 + 2?", conversation="demo").text == "It is 3."
        assert [each.name for each in agent.store.conversations()] == ["demo"]
        assert agent.executor.provider.name == "fake"
    assert agent.executor.provider.name == "anthropic"
    assert agent.store.conversations() == []
    assert model.requests[0].system is not None


def test_a_program_that_closes_its_agent_leaves_the_store_of_the_test_open(tmp_path: Path) -> None:
    """A test reads what was stored after the program has run, also if the store is its own."""
    agent = cc.Agent("anthropic:claude-opus-5-5", store=tmp_path / "agent.db")

    async def program() -> None:
        async with agent:
            await agent.run("hi", conversation="demo")

    with cc.open_store("memory:") as store:
        with agent.override(FakeModel("Hello."), store=store):
            asyncio.run(program())
        assert [message.text for message in store.load("demo")] == ["hi", "Hello."]
    with agent.override(FakeModel("Hello."), store="memory:"):
        asyncio.run(program())
        assert [message.text for message in agent.store.load("demo")] == ["hi", "Hello."]
    assert agent.store.conversations() == []
    asyncio.run(agent.close())
    with pytest.raises(cc.errors.StoreUnavailable):
        agent.store.conversations()


def test_an_override_ends_with_its_block_and_does_not_reach_other_tasks() -> None:
    """Agents are often made once, for all tests and requests of a program."""
    agent = cc.Agent(FakeModel("outer", "outer"))

    async def overridden(inside: asyncio.Event, done: asyncio.Event) -> str:
        with agent.override(FakeModel("inner")):
            inside.set()
            await done.wait()
            return (await agent.run("hi")).text

    async def both() -> list[str]:
        inside, done = asyncio.Event(), asyncio.Event()
        task = asyncio.create_task(overridden(inside, done))
        await inside.wait()
        outer = (await agent.run("hi")).text
        done.set()
        return [outer, await task, (await agent.run("hi")).text]

    assert asyncio.run(both()) == ["outer", "inner", "outer"]


def test_a_client_without_a_provider_is_no_model() -> None:
    class Plain(FakeModel):
        answers_for = None

        def __init__(self) -> None:
            pass

    with pytest.raises(InvalidSetting, match="names no provider"):
        cc.Agent(Plain())
    with pytest.raises(InvalidSetting, match="names another one"):
        cc.Agent(FakeModel("x"), endpoint=FakeModel("y"))


def test_the_fixture_reports_answers_that_were_not_asked_for(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import contextc as cc

        def test_used(fake_model):
            assert cc.Agent(fake_model("Hello.")).run_sync("hi").text == "Hello."

        def test_unused(fake_model):
            fake_model("Hello.", "never")
        """
    )
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider")
    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(["*2 of the answers of a fake model were not asked for*"])
