"""From a stored conversation to exactly what one model should see, and from its answer back to the record."""

from contextc.compiler.compiled import Compiled, Cost
from contextc.compiler.compiler import Attempt, MessageCompiler

__all__ = ["Attempt", "Compiled", "Cost", "MessageCompiler"]
