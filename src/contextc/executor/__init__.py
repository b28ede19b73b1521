"""A turn that runs: prepare, call, persist, tools, decide; with system messages in between."""

from contextc.executor.executor import AgentExecutor
from contextc.executor.handle import Turn
from contextc.executor.limits import Limits, TurnResult

__all__ = ["AgentExecutor", "Limits", "Turn", "TurnResult"]
