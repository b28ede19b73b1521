"""Encoding of messages as lines of Claude Code. Anthropic's encoder writes the content of a line.

There is no system role between messages. A system message becomes user text, marked with `SYSTEM_CONTEXT`, so that the
model answers the user and not the context.
"""

from collections.abc import Mapping, Sequence
from typing import cast

from msgspec.structs import replace

from contextc._json import JSON, JSONObject
from contextc.formats.anthropic import codec as anthropic
from contextc.formats.base import ConversionNote, EncodedSegment
from contextc.formats.claude_code.message_lines import make_line
from contextc.formats.encoder_decoder_base import encode_definition
from contextc.messages import AnyPart, Message, ProviderBlock, Text, ToolResult
from contextc.prompts import SYSTEM_CONTEXT
from contextc.tools.spec import Tool

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
