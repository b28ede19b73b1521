"""Validate the arguments of a compiler before anything is read or stored, and cache what is derived from them.

Tools are cached by content, because a caller may change a schema in place. Immutable objects are cached by identity,
and are referenced, so that no identity is reused. The caches are small and are cleared when full.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict, TypeVar, cast, get_args, get_type_hints

import msgspec
from msgspec.structs import replace

from contextc._json import JSONObject, encode, encode_canonical, is_valid_text
from contextc.compiler import request_head
from contextc.compiler.history_tools import (
    FETCH_TOOL,
    SEARCH_TOOL,
    can_offer_alone,
    choose_tools,
    forces_call,
    list_variants,
)
from contextc.compiler.ledger.channel_loader import ChannelSnapshot
from contextc.compiler.options import CompilerOptionArguments, CompilerOptions
from contextc.compiler.request_head import PreparedTools, RequestTerms, compute_budget
from contextc.errors import InvalidInput, InvalidSetting
from contextc.formats.base import Formatter
from contextc.formats.registry import detect_tool_format
from contextc.messages import Message, Usage
from contextc.models.tokens import TokenCounter
from contextc.prompts import Prompt, PromptBuilder, PromptContext, PromptFragment
from contextc.providers import Provider
from contextc.providers import provider as provider_named
from contextc.store import Reference, Store
from contextc.store.ledger_schema import Channel
from contextc.store.message_rows import check_name
from contextc.store.store import Store as AnyStore
from contextc.tools.spec import AnyTool, NativeTool, Tool, get_tool_name
from contextc.tools.todos import Todo

if TYPE_CHECKING:  # importing it loads asyncio
    from contextc.tools import ToolLike

OPTION_TYPES: dict[object, str] = {
    bool: "True or False",
    int: "an integer",
    float: "a number",
    bool | Literal["always"]: "True, False or 'always'",
}
TRANSPORT_FIELDS = ("extra_headers", "extra_query", "extra_body", "timeout", "api_key", "http_options")
COMPILER_FIELDS = ("messages", "contents", "input", "tools", "system", "systemInstruction", "instructions")
"""Fields that the compiler writes itself. `model` may be set: some endpoints have several names for one model."""
PromptSource: TypeAlias = Iterable[PromptFragment] | PromptBuilder | Prompt


class AgentArguments(TypedDict, total=False):
    """Those keyword arguments of `MessageCompiler.compile` that stay the same for all requests of an agent."""

    agent: str
    fragments: PromptSource
    system_prompt: str | None
    tools: "Iterable[AnyTool | ToolLike | JSONObject]"
    settings: JSONObject | None
    output: int | None
    run: str | None
    running: "Iterable[str] | None"
    directory: str | None
    context: PromptContext | None


class CompileArguments(AgentArguments, total=False):
    """The keyword arguments of `MessageCompiler.compile`, without `dry_run`."""

    budget: int | None
    running: Iterable[str] | None
    retry: bool
    edit: tuple[Reference, Message] | None
    rewind: Reference | None
    upcoming: Sequence[Message]
    headroom: int


def check_store(store: object) -> None:
    if not isinstance(store, AnyStore):
        raise InvalidInput(
            f"store must be a Store, got {_type_name(store)}", fix='Open one: cc.open_store("sqlite:///chat.db").'
        )


def as_provider(value: object) -> Provider:
    if isinstance(value, str):
        return provider_named(value)
    if isinstance(value, Provider):
        return value
    raise InvalidInput(
        f"provider must be a Provider or a string, got {_type_name(value)}",
        fix='Pass "anthropic:claude-opus-5-5", or cc.provider(…).',
    )


def as_options(values: Mapping[str, object]) -> CompilerOptions:
    try:
        named = {"policy": ""} if values.get("policy") == "default" else {}
        options = msgspec.convert({**values, **named}, CompilerOptions)
    except msgspec.ValidationError as error:
        raise _invalid_option(values, str(error)) from None
    if not 0 < options.low < options.high <= 1:
        raise InvalidSetting(
            f"MessageCompiler: require 0 < low < high <= 1, got low={options.low}, high={options.high}."
        )
    if not (0 <= options.keep_words <= 0.5 and 0 <= options.keep_index <= 0.5):
        raise InvalidSetting(
            "MessageCompiler: require 0 <= keep_words <= 0.5 and 0 <= keep_index <= 0.5, got "
            f"keep_words={options.keep_words}, keep_index={options.keep_index}."
        )
    if not (0 <= options.recent <= 1 and 0 < options.oversized <= 1 and options.keep_media >= 0):
        raise InvalidSetting(
            f"MessageCompiler: require 0 <= recent <= 1, 0 < oversized <= 1 and keep_media >= 0, got "
            f"recent={options.recent}, oversized={options.oversized}, keep_media={options.keep_media}."
        )
    if not 0 < options.summary_share <= 0.5:
        raise InvalidSetting("summary_share must be above 0, up to 0.5", got=options.summary_share)
    if options.refresh < 0:
        raise InvalidSetting("refresh: expected a number of tokens", got=options.refresh, fix="Pass 0 or more.")
    return options


def _invalid_option(values: Mapping[str, object], text: str) -> InvalidSetting:
    """Return the error for the first option that is unknown or has a value of another type or choice."""
    hints = get_type_hints(CompilerOptionArguments)
    for name, value in values.items():
        if name not in hints:
            return InvalidSetting(f"Unknown compiler option {name!r}", fix=f"Valid options are {', '.join(hints)}.")
        try:
            msgspec.convert(value, hints[name])
        except msgspec.ValidationError:
            wanted = OPTION_TYPES.get(hints[name])
            if wanted is None:
                choices = [repr(each) for each in get_args(hints[name]) if each]
                wanted = f"one of {', '.join(choices)}"
            return InvalidSetting(f"{name}: expected {wanted}", got=value, fix="Omit it for the default.")
    return InvalidSetting(f"Compiler options: {text}", fix=f"Valid options are {', '.join(hints)}.")


def check_compile_arguments(
    *,
    agent: object,
    system_prompt: object,
    settings: object,
    budget: object,
    output: object,
    edit: object,
    rewind: object,
    dry_run: bool,
    upcoming: object = (),
    headroom: object = 0,
) -> None:
    check_name(agent, "agent")
    if system_prompt is not None and not isinstance(system_prompt, str):
        raise InvalidInput(
            f"system_prompt must be a string, got {_type_name(system_prompt)}",
            fix="Pass a string, or fragments=[cc.PromptFragment(…)].",
        )
    for name, value in (("budget", budget), ("output", output)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise InvalidInput(f"{name} must be a positive number of tokens", got=value, fix="Pass an integer above 0.")
    if isinstance(headroom, bool) or not isinstance(headroom, int) or headroom < 0:
        raise InvalidInput("headroom must be a number of tokens", got=headroom, fix="Pass an integer, 0 for none.")
    if settings is not None and not isinstance(settings, dict):
        raise InvalidInput(
            f"settings must be a dict, got {_type_name(settings)}", fix="Use the field names of the provider's API."
        )
    for name in cast(JSONObject, settings or {}):
        if name in TRANSPORT_FIELDS:
            raise InvalidInput(
                f"settings: {name} belongs to the call, not to the request, which is stored",
                fix="Pass it to the vendor's SDK.",
            )
        if name in COMPILER_FIELDS:
            raise InvalidInput(f"settings: {name} is written by the compiler and cannot be set", fix="Remove it.")
    if (edit is not None or rewind is not None) and not dry_run:
        raise InvalidInput(
            "edit and rewind require dry_run=True", fix="To change the conversation, use store.edit or store.rewind."
        )
    if upcoming and not dry_run:
        raise InvalidInput("upcoming requires dry_run=True", fix="To send the messages, append them to the store.")
    if edit is not None and rewind is not None:
        raise InvalidInput("edit and rewind cannot be combined", fix="Pass one of them.")
    if edit is not None and not _is_edit(edit):
        raise InvalidInput(
            "edit must be a pair of the replaced message and the new message", fix='Write (3, cc.user("…")).'
        )


def _is_edit(edit: object) -> bool:
    return isinstance(edit, tuple) and len(cast(tuple[object, ...], edit)) == 2 and isinstance(edit[1], Message)


def as_tools(tools: object, formatter: Formatter) -> Sequence[AnyTool]:
    """Return the tools as `Tool` or `NativeTool`. A dict may be in OpenAI's chat format or in the provider's own.

    A function that is a tool is replaced by its definition.
    """
    if type(tools) in (list, tuple) and all([_is_valid_tool(tool) for tool in cast(list[object], tools)]):
        read = cast(Sequence[AnyTool], tools)
    elif tools is None:
        return ()
    elif isinstance(tools, Tool | NativeTool | str | Mapping) or not isinstance(tools, Iterable):
        kind = type(cast(object, tools)).__name__
        raise InvalidInput(
            f"tools must be a list of tools, got {kind}",
            fix="Write [cc.Tool(name=…, description=…, parameters=…)].",
        )
    else:
        read = [as_tool(tool, formatter) for tool in cast(Iterable[object], tools)]
    names = [get_tool_name(tool) for tool in read]
    if len({*names}) < len(names):
        twice = next((name for index, name in enumerate(names) if name and name in names[:index]), None)
        if twice is not None:
            raise InvalidInput(f"tools: two tools have the name {twice!r}", fix="Rename one of them.")
    return read


def _is_valid_tool(tool: object) -> bool:
    return type(tool) is Tool and type(tool.parameters) is dict and type(tool.name) is str and bool(tool.name.strip())


def as_tool(tool: object, formatter: Formatter) -> AnyTool:
    if isinstance(tool, Mapping):
        plain = dict(cast(Mapping[str, Any], tool))
        try:
            (tool,) = detect_tool_format(plain, formatter).decode_tools([plain])
        except (KeyError, TypeError, ValueError, AttributeError):
            raise InvalidInput(
                f"tools: expected a tool definition of {formatter.name} or OpenAI's chat",
                got=plain,
                fix="Write cc.Tool(name=…, description=…, parameters=…).",
            ) from None
    if isinstance(tool, NativeTool):
        return tool
    if not isinstance(tool, Tool):
        tool = _tool_definition(tool)
    if not isinstance(tool.name, str) or not tool.name.strip():
        raise InvalidInput("Tool: name must be a non-empty string", got=tool.name, fix="Name the tool.")
    if not isinstance(tool.parameters, dict):
        raise InvalidInput(
            f"Tool {tool.name!r}: parameters must be a JSON schema, got {_type_name(tool.parameters)}",
            fix="Pass a dict.",
        )
    return tool


def _tool_definition(tool: object) -> Tool:
    """Return the definition of a function, of a FunctionTool, or of a Tool with its function."""
    if not callable(tool) and not isinstance(tool, tuple):
        raise InvalidInput(
            f"tools: expected a tool or a function, got {_type_name(tool)}",
            fix="Pass a function, or cc.Tool(name=…, description=…, parameters=…).",
        )
    from contextc.tools import tools_by_name as functions  # importing it loads asyncio

    (made,) = functions(cast(Any, [tool])).values()  # raises InvalidInput if it is not a tool
    return made.tool


def check_commit_arguments(
    reply: object,
    produced: object,
    usage: object,
    session_id: object,
    cursor: object,
    notes: object,
    shortened: object,
) -> None:
    check_usage(usage)
    check_session(session_id, cursor)
    if not _is_sequence_of(notes, str) or any(not is_valid_text(each) for each in cast(Sequence[str], notes)):
        raise InvalidInput("notes must be a list of strings", got=notes, fix='Write ["…"], or omit it.')
    if not isinstance(shortened, bool):
        raise InvalidInput("shortened must be True or False", got=shortened, fix="Pass a bool.")
    if produced is not None and not _is_sequence_of(produced, Message):
        raise InvalidInput(
            "produced must be a list of messages", fix="Pass the model's messages and the results of its own tools."
        )
    if reply is None and produced is None:
        raise InvalidInput("No reply to commit", fix="Pass what the vendor's SDK returned, or abort the attempt.")
    if isinstance(reply, Message) and reply.role != "assistant":
        raise InvalidInput(
            f"reply must be an assistant message, got a {reply.role} message", fix="Append it to the store."
        )


def check_usage(usage: object) -> None:
    """Check the usage of a request: what is stored must be readable again."""
    if usage is not None and not isinstance(usage, Usage):
        raise InvalidInput(
            f"usage must be a Usage, got {_type_name(usage)}",
            fix="Pass cc.Usage(input=…, output=…), or omit it to use that of the reply.",
        )
    for name, tokens in msgspec.structs.asdict(usage).items() if usage is not None else ():
        if isinstance(tokens, bool) or not isinstance(tokens, int):
            raise InvalidInput(f"usage: {name} must be a number of tokens", got=tokens, fix="Pass an integer.")


def check_session(session_id: object, cursor: object) -> None:
    """Check the id and the position of a session, which are stored as they are."""
    for name, value in (("session_id", session_id), ("cursor", cursor)):
        if not is_valid_text(value) and (name == "cursor" or value is not None):
            raise InvalidInput(f"{name} must be a string", got=value, fix="Pass the provider's own one, as text.")


def _is_sequence_of(values: object, kind: type) -> bool:
    return isinstance(values, list | tuple) and all(isinstance(each, kind) for each in cast(Sequence[object], values))


def _type_name(value: object) -> str:
    return type(value).__name__


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
        self._formatter = provider.formatter
        self._given: dict[object, Sequence[AnyTool]] = {}
        self._last: tuple[bytes, Sequence[AnyTool]] = (b"", ())
        self._tools: dict[object, PreparedTools] = {}
        self._offers: dict[object, tuple[bool, bool]] = {}
        self._systems: dict[object, int] = {}
        self._leads: dict[object, tuple[Prompt, Prompt]] = {}
        self._prompts: dict[object, tuple[object, Prompt]] = {}
        self._terms: dict[object, RequestTerms] = {}

    def validate_tools(self, tools: object) -> Sequence[AnyTool]:
        """Return the caller's tools as validated private copies, cached by content.

        A schema may be changed in place, so the encoded content is compared. A comparison of values would miss another
        order of keys, or `1` in place of `true`.
        """
        given = cast(Sequence[object], tools)
        is_ours = type(tools) in (list, tuple) and all(
            [type(tool) is Tool or type(tool) is NativeTool for tool in given]
        )
        read = cast(Sequence[AnyTool], given) if is_ours else as_tools(tools, self._formatter)
        try:
            content = encode(read)
        except (TypeError, ValueError, OverflowError, RecursionError):  # not JSON: encoding the request raises
            return as_tools(tools, self._formatter) if is_ours else read
        last, found = self._last  # avoids hashing a long text at every step
        if content == last:
            return found
        if (kept := self._given.get(content)) is None:
            checked = as_tools(tools, self._formatter) if is_ours else read
            kept = cache_put(self._given, content, tuple(deepcopy(list(checked))))
        self._last = content, kept
        return kept

    def arrange_tools(
        self,
        tools: Sequence[AnyTool],
        snapshot: ChannelSnapshot,
        stand_in: Tool | None,
        settings: JSONObject | None,
        budget: int | None,
        *,
        renew: bool = False,
    ) -> PreparedTools:
        """Return the tools as they are sent, with those for the history; or `stand_in` if there are none.

        If other software began the channel, and had the same tools, none are added, because that would change the
        prefix. `renew` is True if a new epoch begins.
        """
        state, is_observed = snapshot.state, snapshot.cached.is_observed
        uses = (encode_canonical(settings) if settings else b"", budget)
        if (offers := self._offers.get(uses)) is None:
            offers = cache_put(self._offers, uses, self._read_offers(settings or {}, budget))
        forced, alone = offers
        sent = (state.tools, state.head.tools if state.requests and not renew else None)
        key = (tuple([id(tool) for tool in tools]), *sent, stand_in is None, is_observed, *offers)
        if (found := self._tools.get(key)) is not None:
            return found
        names = [get_tool_name(tool) for tool in tools]
        keeps = is_observed and sorted(names) == sorted(state.tools)
        adds = not keeps and (bool(self.options.fetch) if tools else alone)
        variants = list_variants(names, offers=not forced) if adds else [()]
        told, name, is_former = choose_tools(tools, variants, stand_in, *sent)
        encoded = self._formatter.encode_tools(told)
        tokens = self.counter.count_tools(encoded) if told else 0
        marks = self._formatter.count_cache_breakpoints(encoded)
        made = PreparedTools(tuple(told), name, tokens, tuple(tools), marks, is_former)
        return cache_put(self._tools, key, made)

    def _read_offers(self, settings: JSONObject, budget: int | None) -> tuple[bool, bool]:
        """Return whether a call is forced, and whether the tools for the history are offered without others."""
        always = self.options.fetch == "always"
        forced = forces_call(self._formatter, settings)
        return forced, always and can_offer_alone(self.provider, self.counter, settings, budget)

    def build_terms(
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
        above = self._system_tokens(prompt) + (self.counter.count_settings(settings) if settings else 0)
        terms = RequestTerms(
            prompt=prompt,
            tools=tools,
            names=tuple([get_tool_name(tool) for tool in tools.tools]),
            fetchable=any(isinstance(tool, Tool) and tool.name == FETCH_TOOL.name for tool in tools.tools),
            searchable=any(tool == SEARCH_TOOL for tool in tools.tools),
            settings=settings,
            settings_json=given,
            output=output,
            formatter=self._formatter,
            head=request_head.hash_head(self._formatter, options, prompt, tools, settings),
            budget=compute_budget(
                provider.model,
                options,
                system=above,
                tools=tools.tokens,
                budget=budget,
                output=output,
                exact=self.counter.exact,
            ),
            audiences=channel.audiences,
            breakpoints_left=provider.model.cache_points
            - tools.caller_breakpoints
            - self._formatter.count_cache_breakpoints([settings]),
        )
        return cache_put(self._terms, key, terms)

    def _system_tokens(self, prompt: Prompt) -> int:
        head = self.options.placement == "head" and bool(prompt.dynamic)
        key = prompt.static_hash + (prompt.dynamic_text if head else "")
        if (found := self._systems.get(key)) is not None:
            return found
        text = prompt.static_text + (prompt.dynamic_text if head else "")
        return cache_put(self._systems, key, self.counter.count_system(text) + self.counter.overhead)

    def render_prompt(
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
                agent=channel.author,
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

    def with_leading_messages(self, prompt: Prompt, lead: Mapping[int, Message]) -> Prompt:
        """Return a prompt without instructions, with the system messages that the conversation begins with as its
        instructions.
        """
        key = (id(prompt), *lead)
        if (found := self._leads.get(key)) is not None:
            return found[1]
        text = "\n\n".join([message.text for message in lead.values()])
        leading = PromptBuilder([PromptFragment("conversation", text)]).render()
        return cache_put(self._leads, key, (prompt, replace(prompt, static=prompt.static + leading.static)))[1]

    def _todos(self, channel: Channel) -> tuple[Todo, ...]:
        with suppress(InvalidInput):  # the conversation may not exist yet
            return tuple(self.store.todos(channel.conversation, channel.author))
        return ()
