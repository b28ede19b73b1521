"""Encode messages as `ModelMessage`s of the Vercel AI SDK, version 7.

Each message stays one message, with its parts in order; a single plain text is a string. The SDK calls many providers.
So signed reasoning is sent under the name of the provider that signed it (`providerOptions`), and other providers
ignore it. A system message keeps its role anywhere, which the SDK accepts with `allowSystemInMessages`. A response to
an approval request comes from a person, so it is a user message in contextc. The SDK has it in the tool message, before
the result of its call.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import assert_never, cast

from msgspec.structs import replace

from contextc._json import JSON, JSONObject, decode
from contextc.formats.base import EncodedSegment, merge_extra, own_extra
from contextc.formats.encoder_decoder_base import PartEncoder, simplify_content
from contextc.formats.media_encoding import describe_media, encode_base64
from contextc.formats.vercel import ui_messages
from contextc.messages import AnyPart, Extra, Media, Message, ProviderBlock, Reasoning, Text, ToolCall, ToolResult
from contextc.messages.message import UserNotice

ORIGINAL_FORM = "shape"
"""Key in `extra`: the original form of an object, where the SDK accepts several forms."""
DENIED = "Tool execution denied."
DENIED_BECAUSE = "Tool execution denied: "
PROOF_FIELDS: dict[str, dict[str, str]] = {
    "anthropic": {"signature": "signature", "data": "redactedData"},
    "bedrock": {"signature": "signature", "data": "redactedContent"},
    "openai": {"id": "itemId", "data": "reasoningEncryptedContent"},
    "google": {"signature": "thoughtSignature"},
}
"""Fields that prove reasoning, by provider: the field of `Reasoning` and the SDK's."""
CARRIED_FIELDS = {"google": ("thoughtSignature",)}
"""Further fields of a part that the SDK passes to its provider."""


def encode_segment(segment: Sequence[Message], *, provider: str, blobs: Mapping[str, bytes]) -> EncodedSegment:
    encoder = _Encoder(provider, blobs)
    wire: list[JSONObject] = []
    for message in _separate_user_parts(segment, provider):
        if message.role == "tool":
            wire += encoder.tool(message)
        elif is_approval_response(message, provider):
            _add_approval_responses(wire, message, provider)
        elif (encoded := encoder.message(message)) is not None:
            wire.append(encoded)
    return EncodedSegment(tuple(wire), tuple(encoder.notes))


def encode_instructions(message: Message, provider: str) -> JSONObject:
    """Return the system prompt as the SDK's `instructions`; nothing if it is blank."""
    text = _Encoder(provider, {}).plain(message)
    return merge_extra({"instructions": text}, message.extra, provider) if text else {}


def original_form(extra: Extra | None, provider: str) -> JSONObject:
    return cast(JSONObject, own_extra(extra, provider).get(ORIGINAL_FORM) or {})


def proof_options(reasoning: Reasoning) -> JSONObject:
    """Return the proof of reasoning as `providerOptions`; empty if there is none."""
    fields = PROOF_FIELDS.get(reasoning.provider or "", {})
    proof = {theirs: value for ours, theirs in fields.items() if (value := getattr(reasoning, ours)) is not None}
    return {reasoning.provider or "": proof} if proof else {}


def carried_options(part: AnyPart) -> JSONObject:
    """Return the fields for other providers that the SDK passes on, as `providerOptions`."""
    found: JSONObject = {}
    for provider, names in CARRIED_FIELDS.items():
        said = {name: value for name, value in own_extra(part.extra, provider).items() if name in names}
        if said and not isinstance(part, Reasoning):
            found[provider] = said
    return found


def restore_original(ours: JSONObject, extra: Extra | None, provider: str) -> JSONObject:
    """Return `merge_extra` without the key that records the original form."""
    return {name: value for name, value in merge_extra(ours, extra, provider).items() if name != ORIGINAL_FORM}


