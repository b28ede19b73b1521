r"""Split text into the terms of the full-text index, and a query into the terms to look up.

All stores get their terms from here, so that a search finds the same in each of them. Case, width and accents are
ignored. An identifier is a term as a whole, and so are its parts:

    src/app/mainTest.py   src/app/maintest.py, src, app, maintest.py, maintest, main, test, py
    ORD-12345             ord-12345, ord, 12345
    v2.3.1                v2.3.1, v2, 3, 1

Scripts that are written without spaces become single characters and pairs of them: 東京都 is 東, 京, 都, 東京 and 京都.
"""

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

VERSION = 1
"""Raise it if the same text gets other terms. An index of another version is built again."""
MAX_TERM = 64
"""Maximum length of a term, in characters. Longer ones are cut."""
MAX_WHOLE = 200
"""Length above which an identifier is no term as a whole, such as a long URL or a list of numbers."""
MAX_QUERY_TERMS = 48

_WORD = (
    "[0-9A-Za-z_"
    "\u00aa\u00b5\u00ba\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u02c1\u02e0-\u037d\u037f-\u0386\u0388-\u0559"
    "\u0560-\u0588\u058a-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7-\u05f2\u05f5-\u05ff\u0610-\u061a\u0620-\u0669"
    "\u066e-\u06d3\u06d5-\u06dc\u06de-\u0963\u0966-\u096f\u0971-\u0e2e\u0e30-\u0e4e\u0e50-\u0e59\u0e5c-\u0f00"
    "\u0f15-\u1049\u1050-\u1360\u1369-\u17d3\u17db-\u17ff\u180b-\u1fff\u2070-\u209f\u20d0-\u218f\u2460-\u24ff"
    "\u2c00-\u2dff\u2e80-\u2fff\u3005-\u3007\u3021-\u302f\u3031-\u303c\u3040-\u30fa\u30fc-\ud7ff\uf900-\ufe0f"
    "\ufe70-\ufeff\uff10-\uff19\uff21-\uff3a\uff41-\uff5a\uff66-\uffdf\U00010000-\U0001efff\U0001fb00-\U000dffff"
    "]"
)
"""A character of a word. Beyond ASCII: all but punctuation, symbols, emoji, surrogates and private ones."""
_JOINT = r"[-./\\:@#+=~&?%$]"
_TOKEN = re.compile(rf"{_WORD}++(?:(?:{_JOINT}{{1,3}}|(?<=[0-9]),(?=[0-9])){_WORD}++)*+")
_ESCAPE = re.compile(r"\\[nrt]")
"""An escaped line break or tab, as JSON in a text has it."""
_PARTS = re.compile(r"[/\\:=?&#@+~%$,]+")
_NAMES = re.compile(r"[-_]+")
_DOTS = re.compile(r"\.+")
_ALL = re.compile(r"[-_.]+")
_HUMPS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_SPACELESS = re.compile(
    "[\u0e01-\u0eff\u0f40-\u0fbc\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3041-\u30ff\u31f0-\u31ff\u3400-\u9fff"
    "\uac00-\ud7a3\uf900-\ufaff\U0001b000-\U0001b2ff\U00020000-\U0003ffff]+"
)
_RUN = re.compile(rf"{_SPACELESS.pattern}|{_WORD}")
_ACCENTS = re.compile("[\u0300-\u036f]+")
_HEX = re.compile("[0-9a-f]{12,}")


class QueryTerm(NamedTuple):
    """A term to look up. A term of the text that begins with `prefix` counts as similar; none does if it is empty."""

    text: str
    prefix: str

    def match(self, term: str) -> float:
        """Return how well a term of a text matches: 1.0 if it is the same, 0.0 if it does not match."""
        if term == self.text:
            return 1.0
        if not self.prefix or not term.startswith(self.prefix):
            return 0.0
        longest = max(len(term), len(self.text))
        same = next((at for at, pair in enumerate(zip(term, self.text, strict=False)) if pair[0] != pair[1]), None)
        return 0.7 * (min(len(term), len(self.text)) if same is None else same) / longest


