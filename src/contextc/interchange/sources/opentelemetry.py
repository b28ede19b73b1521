"""Spans by OpenTelemetry's GenAI conventions, as OTLP JSON or JSON Lines.

Messages are in attributes (`gen_ai.input.messages`, `gen_ai.output.messages`), or in the older forms: events of a span
or of a log (`gen_ai.user.message`, `gen_ai.choice`), `gen_ai.content.prompt`, and numbered attributes
(`gen_ai.prompt.0.role`).
"""

from collections.abc import Iterator
from typing import cast

from contextc._json import JSON, JSONObject, as_object, as_objects, encode
from contextc.interchange.input_files import FileSample, ImportInput
from contextc.interchange.log_import import LoggedExchange
from contextc.interchange.spans import (
    Span,
    SpanEvent,
    find_path,
    make_call,
    make_exchange,
    make_usage,
    read_json,
    read_log_events,
    read_spans,
    text_of_parts,
)
from contextc.messages import Usage
from contextc.telemetry import names

ABOUT = "spans by OpenTelemetry's GenAI conventions, as OTLP JSON or JSON Lines"
OPERATIONS = ("", names.CHAT, "generate_content", "text_completion", "completion")
SETTINGS = {
    "temperature": "temperature",
    "top_p": "top_p",
    "max_tokens": "max_tokens",
    "stop_sequences": "stop",
    "seed": "seed",
}
"""Attributes of `gen_ai.request`, and their names in a request."""
MESSAGE_EVENTS = {
    "gen_ai.system.message": "system",
    "gen_ai.user.message": "user",
    "gen_ai.assistant.message": "assistant",
    "gen_ai.tool.message": "tool",
}
ROLES = {"human": "user", "ai": "assistant", "model": "assistant", "developer": "system", "function": "tool"}
NOT_CAPTURED = "a model call whose messages were not captured"


def matches(sample: FileSample) -> bool:
    spans = [span for value in sample.objects for span in read_spans(value)]
    is_other = any(isinstance(span.get("openinference.span.kind"), str) for span in spans)
    is_ours = any("gen_ai" in span.attributes or _message_events(span.events) for span in spans)
    return is_ours and not is_other


def read_log(given: ImportInput) -> Iterator[tuple[str, LoggedExchange | None]]:
    logged: dict[str, list[SpanEvent]] = {}
    for file in given.files:
        for placed in file.values():
            for id, event in read_log_events(placed.value):
                logged.setdefault(id, []).append(event)
    for file in given.files:
        for placed in file.values():
            for span in read_spans(placed.value):
                if (found := _exchange(span, logged.get(span.id, []))) is not None:
                    yield f"{file.name}, {placed.position}, span {span.id}", found


def read_exchanges(value: JSON) -> list[LoggedExchange]:
    """Return the model calls in a value of a file."""
    return [found for span in read_spans(value) if (found := _exchange(span, [])) is not None]


def _exchange(span: Span, logged: list[SpanEvent]) -> LoggedExchange | None:
    operation = str(span.get(names.OPERATION_NAME) or "")
    model = str(span.get(names.REQUEST_MODEL) or span.get(names.RESPONSE_MODEL) or "")
    if operation not in OPERATIONS or not model:
        return None
    messages, answers = _messages(span, [*span.events, *logged])
    if not messages:
        return LoggedExchange(is_chat=True, body=None, note=NOT_CAPTURED, id=f"span {span.id}")
    reasons = span.get(names.FINISH_REASONS)
    first: JSON = cast(list[JSON], reasons)[0] if isinstance(reasons, list) and reasons else None
    return make_exchange(
        span,
        messages,
        answers,
        provider=str(span.get(names.PROVIDER_NAME) or span.get("gen_ai.system") or ""),
        model=model,
        reply_model=str(span.get(names.RESPONSE_MODEL) or ""),
        settings=_settings(span),
        usage=_usage(span),
        conversation=str(span.get(names.CONVERSATION_ID) or span.get("session.id") or ""),
        finish=str(first or ""),
    )


def _usage(span: Span) -> Usage | None:
    figures = as_object(span.get("gen_ai.usage"))
    input = figures.get("input_tokens", figures.get("prompt_tokens"))
    output = figures.get("output_tokens", figures.get("completion_tokens"))
    if not isinstance(input, int) and not isinstance(output, int):
        return None

    def figure(*paths: str) -> JSON:
        return next((found for path in paths if isinstance(found := find_path(figures, path), int)), None)

    return make_usage(
        input,
        output,
        read=figure("cache_read.input_tokens", "cache_read_input_tokens", "details.cache_read_tokens"),
        write=figure("cache_creation.input_tokens", "cache_creation_input_tokens", "cache_write_input_tokens"),
        reasoning=figure("reasoning.output_tokens", "reasoning_tokens", "details.reasoning_tokens"),
    )


def _settings(span: Span) -> JSONObject:
    request = as_object(span.get("gen_ai.request"))
    found = {ours: request[name] for name, ours in SETTINGS.items() if request.get(name) is not None}
    tools = as_objects(read_json(span.get(names.TOOL_DEFINITIONS)))
    made = [
        tool
        if isinstance(tool.get("function"), dict)
        else {"type": "function", "function": {name: value for name, value in tool.items() if name != "type"}}
        for tool in tools
        if isinstance(tool.get("function"), dict) or isinstance(tool.get("name"), str)
    ]
    return {**found, **({"tools": made} if made else {})}


