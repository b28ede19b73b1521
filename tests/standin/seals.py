"""Signatures that can be checked without a memory: they hold hashes of what they vouch for.

Each vendor signs its model's reasoning in a form of its own, which our rule checker knows. What is sealed here has that
form and says in addition whose it is, so a signature that came from elsewhere is left alone. A signature over other
words, or over another history, is found out, in whichever process it is read.
"""

from base64 import b64encode, urlsafe_b64encode
from hashlib import blake2b

from contextc.formats.media import unpacked

MAGIC = b"contextc stand-in 1 "
SIZE = 20
FERNET = b"\x80" + bytes(4)


def digest(*said: bytes) -> bytes:
    found = blake2b(digest_size=SIZE)
    for each in said:
        found.update(len(each).to_bytes(8) + each)
    return found.digest()


def message_seal(*digests: bytes) -> str:
    """As Anthropic and Google write them: base64 of a message in protocol buffers' form."""
    content = MAGIC + b"".join(digests)
    return b64encode(b"\x12" + bytes([len(content)]) + content + b"\x18\x01").decode()


def read_message_seal(seal: object) -> list[bytes] | None:
    """The digests in it; None where it is none of ours."""
    data = unpacked(seal, urlsafe=True) if isinstance(seal, str) else None
    return _digests(data[2:-2]) if data and data[2:].startswith(MAGIC) else None


def token_seal(content: bytes) -> str:
    """As OpenAI encrypts its reasoning: a Fernet token, whose time and ciphertext are our own business."""
    body = FERNET + digest(content)[:4] + MAGIC[:16] + (content + bytes(-len(content) % 16))
    return urlsafe_b64encode(body + blake2b(body, digest_size=32).digest()).decode()


def read_token_seal(seal: object) -> bytes | None:
    """What it vouches for; b"" where it was one of ours and is damaged, None where it is none of ours."""
    data = unpacked(seal, urlsafe=True) if isinstance(seal, str) else None
    if not data or data[9:25] != MAGIC[:16]:
        return None
    body, proof = data[:-32], data[-32:]
    return body[25:].rstrip(b"\0") if blake2b(body, digest_size=32).digest() == proof else b""


def _digests(content: bytes) -> list[bytes]:
    sealed = content.removeprefix(MAGIC)
    return [sealed[start : start + SIZE] for start in range(0, len(sealed), SIZE)]
