"""The list of conversations, most recently active first, one page at a time.

The cost of a page depends only on its size, not on the number of conversations or the length of their histories. It is
read along an index, with a few queries for all its conversations. Conversations that were active within the same
second are sorted by number, newest first. Unreadable messages are skipped here; the doctor reports them.
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from contextc.errors import InvalidInput, UnknownConversation
from contextc.messages import Message, decode_message, remove_client_context
from contextc.store.backend_interface import Row, Transaction
from contextc.store.ledger_schema import Channel, channel_id
from contextc.store.message_rows import (
    DECODE_ERRORS,
    SEQ_BITS,
    SEQ_MASK,
    check_name,
    load_tip,
    make_place,
    split_by_branch,
)
from contextc.store.turn_and_event_records import load_last_steps

# ── sources of observed conversations ─────────────────────────────────────────────────────────────────────────────────
# Sources of observed conversations: the client that made the requests, and the request that a sub-agent belongs to.


class ObservedSource(Struct, frozen=True, kw_only=True):
    """The source of a conversation that other software made.

    `client` is the name of the client, "" if it is unknown. `kind` is main, agent or side. `agent` is the client's own
    id of a sub-agent. `parent` is the name of the main conversation of the session, "" if there is none.
    """

    client: str
    kind: str
    agent: str
    parent: str

    @property
    def label(self) -> str:
        """The client and the kind in short, such as `claude-code (agent)`."""
        name = self.client or "observed"
        return name if self.kind == "main" else f"{name} ({self.kind})"


class ParentRequest(Struct, frozen=True, kw_only=True):
    """The request of the main conversation during which a sub-agent or a side request began. `channel` is an id."""

    conversation: str
    channel: str
    request: int


def load_sources(tx: Transaction, numbers: Sequence[int]) -> dict[int, ObservedSource]:
    """Return the sources of those conversations that were observed, by conversation number."""
    if not numbers:
        return {}
    marks = ", ".join("?" * len(numbers))
    rows = tx.rows(
        "SELECT o.conversation, o.client, o.kind, o.agent, coalesce(p.name, '') FROM observed_conversation o"
        f" LEFT JOIN conversation p ON p.number = o.parent WHERE o.conversation IN ({marks})",
        *numbers,
    )
    return {
        number: ObservedSource(client=client, kind=kind, agent=agent, parent=parent)
        for number, client, kind, agent, parent in rows
    }


def load_all_sources(tx: Transaction) -> dict[str, ObservedSource]:
    """Return the sources of all observed conversations by name."""
    rows = tx.rows(
        "SELECT c.name, o.client, o.kind, o.agent, coalesce(p.name, '') FROM observed_conversation o"
        " JOIN conversation c ON c.number = o.conversation LEFT JOIN conversation p ON p.number = o.parent"
    )
    return {
        name: ObservedSource(client=client, kind=kind, agent=agent, parent=parent)
        for name, client, kind, agent, parent in rows
    }


def load_parent_request(tx: Transaction, number: int) -> ParentRequest | None:
    """Return the request that an observed conversation belongs to; None if there is none, or if it was deleted."""
    row = tx.row("SELECT parent_place FROM observed_conversation WHERE conversation = ? AND parent_place > 0", number)
    if row is None:
        return None
    found = tx.row(
        "SELECT conversation, agent, provider, model, directory FROM channel WHERE number = ?", row[0] >> SEQ_BITS
    )
    if found is None:
        return None
    return ParentRequest(conversation=found[0], channel=channel_id(Channel(*found)), request=row[0] & SEQ_MASK)


class ObservedThread(NamedTuple):
    """An observed conversation of a session. `parent` is the name of the conversation above it, "" if there is none.

    `request` is the request of that conversation during which it began.
    """

    name: str
    source: ObservedSource
    parent: str
    request: ParentRequest | None


def load_thread_tree(tx: Transaction, number: int) -> list[ObservedThread]:
    """Return the main conversation of an observed one and everything below it, parents first, oldest first.

    It is empty if the conversation was not observed.
    """
    seen = {number}
    root = number
    while (row := tx.row("SELECT parent FROM observed_conversation WHERE conversation = ?", root)) is not None:
        if not row[0] or row[0] in seen or not tx.row("SELECT 1 FROM conversation WHERE number = ?", row[0]):
            break
        root = row[0]
        seen.add(root)
    order, level, known = [root], [root], {root}
    while level:
        marks = ", ".join("?" * len(level))
        rows = tx.rows(
            "SELECT o.conversation FROM observed_conversation o JOIN conversation c ON c.number = o.conversation"
            f" WHERE o.parent IN ({marks}) ORDER BY o.conversation",
            *level,
        )
        level = [each for (each,) in rows if each not in known]
        known.update(level)
        order += level
    sources = load_sources(tx, order)
    names: dict[int, str] = dict(
        tx.rows(f"SELECT number, name FROM conversation WHERE number IN ({', '.join('?' * len(order))})", *order)
    )
    return [
        ObservedThread(
            names[each],
            sources[each],
            sources[each].parent if each != root else "",
            load_parent_request(tx, each) if each != root else None,
        )
        for each in order
        if each in sources and each in names
    ]


# ── the list ──────────────────────────────────────────────────────────────────────────────────────────────────────────


MAX_PAGE_SIZE = 500
ABOVE_ALL = 1 << 53
"""Above every time in seconds and every conversation number."""
TITLE_MESSAGES = 8
"""Number of messages that are searched for the first user message, which gives the title."""
MAX_TITLE = 80
MAX_GIVEN_TITLE = 200
"""Maximum length of a title that a person has given."""

SELECT_CONVERSATIONS = (
    "SELECT c.number, c.name, c.tree, c.branch, c.created, b.base_seq, c.spoken, m.place,"
    " COALESCE(m.time, p.time, 0), c.title"
    " FROM conversation c JOIN branch b ON b.number = c.branch"
    " LEFT JOIN message m ON m.place = (SELECT max(place) FROM message"
    " WHERE place BETWEEN c.branch * 4294967296 AND c.branch * 4294967296 + 4294967295)"
    " LEFT JOIN message p ON p.place = b.parent * 4294967296 + b.base_seq"
)
LIST_ORDER = "ORDER BY c.spoken DESC, c.number DESC"


class ConversationOverview(Struct, frozen=True, kw_only=True):
    """An entry of the list of conversations.

    `title` was given by a person, or is the beginning of the first user message, without the context that its client
    added. `spoken` is the time of the last message (0: none). `model` is the provider and model of the last request.
    `excerpt` is the text around a search hit, and `hit` the seq of its message. `observed` is present if other software
    made the requests. `needs_approval` is present, and true, if a tool call waits for an approval. `running` is true
    then, too. `parked` is present if workers gave up on a turn: why.
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
    observed: ObservedSource | UnsetType = UNSET
    needs_approval: bool | UnsetType = UNSET
    parked: str | UnsetType = UNSET


