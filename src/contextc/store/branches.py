"""Fork, rewind, edit, switch, reset and delete: operations on the branches of a conversation.

New branches share all earlier messages; no message is copied or changed. Only `delete_conversation` removes messages,
and it keeps those that a fork still needs.
"""

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from contextc.errors import ConversationExists, InvalidInput, StoreCorrupt, UnknownMessage
from contextc.messages import Message, decode_message, make_root_id
from contextc.store.message_log import (
    SEQ_MASK,
    Branch,
    BranchTip,
    Conversation,
    MessageLocation,
    PendingMessage,
    Reference,
    VerifiedRanges,
    check_name,
    check_new_name,
    decode_readable,
    find_free_uid,
    find_message,
    find_tip,
    insert_branch,
    insert_conversation,
    insert_messages,
    load_between,
    load_branch_end,
    load_context_start,
    load_lineage,
    load_root,
    load_tip,
    load_tip_of_branch,
    lock_tree,
    make_place,
    now_ms,
    to_id,
    update_last_active,
)
from contextc.store.message_matching import (
    HistoryDifference,
    compare_histories,
    compare_last_messages,
    may_begin,
)
from contextc.store.redaction import delete_channels, delete_summaries, delete_unused_blobs
from contextc.store.transaction_engine import Row, Transaction, log_warning
from contextc.store.turn_records import copy_todos as copy_todos
from contextc.store.turn_records import copy_trigger_states as copy_trigger_states
from contextc.store.turn_records import delete_records as drop_turns


def load_conversation(tx: Transaction, name: str) -> Conversation:
    at = load_tip(tx, name)
    created = tx.row("SELECT created FROM main.conversation WHERE name = ?", name)
    return Conversation(
        name=name,
        root=load_root(tx, at.tree).hex(),
        tip=at.id.hex(),
        length=at.seq,
        branch=at.branch,
        revision=at.revision,
        context_start=load_context_start(tx, at.branch, at.seq),
        created=created[0] if created else 0,
    )


LIST_CONVERSATIONS = (
    "SELECT c.name, r.base_id, COALESCE(m.id, b.base_id), COALESCE(m.place, b.base_seq), c.branch, c.revision,"
    " (SELECT max(place) FROM main.edge"
    " WHERE place BETWEEN c.branch * 4294967296 AND c.branch * 4294967296 + 4294967295),"
    " c.created, m.place IS NULL OR m.place > c.branch * 4294967296 + b.base_seq"
    " FROM main.conversation c"
    " LEFT JOIN main.branch b ON b.number = c.branch AND b.tree = c.tree AND b.conversation = c.name"
    " LEFT JOIN main.branch r ON r.number = c.tree"
    " LEFT JOIN main.message m ON m.place = (SELECT max(place) FROM main.message"
    " WHERE place BETWEEN c.branch * 4294967296 AND c.branch * 4294967296 + 4294967295)"
    " ORDER BY c.name"
)


def list_conversations(tx: Transaction) -> list[Conversation]:
    """Return all conversations, read in one query. Damaged ones are logged and left out; the doctor reports them."""
    found: list[Conversation] = []
    for row in tx.rows(LIST_CONVERSATIONS):
        try:
            found.append(_conversation_from_row(tx, row))
        except StoreCorrupt as error:
            log_warning(f"{error} The list of conversations leaves it out.")
    return found


def _conversation_from_row(tx: Transaction, row: Row) -> Conversation:
    name, first, tip, length, branch, revision, edge, created, is_sound = row
    if first is None or not isinstance(length, int) or not is_sound:
        return load_conversation(tx, name)  # raises, and states the damage
    return Conversation(
        name=name,
        root=to_id(first).hex(),
        tip=to_id(tip).hex(),
        length=length & SEQ_MASK,
        branch=branch,
        revision=revision,
        context_start=0 if edge is None else edge & SEQ_MASK,
        created=created,
    )


