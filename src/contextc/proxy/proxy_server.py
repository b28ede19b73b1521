"""A running proxy: relay, spool and recorder together. It runs on an event loop, or on a thread of its own."""

import asyncio
import os
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from threading import Condition, Event, Thread

import msgspec
from msgspec.structs import replace

from contextc.errors import InvalidSetting
from contextc.proxy.access_checks import AccessRules
from contextc.proxy.acting_exchanges import ActingExchange, ActingOptions, ConvertingServer
from contextc.proxy.forward_proxy import ForwardProxy
from contextc.proxy.proxy_status import ProxyStatus, StatusWriter, TrafficSummary
from contextc.proxy.recorder_process import RecordedExchange, RecorderEvent, RecorderSettings
from contextc.proxy.relay import ClientConnection, Relay, RelayedExchange, Timeouts
from contextc.proxy.request_conversion import Conversion
from contextc.proxy.spool import GapLog, Spool, SpoolLimits, find_spool_folder, now_ms
from contextc.proxy.upstreams import Upstream

# ── the recorder process ──────────────────────────────────────────────────────────────────────────────────────────────
# Starts the recorder process, and starts it again with growing pauses if it ends early.


BACK_OFF = (0.1, 0.5, 2.0, 10.0, 30.0)
HEALTHY_SECONDS = 60.0
"""Seconds after which a recorder counts as healthy, so that it is started again at once. So does one that recorded."""
MAX_CRASHES = 3
"""Crashes on the same exchange after which it is left out."""
MAX_LATEST = 1_000
"""Number of exchanges that are known to be read. A recorder that is started again reads the last one again."""
_decode_event = msgspec.json.Decoder(RecorderEvent).decode


class RecorderSupervisor:
    """The recorder of one proxy. `on_recorded` is called once per exchange, on a thread of the supervisor."""

    def __init__(
        self, settings: RecorderSettings, gaps: GapLog, on_recorded: Callable[[RecordedExchange], None]
    ) -> None:
        self.settings, self.gaps, self.on_recorded = settings, gaps, on_recorded
        self.restarts, self.recorded, self.error = 0, 0, ""
        self._seen, self._latest = 0, dict[str, None]()
        self._reading, self._crashes = "", dict[str, int]()
        self._changed = Condition()
        self._process: subprocess.Popen[bytes] | None = None
        self._is_closing = self._is_finished = False
        self._thread = Thread(target=self._run, name="contextc-recorder", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    def wake(self) -> None:
        """Tell the recorder that there are new frames. It looks for itself after a second, so this may fail."""
        process = self._process
        if process is not None and process.stdin is not None:
            with suppress(OSError, ValueError):
                process.stdin.write(b"\n")

    def wait_for(self, exchanges: int, seconds: float) -> bool:
        """Wait until so many exchanges were read by the recorder. Return False after the time."""
        with self._changed:
            return self._changed.wait_for(lambda: self._seen >= exchanges, seconds)

    def close(self, seconds: float) -> bool:
        """Wait until everything is recorded; the spool must be closed. Return False if it takes longer.

        Then the recorder is left to itself: it finishes, or the next proxy with this store does.
        """
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        self.wake()
        self._thread.join(seconds)
        if self._thread.is_alive() and (process := self._process) is not None and process.stdin is not None:
            with suppress(OSError):
                process.stdin.close()
        return self._is_finished

    # ── the supervisor's thread ───────────────────────────────────────────────────────────────────────────────────────

    def _run(self) -> None:
        attempt = 0
        while True:
            began, seen = time.monotonic(), self._seen
            code = self._run_process()
            if code == 0:
                self._is_finished = True
                return
            self.error = self.error or f"The recorder ended with exit code {code}"
            if self._reading:
                crashes = self._crashes[self._reading] = self._crashes.get(self._reading, 0) + 1
                if crashes >= MAX_CRASHES:
                    self.settings = replace(self.settings, skip=(*self.settings.skip, self._reading))
            if self._seen > seen or time.monotonic() - began > HEALTHY_SECONDS:
                attempt = 0
            with self._changed:
                self._changed.wait_for(lambda: self._is_closing, BACK_OFF[min(attempt, len(BACK_OFF) - 1)])
                if self._is_closing and attempt >= MAX_CRASHES:
                    return
            attempt += 1
            self.restarts += 1

    def _run_process(self) -> int:
        """Run a recorder until it ends, and return its exit code."""
        try:
            process = subprocess.Popen(
                [sys.executable, "-m", "contextc.proxy.recorder_process"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                start_new_session=True,  # signals of the terminal are for the observed program
            )
        except OSError as error:
            self.error = f"The recorder cannot be started: {error}"
            return 1
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(OSError):
            process.stdin.write(msgspec.json.encode(self.settings) + b"\n")
            os.set_blocking(process.stdin.fileno(), False)  # the spool never waits for a recorder that does not read
        self._process, self._reading = process, ""
        with process.stdout as lines:
            for line in iter(lines.readline, b""):
                with suppress(msgspec.DecodeError):  # a line that a killed process did not finish
                    self._handle(_decode_event(line))
        code = process.wait()
        self._process = None
        with suppress(OSError):
            process.stdin.close()
        return code

    def _handle(self, event: RecorderEvent) -> None:
        if event.reading:
            self._reading = event.reading  # it may be another try: an error stays until something was recorded
        else:
            self.error = event.error
        if event.done is None:
            return
        self._reading = ""
        done = event.done
        with self._changed:
            if done.exchange in self._latest:
                return
            self._seen += 1
            self._latest[done.exchange] = None
            if len(self._latest) > MAX_LATEST:
                del self._latest[next(iter(self._latest))]
        if done.problem:
            if done.is_gap:
                self.gaps.add(done.time, done.problem)
        else:
            self.recorded += 1
            self.on_recorded(done)
        with self._changed:
            self._changed.notify_all()


# ── the server ────────────────────────────────────────────────────────────────────────────────────────────────────────


BACKLOG = 512
MAX_PORT = 65_535
CLOSE_SECONDS = 30.0
"""Seconds to wait at the end until everything is recorded."""


class ProxyServer:
    """A proxy that records to a store. `store` is its address: another process opens it. `directory` is where its one
    client works. With `forward`, it is also a forward proxy.
    """

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
        directory: str = "",
        forward: ForwardProxy | None = None,
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
            make_client=forward.make_client if forward is not None else None,
            directory=directory,
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
        host, port = listening.getsockname()[:2]
        self.address = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        await self.relay.start(listening)
        ready()
        self.recorder.start()  # its process starts beside what uses the proxy
        self._status.start()
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


def _exchange_maker(
    acting: ActingOptions, access: AccessRules | None
) -> Callable[[ClientConnection, bytes], RelayedExchange]:
    if acting.converts_to is None:
        return partial(ActingExchange, acting) if acting.changes else RelayedExchange
    if access is None or not access.token:  # it spends keys of this server
        raise InvalidSetting(
            "Converting requests needs a token, because it uses the key of the server", fix="Pass a token."
        )
    return ConvertingServer(Conversion(acting.converts_to, acting.changes)).make_exchange


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
