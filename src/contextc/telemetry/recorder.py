"""Spans and metrics of turns, model calls and tools. The only module that imports OpenTelemetry.

A span is the current one while its turn, call or tool runs. So the spans of an HTTP client are below that of the call,
those of a tool's own code below that of the tool, and those of an agent that a tool asks below that tool. An error has
its type, and its text only with content, because it may quote a message.
"""

import asyncio
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast
from urllib.parse import urlsplit

from opentelemetry import context as otel_context
from opentelemetry import metrics, trace
from opentelemetry.metrics import Histogram, MeterProvider
from opentelemetry.trace import SpanKind, Status, StatusCode, TracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

from contextc._credential_mask import mask_secrets
from contextc._json import JSONObject, encode
from contextc.compiler import Compiled
from contextc.errors import ProviderFailed, describe_error
from contextc.messages import Media, Message, Reasoning, Text, ToolCall, ToolResult, Usage
from contextc.providers import Provider
from contextc.telemetry import names
from contextc.tools.definitions import AnyTool, Tool

PROPAGATOR = TraceContextTextMapPropagator()
CANCELLED = "cancelled"
TOOL_ERROR = "tool_error"


def has_sdk() -> bool:
    return not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)


class Recorded:
    """A span that has begun. `set` adds attributes; those without a value are left out."""

    def __init__(self, span: trace.Span, attributes: dict[str, AttributeValue]) -> None:
        self.span, self.attributes = span, attributes

    def set(self, attributes: Mapping[str, AttributeValue | None]) -> None:
        for name, value in attributes.items():
            if value is not None:
                self.attributes[name] = value
                self.span.set_attribute(name, value)

    def fail(self, kind: str, text: str = "") -> None:
        self.set({names.ERROR_TYPE: kind})
        self.span.set_status(Status(StatusCode.ERROR, text or None))


