"""Encode messages for Mistral's chat completions.

The format resembles OpenAI's, with these differences:

    - A system message may be first, or follow system and user messages. After a reply or a tool result Mistral
      rejects it, so it becomes tagged user text.
    - Reasoning is sent back among the chunks of the reply.
    - Tool results name their tool and hold text. Media that a tool returned goes into a user message directly
      after the results of its step.
    - Fields that Mistral does not define are rejected, so a message has no others.
"""

from collections.abc import Mapping, Sequence
from typing import assert_never, cast

from contextc._json import JSON, JSONObject
from contextc.formats.base import EncodedSegment, merge_extra, own_extra
from contextc.formats.encoder_decoder_base import PartEncoder, arguments_text, simplify_content, tag_system_blocks
from contextc.formats.media_encoding import to_data_url
from contextc.formats.mistral.lint_parser import ALLOWED_CHUNKS, CHUNKS
from contextc.messages import AnyPart, Media, Message, ProviderBlock, Reasoning, Role, Text, ToolCall, ToolResult
from contextc.messages.message import UserNotice

EMPTY_CONTENT, OBJECT_ARGUMENTS, UNNAMED_RESULT = "content", "object", "nameless"
"""Keys in `extra`: the empty content of a message; arguments given as an object; a result without a tool name."""
IMAGE_TYPES = ("image/jpeg", "image/png", "image/gif", "image/webp")
AUDIO_TYPES = ("audio/wav", "audio/mpeg", "audio/mp3", "audio/flac", "audio/ogg")
DOCUMENT_TYPES = (
    "application/pdf",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    "application/vnd.openxmlformats-officedocument.presentationml.presentation",
)
ROLES_BEFORE_NO_SYSTEM = ("assistant", "tool")


def encode_segment(segment: Sequence[Message], *, provider: str, blobs: Mapping[str, bytes]) -> EncodedSegment:
    encoder = Encoder(provider, blobs)
    wire: list[JSONObject] = []
    for message in segment:
        if message.role == "tool":
            wire += encoder.results(message)
        elif (encoded := encoder.message(message)) is not None:
            if message.role == "system" and wire and wire[-1]["role"] in ROLES_BEFORE_NO_SYSTEM:
                encoder.note_tagged_system()
                encoded = as_tagged_user_text(encoded)
            wire.append(encoded)
    return EncodedSegment(tuple(wire), tuple(encoder.notes))


def as_tagged_user_text(message: JSONObject) -> JSONObject:
    """Return a system message as tagged user text."""
    blocks = tag_system_blocks([_as_text(block) for block in as_chunks(message["content"])])
    return {"role": "user", "content": simplify_content(blocks) or ""}


def _as_text(block: JSONObject) -> JSONObject:
    """Return a system block as text. System content may also include a thinking chunk to follow."""
    if "text" in block:
        return block
    return {"type": "text", "text": thinking_text(block)}


def thinking_text(block: JSONObject) -> str:
    """Return the text of a thinking chunk. Some producers write it as one string."""
    return "".join([each["text"] for each in as_chunks(block.get("thinking")) if each.get("type") == "text"])


