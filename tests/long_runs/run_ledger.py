"""Random conversations, checked against simulated providers with memory."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.compiler import test_random_conversations
from tests.long_runs import Counts

TITLE = "The ledger: what a model has been shown"
ABOUT = """\
Each run is a life of sixty steps: messages, edits, forks, rewinds, redactions, changes of provider, model, agent,
directory and prompt, calls that fail, processes that die on the way, sessions that are lost, two who compile at once.
Every provider remembers what it was sent and complains about whatever it is told twice, misses, or should not see.
Every request is compiled warm and from a cold start, and both are the same bytes."""
GOAL = 10_000
COUNTED = "runs"
SHARE = 50
TOGETHER = False


def subjects() -> tuple[str, ...]:
    return ("all providers",)


def run(subjects: Sequence[str], seed: int, count: int) -> Counts:
    counts = Counter[str]()
    with TemporaryDirectory() as folder:
        for number in range(seed * count, (seed + 1) * count):
            address = f"sqlite:///{Path(folder) / 'life.db'}" if number % 5 == 0 else "memory:"
            lived = test_random_conversations.whole_life(number, address)
            counts.update(runs=1, steps=test_random_conversations.LENGTH, requests=lived.commits)
    return {subjects[0]: counts}
