"""Requests of anybody's making: checked, repaired, and written as another provider takes them."""

from typing import Any, cast

from msgspec import Struct

from contextc._json import JSON, JSONObject, check
from contextc.errors import InvalidRequest, InvalidSetting
from contextc.formats.pages import entry, find_rule
from contextc.transfer.opening import format_of
from contextc.web.accounts import Finding, findings
from contextc.web.desk import Desk
from contextc.web.endpoint import endpoint
from contextc.web.pasted import understood
from contextc.web.problems import Refused
from contextc.wire import convert, fix, lint
from contextc.wire.reading import check_request


class Given(Struct, frozen=True, forbid_unknown_fields=True):
    """A request, or a bare list of messages. `format` is the one it is in; it is seen from it, if it is not said."""

    body: Any  # JSON of anybody's making
    format: str | None = None


class Wanted(Struct, frozen=True, forbid_unknown_fields=True):
    """A request in the format `source`, which is seen from it if it is not said, and the format it is to have."""

    body: Any
    target: str
    source: str | None = None


class Checked(Struct, frozen=True, kw_only=True):
    format: str
    violations: list[Finding]


class Repair(Struct, frozen=True, kw_only=True):
    """A rule that was broken, where, and what was done about it."""

    code: str
    path: str
    message: str
    repair: str


class Fixed(Struct, frozen=True, kw_only=True):
    """The request as its provider takes it; `violations` are what is left."""

    format: str
    body: Any
    repaired: list[Repair]
    violations: list[Finding]


class Converted(Struct, frozen=True, kw_only=True):
    """The request in another format; `warnings` say what that could not take along."""

    source: str
    format: str
    body: Any
    warnings: list[str]


class RulePage(Struct, frozen=True, kw_only=True):
    """What a rule says and why, with an example, as Markdown."""

    code: str
    title: str
    text: str


@endpoint("POST", "/lint")
def lint_request(desk: Desk, body: Given) -> Checked:
    """What a provider would refuse in a request."""
    format = _format(body.body, body.format)
    return Checked(format=format, violations=findings(understood(lambda: lint(body.body, format=format))))


@endpoint("POST", "/fix")
def fix_request(desk: Desk, body: Given) -> Fixed:
    """A request without what its provider would refuse. No text is lost."""
    format = _format(body.body, body.format)
    made, repairs = understood(lambda: fix(cast(JSONObject, body.body), format=format))
    return Fixed(
        format=format,
        body=made,
        repaired=[Repair(code=each.code, path=each.path, message=each.message, repair=each.repair) for each in repairs],
        violations=findings(understood(lambda: lint(made, format=format))),
    )


@endpoint("POST", "/convert")
def convert_request(desk: Desk, body: Wanted) -> Converted:
    """A request in the words of another provider, and what those could not say."""
    source = _format(body.body, body.source)
    made = understood(lambda: convert(cast(JSONObject, body.body), source=source, target=body.target))
    return Converted(source=source, format=body.target, body=made, warnings=made.warnings)


@endpoint("GET", "/rules/{code}")
def show_rule(desk: Desk, code: str) -> RulePage:
    """One rule: what, why, what the provider says, an example, the repair."""
    try:
        rule = find_rule(code)
    except InvalidSetting as error:
        raise Refused(404, str(error), "NotFound") from None
    return RulePage(code=rule.code, title=rule.title, text=entry(rule))


def _format(body: JSON, said: str | None) -> str:
    check_request(body)
    if (problem := check(body)) is not None:
        raise InvalidRequest(problem[1], path=problem[0])
    return said or understood(lambda: format_of(body))
