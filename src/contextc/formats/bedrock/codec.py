"""Bedrock's Converse API: media, and messages encoded and decoded."""

import base64
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import assert_never, cast

from msgspec.structs import replace

from contextc._json import JSON, JSONObject, as_object, as_objects, encode
from contextc.formats.anthropic.codec import split_message, with_changes_last
from contextc.formats.base import (
    UNKNOWN_TOOL,
    EncodedSegment,
    PartEncoder,
    Request,
    append_text,
    billing_word,
    encode_definition,
    extra_of,
    generated_id,
    mark_apart,
    merge_extra,
    other_fields,
    own_extra,
    tag_system_blocks,
    text_of,
)
from contextc.formats.message_preparation import APART_KEY, decode_base64, encode_base64
from contextc.formats.request_settings import object_or_empty
from contextc.messages import (
    AnyPart,
    Media,
    Message,
    ProviderBlock,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolResult,
    Usage,
    UserNotice,
    tool_call,
)
from contextc.tools.definitions import NativeTool, Tool

# ── media ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
# Images, audio, video and documents in Converse: a short format name, with bytes or an S3 location.
#
# Each document has a name that is unique in the request: its original name and a hash.


FORMATS: dict[str, dict[str, str]] = {
    "image": {"image/png": "png", "image/jpeg": "jpeg", "image/gif": "gif", "image/webp": "webp"},
    "document": {
        "application/pdf": "pdf",
        "text/csv": "csv",
        "application/msword": "doc",
        "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "docx",
        "application/vnd.ms-excel": "xls",
        "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "xlsx",
        "text/html": "html",
        "text/plain": "txt",
        "text/markdown": "md",
    },
    "video": {
        "video/mp4": "mp4",
        "video/x-matroska": "mkv",
        "video/quicktime": "mov",
        "video/webm": "webm",
        "video/x-flv": "flv",
        "video/mpeg": "mpeg",
        "video/x-ms-wmv": "wmv",
        "video/3gpp": "three_gp",
    },
    "audio": {
        "audio/mpeg": "mp3",
        "audio/wav": "wav",
        "audio/x-wav": "wav",
        "audio/aac": "aac",
        "audio/flac": "flac",
        "audio/ogg": "ogg",
        "audio/opus": "opus",
        "audio/mp4": "m4a",
        "audio/webm": "webm",
    },
}
MEDIA_TYPES = {kind: {short: mime for mime, short in reversed(formats.items())} for kind, formats in FORMATS.items()}
DEFAULT_TYPES = {"image": "image/png", "document": "application/pdf", "video": "video/mp4", "audio": "audio/mpeg"}
S3_URI = re.compile(r"s3://[a-z0-9][.\-a-z0-9]{1,61}[a-z0-9](/.*)?", re.DOTALL)
DOCUMENT_NAME = re.compile(r"(?!.*\s\s)(?:[^\W_]|[\s\-()\[\]]){1,200}", re.DOTALL)
INVALID_NAME_CHARACTERS, MAX_NAME_LENGTH = re.compile(r"[^a-zA-Z0-9\-()\[\]]+"), 160


MAX_DOCUMENTS, MAX_IMAGES = 5, 20
"""The limit of documents per request, and of images per message."""


def encode_media(part: Media, blobs: Mapping[str, bytes], owner: str) -> JSONObject | None:
    """Return the block of a part, or None if Bedrock does not support its type or location.

    `owner` is the id of its message.
    """
    short, source = FORMATS[part.kind].get(part.mime_type), encode_source(part, blobs)
    if short is None or source is None:
        return None
    named: JSONObject = {"name": document_name(part, owner, source)} if part.kind == "document" else {}
    return {part.kind: {"format": short, **named, "source": source}}


def encode_source(part: Media, blobs: Mapping[str, bytes]) -> JSONObject | None:
    if (data := encode_base64(part, blobs)) is not None:
        return {"bytes": data}
    if part.url is not None and S3_URI.fullmatch(part.url) and len(part.url) <= 1024:
        return {"s3Location": {"uri": part.url}}
    return None


def document_name(part: Media, owner: str, source: JSONObject) -> str:
    return _unique_name(part.name or "", owner, str(source.get("bytes") or part.url))


def _unique_name(given: str, owner: str, source: str) -> str:
    stem = INVALID_NAME_CHARACTERS.sub(" ", given).strip()[:MAX_NAME_LENGTH].strip() or "document"
    return f"{stem} {blake2b(f'{owner} {source}'.encode(), digest_size=4).hexdigest()}"


