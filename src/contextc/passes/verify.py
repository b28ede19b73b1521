"""Closes the draft: what must be true of a tail, whatever the log held. It changes nothing.

A broken promise here is a defect of ours, and is raised before a byte leaves.
"""

from contextc.draft import Draft


def verify(draft: Draft) -> Draft:
    places = [entry.item.place for entry in draft.tail if entry.item.place and entry.item.kind == "message"]
    assert len(places) == len(set(places)), "a message was about to be shown twice"
    if draft.kept is not None:
        kept = [item.place for item in draft.kept if item.place and item.kind == "message"]
        assert len(kept) == len(set(kept)), "a message was about to be shown twice"
    assert draft.budget.used <= draft.budget.available or draft.resume, "a request over its budget was about to leave"
    return draft
