"""Encode messages for Ollama's `/api/chat`.

Each message stays one message, and system messages may be anywhere. `content` is one text. The parts of a reply are
concatenated, those of other messages are separated by an empty line.

Images are a separate base64 field of user messages. Images that a tool returned follow the results of its step.
Arguments are objects. Thinking is a separate text, and is sent back only to the provider that produced it.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import assert_never, cast

from contextc._json import JSONObject
from contextc.formats.base import EncodedSegment, merge_extra, own_extra
from contextc.formats.encoder_decoder_base import NO_PARAMETERS, PartEncoder, encode_definition, merge_function_extra
from contextc.formats.media_encoding import encode_base64
from contextc.formats.ollama.tool_schema_check import remove_type_mismatches
from contextc.messages import AnyPart, Media, Message, ProviderBlock, Reasoning, Role, Text, ToolCall, ToolResult
from contextc.messages.message import UserNotice
from contextc.tools.spec import Tool

IMAGE_TYPES = ("image/png", "image/jpeg", "image/webp")


def encode_segment(segment: Sequence[Message], *, provider: str, blobs: Mapping[str, bytes]) -> EncodedSegment:
    encoder = _Encoder(provider, blobs)
    wire: list[JSONObject] = []
    for message in segment:
        wire += encoder.results(message) if message.role == "tool" else encoder.message(message)
    return EncodedSegment(tuple(wire), tuple(encoder.notes))


def encode_tool(tool: Tool) -> JSONObject:
    schema = remove_type_mismatches(tool.parameters or NO_PARAMETERS)
    return {"type": "function", "function": encode_definition(tool, "parameters", schema, strict=False)}


class _Encoder(PartEncoder):
    def __init__(self, provider: str, blobs: Mapping[str, bytes]) -> None:
        super().__init__(provider, blobs)
        self.unnamed: set[str] = set()  # calls without an id in the request

    def message(self, message: Message) -> list[JSONObject]:
        """Encode a system, user or assistant message; return nothing if none of it can be sent."""
        shown = [part for part in message.parts if isinstance(part, Media) and self.is_shown(part, message.role)]
        images = [encode_base64(part, self.blobs) for part in shown]
        calls = [self.call(part) for part in message.parts if isinstance(part, ToolCall)]
        wire: JSONObject = {"role": message.role, "content": self.words(message), **self.thinking(message)}
        if images:
            wire["images"] = images
        if calls:
            wire["tool_calls"] = calls
        for part in message.parts:
            if isinstance(part, ProviderBlock) and part.provider == self.provider and isinstance(part.data, dict):
                wire |= cast(JSONObject, part.data)
        if not any(value for name, value in wire.items() if name != "role"):
            rest = own_extra(message.extra, self.provider)
            if not any(value is not None for name, value in rest.items() if name != "role"):
                return []
        return [merge_extra(wire, message.extra, self.provider)]

    def results(self, message: Message) -> list[JSONObject]:
        """Encode each result as one message, and the parts beside them as a user message."""
        wire: list[JSONObject] = []
        beside: list[Text | Media | ProviderBlock] = []
        for part in message.parts:
            if isinstance(part, ToolResult):
                wire.append(self.result(part))
                media = [] if isinstance(part.content, str) else [each for each in part.content if type(each) is Media]
                if media:
                    self.note_moved_media(part)
                    beside += [Text(f"[media returned by {part.name}]"), *media]
            elif isinstance(part, Text | Media | ProviderBlock):
                beside.append(part)
        return [*wire, *(self.message(Message(role="user", parts=tuple(beside))) if beside else [])]

    def result(self, part: ToolResult) -> JSONObject:
        self.note_error_flag(part)
        answer: JSONObject = {"role": "tool", "content": part.text, "tool_name": part.name}
        if part.call_id and part.call_id not in self.unnamed:
            answer["tool_call_id"] = part.call_id
        return merge_extra(answer, part.extra, self.provider)

    def call(self, part: ToolCall) -> JSONObject:
        given = self.arguments_object(part)
        named: JSONObject = {"id": part.id} if part.id else {}
        if not own_extra(part.extra, self.provider).get("id", part.id):
            self.unnamed.add(part.id)
        call: JSONObject = {**named, "function": {"name": part.name, "arguments": given}}
        return merge_function_extra(call, part.extra, self.provider)

    def words(self, message: Message) -> str:
        said = [self.said(part, message.role) for part in message.parts]
        return join_texts(filter(None, said), is_reply=message.role == "assistant")

    def said(self, part: AnyPart, role: Role) -> str:
        """Return the text that a part adds to its message; empty if it is encoded elsewhere or left out."""
        match part:
            case Text():
                return part.text
            case Media():
                return "" if self.is_shown(part, role) else self.media_text(part)
            case ProviderBlock():
                return "" if part.provider == self.provider else self.native_text(part)
            case Reasoning() | ToolCall() | ToolResult() | UserNotice():
                return ""
            case _:
                assert_never(part)

    def thinking(self, message: Message) -> JSONObject:
        thoughts = [part for part in message.parts if isinstance(part, Reasoning)]
        if not all(self.is_own(part) and part.text for part in thoughts):
            self.note("left out", "reasoning that this model cannot read")
        ours = "".join(part.text for part in thoughts if self.is_own(part))
        return {"thinking": ours} if ours else {}

    def is_shown(self, part: Media, role: Role) -> bool:
        """Return True if this part is sent as an image."""
        return role == "user" and part.mime_type in IMAGE_TYPES and bool(part.data or self.blobs.get(part.blob or ""))


def join_texts(texts: Iterable[str], *, is_reply: bool) -> str:
    """Join texts into one. With `is_reply`, texts of a model may be pieces of one sentence, split by citations.

    Such texts are concatenated where one ends, or the next begins, with white space or punctuation.
    """
    whole = ""
    for text in texts:
        on = is_reply and whole and (whole[-1].isspace() or not text[0].isalnum())
        whole += text if on or not whole else f"\n\n{text}"
    return whole