def _messages(span: Span, events: list[SpanEvent]) -> tuple[list[JSONObject], list[JSONObject]]:
    """Return the messages of the request and the answers, in the shape of Chat Completions."""
    details = next((each for each in events if each.name == "gen_ai.client.inference.operation.details"), None)
    for holder in (span.attributes, details.attributes if details is not None else {}):
        given = as_objects(read_json(find_path(holder, names.INPUT_MESSAGES)))
        if given:
            said = as_objects(read_json(find_path(holder, names.OUTPUT_MESSAGES)))
            system = read_json(find_path(holder, names.SYSTEM_INSTRUCTIONS))
            head = [{"role": "system", "content": _content(system)}] if system else []
            messages = [made for message in given for made in _from_parts(message)]
            return [*head, *messages], [made for message in said for made in _from_parts(message)]
    if own := _message_events(events):
        return _from_events(own)
    prompt = next((each for each in events if each.name == "gen_ai.content.prompt"), None)
    done = next((each for each in events if each.name == "gen_ai.content.completion"), None)
    asked = read_json(find_path(prompt.attributes, "gen_ai.prompt") if prompt else span.get("gen_ai.prompt"))
    said = read_json(find_path(done.attributes, "gen_ai.completion") if done else span.get("gen_ai.completion"))
    return _plain(asked, "user"), _plain(said, "assistant")


def _message_events(events: list[SpanEvent] | tuple[SpanEvent, ...]) -> list[SpanEvent]:
    return [each for each in events if each.name in MESSAGE_EVENTS or each.name == "gen_ai.choice"]


def _from_events(events: list[SpanEvent]) -> tuple[list[JSONObject], list[JSONObject]]:
    messages: list[JSONObject] = []
    answers: list[JSONObject] = []
    for event in events:
        fields = event.attributes
        if event.name == "gen_ai.choice":
            inner = as_object(read_json(fields.get("message"))) or fields
            made = _from_fields(inner, "assistant")
            answers.append({**made, "finish_reason": fields.get("finish_reason")})
        else:
            messages.append(_from_fields(fields, MESSAGE_EVENTS[event.name]))
    return messages, answers


def _from_fields(fields: JSONObject, role: str) -> JSONObject:
    """Return a message of an event: content, calls, and the id of an answered call."""
    made: JSONObject = {"role": role, "content": _text(read_json(fields.get("content")))}
    calls = [
        make_call(call.get("id"), inner.get("name"), inner.get("arguments"))
        for call in as_objects(read_json(fields.get("tool_calls")))
        if (inner := as_object(call.get("function")) or call)
    ]
    if calls:
        made["tool_calls"] = calls
    if role == "tool":
        made["tool_call_id"] = str(fields.get("id") or fields.get("tool_call_id") or "")
    return made


def _plain(given: JSON, role: str) -> list[JSONObject]:
    """Return messages with `role` and `content`; a text is one message."""
    if isinstance(given, str):
        return [{"role": role, "content": given}] if given else []
    found = as_objects(given) or ([as_object(given)] if as_object(given) else [])
    return [
        {**_from_fields(each, str(each.get("role") or role)), "role": str(each.get("role") or role)}
        for each in found
        if each.get("content") is not None or each.get("tool_calls")
    ]


def _from_parts(message: JSONObject) -> Iterator[JSONObject]:
    """Return a message with parts. Answered calls are messages of their own."""
    given = str(message.get("role") or "user")
    role = ROLES.get(given.lower(), given)
    parts: list[JSON] = []
    calls: list[JSONObject] = []
    thoughts: list[str] = []
    for part in as_objects(message.get("parts")):
        match part.get("type"):
            case "tool_call":
                calls.append(make_call(part.get("id"), part.get("name"), part.get("arguments")))
            case "tool_call_response":
                answer: JSON = part.get("response", part.get("result"))
                yield {"role": "tool", "tool_call_id": str(part.get("id") or ""), "content": _text(answer)}
            case "reasoning" | "thinking":
                thoughts.append(str(part.get("content") or ""))
            case _:
                parts.append(_block(part))
    if not parts and not calls and not thoughts:
        if message.get("content") is not None:
            yield _from_fields(message, role)
        return
    made: JSONObject = {"role": role, "content": text_of_parts(parts)}
    made |= {"tool_calls": calls} if calls else {}
    made |= {"reasoning_content": "".join(thoughts)} if thoughts else {}
    made |= {"finish_reason": message["finish_reason"]} if message.get("finish_reason") else {}
    yield made


def _block(part: JSONObject) -> JSONObject:
    kind, mime = part.get("type"), str(part.get("mime_type") or "")
    if kind == "text":
        return {"type": "text", "text": _text(part.get("content"))}
    if kind == "uri" and isinstance(part.get("uri"), str):
        return {"type": "image_url", "image_url": {"url": part["uri"]}}
    if kind == "blob" and mime.startswith("image/"):
        return {
            "type": "image_url",
            "image_url": {"url": f"data:{mime};base64,{part.get('content', part.get('data'))}"},
        }
    return {"type": "text", "text": encode(part).decode()}


def _content(given: JSON) -> JSON:
    if isinstance(given, str):
        return given
    return text_of_parts([_block(part) for part in as_objects(given)])


def _text(value: JSON) -> str:
    return value if isinstance(value, str) else "" if value is None else encode(value).decode()
