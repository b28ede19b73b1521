"""Claude Code's lines of JSON, encoded and decoded, and its transcripts."""

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import cast
from uuid import NAMESPACE_OID, uuid5

from msgspec.structs import replace

from contextc._json import JSON, JSONObject, encode_canonical
from contextc.formats.anthropic import codec as anthropic
from contextc.formats.base import (
    OPENING_TEXT,
    ConversionNote,
    EncodedSegment,
    Request,
    decode_definition,
    encode_definition,
    own_extra,
    with_extra,
)
from contextc.formats.streams import NOTE_EVENT
from contextc.messages import SYSTEM_CONTEXT, AnyPart, Message, ProviderBlock, Text, ToolCall, ToolResult, system
from contextc.tools.definitions import NativeTool, Tool

# ── lines ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
# Lines of Claude Code: `{"type": "user" | "assistant", "message": {"role": …, "content": …}}`.
#
# Input, output and transcripts on disk have the same lines. Many other types of lines report actions of the program,
# not messages. Some lines look like messages but are not part of the conversation: those of a subagent, and synthetic
# ones such as the text of an error.


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


# ── the chain of a transcript ─────────────────────────────────────────────────────────────────────────────────────────
# The active messages of a transcript: from its last line back to the first, by `parentUuid`.
#
# Lines that are not on this path were abandoned. As in Claude Code itself, two kinds of lines are restored. First,
# blocks and results of a reply with several calls: each result is a child of its call's block, so the path contains
# only one of them. Second, messages that a compaction kept, placed after its summary.


LineIndex = int


def is_transcript(lines: Sequence[JSONObject]) -> bool:
    return any("parentUuid" in line for line in lines)


def active_lines(lines: Sequence[JSONObject]) -> list[LineIndex]:
    """Return the indexes of the conversation's lines, in order. All indexes if this is no transcript."""
    if not is_transcript(lines):
        return list(range(len(lines)))
    return _Chain(lines).indexes()


