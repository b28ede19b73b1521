"""Mistral's chat API: messages and chunks encoded and decoded, and its streams."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from string import ascii_letters, digits
from typing import assert_never, cast

from msgspec.structs import replace

from contextc._json import JSON, JSONObject, as_object
from contextc.formats.base import (
    UNKNOWN_TOOL,
    EncodedSegment,
    PartEncoder,
    Request,
    append_text,
    arguments_text,
    decode_definition,
    generated_id,
    merge_extra,
    other_fields,
    own_extra,
    simplify_content,
    tag_system_blocks,
    with_extra,
)
from contextc.formats.lint_engine import FieldTypes
from contextc.formats.message_preparation import (
    IdentifierCodec,
    decode_base64,
    from_data_url,
    guess_media_type,
    media_from_url,
    to_data_url,
)
from contextc.formats.openai_chat.codec import merge_call_fragment
from contextc.formats.openai_chat.streams import ChatStreamReader
from contextc.formats.streams import Delta
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

# ── ids of calls ──────────────────────────────────────────────────────────────────────────────────────────────────────
# Encode tool call ids for Mistral: exactly nine letters and digits.
#
# Ids that Mistral made already have this form and stay. Any other id becomes a hash, the same for the call and its
# result. No decoding is needed, because a model answers only with ids of its own.


LENGTH = 9
LETTERS = digits + ascii_letters


class NineCharacterIds(IdentifierCodec):
    def __init__(self) -> None:
        super().__init__("a-zA-Z0-9", LENGTH, accepted=f"[a-zA-Z0-9]{{{LENGTH}}}")

    def is_unchanged(self, text: str) -> bool:
        return self.accepts(text)

    def _reencode(self, text: str) -> str:
        number = int.from_bytes(sha256(text.encode("utf-8", "replace")).digest())
        spelled = ""
        while len(spelled) < LENGTH:
            number, place = divmod(number, len(LETTERS))
            spelled += LETTERS[place]
        return spelled


# ── encoding ──────────────────────────────────────────────────────────────────────────────────────────────────────────
# Encode messages for Mistral's chat completions.
#
# The format resembles OpenAI's, with these differences:
#
#     - A system message may be first, or follow system and user messages. After a reply or a tool result Mistral
#       rejects it, so it becomes tagged user text.
#     - Reasoning is sent back among the chunks of the reply.
#     - Tool results name their tool and hold text. Media that a tool returned goes into a user message directly
#       after the results of its step.
#     - Fields that Mistral does not define are rejected, so a message has no others.


CHUNKS: dict[str, FieldTypes] = {
    "text": {"text": str},
    "image_url": {"image_url": (str, dict)},
    "document_url": {"document_url": str, "document_name?": str},
    "input_audio": {"input_audio": str},
    "file": {"file_id": str},
    "reference": {"reference_ids": list},
    "resource": {"uri": str, "content": dict},
    "resource_link": {"uri": str, "metadata?": dict},
    "thinking": {"thinking": list, "signature?": str, "closed?": bool},
}
ALLOWED_CHUNKS: dict[str, tuple[str, ...]] = {
    "system": ("text", "thinking"),
    "user": tuple(kind for kind in CHUNKS if kind != "thinking"),
    "assistant": tuple(kind for kind in CHUNKS if kind not in ("image_url", "input_audio")),
    "tool": tuple(kind for kind in CHUNKS if kind != "thinking"),
}
"""Chunk types that a message of each role may hold. The newest models reject thinking chunks of the system."""
EMPTY_CONTENT, OBJECT_ARGUMENTS, UNNAMED_RESULT = "content", "object", "nameless"
"""Keys in `extra`: the empty content of a message; arguments given as an object; a result without a tool name."""
IMAGE_TYPES = ("image/jpeg", "image/png", "image/gif", "image/webp")
AUDIO_TYPES = ("audio/wav", "audio/mpeg", "audio/mp3", "audio/flac", "audio/ogg")
DOCUMENT_TYPES = (
    "application/pdf",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    "application/vnd.openxmlformats-officedocument.presentationml.presentation",
)
ROLES_BEFORE_NO_SYSTEM = ("assistant", "tool")


def encode_segment(segment: Sequence[Message], *, provider: str, blobs: Mapping[str, bytes]) -> EncodedSegment:
    encoder = Encoder(provider, blobs)
    wire: list[JSONObject] = []
    for message in segment:
        if message.role == "tool":
            wire += encoder.results(message)
        elif (encoded := encoder.message(message)) is not None:
            if message.role == "system" and wire and wire[-1]["role"] in ROLES_BEFORE_NO_SYSTEM:
                encoder.note_tagged_system()
                encoded = as_tagged_user_text(encoded)
            wire.append(encoded)
    return EncodedSegment(tuple(wire), tuple(encoder.notes))


def as_tagged_user_text(message: JSONObject) -> JSONObject:
    """Return a system message as tagged user text."""
    blocks = tag_system_blocks([_as_text(block) for block in as_chunks(message["content"])])
    return {"role": "user", "content": simplify_content(blocks) or ""}


def _as_text(block: JSONObject) -> JSONObject:
    """Return a system block as text. System content may also include a thinking chunk to follow."""
    if "text" in block:
        return block
    return {"type": "text", "text": thinking_text(block)}


def thinking_text(block: JSONObject) -> str:
    """Return the text of a thinking chunk. Some producers write it as one string."""
    return "".join([each["text"] for each in as_chunks(block.get("thinking")) if each.get("type") == "text"])


def as_chunks(content: JSON) -> list[JSONObject]:
    """Return the content of a message as a list of chunks."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return cast(list[JSONObject], content or [])


