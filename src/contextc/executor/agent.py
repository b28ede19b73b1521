"""Agent: an answer in a few lines. It configures an `AgentExecutor`, and returns the result of a turn as a value.

Everything that it does is a turn of that executor: stored, resumable and compiled in the same way. `agent.executor` is
there for all that needs a turn's handle, such as steering.
"""

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import partial
from secrets import token_hex
from typing import Any, Generic, Literal, Self, TypeAlias, TypeVar, Unpack, cast, overload

from contextc._json import JSON, JSONObject
from contextc.compiler.compaction import CompactionResult
from contextc.compiler.compiler import as_provider
from contextc.compiler.draft import CompilerOptionArguments
from contextc.errors import InvalidInput, InvalidSetting
from contextc.executor import agent_config
from contextc.executor.agent_config import (
    Approve,
    ContextSource,
    PrepareMessages,
    ShouldContinue,
    Summarize,
    Suspend,
    TurnInput,
)
from contextc.executor.agent_executor import AgentExecutor
from contextc.executor.agent_run import AgentResult, AgentRun
from contextc.executor.limits import Limits
from contextc.executor.output_type import OutputType, output_type_of
from contextc.executor.turn_handle import Turn
from contextc.messages import Message
from contextc.prompts import PromptBuilder, PromptFragment
from contextc.providers import Provider
from contextc.providers.client import Endpoint
from contextc.providers.structured_output import accepts_schema, has_structured_output, structured_output_settings
from contextc.store import Store, open_store
from contextc.store.conversation_types import DEFAULT_AGENT
from contextc.store.message_rows import check_name
from contextc.store.store import Store as AnyStore
from contextc.tools import ToolLike
from contextc.tools.spec import NativeTool
from contextc.triggers import ResourceUsage, Trigger, default_triggers

T = TypeVar("T")
Instructions: TypeAlias = str | PromptBuilder | Iterable[PromptFragment]
FRAGMENT_ID = "answer_format"
MOVED_OPTIONS = {"system_prompt": "instructions", "fragments": "instructions", "agent": "name"}
"""Options of `AgentExecutor` that have another name here."""


class AgentOptions(CompilerOptionArguments, total=False):
    """The further options of an agent. `AgentExecutor` and `CompilerOptions` describe them."""

    settings: JSONObject | None
    budget: int | None
    output: int | None
    directory: str | None
    context: ContextSource | None
    run: str | None
    summarize: Summarize | Literal["model"] | None
    summary_instructions: str
    summarize_at: float | None
    on_prepare_messages: PrepareMessages | None
    should_continue: ShouldContinue | None
    endpoint: Endpoint | None
    resources: Callable[[], ResourceUsage]
    lease_seconds: float
    session_gap: float


