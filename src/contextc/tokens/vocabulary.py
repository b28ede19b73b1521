"""Exact token counts with the vocabularies of splintr.

A vocabulary is loaded once, on first use, which takes a tenth of a second. Without splintr, or for an unknown name, the
estimate is used. Special tokens in a text count as plain text and cannot be forged.
"""

from collections.abc import Callable
from functools import cache
from threading import Lock

from contextc._json import fix_surrogates

_loading = Lock()


def load_vocabulary(name: str) -> Callable[[str], int] | None:
    """Return a function that counts the tokens of a text, or None if there is no such vocabulary."""
    with _loading:
        return _load(name)


@cache
def _load(name: str) -> Callable[[str], int] | None:
    try:
        from splintr import Tokenizer
    except ImportError:
        return None
    try:
        encode = Tokenizer.from_pretrained(name).encode_ordinary
    except ValueError:
        return None

    def count(text: str) -> int:
        try:
            return len(encode(text))
        except UnicodeEncodeError:  # a lone surrogate
            return len(encode(fix_surrogates(text)))

    return count
