"""Tools that the client of a turn runs itself: the turn waits for their results, and any executor continues it."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import contextc as cc
from contextc.errors import InvalidInput, LeaseLost
from contextc.events import ApprovalRequest
from contextc.executor.agent_config import add_definitions
from contextc.executor.turn_store import TurnStore
from contextc.messages import Message
from contextc.tools.definitions import Tool
from tests.executor.scripted_provider import SONNET, Line, Scripted, add, call, says, taken_over

PICK = Tool(name="pick", description="Pick a color.", parameters={"type": "object", "properties": {}})
OWN = Tool(name="add", description="Another one.", parameters={"type": "object", "properties": {}})
ASKS = says(call(1, "pick"), call(2, a=1, b=2), call(3, "pick"), call(4, "pick"))
INPUT = add_definitions(cc.user("Pick."), [PICK, OWN])


def agent(store: cc.Store, *script: Line, **options: Any) -> tuple[cc.AgentExecutor, Scripted]:
    endpoint = Scripted(*script)
    return cc.AgentExecutor(store, SONNET, tools=[add], endpoint=endpoint, triggers=(), **options), endpoint


def run(executor: cc.AgentExecutor, given: cc.Message | str | None = None) -> cc.TurnResult:
    async def turn() -> cc.TurnResult:
        begun = executor.resume("demo") if given is None else executor.start("demo", given)
        return await begun.wait()

    return asyncio.run(turn())


def offered(endpoint: Scripted) -> list[list[str]]:
    """Return the tools of each request, without the compiler's own."""
    return [
        [each["name"] for each in request["tools"] if each["name"] in ("add", "pick")] for request in endpoint.requests
    ]


def results(store: cc.Store) -> list[tuple[str, str, bool]]:
    return [(each.call_id, each.text, each.is_error) for message in store.load("demo") for each in message.tool_results]


def test_the_client_runs_its_tools_and_any_executor_goes_on(store: cc.Store) -> None:
    """Guarantee 18.6: the agent's own tools run first; a result, a failure and a denial are answers."""
    first, endpoint = agent(store, ASKS)
    assert run(first, INPUT).finish == "waiting"
    assert offered(endpoint) == [["add", "pick"]]  # the agent's own one stays
    assert results(store) == [("c2", "3", False)]
    assert [each.client for each in store.events("demo") if isinstance(each, ApprovalRequest)] == [True] * 3
    one, two, three = store.approvals("demo")
    with pytest.raises(InvalidInput, match="expected the result of the client's tool"):
        store.answer_approval(one.id, True)
    store.answer_approval(one.id, True, result="blue")
    store.answer_approval(two.id, True, result="no paint", failed=True)
    store.answer_approval(three.id, False, reason="enough")
    second, endpoint = agent(store, says("Blue."))
    assert run(second).finish == "stop"
    assert results(store)[1:] == [
        ("c1", "blue", False),
        ("c3", "no paint", True),
        ("c4", "Not run: the user declined: enough", True),
    ]
    assert offered(endpoint) == [["add", "pick"]]
    assert store.approvals("demo") == []


def test_a_turn_of_another_input_does_not_have_them(store: cc.Store) -> None:
    """They stay declared, so that the prompt cache stays valid, and a call of one is answered with an error."""
    executor, endpoint = agent(store, says("Hi."), says(call(1, "pick")), says("Bye."))
    run(executor, INPUT)
    assert run(executor, "And now?").finish == "stop"
    assert offered(endpoint) == [["add", "pick"]] * 3
    assert results(store) == [("c1", "There is no tool pick. There are: add.", True)]


def test_an_agent_with_a_callback_does_not_get_them(store: cc.Store) -> None:
    """Its turns cannot be suspended."""

    def approve(*_: object) -> bool:
        return True

    executor, endpoint = agent(store, says("Hi."), approve=approve)
    run(executor, INPUT)
    assert offered(endpoint) == [["add"]]


def test_a_result_survives_the_process_that_was_about_to_store_it(
    store: cc.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guarantee 18.6: the answer is used in the transaction that stores the result, and only there."""
    run(agent(store, says(call(1, "pick")))[0], INPUT)
    store.answer_approval(store.approvals("demo")[0].id, True, result="blue")
    real: Callable[..., Message] = TurnStore.store_result

    def dies(self: TurnStore, *given: Any, **options: Any) -> Message:
        taken_over(store)
        return real(self, *given, **options)

    with monkeypatch.context() as patch:
        patch.setattr(TurnStore, "store_result", dies)
        assert isinstance(run(agent(store)[0]).error, LeaseLost)
    assert results(store) == []
    assert run(agent(store, says("Blue."))[0]).finish == "stop"
    assert results(store) == [("c1", "blue", False)]
