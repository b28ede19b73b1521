"""Ollama's chat API: messages encoded and decoded, tool schemas, and its streams."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from typing import NamedTuple, assert_never, cast

from msgspec.structs import replace

from contextc._json import JSON, JSONObject
from contextc.formats.base import (
    NO_PARAMETERS,
    UNKNOWN_TOOL,
    EncodedSegment,
    PartEncoder,
    Request,
    append_text,
    decode_definition,
    encode_definition,
    extra_of,
    generated_id,
    merge_extra,
    merge_function_extra,
    other_fields,
    own_extra,
    text_of,
    with_extra,
)
from contextc.formats.lint_engine import JSONPath
from contextc.formats.message_preparation import OpenCalls, decode_base64, encode_base64
from contextc.formats.request_settings import object_or_empty
from contextc.formats.streams import Delta, StreamDecoder, StreamReader
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
    UserNotice,
    tool_call,
)
from contextc.tools.definitions import NativeTool, Tool

GO_KINDS: dict[type, str] = {str: "string", bool: "bool", int: "number", float: "number", list: "array", dict: "object"}
"""Go's names for JSON types."""
WRONG_TYPE_TEXT = "json: cannot unmarshal {given} into Go {place} of type {expected}"
FIELD_TEXT = "struct field ChatRequest.{where}"

# ── calls without ids ─────────────────────────────────────────────────────────────────────────────────────────────────
# Match tool results to calls. Ids are optional: older servers send none, and the SDK's types drop them.
#
# A call without an id gets a numbered one, as in `openai_chat`. A result without an id answers the first open call of
# its tool name, or the first open call if it has no name either. A result with an unknown id answers a call that has
# no id, in the same way. Calls stay open until the next assistant message.


class OpenCall(NamedTuple):
    """An open call: its id, its tool name, and whether the id was generated."""

    id: str
    name: str
    is_generated: bool = False


class CallMatcher:
    """The tool calls of one request, read from its first message to its last."""

    def __init__(self, messages: Iterable[JSON] = ()) -> None:
        self.used_ids = set(_ids(messages))
        self.open_calls = OpenCalls[OpenCall]()
        self.number = 0

    def begin_reply(self) -> None:
        """Begin an assistant message: earlier calls are no longer open."""
        self.open_calls = OpenCalls[OpenCall]()

    def add_call(self, call: JSONObject) -> str:
        """Return the id of a call: its own, or a generated one that no other call of the request has."""
        given = text_of(call.get("id"))
        while not given and generated_id(self.number) in self.used_ids:
            self.number += 1
        made = OpenCall(
            given or generated_id(self.number),
            text_of(object_or_empty(call.get("function")).get("name")),
            is_generated=not given,
        )
        self.used_ids.add(made.id)
        kinds = ("any", "made") if made.is_generated else ("any",)
        keys = [key for kind in kinds for key in ((kind, ""), (kind, made.name or UNKNOWN_TOOL))]
        self.open_calls.add(made, ("id", made.id), *dict.fromkeys(keys))
        return made.id

    def match_result(self, result: JSONObject) -> OpenCall:
        """Return the id and name of the call that a result answers; those of the result itself if there is none."""
        call_id, name = text_of(result.get("tool_call_id")), text_of(result.get("tool_name"))
        call = self.open_calls.pop(("id", call_id)) or self.open_calls.pop(("made" if call_id else "any", name))
        return OpenCall(call_id, name) if call is None else OpenCall(call.id, name or call.name)


def is_assistant_message(message: JSONObject) -> bool:
    """Return True if a message is the assistant's, by its role or because it has tool calls."""
    return text_of(message.get("role")).lower() == "assistant" or bool(message.get("tool_calls"))


def _ids(messages: Iterable[JSON]) -> Iterator[str]:
    for message in messages:
        calls: JSON = object_or_empty(message).get("tool_calls")
        yield text_of(object_or_empty(message).get("tool_call_id"))
        for call in cast(list[JSON], calls) if isinstance(calls, list) else []:
            yield text_of(object_or_empty(call).get("id"))


# ── tool schemas ──────────────────────────────────────────────────────────────────────────────────────────────────────
# Check tool schemas against Ollama's Go types.
#
# The template of a model prints the schema, so the server decodes all of it: the parameters, their properties, and
# nested ones. It ignores unknown keys.


