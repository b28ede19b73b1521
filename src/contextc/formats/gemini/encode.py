"""Encoding of messages for Google's generateContent.

Neighbours of one role become one content, but the results of a step have a separate content directly after its calls.
Some endpoints refuse a content that mixes results with other parts, and some models answer it with nothing. There is no
system role, so a system message between others becomes tagged user text. A signature belongs to its part and is sent
back on it. A call from another provider gets the placeholder signature from Google's guide.

Google's `extra` of a part has the data of its wire part beyond our types. Data of the inner object is nested:
`{"functionCall": {"id": null}}` is a call without an id. `spelled` and `urlsafe` record notations. The `extra` of a
message has the role of a result if it was not the user's. `alone` in the `extra` of a tool records that tools were not
a list.
"""

import re
from collections.abc import Mapping, Sequence
from typing import assert_never, cast

from msgspec.structs import replace

from contextc._json import JSONObject
from contextc.formats.base import EncodedSegment, merge_extra, own_extra
from contextc.formats.encoder_decoder_base import PartEncoder, tag_system_blocks
from contextc.formats.media_encoding import encode_base64
from contextc.formats.message_groups import APART_KEY
from contextc.messages import AnyPart, Media, Message, ProviderBlock, Reasoning, Text, ToolCall, ToolResult
from contextc.messages.message import UserNotice
from contextc.tools.spec import NativeTool, Tool

PLACEHOLDER_SIGNATURE = "skip_thought_signature_validator"
RESULT_MEDIA_TYPES = ("image/jpeg", "image/png", "image/webp", "application/pdf", "text/plain")
PART_DATA_FIELDS = ("functionCall", "functionResponse", "inlineData", "fileData")
# The API accepts both spellings of its names, and clients mix them.
SNAKE_CASE_NAMES = {
    "function_call": "functionCall",
    "function_response": "functionResponse",
    "inline_data": "inlineData",
    "file_data": "fileData",
    "thought_signature": "thoughtSignature",
    "mime_type": "mimeType",
    "file_uri": "fileUri",
    "function_declarations": "functionDeclarations",
    "parameters_json_schema": "parametersJsonSchema",
    "parameters": "parametersJsonSchema",
}
SPELLED_KEY, URLSAFE_KEY, BESIDE_KEY, ROLE_KEY, ALONE_KEY = "spelled", "urlsafe", "beside", "role", "alone"


def encode_segment(
    segment: Sequence[Message], *, provider: str, signatures: bool, blobs: Mapping[str, bytes]
) -> EncodedSegment:
    encoder = _Encoder(provider, signatures, blobs)
    wire: list[JSONObject] = []
    for message in segment:
        role = cast(
            str,
            own_extra(message.extra, provider).get(ROLE_KEY) or ("model" if message.role == "assistant" else "user"),
        )
        blocks = encoder.system(message) if message.role == "system" else encoder.blocks(message)
        apart = cast(bool | None, own_extra(message.extra, provider).get(APART_KEY))
        begins = not wire
        append_parts(wire, role, blocks, apart=apart)
        if begins and wire and apart:
            wire[0] = {**wire[0], APART_KEY: True}  # for `join`, which removes it
        append_parts(wire, "user", encoder.moved)
        encoder.moved = []
    return EncodedSegment(tuple(wire), tuple(encoder.notes), bool(wire and wire[0].get(APART_KEY)))


def append_parts(
    wire: list[JSONObject],
    role: str,
    blocks: list[JSONObject],
    *,
    apart: bool | None = None,
    sealed: JSONObject | None = None,
) -> None:
    """Append parts to the last content if it has the same role, else as a new content.

    `apart` None: results are separated from other parts. The content `sealed` is not changed but replaced by a copy.
    """
    if not blocks:
        return
    if wire and wire[-1]["role"] == role:
        before = cast(list[JSONObject], wire[-1]["parts"])
        if not (_is_result(before[-1]) != _is_result(blocks[0]) if apart is None else apart):
            if wire[-1] is sealed:
                wire[-1] = {**wire[-1], "parts": [*before, *blocks]}
            else:
                before += blocks
            return
    wire.append({"role": role, "parts": [*blocks]})


def _is_result(block: JSONObject) -> bool:
    return "functionResponse" in block or "function_response" in block


