"""Log entries: a request to a provider, and its reply, in the envelope of any logging tool.

Envelopes differ: both bodies side by side, HTTP messages, a batch and its results, the reply inside the request. They
are recognised by their content, never by field names alone. A reply in an unknown format is noted. Calls that are not
chats, such as embeddings, are left out.
"""

import re
from typing import NamedTuple, cast

from msgspec import Struct

from contextc._json import JSON, JSONObject, as_object, as_objects, decode_json
from contextc.interchange.found_conversation import parse_time
from contextc.messages import Message, Usage
from contextc.observation.reply_decoding import is_reply, parse_events

REQUEST_FIELDS = ("request", "req", "body", "params", "kwargs", "payload", "json", "data", "input")
REPLY_ONLY_FIELDS = ("response", "resp", "reply", "completion", "output", "answer")
"""Field names of replies only: a text in them is the text of a model."""
REPLY_FIELDS = (*REPLY_ONLY_FIELDS, "result", "body", "message", "json", "data")
TIME_FIELDS = ("timestamp", "time", "ts", "created_at", "createdAt", "date", "start_time", "startTime", "request_time")
END_FIELDS = ("end_time", "endTime", "ended_at", "endedAt", "completed_at", "completedAt", "response_time")
DURATION_FIELDS = ("duration_ms", "durationMs", "latency_ms", "latencyMs", "elapsed_ms")
CONVERSATION_FIELDS = ("conversation_id", "conversationId", "session_id", "sessionId", "thread_id", "chat_id")
ADDRESS_FIELDS = ("url", "path", "endpoint")
NON_CHAT_ADDRESS = re.compile(
    r"[/:](batch)?(embed|moderation|rerank|count_?tokens|tokenize|audio/|images/)", re.IGNORECASE
)
EMBEDDING_FIELDS = ("embedding", "embeddings")
UNKNOWN_REPLY = "a reply in an unknown format"
FIRST_ERROR_STATUS = 400
MAX_DEPTH = 4


class StoredRequest(Struct, frozen=True, kw_only=True):
    """A request in the store that a file was exported from."""

    conversation: str
    agent: str
    provider: str
    model: str
    request: int
    format: str = ""
    inexact: bool = False


class Exchange(Struct, frozen=True, kw_only=True):
    """A request and its reply, as far as they were logged. `id` connects the two if they are in different entries.

    `text` is the body as it was sent, if it was logged as text. `conversation` is the logger's own conversation id.
    `failed` is True for an error reply, `is_chat` for a chat request. `error` is the error reply, `status` the HTTP
    status. `answers` is a reply that is decoded already. Times are in Unix milliseconds. `usage` is what the logger
    counted, if the reply does not state it. `inexact`: the body was put together from other facts. `stored_as` is the
    request in the store it was exported from. `note` is a remark for the user.
    """

    body: JSONObject | None = None
    text: str = ""
    reply: JSON = None
    id: str = ""
    conversation: str = ""
    address: str = ""
    time: int = 0
    ended: int = 0
    status: int = 0
    failed: bool = False
    error: JSON = None
    headers: dict[str, str] = {}
    format: str = ""
    model: str = ""
    provider: str = ""
    usage: Usage | None = None
    answers: tuple[Message, ...] = ()
    inexact: bool = False
    stored_as: StoredRequest | None = None
    is_chat: bool = True
    note: str = ""

    @property
    def is_answered(self) -> bool:
        """True if the log has an answer, and not an error."""
        return not self.failed and (self.reply is not None or bool(self.answers))


class _FoundReply(Struct, frozen=True):
    """A reply, its HTTP status (0 if unknown), and whether its format is unknown."""

    value: JSON = None
    status: int = 0
    is_unknown: bool = False


def parse_exchange(value: JSON) -> Exchange | None:
    """Return the exchange in a value of a log; None if it has none."""
    if not isinstance(value, dict):
        return None
    entry = cast(JSONObject, value)
    found = _request(entry)
    body, address, text = found.body, found.address, found.text
    given = entry
    if body is entry:
        given = {name: entry[name] for name in (*REPLY_ONLY_FIELDS, "result") if name in entry}
        body = {
            name: each
            for name, each in entry.items()
            if name not in (*given, *TIME_FIELDS, *END_FIELDS, *DURATION_FIELDS, *CONVERSATION_FIELDS, *ADDRESS_FIELDS)
        }
    reply = _reply(given)
    if body is None and not (_has_custom_id(entry) and (reply.value is not None or reply.status)):
        return None
    if body is not None and "model" not in body and isinstance(entry.get("model"), str):
        body, text = {**body, "model": entry["model"]}, ""
    answer: JSON = reply.value
    if reply.status < FIRST_ERROR_STATUS <= _status(given) and (reply.is_unknown or answer is None):
        reply = _FoundReply(answer, _status(given), reply.is_unknown)  # the entry has the status of its reply
    failed = reply.status >= FIRST_ERROR_STATUS or _is_error(as_object(answer))
    is_strange = reply.is_unknown and not as_object(answer)  # an object may be an empty reply
    time = next((found for name in TIME_FIELDS if (found := parse_time(entry.get(name)))), 0) or _reply_time(answer)
    return Exchange(
        body=body,
        text=text,
        reply=None if failed or is_strange else answer,
        id=str(entry.get("custom_id") or ""),
        conversation=_conversation_id(entry),
        address=address,
        time=time,
        ended=_end_time(entry, time),
        status=reply.status if reply.status != FIRST_ERROR_STATUS or _states_status(given) else 0,
        failed=failed,
        error=answer if failed else None,
        is_chat=not NON_CHAT_ADDRESS.search(address.partition("?")[0]) and not _is_embedding(answer),
        note=UNKNOWN_REPLY if is_strange and not failed else "",
    )


