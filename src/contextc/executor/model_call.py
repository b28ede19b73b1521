"""One model call: send the request, receive the reply as a stream, and store the received part whatever happens.

Deltas are journaled and published in batches, so every published event is already stored. A reply that arrives at once
is not journaled: the transaction that commits it contains all of it. A provider that runs tools itself replies with
several messages. They are journaled as one message with the results among its parts, and published separately.
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
from contextc.executor.blocking import run_blocking, wait_until_done
from contextc.executor.turn_lifecycle import Piece
from contextc.executor.turn_store import TurnStore
from contextc.messages import AnyPart, Message, Reasoning, Text, ToolCall, ToolResult, Usage, tool_result
from contextc.messages.pairing import find_open_calls
from contextc.providers.client import Endpoint, Host, ProviderCall
from contextc.store import message_chain
from contextc.store.streams import join_deltas

FIRST_BATCH_SECONDS, BATCH_SECONDS = 0.03, 0.1
"""Seconds until received parts are journaled: for the first batch, and for later ones."""
PAUSE_FACTOR, MAX_PAUSE_SECONDS = 2, 1.0
"""Pause between batches on a slow store: a multiple of the last write's duration, and the maximum in seconds. With
hundreds of concurrent streams each one writes less often, and new turns are not delayed.
"""
YIELD_EVERY_EVENTS = 2_000
"""Number of stream events after which the event loop is yielded to other tasks."""
MAX_TOKEN_COUNT = 1 << 53
PARSE_ERRORS = (KeyError, IndexError, TypeError, ValueError, AttributeError)
"""Exceptions that a stream reader raises for JSON that does not follow the provider's API."""
UNNAMED = "unnamed"
NO_RESULT_TEXT = "No result: this was still running when the reply ended."
MAX_RETRIES = 2
"""How many times a call is retried after a transient failure."""
BACKOFF_SECONDS, MAX_RETRY_SECONDS = 0.5, 60.0


def retry_delay(error: ProviderFailed, tries: int) -> float:
    """Return the seconds before the next attempt: exponential backoff, at least the provider's `retry_after`."""
    return max(error.retry_after or 0.0, BACKOFF_SECONDS * 2**tries * (0.5 + random.random()))


def _with_tool_name(part: AnyPart) -> AnyPart:
    """Return the part, a tool call without a name as `unnamed`, so that it can be answered as an unknown tool."""
    return replace(part, name=UNNAMED) if isinstance(part, ToolCall) and not part.name else part


