"""Requests that a client opens or pastes: inspection, lint, repair and conversion. Nothing is stored."""

from collections.abc import Callable
from typing import Annotated, Any, TypeVar, cast

from msgspec import Meta, Struct
from msgspec.structs import asdict, replace

from contextc._json import JSON, JSONObject, find_json_problem
from contextc.compiler.draft import Budget, distribute
from contextc.compiler.head_parts import HeadPart, build_tool_definition_parts
from contextc.errors import ContextcError, InvalidRequest, InvalidSetting
from contextc.formats import formatter
from contextc.formats.base import Request
from contextc.formats.rules_docs import find_rule, render_rule
from contextc.inspection.line_details import (
    LineDetails,
    compute_item_costs,
    describe_parts,
    pair_details,
)
from contextc.inspection.request_details import RequestLine, detail_fields, distribute_window, head_details
from contextc.interchange.found_conversation import DATA_ERRORS
from contextc.interchange.open_any import OWN_FORMAT, InputKind, OpenedInput, RequestEntry, detect_format, open_text
from contextc.linting import convert, fix, lint
from contextc.linting.request_reading import check_request
from contextc.messages import AnyPart, Message, to_plain_text
from contextc.models import Model, model
from contextc.models.tokens import TokenCounter, get_counter
from contextc.web.app_state import AppState
from contextc.web.http_errors import HTTPError
from contextc.web.request_view import BudgetView, FindingView, as_view, finding_views
from contextc.web.router import endpoint

# ── view of an opened request ─────────────────────────────────────────────────────────────────────────────────────────
# Budget and lines of an opened file or pasted request.
#
# Other software compiled it, so earlier requests are not known: no line counts as new, and all messages count as
# history.


UNKNOWN_TOKENIZER = "unknown"


T = TypeVar("T")


def parse_untrusted(work: Callable[[], T]) -> T:
    """Run work on untrusted input, and raise `InvalidRequest` if a parser fails on it."""
    try:
        return work()
    except ContextcError:
        raise
    except DATA_ERRORS as error:
        raise InvalidRequest(f"the input cannot be parsed: {type(error).__name__}: {error}.") from error


class OpenedRequest:
    """Token counts, budget and lines of an opened request."""

    def __init__(self, opened: OpenedInput, model: str = "") -> None:
        """Count the tokens. `model` sets the context window if the request names no model."""
        request = opened.request
        named, self.max_output_tokens = _settings(opened)
        self.model = named or model.strip()
        self.model_facts = _find_model(self.model)
        self.counter = _counter(opened, self.model_facts)
        self.prompt, self.messages = _split_system_prompt(request)
        self.system = self.counter.count_system(self.prompt)
        self.tools = (
            self.counter.count_tools(formatter(opened.format).encode_tools(request.tools)) if request.tools else 0
        )
        self.formatter = formatter(opened.format) if opened.format != OWN_FORMAT else None
        self.tool_list = request.tools
        self.overhead = self.counter.overhead if self.messages else 0
        if self.system:
            self.system, self.overhead = self.system + self.overhead, 0
        elif self.tools:
            self.tools, self.overhead = self.tools + self.overhead, 0
        self.tokens = [self.counter.count_message(message) for message in self.messages]

    @property
    def total(self) -> int:
        return self.system + self.tools + self.overhead + sum(self.tokens)

    def budget(self) -> BudgetView:
        used = self.overhead + sum(self.tokens)
        window = self.model_facts.window if self.model_facts is not None else None
        reserve = min(self.max_output_tokens, window or 0)
        budget = Budget(
            window=window or 0, system=self.system, tools=self.tools, reserve=reserve, used=used, overhead=self.overhead
        )
        parts = distribute_window(budget, dynamic=0, history=budget.messages, new=0)
        is_known = window is not None
        return as_view(
            BudgetView,
            budget,
            **asdict(parts) | {"margin": 0, "free": parts.free if is_known else None},
            window=window,
            available=budget.available if is_known else None,
            room=budget.room if is_known else None,
            how="exact" if self.counter.exact else "estimated",
            estimated=budget.input,
        )

    def lines(self, *, detailed: bool = False) -> list[RequestLine]:
        """Return the system prompt, if any, and every message. With `detailed`, each tool is a line before them."""
        head = [("tool", part.text, tokens) for part, tokens in self._tool_parts(detailed)]
        head += [("system", self.prompt, self.system)] if self.prompt else []
        shown = [tokens for _, _, tokens in head] + list(self.tokens)
        above = self.total - sum(shown)
        costs = compute_item_costs(self.model_facts, shown, above, None)
        found = [
            _line(0, 0, kind, kind, tokens, cost, text, "")
            for (kind, text, tokens), cost in zip(head, costs[: len(head)], strict=True)
        ]
        found += [
            _line(0, number, "message", message.role, tokens, cost, to_plain_text(message), message.uid)
            for number, (message, tokens, cost) in enumerate(
                zip(self.messages, self.tokens, costs[len(head) :], strict=True), 1
            )
        ]
        views = [replace(each, index=index) for index, each in enumerate(found)]
        return self._with_details(views) if detailed else views

    def _tool_parts(self, detailed: bool) -> list[tuple[HeadPart, int]]:
        parts = build_tool_definition_parts(self.formatter, self.tool_list) if detailed else ()
        return list(zip(parts, distribute(self.tools, [each.size for each in parts]), strict=True))

    def _with_details(self, views: list[RequestLine]) -> list[RequestLine]:
        """Return the lines with causes, calls and results, and with their parts."""
        tools = [head_details(part) for part, _ in self._tool_parts(detailed=True)]
        head = tools + [LineDetails(("system",)) for view in views if view.kind == "system"]
        messages = [describe_parts(message.parts) for message in self.messages]
        details = {**dict(enumerate(head)), **pair_details(enumerate(messages, len(head)))}
        parts: list[tuple[AnyPart, ...]] = [() for _ in head] + [message.parts for message in self.messages]
        return [replace(view, parts=parts[index], **detail_fields(details[index])) for index, view in enumerate(views)]


