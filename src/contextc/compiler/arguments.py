"""The arguments of a compilation: checked, and prepared as the terms of a request.

Arguments are checked before anything is read or stored. What is derived from them is cached: tools by content, because
a caller may change a schema in place; immutable objects by identity, and referenced, so that no identity is reused. The
caches are small and are cleared when full.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from functools import cache
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    NamedTuple,
    TypeAlias,
    TypedDict,
    TypeVar,
    cast,
    get_args,
    get_type_hints,
)

import msgspec
from msgspec.structs import replace

from contextc._json import JSONObject, decode, encode, encode_canonical, is_valid_text
from contextc.compiler import ledger, step
from contextc.compiler.draft import CompilerOptionArguments, CompilerOptions
from contextc.compiler.head_changes import (
    EffortPlan,
    PreparedPrompt,
    ToolPlan,
    are_functions,
    are_named,
    build_change,
    build_update,
    can_continue,
    has_room_for_update,
    hash_definitions,
    plan_effort,
    plan_tools,
)
from contextc.compiler.history import (
    FETCH_TOOL,
    SEARCH_TOOLS,
    can_offer_alone,
    choose_tools,
    forces_call,
    list_variants,
)
from contextc.compiler.ledger import ChannelSnapshot
from contextc.compiler.prompt_cache import plan_cache
from contextc.compiler.step import (
    PreparedTools,
    RequestTerms,
    compute_budget,
    load_turn_input,
)
from contextc.errors import InvalidInput, InvalidSetting
from contextc.formats.base import Formatter
from contextc.formats.registry import detect_tool_format
from contextc.formats.request_settings import NativeContext, NativeSettings
from contextc.messages import COUNT_FIELDS, Message, Usage
from contextc.models.tokens import TokenCounter, request_kind
from contextc.prompts import (
    Instructions,
    Prompt,
    PromptBuilder,
    PromptContext,
    PromptFragment,
    RenderedFragment,
    SentPrompt,
    has_own_renderer,
    list_instructions,
    render_fragments,
)
from contextc.providers import Provider
from contextc.providers import provider as provider_named
from contextc.store import Reference, Store, message_log
from contextc.store.ledger_schema import Channel, ChannelState, EpochReason
from contextc.store.message_log import check_name
from contextc.tools.definitions import AnyTool, NativeTool, Tool, get_tool_name
from contextc.tools.todos import Todo

if TYPE_CHECKING:
    from contextc.tools import ToolLike


PROVIDER_OPTIONS = ("betas", "headers", "window", "output", "url", "key")
"""Options that belong to the model, and are given to a compiler by mistake."""
OPTION_TYPES: dict[object, str] = {
    bool: "True or False",
    int: "an integer",
    float: "a number",
    bool | Literal["always"]: "True, False or 'always'",
    NativeContext | None: "a cc.compiler.NativeContext",
}
TRANSPORT_FIELDS = {
    "extra_query": "Pass it to the vendor's SDK.",
    "extra_body": "Pass its fields as settings.",
    "timeout": "Pass it to the vendor's SDK.",
    "api_key": "Pass it to the vendor's SDK.",
    "http_options": "Pass it to the vendor's SDK.",
    **dict.fromkeys(
        ("extra_headers", "headers", "default_headers", "authorization"),
        "Pass headers={…} to cc.provider or to the agent.",
    ),
    **dict.fromkeys(("betas", "anthropic_beta", "openai_beta"), "Pass betas=[…] to cc.provider or to the agent."),
}
"""Settings that belong to a call, and where they are passed. A name with a hyphen is that of a header."""
COMPILER_FIELDS = ("messages", "contents", "input", "tools", "system", "systemInstruction", "instructions")
"""Fields that the compiler writes itself. `model` may be set: some endpoints have several names for one model."""


class ViewArguments(TypedDict, total=False):
    """Those keyword arguments of `MessageCompiler.compile` that stay the same for all requests of an agent, without
    its instructions.
    """

    name: str
    tools: "Iterable[AnyTool | ToolLike | JSONObject]"
    settings: JSONObject | None
    max_output_tokens: int | None
    run: str | None
    running: "Iterable[str] | None"
    directory: str | None
    context: PromptContext | None


class AgentArguments(ViewArguments, total=False):
    """Those keyword arguments of `MessageCompiler.compile` that stay the same for all requests of an agent."""

    instructions: Instructions | None


class CompileArguments(AgentArguments, total=False):
    """The keyword arguments of `MessageCompiler.compile`, without `dry_run`."""

    max_input_tokens: int | None
    running: Iterable[str] | None
    retry: bool
    edit: tuple[Reference, Message] | None
    rewind: Reference | None
    upcoming: Sequence[Message | message_log.PendingMessage]
    headroom: int


class FormerArguments(TypedDict, total=False):
    """Former names of arguments of `MessageCompiler.compile`: `name`, `instructions` and `max_input_tokens` now."""

    agent: str
    fragments: Instructions
    system_prompt: str | None
    budget: int | None


def with_former_names(
    former: FormerArguments, name: str, instructions: Instructions | None, max_input_tokens: int | None
) -> tuple[str, Instructions | None, int | None]:
    """Return the name, the instructions and the limit, from arguments that have their former names."""
    if unknown := [each for each in former if each not in FormerArguments.__annotations__]:
        names = [*CompileArguments.__annotations__, "dry_run"]
        raise InvalidInput(f"compile has no argument {unknown[0]!r}", fix=f"Its arguments are {', '.join(names)}.")
    text, listed = former.get("system_prompt"), list_instructions(former.get("fragments"))
    if text:
        fragments = listed.fragments if isinstance(listed, PromptBuilder) else listed
        if isinstance(fragments, Prompt):
            raise InvalidInput("system_prompt cannot be combined with a rendered prompt", fix="Pass instructions=….")
        listed = (PromptFragment("system_prompt", text, priority=0), *fragments)
    return (
        former.get("agent", name),
        listed if text or "fragments" in former else instructions,
        former.get("budget", max_input_tokens),
    )


def check_store(store: object) -> None:
    if not isinstance(store, Store):
        raise InvalidInput(
            f"store must be a Store, got {_type_name(store)}", fix='Open one: cc.open_store("sqlite:///chat.db").'
        )


def as_provider(value: object) -> Provider:
    if isinstance(value, str):
        return provider_named(value)
    if isinstance(value, Provider):
        return value
    raise InvalidInput(
        f"model must be a name or a Provider, got {_type_name(value)}",
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
    if not (0 <= options.recent <= 1 and 0 < options.oversized <= 1):
        raise InvalidSetting(
            f"MessageCompiler: require 0 <= recent <= 1 and 0 < oversized <= 1, got recent={options.recent}, "
            f"oversized={options.oversized}."
        )
    if options.keep_media < 0 or options.keep_summarized < 0:
        raise InvalidSetting(
            f"MessageCompiler: require keep_media >= 0 and keep_summarized >= 0, got keep_media={options.keep_media}, "
            f"keep_summarized={options.keep_summarized}."
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
        if name in PROVIDER_OPTIONS:
            return InvalidSetting(
                f"{name} is not an option of a compiler", fix=f"Pass the model as cc.provider(…, {name}=…)."
            )
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


def plan_native_context(provider: Provider, context: NativeContext | None) -> NativeSettings:
    """Return the settings for what the provider does itself with a long context, as far as it can."""
    if context is None:
        return NativeSettings({})
    least = provider.formatter.least_compact_at
    if context.compact_at is not None and least > context.compact_at:
        raise InvalidSetting(
            f"NativeContext: {provider.name} compacts at {least:,} tokens or more, got compact_at={context.compact_at}",
            fix=f"Pass compact_at={least}.",
        )
    found = provider.formatter.encode_native(context)
    missing = [feature for feature in found.features if not provider.offers(feature)]
    if not missing:
        return found
    left_out = [name for feature in missing for name in context.names_of(feature)]
    rest = plan_native_context(provider, replace(context, **dict.fromkeys(left_out)))
    return rest._replace(missing=tuple([name for name in context.names if name in (*left_out, *rest.missing)]))


def check_compile_arguments(
    *,
    name: object,
    settings: object,
    max_input_tokens: object,
    max_output_tokens: object,
    edit: object,
    rewind: object,
    dry_run: bool,
    upcoming: Sequence[object] = (),
    headroom: object = 0,
) -> None:
    check_name(name, "agent")
    for limit, value in (("max_input_tokens", max_input_tokens), ("max_output_tokens", max_output_tokens)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise InvalidInput(
                f"{limit} must be a positive number of tokens", got=value, fix="Pass an integer above 0."
            )
    if isinstance(headroom, bool) or not isinstance(headroom, int) or headroom < 0:
        raise InvalidInput("headroom must be a number of tokens", got=headroom, fix="Pass an integer, 0 for none.")
    if settings is not None and not isinstance(settings, dict):
        raise InvalidInput(
            f"settings must be a dict, got {_type_name(settings)}", fix="Use the field names of the provider's API."
        )
    for field in cast(JSONObject, settings or {}):
        plain = str(field).lower().replace("-", "_")
        if fix := TRANSPORT_FIELDS.get(plain) or (TRANSPORT_FIELDS["headers"] if "-" in str(field) else ""):
            raise InvalidInput(f"settings: {field} belongs to the call, not to the request, which is stored", fix=fix)
        if field in COMPILER_FIELDS:
            raise InvalidInput(f"settings: {field} is written by the compiler and cannot be set", fix="Remove it.")
    if (edit is not None or rewind is not None) and not dry_run:
        raise InvalidInput(
            "edit and rewind require dry_run=True", fix="To change the conversation, use store.edit or store.rewind."
        )
    if not dry_run and not all([isinstance(each, message_log.PendingMessage) for each in upcoming]):
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
    # Two servers of tools, which have a type only, are no duplicates.
    names = [get_tool_name(tool) for tool in read if isinstance(tool, Tool) or tool.data.get("name")]
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
    is_plain = produced is None and usage is None and session_id is None and notes == () and shortened is False
    if is_plain and type(reply) is dict and type(cursor) is str and not cursor:  # the usual commit
        return
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
    if usage is None:
        return
    for name in COUNT_FIELDS:
        value = getattr(usage, name)
        if isinstance(value, bool) or not isinstance(value, int):
            raise InvalidInput(f"usage: {name} must be a number of tokens", got=value, fix="Pass an integer.")
    try:
        msgspec.convert(msgspec.to_builtins(usage), Usage)
    except (msgspec.ValidationError, TypeError) as error:
        raise InvalidInput(f"usage: {error}", fix="Pass values of the types of Usage.") from error


def check_session(session_id: object, cursor: object) -> None:
    """Check the id and the position of a session, which are stored as they are."""
    for name, value in (("session_id", session_id), ("cursor", cursor)):
        if not is_valid_text(value) and (name == "cursor" or value is not None):
            raise InvalidInput(f"{name} must be a string", got=value, fix="Pass the provider's own one, as text.")


def _is_sequence_of(values: object, kind: type) -> bool:
    return isinstance(values, list | tuple) and all(isinstance(each, kind) for each in cast(Sequence[object], values))


def _type_name(value: object) -> str:
    return type(value).__name__


HEAD_REASONS = (EpochReason.SYSTEM_PROMPT_CHANGED, EpochReason.TOOLS_CHANGED, EpochReason.SETTINGS_CHANGED)
MAX_CACHED = 64
Cached = TypeVar("Cached")


def cache_put(cache: dict[object, Cached], key: object, value: Cached) -> Cached:
    if len(cache) >= MAX_CACHED:
        cache.clear()
    cache[key] = value
    return value


TermArguments: TypeAlias = tuple[Prompt, Sequence[AnyTool], bytes, int | None, int | None]
"""The arguments that decide on the terms of a request: prompt, tools, settings as canonical JSON, and the limits of
input and output.
"""


class SteadyTerms(NamedTuple):
    """The terms of the last request, and what they were made of."""

    terms: RequestTerms
    agent: str
    directory: str
    asked: TermArguments


class ArgumentCache:
    """Prepares prompts, tools and terms of requests, and caches them."""

    def __init__(self, store: Store, provider: Provider, counter: TokenCounter, options: CompilerOptions) -> None:
        self.store, self.provider, self.counter, self.options = store, provider, counter, options
        self._formatter = provider.formatter
        self._given: dict[object, Sequence[AnyTool]] = {}
        self._last: tuple[bytes, Sequence[AnyTool]] = (b"", ())
        self._tools: dict[object, PreparedTools] = {}
        self._declared: dict[object, tuple[AnyTool, ...]] = {}
        self._instructions: dict[object, PreparedPrompt] = {}
        self._sent_static: dict[object, tuple[RenderedFragment, ...]] = {}
        self._offers: dict[object, tuple[bool, bool, str]] = {}
        self._systems: dict[object, int] = {}
        self._leads: dict[object, tuple[Prompt, Prompt]] = {}
        self._prompts: dict[object, tuple[object, Prompt]] = {}
        self._terms: dict[object, RequestTerms] = {}
        self._steady: SteadyTerms | None = None

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
        has_head: Callable[[], bool],
        renew: bool = False,
    ) -> PreparedTools:
        """Return the tools as they are sent, with those for the history; or `stand_in` if there are none.

        If other software began the channel, and had the same tools, none are added, because that would change the
        prefix. `has_head` returns whether the head of the last request is still stored. `renew` is True if a new epoch
        begins.
        """
        state, is_observed = snapshot.state, snapshot.cached.is_observed
        uses = (encode_canonical(settings) if settings else b"", budget)
        if (offers := self._offers.get(uses)) is None:
            offers = cache_put(self._offers, uses, self._read_offers(settings or {}, budget))
        forced, alone, _ = offers
        sent = (state.tools, state.head.tools if state.requests and not renew else None)
        follows = (
            (state.requests or state.layout)
            and len(state.tool_hashes) == len(state.tools)  # a state of an older version has no hashes
            and not (renew or self.provider.session_resumption)
            and (stand_in is None or any(state.tool_hashes))
        )
        changes = (state.head.tools, state.tool_hashes, *state.changes.tools.items()) if follows else None
        key = (tuple([id(tool) for tool in tools]), *sent, stand_in is None, is_observed, *offers, changes)
        if (found := self._tools.get(key)) is not None and (found.plan is None or has_head()):
            return found
        names = [get_tool_name(tool) for tool in tools]
        keeps = is_observed and sorted(names) == sorted(state.tools)
        adds = not keeps and (bool(self.options.fetch) if tools else alone)
        variants = list_variants(names, offers=not forced) if adds else [()]
        told, name, is_former = choose_tools(tools, variants, stand_in, *sent)
        is_broken = False
        if follows and (name != state.head.tools or state.changes.tools):
            if has_head() and (frozen := self._follow_changes(tools, variants, snapshot, offers[2])) is not None:
                return cache_put(self._tools, key, frozen)
            is_broken = bool(state.changes.tools)
        encoded = self._formatter.encode_tools(told)
        tokens = self.counter.count_tools(encoded) if told else 0
        marks = tuple(self._formatter.list_cache_lifetimes(encoded))
        made = PreparedTools(
            tools=tuple(told),
            hash=name,
            tokens=tokens,
            caller_tools=tuple(tools),
            caller_breakpoints=marks,
            is_former=is_former,
            hashes=hash_definitions(self._formatter, told),
            offered=tuple(told),
            names=tuple([get_tool_name(tool) for tool in told]),
            is_broken=is_broken,
        )
        cache_put(self._declared, (made.hash, made.hashes), made.tools)
        return cache_put(self._tools, key, made)

    def _follow_changes(
        self,
        tools: Sequence[AnyTool],
        variants: Sequence[Sequence[Tool]],
        snapshot: ChannelSnapshot,
        forced: str,
    ) -> PreparedTools | None:
        """Return the tools that the epoch began with, and what to state about those that changed; None if a new epoch
        has to begin. Of the variants of tools for the history, the one with the fewest changes is used. `forced` is the
        name of the tool that has to be called.
        """
        state = snapshot.state
        features, keeps_removed = self.provider.features, self.options.removed_tools == "keep"
        if not (features or keeps_removed) or not can_continue(state, features):
            return None
        if forced and forced not in state.tools:
            return None
        lists = [(*tools, *added) for added in variants]
        plans = [plan_tools(self._formatter, state, each, features, keeps_removed=keeps_removed) for each in lists]
        found = [(len(plan.tools) + len(plan.kept), at) for at, plan in enumerate(plans) if plan is not None]
        declared = self._load_declared(state) if found else None
        if declared is None:
            return None
        at = min(found)[1]
        if (plan := plans[at]) is not None and (plan.kept or plan.change.removed or plan.change.returned):
            items = [item for each in snapshot.cached.rows for item in each.row.items]
            if not are_functions(self._formatter, declared, items, plan.kept):
                return None
            if not are_named(self._formatter, declared, items, plan.change):
                return None
        encoded = self._formatter.encode_tools(declared)
        return PreparedTools(
            tools=declared,
            hash=state.head.tools,
            tokens=self.counter.count_tools(encoded) if declared else 0,
            caller_tools=tuple(tools),
            caller_breakpoints=tuple(self._formatter.list_cache_lifetimes(encoded)),
            is_former=at > 0,
            hashes=state.tool_hashes,
            offered=lists[at],
            names=state.tools,
            plan=plan,
        )

    def _load_declared(self, state: ChannelState) -> tuple[AnyTool, ...] | None:
        """Return the tools in the head of the last request, as they were sent; None if it is not stored any more."""
        key = (state.head.tools, state.tool_hashes)
        if (found := self._declared.get(key)) is not None or not any(state.tool_hashes):
            return found or ()
        if (stored := self.load_head(state)) is None:
            return None
        wire = self._formatter.tools_of(stored)
        declared = tuple([NativeTool(provider=self._formatter.provider, data=each) for each in wire])
        return cache_put(self._declared, key, declared) if self._formatter.encode_tools(declared) == wire else None

    def load_head(self, state: ChannelState) -> JSONObject | None:
        """Return the last request without its messages; None if it is not stored any more."""
        number, name = state.head_place
        stored = self.store.read(lambda tx: ledger.load_head(tx, number, bytes.fromhex(name))) if name else None
        return decode(stored) if stored is not None else None

    def arrange_prompt(
        self, prompt: Prompt, snapshot: ChannelSnapshot, *, has_head: Callable[[], bool], renew: bool = False
    ) -> PreparedPrompt:
        """Return the instructions as they are in the head, and the update that states how they changed.

        The head has those of the epoch if an update costs less than a new epoch, and if `has_head` returns True: it is
        still stored. `renew` is True if a new epoch begins.
        """
        state = snapshot.state
        if (fresh := self._instructions.get(id(prompt))) is None:
            fresh = cache_put(self._instructions, id(prompt), PreparedPrompt(prompt, prompt))
        is_same = not state.changed_static and (
            prompt.static_hash == state.head.static if prompt.static else not state.head.static
        )
        if renew or is_same or not (state.requests or state.layout):
            return fresh
        broken = fresh._replace(is_broken=bool(state.changed_static))
        is_possible = prompt.static and state.static_hashes and not snapshot.leading
        if not is_possible or not self._appends_instructions(prompt) or not has_head():
            return broken
        update = None
        if prompt.static_hashes != state.static_hashes:
            update = build_update(self.counter, prompt, state)
            items = [item for each in snapshot.cached.rows for item in each.row.items]
            if not has_room_for_update(update, state, items):
                return broken
        key = (id(prompt), state.head.static, *state.static_hashes.items())
        if (found := self._instructions.get(key)) is not None:
            return found
        if (sent := self._load_static(state)) is None:
            return broken
        head = SentPrompt(static=sent, dynamic=prompt.dynamic, turn=prompt.turn, sent_hash=state.head.static)
        return cache_put(self._instructions, key, PreparedPrompt(prompt, head, update, is_frozen=True))

    def _load_static(self, state: ChannelState) -> tuple[RenderedFragment, ...] | None:
        """Return the static fragments in the head of the last request, as one; None if it is not stored any more."""
        if (found := self._sent_static.get(state.head.static)) is not None:
            return found
        if (stored := self.load_head(state)) is None:
            return None
        key = self._formatter.messages_key
        request = self._formatter.decode_request({**stored, key: step.list_leading_messages(stored, key)})
        text = request.system.text if request.system is not None else ""
        static = PromptBuilder([PromptFragment("sent", text)]).render().static
        return cache_put(self._sent_static, state.head.static, static)

    def _appends_instructions(self, prompt: Prompt) -> bool:
        """Return True if changed instructions may be stated in a message."""
        options, provider = self.options, self.provider
        in_head = options.placement == "head" and prompt.dynamic
        is_stateless = not provider.session_resumption and provider.has_system_between
        return is_stateless and options.static_change == "update" and not in_head

    def _read_offers(self, settings: JSONObject, budget: int | None) -> tuple[bool, bool, str]:
        """Return whether a call is forced, whether the tools for the history are offered without others, and the name
        of the tool that has to be called.
        """
        always = self.options.fetch == "always"
        forced = forces_call(self._formatter, settings)
        choice = self._formatter.settings.read(settings).settings.tool_choice
        name = choice.name if choice is not None and choice.mode == "named" else ""
        return forced, always and can_offer_alone(self.provider, self.counter, settings, budget), name or ""

    def build_terms(
        self,
        channel: Channel,
        instructions: PreparedPrompt,
        tools: PreparedTools,
        settings: JSONObject | None,
        budget: int | None,
        output: int | None,
        state: ChannelState,
        *,
        renew: bool = False,
    ) -> RequestTerms:
        """Return the terms of these arguments. They are cached across conversations. `renew` is True if a new epoch
        begins.
        """
        given = encode_canonical(settings) if settings else b""
        sent = None
        if self._formatter.effort_path and (state.requests or state.layout) and not renew:
            sent = (state.head.settings, state.effort, state.changes.effort)
        key = (id(instructions), id(tools), channel.agent, channel.directory, given, budget, output, sent)
        if (found := self._terms.get(key)) is not None:
            return found
        prompt = instructions.head
        provider, options = self.provider, self.options
        settings = provider.settings_with_betas(deepcopy(settings) if settings else {})
        effort = EffortPlan(settings, self._formatter.read_effort(settings))
        if sent is not None and not provider.session_resumption:
            hashed = step.hash_head(self._formatter, options, prompt, tools, settings).settings
            effort = plan_effort(self._formatter, state, settings, hashed, provider.features)
            if step.hash_head(self._formatter, options, prompt, tools, effort.settings).settings != state.head.settings:
                wanted = self._formatter.read_effort(settings)
                effort = EffortPlan(settings, wanted, is_broken=bool(state.changes.effort))
        settings, given = effort.settings, encode_canonical(effort.settings) if effort.settings else b""
        is_broken = (instructions.is_broken, tools.is_broken, effort.is_broken)
        plan = tools.plan or ToolPlan()
        has_tools = bool(tools.tools or tools.offered)
        around = self.counter.overhead + (self.counter.count_settings(settings, has_tools=has_tools) if settings else 0)
        change = build_change(self._formatter, self.counter, tools.tools, plan, effort.changed, provider.features)
        terms = RequestTerms(
            instructions=instructions,
            tools=tools,
            effort=effort.effort,
            changes=tuple([each for each in (instructions.update, change) if each is not None]),
            is_frozen=instructions.is_frozen or tools.plan is not None or bool(effort.changed or (sent and sent[2])),
            broken=next((why for why, is_so in zip(HEAD_REASONS, is_broken, strict=True) if is_so), ""),
            fetchable=any(isinstance(tool, Tool) and tool.name == FETCH_TOOL.name for tool in tools.offered),
            searchable=any(tool in SEARCH_TOOLS for tool in tools.offered),
            settings=settings,
            settings_json=given,
            kind=request_kind(self.counter, settings, has_tools=has_tools),
            output=output,
            formatter=self._formatter,
            head=step.hash_head(self._formatter, options, prompt, tools, settings),
            budget=compute_budget(
                provider.model,
                options,
                system=self._system_tokens(prompt),
                tools=tools.tokens,
                around=around,
                budget=budget,
                output=output,
                exact=self.counter.exact,
            ),
            audiences=channel.audiences,
            breakpoints_left=provider.model.cache_points
            - len(tools.caller_breakpoints)
            - len(self._formatter.list_cache_lifetimes([settings])),
            cache=plan_cache(options.cache, provider, tools.caller_breakpoints, settings),
        )
        return cache_put(self._terms, key, terms)

    def find_terms(self, channel: Channel, asked: TermArguments, snapshot: ChannelSnapshot) -> RequestTerms | None:
        """Return the terms of the last request with these arguments, if the head of this channel is theirs."""
        if (known := self._steady) is None:
            return None
        terms, agent, directory, before = known
        is_same = (
            before[0] is asked[0]
            and before[1] is asked[1]
            and before[2:] == asked[2:]
            and agent == channel.agent
            and directory == channel.directory
            and self._is_head(terms, snapshot)
        )
        return terms if is_same else None

    def keep_terms(
        self, channel: Channel, asked: TermArguments, snapshot: ChannelSnapshot, terms: RequestTerms
    ) -> None:
        """Keep terms that follow from the arguments alone, because the head of the channel is what these ask for."""
        is_plain = not (terms.is_frozen or terms.broken or terms.changes)
        has_tools = bool(asked[1]) or self._formatter.placeholder_tool is None
        if is_plain and has_tools and not self.provider.session_resumption and self._is_head(terms, snapshot):
            self._steady = SteadyTerms(terms, channel.agent, channel.directory, asked)

    def _is_head(self, terms: RequestTerms, snapshot: ChannelSnapshot) -> bool:
        """Return True if the last request of a channel had the head of these terms, and nothing has changed it."""
        state, tools = snapshot.state, terms.tools
        return (
            (state.head is terms.head or state.head == terms.head)
            and (state.tools is tools.names or state.tools == tools.names)
            and (state.tool_hashes is tools.hashes or state.tool_hashes == tools.hashes)
            and state.effort == terms.effort
            and not (state.changed_tools or state.changed_effort or state.changed_static)
            and not snapshot.leading
            and bool(state.requests)
            and not snapshot.cached.is_observed
        )

    def _system_tokens(self, prompt: Prompt) -> int:
        head = self.options.placement == "head" and bool(prompt.dynamic)
        key = prompt.static_hash + (prompt.dynamic_text if head else "")
        if (found := self._systems.get(key)) is not None:
            return found
        text = prompt.static_text + (prompt.dynamic_text if head else "")
        return cache_put(self._systems, key, self.counter.count_system(text))

    def render_prompt(
        self,
        channel: Channel,
        instructions: Instructions | None,
        make_context: Callable[[bool], PromptContext],
    ) -> tuple[Prompt, Callable[[], tuple[RenderedFragment, ...]] | None]:
        """Render the instructions, before compiling. Fragments of the turn are rendered by the returned function, if it
        begins now: a search for passages is not repeated at every step. None if there are no such fragments.
        """
        if isinstance(instructions, Prompt):
            return instructions, _turn_of(instructions)
        key = instructions if instructions is None or isinstance(instructions, str) else None
        given: object = instructions  # or the elements of a list have an unknown type
        if isinstance(given, list | tuple):
            key = tuple([each if isinstance(each, str) else id(each) for each in cast(Sequence[object], given)])
        is_cached = key is not None or instructions is None
        if is_cached and (found := self._prompts.get(key)) is not None:
            return found[1], _turn_of(found[1])
        listed = list_instructions(instructions)
        assert not isinstance(listed, Prompt)
        builder = listed if isinstance(listed, PromptBuilder) else PromptBuilder(listed)
        if all(isinstance(fragment.text, str) for fragment in builder.fragments):
            rendered = builder.render()
            if is_cached:
                cache_put(self._prompts, key, (builder.fragments, rendered))
            return rendered, _turn_of(rendered)
        of_turn = [fragment for fragment in builder.fragments if fragment.lifecycle == "turn"]
        others = [fragment for fragment in builder.fragments if fragment.lifecycle != "turn"]
        takes_input = any(has_own_renderer(fragment) for fragment in builder.fragments)
        context = cache(lambda: make_context(takes_input))
        is_plain = all(isinstance(fragment.text, str) for fragment in others)
        rendered = render_fragments(others, PromptContext() if is_plain else context())
        return rendered, (lambda: render_fragments(of_turn, context()).turn) if of_turn else None

    def complete_context(
        self,
        channel: Channel,
        given: PromptContext | None,
        tools: Sequence[AnyTool],
        directory: str | None,
        takes_input: bool,
    ) -> PromptContext:
        """Return the context of renderers, with what is known about the channel. Built-in ones take no input."""
        given = given or PromptContext()
        input = given.input
        if takes_input and not input:
            input = self.store.read(lambda tx: load_turn_input(tx, channel))
        return replace(
            given,
            conversation=given.conversation or channel.conversation,
            agent=channel.author,
            provider=channel.provider,
            model=channel.model,
            directory=given.directory or directory,
            tools=given.tools or tuple(tools),
            todos=given.todos or self._todos(channel),
            input=input,
        )

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


def _turn_of(prompt: Prompt) -> Callable[[], tuple[RenderedFragment, ...]] | None:
    return (lambda: prompt.turn) if prompt.turn else None
