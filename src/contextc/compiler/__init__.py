"""Compile stored conversations into model requests, and store the replies."""

from contextc._lazy import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from contextc.compiler.commit import Attempt
    from contextc.compiler.compiled import Compiled, Cost
    from contextc.compiler.compiler import MessageCompiler
    from contextc.compiler.ledger.known_sessions import SessionManager
    from contextc.compiler.search_history import HistoryPassage

__all__ = ["Attempt", "Compiled", "Cost", "HistoryPassage", "MessageCompiler", "SessionManager"]

__getattr__ = lazy_names(
    __name__,
    {
        "compiled": "Compiled Cost",
        "commit": "Attempt",
        "compiler": "MessageCompiler",
        "ledger.known_sessions": "SessionManager",
        "search_history": "HistoryPassage",
    },
)
