"""Load a channel: what was sent on it, and which messages are new.

If only appends happened, this takes three short queries, whatever the length of the history, or one if this handle has
just written the channel (`load_next`). After any other change, sent items that left the current branch are removed.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import takewhile

from msgspec import Struct
from msgspec.structs import astuple, replace

from contextc._json import encode
from contextc.compiler.ledger import log_check, repository
from contextc.compiler.ledger.channel_row_cache import ChannelCache, ChannelCacheEntry
from contextc.compiler.ledger.summaries import Summary, find_undone
from contextc.messages import Message, decode_message
from contextc.store import Store
from contextc.store.backend_interface import Transaction
from contextc.store.ledger_schema import Channel, ChannelState, Item, find_latest_copies
from contextc.store.message_rows import (
    DECODE_ERRORS,
    SEQ_BITS,
    SEQ_MASK,
    BranchTip,
    decode_message_rows,
    load_context_start,
    load_lineage,
    load_tip,
    make_place,
    split_by_branch,
    to_id,
)
from contextc.store.pins import load_pinned_places

UNDONE = "compaction undone"
BLOCK_SIZE = 512
REPLIES_PER_BATCH = 32
AUTHOR = b'],"author":'  # follows the parts of a stored message
BEGINS_WITH_CALL = b'{"role":"assistant","parts":[{"type":"tool_call"'
LATEST_PER_BATCH = 64
"""Number of messages of people that are read at a time."""
MAX_LEADING = 8
FOLLOWING = (
    "SELECT m.place, m.id, m.body FROM channel h, conversation c, message m"
    " WHERE h.number = ? AND h.version = ? AND h.attempt IS NULL AND c.number = ? AND c.branch = ? AND c.revision = ?"
    f" AND m.place >= ? AND m.place <= ? ORDER BY m.place LIMIT {BLOCK_SIZE}"
)
"""Messages from a place on, on condition that channel and conversation are unchanged."""


class ChannelSnapshot(Struct, frozen=True, kw_only=True):
    """A channel as loaded from the store: its state, what was sent, and what is new."""

    tip: BranchTip
    channel: int
    """The channel's number; 0 if it has no row yet."""
    version: int
    cached: ChannelCacheEntry
    state: ChannelState
    """State of the channel on the current branch."""
    log: tuple[tuple[int, Message], ...]
    unread_until: int
    turn_opening: int = 0
    """Place of the message that opened the turn, if it is in the part that was not read and is in `log` nevertheless.
    """
    revealed: dict[int, Message]
    remaining: tuple[Item, ...] | None
    """The remaining items, if some were removed."""
    reason: str
    """The reason why some were removed."""
    unanswered_calls: dict[str, int] = {}
    """Calls whose results were removed while the calls remain, each with the place of its message."""
    pins: frozenset[int]
    leading: dict[int, Message]
    """System messages at the start of a conversation, by place, if they are its instructions, because none are given.
    """
    attempt: repository.OpenAttempt | None
    """A request that was not answered."""
    missing: int = 0
    """Number of messages that should have been read, and are missing from the store."""

    @property
    def has_calls(self) -> bool:
        """True if what was sent, or what is new, contains tool calls."""
        return bool(self.cached.used) or any(message.tool_calls for _, message in self.log)


