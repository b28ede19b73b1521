"""A session with planted facts in a small window: what the agent's requests still contain of it.

The session and the scripted model are those of `benchmarks/remember.py`, which compares more and longer sessions.
"""

import asyncio
import sys
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"

# Any: the benchmarks are programs, and no package that could be imported by name.


@pytest.fixture
def remember(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sys, "path", [str(BENCHMARKS), str(BENCHMARKS / "frameworks"), *sys.path])
    return import_module("remember")


def test_every_planted_value_occurs_once_in_its_session(remember: Any) -> None:
    """Otherwise a request could contain a fact by chance, or lose one of two."""
    planted: Any = import_module("planted_sessions")
    for kind in planted.KINDS:
        session = planted.build_session(kind, 60)
        text = "\n".join(planted.session_texts(session))
        assert [fact.value for fact in session.facts if text.count(fact.value) != 1] == []
        assert session == planted.build_session(kind, 60)


def test_agent_finishes_a_session_far_larger_than_its_window(remember: Any) -> None:
    """Nothing is refused as too long, no step is lost, and no text goes while results could."""
    case = remember.Case("coding", 30, 8_000)
    with remember.planted_run(case, "extractive", "openai") as (model, desk, assignment):
        asyncio.run(import_module("contextc_agent").openai(assignment))
    row = remember.figures("contextc", case, "extractive", model, desk)
    assert (row.steps, row.refused, row.failures) == (30, 0, ())
    assert row.last[:2] == (1.0, 1.0), "rules of people, findings of the agent"
    assert row.kept_most <= 0.25


@pytest.mark.thorough
def test_constraints_survive_ten_compactions_as_well_as_one(remember: Any) -> None:
    """What the first summary kept is in the input of the next one, and the extractive summarizer keeps it again."""
    cases: Any = import_module("compaction_cases")
    for name, build in cases.CASES.items():
        shown = cases.scores(build(Random(name)), cases.extractive, 10, name).shown
        assert shown[-1] >= shown[0], name
