"""Findings about conversations, own and observed alike: cache misses, what fills the window, failures, and costs."""

from contextc.analysis.cache_misses import CacheRead, ConversationCacheReads, cache_reads
from contextc.analysis.conversation_findings import (
    CauseSummary,
    StoreFindings,
    findings,
    group_by_cause,
    store_findings,
)
from contextc.analysis.conversation_loader import load_conversation_view
from contextc.analysis.cost_by_content import ConversationCosts, CostLine, RequestCosts, conversation_costs
from contextc.analysis.cost_replay import Replay, WhatIf, what_if
from contextc.analysis.finding import Evidence, Finding, FindingCode, all_codes
from contextc.analysis.request_elements import ConversationView, RequestView

__all__ = [
    "CacheRead",
    "CauseSummary",
    "ConversationCacheReads",
    "ConversationCosts",
    "ConversationView",
    "CostLine",
    "Evidence",
    "Finding",
    "FindingCode",
    "Replay",
    "RequestCosts",
    "RequestView",
    "StoreFindings",
    "WhatIf",
    "all_codes",
    "cache_reads",
    "conversation_costs",
    "findings",
    "group_by_cause",
    "load_conversation_view",
    "store_findings",
    "what_if",
]
