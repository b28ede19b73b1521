"""Scan of a store: its problems, their consequences, and what a repair would do. It changes nothing.

Every branch is verified link by link: the numbers have no gap, and each message's content matches its id. On current
branches, calls without results and results without calls are reported too, which every request has to correct. Each
message is read once, also if forks share it. The database's own check comes first, because nothing else can be trusted
if it fails. The rows of conversations and branches come next. Ledgers and observed requests are checked last.
"""

from collections.abc import Callable, Iterator
from itertools import groupby

from contextc.doctor.branch_check import (
    BranchRow,
    CurrentBranch,
    branch_lineage,
    conversations_with_running_turn,
    find_lost_messages,
    load_branches,
    load_current_branches,
)
from contextc.doctor.chain_check import (
    CHUNK,
    BlobCheck,
    ChainCheck,
    PairState,
    UnansweredCall,
    base_problem,
    check_chain,
    context_starts,
    fetch_blob,
    find_problems,
    is_relevant,
    last_seq,
    read_rows,
    verify_rows,
)
from contextc.doctor.findings import CODES, DAMAGE_CODES, OPEN_CALL, ChainProblem, Finding, pluralize
from contextc.doctor.ledger_check import check_ledgers, check_observed
from contextc.doctor.repair import repaired_branches
from contextc.errors import StoreCorrupt, UnknownConversation
from contextc.store import Store
from contextc.store.message_log import split_by_branch

Progress = Callable[[int, int], None]


def scan_store(store: Store, progress: Progress | None = None, *, conversation: str | None = None) -> Iterator[Finding]:
    """Return the findings of all conversations, or of one. `progress` gets the number of messages done and the total.

    Problems of a branch that was repaired, and is not current, are not reported again.
    """
    if damage := list(find_file_damage(store)):
        yield from damage
        return
    everything, known = store.read(lambda tx: (table := load_branches(tx), load_current_branches(tx, table)))
    if conversation is not None and conversation not in known:
        raise UnknownConversation(conversation)
    table = everything if conversation is None else _branches_of(everything, conversation)
    yield from [each.fault for each in known.values() if each.fault is not None and conversation in (None, each.name)]
    if conversation is None:
        yield from store.read(lambda tx: list(find_lost_messages(tx)))
        yield from _pending_erasures(store)
    counter = _Progress(store, table, conversation is None, progress)
    blobs = BlobCheck(lambda name: store.read(lambda tx: fetch_blob(tx, name)))
    by_tree: dict[int, list[CurrentBranch]] = {}
    for each in known.values():
        by_tree.setdefault(each.tree, []).append(each)
    for tree, group in groupby(table, key=lambda branch: branch.tree):
        yield from _TreeScan(store, list(group), conversation, blobs, counter, by_tree.get(tree, [])).findings()
    yield from check_ledgers(store, conversation)
    yield from check_observed(store, conversation)


def _pending_erasures(store: Store) -> Iterator[Finding]:
    """Return a finding for content that was erased from the records, but not from the files yet."""
    if count := store.pending_erasure:
        yield Finding(
            kind="note",
            code="pending-erasure",
            conversation=None,
            where="database",
            text=f"{pluralize(count, 'erasure')} not completed: the content is not removed from the files yet.",
            why="The content can still be read in the write-ahead log, because another connection reads from it.",
            would="is retried in the background and on every open. End the other readers of the file to complete it",
        )


class _Progress:
    """Progress of a scan."""

    def __init__(self, store: Store, table: list[BranchRow], whole: bool, progress: Progress | None) -> None:
        self._progress, self._done, self._total = progress, 0, 0
        if progress is not None and whole:
            self._total = store.read(lambda tx: (tx.row("SELECT count(*) FROM main.message") or (0,))[0])
        elif progress is not None:
            self._total = sum(store.read(lambda tx: [max(0, last_seq(tx, each) - each.base) for each in table]))

    def add(self, messages: int) -> None:
        self._done += messages
        if self._progress:
            self._progress(self._done, self._total)


