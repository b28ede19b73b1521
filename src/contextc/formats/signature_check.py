"""Checks of reasoning signatures without the key: base64, in most cases of a protocol buffers message.

Only the outermost fields are parsed. That detects a signature that was truncated or padded, but not a changed byte.
Providers also accept signatures of other kinds. Nothing is known about their bytes, so these pass.
"""

from contextc.formats.media_encoding import decode_base64

MIN_LENGTH = 64
"""Shorter values are placeholders for a signature, in tests and replays."""
FERNET_FRAME, FERNET_BLOCK = 57, 16
LENGTH_PREFIXED = (b"\x0a", b"\x12")
"""First bytes of messages that begin with field 1 or 2 and its length, as most signatures of Google do."""
CIPHERTEXT = b"\x01"
"""First byte of a ciphertext that names its key, which Google sends with or without a message around it."""


def is_valid_signature(signature: object) -> bool:
    """Return True if this may be a signature of Anthropic."""
    if not isinstance(signature, str) or not signature.strip():
        return False
    if len(signature) < MIN_LENGTH:
        return True
    data = decode_base64(signature)
    return data is not None and is_protobuf_message(data)


def is_intact_google_signature(text: str) -> bool:
    """Return True if this may be a whole signature of Google, in either alphabet of base64, with or without padding.

    Only what has the frame of a message is known to be incomplete. Text in the standard alphabet has one, or names its
    key; URL-safe text may be anything.
    """
    data = decode_base64(text, urlsafe=True)
    if data is None or is_protobuf_message(data):
        return data is not None
    is_urlsafe = len(text) % 4 != 0 or "-" in text or "_" in text
    return not data.startswith(LENGTH_PREFIXED) and (is_urlsafe or data.startswith(CIPHERTEXT))


def is_fernet_token(data: bytes) -> bool:
    """Return True if the bytes have the frame of a Fernet token, with which OpenAI encrypts."""
    return data[:1] == b"\x80" and (len(data) - FERNET_FRAME) % FERNET_BLOCK == 0


def is_protobuf_message(data: bytes) -> bool:
    """Return True if the bytes are a sequence of complete fields."""
    place = 0
    while place < len(data):
        tag, place = _read_varint(data, place)
        if tag >> 3 == 0:
            return False
        if tag & 7 == 0:
            _, place = _read_varint(data, place)
        elif tag & 7 == 2:
            length, place = _read_varint(data, place)
            place += length
        else:
            place += {1: 8, 5: 4}.get(tag & 7, len(data) + 1)
    return place == len(data)


def _read_varint(data: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while place < len(data):
        byte = data[place]
        value, shift, place = value | (byte & 127) << shift, shift + 7, place + 1
        if byte < 128:
            return value, place
    return 0, len(data) + 1
