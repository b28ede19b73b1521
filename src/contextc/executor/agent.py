"""Agent: an answer in a few lines. It configures an `AgentExecutor`, and returns the result of a turn as a value.

Everything that it does is a turn of that executor: stored, resumable and compiled in the same way. `agent.executor` is
there for all that needs a turn's handle, such as steering.
"""

import asyncio
import os
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import aclosing, contextmanager
from contextvars import ContextVar
from datetime import datetime
from functools import partial
from secrets import token_hex
from types import TracebackType
from typing import Any, Generic, Self, TypeAlias, TypeVar, Unpack, cast, overload
from weakref import WeakKeyDictionary

import msgspec
from msgspec import Struct

from contextc._json import JSON, JSONObject, decode, encode
from contextc._worker_threads import run_blocking
from contextc.compiler import past_requests
from contextc.compiler.compaction import CompactionResult
from contextc.compiler.manifest import Manifest, shorten
from contextc.errors import InvalidInput, InvalidOutput, InvalidSetting, NothingNew
from contextc.events import StreamEvent, TextDelta, TurnStart
from contextc.executor import agent_config
from contextc.executor.agent_calls import CALL_MODES, AgentTool, CallMode
from contextc.executor.agent_config import (
    AgentConfig,
    AgentOptions,
    ClientCache,
    ContextSource,
    ModelArgument,
    TurnInput,
)
from contextc.executor.agent_executor import AgentExecutor
from contextc.executor.summaries import BackgroundSummaries
from contextc.executor.turn import NOTHING_TO_DO, Turn, run_turn
from contextc.executor.turn_store import TurnResult, add_usage
from contextc.mcp.connection import ServerConnections
from contextc.mcp.declaration import check_servers
from contextc.messages import Message, Usage, system
from contextc.prompts import Instructions, PromptFragment, add_fragment, list_instructions, list_tools
from contextc.providers import Provider
from contextc.providers.client import Endpoint
from contextc.providers.structured_output import accepts_schema, has_structured_output, structured_output_settings
from contextc.store import Store, open_store
from contextc.store.message_log import DEFAULT_AGENT, check_name
from contextc.tools import ToolLike, tool
from contextc.tools.definitions import NativeTool
from contextc.tools.parameters import (
    decode_hook,
    nested_field_errors,
    pydantic_adapter,
    type_schema,
    validate_with_pydantic,
    validation_text,
)
from contextc.triggers import Trigger, default_triggers

# ── the type of the result ────────────────────────────────────────────────────────────────────────────────────────────
# The type of an agent's answers: its JSON schema, and the conversion of an answer into a value of the type.
#
# A type is a msgspec Struct, a dataclass, a TypedDict, a pydantic model, or anything else that a JSON schema can
# describe, such as `list[str]`.
#
# Providers enforce a schema only in a strict form: an object at the top, every property required, and no open object.
# A type that is not an object is wrapped in one. A type without a strict form has only a schema for the instructions.


T = TypeVar("T")
PLACE = "output_type"
WRAPPED_FIELD = "value"
CODE_BLOCK = re.compile(r"```[\w-]*+[^\S\n]*+\n(.*?)```", re.DOTALL)
MAX_NAME_CHARACTERS = 64
JSON_ERRORS = (msgspec.MsgspecError, ValueError, RecursionError)
INSTRUCTIONS = "Your final answer must be one JSON value that follows this JSON schema, without any other text:"


class OutputType(Generic[T]):
    """The type of an agent's answers. `strict_schema` is None if no provider can enforce it."""

    def __init__(self, kind: type[T]) -> None:
        self.kind = kind
        self._adapter = pydantic_adapter(kind, PLACE)
        schema, strict = _schemas(kind)
        self._value_schema = schema
        self.is_wrapped = schema.get("type") != "object"
        self.schema = _wrap(schema) if self.is_wrapped else schema
        self.strict_schema = _wrap(strict) if self.is_wrapped and strict is not None else strict

    @property
    def name(self) -> str:
        """The name of the schema in requests."""
        name = re.sub(r"[^a-zA-Z0-9_-]", "_", getattr(self.kind, "__name__", ""))
        return name[:MAX_NAME_CHARACTERS] or "answer"

    @property
    def instructions(self) -> str:
        """The text that asks for such an answer, where the provider cannot enforce it."""
        return f"{INSTRUCTIONS}\n{encode(self.schema).decode()}"

    def parse(self, text: str) -> T:
        """Return the value of an answer. Raise ValueError with a text for the model if it is not one of the type."""
        value = _read_json(text)
        if self.is_wrapped and isinstance(value, dict) and [*cast(JSONObject, value)] == [WRAPPED_FIELD]:
            value = cast(JSONObject, value)[WRAPPED_FIELD]
        if problems := nested_field_errors(self._value_schema, value, top=True):
            raise ValueError(" ".join(problems))
        try:
            if self._adapter is not None:
                return validate_with_pydantic(self._adapter, encode(value))
            return msgspec.convert(value, self.kind, dec_hook=decode_hook, str_keys=True)
        except (TypeError, *JSON_ERRORS) as error:  # a type may have checks of its own
            raise ValueError(validation_text(error)) from error


