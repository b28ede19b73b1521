"""The traces of the set `check`: written after the rules, without knowledge of them, to measure once more."""

from tests.analysis.traces.case_builder import Cases
from tests.analysis.traces.check import conversations, head, hits, limits, timing, whole_sessions

CHECK = Cases("check", ("railway", "orchard", "museum"))
for _topic in (head, conversations, timing, limits, hits, whole_sessions):
    _topic.add_cases(CHECK)
