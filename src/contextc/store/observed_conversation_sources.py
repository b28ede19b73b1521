"""Sources of observed conversations: the client that made the requests, and the request that a sub-agent belongs to."""

from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct

from contextc.store.backend_interface import Transaction
from contextc.store.ledger_schema import Channel
from contextc.store.message_rows import SEQ_BITS, SEQ_MASK


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


class ParentRequest(NamedTuple):
    """The request of the main conversation during which a sub-agent or a side request began."""

    conversation: str
    channel: Channel
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
    return ParentRequest(found[0], Channel(*found), row[0] & SEQ_MASK) if found is not None else None


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
