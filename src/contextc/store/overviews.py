"""The list of conversations, most recently active first, one page at a time.

The cost of a page depends only on its size, not on the number of conversations or the length of their histories. It is
read along an index, with a few queries for all its conversations. Conversations that were active within the same
second are sorted by number, newest first. Unreadable messages are skipped here; the doctor reports them.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct

from contextc.errors import InvalidInput, UnknownConversation
from contextc.messages import Message, from_json
from contextc.store.base import Row, Transaction
from contextc.store.places import SEQ_MASK, check_name, head, place, stretches
from contextc.store.reading import UNREADABLE
from contextc.store.turns import last_steps

LARGEST_PAGE = 500
LATEST = 1 << 53
"""Above every time in seconds and every conversation number."""
OPENING = 8
"""Number of messages that are searched for the first user message, which gives the title."""
TITLE = 80

LIST = (
    "SELECT c.number, c.name, c.tree, c.branch, c.created, b.base_seq, c.spoken, m.place,"
    " COALESCE(m.time, p.time, 0)"
    " FROM conversation c JOIN branch b ON b.number = c.branch"
    " LEFT JOIN message m ON m.place = (SELECT max(place) FROM message"
    " WHERE place BETWEEN c.branch * 4294967296 AND c.branch * 4294967296 + 4294967295)"
    " LEFT JOIN message p ON p.place = b.parent * 4294967296 + b.base_seq"
)
ORDER = "ORDER BY c.spoken DESC, c.number DESC"


class Overview(Struct, frozen=True, kw_only=True):
    """An entry of the list of conversations.

    `title` is the beginning of the first user message. `spoken` is the time of the last message (0: none). `model` is
    the provider and model of the last request. `excerpt` is the text around a search hit, and `hit` the seq of its
    message.
    """

    name: str
    title: str
    length: int
    branches: int
    created: int
    spoken: int
    running: bool
    model: str
    excerpt: str = ""
    hit: int = 0


class Page(NamedTuple):
    """A page of conversations. `next` is the cursor of the next page, empty on the last one."""

    found: list[Overview]
    next: str


class Listed(NamedTuple):
    """The row of a conversation in the list, before its details are loaded.

    `moved` is the second of its last message, or of its creation. `last` is the place of the last message on its
    current branch, `spoken` the time of its last message.
    """

    number: int
    name: str
    tree: int
    branch: int
    created: int
    base: int
    moved: int
    last: int | None
    spoken: int

    @property
    def length(self) -> int:
        return self.last & SEQ_MASK if self.last is not None else self.base


class Mark(NamedTuple):
    """The cursor of a page: after a conversation, or within it at message `upto`.

    `named` is 1 if a search was still matching names.
    """

    moved: int
    number: int
    upto: int = 0
    named: int = 0

    def __str__(self) -> str:
        return "-".join(str(each) for each in self)


Line = list[tuple[int, int]]
"""The branches of a chain, newest first, each with the seq after which it begins."""


def overviews(tx: Transaction, *, before: str = "", limit: int = 50) -> Page:
    """Return a page of conversations."""
    some = listed(tx, mark_of(before), check_limit(limit) + 1)
    shown = some[:limit]
    return Page(described(tx, shown), str(Mark(shown[-1].moved, shown[-1].number)) if len(some) > limit else "")


def overview(tx: Transaction, name: str) -> Overview:
    """Return the entry of one conversation. Raises `UnknownConversation`."""
    check_name(name)
    rows = tx.rows(f"{LIST} WHERE c.name = ?", name)
    if not rows:
        head(tx, name)  # raises if the conversation or its branch is missing
        raise UnknownConversation(name)
    return described(tx, [Listed(*rows[0])])[0]


def check_limit(limit: int) -> int:
    if not 1 <= limit <= LARGEST_PAGE:
        raise InvalidInput(f"limit must be 1 to {LARGEST_PAGE}", got=limit)
    return limit


def mark_of(written: str) -> Mark | None:
    """Parse the cursor that the previous page returned as `next`."""
    if not written:
        return None
    try:
        mark = Mark(*[int(each) for each in written.split("-")])
        if max(mark.moved, mark.number) >= LATEST or mark.upto > SEQ_MASK:
            raise ValueError("out of range")
        return mark
    except (ValueError, TypeError):
        raise InvalidInput(
            "before must be a page cursor", got=written[:40], fix="Pass `next` of the previous page."
        ) from None


def listed(tx: Transaction, after: Mark | None, limit: int) -> list[Listed]:
    """Return conversations in list order."""
    which, values = _which(after)
    return [Listed(*row) for row in tx.rows(f"{LIST} {which} {ORDER} LIMIT {limit:d}", *values)]


def names_after(tx: Transaction, after: Mark | None) -> list[tuple[int, str]]:
    """Return numbers and names of all conversations in list order."""
    which, values = _which(after)
    rows = tx.rows(f"SELECT number, name FROM conversation c {which} {ORDER}", *values)
    return [(number, name) for number, name in rows]


def listed_as(tx: Transaction, numbers: Sequence[int]) -> list[Listed]:
    """Return conversations by number, in list order."""
    return [Listed(*row) for row in tx.rows(f"{LIST} WHERE c.number IN ({_marks(numbers)}) {ORDER}", *numbers)]


def _which(after: Mark | None) -> tuple[str, tuple[int, ...]]:
    if after is None:
        return "", ()
    return f"WHERE (c.spoken, c.number) {'<=' if after.upto else '<'} (?, ?)", (after.moved, after.number)


def described(tx: Transaction, some: Sequence[Listed]) -> list[Overview]:
    """Load the list entries of some conversations, with a fixed number of queries."""
    if not some:
        return []
    branches = branches_of(tx, some)
    titles, running, models = _titles(tx, some, branches), _running(tx, some), _models(tx, some)
    counts: dict[str, int] = {}
    for _, _, _, conversation in branches:
        counts[conversation] = counts.get(conversation, 0) + 1
    return [
        Overview(
            name=each.name,
            title=titles.get(each.number, ""),
            length=each.length,
            branches=counts.get(each.name, 1),
            created=each.created,
            spoken=each.spoken,
            running=each.name in running,
            model=models.get(each.number, ""),
        )
        for each in some
    ]


def branches_of(tx: Transaction, some: Iterable[Listed]) -> list[Row]:
    """Return the branches of the trees of some conversations: number, parent, base, conversation."""
    trees = sorted({each.tree for each in some})
    return tx.rows(f"SELECT number, parent, base_seq, conversation FROM branch WHERE tree IN ({_marks(trees)})", *trees)


def lines_of(some: Iterable[Listed], branches: Iterable[Row]) -> dict[int, Line]:
    """Return the branches of each conversation's current chain, by conversation number."""
    known: Mapping[int, tuple[int | None, int]] = {number: (parent, base) for number, parent, base, _ in branches}
    found: dict[int, Line] = {}
    for each in some:
        line: Line = []
        branch: int | None = each.branch
        while branch is not None and branch in known:
            parent, base = known[branch]
            line.append((branch, base))
            branch = parent if parent is not None and parent < branch else None  # a parent is always older
        found[each.number] = line
    return found