def load_snapshot(
    tx: Transaction,
    cache: ChannelCache,
    channel: Channel,
    *,
    window: int,
    runs: str = "",
    is_full: Callable[[Sequence[tuple[int, Message]]], bool],
    until: int | None = None,
    since: Summary | None = None,
    has_instructions: bool = False,
) -> ChannelSnapshot:
    """Load a channel. `window` is the window in tokens; `is_full` reports whether messages, read backwards, fill it.

    `runs` identifies the caller's runs. `until` loads the conversation as if it ended there. `since` is a summary whose
    messages are not read, so the cost depends on what came after it. If the request `has_instructions`, system messages
    at the start of the conversation are messages like others.
    """
    at = load_tip(tx, channel.conversation)
    number, version, shown, inherited, attempt = _load_cached(tx, cache, channel, at)
    if log_check.is_tip_lost(tx, shown.standing, at):
        shown = ChannelCacheEntry(number, version, log_check.without_rows(shown.standing, log_check.LOG_LOST))
    if has_instructions and shown.standing.lead:
        shown = ChannelCacheEntry(number, version, log_check.without_rows(shown.standing, log_check.LEAD_MOVED))
    if until is not None and until < at.seq:
        at = replace(at, seq=until)
    if log_check.is_cursor_void(shown.standing, at):
        shown = ChannelCacheEntry(number, version, log_check.without_rows(shown.standing, log_check.CURSOR_VOID))
    standing = shown.standing
    kept, why = None, ""
    if standing.branch != at.branch or standing.revision != at.revision or until is not None:
        standing, kept, why = _on_this_branch(tx, shown, at, window, channel.author)
        if inherited and kept is not None:
            why = "forked"
    first = standing.seen if since is None else max(standing.seen, since.anchor & SEQ_MASK)
    log, unread = _log(tx, at, first, is_full)
    if since is not None and _has_orphan_result(log):  # a call is before the summary, its result after it
        since, (log, unread) = None, _log(tx, at, standing.seen, is_full)
    if since is not None and not unread and first > standing.seen:
        standing, unread = replace(standing, humans=since.humans), first
    missing = at.seq - max(first, unread) - len(log)
    current = runs.partition("|")[0]
    others = any([message.run is not None and message.run != current for _, message in log])
    stays = standing.runs == runs and kept is None and not others
    late = load_messages_at(tx, standing.waiting) if standing.waiting and not stays else dict[int, Message]()
    lead = {} if has_instructions else _lead(tx, at, standing, shown, log, unread)
    if standing.lead is None:
        standing = replace(standing, lead=tuple(lead))
    pins = frozenset(load_pinned_places(tx, at)) if may_have_summaries(at) else frozenset[int]()
    opening: tuple[int, Message] | None = None
    if unread:
        if since is not None and since.opening is not None and unread == first:
            opening = next(iter(load_messages_at(tx, (since.opening,)).items()), None) if since.opening else None
        else:
            opening = _opening(tx, at, channel.author, standing, unread, log)
        log = (*_needed(tx, standing.seen, unread, pins, opening), *log)
    return ChannelSnapshot(
        tip=at,
        channel=number,
        version=version,
        cached=shown,
        state=replace(standing, branch=at.branch, revision=at.revision)
        if (standing.branch, standing.revision) != (at.branch, at.revision)
        else standing,
        log=tuple([each for each in log if each[0] not in lead]) if lead and log and log[0][0] in lead else log,
        leading=lead,
        unread_until=unread,
        turn_opening=opening[0] if opening else 0,
        revealed=late,
        remaining=kept,
        reason=why,
        unanswered_calls={} if kept is None else _unanswered(tx, shown, kept),
        pins=pins,
        attempt=attempt,
        missing=max(missing, 0),
    )


def load_next(store: Store, cache: ChannelCache, channel: Channel) -> ChannelSnapshot | None:
    """Load the next step of a channel with one statement, if this handle stored its last request and only appends
    followed.

    The statement itself checks that. Returns None if other changes happened, or if nothing is new.
    """
    shown = cache.get_last(channel)
    if shown is None or (since := shown.since) is None or shown.standing.waiting:
        return None
    number, _, branch, revision, seq, tip, _ = astuple(since.tip)
    first, last = make_place(branch, seq), make_place(branch, SEQ_MASK)
    rows = store.try_read_statement(FOLLOWING, shown.number, shown.version, number, branch, revision, first, last)
    if not rows or len(rows) == BLOCK_SIZE or rows[-1][0] - first != len(rows) - 1:
        return None
    if rows.pop(0)[1] != tip or not rows:  # the last known message was lost, or nothing is new
        return None
    try:
        new = [(where, decode_message(body)) for where, _, body in rows]
    except DECODE_ERRORS:  # the full load raises an error that names the message
        return None
    return ChannelSnapshot(
        tip=BranchTip(number, since.tip.tree, branch, revision, seq + len(rows), to_id(rows[-1][1])),
        channel=shown.number,
        version=shown.version,
        cached=shown,
        state=shown.standing,
        log=(*since.produced, *new),
        leading=shown.lead,
        unread_until=0,
        revealed={},
        remaining=None,
        reason="",
        pins=since.pins,
        attempt=None,
    )


def may_have_summaries(at: BranchTip) -> bool:
    """Return False if only appends ever happened. A fork begins at revision 0 and inherits from its parent."""
    return bool(at.revision) or at.branch != at.tree


