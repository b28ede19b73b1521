"""Findings about conversations, own and observed alike: cache misses, what fills the window, failures, and costs."""

from contextc.analysis.conversation_findings import findings
from contextc.analysis.conversation_loader import load_conversation_view
from contextc.analysis.cost_by_cause import ConversationCosts, CostLine, RequestCosts, conversation_costs
from contextc.analysis.cost_replay import Replay, WhatIf, what_if
from contextc.analysis.finding import Evidence, Finding
from contextc.analysis.findings_by_cause import CauseSummary, StoreFindings, group_by_cause, store_findings
from contextc.analysis.registry import FindingCode, all_codes
from contextc.analysis.request_view import ConversationView, RequestView

__all__ = [
    "CauseSummary",
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
    "conversation_costs",
    "findings",
    "group_by_cause",
    "load_conversation_view",
    "store_findings",
    "what_if",
]
