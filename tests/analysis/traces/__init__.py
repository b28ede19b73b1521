"""Labelled traces: requests to providers with simulated caches, and the cause of each cache miss.

`load("tune")` and `load("report")` are the two halves. Rules are developed on the first one only. `load("fresh")` and
`load("check")` are later sets with other scenarios, written without knowledge of the rules. Their cases are in
tests/data/traces.
"""

from functools import cache

from tests.analysis.traces.case_builder import build_traces
from tests.analysis.traces.trace import CAUSES, Exchange, Trace

HALVES = ("tune", "report")
SETS = (*HALVES, "fresh", "check")

__all__ = ["CAUSES", "HALVES", "SETS", "Exchange", "Trace", "load"]


@cache
def load(half: str) -> list[Trace]:
    """Return the traces of a half, or of a later set."""
    if half not in SETS:
        raise ValueError(f"half must be one of {', '.join(SETS)}, got {half!r}.")
    return build_traces(half)
