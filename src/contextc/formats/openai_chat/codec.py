"""Chat Completions: messages encoded and decoded, cache breakpoints, and reasoning in details."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias, TypeGuard, cast

from msgspec.structs import replace

from contextc._json import JSON, JSONObject, as_object
from contextc.formats.base import (
    UNKNOWN_TOOL,
    EncodedSegment,
    Request,
    append_text,
    arguments_text,
    billing_word,
    decode_definition,
    encode_definition,
    extra_of,
    generated_id,
    merge_extra,
    other_fields,
    own_extra,
    reported_dollars,
    simplify_content,
    with_extra,
)
from contextc.formats.block_table import Block, BlockCodec, BlockTable
from contextc.formats.message_preparation import OpenCalls, decode_base64, encode_base64, from_data_url, media_from_url
from contextc.messages import (
    AnyPart,
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
# Set cache breakpoints in the content of messages, for gateways that accept them.
#
# A breakpoint is set on a text part, because OpenRouter's types allow it on no other part. An image at the end is
# therefore after the breakpoint. Content that is a plain string becomes one text part, and a string again when the
# breakpoint is removed. Both forms are the same to a provider.


CACHE_FIELD, BREAKPOINT_FIELD = "cache_control", "prompt_cache_breakpoint"
"""The fields of a breakpoint at gateways that have Anthropic's, and at OpenAI, where the request has the lifetime."""
CACHE_MARKS = (CACHE_FIELD, BREAKPOINT_FIELD)


def with_cache_breakpoint(message: JSONObject, mark: JSONObject) -> JSONObject | None:
    """Return the message with a cache breakpoint on its last text; None if it has no text, or has tool calls."""
    content: JSON = message.get("content")
    parts = cast(list[JSONObject], [{"type": "text", "text": content}] if isinstance(content, str) else content or [])
    last = next((index for index in reversed(range(len(parts))) if _is_text(parts[index])), None)
    if message.get("tool_calls") or last is None:
        return None
    return {**message, "content": [*parts[:last], {**parts[last], **mark}, *parts[last + 1 :]]}


def without_cache_breakpoints(message: JSONObject) -> JSONObject:
    content: JSON = message.get("content")
    if not isinstance(content, list) or not any(
        [name in part for part in cast(list[JSONObject], content) for name in CACHE_MARKS]
    ):
        return message
    parts = [
        {name: value for name, value in part.items() if name not in CACHE_MARKS}
        for part in cast(list[JSONObject], content)
    ]
    plain = len(parts) == 1 and parts[0].keys() == {"type", "text"}
    return {**message, "content": parts[0]["text"] if plain else parts}


def with_head_breakpoint(body: JSONObject, mark: JSONObject) -> JSONObject:
    """Return the body with a cache breakpoint on its leading system message, or else on its last tool, if tools have
    any.
    """
    first, *others = cast(list[JSONObject], body["messages"])
    if others and first["role"] in ("system", "developer"):
        system = with_cache_breakpoint(first, mark)
        if system is not None:
            return {**body, "messages": [system, *others]}
    if not body.get("tools") or CACHE_FIELD not in mark:
        return body
    *before, last = cast(list[JSONObject], body["tools"])
    return {**body, "tools": [*before, {**last, **mark}]}


def _is_text(part: JSONObject) -> bool:
    return part.get("type") == "text" and bool(str(part.get("text")).strip())


# ── reasoning details ─────────────────────────────────────────────────────────────────────────────────────────────────
# Decode and encode `reasoning_details`, the reasoning blocks of OpenRouter and other gateways.
#
# The blocks are signed by the model's provider. A block with text or encrypted data becomes a `Reasoning` part, so
# that the compiler can see what is signed. Its other fields are kept in the part's `extra`; a `type` there marks the
# part as a block. A block that is not reasoning, such as a call made by the gateway, becomes a `ProviderBlock` part.
# All blocks are sent back unchanged and in order. In a stream a block arrives in fragments: its text, and at the end
# its signature.


DETAILS, FIELD = "reasoning_details", "field"
TEXT_FIELDS = {"reasoning.text": "text", "reasoning.summary": "summary"}
ENCRYPTED_FIELDS = {"reasoning.encrypted": "data"}
SIGNATURE_REQUIRED = ("reasoning.text", "anthropic")
"""Blocks of this type are rejected without a signature if their `format` begins with this prefix."""
ReasoningBlock: TypeAlias = Reasoning | ProviderBlock


