"""Find what a summary tends to lose: paths, addresses, ids, hashes, versions, figures, names and error texts.

No model is involved, and no language is assumed. A fact is a word that natural language does not have: it contains
digits, slashes, an underscore, a dot between letters, or a capital after a small letter. The text after the name of an
error is a fact, too. What looks like a credential is not. The time is in proportion to the text, and small: every word
is examined once, however often it occurs.

    The deploy of ORD-5512 failed: src/pay/api.py returned 503 after 30 s.
    ORD-5512, src/pay/api.py, 503, 30 s

`rank_facts` chooses where there is no room for all of them. Facts that look alike, such as times in a log or numbered
files, are worth less the more messages have them. The first fact of a message is worth more than the second, so that a
long listing does not displace all others. What people wrote, what the model took up, and what is recent comes first.
"""

import re
from bisect import bisect
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from functools import lru_cache
from hashlib import blake2b
from itertools import accumulate, chain, compress, repeat
from math import log2
from operator import attrgetter, itemgetter
from sys import intern
from threading import Lock
from typing import NamedTuple, cast

from msgspec import Struct

from contextc._credential_mask import mask_secrets
from contextc._json import JSON, JSONObject
from contextc.compiler.message_cache import derive
from contextc.messages import Message, Text, ToolCall, ToolResult

