"""The content of a body that passed the relay: without its chunks and its compression."""

from contextc.observation.content_decoding import MAX_DECODED_BYTES, decode_content
from contextc.observation.content_decoding import CannotDecode as CannotDecode
from contextc.proxy.http1_framing import decode_chunks


def decode_body(raw: bytes, encoding: str, *, is_chunked: bool, limit: int = MAX_DECODED_BYTES) -> bytes:
    """Return the content as far as it arrived. Raise `CannotDecode` with the reason if that is not possible."""
    return decode_content(decode_chunks(raw) if is_chunked else raw, encoding, limit)
