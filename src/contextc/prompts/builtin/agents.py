"""The `agents` fragment: the other agents, in the order given by the caller."""

from contextc.prompts.escape import one_line
from contextc.prompts.fragment import AgentCard, PromptFragment, Surroundings


def render(surroundings: Surroundings) -> str | None:
    others = [card for card in surroundings.agents if card.name != surroundings.agent]
    return "\n".join(["These agents are available:", *map(_line, others)]) if others else None


def _line(card: AgentCard) -> str:
    description = one_line(card.description)
    return f"- @{one_line(card.name).removeprefix('@')}{': ' if description else ''}{description}"


FRAGMENT = PromptFragment("agents", render, "dynamic", priority=40)