class Recorder:
    """Creates the spans and metrics."""

    def __init__(
        self, *, content: bool, tracer_provider: TracerProvider | None, meter_provider: MeterProvider | None
    ) -> None:
        self.content = content
        self._tracer = trace.get_tracer(names.SCOPE, tracer_provider=tracer_provider)
        meter = metrics.get_meter(names.SCOPE, meter_provider=meter_provider)

        def histogram(name: str, unit: str, about: str, buckets: Sequence[float]) -> Histogram:
            return meter.create_histogram(name, unit, about, explicit_bucket_boundaries_advisory=buckets)

        self._durations = {
            operation: histogram(name, "s", about, names.DURATION_BUCKETS)
            for operation, name, about in (
                (names.CHAT, names.CLIENT_DURATION, "Duration of a model call."),
                (names.INVOKE_AGENT, names.AGENT_DURATION, "Duration of a turn of an agent."),
                (names.EXECUTE_TOOL, names.TOOL_DURATION, "Duration of a tool call."),
            )
        }
        about = "Time from a request to the first chunk of its reply."
        self._first_chunks = histogram(names.FIRST_CHUNK_DURATION, "s", about, names.DURATION_BUCKETS)
        self._tokens = histogram(names.TOKEN_USAGE, "{token}", "Tokens of model calls.", names.TOKEN_BUCKETS)

    # ── spans ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    @contextmanager
    def turn(self, conversation: str, agent: str, provider: Provider, number: int) -> Generator[Recorded]:
        """Record a turn of an agent, or the part of it that this process runs."""
        attributes = {
            **_about(names.INVOKE_AGENT, conversation, provider),
            names.AGENT_NAME: agent,
            names.TURN: number,
        }
        with self._span(f"{names.INVOKE_AGENT} {agent}", SpanKind.INTERNAL, attributes) as recorded:
            yield recorded

    def end_turn(
        self,
        recorded: Recorded,
        *,
        finish: str,
        usage: Usage,
        cost: float | None,
        steps: int,
        calls: int,
        reply: Message | None,
    ) -> None:
        """Add what a turn has used, and with content its last reply."""
        recorded.set(
            {
                **_usage(usage),
                names.TURN_FINISH: finish,
                names.TURN_STEPS: steps,
                names.TURN_TOOL_CALLS: calls,
                names.COST: cost,
            }
        )
        if self.content and reply is not None:
            recorded.set({names.OUTPUT_MESSAGES: _json([_answer(reply)])})

    @contextmanager
    def chat(self, conversation: str, agent: str, provider: Provider) -> Generator[Recorded]:
        """Record a model call with its retries."""
        address = urlsplit(provider.url) if provider.url else None
        attributes = {
            **_about(names.CHAT, conversation, provider),
            names.AGENT_NAME: agent,
            names.REQUEST_STREAM: True,
            **({names.SERVER_ADDRESS: address.hostname} if address is not None and address.hostname else {}),
            **({names.SERVER_PORT: address.port or 443} if address is not None and address.hostname else {}),
        }
        name = f"{names.CHAT} {provider.model.name}"
        with self._span(name, SpanKind.CLIENT, attributes) as recorded:
            yield recorded

    def add_request(self, recorded: Recorded, compiled: Compiled) -> None:
        """Add the figures of a request, and with content its messages."""
        record, settings = compiled.record, compiled.head.body
        found = {
            attribute: value
            for field, attribute in names.SETTINGS.items()
            if isinstance(value := settings.get(field), int | float) and not isinstance(value, bool)
        }
        recorded.set(
            {
                **found,
                names.REQUEST: record.request,
                names.MODE: str(record.mode),
                names.EPOCH: record.epoch,
                names.PREFIX_BREAK: str(record.why) or None,
                names.SHARED_TOKENS: record.shared_tokens,
                names.SHARED_BYTES: record.shared_bytes,
                names.WINDOW_USED: record.budget.used,
                names.WINDOW_AVAILABLE: record.budget.available,
                names.LEFT_OUT: len(record.left) + record.skipped,
            }
        )
        if self.content and recorded.span.is_recording():
            text, tools = compiled.system_prompt, compiled.tools
            recorded.set(
                {
                    names.SYSTEM_INSTRUCTIONS: _json([{"type": "text", "content": text}]) if text else None,
                    names.INPUT_MESSAGES: _json([_message(each) for each in compiled.messages]),
                    names.TOOL_DEFINITIONS: _json(list(map(_definition, tools))) if tools else None,
                }
            )

    def add_reply(
        self,
        recorded: Recorded,
        messages: Sequence[Message],
        usage: Usage | None,
        first_chunk_seconds: float | None = None,
    ) -> None:
        """Add the figures of a reply, and with content its messages."""
        answers = [message for message in messages if message.role == "assistant"]
        model = (usage.model if usage is not None else "") or None
        finish = [message.finish for message in answers if message.finish]
        recorded.set({names.RESPONSE_MODEL: model, names.FINISH_REASONS: finish[-1:] or None})
        if first_chunk_seconds is not None:
            recorded.set({names.TIME_TO_FIRST_CHUNK: first_chunk_seconds})
            self._first_chunks.record(first_chunk_seconds, _dimensions(recorded.attributes))
        if usage is not None:
            recorded.set(_usage(usage))
            about = _dimensions(recorded.attributes)
            self._tokens.record(usage.input, {**about, names.TOKEN_TYPE: "input"})
            self._tokens.record(usage.output, {**about, names.TOKEN_TYPE: "output"})
        if self.content and recorded.span.is_recording():
            recorded.set({names.OUTPUT_MESSAGES: _json(list(map(_answer, answers)))})

    @contextmanager
    def tool(self, conversation: str, agent: str, call: ToolCall, name: str, description: str) -> Generator[Recorded]:
        """Record a tool call, including the wait for its approval. `name` is "" if the agent has no such tool."""
        name = name or names.OTHER
        attributes: dict[str, AttributeValue] = {
            names.OPERATION_NAME: names.EXECUTE_TOOL,
            names.CONVERSATION_ID: conversation,
            names.AGENT_NAME: agent,
            names.TOOL_NAME: name,
            names.TOOL_TYPE: names.FUNCTION,
            names.TOOL_CALL_ID: call.id,
        }
        if description:
            attributes[names.TOOL_DESCRIPTION] = description
        if self.content:
            attributes[names.TOOL_ARGUMENTS] = _json(call.arguments)
        with self._span(f"{names.EXECUTE_TOOL} {name}", SpanKind.INTERNAL, attributes) as recorded:
            yield recorded

    def end_tool(self, recorded: Recorded, result: ToolResult) -> None:
        """Add the result of a call, with its text only if content is asked for."""
        if result.is_error:
            recorded.fail(TOOL_ERROR)
        if self.content:
            recorded.set({names.TOOL_RESULT: result.text})

    @contextmanager
    def _span(self, name: str, kind: SpanKind, attributes: dict[str, AttributeValue]) -> Generator[Recorded]:
        began = time.monotonic()
        with self._tracer.start_as_current_span(
            name, kind=kind, attributes=attributes, record_exception=False, set_status_on_exception=False
        ) as span:
            recorded = Recorded(span, attributes)
            try:
                yield recorded
            except asyncio.CancelledError:
                recorded.set({names.ERROR_TYPE: CANCELLED})
                raise
            except BaseException as error:
                kind_of = error.kind if isinstance(error, ProviderFailed) else type(error).__name__
                recorded.fail(kind_of, mask_secrets(describe_error(error)) if self.content else "")
                raise
            finally:
                operation = str(attributes[names.OPERATION_NAME])
                self._durations[operation].record(time.monotonic() - began, _dimensions(recorded.attributes))

    # ── traces across processes ───────────────────────────────────────────────────────────────────────────────────────

    @contextmanager
    def continuing(self, headers: Mapping[str, Any]) -> Generator[None]:
        """Let the spans of the block continue the trace of these headers, unless a span of this process is current."""
        carrier = {name: value for name, value in headers.items() if isinstance(value, str)}
        if trace.get_current_span().get_span_context().is_valid:  # such as one of an instrumented web framework
            yield
            return
        token = otel_context.attach(PROPAGATOR.extract(carrier))
        try:
            yield
        finally:
            otel_context.detach(token)

    def carry_trace(self) -> dict[str, str]:
        """Return the headers of the current trace, for a job that another process runs; {} if there is none."""
        carrier: dict[str, str] = {}
        PROPAGATOR.inject(carrier)
        return carrier


