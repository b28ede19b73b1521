"""One model call: send the request, receive the reply as a stream, and store the received part whatever happens.

Deltas are journaled and published in batches, so every published event is already stored. A reply that arrives at once
is not journaled: the transaction that commits it contains all of it. A provider that runs tools itself replies with
several messages. They are journaled as one message with the results among its parts, and published separately.
"""

import asyncio
import inspect
import random
from collections.abc import Callable, Collection, Coroutine, Sequence
from contextlib import aclosing, suppress
from itertools import groupby
from operator import itemgetter
from time import monotonic
from typing import TypeVar
from weakref import WeakSet

from msgspec.structs import replace

from contextc._credential_mask import get_logger
from contextc._json import JSONObject
from contextc._worker_threads import run_blocking, wait_until_done
from contextc.compiler import Compiled
from contextc.errors import ContextcError, InvalidInput, ProviderFailed, describe_error
from contextc.executor.agent_config import AgentConfig
from contextc.executor.turn_store import TurnStore
from contextc.messages import (
    AnyPart,
    Message,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
    find_open_calls,
    tool_result,
    valid_usage,
)
from contextc.providers import Provider
from contextc.providers.client import Endpoint, Host, ProviderCall
from contextc.providers.error_mapping import event_failure
from contextc.store import message_log
from contextc.store.store import engine_of
from contextc.store.turn_records import Piece, join_deltas

T = TypeVar("T")
log = get_logger("contextc.executor")
FIRST_BATCH_SECONDS, BATCH_SECONDS = 0.03, 0.1
"""Seconds until received parts are journaled: for the first batch, and for later ones."""
PAUSE_FACTOR, MAX_PAUSE_SECONDS = 2, 1.0
"""Pause between batches on a slow store: a multiple of the last write's duration, and the maximum in seconds. With
hundreds of concurrent streams each one writes less often, and new turns are not delayed.
"""
WRITES_PER_SECOND, SERVER_WRITES_PER_SECOND = 500, 50
"""Batches per second that all replies of this process together write to a file or to a database server. Without this
limit, hundreds of replies would use all processors, because a fast write is followed by the next one soon, and new
turns would wait.
"""
YIELD_EVERY_EVENTS = 2_000
"""Number of stream events after which the event loop is yielded to other tasks."""
RESULT_SECONDS = 30.0
"""Seconds that a provider's report of results that it has already sent is waited for."""
PARSE_ERRORS = (KeyError, IndexError, TypeError, ValueError, AttributeError)
"""Exceptions that a stream reader raises for JSON that does not follow the provider's API."""
UNNAMED = "unnamed"
NO_RESULT_TEXT = "No result: this was still running when the reply ended."
MAX_RETRIES = 2
"""Number of times that a call is retried after a transient failure."""
BACKOFF_SECONDS, MAX_RETRY_SECONDS = 0.5, 60.0


def retry_delay(error: ProviderFailed, attempt: int) -> float:
    """Return the seconds before the next attempt: exponential backoff, at least the provider's `retry_after`."""
    return max(error.retry_after or 0.0, BACKOFF_SECONDS * 2**attempt * (0.5 + random.random()))


def stream_failure(provider: Provider, error: JSONObject | None) -> ProviderFailed:
    """Return the failure of a stream that ended before the reply did. `error` is the event that reported it, if any."""
    if error is not None:
        return event_failure(provider, error)
    return ProviderFailed(provider.name, "transient", "the stream ended before the reply did")


def _with_tool_name(part: AnyPart) -> AnyPart:
    """Return the part, a tool call without a name as `unnamed`, so that it can be answered as an unknown tool."""
    return replace(part, name=UNNAMED) if isinstance(part, ToolCall) and not part.name else part


async def apply_prepare_callback(config: AgentConfig, compiled: Compiled, step: int) -> Compiled:
    """Return the request after `on_prepare_messages` was applied to it."""
    if config.on_prepare_messages is None:
        return compiled
    changed = config.on_prepare_messages(compiled.copy(), step)
    if inspect.isawaitable(changed):
        changed = await changed
    if changed is None or changed == compiled.params:
        return compiled
    if not isinstance(changed, dict):
        raise InvalidInput(
            f"on_prepare_messages must return a dict or None, got {type(changed).__name__}",
            fix="Return the whole request as a dict, or None.",
        )
    try:
        compiled.replace(changed)
    except ContextcError:
        raise
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(
            f"on_prepare_messages: the returned request cannot be encoded as JSON: {describe_error(error)}",
            fix="Return only dicts, lists, strings, numbers, booleans and None.",
        ) from error
    return compiled


