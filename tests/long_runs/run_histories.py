"""Random histories in every format: checked by our rules, the vendor's types, and a round trip."""

from collections import Counter
from collections.abc import Sequence
from zlib import crc32

from hypothesis import note

from tests.formats import test_random
from tests.formats.histories import History
from tests.long_runs import Counts
from tests.long_runs.random_histories import each_history

TITLE = "Random histories in every format"
ABOUT = """\
Messages as a log may hold them: calls without results and results without calls, ids twice, blank texts, media,
reasoning of other vendors, native blocks, cancelled replies, and continued recordings. Each is written in every
format, with a system prompt, tools and settings, and every request is held against our rules and against the history:
every word once and in order, every call with its arguments and its result, reasoning to its own vendor alone; encoded
piece by piece as in one go; decoded and encoded again without a trace. One in five, as its bytes fall, is also held
against the vendor's own types and validators, which take more time than everything else."""
GOAL = 100_000
COUNTED = "histories"
SHARE = 500
TOGETHER = True
CHECKS = (
    test_random.keeps_the_rules,
    test_random.tells_every_word_once,
    test_random.keeps_every_call,
    test_random.keeps_reasoning_apart,
    test_random.is_encoded_segment_by_segment,
    test_random.changes_nothing_given,
    test_random.comes_back_the_same,
)
TYPED = 5
"""Of how many requests one is held against the vendor's types."""


def subjects() -> tuple[str, ...]:
    return tuple(test_random.FORMATTERS)


def run(subjects: Sequence[str], seed: int, count: int) -> Counts:
    found: Counts = {subject: Counter() for subject in subjects}

    def check(history: History) -> None:
        for subject in subjects:
            note(f"written as {subject}")
            made = test_random.sent(test_random.FORMATTERS[subject], history)
            for each in CHECKS:
                each(made)
            typed = crc32(test_random.text_of(made.body).encode(errors="replace")) % TYPED == 0
            if typed:
                test_random.has_the_vendors_types(made)
            calls = len(test_random.pieces(made, "call"))
            found[subject].update({"histories": 1, "calls": calls, "held against types": int(typed)})

    each_history(seed, count, check)
    return found
