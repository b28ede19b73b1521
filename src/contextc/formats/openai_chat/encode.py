"""Encode messages for OpenAI's Chat Completions, which many other endpoints accept too.

Each message stays one message; roles need not alternate. Tool results are separate tool messages and hold text. Media
that a tool returned goes into a user message directly after the results of its step, unless the endpoint accepts it in
results. The arguments of a call are the text that the model wrote. Reasoning is sent back only if the endpoint has a
field for it, and in its original blocks (`details`).
"""

from collections.abc import Mapping, Sequence
from typing import TypeGuard, assert_never

from contextc._json import JSON, JSONObject
from contextc.formats.base import EncodedSegment, merge_extra, own_extra
from contextc.formats.encoder_decoder_base import PartEncoder, arguments_text, simplify_content
from contextc.formats.media_encoding import encode_base64
from contextc.formats.openai_chat import reasoning_details as details
from contextc.messages import AnyPart, Media, Message, ProviderBlock, Reasoning, Role, Text, ToolCall, ToolResult
from contextc.messages.message import UserNotice

FIELD = details.FIELD
REASONING_FIELDS = ("reasoning_content", "reasoning")
DOCUMENT_TYPES = ("application/pdf", "application/msword", "application/rtf", "application/vnd.*")
AUDIO_FORMATS = {"audio/wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}


def encode_segment(
    segment: Sequence[Message],
    *,
    provider: str,
    reasoning_field: str | None,
    blobs: Mapping[str, bytes],
    model: str | None = None,
    media_in_results: bool = False,
) -> EncodedSegment:
    """Encode one segment. `model` is the requested model, where it decides which reasoning may be sent."""
    encoder = _Encoder(provider, reasoning_field, blobs, model, media_in_results)
    wire: list[JSONObject] = []
    for message in segment:
        if message.role == "tool":
            wire += encoder.results(message)
        elif (encoded := encoder.message(message)) is not None:
            wire.append(encoded)
    return EncodedSegment(tuple(wire), tuple(encoder.notes))


class _Encoder(PartEncoder):
    def __init__(
        self,
        provider: str,
        reasoning_field: str | None,
        blobs: Mapping[str, bytes],
        model: str | None,
        media_in_results: bool,
    ) -> None:
        super().__init__(provider, blobs)
        self.reasoning_field, self.model, self.media_in_results = reasoning_field, model, media_in_results
        self.old: dict[str, str] = {}  # legacy `function_call`s, which have no ids

    def message(self, message: Message) -> JSONObject | None:
        """Encode a system, user or assistant message; return None if none of it can be sent."""
        if message.extra is None and (short := self.plain(message)) is not None:
            return short
        rest = own_extra(message.extra, self.provider)
        if "function_call" in rest:
            self.old |= {call.id: call.name for call in message.tool_calls}
        content = [block for part in message.parts if (block := self.block(part, message.role)) is not None]
        calls = [self.call(part) for part in message.parts if isinstance(part, ToolCall)]
        thoughts = self.details(message)
        wire: JSONObject = {
            "role": message.role,
            "content": simplify_content(content) if content else None,
            **self.reasoning(message),
        }
        refusals = [part.data["refusal"] for part in message.parts if self.is_field(part, True)]
        if thoughts:
            wire[details.DETAILS] = thoughts
        if refusals:
            wire["refusal"] = refusals[0]
        if calls:
            wire["tool_calls"] = calls
        said = content or calls or refusals or thoughts
        if not said and not ("content" in rest or self.speaks(message, rest)):
            return None
        return merge_extra(wire, message.extra, self.provider)

    def is_field(self, part: AnyPart, field: bool | None = None) -> TypeGuard[ProviderBlock]:
        """Return True if a part comes from a field beside the content. `field` is True for a refusal."""
        found: JSON = own_extra(part.extra, self.provider).get(FIELD) if isinstance(part, ProviderBlock) else None
        return bool(found) if field is None else found is field

    def speaks(self, message: Message, rest: JSONObject) -> bool:
        """Return True if a reply without content has content in an endpoint-specific field."""
        said = [value for name, value in rest.items() if name not in ("role", "name")]
        return message.role == "assistant" and any(value is not None for value in said)

    def plain(self, message: Message) -> JSONObject | None:
        """Encode a message of one text and calls, the most common case; return None for all others."""
        text: str | None = None
        calls: list[JSONObject] = []
        for part in message.parts:
            if part.extra is not None:
                return None
            if type(part) is Text:
                if text is not None or not part.text:
                    return None
                text = part.text
            elif type(part) is ToolCall:
                calls.append(_function_call(part))
            else:
                return None
        if calls:
            return {"role": message.role, "content": text, "tool_calls": calls}
        return {"role": message.role, "content": text} if text is not None else None

    def results(self, message: Message) -> list[JSONObject]:
        wire: list[JSONObject] = []
        shown: list[JSONObject] = []
        for part in message.parts:
            if type(part) is ToolResult and part.call_id in self.old and not part.extra:
                wire.append({"role": "function", "name": self.old[part.call_id], "content": part.text})
            elif type(part) is ToolResult and type(part.content) is str and not part.extra and not part.is_error:
                wire.append({"role": "tool", "tool_call_id": part.call_id, "content": part.content})
            elif isinstance(part, ToolResult):
                content: JSON = part.content
                if not isinstance(part.content, str) and self.media_in_results:
                    content = [self.text(each) if isinstance(each, Text) else self.shown(each) for each in part.content]
                    content = content or ""
                elif not isinstance(part.content, str):
                    texts = [each for each in part.content if isinstance(each, Text)]
                    media = [each for each in part.content if isinstance(each, Media)]
                    content = [self.text(each) for each in texts] or ""
                    if media and "content" not in own_extra(part.extra, self.provider):
                        self.note_moved_media(part)
                        shown += [{"type": "text", "text": f"[media returned by {part.name}]"}]
                        shown += [self.media(each) for each in media]
                self.note_error_flag(part)
                answer: JSONObject = {"role": "tool", "tool_call_id": part.call_id, "content": content}
                wire.append(merge_extra(answer, part.extra, self.provider))
            elif (beside := self.block(part)) is not None:
                shown.append(beside)
        return [*wire, {"role": "user", "content": simplify_content(shown)}] if shown else wire

    def block(self, part: AnyPart, role: Role = "user") -> JSONObject | None:
        match part:
            case Text():
                return self.text(part) if part.text else None
            case Media():
                if role != "user" and not own_extra(part.extra, self.provider):
                    return self.described(part)
                return self.shown(part)
            case ProviderBlock():
                if self.is_field(part):
                    return None
                if part.provider == self.provider:
                    return part.data
                return {"type": "text", "text": self.native_text(part)}
            case Reasoning() | ToolCall() | ToolResult() | UserNotice():
                return None
            case _:
                assert_never(part)

    def text(self, part: Text) -> JSONObject:
        return merge_extra({"type": "text", "text": part.text}, part.extra, self.provider)

    def call(self, part: ToolCall) -> JSONObject:
        return merge_extra(_function_call(part), part.extra, self.provider)

    def reasoning(self, message: Message) -> JSONObject:
        """Return the text of reasoning that came without blocks, if the endpoint has a field for it."""
        thoughts = [part for part in message.parts if isinstance(part, Reasoning)]
        loose = [part for part in thoughts if details.encode_block(part, self.provider) is None]
        ours = [part for part in loose if self.is_own(part) and part.text]
        said = len(loose) < len(thoughts) or any(
            name in REASONING_FIELDS for name in own_extra(message.extra, self.provider)
        )
        if len(ours) < len(loose) or (ours and not self.reasoning_field and not said):
            self.note("left out", "reasoning that this endpoint has no place for")
        if not ours or not self.reasoning_field:
            return {}
        return {self.reasoning_field: "".join(part.text for part in ours)}

    def details(self, message: Message) -> list[JSONObject]:
        """Return the reasoning blocks in this message that the model may receive."""
        found = [
            (part, block) for part in message.parts if (block := details.encode_block(part, self.provider)) is not None
        ]
        mine = [block for part, block in found if details.is_allowed_for(part, self.model, self.provider)]
        if len(mine) < len(found):
            self.note("left out", "reasoning of another vendor's model")
        return mine

    def shown(self, part: Media) -> JSONObject:
        return merge_extra(self.media(part), part.extra, self.provider)

    def media(self, part: Media) -> JSONObject:
        text = encode_base64(part, self.blobs)
        if part.kind == "image" and (text is not None or part.url is not None):
            url = part.url or f"data:{part.mime_type};base64,{text}"
            return {"type": "image_url", "image_url": {"url": url}}
        if part.mime_type in AUDIO_FORMATS and text is not None:
            return {"type": "input_audio", "input_audio": {"data": text, "format": AUDIO_FORMATS[part.mime_type]}}
        if part.kind == "document" and text is not None:
            name = {"filename": part.name} if part.name else {}
            return {"type": "file", "file": {"file_data": f"data:{part.mime_type};base64,{text}", **name}}
        if self.is_own_file(part):
            return {"type": "file", "file": {"file_id": part.file_id}}
        return self.described(part)

    def described(self, part: Media) -> JSONObject:
        return {"type": "text", "text": self.media_text(part)}


def _function_call(part: ToolCall) -> JSONObject:
    return {"id": part.id, "type": "function", "function": {"name": part.name, "arguments": arguments_text(part)}}
