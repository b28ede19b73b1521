"""LangChain's agents give the same answers with the middleware as without it, and their history is recorded."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import ModelRetryMiddleware
from langchain.agents.structured_output import ToolStrategy
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_config
from langgraph.graph import START, MessagesState, StateGraph
from openai import InternalServerError
from pydantic import BaseModel

import contextc as cc
from contextc.adapters.history_functions import history_functions
from contextc.adapters.langchain import ContextcMiddleware
from contextc.inspection.preview import find_channels
from tests.fake_vendors.fake import FakeVendors
from tests.fake_vendors.faults import listed, overloaded
from tests.fake_vendors.replies import Reply, ScriptedCall
from tests.fake_vendors.scripts import Scripted
from tests.frameworks.langchain.scripted_agents import make_agent
from tests.frameworks.langgraph.scripted_models import MODELS, essence, reading

LOOP = asyncio.Runner()
"""One event loop for all tests: LangChain keeps the HTTP clients of a process."""
QUESTION = "When was the valve replaced?"
STEPS = 6


def thread(name: str) -> Any:
    return {"configurable": {"thread_id": name}, "recursion_limit": 500}


def ask(agent: Any, text: str, name: str, way: str) -> list[Any]:
    """Run an agent in one of the ways that LangChain has, and return its messages."""
    input = {"messages": [{"role": "user", "content": text}]}
    if way == "invoke":
        return agent.invoke(input, thread(name))["messages"]
    if way == "stream":
        return [*agent.stream(input, thread(name), stream_mode="values")][-1]["messages"]

    async def run() -> list[Any]:
        if way == "ainvoke":
            return (await agent.ainvoke(input, thread(name)))["messages"]
        states = [state async for state in agent.astream(input, thread(name), stream_mode="values")]
        return states[-1]["messages"]

    return LOOP.run(run())


@pytest.mark.parametrize("way", ["invoke", "ainvoke", "stream", "astream"])
@pytest.mark.parametrize("name", [*MODELS])
def test_an_agent_answers_the_same_with_the_middleware(name: str, way: str) -> None:
    """What fits is sent as LangChain would have sent it, to the byte, over two questions on one thread."""
    runs: list[tuple[list[Any], list[bytes]]] = []
    for with_middleware in (False, True):
        with cc.open_store("memory:") as store, FakeVendors(reading(STEPS)) as fake:
            middleware = [ContextcMiddleware(store)] if with_middleware else []
            agent = make_agent(MODELS[name](fake), middleware=middleware, checkpointer=InMemorySaver())
            ask(agent, QUESTION, "report", way)
            messages = ask(agent, "And the pump?", "report", way)
            assert not fake.refused
            runs.append((essence(messages), [record.raw for record in fake.records]))
    (plain, sent), (fitted, sent_fitted) = runs
    assert len(plain) > 2 * STEPS
    assert fitted == plain
    assert sent_fitted == sent


@pytest.mark.parametrize("name", [*MODELS])
def test_the_conversation_is_recorded_once_with_its_requests(name: str) -> None:
    """Guarantees 3.5 and 11.1: every request repeats the history, and only what is new is stored."""
    with cc.open_store("memory:") as store, FakeVendors(reading(STEPS)) as fake:
        agent = make_agent(MODELS[name](fake), middleware=[ContextcMiddleware(store)], checkpointer=InMemorySaver())
        for question in (QUESTION, "And the pump?"):
            state = ask(agent, question, "report", "invoke")
        stored = store.load("report")
        assert [message.role for message in stored] == [
            {"human": "user", "ai": "assistant", "tool": "tool"}[each.type] for each in state
        ]
        results = ["".join([each.text for each in message.tool_results]) for message in stored]
        texts = [message.text or result for message, result in zip(stored, results, strict=True)]
        assert texts == [each.text for each in state]
        replies = [message for message in stored if message.role == "assistant"]
        assert [message.usage.input for message in replies if message.usage] == [
            record.tokens.input for record in fake.records if record.tokens
        ]
        (channel,) = find_channels(store, "report")
        compiler = cc.MessageCompiler(store, f"{channel.provider}:{channel.model}")
        manifest = compiler.explain("report")
        assert manifest.record.request == len(fake.records) == 2 * (STEPS + 1)
        assert manifest.record.epoch == 1


def test_the_state_of_the_graph_is_not_rewritten() -> None:
    """The checkpointer keeps everything, while the request fits into the window."""
    steps, window = 60, 12_000
    with cc.open_store("memory:") as store, FakeVendors(reading(steps), window=window) as fake:
        middleware = ContextcMiddleware(store, window=window)
        saver = InMemorySaver()
        agent = make_agent(MODELS["openai_chat"](fake), middleware=[middleware], checkpointer=saver)
        messages = ask(agent, QUESTION, "report", "invoke")
        assert not fake.refused
        assert not fake.defects
        assert len(fake.records) == steps + 1
        assert len(messages) == len(store.load("report")) == 2 + 2 * steps + steps // 4
        assert essence(agent.get_state(thread("report")).values["messages"]) == essence(messages)
        assert len(fake.breaks()) < steps / 5  # cuts go in large steps, so most requests extend the one before


def test_a_run_without_a_thread_is_a_conversation_of_its_own() -> None:
    """An agent without a checkpointer gets its whole history with every call, and has no name for it."""
    with cc.open_store("memory:") as store, FakeVendors(reading(2)) as fake:
        agent = make_agent(MODELS["openai_chat"](fake), middleware=[ContextcMiddleware(store)])
        for _ in range(2):
            agent.invoke({"messages": [{"role": "user", "content": QUESTION}]})
        assert [len(store.load(each.name)) for each in store.conversations()] == [6, 6]


def test_a_named_conversation_is_used_for_all_runs() -> None:
    with cc.open_store("memory:") as store, FakeVendors(reading(2)) as fake:
        middleware = ContextcMiddleware(store, conversation="valves")
        agent = make_agent(MODELS["openai_chat"](fake), middleware=[middleware])
        first = agent.invoke({"messages": [{"role": "user", "content": QUESTION}]})["messages"]
        agent.invoke({"messages": [*first, HumanMessage("And the pump?")]})
        assert [each.name for each in store.conversations()] == ["valves"]
        assert len(store.load("valves")) == 12


def test_an_agent_that_is_a_node_of_a_graph_continues_its_conversation() -> None:
    """Its namespace is new in each run: a conversation of its own would store the whole history again."""
    with cc.open_store("memory:") as store, FakeVendors(Scripted(["One.", "Two."])) as fake:
        graph: Any = StateGraph(MessagesState)
        graph.add_node("agent", make_agent(MODELS["openai_chat"](fake), middleware=[ContextcMiddleware(store)]))
        graph.add_edge(START, "agent")
        graph = graph.compile(checkpointer=InMemorySaver())
        ask(graph, "first", "nested", "invoke")
        ask(graph, "second", "nested", "ainvoke")
        assert [each.name for each in store.conversations()] == ["nested"]
        assert [message.text for message in store.load("nested")] == ["first", "One.", "second", "Two."]


def test_a_rewritten_history_becomes_a_branch() -> None:
    """Guarantee 3.4: an edit in the graph's state keeps the original messages."""
    with cc.open_store("memory:") as store, FakeVendors(Scripted(["One.", "Two.", "Three."])) as fake:
        agent = make_agent(
            MODELS["openai_chat"](fake), middleware=[ContextcMiddleware(store)], checkpointer=InMemorySaver()
        )
        ask(agent, "first", "edited", "invoke")
        state = ask(agent, "second", "edited", "invoke")
        agent.update_state(thread("edited"), {"messages": [RemoveMessage(each.id) for each in state[2:]]})
        ask(agent, "another second", "edited", "invoke")
        assert [message.text for message in store.load("edited")] == ["first", "One.", "another second", "Three."]
        texts = {
            tuple(message.text for message in store.load("edited", branch=branch.number))
            for branch in store.branches("edited")
        }
        assert ("first", "One.", "second", "Two.") in texts


