"""AgentExecutor: run an agent in conversations of a store, turn by turn, on any provider with a client.

The executor decides when to call the model and what to do with the reply. The compiler alone decides what is sent. An
executor is cheap and keeps all its state in the store: any number of them, in any number of processes, may serve one
conversation.
"""

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from copy import copy
from dataclasses import replace
from functools import partial, reduce
from typing import Self, Unpack
from weakref import WeakSet

from msgspec.structs import replace as replace_fields

from contextc._worker_threads import run_blocking
from contextc.compiler import MessageCompiler
from contextc.compiler.arguments import AgentArguments, check_compile_arguments
from contextc.compiler.compaction import (
    CompactionPreview,
    CompactionResult,
    SummarizerInput,
    compaction_event,
    take_waiting_summary,
)
from contextc.compiler.draft import read_compaction
from contextc.compiler.history import HISTORY_TOOL_NAMES
from contextc.compiler.manifest import Manifest
from contextc.errors import InvalidSetting, ProviderFailed, UnknownConversation
from contextc.events import AnyEvent, StreamEvent
from contextc.executor import agent_config
from contextc.executor.agent_calls import AgentTool, tighter_limits
from contextc.executor.agent_config import (
    AgentConfig,
    AgentOptions,
    Approve,
    ClientCache,
    ContextSource,
    ModelArgument,
    ShouldContinue,
    Suspend,
    TurnInput,
    TurnOwner,
)
from contextc.executor.event_hub import event_hub, watch
from contextc.executor.fragment_rendering import render_between_turns, without_turn
from contextc.executor.limits import Limits
from contextc.executor.server_tools import RESERVED_NAMES
from contextc.executor.summaries import BackgroundSummaries, ModelSummary, request_reply, run_compaction
from contextc.executor.summaries import summarize as summarize_messages
from contextc.executor.turn import PROVIDER_COMPACTION_STATE, Turn, run_turn
from contextc.executor.turn_store import add_usage
from contextc.mcp.connection import ServerConnections
from contextc.mcp.declaration import check_servers
from contextc.messages import Message, Usage
from contextc.models import bill
from contextc.prompts import Instructions, PromptContext, list_instructions, list_tools
from contextc.providers import Provider
from contextc.providers.client import Endpoint
from contextc.store import Store, turn_records
from contextc.store.ledger_schema import Channel
from contextc.store.message_log import DEFAULT_AGENT, check_name, find_tip, load_tip, now_ms
from contextc.store.transaction_engine import Transaction
from contextc.store.turn_records import QueuedMessage, QueueKind
from contextc.tools import FunctionTool, ToolLike
from contextc.tools.definitions import NativeTool
from contextc.tools.function_tool import tools_by_name
from contextc.triggers import ResourceUsage, Trigger, check_triggers, default_triggers


