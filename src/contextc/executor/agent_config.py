"""The configuration of an agent, as its turns read it: validated, immutable, and without the executor that made it.

Also the types of an agent's callbacks, its clients, and the validation of options and of a turn's input. Options are
checked when the executor is created. A callback with a wrong signature would otherwise fail in the middle of a turn,
after earlier steps have run.
"""

import asyncio
import inspect
import math
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, TypedDict, cast
from weakref import WeakKeyDictionary

import msgspec
from msgspec import Struct
from msgspec.structs import asdict
from msgspec.structs import replace as replace_fields

from contextc._json import JSONObject
from contextc.compiler import MessageCompiler
from contextc.compiler.arguments import AgentArguments, as_provider
from contextc.compiler.compaction import check_instructions, check_summarizer, takes_instructions
from contextc.compiler.draft import CompilerOptionArguments, CompilerOptions
from contextc.compiler.prompt_cache import CacheLifetime, check_lifetime, nearest_lifetime
from contextc.errors import InvalidInput, InvalidSetting, ProviderFailed
from contextc.executor.limits import Limits
from contextc.mcp import MCPServer, ServerConnections
from contextc.messages import Message, ToolCall, user
from contextc.prompts import PromptContext
from contextc.providers import Provider
from contextc.providers.client import Endpoint, endpoint
from contextc.store import Store
from contextc.store.approval_rules import Always
from contextc.store.message_log import check_name, run_name
from contextc.store.transaction_engine import Transaction
from contextc.store.turn_records import TurnRecord
from contextc.tools import FunctionTool, ToolContext, ToolLike, tool, tools_by_name
from contextc.tools.definitions import AnyTool, NativeTool, Tool
from contextc.triggers import ResourceUsage, Trigger, read_resources

if TYPE_CHECKING:
    from contextc.executor.summaries import BackgroundSummaries


ApprovalAnswer: TypeAlias = bool | str | Always | None
Approve: TypeAlias = (
    Callable[[ToolCall, FunctionTool], ApprovalAnswer | Awaitable[ApprovalAnswer]]
    | Callable[[ToolCall, FunctionTool, ToolContext[Any]], ApprovalAnswer | Awaitable[ApprovalAnswer]]
)
"""Callback before a tool with `approval` runs. True approves. A string declines with a reason, which the model gets if
its provider supports that. `Always` answers later calls, too. With a third parameter `context` it gets the context of
the call."""
Summarize: TypeAlias = (
    Callable[[Sequence[Message], str | None], str | Awaitable[str]]
    | Callable[[Sequence[Message], str | None, str], str | Awaitable[str]]
)
PrepareMessages: TypeAlias = Callable[[JSONObject, int], JSONObject | Awaitable[JSONObject | None] | None]
ShouldContinue: TypeAlias = Callable[[Message, Sequence[Message]], bool]
ContextSource: TypeAlias = PromptContext | Callable[[str], PromptContext | None]
"""The prompt context of an agent's turns, or a function of the conversation's name that returns it for each step."""


TOOL_SEARCHES = ("auto", "contextc", "provider")
NOT_IN_TOOL_NAMES, MAX_TOOL_NAME = re.compile(r"[^a-zA-Z0-9_-]"), 64


class Suspend(Struct, frozen=True, kw_only=True):
    """A value of `approve`: suspend a turn whose calls need approval, instead of waiting in this process.

    The approvals are stored, the turn is `waiting`, and its lease is released. `store.answer_approval` answers them in
    any process, and `executor.resume` continues the turn there. After `seconds` (None: never) the answer is `default`:
    True approves, False declines, and a text declines with that reason.

    A question of an MCP server suspends the turn, too. If it expires, it is closed.

    A provider that runs tools itself asks in the middle of its reply. Its turn stays in this process, and waits there
    for the stored answer.
    """

    seconds: float | None = None
    default: bool | str = False


