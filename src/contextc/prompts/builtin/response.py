"""The `response` fragment: the recipient of the answer."""

from contextc.prompts.escape import one_line
from contextc.prompts.fragment import PromptFragment, Surroundings


def render(surroundings: Surroundings) -> str | None:
    name = one_line(surroundings.responding_to or "").removeprefix("@")
    return f"Your response will be sent to @{name}." if name else None


FRAGMENT = PromptFragment("response", render, "dynamic", priority=20)
