"""Mistral's chat completions format."""

from collections.abc import Iterable, Mapping, Sequence
from typing import cast

from contextc._json import JSON, JSONObject, id_text
from contextc.formats.base import OPENING_TEXT, Codec, CodecFormatter, EncodedSegment, Request
from contextc.formats.message_preparation import IdentifierCodec, NameCodec, ReasoningPolicy
from contextc.formats.mistral import codec
from contextc.formats.mistral.codec import (
    AUDIO_TYPES,
    DOCUMENT_TYPES,
    EMPTY_CONTENT,
    IMAGE_TYPES,
    OBJECT_ARGUMENTS,
    ROLES_BEFORE_NO_SYSTEM,
    UNNAMED_RESULT,
    MistralStreamReader,
    NineCharacterIds,
    as_tagged_user_text,
    encode_segment,
)
from contextc.formats.mistral.request_settings import SETTINGS
from contextc.formats.mistral.rules import RULES
from contextc.formats.openai_chat.codec import encode_tool
from contextc.messages import Message

PREFIX = "prefix"


class MistralFormatter(CodecFormatter):
    """Format of Mistral's chat completions. A last assistant message gets `prefix`: the model continues it."""

    name = "mistral"
    media_types = (*IMAGE_TYPES, *AUDIO_TYPES, *DOCUMENT_TYPES)
    codec = Codec(encode_tool, codec.decode_request, codec.decode_reply, codec.collect_events)
    stream_reader = MistralStreamReader
    rules = RULES
    prefix_settings = ("reasoning_effort", "prompt_mode", "safe_prompt", "response_format")
    settings = SETTINGS
    name_codec = NameCodec("mistral", ids=NineCharacterIds(), names=IdentifierCodec("a-zA-Z0-9_-", 64))
    system_among_messages = True
    allows_leading_system = True
    user_first = True
    merges_neighbours = True  # nothing is merged, but `join` must see the preceding messages
    layout_extra = (EMPTY_CONTENT, UNNAMED_RESULT, OBJECT_ARGUMENTS, "closed")
    nested_extra = ("image_url",)
    shared_extra = ("url",)

    def __init__(self, *, provider: str = "mistral", reasoning: ReasoningPolicy = "native") -> None:
        self.provider, self.reasoning = provider, reasoning

    def _encode(self, segment: Sequence[Message], blobs: Mapping[str, bytes]) -> EncodedSegment:
        return encode_segment(segment, provider=self.provider, blobs=blobs)

    def join(self, segments: Iterable[EncodedSegment], before: Sequence[JSONObject] = ()) -> list[JSONObject]:
        messages = list(before)
        for segment in segments:
            if not segment.messages:
                continue
            first, last = segment.messages[0], messages[-1] if messages else None
            if last is None and first["role"] == "assistant":
                messages.append({"role": "user", "content": OPENING_TEXT})
            if last is not None and PREFIX in last:
                messages[-1] = {name: value for name, value in last.items() if name != PREFIX}
            if last is not None and first["role"] == "system" and last["role"] in ROLES_BEFORE_NO_SYSTEM:
                first = as_tagged_user_text(first)
            messages += [first, *segment.messages[1:]]
        if messages and messages[-1]["role"] == "assistant":
            messages[-1] = {**messages[-1], PREFIX: True}
        return messages

    def assemble(self, request: Request, messages: list[JSONObject]) -> JSONObject:
        return self._body_with_system_message(request, messages)

    def session_id_of(self, reply: JSONObject, field: str) -> str:
        return super().session_id_of(reply, field) or id_text(reply.get("id"))

    def _is_reply(self, reply: JSONObject) -> bool:
        first: JSON = next(iter(cast(list[JSON], reply.get("choices") or [])), None)
        return isinstance(first, dict) and isinstance(cast(JSONObject, first).get("message"), dict)
