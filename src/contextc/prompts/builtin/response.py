"""The `response` fragment: the recipient of the answer."""

from contextc.prompts.escape import escaped_line
from contextc.prompts.fragment import PromptContext, PromptFragment


def render_response(surroundings: PromptContext) -> str | None:
    name = escaped_line(surroundings.responding_to or "").removeprefix("@")
    return f"Your response will be sent to @{name}." if name else None


RESPONSE = PromptFragment("response", render_response, "dynamic", priority=20)
