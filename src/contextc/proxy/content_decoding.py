"""Decoding of recorded bodies: gzip, deflate, and br and zstd where a library is installed."""

import zlib
from collections.abc import Callable
from importlib import import_module
from typing import Any

MAX_DECODED_BYTES = 512 << 20
GZIP_OR_ZLIB, RAW_DEFLATE = 32 + zlib.MAX_WBITS, -zlib.MAX_WBITS
LIBRARIES = {"br": ("brotli", "brotlicffi"), "zstd": ("compression.zstd", "zstandard", "backports.zstd")}
PACKAGES = {"br": "brotli", "zstd": "zstandard"}


class CannotDecode(Exception):
    """The content cannot be decoded. The text is the reason."""


def decode_content(body: bytes, encoding: str) -> bytes:
    """Return the content of a body. A body that broke off is decoded as far as it arrived."""
    for name in reversed([each.strip().lower() for each in encoding.split(",") if each.strip()]):
        if name not in DECODERS:
            raise CannotDecode(f"the content encoding {name[:40]!r} is unknown")
        body = DECODERS[name](body)
    return body


def _inflate(body: bytes) -> bytes:
    made: list[bytes] = []
    size = 0
    while body:
        kind = GZIP_OR_ZLIB
        if body[:2] != b"\x1f\x8b" and (len(body) < 2 or int.from_bytes(body[:2]) % 31 or body[0] & 15 != 8):
            kind = RAW_DEFLATE  # some servers send deflate without its header
        decoder = zlib.decompressobj(kind)
        try:
            made.append(decoder.decompress(body, MAX_DECODED_BYTES - size + 1))
        except zlib.error as error:
            if made:
                break  # padding behind the last member
            raise CannotDecode(f"the compressed content is damaged ({error})") from None
        size += len(made[-1])
        if size > MAX_DECODED_BYTES:
            raise CannotDecode("the decompressed content is too large")
        if not decoder.eof:
            break
        body = decoder.unused_data
    return b"".join(made)


def _find_library(encoding: str) -> Any:  # modules without a common type
    for name in LIBRARIES[encoding]:
        try:
            return import_module(name)
        except ModuleNotFoundError:
            continue
    raise CannotDecode(f"it is compressed with {encoding}; to decode it, pip install {PACKAGES[encoding]}")


def _decode_brotli(body: bytes) -> bytes:
    library = _find_library("br")
    try:
        decoder = library.Decompressor()
        return bytes((getattr(decoder, "process", None) or decoder.decompress)(body))
    except library.error as error:
        raise CannotDecode(f"the compressed content is damaged ({error})") from None


def _decode_zstd(body: bytes) -> bytes:
    library = _find_library("zstd")
    try:
        if hasattr(library, "ZstdDecompressor") and library.__name__ == "zstandard":
            return bytes(library.ZstdDecompressor().decompressobj(read_across_frames=True).decompress(body))
        return bytes(library.ZstdDecompressor().decompress(body))
    except (library.ZstdError, EOFError) as error:
        raise CannotDecode(f"the compressed content is damaged ({error})") from None


DECODERS: dict[str, Callable[[bytes], bytes]] = {
    "identity": lambda body: body,
    "gzip": _inflate,
    "x-gzip": _inflate,
    "deflate": _inflate,
    "br": _decode_brotli,
    "zstd": _decode_zstd,
}
