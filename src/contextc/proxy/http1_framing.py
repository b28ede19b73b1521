"""HTTP/1.1 as the relay needs it: the head of a message, and the end of its body. Bodies pass as they are.

Heads are parsed strictly: what two programs could read in two ways is an error. The lines of header fields are kept as
they arrived, so that they can be forwarded unchanged.
"""

import re
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple, TypeAlias

from contextc.observation.content_decoding import MAX_DECODED_BYTES, decode_content

HEAD_END = b"\r\n\r\n"
LINE_END = b"\r\n"
MAX_LINE = 16 << 10
"""Maximum bytes of a line within a chunked body: a chunk size with extensions, or a trailer field."""
FIELD = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):[ \t]*+([^\x00\r\n]*+)")
REQUEST_LINE = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+) ([\x21-\x7e]+) HTTP/(1\.[01])")
STATUS_LINE = re.compile(rb"HTTP/(1\.[01]) ([1-9][0-9][0-9])(?: [^\x00\r\n]*)?")
CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,16})[ \t]*(?:;[^\x00\r\n]*)?")
DIGITS = re.compile(rb"[0-9]{1,18}")
WITHOUT_BODY = (204, 304)
HOP_BY_HOP = frozenset(
    [
        b"connection",
        b"keep-alive",
        b"proxy-connection",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"te",
        b"upgrade",
    ]
)
"""Header fields of one connection, which are not forwarded. `transfer-encoding` is: chunks pass unchanged."""


class FramingError(Exception):
    """The message is not valid HTTP/1.1, or its length is ambiguous."""


class HeaderField(NamedTuple):
    """A header field: its name in lower case, its value, and the line as it arrived."""

    name: bytes
    value: bytes
    line: bytes


class HTTPHead(NamedTuple):
    """The start line and the header fields of a message."""

    start: bytes
    fields: Sequence[HeaderField]

    def values(self, name: bytes) -> list[bytes]:
        return [field.value for field in self.fields if field.name == name]

    def value(self, name: bytes) -> bytes:
        """Return the first value of a field; b"" if it is missing."""
        return next((field.value for field in self.fields if field.name == name), b"")

    def tokens(self, name: bytes) -> list[bytes]:
        """Return the elements of a list field, in lower case."""
        return [each.strip(b" \t").lower() for value in self.values(name) for each in value.split(b",")]


def parse_head(raw: bytes) -> HTTPHead:
    """Parse a head, without the empty line at its end."""
    start, *lines = raw.split(LINE_END)
    fields: list[HeaderField] = []
    for line in lines:
        match = FIELD.fullmatch(line)
        if match is None:
            raise FramingError("a header line is invalid")
        fields.append(HeaderField(match[1].lower(), match[2].rstrip(b" \t"), line))
    return HTTPHead(start, fields)


class LengthBody:
    """A body of known length."""

    is_chunked = False
    ends_with_connection = False

    def __init__(self, length: int) -> None:
        self.left = length

    @property
    def is_done(self) -> bool:
        return not self.left

    def feed(self, data: bytes) -> int:
        """Return how many of these bytes belong to the body."""
        used = min(self.left, len(data))
        self.left -= used
        return used


class ConnectionBody:
    """A body that ends with its connection."""

    is_chunked = False
    ends_with_connection = True
    is_done = False

    def feed(self, data: bytes) -> int:
        return len(data)


class ChunkedBody:
    """A chunked body. Its bytes are not changed; `payload` collects the content, if it is given."""

    is_chunked = True
    ends_with_connection = False

    def __init__(self, payload: list[bytes] | None = None) -> None:
        self.is_done = False
        self.payload = payload
        self._left = 0  # bytes of the current chunk that have not arrived
        self._line = b""  # the beginning of a line that has not arrived completely
        self._read_line = self._read_size

    def feed(self, data: bytes) -> int:
        at, end = 0, len(data)
        while at < end and not self.is_done:
            if self._left:
                step = min(self._left, end - at)
                if self.payload is not None:
                    self.payload.append(data[at : at + step])
                self._left -= step
                at += step
                continue
            newline = data.find(b"\n", at)
            stop = end if newline < 0 else newline + 1
            line = self._line + data[at:stop]
            if len(line) > MAX_LINE:
                raise FramingError("a line of a chunked body is too long")
            at = stop
            if newline < 0:
                self._line = line
                break
            if not line.endswith(LINE_END):
                raise FramingError("a line of a chunked body is invalid")
            self._line = b""
            self._read_line(line[:-2])
        return at

    def _read_size(self, line: bytes) -> None:
        match = CHUNK_SIZE.fullmatch(line)
        if match is None:
            raise FramingError("a chunk size is invalid")
        self._left = int(match[1], 16)
        self._read_line = self._read_chunk_end if self._left else self._read_trailer

    def _read_chunk_end(self, line: bytes) -> None:
        if line:
            raise FramingError("a chunk is longer than its size")
        self._read_line = self._read_size

    def _read_trailer(self, line: bytes) -> None:
        self.is_done = not line


Body: TypeAlias = LengthBody | ConnectionBody | ChunkedBody


def request_body(head: HTTPHead) -> LengthBody | ChunkedBody:
    """Return the framing of a request's body."""
    if head.values(b"transfer-encoding"):
        if head.tokens(b"transfer-encoding") != [b"chunked"] or head.values(b"content-length"):
            raise FramingError("the transfer encoding is not supported")
        return ChunkedBody()
    return LengthBody(_length(head) or 0)


def response_body(head: HTTPHead, status: int, method: bytes) -> Body:
    """Return the framing of a response's body."""
    if method == b"HEAD" or status in WITHOUT_BODY:
        return LengthBody(0)
    codings = head.tokens(b"transfer-encoding")
    if codings:
        if head.values(b"content-length"):
            raise FramingError("a response has a length and a transfer encoding")
        return ChunkedBody() if codings == [b"chunked"] else ConnectionBody()
    length = _length(head)
    return ConnectionBody() if length is None else LengthBody(length)


def _length(head: HTTPHead) -> int | None:
    lengths = set(head.values(b"content-length"))
    if not lengths:
        return None
    if len(lengths) > 1 or not DIGITS.fullmatch(found := lengths.pop()):
        raise FramingError("the content length is invalid")
    return int(found)


def forwarded_fields(head: HTTPHead) -> list[HeaderField]:
    """Return the header fields that go on to the next connection."""
    named = set(head.tokens(b"connection")) - {b"host", b"content-length", b"transfer-encoding", b"authorization"}
    return [field for field in head.fields if field.name not in HOP_BY_HOP and field.name not in named]


def decode_chunks(raw: bytes) -> bytes:
    """Return the content of a chunked body, as far as it arrived."""
    payload: list[bytes] = []
    body = ChunkedBody(payload)
    with suppress(FramingError):  # what came before is valid
        body.feed(raw)
    return b"".join(payload)


def decode_body(raw: bytes, encoding: str, *, is_chunked: bool, limit: int = MAX_DECODED_BYTES) -> bytes:
    """Return the content of a body without chunks and compression, as far as it arrived.

    Raise `CannotDecode` with the reason if that is not possible.
    """
    return decode_content(decode_chunks(raw) if is_chunked else raw, encoding, limit)
