"""Streams of replies: reading the events of a provider, and writing a reply as events of a format."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Protocol, TypeAlias, cast

from msgspec.structs import replace

from contextc._json import JSON, JSONObject, encode, fix_surrogates, id_text
from contextc.errors import FailureKind, InvalidInput
from contextc.formats.message_preparation import NameCodec
from contextc.messages import BilledCall, Message, Reasoning, Text, ToolCall, ToolResult, Usage, tool_call

if TYPE_CHECKING:
    from contextc.formats.base import Formatter

# ── reading ───────────────────────────────────────────────────────────────────────────────────────────────────────────
# Readers of streamed replies: the delta of each event, and the message so far.
#
# Deltas are for live display. The stored message is decoded from all events at once, as `decode_stream` does, so it
# does not depend on the display. Text, reasoning and calls of the joined deltas equal those of the message. A provider
# may answer a streaming request with a whole reply, which is read like a stream of one event.
#
# A provider that runs tools itself answers with several messages: calls, their results, and the final text. A provider
# with sessions also sends the session's id and position.


Delta: TypeAlias = Text | Reasoning | ToolCall | ToolResult
NOTE_EVENT = "contextc.note"


class StreamDecoder(Protocol):
    """The methods of a formatter that a reader uses."""

    name_codec: ClassVar[NameCodec]
    provider: str

    def decode_stream(self, events: Iterable[object]) -> Message: ...

    def decode_reply(self, reply: object) -> Message: ...


class StreamReader(ABC):
    """Reads one reply. A format defines the deltas of an event, and which events end the reply."""

    session_fields: ClassVar[tuple[str, ...]] = ()
    """Request settings that name a session of the format itself. Any other one is a provider's own."""
    interleaves_calls: ClassVar[bool] = False
    """True if a stream may contain pieces of several calls in turn."""
    has_call_ids: ClassVar[bool] = True
    """False if calls may have no ids, or ids that repeat."""

    def __init__(self, formatter: StreamDecoder) -> None:
        self.formatter = formatter
        self.events: list[JSONObject] = []
        self.finished = False
        """True if the provider has signalled the end of the reply."""
        self.error: JSONObject | None = None
        """The event that reported an error, as received."""
        self.session = ""
        """The provider's id of the session that this reply belongs to, or "" while it is unknown."""
        self.cursor = ""
        """The position of that session after this reply, in the provider's notation."""
        self.compacted = False
        """True if the provider shortened its own history during this reply."""
        self.message_index: int | None = None
        """Index of the message that the last deltas belong to, in order of their start. None if results separate
        messages.
        """
        self.message_starts: list[int] = []
        """For each assistant message that `messages` last returned, its index in order of start, where `at` is set."""
        self.notes: list[str] = []
        """Notes for the manifest of the request."""
        self._unstreamed: JSONObject | None = None

    def read(self, event: JSONObject) -> list[Delta]:
        """Return the deltas of this event."""
        if event.get("type") == NOTE_EVENT:
            self.notes.append(fix_surrogates(str(event["text"])))
            return []
        self.events.append(event)
        if is_error(event):
            self.error = event
        elif self._is_whole(event):
            self._unstreamed, self.finished = event, True
            return [part for part in self.message().parts if isinstance(part, Text | Reasoning | ToolCall)]
        return [self._decode_names(delta) for delta in self._deltas(event)]

    def find_session(self, field: str, resumed: str = "") -> str:
        """Return the id of the session that this reply belongs to, or "".

        An event, or the reply that it contains, has it in `field`, the request setting that names the session. Without
        it, the reply belongs to the session that the request `resumed`, or to what the format itself calls its session.
        """
        is_own = bool(field) and field not in self.session_fields
        return (self._find_text(field) or resumed if is_own else "") or self.session

    def find_cursor(self, field: str) -> str:
        """Return the position of the session after this reply: the `cursor` of an event, or ""."""
        return self.cursor or (self._find_text("cursor") if field else "")

    def _find_text(self, name: str) -> str:
        """Return the last text or number of this name in an event, or in the reply that an event contains."""
        for event in reversed(self.events):
            for holder in (event, event.get("response"), event.get("message")):
                if isinstance(holder, dict) and (text := id_text(cast(JSONObject, holder).get(name))):
                    return text
        return ""

    def message(self) -> Message:
        """Return the whole reply so far."""
        if self._unstreamed is not None:
            return self.formatter.decode_reply(self._unstreamed)
        return self.formatter.decode_stream(self.events)

    def messages(self) -> list[Message]:
        """Return all messages of the reply so far, in order. `message` returns the last one.

        Only a provider that runs tools itself has several.
        """
        return [self.message()]

    def _is_whole(self, event: JSONObject) -> bool:
        """Return True if this event is a reply that was not streamed."""
        return False

    @abstractmethod
    def _deltas(self, event: JSONObject) -> Iterable[Delta]: ...

    def _decode_names(self, delta: Delta) -> Delta:
        if isinstance(delta, ToolResult):
            return replace(delta, call_id=self._id(delta.call_id), name=self._name(delta.name))
        if not isinstance(delta, ToolCall):
            return delta
        name, call_id = self._name(delta.name), self._id(delta.id)
        if (name, call_id) == (delta.name, delta.id):
            return delta
        return tool_call(call_id, name, delta.arguments if delta.raw is None else delta.raw)

    def _name(self, name: str) -> str:
        names = self.formatter.name_codec.names
        return names.decode(name) if names is not None else name

    def _id(self, call_id: str) -> str:
        ids = self.formatter.name_codec.ids
        return ids.decode(call_id) if ids is not None else call_id


