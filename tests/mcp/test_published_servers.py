"""Servers of the MCP project itself, which are written in TypeScript (guarantee 24.1)."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import contextc as cc
from tests.conftest import give_up
from tests.mcp.published_servers import published
from tests.mcp.servers import calling, results
from tests.sdk_comparison.ai_sdk_process import Unavailable


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[list[cc.MCPServer]]:
    try:
        yield published(tmp_path.resolve())
    except Unavailable as reason:
        give_up(f"The servers cannot be installed: {reason}.")


def test_published_servers_are_started_together_and_their_tools_run(
    servers: list[cc.MCPServer], tmp_path: Path
) -> None:
    file = str(tmp_path.resolve() / "note.txt")
    entity = {"name": "Oslo", "entityType": "city", "observations": ["It rains."]}
    model = calling(
        ("filesystem__write_file", {"path": file, "content": "Hello."}),
        ("filesystem__read_text_file", {"path": file}),
        ("filesystem__read_text_file", {"path": "/etc/hostname"}),
        ("memory__create_entities", {"entities": [entity]}),
        ("memory__search_nodes", {"query": "rains"}),
        ("everything__echo", {"message": "hi"}),
        ("everything__get-structured-content", {"location": "New York"}),
        ("everything__get-tiny-image", {}),
        ("everything__trigger-long-running-operation", {"duration": 0.1, "steps": 2}),
    )

    async def work() -> list[cc.ToolResult]:
        async with cc.Agent(model, mcp_servers=servers) as agent:
            return results(await agent.run("Go."))

    written, read, refused, _, nodes, echo, weather, picture, long = asyncio.run(work())
    assert (written.is_error, (tmp_path / "note.txt").read_text()) == (False, "Hello.")
    assert "Hello." in read.text
    assert (refused.is_error, "outside allowed directories" in refused.text) == (True, True)
    assert "It rains." in nodes.text
    assert echo.text == "Echo: hi"
    assert "temperature" in json.loads(weather.text.splitlines()[0])
    assert [each.mime_type for each in picture.content if isinstance(each, cc.Media)] == ["image/png"]
    assert "completed" in long.text
