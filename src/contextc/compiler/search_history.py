"""Search what an agent may see of a conversation, whether or not it is in the window now.

The index of the store finds pieces of messages by their terms. Here, the best of them are read again: those that the
agent may not see are left out, words that are near each other count more, and a passage is cut around them.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from msgspec import Struct

from contextc.compiler.fetch_result import MAX_LENGTH, fetch_result, section_id, visible_sections
from contextc.compiler.history_tools import SEARCH_TOOL
from contextc.compiler.visibility import Viewer
from contextc.errors import InvalidInput
from contextc.messages import Message, Role, ToolCall, escape_markers, escaped_line, with_tags
from contextc.models.tokens import TokenCounter
from contextc.store import Store
from contextc.store.history_index import (
    Piece,
    QueryTerm,
    RankedPieces,
    SectionKind,
    file_reader,
    iter_tokens,
    list_sections,
    load_pieces,
    load_scope,
    parse_query,
    rank_pieces,
    split_key,
    split_pieces,
    update_index,
)
from contextc.store.message_log import SEQ_MASK
from contextc.store.transaction_engine import Transaction

MAX_TOKENS = 2_000
"""Tokens of all passages of one search, if the caller sets no other limit."""
PASSAGE_LENGTH, SHORT_LENGTH = 480, 700
"""Characters of a passage, and of a text that is a passage as a whole."""
WINDOW = 300
"""Characters within which words count as near each other."""
CANDIDATES, MAX_READ, READ_AT_ONCE = 150, 2_500, 50
"""Pieces that are compared word by word; that are read at most, if many of them are hidden; and in one go."""
MAX_HITS = 120
PASSAGES_PER_MESSAGE = 3
LEAST_SCORE = 0.2
"""Passages with a lower share of the best score are left out."""


class HistoryPassage(Struct, frozen=True, kw_only=True):
    """A passage of a message. `fetch_result` opens it by `id`, and `offset` is where the passage begins there.

    `kind` says what it is from: text, the arguments of a call, a result, or an attached text file. `tool` is the name
    of the tool or file.
    """

    id: str
    seq: int
    role: Role
    author: str | None
    kind: SectionKind
    tool: str
    text: str
    offset: int
    score: float


class _Hit(NamedTuple):
    start: int
    end: int
    term: int
    weight: float


class _Candidate(NamedTuple):
    score: float
    message: Message
    piece: Piece
    start: int
    end: int


def search_history(
    store: Store, conversation: str, query: str, viewer: Viewer, counter: TokenCounter, max_tokens: int = MAX_TOKENS
) -> list[HistoryPassage]:
    """Return the passages that match a query best, best first, as many as fit into `max_tokens`."""
    if not isinstance(query, str):
        raise InvalidInput(f"query must be a string, got {type(query).__name__}", fix="Pass the words to search for.")
    if isinstance(max_tokens, bool) or not isinstance(max_tokens, int) or max_tokens < 1:
        raise InvalidInput("max_tokens must be a positive integer", got=max_tokens)
    update_index(store, conversation)
    terms = parse_query(query)

    def work(tx: Transaction) -> list[HistoryPassage]:
        scope = load_scope(tx, conversation)
        ranked = rank_pieces(tx, scope, terms) if terms else RankedPieces([], [])
        found = sorted(_iter_candidates(tx, ranked, terms, viewer), key=lambda each: (-each.score, -each.message.seq))
        return list(_select(found, counter, max_tokens))

    return store.read(work)


def answer_call(store: Store, conversation: str, call: ToolCall, viewer: Viewer, counter: TokenCounter) -> str:
    """Return the result of a call of `search_history` or `fetch_result`."""
    given = call.arguments
    if call.name == SEARCH_TOOL.name:
        return render_passages(search_history(store, conversation, str(given.get("query") or ""), viewer, counter))
    return fetch_result(
        store, conversation, viewer, given.get("id"), given.get("offset", 0), given.get("length", MAX_LENGTH)
    )


def render_passages(passages: Sequence[HistoryPassage]) -> str:
    """Return the passages as text for a model: data, each with its id and its author."""
    if not passages:
        return "Nothing found. Search with other words: names, ids, paths, or words that were used."
    shown = "\n\n".join([f"{_title(each)}\n{escape_markers(each.text)}" for each in passages])
    return f"{with_tags('search-results', shown)}\nfetch_result reads the whole message of an id."


def _title(passage: HistoryPassage) -> str:
    what = {"text": "", "call": "arguments of ", "result": "result of ", "file": "file "}[passage.kind]
    author = escaped_line(passage.author) if passage.author is not None else passage.role
    return f"{passage.id} ({author}{', ' if what else ''}{what}{escaped_line(passage.tool)})"


def _iter_candidates(
    tx: Transaction, ranked: RankedPieces, terms: Sequence[QueryTerm], viewer: Viewer
) -> Iterator[_Candidate]:
    """Yield the best pieces that the agent may see, with their scores."""
    count, read_file, pieces = 0, file_reader(tx), dict[int, list[Piece]]()
    for low in range(0, min(len(ranked.keys), MAX_READ), READ_AT_ONCE):
        keys = ranked.keys[low : low + READ_AT_ONCE]
        messages = load_pieces(tx, keys)
        for key in keys:
            place, number = split_key(key)
            message = messages.get(place)
            if message is None or message.role == "system" or viewer.find_hidden(message) is not None:
                continue
            if place not in pieces:
                pieces[place] = split_pieces(list_sections(message, read_file))
            piece = pieces[place][number] if number < len(pieces[place]) else None
            if piece is None or piece.section not in visible_sections([piece.section], message, viewer):
                continue
            if (found := _measure(message, piece, terms, ranked)) is not None:
                count += 1
                yield found
        if count >= CANDIDATES:
            return


def _measure(message: Message, piece: Piece, terms: Sequence[QueryTerm], ranked: RankedPieces) -> _Candidate | None:
    """Return the score of a piece, and where in its section the words are nearest to each other."""
    hits = _find_hits(piece.section.text[piece.start : piece.end], terms, ranked)
    if not hits:
        return None
    if len(hits) > MAX_HITS:
        hits = sorted(sorted(hits, key=lambda hit: -hit.weight)[:MAX_HITS])
    nearest, best = (hits[0].start, hits[0].end), -1.0
    for at, first in enumerate(hits):
        near: dict[int, float] = {}
        end = first.end
        for hit in hits[at:]:
            if hit.start > first.start + WINDOW:
                break
            if hit.weight > near.get(hit.term, 0.0):
                near[hit.term] = hit.weight
                end = max(end, hit.end)
        if (total := sum(near.values())) > best + 1e-9:
            best, nearest = total, (first.start, end)
    anywhere: dict[int, float] = {}
    for hit in hits:
        anywhere[hit.term] = max(anywhere.get(hit.term, 0.0), hit.weight)
    score = round(0.6 * best + 0.4 * sum(anywhere.values()), 6)
    return _Candidate(score, message, piece, piece.start + nearest[0], piece.start + nearest[1])


def _find_hits(text: str, terms: Sequence[QueryTerm], ranked: RankedPieces) -> list[_Hit]:
    exact = {term.text: at for at, term in enumerate(terms)}
    similar = [(at, term) for at, term in enumerate(terms) if term.prefix]
    found: list[_Hit] = []
    for token in iter_tokens(text):
        for own in token.terms:
            if (at := exact.get(own)) is not None:
                found.append(_Hit(token.start, token.end, at, ranked.weights[at].same))
            for at, term in similar:
                if own.startswith(term.prefix) and own != term.text:
                    found.append(_Hit(token.start, token.end, at, 2 * ranked.weights[at].similar * term.match(own)))
    return sorted(found)


def _select(candidates: Sequence[_Candidate], counter: TokenCounter, max_tokens: int) -> Iterator[HistoryPassage]:
    """Yield passages in order, none twice, as long as there is room."""
    seen: set[str] = set()
    taken: dict[int, list[tuple[int, int, int]]] = {}
    left = max_tokens
    for each in candidates:
        if each.score < candidates[0].score * LEAST_SCORE:
            return
        section, seq = each.piece.section, each.message.seq & SEQ_MASK
        start, end = _cut(section.text, each.start, each.end)
        others = taken.setdefault(seq, [])
        key = id(section)
        if len(others) >= PASSAGES_PER_MESSAGE or any(
            at == key and start < high and low < end for at, low, high in others
        ):
            continue
        text = section.text[start:end].strip()
        plain = " ".join(text.casefold().split())
        if plain in seen:
            continue
        before, after = "…" if start else "", "…" if end < len(section.text) else ""
        passage = HistoryPassage(
            id=section_id(each.message, section.number),
            seq=seq,
            role=each.message.role,
            author=each.message.author,
            kind=section.kind,
            tool=section.tool,
            text=f"{before}{text}{after}",
            offset=start,
            score=each.score,
        )
        left -= counter.count_text(f"{_title(passage)}\n{passage.text}\n\n")
        if left < 0:
            return
        seen.add(plain)
        others.append((key, start, end))
        yield passage


def _cut(text: str, start: int, end: int) -> tuple[int, int]:
    """Return where a passage around a range begins and ends: at lines, sentences or words if possible."""
    if len(text) <= SHORT_LENGTH:
        return 0, len(text)
    room = max(160, (PASSAGE_LENGTH - (end - start)) // 2)
    low, high = max(0, start - room), min(len(text), end + room)
    if low:
        low = next((at + len(mark) for mark in ("\n", ". ", " ") if (at := text.find(mark, low, start)) >= 0), low)
    if high < len(text):
        high = next((at + 1 for mark in ("\n", ". ", " ") if (at := text.rfind(mark, end, high)) >= 0), high)
    return low, high
