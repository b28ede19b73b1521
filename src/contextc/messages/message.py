"""The message, its parts, and their constructors: `user("hi")`, `tool_result("c1", …)`.

Parts are immutable: text, reasoning, tool calls, tool results, media, provider blocks and user notices. Their JSON form
omits defaults, so a new field does not change existing hashes. Unknown fields are rejected, never dropped. Wrong types
are detected by validation when the message is stored.

The `id` of a message is a hash of the content (`role`, `parts`, `author`, `recipients`) and of the id of the previous
message, so equal ids mean equal histories. All other fields are metadata outside the hash. A message that is not stored
yet has no `uid`, `id` or `seq`; a store returns a copy with them.
"""

import codecs
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Literal, TypeAlias, TypedDict, Unpack, assert_never, cast

import msgspec
from msgspec.structs import replace

from contextc._json import (
    JSON,
    JSONObject,
    encode,
    encode_canonical,
    find_json_problem,
    fix_surrogates_in_json,
    hash_blob,
    parse_object,
)
from contextc.errors import InvalidMessage, describe_error

_set_field = msgspec.structs.force_setattr


Extra: TypeAlias = dict[str, JSONObject]
"""Provider fields without an equivalent in our types, by format name. They are sent back only in that format."""


class Part(
    msgspec.Struct,
    frozen=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
    tag_field="type",
    gc=False,
    kw_only=True,
):
    """Base class of all parts: immutable, with a type tag in JSON, and `extra` for provider fields."""

    extra: Extra | None = None


class Text(Part, frozen=True, tag="text"):
    """Text."""

    text: str


class Reasoning(Part, frozen=True, tag="reasoning", kw_only=True):
    """Reasoning of a model. Its provider may require it back unchanged; no other provider can verify it.

    `signature` authenticates the text, `data` is encrypted reasoning, `id` is the provider's id. `provider` and `model`
    state to which it may be sent again.
    """

    text: str = ""
    signature: str | None = None
    data: str | None = None
    id: str | None = None
    provider: str | None = None
    model: str | None = None


class ToolCall(Part, frozen=True, tag="tool_call", kw_only=True):
    """A tool call of a model.

    `arguments` may be passed as the text that the model wrote. That text is kept in `raw`, to send it back unchanged.
    If it is not a JSON object, the call is `malformed` and `arguments` is empty. Blank text means no arguments.
    """

    id: str
    name: str
    arguments: JSONObject
    raw: str | None = None
    malformed: bool = False

    def __post_init__(self) -> None:
        written = cast(object, self.arguments)
        if isinstance(written, str):
            parsed = parse_object(written) if written.strip() else {}
            _set_field(self, "arguments", parsed or {})
            _set_field(self, "raw", written)
            _set_field(self, "malformed", parsed is None)


class Media(Part, frozen=True, tag="media", kw_only=True):
    """An image, audio, video or document. Exactly one of `data`, `blob`, `url` and `file_id` locates its bytes.

    Pass `data`: a store keeps the bytes once, under their SHA-256, and returns the part with `blob` and `size` instead.
    `file_id` is a file uploaded to `provider`.
    """

    mime_type: str
    data: bytes | None = None
    blob: str | None = None
    size: int | None = None
    url: str | None = None
    file_id: str | None = None
    provider: str | None = None
    name: str | None = None

    @property
    def kind(self) -> Literal["image", "audio", "video", "document"]:
        """The kind of media that the MIME type names."""
        family = self.mime_type.partition("/")[0]
        return family if family in ("image", "audio", "video") else "document"


class ToolResult(Part, frozen=True, tag="tool_result", kw_only=True):
    """The result of the call `call_id`. `None` becomes empty text, other values become JSON."""

    call_id: str
    name: str
    content: str | tuple[Text | Media, ...] = ""
    is_error: bool = False

    def __post_init__(self) -> None:
        content = cast(object, self.content)
        if not isinstance(content, str):
            _set_field(self, "content", _result_content(content))

    @property
    def text(self) -> str:
        """The text of the result, without its media."""
        if isinstance(self.content, str):
            return self.content
        return "".join(part.text for part in self.content if isinstance(part, Text))


