"""The OpenAPI 3.1 document of the API, generated from the type annotations of the endpoints.

The server validates the same types, so document and behaviour agree. Every error has the same body, for any status: it
is the `default` response of all operations.
"""

import inspect
from collections.abc import Sequence
from types import UnionType
from typing import Any, NamedTuple, Union, get_args, get_origin

import msgspec
from msgspec.structs import FieldInfo, fields
from starlette.requests import Request

import contextc
from contextc._json import JSONObject, encode
from contextc.web.app_state import AppState
from contextc.web.http_errors import STATUS_BY_ERROR, ErrorBody
from contextc.web.router import ENDPOINTS, JSON_TYPE, DeclaredRoute, EventStream, RawResponse, endpoint
from contextc.web.security import cookie_name

REF_TEMPLATE = "#/components/schemas/{name}"
DESCRIPTION = (
    "The HTTP API of `contextc serve`. Names in paths are percent-encoded: a slash in a conversation's name is %2F. "
    "Bodies are JSON with the header Content-Type: application/json. Unknown fields are rejected."
)
BEARER_SCHEME = {"type": "http", "scheme": "bearer", "description": "The token that the server printed at its start."}


class Schemas(NamedTuple):
    """The schemas of all types of the API: parameters, bodies and responses."""

    schemas: dict[Any, JSONObject]
    components: JSONObject

    def schema_of(self, kind: Any) -> JSONObject:  # a type annotation
        return self.schemas[_key(kind)]


def build_document(
    endpoints: Sequence[DeclaredRoute], *, has_token: bool, cookie: str = "contextc_token"
) -> JSONObject:
    """Return the document. Without a token there is no security requirement. `cookie` is the token cookie's name."""
    by_cookie = {"type": "apiKey", "in": "cookie", "name": cookie, "description": "Set by opening /?token=…"}
    typed = _build_schemas(endpoints)
    paths: JSONObject = {}
    for each in sorted(endpoints, key=lambda each: each.path):
        summary, _, more = (inspect.getdoc(each.function) or "").partition("\n\n")
        made: JSONObject = {
            "operationId": f"{each.tag}_{each.function.__name__}",
            "tags": [each.tag],
            "summary": " ".join(summary.split()),
            **({"description": more} if more else {}),
            "parameters": [*_path_parameters(each, typed), *_query_parameters(each, typed)],
            "responses": _responses(each, typed),
        }
        if "body" in each.parameter_types:
            content = {JSON_TYPE: {"schema": typed.schema_of(each.parameter_types["body"])}}
            needed = any([field.required for field in fields(each.parameter_types["body"])])
            made["requestBody"] = {"required": needed, "content": content}
        if each.body_type:
            made["requestBody"] = {"required": True, "content": {each.body_type: {}}}
        paths.setdefault(each.path, {})[each.method.lower()] = made
    return {
        "openapi": "3.1.0",
        "info": {"title": "contextc", "version": str(contextc.__version__), "description": DESCRIPTION},
        "servers": [{"url": "/api"}],
        "security": [{"bearer": []}, {"cookie": []}] if has_token else [],
        "paths": paths,
        "components": {"schemas": typed.components, "securitySchemes": {"bearer": BEARER_SCHEME, "cookie": by_cookie}},
    }


def _path_parameters(each: DeclaredRoute, typed: Schemas) -> list[JSONObject]:
    return [
        {"name": name, "in": "path", "required": True, "schema": typed.schema_of(each.parameter_types[name])}
        for name in each.path_parameters
    ]


def _query_parameters(each: DeclaredRoute, typed: Schemas) -> list[JSONObject]:
    return [
        {
            "name": field.encode_name,
            "in": "query",
            "required": field.required,
            "schema": _with_default(typed.schema_of(field.type), field),
        }
        for field in _query_fields(each)
    ]


def _with_default(schema: JSONObject, field: FieldInfo) -> JSONObject:
    if field.default is msgspec.NODEFAULT or field.default is None:
        return schema
    return {**schema, "default": msgspec.to_builtins(field.default)}


def _responses(each: DeclaredRoute, typed: Schemas) -> JSONObject:
    refused = {"description": _error_description(), "content": {JSON_TYPE: {"schema": typed.schema_of(ErrorBody)}}}
    own = {"schema": {"type": "string"}} if not _is_json(each) else {"schema": typed.schema_of(each.return_type)}
    if each.media_type == JSON_TYPE or each.media_type == "*/*":  # any JSON, any bytes
        own = {}
    made: JSONObject = {str(each.status): {"description": "Success.", "content": {each.media_type or JSON_TYPE: own}}}
    if {*_members(each.return_type)} >= {EventStream, RawResponse}:
        made["204"] = {"description": "Nothing to stream."}
    return {**made, "default": refused}


def _error_description() -> str:
    kinds = ", ".join(f"{status} {kind.__name__}" for kind, status in STATUS_BY_ERROR.items())
    return f"Error: `message` has the problem and the fix. Status by `kind`: {kinds}. 401: no token. 413: too large."


def _build_schemas(endpoints: Sequence[DeclaredRoute]) -> Schemas:
    kinds: list[Any] = [ErrorBody]  # type annotations
    for each in endpoints:
        kinds += [each.parameter_types[name] for name in each.path_parameters]
        kinds += [field.type for field in _query_fields(each)]
        kinds += [each.parameter_types["body"]] if "body" in each.parameter_types else []
        kinds += [each.return_type] if _is_json(each) else []
    once = list({_key(kind): kind for kind in kinds}.values())
    schemas, components = msgspec.json.schema_components(once, ref_template=REF_TEMPLATE)
    return Schemas(dict(zip(map(_key, once), schemas, strict=True)), components)


def _key(kind: Any) -> str:
    """Return a key for a type. Not all annotated types are hashable."""
    return repr(kind)


def _query_fields(each: DeclaredRoute) -> tuple[FieldInfo, ...]:
    return fields(each.parameter_types["query"]) if "query" in each.parameter_types else ()


def _is_json(each: DeclaredRoute) -> bool:
    return not {*_members(each.return_type)} & {RawResponse, EventStream}


def _members(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,) if isinstance(kind, type) else ()


@endpoint("GET", "/openapi.json", media_type=JSON_TYPE, tag="openapi")
def openapi(app: AppState, request: Request) -> RawResponse:
    """Return this API as an OpenAPI 3.1 document."""
    cookie = cookie_name(request.headers.get("host", ""))
    return RawResponse(encode(build_document(ENDPOINTS, has_token=bool(app.options.token), cookie=cookie)), JSON_TYPE)
