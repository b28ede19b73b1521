"""MessageManager: a message history in memory or in a store, formatted for a vendor's SDK."""

from contextc.manager.manager import MessageManager
from contextc.manager.own_format import HistoryFormatter

__all__ = ["HistoryFormatter", "MessageManager"]
