"""Connections to upstreams: a pool of HTTP/1.1 connections that pass bytes on as they arrive.

A connection serves one exchange at a time and is then kept for the next one. HTTPS goes through the proxy of the
environment (`HTTPS_PROXY`, `NO_PROXY`), if there is one.
"""

import asyncio
import base64
import os
import ssl
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Protocol
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from contextc.proxy.client_setup import client_tables
from contextc.proxy.http1_framing import (
    HEAD_END,
    STATUS_LINE,
    Body,
    FramingError,
    HTTPHead,
    parse_head,
    response_body,
)
from contextc.proxy.upstreams import SCHEMES, Upstream

MAX_HEAD_BYTES = 256 << 10
IDLE_SECONDS = 30.0
"""Seconds after which an idle connection is closed. Servers close theirs after a minute, most of them."""
HAPPY_EYEBALLS_DELAY = 0.25
FIRST_FINAL_STATUS = 200
SWITCHING_PROTOCOLS = 101


class ResponseSink(Protocol):
    """The exchange that a response is for."""

    method: bytes

    def response_interim(self, raw: bytes) -> None: ...
    def response_switch(self, raw: bytes) -> None: ...
    def response_head(self, head: HTTPHead, status: int, body: Body) -> None: ...
    def response_data(self, data: bytes) -> None: ...
    def flush(self) -> None: ...
    def response_end(self) -> None: ...
    def upstream_lost(self, problem: str) -> None: ...
    def upstream_paused(self, is_paused: bool) -> None: ...


class UpstreamConnection(asyncio.Protocol):
    """One connection. `sink` is the exchange that it serves; None while it is idle.

    A connection that `is_stale` was idle before this exchange, and has answered nothing: the upstream may have closed
    it while the request was on its way.
    """

    transport: asyncio.Transport

    def __init__(self, released: Callable[["UpstreamConnection"], None]) -> None:
        self.sink: ResponseSink | None = None
        self.idle_since = 0.0
        self.last_data = 0.0
        self.is_lost = self.is_stale = False
        self._released = released
        self._buffer = b""
        self._body: Body | None = None
        self._may_stay = True
        self._loop = asyncio.get_running_loop()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def serve(self, sink: ResponseSink) -> None:
        self.sink, self._body, self._buffer = sink, None, b""
        self.is_stale = self.idle_since > 0
        self.last_data = self._loop.time()

    def abort(self) -> None:
        """Close the connection at once: the request is cancelled."""
        self.sink = None
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        if self.sink is None:  # nothing was requested
            self.transport.abort()
            return
        self.last_data = self._loop.time()
        self.is_stale = False
        try:
            if self._body is None:
                data = self._read_heads(self._buffer + data if self._buffer else data)
            if self._body is not None:
                self._read_body(self._body, data)
        except FramingError as error:
            self._lose(f"the response is not valid HTTP: {error}")

    def _read_heads(self, data: bytes) -> bytes:
        """Pass on the head of the response, and those of interim responses. Return what follows."""
        while self._body is None:
            end = data.find(HEAD_END)
            if end < 0:
                if len(data) > MAX_HEAD_BYTES:
                    raise FramingError("its head is too long")
                self._buffer = data
                return b""
            raw, data = data[:end], data[end + len(HEAD_END) :]
            head = parse_head(raw)
            line = STATUS_LINE.fullmatch(head.start)
            if line is None:
                raise FramingError("its status line is invalid")
            status = int(line[2])
            assert self.sink is not None
            if status == SWITCHING_PROTOCOLS:
                sink, self.sink = self.sink, None
                sink.response_switch(raw + HEAD_END + data)
                return b""
            if status < FIRST_FINAL_STATUS:
                self.sink.response_interim(raw + HEAD_END)
                continue
            self._buffer = b""
            self._body = response_body(head, status, self.sink.method)
            self._may_stay = line[1] == b"1.1" and b"close" not in head.tokens(b"connection")
            self.sink.response_head(head, status, self._body)
        return data

    def _read_body(self, body: Body, data: bytes) -> None:
        sink = self.sink
        if sink is None:
            return
        used = body.feed(data)
        if used:
            sink.response_data(data if used == len(data) else data[:used])
        else:
            sink.flush()
        if body.is_done and self.sink is sink:
            self._may_stay = self._may_stay and used == len(data)
            self.sink = None
            sink.response_end()

    def release(self, *, is_reusable: bool) -> None:
        """End the exchange. The connection stays open if it can be used again."""
        self.sink = None
        if is_reusable and self._may_stay and not self.is_lost and not self.transport.is_closing():
            self.transport.resume_reading()
            self.idle_since = self._loop.time()
            self._released(self)
        else:
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True
        sink, body = self.sink, self._body
        if sink is None:
            return
        if body is not None and body.ends_with_connection and exc is None:
            self.sink = None
            sink.response_end()
        else:
            self._lose("the connection was closed" if exc is None else f"the connection broke ({exc})")

    def _lose(self, problem: str) -> None:
        sink, self.sink = self.sink, None
        self.transport.abort()
        if sink is not None:
            sink.upstream_lost(problem)

    def pause_writing(self) -> None:
        if self.sink is not None:
            self.sink.upstream_paused(True)

    def resume_writing(self) -> None:
        if self.sink is not None:
            self.sink.upstream_paused(False)