class TurnOwner(Protocol):
    """The owner of a turn, such as a worker. It can take the turn back between two steps."""

    def check(self, turn: TurnRecord) -> None:
        """Raise the error that ends a turn which was opened or resumed."""
        ...

    def wants_back(self) -> bool:
        """Return True if the turn shall continue in another process after its step."""
        ...

    def retries(self, turn: TurnRecord, error: Exception) -> bool:
        """Return True if the turn shall continue later because of a failure, and not end with it."""
        ...

    def store_continuation(self, tx: Transaction, turn: TurnRecord, error: Exception | None) -> None:
        """Store how the turn continues, in the transaction that releases its lease."""
        ...

    def model_call(self, provider: Provider) -> AbstractAsyncContextManager[None]:
        """Return the context of a model call."""
        ...


MAX_ADDRESSES = 1_000
_refused_by_address: dict[tuple[str, ...], set[str]] = {}
_refused_by_client: WeakKeyDictionary[Endpoint, set[str]] = WeakKeyDictionary()


class ClientCache:
    """The clients of a provider: the given one, or one for each event loop."""

    def __init__(self, provider: Provider, store: Store, given: Endpoint | None) -> None:
        self._provider, self._store, self.given = provider, store, given
        address = (provider.name, provider.url, provider.key, provider.model_id)
        known = _refused_by_address if given is None else _refused_by_client
        if len(_refused_by_address) > MAX_ADDRESSES:
            _refused_by_address.clear()
        self.refused_betas = known.setdefault(cast(Any, address if given is None else given), set())
        """Beta flags that the endpoint has refused. This process does not send them to it again."""
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, Endpoint] = WeakKeyDictionary()

    def get(self) -> Endpoint:
        """Return the client for the running event loop."""
        if self.given is not None:
            return self.given
        loop = asyncio.get_running_loop()
        if loop not in self._clients:
            self._clients[loop] = endpoint(self._provider, store=self._store)
        return self._clients[loop]

    @property
    def is_open(self) -> bool:
        """True if `get` makes no client."""
        return self.given is not None or asyncio.get_running_loop() in self._clients

    def note_refusal(self, failure: ProviderFailed, provider: Provider, sent: Collection[str] = ()) -> frozenset[str]:
        """Remember the beta flags that a failure names, and return them. `sent` are those of the request, beside those
        of the provider.
        """
        flags = {*provider.betas, *sent} - {*provider.refused_betas}
        named = frozenset([flag for flag in flags if failure.kind == "invalid" and flag in failure.said])
        self.refused_betas |= named
        return named

    async def close(self) -> None:
        """Close the client of the running event loop. A given client stays open."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.close()


class AgentOptions(TypedDict, total=False):
    """The options that `Agent` and `AgentExecutor` have in common. `AgentExecutor` describes them.

    `AgentConfig` has the defaults.
    """

    settings: JSONObject | None
    max_input_tokens: int | None
    max_output_tokens: int | None
    directory: str | None
    context: ContextSource | None
    deps: Callable[[str], object] | None
    run: str | None
    limits: Limits | None
    approve: Approve | Suspend | None
    summarize: Summarize | Literal["model"] | None
    summary_instructions: str
    summarize_at: float | None
    on_prepare_messages: PrepareMessages | None
    should_continue: ShouldContinue | None
    endpoint: Endpoint | None
    resources: Callable[[], ResourceUsage]
    lease_seconds: float
    session_gap: float
    compiler: CompilerOptions | None
    cache: CacheLifetime | None
    betas: Sequence[str] | None
    headers: Mapping[str, str] | None
    mcp_servers: Iterable[MCPServer] | MCPServer | None
    defer_tools_above: float | None
    tool_search: Literal["auto", "contextc", "provider"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentConfig:
    """An agent's options as its turns read them."""

    store: Store
    agent: str
    provider: Provider
    compiler: MessageCompiler
    compile_arguments: AgentArguments
    """Arguments of every `compile` call, without `max_input_tokens` and the prompt context."""
    tools: Mapping[str, FunctionTool]
    step_triggers: Sequence[Trigger]
    mid_step_triggers: Sequence[Trigger]
    channel_trigger_names: frozenset[str]
    """Names of the trigger states that belong to a channel, not to the agent."""
    background: "BackgroundSummaries"
    clients: ClientCache
    servers: ServerConnections | None = None
    """The MCP servers whose tools the agent has beside `tools`; None if it has no servers."""
    defer_tools_above: float | None = 0.05
    """The share of the window that definitions of such tools may need. Above it, the model searches them."""
    tool_search: Literal["auto", "contextc", "provider"] = "auto"
    """The search for these tools: that of contextc, or of the provider. "auto": the provider's if there is one."""
    context: ContextSource | None = None
    deps: Callable[[str], object] | None = None
    """Returns the dependencies of a turn whose caller passes none, by the conversation's name."""
    handoffs: "Callable[[Store], Mapping[str, AgentConfig]] | None" = None
    """Returns the agents that a turn can be handed over to, by name, configured for the turn's store."""
    speaker: str = ""
    """The agent that has taken a turn of this one over, if any. What it says is stored under this agent's name."""
    fallbacks: "tuple[AgentConfig, ...]" = ()
    """The configurations of the models that go on, one after the other, where this one fails."""
    turn_deps: object = None
    """The dependencies of the turns that have this configuration. They are never stored."""
    max_input_tokens: int | None = None
    run: str | None = None
    directory: str = ""
    limits: Limits = field(default_factory=Limits)
    approve: Approve | Suspend | None = None
    should_continue: ShouldContinue | None = None
    on_prepare_messages: PrepareMessages | None = None
    summarize: Summarize | Literal["model"] | None = "model"
    summary_instructions: str = ""
    summarize_at: float | None = 0.75
    resources: Callable[[], ResourceUsage] = read_resources
    lease_seconds: float = 30
    session_gap: float = 3600
    owner: TurnOwner | None = None

    @property
    def takes_questions(self) -> bool:
        """Return True if questions of MCP servers suspend the turn. A callback for approvals says so itself."""
        return isinstance(self.approve, Suspend) or getattr(self.approve, "takes_questions", False) is True

    def check(self) -> None:
        """Raise `InvalidSetting` for the first option with an invalid value."""
        if not isinstance(self.limits, Limits):
            raise InvalidSetting(
                f"limits must be a cc.Limits, got {_type_name(self.limits)}",
                fix="Pass cc.Limits(steps=…, seconds=…), or omit it.",
            )
        check_approve(self.approve)
        check_callback("on_prepare_messages", self.on_prepare_messages, parameters=("request", "step"))
        check_callback("should_continue", self.should_continue, parameters=("reply", "results"), sync=True)
        check_callback("resources", self.resources, parameters=(), sync=True)
        check_prompt_context(self.context)
        if self.deps is not None and not callable(self.deps):
            raise InvalidSetting(
                f"deps must be callable, got {_type_name(self.deps)}",
                fix="Pass the value to each run: agent.run(…, deps=…). The option is a function deps(conversation).",
            )
        check_callback("deps", self.deps, parameters=("conversation",), sync=True)
        if self.run is not None and (not isinstance(self.run, str) or not self.run):
            raise InvalidSetting("run must be a non-empty string", got=self.run, fix="Name the run, or omit it.")
        share = self.defer_tools_above
        if share is not None and (not is_number(share) or not 0 <= share <= 1):
            raise InvalidSetting(
                "defer_tools_above must be a share of the window from 0 to 1, or None",
                got=share,
                fix="Pass None to define all tools in every request.",
            )
        if self.tool_search not in TOOL_SEARCHES:
            raise InvalidSetting(
                f"tool_search must be one of {', '.join(TOOL_SEARCHES)}",
                got=self.tool_search,
                fix='Pass "auto", or omit it.',
            )
        check_seconds("lease_seconds", self.lease_seconds)
        check_seconds("session_gap", self.session_gap)
        if isinstance(self.summarize, str) and self.summarize != "model":
            raise InvalidSetting(
                'summarize must be "model", a function or None',
                got=self.summarize,
                fix="Pass None to disable summaries.",
            )
        if self.summarize != "model":
            check_summarize(self.summarize)
        check_summary_instructions(self.summarize, self.summary_instructions)
        share = self.summarize_at
        if share is not None and (not is_number(share) or not 0 < share <= 1):
            raise InvalidSetting(
                "summarize_at must be a share of the window above 0, up to 1, or None",
                got=share,
                fix="Pass None to write no summaries in the background.",
            )

    def arguments_for(self, conversation: str) -> AgentArguments:
        """Return the arguments of a `compile` call, with the prompt context that holds now."""
        context = self.context
        if context is None or isinstance(context, PromptContext):
            found = cast(PromptContext | None, context)
        else:
            found = context(conversation)
        if found is not None and not isinstance(found, PromptContext):
            raise InvalidSetting(
                f"context: the function must return a cc.PromptContext or None, got {_type_name(found)}",
                fix="Return cc.PromptContext(project=…), or None.",
            )
        if (deps := self.for_turn(conversation, None).turn_deps) is not None:
            found = replace_fields(found or PromptContext(), deps=deps)
        return {**self.compile_arguments, "context": found}

    def for_turn(self, conversation: str, deps: object) -> "AgentConfig":
        """Return the configuration of a turn, with its dependencies: those given, or those that `deps` returns."""
        if deps is None and self.turn_deps is None and self.deps is not None:
            deps = self.deps(conversation)
        return self if deps is None else replace(self, turn_deps=deps)

    def without_refused_betas(self) -> "AgentConfig":
        """Return the configuration without the beta flags that the provider has refused."""
        provider = self.provider.without_betas(self.clients.refused_betas)
        if provider is self.provider:
            return self
        options = asdict(self.compiler.options)
        return replace(self, provider=provider, compiler=MessageCompiler(self.store, provider, **options))

    def with_next_model(self) -> "AgentConfig":
        """Return the configuration with the first of its fallbacks as the model, for the rest of a turn."""
        first, *others = self.fallbacks
        return replace(
            first,
            fallbacks=tuple(others),
            context=self.context,
            turn_deps=self.turn_deps,
            approve=self.approve,
            owner=self.owner,
            agent=self.agent,
            handoffs=self.handoffs,
            speaker=self.speaker,
            limits=self.limits,
            run=self.run,
            compile_arguments={**first.compile_arguments, "run": self.run},
        )

    def handed_over_to(self, name: str, conversation: str) -> "AgentConfig":
        """Return the configuration of this agent's turn once another agent has taken it over.

        Model, instructions, tools and triggers are those of the other one. The turn, its limits and its approvals stay.
        """
        assert self.handoffs is not None, "the agent hands nothing over"
        other = self.handoffs(self.store)[name].for_turn(conversation, self.turn_deps)
        return replace(
            other,
            context=self.context or other.context,
            approve=self.approve or other.approve,
            owner=self.owner,
            agent=self.agent,
            handoffs=self.handoffs,
            speaker=name,
            limits=self.limits,
            run=self.run,
            background=self.background,
            compile_arguments={**other.compile_arguments, "run": self.run},
        )

    def channel_agent(self, agent: str) -> str:
        """Return the agent of the channel that requests of a turn are sent on: one for each that has taken it over."""
        return run_name(agent, self.speaker) if self.speaker else agent