def output_type_of(kind: type[T] | None) -> OutputType[T] | None:
    """Return the type of an agent's answers, or None for plain text. Raise `InvalidSetting` if it is not supported."""
    if kind is None or kind is str:
        return None
    try:
        return OutputType(kind)
    except InvalidInput as error:
        raise InvalidSetting(error.problem, fix=error.fix) from error


def _schemas(kind: object) -> tuple[JSONObject, JSONObject | None]:
    try:
        schema = type_schema(kind, strict=False, place=PLACE)
    except InvalidInput:
        if (adapter := pydantic_adapter(kind, PLACE)) is None:
            raise
        return cast(JSONObject, adapter.json_schema()), None  # such as a recursive model: for the instructions alone
    try:
        return schema, type_schema(kind, strict=True, place=PLACE)
    except InvalidInput:  # an open type
        return schema, None


def _wrap(schema: JSONObject) -> JSONObject:
    """Return the schema of an object with one field of this schema."""
    outer = {name: schema[name] for name in ("$defs",) if name in schema}
    inner = {name: value for name, value in schema.items() if name not in outer}
    properties: JSONObject = {WRAPPED_FIELD: inner}
    return {
        "type": "object",
        "properties": properties,
        "required": [WRAPPED_FIELD],
        "additionalProperties": False,
        **outer,
    }


def _read_json(text: str) -> JSON:
    """Return the JSON of an answer, which may be in a code block."""
    errors: list[Exception] = []
    for candidate in (text, *CODE_BLOCK.findall(text)):
        try:
            return decode(candidate.encode())
        except JSON_ERRORS as error:
            errors.append(error)
    raise ValueError(f"it is not JSON: {errors[0]}") from errors[0]


# ── a run and its result ──────────────────────────────────────────────────────────────────────────────────────────────
# A run of an agent: its texts and events while it runs, and its result.
#
# A run is a turn of the executor. If the answer does not have the requested type, a second turn states the error to
# the model, once.


CHECKED_FINISHES = ("stop", "length")
"""Finish reasons with an answer. A refusal or a limit would be the same in a second turn."""


class AgentResult(Struct, Generic[T], frozen=True, kw_only=True):
    """The result of a run. `finish` is why it ended: `stop`, a limit, or the model's or a trigger's reason.

    `messages` are those that the run added: input, replies, tool results, and messages of triggers. `usage` and `cost`
    are those of all its requests; `cost` is None if a price is unknown, and `cost_is_lower_bound` is true if a factor
    of one is: the run then cost at least `cost`.
    """

    conversation: str
    finish: str
    text: str
    messages: tuple[Message, ...] = ()
    usage: Usage = Usage()
    cost: float | None = None
    cost_is_lower_bound: bool = False
    steps: int = 0
    tool_calls: int = 0
    model: str = ""
    """The model that gave the last answer."""
    agent: str = ""
    """The agent that gave the last answer: another one after a handoff."""
    value: T | None = None
    problem: str = ""
    """The reason why the last answer does not have the requested type."""
    is_valid: bool = True
    """True if `value` is the answer."""
    explain: Callable[[], Manifest] | None = None
    """Loads the manifest of the last request; None if the run sent none, because it was answered before."""

    @property
    def manifest(self) -> Manifest:
        """The account of the last request: what went in, what stayed out and why. `print` shows it as a table."""
        if self.explain is None:
            raise InvalidInput(
                f"The run in {self.conversation!r} sent no request", fix="Explain an earlier one: agent.explain(…)."
            )
        return self.explain()

    def __repr__(self) -> str:
        """Return what a reader needs first. `messages` are counted."""
        shown = {"conversation": self.conversation, "finish": self.finish, "output": self.value or self.text}
        figures = f"messages={len(self.messages)}, steps={self.steps}, tool_calls={self.tool_calls}, cost={self.cost}"
        texts = ", ".join([f"{name}={shorten(repr(value))}" for name, value in shown.items()])
        return f"AgentResult({texts}, {figures})"

    @property
    def output(self) -> T:
        """The answer as a value of the agent's `output_type`; without one, its text.

        Raises `InvalidOutput` if the answer is invalid after the retry too.
        """
        if not self.is_valid:
            problem = f"the answer is not valid: {self.problem}" if self.problem else f"finish is {self.finish!r}"
            raise InvalidOutput(self.conversation, problem, finish=self.finish, text=self.text)
        return cast(T, self.value)


