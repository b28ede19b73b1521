"""Record the requests of an existing httpx or httpx2 client, sync or async.

The client's transports are wrapped, so its proxies, timeouts and retries stay as they are. Nothing is added to a
request. Chunks are passed on as they arrive; the exchange is recorded when its response is closed. If recording fails,
that is logged, and the request is not affected.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from itertools import count
from secrets import token_hex
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from contextc._credential_mask import get_logger
from contextc.errors import InvalidInput
from contextc.observation.content_decoding import CannotDecode, decode_content, measure_pieces, unreadable_reply
from contextc.observation.exchange_redaction import Redaction, compile_patterns, find_credentials, mask_value
from contextc.observation.observe_exchange import observe
from contextc.providers.registry import formats_of_url
from contextc.store import Store
from contextc.store.message_log import now_ms

AnyClient = TypeVar("AnyClient")
LIBRARIES = ("httpx", "httpx2")
MAX_BYTES = 64 << 20
_log = get_logger("contextc.observation")
_workers: WeakKeyDictionary[Store, ThreadPoolExecutor] = WeakKeyDictionary()


def tap(
    store: Store,
    client: AnyClient,
    *,
    format: str | None = None,
    conversation: str | None = None,
    redact: Redaction | None = None,
) -> AnyClient:
    """Record all model requests of a client, and return the client.

    Pass it to any SDK as `http_client`. A request is recognised by its URL; `format` records every JSON request of the
    client in that format. `conversation` names the conversation of all of them. `redact` removes text before anything
    is stored, as in `observe`.
    """
    compile_patterns(redact)  # an invalid one is an error here, and not in the log
    base = next((each for each in type(client).__mro__ if each.__module__.partition(".")[0] in LIBRARIES), None)
    is_async = base is not None and base.__name__ == "AsyncClient"
    if base is None or not (is_async or base.__name__ == "Client"):
        raise InvalidInput(
            "client: expected a Client or AsyncClient of httpx or httpx2",
            got=type(client).__name__,
            fix="Pass the client that the SDK uses, as in tap(store, httpx.Client()).",
        )
    library = import_module(base.__module__.partition(".")[0])
    recording = _Recorder(store, library, format, conversation, redact)
    wrap = _AsyncTransport if is_async else _Transport
    given: Any = client  # the two attributes are private in both libraries; there is no public way to wrap a transport
    given._transport = wrap(given._transport, recording)
    given._mounts = {
        pattern: None if transport is None else wrap(transport, recording)
        for pattern, transport in given._mounts.items()
    }
    return client


class _Exchange:
    """One request, and what arrived of its response."""

    def __init__(self, recorder: "_Recorder", request: Any, body: bytes) -> None:
        self.recorder, self.request, self.body = recorder, request, body
        self.began, self.chunks, self.size = now_ms(), list[bytes](), 0
        self.times: list[int] = []
        self.response: Any = None
        self.whole: bytes | None = None
        self.is_recorded = False
        self.first_chunk: int | None = None

    def add(self, chunk: bytes) -> None:
        if self.first_chunk is None:
            self.first_chunk = now_ms()
        self.size += len(chunk)
        if self.size <= MAX_BYTES:
            self.chunks.append(chunk)
            self.times.append(now_ms() - self.began)

    def take_whole(self) -> bool:
        """Return True if the transport has read the response already, as caches and mocks do."""
        try:
            self.whole = self.response.content
        except self.recorder.library.ResponseNotRead:
            return False
        return True

    def record(self) -> None:
        """Record the exchange once. Errors are logged."""
        if self.is_recorded:
            return
        self.is_recorded = True
        try:
            self.recorder.record(self)
        except Exception:
            _log.warning("An observed request could not be recorded", exc_info=True)


class _Recorder:
    def __init__(
        self, store: Store, library: Any, format: str | None, conversation: str | None, redact: Redaction | None
    ) -> None:
        self.store, self.library, self.format, self.conversation = store, library, format, conversation
        self.redact = redact
        self._run, self._numbers = token_hex(8), count(1)

    def begin(self, request: Any) -> _Exchange | None:
        """Return an exchange to record, or None if the request is not one to a model."""
        if request.method != "POST" or not (self.format or formats_of_url(str(request.url.copy_with(query=None)))):
            return None
        try:
            return _Exchange(self, request, request.content)
        except self.library.RequestNotRead:  # the body is a stream, which can be read once
            return None

    def record(self, exchange: _Exchange) -> None:
        response, reply, pieces = exchange.response, exchange.whole, list[tuple[int, int]]()
        if response is not None and reply is None and exchange.size <= MAX_BYTES:
            encoding = response.headers.get("content-encoding", "")
            pieces = measure_pieces(zip(exchange.times, exchange.chunks, strict=True), encoding)
            try:
                reply = decode_content(b"".join(exchange.chunks), encoding)
            except CannotDecode as error:
                reply = unreadable_reply(error)
        headers, query = dict(exchange.request.headers), exchange.request.url.query.decode("latin-1")
        url = str(exchange.request.url.copy_with(query=None))
        observe(
            self.store,
            request=exchange.body,
            reply=mask_value(reply, find_credentials(headers.items(), query)) or None,
            format=self.format,
            conversation=self.conversation,
            exchange_id=f"{self._run}/{next(self._numbers)}",
            time=exchange.began,
            ended=now_ms(),
            first_chunk=exchange.first_chunk,
            headers=headers,
            url=url,
            status=response.status_code if response is not None else None,
            redact=self.redact,
            pieces=pieces,
        )


class _Transport:
    def __init__(self, transport: Any, recorder: _Recorder) -> None:
        self._inner, self._recorder = transport, recorder

    def handle_request(self, request: Any) -> Any:
        exchange = self._recorder.begin(request)
        if exchange is None:
            return self._inner.handle_request(request)
        try:
            response = exchange.response = self._inner.handle_request(request)
        except BaseException:
            exchange.record()
            raise
        if exchange.take_whole():
            exchange.record()
            return response
        response.stream = _make_stream(self._recorder.library.SyncByteStream, response.stream, exchange)
        return response

    def __enter__(self) -> "_Transport":
        self._inner.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._inner.__exit__(*error)

    def close(self) -> None:
        self._inner.close()


def _make_stream(base: Any, inner: Any, exchange: _Exchange) -> Any:
    """Return a stream of the library's own type that also collects what passes."""

    class Stream(base):  # pyright: ignore[reportUntypedBaseClass]
        def __iter__(self) -> Iterator[bytes]:
            for chunk in inner:
                exchange.add(chunk)
                yield chunk

        def close(self) -> None:
            try:
                inner.close()
            finally:
                exchange.record()

    return Stream()