class ProviderBlock(Part, frozen=True, tag="native", kw_only=True):
    """A block specific to `provider`: sent back to it unchanged, and described in one line to other providers."""

    provider: str
    data: JSON


class UserNotice(Part, frozen=True, tag="hint"):
    """A notice for the user. It is never sent to a model."""

    text: str


AnyPart: TypeAlias = Text | Reasoning | ToolCall | ToolResult | Media | ProviderBlock | UserNotice
PART_TYPES = (Text, Reasoning, ToolCall, ToolResult, Media, ProviderBlock, UserNotice)


def _result_content(value: object) -> str | tuple[Text | Media, ...]:
    if value is None:
        return ""
    if isinstance(value, Text | Media):
        return (value,)
    if isinstance(value, list | tuple):
        items = [Text(item) if isinstance(item, str) else item for item in cast(list[object], value)]
        if any(isinstance(item, Part) for item in cast(list[object], value)):
            if all(isinstance(item, Text | Media) for item in items):
                return cast(tuple[Text | Media, ...], tuple(items))
            raise InvalidMessage("a tool result may contain only text and media.", field="content")
    return _as_json(cast(object, value))


def _as_json(value: object) -> str:
    """Return a value as JSON text. NaN, bytes and deep nesting are rejected, as in all JSON here."""
    try:
        plain = msgspec.to_builtins(value, str_keys=True, builtin_types=(bytes, Part))
        problem = find_json_problem(_lists(plain), "content")
        text = "" if problem else encode(fix_surrogates_in_json(plain)).decode()
    except Exception as error:  # attributes of an object may raise anything
        kind = type(value).__name__
        raise InvalidMessage(
            f"cannot convert {kind} to a tool result ({describe_error(error)})",
            field="content",
            fix="Return text, such as str(value), or a JSON value.",
        ) from error
    if problem:
        way_out = " Pass bytes as a list of parts: [Media(…)]." if "bytes" in problem[1] else ""
        raise InvalidMessage(problem[1] + way_out, field=problem[0])
    return text


def _lists(value: JSON) -> JSON:
    if isinstance(value, list | tuple):
        return [_lists(each) for each in cast(list[JSON], value)]
    if isinstance(value, dict):
        return {key: _lists(each) for key, each in cast(JSONObject, value).items()}
    return value


Role: TypeAlias = Literal["system", "user", "assistant", "tool"]
Status: TypeAlias = Literal["pending", "sent", "error", "cancelled"]

DEPTH_BYTES = 4
HASH_BYTES = 16


class Usage(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, kw_only=True, gc=False):
    """Tokens of one model call. `input` includes cache reads and writes; `output` includes reasoning.

    `cache_write_long` is the part of `cache_write` that is kept longer than by default, for a higher price.
    """

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0
    cache_write_long: int = 0


