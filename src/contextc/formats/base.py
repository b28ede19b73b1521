"""The base class of wire formats: pure functions between contextc messages and a provider's JSON.

A history is encoded in *segments*: a reply of the model and the messages after it. An encoded segment never changes,
and a request is assembled from segments. Encoding a whole history at once gives the same result.

Provider data without a field in contextc's types is kept in `extra`, under the provider's name. It is sent back to that
provider only.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import ClassVar, Literal, NamedTuple, TypeAlias, TypeVar, assert_never, cast

from msgspec import Struct
from msgspec.structs import replace

from contextc._json import JSON, JSONObject, as_object, as_objects, encode, id_text
from contextc.errors import InvalidInput, InvalidReply, InvalidRequest
from contextc.formats.lint_engine import ParsedRequest, RuleFinding, RuleSet
from contextc.formats.message_preparation import (
    APART_KEY,
    NameCodec,
    ReasoningPolicy,
    ShortenFile,
    apply_policy,
    describe_media,
    mark_positions,
    matches_type,
    merge_unordered_results,
    split_segments,
    with_text_files,
)
from contextc.formats.request_settings import (
    NativeContext,
    NativeSettings,
    RequestSettings,
    SettingsTable,
    ToolChoice,
    rename_tools,
)
from contextc.formats.streams import ReplyEncoder, StreamReader, as_json
from contextc.messages import (
    PLACED_KEY,
    AnyPart,
    Extra,
    Media,
    Message,
    PairedHistory,
    PairingRepair,
    ProviderBlock,
    Reasoning,
    ResultPlacement,
    Text,
    ToolCall,
    ToolResult,
    pair_tool_calls,
    system,
    valid_usage,
)
from contextc.tools.definitions import NativeTool, Tool, get_tool_name

OPENING_TEXT = "(The conversation begins with the assistant.)"
DECODE_ERRORS = (LookupError, TypeError, AttributeError, StopIteration, RuntimeError, OverflowError)
"""Exceptions that a decoder raises where a request does not have the shape of its format."""
NO_RULES = RuleSet(
    "",
    "",
    lambda body: ParsedRequest(messages=(), body=cast(JSONObject, body) if isinstance(body, dict) else {}),
    coerce=lambda value, path: value,
    message=lambda text: {"role": "user", "content": text},
    block=lambda text: {"type": "text", "text": text},
)
NO_SETTINGS = SettingsTable({"model": "model", "max_output_tokens": "max_tokens"})
ANY_NAMES = NameCodec("")
NoteAction: TypeAlias = Literal["left out", "described", "moved", "made up", "tagged", "changed", "kept"]


class ConversionNote(Struct, frozen=True):
    """A change that was made because the format cannot express the original: the action, and its object."""

    done: NoteAction
    text: str

    def __str__(self) -> str:
        return f"{self.done}: {self.text}"


class EncodedSegment(Struct, frozen=True):
    """A segment in a provider's shape, with notes on the changes made to encode it.

    `apart`: the first message is sent as it was read. It is not merged with a neighbour of the same role, and no
    opening is inserted before it at the start of a request.
    """

    messages: tuple[JSONObject, ...]
    notes: tuple[ConversionNote, ...] = ()
    apart: bool = False


class Request(Struct, frozen=True, kw_only=True):
    """A request in contextc's types. `settings` are all other fields, as this format names them.

    `source` is the `place` and the name of the format the request was read in. When it is written in that format again,
    calls and results keep their positions if the provider accepts them there.
    """

    messages: tuple[Message, ...]
    system: Message | None = None
    tools: tuple[Tool | NativeTool, ...] = ()
    settings: JSONObject = {}
    source: tuple[str, str] | None = None


class HeadChange(Struct, frozen=True, kw_only=True):
    """A change of tools or effort in the middle of a conversation, for a message that states it there.

    Definitions are as this format encodes tools, and names as it spells them.
    """

    added: tuple[JSONObject, ...] = ()
    replaced: tuple[JSONObject, ...] = ()
    """New definitions of tools that the model has."""
    returned: tuple[str, ...] = ()
    """Tools that were removed, and return with the same definition."""
    removed: tuple[str, ...] = ()
    effort: str = ""
    has_tools: bool = True
    """True if the request has tools beside its messages."""


class EncodedChange(NamedTuple):
    """A message that states a change, and the features of the provider that it needs."""

    message: Message
    features: tuple[str, ...]


class Continuation(NamedTuple):
    """A value in a reply that the next request has to send again. `expires` is a Unix time in ms; 0: not known."""

    value: str
    expires: int = 0


class EncodedRequest(NamedTuple):
    """A request in a provider's shape, with notes on the changes made to write it."""

    body: JSONObject
    notes: tuple[ConversionNote, ...]