class ToolCallAccumulator:
    """Accumulates the arguments of a streamed call. A piece is returned once the call's id and name are known."""

    def __init__(self) -> None:
        self.received = self.returned = 0
        self._waiting: list[str] = []
        self._named = False

    def add(self, piece: str) -> None:
        self.received += len(piece)
        self._waiting.append(piece)

    def take_new(self, call_id: str, name: str) -> Iterable[ToolCall]:
        """Yield the arguments not yet returned. The first piece may be empty, and announces the call."""
        if not call_id or not name or (self._named and self.returned == self.received):
            return
        piece = "".join(self._waiting)
        self._waiting, self._named, self.returned = [], True, self.received
        yield tool_call(call_id, name, piece)


def make_note_event(text: str) -> JSONObject:
    """Return an event, inserted among the provider's own, that carries a note for the manifest."""
    return {"type": NOTE_EVENT, "text": text}


def is_error(event: JSONObject) -> bool:
    """Return True if an event reports a failed reply, in the shape of any provider."""
    if event.get("error") or event.get("type") in ("error", "response.failed") or event.get("object") == "error":
        return True
    choices: JSON = event.get("choices")  # a gateway passes on an upstream error in a choice
    return isinstance(choices, list) and any(
        isinstance(each, dict) and bool(cast(JSONObject, each).get("error")) for each in cast(list[JSON], choices)
    )


def as_json(value: object) -> JSONObject:
    """Return a reply or an event of any SDK as plain data."""
    if isinstance(value, Mapping):
        return dict(cast(Mapping[str, JSON], value))
    # Classes of OpenAI and Anthropic have `to_dict`. Google's field names in JSON differ from those in Python.
    dumps = (("to_dict", {"mode": "json"}), ("model_dump", {"mode": "json", "by_alias": True, "exclude_none": True}))
    for name, options in dumps:
        if callable(dump := getattr(value, name, None)):
            return cast(JSONObject, dump(**options))
    raise InvalidInput(
        f"reply: expected an object of the vendor's SDK or a dict, got {type(value).__name__}",
        fix="Pass the SDK's return value, or its JSON as a dict.",
    )


# ── replies in the shapes of providers ────────────────────────────────────────────────────────────────────────────────
# Replies in the shape of a provider, put together from messages.
#
# A reply is stored as a message, without the bytes that arrived. The body made here is decoded to the same message and
# the same usage.


FINISH_REASONS: Mapping[str, Mapping[str, str]] = {
    "anthropic": {"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens", "pause": "pause_turn"},
    "bedrock": {
        "stop": "end_turn",
        "tool_calls": "tool_use",
        "length": "max_tokens",
        "content_filter": "content_filtered",
    },
    "gemini": {
        "stop": "STOP",
        "tool_calls": "STOP",
        "length": "MAX_TOKENS",
        "pause": "CONTINUATION",
        "content_filter": "SAFETY",
    },
    "ollama": {"tool_calls": "stop"},
}
"""Finish reasons of the formats that have other names for them than ours."""


