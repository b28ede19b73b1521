"""The `tools` fragment: tool definitions as text, for providers without native tools. Added only by name.

The tools are sorted by name, so that the order in which a program collects them does not change the prompt
(qwen-code#6338).
"""

from contextc._json import encode_canonical
from contextc.prompts.fragment import PromptContext, PromptFragment
from contextc.tools import Tool


def render_tools(surroundings: PromptContext) -> str | None:
    tools = sorted((tool for tool in surroundings.tools if isinstance(tool, Tool)), key=lambda tool: tool.name)
    if not tools:
        return None
    return "\n\n".join(["You have these tools. Their arguments are JSON objects.", *map(_tool_text, tools)])


def _tool_text(tool: Tool) -> str:
    lines = [f"### {tool.name}", tool.description.strip()]
    lines += [f"Arguments, as JSON Schema: {encode_canonical(tool.parameters).decode()}"] if tool.parameters else []
    return "\n".join(filter(None, lines))


TOOLS = PromptFragment("tools", render_tools, priority=30)
