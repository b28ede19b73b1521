"""The `identity` fragment: the agent's name and description, if it has a card or is not the default agent."""

from contextc.prompts.fragment import DEFAULT_AGENT, PromptContext, PromptFragment


def render_identity(surroundings: PromptContext) -> str | None:
    own = next((card for card in surroundings.agents if card.name == surroundings.agent), None)
    if own is None and surroundings.agent == DEFAULT_AGENT:
        return None
    described = f" {own.description}" if own is not None and own.description.strip() else ""
    return f"You are @{surroundings.agent}.{described}"


IDENTITY = PromptFragment("identity", render_identity, priority=10)
