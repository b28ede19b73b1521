"""Fake reasoning signatures that are verifiable without state: they contain hashes of the signed content.

Each vendor signs reasoning in its own form, which our lint rules check. These signatures have that form and a marker.
Signatures of other origin are ignored. A signature for other text or another history is detected in any process.
"""

from base64 import b64encode, urlsafe_b64encode
from hashlib import blake2b

from contextc.formats.message_preparation import decode_base64

MAGIC = b"contextc stand-in 1 "
SIZE = 20
FERNET = b"\x80" + bytes(4)


def digest(*parts: bytes) -> bytes:
    found = blake2b(digest_size=SIZE)
    for each in parts:
        found.update(len(each).to_bytes(8) + each)
    return found.digest()


def message_seal(*digests: bytes) -> str:
    """Return a signature in the form of Anthropic and Google: a base64-encoded protocol buffer message."""
    content = MAGIC + b"".join(digests)
    return b64encode(b"\x12" + bytes([len(content)]) + content + b"\x18\x01").decode()


def read_message_seal(seal: object) -> list[bytes] | None:
    """Return the digests in a signature, or None if it was not created here."""
    data = decode_base64(seal, urlsafe=True) if isinstance(seal, str) else None
    return _digests(data[2:-2]) if data and data[2:].startswith(MAGIC) else None


def token_seal(content: bytes) -> str:
    """Return a token in the form of OpenAI's encrypted reasoning: a Fernet token with our own content."""
    body = FERNET + digest(content)[:4] + MAGIC[:16] + (content + bytes(-len(content) % 16))
    return urlsafe_b64encode(body + blake2b(body, digest_size=32).digest()).decode()


def read_token_seal(seal: object) -> bytes | None:
    """Return the signed content, b"" if the token is damaged, or None if it was not created here."""
    data = decode_base64(seal, urlsafe=True) if isinstance(seal, str) else None
    if not data or data[9:25] != MAGIC[:16]:
        return None
    body, proof = data[:-32], data[-32:]
    return body[25:].rstrip(b"\0") if blake2b(body, digest_size=32).digest() == proof else b""


def _digests(content: bytes) -> list[bytes]:
    sealed = content.removeprefix(MAGIC)
    return [sealed[start : start + SIZE] for start in range(0, len(sealed), SIZE)]
