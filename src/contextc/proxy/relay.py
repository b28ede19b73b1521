"""The relay: connections of clients, and what all exchanges share.

It reads the heads of messages and finds the ends of their bodies; nothing else is parsed. Bytes are passed on as they
arrive. Flow control and cancellation work in both directions: a client that disconnects closes the upstream request,
and a response that breaks off breaks off for the client, too.
"""

import asyncio
import socket
import struct
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cached_property
from typing import NamedTuple

import msgspec

from contextc._http_access import max_connections
from contextc.observation.client_ids import header_names
from contextc.proxy.access_checks import AccessRules, Refusal
from contextc.proxy.client_processes import is_own_connection
from contextc.proxy.exchange import UPGRADE_REQUIRED, Exchange
from contextc.proxy.http1_framing import HEAD_END, LINE_END, FramingError
from contextc.proxy.spool import Spool
from contextc.proxy.upstream_connections import ConnectionPool
from contextc.proxy.upstreams import Upstream

MAX_HEAD_BYTES = 64 << 10
HEAD_SECONDS, IDLE_SECONDS = 30.0, 300.0
"""Seconds in which a head must arrive, and after which an idle client is disconnected."""
FILES_PER_CLIENT = 2
"""Connections of one exchange: to its client, and to the upstream."""
LINGER_SECONDS = 2.0
SWEEP_SECONDS = 1.0
RESET_ON_CLOSE = struct.pack("ii", 1, 0)
"""Socket option that makes `close` send a TCP reset."""
REASONS = {
    400: "Bad Request", 401: "Unauthorized", 403: "Forbidden", 404: "Not Found", 408: "Request Timeout",
    413: "Content Too Large", 421: "Misdirected Request", 426: "Upgrade Required",
    431: "Request Header Fields Too Large", 502: "Bad Gateway", 503: "Service Unavailable", 504: "Gateway Timeout",
    505: "HTTP Version Not Supported",
}  # fmt: skip


class Timeouts(NamedTuple):
    """Seconds to connect to an upstream, and without a byte from it. Model calls can take many minutes.

    `body` is for a client that has not sent its whole request: the seconds without a byte of it.
    """

    connect: float = 30.0
    silence: float = 3600.0
    body: float = 30.0


