"""Spool: raw exchanges on their way from the relay to the recorder, bounded in memory and on disk.

The relay appends frames to a queue and never waits. A thread writes them to segment files in a private folder. If the
queue or the folder is full, or writing fails, the exchange is dropped from the record and counted as a gap. The request
itself is not affected.
"""

import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread
from typing import BinaryIO, NamedTuple

import msgspec

from contextc._file_lock import try_lock
from contextc.config import make_private_folder
from contextc.observation.content_decoding import CannotDecode
from contextc.observation.credential_values import CredentialMask
from contextc.proxy.gap_log import GapLog
from contextc.proxy.http1_framing import decode_body
from contextc.proxy.spool_frames import (
    BEGIN,
    CLOSE,
    DROP,
    END,
    FRAME,
    LOCK_FILE,
    REPLY,
    REQUEST,
    RESPONSE,
    SEGMENT_SUFFIX,
    SENT,
    DropReason,
    ExchangeStart,
    Frame,
    ResponseStart,
    pack_frame,
    segment_name,
)

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
