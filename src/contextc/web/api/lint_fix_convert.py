"""Lint, repair and conversion of requests of any software; documentation of lint rules."""

from typing import Any, cast

from msgspec import Struct

from contextc._json import JSON, JSONObject, find_json_problem
from contextc.errors import InvalidRequest, InvalidSetting
from contextc.formats.rules_docs import find_rule, render_rule
from contextc.interchange.open_any import detect_format
from contextc.linting import convert, fix, lint
from contextc.linting.tolerant_decoding import check_request
from contextc.web.app_state import AppState
from contextc.web.endpoint_registry import endpoint
from contextc.web.http_errors import HTTPError
from contextc.web.opened_request_view import parse_untrusted
from contextc.web.request_view import FindingView, finding_views

TAG = "wire"


class RequestBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A request, or a list of messages. `format` is detected if not given."""

    body: Any  # any JSON
    format: str | None = None


class ConvertBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A request, its format `source`, which is detected if not given, and the `target` format."""

    body: Any
    target: str
    source: str | None = None


class LintResult(Struct, frozen=True, kw_only=True):
    format: str
    violations: list[FindingView]


class RepairView(Struct, frozen=True, kw_only=True):
    """A repaired finding: rule code, path, message, and repair."""

    code: str
    path: str
    message: str
    repair: str


class FixResult(Struct, frozen=True, kw_only=True):
    """The repaired request; `violations` are the remaining findings."""

    format: str
    body: Any
    repaired: list[RepairView]
    violations: list[FindingView]


class ConvertResult(Struct, frozen=True, kw_only=True):
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
def lint_request(app: AppState, body: RequestBody) -> LintResult:
    """Return the lint findings of a request."""
    format = _detect_format(body.body, body.format)
    return LintResult(format=format, violations=finding_views(parse_untrusted(lambda: lint(body.body, format=format))))


@endpoint("POST", "/fix")
def fix_request(app: AppState, body: RequestBody) -> FixResult:
    """Repair a request so that its provider accepts it. No text is lost."""
    format = _detect_format(body.body, body.format)
    made, repairs = parse_untrusted(lambda: fix(cast(JSONObject, body.body), format=format))
    return FixResult(
        format=format,
        body=made,
        repaired=[
            RepairView(code=each.code, path=each.path, message=each.message, repair=each.repair) for each in repairs
        ],
        violations=finding_views(parse_untrusted(lambda: lint(made, format=format))),
    )


@endpoint("POST", "/convert")
def convert_request(app: AppState, body: ConvertBody) -> ConvertResult:
    """Convert a request to another format, with warnings about losses."""
    source = _detect_format(body.body, body.source)
    made = parse_untrusted(lambda: convert(cast(JSONObject, body.body), source=source, target=body.target))
    return ConvertResult(source=source, format=body.target, body=made, warnings=made.warnings)


@endpoint("GET", "/rules/{code}")
def show_rule(app: AppState, code: str) -> RulePage:
    """Return one lint rule: description, reason, the provider's error, an example, and the repair."""
    try:
        rule = find_rule(code)
    except InvalidSetting as error:
        raise HTTPError(404, str(error), "NotFound") from None
    return RulePage(code=rule.code, title=rule.title, text=render_rule(rule))


def _detect_format(body: JSON, format: str | None) -> str:
    check_request(body)
    if (problem := find_json_problem(body)) is not None:
        raise InvalidRequest(problem[1], path=problem[0])
    return format or parse_untrusted(lambda: detect_format(body))
