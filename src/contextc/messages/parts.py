"""The parts a message is made of: what was said, thought, asked for, returned, shown, or only meant for people.

Parts are frozen values. Their JSON form leaves defaults out, so a field added later changes no hash that exists; a
field nobody knows is refused, never dropped. A part of the wrong type is found when its message enters a store
(`admission.py`), because that is the one place everything passes.
"""

from typing import Literal, TypeAlias, cast

import msgspec

from contextc._json import JSON, JSONObject, check, encode, parse_object, well_formed_json
from contextc.errors import InvalidMessage, described

set_once = msgspec.structs.force_setattr


Extra: TypeAlias = dict[str, JSONObject]
"""What a provider said that has no place in our types, under the name of its format; given back to it alone."""


class Part(
    msgspec.Struct,
    frozen=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
    tag_field="type",
    gc=False,
    kw_only=True,
):
    """What every part has in common: it is frozen, its JSON form names its kind, and it keeps what did not fit."""

    extra: Extra | None = None


class Text(Part, frozen=True, tag="text"):
    """Words."""

    text: str


class Reasoning(Part, frozen=True, tag="reasoning", kw_only=True):
    """What a model thought. Its provider may demand it back unchanged, and nobody else understands its signature.

    `signature` vouches for the text, `data` is reasoning that only the provider can read, `id` is the provider's own
    name for it. `provider` and `model` say who may be given it again.
    """

    text: str = ""
    signature: str | None = None
    data: str | None = None
    id: str | None = None
    provider: str | None = None
    model: str | None = None


class ToolCall(Part, frozen=True, tag="tool_call", kw_only=True):
    """A model asks for a tool.

    `arguments` may be given as the text the model wrote. That text is kept in `raw`, because a provider wants its own
    spelling back. Where it holds no JSON object the call is `malformed` and `arguments` is empty; a text that is blank
    means no arguments.
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
            set_once(self, "arguments", parsed or {})
            set_once(self, "raw", written)
            set_once(self, "malformed", parsed is None)


class Media(Part, frozen=True, tag="media", kw_only=True):
    """A picture, a sound, a document. Exactly one of `data`, `blob`, `url` and `file_id` says where its bytes are.

    Give `data`; a store keeps it once, under its SHA-256, and hands the part back with `blob` and `size` instead.
    `file_id` is a file that lies with `provider`.
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
    """What a tool returned for the call `call_id`. `None` becomes the empty text, other values become JSON."""

    call_id: str
    name: str
    content: str | tuple[Text | Media, ...] = ""
    is_error: bool = False

    def __post_init__(self) -> None:
        content = cast(object, self.content)
        if not isinstance(content, str):
            set_once(self, "content", _result_content(content))

    @property
    def text(self) -> str:
        """The words of the result, without its media."""
        if isinstance(self.content, str):
            return self.content
        return "".join(part.text for part in self.content if isinstance(part, Text))


class Native(Part, frozen=True, tag="native", kw_only=True):
    """A block that only `provider` understands: returned to it as it came, described in one line to anybody else."""

    provider: str
    data: JSON


class Hint(Part, frozen=True, tag="hint"):
    """Words for people. No model is ever shown them."""

    text: str


AnyPart: TypeAlias = Text | Reasoning | ToolCall | ToolResult | Media | Native | Hint
PART_TYPES = (Text, Reasoning, ToolCall, ToolResult, Media, Native, Hint)


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
            raise InvalidMessage("a result holds text and media, nothing else.", field="content")
    return _as_json(cast(object, value))


def _as_json(value: object) -> str:
    """A value as JSON text, by the rules that hold for all JSON here: no NaN, no bytes, not too deep."""
    try:
        plain = msgspec.to_builtins(value, str_keys=True, builtin_types=(bytes, Part))
        problem = check(_lists(plain), "content")
        text = "" if problem else encode(well_formed_json(plain)).decode()
    except Exception as error:  # attributes of an object may raise anything
        kind = type(value).__name__
        raise InvalidMessage(
            f"a {kind} cannot become a tool result ({described(error)}). "
            "Return text, such as str(value), or what JSON can hold.",
            field="content",
        ) from error
    if problem:
        way_out = " Bytes go into a list of parts: [Media(…)]." if "bytes" in problem[1] else ""
        raise InvalidMessage(problem[1] + way_out, field=problem[0])
    return text


def _lists(value: JSON) -> JSON:
    if isinstance(value, list | tuple):
        return [_lists(each) for each in cast(list[JSON], value)]
    if isinstance(value, dict):
        return {key: _lists(each) for key, each in cast(JSONObject, value).items()}
    return value
