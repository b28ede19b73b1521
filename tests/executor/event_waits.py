"""Waits for stored events of a conversation, of any process."""

import asyncio
from contextlib import aclosing

import contextc as cc
from contextc.events import Event
from contextc.executor.event_hub import watch

PATIENCE = 60


async def wait_for_event(store: cc.Store, conversation: str, kind: type[Event]) -> None:
    """Wait for the first event of a kind. The conversation need not exist yet."""
    async with asyncio.timeout(PATIENCE), aclosing(watch(store, conversation)) as events:
        async for event in events:
            if isinstance(event, kind):
                return
