"""Build an agent: its model, its tools in a folder, its prompt and its triggers."""

import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qsl

from contextc._json import JSONObject
from contextc.app.agent_choices import AgentChoices, ToolSelection
from contextc.compiler.draft import CompilerOptions
from contextc.config import INVALID_KEY_TEXT, is_variable_name, read_settings
from contextc.errors import InvalidSetting
from contextc.executor import AgentExecutor, Limits
from contextc.executor.agent_config import Approve
from contextc.instruction_files import InstructionFiles, ReadFiles, Skills, find_skill_folders
from contextc.mcp.config_files import ConfiguredServers, choose_servers, find_servers
from contextc.prompts import PromptBuilder
from contextc.providers import Endpoint, Provider, endpoint, provider
from contextc.providers.registry import has_url, unknown_provider_message
from contextc.store import Store
from contextc.tools import FunctionTool
from contextc.tools.builtin import command_tool, file_tools, todo_tool
from contextc.tools.builtin.run_command import hide_environment

# ── the model ─────────────────────────────────────────────────────────────────────────────────────────────────────────
# Select the model: the named one, otherwise the configured one, otherwise the local one.
#
# `replay:FILE` replies from recordings. Options may follow: the format of the recordings, as in
# `replay:FILE?format=anthropic`, and the seconds between two events, as in `replay:FILE?seconds=0.1`.


LOCAL_CLIENT = "local"
PLACEHOLDER_WINDOW = 1 << 30  # a placeholder, so that the provider is checked before the context window is looked up
REPLAY_PREFIX = "replay:"
REPLAY_WINDOW, REPLAY_OUTPUT = 32_000, 4_000
REPLAY_OPTIONS = ("format", "window", "output", "model", "seconds")


class ModelChoice(NamedTuple):
    """A provider, the options of its client, and a remark about the choice for the user."""

    provider: Provider
    client_options: dict[str, object]
    remark: str = ""


def resolve_model(
    name: str | None, *, url: str | None = None, window: int | None = None, key: str | None = None
) -> ModelChoice:
    spec = (name or read_settings().model.value).strip()
    given = {"url": url, "window": window, "key": key}
    if key is not None and not is_variable_name(key):
        raise InvalidSetting(f"key {INVALID_KEY_TEXT}")
    if not spec:
        if options := [option for option, value in given.items() if value is not None]:
            raise InvalidSetting(f"{options[0]} requires a model, got none", fix="Name it, as provider:model.")
        found = provider(LOCAL_CLIENT)
        return ModelChoice(
            found,
            {},
            f"No model is configured: using {found.model_id} on this machine. Set CONTEXTC_MODEL to use another.",
        )
    if spec.startswith(REPLAY_PREFIX):
        if url is not None or key is not None:
            raise InvalidSetting("replay: recordings have no url and no key", fix="Omit url and key.")
        return _resolve_replay(spec.removeprefix(REPLAY_PREFIX), window)
    facts: JSONObject = {fact: value for fact, value in (("url", url), ("key", key)) if value is not None}
    _check_callable(spec, provider(spec, window=window or PLACEHOLDER_WINDOW, **facts))
    return ModelChoice(provider(spec, window=window, **facts), {})


def _check_callable(spec: str, found: Provider) -> None:
    """Check that the provider can be called and has this model, before the model's context window is looked up."""
    if not found.client or not has_url(found):
        problem, fix = unknown_provider_message(found.name)
        raise InvalidSetting(problem, fix=fix, case="provider", detail=found.name)
    if found.client == LOCAL_CLIENT and not found.url and not read_settings().local_model.value:
        there = provider(LOCAL_CLIENT)
        if found.model.name != there.model.name:
            raise InvalidSetting(
                f"{spec!r}: the local model is {there.model_id}",
                fix="To use another one, set its GGUF file: CONTEXTC_LOCAL_MODEL=/path/to.gguf, or local_model in "
                "contextc.toml.",
            )


def _resolve_replay(spec: str, window_override: int | None) -> ModelChoice:
    path, _, query = spec.partition("?")
    facts = dict(parse_qsl(query))
    if strange := [fact for fact in facts if fact not in REPLAY_OPTIONS]:
        raise InvalidSetting(f"replay: unknown option {strange[0]!r}", fix=f"Use {', '.join(REPLAY_OPTIONS)}.")
    try:
        window, output = (int(facts[name]) if name in facts else None for name in ("window", "output"))
        seconds = float(facts.get("seconds", 0))
    except ValueError as error:
        raise InvalidSetting(f"replay: invalid option in {query!r}: {error}.") from None
    window = window_override or window
    if "model" not in facts:
        window, output = window or REPLAY_WINDOW, output or REPLAY_OUTPUT
    found = provider(
        f"replay:{facts.get('model') or Path(path).stem}",
        window=window,
        output=output,
        format=facts.get("format"),
        url=path,
    )
    return ModelChoice(found, {"seconds": seconds})


# ── the agent ─────────────────────────────────────────────────────────────────────────────────────────────────────────


READ_TOOLS = ("read_file", "list_files", "search_files")


