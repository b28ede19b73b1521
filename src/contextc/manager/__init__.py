"""MessageManager: a message history in memory or in a store, formatted for a vendor's SDK."""

from contextc.manager.custom_formatter import HistoryFormatter
from contextc.manager.message_manager import MessageManager

__all__ = ["HistoryFormatter", "MessageManager"]
