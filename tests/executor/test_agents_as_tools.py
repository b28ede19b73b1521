"""Agents as tools: conversations of their own, one account, approvals, kill -9, workers. The store has the tree."""

import asyncio
import multiprocessing
import signal
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

import pytest

import contextc as cc
from contextc._json import JSONObject
from contextc.doctor import scan_store
from contextc.errors import InvalidSetting, LeaseLost, StoreFull, TurnWaits
from contextc.events import (
    AgentCallStart,
    AgentEvent,
    ApprovalRequest,
    StepStart,
    StreamEvent,
    TextDelta,
    ToolFinished,
    ToolStart,
    TurnFinish,
    TurnStart,
    TurnWaiting,
)
from contextc.executor import Suspend
from contextc.formats.base import Request
from contextc.providers.client import ProviderCall
from contextc.store import agent_calls
from contextc.store.agent_calls import AgentCall
from contextc.store.message_log import load_tip
from contextc.store.store import open_with
from contextc.store.turn_records import mark_interrupted
from contextc.testing import FakeModel
from contextc.worker import TurnWorker, WorkerOptions
from tests.conftest import often
from tests.executor.event_waits import answer_between_workers, wait_for_event
from tests.executor.scripted_tool_provider import Script, answered, asked, ended, said
from tests.executor.scripted_tool_provider import agent as tool_provider
from tests.executor.test_compaction_processes import DeadlyStore
from tests.executor.test_store_failures import Unwilling

ANTHROPIC, OPENAI = "anthropic:claude-opus-5-5", "openai-chat:gpt-5"
PROCESSES = multiprocessing.get_context("forkserver")
PATIENCE = 60


def asks(name: str, task: str = "Look.", call: str = "c1") -> cc.ToolCall:
    return cc.tool_call(call, name, {"task": task})


def calls(store: cc.Store, conversation: str = "demo") -> list[AgentCall]:
    return store.read(lambda tx: agent_calls.load_agent_calls(tx, load_tip(tx, conversation).conversation))


def results(store: cc.Store, conversation: str = "demo") -> list[tuple[str, str]]:
    return [(each.name, each.text) for message in store.load(conversation) for each in message.tool_results]


def check(store: cc.Store) -> None:
    """Check that every call of every conversation has one result, and that nothing is still open."""
    assert [finding for finding in scan_store(store) if finding.kind == "fault"] == []
    for conversation in store.conversations():
        messages = [message for message in store.load(conversation.name) if message.status == "sent"]
        made = Counter(each.id for message in messages for each in message.tool_calls)
        assert made == Counter(each.call_id for message in messages for each in message.tool_results)
        states = {turn.state for turn in store.turns(conversation.name)}
        assert states <= ({"finished", "interrupted"} if conversation.name == "demo" else {"finished"})
    assert store.read(agent_calls.load_all_open_calls) == []


def test_an_agent_works_alone_on_its_task(store: cc.Store) -> None:
    """Guarantee 20.11: its answer is the result of the call, and it has seen nothing but the task."""
    below, above = FakeModel("It is 3.", provider=OPENAI), FakeModel(asks("looker", "Find it."), "Three.")
    looker = cc.Agent(below, name="looker", description="Looks things up.")
    boss = cc.Agent(above, tools=[looker.as_tool()], store=store)
    result = boss.run_sync("How many?", conversation="demo")
    assert (result.text, results(store)) == ("Three.", [("looker", "It is 3.")])
    (offered,) = [each for each in above.requests[0].tools if isinstance(each, cc.Tool) and each.name == "looker"]
    assert offered.description == "Looks things up. It sees nothing but the task, so say all it needs."
    assert [message.text for message in below.requests[0].messages] == ["Find it."]
    (call,) = calls(store)
    assert (call.agent, call.caller, call.turn, call.call, call.depth, call.answered) == (
        *("looker", "assistant"),
        *(1, "c1", 1, 1),
    )
    assert call.name.startswith("demo.looker-")
    assert [message.text for message in store.load(call.name)] == ["Find it.", "It is 3."]
    check(store)


def test_a_fork_sees_the_conversation_before_the_call(store: cc.Store) -> None:
    """Guarantee 20.11: what its caller says beside the call is not part of it."""
    below = FakeModel("Blue.")
    looker = cc.Agent(below, name="looker")
    model = FakeModel("Hello.", ["I ask.", asks("looker", "Which color?")], "It is blue.")
    boss = cc.Agent(model, tools=[looker.as_tool(mode="fork")], store=store)
    boss.run_sync("I like blue.", conversation="demo")
    boss.run_sync("What do I like?", conversation="demo")
    assert [message.text for message in below.requests[0].messages] == [
        *("I like blue.", "[@assistant] Hello.", "What do I like?"),
        "Which color?",
    ]
    assert [message.text for message in store.load("demo")][-1] == "It is blue."
    check(store)


