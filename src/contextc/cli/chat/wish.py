"""What was asked for on the command line."""

from pathlib import Path

from msgspec import Struct

from contextc.agents.made import Choice
from contextc.cli.chat.words import short
from contextc.cli.files import read
from contextc.errors import InvalidSetting


class Wish(Struct, frozen=True, kw_only=True):
    """What was asked for on the command line."""

    question: str | None = None
    model: str | None = None
    conversation: str | None = None
    go_on: bool = False
    agent: str
    system: str | None = None
    tools: Choice | None = None
    """None: all, but none for the local model, which is too small to use them well and slow to read about them, and
    none for a program that has its own.
    """
    root: Path = Path(".")
    yes: bool = False
    steps: int | None = None
    budget: int | None = None
    output: int | None = None
    url: str | None = None
    window: int | None = None
    key: str | None = None
    json: bool = False


def system_of(given: str | None) -> str | None:
    """A text, or the content of a file."""
    if given is None or not given.startswith("@"):
        return given
    try:
        return read(given[1:]).decode()
    except UnicodeDecodeError as error:
        raise InvalidSetting(f"{short(given[1:])} is not UTF-8 text.") from error
