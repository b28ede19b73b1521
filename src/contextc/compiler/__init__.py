"""Compile stored conversations into model requests, and store the replies."""

from contextc.compiler.compiled import Compiled, Cost
from contextc.compiler.compiler import Attempt, MessageCompiler

__all__ = ["Attempt", "Compiled", "Cost", "MessageCompiler"]