def test_usage_costs_steps_and_calls_are_in_one_account(store: cc.Store) -> None:
    """Guarantee 20.11."""

    @cc.tool
    def look() -> str:
        """Look."""
        return "seen"

    below = FakeModel(cc.tool_call("x", "look", {}), "Seen.", provider=ANTHROPIC)
    looker = cc.Agent(below, name="looker", tools=[look])
    boss = cc.Agent(FakeModel(asks("looker"), "Done.", provider=ANTHROPIC), tools=[looker.as_tool()], store=store)
    result = boss.run_sync("hi", conversation="demo")
    (call,) = calls(store)
    steps = [*store.steps("demo"), *store.steps(call.name)]
    assert result.usage.input == sum([step.usage.input for step in steps if step.usage is not None])
    (turn,), (called,) = store.turns("demo"), store.turns(call.name)
    assert (turn.usage, turn.cost) == (result.usage, result.cost)
    assert result.cost is not None
    assert called.cost is not None
    assert result.cost > called.cost > 0
    assert (result.steps, result.tool_calls) == (4, 2)
    (finish,) = [event for event in store.events("demo") if isinstance(event, TurnFinish)]
    assert (finish.steps, finish.tool_calls, finish.cost) == (4, 2, result.cost)


def test_a_called_agent_has_what_is_left_of_the_limits(store: cc.Store) -> None:
    """Guarantee 20.11: steps, tool calls and costs of both are limited together."""

    @cc.tool
    def look() -> str:
        """Look."""
        return "seen"

    def again(request: Request) -> cc.ToolCall:
        return cc.tool_call(f"x{len(request.messages)}", "look", {})

    looker = cc.Agent(FakeModel(again), name="looker", tools=[look], triggers=())
    boss = cc.Agent(FakeModel(asks("looker"), "?"), limits=cc.Limits(steps=4), tools=[looker.as_tool()], store=store)
    result = boss.run_sync("hi", conversation="demo")
    assert (result.finish, result.steps) == ("max_steps", 4)
    assert results(store) == [("looker", "looker did not finish (max_steps).")]
    limits = cc.Limits(tool_calls=3)
    boss = cc.Agent(FakeModel(asks("looker"), "?"), limits=limits, tools=[looker.as_tool()], store=store)
    result = boss.run_sync("hi", conversation="calls")
    assert (result.finish, result.tool_calls) == ("max_tool_calls", 3)
    model = FakeModel(asks("looker"), "?", provider=ANTHROPIC)
    costly = cc.Agent(FakeModel("Seen.", provider=ANTHROPIC), name="looker")
    boss = cc.Agent(model, limits=cc.Limits(cost=1e-9), tools=[costly.as_tool()], store=store)
    result = boss.run_sync("hi", conversation="cost")
    assert (result.finish, results(store, "cost")) == (
        "max_cost",
        [("looker", "Not run: the turn ended before (its limit of cost).")],
    )


def looks_again(request: Request) -> list[str | cc.ToolCall]:
    return [cc.tool_call(f"{name}{len(request.messages)}", "look", {}) for name in "xy"]


@cc.tool
def look() -> str:
    """Look."""
    return "seen"


def make_two(
    store: cc.Store, limits: cc.Limits, *answers: Callable[[Request], list[str | cc.ToolCall]]
) -> tuple[cc.Agent[str], list[FakeModel]]:
    """Return an agent that calls two others at once, which never end by themselves, and their models."""
    models = [FakeModel(each, provider=ANTHROPIC) for each in answers or (looks_again, looks_again)]
    tools = [
        cc.Agent(model, name=name, tools=[look], triggers=()).as_tool()
        for name, model in zip(("left", "right"), models, strict=True)
    ]
    both = FakeModel([asks("left", call="c1"), asks("right", call="c2")], "?", provider=ANTHROPIC)
    return cc.Agent(both, limits=limits, tools=tools, store=store), models


