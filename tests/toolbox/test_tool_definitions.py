"""Accepted forms of a tool definition, and the name of the tool."""

import asyncio
import functools
import textwrap
from typing import Any, cast

import pytest

import contextc as cc
from contextc.testing import FakeModel
from contextc.tools import tools_by_name
from tests.toolbox.run_call import answer, look


class Shelf:
    """Holds books."""

    def __init__(self, place: str) -> None:
        self.place = place

    @cc.tool
    def find(self, title: str) -> str:
        """Find a book."""
        return f"{self.place}: {title}"

    async def lend(self, title: str) -> str:
        return f"lent {title} from {self.place}"

    async def __call__(self, title: str) -> str:
        """Ask the shelf."""
        return f"{self.place} has {title}"


def test_methods_partials_and_callable_objects_are_tools() -> None:
    shelf, given = Shelf("hall"), {"title": "Emma"}

    async def lend(person: str, title: str) -> str:
        return f"{person} has {title}"

    assert answer(shelf.find, given).text == "hall: Emma"
    assert answer(shelf.lend, given).text == "lent Emma from hall"
    assert answer(shelf, given).text == "hall has Emma"
    assert cc.tool(shelf).tool.description == "Ask the shelf."
    assert answer(functools.partial(lend, "Ann"), given).text == "Ann has Emma"
    assert answer(functools.partial(lend, person="Ann"), given).text == "Ann has Emma"
    with pytest.raises(
        cc.errors.InvalidInput, match=r"find is an unbound method\. Pass it from an instance: tools=\[thing\.find\]"
    ):
        tools_by_name([Shelf.find])


def test_a_tool_can_still_be_called_as_the_function_it_is() -> None:
    assert cc.tool(look)("a", limit=2) == "a 2 text None"


def test_a_function_answers_a_tool_that_another_program_described() -> None:
    """Arguments come by name; hints convert where there are any, and the given schema says what is needed."""
    result = cc.Tool(
        name="look",
        parameters={
            "type": "object",
            "properties": {"path": {"type": "string"}, "deep": {"type": "boolean"}},
            "required": ["path"],
            "additionalProperties": False,
        },
    )

    @cc.tool(result)
    def anything(context: cc.ToolContext, **arguments: object) -> object:
        return arguments

    def plain(path, deep=False) -> str:  # noqa: ANN001 # pyright: ignore[reportMissingParameterType, reportUnknownParameterType]
        return f"{path} {deep}"

    tool = cc.tool(result, plain)  # pyright: ignore[reportUnknownArgumentType]
    assert tool.tool is anything.tool is result
    assert answer(tool, {"path": "a", "deep": True}).text == "a True"
    assert answer(anything, {"path": "a"}).text == '{"path":"a"}'
    assert "The parameter `path` is missing. Expected: look(path: string, deep?: boolean)." in answer(anything).text
    assert "There is no parameter `paths`. Did you mean `path`?" in answer(anything, {"path": "a", "paths": 1}).text


def test_tools_are_taken_in_every_form_and_go_by_their_names() -> None:
    result = cc.Tool(name="told")
    assert list(tools_by_name([look, cc.tool(look, name="look_again"), (result, lambda: "")])) == [
        "look",
        "look_again",
        "told",
    ]
    assert list(tools_by_name({"one": look, "two": cc.tool(look)})) == ["one", "two"]
    assert tools_by_name({"two": cc.tool(look)})["two"].tool.name == "two"
    assert list(tools_by_name(look)) == list(tools_by_name(cc.tool(look))) == ["look"]
    assert list(tools_by_name((result, look))) == ["told"]
    assert tools_by_name(None) == tools_by_name([]) == {}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([look, look], r"Two tools are named look. Rename one: cc\.tool\(function, name=…\)"),
        ([cc.Tool(name="told")], "Tool told has no function. Pass a function"),
        (["look"], "'look' is not a tool"),
        ([{"type": "web_search"}], r"is not a tool.* cc\.tools\.NativeTool\(provider="),
        ({"a b": cc.tool(look)}, "name must have .* got 'a b'"),
    ],
)
def test_tools_that_cannot_be_taken_are_refused_with_a_message(given: Any, expected: str) -> None:
    with pytest.raises(cc.errors.InvalidInput, match=expected):
        tools_by_name(given)


class Librarian(cc.Agent[str]):
    """An agent with a method that a model may call."""

    def lend(self, title: str) -> str:
        """Lend a book."""
        return f"{title} is yours."


def agent_methods(agent: cc.Agent[str]) -> list[Any]:
    return [agent.run, agent.run_sync, agent.stream, agent, functools.partial(agent.run, wait=5), agent.executor.start]


@pytest.mark.parametrize("index", range(6))
def test_an_agent_is_refused_as_a_tool_with_the_lines_that_work(index: int) -> None:
    """Its parameters are the program's: a conversation, a time to wait. A model must not choose them."""
    agent = Librarian(FakeModel("The answer."))
    given = agent_methods(agent)[index]
    with pytest.raises(cc.errors.InvalidSetting, match="parameters that are not for a model"):
        tools_by_name([given])
    with pytest.raises(cc.errors.InvalidSetting, match="parameters that are not for a model") as refused:
        cc.tool(given, name="ask")
    assert list(tools_by_name([agent.lend])) == ["lend"]
    names: dict[str, Any] = {"agent": agent}
    if index < 5:
        assert "Pass agent.as_tool()." in str(refused.value)
        assert list(tools_by_name([agent.as_tool(name="ask")])) == ["ask"]
        return
    exec(textwrap.dedent(str(refused.value).partition("\n\n")[2]), names)
    made = cast(cc.tools.FunctionTool, cc.tool(names["ask"]))
    result = asyncio.run(made.run(cc.ToolCall(id="1", name="ask", arguments={"question": "Well?"})))
    assert result.text == "The answer."


def test_a_tool_is_not_made_of_a_tool() -> None:
    """Its approval or its limit would be lost silently."""
    with pytest.raises(cc.errors.InvalidInput, match="look is already a tool"):
        cc.tool(cc.tool(look, approval=True), timeout=5)


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf")])
def test_a_time_limit_is_a_time(seconds: float) -> None:
    with pytest.raises(cc.errors.InvalidInput, match="timeout must be a number of seconds above 0"):
        cc.tool(look, timeout=seconds)


def test_a_field_of_one_provider_is_sent_to_that_one_alone() -> None:
    """Such as `allowed_callers`: code of the model may call the tool."""
    extra = {"anthropic": {"allowed_callers": ["code_execution_20260120"]}}

    @cc.tool(extra=extra)
    def find(title: str) -> str:
        """Find a book."""
        return title

    store = cc.open_store("memory:")
    store.append("c", cc.user("Find Emma."))
    sent = {
        model: cc.MessageCompiler(store, model, fetch=False).compile("c", tools=[find]).params["tools"][0]
        for model in ("anthropic:claude-opus-5-5", "openai:gpt-5.5")
    }
    assert sent["anthropic:claude-opus-5-5"]["allowed_callers"] == ["code_execution_20260120"]
    assert "allowed_callers" not in sent["openai:gpt-5.5"]
    with pytest.raises(cc.errors.InvalidInput, match="extra cannot be combined with a Tool"):
        cast(Any, cc.tool)(find.tool, find.function, extra=extra)
