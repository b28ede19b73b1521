"""Streaming response of a blocking SDK: a thread per call passes the chunks to the event loop.

A thread that blocks on the network cannot be interrupted, but its socket can be shut down. So every connection records
the call that uses it. A cancelled call ends at once, even before its first byte arrives.
"""

import asyncio
import socket
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import suppress
from threading import Lock, Thread, local
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

CURRENT = local()
"""Per thread: the call that it runs."""
SOCKET_OWNERS: "WeakKeyDictionary[socket.socket, ThreadedResponse]" = WeakKeyDictionary()
"""The call that uses a socket: the last one that took it, because connections are reused."""
SOCKET_LOCK = Lock()


class ResponseHead(NamedTuple):
    """Status and headers of a response. Header names are in lower case."""

    status: int
    headers: Mapping[str, str]


class ResponseEnd(NamedTuple):
    """End of a response, with the error if it failed."""

    error: Exception | None = None


class ThreadedResponse:
    """A response that is being received. `send` runs on the thread and returns a botocore response (untyped).

    `read_seconds` limits the time without data. Without it, the limit of the SDK's client applies.
    """

    def __init__(self, send: Callable[[], Any], read_seconds: float | None = None) -> None:
        self._send, self._loop = send, asyncio.get_running_loop()
        self.read_seconds = read_seconds
        self._received: asyncio.Queue[ResponseHead | bytes | ResponseEnd] = asyncio.Queue()
        self._socket: socket.socket | None = None
        self._left = self._over = False
        self.head = ResponseHead(0, {})
        Thread(target=self._work, name="contextc-bedrock", daemon=True).start()

    @property
    def status_code(self) -> int:
        return self.head.status

    @property
    def headers(self) -> Mapping[str, str]:
        return self.head.headers

    @property
    def is_closed(self) -> bool:
        return self._over or self._left

    async def wait_for_head(self) -> None:
        """Wait for status and headers of the response."""
        try:
            received = await self._received.get()
        except asyncio.CancelledError:
            self.abort()
            raise
        if isinstance(received, ResponseHead):
            self.head = received
            return
        self._over = True
        raise (received.error if isinstance(received, ResponseEnd) else None) or ConnectionError("no response")

    async def aiter_bytes(self) -> AsyncGenerator[bytes, None]:
        while not self._over:
            received = await self._received.get()
            if isinstance(received, bytes):
                yield received
                continue
            self._over = True
            if isinstance(received, ResponseEnd) and received.error is not None:
                raise received.error

    async def aread(self) -> bytes:
        return b"".join([piece async for piece in self.aiter_bytes()])

    async def aclose(self) -> None:
        self.abort()

    def abort(self) -> None:
        """Abort the call: shut down its socket."""
        with SOCKET_LOCK:
            if not self._over:
                self._left = True
                if self._socket is not None and SOCKET_OWNERS.get(self._socket) is self:
                    _shut(self._socket)

    def use_socket(self, connection: socket.socket | None) -> None:
        """Record the socket of this call. Raise ConnectionAbortedError if the call was aborted."""
        with SOCKET_LOCK:
            self._socket = connection
            if connection is not None:
                SOCKET_OWNERS[connection] = self
                if self._left:
                    _shut(connection)
            if self._left:
                raise ConnectionAbortedError("the call was aborted")

    def _work(self) -> None:
        CURRENT.line = self
        end = ResponseEnd()
        try:
            response = self._send()
            self._put(
                ResponseHead(response.status_code, {name.lower(): each for name, each in response.headers.items()})
            )
            for piece in response.raw.stream():
                self._put(piece)
            if self._left:
                response.raw.close()  # a truncated connection cannot be reused
        except Exception as error:
            end = ResponseEnd(error)
        finally:
            self._put(end)

    def _put(self, what: ResponseHead | bytes | ResponseEnd) -> None:
        with suppress(RuntimeError):  # the loop has ended, and the caller with it
            self._loop.call_soon_threadsafe(self._received.put_nowait, what)


def watched_pool(pool: Any) -> Any:
    """Return a subclass of a connection pool whose connections record the call that uses them, and obey its limit."""

    plain: Any = pool.ConnectionCls

    def connect(self: Any) -> None:
        plain.connect(self)
        _current_response().use_socket(self.sock)

    def request(self: Any, *arguments: Any, **options: Any) -> Any:
        _current_response().use_socket(self.sock)
        return plain.request(self, *arguments, **options)

    def urlopen(self: Any, *arguments: Any, **options: Any) -> Any:
        # botocore has limits per call only since 1.43; before, they are those of its client.
        if (seconds := _current_response().read_seconds) is not None:
            options["timeout"] = type(self.timeout)(connect=self.timeout.connect_timeout, read=seconds)
        return pool.urlopen(self, *arguments, **options)

    watching = type("Connection", (plain,), {"connect": connect, "request": request})
    return type("Pool", (pool,), {"ConnectionCls": watching, "watched": True, "urlopen": urlopen})


class _NoResponse:
    read_seconds: float | None = None

    def use_socket(self, connection: socket.socket | None) -> None:
        """Ignore a connection that other code uses."""


def _current_response() -> ThreadedResponse | _NoResponse:
    return getattr(CURRENT, "line", None) or _NoResponse()


def _shut(connection: socket.socket) -> None:
    with suppress(OSError):
        socket.socket.shutdown(connection, socket.SHUT_RDWR)  # the plain socket: another thread uses the TLS layer
