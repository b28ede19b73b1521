"""Data that a caller changes in place: tools that it passes, and requests that it gets.

A changed tool is sent as it is now. A changed request changes no other one.
"""

from typing import cast

import pytest

import contextc as cc
from contextc._json import JSON, JSONObject, decode


def lookup(**properties: JSONObject) -> cc.Tool:
    return cc.Tool(name="look_up", parameters={"type": "object", "properties": dict(properties)})


def sent(compiler: cc.MessageCompiler, *tools: cc.Tool | cc.tools.NativeTool) -> list[JSONObject]:
    return decode(compiler.compile("demo", tools=[*tools]).body)["tools"]


@pytest.fixture
def compiler() -> cc.MessageCompiler:
    store = cc.open_store("memory:")
    store.append("demo", cc.user("Where is it?"))
    return cc.MessageCompiler(store, "anthropic:claude-sonnet-4-5", fetch=False)


@pytest.mark.parametrize(
    "changed",
    [
        {"id": {"type": "integer", "default": 1}, "city": {"type": "string"}},
        {"id": {"type": "integer", "default": True}},  # equal to the 1 that was there
        {},
    ],
)
def test_a_schema_that_is_changed_in_place_is_sent_as_it_is_now(
    compiler: cc.MessageCompiler, changed: JSONObject
) -> None:
    """A program that adds a parameter to a tool it holds must not go on sending the schema of before."""
    tool = lookup(id={"type": "integer", "default": 1})
    before = compiler.compile("demo", tools=[tool])
    tool.parameters["properties"] = changed
    after = compiler.compile("demo", tools=[tool])
    assert str(after.params["tools"][0]["input_schema"]) == str(tool.parameters)
    assert after.body != before.body
    assert after.state.head.tools != before.state.head.tools


def test_a_native_tool_that_is_changed_in_place_is_sent_as_it_is_now(compiler: cc.MessageCompiler) -> None:
    """What is passed on to a provider as it is may be changed by its owner as well."""
    tool = cc.tools.NativeTool(provider="anthropic", data={"type": "bash_20250124", "name": "bash"})
    assert sent(compiler, tool) == [{"type": "bash_20250124", "name": "bash"}]
    tool.data["max_uses"] = 3
    assert sent(compiler, tool) == [{"type": "bash_20250124", "name": "bash", "max_uses": 3}]


def test_an_equal_tool_is_not_sent_with_the_changes_of_another(compiler: cc.MessageCompiler) -> None:
    """What is kept for a content must not hold the object of a caller: that one has another content by now."""
    one, two = lookup(id={"type": "integer"}), lookup(id={"type": "integer"})
    compiler.compile("demo", tools=[one])
    one.parameters["properties"]["city"] = {"type": "string"}
    [result] = compiler.compile("demo", tools=[two], max_output_tokens=100).params["tools"]
    assert result["input_schema"]["properties"] == {"id": {"type": "integer"}}


def test_tools_that_stay_the_same_are_prepared_once(compiler: cc.MessageCompiler) -> None:
    """Comparing the content must not make an agent's next step encode and count its tools again."""
    tools = [lookup(id={"type": "integer"})]
    assert compiler.compile("demo", tools=tools).tools is compiler.compile("demo", tools=tools).tools


def spoil(value: JSON) -> None:
    """Change every list and object inside a value."""
    if isinstance(value, dict):
        fields = cast(JSONObject, value)
        for name, each in [*fields.items()]:
            spoil(each)
            fields[name] = "SPOILED"
    elif isinstance(value, list):
        items = cast(list[JSON], value)
        for each in items:
            spoil(each)
        items.append("SPOILED")


@pytest.mark.parametrize(
    "spec",
    ["openai-chat:gpt-4o", "openai:gpt-6.1-terra", "anthropic:claude-opus-5-5", "google:gemini-3-pro", "codex:m"],
)
def test_a_changed_request_changes_no_other_request(spec: str) -> None:
    """Guarantee 9.2. A caller that adds something to one request must not find it in all later ones."""
    store = cc.open_store("memory:")
    compiler = cc.MessageCompiler(store, cc.provider(spec, window=20_000))
    tools = [lookup(id={"type": "integer"})]
    for number in range(3):
        store.append("demo", cc.user(f"question {number}"))
        compiled = compiler.compile("demo", instructions="Be brief.", tools=tools, settings={"metadata": {"a": "b"}})
        sent, fields = compiled.body, compiled.session_head
        assert decode(sent) == compiled.params == compiled.copy()
        spoil(compiled.params)
        spoil(compiled.arguments)
        spoil(fields)
        assert compiled.body == sent
        assert compiled.copy() == decode(sent)
        compiler.commit(compiled, cc.assistant(f"answer {number}"))
        assert compiler.rebuild("demo") == sent
        assert b"SPOILED" not in sent