class _Encoder(PartEncoder):
    def message(self, message: Message) -> JSONObject | None:
        """Encode a system, user or assistant message; return None if none of it can be sent."""
        if message.role == "system":
            content: JSON = self.plain(message)
            self.note("made up", "allowSystemInMessages, because a system message stands among others")
        else:
            blocks = self.blocks(message.parts)
            listed = bool(original_form(message.extra, self.provider).get("list"))
            content = blocks if listed else simplify_content(blocks, "text")
        if not content and "content" not in own_extra(message.extra, self.provider):
            return None
        return restore_original({"role": message.role, "content": content}, message.extra, self.provider)

    def tool(self, message: Message) -> list[JSONObject]:
        """Encode a tool message, and a user message for the parts that a tool message cannot hold."""
        results = [part for part in message.parts if isinstance(part, ToolResult)]
        wire: list[JSONObject] = []
        if results:
            rest: JSONObject = {}
            for result in results:
                rest |= cast(JSONObject, original_form(result.extra, self.provider).get("message") or {})
            wire.append({"role": "tool", "content": self.blocks(results), **rest})
        if others := self.blocks([part for part in message.parts if not isinstance(part, ToolResult)]):
            self.note("moved", "what is no result, from a tool message into a user message")
            wire.append({"role": "user", "content": simplify_content(others, "text")})
        return wire

    def plain(self, message: Message) -> str:
        """Return the text of a message that may hold nothing else."""
        texts: list[str] = []
        for part in message.parts:
            match part:
                case Text():
                    texts.append(part.text)
                case Media():
                    self.note("described", f"{part.kind} in a system message")
                    texts.append(describe_media(part))
                case ProviderBlock():
                    texts.append(self.native_text(part))
                case Reasoning() | ToolCall() | ToolResult() | UserNotice():
                    pass
                case _:
                    assert_never(part)
        return "\n\n".join(text for text in texts if text)

    def blocks(self, parts: Iterable[AnyPart]) -> list[JSONObject]:
        found: list[JSONObject] = []
        for part in parts:
            if _is_steering(part, self.provider):
                found += ui_messages.steering_content(cast(JSONObject, cast(ProviderBlock, part).data))
                continue
            block = self.block(part)
            if block is not None and not isinstance(part, ProviderBlock):
                options = {"providerOptions": also} if part.extra and block and (also := carried_options(part)) else {}
                block = restore_original({**block, **options}, part.extra, self.provider)
            if block:
                found.append(block)
        return found

    def block(self, part: AnyPart) -> JSONObject | None:
        match part:
            case Text():
                return {"type": "text", "text": part.text} if part.text else {}
            case Reasoning():
                return self.reasoning(part)
            case ToolCall():
                given = self.arguments_object(part)
                return {"type": "tool-call", "toolCallId": part.id, "toolName": part.name, "input": given}
            case ToolResult():
                output = self.output(part)
                return {"type": "tool-result", "toolCallId": part.call_id, "toolName": part.name, "output": output}
            case Media():
                return self.media(part)
            case ProviderBlock():
                return self.native(part)
            case UserNotice():
                return None
            case _:
                assert_never(part)

    def reasoning(self, part: Reasoning) -> JSONObject | None:
        options = proof_options(part)
        if not options and part.provider != self.provider:
            self.note("left out", f"unsigned reasoning of {part.provider or 'an unknown provider'}")
            return None
        said: JSONObject = {"type": "reasoning", "text": part.text}
        return {**said, "providerOptions": options} if options else said

    def native(self, part: ProviderBlock) -> JSONObject | None:
        if part.provider != self.provider:
            return {"type": "text", "text": self.native_text(part)}
        data = cast(JSONObject, part.data)
        if str(data.get("type")).startswith(("data-", "source-")):
            self.note("left out", f"{data['type']}, which only a user interface is shown")
            return None
        return data

    def output(self, part: ToolResult) -> JSONObject:
        match original_form(part.extra, self.provider).get("output"):
            case "json" | "error-json" as kind if isinstance(part.content, str):
                return {"type": kind, "value": decode(part.content)}
            case "execution-denied" if isinstance(part.content, str):
                reason = {} if part.content == DENIED else {"reason": part.content.removeprefix(DENIED_BECAUSE)}
                return {"type": "execution-denied", **reason}
            case _:
                pass
        if isinstance(part.content, str):
            return {"type": "error-text" if part.is_error else "text", "value": part.content}
        if part.is_error and all(isinstance(each, Text) for each in part.content):
            return {"type": "error-text", "value": part.text}
        if part.is_error:
            self.note("left out", f"that the result of {part.name}, which holds media, is an error")
        return {"type": "content", "value": [self.returned(each) for each in part.content]}

    def returned(self, part: Text | Media) -> JSONObject:
        """Encode text or media inside a result."""
        if isinstance(part, Text):
            return restore_original({"type": "text", "text": part.text}, part.extra, self.provider)
        name = {"filename": part.name} if part.name else {}
        if original_form(part.extra, self.provider).get("tag"):
            block = self.media(part)
        elif (text := encode_base64(part, self.blobs)) is not None:
            block = {"type": "file-data", "data": text, "mediaType": part.mime_type, **name}
        elif part.url is not None:
            block = {"type": "file-url", "url": part.url, "mediaType": part.mime_type}
        else:
            block = self.described(part)
        return restore_original(block, part.extra, self.provider)

    def media(self, part: Media) -> JSONObject:
        spelling = original_form(part.extra, self.provider)
        text = encode_base64(part, self.blobs)
        data: JSON = part.url
        if text is not None:
            data = f"data:{part.mime_type};base64,{text}" if spelling.get("data_url") else text
        elif part.file_id is not None and (
            part.provider == self.provider or "data" in own_extra(part.extra, self.provider)
        ):
            data = {part.provider or self.provider: part.file_id}
        if data is None:
            return self.described(part)
        if tag := spelling.get("tag"):
            data = {"type": tag, tag: data}
        name = {"filename": part.name} if part.name else {}
        if spelling.get("image"):
            return {"type": "image", "image": data, "mediaType": part.mime_type}
        return {"type": "file", "mediaType": part.mime_type, "data": data, **name}

    def described(self, part: Media) -> JSONObject:
        return {"type": "text", "text": self.media_text(part)}


