"""The todos tool: the agent's todo list, in the store."""

from contextc._json import JSON
from contextc.errors import InvalidInput
from contextc.tools.context import ToolContext
from contextc.tools.function_tool import FunctionTool, tool
from contextc.tools.todos import TODO_TOOL, apply_todo_call


def todo_tool() -> FunctionTool:
    @tool(TODO_TOOL, timeout=30, parallel=False)
    def todos(context: ToolContext, **arguments: JSON) -> str:
        if context.store is None:
            raise InvalidInput("There is no store here to keep a todo list in.")
        return apply_todo_call(context.store, context.conversation, context.agent, arguments)

    return todos