ModelArgument: TypeAlias = Provider | str | Endpoint
"""A model: its name, its provider, or a client that is made for one, such as a fake model of a test."""
TurnInput: TypeAlias = str | Message | Sequence[str | Message] | None
INPUT_ROLES = ("user", "system")


# ── arguments of a turn ───────────────────────────────────────────────────────────────────────────────────────────────


def input_messages(input: TurnInput, agent: str) -> list[Message]:
    """Return the input of a turn as messages."""
    if input is None:
        return []
    if isinstance(input, str | Message):
        return [input_message(input, agent)]
    if not isinstance(input, Sequence) or isinstance(input, bytes | bytearray):
        raise InvalidInput(
            f"input must be a string, a Message or a list of them, got {_type_name(input)}",
            fix="Pass a string, cc.user(…), or a list of these.",
        )
    if not input:
        raise InvalidInput(
            "input must not be an empty list", fix="Omit the input to answer what is queued or unanswered."
        )
    return [input_message(each, agent) for each in input]


def input_message(input: object, agent: str) -> Message:
    """Return one input of an agent as a message."""
    if isinstance(input, str):
        input = user(input)
    if not isinstance(input, Message):
        raise InvalidInput(
            f"input must be a string or a Message, got {_type_name(input)}", fix="Pass a string, or cc.user(…)."
        )
    if input.role not in INPUT_ROLES and not input.is_addressed_to(agent):
        raise InvalidInput(
            'input: role must be "user" or "system"',
            got=input.role,
            fix="Pass a string, cc.user(…) or cc.system(…), or another agent's message with "
            f"recipients=({agent!r},). To add a message to the history without a turn, use store.append.",
        )
    if input.role == "user" and not any(getattr(part, "text", "x").strip() for part in input.parts):
        raise InvalidInput(
            "input: the message is empty", fix="Pass a text, or omit the input to answer what is queued or unanswered."
        )
    return input


