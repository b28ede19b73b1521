"""The tools `search_history` and `fetch_result`, with which a model finds messages that it is not shown.

An agent finds only what it may see; the pass over its view has the same rules.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from contextc._json import JSONObject
from contextc.errors import InvalidInput, UnknownConversation, UnknownMessage
from contextc.formats.base import Formatter
from contextc.messages import (
    Media,
    Message,
    Role,
    ToolCall,
    Viewer,
    escape_markers,
    escaped_line,
    read_text_file,
    with_tags,
)
from contextc.models.tokens import TokenCounter
from contextc.prompts import hash_tools
from contextc.providers import Provider
from contextc.providers.structured_output import has_structured_output
from contextc.store import Store
from contextc.store.full_text_index import (
    Piece,
    QueryTerm,
    RankedPieces,
    SearchableSection,
    SectionKind,
    file_reader,
    iter_tokens,
    list_sections,
    load_messages_of_pieces,
    load_scope,
    parse_query,
    rank_pieces,
    split_key,
    split_pieces,
    update_index,
)
from contextc.store.message_log import SEQ_MASK
from contextc.store.transaction_engine import Transaction
from contextc.tools.definitions import AnyTool, Tool, get_tool_name

# ── the definitions of both tools ─────────────────────────────────────────────────────────────────────────────────────
# The tools with which a model reads what its request has no room for: `search_history` and `fetch_result`.
#
# They are offered from the first request on, because a tool that is added later changes the prefix. So a channel that
# was begun without them, or with an earlier form of them, keeps what it has until its next epoch.
#
# Every request pays for them, so both together have less than 90 tokens as JSON. The only parameter of a search
# needs no `required`.


FETCH_TOOL = Tool(
    name="fetch_result",
    description="Reads a message by id.",
    parameters={
        "type": "object",
        "properties": {"id": {"type": "string"}, "offset": {"type": "integer"}},
        "required": ["id"],
    },
)
SEARCH_TOOL = Tool(
    name="search_history",
    description="Searches all messages, shown or not.",
    parameters={"type": "object", "properties": {"query": {"type": "string"}}},
)
HISTORY_TOOLS = (FETCH_TOOL, SEARCH_TOOL)
MAX_SHARE_ALONE = 0.02
"""Share of the window that they may take if there are no other tools."""
HISTORY_TOOL_NAMES = tuple([tool.name for tool in HISTORY_TOOLS])

FORMER_FETCH_TOOL = Tool(
    name="fetch_result",
    description=(
        "Reads a tool result that was left out of the conversation, or shortened, to save room. The line that stands "
        "in its place says its id."
    ),
    parameters={
        "type": "object",
        "properties": {
            "id": {"type": "string", "description": "The id of the result, such as r57."},
            "offset": {"type": "integer", "description": "The character to begin at; 0 is the first."},
            "length": {"type": "integer", "description": "How many characters to read; at most 20000."},
        },
        "required": ["id"],
    },
)
"""The tool of requests of version 0.1. It never changes, so that their channels keep their prefix."""
LONGER_HISTORY_TOOLS = (
    replace(FETCH_TOOL, description="Reads a message or result by its id."),
    Tool(
        name="search_history",
        description="Searches all of this conversation, also what is no longer shown.",
        parameters={"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
    ),
)
"""The tools of requests from before both became shorter. They never change either."""
SEARCH_TOOLS = (SEARCH_TOOL, LONGER_HISTORY_TOOLS[1])


def list_variants(names: Sequence[str], *, offers: bool) -> list[tuple[Tool, ...]]:
    """Return the history tools that a request may have: first those of a new epoch, then those of earlier ones.

    A caller's own tool with one of their names replaces it.
    """
    former = [LONGER_HISTORY_TOOLS, (FORMER_FETCH_TOOL,)]
    variants = [HISTORY_TOOLS, *former, ()] if offers else [(), HISTORY_TOOLS, *former]
    return [tuple([tool for tool in each if tool.name not in names]) for each in variants]


def choose_tools(
    tools: Sequence[AnyTool],
    variants: Sequence[Sequence[Tool]],
    stand_in: Tool | None,
    order: Sequence[str],
    sent: str | None,
) -> tuple[list[AnyTool], str, bool]:
    """Return the tools of a request, their hash, and whether a new epoch would have others.

    `order` and `sent` are the names and the hash of those of the previous request. Without any, the first variant is
    used, otherwise the one that was sent.
    """
    place_of = {name: index for index, name in enumerate(order)}
    lists: list[list[AnyTool]] = []
    for added in variants:
        told: list[AnyTool] = [*tools, *added] if tools or added or stand_in is None else [stand_in]
        if order and all(get_tool_name(tool) in place_of for tool in told):
            told.sort(key=lambda tool: place_of[get_tool_name(tool)])
        lists.append(told)
    hashes = [hash_tools(told) if told else "" for told in lists]
    at = hashes.index(sent) if sent in hashes else 0
    return lists[at], hashes[at], hashes[at] != hashes[0]


def can_offer_alone(provider: Provider, counter: TokenCounter, settings: JSONObject, budget: int | None) -> bool:
    """Return True if a request without other tools may have these.

    That is so if the provider is known to accept them with such settings, and if they are a small part of the window:
    some providers add several hundred tokens to the first tool.
    """
    model = provider.model
    if provider.runs_tools or not model.tools or (provider.format == "openai_chat" and not model.tools_in_chat):
        return False
    has_output_format = provider.formatter.settings.read(settings).settings.output is not None
    if has_output_format and not has_structured_output(provider, with_tools=True):
        return False
    tokens = counter.count_tools(provider.formatter.encode_tools(HISTORY_TOOLS))
    return tokens <= min(budget or model.window, model.window) * MAX_SHARE_ALONE


def forces_call(formatter: Formatter, settings: JSONObject) -> bool:
    """Return True if the settings make the model call a tool."""
    choice = formatter.settings.read(settings).settings.tool_choice
    return choice is not None and choice.mode in ("required", "named")


# ── fetch_result ──────────────────────────────────────────────────────────────────────────────────────────────────────
# The tool `fetch_result`: reads a message that is no longer in a request, or that was left out or shortened there.
#
# That is a tool result, a text file, the text of a person, a reply or a trigger. An id is `r` and the seq of the
# message, and the number of a result or file in it: `r57.2` is the second one. `r57` is the first; the text if there
# is none. `r57.0` is the text in any case.


RESULT_ID = re.compile(r"r(\d{1,9})(?:\.(\d{1,4}))?")
MAX_LENGTH = 20_000


def result_id(seq: int, number: int) -> str:
    """Return the id of a result for `fetch_result`: the message's seq, and the number of the result in it, or of the
    media part in a user's message.
    """
    return f"r{seq}" if number == 1 else f"r{seq}.{number}"


def section_id(message: Message, number: int) -> str:
    """Return the id of a message's text, which has number 0, or of a result or file in it."""
    has_more = message.tool_results or (message.role == "user" and any(type(part) is Media for part in message.parts))
    return f"r{message.seq}" if number == 0 and not has_more else result_id(message.seq, number)