class ConversationPage(NamedTuple):
    """A page of conversations. `next` is the cursor of the next page, empty on the last one."""

    found: list[ConversationOverview]
    next: str


class ConversationRow(NamedTuple):
    """The row of a conversation in the list, before its details are loaded.

    `last_active` is the second of its last message, or of its creation. `last_place` is the place of the last message
    on its current branch, `last_message_time` the time of its last message. `given_title` is empty unless a person has
    renamed the conversation.
    """

    number: int
    name: str
    tree: int
    branch: int
    created: int
    base: int
    last_active: int
    last_place: int | None
    last_message_time: int
    given_title: str

    @property
    def length(self) -> int:
        return self.last_place & SEQ_MASK if self.last_place is not None else self.base


class PageCursor(NamedTuple):
    """The cursor of a page: after a conversation, or within it at message `until`.

    `in_names` is 1 if a search was still matching names.
    """

    last_active: int
    number: int
    until: int = 0
    in_names: int = 0

    def __str__(self) -> str:
        return "-".join(str(each) for each in self)


Lineage = list[tuple[int, int]]
"""The branches of a chain, newest first, each with the seq after which it begins."""


def load_page(tx: Transaction, *, before: str = "", limit: int = 50) -> ConversationPage:
    """Return a page of conversations."""
    some = list_rows(tx, parse_cursor(before), check_limit(limit) + 1)
    shown = some[:limit]
    return ConversationPage(
        load_details(tx, shown), str(PageCursor(shown[-1].last_active, shown[-1].number)) if len(some) > limit else ""
    )


