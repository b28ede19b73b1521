"""Restore the original formatting of everything that a repair did not change.

A repaired request was decoded and encoded again. So a text may have become a list of one block, and fields may be in
another order. Each message and field that encodes to the same value on its own was not repaired, and its original form
is restored. If that would break a rule again, the encoded form stays.
"""

from collections.abc import Callable, Collection, Iterable
from typing import cast

from contextc._json import JSON, JSONObject, encode
from contextc.errors import ContextcError
from contextc.formats.base import Formatter
from contextc.formats.lint_engine import Violation

DECODE_ERRORS = (
    StopIteration,
    KeyError,
    TypeError,
    AttributeError,
    ValueError,
    IndexError,
    OverflowError,
    RecursionError,
)


def restore_formatting(
    form: Formatter,
    original: JSONObject,
    fixed: JSONObject,
    violations: Iterable[Violation],
    lint: Callable[[JSON], list[Violation]],
) -> JSONObject:
    """Return a repaired request with the original form of everything that was not repaired.

    `violations`: the violations.
    """
    if form.session_line_fields:
        return fixed
    left = _codes(lint(fixed))
    accused = {_message_index(form, violation.path) for violation in violations}
    for but in ((), accused):  # a finding may name a valid message when another one is at fault
        restored = _restore(form, original, fixed, but)
        if _codes(lint(restored)) == left:
            return restored
    return fixed


def _codes(violations: Iterable[Violation]) -> list[str]:
    return sorted(each.code for each in violations)


def _message_index(form: Formatter, path: str) -> int | None:
    """Return the index of the message that a path leads to."""
    rest = path.removeprefix(f"{form.messages_key}[")
    index = rest.partition("]")[0]
    return int(index) if rest != path and index.isdecimal() else None


def _restore(form: Formatter, before: JSONObject, fixed: JSONObject, but: Collection[int | None]) -> JSONObject:
    key = form.messages_key
    order = [*[name for name in before if name in fixed], *[name for name in fixed if name not in before]]
    made: JSONObject = {}
    for name in order:
        if name == key:
            made[name] = _restore_messages(form, before[key], fixed[key], but) if key in before else fixed[key]
        elif name in before and _reencode_field(form, {name: before[name], key: []}, name) == fixed[name]:
            made[name] = before[name]
        else:
            made[name] = fixed[name]
    return made


def _restore_messages(form: Formatter, before: JSON, fixed: JSON, but: Collection[int | None]) -> JSON:
    if not isinstance(before, list) or not isinstance(fixed, list):
        return fixed
    written, made = cast(list[JSON], before), cast(list[JSON], fixed)
    places: dict[bytes, list[int]] = {}
    for index in range(len(written) - 1, -1, -1):
        again = [] if index in but else _reencode_message(form, written[index])
        if len(again) == 1:
            places.setdefault(encode(again[0]), []).append(index)
    found: list[JSON] = []
    last = -1
    for message in made:
        same = places.get(encode(message), [])
        while same and same[-1] <= last:  # it precedes the one found last
            same.pop()
        if same:
            last = same.pop()
            found.append(written[last])
        else:
            found.append(message)
    return found


def _reencode_message(form: Formatter, message: JSON) -> list[JSONObject]:
    """Decode and encode a message; return nothing if it is malformed."""
    body: JSONObject = {form.messages_key: [message]}
    try:
        if form.rules.parse(body).malformed:
            return []
        return list(form.encode(form.decode_request(body).messages).messages)
    except (ContextcError, *DECODE_ERRORS):
        return []


def _reencode_field(form: Formatter, body: JSONObject, name: str) -> JSON:
    """Decode and encode a field; return None if it is missing or malformed."""
    try:
        if form.rules.parse(body).malformed:
            return None
        return form.encode_request(form.decode_request(body)).get(name)
    except (ContextcError, *DECODE_ERRORS):
        return None
