"""Dependencies, model and instructions of one run, and context variables: what callbacks of a program get to see."""

import asyncio
import contextvars
from dataclasses import dataclass
from typing import Any

import pytest

import contextc as cc
from contextc.errors import InvalidMessage, InvalidSetting
from contextc.executor import Suspend
from contextc.prompts import PromptContext
from contextc.testing import FakeModel
from contextc.tools import FunctionTool

CALL = cc.tool_call("c1", "price", {"sku": "abc"})


@dataclass
class Shop:
    name: str
    prices: dict[str, int]


ANN, BOB = Shop("Ann's", {"abc": 3}), Shop("Bob's", {"abc": 5})


@cc.tool(approval=True)
def price(sku: str, context: cc.ToolContext[Shop]) -> int:
    """The price of a thing."""
    return context.deps.prices[sku]


def whose(context: PromptContext) -> str:
    return f"You work at {context.deps.name}." if context.deps else "You are idle."


class Seen:
    """An agent that notes what its callbacks get."""

    def __init__(self, model: FakeModel, **options: Any) -> None:
        self.model, self.at = model, list[tuple[str, object]]()

        @cc.trigger("shop")
        def shop(context: cc.TriggerContext) -> None:
            self.at.append(("trigger", context.deps))

        def approve(call: cc.ToolCall, tool: FunctionTool, context: cc.ToolContext[Shop]) -> bool:
            self.at.append(("approve", context.deps))
            return True

        fragment = cc.PromptFragment("shop", whose, lifecycle="dynamic")
        options = {"approve": approve, **options}
        self.agent = cc.Agent(model, tools=[price], instructions=[fragment], triggers=[shop], **options)


def test_they_reach_tools_fragments_triggers_and_approvals() -> None:
    """Guarantee 20.7: the schema does not have them, and the store does not."""
    seen = Seen(FakeModel(CALL, "It is 3."))
    result = seen.agent.run_sync("How much?", deps=ANN)
    assert [part.text for part in result.messages[2].tool_results] == ["3"]
    assert "You work at Ann's." in str(seen.model.requests[0].messages)
    assert all(deps is ANN for _, deps in seen.at)
    assert {name for name, _ in seen.at} == {"trigger", "approve"}
    assert "context" not in str(seen.model.requests[0].tools[0])
    assert "Ann's" not in str([message.meta for message in seen.agent.store.load(result.conversation)])


def test_each_run_has_its_own_also_at_the_same_time() -> None:
    def answer(request: Any) -> Any:
        found = [part.text for message in request.messages for part in message.tool_results]
        return f"It is {found[-1]}." if found else CALL

    seen = Seen(FakeModel(answer))

    async def both() -> list[str]:
        runs = [seen.agent.run("How much?", deps=deps) for deps in (ANN, BOB)]
        return [result.text for result in await asyncio.gather(*runs)]

    assert asyncio.run(both()) == ["It is 3.", "It is 5."]


def test_a_resumed_turn_takes_them_from_the_function_of_the_agent() -> None:
    """They are not stored. Another process, or a worker, has none that a caller could pass."""
    shops = {"bob": BOB}
    seen = Seen(FakeModel(CALL, "It is 5."), approve=Suspend(), deps=shops.get)
    assert seen.agent.run_sync("How much?", conversation="bob").finish == "waiting"
    (approval,) = seen.agent.store.approvals("bob")
    seen.agent.store.answer_approval(approval.id, True)
    result = seen.agent.resume_sync("bob")
    assert result.text == "It is 5."
    assert [part.text for message in result.messages for part in message.tool_results] == ["5"]


def test_those_of_a_run_precede_those_of_the_agent() -> None:
    seen = Seen(FakeModel("hi", "hi"), deps={"one": BOB, "two": BOB}.get)
    seen.agent.run_sync("x", conversation="one", deps=ANN)
    seen.agent.run_sync("y", conversation="two")
    assert ["Ann's" in str(request.messages) for request in seen.model.requests] == [True, False]
    assert ["Bob's" in str(request.messages) for request in seen.model.requests] == [False, True]


def test_a_function_for_them_is_checked_when_the_agent_is_made() -> None:
    with pytest.raises(
        InvalidSetting, match=r"deps must be callable, got Shop. Pass the value to each run: agent.run\(…, deps=…\)"
    ):
        cc.Agent(FakeModel("x"), deps=ANN)  # pyright: ignore[reportArgumentType]