def is_request_body(value: JSON) -> bool:
    """Return True if this is the body of a request to a model."""
    if not isinstance(value, dict):
        return False
    body = cast(JSONObject, value)
    if isinstance(body.get("messages"), list):
        return bool(body["messages"]) and not any(map(_is_ui_message, as_objects(body["messages"])))
    if isinstance(body.get("contents"), list):
        return True
    return isinstance(body.get("input"), list | str) and ("model" in body or "instructions" in body)


class _FoundRequest(NamedTuple):
    """The body of a request; as text if it was logged as text."""

    body: JSONObject | None
    address: str
    text: str = ""


def _request(entry: JSONObject, depth: int = 0) -> _FoundRequest:
    """Return the request in an envelope."""
    address = next((str(entry[name]) for name in ADDRESS_FIELDS if entry.get(name)), "")
    if is_request_body(entry):
        return _FoundRequest(entry, address)
    for name in REQUEST_FIELDS:
        given = entry.get(name)
        inner = _decoded_value(given)
        if isinstance(inner, dict) and depth < MAX_DEPTH:
            found = _request(cast(JSONObject, inner), depth + 1)
            if found.body is not None:
                text = given if isinstance(given, str) and found.body is inner else found.text
                return _FoundRequest(found.body, found.address or address, text)
    return _FoundRequest(None, address)


def _reply(entry: JSONObject, inside: bool = False) -> _FoundReply:
    """Return the reply in an envelope, or in a nested envelope."""
    strange = _FoundReply()
    for name in REPLY_FIELDS:
        found = _reply_in_field(name, entry[name], inside) if name in entry else _FoundReply()
        if found.is_unknown and strange.value is None:
            strange = found
        elif not found.is_unknown and (found.value is not None or found.status):
            return found
    if strange.value is not None:
        return strange
    return _FoundReply(None, FIRST_ERROR_STATUS if isinstance(entry.get("error"), dict | str) and entry["error"] else 0)


def _reply_in_field(name: str, given: JSON, inside: bool) -> _FoundReply:
    """Return the reply in a field; an empty one if the field holds a request or another value."""
    inner = _decoded_value(given)
    if inner in (None, "", [], {}) or (isinstance(inner, dict) and is_request_body(cast(JSONObject, inner))):
        return _FoundReply()
    if isinstance(inner, dict):
        found = _reply_in_object(cast(JSONObject, inner))
    elif isinstance(inner, list):
        found = _FoundReply(
            cast(JSON, inner), is_unknown=name not in REPLY_ONLY_FIELDS and not as_objects(cast(JSON, inner))
        )
    else:
        is_stream = isinstance(inner, str) and parse_events(inner) != ([], 0)
        found = _FoundReply(
            inner, is_unknown=not is_stream and not (isinstance(inner, str) and name in REPLY_ONLY_FIELDS)
        )
    if found.is_unknown and isinstance(given, str) and name in REPLY_ONLY_FIELDS:
        return _FoundReply(given)  # a text that happens to be JSON
    is_named = name in (*REPLY_ONLY_FIELDS, "result") or (inside and name == "body")
    return found if is_named or not found.is_unknown else _FoundReply()


def _reply_in_object(held: JSONObject) -> _FoundReply:
    status = _status(held)
    if held.get("type") in ("errored", "canceled", "expired"):  # of a batch
        return _FoundReply(None, FIRST_ERROR_STATUS)
    if is_reply(held) or _is_error(held):
        return _FoundReply(held, status)
    further = _reply(held, inside=True)
    if further.value is None and not further.status and not status:
        return _FoundReply(held, is_unknown=True)
    return _FoundReply(further.value, status or further.status, further.is_unknown)


def _status(entry: JSONObject) -> int:
    found = entry.get("status_code", entry.get("status", entry.get("statusCode")))
    return found if isinstance(found, int) else 0


def _states_status(entry: JSONObject) -> bool:
    return bool(_status(as_object(entry.get("response"))) or _status(entry))


def _is_error(value: JSONObject) -> bool:
    return bool(value.get("error")) and not is_reply(value)


def _is_embedding(reply: JSON) -> bool:
    first = next(iter(as_objects(reply)), as_object(reply))
    return any(name in first for name in EMBEDDING_FIELDS)


def _is_ui_message(message: JSONObject) -> bool:
    """Return True if this is a UI message, which no provider accepts."""
    return isinstance(message.get("parts"), list) and not message.get("content")


def _has_custom_id(entry: JSONObject) -> bool:
    return isinstance(entry.get("custom_id"), str)


def _decoded_value(value: JSON) -> JSON:
    """Return the value; if it is a text with JSON, the decoded one."""
    if not isinstance(value, str) or value.lstrip()[:1] not in ("{", "["):
        return value
    try:
        return decode_json(value.encode())
    except ValueError:
        return value


def _conversation_id(entry: JSONObject) -> str:
    holders = [entry, as_object(entry.get("metadata")), as_object(entry.get("request"))]
    found = (holder.get(name) for holder in holders for name in CONVERSATION_FIELDS)
    return next((each for each in found if isinstance(each, str) and each), "")


def _end_time(entry: JSONObject, began: int) -> int:
    """Return the time at which the reply ended; 0 if it is not known."""
    ended = next((found for name in END_FIELDS if (found := parse_time(entry.get(name)))), 0)
    took = next((each for name in DURATION_FIELDS if isinstance(each := entry.get(name), int | float)), 0)
    return ended if ended >= began else began + int(took) if began and took > 0 else 0


def _reply_time(reply: JSON) -> int:
    """Return the creation time that a reply states."""
    held = as_object(reply)
    return parse_time(held.get("created")) or parse_time(held.get("created_at"))
