"""One model call: the request goes out, the reply comes in piece by piece, and what came is kept whatever happens.

Deltas are journaled and told in batches: what people see is already stored. A reply that comes at once is never
journaled: all of it is in the transaction that commits it.
"""

import asyncio
from contextlib import aclosing

from msgspec.structs import replace

from contextc.compiler import Compiled
from contextc.errors import ProviderFailed
from contextc.executor.record import Record
from contextc.executor.threads import durable, settled
from contextc.formats.base import kept
from contextc.messages import AnyPart, Message
from contextc.providers.endpoint import Call, Endpoint
from contextc.store import chain
from contextc.store.streams import join

FIRST_BATCH, BATCH = 0.03, 0.1
"""Seconds after which what has come is stored: for the first piece, and from then on."""


class Incoming:
    """A reply on its way: what came, what of it is journaled, and what is left for the commit."""

    def __init__(self, record: Record, compiled: Compiled, step: int) -> None:
        self.record, self.compiled = record, compiled
        self.reader = compiled.formatter.reader()
        self.beginning = Message(
            role="assistant",
            author=record.agent,
            uid=chain.new_uid(),
            turn=record.turn.number,
            step=step,
            status="pending",
            time=chain.now_ms(),
        )
        self._waiting: list[AnyPart] = []
        self._batches = 0
        self._timer: asyncio.TimerHandle | None = None
        self._flushing: asyncio.Task[None] | None = None

    @property
    def has_begun(self) -> bool:
        """Whether the model has said anything."""
        return bool(self._waiting or self._batches)

    @property
    def stream(self) -> str:
        """The name of its journal; empty where it has none."""
        return self.beginning.uid if self._batches else ""

    async def receive(self, endpoint: Endpoint) -> Message:
        """Send the request, and return the whole reply. Raises `ProviderFailed`."""
        compiled = self.compiled
        call = Call(provider=compiled.provider, body=compiled.body, arguments=lambda: compiled.arguments)
        try:
            async with aclosing(endpoint.stream(call)) as events:
                async for event in events:
                    self._waiting += self.reader.read(event)
                    if self._waiting:
                        self._arrange()
        finally:
            await self._settle()
        if not self.reader.finished:
            raise ProviderFailed(compiled.provider.name, "transient", "the stream ended before the reply did")
        return self.message()

    def message(self) -> Message:
        """What has come so far, as it is stored."""
        message = self.compiled.formatter.spelling.named(self.reader.message(), self.compiled.tools)
        begun = self.beginning
        message = replace(message, author=begun.author, turn=begun.turn, step=begun.step)
        return replace(message, uid=begun.uid, time=begun.time) if self._batches else message

    def rest(self) -> list[AnyPart]:
        """What was not journaled."""
        return list(join(self._waiting))

    def session(self, message: Message) -> str | None:
        """The session that the reply belongs to, where it is the reply's own id that names it."""
        if not self.compiled.provider.session_field:
            return None
        name = kept(message.extra, self.compiled.formatter.place).get("id")
        return name if isinstance(name, str) and name else None

    def _arrange(self) -> None:
        """See to it that what waits is journaled soon."""
        if self._flushing is not None and self._flushing.done():
            task, self._flushing = self._flushing, None
            task.result()
        if self._timer is None and self._flushing is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(BATCH if self._batches else FIRST_BATCH, self._start)

    def _start(self) -> None:
        self._timer = None
        if self._flushing is None and self._waiting:
            self._flushing = asyncio.get_running_loop().create_task(self._flush())

    async def _flush(self) -> None:
        parts, self._waiting = list(join(self._waiting)), []
        number, self._batches = self._batches, self._batches + 1
        await durable(self.record.journal, self.beginning, number, parts)

    async def _settle(self) -> None:
        """Let a journaling that has begun come to its end, and begin no other."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._flushing is not None:
            task, self._flushing = self._flushing, None
            await settled(task)
            task.result()