class Message(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, kw_only=True, gc=False):
    """One entry of a conversation: a role, parts, and metadata (docs/messages.md describes every field)."""

    role: Role
    parts: tuple[AnyPart, ...] = ()
    author: str | None = None
    recipients: tuple[str, ...] = ()

    uid: str = ""
    id: str = ""
    seq: int = 0

    audience: str | None = None
    as_role: Role | None = None
    run: str | None = None
    turn: int | None = None
    step: int | None = None
    status: Status = "sent"
    error: str | None = None
    finish: str | None = None
    time: int = 0
    usage: Usage | None = None
    meta: JSONObject | None = None
    extra: Extra | None = None
    redacted: bool = False

    @property
    def text(self) -> str:
        """The text of all Text parts, without reasoning, calls and notices."""
        return "".join([part.text for part in self.parts if isinstance(part, Text)])

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The tool calls of the message, in order."""
        return tuple([part for part in self.parts if type(part) is ToolCall])

    @property
    def tool_results(self) -> tuple[ToolResult, ...]:
        """The tool results of the message, in order."""
        return tuple([part for part in self.parts if type(part) is ToolResult])

    @property
    def trigger(self) -> str:
        """The name of the trigger that added this system message; empty if none did."""
        return str((self.meta or {}).get("trigger", "")) if self.role == "system" else ""

    def is_addressed_to(self, agent: str) -> bool:
        """Return True if this is a message from another agent to this agent, which counts as input."""
        return (
            self.role == "assistant"
            and self.author is not None
            and self.author != agent
            and agent in self.recipients
            and any([isinstance(part, Media) or (isinstance(part, Text) and part.text.strip()) for part in self.parts])
        )

    @property
    def at(self) -> datetime:
        """The time of the append. `time` is the same as a Unix timestamp in milliseconds."""
        return datetime.fromtimestamp(self.time / 1000, UTC)


def canonical_content(message: Message) -> bytes:
    """Return the canonical form of the content, independent of the position in a conversation."""
    return encode_canonical((message.role, message.parts, message.author, message.recipients))


def hash_content(message: Message) -> bytes:
    """Return a hash of the content of a message. Equal content has the same hash."""
    return blake2b(canonical_content(message), digest_size=HASH_BYTES, person=b"contextc content").digest()


def make_chain_id(parent_id: bytes, content: bytes) -> bytes:
    """Return the id of a message with this canonical content after `parent_id`, a message's id or the root.

    It begins with the depth in the chain (four bytes), so that a message is found by its id without an index. The rest
    is the hash. The ids of a chain sort in its order.
    """
    depth = int.from_bytes(parent_id[:DEPTH_BYTES]) + 1
    named = blake2b(parent_id + content, digest_size=HASH_BYTES, person=b"contextc message")
    return depth.to_bytes(DEPTH_BYTES) + named.digest()


def make_root_id() -> bytes:
    """Return a new root: depth 0 and random, so that conversations with equal content have different ids."""
    return bytes(DEPTH_BYTES) + os.urandom(HASH_BYTES)


encode_message = msgspec.json.Encoder().encode
decode_message = msgspec.json.Decoder(Message).decode


REDACTED_TEXT = "[removed]"


def to_plain_text(message: Message | None) -> str:
    """Return a message's text, its calls with their arguments, and its results, without reasoning and user notices."""
    if message is None:
        return ""
    if message.redacted:
        return REDACTED_TEXT
    texts = [message.text, *(_part_text(part) for part in message.parts if not isinstance(part, Text))]
    return " ".join(each for each in texts if each)


def _part_text(part: AnyPart) -> str:
    if isinstance(part, ToolCall):
        return f"calls {part.name}({encode(part.arguments).decode()})"
    return f"{part.name}: {part.text}" if isinstance(part, ToolResult) else ""


Content: TypeAlias = str | AnyPart | Iterable[str | AnyPart]


class MessageFields(TypedDict, total=False):
    """The fields of a message that are not its content."""

    author: str | None
    recipients: tuple[str, ...]
    uid: str
    audience: str | None
    as_role: Role | None
    run: str | None
    turn: int | None
    step: int | None
    status: Status
    error: str | None
    finish: str | None
    time: int
    usage: Usage | None
    meta: JSONObject | None
    extra: Extra | None


def user(content: Content, **fields: Unpack[MessageFields]) -> Message:
    """Create a user message from text, a part, or a list of both. `author` distinguishes several users."""
    return Message(role="user", parts=_to_parts(content), **fields)


def system(content: Content, **fields: Unpack[MessageFields]) -> Message:
    """Create a system message within a conversation. `audience` limits it to one agent."""
    return Message(role="system", parts=_to_parts(content), **fields)


def assistant(
    content: Content | None = None,
    *,
    reasoning: str | Reasoning | None = None,
    tool_calls: Iterable[ToolCall] = (),
    **fields: Unpack[MessageFields],
) -> Message:
    """Create an assistant message: reasoning first, then content, then tool calls."""
    if isinstance(tool_calls, Part):
        raise InvalidMessage("must be a list of calls, got one call", field="tool_calls", fix="Pass [call].")
    thought = (Reasoning(text=reasoning) if isinstance(reasoning, str) else reasoning,) if reasoning else ()
    return Message(role="assistant", parts=(*thought, *_to_parts(content), *tool_calls), **fields)


def tool_call(id: str, name: str, arguments: str | Mapping[str, JSON]) -> ToolCall:
    """Create a tool call with arguments as an object, or as the text that the model wrote."""
    # ToolCall parses text itself; the field is typed as the parsed value.
    return ToolCall(id=id, name=name, arguments=arguments if isinstance(arguments, str) else dict(arguments))  # pyright: ignore[reportArgumentType]


