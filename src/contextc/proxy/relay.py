"""The relay: connections of clients, and what all exchanges share.

It reads the heads of messages and finds the ends of their bodies; nothing else is parsed. Bytes are passed on as they
arrive. Flow control and cancellation work in both directions: a client that disconnects closes the upstream request,
and a response that breaks off breaks off for the client, too.
"""

import asyncio
import socket
import struct
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import NamedTuple, Protocol

import msgspec

from contextc._http_access import max_connections
from contextc.compiler.manifest import ProxyAction
from contextc.errors import describe_error
from contextc.observation.client_ids import header_names
from contextc.observation.exchange_redaction import find_credentials
from contextc.proxy.access_checks import OWN_PREFIX, AccessRules, Refusal, check_access, is_own_connection
from contextc.proxy.http1_framing import (
    HEAD_END,
    LINE_END,
    REQUEST_LINE,
    Body,
    FramingError,
    HeaderField,
    HTTPHead,
    LengthBody,
    forwarded_fields,
    parse_head,
    request_body,
)
from contextc.proxy.spool import ExchangeRecord, ExchangeStart, ResponseStart, Spool
from contextc.proxy.upstream_connections import ConnectionPool, UpstreamConnection
from contextc.proxy.upstreams import Upstream, find_format

# ── one exchange ──────────────────────────────────────────────────────────────────────────────────────────────────────
# One exchange of the relay: a request to an upstream, and its response to the client.
#
# Start lines, header lines and bodies, with their chunks and compression, pass unchanged, except `Host`, header fields
# of one connection, and our own `x-contextc-*`. A copy of the bytes goes to the spool.


MAX_PENDING_BYTES = 1 << 20
"""Bytes of a request that are kept while its upstream is being connected."""
MAX_REPLAY_BYTES = 8 << 20
"""Bytes of a body that are kept until its answer begins, to send it again if a kept connection was closed meanwhile.
Longer ones get a connection of their own."""
STATUS_PATH = b"/contextc/status"
MAX_LISTED = 100
UPGRADE_REQUIRED = 426