def _titles(tx: Transaction, some: Sequence[Listed], branches: Sequence[Row]) -> dict[int, str]:
    whose: dict[int, list[int]] = {}
    lines = lines_of(some, branches)
    for each in some:
        for branch, first, last in stretches(lines[each.number], 0, min(OPENING, each.length)):
            for seq in range(first, last + 1):
                whose.setdefault(place(branch, seq), []).append(each.number)
    if not whose:
        return {}
    rows = tx.rows(f"SELECT place, body FROM message WHERE place IN ({_marks(whose)})", *whose)
    found: dict[int, str] = {}
    for where, body in sorted(rows, key=lambda row: row[0] & SEQ_MASK):
        message = read_or_none(body)
        if message is not None and message.role == "user" and (title := shortened(message.text)):
            for number in whose[where]:
                found.setdefault(number, title)
    return found


def _running(tx: Transaction, some: Sequence[Listed]) -> set[str]:
    """Return the names of conversations with a running turn, in any process."""
    names = [each.name for each in some]
    rows = tx.rows(
        f"SELECT conversation FROM lease WHERE holder <> '' AND expires > {tx.dialect.now}"
        f" AND conversation IN ({_marks(names)})",
        *names,
    )
    return {name for (name,) in rows}


def _models(tx: Transaction, some: Sequence[Listed]) -> dict[int, str]:
    """Return provider and model of each conversation's last step, or else of its newest channel."""
    numbers = {each.name: each.number for each in some}
    rows = tx.rows(
        f"SELECT conversation, provider, model FROM channel WHERE conversation IN ({_marks(numbers)}) ORDER BY number",
        *numbers,
    )
    found = {numbers[name]: f"{provider}:{model}" for name, provider, model in rows}
    steps = last_steps(tx, list(numbers.values()))
    return found | {number: f"{step.provider}:{step.model}" for number, step in steps.items() if step.provider}


def read_or_none(body: bytes) -> Message | None:
    try:
        return from_json(body)
    except UNREADABLE:
        return None


def shortened(text: str) -> str:
    """Return the beginning of a text on one line."""
    return " ".join(text[: TITLE * 8].split())[:TITLE]


def _marks(values: Iterable[object]) -> str:
    return ", ".join("?" for _ in values)
