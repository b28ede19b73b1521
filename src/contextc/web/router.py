"""Endpoints: how one is declared, how a request finds it, and how its input and its result are coded.

Endpoints are matched by path segments (`api_segments`), so a conversation's name may contain a slash.
"""

import inspect
import pkgutil
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from importlib import import_module
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar, cast, get_type_hints

import msgspec
from msgspec import Struct
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from contextc._worker_threads import REQUEST_SLOTS, run_blocking
from contextc.errors import InvalidRequest
from contextc.web import api
from contextc.web.app_state import AppState
from contextc.web.http_errors import HTTPError
from contextc.web.http_errors import error_response as refused
from contextc.web.security import api_segments

# ── declaration of endpoints ──────────────────────────────────────────────────────────────────────────────────────────
# An endpoint is a function in `web/api/` with the decorator `@endpoint(…)`. Its type annotations define both
# validation and the OpenAPI document. Its parameters are `app` (the state of the server), the names in its path,
# `query` and `body` (a Struct each), and `request`. It returns JSON of its annotated type, a `RawResponse` or an
# `EventStream`. Its path is relative to `/api`. A function that is not `async` runs on a worker thread, because the
# store is synchronous, and always runs to its end. Its `tag` is its OpenAPI tag and the start of its operation id.
# Clients are generated from both: do not change it.


Method: TypeAlias = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
EndpointFunction = TypeVar("EndpointFunction", bound=Callable[..., Any])  # endpoints have different parameters
INJECTED_PARAMETERS = ("app", "query", "body", "request")


class RawResponse(NamedTuple):
    """A response that is not JSON of a declared type."""

    data: bytes
    media_type: str
    headers: Mapping[str, str] = {}
    status: int | None = None
    """The status, if it differs from the endpoint's."""


class EventStream(NamedTuple):
    """A streaming response. `events` is closed when the client disconnects."""

    events: AsyncIterator[bytes]
    media_type: str = "text/event-stream"
    headers: Mapping[str, str] = {}


class DeclaredRoute(NamedTuple):
    """A declared endpoint."""

    method: Method
    path: str
    function: Callable[..., Any]
    status: int
    parameter_types: Mapping[str, Any]
    """Types of the parameters, by name."""
    return_type: Any
    media_type: str
    """Media type of the response, if it is not JSON."""
    tag: str
    body_type: str
    """Media type of the body, if it is not JSON of a declared type."""
    reads_only: bool
    """True if the endpoint changes nothing in the store."""

    @property
    def segments(self) -> tuple[str, ...]:
        return tuple(self.path.strip("/").split("/"))

    @property
    def path_parameters(self) -> tuple[str, ...]:
        """Names of the path parameters."""
        return tuple([each[1:-1] for each in self.segments if each.startswith("{")])

    @property
    def is_async(self) -> bool:
        return inspect.iscoroutinefunction(self.function)


ENDPOINTS: list[DeclaredRoute] = []


class EmptyObject(Struct, frozen=True, forbid_unknown_fields=True):
    """An empty object."""


def endpoint(
    method: Method,
    path: str,
    *,
    tag: str,
    status: int = 200,
    media_type: str = "",
    body_type: str = "",
    reads_only: bool = False,
) -> Callable[[EndpointFunction], EndpointFunction]:
    """Declare a function as an endpoint. `media_type` and `body_type` are for what is not JSON.

    Every GET only reads; `reads_only` is for other methods.
    """

    def declare(work: EndpointFunction) -> EndpointFunction:
        parameter_types = get_type_hints(work)
        return_type = parameter_types.pop("return")
        assert not path.startswith("/api/"), f"{path}: path must be relative to /api"
        is_reading = reads_only or method == "GET"
        made = DeclaredRoute(
            method, path, work, status, parameter_types, return_type, media_type, tag, body_type, is_reading
        )
        assert {*made.path_parameters} == {*parameter_types} - {*INJECTED_PARAMETERS}, (
            f"{method} {path}: path parameters {made.path_parameters} do not match the function: {[*parameter_types]}"
        )
        ENDPOINTS.append(made)
        return work

    return declare


# ── routing ───────────────────────────────────────────────────────────────────────────────────────────────────────────


JSON_TYPE = "application/json"


def load_endpoints() -> list[DeclaredRoute]:
    """Import all modules of `web/api/` and return their endpoints."""
    for found in pkgutil.iter_modules(api.__path__):
        import_module(f"{api.__name__}.{found.name}")
    return ENDPOINTS