class ReplyStream:
    """A reply that is being received: the parts so far, which of them are journaled, and the rest for the commit."""

    def __init__(self, record: TurnStore, compiled: Compiled, step: int, *, directory: str = "") -> None:
        self.record, self.compiled, self.directory = record, compiled, directory
        self.reader = compiled.formatter.reader()
        self.beginning = Message(
            role="assistant",
            author=record.agent,
            run=record.run,
            uid=message_chain.new_uid(),
            turn=record.turn.number,
            step=step,
            status="pending",
            time=message_chain.now_ms(),
            finish="tool_calls" if compiled.provider.runs_tools else None,  # read when an interrupted reply is found
        )
        self._uids = {0: self.beginning.uid}
        self._at, self._answered, self.hosted = 0, False, False
        self._waiting: list[Piece] = []
        self._batches, self._took = 0, 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._flushing: asyncio.Task[None] | None = None

    @property
    def has_begun(self) -> bool:
        """True if a part of the reply has arrived, or the provider has run one of our tools."""
        return bool(self._waiting or self._batches or self.hosted)

    @property
    def stream(self) -> str:
        """The uid of the journal, empty if nothing is journaled."""
        return self.beginning.uid if self._batches else ""

    async def receive(self, endpoint: Endpoint, host: Host | None = None) -> list[Message]:
        """Send the request and return the whole reply. Raises `ProviderFailed`."""
        compiled = self.compiled
        call = ProviderCall(
            provider=compiled.provider,
            body=compiled.body,
            arguments=lambda: compiled.arguments,
            conversation=compiled.channel.conversation,
            session=compiled.session_id or "",
            cursor=compiled.cursor,
            revert=compiled.revert is not None,
            opening=lambda: {} if compiled.replaced else compiled.opening,
            directory=compiled.channel.directory or self.directory,
            host=OrderedHost(self, host) if host is not None else None,
        )
        try:
            async with aclosing(endpoint.stream(call)) as events:
                async for event in events:
                    self._take(self._read(event))
                    if self._waiting:
                        self._arrange()
                    if not len(self.reader.events) % YIELD_EVERY_EVENTS:  # events may arrive without a pause
                        await asyncio.sleep(0)
        except ProviderFailed as error:
            if error.kind != "transient" or self.reader.error or not self.reader.finished:
                raise  # otherwise the connection was lost after the end of the reply
        finally:
            await self._settle()
        if not self.reader.finished:
            raise ProviderFailed(compiled.provider.name, "transient", "the stream ended before the reply did")
        is_long = len(self.reader.events) > YIELD_EVERY_EVENTS
        messages = await run_blocking(self.messages) if is_long else self.messages()
        return complete_reply(messages) if compiled.provider.runs_tools else messages

    async def told(self) -> None:
        """Wait until the parts received so far are stored and published."""
        for _ in range(2):  # the batch being written, then what has arrived since
            if self._flushing is not None:
                await asyncio.wait({self._flushing})
            self._arrange()
            if self._timer is not None:
                self._timer.cancel()
                self._start()

    def messages(self) -> list[Message]:
        """Return the messages received so far, as they are stored. The last one is the final answer, if complete."""
        try:
            said = self.reader.messages()
        except PARSE_ERRORS as error:
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
        message = self.compiled.formatter.spelling.named(
            replace(said, usage=valid_usage(said.usage)), self.compiled.tools
        )
        begun = self.beginning
        parts = tuple([_with_tool_name(part) for part in message.parts])
        return replace(message, parts=parts, author=begun.author, run=begun.run, turn=begun.turn, step=begun.step)

    def rest(self) -> list[Piece]:
        """Return the parts that are not journaled."""
        return _join_pieces(self._waiting)

    @property
    def session(self) -> str | None:
        """The session that the reply belongs to."""
        return (self.reader.session or None) if self.compiled.provider.session_resumption else None

    def _take(self, parts: Sequence[AnyPart]) -> None:
        """Queue received parts, each with the uid of its message.

        The reader gives the message's index. Otherwise a new message starts after tool results.
        """
        for part in parts:
            is_result = isinstance(part, ToolResult)
            if self.reader.at is not None:
                self._at = self.reader.at
            elif self._answered and not is_result:
                self._at += 1
            self._answered = is_result
            if self._at not in self._uids:
                self._uids[self._at] = message_chain.new_uid()
            self._waiting.append((self._uids[self._at], part))

    def _read(self, event: JSONObject) -> Sequence[AnyPart]:
        try:
            return self.reader.read(event)
        except PARSE_ERRORS as error:
            if self.reader.events and self.reader.events[-1] is event:
                self.reader.events.pop()  # earlier events are kept
            raise self._unreadable(error) from error

    def _unreadable(self, error: Exception) -> ProviderFailed:
        what = f"the response cannot be parsed ({type(error).__name__}: {str(error)[:100]})"
        return ProviderFailed(self.compiled.provider.name, "transient", what)

    def _arrange(self) -> None:
        """Schedule journaling of the queued parts."""
        if self._flushing is not None and self._flushing.done():
            task, self._flushing = self._flushing, None
            task.result()
        if self._timer is None and self._flushing is None:
            loop = asyncio.get_running_loop()
            rest = max(BATCH_SECONDS, min(MAX_PAUSE_SECONDS, PAUSE_FACTOR * self._took))
            self._timer = loop.call_later(rest if self._batches else FIRST_BATCH_SECONDS, self._start)

    def _start(self) -> None:
        self._timer = None
        if self._flushing is None and self._waiting:
            self._flushing = asyncio.get_running_loop().create_task(self._flush())
            self._flushing.add_done_callback(self._flushed)

    def _flushed(self, task: asyncio.Task[None]) -> None:
        """Schedule journaling of parts that arrived during the write. The next part may take long to arrive."""
        is_well = not task.cancelled() and task.exception() is None
        if task is self._flushing and is_well and self._waiting and _split_surrogate(_join_pieces(self._waiting))[0]:
            self._arrange()

    async def _flush(self) -> None:
        pieces, self._waiting = _split_surrogate(_join_pieces(self._waiting))
        if not pieces:
            return
        number, self._batches = self._batches, self._batches + 1
        began = monotonic()
        try:
            await run_blocking(self.record.journal, self.beginning, number, pieces)
        except Exception:
            self._waiting[:0] = pieces  # published with the end of the reply, if that can be stored
            raise
        self._took = monotonic() - began

    async def _settle(self) -> None:
        """Wait for a write in progress, and start no other."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._flushing is not None:
            task, self._flushing = self._flushing, None
            await wait_until_done(task)
            task.result()


class OrderedHost:
    """A tool host that stores and publishes the reply so far before it serves a call from the middle of it."""

    def __init__(self, incoming: ReplyStream, host: Host) -> None:
        self._incoming, self._host = incoming, host

    async def approve(self, call: ToolCall) -> str:
        await self._incoming.told()
        return await self._host.approve(call)

    async def run(self, call: ToolCall) -> ToolResult:
        await self._incoming.told()
        self._incoming.hosted = True
        return await self._host.run(call)


def complete_reply(messages: list[Message]) -> list[Message]:
    """Complete the reply of a provider that runs tools itself: every call has a result, and an answer comes last.

    The answer may be empty.
    """
    found: list[Message] = []
    still = [(id(message), call) for message, call in find_open_calls(messages)]
    asking = None
    for index, message in enumerate(messages):
        found.append(replace(message, finish="tool_calls") if message.tool_calls else message)
        asking = message if message.role == "assistant" else asking
        if asking is not None and (index + 1 == len(messages) or messages[index + 1].role == "assistant"):
            found += [
                tool_result(
                    call.id, call.name, NO_RESULT_TEXT, author=asking.author, turn=asking.turn, step=asking.step
                )
                for asker, call in still
                if asker == id(asking)
            ]
    if found and found[-1].role != "assistant":
        last = found[-1]
        found.append(Message(role="assistant", author=last.author, turn=last.turn, step=last.step, finish="stop"))
    return found


def valid_usage(usage: Usage | None) -> Usage | None:
    """Return the usage with valid token counts only, whatever the provider sent."""
    if usage is None:
        return None
    figures = {name: each for name, each in asdict(usage).items() if isinstance(each, int | float)}
    return Usage(**{name: int(each) for name, each in figures.items() if 0 < each < MAX_TOKEN_COUNT})


def _join_pieces(pieces: Sequence[Piece]) -> list[Piece]:
    """Join adjacent pieces of one message."""
    return [
        (uid, part) for uid, group in groupby(pieces, itemgetter(0)) for part in join_deltas(part for _, part in group)
    ]


def _split_surrogate(pieces: list[Piece]) -> tuple[list[Piece], list[Piece]]:
    """Split off a lone high surrogate at the end, which waits for its other half."""
    uid, last = pieces[-1]
    if not isinstance(last, Text | Reasoning) or not "\ud800" <= last.text[-1:] <= "\udbff":
        return pieces, []
    whole, half = replace(last, text=last.text[:-1]), replace(last, text=last.text[-1])
    return [*pieces[:-1], *([(uid, whole)] if whole.text else [])], [(uid, half)]