def check_key(key: object, messages: Sequence[Message], conversation: str | None) -> None:
    """Check the key of a turn's input."""
    if key is None:
        return
    check_name(key, "key")
    if conversation is None:
        raise InvalidInput(
            "key identifies input within a conversation, and none is named", fix="Pass conversation=… with the key."
        )
    if len(messages) != 1:
        raise InvalidInput(
            f"key identifies one message, and the input has {len(messages)}",
            fix="Pass one message with the key, and append the others before: store.append(…, key=…).",
        )


def check_turn_arguments(conversation: object, wait: object = 0) -> None:
    """Check a conversation's name and the wait time, and that an event loop is running."""
    check_name(conversation)
    if wait is not None and (not is_number(wait) or not cast(float, wait) >= 0):
        raise InvalidInput(
            "wait must be a number of seconds or None", got=wait, fix="Pass 0 or more, or None for no limit."
        )
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        raise InvalidInput(
            "No running event loop: a turn needs one",
            fix="Call this inside an async function that asyncio.run(…) runs.",
        ) from None


def check_after(after: object) -> None:
    if isinstance(after, bool) or not isinstance(after, int) or after < 0:
        raise InvalidInput("after must be an event number, 0 or more", got=after, fix="Pass 0 for all events.")


class FixedOptions:
    """The base of agents: they are configured by their constructor. The error of another assignment says so."""

    __slots__ = ()
    tool_fix = (
        "Pass a function that calls it:\n\n"
        "    async def ask(question: str) -> str:\n"
        '        """Let another agent answer a question."""\n'
        "        return (await agent.run(question)).text\n"
    )
    """The way to make a tool of an agent, for the error of one that is passed as a tool."""
    if not TYPE_CHECKING:  # a type checker would accept any assignment

        def __setattr__(self, name: str, value: object) -> None:
            try:
                super().__setattr__(name, value)
            except AttributeError:
                what = f"{type(self).__name__}.{name} cannot be set. Pass {name}=… to the constructor of a new one."
                raise AttributeError(what, name=name, obj=self) from None


