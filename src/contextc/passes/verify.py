"""Check the invariants of a draft. This pass changes nothing.

A violation is a defect of contextc and is raised before anything is sent. It does not use `assert`, which `python -O`
removes.
"""

from collections.abc import Sequence

from contextc.draft import Draft
from contextc.errors import InternalError
from contextc.ledger.items import Item


def verify_draft(draft: Draft) -> Draft:
    _check_once([entry.item for entry in draft.tail])
    if draft.kept is not None:
        _check_once(draft.kept)
    budget = draft.budget
    if budget.used > budget.available and not draft.resume:
        raise InternalError(f"Draft: its messages must fit in {budget.available:,} tokens, got {budget.used:,}")
    return draft


def _check_once(items: Sequence[Item]) -> None:
    shown = [(item.place, item.only) for item in items if item.place and item.kind == "message"]
    if len(shown) != len(set(shown)):
        raise InternalError("Draft: each message must occur once, got a duplicate")
