"""Exchanges with a provider as people log them: a request, and what came back.

Every tool writes its own envelope around the two: the bodies side by side, HTTP messages, a batch and its results, the
request with its reply inside. They are known by what is in them, never by the names of the envelope alone. Which format
a request is in is told by its address, its reply, its model and its shape, in this order.
"""

from collections.abc import Iterator, Mapping
from typing import cast

from msgspec import Struct

from contextc._json import JSON, JSONObject
from contextc.errors import ContextcError
from contextc.formats import format_names, formatter
from contextc.formats.base import Formatter
from contextc.transfer.found import moment, object_in, objects_in
from contextc.transfer.given import decoded

REQUESTS = ("request", "req", "body", "params", "kwargs", "payload", "json", "data", "input")
REPLIES = ("response", "resp", "reply", "completion", "output", "result", "body", "message", "json", "data")
TIMES = ("timestamp", "time", "ts", "created_at", "createdAt", "date", "start_time", "startTime", "request_time")
NAMES = ("conversation_id", "conversationId", "session_id", "sessionId", "thread_id", "chat_id")
ADDRESSES = {
    "/chat/completions": "openai_chat",
    "/responses": "openai_responses",
    "/messages": "anthropic",
    "generatecontent": "gemini",
    "/converse": "bedrock",
    "/api/chat": "ollama",
}
EVENTS = {"choices": "openai_chat", "candidates": "gemini"}  # what the events of a stream have
TYPES = {"message_": "anthropic", "content_block": "anthropic", "response.": "openai_responses"}  # how theirs begin
MODELS = {"claude": "anthropic", "gemini": "gemini", "gpt": "openai_chat"}
REFUSED = 400
DEEPEST = 4


class Exchange(Struct, frozen=True, kw_only=True):
    """A request and its reply, as far as they were logged; `id` joins the two where they stand in different places.

    `conversation` is the logger's own name for what it belongs to. `failed` says that an error came back.
    """

    body: JSONObject | None = None
    reply: JSON = None
    id: str = ""
    conversation: str = ""
    address: str = ""
    time: int = 0
    failed: bool = False


def exchange_in(value: JSON) -> Exchange | None:
    """The exchange in a value of a log; None where there is none."""
    if not isinstance(value, dict):
        return None
    entry = cast(JSONObject, value)
    body, address = _request(entry)
    reply, status = (None, 0) if body is entry else _reply(entry)
    if body is entry:
        inside = {name: entry[name] for name in ("response", "completion", "reply", "output") if name in entry}
        reply, status = _reply(inside)
        body = {name: each for name, each in entry.items() if name not in inside}
    marked = _is_marked(entry)
    if body is None and not (marked and (reply is not None or status)):
        return None
    failed = status >= REFUSED or _is_error(object_in(reply))
    return Exchange(
        body=body,
        reply=None if failed else reply,
        id=str(entry.get("custom_id") or ""),
        conversation=_named(entry),
        address=address,
        time=next((found for name in TIMES if (found := moment(entry.get(name)))), 0) or _replied(reply),
        failed=failed,
    )


def is_body(value: JSON) -> bool:
    """Whether this is the body of a request to a model."""
    if not isinstance(value, dict):
        return False
    body = cast(JSONObject, value)
    if isinstance(body.get("messages"), list):
        return bool(body["messages"]) and not any(map(_is_shown, objects_in(body["messages"])))
    if isinstance(body.get("contents"), list):
        return True
    return isinstance(body.get("input"), list | str) and ("model" in body or "instructions" in body)


def format_of(exchange: Exchange, known: dict[tuple[object, ...], str]) -> str:
    """The format of an exchange; `known` remembers what others of the same make were."""
    body = exchange.body or {}
    reply = object_in(exchange.reply) or _first_event(exchange.reply)
    mark = (exchange.address.partition("?")[0], str(body.get("model")), frozenset(body), frozenset(reply))
    if mark not in known:
        known[mark] = _format(exchange.address, body, reply)
    return known[mark]


def events_in(text: str) -> Iterator[JSONObject]:
    """The events of a stream, as its text was logged."""
    for line in text.splitlines():
        if line.startswith("data:") and (data := line.removeprefix("data:").strip()) != "[DONE]":
            try:
                value = decoded(data.encode())
            except ValueError:
                continue
            if isinstance(value, dict):
                yield cast(JSONObject, value)


