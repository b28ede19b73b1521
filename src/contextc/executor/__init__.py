"""Run agent turns: prepare a request, call the model, store the reply, run tools, decide whether to continue."""

from contextc._lazy import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from contextc.executor.agent import Agent
    from contextc.executor.agent_config import Suspend
    from contextc.executor.agent_executor import AgentExecutor
    from contextc.executor.agent_run import AgentResult, AgentRun
    from contextc.executor.limits import Limits
    from contextc.executor.turn_handle import Turn
    from contextc.executor.turn_result import TurnResult

__all__ = ["Agent", "AgentExecutor", "AgentResult", "AgentRun", "Limits", "Suspend", "Turn", "TurnResult"]

__getattr__ = lazy_names(
    __name__,
    {
        "agent": "Agent",
        "agent_config": "Suspend",
        "agent_executor": "AgentExecutor",
        "agent_run": "AgentResult AgentRun",
        "limits": "Limits",
        "turn_handle": "Turn",
        "turn_result": "TurnResult",
    },
)
