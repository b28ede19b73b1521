"""Handoffs: another agent goes on with the turn, and gets the next input. The store tells who it is."""

import asyncio
import multiprocessing
import signal
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

import contextc as cc
from contextc.doctor import scan_store
from contextc.errors import InvalidSetting, ProviderFailed, TurnWaits
from contextc.events import StepStart, TurnStart
from contextc.executor import AgentResult, Suspend
from contextc.formats.base import Request
from contextc.store.store import open_with
from contextc.testing import FakeModel
from tests.conftest import often
from tests.executor.event_waits import answer_between_workers
from tests.executor.test_compaction_processes import DeadlyStore

ANTHROPIC, OPENAI = "anthropic:claude-opus-5-5", "openai-chat:gpt-5"
PROCESSES = multiprocessing.get_context("forkserver")
PATIENCE = 60


def transfers(name: str, call: str = "c1") -> cc.ToolCall:
    return cc.tool_call(call, f"transfer_to_{name}", {})


def tool_names(request: Request) -> list[str]:
    return [tool.name for tool in request.tools if isinstance(tool, cc.Tool)]


def test_the_turn_goes_on_with_the_other_agent_and_the_next_input_goes_there() -> None:
    """Guarantee 20.9."""

    @cc.tool
    def look_up(order: int) -> str:
        """Look an order up."""
        return f"order {order}: 30 euros"

    first = FakeModel(cc.tool_call("c0", "look_up", {"order": 7}), transfers("refunds"), provider=ANTHROPIC)
    second = FakeModel("You get 30 euros.", "Tomorrow.", provider=OPENAI)
    refunds = cc.Agent(second, name="refunds", instructions="You refund.", description="Money back.")
    triage = cc.Agent(first, tools=[look_up], name="triage", instructions="You sort.", handoffs=[refunds])
    result = triage.run_sync("Order 7 is broken.", conversation="demo")
    assert (result.text, result.agent, result.model) == ("You get 30 euros.", "refunds", "gpt-5")
    assert (result.steps, result.tool_calls) == (3, 2)
    offered = next(tool for tool in first.requests[0].tools if isinstance(tool, cc.Tool) and "transfer" in tool.name)
    assert offered.description == "Hand the conversation over to refunds. Money back."
    request = second.requests[0]
    assert "You refund." in str(request.system)
    assert "You sort." not in str(request.system)
    assert "look_up" not in tool_names(request)
    assert "transfer_to_refunds" not in tool_names(request)
    assert [message.role for message in request.messages] == ["user", "assistant", "tool", "assistant", "tool"]
    assert request.messages[2].tool_results[0].text == "order 7: 30 euros"
    assert request.messages[4].tool_results[0].text == "The conversation was handed over to refunds."
    later = triage.run_sync("When?", conversation="demo")
    assert (later.text, later.agent) == ("Tomorrow.", "refunds")
    assert [message.text for message in second.requests[1].messages[-2:]] == ["You get 30 euros.", "When?"]
    assert len(triage.store.turns("demo")) == 2


def test_usage_costs_and_limits_are_in_one_account() -> None:
    """Guarantee 20.9."""
    refunds = cc.Agent(FakeModel("Done.", provider=ANTHROPIC), name="refunds", limits=cc.Limits(steps=50))
    triage = cc.Agent(FakeModel(transfers("refunds"), provider=ANTHROPIC), name="triage", handoffs=[refunds])
    result = triage.run_sync("hi", conversation="demo")
    (turn,) = triage.store.turns("demo")
    steps = triage.store.steps("demo")
    assert turn.usage == result.usage
    assert result.usage.input == sum([step.usage.input for step in steps if step.usage is not None])
    assert result.cost is not None
    assert result.cost > 0
    limited = cc.Agent(
        FakeModel(transfers("refunds")), name="triage", handoffs=[refunds], limits=cc.Limits(steps=1)
    ).run_sync("hi")
    assert (limited.finish, limited.agent) == ("max_steps", "refunds")


def test_agents_hand_over_to_each_other_and_back() -> None:
    first = FakeModel(transfers("refunds"), "Back with me.")
    second = FakeModel(transfers("triage", "c2"))
    refunds = cc.Agent(second, name="refunds")
    triage = cc.Agent(first, name="triage", handoffs=[refunds])
    refunds.handoffs = [triage]
    result = triage.run_sync("hi", conversation="demo")
    assert (result.text, result.agent) == ("Back with me.", "triage")
    assert [message.role for message in first.requests[1].messages] == ["user", *["assistant", "tool"] * 2]
    assert refunds.handoffs == (triage,)


