"""Tools for requests as they are on the wire, ours or any other framework's: no store, no network.

Each takes a whole request or the bare list of its messages, and gives back the same. Nothing that was given is
changed; what could not be kept is said.
"""

from collections.abc import Iterable, Iterator
from copy import deepcopy
from typing import cast, overload

from msgspec import Struct
from msgspec.structs import replace

from contextc._json import JSON, JSONObject
from contextc.formats.base import Formatter
from contextc.formats.checking import Violation
from contextc.formats.named import formatter
from contextc.messages import Message, Reasoning, ToolCall
from contextc.pairing import pair

ROUNDS = 4
"""How often a fixed request is looked at again: one repair may bring to light what another hid."""


class Repaired(Struct, frozen=True):
    """Something `fix` put right: which rule was broken, where, and what was done about it."""

    code: str
    path: str
    message: str
    repair: str


def lint(body: JSON, *, format: str) -> list[Violation]:
    """What the provider would refuse, from the first message to the last."""
    return formatter(format).rules.lint(body)


@overload
def fix(body: JSONObject, *, format: str) -> tuple[JSONObject, list[Repaired]]: ...
@overload
def fix(body: list[JSONObject], *, format: str) -> tuple[list[JSONObject], list[Repaired]]: ...
def fix(body: JSON, *, format: str) -> tuple[JSON, list[Repaired]]:
    """The request as its provider accepts it, and what was done. A sound one comes back as it is.

    No text is lost: what cannot stay what it was (a result without a call, a block without a shape) becomes text.
    """
    form = formatter(format)
    key, book = form.messages_key, form.rules
    fixed: JSONObject = cast(JSONObject, body) if isinstance(body, dict) else {key: body}
    repairs: list[Repaired] = []
    for _ in range(ROUNDS):
        found = book.lint(fixed)
        if not found:
            break
        repairs += [_repaired(form, violation) for violation in found]
        fixed = _encoded_anew(form, _shaped(form, fixed))
        for code in sorted({violation.code for violation in book.lint(fixed)}):
            if (mend := book.named(code).mend) is not None:
                fixed = mend(fixed)
    if isinstance(body, dict):
        return fixed, repairs
    return fixed[key], repairs


def _repaired(form: Formatter, violation: Violation) -> Repaired:
    return Repaired(violation.code, violation.path, violation.message, form.rules.named(violation.code).repair)


def _encoded_anew(form: Formatter, body: JSONObject) -> JSONObject:
    """The request, decoded and encoded: paired, in order, spelled as the provider takes it."""
    request = form.decode_request(body)
    history = pair(list(seated(request.messages)), strays_as_text=True).messages
    return form.encode_request(replace(request, messages=tuple(history)))


def seated(messages: Iterable[Message]) -> Iterator[Message]:
    """Calls and reasoning with the assistant, whoever was said to have written them."""
    for message in messages:
        own = any(isinstance(part, ToolCall | Reasoning) for part in message.parts)
        yield replace(message, role="assistant") if own and message.role != "assistant" else message


def _shaped(form: Formatter, body: JSONObject) -> JSONObject:
    """The request with everything misshapen in a sound shape: the one that was meant, else text."""
    book, copy = form.rules, cast(JSONObject, {"whole": deepcopy(body)})
    for reshape in (book.reshape, book.as_text):
        for finding in reversed(book.read(copy["whole"]).misshapen):
            *before, last = ("whole", *finding.path)
            parent: JSON = copy
            for step in before:
                parent = parent[step]
            shaped = reshape(parent[last], finding.path)
            if shaped is None:
                del parent[last]
            else:
                parent[last] = shaped
    return copy["whole"]