def encode_part(part: AnyPart, provider: str, unnamed: set[str]) -> JSONObject:
    """Return the wire part of one part, or an empty object if nothing would be sent.

    The calls in `unnamed` have no id on the wire.
    """
    encoder = _Encoder(provider, True, {})
    encoder.unnamed = unnamed
    role = "tool" if isinstance(part, ToolResult) else "assistant"
    blocks = encoder.blocks(Message(role=role, parts=(part,)))
    return blocks[0] if blocks else {}


def encode_system(message: Message, provider: str) -> JSONObject | None:
    """Return the system prompt, or None if it is empty."""
    blocks = _Encoder(provider, False, {}).blocks(message)
    rest = {name: value for name, value in own_extra(message.extra, provider).items() if name != SPELLED_KEY}
    return merge_extra({"parts": blocks}, {provider: rest}, provider) if blocks else None


def encode_tool(tool: Tool) -> JSONObject:
    described: JSONObject = {"description": tool.description} if tool.description else {}
    taking: JSONObject = {"parametersJsonSchema": tool.parameters} if tool.parameters else {}
    return {"name": tool.name, **described, **taking}


def encode_tools(tools: Sequence[Tool | NativeTool], provider: str) -> list[JSONObject]:
    """Return all functions in one entry, unless they were read from several. Each native tool has its own entry."""
    found: list[JSONObject] = []
    functions: list[JSONObject] | None = None
    for tool in tools:
        if isinstance(tool, NativeTool):
            if tool.provider == provider:
                found.append(tool.data)
            continue
        rest = {name: value for name, value in own_extra(tool.extra, provider).items() if name != ALONE_KEY}
        beside, spelled = (
            cast(JSONObject | None, rest.pop(BESIDE_KEY, None)),
            cast(list[str], rest.pop(SPELLED_KEY, [])),
        )
        if functions is None or beside is not None:
            functions = []
            found.append(_restore_field_names({"functionDeclarations": functions, **(beside or {})}, spelled))
        functions.append(_restore_field_names(merge_extra(encode_tool(tool), {provider: rest}, provider), spelled))
    return found


