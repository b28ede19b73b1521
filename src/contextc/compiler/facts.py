"""Find what a summary tends to lose: paths, addresses, ids, hashes, versions, figures, names and error texts.

No model is involved, and no language is assumed. A fact is a word that natural language does not have: it contains
digits, slashes, an underscore, a dot between letters, or a capital after a small letter. What looks like a credential
is not a fact. The time is in proportion to the text, and small: every word is examined once, however often it occurs.

    The deploy of ORD-5512 failed: src/pay/api.py returned 503 after 30 s.
    ORD-5512, src/pay/api.py, 503, 30 s
"""

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import islice
from typing import NamedTuple, cast

from contextc._credential_mask import mask_secrets
from contextc._json import JSON, JSONObject
from contextc.messages import Message
from contextc.store.message_rows import SEQ_MASK

_WORD = re.compile(r"[\w./\\:@#%$€£¥+~=&?,-]+")
_NUMBER = re.compile(r"[$€£¥+-]?\d+(?:[.,:]\d+)*[%€$£¥]?")
_MEASURE = re.compile(
    r"\d(?<![\w.,-]\d)\d*+(?:[.,]\d++)*+ (?:[mµn]?s|min|h|d|[kKMGT]i?B|B|[kMG]?Hz|[mk]?V|m?A|[kMG]?W|[kMG]?Wh"
    r"|[kcm]?m|[km]?g|m?l|px|pt|°[CF]|[kMG]?bps|rpm|[A-Z]{3})(?!\w)"
)
_NO_SPACES = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\ua4cf\uac00-\ud7ff\uf900-\ufaff\uff00-\uffef]+"
)
"""Letters and signs of languages that are written without spaces."""
_CAMEL = re.compile(r"[a-z][A-Z]")
_LETTER = re.compile(r"[^\W\d_]")
_ERROR_NAMES = ("Error: ", "Exception: ")
_BEFORE_SECRETS = re.compile(r"(?i)(?:key|token|passw(?:or)?d|passphrase|secret)([:=]?)\Z|\A(?:bearer|basic)\Z")
_MAY_BE_SECRET = re.compile(r"[\d=@-]")
_AROUND = ".,:?&=+~-\\"
MAX_LENGTH, MAX_ERROR = 200, 160
MIN_SECRET = 8
CACHED_WORDS = 1 << 15
"""Number of words whose examination is kept: the same ones occur in many messages."""


class Fact(NamedTuple):
    """A fact: how many messages have it, and the place of the last of them."""

    text: str
    uses: int
    place: int


def find_facts(text: str) -> list[str]:
    """Return the facts in a text, each once."""
    return _without_credentials(list(_find_words(text)))


def list_texts(message: Message) -> list[str]:
    """Return the texts of a message in which facts are found: its own, its results, and its calls' arguments."""
    arguments = [text for call in message.tool_calls for text in iter_texts(call.arguments)]
    return [message.text, *(result.text for result in message.tool_results), *arguments]


def _find_words(text: str) -> dict[str, None]:
    """Return the words that are facts, or may be credentials."""
    words = _WORD.findall(text)
    unique = dict.fromkeys(words)
    secrets = _named_secrets(words, unique)
    facts = dict.fromkeys(_error_texts(text))
    facts |= dict.fromkeys(_MEASURE.findall(text))
    return facts | dict.fromkeys([fact for word in unique if word not in secrets for fact in _split(word)])


def find_message_facts(message: Message) -> list[str]:
    """Return the facts in a message: in its text, in its results, and the short texts among the arguments of its
    calls.
    """
    return _without_credentials(list(_find_message_words(message)))


def _find_message_words(message: Message) -> dict[str, None]:
    texts = [message.text, *(result.text for result in message.tool_results)]
    names: list[str] = []
    for call in message.tool_calls:
        for text in iter_texts(call.arguments):
            name = text.strip()
            (names if len(name) <= MAX_LENGTH and "\n" not in name else texts).append(name)
    found = dict.fromkeys([name for name in names if name])
    for text in texts:
        found |= _find_words(text)
    return found