def _load_cached(
    tx: Transaction, warm: ChannelCache, channel: Channel, at: BranchTip
) -> tuple[int, int, ChannelCacheEntry, bool, repository.OpenAttempt | None]:
    """Return number, version, cache entry, whether the entry was inherited by a fork, and the open attempt."""
    found = repository.find_channel(tx, channel)
    attempt = repository.decode_attempt(found.attempt) if found else None
    if found is not None:
        number, version, state, _ = found
        if (shown := warm.get(channel, number, version)) is not None:
            return number, version, shown, False, attempt
        standing = repository.decode_state(channel.conversation, state)
        if standing.requests or standing.held:
            log_check.check_bases(tx, at)
            rows = repository.load_rows(tx, standing.layout)
            if len(rows) < sum([last - first + 1 for _, first, last in standing.layout]):
                rows, standing = [], log_check.without_rows(standing, log_check.PARENT_DELETED)
            elif log_check.has_lost_messages(tx, [each.row for each in rows]):
                rows, standing = [], log_check.without_rows(standing, log_check.LOG_LOST)
            shown = ChannelCacheEntry.from_rows(number, version, standing, rows)
            warm.put(channel, shown)
            return number, version, shown, False, attempt
    else:
        number, version = 0, 0
    log_check.check_bases(tx, at)
    parent = repository.load_parent_state(tx, channel, at)
    if parent is None:
        return number, version, ChannelCacheEntry(number, version, ChannelState()), False, attempt
    rows = repository.load_rows(tx, parent.layout)
    if log_check.is_tip_lost(tx, parent, at) or log_check.has_lost_messages(tx, [each.row for each in rows]):
        return number, version, ChannelCacheEntry(number, version, ChannelState()), False, attempt
    standing = replace(parent, session=None, held=0, lost="", requests=0, rows=0, input=0)
    return number, version, ChannelCacheEntry.from_rows(number, version, standing, rows), True, attempt


