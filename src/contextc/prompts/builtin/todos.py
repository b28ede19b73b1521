"""The `todos` fragment: the agent's current list. A finished list is rendered too, to replace an older version."""

from contextc.prompts.escape import escape_markers
from contextc.prompts.fragment import PromptContext, PromptFragment
from contextc.todos import format_todos


def render_todos(surroundings: PromptContext) -> str:
    return escape_markers(format_todos(surroundings.todos))


TODOS = PromptFragment("todos", render_todos, "dynamic", priority=10)
