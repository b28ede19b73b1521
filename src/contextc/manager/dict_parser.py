"""Convert one dict to messages, or raise an error that names the unsupported field.

A dict may be in the shape of the formatter's own provider, of OpenAI's chat, or of chat with camel-case names
(`toolCalls`, `toolCallId`). The shapes are tried in this order. A shape matches if it supports every field.
"""

from collections import ChainMap
from collections.abc import Iterator, Sequence
from typing import NamedTuple, cast

from msgspec.structs import replace

from contextc._json import JSON, JSONObject, encode, find_json_problem
from contextc.errors import InvalidMessage
from contextc.formats.base import Formatter
from contextc.formats.lint_engine import RuleFinding, format_path
from contextc.formats.openai_chat.lint_parser import CAMEL_CASE_NAMES
from contextc.formats.registry import formatter as named_formatter
from contextc.messages import AnyPart, Message, Reasoning, ToolCall, ToolResult
from contextc.messages.pairing import find_open_calls

CHAT = "openai_chat"
REPLY_FIELDS = {"usage", "stop_reason", "choices", "candidates", "output"}
"""Fields of whole replies."""
MISSING_VALUES = ("", "unknown")
"""Values that decoders write for a missing id or name."""


class CallIndex:
    """The calls of a history: their names by id, and those without a result."""

    def __init__(self, history: Sequence[Message] = ()) -> None:
        self.names = {call.id: call.name for message in history for call in message.tool_calls}
        self.open = [call for _, call in find_open_calls(history)]

    def add(self, message: Message) -> None:
        for result in message.tool_results:
            self.open = [call for call in self.open if call.id != result.call_id]
        self.names |= {call.id: call.name for call in message.tool_calls}
        self.open += message.tool_calls


class _Mismatch(NamedTuple):
    """The reason why a dict does not match a format. `nearly` is True if only unknown fields are wrong."""

    form: Formatter
    finding: RuleFinding
    nearly: bool


class ParsedDict(NamedTuple):
    """The messages of a dict, and its format."""

    messages: list[Message]
    formatter: Formatter

    @property
    def is_incomplete(self) -> bool:
        """True if nothing of it can be sent without the next dict: a reasoning item, which belongs to the next item."""
        parts = [part for message in self.messages for part in message.parts]
        return (
            bool(parts)
            and all(isinstance(part, Reasoning) for part in parts)
            and not any(self.formatter.encode([message]).messages for message in self.messages)
        )


def parse_dict(
    message: JSONObject, formatter: Formatter | None, calls: CallIndex, held_back: Sequence[JSONObject] = ()
) -> ParsedDict:
    """Return the messages of one dict, with ids and names from `calls` if the dict omits them.

    `formatter` is the provider's format; None if only OpenAI's chat is supported. `held_back` are held-back dicts in
    that format, which are read together with this one.
    """
    if problem := find_json_problem(message, ""):
        raise InvalidMessage(problem[1], field=problem[0].removeprefix("."))
    wire = _without_camel(message)
    misfits: list[_Mismatch] = []
    for each in _shapes(formatter):
        shaped = _as_chat(wire) if each.name == CHAT else wire
        sketch = each.rules.parse([shaped])
        if finding := next(
            iter([*sketch.malformed, *each.rules.unknown_fields(sketch), *each.check_surroundings(shaped)]), None
        ):
            misfits.append(_Mismatch(each, finding, not sketch.malformed))
            continue
        request = each.decode_request([*(held_back if each is formatter else ()), shaped])
        messages = [*([request.system] if request.system is not None else []), *request.messages]
        if not messages:
            raise InvalidMessage("the message is empty", field=find_content_field(message), fix="Add content.")
        return ParsedDict(list(_fill_in(messages, shaped, each, calls)), each)
    raise _mismatch_error(message, misfits)


def parse_call(wire_call: JSONObject) -> ToolCall:
    """Convert a call in the shape of OpenAI's chat, or with `name` and `arguments` beside its `id`."""
    ((message,), _) = parse_dict({"role": "assistant", "tool_calls": [wire_call]}, None, CallIndex())
    (call,) = message.tool_calls
    return call


def _shapes(form: Formatter | None) -> list[Formatter]:
    chat = named_formatter(CHAT)
    if form is None:
        return [chat]
    if form.name == CHAT:
        return [form]
    return [form, chat] if form.rules.rules else [chat, form]  # a format without rules accepts everything


def _without_camel(given: JSONObject) -> JSONObject:
    for camel, name in CAMEL_CASE_NAMES.items():
        if given.get(camel) is not None and given.get(name) is not None:
            raise InvalidMessage(f"`{camel}` and `{name}` are the same field", field=camel, fix="Pass one of them.")
    wire = {
        CAMEL_CASE_NAMES.get(name, name): value
        for name, value in given.items()
        if name not in CAMEL_CASE_NAMES or value is not None
    }
    return wire if wire.keys() != given.keys() else given