class ReplyStream:
    """A reply that is being received: the parts so far, which of them are journaled, and the rest for the commit."""

    def __init__(self, record: TurnStore, compiled: Compiled, step: int, *, directory: str = "") -> None:
        self.turn_store, self.compiled, self.directory = record, compiled, directory
        self.reader = compiled.formatter.create_reader()
        self.first_message = Message(
            role="assistant",
            author=record.author,
            run=record.run,
            uid=message_log.new_uid(),
            turn=record.turn.number,
            step=step,
            status="pending",
            time=message_log.now_ms(),
            finish="tool_calls" if compiled.provider.runs_tools else None,  # read when an interrupted reply is found
        )
        self._uids = {0: self.first_message.uid}
        self._message_index, self._after_result, self.has_run_tools = 0, False, False
        self._unflushed: list[Piece] = []
        self.stored: list[Message] = []
        """The part of the reply that is already stored, with the messages that the model got within it."""
        self.first_chunk_seconds: float | None = None
        """Seconds from the request to the first event of the reply."""
        self.failure: Exception | None = None
        """The error of a host that could not store something."""
        self._asked, self._answered, self._arrival = set[str](), set[str](), asyncio.Event()
        self._early_results: dict[str, ToolResult] = {}
        """Results of our own tools, by the id of the call. The provider reports them later."""
        self._stored_calls, self._is_published = set[str](), False
        self._receiver: asyncio.Task[object] | None = None
        """The task that reads the events."""
        self._storing: asyncio.Task[object] | None = None
        """Stores a part of the reply. Nothing is journaled meanwhile."""
        self._batches, self._write_seconds = 0, 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._flushing: asyncio.Task[None] | None = None

    @property
    def has_started(self) -> bool:
        """True if a part of the reply has arrived, or the provider has run one of our tools."""
        return bool(self._unflushed or self._batches or self.has_run_tools or self.stored)

    @property
    def journal_uid(self) -> str:
        """The uid of the journal, empty if nothing is journaled."""
        return self.first_message.uid if self._batches else ""

    async def receive(
        self, endpoint: Endpoint, host: Host | None = None, is_ended: Callable[[], bool] = bool
    ) -> list[Message]:
        """Send the request and return the whole reply. Raises `ProviderFailed`.

        `is_ended` returns True if the host has ended the reply. It is complete as it is, and may have no answer.
        """
        compiled = self.compiled
        self._receiver = asyncio.current_task()
        call = ProviderCall(
            provider=compiled.provider,
            body=compiled.body,
            arguments=lambda: compiled.arguments,
            headers=compiled.headers,
            conversation=compiled.channel.conversation,
            session=compiled.session_id or "",
            cursor=compiled.cursor,
            revert=compiled.revert_to is not None,
            session_opening=lambda: {} if compiled.replaced else compiled.session_head,
            directory=compiled.channel.directory or self.directory,
            host=host,
        )
        _receiving.add(self)
        began = monotonic()
        try:
            async with aclosing(endpoint.stream(call)) as events:
                async for event in events:
                    if self.first_chunk_seconds is None:
                        self.first_chunk_seconds = monotonic() - began
                    self._queue_parts(self._read_event(event))
                    self._arrival.set()
                    if self._unflushed:
                        self._schedule_flush()
                    if not len(self.reader.events) % YIELD_EVERY_EVENTS:  # events may arrive without a pause
                        await asyncio.sleep(0)
        except ProviderFailed as error:
            if error.kind != "transient" or self.reader.error or not self.reader.finished:
                raise  # otherwise the connection was lost after the end of the reply
        finally:
            _receiving.discard(self)
            self._arrival.set()
            if self._storing is not None:
                await wait_until_done(self._storing)
            await self._finish_flush()
        if self.failure is not None:
            raise self.failure
        if is_ended() and self.reader.error is None:
            self.reader.finished = True
        if not self.reader.finished:
            raise stream_failure(compiled.provider, self.reader.error)
        is_long = len(self.reader.events) > YIELD_EVERY_EVENTS
        messages = await run_blocking(self.received_messages) if is_long else self.received_messages()
        has_answer = bool(messages) and messages[-1].role == "assistant" and not is_ended()
        if compiled.provider.runs_tools or not has_answer:
            messages = complete_reply(messages, self.first_message, is_ended=is_ended())
        return [*self.stored, *messages]

    def complete_part(self) -> list[Message]:
        """Return the messages since the last stored one, if they end with results and no call is open; else none."""
        messages = [] if self._unflushed or self not in _receiving else self.received_messages()
        early = self._early_results
        results = [early[call.id] for _, call in find_open_calls(messages) if call.id in early]
        if results:
            messages.append(self._with_turn_fields(Message(role="tool", parts=tuple(results))))
        if not messages or messages[-1].role != "tool" or any(find_open_calls(messages)):
            return []
        return [replace(message, finish="tool_calls") if message.tool_calls else message for message in messages]

    async def store_part(self, storing: Coroutine[None, None, T]) -> T:
        """Run `storing`, which may store the part that is journaled. It is completed even if it is cancelled."""
        task = self._storing = asyncio.ensure_future(storing)
        try:
            await wait_until_done(task)
        finally:
            self._storing = None
            if self._unflushed and self in _receiving:
                self._schedule_flush()
        return task.result()

    def mark_stored(self, part: Sequence[Message]) -> None:
        """Record that the part so far is stored. What follows has a journal of its own."""
        self.stored += part
        self._stored_calls |= {call for message in part for call in _call_ids(message)}
        self._batches = 0

    async def flush(self) -> None:
        """Wait until the parts received so far are stored and published."""
        for _ in range(2):  # the batch being written, then what has arrived since
            if self._flushing is not None:
                await asyncio.wait({self._flushing})
            self._schedule_flush()
            if self._timer is not None:
                self._timer.cancel()
                self._start_flush()

    def add_result(self, result: ToolResult) -> None:
        """Add the result of a call that the provider has reported, before it reports the result."""
        if result.call_id in self._asked and result.call_id not in self._answered:
            self._queue_parts([result])
            self._early_results[result.call_id] = result

    async def wait_for_results(self, calls: Collection[str]) -> None:
        """Wait until the results of these calls have arrived, or the reply has ended, or they seem not to come.

        A client that waits in its own `stream` yields nothing meanwhile.
        """
        can_arrive = asyncio.current_task() is not self._receiver
        with suppress(TimeoutError):
            async with asyncio.timeout(RESULT_SECONDS):
                while can_arrive and self in _receiving and not self._answered.issuperset(calls):
                    self._arrival.clear()
                    await self._arrival.wait()
        if missing := sorted({*calls} - self._answered):
            log.warning("%s: no event has the result of these calls: %s", self.turn_store.conversation, missing)

    async def flush_all(self) -> None:
        """Wait until nothing that was received before is unwritten."""
        await self.flush()
        if self._flushing is not None:
            await asyncio.wait({self._flushing})

    def received_messages(self) -> list[Message]:
        """Return the messages received so far that are not stored yet. The last is the final answer, if complete."""
        try:
            said = self.reader.messages()
        except PARSE_ERRORS as error:
            raise self._parse_error(error) from error
        found: list[Message] = []
        replies = 0
        for message in said:
            message = self._with_turn_fields(message)
            if message.role == "assistant":
                place = self.reader.message_starts[replies] if self.reader.message_starts else replies
                if self._is_published and place in self._uids:
                    message = replace(message, uid=self._uids[place], time=self.first_message.time)
                replies += 1
            found.append(message)
        places = [place for place, message in enumerate(found, 1) if _call_ids(message) & self._stored_calls]
        return found[max(places, default=0) :]

    def _with_turn_fields(self, said: Message) -> Message:
        message = self.compiled.formatter.name_codec.restore_names(
            replace(said, usage=valid_usage(said.usage)), self.compiled.tools
        )
        begun = self.first_message
        parts = tuple([_with_tool_name(part) for part in message.parts])
        return replace(message, parts=parts, author=begun.author, run=begun.run, turn=begun.turn, step=begun.step)

    def unjournaled_parts(self) -> list[Piece]:
        """Return the parts that are not journaled."""
        return _join_pieces(self._unflushed)

    @property
    def session_id(self) -> str | None:
        """The session that the reply belongs to."""
        provider, resumed = self.compiled.provider, self.compiled.session_id or ""
        found = self.reader.find_session(provider.session_field, resumed) if provider.session_resumption else ""
        return found or None

    def _queue_parts(self, parts: Sequence[AnyPart]) -> None:
        """Queue received parts, each with the uid of its message.

        The reader gives the message's index. Otherwise a new message starts after tool results.
        """
        for part in parts:
            is_result = isinstance(part, ToolResult)
            if is_result and part.call_id in self._early_results:
                continue
            if self.reader.message_index is not None:
                self._message_index = self.reader.message_index
            elif self._after_result and not is_result:
                self._message_index += 1
            self._after_result = is_result
            if is_result:
                self._answered.add(part.call_id)
            elif isinstance(part, ToolCall):
                self._asked.add(part.id)
            if self._message_index not in self._uids:
                self._uids[self._message_index] = message_log.new_uid()
            self._unflushed.append((self._uids[self._message_index], part))

    def _read_event(self, event: JSONObject) -> Sequence[AnyPart]:
        try:
            return self.reader.read(event)
        except PARSE_ERRORS as error:
            if self.reader.events and self.reader.events[-1] is event:
                self.reader.events.pop()  # earlier events are kept
            raise self._parse_error(error) from error

    def _parse_error(self, error: Exception) -> ProviderFailed:
        what = f"the response cannot be parsed ({type(error).__name__}: {str(error)[:100]})"
        return ProviderFailed(self.compiled.provider.name, "transient", what)

    def _schedule_flush(self) -> None:
        """Schedule journaling of the queued parts."""
        if self._flushing is not None and self._flushing.done():
            task, self._flushing = self._flushing, None
            task.result()
        if self._timer is None and self._flushing is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._pause() if self._batches else FIRST_BATCH_SECONDS, self._start_flush)

    def _pause(self) -> float:
        """Return the seconds until the next batch."""
        is_server = engine_of(self.turn_store.store).dialect.name == "postgres"
        share = len(_receiving) / (SERVER_WRITES_PER_SECOND if is_server else WRITES_PER_SECOND)
        return max(BATCH_SECONDS, min(MAX_PAUSE_SECONDS, max(PAUSE_FACTOR * self._write_seconds, share)))

    def _start_flush(self) -> None:
        self._timer = None
        if self._flushing is None and self._unflushed and self._storing is None:
            self._flushing = asyncio.get_running_loop().create_task(self._flush())
            self._flushing.add_done_callback(self._on_flushed)

    def _on_flushed(self, task: asyncio.Task[None]) -> None:
        """Schedule journaling of parts that arrived during the write. The next part may take long to arrive."""
        is_well = not task.cancelled() and task.exception() is None
        if (
            task is self._flushing
            and is_well
            and self._unflushed
            and _split_surrogate(_join_pieces(self._unflushed))[0]
        ):
            self._schedule_flush()

    async def _flush(self) -> None:
        pieces, self._unflushed = _split_surrogate(_join_pieces(self._unflushed))
        if not pieces:
            return
        if not self._batches:
            self.first_message = replace(self.first_message, uid=pieces[0][0])
        number, self._batches, self._is_published = self._batches, self._batches + 1, True
        began = monotonic()
        try:
            await run_blocking(self.turn_store.append_journal, self.first_message, number, pieces)
        except Exception:
            self._unflushed[:0] = pieces  # published with the end of the reply, if that can be stored
            raise
        self._write_seconds = monotonic() - began

    async def _finish_flush(self) -> None:
        """Wait for a write in progress, and start no other."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._flushing is not None:
            task, self._flushing = self._flushing, None
            await wait_until_done(task)
            task.result()


_receiving: WeakSet[ReplyStream] = WeakSet()
"""The replies that are being received in this process."""


def _call_ids(message: Message) -> set[str]:
    """Return the ids of the calls and results in a message."""
    return {call.id for call in message.tool_calls} | {result.call_id for result in message.tool_results}


def complete_reply(messages: list[Message], begun: Message, *, is_ended: bool = False) -> list[Message]:
    """Complete the reply of a provider that runs tools itself: every call has a result, and an answer comes last.

    The answer may be empty. With `is_ended` the host has ended the reply before it, so nothing empty is added or kept.
    `begun` has the fields of the reply.
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
    if is_ended:
        return [message for message in found if message.parts]
    if not found or found[-1].role != "assistant":
        found.append(Message(role="assistant", author=begun.author, turn=begun.turn, step=begun.step, finish="stop"))
    return found


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