def with_unique_name(block: JSONObject, owner: str, made: Container[str] = ()) -> JSONObject:
    """Return a block whose documents have names unique among stored messages.

    Names in `made` are unique already.
    """
    if "toolResult" in block:
        inside = cast(JSONObject, block["toolResult"])
        return {
            "toolResult": {**inside, "content": [with_unique_name(each, owner, made) for each in inside["content"]]}
        }
    if "document" not in block or block["document"].get("name") in made:
        return block
    document = cast(JSONObject, block["document"])
    source = encode(document.get("source")).decode()
    return {"document": {**document, "name": _unique_name(str(document.get("name") or ""), owner, source)}}


def describe_block(block: JSONObject) -> JSONObject:
    """Return one line of text that replaces media, or the text of a document that is plain text."""
    kind, inside = next(iter(block.items()))
    source: object = inside.get("source")
    words = cast(JSONObject, source).get("text") if isinstance(source, dict) else None
    if isinstance(words, str) and words.strip():
        return {"text": words}
    name = f" {inside['name']!r}" if inside.get("name") else ""
    return {"text": f"[{kind}{name}: {inside.get('format') or 'of no known type'}; not shown]"}


def decode_media(kind: str, block: JSONObject) -> Media | None:
    """Return the part of a media block, or None if only Bedrock can read it."""
    short = block.get("format")
    if not isinstance(block.get("source"), dict):
        return None
    source = cast(JSONObject, block["source"])
    plain = "text/plain" if "text" in source else DEFAULT_TYPES[kind]
    mime_type = MEDIA_TYPES[kind].get(str(short).removeprefix(f"{kind}/"), plain)
    name = block.get("name") if kind == "document" else None
    if isinstance(source.get("bytes"), str):
        data = decode_base64(source["bytes"])
        return None if not data else Media(mime_type=mime_type, data=data, name=name)
    if isinstance(source.get("text"), str) and source["text"]:
        return Media(mime_type=mime_type, data=source["text"].encode(), name=name)
    location = source.get("s3Location")
    uri = cast(JSONObject, location).get("uri") if isinstance(location, dict) else None
    if isinstance(uri, str) and S3_URI.fullmatch(uri):
        return Media(mime_type=mime_type, url=uri, name=name)
    return None


def with_unique_document_names(messages: list[JSONObject]) -> list[JSONObject]:
    """Return the messages with duplicate document names replaced."""
    taken: dict[str, int] = {}
    for index, message in enumerate(messages):
        names = (
            [each["document"]["name"] for each in find_documents(message["content"])] if "content" in message else []
        )
        if not taken.keys().isdisjoint(names) or len(set(names)) < len(names):
            messages[index] = {**message, "content": _rename_duplicates(message["content"], taken)}
        else:
            taken.update(dict.fromkeys(names, 1))
    return messages


def find_documents(content: Iterable[JSONObject]) -> Iterator[JSONObject]:
    """Yield the document blocks, including those in results."""
    for block in content:
        if "document" in block:
            yield block
        elif "toolResult" in block:
            inside = cast(list[object], block["toolResult"]["content"])
            yield from (cast(JSONObject, each) for each in inside if isinstance(each, dict) and "document" in each)


def _rename_duplicates(content: list[JSONObject], taken: dict[str, int]) -> list[JSONObject]:
    """Return the blocks with duplicate document names replaced. `taken` counts the uses of each name."""
    found: list[JSONObject] = []
    for block in content:
        if "document" in block:
            given: str = block["document"]["name"]
            name = given
            while name in taken:
                taken[given] += 1
                name = f"{given[:190]} {taken[given]}"
            taken[name] = 1
            block = {"document": {**block["document"], "name": name}}
        elif "toolResult" in block:
            block = {
                "toolResult": {
                    **block["toolResult"],
                    "content": _rename_duplicates(block["toolResult"]["content"], taken),
                }
            }
        found.append(block)
    return found


def with_bytes(body: JSONObject) -> JSONObject:
    """Return a request as boto3 takes it: base64 of media as bytes. Tool inputs and results as JSON are not changed."""
    messages = [{**message, "content": _blocks_with_bytes(message["content"])} for message in body["messages"]]
    prompt: JSONObject = {"system": _blocks_with_bytes(body["system"])} if body.get("system") else {}
    return {**body, **prompt, "messages": messages}


