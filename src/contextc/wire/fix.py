"""A request as its provider accepts it."""

from typing import cast, overload

from msgspec import Struct
from msgspec.structs import replace

from contextc._json import JSON, JSONObject
from contextc.formats.base import Formatter
from contextc.formats.checking import Violation
from contextc.formats.named import formatter
from contextc.wire.facts import facts_of
from contextc.wire.reading import decoded, readable
from contextc.wire.untouched import as_written

ROUNDS = 4
"""How often a fixed request is looked at again: one repair may bring to light what was hidden by another fault."""


class Repaired(Struct, frozen=True):
    """Something that was put right: which rule was broken, where, and what was done about it."""

    code: str
    path: str
    message: str
    repair: str


@overload
def fix(body: JSONObject, *, format: str) -> tuple[JSONObject, list[Repaired]]: ...
@overload
def fix(body: list[JSONObject], *, format: str) -> tuple[list[JSONObject], list[Repaired]]: ...
def fix(body: JSON, *, format: str) -> tuple[JSON, list[Repaired]]:
    """The request, or list of messages, without what its provider would refuse, and what was done.

    No text is lost: what cannot stay what it was (a result without a call, a block without a shape) becomes text. A
    request that breaks no rule comes back as it is, and so does every message in which nothing was repaired.
    """
    form = formatter(format)
    fixed, bare, _ = readable(form, body)
    before = {form.messages_key: body} if bare else cast(JSONObject, body)
    facts = facts_of(form, body)
    found = form.rules.lint(body, facts)
    if not found:
        return body, []
    repairs = [_repaired(form, violation) for violation in found]
    for _ in range(ROUNDS):
        request = decoded(form, readable(form, fixed).body, for_itself=True).request
        if bare and request.system is not None:  # a list has no other place for it
            request = replace(request, messages=(request.system, *request.messages), system=None)
        fixed = form.encode_request(request)
        for code in sorted({violation.code for violation in form.rules.lint(fixed, facts)}):
            if (mend := form.rules.named(code).mend) is not None:
                fixed = mend(fixed)
        if not form.rules.lint(fixed, facts):
            break
    fixed = as_written(form, before, fixed, found, lambda body: form.rules.lint(body, facts))
    return fixed.get(form.messages_key, []) if bare else fixed, repairs


def _repaired(form: Formatter, violation: Violation) -> Repaired:
    return Repaired(violation.code, violation.path, violation.message, form.rules.named(violation.code).repair)
