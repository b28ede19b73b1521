"""`contextc trust`: accept the settings of a project's `contextc.toml`."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from contextc.cli.terminal import err, out, plain
from contextc.config import FILE, ProjectFile, check_project, distrust, project_file
from contextc.config import trust as remember
from contextc.errors import InvalidSetting
from contextc.providers.named import check_facts


def run(
    folder: Annotated[Path, typer.Argument(help="The project's folder.")] = Path("."),
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    forget: Annotated[bool, typer.Option("--forget", help="Revoke the trust.")] = False,
) -> None:
    """Trust the contextc.toml of a project: show its changes, ask, and remember the answer until the file changes."""
    path = folder.expanduser() / FILE
    if forget:
        out.print("trust revoked" if distrust(str(path)) else "it was not trusted", soft_wrap=True)
        return
    if not path.is_file():
        raise InvalidSetting(f"{path}: not found", fix=f"Name the folder of the project's {FILE}.")
    check(str(path))
    file = project_file(folder=str(folder.expanduser()))
    if file is None:
        out.print(f"{plain(str(path))} needs no trust: it has no security-relevant settings, or is already trusted")
    elif yes or ask(file):
        if yes:
            show(file)
        remember(file)
        out.print("trusted, until the file changes")
    else:
        raise typer.Exit(1)


def check(path: str) -> None:
    """Raise InvalidSetting if the settings of a project file are invalid, trusted or not."""
    for name, facts in check_project(path).items():
        check_facts(name, facts)


def can_be_trusted(file: ProjectFile) -> bool:
    try:
        check(file.path)
    except InvalidSetting:
        return False
    return True


def ask(file: ProjectFile) -> bool:
    """Show the changes of a project file, and ask for confirmation."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise InvalidSetting(f"{file.path}: no terminal to confirm it at", fix="Read the file, then add --yes.")
    show(file)
    return typer.confirm("Use these settings from now on, until the file changes?", default=False, err=True)


def show(file: ProjectFile) -> None:
    err.print(f"The settings of {plain(os.path.abspath(file.path))} are not trusted yet:", soft_wrap=True)
    for change in file.changes:
        err.print(f"  {plain(change)}", soft_wrap=True)
