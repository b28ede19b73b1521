"""Search in the names and messages of conversations, including tool calls and results. Case is ignored.

All names are searched first. Messages are read newest first, at most `MAX_MESSAGES` of them per call, which bounds the
time of a search in a store of any size. A page's `next` continues where the search stopped.
"""

from collections.abc import Iterator
from typing import NamedTuple

from msgspec.json import encode
from msgspec.structs import replace

from contextc.errors import InvalidInput
from contextc.messages.message import to_plain_text
from contextc.store.backend_interface import Transaction
from contextc.store.conversation_list import (
    ConversationPage,
    ConversationRow,
    Lineage,
    PageCursor,
    check_limit,
    decode_or_none,
    find_lineages,
    list_names,
    list_rows,
    list_rows_by_number,
    load_branches,
    load_details,
    parse_cursor,
)
from contextc.store.message_rows import SEQ_MASK, make_place, split_by_branch

MAX_MESSAGES = 40_000
"""Maximum number of messages that one search reads. Each query counts as `QUERY_COST` more."""
QUERY_COST = 20
CHUNK, CONVERSATIONS = 500, 200
BEFORE, AFTER = 40, 100


class SearchProgress(NamedTuple):
    """The search result of one conversation: the hit, the work spent, and the seq from which to continue (0: done)."""

    hit: "SearchHit | None"
    work: int
    left: int = 0


class SearchHit(NamedTuple):
    """The text around a match and the seq of its message. Both are empty for a match in the name."""

    excerpt: str = ""
    seq: int = 0


def search_conversations(
    tx: Transaction, text: str, *, before: str = "", limit: int = 50, work: int = MAX_MESSAGES
) -> ConversationPage:
    """Return a page of conversations with the text in their name, followed by those with it in a message."""
    wanted = " ".join(text.split()).casefold()
    if not wanted:
        raise InvalidInput("search text must not be blank", got=text)
    begin, hits = parse_cursor(before), list[tuple[ConversationRow, SearchHit]]()
    check_limit(limit)
    if begin is None or begin.in_names:
        numbers = [number for number, name in list_names(tx, begin) if wanted in name.casefold()][:limit]
        named = list_rows_by_number(tx, numbers) if numbers else []
        hits = [(each, SearchHit()) for each in named]
        if len(numbers) == limit and named:
            return _page(tx, hits, PageCursor(named[-1].last_active, named[-1].number, in_names=1))
        begin = None
    return _page(tx, *_search_messages(tx, wanted, begin, hits, limit, work))


def _search_messages(
    tx: Transaction,
    wanted: str,
    begin: PageCursor | None,
    hits: list[tuple[ConversationRow, SearchHit]],
    limit: int,
    work: int,
) -> tuple[list[tuple[ConversationRow, SearchHit]], PageCursor | None]:
    """Add conversations with the text in a message. Return the hits and the cursor to continue from."""
    mark = begin
    for each, line in _iter_conversations(tx, begin):
        if work <= 0 or len(hits) == limit:
            return hits, mark
        if wanted not in each.name.casefold():  # otherwise it was found by name
            goes_on = begin is not None and begin.number == each.number
            looked = _search_conversation(
                tx, line, begin.until if begin is not None and goes_on else each.length, wanted, work
            )
            work -= looked.work
            if looked.hit is not None:
                hits.append((each, looked.hit))
            if looked.left:
                return hits, PageCursor(each.last_active, each.number, looked.left)
        mark = PageCursor(each.last_active, each.number)
    return hits, None


def _page(tx: Transaction, hits: list[tuple[ConversationRow, SearchHit]], mark: PageCursor | None) -> ConversationPage:
    found = load_details(tx, [each for each, _ in hits])
    found = [replace(each, excerpt=hit.excerpt, hit=hit.seq) for each, (_, hit) in zip(found, hits, strict=True)]
    return ConversationPage(found, "" if mark is None else str(mark))


def _iter_conversations(tx: Transaction, mark: PageCursor | None) -> Iterator[tuple[ConversationRow, Lineage]]:
    """Yield all conversations in list order, each with the branches of its chain."""
    while some := list_rows(tx, mark, CONVERSATIONS):
        lines = find_lineages(some, load_branches(tx, some))
        for each in some:
            yield each, lines[each.number]
        mark = PageCursor(some[-1].last_active, some[-1].number)


def _search_conversation(tx: Transaction, line: Lineage, upto: int, wanted: str, work: int) -> SearchProgress:
    """Search a conversation from its end until the text is found or the work is spent."""
    word = encode(max(wanted.split(), key=len)).decode()[1:-1]  # as encoded in JSON
    plain, read = word.encode(), 0
    for branch, first, last in reversed(list(split_by_branch(line, 0, upto))):
        for high in range(last, first - 1, -CHUNK):
            low = max(first, high - CHUNK + 1)
            rows = tx.rows(
                "SELECT place, body FROM message WHERE place BETWEEN ? AND ? ORDER BY place DESC",
                make_place(branch, low),
                make_place(branch, high),
            )
            read += len(rows) + QUERY_COST
            for where, body in rows:
                if _may_contain(body, word, plain) and (excerpt := _find_excerpt(body, wanted)):
                    return SearchProgress(SearchHit(excerpt, where & SEQ_MASK), read)
            if read >= work and low > 1:
                return SearchProgress(None, read, low - 1)
    return SearchProgress(None, read)


def _may_contain(body: bytes, word: str, plain: bytes) -> bool:
    """Return True if a row may contain a word. It excludes most rows without decoding them."""
    return plain in body.lower() if body.isascii() else word in body.decode(errors="replace").casefold()


def _find_excerpt(body: bytes, wanted: str) -> str:
    """Return the match with surrounding text, or an empty string if the message does not contain it."""
    message = decode_or_none(body)
    text = " ".join(to_plain_text(message).split()) if message is not None and not message.redacted else ""
    at = text.casefold().find(wanted)
    if at < 0:
        return ""
    begin, end = _unfold_index(text, at), _unfold_index(text, at + len(wanted) - 1) + 1
    first, last = max(0, begin - BEFORE), end + AFTER
    return f"{'…' if first else ''}{text[first:last]}{'…' if last < len(text) else ''}"


def _unfold_index(text: str, at: int) -> int:
    """Return the index in a text of the character at an index of its case-folded form, which may be longer."""
    for index, character in enumerate(text):
        at -= len(character.casefold())
        if at < 0:
            return index
    return len(text)
