"""Tools as plain functions: told to a model by their hints, run with its arguments, and some built in."""

from contextc.toolbox.context import ToolContext
from contextc.toolbox.function import FunctionTool, Toolable, as_tools, tool
from contextc.toolbox.running import unknown_tool

__all__ = ["FunctionTool", "ToolContext", "Toolable", "as_tools", "tool", "unknown_tool"]
