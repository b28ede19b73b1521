"""The parts of a message: text, reasoning, tool calls, tool results, media, provider blocks and user notices.

Parts are immutable. Their JSON form omits defaults, so a new field does not change existing hashes. Unknown fields are
rejected, never dropped. Wrong types are detected by validation when the message is stored (`admission.py`).
"""

from typing import Literal, TypeAlias, cast

import msgspec

from contextc._json import JSON, JSONObject, encode, find_json_problem, fix_surrogates_in_json, parse_object
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
