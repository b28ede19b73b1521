"""Shared parts of encoders and decoders: base classes, codecs of tool definitions, functions of decoders."""

from collections.abc import Callable, Iterable, Mapping
from typing import ClassVar, NamedTuple, TypeVar, cast

from msgspec.structs import replace

from contextc._json import JSON, JSONObject, encode
from contextc.formats.base import ConversionNote, Formatter, NoteAction, Request, extra_of, merge_extra, own_extra
from contextc.formats.media_encoding import describe_media
from contextc.formats.message_groups import APART_KEY
from contextc.messages import AnyPart, Extra, Media, Message, ProviderBlock, Reasoning, Text, ToolCall, ToolResult
from contextc.tools.spec import Tool


class Codec(NamedTuple):
    """The functions of a format. The second argument of a decoder is the provider."""

    encode_tool: Callable[[Tool], JSONObject]
    decode_request: Callable[[JSONObject, str], Request]
    decode_reply: Callable[[JSONObject, str], Message]
    collect_events: Callable[[Iterable[JSONObject]], JSONObject]


class CodecFormatter(Formatter):
    """A format with a codec. It may still define a method of its own, where options matter."""

    codec: ClassVar[Codec]

    def encode_tool(self, tool: Tool) -> JSONObject:
        return self.codec.encode_tool(tool)

    def _decode_request(self, body: JSONObject) -> Request:
        return self.codec.decode_request(body, self.provider)

    def _decode_reply(self, reply: JSONObject) -> Message:
        return self.codec.decode_reply(reply, self.provider)

    def _collect(self, events: Iterable[JSONObject]) -> JSONObject:
        return self.codec.collect_events(events)


NO_PARAMETERS: JSONObject = {"type": "object", "properties": {}}


def encode_definition(tool: Tool, schema_key: str, schema: JSON = None, *, strict: bool = True) -> JSONObject:
    """Return the fields of a tool. `schema` is the tool's own by default, and `strict` is False if there is no flag."""
    definition: JSONObject = {"name": tool.name}
    if tool.description:
        definition["description"] = tool.description
    definition[schema_key] = (tool.parameters or {"type": "object"}) if schema is None else schema
    if strict and tool.strict is not None:
        definition["strict"] = tool.strict
    return definition


def decode_definition(wire: JSONObject, schema_key: str, *, strict: bool = True) -> Tool:
    """Return a tool from its fields. This reverses `encode_definition`."""
    return Tool(
        name=wire["name"],
        description=wire.get("description") or "",
        parameters=wire.get(schema_key) or {},
        strict=wire.get("strict") if strict else None,
    )


def merge_function_extra(ours: JSONObject, extra: Extra | None, provider: str) -> JSONObject:
    """Return our encoding of a tool or call with the provider's own data restored, also inside its `function`."""
    rest = dict(own_extra(extra, provider))
    inside = cast(JSONObject, rest.pop("function", {}))
    whole = merge_extra(ours, {provider: rest}, provider)
    return {**whole, "function": merge_extra(ours["function"], {provider: inside}, provider)} if inside else whole


class PartEncoder:
    """Encodes the parts of messages for one provider. `notes` are the changes made so far."""

    def __init__(self, provider: str, blobs: Mapping[str, bytes]) -> None:
        self.provider, self.blobs = provider, blobs
        self.notes: list[ConversionNote] = []

    def note(self, done: NoteAction, text: str) -> None:
        self.notes.append(ConversionNote(done, text))

    def note_tagged_system(self) -> None:
        self.note("tagged", "a system message, as user text in <system-reminder>")

    def note_moved_media(self, result: ToolResult) -> None:
        self.note("moved", f"media of {result.name}, into a user message after the results")

    def note_error_flag(self, result: ToolResult) -> None:
        """Add a note if a result is an error, for formats without an error flag. Only its text can state the error."""
        if result.is_error:
            self.note("left out", f"that the result of {result.name} is an error")

    def media_text(self, part: Media) -> str:
        """Return one line of text that replaces media."""
        self.note("described", f"{part.kind} of type {part.mime_type}")
        return describe_media(part)

    def native_text(self, part: ProviderBlock) -> str:
        """Return one line of text that replaces another provider's block."""
        self.note("described", f"a block of {part.provider}")
        return describe_native(part)

    def with_media_as_text(self, message: Message) -> Message:
        """Return a message that may contain only text."""
        parts = [Text(self.media_text(part)) if isinstance(part, Media) else part for part in message.parts]
        return replace(message, parts=tuple(parts))

    def arguments_object(self, call: ToolCall) -> JSON:
        """Return the arguments of a call as an object, for formats that accept no text. Malformed ones are wrapped."""
        if not call.malformed:
            return call.arguments
        self.note("changed", f"the malformed arguments of {call.name}, into an object that holds their text")
        return {"malformed_arguments": call.raw}

    def is_own(self, part: Reasoning) -> bool:
        """Return True if this provider wrote the reasoning. No other can read it."""
        return part.provider == self.provider

    def is_sendable(self, part: Reasoning, content: object) -> bool:
        """Return True if reasoning is this provider's and has `content`. Otherwise note that it is left out."""
        if self.is_own(part) and content:
            return True
        self.note("left out", f"reasoning of {part.provider or 'an unknown provider'}")
        return False

    def is_own_file(self, part: Media) -> bool:
        """Return True if media is a file that this provider stores."""
        return part.file_id is not None and part.provider == self.provider


