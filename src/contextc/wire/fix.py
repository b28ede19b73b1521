"""Repair a request so that its provider accepts it."""

from typing import cast, overload

from msgspec import Struct
from msgspec.structs import replace

from contextc._json import JSON, JSONObject
from contextc.formats.base import Formatter
from contextc.formats.checking import Facts, Violation
from contextc.formats.named import formatter
from contextc.wire.facts import facts_of
from contextc.wire.reading import checked, decoded, shaped
from contextc.wire.untouched import as_written

ROUNDS = 4
"""Maximum number of repair passes. One repair may reveal a fault that another fault had hidden."""


class Repaired(Struct, frozen=True):
    """One repair: the rule that was broken, the position, the finding and what was done."""

    code: str
    path: str
    message: str
    repair: str


@overload
def fix(body: JSONObject, *, format: str) -> tuple[JSONObject, list[Repaired]]: ...
@overload
def fix(body: list[JSONObject], *, format: str) -> tuple[list[JSONObject], list[Repaired]]: ...
def fix(body: JSON, *, format: str) -> tuple[JSON, list[Repaired]]:
    """Return the request, or the list of messages, without what its provider would reject, and the list of repairs.

    No text is lost. A result without a call, or a malformed block, becomes text. A request that breaks no rule is
    returned unchanged, and so is every message that needed no repair.
    """
    form = formatter(format)
    given = checked(body)
    fixed, bare, _ = shaped(form, given)
    before = {form.messages_key: given} if bare else cast(JSONObject, given)
    facts = facts_of(form, given)
    found = form.rules.lint(given, facts)
    if not found:
        return body if given == body else given, []
    repairs = [_repaired(form, violation) for violation in found]
    fixed = repaired(form, fixed, facts, bare=bare)
    fixed = as_written(form, before, fixed, found, lambda body: form.rules.lint(body, facts))
    return fixed.get(form.messages_key, []) if bare else fixed, repairs


def repaired(form: Formatter, body: JSONObject, facts: Facts, *, bare: bool) -> JSONObject:
    """Return the request without rule violations. With `bare`, the body holds nothing but a list of messages."""
    for _ in range(ROUNDS):
        request = decoded(form, shaped(form, body).body, for_itself=True).request
        if bare and request.system is not None:  # a bare list can hold it only as a message
            request = replace(request, messages=(request.system, *request.messages), system=None)
        body = form.encode_request(request)
        for code in sorted({violation.code for violation in form.rules.lint(body, facts)}):
            if (mend := form.rules.named(code).mend) is not None:
                body = mend(body)
        if not form.rules.lint(body, facts):
            break
    return body


def _repaired(form: Formatter, violation: Violation) -> Repaired:
    return Repaired(violation.code, violation.path, violation.message, form.rules.named(violation.code).repair)
