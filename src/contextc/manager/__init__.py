"""MessageManager: a message history in memory or in a store, formatted for a vendor's SDK."""

from contextc.manager.message_manager import HistoryFormatter, MessageManager

__all__ = ["HistoryFormatter", "MessageManager"]
