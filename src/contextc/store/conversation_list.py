"""The list of conversations, most recently active first, one page at a time.

The cost of a page depends only on its size, not on the number of conversations or the length of their histories. It is
read along an index, with a few queries for all its conversations. Conversations that were active within the same
second are sorted by number, newest first. Unreadable messages are skipped here; the doctor reports them.
"""

import os
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain, islice
from typing import NamedTuple, TypeAlias

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from contextc.errors import InvalidInput, UnknownConversation
from contextc.messages import Message, decode_message, extend_to_words, remove_client_context, to_plain_text
from contextc.store.agent_calls import find_agent_call, load_agent_calls, load_called_turn
from contextc.store.ledger_schema import Channel, channel_id
from contextc.store.message_log import (
    DECODE_ERRORS,
    SEQ_BITS,
    SEQ_MASK,
    check_name,
    load_tip,
    make_place,
    split_by_branch,
)
from contextc.store.tags_and_notes import check_tag, find_tagged, load_tags_by_number
from contextc.store.transaction_engine import Row, Transaction
from contextc.store.turn_records import load_last_steps

# ── sources of observed conversations ─────────────────────────────────────────────────────────────────────────────────
# Sources of observed conversations: the client that made the requests, and the request that a sub-agent belongs to.


IMPORTED = "import:"
"""Prefix of the stored sessions of imported conversations. No request that is observed as it happens continues them."""