class _TreeScan:
    """The branches that share a root. Each is read once, and continues with the state of its parent."""

    def __init__(
        self,
        store: Store,
        table: list[BranchRow],
        only: str | None,
        blobs: BlobCheck,
        counter: _Progress,
        known: list[CurrentBranch],
    ) -> None:
        self.store, self.only, self.blobs, self.counter = store, only, blobs, counter
        self.current = {each.name: each.branch for each in known if each.branch}
        """The current branch of each conversation."""
        self.branches = {branch.number: branch for branch in table}
        self.children: dict[int, list[BranchRow]] = {}
        for branch in sorted(table, key=lambda each: each.base):
            if branch.parent is not None:
                self.children.setdefault(branch.parent, []).append(branch)
        self.begun: dict[int, PairState] = {}
        self.troubles: dict[int, list[ChainProblem]] = {}
        self.open: dict[int, list[UnansweredCall]] = {}
        self.ends: dict[int, int] = {}

    def findings(self) -> Iterator[Finding]:
        current = self.current
        heads = set(current.values())
        for number in self.branches:
            self._follow(self.branches[number], number in heads)
        if not self.troubles and not self.open:
            return
        running = self.store.read(conversations_with_running_turn)
        repaired = (
            self.store.read(lambda tx: set(repaired_branches(tx, self.branches))) if self._is_damaged() else set[int]()
        )
        for name in sorted({each.conversation for each in self.branches.values() if each.conversation is not None}):
            if self.only in (None, name):
                yield from self._conversation(name, current.get(name, 0), name in running, repaired)

    def _is_damaged(self) -> bool:
        return any(trouble.code in DAMAGE_CODES for found in self.troubles.values() for trouble in found)

    def _follow(self, branch: BranchRow, is_current: bool) -> None:
        """Read a branch, and pass its state on where other branches start."""
        number, store = branch.number, self.store
        end, lost, edges = store.read(
            lambda tx: (last_seq(tx, branch), base_problem(branch), context_starts(tx, number, branch.base))
        )
        self.ends[number] = end
        pairs = self.begun.pop(number, None) or PairState()
        children = list(self.children.get(number, ()))
        found = [lost] if lost is not None else []
        rows = read_rows(store.read, [(number, branch.base)], branch.base, end)
        seen = 0
        for row in verify_rows(rows, branch.base_id, branch.base, end):
            while children and children[0].base < row.seq:
                self._begin(children.pop(0), pairs, edges)
            _clear(pairs, edges, row.seq)
            if row.message is None:
                pairs.add_unreadable()
            found += find_problems(row, pairs, self.blobs)
            seen += row.message is not None or row.id != b""
            if seen == CHUNK:
                self.counter.add(seen)
                seen = 0
        for child in children:
            self._begin(child, pairs, edges)
        if seen:
            self.counter.add(seen)
        if found:
            self.troubles[number] = found
        if is_current and (waiting := pairs.open_calls):
            self.open[number] = waiting

    def _begin(self, child: BranchRow, pairs: PairState, edges: list[int]) -> None:
        _clear(pairs, edges, child.base)
        self.begun[child.number] = pairs.fork(child.base)

    def _conversation(self, name: str, current: int, is_running: bool, repaired: set[int]) -> Iterator[Finding]:
        lines = [each.number for each in self.branches.values() if each.conversation == name]
        damaged: dict[tuple[int, ChainProblem], list[int]] = {}
        for line in lines:
            empty = self.ends[line] == self.branches[line].base and line != current
            if line == current or (line not in repaired and not empty):
                for where, trouble in self._along(line):
                    if trouble.code in DAMAGE_CODES:
                        damaged.setdefault((where, trouble), []).append(line)
        of = {line: self._diagnosed(line) for line in sorted({each for line in damaged.values() for each in line})}
        for (where, trouble), through in damaged.items():
            yield self._fault(name, where, trouble, through, current, of, is_running)
        if not is_running and current in self.branches and self.branches[current].tree in self.branches:
            yield from self._notes(name, current, of.get(current))

    def _along(self, line: int) -> Iterator[tuple[int, ChainProblem]]:
        """Return the problems between the root and the end of a branch, each with its branch."""
        lineage = branch_lineage(self.branches, line)
        for number, first, last in split_by_branch(lineage, 0, self.ends[line]):
            for trouble in self.troubles.get(number, ()):
                if first <= trouble.seq <= last:
                    yield number, trouble
        for number, base in lineage:  # a branch without messages of its own has a base too
            if base == self.ends[line]:
                yield from ((number, each) for each in self.troubles.get(number, ()) if each.code == "lost-base")

    def _diagnosed(self, line: int) -> ChainCheck | None:
        if self.branches[line].tree not in self.branches:
            return None
        return self.store.read(lambda tx: check_chain(tx, self.branches, line))

    def _fault(
        self,
        name: str,
        where: int,
        trouble: ChainProblem,
        through: list[int],
        current: int,
        of: dict[int, ChainCheck | None],
        is_running: bool,
    ) -> Finding:
        about = CODES[trouble.code]
        line = current if current in through else through[0]
        known = of[line]
        if known is None or known.base is None:
            would = "cannot be repaired: the root of the conversation is missing. Restore a backup of the store"
        else:
            would = _describe_repair(
                known.base.seq, known.messages_after_base, about.repaired_form, line, switch=line == current
            )
            more = [str(each) for each in through if each != line]
            would += f"; the same for branch {', '.join(more)}" if more else ""
            would += ", when its turn has ended" if is_running else ""
        place = f"branch {where}" if trouble.code == "lost-base" else f"branch {where}, message {trouble.seq}"
        return Finding(
            kind=about.kind,
            code=trouble.code,
            conversation=name,
            where=place,
            text=trouble.text,
            why=about.consequence,
            would=would,
            healing="none" if known is None or known.base is None else "branch",
            branches=tuple(through),
        )

    def _notes(self, name: str, current: int, known: ChainCheck | None) -> Iterator[Finding]:
        """Return what every request has to correct. If the branch is damaged, a repair starts a branch anyway."""
        edge = self.store.read(lambda tx: max(context_starts(tx, current), default=0))
        if known is not None:
            noted = [each for each in known.problems if each.code not in DAMAGE_CODES]
        else:
            noted = [
                each for _, each in self._along(current) if each.code not in DAMAGE_CODES and is_relevant(each, edge)
            ]
        base = known.base.seq if known and known.base else min([each.first_change for each in noted], default=1) - 1
        for trouble in noted:
            if (about := CODES.get(trouble.code)) is not None:
                yield Finding(
                    kind=about.kind,
                    code=trouble.code,
                    conversation=name,
                    where=f"message {trouble.seq}",
                    text=trouble.text,
                    why=about.consequence,
                    would=_describe_repair(base, self.ends[current] - base, about.repaired_form, current, switch=True),
                    healing="branch",
                    branches=(current,),
                )
        for asked in self.open.get(current, ()) if known is None else known.open_calls:
            if asked.seq > edge:
                yield Finding(
                    kind=OPEN_CALL.kind,
                    code="open-call",
                    conversation=name,
                    where=f"message {asked.seq}",
                    text=f"Call {asked.call.id!r} of {asked.call.name!r} has no result.",
                    why=OPEN_CALL.consequence,
                    would=f"would append an error result for call {asked.id!r} of {asked.call.name!r}",
                    healing="append",
                    branches=(current,),
                )