# ── options of an executor ────────────────────────────────────────────────────────────────────────────────────────────


FORMER_NAMES = {
    "system_prompt": "instructions",
    "fragments": "instructions",
    "agent": "name",
    "provider": "model",
    "budget": "max_input_tokens",
    "output": "max_output_tokens",
}
"""Options of `Agent`, `AgentExecutor` and `compile` that have another name now."""
OTHER_LIBRARIES = {
    "result_type": "Pass output_type=… instead.",
    "response_format": "Pass output_type=… instead.",
    "model_settings": "Pass settings={…} instead.",
    "temperature": 'Pass settings={"temperature": …} instead.',
    **dict.fromkeys(
        ("effort", "reasoning_effort"),
        'Pass settings={"output_config": {"effort": …}} to Claude, {"reasoning": {"effort": …}} to OpenAI.',
    ),
    "usage_limits": "Pass limits=cc.Limits(…) instead.",
    "max_steps": "Pass limits=cc.Limits(steps=…) instead.",
    "max_turns": "Pass limits=cc.Limits(steps=…) instead.",
    "max_tokens": "Pass max_output_tokens=… instead.",
    "handoff_description": "Pass description=… instead.",
    "deps_type": "Pass deps=… to runs. A parameter of a tool that gets them is `context: cc.ToolContext[Shop]`.",
    "message_history": "Pass conversation=… to each run: the store has the messages.",
    "checkpointer": "Pass store=…, and conversation=… to each run.",
}
"""Options that agents of other libraries have, with what does the same in an `Agent`."""


