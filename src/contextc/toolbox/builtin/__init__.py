"""The built-in tools: files below one folder, commands in it, and the todo list. One module per tool."""

from contextc.toolbox.builtin.file_tools import file_tools
from contextc.toolbox.builtin.run_command import command_tool
from contextc.toolbox.builtin.todos import todo_tool

__all__ = ["command_tool", "file_tools", "todo_tool"]