def as_chunks(content: JSON) -> list[JSONObject]:
    """Return the content of a message as a list of chunks."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return cast(list[JSONObject], content or [])


class Encoder(PartEncoder):
    def message(self, message: Message) -> JSONObject | None:
        """Encode a system, user or assistant message; return None if none of it can be sent."""
        content: list[JSONObject] = []
        calls: list[JSONObject] = []
        for part in message.parts:
            if type(part) is Text:
                if part.text:
                    content.append({"type": "text", "text": part.text})
            elif type(part) is ToolCall:
                calls.append(self.call(part))
            elif (block := self.block(part, message.role)) is not None:
                content.append(block)
        if calls:
            return {"role": message.role, "content": simplify_content(content) or "", "tool_calls": calls}
        if not content and message.role != "assistant":
            nothing = own_extra(message.extra, self.provider).get(EMPTY_CONTENT)
            return None if nothing is None else {"role": message.role, "content": nothing}
        return {"role": message.role, "content": simplify_content(content)} if content else None

    def call(self, part: ToolCall) -> JSONObject:
        written: JSON = arguments_text(part)
        if part.extra is not None and own_extra(part.extra, self.provider).get(OBJECT_ARGUMENTS) and not part.malformed:
            written = part.arguments
        return {"id": part.id, "type": "function", "function": {"name": part.name, "arguments": written}}

    def results(self, message: Message) -> list[JSONObject]:
        """Encode each result as one message, and what results cannot hold as a user message."""
        wire: list[JSONObject] = []
        shown: list[JSONObject] = []
        for part in message.parts:
            if type(part) is not ToolResult:
                if (beside := self.block(part, "user")) is not None:
                    shown.append(beside)
                continue
            rest = own_extra(part.extra, self.provider)
            content: JSON = part.content
            if not isinstance(part.content, str):
                texts = [_text(each) for each in part.content if isinstance(each, Text) and each.text]
                content = simplify_content(texts) or ""
                media = [each for each in part.content if isinstance(each, Media)]
                if media and EMPTY_CONTENT not in rest:
                    self.note_moved_media(part)
                    shown += [{"type": "text", "text": f"[media returned by {part.name}]"}]
                    shown += [self.media(each) for each in media]
            self.note_error_flag(part)
            answer: JSONObject = {"role": "tool", "tool_call_id": part.call_id, "name": part.name}
            if rest.get(UNNAMED_RESULT):
                del answer["name"]
            wire.append({**answer, "content": rest.get(EMPTY_CONTENT, content)})
        return [*wire, {"role": "user", "content": simplify_content(shown)}] if shown else wire

    def block(self, part: AnyPart, role: Role) -> JSONObject | None:
        match part:
            case Text():
                return _text(part) if part.text else None
            case Reasoning():
                return self.reasoning(part) if role == "assistant" else None
            case Media():
                return self.media(part) if role == "user" else self.describe(part)
            case ProviderBlock():
                if part.provider == self.provider and (own := _allowed_native_chunk(part.data, role)) is not None:
                    return own
                return {"type": "text", "text": self.native_text(part)}
            case ToolCall() | ToolResult() | UserNotice():
                return None
            case _:
                assert_never(part)

    def reasoning(self, part: Reasoning) -> JSONObject | None:
        if not self.is_sendable(part, part.text or part.signature or part.extra):
            return None
        inner: list[JSONObject] = [{"type": "text", "text": part.text}] if part.text else []
        block: JSONObject = {"type": "thinking", "thinking": inner}
        if part.signature is not None:
            block["signature"] = part.signature
        return merge_extra(block, part.extra, self.provider)

    def media(self, part: Media) -> JSONObject:
        return merge_extra(self._media(part), part.extra, self.provider)

    def _media(self, part: Media) -> JSONObject:
        data = to_data_url(part, self.blobs)
        if part.kind == "image" and (part.url is not None or (data is not None and part.mime_type in IMAGE_TYPES)):
            return {"type": "image_url", "image_url": part.url or data}
        place = part.url or data
        if part.mime_type in AUDIO_TYPES and place is not None:
            return {"type": "input_audio", "input_audio": place}
        if part.mime_type in DOCUMENT_TYPES and place is not None:
            name: JSONObject = {"document_name": part.name} if part.name else {}
            return {"type": "document_url", "document_url": place, **name}
        if self.is_own_file(part):
            return {"type": "file", "file_id": part.file_id}
        return self.describe(part)

    def describe(self, part: Media) -> JSONObject:
        return {"type": "text", "text": self.media_text(part)}


def _allowed_native_chunk(data: JSON, role: Role) -> JSONObject | None:
    """Return a native chunk if a message of this role may hold it. A chunk of an unknown type is always kept."""
    chunk = cast(JSONObject, data) if isinstance(data, dict) else {}
    return chunk if chunk and (chunk.get("type") not in CHUNKS or chunk["type"] in ALLOWED_CHUNKS[role]) else None


def _text(part: Text) -> JSONObject:
    return {"type": "text", "text": part.text}