@pytest.mark.parametrize("steps", [2, 4, 7])
def test_agents_that_run_at_once_share_what_is_left_of_steps_and_tool_calls(store: cc.Store, steps: int) -> None:
    """Guarantee 20.11: both are exact, because each is reserved before it begins."""
    boss, models = make_two(store, cc.Limits(steps=steps))
    result = boss.run_sync("hi", conversation="demo")
    assert (result.finish, result.steps) == ("max_steps", steps)
    assert 1 + sum([len(model.requests) for model in models]) == steps
    ends = {"left did not finish (max_steps).", "right did not finish (max_steps)."}
    assert {text for _, text in results(store)} <= ends | {"Not run: the turn ended before (its limit of steps)."}
    boss, _ = make_two(store, cc.Limits(tool_calls=steps + 2))
    result = boss.run_sync("hi", conversation="calls")
    assert (result.finish, result.tool_calls) == ("max_tool_calls", steps + 2)
    below = [event for call in calls(store, "calls") for event in store.events(call.name)]
    assert len([event for event in below if isinstance(event, ToolStart)]) == steps, "beside the calls of the two"
    check(store)


def test_agents_that_run_at_once_share_what_is_left_of_the_cost(store: cc.Store) -> None:
    """Guarantee 20.11: only requests that are in flight when the limit is reached exceed it."""
    boss, _ = make_two(store, cc.Limits(steps=12))
    free = boss.run_sync("hi", conversation="free")
    assert free.cost is not None
    largest = max([turn.cost for call in calls(store, "free") for turn in store.turns(call.name) if turn.cost])
    boss, _ = make_two(store, cc.Limits(cost=free.cost / 2))
    result = boss.run_sync("hi", conversation="demo")
    assert result.finish == "max_cost"
    assert result.cost is not None
    per_request = largest / 5
    assert free.cost / 2 <= result.cost <= free.cost / 2 + 2 * per_request
    assert {text for _, text in results(store)} == {
        "left did not finish (max_cost).",
        "right did not finish (max_cost).",
    }
    check(store)


def test_agents_that_wait_count_for_the_limits_of_a_resumed_turn(store: cc.Store) -> None:
    """Guarantee 20.11: another process restores what agents have used that have not answered yet."""

    def make() -> cc.Agent[str]:
        @cc.tool(approval=True)
        def pay() -> str:
            """Pay."""
            return "paid"

        def pays_second(request: Request) -> list[str | cc.ToolCall]:
            replies = [message for message in request.messages if message.role == "assistant"]
            return [cc.tool_call(f"x{len(replies)}", "pay" if len(replies) == 1 else "look", {})]

        tools = [
            cc.Agent(FakeModel(pays_second), name=name, tools=[look, pay], triggers=()).as_tool()
            for name in ("left", "right")
        ]
        both = FakeModel([asks("left", call="c1"), asks("right", call="c2")], "?")
        limits = cc.Limits(steps=6)
        return cc.Agent(both, limits=limits, tools=tools, store=store, approve=Suspend(), name="boss")

    assert make().run_sync("hi", conversation="demo").finish == "waiting"
    assert sum([turn.steps for call in calls(store) for turn in store.turns(call.name)]) == 4
    for each in store.approvals("demo"):
        store.answer_approval(each.id, True)
    result = make().resume_sync("demo")
    assert (result.finish, result.steps) == ("max_steps", 6)
    check(store)


def test_agents_call_each_other_only_so_deep(store: cc.Store) -> None:
    """Guarantee 20.11: the caller's limit holds for those below it."""
    third = cc.Agent(FakeModel("Third."), name="third")
    second = cc.Agent(FakeModel(asks("third"), "Second."), name="second", tools=[third.as_tool()])
    first = cc.Agent(
        FakeModel(asks("second"), "First."), tools=[second.as_tool()], store=store, limits=cc.Limits(agent_depth=1)
    )
    assert first.run_sync("hi", conversation="demo").text == "First."
    (call,) = calls(store)
    assert results(store, call.name) == [
        ("third", "Not run: agents may call each other 1 deep, and this one would be deeper. Do it yourself.")
    ]
    assert calls(store, call.name) == []
    check(store)


def test_events_of_called_agents_are_in_the_stream_and_stored_once(store: cc.Store) -> None:
    """Guarantee 20.11: marked with the call, before its result; those of agents further down, too."""
    third = cc.Agent(FakeModel("Third."), name="third")
    second = cc.Agent(FakeModel(asks("third", call="c2"), "Second."), name="second", tools=[third.as_tool()])
    first = cc.Agent(FakeModel(asks("second"), "First."), tools=[second.as_tool()], store=store)

    async def read() -> tuple[list[StreamEvent], list[str]]:
        async with first.stream("hi", conversation="demo") as run:
            events = [event async for event in run.events()]
        async with first.stream("hi", conversation="other") as run:
            return events, [text async for text in run.texts()]

    first_model = first
    with first_model.override(FakeModel(asks("second"), "First.", asks("second"), "Again.")):
        below = FakeModel(asks("third", call="c2"), "Second.", asks("third", call="c2"), "Second.")
        with second.override(below), third.override(FakeModel("Third.", "Third.")):
            events, texts = asyncio.run(read())
    assert texts == ["Again."]
    marked = [event for event in events if isinstance(event, AgentEvent)]
    assert [(event.call, event.agent) for event in marked if isinstance(event.event, TextDelta)] == [
        *[("c2", "third"), ("c1", "second")]
    ]
    order = [type(event.event if isinstance(event, AgentEvent) else event) for event in events]
    assert order.count(AgentCallStart) == 2
    assert [type(event) for event in events][-6:-5] == [ToolFinished]
    own = [event for event in events if not isinstance(event, AgentEvent)]
    assert own == store.events("demo")
    assert not any(isinstance(event, AgentEvent) for event in own)
    for call in calls(store):
        told = [event.event for event in marked if event.conversation == call.name]
        assert told == store.events(call.name)


