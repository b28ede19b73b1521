"""The `agents` fragment: the other agents, in the order given by the caller."""

from contextc.prompts.escape import escaped_line
from contextc.prompts.fragment import AgentCard, PromptContext, PromptFragment


def render_agents(surroundings: PromptContext) -> str | None:
    others = [card for card in surroundings.agents if card.name != surroundings.agent]
    return "\n".join(["These agents are available:", *map(_agent_line, others)]) if others else None


def _agent_line(card: AgentCard) -> str:
    description = escaped_line(card.description)
    return f"- @{escaped_line(card.name).removeprefix('@')}{': ' if description else ''}{description}"


AGENTS = PromptFragment("agents", render_agents, "dynamic", priority=40)
