"""Requests of a client's format as requests to another provider, and its replies as the client expects them. No I/O."""

import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from threading import Lock
from typing import cast

import msgspec
from msgspec.structs import replace

from contextc._json import JSONObject, as_object, as_objects, decode, encode
from contextc.compiler.manifest import ProxyAction
from contextc.compiler.past_requests import MARK_NAMES
from contextc.errors import FailureKind, InvalidSetting, ProviderFailed
from contextc.formats import formatter
from contextc.formats.base import Formatter, Request
from contextc.formats.request_settings import RequestSettings, nearest_effort
from contextc.formats.streams import Delta, ReplyEncoder, StreamReader, encode_reply
from contextc.linting.converter import ConvertedBody, convert_between
from contextc.messages import Message, Text, ToolCall, Usage
from contextc.models.tokens import estimate_tokens
from contextc.observation.chain_writer import rename_calls
from contextc.observation.client_ids import COUNTING_PATH
from contextc.providers import Provider
from contextc.providers.registry import snippet_tables
from contextc.proxy.request_lint import MAX_CHANGES, Change, apply_changes, find_request_format
from contextc.tools.definitions import Tool

# ── replies as the provider made them ─────────────────────────────────────────────────────────────────────────────────
# Replies of a provider that a client of another format cannot hold: its reasoning and signatures.
#
# A client sends back what it was given, in its own format. If a reply with calls is among it, the provider's own
# version takes its place, so that the model continues with its reasoning. The memory is limited, and lost with the
# process. Then the request is converted without it, which every provider accepts.


MAX_REPLIES = 4_096


class ReplyMemory:
    """The last replies with calls, by the ids of their calls as the client has them."""

    def __init__(self) -> None:
        self._replies: dict[str, Message] = {}
        self._lock = Lock()

    def remember(self, reply: Message) -> None:
        """Keep a reply. The ids of its calls are those that the client was given."""
        with self._lock:
            for call in reply.tool_calls:
                self._replies[call.id] = reply
            while len(self._replies) > MAX_REPLIES:
                del self._replies[next(iter(self._replies))]

    def restore(self, messages: Iterable[Message]) -> tuple[Message, ...]:
        """Return messages with the provider's own version of its replies."""
        return tuple([self._find(each) if each.role == "assistant" and each.tool_calls else each for each in messages])

    def _find(self, message: Message) -> Message:
        ids = [call.id for call in message.tool_calls]
        with self._lock:
            known = self._replies.get(ids[0])
        return known if known is not None and [call.id for call in known.tool_calls] == ids else message


# ── requests and replies ──────────────────────────────────────────────────────────────────────────────────────────────


STATUSES: Mapping[FailureKind, int] = {
    "rate": 429, "quota": 402, "auth": 403, "context": 400, "invalid": 400, "session": 400, "transient": 503,
}  # fmt: skip
TOO_LONG = "prompt is too long"
"""Clients of Anthropic recognise this text and compact the conversation."""
COMMON_ENDS, REFUSALS = ("stop", "tool_calls", "length"), ("content_filter", "refusal")
"""Reasons for the end of a reply that every format has, and those of a provider that did not want to answer."""


class ConvertedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request as it is sent to the provider, and what its reply needs."""

    body: bytes
    actions: tuple[ProxyAction, ...]
    form: Formatter
    """The client's format."""
    request: JSONObject
    """The client's request."""
    model: str
    """The model that the client asked for."""
    names: dict[str, str]
    """The client's names of tools by those that the provider has."""
    is_streamed: bool


