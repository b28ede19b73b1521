"""Compile stored conversations into model requests, and store the replies."""

from contextc._lazy import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from contextc.compiler.commit import Attempt
    from contextc.compiler.compiler import MessageCompiler
    from contextc.compiler.draft import CompilerOptions
    from contextc.compiler.history import HistoryPassage
    from contextc.compiler.ledger import SessionManager
    from contextc.compiler.step import Compiled, Cost
    from contextc.formats.request_settings import NativeContext

__all__ = [
    "Attempt",
    "Compiled",
    "CompilerOptions",
    "Cost",
    "HistoryPassage",
    "MessageCompiler",
    "NativeContext",
    "SessionManager",
]

if not TYPE_CHECKING:  # or type checkers would accept every name
    __getattr__ = lazy_names(
        __name__,
        {
            "commit": "Attempt",
            "step": "Compiled Cost",
            "compiler": "MessageCompiler",
            "draft": "CompilerOptions NativeContext",
            "ledger": "SessionManager",
            "history": "HistoryPassage",
        },
    )
