"""An MCP server of the newer protocol (2026-07-28), and of the older ones, made with the package `mcp`.

With the argument `ttl=MILLISECONDS` it announces no changes of its list, which holds for that time.
"""

import asyncio
import os
import sys
from typing import Annotated

from mcp.server.caching import CacheableMethod, CacheHint
from mcp.server.mcpserver import AcceptedElicitation, Context, Elicit, ElicitationResult, MCPServer, Resolve
from pydantic import BaseModel

TIMES = [int(each.removeprefix("ttl=")) for each in sys.argv[1:] if each.startswith("ttl=")]
HINTS: dict[CacheableMethod, CacheHint] = {"tools/list": CacheHint(ttl_ms=TIMES[0])} if TIMES else {}
server = MCPServer("modern", subscriptions=False if TIMES else None, cache_hints=HINTS)


class Sum(BaseModel):
    value: int


class Name(BaseModel):
    name: str


async def ask_name() -> Elicit[Name]:
    return Elicit("What is your name?", Name)


@server.tool()
def add(first: int, second: int) -> Sum:
    """Add two numbers."""
    return Sum(value=first + second)


@server.tool()
def version(context: Context) -> str:
    """Return the version of the protocol."""
    return str(context.request_context.protocol_version)


@server.tool()
def header(name: str, context: Context) -> str:
    """Return a header of the request."""
    return str((context.headers or {}).get(name))


@server.tool()
async def grow(context: Context) -> str:
    """Offer one more tool."""

    def grown() -> str:
        return "grown ran"

    server.add_tool(grown, name="grown")
    await context.notify_tools_changed()
    return "It has grown."


@server.tool()
async def greet(name: Annotated[ElicitationResult[Name], Resolve(ask_name)]) -> str:
    """Greet the user, after asking for the name."""
    return f"Hello {name.data.name}" if isinstance(name, AcceptedElicitation) else "Hello stranger"


@server.tool()
async def hangs() -> str:
    """Never answer."""
    await asyncio.Event().wait()
    return ""


@server.tool()
def long(characters: int) -> str:
    """Return many characters."""
    return "x" * characters


@server.tool()
def dies() -> str:
    """End this process."""
    os._exit(1)


if __name__ == "__main__":
    server.run()