def encode_reply(
    form: "Formatter",
    model: str,
    answers: Sequence[Message],
    usage: Usage | None,
    blobs: Mapping[str, bytes],
    response_id: str = "",
) -> JSONObject:
    """Return the body of a reply in a format. Formats with one answer per reply get the first."""
    wires = [list(form.encode([answer], blobs=blobs).messages) for answer in answers]
    names = FINISH_REASONS.get(form.name, {})
    reasons = [names.get(answer.finish, answer.finish) if answer.finish else None for answer in answers]
    first: JSONObject = wires[0][0] if wires and wires[0] else {"role": "assistant", "content": []}
    finish = reasons[0] if reasons else None
    used = usage or Usage()
    id: JSONObject = {"id": response_id} if response_id else {}
    match form.name:
        case "anthropic":
            made: JSONObject = {
                **id,
                "type": "message",
                "role": "assistant",
                "model": model,
                "content": first.get("content"),
                "stop_reason": finish,
            }
            return {**made, **({"usage": anthropic_usage(used)} if usage else {})}
        case "openai_responses":
            status = {"length": "incomplete", None: "in_progress"}.get(finish, "completed")
            made = {**id, "object": "response", "model": model, "status": status, "output": wires[0] if wires else []}
            if status == "incomplete":
                made["incomplete_details"] = {"reason": "max_output_tokens"}
            return {**made, **openai_tier(used), **({"usage": responses_usage(used)} if usage else {})}
        case "gemini":
            candidates: list[JSON] = [
                {"index": index, "content": wire[0] if wire else {"role": "model", "parts": []}}
                | ({"finishReason": reason} if reason else {})
                for index, (wire, reason) in enumerate(zip(wires, reasons, strict=True))
            ]
            made = {"modelVersion": model, "candidates": candidates}
            return {**made, **({"usageMetadata": gemini_usage(used)} if usage else {})}
        case "bedrock":
            made = {"output": {"message": first}, "stopReason": finish}
            return {**made, **_bedrock_tier(used), **({"usage": _bedrock_usage(used)} if usage else {})}
        case "ollama":
            counts: JSONObject = {"prompt_eval_count": used.input, "eval_count": used.output} if usage else {}
            done: JSONObject = {"done": True, "done_reason": finish} if finish else {"done": False}
            return {"model": model, "message": first, **done, **counts}
        case _:
            choices: list[JSON] = [
                {"index": index, "finish_reason": reason, "message": wire[0] if wire else {"role": "assistant"}}
                for index, (wire, reason) in enumerate(zip(wires, reasons, strict=True))
            ]
            made = {**id, "object": "chat.completion", "model": model, "choices": choices}
            return {**made, **openai_tier(used), **({"usage": chat_usage(used)} if usage else {})}


DECLINED = "declined"
"""The kind of a billed call whose model declined, so that a fallback answered."""
WEB_SEARCH = "web_search"
"""The kind of a billed call of the provider's search, which has a fee."""
REPLY_TIERS = {
    "anthropic": ("priority", "batch"),
    "openai": ("flex", "priority", "scale", "ultrafast"),
    "gemini": ("flex", "priority"),
}
"""Tiers that replies of a format may name. Other formats have other words, which are left out."""


def anthropic_usage(usage: Usage) -> JSONObject:
    made = _anthropic_tokens(usage)
    made |= {"output_tokens_details": {"thinking_tokens": usage.reasoning}} if usage.reasoning else {}
    made |= _reply_tier(usage, "anthropic", "service_tier")
    made |= {"speed": usage.speed} if usage.speed == "fast" else {}
    made |= {"inference_geo": usage.region} if usage.region else {}
    searches = sum([each.count for each in usage.calls if each.kind == WEB_SEARCH])
    made |= {"server_tool_use": {"web_search_requests": searches, "web_fetch_requests": 0}} if searches else {}
    has_more = usage.iterations or usage.model or any([not each.count for each in usage.calls])
    return {**made, **({"iterations": _anthropic_iterations(usage)} if has_more else {})}


def _anthropic_tokens(usage: Usage | BilledCall) -> JSONObject:
    made: JSONObject = {
        "input_tokens": usage.input - usage.cache_read - usage.cache_write,
        "output_tokens": usage.output,
        "cache_read_input_tokens": usage.cache_read,
        "cache_creation_input_tokens": usage.cache_write,
    }
    if usage.cache_write_long:
        short = usage.cache_write - usage.cache_write_long
        lifetimes = {"ephemeral_5m_input_tokens": short, "ephemeral_1h_input_tokens": usage.cache_write_long}
        made["cache_creation"] = lifetimes
    return made


