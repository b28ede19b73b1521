"""Changes of the most recently active conversations, whichever process made them.

A reader keeps the states that it saw last and compares. One query along the index of the list returns the states, so an
idle reader costs the same however many conversations there are. A conversation that was not active recently and stays
so, such as one that is imported with old times, is not noticed.
"""

from collections.abc import Container, Mapping
from typing import NamedTuple, TypeAlias

from contextc.store.backend_interface import Row, Transaction
from contextc.store.conversation_list import ConversationOverview, list_rows_by_number, load_details

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
