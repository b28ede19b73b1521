"""kill -9 at random moments of running turns."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.executor import test_killed_turns
from tests.long_runs import Counts

TITLE = "kill -9 in running turns"
ABOUT = """\
A process runs turn after turn, with replies that are streamed and tools that write down when they begin and end. It
is killed at a random moment, and another one continues. At the end no tool that had ended ran again, every call
has one result, turns, steps, events and messages agree, nothing is left open, and every request can be built again."""
GOAL = 300
COUNTED = "kills"
SHARE = 30
TOGETHER = False


def subjects() -> tuple[str, ...]:
    return ("SQLite",)


def run(subjects: Sequence[str], seed: int, count: int) -> Counts:
    with TemporaryDirectory() as folder:
        return {subjects[0]: Counter(test_killed_turns.survives(Path(folder), count, seed))}
