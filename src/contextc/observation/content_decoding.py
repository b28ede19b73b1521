"""Decoding of recorded bodies: gzip, deflate, and br and zstd where a library is installed.

A few kilobytes can decode to gigabytes. So everything is decoded in pieces, and there is a limit. A body that broke off
is decoded as far as it arrived.
"""

import zlib
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from io import BytesIO
from typing import Any

MAX_DECODED_BYTES = 128 << 20
MAX_ENCODINGS = 4
PIECE_BYTES = 1 << 20
BLIND_BYTES = 16
"""Bytes that are given at once to a decoder that cannot limit its output. A few bytes of br decode to up to 16 MB."""
GZIP_OR_ZLIB, RAW_DEFLATE = 32 + zlib.MAX_WBITS, -zlib.MAX_WBITS
LIBRARIES = {"br": ("brotli", "brotlicffi"), "zstd": ("compression.zstd", "zstandard", "backports.zstd")}
PACKAGES = {"br": "brotli", "zstd": "zstandard"}


class CannotDecode(Exception):
    """The content cannot be decoded. The text is the reason."""


def unreadable_reply(error: CannotDecode) -> dict[str, dict[str, str]]:
    """Return what is recorded in place of a reply that cannot be decoded."""
    return {"error": {"message": f"The reply cannot be read: {error}"}}


def decode_content(body: bytes, encoding: str, limit: int = MAX_DECODED_BYTES) -> bytes:
    """Return the content of a body. Raise `CannotDecode` if it is damaged, too large or in an unknown encoding."""
    names = [each.strip().lower() for each in encoding.split(",") if each.strip()]
    if len(names) > MAX_ENCODINGS:
        raise CannotDecode(f"it has {len(names)} content encodings, at most {MAX_ENCODINGS} are decoded")
    for name in reversed(names):
        if name == "identity":
            continue
        if name not in DECODERS:
            raise CannotDecode(f"the content encoding {name[:40]!r} is unknown")
        made = bytearray()
        for piece in DECODERS[name](body):
            made += piece
            if len(made) > limit:
                raise CannotDecode(f"the {name} content is larger than {limit >> 20} MB when decompressed")
        body = bytes(made)
    return body


def measure_pieces(pieces: Iterable[tuple[int, bytes]], encoding: str) -> list[tuple[int, int]]:
    """Return pieces of a body, each with its time and the size of what it adds to the content.

    Return none for an encoding that is not decoded piece by piece: only the whole content is known then.
    """
    names = {each.strip().lower() for each in encoding.split(",")} - {"", "identity"}
    if names - {"gzip", "x-gzip"}:
        return []
    decoder = zlib.decompressobj(GZIP_OR_ZLIB) if names else None
    found: list[tuple[int, int]] = []
    for time, data in pieces:
        try:
            content = decoder.decompress(data, PIECE_BYTES) if decoder is not None else data
        except zlib.error:
            return []
        if decoder is not None and decoder.unconsumed_tail:  # it grows too much to be a stream
            return []
        found.append((time, len(content)))
    return found


def _inflate(body: bytes) -> Iterator[bytes]:
    is_first = True
    while body:
        kind = GZIP_OR_ZLIB
        if body[:2] != b"\x1f\x8b" and (len(body) < 2 or int.from_bytes(body[:2]) % 31 or body[0] & 15 != 8):
            kind = RAW_DEFLATE  # some servers send deflate without its header
        decoder = zlib.decompressobj(kind)
        while not decoder.eof:
            try:
                piece = decoder.decompress(body, PIECE_BYTES)
            except zlib.error as error:
                if is_first:
                    raise CannotDecode(f"the compressed content is damaged ({error})") from None
                return  # padding behind the last member
            yield piece
            body = decoder.unconsumed_tail
            if not body and len(piece) < PIECE_BYTES and not decoder.eof:
                return
        body, is_first = decoder.unused_data, False


def _find_library(encoding: str) -> Any:  # modules without a common type
    for name in LIBRARIES[encoding]:
        try:
            return import_module(name)
        except ModuleNotFoundError:
            continue
    raise CannotDecode(f"it is compressed with {encoding}; to decode it, pip install {PACKAGES[encoding]}")


def _decode_brotli(body: bytes) -> Iterator[bytes]:
    library = _find_library("br")
    decoder = library.Decompressor()
    process = getattr(decoder, "process", None) or decoder.decompress
    try:
        if not hasattr(decoder, "can_accept_more_data"):  # brotli before 1.2
            yield from (process(body[at : at + BLIND_BYTES]) for at in range(0, len(body), BLIND_BYTES))
            return
        piece = process(body, output_buffer_limit=PIECE_BYTES)
        while piece:
            yield piece
            piece = process(b"", output_buffer_limit=PIECE_BYTES) if not decoder.is_finished() else b""
    except library.error as error:
        raise CannotDecode(f"the br content is damaged ({error})") from None


def _decode_zstd(body: bytes) -> Iterator[bytes]:
    library = _find_library("zstd")
    try:
        if library.__name__ == "zstandard":
            reader = library.ZstdDecompressor().stream_reader(BytesIO(body), read_across_frames=True)
            while piece := reader.read(PIECE_BYTES):
                yield piece
            return
        while body:
            decoder = library.ZstdDecompressor()
            while not decoder.eof and (body or not decoder.needs_input):
                yield decoder.decompress(body, PIECE_BYTES)
                body = b""
            body = decoder.unused_data if decoder.eof else b""
    except (library.ZstdError, EOFError) as error:
        raise CannotDecode(f"the zstd content is damaged ({error})") from None


DECODERS: dict[str, Callable[[bytes], Iterator[bytes]]] = {
    "gzip": _inflate,
    "x-gzip": _inflate,
    "deflate": _inflate,
    "br": _decode_brotli,
    "zstd": _decode_zstd,
}
