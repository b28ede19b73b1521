"""Tools: definitions, Python functions as tools, their execution, and the built-in tools."""

from contextc._lazy import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from contextc.tools.context import ToolContext
    from contextc.tools.definitions import NativeTool, Tool
    from contextc.tools.execution import unknown_tool_result
    from contextc.tools.function_tool import FunctionTool, ToolLike, tool, tools_by_name
    from contextc.tools.todos import Todo

__all__ = [
    "FunctionTool",
    "NativeTool",
    "Todo",
    "Tool",
    "ToolContext",
    "ToolLike",
    "tool",
    "tools_by_name",
    "unknown_tool_result",
]

if not TYPE_CHECKING:  # or type checkers would accept every name
    __getattr__ = lazy_names(
        __name__,
        {
            "context": "ToolContext",
            "execution": "unknown_tool_result",
            "function_tool": "FunctionTool ToolLike tool tools_by_name",
            "definitions": "NativeTool Tool",
            "todos": "Todo",
        },
    )
