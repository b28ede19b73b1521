"""The store is synchronous, so a turn calls it on a worker thread, and always waits for the end.

A durable step that has begun is not to be left alone: who is cancelled while it runs is told so afterwards, when what
it did is certain.
"""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar, TypeVarTuple, Unpack

T = TypeVar("T")
Given = TypeVarTuple("Given")


async def durable(work: Callable[[Unpack[Given]], T], *given: *Given) -> T:
    """Run blocking work on a thread. A cancellation that comes meanwhile is raised when the work is done."""
    future = asyncio.get_running_loop().run_in_executor(None, work, *given)
    await settled(future)
    return future.result()


async def settled(future: "asyncio.Future[Any]") -> None:
    """Wait until something has ended, however it ends. A cancellation that comes meanwhile is raised afterwards."""
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait({future})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        if not future.cancelled():
            future.exception()  # it was seen
        raise cancelled
