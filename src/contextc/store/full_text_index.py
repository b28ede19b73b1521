"""The full-text index of messages: brings it up to date, and finds pieces of messages by the terms of a query.

A message is indexed in pieces of about a thousand characters, so that words count as found together only if they are
near each other. SQLite has the index in an FTS5 table, PostgreSQL in a tsvector column. Both hold the terms that
`list_terms` makes, and answer one question only: which pieces have this term? The score is computed here, so every
store ranks alike.

A search first indexes the messages that came since the last one, in small transactions; an append does nothing for it.
Where that cannot be stored, in a store that was opened read-only, these messages are read and searched instead.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import chain, pairwise
from math import log as logarithm
from typing import Literal, NamedTuple, TypeAlias, cast

from msgspec import Struct

from contextc._json import JSON, JSONObject, encode
from contextc.errors import StoreFull, StoreReadOnly
from contextc.messages import Media, Message, decode_message, may_be_text, read_text_file
from contextc.store.message_log import (
    SEQ_MASK,
    BranchTip,
    bytes_or_none,
    decode_readable,
    find_tip,
    load_context_start,
    load_lineage,
    load_tip,
    lock_tree,
    make_place,
    split_by_branch,
)
from contextc.store.store import Store
from contextc.store.transaction_engine import Transaction

# ── terms ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
# Split text into the terms of the full-text index, and a query into the terms to look up.
#
# All stores get their terms from here, so that a search finds the same in each of them. Case, width and accents are
# ignored. An identifier is a term as a whole, and so are its parts:
#
#     src/app/mainTest.py   src/app/maintest.py, src, app, maintest.py, maintest, main, test, py
#     ORD-12345             ord-12345, ord, 12345
#     v2.3.1                v2.3.1, v2, 3, 1
#
# Scripts that are written without spaces become single characters and pairs of them:
# 東京都 is 東, 京, 都, 東京 and 京都.


TERMS_VERSION = 1
"""Raise it if the same text gets other terms. An index of another version is built again."""
MAX_TERM = 64
"""Maximum length of a term, in characters. Longer ones are cut."""
MAX_WHOLE = 200
"""Length above which an identifier is no term as a whole, such as a long URL or a list of numbers."""
MAX_QUERY_TERMS = 48
KNOWN_TOKENS = 1 << 15
"""Number of short tokens whose terms are kept: the same ones occur in many texts."""

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
_APART = bytes([each if chr(each).isalnum() or chr(each) in "_-./\\:@#+=~&?%$," else 32 for each in range(128)] * 2)
"""A blank for each sign of ASCII that is in no token."""
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
    tokens = text.encode().translate(_APART).decode().split() if text.isascii() else _TOKEN.findall(text)
    terms = {*chain.from_iterable(map(_known_terms.__getitem__, {*tokens}))}
    if "\\" in text:
        terms.update(*map(_terms_of, _TOKEN.findall(_ESCAPE.sub("  ", text))))
    return terms


class _KnownTerms(dict[str, tuple[str, ...]]):
    """Has the terms of tokens, also of those with signs around them. A lookup takes no call: most words are known."""

    def __missing__(self, token: str) -> tuple[str, ...]:
        terms = tuple(dict.fromkeys(chain.from_iterable(map(_terms_of, _TOKEN.findall(token)))))
        if len(token) <= MAX_TERM:
            if len(self) >= KNOWN_TOKENS:
                self.clear()
            self[token] = terms
        return terms


_known_terms = _KnownTerms()


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


# ── the index ─────────────────────────────────────────────────────────────────────────────────────────────────────────


PIECE_LENGTH, MAX_PIECE_LENGTH, OVERLAP = 1_000, 32_000, 150
"""Characters of a piece, more in a message with too many; and those that it shares with the next one."""
MAX_PIECES, PIECE_BITS = 256, 8
MAX_SEQ = 1 << 24
"""Messages with a higher seq are not indexed."""
BATCH_MESSAGES, BATCH_CHARACTERS = 500, 250_000
"""Limits of one transaction of indexing, which other writers wait for."""
MAX_PIECES_OF_TERM = 20_000
"""Number of pieces that are read for a term, newest first. A term that more pieces have says little."""
OWN_TOOLS = ("search_history", "fetch_result")
"""Tools whose calls and results are not indexed: they repeat queries, and what was found."""
SIMILAR_WEIGHT = 0.5
LEAST_SCORE = 0.15
"""Pieces with a lower share of the best score are left out."""
SectionKind: TypeAlias = Literal["text", "call", "result", "file"]


class SearchableSection(Struct, frozen=True):
    """A searchable part of a message. `number` is 0 for its text and calls, and counts results or files from 1."""

    number: int
    kind: SectionKind
    tool: str
    text: str


class Piece(NamedTuple):
    """A piece of a section: where it begins and ends in its text."""

    section: SearchableSection
    start: int
    end: int


class Scope(NamedTuple):
    """The messages that a search covers: the end of the branch, and ranges of branch, first and last seq."""

    tip: BranchTip
    ranges: tuple[tuple[int, int, int], ...]

    @property
    def size(self) -> int:
        return sum([last - first + 1 for _, first, last in self.ranges])


class TermWeights(NamedTuple):
    """The weights of the same and of a similar term: higher if few pieces have it."""

    same: float
    similar: float


class RankedPieces(NamedTuple):
    """Keys of pieces, best first, without those that are far worse; and the weight of each term of the query."""

    keys: list[int]
    weights: list[TermWeights]


ReadFile: TypeAlias = Callable[[Media], str | None]


# ── messages as pieces ────────────────────────────────────────────────────────────────────────────────────────────────


def list_sections(message: Message, read_file: ReadFile) -> list[SearchableSection]:
    """Return what can be searched in a message: its text, the arguments of calls, results, and attached text files."""
    found = [SearchableSection(0, "text", "", message.text)] if message.text else []
    found += [
        SearchableSection(
            0, "call", call.name, call.raw or "" if call.malformed else "\n".join(_argument_lines(call.arguments))
        )
        for call in message.tool_calls
    ]
    found += [SearchableSection(at, "result", each.name, each.text) for at, each in enumerate(message.tool_results, 1)]
    files = [part for part in message.parts if isinstance(part, Media)] if message.role == "user" else []
    found += [SearchableSection(at, "file", each.name or "", read_file(each) or "") for at, each in enumerate(files, 1)]
    return found


def _argument_lines(value: JSON, name: str = "") -> Iterator[str]:
    """Yield a line per value of a call's arguments, with its name."""
    if isinstance(value, dict):
        for key, each in cast(JSONObject, value).items():
            yield from _argument_lines(each, f"{name}.{key}" if name else key)
    elif isinstance(value, list):
        for each in cast(list[JSON], value):
            yield from _argument_lines(each, name)
    else:
        yield f"{name}: {value if isinstance(value, str) else encode(value).decode()}"


