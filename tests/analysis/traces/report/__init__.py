"""The traces of the half `report`, on which rules are measured. Do not develop rules on them.

The order of the topics is part of the traces: the subject of a case follows from its number.
"""

from tests.analysis.traces.case_builder import Cases
from tests.analysis.traces.public_cases import add_public_cases
from tests.analysis.traces.report import (
    breakpoints,
    compaction_and_parallel,
    hits,
    messages,
    provider_limits,
    recorded_sessions,
    settings_and_expiry,
    several_causes,
    system_and_tools,
)

REPORT = Cases("report", ("clinic", "engine", "claims"))
add_public_cases(REPORT)
for _topic in (
    system_and_tools,
    messages,
    settings_and_expiry,
    breakpoints,
    compaction_and_parallel,
    provider_limits,
    hits,
    several_causes,
    recorded_sessions,
):
    _topic.add_cases(REPORT)
