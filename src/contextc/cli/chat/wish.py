"""Options of `contextc chat`."""

from pathlib import Path

from msgspec import Struct

from contextc.agents.made import Choice
from contextc.cli.chat.words import short
from contextc.cli.files import read
from contextc.errors import InvalidSetting


class Wish(Struct, frozen=True, kw_only=True):
    """The options of one chat."""

    question: str | None = None
    model: str | None = None
    conversation: str | None = None
    go_on: bool = False
    agent: str
    system: str | None = None
    tools: Choice | None = None
    """None is the default: all tools; no tools for the local model, which is too small and slow for them, and for a
    program with tools of its own.
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
    """Return the text, or the content of the file that @ names."""
    if given is None or not given.startswith("@"):
        return given
    try:
        return read(given[1:]).decode()
    except UnicodeDecodeError as error:
        raise InvalidSetting(f"{short(given[1:])} is not UTF-8 text.") from error
