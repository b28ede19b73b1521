"""All file tools for one folder."""

from pathlib import Path

from contextc.toolbox.builtin.edit_file import make_edit_file
from contextc.toolbox.builtin.folder import Workspace
from contextc.toolbox.builtin.list_files import make_list_files
from contextc.toolbox.builtin.read_file import make_read_file
from contextc.toolbox.builtin.search_files import make_search_files
from contextc.toolbox.builtin.write_file import make_write_file
from contextc.toolbox.function import FunctionTool


def file_tools(root: str | Path, *, approval: bool = True) -> list[FunctionTool]:
    """Return tools that read, list, search, edit and write files below `root`, and nothing outside it.

    With `approval` a person must approve each change of a file.
    """
    folder = Workspace(root)
    return [
        make_read_file(folder),
        make_list_files(folder),
        make_search_files(folder),
        make_edit_file(folder, approval=approval),
        make_write_file(folder, approval=approval),
    ]