def check_options(kind: type[object], options: Mapping[str, object]) -> None:
    """Raise `InvalidSetting` for the first option that an agent does not have."""
    for name in options:
        if name in AgentOptions.__annotations__:
            continue
        if name in CompilerOptions.__struct_fields__:
            fix = f"It is one of the compiler's: pass compiler=cc.CompilerOptions({name}=…)."
        elif name in FORMER_NAMES:
            fix = f"Pass {FORMER_NAMES[name]}=… instead."
        elif name in OTHER_LIBRARIES and "output_type" in keyword_names(kind):
            fix = OTHER_LIBRARIES[name]
        else:
            fix = f"Its options are {', '.join([*keyword_names(kind), *AgentOptions.__annotations__])}."
        raise InvalidSetting(f"{kind.__name__} has no option {name!r}", fix=fix)


def config_fields(kind: type[object], options: AgentOptions) -> dict[str, Any]:
    """Return the options that are fields of `AgentConfig`."""
    check_options(kind, options)
    return {
        name: value
        for name, value in options.items()
        if name in AgentConfig.__dataclass_fields__
        and name != "compiler"
        and (value is not None or name not in ("directory", "limits"))
    }


def with_nearest_lifetime(options: AgentOptions, provider: Provider) -> AgentOptions:
    """Return the options with the cache lifetime that this provider has: another model of the agent may have others."""
    return {**options, "cache": nearest_lifetime(_asked_lifetime(options), provider)}


def check_lifetime_of_any(config: AgentConfig, options: AgentOptions) -> None:
    """Raise `InvalidSetting` if no model of an agent has the cache lifetime that is asked for."""
    check_lifetime(_asked_lifetime(options), [each.provider for each in (config, *config.fallbacks)])


def _asked_lifetime(options: AgentOptions) -> CacheLifetime:
    given = options.get("compiler")
    return options.get("cache") or (given.cache if isinstance(given, CompilerOptions) else "auto")


def compiler_options(given: CompilerOptions | None, cache: CacheLifetime | None = None) -> CompilerOptionArguments:
    """Return the options of an agent's compiler. The tools that read the history are offered without others, too, and
    removed tools stay declared. `cache` replaces that option.
    """
    if given is not None and not isinstance(given, CompilerOptions):
        raise InvalidSetting(
            f"compiler must be a cc.CompilerOptions, got {_type_name(given)}",
            fix="Pass cc.CompilerOptions(keep_words=0.2), or omit it.",
        )
    options = given or CompilerOptions()
    return cast(
        CompilerOptionArguments,
        asdict(
            replace_fields(
                options,
                fetch=options.fetch and "always",
                removed_tools=options.removed_tools or "keep",
                cache=cache or options.cache,
            )
        ),
    )


def keyword_names(kind: type[object]) -> list[str]:
    """Return the names of the parameters of a class that are passed by name."""
    parameters = inspect.signature(kind).parameters.values()
    return [each.name for each in parameters if each.kind is inspect.Parameter.KEYWORD_ONLY]


def split_model(model: object, client: Endpoint | None) -> tuple[Provider, Endpoint | None]:
    """Return the provider of a model, and its client: the given one, or the model itself if it is a client."""
    if not isinstance(model, Endpoint):
        return as_provider(model), client
    if model.answers_for is None or client is not None:
        problem = "it names no provider" if model.answers_for is None else "endpoint= names another one"
        raise InvalidSetting(
            f"model: a client cannot be used as a model here: {problem}",
            fix='Pass the name of a model, such as "anthropic:claude-opus-5-5", and the client as endpoint=….',
        )
    return model.answers_for, model