class Agent(agent_config.FixedOptions, Generic[T]):
    """An agent: a model, its tools and its instructions. `run_sync`, `run` and `stream` let it answer.

    `instructions` is the system prompt: a text, or prompt fragments. `store` is a store or its address, by default a
    store in memory. `output_type` is the type of the answers: a msgspec Struct, a dataclass, a pydantic model, or
    another type that a JSON schema can describe; by default they are text. `name` is the name it writes under.

    `triggers` are the default ones unless given; `()` disables them. `approve` is called before a tool that requires
    approval runs. All other options are those of `AgentExecutor`.
    """

    __slots__ = ("__weakref__", "_output", "_owns_store", "executor")

    @overload
    def __init__(
        self: "Agent[str]",
        model: Provider | str,
        *,
        tools: Iterable[ToolLike | NativeTool] | ToolLike | None = ...,
        instructions: Instructions | None = ...,
        store: Store | str | os.PathLike[str] | None = ...,
        output_type: None = ...,
        name: str = ...,
        triggers: Iterable[Trigger] | None = ...,
        approve: Approve | Suspend | None = ...,
        limits: Limits | None = ...,
        **options: Unpack[AgentOptions],
    ) -> None: ...

    @overload
    def __init__(
        self,
        model: Provider | str,
        *,
        tools: Iterable[ToolLike | NativeTool] | ToolLike | None = ...,
        instructions: Instructions | None = ...,
        store: Store | str | os.PathLike[str] | None = ...,
        output_type: type[T],
        name: str = ...,
        triggers: Iterable[Trigger] | None = ...,
        approve: Approve | Suspend | None = ...,
        limits: Limits | None = ...,
        **options: Unpack[AgentOptions],
    ) -> None: ...

    def __init__(
        self,
        model: Provider | str,
        *,
        tools: Iterable[ToolLike | NativeTool] | ToolLike | None = (),
        instructions: Instructions | None = None,
        store: Store | str | os.PathLike[str] | None = None,
        output_type: type[T] | None = None,
        name: str = DEFAULT_AGENT,
        triggers: Iterable[Trigger] | None = None,
        approve: Approve | Suspend | None = None,
        limits: Limits | None = None,
        **options: Unpack[AgentOptions],
    ) -> None:
        _check_options(options)
        fragments = _instruction_fragments(instructions)
        provider = as_provider(model)
        functions, native = agent_config.split_tools(tools)
        all_tools = (*functions.values(), *native)
        self._output = output_type_of(output_type)
        if self._output is not None:
            fragments, options = _with_output(provider, bool(all_tools), self._output, fragments, options)
        self._owns_store = not isinstance(store, AnyStore)
        opened = store if isinstance(store, AnyStore) else open_store("memory:" if store is None else store)
        try:
            self.executor = AgentExecutor(
                opened,
                provider,
                tools=all_tools,
                triggers=default_triggers() if triggers is None else triggers,
                agent=name,
                fragments=fragments,
                approve=approve,
                limits=limits,
                **options,
            )
        except BaseException:
            if self._owns_store:
                opened.close()
            raise

    @property
    def store(self) -> Store:
        """The store that holds the agent's conversations."""
        return self.executor.store

    @property
    def name(self) -> str:
        """The name that the agent writes under."""
        return self.executor.agent

    def run_sync(
        self,
        input: TurnInput,
        *,
        conversation: str | None = None,
        wait: float = 0,
        context: ContextSource | None = None,
    ) -> AgentResult[T]:
        """Run a turn and return its result, for code without an event loop. `run` describes the arguments.

        A client of the provider is opened for the call, and closed after it. A summary that is being written in the
        background is waited for.
        """
        if _is_loop_running():
            raise InvalidInput(
                "run_sync cannot be called while an event loop runs in this thread",
                fix="Use `await agent.run(…)`, or `async for text in agent.stream(…)`.",
            )
        run = self.stream(input, conversation=conversation, wait=wait, context=context)
        return asyncio.run(self._run_and_close(run))

    async def run(
        self,
        input: TurnInput,
        *,
        conversation: str | None = None,
        wait: float = 0,
        context: ContextSource | None = None,
    ) -> AgentResult[T]:
        """Run a turn and return its result. Raises the error that ended it, if any. Cancelling it cancels the turn.

        Each run is a new conversation unless `conversation` names one, which is continued or created. `wait` is the
        number of seconds to wait while another turn of this agent is running there. `context` replaces the agent's
        prompt context for this run.
        """
        async with self.stream(input, conversation=conversation, wait=wait, context=context) as run:
            return await run.result()

    def stream(
        self,
        input: TurnInput,
        *,
        conversation: str | None = None,
        wait: float = 0,
        context: ContextSource | None = None,
    ) -> AgentRun[T]:
        """Return a run that starts when it is read: its texts, its events, and its result. `run` has the arguments."""
        messages = agent_config.input_messages(input, self.name)
        if not messages and conversation is None:
            raise InvalidInput(
                "input must not be None for a new conversation", fix="Pass a text, or name the conversation to answer."
            )
        named = f"{datetime.now():%Y-%m-%d-%H%M%S}-{token_hex(4)}" if conversation is None else conversation
        agent_config.check_prompt_context(context)
        start = partial(self.executor.start, named, wait=wait, context=context)
        return self._make_run(named, partial(start, messages or None), start, len(messages))

    async def resume(
        self, conversation: str, *, wait: float = 0, context: ContextSource | None = None
    ) -> AgentResult[T]:
        """Continue a turn that waits for approval and has an answer, or whose process died, and return its result."""
        resume, start = (
            partial(call, conversation, wait=wait, context=context)
            for call in (self.executor.resume, self.executor.start)
        )
        async with self._make_run(conversation, resume, start, 1) as run:
            return await run.result()

    async def compact(self, conversation: str, *, instructions: str = "") -> CompactionResult | None:
        """Summarize old messages of a conversation now. `AgentExecutor.compact` describes it, and the executor also has
        `preview_compaction` and `undo_compaction`.
        """
        return await self.executor.compact(conversation, instructions=instructions)

    async def close(self) -> None:
        """Close this event loop's client of the provider, and the store if the agent opened it."""
        await self.executor.close()
        if self._owns_store:
            self.store.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _make_run(
        self, conversation: str, start: Callable[[], Turn], start_again: Callable[[Message], Turn], inputs: int
    ) -> AgentRun[T]:
        check_name(conversation)
        return AgentRun(self.store, conversation, start, start_again, self._output, inputs)

    async def _run_and_close(self, run: AgentRun[T]) -> AgentResult[T]:
        try:
            async with run:
                result = await run.result()
            await self.executor.config.background.wait(run.conversation)  # what is paid for is stored
            return result
        finally:
            await self.executor.close()


