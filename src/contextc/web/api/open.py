"""Whatever somebody pastes or opens, looked at as if it were ours. Nothing of it is stored."""

from typing import Any

from msgspec import Struct

from contextc.transfer.opening import OWN, Kind, opened
from contextc.web.accounts import BudgetView, Finding, LineView, findings
from contextc.web.desk import Desk
from contextc.web.endpoint import endpoint
from contextc.web.pasted import Account, understood
from contextc.wire import lint


class Pasted(Struct, frozen=True, forbid_unknown_fields=True):
    """A text, and the name of the file it was in, if it was. `format` is needed only where it cannot be seen."""

    text: str
    name: str = ""
    format: str | None = None


class OpenedView(Struct, frozen=True, kw_only=True):
    """What it is, and its account. `model` is null where it names none; so is `budget.window` where it is not known.

    `body` is the request or the list of messages in it, and `notes` say what else there was.
    """

    name: str
    format: str
    kind: Kind
    model: str | None
    tokens: int
    budget: BudgetView
    lines: list[LineView]
    violations: list[Finding]
    notes: tuple[str, ...]
    body: Any  # JSON of anybody's making


@endpoint("POST", "/open")
def open_file(desk: Desk, body: Pasted) -> OpenedView:
    """Look at a request, a list of messages, a log, or a session of any program. Nothing is stored, sent or run."""
    return understood(lambda: _view(body))


def _view(body: Pasted) -> OpenedView:
    found = opened(body.text, body.format)
    account = Account(found)
    violations = [] if found.format == OWN else lint(found.body, format=found.format)
    return OpenedView(
        name=body.name,
        format=found.format,
        kind=found.kind,
        model=account.model or None,
        tokens=account.total,
        budget=account.budget(),
        lines=account.lines(),
        violations=findings(violations),
        notes=found.notes,
        body=found.body,
    )