def _line(
    index: int, seq: int, kind: str, role: str, tokens: int, cost: float | None, text: str, uid: str
) -> RequestLine:
    return RequestLine(
        index=index,
        seq=seq,
        kind=kind,
        role=role,
        shown=True,
        tokens=tokens,
        cost=cost,
        why="",
        text=text,
        state="shown",
        uid=uid,
    )


def _settings(opened: OpenedInput) -> tuple[str, int]:
    """Return the model and the output limit. Invalid values are ignored, because the input is not validated."""
    if opened.format == OWN_FORMAT:
        return opened.model, 0
    settings = parse_untrusted(lambda: formatter(opened.format).settings.read(opened.request.settings).settings)
    model, length = cast(object, settings.model), cast(object, settings.max_output_tokens)
    is_length = isinstance(length, int) and not isinstance(length, bool) and length > 0
    return model if isinstance(model, str) else opened.model, cast(int, length) if is_length else 0


def _find_model(name: str) -> Model | None:
    if not name.strip():
        return None
    try:
        return model(name)
    except ContextcError:
        return None


def _counter(opened: OpenedInput, known: Model | None) -> TokenCounter:
    provider = "" if opened.format == OWN_FORMAT else formatter(opened.format).provider
    return get_counter(
        known.tokenizer if known else UNKNOWN_TOKENIZER, provider=provider, model=known.name if known else ""
    )


def _split_system_prompt(request: Request) -> tuple[str, tuple[Message, ...]]:
    """Return the system prompt and the messages after it."""
    if request.system is not None:
        return request.system.text, request.messages
    if request.messages and request.messages[0].role == "system":
        return request.messages[0].text, request.messages[1:]
    return "", request.messages


# ── inspection ────────────────────────────────────────────────────────────────────────────────────────────────────────


class OpenBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A text, and its file name if any. `format` is needed only if it cannot be detected.

    `request` selects one of several requests in a file; default: the last. `model` sets the context window if the
    request names no model. With `detailed`, each tool is a line too, and lines have their causes, calls and results.
    """

    text: str
    name: str = ""
    format: str | None = None
    request: Annotated[int, Meta(ge=1)] | None = None
    model: str = ""
    detailed: bool = False


class OpenedView(Struct, frozen=True, kw_only=True):
    """An opened request: format, budget, lines and findings. `model` and `budget.window` are null if not known.

    `body` is the request or the list of messages, and `notes` describe the rest of the file. For a log or a recording,
    `requests` lists all requests and `chosen` is the number of this one, else 0. `judged` is true if lint rules were
    applied; contextc's own format has none, because no provider accepts it.
    """

    name: str
    format: str
    kind: InputKind
    model: str | None
    tokens: int
    budget: BudgetView
    lines: list[RequestLine]
    violations: list[FindingView]
    judged: bool
    notes: tuple[str, ...]
    requests: tuple[RequestEntry, ...]
    chosen: int
    body: Any  # any JSON


@endpoint("POST", "/open", tag="open", reads_only=True)
def open_file(app: AppState, body: OpenBody) -> OpenedView:
    """Inspect a request, a list of messages, a log, or a transcript. Nothing is stored, sent or executed."""
    return parse_untrusted(lambda: _view(body))


def _view(body: OpenBody) -> OpenedView:
    found = open_text(body.text, body.format, request=body.request)
    account = OpenedRequest(found, body.model)
    judged = found.format != OWN_FORMAT
    violations = lint(found.body, format=found.format, answered=found.answered) if judged else []
    return OpenedView(
        name=body.name,
        format=found.format,
        kind=found.kind,
        model=account.model or None,
        tokens=account.total,
        budget=account.budget(),
        lines=account.lines(detailed=body.detailed),
        violations=finding_views(violations),
        judged=judged,
        notes=found.notes,
        requests=found.requests,
        chosen=found.chosen,
        body=found.body,
    )


# ── lint, repair and conversion ───────────────────────────────────────────────────────────────────────────────────────


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


@endpoint("POST", "/lint", tag="wire", reads_only=True)
def lint_request(app: AppState, body: RequestBody) -> LintResult:
    """Return the lint findings of a request."""
    format = _detect_format(body.body, body.format)
    return LintResult(format=format, violations=finding_views(parse_untrusted(lambda: lint(body.body, format=format))))


@endpoint("POST", "/fix", tag="wire", reads_only=True)
def fix_request(app: AppState, body: RequestBody) -> FixResult:
    """Repair a request so that its provider accepts it. No text is lost."""
    format = _detect_format(body.body, body.format)
    made, repairs = parse_untrusted(lambda: fix(cast(JSONObject, body.body), format=format))
    return FixResult(
        format=format,
        body=made,
        repaired=[as_view(RepairView, each) for each in repairs],
        violations=finding_views(parse_untrusted(lambda: lint(made, format=format))),
    )


@endpoint("POST", "/convert", tag="wire", reads_only=True)
def convert_request(app: AppState, body: ConvertBody) -> ConvertResult:
    """Convert a request to another format, with warnings about losses."""
    source = _detect_format(body.body, body.source)
    made = parse_untrusted(lambda: convert(cast(JSONObject, body.body), source=source, target=body.target))
    return ConvertResult(source=source, format=body.target, body=made, warnings=made.warnings)


@endpoint("GET", "/rules/{code}", tag="wire")
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