def test_an_agent_further_away_is_reached_through_others() -> None:
    third = cc.Agent(FakeModel("Third.", "Third again."), name="third")
    second = cc.Agent(FakeModel(transfers("third", "c2")), name="second", handoffs=[third])
    first = cc.Agent(FakeModel(transfers("second")), name="first", handoffs=[second])
    assert first.run_sync("hi", conversation="demo").agent == "third"
    assert first.run_sync("hi", conversation="demo").text == "Third again."


def test_a_rewind_and_a_fork_know_who_spoke_then() -> None:
    refunds = cc.Agent(FakeModel("Refunds.", "In the fork."), name="refunds")
    triage = cc.Agent(FakeModel("Triage.", transfers("refunds"), "Triage again."), name="triage", handoffs=[refunds])
    triage.run_sync("one", conversation="demo")
    triage.run_sync("two", conversation="demo")
    triage.store.fork("demo", "other")
    assert triage.run_sync("three", conversation="other").agent == "refunds"
    reply = next(message for message in triage.store.load("demo") if message.text == "Triage.")
    triage.store.rewind("demo", reply.uid)
    assert triage.run_sync("four", conversation="demo").text == "Triage again."


def test_a_declined_or_failed_handoff_changes_nothing() -> None:
    """A call without a result, because the turn ended before it, is no handoff either."""

    @cc.tool
    def look() -> str:
        """Look."""
        return "looked"

    refunds = cc.Agent(FakeModel("never"), name="refunds")
    both = [cc.tool_call("c0", "look", {}), transfers("refunds")]
    limits = cc.Limits(tool_calls=1)
    triage = cc.Agent(FakeModel(both), name="triage", tools=[look], handoffs=[refunds], limits=limits)
    assert triage.run_sync("hi", conversation="demo").agent == "triage"
    again = cc.Agent(FakeModel("Still me."), name="triage", handoffs=[refunds], store=triage.store)
    assert again.run_sync("hi", conversation="demo").text == "Still me."


def test_dependencies_approvals_and_overrides_go_along() -> None:
    @dataclass
    class Bank:
        paid: int = 0

    @cc.tool(approval=True)
    def pay(amount: int, context: cc.ToolContext[Bank]) -> str:
        """Pay."""
        context.deps.paid += amount
        return "paid"

    asked: list[str] = []

    def approve(call: cc.ToolCall, tool: cc.tools.FunctionTool) -> bool:
        asked.append(call.name)
        return True

    refunds = cc.Agent("openai:gpt-5", name="refunds", tools=[pay])
    triage = cc.Agent("openai:gpt-5", name="triage", handoffs=[refunds], approve=approve)
    bank = Bank()
    model = FakeModel(cc.tool_call("c2", "pay", {"amount": 5}), "Paid.")
    with triage.override(FakeModel(transfers("refunds")), store="memory:"), refunds.override(model):
        assert asyncio.run(triage.run("hi", deps=bank)).text == "Paid."
    assert (bank.paid, asked) == (5, ["pay"])


def test_typed_answers_come_from_either() -> None:
    @dataclass
    class Answer:
        value: int

    refunds = cc.Agent(FakeModel('{"value": 3}'), name="refunds", output_type=Answer)
    triage = cc.Agent(FakeModel(transfers("refunds")), name="triage", output_type=Answer, handoffs=[refunds])
    result: AgentResult[Answer] = triage.run_sync("hi")
    assert (result.output, result.agent) == (Answer(3), "refunds")


def test_the_other_agent_falls_back_to_its_next_model() -> None:
    """The channel, and so the cached prefix, is that of the agent and model that answer."""
    failing = FakeModel(ProviderFailed("openai", "quota", "no credit left"), provider=OPENAI)
    refunds = cc.Agent([failing, FakeModel("Paid.", provider=ANTHROPIC)], name="refunds")
    triage = cc.Agent(FakeModel(transfers("refunds"), provider=ANTHROPIC), name="triage", handoffs=[refunds])
    result = triage.run_sync("hi", conversation="demo")
    assert (result.text, result.agent, result.model) == ("Paid.", "refunds", "claude-opus-5-5")
    starts = [event for event in triage.store.events("demo") if isinstance(event, StepStart)]
    assert [(event.model, event.request) for event in starts] == [
        ("claude-opus-5-5", 1),
        ("gpt-5", 1),
        ("claude-opus-5-5", 1),
    ]


