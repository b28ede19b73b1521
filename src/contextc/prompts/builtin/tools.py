"""The `tools` fragment: tool definitions as text, for providers without native tools. Added only by name.

The tools are sorted by name, so that the order in which a program collects them does not change the prompt
(qwen-code#6338).
"""

from contextc._json import canonical
from contextc.prompts.fragment import PromptFragment, Surroundings
from contextc.tools import Tool


def render(surroundings: Surroundings) -> str | None:
    tools = sorted((tool for tool in surroundings.tools if isinstance(tool, Tool)), key=lambda tool: tool.name)
    if not tools:
        return None
    return "\n\n".join(["You have these tools. Their arguments are JSON objects.", *map(_described, tools)])


def _described(tool: Tool) -> str:
    lines = [f"### {tool.name}", tool.description.strip()]
    lines += [f"Arguments, as JSON Schema: {canonical(tool.parameters).decode()}"] if tool.parameters else []
    return "\n".join(filter(None, lines))


FRAGMENT = PromptFragment("tools", render, priority=30)
