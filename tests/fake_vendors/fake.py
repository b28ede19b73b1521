"""Strict fake of the vendors' APIs, for tests and benchmarks.

    with Standin(Scripted(["Hello!"])) as standin:
        client = anthropic.Anthropic(base_url=standin.url("anthropic"), api_key=KEY, max_retries=0)

`with` serves from a separate thread, `async with` from the running loop. `transport()` needs neither.
"""

import asyncio
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from threading import Thread
from time import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

from tests.fake_vendors.faults import Plan
from tests.fake_vendors.request_handler import Break, RequestHandler
from tests.fake_vendors.responses import RequestRecord
from tests.fake_vendors.scripts import Script
from tests.fake_vendors.server import Server
from tests.fake_vendors.vendor import Memory, vendor

if TYPE_CHECKING:
    from tests.fake_vendors.transport import Transport


class FakeVendors:
    """Fake vendor APIs.

    `window` overrides the model's context window. `strict=False` checks only the key, and estimates tokens from bytes.
    `keep=False` omits the bytes of requests from the records. `clock` returns the time in seconds, by which caches
    expire.
    """

    def __init__(
        self,
        script: Script,
        *,
        faults: Plan | None = None,
        window: int | None = None,
        strict: bool = True,
        keep: bool = True,
        clock: Callable[[], float] = time,
    ) -> None:
        self.desk = RequestHandler(script, faults=faults, window=window, strict=strict, keep=keep, clock=clock)
        self.server = Server(self.desk)
        self.loop: asyncio.AbstractEventLoop | None = None
        self.thread: Thread | None = None
        self.shut = False

    @property
    def records(self) -> list[RequestRecord]:
        """All requests, in order."""
        return self.desk.records

    @property
    def refused(self) -> list[RequestRecord]:
        """Requests that were rejected as invalid."""
        return [record for record in self.desk.records if record.refused]

    @property
    def defects(self) -> list[str]:
        """Mistakes in requests that no vendor rejects, but no client should make."""
        return [defect for record in self.desk.records for defect in record.defects]

    @property
    def spent(self) -> float:
        """Seconds of CPU time for checks and responses, without sending."""
        return self.desk.spent

    def breaks(self) -> list[Break]:
        """Requests that do not extend the previous one of their conversation."""
        return self.desk.breaks()

    def memory(self, name: str) -> Memory:
        """Return the state that a vendor keeps between requests."""
        return self.desk.memory(vendor(name))

    def url(self, name: str = "") -> str:
        """Return the server's URL, or the base URL for a vendor's SDK."""
        return f"http://127.0.0.1:{self.server.port}{vendor(name).root if name else ''}"

    def transport(self) -> "Transport":
        from tests.fake_vendors.transport import Transport  # needs httpx2, which the server does not

        return Transport(self.desk, lambda: self.shut)

    @contextmanager
    def refusing(self) -> Generator[None]:
        """Stop the server inside the context: connections are refused, and open ones are closed."""
        self.shut = True
        self._run(self.server.stop())
        try:
            yield
        finally:
            self._run(self.server.start())
            self.shut = False

    def _run(self, work: Coroutine[object, object, None]) -> None:
        if self.thread is None or self.loop is None:
            work.close()  # only the transport is in use
            return
        asyncio.run_coroutine_threadsafe(work, self.loop).result()

    def __enter__(self) -> Self:
        self.loop = asyncio.new_event_loop()
        self.thread = Thread(target=self.loop.run_forever, name="stand-in", daemon=True)
        self.thread.start()
        self._run(self.server.start())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self.loop is not None
        assert self.thread is not None
        self._run(self.server.stop())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()
        self.loop = self.thread = None

    async def __aenter__(self) -> Self:
        await self.server.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.server.stop()