class AgentRun(Generic[T]):
    """A run of an agent. `async for text in run` yields the texts of its replies as they arrive.

    `events()` yields all events instead, and `await run.result()` waits for the end. The run starts with the first of
    these. Leaving the loop early cancels it; `async with` ensures that it has ended when the block is left.
    """

    def __init__(
        self,
        executor: AgentExecutor,
        conversation: str,
        start: Callable[[], Turn],
        start_again: Callable[[Message], Turn],
        output: OutputType[T] | None,
        input_messages: int,
    ) -> None:
        self.executor, self.conversation = executor, conversation
        self._start, self._start_again = start, start_again
        self._output, self._input_messages = output, input_messages
        self._starts: list[TurnStart] = []
        self._result: AgentResult[T] | None = None
        self._error: Exception | None = None
        self._events = self._run()

    def __aiter__(self) -> AsyncIterator[str]:
        return self.texts()

    async def texts(self) -> AsyncGenerator[str, None]:
        """Yield the texts of the replies in pieces, as they arrive. Raises the error that ended the run, if any."""
        async with aclosing(self.events()) as events:
            async for event in events:
                if isinstance(event, TextDelta):
                    yield event.text

    async def events(self) -> AsyncGenerator[StreamEvent, None]:
        """Yield the events of the run. Raises the error that ended it, if any."""
        async with aclosing(self._events):
            async for event in self._events:
                yield event

    async def result(self) -> AgentResult[T]:
        """Wait for the end of the run and return its result. Raises the error that ended it, if any."""
        async for _ in self._events:
            pass
        if self._error is not None:
            raise self._error
        if self._result is None:
            raise InvalidInput(
                "The run was left before its end, so it has no result", fix="Read it to its end, or start another run."
            )
        return self._result

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._events.aclose()

    async def _run(self) -> AsyncGenerator[StreamEvent, None]:
        try:
            async with aclosing(self._run_turns()) as events:
                async for event in events:
                    yield event
        except Exception as error:
            self._error = error
            raise

    async def _run_turns(self) -> AsyncGenerator[StreamEvent, None]:
        """Run the turn, and the second one if its answer is invalid, and set the result."""
        results: list[TurnResult] = []
        async with aclosing(self._run_turn(self._start, results)) as events:
            async for event in events:
                yield event
        if results[-1].finish == NOTHING_TO_DO:
            raise NothingNew(self.conversation, self.executor.channel(self.conversation))
        value, problem, is_valid = self._parse(results[-1])
        if problem:
            request = system(f"The answer is not valid: {problem}. Answer again, with nothing but valid JSON.")
            async with aclosing(self._run_turn(lambda: self._start_again(request), results)) as events:
                async for event in events:
                    yield event
            value, problem, is_valid = self._parse(results[-1])
        costs = [each.cost for each in results]
        usage = Usage()
        for each in results:
            usage = add_usage(usage, each.usage)
        self._result = AgentResult(
            conversation=self.conversation,
            finish=results[-1].finish,
            text=results[-1].text,
            model=results[-1].model,
            agent=results[-1].agent,
            messages=await run_blocking(self._load_messages, [each.turn for each in results]),
            usage=usage,
            cost=None if None in costs else sum(cast(list[float], costs)),
            cost_is_lower_bound=any([each.cost_is_lower_bound for each in results]),
            steps=sum(each.steps for each in results),
            tool_calls=sum(each.tool_calls for each in results),
            value=value,
            problem=problem,
            is_valid=is_valid,
            explain=self._explain(results),
        )

    def _explain(self, results: Sequence[TurnResult]) -> Callable[[], Manifest] | None:
        sent = [each.request for each in results if each.request is not None]
        return partial(past_requests.explain, self.executor.store, *sent[-1]) if sent else None

    async def _run_turn(
        self, start: Callable[[], Turn], results: list[TurnResult]
    ) -> AsyncGenerator[StreamEvent, None]:
        """Run a turn, yield its events, and append its result. Turns of queued input that follow it are not results."""
        turns: list[Turn] = []

        def begin() -> Turn:
            turns.append(start())
            return turns[0]

        async with aclosing(run_turn(begin)) as events:
            async for event in events:
                if isinstance(event, TurnStart):
                    self._starts.append(event)
                yield event
        results.append(await turns[0].wait())

    def _parse(self, result: TurnResult) -> tuple[T | None, str, bool]:
        """Return the answer as a value, the problem of an invalid answer, and True if there is a value."""
        if self._output is None:
            return cast(T, result.text), "", True  # the type of a plain answer is str
        if result.finish not in CHECKED_FINISHES:
            return None, "", False
        try:
            return self._output.parse(result.text), "", True
        except ValueError as error:
            return None, str(error).rstrip("."), False

    def _load_messages(self, turns: list[int]) -> tuple[Message, ...]:
        """Return the messages of these turns on the current branch: those that opened them, and those they wrote."""
        turns, opened = [number for number in turns if number], {event.turn: event.seq for event in self._starts}
        if not turns:
            return ()
        if any(number not in opened for number in turns):  # answered before this run
            opened |= {each.number: each.opened for each in self.executor.store.turns(self.conversation)}
        first, *others = [opened[number] for number in turns]
        opening = {first - number for number in range(self._input_messages)} | {*others}
        found = self.executor.store.load(self.conversation, after=max(0, min({*opening, first}) - 1))
        return tuple([message for message in found if message.seq in opening or message.turn in turns])