class Formatter(ABC):
    """A wire format for one provider. `provider` names the owner of the reasoning and native blocks that are sent back.

    A subclass defines `name`, `provider`, `assemble`, `encode_tool` and the abstract methods with an underscore. All
    other members are derived from these or have defaults. docs/reference/formats.md has a complete example.
    """

    name: ClassVar[str]
    rules: ClassVar[RuleSet] = NO_RULES
    settings: ClassVar[SettingsTable] = NO_SETTINGS
    messages_key: ClassVar[str] = "messages"
    system_among_messages: ClassVar[bool] = False
    name_codec: ClassVar[NameCodec] = ANY_NAMES
    unique_ids: ClassVar[bool] = False
    user_first: ClassVar[bool] = False
    """True if a conversation must begin with a user message. `join` then inserts `OPENING_TEXT` where it does not."""
    allows_leading_system: ClassVar[bool] = False
    """True if a system message may come first in the messages, although the system prompt has its own field."""
    carried_extra: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Names in the `extra` of other providers that this format keeps for them."""
    nested_extra: ClassVar[tuple[str, ...]] = ()
    """Names in `extra` whose value is an object: only the names inside it carry information."""
    shared_extra: ClassVar[tuple[str, ...]] = ()
    """Names inside `nested_extra` that contextc's own types represent. Their values are converted to every format."""
    layout_extra: ClassVar[tuple[str, ...]] = ()
    """Names in `extra` that describe only the layout. They have no meaning for other providers."""
    merges_neighbours: ClassVar[bool] = False
    """True if `join` merges neighbouring messages of one role."""
    prefix_settings: ClassVar[tuple[str, ...]] = ()
    """Settings whose change invalidates the provider's prompt cache or its reasoning."""
    effort_path: ClassVar[tuple[str, ...]] = ()
    """The path of the effort in the settings, if a message can change it. It must be one of `prefix_settings`."""
    default_lifetime: str | None = None
    """The lifetime of cache breakpoints if none is asked for: "" for that of the provider, None to set none."""
    caches_system_first: ClassVar[bool] = False
    """True if the provider caches the system prompt before the tools. All others cache the tools first."""
    session_line_fields: ClassVar[tuple[str, ...]] = ()
    """A field that every line of a session file has, where one JSON Lines file is one conversation. Empty: each line is
    a conversation of its own.
    """
    tool_key: ClassVar[str] = ""
    """A field that only tools of this format have. "" if the tools have another format's shape or cannot be
    distinguished.
    """
    placeholder_tool: ClassVar[Tool | None] = None
    """A placeholder tool, sent if messages contain calls, the request has no tools, and the provider requires some."""
    strict_tools: ClassVar[bool] = True
    """True if a tool can require that arguments follow its schema."""
    keeps_layout: ClassVar[bool] = True
    """True if a request read in this format is written with the same layout, unless that would break a rule."""
    result_placement: ClassVar[ResultPlacement] = "after call"
    """The places where the provider accepts the results of a call. Results that were read there stay there, if
    `layout_extra` contains `PLACED_KEY`.
    """
    repeats_request: ClassVar[bool] = False
    """True if a reply that is not complete is continued by the same request, without the reply in it."""
    least_compact_at: ClassVar[int] = 0
    """The least number of input tokens at which the provider can be asked to compact a conversation."""
    requires_max_tokens: ClassVar[bool] = False
    """True if every request must set the maximum output length."""
    input_includes_cached: ClassVar[bool] = True
    """True if the input tokens of a reply include cached ones. Otherwise cached tokens may be missing from the count.
    """
    stream_reader: ClassVar[type[StreamReader] | None] = None
    """The class that reads streamed replies. None if no provider streams this format."""
    reply_stream: ClassVar[type[ReplyEncoder] | None] = None
    """The class that encodes replies as streams of this format. None if no client expects one."""
    media_types: ClassVar[tuple[str, ...]] = ("*/*",)
    """Patterns of the media types whose bytes are sent. Others are described in one line of text."""
    text_documents: ClassVar[tuple[str, ...]] = ()
    """Patterns of the types of text files that are sent as documents. All other text files are sent as text."""
    encoding_version: ClassVar[int] = 1
    """Incremented when the encoding of a segment changes: histories encoded before are then encoded again."""
    provider: str
    reasoning: ReasoningPolicy = "native"
    system_between: bool | None = None
    """True if the model accepts system messages between others. None: unknown, what was read so is sent so."""

    @property
    def extra_key(self) -> str:
        """The name under which `extra` keeps the data of this format."""
        return self.provider

    def encode(self, segment: Sequence[Message], *, blobs: Mapping[str, bytes] = {}) -> EncodedSegment:
        """Encode one segment, whose calls and results are paired. The result does not depend on other segments."""
        return self._encode(self.name_codec.encode(apply_policy(segment, self.reasoning, self._replacement_for)), blobs)

    def takes_media(self, mime_type: str) -> bool:
        """Return True if the bytes of media of this type can be sent."""
        return matches_type(mime_type, self.media_types)

    def with_text_files(
        self,
        message: Message,
        *,
        blobs: Mapping[str, bytes] = {},
        documents: bool = True,
        describe_others: bool = False,
        shorten: ShortenFile = lambda text, number: text,
    ) -> tuple[Message, list[ConversionNote]]:
        """Return a message as this format can send it, with text files as text, and notes on them.

        `documents` is False for a model that takes no documents: all text files become text. `describe_others`
        replaces all other media by a line of text.
        """
        if not any(isinstance(part, Media | ToolResult) for part in message.parts):
            return message, []
        native = self.text_documents if documents else ()
        changed, files = with_text_files(message, blobs, native, shorten, describe_others=describe_others)
        texts = [f"the file {file.name or 'without a name'} of type {file.mime_type}, into text" for file in files]
        return changed, [ConversionNote("changed", text) for text in texts]

    def _replacement_for(self, reasoning: Reasoning) -> tuple[AnyPart, ...]:
        """Return the parts that replace reasoning which its provider would otherwise expect."""
        return ()

    @abstractmethod
    def _encode(self, segment: Sequence[Message], blobs: Mapping[str, bytes]) -> EncodedSegment: ...

    def join(self, segments: Iterable[EncodedSegment], before: Sequence[JSONObject] = ()) -> list[JSONObject]:
        """Return the messages of a request, joined from encoded segments. The segments are not changed.

        `before` are the last messages already joined, back to a reply at least. They come first in the result. Some are
        replaced if the first segment had to be merged into them (`merges_neighbours`).
        """
        return [*before, *(message for segment in segments for message in segment.messages)]

    def apply_settings(self, messages: list[JSONObject], settings: JSONObject) -> list[JSONObject]:
        """Return joined messages, adapted to the settings of the request. Each message is changed by itself."""
        return messages

    def sdk_arguments(self, body: JSONObject, model: str) -> JSONObject:
        """Return a body as keyword arguments of the vendor's SDK call. Most SDKs take the fields of the API."""
        return body

    def with_cache_breakpoint(self, message: JSONObject, ttl: str = "") -> JSONObject | None:
        """Return the message with a cache breakpoint at its end, or None if the format or the message takes none.

        `ttl` is the lifetime of what is cached; "" is the provider's default.
        """
        return None

    def list_cache_lifetimes(self, blocks: Iterable[JSONObject]) -> list[str]:
        """Return the lifetime of each cache breakpoint that the caller set in these blocks; "" is the default."""
        return []

    def cache_settings(self, ttl: str) -> JSONObject:
        """Return the settings that ask for a lifetime, beside the breakpoints."""
        return {}

    def without_cache_breakpoints(self, messages: list[JSONObject]) -> list[JSONObject]:
        """Return joined messages without the cache breakpoints they were read with. The compiler sets its own."""
        return messages

    def without_tool_breakpoints(self, tools: list[JSONObject]) -> list[JSONObject]:
        """Return definitions of tools without the cache breakpoints of the caller, which say nothing about a tool."""
        return [without_cache_control(tool) for tool in tools] if self.list_cache_lifetimes(tools) else tools

    def with_head_breakpoint(self, body: JSONObject, ttl: str = "") -> JSONObject:
        """Return the body with a cache breakpoint after its system prompt and tools, if it has any."""
        return body

    @abstractmethod
    def assemble(self, request: Request, messages: list[JSONObject]) -> JSONObject:
        """Return the whole body: settings, system prompt, tools and messages."""

    def _body_with_system_message(
        self, request: Request, messages: list[JSONObject], tools_key: str = "tools"
    ) -> JSONObject:
        """Return a body whose first message is the system prompt, for formats with `system_among_messages`."""
        head = self.encode([request.system]).messages if request.system is not None else ()
        body: JSONObject = {**request.settings, "messages": [*head, *messages]}
        return {**body, tools_key: tools} if (tools := self.encode_tools(request.tools)) else body

    @abstractmethod
    def encode_tool(self, tool: Tool) -> JSONObject:
        """Return a tool definition in this format."""

    def encode_tools(self, tools: Sequence[Tool | NativeTool]) -> list[JSONObject]:
        """Return the tool definitions to send. Tools that only another provider has are left out."""
        return [
            tool.data
            if isinstance(tool, NativeTool)
            else self._restored_tool(self.encode_tool(self.name_codec.encode_tool(tool)), tool.extra)
            for tool in tools
            if not isinstance(tool, NativeTool) or tool.provider == self.provider
        ]

    def tools_of(self, body: JSONObject) -> list[JSONObject]:
        """Return the tool definitions of a body, without a breakpoint that `with_head_breakpoint` set."""
        return body.get("tools") or []

    def encode_change(self, change: HeadChange, features: Collection[str]) -> EncodedChange | None:
        """Return a system message that states a change at the end of the messages; None if the format cannot state it,
        or if that needs more than these features of the provider.
        """
        return None

    def read_change(self, block: JSONObject) -> HeadChange | None:
        """Return the change that a block of a message states; None if it states none."""
        return None

    def read_message_effort(self, message: Message) -> str:
        """Return the effort that a message sets beside its blocks, or ""."""
        return ""

    def with_final_tools(self, request: Request) -> Request:
        """Return a request with the tools and the effort that hold at its end beside its messages, and without the
        messages that changed them.
        """
        spelled = self.name_codec.encode_name
        tools = {spelled(get_tool_name(tool)): tool for tool in request.tools}
        defined, effort, is_changed, messages = dict(tools), "", False, list[Message]()
        for message in request.messages:
            changes = [self._change_in(part) for part in message.parts]
            effort = (said := self.read_message_effort(message)) or effort
            for change in filter(None, changes):
                effort = change.effort or effort
                added = {spelled(get_tool_name(tool)): tool for tool in self.decode_tools([*change.added])}
                defined |= added
                tools = {name: tool for name, tool in tools.items() if name not in change.removed} | added
                tools |= {name: defined[name] for name in change.returned if name in defined}
            if not said and not any(changes):
                messages.append(message)
                continue
            is_changed = True
            rest = [part for part, change in zip(message.parts, changes, strict=True) if change is None]
            if any([not isinstance(part, ProviderBlock) for part in rest]):  # else a breakpoint is left of it
                messages.append(replace(message, parts=tuple(rest)))
        if not is_changed:
            return request
        settings = self.with_effort(request.settings, effort) if effort else request.settings
        return replace(request, messages=tuple(messages), tools=tuple(tools.values()), settings=settings)

    def _change_in(self, part: AnyPart) -> HeadChange | None:
        is_own = isinstance(part, ProviderBlock) and part.provider == self.provider and isinstance(part.data, dict)
        return self.read_change(cast(JSONObject, cast(ProviderBlock, part).data)) if is_own else None

    def read_effort(self, settings: JSONObject) -> str:
        """Return the effort in the settings; "" if there is none, or if no message can change it."""
        inside: JSON = settings if self.effort_path else ""
        for name in self.effort_path:
            inside = as_object(inside).get(name)
        return inside if isinstance(inside, str) else ""

    def with_effort(self, settings: JSONObject, effort: str) -> JSONObject:
        """Return the settings with another effort, or without any."""
        if not self.effort_path:
            return settings
        outer, inner = self.effort_path
        given = cast(JSONObject, settings[outer]) if isinstance(settings.get(outer), dict) else {}
        if effort and inner in given:  # at its place, so that the bytes are the same
            return {**settings, outer: {**given, inner: effort}}
        rest = {name: value for name, value in given.items() if name != inner} | ({inner: effort} if effort else {})
        return {**settings, outer: rest} if rest else {key: each for key, each in settings.items() if key != outer}

    def encode_native(self, context: NativeContext) -> NativeSettings:
        """Return the settings that let the provider manage the context itself."""
        return NativeSettings({}, missing=context.names)

    def describe_edits(self, reply: Message) -> tuple[str, ...]:
        """Return what the provider left out of the request, as a reply reports it, for people."""
        return ()

    def read_compaction(self, block: JSONObject) -> str:
        """Return the feature of the provider that a block of its own compaction needs; "" if it is another block.

        Nothing before such a block has to be sent.
        """
        return ""

    def compaction_settings(self, settings: JSONObject, instructions: str) -> NativeSettings | None:
        """Return settings with which the provider answers with a compaction; None if it cannot."""
        return None

    def with_compaction_trigger(self, body: JSONObject) -> JSONObject:
        """Return the body of a request that asks for a compaction, with what the format adds after its messages."""
        return body

    def compaction_text(self, reply: Message) -> str:
        """Return the summary in the provider's compaction, if it can be read."""
        own = [part.data for part in reply.parts if isinstance(part, ProviderBlock) and part.provider == self.provider]
        texts = [data.get("content") for data in own if self.read_compaction(data)]
        return next((text for text in texts if isinstance(text, str)), "")

    def begins_with_compaction(self, message: JSONObject) -> bool:
        """Return True if a message of a request begins with such a block, so that no user message must precede it."""
        return False

    def read_continuation(self, reply: Message) -> Continuation | None:
        """Return what the request after a reply has to send again, beside its messages; None if there is nothing."""
        return None

    def with_continuation(self, request: Request, value: str) -> Request:
        """Return the request with the value of a `Continuation` in its settings, if it takes one."""
        return request

    def can_change_effort(self, settings: JSONObject) -> bool:
        """Return True if a message may change the effort of a request with these settings."""
        return bool(self.effort_path)

    def is_tool(self, definition: Mapping[str, JSON]) -> bool:
        """Return True if a tool definition is recognizably in this format."""
        return bool(self.tool_key) and self.tool_key in definition

    def decode_tools(self, definitions: list[JSONObject]) -> tuple[Tool | NativeTool, ...]:
        """Return tools from definitions in this format."""
        return self.decode_request({self.messages_key: [], "tools": definitions}).tools

    def _restored_tool(self, ours: JSONObject, extra: Extra | None) -> JSONObject:
        return merge_extra(ours, extra, self.extra_key)

    def decode_request(self, body: JSONObject | list[JSONObject]) -> Request:
        """Return a request, or a bare list of messages, in contextc's types.

        Raise `InvalidRequest` if it does not have the shape of this format.
        """
        try:
            request = self._decode_request({self.messages_key: body} if isinstance(body, list) else body)
        except DECODE_ERRORS as error:
            problem = f"not a {self.name} request ({type(error).__name__}: {error})"
            raise InvalidRequest(problem, fix="Call `lint` to locate the error, or `fix` to repair it.") from error
        messages = request.messages
        if (
            self.user_first
            and len(messages) > 1
            and messages[0].text == OPENING_TEXT
            and messages[1].role == "assistant"
        ):
            messages = messages[1:]  # the opening that `join` inserted
        messages = merge_unordered_results([self.name_codec.decode(message) for message in messages])
        if PLACED_KEY in self.layout_extra:
            messages = mark_positions(messages, self.extra_key)
        return replace(
            request,
            messages=tuple(messages),
            tools=tuple([self.name_codec.decode_tool(tool) for tool in request.tools]),
            source=(self.extra_key, self.name),
        )

    def check_surroundings(self, message: JSONObject) -> Iterable[RuleFinding]:
        """Return findings about a message's surroundings, in a JSON Lines file or an event stream, that decoding
        ignores.
        """
        return ()

    @abstractmethod
    def _decode_request(self, body: JSONObject) -> Request: ...

    def decode_reply(self, reply: object) -> Message:
        """Return a reply as a message. It may be an object of the vendor's SDK or JSON."""
        plain = as_json(reply)
        if not self._is_reply(plain):
            raise InvalidReply(self.name, plain)
        return self._with_own_form(self._decode_reply(plain))

    @abstractmethod
    def _is_reply(self, reply: JSONObject) -> bool:
        """Return True if this has the shape of a reply in this format."""

    @abstractmethod
    def _decode_reply(self, reply: JSONObject) -> Message: ...

    def session_id_of(self, reply: JSONObject, field: str) -> str:
        """Return the session that a reply belongs to, or "": its `field`, as in a request."""
        return id_text(reply.get(field))

    def decode_stream(self, events: Iterable[object]) -> Message:
        """Return the whole reply from its events, objects of the vendor's SDK or JSON. The stream may be incomplete."""
        return self._with_own_form(self._decode_reply(self._collect(as_json(event) for event in events)))

    def _with_own_form(self, reply: Message) -> Message:
        """Return a decoded reply with decoded ids and names, and with valid token counts."""
        if (usage := valid_usage(reply.usage)) is not reply.usage:
            reply = replace(reply, usage=usage)
        return self.name_codec.decode(reply)

    def create_reader(self) -> StreamReader:
        """Return a reader for one reply while it is streamed."""
        if self.stream_reader is not None:
            return self.stream_reader(self)
        raise InvalidInput(f"format {self.name}: no provider streams it", fix="Call `decode_stream` on stored events.")

    def _collect(self, events: Iterable[JSONObject]) -> JSONObject:
        """Return a reply as the provider would have sent it unstreamed, from the events of its stream."""
        raise InvalidInput(
            f"format {self.name}: streams are not supported", fix="Define `_collect`, or decode a whole reply."
        )

    def format(self, history: Sequence[Message], system_prompt: str | None = None) -> list[JSONObject]:
        """Return the `messages` of a request, as the vendor's own SDK takes them."""
        strange = next((message for message in history if not isinstance(message, Message)), None)
        if strange is not None:
            raise InvalidInput(
                f"history: expected Message, got {type(strange).__name__}",
                fix="Build messages with cc.user(…), or decode a provider's messages with `decode_request`.",
            )
        prompt = _non_blank(system_prompt) if self.system_among_messages else None
        head = self.encode([system(prompt)]).messages if prompt else ()
        return [*head, *self.encode_history([self.with_text_files(message)[0] for message in history])]

    def get_system_prompt(self, system_prompt: str | None) -> str | None:
        """Return the system prompt if the format has a separate field for it, or None if it is one of the messages."""
        return None if self.system_among_messages else _non_blank(system_prompt)

    def encode_history(self, history: Sequence[Message], *, blobs: Mapping[str, bytes] = {}) -> list[JSONObject]:
        """Return a history as the messages of a request, with missing results filled in.

        Text files stay media, so that the messages are the same history when they are read again. `format` and
        `encode_request` write them as text.
        """
        segments = split_segments(self.pair_calls(history).messages)
        return self.join([self.encode(segment, blobs=blobs) for segment in segments])

    def pair_calls(self, history: Sequence[Message], *, used_ids: Collection[str] = ()) -> PairedHistory:
        """Return the history with every result next to its call, and with unique call ids if this format requires them.

        `used_ids` are the encoded ids of calls in earlier messages. Results that were read in this format, where its
        provider accepts them, stay in their position.
        """
        return pair_tool_calls(
            history,
            unique_ids=self.unique_ids,
            encode_id=self.name_codec.encode_id,
            used_ids=used_ids,
            placement=self.result_placement,
            placed_by=self.extra_key,
        )

    def encode_request(self, request: Request, *, blobs: Mapping[str, bytes] = {}) -> JSONObject:
        """Return the whole body of a request, ready to be sent."""
        return self.encode_with_notes(request, blobs=blobs).body

    def encode_with_notes(self, request: Request, *, blobs: Mapping[str, bytes] = {}) -> EncodedRequest:
        """Return the whole body of a request, with notes on what was changed to write it."""
        messages, files = self.with_session_results(request, blobs=blobs), list[ConversionNote]()
        if request.source != (self.extra_key, self.name):
            inlined = [self.with_text_files(message, blobs=blobs) for message in messages]
            messages, files = [message for message, _ in inlined], [note for _, notes in inlined for note in notes]
        if self.keeps_layout and request.source == (self.extra_key, self.name):
            written = self._write(request, PairedHistory([*messages], []), blobs)
            if not self.rules.lint(written.body):
                return written
        written = self._write(request, self.pair_calls(messages), blobs)
        return written._replace(notes=(*files, *written.notes)) if files else written

    def _write(self, request: Request, paired: PairedHistory, blobs: Mapping[str, bytes]) -> EncodedRequest:
        encoded = [self.encode(segment, blobs=blobs) for segment in split_segments(paired.messages)]
        notes = [note for segment in encoded for note in segment.notes]
        notes += [
            ConversionNote("left out", f"the tool {native_tool_label(tool)} of {tool.provider}")
            for tool in request.tools
            if isinstance(tool, NativeTool) and tool.provider != self.provider
        ]
        ours = [tool for tool in request.tools if isinstance(tool, Tool)]
        if not self.strict_tools and (strict := [tool.name for tool in ours if tool.strict is True]):
            which = f"the tool{'s' if len(strict) > 1 else ''} {', '.join(strict)}"
            notes.append(ConversionNote("left out", f"`strict` of {which}, which {self.name} does not take"))
        has_calls = any(message.tool_calls or message.tool_results for message in paired.messages)
        if self.placeholder_tool is not None and has_calls and not self.encode_tools(request.tools):
            notes.append(
                ConversionNote("made up", f"a tool {self.placeholder_tool.name}, because there are calls and no tools")
            )
        first = next((segment for segment in encoded if segment.messages), None) if self.user_first else None
        begins = first is None or first.apart or first.messages[0]["role"] in ("user", "system")
        if first is not None and not (begins or self.begins_with_compaction(first.messages[0])):
            notes.append(
                ConversionNote("made up", "a line from the user, because the conversation begins with the assistant")
            )
        notes += [note for repair in paired.repairs if (note := note_for_repair(repair)) is not None]
        request = replace(request, settings=self.rename_tool_choice(request))
        return EncodedRequest(self.assemble(request, self.join(encoded)), tuple(notes))

    def rename_tool_choice(self, request: Request) -> JSONObject:
        """Return the settings, with tool names in them spelled as they are sent to the model."""
        names = self.name_codec.names
        if names is None:
            return request.settings
        told = {tool.name: names.encode(tool.name) for tool in request.tools if isinstance(tool, Tool)}
        changed = {name: spelled for name, spelled in told.items() if name != spelled}
        named = RequestSettings(tool_choice=ToolChoice("named", "-"))
        places = self.settings.write_structured(named).keys() if changed else ()
        return {
            name: rename_tools(value, changed) if name in places else value for name, value in request.settings.items()
        }

    def with_session_results(self, request: Request, *, blobs: Mapping[str, bytes] = {}) -> Sequence[Message]:
        """Return the messages to pair. Results of calls in a session of the provider become native blocks, which
        pairing keeps.
        """
        return request.messages