def load_overview(tx: Transaction, name: str) -> ConversationOverview:
    """Return the entry of one conversation. Raises `UnknownConversation`."""
    check_name(name)
    rows = tx.rows(f"{SELECT_CONVERSATIONS} WHERE c.name = ?", name)
    if not rows:
        load_tip(tx, name)  # raises if the conversation or its branch is missing
        raise UnknownConversation(name)
    return load_details(tx, [ConversationRow(*rows[0])])[0]


def set_title(tx: Transaction, name: str, title: str) -> ConversationOverview:
    """Set the title of a conversation, or remove it if it is empty. Raises `UnknownConversation`."""
    load_tip(tx, name, lock=True)
    tx.run("UPDATE conversation SET title = ? WHERE name = ?", check_title(title), name)
    return load_overview(tx, name)


def check_title(title: str) -> str:
    """Return a title on one line."""
    line = " ".join(title.split())
    if len(line) > MAX_GIVEN_TITLE:
        raise InvalidInput(f"title must have at most {MAX_GIVEN_TITLE} characters", got=len(line))
    return line


def load_start_times(tx: Transaction) -> dict[str, int]:
    """Return the time of the first message of each conversation that has one, in Unix milliseconds.

    It may be older than the conversation in the store, as after an import.
    """
    rows = tx.rows(
        "SELECT c.name, m.time FROM conversation c JOIN message m ON m.place = c.tree * 4294967296 + 1 WHERE m.time > 0"
    )
    return {name: time for name, time in rows}


def check_limit(limit: int) -> int:
    if not 1 <= limit <= MAX_PAGE_SIZE:
        raise InvalidInput(f"limit must be 1 to {MAX_PAGE_SIZE}", got=limit)
    return limit


def parse_cursor(written: str) -> PageCursor | None:
    """Parse the cursor that the previous page returned as `next`."""
    if not written:
        return None
    try:
        mark = PageCursor(*[int(each) for each in written.split("-")])
        if max(mark.last_active, mark.number) >= ABOVE_ALL or mark.until > SEQ_MASK:
            raise ValueError("out of range")
        return mark
    except (ValueError, TypeError):
        raise InvalidInput(
            "before must be a page cursor", got=written[:40], fix="Pass `next` of the previous page."
        ) from None


def list_rows(tx: Transaction, after: PageCursor | None, limit: int) -> list[ConversationRow]:
    """Return conversations in list order."""
    which, values = after_cursor(after)
    return [
        ConversationRow(*row)
        for row in tx.rows(f"{SELECT_CONVERSATIONS} {which} {LIST_ORDER} LIMIT {limit:d}", *values)
    ]


def list_names(tx: Transaction) -> list[str]:
    """Return the names of all conversations in list order."""
    return [name for (name,) in tx.rows(f"SELECT name FROM conversation c {LIST_ORDER}")]


def is_named(wanted: str, name: str, title: str) -> bool:
    return wanted in name.casefold() or wanted in title.casefold()


def list_rows_by_number(tx: Transaction, numbers: Sequence[int]) -> list[ConversationRow]:
    """Return conversations by number, in list order."""
    return [
        ConversationRow(*row)
        for row in tx.rows(
            f"{SELECT_CONVERSATIONS} WHERE c.number IN ({_placeholders(numbers)}) {LIST_ORDER}", *numbers
        )
    ]