def decode_details(details: JSON, provider: str, model: str | None, *, is_reply: bool = False) -> list[ReasoningBlock]:
    """Return the blocks as parts; empty if one of them is not a valid block.

    With `is_reply`, the blocks are from a reply. A block that was cut off before its signature then keeps only its
    text, because it could not be sent back.
    """
    if not isinstance(details, list) or not all(_is_detail(each) for each in cast(list[JSON], details)):
        return []
    return [_detail_part(each, provider, model, is_reply) for each in cast(list[JSONObject], details)]


def encode_detail(part: AnyPart, provider: str) -> JSONObject | None:
    """Return the block that a part was decoded from; None if it is not a block of this provider."""
    rest = own_extra(part.extra, provider)
    if isinstance(part, ProviderBlock):
        return cast(JSONObject, part.data) if rest.get(FIELD) == DETAILS else None
    if not isinstance(part, Reasoning) or part.provider != provider or "type" not in rest:
        return None
    words = TEXT_FIELDS.get(rest["type"], "text")
    ours = {words: part.text, "signature": part.signature, "data": part.data, "id": part.id}
    return {**rest, **{name: value for name, value in ours.items() if value}}


def is_detail_allowed(part: AnyPart, model: str | None, provider: str) -> bool:
    """Return True if the block may be sent to a model. It may not if another vendor's model (`anthropic/…`) wrote it.

    If the provider chooses the model (`openrouter/auto`), the vendor is unknown and the block is sent.
    """
    wrote = part.model if isinstance(part, Reasoning) else None
    vendors = {name.lstrip("~").partition("/")[0] for name in (wrote, model) if name and "/" in name}
    return len(vendors - {provider}) < 2


def details_text(details: JSON) -> str:
    """Return the text in these blocks or fragments."""
    return "".join(_detail_text(_object(each)) for each in _listed_details(details))


def merge_details(blocks: list[JSON], fragments: JSON) -> None:
    """Merge the fragments in the next chunk of a stream into the blocks.

    Some providers give all blocks the index 0. So a fragment must also match the type and the id of the last block. A
    fragment after a signature begins a new block.
    """
    for piece in _listed_details(fragments):
        last, more = _object(blocks[-1] if blocks else None), _object(piece)
        if last and _continues(last, more):
            _grow_detail(last, more)
        else:
            blocks.append({**more} if more else piece)


def _continues(block: JSONObject, piece: JSONObject) -> bool:
    words = TEXT_FIELDS.get(str(piece.get("type")))
    if words is None or block.get("type") != piece["type"]:
        return False
    if any(None not in (block.get(name), piece.get(name)) and block[name] != piece[name] for name in ("index", "id")):
        return False
    return not block.get("signature") or (not piece.get(words) and piece.get("signature") in (None, block["signature"]))


def _grow_detail(block: JSONObject, piece: JSONObject) -> None:
    words = TEXT_FIELDS[piece["type"]]
    if isinstance(more := piece.get(words), str) and more:
        append_text(block, words, more)
    block |= {name: value for name, value in piece.items() if name != words and value is not None}


def _detail_part(detail: JSONObject, provider: str, model: str | None, replied: bool) -> ReasoningBlock:
    kind = detail["type"]
    if kind not in TEXT_FIELDS and kind not in ENCRYPTED_FIELDS:
        return ProviderBlock(provider=provider, data=detail, extra={provider: {FIELD: DETAILS}})
    ours = {"signature": "signature", "data": "data", "id": "id", TEXT_FIELDS.get(kind, "text"): "text"}
    held = {place: detail[name] for name, place in ours.items() if detail.get(name)}
    rest = {name: value for name, value in detail.items() if ours.get(name) not in held}
    lost = (
        replied
        and kind == SIGNATURE_REQUIRED[0]
        and "signature" not in held
        and str(rest.get("format")).startswith(SIGNATURE_REQUIRED[1])
    )
    return Reasoning(**held, provider=provider, model=model, extra=None if lost else {provider: rest})


def _is_detail(detail: JSON) -> bool:
    block = _object(detail)
    fields = [block.get(name) for name in ("text", "summary", "data", "signature", "id")]
    return isinstance(block.get("type"), str) and all(value is None or isinstance(value, str) for value in fields)


def _detail_text(detail: JSONObject) -> str:
    words: JSON = detail.get(TEXT_FIELDS.get(str(detail.get("type")), ""))
    return words if isinstance(words, str) else ""


