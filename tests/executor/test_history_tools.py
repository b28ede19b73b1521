"""An agent reads its history itself: the executor runs `search_history` and `fetch_result`."""

import asyncio
from typing import Any

import pytest

import contextc as cc
from tests.executor.scripted_provider import SONNET, Scripted, run_turn, says

BOTH = ["fetch_result", "search_history"]


@cc.tool(approval=True)
def look(at: str) -> str:
    """Look."""
    return at


def test_an_agent_finds_what_it_no_longer_sees() -> None:
    """Guarantees 22.1 and 22.3: without approval, and the results are stored as any other."""
    store = cc.open_store("memory:")
    script = [
        says(("s1", "search_history", {"query": "staging port"}), ("s2", "search_history", {})),
        says(("f1", "fetch_result", {"id": "r1"})),
        says("It is 8443."),
    ]
    store.append("c", cc.user("The staging server has port 8443.", author="ann"))
    store.append("c", cc.assistant("I will remember."))

    async def turn() -> str:
        endpoint = Scripted(*script)
        executor = cc.AgentExecutor(
            store, SONNET, endpoint=endpoint, tools=[look], approve=lambda call, tool: False, triggers=()
        )
        return (await executor.start("c", "Which port?").wait()).finish

    assert asyncio.run(turn()) == "stop"
    results = {each.call_id: each for message in store.load("c") for each in message.tool_results}
    assert "r1 (ann)\nThe staging server has port 8443." in results["s1"].text
    assert results["s2"].text.startswith("query is missing")
    assert results["f1"].text == "The staging server has port 8443."
    assert not any(each.is_error for each in results.values())


def offered(model: cc.Provider | str, **options: Any) -> list[str]:
    """Return the names of the tools in the first request of an agent without tools."""
    executor = cc.AgentExecutor(cc.open_store("memory:"), model, triggers=(), **options)
    executor.store.append("c", cc.user("hi"))
    compiled = executor.compiler.compile("c", max_input_tokens=executor.max_input_tokens, **executor.compile_arguments)
    return [tool.name for tool in compiled.tools if isinstance(tool, cc.Tool)]


@pytest.mark.parametrize("model", ["openai-chat:gpt-4o", SONNET, "xai:grok-4"])
def test_an_agent_without_tools_searches_from_its_first_request_on(model: cc.Provider | str) -> None:
    """Guarantee 22.4: a chat forgets as an agent with tools does. One option switches both off."""
    assert offered(model) == BOTH
    assert offered(model, compiler=cc.CompilerOptions(fetch=True)) == BOTH
    assert offered(model, compiler=cc.CompilerOptions(fetch=False)) == []


@pytest.mark.parametrize(
    "model",
    [
        "openai:o1-mini",
        "openai:gpt-9-of-tomorrow",
        "openai-chat:gpt-5.4",
        "local",
        "ollama:llama3.3",
        "ollama:deepseek-v3.2",
        "openrouter:meta-llama/llama-3.3-70b",
        "claude-code",
    ],
)
def test_a_model_that_may_refuse_tools_is_offered_none(model: str) -> None:
    """Guarantee 22.4: a request with tools would fail there. Those of the caller show that the model accepts them."""
    provider = cc.provider(model, window=100_000, output=8_000) if "tomorrow" in model else cc.provider(model)
    assert offered(provider) == []


def test_the_fact_that_a_model_accepts_tools_can_be_set() -> None:
    """A server with open weights may accept tools."""
    assert offered(cc.provider("ollama:llama3.3", tools=True)) == BOTH
    assert offered(cc.provider("openai:gpt-4o", tools=False)) == []


def test_tools_for_the_history_alone_take_a_small_part_of_the_window() -> None:
    """Guarantee 22.4: Claude's API adds several hundred tokens to the first tool."""
    assert offered(SONNET, max_input_tokens=20_000) == []
    assert offered("openai:gpt-4o", max_input_tokens=20_000) == BOTH


def test_an_output_format_that_excludes_tools_takes_precedence() -> None:
    """Guarantee 22.4: Gemini 2.5 refuses a response type together with tools; Gemini 3 accepts both."""
    settings = {"generationConfig": {"responseMimeType": "application/json", "responseSchema": {"type": "OBJECT"}}}
    older, newer = [cc.provider(name, tokenizer="unknown") for name in ("gemini-2.5-pro", "gemini-3.5-flash")]
    assert offered(older, settings=settings) == []
    assert offered(newer, settings=settings) == BOTH
    assert offered(older) == BOTH


def test_a_conversation_that_was_begun_without_the_tools_keeps_its_prefix() -> None:
    """Guarantee 22.4: they come with the next epoch."""
    store, endpoint = cc.open_store("memory:"), Scripted(*[says("Good.")] * 3)
    for fetch, text in ((False, "one"), (True, "two"), (True, "three")):
        executor = cc.AgentExecutor(
            store, SONNET, endpoint=endpoint, compiler=cc.CompilerOptions(fetch=fetch), triggers=()
        )
        if text == "three":
            store.edit("c", 3, cc.user("two, edited"))
        run_turn(executor, text, conversation="c")
    first, second, third = endpoint.requests
    assert "tools" not in first
    assert "tools" not in second
    assert [tool["name"] for tool in third["tools"]] == BOTH
