"""The API about itself."""

from contextc._json import encode
from contextc.web.desk import Desk
from contextc.web.endpoint import ENDPOINTS, Content, endpoint
from contextc.web.openapi import JSON, document


@endpoint("GET", "/openapi.json", media_type=JSON)
def openapi(desk: Desk) -> Content:
    """This API as OpenAPI 3.1."""
    return Content(encode(document(ENDPOINTS, has_token=bool(desk.options.token))), JSON)
