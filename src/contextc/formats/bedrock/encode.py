"""Encoding of messages for Bedrock's Converse API.

Roles alternate: the messages between two replies become one user message, results first. A block is an object with one
member, whose name is its type. A cache breakpoint is a separate block, so it is kept with the part before it. A
document has a unique name in the request, and needs a text next to it. Blank text is left out. A system message between
others keeps its role if the model accepts it, as in Anthropic's API.
"""

import re
from collections.abc import Mapping, Sequence
from typing import assert_never, cast

from contextc._json import JSONObject
from contextc.formats.base import EncodedSegment, merge_extra, own_extra, text_of
from contextc.formats.bedrock.media import describe_block, encode_media, find_documents, with_unique_name
from contextc.formats.encoder_decoder_base import PartEncoder, encode_definition, tag_system_blocks
from contextc.formats.message_groups import APART_KEY
from contextc.messages import AnyPart, Media, Message, ProviderBlock, Reasoning, Text, ToolCall, ToolResult
from contextc.messages.message import UserNotice
from contextc.tools.spec import NativeTool, Tool

BETWEEN_KEY, UNCHANGED_KEY, CACHE_POINT_KEY = "between", "as it came", "cachePoint"
TEXT_BLOCKS = ("citationsContent", "guardContent")
"""Blocks that other formats receive as text."""
USER_ONLY_BLOCKS = frozenset(("image", "document"))
"""Blocks that only a user message may contain."""
VENDOR_PATTERN = re.compile(r"(?:(?:[a-z]{2}(?:-gov)?|apac|global)\.)?([a-z][a-z0-9-]{2,})\.")
DOCUMENT_TEXT = "(The document above.)"
EMPTY_ERROR_TEXT = "(It failed, and said nothing.)"
PLACEHOLDER_TOOL = Tool(
    name="no_tools", description="There are no tools now. Do not call this.", parameters={"type": "object"}
)
"""Sent in place of tools if earlier messages contain calls but the request has no tools: Bedrock requires some."""


def encode_segment(
    segment: Sequence[Message],
    *,
    provider: str,
    system_between: bool | None,
    blobs: Mapping[str, bytes],
    model: str | None = None,
) -> EncodedSegment:
    """Encode a segment. `model` is the requested model; reasoning signed by another vendor's model is left out."""
    encoder = _Encoder(provider, blobs, model)
    wire: list[JSONObject] = []
    asked = ""
    end = max((index for index, message in enumerate(segment) if message.role != "system"), default=-1)
    for index, message in enumerate(segment):
        role = "assistant" if message.role == "assistant" else "user"
        if message.role == "system":
            between = own_extra(message.extra, provider).get(BETWEEN_KEY) if system_between is None else system_between
            if between and index > end and wire and wire[-1]["role"] in ("user", "system"):
                role = "system"
            blocks = encoder.system(message, tagged=role == "user")
        else:
            asked = message.uid if message.role == "assistant" else asked
            # Results were moved to their calls and no longer have their own message.
            blocks = encoder.blocks(message, role, message.uid or (asked if message.role == "tool" else ""))
        if blocks and wire and wire[-1]["role"] == role:
            wire[-1]["content"] += blocks
        elif blocks:
            wire.append({"role": role, "content": blocks})
    for message in wire:
        encoder.with_a_text(message)
    apart = bool(segment) and bool(own_extra(segment[0].extra, provider).get(APART_KEY))
    return EncodedSegment(tuple(wire), tuple(encoder.notes), apart)


def encode_part(part: AnyPart, provider: str) -> JSONObject:
    """Return the block of one part, or an empty object if nothing would be sent."""
    role = "assistant" if isinstance(part, Reasoning | ToolCall) else "user"
    blocks = _Encoder(provider, {}).blocks(Message(role=role, parts=(part,)), role)
    return blocks[0] if blocks else {}


def encode_system(message: Message, provider: str) -> list[JSONObject]:
    """Return the blocks of the system prompt."""
    return _Encoder(provider, {}).words(message)


def encode_tool(tool: Tool) -> JSONObject:
    return {"toolSpec": encode_definition(tool, "inputSchema", {"json": tool.parameters or {"type": "object"}})}


def encode_tools(tools: Sequence[Tool | NativeTool], provider: str) -> list[JSONObject]:
    found: list[JSONObject] = []
    for tool in tools:
        if isinstance(tool, Tool):
            found += merge_block_extra(encode_tool(tool), own_extra(tool.extra, provider))
        elif tool.provider == provider:
            found.append(tool.data)
    return found


def merge_block_extra(block: JSONObject, rest: JSONObject) -> list[JSONObject]:
    """Return our block with the provider's own data restored, and the cache breakpoint after it."""
    if not rest:
        return [block]
    ((kind, inside),) = block.items()
    if isinstance(rest.get(kind), dict) and isinstance(inside, dict):
        block = {kind: merge_extra(cast(JSONObject, inside), {kind: rest[kind]}, kind)}
    return [block, {CACHE_POINT_KEY: rest[CACHE_POINT_KEY]}] if rest.get(CACHE_POINT_KEY) else [block]


def vendor_of(model: str | None) -> str:
    """Return the vendor of a model from its id, such as `us.anthropic.claude-…` or an ARN, or ""."""
    found = VENDOR_PATTERN.match((model or "").rpartition("/")[2])
    return found[1] if found else ""


def is_readable_by(part: Reasoning, model: str | None) -> bool:
    """Return True if a model accepts this reasoning: no model of another vendor signed it."""
    return len({vendor_of(part.model), vendor_of(model)} - {""}) < 2


