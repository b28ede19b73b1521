"""MessageManager: a history in memory or on a store, in the shape that a vendor's own SDK takes."""

from contextc.manager.manager import MessageManager
from contextc.manager.own_format import HistoryFormatter

__all__ = ["HistoryFormatter", "MessageManager"]
