"""Log entries: a request to a provider, and its reply, in the envelope of any logging tool.

Envelopes differ: both bodies side by side, HTTP messages, a batch and its results, the reply inside the request. They
are recognised by their content, never by field names alone. A reply in an unknown format is noted. Calls that are not
chats, such as embeddings, are left out.
"""

import re
from typing import cast

from msgspec import Struct

from contextc._json import JSON, JSONObject
from contextc.transfer.found import moment, object_in, objects_in
from contextc.transfer.given import decoded
from contextc.transfer.replies import events_in, is_reply

REQUESTS = ("request", "req", "body", "params", "kwargs", "payload", "json", "data", "input")
ANSWERS = ("response", "resp", "reply", "completion", "output", "answer")
"""Field names of replies only: a text in them is the text of a model."""
REPLIES = (*ANSWERS, "result", "body", "message", "json", "data")
TIMES = ("timestamp", "time", "ts", "created_at", "createdAt", "date", "start_time", "startTime", "request_time")
NAMES = ("conversation_id", "conversationId", "session_id", "sessionId", "thread_id", "chat_id")
ADDRESSES = ("url", "path", "endpoint")
NO_TALK = re.compile(r"[/:](batch)?(embed|moderation|rerank|count_?tokens|tokenize|audio/|images/)", re.IGNORECASE)
EMBEDDED = ("embedding", "embeddings")
NOT_UNDERSTOOD = "a reply in an unknown format"
REFUSED = 400
DEEPEST = 4


class Exchange(Struct, frozen=True, kw_only=True):
    """A request and its reply, as far as they were logged. `id` connects the two if they are in different entries.

    `conversation` is the logger's own conversation id. `failed` is True for an error reply, `is_talk` for a chat
    request. `note` is a remark for the user.
    """

    body: JSONObject | None = None
    reply: JSON = None
    id: str = ""
    conversation: str = ""
    address: str = ""
    time: int = 0
    failed: bool = False
    is_talk: bool = True
    note: str = ""


class _Reply(Struct, frozen=True):
    """A reply, its HTTP status (0 if unknown), and whether its format is unknown."""

    value: JSON = None
    status: int = 0
    strange: bool = False


def exchange_in(value: JSON) -> Exchange | None:
    """Return the exchange in a value of a log; None if it has none."""
    if not isinstance(value, dict):
        return None
    entry = cast(JSONObject, value)
    body, address = _request(entry)
    given = entry
    if body is entry:
        given = {name: entry[name] for name in (*ANSWERS, "result") if name in entry}
        body = {name: each for name, each in entry.items() if name not in (*given, *TIMES, *NAMES, *ADDRESSES)}
    reply = _reply(given)
    if body is None and not (_is_marked(entry) and (reply.value is not None or reply.status)):
        return None
    if body is not None and "model" not in body and isinstance(entry.get("model"), str):
        body = {**body, "model": entry["model"]}
    answer: JSON = reply.value
    failed = reply.status >= REFUSED or _is_error(object_in(answer))
    is_strange = reply.strange and not object_in(answer)  # an object may be an empty reply
    return Exchange(
        body=body,
        reply=None if failed or is_strange else answer,
        id=str(entry.get("custom_id") or ""),
        conversation=_named(entry),
        address=address,
        time=next((found for name in TIMES if (found := moment(entry.get(name)))), 0) or _replied(answer),
        failed=failed,
        is_talk=not NO_TALK.search(address.partition("?")[0]) and not _is_embedding(answer),
        note=NOT_UNDERSTOOD if is_strange and not failed else "",
    )


def is_body(value: JSON) -> bool:
    """Return True if this is the body of a request to a model."""
    if not isinstance(value, dict):
        return False
    body = cast(JSONObject, value)
    if isinstance(body.get("messages"), list):
        return bool(body["messages"]) and not any(map(_is_shown, objects_in(body["messages"])))
    if isinstance(body.get("contents"), list):
        return True
    return isinstance(body.get("input"), list | str) and ("model" in body or "instructions" in body)


def _request(entry: JSONObject, depth: int = 0) -> tuple[JSONObject | None, str]:
    """Return the body of the request in an envelope, and its address."""
    address = next((str(entry[name]) for name in ADDRESSES if entry.get(name)), "")
    if is_body(entry):
        return entry, address
    for name in REQUESTS:
        inner = _value(entry.get(name))
        if isinstance(inner, dict) and depth < DEEPEST:
            body, further = _request(cast(JSONObject, inner), depth + 1)
            if body is not None:
                return body, further or address
    return None, address


def _reply(entry: JSONObject, inside: bool = False) -> _Reply:
    """Return the reply in an envelope, or in a nested envelope."""
    strange = _Reply()
    for name in REPLIES:
        found = _under(name, entry[name], inside) if name in entry else _Reply()
        if found.strange and strange.value is None:
            strange = found
        elif not found.strange and (found.value is not None or found.status):
            return found
    if strange.value is not None:
        return strange
    return _Reply(None, REFUSED if isinstance(entry.get("error"), dict | str) and entry["error"] else 0)


def _under(name: str, given: JSON, inside: bool) -> _Reply:
    """Return the reply in a field; an empty one if the field holds a request or another value."""
    inner = _value(given)
    if inner in (None, "", [], {}) or (isinstance(inner, dict) and is_body(cast(JSONObject, inner))):
        return _Reply()
    if isinstance(inner, dict):
        found = _in_object(cast(JSONObject, inner))
    elif isinstance(inner, list):
        found = _Reply(cast(JSON, inner), strange=name not in ANSWERS and not objects_in(cast(JSON, inner)))
    else:
        is_stream = isinstance(inner, str) and events_in(inner) != ([], 0)
        found = _Reply(inner, strange=not is_stream and not (isinstance(inner, str) and name in ANSWERS))
    if found.strange and isinstance(given, str) and name in ANSWERS:
        return _Reply(given)  # a text that happens to be JSON
    told = name in (*ANSWERS, "result") or (inside and name == "body")
    return found if told or not found.strange else _Reply()


def _in_object(held: JSONObject) -> _Reply:
    status = _status(held)
    if held.get("type") in ("errored", "canceled", "expired"):  # of a batch
        return _Reply(None, REFUSED)
    if is_reply(held) or _is_error(held):
        return _Reply(held, status)
    further = _reply(held, inside=True)
    if further.value is None and not further.status and not status:
        return _Reply(held, strange=True)
    return _Reply(further.value, status or further.status, further.strange)


def _status(entry: JSONObject) -> int:
    found = entry.get("status_code", entry.get("status", entry.get("statusCode")))
    return found if isinstance(found, int) else 0


def _is_error(value: JSONObject) -> bool:
    return bool(value.get("error")) and not is_reply(value)


def _is_embedding(reply: JSON) -> bool:
    first = next(iter(objects_in(reply)), object_in(reply))
    return any(name in first for name in EMBEDDED)


def _is_shown(message: JSONObject) -> bool:
    """Return True if this is a UI message, which no provider accepts."""
    return isinstance(message.get("parts"), list) and not message.get("content")


def _is_marked(entry: JSONObject) -> bool:
    return isinstance(entry.get("custom_id"), str)


def _value(value: JSON) -> JSON:
    """Return the value; if it is a text with JSON, the decoded one."""
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
    """Return the creation time that a reply states."""
    held = object_in(reply)
    return moment(held.get("created")) or moment(held.get("created_at"))
