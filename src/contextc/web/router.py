"""From a request to its endpoint and back: the path taken apart, what was sent read as its type, the answer written.

An endpoint is found by the parts of its path (`address.segments`), so a conversation may have a slash in its name.
"""

import pkgutil
from collections.abc import AsyncGenerator
from importlib import import_module
from typing import Any, cast

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from contextc.errors import InvalidRequest
from contextc.executor.threads import REQUESTS, durable
from contextc.web import api
from contextc.web.address import segments
from contextc.web.desk import Desk
from contextc.web.endpoint import ENDPOINTS, Content, Endpoint, Stream
from contextc.web.problems import Refused
from contextc.web.problems import answer as refused

JSON = "application/json"


def endpoints() -> list[Endpoint]:
    """Every endpoint there is: a module of `web/api/` brings its own."""
    for found in pkgutil.iter_modules(api.__path__):
        import_module(f"{api.__name__}.{found.name}")
    return ENDPOINTS


class Router:
    """The API as an ASGI application."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self._by_length: dict[int, list[Endpoint]] = {}
        for each in sorted(endpoints(), key=lambda each: [part.startswith("{") for part in each.segments]):
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
        found, named = self._find(request.method, segments(request.scope))
        given: dict[str, Any] = {  # each of the type that the function says
            name: _read(named[name], kind, f"{name} in the address") if name in named else None
            for name, kind in found.takes.items()
        }
        own = {"desk": lambda: self.desk, "request": lambda: request}
        given |= {name: make() for name, make in own.items() if name in given}
        if "query" in given:
            given["query"] = _read(dict(request.query_params), found.takes["query"], "the query")
        if "body" in given:
            given["body"] = await _body(request, found.takes["body"])
        answer = await (found.work(**given) if found.is_async else durable(lambda: found.work(**given), slots=REQUESTS))
        return await _without_body(found, answer) if request.method == "HEAD" else _response(found, answer)

    def _find(self, method: str, asked: list[str]) -> tuple[Endpoint, dict[str, str]]:
        there: list[str] = []
        for each in self._by_length.get(len(asked), ()):
            pairs = list(zip(each.segments, asked, strict=True))
            if all(part.startswith("{") or part == said for part, said in pairs):
                if each.method == method or (method == "HEAD" and each.method == "GET"):
                    return each, {part[1:-1]: said for part, said in pairs if part.startswith("{")}
                there.append(each.method)
        if there:
            allowed = ", ".join([*there, *(["HEAD"] if "GET" in there else [])])
            said = f"{method} is not for this address. There are: {', '.join(there)}."
            raise Refused(405, said, "NotAllowed", {"Allow": allowed})
        raise Refused(404, "There is nothing at this address. /api/openapi.json lists what there is.", "NotFound")


async def _body(request: Request, kind: Any) -> object:
    """What was sent, as its type. Nothing at all is an empty object, which will do where nothing has to be said."""
    data = await request.body()
    kind_sent, packed = request.headers.get("content-type"), request.headers.get("content-encoding", "identity")
    if packed.strip().lower() not in ("", "identity"):
        said = f"Send it as it is, and not packed: without the header Content-Encoding: {packed[:40]}."
        raise Refused(415, said, "UnsupportedMediaType", {"Accept-Encoding": "identity"})
    if (data or kind_sent is not None) and (kind_sent or "").partition(";")[0].strip().lower() != JSON:
        raise Refused(415, f"Send JSON, with the header Content-Type: {JSON}.", "UnsupportedMediaType")
    try:
        return msgspec.json.decode(data or b"{}", type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequest(f"what was sent cannot be read: {error}.") from None


def _read(given: str | dict[str, str], kind: Any, what: str) -> object:
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"{what} cannot be read: {error}.") from None


class _Streaming(StreamingResponse):
    """A stream that is closed when its reader leaves, at once and not when it is next looked at."""

    async def stream_response(self, send: Send) -> None:
        try:
            await super().stream_response(send)
        finally:
            await _close(self.body_iterator)


async def _without_body(found: Endpoint, answer: object) -> Response:
    """The answer to HEAD: what GET would say, and nothing of a stream, which nobody would read."""
    if not isinstance(answer, Stream):
        return _response(found, answer)
    await _close(answer.events)
    return Response(b"", found.status, _stream_headers(answer), answer.media_type)


async def _close(events: object) -> None:
    if isinstance(events, AsyncGenerator):
        await cast(AsyncGenerator[bytes], events).aclose()


def _stream_headers(answer: Stream) -> dict[str, str]:
    return {"Cache-Control": "no-store", "X-Accel-Buffering": "no", **answer.headers}


def _response(found: Endpoint, answer: object) -> Response:
    if isinstance(answer, Stream):
        return _Streaming(answer.events, found.status, _stream_headers(answer), answer.media_type)
    if isinstance(answer, Content):
        return Response(answer.data, answer.status or found.status, dict(answer.headers), answer.media_type)
    return Response(msgspec.json.encode(answer), found.status, {"Cache-Control": "no-store"}, JSON)
