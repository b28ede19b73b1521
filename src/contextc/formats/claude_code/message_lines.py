"""Lines of Claude Code: `{"type": "user" | "assistant", "message": {"role": …, "content": …}}`.

Input, output and transcripts on disk have the same lines. Many other types of lines report actions of the program, not
messages. Some lines look like messages but are not part of the conversation: those of a subagent, and synthetic ones
such as the text of an error.
"""

from collections.abc import Iterable, Iterator
from typing import cast

from contextc._json import JSON, JSONObject
from contextc.formats.stream import NOTE_EVENT

MESSAGE_TYPES = ("user", "assistant")
OTHER_TYPES = frozenset(
    (
        "agent-name",
        "agent-setting",
        "ai-title",
        "api-request",
        "api-request-blob",
        "api-request-shape",
        "atis-latch",
        "attachment",
        "auth_status",
        "content-replacement",
        "context-collapse-commit",
        "context-collapse-snapshot",
        "control_cancel_request",
        "control_request",
        "control_response",
        "conversation_reset",
        "cost-state",
        "custom-title",
        "file-history-snapshot",
        "keep_alive",
        "last-prompt",
        "marble-origami-commit",
        "mode",
        "permission-mode",
        "pr-link",
        "progress",
        "prompt_suggestion",
        "queue-operation",
        "rate_limit_event",
        "result",
        "speculation-accept",
        "streamlined_text",
        "streamlined_tool_use_summary",
        "stream_event",
        "summary",
        "system",
        "tag",
        "task-summary",
        "tool_progress",
        "tool_use_summary",
        "tools-used",
        "transcript_mirror",
        "worktree-state",
    )
)
"""Types of lines that are not messages."""
PROGRAM_FIELDS = ("sessionId", "session_id", "uuid")
"""Fields of lines that the program wrote. Such a line of an unlisted type is not part of the conversation."""
SYNTHETIC_MODEL = "<synthetic>"
"""The model name in messages that Claude Code itself wrote."""
SYNTHETIC_FLAGS = (
    "isSidechain",
    "parent_tool_use_id",
    "isMeta",
    "isSynthetic",
    "isApiErrorMessage",
    "is_api_error_message",
)
"""Flags of lines that are not part of the conversation."""


def make_line(message: JSONObject) -> JSONObject:
    return {"type": message["role"], "message": message}


def message_of(given: JSONObject) -> JSONObject:
    """Return the message of a line. The line's type is its role."""
    return {**given["message"], "role": given["type"]}


def is_program_event(given: JSONObject) -> bool:
    """Return True if a line reports an action of the program and not a message."""
    kind = given["type"]
    return (
        kind in OTHER_TYPES
        or kind == NOTE_EVENT
        or (kind not in MESSAGE_TYPES and any(isinstance(given.get(name), str) for name in PROGRAM_FIELDS))
    )


def is_result_line(given: JSONObject) -> bool:
    """Return True if a line reports the end of a run, possibly one without any message."""
    return given["type"] == "result" and isinstance(given.get("is_error"), bool)


def is_conversation_message(given: JSONObject) -> bool:
    """Return True if a line is a message of the conversation."""
    if given.get("type") not in MESSAGE_TYPES or not isinstance(given.get("message"), dict):
        return False
    return not any(given.get(mark) for mark in SYNTHETIC_FLAGS) and given["message"].get("model") != SYNTHETIC_MODEL


def content_blocks(message: JSONObject) -> list[JSONObject]:
    """Return the content of a message as a list of blocks."""
    content: JSON = message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return cast(list[JSONObject], content) if isinstance(content, list) else []


def tool_results(given: JSONObject) -> list[JSONObject]:
    """Return the results in a user line."""
    found = (
        content_blocks(given["message"])
        if given.get("type") == "user" and isinstance(given.get("message"), dict)
        else []
    )
    return [block for block in found if isinstance(block, dict) and block.get("type") == "tool_result"]


def merge_lines(given: Iterable[JSONObject]) -> Iterator[JSONObject]:
    """Yield the messages of these lines. A reply has one line per block, with results possibly between them."""
    reply: JSONObject | None = None
    waiting: list[JSONObject] = []
    for each in given:
        message = message_of(each)
        if reply is not None and _continues(reply, message):
            news = {name: value for name, value in message.items() if value is not None}
            reply = {**reply, **news, "content": [*content_blocks(reply), *content_blocks(message)]}
        elif reply is not None and tool_results(each) and message["role"] == "user":
            waiting.append(message)
        else:
            yield from _finish_reply(reply, waiting)
            reply, waiting = (message, []) if message["role"] == "assistant" else (None, [message])
    yield from _finish_reply(reply, waiting)


def _continues(reply: JSONObject, message: JSONObject) -> bool:
    return message["role"] == "assistant" and bool(reply.get("id")) and reply.get("id") == message.get("id")


def _finish_reply(reply: JSONObject | None, waiting: list[JSONObject]) -> list[JSONObject]:
    return [*([reply] if reply is not None else []), *waiting]
