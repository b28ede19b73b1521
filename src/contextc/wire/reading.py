"""Requests of anybody's making, read as well as they can be."""

from collections.abc import Iterable, Iterator
from copy import deepcopy
from typing import NamedTuple, cast

from msgspec.structs import replace

from contextc._json import JSON, JSONObject, check
from contextc.errors import InvalidRequest
from contextc.formats.base import Formatter, Note, Request, noted
from contextc.messages import Message, Reasoning, ToolCall
from contextc.pairing import Repair, pair


class Readable(NamedTuple):
    """A request that can be decoded, whether it came as a bare list, and how much of it had no shape of its own."""

    body: JSONObject
    bare: bool
    reshaped: int


def readable(form: Formatter, body: JSON) -> Readable:
    """The request with everything misshapen in a sound shape: the one that was meant, else text."""
    if not isinstance(body, dict | list):
        raise InvalidRequest(f"a request is an object or a list of messages, not {type(body).__name__}.")
    bare, book = isinstance(body, list), form.rules
    body = list(cast(list[JSON], body)) if bare else dict(cast(JSONObject, body))  # it may be a kind of dict or list
    if problem := check(body):
        raise InvalidRequest(problem[1], path=problem[0])
    root: JSONObject = {"whole": {form.messages_key: body} if bare else body}
    count = len(book.read(root["whole"]).misshapen)
    if not count:
        return Readable(root["whole"], bare, 0)
    root = deepcopy(root)
    for reshape in (book.reshape, book.as_text):
        for finding in reversed(book.read(root["whole"]).misshapen):
            *before, last = ("whole", *finding.path)
            parent: JSON = root
            for step in before:
                parent = parent[step]
            there = last in parent if isinstance(parent, dict) else True
            shaped = reshape(parent[last] if there else None, finding.path)
            if shaped is None and there:
                del parent[last]
            elif shaped is not None:
                parent[last] = shaped
    return Readable(root["whole"], bare, count)


class Decoded(NamedTuple):
    request: Request
    notes: list[Note]


def decoded(form: Formatter, body: JSONObject, *, for_itself: bool) -> Decoded:
    """The request in our terms: calls with the model that made them, results with their calls, strays as text.

    A result whose call the provider holds is no stray if the request is `for_itself`, and goes back to it.
    """
    request = form.decode_request(body)
    messages = form.held(request) if for_itself else request.messages
    paired = pair(list(_seated(messages)), strays_as_text=True)
    notes = [note for repair in paired.repairs if (note := _noted(repair)) is not None]
    return Decoded(replace(request, messages=tuple(paired.messages)), notes)


def _noted(repair: Repair) -> Note | None:
    if repair.kind in ("orphan", "duplicate"):
        return Note("changed", f"a result for {repair.call_id} that no call asked for, into text")
    return noted(repair)


def _seated(messages: Iterable[Message]) -> Iterator[Message]:
    """Calls and reasoning with the assistant, whoever was said to have written them."""
    for message in messages:
        own = any(isinstance(part, ToolCall | Reasoning) for part in message.parts)
        yield replace(message, role="assistant") if own and message.role != "assistant" else message
