"""Set cache breakpoints: after the head, after the end of the previous request, and at the end.

A provider's cache checks these positions first, and they are stable from step to step. There are never more than the
provider allows, and none if the request is too short to be cached. Runs after the budget, because marks are positions.

    Before                     After
    system     You are …       system     You are …   ●
    user       Find the bug.   user       Find the bug.
    assistant  calls read      assistant  calls read
    tool       print(1)        tool       print(1)    ●   (the request before ended here)
    assistant  calls test      assistant  calls test
    tool       2 failed        tool       2 failed    ●
"""

from msgspec.structs import replace

from contextc.compiler.draft import CacheMark, Draft


def set_cache_breakpoints(draft: Draft) -> Draft:
    least, budget = draft.provider.model.cache_minimum, draft.budget
    if draft.resume or draft.breakpoints_left <= 0 or budget.input < least:
        return draft
    marks: list[CacheMark] = ["end"]
    head = budget.system + budget.tools
    if draft.kept is None and draft.rows and head + draft.standing.tokens >= least:
        marks.append("previous")
    if head >= least:
        marks.append("head")
    return replace(draft, marks=tuple(marks[: draft.breakpoints_left]))