# ── attributes ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _about(operation: str, conversation: str, provider: Provider) -> dict[str, AttributeValue]:
    return {
        names.OPERATION_NAME: operation,
        names.PROVIDER_NAME: names.PROVIDERS.get(provider.name, provider.name),
        names.REQUEST_MODEL: provider.model.name,
        names.CONVERSATION_ID: conversation,
    }


METRIC_ATTRIBUTES = (
    *(names.OPERATION_NAME, names.PROVIDER_NAME, names.REQUEST_MODEL, names.RESPONSE_MODEL),
    *(names.SERVER_ADDRESS, names.SERVER_PORT, names.TOOL_NAME, names.TOOL_TYPE, names.AGENT_NAME, names.ERROR_TYPE),
)
"""Attributes with few values. A conversation or a call would make a time series of its own."""


def _dimensions(attributes: Mapping[str, AttributeValue]) -> dict[str, AttributeValue]:
    return {name: attributes[name] for name in METRIC_ATTRIBUTES if name in attributes}


def _usage(usage: Usage) -> dict[str, AttributeValue | None]:
    return {
        names.INPUT_TOKENS: usage.input,
        names.OUTPUT_TOKENS: usage.output,
        names.CACHE_READ_TOKENS: usage.cache_read,
        names.CACHE_CREATION_TOKENS: usage.cache_write,
        names.REASONING_TOKENS: usage.reasoning or None,
    }


def _json(value: object) -> str:
    return encode(cast(Any, value)).decode()


def _message(message: Message) -> JSONObject:
    return {"role": message.role, "parts": list(_parts(message))}


def _answer(message: Message) -> JSONObject:
    finish = message.finish or ""
    return {**_message(message), "finish_reason": names.FINISHES.get(finish, finish)}


def _parts(message: Message) -> list[JSONObject]:
    """Return the parts of a message in the shape of the conventions. Bytes of media are named, and not contained."""
    found: list[JSONObject] = []
    for part in message.parts:
        match part:
            case Text(text=text):
                found.append({"type": "text", "content": text})
            case Reasoning(text=text):
                found.append({"type": "reasoning", "content": text})
            case ToolCall(id=id, name=name, arguments=arguments):
                found.append({"type": "tool_call", "id": id, "name": name, "arguments": arguments})
            case ToolResult(call_id=id):
                found.append({"type": "tool_call_response", "id": id, "response": part.text})
            case Media(url=str(url)):
                found.append({"type": "uri", "modality": part.kind, "mime_type": part.mime_type, "uri": url})
            case Media():
                found.append({"type": "text", "content": f"[{part.mime_type}]"})
            case _:
                pass
    return found


def _definition(tool: AnyTool) -> JSONObject:
    if isinstance(tool, Tool):
        return {
            "type": names.FUNCTION,
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.parameters or {},
        }
    return tool.data
