"""Random histories from every format into every format."""

from collections import Counter
from collections.abc import Sequence

from hypothesis import note

from tests.formats import test_random
from tests.formats.histories import History
from tests.long_runs import Counts
from tests.long_runs.random_histories import each_history

TITLE = "Conversions, from every format into every format"
ABOUT = """\
The same histories, written in one format and converted into each of the others and into itself: the request is sound
there, with the same words in the same order, and every call."""
GOAL = 1_000
COUNTED = "histories"
SHARE = 50
TOGETHER = True


def subjects() -> tuple[str, ...]:
    return test_random.NAMES


def run(subjects: Sequence[str], seed: int, count: int) -> Counts:
    found: Counts = {subject: Counter() for subject in subjects}

    def check(history: History) -> None:
        for subject in subjects:
            note(f"written as {subject}")
            test_random.can_be_converted(test_random.sent(test_random.FORMATTERS[subject], history))
            found[subject].update(histories=1, conversions=len(test_random.NAMES))

    each_history(seed, count, check)
    return found