def _request(entry: JSONObject, depth: int = 0) -> tuple[JSONObject | None, str]:
    """The body of the request in an envelope, and the address it went to."""
    address = str(entry.get("url") or entry.get("path") or entry.get("endpoint") or "")
    if is_body(entry):
        return entry, address
    for name in REQUESTS:
        inner = _value(entry.get(name))
        if isinstance(inner, dict) and depth < DEEPEST:
            body, further = _request(cast(JSONObject, inner), depth + 1)
            if body is not None:
                return body, further or address
    return None, address


def _reply(entry: JSONObject) -> tuple[JSON, int]:
    """The reply in an envelope, and the status it came with (0 where none is told)."""
    for name in REPLIES:
        inner = _value(entry.get(name))
        if inner is None or (isinstance(inner, dict) and is_body(inner)):
            continue
        if isinstance(inner, list) or (isinstance(inner, str) and "data:" in inner):
            return cast(JSON, inner), 0
        if not isinstance(inner, dict):
            continue
        held = cast(JSONObject, inner)
        status = _status(held)
        if held.get("type") in ("errored", "canceled", "expired"):  # of a batch
            return None, REFUSED
        if _is_reply(held) or _is_error(held):
            return held, status
        further, later = _reply(held)
        if further is not None or later or status:
            return further, status or later
    return None, REFUSED if isinstance(entry.get("error"), dict | str) and entry["error"] else 0


def _status(entry: JSONObject) -> int:
    found = entry.get("status_code", entry.get("status", entry.get("statusCode")))
    return found if isinstance(found, int) else 0


def _is_reply(value: JSONObject) -> bool:
    return (
        isinstance(value.get("choices"), list)
        or isinstance(value.get("candidates"), list)
        or (isinstance(value.get("output"), list | dict) and ("id" in value or "model" in value or "usage" in value))
        or (isinstance(value.get("content"), list) and "role" in value)
        or (isinstance(value.get("message"), dict) and "done" in value)
    )


def _is_error(value: JSONObject) -> bool:
    return bool(value.get("error")) and not _is_reply(value)


def _is_shown(message: JSONObject) -> bool:
    """Whether this is a message of a page, which no provider takes."""
    return isinstance(message.get("parts"), list) and not message.get("content")


def _is_marked(entry: JSONObject) -> bool:
    return isinstance(entry.get("custom_id"), str)


def _value(value: JSON) -> JSON:
    """A value, or the one that a text holds as JSON."""
    if not isinstance(value, str) or value.lstrip()[:1] not in ("{", "["):
        return value
    try:
        return decoded(value.encode())
    except ValueError:
        return value


def _named(entry: JSONObject) -> str:
    holders = [entry, object_in(entry.get("metadata")), object_in(entry.get("request"))]
    found = (holder.get(name) for holder in holders for name in NAMES)
    return next((each for each in found if isinstance(each, str) and each), "")


def _replied(reply: JSON) -> int:
    """When a reply says it was made."""
    held = object_in(reply)
    return moment(held.get("created")) or moment(held.get("created_at"))


def _format(address: str, body: JSONObject, reply: JSONObject) -> str:
    names = [name for name in format_names() if not formatter(name).lines]
    lower = address.lower()
    for mark, name in ADDRESSES.items():
        if mark in lower and name in names and formatter(name).messages_key in body:
            return name
    fitting = [name for name in names if formatter(name).messages_key in body]
    answered = [name for name in fitting if reply and (name == _streams(reply) or _takes(formatter(name), reply))]
    strange = {name: len(formatter(name).rules.read(body).misshapen) for name in answered or fitting}
    hints = [name for mark, name in MODELS.items() if mark in str(body.get("model", "")).lower()]
    hints += ["anthropic"] if "system" in body else []
    order = [*hints, "openai_chat", "openai_responses", "anthropic", *names]
    return min(strange, key=lambda name: (strange[name], order.index(name)), default="openai_chat")


def _first_event(reply: JSON) -> JSONObject:
    events = list(events_in(reply)) if isinstance(reply, str) else objects_in(reply)
    return events[0] if events else {}


def _streams(event: JSONObject) -> str | None:
    """The format whose stream has such an event."""
    kind = str(event.get("type") or "")
    found = [name for mark, name in EVENTS.items() if mark in event]
    return next(iter(found + [name for mark, name in TYPES.items() if kind.startswith(mark)]), None)


def _takes(form: Formatter, reply: Mapping[str, JSON]) -> bool:
    try:
        form.decode_reply(dict(reply))
    except (ContextcError, KeyError, TypeError, AttributeError, ValueError):
        return False
    return True