def split_tools(tools: object) -> tuple[dict[str, FunctionTool], list[NativeTool]]:
    """Split tools into those that run in this process, by name, and native tools that the provider runs."""
    if isinstance(tools, NativeTool):
        return {}, [tools]
    is_pair = isinstance(tools, tuple) and isinstance(next(iter(cast(tuple[object, ...], tools)), None), Tool)
    if tools is None or is_pair or isinstance(tools, Mapping | str | bytes) or not isinstance(tools, Iterable):
        return tools_by_name(cast(ToolLike, tools)), []
    listed = list(cast(Iterable[object], tools))
    native = [each for each in listed if isinstance(each, NativeTool)]
    return tools_by_name(cast(list[ToolLike], [each for each in listed if not isinstance(each, NativeTool)])), native


def check_client(client: object) -> None:
    if client is not None and not callable(getattr(client, "stream", None)):
        raise InvalidSetting(
            f"endpoint must be a client with a `stream` method, got {_type_name(client)}",
            fix="Pass cc.endpoint(provider), or omit it.",
        )


def check_prompt_context(context: object) -> None:
    """Check the prompt context of an agent's turns."""
    if callable(context):
        check_callback("context", context, parameters=("conversation",), sync=True)
    elif context is not None and not isinstance(context, PromptContext):
        raise InvalidSetting(
            f"context must be a cc.PromptContext or a function, got {_type_name(context)}",
            fix="Pass cc.PromptContext(project=…), a function of the conversation, or omit it.",
        )


def check_callback(name: str, callback: object, *, parameters: Sequence[str], sync: bool = False) -> None:
    """Check that a callback is None or a function that takes these arguments."""
    if callback is None:
        return
    call = f"{name}({', '.join(parameters)})"
    if not callable(callback):
        raise InvalidSetting(f"{name} must be callable, got {_type_name(callback)}", fix=f"Pass a function {call}.")
    try:
        inspect.signature(callback).bind(*parameters)
    except TypeError:
        raise InvalidSetting(
            f"{name}: the function does not accept the arguments of {call}", fix="Change its parameters."
        ) from None
    except ValueError:  # a function written in C without a signature
        return
    if sync and (
        inspect.iscoroutinefunction(callback) or inspect.iscoroutinefunction(getattr(callback, "__call__", None))  # noqa: B004
    ):
        raise InvalidSetting(f"{name} must be a synchronous function, got an async one", fix="Define it with `def`.")


def check_summarize(summarize: object) -> None:
    """Check the function that writes summaries. It may have a parameter for instructions."""
    if callable(summarize) and takes_instructions(summarize):
        return check_callback("summarize", partial(summarize, instructions=""), parameters=("messages", "previous"))
    check_callback("summarize", summarize, parameters=("messages", "previous"))


def check_summary_instructions(summarize: object, instructions: str) -> None:
    """Check instructions for summaries, and that the summarizer takes them."""
    if callable(summarize):
        check_summarizer(summarize, instructions)
    else:
        check_instructions(instructions)


def check_approve(approve: object) -> None:
    if approve is Suspend:
        raise InvalidSetting("approve must be callable or a Suspend, got the class", fix="Pass cc.Suspend().")
    if not isinstance(approve, Suspend):
        parameters = ("call", "tool", "context") if callable(approve) and takes_context(approve) else ("call", "tool")
        return check_callback("approve", approve, parameters=parameters)
    if approve.seconds is not None:
        check_seconds("approve: seconds", approve.seconds)
    if not isinstance(approve.default, bool | str):
        raise InvalidSetting(
            f"approve: default must be True, False or a reason, got {_type_name(approve.default)}",
            fix="Pass False to decline.",
        )


def takes_context(approve: Callable[..., object]) -> bool:
    """Return True if a callback for approvals has a third parameter `context`, for the context of the call."""
    try:
        parameters = list(inspect.signature(approve).parameters.values())
    except (TypeError, ValueError):
        return False
    return (
        len(parameters) > 2
        and parameters[2].name == "context"
        and parameters[2].kind is not inspect.Parameter.KEYWORD_ONLY
    )


def check_seconds(name: str, seconds: object) -> None:
    if not is_number(seconds) or not 0 < cast(float, seconds) < math.inf:
        raise InvalidSetting(f"{name} must be a number of seconds above 0", got=seconds)


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _type_name(value: object) -> str:
    return type(value).__name__