class Encoder(PartEncoder):
    def message(self, message: Message) -> JSONObject | None:
        """Encode a system, user or assistant message; return None if none of it can be sent."""
        content: list[JSONObject] = []
        calls: list[JSONObject] = []
        for part in message.parts:
            if type(part) is Text:
                if part.text:
                    content.append({"type": "text", "text": part.text})
            elif type(part) is ToolCall:
                calls.append(self.call(part))
            elif (block := self.block(part, message.role)) is not None:
                content.append(block)
        if calls:
            return {"role": message.role, "content": simplify_content(content) or "", "tool_calls": calls}
        if not content and message.role != "assistant":
            nothing = own_extra(message.extra, self.provider).get(EMPTY_CONTENT)
            return None if nothing is None else {"role": message.role, "content": nothing}
        return {"role": message.role, "content": simplify_content(content)} if content else None

    def call(self, part: ToolCall) -> JSONObject:
        written: JSON = arguments_text(part)
        if part.extra is not None and own_extra(part.extra, self.provider).get(OBJECT_ARGUMENTS) and not part.malformed:
            written = part.arguments
        return {"id": part.id, "type": "function", "function": {"name": part.name, "arguments": written}}

    def results(self, message: Message) -> list[JSONObject]:
        """Encode each result as one message, and what results cannot hold as a user message."""
        wire: list[JSONObject] = []
        shown: list[JSONObject] = []
        for part in message.parts:
            if type(part) is not ToolResult:
                if (beside := self.block(part, "user")) is not None:
                    shown.append(beside)
                continue
            rest = own_extra(part.extra, self.provider)
            content: JSON = part.content
            if not isinstance(part.content, str):
                texts = [_text(each) for each in part.content if isinstance(each, Text) and each.text]
                content = simplify_content(texts) or ""
                media = [each for each in part.content if isinstance(each, Media)]
                if media and EMPTY_CONTENT not in rest:
                    self.note_moved_media(part)
                    shown += [{"type": "text", "text": f"[media returned by {part.name}]"}]
                    shown += [self.media(each) for each in media]
            self.note_error_flag(part)
            answer: JSONObject = {"role": "tool", "tool_call_id": part.call_id, "name": part.name}
            if rest.get(UNNAMED_RESULT):
                del answer["name"]
            wire.append({**answer, "content": rest.get(EMPTY_CONTENT, content)})
        return [*wire, {"role": "user", "content": simplify_content(shown)}] if shown else wire

    def block(self, part: AnyPart, role: Role) -> JSONObject | None:
        match part:
            case Text():
                return _text(part) if part.text else None
            case Reasoning():
                return self.reasoning(part) if role == "assistant" else None
            case Media():
                return self.media(part) if role == "user" else self.describe(part)
            case ProviderBlock():
                if part.provider == self.provider and (own := _allowed_native_chunk(part.data, role)) is not None:
                    return own
                return {"type": "text", "text": self.native_text(part)}
            case ToolCall() | ToolResult() | UserNotice():
                return None
            case _:
                assert_never(part)

    def reasoning(self, part: Reasoning) -> JSONObject | None:
        if not self.is_sendable(part, part.text or part.signature or part.extra):
            return None
        inner: list[JSONObject] = [{"type": "text", "text": part.text}] if part.text else []
        block: JSONObject = {"type": "thinking", "thinking": inner}
        if part.signature is not None:
            block["signature"] = part.signature
        return merge_extra(block, part.extra, self.provider)

    def media(self, part: Media) -> JSONObject:
        return merge_extra(self._media(part), part.extra, self.provider)

    def _media(self, part: Media) -> JSONObject:
        data = to_data_url(part, self.blobs)
        if part.kind == "image" and (part.url is not None or (data is not None and part.mime_type in IMAGE_TYPES)):
            return {"type": "image_url", "image_url": part.url or data}
        place = part.url or data
        if part.mime_type in AUDIO_TYPES and place is not None:
            return {"type": "input_audio", "input_audio": place}
        if part.mime_type in DOCUMENT_TYPES and place is not None:
            name: JSONObject = {"document_name": part.name} if part.name else {}
            return {"type": "document_url", "document_url": place, **name}
        if self.is_own_file(part):
            return {"type": "file", "file_id": part.file_id}
        return self.describe(part)

    def describe(self, part: Media) -> JSONObject:
        return {"type": "text", "text": self.media_text(part)}