def test_a_failed_call_is_raised_unchanged_and_recorded() -> None:
    """Guarantee 9.7: the error is the model's own, a retry sends the same bytes, and both requests are recorded."""
    faults = listed(None, overloaded(), overloaded(), None)
    with cc.open_store("memory:") as store, FakeVendors(Scripted(["Fine.", "Good."]), faults=faults) as fake:
        agent = make_agent(
            MODELS["openai_chat"](fake), middleware=[ContextcMiddleware(store)], checkpointer=InMemorySaver()
        )
        ask(agent, "How are you?", "failed", "invoke")
        with pytest.raises(InternalServerError):
            ask(agent, "And now?", "failed", "invoke")
        with pytest.raises(InternalServerError):
            agent.invoke(None, thread("failed"))
        agent.invoke(None, thread("failed"))
        assert len({record.raw for record in fake.records[1:]}) == 1
        texts = ["How are you?", "Fine.", "And now?", "Good."]
        assert [message.text for message in store.load("failed")] == texts
        assert [branch.number for branch in store.branches("failed")] == [store.branches("failed")[0].number]


def test_a_retry_of_another_middleware_sends_the_same() -> None:
    """The middleware may be inside or outside of one that retries."""
    for outside in (False, True):
        faults = listed(overloaded(), None)
        with cc.open_store("memory:") as store, FakeVendors(Scripted(["Fine."]), faults=faults) as fake:
            retry = ModelRetryMiddleware(max_retries=1, initial_delay=0, jitter=False)
            ours = ContextcMiddleware(store, conversation="retried")
            agent = make_agent(MODELS["openai_chat"](fake), middleware=[ours, retry] if outside else [retry, ours])
            agent.invoke({"messages": [HumanMessage("How are you?")]})
            assert len(fake.records) == 2
            assert [message.text for message in store.load("retried")] == ["How are you?", "Fine."]