def visible_sections(
    sections: Sequence[SearchableSection], message: Message, viewer: Viewer
) -> list[SearchableSection]:
    """Return what an agent may see of a visible message. Of another agent's message, that is the text."""
    if message.role == "user" or viewer.is_own(message):
        return list(sections)
    return [each for each in sections if each.kind == "text"]


def fetch_result(
    store: Store, conversation: str, viewer: Viewer, name: object, offset: object = 0, length: object = MAX_LENGTH
) -> str:
    """Return a section of a message as text for the model. Invalid arguments produce a text that explains the error."""
    match = RESULT_ID.fullmatch(name.strip()) if isinstance(name, str) else None
    if match is None:
        return f"{name!r} is no id of a result. Ids look like r57, and stand in the line that says what was left out."
    start, count = _as_count(offset, 0), min(_as_count(length, MAX_LENGTH) or MAX_LENGTH, MAX_LENGTH)
    try:
        if int(match[1]) <= store.conversation(conversation).context_start:
            return f"There is no result {name} in this conversation."
        (message,) = store.load(conversation, after=int(match[1]) - 1, until=int(match[1]))
    except (UnknownMessage, UnknownConversation, InvalidInput, ValueError):
        return f"There is no result {name} in this conversation."
    if message.redacted:
        return f"The result {name} was removed."
    text = _find_text(store, message, viewer, int(match[2]) if match[2] else None)
    if text is None:
        return f"There is no result {name} in this conversation."
    piece = text[start : start + count]
    rest = len(text) - start - len(piece)
    if rest > 0:
        return f"{piece}\n[{rest:,} characters follow; read on with offset {start + len(piece)}.]"
    return piece or f"[The result has {len(text):,} characters; there is nothing at offset {start}.]"