class ObservedSource(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The source of a conversation that other software made.

    `client` is the name of the client, "" if it is unknown. `kind` is main, agent or side. `agent` is the client's own
    id of a sub-agent. `parent` is the name of the main conversation of the session, "" if there is none. `imported`:
    it was read from a file.
    """

    client: str
    kind: str
    agent: str
    parent: str
    imported: bool = False

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


def load_observed_sources(tx: Transaction, numbers: Sequence[int]) -> dict[int, ObservedSource]:
    """Return the sources of those conversations that were observed, by conversation number."""
    if not numbers:
        return {}
    marks = ", ".join("?" * len(numbers))
    rows = tx.rows(
        "SELECT o.conversation, o.client, o.kind, o.agent, coalesce(p.name, ''), o.session"
        " FROM main.observed_conversation o"
        f" LEFT JOIN main.conversation p ON p.number = o.parent WHERE o.conversation IN ({marks})",
        *numbers,
    )
    return {number: _make_source(*facts) for number, *facts in rows}


def _make_source(client: str, kind: str, agent: str, parent: str, session: str) -> ObservedSource:
    is_imported = session.startswith(IMPORTED)
    return ObservedSource(client=client, kind=kind, agent=agent, parent=parent, imported=is_imported)


def load_all_sources(tx: Transaction) -> dict[str, ObservedSource]:
    """Return the sources of all observed conversations by name."""
    rows = tx.rows(
        "SELECT c.name, o.client, o.kind, o.agent, coalesce(p.name, ''), o.session FROM main.observed_conversation o"
        " JOIN main.conversation c ON c.number = o.conversation LEFT JOIN main.conversation p ON p.number = o.parent"
    )
    return {name: _make_source(*facts) for name, *facts in rows}


def load_parent_request(tx: Transaction, number: int) -> ParentRequest | None:
    """Return the request that an observed conversation belongs to; None if there is none, or if it was deleted."""
    row = tx.row(
        "SELECT parent_place FROM main.observed_conversation WHERE conversation = ? AND parent_place > 0", number
    )
    if row is None:
        return None
    found = tx.row(
        "SELECT conversation, agent, provider, model, directory FROM main.channel WHERE number = ?", row[0] >> SEQ_BITS
    )
    if found is None:
        return None
    return ParentRequest(conversation=found[0], channel=channel_id(Channel(*found)), request=row[0] & SEQ_MASK)


class ConversationThread(NamedTuple):
    """A conversation of a tree. `parent` is the name of the conversation above it, "" if there is none.

    `request` is the request of that conversation during which it began. `source` has no client if it is not observed.
    """

    name: str
    source: ObservedSource
    parent: str
    request: ParentRequest | None


def load_thread_tree(tx: Transaction, number: int) -> list[ConversationThread]:
    """Return the main conversation of an observed one, or of a called agent, and everything below it, parents first.

    It is empty if the conversation was not observed, called no agent, and is not that of a called one.
    """
    seen = {number}
    root = number
    parent = (
        "SELECT parent FROM main.observed_conversation WHERE parent > 0 AND conversation = ?"
        " UNION ALL SELECT parent FROM main.agent_call WHERE conversation = ?"
    )
    while (row := tx.row(parent, root, root)) is not None:
        if row[0] in seen or not tx.row("SELECT 1 FROM main.conversation WHERE number = ?", row[0]):
            break
        root = row[0]
        seen.add(root)
    order, level, known, above = [root], [root], {root}, dict[int, int]()
    while level:
        marks = ", ".join("?" * len(level))
        rows = tx.rows(
            "SELECT o.conversation, o.parent FROM main.observed_conversation o"
            f" JOIN main.conversation c ON c.number = o.conversation WHERE o.parent IN ({marks})"
            " UNION ALL SELECT a.conversation, a.parent FROM main.agent_call a"
            f" JOIN main.conversation c ON c.number = a.conversation WHERE a.parent IN ({marks}) ORDER BY 1",
            *level,
            *level,
        )
        above |= {each: parent for each, parent in rows if each not in known}
        level = [each for each, _ in rows if each not in known]
        known.update(level)
        order += level
    sources = load_observed_sources(tx, order)
    names: dict[int, str] = dict(
        tx.rows(f"SELECT number, name FROM main.conversation WHERE number IN ({', '.join('?' * len(order))})", *order)
    )
    called = {each: call for each in above if (call := find_agent_call(tx, each)) is not None}
    if len(order) > 1:
        sources.setdefault(root, ObservedSource(client="", kind="main", agent="", parent=""))
    for each, call in called.items():
        sources[each] = ObservedSource(client="", kind="agent", agent=call.agent, parent=names.get(call.parent, ""))
    return [
        ConversationThread(
            names[each],
            sources[each],
            names.get(above[each], "") if each != root else "",
            load_parent_request(tx, each) if each != root else None,
        )
        for each in order
        if each in sources and each in names
    ]


class CalledAgent(Struct, frozen=True, kw_only=True):
    """An agent that a conversation called as a tool: the id of the call, its seq, and where the agent works.

    `state` is that of its turn: running, waiting, queued or interrupted, or why it has ended.
    """

    call: str
    seq: int
    agent: str
    conversation: str
    state: str


def load_called_agents(tx: Transaction, number: int) -> list[CalledAgent]:
    """Return the agents that a conversation called as tools, oldest first."""
    found: list[CalledAgent] = []
    for each in load_agent_calls(tx, number):
        turn = load_called_turn(tx, each)
        state = "queued" if turn is None else turn.finish if turn.state == "finished" else turn.state
        found.append(CalledAgent(call=each.call, seq=each.seq, agent=each.agent, conversation=each.name, state=state))
    return found


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
    " FROM main.conversation c JOIN main.branch b ON b.number = c.branch"
    " LEFT JOIN main.message m ON m.place = (SELECT max(place) FROM main.message"
    " WHERE place BETWEEN c.branch * 4294967296 AND c.branch * 4294967296 + 4294967295)"
    " LEFT JOIN main.message p ON p.place = b.parent * 4294967296 + b.base_seq"
)
LIST_ORDER = "ORDER BY c.spoken DESC, c.number DESC"


class ConversationOverview(Struct, frozen=True, kw_only=True):
    """An entry of the list of conversations.

    `title` was given by a person, or is the beginning of the first user message, without the context that its client
    added. `spoken` is the time of the last message (0: none). `model` is the provider and model of the last request.
    `excerpt` is the text around a search hit, and `hit` the seq of its message. `observed` is present if other software
    made the requests. `needs_approval` is present, and true, if a tool call waits for an approval. `running` is true
    then, too. `parked` is present if workers gave up on a turn: why. `tags` is present if a person gave it tags.
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
    tags: list[str] | UnsetType = UNSET


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


def load_page(tx: Transaction, *, before: str = "", limit: int = 50, tag: str = "") -> ConversationPage:
    """Return a page of conversations, only those with a tag if one is given."""
    some = list_rows(tx, parse_cursor(before), check_limit(limit) + 1, tag=tag)
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
    tx.run("UPDATE main.conversation SET title = ? WHERE name = ?", check_title(title), name)
    return load_overview(tx, name)


def check_title(title: str) -> str:
    """Return a title on one line."""
    line = " ".join(title.split())
    if len(line) > MAX_GIVEN_TITLE:
        raise InvalidInput(f"title must have at most {MAX_GIVEN_TITLE} characters", got=len(line))
    return line


def set_directory(tx: Transaction, number: int, directory: str) -> None:
    """Set the working directory that a conversation comes from, unless one is known."""
    if directory:
        values = os.path.realpath(directory), number
        tx.send("UPDATE main.conversation SET directory = ? WHERE number = ? AND directory = ''", *values)


def list_names_in(tx: Transaction, directory: str) -> list[str]:
    """Return the names of the conversations that come from a directory or one below it, in list order.

    Those are conversations that were recorded or imported there, of agents that worked there, and of their sub-agents.
    """
    root = os.path.realpath(directory)
    below = f"{root.rstrip(os.sep)}{os.sep}"
    here = {
        number
        for number, place in chain(
            tx.rows("SELECT number, directory FROM main.conversation WHERE directory <> ''"),
            tx.rows(
                "SELECT c.number, h.directory FROM main.channel h JOIN main.conversation c ON c.name = h.conversation"
                " WHERE h.directory <> ''"
            ),
        )
        if place == root or place.startswith(below)
    }
    parents: dict[int, int] = dict(
        tx.rows(
            "SELECT conversation, parent FROM main.observed_conversation WHERE parent > 0"
            " UNION ALL SELECT conversation, parent FROM main.agent_call"
        )
    )
    named = tx.rows(f"SELECT number, name FROM main.conversation c {LIST_ORDER}")
    return [name for number, name in named if any(each in here for each in _line_of(number, parents))]


def _line_of(number: int, parents: Mapping[int, int]) -> Iterator[int]:
    """Yield a conversation and those above it."""
    seen: set[int] = set()
    while number and number not in seen:
        seen.add(number)
        yield number
        number = parents.get(number, 0)


def load_start_times(tx: Transaction) -> dict[str, int]:
    """Return the time of the first message of each conversation that has one, in Unix milliseconds.

    It may be older than the conversation in the store, as after an import.
    """
    rows = tx.rows(
        "SELECT c.name, m.time FROM main.conversation c JOIN main.message m ON m.place = c.tree * 4294967296 + 1"
        " WHERE m.time > 0"
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


def list_rows(tx: Transaction, after: PageCursor | None, limit: int, *, tag: str = "") -> list[ConversationRow]:
    """Return conversations in list order, only those with a tag if one is given."""
    which, values = after_cursor(after)
    if tag:
        which = f"{which or 'WHERE true'} AND c.number IN (SELECT t.conversation FROM main.tag t WHERE t.name = ?)"
        values = (*values, check_tag(tag))
    return [
        ConversationRow(*row)
        for row in tx.rows(f"{SELECT_CONVERSATIONS} {which} {LIST_ORDER} LIMIT {limit:d}", *values)
    ]


def list_names(tx: Transaction) -> list[str]:
    """Return the names of all conversations in list order."""
    return [name for (name,) in tx.rows(f"SELECT name FROM main.conversation c {LIST_ORDER}")]


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
    numbers = [each.number for each in some]
    sources, tags = load_observed_sources(tx, numbers), load_tags_by_number(tx, numbers)
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
            tags=tags.get(each.number, UNSET),
        )
        for each in some
    ]


