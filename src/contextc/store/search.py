"""Search in the names and messages of conversations, including tool calls and results. Case is ignored.

All names are searched first. Messages are read newest first, at most `WORK` of them per call, which bounds the time of
a search in a store of any size. A page's `next` continues where the search stopped.
"""

from collections.abc import Iterator
from typing import NamedTuple

from msgspec.json import encode
from msgspec.structs import replace

from contextc.errors import InvalidInput
from contextc.messages.words import words
from contextc.store.base import Transaction
from contextc.store.overviews import (
    Line,
    Listed,
    Mark,
    Page,
    branches_of,
    check_limit,
    described,
    lines_of,
    listed,
    listed_as,
    mark_of,
    names_after,
    read_or_none,
)
from contextc.store.places import SEQ_MASK, place, stretches

WORK = 40_000
"""Maximum number of messages that one search reads. Each query counts as `ASKING` more."""
ASKING = 20
CHUNK, CONVERSATIONS = 500, 200
BEFORE, AFTER = 40, 100


class Looked(NamedTuple):
    """The search result of one conversation: the hit, the work spent, and the seq from which to continue (0: done)."""

    hit: "Hit | None"
    work: int
    left: int = 0


class Hit(NamedTuple):
    """The text around a match and the seq of its message. Both are empty for a match in the name."""

    excerpt: str = ""
    seq: int = 0


def search(tx: Transaction, sought: str, *, before: str = "", limit: int = 50, work: int = WORK) -> Page:
    """Return a page of conversations with the text in their name, followed by those with it in a message."""
    wanted = " ".join(sought.split()).casefold()
    if not wanted:
        raise InvalidInput("search text must not be blank", got=sought)
    begin, hits = mark_of(before), list[tuple[Listed, Hit]]()
    check_limit(limit)
    if begin is None or begin.named:
        numbers = [number for number, name in names_after(tx, begin) if wanted in name.casefold()][:limit]
        named = listed_as(tx, numbers) if numbers else []
        hits = [(each, Hit()) for each in named]
        if len(numbers) == limit and named:
            return _page(tx, hits, Mark(named[-1].moved, named[-1].number, named=1))
        begin = None
    return _page(tx, *_said(tx, wanted, begin, hits, limit, work))


def _said(
    tx: Transaction, wanted: str, begin: Mark | None, hits: list[tuple[Listed, Hit]], limit: int, work: int
) -> tuple[list[tuple[Listed, Hit]], Mark | None]:
    """Add conversations with the text in a message. Return the hits and the cursor to continue from."""
    mark = begin
    for each, line in _from(tx, begin):
        if work <= 0 or len(hits) == limit:
            return hits, mark
        if wanted not in each.name.casefold():  # otherwise it was found by name
            goes_on = begin is not None and begin.number == each.number
            looked = _look(tx, line, begin.upto if begin is not None and goes_on else each.length, wanted, work)
            work -= looked.work
            if looked.hit is not None:
                hits.append((each, looked.hit))
            if looked.left:
                return hits, Mark(each.moved, each.number, looked.left)
        mark = Mark(each.moved, each.number)
    return hits, None


def _page(tx: Transaction, hits: list[tuple[Listed, Hit]], mark: Mark | None) -> Page:
    found = described(tx, [each for each, _ in hits])
    found = [replace(each, excerpt=hit.excerpt, hit=hit.seq) for each, (_, hit) in zip(found, hits, strict=True)]
    return Page(found, "" if mark is None else str(mark))


def _from(tx: Transaction, mark: Mark | None) -> Iterator[tuple[Listed, Line]]:
    """Yield all conversations in list order, each with the branches of its chain."""
    while some := listed(tx, mark, CONVERSATIONS):
        lines = lines_of(some, branches_of(tx, some))
        for each in some:
            yield each, lines[each.number]
        mark = Mark(some[-1].moved, some[-1].number)


def _look(tx: Transaction, line: Line, upto: int, wanted: str, work: int) -> Looked:
    """Search a conversation from its end until the text is found or the work is spent."""
    word = encode(max(wanted.split(), key=len)).decode()[1:-1]  # as encoded in JSON
    plain, read = word.encode(), 0
    for branch, first, last in reversed(list(stretches(line, 0, upto))):
        for high in range(last, first - 1, -CHUNK):
            low = max(first, high - CHUNK + 1)
            rows = tx.rows(
                "SELECT place, body FROM message WHERE place BETWEEN ? AND ? ORDER BY place DESC",
                place(branch, low),
                place(branch, high),
            )
            read += len(rows) + ASKING
            for where, body in rows:
                if _may_have(body, word, plain) and (excerpt := _excerpt(body, wanted)):
                    return Looked(Hit(excerpt, where & SEQ_MASK), read)
            if read >= work and low > 1:
                return Looked(None, read, low - 1)
    return Looked(None, read)


def _may_have(body: bytes, word: str, plain: bytes) -> bool:
    """Return True if a row may contain a word. It excludes most rows without decoding them."""
    return plain in body.lower() if body.isascii() else word in body.decode(errors="replace").casefold()


def _excerpt(body: bytes, wanted: str) -> str:
    """Return the match with surrounding text, or an empty string if the message does not contain it."""
    message = read_or_none(body)
    text = " ".join(words(message).split()) if message is not None and not message.redacted else ""
    at = text.casefold().find(wanted)
    if at < 0:
        return ""
    begin, end = _unfolded(text, at), _unfolded(text, at + len(wanted) - 1) + 1
    first, last = max(0, begin - BEFORE), end + AFTER
    return f"{'…' if first else ''}{text[first:last]}{'…' if last < len(text) else ''}"


def _unfolded(text: str, at: int) -> int:
    """Return the index in a text of the character at an index of its case-folded form, which may be longer."""
    for index, character in enumerate(text):
        at -= len(character.casefold())
        if at < 0:
            return index
    return len(text)
