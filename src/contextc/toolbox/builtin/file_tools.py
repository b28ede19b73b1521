"""All file tools for one folder."""

from pathlib import Path

from contextc.toolbox.builtin.edit_file import edit_file_tool
from contextc.toolbox.builtin.folder import Folder
from contextc.toolbox.builtin.list_files import list_files_tool
from contextc.toolbox.builtin.read_file import read_file_tool
from contextc.toolbox.builtin.search_files import search_files_tool
from contextc.toolbox.builtin.write_file import write_file_tool
from contextc.toolbox.function import FunctionTool


def file_tools(root: str | Path, *, approval: bool = True) -> list[FunctionTool]:
    """Return tools that read, list, search, edit and write files below `root`, and nothing outside it.

    With `approval` a person must approve each change of a file.
    """
    folder = Folder(root)
    return [
        read_file_tool(folder),
        list_files_tool(folder),
        search_files_tool(folder),
        edit_file_tool(folder, approval=approval),
        write_file_tool(folder, approval=approval),
    ]
