"""Agents that were called as tools: their conversations, states and approvals in the HTTP API."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

import contextc as cc
from contextc.app.agent_factory import ModelChoice
from contextc.executor import AgentExecutor, Suspend
from contextc.providers import Endpoint
from contextc.testing import FakeModel
from contextc.web.turn_manager import TurnManager
from tests.web.test_replies import get


def make_boss(store: cc.Store, *, begins: bool = True) -> cc.Agent[str]:
    """Return an agent that asks another one, whose tool needs approval."""

    @cc.tool(approval=True)
    def pay() -> str:
        """Pay."""
        return "paid"

    below = FakeModel(*([cc.tool_call("x", "pay", {})] if begins else []), "Paid.")
    payer = cc.Agent(below, name="payer", tools=[pay], description="Pays.")
    asks = cc.tool_call("c1", "payer", {"task": "Pay."})
    above = FakeModel(*([asks] if begins else []), "Done.")
    return cc.Agent(above, tools=[payer.as_tool()], store=store, approve=Suspend())


def test_a_call_has_the_conversation_of_its_agent_and_its_state(client: TestClient, store: cc.Store) -> None:
    """Guarantee 20.11: from the start to the end, with a way back to the caller; and as a tree with times."""
    make_boss(store).run_sync("Pay, please.", conversation="demo")
    view = get(client, "/demo")
    (called,) = view["called_agents"]
    assert (called["call"], called["agent"], called["state"]) == ("c1", "payer", "waiting")
    assert "caller" not in view
    below = get(client, f"/{called['conversation']}")
    assert (below["caller"], "called_agents" in below) == ("demo", False)
    (asked,) = view["approvals"]
    assert (asked["name"], below["approvals"]) == ("pay", [asked])
    listed = client.get("/api/conversations").json()["conversations"]
    assert {each["name"] for each in listed if each.get("needs_approval")} == {"demo", called["conversation"]}
    store.answer_approval(asked["id"], True)
    make_boss(store, begins=False).resume_sync("demo")
    assert [each["state"] for each in get(client, "/demo")["called_agents"]] == ["stop"]
    for name in ("demo", called["conversation"]):
        assert get(client, f"/{name}/timeline")["agents"] is True
        agents = get(client, f"/{name}/sub-agents")["agents"]
        facts = [(each["name"], each["kind"], each["agent"], each["parent"], each["state"]) for each in agents]
        assert facts == [("demo", "main", "", "", "stop"), (called["conversation"], "agent", "payer", "demo", "stop")]
        assert all(each["began"] <= each["ended"] and each["requests"] == 2 for each in agents)
    make_boss(store, begins=False).run_sync("Hello.", conversation="other")
    assert "agents" not in get(client, "/other/timeline")
    assert get(client, "/other/sub-agents") == {"agents": []}


@pytest.mark.parametrize("where", ["caller", "called"])
def test_an_answer_continues_the_caller(store: cc.Store, tmp_path: Path, where: str) -> None:
    """Guarantees 18.1, 20.11: whether it is given in the conversation of the caller or in that of the called agent."""

    async def run() -> str:
        make: Any = make_boss(store, begins=False).executor
        line = FakeModel()

        def executors(_: ModelChoice) -> tuple[AgentExecutor, Endpoint]:
            return make, line

        manager = TurnManager(store, executors, agent="assistant", model="replay:none.jsonl", root=tmp_path)
        (asked,) = store.approvals("demo")
        name = "demo" if where == "caller" else asked.conversation
        (shown,) = manager.approvals(name)
        await manager.answer_previewed(name, shown.id, shown.hash, True)
        begun = manager.running_turn("demo")
        assert begun is not None
        await begun.turn.wait()
        await manager.close()
        return store.load("demo")[-1].text

    make_boss(store).run_sync("Pay, please.", conversation="demo")
    assert asyncio.run(run()) == "Done."
