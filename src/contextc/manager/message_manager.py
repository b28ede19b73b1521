"""MessageManager: add messages to a history, and format it for a vendor's SDK.

The history is in memory or in a store. It does not depend on the formatter, which may be changed at any time.
"""

import logging
from collections import ChainMap, Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from typing import Any, ClassVar, NamedTuple, Protocol, cast, runtime_checkable

import msgspec
from msgspec.structs import replace

from contextc._credential_mask import get_logger
from contextc._json import JSON, JSONObject, encode, find_json_problem
from contextc.compiler import Compiled, MessageCompiler
from contextc.compiler.arguments import as_options
from contextc.compiler.draft import Budget, CompilerOptionArguments, PolicyArgument
from contextc.compiler.manifest import Manifest, RequestRecord
from contextc.errors import (
    ContextcError,
    InvalidMessage,
    InvalidReply,
    InvalidSetting,
    StaleCompile,
    UnknownConversation,
)
from contextc.formats.base import EncodedSegment, Formatter, Request, as_json
from contextc.formats.lint_engine import RuleFinding, format_path
from contextc.formats.message_preparation import NameCodec, merge_unordered_results
from contextc.formats.openai_chat.rules import CAMEL_CASE_NAMES
from contextc.formats.registry import detect_tool_format
from contextc.formats.registry import formatter as named_formatter
from contextc.messages import (
    AnyPart,
    Content,
    Media,
    Message,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
    assistant,
    canonical_content,
    find_open_calls,
    make_chain_id,
    to_plain_text,
    tool_result,
    user,
)
from contextc.models import Model, model
from contextc.prompts import PromptFragment
from contextc.providers import Provider
from contextc.store import Store, open_store
from contextc.tools.definitions import NativeTool, Tool

# ── a dict as messages ────────────────────────────────────────────────────────────────────────────────────────────────
# Convert one dict to messages, or raise an error that names the unsupported field.
#
# A dict may be in the shape of the formatter's own provider, of OpenAI's chat, or of chat with camel-case names
# (`toolCalls`, `toolCallId`). The shapes are tried in this order. A shape matches if it supports every field.


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
    for each in _candidate_formatters(formatter):
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


def _candidate_formatters(form: Formatter | None) -> list[Formatter]:
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
    written = set(_iter_texts(wire))
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
            part = _answer_calls(part, written, form, waiting, renamed)
            waiting[:] = [call for call in waiting if call.id != part.call_id]
            if part.name in MISSING_VALUES and part.call_id in names:
                part = replace(part, name=names[part.call_id])
        return part

    for message in messages:
        yield replace(message, parts=tuple([completed(part) for part in message.parts]))