def _non_blank(prompt: str | None) -> str | None:
    return prompt if prompt and not prompt.isspace() else None


def note_for_repair(repair: PairingRepair) -> ConversionNote | None:
    """Return a note on a repair of pairing, or None if the model sees no difference."""
    match repair.kind:
        case "synthetic":
            return ConversionNote("made up", f"a result for the call {repair.call_id}, which had none")
        case "orphan" | "duplicate":
            return ConversionNote("left out", f"a result for {repair.call_id} that no call asked for")
        case "moved" | "renamed":
            return None
        case _:
            assert_never(repair.kind)


STANDARD_WORDS = ("standard", "default", "auto", "unspecified", "on_demand", "global", "not_available")
"""Words of replies for the tier, the speed or the region at list prices."""
MAX_WORD = 40
TICKS_PER_DOLLAR = 10_000_000_000
"""docs.x.ai/developers/cost-tracking"""


def billing_word(value: JSON, names: Mapping[str, str] = {}) -> str:
    """Return the word of a reply for a tier, a speed or a region; "" for the standard one. `names` renames words."""
    word = value.strip().lower()[:MAX_WORD] if isinstance(value, str) else ""
    return "" if word in STANDARD_WORDS else names.get(word, word)


def reported_dollars(usage: JSONObject, *, in_cost: bool = False) -> float | None:
    """Return what a call cost in dollars, as its usage reports it; None if it does not.

    xAI counts in ticks. With `in_cost`, the endpoint bills `cost` in dollars. If the caller brought a key of the vendor
    (`is_byok`), the vendor bills its part to that key.
    """
    if (ticks := _price(usage.get("cost_in_usd_ticks"))) is not None:
        return ticks / TICKS_PER_DOLLAR
    cost = _price(usage.get("cost")) if in_cost else None
    if cost is None or not usage.get("is_byok"):
        return cost
    upstream = _price(as_object(usage.get("cost_details")).get("upstream_inference_cost"))
    return cost + upstream if upstream is not None else None


