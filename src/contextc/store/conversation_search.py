"""Search in the names, given titles and messages of conversations, including tool calls and results. Case is ignored.

All names and given titles are searched first. Messages are read newest first, at most `MAX_MESSAGES` of them per call,
which bounds the time of a search in a store of any size. A page's `next` continues where the search stopped. The list
of conversations shows the newest hit of each; `search_messages` returns several, their number, and what it has read.
"""

import re
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import chain, islice
from typing import NamedTuple

from msgspec.structs import replace

from contextc.errors import InvalidInput
from contextc.messages import Message, to_plain_text
from contextc.store.backend_interface import Row, Transaction
from contextc.store.conversation_list import (
    LIST_ORDER,
    ConversationOverview,
    ConversationPage,
    ConversationRow,
    Lineage,
    PageCursor,
    after_cursor,
    check_limit,
    decode_or_none,
    find_lineages,
    is_named,
    list_rows,
    list_rows_by_number,
    load_branches,
    load_details,
    parse_cursor,
)
from contextc.store.message_rows import SEQ_MASK, make_place, split_by_branch

# ── names ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
# The database compares ASCII names. Others are compared here, by all of Unicode's rules. PostgreSQL has an index of
# the parts of names, which is used for all but the most recently active conversations: a text that many names have is
# found there, and one that few names have is found by the index. So the cost does not depend on the number of
# conversations.


NAMES_PER_QUERY = 500
RECENT_NAMES = 1_000
"""Number of most recently active conversations whose names are compared without the index."""
SEPARATOR = "\x1f"
"""Character between the parts of a value. No name has it, because it is not printable."""
LAST_CASED = 0x1_E944
"""Above the last character that has upper and lower case."""


def find_named(tx: Transaction, wanted: str, after: PageCursor | None, limit: int) -> list[int]:
    """Return the numbers of conversations with a text in their name or given title. `wanted` is case-folded."""
    if not _has_index(tx, wanted):
        return [number for number, *_ in _scan_names(tx, wanted, after, limit)]
    which, values = after_cursor(after)
    order = f"{which} {LIST_ORDER} OFFSET {RECENT_NAMES - 1:d} LIMIT 1"
    last = tx.row(f"SELECT c.spoken, c.number FROM conversation c {order}", *values)
    found = _scan_names(tx, wanted, after, limit, recent=True)
    if last is not None and len(found) < limit:
        found += _scan_names(tx, wanted, PageCursor(*last), limit - len(found), indexed=True)
    return [number for number, *_ in found]


def _has_index(tx: Transaction, wanted: str) -> bool:
    """Return True if the store has an index, and if the text has parts that are in it."""
    if tx.dialect.name != "postgres" or SEPARATOR in wanted or not (_triples(wanted) or not wanted.isascii()):
        return False
    encoding = tx.row("SELECT current_setting('server_encoding')")  # in others a letter may be one byte
    return encoding is not None and encoding[0] == "UTF8"


def _scan_names(
    tx: Transaction,
    wanted: str,
    after: PageCursor | None,
    limit: int,
    *,
    recent: bool = False,
    indexed: bool = False,
) -> list[Row]:
    """Return conversations with the text: among the recent ones, by the index, or among all after the cursor."""
    is_postgres = tx.dialect.name == "postgres"
    contains = 'position(? in lower({} COLLATE "C")) > 0' if is_postgres else "instr(lower({}), ?) > 0"
    is_long = "octet_length({0}) > length({0})" if is_postgres else "length(CAST({0} AS BLOB)) > length({0})"
    tests = [test.format(column) for test in (contains, is_long) for column in ("c.name", "c.title")]
    if is_postgres:  # in other encodings a letter may be one byte
        encoding = "(SELECT current_setting('server_encoding')) <> 'UTF8'"
        tests.append(f"({encoding} AND (c.name ~ '[^ -~]' OR c.title ~ '[^ -~]'))")
    condition, values = _find_names_by_index(wanted) if indexed else ("", [])
    found: list[Row] = []
    while len(found) < limit:
        which, place = after_cursor(after)
        source = "conversation c"
        if recent:
            inner = f"SELECT number, spoken, name, title FROM conversation c {which} {LIST_ORDER} LIMIT {RECENT_NAMES}"
            source, which = f"({inner}) c", ""
        rows = tx.rows(
            f"SELECT c.number, c.spoken, c.name, c.title FROM {source} {which or 'WHERE true'}{condition}"
            f" AND ({' OR '.join(tests)}) {LIST_ORDER} LIMIT {RECENT_NAMES if recent else NAMES_PER_QUERY:d}",
            *place,
            *values,
            wanted,
            wanted,
        )
        found += [row for row in rows if is_named(wanted, row[2], row[3])]
        if recent or len(rows) < NAMES_PER_QUERY:
            break
        after = PageCursor(rows[-1][1], rows[-1][0])
    return found[:limit]


