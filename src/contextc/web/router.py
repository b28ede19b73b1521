"""Endpoints: how one is declared, how a request finds it, and how its input and its result are coded.

Endpoints are matched by path segments (`api_segments`), so a conversation's name may contain a slash.
"""

import inspect
import pkgutil
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from importlib import import_module
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar, cast, get_type_hints

import msgspec
from msgspec import Struct
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from contextc._worker_threads import REQUEST_SLOTS, run_blocking
from contextc.errors import InvalidRequest
from contextc.web import api
from contextc.web.app_state import AppState
from contextc.web.http_errors import HTTPError
from contextc.web.http_errors import error_response as refused
from contextc.web.security import CHUNK_KEY, api_segments

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


class _KnownRoute(NamedTuple):
    """An endpoint, with the places of its words and of its parameters in a path."""

    route: DeclaredRoute
    words: tuple[tuple[int, str], ...]
    named: tuple[tuple[int, str], ...]


class Router:
    """ASGI application of the API."""

    def __init__(self, app: AppState) -> None:
        self.app_state = app
        self._by_end: dict[tuple[int, str], list[_KnownRoute]] = {}
        """The endpoints by the number and the last of their segments, which is empty for a parameter."""
        for each in sorted(load_endpoints(), key=lambda each: [part.startswith("{") for part in each.segments]):
            last = "" if each.segments[-1].startswith("{") else each.segments[-1]
            words = [(place, part) for place, part in enumerate(each.segments) if not part.startswith("{")]
            named = [(place, part[1:-1]) for place, part in enumerate(each.segments) if part.startswith("{")]
            found = self._by_end.setdefault((len(each.segments), last), [])
            found.append(_KnownRoute(each, tuple(words), tuple(named)))

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
        ends = dict.fromkeys([*segments[-1:], ""])
        for route, words, named in [each for end in ends for each in self._by_end.get((len(segments), end), ())]:
            if all([segments[place] == word for place, word in words]):
                if route.method == method or (method == "HEAD" and route.method == "GET"):
                    return route, {name: segments[place] for place, name in named}
                there.append(route.method)
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
    """Streaming response whose source is closed as soon as the client disconnects.

    If the server has `CHUNK_KEY`, its chunks go there without the layers in between, which leave them as they are.
    """

    _send_chunk: Callable[[bytes], Awaitable[bool]] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._send_chunk = scope.get("state", {}).get(CHUNK_KEY)
        await super().__call__(scope, receive, send)

    async def stream_response(self, send: Send) -> None:
        async def forward(message: Message) -> None:
            direct = self._send_chunk if message.get("more_body") else None
            if direct is None or not await direct(message["body"]):
                await send(message)

        try:
            await super().stream_response(forward)
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
