"""Logged replies, decoded in a format: whole, as the events of a stream, as a message, or as plain text.

A stream is its raw text, as events or as lines of JSON, or a list of either. If a reply has several answers, each of
them is decoded. A text is a plain reply only if it is nothing else.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import NamedTuple, cast

from msgspec.structs import replace

from contextc._json import JSON, JSONObject, as_object, as_objects, decode_json
from contextc.compiler.prompt_cache import CacheDiagnosis, list_reply_objects, read_diagnosis
from contextc.errors import ContextcError, InvalidReply
from contextc.formats import format_names, formatter
from contextc.formats.base import Formatter
from contextc.linting.request_reading import coerce_request
from contextc.messages import Message, ProviderBlock, Text, Usage
from contextc.providers.registry import DEFAULT_FORMAT, client_of_format, format_of_model, formats_of_url

DECODE_ERRORS = (KeyError, TypeError, AttributeError, ValueError, IndexError)
"""Exceptions that a decoder raises for a value that is not a reply of its format."""
ANSWER_FIELDS = ("choices", "candidates")  # fields with several answers
MODEL_ROLES = ("assistant", "model")
LINE_END = re.compile(r"\r\n|\n|\r")  # line ends of a stream; other line breaks may be part of a text
DATA_LINE = re.compile(r"data:\s*\{")
STREAM_END = "[DONE]"
FRAME = re.compile(
    r":(event|exception)-type\x07.{2}(\w++)(?:\r:content-type\x07.{0,200}?)?\r:message-type\x07.{2}\w++(?=\{)", re.S
)
"""The headers of an event in an AWS event stream, up to its payload."""
FRAME_START = 400
_JSON = json.JSONDecoder()
MAX_LIKELY = 256
_likely_formats: dict[frozenset[str], str] = {}
"""A format that decodes replies with some fields, which is tried first for others with the same fields."""


class StreamEvents(NamedTuple):
    """The events of a stream, and the number of unreadable ones."""

    events: list[JSONObject]
    unread: int = 0


class DecodedReply(NamedTuple):
    """The answers of a reply, in order, and the number of unreadable events."""

    messages: list[Message]
    unread: int = 0


@cache
def request_formats() -> tuple[str, ...]:
    """Return the formats of requests that have a client."""
    return tuple(name for name in format_names() if client_of_format(name) and not formatter(name).session_line_fields)


def parse_events(text: str) -> StreamEvents:
    """Return the events in the logged text of a stream; none if it is not a stream."""
    if FRAME.search(text[:FRAME_START]):
        return parse_frames(text)
    found, unread = list[JSONObject](), 0
    lines = LINE_END.split(text)
    if not any(DATA_LINE.match(line) for line in lines):
        return _json_lines([line for line in lines if line.strip()])
    block: list[str] = []
    for line in [*lines, ""]:
        if line.startswith("data:"):
            block.append(line.removeprefix("data:").strip())
        elif not line and block:
            values, strange = _parse_block([each for each in block if each and not each.startswith(STREAM_END)])
            found += values
            unread, block = unread + strange, []
    return StreamEvents(found, unread)


def parse_frames(text: str) -> StreamEvents:
    """Return the events in the logged text of an AWS event stream. Its binary parts may be damaged, the events not."""
    found, unread = list[JSONObject](), 0
    for frame in FRAME.finditer(text):
        try:
            payload = as_object(_JSON.raw_decode(text, frame.end())[0])
        except (ValueError, RecursionError):
            unread += 1
            continue
        payload.pop("p", None)  # padding
        found.append({"error": {**payload, "type": frame[2]}} if frame[1] == "exception" else {frame[2]: payload})
    return StreamEvents(found, unread)


def decode_logged_reply(form: Formatter, reply: JSON) -> DecodedReply:
    """Decode a reply in a format. Raise `InvalidReply` or one of `DECODE_ERRORS` if it is not one."""
    if isinstance(reply, str):
        return _decode_text(form, reply)
    if isinstance(reply, list):
        given = cast(list[JSON], reply)
        if given and all(isinstance(each, str) for each in given):
            return _decode_text(form, "\n\n".join(cast(list[str], given)))
        events = as_objects(given)
        if not events:
            raise InvalidReply(form.name, {})
        if any(is_bare_model_message(each) for each in events):
            return DecodedReply([_decode_message(form, each) for each in events if is_bare_model_message(each)][-1:])
        return DecodedReply(_decode_events(form, events))
    return DecodedReply(_decode_whole(form, as_object(reply)))


def is_bare_model_message(value: JSONObject) -> bool:
    """Return True if this is a bare message of the model."""
    content = value.get("content") or value.get("parts") or value.get("tool_calls")
    return value.get("role") in MODEL_ROLES and bool(content)


def is_reply(value: JSONObject) -> bool:
    """Return True if any format decodes content from this."""
    if is_bare_model_message(value):
        return True
    names = sorted(request_formats(), key=lambda name: name != _likely_formats.get(frozenset(value)))
    found = next((name for name in names if decode_or_none(formatter(name), value) is not None), None)
    if found is not None and len(_likely_formats) < MAX_LIKELY:
        _likely_formats[frozenset(value)] = found
    return found is not None


def decode_or_none(form: Formatter, reply: JSON) -> Sequence[Message] | None:
    """Return the answers in a reply; None if the format decodes no content."""
    try:
        messages = decode_logged_reply(form, reply).messages
    except (ContextcError, *DECODE_ERRORS):
        return None
    return messages if any(message.parts for message in messages) else None


def _json_lines(lines: list[str]) -> StreamEvents:
    """Return the events in lines with one object each; the last line may be truncated."""
    if len(lines) < 2 or not all(line.lstrip().startswith("{") for line in lines):
        return StreamEvents([])
    values, strange = _parse_block(lines)
    return StreamEvents(values, strange) if len(values) > 1 or (values and strange) else StreamEvents([])


def _parse_block(lines: list[str]) -> tuple[list[JSONObject], int]:
    """Return the events in consecutive lines: one per line, or one in all lines."""
    values = [_decode_object(line) for line in lines]
    if None in values and (whole := _decode_object("\n".join(lines))) is not None:
        return [whole], 0
    return [value for value in values if value is not None], values.count(None)


def _decode_object(text: str) -> JSONObject | None:
    try:
        value = decode_json(text.encode())
    except (ValueError, UnicodeError):
        return None
    return cast(JSONObject, value) if isinstance(value, dict) else None


def _decode_text(form: Formatter, text: str) -> DecodedReply:
    events, unread = parse_events(text)
    if events:
        messages = _decode_events(form, events)
        if any(message.parts for message in messages) or any(map(DATA_LINE.match, LINE_END.split(text))):
            return DecodedReply(messages, unread)
    elif unread and all(not line or line.startswith(("data:", "event:", "id:", ":")) for line in LINE_END.split(text)):
        raise InvalidReply(form.name, {})
    return DecodedReply([Message(role="assistant", parts=(Text(text),))] if text.strip() else [])


def _decode_whole(form: Formatter, reply: JSONObject) -> list[Message]:
    try:
        messages = _usage_once([form.decode_reply(each) for each in _split_answers(reply)])
    except (ContextcError, *DECODE_ERRORS):
        if not is_bare_model_message(reply):
            raise
        messages = []
    silent = is_bare_model_message(reply) and not any(message.parts for message in messages)
    return [_decode_message(form, reply)] if silent else messages


def _decode_message(form: Formatter, message: JSONObject) -> Message:
    decoded_in = form.decode_request({form.messages_key: [message]}).messages
    if len(decoded_in) != 1 or decoded_in[0].role != "assistant":
        raise InvalidReply(form.name, message)
    return decoded_in[0]


def _decode_events(form: Formatter, events: list[JSONObject]) -> list[Message]:
    numbers = {
        _answer_index(each) for event in events for name in ANSWER_FIELDS for each in as_objects(event.get(name))
    }
    if numbers <= {0}:
        return _usage_once([form.decode_stream(events)])
    numbered = sorted(numbers)
    return _usage_once([form.decode_stream(_with_one_answer(event, number) for event in events) for number in numbered])


def _with_one_answer(event: JSONObject, number: int) -> JSONObject:
    """Return an event of a stream with only one of its answers."""
    kept: JSONObject = {
        name: [{**each, "index": 0} for each in as_objects(event.get(name)) if _answer_index(each) == number]
        for name in ANSWER_FIELDS
        if any(_answer_index(each) for each in as_objects(event.get(name))) or (number and name in event)
    }
    return {**event, **kept}


def _split_answers(reply: JSONObject) -> Iterator[JSONObject]:
    """Return the reply once per answer, in their order."""
    name = next((name for name in ANSWER_FIELDS if len(as_objects(reply.get(name))) > 1), None)
    if name is None:
        yield reply
        return
    for each in sorted(as_objects(reply[name]), key=_answer_index):
        yield {**reply, name: [each]}


def _answer_index(answer: JSONObject) -> int:
    found: JSON = answer.get("index")
    return found if isinstance(found, int) else 0


def _usage_once(answers: list[Message]) -> list[Message]:
    """Keep the usage, which covers all answers, only in the first. Remove empty usage."""
    return [
        replace(message, usage=None) if number or message.usage == Usage() else message
        for number, message in enumerate(answers)
    ]


# ── the provider's diagnosis of a cache miss ──────────────────────────────────────────────────────────────────────────
# The provider's diagnosis of a cache miss in a reply, if the request asked for it.
#
# Anthropic answers in `diagnostics.cache_miss_reason` of a message, OpenAI in `prompt_cache_diagnostics` of a
# response. In a stream, both are part of an event that contains the message or response.


DIAGNOSIS = re.compile(r'"(?:prompt_cache_)?diagnostics"\s*:\s*\{')


def read_cache_diagnosis(reply: JSON) -> CacheDiagnosis:
    """Return the diagnosis in a reply: whole, as a list of events, or as the text of a stream."""
    return read_diagnosis(_diagnosed_objects(reply))


def _diagnosed_objects(reply: JSON) -> Iterator[JSONObject]:
    """Return all objects that can be a message or a response."""
    if isinstance(reply, dict):
        yield cast(JSONObject, reply)
        return
    if isinstance(reply, str):
        events = _diagnosis_events([reply])
    else:
        given = cast(list[JSON], reply) if isinstance(reply, list) else []
        events = as_objects(given) or _diagnosis_events([each for each in given if isinstance(each, str)])
    yield from list_reply_objects(events)


def _diagnosis_events(texts: Iterable[str]) -> list[JSONObject]:
    """Return the few events of a stream that can contain a diagnosis. Others are not decoded."""
    lines = [
        line for text in texts if DIAGNOSIS.search(text) for line in LINE_END.split(text) if DIAGNOSIS.search(line)
    ]  # fmt: skip
    return parse_events("\n\n".join(lines)).events if lines else []


# ── detection of the format ───────────────────────────────────────────────────────────────────────────────────────────
# Detection of the format of a logged exchange: by its address, by the formats that can decode its reply, by the fields
# of its request that a format does not know, and by its model, in this order. Providers and formatters hold the facts.


UNDECODABLE = 1_000_000


class FormatDetector:
    """Format detection with a cache: exchanges with equal address, model and fields have the same candidates."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], list[tuple[str, int]]] = {}

    def format_of(self, body: JSONObject, reply: JSON = None, address: str = "") -> str:
        mark = (address.partition("?")[0], str(body.get("model")), frozenset(body))
        if mark not in self._known:
            self._known[mark] = _candidate_formats(address, body)
        likeliest, *others = self._known[mark]
        if not others or reply is None or not _count_unknown_in_reply(formatter(likeliest[0]), reply):
            return likeliest[0]
        fitting = [likeliest, *others]
        return min(fitting, key=lambda each: each[1] + _count_unknown_in_reply(formatter(each[0]), reply))[0]