def count_branches(tx: Transaction) -> dict[str, int]:
    """Return the number of branches of each conversation."""
    sql = "SELECT conversation, count(*) FROM main.branch WHERE conversation IS NOT NULL GROUP BY conversation"
    return {name: number for name, number in tx.rows(sql)}


def list_branches(tx: Transaction, conversation: str) -> list[Branch]:
    at = load_tip(tx, conversation)
    rows = tx.rows(
        "SELECT number, parent, base_seq, created FROM main.branch WHERE conversation = ? ORDER BY number", conversation
    )
    ends = {number: load_branch_end(tx, number) for number, *_ in rows}
    return [
        Branch(
            number=number,
            parent=parent,
            base=base,
            length=ends[number][0],
            tip=ends[number][1].hex(),
            current=number == at.branch,
            created=created,
        )
        for number, parent, base, created in rows
    ]


class OtherBranch(NamedTuple):
    """A branch: the last seq that it shares with the current one (-1: unknown), and the message after it, if any."""

    number: int
    base: int
    first: Message | None
    context_start: int


LIST_BRANCHES = (
    "SELECT b.number, b.parent, b.base_seq,"
    " (SELECT max(place) FROM main.edge"
    " WHERE place BETWEEN b.number * 4294967296 AND b.number * 4294967296 + 4294967295)"
    " FROM main.branch b WHERE b.conversation = ? ORDER BY b.number DESC"
)


def list_other_branches(tx: Transaction, conversation: str, here: BranchTip) -> list[OtherBranch]:
    """Return the branches other than the current one, newest first, without unreadable ones. Of each, one message is
    read.
    """
    ends: dict[int, int] = {}
    until = here.seq
    for number, base in load_lineage(tx, here.branch):
        ends[number] = until
        until = min(until, base)
    table = {number: (parent, base, edge) for number, parent, base, edge in tx.rows(LIST_BRANCHES, conversation)}

    def next_place(branch: int) -> int | None:
        """Return the place of the first message of a branch that the current one does not have; 0 if its row is
        damaged.
        """
        passed: set[int] = set()
        while branch not in ends:
            parent, base, _ = table.get(branch, (None, 0, None))
            if parent is None:  # a branch of another conversation
                return None
            if type(base) is not int or branch in passed:
                return 0
            passed.add(branch)
            if base <= ends.get(parent, -1):
                return make_place(branch, base + 1)
            branch = parent
        return make_place(branch, ends[branch] + 1)

    places = {number: next_place(number) for number in table if number != here.branch}
    found: dict[int, Message | None] = {}
    wanted = [place for place in places.values() if place]
    for start in range(0, len(wanted), MAX_READ):
        some = wanted[start : start + MAX_READ]
        rows = tx.rows(f"SELECT place, body FROM main.message WHERE place IN ({', '.join('?' * len(some))})", *some)
        found |= {place: None for place, _ in rows} | dict(decode_readable(decode_message, rows))
    return [
        OtherBranch(
            number,
            -1 if place is None else (place & SEQ_MASK) - 1,
            found.get(place or 0),
            (table[number][2] or 0) & SEQ_MASK,
        )
        for number, place in places.items()
        if place != 0 and (place not in found or found[place] is not None)
    ]


def create_conversation(tx: Transaction, name: str) -> Conversation:
    """Create an empty conversation."""
    check_name(name)
    own = make_root_id()
    if find_tip(tx, name, True) is not None or insert_conversation(tx, name, own).id != own:
        raise ConversationExists(name)
    return load_conversation(tx, name)


def fork(tx: Transaction, source: str, name: str, at: Reference | None) -> Conversation:
    check_name(name)
    check_new_name(name)
    lock_tree(tx, source)
    here = load_tip(tx, source, lock=True)
    try:
        line, spot = here.branch, find_message(tx, source, here, here.seq if at is None else at)
    except UnknownMessage:
        spot = find_message(tx, source, here, here.seq if at is None else at, anywhere=True)
        line = spot.branch
    moment = now_ms()
    made = tx.run(
        "INSERT INTO main.conversation (name, tree, branch, created, spoken) VALUES (?, ?, 0, ?, ?)"
        " ON CONFLICT DO NOTHING",
        name,
        here.tree,
        moment,
        moment // 1000,
    )
    if not made:
        raise ConversationExists(name)
    number = _create_branch_after(tx, name, here.tree, line, spot)
    tx.run("UPDATE main.conversation SET branch = ? WHERE name = ?", number, name)
    copy_todos(tx, source, name)
    copy_trigger_states(tx, here.conversation, load_tip(tx, name).conversation)
    return load_conversation(tx, name)


