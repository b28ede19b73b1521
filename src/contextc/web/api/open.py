"""Whatever somebody pastes or opens, looked at as if it were ours. Nothing of it is stored."""

from typing import Annotated, Any

from msgspec import Meta, Struct

from contextc.transfer.opening import OWN, Kind, Listed, opened
from contextc.web.accounts import BudgetView, Finding, LineView, findings
from contextc.web.desk import Desk
from contextc.web.endpoint import endpoint
from contextc.web.pasted import Account, understood
from contextc.wire import lint


class Pasted(Struct, frozen=True, forbid_unknown_fields=True):
    """A text, and the name of the file it was in, if it was. `format` is needed only where it cannot be seen.

    `request` is the number of the one that is wanted, where a file has several: the last, if it is not said. `model` is
    whose window it is held against, where it names none itself.
    """

    text: str
    name: str = ""
    format: str | None = None
    request: Annotated[int, Meta(ge=1)] | None = None
    model: str = ""


class OpenedView(Struct, frozen=True, kw_only=True):
    """What it is, and its account. `model` is null where it names none; so is `budget.window` where it is not known.

    `body` is the request or the list of messages in it, and `notes` say what else there was. Of a log or a recording,
    `requests` are all that are in it, and `chosen` is the number of this one; 0 elsewhere. `judged`: it was held
    against the rules of a provider. What is in our own form is not, since no provider takes it so.
    """

    name: str
    format: str
    kind: Kind
    model: str | None
    tokens: int
    budget: BudgetView
    lines: list[LineView]
    violations: list[Finding]
    judged: bool
    notes: tuple[str, ...]
    requests: tuple[Listed, ...]
    chosen: int
    body: Any  # JSON of anybody's making


@endpoint("POST", "/open")
def open_file(desk: Desk, body: Pasted) -> OpenedView:
    """Look at a request, a list of messages, a log, or a session of any program. Nothing is stored, sent or run."""
    return understood(lambda: _view(body))


def _view(body: Pasted) -> OpenedView:
    found = opened(body.text, body.format, request=body.request)
    account = Account(found, body.model)
    judged = found.format != OWN
    violations = lint(found.body, format=found.format) if judged else []
    return OpenedView(
        name=body.name,
        format=found.format,
        kind=found.kind,
        model=account.model or None,
        tokens=account.total,
        budget=account.budget(),
        lines=account.lines(),
        violations=findings(violations),
        judged=judged,
        notes=found.notes,
        requests=found.requests,
        chosen=found.chosen,
        body=found.body,
    )