def is_approval_response(message: Message, provider: str) -> bool:
    """Return True if a message holds only approval responses, which belong in the tool message."""
    return bool(message.parts) and all(_is_approval_part(part, provider) for part in message.parts)


def _is_approval_part(part: AnyPart, provider: str) -> bool:
    return (
        type(part) is ProviderBlock
        and part.provider == provider
        and original_form(part.extra, provider).get("role") == "tool"
    )


def _separate_user_parts(segment: Sequence[Message], provider: str) -> Iterator[Message]:
    """Yield the segment. Approval responses and steering messages inside a reply follow its results."""
    later: list[Message] = []
    for message in segment:
        if message.role != "tool":
            yield from later
            later = []
        if message.role == "assistant":
            aside = [_is_approval_part(part, provider) or _is_steering(part, provider) for part in message.parts]
            if any(aside):
                parts = list(zip(message.parts, aside, strict=True))
                later = [Message(role="user", parts=(part,)) for part, is_aside in parts if is_aside]
                message = replace(message, parts=tuple([part for part, is_aside in parts if not is_aside]))
        yield message
    yield from later


def _is_steering(part: AnyPart, provider: str) -> bool:
    return (
        type(part) is ProviderBlock
        and part.provider == provider
        and isinstance(part.data, dict)
        and ui_messages.is_steering_message(cast(JSONObject, part.data))
    )


def _add_approval_responses(wire: list[JSONObject], message: Message, provider: str) -> None:
    """Add approval responses to the preceding tool message, or as a separate one if they came so and still may."""
    answers = [cast(JSONObject, part.data) for part in message.parts if isinstance(part, ProviderBlock)]
    alone = restore_original({"role": "tool", "content": answers}, message.extra, provider)
    if not wire or wire[-1]["role"] != "tool":
        wire.append(alone)
        return
    asked = {
        block.get("approvalId"): block.get("toolCallId")
        for message in wire
        if isinstance(message["content"], list)
        for block in cast(list[JSONObject], message["content"])
        if block.get("type") == "tool-approval-request"
    }
    content = list(cast(list[JSONObject], wire[-1]["content"]))
    if original_form(message.extra, provider).get("apart"):
        here = {block.get("toolCallId") for block in content if block.get("type") == "tool-result"}
        mine = {asked.get(answer.get("approvalId")) for answer in answers}
        if not here & mine or here <= mine:
            wire.insert(len(wire) - 1 if here & mine else len(wire), alone)
            return
    before: dict[JSON, list[JSONObject]] = {}
    for answer in answers:
        before.setdefault(asked.get(answer.get("approvalId")), []).append(answer)
    ids = {block.get("toolCallId") for block in content} - {None}
    last = [answer for answer in answers if asked.get(answer.get("approvalId")) not in ids]
    content = [each for block in content for each in (*before.pop(block.get("toolCallId") or 0, ()), block)]
    wire[-1] = {**wire[-1], "content": [*content, *last]}