class AgentExecutor(agent_config.FixedOptions):
    """An agent: a model, its tools, its instructions, its triggers and its limits.

    `instructions` is the system prompt: texts, prompt fragments, and functions of a `PromptContext`. `triggers` are
    `cc.default_triggers()` unless given; `()` disables them. `approve` is called before a tool that requires approval
    runs; with `approve=cc.Suspend()` the turn waits for a stored answer instead.
    `summarize` selects how old messages are summarized before they would be left out: `"model"` asks the model, a
    function gets the messages and the previous summary, None disables summaries. `summary_instructions` say what
    summaries should keep. From the share `summarize_at` of the available tokens on, the model writes a summary in the
    background, if the next trimming needs one. With None, it is written only when the window is full.

    `on_prepare_messages` gets a copy of each request and may return a changed one. `should_continue` is called after
    tools have run. `resources` reads memory and CPU usage when a trigger needs them. A turn that starts more than
    `session_gap` seconds after this agent's previous turn starts a session.

    `context` is the prompt context that fragments are rendered with: recipient, delegations, agents, project. It may be
    a function of the conversation's name, which is called before each step. The default recipient is the author of the
    message that opens the turn. `run` names the run that the agent's messages belong to. `compiler` has the options of
    its compiler: `cc.CompilerOptions(keep_words=0.2)`; `cache` is one of them, and says how long the provider's prompt
    cache should keep what it has read: "1h", for example. `mcp_servers` are MCP servers whose tools the agent has, too;
    if their definitions need more than the share `defer_tools_above` of the window, the model searches them instead.
    `tool_search="contextc"` or `"provider"` says whose search that is; by default the provider's where provider and
    model are known to have one.
    Of an executor, only `context` can be set later; other assignments raise an error.
    """

    __slots__ = ("__weakref__", "_turns", "config")

    def __init__(
        self,
        store: Store,
        model: ModelArgument,
        *,
        tools: Iterable[ToolLike | NativeTool] | ToolLike | None = (),
        instructions: Instructions | None = None,
        name: str = DEFAULT_AGENT,
        triggers: Iterable[Trigger] | None = None,
        **options: Unpack[AgentOptions],
    ) -> None:
        given = agent_config.config_fields(AgentExecutor, options)
        settings, max_output_tokens = options.get("settings"), options.get("max_output_tokens")
        agent_config.check_client(options.get("endpoint"))
        provider, endpoint = agent_config.split_model(model, options.get("endpoint"))
        if options.get("betas") or options.get("headers"):
            provider = provider.sending(options.get("betas"), options.get("headers"))
        chosen = agent_config.compiler_options(options.get("compiler"), options.get("cache"))
        compiler = MessageCompiler(store, provider, **chosen)
        listed = list_instructions(instructions)
        check_compile_arguments(
            name=name,
            settings=settings,
            max_input_tokens=options.get("max_input_tokens"),
            max_output_tokens=max_output_tokens,
            edit=None,
            rewind=None,
            dry_run=False,
        )
        functions, native = agent_config.split_tools(tools)
        servers = check_servers(options.get("mcp_servers"))
        functions = tools_by_name(
            [*functions.values(), *[t for t in list_tools(listed) if t not in functions.values()]]
        )
        if compiler.options.fetch and (taken := [each for each in HISTORY_TOOL_NAMES if each in functions]):
            raise InvalidSetting(
                f"Two tools are named {taken[0]}: yours, and the one that reads what is no longer shown",
                fix="Rename yours: cc.tool(function, name=…). "
                "compiler=cc.CompilerOptions(fetch=False) switches the other one off.",
            )
        if servers and (taken := [each for each in RESERVED_NAMES if each in functions]):
            raise InvalidSetting(
                f"Two tools are named {taken[0]}: yours, and the one that finds and runs tools of MCP servers",
                fix="Rename yours: cc.tool(function, name=…).",
            )
        checked = check_triggers(default_triggers() if triggers is None else triggers)
        prose = {} if functions or native or servers or provider.model.tools else provider.prose_settings
        self.config = AgentConfig(
            store=store,
            agent=name,
            provider=provider,
            compiler=compiler,
            compile_arguments={
                "name": name,
                "instructions": listed,
                "tools": (*[each.tool for each in functions.values()], *native),
                "settings": {**provider.settings, **provider.stream_settings, **prose, **(settings or {})},
                "max_output_tokens": max_output_tokens,
                "directory": options.get("directory"),
                "run": options.get("run"),
            },
            tools=functions,
            step_triggers=[each for each in checked if each.at != ("mid_step",)],
            mid_step_triggers=[each for each in checked if "mid_step" in each.at],
            channel_trigger_names=frozenset([each.name for each in checked if each.scope == "channel"])
            | {PROVIDER_COMPACTION_STATE},
            background=BackgroundSummaries(),
            clients=ClientCache(provider, store, endpoint),
            servers=ServerConnections(servers) if servers else None,
            **given,
        )
        self.config.check()
        self._turns: WeakSet[Turn] = WeakSet()

    @property
    def store(self) -> Store:
        """The store that holds the conversations."""
        return self.config.store

    @property
    def name(self) -> str:
        """The name that the agent writes under."""
        return self.config.agent

    @property
    def provider(self) -> Provider:
        """The provider and model that are called."""
        return self.config.provider

    @property
    def compiler(self) -> MessageCompiler:
        """The compiler of this agent's requests."""
        return self.config.compiler

    @property
    def tools(self) -> Mapping[str, FunctionTool]:
        """The tools that run in this process, by name."""
        return self.config.tools

    @property
    def limits(self) -> Limits:
        """The limits of a turn."""
        return self.config.limits

    @property
    def max_input_tokens(self) -> int | None:
        """The limit of the whole input in tokens; None if only the window limits it."""
        return self.config.max_input_tokens

    @property
    def directory(self) -> str:
        """The working directory of the agent; empty if it has none."""
        return self.config.directory

    @property
    def approve(self) -> Approve | Suspend | None:
        """The callback that approves tool calls, or a `Suspend`."""
        return self.config.approve

    @property
    def should_continue(self) -> ShouldContinue | None:
        """The callback that decides whether the turn continues after tools have run."""
        return self.config.should_continue

    @property
    def resources(self) -> Callable[[], ResourceUsage]:
        """The function that reads memory and CPU usage for triggers."""
        return self.config.resources

    @property
    def lease_seconds(self) -> float:
        """The seconds after which the lease of a dead process expires."""
        return self.config.lease_seconds

    @property
    def session_gap(self) -> float:
        """The pause in seconds after which the next turn starts a session."""
        return self.config.session_gap

    @property
    def context(self) -> ContextSource | None:
        """The prompt context of later turns. A turn that runs keeps its own."""
        return self.config.context

    @context.setter
    def context(self, context: ContextSource | None) -> None:
        self.config = self._with_context(context).config

    @property
    def compile_arguments(self) -> AgentArguments:
        """The arguments of `compiler.compile` for this agent's requests, without `max_input_tokens` and without a
        context that is a function.
        """
        context = self.config.context
        return {**self.config.compile_arguments, "context": context if isinstance(context, PromptContext) else None}

    def __repr__(self) -> str:
        models = [each.provider.title for each in (self.config, *self.config.fallbacks)]
        shown = repr(models[0] if len(models) == 1 else models)
        return f"AgentExecutor({shown}, name={self.name!r}, tools={[*self.tools]})"

    # ── turns ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    def run(
        self,
        conversation: str,
        input: TurnInput = None,
        *,
        wait: float | None = None,
        context: ContextSource | None = None,
        deps: object = None,
        key: str | None = None,
    ) -> AsyncGenerator[StreamEvent, None]:
        """Run a turn and yield its events. Leaving the loop early cancels the turn.

        Without input the turn takes the next queued input, or answers the last unanswered message. While another turn
        of this agent is running, the input is stored and waits for its end: at most `wait` seconds, 0 for not at all,
        None for no limit. Then `ConversationBusy` is raised. Input with the same `key` is stored and answered once; if
        it was answered before, the result is that of the first time. `context` replaces the prompt context for this
        turn, and for those that follow it because input was queued. `deps` are what tools, fragments, triggers and
        `approve` find as `deps` of their context; they are never stored. An error that ends the turn is raised after
        the last event. To start the next turn right after leaving early, close the generator first
        (`contextlib.aclosing`).
        """
        return run_turn(lambda: self.start(conversation, input, wait=wait, context=context, deps=deps, key=key))

    def start(
        self,
        conversation: str,
        input: TurnInput = None,
        *,
        wait: float | None = None,
        context: ContextSource | None = None,
        deps: object = None,
        key: str | None = None,
    ) -> Turn:
        """Start a turn in a background task. Keep the returned handle: it has the events, `cancel` and the result.

        If a turn of this agent waits for approval, the input is queued, and the `finish` of the result is `waiting`.
        """
        messages = agent_config.input_messages(input, self.config.agent)
        return self._start_turn(conversation, messages, resume=False, wait=wait, context=context, deps=deps, key=key)

    def resume(
        self, conversation: str, *, wait: float | None = None, context: ContextSource | None = None, deps: object = None
    ) -> Turn:
        """Continue a turn whose process died, or that waits for approval and has an answer.

        While no approval is answered, the turn ends with the error `TurnWaits`. Without such a turn, behave as `start`
        without input.
        """
        return self._start_turn(conversation, [], resume=True, wait=wait, context=context, deps=deps)

    def _start_turn(
        self,
        conversation: str,
        given: list[Message],
        *,
        resume: bool,
        wait: float | None,
        context: ContextSource | None,
        deps: object,
        key: str | None = None,
    ) -> Turn:
        agent_config.check_turn_arguments(conversation, wait)
        agent_config.check_key(key, given, conversation)
        config = self.config if context is None else self._with_context(context).config
        turn = Turn(config.for_turn(conversation, deps), conversation, given, resume=resume, wait=wait, key=key)
        self._turns.add(turn)
        return turn

    def _with_context(self, context: ContextSource | None) -> Self:
        agent_config.check_prompt_context(context)
        return self._copy(replace(self.config, context=context))

    def _copy(self, config: AgentConfig) -> Self:
        other = copy(self)
        other.config = config
        return other

    async def steer(self, conversation: str, input: str | Message) -> QueuedMessage:
        """Queue a message for the running turn: the model sees it with its next step.

        If no turn is running, the message stays queued and opens the next turn. Raises `UnknownConversation` if the
        conversation does not exist.
        """
        return await self._queue(conversation, input, "steer")

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
        agent_config.check_after(after)
        return watch(self.config.store, conversation, after)

    async def compact(
        self, conversation: str, *, instructions: str = "", native: bool = False
    ) -> CompactionResult | None:
        """Summarize old messages now, as is done when the context is full. Return None if there is nothing to do.

        `instructions` say what this summary should keep, in addition to the agent's `summary_instructions`. Without
        them, a summary that was written in the background is used now, if there is one. With `native`, the provider
        writes a summary of everything, which stands for it in requests to this provider only; `instructions` replace
        those of the provider.
        """
        while native:
            config = self.config.without_refused_betas()
            try:
                return await self._compact_natively(config, conversation, instructions)
            except ProviderFailed as failure:
                if not config.clients.note_refusal(failure, config.provider):
                    raise
        config = self.config.without_refused_betas()
        agent_config.check_summary_instructions(config.summarize, instructions)
        asked = await render_between_turns(config, conversation, config.arguments_for(conversation))
        both = "\n".join([each for each in (config.summary_instructions, instructions) if each.strip()])
        used = list[Usage]()

        async def counted(wanted: SummarizerInput) -> ModelSummary:
            made = await summarize_messages(config, wanted)
            used.extend([made.usage] if made.usage is not None else [])
            return made

        append = partial(self._append_compaction, conversation, used)
        await config.background.wait(conversation)
        done = await run_blocking(
            take_waiting_summary,
            self.store,
            conversation,
            self.name,
            config.compiler.counter.count_system,
            None if instructions.strip() else append,
        )
        if done is None:
            steps = config.compiler.compaction(
                conversation,
                asked,
                max_input_tokens=config.max_input_tokens,
                instructions=both,
                from_cache=config.summarize == "model",
                in_transaction=append,
            )
            done = await run_compaction(steps, counted)
        event_hub(self.store).refresh(conversation)
        return done

    async def _compact_natively(
        self, config: agent_config.AgentConfig, conversation: str, instructions: str
    ) -> CompactionResult | None:
        """Ask the provider for a compaction, and store the reply with its block. No turn runs meanwhile."""
        asked = await render_between_turns(config, conversation, config.arguments_for(conversation))
        compiler = config.compiler
        async with self.store.aio.lease(conversation, self.name) as lease:
            compiled = await run_blocking(
                partial(compiler.compile_compaction, conversation, summary_instructions=instructions, **asked)
            )
            if compiled is None:
                return None
            await run_blocking(partial(compiler.begin, compiled, lease=lease))
            try:
                reply = await request_reply(config.clients.get(), compiled)
                if not read_compaction(reply, compiled.formatter):
                    raise ProviderFailed(compiled.provider.name, "invalid", "the reply has no compaction")
            except BaseException as error:
                await run_blocking(partial(compiler.abort, compiled, error))
                raise
            done = CompactionResult(
                upto=compiled.snapshot.tip.seq,
                text=compiled.formatter.compaction_text(reply),
                before=compiled.budget.messages,
                after=compiler.counter.count_message(reply),
            )
            append = partial(self._append_compaction, conversation, [reply.usage] if reply.usage else [])
            await run_blocking(
                partial(
                    compiler.commit, compiled, reply, lease=lease, in_transaction=lambda tx, stored: append(tx, done)
                )
            )
        event_hub(self.store).refresh(conversation)
        return done

    def preview_compaction(self, conversation: str) -> CompactionPreview | None:
        """Return what `compact` would replace, and what it costs. Nothing is stored, and no model is called."""
        config = self.config.without_refused_betas()
        asked = without_turn(config.arguments_for(conversation), awaits=False)
        return config.compiler.preview_compaction(
            conversation, from_cache=config.summarize == "model", max_input_tokens=config.max_input_tokens, **asked
        )

    def undo_compaction(self, conversation: str) -> int | None:
        """Take the latest summary out of use: the next request has the original messages again, as far as they fit.

        Return the number of the last message that the summary covers; None if there is none.
        """
        found = self.config.compiler.undo_compaction(conversation, name=self.name)
        event_hub(self.store).refresh(conversation)
        return found

    def falling_back_to(self, others: Iterable["AgentExecutor"]) -> Self:
        """Return a copy of this agent that goes on with the models of others, in this order, where its own fails."""
        return self._copy(replace(self.config, fallbacks=tuple([each.config for each in others])))

    def handing_over_to(self, others: Callable[[Store], Mapping[str, AgentConfig]]) -> Self:
        """Return a copy of this agent whose turns other agents can take over. `others` returns them for a store."""
        return self._copy(replace(self.config, handoffs=others))

    def sharing(self, clients: ClientCache, background: BackgroundSummaries, servers: ServerConnections | None) -> Self:
        """Return a copy of this agent that has the clients, background summaries and MCP servers of another one."""
        return self._copy(replace(self.config, clients=clients, background=background, servers=servers))

    def asking(self, approve: Approve | Suspend | None) -> Self:
        """Return a copy of this agent with another `approve` callback, for one conversation. It shares the client."""
        agent_config.check_approve(approve)
        return self._copy(replace(self.config, approve=approve))

    def owned_by(self, owner: TurnOwner) -> Self:
        """Return a copy of this agent whose turns can be taken back. It shares the client."""
        return self._copy(replace(self.config, owner=owner))

    def called_by(self, caller: AgentConfig, limits: Limits, owner: TurnOwner) -> Self:
        """Return a copy of this agent for a call of another one, which has these limits left."""
        return self._copy(
            replace(
                self.config,
                approve=self.config.approve or caller.approve,
                turn_deps=caller.turn_deps,
                limits=tighter_limits(self.config.limits, limits),
                owner=owner,
            )
        )

    async def close(self) -> None:
        """Close this event loop's client of the provider, and its MCP servers. A summary that is being written there is
        cancelled.
        """
        for each in self.config.tools.values():
            if isinstance(each, AgentTool):
                await each.executor_in(self.store).close()
        others = self.config.handoffs(self.store).values() if self.config.handoffs is not None else ()
        for config in (self.config, *others):
            for each in (config, *config.fallbacks):
                await each.background.close()
                await each.clients.close()
                if each.servers is not None:
                    await each.servers.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def channel(self, conversation: str) -> Channel:
        """Return the channel that this agent's requests are sent on."""
        return self.compiler.channel(conversation, name=self.name, directory=self.directory or None)

    def explain(self, conversation: str, request: int | None = None) -> Manifest:
        """Return the account of a request of this agent, by default of the last one. `print` shows it as a table."""
        return self.compiler.explain(conversation, request, name=self.name, directory=self.directory or None)

    async def client(self) -> Endpoint:
        """Return the client of the provider, one for each event loop."""
        return self.config.clients.get()

    def _append_compaction(self, conversation: str, used: list[Usage], tx: Transaction, done: CompactionResult) -> None:
        at, usage = load_tip(tx, conversation), reduce(add_usage, used) if used else None
        spent = bill(self.provider.model, usage) if usage is not None else None
        dollars, is_lower_bound = spent or (None, False)
        event = replace_fields(
            compaction_event(done),
            time=now_ms(),
            agent=self.name,
            seq=at.seq,
            usage=usage,
            cost=dollars,
            cost_is_lower_bound=is_lower_bound,
        )
        turn_records.append_events(tx, at.conversation, [event])

    async def _queue(self, conversation: str, given: str | Message, kind: QueueKind) -> QueuedMessage:
        message = agent_config.input_message(given, self.name)
        running = [turn for turn in self._turns if turn.conversation == conversation and not turn.done]
        agent = running[-1].agent if running else self.name

        def work() -> QueuedMessage:
            if kind == "steer" and not running and not self.store.read(lambda tx: find_tip(tx, conversation, False)):
                raise UnknownConversation(conversation)
            return self.store.enqueue(conversation, message, kind=kind, agent=agent)

        queued = await run_blocking(work)
        event_hub(self.store).refresh(conversation)
        return queued
