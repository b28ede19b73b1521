"""The `todos` fragment: the agent's current list. A finished list is rendered too, to replace an older version."""

from contextc.prompts.escape import escape
from contextc.prompts.fragment import PromptFragment, Surroundings
from contextc.todos import list_todos


def render(surroundings: Surroundings) -> str:
    return escape(list_todos(surroundings.todos))


FRAGMENT = PromptFragment("todos", render, "dynamic", priority=10)
