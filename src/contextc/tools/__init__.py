"""Tools made from plain functions: their schemas, their execution, and the built-in tools."""

from contextc.tools.context import ToolContext
from contextc.tools.execution import unknown_tool_result
from contextc.tools.function_tool import FunctionTool, ToolLike, tool, tools_by_name

__all__ = ["FunctionTool", "ToolContext", "ToolLike", "tools_by_name", "tool", "unknown_tool_result"]
