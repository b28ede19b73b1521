"""Encoding of messages for Anthropic's Messages API.

Roles alternate: the messages between two replies become one user message, results first. A system message between
others keeps its role if the model accepts it and its position is valid ("must follow a user message, and be last or
followed by an assistant"). Otherwise it becomes tagged user text. Blank text is left out, because the API refuses it.
"""

import base64
from collections.abc import Mapping, Sequence
from typing import assert_never

from contextc._json import JSON, JSONObject
from contextc.formats.base import EncodedSegment, merge_extra, own_extra
from contextc.formats.encoder_decoder_base import PartEncoder, tag_system_blocks
from contextc.formats.message_groups import APART_KEY
from contextc.messages import AnyPart, Media, Message, ProviderBlock, Reasoning, Text, ToolCall, ToolResult
from contextc.messages.message import UserNotice

BETWEEN_KEY, FIELDS_KEY = "between", "fields"
IMAGE_TYPES = ("image/jpeg", "image/png", "image/gif", "image/webp")
DOCUMENT_TYPES = ("application/pdf", "text/plain")


def encode_segment(
    segment: Sequence[Message], *, provider: str, system_between: bool | None, blobs: Mapping[str, bytes]
) -> EncodedSegment:
    encoder = _Encoder(provider, blobs)
    wire: list[JSONObject] = []
    end = max((index for index, message in enumerate(segment) if message.role != "system"), default=-1)
    for index, message in enumerate(segment):
        said = message.role
        role = "assistant" if said == "assistant" else "user"
        if said == "system":
            last = index > end
            between = own_extra(message.extra, provider).get(BETWEEN_KEY) if system_between is None else system_between
            before = wire[-1]["role"] if wire else None
            if last and (before == "system" or (between and before == "user")):
                role = "system"
            blocks = encoder.system(message, tagged=role == "user")
        else:
            blocks = encoder.blocks(message)
        fields = own_extra(message.extra, provider).get(FIELDS_KEY) if message.extra else None
        if fields:
            if said == "system" and not blocks:
                if system_between is False:
                    encoder.note("left out", f"{', '.join(fields)} of a system message, which the model does not take")
                    continue
                role = "system"
            wire.append({"role": role, "content": blocks, **fields})
            continue
        if not blocks:
            continue
        if (
            wire
            and wire[-1]["role"] == role
            and not (message.extra and own_extra(message.extra, provider).get(APART_KEY))
        ):
            wire[-1]["content"] += blocks
        else:
            wire.append({"role": role, "content": blocks})
    apart = bool(segment) and bool(own_extra(segment[0].extra, provider).get(APART_KEY))
    return EncodedSegment(tuple(wire), tuple(encoder.notes), apart)


def without_trailing_space(message: JSONObject) -> JSONObject:
    """Return an assistant message without white space at its end, which the API refuses in a last message."""
    if not message["content"]:
        return message
    *before, last = message["content"]
    if "text" not in last or last["text"] == last["text"].rstrip():
        return message
    return {**message, "content": [*before, {**last, "text": last["text"].rstrip()}]}


def encode_system(message: Message, provider: str) -> list[JSONObject]:
    """Return the blocks of the system prompt."""
    return _Encoder(provider, {}).words(message)


class _Encoder(PartEncoder):
    def system(self, message: Message, *, tagged: bool) -> list[JSONObject]:
        if not tagged:
            return self.words(message)
        self.note_tagged_system()
        return tag_system_blocks(self.blocks(message))

    def words(self, message: Message) -> list[JSONObject]:
        """Return the blocks of a message that may contain only text. Media are described."""
        return self.blocks(self.with_media_as_text(message))

    def blocks(self, message: Message) -> list[JSONObject]:
        found: list[JSONObject] = []
        for part in message.parts:
            # A fast path for the most common parts.
            if part.extra is None:
                if type(part) is Text and part.text and not part.text.isspace():
                    found.append({"type": "text", "text": part.text})
                    continue
                if type(part) is ToolCall and not part.malformed:
                    found.append({"type": "tool_use", "id": part.id, "name": part.name, "input": part.arguments})
                    continue
                if type(part) is ToolResult and type(part.content) is str and not part.is_error:
                    found.append({"type": "tool_result", "tool_use_id": part.call_id, "content": part.content})
                    continue
            if (block := self.block(part)) is not None:
                found.append(merge_extra(block, part.extra, self.provider))
        return found

    def block(self, part: AnyPart) -> JSONObject | None:
        match part:
            case Text():
                return {"type": "text", "text": part.text} if part.text.strip() else None
            case Reasoning():
                return self.reasoning(part)
            case ToolCall():
                given = self.arguments_object(part)
                return {"type": "tool_use", "id": part.id, "name": part.name, "input": given}
            case ToolResult():
                return self.result(part)
            case Media():
                return self.media(part)
            case ProviderBlock():
                own = part.provider == self.provider
                return part.data if own else {"type": "text", "text": self.native_text(part)}
            case UserNotice():
                return None
            case _:
                assert_never(part)

    def reasoning(self, part: Reasoning) -> JSONObject | None:
        if not self.is_sendable(part, part.signature or part.data):
            return None
        if part.data is not None:
            return {"type": "redacted_thinking", "data": part.data}
        return {"type": "thinking", "thinking": part.text, "signature": part.signature}

    def result(self, part: ToolResult) -> JSONObject:
        content: JSON = (
            part.content if isinstance(part.content, str) else self.blocks(Message(role="tool", parts=part.content))
        )
        block: JSONObject = {"type": "tool_result", "tool_use_id": part.call_id, "content": content}
        return {**block, "is_error": True} if part.is_error else block

    def media(self, part: Media) -> JSONObject:
        kind = "image" if part.mime_type in IMAGE_TYPES else "document" if part.mime_type in DOCUMENT_TYPES else None
        source = self.source(part)
        if kind is None or source is None:
            return {"type": "text", "text": self.media_text(part)}
        title: JSONObject = {"title": part.name} if part.name and kind == "document" else {}
        return {"type": kind, "source": source, **title}

    def source(self, part: Media) -> JSONObject | None:
        data = part.data if part.data is not None else self.blobs.get(part.blob or "")
        if data:
            if part.mime_type == "text/plain":
                return {"type": "text", "media_type": part.mime_type, "data": data.decode("utf-8", "replace")}
            return {"type": "base64", "media_type": part.mime_type, "data": base64.b64encode(data).decode()}
        if part.url is not None:
            return {"type": "url", "url": part.url}
        if self.is_own_file(part):
            return {"type": "file", "file_id": part.file_id}
        return None
