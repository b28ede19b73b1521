"""Predicted cache reads: those of sent requests, beside what was reported, and those of the next one."""

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from contextc.analysis.cache_misses import explain_miss, find_ignored_blocks, iter_cases
from contextc.analysis.cache_model import (
    CACHING_STATUSES,
    CacheBranch,
    CacheModel,
    CacheRules,
    count_readable_tokens,
    find_cache_rules,
)
from contextc.analysis.conversation_loader import load_conversation_view, load_request_views
from contextc.analysis.request_elements import ElementParser, Rows
from contextc.analysis.request_view import ConversationView, RequestView, with_long_writes
from contextc.compiler.manifest import ObservedFacts, RequestRecord
from contextc.compiler.row_encoding import NewRow
from contextc.compiler.step import Compiled
from contextc.inspection.line_details import compute_miss_cost
from contextc.messages import Usage
from contextc.store import Store
from contextc.store.ledger_schema import StoredRow

# ── sent requests ─────────────────────────────────────────────────────────────────────────────────────────────────────
# Cache reads of each request: what the provider's cache rules predict, beside what the provider reported.


class CacheRead(Struct, frozen=True, kw_only=True):
    """The cache reads of one request, in tokens.

    `possible` could have been read if nothing had changed since an earlier request, and `expected` is what the cache
    rules of the provider predict. `reported` is None if the provider reported no usage. `cause` is the cause of a cache
    miss, "" if there is none; `provider_missed` if the rules do not explain the difference.
    """

    request: int
    channel: str
    provider: str
    input: int
    possible: int
    expected: int
    reported: int | None
    cause: str


class ConversationCacheReads(Struct, frozen=True, kw_only=True):
    """The cache reads of a conversation, in the order of its requests. Requests that use no cache are left out."""

    conversation: str
    requests: tuple[CacheRead, ...]


def cache_reads(store: Store, conversation: str) -> ConversationCacheReads:
    """Return what each request of a conversation should have read from the cache, and what was reported.

    Raises `UnknownConversation`.
    """
    return list_cache_reads(load_conversation_view(store, conversation))


def list_cache_reads(view: ConversationView) -> ConversationCacheReads:
    reads: list[CacheRead] = []
    for case in iter_cases(view):
        found = explain_miss(case)
        reads.append(
            CacheRead(
                request=case.now.number,
                channel=case.now.channel_id,
                provider=case.now.channel.provider,
                input=case.now.input,
                possible=case.potential,
                expected=case.outlook.tokens,
                reported=case.read if case.is_reported else None,
                cause=found[0].cause if found is not None else "",
            )
        )
    return ConversationCacheReads(conversation=view.name, requests=tuple(reads))


# ── the next request ──────────────────────────────────────────────────────────────────────────────────────────────────


RECENT = 6
"""The number of last requests that are compared. Each is compared with the one before it."""
MIN_MISSES = 2
PASSING = ("first_request", "below_minimum", "model_changed", "compacted", "cache_expired", "parallel_request")
"""Causes of a miss that do not show that the next request will miss, too."""
END = 1 << 31


class RepeatedMiss(Struct, frozen=True, kw_only=True):
    """The last requests missed the cache, each of them. `code`, `cause` and `title` are those of the last miss, and
    `read` are the most tokens that one of them read.
    """

    count: int
    code: str
    cause: str
    title: str
    read: int


class ExpectedCache(Struct, frozen=True, kw_only=True):
    """The cache of a request that was not sent. `usage` is what the provider is expected to report.

    `paid_again` are tokens that an earlier request wrote to the cache, and that are not expected to be read: it has
    expired, or the last requests missed it each time. `dollars` is what they cost more than reading them; None if the
    price is unknown. `idle` are the milliseconds since the cache was used, and `life` those for which it is kept.
    """

    usage: Usage
    is_expired: bool
    paid_again: int
    dollars: float | None
    idle: int
    life: int
    missed: RepeatedMiss | None


def expect_cache(store: Store, compiled: Compiled, time: int) -> ExpectedCache | None:
    """Return what the cache should have of a request that would be sent at a time, in Unix milliseconds.

    None if that is unknown: for the first request of a channel, a resumed session, and a provider without a known
    cache. Dynamic fragments and everything else that the program changes are taken to stay as they are.
    """
    last = compiled.request - 1
    if not last or compiled.mode != "full":
        return None
    parser = ElementParser()
    numbers = range(max(1, last - RECENT + 1), last + 1)
    recent = load_request_views(store, [(compiled.channel, each) for each in numbers], parser)
    now = _make_view(compiled, recent[-1], parser, time)
    rules = find_cache_rules(now)
    return _expect_read(rules, recent, now) if rules is not None else None


