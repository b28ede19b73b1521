"""The Responses API: the tables of its items and blocks, and the encoding and decoding of requests and replies.

Encoding: a reply consists of several items (reasoning, messages, calls), which are sent back in order and with their
ids. Roles need not alternate. Tool results may hold media. A reasoning item is sent back only to its provider, and only
with the item it led to. Otherwise: "Item 'rs_…' of type 'reasoning' was provided without its required following item."

Decoding: the output of one model response becomes one assistant message. Each item, or each block of a message item,
becomes a part. An item without a corresponding part type becomes a `ProviderBlock` part.

OpenAI has two formats, and a conversation may use both. The id of an item is not the id of a chat call. So the extra
fields of an item are stored under the names of the provider *and* of this format (`extra_key`).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from hashlib import sha256
from typing import cast

from msgspec.structs import replace

from contextc._json import JSON, JSONObject, as_object, encode, id_text
from contextc.formats.base import (
    NO_PARAMETERS,
    UNKNOWN_TOOL,
    EncodedSegment,
    Request,
    append_text,
    arguments_text,
    billing_word,
    decode_definition,
    encode_definition,
    extra_of,
    merge_extra,
    other_fields,
    own_extra,
    reported_dollars,
    result_content,
    simplify_content,
)
from contextc.formats.block_table import Block, BlockCodec, BlockTable
from contextc.formats.lint_engine import FieldTypes
from contextc.formats.message_preparation import from_data_url, media_from_url, merge_neighbours, to_data_url
from contextc.formats.rule_library import without_fields
from contextc.messages import (
    AnyPart,
    BilledCall,
    Extra,
    Media,
    Message,
    ProviderBlock,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolResult,
    Usage,
    tool_call,
)
from contextc.tools.definitions import NativeTool, Tool

# ── cache breakpoints ─────────────────────────────────────────────────────────────────────────────────────────────────
# Set and remove cache breakpoints in the content of items. Only parts of the input can have one: the text, images and
# files of messages that are not the model's, and results that are lists of such parts. A result that is a plain string
# stays one.


BREAKPOINT = "prompt_cache_breakpoint"
MARKED_PARTS = ("input_text", "input_image", "input_file")


def with_cache_breakpoint(item: JSONObject) -> JSONObject | None:
    """Return the item with a cache breakpoint on its last part; None if it has no part that can have one."""
    name = "content" if "content" in item else "output"
    content: JSON = item.get(name)
    if isinstance(content, str) and content and item.get("role") in WIRE_ROLES.values():
        content = [{"type": "input_text", "text": content}]
    if not isinstance(content, list) or not content or as_object(content[-1]).get("type") not in MARKED_PARTS:
        return None
    *before, last = cast(list[JSONObject], content)
    return {**item, name: [*before, {**last, BREAKPOINT: {"mode": "explicit"}}]}


def without_cache_breakpoints(item: JSONObject) -> JSONObject:
    name = "content" if "content" in item else "output"
    content: JSON = item.get(name)
    if not isinstance(content, list) or not any([BREAKPOINT in as_object(part) for part in cast(list[JSON], content)]):
        return item
    parts = [without_fields(part, BREAKPOINT) for part in cast(list[JSONObject], content)]
    return {**item, name: simplify_content(parts, "input_text") if name == "content" else parts}


ROLES: dict[str, Role] = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
WIRE_ROLES = {"system": "developer", "user": "user", "tool": "user"}
ITEM, NESTED, STRING_INPUT = "item", "within", "bare"
NO_BLOBS: Mapping[str, bytes] = {}
CHAT_BLOCKS = ("text", "image_url", "input_audio", "file", "refusal", "custom", "function")
STORED_HISTORY = ("previous_response_id", "conversation")
FERNET_PREFIX = "gAAAA"
"""First characters of everything that OpenAI encrypts."""
FILE_EXTENSIONS = {"application/pdf": ".pdf", "text/plain": ".txt"}
FINISH = {"max_output_tokens": "length"}
CODEX_METADATA = "internal_chat_message_metadata_passthrough"
"""A field that Codex sends in every item, and that OpenAI accepts."""
INPUT_ITEMS = (  # items without a role that come from the caller, not from the model
    "custom_tool_call_output",
    "computer_call_output",
    "local_shell_call_output",
    "shell_call_output",
    "apply_patch_call_output",
    "mcp_approval_response",
    "configuration_update",
    "compaction_trigger",
)
TIERS = {"fast": "priority"}
"""Tiers with two names."""
SEARCH, TOOLS_WITH_FEES = "web_search_call", ("file_search_call", "code_interpreter_call", "image_generation_call")
"""Types of items for which OpenAI bills more than their tokens. Reading a page that was found costs nothing."""
CALLER_SUFFIXES = ("_output", "_response")  # of types of items that come from the caller
TOOL_SEARCH = "tool_search"
"""The name of a call with which the model searches the client's tools. It is an item type of its own."""
TEXTS = ("input_text", "output_text", "text")
SESSION_FIELDS = ("previous_response_id", "conversation")
"""The settings of a request that name its session."""
TEXT_DELTAS = {  # by type of delta: the list it extends, the name of its index, and the block type
    "response.output_text.delta": ("content", "content_index", "output_text", "text"),
    "response.refusal.delta": ("content", "content_index", "refusal", "refusal"),
    "response.reasoning_text.delta": ("content", "content_index", "reasoning_text", "text"),
    "response.reasoning_summary_text.delta": ("summary", "summary_index", "summary_text", "text"),
}
ARGUMENT_DELTAS = {
    "response.function_call_arguments.delta": "arguments",
    "response.mcp_call_arguments.delta": "arguments",
    "response.custom_tool_call_input.delta": "input",
    "response.code_interpreter_call_code.delta": "code",
}


