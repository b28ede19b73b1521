"""Requests that begin together with the same prefix, such as sub-agents: one of them has to write it."""

from collections.abc import Collection, Iterable, Iterator

from contextc.analysis.cache_model import CACHING_STATUSES, CacheModel, CacheOutlook
from contextc.analysis.cache_rules import CacheRules
from contextc.analysis.changed_text import ATTRIBUTION
from contextc.analysis.miss_case import scope_of
from contextc.analysis.request_view import RequestView

MAX_ATTRIBUTION = 500
"""The bytes of a system block from which on it is more than an attribution line."""


def compare_with_overlapping(
    rules: CacheRules, now: RequestView, others: Iterable[RequestView], ignored: Collection[str] = ()
) -> CacheOutlook:
    """Return what the first request of a channel could read from requests of other channels that are being answered.

    Of equal times, the one that was recorded first counts. Of several that share as much, it is compared with the one
    that began first. `ignored` are the paths of system blocks that the provider leaves out of its prefix.
    """
    earlier = [each for each in others if is_answered_during(each, now) and scope_of(each) == scope_of(now)]
    model = CacheModel({*ignored, *_find_attribution(rules, now)})
    for other in sorted(earlier, key=_order, reverse=True):
        model.add_single(rules, other)
    return model.expect(rules, now)


def _find_attribution(rules: CacheRules, request: RequestView) -> Iterator[str]:
    """Return the paths of attribution lines that a provider is known to leave out. Each sub-agent may have its own."""
    if rules.ignores_attribution:
        for element in request.system.elements:
            if len(element.raw) < MAX_ATTRIBUTION and ATTRIBUTION.search(element.text):
                yield element.suffix


def is_answered_during(other: RequestView, now: RequestView) -> bool:
    """Return True if a request began before another one, and was still being answered when that began."""
    if other.status not in CACHING_STATUSES or other.is_without_answer:
        return False
    return _order(other) < _order(now) and now.began < other.ended


def _order(request: RequestView) -> tuple[int, int]:
    return request.began, request.channel_number
