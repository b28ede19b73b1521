"""Findings about conversations, own and observed alike: cache misses, what fills the window, failures, and costs."""

from contextc.analysis.conversation_findings import findings
from contextc.analysis.conversation_loader import load_conversation_view
from contextc.analysis.finding import Evidence, Finding
from contextc.analysis.registry import FindingCode, all_codes
from contextc.analysis.request_view import ConversationView, RequestView

__all__ = [
    "ConversationView",
    "Evidence",
    "Finding",
    "FindingCode",
    "RequestView",
    "all_codes",
    "findings",
    "load_conversation_view",
]
