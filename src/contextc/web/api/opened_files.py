"""Inspection of opened files and pasted requests. Nothing is stored."""

from typing import Annotated, Any

from msgspec import Meta, Struct

from contextc.interchange.open_any import OWN_FORMAT, InputKind, RequestEntry, open_text
from contextc.linting import lint
from contextc.web.app_state import AppState
from contextc.web.endpoint_registry import endpoint
from contextc.web.opened_request_view import OpenedRequest, parse_untrusted
from contextc.web.request_view import BudgetView, FindingView, LineView, finding_views

TAG = "open"


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
    lines: list[LineView]
    violations: list[FindingView]
    judged: bool
    notes: tuple[str, ...]
    requests: tuple[RequestEntry, ...]
    chosen: int
    body: Any  # any JSON


@endpoint("POST", "/open")
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