def _find_text(store: Store, message: Message, viewer: Viewer, number: int | None) -> str | None:
    """Return the text with a number in a message; None if there is none, or if the agent may not see it."""
    if message.role == "system":
        is_meant = message.audience in (None, viewer.agent) or str(message.audience).startswith(f"{viewer.agent} on ")
        return message.text if message.trigger and is_meant and number in (None, 1) else None
    if viewer.find_hidden(message) is not None:
        return None

    def read_file(media: Media) -> str | None:
        return read_text_file(media, store.blob(media.blob) if media.blob else None)

    sections = visible_sections(list_sections(message, read_file), message, viewer)
    texts = [f"{each.tool}: {each.text}" if each.kind == "call" else each.text for each in sections if not each.number]
    others = {each.number: each.text for each in sections if each.number}
    if number is None:
        number = 1 if others.get(1) or not texts else 0
    return "\n\n".join(texts) if number == 0 and texts else others.get(number)


def _as_count(value: object, default: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return default
    try:
        return max(0, int(value))
    except (ValueError, OverflowError):
        return default


# ── search_history ────────────────────────────────────────────────────────────────────────────────────────────────────
# Search what an agent may see of a conversation, whether or not it is in the window now.
#
# The index of the store finds pieces of messages by their terms. Here, the best of them are read again: those that the
# agent may not see are left out, words that are near each other count more, and a passage is cut around them.


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


def answer_history_call(store: Store, conversation: str, call: ToolCall, viewer: Viewer, counter: TokenCounter) -> str:
    """Return the result of a call of `search_history` or `fetch_result`."""
    given = call.arguments
    if call.name == SEARCH_TOOL.name:
        query = str(given.get("query") or "").strip()
        if not query:
            return "query is missing. Call search_history with the words to look for."
        return render_passages(search_history(store, conversation, query, viewer, counter))
    return fetch_result(
        store, conversation, viewer, given.get("id"), given.get("offset", 0), given.get("length", MAX_LENGTH)
    )


def render_passages(passages: Sequence[HistoryPassage]) -> str:
    """Return the passages as text for a model: data, each with its id and its author."""
    if not passages:
        return "Nothing found. Search with other words: names, ids, paths, or words that were used."
    shown = join_passages([render_passage(each) for each in passages])
    return f"{shown}\nfetch_result reads the whole message of an id."


def join_passages(texts: Iterable[str]) -> str:
    """Return rendered passages as data for a model."""
    return with_tags("search-results", "\n\n".join(texts))


def render_passage(passage: HistoryPassage, conversation: str = "") -> str:
    """Return a passage as escaped text below its title, which names its conversation if it is given."""
    where = f"{escaped_line(conversation)}, " if conversation else ""
    return f"{where}{passage_title(passage)}\n{escape_markers(passage.text)}"


def passage_title(passage: HistoryPassage) -> str:
    """Return the id of a passage, its author, and what it is from."""
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
        messages = load_messages_of_pieces(tx, keys)
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
        left -= counter.count_text(f"{passage_title(passage)}\n{passage.text}\n\n")
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
