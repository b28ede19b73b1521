"""Server on loopback that sends given responses and records the received bytes."""

import asyncio
from collections.abc import AsyncGenerator, Generator, Iterable
from contextlib import asynccontextmanager, contextmanager
from queue import Queue
from threading import Thread
from typing import NamedTuple

from contextc._json import JSONObject, encode


class Answer(NamedTuple):
    """A response. `then` selects its end: complete, a broken connection, or silence."""

    pieces: tuple[bytes, ...] = ()
    status: int = 200
    headers: tuple[tuple[str, str], ...] = (("content-type", "text/event-stream"),)
    then: str = "end"


class Arrived(NamedTuple):
    path: str
    headers: dict[str, str]
    body: bytes
    connection: int


class Loopback:
    def __init__(self, answers: Iterable[Answer]) -> None:
        self.answers = list(answers)
        self.arrived: list[Arrived] = []
        self.hung_up = asyncio.Event()
        self.url = ""
        self.open: list[tuple[asyncio.Task[None], asyncio.StreamWriter]] = []

    def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = len(self.open) + 1
        self.open.append((asyncio.create_task(self._serve(reader, writer, number)), writer))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
        try:
            while (head := await reader.readuntil(b"\r\n\r\n")) and self.answers:
                await self._answer(head.decode(), reader, writer, number)
        except (asyncio.IncompleteReadError, ConnectionError):
            self.hung_up.set()
        finally:
            writer.close()

    async def _answer(self, head: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
        first, *lines = head.strip().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        self.arrived.append(Arrived(first.split(" ")[1], headers, body, number))
        answer = self.answers.pop(0)
        extra = "".join(f"{name}: {value}\r\n" for name, value in answer.headers)
        writer.write(f"HTTP/1.1 {answer.status} X\r\n{extra}transfer-encoding: chunked\r\n\r\n".encode())
        for piece in answer.pieces:
            writer.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
            await writer.drain()
        if answer.then == "cut":
            writer.close()
            raise ConnectionError
        if answer.then == "silence":
            await reader.readexactly(1)  # until the client disconnects
        writer.write(b"0\r\n\r\n")
        await writer.drain()


@asynccontextmanager
async def loopback(*answers: Answer) -> AsyncGenerator[Loopback, None]:
    made = Loopback(answers)
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield made
    finally:
        server.close()
        for _, writer in made.open:
            writer.close()
        await asyncio.gather(*[task for task, _ in made.open])


@contextmanager
def loopback_in_a_thread(*answers: Answer) -> Generator[str, None, None]:
    """Return the URL of a server that outlives the event loops of its clients."""
    result: Queue[tuple[str, asyncio.AbstractEventLoop, asyncio.Event]] = Queue()

    async def serve() -> None:
        over = asyncio.Event()
        async with loopback(*answers) as server:
            result.put((server.url, asyncio.get_running_loop(), over))
            await over.wait()

    thread = Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    url, loop, over = result.get(timeout=60)
    try:
        yield url
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join(60)


def refused(status: int, body: JSONObject | str, **headers: str) -> Answer:
    content = body.encode() if isinstance(body, str) else encode(body)
    named = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    return Answer((content,), status, (("content-type", "application/json"), *named))