def rewind(tx: Transaction, conversation: str, to: Reference) -> Conversation:
    here = load_tip(tx, conversation, lock=True)
    spot = find_message(tx, conversation, here, to)
    if spot.seq != here.seq:
        _set_current_branch(tx, conversation, _create_branch_after(tx, conversation, here.tree, here.branch, spot))
    return load_conversation(tx, conversation)


def edit(tx: Transaction, conversation: str, target: Reference, entry: PendingMessage) -> Message:
    here = load_tip(tx, conversation, lock=True)
    spot = find_message(tx, conversation, here, target)
    if spot.seq == 0:
        raise InvalidInput("The root is not a message and cannot be edited", fix="Name a message with seq 1 or more.")
    before = find_message(tx, conversation, here, spot.seq - 1)
    number = _create_branch_after(tx, conversation, here.tree, here.branch, before)
    _set_current_branch(tx, conversation, number)
    there = BranchTip(here.conversation, here.tree, number, here.revision + 1, before.seq, before.id)
    return insert_messages(tx, conversation, there, [entry])[0]


def switch(tx: Transaction, conversation: str, branch: int) -> Conversation:
    here = load_tip(tx, conversation, lock=True)
    if branch != here.branch:
        _set_current_branch(tx, conversation, load_tip_of_branch(tx, conversation, here, branch).branch)
    return load_conversation(tx, conversation)


def merge_history(
    tx: Transaction,
    conversation: str,
    here: BranchTip,
    entries: Sequence[PendingMessage],
    verified: VerifiedRanges | None = None,
) -> tuple[list[PendingMessage], list[Message]]:
    """Append what is new in a client's history to the branch that it continues: the current one, another one, or a new
    one, which starts from the branch that has the longest match.

    Returns the new entries, and the messages.
    """
    sent, there = [entry.admitted.message for entry in entries], here
    stored = load_between(tx, here.branch, 0, here.seq, verified)
    best = own = compare_histories(stored, sent)
    last = compare_last_messages(stored, sent) if own.rewrites else None
    if last is not None and last.new_count >= own.new_count:
        last = None
    is_open = own.rewrites and (last is None or last.rewrites)
    for branch in list_other_branches(tx, conversation, here) if is_open else ():
        if not _may_match_better(own, sent, branch):
            continue
        try:
            other = load_tip_of_branch(tx, conversation, here, branch.number)
            found = compare_histories(load_between(tx, other.branch, 0, other.seq, verified), sent)
        except StoreCorrupt:  # another branch with unreadable messages cannot be continued
            continue
        if (found.new_count, found.rewrites) < (best.new_count, best.rewrites):
            best, there = found, other
    if last is not None and last.new_count < best.new_count:
        best, there = last, here
    new = [with_free_uid(tx, here.tree, entry) for entry in entries[len(entries) - best.new_count :]]
    return new, place_entries(tx, conversation, here, there, best.after, new, is_branch=best.rewrites)[1]


def _may_match_better(own: HistoryDifference, sent: Sequence[Message], branch: OtherBranch) -> bool:
    """Return True if a branch may match more of a history than the current one, judged by where they diverge."""
    if branch.base < 0:
        return True
    if own.compared is not None and branch.base >= own.compared:
        return False
    number = bisect_left(own.matched, branch.base)
    return number == len(own.matched) if branch.first is None else may_begin(branch.first, sent[number])


