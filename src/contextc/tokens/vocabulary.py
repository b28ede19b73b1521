"""Exact counts, from the vocabularies that splintr carries.

Loaded on first use and once, because it takes a tenth of a second. Without splintr, or for a name it does not know,
there is none, and the estimate stands in. Special tokens written out in a text are text: nobody can forge one.
"""

from collections.abc import Callable
from functools import cache
from threading import Lock

from contextc._json import well_formed

_loading = Lock()


def vocabulary(name: str) -> Callable[[str], int] | None:
    """The function that counts the tokens of a text, or None where there is no such vocabulary."""
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
        except UnicodeEncodeError:  # half an emoji
            return len(encode(well_formed(text)))

    return count
