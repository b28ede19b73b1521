"""Compile stored conversations into model requests, and store the replies."""

from contextc._lazy import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from contextc.compiler.compiled import Compiled, Cost
    from contextc.compiler.compiler import Attempt, MessageCompiler
    from contextc.compiler.ledger.known_sessions import SessionManager

__all__ = ["Attempt", "Compiled", "Cost", "MessageCompiler", "SessionManager"]

__getattr__ = lazy_names(
    __name__,
    {"compiled": "Compiled Cost", "compiler": "Attempt MessageCompiler", "ledger.known_sessions": "SessionManager"},
)
