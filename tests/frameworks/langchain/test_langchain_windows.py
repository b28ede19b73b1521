"""Windows from tiny to full, and several processes on one conversation."""

import multiprocessing
from collections import Counter
from multiprocessing.synchronize import Barrier
from random import Random
from typing import Any

import pytest
from langchain.agents.middleware import ModelRequest, ModelResponse
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage

import contextc as cc
from contextc.adapters.langchain import ContextcMiddleware
from contextc.doctor import scan_store
from contextc.errors import ContextOverflow
from tests.conftest import often
from tests.fake_vendors.fake import FakeVendors
from tests.fake_vendors.replies import Reply
from tests.fake_vendors.vendor import AcceptedRequest
from tests.frameworks.langchain.scripted_agents import MODELS, make_agent, reading

WRITERS, TURNS = 8, 3
PROCESSES = multiprocessing.get_context("forkserver")


def make_history(seed: int, steps: int = 30) -> list[AnyMessage]:
    """Return a random conversation with tools: parallel calls, late results, an open call, several turns."""
    chance = Random(seed)
    messages: list[AnyMessage] = [HumanMessage("Begin.")]
    for number in range(steps):
        calls = [
            {"name": "read_page", "args": {"number": each}, "id": f"call_{seed}_{number}_{each}"}
            for each in range(chance.choice((1, 1, 1, 2, 3)))
        ]
        messages.append(AIMessage(f"Step {number}." if chance.random() < 0.5 else "", tool_calls=calls))
        results = [ToolMessage("row " * chance.choice((3, 40, 300)), tool_call_id=call["id"]) for call in calls]
        chance.shuffle(results)
        if chance.random() < 0.1:
            del results[0]  # its tool was interrupted
        messages += results
        if chance.random() < 0.2:
            messages += [AIMessage(f"Done with {number}."), HumanMessage(f"Go on after {number}.")]
    return messages if isinstance(messages[-1], HumanMessage | ToolMessage) else [*messages, HumanMessage("Go on.")]


def call_ids(messages: list[AnyMessage]) -> tuple[list[str], list[str]]:
    calls = [str(call["id"]) for each in messages if isinstance(each, AIMessage) for call in each.tool_calls]
    return calls, [each.tool_call_id for each in messages if isinstance(each, ToolMessage)]


@pytest.mark.parametrize("seed", range(often(4, 40)))
@pytest.mark.parametrize("name", ["openai_chat", "anthropic"])
def test_no_window_separates_a_call_from_its_result(name: str, seed: int) -> None:
    """Guarantees 5.4 and 21.4; langchain#29637, langchain#38352: every window from tiny to full, no orphan in any."""
    history = make_history(seed)
    with FakeVendors(reading(1)) as fake, cc.open_store("memory:") as store:
        model = MODELS[name](fake)
        outcomes = Counter[str]()
        for window in [*range(400, 4_000, 400), *range(4_000, 40_001, 4_000)]:
            sent: list[AnyMessage] = []

            def send(request: ModelRequest[Any], sent: list[AnyMessage] = sent) -> ModelResponse[Any]:
                sent += request.messages
                return ModelResponse(result=[AIMessage("Fine.")])

            middleware: Any = ContextcMiddleware(store, conversation=f"{name} {window}", window=window, output=100)
            request: Any = ModelRequest(model=model, messages=history, system_prompt="Answer from the report.")
            try:
                middleware.wrap_model_call(request, send)
            except ContextOverflow:
                outcomes["too small"] += 1
                assert window < 4_000
                continue
            calls, results = call_ids(sent)
            assert sorted(calls) == sorted(results)
            assert len({*calls}) == len(calls)
            assert sent[-1] is history[-1] or isinstance(sent[-1], ToolMessage)
            outcomes["cut" if len(sent) < len(history) else "whole"] += 1
        assert outcomes["cut"] > 2
        assert outcomes["whole"] > 2


def echo(ask: AcceptedRequest) -> Reply:
    return Reply(f"I got {ask.request.messages[-1].text}.")


def ask_often(address: str, url: str, writer: int, start: Barrier) -> None:
    from langgraph.checkpoint.memory import InMemorySaver

    class Remote:
        def url(self, name: str) -> str:
            return url

    with cc.open_store(address) as store:
        remote: Any = Remote()
        middleware: list[Any] = [ContextcMiddleware(store)]
        agent = make_agent(MODELS["openai_chat"](remote), middleware=middleware, checkpointer=InMemorySaver())
        start.wait(240)
        for turn in range(TURNS):
            question = {"messages": [{"role": "user", "content": f"{writer}:{turn}"}]}
            agent.invoke(question, {"configurable": {"thread_id": "shared"}})


def test_eight_processes_on_one_conversation_lose_nothing(shared_address: str) -> None:
    """Guarantees 3.2 and 21.3, langgraph#8115: each process has a history of its own, so each is a branch."""
    start = PROCESSES.Barrier(WRITERS)
    with FakeVendors(echo) as fake:
        url = fake.url("openai_chat")
        arguments = [(shared_address, url, number, start) for number in range(WRITERS)]
        writers = [PROCESSES.Process(target=ask_often, args=each) for each in arguments]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join(300)
        assert [writer.exitcode for writer in writers] == [0] * WRITERS
        assert not fake.refused
    with cc.open_store(shared_address) as store:
        assert list(scan_store(store)) == []
        found = Counter(
            (message.role, message.text)
            for branch in store.branches("shared")
            for message in store.load("shared", branch=branch.number)
            if message.seq > branch.base
        )
        expected = [f"{writer}:{turn}" for writer in range(WRITERS) for turn in range(TURNS)]
        assert found == Counter(
            [*[("user", text) for text in expected], *[("assistant", f"I got {text}.") for text in expected]]
        )
