"""`contextc serve` with 1,000 idle event streams, and with 1,100 connections that never finish their request.

Idle streams must cost next to nothing, whether they follow a few conversations or each its own. Half-open connections
must not keep out a client that has the token. `--streams` and `--half-open` say how many.
"""

import argparse
import asyncio
import os
import resource
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import contextc as cc

TOKEN = "a-token-for-this-run-only"
MOST_CPU = 0.10
"""The share of a core that idle streams may take, besides what the server takes without them."""
SLOWEST = 1.0
"""Seconds within which a request is answered all the while."""


class Server:
    def __init__(self, process: "subprocess.Popen[bytes]", port: int) -> None:
        self.process, self.port = process, port

    def cpu(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def threads(self) -> int:
        return len(list(Path(f"/proc/{self.process.pid}/task").iterdir()))

    def ask(self, path: str = "/api/conversations") -> float:
        """Return how many seconds an authenticated request takes."""
        began = time.monotonic()
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}", headers={"Authorization": f"Bearer {TOKEN}"}
        )
        with urllib.request.urlopen(request, timeout=10) as answer:
            assert answer.status == 200
            answer.read()
        return time.monotonic() - began

    async def slowest(self, times: int, pause: float) -> float:
        found: list[float] = []
        for _ in range(times):
            found.append(await asyncio.to_thread(self.ask))
            await asyncio.sleep(pause)
        return max(found)


@contextmanager
def serving(files: int) -> Generator[Server]:
    """Run a server whose limit of open files is `files`."""
    with tempfile.TemporaryDirectory(prefix="contextc-stress-") as folder:
        store = f"sqlite:///{folder}/chat.db"
        with cc.open_store(store) as handle:
            for number in range(1_000):
                handle.append(f"c{number}", cc.user("hi"))
        environment = {**os.environ, "HOME": folder, "CONTEXTC_TOKEN": TOKEN}
        process = subprocess.Popen(
            [sys.executable, "-m", "contextc", "serve", "--port", "0", "--no-open", "--store", store],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (files, files)),
        )
        assert process.stdout is not None
        try:
            line = process.stdout.readline().decode()
            yield Server(process, int(line.partition("127.0.0.1:")[2].partition("/")[0]))
        finally:
            process.terminate()
            process.wait(60)


async def streams(server: Server, count: int, conversations: int) -> bool:
    """Hold idle event streams open and measure what they cost."""

    async def measured() -> tuple[float, float]:
        began, before = time.monotonic(), server.cpu()
        slowest = await server.slowest(10, 0.3)
        return (server.cpu() - before) / (time.monotonic() - began), slowest

    async def drained(reader: asyncio.StreamReader) -> None:
        while await reader.read(65_536):
            pass

    without, _ = await measured()
    held: list[asyncio.StreamWriter] = []
    tasks: list[asyncio.Task[None]] = []
    for number in range(count):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        name = f"c{number % conversations}"
        writer.write(
            f"GET /api/conversations/{name}/events?after=0 HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n"
            f"Authorization: Bearer {TOKEN}\r\n\r\n".encode()
        )
        held.append(writer)
        tasks.append(asyncio.create_task(drained(reader)))
    await asyncio.sleep(3)
    share, slowest = await measured()
    closed = sum(task.done() for task in tasks)
    threads = server.threads()
    for writer in held:
        writer.close()
    for task in tasks:
        task.cancel()
    print(
        f"{count:,} idle streams on {conversations:,} conversations: {share:.0%} of a core ({without:.0%} without), "
        f"{threads} threads, slowest request {slowest * 1000:.0f} ms, {closed} closed"
    )
    return share - without <= MOST_CPU and slowest <= SLOWEST and not closed


async def half_open(server: Server, count: int) -> bool:
    """Hold requests open that never end, and ask in between."""
    held: list[asyncio.StreamWriter] = []
    for _ in range(count):
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"GET /api/info HTTP/1.1\r\nHost: 127.0.0.1\r\nX-A: ")
        held.append(writer)
    slowest = await server.slowest(10, 0.1)
    for writer in held:
        writer.close()
    print(f"{count:,} half-open connections, 1,024 files: slowest request {slowest * 1000:.0f} ms")
    return slowest <= SLOWEST


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--streams", type=int, default=1_000)
    asked.add_argument("--half-open", type=int, default=1_100)
    given = asked.parse_args()
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    fine: list[bool] = []
    with serving(most) as server:
        fine += [asyncio.run(streams(server, given.streams, conversations)) for conversations in (20, 1_000)]
    with serving(1_024) as server:
        fine.append(asyncio.run(half_open(server, given.half_open)))
    return 0 if all(fine) else 1


if __name__ == "__main__":
    sys.exit(main())
