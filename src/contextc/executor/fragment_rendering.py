"""Renderers of an agent's prompt fragments: called before each step, and awaited if they are async.

Compiling is synchronous and runs on a worker thread. So the functions of a program are called before it, also on a
worker thread, and what they return is awaited on the event loop of the turn. The compiler gets texts.

Fragments of a turn are rendered once. Their texts are stored together with the turn's first request. So a turn that is
resumed, in any process, or that goes on with another model, sends what was sent.
"""

import inspect
from collections.abc import Awaitable, Mapping
from functools import partial
from typing import NamedTuple, cast

from msgspec.structs import replace

from contextc._json import JSONObject
from contextc._worker_threads import CALLBACK_SLOTS, run_blocking
from contextc.compiler import MessageCompiler
from contextc.compiler.arguments import AgentArguments
from contextc.compiler.step import load_turn_input
from contextc.executor.agent_config import AgentConfig
from contextc.executor.turn_store import TurnStore
from contextc.messages import Message
from contextc.prompts import (
    DEFAULT_AGENT,
    Instructions,
    Prompt,
    PromptBuilder,
    PromptContext,
    PromptFragment,
    finish_rendering,
    has_own_renderer,
    list_instructions,
    start_rendering,
)

TURN_STATE = "contextc.turn"
"""Name of the state with the texts of the turn's fragments, by agent."""


class StartedRendering(NamedTuple):
    """The texts of fragments by id, and what must be awaited for others."""

    texts: dict[str, str]
    pending: list[tuple[PromptFragment, Awaitable[object]]]

    async def finish(self) -> dict[str, str]:
        """Await the rest, and return all texts."""
        try:
            for fragment, text in self.pending:
                self.texts[fragment.id] = await finish_rendering(fragment, text)
        finally:
            for _, text in self.pending:  # those that were not awaited, because one failed or the turn was cancelled
                if inspect.iscoroutine(text):
                    text.close()
        return self.texts


class TurnFragments:
    """The fragments of one agent in one turn."""

    def __init__(self, config: AgentConfig, turn_store: TurnStore) -> None:
        self._compiler, self._turn_store = config.compiler, turn_store
        self._agent = config.channel_agent(turn_store.agent)
        source = config.compile_arguments.get("instructions")
        self._fragments = list_fragments(source)
        has_turn = any(each.lifecycle == "turn" for each in self._fragments)
        self.is_needed = has_turn or any(map(has_own_renderer, self._fragments)) or _is_of_turn(source)
        self._input: tuple[Message, ...] | None = None
        self._texts: dict[str, str] = {}

    async def render(self, arguments: AgentArguments) -> AgentArguments:
        """Return the arguments of `compile` with texts in place of functions, and with what opened the turn."""
        context = await run_blocking(self._complete_context, arguments.get("context"))
        arguments = {**arguments, "context": context}
        if not self._fragments:
            return arguments
        start = partial(start_fragments, self._compiler, self._turn_store.conversation, arguments)
        started = await run_blocking(start, self._fragments, self._load_texts(), slots=CALLBACK_SLOTS)
        texts = await started.finish()
        self._texts = {each.id: texts[each.id] for each in self._fragments if each.lifecycle == "turn"}
        return with_texts(arguments, self._fragments, texts)

    @property
    def unstored_state(self) -> dict[str, JSONObject]:
        """The state to store with the next request: the texts of the turn's fragments, if they are not stored."""
        if not self._texts or self._load_texts() == self._texts:
            return {}
        kept = self._load_state()
        return {TURN_STATE: {"turn": self._turn, "texts": {**kept, self._agent: self._texts}}}

    @property
    def _turn(self) -> str:
        """The turn, also unlike those of a fork that has the state of its parent."""
        return f"{self._turn_store.turn.number}@{self._turn_store.turn.started}"

    def _complete_context(self, given: PromptContext | None) -> PromptContext:
        if self._input is None:
            store, channel = (
                self._turn_store.store,
                self._compiler.channel(self._turn_store.conversation, name=self._agent),
            )
            self._input = store.read(lambda tx: load_turn_input(tx, channel, self._turn_store.turn.opened))
        given = given or PromptContext()
        return replace(given, input=given.input or self._input, turn=self._turn)

    def _load_state(self) -> dict[str, dict[str, str]]:
        state = self._turn_store.trigger_states.get(TURN_STATE) or {}
        return cast(dict[str, dict[str, str]], state.get("texts")) if state.get("turn") == self._turn else {}

    def _load_texts(self) -> dict[str, str]:
        return self._load_state().get(self._agent, {})