def extra_key(provider: str) -> str:
    """Return the key in `extra` for this provider's data in this format."""
    return f"{provider} responses"


class ResponsesCodec(BlockCodec):
    """Encodes and decodes items and blocks. `names` are the tools of the decoded calls, by the id of the call.

    `text_type` is the type of text blocks: input for users, output for the model.
    """

    keeps_unsent = True
    text_type = "input_text"

    def __init__(self, provider: str, blobs: Mapping[str, bytes] = NO_BLOBS, model: str | None = None) -> None:
        super().__init__(provider, blobs)
        self.extra_key, self.model = extra_key(provider), model
        self.names: dict[str, str] = {}

    def encode_unmapped(self, part: AnyPart) -> JSONObject | None:
        return None

    def extra(self, wire: JSONObject, ours: JSONObject) -> Extra | None:
        for name in ("content", "output"):  # one text may be written in two ways
            if name in wire and name in ours and _blocks(wire[name], "input_text") == _blocks(ours[name], "input_text"):
                wire = {**wire, name: ours[name]}
        return extra_of(wire, ours, self.extra_key)

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
        if blocks or (not items and "content" in own_extra(message.extra, self.extra_key)):
            items += self.message(message, blocks)
        return items

    def message(self, message: Message, blocks: list[JSONObject]) -> list[JSONObject]:
        wire: JSONObject = {
            "role": WIRE_ROLES.get(message.role, "user"),
            "content": simplify_content(blocks, "input_text"),
        }
        return [without_fields(merge_extra(wire, message.extra, self.extra_key), STRING_INPUT)]

    def reply(self, message: Message) -> list[JSONObject]:
        """Encode a reply item by item."""
        items: list[JSONObject] = []
        for part in message.parts:
            if (item := self.item(part)) is not None:
                items.append(item)
            elif (block := self.block(part, "output_text")) is not None:
                self.speak(items, block, own_extra(part.extra, self.extra_key))
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
        """Return the item of a part; None if the part is only a block of an item."""
        if type(part) is Text:
            return None
        if isinstance(part, ProviderBlock):
            return part.data if self.is_ours(part) and not own_extra(part.extra, self.extra_key) else None
        item = ITEMS.encode(part, self)
        return merge_extra(item, part.extra, self.extra_key) if item else None

    def block(self, part: AnyPart, kind: str = "input_text") -> JSONObject | None:
        """Return a block of a message item. `kind` is the type of its text."""
        if type(part) is Text and part.extra is None and part.text.strip():
            return {"type": kind, "text": part.text}  # a fast path for the most common part
        if isinstance(part, ProviderBlock):
            return part.data if self.is_ours(part) else {"type": kind, "text": self.native_text(part)}
        self.text_type = kind
        block = BLOCKS.encode(part, self)
        if block is None or (isinstance(part, Media) and "text" in block):
            return block
        rest = without_fields(own_extra(part.extra, self.extra_key), ITEM, NESTED)
        return merge_extra(block, {self.extra_key: rest} if rest else None, self.extra_key)

    def is_ours(self, part: ProviderBlock) -> bool:
        """Return True if a part came from this provider in this format, and not in Chat Completions."""
        kind = as_object(part.data).get("type")
        if part.provider != self.provider or not isinstance(part.data, dict):
            return False
        return bool(own_extra(part.extra, self.extra_key)) or kind not in CHAT_BLOCKS

    def messages(self, items: Iterable[JSONObject]) -> list[Message]:
        """Return the items as messages. Consecutive items of the model become one message."""
        return merge_neighbours([self.decoded(item) for item in items], "assistant")

    def decoded(self, item: JSONObject) -> Message:
        kind, role = item.get("type"), ROLES.get(item.get("role") or "")
        if kind in (None, "message") and "role" in item:
            if role == "assistant":
                return Message(role="assistant", parts=tuple(self.spoken(item)))
            message = Message(role=role or "user", parts=tuple(self.parts(item.get("content"))))
            encoded = encode_segment([message], provider=self.provider, blobs={}).messages
            ours = encoded[0] if encoded else {}
            return replace(message, extra=self.extra(item, ours))
        part = ITEMS.decode(item, self)
        if isinstance(part, ProviderBlock):
            return Message(role=role or ("user" if kind in INPUT_ITEMS else "assistant"), parts=(part,))
        return Message(role="tool" if isinstance(part, ToolResult) else "assistant", parts=(part,))

    def spoken(self, item: JSONObject) -> Iterator[AnyPart]:
        """Decode a message item of the model: a part for each block, each with its item."""
        fields = {name: value for name, value in item.items() if name not in ("role", "content") and value is not None}
        blocks = cast(list[JSONObject], _blocks(item.get("content"), "output_text") or [])
        for number, block in enumerate(blocks):
            part: AnyPart = ProviderBlock(provider=self.provider, data=block)
            rest: JSONObject = {}
            if block.get("type") in TEXTS and isinstance(text := block.get("text"), str):
                part = Text(text)
                ours: JSONObject = {"type": "output_text", "text": text}
                rest = (extra_of(block, ours, self.extra_key) or {}).get(self.extra_key, {})
            if fields or rest or number or not isinstance(part, Text) or not part.text.strip():
                rest = {**rest, ITEM: fields, **({NESTED: True} if number else {})}
            yield replace(part, extra={self.extra_key: rest}) if rest else part
        if not blocks:
            yield ProviderBlock(provider=self.provider, data=item)

    def parts(self, content: JSON) -> Iterator[AnyPart]:
        """Yield the parts of a text or of a list of input blocks."""
        if isinstance(content, str):
            if content:
                yield Text(content)
            return
        for block in cast(list[JSONObject], content or []):
            part = BLOCKS.decode(block, self)
            yield replace(part, extra={self.extra_key: {NESTED: True}}) if isinstance(part, ProviderBlock) else part

    def tool(self, tool: JSONObject) -> Tool | NativeTool:
        if tool.get("type") != "function" or "name" not in tool:
            return NativeTool(provider=self.provider, data=tool)
        made = decode_definition(tool, "parameters")
        return replace(made, extra=extra_of(tool, encode_tool(made), self.extra_key))