def detect_message_format(messages: list[JSONObject]) -> str:
    """Return the format with the fewest unknown fields for a bare list of messages; "" if none can decode it."""
    names = [name for name in format_names() if not formatter(name).session_line_fields]
    order = sorted(names, key=lambda name: (name != DEFAULT_FORMAT, name not in request_formats()))
    strange = {
        name: _count_unknown(formatter(name), {formatter(name).messages_key: messages}, lost=True) for name in order
    }
    least = min(strange, key=strange.__getitem__)
    return least if strange[least] < len(messages) else ""


def _candidate_formats(address: str, body: JSONObject) -> list[tuple[str, int]]:
    """Return the candidate formats of a request, best first, each with its number of unknown fields."""
    names = [name for name in request_formats() if formatter(name).messages_key in body]
    there = [name for name in formats_of_url(address) if name in names]
    order = [format_of_model(str(body.get("model") or "")), *there, DEFAULT_FORMAT, *names]
    fitting = sorted(there or names, key=order.index) or [DEFAULT_FORMAT]
    strange = {name: _count_unknown(formatter(name), body) if len(fitting) > 1 else 0 for name in fitting}
    return sorted(strange.items(), key=lambda each: each[1])


def _count_unknown(form: Formatter, body: JSONObject, *, lost: bool = False) -> int:
    """Return the number of fields that a format does not know. With `lost`, empty messages count too."""
    try:
        count = len(form.rules.parse(body).malformed)
        request = form.decode_request(coerce_request(form, body).body)
        empty = sum(not message.parts for message in request.messages) if lost else 0
        return count + len(form.settings.read(request.settings).unread) + _count_native_parts(request.messages) + empty
    except (ContextcError, *DECODE_ERRORS):
        return UNDECODABLE


def _count_unknown_in_reply(form: Formatter, reply: JSON) -> int:
    """Return the same for a reply. A stream is parsed first, because any format would decode it as plain text."""
    messages = decode_or_none(
        form, cast(JSON, parse_events(reply).events or reply) if isinstance(reply, str) else reply
    )
    return UNDECODABLE if messages is None else _count_native_parts(messages)


def _count_native_parts(messages: Sequence[Message]) -> int:
    return sum(isinstance(part, ProviderBlock) for message in messages for part in message.parts)