# ── handoffs ──────────────────────────────────────────────────────────────────────────────────────────────────────────
# A handoff is the call of a tool without parameters. The agent that goes on is found in the stored conversation: it
# follows from the last reply and the results of its calls, so it holds after a crash, in a fork, and after a rewind.


def handoff_tool(name: str, description: str) -> FunctionTool:
    """Return the tool that hands a conversation over to an agent."""

    def hand_over() -> str:
        return f"The conversation was handed over to {name}."

    text = f"Hand the conversation over to {name}. {description}".strip()
    return tool(hand_over, name=handoff_tool_name(name), description=text)


def handoff_tool_name(name: str) -> str:
    return f"transfer_to_{NOT_IN_TOOL_NAMES.sub('_', name)}"[:MAX_TOOL_NAME]


# ── tools of MCP servers ──────────────────────────────────────────────────────────────────────────────────────────────


def with_server_tools(
    config: AgentConfig,
    tools: Mapping[str, FunctionTool],
    declared: Iterable[str],
    search: NativeTool | None = None,
) -> AgentConfig:
    """Return the configuration of an agent with tools of MCP servers. Requests define those that are `declared`. With
    `search`, a tool of the provider, they are deferred until it finds them.
    """
    before = config.compile_arguments
    offered: list[AnyTool] = [tools[name].tool for name in declared]
    if search is not None:
        offered = [*[_deferred(each, config.provider.formatter.extra_key) for each in offered], search]
    definitions = (*(before.get("tools") or ()), *offered)
    return replace(config, tools={**config.tools, **tools}, compile_arguments={**before, "tools": definitions})


def _deferred(tool: AnyTool, key: str) -> AnyTool:
    """Return a tool that the provider loads only when its search has found it."""
    extra = tool.extra or {}
    return replace_fields(tool, extra={**extra, key: {**extra.get(key, {}), "defer_loading": True}})


# ── tools that the client runs ────────────────────────────────────────────────────────────────────────────────────────
# Tools that the client of a turn runs itself, such as the tools of an AG-UI client.
#
# Their definitions are in the metadata of the message that opens the turn, so that any process can run it. A call of
# such a tool suspends the turn. The client's result is stored as the answer, and continues the turn in any process.


META_KEY = "client_tools"


def add_definitions(message: Message, tools: Sequence[Tool]) -> Message:
    """Return the input of a turn with the definitions of the client's tools."""
    if not tools:
        return message
    return replace_fields(message, meta={**(message.meta or {}), META_KEY: msgspec.to_builtins(list(tools))})


def read_definitions(message: Message) -> tuple[Tool, ...]:
    """Return the definitions of the client's tools in the metadata of a message. Unreadable ones are left out."""
    try:
        return msgspec.convert((message.meta or {}).get(META_KEY, ()), tuple[Tool, ...])
    except msgspec.ValidationError:
        return ()


def with_client_tools(config: AgentConfig, tools: Sequence[Tool]) -> AgentConfig:
    """Return the configuration of an agent with the client's tools. A tool of the agent with the same name stays.

    An agent whose approvals are answered by a callback cannot be suspended, and gets none of them.
    """
    new = {each.name: tool(each, run_by_client, approval=True) for each in tools if each.name not in config.tools}
    if not new or not (config.approve is None or isinstance(config.approve, Suspend)):
        return config
    before = config.compile_arguments
    settings = dict(before.get("settings") or {})
    if not before.get("tools"):  # these settings are for requests without tools
        settings = {name: each for name, each in settings.items() if name not in config.provider.prose_settings}
    return replace(
        config,
        tools={**config.tools, **new},
        compile_arguments={
            **before,
            "tools": (*(before.get("tools") or ()), *[each.tool for each in new.values()]),
            "settings": settings,
        },
        approve=config.approve or Suspend(),
    )


def is_client_tool(tool: FunctionTool | None) -> bool:
    return tool is not None and tool.function is run_by_client


def run_by_client(**arguments: object) -> str:
    """Stand in for the function of a client's tool."""
    raise RuntimeError("The client runs this tool. It was called here.")
