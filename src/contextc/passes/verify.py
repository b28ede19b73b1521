"""Closes the draft: what must be true of a tail, whatever the log held. It changes nothing.

A broken promise here is a defect of ours, and is raised before a byte leaves.
"""

from collections.abc import Sequence

from contextc.draft import Draft
from contextc.ledger.items import Item


def verify(draft: Draft) -> Draft:
    _check_once([entry.item for entry in draft.tail])
    if draft.kept is not None:
        _check_once(draft.kept)
    assert draft.budget.used <= draft.budget.available or draft.resume, "a request over its budget was about to leave"
    return draft


def _check_once(items: Sequence[Item]) -> None:
    shown = [(item.place, item.only) for item in items if item.place and item.kind == "message"]
    assert len(shown) == len(set(shown)), "a message was about to be shown twice"
