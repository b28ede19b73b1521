"""Encoding of messages as the items of a Codex thread.

A reply becomes several items: reasoning, messages, and calls, each with its result. So text between the calls of one
reply is moved before them. A call of a client tool is a `dynamicToolCall`; a call of Codex's own tools is sent back as
its original item. A reply with only calls begins with an empty reasoning item (`EMPTY_REASONING`), otherwise its calls
would join the reply before it. A thread has no system messages between others: they become marked user text. The id of
an item that we create is a hash of its content.
"""

from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import assert_never, cast

from msgspec.structs import replace

from contextc._json import JSON, JSONObject, encode_canonical
from contextc.formats.base import EncodedSegment, merge_extra, own_extra, text_of
from contextc.formats.codex.items import (
    CALL_TYPES,
    COMPLETED,
    FAILED,
    ITEM_TYPES,
    RUNNING,
    USER_BLOCKS,
    USER_ITEMS,
    result_block,
    with_result,
)
from contextc.formats.codex.names_and_ids import NAMES
from contextc.formats.encoder_decoder_base import PartEncoder
from contextc.formats.media_encoding import to_data_url
from contextc.messages import AnyPart, Extra, Media, Message, ProviderBlock, Reasoning, Text, ToolCall, ToolResult
from contextc.messages.escaping import SYSTEM_CONTEXT
from contextc.messages.message import UserNotice

ITEM_KEY = "item"
"""Key in `extra`: the fields of an item in which our encoding would differ, such as its id."""


BARE_KEY = "bare"
"""Key in `extra`: a reply with only calls had no item before them."""


def encode_segment(segment: Sequence[Message], *, provider: str, blobs: Mapping[str, bytes]) -> EncodedSegment:
    encoder = Encoder(provider, blobs)
    called = {call.id for message in segment for call in message.tool_calls}
    results: dict[str, ToolResult] = {}
    for result in [result for message in segment for result in message.tool_results]:
        results.setdefault(result.call_id, result)
    encoder.strays = {name: result for name, result in results.items() if name not in called}
    items: list[JSONObject] = []
    for message in segment:
        items += encoder.reply(message, results) if message.role == "assistant" else encoder.encode_message(message)
    return EncodedSegment(tuple(items), tuple(encoder.notes))


def encode_text(message: Message, provider: str) -> str:
    """Return the whole message as one text: the instructions of a thread."""
    encoder = Encoder(provider, {})
    return "\n\n".join(text for part in message.parts if (text := encoder.part_text(part)))


def encode_result(result: ToolResult, blobs: Mapping[str, bytes] = {}) -> JSONObject:
    """Return the response to `item/tool/call`."""
    return {"contentItems": Encoder("", blobs).result_blocks(result), "success": not result.is_error}


def item_id(item: JSONObject) -> str:
    """Return an id for an item without one, derived from its content."""
    said = {name: value for name, value in item.items() if name != "id"}
    return f"item_{sha256(encode_canonical(said)).hexdigest()[:24]}"


EMPTY_REASONING: JSONObject = {"type": "reasoning", "summary": [], "content": []}
EMPTY_REASONING["id"] = item_id(EMPTY_REASONING)


def merge_item_extra(ours: JSONObject, extra: Extra | None, provider: str) -> JSONObject:
    """Return our item with Codex's own data restored."""
    rest = cast(JSONObject, own_extra(extra, provider).get(ITEM_KEY) or {})
    return merge_extra(ours, {provider: rest}, provider) if rest else ours


