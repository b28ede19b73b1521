"""One piece of system prompt, and what its renderer may look at.

A fragment is a frozen value: an id, a text or a function that makes one, when it is shown, and where it stands. Its
shape is checked when it is made, so a mistake is found on the line that made it.
"""

from collections.abc import Callable
from typing import Literal, TypeAlias, get_args

from msgspec import Struct

from contextc.errors import InvalidInput
from contextc.todos import Todo
from contextc.tools import NativeTool, Tool

Lifecycle: TypeAlias = Literal["static", "dynamic"]
DEFAULT_AGENT = "assistant"
MAX_ID = 128


class Delegation(Struct, frozen=True, kw_only=True):
    """Work that was handed to another agent and is not back yet."""

    to: str
    task: str = ""


class AgentCard(Struct, frozen=True, kw_only=True):
    """An agent as others are told about it, and as it is told about itself."""

    name: str
    description: str = ""


class Surroundings(Struct, frozen=True, kw_only=True):
    """What a renderer may look at: where and for whom the prompt is rendered, and how things stand."""

    conversation: str = ""
    agent: str = DEFAULT_AGENT
    provider: str = ""
    model: str = ""
    directory: str | None = None
    project: str | None = None
    """What an agent should know of the project, as text."""
    tools: tuple[Tool | NativeTool, ...] = ()
    todos: tuple[Todo, ...] = ()
    responding_to: str | None = None
    delegations: tuple[Delegation, ...] = ()
    agents: tuple[AgentCard, ...] = ()
    """All agents there are; the one whose prompt this is may be among them."""


Renderer: TypeAlias = Callable[[Surroundings], str | None]


class PromptFragment(Struct, frozen=True):
    """One piece of system prompt: `PromptFragment("identity", "You are a coder.")`.

    `static` ones are shown when a session starts, `dynamic` ones afresh at every turn. A lower `priority` comes first;
    equals stay in the order in which they were given. A renderer that returns None, or blank text, shows nothing.
    """

    id: str
    text: str | Renderer = ""
    lifecycle: Lifecycle = "static"
    priority: int = 100

    def __post_init__(self) -> None:
        if not isinstance(self.id, str) or not self.id.strip() or len(self.id) > MAX_ID or not self.id.isprintable():
            raise InvalidInput(f"{self.id!r} cannot name a prompt fragment: use 1 to {MAX_ID} printable characters.")
        if not isinstance(self.text, str) and not callable(self.text):
            raise InvalidInput(
                f"Prompt fragment {self.id!r}: a {type(self.text).__name__} is neither a text nor a function that "
                "returns one."
            )
        if self.lifecycle not in get_args(Lifecycle):
            raise InvalidInput(
                f"Prompt fragment {self.id!r}: {self.lifecycle!r} is no lifecycle. Use static, or dynamic for what "
                "changes from turn to turn."
            )
        if isinstance(self.priority, bool) or not isinstance(self.priority, int):
            raise InvalidInput(f"Prompt fragment {self.id!r}: priority {self.priority!r} is no whole number.")