PROPERTIES, ALTERNATIVES = "properties", "anyOf"
PARAMETERS = "struct field ChatRequest.tools.function.parameters.{name}"
PROPERTY = "struct field ToolProperty.{name}"
VALUE = "value"


class TypeMismatch(NamedTuple):
    """A value of a wrong type: its path, Go's error message, and a valid replacement; None to remove it."""

    path: JSONPath
    error: str
    replacement: JSON


class FieldType(NamedTuple):
    """The type of a field: a test, Go's name of the type, and `place`, Go's name of the field."""

    fits: Callable[[JSON], bool]
    expected: str
    place: str = PROPERTY


def _is_text(value: JSON) -> bool:
    return isinstance(value, str)


def _is_list(value: JSON) -> bool:
    return isinstance(value, list)


def _is_object(value: JSON) -> bool:
    return isinstance(value, dict)


def _are_texts(value: JSON) -> bool:
    return isinstance(value, list) and all(map(_is_text, cast(list[JSON], value)))


def _is_kind(value: JSON) -> bool:
    return _is_text(value) or _are_texts(value)


PARAMETER_FIELDS: Mapping[str, FieldType] = {
    "type": FieldType(_is_text, "string", PARAMETERS),
    "required": FieldType(_are_texts, "[]string", PARAMETERS),
    PROPERTIES: FieldType(_is_object, "map[string]api.ToolProperty", PARAMETERS),
}
PROPERTY_FIELDS: Mapping[str, FieldType] = {
    "type": FieldType(_is_kind, "[]string", VALUE),
    "description": FieldType(_is_text, "string"),
    "enum": FieldType(_is_list, "[]interface {}"),
    "required": FieldType(_are_texts, "[]string"),
    PROPERTIES: FieldType(_is_object, "map[string]api.ToolProperty"),
    ALTERNATIVES: FieldType(_is_list, "[]api.ToolProperty"),
}


def find_type_mismatches(
    schema: JSONObject, path: JSONPath = (), fields: Mapping[str, FieldType] = PARAMETER_FIELDS
) -> Iterator[TypeMismatch]:
    """Yield the values in a tool's parameters that the server cannot decode."""
    for name, field in fields.items():
        value: JSON = schema.get(name)
        if value is not None and not field.fits(value):
            error = _go_error(value, field.place.format(name=name), field.expected)
            yield TypeMismatch((*path, name), error, _valid_names(value) if name == "required" else None)
        elif value is not None and name in (PROPERTIES, ALTERNATIVES):
            held = cast(JSONObject, value).items() if isinstance(value, dict) else enumerate(cast(list[JSON], value))
            for key, each in held:
                yield from _property_mismatches(each, (*path, name, key))


def remove_type_mismatches(schema: JSONObject) -> JSONObject:
    """Return the schema without the values that the server cannot decode."""
    if not (found := list(find_type_mismatches(schema))):
        return schema
    made = deepcopy(schema)
    for wrong in found:
        *outer, last = wrong.path
        holder: JSON = made
        for step in outer:
            holder = holder[step]
        if wrong.replacement is None:
            del holder[last]
        else:
            holder[last] = wrong.replacement
    return made


def _property_mismatches(value: JSON, path: JSONPath) -> Iterator[TypeMismatch]:
    if isinstance(value, dict):
        yield from find_type_mismatches(cast(JSONObject, value), path, PROPERTY_FIELDS)
    elif value is not None:
        yield TypeMismatch(path, _go_error(value, VALUE, "api.ToolProperty"), {})


def _valid_names(value: JSON) -> list[JSON]:
    """Return the names in a value that should be a list of names."""
    return [each for each in (cast(list[JSON], value) if isinstance(value, list) else [value]) if _is_text(each)]


def _go_error(value: JSON, place: str, expected: str) -> str:
    if isinstance(value, list) and expected == "[]string":  # a list with an entry that is not a string
        value, expected = next(each for each in cast(list[JSON], value) if not _is_text(each)), "string"
    return WRONG_TYPE_TEXT.format(given=GO_KINDS.get(type(cast(object, value)), "null"), place=place, expected=expected)


# ── encoding ──────────────────────────────────────────────────────────────────────────────────────────────────────────
# Encode messages for Ollama's `/api/chat`.
#
# Each message stays one message, and system messages may be anywhere. `content` is one text. The parts of a reply are
# concatenated, those of other messages are separated by an empty line.
#
# Images are a separate base64 field of user messages. Images that a tool returned follow the results of its step.
# Arguments are objects. Thinking is a separate text, and is sent back only to the provider that produced it.


