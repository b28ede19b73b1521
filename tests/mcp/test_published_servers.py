"""Servers of the MCP project itself, of the older protocol and of the newer one (guarantee 24.1)."""

import asyncio
import json
import subprocess
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest

import contextc as cc
from contextc.events import ToolProgress
from contextc.mcp import ServerConnections
from tests.conftest import give_up
from tests.mcp.published_servers import published, published_for_python
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


def test_progress_of_a_published_server_is_shown_and_its_call_is_cancelled(servers: list[cc.MCPServer]) -> None:
    (everything,) = [each for each in servers if each.name == "everything"]
    long = ("everything__trigger-long-running-operation", {"duration": 600, "steps": 1_200})
    model = calling(long, ("everything__echo", {"message": "hi"}))

    async def work() -> tuple[list[str], list[cc.ToolResult]]:
        async with cc.Agent(model, mcp_servers=everything) as agent:
            run, shown = agent.stream("Go.", conversation="demo"), list[str]()
            async for each in run.events():
                if isinstance(each, ToolProgress):
                    shown.append(each.text)
                    agent.store.cancel_turn("demo")
            await agent.run("Go on.", conversation="demo")
            return shown, [each for message in agent.store.load("demo") for each in message.tool_results]

    shown, (cancelled, echo) = asyncio.run(asyncio.wait_for(work(), 120))
    assert shown[0].endswith(" of 1200")
    assert cancelled.is_error
    assert echo.text == "Echo: hi"


@pytest.mark.skipif(version("mcp") < "2.3", reason="the servers need a newer version of the package mcp")
def test_published_servers_of_the_newer_protocol(tmp_path: Path) -> None:
    """They are written with the Python package: an unknown tool and a wrong argument are errors of the protocol."""
    try:
        servers = published_for_python()
    except Unavailable as reason:
        give_up(f"The servers cannot be installed: {reason}.")
        return
    repository = tmp_path / "repository"
    subprocess.run(["git", "init", "--quiet", "--initial-branch=main", str(repository)], check=True, timeout=60)
    (repository / "note.txt").write_text("Hello.")
    path = {"repo_path": str(repository)}
    converted = {"source_timezone": "Asia/Tokyo", "time": "09:00", "target_timezone": "UTC"}
    model = calling(
        ("git__git_add", {**path, "files": ["note.txt"]}),
        ("git__git_status", path),
        ("git__git_status", {"repo_path": str(tmp_path / "missing")}),
        ("time__convert_time", converted),
        ("time__convert_time", {**converted, "target_timezone": "Nowhere/City"}),
    )

    async def work() -> list[cc.ToolResult]:
        connections = ServerConnections(servers)
        await connections.load_tools()
        clients = [each._client for each in connections.on_this_loop()]  # pyright: ignore[reportPrivateUsage]
        assert [each.protocol_version for each in clients if each] == ["2026-07-28"] * 2
        await connections.close()
        async with cc.Agent(model, mcp_servers=servers) as agent:
            return results(await agent.run("Go."))

    added, status, missing, time, nowhere = asyncio.run(work())
    assert (added.is_error, status.is_error, "note.txt" in status.text) == (False, False, True)
    assert (missing.is_error, nowhere.is_error) == (True, True)
    assert "00:00:00+00:00" in time.text
