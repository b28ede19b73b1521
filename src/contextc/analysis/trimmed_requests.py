"""Requests that the compiler or the proxy trimmed, as their manifests record it."""

from collections import Counter
from typing import NamedTuple

from contextc.analysis.request_view import RequestView
from contextc.compiler.manifest import RequestRecord

TRIM_RULE = "fit"
"""The option of the proxy that trims requests."""
OVER_BUDGET = "over budget"
"""The reason for which the compiler begins an epoch with a trimmed context."""
STUB_WORDS = "was left out to save room"
"""Words of the texts that replace trimmed results."""
SUMMED_UP = "summed up"
LEFT_OUT = ("its turn was cut away", "its step was cut away", "cut away", "too long to be shown")
"""The reasons for which trimming leaves out messages, as in a manifest."""


class Trim(NamedTuple):
    """The title and the fix of a finding about a trimmed request."""

    title: str
    fix: str


def describe_trim(request: RequestView, changed: str, *, is_removed: bool) -> Trim | None:
    """Return how a request was trimmed to fit; None if it was not, or if that is not known to be the reason.

    `changed` is the text at the first difference, and `is_removed` is True if messages are missing there. The proxy
    trims each request of a long conversation in the same way, so not every difference in one of them is a trim.
    """
    record = request.record
    if record.observed is None:
        return _describe_own(record) if record.why == OVER_BUDGET else None
    action = next((each for each in record.observed.actions if each.rule == TRIM_RULE and not each.failed), None)
    if action is None or not (is_removed or STUB_WORDS in changed):
        return None
    return Trim(
        f"`contextc proxy --fit` trimmed the request to fit the window: {'; '.join(action.changes)}",
        "Let the client compact its history before the window is full, or use a model with a larger window.",
    )


def _describe_own(record: RequestRecord) -> Trim:
    budget, reasons = record.budget, Counter([each.why for each in record.left])
    left, summed = record.skipped + sum([reasons[each] for each in LEFT_OUT]), reasons[SUMMED_UP]
    parts = [
        f"{budget.wanted:,} tokens of messages became {budget.used:,}",
        *([f"{left:,} {'message was' if left == 1 else 'messages were'} left out"] if left else []),
        *([f"a summary replaced {summed:,}"] if summed else []),
    ]
    return Trim(
        f"The compiler trimmed the context to fit the budget: {', '.join(parts)}",
        "Trim rarely, and more at once: lower `low`, the share of the budget that is left, and keep the strategy "
        '"chunked". A larger budget, shorter tool results and summaries make it rarer too.',
    )