IMAGE_TYPES = ("image/png", "image/jpeg", "image/webp")


def encode_segment(segment: Sequence[Message], *, provider: str, blobs: Mapping[str, bytes]) -> EncodedSegment:
    encoder = _Encoder(provider, blobs)
    wire: list[JSONObject] = []
    for message in segment:
        wire += encoder.results(message) if message.role == "tool" else encoder.message(message)
    return EncodedSegment(tuple(wire), tuple(encoder.notes))


def encode_tool(tool: Tool) -> JSONObject:
    schema = remove_type_mismatches(tool.parameters or NO_PARAMETERS)
    return {"type": "function", "function": encode_definition(tool, "parameters", schema, strict=False)}


class _Encoder(PartEncoder):
    def __init__(self, provider: str, blobs: Mapping[str, bytes]) -> None:
        super().__init__(provider, blobs)
        self.unnamed: set[str] = set()  # calls without an id in the request

    def message(self, message: Message) -> list[JSONObject]:
        """Encode a system, user or assistant message; return nothing if none of it can be sent."""
        shown = [part for part in message.parts if isinstance(part, Media) and self.is_shown(part, message.role)]
        images = [encode_base64(part, self.blobs) for part in shown]
        calls = [self.call(part) for part in message.parts if isinstance(part, ToolCall)]
        wire: JSONObject = {"role": message.role, "content": self.words(message), **self.thinking(message)}
        if images:
            wire["images"] = images
        if calls:
            wire["tool_calls"] = calls
        for part in message.parts:
            if isinstance(part, ProviderBlock) and part.provider == self.provider and isinstance(part.data, dict):
                wire |= cast(JSONObject, part.data)
        if not any(value for name, value in wire.items() if name != "role"):
            rest = own_extra(message.extra, self.provider)
            if not any(value is not None for name, value in rest.items() if name != "role"):
                return []
        return [merge_extra(wire, message.extra, self.provider)]

    def results(self, message: Message) -> list[JSONObject]:
        """Encode each result as one message, and the parts beside them as a user message."""
        wire: list[JSONObject] = []
        beside: list[Text | Media | ProviderBlock] = []
        for part in message.parts:
            if isinstance(part, ToolResult):
                wire.append(self.result(part))
                media = [] if isinstance(part.content, str) else [each for each in part.content if type(each) is Media]
                if media:
                    self.note_moved_media(part)
                    beside += [Text(f"[media returned by {part.name}]"), *media]
            elif isinstance(part, Text | Media | ProviderBlock):
                beside.append(part)
        return [*wire, *(self.message(Message(role="user", parts=tuple(beside))) if beside else [])]

    def result(self, part: ToolResult) -> JSONObject:
        self.note_error_flag(part)
        answer: JSONObject = {"role": "tool", "content": part.text, "tool_name": part.name}
        if part.call_id and part.call_id not in self.unnamed:
            answer["tool_call_id"] = part.call_id
        return merge_extra(answer, part.extra, self.provider)

    def call(self, part: ToolCall) -> JSONObject:
        given = self.arguments_object(part)
        named: JSONObject = {"id": part.id} if part.id else {}
        if not own_extra(part.extra, self.provider).get("id", part.id):
            self.unnamed.add(part.id)
        call: JSONObject = {**named, "function": {"name": part.name, "arguments": given}}
        return merge_function_extra(call, part.extra, self.provider)

    def words(self, message: Message) -> str:
        said = [self.said(part, message.role) for part in message.parts]
        return join_texts(filter(None, said), is_reply=message.role == "assistant")

    def said(self, part: AnyPart, role: Role) -> str:
        """Return the text that a part adds to its message; empty if it is encoded elsewhere or left out."""
        match part:
            case Text():
                return part.text
            case Media():
                return "" if self.is_shown(part, role) else self.media_text(part)
            case ProviderBlock():
                return "" if part.provider == self.provider else self.native_text(part)
            case Reasoning() | ToolCall() | ToolResult() | UserNotice():
                return ""
            case _:
                assert_never(part)

    def thinking(self, message: Message) -> JSONObject:
        thoughts = [part for part in message.parts if isinstance(part, Reasoning)]
        if not all(self.is_own(part) and part.text for part in thoughts):
            self.note("left out", "reasoning that this model cannot read")
        ours = "".join(part.text for part in thoughts if self.is_own(part))
        return {"thinking": ours} if ours else {}

    def is_shown(self, part: Media, role: Role) -> bool:
        """Return True if this part is sent as an image."""
        return role == "user" and part.mime_type in IMAGE_TYPES and bool(part.data or self.blobs.get(part.blob or ""))


