"""Requests of OpenAI Agents within the window: what is sent, and what is recorded."""

import asyncio
from itertools import pairwise
from typing import Any, cast

import pytest
from agents import Agent, RunConfig, Runner, SQLiteSession, function_tool, handoff
from agents.extensions import handoff_filters
from agents.testing import ModelStep, ScriptedModel, assistant_message, function_call

import contextc as cc
from contextc.adapters.history_functions import history_functions
from contextc.adapters.openai_agents import RequestFitter, Session
from contextc.errors import ContextOverflow
from tests.frameworks.openai_agents.scripted_runs import QUIET, list_steps, make_agent, run

MODEL = "openai:gpt-5.4"


def list_inputs(model: ScriptedModel) -> list[list[dict[str, Any]]]:
    return [cast(Any, call.input) for call in model.calls]


def find_orphans(items: list[dict[str, Any]]) -> list[str]:
    calls = [item["call_id"] for item in items if item.get("type") == "function_call"]
    results = [item["call_id"] for item in items if item.get("type") == "function_call_output"]
    return sorted({*calls} ^ {*results}) + [id for id in calls if results.count(id) != 1]


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("with_session", [True, False])
def test_a_long_run_fits_and_keeps_its_prefix(with_session: bool, streamed: bool, store: cc.Store) -> None:
    """Guarantees 21.3 to 21.6: everything is recorded once, each request fits, and requests extend each other."""
    session = Session("s", store)
    fitter = session.fitter(MODEL, window=16_000) if with_session else RequestFitter(store, "s", MODEL, window=16_000)
    agent, model = make_agent(*list_steps(40))
    asyncio.run(run(agent, "Find it.", session if with_session else None, fitter, streamed=streamed))
    inputs = list_inputs(model)
    assert len(inputs) == 41
    breaks = sum(now[: len(before)] != before for before, now in pairwise(inputs))
    assert 0 < breaks < 9
    assert all(not find_orphans(items) and items[0] == {"role": "user", "content": "Find it."} for items in inputs)
    compiler = cc.MessageCompiler(store, cc.provider(MODEL, window=16_000, format="openai_responses"))
    records = [compiler.explain("s", number).record for number in range(1, 42)]
    assert all(record.budget.input <= 16_000 for record in records)
    assert all(record.usage == cc.Usage(output=10) for record in records[:-1])
    assert [len(record.produced) for record in records] == [1] * 41
    items = asyncio.run(session.get_items())
    assert [item for item in items if item.get("role") == "user"] == [{"role": "user", "content": "Find it."}]
    assert find_orphans(cast(Any, items)) == []
    assert len([item for item in items if item.get("type") == "function_call"]) == len(
        {item["call_id"] for each in inputs for item in each if item.get("type") == "function_call"}
    )
    assert len(store.branches("s")) == 1
    assert len(store.conversations()) == 1


def test_what_fits_is_sent_as_it_is(store: cc.Store) -> None:
    """Guarantee 21.4: with room for everything, the model gets what it gets without the filter."""
    session = Session("s", store)
    sent: list[list[list[dict[str, Any]]]] = []
    for fitter in (None, session.fitter(MODEL)):
        agent, model = make_agent(*list_steps(6), *list_steps(2, label="b"))
        asyncio.run(run(agent, "one", session, fitter))
        asyncio.run(run(agent, "two", session, fitter))
        sent.append(list_inputs(model))
        asyncio.run(session.clear_session())
    assert sent[0] == sent[1]


@pytest.mark.parametrize("window", range(3_000, 24_000, 1_500))
def test_no_window_size_leaves_an_orphan(window: int) -> None:
    """Guarantee 21.4: openai-agents-python#4322: an item limit passes an unmatched `function_call_output`."""
    session = Session("s")
    agent, model = make_agent(*list_steps(20, size=250))
    try:
        asyncio.run(run(agent, "Find it.", session, session.fitter(MODEL, window=window)))
    except ContextOverflow:
        assert window < 4_500
    inputs = list_inputs(model)
    assert all(find_orphans(items) == [] for items in inputs)
    assert all(items[0].get("role") == "user" for items in inputs)
    session.close()


