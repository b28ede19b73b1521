"""Mapping of exceptions to HTTP error responses."""

from collections.abc import Mapping

import msgspec
from msgspec import Struct
from starlette.responses import Response

from contextc._credential_mask import get_logger
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

log = get_logger(__name__)
STATUS_BY_ERROR: dict[type[Exception], int] = {
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
"""Status by exception class; the first match counts."""
INTERNAL_ERROR = "Internal server error. See the log of the server."


class ErrorDetail(Struct, frozen=True, kw_only=True):
    """An error: its kind, and a message with the fix."""

    kind: str
    message: str


class ErrorBody(Struct, frozen=True):
    """The body of every error response."""

    error: ErrorDetail


class HTTPError(Exception):
    """An error at the HTTP level, with its status: no token, unknown path, body too large."""

    def __init__(
        self, status: int, message: str, kind: str = "Refused", headers: Mapping[str, str] | None = None
    ) -> None:
        self.status, self.problem, self.headers = status, ErrorDetail(kind=kind, message=message), headers or {}
        super().__init__(message)


def error_response(error: Exception) -> Response:
    """Return the error response for an exception."""
    status, body = error_status_and_body(error)
    more = error.headers if isinstance(error, HTTPError) else {}
    return Response(msgspec.json.encode(body), status, {"Cache-Control": "no-store", **more}, "application/json")


def error_status_and_body(error: Exception) -> tuple[int, ErrorBody]:
    """Return the status and the body for an exception."""
    if isinstance(error, HTTPError):
        return error.status, ErrorBody(error.problem)
    if isinstance(error, ContextcError):
        status = next((status for kind, status in STATUS_BY_ERROR.items() if isinstance(error, kind)), 500)
        return status, ErrorBody(ErrorDetail(kind=type(error).__name__, message=str(error)))
    log.error("endpoint failed", exc_info=error)
    return 500, ErrorBody(ErrorDetail(kind="Internal", message=INTERNAL_ERROR))