Models: TypeAlias = ModelArgument | Sequence[ModelArgument]
"""A model, or several: the next one goes on where one fails."""
FRAGMENT_ID = "answer_format"


class Agent(agent_config.FixedOptions, Generic[T]):
    """An agent: a model, its tools and its instructions. `run_sync`, `run` and `stream` let it answer.

    `model` is the name of a model, or a list of them: where one fails for good, the next one goes on with the turn.
    `instructions` is the system prompt: texts, prompt fragments, and functions of a `PromptContext`. `store` is a store
    or its address, by default a store in memory. `output_type` is the type of the answers: a msgspec Struct, a
    dataclass, a pydantic model, or another type that a JSON schema can describe; by default they are text. `name` is
    the name it writes under.

    `triggers` are the default ones unless given; `()` disables them. `approve` is called before a tool that requires
    approval runs. All other options are those of `AgentExecutor`.

    `handoffs` are agents that this one can hand the conversation over to, in the middle of a turn: the model gets a
    tool for each, and `description` is what it reads about an agent. The attribute can be set later, for agents that
    hand over to each other.
    """

    tool_fix = "Pass agent.as_tool()."
    __slots__ = (
        "__weakref__",
        "_background",
        "_beta_place",
        "_clients",
        "_elsewhere",
        "_executor",
        "_handoffs",
        "_make_executor",
        "_output",
        "_owns_store",
        "_servers",
        "description",
    )

    @overload
    def __init__(
        self: "Agent[str]",
        model: Models,
        *,
        tools: Iterable[ToolLike | NativeTool] | ToolLike | None = ...,
        instructions: Instructions | None = ...,
        store: Store | str | os.PathLike[str] | None = ...,
        output_type: None = ...,
        name: str = ...,
        triggers: Iterable[Trigger] | None = ...,
        handoffs: "Iterable[Agent[str]]" = ...,
        description: str = ...,
        **options: Unpack[AgentOptions],
    ) -> None: ...

    @overload
    def __init__(
        self,
        model: Models,
        *,
        tools: Iterable[ToolLike | NativeTool] | ToolLike | None = ...,
        instructions: Instructions | None = ...,
        store: Store | str | os.PathLike[str] | None = ...,
        output_type: type[T],
        name: str = ...,
        triggers: Iterable[Trigger] | None = ...,
        handoffs: "Iterable[Agent[T]]" = ...,
        description: str = ...,
        **options: Unpack[AgentOptions],
    ) -> None: ...

    def __init__(
        self,
        model: Models,
        *,
        tools: Iterable[ToolLike | NativeTool] | ToolLike | None = (),
        instructions: Instructions | None = None,
        store: Store | str | os.PathLike[str] | None = None,
        output_type: type[T] | None = None,
        name: str = DEFAULT_AGENT,
        triggers: Iterable[Trigger] | None = None,
        handoffs: "Iterable[Agent[Any]]" = (),
        description: str = "",
        **options: Unpack[AgentOptions],
    ) -> None:
        agent_config.check_options(Agent, options)
        listed = list_instructions(instructions)
        functions, native = agent_config.split_tools(tools)
        self.description = description
        self._output = output_type_of(output_type)
        self._background, self._clients = BackgroundSummaries(), list[tuple[Store, Provider, ClientCache]]()
        self._elsewhere: WeakKeyDictionary[AgentExecutor, WeakKeyDictionary[Store, AgentExecutor]] = WeakKeyDictionary()
        servers = check_servers(options.get("mcp_servers"))
        self._servers = ServerConnections(servers) if servers else None
        self._beta_place: str | None = None
        """The header or field of the first model that takes the beta flags; None before an executor was made."""
        self._handoffs = self._checked_handoffs(handoffs, name)
        self._make_executor = partial(
            self._executor_of,
            tools=(*functions.values(), *native),
            instructions=listed,
            triggers=tuple(default_triggers() if triggers is None else triggers),
            name=name,
            options=cast(AgentOptions, {key: value for key, value in options.items() if key != "endpoint"}),
        )
        self._owns_store = not isinstance(store, Store)
        opened = store if isinstance(store, Store) else open_store("memory:" if store is None else store)
        try:
            self._executor = self._make_executors(opened, model, options.get("endpoint"))
            agent_config.check_lifetime_of_any(self._executor.config, options)
        except BaseException:
            if self._owns_store:
                opened.close()
            raise

    def _make_executors(
        self,
        store: Store,
        model: Models,
        endpoint: Endpoint | None = None,
        instructions: Instructions | None = None,
    ) -> AgentExecutor:
        """Return the executor of a model, or of the first of several, which falls back to the others."""
        given = [model] if isinstance(model, str) or not isinstance(model, Sequence) else [*model]
        if not given:
            raise InvalidSetting("model must not be an empty list", fix='Pass a name: "anthropic:claude-opus-5-5".')
        make = self._make_executor if instructions is None else partial(self._make_executor, instructions=instructions)
        first, *others = [make(store, *agent_config.split_model(each, endpoint)) for each in given]
        return first.falling_back_to(others) if others else first

    def _executor_of(
        self,
        store: Store,
        provider: Provider,
        endpoint: Endpoint | None,
        *,
        tools: tuple[ToolLike | NativeTool, ...],
        instructions: Instructions,
        triggers: tuple[Trigger, ...],
        name: str,
        options: AgentOptions,
    ) -> AgentExecutor:
        offered = tuple([agent_config.handoff_tool(each.name, each.description) for each in self._handoffs])
        if self._output is not None:
            has_tools = bool(tools or offered or list_tools(instructions))
            instructions, options = _with_output(provider, has_tools, self._output, instructions, options)
        options = agent_config.with_nearest_lifetime(options, provider)
        place = provider.beta_header or provider.beta_field
        if self._beta_place is None:
            self._beta_place = place
        elif place != self._beta_place:  # the flags of one vendor mean nothing to another
            options = cast(AgentOptions, {**options, "betas": None})
        made = AgentExecutor(
            store,
            provider,
            tools=(*tools, *offered),
            triggers=triggers,
            name=name,
            instructions=instructions,
            **cast(AgentOptions, {**options, "endpoint": endpoint}),
        )
        if offered and provider.runs_tools:
            raise InvalidSetting(
                f"handoffs: {provider.name} runs tools itself, within one reply, and cannot hand a conversation over",
                fix="Hand over from an agent with another model. An agent of this provider can be handed over to.",
            )
        made = made.sharing(self._find_clients(store, provider, made.config.clients), self._background, self._servers)
        return made.handing_over_to(self._members) if offered else made

    def _find_clients(self, store: Store, provider: Provider, made: ClientCache) -> ClientCache:
        """Return the clients that the agent has for a provider already: runs with another model share them."""
        if made.given is not None:
            return made
        for where, known, clients in self._clients:
            if where is store and known == provider:
                return clients
        self._clients.append((store, provider, made))
        return made

    # ── handoffs ──────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def handoffs(self) -> "tuple[Agent[T], ...]":
        """The agents that this one can hand a conversation over to."""
        return self._handoffs

    @handoffs.setter
    def handoffs(self, others: "Iterable[Agent[T]]") -> None:
        self._handoffs = self._checked_handoffs(others, self._executor.name)
        self._executor = self._executor_like(self._executor, self._executor.store)

    def _checked_handoffs(self, others: "Iterable[Agent[T]]", name: str) -> "tuple[Agent[T], ...]":
        found = tuple(others) if isinstance(others, Iterable) else (others,)
        for each in found:
            if not isinstance(each, Agent):
                raise InvalidSetting(f"handoffs must be agents, got {type(each).__name__}", fix="Pass cc.Agent(…).")
            if each._output_kind() != self._output_kind():
                raise InvalidSetting(
                    f"handoffs: {each.name} answers with {_type_text(each._output_kind())}, and {name} with "
                    f"{_type_text(self._output_kind())}",
                    fix="Give both the same output_type: callers get the answer of either.",
                )
        names = [name, *[each.name for each in found]]
        if doubled := next((each for each in names if names.count(each) > 1), None):
            raise InvalidSetting(
                f"handoffs: two agents are named {doubled!r}", fix='Name each of them: cc.Agent(…, name="refunds").'
            )
        return found

    def _output_kind(self) -> object:
        return str if self._output is None else self._output.kind

    def _members(self, store: Store) -> dict[str, AgentConfig]:
        """Return all agents that a turn can come to, by name, configured for a store."""
        found: dict[str, Agent[T]] = {self.name: self}
        left = list(self.handoffs)
        while left:
            each = left.pop()
            if found.setdefault(each.name, each) is not each:
                raise InvalidSetting(
                    f"handoffs: two agents are named {each.name!r}", fix="Give each agent a name of its own."
                )
            left += [other for other in each.handoffs if found.get(other.name) is not other]
        return {name: each._executor_in(store).config for name, each in found.items() if each is not self}

    def _executor_in(self, store: Store) -> AgentExecutor:
        """Return the executor of this agent for turns in the store of another one."""
        executor = self.executor
        if executor.store is store:
            return executor
        made = self._elsewhere.setdefault(executor, WeakKeyDictionary())
        if store not in made:
            made[store] = self._executor_like(executor, store)
        return made[store]

    def _executor_like(
        self, executor: AgentExecutor, store: Store, instructions: Instructions | None = None
    ) -> AgentExecutor:
        """Return an executor with the models of another one: in a store, and with other instructions if given."""
        make = self._make_executor if instructions is None else partial(self._make_executor, instructions=instructions)
        kept = [(each.provider, each.clients.given) for each in (executor.config, *executor.config.fallbacks)]
        first, *others = [make(store, *each) for each in kept]
        return first.falling_back_to(others) if others else first

    def __repr__(self) -> str:
        return repr(self.executor).replace("AgentExecutor", "Agent", 1)

    # ── runs ──────────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def executor(self) -> AgentExecutor:
        """The executor that runs the turns."""
        return _overrides.get().get(self, self._executor)

    @contextmanager
    def override(
        self, model: Models, *, store: Store | str | os.PathLike[str] | None = None
    ) -> Generator[AgentExecutor]:
        """Let the agent answer with another model, and in another store, until the block is left: in a test, with a
        `contextc.testing.FakeModel`. Code that runs in other tasks and threads at the same time is not affected.
        """
        owned = None if store is None or isinstance(store, Store) else open_store(store)
        opened = owned or (store if isinstance(store, Store) else self.store)
        try:
            made = self._make_executors(opened, model)
            token = _overrides.set({**_overrides.get(), self: made})
            try:
                yield made
            finally:
                _overrides.reset(token)
        finally:
            if owned is not None:
                owned.close()

    @property
    def store(self) -> Store:
        """The store that holds the agent's conversations."""
        return self.executor.store

    @property
    def name(self) -> str:
        """The name that the agent writes under."""
        return self.executor.name

    def run_sync(
        self,
        input: TurnInput,
        *,
        conversation: str | None = None,
        wait: float | None = None,
        key: str | None = None,
        context: ContextSource | None = None,
        deps: object = None,
        model: Models | None = None,
        instructions: Instructions | None = None,
    ) -> AgentResult[T]:
        """Run a turn and return its result, for code without an event loop. `run` describes the arguments.

        A client of the provider is opened for the call, and closed after it. A summary that is being written in the
        background is waited for.
        """
        _check_no_loop("run_sync", "run")
        run = self.stream(
            input,
            conversation=conversation,
            wait=wait,
            key=key,
            context=context,
            deps=deps,
            model=model,
            instructions=instructions,
        )
        return asyncio.run(self._run_and_close(run))

    async def run(
        self,
        input: TurnInput,
        *,
        conversation: str | None = None,
        wait: float | None = None,
        key: str | None = None,
        context: ContextSource | None = None,
        deps: object = None,
        model: Models | None = None,
        instructions: Instructions | None = None,
    ) -> AgentResult[T]:
        """Run a turn and return its result. Raises the error that ended it, if any. Cancelling it cancels the turn.

        Each run is a new conversation unless `conversation` names one, which is continued or created. While another
        turn of this agent is running there, the input is stored and waits for its end: at most `wait` seconds, 0 for
        not at all, None for no limit. Input with the same `key`, such as the id of a delivery, is stored and answered
        once; a run that repeats it returns the first answer. `context` replaces the agent's prompt context for this
        run.

        `deps` are what tools, fragments, triggers and `approve` find as `deps` of their context: a database, the user
        who asks. They are never stored. `model` and `instructions` replace those of the agent for this run.
        """
        run = self.stream(
            input,
            conversation=conversation,
            wait=wait,
            key=key,
            context=context,
            deps=deps,
            model=model,
            instructions=instructions,
        )
        async with run:
            return await run.result()

    def stream(
        self,
        input: TurnInput,
        *,
        conversation: str | None = None,
        wait: float | None = None,
        key: str | None = None,
        context: ContextSource | None = None,
        deps: object = None,
        model: Models | None = None,
        instructions: Instructions | None = None,
    ) -> AgentRun[T]:
        """Return a run that starts when it is read: its texts, its events, and its result. `run` has the arguments."""
        messages = agent_config.input_messages(input, self.name)
        if not messages and conversation is None:
            raise InvalidInput(
                "input must not be None for a new conversation", fix="Pass a text, or name the conversation to answer."
            )
        named = f"{datetime.now():%Y-%m-%d-%H%M%S}-{token_hex(4)}" if conversation is None else conversation
        agent_config.check_prompt_context(context)
        executor = self._executor_for(model, instructions)
        agent_config.check_key(key, messages, conversation)
        start = partial(executor.start, named, wait=wait, context=context, deps=deps)
        return self._make_run(executor, named, partial(start, messages or None, key=key), start, len(messages))

    async def resume(
        self, conversation: str, *, wait: float | None = None, context: ContextSource | None = None, deps: object = None
    ) -> AgentResult[T]:
        """Continue a turn that waits for approval and has an answer, or whose process died, and return its result.

        Raises `UnknownConversation`.
        """
        await run_blocking(self.store.conversation, conversation)  # a run would create it
        async with self._resumed_run(conversation, wait, context, deps) as run:
            return await run.result()

    def resume_sync(
        self, conversation: str, *, wait: float | None = None, context: ContextSource | None = None, deps: object = None
    ) -> AgentResult[T]:
        """Do the same as `resume`, for code without an event loop."""
        _check_no_loop("resume_sync", "resume")
        self.store.conversation(conversation)
        return asyncio.run(self._run_and_close(self._resumed_run(conversation, wait, context, deps)))

    def _resumed_run(
        self, conversation: str, wait: float | None, context: ContextSource | None, deps: object
    ) -> AgentRun[T]:
        executor = self.executor
        resume, start = (
            partial(call, conversation, wait=wait, context=context, deps=deps)
            for call in (executor.resume, executor.start)
        )
        return self._make_run(executor, conversation, resume, start, 1)

    def as_tool(
        self,
        *,
        name: str | None = None,
        description: str | None = None,
        mode: CallMode = "alone",
        approval: bool = False,
        parallel: bool = True,
    ) -> AgentTool:
        """Return this agent as a tool of another one. It gets a task, and its answer is the result of the call.

        It works in a conversation of its own: `"alone"` with the task only, or in a `"fork"` of its caller's, with all
        that came before the reply that calls it. `name` and `description` are what the caller's model reads, by default
        the agent's own. It runs in the caller's store, with the caller's `deps`, and with the caller's `approve` if it
        has none. What it uses counts as used by its caller.
        """
        if mode not in CALL_MODES:
            raise InvalidSetting(
                'as_tool: mode must be "alone" or "fork"', got=mode, fix='Pass "fork" to show it the conversation.'
            )
        sees = "It sees this conversation." if mode == "fork" else "It sees nothing but the task, so say all it needs."

        async def ask(task: str) -> str:
            return (await self.run(task)).text

        made = tool(
            ask,
            name=agent_config.NOT_IN_TOOL_NAMES.sub("_", self.name) if name is None else name,
            description=f"{self.description if description is None else description} {sees}".strip(),
            approval=approval,
            parallel=parallel,
        )
        return AgentTool(
            tool=made.tool,
            function=made.function,
            parameters=made.parameters,
            approval=approval,
            parallel=parallel,
            executor_in=self._executor_in,
            mode=mode,
        )

    def explain(self, conversation: str, request: int | None = None) -> Manifest:
        """Return the account of a request of this agent, by default of the last one: what went in, what stayed out and
        why. `print` shows it as a table.
        """
        return self.executor.explain(conversation, request)

    async def compact(
        self, conversation: str, *, instructions: str = "", native: bool = False
    ) -> CompactionResult | None:
        """Summarize old messages of a conversation now. `AgentExecutor.compact` describes it, and the executor also has
        `preview_compaction` and `undo_compaction`.
        """
        return await self.executor.compact(conversation, instructions=instructions, native=native)

    async def close(self) -> None:
        """Close this event loop's clients of providers, its MCP servers, and the store if the agent opened it.

        The store of an `override` stays open: its block, or the caller that passed it, closes it.
        """
        await self._close_clients()
        if self._owns_store and self.store is self._executor.store:
            self.store.close()

    async def _close_clients(self) -> None:
        await self.executor.close()
        for _, _, clients in self._clients:
            await clients.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _executor_for(self, model: Models | None, instructions: Instructions | None) -> AgentExecutor:
        """Return the executor of a run: another one if it has another model or other instructions."""
        executor = self.executor
        if model is None and instructions is None:
            return executor
        listed = None if instructions is None else list_instructions(instructions)
        if model is not None:
            return self._make_executors(executor.store, model, None, listed)
        return self._executor_like(executor, executor.store, listed)

    def _make_run(
        self,
        executor: AgentExecutor,
        conversation: str,
        start: Callable[[], Turn],
        start_again: Callable[[Message], Turn],
        inputs: int,
    ) -> AgentRun[T]:
        check_name(conversation)
        return AgentRun(executor, conversation, start, start_again, self._output, inputs)

    async def _run_and_close(self, run: AgentRun[T]) -> AgentResult[T]:
        try:
            async with run:
                result = await run.result()
            await run.executor.config.background.wait(run.conversation)  # what is paid for is stored
            return result
        finally:
            await self._close_clients()


