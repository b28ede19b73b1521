"""The passes of a compilation, in order. Each is a function from a draft to a draft."""

from collections.abc import Callable
from typing import TypeAlias

from contextc.compiler.draft import Draft, verify_draft
from contextc.compiler.passes.agent_view import select_agent_view
from contextc.compiler.passes.cache_breakpoints import set_cache_breakpoints
from contextc.compiler.passes.fit_budget import fit_budget
from contextc.compiler.passes.insert_fragments import insert_fragments

__all__ = [
    "PASSES",
    "Pass",
    "fit_budget",
    "insert_fragments",
    "select_agent_view",
    "set_cache_breakpoints",
    "verify_draft",
]

Pass: TypeAlias = Callable[[Draft], Draft]
PASSES: tuple[Pass, ...] = (select_agent_view, insert_fragments, fit_budget, set_cache_breakpoints, verify_draft)