def rank_facts(messages: Iterable[tuple[int, Message]], most: int) -> list[Fact]:
    """Return the facts of messages with their places: first those in most messages, then the latest.

    A message counts with at most `most` facts, so that one long listing does not displace all others.
    """
    found: dict[str, Fact] = {}
    for place, message in messages:
        for text in islice(_find_message_words(message), most):
            known = found.get(text)
            found[text] = Fact(text, known.uses + 1 if known is not None else 1, place)
    found = {text: found[text] for text in _without_credentials(list(found))}
    return sorted(found.values(), key=lambda fact: (fact.uses, fact.place & SEQ_MASK), reverse=True)


def iter_texts(value: JSON) -> Iterator[str]:
    """Yield the texts among the values of a JSON value, at any depth."""
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, str):
            yield each
        elif isinstance(each, dict):
            waiting += reversed(cast(JSONObject, each).values())
        elif isinstance(each, list):
            waiting += reversed(cast(list[JSON], each))


@lru_cache(maxsize=CACHED_WORDS)
def _split(word: str) -> tuple[str, ...]:
    """Return the facts in a word: none if it is of natural language, several if it has commas or no spaces."""
    if word.isascii() and word.isalpha():
        return (word,) if _CAMEL.search(word) else ()
    pieces = [word] if word.isascii() else _NO_SPACES.sub(" ", word).split()
    if "," in word:
        pieces = [part for each in pieces for part in ([each] if _NUMBER.fullmatch(each) else each.split(","))]
    return tuple([fact for each in pieces if _is_fact(fact := each.strip(_AROUND))])


def _is_fact(word: str) -> bool:
    if not 1 < len(word) <= MAX_LENGTH:
        return False
    if _NUMBER.fullmatch(word):
        return len(word) > 2
    if any(map(str.isdigit, word)):
        return True
    if not _LETTER.search(word):
        return False
    if "_" in word or "@" in word[1:] or _CAMEL.search(word):
        return True
    if "/" in word or "\\" in word:
        return word.count("/") + word.count("\\") > 1 or word[0] in "/~" or "." in word
    return len(word) > 3 and ("." in word or word[0] == "#")


def _error_texts(text: str) -> Iterator[str]:
    """Yield the rest of each line from the name of an error on."""
    for name in _ERROR_NAMES:
        at = text.find(name)
        while at >= 0:
            end = text.find("\n", at)
            end = len(text) if end < 0 else end
            start = max(text.rfind("\n", 0, at), text.rfind(" ", 0, at)) + 1
            yield text[start : min(end, start + MAX_ERROR)].strip()
            at = text.find(name, end)


def _named_secrets(words: list[str], unique: Iterable[str]) -> frozenset[str]:
    """Return the words that follow a name such as `password:`."""
    names = {word: sign for word in unique if (sign := _find_secret_sign(word)) is not None}
    if not names:
        return frozenset()
    after = zip(words, words[1:], [*words[2:], ""], strict=False)
    return frozenset(
        [
            third if second in (":", "=") else second
            for first, second, third in after
            if first in names and (names[first] or second in (":", "="))
        ]
    )


@lru_cache(maxsize=CACHED_WORDS)
def _find_secret_sign(word: str) -> str | None:
    """Return what stands between a name such as `password` and a secret: ":", "=" or " "; "" if that is not in the
    word; None for all other words.
    """
    found = _BEFORE_SECRETS.search(word)
    return None if found is None else " " if found[1] is None else found[1]


def _without_credentials(facts: list[str]) -> list[str]:
    """Return the facts that do not look like a key, a token or a login."""
    suspicious = [fact for fact in facts if len(fact) >= MIN_SECRET and _MAY_BE_SECRET.search(fact)]
    masked = mask_secrets("\n".join(suspicious)).split("\n")
    if masked == suspicious:
        return facts
    if len(masked) == len(suspicious):
        gone = {fact for fact, shown in zip(suspicious, masked, strict=True) if fact != shown}
    else:  # a mask went over several lines
        gone = {fact for fact in suspicious if mask_secrets(fact) != fact}
    return [fact for fact in facts if fact not in gone]
