"""The message, its parts, and their constructors: `user("hi")`, `tool_result("c1", …)`.

Parts are immutable: text, reasoning, tool calls, tool results, media, provider blocks and user notices. Their JSON form
omits defaults, so a new field does not change existing hashes. Unknown fields are rejected, never dropped. Wrong types
are detected by validation when the message is stored (`validation.py`).

The `id` of a message is a hash of the content (`role`, `parts`, `author`, `recipients`) and of the id of the previous
message, so equal ids mean equal histories. All other fields are metadata outside the hash. A message that is not stored
yet has no `uid`, `id` or `seq`; a store returns a copy with them.
"""

import os
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Literal, TypeAlias, TypedDict, Unpack, cast

import msgspec

from contextc._json import (
    JSON,
    JSONObject,
    encode,
    encode_canonical,
    find_json_problem,
    fix_surrogates_in_json,
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
