"""Find what a provider would reject in a request, and repair it."""

from collections.abc import Callable, Collection, Iterable
from typing import cast, overload

from msgspec import Struct
from msgspec.structs import fields, replace

from contextc._json import JSON, JSONObject, encode
from contextc.errors import ContextcError
from contextc.formats.base import Formatter
from contextc.formats.lint_engine import UNKNOWN_MODEL, ModelCapabilities, Violation
from contextc.formats.registry import formatter
from contextc.linting.request_reading import coerce_validated, decode_and_pair, validate_json
from contextc.models import model
from contextc.models.model_info import find_entry, has_open_weights, is_vendor_name


def lint(body: JSON, *, format: str, answered: bool = False) -> list[Violation]:
    """Return the violations in a request, or in a bare list of messages, from the first message to the last.

    If the request names a known model, rules that apply to some models only are checked too. `answered`: the provider
    answered this request. So it breaks no rule, and a rule that says otherwise is out of date.
    """
    if answered:
        return []
    form = formatter(format)
    body = validate_json(body)
    return form.rules.lint(body, find_model_facts(form, body))


FACT_NAMES = tuple(field.name for field in fields(ModelCapabilities))


def find_model_facts(form: Formatter, body: JSON) -> ModelCapabilities:
    """Return the facts about the model that a request names, for rules that apply to some models only.

    A model name is ambiguous where other vendors serve the same model, or another model under a similar name. So facts
    are returned only for a model in the catalog, under its vendor's own name, in a request in that vendor's format. For
    all other requests no facts are returned, and none of these rules applies.
    """
    name: JSON = cast(JSONObject, body).get("model") if isinstance(body, dict) else None
    if not isinstance(name, str) or find_entry(name) is None or not is_vendor_name(name) or has_open_weights(name):
        return UNKNOWN_MODEL
    known = model(name)
    return (
        ModelCapabilities(**{each: getattr(known, each) for each in FACT_NAMES})
        if known.vendor == form.rules.vendor
        else UNKNOWN_MODEL
    )


# ── repair ────────────────────────────────────────────────────────────────────────────────────────────────────────────


MAX_PASSES = 4
"""Maximum number of repair passes. One repair may reveal a fault that another fault had hidden."""


class AppliedFix(Struct, frozen=True):
    """One repair: the rule that was broken, the position, the finding and what was done."""

    code: str
    path: str
    message: str
    repair: str


@overload
def fix(body: JSONObject, *, format: str, keep_unknown: bool = False) -> tuple[JSONObject, list[AppliedFix]]: ...
@overload
def fix(
    body: list[JSONObject], *, format: str, keep_unknown: bool = False
) -> tuple[list[JSONObject], list[AppliedFix]]: ...
def fix(body: JSON, *, format: str, keep_unknown: bool = False) -> tuple[JSON, list[AppliedFix]]:
    """Return the request, or the list of messages, without what its provider would reject, and the list of repairs.

    No text is lost. A result without a call, or a malformed block, becomes text. A request that breaks no rule is
    returned unchanged, and so is every message that needed no repair. With `keep_unknown`, fields that a provider may
    have added are kept, and a request with content of an unknown type is returned unchanged.
    """
    form = formatter(format)
    given = validate_json(body)
    fixed, bare, _ = coerce_validated(form, given)
    before = {form.messages_key: given} if bare else cast(JSONObject, given)
    facts = find_model_facts(form, given)

    def check(body: JSON) -> list[Violation]:
        found = form.rules.lint(body, facts)
        return [each for each in found if not form.rules.get(each.code).is_open] if keep_unknown else found

    found = check(given)
    if not found or (keep_unknown and form.rules.parse(given).has_unknown_names):
        return body if given == body else given, []
    repairs = [_applied_fix(form, violation) for violation in found]
    fixed = repair_request(form, fixed, check, bare=bare)
    fixed = restore_formatting(form, before, fixed, found, check)
    return fixed.get(form.messages_key, []) if bare else fixed, repairs


def repair_request(
    form: Formatter, body: JSONObject, check: Callable[[JSON], list[Violation]], *, bare: bool
) -> JSONObject:
    """Return the request without the violations that `check` finds.

    With `bare`, the body holds nothing but a list of messages.
    """
    for _ in range(MAX_PASSES):
        request = decode_and_pair(form, coerce_validated(form, body).body, same_provider=True).request
        if bare and request.system is not None:  # a bare list can hold it only as a message
            request = replace(request, messages=(request.system, *request.messages), system=None)
        body = form.encode_request(request)
        for code in sorted({violation.code for violation in check(body)}):
            if (fix := form.rules.get(code).fix) is not None:
                body = fix(body)
        if not check(body):
            break
    return body


def _applied_fix(form: Formatter, violation: Violation) -> AppliedFix:
    return AppliedFix(violation.code, violation.path, violation.message, form.rules.get(violation.code).repair)


# ── formatting ────────────────────────────────────────────────────────────────────────────────────────────────────────
# Restore the original formatting of everything that a repair did not change.
#
# A repaired request was decoded and encoded again. So a text may have become a list of one block, and fields may be in
# another order. Each message and field that encodes to the same value on its own was not repaired, and its original
# form is restored. If that would break a rule again, the encoded form stays.


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
