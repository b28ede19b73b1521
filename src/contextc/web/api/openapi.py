"""The OpenAPI document."""

from starlette.requests import Request

from contextc._json import encode
from contextc.web.app_state import AppState
from contextc.web.endpoint_registry import ENDPOINTS, RawResponse, endpoint
from contextc.web.openapi_document import JSON_TYPE, build_document
from contextc.web.security import cookie_name

TAG = "openapi"


@endpoint("GET", "/openapi.json", media_type=JSON_TYPE)
def openapi(app: AppState, request: Request) -> RawResponse:
    """Return this API as an OpenAPI 3.1 document."""
    cookie = cookie_name(request.headers.get("host", ""))
    return RawResponse(encode(build_document(ENDPOINTS, has_token=bool(app.options.token), cookie=cookie)), JSON_TYPE)