def _is_loop_running() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _check_options(options: Mapping[str, object]) -> None:
    for name in options:
        if name in MOVED_OPTIONS:
            raise InvalidSetting(f"Agent has no option {name!r}", fix=f"Pass {MOVED_OPTIONS[name]}=… instead.")
        if name not in AgentOptions.__optional_keys__:
            names = ("tools", "instructions", "store", "output_type", "name", "triggers", "approve", "limits")
            raise InvalidSetting(
                f"Agent has no option {name!r}",
                fix=f"Its options are {', '.join((*names, *sorted(AgentOptions.__optional_keys__)))}.",
            )


def _instruction_fragments(instructions: object) -> list[PromptFragment]:
    if instructions is None:
        return []
    if isinstance(instructions, str):
        return [PromptFragment("instructions", instructions)] if instructions.strip() else []
    if isinstance(instructions, PromptBuilder):
        return list(instructions.fragments)
    listed = list(cast(Iterable[object], instructions)) if isinstance(instructions, Iterable) else [instructions]
    if wrong := [each for each in listed if not isinstance(each, PromptFragment)]:
        raise InvalidSetting(
            f"instructions must be a text, prompt fragments or a PromptBuilder, got {type(wrong[0]).__name__}",
            fix="Pass a string, or a list of cc.PromptFragment(…).",
        )
    return cast(list[PromptFragment], listed)


def _with_output(
    provider: Provider,
    has_tools: bool,
    output: OutputType[Any],
    fragments: list[PromptFragment],
    options: AgentOptions,
) -> tuple[list[PromptFragment], AgentOptions]:
    """Return fragments and options that require answers of this type, by the provider's settings if it has them."""
    schema = output.strict_schema
    is_known = has_structured_output(provider, with_tools=has_tools)
    if schema is None or not is_known or not accepts_schema(provider, schema):
        return [*fragments, PromptFragment(FRAGMENT_ID, output.instructions)], options
    required = structured_output_settings(provider, schema, output.name)
    settings = options.get("settings") or {}
    return fragments, {**options, "settings": _merge(required, settings)}


def _merge(ours: JSONObject, theirs: JSONObject) -> JSONObject:
    """Return both objects as one. `theirs` takes precedence; objects inside them are merged."""
    return {**ours, **{name: _merge_value(ours.get(name), value) for name, value in theirs.items()}}


def _merge_value(ours: JSON, theirs: JSON) -> JSON:
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return _merge(cast(JSONObject, ours), cast(JSONObject, theirs))
    return theirs  # pyright: ignore[reportUnknownVariableType]
