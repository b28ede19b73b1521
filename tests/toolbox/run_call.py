"""Helper for the tests of the toolbox: run one call of one function, and return its result."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import contextc as cc


@dataclass
class Point:
    x: int
    y: int = 0


def look(path: str, limit: int = 10, kind: Literal["text", "bytes"] = "text", at: Point | None = None) -> str:
    """Look at a file."""
    return f"{path} {limit} {kind} {at}"


def call_of(name: str, arguments: str | Mapping[str, object] = "{}") -> cc.ToolCall:
    return cc.tool_call("c1", name, arguments)


def answer(
    function: Callable[..., object], arguments: str | Mapping[str, object] = "{}", *, timeout: float | None = None
) -> cc.ToolResult:
    """What a call of a function, or of a tool, comes to."""
    made = function if isinstance(function, cc.tools.FunctionTool) else cc.tool(function, timeout=timeout)
    return asyncio.run(made.run(call_of(made.name, arguments)))
