"""`contextc trust`: accept the settings of a project's `contextc.toml`."""

import os
import sys
from pathlib import Path
from typing import Annotated

from contextc.cli.command_line import Argument, Exit, Option, confirm
from contextc.cli.console import err, escape_markup, out
from contextc.config import CONFIG_FILE, UntrustedFile, check_project_file, distrust_file, find_untrusted_file
from contextc.config import trust_file as remember
from contextc.errors import InvalidSetting
from contextc.providers.registry import check_config_table


def run(
    folder: Annotated[Path, Argument(help="The project's folder.")] = Path("."),
    yes: Annotated[bool, Option("--yes", "-y", help="Do not ask.")] = False,
    forget: Annotated[bool, Option("--forget", help="Revoke the trust.")] = False,
) -> None:
    """Trust the contextc.toml of a project: show its changes, ask, and remember the answer until the file changes."""
    path = folder.expanduser() / CONFIG_FILE
    if forget:
        out.print("trust revoked" if distrust_file(str(path)) else "it was not trusted", soft_wrap=True)
        return
    if not path.is_file():
        raise InvalidSetting(f"{path}: not found", fix=f"Name the folder of the project's {CONFIG_FILE}.")
    check_settings(str(path))
    file = find_untrusted_file(folder=str(folder.expanduser()))
    if file is None:
        out.print(
            f"{escape_markup(str(path))} needs no trust: it has no security-relevant settings, or is already trusted"
        )
    elif yes or ask_for_trust(file):
        if yes:
            print_changes(file)
        remember(file)
        out.print("trusted, until the file changes")
    else:
        raise Exit(1)


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
    return confirm("Use these settings from now on, until the file changes?", on_stderr=True)


def print_changes(file: UntrustedFile) -> None:
    err.print(f"The settings of {escape_markup(os.path.abspath(file.path))} are not trusted yet:", soft_wrap=True)
    for change in file.changes:
        err.print(f"  {escape_markup(change)}", soft_wrap=True)