class _AsyncTransport:
    def __init__(self, transport: Any, recorder: _Recorder) -> None:
        self._inner, self._recorder = transport, recorder

    async def handle_async_request(self, request: Any) -> Any:
        exchange = self._recorder.begin(request)
        if exchange is None:
            return await self._inner.handle_async_request(request)
        try:
            response = exchange.response = await self._inner.handle_async_request(request)
        except BaseException:
            await _record_in_thread(exchange)
            raise
        if exchange.take_whole():
            await _record_in_thread(exchange)
            return response
        response.stream = _make_async_stream(self._recorder.library.AsyncByteStream, response.stream, exchange)
        return response

    async def __aenter__(self) -> "_AsyncTransport":
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._inner.__aexit__(*error)

    async def aclose(self) -> None:
        await self._inner.aclose()


def _make_async_stream(base: Any, inner: Any, exchange: _Exchange) -> Any:
    class Stream(base):  # pyright: ignore[reportUntypedBaseClass]
        async def __aiter__(self) -> AsyncIterator[bytes]:
            async for chunk in inner:
                exchange.add(chunk)
                yield chunk

        async def aclose(self) -> None:
            try:
                await inner.aclose()
            finally:
                await _record_in_thread(exchange)

    return Stream()


async def _record_in_thread(exchange: _Exchange) -> None:
    """Record on a thread of the store's own, in order. A cancelled task records nevertheless."""
    worker = _workers.setdefault(exchange.recorder.store, ThreadPoolExecutor(1, thread_name_prefix="contextc-tap"))
    done = worker.submit(exchange.record)
    try:
        await asyncio.shield(asyncio.wrap_future(done))
    except RuntimeError:  # no running loop of asyncio: another library drives this client
        done.result()
