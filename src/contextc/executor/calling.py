"""One model call: the request goes out, the reply comes in piece by piece, and what came is kept whatever happens.

Deltas are journaled and told in batches: what people see is already stored. A reply that comes at once is never
journaled: all of it is in the transaction that commits it. A provider that runs tools by itself answers with several
messages; they are journaled as one, results among its parts, and told as what they are.
"""

import asyncio
import random
from collections.abc import Sequence
from contextlib import aclosing
from itertools import groupby
from operator import itemgetter
from time import monotonic

from msgspec.structs import asdict, replace

from contextc._json import JSONObject
from contextc.compiler import Compiled
from contextc.errors import ProviderFailed
from contextc.executor.record import Record
from contextc.executor.threads import durable, settled
from contextc.executor.writing import Piece
from contextc.messages import AnyPart, Message, Reasoning, Text, ToolCall, ToolResult, Usage, tool_result
from contextc.pairing import open_calls
from contextc.providers.endpoint import Call, Endpoint, Host
from contextc.store import chain
from contextc.store.streams import join

FIRST_BATCH, BATCH = 0.03, 0.1
"""Seconds after which what has come is stored: for the first piece, and from then on."""
REST, LONGEST_REST = 2, 1.0
"""A store that takes its time is left alone for so many times as long, and for so many seconds at most: where hundreds
stream at once, each of them writes less often, and whoever begins is not kept waiting by them.
"""
MANY_EVENTS = 2_000
"""How many events of a reply are read before others get their turn on the event loop."""
LARGEST = 1 << 53
UNREADABLE = (KeyError, IndexError, TypeError, ValueError, AttributeError)
"""How it shows that an event is JSON, and nothing that this provider's API sends."""
UNNAMED = "unnamed"
UNENDED = "No result: this was still running when the reply ended."
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

    def __init__(self, record: Record, compiled: Compiled, step: int, *, directory: str = "") -> None:
        self.record, self.compiled, self.directory = record, compiled, directory
        self.reader = compiled.formatter.reader()
        self.beginning = Message(
            role="assistant",
            author=record.agent,
            run=record.run,
            uid=chain.new_uid(),
            turn=record.turn.number,
            step=step,
            status="pending",
            time=chain.now_ms(),
            finish="tool_calls" if compiled.provider.runs_tools else None,  # for whoever finds it broken off
        )
        self._uids = {0: self.beginning.uid}
        self._at, self._answered, self.hosted = 0, False, False
        self._waiting: list[Piece] = []
        self._batches, self._took = 0, 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._flushing: asyncio.Task[None] | None = None

    @property
    def has_begun(self) -> bool:
        """Whether the model has said anything, or had a tool of ours run."""
        return bool(self._waiting or self._batches or self.hosted)

    @property
    def stream(self) -> str:
        """The name of its journal; empty where it has none."""
        return self.beginning.uid if self._batches else ""

    async def receive(self, endpoint: Endpoint, host: Host | None = None) -> list[Message]:
        """Send the request, and return the whole reply. Raises `ProviderFailed`."""
        compiled = self.compiled
        call = Call(
            provider=compiled.provider,
            body=compiled.body,
            arguments=lambda: compiled.arguments,
            conversation=compiled.channel.conversation,
            session=compiled.session_id or "",
            cursor=compiled.cursor,
            revert=compiled.revert is not None,
            opening=lambda: {} if compiled.replaced else compiled.opening,
            directory=compiled.channel.directory or self.directory,
            host=Orderly(self, host) if host is not None else None,
        )
        try:
            async with aclosing(endpoint.stream(call)) as events:
                async for event in events:
                    self._take(self._read(event))
                    if self._waiting:
                        self._arrange()
                    if not len(self.reader.events) % MANY_EVENTS:  # they may come without a pause
                        await asyncio.sleep(0)
        except ProviderFailed as error:
            if error.kind != "transient" or self.reader.error or not self.reader.finished:
                raise  # else the line was cut when all had been said
        finally:
            await self._settle()
        if not self.reader.finished:
            raise ProviderFailed(compiled.provider.name, "transient", "the stream ended before the reply did")
        is_long = len(self.reader.events) > MANY_EVENTS
        messages = await durable(self.messages) if is_long else self.messages()
        return whole_reply(messages) if compiled.provider.runs_tools else messages

    async def told(self) -> None:
        """Come back when what has come so far is stored, and people were told of it."""
        for _ in range(2):  # what is being stored, then what has come since
            if self._flushing is not None:
                await asyncio.wait({self._flushing})
            self._arrange()
            if self._timer is not None:
                self._timer.cancel()
                self._start()

    def messages(self) -> list[Message]:
        """What has come so far, as it is stored; the last one is the final answer, if that has come."""
        try:
            said = self.reader.messages()
        except UNREADABLE as error:
            raise self._unreadable(error) from error
        found: list[Message] = []
        replies = 0
        for message in said:
            message = self._stamped(message)
            if message.role == "assistant":
                place = self.reader.begun[replies] if self.reader.begun else replies
                if self._batches and place in self._uids:
                    message = replace(message, uid=self._uids[place], time=self.beginning.time)
                replies += 1
            found.append(message)
        return found

    def _stamped(self, said: Message) -> Message:
        message = self.compiled.formatter.spelling.named(replace(said, usage=counted(said.usage)), self.compiled.tools)
        begun = self.beginning
        parts = tuple([_named(part) for part in message.parts])
        return replace(message, parts=parts, author=begun.author, run=begun.run, turn=begun.turn, step=begun.step)

    def rest(self) -> list[Piece]:
        """What was not journaled."""
        return _joined(self._waiting)

    @property
    def session(self) -> str | None:
        """The session that the reply belongs to."""
        return (self.reader.session or None) if self.compiled.provider.session_resumption else None

    def _take(self, parts: Sequence[AnyPart]) -> None:
        """Parts that came, each with the name of the message it belongs to. The reader says so; else another one begins
        after results.
        """
        for part in parts:
            is_result = isinstance(part, ToolResult)
            if self.reader.at is not None:
                self._at = self.reader.at
            elif self._answered and not is_result:
                self._at += 1
            self._answered = is_result
            if self._at not in self._uids:
                self._uids[self._at] = chain.new_uid()
            self._waiting.append((self._uids[self._at], part))

    def _read(self, event: JSONObject) -> Sequence[AnyPart]:
        try:
            return self.reader.read(event)
        except UNREADABLE as error:
            if self.reader.events and self.reader.events[-1] is event:
                self.reader.events.pop()  # what came before it is kept
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
            rest = max(BATCH, min(LONGEST_REST, REST * self._took))
            self._timer = loop.call_later(rest if self._batches else FIRST_BATCH, self._start)

    def _start(self) -> None:
        self._timer = None
        if self._flushing is None and self._waiting:
            self._flushing = asyncio.get_running_loop().create_task(self._flush())
            self._flushing.add_done_callback(self._flushed)

    def _flushed(self, task: asyncio.Task[None]) -> None:
        """What came while the journal was written does not wait for the next piece, which may take long."""
        is_well = not task.cancelled() and task.exception() is None
        if task is self._flushing and is_well and self._waiting and _without_half(_joined(self._waiting))[0]:
            self._arrange()

    async def _flush(self) -> None:
        pieces, self._waiting = _without_half(_joined(self._waiting))
        if not pieces:
            return
        number, self._batches = self._batches, self._batches + 1
        began = monotonic()
        try:
            await durable(self.record.journal, self.beginning, number, pieces)
        except Exception:
            self._waiting[:0] = pieces  # they are told with the end, if that can be written
            raise
        self._took = monotonic() - began

    async def _settle(self) -> None:
        """Let a journaling that has begun come to its end, and begin no other."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._flushing is not None:
            task, self._flushing = self._flushing, None
            await settled(task)
            task.result()


class Orderly:
    """A host who is asked for something in the middle of a reply after people have seen what came before it."""

    def __init__(self, incoming: Incoming, host: Host) -> None:
        self._incoming, self._host = incoming, host

    async def approve(self, call: ToolCall) -> str:
        await self._incoming.told()
        return await self._host.approve(call)

    async def run(self, call: ToolCall) -> ToolResult:
        await self._incoming.told()
        self._incoming.hosted = True
        return await self._host.run(call)


def whole_reply(messages: list[Message]) -> list[Message]:
    """A reply of a provider that runs tools by itself, as it is stored: every call has a result, and the last message
    is an answer, though it may be empty.
    """
    found: list[Message] = []
    still = [(id(message), call) for message, call in open_calls(messages)]
    asking = None
    for index, message in enumerate(messages):
        found.append(replace(message, finish="tool_calls") if message.tool_calls else message)
        asking = message if message.role == "assistant" else asking
        if asking is not None and (index + 1 == len(messages) or messages[index + 1].role == "assistant"):
            found += [
                tool_result(call.id, call.name, UNENDED, author=asking.author, turn=asking.turn, step=asking.step)
                for asker, call in still
                if asker == id(asking)
            ]
    if found and found[-1].role != "assistant":
        last = found[-1]
        found.append(Message(role="assistant", author=last.author, turn=last.turn, step=last.step, finish="stop"))
    return found


def counted(usage: Usage | None) -> Usage | None:
    """The figures of a provider as numbers of tokens, whatever it sent."""
    if usage is None:
        return None
    figures = {name: each for name, each in asdict(usage).items() if isinstance(each, int | float)}
    return Usage(**{name: int(each) for name, each in figures.items() if 0 < each < LARGEST})


def _joined(pieces: Sequence[Piece]) -> list[Piece]:
    """Pieces of one message run together."""
    return [(uid, part) for uid, group in groupby(pieces, itemgetter(0)) for part in join(part for _, part in group)]


def _without_half(pieces: list[Piece]) -> tuple[list[Piece], list[Piece]]:
    """What can be told, and the first half of an emoji at its end, which waits for the other."""
    uid, last = pieces[-1]
    if not isinstance(last, Text | Reasoning) or not "\ud800" <= last.text[-1:] <= "\udbff":
        return pieces, []
    whole, half = replace(last, text=last.text[:-1]), replace(last, text=last.text[-1])
    return [*pieces[:-1], *([(uid, whole)] if whole.text else [])], [(uid, half)]