def _on_this_branch(
    tx: Transaction, shown: ChannelCacheEntry, at: BranchTip, room: int, agent: str
) -> tuple[ChannelState, tuple[Item, ...] | None, str]:
    """Return the state and the items, restricted to the current branch; None for the items if all of them are on it.

    If something was trimmed for lack of room, and there is room now, the log is read again from its edge.
    """
    standing = shown.standing
    edge = load_context_start(tx, at.branch, at.seq)
    line = {branch: (first, last) for branch, first, last in split_by_branch(load_lineage(tx, at.branch), 0, at.seq)}
    here = {branch: (max(first, edge + 1), last) for branch, (first, last) in line.items()}

    items = [item for each in shown.rows for item in each.row.items]
    undone = find_undone(tx, agent, at, [item.place for item in items if item.kind == "summary"])

    def stands(item: Item) -> bool:
        if item.kind != "message" and not item.text:  # its text was redacted
            return False
        if item.kind == "summary" and item.place in undone:
            return False
        return all([_within(here, where) for where in (item.place, *item.places) if where])

    common = 0
    if standing.branch:
        old = split_by_branch(load_lineage(tx, standing.branch), 0, SEQ_MASK)
        common = max((min(last, line[branch][1]) for branch, _, last in old if branch in line), default=0)
    standing = replace(
        standing,
        seen=max(min(standing.seen, common), edge) if edge >= standing.edge else edge,
        edge=edge,
        waiting=tuple([where for where in standing.waiting if _within(here, where)]),
        produced=tuple([item for item in standing.produced if stands(item)]),
        lead=None,
    )
    sealed = shown.rows
    kept = _on_branch(items, stands)
    standing = replace(standing, fragments=find_latest_copies(kept))
    blanked = any(each.row.gone for each in sealed)
    if standing.session is not None and not blanked:  # the session's last reply is in no row yet
        said = load_messages_at(tx, [item.place for item in standing.produced])
        blanked = any(message.redacted for message in said.values())
    gone = len(kept) < len(items) or len(standing.produced) < len(shown.standing.produced)
    if not gone and not blanked:
        return standing, None, ""
    cleared = [item for item in items if item.place and not stands(item) and _within(line, item.place)]
    why = "edited or branched away" if gone and not cleared else "cleared" if cleared else "redacted"
    why = UNDONE if undone else why
    unsummed = any((item.kind == "summary" or item.is_kept_history) and item not in kept for item in items)
    if gone and (unsummed or (standing.cut and sum([item.tokens for item in kept]) < room // 2)):
        standing = replace(standing, seen=edge, produced=(), waiting=(), answered=True, pending={}, fragments={})
        return replace(standing, cut=False, summary=0, humans=(), going=()), (), why
    if gone:
        ids = {id(each.row.items[0]): bool(each.row.ids) for each in sealed if each.row.items}
        last = next((item for item in reversed(kept) if item.place), None)
        asked = last is not None and ids.get(id(last), False)
        answered = last is None or (last.role == "assistant" and not asked)
        standing = replace(standing, answered=answered, pending={})
    return standing, tuple(kept), why


def _unanswered(tx: Transaction, shown: ChannelCacheEntry, kept: Sequence[Item]) -> dict[str, int]:
    """Return calls that remain while results sent with them do not, each with the place of its message."""
    stands = {id(item) for item in kept}
    rows = [each.row.items for each in shown.rows if each.row.ids]
    torn = [items for items in rows if any(item.role == "tool" and id(item) not in stands for item in items)]
    found = load_messages_at(tx, [item.place for items in torn for item in items if id(item) in stands and item.place])
    calls = {call.id: where for where, message in found.items() for call in message.tool_calls}
    for message in found.values():
        for result in message.tool_results:
            calls.pop(result.call_id, None)
    return calls


def _lead(
    tx: Transaction,
    at: BranchTip,
    standing: ChannelState,
    shown: ChannelCacheEntry,
    log: tuple[tuple[int, Message], ...],
    unread: int,
) -> dict[int, Message]:
    """Return the system messages at the start of the conversation, or right after a context edge, by place."""
    if standing.lead is not None:
        if len(shown.lead) != len(standing.lead):
            shown.lead = load_messages_at(tx, standing.lead)
        return shown.lead
    edge = load_context_start(tx, at.branch, at.seq)
    first = (
        _between(tx, at, edge, min(at.seq, edge + MAX_LEADING)) if unread or standing.seen > edge else log[:MAX_LEADING]
    )
    sent = {item.place for each in shown.rows for item in each.row.items}
    return {
        where: message
        for where, message in takewhile(lambda each: each[1].role == "system" and each[1].audience is None, first)
        if not message.redacted and where not in sent
    }


def _on_branch(items: Iterable[Item], stands: Callable[[Item], bool]) -> list[Item]:
    """Return the items that remain. Inserted text is removed together with the message that it followed."""
    kept: list[Item] = []
    before = True
    for item in items:
        here = stands(item) and (before or bool(item.place))
        before = here if item.place else before
        if here:
            kept.append(item)
    return kept


def _within(line: dict[int, tuple[int, int]], where: int) -> bool:
    first, last = line.get(where >> SEQ_BITS, (1, 0))
    return first <= (where & SEQ_MASK) <= last


def _log(
    tx: Transaction, at: BranchTip, seen: int, enough: Callable[[Sequence[tuple[int, Message]]], bool]
) -> tuple[tuple[tuple[int, Message], ...], int]:
    """Return the messages after `seen`, with their places, and the seq up to which they were not read.

    Messages are not read if those after them fill the window; the seq is 0 if all were read.
    """
    if at.seq - seen <= BLOCK_SIZE:
        return tuple(_between(tx, at, seen, at.seq)), 0
    blocks: list[list[tuple[int, Message]]] = []
    last = at.seq
    while last > seen:
        first = max(seen, last - BLOCK_SIZE)
        blocks.append(_between(tx, at, first, last))
        last = first
        if enough(blocks[-1]):
            break
    return tuple(each for block in reversed(blocks) for each in block), last if last > seen else 0


def _has_orphan_result(log: Iterable[tuple[int, Message]]) -> bool:
    """Return True if there is a result whose call does not precede it."""
    calls: set[str] = set()
    for _, message in log:
        if any([result.call_id not in calls for result in message.tool_results]):
            return True
        calls.update([call.id for call in message.tool_calls])
    return False


def _needed(
    tx: Transaction, seen: int, unread: int, pins: frozenset[int], opening: tuple[int, Message] | None
) -> list[tuple[int, Message]]:
    """Return the unread messages that must be sent nevertheless: pinned messages, and the one that opened the turn."""
    wanted = [where for where in pins if seen < where & SEQ_MASK <= unread]
    found = load_messages_at(tx, wanted) | ({opening[0]: opening[1]} if opening else {})
    return sorted(found.items(), key=lambda each: each[0] & SEQ_MASK)


def _opening(
    tx: Transaction, at: BranchTip, agent: str, standing: ChannelState, unread: int, log: Sequence[tuple[int, Message]]
) -> tuple[int, Message] | None:
    """Return the message that opened the current turn; None if it was read, or sent before."""

    def is_final(message: Message) -> bool:
        return message.role == "assistant" and message.author in (None, agent) and not message.tool_calls

    final = next((index for index, (_, message) in enumerate(log) if is_final(message)), len(log))
    if any([message.role == "user" for _, message in log[final:]]):
        return None
    before, ended = [*split_by_branch(load_lineage(tx, at.branch), standing.seen, unread)], False
    for branch, first, last in reversed(before):
        if (end := _last_reply(tx, agent, branch, first, last, is_final)) is not None:
            before, ended = [*split_by_branch(load_lineage(tx, at.branch), end, unread)], True
            break
    for branch, first, last in before if ended or standing.answered else ():
        row = tx.row(
            "SELECT place, body FROM message WHERE place BETWEEN ? AND ? AND body >= ? AND body < ?"
            " ORDER BY place LIMIT 1",
            make_place(branch, first),
            make_place(branch, last),
            *_role_bounds("user"),
        )
        if row is not None:
            return decode_message_rows(tx, [row])[0]
    return None


def _last_reply(
    tx: Transaction, agent: str, branch: int, first: int, last: int, is_final: Callable[[Message], bool]
) -> int | None:
    """Return the seq of the last message in a range that ended a turn of this agent.

    A turn may be as long as the history. So the database excludes other rows by their bytes: messages with calls, and
    replies of other agents. It compares the beginning of each row with the role, which is cheap.
    """
    contains = "position(? in body)" if tx.dialect.name == "postgres" else "instr(body, ?)"
    sql = (  # the first comparison excludes most rows: all other roles sort after "assistant"
        "SELECT place, body FROM message WHERE place BETWEEN ? AND ? AND body < ? AND body >= ?"
        f" AND NOT (body >= ? AND body < ?) AND {contains} = 0 AND ({contains} = 0 OR {contains} > 0)"
        f" ORDER BY place DESC LIMIT {REPLIES_PER_BATCH}"
    )
    while first <= last:
        rows = tx.rows(
            sql,
            make_place(branch, first),
            make_place(branch, last),
            *reversed(_role_bounds("assistant")),
            BEGINS_WITH_CALL,
            BEGINS_WITH_CALL + b"\xff",
            b'{"type":"tool_call","id":',
            AUTHOR,
            AUTHOR + encode(agent),
        )
        for where, message in decode_message_rows(tx, rows):
            if is_final(message):
                return where & SEQ_MASK
        if len(rows) < REPLIES_PER_BATCH:
            return None
        last = (rows[-1][0] & SEQ_MASK) - 1
    return None


def load_latest(tx: Transaction, at: BranchTip, after: int, upto: int, role: str = "") -> dict[int, Message]:
    """Return the latest messages in a range of the log, by place: a batch of them. With `role`, only of that role."""
    found: dict[int, Message] = {}
    for branch, first, last in reversed([*split_by_branch(load_lineage(tx, at.branch), after, upto)]):
        rows = tx.rows(
            "SELECT place, body FROM message WHERE place BETWEEN ? AND ? AND body >= ? AND body < ?"
            f" ORDER BY place DESC LIMIT {LATEST_PER_BATCH - len(found)}",
            make_place(branch, first),
            make_place(branch, last),
            *(_role_bounds(role) if role else (b"", b"\xff")),
        )
        found |= dict(decode_message_rows(tx, rows))
    return found


def _role_bounds(role: str) -> tuple[bytes, bytes]:
    """Return the bounds of the stored bodies of a role. A body begins with its role."""
    return b'{"role":"%b"' % role.encode(), b'{"role":"%b#' % role.encode()


def _between(tx: Transaction, at: BranchTip, after: int, upto: int) -> list[tuple[int, Message]]:
    if upto <= after:
        return []
    rows = tx.rows(
        "SELECT place, body FROM message WHERE place BETWEEN ? AND ? ORDER BY place",
        make_place(at.branch, after + 1),
        make_place(at.branch, upto),
    )
    if len(rows) < upto - after:  # the range begins on a parent branch
        rows = [
            row
            for branch, first, last in split_by_branch(load_lineage(tx, at.branch), after, upto)
            for row in tx.rows(
                "SELECT place, body FROM message WHERE place BETWEEN ? AND ? ORDER BY place",
                make_place(branch, first),
                make_place(branch, last),
            )
        ]
    return decode_message_rows(tx, rows)


def load_messages_at(tx: Transaction, places: Iterable[int]) -> dict[int, Message]:
    """Return messages by place."""
    wanted, found = list(places), dict[int, Message]()
    for start in range(0, len(wanted), BLOCK_SIZE):
        some = wanted[start : start + BLOCK_SIZE]
        marks = ", ".join("?" * len(some))
        rows = tx.rows(f"SELECT place, body FROM message WHERE place IN ({marks})", *some)
        found |= dict(decode_message_rows(tx, rows))
    return found
