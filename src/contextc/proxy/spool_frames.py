"""The files of the spool: segments of frames, and the exchanges that they contain.

A frame is one event of an exchange: its beginning, bytes of the request, the response's head, bytes of the reply, its
end. Frames of an exchange are numbered, so a missing one is noticed. The reader may run while a segment is being
written: an incomplete frame at the end is read again later. Once an exchange is recorded, its frames are overwritten.
"""

import os
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from struct import Struct as Layout
from typing import NamedTuple

import msgspec
from msgspec import Struct, field

from contextc.compiler.manifest import RequestAction

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

    `actions` are what options of the proxy changed in the request.
    """

    upstream: str
    url: str
    format: str = ""
    headers: dict[str, str] = {}
    is_chunked: bool = False
    actions: tuple[RequestAction, ...] = ()


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
    is_sent: bool = False
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
            exchange.request, exchange.reply = [], []
        elif frame.kind == REQUEST:
            exchange.request.append(frame.data)
        elif frame.kind == SENT:
            exchange.is_sent = True
        elif frame.kind == RESPONSE:
            exchange.response = _decode_response(frame.data)
        elif frame.kind == REPLY:
            exchange.reply.append(frame.data)
        if frame.kind not in (END, DROP):
            return None
        exchange.ended, exchange.outcome = frame.time, frame.data.decode() if frame.kind == END else "dropped"
        return self._open.pop(frame.exchange)


def segment_name(number: int) -> str:
    return f"{number:010}{SEGMENT_SUFFIX}"
