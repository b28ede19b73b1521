"""One call of an SDK that waits: it has a thread of its own, and what comes is told to the event loop piece by piece.

A thread that waits for the network cannot be interrupted, but its socket can be shut: so every connection says which
call it serves, and a call that nobody reads any more ends at once, also before its first byte has come.
"""

import asyncio
import socket
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import suppress
from threading import Lock, Thread, local
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

HERE = local()
"""The call that a thread works for."""
OWNERS: "WeakKeyDictionary[socket.socket, Line]" = WeakKeyDictionary()
"""Whose a socket is: the call's that took it last, since a connection serves one call after the other."""
LOCK = Lock()


class Head(NamedTuple):
    """How an answer begins. Names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]


class End(NamedTuple):
    """Nothing more comes; `error` says why, where something is wrong."""

    error: Exception | None = None


class Line:
    """An answer while it comes. `send` is done on the thread, and returns a response of botocore's (Any: no types)."""

    def __init__(self, send: Callable[[], Any]) -> None:
        self._send, self._loop = send, asyncio.get_running_loop()
        self._told: asyncio.Queue[Head | bytes | End] = asyncio.Queue()
        self._socket: socket.socket | None = None
        self._left = self._over = False
        self.head = Head(0, {})
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

    async def opened(self) -> None:
        """Come back as soon as the head of the answer is there."""
        try:
            told = await self._told.get()
        except asyncio.CancelledError:
            self.leave()
            raise
        if isinstance(told, Head):
            self.head = told
            return
        self._over = True
        raise (told.error if isinstance(told, End) else None) or ConnectionError("nothing came")

    async def aiter_bytes(self) -> AsyncGenerator[bytes, None]:
        while not self._over:
            told = await self._told.get()
            if isinstance(told, bytes):
                yield told
                continue
            self._over = True
            if isinstance(told, End) and told.error is not None:
                raise told.error

    async def aread(self) -> bytes:
        return b"".join([piece async for piece in self.aiter_bytes()])

    async def aclose(self) -> None:
        self.leave()

    def leave(self) -> None:
        """Nobody reads this any more: hang up."""
        with LOCK:
            if not self._over:
                self._left = True
                if self._socket is not None and OWNERS.get(self._socket) is self:
                    _shut(self._socket)

    def serves(self, connection: socket.socket | None) -> None:
        """The socket that this call is on, as soon as there is one."""
        with LOCK:
            self._socket = connection
            if connection is not None:
                OWNERS[connection] = self
                if self._left:
                    _shut(connection)
            if self._left:
                raise ConnectionAbortedError("the call was given up")

    def _work(self) -> None:
        HERE.line = self
        end = End()
        try:
            response = self._send()
            self._tell(Head(response.status_code, {name.lower(): each for name, each in response.headers.items()}))
            for piece in response.raw.stream():
                self._tell(piece)
            if self._left:
                response.raw.close()  # what was cut off is of no use to anybody
        except Exception as error:
            end = End(error)
        finally:
            self._tell(end)

    def _tell(self, what: Head | bytes | End) -> None:
        with suppress(RuntimeError):  # the loop has ended, and with it whoever asked
            self._loop.call_soon_threadsafe(self._told.put_nowait, what)


def watched(pool: Any) -> Any:
    """A class of connection pools whose connections say which call they serve (Any: botocore has no types)."""

    plain: Any = pool.ConnectionCls

    def connect(self: Any) -> None:
        plain.connect(self)
        _line().serves(self.sock)

    def request(self: Any, *arguments: Any, **options: Any) -> Any:
        _line().serves(self.sock)
        return plain.request(self, *arguments, **options)

    watching = type("Connection", (plain,), {"connect": connect, "request": request})
    return type("Pool", (pool,), {"ConnectionCls": watching, "watched": True})


class _Nobody:
    def serves(self, connection: socket.socket | None) -> None:
        """A connection that is used by somebody else."""


def _line() -> Line | _Nobody:
    return getattr(HERE, "line", None) or _Nobody()


def _shut(connection: socket.socket) -> None:
    with suppress(OSError):
        socket.socket.shutdown(connection, socket.SHUT_RDWR)  # not that of TLS, which another thread is using
