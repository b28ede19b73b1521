"""Encode tool call ids for Mistral: exactly nine letters and digits.

Ids that Mistral made already have this form and stay. Any other id becomes a hash, the same for the call and its
result. No decoding is needed, because a model answers only with ids of its own.
"""

from hashlib import sha256
from string import ascii_letters, digits

from contextc.formats.identifiers import IdentifierCodec

LENGTH = 9
LETTERS = digits + ascii_letters


class NineCharacterIds(IdentifierCodec):
    def __init__(self) -> None:
        super().__init__("a-zA-Z0-9", LENGTH, accepted=f"[a-zA-Z0-9]{{{LENGTH}}}")

    def is_unchanged(self, text: str) -> bool:
        return self.accepts(text)

    def _reencode(self, text: str) -> str:
        number = int.from_bytes(sha256(text.encode("utf-8", "replace")).digest())
        spelled = ""
        while len(spelled) < LENGTH:
            number, place = divmod(number, len(LETTERS))
            spelled += LETTERS[place]
        return spelled
