"""Options of `contextc chat`, and what they select: the system prompt, and the conversation that a chat starts with."""

from pathlib import Path

from msgspec import Struct

from contextc.app.agent_factory import ToolSelection, time_based_names
from contextc.cli.chat.formatting import to_one_line
from contextc.cli.file_io import read_input
from contextc.config import PolicyName
from contextc.errors import InvalidSetting
from contextc.store import Store


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
    policy: PolicyName | None = None
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


def pick_conversation(store: Store, name: str | None, *, resume_last: bool) -> str:
    """Return the first conversation of a chat: the named one, the last one, or a new one named after the time."""
    if name is not None:
        return name
    found = store.conversations()
    if resume_last:
        if not found:
            raise InvalidSetting("--continue: the store has no conversation.")
        return max([each.name for each in found], key=lambda name: _last_time(store, name))
    names = {each.name for each in found}
    return next(name for name in time_based_names() if name not in names)


def _last_time(store: Store, conversation: str) -> int:
    """Return the time of the last message."""
    last = store.load(conversation, last=1)
    return last[0].time if last else store.conversation(conversation).created
