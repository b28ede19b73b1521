"""AgentExecutor: runs an agent in conversations of a store, turn by turn, on any provider that can be called.

It decides when to call and what to do with the answer; what is sent is the compiler's alone. An executor is cheap and
holds nothing that the store does not: any number of them, in any number of processes, may serve one conversation.
"""

import asyncio
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing
from copy import copy
from typing import Any, Literal, Self, TypeAlias
from weakref import WeakKeyDictionary, WeakSet

from contextc._json import JSONObject
from contextc._threads import in_thread
from contextc.compiler import Compiled, MessageCompiler
from contextc.compiler.compaction import Compaction
from contextc.compiler.door import check_ask
from contextc.compiler.prepared import Fragments
from contextc.errors import ContextcError, InvalidInput, InvalidSetting, UnknownConversation, described
from contextc.events import AnyEvent
from contextc.events import Compaction as Compacted
from contextc.executor import door
from contextc.executor.door import Given
from contextc.executor.handle import Turn
from contextc.executor.limits import Limits
from contextc.executor.preparing import SHORTENED
from contextc.executor.summarizing import Summed, summary, with_summaries
from contextc.executor.threads import durable
from contextc.executor.tools import Approve
from contextc.executor.watching import hub, watch
from contextc.executor.writing import now
from contextc.ledger.standing import Channel
from contextc.messages import Message
from contextc.prompts import Surroundings
from contextc.providers import Provider
from contextc.providers.endpoint import Endpoint, endpoint
from contextc.store import Store, turns
from contextc.store.base import DEFAULT_AGENT
from contextc.store.places import check_name, find_head, head
from contextc.store.turns import Queued, QueueKind
from contextc.toolbox import Toolable
from contextc.toolbox.running import is_async
from contextc.tools import NativeTool
from contextc.triggers import Resources, Trigger, check_triggers, read_resources

Summarize: TypeAlias = Callable[[Sequence[Message], str | None], str | Awaitable[str]]
Prepare: TypeAlias = Callable[[JSONObject, int], JSONObject | Awaitable[JSONObject | None] | None]
Proceed: TypeAlias = Callable[[Message, Sequence[Message]], bool]