def _blocks_with_bytes(content: list[JSONObject]) -> list[JSONObject]:
    return [{kind: _block_with_bytes(kind, inside) for kind, inside in block.items()} for block in content]


def _block_with_bytes(kind: str, inside: JSON) -> JSON:
    if kind in FORMATS:
        return {**inside, "source": _as_bytes(inside["source"], "bytes")}
    if kind == "toolResult":
        return {**inside, "content": _blocks_with_bytes(inside["content"])}
    if kind == "guardContent" and "image" in inside:
        return {"image": _block_with_bytes("image", inside["image"])}
    return _as_bytes(inside, "redactedContent") if kind == "reasoningContent" else inside


def _as_bytes(inside: JSONObject, name: str) -> JSONObject:
    data = decode_base64(inside[name]) if isinstance(inside.get(name), str) else None
    return inside if data is None else {**inside, name: data}


# ── encoding ──────────────────────────────────────────────────────────────────────────────────────────────────────────
# Encoding of messages for Bedrock's Converse API.
#
# Roles alternate: the messages between two replies become one user message, results first. A block is an object with
# one member, whose name is its type. A cache breakpoint is a separate block, so it is kept with the part before it. A
# document has a unique name in the request, and needs a text next to it. Blank text is left out. A system message
# between others keeps its role if the model accepts it, as in Anthropic's API.


BETWEEN_KEY, UNCHANGED_KEY, CACHE_POINT_KEY = "between", "as it came", "cachePoint"
TEXT_BLOCKS = ("citationsContent", "guardContent")
"""Blocks that other formats receive as text."""
USER_ONLY_BLOCKS = frozenset(("image", "document"))
"""Blocks that only a user message may contain."""
CHANGE_BLOCKS = frozenset(("toolAddition", "toolRemoval"))
"""Blocks of a system message that change the tools from there on."""
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
    segment = with_changes_last(segment, provider, lambda block: not CHANGE_BLOCKS.isdisjoint(block))
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
        content: list[JSONObject] = message["content"]
        if any("document" in block for block in content) and not any(
            text_of(block.get("text")).strip() for block in content
        ):
            encoder.note("made up", "a line of text beside a document, which may not stand alone")
            content.append({"text": DOCUMENT_TEXT})
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


def is_client_tool(use: JSONObject) -> bool:
    """Return True if a call or a result is for a client tool. Bedrock runs some tools itself."""
    return use.get("type") in (None, "tool_use", "tool_result")


def is_blank(block: JSONObject) -> bool:
    return isinstance(block.get("text"), str) and not block["text"].strip()


def is_separator(content: list[JSONObject], index: int, role: str) -> bool:
    """Return True if this is white space between a user's document and a cache breakpoint.

    A breakpoint may not follow a document directly, so white space is accepted there, and nowhere else.
    """
    if role != "user" or not is_blank(content[index]) or not content[index]["text"]:
        return False
    before, after = content[index - 1 : index], content[index + 1 : index + 2]
    return any("document" in each or "video" in each for each in before) and any("cachePoint" in each for each in after)


# ── decoding ──────────────────────────────────────────────────────────────────────────────────────────────────────────
# Decoding of Converse requests, replies and streams into messages.
#
# Each block becomes a part. Data that encoding this part would not reproduce is kept in its `extra`. A block without a
# matching part type becomes a `ProviderBlock`. A cache breakpoint is kept with the part before it. A user message with
# results and text becomes a tool message and a user message. The placeholder tool is not decoded as a tool.


FINISH_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "guardrail_intervened": "content_filter",
    "content_filtered": "content_filter",
}


def decode_request(body: JSONObject, provider: str) -> Request:
    decoder = _Decoder(provider, sent=True)
    messages = [each for wire in cast(list[JSONObject], body.get("messages") or []) for each in decoder.message(wire)]
    if messages and messages[0].role == "assistant":
        messages[0] = mark_apart(messages[0], provider)
    given = cast(list[JSONObject], body.get("system") or [])
    system = Message(role="system", parts=tuple(decoder.parts(given, "system"))) if given else None
    if system is None and messages and messages[0].role == "system":  # a position the API does not accept
        system, *messages = messages
    config = cast(JSONObject, body.get("toolConfig") or {})
    rest = {name: value for name, value in config.items() if name != "tools"}
    settings = other_fields(body, "messages", "system", "toolConfig")
    return Request(
        messages=tuple(messages),
        system=system,
        tools=tuple(decoder.tools(cast(list[JSONObject], config.get("tools") or []))),
        settings={**settings, "toolConfig": rest} if rest else settings,
    )


