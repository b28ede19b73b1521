"""Spool: raw exchanges on their way from the relay to the recorder, bounded in memory and on disk.

The relay appends frames to a queue and never waits. A thread writes them to segment files in a private folder. If the
queue or the folder is full, or writing fails, the exchange is dropped from the record and counted as a gap. The request
itself is not affected.
"""

import os
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from struct import Struct as Layout
from threading import Event, Lock, Thread
from typing import BinaryIO, NamedTuple

import msgspec
from msgspec import Struct, field

from contextc._file_lock import try_lock
from contextc.compiler.manifest import ProxyAction
from contextc.config import find_data_folder, make_private_folder
from contextc.observation.content_decoding import CannotDecode
from contextc.observation.exchange_redaction import CredentialMask
from contextc.proxy.http1_framing import decode_body

# ── where the spools are ──────────────────────────────────────────────────────────────────────────────────────────────
# The folder of the spools of a store.


def find_spool_folder(store: str, *, in_memory: bool = False, environment: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of the spools of a store. A proxy that is started later records what an earlier one left.

    With `in_memory`, it is in the user's runtime folder, if there is one: its files are never on a disk.
    """
    scheme, separator, path = store.partition(":///")
    if scheme == "sqlite":  # a relative path is another store in another folder
        store = f"{scheme}{separator}{os.path.abspath(os.path.expanduser(path))}"
    name = blake2b(store.encode(), digest_size=8, person=b"contextc spool").hexdigest()
    runtime = environment.get("XDG_RUNTIME_DIR", "") if in_memory else ""
    base = os.path.join(runtime, "contextc") if os.path.isdir(runtime) else find_data_folder(environment)
    return Path(base) / "spool" / name


# ── gaps ──────────────────────────────────────────────────────────────────────────────────────────────────────────────
# Gaps: exchanges that passed the proxy and were not recorded, with time and reason.


MAX_LISTED = 100


class Gap(NamedTuple):
    """An exchange that was not recorded. `time` is in Unix milliseconds."""

    time: int
    reason: str


class GapLog:
    """The gaps of one run of the proxy: the last ones, and the number by reason."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._last: deque[Gap] = deque(maxlen=MAX_LISTED)
        self._counts: dict[str, int] = {}

    def add(self, time: int, reason: str) -> None:
        with self._lock:
            self._last.append(Gap(time, reason))
            self._counts[reason] = self._counts.get(reason, 0) + 1

    @property
    def count(self) -> int:
        return sum(self.counts.values())

    @property
    def counts(self) -> dict[str, int]:
        with self._lock:
            return dict(self._counts)

    @property
    def last(self) -> list[Gap]:
        with self._lock:
            return list(self._last)


# ── frames, and the exchanges in them ─────────────────────────────────────────────────────────────────────────────────
# The files of the spool: segments of frames, and the exchanges that they contain.
#
# A frame is one event of an exchange: its beginning, bytes of the request, the response's head, bytes of the reply,
# its end. Frames of an exchange are numbered, so a missing one is noticed. The reader may run while a segment is being
# written: an incomplete frame at the end is read again later. Once an exchange is recorded, its frames are
# overwritten.


LOCK_FILE = "lock"
SEGMENT_SUFFIX = ".frames"
BEGIN, REQUEST, SENT, RESPONSE, REPLY, END, DROP, CLOSE, ERASED = range(1, 10)
"""Kinds of frames. SENT: the request is complete. DROP: the exchange is not recorded. CLOSE: the proxy has ended.
ERASED: the exchange is recorded, and its content was overwritten."""
FRAME = Layout("<BQIQII")
"""Kind, exchange, number within the exchange, time in Unix milliseconds, length, checksum of the content."""
ERASE_BYTES = 1 << 20


class ExchangeStart(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The first frame of an exchange. `headers` has the allowed ones only, `url` has no query.

    `actions` are what options of the proxy changed in the request. `directory` is where the client works, if known.
    """

    upstream: str
    url: str
    format: str = ""
    headers: dict[str, str] = {}
    is_chunked: bool = False
    actions: tuple[ProxyAction, ...] = ()
    directory: str = ""


class ResponseStart(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The head of a response. `error` is the text of an error of the proxy itself."""

    status: int = 0
    encoding: str = ""
    is_chunked: bool = False
    error: str = ""


class DropReason(Struct, frozen=True, kw_only=True):
    """The reason why an exchange is not recorded."""

    reason: str


class Frame(NamedTuple):
    kind: int
    exchange: int
    number: int
    time: int
    data: bytes


def pack_frame(frame: Frame) -> bytes:
    """Return the header of a frame. Its content follows in the file."""
    return FRAME.pack(frame.kind, frame.exchange, frame.number, frame.time, len(frame.data), zlib.crc32(frame.data))


class SpooledExchange(Struct, kw_only=True):
    """An exchange as far as its frames were read. `outcome` is "" until it has ended."""

    number: int
    start: ExchangeStart
    began: int
    spans: list[tuple[int, int, int]] = field(default_factory=list[tuple[int, int, int]])
    """The places of its frames: segment, first and last byte."""
    response: ResponseStart | None = None
    request: list[bytes] = field(default_factory=list[bytes])
    reply: list[bytes] = field(default_factory=list[bytes])
    times: list[int] = field(default_factory=list[int])
    """When each part of the reply arrived."""
    is_sent: bool = False
    first_chunk: int | None = None
    ended: int = 0
    outcome: str = ""
    frames: int = 0
    problem: str = ""
    """The reason why it cannot be recorded; "" if it can."""


_decode_start = msgspec.json.Decoder(ExchangeStart).decode
_decode_response = msgspec.json.Decoder(ResponseStart).decode
_decode_drop = msgspec.json.Decoder(DropReason).decode


class SpoolReader:
    """Reads the segments of one run of the proxy, in order."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.is_closed = False
        self._open: dict[int, SpooledExchange] = {}
        self._segment, self._offset = 0, 0

    def read(self) -> Iterator[SpooledExchange]:
        """Return the exchanges that have ended since the last call, in the order in which they ended."""
        for segment in self._segments():
            if segment < self._segment:
                continue
            if segment > self._segment:
                self._segment, self._offset = segment, 0
            for frame in self._frames(segment):
                ended = self._add(frame, segment)
                if ended is not None:
                    yield ended

    def read_unfinished(self) -> Iterator[SpooledExchange]:
        """Return the exchanges whose end was never written, because the proxy was stopped."""
        for number in sorted(self._open):
            exchange = self._open.pop(number)
            exchange.outcome = "stopped"
            yield exchange

    def remove_read(self) -> None:
        """Remove the segments that have been read, and that no open exchange needs."""
        needed = {span[0] for exchange in self._open.values() for span in exchange.spans}
        for segment in self._segments():
            if segment < self._segment and segment not in needed:
                with suppress(OSError):
                    (self.folder / segment_name(segment)).unlink()

    def erase(self, exchange: SpooledExchange) -> None:
        """Overwrite the content of an exchange that is recorded, or will not be."""
        for span in exchange.spans:
            self._erase(*span)

    def _erase(self, segment: int, first: int, end: int) -> None:
        with suppress(OSError), open(self.folder / segment_name(segment), "r+b", buffering=0) as file:
            file.seek(first)
            file.write(FRAME.pack(ERASED, 0, 0, 0, end - first - FRAME.size, 0))
            while (at := file.tell()) < end:
                file.write(bytes(min(end - at, ERASE_BYTES)))

    def remove_folder(self) -> None:
        """Remove everything. All exchanges must have been recorded."""
        for path in self.folder.glob("*"):
            with suppress(OSError):
                path.unlink()
        with suppress(OSError):
            self.folder.rmdir()

    def _segments(self) -> list[int]:
        return sorted(int(path.stem) for path in self.folder.glob(f"*{SEGMENT_SUFFIX}"))

    def _frames(self, segment: int) -> Iterator[Frame]:
        with suppress(FileNotFoundError), open(self.folder / segment_name(segment), "rb") as file:
            file.seek(self._offset)
            while len(head := file.read(FRAME.size)) == FRAME.size:
                kind, exchange, number, time, length, checksum = FRAME.unpack(head)
                if os.fstat(file.fileno()).st_size < self._offset + FRAME.size + length:
                    return  # it is being written, or the segment was cut off
                if kind == ERASED:
                    self._offset = file.seek(length, os.SEEK_CUR)
                    continue
                data = file.read(length)
                if not BEGIN <= kind <= CLOSE or zlib.crc32(data) != checksum:
                    return
                self._offset += FRAME.size + length
                yield Frame(kind, exchange, number, time, data)

    def _add(self, frame: Frame, segment: int) -> SpooledExchange | None:
        if frame.kind == CLOSE:
            self.is_closed = True
            return None
        span = (segment, self._offset - FRAME.size - len(frame.data), self._offset)
        if frame.kind == BEGIN:
            self._open[frame.exchange] = SpooledExchange(
                number=frame.exchange, start=_decode_start(frame.data), began=frame.time, spans=[span], frames=1
            )
            return None
        exchange = self._open.get(frame.exchange)
        if exchange is None:  # its beginning was dropped, or erased by a recorder that was killed
            self._erase(*span)
            return None
        if exchange.spans[-1][::2] == (segment, span[1]):
            span = (segment, exchange.spans.pop()[1], span[2])
        exchange.spans.append(span)
        if frame.kind == DROP:
            exchange.problem = _decode_drop(frame.data).reason
        elif frame.number != exchange.frames:
            exchange.problem = exchange.problem or "a part of it is missing in the spool"
        exchange.frames += 1
        if exchange.problem:
            exchange.request, exchange.reply, exchange.times = [], [], []
        elif frame.kind == REQUEST:
            exchange.request.append(frame.data)
        elif frame.kind == SENT:
            exchange.is_sent = True
        elif frame.kind == RESPONSE:
            exchange.response = _decode_response(frame.data)
        elif frame.kind == REPLY:
            exchange.reply.append(frame.data)
            exchange.times.append(frame.time)
            if exchange.first_chunk is None:
                exchange.first_chunk = frame.time
        if frame.kind not in (END, DROP):
            return None
        exchange.ended, exchange.outcome = frame.time, frame.data.decode() if frame.kind == END else "dropped"
        return self._open.pop(frame.exchange)


def segment_name(number: int) -> str:
    return f"{number:010}{SEGMENT_SUFFIX}"


# ── writing ───────────────────────────────────────────────────────────────────────────────────────────────────────────


BATCH_BYTES = 256 << 10
BATCH_SECONDS = 0.05
"""Seconds between two writes. Frames that arrive meanwhile are written together."""
FIRST_ERROR_STATUS = 400
MAX_ERROR_BYTES = 1 << 20
"""Bytes of the reply of a failed request that are recorded."""
QUEUE_FULL = "the recorder's queue was full"
SPOOL_FULL = "the spool was full"
TOO_LARGE = "the exchange was too large"
SPOOL_CLOSED = "the proxy was stopped"


class SpoolLimits(NamedTuple):
    """Maximum bytes in the queue, in the folder and of one exchange; bytes after which a new segment begins."""

    queue: int = 192 << 20
    folder: int = 2 << 30
    exchange: int = 256 << 20
    segment: int = 16 << 20


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class ExchangeRecord:
    """One exchange that is being recorded. All methods are called by the relay's event loop, and none raises.

    The credentials of the request are removed from its reply. The reply of a failed request is held until its end and
    decoded for that, because servers quote them there.
    """

    __slots__ = (
        "_credentials",
        "_frames",
        "_held",
        "_is_over",
        "_mask",
        "_response",
        "_size",
        "_spool",
        "began",
        "number",
    )

    def __init__(self, spool: "Spool", number: int, credentials: Sequence[str] = ()) -> None:
        self._spool, self.number, self.began = spool, number, now_ms()
        self._frames, self._size, self._is_over = 0, 0, False
        self._credentials, self._mask = credentials, CredentialMask(credentials) if credentials else None
        self._response: ResponseStart | None = None
        self._held: list[bytes] = []

    def begin(self, start: ExchangeStart) -> None:
        self._put(BEGIN, msgspec.json.encode(start))

    def request(self, data: bytes) -> None:
        self._put(REQUEST, data)

    def sent(self) -> None:
        self._put(SENT)

    def response(self, start: ResponseStart) -> None:
        if self._credentials and not start.error and start.status >= FIRST_ERROR_STATUS:
            self._response = start
            return
        self._response = None
        if start.encoding:
            self._mask = None
        self._put(RESPONSE, msgspec.json.encode(start))

    def reply(self, data: bytes) -> None:
        if self._response is not None:
            if sum(map(len, self._held)) < MAX_ERROR_BYTES:
                self._held.append(data)
        elif data := self._mask.feed(data) if self._mask is not None else data:
            self._put(REPLY, data)

    def end(self, outcome: str) -> None:
        if self._response is not None:
            self._put_error_reply(self._response)
        if self._mask is not None and (rest := self._mask.finish()):
            self._put(REPLY, rest)
        self._put(END, outcome.encode())
        self._is_over = True

    def _put_error_reply(self, start: ResponseStart) -> None:
        try:
            content = decode_body(
                b"".join(self._held), start.encoding, is_chunked=start.is_chunked, limit=MAX_ERROR_BYTES
            )
        except CannotDecode as error:
            start = ResponseStart(status=start.status, error=f"The reply cannot be read: {error}")
            self._put(RESPONSE, msgspec.json.encode(start))
            return
        self._put(RESPONSE, msgspec.json.encode(ResponseStart(status=start.status)))
        mask = CredentialMask(self._credentials)
        if masked := mask.feed(content) + mask.finish():
            self._put(REPLY, masked)

    def drop(self, reason: str) -> None:
        """Leave the exchange out of the record."""
        if not self._is_over:
            self._is_over = True
            self._spool.drop(self.number, self.began, reason)

    def _put(self, kind: int, data: bytes = b"") -> None:
        if self._is_over:
            return
        self._size += len(data)
        if self._size > self._spool.limits.exchange:
            self.drop(TOO_LARGE)
            return
        frame = Frame(kind, self.number, self._frames, self.began if kind == BEGIN else now_ms(), data)
        self._frames += 1
        if not self._spool.put(frame):
            self._is_over = True


class Spool:
    """The spool of one run of the proxy. `wake` is called on the writer's thread after an exchange has ended."""

    def __init__(
        self,
        folder: Path,
        gaps: GapLog,
        *,
        wake: Callable[[], None] = lambda: None,
        limits: SpoolLimits | None = None,
    ) -> None:
        make_private_folder(str(folder))
        lock = try_lock(folder / LOCK_FILE)
        assert lock is not None, "each run has a folder of its own"
        self.folder, self.gaps, self.wake = folder, gaps, wake
        self.limits = limits or SpoolLimits()
        self._lock = lock
        self._queue: deque[Frame] = deque()
        self._drops: deque[Frame] = deque()  # few and small, so they are not counted
        self._added, self._taken = 0, 0  # bytes; the first changes on the loop, the second on the writer's thread
        self._unwritten_drops: list[Frame] = []
        self.count = 0
        self._dropped: dict[int, str] = {}  # exchanges whose frames are no longer written
        self._arrived, self._closing = Event(), Event()
        self._file: BinaryIO | None = None
        self._segment, self._segment_size = 0, 0
        self._spool_bytes = 0
        self._writer = Thread(target=self._run, name="contextc-spool", daemon=True)
        self._writer.start()

    @property
    def _is_closing(self) -> bool:
        return self._closing.is_set()

    @property
    def queued_bytes(self) -> int:
        return self._added - self._taken

    def begin(self, start: ExchangeStart, credentials: Sequence[str] = ()) -> ExchangeRecord:
        self.count += 1
        record = ExchangeRecord(self, self.count, credentials)
        record.begin(start)
        return record

    def put(self, frame: Frame) -> bool:
        """Add a frame to the queue. Return False if its exchange is dropped."""
        if frame.exchange in self._dropped:
            return False
        size = FRAME.size + len(frame.data)
        if self.queued_bytes + size > self.limits.queue or self._is_closing:
            self.drop(frame.exchange, now_ms(), SPOOL_CLOSED if self._is_closing else QUEUE_FULL)
            return False
        self._added += size
        self._queue.append(frame)
        if not self._arrived.is_set():
            self._arrived.set()
        return True

    def drop(self, exchange: int, time: int, reason: str) -> None:
        """Leave an exchange out of the record, and count it as a gap."""
        if exchange not in self._dropped:
            self._dropped[exchange] = reason
            self.gaps.add(time, reason)
            self._drops.append(Frame(DROP, exchange, 0, now_ms(), msgspec.json.encode(DropReason(reason=reason))))
            self._arrived.set()

    def close(self) -> None:
        """Write what is queued and the end of the run. The lock is released, so the recorder may remove the folder."""
        if not self._is_closing:
            self._closing.set()
            self._arrived.set()
            self._writer.join()
            with suppress(OSError):
                os.close(self._lock)
            self.wake()

    # ── the writer's thread ───────────────────────────────────────────────────────────────────────────────────────────

    def _run(self) -> None:
        while True:
            self._arrived.wait()
            self._arrived.clear()
            is_last = self._is_closing
            has_ended = False
            while batch := self._take():
                has_ended |= any([frame.kind in (END, DROP) for frame in batch])
                self._write(batch)
            if is_last:
                self._write([Frame(CLOSE, 0, 0, now_ms(), b"")])
                if self._file is not None:
                    self._file.close()
                return
            if has_ended:
                self.wake()
            self._closing.wait(BATCH_SECONDS)

    def _take(self) -> list[Frame]:
        batch = [self._drops.popleft() for _ in range(len(self._drops))]
        size = 0
        while self._queue and size < BATCH_BYTES:
            frame = self._queue.popleft()
            size += FRAME.size + len(frame.data)
            batch.append(frame)
        self._taken += size
        return batch

    def _write(self, batch: list[Frame]) -> None:
        """Write some frames. If that fails, their exchanges are dropped."""
        batch = self._unwritten_drops + batch
        kept = self._fitting([frame for frame in batch if frame.kind == DROP or frame.exchange not in self._dropped])
        self._unwritten_drops = []
        pieces = [piece for frame in kept for piece in (pack_frame(frame), frame.data)]
        size = sum(map(len, pieces))
        if not size:
            return
        try:
            self._append(b"".join(pieces) if size <= 2 * BATCH_BYTES else pieces)
        except OSError as error:
            self._cut_off()
            self._unwritten_drops = [frame for frame in kept if frame.kind == DROP]
            times = {frame.exchange: frame.time for frame in kept if frame.kind not in (DROP, CLOSE)}
            for exchange, at in times.items():
                self.drop(exchange, at, f"the spool could not be written: {error.strerror or error}")

    def _fitting(self, frames: list[Frame]) -> list[Frame]:
        """Return the frames for which there is room. The exchanges of the others are dropped."""
        if self._has_room(sum([FRAME.size + len(frame.data) for frame in frames])):
            return frames
        kept: list[Frame] = []
        size = 0
        for frame in frames:
            grown = size + FRAME.size + len(frame.data)
            if frame.kind in (DROP, CLOSE) or (frame.exchange not in self._dropped and self._has_room(grown)):
                kept.append(frame)
                size = grown
            else:
                self.drop(frame.exchange, frame.time, SPOOL_FULL)
        return [frame for frame in kept if frame.kind in (DROP, CLOSE) or frame.exchange not in self._dropped]

    def _append(self, content: bytes | list[bytes]) -> None:
        if self._file is None or self._segment_size >= self.limits.segment:
            self._open_segment()
        assert self._file is not None
        size = 0
        for piece in [content] if isinstance(content, bytes) else content:
            view = memoryview(piece)
            while view:
                written = self._file.write(view)
                view = view[written:]
            size += len(piece)
        self._segment_size += size
        self._spool_bytes += size

    def _open_segment(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
        self._segment += 1
        path = self.folder / segment_name(self._segment)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_EXCL, 0o600)
        self._file = os.fdopen(handle, "wb", buffering=0)
        self._segment_size = 0

    def _cut_off(self) -> None:
        """Remove an incomplete write from the end of a segment, and begin another one."""
        if self._file is not None:
            with suppress(OSError):
                self._file.truncate(self._segment_size)
            with suppress(OSError):
                self._file.close()
            self._file = None

    def _has_room(self, size: int) -> bool:
        """Return True if the folder may grow. The recorder removes segments, so the size is measured again then."""
        if self._spool_bytes + size > self.limits.folder:
            self._spool_bytes = sum(
                [path.stat().st_size for path in self.folder.glob(f"*{SEGMENT_SUFFIX}") if path.exists()]
            )
        return self._spool_bytes + size <= self.limits.folder