class RelayedExchange:
    """One request and its response."""

    def __init__(self, client: "ClientConnection", raw: bytes) -> None:
        self.client, self.relay = client, client.relay
        head = parse_head(raw)
        line = REQUEST_LINE.fullmatch(head.start)
        if line is None:
            raise FramingError("its request line is invalid")
        self.method = line[1]
        self.body = request_body(head)
        self.upstream: UpstreamConnection | None = None
        self._head = head
        self._stays_open = b"close" not in head.tokens(b"connection")
        self._pending: list[bytes] = []
        self._replay: list[bytes] | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._record: ExchangeRecord | None = None
        self._response_start = b""
        self._is_sent = self._has_response = self._is_over = False
        self._ends_with_connection = False
        route = client.route(head, line[2])
        if line[3] != b"1.1":
            raise Refusal(505, "http_version", "HTTP/1.0 is not supported. Use HTTP/1.1.")
        self.is_status = route is None
        if route is None:
            return
        self._server, self._target = route.upstream, route.target
        self._is_transparent = route.is_transparent
        self._path = route.target.partition(b"?")[0].decode("latin-1")
        format = find_format(self._path) if route.is_recorded else None
        self._recorded_format = format if self.method == b"POST" else None
        if b"websocket" in head.tokens(b"upgrade") and (format is not None or not route.is_transparent):
            raise Refusal(UPGRADE_REQUIRED, "no_websocket", "WebSocket is not supported by this proxy. Use HTTP.")

    def start(self, rest: bytes) -> None:
        """Begin to forward. `rest` is what arrived behind the head."""
        if self.is_status:
            self.client.answer(200, self.relay.describe())
            return
        self.relay.requests += 1
        self._begin_record()
        self.request_data(rest)
        if self._is_over:
            return
        connection = self._take_connection()
        if connection is not None:
            self._use(connection)
        else:
            self._connecting = asyncio.get_running_loop().create_task(self._connect())

    def _take_connection(self) -> UpstreamConnection | None:
        """Return an idle connection; None if there is none, or if the body is too long to be sent again."""
        size = sum(map(len, self._pending)) + (self.body.left if isinstance(self.body, LengthBody) else 0)
        return self.relay.pool.take(self._server) if size <= MAX_REPLAY_BYTES else None

    def _begin_record(self, actions: tuple[ProxyAction, ...] = ()) -> None:
        format, query = self._recorded_format, self._target.partition(b"?")[2].decode("latin-1")
        if format is None:
            self.relay.count_unrecorded(f"{self.method.decode()} {self._server.authority}{self._path}")
        if format is None or self.relay.spool is None:
            return
        allowed = self.relay.recorded_headers
        headers = [(field.name.decode(), field.value.decode("latin-1")) for field in self._head.fields]
        self._record = self.relay.spool.begin(
            ExchangeStart(
                upstream=self._server.name,
                url=self._server.record_url(self._path.removeprefix(self._server.path)),
                format=format,
                headers={name: value for name, value in headers if name in allowed},
                is_chunked=self.body.is_chunked,
                actions=actions,
                directory=self.relay.directory,
            ),
            find_credentials(headers, query),
        )

    async def _connect(self) -> None:
        problem = ""
        try:
            async with asyncio.timeout(self.relay.timeouts.connect):
                connection = await self.relay.pool.connect(self._server)
        except TimeoutError:
            problem = f"no connection within {self.relay.timeouts.connect:g} s"
        except (OSError, ValueError) as error:
            problem = describe_error(error)
        else:
            self._connecting = None
            if self._is_over:
                connection.transport.abort()
            else:
                self._use(connection)
            return
        self._connecting = None
        self._fail(502, "upstream_unreachable", f"{self._server.url} cannot be reached: {problem}.")

    def _use(self, connection: UpstreamConnection) -> None:
        """Send the head, and what has arrived of the body."""
        self.upstream = connection
        connection.serve(self)
        if self.client.is_write_paused:
            connection.transport.pause_reading()
        lines = [
            b"Host: " + self._server.authority.encode()
            if field.name == b"host" and not self._is_transparent
            else field.line
            for field in self._forwarded(self._head)
            if not field.name.startswith(OWN_PREFIX)
        ]
        start = self.method + b" " + self._target + b" HTTP/1.1"
        connection.transport.write(b"".join([LINE_END.join([start, *lines]), HEAD_END, *self._pending]))
        self._replay = self._pending if connection.is_stale else None
        self._pending = []
        if not self.body.is_done:
            self.client.transport.resume_reading()

    def _forwarded(self, head: HTTPHead) -> Sequence[HeaderField]:
        """Return the header fields that go on. A client that does not know of the proxy means all for the vendor."""
        return head.fields if self._is_transparent else forwarded_fields(head)

    # ── the request ───────────────────────────────────────────────────────────────────────────────────────────────────

    def request_data(self, data: bytes) -> None:
        """Forward bytes of the body. What follows the body is the next request."""
        try:
            used = self.body.feed(data) if not self.body.is_done else 0
        except FramingError as error:
            self._fail(400, "invalid_http", f"The request is not valid HTTP/1.1: {error}.")
            return
        mine = data if used == len(data) else data[:used]
        if mine and self.upstream is not None:
            self.upstream.transport.write(mine)
            if self._replay is not None:
                self._replay.append(mine)
                if sum(map(len, self._replay)) > MAX_REPLAY_BYTES:
                    self._replay = None
        elif mine:
            self._pending.append(mine)
            if sum(map(len, self._pending)) > MAX_PENDING_BYTES:
                self.client.transport.pause_reading()
        if used < len(data):
            self.client.keep_for_next(data[used:])
        if self._record is not None:
            if mine:
                self._record.request(mine)
            if self.body.is_done and not self._is_sent:
                self._is_sent = True
                self._record.sent()

    def client_paused(self, is_paused: bool) -> None:
        """Stop or continue to read from the upstream, because the client does not read."""
        if self.upstream is not None:
            transport = self.upstream.transport
            (transport.pause_reading if is_paused else transport.resume_reading)()

    def upstream_paused(self, is_paused: bool) -> None:
        if not self.body.is_done:
            (self.client.transport.pause_reading if is_paused else self.client.transport.resume_reading)()

    # ── the response ──────────────────────────────────────────────────────────────────────────────────────────────────

    def response_interim(self, raw: bytes) -> None:
        self._replay = None
        self.client.transport.write(raw)

    def response_switch(self, raw: bytes) -> None:
        """Pass what follows in both directions: the upstream has switched to another protocol."""
        upstream = self.upstream
        if upstream is None or not self._is_transparent:
            self._fail(502, "upstream_failed", f"{self._server.url} switched to another protocol.")
            return
        self._end("complete")
        self.client.transport.write(raw)
        self.client.splice(upstream.transport)

    def response_head(self, head: HTTPHead, status: int, body: Body) -> None:
        self._has_response, self._replay = True, None
        lines = [field.line for field in self._forwarded(head)]
        if self._is_transparent and b"close" in head.tokens(b"connection"):
            self._stays_open = False
        elif body.ends_with_connection or not self._stays_open:
            self._stays_open = False
            lines.append(b"Connection: close")
        self._response_start = LINE_END.join([head.start, *lines]) + HEAD_END
        self._ends_with_connection = body.ends_with_connection
        if self._record is not None:
            encoding = b",".join(head.values(b"content-encoding")).decode("latin-1")
            self._record.response(ResponseStart(status=status, encoding=encoding, is_chunked=body.is_chunked))

    def response_data(self, data: bytes) -> None:
        if self._response_start:
            self.client.transport.write(self._response_start + data)
            self._response_start = b""
        else:
            self.client.transport.write(data)
        if self._record is not None:
            self._record.reply(data)

    def flush(self) -> None:
        """Send the head of a response whose body has not begun."""
        if self._response_start:
            self.client.transport.write(self._response_start)
            self._response_start = b""

    def response_end(self) -> None:
        self.flush()
        self._end("complete")
        is_whole = self.body.is_done
        if self.upstream is not None:
            self.upstream.release(is_reusable=is_whole)
        self.client.next_exchange(stays_open=self._stays_open and is_whole)

    # ── failures ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def upstream_lost(self, problem: str) -> None:
        if self._replay is not None and self.upstream is not None and self.upstream.is_stale:
            self.upstream, self._pending, self._replay = None, self._replay, None
            self._connecting = asyncio.get_running_loop().create_task(self._connect())  # once: this one is new
            return
        if not self._has_response:
            self._fail(502, "upstream_failed", f"{self._server.url} did not answer: {problem}.")
            return
        self.flush()
        self._end("broken")
        self.client.break_off(is_reset=self._ends_with_connection)

    def _fail(self, status: int, code: str, message: str) -> None:
        """Answer with an error of our own."""
        if self._is_over:
            return
        if self._record is not None:
            self._record.response(ResponseStart(status=status, error=message))
        self._end("failed")
        if self.upstream is not None:
            self.upstream.abort()
        if self._has_response:
            self.client.break_off(is_reset=True)
        else:
            self.client.refuse(Refusal(status, code, message))

    def client_lost(self) -> None:
        """Cancel the request upstream."""
        self._end("cancelled")
        if self._connecting is not None:
            self._connecting.cancel()
        if self.upstream is not None:
            self.upstream.abort()

    def stop(self) -> None:
        self._end("stopped")
        if self._connecting is not None:
            self._connecting.cancel()
        if self.upstream is not None:
            self.upstream.abort()
        self.client.exchange = None

    def check_time(self, now: float) -> None:
        if not self.client.transport.is_reading():  # it waits for the upstream
            self.client.last_data = now
        is_sending = not self.body.is_done and not self._has_response
        if is_sending and now - self.client.last_data > (limit := self.relay.timeouts.body):
            self._fail(408, "request_timeout", f"Nothing of the request's body arrived for {limit:g} s. Send it again.")
            return
        limit = self.relay.timeouts.silence
        if self.upstream is None or now - self.upstream.last_data < limit or not self.body.is_done:
            return
        self.upstream.abort()
        if self._has_response:
            self._end("broken")
            self.client.break_off(is_reset=True)
        else:
            self._fail(504, "upstream_timeout", f"{self._server.url} sent nothing for {limit:g} s.")

    def _end(self, outcome: str) -> None:
        self._is_over = True
        if self._record is not None:
            self._record.end(outcome)
            self._record = None


