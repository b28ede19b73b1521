"""The part of an unchanged prefix that the provider did not read from its cache, by the usage that it reported.

An unchanged prefix is not always cheap: its cache may have expired, or another server answered. Then it is paid again.
"""

from collections.abc import Sequence
from itertools import accumulate, pairwise

from contextc.compiler.past_requests import find_channel_model
from contextc.inspection.request_details import RequestDetails

MIN_DIFFERENCE, MIN_SHARE = 256, 0.1
"""Tokens, and share of the prefix, by which it must exceed what was read. Providers read whole blocks, and the tokens
of messages are estimated.
"""


def count_read_tokens(request: RequestDetails) -> int | None:
    """Return the tokens of the shared prefix that the provider read from its cache.

    None if that is unknown: without a shared prefix, without usage of this request and the previous one, and for models
    that cost nothing. A previous request that failed was not paid.
    """
    read, shared = _count_all_read(request), request.shared_tokens
    if read is None or not shared:
        return None
    if read and shared - read <= max(MIN_DIFFERENCE, shared * MIN_SHARE):
        return shared
    return min(read, shared)


def _count_all_read(request: RequestDetails) -> int | None:
    """Return the tokens of a request that were read from the cache, in the units of its budget."""
    usage, known = request.record.usage, find_channel_model(request.channel)
    is_free = known is not None and (known.price is None or not known.price.input)
    if usage is None or not usage.input or is_free or not request.was_answered:
        return None
    return round(usage.cache_read * request.budget.input / usage.input)


def find_paid_again(request: RequestDetails, head: Sequence[int] = ()) -> frozenset[int]:
    """Return the numbers of the lines in the shared prefix that were not read from the cache.

    `head` are the tokens of the lines of the head, whose numbers are negative. If the head changed, lines of it before
    the change can be unchanged, too.
    """
    read = count_read_tokens(request) if request.shared_tokens else _count_all_read(request)
    if read is None or (request.shared_tokens and read >= request.shared_tokens):
        return frozenset()
    lines = [*accumulate(head, initial=0)]
    messages = [*accumulate(request.tokens[: request.shared], initial=request.above)]
    middles = [(one + other) / 2 for one, other in (*pairwise(lines), *pairwise(messages))]
    return frozenset([index - len(head) for index, middle in enumerate(middles) if middle >= read])
