"""AgentExecutor: run an agent in conversations of a store, turn by turn, on any provider with a client.

The executor decides when to call the model and what to do with the reply. The compiler alone decides what is sent. An
executor is cheap and keeps all its state in the store: any number of them, in any number of processes, may serve one
conversation.
"""

import asyncio
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing
from copy import copy
from typing import Any, Literal, Self, TypeAlias
from weakref import WeakKeyDictionary, WeakSet

from contextc._deprecation import renamed_parameters
from contextc._json import JSONObject
from contextc._worker_threads import run_in_thread
from contextc.compiler import Compiled, MessageCompiler
from contextc.compiler.arguments import PromptSource, check_compile_arguments
from contextc.compiler.compaction import CompactionResult
from contextc.errors import ContextcError, InvalidInput, InvalidSetting, UnknownConversation, describe_error
from contextc.events import AnyEvent
from contextc.events import CompactionFinished as Compacted
from contextc.executor import validation
from contextc.executor.event_hub import event_hub, watch
from contextc.executor.limits import Limits
from contextc.executor.step_preparation import PROVIDER_COMPACTION_STATE
from contextc.executor.summarizer import ModelSummary, run_compaction, summarize_with_model
from contextc.executor.tool_runner import Approve
from contextc.executor.turn_handle import Turn
from contextc.executor.turn_lifecycle import now_ms
from contextc.executor.validation import TurnInput
from contextc.executor.worker_threads import run_blocking
from contextc.messages import Message
from contextc.prompts import PromptContext
from contextc.providers import Provider
from contextc.providers.client import Endpoint, endpoint
from contextc.store import Store, execution_records
from contextc.store.execution_records import QueuedMessage, QueueKind
from contextc.store.ledger_schema import Channel
from contextc.store.message_location import check_name, find_tip, load_tip
from contextc.store.types import DEFAULT_AGENT
from contextc.tools import ToolLike
from contextc.tools.execution import is_async
from contextc.tools.spec import NativeTool
from contextc.triggers import ResourceUsage, Trigger, check_triggers, read_resources

Summarize: TypeAlias = Callable[[Sequence[Message], str | None], str | Awaitable[str]]
PrepareMessages: TypeAlias = Callable[[JSONObject, int], JSONObject | Awaitable[JSONObject | None] | None]
ShouldContinue: TypeAlias = Callable[[Message, Sequence[Message]], bool]


