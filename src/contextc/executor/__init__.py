"""Run agent turns: prepare a request, call the model, store the reply, run tools, decide whether to continue."""

from contextc._lazy import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from contextc.executor.agent import Agent, AgentResult, AgentRun
    from contextc.executor.agent_config import Suspend
    from contextc.executor.agent_executor import AgentExecutor
    from contextc.executor.limits import Limits
    from contextc.executor.turn import Turn
    from contextc.executor.turn_store import TurnResult

__all__ = ["Agent", "AgentExecutor", "AgentResult", "AgentRun", "Limits", "Suspend", "Turn", "TurnResult"]

if not TYPE_CHECKING:  # or type checkers would accept every name
    __getattr__ = lazy_names(
        __name__,
        {
            "agent": "Agent AgentResult AgentRun",
            "agent_config": "Suspend",
            "agent_executor": "AgentExecutor",
            "limits": "Limits",
            "turn": "Turn",
            "turn_store": "TurnResult",
        },
    )
