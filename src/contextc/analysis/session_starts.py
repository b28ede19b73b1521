"""A finding about a store: sessions that begin alike but for a detail, so that none reads the cache of another.

Only the first request of each session is read, and of it only the head: system prompt and tools. So the time grows with
the number of sessions, not of messages.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import chain
from typing import NamedTuple

from msgspec.structs import replace

from contextc._sequence_comparison import count_common_ends, count_common_prefix
from contextc.analysis.cache_miss_causes import SIMILAR, compare_elements
from contextc.analysis.cache_model import CACHING_STATUSES, CacheRules, find_cache_rules
from contextc.analysis.cache_neighbours import find_attribution
from contextc.analysis.changed_content import DESCRIPTIONS
from contextc.analysis.conversation_loader import find_channel_facts
from contextc.analysis.finding import Evidence, Finding, RequestPlace, register_code
from contextc.analysis.request_elements import Element, ElementParser, RequestView, Rows
from contextc.compiler import ledger
from contextc.compiler.manifest import RequestRecord, record_from_json
from contextc.errors import StoreCorrupt
from contextc.inspection.line_details import compute_miss_cost
from contextc.inspection.prefix_break import MISSED_SHARE, MISSED_TOKENS
from contextc.store import Store
from contextc.store.ledger_schema import Channel, unpack_record
from contextc.store.transaction_engine import Transaction

BATCH = 200
MIN_SESSIONS, MIN_LOST = 3, 2
DIFFERENT_SHARE = 0.8
"""The share of the sessions that begin differently, from which on that is the rule."""
LOW_SHARE = 0.5
"""The share of what a session could read, up to which its beginning is of no use."""
MAX_GROUPS, MAX_HEADS = 16, 8
"""The numbers of groups of sessions to one model, and of different heads of a group, that are compared."""
PARTS = {"tools": "tool definitions", "system": "a system prompt", None: "a system message"}


class _Start(NamedTuple):
    """The first request of a session without its messages: its elements in cache order, their keys and tokens."""

    request: RequestView
    elements: tuple[Element, ...]
    keys: tuple[bytes, ...]
    tokens: tuple[int, ...]
    rules: CacheRules
    end: int
    """The number of elements that other sessions can read: up to the last breakpoint, where the cache needs one."""


class _Difference(NamedTuple):
    """The tokens that a session could have read of another one, those that it can read as it is, and the first
    difference.
    """

    potential: int
    readable: int
    at: int


class _Lost(NamedTuple):
    """A session that did not read what an earlier one wrote."""

    before: _Start
    now: _Start
    at: int
    tokens: int
    cost: float | None


class _Group:
    """Sessions that have most of their head in common. Of those that lost something, the one that lost most is kept."""

    def __init__(self, first: _Start) -> None:
        self.heads, self.used = [first], first.request.ended
        self.sessions, self.different = {first.request.channel.conversation}, 0
        self.most: _Lost | None = None
        self.lost, self.tokens, self.cost, self.is_lower_bound = 0, 0, 0.0, False
        self.is_priced = False

    def add_loss(self, lost: _Lost) -> None:
        """Add what a session lost."""
        self.lost, self.tokens, self.cost = self.lost + 1, self.tokens + lost.tokens, self.cost + (lost.cost or 0.0)
        self.is_priced = self.is_priced or lost.cost is not None
        self.is_lower_bound = self.is_lower_bound or lost.now.request.cost_is_lower_bound
        if self.most is None or (lost.cost or 0.0, lost.tokens) > (self.most.cost or 0.0, self.most.tokens):
            self.most = lost


def find_session_starts(store: Store, conversations: Sequence[str] | None = None) -> list[Finding]:
    """Return the findings about a store, or about some of its conversations."""
    if conversations is not None and len(conversations) < MIN_SESSIONS:
        return []
    groups: dict[tuple[str, ...], list[_Group]] = {}
    for batch in _iter_batches(store, conversations):
        for start in batch:
            request = start.request
            known = groups.setdefault((*request.scope, request.format), [])
            _add(store, known, start)
    return [each for group in chain.from_iterable(groups.values()) for each in _make_finding(group)]


def starts_differ(group: _Group) -> bool:
    """Sessions to one model begin with almost the same tools and system prompt, and each of them with a detail that no
    other has: the time, the date, a random id. What follows the detail cannot be read from the cache that an earlier
    session wrote, so each session pays for it again. The finding is about a store, and belongs to the session that lost
    most. It names the part that differs, and the sum of what the sessions lost.

    Recognised: by the first request of each session. At least 3 conversations whose heads are alike: half of the head
    is the same. 80 % of them begin with a head that none of the last 8 had. At least 2 began while the cache of an
    earlier one existed, could have read 1,024 tokens more of it, and can read less than half of what they have in
    common. Sessions without a breakpoint in system prompt or tools are not counted where the provider needs one.
    """
    known = len(group.sessions) - 1
    return known + 1 >= MIN_SESSIONS and group.different >= DIFFERENT_SHARE * known and group.lost >= MIN_LOST


CODE = register_code(
    "USE003",
    "session_start_differs",
    title="Each session begins differently, so that none reads what another one cached",
    fix="Keep tools and system prompt the same in all sessions. Put what differs at the end of the system prompt, or "
    "into the first message.",
    description=starts_differ.__doc__,
)


def _make_finding(group: _Group) -> Iterator[Finding]:
    lost = group.most
    if lost is None or not starts_differ(group):
        return
    before, now = (each.request for each in (lost.before, lost.now))
    old = before.at(lost.at).element if lost.at < before.count else None
    new = now.at(lost.at) if lost.at < now.count else None
    change, path = compare_elements(old, new.element if new is not None else None)
    words, fix = DESCRIPTIONS[change.kind]
    part = PARTS[now.head_part_at(lost.at) if lost.at < now.head_ends[1] else None]
    found = CODE.make(
        now.channel.conversation,
        [
            Evidence(
                request=now.number,
                channel=now.channel_id,
                path=(new.path if new is not None else "") + path,
                before=change.before,
                after=change.after,
                compared=RequestPlace(
                    conversation=before.channel.conversation, channel=before.channel_id, request=before.number
                ),
            )
        ],
        tokens=group.tokens,
        cost=group.cost if group.is_priced else None,
        title=f"{group.different + 1:,} of {len(group.sessions):,} sessions begin with {part} of their own"
        + (f": {words}" if change.kind != "text" else ""),
        fix=CODE.fix
        if change.kind == "text"
        else f"{fix} Then sessions read from the cache what an earlier one wrote.",
        confidence=0.8,
    )
    yield replace(found, sessions=len(group.sessions), cost_is_lower_bound=group.is_priced and group.is_lower_bound)


# ── groups of sessions ────────────────────────────────────────────────────────────────────────────────────────────────


def _add(store: Store, groups: list[_Group], now: _Start) -> None:
    """Add a session to the group of those that begin like it. Of groups without a finding, the last ones are kept."""
    name = now.request.channel.conversation
    for group in reversed(groups):
        is_known = any([now.keys == head.keys for head in group.heads])
        found = None if is_known else _compare(group.heads[-1], now)
        if not is_known and found is None:
            continue
        groups.remove(group)
        groups.append(group)
        if name in group.sessions:
            return  # a further channel of the same session
        group.sessions.add(name)
        if found is not None:
            group.different += 1
            if (lost := _find_loss(store, group, found, now)) is not None:
                group.add_loss(lost)
            group.heads = [*group.heads, now][-MAX_HEADS:]
        group.used = max(group.used, now.request.ended)
        return
    groups.append(_Group(now))
    others = [each for each in groups if not starts_differ(each)]
    for each in others[: max(0, len(groups) - MAX_GROUPS)]:
        groups.remove(each)


def _compare(before: _Start, now: _Start) -> _Difference | None:
    """Return what two heads have in common; None if they are not alike."""
    at, known = count_common_prefix(before.keys, now.keys), set(before.keys)
    potential = readable = 0.0
    for index, (element, tokens) in enumerate(zip(now.elements[: now.end], now.tokens, strict=False)):
        if now.keys[index] in known:
            potential += tokens
            continue
        old = before.elements[index] if index < len(before.elements) else None
        if old is None or (old.kind, old.role) != (element.kind, element.role):
            continue
        texts = old.text, element.text
        same, size = count_common_ends(*texts), max(1, *map(len, texts))
        if sum(same) > SIMILAR * size:
            potential += tokens * sum(same) / size
            readable += tokens * same[0] / size if index == at and not now.rules.explicit else 0
    marks = [index + 1 for index, each in enumerate(now.elements[:at]) if each.ttl is not None]
    readable += sum(now.tokens[: max(marks, default=0) if now.rules.explicit else at])
    if potential < max(SIMILAR * sum(now.tokens[: now.end]), now.rules.minimum, MISSED_TOKENS):
        return None
    return _Difference(int(potential), int(readable) if readable >= now.rules.minimum else 0, at)


def _find_loss(store: Store, group: _Group, found: _Difference, now: _Start) -> _Lost | None:
    """Return what a session lost because its head is new; None if no cache of an earlier one existed, or if it has read
    what it could.
    """
    request, before = now.request, group.heads[-1]
    lives = [now.rules.lifetime(each.ttl) for each in now.elements if each.ttl is not None]
    life = max(lives) if now.rules.explicit and lives else now.rules.lifetime("")
    if request.began - group.used > life:
        group.used = max(group.used, _find_last_use(store, before.request))
    if request.began < before.request.began or request.began - group.used > life:
        return None
    read = request.usage.cache_read if request.usage is not None else 0
    tokens = found.potential - max(read, found.readable)
    if tokens < max(MISSED_TOKENS, MISSED_SHARE * found.potential) or found.readable >= LOW_SHARE * found.potential:
        return None
    cost = compute_miss_cost(request.price, request.usage, tokens) if request.usage is not None else None
    return _Lost(before, now, found.at, tokens, cost)


def _find_last_use(store: Store, request: RequestView) -> int:
    """Return the time at which the last request of the same channel ended."""
    stored = store.read(lambda tx: ledger.load_manifests(tx, request.channel_number, limit=1))
    record = record_from_json(stored[0]) if stored else request.record
    return (record.observed.ended or record.observed.began) if record.observed is not None else record.time


# ── first requests ────────────────────────────────────────────────────────────────────────────────────────────────────


FIRST_REQUESTS = (
    "SELECT h.number, h.conversation, h.agent, h.provider, h.model, h.directory, h.state, m.body FROM main.channel h"
    " JOIN main.manifest m ON m.place = h.number * 4294967296 + 1 WHERE {} ORDER BY h.number"
)


def _iter_batches(store: Store, conversations: Sequence[str] | None) -> Iterator[list[_Start]]:
    """Return the first requests of all channels, in the order in which these were recorded."""
    if conversations is not None:
        for first in range(0, len(conversations), BATCH):
            names = conversations[first : first + BATCH]
            where = f"h.conversation IN ({', '.join('?' * len(names))})"
            yield store.read(lambda tx, where=where, names=names: _load_starts(tx, where, names))[0]
        return
    last: int | None = 0
    while last is not None:
        found, last = store.read(lambda tx, last=last: _load_starts(tx, "h.number > ?", [last], f" LIMIT {BATCH}"))
        yield found


def _load_starts(
    tx: Transaction, where: str, values: Sequence[object], limit: str = ""
) -> tuple[list[_Start], int | None]:
    """Return the first requests of some channels, and the largest number of a channel; None if there is none."""
    parser = ElementParser()  # it keeps what it parses
    found: list[_Start] = []
    last: int | None = None
    for number, *name, state, body in tx.rows(FIRST_REQUESTS.format(where) + limit, *values):
        last = number
        with suppress(StoreCorrupt, ValueError):
            record = record_from_json(unpack_record(bytes(body)))
            start = _load_start(tx, parser, number, Channel(*name), state, record)
            if start is not None:
                found.append(start)
    return found, last


def _load_start(
    tx: Transaction, parser: ElementParser, number: int, channel: Channel, state: bytes, record: RequestRecord
) -> _Start | None:
    facts = find_channel_facts(number, channel, ledger.decode_state(channel.conversation, state))
    stored = ledger.load_head(tx, number, bytes.fromhex(record.head)) if record.head else None
    if stored is None:
        return None
    head = parser.head(stored, facts.messages_key)
    counted = replace(record, budget=record.corrected_budget)
    request = RequestView(channel=facts, number=1, record=counted, head=head, rows=Rows(), parser=parser)
    rules = find_cache_rules(request)
    if rules is None or request.status not in CACHING_STATUSES:
        return None
    elements = tuple(chain.from_iterable([each.elements for each in request.head_sections]))
    tokens = tuple(chain.from_iterable([each.tokens for each in request.head_sections]))
    ignored = {*find_attribution(rules, request)}
    keys = tuple([b"" if each.suffix in ignored else each.key for each in elements])
    marks = [index + 1 for index, each in enumerate(elements) if each.ttl is not None]
    end = max(marks, default=0) if rules.explicit else len(elements)
    return _Start(request, elements, keys, tokens, rules, end) if sum(tokens[:end]) >= rules.minimum else None
