"""Conversion of a request's lines into transcript entries, and the prompt that remains.

An entry is a line with a position: `parentUuid` is the entry before it. The same line at the same position of the same
session always has the same `uuid`. One entry contains a whole message. Claude Code sends such a history unchanged, with
three exceptions that are handled here. Neighbouring user messages become one entry, because Claude Code would put a
line break between them. A history begins with a user message. Results of a call are part of the history, because in a
prompt Claude Code drops them and reports the call as interrupted.

If a history ends with results, Claude Code appends "No response requested." before it accepts a prompt. With
`CLAUDE_CODE_RESUME_INTERRUPTED_TURN=1` and no prompt it continues from the results, followed by the text of
`CLAUDE_CODE_RESUME_PROMPT`.
"""

from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from uuid import NAMESPACE_OID, uuid5

from contextc._json import JSONObject, encode_canonical
from contextc.formats.base import OPENING_TEXT
from contextc.formats.claude_code.decode import TOOL_PREFIX
from contextc.formats.claude_code.message_lines import content_blocks, is_conversation_message, make_line, message_of

VERSION = "2.1.325"
UNKNOWN_MODEL_NAME = "unknown"
"""The model of a reply whose model is unknown. Any value except that of a synthetic line is accepted."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def split_prompt(messages: Sequence[JSONObject]) -> tuple[list[JSONObject], list[JSONObject]]:
    """Return the history, and the blocks of the prompt: the content after the last reply and its results.

    Without a block there is no prompt: the list ends with results to continue from, or with a reply.
    """
    own = [each for each in messages if is_conversation_message(each)]
    end = max((index for index, each in enumerate(own) if each["type"] == "assistant"), default=-1) + 1
    after = [block for each in own[end:] for block in content_blocks(each["message"])]
    results = [block for block in after if block.get("type") == "tool_result"]
    history = own[:end] + ([make_line({"role": "user", "content": results})] if results else [])
    return history, [block for block in after if block.get("type") != "tool_result"]


def transcript_entries(
    messages: Sequence[JSONObject],
    *,
    session: str,
    cwd: str,
    after: str | None = None,
    version: str = VERSION,
    time: int = 0,
    model: str = UNKNOWN_MODEL_NAME,
    tools: Collection[str] = (),
) -> list[JSONObject]:
    """Return the lines as entries of a session's transcript, after the entry `after`.

    `time` is the time of the first entry as a Unix timestamp in milliseconds. `tools` are our tools that Claude Code
    has: calls of these are written with its names for them.
    """
    parent = after or None
    found: list[JSONObject] = []
    for index, message in enumerate(_merge_for_transcript(messages, begins=parent is None)):
        if message["role"] == "assistant":
            message = _reply_entry(message, model, tools)
        name = str(uuid5(NAMESPACE_OID, f"{session} {parent} {encode_canonical(message).decode()}"))
        if message["role"] == "assistant":
            message = {"id": f"msg_{name.replace('-', '')}", **message}
        found.append(
            {
                "type": message["role"],
                "uuid": name,
                "parentUuid": parent,
                "sessionId": session,
                "timestamp": _format_time(time + index),
                "isSidechain": False,
                "cwd": cwd,
                "version": version,
                "userType": "external",
                "message": message,
            }
        )
        parent = name
    return found


def _merge_for_transcript(messages: Sequence[JSONObject], *, begins: bool) -> list[JSONObject]:
    found: list[JSONObject] = []
    for message in [message_of(each) for each in messages if is_conversation_message(each)]:
        if found and message["role"] == found[-1]["role"] == "user":
            message = {**message, "content": [*content_blocks(found.pop()), *content_blocks(message)]}
        found.append(message)
    if begins and found and found[0]["role"] == "assistant":
        found.insert(0, {"role": "user", "content": [{"type": "text", "text": OPENING_TEXT}]})
    return found


def _reply_entry(message: JSONObject, model: str, tools: Collection[str]) -> JSONObject:
    content = [_with_server_name(block, tools) for block in content_blocks(message)]
    asks = any(block.get("type") == "tool_use" for block in content)
    return {
        "type": "message",
        "model": model,
        "stop_reason": "tool_use" if asks else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 0, "output_tokens": 0},
        **message,
        "content": content,
    }


def _with_server_name(block: JSONObject, tools: Collection[str]) -> JSONObject:
    ours = block.get("type") == "tool_use" and block.get("name") in tools
    return {**block, "name": TOOL_PREFIX + block["name"]} if ours else block


def _format_time(time: int) -> str:
    return (EPOCH + timedelta(milliseconds=time)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
