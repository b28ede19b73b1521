"""Options of `contextc chat`."""

from pathlib import Path

from msgspec import Struct

from contextc.app.agent_factory import ToolSelection
from contextc.cli.chat.wrapping import to_one_line
from contextc.cli.file_io import read_input
from contextc.errors import InvalidSetting


class ChatOptions(Struct, frozen=True, kw_only=True):
    """The options of one chat."""

    question: str | None = None
    model: str | None = None
    conversation: str | None = None
    resume_last: bool = False
    agent: str
    system: str | None = None
    tools: ToolSelection | None = None
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


def read_system_prompt(option: str | None) -> str | None:
    """Return the text, or the content of the file that @ names."""
    if option is None or not option.startswith("@"):
        return option
    try:
        return read_input(option[1:]).decode()
    except UnicodeDecodeError as error:
        raise InvalidSetting(f"{to_one_line(option[1:])} is not UTF-8 text.") from error
