"""Retention of observed traffic, by age and by size: the oldest observed conversations are deleted.

Conversations that share messages are deleted together, and with a session its sub-agents and side requests. Only what
observation itself recorded is deleted: a conversation with a turn of an executor, a request or a message of our own, a
fork, a pinned message or a todo stays, and so does all that it shares messages with. Imported conversations stay too.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import NamedTuple

from contextc._credential_mask import get_logger
from contextc.errors import InvalidSetting
from contextc.observation.conversation_finder import load_observed_places
from contextc.store import Store
from contextc.store.conversation_list import IMPORTED
from contextc.store.message_log import SEQ_MASK, lock_tree, make_place, now_ms
from contextc.store.store import delete_selected
from contextc.store.transaction_engine import Transaction

Progress = Callable[[int, int], None]
BATCH = 50
OBSERVED_TREES = (
    "SELECT c.tree FROM main.conversation c JOIN main.observed_conversation o ON o.conversation = c.number"
    f" WHERE substr(o.session, 1, {len(IMPORTED)}) <> '{IMPORTED}'"
)
LEDGER_SIZES = {
    "shown": "length(t.items) + length(t.wire)",
    **dict.fromkeys(("manifest", "replaced", "raw_reply"), "length(t.body)"),
}
_log = get_logger("contextc.observation")


class DeletedTraffic(NamedTuple):
    """Number of deleted conversations, and the stored bytes that they had."""

    conversations: int = 0
    size: int = 0


class _Tree(NamedTuple):
    """A tree of observed conversations: its number, the time of its last message, its size, its group."""

    number: int
    time: int
    size: int
    group: int


def limit_observed(
    store: Store, *, age: timedelta | None = None, max_bytes: int | None = None, progress: Progress | None = None
) -> DeletedTraffic:
    """Delete observed conversations without a message newer than `age`, then the oldest until the rest fits.

    `max_bytes` is for all observed conversations together, as they are stored. `progress` is called with the number of
    conversations that were checked, and of those to check.
    """
    if age is not None and (not isinstance(age, timedelta) or age <= timedelta(0)):
        raise InvalidSetting("age must be a timedelta above zero", got=age, fix="Pass an age as timedelta(days=30).")
    if max_bytes is not None and (not isinstance(max_bytes, int) or isinstance(max_bytes, bool) or max_bytes < 0):
        raise InvalidSetting(
            "max_bytes must be a number of bytes", got=max_bytes, fix="Pass a number as 2_000_000_000."
        )
    if age is None and max_bytes is None:
        return DeletedTraffic()
    found = store.read(_load_trees)
    before = now_ms() - int(age.total_seconds() * 1000) if age is not None else 0
    ends: dict[int, int] = {}
    for tree in found:
        ends[tree.group] = max(ends.get(tree.group, 0), tree.time)
    found.sort(key=lambda tree: (ends[tree.group], tree.group, tree.number))
    total, done, group, result = sum([tree.size for tree in found]), 0, 0, DeletedTraffic()
    while done < len(found):
        batch: list[_Tree] = []
        left = total
        for tree in found[done : done + BATCH]:
            fits = ends[tree.group] >= before and (max_bytes is None or left <= max_bytes)
            if fits and tree.group != group:
                break
            group = tree.group
            batch.append(tree)
            left -= tree.size
        if not batch:
            break
        names, kept = _delete(store, batch)
        done, total = done + len(batch), left
        size = sum([tree.size for tree in batch if tree.number not in kept])
        result = DeletedTraffic(result.conversations + len(names), result.size + size)
        if progress is not None:
            progress(done, len(found))
    if result.conversations:
        _log.info("Deleted %d observed conversations (%d bytes)", *result)
    return result


def _delete(store: Store, trees: Sequence[_Tree]) -> tuple[list[str], set[int]]:
    """Delete the trees that observation alone wrote to. Return the names of conversations, and the trees that stay."""
    kept: set[int] = set()

    def select(tx: Transaction) -> Iterable[str]:
        kept.clear()
        for tree in trees:
            owners = _load_owners(tx, tree.number)
            if owners and _is_only_observed(tx, tree.number, owners):
                yield from owners
            else:
                kept.add(tree.number)

    return delete_selected(store, select), kept


def _load_trees(tx: Transaction) -> list[_Tree]:
    """Return the trees of observed conversations. Those with a conversation that was not observed are left out."""
    owners = tx.rows(
        "SELECT c.tree, c.number, c.created, coalesce(o.parent, 0), o.conversation IS NULL"
        " OR EXISTS (SELECT 1 FROM main.turn t WHERE t.place BETWEEN c.number * 4294967296"
        " AND c.number * 4294967296 + 4294967295)"
        f" FROM main.conversation c LEFT JOIN main.observed_conversation o ON o.conversation = c.number"
        f" WHERE c.tree IN ({OBSERVED_TREES}) ORDER BY c.number"
    )
    own = {tree for tree, *_, is_own in owners if is_own}
    tree_of = {number: tree for tree, number, *_ in owners}
    groups: dict[int, int] = {}  # the tree of the main conversation by tree: parents are recorded first
    times: dict[int, int] = {}
    for tree, _, created, parent, _ in owners:
        above: int = tree_of.get(parent, tree)
        groups.setdefault(tree, groups.get(above, above))
        times.setdefault(tree, created)
    sizes = dict.fromkeys(groups, 0)
    for tree, size, last in tx.rows(
        "SELECT b.tree, sum(length(m.body)), max(m.time) FROM main.branch b JOIN main.message m ON m.place BETWEEN"
        " b.number * 4294967296 AND b.number * 4294967296 + 4294967295"
        f" WHERE b.tree IN ({OBSERVED_TREES}) GROUP BY b.tree"
    ):
        sizes[tree], times[tree] = int(size), last
    for tree, size in _load_ledger_sizes(tx):
        sizes[tree] += int(size or 0)
    return [_Tree(tree, times[tree], sizes[tree], group) for tree, group in groups.items() if tree not in own]


def _load_ledger_sizes(tx: Transaction) -> list[tuple[int, int]]:
    channels = "FROM main.channel h JOIN main.conversation v ON v.name = h.conversation JOIN"
    found: list[tuple[int, int]] = []
    for table, size in LEDGER_SIZES.items():
        found += tx.rows(
            f"SELECT v.tree, sum({size}) {channels} main.{table} t ON t.place BETWEEN h.number * 4294967296"
            f" AND h.number * 4294967296 + 4294967295 WHERE v.tree IN ({OBSERVED_TREES}) GROUP BY v.tree"
        )
    found += tx.rows(
        f"SELECT v.tree, sum(length(t.body)) {channels} main.head t ON t.channel = h.number"
        f" WHERE v.tree IN ({OBSERVED_TREES}) GROUP BY v.tree"
    )
    return found + tx.rows(
        "SELECT u.tree, sum(length(d.data)) FROM (SELECT DISTINCT b.tree, s.name FROM main.branch b"
        " JOIN main.blob_use s ON s.place BETWEEN b.number * 4294967296 AND b.number * 4294967296 + 4294967295"
        f" WHERE b.tree IN ({OBSERVED_TREES})) u JOIN main.blob d ON d.name = u.name GROUP BY u.tree"
    )


def _load_owners(tx: Transaction, tree: int) -> dict[str, int]:
    """Return the numbers of the conversations of a tree by name."""
    return dict(tx.rows("SELECT name, number FROM main.conversation WHERE tree = ? ORDER BY number", tree))


def _is_only_observed(tx: Transaction, tree: int, owners: Mapping[str, int]) -> bool:
    """Return True if all content of a tree was recorded by observation, and no one uses it now."""
    lock_tree(tx, next(iter(owners)))
    marks = ", ".join("?" * len(owners))
    observed = tx.rows(
        f"SELECT conversation FROM main.observed_conversation WHERE conversation IN ({marks})", *owners.values()
    )
    if len(observed) < len(owners) or any(_is_used(tx, name, number) for name, number in owners.items()):
        return False
    places: set[int] = set()
    for name in owners:
        observed = load_observed_places(tx, name)
        if observed is None:
            return False
        places |= observed
    branches = [number for (number,) in tx.rows("SELECT number FROM main.branch WHERE tree = ?", tree)]
    ranges = [(make_place(number, 0), make_place(number, SEQ_MASK)) for number in branches]
    stored = [
        place
        for low, high in ranges
        for (place,) in tx.rows("SELECT place FROM main.message WHERE place BETWEEN ? AND ?", low, high)
    ]
    pinned = any(tx.row("SELECT 1 FROM main.pin WHERE place BETWEEN ? AND ?", low, high) for low, high in ranges)
    return not pinned and places.issuperset(stored)


def _is_used(tx: Transaction, name: str, number: int) -> bool:
    """Return True if an executor wrote to a conversation or holds it, or if it has todos."""
    low, high = make_place(number, 0), make_place(number, SEQ_MASK)
    lease = f"SELECT 1 FROM main.lease WHERE conversation = ? AND holder <> '' AND expires > {tx.dialect.now}"
    return (
        tx.row("SELECT 1 FROM main.turn WHERE place BETWEEN ? AND ?", low, high) is not None
        or tx.row("SELECT 1 FROM main.queue WHERE conversation = ?", number) is not None
        or tx.row("SELECT 1 FROM main.todo WHERE conversation = ?", name) is not None
        or tx.row(lease, name) is not None
    )