def after_cursor(after: PageCursor | None) -> tuple[str, tuple[int, ...]]:
    """Return the condition for conversations after a cursor in list order, and its values."""
    if after is None:
        return "", ()
    return f"WHERE (c.spoken, c.number) {'<=' if after.until else '<'} (?, ?)", (after.last_active, after.number)


def load_details(tx: Transaction, some: Sequence[ConversationRow]) -> list[ConversationOverview]:
    """Load the list entries of some conversations, with a fixed number of queries."""
    if not some:
        return []
    branches = load_branches(tx, some)
    titles, running, models = _titles(tx, some, branches), _running(tx, some), _models(tx, some)
    sources = load_sources(tx, [each.number for each in some])
    counts: dict[str, int] = {}
    for _, _, _, conversation in branches:
        counts[conversation] = counts.get(conversation, 0) + 1
    return [
        ConversationOverview(
            name=each.name,
            title=each.given_title or titles.get(each.number, ""),
            length=each.length,
            branches=counts.get(each.name, 1),
            created=each.created,
            spoken=each.last_message_time,
            running=each.name in running,
            model=models.get(each.number, ""),
            observed=sources.get(each.number, UNSET),
        )
        for each in some
    ]


def load_branches(tx: Transaction, some: Iterable[ConversationRow]) -> list[Row]:
    """Return the branches of the trees of some conversations: number, parent, base, conversation."""
    trees = sorted({each.tree for each in some})
    return tx.rows(
        f"SELECT number, parent, base_seq, conversation FROM branch WHERE tree IN ({_placeholders(trees)})", *trees
    )


def find_lineages(some: Iterable[ConversationRow], branches: Iterable[Row]) -> dict[int, Lineage]:
    """Return the branches of each conversation's current chain, by conversation number."""
    known: Mapping[int, tuple[int | None, int]] = {number: (parent, base) for number, parent, base, _ in branches}
    found: dict[int, Lineage] = {}
    for each in some:
        line: Lineage = []
        branch: int | None = each.branch
        while branch is not None and branch in known:
            parent, base = known[branch]
            line.append((branch, base))
            branch = parent if parent is not None and parent < branch else None  # a parent is always older
        found[each.number] = line
    return found


def _titles(tx: Transaction, some: Sequence[ConversationRow], branches: Sequence[Row]) -> dict[int, str]:
    whose: dict[int, list[int]] = {}
    lines = find_lineages(some, branches)
    for each in some:
        for branch, first, last in split_by_branch(lines[each.number], 0, min(TITLE_MESSAGES, each.length)):
            for seq in range(first, last + 1):
                whose.setdefault(make_place(branch, seq), []).append(each.number)
    if not whose:
        return {}
    rows = tx.rows(f"SELECT place, body FROM message WHERE place IN ({_placeholders(whose)})", *whose)
    found: dict[int, str] = {}
    whole: dict[int, str] = {}
    for where, body in sorted(rows, key=lambda row: row[0] & SEQ_MASK):
        if all([number in found for number in whose[where]]):
            continue
        message = decode_or_none(body)
        if message is None or message.role != "user":
            continue
        for titles, text in ((found, remove_client_context(message.text)), (whole, message.text)):
            if title := shorten_title(text):
                for number in whose[where]:
                    titles.setdefault(number, title)
    return whole | found


def _running(tx: Transaction, some: Sequence[ConversationRow]) -> set[str]:
    """Return the names of conversations with a running turn, in any process."""
    names = [each.name for each in some]
    rows = tx.rows(
        f"SELECT conversation FROM lease WHERE holder <> '' AND expires > {tx.dialect.now}"
        f" AND conversation IN ({_placeholders(names)})",
        *names,
    )
    return {name for (name,) in rows}