def test_what_cannot_work_is_refused() -> None:
    plain = cc.Agent(FakeModel(), name="plain")
    with pytest.raises(InvalidSetting, match="two agents are named 'assistant'"):
        cc.Agent(FakeModel(), handoffs=[cc.Agent(FakeModel())])
    with pytest.raises(InvalidSetting, match="handoffs must be agents, got str"):
        cc.Agent(FakeModel(), handoffs=["plain"])  # pyright: ignore[reportArgumentType, reportCallIssue]
    with pytest.raises(InvalidSetting, match="plain answers with str, and assistant with int"):
        cc.Agent(FakeModel(), output_type=int, handoffs=[plain])  # pyright: ignore[reportArgumentType, reportCallIssue]
    with pytest.raises(InvalidSetting, match="runs tools itself"):
        cc.Agent("claude-code", name="coder", handoffs=[plain])
    other = cc.Agent(FakeModel(transfers("plain")), name="other", handoffs=[plain])
    first = cc.Agent(FakeModel(transfers("other")), name="first", handoffs=[other])
    plain.handoffs = [cc.Agent(FakeModel(), name="other")]
    with pytest.raises(InvalidSetting, match="two agents are named 'other'"):
        first.run_sync("hi")


# ── approvals, kill -9, workers ───────────────────────────────────────────────────────────────────────────────────────


def sort(request: Request) -> cc.ToolCall:
    """Hand over."""
    return transfers("refunds", f"sort-{len(request.messages)}")


def fail(request: Request) -> Exception:
    return ProviderFailed("anthropic", "quota", "no credit left")


def refund(request: Request) -> str | cc.ToolCall:
    last = request.messages[-1]
    if last.role == "tool" and last.tool_results[0].name == "pay":
        return "Refunded."
    return cc.tool_call(f"pay-{len(request.messages)}", "pay", {"amount": 30})


def make_triage(store: cc.Store, file: Path, *, approval: bool = False) -> cc.Agent[str]:
    @cc.tool(approval=approval)
    def pay(amount: int, context: cc.ToolContext) -> str:
        """Pay."""
        with file.open("a") as lines:
            lines.write(f"{context.call.id}\n")
        return "paid"

    models = [FakeModel(fail, provider=ANTHROPIC), FakeModel(refund, provider=OPENAI)]
    refunds = cc.Agent(models, name="refunds", tools=[pay])
    return cc.Agent(
        FakeModel(sort, provider=ANTHROPIC),
        name="triage",
        handoffs=[refunds],
        store=store,
        approve=Suspend() if approval else None,
        lease_seconds=1.0,
    )


def check(store: cc.Store, file: Path, turns: int = 1) -> None:
    """Check that the other agent paid once for each turn, and that the record is whole."""
    assert [finding for finding in scan_store(store) if finding.kind == "fault"] == []
    messages = [message for message in store.load("demo") if message.status == "sent"]
    calls = Counter(each.id for message in messages for each in message.tool_calls)
    assert calls == Counter(each.call_id for message in messages for each in message.tool_results)
    assert messages[-1].text == "Refunded."
    assert len(store.turns("demo")) == turns
    assert len({*file.read_text().splitlines()}) == len(file.read_text().splitlines()) == turns


def test_a_turn_waits_for_approval_of_the_other_agents_tool_and_goes_on_with_it(tmp_path: Path) -> None:
    """Guarantees 20.9 and 18.1: the answer is given and used in another process, which finds the agent in the store."""
    address, file = f"sqlite:///{tmp_path}/demo.db", tmp_path / "paid"
    with cc.open_store(address) as store:
        assert make_triage(store, file, approval=True).run_sync("money back", conversation="demo").finish == "waiting"
        with pytest.raises(TurnWaits):
            make_triage(store, file, approval=True).resume_sync("demo")
    with cc.open_store(address) as store:
        (asked,) = store.approvals("demo")
        assert asked.name == "pay"
        store.answer_approval(asked.id, True)
        result = make_triage(store, file, approval=True).resume_sync("demo")
        assert (result.text, result.agent) == ("Refunded.", "refunds")
        check(store, file)


