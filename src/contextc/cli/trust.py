"""`contextc trust`: accept the settings of a project's `contextc.toml`, the servers in its `.mcp.json`, and what its
instruction files import.
"""

import os
import sys
from pathlib import Path
from typing import Annotated

from contextc.cli.command_line import Argument, Exit, Option, confirm
from contextc.cli.console import err, escape_markup, out
from contextc.config import (
    CONFIG_FILE,
    UntrustedFile,
    check_project_file,
    distrust_file,
    find_untrusted_file,
    is_trusted,
)
from contextc.config import trust_file as remember
from contextc.errors import InvalidSetting
from contextc.instruction_files import InstructionFiles, find_project_root
from contextc.mcp.config_files import PROJECT_FILE, read_project_file
from contextc.providers.registry import check_config_table


def run(
    folder: Annotated[Path, Argument(help="The project's folder.")] = Path("."),
    yes: Annotated[bool, Option("--yes", "-y", help="Do not ask.")] = False,
    forget: Annotated[bool, Option("--forget", help="Revoke the trust.")] = False,
) -> None:
    """Trust the contextc.toml of a project: show its changes, ask, and remember the answer until the file changes.

    The same for its .mcp.json, and for files outside the project that its AGENTS.md or CLAUDE.md imports.
    """
    folder = folder.expanduser()
    path = folder / CONFIG_FILE
    if forget:
        files = (str(path), str(folder / PROJECT_FILE))
        revoked = any([distrust_file(each, project=str(find_project_root(folder))) for each in files])
        out.print("trust revoked" if revoked else "it was not trusted", soft_wrap=True)
        return
    imports = [*find_pending_servers(folder), *InstructionFiles(folder).read().pending] if folder.is_dir() else []
    if not path.is_file() and not imports:
        raise InvalidSetting(f"{path}: not found", fix=f"Name the folder of the project's {CONFIG_FILE}.")
    file = None
    if path.is_file():
        check_settings(str(path))
        file = find_untrusted_file(folder=str(folder))
        if file is None:
            shown = escape_markup(str(path))
            out.print(f"{shown} needs no trust: it has no security-relevant settings, or is already trusted")
    while pending := ([file] if file is not None else imports):
        for each in pending:
            if not yes and not ask_for_trust(each):
                raise Exit(1)
            if yes:
                print_changes(each)
            remember(each)
            out.print("trusted, until the file changes")
        # An approved file may import others.
        file, imports = None, [*find_pending_servers(folder), *InstructionFiles(folder).read().pending]


def find_pending_servers(folder: Path) -> list[UntrustedFile]:
    """Return the project's `.mcp.json` if it is not trusted yet."""
    _, file = read_project_file(str(folder / PROJECT_FILE))
    return [] if file is None or is_trusted(file) else [file]


def check_settings(path: str) -> None:
    """Raise InvalidSetting if the settings of a project file are invalid, trusted or not."""
    for name, facts in check_project_file(path).items():
        check_config_table(name, facts)


def can_be_trusted(file: UntrustedFile) -> bool:
    try:
        check_settings(file.path)
    except InvalidSetting:
        return False
    return True


def ask_for_trust(file: UntrustedFile) -> bool:
    """Show the changes of a project file, and ask for confirmation."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise InvalidSetting(f"{file.path}: no terminal to confirm it at", fix="Read the file, then add --yes.")
    print_changes(file)
    what = "this file" if file.project else "these settings"
    return confirm(f"Use {what} from now on, until the file changes?", on_stderr=True)


def print_changes(file: UntrustedFile) -> None:
    if file.project:
        err.print(f"{escape_markup(file.changes[0])}. Its text:", soft_wrap=True)
    else:
        err.print(f"The settings of {escape_markup(os.path.abspath(file.path))} are not trusted yet:", soft_wrap=True)
    for change in file.changes[1:] if file.project else file.changes:
        err.print(f"  {escape_markup(change)}", soft_wrap=True)
