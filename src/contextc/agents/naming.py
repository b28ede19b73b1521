"""Names for conversations that nobody named: by the time they were begun."""

from collections.abc import Iterator
from datetime import datetime
from itertools import count


def names_by_time() -> Iterator[str]:
    """The time, then the time with a number behind it, for as long as those before are taken."""
    first = f"{datetime.now():%Y-%m-%d-%H%M%S}"
    yield first
    for number in count(2):
        yield f"{first}-{number}"
