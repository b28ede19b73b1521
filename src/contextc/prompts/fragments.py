"""Prompt fragments, the context that their renderers get, and the built-in ones.

A fragment is a frozen value: an id, a text or a function that returns one, its lifecycle and its priority. It is
validated when it is created, so that the traceback points to the mistake.
"""

import os
from collections.abc import Callable, Mapping
from typing import Literal, TypeAlias, get_args

from msgspec import Struct

from contextc._json import encode_canonical
from contextc.config import read_settings
from contextc.errors import InvalidInput
from contextc.messages.escaping import escape_markers, escaped_line
from contextc.tools.spec import NativeTool, Tool
from contextc.tools.todos import Todo, format_todos

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


# ── built-in fragments ────────────────────────────────────────────────────────────────────────────────────────────────
# The built-in prompt fragments. They contain state only: an event, such as a reminder, is a message.
#
# - `identity`: the agent's name and description, if it has a card or is not the default agent.
# - `behaviour`: the configured system prompt. It comes first, so that agents of one project share a prompt prefix, and
#   with it the provider's cache. It is not in the table, because its text is configured.
# - `agents`: the other agents, in the order given by the caller.
# - `delegations`: tasks of other agents whose results are pending. A result itself is a message.
# - `project`: the caller's text about the project, and the working directory.
# - `response`: the recipient of the answer.
# - `todos`: the agent's current list. A finished list is rendered too, to replace an older version.
# - `tools`: tool definitions as text, for providers without native tools. Added only by name. The tools are sorted by
#   name, so that the order in which a program collects them does not change the prompt (qwen-code#6338).


def render_identity(surroundings: PromptContext) -> str | None:
    own = next((card for card in surroundings.agents if card.name == surroundings.agent), None)
    if own is None and surroundings.agent == DEFAULT_AGENT:
        return None
    described = f" {own.description}" if own is not None and own.description.strip() else ""
    return f"You are @{surroundings.agent}.{described}"


IDENTITY = PromptFragment("identity", render_identity, priority=10)


def render_agents(surroundings: PromptContext) -> str | None:
    others = [card for card in surroundings.agents if card.name != surroundings.agent]
    return "\n".join(["These agents are available:", *map(_agent_line, others)]) if others else None


def _agent_line(card: AgentCard) -> str:
    description = escaped_line(card.description)
    return f"- @{escaped_line(card.name).removeprefix('@')}{': ' if description else ''}{description}"


AGENTS = PromptFragment("agents", render_agents, "dynamic", priority=40)


def default_system_prompt(*, environment: Mapping[str, str] = os.environ, folder: str | None = None) -> str:
    """Return `CONTEXTC_SYSTEM_PROMPT`, else `system_prompt` of contextc.toml, else the default. Empty means none."""
    return read_settings(environment=environment, folder=folder).system_prompt.value


def behaviour_fragment(text: str) -> PromptFragment:
    return PromptFragment("behaviour", text, priority=0)


def render_delegations(surroundings: PromptContext) -> str | None:
    if not surroundings.delegations:
        return None
    return "\n".join(
        ["You wait for the results of these delegations:", *map(_delegation_line, surroundings.delegations)]
    )


def _delegation_line(delegation: Delegation) -> str:
    task = escaped_line(delegation.task)
    return f"- @{escaped_line(delegation.to).removeprefix('@')}{': ' if task else ''}{task}"


DELEGATIONS = PromptFragment("delegations", render_delegations, "dynamic", priority=30)


def render_project(surroundings: PromptContext) -> str:
    project = surroundings.project if surroundings.project and surroundings.project.strip() else ""
    directory = f"Working directory: {surroundings.directory}" if surroundings.directory else ""
    return "\n\n".join(filter(None, (project, directory)))


PROJECT = PromptFragment("project", render_project, priority=20)


def render_response(surroundings: PromptContext) -> str | None:
    name = escaped_line(surroundings.responding_to or "").removeprefix("@")
    return f"Your response will be sent to @{name}." if name else None


RESPONSE = PromptFragment("response", render_response, "dynamic", priority=20)


def render_todos(surroundings: PromptContext) -> str:
    return escape_markers(format_todos(surroundings.todos))


TODOS = PromptFragment("todos", render_todos, "dynamic", priority=10)


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


BUILTIN_FRAGMENTS = {
    each.id: each
    for each in (
        IDENTITY,
        PROJECT,
        TOOLS,
        TODOS,
        RESPONSE,
        DELEGATIONS,
        AGENTS,
    )
}
ADDED_BY_NAME = {"tools"}
"""Built-in fragments that are added only by name."""
