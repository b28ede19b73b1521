"""JSON view of what a request would lose, and of what the provider's cache should have of it."""

from msgspec import UNSET, Struct, UnsetType

from contextc.analysis.expected_cache import ExpectedCache


class RepeatedMissView(Struct, frozen=True, kw_only=True):
    """The last `count` requests missed the cache, each of them. The others are code, cause and title of the finding."""

    count: int
    code: str
    cause: str
    title: str


class ExpectedCacheView(Struct, frozen=True, kw_only=True):
    """The part of the next request that the provider's cache should have, by its rules. Lines have prices by it.

    `read` and `written` are tokens. `expired` is true if the cache has expired since: it was used `idle` milliseconds
    ago, and is kept for `life`. `missed` is present if the last requests missed it each time. Then, `paid_again` are
    tokens that were cached, and are paid again, and `dollars` is what they cost more than reading them; null if prices
    are not known.
    """

    read: int
    written: int
    expired: bool
    idle: int
    life: int
    paid_again: int
    dollars: float | None
    missed: RepeatedMissView | UnsetType = UNSET


class CacheLoss(Struct, frozen=True, kw_only=True):
    """Losses of a request against the previous one: cached tokens, and messages whose signed reasoning becomes invalid.

    `dollars` is the cost of writing those tokens to the cache again; null if prices are not known. `cache` is present
    if the rules of the provider's cache are known, and there is a previous request.
    """

    cached_lost: int
    cached_kept: int
    signed_lost: int
    dollars: float | None
    cache: ExpectedCacheView | UnsetType = UNSET


def expected_cache_view(expected: ExpectedCache | None) -> ExpectedCacheView | UnsetType:
    if expected is None:
        return UNSET
    missed = expected.missed
    return ExpectedCacheView(
        read=expected.usage.cache_read,
        written=expected.usage.cache_write,
        expired=expected.is_expired,
        idle=expected.idle,
        life=expected.life,
        paid_again=expected.paid_again,
        dollars=expected.dollars,
        missed=UNSET
        if missed is None
        else RepeatedMissView(count=missed.count, code=missed.code, cause=missed.cause, title=missed.title),
    )