def test_a_refused_or_failed_call_is_a_result_with_an_error(store: cc.Store) -> None:
    """A malformed call, an agent that fails, and one that says nothing."""
    looker = cc.Agent(FakeModel(RuntimeError("broken"), "", provider=OPENAI), name="looker")
    wrong = cc.tool_call("c0", "looker", {"job": "?"})
    boss = cc.Agent(
        FakeModel(wrong, asks("looker"), asks("looker", call="c2"), "Done."), tools=[looker.as_tool()], store=store
    )
    boss.run_sync("hi", conversation="demo")
    (_, first), (_, second), (_, third) = results(store)
    assert first.startswith("The tool was not run.")
    assert second.startswith("looker did not finish (")
    assert "broken" in second
    assert third == "looker ended without an answer."
    assert all(each.is_error for message in store.load("demo") for each in message.tool_results)
    check(store)


def test_options_of_the_tool_are_checked() -> None:
    looker = cc.Agent(FakeModel(), name="the looker", description="Looks.")
    assert looker.as_tool().name == "the_looker"
    assert looker.as_tool(name="find", description="Finds.").tool.description.startswith("Finds. It sees nothing")
    with pytest.raises(InvalidSetting, match='mode must be "alone" or "fork"'):
        looker.as_tool(mode="both")  # type: ignore[arg-type]
    with pytest.raises(InvalidSetting, match="agent_depth must be an integer above 0"):
        cc.Limits(agent_depth=0)


def program_with_a_call(results: list[str]) -> Script:
    async def script(call: ProviderCall, number: int) -> AsyncGenerator[JSONObject, None]:
        assert call.host is not None
        yield asked("call_1", "looker")
        result = await call.host.run(cc.ToolCall(id="call_1", name="looker", arguments={"task": "Look."}))
        results.append(result.text)
        yield answered("call_1", result.text, "looker")
        yield said("Done.")
        yield ended()

    return script


def test_an_agent_can_be_called_within_a_reply(store: cc.Store) -> None:
    """By a provider that runs tools itself. Nothing can be suspended there, so an agent that waits is cancelled."""

    @cc.tool(approval=True)
    def pay() -> str:
        """Pay."""
        return "paid"

    model = FakeModel("Seen.", cc.tool_call("x", "pay", {}), provider=ANTHROPIC)
    looker = cc.Agent(model, name="looker", tools=[pay])
    told: list[str] = []
    executor, _ = tool_provider(store, program_with_a_call(told), tools=[looker.as_tool()], approve=Suspend())
    for conversation in ("demo", "other"):
        result = asyncio.run(run_to_the_end(executor, conversation))
        assert (result.finish, result.text) == ("stop", "Done.")
        (called,) = store.turns(calls(store, conversation)[0].name)
        assert called.usage is not None
        assert (result.usage.input, result.steps) == (called.usage.input, 2)
    assert told == ["Seen.", "looker did not finish (waiting)."]
    assert called.finish == "cancelled"
    assert store.approvals() == []
    check(store)


async def run_to_the_end(executor: cc.AgentExecutor, conversation: str) -> cc.TurnResult:
    return await executor.start(conversation, "hi").wait()


# ── cancelling ────────────────────────────────────────────────────────────────────────────────────────────────────────


def patient_agent(begun: asyncio.Event) -> cc.Agent[str]:
    @cc.tool
    async def wait() -> str:
        """Wait."""
        begun.set()
        await asyncio.sleep(PATIENCE)
        return "waited"

    model = FakeModel(cc.tool_call("x", "wait", {}), "?", provider=ANTHROPIC)
    return cc.Agent(model, name="looker", tools=[wait])


