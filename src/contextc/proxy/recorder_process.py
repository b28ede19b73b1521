"""The recorder: a process of its own that reads the spool and writes to the store.

It may be killed at any moment; the next one continues. The first line on its standard input is its configuration, each
further one announces new frames. It ends after the proxy has ended and everything is recorded. If the store cannot be
written then, the spool keeps the rest for the next proxy. Results go to standard output, one JSON object per line.
"""

import os
import queue
import signal
import sys
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from threading import Event, Thread

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from contextc._file_lock import hold_lock
from contextc.compiler.manifest import ProxyAction, is_success
from contextc.errors import ContextcError, StoreError, describe_error
from contextc.observation import ObservedRequest, observe
from contextc.observation.content_decoding import CannotDecode, measure_pieces, unreadable_reply
from contextc.proxy.http1_framing import ChunkedBody, FramingError, decode_body
from contextc.proxy.request_lint import lint_request
from contextc.proxy.spool import LOCK_FILE, ResponseStart, SpooledExchange, SpoolReader
from contextc.store import Store, open_store
from contextc.store.ledger_schema import channel_id

# ── exchanges of a spool ──────────────────────────────────────────────────────────────────────────────────────────────
# Record spooled exchanges: join their frames, decode their bodies, and hand them to `observe`.
#
# An exchange has an id, run and number, that is stored with its record. So one that is read twice, because the
# recorder was stopped before it removed the segment, is recorded once.