def _anthropic_iterations(usage: Usage) -> list[JSON]:
    """Return the calls that are billed beside the figures of a reply, and the one that answered."""
    made: list[JSON] = []
    for call in [each for each in usage.calls if not each.count]:
        kind = "message" if call.kind == DECLINED else call.kind
        made.append({"type": kind, **({"model": call.model} if call.model else {}), **_anthropic_tokens(call)})
    *before, last = usage.iterations or (usage,)
    earlier: JSONObject = {"type": "message", **({"model": usage.model} if usage.model else {})}
    made += [{**earlier, **_anthropic_tokens(each)} for each in before]
    answered: JSONObject = {"type": "fallback_message", "model": usage.model} if usage.model else {"type": "message"}
    return [*made, {**answered, **_anthropic_tokens(last)}]


def _bedrock_usage(usage: Usage) -> JSONObject:
    made: JSONObject = {
        "inputTokens": usage.input - usage.cache_read - usage.cache_write,
        "outputTokens": usage.output,
        "cacheReadInputTokens": usage.cache_read,
        "cacheWriteInputTokens": usage.cache_write,
    }
    if usage.cache_write_long:
        lifetimes = {"1h": usage.cache_write_long, "5m": usage.cache_write - usage.cache_write_long}
        made["cacheDetails"] = [{"ttl": ttl, "inputTokens": tokens} for ttl, tokens in lifetimes.items()]
    return made


def _bedrock_tier(usage: Usage) -> JSONObject:
    named = usage.tier.removeprefix("bedrock ")
    return {"serviceTier": {"type": named}} if named != usage.tier else {}


def gemini_usage(usage: Usage) -> JSONObject:
    return {
        "promptTokenCount": usage.input,
        "candidatesTokenCount": usage.output - usage.reasoning,
        "thoughtsTokenCount": usage.reasoning,
        "cachedContentTokenCount": usage.cache_read,
        **_reply_tier(usage, "gemini", "serviceTier"),
    }


def responses_usage(usage: Usage) -> JSONObject:
    details: JSONObject = _details(cached_tokens=usage.cache_read, cache_write_tokens=usage.cache_write)
    if usage.cache_write_long:
        details["cache_write_tokens_details"] = {"ttl_12h_tokens": usage.cache_write_long}
    return {
        "input_tokens": usage.input,
        "input_tokens_details": details,
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
    }


def openai_tier(usage: Usage) -> JSONObject:
    """Return the field of a reply with the tier, which is beside its usage."""
    return _reply_tier(usage, "openai", "service_tier")


def _reply_tier(usage: Usage, words: str, field: str) -> JSONObject:
    return {field: usage.tier} if usage.tier in REPLY_TIERS[words] else {}


def chat_usage(usage: Usage) -> JSONObject:
    return {
        "prompt_tokens": usage.input,
        "prompt_tokens_details": _details(cached_tokens=usage.cache_read, cache_write_tokens=usage.cache_write),
        "completion_tokens": usage.output,
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    }


def _details(**figures: int) -> JSONObject:
    return {name: figure for name, figure in figures.items() if figure}


# ── writing ───────────────────────────────────────────────────────────────────────────────────────────────────────────
# Encoders of streamed replies: the stream that a client of a format expects, from the deltas of any provider's reply.
#
# A reply is a sequence of texts and calls. Reasoning is not passed on: only its provider can verify it, and a client
# might send it to another one. It becomes an event without content, so that the client knows that the reply continues.


BlockKey: TypeAlias = tuple[str, str]
"""The kind of a block, "text" or "call", and the id of the call."""
TEXT: BlockKey = ("text", "")
ERROR_CODES: Mapping[FailureKind, str] = {
    "rate": "rate_limit_exceeded", "quota": "insufficient_quota", "context": "context_length_exceeded",
    "transient": "server_is_overloaded",
}  # fmt: skip


