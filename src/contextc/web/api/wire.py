"""Lint, repair and conversion of requests of any software; documentation of lint rules."""

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
    """A request, or a list of messages. `format` is detected if not given."""

    body: Any  # any JSON
    format: str | None = None


class Wanted(Struct, frozen=True, forbid_unknown_fields=True):
    """A request, its format `source`, which is detected if not given, and the `target` format."""

    body: Any
    target: str
    source: str | None = None


class Checked(Struct, frozen=True, kw_only=True):
    format: str
    violations: list[Finding]


class Repair(Struct, frozen=True, kw_only=True):
    """A repaired finding: rule code, path, message, and repair."""

    code: str
    path: str
    message: str
    repair: str


class Fixed(Struct, frozen=True, kw_only=True):
    """The repaired request; `violations` are the remaining findings."""

    format: str
    body: Any
    repaired: list[Repair]
    violations: list[Finding]


class Converted(Struct, frozen=True, kw_only=True):
    """The converted request; `warnings` list what was lost."""

    source: str
    format: str
    body: Any
    warnings: list[str]


class RulePage(Struct, frozen=True, kw_only=True):
    """Documentation of a lint rule as Markdown, with an example."""

    code: str
    title: str
    text: str


@endpoint("POST", "/lint")
def lint_request(desk: Desk, body: Given) -> Checked:
    """Return the lint findings of a request."""
    format = _format(body.body, body.format)
    return Checked(format=format, violations=findings(understood(lambda: lint(body.body, format=format))))


@endpoint("POST", "/fix")
def fix_request(desk: Desk, body: Given) -> Fixed:
    """Repair a request so that its provider accepts it. No text is lost."""
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
    """Convert a request to another format, with warnings about losses."""
    source = _format(body.body, body.source)
    made = understood(lambda: convert(cast(JSONObject, body.body), source=source, target=body.target))
    return Converted(source=source, format=body.target, body=made, warnings=made.warnings)


@endpoint("GET", "/rules/{code}")
def show_rule(desk: Desk, code: str) -> RulePage:
    """Return one lint rule: description, reason, the provider's error, an example, and the repair."""
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
