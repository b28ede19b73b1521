"""The traces of the half `tune`, on which rules may be developed.

The order of the topics is part of the traces: the subject of a case follows from its number.
"""

from tests.analysis.traces.case_builder import Cases
from tests.analysis.traces.tune import (
    breakpoints,
    compaction_and_parallel,
    hits,
    messages,
    provider_limits,
    recorded_sessions,
    settings_and_expiry,
    sub_agents,
    system_and_tools,
)

TUNE = Cases("tune", ("warehouse", "shop", "compiler"))
for _topic in (
    system_and_tools,
    messages,
    settings_and_expiry,
    breakpoints,
    compaction_and_parallel,
    provider_limits,
    hits,
    recorded_sessions,
    sub_agents,
):
    _topic.add_cases(TUNE)