class _Chain:
    def __init__(self, lines: Sequence[JSONObject]) -> None:
        self.lines = lines
        linked = [
            index for index, line in enumerate(lines) if "parentUuid" in line and isinstance(line.get("uuid"), str)
        ]
        self.places: dict[str, LineIndex] = {lines[index]["uuid"]: index for index in linked}
        self.children: dict[str, list[LineIndex]] = {}
        for index in linked:
            if isinstance(parent := lines[index]["parentUuid"], str):
                self.children.setdefault(parent, []).append(index)
        own = [index for index in linked if not lines[index].get("isSidechain")]
        self.leaf = own[-1] if own else None

    def indexes(self) -> list[LineIndex]:
        return self._with_siblings(self._with_kept(self._path_from(self.leaf)))

    def _path_from(self, leaf: LineIndex | None) -> list[LineIndex]:
        found: dict[LineIndex, None] = {}
        while leaf is not None and leaf not in found:
            found[leaf] = None
            parent: JSON = self.lines[leaf]["parentUuid"]
            leaf = self.places.get(parent) if isinstance(parent, str) else None
        return list(found)[::-1]

    def _with_kept(self, way: list[LineIndex]) -> list[LineIndex]:
        """Return the path with the messages that a compaction kept, after its summary."""
        on_way = set(way)
        behind: dict[LineIndex, list[LineIndex]] = {}
        for boundary in [index for index in way if self.lines[index].get("subtype") == "compact_boundary"]:
            told: JSON = self.lines[boundary].get("compactMetadata")
            kept: JSON = cast(JSONObject, told).get("preservedMessages") if isinstance(told, dict) else None
            if not isinstance(kept, dict):
                continue
            known = cast(JSONObject, kept)
            names = cast(list[JSON], known["uuids"]) if isinstance(known.get("uuids"), list) else []
            here = [self.places[str(name)] for name in names if str(name) in self.places]
            anchor = self.places.get(str(known.get("anchorUuid")))
            if anchor is not None and anchor in on_way:
                new = [index for index in here if index not in on_way]
                behind[anchor] = [*new, *behind.get(anchor, [])]
                on_way.update(new)
        found: list[LineIndex] = []
        waiting = way[::-1]
        while waiting:
            found.append(waiting.pop())
            waiting += reversed(behind.pop(found[-1], []))
        return found

    def _with_siblings(self, way: list[LineIndex]) -> list[LineIndex]:
        found: list[LineIndex] = []
        on_way, place = set(way), 0
        answered = {str(block.get("tool_use_id")) for index in way for block in tool_results(self.lines[index])}
        while place < len(way):
            name, end = self._reply(way[place]), place + 1
            while name and end < len(way) and self._reply(way[end]) == name:
                end += 1
            run, place = way[place:end], end
            found += run
            if (
                place < len(way)
                and tool_results(self.lines[way[place]])
                and self.lines[run[-1]].get("type") == "assistant"
            ):
                beside = self._siblings(run, on_way, answered)
                found += [index for index in beside if self.lines[index]["type"] == "assistant"]
                answers = [index for index in beside if self.lines[index]["type"] == "user"]
                while end < len(way) and tool_results(self.lines[way[end]]):
                    end += 1
                found += sorted({*answers, *way[place:end]})
                place = end
        return found

    def _reply(self, index: LineIndex) -> str:
        line = self.lines[index]
        message: JSON = line.get("message") if line.get("type") == "assistant" else None
        return str(cast(JSONObject, message).get("id") or "") if isinstance(message, dict) else ""

    def _siblings(self, run: list[LineIndex], on_way: set[LineIndex], answered: set[str]) -> list[LineIndex]:
        """Return blocks of the same reply, and results of its calls, that are not on the path."""
        name, open_lines = self._reply(run[-1]), deque(run)
        beside: list[LineIndex] = []
        while name and open_lines:
            for child in self.children.get(self.lines[open_lines.popleft()]["uuid"], []):
                if child not in on_way and self._reply(child) == name:
                    beside.append(child)
                    open_lines.append(child)
                elif child not in on_way and tool_results(self.lines[child]):
                    beside.append(child)
        return sorted(index for index in beside if not self._is_superseded(index, answered))

    def _is_superseded(self, index: LineIndex, answered: set[str]) -> bool:
        """Return True if this is the result of a call that has another result on the path."""
        return any(str(block.get("tool_use_id")) in answered for block in tool_results(self.lines[index]))


# ── encoding ──────────────────────────────────────────────────────────────────────────────────────────────────────────
# Encoding of messages as lines of Claude Code. Anthropic's encoder writes the content of a line.
#
# There is no system role between messages. A system message becomes user text, marked with `SYSTEM_CONTEXT`, so that
# the model answers the user and not the context.


PROMPT_FIELD = "system_prompt"
PROMPT_TEXT_FIELDS = {"preset": "append", "custom": "prompt"}
"""The field with the text of a system prompt that is an object, by its type."""


def encode_segment(segment: Sequence[Message], *, provider: str, blobs: Mapping[str, bytes]) -> EncodedSegment:
    told = [_mark_system(message) if message.role == "system" else message for message in segment]
    made = anthropic.encode_segment(told, provider=provider, system_between=False, blobs=blobs)
    tagged = [
        ConversionNote("tagged", f"a system message, as user text behind {SYSTEM_CONTEXT.strip()}")
        for message in segment
        if message.role == "system"
    ]
    return EncodedSegment(tuple([make_line(message) for message in made.messages]), (*tagged, *made.notes), made.apart)


def _mark_system(message: Message) -> Message:
    return replace(message, role="user", parts=tuple([_mark_system_part(part) for part in message.parts]), extra=None)


def _mark_system_part(part: AnyPart) -> AnyPart:
    if not isinstance(part, Text) or not part.text.strip() or part.text.startswith(SYSTEM_CONTEXT):
        return part
    return replace(part, text=SYSTEM_CONTEXT + part.text)


