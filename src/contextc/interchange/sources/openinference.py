"""Spans by the OpenInference conventions, as OTLP JSON or JSON Lines, with `llm.input_messages.0.message.role` etc."""

from collections.abc import Iterator

from contextc._json import JSON, JSONObject, as_object, as_objects
from contextc.interchange.input_files import FileSample, ImportInput
from contextc.interchange.log_import import LoggedExchange
from contextc.interchange.spans import (
    Span,
    find_path,
    make_call,
    make_exchange,
    make_usage,
    read_json,
    read_spans,
    text_of_parts,
)
from contextc.messages import Usage

ABOUT = "spans by the OpenInference conventions, as OTLP JSON or JSON Lines"
KIND = "LLM"
OWN_SETTINGS = ("model", "messages", "tools", "stream", "stream_options")


def matches(sample: FileSample) -> bool:
    spans = [span for value in sample.objects for span in read_spans(value)]
    return any(isinstance(span.get("openinference.span.kind"), str) for span in spans)


def read_log(given: ImportInput) -> Iterator[tuple[str, LoggedExchange | None]]:
    for file in given.files:
        for placed in file.values():
            for span in read_spans(placed.value):
                if (found := _exchange(span)) is not None:
                    yield f"{file.name}, {placed.position}, span {span.id}", found


def read_exchanges(value: JSON) -> list[LoggedExchange]:
    """Return the model calls in a value of a file."""
    return [found for span in read_spans(value) if (found := _exchange(span)) is not None]


def _exchange(span: Span) -> LoggedExchange | None:
    if span.get("openinference.span.kind") != KIND:
        return None
    given = [_message(as_object(each.get("message"))) for each in as_objects(span.get("llm.input_messages"))]
    said = [_message(as_object(each.get("message"))) for each in as_objects(span.get("llm.output_messages"))]
    if not given:
        return LoggedExchange(note="a model call whose messages were not captured", id=f"span {span.id}")
    model = str(span.get("llm.model_name") or "unknown")
    return make_exchange(
        span,
        given,
        said,
        provider=str(span.get("llm.provider") or span.get("llm.system") or ""),
        model=model,
        settings=_settings(span),
        usage=_usage(span),
        conversation=str(span.get("session.id") or ""),
    )


def _usage(span: Span) -> Usage | None:
    figures = as_object(span.get("llm.token_count"))
    prompt, completion = figures.get("prompt"), figures.get("completion")
    if isinstance(prompt, dict) or isinstance(completion, dict):
        prompt, completion = as_object(prompt).get(""), as_object(completion).get("")
    if not isinstance(prompt, int) and not isinstance(completion, int):
        return None
    return make_usage(
        prompt,
        completion,
        read=find_path(figures, "prompt_details.cache_read"),
        write=find_path(figures, "prompt_details.cache_write"),
        reasoning=find_path(figures, "completion_details.reasoning"),
    )


def _settings(span: Span) -> JSONObject:
    given = as_object(read_json(span.get("llm.invocation_parameters")))
    found = {name: value for name, value in given.items() if name not in OWN_SETTINGS and value is not None}
    schemas = [as_object(read_json(find_path(tool, "tool.json_schema"))) for tool in as_objects(span.get("llm.tools"))]
    tools = [
        schema if "function" in schema else {"type": "function", "function": _function(schema)}
        for schema in schemas
        if schema
    ]
    return {**found, **({"tools": tools} if tools else {})}


def _function(schema: JSONObject) -> JSONObject:
    parameters: JSON = schema.get("parameters", schema.get("input_schema", {}))
    return {"name": schema.get("name"), "description": schema.get("description") or "", "parameters": parameters}


def _message(message: JSONObject) -> JSONObject:
    role = str(message.get("role") or "user")
    parts = [_block(as_object(each.get("message_content"))) for each in as_objects(message.get("contents"))]
    content: JSON = text_of_parts(parts) if parts else message.get("content")
    made: JSONObject = {"role": {"developer": "system", "model": "assistant"}.get(role, role), "content": content}
    calls = [
        make_call(call.get("id"), find_path(call, "function.name"), find_path(call, "function.arguments"))
        for each in as_objects(message.get("tool_calls"))
        if (call := as_object(each.get("tool_call")))
    ]
    if calls:
        made["tool_calls"] = calls
    if isinstance(message.get("tool_call_id"), str):
        made["tool_call_id"] = message["tool_call_id"]
    return made


def _block(content: JSONObject) -> JSONObject:
    url: JSON = find_path(content, "image.image.url")
    if isinstance(url, str):
        return {"type": "image_url", "image_url": {"url": url}}
    return {"type": "text", "text": str(content.get("text") or "")}
