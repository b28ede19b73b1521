"""Repair a request so that its provider accepts it."""

from collections.abc import Callable
from typing import cast, overload

from msgspec import Struct
from msgspec.structs import replace

from contextc._json import JSON, JSONObject
from contextc.formats.base import Formatter
from contextc.formats.lint_engine import Violation
from contextc.formats.registry import formatter
from contextc.linting.checker import find_model_facts
from contextc.linting.preserve_formatting import restore_formatting
from contextc.linting.tolerant_decoding import coerce_validated, decode_and_pair, validate_json

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
