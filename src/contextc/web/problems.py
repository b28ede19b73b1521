"""What went wrong, as an answer: a status by whose fault it is, and the error in its own words."""

import logging
from collections.abc import Mapping

import msgspec
from msgspec import Struct
from starlette.responses import Response

from contextc.errors import (
    Conflict,
    ContextcError,
    ContextOverflow,
    ConversationExists,
    InvalidInput,
    NothingNew,
    ProviderFailed,
    StoreBusy,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
    UnknownModel,
)

log = logging.getLogger(__name__)
STATUS: dict[type[Exception], int] = {
    ConversationExists: 409,
    UnknownModel: 400,
    LookupError: 404,
    Conflict: 409,
    NothingNew: 409,
    ContextOverflow: 422,
    InvalidInput: 400,
    ProviderFailed: 502,
    StoreFull: 507,
    StoreReadOnly: 403,
    StoreBusy: 503,
    StoreUnavailable: 503,
}
"""The first that fits."""
INTERNAL = "Something went wrong inside the server. Its log says what."


class Problem(Struct, frozen=True, kw_only=True):
    """Why something was refused: the kind of error, and what to do about it."""

    kind: str
    message: str


class Refusal(Struct, frozen=True):
    error: Problem


class Refused(Exception):
    """An answer that is not about contextc but about HTTP: no token, no such address, too much at once."""

    def __init__(
        self, status: int, message: str, kind: str = "Refused", headers: Mapping[str, str] | None = None
    ) -> None:
        self.status, self.problem, self.headers = status, Problem(kind=kind, message=message), headers or {}
        super().__init__(message)


def answer(error: Exception) -> Response:
    """The answer to whoever asked for what failed."""
    status, told = refusal(error)
    more = error.headers if isinstance(error, Refused) else {}
    return Response(msgspec.json.encode(told), status, {"Cache-Control": "no-store", **more}, "application/json")


def refusal(error: Exception) -> tuple[int, Refusal]:
    """The status and the body for an error."""
    if isinstance(error, Refused):
        return error.status, Refusal(error.problem)
    if isinstance(error, ContextcError):
        status = next((status for kind, status in STATUS.items() if isinstance(error, kind)), 500)
        return status, Refusal(Problem(kind=type(error).__name__, message=str(error)))
    log.error("an endpoint failed", exc_info=error)
    return 500, Refusal(Problem(kind="Internal", message=INTERNAL))