def _as_chat(wire: JSONObject) -> JSONObject:
    """Return the dict in the shape of OpenAI's chat, converting plain-text parts and arguments or results that are
    objects.
    """
    wire, content = dict(wire), cast(object, wire.get("content"))
    if wire.get("role") in ("tool", "function") and not isinstance(content, str) and not _are_parts(content):
        wire["content"] = "" if content is None else encode(cast(JSON, content)).decode()
    elif isinstance(content, list):
        wire["content"] = [
            {"type": "text", "text": each} if isinstance(each, str) else each for each in cast(list[JSON], content)
        ]
    if isinstance(wire.get("tool_calls"), list):
        wire["tool_calls"] = [_as_chat_call(call) for call in cast(list[JSON], wire["tool_calls"])]
    if wire.get("role") == "assistant" and "content" not in wire:
        wire["content"] = None
    return wire


def _are_parts(content: object) -> bool:
    return isinstance(content, list) and all(
        isinstance(each, str) or (isinstance(each, dict) and isinstance(each.get("type"), str))
        for each in cast(list[JSONObject], content)
    )


def _as_chat_call(call: JSON) -> JSON:
    if not isinstance(call, dict):
        return call
    wire = cast(JSONObject, call)
    if not {"function", "custom"} & wire.keys() and "name" in wire:
        inside = {name: value for name, value in wire.items() if name in ("name", "arguments")}
        wire = {**{name: value for name, value in wire.items() if name not in inside}, "function": inside}
    if isinstance(wire.get("function"), dict):
        function = cast(JSONObject, wire["function"])
        arguments: JSON = function.get("arguments")
        if not isinstance(arguments, str):
            text = "{}" if arguments is None else encode(arguments).decode()
            wire = {**wire, "function": {**function, "arguments": text}}
    return wire


def _mismatch_error(given: JSONObject, misfits: list[_Mismatch]) -> InvalidMessage:
    """Return the error for the shape that matches best: only unknown fields are wrong, else the deepest error."""
    finding = max(misfits, key=lambda each: (each.nearly, len(each.finding.path))).finding
    path = finding.path[1:]
    if field := finding.facts.get("field"):
        path = (*path, *str(field).split("."))
    meant = {name: camel for camel, name in CAMEL_CASE_NAMES.items() if camel in given}
    field = format_path(tuple(meant.get(str(step), step) for step in path))
    names = " or ".join(dict.fromkeys(each.form.name for each in misfits))
    reply = " Add a whole reply with add_reply." if REPLY_FIELDS & given.keys() else ""
    return InvalidMessage(
        f"{finding.message} Use the message format of {names}.{reply}",
        field=field or ("role" if "role" in given else "message"),
    )


def find_content_field(given: JSONObject) -> str:
    return next((name for name in ("content", "parts", "message", "text") if name in given), "message")


def _fill_in(messages: Sequence[Message], wire: JSONObject, form: Formatter, calls: CallIndex) -> Iterator[Message]:
    """Yield the messages with missing ids and names filled in from the calls that have no result."""
    written = set(_texts(wire))
    names: ChainMap[str, str] = ChainMap({}, calls.names)
    waiting = list(calls.open)
    renamed: dict[str, str] = {}

    def completed(part: AnyPart) -> AnyPart:
        if isinstance(part, ToolCall):
            if part.id not in written and form.name_codec.encode_id(part.id) not in written and part.id in names:
                renamed[part.id] = _unused_id(part.id, names)
                part = replace(part, id=renamed[part.id])
            names[part.id] = part.name
            waiting.append(part)
        elif isinstance(part, ToolResult):
            part = _answer(part, written, form, waiting, renamed)
            waiting[:] = [call for call in waiting if call.id != part.call_id]
            if part.name in MISSING_VALUES and part.call_id in names:
                part = replace(part, name=names[part.call_id])
        return part

    for message in messages:
        yield replace(message, parts=tuple([completed(part) for part in message.parts]))


def _answer(
    result: ToolResult, written: set[str], form: Formatter, waiting: Sequence[ToolCall], renamed: dict[str, str]
) -> ToolResult:
    """Return the result with the id of its call: its own, that of an open call with its name, or of the only one."""
    call_id = renamed.get(result.call_id, result.call_id)
    if call_id in written or call_id in renamed.values():
        alike = [call.id for call in waiting if call.id == call_id or form.name_codec.encode_id(call.id) == call_id]
        return replace(result, call_id=alike[0]) if alike else result
    fits = [call for call in waiting if result.name in (*MISSING_VALUES, call.name)]
    if not fits:
        raise InvalidMessage(
            f"the result of {result.name or 'a tool'} has no call id, and no open call has that name",
            field="name",
            fix="Add the message with the call first.",
        )
    return replace(result, call_id=fits[0].id, name=fits[0].name)


def _unused_id(call_id: str, names: ChainMap[str, str]) -> str:
    """Return an unused id based on one that a decoder created: `call_1` becomes `call_7`."""
    stem, _, digits = call_id.rpartition("_")
    stem = stem if digits.isdigit() else call_id
    number = sum(map(len, names.maps)) + 1  # usually unused
    while f"{stem}_{number}" in names:
        number += 1
    return f"{stem}_{number}"


def _texts(value: JSON) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in cast(JSONObject, value).values():
            yield from _texts(each)
    elif isinstance(value, list):
        for each in cast(list[JSON], value):
            yield from _texts(each)
