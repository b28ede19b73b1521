"""The passes of a compilation, in order. Each is a function from a draft to a draft."""

from collections.abc import Callable
from typing import TypeAlias

from contextc.draft import Draft
from contextc.passes.choose_view import choose_view
from contextc.passes.fit_budget import fit_budget
from contextc.passes.mark_cache import mark_cache
from contextc.passes.place_fragments import place_fragments
from contextc.passes.verify import verify

__all__ = ["PASSES", "Pass", "choose_view", "fit_budget", "mark_cache", "place_fragments", "verify"]

Pass: TypeAlias = Callable[[Draft], Draft]
PASSES: tuple[Pass, ...] = (choose_view, place_fragments, fit_budget, mark_cache, verify)
