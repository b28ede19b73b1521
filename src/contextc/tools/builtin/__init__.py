"""The built-in tools: files below one folder, commands in it, and the todo list. One module per tool."""

from contextc.tools.builtin.file_tools import file_tools
from contextc.tools.builtin.run_command import command_tool
from contextc.tools.builtin.todo_tool import todo_tool

__all__ = ["command_tool", "file_tools", "todo_tool"]