def _allowed_native_chunk(data: JSON, role: Role) -> JSONObject | None:
    """Return a native chunk if a message of this role may hold it. A chunk of an unknown type is always kept."""
    chunk = cast(JSONObject, data) if isinstance(data, dict) else {}
    return chunk if chunk and (chunk.get("type") not in CHUNKS or chunk["type"] in ALLOWED_CHUNKS[role]) else None


def _text(part: Text) -> JSONObject:
    return {"type": "text", "text": part.text}


# ── decoding ──────────────────────────────────────────────────────────────────────────────────────────────────────────
# Decode Mistral's requests, replies and streams into messages.
#
# Only fields that Mistral defines are read from a message, chunk or call. Mistral rejects any others when they are
# sent back.


FINISH_REASONS = {"model_length": "length"}
"""Finish reasons of Mistral by their common name. `model_length`: the context window was full."""
THOUGHT_END_FIELDS = ("signature", "closed")
FAILED, NO_REASON_GIVEN = "error", "the model ended its reply with an error, and does not say which"
NO_ID = "null"  # written by the SDK for a call without an id
ROLES: dict[str, Role] = {"system": "system", "user": "user", "assistant": "assistant"}
AUDIO_SIGNATURES = {
    b"RIFF": "audio/wav",
    b"ID3": "audio/mpeg",
    b"\xff\xfb": "audio/mpeg",
    b"OggS": "audio/ogg",
    b"fLaC": "audio/flac",
}
"""First bytes of audio data, by media type."""


def decode_request(body: JSONObject, provider: str) -> Request:
    decoder = _Decoder(provider)
    messages = [decoder.message(wire) for wire in cast(list[JSONObject], body.get("messages", []))]
    # A system message directly before a reply stays in place: it begins the conversation.
    leads = messages and messages[0].role == "system" and (len(messages) == 1 or messages[1].role != "assistant")
    system = messages.pop(0) if leads else None
    return Request(
        messages=tuple(messages),
        system=system,
        tools=tuple(decode_tool(tool, provider) for tool in cast(list[JSONObject], body.get("tools") or [])),
        settings=other_fields(body, "messages", "tools"),
    )


def decode_tool(tool: JSONObject, provider: str) -> Tool | NativeTool:
    function = cast(JSONObject | None, tool.get("function"))
    return NativeTool(provider=provider, data=tool) if function is None else decode_definition(function, "parameters")


def decode_reply(reply: JSONObject, provider: str) -> Message:
    choices = cast(list[JSONObject], reply.get("choices") or [{}])
    choice = next((each for each in choices if each.get("index") == 0), choices[0])
    decoder = _Decoder(provider, model=reply.get("model"))
    said: JSONObject = {**cast(JSONObject, choice.get("message") or {}), "role": "assistant"}
    said["content"] = [_with_thinking_list(block) for block in as_chunks(said.get("content"))]
    usage = as_object(reply.get("usage"))
    facts: JSONObject = {name: reply[name] for name in ("id", "model") if reply.get(name)}
    cut = choice.get("finish_reason", "") is None and not usage
    finish = choice.get("finish_reason") or (None if cut else "stop")
    failure: JSON = reply.get("error")  # some replies only have the finish reason `error`
    reason = cast(JSONObject, failure).get("message") if isinstance(failure, dict) else failure
    error = str(reason) if failure else NO_REASON_GIVEN if finish == FAILED else None
    return replace(
        decoder.message(said),
        finish=FAILED if error else FINISH_REASONS.get(finish or "", finish),
        status="error" if error else "sent",
        error=error,
        usage=Usage(
            input=usage.get("prompt_tokens") or 0,
            output=usage.get("completion_tokens") or 0,
            cache_read=_cached_tokens(usage),
        ),
        extra={f"{provider} reply": facts} if facts else None,
    )


