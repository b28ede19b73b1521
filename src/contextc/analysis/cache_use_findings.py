"""Findings about how a conversation uses the cache as a whole: how long entries are kept, and which cache is asked.

Both are settings of all requests of a channel. So the costs are those of a channel, and overlap with those of the cache
misses of its requests.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from contextc.analysis.cache_misses import compute_cost, iter_cases
from contextc.analysis.cache_model import CacheRules, find_cache_rules, read_field
from contextc.analysis.conversation_loader import StoredConversation
from contextc.analysis.cost_replay import LONG_TTL, RELIABLE_ERROR, SHORT_TTL, is_replayed, replay, set_lifetime
from contextc.analysis.finding import Evidence, Finding, FindingCode, cite, conversation_finding
from contextc.analysis.request_elements import RequestView
from contextc.inspection.prefix_break import MISSED_TOKENS
from contextc.models.billing import Bill
from contextc.models.model_info import MILLION

MIN_PAUSES = 2
"""The number of pauses from which on they are usual in a conversation."""
MIN_REQUESTS = 8
"""The number of requests from which on it means something that there was no pause."""
SAVED_SHARE = 0.1
"""The share of the cost that another lifetime must have saved."""
MIN_REPEATED = 4
"""The number of requests that should have read the cache, from which on it means something that they did not."""
LOW_SHARE = 0.5
MAX_EVIDENCE = 20
LIFETIME_FIELDS = {"bedrock": '"cachePoint": {"type": "default", "ttl": "%s"}'}
LIFETIME_FIELD = '"cache_control": {"type": "ephemeral", "ttl": "%s"}'


# ── USE001 ────────────────────────────────────────────────────────────────────────────────────────────────────────────


class _OtherLifetime(NamedTuple):
    """Dollars that another lifetime would have saved, and tokens that it would have read or written for less."""

    saved: float
    tokens: int
    words: str
    places: Sequence[Evidence]


@conversation_finding(
    "USE001",
    "cache_lifetime",
    title="Cache entries are not kept as long as the pauses between requests need",
    fix="Set the lifetime that fits at the breakpoints: an hour where pauses of five minutes to an hour are usual, "
    'five minutes where requests follow each other. An agent of contextc takes `cache="1h"`. In a program of '
    "others, only its makers can do that.",
)
def cache_lifetimes(view: StoredConversation, code: FindingCode) -> Iterator[Finding]:
    """Anthropic and Bedrock keep what a request writes for five minutes, or, at a higher price, for an hour. The
    finding compares what a channel cost with what it would have cost with the other lifetime.

    Recognised: breakpoints of five minutes only, at least 2 pauses of five minutes to an hour, and a replay
    ([what if](#what-if)) in which one-hour entries save at least 10 % of the cost and 1,024 tokens; the replay of the
    requests as they were must be reliable. Or breakpoints of an hour only, at least 8 requests, none after a pause of
    five minutes, and writes after the first request that would have cost at least 10 % of everything less. What the
    first request writes may be there for other conversations, so it does not count.
    """
    for run in view.runs:
        requests = run.accepted(is_replayed)
        rules = find_cache_rules(requests[0]) if requests else None
        if rules is None or not rules.explicit or not {SHORT_TTL, LONG_TTL} <= rules.ttl.keys():
            continue
        if any([each.price is None or each.price.cache_write_long is None for each in requests]):
            continue
        lives = {rules.lifetime(ttl) for ttl in set[str]().union(*[each.marks.values() for each in requests])}
        ttl, find = (LONG_TTL, _find_longer) if lives == {rules.ttl[SHORT_TTL]} else (SHORT_TTL, _find_shorter)
        found = find(requests, rules) if lives == {rules.ttl[SHORT_TTL]} or lives == {rules.ttl[LONG_TTL]} else None
        if found is None:
            continue
        is_lower_bound = any([each.cost_is_lower_bound for each in requests])
        paid = sum([each.cost or 0.0 for each in requests])
        costs = [Bill(each, is_lower_bound) for each in (paid - found.saved, paid)]
        field = LIFETIME_FIELDS.get(requests[0].format, LIFETIME_FIELD) % ttl
        fix = f"Write `{field}` at the breakpoints. In a program of others, only its makers can do that."
        if requests[0].observed is None:
            fix = f'Pass `cache="{ttl}"` to the agent or the compiler.'
        yield code.make(
            view.name,
            found.places[:MAX_EVIDENCE],
            tokens=found.tokens,
            cost=found.saved,
            title=f"{found.words}: with {ttl} in place of {SHORT_TTL if ttl == LONG_TTL else LONG_TTL}, the requests "
            f"would have cost {costs[0]} instead of {costs[1]}",
            fix=fix,
            confidence=0.8 if ttl == LONG_TTL else 0.6,
        )


def _find_longer(requests: Sequence[RequestView], rules: CacheRules) -> _OtherLifetime | None:
    """Return what entries of an hour would have saved; None if they would not have paid."""
    pauses = [(now, now.began - before.ended) for before, now in pairwise(requests)]
    late = [(now, pause) for now, pause in pauses if rules.ttl[SHORT_TTL] < pause <= rules.ttl[LONG_TTL]]
    if len(late) < MIN_PAUSES:
        return None
    paid, base = sum([each.cost or 0.0 for each in requests]), replay(requests)
    other = replay(requests, lambda some: set_lifetime(some, LONG_TTL))
    saved, tokens = base.cost - other.cost, other.read - base.read
    is_reliable = abs(base.cost - paid) <= RELIABLE_ERROR * paid
    if not is_reliable or saved < SAVED_SHARE * paid or tokens < MISSED_TOKENS:
        return None
    places = [cite(now, after=f"{pause / 60_000:,.1f} minutes without a request") for now, pause in late]
    return _OtherLifetime(saved, tokens, f"{len(late):,} pauses of five minutes to an hour", places)


def _find_shorter(requests: Sequence[RequestView], rules: CacheRules) -> _OtherLifetime | None:
    """Return what entries of five minutes would have saved. Without a pause, the same would have been read."""
    pauses = [now.began - before.began for before, now in pairwise(requests)]
    if len(requests) < MIN_REQUESTS or max(pauses) >= rules.ttl[SHORT_TTL]:
        return None
    saved, tokens = 0.0, 0
    for each in requests[1:]:
        price, long = each.price, each.usage.cache_write_long if each.usage is not None else 0
        if price is not None and price.cache_write_long is not None:
            saved += long * (price.cache_write_long - price.cache_write) / MILLION
            tokens += long
    if saved < SAVED_SHARE * sum([each.cost or 0.0 for each in requests]) or tokens < MISSED_TOKENS:
        return None
    place = cite(requests[-1], after=f"the longest pause: {max(pauses) / 60_000:,.1f} minutes")
    return _OtherLifetime(saved, tokens, f"No pause of five minutes in {len(requests):,} requests", [place])


# ── USE002 ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@conversation_finding(
    "USE002",
    "cache_key_missing",
    title="Requests without a cache key read little of what they repeat",
    fix="Send a key that stays the same for a conversation, so that its requests reach one cache.",
)
def missing_cache_keys(view: StoredConversation, code: FindingCode) -> Iterator[Finding]:
    """Some providers spread requests over many machines, each with a cache of its own, and send requests with the same
    key to the same one. OpenAI asks for it from GPT-5.6 on. The cost is what the repeated tokens cost more than reads.

    Recognised: requests to OpenAI (GPT-5.6 and later), xAI or Mistral without the field that names a key; at least 4
    that the rules of the cache expect to read something, of which they read less than half, and 1,024 tokens less than
    expected. Of a provider that does not always report reads, one must be reported. The header of xAI is not stored, so
    it is only known of requests that contextc sent, which have it.
    """
    for run in view.runs:
        rules = find_cache_rules(run.requests[0])
        if rules is None or not rules.keys or not any([_lacks_key(rules, each) for each in run.requests]):
            continue
        cases = [
            each
            for each in iter_cases(view)
            if each.now.channel == run.requests[0].channel and not each.is_first and each.now.usage is not None
            if each.outlook.tokens and _lacks_key(rules, each.now)
        ]
        reads = [min(each.now.usage.cache_read, each.outlook.tokens) if each.now.usage else 0 for each in cases]
        is_reported = rules.reports or any([each.usage.cache_read for each in run.requests if each.usage is not None])
        expected, read = sum([each.outlook.tokens for each in cases]), sum(reads)
        if len(cases) < MIN_REPEATED or not is_reported or read >= LOW_SHARE * expected:
            continue
        if expected - read < MISSED_TOKENS:
            continue
        missed = [(each, each.outlook.tokens - tokens) for each, tokens in zip(cases, reads, strict=True)]
        missed = [(each, tokens) for each, tokens in missed if tokens >= MISSED_TOKENS]
        costs = [compute_cost(each, tokens) for each, tokens in missed]
        key = rules.keys[0]
        where = f"the header `{key}`" if "-" in key else f"`{key}`"
        kind = "without a known cache key" if "-" in key else f"without {where}"
        yield code.make(
            view.name,
            [
                cite(each.now, before=f"expected {each.outlook.tokens:,} tokens", after=f"{tokens:,} were not read")
                for each, tokens in missed[:MAX_EVIDENCE]
            ],
            tokens=sum([tokens for _, tokens in missed]),
            cost=None if None in costs else sum([each or 0.0 for each in costs]),
            title=f"{len(cases):,} requests {kind} read {read / expected:.0%} of {expected:,} tokens that they repeat",
            fix=f"Send {where} with an id of the conversation in each of its requests, so that they reach one cache.",
            confidence=0.4 if "-" in key else 0.6,
        )


def _lacks_key(rules: CacheRules, request: RequestView) -> bool:
    """Return True if a request has no key that is known to be one."""
    if request.observed is None and any(["-" in each for each in rules.keys]):
        return False
    return all([read_field(request.settings, each) is None for each in rules.keys])
