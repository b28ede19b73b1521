"""Tools made from plain functions: their schemas, their execution, and the built-in tools."""

from contextc.toolbox.context import ToolContext
from contextc.toolbox.function import FunctionTool, Toolable, as_tools, tool
from contextc.toolbox.running import unknown_tool

__all__ = ["FunctionTool", "ToolContext", "Toolable", "as_tools", "tool", "unknown_tool"]
