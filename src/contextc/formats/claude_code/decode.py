"""Decoding of Claude Code's requests, transcripts and events into messages.

Any list of its lines can be decoded: those of a request, the output of the program, a transcript on disk. A line with
the fields of a reply (model, usage, stop reason) is decoded as a reply.
"""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import cast

from msgspec.structs import replace

from contextc._json import JSON, JSONObject
from contextc.formats.anthropic import codec as anthropic
from contextc.formats.base import OPENING_TEXT, Request, own_extra
from contextc.formats.claude_code.encode import PROMPT_FIELD, PROMPT_TEXT_FIELDS, encode_tool
from contextc.formats.claude_code.message_lines import is_conversation_message, merge_lines
from contextc.formats.claude_code.transcript_chain import active_lines
from contextc.formats.encoder_decoder_base import decode_definition, with_extra
from contextc.messages import AnyPart, Message, ToolCall, ToolResult, system
from contextc.tools.spec import NativeTool, Tool

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