def decode_reply(reply: JSONObject, provider: str, model: str | None = None) -> Message:
    """Decode a reply. `model` is the requested model, which the reply does not name."""
    reply = cast(JSONObject, bytes_to_base64(reply))
    usage = as_object(reply.get("usage"))
    read, written = usage.get("cacheReadInputTokens") or 0, usage.get("cacheWriteInputTokens") or 0
    kept = [each.get("inputTokens") or 0 for each in as_objects(usage.get("cacheDetails")) if each.get("ttl") == "1h"]
    tier = billing_word(as_object(reply.get("serviceTier")).get("type"))
    reason = cast(str | None, reply.get("stopReason"))
    error = cast(JSONObject | None, reply.get("error"))
    message = cast(JSONObject, cast(JSONObject, reply.get("output") or {}).get("message") or {})
    named = ("stopReason", "additionalModelResponseFields", "trace", "performanceConfig", "serviceTier")
    rest = {name: reply[name] for name in named if reply.get(name)}
    return Message(
        role="assistant",
        parts=tuple(_Decoder(provider, model).parts(_blocks(message.get("content")), "assistant")),
        finish="error" if error else FINISH_REASONS.get(reason, reason) if reason else None,
        status="error" if error else "sent",
        error=str(error.get("message")) if error else None,
        usage=Usage(
            input=(usage.get("inputTokens") or 0) + read + written,
            output=usage.get("outputTokens") or 0,
            cache_read=read,
            cache_write=written,
            cache_write_long=next(iter(kept), 0),
            tier=f"bedrock {tier}" if tier else "",
            speed=billing_word(as_object(reply.get("performanceConfig")).get("latency")),
        ),
        extra={provider: rest} if rest else None,
    )


def _blocks(content: JSON) -> list[JSONObject]:
    """Return the content of a reply, in which every call has an id and a name."""
    found = [cast(JSONObject, each) for each in cast(list[JSON], content or []) if isinstance(each, dict) and each]
    return [
        {"toolUse": complete_tool_use(cast(JSONObject, block["toolUse"]), index)}
        if isinstance(block.get("toolUse"), dict)
        else block
        for index, block in enumerate(found)
    ]


def complete_tool_use(use: JSONObject, index: int) -> JSONObject:
    """Return a call with its missing fields added. `index` is its position in the reply."""
    made: JSONObject = {"toolUseId": generated_id(index), "name": UNKNOWN_TOOL, "input": {}}
    return {**made, **{name: value for name, value in use.items() if value or name not in made}}


def block_index(said: JSONObject) -> int:
    """Return the index of the block that an event refers to."""
    index: JSON = said.get("contentBlockIndex")
    return index if isinstance(index, int) else 0