def _find_names_by_index(wanted: str) -> tuple[str, list[str]]:
    """Return the condition that names with a text fulfil, by the index, and its values."""
    triples, others = _triples(wanted), sorted({each for each in wanted if not each.isascii()})
    part = "n.parts {} string_to_array(?, chr(31))"
    tests = [part.format("@>")] if triples else []
    tests += [part.format("&&")] * len(others)
    values = [SEPARATOR.join(triples)] if triples else []
    values += [SEPARATOR.join(_folded_to().get(each, each) + each) for each in others]
    either = [f"({' AND '.join(tests)})"]
    if triples:  # a name may have them in another form, such as ß for ss
        either.append(part.format("&&"))
        values.append(SEPARATOR.join(_folded_to()["ascii"]))
    return f" AND c.number IN (SELECT n.number FROM conversation_name n WHERE {' OR '.join(either)})", values


def _triples(wanted: str) -> Sequence[str]:
    """Return all three ASCII characters in a row of a text."""
    found = {wanted[start : start + 3] for start in range(len(wanted) - 2)}
    return sorted([each for each in found if each.isascii()])


@cache
def _folded_to() -> dict[str, str]:
    """Return the characters whose case-folded form has a certain other character, by that character.

    `ascii` has those whose form has an ASCII character.
    """
    found: dict[str, str] = {"ascii": ""}
    for each in map(chr, chain(range(0x80, 0xD800), range(0xE000, LAST_CASED))):
        folded = each.casefold()
        if folded != each:
            for character in folded:
                name = "ascii" if character.isascii() else character
                if each not in found.get(name, ""):
                    found[name] = found.get(name, "") + each
    return found


# ── messages ──────────────────────────────────────────────────────────────────────────────────────────────────────────


MAX_MESSAGES = 40_000
"""Maximum number of messages that one search reads. A query counts as `QUERY_COST` more, `LARGE` bytes as one."""
QUERY_COST, LARGE = 20, 8_192
MAX_HITS = 20
CHUNK, CONVERSATIONS = 500, 200
READ_AHEAD = 8
"""Number of conversations whose last messages are read in one round trip, if the database is a server."""
ADDED = re.compile(r'["\\\s\x00-\x1f:,(){}\[\]]')
"""Characters that JSON escapes, or that the text of a call or result has and the stored message has not."""
ADDED_WORD = "calls"
BEFORE, AFTER = 40, 100


class SearchHit(NamedTuple):
    """The text around a match and the seq of its message. Both are empty for a match in the name.

    `part` is what matches: text, call or result; empty if the match spans several. `tool` is the tool of a call or
    result.
    """

    excerpt: str = ""
    seq: int = 0
    role: str = ""
    part: str = ""
    tool: str = ""


class SearchProgress(NamedTuple):
    """The search result of one conversation: the hits, the number of messages with the text, the work spent, the number
    of messages that were read, and the seq from which to continue (0: done).
    """

    hits: list[SearchHit]
    total: int
    work: int
    read: int
    left: int = 0


class ConversationHits(NamedTuple):
    """A conversation with its newest hits. `total` is the number of its messages with the text that were found so far.

    `more` is the cursor of a search for the older ones, "" if all are in `hits`.
    """

    conversation: ConversationOverview
    hits: list[SearchHit]
    total: int = 0
    more: str = ""


class SearchPage(NamedTuple):
    """Conversations with hits, newest hit first. One without hits has the text in its name.

    `messages` and `conversations` are the numbers of those that were searched. A conversation may be on several pages,
    with older hits on the later ones. `next` is empty on the last page.
    """

    found: list[ConversationHits]
    next: str
    messages: int
    conversations: int


class _FoundRow(NamedTuple):
    row: ConversationRow
    hits: list[SearchHit]
    total: int = 0


