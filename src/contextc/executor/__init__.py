"""Run agent turns: prepare a request, call the model, store the reply, run tools, decide whether to continue.

`AgentExecutor` and `Turn` are imported on first use, because `Limits` needs only a few modules.
"""

from contextc.executor.limits import Limits, TurnResult

TYPE_CHECKING = False
if TYPE_CHECKING:
    from contextc.executor.agent_executor import AgentExecutor
    from contextc.executor.turn_handle import Turn

__all__ = ["AgentExecutor", "Limits", "Turn", "TurnResult"]


def __getattr__(name: str) -> object:
    if name == "AgentExecutor":
        from contextc.executor.agent_executor import AgentExecutor

        return AgentExecutor
    if name == "Turn":
        from contextc.executor.turn_handle import Turn

        return Turn
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