class Router:
    """ASGI application of the API."""

    def __init__(self, app: AppState) -> None:
        self.app_state = app
        self._by_length: dict[int, list[DeclaredRoute]] = {}
        for each in sorted(load_endpoints(), key=lambda each: [part.startswith("{") for part in each.segments]):
            self._by_length.setdefault(len(each.segments), []).append(each)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            response = await self._answer(request)
        except ClientDisconnect:
            return
        except Exception as error:
            response = refused(error)
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        app_state, segments = self._select_store(api_segments(request.scope))
        found, named = self._find(request.method, segments)
        if app_state is not self.app_state and not found.reads_only:
            raise HTTPError(409, "An opened file cannot be changed. Import it first.", "OpenedFile")
        arguments: dict[str, Any] = {  # each of its annotated type
            name: _convert(named[name], kind, f"{name} in the path") if name in named else None
            for name, kind in found.parameter_types.items()
        }
        own = {"app": lambda: app_state, "request": lambda: request}
        arguments |= {name: make() for name, make in own.items() if name in arguments}
        if "query" in arguments:
            arguments["query"] = _convert(dict(request.query_params), found.parameter_types["query"], "the query")
        if "body" in arguments:
            arguments["body"] = await _decode_body(request, found.parameter_types["body"])
        answer = await (
            found.function(**arguments)
            if found.is_async
            else run_blocking(lambda: found.function(**arguments), slots=REQUEST_SLOTS)
        )
        return await _head_response(found, answer) if request.method == "HEAD" else _response(found, answer)

    def _select_store(self, segments: list[str]) -> tuple[AppState, list[str]]:
        """Return the state of the store that a path is about: of an opened file, or of the server."""
        if segments[:1] != ["files"] or len(segments) < 3 or segments[2:] == ["import"]:
            return self.app_state, segments
        file = self.app_state.files.find(segments[1])
        if file.app_state is None:
            raise HTTPError(409, f"{file.name} has no conversations: it is {file.state}.", "NotReady")
        return file.app_state, segments[2:]

    def _find(self, method: str, segments: list[str]) -> tuple[DeclaredRoute, dict[str, str]]:
        there: list[str] = []
        for each in self._by_length.get(len(segments), ()):
            pairs = list(zip(each.segments, segments, strict=True))
            if all(part.startswith("{") or part == segment for part, segment in pairs):
                if each.method == method or (method == "HEAD" and each.method == "GET"):
                    return each, {part[1:-1]: segment for part, segment in pairs if part.startswith("{")}
                there.append(each.method)
        if there:
            allowed = ", ".join([*there, *(["HEAD"] if "GET" in there else [])])
            problem = f"Method not allowed, got {method[:20]!r}. Use {', '.join(there)}."
            raise HTTPError(405, problem, "NotAllowed", {"Allow": allowed})
        raise HTTPError(404, "Endpoint not found. See /api/openapi.json for all endpoints.", "NotFound")


async def _decode_body(request: Request, kind: Any) -> object:
    """Decode the body as its type. An empty body counts as an empty object."""
    data = await request.body()
    kind_sent, packed = request.headers.get("content-type"), request.headers.get("content-encoding", "identity")
    if packed.strip().lower() not in ("", "identity"):
        problem = f"Content-Encoding is not supported, got {packed[:40]!r}. Send the body uncompressed."
        raise HTTPError(415, problem, "UnsupportedMediaType", {"Accept-Encoding": "identity"})
    if (data or kind_sent is not None) and (kind_sent or "").partition(";")[0].strip().lower() != JSON_TYPE:
        raise HTTPError(
            415,
            f"Content-Type must be {JSON_TYPE}, got {(kind_sent or '')[:100]!r}. Send JSON with this header.",
            "UnsupportedMediaType",
        )
    try:
        return msgspec.json.decode(data or b"{}", type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequest(f"the body is invalid: {error}.") from None


def _convert(value: str | dict[str, str], kind: Any, what: str) -> object:
    try:
        return msgspec.convert(value, kind, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"{what} is invalid: {error}.") from None


class _Streaming(StreamingResponse):
    """Streaming response whose source is closed as soon as the client disconnects."""

    async def stream_response(self, send: Send) -> None:
        try:
            await super().stream_response(send)
        finally:
            await _close(self.body_iterator)


async def _head_response(found: DeclaredRoute, answer: object) -> Response:
    """Return the response to HEAD. A stream is closed without reading from it."""
    if not isinstance(answer, EventStream):
        return _response(found, answer)
    await _close(answer.events)
    return Response(b"", found.status, _stream_headers(answer), answer.media_type)


async def _close(events: object) -> None:
    if isinstance(events, AsyncGenerator):
        await cast(AsyncGenerator[bytes], events).aclose()


def _stream_headers(answer: EventStream) -> dict[str, str]:
    return {"Cache-Control": "no-store", "X-Accel-Buffering": "no", **answer.headers}


def _response(found: DeclaredRoute, answer: object) -> Response:
    if isinstance(answer, EventStream):
        return _Streaming(answer.events, found.status, _stream_headers(answer), answer.media_type)
    if isinstance(answer, RawResponse):
        return Response(answer.data, answer.status or found.status, dict(answer.headers), answer.media_type)
    return Response(msgspec.json.encode(answer), found.status, {"Cache-Control": "no-store"}, JSON_TYPE)