def join_texts(texts: Iterable[str], *, is_reply: bool) -> str:
    """Join texts into one. With `is_reply`, texts of a model may be pieces of one sentence, split by citations.

    Such texts are concatenated where one ends, or the next begins, with white space or punctuation.
    """
    whole = ""
    for text in texts:
        on = is_reply and whole and (whole[-1].isspace() or not text[0].isalnum())
        whole += text if on or not whole else f"\n\n{text}"
    return whole


# ── decoding ──────────────────────────────────────────────────────────────────────────────────────────────────────────
# Decode Ollama's requests, replies and streams into messages.
#
# A chunk of a stream is a complete reply object, and its tool calls are complete.


ROLES: dict[str, Role] = {"system": "system", "user": "user", "assistant": "assistant"}
IMAGE_SIGNATURES = ((b"\x89PNG", "image/png"), (b"\xff\xd8\xff", "image/jpeg"), (b"RIFF", "image/webp"))
"""First bytes of images. Nothing else states their media type."""
STREAMED_FIELDS = ("content", "thinking")


def decode_request(body: JSONObject, provider: str) -> Request:
    wire = cast(list[JSONObject], body.get("messages") or [])
    decoder = _Decoder(provider, CallMatcher(wire))
    messages = [decoder.message(each) for each in wire]
    system = messages.pop(0) if messages and messages[0].role == "system" else None
    return Request(
        messages=tuple(messages),
        system=system,
        tools=tuple(_tool(tool, provider) for tool in cast(list[JSONObject], body.get("tools") or [])),
        settings=other_fields(body, "messages", "tools"),
    )


def decode_reply(reply: JSONObject, provider: str) -> Message:
    said: JSONObject = {name: value for name, value in object_or_empty(reply.get("message")).items() if value}
    if calls := with_call_ids(said.pop("tool_calls", None), CallMatcher()):
        said["tool_calls"] = calls
    decoder = _Decoder(provider, CallMatcher(), model=reply.get("model"))
    words: JSONObject = {"content": ""} if said.keys() - {"role"} else {}  # an empty reply is not sent back
    message = decoder.message({**words, **said, "role": "assistant"})
    facts: JSONObject = {name: reply[name] for name in ("model", "created_at", "remote_model") if reply.get(name)}
    error: JSON = reply.get("error")
    return replace(
        message,
        finish="error" if error else _finish(reply, message),
        status="error" if error else "sent",
        error=str(error) if error else None,
        usage=Usage(input=reply.get("prompt_eval_count") or 0, output=reply.get("eval_count") or 0),
        extra={**(message.extra or {}), f"{provider} reply": facts} if facts else message.extra,
    )


def _finish(reply: JSONObject, message: Message) -> str | None:
    """Return the finish reason; None for a truncated stream."""
    if not reply.get("done", True):
        return None
    reason = cast(str, reply.get("done_reason") or "stop")
    return "tool_calls" if reason == "stop" and message.tool_calls else reason


def with_call_ids(calls: JSON, matcher: CallMatcher) -> list[JSONObject]:
    """Return the calls of a reply, each with an id, so that their results can be matched."""
    listed = cast(list[JSON], calls) if isinstance(calls, list) else []
    return [{**call, "id": matcher.add_call(call)} for call in map(object_or_empty, listed) if call]


def collect_events(events: Iterable[JSONObject]) -> JSONObject:
    """Build a reply from the lines of its stream. `error` is set if the stream ended with one."""
    reply: JSONObject = {"done": False}
    message: JSONObject = {}
    calls: list[JSON] = []
    for event in events:
        reply |= {name: value for name, value in event.items() if name != "message" and value is not None}
        for name, value in object_or_empty(event.get("message")).items():
            if name in STREAMED_FIELDS and isinstance(value, str):
                append_text(message, name, value)
            elif name == "tool_calls" and isinstance(value, list):
                calls += cast(list[JSON], value)
            elif value is not None:
                message[name] = value
    return {**reply, "message": {**message, "tool_calls": calls} if calls else message}