# ── connections of clients ────────────────────────────────────────────────────────────────────────────────────────────


MAX_HEAD_BYTES = 64 << 10
HEAD_SECONDS, IDLE_SECONDS = 30.0, 300.0
"""Seconds in which a head must arrive, and after which an idle client is disconnected."""
FILES_PER_CLIENT = 2
"""Connections of one exchange: to its client, and to the upstream."""
LINGER_SECONDS = 2.0
SWEEP_SECONDS = 1.0
RESET_ON_CLOSE = struct.pack("ii", 1, 0)
"""Socket option that makes `close` send a TCP reset."""
STATUS_FIELDS = {
    407: 'Proxy-Authenticate: Basic realm="contextc"\r\n',
    UPGRADE_REQUIRED: "Upgrade: HTTP/1.1\r\n",
}
REASONS = {
    400: "Bad Request", 401: "Unauthorized", 403: "Forbidden", 404: "Not Found",
    407: "Proxy Authentication Required", 408: "Request Timeout",
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

    `make_exchange` makes the exchange for the head of a request; options that change requests have others, and
    `make_client` makes the connection of a client; a forward proxy has another. `directory`
    is where the one client of the proxy works, if there is only one. Without
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
        make_exchange: "Callable[[ClientConnection, bytes], RelayedExchange]" = RelayedExchange,
        make_client: "Callable[[Relay], ClientConnection] | None" = None,
        max_clients: int | None = None,
        directory: str = "",
    ) -> None:
        self.directory = directory
        self.make_client = make_client or ClientConnection
        self.upstreams, self.spool, self.describe = upstreams, spool, describe
        self.make_exchange = make_exchange
        self.access, self.timeouts = access or AccessRules(), timeouts or Timeouts()
        self.pool = ConnectionPool()
        self.clients: dict[ClientConnection, None] = {}  # oldest first
        self.max_clients = max_clients
        self.requests = 0
        self.unrecorded = Counter[str]()
        self.recorded_headers = frozenset([*header_names(), *CONTENT_HEADERS])
        self._server: asyncio.Server | None = None
        self._sweeping: asyncio.TimerHandle | None = None

    async def start(self, listening: socket.socket) -> None:
        """Accept connections of clients on a socket."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: self.make_client(self), sock=listening)
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
        return sum(
            [isinstance(each.exchange, RelayedExchange) and not each.exchange.is_status for each in self.clients]
        )

    def count_unrecorded(self, request: str) -> None:
        """Count a request that is not for a model."""
        if request in self.unrecorded or len(self.unrecorded) < MAX_LISTED:
            self.unrecorded[request] += 1

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


class Route(NamedTuple):
    """The destination of a request. Only requests for an upstream that `is_recorded` are recorded.

    With `is_transparent`, the client does not know that there is a proxy: all header fields are for the upstream.
    """

    upstream: Upstream
    target: bytes
    is_recorded: bool = True
    is_transparent: bool = False


class Splice(asyncio.Protocol):
    """One end of a tunnel: what arrives goes to the other end. `on_lost` is called when it is closed."""

    def __init__(self, other: asyncio.Transport, on_lost: Callable[[], object] = lambda: None) -> None:
        self.other, self.on_lost = other, on_lost

    def data_received(self, data: bytes) -> None:
        self.other.write(data)

    def eof_received(self) -> bool:
        if not self.other.can_write_eof():
            return False
        self.other.write_eof()
        return True  # the other direction stays open

    def connection_lost(self, exc: Exception | None) -> None:
        (self.other.close if exc is None else self.other.abort)()
        self.on_lost()

    def pause_writing(self) -> None:
        self.other.pause_reading()

    def resume_writing(self) -> None:
        self.other.resume_reading()


class Exchange(Protocol):
    """The work of a connection of a client."""

    def start(self, rest: bytes) -> None: ...
    def request_data(self, data: bytes) -> None: ...
    def client_paused(self, is_paused: bool) -> None: ...
    def client_lost(self) -> None: ...
    def stop(self) -> None: ...
    def check_time(self, now: float) -> None: ...


class SplicedExchange:
    """The work of a connection while everything passes. It has no time limit, as without a proxy."""

    def __init__(self, there: asyncio.Transport) -> None:
        self._there = there

    def start(self, rest: bytes) -> None: ...
    def request_data(self, data: bytes) -> None: ...
    def client_paused(self, is_paused: bool) -> None: ...
    def check_time(self, now: float) -> None: ...

    def client_lost(self) -> None:
        self._there.abort()

    def stop(self) -> None:
        self._there.abort()


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

    def route(self, head: HTTPHead, target: bytes) -> Route | None:
        """Return where a request goes; None if it asks for the status of the proxy. Raise `Refusal` if it may not."""
        target = check_access(self.relay.access, head, target, lambda: self.is_own_user)
        return None if target.partition(b"?")[0] == STATUS_PATH else Route(*self.relay.find(target))

    def make_exchange(self, raw: bytes) -> Exchange:
        return self.relay.make_exchange(self, raw)

    def splice(self, there: asyncio.Transport) -> None:
        """Pass everything between this connection and another one, from now on."""
        if self.transport.is_closing():
            there.abort()
            return
        if self._buffer:
            there.write(self._buffer)
            self._buffer = b""
        self.exchange = SplicedExchange(there)
        self.transport.set_protocol(Splice(there, lambda: self.relay.clients.pop(self, None)))
        there.set_protocol(Splice(self.transport))
        self.transport.resume_reading()
        there.resume_reading()

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
            self.exchange = self.make_exchange(raw)
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
        if not stays_open and self.transport.can_write_eof():
            self.close_slowly()
            return
        if not stays_open:  # within TLS, closing is the only way to say that a response has ended
            self._is_closing = True
            self.transport.close()
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
        upgrade = STATUS_FIELDS.get(status, "")
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
