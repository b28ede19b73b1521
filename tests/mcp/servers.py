"""Servers for tests, and agents that use them."""

import sys
from pathlib import Path
from typing import Any

import contextc as cc
from contextc.testing import Answer, FakeModel
from tests.mcp.forked_servers import forked

HERE = Path(__file__).parent


def plain(*modes: str, name: str = "plain", **options: Any) -> cc.MCPServer:
    """Return the server of the older protocol, which behaves in these ways."""
    return cc.MCPServer(name=name, command=sys.executable, args=[str(HERE / "plain_server.py"), *modes], **options)


def modern(*modes: str, name: str = "modern", **options: Any) -> cc.MCPServer:
    """Return the server of the newer protocol."""
    return cc.MCPServer(
        name=name, command=sys.executable, args=forked(str(HERE / "modern_server.py"), *modes), **options
    )


def asking(**options: Any) -> cc.MCPServer:
    """Return the server that asks questions."""
    return cc.MCPServer(name="asking", command=sys.executable, args=forked(str(HERE / "asking_server.py")), **options)


def configure_asking(home: Path) -> None:
    """Configure the server that asks questions for the user of a home directory."""
    file = home / ".config" / "contextc" / "contextc.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    words = f"command = {sys.executable!r}\nargs = {forked(str(HERE / 'asking_server.py'))!r}\nneeds_approval = false\n"
    with file.open("a") as settings:
        settings.write(f"\n[mcp.asking]\n{words}")


def calling(*calls: tuple[str, dict[str, Any]], provider: str | None = None) -> FakeModel:
    """Return a model that makes one call in each step, then answers."""
    answers: list[Answer] = [cc.tool_call(f"c{n}", name, given) for n, (name, given) in enumerate(calls, 1)]
    return FakeModel(*answers, "Done.", provider=provider)


def results(result: cc.AgentResult[Any]) -> list[cc.ToolResult]:
    return [each for message in result.messages for each in message.tool_results]