class _Decoder:
    def __init__(self, provider: str, calls: CallMatcher, model: str | None = None) -> None:
        self.provider, self.calls, self.model = provider, calls, model

    def message(self, wire: JSONObject) -> Message:
        role = text_of(wire.get("role")).lower()
        if is_assistant_message(wire):
            self.calls.begin_reply()
        elif role == "tool":
            return Message(role="tool", parts=(self.result(wire),))
        message = Message(role=ROLES.get(role, "user"), parts=tuple(self.parts(wire)))
        ours = next(iter(self.encoded(message)), JSONObject())
        calls: JSONObject = {"tool_calls": ours["tool_calls"]} if "tool_calls" in ours else {}
        return with_extra(message, {**wire, **calls}, ours, self.provider)  # each call keeps its own extra fields

    def encoded(self, message: Message) -> tuple[JSONObject, ...]:
        return encode_segment([message], provider=self.provider, blobs={}).messages

    def parts(self, wire: JSONObject) -> Iterator[AnyPart]:
        if thought := text_of(wire.get("thinking")):
            yield Reasoning(text=thought, provider=self.provider, model=self.model)
        for image in cast(list[JSON], wire.get("images") or []):
            if (data := decode_base64("".join(text_of(image).split()))) is not None:
                yield Media(mime_type=_media_type(data), data=data)
        if text := text_of(wire.get("content")):
            yield Text(text)
        for call in cast(list[JSONObject], wire.get("tool_calls") or []):
            yield self.call(call)

    def call(self, call: JSONObject) -> ToolCall:
        function, call_id = object_or_empty(call.get("function")), self.calls.add_call(call)
        made = tool_call(call_id, function.get("name") or UNKNOWN_TOOL, function.get("arguments") or {})
        ours = cast(list[JSONObject], self.encoded(Message(role="assistant", parts=(made,)))[0]["tool_calls"])[0]
        return replace(made, extra=_extra_fields(call, ours, self.provider))

    def result(self, wire: JSONObject) -> ToolResult:
        answers = self.calls.match_result(wire)
        made = ToolResult(call_id=answers.id, name=answers.name or UNKNOWN_TOOL, content=text_of(wire.get("content")))
        return with_extra(made, wire, self.encoded(Message(role="tool", parts=(made,)))[0], self.provider)


def _tool(tool: JSONObject, provider: str) -> Tool | NativeTool:
    function = object_or_empty(tool.get("function"))
    if not isinstance(function.get("name"), str):
        return NativeTool(provider=provider, data=tool)
    made = decode_definition(function, "parameters", strict=False)
    return replace(made, extra=_extra_fields(tool, encode_tool(made), provider))


def _extra_fields(wire: JSONObject, ours: JSONObject, provider: str) -> Extra | None:
    """Return the extra fields of a call or tool, nested inside `function`, as `merge_function_extra` expects them."""
    outer = {name: value for name, value in wire.items() if name != "function"}
    rest = dict(own_extra(extra_of({**outer, "function": ours["function"]}, ours, provider), provider))
    if inside := own_extra(extra_of(object_or_empty(wire.get("function")), ours["function"], provider), provider):
        rest["function"] = inside
    return {provider: rest} if rest else None


def _media_type(data: bytes) -> str:
    return next((kind for begins, kind in IMAGE_SIGNATURES if data.startswith(begins)), "image/png")


# ── streams ───────────────────────────────────────────────────────────────────────────────────────────────────────────
# Read an Ollama stream line by line. A complete reply has the form of the last line, and is read as one.


class OllamaStreamReader(StreamReader):
    has_call_ids = False

    def __init__(self, formatter: StreamDecoder) -> None:
        super().__init__(formatter)
        self._calls = CallMatcher()

    def _deltas(self, event: JSONObject) -> Iterable[Delta]:
        message = object_or_empty(event.get("message"))
        if thought := text_of(message.get("thinking")):
            yield Reasoning(text=thought, provider=self.formatter.provider, model=event.get("model"))
        if text := text_of(message.get("content")):
            yield Text(text)
        for call in with_call_ids(message.get("tool_calls"), self._calls):
            function = object_or_empty(call.get("function"))
            yield tool_call(call["id"], function.get("name") or "", function.get("arguments") or {})
        self.finished = self.finished or event.get("done") is True