def _cached_tokens(usage: JSONObject) -> int:
    """Return the tokens read from the cache. Endpoints of Mistral's models use several names for them."""
    details = [usage.get(name) for name in ("prompt_tokens_details", "prompt_token_details")]
    inside = [cast(JSONObject, each).get("cached_tokens") for each in details if isinstance(each, dict)]
    found = [usage.get("num_cached_tokens"), *inside]
    return next((each for each in found if isinstance(each, int)), 0)


def collect_events(events: Iterable[JSONObject]) -> JSONObject:
    """Build a reply from the chunks of its stream. `error` is set if the stream ended with one."""
    reply: JSONObject = {}
    content: list[JSONObject] = []
    calls: list[JSONObject] = []
    finish = None
    for event in map(_unwrap_event, events):
        reply |= {name: event[name] for name in ("id", "model", "usage", "error") if event.get(name)}
        if event.get("object") == "error":
            reply["error"] = event
        for choice in cast(list[JSONObject], event.get("choices") or []):
            if choice.get("index") not in (None, 0):
                continue
            finish = choice.get("finish_reason") or finish
            delta = cast(JSONObject, choice.get("delta") or {})
            for block in as_chunks(delta.get("content")):
                _merge_chunk(content, block)
            for piece in cast(list[JSONObject], delta.get("tool_calls") or []):
                merge_call_fragment(calls, without_placeholder_id(piece))
    message: JSONObject = {"role": "assistant", "content": content}
    if calls:
        message["tool_calls"] = [
            {**call, "id": call["id"] or generated_id(number)} for number, call in enumerate(calls)
        ]
    return {**reply, "choices": [{"message": message, "finish_reason": finish}]}


def _unwrap_event(event: JSONObject) -> JSONObject:
    """Return the event itself; the SDK wraps it in `data`."""
    inner: JSON = event.get("data")
    return cast(JSONObject, inner) if isinstance(inner, dict) else event


def _merge_chunk(content: list[JSONObject], block: JSONObject) -> None:
    """Merge a chunk into the last one of its type, or append it."""
    last = content[-1] if content else {}
    if block.get("type") == "text" == last.get("type"):
        append_text(last, "text", block["text"])
    elif block.get("type") == "thinking":
        if last.get("type") != "thinking" or _begins_new_thought(last, block):
            content.append(last := {**block, "thinking": []})
        for inner in as_chunks(block.get("thinking")):
            _merge_chunk(last["thinking"], inner)
        last |= {name: block[name] for name in THOUGHT_END_FIELDS if block.get(name) is not None}
    else:
        content.append(dict(block))


def _begins_new_thought(last: JSONObject, block: JSONObject) -> bool:
    """Return True if a new thought begins: the last one is signed or closed, and this chunk does not just close or sign
    it.
    """
    ended = any([last.get(name) for name in THOUGHT_END_FIELDS])
    says = any([each.get("text", True) for each in as_chunks(block.get("thinking"))])
    again = any([last.get(name) is not None and block.get(name) is not None for name in THOUGHT_END_FIELDS])
    return ended and (says or again)


def _with_thinking_list(block: JSONObject) -> JSONObject:
    """Return a chunk of a reply; a thought given as a string becomes the list that Mistral accepts back."""
    is_text = block.get("type") == "thinking" and isinstance(block.get("thinking"), str)
    return {**block, "thinking": as_chunks(block["thinking"])} if is_text else block


def without_placeholder_id(piece: JSONObject) -> JSONObject:
    """Return a fragment of a call; the placeholder id becomes None."""
    return {**piece, "id": None} if piece.get("id") == NO_ID else piece