def block_text(block: JSONObject) -> str:
    """Return the text of a block that other formats receive as text."""
    if "guardContent" in block:
        return block["guardContent"]["text"]["text"]
    return "".join(each["text"] for each in cast(list[JSONObject], block["citationsContent"].get("content") or []))


class _Encoder(PartEncoder):
    def __init__(self, provider: str, blobs: Mapping[str, bytes], model: str | None = None) -> None:
        super().__init__(provider, blobs)
        self.model = model
        self.named: set[str] = set()
        """Names of documents that were generated here."""

    def system(self, message: Message, *, tagged: bool) -> list[JSONObject]:
        if not tagged:
            return self.words(message)
        self.note_tagged_system()
        return tag_system_blocks(self.blocks(message, "user", message.uid))

    def words(self, message: Message) -> list[JSONObject]:
        """Return the blocks of a message that may contain only text. Media are described."""
        return self.blocks(self.with_media_as_text(message), "system")

    def blocks(self, message: Message, role: str, owner: str = "") -> list[JSONObject]:
        """Return the blocks of a message. `owner` is the id of the stored message that it is or belongs to."""
        found: list[JSONObject] = []
        for part in message.parts:
            # A fast path for the most common parts.
            if type(part) is Text and part.extra is None:
                if part.text and not part.text.isspace():
                    found.append({"text": part.text})
            elif type(part) is ToolCall and part.extra is None and not part.malformed:
                found.append({"toolUse": {"toolUseId": part.id, "name": part.name, "input": part.arguments}})
            elif (block := self.block(part, role, owner)) is not None:
                rest = {} if isinstance(part, ProviderBlock) else own_extra(part.extra, self.provider)
                blocks = merge_block_extra(block, rest)
                found += [with_unique_name(each, owner, self.named) for each in blocks] if owner else blocks
        return found

    def block(self, part: AnyPart, role: str, owner: str) -> JSONObject | None:
        match part:
            case Text():
                return self.text(part)
            case Reasoning():
                return self.reasoning(part)
            case ToolCall():
                return {"toolUse": {"toolUseId": part.id, "name": part.name, "input": self.arguments_object(part)}}
            case ToolResult():
                return self.result(part, owner)
            case Media():
                shown = self.shown(part, owner) if role == "user" else None
                return shown or {"text": self.media_text(part)}
            case ProviderBlock():
                own = part.provider == self.provider
                return self.native(part.data, role) if own else {"text": self.native_text(part)}
            case UserNotice():
                return None
            case _:
                assert_never(part)

    def shown(self, part: Media, owner: str) -> JSONObject | None:
        block = encode_media(part, self.blobs, owner)
        self.named.update(each["document"]["name"] for each in find_documents([block] if block else []))
        return block

    def native(self, block: JSONObject, role: str) -> JSONObject:
        if role == "user" or USER_ONLY_BLOCKS.isdisjoint(block):
            return block
        self.note("described", f"a block of {self.provider} that only a user may show")
        return describe_block(block)

    def text(self, part: Text) -> JSONObject | None:
        rest = own_extra(part.extra, self.provider)
        for kind in TEXT_BLOCKS:
            if kind in rest and block_text(rest) == part.text:  # the text was not changed
                return {kind: rest[kind]}
        blank = not part.text.strip()
        return None if not part.text or (blank and not rest.get(UNCHANGED_KEY)) else {"text": part.text}

    def reasoning(self, part: Reasoning) -> JSONObject | None:
        """Return reasoning as a block. Unsigned reasoning is sent only if it was sent before: some models refuse it."""
        sent = part.signature or part.data or own_extra(part.extra, self.provider).get(UNCHANGED_KEY)
        if not self.is_sendable(part, sent):
            return None
        if not is_readable_by(part, self.model):
            self.note("left out", f"reasoning that {part.model} signed")
            return None
        if part.data is not None:
            return {"reasoningContent": {"redactedContent": part.data}}
        signed: JSONObject = {} if part.signature is None else {"signature": part.signature}
        return {"reasoningContent": {"reasoningText": {"text": part.text, **signed}}}

    def result(self, part: ToolResult, owner: str) -> JSONObject:
        content = self.inside(part, owner)
        block: JSONObject = {"toolUseId": part.call_id, "content": content}
        if not part.is_error:
            return {"toolResult": block}
        if content == [{"text": ""}]:
            self.note("made up", f"words for the error of {part.name}, which had none")
            block["content"] = [{"text": EMPTY_ERROR_TEXT}]
        return {"toolResult": {**block, "status": "error"}}

    def inside(self, part: ToolResult, owner: str) -> list[JSONObject]:
        """Return the content of a result. It is never empty, because some models refuse that."""
        if isinstance(part.content, str):
            return [{"text": part.content}]
        found: list[JSONObject] = []
        for each in part.content:
            if isinstance(each, Text):
                found += [{"text": each.text}] if each.text.strip() else []
                continue
            shown = self.shown(each, owner) if each.kind != "audio" else None
            block = shown or {"text": self.media_text(each)}
            found += merge_block_extra(block, own_extra(each.extra, self.provider))
        return found or [{"text": part.text}]

    def with_a_text(self, message: JSONObject) -> None:
        """Add a line of text next to documents without any."""
        content: list[JSONObject] = message["content"]
        if any("document" in block for block in content) and not any(
            text_of(block.get("text")).strip() for block in content
        ):
            self.note("made up", "a line of text beside a document, which may not stand alone")
            content.append({"text": DOCUMENT_TEXT})