def tool_result(
    call_id: str, name: str, content: object = None, *, is_error: bool = False, **fields: Unpack[MessageFields]
) -> Message:
    """Create the tool message for one call. `content` is text, parts (text and media), or a JSON value."""
    # ToolResult converts other values to text itself; the field is typed as the converted value.
    result = ToolResult(call_id=call_id, name=name, content=content, is_error=is_error)  # pyright: ignore[reportArgumentType]
    return Message(role="tool", parts=(result,), **fields)


def _to_parts(content: Content | None) -> tuple[AnyPart, ...]:
    if content is None:
        return ()
    if isinstance(content, str):
        return (Text(content),) if content else ()
    if isinstance(content, Part):
        return (content,)
    if isinstance(content, bytes) or not isinstance(content, Iterable):
        raise InvalidMessage(
            f"must be text, a part such as Media, or a list of both, got {type(content).__name__}.",
            field="content",
        )
    return tuple(Text(each) if isinstance(each, str) else each for each in content)


# ── attached text files ───────────────────────────────────────────────────────────────────────────────────────────────
# Attached text files: which media are text, and what their text is.
#
# Programs and browsers name the type of a source file in many ways, or not at all: `.ts` is a video for some, `.py`
# has no type for others. So the bytes decide. A type that is text by name may have any usual encoding. Any other type
# counts as text only if its bytes are valid UTF-8 without control characters.


TEXT_TYPES = frozenset(
    f"application/{name}"
    for name in ("json", "xml", "yaml", "x-yaml", "toml", "sql", "javascript", "x-sh", "x-httpd-php", "x-ndjson")
)
BINARY_DOCUMENTS = frozenset(("application/pdf", "application/postscript"))
"""Documents that may consist of ASCII characters only, although nobody reads them as text."""
MISTAKEN_TYPES = frozenset(("image/svg+xml", "video/mp2t", "video/vnd.dlna.mpeg-tts"))
"""Types outside of `text` and `application` that text files have: SVG, and TypeScript by its file extension."""
BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
CONTROL_BYTES = re.compile(rb"[\x00-\x07\x0e-\x1a\x1c-\x1f\x7f]")
CHARSET = re.compile(r";\s*charset\s*=\s*\"?([\w.:-]+)", re.IGNORECASE)


def may_be_text(media: Media) -> bool:
    """Return True if the type of a file allows that its bytes are text."""
    mime_type = _plain_type(media)
    return mime_type in MISTAKEN_TYPES or (media.kind == "document" and mime_type not in BINARY_DOCUMENTS)


def read_text_file(media: Media, data: bytes | None) -> str | None:
    """Return the text of a file, or None if it is not text or its bytes are not available."""
    if data is None or not may_be_text(media):
        return None
    for mark, encoding in BYTE_ORDER_MARKS:
        if data.startswith(mark):
            return _decode(data, encoding)
    mime_type = _plain_type(media)
    if not (mime_type.startswith("text/") or mime_type in TEXT_TYPES or mime_type.endswith(("+json", "+xml"))):
        return None if CONTROL_BYTES.search(data) else _decode(data, "utf-8")
    named = CHARSET.search(media.mime_type)
    guesses = [named[1]] if named else []
    if b"\x00" in data:  # UTF-16 without a mark: every second byte of Latin letters is zero
        if data.count(b"\x00", 0, 2000) * 3 < len(data[:2000]):
            return None
        guesses.append("utf-16-be" if data[:1] == b"\x00" else "utf-16-le")
    else:
        guesses += ["utf-8", "cp1252", "latin-1"]
    return next((text for encoding in guesses if (text := _decode(data, encoding)) is not None), None)


def _plain_type(media: Media) -> str:
    return media.mime_type.partition(";")[0].strip().lower()


def _decode(data: bytes, encoding: str) -> str | None:
    try:
        return data.decode(encoding)
    except (UnicodeDecodeError, LookupError):
        return None


