"""The proxy beside a bare pass-through of TCP bytes: added time before a request and per chunk, and CPU per request.

Client and upstream are in this process, so one clock measures both ways. Each stream sends a request of the given size,
and the upstream writes an event with the time at fixed intervals. The ways take turns, round by round. What is printed
for the proxy is the difference at the median and at the 95th percentile, and for each way the CPU of its processes.

    python benchmarks/proxy.py [--peers] [--rounds N] [STREAMS …]

With `--peers`, LiteLLM's proxy and mitmproxy are measured in the same rounds, each installed in an environment of its
own the first time. LiteLLM is measured twice: its endpoint /v1/messages, and its pass-through /anthropic/v1/messages.
mitmproxy is a reverse proxy that streams bodies and writes them to a file.
"""

import argparse
import asyncio
import os
import re
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import peers

BODY_BYTES, CHUNKS, INTERVAL = 60_000, 40, 0.005
MIN_ROUNDS, MIN_REQUESTS = 5, 60
START_SECONDS = 120.0
HEAD_END = b"\r\n\r\n"
LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
SENT = re.compile(rb"sent (\d+) ")
TOKEN = f"sk-{secrets.token_hex(32)}"
"""LiteLLM's proxy requires a key of its clients."""
HEADERS = (
    b"Host: 127.0.0.1\r\nContent-Type: application/json\r\nanthropic-version: 2023-06-01\r\n"
    b"Authorization: Bearer %s\r\n" % TOKEN.encode()
)
MODEL = "claude-sonnet-4-5"
BEGIN = (
    '{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","content":[],'
    f'"model":"{MODEL}",'
    '"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":9000,"output_tokens":1}}}',
    '{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}',
)
END = (
    '{"type":"content_block_stop","index":0}',
    '{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":200}}',
    '{"type":"message_stop"}',
)
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
LITELLM = "from litellm.proxy.proxy_cli import run_server; run_server()"
LITELLM_CONFIG = """
model_list:
  - model_name: {model}
    litellm_params: {{model: anthropic/{model}, api_base: "http://127.0.0.1:{port}", api_key: none}}
"""
MITMPROXY = "from mitmproxy.tools.main import mitmdump; mitmdump()"


class Measured:
    """Milliseconds of one way: until the request has arrived upstream, and of each chunk to the client."""

    def __init__(self) -> None:
        self.before, self.chunks, self.cpu, self.requests = list[float](), list[float](), 0.0, 0

    @property
    def cpu_per_request(self) -> float:
        return self.cpu / max(self.requests, 1) * 1000


class Way:
    """A way to the upstream: a process that listens on a port, and the path of requests."""

    def __init__(self, name: str, process: "subprocess.Popen[str]", port: int, path: str) -> None:
        self.name, self.process, self.port, self.path = name, process, port, path


def milliseconds_since(moment: bytes) -> float:
    return (time.perf_counter_ns() - int(moment)) / 1e6


