"""One exchange of the relay: a request to an upstream, and its response to the client.

Start lines, header lines and bodies, with their chunks and compression, pass unchanged, except `Host`, header fields of
one connection, and our own `x-contextc-*`. A copy of the bytes goes to the spool.
"""

import asyncio
from typing import TYPE_CHECKING

from contextc.compiler.manifest import RequestAction
from contextc.errors import describe_error
from contextc.observation.credential_values import find_credentials
from contextc.proxy.access_checks import OWN_PREFIX, Refusal, check_access
from contextc.proxy.http1_framing import (
    HEAD_END,
    LINE_END,
    REQUEST_LINE,
    Body,
    FramingError,
    Head,
    LengthBody,
    forwarded_fields,
    parse_head,
    request_body,
)
from contextc.proxy.spool import ExchangeRecord
from contextc.proxy.spool_frames import ExchangeStart, ResponseStart
from contextc.proxy.upstream_connections import UpstreamConnection
from contextc.proxy.upstreams import find_format

if TYPE_CHECKING:
    from contextc.proxy.relay import ClientConnection

MAX_PENDING_BYTES = 1 << 20
"""Bytes of a request that are kept while its upstream is being connected."""
MAX_REPLAY_BYTES = 8 << 20
"""Bytes of a body that are kept until its answer begins, to send it again if a kept connection was closed meanwhile.
Longer ones get a connection of their own."""
STATUS_PATH = b"/contextc/status"
UPGRADE_REQUIRED = 426


class Exchange:
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
        target = check_access(self.relay.access, head, line[2], lambda: client.is_own_user)
        if line[3] != b"1.1":
            raise Refusal(505, "http_version", "HTTP/1.0 is not supported. Use HTTP/1.1.")
        self.is_status = target.partition(b"?")[0] == STATUS_PATH
        if self.is_status:
            return
        self._server, self._target = self.relay.find(target)
        if b"websocket" in head.tokens(b"upgrade"):
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

    def _begin_record(self, actions: tuple[RequestAction, ...] = ()) -> None:
        path, _, query = self._target.decode("latin-1").partition("?")
        format = find_format(path) if self.method == b"POST" and self.relay.spool is not None else None
        if format is None or self.relay.spool is None:
            return
        allowed = self.relay.recorded_headers
        headers = [(field.name.decode(), field.value.decode("latin-1")) for field in self._head.fields]
        self._record = self.relay.spool.begin(
            ExchangeStart(
                upstream=self._server.name,
                url=self._server.record_url(path.removeprefix(self._server.path)),
                format=format,
                headers={name: value for name, value in headers if name in allowed},
                is_chunked=self.body.is_chunked,
                actions=actions,
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
            b"Host: " + self._server.authority.encode() if field.name == b"host" else field.line
            for field in forwarded_fields(self._head)
            if not field.name.startswith(OWN_PREFIX)
        ]
        start = self.method + b" " + self._target + b" HTTP/1.1"
        connection.transport.write(b"".join([LINE_END.join([start, *lines]), HEAD_END, *self._pending]))
        self._replay = self._pending if connection.is_stale else None
        self._pending = []
        if not self.body.is_done:
            self.client.transport.resume_reading()

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

    def response_head(self, head: Head, status: int, body: Body) -> None:
        self._has_response, self._replay = True, None
        lines = [field.line for field in forwarded_fields(head)]
        if body.ends_with_connection or not self._stays_open:
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