# ── validation ────────────────────────────────────────────────────────────────────────────────────────────────────────
# Validation of messages before they are stored.
#
# The rules, each with a test:
#   unknown role, wrong type, unknown field      rejected
#   blank user or system message                 rejected; blank text beside other parts is kept
#   empty assistant message                      rejected, except with a finish reason or an error status
#   call without id or name                      rejected; malformed arguments are kept raw and marked (`ToolCall`)
#   result without its call's id or name         rejected
#   NaN, infinity, keys that are not strings     rejected, because JSON cannot represent them
#   nesting beyond 100 levels                    rejected; inside text (call arguments, results) it is kept
#   a message beyond 256 MiB                     rejected
#   NUL                                          kept
#   surrogate pairs                              joined; lone surrogates, which cannot be encoded, become U+FFFD


MAX_BYTES = 256 * 1024 * 1024
TEXT_MESSAGE_END = b'"}]}'
ALLOWED_VALUES = {
    "status": " Use sent, error or cancelled.",
    "as_role": " Use system, user, assistant or tool.",
}


class ValidatedMessage(msgspec.Struct, frozen=True, gc=False):
    """A validated message: a private copy, its canonical content, and its media.

    `blobs` has the name of every blob that the message uses, with its bytes if the message contained them.
    """

    message: Message
    content: bytes
    blobs: dict[str, bytes | None]


def validate_message(message: Message) -> ValidatedMessage:
    """Validate a message and prepare it for a chain, or raise `InvalidMessage`."""
    if type(message) is not Message:
        raise InvalidMessage(
            f"expected a Message, got {type(message).__name__}",
            fix="Create one with contextc.user, assistant, system or tool_result.",
        )
    parts = message.parts
    if not isinstance(parts, tuple | list):
        raise InvalidMessage(f"must be a tuple of parts, got {type(parts).__name__}.", field="parts")
    blobs: dict[str, bytes | None] = {}
    for part in parts:
        if type(part) is not Text and _has_media(part):
            message = replace(message, parts=tuple([_detach_media(part, blobs) for part in parts]))
            break
    if problem := _find_problem(message):
        raise InvalidMessage(problem[1], field=problem[0])
    message = _copy(message)
    return ValidatedMessage(message, canonical_content(message), blobs)


def _copy(message: Message) -> Message:
    """Copy a message through JSON, which checks its types and detaches it from the caller's dicts."""
    try:
        try:
            body = encode_message(message)
        except UnicodeEncodeError:
            body = encode_message(fix_surrogates_in_json(msgspec.to_builtins(message)))
            message = decode_message(body)
        if len(body) > MAX_BYTES:
            raise InvalidMessage(
                f"the message has {len(body):,} bytes, the limit is {MAX_BYTES:,}",
                fix="Pass large content as Media with `data`, or store it elsewhere and pass its URL.",
            )
        return message if _is_one_text(message, body) else decode_message(body)
    except msgspec.ValidationError as error:
        problem, _, path = str(error).partition(" - at `$.")
        allowed = ALLOWED_VALUES.get(path.rstrip("`"), "")
        raise InvalidMessage(f"{problem}.{allowed}", field=path.rstrip("`")) from error
    except TypeError as error:
        raise InvalidMessage(f"{error}.") from error


def _is_one_text(message: Message, body: bytes) -> bool:
    """Return True for a message with one text and no other fields: nothing in it is mutable or of a wrong type.

    Its JSON ends with its only part, because any other field would follow it.
    """
    parts = message.parts
    return body.endswith(TEXT_MESSAGE_END) and type(parts) is tuple and len(parts) == 1 and type(parts[0]) is Text


def _find_problem(message: Message) -> tuple[str, str] | None:
    """Return the first violated rule: the field, and the problem with its fix."""
    role, has_content = message.role, False
    for index, part in enumerate(message.parts):
        if type(part) is Text and part.extra is None:
            if type(part.text) is not str:
                return f"parts[{index}].text", f"must be text, got {type(part.text).__name__}."
            has_content = has_content or not (part.text == "" or part.text.isspace())
            continue
        if not isinstance(part, Part):
            return f"parts[{index}]", f"must be a part such as Text or ToolCall, got {type(part).__name__}."
        for field, problem in _find_part_problems(part, role):
            return f"parts[{index}]{field}", problem
        has_content = has_content or _has_content(part)
    if message.status == "pending":
        return "status", "must not be pending. Open a stream for the message, or append it when it is complete."
    if type(message.time) is not int or not 0 <= message.time < 1 << 53:
        return "time", f"must be an integer Unix timestamp in milliseconds, got {message.time!r}."
    if message.redacted:
        return "redacted", "must be False. Append the message, then redact it with store.redact."
    if message.meta is not None and (found := find_json_problem(message.meta, "meta")):
        return found
    if message.extra is not None and (found := find_json_problem(message.extra, "extra")):
        return found
    if role == "user" or role == "system":
        if not has_content:
            return "parts", f"a {role} message needs text that is not blank, or media."
    elif role == "assistant":
        if not has_content and message.finish is None and message.status == "sent":
            return (
                "parts",
                "an assistant message needs text, reasoning, media or a call. A provider's empty reply is stored with "
                "its finish reason: assistant(finish=…).",
            )
    elif role == "tool":
        if not message.tool_results:
            return "parts", "a tool message needs a result: contextc.tool_result(call_id, name, content)."
    else:
        return "role", f"must be system, user, assistant or tool, got {role!r}."
    return None


