"""A running proxy: relay, spool and recorder together. It runs on an event loop, or on a thread of its own."""

import asyncio
import socket
import uuid
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Event, Thread

from contextc.errors import InvalidSetting
from contextc.proxy.access_checks import AccessRules
from contextc.proxy.acting_exchange import ActingExchange, ActingOptions
from contextc.proxy.converting_exchange import ConvertingServer
from contextc.proxy.exchange import Exchange
from contextc.proxy.gap_log import GapLog
from contextc.proxy.proxy_status import ProxyStatus, StatusWriter
from contextc.proxy.recorder_process import RecorderSettings
from contextc.proxy.recorder_supervisor import RecorderSupervisor
from contextc.proxy.relay import ClientConnection, Relay, Timeouts
from contextc.proxy.request_conversion import Conversion
from contextc.proxy.spool import Spool, SpoolLimits, now_ms
from contextc.proxy.spool_folder import find_spool_folder
from contextc.proxy.traffic_summary import TrafficSummary
from contextc.proxy.upstreams import Upstream

BACKLOG = 512
MAX_PORT = 65_535
CLOSE_SECONDS = 30.0
"""Seconds to wait at the end until everything is recorded."""


class ProxyServer:
    """A proxy that records to a store. `store` is its address: another process opens it."""

    def __init__(
        self,
        store: str,
        upstreams: Mapping[str, Upstream],
        *,
        access: AccessRules | None = None,
        redact: tuple[str, ...] = (),
        timeouts: Timeouts | None = None,
        folder: Path | None = None,
        limits: SpoolLimits | None = None,
        acting: ActingOptions | None = None,
    ) -> None:
        if store.startswith("memory:"):
            raise InvalidSetting(
                "The proxy needs a store that other processes can open", got=store, fix="Use sqlite:///FILE."
            )
        self.gaps, self.summary = GapLog(), TrafficSummary()
        spools = folder or find_spool_folder(store, in_memory=bool(redact))
        run = uuid.uuid4().hex
        acting = acting or ActingOptions()
        settings = RecorderSettings(store=store, folder=str(spools), run=run, redact=redact, lints=acting.lints)
        self.recorder = RecorderSupervisor(settings, self.gaps, self.summary.add)
        self.spool = Spool(spools / run, self.gaps, wake=self.recorder.wake, limits=limits)
        self.relay = Relay(
            upstreams,
            self.spool,
            access=access,
            timeouts=timeouts,
            describe=self.describe,
            make_exchange=_exchange_maker(acting, access),
        )
        self.started, self.address = now_ms(), ""
        self._status = StatusWriter(self.spool.folder, self.status)

    def describe(self) -> dict[str, object]:
        """Return what `/contextc/status` shows. It contains no content and no credentials."""
        return {
            "requests": self.relay.requests,
            "spooled": self.spool.count,
            "recorded": self.recorder.recorded,
            "open": self.relay.open_exchanges,
            "actions": self.summary.describe_actions(),
            "gaps": {"count": self.gaps.count, "reasons": self.gaps.counts, "last": self.gaps.last},
            "recorder": {"restarts": self.recorder.restarts, "error": self.recorder.error},
            "upstreams": {name: upstream.url for name, upstream in self.relay.upstreams.items()},
        }

    def status(self) -> ProxyStatus:
        """Return what the web UI shows of this proxy."""
        return ProxyStatus(
            address=self.address,
            started=self.started,
            requests=self.relay.requests,
            recorded=self.recorder.recorded,
            open=self.relay.open_exchanges,
            gaps=self.gaps.counts,
            error=self.recorder.error,
        )

    async def run(
        self, listening: socket.socket, stop: asyncio.Event, ready: Callable[[], None] = lambda: None
    ) -> None:
        """Serve until `stop` is set, then end all exchanges. `ready` is called when requests are accepted."""
        self.address = f"http://{format_address(listening)}"
        self.recorder.start()
        await self.relay.start(listening)
        self._status.start()
        ready()
        await stop.wait()
        await self.relay.stop()

    def close(self, seconds: float = CLOSE_SECONDS) -> bool:
        """Wait until everything is recorded. Return False if it is not; the next proxy with this store records it."""
        self._status.close()
        self.spool.close()
        return self.recorder.close(seconds)

    @contextmanager
    def running(self, listening: socket.socket) -> Generator[str]:
        """Serve on a thread inside the context. Returns the proxy's address."""
        started, loops = Event(), list[tuple[asyncio.AbstractEventLoop, asyncio.Event]]()

        async def serve() -> None:
            stop = asyncio.Event()
            loops.append((asyncio.get_running_loop(), stop))
            await self.run(listening, stop, started.set)

        def run() -> None:
            try:
                asyncio.run(serve())
            finally:
                started.set()

        thread = Thread(target=run, name="contextc-proxy", daemon=True)
        thread.start()
        started.wait()
        try:
            yield self.address
        finally:
            loop, stop = loops[0]
            loop.call_soon_threadsafe(stop.set)
            thread.join()


def _exchange_maker(acting: ActingOptions, access: AccessRules | None) -> Callable[[ClientConnection, bytes], Exchange]:
    if acting.converts_to is None:
        return partial(ActingExchange, acting) if acting.changes else Exchange
    if access is None or not access.token:  # it spends keys of this server
        raise InvalidSetting(
            "Converting requests needs a token, because it uses the key of the server", fix="Pass a token."
        )
    return ConvertingServer(Conversion(acting.converts_to, acting.changes)).make_exchange


def format_address(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket. Port 0 selects a free port."""
    if not 0 <= port <= MAX_PORT:
        raise InvalidSetting(f"port must be 0 to {MAX_PORT}", got=port, fix="Use 0 for any free port.")
    try:
        kind, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(address[:2], family=kind, backlog=BACKLOG)
    except OSError as error:
        raise InvalidSetting(
            f"cannot listen on {host}:{port}: {error.strerror}",
            fix="Use another address or port; 0 selects a free port.",
        ) from error
