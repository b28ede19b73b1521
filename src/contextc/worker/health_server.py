"""A small HTTP server of a worker: `/health` for orchestrators, and `/metrics` in the text format of Prometheus."""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

from contextc._json import encode
from contextc.worker.turn_worker import TurnWorker

MAX_LINE = 8_192
REQUEST_SECONDS = 10.0
SILENT_LOOKS = 6
"""Number of looks at the queue that may fail in a row before the worker counts as unhealthy."""
COUNTED = {
    "turns": "Turns that ended, were suspended or were handed over.",
    "failed": "Turns that ended with an error.",
    "handed_over": "Turns that were handed over because the worker stopped.",
    "retried": "Turns that continue later because their provider failed.",
    "rescued": "Jobs that were taken over from silent workers.",
    "parked": "Turns that the worker gave up on.",
}


def is_healthy(worker: TurnWorker) -> bool:
    """Return True if the worker has reached the queue recently."""
    return time.monotonic() - worker.last_contact < max(10.0, worker.options.heartbeat / 2 * SILENT_LOOKS)


def format_metrics(worker: TurnWorker) -> str:
    """Return the metrics of a worker as text."""
    lines = ["# HELP contextc_worker_running Jobs that run now.", "# TYPE contextc_worker_running gauge"]
    lines.append(f"contextc_worker_running {worker.running}")
    lines += ["# HELP contextc_worker_healthy 1 if the queue was reached recently."]
    lines += ["# TYPE contextc_worker_healthy gauge", f"contextc_worker_healthy {int(is_healthy(worker))}"]
    for name, what in COUNTED.items():
        full = f"contextc_worker_{name}_total"
        lines += [f"# HELP {full} {what}", f"# TYPE {full} counter", f"{full} {worker.counts[name]}"]
    return "\n".join(lines) + "\n"


@asynccontextmanager
async def serve_health(worker: TurnWorker, host: str, port: int) -> AsyncGenerator[int]:
    """Serve `/health` and `/metrics` until the block ends. Yields the port."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(TimeoutError, OSError, ValueError, asyncio.IncompleteReadError):
            async with asyncio.timeout(REQUEST_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(_respond(worker, head))
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, host, port, limit=MAX_LINE)
    async with server:
        yield server.sockets[0].getsockname()[1]


def _respond(worker: TurnWorker, head: bytes) -> bytes:
    method, _, rest = head.partition(b" ")
    path = rest.partition(b" ")[0].partition(b"?")[0]
    status, kind, body = "404 Not Found", "text/plain", b"not found\n"
    if method not in (b"GET", b"HEAD"):
        status, body = "405 Method Not Allowed", b"method not allowed\n"
    elif path == b"/health":
        healthy = is_healthy(worker)
        status, kind = "200 OK" if healthy else "503 Service Unavailable", "application/json"
        body = encode({"healthy": healthy, "stopping": worker.is_stopping, "running": worker.running})
    elif path == b"/metrics":
        status, kind, body = "200 OK", "text/plain; version=0.0.4", format_metrics(worker).encode()
    lines = [f"HTTP/1.1 {status}", f"Content-Type: {kind}", f"Content-Length: {len(body)}", "Connection: close"]
    return "\r\n".join([*lines, "", ""]).encode() + (b"" if method == b"HEAD" else body)