def _make_view(compiled: Compiled, last: RequestView, parser: ElementParser, time: int) -> RequestView:
    """Return a compiled request with the head of the last one, which it repeats."""
    rows = Rows()
    for row in _list_rows(compiled):
        if row.row.drop:
            rows = rows.without_last(row.row.drop, parser.shortened)
        if row.chunk:
            rows = rows.extended([parser.section(row.chunk, row.row.tokens, row.row.items)])
    return last.followed_by(_set_time(compiled.record, last, len(rows.sections), time), rows, parser)


def _list_rows(compiled: Compiled) -> Sequence[StoredRow | NewRow]:
    new, order = compiled.rows.new_rows, compiled.rows.order
    if order is None:
        return [*compiled.snapshot.cached.rows, *new]
    return [new[each] if isinstance(each, int) else each for each in order]


def _set_time(record: RequestRecord, last: RequestView, rows: int, time: int) -> RequestRecord:
    """Return a record with its time. If other software sent the last request, it has breakpoints as that one."""
    facts = last.observed
    if facts is None:
        return replace(record, time=time)
    marks = {row: some for row, some in facts.marks.items() if row < rows}
    if facts.marks and rows:
        *_, (_, text) = facts.marks[max(facts.marks)]
        marks[rows - 1] = ((END, text),)
    return replace(record, observed=ObservedFacts(began=time, ended=time, marks=marks))


def _expect_read(rules: CacheRules, recent: Sequence[RequestView], now: RequestView) -> ExpectedCache:
    model = CacheModel(find_ignored_blocks(recent))
    for each in recent:
        own = find_cache_rules(each)
        if own is not None and each.status in CACHING_STATUSES and not each.is_without_answer:
            model.add(own, each, model.expect(own, each))
    outlook = model.expect(rules, now)
    branch, comparison, read = outlook.branch, outlook.comparison, outlook.tokens
    possible = read
    if comparison is not None:
        possible = count_readable_tokens(rules, comparison, outlook.prefix.unexpired)
    missed = _find_repeated_miss(now.channel.conversation, recent) if read else None
    if missed is not None:
        read = min(read, missed.read)
    usage = _make_usage(rules, now, read)
    return ExpectedCache(
        usage=usage,
        is_expired=_is_expired(branch, now.began),
        paid_again=possible - read,
        dollars=compute_miss_cost(now.price, usage, possible - read),
        idle=now.began - max([each.ended for each in branch.entries]) if branch and branch.entries else 0,
        life=max([each.life for each in branch.entries]) if branch and branch.entries else 0,
        missed=missed,
    )


def _is_expired(branch: CacheBranch | None, time: int) -> bool:
    if branch is None or not branch.entries:
        return False
    return all([each.is_probably_expired(time) for each in branch.entries])


def _find_repeated_miss(conversation: str, recent: Sequence[RequestView]) -> RepeatedMiss | None:
    """Return the misses of the last requests, if each of them missed for a reason that is likely to remain."""
    reads: list[int] = []
    named: tuple[str, str, str] | None = None
    for case in reversed(list(iter_cases(ConversationView(conversation, recent)))):
        found = explain_miss(case) if case.is_reported and not case.is_first else None
        if found is None or found[0].cause in PASSING:
            break
        code, diagnosis = found
        named = named or (code.code, code.cause, diagnosis.title or code.title)
        reads.append(case.read)
    if named is None or len(reads) < MIN_MISSES:
        return None
    code, cause, title = named
    return RepeatedMiss(count=len(reads), code=code, cause=cause, title=title, read=max(reads))


def _make_usage(rules: CacheRules, now: RequestView, read: int) -> Usage:
    """Return the usage of a request that reads some tokens, and writes what follows them up to its last breakpoint."""
    written = 0
    if rules.explicit and now.marks:
        end = min(now.charged_before(max(now.marks) + 1), now.input)
        written = end - read if end >= max(rules.minimum, read) else 0
    return with_long_writes(Usage(input=now.input, cache_read=read, cache_write=written), now.marks)