class _Found(NamedTuple):
    """Conversations with hits, the cursor to continue from, and the numbers of searched messages and conversations."""

    rows: list[_FoundRow]
    mark: PageCursor | None
    messages: int = 0
    conversations: int = 0


def search_conversations(
    tx: Transaction, text: str, *, before: str = "", limit: int = 50, work: int = MAX_MESSAGES
) -> ConversationPage:
    """Return a page of conversations with the text in their name, followed by those with it in a message."""
    found = _search(tx, text, before, limit, work, max_hits=1, finds_all=False)
    entries = load_details(tx, [each.row for each in found.rows])
    newest = [each.hits[0] if each.hits else SearchHit() for each in found.rows]
    entries = [replace(each, excerpt=hit.excerpt, hit=hit.seq) for each, hit in zip(entries, newest, strict=True)]
    return ConversationPage(entries, "" if found.mark is None else str(found.mark))


def search_messages(
    tx: Transaction, text: str, *, before: str = "", limit: int = 20, max_hits: int = 5, work: int = MAX_MESSAGES
) -> SearchPage:
    """Return a page of conversations with their newest hits, at most `max_hits` each. The first page begins with the
    conversations that have the text in their name.
    """
    if not 1 <= max_hits <= MAX_HITS:
        raise InvalidInput(f"max_hits must be 1 to {MAX_HITS}", got=max_hits)
    found = _search(tx, text, before, limit, work, max_hits=max_hits, finds_all=True)
    entries = load_details(tx, [each.row for each in found.rows])
    mark = "" if found.mark is None else str(found.mark)
    pages = [
        ConversationHits(entry, each.hits, each.total, _mark_older(each))
        for entry, each in zip(entries, found.rows, strict=True)
    ]
    return SearchPage(pages, mark, found.messages, found.conversations)


def _mark_older(found: _FoundRow) -> str:
    if found.total <= len(found.hits):
        return ""
    return str(PageCursor(found.row.last_active, found.row.number, found.hits[-1].seq - 1))


def _search(
    tx: Transaction, text: str, before: str, limit: int, work: int, *, max_hits: int, finds_all: bool
) -> _Found:
    """Return a page. With `finds_all`, all messages with the text are counted, also where the name has it."""
    wanted = " ".join(text.split()).casefold()
    if not wanted:
        raise InvalidInput("search text must not be blank", got=text)
    begin, hits = parse_cursor(before), list[_FoundRow]()
    check_limit(limit)
    if begin is None or begin.in_names:
        numbers = find_named(tx, wanted, begin, limit)
        named = list_rows_by_number(tx, numbers) if numbers else []
        hits = [_FoundRow(each, []) for each in named]
        if len(numbers) == limit and named:
            return _Found(hits, PageCursor(named[-1].last_active, named[-1].number, in_names=1))
        begin = None
    return _search_all(tx, wanted, begin, hits, limit, work, max_hits, finds_all=finds_all)


def _search_all(
    tx: Transaction,
    wanted: str,
    begin: PageCursor | None,
    hits: list[_FoundRow],
    limit: int,
    work: int,
    max_hits: int,
    *,
    finds_all: bool,
) -> _Found:
    """Add conversations with the text in a message."""
    mark, messages, conversations = begin, 0, 0
    for each, line in _iter_conversations(tx, begin):
        if work <= 0 or len(hits) >= limit:
            return _Found(hits, mark, messages, conversations)
        if finds_all or not is_named(wanted, each.name, each.given_title):  # otherwise it was found by name
            goes_on = begin is not None and begin.number == each.number
            end = begin.until if begin is not None and goes_on else each.length
            looked = _search_conversation(tx, line, end, wanted, work, max_hits, counts_all=finds_all)
            work -= looked.work
            messages += looked.read
            if looked.hits:
                hits.append(_FoundRow(each, looked.hits, looked.total))
            if looked.left:
                return _Found(hits, PageCursor(each.last_active, each.number, looked.left), messages, conversations)
        conversations += 1
        mark = PageCursor(each.last_active, each.number)
    return _Found(hits, None, messages, conversations)


