"""The head of a request: the arguments of a compilation resolved against the store, system prompt, tools and settings.

`RequestTerms` depend on the caller's arguments only: hashes, tokens of head and tools, the budget. The arguments rarely
change from step to step, so `arguments.py` caches the terms.
Hashes of the head decide whether a change breaks the prefix. The encoded parts are cached.
"""

from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from contextc._json import JSONObject, encode_canonical
from contextc.compiler.compiled import MESSAGES_PLACEHOLDER, SESSION_PLACEHOLDER, HeadParts
from contextc.compiler.ledger.channel_loader import ChannelSnapshot
from contextc.compiler.ledger.row_encoding import FetchMessages
from contextc.compiler.ledger.summaries import Summary
from contextc.compiler.options import Budget, CompilerOptions
from contextc.errors import InvalidInput
from contextc.formats.base import Formatter, Request
from contextc.formats.request_settings import RequestSettings
from contextc.messages import Message, system
from contextc.models import Model
from contextc.models.tokens import TokenCounter
from contextc.prompts import Prompt
from contextc.providers import Provider
from contextc.store.ledger_schema import Channel, ChannelState, HeadHashes, Item
from contextc.tools.spec import AnyTool

OUTPUT, LONGEST_OUTPUT = 8_000, 32_000
SMALL_WINDOW, MARGIN = 1_024, 256


class PreparedTools(NamedTuple):
    """The tools of a request as they are sent, with those for the history; their hash and their tokens."""

    tools: tuple[AnyTool, ...]
    hash: str
    tokens: int
    caller_tools: tuple[AnyTool, ...]
    """The tools as the caller passed them."""
    caller_breakpoints: int = 0
    """Number of cache breakpoints that the caller's tools contain."""
    is_former: bool = False
    """True if they are those of the previous request, and a new epoch would have others."""


class RequestTerms(Struct, frozen=True, kw_only=True):
    """Values that all requests with the same arguments share."""

    prompt: Prompt
    tools: PreparedTools
    names: tuple[str, ...]
    """Names of the tools, in the order they are sent."""
    fetchable: bool
    searchable: bool
    settings: JSONObject
    settings_json: bytes
    """The caller's settings as canonical JSON."""
    output: int | None
    formatter: Formatter
    head: HeadHashes
    budget: Budget
    audiences: frozenset[str]
    breakpoints_left: int
    """Number of cache breakpoints that may still be set."""


class CompileInput(Struct, frozen=True, kw_only=True):
    """The input of one compilation: arguments, terms, and the loaded channel."""

    provider: Provider
    counter: TokenCounter
    options: CompilerOptions
    channel: Channel
    terms: RequestTerms
    run: str | None = None
    running: frozenset[str] | None = None
    runs: str = ""
    snapshot: ChannelSnapshot
    summary: Summary | None = None
    counts: Mapping[int, int] = {}
    factor: float = 1.0
    fetch: FetchMessages
    load_earlier: Callable[[ChannelSnapshot, int, int], Mapping[int, Message]]
    head_cache: dict[object, HeadParts]
    retry: bool = False
    renews_tools: bool = False
    """True if a new epoch that begins anyway gets other history tools."""
    headroom: int = 0
    dry_run: bool = False
    load_left_out: Callable[[ChannelSnapshot, Sequence[Item]], Mapping[int, str]]
    """Return what earlier requests left out, by place, with the reason."""
    other_channel_state: ChannelState | None = None
    """State of the channel that this agent used last, if this channel has no request yet. Set for dry runs only."""


