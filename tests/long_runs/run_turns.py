"""Whole turns with failing providers, through the vendors' own SDKs and with the real programs."""

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.executor import test_random_faults
from tests.fake_vendors import KEY
from tests.long_runs import Counts
from tests.sessions import test_stress
from tests.sessions.cli_agents import PROGRAMS

TITLE = "Turns with failing providers"
ABOUT = """\
A person asks, steers, loses patience and changes the model, while the API is overloaded, lines are cut in the middle
of a reply, credit runs out, and the window is too small for all that is said. The vendors' own SDKs talk to a strict
stand-in of each API on loopback, which refuses what the vendor would refuse; Claude Code and Codex are the real
programs. After every turn the store, the stand-in and the tools are held against each other: nothing is lost, nothing
is doubled, nothing is refused."""
GOAL = 1_000
COUNTED = "turns"
SHARE = 100
TOGETHER = False


LENGTH = 10
"""How many turns a conversation has."""


def subjects() -> tuple[str, ...]:
    return (*test_random_faults.SPECS, *map(str, PROGRAMS))


def run(subjects: Sequence[str], seed: int, count: int) -> Counts:
    (name,) = subjects
    program = next((each for each in PROGRAMS if str(each) == name), None)
    with TemporaryDirectory() as folder:
        if program is not None:
            found = test_stress.restless_turns(program, Path(folder), count, seed=seed)
        else:
            os.environ |= {test_random_faults.VARIABLE: KEY, test_random_faults.WRONG: f"{KEY}-of-somebody-else"}
            found = test_random_faults.run_with_faults(name, Path(folder), count, length=LENGTH, seed=seed)
        return {name: Counter({each: found[each] for each in ("turns", "requests", "faults")})}
