"""uvicorn without its rests: it looks ten times a second whether it is to stop, and then waits a tenth of a second.

That is nothing to a person and half of what most tests of a server take. Everything else is as it is.
"""

import asyncio
from types import SimpleNamespace

import uvicorn.server

REST = 0.005


async def _sleep(seconds: float) -> None:
    await asyncio.sleep(min(seconds, REST))


def be_brisk() -> None:
    """Have every server of this process look for its end all the time."""
    uvicorn.server.asyncio = SimpleNamespace(**{**vars(asyncio), "sleep": _sleep})  # pyright: ignore[reportPrivateImportUsage]