def bytes_to_base64(value: JSON) -> JSON:
    """Return the value with bytes, as boto3 returns them, converted to base64."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {name: bytes_to_base64(each) for name, each in cast(JSONObject, value).items()}
    return [bytes_to_base64(each) for each in cast(list[JSON], value)] if isinstance(value, list) else value


def collect_events(events: Iterable[JSONObject]) -> JSONObject:
    """Return a reply from the events of its stream."""
    reply: JSONObject = {}
    blocks: dict[int, JSONObject] = {}
    for event in events:
        for name, value in event.items():
            if not isinstance(value, dict):
                continue
            said = cast(JSONObject, bytes_to_base64(cast(JSON, value)))
            match name:
                case "contentBlockStart":
                    blocks[block_index(said)] = _start_block(object_or_empty(said.get("start")))
                case "contentBlockDelta":
                    _apply(blocks.setdefault(block_index(said), {}), object_or_empty(said.get("delta")))
                case "messageStop":
                    reply |= said
                case "metadata":
                    reply |= said
                case "error":
                    reply["error"] = said
                case _:  # messageStart, contentBlockStop, and event types of the future
                    pass
    content = [_finish_block(blocks[index], index) for index in sorted(blocks)]
    return {**reply, "output": {"message": {"role": "assistant", "content": [each for each in content if each]}}}


def _start_block(start: JSONObject) -> JSONObject:
    return {name: dict(cast(JSONObject, value)) for name, value in start.items() if isinstance(value, dict)}


def _apply(block: JSONObject, delta: JSONObject) -> None:
    for kind, said in delta.items():
        match kind:
            case "text":
                append_text(block, "text", text_of(said))
            case "toolUse":
                append_text(block.setdefault("toolUse", {}), "written", text_of(object_or_empty(said).get("input")))
            case "reasoningContent":
                _append_reasoning(block.setdefault(kind, {}), object_or_empty(said))
            case "citation":
                block.setdefault("citations", []).append(said)
            case "toolResult":
                block.setdefault(kind, {}).setdefault("content", []).extend(said if isinstance(said, list) else [])
            case _:
                _append_media(block, kind, said)


def _append_media(block: JSONObject, kind: str, said: JSON) -> None:
    """Append to media or an unknown block, whose bytes also arrive in pieces."""
    if not isinstance(said, dict) or not isinstance(block.setdefault(kind, {}), dict):
        block[kind] = said
        return
    held, more = cast(JSONObject, block[kind]), cast(JSONObject, said)
    pieces = [decode_base64(text_of(object_or_empty(each.get("source")).get("bytes"))) or b"" for each in (held, more)]
    held |= more
    if any(pieces):
        held["source"] = {"bytes": bytes_to_base64(b"".join(pieces))}


def _append_reasoning(thought: JSONObject, said: JSONObject) -> None:
    if "redactedContent" in said:
        pieces = [decode_base64(text_of(each.get("redactedContent"))) or b"" for each in (thought, said)]
        thought["redactedContent"] = bytes_to_base64(b"".join(pieces))
    for name in ("text", "signature"):
        if name in said:
            append_text(thought.setdefault("reasoningText", {"text": ""}), name, text_of(said[name]))


def _finish_block(block: JSONObject, index: int) -> JSONObject:
    """Return a block as it would be in an unstreamed reply. The stream may be incomplete."""
    if "citations" in block:
        return {"citationsContent": {"content": [{"text": block.get("text", "")}], "citations": block["citations"]}}
    if "toolUse" not in block:
        return block
    use = cast(JSONObject, block["toolUse"])
    call = tool_call("-", "-", use.get("written") or "")
    given: JSON = call.raw if call.malformed else call.arguments
    told = {name: value for name, value in use.items() if name != "written"}
    return {"toolUse": {**complete_tool_use(told, index), "input": given}}


class _Decoder:
    """Decodes messages. `model` is their author, if known. `sent`: this is a request, so all content was accepted."""

    def __init__(self, provider: str, model: str | None = None, *, sent: bool = False) -> None:
        self.provider, self.model, self.sent = provider, model, sent
        self.names: dict[str, str] = {}

    def message(self, wire: JSONObject) -> Iterator[Message]:
        role, content = cast(Role, wire["role"]), cast(list[JSONObject], wire["content"])
        made_up: JSONObject = {"text": DOCUMENT_TEXT}
        said = [each for each in content if "text" in each and not is_blank(each)]
        if said == [made_up] and any("document" in block for block in content):
            content = [block for block in content if block != made_up]
        yield from split_message(role, self.parts(content, role), self.provider)

    def parts(self, content: list[JSONObject], role: str) -> list[AnyPart]:
        found: list[AnyPart] = []
        for index, block in enumerate(content):
            if CACHE_POINT_KEY in block and found and not isinstance(found[-1], ProviderBlock):
                found[-1] = self._with(found[-1], {CACHE_POINT_KEY: block[CACHE_POINT_KEY]})
            elif self.sent and is_separator(content, index, role):
                found.append(self._with(Text(block["text"]), {UNCHANGED_KEY: True}))
            else:
                found.append(self.part(block, role))
        return found

    def part(self, block: JSONObject, role: str) -> AnyPart:
        kind = next(iter(block), "")
        part = self._part(kind, block, role)
        if part is None:
            return ProviderBlock(provider=self.provider, data=block)
        if isinstance(part, Text) or kind not in block or not isinstance(block[kind], dict):
            return part
        ours = encode_part(part, self.provider).get(kind)
        if ours is None:
            return part
        rest = extra_of(_as_sendable(part, block[kind], cast(JSONObject, ours)), cast(JSONObject, ours), kind)
        return self._with(part, rest) if rest else part

    def _with(self, part: AnyPart, rest: JSONObject) -> AnyPart:
        extra = part.extra or {}
        return replace(part, extra={**extra, self.provider: {**extra.get(self.provider, {}), **rest}})

    def _part(self, kind: str, block: JSONObject, role: str) -> AnyPart | None:
        """Return the part of a block, or None if only Bedrock can read it."""
        inside: JSON = block[kind]
        match kind:
            case "text":
                return Text(inside)
            case "citationsContent" | "guardContent":
                if kind == "guardContent" and "text" not in inside:
                    return None
                return Text(block_text(block), extra={self.provider: {kind: inside}})
            case "reasoningContent":
                return self._reasoning(cast(JSONObject, inside))
            case "toolUse" if is_client_tool(inside):
                self.names[inside["toolUseId"]] = inside["name"]
                return ToolCall(id=inside["toolUseId"], name=inside["name"], arguments=inside["input"])
            case "toolResult" if is_client_tool(inside):
                return self._result(cast(JSONObject, inside))
            case "image" | "document" if isinstance(inside, dict):
                return decode_media(kind, cast(JSONObject, inside))
            case "video" | "audio" if role == "user":
                return decode_media(kind, cast(JSONObject, inside))
            case _:
                return None

    def _reasoning(self, inside: JSONObject) -> Reasoning | None:
        if "redactedContent" in inside:
            return Reasoning(data=inside["redactedContent"], provider=self.provider, model=self.model)
        if not isinstance(inside.get("reasoningText"), dict):
            return None
        thought = cast(JSONObject, inside["reasoningText"])
        unsigned = self.sent and thought.get("signature") is None
        return Reasoning(
            text=text_of(thought.get("text")),
            signature=thought.get("signature"),
            provider=self.provider,
            model=self.model,
            extra={self.provider: {UNCHANGED_KEY: True}} if unsigned else None,
        )

    def _result(self, inside: JSONObject) -> ToolResult:
        call_id, content = inside["toolUseId"], cast(list[JSONObject], inside["content"])
        parts = [self.part(each, "user") for each in content]
        fits = all(isinstance(part, Text | Media) for part in parts)
        failed = inside.get("status") == "error"
        plain = len(parts) == 1 and isinstance(parts[0], Text)
        said: object = tuple(parts) if fits and parts else encode(content).decode() if parts else ""
        if plain:
            said = "" if failed and content == [{"text": EMPTY_ERROR_TEXT}] else cast(Text, parts[0]).text
        elif len(content) == 1 and "json" in content[0]:
            said = encode(content[0]["json"]).decode()
        return ToolResult(
            call_id=call_id, name=self.names.get(call_id, UNKNOWN_TOOL), content=cast(str, said), is_error=failed
        )

    def tools(self, given: list[JSONObject]) -> list[Tool | NativeTool]:
        found: list[Tool | NativeTool] = []
        for wire in given:
            last = found[-1] if found else None
            if CACHE_POINT_KEY in wire and isinstance(last, Tool):
                rest = (last.extra or {}).get(self.provider, {})
                found[-1] = replace(last, extra={self.provider: {**rest, CACHE_POINT_KEY: wire[CACHE_POINT_KEY]}})
            elif wire != encode_tool(PLACEHOLDER_TOOL):
                found.append(self.tool(wire))
        return found

    def tool(self, wire: JSONObject) -> Tool | NativeTool:
        if "toolSpec" not in wire:
            return NativeTool(provider=self.provider, data=wire)
        spec = cast(JSONObject, wire["toolSpec"])
        made = Tool(
            name=spec["name"],
            description=spec.get("description") or "",
            parameters=spec["inputSchema"].get("json") or {},
            strict=spec.get("strict"),
        )
        given = {name: value for name, value in spec.items() if (name, value) != ("description", "")}
        rest = extra_of(given, encode_tool(made)["toolSpec"], "toolSpec")
        return replace(made, extra={self.provider: rest}) if rest else made


def _as_sendable(part: AnyPart, given: JSONObject, ours: JSONObject) -> JSONObject:
    """Return the content of a block, with our encoding in place of fields that a request must not have."""
    if isinstance(part, ToolCall):  # replies of some models contain a type
        given = {name: value for name, value in given.items() if (name, value) != ("type", "tool_use")}
        return {**given, "input": ours["input"]} if part.malformed else given
    if isinstance(part, Media) and "name" in ours and not DOCUMENT_NAME.fullmatch(given["name"]):
        return {**given, "name": ours["name"]}
    if isinstance(part, ToolResult) and not _is_sendable_result(part, given["content"]):
        return {**given, "content": ours["content"]}
    return given


def _is_sendable_result(part: ToolResult, content: list[JSONObject]) -> bool:
    named = [each["document"]["name"] for each in content if "document" in each]
    plain = all(isinstance(each["json"], dict) for each in content if "json" in each)
    return plain and all(map(DOCUMENT_NAME.fullmatch, named)) and not (part.is_error and part.content == "")
