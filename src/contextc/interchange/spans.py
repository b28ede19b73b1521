"""Spans of OpenTelemetry, as OTLP JSON or as the JSON that its SDKs print; and the model calls in them.

A span has no body. The request is put together from its messages, in the format of OpenAI's Chat Completions, or of the
span's provider if that has another one.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import cast

from msgspec import Struct

from contextc._json import JSON, JSONObject, as_object, as_objects, decode_json, encode
from contextc.errors import ContextcError
from contextc.formats import formatter
from contextc.interchange.found_conversation import DATA_ERRORS, parse_time
from contextc.interchange.log_import import LoggedExchange
from contextc.messages import Usage
from contextc.providers.registry import format_of_model, format_of_provider, provider_names

CHAT = "openai_chat"
NANOSECONDS = 1_000_000
PROVIDERS = {
    "aws.bedrock": "bedrock",
    "azure": "openai",
    "azure.ai.openai": "openai",
    "az.ai.openai": "openai",
    "gcp.gemini": "gemini",
    "gcp.gen_ai": "gemini",
    "gcp.vertex_ai": "gemini",
    "google": "gemini",
    "vertex_ai": "gemini",
    "vertexai": "gemini",
    "mistral_ai": "mistral",
    "mistralai": "mistral",
}
"""Names of providers in spans that differ from ours."""
FINISH_REASONS = {"tool_call": "tool_calls", "end_turn": "stop", "tool_use": "tool_calls", "max_tokens": "length"}


class SpanEvent(Struct, frozen=True):
    name: str
    attributes: JSONObject


class Span(Struct, frozen=True, kw_only=True):
    """One span. `attributes` are nested: `a.b.0.c` is the field `c` of the first item of `b` in `a`."""

    id: str
    name: str = ""
    attributes: JSONObject = {}
    events: tuple[SpanEvent, ...] = ()
    began: int = 0
    ended: int = 0
    error: str = ""

    def get(self, path: str) -> JSON:
        return find_path(self.attributes, path)


def read_spans(value: JSON) -> list[Span]:
    """Return the spans in a value of a file: an OTLP export, or one span."""
    entry = as_object(value)
    found = [_read_span(span) for span in _otlp_records(entry, "resourceSpans", "scopeSpans", "spans")]
    if not found and isinstance(entry.get("attributes"), dict | list) and _span_id(entry):
        found = [_read_span(entry)]
    return found


def read_log_events(value: JSON) -> Iterator[tuple[str, SpanEvent]]:
    """Return the events that are logged apart from their spans, each with the id of its span."""
    for record in _otlp_records(as_object(value), "resourceLogs", "scopeLogs", "logRecords"):
        fields = _attributes(record.get("attributes"))
        name = str(record.get("eventName") or find_path(fields, "event.name") or "")
        body = _otlp_value(record.get("body"))
        if name:
            yield str(record.get("spanId") or ""), SpanEvent(name, {**fields, **as_object(body)})


def find_path(value: JSON, path: str) -> JSON:
    for name in path.split("."):
        if isinstance(value, list) and name.isdigit():
            items = cast(list[JSON], value)
            value = items[int(name)] if int(name) < len(items) else None
        else:
            value = cast(JSONObject, value).get(name) if isinstance(value, dict) else None
    return value


def read_json(value: JSON) -> JSON:
    """Return a value; of a text with JSON, its value."""
    if not isinstance(value, str) or value.lstrip()[:1] not in ("{", "["):
        return value
    try:
        return decode_json(value.encode())
    except ValueError:
        return value


def make_exchange(
    span: Span,
    messages: Sequence[JSONObject],
    answers: Sequence[JSONObject],
    *,
    provider: str,
    model: str,
    reply_model: str = "",
    settings: JSONObject | None = None,
    usage: Usage | None = None,
    conversation: str = "",
    finish: str = "",
) -> LoggedExchange:
    """Return the exchange of a span from messages in the shape of Chat Completions."""
    body: JSONObject = {"model": model, **(settings or {}), "messages": list(messages)}
    form = formatter(CHAT)
    decoded = [
        form.decode_reply(
            {
                "object": "chat.completion",
                "model": reply_model or model,
                "choices": [{"index": 0, "finish_reason": _finish(answer, finish), "message": _without_finish(answer)}],
            }
        )
        for answer in answers
    ]
    name = find_provider(provider, model)
    native, format = _to_native(body, format_of_provider(name) if name else CHAT)
    return LoggedExchange(
        body=native,
        format=format,
        answers=tuple([message for message in decoded if message.parts]),
        conversation=conversation,
        model=model,
        provider=name,
        time=span.began,
        ended=span.ended,
        failed=bool(span.error),
        error={"error": {"message": span.error}} if span.error else None,
        usage=usage,
        inexact=True,
    )


def make_usage(input: JSON, output: JSON, *, read: JSON = None, write: JSON = None, reasoning: JSON = None) -> Usage:
    """Return the usage. Input includes cached tokens; if they were counted apart, they are added."""
    known, out, cached, written, thought = (
        each if isinstance(each, int) else 0 for each in (input, output, read, write, reasoning)
    )
    total = known if known >= cached + written else known + cached + written
    return Usage(input=total, output=out, cache_read=cached, cache_write=written, reasoning=thought)


def find_provider(name: str, model: str) -> str:
    """Return our name of a provider; "" if it is unknown."""
    known, given = provider_names(), name.lower()
    for each in (PROVIDERS.get(given, given), PROVIDERS.get(given.partition(".")[0], ""), format_of_model(model)):
        if each in known:
            return each
    return ""


def text_of_parts(parts: list[JSON]) -> JSON:
    """Return the content of a message: a text if it is one, else the parts."""
    if all(as_object(part).get("type") == "text" for part in parts):
        return "".join(str(as_object(part).get("text") or "") for part in parts) if parts else None
    return parts


def make_call(id: JSON, name: JSON, arguments: JSON) -> JSONObject:
    text = arguments if isinstance(arguments, str) else encode({} if arguments is None else arguments).decode()
    return {"id": str(id or ""), "type": "function", "function": {"name": str(name or ""), "arguments": text}}


def _to_native(body: JSONObject, format: str) -> tuple[JSONObject, str]:
    """Return the request in a format; if it cannot be expressed there, unchanged."""
    if format == CHAT:
        return body, CHAT
    form = formatter(format)
    try:
        made = form.encode_request(formatter(CHAT).decode_request(body))
    except (ContextcError, *DATA_ERRORS):
        return body, CHAT
    return made, format


def _finish(answer: JSONObject, default: str) -> str:
    given = str(answer.get("finish_reason") or default or "stop")
    return FINISH_REASONS.get(given.lower(), given.lower())


def _without_finish(answer: JSONObject) -> JSONObject:
    return {name: value for name, value in answer.items() if name != "finish_reason"}


def _read_span(span: JSONObject) -> Span:
    status = as_object(span.get("status"))
    is_error = status.get("code") in (2, "STATUS_CODE_ERROR", "ERROR") or status.get("status_code") == "ERROR"
    events = [
        SpanEvent(str(event.get("name") or ""), _attributes(event.get("attributes")))
        for event in as_objects(span.get("events"))
    ]
    reason = status.get("message") or status.get("description") or "The span reports an error"
    return Span(
        id=_span_id(span),
        name=str(span.get("name") or ""),
        attributes=_attributes(span.get("attributes")),
        events=tuple(events),
        began=_time(span, "startTimeUnixNano", "start_time", "startTime"),
        ended=_time(span, "endTimeUnixNano", "end_time", "endTime"),
        error=str(reason) if is_error else "",
    )


def _span_id(span: JSONObject) -> str:
    context = as_object(span.get("context"))
    found: JSON = span.get("spanId") or span.get("span_id") or context.get("span_id") or context.get("spanId")
    return found if isinstance(found, str) else ""


def _time(span: JSONObject, nanoseconds: str, *names: str) -> int:
    given: JSON = span.get(nanoseconds)
    if isinstance(given, str | int) and str(given).isdigit():
        return int(given) // NANOSECONDS
    for value in (span.get(name) for name in names):
        if isinstance(value, int) and value > 1 << 53:
            return value // NANOSECONDS
        if found := parse_time(value):
            return found
    return 0


def _otlp_records(entry: JSONObject, resources: str, scopes: str, records: str) -> Iterator[JSONObject]:
    for resource in as_objects(entry.get(resources)):
        for scope in as_objects(resource.get(scopes) or resource.get("instrumentationLibrarySpans")):
            yield from as_objects(scope.get(records))


def _attributes(given: JSON) -> JSONObject:
    """Return attributes as nested objects and lists."""
    flat = as_object(given) if isinstance(given, dict) else _otlp_pairs(given)
    found: JSONObject = {}
    for name, value in flat.items():
        at = found
        *above, last = name.split(".")
        for part in above:
            inner: JSON = at.get(part)
            if not isinstance(inner, dict):
                inner = {} if inner is None else {"": inner}  # a value that has fields, too
                at[part] = inner
            at = cast(JSONObject, inner)
        at[last] = value
    return cast(JSONObject, _with_lists(found))


def _with_lists(value: JSON) -> JSON:
    """Return objects whose names are all numbers as lists."""
    if isinstance(value, list):
        return [_with_lists(each) for each in cast(list[JSON], value)]
    if not isinstance(value, dict):
        return value
    fields = {name: _with_lists(each) for name, each in cast(Mapping[str, JSON], value).items()}
    if fields and all(name.isdigit() for name in fields):
        return [fields[name] for name in sorted(fields, key=int)]
    return fields


def _otlp_pairs(given: JSON) -> JSONObject:
    return {str(pair.get("key")): _otlp_value(pair.get("value")) for pair in as_objects(given)}


def _otlp_value(given: JSON) -> JSON:
    """Return an OTLP value, such as `{"stringValue": "a"}`."""
    if not isinstance(given, dict):
        return given
    for name, value in cast(JSONObject, given).items():
        match name:
            case "intValue":
                return int(str(value)) if str(value).lstrip("-").isdigit() else value
            case "arrayValue":
                return [_otlp_value(each) for each in as_objects(as_object(value).get("values"))]
            case "kvlistValue":
                return _otlp_pairs(as_object(value).get("values"))
            case "stringValue" | "boolValue" | "doubleValue" | "bytesValue":
                return value
            case _:
                continue
    return cast(JSON, given)
