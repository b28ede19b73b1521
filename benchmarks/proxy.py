"""The proxy beside a bare pass-through of TCP bytes: added time before a request and per chunk, and CPU per request.

Client and upstream are in this process, so one clock measures both ways. Each stream sends a request of the given size,
and the upstream writes a chunk with the time at fixed intervals. Bare and proxied rounds alternate; what is printed is
the difference at the median and at the 95th percentile, and the CPU of each process.

    python benchmarks/proxy.py [STREAMS …]
"""

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BODY_BYTES, CHUNKS, INTERVAL = 60_000, 40, 0.005
MIN_ROUNDS, MIN_REQUESTS = 5, 60
HEAD_END = b"\r\n\r\n"
PASS_THROUGH = """
import asyncio, sys
async def copy(reader, writer):
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    finally:
        writer.close()
async def serve(reader, writer):
    there = await asyncio.open_connection("127.0.0.1", int(sys.argv[1]))
    await asyncio.gather(copy(reader, there[1]), copy(there[0], writer), return_exceptions=True)
async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(f"at http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()
asyncio.run(main())
"""


class Measured:
    """Milliseconds of one way: until the request has arrived upstream, and of each chunk to the client."""

    def __init__(self) -> None:
        self.before, self.chunks, self.cpu, self.requests = list[float](), list[float](), 0.0, 0


def milliseconds_since(moment: bytes) -> float:
    return (time.perf_counter_ns() - int(moment)) / 1e6


async def run(streams: int, bare: subprocess.Popen[str], proxy: subprocess.Popen[str], ports: dict[str, int]) -> None:
    results = {"bare": Measured(), "proxy": Measured()}
    recorder = children_cpu(proxy.pid)
    connections = {  # kept for all rounds, so that no way pays for opening them
        name: [await asyncio.open_connection("127.0.0.1", port, limit=1 << 20) for _ in range(streams)]
        for name, port in ports.items()
    }
    for number in range(max(MIN_ROUNDS, MIN_REQUESTS // streams) + 1):
        for name, process in (("bare", bare), ("proxy", proxy)):
            measured = results[name] if number else Measured()  # the first round warms up
            current[0] = measured
            before = cpu_seconds(process.pid)
            await asyncio.gather(*[client(*each, measured) for each in connections[name]])
            measured.cpu += cpu_seconds(process.pid) - before
            measured.requests += streams
            await asyncio.sleep(0.05 + 0.005 * streams)  # the recorder must not disturb the next round
    for _, writer in [each for some in connections.values() for each in some]:
        writer.close()
    one, other = results["bare"], results["proxy"]
    recorder = (children_cpu(proxy.pid) - recorder) / (other.requests + streams) * 1000
    print(f"\n{streams} stream{'s' if streams > 1 else ''}, {CHUNKS} chunks each")
    for title, a, b in (
        ("before the request", one.before, other.before),
        ("per chunk", one.chunks, other.chunks),
    ):
        shown = [f"{share:.0%}: {at(b, share):.2f} - {at(a, share):.2f} = {at(b, share) - at(a, share):+.2f} ms"
                 for share in (0.5, 0.95)]  # fmt: skip
        print(f"  {title:20} {'   '.join(shown)}")
    spent = [each.cpu / each.requests * 1000 for each in (one, other)]
    print(
        f"  CPU per request      {spent[1]:.2f} ms, bare {spent[0]:.2f} ms, ratio {spent[1] / max(spent[0], 1e-9):.1f}"
    )
    print(f"  recorder             {recorder:.2f} ms of CPU per request, in another process")


def at(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


current: list[Measured] = [Measured()]


async def upstream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while head := await reader.readuntil(HEAD_END):
            measured = current[0]
            await reader.readexactly(BODY_BYTES)
            measured.before.append(milliseconds_since(head.partition(b"X-Sent: ")[2].partition(b"\r\n")[0]))
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
            for _ in range(CHUNKS):
                await asyncio.sleep(INTERVAL)
                event = b"data: %d %s\n\n" % (time.perf_counter_ns(), b"x" * 120)
                writer.write(b"%x\r\n%s\r\n" % (len(event), event))
            writer.write(b"0\r\n\r\n")
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
        writer.close()


async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, measured: Measured) -> None:
    body = b'{"model": "claude-opus-5-5", "messages": [{"role": "user", "content": "'
    body += b"x" * (BODY_BYTES - len(body) - 4) + b'"}]}'
    sent = time.perf_counter_ns()
    writer.write(
        b"POST /up/v1/messages HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nX-Sent: %d\r\n"
        b"Content-Length: %d\r\n\r\n%s" % (sent, len(body), body)
    )
    await reader.readuntil(HEAD_END)
    for _ in range(CHUNKS):
        await reader.readuntil(b"data: ")
        measured.chunks.append(milliseconds_since((await reader.readuntil(b" ")).strip()))
    await reader.readuntil(b"0\r\n\r\n")


def cpu_seconds(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def children_cpu(pid: int) -> float:
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text() if os.path.exists(f"/proc/{pid}/task") else ""
    threads = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children")] or [listed]
    return sum([cpu_seconds(int(child)) for each in threads for child in each.split()])


def start(*command: str, cwd: str) -> tuple[subprocess.Popen[str], int]:
    process = subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, text=True, cwd=cwd)
    assert process.stdout is not None
    address = process.stdout.readline()
    return process, int(address.partition("http://127.0.0.1:")[2].split()[0])


async def main() -> None:
    server = await asyncio.start_server(upstream, "127.0.0.1", 0, limit=1 << 20)
    port = server.sockets[0].getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_DATA_HOME"] = folder
        bare, bare_port = start("-c", PASS_THROUGH, str(port), cwd=folder)
        proxy, proxy_port = start(
            "-m", "contextc", "proxy", "--port", "0", "--upstream", f"up=http://127.0.0.1:{port}",
            "--store", "sqlite:///bench.db", cwd=folder,
        )  # fmt: skip
        try:
            for streams in map(int, sys.argv[1:] or ["1", "10", "200"]):
                await run(streams, bare, proxy, {"bare": bare_port, "proxy": proxy_port})
        finally:
            bare.terminate()
            proxy.terminate()
            bare.wait()
            proxy.wait()


asyncio.run(main())