def test_cancelling_the_caller_cancels_the_called_agent(store: cc.Store) -> None:
    """Guarantee 20.11: both are stored as cancelled, and what was used is counted."""

    async def run() -> cc.TurnResult:
        begun = asyncio.Event()
        model = FakeModel(asks("looker"), provider=ANTHROPIC)
        boss = cc.Agent(model, tools=[patient_agent(begun).as_tool()], store=store)
        turn = boss.executor.start("demo", "hi")
        await begun.wait()
        turn.cancel()
        return await turn.wait()

    result = asyncio.run(asyncio.wait_for(run(), PATIENCE))
    (call,) = calls(store)
    ((_, text),) = results(store)
    assert text.startswith("Interrupted: the turn ended (it was cancelled)")
    (turn,), (called,) = store.turns("demo"), store.turns(call.name)
    assert (turn.finish, called.finish) == ("cancelled", "cancelled")
    assert turn.cost is not None
    assert called.cost is not None
    assert (turn.cost, turn.agent_steps) == (result.cost, 1)
    first = store.steps("demo")[0].usage
    assert first is not None
    assert called.usage is not None
    assert turn.usage is not None
    assert turn.usage.input == first.input + called.usage.input
    check(store)


def test_cancelling_the_called_agent_is_a_result_for_its_caller(store: cc.Store) -> None:
    """From any process, by the conversation of the called agent."""

    async def run() -> str:
        begun = asyncio.Event()
        model = FakeModel(asks("looker"), "Never mind.", provider=ANTHROPIC)
        boss = cc.Agent(model, tools=[patient_agent(begun).as_tool()], store=store)
        turn = boss.executor.start("demo", "hi")
        await begun.wait()
        (call,) = calls(store)
        store.cancel_turn(call.name, "looker")
        return (await turn.wait()).text

    assert asyncio.run(asyncio.wait_for(run(), PATIENCE)) == "Never mind."
    assert results(store) == [("looker", "looker did not finish (cancelled).")]
    check(store)


# ── approvals, kill -9, workers ───────────────────────────────────────────────────────────────────────────────────────


def answer_once(request: Request) -> str | cc.ToolCall:
    """Pay once, then say so."""
    if request.messages[-1].role == "tool":
        return f"Result: {request.messages[-1].tool_results[0].text}"
    task = "audit" if request.messages[-1].text.endswith("audit") else "bill"
    return cc.tool_call(f"pay-{task}", "pay", {"amount": 30})


def delegate(request: Request) -> str | Sequence[cc.ToolCall]:
    """Ask both agents at once, then report."""
    found = [each.text for message in request.messages for each in message.tool_results]
    if found:
        return " ".join(found)
    return [asks("payer", "bill", "c1"), asks("checker", "audit", "c2")]


def make_boss(store: cc.Store, file: Path, *, approval: bool = True) -> cc.Agent[str]:
    """Return an agent that asks two others; one of them needs approval for its tool."""

    def tool(needs: bool) -> cc.tools.FunctionTool:
        @cc.tool(approval=needs)
        def pay(amount: int, context: cc.ToolContext) -> str:
            """Pay."""
            with file.open("a") as lines:
                lines.write(f"{context.call.id}\n")
            return f"paid {context.call.id}"

        return pay

    payer = cc.Agent(FakeModel(answer_once, provider=OPENAI), name="payer", tools=[tool(approval)])
    checker = cc.Agent(FakeModel(answer_once, provider=ANTHROPIC), name="checker", tools=[tool(False)])
    return cc.Agent(
        FakeModel(delegate, provider=ANTHROPIC),
        name="boss",
        tools=[payer.as_tool(), checker.as_tool(mode="fork")],
        store=store,
        approve=Suspend() if approval else None,
        lease_seconds=1.0,
    )


def check_whole(store: cc.Store, file: Path) -> None:
    """Check that both agents paid once, that both answers arrived, and that there is one account."""
    check(store)
    assert sorted(file.read_text().splitlines()) == ["pay-audit", "pay-bill"]
    assert dict(results(store)) == {"payer": "Result: paid pay-bill", "checker": "Result: paid pay-audit"}
    assert store.load("demo")[-1].text == "Result: paid pay-bill Result: paid pay-audit"
    check_account(store)


def check_account(store: cc.Store) -> None:
    (turn,) = store.turns("demo")
    below = [store.turns(call.name)[-1] for call in calls(store)]
    own = [step.usage for step in store.steps("demo") if step.usage is not None]
    assert turn.usage is not None
    assert turn.usage.output == sum([each.output for each in own]) + sum(
        [each.usage.output for each in below if each.usage is not None]
    )
    assert turn.agent_steps == sum([each.steps for each in below])
    assert turn.agent_tool_calls == sum([each.tool_calls for each in below])


