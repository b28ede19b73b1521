"""Tools with and without approval, and an agent whose turns are suspended until an answer is stored."""

import asyncio
from typing import Any

import contextc as cc
from contextc.doctor import scan_store
from contextc.events import AnyEvent
from contextc.tools import FunctionTool
from tests.executor.scripted_provider import SONNET, Line, Scripted, call, says

PAYS = says("Paying.", call(1, "pay", amount=5), call(2, "look"), call(3, "pay", amount=7))
DONE = says("Done.")
PATIENCE = 60


class Shop:
    """Tools that keep a list of what they did, and an agent that uses them."""

    def __init__(self, store: cc.Store) -> None:
        self.store, self.did = store, list[str]()

    def tools(self) -> list[FunctionTool]:
        @cc.tool(approval=True)
        def pay(amount: int) -> str:
            """Pay."""
            self.did.append(f"pay {amount}")
            return f"paid {amount}"

        @cc.tool
        def look() -> str:
            """Look."""
            self.did.append("look")
            return "looked"

        return [pay, look]

    def agent(self, *script: Line, approve: Any = None, **options: Any) -> cc.AgentExecutor:
        return cc.AgentExecutor(
            self.store,
            SONNET,
            tools=self.tools(),
            endpoint=Scripted(*script),
            approve=cc.Suspend() if approve is None else approve,
            triggers=(),
            **options,
        )

    def run(self, agent: cc.AgentExecutor, given: str | None = "Pay 5 and 7.") -> cc.TurnResult:
        async def turn() -> cc.TurnResult:
            return await asyncio.wait_for(agent.start("demo", given).wait(), PATIENCE)

        return asyncio.run(turn())

    def resume(self, *script: Line, approve: object = None, **options: object) -> cc.TurnResult:
        async def turn() -> cc.TurnResult:
            agent = self.agent(*script, approve=approve, **options)
            return await asyncio.wait_for(agent.resume("demo").wait(), PATIENCE)

        return asyncio.run(turn())

    @property
    def results(self) -> list[tuple[str, str]]:
        found = [result for message in self.store.load("demo") for result in message.tool_results]
        return [(result.call_id, result.text) for result in found]

    def events(self, kind: type[AnyEvent]) -> list[AnyEvent]:
        return [event for event in self.store.events("demo") if isinstance(event, kind)]


def sound(store: cc.Store) -> bool:
    return [finding for finding in scan_store(store) if finding.kind == "fault"] == []