def split_pieces(sections: Iterable[SearchableSection]) -> list[Piece]:
    """Divide sections into pieces, at the ends of lines or words if possible. A piece overlaps the one before."""
    searched = [each for each in sections if each.tool not in OWN_TOOLS or each.kind in ("text", "file")]
    length = max(PIECE_LENGTH, min(MAX_PIECE_LENGTH, sum([len(each.text) for each in searched]) // (MAX_PIECES // 2)))
    found: list[Piece] = []
    for section in searched:
        text, start = section.text, 0
        while start < len(text):
            end = min(len(text), start + length)
            if end < len(text):
                at = max(text.rfind("\n", start + length // 2, end), text.rfind(". ", start + length // 2, end))
                at = at if at > 0 else text.rfind(" ", start + length // 2, end)
                end = at + 1 if at > 0 else end
            found.append(Piece(section, start, end))
            if end == len(text):
                break
            start = max(start + 1, end - OVERLAP)
    return found[:MAX_PIECES]


def make_key(branch: int, seq: int, piece: int) -> int:
    return make_place(branch, seq << PIECE_BITS | piece)


def split_key(key: int) -> tuple[int, int]:
    """Return the place of a piece's message, and the number of the piece in it."""
    return make_place(key >> 32, (key & SEQ_MASK) >> PIECE_BITS), key & (MAX_PIECES - 1)


def file_reader(tx: Transaction) -> ReadFile:
    """Return a function that reads attached text files."""

    def read(media: Media) -> str | None:
        if not media.blob or not may_be_text(media):
            return None
        row = tx.row("SELECT data FROM main.blob WHERE name = ?", media.blob)
        return read_text_file(media, bytes_or_none(row[0])) if row is not None else None

    return read


# ── indexing ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class _Batch(NamedTuple):
    """Messages of a branch that are to be indexed: after which seq, up to which, and the terms of their pieces.

    `revision` is that of the conversation: it changes if anything is redacted.
    """

    revision: int
    branch: int
    after: int
    until: int
    rows: list[tuple[int, str]]


def load_scope(tx: Transaction, conversation: str) -> Scope:
    """Return the messages of a conversation's current branch, after the context was last cleared."""
    tip = load_tip(tx, conversation)
    start = load_context_start(tx, tip.branch, tip.seq)
    return Scope(tip, tuple(split_by_branch(load_lineage(tx, tip.branch), start, min(tip.seq, MAX_SEQ - 1))))


def update_index(store: Store, conversation: str) -> bool:
    """Index the messages of a conversation that are not indexed yet. Return False if the index cannot be stored."""
    while True:
        batch = store.read(lambda tx: _load_batch(tx, conversation))
        if batch is None:
            return True
        try:
            store.write(partial(_write_batch, conversation=conversation, batch=batch), repeatable=True)
        except (StoreReadOnly, StoreFull):
            return False


def _load_batch(tx: Transaction, conversation: str) -> _Batch | None:
    scope = load_scope(tx, conversation)
    done = _load_progress(tx, scope)
    for branch, _, last in scope.ranges:
        after = done.get(branch, 0) or _first_seq(tx, branch) - 1
        if after >= last:
            continue
        rows, until, characters = list[tuple[int, str]](), after, 0
        read_file = file_reader(tx)
        high = min(last, after + BATCH_MESSAGES)
        for where, body in _iter_bodies(tx, branch, after + 1, high):
            until = where & SEQ_MASK
            terms = _piece_terms(body, read_file)
            rows += [(make_key(branch, until, at), " ".join(sorted(each))) for at, each in enumerate(terms) if each]
            characters += sum([len(each[1]) for each in rows[-len(terms) :]]) if terms else 0
            if characters > BATCH_CHARACTERS:
                high = until
                break
        return _Batch(scope.tip.revision, branch, after, high, rows)
    return None


def _iter_bodies(tx: Transaction, branch: int, first: int, last: int) -> Iterator[tuple[int, bytes]]:
    """Yield the rows of a branch, read in small groups."""
    for low in range(first, last + 1, 50):
        yield from tx.rows(
            "SELECT place, body FROM main.message WHERE place BETWEEN ? AND ? ORDER BY place",
            make_place(branch, low),
            make_place(branch, min(last, low + 49)),
        )


def _piece_terms(body: bytes, read_file: ReadFile) -> list[set[str]]:
    """Return the terms of each piece of a message. One that was redacted, or cannot be read, has none."""
    read = decode_readable(decode_message, [(0, body)])
    if not read or read[0][1].redacted:
        return []
    pieces = split_pieces(list_sections(read[0][1], read_file))
    return [list_terms(each.section.text[each.start : each.end]) for each in pieces]


def _first_seq(tx: Transaction, branch: int) -> int:
    row = tx.row("SELECT base_seq FROM main.branch WHERE number = ?", branch)
    return (row[0] if row is not None else 0) + 1


def _load_progress(tx: Transaction, scope: Scope) -> dict[int, int]:
    """Return the seqs up to which branches are indexed, by this version."""
    branches = [branch for branch, _, _ in scope.ranges]
    if not branches:
        return {}
    marks = ", ".join("?" * len(branches))
    sql = f"SELECT branch, seq FROM main.search_progress WHERE branch IN ({marks}) AND version = ?"
    return dict(tx.rows(sql, *branches, TERMS_VERSION))


def _write_batch(tx: Transaction, conversation: str, batch: _Batch) -> None:
    """Store terms, unless another process was faster, or something was redacted since they were read."""
    lock_tree(tx, conversation)
    here = find_tip(tx, conversation, False)
    if here is None or here.revision != batch.revision:
        return
    known = tx.row("SELECT seq, version FROM main.search_progress WHERE branch = ?", batch.branch)
    if known is not None and known[1] != TERMS_VERSION:
        _remove_all(tx, batch.branch)
        known = None
    if (known[0] if known is not None else _first_seq(tx, batch.branch) - 1) != batch.after:
        return
    rows = batch.rows
    if tx.dialect.name == "postgres":
        rows = [(key, " ".join([_lexeme(batch.branch, each) for each in terms.split(" ")])) for key, terms in rows]
    tx.run_many("INSERT INTO main.search_term (rowid, terms) VALUES (?, ?)", rows)
    tx.run(
        "INSERT INTO main.search_progress (branch, seq, version) VALUES (?, ?, ?)"
        " ON CONFLICT (branch) DO UPDATE SET seq = excluded.seq, version = excluded.version",
        batch.branch,
        batch.until,
        TERMS_VERSION,
    )


def _remove_all(tx: Transaction, branch: int) -> None:
    """Remove a branch from the index; all branches if the database cannot remove one."""
    if tx.dialect.name == "postgres":
        low, high = make_place(branch, 0), make_place(branch, SEQ_MASK)
        tx.run("DELETE FROM main.search_term WHERE rowid BETWEEN ? AND ?", low, high)
        tx.run("DELETE FROM main.search_progress WHERE branch = ?", branch)
    else:
        tx.run("INSERT INTO main.search_term (search_term) VALUES ('delete-all')")
        tx.run("DELETE FROM main.search_progress")


def _lexeme(branch: int, term: str) -> str:
    """Return a term as PostgreSQL reads it. The branch is part of it, so a lookup reads no other conversation."""
    escaped = term.replace("\\", "\\\\").replace("'", "''")
    return f"'{branch:x}:{escaped}'"


# ── looking up ────────────────────────────────────────────────────────────────────────────────────────────────────────


def rank_pieces(tx: Transaction, scope: Scope, terms: Sequence[QueryTerm]) -> RankedPieces:
    """Return the pieces with any of the terms: those with more and rarer terms first, then the newest."""
    done = _load_progress(tx, scope)
    unread = list(_iter_unindexed(tx, scope, done))
    scores: dict[int, float] = {}
    weights: list[TermWeights] = []
    for term in terms:
        same = {
            *_look_up(tx, scope, done, term.text, is_prefix=False),
            *[key for key, own in unread if term.text in own],
        }
        similar = {*_look_up(tx, scope, done, term.prefix, is_prefix=True)} if term.prefix else set[int]()
        if term.prefix:
            similar.update([key for key, own in unread if any(each.startswith(term.prefix) for each in own)])
        weight = TermWeights(_weight(scope.size, len(same)), SIMILAR_WEIGHT * _weight(scope.size, len(similar | same)))
        weights.append(weight)
        for key in same:
            scores[key] = scores.get(key, 0.0) + weight.same
        for key in similar - same:
            scores[key] = scores.get(key, 0.0) + weight.similar
    least = max(scores.values(), default=0.0) * LEAST_SCORE
    best = sorted(
        [each for each in scores.items() if each[1] >= least],
        key=lambda each: (-round(each[1], 6), -(each[0] & SEQ_MASK)),
    )
    return RankedPieces([key for key, _ in best], weights)


def _weight(size: int, count: int) -> float:
    """Return the weight of a term that so many pieces have."""
    return logarithm(1 + size / max(count, 1))


def _look_up(tx: Transaction, scope: Scope, done: dict[int, int], term: str, *, is_prefix: bool) -> Iterator[int]:
    """Yield the indexed pieces with a term, or with one that begins with it."""
    is_postgres = tx.dialect.name == "postgres"
    left = MAX_PIECES_OF_TERM
    for branch, first, last in reversed(scope.ranges):
        if done.get(branch, 0) < first or left <= 0:
            continue
        if is_postgres:
            query, test = f"{_lexeme(branch, term)}{':*' if is_prefix else ''}", "terms @@ CAST(? AS tsquery)"
        else:
            query, test = f'"{term}"{"*" if is_prefix else ""}', "search_term MATCH ?"
        rows = tx.rows(
            f"SELECT rowid FROM main.search_term WHERE {test} AND rowid BETWEEN ? AND ? ORDER BY rowid DESC LIMIT ?",
            query,
            make_key(branch, first, 0),
            make_key(branch, last, MAX_PIECES - 1),
            left,
        )
        left -= len(rows)
        yield from [key for (key,) in rows]


def _iter_unindexed(tx: Transaction, scope: Scope, done: dict[int, int]) -> Iterator[tuple[int, set[str]]]:
    """Yield the pieces that are not in the index, with their terms."""
    read_file = file_reader(tx)
    for branch, first, last in scope.ranges:
        for where, body in _iter_bodies(tx, branch, max(first, done.get(branch, 0) + 1), last):
            for at, terms in enumerate(_piece_terms(body, read_file)):
                yield make_key(branch, where & SEQ_MASK, at), terms


def load_messages_of_pieces(tx: Transaction, keys: Iterable[int]) -> dict[int, Message]:
    """Return the messages of pieces, by place. Those that cannot be read are left out."""
    places = sorted({split_key(key)[0] for key in keys})
    rows = [row for place in places for row in tx.rows("SELECT place, body FROM main.message WHERE place = ?", place)]
    return dict(decode_readable(decode_message, rows))