async def render_between_turns(config: AgentConfig, conversation: str, arguments: AgentArguments) -> AgentArguments:
    """Return the arguments of `compile` for a compaction, with texts in place of functions. No turn begins."""
    fragments = [each for each in list_fragments(arguments.get("instructions")) if each.lifecycle != "turn"]
    if not any(map(has_own_renderer, fragments)):
        return without_turn(arguments)
    start = partial(start_fragments, config.compiler, conversation, arguments)
    texts = await (await run_blocking(start, fragments, dict[str, str](), slots=CALLBACK_SLOTS)).finish()
    return with_texts(arguments, fragments, texts)


def without_turn(arguments: AgentArguments, *, awaits: bool = True) -> AgentArguments:
    """Return the arguments of `compile` without fragments of a turn; if nothing can be awaited, also without dynamic
    fragments that have to be.
    """
    fragments = list_fragments(source := arguments.get("instructions"))
    kept = [
        each
        for each in fragments
        if each.lifecycle == "static" or (each.lifecycle == "dynamic" and (awaits or not _is_async(each.text)))
    ]
    return (
        arguments if isinstance(source, Prompt) or len(kept) == len(fragments) else {**arguments, "instructions": kept}
    )


def list_fragments(source: Instructions | None) -> tuple[PromptFragment, ...]:
    """Return the fragments that are not rendered yet."""
    listed = list_instructions(source)
    if isinstance(listed, Prompt):
        return ()
    return listed.fragments if isinstance(listed, PromptBuilder) else listed


def start_fragments(
    compiler: MessageCompiler,
    conversation: str,
    arguments: AgentArguments,
    fragments: list[PromptFragment] | tuple[PromptFragment, ...],
    known: Mapping[str, str],
) -> StartedRendering:
    """Call the renderers of a program, but not of fragments of the turn whose texts are known."""
    context = compiler.prompt_context(
        conversation,
        name=arguments.get("name", DEFAULT_AGENT),
        tools=arguments.get("tools", ()),
        directory=arguments.get("directory"),
        context=arguments.get("context"),
    )
    started = StartedRendering({}, [])
    for fragment in fragments:
        if fragment.lifecycle == "turn" and fragment.id in known:
            started.texts[fragment.id] = known[fragment.id]
        elif has_own_renderer(fragment) or fragment.lifecycle == "turn":
            text = start_rendering(fragment, context)
            if isinstance(text, str):
                started.texts[fragment.id] = text
            else:
                started.pending.append((fragment, text))
    return started


def with_texts(
    arguments: AgentArguments,
    fragments: list[PromptFragment] | tuple[PromptFragment, ...],
    texts: Mapping[str, str],
) -> AgentArguments:
    """Return the arguments of `compile` with the texts of fragments in place of their functions."""
    rendered = [replace(each, text=texts[each.id]) if each.id in texts else each for each in fragments]
    return {**arguments, "instructions": rendered}


def _is_of_turn(source: Instructions | None) -> bool:
    return isinstance(source, Prompt) and bool(source.turn)


def _is_async(text: object) -> bool:
    return inspect.iscoroutinefunction(text) or inspect.iscoroutinefunction(getattr(text, "__call__", None))  # noqa: B004
