"""Several models for one agent: the next one goes on with the turn where one fails for good."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

import contextc as cc
from contextc._json import JSONObject
from contextc.errors import InvalidSetting, ProviderFailed
from contextc.events import RetryScheduled, StepStart
from contextc.providers.client import ProviderCall
from contextc.testing import FakeModel

CALL = cc.tool_call("c1", "add", {"a": 1, "b": 2})
ANTHROPIC, OPENAI = "anthropic:claude-opus-5-5", "openai:gpt-5.5"


def failure(kind: Any = "quota") -> ProviderFailed:
    return ProviderFailed("fake", kind, "no credit left")


class Tools:
    def __init__(self) -> None:
        self.ran = 0

    def add(self, a: int, b: int) -> int:
        """Add."""
        self.ran += 1
        return a + b


@pytest.mark.parametrize("kind", ["quota", "auth", "context"])
def test_the_next_model_answers_and_nothing_is_stored_twice(kind: str) -> None:
    first, second = FakeModel(failure(kind), failure(kind), provider=ANTHROPIC), FakeModel("Hello.", provider=OPENAI)
    agent = cc.Agent([first, second])
    result = agent.run_sync("hi", conversation="demo")
    assert (result.text, result.model) == ("Hello.", "gpt-5.5")
    assert [message.text for message in agent.store.load("demo")] == ["hi", "Hello."]
    (turn,) = agent.store.turns("demo")
    assert (turn.finish, turn.steps) == ("stop", 1)


def test_in_the_middle_of_a_turn_no_tool_runs_again() -> None:
    """The reply of the first model, with its call, and the result are what the second one reads."""
    tools = Tools()
    reasoned = cc.assistant(["Let me add.", CALL], reasoning=cc.Reasoning(text="Easy.", signature="c2ln"))
    first, second = FakeModel(reasoned, failure(), provider=ANTHROPIC), FakeModel("It is 3.", provider=OPENAI)
    agent = cc.Agent([first, second], tools=[tools.add])
    result = agent.run_sync("1 + 2?", conversation="demo")
    assert (result.text, result.steps, result.tool_calls, tools.ran) == ("It is 3.", 2, 1, 1)
    assert [message.role for message in second.requests[0].messages] == ["user", "assistant", "tool"]
    assert len(agent.store.turns("demo")) == 1
    assert result.usage.input > 0
    events = [event for event in agent.store.events("demo") if isinstance(event, RetryScheduled)]
    assert [(event.kind, event.seconds) for event in events] == [("quota", 0.0)]
    models = [event.model for event in agent.store.events("demo") if isinstance(event, StepStart)]
    assert models == ["claude-opus-5-5", "claude-opus-5-5", "gpt-5.5"]


def test_the_rest_of_the_turn_stays_with_the_model_that_answered_and_the_next_turn_asks_the_first_again() -> None:
    tools = Tools()
    first = FakeModel(failure(), "I am back.", provider=ANTHROPIC)
    second = FakeModel(CALL, "It is 3.", provider=OPENAI)
    agent = cc.Agent([first, second], tools=[tools.add])
    assert agent.run_sync("1 + 2?", conversation="demo").text == "It is 3."
    result = agent.run_sync("And now?", conversation="demo")
    assert (result.text, result.model) == ("I am back.", "claude-opus-5-5")


def test_all_of_them_are_asked_and_the_last_error_is_raised() -> None:
    models = [FakeModel(failure("quota")), FakeModel(failure("auth")), FakeModel(failure("quota"))]
    agent = cc.Agent(models)
    with pytest.raises(ProviderFailed) as caught:
        agent.run_sync("hi", conversation="demo")
    assert caught.value.kind == "quota"
    assert [model.unused for model in models] == [0, 0, 0]
    assert [message.text for message in agent.store.load("demo")] == ["hi"]


def test_bad_input_is_not_tried_elsewhere() -> None:
    second = FakeModel("never")
    with pytest.raises(ProviderFailed, match="no credit left"):
        cc.Agent([FakeModel(failure("invalid")), second]).run_sync("hi")
    assert second.requests == []


def test_a_partial_reply_is_kept_out_of_the_next_request() -> None:
    """A stream that breaks off has written a part of its answer. The next model begins anew."""

    class Broken(FakeModel):
        async def stream(self, call: ProviderCall) -> AsyncGenerator[JSONObject, None]:
            yield {"type": "message_start", "message": {"type": "message", "role": "assistant", "content": []}}
            yield {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
            yield {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Half an"}}
            raise failure("transient")

    second = FakeModel("Whole.", provider=OPENAI)
    agent = cc.Agent([Broken(provider=ANTHROPIC), second])
    assert agent.run_sync("hi", conversation="demo").text == "Whole."
    assert [message.text for message in second.requests[0].messages] == ["hi"]


def test_runs_and_overrides_take_several_models_too() -> None:
    agent = cc.Agent(FakeModel("usual"))
    several = [FakeModel(failure(), failure()), FakeModel("other", "other")]
    assert agent.run_sync("hi", model=several).text == "other"
    with agent.override(several):
        assert agent.run_sync("hi", instructions="Be brief.").text == "other"
    assert several[1].requests[1].system is not None
    with pytest.raises(InvalidSetting, match="must not be an empty list"):
        cc.Agent([])


def test_dependencies_and_approvals_go_along() -> None:
    seen: list[object] = []

    @cc.tool(approval=True)
    def look(context: cc.ToolContext[str]) -> str:
        """Look."""
        seen.append(context.deps)
        return "seen"

    models = [FakeModel(failure()), FakeModel(cc.tool_call("c1", "look", {}), "ok")]
    agent = cc.Agent(models, tools=[look], approve=lambda call, tool: True)
    assert asyncio.run(agent.run("hi", deps="database")).text == "ok"
    assert seen == ["database"]


def test_input_that_was_queued_meanwhile_is_for_the_first_model_again() -> None:
    """The next turn follows under the same lease."""
    first, second = FakeModel(failure(), "first again", provider=ANTHROPIC), FakeModel("second", provider=OPENAI)
    agent = cc.Agent([first, second])

    async def both() -> None:
        await agent.executor.follow_up("demo", "two")
        await agent.run("one", conversation="demo")

    asyncio.run(both())
    assert [message.text for message in agent.store.load("demo")] == ["one", "second", "two", "first again"]
