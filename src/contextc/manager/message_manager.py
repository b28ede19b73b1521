"""MessageManager: add messages to a history, and format it for a vendor's SDK.

The history is in memory or in a store. It does not depend on the formatter, which may be changed at any time.
"""

import logging
from collections import Counter
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from typing import Any, ClassVar, Protocol, runtime_checkable

import msgspec
from msgspec.structs import replace

from contextc._credential_mask import get_logger
from contextc._json import JSONObject
from contextc.compiler import Compiled, MessageCompiler
from contextc.compiler.arguments import as_options
from contextc.compiler.manifest import Manifest, RequestRecord
from contextc.compiler.options import Budget, CompilerOptionArguments, PolicyArgument
from contextc.errors import (
    ContextcError,
    InvalidMessage,
    InvalidReply,
    InvalidSetting,
    StaleCompile,
    UnknownConversation,
)
from contextc.formats.base import EncodedSegment, Formatter, Request, as_json
from contextc.formats.identifiers import NameCodec
from contextc.formats.registry import detect_tool_format
from contextc.manager.dict_parser import CallIndex, find_content_field, parse_call, parse_dict
from contextc.messages import (
    AnyPart,
    Content,
    Media,
    Message,
    ToolCall,
    ToolResult,
    assistant,
    canonical_content,
    make_chain_id,
    tool_result,
    user,
)
from contextc.messages.message import to_plain_text
from contextc.models import Model, model
from contextc.providers import Provider
from contextc.store import Store, open_store
from contextc.tools.spec import NativeTool, Tool

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
        "_max_tokens",
        "_model",
        "_options",
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
        messages: list[Any] = self._sent.params.get(self._full_formatter.messages_key, [])
        if self._full_formatter is not self._formatter:
            request = self._full_formatter.decode_request(self._sent.params)
            messages = self._formatter.format(request.messages, request.system.text if request.system else None)
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
        return self._get_compiler().compile(
            self._conversation, system_prompt=self._system_prompt, tools=self._tools, budget=self._max_tokens
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
