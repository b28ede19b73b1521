"""The request that another one is compared with: the last one before it that was answered.

A provider that refuses a request does not cache it, so what a corrected retry changed was never cached either.
"""

from collections.abc import Sequence
from typing import NamedTuple

from contextc.compiler.ledger import repository
from contextc.compiler.manifest import RequestRecord, record_from_json
from contextc.store.backend_interface import Transaction

BATCH = 16
MISSED_TOKENS, MISSED_SHARE = 1_024, 0.05
"""Tokens, and share of what could have been read, from which on a cache reset has lost something."""


class Retry(NamedTuple):
    """The refused request that another one repeats. `is_corrected` is True if its content is another one."""

    request: int
    is_corrected: bool


def was_refused(record: RequestRecord) -> bool:
    """Return True if a request of other software got an error, or no answer at all."""
    return record.observed is not None and record.observed.status in ("error", "unanswered")


def load_compared_record(tx: Transaction, channel: int, request: int) -> RequestRecord | None:
    """Return the last answered request before one on its channel; if none was answered, the previous one."""
    first: RequestRecord | None = None
    until = request - 1
    while until > 0:
        bodies = repository.load_manifests(tx, channel, until, limit=1 if first is None else BATCH)
        for body in bodies:
            record = record_from_json(body)
            first = first or record
            if not was_refused(record):
                return record
            until = record.request - 1
        if not bodies:
            break
    return first


def find_retried(record: RequestRecord, before: RequestRecord | None) -> Retry | None:
    """Return the refused request that a request repeats: the previous one, with the same content or a corrected one.

    A request that only continues a refused one is none.
    """
    if before is None or not was_refused(before):
        return None
    is_same = (record.head, record.chain) == (before.head, before.chain)
    return Retry(before.request, not is_same) if is_same or record.why else None


def has_lost_cache(record: RequestRecord, before: Sequence[RequestRecord]) -> bool:
    """Return True if a request began a new cache epoch, and did not read what it could have read.

    `before` are the earlier requests of its channel, oldest first. Without figures of the provider, it counts as lost.
    """
    if not record.why:
        return False
    compared = next((each for each in reversed(before) if not was_refused(each)), None)
    if compared is None or compared.usage is None or record.usage is None:
        return True
    possible = min(compared.usage.input, record.usage.input)
    return possible - record.usage.cache_read > max(MISSED_TOKENS, possible * MISSED_SHARE)
