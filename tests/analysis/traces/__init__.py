"""Labelled traces: requests to providers with simulated caches, and the cause of each cache miss.

`load("tune")` and `load("report")` are the two halves. Rules are developed on the first one only.
"""

from functools import cache
from importlib import import_module

from tests.analysis.traces.trace import CAUSES, Exchange, Trace

HALVES = ("tune", "report")

__all__ = ["CAUSES", "HALVES", "Exchange", "Trace", "load"]


@cache
def load(half: str) -> list[Trace]:
    """Return the traces of a half."""
    if half not in HALVES:
        raise ValueError(f"half must be tune or report, got {half!r}.")
    cases = getattr(import_module(f"tests.analysis.traces.{half}"), half.upper()).all
    return [case.build() for case in cases]