class AgentExecutor:
    """An agent: a provider, its tools, its triggers and its limits.

    `triggers` is empty by default; `cc.default_triggers()` returns the usual ones. `approve` is called before a tool
    that requires approval runs. `summarize` selects how old messages are summarized before they would be left out:
    `"model"` asks the model, a function gets the messages and the previous summary, None disables summaries.

    `on_prepare_messages` gets a copy of each request and may return a changed one. `should_continue` is called after
    tools have run. `resources` reads memory and CPU usage when a trigger needs them. A turn that starts more than
    `session_gap` seconds after this agent's previous turn starts a session.

    `context` is the prompt context that fragments are rendered with: recipient, delegations, agents, project. The
    default recipient is the author of the message that opens the turn. `run` names the run that the agent's messages
    belong to. All other options are passed to the compiler.
    """

    @renamed_parameters(surroundings="context")
    def __init__(
        self,
        store: Store,
        provider: Provider | str,
        *,
        tools: Iterable[ToolLike | NativeTool] | ToolLike | None = (),
        triggers: Iterable[Trigger] | None = (),
        agent: str = DEFAULT_AGENT,
        fragments: PromptSource = (),
        system_prompt: str | None = None,
        settings: JSONObject | None = None,
        budget: int | None = None,
        output: int | None = None,
        directory: str | None = None,
        context: PromptContext | None = None,
        run: str | None = None,
        limits: Limits | None = None,
        approve: Approve | None = None,
        summarize: Summarize | Literal["model"] | None = "model",
        on_prepare_messages: PrepareMessages | None = None,
        should_continue: ShouldContinue | None = None,
        endpoint: Endpoint | None = None,
        resources: Callable[[], ResourceUsage] = read_resources,
        lease_seconds: float = 30,
        session_gap: float = 3600,
        **options: object,
    ) -> None:
        validation.check_options(AgentExecutor.__init__, options)
        self.store, self.agent, self.budget, self.lease_seconds = store, agent, budget, lease_seconds
        self.compiler = MessageCompiler(store, provider, **options)
        self.provider = self.compiler.provider
        check_compile_arguments(
            agent=agent,
            system_prompt=system_prompt,
            settings=settings,
            budget=budget,
            output=output,
            edit=None,
            rewind=None,
            dry_run=False,
        )
        self.tools, native = validation.split_tools(tools)
        spoken = check_triggers(triggers if triggers is not None else ())
        self.step_triggers = [each for each in spoken if each.at != ("mid_step",)]
        self.mid_step_triggers = [each for each in spoken if "mid_step" in each.at]
        self.channel_trigger_names = frozenset([each.name for each in spoken if each.scope == "channel"]) | {
            PROVIDER_COMPACTION_STATE
        }
        self.limits = validation.validated_limits(limits)
        validation.check_callback("approve", approve, parameters=("call", "tool"))
        validation.check_callback("on_prepare_messages", on_prepare_messages, parameters=("request", "step"))
        validation.check_callback("should_continue", should_continue, parameters=("reply", "results"), sync=True)
        validation.check_callback("resources", resources, parameters=(), sync=True)
        validation.check_client(endpoint)
        validation.check_prompt_context(context, run)
        validation.check_seconds("lease_seconds", lease_seconds)
        validation.check_seconds("session_gap", session_gap)
        self.session_gap = session_gap
        if isinstance(summarize, str) and summarize != "model":
            raise InvalidSetting(
                'summarize must be "model", a function or None', got=summarize, fix="Pass None to disable summaries."
            )
        if not isinstance(summarize, str):
            validation.check_callback("summarize", summarize, parameters=("messages", "previous"))
        self.approve, self.should_continue, self.resources = approve, should_continue, resources
        self._summarize, self._on_prepare_messages = summarize, on_prepare_messages
        self.compile_arguments: dict[str, Any] = {  # keyword arguments of `compile`
            "agent": agent,
            "fragments": fragments,
            "system_prompt": system_prompt,
            "tools": (*[each.tool for each in self.tools.values()], *native),
            "settings": {**self._provider_settings(has_tools=bool(self.tools or native)), **(settings or {})},
            "output": output,
            "directory": directory,
            "context": context,
            "run": run,
        }
        self.directory = directory or ""
        self._given_client = endpoint
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, Endpoint] = WeakKeyDictionary()
        self._turns: WeakSet[Turn] = WeakSet()

    # ── turns ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    @renamed_parameters(given="input")
    async def run(
        self, conversation: str, input: TurnInput = None, *, wait: float = 0
    ) -> AsyncGenerator[AnyEvent, None]:
        """Run a turn and yield its events. Leaving the loop early cancels the turn.

        Without input the turn takes the next queued input, or answers the last unanswered message. `wait` is the number
        of seconds to wait while another turn of this agent is running. An error that ends the turn is raised after the
        last event. To start the next turn right after leaving early, close the generator first
        (`contextlib.aclosing`).
        """
        turn = self.start(conversation, input, wait=wait)
        try:
            async with aclosing(turn.events()) as events:
                async for event in events:
                    yield event
        finally:
            if not turn.done:
                turn.cancel()
                await turn.wait()

    @renamed_parameters(given="input")
    def start(self, conversation: str, input: TurnInput = None, *, wait: float = 0) -> Turn:
        """Start a turn in a background task. Keep the returned handle: it has the events, `cancel` and the result."""
        return self._start_turn(conversation, validation.input_messages(input, self.agent), resume=False, wait=wait)

    def resume(self, conversation: str, *, wait: float = 0) -> Turn:
        """Continue a turn whose process died. Without such a turn, behave as `start` without input."""
        return self._start_turn(conversation, [], resume=True, wait=wait)

    def _start_turn(self, conversation: str, given: list[Message], *, resume: bool, wait: float) -> Turn:
        validation.check_turn_arguments(conversation, wait)
        turn = Turn(self, conversation, given, resume=resume, wait=wait)
        self._turns.add(turn)
        return turn

    @renamed_parameters(given="input")
    async def steer(self, conversation: str, input: str | Message) -> QueuedMessage:
        """Queue a message for the running turn: the model sees it with its next step.

        If no turn is running, the message stays queued and opens the next turn. Raises `UnknownConversation` if the
        conversation does not exist.
        """
        return await self._queue(conversation, input, "steer")

    @renamed_parameters(given="input")
    async def follow_up(self, conversation: str, input: str | Message) -> QueuedMessage:
        """Queue a message that opens the next turn when the running one has ended.

        If no turn is running, the message stays queued until `run` or `start` is called without input. The conversation
        is created if it does not exist.
        """
        return await self._queue(conversation, input, "follow-up")

    def watch(self, conversation: str, *, after: int = 0) -> AsyncGenerator[AnyEvent, None]:
        """Yield all events of a conversation after event number `after`, of all agents, then new ones as they occur.

        The conversation need not exist yet.
        """
        check_name(conversation)
        validation.check_after(after)
        return watch(self.store, conversation, after)

    async def compact(self, conversation: str) -> CompactionResult | None:
        """Summarize old messages now, as is done when the context is full. Return None if there is nothing to do."""
        steps = self.compiler.compaction(conversation, budget=self.budget, **self.compile_arguments)
        done, _ = await run_compaction(steps, self.summarize)
        if done is not None and not done.already:
            await run_blocking(self._publish_compaction, conversation, done)
        return done

    def asking(self, approve: Approve | None) -> Self:
        """Return a copy of this agent with another `approve` callback, for one conversation. It shares the client."""
        validation.check_callback("approve", approve, parameters=("call", "tool"))
        other = copy(self)
        other.approve = approve
        return other

    async def close(self) -> None:
        """Close this event loop's client of the provider."""
        line = self._clients.pop(asyncio.get_running_loop(), None)
        if line is not None:
            await line.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _provider_settings(self, *, has_tools: bool) -> JSONObject:
        """Return the request settings that the provider always requires."""
        provider = self.provider
        prose = {} if has_tools else provider.prose_settings
        return {**provider.settings, **provider.stream_settings, **prose}

    def channel(self, conversation: str) -> Channel:
        """Return the channel that this agent's requests are sent on."""
        return self.compiler.channel(conversation, agent=self.agent, directory=self.directory or None)

    # ── for the turns ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def client(self) -> Endpoint:
        """Return the client of the provider, one for each event loop."""
        if self._given_client is not None:
            return self._given_client
        loop = asyncio.get_running_loop()
        if loop not in self._clients:
            self._clients[loop] = endpoint(self.provider, store=self.store)
        return self._clients[loop]

    @property
    def has_summaries(self) -> bool:
        return self._summarize is not None

    async def summarize(self, messages: Sequence[Message], previous: str | None) -> ModelSummary:
        """Summarize messages with the configured function or with the model."""
        make = self._summarize
        if make is None or isinstance(make, str):
            if self.provider.runs_tools:  # a coding agent could act on text in the transcript: use a digest instead
                return ModelSummary("")
            return await summarize_with_model(await self.client(), self.provider, messages, previous)
        made = make(messages, previous) if is_async(make) else await run_in_thread(make, messages, previous)
        return ModelSummary(await made if inspect.isawaitable(made) else made)

    async def apply_prepare_callback(self, compiled: Compiled, step: int) -> Compiled:
        """Return the request after `on_prepare_messages` was applied to it."""
        if self._on_prepare_messages is None:
            return compiled
        request = compiled.copy()
        changed = self._on_prepare_messages(request, step)
        if inspect.isawaitable(changed):
            changed = await changed
        if changed is None or changed == compiled.params:
            return compiled
        if not isinstance(changed, dict):
            raise InvalidInput(
                f"on_prepare_messages must return a dict or None, got {type(changed).__name__}",
                fix="Return the whole request as a dict, or None.",
            )
        try:
            compiled.replace(changed)
        except ContextcError:
            raise
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidInput(
                f"on_prepare_messages: the returned request cannot be encoded as JSON: {describe_error(error)}",
                fix="Return only dicts, lists, strings, numbers, booleans and None.",
            ) from error
        return compiled

    def _publish_compaction(self, conversation: str, done: CompactionResult) -> None:
        event = Compacted(
            time=now_ms(),
            agent=self.agent,
            upto=done.upto,
            before=done.before,
            after=done.after,
            fallback=done.fallback,
        )
        self.store.write(
            lambda tx: execution_records.append_events(tx, load_tip(tx, conversation).conversation, [event])
        )
        event_hub(self.store).refresh(conversation)

    async def _queue(self, conversation: str, given: str | Message, kind: QueueKind) -> QueuedMessage:
        message = validation.input_message(given, self.agent)
        begins = any(turn.conversation == conversation and not turn.done for turn in self._turns)

        def work() -> QueuedMessage:
            if kind == "steer" and not begins and not self.store.read(lambda tx: find_tip(tx, conversation, False)):
                raise UnknownConversation(conversation)
            return self.store.enqueue(conversation, message, kind=kind, agent=self.agent)

        queued = await run_blocking(work)
        event_hub(self.store).refresh(conversation)
        return queued