class RecordedExchange(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of an exchange, as the recorder reports it. `problem` is the reason if it was not recorded.

    `is_gap` is False if the proxy has counted it already. `channel` is the short id of its channel. `estimate` is the
    input as estimated. `why` is the reason why the request does not extend the
    prefix of the previous one.
    """

    exchange: str
    time: int
    problem: str = ""
    is_gap: bool = False
    conversation: str = ""
    channel: str = ""
    request: int = 0
    provider: str = ""
    model: str = ""
    status: str = ""
    why: str = ""
    estimate: int = 0
    has_usage: bool = False
    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    cost: float | None = None
    cost_is_lower_bound: bool = False
    actions: tuple[ProxyAction, ...] = ()
    """Findings and changes of options of the proxy, without texts of the request."""


class NotRecorded(Exception):
    """The exchange cannot be recorded. The text is the reason."""


def exchange_id(run: str, number: int) -> str:
    return f"{run}/{number}"


class SpoolRecorder:
    """Records the exchanges of one run of the proxy."""

    def __init__(
        self,
        folder: Path,
        store: Store,
        redact: Sequence[str] = (),
        skip: Collection[str] = (),
        *,
        lints: bool = False,
    ) -> None:
        self.reader = SpoolReader(folder)
        self._run, self._store = folder.name, store
        self._redact, self._skip, self._lints = tuple(redact) or None, skip, lints

    def restart(self) -> "SpoolRecorder":
        """Return a recorder that reads the spool from its beginning."""
        return SpoolRecorder(self.reader.folder, self._store, self._redact or (), self._skip, lints=self._lints)

    def record_ended(self) -> Iterator[tuple[str, RecordedExchange | None]]:
        """Record the exchanges that have ended. Each id is returned before and, with its result, after that."""
        yield from self._record_all(self.reader.read())
        self.reader.remove_read()

    def record_rest(self) -> Iterator[tuple[str, RecordedExchange | None]]:
        """Record everything that is left of a run that is over, and remove its files."""
        yield from self._record_all(self.reader.read())
        yield from self._record_all(self.reader.read_unfinished())
        self.reader.remove_folder()

    def _record_all(self, exchanges: Iterator[SpooledExchange]) -> Iterator[tuple[str, RecordedExchange | None]]:
        for exchange in exchanges:
            id = exchange_id(self._run, exchange.number)
            yield id, None
            yield id, self._record(id, exchange)
            self.reader.erase(exchange)

    def _record(self, id: str, exchange: SpooledExchange) -> RecordedExchange:
        """Record an exchange. Errors of the store are raised: then it is recorded later."""
        is_dropped = exchange.outcome == "dropped"
        try:
            if exchange.problem:
                raise NotRecorded(exchange.problem)
            if id in self._skip:
                raise NotRecorded("the recorder stopped each time that it read it")
            if not exchange.is_sent:
                raise NotRecorded("it was cancelled before the request was sent")
            seen = self._observe(id, exchange)
        except StoreError:
            raise
        except NotRecorded as error:
            return RecordedExchange(exchange=id, time=exchange.began, problem=str(error), is_gap=not is_dropped)
        except Exception as error:  # a defect must not stop the record of other exchanges
            text = str(error) if isinstance(error, ContextcError) else describe_error(error)
            return RecordedExchange(exchange=id, time=exchange.began, problem=text, is_gap=True)
        return describe_recorded(id, exchange, seen)

    def _observe(self, id: str, exchange: SpooledExchange) -> ObservedRequest:
        start, response = exchange.start, exchange.response or ResponseStart()
        encoding = start.headers.get("content-encoding", "")
        try:
            body = decode_body(b"".join(exchange.request), encoding, is_chunked=start.is_chunked)
        except CannotDecode as error:
            raise NotRecorded(f"request: {error}") from None
        actions = start.actions
        if self._lints and not is_success(response.status):
            found = lint_request(body, start.format, start.url)
            actions = (*actions, found) if found is not None else actions
        return observe(
            self._store,
            request=body,
            reply=_decode_reply(exchange, response),
            format=start.format or None,
            time=exchange.began,
            ended=exchange.ended or None,
            first_chunk=exchange.first_chunk,
            headers=start.headers,
            url=start.url,
            status=response.status or None,
            redact=self._redact,
            exchange_id=id,
            actions=actions,
            directory=start.directory,
            pieces=_measure_reply(exchange, response),
        )


def _measure_reply(exchange: SpooledExchange, response: ResponseStart) -> list[tuple[int, int]]:
    """Return when which part of the content of a reply arrived."""
    payload: list[bytes] = []
    body = ChunkedBody(payload)

    def content() -> Iterator[tuple[int, bytes]]:
        for arrived, data in zip(exchange.times, exchange.reply, strict=True):
            if response.is_chunked:
                payload.clear()
                body.feed(data)
                data = b"".join(payload)
            yield max(0, arrived - exchange.began), data

    try:
        return measure_pieces(content(), response.encoding)
    except FramingError:
        return []


def _decode_reply(exchange: SpooledExchange, response: ResponseStart) -> object:
    if response.error:
        return {"error": {"message": response.error}}
    reply = b"".join(exchange.reply)
    if not reply:
        return None
    try:
        return decode_body(reply, response.encoding, is_chunked=response.is_chunked) or None
    except CannotDecode as error:
        return unreadable_reply(error)


def describe_recorded(id: str, exchange: SpooledExchange, seen: ObservedRequest) -> RecordedExchange:
    usage = seen.usage
    dollars, is_lower_bound = seen.bill or (None, False)
    return RecordedExchange(
        exchange=id,
        time=exchange.began,
        conversation=seen.conversation,
        channel=channel_id(seen.channel),
        request=seen.request,
        estimate=seen.record.corrected_budget.input,
        has_usage=usage is not None and bool(usage.input or usage.output),
        provider=seen.channel.provider,
        model=seen.channel.model,
        status=seen.status,
        why=seen.record.why,
        input=usage.input if usage else 0,
        output=usage.output if usage else 0,
        cache_read=usage.cache_read if usage else 0,
        cache_write=usage.cache_write if usage else 0,
        cost=dollars,
        cost_is_lower_bound=is_lower_bound,
        actions=tuple([replace(each, changes=()) for each in seen.record.observed.actions])
        if seen.record.observed is not None
        else (),
    )


# ── the process ───────────────────────────────────────────────────────────────────────────────────────────────────────


POLL_SECONDS = 1.0
LOCK_SECONDS = 5.0
RETRY_SECONDS = (0.1, 0.3, 1.0, 3.0)
"""Pauses after errors of the store; the last one repeats."""


class RecorderSettings(Struct, frozen=True, kw_only=True):
    """The store, the folder of all spools, and the run to record. Exchanges in `skip` are not read again.

    With `lints`, the record of a request has what its provider would refuse.
    """

    store: str
    folder: str
    run: str
    redact: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    lints: bool = False


class RecorderEvent(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A line of the recorder's output: the exchange that it reads, one that it has read, or an error of the store.

    An empty one says that the store is open.
    """

    reading: str = ""
    done: RecordedExchange | None = None
    error: str = ""


class ProxyInput:
    """Standard input: the proxy announces new frames there, and closes it when it ends."""

    def __init__(self) -> None:
        self._announced: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._is_gone = Event()
        self._tries_alone = 0
        Thread(target=self._read, daemon=True).start()

    def wait(self) -> bool:
        """Wait for new frames. Return False if the proxy is gone."""
        with suppress(queue.Empty):
            self._announced.get(timeout=POLL_SECONDS)
            while True:
                self._announced.get_nowait()
        return not self._is_gone.is_set()

    def pause(self, error: StoreError, attempt: int) -> None:
        """Report an error of the store, and wait. Raise it after the last try without a proxy."""
        _report(RecorderEvent(error=str(error)))
        if self._is_gone.is_set():
            if self._tries_alone == len(RETRY_SECONDS):
                raise error
            time.sleep(RETRY_SECONDS[self._tries_alone])
            self._tries_alone += 1
        else:
            self._is_gone.wait(RETRY_SECONDS[min(attempt, len(RETRY_SECONDS) - 1)])

    def _read(self) -> None:
        while sys.stdin.buffer.readline():
            self._announced.put(None)
        self._is_gone.set()
        self._announced.put(None)


def main() -> None:
    if hasattr(signal, "SIGINT"):
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the observed program
    settings = msgspec.json.decode(sys.stdin.buffer.readline(), type=RecorderSettings)
    proxy = ProxyInput()
    try:
        with _open_store(settings, proxy) as store:
            record_run(store, settings, proxy)
    except StoreError:
        os._exit(1)  # reported; the spool keeps what is not recorded
    os._exit(0)  # the thread waits for input


def _open_store(settings: RecorderSettings, proxy: ProxyInput) -> Store:
    for attempt in count():
        try:
            store = open_store(settings.store)
        except StoreError as error:
            proxy.pause(error, attempt)
        else:
            _report(RecorderEvent())
            return store
    raise AssertionError


def record_run(store: Store, settings: RecorderSettings, proxy: ProxyInput) -> None:
    """Record what other runs have left, then this run until its end."""
    folder = Path(settings.folder)
    # Folders of other runs. Those whose lock is free are abandoned.
    for path in [path for path in sorted(folder.glob("*")) if path.is_dir() and path.name != settings.run]:
        with suppress(TimeoutError, FileNotFoundError), hold_lock(path / LOCK_FILE, 0):
            _work(_recorder(path, store, settings), proxy, is_over=True)
    recorder = _recorder(folder / settings.run, store, settings)
    is_there = True
    while is_there and not recorder.reader.is_closed:
        recorder = _work(recorder, proxy, is_over=False)
        is_there = recorder.reader.is_closed or proxy.wait()
    with suppress(TimeoutError, FileNotFoundError), hold_lock(folder / settings.run / LOCK_FILE, LOCK_SECONDS):
        _work(recorder, proxy, is_over=True)  # unless another recorder has found the run


def _recorder(folder: Path, store: Store, settings: RecorderSettings) -> SpoolRecorder:
    return SpoolRecorder(folder, store, settings.redact, settings.skip, lints=settings.lints)


def _work(recorder: SpoolRecorder, proxy: ProxyInput, *, is_over: bool) -> SpoolRecorder:
    """Record what is there. After an error of the store, try again: the spool keeps what is not recorded."""
    for attempt in count():
        try:
            for id, done in recorder.record_rest() if is_over else recorder.record_ended():
                _report(RecorderEvent(reading=id) if done is None else RecorderEvent(done=done))
            break
        except StoreError as error:
            proxy.pause(error, attempt)
            recorder = recorder.restart()
    return recorder


def _report(event: RecorderEvent) -> None:
    with suppress(OSError):  # the proxy may be gone; its exchanges are recorded nevertheless
        os.write(sys.stdout.fileno(), msgspec.json.encode(event) + b"\n")


if __name__ == "__main__":
    main()
