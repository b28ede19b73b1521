"""Todos: the agent's list as it stands now. A list that is all done says so, because an older one was shown before."""

from contextc.prompts.escape import escape
from contextc.prompts.fragment import PromptFragment, Surroundings
from contextc.todos import list_todos


def render(surroundings: Surroundings) -> str:
    return escape(list_todos(surroundings.todos))


FRAGMENT = PromptFragment("todos", render, "dynamic", priority=10)