class Relay:
    """The relay of one proxy. `describe` returns what `/contextc/status` shows.

    `make_exchange` makes the exchange for the head of a request; options that change requests have others. Without
    `max_clients`, the limit of open files decides how many connections there may be.
    """

    def __init__(
        self,
        upstreams: Mapping[str, Upstream],
        spool: Spool | None,
        *,
        access: AccessRules | None = None,
        timeouts: Timeouts | None = None,
        describe: Callable[[], dict[str, object]] = dict[str, object],
        make_exchange: "Callable[[ClientConnection, bytes], Exchange]" = Exchange,
        max_clients: int | None = None,
    ) -> None:
        self.upstreams, self.spool, self.describe = upstreams, spool, describe
        self.make_exchange = make_exchange
        self.access, self.timeouts = access or AccessRules(), timeouts or Timeouts()
        self.pool = ConnectionPool()
        self.clients: dict[ClientConnection, None] = {}  # oldest first
        self.max_clients = max_clients
        self.requests = 0
        self.recorded_headers = frozenset([*header_names(), *CONTENT_HEADERS])
        self._server: asyncio.Server | None = None
        self._sweeping: asyncio.TimerHandle | None = None

    async def start(self, listening: socket.socket) -> None:
        """Accept connections of clients on a socket."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: ClientConnection(self), sock=listening)
        self._sweeping = loop.call_later(SWEEP_SECONDS, self._sweep)

    async def stop(self) -> None:
        """Stop listening, and end all exchanges."""
        if self._server is not None:
            self._server.close()
        if self._sweeping is not None:
            self._sweeping.cancel()
        for client in list(self.clients):
            client.stop()
        self.pool.close()
        await asyncio.sleep(0)  # transports close in the next iteration

    @property
    def open_exchanges(self) -> int:
        return sum([each.exchange is not None and not each.exchange.is_status for each in self.clients])

    def find(self, target: bytes) -> tuple[Upstream, bytes]:
        """Return the upstream of a target, and the target at the upstream."""
        path, question, query = target.partition(b"?")
        name, slash, rest = path[1:].partition(b"/")
        upstream = self.upstreams.get(name.decode("latin-1")) if path.startswith(b"/") else None
        if upstream is None:
            names = ", ".join(f"/{each}" for each in self.upstreams)
            raise Refusal(404, "unknown_upstream", f"No upstream at this path. Paths must begin with one of {names}.")
        return upstream, upstream.find_target(slash + rest) + question + query

    def admit(self, client: "ClientConnection") -> bool:
        """Add a connection. If there are too many, the oldest without a request is closed; False if all have one."""
        # The limit of open files is not raised: programs that are started here would inherit it.
        is_full = len(self.clients) >= (self.max_clients or max_connections(raises_limit=False) // FILES_PER_CLIENT)
        waiting = next((each for each in self.clients if each.exchange is None), None) if is_full else None
        if waiting is not None:
            waiting.transport.abort()
            self.clients.pop(waiting, None)
        if is_full and waiting is None:
            return False
        self.clients[client] = None
        return True

    def _sweep(self) -> None:
        """Close what took too long."""
        loop = asyncio.get_running_loop()
        self.pool.close_idle(loop.time())
        for client in list(self.clients):
            client.check_time(loop.time())
        self._sweeping = loop.call_later(SWEEP_SECONDS, self._sweep)


CONTENT_HEADERS = ("content-type", "content-encoding")


class ClientConnection(asyncio.Protocol):
    """The connection of a client: one exchange after the other."""

    transport: asyncio.Transport

    def __init__(self, relay: Relay) -> None:
        self.relay = relay
        self.exchange: Exchange | None = None
        self._buffer = b""
        self._loop = asyncio.get_running_loop()
        self._since = self.last_data = self._loop.time()
        self._is_closing = self._has_asked = False
        self.is_write_paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        if not self.relay.admit(self):
            self.refuse(Refusal(503, "too_many_connections", "The proxy has too many requests. Try again later."))

    @cached_property
    def is_own_user(self) -> bool:
        """True if the client is a process of this user."""
        ends = [self.transport.get_extra_info(name) for name in ("peername", "sockname")]
        return all(ends) and is_own_connection(*[each[:2] for each in ends])

    def connection_lost(self, exc: Exception | None) -> None:
        self.relay.clients.pop(self, None)
        if self.exchange is not None:
            self.exchange.client_lost()
            self.exchange = None

    def data_received(self, data: bytes) -> None:
        if self._is_closing:  # the rest of a request that was answered early
            return
        self.last_data = self._loop.time()
        if self.exchange is not None:
            self.exchange.request_data(data)
            return
        if not self._buffer:
            self._since = self.last_data
        self._buffer += data
        self._read_head()

    def _read_head(self) -> None:
        end = self._buffer.find(HEAD_END, 0, MAX_HEAD_BYTES + len(HEAD_END))
        if end < 0:
            if len(self._buffer) > MAX_HEAD_BYTES:
                self.refuse(Refusal(431, "head_too_long", f"The head must be at most {MAX_HEAD_BYTES:,} bytes."))
            return
        raw, rest = self._buffer[:end].lstrip(LINE_END), self._buffer[end + len(HEAD_END) :]
        self._buffer = b""
        try:
            self.exchange = self.relay.make_exchange(self, raw)
        except FramingError as error:
            self.refuse(Refusal(400, "invalid_http", f"The request is not valid HTTP/1.1: {error}."))
            return
        except Refusal as refusal:
            self.refuse(refusal)
            return
        self._has_asked = True
        self.exchange.start(rest)

    def keep_for_next(self, data: bytes) -> None:
        """Keep bytes that follow a request: the beginning of the next one."""
        self._buffer += data
        if len(self._buffer) > MAX_HEAD_BYTES:
            self.transport.pause_reading()

    def next_exchange(self, *, stays_open: bool) -> None:
        """End an exchange whose response is complete."""
        self.exchange = None
        self._since = self._loop.time()
        if not stays_open:
            self.close_slowly()
            return
        self.transport.resume_reading()
        if self._buffer:
            self._read_head()

    def refuse(self, refusal: Refusal) -> None:
        """Answer with an error of our own, and close the connection."""
        error = {"type": refusal.code, "message": refusal.message}
        self.answer(refusal.status, {"type": "error", "error": error})

    def answer(self, status: int, value: object) -> None:
        body = msgspec.json.encode(value) + b"\n"
        reason = REASONS.get(status, "OK")
        upgrade = "Upgrade: HTTP/1.1\r\n" if status == UPGRADE_REQUIRED else ""
        self.transport.write(
            f"HTTP/1.1 {status} {reason}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
            f"{upgrade}Cache-Control: no-store\r\nX-Contextc: proxy\r\nConnection: close\r\n\r\n".encode()
            + body
        )
        self.exchange = None
        self.close_slowly()

    def close_slowly(self) -> None:
        """Close the connection after the client has read the response. It may still be sending its request."""
        if not self._is_closing:
            self._is_closing = True
            self.transport.resume_reading()
            if self.transport.can_write_eof():
                self.transport.write_eof()
            self._loop.call_later(LINGER_SECONDS, self.transport.close)

    def break_off(self, *, is_reset: bool) -> None:
        """Close the connection in the middle of a response, so that the client sees that it is incomplete."""
        self.exchange = None
        self._is_closing = True
        if is_reset:
            connection = self.transport.get_extra_info("socket")
            with suppress(OSError):
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
            self.transport.abort()
        else:
            self.transport.close()

    def stop(self) -> None:
        if self.exchange is not None:
            self.exchange.stop()
        self.transport.abort()

    def check_time(self, now: float) -> None:
        if self.exchange is not None:
            self.exchange.check_time(now)
        elif not self._is_closing and now - self._since > (
            HEAD_SECONDS if self._buffer or not self._has_asked else IDLE_SECONDS
        ):
            self.transport.close()

    def pause_writing(self) -> None:
        self.is_write_paused = True
        if self.exchange is not None:
            self.exchange.client_paused(True)

    def resume_writing(self) -> None:
        self.is_write_paused = False
        if self.exchange is not None:
            self.exchange.client_paused(False)