def compute_budget(
    model: Model,
    options: CompilerOptions,
    *,
    system: int,
    tools: int,
    budget: int | None,
    output: int | None,
    exact: bool,
) -> Budget:
    """Return the budget before any message is counted. `budget` is the caller's limit for the whole input."""
    window = model.window
    wanted = output if output is not None else min(model.output, OUTPUT)
    reserve = min(wanted, LONGEST_OUTPUT, window // 2)
    if options.slides or options.reserve == "full":
        reserve = min(output or model.output, window)
    margin = max(MARGIN, window // 100) if window > SMALL_WINDOW and not options.slides else 0
    limit = None
    if budget is not None:
        if budget <= 0:
            raise InvalidInput(
                "budget must be a positive number of tokens", got=budget, fix="Pass the limit for the whole input."
            )
        limit, reserve, margin = min(budget, window), 0, 0
    return Budget(window=window, system=system, tools=tools, reserve=reserve, margin=margin, limit=limit, exact=exact)


NEW_ENCODER = "new encoder version"
MAX_CACHED_HEADS = 64


def hash_head(
    formatter: Formatter, options: CompilerOptions, prompt: Prompt, tools: PreparedTools, settings: JSONObject
) -> HeadHashes:
    counted = {name: settings[name] for name in formatter.prefix_settings if name in settings}
    static = prompt.static_hash if prompt.static else ""
    if options.placement == "head" and prompt.dynamic:
        static += blake2b(prompt.dynamic_text.encode(), digest_size=8).hexdigest()
    return HeadHashes(
        static=static,
        tools=tools.hash,
        settings=blake2b(encode_canonical(counted), digest_size=8).hexdigest() if counted else "",
        encoder=f"{formatter.name}/{formatter.encoding_version}",
    )


def find_prefix_change(ask: CompileInput, old: HeadHashes, resume: bool) -> str:
    """Return the reason why the prefix cannot be extended; empty if it can."""
    new = ask.terms.head
    if new.encoder != old.encoder:
        return NEW_ENCODER
    keeps = resume and (ask.provider.resends_head or ask.provider.keeps_static)
    if new.static != old.static and not (keeps and ask.options.static_change == "update"):
        return "system prompt changed"
    if new.tools != old.tools and not ask.renews_tools and not (resume and ask.provider.resends_head):
        return "tools changed"
    if new.settings != old.settings and not resume:
        return "reasoning settings changed"
    return ""


def build_head(ask: CompileInput, budget: Budget, *, resume: bool, marked: bool) -> HeadParts:
    provider, terms = ask.provider, ask.terms
    output, formatter = terms.output, terms.formatter
    bare = resume and not provider.resends_head
    length = None
    if output is not None:  # the requested length, if the window has room for it
        length = output if budget.input + output <= budget.window else budget.reserve or output
    elif formatter.requires_max_tokens:
        length = budget.reserve or min(provider.model.output, OUTPUT)
    hashed = ("", "") if bare else (terms.head.static, terms.head.tools)
    key = (*hashed, length, terms.settings_json, resume, marked)
    if (found := ask.head_cache.get(key)) is not None:
        return found
    text = "" if bare else _static_text(ask.options, terms.prompt)
    settings = formatter.settings.write(RequestSettings(model=provider.model_id, max_output_tokens=length)).body
    if resume and provider.session_field:
        settings[provider.session_field] = SESSION_PLACEHOLDER
    settings = _merge_settings(settings, terms.settings)
    tools = () if bare else terms.tools.tools
    request = Request(messages=(), system=system(text) if text else None, tools=tools, settings=settings)
    request = replace(request, settings=formatter.rename_tool_choice(request))
    body = formatter.assemble(request, [MESSAGES_PLACEHOLDER])
    if marked:
        body = formatter.with_head_breakpoint(body)
    if len(ask.head_cache) >= MAX_CACHED_HEADS:
        ask.head_cache.clear()
    found = ask.head_cache[key] = HeadParts.from_body(formatter.messages_key, body, settings)
    return found


def _merge_settings(ours: JSONObject, theirs: JSONObject) -> JSONObject:
    """Return our settings overridden by the caller's, merged inside objects that both contain."""
    both: JSONObject = {**ours, **theirs}
    for name in ours.keys() & theirs.keys():
        if isinstance(ours[name], dict) and isinstance(theirs[name], dict):
            both[name] = {**ours[name], **theirs[name]}
    return both


def _static_text(options: CompilerOptions, prompt: Prompt) -> str:
    text = prompt.static_text
    if options.placement == "head" and prompt.dynamic:
        text = f"{text}\n\n{prompt.dynamic_text}" if text else prompt.dynamic_text
    return text
