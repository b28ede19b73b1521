"""Options that the commands with an agent share."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from contextc.config import PolicyName
from contextc.errors import InvalidSetting

AgentOption = Annotated[str, typer.Option("--agent", help="The name of the agent.")]
SystemOption = Annotated[str | None, typer.Option("--system", help="A system prompt, or @file (default: configured).")]
ToolsOption = Annotated[
    Literal["all", "read", "none"] | None,
    typer.Option(
        "--tools",
        help="The tools of the model (default: all; none for the local model and for programs with their own).",
    ),
]
RootOption = Annotated[Path, typer.Option("--root", help="The working directory of tools.")]
StepsOption = Annotated[int | None, typer.Option("--steps", help="Limit of steps per turn (default: 250).")]
BudgetOption = Annotated[int | None, typer.Option("--budget", help="Limit of the whole input in tokens.")]
PolicyOption = Annotated[
    PolicyName | None,
    typer.Option("--policy", help="How messages are left out when the window is full (default: configured)."),
]
OutputOption = Annotated[int | None, typer.Option("--output", help="Limit of an answer in tokens.")]


def parse_reference(text: str) -> int | str:
    """Return a reference to a message: its number, or its uid or id."""
    return int(text) if text.isdecimal() and text.isascii() and len(text) < 12 else text


def resolve_root(root: Path) -> Path:
    """Return the working directory of tools. Raise InvalidSetting if it does not exist."""
    folder = root.expanduser().resolve()
    if not folder.is_dir():
        raise InvalidSetting(f"--root {root}: directory not found", fix="Create it, or name another one.")
    return folder


def check_positive(**given: int | None) -> None:
    for name, number in given.items():
        if number is not None and number <= 0:
            raise InvalidSetting(f"--{name} must be greater than 0", got=number)
