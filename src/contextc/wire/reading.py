"""Requests of anybody's making, read as well as they can be."""

from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from typing import NamedTuple, cast

from msgspec.structs import replace

from contextc._json import JSON, JSONObject, check, encode, json_type, well_formed_json
from contextc.errors import InvalidRequest
from contextc.formats import format_names, formatter
from contextc.formats.base import Formatter, Note, Request, noted
from contextc.formats.checking import Path, RuleBook
from contextc.messages import Message, Reasoning, ToolCall
from contextc.pairing import Repair, pair


class Readable(NamedTuple):
    """A request that can be decoded, whether it came as a bare list, and how much of it had no shape of its own."""

    body: JSONObject
    bare: bool
    reshaped: int


def checked(body: JSON) -> JSON:
    """Return a body that JSON can hold: lone surrogates become U+FFFD. Raises `InvalidRequest` for anything else."""
    if isinstance(body, dict | list):  # it may be a subclass, such as the result of `convert`
        body = list(cast(list[JSON], body)) if isinstance(body, list) else dict(cast(JSONObject, body))
    if problem := check(body):
        raise InvalidRequest(problem[1], path=problem[0])
    try:
        encode(body)
    except UnicodeEncodeError:
        return well_formed_json(body)
    return body


def check_request(body: JSON) -> None:
    if not isinstance(body, dict | list):
        raise InvalidRequest(f"a request is an object or a list of messages, got {json_type(body)}.")


def readable(form: Formatter, body: JSON) -> Readable:
    """The request with everything misshapen in a sound shape: the one that was meant, else text."""
    return shaped(form, checked(body))


def shaped(form: Formatter, body: JSON) -> Readable:
    """`readable` of what was `checked` already."""
    check_request(body)
    bare, book = isinstance(body, list), form.rules
    root: JSONObject = {"whole": {form.messages_key: body} if bare else body}
    _check_key(form, root["whole"])
    count = len(book.read(root["whole"]).misshapen)
    if not count:
        return Readable(root["whole"], bare, 0)
    root = {"whole": _in_one_dialect(form, deepcopy(root["whole"]))}
    for reshape in (book.reshape, book.as_text):
        _reshape(book, root, reshape)
    return Readable(root["whole"], bare, count)


def _reshape(book: RuleBook, root: JSONObject, reshape: Callable[[JSON, Path], JSON]) -> None:
    """Give everything misshapen in `root["whole"]` another shape, from the last to the first."""
    holder: list[JSON] = []  # from which these places are to be cut, all at once
    gone: set[JSON] = set()
    for finding in reversed(book.read(root["whole"]).misshapen):
        *before, last = ("whole", *finding.path)
        parent: JSON = root
        for step in before:
            parent = parent[step]
        if parent is not holder:
            _cut(holder, gone)
        there = last in parent if isinstance(parent, dict) else True
        shaped = reshape(parent[last] if there else None, finding.path)
        if shaped is None and isinstance(parent, list):
            holder = cast(list[JSON], parent)
            gone.add(last)
        elif shaped is None and there:
            del parent[last]
        elif shaped is not None:
            parent[last] = shaped
    _cut(holder, gone)


def _cut(holder: list[JSON], gone: set[JSON]) -> None:
    """Take these places out of a list."""
    if gone:
        holder[:] = [each for index, each in enumerate(holder) if index not in gone]
        gone.clear()


def _check_key(form: Formatter, body: JSONObject) -> None:
    """A request of another provider would look like one that says nothing."""
    if form.messages_key in body:
        return
    kinds: dict[str, list[str]] = {}
    for name in format_names():
        kinds.setdefault(formatter(name).messages_key, []).append(name)
    for key, names in kinds.items():
        if isinstance(body.get(key), list):
            raise InvalidRequest(
                f"a request of {form.name} has its messages in `{form.messages_key}`, and this one in `{key}`. "
                f"Is it one of {', '.join(names)}?"
            )


def _in_one_dialect(form: Formatter, body: JSONObject) -> JSONObject:
    """The request with messages that another provider would understand said in this one's words.

    Histories that went through several hands often have a message or two in the shape of somebody else.
    """
    key = form.messages_key
    if not isinstance(body.get(key), list):
        return body
    broken = {
        finding.path[1] for finding in form.rules.read(body).misshapen if finding.path[:1] == (key,) != finding.path
    }
    messages: list[JSON] = []
    for index, message in enumerate(cast(list[JSON], body[key])):
        messages += (_translated(form, message) if index in broken else None) or [message]
    return {**body, key: messages}


def _is_understood(form: Formatter, message: JSON) -> bool:
    """Whether the format finds the calls and results of a misshapen message by itself."""
    root: JSONObject = {"whole": {form.messages_key: [deepcopy(message)]}}
    _reshape(form.rules, root, form.rules.reshape)
    sketch = form.rules.read(root["whole"])
    kinds = {piece.kind for turn in sketch.turns for piece in turn.pieces}
    return not sketch.misshapen and bool(kinds & {"call", "result"})


def _translated(form: Formatter, message: JSON) -> list[JSONObject] | None:
    """A message as this format says it, where another format knows what it is; None where none does."""
    if _is_understood(form, message):
        return None
    for name in format_names():
        other = formatter(name)
        sketch = other.rules.read([message])
        kinds = {piece.kind for turn in sketch.turns for piece in turn.pieces}
        if other is not form and not sketch.misshapen and kinds & {"call", "result", "media"}:
            request = other.decode_request({other.messages_key: [message]})
            return list(form.encode(request.messages).messages)
    return None


class Decoded(NamedTuple):
    request: Request
    notes: list[Note]


def decoded(form: Formatter, body: JSONObject, *, for_itself: bool) -> Decoded:
    """The request in our terms: calls with the model that made them, results with their calls, strays as text.

    A result whose call the provider holds is no stray if the request is `for_itself`, and goes back to it.
    """
    request = form.decode_request(body)
    if request.system is not None and _is_own(request.system):
        request = replace(request, messages=(request.system, *request.messages), system=None)
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
        yield replace(message, role="assistant") if message.role != "assistant" and _is_own(message) else message


def _is_own(message: Message) -> bool:
    """Whether only the assistant can have written a message."""
    return any(isinstance(part, ToolCall | Reasoning) for part in message.parts)