class AgentExecutor:
    """An agent: a provider, its tools, what may speak between its steps, and how far it may go.

    `triggers` are none unless given; `cc.default_triggers()` are those most want. `approve` is asked before a tool that
    needs it runs. `summarize` is how old messages are summed up before they would be left out: by the model itself, by
    a function of messages and the summary before them, or (None) not at all. `on_prepare_messages` gets a copy of each
    request and may return another. `should_continue` is asked after tools have run. `resources` is what reads memory
    and CPU, where a trigger asks. A turn that begins more than `session_gap` seconds after the last one of this agent
    begins a session. `surroundings` is the prompt context that fragments are rendered with: recipient, delegations,
    agents, project. Without a recipient it is the author of the message that opens the turn. `run` names the run that
    its messages belong to. Options that are not named here are the compiler's.
    """

    def __init__(
        self,
        store: Store,
        provider: Provider | str,
        *,
        tools: Iterable[Toolable | NativeTool] | Toolable | None = (),
        triggers: Iterable[Trigger] | None = (),
        agent: str = DEFAULT_AGENT,
        fragments: Fragments = (),
        system_prompt: str | None = None,
        settings: JSONObject | None = None,
        budget: int | None = None,
        output: int | None = None,
        directory: str | None = None,
        surroundings: Surroundings | None = None,
        run: str | None = None,
        limits: Limits | None = None,
        approve: Approve | None = None,
        summarize: Summarize | Literal["model"] | None = "model",
        on_prepare_messages: Prepare | None = None,
        should_continue: Proceed | None = None,
        endpoint: Endpoint | None = None,
        resources: Callable[[], Resources] = read_resources,
        lease_seconds: float = 30,
        session_gap: float = 3600,
        **options: object,
    ) -> None:
        door.check_names(AgentExecutor.__init__, options)
        self.store, self.agent, self.budget, self.lease_seconds = store, agent, budget, lease_seconds
        self.compiler = MessageCompiler(store, provider, **options)
        self.provider = self.compiler.provider
        check_ask(
            agent=agent,
            system_prompt=system_prompt,
            settings=settings,
            budget=budget,
            output=output,
            edit=None,
            rewind=None,
            dry_run=False,
        )
        self.tools, native = door.parted_tools(tools)
        spoken = check_triggers(triggers if triggers is not None else ())
        self.speaking = [each for each in spoken if each.at != ("mid_step",)]
        self.hinting = [each for each in spoken if "mid_step" in each.at]
        self.of_channel = frozenset([each.name for each in spoken if each.scope == "channel"]) | {SHORTENED}
        self.limits = door.checked_limits(limits)
        door.check_callback("approve", approve, takes=("call", "tool"))
        door.check_callback("on_prepare_messages", on_prepare_messages, takes=("request", "step"))
        door.check_callback("should_continue", should_continue, takes=("reply", "results"), sync=True)
        door.check_callback("resources", resources, takes=(), sync=True)
        door.check_endpoint(endpoint)
        door.check_context(surroundings, run)
        door.check_seconds("lease_seconds", lease_seconds)
        door.check_seconds("session_gap", session_gap)
        self.session_gap = session_gap
        if isinstance(summarize, str) and summarize != "model":
            raise InvalidSetting(f'summarize={summarize!r}: write "model", or give a function, or None for none.')
        if not isinstance(summarize, str):
            door.check_callback("summarize", summarize, takes=("messages", "previous"))
        self.approve, self.should_continue, self.resources = approve, should_continue, resources
        self._summarize, self._prepare = summarize, on_prepare_messages
        self.asked: dict[str, Any] = {  # what `compile` is called with
            "agent": agent,
            "fragments": fragments,
            "system_prompt": system_prompt,
            "tools": (*[each.tool for each in self.tools.values()], *native),
            "settings": {**self._own_settings(has_tools=bool(self.tools or native)), **(settings or {})},
            "output": output,
            "directory": directory,
            "surroundings": surroundings,
            "run": run,
        }
        self.directory = directory or ""
        self._given_endpoint = endpoint
        self._endpoints: WeakKeyDictionary[asyncio.AbstractEventLoop, Endpoint] = WeakKeyDictionary()
        self._begun: WeakSet[Turn] = WeakSet()

    # ── turns ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def run(self, conversation: str, given: Given = None, *, wait: float = 0) -> AsyncGenerator[AnyEvent, None]:
        """Run a turn, and tell what happens. Leaving the loop early cancels the turn.

        Without input the turn takes what waits, or answers what was not answered. `wait` is how many seconds to stand
        in line where another turn of this agent is running. What ends the turn with an error is raised at the end.
        Who leaves early and wants the next turn at once closes the generator first (`contextlib.aclosing`), or waits.
        """
        turn = self.start(conversation, given, wait=wait)
        try:
            async with aclosing(turn.events()) as events:
                async for event in events:
                    yield event
        finally:
            if not turn.done:
                turn.cancel()
                await turn.wait()

    def start(self, conversation: str, given: Given = None, *, wait: float = 0) -> Turn:
        """Begin a turn that runs by itself. Keep the handle: it says what happens, stops it, and has the result."""
        return self._turn(conversation, door.as_messages(given, self.agent), resume=False, wait=wait)

    def resume(self, conversation: str, *, wait: float = 0) -> Turn:
        """Go on with a turn whose process died; where there is none, as `start` without input."""
        return self._turn(conversation, [], resume=True, wait=wait)

    def _turn(self, conversation: str, given: list[Message], *, resume: bool, wait: float) -> Turn:
        door.check_call(conversation, wait)
        turn = Turn(self, conversation, given, resume=resume, wait=wait)
        self._begun.add(turn)
        return turn

    async def steer(self, conversation: str, given: str | Message) -> Queued:
        """Say something to the turn that runs: the model sees it with its next step.

        Where none runs it waits, and the next turn begins with it. A conversation that is not there is refused.
        """
        return await self._queue(conversation, given, "steer")

    async def follow_up(self, conversation: str, given: str | Message) -> Queued:
        """Say something that waits until the turn is over, and then opens the next.

        Where none runs it waits for `run` or `start` without input. A conversation that is not there is made.
        """
        return await self._queue(conversation, given, "follow-up")

    def watch(self, conversation: str, *, after: int = 0) -> AsyncGenerator[AnyEvent, None]:
        """Every event of a conversation after number `after`, whoever's it is, and then those to come.

        One that is not there yet is waited for.
        """
        check_name(conversation)
        door.check_after(after)
        return watch(self.store, conversation, after)

    async def compact(self, conversation: str) -> Compaction | None:
        """Have what is old summed up now, as it is done when room is short; None where there is nothing to sum up."""
        steps = self.compiler.compaction(conversation, budget=self.budget, **self.asked)
        done, _ = await with_summaries(steps, self.summarize)
        if done is not None and not done.already:
            await durable(self._tell_compacted, conversation, done)
        return done

    def asking(self, approve: Approve | None) -> Self:
        """The same agent, on the same line, with somebody else to ask before a tool runs: for one conversation, say."""
        door.check_callback("approve", approve, takes=("call", "tool"))
        other = copy(self)
        other.approve = approve
        return other

    async def close(self) -> None:
        """Close the line to the provider, on this event loop."""
        line = self._endpoints.pop(asyncio.get_running_loop(), None)
        if line is not None:
            await line.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _own_settings(self, *, has_tools: bool) -> JSONObject:
        """What its provider has to be told, whatever is wanted."""
        provider = self.provider
        prose = {} if has_tools else provider.prose_settings
        return {**provider.settings, **provider.stream_settings, **prose}

    def channel(self, conversation: str) -> Channel:
        """Return the channel that its requests are sent on."""
        return self.compiler.channel(conversation, agent=self.agent, directory=self.directory or None)

    # ── for the turns ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def open_endpoint(self) -> Endpoint:
        """The line to the provider; one for each event loop."""
        if self._given_endpoint is not None:
            return self._given_endpoint
        loop = asyncio.get_running_loop()
        if loop not in self._endpoints:
            self._endpoints[loop] = endpoint(self.provider, store=self.store)
        return self._endpoints[loop]

    @property
    def summarizes(self) -> bool:
        return self._summarize is not None

    async def summarize(self, messages: Sequence[Message], previous: str | None) -> Summed:
        """A summary of messages, by whoever makes them here."""
        make = self._summarize
        if make is None or isinstance(make, str):
            if self.provider.runs_tools:  # an agent is not given words that may say anything: a digest has to do
                return Summed("")
            return await summary(await self.open_endpoint(), self.provider, messages, previous)
        made = make(messages, previous) if is_async(make) else await in_thread(make, messages, previous)
        return Summed(await made if inspect.isawaitable(made) else made)

    async def shown(self, compiled: Compiled, step: int) -> Compiled:
        """The request, as `on_prepare_messages` leaves it."""
        if self._prepare is None:
            return compiled
        request = compiled.copy()
        changed = self._prepare(request, step)
        if inspect.isawaitable(changed):
            changed = await changed
        if changed is None or changed == compiled.params:
            return compiled
        if not isinstance(changed, dict):
            raise InvalidInput(
                f"on_prepare_messages returned a {type(changed).__name__}. Return the whole request as a dict, or None."
            )
        try:
            compiled.replace(changed)
        except ContextcError:
            raise
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidInput(
                f"on_prepare_messages: the returned request must be JSON, got {described(error)}. Return JSON."
            ) from error
        return compiled

    def _tell_compacted(self, conversation: str, done: Compaction) -> None:
        event = Compacted(
            time=now(), agent=self.agent, upto=done.upto, before=done.before, after=done.after, fallback=done.fallback
        )
        self.store.write(lambda tx: turns.tell(tx, head(tx, conversation).conversation, [event]))
        hub(self.store).look(conversation)

    async def _queue(self, conversation: str, given: str | Message, kind: QueueKind) -> Queued:
        message = door.as_message(given, self.agent)
        begins = any(turn.conversation == conversation and not turn.done for turn in self._begun)

        def work() -> Queued:
            if kind == "steer" and not begins and not self.store.read(lambda tx: find_head(tx, conversation, False)):
                raise UnknownConversation(conversation)
            return self.store.enqueue(conversation, message, kind=kind, agent=self.agent)

        queued = await durable(work)
        hub(self.store).look(conversation)
        return queued
