"""Tokens of requests with 178 tools of MCP servers: all of them defined, and searched.

The tools are those of four published servers, and of further servers that list the same definitions again, until there
are 178. The second request follows a search, and a call of what it has found.
"""

import asyncio
import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.mcp.published_servers import published
from tests.mcp.servers import plain

import contextc as cc
from contextc.mcp import ServerConnections
from contextc.testing import FakeModel

TOOLS = 178
MODELS: dict[str, tuple[str, ...]] = {
    "anthropic:claude-opus-5-5": (),
    "anthropic:claude-opus-5-5, inline tools": ("inline-tools-2026-09-15",),
    "openai:gpt-5.4": (),
    "mistral:mistral-large-latest": (),
}


async def make_servers(folder: Path) -> list[cc.MCPServer]:
    servers = published(folder)
    connections = ServerConnections(servers)
    tools = [each.tool for each in (await connections.load_tools()).values()]
    await connections.close()
    found = len(tools)
    print(f"{found} tools of {len(servers)} published servers")
    while found < TOOLS:
        definitions = [
            {"name": each.name.partition("__")[2], "description": each.description, "inputSchema": each.parameters}
            for each in tools[: TOOLS - found]
        ]
        path = folder / f"tools{len(servers)}.json"
        path.write_text(json.dumps(definitions))
        servers.append(plain(f"tools={path}", name=f"team{len(servers)}"))
        found += len(definitions)
    return servers


async def measure(name: str, servers: list[cc.MCPServer], share: float | None) -> list[int]:
    """Return the tokens of the requests of a turn: the question, then what follows a search and a call."""
    provider = cc.provider(name.partition(",")[0], betas=MODELS[name])
    path = {"path": "/tmp"}
    call: Any = ("filesystem__list_directory", path)
    if share == 0 and "inline" not in name and not name.startswith("openai"):
        call = ("call_tool", {"name": call[0], "arguments": path})
    search = cc.tool_call("c1", "search_tools", {"query": "list the files of a directory"})
    model = FakeModel(*([search] if share == 0 else []), cc.tool_call("c2", *call), "Done.", provider=provider)
    with cc.open_store("memory:") as store:
        async with cc.Agent(model, mcp_servers=servers, store=store, defer_tools_above=share) as agent:
            result = await agent.run("What is in this folder?", conversation="demo")
            return [agent.explain("demo", number).record.budget.input for number in range(1, result.steps + 1)]


async def main() -> None:
    with TemporaryDirectory() as place:
        servers = await make_servers(Path(place).resolve())
        table = Table("model", "all defined", "searched", "after search and call")
        for name in MODELS:
            everything, searched = await measure(name, servers, None), await measure(name, servers, 0)
            table.add_row(name, f"{everything[0]:,}", f"{searched[0]:,}", f"{searched[-1]:,}")
        Console(width=120).print(table)


if __name__ == "__main__":
    asyncio.run(main())