def _decode_text(block: JSONObject, codec: ResponsesCodec) -> Text | None:
    return Text(block["text"]) if isinstance(block.get("text"), str) else None


def _encode_text(part: Text, codec: ResponsesCodec) -> JSONObject | None:
    is_sent = part.text.strip() or own_extra(part.extra, codec.extra_key)
    return {"type": codec.text_type, "text": part.text} if is_sent else None


def _decode_media(block: JSONObject, codec: ResponsesCodec) -> Media | None:
    is_image = block["type"] == "input_image"
    default = "image/png" if is_image else "application/pdf"
    if block.get("file_id"):
        return Media(mime_type=default, file_id=block["file_id"], provider=codec.provider)
    if url := block.get("image_url") or block.get("file_url"):
        return (
            media_from_url(url, default) if is_image else Media(mime_type=default, url=url, name=block.get("filename"))
        )
    return None if is_image else from_data_url(block.get("file_data") or "", block.get("filename"))


def _encode_media(part: Media, codec: ResponsesCodec) -> JSONObject:
    """Encode an image or a document from any source of its bytes. What cannot be sent is described."""
    source: JSONObject | None = None
    if codec.text_type == "input_text" and part.kind in ("image", "document"):
        source = {"file_id": part.file_id} if codec.is_own_file(part) else None
        url = to_data_url(part, codec.blobs)
        if part.kind == "image" and (url or part.url):
            source = {"image_url": url or part.url}
        elif url:
            name = part.name or "document" + FILE_EXTENSIONS.get(part.mime_type, "")
            source = {"filename": name, "file_data": url}
        elif part.url:
            source = {"file_url": part.url}
    if source is None:
        return {"type": codec.text_type, "text": codec.media_text(part)}
    kind: JSONObject = {"type": "input_image", "detail": "auto"} if part.kind == "image" else {"type": "input_file"}
    return {**kind, **source}


