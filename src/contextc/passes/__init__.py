"""The passes of a compilation, in order. Each is a function from a draft to a draft."""

from collections.abc import Callable
from typing import TypeAlias

from contextc.draft import Draft
from contextc.passes.choose_view import select_agent_view
from contextc.passes.fit_budget import fit_budget
from contextc.passes.mark_cache import set_cache_breakpoints
from contextc.passes.place_fragments import insert_fragments
from contextc.passes.verify import verify_draft

__all__ = [
    "PASSES",
    "Pass",
    "select_agent_view",
    "fit_budget",
    "set_cache_breakpoints",
    "insert_fragments",
    "verify_draft",
]

Pass: TypeAlias = Callable[[Draft], Draft]
PASSES: tuple[Pass, ...] = (select_agent_view, insert_fragments, fit_budget, set_cache_breakpoints, verify_draft)