_WORD = re.compile(r"[\w./\\:@#%$€£¥+~=&?,-]+|\n")
_BETWEEN_WORDS = bytes([each if each == ord("\n") or _WORD.match(chr(each)) else ord(" ") for each in range(128)] * 2)
"""A blank for each sign of ASCII that is in no word."""
_NUMBER = re.compile(r"[$€£¥+-]?\d+(?:[.,:]\d+)*[%€$£¥]?")
_DATE = (
    r"\d?+(?:\.|er|st|nd|rd|th)?+(?: [^\W\d_]{2}(?= ))?+ [^\W\d_]{3,12}+(?: [^\W\d_]{2}(?= ))?+,?+ \d{4}(?!\w)"
    r"|\d?+(?:st|nd|rd|th)?+, \d{4}(?!\w)"
)
"""After the first digit of a day: a month in words and a year, in most languages; or a year after "May 3"."""
_MEASURE = (
    r"(?<![.,-][0-9])\d*+(?:[.,]\d++)*+ (?:[mµn]?s|min|h|d|[kKMGT]i?B|B|[kMG]?Hz|[mk]?V|m?A|[kMG]?W|[kMG]?Wh"
    r"|[kcm]?m|[km]?g|m?l|px|pt|°[CF]|[kMG]?bps|rpm|[A-Z]{3})(?!\w)"
)
_SPACED_FIGURE = re.compile(rf"[0-9](?<!\w[0-9])(?:(?P<date>{_DATE})|{_MEASURE})")
_MORE_DIGITS = re.compile(r"(?: \d[\d.,:/-]*+){1,4}+")
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u2fff\u3005-\u3007\u3031-\ua4cf\uac00-\ud7ff\uf900-\ufaff"
"""Letters of languages that are written without spaces."""
_UNSPACED_SIGNS = "\u3000-\u3004\u3008-\u3030\uff00-\uffef"
_NO_SPACES = re.compile(f"[{_UNSPACED}{_UNSPACED_SIGNS}]+")
_WITH_NEIGHBOURS = re.compile(f"([{_UNSPACED}]{{0,2}})([^{_UNSPACED}{_UNSPACED_SIGNS}]+)([{_UNSPACED}]{{0,2}})")
_SIMPLE_FACT = re.compile(r"(?=[^\d]*\d)[\w/#@$%][\w./:@#%$+~=&?\\-]{1,198}[\w/#@$%]")
"""A fact with a digit that is a token as it stands, and no figure of two signs."""
_CAMEL = re.compile(r"[a-z][A-Z]")
_LETTER = re.compile(r"[^\W\d_]")
_VARIABLE = re.compile(r"(?<![\da-f])[\da-f]{4,}+(?:-[\da-f]{4,}+)++|(?<![A-Za-z])[A-Za-z]*+\d[A-Za-z\d]*+")
_DIGIT, _DIGITS = re.compile(r"\d"), re.compile(r"\d+")
_HEX = re.compile(r"[\da-f]{4,}|[\dA-F]{8,}")
_ERROR_WORDS = (
    *("error", "exception", "fehler", "erreur", "errore", "erro", "fout", "virhe", "błąd", "chyba", "hata", "lỗi"),
    *("ошибка", "помилка", "σφάλμα", "خطأ", "שגיאה", "त्रुटि", "kesalahan", "오류"),
)
"""The end of the name of an error, in common languages. The text after it and a colon is a fact."""
_UNSPACED_ERRORS = ("错误", "錯誤", "エラー", "오류")
_UNSPACED_ERROR = re.compile(f"(?:{'|'.join(_UNSPACED_ERRORS)})[:\uff1a]\\s*[^\n\u3002\uff01\uff1f]{{2,80}}")
_SENTENCE_END = re.compile(r"[.!?;](?:\s|$)|[\n\u3002\uff01\uff1f]")
_ERROR_PLACES = {name: re.compile(f"{name}(?:[:\uff1a]|.\\d)") for name in (*_ERROR_WORDS, *_UNSPACED_ERRORS)}
"""The names of errors that a colon follows, or a number."""
_AFTER_SIGN, _AFTER_SPACE = r"[^\w:=]{0,4}[:=][^\w:=]{0,6}([^\s\"']{1,200})", r"\s[^\w:=]{0,6}([^\s\"']{1,200})"
_LOGINS = ("bearer", "basic")
_SECRETS = {
    name: re.compile(f"{name}(?={after})")
    for names, after in (
        (("key", "token", "password", "passwd", "passphrase", "secret"), _AFTER_SIGN),
        (_LOGINS, _AFTER_SPACE),
    )
    for name in names
}
"""Patterns that match a secret's name and capture its value, after a colon or an equals sign, or a space for logins."""
_MAY_BE_SECRET = re.compile(r"[\d=@-]")
_AROUND = ".,:?&=+~-\\"
_UNIT_SIGNS = frozenset("%‰€$£¥°")
MAX_LENGTH, MAX_ERROR, MIN_LABEL, MAX_LABEL, MAX_LABELS, MAX_UNIT = 200, 80, 4, 20, 64, 10
MIN_SECRET = 8
CACHED_WORDS = 1 << 15
"""Number of words whose examination is kept: the same ones occur in many messages."""
CACHED_FACTS, MIN_CACHED = 1 << 17, 24
"""Number of facts that are kept of examined texts, and the length of the shortest of these texts."""
MAX_MENTIONS, MAX_ALIKE = 48, 4
"""Number of facts of one text that are ranked, and of those that look alike among them."""
COMMON, MIN_COMMON = 0.04, 3
"""Facts that look alike are common if more than this share, and number, of the messages have one."""
COST_OF_ERROR, COST_OF_NAME, COST_OF_MIXED, COST_OF_SMALL, COST_OF_WORD = -1.0, 0.5, 1.0, 2.0, 3.0
GAIN_OF_USE = GAIN_OF_PEOPLE = 2.0
USUAL_LENGTH, MIN_RANDOM, NAME_WORDS = 32, 8, 4


class Fact(NamedTuple):
    """A fact, how it is shown (a figure with the words around it), and the place of the last message that has it.

    `cost` grows with what makes it less useful, by one for each doubling.
    """

    text: str
    shown: str
    place: int
    cost: float


class Mention(NamedTuple):
    """A fact in a text, and how it is shown. `shape` is equal for facts that look alike."""

    text: str
    shown: str
    shape: str
    cost: float


_cost_of = attrgetter("cost")


class _Word(NamedTuple):
    """A fact in a word, with the letters right before and after it in a language without spaces."""

    fact: str
    before: str = ""
    after: str = ""


def find_facts(text: str) -> list[str]:
    """Return the facts in a text, each once, without what looks like a credential."""
    return without_credentials(list_facts([text]))


def _list_tokens(texts: Iterable[str]) -> dict[str, int]:
    """Return what blanks and languages without spaces separate, each with the number of the last text that has it."""
    tokens: dict[str, int] = {}
    for number, text in enumerate(texts):
        if text:
            tokens.update(zip((text if text.isascii() else _NO_SPACES.sub(" ", text)).split(), repeat(number)))
    return tokens


