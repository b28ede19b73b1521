"""The tools `search_history` and `fetch_result`: when a model is offered them, and what that costs."""

import json

import pytest

import contextc as cc
from contextc._json import encode
from contextc.compiler.history import FORMER_FETCH_TOOL, HISTORY_TOOLS, LONGER_HISTORY_TOOLS
from contextc.formats.registry import formatter
from contextc.models.tokens import get_counter

SONNET = "anthropic:claude-sonnet-4-5"
LOOK = cc.Tool(name="look", description="Looks.", parameters={"type": "object", "properties": {}})
NAMES = ["look", "fetch_result", "search_history"]


def names(compiled: cc.Compiled) -> list[str]:
    return [tool["name"] for tool in compiled.params.get("tools", ())]


def step(compiler: cc.MessageCompiler, text: str, *tools: cc.Tool) -> cc.Compiled:
    compiler.store.append("c", cc.user(text))
    compiled = compiler.compile("c", tools=tools)
    with compiler.attempt(compiled) as attempt:
        attempt.commit(cc.assistant("Good."))
    return compiled


def tools_text(compiled: cc.Compiled) -> str:
    return json.dumps(compiled.params["tools"])


def test_both_definitions_together_are_short() -> None:
    """Guarantee 22.4: less than the definition of `fetch_result` alone took in version 0.1."""
    for model, most in (("openai:gpt-5", 50), ("openai-chat:gpt-4o", 50), (SONNET, 110)):
        compiler = cc.MessageCompiler(cc.open_store("memory:"), model)
        given = ((LOOK,), (LOOK, *HISTORY_TOOLS), (LOOK, FORMER_FETCH_TOOL))
        encoded = [compiler.provider.formatter.encode_tools(tools) for tools in given]
        none, both, former = [compiler.counter.count_tools(each) for each in encoded]
        assert both - none < most
        assert both < former


@pytest.mark.parametrize(
    "format", ["openai_chat", "openai_responses", "anthropic", "gemini", "bedrock", "ollama", "mistral", "vercel"]
)
def test_both_definitions_take_less_than_90_tokens_in_every_format(format: str) -> None:
    """Guarantee 22.4: every request pays for them, so what is sent is counted, by OpenAI's vocabulary."""
    counter = get_counter("o200k_base", provider="openai", model="gpt-4o")
    assert counter.exact
    assert counter.count_text(encode(formatter(format).encode_tools(HISTORY_TOOLS)).decode()) < 90


def test_a_model_learns_what_both_tools_do_and_how_their_parameters_are_named() -> None:
    """Guarantee 22.4: short, and complete: one sentence each, and the parameters that lines in a request mention."""
    fetch, search = HISTORY_TOOLS
    assert [(tool.name, tool.description) for tool in HISTORY_TOOLS] == [
        ("fetch_result", "Reads a message by id."),
        ("search_history", "Searches all messages, shown or not."),
    ]
    assert fetch.parameters["properties"] == {"id": {"type": "string"}, "offset": {"type": "integer"}}
    assert (fetch.parameters["required"], search.parameters["properties"]) == (["id"], {"query": {"type": "string"}})


def test_a_search_without_words_says_which_parameter_is_missing() -> None:
    store = cc.open_store("memory:")
    store.append("c", cc.user("The port is 8443."))
    compiler = cc.MessageCompiler(store, SONNET)
    answer = compiler.fetch("c", cc.ToolCall(id="1", name="search_history", arguments={}))
    assert answer == "query is missing. Call search_history with the words to look for."
    assert "8443" in compiler.fetch("c", cc.ToolCall(id="2", name="search_history", arguments={"query": "port"}))


@pytest.mark.parametrize("sent", [(LOOK, FORMER_FETCH_TOOL), (LOOK, *LONGER_HISTORY_TOOLS), (LOOK,)])
def test_a_channel_that_was_begun_before_keeps_its_tools_until_the_next_epoch(sent: tuple[cc.Tool, ...]) -> None:
    """Guarantee 22.4: another tool in the middle would be another prefix."""
    store = cc.open_store("memory:")
    before = step(cc.MessageCompiler(store, SONNET, fetch=False), "one", *sent)
    compiler = cc.MessageCompiler(store, SONNET)
    second = step(compiler, "two", LOOK)
    assert tools_text(second) == tools_text(before)
    assert (second.manifest.epoch, second.manifest.why) == (1, "")
    assert names(step(compiler, "three", LOOK)) == [tool.name for tool in sent]
    store.edit("c", 3, cc.user("two, edited"))
    after = compiler.compile("c", tools=[LOOK])
    assert (names(after), after.manifest.epoch) == (NAMES, 2)
    assert "tools" not in after.manifest.why
    with compiler.attempt(after) as attempt:
        attempt.commit(cc.assistant("Good."))
    assert tools_text(step(compiler, "four", LOOK)) == tools_text(after)


def test_trimming_is_the_reason_of_an_epoch_that_also_gets_the_tools() -> None:
    """Guarantee 22.4: the reason is what happened, and the new tools are within the budget."""
    store = cc.open_store("memory:")
    small = cc.provider(SONNET, window=3_000, output=500)
    step(cc.MessageCompiler(store, small, fetch=False), "one " * 300, LOOK, FORMER_FETCH_TOOL)
    compiler = cc.MessageCompiler(store, small)
    compiled = step(compiler, "two", LOOK)
    while compiled.manifest.epoch == 1:
        assert names(compiled) == ["look", "fetch_result"]
        compiled = step(compiler, "more " * 200, LOOK)
    assert names(compiled) == NAMES
    assert "tools" not in compiled.manifest.why
    assert compiled.budget.used <= compiled.budget.available


@pytest.mark.parametrize(
    ("model", "settings"),
    [
        (SONNET, {"tool_choice": {"type": "any"}}),
        (SONNET, {"tool_choice": {"type": "tool", "name": "look"}}),
        ("openai:gpt-5", {"tool_choice": "required"}),
        ("openai-chat:gpt-4o", {"tool_choice": {"type": "function", "function": {"name": "look"}}}),
    ],
)
def test_a_model_that_must_call_a_tool_gets_only_those_of_the_caller(model: str, settings: dict[str, object]) -> None:
    """Guarantee 22.4: a forced call must not be one of ours. A channel that has the tools keeps them."""
    store = cc.open_store("memory:")
    compiler = cc.MessageCompiler(store, model)
    store.append("c", cc.user("Look."))
    forced = compiler.compile("c", tools=[LOOK], settings=settings)
    assert "search_history" not in forced.body.decode()
    assert "fetch_result" not in forced.body.decode()
    plain = compiler.compile("c", tools=[LOOK])
    with compiler.attempt(plain) as attempt:
        attempt.commit(cc.assistant("Good."))
    store.append("c", cc.user("Again."))
    assert "search_history" in compiler.compile("c", tools=[LOOK], settings=settings).body.decode()


def test_a_callers_own_tool_replaces_ours() -> None:
    own = cc.Tool(name="search_history", description="Mine.", parameters={"type": "object", "properties": {}})
    store = cc.open_store("memory:")
    store.append("c", cc.user("hi"))
    tools = cc.MessageCompiler(store, SONNET).compile("c", tools=[own]).params["tools"]
    assert [(tool["name"], tool["description"]) for tool in tools] == [
        ("search_history", "Mine."),
        ("fetch_result", HISTORY_TOOLS[0].description),
    ]
    off = cc.MessageCompiler(store, SONNET, fetch=False).compile("c", tools=[LOOK])
    assert names(off) == ["look"]
    assert names(cc.MessageCompiler(store, SONNET).compile("c")) == []