async def run(streams: int, ways: list[Way], rounds: int | None) -> None:
    results = {way.name: Measured() for way in ways}
    proxy = next(way for way in ways if way.name == "proxy")
    recorder = children_cpu(proxy.process.pid)
    connections = {  # kept for all rounds, so that no way pays for opening them
        way.name: [await asyncio.open_connection("127.0.0.1", way.port, limit=1 << 20) for _ in range(streams)]
        for way in ways
    }
    for number in range((rounds or max(MIN_ROUNDS, MIN_REQUESTS // streams)) + 1):
        for way in ways:
            measured = results[way.name] if number else Measured()  # the first round warms up
            current[0] = measured
            before = cpu_seconds(way.process.pid)
            await asyncio.gather(*[client(*each, way.path, measured) for each in connections[way.name]])
            await asyncio.sleep(0.05 + 0.005 * streams)  # what is done afterwards must not disturb the next round
            measured.cpu += cpu_seconds(way.process.pid) - before
            measured.requests += streams
    for _, writer in [each for some in connections.values() for each in some]:
        writer.close()
    one, other = results["bare"], results["proxy"]
    recorder = (children_cpu(proxy.process.pid) - recorder) / (other.requests + streams) * 1000
    print(f"\n{streams} stream{'s' if streams > 1 else ''}, {CHUNKS} chunks each")
    for title, a, b in (
        ("before the request", one.before, other.before),
        ("per chunk", one.chunks, other.chunks),
    ):
        shown = [f"{share:.0%}: {at(b, share):.2f} - {at(a, share):.2f} = {at(b, share) - at(a, share):+.2f} ms"
                 for share in (0.5, 0.95)]  # fmt: skip
        print(f"  {title:20} {'   '.join(shown)}")
    spent = [each.cpu_per_request for each in (one, other)]
    print(
        f"  CPU per request      {spent[1]:.2f} ms, bare {spent[0]:.2f} ms, ratio {spent[1] / max(spent[0], 1e-9):.1f}"
    )
    print(f"  recorder             {recorder:.2f} ms of CPU per request, in another process")
    for name in [way.name for way in ways if way.name not in ("bare", "proxy")]:
        peer = results[name]
        cpu = peer.cpu_per_request
        print(
            f"  {name:20} {cpu:.2f} ms of CPU per request: {cpu / max(spent[1], 1e-9):.1f} times the proxy, "
            f"{cpu / (spent[1] + recorder):.1f} times proxy and recorder; "
            f"before {at(peer.before, 0.5):.2f} ms, chunk {at(peer.chunks, 0.5):.2f} ms (50%)"
        )


def at(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


current: list[Measured] = [Measured()]


def event(data: str) -> bytes:
    kind = data.partition('"type":"')[2].partition('"')[0]
    content = f"event: {kind}\ndata: {data}\n\n".encode()
    return b"%x\r\n%s\r\n" % (len(content), content)


async def upstream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    delta = '{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"@%d@ ' + "x" * 100 + '"}}'
    try:
        while head := await reader.readuntil(HEAD_END):
            measured = current[0]
            found = LENGTH.search(head)
            body = await reader.readexactly(int(found[1]) if found else 0)
            if sent := SENT.search(body):
                measured.before.append(milliseconds_since(sent[1]))
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
            writer.write(b"".join(map(event, BEGIN)))
            for _ in range(CHUNKS):
                await asyncio.sleep(INTERVAL)
                writer.write(event(delta % time.perf_counter_ns()))
            writer.write(b"".join(map(event, END)) + b"0\r\n\r\n")
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
        writer.close()


async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str, measured: Measured) -> None:
    body = b'{"model": "%s", "max_tokens": 1000, "stream": true, "messages": [{"role": "user", "content": "sent %d ' % (
        MODEL.encode(), time.perf_counter_ns(),
    )  # fmt: skip
    body += b"x" * (BODY_BYTES - len(body) - 4) + b'"}]}'
    writer.write(b"POST %s HTTP/1.1\r\n%sContent-Length: %d\r\n\r\n%s" % (path.encode(), HEADERS, len(body), body))
    head = await reader.readuntil(HEAD_END)
    if not head.startswith(b"HTTP/1.1 200"):
        raise SystemExit(f"{path}: {head.decode()}{(await reader.read(2000)).decode()}")
    for _ in range(CHUNKS):
        await reader.readuntil(b"@")
        measured.chunks.append(milliseconds_since((await reader.readuntil(b"@"))[:-1]))
    await reader.readuntil(b"\r\n0\r\n\r\n")


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


@contextmanager
def started(*command: str, cwd: str) -> Generator[tuple["subprocess.Popen[str]", int]]:
    """Run a process of this Python that prints its address."""
    process = subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, text=True, cwd=cwd)
    try:
        assert process.stdout is not None
        address = process.stdout.readline()
        yield process, int(address.partition("http://127.0.0.1:")[2].split()[0])
    finally:
        process.terminate()
        process.wait()


@contextmanager
def started_peer(name: str, *command: str, cwd: str, port: int) -> Generator["subprocess.Popen[str] | None"]:
    """Run a peer from its own environment, until it listens on the port. None if it cannot be installed."""
    python = peers.proxy_interpreter(name)
    if python is None:
        print(f"{name} could not be installed.")
        yield None
        return
    quiet = {**os.environ, "HOME": cwd, "LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "ERROR"}
    quiet["LITELLM_MASTER_KEY"] = TOKEN
    with open(Path(cwd) / f"{name}.log", "w") as log:
        process = subprocess.Popen([python, *command], stdout=log, stderr=log, text=True, cwd=cwd, env=quiet)
        try:
            end = time.monotonic() + START_SECONDS
            while not is_listening(port):
                if process.poll() is not None or time.monotonic() > end:
                    raise SystemExit(f"{name} did not start: {Path(log.name).read_text()[-2000:]}")
                time.sleep(0.2)
            print(f"{name} {peers.version(name.partition('-')[0], python)}")
            yield process
        finally:
            process.terminate()
            process.wait()


def is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return found.getsockname()[1]


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("streams", nargs="*", type=int, default=[1, 10, 200])
    parser.add_argument("--peers", action="store_true", help="measure LiteLLM's proxy and mitmproxy beside")
    parser.add_argument("--rounds", type=int, help="the number of rounds, for short runs")
    given = parser.parse_args()
    server = await asyncio.start_server(upstream, "127.0.0.1", 0, limit=1 << 20)
    port = server.sockets[0].getsockname()[1]
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        os.environ["XDG_DATA_HOME"] = folder
        bare, bare_port = stack.enter_context(started("-c", PASS_THROUGH, str(port), cwd=folder))
        proxy, proxy_port = stack.enter_context(
            started(
                "-m", "contextc", "proxy", "--no-token", "--port", "0", "--upstream", f"up=http://127.0.0.1:{port}",
                "--store", "sqlite:///bench.db", cwd=folder,
            )
        )  # fmt: skip
        ways = [Way("bare", bare, bare_port, "/v1/messages"), Way("proxy", proxy, proxy_port, "/up/v1/messages")]
        if given.peers:
            ways += start_peers(stack, folder, port)
        for streams in given.streams:
            await run(streams, ways, given.rounds)


def start_peers(stack: ExitStack, folder: str, port: int) -> list[Way]:
    ways: list[Way] = []
    config = Path(folder) / "litellm.yaml"
    config.write_text(LITELLM_CONFIG.format(model=MODEL, port=port))
    os.environ["ANTHROPIC_API_BASE"], os.environ["ANTHROPIC_API_KEY"] = f"http://127.0.0.1:{port}", "none"
    own = free_port()
    options = ["--config", str(config), "--host", "127.0.0.1", "--port", str(own), "--telemetry", "False",
               "--keepalive_timeout", "600"]  # fmt: skip
    litellm = stack.enter_context(started_peer("litellm-proxy", "-c", LITELLM, *options, cwd=folder, port=own))
    if litellm is not None:
        ways.append(Way("litellm", litellm, own, "/v1/messages"))
        ways.append(Way("litellm pass-through", litellm, own, "/anthropic/v1/messages"))
    own = free_port()
    options = ["--mode", f"reverse:http://127.0.0.1:{port}", "--listen-host", "127.0.0.1", "--listen-port", str(own),
               "--quiet", "--set", "stream_large_bodies=1", "--set", "store_streamed_bodies=true",
               "--set", f"confdir={folder}/mitmproxy", "-w", f"{folder}/flows"]  # fmt: skip
    mitmproxy = stack.enter_context(started_peer("mitmproxy", "-c", MITMPROXY, *options, cwd=folder, port=own))
    if mitmproxy is not None:
        ways.append(Way("mitmproxy", mitmproxy, own, "/v1/messages"))
    return ways


asyncio.run(main())