def _iter_conversations(tx: Transaction, mark: PageCursor | None) -> Iterator[tuple[ConversationRow, Lineage]]:
    """Yield all conversations in list order, each with the branches of its chain."""
    while some := list_rows(tx, mark, CONVERSATIONS):
        lines = find_lineages(some, load_branches(tx, some))
        for index, each in enumerate(some):
            if index % READ_AHEAD == 0:
                for other in some[index : index + READ_AHEAD]:
                    for places in islice(_chunks(lines[other.number], other.length), 1):
                        tx.prefetch(SELECT_CHUNK, *places)
            yield each, lines[each.number]
        mark = PageCursor(some[-1].last_active, some[-1].number)


def _search_conversation(
    tx: Transaction, line: Lineage, upto: int, wanted: str, work: int, max_hits: int, *, counts_all: bool
) -> SearchProgress:
    """Search a conversation from its end until there are enough hits or the work is spent.

    With `counts_all`, the search goes on after the last hit, and counts.
    """
    word = max([each for each in ADDED.split(wanted) if each != ADDED_WORD], key=len, default="")
    plain, spent, read, count, hits = word.encode(), 0, 0, 0, list[SearchHit]()
    for low, high in _chunks(line, upto):
        rows = tx.rows(SELECT_CHUNK, low, high)
        read += len(rows)
        spent += len(rows) + QUERY_COST + sum([len(body) for _, body in rows]) // LARGE
        for where, body in rows:
            if not _may_contain(body, word, plain) or (match := _find_match(body, wanted)) is None:
                continue
            count += 1
            if len(hits) < max_hits:
                hits.append(_make_hit(match, wanted, where & SEQ_MASK))
            if len(hits) == max_hits and not counts_all:
                return SearchProgress(hits, count, spent, read)
        if spent >= work and low & SEQ_MASK > 1:
            return SearchProgress(hits, count, spent, read, (low & SEQ_MASK) - 1)
    return SearchProgress(hits, count, spent, read)


SELECT_CHUNK = "SELECT place, body FROM message WHERE place BETWEEN ? AND ? ORDER BY place DESC"


def _chunks(line: Lineage, upto: int) -> Iterator[tuple[int, int]]:
    """Yield the places of a conversation's messages up to a seq, last first, in ranges of at most `CHUNK`."""
    for branch, first, last in reversed(list(split_by_branch(line, 0, upto))):
        for high in range(last, first - 1, -CHUNK):
            yield make_place(branch, max(first, high - CHUNK + 1)), make_place(branch, high)


def _may_contain(body: bytes, word: str, plain: bytes) -> bool:
    """Return True if a row may contain a word. It excludes most rows without decoding them."""
    return plain in body.lower() if body.isascii() else word in body.decode(errors="replace").casefold()


class _Match(NamedTuple):
    """A message that contains the text, its own text, and the position of the match in its case-folded form."""

    message: Message
    text: str
    at: int


def _find_match(body: bytes, wanted: str) -> _Match | None:
    message = decode_or_none(body)
    if message is None or message.redacted:
        return None
    text = " ".join(to_plain_text(message).split())
    at = text.casefold().find(wanted)
    return _Match(message, text, at) if at >= 0 else None


def _make_hit(match: _Match, wanted: str, seq: int) -> SearchHit:
    """Return the match with surrounding text."""
    message, text, at = match
    begin, end = _unfold_index(text, at), _unfold_index(text, at + len(wanted) - 1) + 1
    first, last = max(0, begin - BEFORE), end + AFTER
    excerpt = f"{'…' if first else ''}{text[first:last]}{'…' if last < len(text) else ''}"
    return SearchHit(excerpt, seq, message.role, *_find_part(message, wanted))


def _find_part(message: Message, wanted: str) -> tuple[str, str]:
    """Return what contains the text, and the tool of a call or result."""
    if wanted in _fold(message.text):
        return "text", ""
    for call in message.tool_calls:
        if wanted in _fold(to_plain_text(replace(message, parts=(call,)))):
            return "call", call.name
    for result in message.tool_results:
        if wanted in _fold(to_plain_text(replace(message, parts=(result,)))):
            return "result", result.name
    return "", ""


def _fold(text: str) -> str:
    return " ".join(text.split()).casefold()


def _unfold_index(text: str, at: int) -> int:
    """Return the index in a text of the character at an index of its case-folded form, which may be longer."""
    for index, character in enumerate(text):
        at -= len(character.casefold())
        if at < 0:
            return index
    return len(text)