class TextToken(NamedTuple):
    """The terms of a word or identifier, and its position in the text."""

    start: int
    end: int
    terms: tuple[str, ...]


def list_terms(text: str) -> set[str]:
    """Return the terms of a text."""
    tokens = {*_TOKEN.findall(text)}
    if "\\" in text:
        tokens.update(_TOKEN.findall(_ESCAPE.sub("  ", text)))
    return {term for token in tokens for term in _terms_of(token)}


def iter_tokens(text: str) -> Iterator[TextToken]:
    """Yield the words and identifiers of a text. One after an escaped line break may be there twice."""
    texts = [text, _ESCAPE.sub("  ", text)] if "\\" in text else [text]
    for each in texts:
        for found in _TOKEN.finditer(each):
            token, start = found[0], found.start()
            if token.isascii() or _SPACELESS.search(token) is None:
                yield TextToken(start, found.end(), _terms_of(token))
                continue
            for run in _RUN.finditer(token):
                at = start + run.start()
                if not _SPACELESS.match(run[0]):
                    continue
                for index in range(len(run[0])):
                    yield TextToken(at + index, at + index + 2, _terms_of(run[0][index : index + 2]))
            yield TextToken(start, found.end(), _terms_of(_SPACELESS.sub(" ", token)))


def parse_query(query: str) -> list[QueryTerm]:
    """Return the terms of a query, each once, in order. A query that is too long is cut."""
    found: dict[str, QueryTerm] = {}
    for token in _TOKEN.findall(query):
        for term in _terms_of(token, True):
            found.setdefault(term, QueryTerm(term, _prefix_of(term)))
    return list(found.values())[:MAX_QUERY_TERMS]


def _prefix_of(term: str) -> str:
    """Return the beginning that similar terms share: other forms of a word, a shortened hash, a longer path."""
    if _SPACELESS.match(term):
        return ""
    if _HEX.fullmatch(term):
        return term[:7]
    if not term.isalpha():
        return term if len(term) >= 6 else ""
    return term[: max(4, int(len(term) * 0.65))] if len(term) >= 4 else ""


@lru_cache(maxsize=1 << 16)
def _terms_of(token: str, is_query: bool = False) -> tuple[str, ...]:
    if not token.isascii():
        token = unicodedata.normalize("NFKC", token)
        if (plain := unicodedata.normalize("NFD", token)) != token:
            token = unicodedata.normalize("NFC", _ACCENTS.sub("", plain))
    found: dict[str, None] = {}
    for run in _SPACELESS.findall(token) if not token.isascii() else ():
        found |= dict.fromkeys([first + second for first, second in pairwise(run)])
        found |= dict.fromkeys(run if not is_query or len(run) == 1 else ())
        token = token.replace(run, " ", 1)
    for whole in token.split():
        _add_identifier(found, whole)
    return tuple([each[:MAX_TERM] for each in found if each])


def _add_identifier(found: dict[str, None], whole: str) -> None:
    small = whole.casefold()
    if len(whole) <= MAX_WHOLE:
        found[small] = None
        if "," in small:
            found[small.replace(",", "")] = None
    if small == whole and (small.isalpha() or small.isdigit()):
        return
    for part in _PARTS.split(whole):
        small = part.casefold()
        for pattern in (_DOTS, _NAMES, _ALL):
            found |= dict.fromkeys(pattern.split(small))
        found[small] = None
        for word in _ALL.split(part):
            humps = _HUMPS.findall(word) if word.isascii() else ()
            if len(humps) == 2 or (len(humps) > 2 and not word.islower()):  # a hash has many, and they mean nothing
                found |= dict.fromkeys([each.casefold() for each in humps if len(each) > 1])