def list_facts(texts: Iterable[str]) -> dict[str, int]:
    """Return the facts in texts, each with the number of the last text that has it. Those that look like a credential
    are among them, but for those which have a name such as `password` there.
    """
    given = list(texts)
    tokens = _list_tokens(given)
    whole, ends = "\n".join(given), [*accumulate([len(text) + 1 for text in given])]
    facts = {figure: bisect(ends, at) for at, figure, _ in _iter_spaced_figures(whole)}
    for token, number in tokens.items():
        if not (token.isalpha() and (token[1:].islower() or token.isupper())):
            for fact in (token,) if _SIMPLE_FACT.fullmatch(token) else _split_token(token):
                if facts.get(fact, -1) < number:
                    facts[fact] = number
    names, small = "\n".join([*tokens, ""]).lower(), _lower(whole)
    secrets: dict[int, set[str]] = {}
    for at, word in _iter_secrets(whole, small, [name for name in _SECRETS if name in names]):
        number = bisect(ends, at)
        secrets.setdefault(number, set()).add(word)
        for fact in _split_token(word):
            if facts.get(fact) == number:
                del facts[fact]
    known = [name for name in _ERROR_WORDS if f"{name}\n" in names or _ERROR_PLACES[name].search(names)]
    known += () if whole.isascii() else _UNSPACED_ERRORS
    errors: dict[str, int] = {}
    for number in sorted(
        {bisect(ends, found.start()) for name in known for found in _ERROR_PLACES[name].finditer(small)}
    ):
        found = _iter_error_texts(given[number], secrets.get(number, ()))
        errors.update({error: number for error, is_error in found if is_error})
    return errors | facts


def list_words(texts: Iterable[str]) -> set[str]:
    """Return the words in texts, each with the signs around it that a fact does not have."""
    plain, others = list[str](), list[str]()
    for text in texts:
        (plain if text.isascii() else others).append(text)
    return {*_list_plain_words("\n".join(plain))}.union(*map(_WORD.findall, others))


def _list_plain_words(text: str) -> list[str]:
    return text.encode().translate(_BETWEEN_WORDS).decode().split()


def list_facts_in_words(words: Iterable[str]) -> set[str]:
    """Return all facts in words, and what may be one."""
    simple, others = list[str](), list[str]()
    for word in words:
        (others if "," in word or not word.isascii() else simple).append(word)
    facts = {word.strip(_AROUND) for word in simple}
    facts.update([each.fact for word in others for each in _split(word)])
    return facts


def list_texts(message: Message) -> list[str]:
    """Return the texts of a message in which facts are found: its own, its results, and its calls' arguments."""
    own, results, arguments = "", list[str](), list[str]()
    for part in message.parts:
        kind = type(part)
        if kind is Text:
            text = cast(Text, part).text
            own = own + text if own else text
        elif kind is ToolResult:
            results.append(cast(ToolResult, part).text)
        elif kind is ToolCall:
            arguments += iter_texts(cast(ToolCall, part).arguments)
    return [own, *results, *arguments]


def list_texts_and_words(message: Message) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the texts of a message, and their words, each once. Messages share the strings of words."""
    return _with_words(tuple(list_texts(message)))


def list_own_text_and_words(message: Message) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the same of a message without its calls and results."""
    return _with_words((message.text,))