class _Encoder(PartEncoder):
    def __init__(self, provider: str, signatures: bool, blobs: Mapping[str, bytes]) -> None:
        super().__init__(provider, blobs)
        self.signatures = signatures
        self.moved: list[JSONObject] = []
        self.unnamed: set[str] = set()

    def system(self, message: Message) -> list[JSONObject]:
        self.note_tagged_system()
        return tag_system_blocks(self.blocks(message))

    def blocks(self, message: Message) -> list[JSONObject]:
        found: list[JSONObject] = []
        unsigned = self.signatures
        for part in message.parts:
            block = self.block(part)
            if block is None:
                continue
            if isinstance(part, ToolCall) and unsigned:
                unsigned = False
                block = self.signed(part, block)
            found.append(block if isinstance(part, ProviderBlock) else self.with_rest(block, part))
        return found

    def block(self, part: AnyPart) -> JSONObject | None:
        match part:
            case Text():
                # An empty part may have a signature, and Google accepts again what it accepted before.
                return {"text": part.text} if part.text.strip() or own_extra(part.extra, self.provider) else None
            case Reasoning():
                return self.reasoning(part)
            case ToolCall():
                return self.call(part)
            case ToolResult():
                return self.result(part)
            case Media():
                return self.media(part)
            case ProviderBlock():
                return part.data if part.provider == self.provider else {"text": self.native_text(part)}
            case UserNotice():
                return None
            case _:
                assert_never(part)

    def reasoning(self, part: Reasoning) -> JSONObject | None:
        if not self.is_sendable(part, part.text or part.signature):
            return None
        thought: JSONObject = {"text": part.text, "thought": True}
        return {**thought, "thoughtSignature": part.signature} if part.signature else thought

    def call(self, part: ToolCall) -> JSONObject:
        if not own_extra(part.extra, self.provider).get("functionCall", {}).get("id", part.id):
            self.unnamed.add(part.id)
        named: JSONObject = {"id": part.id} if part.id else {}
        return {"functionCall": {**named, "name": part.name, "args": self.arguments_object(part)}}

    def signed(self, part: ToolCall, block: JSONObject) -> JSONObject:
        """Return the first call of a step with a signature: its own, or the placeholder for a call from another
        provider.
        """
        if "thoughtSignature" in own_extra(part.extra, self.provider):
            return block
        self.note("made up", f"a signature for the call of {part.name}, which came from elsewhere")
        return {**block, "thoughtSignature": PLACEHOLDER_SIGNATURE}

    def result(self, part: ToolResult) -> JSONObject:
        media = [] if isinstance(part.content, str) else [each for each in part.content if isinstance(each, Media)]
        shown = [self.with_rest(self.media(each), each) for each in media if each.mime_type in RESULT_MEDIA_TYPES]
        if others := [each for each in media if each.mime_type not in RESULT_MEDIA_TYPES]:
            self.note("moved", f"media of {part.name}, into a user content after the results")
            self.moved += [{"text": f"[media returned by {part.name}]"}]
            self.moved += [self.with_rest(self.media(each), each) for each in others]
        described = [cast(str, block["text"]) for block in shown if "text" in block]
        said = "\n".join([part.text, *described] if part.text else described)
        inside = [block for block in shown if "text" not in block]
        answer: JSONObject = {"name": part.name, "response": {"error" if part.is_error else "output": said}}
        if part.call_id and part.call_id not in self.unnamed:
            answer["id"] = part.call_id
        if inside:
            answer["parts"] = inside
        return {"functionResponse": answer}

    def media(self, part: Media) -> JSONObject:
        if (data := encode_base64(part, self.blobs)) is not None:
            return {"inlineData": {"mimeType": part.mime_type, "data": data}}
        uri = part.url or (part.file_id if part.provider == self.provider else None)
        if uri is not None:
            return {"fileData": {"mimeType": part.mime_type, "fileUri": uri}}
        return {"text": self.media_text(part)}

    def with_rest(self, block: JSONObject, part: AnyPart) -> JSONObject:
        """Return the part with Google's own data restored. This reverses the decoder's `with_rest`."""
        rest = dict(own_extra(part.extra, self.provider))
        if not rest or (isinstance(part, Media) and "text" in block):
            return block
        spelled, urlsafe = cast(list[str], rest.pop(SPELLED_KEY, [])), rest.pop(URLSAFE_KEY, False)
        for name in PART_DATA_FIELDS:
            if name in block and name in rest:
                inside = {self.provider: cast(JSONObject, rest.pop(name))}
                block = {**block, name: merge_extra(block[name], inside, self.provider)}
        if urlsafe:
            inline = cast(JSONObject, block["inlineData"])
            block = {**block, "inlineData": {**inline, "data": to_urlsafe(inline["data"])}}
        return _restore_field_names(merge_extra(block, {self.provider: rest}, self.provider), spelled)


def is_same_model(wrote: str, asked: str) -> bool:
    """Return True if two names are of the same model, or of a version of it."""
    longer, shorter = (wrote, asked) if len(wrote) >= len(asked) else (asked, wrote)
    rest = longer.removeprefix(shorter)
    return longer.startswith(shorter) and (not rest or re.match(r"-(preview|exp|latest|\d)", rest) is not None)


def without_signature(part: AnyPart, provider: str) -> AnyPart:
    """Return a part without its signature."""
    if isinstance(part, Reasoning):
        return replace(part, provider=None) if part.provider == provider else part
    rest = own_extra(part.extra, provider)
    if "thoughtSignature" not in rest:
        return part
    left = {name: value for name, value in rest.items() if name != "thoughtSignature"}
    return replace(part, extra={**(part.extra or {}), provider: left})


def to_urlsafe(data: str) -> str:
    """Return base64 in the alphabet that Google's SDK writes."""
    return data.replace("+", "-").replace("/", "_")


def _restore_field_names(block: JSONObject, spelled: list[str]) -> JSONObject:
    """Return a part and its data field with the field names of the original request."""
    if not spelled:
        return block
    names = {SNAKE_CASE_NAMES[name]: name for name in spelled}
    inside = {
        name: _restore_field_names(cast(JSONObject, value), spelled)
        if name in PART_DATA_FIELDS and isinstance(value, dict)
        else value
        for name, value in block.items()
    }
    return {names.get(name, name): value for name, value in inside.items()}