def _find_part_problems(part: AnyPart, role: str) -> Iterator[tuple[str, str]]:
    if part.extra is not None and (found := find_json_problem(part.extra, ".extra")):
        yield found
    match part:
        case ToolCall():
            if role != "assistant":
                yield "", f"a tool call must be in an assistant message, not in a {role} message."
            yield from _check_not_blank(("id", part.id), ("name", part.name))
            if not isinstance(part.arguments, dict):
                kind = type(part.arguments).__name__
                yield ".arguments", f"must be an object, got {kind}. Pass a dict, or the text that the model wrote."
            elif found := find_json_problem(part.arguments, ".arguments"):
                yield found
        case ToolResult():
            if role != "tool":
                yield "", f"a tool result must be in a tool message, not in a {role} message."
            yield from _check_not_blank(("call_id", part.call_id), ("name", part.name))
            if not isinstance(part.content, str):
                for index, inner in enumerate(part.content):
                    if isinstance(inner, Media):
                        yield from (
                            (f".content[{index}]{field}", text) for field, text in _find_part_problems(inner, role)
                        )
        case Reasoning():
            if role != "assistant":
                yield "", f"reasoning must be in an assistant message, not in a {role} message."
        case Media():
            if part.data is not None:
                yield ".data", f"must be bytes, got {type(part.data).__name__}. Decode base64 first."
            if not isinstance(part.mime_type, str) or "/" not in part.mime_type:
                yield ".mime_type", f"must be a media type such as image/png, got {part.mime_type!r}."
            if [part.blob, part.url, part.file_id].count(None) != 2:
                yield "", "media needs exactly one of data, blob, url and file_id."
        case ProviderBlock():
            yield from _check_not_blank(("provider", part.provider))
            if found := find_json_problem(part.data, ".data"):
                yield found
        case Text() | UserNotice():
            if type(part.text) is not str:
                yield ".text", f"must be text, got {type(part.text).__name__}."
        case _:
            assert_never(part)


def _check_not_blank(*names: tuple[str, object]) -> Iterator[tuple[str, str]]:
    for field, value in names:
        if not isinstance(value, str) or not value.strip():
            yield f".{field}", f"must be text that is not blank, got {value!r}."


def _has_content(part: AnyPart) -> bool:
    match part:
        case Reasoning():
            return bool(part.text or part.data)
        case UserNotice():
            return False
        case Text():
            return not (part.text == "" or part.text.isspace())
        case ToolCall() | ToolResult() | Media() | ProviderBlock():
            return True
        case _:
            assert_never(part)


def _has_media(part: AnyPart) -> bool:
    return isinstance(part, Media) or (isinstance(part, ToolResult) and not isinstance(part.content, str))


def _detach_media(part: AnyPart, blobs: dict[str, bytes | None]) -> AnyPart:
    """Return the part without its bytes, which are added to `blobs` under their hash."""
    if isinstance(part, Media):
        if isinstance(part.data, bytes):
            name = hash_blob(part.data)
            blobs[name] = part.data
            return replace(part, data=None, blob=name, size=len(part.data))
        if part.blob:
            blobs.setdefault(part.blob, None)
    if isinstance(part, ToolResult) and not isinstance(part.content, str):
        content = tuple(_detach_media(inner, blobs) for inner in part.content)
        return replace(part, content=content)  # pyright: ignore[reportArgumentType]
    return part
