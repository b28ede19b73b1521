"""Encode messages as the input items of OpenAI's Responses API.

A reply consists of several items (reasoning, messages, calls), which are sent back in order and with their ids. Roles
need not alternate. Tool results may hold media. A reasoning item is sent back only to its provider, and only with the
item it led to. Otherwise: "Item 'rs_…' of type 'reasoning' was provided without its required following item."

OpenAI has two formats, and a conversation may use both. The id of an item is not the id of a chat call. So the extra
fields of an item are stored under the names of the provider *and* of this format (`extra_key`).
"""

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import assert_never, cast

from msgspec.structs import replace

from contextc._json import JSON, JSONObject
from contextc.formats.base import EncodedSegment, Request, extra_of, merge_extra, own_extra
from contextc.formats.encoder_decoder_base import PartEncoder, arguments_text, simplify_content
from contextc.formats.fix_builders import without_fields
from contextc.formats.media_encoding import to_data_url
from contextc.messages import AnyPart, Extra, Media, Message, ProviderBlock, Reasoning, Text, ToolCall, ToolResult
from contextc.messages.message import UserNotice

ROLES = {"system": "developer", "user": "user", "tool": "user"}
ITEM, NESTED, STRING_INPUT = "item", "within", "bare"
CHAT_BLOCKS = ("text", "image_url", "input_audio", "file", "refusal", "custom", "function")
STORED_HISTORY = ("previous_response_id", "conversation")
FERNET_PREFIX = "gAAAA"
"""First characters of everything that OpenAI encrypts."""
FILE_EXTENSIONS = {"application/pdf": ".pdf", "text/plain": ".txt"}


def extra_key(provider: str) -> str:
    """Return the key in `extra` for this provider's data in this format."""
    return f"{provider} responses"


def extra_fields(original: JSONObject, ours: JSONObject | None, provider: str) -> Extra | None:
    """Return the fields of an item or block that encoding would not reproduce, under the key of this format."""
    return extra_of(original, ours or {}, extra_key(provider))


def encode_segment(segment: Sequence[Message], *, provider: str, blobs: Mapping[str, bytes]) -> EncodedSegment:
    encoder = _Encoder(provider, blobs)
    items: list[JSONObject] = []
    for message in segment:
        items += encoder.reply(message) if message.role == "assistant" else encoder.said(message)
    return EncodedSegment(tuple(items), tuple(encoder.notes))


def encode_item(part: AnyPart, provider: str) -> JSONObject | None:
    """Return the item of a part; None if the part is only a block of an item."""
    return _Encoder(provider, {}).item(part)


def encode_block(part: AnyPart, provider: str) -> JSONObject | None:
    """Return the block of a part in a user message."""
    return _Encoder(provider, {}).block(part)


def encode_text(message: Message, provider: str) -> str:
    """Return the whole message as one text, as for the system prompt."""
    encoder = _Encoder(provider, {})
    blocks = [block for part in message.parts if (block := encoder.block(part, "output_text")) is not None]
    return "\n\n".join(cast(str, block["text"]) for block in blocks if "text" in block)


def encode_stored_results(request: Request, *, provider: str, blobs: Mapping[str, bytes]) -> tuple[Message, ...]:
    """Return the messages. Results of calls that the provider stores become native items."""
    blocks = [part.data for message in request.messages for part in message.parts if isinstance(part, ProviderBlock)]
    referred = any(isinstance(data, dict) and is_reference(cast(JSONObject, data)) for data in blocks)
    if not referred and not any(request.settings.get(name) for name in STORED_HISTORY):
        return request.messages
    here = {call.id for message in request.messages for call in message.tool_calls}
    encoder = _Encoder(provider, blobs)

    def sealed(part: AnyPart) -> AnyPart:
        if not isinstance(part, ToolResult) or part.call_id in here:
            return part
        here.add(part.call_id)  # the first of two results for one call is kept; pairing drops the other
        return ProviderBlock(provider=provider, data=encoder.result(part))

    return tuple(replace(message, parts=tuple(sealed(part) for part in message.parts)) for message in request.messages)


