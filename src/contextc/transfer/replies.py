"""Logged replies, decoded in a format: whole, as the events of a stream, as a message, or as plain text.

A stream is its raw text, as events or as lines of JSON, or a list of either. If a reply has several answers, each of
them is decoded. A text is a plain reply only if it is nothing else.
"""

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple, cast

from msgspec.structs import replace

from contextc._json import JSON, JSONObject
from contextc.errors import ContextcError, InvalidReply
from contextc.formats import format_names, formatter
from contextc.formats.base import Formatter
from contextc.messages import Message, Text, Usage
from contextc.providers.named import client_of
from contextc.transfer.found import object_in, objects_in
from contextc.transfer.given import decoded

ODD = (KeyError, TypeError, AttributeError, ValueError, IndexError)
"""Exceptions that a decoder raises for a value that is not a reply of its format."""
ANSWERS = ("choices", "candidates")  # fields with several answers
SPEAKERS = ("assistant", "model")
ENDS = re.compile(r"\r\n|\n|\r")  # line ends of a stream; other line breaks may be part of a text
OBJECT = re.compile(r"data:\s*\{")
LAST = "[DONE]"


class Events(NamedTuple):
    """The events of a stream, and the number of unreadable ones."""

    events: list[JSONObject]
    unread: int = 0


class Replies(NamedTuple):
    """The answers of a reply, in order, and the number of unreadable events."""

    messages: list[Message]
    unread: int = 0


@cache
def spoken_formats() -> tuple[str, ...]:
    """Return the formats of requests that have a client."""
    return tuple(name for name in format_names() if client_of(name) and not formatter(name).lines)


def events_in(text: str) -> Events:
    """Return the events in the logged text of a stream; none if it is not a stream."""
    found, unread = list[JSONObject](), 0
    lines = ENDS.split(text)
    if not any(OBJECT.match(line) for line in lines):
        return _json_lines([line for line in lines if line.strip()])
    block: list[str] = []
    for line in [*lines, ""]:
        if line.startswith("data:"):
            block.append(line.removeprefix("data:").strip())
        elif not line and block:
            values, strange = _block([each for each in block if each and not each.startswith(LAST)])
            found, unread, block = found + values, unread + strange, []
    return Events(found, unread)


def read(form: Formatter, reply: JSON) -> Replies:
    """Decode a reply in a format. Raise `InvalidReply` or one of `ODD` if it is not one."""
    if isinstance(reply, str):
        return _text(form, reply)
    if isinstance(reply, list):
        given = cast(list[JSON], reply)
        if given and all(isinstance(each, str) for each in given):
            return _text(form, "\n\n".join(cast(list[str], given)))
        events = objects_in(given)
        if not events:
            raise InvalidReply(form.name, {})
        if any(is_message(each) for each in events):
            return Replies([_message(form, each) for each in events if is_message(each)][-1:])
        return Replies(_streamed(form, events))
    return Replies(_whole(form, object_in(reply)))


def is_message(value: JSONObject) -> bool:
    """Return True if this is a bare message of the model."""
    says = value.get("content") or value.get("parts") or value.get("tool_calls")
    return value.get("role") in SPEAKERS and bool(says)


def is_reply(value: JSONObject) -> bool:
    """Return True if any format decodes content from this."""
    return is_message(value) or any(says(formatter(name), value) is not None for name in spoken_formats())


def says(form: Formatter, reply: JSON) -> Sequence[Message] | None:
    """Return the answers in a reply; None if the format decodes no content."""
    try:
        messages = read(form, reply).messages
    except (ContextcError, *ODD):
        return None
    return messages if any(message.parts for message in messages) else None


def _json_lines(lines: list[str]) -> Events:
    """Return the events in lines with one object each; the last line may be truncated."""
    if len(lines) < 2 or not all(line.lstrip().startswith("{") for line in lines):
        return Events([])
    values, strange = _block(lines)
    return Events(values, strange) if len(values) > 1 or (values and strange) else Events([])


def _block(lines: list[str]) -> tuple[list[JSONObject], int]:
    """Return the events in consecutive lines: one per line, or one in all lines."""
    values = [_value(line) for line in lines]
    if None in values and (whole := _value("\n".join(lines))) is not None:
        return [whole], 0
    return [value for value in values if value is not None], values.count(None)


def _value(text: str) -> JSONObject | None:
    try:
        value = decoded(text.encode())
    except (ValueError, UnicodeError):
        return None
    return cast(JSONObject, value) if isinstance(value, dict) else None


def _text(form: Formatter, text: str) -> Replies:
    events, unread = events_in(text)
    if events:
        messages = _streamed(form, events)
        if any(message.parts for message in messages) or any(map(OBJECT.match, ENDS.split(text))):
            return Replies(messages, unread)
    elif unread and all(not line or line.startswith(("data:", "event:", "id:", ":")) for line in ENDS.split(text)):
        raise InvalidReply(form.name, {})
    return Replies([Message(role="assistant", parts=(Text(text),))] if text.strip() else [])


def _whole(form: Formatter, reply: JSONObject) -> list[Message]:
    try:
        messages = _told_once([form.decode_reply(each) for each in _answers(reply)])
    except (ContextcError, *ODD):
        if not is_message(reply):
            raise
        messages = []
    silent = is_message(reply) and not any(message.parts for message in messages)
    return [_message(form, reply)] if silent else messages


def _message(form: Formatter, message: JSONObject) -> Message:
    decoded_in = form.decode_request({form.messages_key: [message]}).messages
    if len(decoded_in) != 1 or decoded_in[0].role != "assistant":
        raise InvalidReply(form.name, message)
    return decoded_in[0]


def _streamed(form: Formatter, events: list[JSONObject]) -> list[Message]:
    numbers = {_index(each) for event in events for name in ANSWERS for each in objects_in(event.get(name))}
    numbered = sorted(numbers) or [0]
    return _told_once([form.decode_stream(_only(event, number) for event in events) for number in numbered])


def _only(event: JSONObject, number: int) -> JSONObject:
    """Return an event of a stream with only one of its answers."""
    kept: JSONObject = {
        name: [{**each, "index": 0} for each in objects_in(event.get(name)) if _index(each) == number]
        for name in ANSWERS
        if any(_index(each) for each in objects_in(event.get(name))) or (number and name in event)
    }
    return {**event, **kept}


def _answers(reply: JSONObject) -> Iterator[JSONObject]:
    """Return the reply once per answer, in their order."""
    name = next((name for name in ANSWERS if len(objects_in(reply.get(name))) > 1), None)
    if name is None:
        yield reply
        return
    for each in sorted(objects_in(reply[name]), key=_index):
        yield {**reply, name: [each]}


def _index(answer: JSONObject) -> int:
    found: JSON = answer.get("index")
    return found if isinstance(found, int) else 0


def _told_once(answers: list[Message]) -> list[Message]:
    """Keep the usage, which covers all answers, only in the first. Remove empty usage."""
    return [
        replace(message, usage=None) if number or message.usage == Usage() else message
        for number, message in enumerate(answers)
    ]