def encode_prompt(system: Message, given: JSON, provider: str) -> JSON:
    """Return the system prompt: a text, or that text in the caller's object."""
    blocks = anthropic.encode_system(system, provider)
    text = "\n\n".join([block["text"] for block in blocks if "text" in block])
    prompt = cast(JSONObject, given) if isinstance(given, dict) else {}
    if place := PROMPT_TEXT_FIELDS.get(str(prompt.get("type"))):
        return {**prompt, place: text} if text else prompt
    return text


def encode_tool(tool: Tool) -> JSONObject:
    return encode_definition(tool, "inputSchema", strict=False)


def seal_session_results(
    messages: Sequence[Message], *, provider: str, blobs: Mapping[str, bytes]
) -> tuple[Message, ...]:
    """Return the messages for a session. Results of calls that only the session contains become native blocks."""
    here = {call.id for message in messages for call in message.tool_calls}

    def sealed(part: AnyPart) -> AnyPart:
        if not isinstance(part, ToolResult) or part.call_id in here:
            return part
        here.add(part.call_id)
        made = anthropic.encode_segment(
            [Message(role="tool", parts=(part,))], provider=provider, system_between=False, blobs=blobs
        )
        return ProviderBlock(provider=provider, data=made.messages[0]["content"][0])

    first = next((index for index, message in enumerate(messages) if message.role == "assistant"), len(messages))
    held = [replace(message, parts=tuple([sealed(part) for part in message.parts])) for message in messages[:first]]
    return (*held, *messages[first:])


# ── decoding ──────────────────────────────────────────────────────────────────────────────────────────────────────────
# Decoding of Claude Code's requests, transcripts and events into messages.
#
# Any list of its lines can be decoded: those of a request, the output of the program, a transcript on disk. A line
# with the fields of a reply (model, usage, stop reason) is decoded as a reply.


TOOL_PREFIX = "mcp__contextc__"
"""Prefix of our tools' names in Claude Code."""
NAME_KEY = "name"


def decode_request(body: JSONObject, provider: str) -> Request:
    messages = decode_lines(cast(list[JSONObject], body.get("messages", [])), provider)
    if len(messages) > 1 and messages[0].text == OPENING_TEXT and messages[1].role == "assistant":
        messages = messages[1:]  # the opening that encoding inserted
    settings = {name: value for name, value in body.items() if name not in ("messages", "tools", PROMPT_FIELD)}
    prompt, rest = decode_prompt(body.get(PROMPT_FIELD))
    if rest is not None:
        settings[PROMPT_FIELD] = rest
    return Request(
        messages=tuple(messages),
        system=system(prompt) if prompt else None,
        tools=tuple(decode_tool(tool, provider) for tool in cast(list[JSONObject], body.get("tools") or [])),
        settings=settings,
    )


def decode_prompt(given: JSON) -> tuple[str, JSON]:
    """Return the text of a system prompt, and the rest of the object that contained it."""
    if not isinstance(given, dict):
        return (given, None) if isinstance(given, str) else ("", given)
    prompt = cast(JSONObject, given)
    place = PROMPT_TEXT_FIELDS.get(str(prompt.get("type")), "")
    text: JSON = prompt.get(place)
    if not isinstance(text, str) or not text:
        return "", prompt
    return text, {name: value for name, value in prompt.items() if name != place}


def decode_lines(
    lines: Sequence[JSONObject], provider: str, tool_names: Mapping[str, str] = MappingProxyType({})
) -> list[Message]:
    """Return the messages of the conversation. `tool_names` maps ids of earlier calls to their tool names."""
    own = [lines[index] for index in active_lines(lines) if is_conversation_message(lines[index])]
    names = dict(tool_names)
    found: list[Message] = []
    for wire in merge_lines(own):
        for message in _decode_message(wire, provider):
            names |= {call.id: call.name for call in message.tool_calls}
            found.append(_with_tool_names(message, names, provider))
    return found