_overrides: ContextVar[Mapping[Agent[Any], AgentExecutor]] = ContextVar("contextc.overrides", default={})  # noqa: B039
"""The executors that agents have in place of their own, in the blocks of `Agent.override`."""


def _type_text(kind: object) -> str:
    return getattr(kind, "__name__", str(kind))


def _check_no_loop(name: str, other: str) -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise InvalidInput(
        f"{name} cannot be called while an event loop runs in this thread",
        fix=f"Use `await agent.{other}(…)`, or `async for text in agent.stream(…)`.",
    )


def _with_output(
    provider: Provider,
    has_tools: bool,
    output: OutputType[Any],
    instructions: Instructions,
    options: AgentOptions,
) -> tuple[Instructions, AgentOptions]:
    """Return instructions and options that require answers of this type, by the provider's settings if it has them."""
    schema = output.strict_schema
    is_known = has_structured_output(provider, with_tools=has_tools)
    if schema is None or not is_known or not accepts_schema(provider, schema):
        return add_fragment(instructions, PromptFragment(FRAGMENT_ID, output.instructions)), options
    required = structured_output_settings(provider, schema, output.name)
    settings = options.get("settings") or {}
    return instructions, {**options, "settings": _merge(required, settings)}


def _merge(ours: JSONObject, theirs: JSONObject) -> JSONObject:
    """Return both objects as one. `theirs` takes precedence; objects inside them are merged."""
    return {**ours, **{name: _merge_value(ours.get(name), value) for name, value in theirs.items()}}


def _merge_value(ours: JSON, theirs: JSON) -> JSON:
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return _merge(cast(JSONObject, ours), cast(JSONObject, theirs))
    return theirs  # pyright: ignore[reportUnknownVariableType]
