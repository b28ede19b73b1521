"""Preview a compaction: what would be replaced, and what it costs now and later. No model is called."""

from msgspec import Struct

from contextc.compiler.compaction import (
    CompactionContext,
    extend_live,
    max_summary_tokens,
    plan_compaction,
)
from contextc.compiler.summary_request import SummarizerInput
from contextc.messages import Usage
from contextc.models import cost
from contextc.store.message_log import SEQ_MASK

REQUEST_TOKENS = 500
"""Tokens of a separate request for a summary besides the messages."""


class CompactionPreview(Struct, frozen=True, kw_only=True):
    """The effect of a compaction: `messages` messages up to message `upto` would be replaced by a summary.

    Costs are in US dollars, and None if the prices of the model are unknown.
    """

    upto: int
    messages: int
    before: int
    """Tokens of what would be replaced."""
    after: int
    """Tokens that the summary may take."""
    input: int
    """Input tokens of the requests for the summary."""
    cached: int
    """The part of them that the provider can read from its cache."""
    summary_cost: float | None
    """Cost of the requests for the summary."""
    first_cost: float | None
    """Input cost of the first request after it, which is written to the cache anew."""
    cost_before: float | None
    """Input cost of each request without the compaction, if it is read from the cache."""
    cost_after: float | None
    """Input cost of each later request after it, if it is read from the cache."""


def preview_compaction(context: CompactionContext) -> CompactionPreview | None:
    """Return what a compaction would replace, and its cost; None if there is nothing to summarize."""
    messages, planned = plan_compaction(context)
    if planned is None:
        return None
    draft, budget, model = context.whole.draft, context.current.budget, context.current.provider.model
    most = max_summary_tokens(draft.options, model, budget.available, planned.tokens)
    told, cached = planned.tokens + draft.counter.count_system(planned.previous or "") + REQUEST_TOKENS, 0
    asked = SummarizerInput(messages=(), previous=None, max_tokens=most)
    if (live := extend_live(context, messages, planned, asked)) is not None:
        told, cached = live.budget.input, min(live.cost.cached_tokens_kept, live.budget.input)
    later = max(0, budget.input - planned.tokens) + most
    return CompactionPreview(
        upto=planned.anchor & SEQ_MASK,
        messages=len(planned.items),
        before=planned.tokens,
        after=most,
        input=told,
        cached=cached,
        summary_cost=cost(model, Usage(input=told, cache_read=cached, output=most)),
        first_cost=cost(model, Usage(input=later, cache_write=later)),
        cost_before=cost(model, Usage(input=budget.input, cache_read=budget.input)),
        cost_after=cost(model, Usage(input=later, cache_read=later)),
    )