def test_a_handoff_filter_leaves_the_session_as_it_is(store: cc.Store) -> None:
    """Guarantee 21.3: the filtered history is compiled in a fork; the session keeps every item."""
    kept: list[object] = []
    for session in (SQLiteSession("s"), Session("s", store)):
        helper, helper_model = make_agent(ModelStep(output=[assistant_message("helped", item_id="m2")]))
        to_helper = handoff(helper, input_filter=handoff_filters.remove_all_tools)
        calls = [function_call(to_helper.tool_name, {}, call_id="h1")]
        model = ScriptedModel(steps=[*[*list_steps(2)][:2], ModelStep(output=calls)])
        agent = Agent(name="first", model=model, tools=make_agent()[0].tools, handoffs=[to_helper])
        fitter = session.fitter(MODEL) if isinstance(session, Session) else None
        asyncio.run(run(agent, "go", session, fitter))
        kept.append((asyncio.run(session.get_items()), list_inputs(helper_model)))
    assert kept[0] == kept[1]
    assert [len(each.name) > 1 for each in store.conversations()] == [False, True]
    assert len(store.branches("s")) == 1


def test_a_request_that_failed_is_recorded_and_the_next_run_continues(store: cc.Store) -> None:
    """Guarantee 21.6: the failed request is kept without a reply."""
    session = Session("s", store)
    fitter = session.fitter(MODEL)
    agent, model = make_agent(ModelStep.raise_error(RuntimeError("down")), ModelStep(output=[assistant_message("ok")]))

    async def work() -> None:
        with pytest.raises(RuntimeError, match="down"):
            await run(agent, "one", session, fitter)
        await run(agent, "two", session, fitter)

    asyncio.run(work())
    texts = [item.get("content") for item in list_inputs(model)[-1]]
    assert texts == ["one", "two"]
    compiler = cc.MessageCompiler(store, cc.provider(MODEL, format="openai_responses"))
    assert compiler.explain("s").record.request == 1
    assert [message.text for message in store.load("s")] == ["one", "two", "ok"]


def test_concurrent_runs_of_one_process_do_not_mix(store: cc.Store) -> None:
    """Guarantee 21.3: each run sends its own history, and the session has all of them."""
    session = Session("s", store)
    fitter = session.fitter(MODEL)
    agents = [make_agent(*list_steps(4, label=label, size=9)) for label in "abc"]

    async def work() -> None:
        await asyncio.gather(*[run(agent, f"task {at}", session, fitter) for at, (agent, _) in enumerate(agents)])

    asyncio.run(work())
    for at, (_, model) in enumerate(agents):
        for items in list_inputs(model):
            assert find_orphans(items) == []
            assert f"task {at}" in [item.get("content") for item in items]
    items = cast(Any, asyncio.run(session.get_items()))
    assert find_orphans(items) == []
    assert len([item for item in items if item.get("role") == "user"]) == 3
    assert len([item for item in items if item.get("role") == "assistant"]) == 3


def test_the_model_of_the_agent_is_used(store: cc.Store) -> None:
    """Guarantee 21.6: and a model that is not known is an error that says what to pass."""
    session = Session("s", store)
    config = RunConfig(call_model_input_filter=session.fitter(), **cast(Any, QUIET))
    with pytest.raises(cc.errors.UnknownModel, match=r"session\.fitter"):
        asyncio.run(Runner.run(Agent(name="a", model="no-such-model-9"), "hi", session=session, run_config=config))


def test_an_agent_searches_its_recorded_history(store: cc.Store) -> None:
    """Guarantee 22.3: the SDK runs the functions as any other tool."""
    call = function_call("search_history", {"query": "valve spring"}, call_id="s1")
    steps = [ModelStep(output=[assistant_message("Noted.", item_id="m1")]), ModelStep(output=[call])]
    model = ScriptedModel(steps=[*steps, ModelStep(output=[assistant_message("In spring.", item_id="m2")])])
    session = Session("report", store)
    tools = [function_tool(each) for each in history_functions(store, "report")]
    agent = Agent(name="worker", model=model, tools=[*tools])
    for text in ("The valve was replaced in spring.", "When was it replaced?"):
        asyncio.run(run(agent, text, session, session.fitter("openai:gpt-5.4")))
    results = [result.text for message in store.load("report") for result in message.tool_results]
    assert "r1 (user)\nThe valve was replaced in spring." in results[0]