def _decode_reasoning(item: JSONObject, codec: ResponsesCodec) -> Reasoning | None:
    thoughts = cast(list[JSONObject], item.get("summary") or item.get("content") or [])
    is_valid = all(isinstance(thought, dict) and isinstance(thought.get("text") or "", str) for thought in thoughts)
    data, id = item.get("encrypted_content"), item.get("id")
    if not is_valid or not (data or id):
        return None
    text = "\n\n".join(thought.get("text") or "" for thought in thoughts)
    return Reasoning(text=text, data=data, id=id, provider=codec.provider, model=codec.model)


def _encode_reasoning(part: Reasoning, codec: ResponsesCodec) -> JSONObject | None:
    if not codec.is_sendable(part, part.data or part.id):
        return None
    # An id is required by the API's types.
    id = part.id or f"rs_{sha256(f'{part.data}{part.text}'.encode()).hexdigest()[:48]}"
    item: JSONObject = {"type": "reasoning", "id": id}
    item["summary"] = [{"type": "summary_text", "text": part.text}] if part.text else []
    return {**item, "encrypted_content": part.data} if part.data else item


def _decode_call(item: JSONObject, codec: ResponsesCodec) -> ToolCall:
    return _named_call(item, item["name"], item.get("arguments") or "", codec)


def _decode_search(item: JSONObject, codec: ResponsesCodec) -> ToolCall | None:
    is_client = is_client_search(item)
    return _named_call(item, TOOL_SEARCH, item.get("arguments") or {}, codec) if is_client else None


def _named_call(item: JSONObject, name: str, arguments: str | JSONObject, codec: ResponsesCodec) -> ToolCall:
    codec.names[item["call_id"]] = name
    return tool_call(item["call_id"], name, arguments)


def _encode_call(part: ToolCall, codec: ResponsesCodec) -> JSONObject:
    return {"type": "function_call", "call_id": part.id, "name": part.name, "arguments": arguments_text(part)}


def _decode_result(item: JSONObject, codec: ResponsesCodec) -> ToolResult:
    call_id, content = cast(str, item.get("call_id") or ""), result_content(item.get("output"), codec.parts)
    return ToolResult(call_id=call_id, name=codec.names.get(call_id, UNKNOWN_TOOL), content=content)


def _decode_found_tools(item: JSONObject, codec: ResponsesCodec) -> ToolResult | None:
    if codec.names.get(item.get("call_id") or "") != TOOL_SEARCH:
        return None
    return ToolResult(call_id=item["call_id"], name=TOOL_SEARCH, content=encode(item.get("tools")).decode())


def _encode_result(part: ToolResult, codec: ResponsesCodec) -> JSONObject:
    codec.note_error_flag(part)
    output: JSON = part.content
    if not isinstance(part.content, str):
        blocks = [block for each in part.content if (block := codec.block(each)) is not None]
        output = simplify_content(blocks, "input_text") if blocks else ""
    return {"type": "function_call_output", "call_id": part.call_id, "output": output}


