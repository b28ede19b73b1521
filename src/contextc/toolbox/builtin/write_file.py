"""The write_file tool: create a file, or replace the whole text of one."""

from typing import Annotated

from contextc.errors import InvalidInput
from contextc.toolbox.builtin.folder import Workspace
from contextc.toolbox.function import FunctionTool, tool


def make_write_file(folder: Workspace, *, approval: bool = True) -> FunctionTool:
    @tool(timeout=30, approval=approval, parallel=False)
    def write_file(
        path: Annotated[str, "Relative to the top of the project. Folders on the way are made."],
        content: Annotated[str, "The whole text of the file."],
        overwrite: Annotated[bool, "Replace the whole text of a file that is there already."] = False,
    ) -> str:
        """Write a new file. To change a part of a file, use edit_file."""
        place = folder.for_writing(path)
        there = place.exists()
        if there and not overwrite:
            raise InvalidInput(
                f"{path} is there already, and was left as it is. Use edit_file to change it, or set overwrite to "
                "replace it as a whole."
            )
        if there:
            folder.file(path)
        folder.write(place, content, new=not there)
        lines = content.count("\n") + (not content.endswith("\n") and bool(content))
        return f"Wrote {path} ({lines:,} {'line' if lines == 1 else 'lines'})."

    return write_file
