"""One model call: the request goes out, the reply comes in piece by piece, and what came is kept whatever happens.

Deltas are journaled and told in batches: what people see is already stored. A reply that comes at once is never
journaled: all of it is in the transaction that commits it.
"""

import asyncio
import random
from collections.abc import Sequence
from contextlib import aclosing

from msgspec.structs import asdict, replace

from contextc._json import JSONObject
from contextc.compiler import Compiled
from contextc.errors import ProviderFailed
from contextc.executor.record import Record
from contextc.executor.threads import durable, settled
from contextc.formats.base import kept
from contextc.messages import AnyPart, Message, Reasoning, Text, ToolCall, Usage
from contextc.providers.endpoint import Call, Endpoint
from contextc.store import chain
from contextc.store.streams import join

FIRST_BATCH, BATCH = 0.03, 0.1
"""Seconds after which what has come is stored: for the first piece, and from then on."""
LARGEST = 1 << 53
UNREADABLE = (KeyError, IndexError, TypeError, ValueError, AttributeError)
"""How it shows that an event is JSON, and nothing that this provider's API sends."""
UNNAMED = "unnamed"
RETRIES = 2
"""How often a call is made again after a failure that may pass."""
BACKOFF, LONGEST_WAIT = 0.5, 60.0


def pause_before(error: ProviderFailed, tries: int) -> float:
    """Seconds to wait before the next try: longer each time, and as long as the provider asks."""
    return max(error.retry_after or 0.0, BACKOFF * 2**tries * (0.5 + random.random()))


def _named(part: AnyPart) -> AnyPart:
    """A call of no tool in particular gets a name, by which it can be answered that there is none of it."""
    return replace(part, name=UNNAMED) if isinstance(part, ToolCall) and not part.name else part


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
                    self._waiting += self._read(event)
                    if self._waiting:
                        self._arrange()
        except ProviderFailed as error:
            if error.kind != "transient" or self.reader.error or not self.reader.finished:
                raise  # else the line was cut when all had been said
        finally:
            await self._settle()
        if not self.reader.finished:
            raise ProviderFailed(compiled.provider.name, "transient", "the stream ended before the reply did")
        return self.message()

    def message(self) -> Message:
        """What has come so far, as it is stored."""
        try:
            said = self.reader.message()
        except UNREADABLE as error:
            raise self._unreadable(error) from error
        message = self.compiled.formatter.spelling.named(replace(said, usage=counted(said.usage)), self.compiled.tools)
        begun = self.beginning
        parts = tuple([_named(part) for part in message.parts])
        message = replace(message, parts=parts, author=begun.author, turn=begun.turn, step=begun.step)
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

    def _read(self, event: JSONObject) -> Sequence[AnyPart]:
        try:
            return self.reader.read(event)
        except UNREADABLE as error:
            self.reader.events.remove(event)  # what came before it is kept
            raise self._unreadable(error) from error

    def _unreadable(self, error: Exception) -> ProviderFailed:
        what = f"what came cannot be read ({type(error).__name__}: {str(error)[:100]})"
        return ProviderFailed(self.compiled.provider.name, "transient", what)

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
        parts, self._waiting = _without_half(list(join(self._waiting)))
        if not parts:
            return
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


def counted(usage: Usage | None) -> Usage | None:
    """The figures of a provider as numbers of tokens, whatever it sent."""
    if usage is None:
        return None
    figures = {name: each for name, each in asdict(usage).items() if isinstance(each, int | float)}
    return Usage(**{name: int(each) for name, each in figures.items() if 0 < each < LARGEST})


def _without_half(parts: list[AnyPart]) -> tuple[list[AnyPart], list[AnyPart]]:
    """What can be told, and the first half of an emoji at its end, which waits for the other."""
    last = parts[-1]
    if not isinstance(last, Text | Reasoning) or not "\ud800" <= last.text[-1:] <= "\udbff":
        return parts, []
    whole, half = replace(last, text=last.text[:-1]), replace(last, text=last.text[-1])
    return [*parts[:-1], *([whole] if whole.text else [])], [half]
