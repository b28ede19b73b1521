"""Prompt fragments, and the context that their renderers get.

A fragment is a frozen value: an id, a text or a function that returns one, its lifecycle and its priority. It is
validated when it is created, so that the traceback points to the mistake.
"""

from collections.abc import Callable
from typing import Literal, TypeAlias, get_args

from msgspec import Struct

from contextc.errors import InvalidInput
from contextc.tools.spec import NativeTool, Tool
from contextc.tools.todos import Todo

Lifecycle: TypeAlias = Literal["static", "dynamic"]
DEFAULT_AGENT = "assistant"
MAX_ID_CHARACTERS = 128


class Delegation(Struct, frozen=True, kw_only=True):
    """A task given to another agent that has not returned a result."""

    to: str
    task: str = ""


class AgentCard(Struct, frozen=True, kw_only=True):
    """The name and description of an agent, for its own prompt and those of other agents."""

    name: str
    description: str = ""


class PromptContext(Struct, frozen=True, kw_only=True):
    """The context of a prompt, as input of a renderer."""

    conversation: str = ""
    agent: str = DEFAULT_AGENT
    provider: str = ""
    model: str = ""
    directory: str | None = None
    project: str | None = None
    """Text about the project for the agent."""
    tools: tuple[Tool | NativeTool, ...] = ()
    todos: tuple[Todo, ...] = ()
    responding_to: str | None = None
    delegations: tuple[Delegation, ...] = ()
    agents: tuple[AgentCard, ...] = ()
    """All agents; may include the one whose prompt is rendered."""


Renderer: TypeAlias = Callable[[PromptContext], str | None]


class PromptFragment(Struct, frozen=True):
    """One part of a system prompt: `PromptFragment("identity", "You are a coder.")`.

    `static` fragments are sent when a session starts, `dynamic` ones are rendered at every turn. Fragments are ordered
    by `priority`, lowest first, then as given. A fragment whose renderer returns None or blank text is omitted.
    """

    id: str
    text: str | Renderer = ""
    lifecycle: Lifecycle = "static"
    priority: int = 100

    def __post_init__(self) -> None:
        if (
            not isinstance(self.id, str)
            or not self.id.strip()
            or len(self.id) > MAX_ID_CHARACTERS
            or not self.id.isprintable()
        ):
            raise InvalidInput(
                f"Prompt fragment: id must have 1 to {MAX_ID_CHARACTERS} printable characters", got=self.id
            )
        if not isinstance(self.text, str) and not callable(self.text):
            raise InvalidInput(
                f"Prompt fragment {self.id!r}: text must be a string or a function that returns one, "
                f"got {type(self.text).__name__}."
            )
        if self.lifecycle not in get_args(Lifecycle):
            raise InvalidInput(
                f'Prompt fragment {self.id!r}: lifecycle must be "static" or "dynamic"',
                got=self.lifecycle,
                fix="Use dynamic for text that changes from turn to turn.",
            )
        if isinstance(self.priority, bool) or not isinstance(self.priority, int):
            raise InvalidInput(f"Prompt fragment {self.id!r}: priority must be an integer", got=self.priority)