class Finding(BaseModel):
    part: str
    season: str


def test_typed_answers_stay_the_same() -> None:
    """A structured answer is a call to a tool that does not exist, with a result that LangChain writes itself."""
    answer = Reply(None, [ScriptedCall("Finding", {"part": "valve", "season": "spring"})])
    with cc.open_store("memory:") as store, FakeVendors(Scripted([answer, answer])) as fake:
        for middleware in ([], [ContextcMiddleware(store, conversation="typed")]):
            agent = make_agent(
                MODELS["openai_chat"](fake), middleware=middleware, response_format=ToolStrategy(Finding)
            )
            found = agent.invoke({"messages": [{"role": "user", "content": QUESTION}]})
            assert found["structured_response"] == Finding(part="valve", season="spring")
        assert fake.records[0].raw == fake.records[1].raw
        assert [message.role for message in store.load("typed")] == ["user", "assistant", "tool"]
        assert isinstance(found["messages"][1], AIMessage)


def test_another_process_continues_the_conversation(tmp_path: Path) -> None:
    """What was sent is in the store, so a second handle extends the same prefix."""
    address = f"sqlite:///{tmp_path / 'langchain.db'}"
    saver = InMemorySaver()
    with FakeVendors(reading(2)) as fake:
        for question in (QUESTION, "And the pump?"):
            with cc.open_store(address) as store:
                agent = make_agent(
                    MODELS["anthropic"](fake), middleware=[ContextcMiddleware(store)], checkpointer=saver
                )
                ask(agent, question, "report", "invoke")
        assert fake.breaks() == []
        with cc.open_store(address) as store:
            assert len(store.load("report")) == 12


def test_an_agent_searches_its_recorded_history() -> None:
    """Guarantee 22.3: LangChain runs the functions as any other tool, on the thread of the run."""
    call = Reply(None, [ScriptedCall("search_history", {"query": "valve spring"})])
    with cc.open_store("memory:") as store, FakeVendors(Scripted(["Noted.", call, "In spring."])) as fake:
        functions = history_functions(store, lambda: get_config()["configurable"]["thread_id"])
        agent = create_agent(
            MODELS["openai_chat"](fake),
            tools=[*functions],
            middleware=[ContextcMiddleware(store)],
            checkpointer=InMemorySaver(),
        )
        ask(agent, "The valve was replaced in spring.", "report", "invoke")
        messages = ask(agent, QUESTION, "report", "invoke")
    assert "r1 (user)\nThe valve was replaced in spring." in messages[-2].text
    assert messages[-1].text == "In spring."
