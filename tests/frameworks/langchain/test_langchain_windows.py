"""Windows from tiny to full, and several processes on one conversation."""

from collections.abc import Sequence
from typing import Any

import pytest
from langchain.agents.middleware import ModelRequest, ModelResponse
from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    HumanMessage,
    InvalidToolCall,
    ToolMessage,
    convert_to_messages,
)
from langgraph.checkpoint.memory import InMemorySaver

import contextc as cc
from contextc.adapters.langchain import ContextcMiddleware
from tests.conftest import often
from tests.fake_vendors.fake import FakeVendors
from tests.frameworks.langchain.scripted_agents import make_agent
from tests.frameworks.langgraph.scripted_models import MODELS, reading
from tests.frameworks.random_histories import CallIds, check_windows, make_history
from tests.frameworks.shared_conversation import CONVERSATION, Ask, check_writers


def list_call_ids(messages: Sequence[AnyMessage]) -> CallIds:
    calls = [str(call["id"]) for each in messages if isinstance(each, AIMessage) for call in each.tool_calls]
    return calls, [each.tool_call_id for each in messages if isinstance(each, ToolMessage)]


@pytest.mark.parametrize("seed", range(often(4, 40)))
@pytest.mark.parametrize("name", ["openai_chat", "anthropic"])
def test_no_window_separates_a_call_from_its_result(name: str, seed: int) -> None:
    """Guarantees 5.4 and 21.4; langchain#29637, langchain#38352: every window from tiny to full, no orphan in any."""
    history: list[Any] = convert_to_messages(make_history(seed))
    with FakeVendors(reading(1)) as fake, cc.open_store("memory:") as store:
        model = MODELS[name](fake)

        def send(window: int) -> list[AnyMessage]:
            sent: list[AnyMessage] = []

            def reply(request: ModelRequest[Any]) -> ModelResponse[Any]:
                sent.extend(request.messages)
                return ModelResponse(result=[AIMessage("Fine.")])

            middleware: Any = ContextcMiddleware(store, conversation=f"{name} {window}", window=window, output=100)
            request: Any = ModelRequest(model=model, messages=history, system_prompt="Answer from the report.")
            middleware.wrap_model_call(request, reply)
            assert sent[-1] is history[-1] or isinstance(sent[-1], ToolMessage)
            return sent

        check_windows(send, list_call_ids, len(history))


def test_a_malformed_call_that_is_shortened_is_sent_once() -> None:
    """Guarantee 21.4: without its arguments it is a valid call, and no longer one of the invalid ones."""
    history: list[Any] = [HumanMessage("Begin.")]
    for number in range(40):
        call = InvalidToolCall(name="read_page", args='{"number": ' + "1" * 200, id=f"call_{number}", error=None)
        history += [AIMessage(f"Step {number}.", invalid_tool_calls=[call])]
        history += [ToolMessage("row " * 200, tool_call_id=f"call_{number}", name="read_page")]
    sent: list[Any] = []

    def reply(request: ModelRequest[Any]) -> ModelResponse[Any]:
        sent.extend(request.messages)
        return ModelResponse(result=[AIMessage("Fine.")])

    with FakeVendors(reading(1)) as fake, cc.open_store("memory:") as store:
        model = MODELS["openai_chat"](fake)
        shortened = 0
        for window in range(3_000, 12_000, 500):
            sent.clear()
            middleware: Any = ContextcMiddleware(store, conversation=f"{window}", window=window, output=100)
            request: Any = ModelRequest(model=model, messages=history)
            middleware.wrap_model_call(request, reply)
            replies = [each for each in sent if isinstance(each, AIMessage)]
            calls = [call["id"] for each in replies for call in (*each.tool_calls, *each.invalid_tool_calls)]
            assert calls == [each.tool_call_id for each in sent if isinstance(each, ToolMessage)]
            shortened += sum(len(each.tool_calls) for each in replies)
        assert shortened


def make_writer(store: cc.Store, fake: Any) -> Ask:
    middleware: list[Any] = [ContextcMiddleware(store)]
    agent = make_agent(MODELS["openai_chat"](fake), middleware=middleware, checkpointer=InMemorySaver())

    def ask(text: str) -> object:
        question = {"messages": [{"role": "user", "content": text}]}
        return agent.invoke(question, {"configurable": {"thread_id": CONVERSATION}})

    return ask


def test_eight_processes_on_one_conversation_lose_nothing(shared_address: str) -> None:
    """Guarantees 3.2 and 21.3, langgraph#8115: each process has a history of its own, so each is a branch."""
    check_writers(shared_address, "openai_chat", make_writer)