CLIENT_CALL: FieldTypes = {"namespace?": object, "caller?": object, "async?": object}
ITEMS = BlockTable(
    {
        "reasoning": Block(
            Reasoning,
            {"summary": list, "content?": list, "encrypted_content?": str},
            decode=_decode_reasoning,
            encode=_encode_reasoning,
        ),
        "compaction": Block(None, {"encrypted_content": str}),
        "compaction_trigger": Block(None, {}),
        "item_reference": Block(None, {"id": str}),
        "function_call": Block(
            ToolCall,
            {"call_id": str, "name": str, "arguments": str, **CLIENT_CALL},
            decode=_decode_call,
            encode=_encode_call,
        ),
        "function_call_output": Block(
            ToolResult,
            {"call_id?": str, "output": (str, list), "name?": object, **CLIENT_CALL},
            decode=_decode_result,
            encode=_encode_result,
        ),
        "custom_tool_call": Block(None, {"call_id": str, "name": str, "input": str}),
        "custom_tool_call_output": Block(None, {"call_id": str, "output": (str, list)}),
        "computer_call": Block(None, {"call_id": str}),
        "computer_call_output": Block(None, {"call_id": str, "output": dict}),
        "shell_call": Block(None, {"call_id": str, "action": dict}),
        "shell_call_output": Block(None, {"call_id": str, "output": list}),
        "apply_patch_call": Block(None, {"call_id": str, "operation": dict}),
        "apply_patch_call_output": Block(None, {"call_id": str, "output?": str}),
        "local_shell_call": Block(None, {"call_id": str, "action": dict}),
        "local_shell_call_output": Block(None, {"output": str}),
        "tool_search_call": Block(ToolCall, {"call_id?": str}, decode=_decode_search),
        "tool_search_output": Block(ToolResult, {"call_id?": str, "tools": list}, decode=_decode_found_tools),
        "multi_agent_call": Block(None, {"call_id": str, "arguments": str}),
        "multi_agent_call_output": Block(None, {"call_id": str, "output": list}),
        "agent_message": Block(None, {"content": list}),
        "additional_tools": Block(None, {"tools": list}),
        "configuration_update": Block(None, {"reasoning?": dict, "text?": dict}),
        "mcp_approval_request": Block(None, {"id": str, "name": str, "arguments": str, "server_label": str}),
        "mcp_approval_response": Block(None, {"approval_request_id": str, "approve": bool}),
        "mcp_list_tools": Block(None, {"server_label": str, "tools": list}),
        "mcp_call": Block(None, {"name": str, "arguments": str, "server_label": str}),
        "program": Block(None, {"call_id": str, "code": str, "fingerprint": str}),
        "program_output": Block(None, {"call_id": str, "result": str}),
        "web_search_call": Block(None, {"action?": dict}),
        "file_search_call": Block(None, {"queries": list}),
        "code_interpreter_call": Block(None, {"code?": str, "container_id": str}),
        "image_generation_call": Block(None, {}),
    },
    common=("id", "status", CODEX_METADATA),
)
"""The items but messages. A field is required only if every endpoint of this API rejects an item without it."""
BLOCKS = BlockTable(
    {
        "input_text": Block(Text, {"text": str}, decode=_decode_text, encode=_encode_text),
        "input_image": Block(
            Media, {"image_url?": str, "file_id?": str, "detail?": object}, decode=_decode_media, encode=_encode_media
        ),
        "input_file": Block(
            Media,
            {"file_data?": str, "file_id?": str, "file_url?": str, "filename?": str, "detail?": object},
            decode=_decode_media,
        ),
        "input_audio": Block(None, {"input_audio": dict}),
        "input_video": Block(None, {}),
        "output_text": Block(Text, {"text": str, "annotations?": list, "logprobs?": object}, decode=_decode_text),
        "refusal": Block(None, {"refusal": str}),
        "reasoning_text": Block(None, {"text": str}),
        "summary_text": Block(None, {"text": str}),
        "computer_screenshot": Block(None, {"image_url?": str, "file_id?": str}),
        "encrypted_content": Block(None, {"encrypted_content": str}),
        "text": Block(Text, {"text": str}, decode=_decode_text),
    },
    common=("prompt_cache_breakpoint",),
)
"""The blocks of messages and results. `text` is the chat API's."""


def encode_segment(segment: Sequence[Message], *, provider: str, blobs: Mapping[str, bytes]) -> EncodedSegment:
    codec = ResponsesCodec(provider, blobs)
    items: list[JSONObject] = []
    for message in segment:
        items += codec.reply(message) if message.role == "assistant" else codec.said(message)
    return EncodedSegment(tuple(items), tuple(codec.notes))


def encode_text(message: Message, provider: str) -> str:
    """Return the whole message as one text, as for the system prompt."""
    codec = ResponsesCodec(provider)
    blocks = [block for part in message.parts if (block := codec.block(part, "output_text")) is not None]
    return "\n\n".join(cast(str, block["text"]) for block in blocks if "text" in block)