class ConnectionPool:
    """Idle connections by upstream. New ones are opened as needed."""

    def __init__(self) -> None:
        self._idle: dict[tuple[str, str, int], list[UpstreamConnection]] = {}

    @property
    def idle_connections(self) -> list[UpstreamConnection]:
        return [each for idle in self._idle.values() for each in idle]

    def take(self, upstream: Upstream) -> UpstreamConnection | None:
        """Return an idle connection, the one that was used last."""
        idle = self._idle.get(_key(upstream), [])
        while idle:
            connection = idle.pop()
            if not connection.is_lost and not connection.transport.is_closing():
                return connection
        return None

    async def connect(self, upstream: Upstream) -> UpstreamConnection:
        """Open a connection. Raise OSError if that fails."""
        loop, key = asyncio.get_running_loop(), _key(upstream)
        made = UpstreamConnection(lambda connection: self._idle.setdefault(key, []).append(connection))
        context = make_ssl_context() if upstream.scheme == "https" else None
        outer = find_environment_proxy(upstream.scheme, upstream.host)
        if outer is not None and context is not None:
            transport, _ = await connect_through(outer, upstream.host, upstream.port)
            try:
                secured = await loop.start_tls(transport, made, context, server_hostname=upstream.host)
                if secured is None:
                    raise ConnectionError("the connection was closed during the TLS handshake")
            except BaseException:
                transport.abort()
                raise
            made.connection_made(secured)
        else:
            await loop.create_connection(
                lambda: made,
                upstream.host,
                upstream.port,
                ssl=context,
                happy_eyeballs_delay=HAPPY_EYEBALLS_DELAY,
            )
        return made

    def close_idle(self, now: float) -> None:
        """Close connections that were idle for too long, and forget lost ones."""
        for key, idle in list(self._idle.items()):
            expired = [each for each in idle if each.is_lost or now - each.idle_since > IDLE_SECONDS]
            for each in expired:
                idle.remove(each)
                each.transport.abort()
            if not idle:
                del self._idle[key]

    def close(self) -> None:
        for idle in self._idle.values():
            for each in idle:
                each.transport.abort()
        self._idle.clear()


def _key(upstream: Upstream) -> tuple[str, str, int]:
    return upstream.scheme, upstream.host, upstream.port


@cache
def make_ssl_context() -> ssl.SSLContext:
    """Return the context of all connections. To load the certificates takes some time.

    It trusts what the programs of this environment trust: Python reads `SSL_CERT_FILE` itself.
    """
    context = ssl.create_default_context()
    if not context.get_ca_certs():  # some builds of Python find no certificates of the system
        with suppress(ModuleNotFoundError):
            import certifi

            context.load_verify_locations(certifi.where())
    paths = dict.fromkeys([os.environ.get(each.name, "") for each in client_tables().trust])
    for path in [each for each in paths if each and each != os.environ.get("SSL_CERT_FILE")]:
        with suppress(OSError):  # the program cannot read it, either
            if os.path.isdir(path):
                context.load_verify_locations(capath=path)
            else:
                context.load_verify_locations(path)
    return context


def find_environment_proxy(scheme: str, host: str) -> str | None:
    """Return the URL of the HTTP proxy that the environment names for a host."""
    if proxy_bypass(host):
        return None
    proxies = getproxies()
    return proxies.get(scheme) or proxies.get("all")


class _TunnelOpening(asyncio.Protocol):
    """The opening of a tunnel through an HTTP proxy. Its result is what the other end has sent through it already."""

    def __init__(self) -> None:
        self.opened: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if HEAD_END in self._buffer and not self.opened.done():
            line = STATUS_LINE.fullmatch(self._buffer.partition(b"\r\n")[0])
            if line is not None and line[2].startswith(b"2"):
                self._transport.pause_reading()
                self.opened.set_result(self._buffer.partition(HEAD_END)[2])
            else:
                shown = self._buffer[:100].partition(b"\r\n")[0].decode("latin-1")
                self.opened.set_exception(ConnectionError(f"the proxy of the environment answered {shown!r}"))

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.opened.done():
            self.opened.set_exception(exc or ConnectionError("the proxy of the environment closed the connection"))


async def connect_through(outer: str, host: str, port: int) -> tuple[asyncio.Transport, bytes]:
    """Open a tunnel to a host through the HTTP proxy at a URL. Raise OSError if that fails.

    Return its transport, which does not read yet, and what the host has sent already.
    """
    loop, there = asyncio.get_running_loop(), urlsplit(outer if "://" in outer else f"http://{outer}")
    if there.scheme not in SCHEMES or not there.hostname:
        raise OSError(f"the proxy of the environment must be an http or https URL, got scheme {there.scheme!r}")
    context = make_ssl_context() if there.scheme == "https" else None
    port_there = there.port or SCHEMES[there.scheme]
    transport, tunnel = await loop.create_connection(_TunnelOpening, there.hostname, port_there, ssl=context)
    try:
        target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        login = ""
        if there.username:
            secret = f"{unquote(there.username)}:{unquote(there.password or '')}"
            login = f"Proxy-Authorization: Basic {base64.b64encode(secret.encode()).decode()}\r\n"
        transport.write(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{login}\r\n".encode())
        return transport, await tunnel.opened
    except BaseException:
        transport.abort()
        raise
