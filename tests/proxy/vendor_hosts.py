"""Hosts of vendors on loopback: an HTTP proxy that leads connections to them to a stand-in, over TLS.

It is the user's own proxy for a program, and the next hop of `contextc watch`. So a program can be run with and without
`watch`, and sends its requests to the same names. `certificate` is what a user of these hosts must trust.
"""

import asyncio
import ssl
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Thread
from types import TracebackType
from typing import Any, NamedTuple, Self

from contextc.proxy.certificates import CertificateAuthority
from contextc.proxy.http1_framing import HEAD_END, parse_head
from tests.proxy.byte_taps import MessageReader, WireMessage

READ_SIZE = 65_536


class Opened(NamedTuple):
    """A request for a tunnel: the host with its port, and the credentials for the proxy."""

    place: str
    login: bytes


class VendorHosts:
    """The hosts. Connections to them go to `port` on loopback; those to `passed` go there as they are."""

    def __init__(self, hosts: Sequence[str], port: int, passed: dict[str, int] | None = None) -> None:
        self.authority = CertificateAuthority(hosts)
        self.hosts, self.target, self.passed = hosts, port, passed or {}
        self.opened: list[Opened] = []
        self._readers: list[MessageReader] = []
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="vendor-hosts", daemon=True)

    @property
    def requests(self) -> list[WireMessage]:
        """All requests as they arrived, with all header lines."""
        return [message for reader in self._readers for message in reader.messages]

    @property
    def url(self) -> str:
        return f"http://user:a%20secret@127.0.0.1:{self._port}"

    def write_certificate(self, folder: Path) -> str:
        """Write the certificate to a file, and return its path."""
        path = folder / "vendors.pem"
        path.write_text(self.authority.certificate)
        return str(path)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = None
        try:
            head = parse_head((await reader.readuntil(HEAD_END)).removesuffix(HEAD_END))
            place = head.start.split()[1].decode()
            self.opened.append(Opened(place, head.value(b"proxy-authorization")))
            host = place.rpartition(":")[0]
            if host not in self.hosts and place not in self.passed:
                writer.write(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")
                return
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
            await writer.drain()
            if host in self.hosts:
                await writer.start_tls(self.authority.server_context(host))
            there = await asyncio.open_connection("127.0.0.1", self.passed.get(place, self.target))
            kept = MessageReader(False, ())
            if host in self.hosts:
                self._readers.append(kept)
            await asyncio.gather(
                self._copy(reader, there[1], kept if host in self.hosts else None), self._copy(there[0], writer, None)
            )
        except (OSError, ssl.SSLError, asyncio.IncompleteReadError):
            pass
        finally:
            for each in [writer, *([there[1]] if there else [])]:
                each.close()

    async def _copy(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, messages: MessageReader | None
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(READ_SIZE):
                if messages is not None:
                    messages.feed(data)
                writer.write(data)
                await writer.drain()
        writer.close()

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self._port = self._server.sockets[0].getsockname()[1]

    async def _stop(self) -> None:
        self._server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)  # transports close in the next iteration

    def __enter__(self) -> Self:
        self._thread.start()
        self._run(self._start())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._run(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
