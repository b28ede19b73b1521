"""Waits for stored events of a conversation, of any process."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing

import contextc as cc
from contextc.events import Event, TurnFinish, TurnWaiting
from contextc.executor.event_hub import watch
from contextc.worker import TurnWorker, WorkerOptions

PATIENCE = 60


async def wait_for_event(store: cc.Store, conversation: str, kind: type[Event]) -> None:
    """Wait for the first event of a kind. The conversation need not exist yet."""
    async with asyncio.timeout(PATIENCE), aclosing(watch(store, conversation)) as events:
        async for event in events:
            if isinstance(event, kind):
                return


async def answer_between_workers(store: cc.Store, make: Callable[[], cc.Agent[str]], text: str) -> None:
    """Submit a text. One worker asks for an approval and stops; after the answer another one goes on to the end."""
    for kind in (TurnWaiting, TurnFinish):
        agent = make().executor
        worker = TurnWorker(store, {agent.name: agent}, WorkerOptions(heartbeat=0.2, concurrency=2))
        running = asyncio.create_task(worker.run())
        if kind is TurnWaiting:
            await cc.submit(store, "demo", text, agent=agent.name)
        await wait_for_event(store, "demo", kind)
        worker.stop()
        await running
        for each in store.approvals("demo"):
            store.answer_approval(each.id, True)