def test_an_approval_of_a_called_agent_suspends_its_caller(store: cc.Store, tmp_path: Path) -> None:
    """Guarantees 18.1, 20.11: it is found by the caller's conversation, and another executor goes on."""
    file = tmp_path / "paid"
    result = make_boss(store, file).run_sync("go", conversation="demo")
    assert (result.finish, file.read_text()) == ("waiting", "pay-audit\n")
    (asked,) = store.approvals("demo")
    payer = next(call for call in calls(store) if call.agent == "payer")
    assert (asked.conversation, asked.name, asked.agent) == (payer.name, "pay", "payer")
    assert {(turn.agent, turn.state) for name in ("demo", payer.name) for turn in store.turns(name)} == {
        ("boss", "waiting"),
        ("payer", "waiting"),
    }
    (wait,) = [event for event in store.events("demo") if isinstance(event, TurnWaiting)]
    assert wait.approvals == (asked.id,)
    assert not any(isinstance(event, ApprovalRequest) for event in store.events("demo"))
    with pytest.raises(TurnWaits) as waits:
        make_boss(store, file).resume_sync("demo")
    assert waits.value.approvals == (asked.id,)
    assert store.answered_turns() == []
    store.answer_approval(asked.id, True)
    assert store.answered_turns() == [("demo", "boss", 1)]
    result = make_boss(store, file).resume_sync("demo")
    assert result.finish == "stop"
    assert store.answered_turns() == []
    check_whole(store, file)
    assert [event.resumed for event in store.events(payer.name) if isinstance(event, TurnStart)] == [False, True]


def test_a_waiting_caller_is_cancelled_with_the_agent_that_it_waits_for(store: cc.Store, tmp_path: Path) -> None:
    """Guarantees 18.1, 20.11: what both have used is counted."""
    file = tmp_path / "paid"
    make_boss(store, file).run_sync("go", conversation="demo")
    store.cancel_turn("demo", "boss")
    check(store)
    assert store.approvals() == []
    finishes = {call.agent: turn.finish for call in calls(store) for turn in store.turns(call.name)}
    assert sorted(finishes.values()) == ["cancelled", "stop"]
    text = "Interrupted: the turn ended (it was cancelled) while this agent was working. "
    assert dict(results(store)) == {
        "payer": f"{text}What it had done by then stays done.",
        "checker": "Result: paid pay-audit",
    }
    check_account(store)


def test_an_agent_that_is_cancelled_while_it_waits_lets_its_caller_go_on(store: cc.Store, tmp_path: Path) -> None:
    """Guarantee 20.11."""
    file = tmp_path / "paid"
    make_boss(store, file).run_sync("go", conversation="demo")
    payer = next(call for call in calls(store) if call.agent == "payer")
    store.cancel_turn(payer.name, "payer")
    assert store.answered_turns() == [("demo", "boss", 1)]
    result = make_boss(store, file).resume_sync("demo")
    assert (result.finish, file.read_text()) == ("stop", "pay-audit\n")
    assert dict(results(store))["payer"] == "payer did not finish (cancelled)."
    check(store)
    check_account(store)


def test_a_call_of_an_agent_can_need_approval_itself(store: cc.Store) -> None:
    """Guarantee 18.1: it is asked once, also if the agent then waits."""

    @cc.tool(approval=True)
    def pay() -> str:
        """Pay."""
        return "paid"

    def boss(*answers: str | cc.ToolCall) -> cc.Agent[str]:
        below = FakeModel(*([cc.tool_call("x", "pay", {})] if answers else []), "Paid.")
        payer = cc.Agent(below, name="payer", tools=[pay])
        model = FakeModel(*answers, "Done.")
        return cc.Agent(model, tools=[payer.as_tool(approval=True)], store=store, approve=Suspend())

    assert boss(asks("payer")).run_sync("go", conversation="demo").finish == "waiting"
    assert calls(store) == []
    (asked,) = store.approvals("demo")
    assert (asked.conversation, asked.name) == ("demo", "payer")
    store.answer_approval(asked.id, True)
    below = cc.Agent(FakeModel(cc.tool_call("x", "pay", {})), name="payer", tools=[pay])
    again = cc.Agent(FakeModel(), tools=[below.as_tool(approval=True)], store=store, approve=Suspend())
    assert again.resume_sync("demo").finish == "waiting"
    (asked,) = store.approvals("demo")
    assert asked.name == "pay"
    store.answer_approval(asked.id, True)
    assert boss().resume_sync("demo").text == "Done."
    assert results(store) == [("payer", "Paid.")]
    check(store)