def with_free_uid(tx: Transaction, tree: int, entry: PendingMessage) -> PendingMessage:
    """Return the entry with a new version of its uid if the uid is taken, as for an edit under the same uid."""
    message = replace(entry.admitted.message, uid=find_free_uid(tx, tree, entry.admitted.message.uid))
    return replace(entry, admitted=replace(entry.admitted, message=message))


def reset_context(tx: Transaction, conversation: str) -> Conversation:
    """Start the context after the last message. The history is kept."""
    here = load_tip(tx, conversation, lock=True)
    if here.seq > load_context_start(tx, here.branch, here.seq):
        tx.run("INSERT INTO main.edge (place) VALUES (?)", make_place(here.branch, here.seq))
        _set_current_branch(tx, conversation, here.branch)
    return load_conversation(tx, conversation)


def delete_conversation(tx: Transaction, conversation: str) -> None:
    lock_tree(tx, conversation)
    here = load_tip(tx, conversation, lock=True)
    tx.run(
        "DELETE FROM main.stream_delta WHERE uid IN (SELECT uid FROM main.stream WHERE conversation = ?)",
        conversation,
    )
    for table in ("stream", "lease", "append_key", "todo"):
        tx.run(f"DELETE FROM main.{table} WHERE conversation = ?", conversation)
    drop_turns(tx, here.conversation)
    delete_channels(tx, conversation)
    tx.run("UPDATE main.branch SET conversation = NULL WHERE conversation = ?", conversation)
    tx.run("DELETE FROM main.conversation WHERE name = ?", conversation)
    _drop_unused_branches(tx, here.tree)


def _drop_unused_branches(tx: Transaction, tree: int) -> None:
    """Remove branches without a conversation and without child branches, newest first.

    From other branches without a conversation, remove the messages after the last fork.
    """
    rows = tx.rows("SELECT number FROM main.branch WHERE tree = ? AND conversation IS NULL ORDER BY number DESC", tree)
    for (number,) in rows:
        needed = tx.row("SELECT max(base_seq) FROM main.branch WHERE parent = ?", number)
        keep = needed[0] if needed and needed[0] is not None else -1
        low, high = make_place(number, keep + 1), make_place(number, SEQ_MASK)
        delete_unused_blobs(tx, low, high)
        for table in ("message", "early_uid", "edge", "append_key", "pin"):
            tx.run(f"DELETE FROM main.{table} WHERE place BETWEEN ? AND ?", low, high)
        delete_summaries(tx, tree, lambda where, low=low, high=high: low <= where <= high)
        if keep < 0:
            tx.run("DELETE FROM main.branch WHERE number = ?", number)


def create_branch(
    tx: Transaction,
    conversation: str,
    here: BranchTip,
    at: Reference,
    *,
    is_current: bool,
    context_start: int | None = None,
) -> BranchTip:
    """Create a branch after a message and return its end. The branch becomes the current one if `is_current`.

    Its context starts where that of the other branch does, or after message `context_start`.
    """
    spot = find_message(tx, conversation, here, at)
    number = _create_branch_after(tx, conversation, here.tree, here.branch, spot, context_start)
    if is_current:
        _set_current_branch(tx, conversation, number)
    return BranchTip(here.conversation, here.tree, number, here.revision + is_current, spot.seq, spot.id)


def place_entries(
    tx: Transaction,
    conversation: str,
    current: BranchTip,
    there: BranchTip,
    after: Reference,
    entries: Sequence[PendingMessage],
    *,
    is_branch: bool,
    is_current: bool = True,
    context_start: int | None = None,
) -> tuple[BranchTip, list[Message]]:
    """Append messages to the branch that ends at `there`; if `is_branch`, to a new one after a message of it.

    The branch becomes the current one if `is_current`. With `context_start`, its context starts after that message.
    Returns its end, and the messages.
    """
    if is_branch:
        there = create_branch(tx, conversation, there, after, is_current=is_current, context_start=context_start)
    elif context_start is not None:
        _insert_edge(tx, there.branch, context_start)
        there = switch_branch(tx, conversation, there)
    elif there.branch != current.branch and is_current:
        there = switch_branch(tx, conversation, there)
    stored = insert_messages(tx, conversation, there, entries)
    if stored:
        there = replace(there, seq=stored[-1].seq, id=bytes.fromhex(stored[-1].id))
    return there, stored


