"""The todos tool: the agent's todo list, in the store."""

from contextc._json import JSON
from contextc.errors import InvalidInput
from contextc.todos import TODO_TOOL, apply_todo_call
from contextc.toolbox.context import ToolContext
from contextc.toolbox.function import FunctionTool, tool


def todo_tool() -> FunctionTool:
    @tool(TODO_TOOL, timeout=30, parallel=False)
    def todos(context: ToolContext, **arguments: JSON) -> str:
        if context.store is None:
            raise InvalidInput("There is no store here to keep a todo list in.")
        return apply_todo_call(context.store, context.conversation, context.agent, arguments)

    return todos