def test_a_caller_that_loses_its_lease_leaves_the_called_agent_to_the_next_holder(store: cc.Store) -> None:
    """Guarantee 20.11: the agent is neither cancelled nor goes on here, and what has run is not run again."""
    ran: list[str] = []

    @cc.tool
    async def look(context: cc.ToolContext) -> str:
        """Look."""
        ran.append(context.call.id)
        if len(ran) == 2:
            store.write(
                lambda tx: tx.run("UPDATE main.lease SET number = number + 1, holder = '' WHERE agent = 'boss'")
            )
            await asyncio.sleep(PATIENCE)
        return "seen"

    def below(request: Request) -> str | cc.ToolCall:
        seen = sum(message.role == "tool" for message in request.messages)
        return "Seen." if seen == 3 else cc.tool_call(f"x{seen}", "look", {})

    def boss(*answers: str | cc.ToolCall) -> cc.AgentExecutor:
        looker = cc.Agent(FakeModel(below), name="looker", tools=[look], triggers=())
        tools = [looker.as_tool()]
        return cc.Agent(FakeModel(*answers), name="boss", tools=tools, store=store, lease_seconds=0.3).executor

    async def run(executor: cc.AgentExecutor, *, resumes: bool = False) -> cc.TurnResult:
        turn = executor.resume("demo") if resumes else executor.start("demo", "go")
        return await asyncio.wait_for(turn.wait(), PATIENCE)

    lost = asyncio.run(run(boss(asks("looker"))))
    assert isinstance(lost.error, LeaseLost)
    (call,) = calls(store)
    assert [turn.state for turn in store.turns(call.name)] == ["interrupted"]
    store.write(lambda tx: mark_interrupted(tx, call.parent, "boss", 0, 0, "taken over"))
    assert asyncio.run(run(boss("Done."), resumes=True)).text == "Done."
    assert ran == ["x0", "x1", "x2"]
    assert results(store) == [("looker", "Seen.")]
    assert [text.startswith("Interrupted") for _, text in results(store, call.name)] == [False, True, False]
    check(store)
    check_account(store)


@pytest.mark.parametrize("number", range(9, 13))
def test_a_called_agent_is_counted_once_if_a_write_fails(tmp_path: Path, number: int) -> None:
    """Guarantee 20.11: also if its result could not be stored, and the turn ends."""

    @cc.tool
    def look() -> str:
        """Look."""
        return "seen"

    unwilling = Unwilling(tmp_path / "full.db")
    with open_with(unwilling) as store:
        looker = cc.Agent(FakeModel(cc.tool_call("x", "look", {}), "Seen."), name="looker", tools=[look], triggers=())
        boss = cc.Agent(FakeModel(asks("looker"), "Done."), tools=[looker.as_tool()], store=store, triggers=())
        unwilling.count_from_here(range(number, number + 1))
        with suppress(StoreFull):
            boss.run_sync("go", conversation="demo")
        check_account(store)


def run_until_killed(path: Path, file: Path, last: int, moment: Literal["before", "after"], approval: bool) -> int:
    deadly = DeadlyStore(str(path))
    store = open_with(deadly)
    deadly.writes, deadly.last, deadly.moment = 0, last, moment
    make_boss(store, file, approval=approval).run_sync("go", conversation="demo")
    writes = deadly.writes
    store.close()
    return writes


def in_process(path: Path, file: Path, last: int, moment: Literal["before", "after"], approval: bool) -> int | None:
    child = PROCESSES.Process(target=run_until_killed, args=(path, file, last, moment, approval))
    child.start()
    child.join(PATIENCE)
    return child.exitcode


@pytest.mark.parametrize("approval", [False, True])
def test_kill_at_writes_of_a_turn_that_calls_two_agents(tmp_path: Path, approval: bool) -> None:
    """Guarantees 3.6, 20.11: one agent is killed in the middle, the other one may wait for approval. Another process
    goes on: no tool runs twice, every call has a result, and there is one account.
    """
    writes = run_until_killed(tmp_path / "whole.db", tmp_path / "whole", -1, "before", approval)
    for number in {*range(1, writes, often(11, 1)), writes - 1}:
        for moment in ("before", "after"):
            path, file = tmp_path / f"{number} {moment}.db", tmp_path / f"{number} {moment}"
            file.touch()
            if in_process(path, file, number, moment, approval) != -signal.SIGKILL:
                continue  # two agents at once do not always write as often
            with cc.open_store(path) as store:
                go_on(store, file, approval)
                paid = file.read_text().splitlines()
                assert max(Counter(paid).values(), default=0) <= 1, (number, moment)
                found = dict(results(store))
                assert {*found} == {"payer", "checker"}, (number, moment)
                assert {name for name, text in found.items() if text.startswith("Result: paid")} <= {
                    {"pay-bill": "payer", "pay-audit": "checker"}[each] for each in paid
                }
                check(store)
                check_account(store)


