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


# ── between providers ─────────────────────────────────────────────────────────────────────────────────────────────────


SIGNED = {
    ANTHROPIC: cc.Reasoning(text="Thought one.", signature="c2lnbmVk", provider="anthropic", model="claude-opus-5-5"),
    OPENAI: cc.Reasoning(text="Thought two.", data="ZGF0YQ==", id="rs_1", provider="openai", model="gpt-5.5"),
}


def test_signed_reasoning_stays_with_its_provider_and_every_prefix_is_kept() -> None:
    """Guarantee 20.8: the first model fails in the middle of a tool loop, and answers again in the next turn.

    Its own signed reasoning is sent to it again, and no other model gets it. No channel begins a new epoch, so that
    what a provider has cached is used.
    """
    tools = Tools()

    def thinking(model: str, number: int) -> cc.Message:
        call = cc.tool_call(f"c{number}", "add", {"a": number, "b": number})
        return cc.Message(role="assistant", parts=(SIGNED[model], call))

    first = FakeModel(thinking(ANTHROPIC, 1), failure(), thinking(ANTHROPIC, 3), "It is 6.", provider=ANTHROPIC)
    second = FakeModel(thinking(OPENAI, 2), "It is 4.", provider=OPENAI)
    agent = cc.Agent([first, second], tools=[tools.add])
    assert agent.run_sync("1 + 2, 3 + 4?", conversation="demo").model == "gpt-5.5"
    assert agent.run_sync("5 + 6?", conversation="demo").model == "claude-opus-5-5"
    assert tools.ran == 3
    for model, own, other in ((first, "Thought one.", "Thought two."), (second, "Thought two.", "Thought one.")):
        thoughts = [
            part.text
            for message in model.requests[-1].messages
            for part in message.parts
            if isinstance(part, cc.Reasoning)
        ]
        assert own in thoughts
        assert other not in thoughts
    starts = [event for event in agent.store.events("demo") if isinstance(event, StepStart)]
    assert [(event.model, event.epoch) for event in starts] == [
        ("claude-opus-5-5", 1),
        ("claude-opus-5-5", 1),
        ("gpt-5.5", 1),
        ("gpt-5.5", 1),
        ("claude-opus-5-5", 1),
        ("claude-opus-5-5", 1),
    ]
    results = [part.call_id for message in agent.store.load("demo") for part in message.tool_results]
    assert results == ["c1", "c2", "c3"]
