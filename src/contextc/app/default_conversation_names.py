"""Default names of conversations, by their start time."""

from collections.abc import Iterator
from datetime import datetime
from itertools import count


def time_based_names() -> Iterator[str]:
    """Yield the current time, then the time with a number appended, until the caller finds an unused name."""
    first = f"{datetime.now():%Y-%m-%d-%H%M%S}"
    yield first
    for number in count(2):
        yield f"{first}-{number}"
