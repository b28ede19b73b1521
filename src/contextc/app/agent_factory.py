"""Build an agent: its model, its tools in a folder, its prompt and its triggers."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, TypeAlias

from contextc.app.model_selection import LOCAL_CLIENT, ModelChoice
from contextc.config import PolicyName, read_settings
from contextc.executor import AgentExecutor, Limits
from contextc.executor.agent_config import Approve
from contextc.prompts import PromptBuilder
from contextc.providers import Endpoint, Provider, endpoint
from contextc.store import Store
from contextc.store.conversation_types import DEFAULT_AGENT
from contextc.tools import FunctionTool
from contextc.tools.builtin import command_tool, file_tools, todo_tool
from contextc.tools.builtin.run_command import hide_environment
from contextc.triggers import default_triggers

READ_TOOLS = ("read_file", "list_files", "search_files")
ToolSelection: TypeAlias = Literal["all", "read", "none"]


def build_agent(
    store: Store,
    model: ModelChoice,
    root: Path,
    *,
    agent: str = DEFAULT_AGENT,
    tools: ToolSelection | None = None,
    system: str | None = None,
    budget: int | None = None,
    output: int | None = None,
    policy: PolicyName | None = None,
    limits: Limits | None = None,
    approve: Approve | None = None,
    progress: Callable[[str], object] | None = None,
) -> tuple[AgentExecutor, Endpoint]:
    """Return an agent and its client, which the caller closes. `progress` gets the start-up steps of a local model.

    `policy` replaces the configured one.
    """
    options = {"progress": progress} if model.provider.client == LOCAL_CLIENT and progress is not None else {}
    found = build_tools(choose_tools(model.provider, tools), root)
    settings = read_settings()
    line = endpoint(model.provider, store=store, **model.client_options, **options)
    executor = AgentExecutor(
        store,
        model.provider,
        tools=found,
        triggers=default_triggers(),
        agent=agent,
        fragments=build_prompt(model.provider, found, system),
        directory=str(root),
        budget=budget,
        output=output,
        limits=limits,
        approve=approve,
        endpoint=line,
        session_gap=settings.parse_session_gap(),
        summary_instructions=settings.summary_instructions.value,
        policy=policy or settings.parse_policy(),
    )
    return executor, line


def build_prompt(provider: Provider, tools: Sequence[FunctionTool], system: str | None) -> PromptBuilder:
    """Return the prompt of an agent. `system` replaces the configured system prompt."""
    parts = ["behaviour", "identity", "todos", *(["project"] if tools else [])]
    if provider.runs_tools:  # a coding agent has a system prompt of its own
        parts = ["todos"]
    return PromptBuilder().with_builtin(*parts, system_prompt=system)


def choose_tools(provider: Provider, requested: ToolSelection | None) -> ToolSelection:
    """Return the tools a model gets: those wanted, otherwise all.

    The default is none for the local model, which is too small for tools and slow with long prompts, and none for a
    provider that has tools of its own.
    """
    return requested or ("none" if provider.client == LOCAL_CLIENT or provider.runs_tools else "all")


def build_tools(choice: ToolSelection, root: Path) -> list[FunctionTool]:
    if choice == "none":
        return []
    files = file_tools(root)
    if choice == "read":
        return [*[each for each in files if each.name in READ_TOOLS], todo_tool()]
    hide_environment()
    variables = [name.strip() for name in read_settings().command_environment.value.split(",")]
    return [*files, command_tool(root, variables=variables), todo_tool()]