def requires_following_item(item: JSONObject) -> bool:
    """Return True if this is OpenAI's own reasoning, which is rejected without the item it led to.

    Readable reasoning, and that of other vendors, may be sent alone.
    """
    begins = cast(str, item.get("encrypted_content") or "")[: len(FERNET_PREFIX)]
    return str(item.get("id") or "").startswith("rs_") and not item.get("content") and FERNET_PREFIX.startswith(begins)


def was_string_input(messages: Sequence[Message], provider: str) -> bool:
    """Return True if the input was a string in place of items."""
    return len(messages) == 1 and bool(own_extra(messages[0].extra, extra_key(provider)).get(STRING_INPUT))


class _Encoder(PartEncoder):
    def __init__(self, provider: str, blobs: Mapping[str, bytes]) -> None:
        super().__init__(provider, blobs)
        self.place = extra_key(provider)

    def said(self, message: Message) -> list[JSONObject]:
        """Encode a system, user or tool message: one message item, and an item for each result."""
        items: list[JSONObject] = []
        blocks: list[JSONObject] = []
        for part in message.parts:
            item = self.item(part)
            if item is None:
                blocks += [block] if (block := self.block(part)) is not None else []
                continue
            items += self.message(message, blocks) if blocks else []
            items.append(item)
            blocks = []
        if blocks or (not items and "content" in own_extra(message.extra, self.place)):
            items += self.message(message, blocks)
        return items

    def message(self, message: Message, blocks: list[JSONObject]) -> list[JSONObject]:
        wire: JSONObject = {"role": ROLES.get(message.role, "user"), "content": simplify_content(blocks, "input_text")}
        return [without_fields(merge_extra(wire, message.extra, self.place), STRING_INPUT)]

    def reply(self, message: Message) -> list[JSONObject]:
        """Encode a reply item by item."""
        items: list[JSONObject] = []
        for part in message.parts:
            if (item := self.item(part)) is not None:
                items.append(item)
            elif (block := self.block(part, "output_text")) is not None:
                self.speak(items, block, own_extra(part.extra, self.place))
        found = self.followed([_simplify_message(item) for item in items])
        return [_without_id(item) for item in found] if self.has_lost_its_reasoning(message, found) else found

    def has_lost_its_reasoning(self, message: Message, items: list[JSONObject]) -> bool:
        """Return True if a reply is sent without its reasoning. The provider would require it for items that keep their
        ids.
        """
        if any(item.get("type") == "reasoning" for item in items):
            return False
        return any(isinstance(part, Reasoning) and self.is_own(part) for part in message.parts)

    def speak(self, items: list[JSONObject], block: JSONObject, rest: JSONObject) -> None:
        """Add a block to its original message item, or as a new item."""
        fields = cast(JSONObject, rest.get(ITEM) or {})
        if items and rest.get(NESTED) and items[-1].get("role") == "assistant":
            before = items[-1]
            if without_fields(before, "role", "content") == fields:
                items[-1] = {**before, "content": [*before["content"], block]}
                return
        items.append({**fields, "role": "assistant", "content": [block]})

    def followed(self, items: list[JSONObject]) -> list[JSONObject]:
        """Return the items without reasoning that has lost the item it led to.

        The item after such reasoning loses its id, because the provider would otherwise require the reasoning.
        Reasoning that may be sent alone stays.
        """
        found: list[JSONObject] = []
        after: JSONObject | None = None
        for item in reversed(items):
            if item.get("type") != "reasoning":
                after = item
            elif requires_following_item(item) and (
                after is None or (after.get("role") == "assistant" and "id" not in after)
            ):
                self.note("left out", "reasoning without the item it led to")
                for place, later in enumerate(found):
                    found[place] = _without_id(later)
                continue
            found.append(item)
        return found[::-1]

    def item(self, part: AnyPart) -> JSONObject | None:
        match part:
            case Reasoning():
                return self.reasoning(part)
            case ToolCall():
                call: JSONObject = {"type": "function_call", "call_id": part.id, "name": part.name}
                return merge_extra({**call, "arguments": arguments_text(part)}, part.extra, self.place)
            case ToolResult():
                return self.result(part)
            case ProviderBlock():
                return part.data if self.is_ours(part) and not own_extra(part.extra, self.place) else None
            case Text() | Media() | UserNotice():
                return None
            case _:
                assert_never(part)

    def block(self, part: AnyPart, kind: str = "input_text") -> JSONObject | None:
        """Return a block of a message item. `kind` is the type of its text: input for users, output for the model."""
        match part:
            case Text():
                rest = own_extra(part.extra, self.place)
                if not part.text.strip() and not rest:
                    return None
                block: JSONObject = {"type": kind, "text": part.text}
                return merge_extra(block, _block_extra(part.extra, self.place), self.place)
            case Media():
                if kind == "input_text" and (shown := self.media(part)) is not None:
                    return merge_extra(shown, part.extra, self.place)
                return {"type": kind, "text": self.media_text(part)}
            case ProviderBlock():
                return part.data if self.is_ours(part) else {"type": kind, "text": self.native_text(part)}
            case Reasoning() | ToolCall() | ToolResult() | UserNotice():
                return None
            case _:
                assert_never(part)

    def is_ours(self, part: ProviderBlock) -> bool:
        """Return True if a part came from this provider in this format, and not in Chat Completions."""
        if part.provider != self.provider or not isinstance(part.data, dict):
            return False
        return bool(own_extra(part.extra, self.place)) or _kind(part) not in CHAT_BLOCKS

    def reasoning(self, part: Reasoning) -> JSONObject | None:
        if not self.is_sendable(part, part.data or part.id):
            return None
        named = (
            part.id or f"rs_{sha256(f'{part.data}{part.text}'.encode()).hexdigest()[:48]}"
        )  # required by the API's types
        item: JSONObject = {"type": "reasoning", "id": named}
        item["summary"] = [{"type": "summary_text", "text": part.text}] if part.text else []
        if part.data:
            item["encrypted_content"] = part.data
        return merge_extra(item, part.extra, self.place)

    def result(self, part: ToolResult) -> JSONObject:
        self.note_error_flag(part)
        output: JSON = part.content
        if not isinstance(part.content, str):
            blocks = [block for each in part.content if (block := self.block(each)) is not None]
            output = simplify_content(blocks, "input_text") if blocks else ""
        item: JSONObject = {"type": "function_call_output", "call_id": part.call_id, "output": output}
        return merge_extra(item, part.extra, self.place)

    def media(self, part: Media) -> JSONObject | None:
        """Encode an image or a document from any source of its bytes; return None if it cannot be sent."""
        held = {"file_id": part.file_id} if self.is_own_file(part) else None
        url = to_data_url(part, self.blobs)
        source: JSONObject | None
        if part.kind == "image":
            source = {"image_url": url or part.url} if url or part.url else held
            return {"type": "input_image", "detail": "auto", **source} if source else None
        if part.kind != "document":
            return None
        name = part.name or "document" + FILE_EXTENSIONS.get(part.mime_type, "")
        source = {"filename": name, "file_data": url} if url else {"file_url": part.url} if part.url else held
        return {"type": "input_file", **source} if source else None


def _simplify_message(item: JSONObject) -> JSONObject:
    """Return a message that is not an output item as role and text."""
    if item.get("role") != "assistant" or "id" in item or not isinstance(item.get("content"), list):
        return item
    return {**item, "content": simplify_content(cast(list[JSONObject], item["content"]), "output_text")}


def _block_extra(extra: Extra | None, place: str) -> Extra | None:
    """Return the extra fields of a block, without those of its message item."""
    rest = without_fields(own_extra(extra, place), ITEM, NESTED)
    return {place: rest} if rest else None


def _without_id(item: JSONObject) -> JSONObject:
    """Return a message or call without its id; other items require theirs."""
    return without_fields(item, "id") if item.get("type") in (None, "message", "function_call") else item


def is_reference(item: JSONObject) -> bool:
    """Return True if an item refers to one that the provider stores."""
    return item.get("type") == "item_reference" or ("id" in item and not item.get("type") and "role" not in item)


def _kind(part: AnyPart) -> JSON:
    return (
        cast(JSONObject, part.data).get("type")
        if isinstance(part, ProviderBlock) and isinstance(part.data, dict)
        else None
    )