def find_reply(given: JSONObject) -> JSONObject | None:
    """Return the reply in the output of the SDK or the program.

    That is an assistant line, the result line, or a message.
    """
    if given.get("type") == "result":
        said = str(given.get("result") or "")
        if given.get("is_error"):
            return {**given, "content": [], "error": {"message": said or given.get("subtype")}}
        return {**given, "content": [{"type": "text", "text": said}] if said else []}
    reply: JSON = given.get("message") if given.get("type") == "assistant" else given
    if not isinstance(reply, dict) or not isinstance(cast(JSONObject, reply).get("content"), list):
        return None
    return None if "parts" in reply else cast(JSONObject, reply)


def decode_reply(reply: JSONObject, provider: str) -> Message:
    return _with_tool_names(anthropic.decode_reply(reply, provider), {}, provider)


def _decode_message(wire: JSONObject, provider: str) -> Iterator[Message]:
    if wire["role"] == "assistant" and isinstance(wire.get("usage"), dict):
        reply = anthropic.decode_reply(wire, provider)
        if reply.parts:  # an unfinished reply has an incomplete token count
            yield reply if wire.get("stop_reason") else replace(reply, usage=None)
        return
    bare: JSONObject = {"role": wire["role"], "content": wire["content"]}
    yield from anthropic.decode_request({"messages": [bare]}, provider).messages


def _with_tool_names(message: Message, names: dict[str, str], provider: str) -> Message:
    """Return the message with tool names added to its results, and the full names of our tools kept in `extra`."""

    def named(part: AnyPart) -> AnyPart:
        if isinstance(part, ToolResult):
            return replace(part, name=names.get(part.call_id, part.name))
        if isinstance(part, ToolCall) and part.name.startswith(TOOL_PREFIX):
            own = {**own_extra(part.extra, provider), NAME_KEY: part.name}
            return replace(part, extra={**(part.extra or {}), provider: own})
        return part

    return replace(message, parts=tuple([named(part) for part in message.parts]))


def decode_tool(tool: JSONObject, provider: str) -> Tool | NativeTool:
    if not isinstance(tool.get("name"), str) or tool.get("type") not in (None, "custom"):
        return NativeTool(provider=provider, data=tool)
    made = decode_definition(tool, "inputSchema", strict=False)
    return with_extra(made, tool, encode_tool(made), provider)


# ── entries of a transcript ───────────────────────────────────────────────────────────────────────────────────────────
# Conversion of a request's lines into transcript entries, and the prompt that remains.
#
# An entry is a line with a position: `parentUuid` is the entry before it. The same line at the same position of the
# same session always has the same `uuid`. One entry contains a whole message. Claude Code sends such a history
# unchanged, with three exceptions that are handled here. Neighbouring user messages become one entry, because Claude
# Code would put a line break between them. A history begins with a user message. Results of a call are part of the
# history, because in a prompt Claude Code drops them and reports the call as interrupted.
#
# If a history ends with results, Claude Code appends "No response requested." before it accepts a prompt. With
# `CLAUDE_CODE_RESUME_INTERRUPTED_TURN=1` and no prompt it continues from the results, followed by the text of
# `CLAUDE_CODE_RESUME_PROMPT`.


VERSION = "2.1.325"
UNKNOWN_MODEL_NAME = "unknown"
"""The model of a reply whose model is unknown. Any value except that of a synthetic line is accepted."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def split_history_and_prompt(messages: Sequence[JSONObject]) -> tuple[list[JSONObject], list[JSONObject]]:
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
            content = [_with_server_name(block, tools) for block in content_blocks(message)]
            asks = any(block.get("type") == "tool_use" for block in content)
            message = {
                "type": "message",
                "model": model,
                "stop_reason": "tool_use" if asks else "end_turn",
                "stop_sequence": None,
                "usage": {"input_tokens": 0, "output_tokens": 0},
                **message,
                "content": content,
            }
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
                "version": VERSION,
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


def _with_server_name(block: JSONObject, tools: Collection[str]) -> JSONObject:
    ours = block.get("type") == "tool_use" and block.get("name") in tools
    return {**block, "name": TOOL_PREFIX + block["name"]} if ours else block


def _format_time(time: int) -> str:
    return (EPOCH + timedelta(milliseconds=time)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