class Encoder(PartEncoder):
    """Encodes messages as items, and collects notes on changes."""

    def __init__(self, provider: str, blobs: Mapping[str, bytes]) -> None:
        super().__init__(provider, blobs)
        self.strays: dict[str, ToolResult] = {}
        """Results whose calls are elsewhere. Each becomes a separate item."""

    def encode_message(self, message: Message) -> list[JSONObject]:
        """Return the items of a user or system message, or of the parts of a tool message that are not results."""
        items: list[JSONObject] = []
        blocks: list[JSONObject] = []
        for part in self.mark_system_parts(message) if message.role == "system" else message.parts:
            if isinstance(part, ProviderBlock) and self.is_codex_native(part, ITEM_TYPES):
                items += self.user(message, blocks)
                items.append(cast(JSONObject, part.data))
                blocks = []
            elif isinstance(part, ToolResult):
                items += [self.output(part)] if self.strays.get(part.call_id) is part else []
            else:
                blocks += [block] if (block := self.block(part)) is not None else []
        if blocks and message.role == "tool":
            self.note("moved", "what is no result, from a tool message into a user message")
        return [*items, *self.user(message, blocks)]

    def user(self, message: Message, blocks: list[JSONObject]) -> list[JSONObject]:
        if not blocks:
            return []
        item: JSONObject = {"type": "userMessage", "content": blocks}
        return [merge_item_extra({**item, "id": item_id(item)}, message.extra, self.provider)]

    def mark_system_parts(self, message: Message) -> Iterable[AnyPart]:
        """Return the parts of a system message as user text that is marked as context."""
        text = "\n\n".join(words for part in message.parts if (words := self.part_text(part)))
        if not text:
            return ()
        self.note("changed", "a system message, into text of the user that is marked as context")
        return (Text(text if text.startswith(SYSTEM_CONTEXT) else SYSTEM_CONTEXT + text),)

    def part_text(self, part: AnyPart) -> str:
        """Return a part as text."""
        block = self.block(part) if isinstance(part, Text) else self.describe_part(part)
        return cast(str, block["text"]) if block is not None and str(block["text"]).strip() else ""

    def block(self, part: AnyPart) -> JSONObject | None:
        """Return the block of a part in a user message."""
        match part:
            case Text():
                if not part.text:
                    return None
                return merge_extra({"type": "text", "text": part.text, "text_elements": []}, part.extra, self.provider)
            case Media():
                url = to_data_url(part, self.blobs) or part.url
                if url is not None and part.kind in ("image", "audio"):
                    return merge_extra({"type": part.kind, "url": url}, part.extra, self.provider)
                if self.is_own_file(part):
                    return merge_extra({"type": "image", "fileId": part.file_id}, part.extra, self.provider)
                return self.describe_part(part)
            case ProviderBlock():
                return (
                    cast(JSONObject, part.data) if self.is_codex_native(part, USER_BLOCKS) else self.describe_part(part)
                )
            case Reasoning() | ToolCall() | ToolResult() | UserNotice():
                return None
            case _:
                assert_never(part)

    def describe_part(self, part: AnyPart) -> JSONObject | None:
        """Return one line of text that replaces a part that cannot be sent."""
        if not isinstance(part, Media | ProviderBlock):
            return None
        text = self.media_text(part) if isinstance(part, Media) else self.native_text(part)
        return {"type": "text", "text": text, "text_elements": []}

    def reply(self, message: Message, results: Mapping[str, ToolResult]) -> list[JSONObject]:
        """Return the items of a reply: text and reasoning first, then each call with its result."""
        said: list[JSONObject] = []
        calls: list[JSONObject] = []
        for part in message.parts:
            if isinstance(part, ToolCall):
                calls.append(self.call(part, results.get(part.id)))
            elif (item := self.item(part)) is not None:
                if calls:
                    self.note("moved", "words that stood behind a call, before the calls of their reply")
                said.append(item)
        silent = calls and not said and not own_extra(message.extra, self.provider).get(BARE_KEY)
        return [*([EMPTY_REASONING] if silent else said), *calls]

    def item(self, part: AnyPart) -> JSONObject | None:
        match part:
            case Text():
                return self.message(part.text, part.extra) if part.text else None
            case Media():
                return self.message(self.media_text(part), None)
            case ProviderBlock():
                if self.is_codex_native(part, ITEM_TYPES):
                    return cast(JSONObject, part.data)
                return self.message(self.native_text(part), None)
            case Reasoning():
                return self.reasoning(part)
            case ToolCall() | ToolResult() | UserNotice():
                return None
            case _:
                assert_never(part)

    def message(self, text: str, extra: Extra | None) -> JSONObject:
        item: JSONObject = {"type": "agentMessage", "text": text}
        return merge_item_extra({**item, "id": item_id(item)}, extra, self.provider)

    def reasoning(self, part: Reasoning) -> JSONObject | None:
        if not self.is_sendable(part, part.text or part.id):
            return None
        if part.data or part.signature:
            self.note("left out", "what proves the reasoning of Codex, which only its own thread holds")
        item: JSONObject = {"type": "reasoning", "summary": [part.text] if part.text else [], "content": []}
        return merge_item_extra({**item, "id": part.id or item_id(item)}, part.extra, self.provider)

    def call(self, part: ToolCall, result: ToolResult | None) -> JSONObject:
        """Return the item of a call with its result. An unchanged call of Codex keeps its original item."""
        if (own := self.original_item(part)) is not None:
            kind = CALL_TYPES[text_of(own["type"])]
            if result is None:
                return {**own, **({"status": RUNNING} if "status" in own else {})}
            return with_result(own, kind, result)
        given: JSON = part.raw if part.malformed else part.arguments
        item: JSONObject = {"type": "dynamicToolCall", "id": part.id, "tool": part.name, "arguments": given}
        extra = part.extra if "type" not in self.codex_fields(part) else None
        if result is None:
            return merge_item_extra({**item, "status": RUNNING}, extra, self.provider)
        item["status"] = FAILED if result.is_error else COMPLETED
        item |= {"contentItems": self.result_blocks(result), "success": not result.is_error}
        return merge_item_extra(item, extra, self.provider)

    def codex_fields(self, part: ToolCall) -> JSONObject:
        """Return Codex's data of a call beyond our types. For one of Codex's own tools, this is the whole item."""
        return cast(JSONObject, own_extra(part.extra, self.provider).get(ITEM_KEY) or {})

    def output(self, result: ToolResult) -> JSONObject:
        """Return the item of a result without its call."""
        self.note_error_flag(result)
        if not isinstance(result.content, str) and any(isinstance(part, Media) for part in result.content):
            self.note("left out", f"media in the result of {result.name}, whose call is not here")
        return {"type": "functionCallOutput", "id": result.call_id, "name": result.name, "output": result.text}

    def original_item(self, part: ToolCall) -> JSONObject | None:
        """Return the original item of a call of Codex's own tools.

        None if it is no such call, or its arguments have changed.
        """
        item = self.codex_fields(part)
        kind = CALL_TYPES.get(item.get("type") or "")
        if kind is None:
            return None
        given, name = kind.arguments(item), kind.name(item)
        if (
            part.name not in (name, NAMES.encode(name))
            or part.malformed
            or (given if isinstance(given, dict) else {}) != part.arguments
        ):
            return None
        return {**item, "id": part.id}

    def result_blocks(self, result: ToolResult) -> list[JSONObject]:
        """Return the content of a result as blocks that Codex accepts."""
        if isinstance(result.content, str):
            return [{"type": "inputText", "text": result.content}] if result.content else []
        blocks: list[JSONObject] = []
        for part in result.content:
            held = part
            if isinstance(part, Media) and part.blob is not None and part.blob in self.blobs:
                held = replace(part, data=self.blobs[part.blob], blob=None)
            block = result_block(held)
            if block is None:
                block = {"type": "inputText", "text": self.media_text(cast(Media, part))}
            blocks.append(merge_extra(block, part.extra, self.provider))
        return blocks

    def is_codex_native(self, part: ProviderBlock, kinds: Mapping[str, object]) -> bool:
        """Return True if this came from Codex, as an item or as a block."""
        if part.provider != self.provider or not isinstance(part.data, dict):
            return False
        return cast(JSONObject, part.data).get("type") in kinds


def is_user_item(item: JSONObject) -> bool:
    return item.get("type") in USER_ITEMS