def _answer_calls(
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


def _iter_texts(value: JSON) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in cast(JSONObject, value).values():
            yield from _iter_texts(each)
    elif isinstance(value, list):
        for each in cast(list[JSON], value):
            yield from _iter_texts(each)


# ── formatters of the caller's own ────────────────────────────────────────────────────────────────────────────────────
# Custom formatters: any object with `format`, and `get_system_prompt` if the system prompt has a field of its own.
#
# The compiler encodes a history segment by segment, and such an object encodes all of it at once. So the compiler uses
# `PlainFormatter`, which writes messages as JSON. The result is decoded and passed to the object.


@runtime_checkable
class HistoryFormatter(Protocol):
    """The interface that `MessageManager` requires of a formatter. Every `Formatter` has it.

    A second method is optional: `get_system_prompt(system_prompt)` returns the system prompt if it has a field of its
    own, and None if `format` includes it in the messages.
    """

    def format(self, history: Sequence[Message], system_prompt: str | None) -> list[Any]:
        """Return the messages of a request. Every call in `history` is followed by its result."""
        ...


class PlainFormatter(Formatter):
    """Encodes messages as JSON, one for one."""

    name: ClassVar[str] = "contextc"
    text_documents: ClassVar[tuple[str, ...]] = ("*/*",)
    name_codec: ClassVar[NameCodec] = NameCodec("contextc")
    provider = "contextc"

    def _encode(self, segment: Sequence[Message], blobs: Mapping[str, bytes]) -> EncodedSegment:
        whole = [replace(each, parts=tuple([_with_media(part, blobs) for part in each.parts])) for each in segment]
        return EncodedSegment(tuple([msgspec.to_builtins(message) for message in whole]))

    def assemble(self, request: Request, messages: list[JSONObject]) -> JSONObject:
        prompt = {} if request.system is None else {"system": msgspec.to_builtins(request.system)}
        return {**request.settings, **prompt, "messages": messages, "tools": self.encode_tools(request.tools)}

    def encode_tool(self, tool: Tool) -> JSONObject:
        return msgspec.to_builtins(tool)

    def _decode_request(self, body: JSONObject) -> Request:
        fields = ("messages", "system", "tools")
        return Request(
            messages=tuple([decode_message(each) for each in body.get("messages", ())]),
            system=decode_message(body["system"]) if body.get("system") else None,
            tools=tuple([msgspec.convert(each, Tool) for each in body.get("tools", ())]),
            settings={name: value for name, value in body.items() if name not in fields},
        )

    def _is_reply(self, reply: JSONObject) -> bool:
        return reply.get("role") == "assistant" and isinstance(reply.get("parts"), list | tuple)

    def _decode_reply(self, reply: JSONObject) -> Message:
        return decode_message(reply)

    def _collect(self, events: Iterable[JSONObject]) -> JSONObject:
        given = list(events)
        if len(given) != 1:
            raise InvalidReply(self.name, {"events": given})
        return given[0]


decode_plain_message = msgspec.json.Decoder(Message).decode
split_plain_messages = msgspec.json.Decoder(list[msgspec.Raw]).decode


class PlainHistory:
    """Decodes the messages of requests that `PlainFormatter` encoded. Those that begin alike are decoded once.

    A formatter may change what it gets. So a message with anything but texts is decoded for each request.
    """

    def __init__(self) -> None:
        self._wire = b""
        self._messages: list[Message | bytes] = []

    def decode(self, wire: bytes) -> tuple[Message, ...]:
        """Return the messages of a request, from the JSON of its messages with commas between them."""
        size = len(self._wire)
        if not (wire.startswith(self._wire) and wire[size : size + 1] in (b"", b",")):
            self._messages, size = [], 0
        new = wire[size:].removeprefix(b",")
        self._messages += [_texts_or_bytes(bytes(each)) for each in split_plain_messages(b"[%b]" % new)]
        self._wire = wire
        found = [each if isinstance(each, Message) else decode_plain_message(each) for each in self._messages]
        return tuple(merge_unordered_results(found))


def _texts_or_bytes(wire: bytes) -> Message | bytes:
    """Return the message if all of it is immutable, else its JSON."""
    message = decode_plain_message(wire)
    is_text = all([type(part) is Text and part.extra is None for part in message.parts])
    return message if is_text and message.extra is None and message.meta is None else wire


def decode_message(wire: JSONObject) -> Message:
    return msgspec.convert(wire, Message)


def _with_media(part: AnyPart, blobs: Mapping[str, bytes]) -> AnyPart:
    """Return the part with the bytes of its media, if the store has them."""
    if isinstance(part, Media) and part.blob is not None and part.blob in blobs:
        return replace(part, data=blobs[part.blob], blob=None)
    if isinstance(part, ToolResult) and not isinstance(part.content, str):
        return replace(part, content=tuple([_with_media(each, blobs) for each in part.content]))
    return part


log = get_logger("contextc.manager")

UNLIMITED_WINDOW = 1 << 40
ALL_MEDIA = ("image", "audio", "video", "document")
CallLike = ToolCall | Mapping[str, Any]
"""A tool call as `ToolCall`, or as OpenAI writes it: `{"id": …, "function": {"name": …, "arguments": "…"}}`."""


# ── the history ───────────────────────────────────────────────────────────────────────────────────────────────────────


class MessageManager:
    """A message history that can be formatted for any vendor's SDK.

    `formatter`, `system_prompt` and `max_tokens` can be set at any time. No other attribute can.
    """

    __slots__ = (
        "__weakref__",
        "_calls",
        "_calls_at",
        "_compiler",
        "_compiler_formatter",
        "_conversation",
        "_formatter",
        "_full_formatter",
        "_held",
        "_instructions",
        "_max_tokens",
        "_model",
        "_options",
        "_plain",
        "_sent",
        "_store",
        "_system_prompt",
        "_tools",
    )

    def __init__(
        self,
        formatter: HistoryFormatter,
        system_prompt: str | None = None,
        max_tokens: int | None = None,
        *,
        model: str | Model | Provider | None = None,
        policy: PolicyArgument = "",
        store: Store | None = None,
        conversation: str = "conversation",
    ) -> None:
        """Create a history. `formatter` is a `Formatter`, or any object with `format` (see `HistoryFormatter`).

        `max_tokens` limits everything that is sent: system prompt, tools and messages. `model` selects the tokenizer,
        and which media are sent: others are described in words. It is a name, or a `cc.provider` or `cc.models.model`
        with facts of its own. `policy="sliding_window"` leaves out single messages,
        oldest first, in place of whole turns. `store` and `conversation` select where the history is stored; the
        default is memory.
        """
        self._system_prompt = _check_prompt(system_prompt)
        self._instructions: tuple[PromptFragment, ...] = ()
        self._tools: tuple[Tool | NativeTool, ...] = ()
        self._calls = CallIndex()
        self._calls_at: str = ""
        self._held: list[JSONObject] = []
        self._store, self._conversation = store if store is not None else open_store("memory:"), conversation
        self._max_tokens, self._model = _check_limit(max_tokens), _model_facts(model)
        self._options: CompilerOptionArguments = {"fetch": False, "policy": policy, "keep_words": 0, "keep_index": 0}
        as_options(self._options)
        self.formatter = formatter
        self._compiler: MessageCompiler | None = None
        self._compiler_formatter: Formatter | None = None
        self._sent: Compiled | None = None
        self._plain = PlainHistory()

    @property
    def formatter(self) -> HistoryFormatter:
        """The formatter. It can be set at any time."""
        return self._formatter

    @formatter.setter
    def formatter(self, formatter: HistoryFormatter) -> None:
        is_class, has_format = isinstance(formatter, type), callable(getattr(formatter, "format", None))
        if is_class or not has_format or isinstance(formatter, str):  # a string has another method `format`
            why = "it is a class" if is_class else "it is a string" if has_format else "it has no method format"
            raise InvalidSetting(
                f"formatter: expected an object with `format`, got {formatter!r}: {why}",
                fix="Pass a formatter such as cc.OpenAIFormatter().",
            )
        self._store_held()
        is_change = hasattr(self, "_formatter")
        self._formatter = formatter
        self._full_formatter = formatter if isinstance(formatter, Formatter) else PlainFormatter()
        if is_change:
            log.info("changed the formatter to %s", self._name)

    @property
    def system_prompt(self) -> str | None:
        """The system prompt. It can be set at any time, as with `set_system_prompt`."""
        return self._system_prompt

    @system_prompt.setter
    def system_prompt(self, prompt: str | None) -> None:
        self.set_system_prompt(prompt)

    @property
    def max_tokens(self) -> int | None:
        """The limit for everything that is sent; None if there is none. It can be set at any time."""
        return self._max_tokens

    @max_tokens.setter
    def max_tokens(self, max_tokens: int | None) -> None:
        self._max_tokens = _check_limit(max_tokens)

    def add_message(self, message: Message | Mapping[str, Any]) -> Message:
        """Add a `Message` or a dict, and return the last message that was stored.

        A dict is in the shape of the formatter's own provider, of OpenAI's chat, or of chat with `toolCalls` and
        `toolCallId`. One dict may become several messages: results and the text beside them, the steps of a
        `UIMessage`. All of it is stored, or `InvalidMessage` names the unsupported field. A reasoning item of the
        Responses API is stored together with the item after it, which it belongs to; until then the message has no
        `id`.
        """
        with _logging_refusals():
            return self._add([message]) if isinstance(message, Message) else self._add_dict(message)

    def _add_dict(self, message: Mapping[str, Any]) -> Message:
        if isinstance(message, str):
            raise InvalidMessage("message must be a Message or a dict, got str", fix='Use add_user_message("…").')
        plain = as_json(message)
        form = self._full_formatter if self._full_formatter is self._formatter else None
        found = parse_dict(plain, form, self._known_calls(), self._held)
        if found.formatter is form and found.is_incomplete:
            self._held.append(plain)
            log.info("held back an item until the next one: %s", found.messages[-1].role)
            return found.messages[-1]
        messages = [found.formatter.name_codec.restore_names(each, self._tools) for each in found.messages]
        held = self._held
        self._held = [] if found.formatter is form else held
        try:
            return self._add_parsed(messages)
        except InvalidMessage as error:
            self._held = held
            if error.field != "parts":
                raise
            raise InvalidMessage(
                error.problem, field=find_content_field(plain), fix=error.fix
            ) from error  # `parts` is our name for it

    def _add_parsed(self, messages: Sequence[Message]) -> Message:
        try:
            return self._add(messages)
        except InvalidMessage as error:
            if error.field != "uid":
                raise
        return self._add([replace(each, uid="") for each in messages])  # in older SDKs one reply's messages share an id

    def add_user_message(self, content: Content) -> Message:
        """Add a user's message: a text, or parts such as `cc.Text` and `cc.Media`."""
        with _logging_refusals():
            return self._add([user(content)])

    def add_assistant_message(
        self, content: Content | None = None, tool_calls: Sequence[CallLike] | None = None
    ) -> Message:
        """Add a model's message with its tool calls: `cc.ToolCall`s, or dicts as OpenAI writes them."""
        with _logging_refusals():
            calls = [each if isinstance(each, ToolCall) else parse_call(as_json(each)) for each in tool_calls or ()]
            return self._add([assistant(content, tool_calls=calls)])

    def add_tool_result(self, tool_call_id: str, name: str, result: object, *, is_error: bool = False) -> Message:
        """Add the result of a tool call. Anything but a string is stored as JSON."""
        with _logging_refusals():
            return self._add([tool_result(tool_call_id, name, result, is_error=is_error)])

    def add_reply(self, reply: object) -> Message:
        """Add a model's reply: the object that the vendor's SDK returned, or its JSON."""
        form = self._require_full_formatter("read replies")
        with _logging_refusals():
            return self._add([form.name_codec.restore_names(form.decode_reply(reply), self._tools)])

    def set_system_prompt(self, prompt: str | None) -> None:
        """Replace the system prompt of later requests. None or an empty text removes it."""
        self._system_prompt = _check_prompt(prompt)
        log.info("set the system prompt: %d characters", len(prompt or ""))
        log.debug("system prompt: %s", prompt or "")

    def get_system_prompt(self) -> str | None:
        """Return the system prompt; None if there is none."""
        return self._system_prompt

    def get_formatted_messages(self) -> list[Any]:
        """Return the history in the formatter's shape, within the limit: the `messages` argument of that vendor's SDK
        call.

        If it does not fit, whole turns are left out, oldest first. Raises `ContextOverflow` if the last one alone does
        not fit. `explain` lists what was left out.
        """
        try:
            self._sent = self._compiled()
        except UnknownConversation:
            return self._formatter.format((), self._system_prompt)
        if left := Counter(each.why for each in self._sent.draft.left):
            log.info("left out messages: %s", ", ".join(f"{count} ({why})" for why, count in left.items()))
        if isinstance(self._formatter, Formatter):
            messages: list[Any] = self._sent.params.get(self._full_formatter.messages_key, [])
        else:
            sent, prompt = self._sent, self._sent.head.body.get("system")
            text = decode_message(prompt).text if prompt else None
            messages = self._formatter.format(self._plain.decode(sent.messages_json), text)
        log.info("formatted %d messages for %s", len(messages), self._name)
        return messages

    def explain(self) -> Manifest:
        """Return the manifest of what `get_formatted_messages` returns now: every message, whether it is included, and
        why not.

        `str()` of it is a table, `lines` is the same as data, `record.remarks` lists what was changed.
        """
        try:
            return self._compiled().manifest
        except UnknownConversation:
            record = RequestRecord(
                request=0, mode="full", epoch=0, rows=0, head="", chain="", budget=Budget(window=UNLIMITED_WINDOW)
            )
            return Manifest(self._get_compiler().channel(self._conversation), record, tuple)

    def _compiled(self) -> Compiled:
        self._store_held()
        prompt = self._system_prompt
        if [each.text for each in self._instructions] != ([prompt] if prompt else []):  # else it is rendered once
            self._instructions = (PromptFragment("system_prompt", prompt, priority=0),) if prompt else ()
        return self._get_compiler().compile(
            self._conversation, instructions=self._instructions, tools=self._tools, max_input_tokens=self._max_tokens
        )

    def _get_compiler(self) -> MessageCompiler:
        if self._compiler is None or self._compiler_formatter is not self._full_formatter:
            self._compiler_formatter = self._full_formatter
            self._compiler = MessageCompiler(
                self._store, _provider_for(self._full_formatter, self._model), **self._options
            )
        return self._compiler

    @property
    def _name(self) -> str:
        return self._full_formatter.name if self._full_formatter is self._formatter else type(self._formatter).__name__

    def _require_full_formatter(self, what: str) -> Formatter:
        """Return the formatter if it is a `Formatter`; else raise `InvalidSetting`."""
        if self._full_formatter is self._formatter:
            return self._full_formatter
        raise InvalidSetting(
            f"formatter: {self._name} cannot {what}, because it is not a cc.formats.Formatter",
            fix="Subclass cc.formats.Formatter.",
        )

    def _add(self, messages: Sequence[Message]) -> Message:
        self._store_held()
        stored = self._store_messages(messages)
        alone = self._follows(stored[0])
        for message in stored:
            self._calls.add(message)
            log.info("added message %d: %s", message.seq, message.role)
            if log.isEnabledFor(logging.DEBUG):
                log.debug("content of message %d: %s", message.seq, to_plain_text(message))
        self._calls_at = stored[-1].id if alone else ""
        return stored[-1]

    def _follows(self, message: Message) -> bool:
        """Return True if a stored message directly follows those whose calls are known."""
        if not self._calls_at:
            return message.seq == 1
        return make_chain_id(bytes.fromhex(self._calls_at), canonical_content(message)).hex() == message.id

    def _store_held(self) -> None:
        """Store items that were held back for an item that did not come."""
        held, self._held = self._held, []
        if held:
            self._add(self._full_formatter.decode_request(held).messages)

    def _store_messages(self, messages: Sequence[Message]) -> list[Message]:
        """Append messages, all or none. An answer to the last formatted request is committed together with that
        request.
        """
        sent, self._sent = self._sent, None
        if sent is not None and messages[0].role == "assistant" and sent.is_new and self._compiler is not None:
            try:
                return self._compiler.commit(sent, produced=messages)
            except StaleCompile:  # another writer was faster
                pass
        if len(messages) == 1:
            return [self._store.append(self._conversation, messages[0])]
        return self._store.extend(self._conversation, messages)

    def _known_calls(self) -> CallIndex:
        """Return the calls of the history. Read them again if another writer changed it."""
        try:
            conversation = self._store.conversation(self._conversation)
        except UnknownConversation:
            return self._calls
        if conversation.tip != self._calls_at:
            self._calls = CallIndex(self._store.load(self._conversation, after=conversation.context_start))
            self._calls_at = conversation.tip
        return self._calls

    def get_formatted_system_prompt(self) -> str | None:
        """Return the system prompt if the format has a field for it; None if it is among the messages.

        Without a system prompt, the system messages at the start of the history take its place.
        """
        prompt = self._system_prompt
        if prompt is None and next(iter(self.messages), user("")).role == "system":
            prompt = "\n\n".join([message.text for message in self._compiled().snapshot.leading.values()])
        read = getattr(self._formatter, "get_system_prompt", None)  # a custom formatter may have none
        return None if read is None else read(prompt or None)

    def get_formatted_tools(self, tools: Iterable[Tool | NativeTool | Mapping[str, Any]]) -> list[JSONObject]:
        """Return the tools in the formatter's shape. Calls in later replies use the names given here.

        A dict may be in OpenAI's chat format or in that of the formatter's own provider.
        """
        form = self._require_full_formatter("write tools")
        self._tools = tuple(
            tool
            if isinstance(tool, Tool | NativeTool)
            else detect_tool_format(tool, form).decode_tools([dict(tool)])[0]
            for tool in tools
        )
        log.info("formatted %d tools for %s", len(self._tools), self._name)
        return form.encode_tools(self._tools)

    def reset(self) -> None:
        """Clear the history. In a store, the old messages are kept."""
        self._store_held()
        if gone := self.messages:
            self._store.reset(self._conversation)
            self._sent, self._calls, self._calls_at = None, CallIndex(), ""
        log.info("reset the history: %d messages", len(gone))

    @property
    def messages(self) -> list[Message]:
        """The messages since the beginning, or since the last reset."""
        held = self._full_formatter.decode_request(self._held).messages if self._held else ()
        try:
            edge = self._store.conversation(self._conversation).context_start
        except UnknownConversation:
            return [*held]
        return [*self._store.load(self._conversation, after=edge), *held]


@contextmanager
def _logging_refusals() -> Generator[None]:
    """Log a message that is refused: the field, and at DEBUG the whole error, which may quote the message."""
    try:
        yield
    except ContextcError as error:
        field = getattr(error, "field", "")
        log.info("refused a message: %s%s", type(error).__name__, f", field {field}" if field else "")
        log.debug("reason of the refusal: %s", error)
        raise


def _check_prompt(prompt: object) -> str | None:
    if prompt is not None and not isinstance(prompt, str):
        raise InvalidSetting(f"system_prompt must be a string, got {type(prompt).__name__}", fix="Pass text, or None.")
    return prompt or None


def _check_limit(max_tokens: object) -> int | None:
    if max_tokens is None or (isinstance(max_tokens, int) and not isinstance(max_tokens, bool) and max_tokens >= 1):
        return max_tokens
    raise InvalidSetting(
        "max_tokens must be a positive number of tokens",
        got=max_tokens,
        fix="Pass the limit for system prompt, tools and messages.",
    )


def _model_facts(given: str | Model | Provider | None) -> Model:
    """Return the facts about a model; those of one without limits if none is given."""
    if not given:
        return Model(name="", vendor="", window=UNLIMITED_WINDOW, output=0, tokenizer="unknown", media=ALL_MEDIA)
    if isinstance(given, Provider):
        return given.model
    return given if isinstance(given, Model) else model(given)


def _provider_for(formatter: Formatter, known: Model) -> Provider:
    """Return a provider with only a formatter and a model."""
    if formatter.system_between is None:
        formatter = copy(formatter)
        formatter.system_between = known.system_between and known.vendor == formatter.rules.vendor
    facts = replace(known, cache_points=0, binds_reasoning=False)
    return Provider(name=formatter.provider, model=facts, format=formatter.name, model_id=known.name, speaks=formatter)