def test_input_after_a_crash_ends_the_agents_that_were_called(tmp_path: Path) -> None:
    """Guarantee 20.11: their calls are resolved, and no turn of theirs stays open."""
    writes = run_until_killed(tmp_path / "whole.db", tmp_path / "whole", -1, "before", True)
    ended = 0
    for number in range(8, writes, often(5, 1)):
        path, file = tmp_path / f"{number}.db", tmp_path / f"{number}"
        file.touch()
        assert in_process(path, file, number, "after", True) == -signal.SIGKILL
        with cc.open_store(path) as store:
            open_calls = store.read(agent_calls.load_all_open_calls)
            make_boss(store, file).run_sync("And now?", conversation="demo", wait=PATIENCE)
            if store.turns("demo")[-1].state == "waiting":  # the turn was suspended, so the input waits
                continue
            check(store)
            ended += len(open_calls)
            for call in open_calls:
                assert [turn.state for turn in store.turns(call.name)] in ([], ["finished"])
    assert ended


def go_on(store: cc.Store, file: Path, approval: bool) -> None:
    """Continue the turn as a user would, until it has ended."""
    known = [each.name for each in store.conversations()]
    if "demo" not in known or not store.load("demo"):
        make_boss(store, file, approval=approval).run_sync("go", conversation="demo")
    while not store.turns("demo") or store.turns("demo")[-1].state != "finished":
        for each in store.approvals("demo"):
            store.answer_approval(each.id, True)
        make_boss(store, file, approval=approval).resume_sync("demo", wait=PATIENCE)


def test_workers_go_on_after_an_answer(new_postgres_address: str, tmp_path: Path) -> None:
    """Guarantees 18.2, 19.5, 20.11: one worker asks and stops; the answer is a job of the caller for another worker."""
    file = tmp_path / "paid"

    async def work() -> None:
        with cc.open_store(new_postgres_address) as store:
            await answer_between_workers(store, lambda: make_boss(store, file), "go")
            check_whole(store, file)

    asyncio.run(asyncio.wait_for(work(), PATIENCE))


def test_a_worker_that_stops_hands_the_called_agent_over(new_postgres_address: str, tmp_path: Path) -> None:
    """Guarantee 20.11: after the step that runs; another worker goes on with both."""

    def make(stop: Callable[[], None]) -> cc.Agent[str]:
        @cc.tool
        def look() -> str:
            """Look."""
            stop()
            return "seen"

        def model(request: Request) -> str | cc.ToolCall:
            seen = sum(message.role == "tool" for message in request.messages)
            return "Seen twice." if seen == 2 else cc.tool_call(f"x{seen}", "look", {})

        def above(request: Request) -> str | cc.ToolCall:
            return "Done." if request.messages[-1].role == "tool" else asks("looker")

        looker = cc.Agent(FakeModel(model), name="looker", tools=[look], triggers=())
        return cc.Agent(FakeModel(above), name="boss", tools=[looker.as_tool()], store=store)

    async def work() -> None:
        await cc.submit(store, "demo", "go", agent="boss")
        for _ in range(2):
            workers: list[TurnWorker] = []
            loop = asyncio.get_running_loop()
            boss = make(lambda workers=workers, loop=loop: loop.call_soon_threadsafe(workers[0].stop) and None)
            workers.append(TurnWorker(store, {"boss": boss.executor}, WorkerOptions(heartbeat=0.2)))
            await workers[0].run()
        boss = make(lambda: None)
        worker = TurnWorker(store, {"boss": boss.executor}, WorkerOptions(heartbeat=0.2))
        running = asyncio.create_task(worker.run())
        await wait_for_event(store, "demo", TurnFinish)
        worker.stop()
        await running

    with cc.open_store(new_postgres_address) as store:
        asyncio.run(asyncio.wait_for(work(), PATIENCE))
        check(store)
        assert results(store) == [("looker", "Seen twice.")]
        (call,) = calls(store)
        starts = [event for event in store.events(call.name) if isinstance(event, TurnStart)]
        assert [event.resumed for event in starts] == [False, True, True]
        ran = [event.id for event in store.events(call.name) if isinstance(event, ToolStart)]
        assert ran == ["x0", "x1"]
        assert sum(isinstance(event, StepStart) for event in store.events("demo")) == 2
