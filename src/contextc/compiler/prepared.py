"""Caches of prompts, tools, token counts and terms for one provider.

Tools are cached by content, because a caller may change a schema in place. Immutable objects are cached by identity,
and are referenced, so that no identity is reused. The caches are small and are cleared when full.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from typing import TypeAlias, TypeVar, cast

from msgspec.structs import replace

from contextc._json import JSONObject, encode, encode_canonical
from contextc.compiler import heads
from contextc.compiler.ask import AnyTool, PreparedTools, RequestTerms, compute_budget, get_tool_name
from contextc.compiler.door import as_tools
from contextc.draft import CompilerOptions
from contextc.errors import InvalidInput
from contextc.ledger.render import FETCH_TOOL
from contextc.ledger.standing import Channel
from contextc.messages import Message
from contextc.prompts import Prompt, PromptBuilder, PromptContext, PromptFragment, hash_tools
from contextc.providers import Provider
from contextc.store import Store
from contextc.todos import Todo
from contextc.tokens import TokenCounter
from contextc.tools import NativeTool, Tool

PromptSource: TypeAlias = Iterable[PromptFragment] | PromptBuilder | Prompt
MAX_CACHED = 64
Cached = TypeVar("Cached")


def cache_put(cache: dict[object, Cached], key: object, value: Cached) -> Cached:
    if len(cache) >= MAX_CACHED:
        cache.clear()
    cache[key] = value
    return value


class ArgumentCache:
    """Prepares prompts, tools and terms of requests, and caches them."""

    def __init__(self, store: Store, provider: Provider, counter: TokenCounter, options: CompilerOptions) -> None:
        self.store, self.provider, self.counter, self.options = store, provider, counter, options
        self._given: dict[object, Sequence[AnyTool]] = {}
        self._last: tuple[bytes, Sequence[AnyTool]] = (b"", ())
        self._tools: dict[object, PreparedTools] = {}
        self._systems: dict[object, int] = {}
        self._leads: dict[object, tuple[Prompt, Prompt]] = {}
        self._prompts: dict[object, tuple[object, Prompt]] = {}
        self._terms: dict[object, RequestTerms] = {}

    def given_tools(self, tools: object) -> Sequence[AnyTool]:
        """Return the caller's tools as validated private copies, cached by content.

        A schema may be changed in place, so the encoded content is compared. A comparison of values would miss another
        order of keys, or `1` in place of `true`.
        """
        given = cast(Sequence[object], tools)
        is_ours = type(tools) in (list, tuple) and all(
            [type(tool) is Tool or type(tool) is NativeTool for tool in given]
        )
        read = cast(Sequence[AnyTool], given) if is_ours else as_tools(tools, self.provider.formatter)
        try:
            content = encode(read)
        except (TypeError, ValueError, OverflowError, RecursionError):  # not JSON: encoding the request raises
            return as_tools(tools, self.provider.formatter) if is_ours else read
        last, found = self._last  # avoids hashing a long text at every step
        if content == last:
            return found
        if (kept := self._given.get(content)) is None:
            checked = as_tools(tools, self.provider.formatter) if is_ours else read
            kept = cache_put(self._given, content, tuple(deepcopy(list(checked))))
        self._last = content, kept
        return kept

    def tools(self, tools: Sequence[AnyTool], order: Sequence[str], stand_in: Tool | None) -> PreparedTools:
        """Return the tools as they are sent: in the order of the previous request, with `fetch_result`; or `stand_in`
        if there are none.
        """
        key = (tuple([id(tool) for tool in tools]), tuple(order), stand_in is None)
        if (found := self._tools.get(key)) is not None:
            return found
        told = list(tools) if tools or stand_in is None else [stand_in]
        names = [get_tool_name(tool) for tool in tools]
        if tools and self.options.fetch and FETCH_TOOL.name not in names:
            told.append(FETCH_TOOL)
        place_of = {name: index for index, name in enumerate(order)}
        if order and all(get_tool_name(tool) in place_of for tool in told):
            told.sort(key=lambda tool: place_of[get_tool_name(tool)])
        encoded = self.provider.formatter.encode_tools(told)
        tokens = self.counter.tools(encoded) if told else 0
        marks = self.provider.formatter.marks_in(encoded)
        return cache_put(
            self._tools, key, PreparedTools(tuple(told), hash_tools(told) if told else "", tokens, tuple(tools), marks)
        )

    def terms(
        self,
        channel: Channel,
        prompt: Prompt,
        tools: PreparedTools,
        settings: JSONObject | None,
        budget: int | None,
        output: int | None,
    ) -> RequestTerms:
        """Return the terms of these arguments. They are cached across conversations."""
        given = encode_canonical(settings) if settings else b""
        key = (id(prompt), id(tools), channel.agent, channel.directory, given, budget, output)
        if (found := self._terms.get(key)) is not None:
            return found
        settings = deepcopy(settings) if settings else {}
        provider, options = self.provider, self.options
        above = self._system_tokens(prompt) + (self.counter.settings(settings) if settings else 0)
        terms = RequestTerms(
            prompt=prompt,
            tools=tools,
            names=tuple([get_tool_name(tool) for tool in tools.tools]),
            fetchable=any(isinstance(tool, Tool) and tool.name == FETCH_TOOL.name for tool in tools.tools),
            settings=settings,
            given=given,
            output=output,
            formatter=provider.formatter,
            head=heads.hash_head(provider.formatter, options, prompt, tools, settings),
            budget=compute_budget(
                provider.model,
                options,
                system=above,
                tools=tools.tokens,
                budget=budget,
                output=output,
                exact=self.counter.exact,
            ),
            audiences=frozenset((channel.agent, f"{provider.name}:{provider.asks_for}", str(channel))),
            points=provider.model.cache_points - tools.marks - provider.formatter.marks_in([settings]),
        )
        return cache_put(self._terms, key, terms)

    def _system_tokens(self, prompt: Prompt) -> int:
        head = self.options.placement == "head" and bool(prompt.dynamic)
        key = prompt.static_hash + (prompt.dynamic_text if head else "")
        if (found := self._systems.get(key)) is not None:
            return found
        text = prompt.static_text + (prompt.dynamic_text if head else "")
        return cache_put(self._systems, key, self.counter.system(text) + self.counter.overhead)

    def prompt(
        self,
        channel: Channel,
        fragments: PromptSource,
        system_prompt: str | None,
        tools: Sequence[AnyTool],
        surroundings: PromptContext | None,
        directory: str | None,
    ) -> Prompt:
        """Render the fragments. Renderers run here, before compiling."""
        if isinstance(fragments, Prompt) and not system_prompt:
            return fragments
        key = (system_prompt, *map(id, fragments)) if isinstance(fragments, list | tuple) else None
        if key is not None and (found := self._prompts.get(key)) is not None:
            return found[1]
        builder = self._builder(fragments, system_prompt)
        if all(isinstance(fragment.text, str) for fragment in builder.fragments):
            rendered = builder.render()
            return rendered if key is None else cache_put(self._prompts, key, (builder.fragments, rendered))[1]
        given = surroundings or PromptContext()
        return builder.render(
            replace(
                given,
                conversation=given.conversation or channel.conversation,
                agent=channel.agent,
                provider=channel.provider,
                model=channel.model,
                directory=given.directory or directory,
                tools=given.tools or tuple(tools),
                todos=given.todos or self._todos(channel),
            )
        )

    def _builder(self, fragments: PromptSource, system_prompt: str | None) -> PromptBuilder:
        if isinstance(fragments, Prompt):
            fragments = [
                PromptFragment(each.id, each.text, each.lifecycle) for each in (*fragments.static, *fragments.dynamic)
            ]
        builder = fragments if isinstance(fragments, PromptBuilder) else PromptBuilder(fragments)
        if not system_prompt:
            return builder
        return PromptBuilder([PromptFragment("system_prompt", system_prompt, priority=0), *builder.fragments])

    def with_lead(self, prompt: Prompt, lead: Mapping[int, Message]) -> Prompt:
        """Return the prompt, preceded by the system messages with which the conversation begins."""
        key = (id(prompt), *lead)
        if (found := self._leads.get(key)) is not None:
            return found[1]
        text = "\n\n".join([message.text for message in lead.values()])
        leading = PromptBuilder([PromptFragment("conversation", text)]).render()
        return cache_put(self._leads, key, (prompt, replace(prompt, static=leading.static + prompt.static)))[1]

    def _todos(self, channel: Channel) -> tuple[Todo, ...]:
        with suppress(InvalidInput):  # the conversation may not exist yet
            return tuple(self.store.todos(channel.conversation, channel.agent))
        return ()