def build_agent(
    store: Store,
    model: ModelChoice,
    choices: AgentChoices,
    *,
    approve: Approve | None = None,
    progress: Callable[[str], object] | None = None,
) -> tuple[AgentExecutor, Endpoint]:
    """Return an agent and its client, which the caller closes. `progress` gets the start-up steps of a local model."""
    options = {"progress": progress} if model.provider.client == LOCAL_CLIENT and progress is not None else {}
    found = build_tools(choose_tools(model.provider, choices.tools), choices.root)
    settings = read_settings()
    prompt = build_prompt(model.provider, found, choices.system)
    if (files := find_instruction_files(model.provider, choices)) is not None:
        prompt.add(*files.fragments)
    if (skills := find_skills(model.provider, choices)) is not None:
        prompt.add(*skills.fragments)
    policy = choices.policy or settings.parse_policy()
    line = endpoint(model.provider, store=store, **model.client_options, **options)
    executor = AgentExecutor(
        store,
        model.provider,
        tools=found,
        name=choices.agent,
        instructions=prompt,
        directory=str(choices.root),
        max_input_tokens=choices.budget,
        max_output_tokens=choices.output,
        limits=Limits() if choices.steps is None else Limits(steps=choices.steps),
        approve=approve,
        mcp_servers=find_mcp_servers(model.provider, choices).servers,
        endpoint=line,
        session_gap=settings.parse_session_gap(),
        summary_instructions=settings.summary_instructions.value,
        compiler=CompilerOptions(policy=policy),
    )
    return executor, line


def build_prompt(provider: Provider, tools: Sequence[FunctionTool], system: str | None) -> PromptBuilder:
    """Return the prompt of an agent. `system` replaces the configured system prompt."""
    parts = ["behaviour", "identity", "todos", *(["project"] if tools else [])]
    if provider.runs_tools:  # a coding agent has a system prompt of its own
        parts = ["todos"]
    return PromptBuilder().with_builtin(*parts, system_prompt=system)


def reads_instruction_files(provider: Provider, choices: AgentChoices) -> bool:
    """Return True if an agent reads the instruction files of its folder: if it works there, with tools of ours.

    A program with tools of its own reads them itself.
    """
    is_here = choose_tools(provider, choices.tools) != "none" and not provider.runs_tools
    return is_here and read_settings().parse_instruction_files()


def find_instruction_files(provider: Provider, choices: AgentChoices) -> InstructionFiles | None:
    return InstructionFiles(choices.root) if reads_instruction_files(provider, choices) else None


def find_skills(provider: Provider, choices: AgentChoices) -> Skills | None:
    folders = find_skill_folders(choices.root) if reads_instruction_files(provider, choices) else []
    skills = Skills(*folders) if folders else None
    return skills if skills is not None and skills.read().skills else None


def describe_instruction_files(provider: Provider, choices: AgentChoices) -> list[str]:
    """Return a line that names the files and skills that an agent reads, and one for each that it does not."""
    files, skills = find_instruction_files(provider, choices), find_skills(provider, choices)
    read = ReadFiles() if files is None else files.read()
    names = [f"{each.path} (cut)" if each.bytes_left_out else each.path for each in read.files]
    found = () if skills is None else skills.read().skills
    names += [f"{len(found)} {'skill' if len(found) == 1 else 'skills'}"] if found else []
    skipped = [*read.skipped, *(() if skills is None else skills.read().skipped)]
    lines = [f"instructions read from {', '.join(names)}"] if names else []
    lines += [f"not read: {each.path}: {each.reason}" for each in skipped]
    lines += ["`contextc trust` shows what is outside the project, and asks."] if read.pending else []
    return [" ".join(line.split()) for line in lines]


def find_mcp_servers(provider: Provider, choices: AgentChoices) -> ConfiguredServers:
    """Return the MCP servers of an agent. Without a choice, one that has all our tools has all servers."""
    chosen = choices.mcp or ("all" if choose_tools(provider, choices.tools) == "all" else "none")
    return choose_servers(find_servers(choices.root, agent=choices.agent), chosen)


def describe_mcp_servers(provider: Provider, choices: AgentChoices) -> list[str]:
    """Return a line that names the MCP servers of an agent, and one for each that is not started."""
    found = find_mcp_servers(provider, choices)
    lines = [f"MCP servers: {', '.join([each.name for each in found.servers])}"] if found.servers else []
    lines += [f"MCP servers not started: {each}" for each in found.skipped]
    return [" ".join(line.split()) for line in lines]


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
    if sys.platform == "win32":  # it has no process groups
        return [*files, todo_tool()]
    hide_environment()
    variables = [name.strip() for name in read_settings().command_environment.value.split(",")]
    return [*files, command_tool(root, variables=variables), todo_tool()]


# ── names of conversations ────────────────────────────────────────────────────────────────────────────────────────────
# Default names of conversations, by their start time.


def time_based_names() -> Iterator[str]:
    """Yield the current time, then the time with a number appended, until the caller finds an unused name."""
    first = f"{datetime.now():%Y-%m-%d-%H%M%S}"
    yield first
    for number in count(2):
        yield f"{first}-{number}"