def encode_stored_results(request: Request, *, provider: str, blobs: Mapping[str, bytes]) -> tuple[Message, ...]:
    """Return the messages. Results of calls that the provider stores become native items."""
    blocks = [part.data for message in request.messages for part in message.parts if isinstance(part, ProviderBlock)]
    referred = any(isinstance(data, dict) and is_reference(cast(JSONObject, data)) for data in blocks)
    if not referred and not any(request.settings.get(name) for name in STORED_HISTORY):
        return request.messages
    here = {call.id for message in request.messages for call in message.tool_calls}
    codec = ResponsesCodec(provider, blobs)

    def sealed(part: AnyPart) -> AnyPart:
        if not isinstance(part, ToolResult) or part.call_id in here:
            return part
        here.add(part.call_id)  # the first of two results for one call is kept; pairing drops the other
        return ProviderBlock(provider=provider, data=cast(JSONObject, codec.item(part)))

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


def _simplify_message(item: JSONObject) -> JSONObject:
    """Return a message that is not an output item as role and text."""
    if item.get("role") != "assistant" or "id" in item or not isinstance(item.get("content"), list):
        return item
    return {**item, "content": simplify_content(cast(list[JSONObject], item["content"]), "output_text")}


def _without_id(item: JSONObject) -> JSONObject:
    """Return a message or call without its id; other items require theirs."""
    return without_fields(item, "id") if item.get("type") in (None, "message", "function_call") else item


def is_reference(item: JSONObject) -> bool:
    """Return True if an item refers to one that the provider stores."""
    return item.get("type") == "item_reference" or ("id" in item and not item.get("type") and "role" not in item)


def decode_request(body: JSONObject, provider: str) -> Request:
    codec = ResponsesCodec(provider)
    given, instructions = body.get("input"), body.get("instructions")
    if isinstance(given, str):
        messages = [Message(role="user", parts=(Text(given),), extra={extra_key(provider): {STRING_INPUT: True}})]
    else:
        messages = codec.messages(cast(list[JSONObject], given or []))
    prompt = isinstance(instructions, str) and bool(instructions.strip())
    taken = ("input", "tools", "instructions") if prompt else ("input", "tools")
    return Request(
        messages=tuple(messages),
        system=Message(role="system", parts=(Text(cast(str, instructions)),)) if prompt else None,
        tools=tuple(codec.tool(tool) for tool in cast(list[JSONObject], body.get("tools") or [])),
        settings=other_fields(body, *taken),
    )


def decode_reply(reply: JSONObject, provider: str) -> Message:
    codec = ResponsesCodec(provider, model=reply.get("model"))
    messages = codec.messages(
        [{"role": "assistant", **item} if item.get("type") == "message" else item for item in _output(reply)]
    )
    parts = tuple(part for message in messages for part in message.parts)
    usage = as_object(reply.get("usage"))
    read = cast(JSONObject, usage.get("input_tokens_details") or {})
    kept = as_object(read.get("cache_write_tokens_details"))
    wrote = cast(JSONObject, usage.get("output_tokens_details") or {})
    names = ("id", "model", "status", "incomplete_details", "error", "conversation")
    rest = {name: reply[name] for name in names if reply.get(name)}
    message = Message(
        role="assistant",
        parts=parts,
        usage=Usage(
            input=usage.get("input_tokens") or 0,
            output=usage.get("output_tokens") or 0,
            cache_read=read.get("cached_tokens") or 0,
            cache_write=read.get("cache_write_tokens") or 0,
            reasoning=wrote.get("reasoning_tokens") or 0,
            cache_write_long=kept.get("ttl_12h_tokens") or 0,
            tier=billing_word(reply.get("service_tier"), TIERS),
            calls=tuple(_calls_with_fees(reply)) if usage else (),
            input_differs=any([item.get("type") == "compaction" for item in _output(reply)]),
            dollars=reported_dollars(usage),
        ),
        extra={extra_key(provider): rest} if rest else None,
    )
    message = replace(message, finish=_finish(reply, calls=bool(message.tool_calls)))
    if message.finish != "error":
        return message
    problem = cast(JSON, reply.get("error") or {})
    said = cast(JSONObject, problem).get("message") if isinstance(problem, dict) else problem
    return replace(message, status="error", error=str(said or "The provider gave no reason."))


def is_client_search(item: JSONObject) -> bool:
    """Return True if an item is a tool search that the client runs, and answers as it answers a function call."""
    has_arguments = isinstance(item.get("arguments") or {}, dict | str)
    return isinstance(item.get("call_id"), str) and item.get("execution") != "server" and has_arguments