def switch_branch(tx: Transaction, conversation: str, there: BranchTip) -> BranchTip:
    """Make another branch current and return its end."""
    _set_current_branch(tx, conversation, there.branch)
    return replace(there, revision=there.revision + 1)


def _create_branch_after(
    tx: Transaction, conversation: str, tree: int, line: int, spot: MessageLocation, context_start: int | None = None
) -> int:
    """Create a branch that begins after a message, with the context edges that branch `line` has up to there."""
    number = insert_branch(tx, conversation, tree=tree, parent=spot.branch, base_seq=spot.seq, base_id=spot.id)
    tx.run(
        "INSERT INTO main.edge (place) SELECT place + ? FROM main.edge WHERE place BETWEEN ? AND ?",
        make_place(number, 0) - make_place(line, 0),
        make_place(line, 0),
        make_place(line, spot.seq if context_start is None else context_start),
    )
    if context_start:
        _insert_edge(tx, number, context_start)
    return number


def _insert_edge(tx: Transaction, branch: int, context_start: int) -> None:
    tx.run("INSERT INTO main.edge (place) VALUES (?) ON CONFLICT DO NOTHING", make_place(branch, context_start))


MAX_READ = 500
"""Number of messages that are read in one statement."""
MAX_SEARCHED_MESSAGES, SEARCH_BATCH = 1_024, 64
"""Number of messages that are searched for one addressed to an agent, and the size of one read."""


def find_unanswered(tx: Transaction, conversation: str, agent: str) -> int:
    """Return the seq of the message that an agent has not answered, 0 if there is none.

    That is the last message, unless it is a reply of this agent or of another one. Otherwise it is a message that
    another agent addressed to this one since this one's last reply.
    """
    here = load_tip(tx, conversation)
    until, first = here.seq, max(load_context_start(tx, here.branch, here.seq), here.seq - MAX_SEARCHED_MESSAGES)
    while until > first:
        after = max(first, until - SEARCH_BATCH)
        for message in reversed(load_between(tx, here.branch, after, until)):
            said = message.role in ("assistant", "tool")
            if said and message.author not in (None, agent):
                if message.is_addressed_to(agent) and message.status == "sent":
                    return message.seq
            elif message.seq == here.seq and (message.role != "assistant" or message.status != "sent"):
                return message.seq
            elif said:
                return 0
        until = after
    return 0


SPEAKER_META = "spoken_by"
"""Field of a reply's `meta`: the agent that a conversation was handed over to, and that gave this reply."""


def find_last_speaker(tx: Transaction, conversation: str, agent: str) -> tuple[str, list[str]]:
    """Return who gave the last reply of an agent, and the tools that it called and that have answered.

    The first is empty unless another agent had taken the conversation over.
    """
    here = load_tip(tx, conversation)
    until, first = here.seq, max(load_context_start(tx, here.branch, here.seq), here.seq - MAX_SEARCHED_MESSAGES)
    answered: set[str] = set()
    while until > first:
        after = max(first, until - SEARCH_BATCH)
        for message in reversed(load_between(tx, here.branch, after, until)):
            if message.author not in (None, agent):
                continue
            answered |= {result.call_id for result in message.tool_results if not result.is_error}
            if message.role == "assistant" and message.status == "sent":
                speaker = (message.meta or {}).get(SPEAKER_META)
                called = [call.name for call in message.tool_calls if call.id in answered]
                return speaker if isinstance(speaker, str) else "", called
        until = after
    return "", []


def _set_current_branch(tx: Transaction, conversation: str, branch: int) -> None:
    tx.run("UPDATE main.conversation SET branch = ?, revision = revision + 1 WHERE name = ?", branch, conversation)
    update_last_active(tx, conversation)