def test_an_approval_with_two_parameters_is_as_before() -> None:
    asked: list[str] = []

    def approve(call: cc.ToolCall, tool: FunctionTool) -> bool:
        asked.append(tool.name)
        return True

    agent = cc.Agent(FakeModel(CALL, "ok"), tools=[price], approve=approve)
    agent.run_sync("x", deps=ANN)
    assert asked == ["price"]


def test_another_third_parameter_is_left_alone() -> None:
    def approve(call: cc.ToolCall, tool: FunctionTool, quiet: bool = True) -> bool:
        assert quiet is True
        return True

    assert cc.Agent(FakeModel(CALL, "ok"), tools=[price], approve=approve).run_sync("x", deps=ANN).tool_calls == 1


def test_what_is_compiled_outside_of_a_turn_has_those_of_the_agent() -> None:
    """A fragment that needs them does not fail when a conversation is compacted or previewed."""

    def strict(context: PromptContext) -> str:
        return context.deps.name

    agent = cc.Agent(FakeModel("x"), instructions=strict, deps={"demo": BOB}.get)
    agent.run_sync("hi", conversation="demo")
    assert agent.executor.preview_compaction("demo") is None


def test_context_variables_reach_all_callbacks() -> None:
    variable = contextvars.ContextVar("variable", default="lost")
    seen: dict[str, str] = {}

    def look() -> str:
        """Look."""
        seen["tool"] = variable.get()
        return ""

    @cc.trigger("look")
    def trigger(context: cc.TriggerContext) -> None:
        seen["trigger"] = variable.get()

    def fragment(context: PromptContext) -> str:
        seen["fragment"] = variable.get()
        return "x"

    variable.set("kept")
    instructions = [cc.PromptFragment("look", fragment)]
    model = FakeModel(cc.tool_call("c1", "look", {}), "ok")
    cc.Agent(model, tools=[look], triggers=[trigger], instructions=instructions).run_sync("hi")
    assert seen == {"fragment": "kept", "trigger": "kept", "tool": "kept"}


def test_a_run_has_another_model_and_other_instructions() -> None:
    """The conversation is the same, and the next run has those of the agent again."""
    usual, other = FakeModel("usual", "usual again"), FakeModel("other")
    agent = cc.Agent(usual, instructions="Be brief.")
    agent.run_sync("one", conversation="demo")
    assert agent.run_sync("two", conversation="demo", model=other, instructions="Be rude.").text == "other"
    assert agent.run_sync("three", conversation="demo").text == "usual again"
    (sent,) = other.requests
    assert [message.text for message in sent.messages] == ["one", "usual", "two"]
    assert sent.system is not None
    assert sent.system.text == "Be rude."
    assert usual.requests[1].system is not None
    assert usual.requests[1].system.text == "Be brief."


def test_the_messages_of_a_run_without_input_are_those_that_it_added() -> None:
    agent = cc.Agent(FakeModel("ok"))
    agent.store.extend("demo", [cc.user("one"), cc.user("two")])
    assert [message.text for message in agent.run_sync(None, conversation="demo").messages] == ["ok"]


def test_a_message_has_no_time_before_it_is_appended() -> None:
    with pytest.raises(InvalidMessage, match="no time before it is appended"):
        _ = cc.user("x").at
    assert cc.open_store("memory:").append("demo", cc.user("x")).at.year > 2020


def test_instructions_are_texts_fragments_and_functions() -> None:
    """A function is rendered with the context of the run, and sent where it has changed."""
    model = FakeModel("one", "two")
    agent = cc.Agent(model, instructions=["Be brief.", whose, cc.PromptFragment("tone", "Be kind."), "", None])  # pyright: ignore[reportArgumentType]
    agent.run_sync("hi", conversation="demo", deps=ANN)
    agent.run_sync("hi", conversation="demo", deps=BOB)
    assert model.requests[0].system is not None
    assert model.requests[0].system.text == "Be brief.\n\nBe kind."
    assert model.requests[0].system == model.requests[1].system
    assert "You work at Ann's." in str(model.requests[0].messages)
    assert "You work at Bob's." in str(model.requests[1].messages[-1])