def _with_words(texts: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    whole = "\n".join(texts)
    return texts, tuple(map(intern, {*_list_plain_words(whole)} if whole.isascii() else list_words(texts)))


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


# ── ranking ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def rank_facts(messages: Iterable[tuple[int, Message]], most: int) -> list[Fact]:
    """Return the facts of messages with their places, the most useful first, and at most so many of one message."""
    found = [(place, message.role, *derive(message, _mentions_and_shapes)) for place, message in messages]
    spread = Counter(chain.from_iterable([shapes for _, _, _, shapes in found]))
    common = max(MIN_COMMON, len(found) * COMMON)
    usual = {shape: 2 * log2(max(1.0, count / common)) for shape, count in spread.items()}
    facts: dict[str, tuple[str, str, int, float]] = {}
    roles: dict[str, str] = {}
    for index, (place, role, mentions, _) in enumerate(found):
        if not mentions:
            continue
        base = 1 - index / len(found) - (GAIN_OF_PEOPLE if role == "user" else 0)
        costs = [usual[shape] + cost for _, _, shape, cost in mentions]
        number, chosen = 0, ""
        alike: dict[str, int] = {}
        for at in sorted(range(len(mentions)), key=costs.__getitem__):
            text, shown, shape, _ = mentions[at]
            if text in chosen:
                continue
            number, chosen = number + 1, f"{chosen}\n{shown}"
            alike[shape] = same = alike.get(shape, 0) + 1
            cost = costs[at] + base + log2(number * same)
            known = facts.get(text)
            if known is not None:
                cost = min(cost, known[3]) - (GAIN_OF_USE if roles[text] != role else 0)
            facts[text], roles[text] = (text, shown, place, cost), role
            if number == most:
                break
    return [Fact._make(fact) for fact in sorted(reversed(facts.values()), key=itemgetter(3))]


def _mentions_and_shapes(message: Message) -> tuple[tuple[Mention, ...], tuple[str, ...]]:
    """Return the facts of a message, and the shapes of these, each once."""
    mentions = find_mentions(message)
    return mentions, tuple(dict.fromkeys([each.shape for each in mentions]))


def find_mentions(message: Message) -> tuple[Mention, ...]:
    """Return the facts of a message that may be worth a place in an index. A short argument of a call is one fact."""
    texts, names = [""], list[str]()
    for part in message.parts:
        kind = type(part)
        if kind is Text:
            texts[0] += cast(Text, part).text
        elif kind is ToolResult:
            texts.append(cast(ToolResult, part).text)
        elif kind is ToolCall:
            for text in iter_texts(cast(ToolCall, part).arguments):
                name = text.strip()
                (names if len(name) <= MAX_LENGTH and "\n" not in name else texts).append(name)
    mentions = [_mentions_of_texts.get(text) for text in texts if text]
    if len(mentions) == 1 and not names:
        return mentions[0]
    found = {name: _mention_of_name(name) for name in without_credentials([name for name in names if name])}
    for each in chain.from_iterable(mentions):
        found.setdefault(each.text, each)
    return tuple(found.values())


@lru_cache(maxsize=CACHED_WORDS)
def _mention_of_name(name: str) -> Mention:
    return Mention(name, name, _shape(name), _cost_of_length(name))


def _shape(text: str) -> str:
    """Return a text with a sign in place of everything that varies among facts which look alike."""
    return _VARIABLE.sub(_replace_variable, text) if _LETTER.search(text) else _DIGITS.sub("#", text)


def _replace_variable(found: re.Match[str]) -> str:
    value = found[0]
    return "#" if len(value) >= MIN_RANDOM or _HEX.fullmatch(value) else _DIGITS.sub("#", value)


@lru_cache(maxsize=CACHED_WORDS)
def _describe(fact: str) -> tuple[str, float, bool]:
    """Return the shape of a fact, its cost, and True if it has no letters that say what it is."""
    shape = _shape(fact)
    return shape, _cost(fact), _LETTER.search(shape) is None


def _cost(fact: str) -> float:
    """Return how little a word says: one without digits, or with few, may be any word of a program."""
    digits, steps = len(_DIGIT.findall(fact)), fact.count("/") + fact.count("\\")
    if digits > 3 or "@" in fact[1:] or steps > 2:
        return _cost_of_length(fact)
    if digits and len(fact) >= MIN_RANDOM:
        return COST_OF_MIXED + _cost_of_length(fact)
    return COST_OF_SMALL if digits > 1 or steps > 1 else COST_OF_WORD


def _cost_of_length(text: str) -> float:
    return max(0.0, log2(len(text) / USUAL_LENGTH))


# ── texts ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


class _MentionCache:
    """Remembers the mentions in the latest long texts, by a digest of them, but not the texts."""

    def __init__(self) -> None:
        self._known: dict[bytes, tuple[Mention, ...]] = {}
        self._size = 0
        self._lock = Lock()

    def get(self, text: str) -> tuple[Mention, ...]:
        if len(text) < MIN_CACHED:
            return _find_mentions(text)
        key = blake2b(text.encode(errors="surrogatepass"), digest_size=16).digest()
        found = self._known.get(key)
        if found is None:
            found = _find_mentions(text)
            with self._lock:
                if key not in self._known:
                    self._known[key] = found
                    self._size += len(found) + 1
                while self._size > CACHED_FACTS:
                    self._size -= len(self._known.pop(next(iter(self._known)))) + 1
        return found


_mentions_of_texts = _MentionCache()


def _find_mentions(text: str) -> tuple[Mention, ...]:
    words, small = _list_words(text), _lower(text)
    names = [name for name in (_SECRETS if ":" in text or "=" in text else _LOGINS) if name in small]
    secrets = {word for _, word in _iter_secrets(text, small, names)} if names else frozenset[str]()
    first = {words[at]: at for at in reversed([*compress(range(len(words)), map(_notable_words.__getitem__, words))])}
    found: list[Mention] = []
    if ": " in text or not text.isascii():
        found += [
            Mention(error, error, _shape(error.partition(": ")[0]), COST_OF_ERROR + _cost_of_length(error))
            for error, _ in _iter_error_texts(text, secrets)
        ]
    if not first:
        return tuple(_choose_mentions(found, text))
    found += [
        Mention(name, name, "Name Name", COST_OF_NAME)
        for word, at in first.items()
        if word[0].isupper() and (name := _name_at(words, at))
    ]
    dates = dict.fromkeys([figure for _, figure, is_date in _iter_spaced_figures(text) if is_date])
    found += [Mention(date, date, "date", 0.0) for date in dates]
    places = sorted([(at, facts) for word, at in first.items() if (facts := _split(word)) and word not in secrets])
    found += [_mention(each, words, at, secrets) for at, facts in places for each in facts]
    return tuple(_choose_mentions(found, text))


def _list_words(text: str) -> list[str]:
    """Return the words of a text in order, and a sign that is in none of them for each line break."""
    if not text.isascii():
        return _WORD.findall(text)
    return text.encode().translate(_BETWEEN_WORDS).replace(b"\n", b" \0 ").decode().split()


def _split_token(token: str) -> tuple[str, ...]:
    """Return the facts in a text without spaces."""
    return (_split_short_token if len(token) <= MAX_LENGTH else _split_short_token.__wrapped__)(token)


@lru_cache(maxsize=CACHED_WORDS)
def _split_short_token(token: str) -> tuple[str, ...]:
    return tuple([each.fact for word in _WORD.findall(token) for each in _split(word)])


def _iter_spaced_figures(text: str) -> Iterator[tuple[int, str, bool]]:
    """Yield the place of each date and each figure with a unit, its text, and True for a date."""
    for found in _SPACED_FIGURE.finditer(text):
        start, is_date = found.start(), found["date"] is not None
        if is_date and found[0][:-6].isalnum() and start > 1 and text[start - 1] == " ":  # "3, 2026" after a month
            start = max(text.rfind(" ", 0, start - 1), text.rfind("\n", 0, start - 1)) + 1
        if not is_date or found.end() - start <= MAX_LABEL + MAX_UNIT:
            yield start, text[start : found.end()], is_date


def _choose_mentions(mentions: list[Mention], text: str) -> list[Mention]:
    """Return the best mentions. What goes on in groups of digits, such as a number of an account, is shown whole."""
    if not mentions:
        return mentions
    alike: dict[str, int] = {}
    chosen: list[Mention] = []
    for each in sorted(mentions, key=_cost_of):
        alike[each.shape] = number = alike.get(each.shape, 0) + 1
        if number <= MAX_ALIKE:
            end = text.find(each.shown) + len(each.shown)
            more = _MORE_DIGITS.match(text, end) if end and text[end + 1 : end + 2].isdecimal() else None
            chosen.append(each._replace(shown=each.shown + more[0].rstrip(_AROUND)) if more else each)
            if len(chosen) == MAX_MENTIONS:
                break
    allowed = {*without_credentials([each.shown for each in chosen])}
    found: dict[str, Mention] = {}
    for each in chosen:
        if each.shown in allowed:
            found.setdefault(each.text, each)
    return [*found.values()]


def _mention(word: _Word, words: list[str], at: int, secrets: Container[str]) -> Mention:
    """Return a fact as it is shown: a figure with the word before it, and with its unit."""
    shape, cost, is_figure = _describe(word.fact)
    if not is_figure:
        return Mention(word.fact, word.fact, shape, cost)
    before, after = word.before, word.after
    likeness = _shape(before) if before else ""
    if not before:
        label = words[at - 1] if at else "\n"
        if label in (":", "=") and at > 1:
            label = words[at - 2] + label
        if label not in secrets:
            before, likeness = _describe_label(label)
    if not after and words[at][-1] == word.fact[-1] and at + 1 < len(words):
        unit = words[at + 1].rstrip(_AROUND)
        if unit not in secrets and (unit in _UNIT_SIGNS or (unit.isalpha() and len(unit) <= MAX_UNIT)):
            after = f" {unit}"
    return Mention(word.fact, f"{before}{word.fact}{after}", likeness + shape, cost)


@lru_cache(maxsize=CACHED_WORDS)
def _describe_label(word: str) -> tuple[str, str]:
    """Return the word before a figure as it is shown, and its shape; "" for both if it does not say what that is."""
    if word[-1] in ".,?" or not _LETTER.search(word):
        return "", ""
    before = f"{word if word.isascii() or not _NO_SPACES.search(word) else word[-2:]} "
    return before, _shape(before)


def _name_at(words: list[str], at: int) -> str:
    """Return the name of several words with capitals that begins here, within a sentence; "" if there is none."""
    before = words[at - 1] if at else "\n"
    if before[-1] not in ":=" and (before[-1] in ".?" or not before[0].islower()):
        return ""
    end = at
    while end < len(words) and end < at + NAME_WORDS and words[end][0].isupper() and words[end][1:2].islower():
        end += 1
        if words[end - 1][-1] in ".,:?":
            break
    return " ".join(words[at:end]).rstrip(_AROUND) if end - at > 1 else ""


def _iter_error_texts(text: str, secrets: Iterable[str]) -> Iterator[tuple[str, bool]]:
    """Yield what follows the name of an error, or a code and a colon, to the end of the sentence; True for a name."""
    at, labels = 0, set[str]()
    for before in text.split(": ")[:-1]:
        at += len(before) + 2
        if not before[-1:].isalnum():  # such as the name of a field of JSON
            continue
        label = _WORD.findall(before.rsplit(None, 1)[-1])[-1]
        if len(label) + 1 < MIN_LABEL or label in labels:
            continue
        labels.add(label)
        if len(labels) > MAX_LABELS:
            break
        name = label
        if is_number := _NUMBER.fullmatch(label) is not None:
            name = (before[-MAX_LABEL - len(label) :].split(" ")[-2:-1] or [""])[0]
            label = f"{name} {label}"
        is_error = name.lower().endswith(_ERROR_WORDS)
        if not (is_error or (name.isupper() and name.isalpha() if is_number else _is_code(label))):
            continue
        rest = text[at : at + MAX_ERROR]
        rest = rest[: end.start()] if (end := _SENTENCE_END.search(rest)) else rest
        if _LETTER.search(rest) and not any([secret in rest for secret in secrets]):
            yield f"{label}: {rest.strip()}", is_error
    if not text.isascii() and any([name in text for name in _UNSPACED_ERRORS]):
        yield from [(found, True) for found in _UNSPACED_ERROR.findall(text)]


def _is_code(word: str) -> bool:
    """Return True for a name with several digits, such as that of an error."""
    digits = len(_DIGIT.findall(word))
    return 1 < digits < len(word) and not any([sign in word for sign in "/:="])


# ── words ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@lru_cache(maxsize=CACHED_WORDS)
def _split(word: str) -> tuple[_Word, ...]:
    """Return the facts in a word: none if it is of natural language, several if it has commas or no spaces."""
    if word.isalpha() and not _CAMEL.search(word):
        return ()
    pieces = [("", word, "")] if word.isascii() else cast(list[tuple[str, str, str]], _WITH_NEIGHBOURS.findall(word))
    if "," in word:
        pieces = [
            (before, part, after)
            for before, each, after in pieces
            for part in ([each] if _NUMBER.fullmatch(each.strip(_AROUND)) else each.split(","))
        ]
    return tuple(
        [
            _Word(fact, before, after if part.endswith(fact) else "")
            for before, part, after in pieces
            if _is_fact(fact := part.strip(_AROUND))
        ]
    )


class _NotableWords(dict[str, bool]):
    """Has True for each word that may have facts, or begins with a capital, as a name does. A lookup takes no call."""

    def __missing__(self, word: str) -> bool:
        if len(self) >= CACHED_WORDS:
            self.clear()
        self[word] = is_notable = word[0].isupper() or bool(_split(word)) or len(word) > MAX_LENGTH
        return is_notable


_notable_words = _NotableWords()


def _is_fact(word: str) -> bool:
    if not 1 < len(word) <= MAX_LENGTH:
        return False
    if _NUMBER.fullmatch(word):
        return len(word) > 2
    if _DIGIT.search(word):
        return True
    if not _LETTER.search(word):
        return False
    if "_" in word or "@" in word[1:] or _CAMEL.search(word):
        return True
    if "/" in word or "\\" in word:
        return word.count("/") + word.count("\\") > 1 or word[0] in "/~" or "." in word
    return len(word) > 3 and ("." in word or word[0] == "#")


def _lower(text: str) -> str:
    small = text.lower()
    return small if len(small) == len(text) else text  # a letter may become two


def _iter_secrets(text: str, small: str, names: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Yield the words that follow a name such as `password:` in a text, given in small letters too, with its place."""
    for name in names:
        for found in _SECRETS[name].finditer(small):
            yield from [(found.start(), word) for word in _WORD.findall(text[found.start(1) : found.end(1)])]


def without_credentials(facts: Iterable[str]) -> list[str]:
    """Return the facts that do not look like a key, a token or a login."""
    facts = list(facts)
    suspicious = [fact for fact in facts if len(fact) >= MIN_SECRET and _MAY_BE_SECRET.search(fact)]
    if not suspicious:
        return facts
    lines = "\n".join(suspicious)
    if mask_secrets(lines) == lines:
        return facts
    gone = {*suspicious} - {*_without_masked(suspicious)}
    return [fact for fact in facts if fact not in gone]


def _without_masked(texts: list[str]) -> list[str]:
    """Return the texts, each of one line, that have nothing to mask."""
    masked = mask_secrets("\n".join(texts)).split("\n")
    if len(masked) != len(texts):  # a mask went over several lines
        masked = [mask_secrets(text) for text in texts]
    return [text for text, shown in zip(texts, masked, strict=True) if text == shown]


# ── the receipt of a summary ──────────────────────────────────────────────────────────────────────────────────────────
# The receipt of a compaction: what of the replaced messages the next request still has, found without a model.
#
# Examined are open todos, sentences of people, and identifiers, figures and error texts in texts and calls. Each is
# looked up in everything that the next request would show: the summary, the messages that stay, and what the compiler
# keeps besides. Facts in results and long arguments are counted apart: a listing has thousands, and no summary keeps
# them. What looks like a credential is never listed. The receipt is stored with the summary, and is deleted with it.


MIN_SCORE = 0.8
"""A summary that keeps a smaller share of the facts is asked for again, with those that it lacks."""
MAX_LISTED, MAX_DESCRIBED = 50, 12
MAX_ARGUMENT = 200
MIN_SENTENCE, MAX_SENTENCE, MAX_SENTENCES = 6, 200, 400
_TAG = re.compile(r"</?[a-z-]+>")
_POINT_END = re.compile(r"[.!?](?=\s)|[\u3002\uff01\uff1f]")


class Receipt(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The part that a compaction has kept: `kept` of `facts` facts and open todos, `said_kept` of `said` sentences of
    people, and `results_kept` of `results` facts in results.

    `lost` is what the next request does not have, the most important first, at most 50.
    """

    facts: int
    kept: int
    said: int = 0
    said_kept: int = 0
    results: int = 0
    results_kept: int = 0
    lost: tuple[str, ...] = ()

    @property
    def missing(self) -> int:
        """The number of facts, todos and sentences that the next request does not have."""
        return self.lost_facts + self.said - self.said_kept

    @property
    def score(self) -> float:
        """The share of the facts, todos and sentences that the next request still has."""
        total = self.facts + self.said
        return round(1 - self.missing / total, 3) if total else 1.0

    @property
    def lost_facts(self) -> int:
        """The number of facts and todos that the next request does not have."""
        return self.facts - self.kept

    @property
    def lacks_facts(self) -> bool:
        """True if so many facts and todos are missing that the summary is worth another attempt."""
        return self.kept < self.facts * MIN_SCORE


class PointsToKeep(Struct, frozen=True, kw_only=True):
    """The points that must not be lost of the messages that a summary replaces, the latest first.

    `sources` has the number of the last message with each fact; facts of the summary before them have none.
    """

    todos: tuple[str, ...]
    sentences: tuple[str, ...]
    facts: tuple[str, ...]
    results: tuple[str, ...]
    sources: dict[str, int]


def find_points_to_keep(messages: Sequence[Message], previous: str | None, todos: Iterable[str]) -> PointsToKeep:
    """Find the points in messages, and in the summary before them."""
    texts, results = [_TAG.sub(" ", previous or "")], [""]
    for message in messages:
        own, others = [message.text], list[str]()
        for part in message.parts:
            if isinstance(part, ToolResult):
                others.append(part.text)
            elif isinstance(part, ToolCall):
                for argument in iter_texts(part.arguments):
                    (own if len(argument) <= MAX_ARGUMENT else others).append(argument)
        texts.append("\n".join(own))
        results.append("\n".join(others))
    sentences: dict[str, None] = {}
    for message in reversed(messages):
        if message.role == "user" and len(sentences) < MAX_SENTENCES:
            sentences.update(dict.fromkeys(_sentences(message.text)))
    facts, in_results = list_facts(texts), list_facts(results)
    last = in_results | {fact: max(number, in_results.get(fact, 0)) for fact, number in facts.items()}
    return PointsToKeep(
        todos=tuple([_one_line(each) for each in todos]),
        sentences=tuple(sentences)[:MAX_SENTENCES],
        facts=tuple(sorted(facts, key=facts.__getitem__, reverse=True)),
        results=tuple(
            sorted([fact for fact in in_results if fact not in facts], key=in_results.__getitem__, reverse=True)
        ),
        sources={fact: number - 1 for fact, number in last.items() if number},
    )


def examine(points: PointsToKeep, shown: JSON) -> Receipt:
    """Return which of the points are in the texts of a request, at any depth of a JSON value."""
    texts = list(iter_texts(shown))
    facts = list_facts(texts)
    whole = _one_line(" ".join(texts)) if points.todos or points.sentences else ""
    unsaid = [each for each in points.sentences if each not in whole]
    unknown = [fact for fact in points.facts if fact not in facts]
    missing = without_credentials(unknown)
    lost = [*(todo for todo in points.todos if todo not in whole), *missing]
    from_results = [fact for fact in points.results if fact not in facts]
    listed = _without_masked([*lost, *unsaid, *from_results][: 2 * MAX_LISTED])
    total = len(points.todos) + len(points.facts) - (len(unknown) - len(missing))
    return Receipt(
        facts=total,
        kept=total - len(lost),
        said=len(points.sentences),
        said_kept=len(points.sentences) - len(unsaid),
        results=len(points.results),
        results_kept=len(points.results) - len(from_results),
        lost=tuple(listed[:MAX_LISTED]),
    )


def describe_kept_facts(receipt: Receipt) -> str:
    """Return a receipt as text: what was kept, and what was lost."""
    said = f", {receipt.said_kept:,} of {receipt.said:,} sentences of people" if receipt.said else ""
    results = f", {receipt.results_kept:,} of {receipt.results:,} facts in results" if receipt.results else ""
    lost = f"; lost: {', '.join(receipt.lost[:MAX_DESCRIBED])}" if receipt.lost else ""
    return f"keeps {receipt.kept:,} of {receipt.facts:,} facts{said}{results}{lost}"


def _sentences(text: str) -> list[str]:
    found = [_one_line(each)[:MAX_SENTENCE] for each in _POINT_END.sub(r"\g<0>\n", text).split("\n")]
    return [each for each in found if len(each) >= MIN_SENTENCE]


def _one_line(text: str) -> str:
    return " ".join(text.split())
