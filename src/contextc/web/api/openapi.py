"""The OpenAPI document."""

from starlette.requests import Request

from contextc._json import encode
from contextc.web.desk import AppState
from contextc.web.endpoint import ENDPOINTS, RawResponse, endpoint
from contextc.web.guard import cookie_name
from contextc.web.openapi import JSON_TYPE, build_document


@endpoint("GET", "/openapi.json", media_type=JSON_TYPE)
def openapi(desk: AppState, request: Request) -> RawResponse:
    """Return this API as an OpenAPI 3.1 document."""
    cookie = cookie_name(request.headers.get("host", ""))
    return RawResponse(encode(build_document(ENDPOINTS, has_token=bool(desk.options.token), cookie=cookie)), JSON_TYPE)