class Conversion:
    """The conversion of requests to one provider. `changes` are made after it."""

    def __init__(self, provider: Provider, changes: Sequence[tuple[str, Change]] = ()) -> None:
        if provider.session_resumption or provider.runs_tools or provider.formatter.stream_reader is None:
            raise InvalidSetting(
                "Requests can only be converted for a provider with a stateless API",
                got=provider.name,
                fix='Name the model of an API, such as "openai:gpt-5.4".',
            )
        self.provider, self.changes, self.memory = provider, changes, ReplyMemory()

    @property
    def url(self) -> str:
        """The address of a request as it is recorded."""
        facts = snippet_tables().get(self.provider.format, {})
        base = self.provider.url or facts.get("url", "")
        path = str(facts.get("path", "")).replace("{model}", self.provider.model_id)
        return f"{base}{path}"

    def convert(self, body: bytes, format: str, url: str) -> ConvertedRequest:
        """Return the request to the provider. Raise an error of contextc if the request cannot be converted."""
        given = as_object(decode(body))
        form = formatter(find_request_format(given, format, url))
        if form.reply_stream is None:
            raise InvalidSetting(
                "Replies cannot be converted to the format of this client",
                got=form.name,
                fix="Use a client of Anthropic Messages, OpenAI Chat or Responses, or Gemini.",
            )
        target = self.provider.formatter
        names: dict[str, str] = {}

        def edit(request: Request) -> Request:
            codec = target.name_codec.names
            if codec is not None:
                names.update({codec.encode(tool.name): tool.name for tool in request.tools if isinstance(tool, Tool)})
            settings = _merge(request.settings, {**self.provider.settings, **self.provider.stream_settings})
            return replace(request, messages=self.memory.restore(request.messages), settings=settings)

        made = cast(ConvertedBody, convert_between(form, target, given, edit=edit, edit_settings=self._settings))
        value = _with_breakpoints(target, dict(made)) if self.provider.model.cache_points else dict(made)
        model = str(given.get("model") or url.rpartition("/")[2].partition(":")[0])
        first = f"from {form.name} ({model}) to {target.name} ({self.provider.name}:{self.provider.model_id})"
        texts = [first, *made.warnings]
        action = ProxyAction(
            rule="convert", changes=tuple(texts[: MAX_CHANGES + 1]), more=max(0, len(texts) - MAX_CHANGES - 1)
        )
        sent = encode(value)
        changed, actions = apply_changes(sent, self.changes, target.name, self.url)
        return ConvertedRequest(
            body=sent if changed is None else changed,
            actions=(action, *actions),
            form=form,
            request=given,
            model=model,
            names=names,
            is_streamed=form.reply_stream.is_requested(given, url),
        )

    def _settings(self, asked: RequestSettings) -> RequestSettings:
        """Return settings that the model accepts."""
        model = self.provider.model
        longest = min(asked.max_output_tokens or model.output, model.output)
        needs_length = asked.max_output_tokens is not None or self.provider.formatter.requires_max_tokens
        effort = nearest_effort(asked.effort, model.efforts) if model.efforts else None
        choice = asked.tool_choice
        if choice is not None and choice.mode in ("required", "named") and not model.forced_tool_choice:
            choice = None
        has_sampling = model.temperature
        return replace(
            asked,
            model=self.provider.model_id,
            max_output_tokens=longest if needs_length else None,
            effort=effort,
            tool_choice=choice,
            temperature=asked.temperature if has_sampling else None,
            top_p=asked.top_p if has_sampling else None,
            top_k=asked.top_k if has_sampling else None,
            stream=None,
            store=None,
            service_tier=None,
            metadata=None,
            user=None,
        )


