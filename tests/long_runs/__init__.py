"""Long-running proofs: the same checks as the tests, for an hour. `make prove` runs them.

A proof is a module here: one more is one more file. It has

    TITLE, ABOUT        what the page says of it
    GOAL                how many of each subject there have to be
    COUNTED             what GOAL counts
    SHARE               how many are one piece of work
    TOGETHER            whether one piece of work is for all subjects, or each has its own
    subjects()          what it is tried on: formats, providers, stores
    run(subjects, seed, count)   so many, by this seed; what was counted, by subject. Raises where something is wrong

Pieces of work run in processes of their own. Their figures are added up in `figures.json`, with the commit they were
measured on, and `docs/long-runs.md` is made from that.
"""

from collections import Counter
from collections.abc import Sequence
from importlib import import_module
from pkgutil import iter_modules
from typing import Protocol, TypeAlias, cast

Counts: TypeAlias = dict[str, Counter[str]]
"""What was counted, by subject."""
PREFIX = "run_"


class Proof(Protocol):
    TITLE: str
    ABOUT: str
    GOAL: int
    COUNTED: str
    SHARE: int
    TOGETHER: bool

    def subjects(self) -> tuple[str, ...]: ...

    def run(self, subjects: Sequence[str], seed: int, count: int) -> Counts: ...


def proof_names() -> list[str]:
    return sorted(each.name.removeprefix(PREFIX) for each in iter_modules(__path__) if each.name.startswith(PREFIX))


def proof(name: str) -> Proof:
    return cast(Proof, import_module(f"{__name__}.{PREFIX}{name}"))