def describe_native(native: ProviderBlock) -> str:
    """Return one line of text that replaces another provider's block. A refusal keeps its text."""
    data = cast(JSONObject, native.data) if isinstance(native.data, dict) else {}
    if isinstance(data.get("refusal"), str) and data["refusal"].strip():
        return data["refusal"]
    kind = data.get("type") or next(iter(data), "block")
    return f"[{native.provider} {kind}; not shown]"


def arguments_text(call: ToolCall) -> str:
    """Return the arguments of a call as the text that the model wrote."""
    return call.raw if call.raw is not None else encode(call.arguments).decode()


def simplify_content(blocks: list[JSONObject], kind: str | None = None) -> JSON:
    """Return a single plain text as a string. `kind` is the type of its block; None accepts any."""
    if len(blocks) == 1 and blocks[0].keys() == {"type", "text"} and kind in (None, blocks[0]["type"]):
        return blocks[0]["text"]
    return blocks


def tag_system_blocks(blocks: list[JSONObject]) -> list[JSONObject]:
    """Return the blocks of a system message as tagged user text."""
    return [
        {**block, "text": f"<system-reminder>\n{block['text']}\n</system-reminder>"} if "text" in block else block
        for block in blocks
    ]


UNKNOWN_TOOL = "unknown"
Decoded = TypeVar("Decoded", bound=AnyPart | Message | Tool)


def generated_id(number: int) -> str:
    """Return the generated id for a call that has none."""
    return f"call_{number}"


def with_extra(decoded: Decoded, wire: JSONObject, ours: JSONObject, provider: str) -> Decoded:
    """Return a part, message or tool with the fields of `wire` that our encoding of it would not reproduce."""
    extra = extra_of(wire, ours, provider)
    return replace(decoded, extra=extra) if extra else decoded


def mark_apart(message: Message, provider: str, apart: bool = True) -> Message:
    """Mark whether a message keeps its position, although it is next to one of the same role, or first."""
    return replace(message, extra={provider: {**own_extra(message.extra, provider), APART_KEY: apart}})


def other_fields(body: JSONObject, *decoded: str) -> JSONObject:
    """Return the settings of a request: all fields but those decoded. An empty list is kept, to be sent again."""
    return {name: value for name, value in body.items() if name not in decoded or value == []}


def split_at_results(parts: Iterable[AnyPart]) -> list[list[AnyPart]]:
    """Split the parts of a message where tool results begin and end."""
    groups: list[list[AnyPart]] = []
    for part in parts:
        if groups and isinstance(part, ToolResult) == isinstance(groups[-1][-1], ToolResult):
            groups[-1].append(part)
        else:
            groups.append([part])
    return groups


def result_content(content: JSON, parts: Callable[[JSON], Iterable[AnyPart]]) -> str | tuple[Text | Media, ...]:
    """Return the content of a result: its parts if all of them are text or media, else its text."""
    inner = tuple(parts(content)) if isinstance(content, list) else ()
    if inner and all(isinstance(part, Text | Media) for part in inner):
        return cast(tuple[Text | Media, ...], inner)
    return as_text(content)


def as_text(value: JSON) -> str:
    """Return a value as text: a string as it is, null as an empty text, and any other value as JSON."""
    if value is None or isinstance(value, str):
        return value or ""
    return encode(value).decode()
