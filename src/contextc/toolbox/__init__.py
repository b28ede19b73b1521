"""Tools made from plain functions: their schemas, their execution, and the built-in tools."""

from contextc.toolbox.context import ToolContext
from contextc.toolbox.function import FunctionTool, ToolLike, tool, tools_by_name
from contextc.toolbox.running import unknown_tool_result

__all__ = ["FunctionTool", "ToolContext", "ToolLike", "tools_by_name", "tool", "unknown_tool_result"]
