"""Options of commands that run an agent: named, explained and checked in one way."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from contextc.errors import InvalidSetting

AgentOption = Annotated[str, typer.Option("--agent", help="The name of the agent.")]
SystemOption = Annotated[str | None, typer.Option("--system", help="A system prompt, or @file (default: configured).")]
ToolsOption = Annotated[
    Literal["all", "read", "none"] | None,
    typer.Option(
        "--tools",
        help="What the model may use (default: all; none for the local model and for programs with their own).",
    ),
]
RootOption = Annotated[Path, typer.Option("--root", help="The folder that tools work in.")]
StepsOption = Annotated[int | None, typer.Option("--steps", help="The most steps a turn may take (default: 250).")]
BudgetOption = Annotated[int | None, typer.Option("--budget", help="The tokens the whole input may take.")]
OutputOption = Annotated[int | None, typer.Option("--output", help="The tokens an answer may take.")]


def reference(text: str) -> int | str:
    """Return what names a message: its number, or its uid or id."""
    return int(text) if text.isdecimal() and text.isascii() and len(text) < 12 else text


def folder_of(root: Path) -> Path:
    """Return the folder that tools work in. Raise InvalidSetting if it does not exist."""
    folder = root.expanduser().resolve()
    if not folder.is_dir():
        raise InvalidSetting(f"--root {root}: there is no such folder. Create it, or name another one.")
    return folder


def check_numbers(**given: int | None) -> None:
    for name, number in given.items():
        if number is not None and number <= 0:
            raise InvalidSetting(f"--{name} {number}: give a number above 0.")