def load_branches(tx: Transaction, some: Iterable[ConversationRow]) -> list[Row]:
    """Return the branches of the trees of some conversations: number, parent, base, conversation."""
    trees = sorted({each.tree for each in some})
    return tx.rows(
        f"SELECT number, parent, base_seq, conversation FROM main.branch WHERE tree IN ({_placeholders(trees)})", *trees
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
    rows = tx.rows(f"SELECT place, body FROM main.message WHERE place IN ({_placeholders(whose)})", *whose)
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
        f"SELECT conversation FROM main.lease WHERE holder <> '' AND expires > {tx.dialect.now}"
        f" AND conversation IN ({_placeholders(names)})",
        *names,
    )
    return {name for (name,) in rows}


def _models(tx: Transaction, some: Sequence[ConversationRow]) -> dict[int, str]:
    """Return provider and model of each conversation's last step, or else of its newest channel."""
    numbers = {each.name: each.number for each in some}
    rows = tx.rows(
        f"SELECT conversation, provider, model FROM main.channel WHERE conversation IN ({_placeholders(numbers)}) "
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
    """Return the states of recently active conversations: title, messages, branch, requests, running turns, tags."""
    rows = tx.rows(
        "SELECT c.number, c.name, c.branch, c.revision, c.spoken, c.title,"
        " (SELECT max(place) FROM main.message"
        " WHERE place BETWEEN c.branch * 4294967296 AND c.branch * 4294967296 + 4294967295),"
        " (SELECT sum(version) FROM main.channel h WHERE h.conversation = c.name),"
        " (SELECT count(*) FROM main.lease l WHERE l.conversation = c.name AND l.holder <> ''"
        f" AND l.expires > {tx.dialect.now}),"
        " (SELECT sum(t.number) FROM main.tag t WHERE t.conversation = c.number)"
        f" FROM main.conversation c ORDER BY c.spoken DESC, c.number DESC LIMIT {limit:d}"
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


# ── search ────────────────────────────────────────────────────────────────────────────────────────────────────────────
# Search in the names, given titles, notes and messages of conversations, including tool calls and results. Case is
# ignored.
#
# All names and given titles are searched first, then the newest note with the text of each conversation. Messages are
# read newest first, at most `MAX_MESSAGES` of them per call, which bounds the time of a search in a store of any size.
# A page's `next` continues where the search stopped. The list of conversations shows the newest hit of each;
# `search_messages` returns several, their number, and what it has read.


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
    last = tx.row(f"SELECT c.spoken, c.number FROM main.conversation c {order}", *values)
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
        source = "FROM main.conversation c"
        if recent:
            inner = (
                f"SELECT number, spoken, name, title FROM main.conversation c {which} {LIST_ORDER} LIMIT {RECENT_NAMES}"
            )
            source, which = f"FROM ({inner}) c", ""
        rows = tx.rows(
            f"SELECT c.number, c.spoken, c.name, c.title {source} {which or 'WHERE true'}{condition}"
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
    return f" AND c.number IN (SELECT n.number FROM main.conversation_name n WHERE {' OR '.join(either)})", values


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


# ── notes ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


MAX_NOTED = 1_000
"""Maximum number of notes that are read for one search, newest first."""


def find_noted(tx: Transaction, wanted: str) -> dict[int, "SearchHit"]:
    """Return the newest note with a text of each conversation that has one. `wanted` is case-folded."""
    word = max(wanted.split(), key=len)
    if tx.dialect.name == "postgres":
        tests = 'position(? in lower(text COLLATE "C")) > 0 OR octet_length(text) > length(text)'
        tests += " OR ((SELECT current_setting('server_encoding')) <> 'UTF8' AND text ~ '[^ -~]')"
    else:
        tests = "instr(lower(text), ?) > 0 OR length(CAST(text AS BLOB)) > length(text)"
    rows = tx.rows(
        f"SELECT conversation, text FROM main.note WHERE {tests} ORDER BY number DESC LIMIT {MAX_NOTED:d}", word
    )
    found: dict[int, SearchHit] = {}
    for number, text in rows:
        line = " ".join(text.split())
        at = line.casefold().find(wanted)
        if at >= 0 and number not in found:
            found[number] = SearchHit(_excerpt(line, at, len(wanted)), part="note")
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

    `part` is what matches: text, call, result or note; empty if the match spans several. A note has no seq. `tool` is
    the tool of a call or result.
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


class ConversationMatches(NamedTuple):
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

    found: list[ConversationMatches]
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
    tx: Transaction, text: str, *, before: str = "", limit: int = 50, work: int = MAX_MESSAGES, tag: str = ""
) -> ConversationPage:
    """Return a page of conversations with the text in their name, followed by those with it in a note or a message."""
    found = _search(tx, text, before, limit, work, max_hits=1, finds_all=False, tag=tag)
    entries = load_details(tx, [each.row for each in found.rows])
    newest = [each.hits[0] if each.hits else SearchHit() for each in found.rows]
    entries = [replace(each, excerpt=hit.excerpt, hit=hit.seq) for each, hit in zip(entries, newest, strict=True)]
    return ConversationPage(entries, "" if found.mark is None else str(found.mark))


def search_messages(
    tx: Transaction,
    text: str,
    *,
    before: str = "",
    limit: int = 20,
    max_hits: int = 5,
    work: int = MAX_MESSAGES,
    tag: str = "",
) -> SearchPage:
    """Return a page of conversations with their newest hits, at most `max_hits` each. The first page begins with the
    conversations that have the text in their name or in a note. With a tag, only conversations with it are searched.
    """
    if not 1 <= max_hits <= MAX_HITS:
        raise InvalidInput(f"max_hits must be 1 to {MAX_HITS}", got=max_hits)
    found = _search(tx, text, before, limit, work, max_hits=max_hits, finds_all=True, tag=tag)
    entries = load_details(tx, [each.row for each in found.rows])
    mark = "" if found.mark is None else str(found.mark)
    pages = [
        ConversationMatches(entry, each.hits, each.total, _mark_older(each))
        for entry, each in zip(entries, found.rows, strict=True)
    ]
    return SearchPage(pages, mark, found.messages, found.conversations)


def _mark_older(found: _FoundRow) -> str:
    if found.total <= len(found.hits):
        return ""
    return str(PageCursor(found.row.last_active, found.row.number, found.hits[-1].seq - 1))


def _search(
    tx: Transaction, text: str, before: str, limit: int, work: int, *, max_hits: int, finds_all: bool, tag: str = ""
) -> _Found:
    """Return a page. With `finds_all`, all messages with the text are counted, also where the name has it.

    With a tag, only conversations with it are searched.
    """
    wanted = " ".join(text.split()).casefold()
    if not wanted:
        raise InvalidInput("search text must not be blank", got=text)
    begin, hits = parse_cursor(before), list[_FoundRow]()
    check_limit(limit)
    tagged = find_tagged(tx, tag) if tag else None
    noted = find_noted(tx, wanted)
    if begin is None or begin.in_names:
        numbers = find_named(tx, wanted, begin, limit)
        named = list_rows_by_number(tx, numbers) if numbers else []
        hits = [_FoundRow(each, []) for each in named if tagged is None or each.number in tagged]
        if len(numbers) == limit and named:
            return _Found(hits, PageCursor(named[-1].last_active, named[-1].number, in_names=1))
        others = list_rows_by_number(tx, sorted(noted)) if noted else []
        hits += [
            _FoundRow(each, [noted[each.number]], 1)
            for each in others
            if (tagged is None or each.number in tagged)
            and (finds_all or not is_named(wanted, each.name, each.given_title))
        ]
        begin, limit = None, max(limit, len(hits) + 1)
    skipped = frozenset[int]() if finds_all else frozenset(noted)
    return _search_all(tx, wanted, begin, hits, limit, work, max_hits, finds_all=finds_all, tag=tag, skipped=skipped)


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
    tag: str,
    skipped: frozenset[int],
) -> _Found:
    """Add conversations with the text in a message. Those `skipped` were found by their notes."""
    mark, messages, conversations = begin, 0, 0
    for each, line in _iter_conversations(tx, begin, tag):
        if work <= 0 or len(hits) >= limit:
            return _Found(hits, mark, messages, conversations)
        if finds_all or not (each.number in skipped or is_named(wanted, each.name, each.given_title)):
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


def _iter_conversations(
    tx: Transaction, mark: PageCursor | None, tag: str
) -> Iterator[tuple[ConversationRow, Lineage]]:
    """Yield all conversations in list order, or those with a tag, each with the branches of its chain."""
    while some := list_rows(tx, mark, CONVERSATIONS, tag=tag):
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


SELECT_CHUNK = "SELECT place, body FROM main.message WHERE place BETWEEN ? AND ? ORDER BY place DESC"


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
    return SearchHit(_excerpt(text, at, len(wanted)), seq, message.role, *_find_part(message, wanted))


def _excerpt(text: str, at: int, length: int) -> str:
    """Return a match with surrounding text. Its position and length are those in the case-folded text."""
    begin, end = _unfold_index(text, at), _unfold_index(text, at + length - 1) + 1
    first, last = extend_to_words(text, begin - BEFORE, end + AFTER)
    return f"{'…' if first else ''}{text[first:last]}{'…' if last < len(text) else ''}"


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
