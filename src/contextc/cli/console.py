"""Functions that the commands share: consoles, common options, progress, confirmation, text blocks."""

import os
import re
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Annotated

import msgspec
import typer
from rich.cells import cell_len, chop_cells
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from contextc.app.sanitize import sanitize
from contextc.errors import InvalidSetting

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)

FormatOption = Annotated[
    str | None,
    typer.Option("--format", "-f", help="The format: openai_chat, anthropic, gemini, … (default: recognised)."),
]
JSONOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask. Needed with --json, and without a terminal.")]


@contextmanager
def progress_bar(title: str) -> Generator[Callable[[int, int], None]]:
    """Show a progress bar on standard error, if it is a terminal."""
    columns = (TextColumn(title), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=err, transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def confirm(action: str, yes: bool, *, detail: str = "", json: bool = False) -> bool:
    """Ask for confirmation of an action that cannot be undone, unless `yes` is given.

    Only the question contains `detail`, which may be a secret. An error may be logged.
    """
    if yes:
        return True
    if json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise InvalidSetting(f"{action}: no terminal to confirm it at", fix="Add --yes.")
    if typer.confirm(f"{replace_control_characters(f'{action} {detail}'.strip())}?"):
        return True
    out.print("nothing was changed")
    return False


@contextmanager
def ignoring_failed_output() -> Generator[None]:
    """Ignore that standard error cannot be written, also at the end of this process: the exit code is another's."""
    try:
        yield
        sys.stderr.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def pluralize(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def escape_markup(text: str) -> str:
    """Return a text for printing with rich, without markup and control characters."""
    return escape(replace_control_characters(text))


def replace_control_characters(text: str) -> str:
    """Return a text for a terminal, with control characters replaced."""
    return "".join(character if character.isprintable() or character == "\n" else "\ufffd" for character in text)


def print_json(value: object) -> None:
    sys.stdout.write(escape_at_terminal(msgspec.json.format(msgspec.json.encode(value), indent=2)).decode() + "\n")


def escape_at_terminal(json: bytes) -> bytes:
    """Return JSON for standard output. At a terminal, control characters and those that change the direction of text
    become escapes, such as `\\u202e`: the same JSON, which cannot control the terminal."""
    if not sys.stdout.isatty():
        return json
    return UNSAFE.sub(_escape_character, json.decode(errors="backslashreplace")).encode()


def _escape_character(match: re.Match[str]) -> str:
    character = match[0]
    if character.isprintable():
        return character
    units = character.encode("utf-16-be")
    return "".join([f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2)])


UNSAFE = re.compile(r"[^\x20-\x7e\n\t\r]|\r(?!\n)")
INDENT = 4


def print_block(heading: str, *below: str) -> None:
    """Print markup: the heading on one line, the rest indented, at any width.

    The heading is never cut, so names in it can be copied. In contrast to a table, no column is too narrow.
    """
    out.print(heading, soft_wrap=True)
    for each in below:
        for line in Text.from_markup(each).wrap(out, max(20, out.width - INDENT)):
            line.rstrip()
            out.print(Text(" " * INDENT) + line, soft_wrap=True)


DEFAULT_WIDTH = 160


def to_one_line(text: str, width: int = DEFAULT_WIDTH) -> str:
    """Return the text in one line, cut to `width`."""
    line = sanitize(" ".join(text.split()))
    return line if cell_len(line) <= width else chop_cells(line, max(1, width - 1))[0] + "…"


def format_dollars(cost: float) -> str:
    return f"${cost:,.4f}"
