"""The traces of the set `fresh`: written after the rules, by the providers' documents, to measure again."""

from tests.analysis.traces.case_builder import Cases
from tests.analysis.traces.fresh import days, head, history, hits, limits, timing

FRESH = Cases("fresh", ("newsroom", "telescope", "customs"))
for _topic in (head, history, timing, limits, hits, days):
    _topic.add_cases(FRESH)
