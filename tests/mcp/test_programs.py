"""MCP servers of agents whose provider runs tools itself, within its reply (guarantees 24.1 and 24.7)."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

import contextc as cc
from contextc._json import JSONObject
from contextc.providers.client import ProviderCall
from tests.executor.scripted_tool_provider import Program, ended, said
from tests.mcp.servers import plain


@pytest.mark.parametrize("share", [None, 0])
def test_a_program_calls_tools_of_servers_in_the_middle_of_its_reply(share: float | None) -> None:
    """With many tools it gets the two that stand for them, and a call keeps the approval of the tool that it names."""
    texts: list[str] = []
    asked: list[str] = []

    async def script(call: ProviderCall, _: int) -> AsyncGenerator[JSONObject, None]:
        assert call.host is not None
        wanted: list[tuple[str, dict[str, Any]]] = [("plain__echo", {"text": "a"}), ("plain__process", {})]
        if share == 0:
            wanted = [("call_tool", {"name": name, "arguments": given}) for name, given in wanted]
        for number, (name, given) in enumerate(wanted):
            result = await call.host.run(cc.tool_call(f"c{number}", name, given))
            texts.append(result.text)
        yield said("Done.")
        yield ended()

    def approve(call: cc.ToolCall, tool: Any) -> bool:
        asked.append(tool.name)
        return False

    async def work() -> str:
        server = plain(needs_approval=["process"])
        agent = cc.Agent(
            "codex:gpt-5.4", endpoint=Program(script), mcp_servers=[server], defer_tools_above=share, approve=approve
        )
        async with agent:
            return (await agent.run("Go.")).text

    assert asyncio.run(work()) == "Done."
    assert texts == ["a", "Not run: the user declined."]
    assert asked == ["plain__process"]
