"""Find the requests of a channel that were being answered at a time, without reading all of them."""

from bisect import bisect_right
from collections.abc import Iterable

from contextc.compiler.ledger import repository
from contextc.compiler.manifest import RequestRecord, record_from_json
from contextc.store.backend_interface import Transaction

LAST, NEAR = 2, 8
"""The numbers of requests at the end of a channel, and around one, that may have been answered at the same time."""


def find_overlapping(
    tx: Transaction, channel: int, count: int, times: Iterable[int]
) -> list[tuple[bytes, RequestRecord]]:
    """Return the manifests of requests that may have been in progress at one of some times, as stored and decoded.

    `count` is the number of requests of the channel. They are stored in the order in which their replies ended, or
    nearly so. Manifests of our own requests have only one time, at which the reply began or ended: of these, the last
    one before a time and the first one after it are returned.
    """
    found: dict[int, tuple[bytes, RequestRecord]] = {}
    first = repository.load_manifests(tx, channel, 1, limit=1)
    seen = record_from_json(first[0]).observed if first else None
    for time in times if count else ():
        if seen is not None and seen.began > time:
            continue
        number = _find_next_end(tx, channel, count, time)
        if number is None and seen is not None:
            continue
        near = repository.load_manifests(tx, channel, min(count, (number or count) + NEAR), limit=2 * NEAR + 1)
        records = [(body, record_from_json(body)) for body in reversed(near)]
        own = [each for each in records if each[1].observed is None]
        before = bisect_right([each[1].time for each in own], time)
        answered = [each for each in records if _is_answered(each[1], time)]
        for body, record in (*answered, *own[max(0, before - 1) : before + 1]):
            found[record.request] = body, record
    return [found[number] for number in sorted(found)]


def _find_next_end(tx: Transaction, channel: int, count: int, time: int) -> int | None:
    """Return the number of the first request whose reply ended after a time; None if there is none."""
    low, high = 1, count
    if not _ended_after(tx, channel, count, time, LAST):
        return None
    while low < high:
        middle = (low + high) // 2
        if _ended_after(tx, channel, middle, time):
            high = middle
        else:
            low = middle + 1
    return low


def _ended_after(tx: Transaction, channel: int, number: int, time: int, limit: int = 1) -> bool:
    """Return True if a request, or one of some up to it, ended after a time."""
    stored = repository.load_manifests(tx, channel, number, limit=limit)
    return any([_end_of(record_from_json(each)) > time for each in stored])


def _end_of(record: RequestRecord) -> int:
    if record.observed is not None:
        return record.observed.ended or record.observed.began
    return record.time


def _is_answered(record: RequestRecord, time: int) -> bool:
    seen = record.observed
    return seen is not None and seen.began <= time < seen.ended
