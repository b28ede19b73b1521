"""Agent identity: who the model is, where that has a name of its own or a card."""

from contextc.prompts.fragment import DEFAULT_AGENT, PromptFragment, Surroundings


def render(surroundings: Surroundings) -> str | None:
    own = next((card for card in surroundings.agents if card.name == surroundings.agent), None)
    if own is None and surroundings.agent == DEFAULT_AGENT:
        return None
    described = f" {own.description}" if own is not None and own.description.strip() else ""
    return f"You are @{surroundings.agent}.{described}"


FRAGMENT = PromptFragment("identity", render, priority=10)