class ReplyEncoder(ABC):
    """Encodes one reply. `request` is the client's request, `model` and `id` are those of the reply.

    With `interleaved`, the provider may send pieces of several calls in turn. Then what follows a call is kept until
    the end, because a format may allow only one open block.
    """

    content_type: ClassVar[str] = "text/event-stream; charset=utf-8"
    id_prefix: ClassVar[str] = ""
    """The beginning of the ids of replies."""
    refusal: ClassVar[str] = "content_filter"
    """The reason for the end of a reply whose provider did not want to answer."""
    count_field: ClassVar[str] = "input_tokens"
    """The field of the reply to a request that counts tokens."""

    def __init__(
        self, request: JSONObject, model: str, id: str, *, created: int = 0, interleaved: bool = False
    ) -> None:
        self.request, self.model, self.id, self.created = request, model, id, created
        self._interleaved = interleaved
        self._open: BlockKey | None = None
        self._name = ""
        self._pieces: list[str] = []
        self._kept: dict[BlockKey, list[Delta]] = {}

    @abstractmethod
    def begin(self) -> bytes:
        """Return the beginning of the stream."""

    def add(self, delta: Delta) -> bytes:
        """Return the events of a delta. Ids and names are those of the client."""
        if not isinstance(delta, Text | ToolCall):
            return self.keep_alive()
        key = TEXT if isinstance(delta, Text) else ("call", delta.id)
        if self._interleaved and self._open is not None and self._open != TEXT and key != self._open:
            self._kept.setdefault(key, []).append(delta)
            return b""
        return self._write(key, delta)

    def end(self, message: Message) -> bytes:
        """Return the rest of the stream. `message` is the whole reply."""
        rest = [self._write(key, delta) for key, deltas in self._kept.items() for delta in deltas]
        return b"".join([*rest, self._close(), self._end(message)])

    def whole(self, message: Message) -> JSONObject | None:
        """Return the reply as one object after the end of the stream; None if `encode_reply` makes it."""
        return None

    @property
    def reply_fields(self) -> JSONObject:
        """Fields of a reply as one object that `encode_reply` does not make."""
        return {}

    @classmethod
    def is_requested(cls, request: JSONObject, url: str) -> bool:
        """Return True if a client asks for a stream."""
        return request.get("stream") is True

    @classmethod
    def encode_error(cls, kind: FailureKind, status: int, text: str) -> tuple[int, JSONObject]:
        """Return the status and the body of an error; in the form of OpenAI, if the format has none of its own."""
        code = ERROR_CODES.get(kind)
        return status, {"error": {"message": text, "type": code or "invalid_request_error", "code": code}}

    def keep_alive(self) -> bytes:
        """Return an event without content."""
        return b": \n\n"

    @abstractmethod
    def fail(self, error: JSONObject) -> bytes:
        """Return the event of an error after the stream has begun. `error` is the body of an error in this format."""

    def _write(self, key: BlockKey, delta: Delta) -> bytes:
        made: list[bytes] = []
        if key != self._open:
            made.append(self._close())
            self._open, self._name = key, delta.name if isinstance(delta, ToolCall) else ""
            made.append(self._begin_call(key[1], self._name) if isinstance(delta, ToolCall) else self._begin_text())
        piece = delta.text if isinstance(delta, Text) else _written(delta) if isinstance(delta, ToolCall) else ""
        if piece:
            self._pieces.append(piece)
            made.append(self._add_arguments(piece) if isinstance(delta, ToolCall) else self._add_text(piece))
        return b"".join(made)

    def _close(self) -> bytes:
        key, whole = self._open, "".join(self._pieces)
        self._open, self._pieces = None, []
        if key is None:
            return b""
        return self._end_text(whole) if key == TEXT else self._end_call(key[1], self._name, whole)

    @abstractmethod
    def _begin_text(self) -> bytes: ...
    @abstractmethod
    def _add_text(self, piece: str) -> bytes: ...
    @abstractmethod
    def _end_text(self, whole: str) -> bytes: ...
    @abstractmethod
    def _begin_call(self, id: str, name: str) -> bytes: ...
    @abstractmethod
    def _add_arguments(self, piece: str) -> bytes: ...
    @abstractmethod
    def _end_call(self, id: str, name: str, whole: str) -> bytes: ...
    @abstractmethod
    def _end(self, message: Message) -> bytes: ...


def _written(call: ToolCall) -> str:
    return call.raw if call.raw is not None else encode(call.arguments).decode()


def server_sent_event(data: JSON, name: str = "", line_end: bytes = b"\n") -> bytes:
    """Return an event of a stream."""
    head = b"event: " + name.encode() + line_end if name else b""
    return head + b"data: " + encode(data) + line_end * 2
