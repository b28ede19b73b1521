"""Context that clients put into user messages, before and after the text of the user.

Stored messages keep it. Titles leave it out, and the web UI collapses it.
"""

from collections.abc import Iterable

from contextc.messages.message import Message

CLIENT_CONTEXT_TAGS = (
    *("system-reminder", "local-command-caveat", "ide_opened_file", "ide_selection"),  # Claude Code
    *("environment_context", "user_instructions", "skills_instructions", "permissions instructions"),  # Codex
    *("turn_aborted", "INSTRUCTIONS"),
    "environment_details",  # Cline and its forks
)
"""Tags of blocks that clients add. static/app/chat/client_context.js has the same."""
CLIENT_CONTEXT_HEADINGS = ("# AGENTS.md instructions",)
"""The beginning of a line that Codex writes before a block."""

COMPACTION_SUMMARIES = (
    "This session is being continued from a previous conversation",  # Claude Code
    "Another language model started to solve this problem",  # Codex
)
"""The beginning of a text that replaces older messages. The client wrote it, not the user."""


def remove_client_context(text: str) -> str:
    """Return a text without the blocks of its client at the beginning and the end; "" if there is nothing else."""
    if text.startswith(COMPACTION_SUMMARIES):
        return ""
    start, end = 0, len(text)
    while (after := _end_of_block(text, start)) > start:
        start = after
    while (before := _start_of_block(text, start, end)) < end:
        end = before
    return text[start:end].strip()


def first_user_text(messages: Iterable[Message]) -> str:
    """Return the first text of the user without client context, or else the first with it; "" if there is none."""
    first = ""
    for message in messages:
        if message.role == "user":
            if text := remove_client_context(message.text):
                return text
            first = first or message.text.strip()
    return first


def _end_of_block(text: str, start: int) -> int:
    """Return the end of the block that begins here, after white space; `start` if there is none."""
    at = _skip_space(text, start)
    if text.startswith(CLIENT_CONTEXT_HEADINGS, at):
        line_end = text.find("\n", at)
        at = _skip_space(text, line_end) if line_end >= 0 else at
    for tag in CLIENT_CONTEXT_TAGS:
        if text.startswith(f"<{tag}>", at):
            closing = f"</{tag}>"
            found = text.find(closing, at)
            return found + len(closing) if found >= 0 else start
    return start


def _start_of_block(text: str, start: int, end: int) -> int:
    """Return the start of the block that ends here, before white space; `end` if there is none."""
    last = end
    while last > start and text[last - 1].isspace():
        last -= 1
    for tag in CLIENT_CONTEXT_TAGS:
        if text.endswith(f"</{tag}>", start, last):
            found = text.rfind(f"<{tag}>", start, last)
            return found if found >= 0 else end
    return end


def _skip_space(text: str, at: int) -> int:
    while at < len(text) and text[at].isspace():
        at += 1
    return at