class ReplyConversion:
    """The conversion of one reply: `read` takes the provider's events and returns bytes for the client."""

    def __init__(self, conversion: Conversion, converted: ConvertedRequest) -> None:
        self._conversion, self._converted = conversion, converted
        self._form = converted.form
        self.reader: StreamReader = conversion.provider.formatter.create_reader()
        self._ids: dict[str, str] = {}
        stream = self._form.reply_stream
        assert stream is not None
        self.stream: ReplyEncoder = stream(
            converted.request,
            converted.model,
            stream.id_prefix + uuid.uuid4().hex[:24],
            created=int(time.time()),
            interleaved=self.reader.interleaves_calls,
        )

    def read(self, event: JSONObject) -> bytes:
        deltas = self.reader.read(event)
        return b"".join([self.stream.add(self._client_delta(each)) for each in deltas])

    def end(self) -> bytes:
        """Return the end of the stream, and remember the reply."""
        message = self._finish()
        return self.stream.end(message)

    def whole(self) -> bytes:
        """Return the reply as one object, and remember it."""
        message = self._finish()
        self.stream.end(message)
        if (made := self.stream.whole(message)) is None:
            parts = [self._client_part(part) for part in message.parts if isinstance(part, Text | ToolCall)]
            plain = replace(message, parts=tuple(parts), extra=None)
            made = encode_reply(
                self._form, self._converted.model, [plain], message.usage or Usage(), {}, self.stream.id
            )
        return encode(made | self.stream.reply_fields)

    def _finish(self) -> Message:
        """Return the whole reply with the client's ids of calls and its reason for the end, and remember it."""
        message = self.reader.message()
        message = rename_calls(message, {call.id: self._client_id(call.id) for call in message.tool_calls})
        self._conversion.memory.remember(message)
        finish = message.finish if message.finish in COMMON_ENDS else "stop"
        return replace(message, finish=self.stream.refusal if message.finish in REFUSALS else finish)

    def _client_part(self, part: Text | ToolCall) -> Text | ToolCall:
        part = replace(part, extra=None)
        if isinstance(part, ToolCall):
            return replace(part, name=self._converted.names.get(part.name, part.name))
        return part

    def _client_delta(self, delta: Delta) -> Delta:
        """Return a delta with the ids and names of the client."""
        if not isinstance(delta, ToolCall):
            return delta
        codec = self._form.name_codec
        name = self._converted.names.get(delta.name, delta.name)
        return replace(
            delta,
            id=codec.encode_id(self._client_id(delta.id)),
            name=codec.names.encode(name) if codec.names is not None else name,
        )

    def _client_id(self, id: str) -> str:
        """Return the id of a call that the client gets. It is unique."""
        if self.reader.has_call_ids:
            return id
        return self._ids.setdefault(id, f"call_{uuid.uuid4().hex[:24]}")


def encode_failure(form: Formatter, failed: ProviderFailed) -> tuple[int, JSONObject]:
    """Return the status and the body of an error in the client's format."""
    status = STATUSES.get(failed.kind, 500)
    text = f"{failed.problem}. {failed.fix}" if failed.fix else failed.problem
    if failed.kind == "context":
        text = f"{TOO_LONG}: {text}"
    return (form.reply_stream or ReplyEncoder).encode_error(failed.kind, status, text)


def count_request_tokens(body: bytes, format: str, url: str) -> bytes | None:
    """Return the reply to a request that counts tokens, as an estimate; None if this is another request."""
    if COUNTING_PATH.search(url) is None:
        return None
    tokens = round(estimate_tokens(body.decode("utf-8", "replace")))
    stream = formatter(format).reply_stream if format else None
    return encode({(stream or ReplyEncoder).count_field: tokens})


def _with_breakpoints(form: Formatter, body: JSONObject) -> JSONObject:
    """Return the body with cache breakpoints after its head and after its last message, unless it has some."""
    if any(name in encode(body) for name in MARK_NAMES):
        return body
    body = form.with_head_breakpoint(body)
    messages = as_objects(body.get(form.messages_key))
    marked = form.with_cache_breakpoint(messages[-1]) if messages else None
    return body if marked is None else {**body, form.messages_key: [*messages[:-1], marked]}


def _merge(settings: JSONObject, more: JSONObject) -> JSONObject:
    """Return settings with those of the provider. Objects are merged."""
    made = dict(settings)
    for name, value in more.items():
        old = made.get(name)
        made[name] = (
            {**as_object(old), **as_object(value)} if isinstance(value, dict) and isinstance(old, dict) else value
        )
    return made