def _price(value: JSON) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and 0 <= value < float("inf") else None


def own_extra(extra: Extra | None, provider: str) -> JSONObject:
    """Return the data of this provider beyond contextc's types."""
    return extra.get(provider, {}) if extra else {}


def extra_of(original: JSONObject, ours: JSONObject, provider: str) -> Extra | None:
    """Return the fields in which a provider's object differs from our encoding of it. None marks a field it lacks."""
    rest: JSONObject = {
        name: value for name, value in original.items() if value is not None and ours.get(name) != value
    }
    rest |= {name: None for name, value in ours.items() if value is not None and original.get(name) is None}
    return {provider: rest} if rest else None


def merge_extra(ours: JSONObject, extra: Extra | None, provider: str) -> JSONObject:
    """Return our encoding of an object with the provider's own data restored. This reverses `extra_of`."""
    rest = own_extra(extra, provider)
    if not rest:
        return ours
    return {name: value for name, value in {**ours, **rest}.items() if rest.get(name, 0) is not None}


def append_text(holder: JSONObject, name: str, more: str) -> None:
    """Append to a text in place. A stream may have ten thousand pieces, and copying the text for each would be slow."""
    text = cast(str, holder.get(name) or "")
    holder[name] = None  # with one reference left, Python grows the string instead of copying it
    text += more
    holder[name] = text