def _clear(pairs: PairState, edges: list[int], seq: int) -> None:
    """Apply the resets of the context before a message."""
    while edges and edges[0] < seq:
        pairs.clear_context()
        edges.pop(0)


def _describe_repair(base: int, behind: int, how: str, line: int, *, switch: bool) -> str:
    after = f"after message {base}" if base else "at the root"
    turned = f"and switch to it; branch {line} stays" if switch else f"beside branch {line}, which stays"
    return f"would start a branch {after} with the {pluralize(behind, 'message')} after it, {how}, {turned}"


def _branches_of(table: list[BranchRow], conversation: str) -> list[BranchRow]:
    """Return the branches of one conversation, and their parents."""
    by_number = {branch.number: branch for branch in table}
    own = [branch.number for branch in table if branch.conversation == conversation]
    wanted = {number for line in own for number, _ in branch_lineage(by_number, line)}
    return [branch for branch in table if branch.number in wanted]


# ── damage of the database files ──────────────────────────────────────────────────────────────────────────────────────
# Damage of the database files, as the database's own check reports it, and what can still be read.
#
# Nothing is repaired: a write into a damaged file may destroy more. Readable conversations are listed, so that they
# can be exported.


MAX_LINES = 3
CONSEQUENCE = "The data in the file cannot be trusted."
NO_REPAIR = "cannot be repaired: restore a backup, or recover the file with the database's own tools"


def find_file_damage(store: Store) -> Iterator[Finding]:
    """Return the damage of the files, then each conversation that cannot be read completely."""
    report = _check_output(store)
    if not report:
        return
    more = f" And {len(report) - MAX_LINES:,} more." if len(report) > MAX_LINES else ""
    whole, torn = _readable_conversations(store)
    would = NO_REPAIR
    if whole:
        listed = ", ".join(map(repr, whole))
        would += f". Readable conversations: {listed}. Export them, with ?mode=ro appended to the store address"
    yield _file_fault(None, " ".join(report[:MAX_LINES]) + more, would)
    for name, error in torn.items():
        yield _file_fault(name, f"It cannot be read completely: {error}", NO_REPAIR)


def conversation_names(store: Store) -> list[str]:
    """Return the names of all conversations, also of damaged ones. Empty if the names cannot be read."""
    try:
        rows = store.read(lambda tx: tx.rows("SELECT name FROM main.conversation ORDER BY name"))
    except StoreCorrupt:
        return []
    return [str(name) for (name,) in rows]


def _check_output(store: Store) -> list[str]:
    try:
        rows = store.read(lambda tx: tx.rows(tx.dialect.integrity_query) if tx.dialect.integrity_query else [])
    except StoreCorrupt as error:  # the check itself fails
        return [f"The check of the database failed: {_error_text(error)}"]
    lines = [line.strip().rstrip(".") for (text,) in rows if text != "ok" for line in str(text).splitlines()]
    return [f"{line}." for line in lines if line and not line.startswith("***")]


def _error_text(error: StoreCorrupt) -> str:
    """Return the text of the database error, if there is one."""
    return f"{str(error.__cause__ or error).rstrip('.')}."


def _readable_conversations(store: Store) -> tuple[list[str], dict[str, str]]:
    """Return the conversations that can be read completely, and the others with the reason."""
    whole, torn = list[str](), dict[str, str]()
    for name in conversation_names(store):
        try:
            length, found = store.conversation(name).length, len(store.load(name))
        except StoreCorrupt as error:
            torn[name] = _error_text(error)
            continue
        if found == length:
            whole.append(name)
        else:
            torn[name] = f"{pluralize(length - found, 'message')} of {length:,} not found."
    return whole, torn


def _file_fault(conversation: str | None, text: str, would: str) -> Finding:
    return Finding(
        kind="fault",
        code="damaged-file",
        conversation=conversation,
        where="database",
        text=text,
        why=CONSEQUENCE,
        would=would,
    )
