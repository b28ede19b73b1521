"""An agent reads its history itself: the executor runs `search_history` and `fetch_result`."""

import asyncio

import contextc as cc
from tests.executor.scripted_provider import SONNET, Say, Scripted


@cc.tool(approval=True)
def look(at: str) -> str:
    """Look."""
    return at


def test_an_agent_finds_what_it_no_longer_sees() -> None:
    """Guarantees 22.1 and 22.3: without approval, and the results are stored as any other."""
    store = cc.open_store("memory:")
    script = [
        Say(calls=(("s1", "search_history", {"query": "staging port"}), ("s2", "search_history", {}))),
        Say(calls=(("f1", "fetch_result", {"id": "r1"}),)),
        Say(text="It is 8443."),
    ]
    store.append("c", cc.user("The staging server has port 8443.", author="ann"))
    store.append("c", cc.assistant("I will remember."))

    async def turn() -> str:
        endpoint = Scripted(script)
        executor = cc.AgentExecutor(store, SONNET, endpoint=endpoint, tools=[look], approve=lambda call, tool: False)
        return (await executor.start("c", "Which port?").wait()).finish

    assert asyncio.run(turn()) == "stop"
    results = {each.call_id: each for message in store.load("c") for each in message.tool_results}
    assert "r1 (ann)\nThe staging server has port 8443." in results["s1"].text
    assert results["s2"].text.startswith("Nothing found")
    assert results["f1"].text == "The staging server has port 8443."
    assert not any(each.is_error for each in results.values())