def _listed_details(details: JSON) -> Iterable[JSON]:
    return cast(list[JSON], details) if isinstance(details, list) else ()


def _object(value: JSON) -> JSONObject:
    return cast(JSONObject, value) if isinstance(value, dict) else {}


# ── encoding ──────────────────────────────────────────────────────────────────────────────────────────────────────────
# Encode messages for OpenAI's Chat Completions, which many other endpoints accept too.
#
# Each message stays one message; roles need not alternate. Tool results are separate tool messages and hold text.
# Media that a tool returned goes into a user message directly after the results of its step, unless the endpoint
# accepts it in results. The arguments of a call are the text that the model wrote. Reasoning is sent back only if the
# endpoint has a field for it, and in its original blocks (`details`).


REASONING_FIELDS = ("reasoning_content", "reasoning")
DOCUMENT_TYPES = ("application/pdf", "application/msword", "application/rtf", "application/vnd.*")
AUDIO_FORMATS = {"audio/wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}
AUDIO_TYPES = {"wav": "audio/wav", "mp3": "audio/mpeg"}
NO_BLOBS: Mapping[str, bytes] = {}


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
    codec = ChatCodec(provider, reasoning_field, blobs, model=model, media_in_results=media_in_results)
    wire: list[JSONObject] = []
    for message in segment:
        if message.role == "tool":
            wire += codec.results(message)
        elif (encoded := codec.encode_message(message)) is not None:
            wire.append(encoded)
    return EncodedSegment(tuple(wire), tuple(codec.notes))


class ChatCodec(BlockCodec):
    """Encodes and decodes messages, their parts and calls.

    `model` is the requested model, and `author` the model that wrote what is decoded. `names` are the tools of the
    decoded calls, by the id of the call.
    """

    keeps_unsent = True

    def __init__(
        self,
        provider: str,
        reasoning_field: str | None,
        blobs: Mapping[str, bytes] = NO_BLOBS,
        *,
        model: str | None = None,
        media_in_results: bool = False,
        author: str | None = None,
        replied: bool = False,
    ) -> None:
        super().__init__(provider, blobs)
        self.reasoning_field, self.model, self.media_in_results = reasoning_field, model, media_in_results
        self.author, self.replied = author, replied
        self.names: dict[str, str] = {}
        self.old: dict[str, str] = {}  # names of legacy `function_call`s, which have no ids
        self.waiting = OpenCalls[ToolCall]()  # those of them that were decoded

    def encode_message(self, message: Message) -> JSONObject | None:
        """Encode a system, user or assistant message; return None if none of it can be sent."""
        if message.extra is None and (short := self.plain(message)) is not None:
            return short
        rest = own_extra(message.extra, self.provider)
        if "function_call" in rest:
            self.old |= {call.id: call.name for call in message.tool_calls}
        content = [block for part in message.parts if (block := self.block(part, message.role)) is not None]
        calls = [
            merge_extra(_encode_call(part), part.extra, self.provider)
            for part in message.parts
            if isinstance(part, ToolCall)
        ]
        thoughts = self.details(message)
        wire: JSONObject = {
            "role": message.role,
            "content": simplify_content(content) if content else None,
            **self.loose_reasoning(message),
        }
        refusals = [part.data["refusal"] for part in message.parts if self.is_field(part, True)]
        if thoughts:
            wire[DETAILS] = thoughts
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
                calls.append(_encode_call(part))
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
                    content = [self.restored(each) for each in part.content]
                    content = content or ""
                elif not isinstance(part.content, str):
                    texts = [each for each in part.content if isinstance(each, Text)]
                    media = [each for each in part.content if isinstance(each, Media)]
                    content = [self.restored(each) for each in texts] or ""
                    if media and "content" not in own_extra(part.extra, self.provider):
                        self.note_moved_media(part)
                        shown += [{"type": "text", "text": f"[media returned by {part.name}]"}]
                        shown += [_encode_media(each, self) for each in media]
                self.note_error_flag(part)
                answer: JSONObject = {"role": "tool", "tool_call_id": part.call_id, "content": content}
                wire.append(merge_extra(answer, part.extra, self.provider))
            elif (beside := self.block(part)) is not None:
                shown.append(beside)
        return [*wire, {"role": "user", "content": simplify_content(shown)}] if shown else wire

    def block(self, part: AnyPart, role: Role = "user") -> JSONObject | None:
        if isinstance(part, Text | Media):
            if isinstance(part, Media) and role != "user" and not own_extra(part.extra, self.provider):
                return {"type": "text", "text": self.media_text(part)}
            return self.restored(part) if isinstance(part, Media) or part.text else None
        if not isinstance(part, ProviderBlock) or self.is_field(part):
            return None
        return part.data if part.provider == self.provider else {"type": "text", "text": self.native_text(part)}

    def restored(self, part: Text | Media) -> JSONObject:
        """Return the block of a part, with the provider's own data restored."""
        return merge_extra(PARTS.encode(part, self) or {"type": "text", "text": ""}, part.extra, self.provider)

    def encode_unmapped(self, part: AnyPart) -> JSONObject | None:
        return None

    def loose_reasoning(self, message: Message) -> JSONObject:
        """Return the text of reasoning that came without blocks, if the endpoint has a field for it."""
        thoughts = [part for part in message.parts if isinstance(part, Reasoning)]
        loose = [part for part in thoughts if encode_detail(part, self.provider) is None]
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
        found = [(part, block) for part in message.parts if (block := encode_detail(part, self.provider)) is not None]
        mine = [block for part, block in found if is_detail_allowed(part, self.model, self.provider)]
        if len(mine) < len(found):
            self.note("left out", "reasoning of another vendor's model")
        return mine

    def message(self, wire: JSONObject) -> Message:
        if wire["role"] in ("tool", "function"):
            return Message(role="tool", parts=(self.result(wire),))
        parts = [*self.reasoning(wire), *self.parts(wire.get("content"))]
        parts += [self.call(call) for call in cast(list[JSONObject], wire.get("tool_calls") or [])]
        if (old := wire.get("function_call")) and isinstance(old, dict) and cast(JSONObject, old).get("name"):
            function = cast(JSONObject, old)
            name = cast(str, function.get("name") or UNKNOWN_TOOL)
            made = tool_call(f"function_{len(self.names)}", name, cast(str, function.get("arguments") or ""))
            self.names[made.id] = name
            self.waiting.add(made, name)
            parts.append(made)
        if isinstance(refusal := wire.get("refusal"), str) and refusal:
            data = {"type": "refusal", "refusal": refusal}
            parts.append(ProviderBlock(provider=self.provider, data=data, extra={self.provider: {FIELD: True}}))
        message = Message(role=ROLES.get(wire["role"], "user"), parts=tuple(parts))
        return self.with_rest(message, wire)

    def with_rest(self, message: Message, wire: JSONObject) -> Message:
        """Return the message with the fields that encoding would not reproduce in its `extra`."""
        ours = self.encode_message(message) or {}
        known = {**wire, "refusal": wire.get("refusal") or None}
        if wire.get("tool_calls"):
            known["tool_calls"] = ours.get("tool_calls")
        if self.replied and decode_details(wire.get(DETAILS), self.provider, None):
            known[DETAILS] = ours.get(DETAILS)
        if _blocks(known.get("content")) == _blocks(ours.get("content")):
            known["content"] = ours.get("content")
        return with_extra(message, known, ours, self.provider)

    def reasoning(self, wire: JSONObject) -> Iterator[AnyPart]:
        """Return the reasoning, from blocks or from one field. If both are present, they have the same content."""
        blocks = decode_details(wire.get(DETAILS), self.provider, self.author, is_reply=self.replied)
        texts = [text for name in REASONING_FIELDS if isinstance(text := wire.get(name), str) and text]
        if texts and not (blocks and details_text(wire[DETAILS])):
            yield Reasoning(text=texts[0], provider=self.provider, model=self.author)
        yield from blocks

    def parts(self, content: JSON) -> Iterator[AnyPart]:
        if isinstance(content, str):
            if content:
                yield Text(content)
            return
        for block in cast(list[JSONObject], content or []):
            yield PARTS.decode(block, self)

    def call(self, call: JSONObject) -> AnyPart:
        named = cast(JSONObject, call.get("function") or call.get("custom") or {})
        if "name" not in named:
            return ProviderBlock(provider=self.provider, data=call)
        if self.replied:
            call = _sendable_call(call)
            named = cast(JSONObject, call.get("function") or call.get("custom"))
        if not call.get("id"):
            call = {**call, "id": generated_id(len(self.names))}
        self.names[call["id"]] = named["name"]
        made = tool_call(call["id"], named["name"], named.get("arguments") or named.get("input") or "")
        return with_extra(made, call, _encode_call(made), self.provider)

    def old_id(self, name: JSON) -> str:
        found = self.waiting.pop(name) if isinstance(name, str) else None
        return "" if found is None else found.id

    def result(self, wire: JSONObject) -> ToolResult:
        old = wire["role"] == "function"
        call_id = self.old_id(wire.get("name")) if old else cast(str, wire.get("tool_call_id") or "")
        content: JSON = wire.get("content")
        inner = tuple(self.parts(content)) if isinstance(content, list) else ()
        texts = tuple(part for part in inner if isinstance(part, Text | Media))
        made = ToolResult(
            call_id=call_id,
            name=self.names.get(call_id) or cast(str, wire.get("name") or UNKNOWN_TOOL),
            content=texts or (content if isinstance(content, str) else ""),
        )
        return with_extra(made, wire, self.results(Message(role="tool", parts=(made,)))[0], self.provider)

    def tool(self, tool: JSONObject) -> Tool | NativeTool:
        function = cast(JSONObject | None, tool.get("function"))
        if function is None:
            return NativeTool(provider=self.provider, data=tool)
        made = decode_definition(function, "parameters")
        ours = encode_tool(made)
        rest = dict(own_extra(extra_of(tool, ours, self.provider), self.provider))
        if inside := own_extra(extra_of(function, ours["function"], self.provider), self.provider):
            rest["function"] = inside
        return replace(made, extra={self.provider: rest}) if rest else made


def _encode_call(part: ToolCall) -> JSONObject:
    return {"id": part.id, "type": "function", "function": {"name": part.name, "arguments": arguments_text(part)}}


def _decode_text(block: JSONObject, codec: ChatCodec) -> Text:
    if block["text"] and not isinstance(block["text"], str):
        raise TypeError("the text of a part is not a string")
    return Text(block["text"])


def _encode_text(part: Text, codec: ChatCodec) -> JSONObject | None:
    return {"type": "text", "text": part.text} if part.text else None


def _decode_image(block: JSONObject, codec: ChatCodec) -> Media | None:
    image: JSON = block["image_url"]
    return media_from_url(cast(JSONObject, image)["url"], "image/png") if isinstance(image, dict) else None


def _decode_audio(block: JSONObject, codec: ChatCodec) -> Media | None:
    if not (sound := as_object(block["input_audio"])):
        return None
    data, mime_type = decode_base64(sound["data"]), AUDIO_TYPES.get(sound["format"])
    return Media(mime_type=mime_type, data=data) if data is not None and mime_type else None


def _decode_file(block: JSONObject, codec: ChatCodec) -> Media | None:
    file = as_object(block.get("file"))
    if "file_id" in file:
        return Media(mime_type="application/octet-stream", file_id=file["file_id"], provider=codec.provider)
    return from_data_url(file.get("file_data") or "", file.get("filename"))


def _encode_media(part: Media, codec: ChatCodec) -> JSONObject:
    text = encode_base64(part, codec.blobs)
    if part.kind == "image" and (text is not None or part.url is not None):
        return {"type": "image_url", "image_url": {"url": part.url or f"data:{part.mime_type};base64,{text}"}}
    if part.mime_type in AUDIO_FORMATS and text is not None:
        return {"type": "input_audio", "input_audio": {"data": text, "format": AUDIO_FORMATS[part.mime_type]}}
    if part.kind == "document" and text is not None:
        name = {"filename": part.name} if part.name else {}
        return {"type": "file", "file": {"file_data": f"data:{part.mime_type};base64,{text}", **name}}
    if codec.is_own_file(part):
        return {"type": "file", "file": {"file_id": part.file_id}}
    return {"type": "text", "text": codec.media_text(part)}


PARTS = BlockTable(
    {
        "text": Block(Text, {"text": str}, decode=_decode_text, encode=_encode_text),
        "image_url": Block(Media, {"image_url": (dict, str)}, decode=_decode_image, encode=_encode_media),
        "input_audio": Block(Media, {"input_audio": (dict, str)}, decode=_decode_audio),
        "file": Block(Media, {"file": dict}, decode=_decode_file),
        "refusal": Block(None, {"refusal": str}),
        "audio": Block(None, {}),
    },
    common=("cache_control", "prompt_cache_breakpoint"),
)


# ── decoding ──────────────────────────────────────────────────────────────────────────────────────────────────────────
# Decode Chat Completions requests, replies and streams into messages.


ROLES: dict[str, Role] = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
SENDABLE_FIELDS = ("role", "content", "refusal", "tool_calls", "function_call", "name", DETAILS)
"""Fields of a reply that a request may contain. Others, such as `annotations`, are kept as facts about the reply."""
TIERS = {"fast": "priority"}
"""Tiers with two names."""
FAILED, NO_REASON_GIVEN = "error", "the provider ended the reply with an error, and does not say which"
"""Finish reason and error text of a failed reply. Some servers also state the cause."""


def decode_request(body: JSONObject, provider: str, reasoning_field: str | None) -> Request:
    codec = ChatCodec(provider, reasoning_field)
    messages = [codec.message(wire) for wire in cast(list[JSONObject], body.get("messages", []))]
    system = messages.pop(0) if messages and messages[0].role == "system" else None
    return Request(
        messages=tuple(messages),
        system=system,
        tools=tuple(codec.tool(tool) for tool in cast(list[JSONObject], body.get("tools") or [])),
        settings=other_fields(body, "messages", "tools"),
    )


def decode_reply(
    reply: JSONObject, provider: str, reasoning_field: str | None, *, reports_cost: bool = False
) -> Message:
    choices = cast(list[JSONObject], reply.get("choices") or [{}])
    choice = next((each for each in choices if each.get("index") == 0), choices[0])
    codec = ChatCodec(provider, reasoning_field, author=reply.get("model"), replied=True)
    said: JSONObject = {"role": "assistant", **(choice.get("message") or {})}
    back = (*SENDABLE_FIELDS, *([reasoning_field] if reasoning_field else []))
    message = codec.message({name: value for name, value in said.items() if name in back or name in REASONING_FIELDS})
    silent = _select_extra(message.extra, provider, tuple(name for name in back if name != "content"))
    if (reasoning_field and message.parts) or codec.encode_message(replace(message, extra=silent)) is not None:
        silent = _select_extra(message.extra, provider, back)
    message = replace(message, extra=silent)  # a reply with nothing but an empty text is not sent back
    usage = as_object(reply.get("usage"))
    read = cast(JSONObject, usage.get("prompt_tokens_details") or {})
    wrote = cast(JSONObject, usage.get("completion_tokens_details") or {})
    facts: JSONObject = {name: reply[name] for name in ("id", "model", "provider") if reply.get(name)}
    facts |= {"cost": usage["cost"]} if usage.get("cost") is not None else {}
    facts |= {name: value for name, value in said.items() if name not in (*back, *REASONING_FIELDS) and value}
    return replace(
        message,
        finish=_finish(reply, choice),
        status="error" if _error_text(reply, choice) else "sent",
        error=_error_text(reply, choice),
        usage=Usage(
            input=usage.get("prompt_tokens") or 0,
            output=usage.get("completion_tokens") or 0,
            cache_read=read.get("cached_tokens") or 0,
            cache_write=read.get("cache_write_tokens") or 0,
            reasoning=wrote.get("reasoning_tokens") or 0,
            tier=billing_word(reply.get("service_tier"), TIERS),
            dollars=reported_dollars(usage, in_cost=reports_cost),
        ),
        extra={**(message.extra or {}), f"{provider} reply": facts} if facts else message.extra,
    )


def _finish(reply: JSONObject, choice: JSONObject) -> str | None:
    """Return the finish reason; None for a truncated stream, which has neither a reason nor its usage."""
    if _error_text(reply, choice):
        return FAILED
    cut = choice.get("finish_reason", "") is None and not reply.get("usage")
    return choice.get("finish_reason") or (None if cut else "stop")


def _error_text(reply: JSONObject, choice: JSONObject) -> str | None:
    """Return the error text, or None. A gateway may report the error inside the choice."""
    error: JSON = reply.get("error") or choice.get("error")
    said = cast(JSONObject, error).get("message") if isinstance(error, dict) else error
    return str(said) if error else None


STREAMED_FIELDS = ("id", "model", "provider", "usage", "error", "service_tier")


def collect_events(events: Iterable[JSONObject]) -> JSONObject:
    """Build a reply from the chunks of its stream. `error` is set if the stream ended with one."""
    reply: JSONObject = {}
    message: JSONObject = {"role": "assistant"}
    calls: list[JSONObject] = []
    finish = None
    for event in events:
        for name in STREAMED_FIELDS:
            if value := event.get(name):
                reply[name] = value
        if (groq := cast(JSONObject, event.get("x_groq") or {})).get("usage"):
            reply["usage"] = groq["usage"]
        for choice in cast(list[JSONObject], event.get("choices") or []):
            if choice.get("index") not in (None, 0):
                continue
            for name in ("usage", "error"):
                if value := choice.get(name):
                    reply[name] = value
            if choice.get("finish_reason") is not None:  # some endpoints send an empty string for none
                finish = choice["finish_reason"] or finish or ""
            _merge_delta(message, calls, cast(JSONObject, choice.get("delta") or {}))
    if calls:
        named = [{**call, "id": call["id"] or generated_id(number)} for number, call in enumerate(calls)]
        message["tool_calls"] = [{name: value for name, value in call.items() if name != "index"} for call in named]
    return {**reply, "choices": [{"message": message, "finish_reason": finish}]}


def _merge_delta(message: JSONObject, calls: list[JSONObject], delta: JSONObject) -> None:
    for name, value in delta.items():
        if name == "tool_calls":
            for piece in cast(list[JSONObject], value or []):
                merge_call_fragment(calls, piece)
        elif name == DETAILS:
            merge_details(cast(list[JSON], message.setdefault(name, [])), value)
        elif name != "role":
            _grow(message, name, value)


def _grow(holder: JSONObject, name: str, more: JSON) -> None:
    if isinstance(more, str) and isinstance(holder.get(name), str):
        append_text(holder, name, more)
    else:
        holder[name] = _extended(holder.get(name), more)


def _extended(before: JSON, more: JSON) -> JSON:
    """Return a message field, extended by the value in the next chunk."""
    if before is None or more is None:
        return more if before is None else before
    if isinstance(before, str) and isinstance(more, str):
        return before + more
    if isinstance(before, dict) and isinstance(more, dict):
        known, given = cast(JSONObject, before), cast(JSONObject, more)
        return {**known, **{name: _extended(known.get(name), value) for name, value in given.items()}}
    if isinstance(before, list) or isinstance(more, list):  # some endpoints send blocks with text in between
        return [*cast(list[JSON], _blocks(before)), *cast(list[JSON], _blocks(more))]
    return more


def merge_call_fragment(calls: list[JSONObject], fragment: JSONObject) -> JSONObject:
    """Merge a fragment into its call and return the call. It is found by id, else by index, else it is the last one.

    A new id begins a new call, and so does the same id at another index.
    """
    call_id, index = fragment.get("id"), fragment.get("index")
    same = [
        call
        for call in calls
        if call_id and call.get("id") == call_id and (index is None or call["index"] in (None, index))
    ]
    same = same or [
        call for call in calls if not (call_id and call.get("id")) and index is not None and call["index"] == index
    ]
    if not same and not call_id and index is None and calls:
        same = [calls[-1]]
    if not same:
        calls.append({"index": index, "id": call_id or "", "type": fragment.get("type") or "function"})
        same = [calls[-1]]
    call = same[-1]
    call["id"] = call_id or call["id"]
    for name, value in fragment.items():
        if name in ("index", "id", "type"):
            continue
        inner = cast(JSONObject, value or {}) if isinstance(value, dict) else None
        if inner is None:
            call[name] = value
            continue
        known = cast(JSONObject, call.setdefault(name, {}))
        for field, each in inner.items():
            if field != "name" or known.get(field) != each:
                _grow(known, field, each)
    return call


def _sendable_call(call: JSONObject) -> JSONObject:
    """Return a call of a reply as a request may contain it: without its index, and with arguments."""
    call = {name: value for name, value in call.items() if name != "index"}
    function: JSON = call.get("function")
    if isinstance(function, dict) and cast(JSONObject, function).get("arguments") is None:
        call["function"] = {**cast(JSONObject, function), "arguments": "{}"}
    return call


def encode_tool(tool: Tool) -> JSONObject:
    return {"type": "function", "function": encode_definition(tool, "parameters", tool.parameters)}


def _select_extra(extra: Extra | None, provider: str, names: tuple[str, ...]) -> Extra | None:
    rest = {name: value for name, value in (extra or {}).get(provider, {}).items() if name in names}
    return {provider: rest} if rest else None


def _blocks(content: JSON) -> JSON:
    return [{"type": "text", "text": content}] if isinstance(content, str) and content else content
