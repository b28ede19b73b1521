"""The OpenAPI document."""

from starlette.requests import Request

from contextc._json import encode
from contextc.web.desk import Desk
from contextc.web.endpoint import ENDPOINTS, Content, endpoint
from contextc.web.guard import cookie_name
from contextc.web.openapi import JSON, document


@endpoint("GET", "/openapi.json", media_type=JSON)
def openapi(desk: Desk, request: Request) -> Content:
    """Return this API as an OpenAPI 3.1 document."""
    cookie = cookie_name(request.headers.get("host", ""))
    return Content(encode(document(ENDPOINTS, has_token=bool(desk.options.token), cookie=cookie)), JSON)