def test_calls_of_the_first_agent_that_wait_are_run_by_it(tmp_path: Path) -> None:
    """A reply may hand over and call a tool that needs approval: that tool is the first agent's."""
    file = tmp_path / "paid"

    @cc.tool(approval=True)
    def close_ticket() -> str:
        """Close the ticket."""
        file.write_text("closed")
        return "closed"

    refunds = cc.Agent(FakeModel("Done."), name="refunds")
    both = [transfers("refunds"), cc.tool_call("c2", "close_ticket", {})]
    triage = cc.Agent(FakeModel(both), name="triage", tools=[close_ticket], handoffs=[refunds], approve=Suspend())
    assert triage.run_sync("hi", conversation="demo").finish == "waiting"
    triage.store.answer_approval(triage.store.approvals("demo")[0].id, True)
    result = triage.resume_sync("demo")
    assert (result.agent, result.text, file.read_text()) == ("refunds", "Done.", "closed")


def run_until_killed(path: Path, file: Path, last: int, moment: Literal["before", "after"]) -> int:
    deadly = DeadlyStore(str(path))
    store = open_with(deadly)
    deadly.writes, deadly.last, deadly.moment = 0, last, moment
    make_triage(store, file).run_sync("money back", conversation="demo")
    store.close()
    return deadly.writes


def in_process(path: Path, file: Path, last: int, moment: Literal["before", "after"]) -> int | None:
    child = PROCESSES.Process(target=run_until_killed, args=(path, file, last, moment))
    child.start()
    child.join(PATIENCE)
    return child.exitcode


def test_kill_at_writes_of_a_turn_that_is_handed_over(tmp_path: Path) -> None:
    """Guarantees 3.6, 20.8, 20.9: another process goes on with the right agent, whose first model fails, and with its
    next model. A tool that has run is not run again.
    """
    writes = run_until_killed(tmp_path / "whole.db", tmp_path / "whole", -1, "before")
    for number in {*range(1, writes + 1, often(6, 1)), writes - 1}:  # the last but one stores the answer
        for moment in ("before", "after"):
            path, file = tmp_path / f"{number} {moment}.db", tmp_path / f"{number} {moment}"
            assert in_process(path, file, number, moment) == -signal.SIGKILL
            with cc.open_store(path) as store:
                triage = make_triage(store, file)
                known = [each.name for each in store.conversations()]
                ended = bool(known and store.turns("demo") and store.turns("demo")[-1].state == "finished")
                if not known or not store.load("demo"):
                    triage.run_sync("money back", conversation="demo")
                elif not ended:
                    triage.resume_sync("demo", wait=PATIENCE)
                paid = file.read_text().splitlines() if file.exists() else []
                results = [result for message in store.load("demo") for result in message.tool_results]
                assert store.load("demo")[-1].text == "Refunded.", (number, moment)
                assert (store.load("demo")[-1].meta or {})["spoken_by"] == "refunds"
                assert max(Counter(paid).values(), default=0) <= 1
                assert {each.call_id for each in results if each.text == "paid"} <= {*paid}
                assert {*paid} <= {each.call_id for each in results if each.name == "pay"}
                assert [finding for finding in scan_store(store) if finding.kind == "fault"] == []


def test_a_worker_goes_on_with_the_agent_that_took_over(new_postgres_address: str, tmp_path: Path) -> None:
    """Guarantees 19.5, 20.9: asked by one worker, answered, and continued by another one."""
    file = tmp_path / "paid"

    async def work() -> None:
        with cc.open_store(new_postgres_address) as store:
            await answer_between_workers(store, lambda: make_triage(store, file, approval=True), "money back")
            check(store, file)
            assert [event.resumed for event in store.events("demo") if isinstance(event, TurnStart)] == [False, True]

    asyncio.run(asyncio.wait_for(work(), PATIENCE))


def test_a_rule_for_an_agent_is_about_the_one_that_has_taken_over() -> None:
    """Guarantee 18.7: not about the agent whose turn it is."""

    @cc.tool(approval=True)
    def refund(amount: int) -> str:
        """Refund."""
        return f"{amount} refunded"

    ask = cc.tool_call("r1", "refund", {"amount": 5})
    with cc.open_store("memory:") as store:
        refunds = cc.Agent(FakeModel(ask, "Done."), name="refunds", tools=[refund])
        triage = cc.Agent(
            FakeModel(transfers("refunds")), name="triage", handoffs=[refunds], store=store, approve=cc.Suspend()
        )
        assert triage.run_sync("Refund 5.", conversation="demo").finish == "waiting"
        (asked,) = store.approvals("demo")
        store.answer_approval(asked.id, cc.store.Always(scope="agent", arguments="any"))
        assert [each.agent for each in store.approval_rules()] == ["refunds"]
        assert triage.resume_sync("demo").finish == "stop"
