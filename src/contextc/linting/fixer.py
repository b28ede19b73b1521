"""Repair a request so that its provider accepts it."""

from typing import cast, overload

from msgspec import Struct
from msgspec.structs import replace

from contextc._json import JSON, JSONObject
from contextc.formats.base import Formatter
from contextc.formats.lint_engine import ModelFacts, Violation
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
def fix(body: JSONObject, *, format: str) -> tuple[JSONObject, list[AppliedFix]]: ...
@overload
def fix(body: list[JSONObject], *, format: str) -> tuple[list[JSONObject], list[AppliedFix]]: ...
def fix(body: JSON, *, format: str) -> tuple[JSON, list[AppliedFix]]:
    """Return the request, or the list of messages, without what its provider would reject, and the list of repairs.

    No text is lost. A result without a call, or a malformed block, becomes text. A request that breaks no rule is
    returned unchanged, and so is every message that needed no repair.
    """
    form = formatter(format)
    given = validate_json(body)
    fixed, bare, _ = coerce_validated(form, given)
    before = {form.messages_key: given} if bare else cast(JSONObject, given)
    facts = find_model_facts(form, given)
    found = form.rules.lint(given, facts)
    if not found:
        return body if given == body else given, []
    repairs = [_applied_fix(form, violation) for violation in found]
    fixed = repair_request(form, fixed, facts, bare=bare)
    fixed = restore_formatting(form, before, fixed, found, lambda body: form.rules.lint(body, facts))
    return fixed.get(form.messages_key, []) if bare else fixed, repairs


def repair_request(form: Formatter, body: JSONObject, facts: ModelFacts, *, bare: bool) -> JSONObject:
    """Return the request without rule violations. With `bare`, the body holds nothing but a list of messages."""
    for _ in range(MAX_PASSES):
        request = decode_and_pair(form, coerce_validated(form, body).body, same_provider=True).request
        if bare and request.system is not None:  # a bare list can hold it only as a message
            request = replace(request, messages=(request.system, *request.messages), system=None)
        body = form.encode_request(request)
        for code in sorted({violation.code for violation in form.rules.lint(body, facts)}):
            if (fix := form.rules.get(code).fix) is not None:
                body = fix(body)
        if not form.rules.lint(body, facts):
            break
    return body


def _applied_fix(form: Formatter, violation: Violation) -> AppliedFix:
    return AppliedFix(violation.code, violation.path, violation.message, form.rules.get(violation.code).repair)