def cache_control(ttl: str) -> JSONObject:
    """Return a cache breakpoint in the form of Anthropic, which gateways have too. "" is the default lifetime."""
    return {"type": "ephemeral", "ttl": ttl} if ttl else {"type": "ephemeral"}


def list_cache_controls(blocks: Iterable[JSONObject]) -> list[str]:
    """Return the lifetime of each of these breakpoints; "" is the default."""
    return [text_of(as_object(block["cache_control"]).get("ttl")) for block in blocks if "cache_control" in block]


def without_cache_control(block: JSONObject) -> JSONObject:
    return {name: value for name, value in block.items() if name != "cache_control"}


def text_of(value: JSON) -> str:
    """Return the value if it is a string, else ""."""
    return value if isinstance(value, str) else ""


def list_valid_tools(values: JSON) -> tuple[JSONObject, ...]:
    """Return the tool definitions in a block of a message, without those whose name or schema is malformed."""
    return tuple(
        [
            tool
            for tool in as_objects(values)
            if isinstance(tool.get("name", ""), str)
            and all([isinstance(tool.get(key) or {}, dict) for key in ("input_schema", "parameters")])
        ]
    )


def native_tool_label(tool: NativeTool) -> str:
    return str(tool.data.get("name") or tool.data.get("type") or next(iter(tool.data), "without a name"))


# ── shared by codecs ──────────────────────────────────────────────────────────────────────────────────────────────────
# Shared parts of encoders and decoders: base classes, codecs of tool definitions, functions of decoders.


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
        """Return one line of text that replaces another provider's block. A refusal keeps its text."""
        self.note("described", f"a block of {part.provider}")
        data = cast(JSONObject, part.data) if isinstance(part.data, dict) else {}
        if isinstance(data.get("refusal"), str) and data["refusal"].strip():
            return data["refusal"]
        kind = data.get("type") or next(iter(data), "block")
        return f"[{part.provider} {kind}; not shown]"

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