def is_model_output(item: JSONObject) -> bool:
    """Return True if an item of a history comes from the model, also if its type is unknown."""
    if "role" in item:
        return item["role"] == "assistant"
    return not str(item.get("type") or "").endswith(CALLER_SUFFIXES)


def find_session(reply: JSONObject, field: str) -> str:
    """Return the session of a response: its conversation, or its own id if it was stored.

    Another `field` than these two is one of a provider's own.
    """
    if reply.get("store") is False:
        return ""
    if field not in SESSION_FIELDS and (named := id_text(reply.get(field))):
        return named
    conversation: JSON = reply.get("conversation")
    within = cast(JSONObject, conversation) if isinstance(conversation, dict) else {"id": conversation}
    return id_text((within if field == "conversation" else reply).get("id"))


def _calls_with_fees(reply: JSONObject) -> Iterator[BilledCall]:
    """Yield the uses of tools that OpenAI runs and bills beside the tokens."""
    used = [item.get("type") for item in _output(reply)]
    actions = [as_object(item.get("action")) for item in _output(reply) if item.get("type") == SEARCH]
    searches = as_object(as_object(reply.get("tool_usage")).get("web_search")).get("num_requests")
    if searches is None:
        searches = [action.get("type", "search") for action in actions].count("search")
    counts = {"web_search": searches}
    counts |= {name.removesuffix("_call"): used.count(name) for name in TOOLS_WITH_FEES}
    yield from [BilledCall(kind=kind, count=count) for kind, count in counts.items() if count]


def _output(reply: JSONObject) -> list[JSONObject]:
    return cast(list[JSONObject], reply.get("output") or [])


def _finish(reply: JSONObject, *, calls: bool) -> str | None:
    status = cast(str | None, reply.get("status")) or ("failed" if reply.get("error") else "completed")
    match status:
        case "completed" | "complete":
            return "tool_calls" if calls else "stop"
        case "incomplete":
            reason = cast(JSONObject, reply.get("incomplete_details") or {}).get("reason") or status
            return FINISH.get(reason, reason)
        case "failed":
            return "error"
        case "in_progress" | "queued":  # a truncated stream
            return None
        case _:
            return status


def collect_events(events: Iterable[JSONObject]) -> JSONObject:
    """Build a reply from the events of its stream. The last event holds all of it; a truncated stream is assembled."""
    reply: JSONObject = {}
    items: dict[int, JSONObject] = {}
    for event in events:
        index = cast(int, event.get("output_index", len(items)))
        if isinstance(response := event.get("response"), dict):
            reply |= cast(JSONObject, response)
        elif event.get("type") == "error":
            reply |= {"status": "failed", "error": event.get("error") or event}
        elif isinstance(item := event.get("item"), dict):
            items[index] = deepcopy(cast(JSONObject, item))
        elif index in items:
            _merge_event(items[index], event)
    return {**reply, "output": _output(reply) or [items[index] for index in sorted(items)]}


def _merge_event(item: JSONObject, event: JSONObject) -> None:
    kind = cast(str, event.get("type") or "")
    if name := ARGUMENT_DELTAS.get(kind):
        append_text(item, name, event["delta"])
    elif kind in TEXT_DELTAS:
        blocks, index, made, text = TEXT_DELTAS[kind]
        block = _block(item, blocks, event.get(index, 0), made)
        append_text(block, text, event["delta"])
    elif kind == "response.output_text.annotation.added":
        block = _block(item, "content", event.get("content_index", 0), "output_text")
        block["annotations"] = [*(block.get("annotations") or []), event["annotation"]]


def _block(item: JSONObject, blocks: str, index: int, kind: str) -> JSONObject:
    found = cast(list[JSONObject], item.get(blocks) or [])
    item[blocks] = found
    while len(found) <= index:
        found.append({"type": kind})
    return found[index]


def encode_tool(tool: Tool) -> JSONObject:
    """Encode a function tool. `strict` is always written, because the API treats a tool without it as strict."""
    fields = encode_definition(tool, "parameters", tool.parameters or NO_PARAMETERS)
    return {"type": "function", **fields, "strict": bool(tool.strict)}


def _blocks(content: JSON, kind: str) -> JSON:
    return [{"type": kind, "text": content}] if isinstance(content, str) else content