def _models(tx: Transaction, some: Sequence[ConversationRow]) -> dict[int, str]:
    """Return provider and model of each conversation's last step, or else of its newest channel."""
    numbers = {each.name: each.number for each in some}
    rows = tx.rows(
        f"SELECT conversation, provider, model FROM channel WHERE conversation IN ({_placeholders(numbers)}) "
        "ORDER BY number",
        *numbers,
    )
    found = {numbers[name]: f"{provider}:{model}" for name, provider, model in rows}
    steps = load_last_steps(tx, list(numbers.values()))
    return found | {number: f"{step.provider}:{step.model}" for number, step in steps.items() if step.provider}


def mark_waiting(
    found: Sequence[ConversationOverview], waiting: Container[str], parked: Mapping[str, str]
) -> list[ConversationOverview]:
    """Return entries of which those named in `waiting` have `needs_approval`. Their turn is not over: it runs.

    Those named in `parked` have the reason why workers gave up on a turn.
    """
    found = [replace(each, needs_approval=True, running=True) if each.name in waiting else each for each in found]
    return [replace(each, parked=parked[each.name]) if each.name in parked else each for each in found]


def decode_or_none(body: bytes) -> Message | None:
    try:
        return decode_message(body)
    except DECODE_ERRORS:
        return None


def shorten_title(text: str) -> str:
    """Return the beginning of a text on one line."""
    return " ".join(text[: MAX_TITLE * 8].split())[:MAX_TITLE]


def _placeholders(values: Iterable[object]) -> str:
    return ", ".join("?" for _ in values)


# ── changes, whichever process made them ──────────────────────────────────────────────────────────────────────────────
# A reader keeps the states that it saw last and compares. One query along the index of the list returns the states, so
# an idle reader costs the same however many conversations there are. A conversation that was not active recently and
# stays so, such as one that is imported with old times, is not noticed.


RECENT_CONVERSATIONS = 100

States: TypeAlias = Mapping[int, Row]
"""By number of the conversation: its name, and what differs after a change."""


class ConversationChanges(NamedTuple):
    """Changes since an earlier state: the new entries of the list, and the names of deleted conversations."""

    states: States
    changed: list[ConversationOverview]
    removed: list[str]


def load_states(tx: Transaction, limit: int = RECENT_CONVERSATIONS) -> States:
    """Return the states of recently active conversations: title, messages, branch, requests, running turns."""
    rows = tx.rows(
        "SELECT c.number, c.name, c.branch, c.revision, c.spoken, c.title,"
        " (SELECT max(place) FROM message"
        " WHERE place BETWEEN c.branch * 4294967296 AND c.branch * 4294967296 + 4294967295),"
        " (SELECT sum(version) FROM channel h WHERE h.conversation = c.name),"
        " (SELECT count(*) FROM lease l WHERE l.conversation = c.name AND l.holder <> ''"
        f" AND l.expires > {tx.dialect.now})"
        f" FROM conversation c ORDER BY c.spoken DESC, c.number DESC LIMIT {limit:d}"
    )
    return {row[0]: tuple(row[1:]) for row in rows}


def load_changes(
    tx: Transaction, before: States, limit: int = RECENT_CONVERSATIONS, *, also: Container[str] = ()
) -> ConversationChanges:
    """Return the changes since `before`, and the conversations named in `also`. Without any, this is one query."""
    states = load_states(tx, limit)
    missing = [number for number in before if number not in states]
    changed = [number for number, state in states.items() if before.get(number) != state or state[0] in also]
    if not missing and not changed:
        return ConversationChanges(states, [], [])
    found = list_rows_by_number(tx, [*changed, *missing])
    existing = {each.number for each in found}
    removed = [str(before[number][0]) for number in missing if number not in existing]
    names = {each.name for each in found}  # a name may belong to another conversation by now
    return ConversationChanges(states, load_details(tx, found), [name for name in removed if name not in names])