class _Decoder:
    def __init__(self, provider: str, model: str | None = None) -> None:
        self.provider, self.model = provider, model
        self.names: dict[str, str] = {}
        self.encoder = Encoder(provider, {})

    def message(self, wire: JSONObject) -> Message:
        if wire["role"] == "tool":
            return Message(role="tool", parts=(self.result(wire),))
        role, content = ROLES.get(wire["role"], "user"), cast(JSON, wire.get("content"))
        parts = [*self.parts(content, role)]
        parts += [self.call(call) for call in cast(list[JSONObject], wire.get("tool_calls") or [])]
        if not parts and role != "assistant":
            return Message(role=role, parts=(), extra={self.provider: {EMPTY_CONTENT: content}})
        return Message(role=role, parts=tuple(parts))

    def parts(self, content: JSON, role: Role) -> Iterator[AnyPart]:
        for block in as_chunks(content):
            block = _known_fields_only(block)
            part = self.part(block, role)
            if (isinstance(part, Text) and part.text) or isinstance(part, ProviderBlock):
                yield part
            elif isinstance(part, Media | Reasoning):
                ours = self.encoder.media(part) if isinstance(part, Media) else self.encoder.reasoning(part)
                yield with_extra(part, block, ours or {}, self.provider)

    def part(self, block: JSONObject, role: Role) -> AnyPart:
        match block["type"]:
            case "text":
                return Text(block["text"])
            case "thinking" if role == "assistant":
                signature = cast(str | None, block.get("signature"))
                return Reasoning(
                    text=thinking_text(block), signature=signature, provider=self.provider, model=self.model
                )
            case "image_url":
                picture: JSON = block["image_url"]
                url = cast(str, cast(JSONObject, picture)["url"] if isinstance(picture, dict) else picture)
                return media_from_url(url, "image/png")
            case "document_url":
                url, name = cast(str, block["document_url"]), cast(str | None, block.get("document_name"))
                return media_from_url(url, "application/pdf", name)
            case "input_audio":
                return _decode_audio(block["input_audio"]) or ProviderBlock(provider=self.provider, data=block)
            case "file":
                return Media(mime_type="application/octet-stream", file_id=block["file_id"], provider=self.provider)
            case "thinking" if role != "system":
                return Text(thinking_text(block))
            case _:
                return ProviderBlock(provider=self.provider, data=block)

    def call(self, call: JSONObject) -> ToolCall:
        function = cast(JSONObject, call["function"])
        call_id = cast(str | None, without_placeholder_id(call).get("id")) or generated_id(len(self.names))
        self.names[call_id] = function["name"]
        made = tool_call(call_id, function["name"], function.get("arguments") or "")
        is_object = isinstance(function.get("arguments"), dict)
        return replace(made, extra={self.provider: {OBJECT_ARGUMENTS: True}}) if is_object else made

    def result(self, wire: JSONObject) -> ToolResult:
        call_id, content = cast(str, wire.get("tool_call_id") or ""), cast(JSON, wire.get("content"))
        inner = tuple(self.parts(content, "tool")) if isinstance(content, list) else ()
        said = tuple(part for part in inner if isinstance(part, Text | Media))
        rest: JSONObject = {} if wire.get("name") else {UNNAMED_RESULT: True}
        if any(not isinstance(part, Text) for part in inner):  # the newest models accept images here
            rest[EMPTY_CONTENT] = [
                _known_fields_only(block) for block in as_chunks(content) if block["type"] in ALLOWED_CHUNKS["tool"]
            ]
        return ToolResult(
            call_id=call_id,
            name=self.names.get(call_id) or cast(str, wire.get("name") or UNKNOWN_TOOL),
            content=said or (content if isinstance(content, str) else ""),
            extra={self.provider: rest} if rest else None,
        )


def _known_fields_only(block: JSONObject) -> JSONObject:
    """Return a chunk with only the fields that Mistral defines; a chunk of an unknown type keeps all fields."""
    known = [name.removesuffix("?") for name in CHUNKS.get(block["type"], {})] or list(block)
    return {name: block[name] for name in ("type", *known) if block.get(name) is not None}


def _decode_audio(place: str) -> Media | None:
    """Return the audio in an `input_audio`: a URL, or base64 without a media type."""
    if (found := from_data_url(place)) is not None:
        return found
    if place.startswith(("http://", "https://")):
        return Media(mime_type=guess_media_type(place, "audio/mpeg"), url=place)
    data = decode_base64(place) or b""
    kind = next((kind for start, kind in AUDIO_SIGNATURES.items() if data.startswith(start)), None)
    return Media(mime_type=kind, data=data) if kind else None


# ── streams ───────────────────────────────────────────────────────────────────────────────────────────────────────────
# Read a Mistral stream: as in Chat Completions, but content may be a list that includes reasoning.


class MistralStreamReader(ChatStreamReader):
    def _added(self, delta: JSONObject) -> Iterable[Delta]:
        for block in as_chunks(delta.get("content")):
            if block.get("type") == "thinking" and (words := thinking_text(block)):
                yield Reasoning(text=words, provider=self.formatter.provider, model=self._model)
            elif block.get("type") == "text" and block["text"]:
                yield Text(block["text"])
        calls = [without_placeholder_id(piece) for piece in cast(list[JSONObject], delta.get("tool_calls") or [])]
        yield from super()._added({"tool_calls": calls})
