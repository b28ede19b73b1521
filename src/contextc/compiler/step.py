"""The path of one request, after the arguments were resolved: load, head, passes, rows, manifest.

`compile_request` loads the channel (`ledger.py`) into a draft (`draft.py`), runs the `PASSES` over it, encodes what is
new as rows and returns a `Compiled`. That is the value that `begin` and `commit` (`commit.py`) work with.
"""

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from functools import lru_cache
from hashlib import blake2b
from itertools import takewhile
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias, cast

from msgspec import Struct
from msgspec.structs import replace

from contextc._json import JSON, JSONObject, decode, encode, encode_canonical
from contextc.compiler import ledger
from contextc.compiler.agent_view import select_agent_view, view_results
from contextc.compiler.draft import (
    AssembledRows,
    Budget,
    CacheMark,
    CompilerOptions,
    Draft,
    DraftEntry,
    FetchedMessages,
    FetchMessages,
    NewRow,
    add_to_last_row,
    assemble_rows,
    distribute,
    hash_chunks,
    list_blob_names,
    list_media,
    render_item,
    verify_draft,
)
from contextc.compiler.fit_budget import BRANCH_REASONS, find_compaction, fit_budget, measure
from contextc.compiler.head_changes import (
    UPDATED_TEXT,
    PreparedPrompt,
    ToolPlan,
    append_changes,
    has_changes,
    name_change,
    reason_for,
    write_update,
)
from contextc.compiler.history import FETCH_TOOL
from contextc.compiler.ledger import (
    BLOCK_SIZE,
    ROW_BYTES,
    ChannelCache,
    ChannelSnapshot,
    RecentChannels,
    Summary,
    join_messages,
    load_appended,
    load_latest,
    load_latest_summary,
    load_messages_by_place,
    load_next,
    load_snapshot,
    may_have_summaries,
    split_chunk,
)
from contextc.compiler.manifest import Fragment, Manifest, ManifestLine, RequestRecord, SharedHead
from contextc.compiler.message_cache import derive
from contextc.compiler.prompt_cache import REPLY_PLACEHOLDER, CacheRequest, write_key
from contextc.errors import ContextOverflow, InvalidInput
from contextc.formats.base import Formatter, Request
from contextc.formats.request_settings import NativeSettings, RequestSettings
from contextc.messages import (
    SYSTEM_CONTEXT,
    Message,
    Reasoning,
    Text,
    Usage,
    hash_content,
    may_be_text,
    system,
    to_plain_text,
    validate_message,
)
from contextc.models import Model
from contextc.models import cost as price_of
from contextc.models.tokens import MAX_FACTOR, MIN_FACTOR, Calibration, TokenCounter, load_calibrations, load_counts
from contextc.prompts import SEPARATOR, Prompt, RenderedFragment, heading_of
from contextc.providers import Provider
from contextc.providers.registry import sdk_call_of_format
from contextc.store import Reference, Store, message_log
from contextc.store.ledger_schema import (
    NO_CHANGES,
    Channel,
    ChannelState,
    Container,
    EpochReason,
    FragmentCopy,
    HeadChanges,
    HeadHashes,
    Item,
)
from contextc.store.message_log import (
    SEQ_MASK,
    find_message,
    find_tip,
    load_context_start,
    load_tip,
    make_place,
)
from contextc.store.transaction_engine import Transaction
from contextc.tools.definitions import AnyTool, NativeTool, Tool

if TYPE_CHECKING:
    pass


# ── the compiled request ──────────────────────────────────────────────────────────────────────────────────────────────
# A compiled request: its parameters, its bytes, and its manifest.
#
# Sealed content is shared with other requests of the channel as bytes. Parameters are decoded from the bytes, so that
# a caller may change them: no other request has the same objects. Both are built on first use.


RequestMode: TypeAlias = Literal["full", "resume"]
OBSERVED = "observed"
"""The mode of a request that other software sent."""
MESSAGES_PLACEHOLDER: JSONObject = {"role": "system", "here": "the messages"}  # placeholder for the messages
SESSION_PLACEHOLDER = "<the session>"  # placeholder for the session id
MAX_CACHED_CHUNKS = 8
_MESSAGES_BYTES, _SESSION_BYTES = encode(MESSAGES_PLACEHOLDER), encode(SESSION_PLACEHOLDER)
_REPLY_BYTES = encode(REPLY_PLACEHOLDER)


def list_leading_messages(head: JSONObject, messages_key: str) -> list[JSON]:
    """Return what a head has before the messages: the system prompt, in formats where it is one of them."""
    around: JSON = head.get(messages_key)
    if not isinstance(around, list):
        return []
    return list(takewhile(lambda each: each != MESSAGES_PLACEHOLDER, cast(list[JSON], around)))


class HeadParts(NamedTuple):
    """Everything of a request except its messages, with placeholders for the messages and for the session id."""

    key: str
    body: JSONObject
    settings: JSONObject
    before: bytes
    after: bytes
    hash: bytes

    @property
    def compares(self) -> bool:
        """True if the request asks why the cache missed."""
        return _REPLY_BYTES in self.before or _REPLY_BYTES in self.after

    @classmethod
    def from_body(cls, key: str, body: JSONObject, settings: JSONObject) -> "HeadParts":
        written = encode(body)
        before, _, after = written.partition(_MESSAGES_BYTES)
        return cls(key, body, settings, before, after, blake2b(written, digest_size=16).digest())

    def with_field(self, field: JSONObject) -> "HeadParts":
        """Return the same with another setting at the beginning. It is not encoded again, because it may be long."""
        before = encode(field)[:-1] + b"," + self.before[1:]
        written = blake2b(before, digest_size=16)
        written.update(_MESSAGES_BYTES + self.after)
        body, settings = {**field, **self.body}, {**field, **self.settings}
        return self._replace(body=body, settings=settings, before=before, hash=written.digest())

    def to_bytes(self, chunks: list[bytes], session: str | None, compared: str = "") -> bytes:
        """Return the request as bytes, built from chunks of its messages. Empty chunks are skipped."""
        before, after = self.before, self.after
        if compared:
            before, after = (each.replace(_REPLY_BYTES, encode(compared), 1) for each in (before, after))
        if session and _SESSION_BYTES in before + after:
            before, after = (each.replace(_SESSION_BYTES, encode(session)) for each in (before, after))
        chunks = [chunk for chunk in chunks if chunk]
        if not chunks:  # the system prompt is the only message
            return before.removesuffix(b",") + after
        parts = [b","] * (2 * len(chunks) + 1)
        parts[0], parts[-1], parts[1::2] = before, after, chunks
        return b"".join(parts)


class Cost(NamedTuple):
    """The loss compared with the previous request: tokens in a prompt cache, and signed reasoning."""

    cached_tokens_lost: int
    cached_tokens_kept: int
    signed_reasoning_lost: int
    dollars: float | None


class RequestAccount(NamedTuple):
    """The record, the manifest and the cost of a compiled request."""

    record: RequestRecord
    manifest: Manifest
    cost: Cost


class Compiled:
    """A request for one model. `is_new` is False if there is nothing to send."""

    def __init__(
        self,
        *,
        channel: Channel,
        provider: Provider,
        formatter: Formatter,
        draft: Draft,
        snapshot: ChannelSnapshot,
        state: ChannelState,
        rows: AssembledRows,
        head: HeadParts,
        build_account: Callable[[], RequestAccount],
        build_session_head: Callable[[], HeadParts],
        session_id: str | None,
        revert_to: str | None,
        dry_run: bool,
        is_new: bool,
        tools: tuple[Tool | NativeTool, ...],
        request_kind: str = "",
        new_token_counts: dict[bytes, int],
        unsent: "UnsentRequest | None",
    ) -> None:
        self.channel, self.provider, self.formatter = channel, provider, formatter
        self.mode: RequestMode = "resume" if draft.resume else "full"
        self.session_id, self.revert_to = session_id, revert_to
        self.is_new, self.dry_run = is_new, dry_run
        self.draft, self.snapshot, self.state, self.rows, self.head = draft, snapshot, state, rows, head
        self.tools, self.request_kind = tools, request_kind
        self.new_token_counts, self.unsent = new_token_counts, unsent
        self.token = os.urandom(8).hex()
        """Random token that identifies the attempt to send it."""
        self.began = 0
        """When it began to be sent, in milliseconds; 0 if it did not."""
        self._build_account, self._build_session_head = build_account, build_session_head
        self._account: RequestAccount | None = None
        self.replaced = False
        self._measured: tuple[Usage | None, int] = (None, 0)
        self._body: bytes | None = None
        self._params: JSONObject | None = None
        self._decoded: Request | None = None

    def __repr__(self) -> str:
        asked = f"request {self.request} of {self.channel.conversation!r} for {self.provider.title}"
        return f"<Compiled {asked}: {self.budget.input:,} tokens, {self.mode}>"

    @property
    def cursor(self) -> str:
        """The provider's position in the session that this request resumes."""
        session = self.snapshot.state.session
        return session.cursor if self.session_id and session is not None else ""

    @property
    def compared(self) -> str:
        """The id of the reply that the provider compares this request with; "" for none."""
        asks = self.draft.options.cache_diagnostics and not self.draft.resume and self.provider.cache_comparison
        return self.snapshot.state.reply_id if asks else ""

    @property
    def budget(self) -> Budget:
        """The token budget of the request, and what of it is used."""
        return self.draft.budget

    @property
    def account(self) -> RequestAccount:
        """The record, the manifest and the cost, built on first use."""
        if self._account is None:
            self._account = self._build_account()
        return self._account

    @property
    def record(self) -> RequestRecord:
        """The part of the manifest that is stored with the request."""
        return self.account.record

    @property
    def manifest(self) -> Manifest:
        """The account of the request: each message, whether it is included, and why not."""
        return self.account.manifest

    @property
    def cost(self) -> Cost:
        """The loss compared with the previous request."""
        return self.account.cost

    @property
    def request(self) -> int:
        """Its number on the channel."""
        return self.snapshot.state.requests + 1

    @property
    def estimated_input(self) -> int:
        """Tokens of the whole input by our own count. The provider's figure calibrates it."""
        draft = self.draft
        messages = self.state.tokens if draft.kept is None else sum([item.tokens for item in draft.kept])
        return self.state.above + messages

    @property
    def headers(self) -> dict[str, str]:
        """The headers to send with the request, beside those of the SDK: beta flags, those of the provider, and the one
        that names the channel to its cache.
        """
        name = self.provider.conversation_header if self.state.cache_key else ""
        key = {name: self.state.cache_key} if name else {}
        return {**key, **self.provider.headers_with(self.record.betas)}

    @property
    def features(self) -> frozenset[str]:
        """The features of the provider that it uses. `provider.flags_of` returns the beta flags they need."""
        return frozenset(self.record.features)

    def measured_input(self, usage: Usage | None) -> int:
        """Return the input tokens that the provider counted; 0 if it reported none.

        A figure that is not the size of the request counts as none, and so does one below our estimate if the provider
        may exclude cached tokens. One above the window cannot be the size of a request that was answered.
        """
        known, counted = self._measured
        if known is not usage:
            counted = self._find_input(usage)
            self._measured = usage, counted
        return counted

    def _find_input(self, usage: Usage | None) -> int:
        if usage is None or usage.input_differs or usage.input > self.provider.model.window:
            return 0
        if not self.formatter.input_includes_cached and usage.input < self.estimated_input:
            return 0
        return usage.input

    def overhead_after(self, usage: Usage | None) -> int:
        """Return the channel's overhead after this request: what the provider counted beyond what calibration explains.

        The overhead stays unchanged while calibration explains the difference.
        """
        before, real = self.state.overhead, self.measured_input(usage)
        if not real or self.replaced or self.provider.runs_tools:  # its figure includes its own prompt
            return before
        counted = self.estimated_input
        if counted * MIN_FACTOR <= real - before <= counted * MAX_FACTOR:
            return before
        return max(0, real - round(counted * self.draft.factor))

    @property
    def session_head(self) -> JSONObject:
        """System prompt, tools and settings with which the session began, also for a request that resumes it."""
        head = self._build_session_head()
        return deepcopy({name: value for name, value in head.body.items() if name != head.key})

    @property
    def params(self) -> JSONObject:
        """The request as plain data, as the API and most SDKs accept it; see `arguments`.

        A change of it affects neither `body` nor other requests. To send and store the changed request, use `replace`.
        """
        if self._params is None:
            self._params = self.copy()
        return self._params

    @property
    def arguments(self) -> JSONObject:
        """Keyword arguments for the vendor's SDK call: `params`, unless that SDK uses other names (google-genai).

        `sdk_call` is the call that takes them.
        """
        return self.formatter.sdk_arguments(self.params, self.provider.model_id)

    @property
    def sdk_call(self) -> str:
        """The call that takes `arguments`: with beta flags of Anthropic, "client.beta.messages.create"."""
        return sdk_call_of_format(self.formatter.name, self.record.betas)

    @property
    def body(self) -> bytes:
        """The request as JSON bytes."""
        if self._body is None:
            self._body = self.head.to_bytes(self._chunks(), self.session_id, self.compared)
        return self._body

    @property
    def messages_json(self) -> bytes:
        """The messages of the compiled request as JSON, with commas between them."""
        return b",".join([chunk for chunk in self._chunks() if chunk])

    @property
    def messages(self) -> tuple[Message, ...]:
        """The messages of the request in contextc's types, as they are sent: trimmed, and with inserted texts.

        They are decoded from the request, so they have its roles, call ids and texts, and no position in the store. The
        system prompt is not one of them, and neither are changes of tools or effort.
        """
        return self._decode().messages

    @property
    def system_prompt(self) -> str:
        """The system prompt of the request, as it is sent; "" if it has none."""
        found = self._decode().system
        return found.text if found is not None else ""

    def _decode(self) -> Request:
        if self._decoded is None:
            self._decoded = self.formatter.with_final_tools(self.formatter.decode_request(self.copy()))
        return self._decoded

    def replace(self, params: JSONObject) -> None:
        """Send `params` instead of the compiled request. They are stored, and the next request begins an epoch."""
        self._params, self._body, self.replaced = params, encode(params), True
        self._decoded = None

    def copy(self) -> JSONObject:
        """Return the request that is sent as plain data of its own, whatever was changed in `params`."""
        return decode(self.body)

    def _messages(self) -> list[JSONObject]:
        new, order = self.rows.new_rows, self.rows.order
        if order is not None:
            whole: list[JSONObject] = []
            for each in order:
                row = new[each] if isinstance(each, int) else each
                if row.row.drop:
                    del whole[-row.row.drop :]
                whole += row.messages if isinstance(row, NewRow) else split_chunk(row.chunk)
            return with_breakpoints(self.formatter, self.draft.marks, whole, 0, self.draft.ttl or "")
        before = [] if self.draft.resume else self.snapshot.cached.list_messages()
        drop = 0
        added: list[JSONObject] = []
        for row in new:
            if row.row.drop > len(added):
                drop += row.row.drop - len(added)
                added = []
            elif row.row.drop:
                added = added[: -row.row.drop]
            added += row.messages
        if drop:
            before = before[:-drop]
        return with_breakpoints(self.formatter, self.draft.marks, before + added, len(before), self.draft.ttl or "")

    def _chunks(self) -> list[bytes]:
        new, order, marks = self.rows.new_rows, self.rows.order, self.draft.marks
        if any(row.row.drop for row in new):  # rows that replace preceding wire messages
            return [join_messages(self._messages())]
        if order is not None:
            chunks = [new[each].chunk if isinstance(each, int) else each.chunk for each in order]
        else:
            chunks = [] if self.draft.resume else self.snapshot.cached.join_chunks()
            if "previous" in marks:
                self._mark_last(chunks)
            chunks += [row.chunk for row in new]
        if "end" in marks:
            self._mark_last(chunks)
        return chunks

    def _mark_last(self, chunks: list[bytes]) -> None:
        for index in range(len(chunks) - 1, -1, -1):
            if chunk := chunks[index]:
                chunks[index] = mark_chunk(self.formatter, chunk, self.draft.ttl or "")
                return


@lru_cache(MAX_CACHED_CHUNKS)  # the last chunk of a request is marked in the next one too
def mark_chunk(formatter: Formatter, chunk: bytes, ttl: str) -> bytes:
    messages = split_chunk(chunk)
    last = formatter.with_cache_breakpoint(messages[-1], ttl)
    return chunk if last is None else join_messages([*messages[:-1], last])


def with_breakpoints(
    formatter: Formatter, marks: tuple[CacheMark, ...], messages: list[JSONObject], before: int, ttl: str
) -> list[JSONObject]:
    """Return the messages with cache breakpoints. The first `before` of them were in the previous request."""
    at = ([before - 1] if "previous" in marks and before else []) + (
        [len(messages) - 1] if "end" in marks and messages else []
    )
    for index in at:
        if (marked := formatter.with_cache_breakpoint(messages[index], ttl)) is not None:
            messages[index] = marked
    return messages


# ── the head: system prompt, tools and settings ───────────────────────────────────────────────────────────────────────
# The head of a request: the arguments of a compilation resolved against the store, system prompt, tools and settings.
#
# `RequestTerms` depend on the caller's arguments only: hashes, tokens of head and tools, the budget. The arguments
# rarely change from step to step, so `MessageCompiler` caches the terms. Hashes of the head decide whether a change
# breaks the prefix. The encoded parts are cached.


OUTPUT, LONGEST_OUTPUT = 8_000, 32_000
SMALL_WINDOW, MARGIN = 1_024, 256


class PreparedTools(NamedTuple):
    """The tools of a request as they are sent, with those for the history; their hash and their tokens."""

    tools: tuple[AnyTool, ...]
    hash: str
    tokens: int
    caller_tools: tuple[AnyTool, ...]
    """The tools as the caller passed them."""
    caller_breakpoints: tuple[str, ...] = ()
    """The lifetime of each cache breakpoint that the caller's tools contain."""
    is_former: bool = False
    """True if they are those of the previous request, and a new epoch would have others."""
    hashes: tuple[str, ...] = ()
    """Hashes of their definitions as they are sent."""
    offered: tuple[AnyTool, ...] = ()
    """The tools that the model has: those in the head, or what changes in the conversation have made of them."""
    names: tuple[str, ...] = ()
    """Names of the tools in the head."""
    plan: ToolPlan | None = None
    """Set if the head is that of the epoch, although the tools are others: what the request states about them."""
    is_broken: bool = False
    """True if earlier changes of the tools cannot be followed by this one."""


class RequestTerms(Struct, frozen=True, kw_only=True):
    """Values that all requests with the same arguments share."""

    instructions: PreparedPrompt
    tools: PreparedTools
    effort: str
    """The effort in the settings."""
    changes: tuple[DraftEntry, ...]
    """The items with which the request states changes of instructions, tools or effort."""
    is_frozen: bool
    """True if the head is that of the epoch, although the caller's instructions, tools or settings are others."""
    broken: str
    """The reason why changes in the conversation cannot be continued; empty if they can."""
    fetchable: bool
    searchable: bool
    settings: JSONObject
    settings_json: bytes
    """The caller's settings as canonical JSON."""
    kind: str
    """The kind of the request, by which counts are calibrated: `+tools` for example."""
    output: int | None
    formatter: Formatter
    head: HeadHashes
    budget: Budget
    audiences: frozenset[str]
    breakpoints_left: int
    """Number of cache breakpoints that may still be set."""
    cache: CacheRequest = CacheRequest()
    """The settings and the lifetime that the prompt cache is asked for."""

    @property
    def prompt(self) -> Prompt:
        """The instructions, as the caller passed them."""
        return self.instructions.current


class CompileInput(Struct, frozen=True, kw_only=True):
    """The input of one compilation: arguments, terms, and the loaded channel."""

    provider: Provider
    counter: TokenCounter
    options: CompilerOptions
    channel: Channel
    terms: RequestTerms
    turn_fragments: tuple[RenderedFragment, ...] = ()
    turn: str = ""
    run: str | None = None
    running: frozenset[str] | None = None
    runs: str = ""
    cache_key: str = ""
    """The key that names the channel to the prompt cache, if it has one."""
    now: int
    """The present time in ms: a container that has expired is not named."""
    snapshot: ChannelSnapshot
    summary: Summary | None = None
    counts: Mapping[int, int] = {}
    new_counts: dict[bytes, int]
    factor: float = 1.0
    fetch: FetchMessages
    load_earlier: Callable[[ChannelSnapshot, int, int], Mapping[int, Message]]
    head_cache: dict[object, HeadParts]
    retry: bool = False
    renews_tools: bool = False
    """True if a new epoch that begins anyway gets other tools."""
    forced: str = ""
    """The reason for an epoch that begins in any case."""
    headroom: int = 0
    for_summary: bool = False
    """True if the request is read for a summary, and not sent."""
    compacts: bool = False
    """True if the provider is asked to compact the conversation."""
    shortcuts: bool = True
    """False if all passes are run, also where a shorter way gives the same request."""
    unsent: "UnsentRequest | None" = None
    """The request that was compiled before this one, and not sent, if only appends followed."""
    native: NativeSettings = NativeSettings({})
    """The settings for what the provider does itself with a long context."""
    dry_run: bool = False
    load_left_out: Callable[[ChannelSnapshot, Sequence[Item]], Mapping[int, str]]
    """Return what earlier requests left out, by place, with the reason."""
    find_shared_head: Callable[[ChannelState, JSONObject], SharedHead | None]
    """Return what a changed head shares with the head of the last request."""
    other_channel_state: ChannelState | None = None
    """State of the channel that this agent used last, if this channel has no request yet. Set for dry runs only."""


def compute_budget(
    model: Model,
    options: CompilerOptions,
    *,
    system: int,
    tools: int,
    around: int,
    budget: int | None,
    output: int | None,
    exact: bool,
) -> Budget:
    """Return the budget before any message is counted. `budget` is the caller's limit for the whole input.

    `around` are the tokens of the settings and of the frame of a request. They count as the system prompt's; as the
    tools' if there are only tools.
    """
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
                "max_input_tokens must be a positive number of tokens",
                got=budget,
                fix="Pass the limit for the whole input.",
            )
        limit, reserve, margin = min(budget, window), 0, 0
    if tools and not system:
        tools += around
    else:
        system += around
    return Budget(window=window, system=system, tools=tools, reserve=reserve, margin=margin, limit=limit, exact=exact)


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
        return EpochReason.NEW_ENCODER
    keeps = resume and (ask.provider.resends_head or ask.provider.keeps_static)
    if new.static != old.static and not (keeps and ask.options.static_change == "update"):
        return EpochReason.SYSTEM_PROMPT_CHANGED
    if ask.terms.broken:
        return ask.terms.broken
    if new.tools != old.tools and not ask.renews_tools and not (resume and ask.provider.resends_head):
        return EpochReason.TOOLS_CHANGED
    if new.settings != old.settings and not resume:
        return EpochReason.SETTINGS_CHANGED
    return ""


def build_head(ask: CompileInput, budget: Budget, *, resume: bool, marked: bool, continues: str = "") -> HeadParts:
    """Return the head of a request. `continues` is the value of a reply that it has to send again."""
    provider, terms = ask.provider, ask.terms
    output, formatter = terms.output, terms.formatter
    bare = resume and not provider.resends_head
    length = None
    if output is not None:  # the requested length, if the window has room for it
        length = output if budget.input + output <= budget.window else budget.reserve or output
    elif formatter.requires_max_tokens:
        length = budget.reserve or min(provider.model.output, OUTPUT)
    hashed = ("", "") if bare else (terms.head.static, terms.head.tools)
    compares = provider.cache_comparison if ask.options.cache_diagnostics and not resume else ()
    compares = compares if ask.snapshot.state.reply_id else ()
    key = (*hashed, length, terms.settings_json, resume, marked, continues, terms.cache.ttl, compares, ask.compacts)
    if (found := ask.head_cache.get((key, ask.cache_key))) is not None:
        return found
    if (found := ask.head_cache.get(key)) is None:
        text = "" if bare else _static_text(ask.options, terms.instructions.head)
        settings = formatter.settings.write(RequestSettings(model=provider.model_id, max_output_tokens=length)).body
        settings |= terms.cache.settings
        if compares:
            settings[compares[0]] = {**settings.get(compares[0], {}), compares[1]: REPLY_PLACEHOLDER}
        if resume and provider.session_field:
            settings[provider.session_field] = SESSION_PLACEHOLDER
        settings = _merge_settings(settings, terms.settings)
        tools = () if bare else terms.tools.tools
        request = Request(messages=(), system=system(text) if text else None, tools=tools, settings=settings)
        request = replace(request, settings=formatter.rename_tool_choice(request))
        if continues:
            request = formatter.with_continuation(request, continues)
        body = formatter.assemble(request, [MESSAGES_PLACEHOLDER])
        if ask.compacts:
            body = formatter.with_compaction_trigger(body)
        if marked:
            body = formatter.with_head_breakpoint(body, terms.cache.ttl or "")
        found = _keep_head(ask, key, HeadParts.from_body(formatter.messages_key, body, settings))
    named = write_key(ask.options.cache, provider, ask.cache_key)
    if not named or not named.keys().isdisjoint(found.settings):  # the caller has set one
        return found
    return _keep_head(ask, (key, ask.cache_key), found.with_field(named))


def _keep_head(ask: CompileInput, key: object, head: HeadParts) -> HeadParts:
    if len(ask.head_cache) >= MAX_CACHED_HEADS:
        ask.head_cache.clear()
    ask.head_cache[key] = head
    return head


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


# ── the manifest ──────────────────────────────────────────────────────────────────────────────────────────────────────
# Build the record, the manifest and the cost of a compiled request on demand, and the lines of any manifest.
#
# A line describes one message or inserted text: whether it was sent, in which form, and why. It has the text as the
# model read it, beside the stored text. A result may have been sent as a stub or shortened, a user message escaped, a
# reply without its reasoning, old messages as a summary. Everything that displays a request takes its texts from here.


_FETCH = FETCH_TOOL.name.encode()


class SentItem(NamedTuple):
    """One item: the message that the model read, and the stored message it was rendered from.

    `original` is None if the two are equal, or if the item has no stored message. `text` and `original_text` are both
    as plain text.
    """

    message: Message
    original: Message | None

    @property
    def text(self) -> str:
        return to_plain_text(self.message)

    @property
    def original_text(self) -> str:
        return to_plain_text(self.original)


def render_sent(item: Item, message: Message | None, *, fetchable: bool = True) -> SentItem:
    """Return what a model read for an item. `fetchable`: the request had the tool `fetch_result`."""
    if message is not None and item.kind == "message" and message.redacted:
        return SentItem(message, None)
    shown = render_item(item, message, fetchable=fetchable)
    is_same = message is None or item.kind != "message" or shown.parts == message.parts
    return SentItem(shown, None if is_same else message)


def render_sent_items(
    items: Iterable[Item], messages: Mapping[int, Message], *, fetchable: bool = True
) -> list[tuple[Item, SentItem]]:
    """Return every item of a request with what the model read for it. `messages` are the stored messages by place."""
    return [(item, render_sent(item, messages.get(item.place), fetchable=fetchable)) for item in items]


def offers_fetch(head: bytes | None) -> bool:
    """Return True if a request with this head has the tool `fetch_result`. A missing head counts as True."""
    return head is None or _FETCH in head


LEFT_TO_PROVIDER, NOT_AT_PROVIDER = "left to the provider: {}", "{} does not have: {}"
APPENDED = "appended, so that the prefix stays"
STILL_DECLARED = "no longer offered, but still declared, so that the prefix stays"
CONTAINER_EXPIRED = "the container {} is not named: it has expired"
REVERTED_REMARK = "the session goes back to where it stood: the request before this one came to nothing ({why})"


def is_intended(remark: str) -> bool:
    """Return True for a remark on what was asked for, or on what keeps the cache: nothing was lost."""
    return remark.startswith((LEFT_TO_PROVIDER.format(""), APPENDED))


def build_account(
    ask: CompileInput, draft: Draft, standing: ChannelState, assembled: AssembledRows, head: HeadParts, session: str
) -> RequestAccount:
    """Build the account of a request. `standing` is the state of the channel after its commit."""
    sight = ask.snapshot
    same = _find_shared(ask, assembled, standing, head)
    shared, lost = same.tokens, same.lost
    whole = standing.above + (standing.tokens if draft.kept is None else sum([item.tokens for item in draft.kept]))
    signed = 0
    if draft.kept is not None:
        signed = sum([item.signed and item.bare for item in draft.kept]) - sum(
            [item.bare for each in sight.cached.rows for item in each.row.items]
        )
    fragments = _fragments(ask, draft)
    # a fork begins with rows of its parent, and a session whose cursor was set with none, without a new epoch
    first = not sight.state.requests or bool(sight.state.held)
    features = _list_features(ask, draft, standing)
    record = RequestRecord(
        request=sight.state.requests + 1,
        mode="resume" if draft.resume else "full",
        epoch=standing.epoch,
        why=draft.epoch,
        rows=sight.state.rows + len(assembled.new_rows),
        layout=() if assembled.order is not None or first else None,
        head=head.hash.hex(),
        chain=standing.chain,
        marks=draft.marks,
        ttl=draft.ttl or (ask.options.cache if ask.options.cache != "auto" else ""),
        compared=ask.snapshot.state.reply_id if head.compares else "",
        added=len(assembled.new_rows) if assembled.order is None else len(assembled.order),
        session=session,
        held=sight.state.held if draft.resume else 0,
        new=draft.new,
        fragments=tuple(fragments()) if draft.epoch or first else (),
        left=draft.left,
        skipped=_skipped(sight),
        remarks=_remarks(ask, draft, assembled),
        budget=draft.budget,
        shared=same.head.count_tokens(draft.budget)
        if same.head is not None
        else min(draft.budget.input, shared * draft.budget.input // whole if whole else 0),
        shared_bytes=same.size,
        shared_counts=(same.above, same.messages, whole - standing.above) if shared else (0, 0, 0),
        is_bare=not ask.terms.head.static and not ask.terms.tools.tokens,
        shared_head=same.head,
        previous_input=sight.state.input if shared else 0,
        signed_lost=max(0, signed),
        features=features,
        betas=_betas(ask.provider, features),
        branch=sight.tip.branch,
        tip=sight.tip.seq,
    )
    if ask.other_channel_state is not None:  # the first request here: another channel's cache is lost
        lost, signed = ask.other_channel_state.above + ask.other_channel_state.tokens, _count_foreign_reasoning(ask)
    kept = record.shared_tokens
    if lost:
        had = (shared + lost) * draft.budget.input // whole if whole else shared + lost
        lost = max(0, min(had, sight.state.input or had) - kept)
    price = price_of(ask.provider.model, Usage(input=lost, cache_write=lost)) if lost else 0.0
    manifest = Manifest(ask.channel, record, lambda: _lines(ask, draft, draft.budget.messages), fragments)
    return RequestAccount(record, manifest, Cost(lost, kept, max(0, signed), price))


def _list_features(ask: CompileInput, draft: Draft, standing: ChannelState) -> tuple[str, ...]:
    """Return the features of the provider that a request uses, in its messages and for a long context."""
    rows, tail = draft.rows, draft.tail
    first = draft.kept[0] if draft.kept else rows[0].row.items[0] if rows else tail[0].item if tail else None
    block = first.compacts if first is not None else ""
    block = block if block and ask.provider.offers(block) else ""
    more = (*ask.native.features, *((block,) if block else ()))
    return tuple(dict.fromkeys((*standing.features, *more))) if more else standing.features


def _betas(provider: Provider, features: Sequence[str]) -> tuple[str, ...]:
    """Return the beta flags of a request: those that are allowed, and those that its messages need."""
    return tuple(sorted({*provider.betas, *provider.flags_of(features)})) if provider.betas or features else ()


def _remarks(ask: CompileInput, draft: Draft, assembled: AssembledRows) -> tuple[str, ...]:
    warnings = ask.terms.prompt.warnings
    failed = ask.snapshot.attempt if draft.resume else None
    changes = draft.changes if has_changes(draft) else ()
    kept = ask.terms.tools.plan.kept if ask.terms.tools.plan is not None else ()
    native, cache = _describe_native(ask), ask.terms.cache.remark
    if not any((draft.remarks, draft.unread_until, warnings, assembled.notes, failed, changes, kept, native, cache)):
        return ()
    return (
        *native,
        *(f"{APPENDED}: {name_change(entry.item)}" for entry in changes),
        *((f"{STILL_DECLARED}: {', '.join(kept)}",) if kept else ()),
        *((REVERTED_REMARK.format(why=failed.error or "it was interrupted"),) if failed else ()),
        *draft.remarks,
        *((cache,) if cache else ()),
        *(
            f"skipped the log up to message {draft.unread_until}: it does not fit"
            for _ in range(bool(draft.unread_until))
        ),
        *(warning.message for warning in warnings),
        *dict.fromkeys(str(note) for note in assembled.notes),
    )


def _describe_native(ask: CompileInput) -> tuple[str, ...]:
    """Return what is left to the provider, and what of that it does not have."""
    context, (settings, _, missing) = ask.options.native, ask.native
    if ask.compacts:
        return (LEFT_TO_PROVIDER.format("a compaction of the conversation"),)
    if context is None or not (settings or missing):
        return ()
    used = [f"{name}={getattr(context, name)}" for name in context.names if name not in missing]
    return (
        *((LEFT_TO_PROVIDER.format(", ".join(used)),) if used else ()),
        *((NOT_AT_PROVIDER.format(ask.provider.title, ", ".join(missing)),) if missing else ()),
    )


def _count_foreign_reasoning(ask: CompileInput) -> int:
    """Return the number of messages with signed reasoning of another provider."""
    own = ask.provider.formatter.provider
    signed = [
        {part.provider for part in message.parts if type(part) is Reasoning and (part.signature or part.data)}
        for _, message in ask.snapshot.log
    ]
    return sum(bool(providers - {own}) for providers in signed)


def _skipped(sight: ChannelSnapshot) -> int:
    """Return the number of messages that were not read, because they are too far back to fit."""
    if not sight.unread_until:
        return 0
    read = {where for where, _ in sight.log} | set(sight.leading)
    return max(
        0, sight.unread_until - sight.state.seen - sum([where & SEQ_MASK <= sight.unread_until for where in read])
    )


class _Shared(NamedTuple):
    """The prefix that a request shares with the one before it, by our own count: tokens before its messages, those of
    the items that it begins with, and the bytes of its first rows. `lost` are the other tokens of the one before.
    `head` is what is shared of a changed head; without it, the whole head is.
    """

    above: int = 0
    messages: int = 0
    size: int = 0
    lost: int = 0
    head: SharedHead | None = None

    @property
    def tokens(self) -> int:
        return self.above + self.messages


def _find_shared(ask: CompileInput, assembled: AssembledRows, standing: ChannelState, written: HeadParts) -> _Shared:
    """Return the prefix that the previous request had too: equal rows, and the equal items that the first other row
    begins with.
    """
    sight = ask.snapshot
    before, head = sight.cached.standing, standing.head
    if not before.requests and not before.layout:
        return _Shared()
    old = before.head
    is_same_head = (old.static, old.tools) == (head.static, head.tools)
    above = standing.above if is_same_head else 0
    total = before.above + before.tokens
    if before.measured[0]:  # a request of other software that failed after it was never cached
        total = min(total, before.measured[0])
    if assembled.order is None:
        return _Shared(above, before.tokens, before.size, max(0, total - above - before.tokens))
    tokens = size = 0
    part = None if is_same_head else ask.find_shared_head(before, written.body)
    if part is not None:
        above = part.count_tokens(ask.terms.budget)
    if is_same_head:
        for each, mine in zip(assembled.order, sight.cached.rows, strict=False):
            if each is mine:
                tokens, size = tokens + mine.row.tokens, size + len(mine.chunk)
                continue
            items = (assembled.new_rows[each] if isinstance(each, int) else each).row.items
            # by identity: in a dry run, the item of an edited message equals that of the message which it replaces
            same = takewhile(_is_same, zip(items, mine.row.items, strict=False))
            tokens += sum([item.tokens for item, _ in same])
            break
    return _Shared(above, tokens, size, max(0, total - above - tokens), part)


def _is_same(items: tuple[Item, Item]) -> bool:
    return items[0] is items[1]


def _fragments(ask: CompileInput, draft: Draft) -> Callable[[], Sequence[Fragment]]:
    def read() -> list[Fragment]:
        shown = {entry.item.fragment for entry in draft.tail}
        of_turn = {entry.item.fragment for entry in draft.tail if entry.item.kind == "turn"}
        at_head = ask.options.placement == "head"
        static = not draft.resume or ask.provider.resends_head
        return [
            Fragment(
                id=each.id,
                lifecycle=each.lifecycle,
                shown=static
                if each.lifecycle == "static"
                else each.id in of_turn
                if each.lifecycle == "turn"
                else at_head or each.id in shown,
                hash=each.hash,
                tokens=ask.counter.count_text(each.text),
            )
            for each in (*ask.terms.prompt.static, *ask.terms.prompt.dynamic, *ask.turn_fragments)
        ]

    return read


def _lines(ask: CompileInput, draft: Draft, used: int) -> list[ManifestLine]:
    items: list[Item]
    if draft.kept is not None:
        items = list(draft.kept)
    else:
        items = [item for each in draft.rows for item in each.row.items] + [entry.item for entry in draft.tail]
    left = {**ask.load_left_out(ask.snapshot, items), **{each.place: each.why for each in draft.left}}
    held = sum([len(each.row.items) for each in draft.rows]) if draft.resume else 0
    produced = draft.held_places if draft.resume else ()
    return build_lines(
        items,
        left,
        lambda places: ask.fetch(places, ()).messages,
        dict(draft.log),
        held=held,
        produced=produced,
        used=used,
        fetchable=draft.fetchable,
    )


def build_lines(
    items: Iterable[Item],
    left_out: Mapping[int, str],
    load_messages: Callable[[Sequence[int]], Mapping[int, Message]],
    known: Mapping[int, Message] = {},
    *,
    held: int = 0,
    produced: Collection[int] = (),
    used: int | None = None,
    fetchable: bool = True,
) -> list[ManifestLine]:
    """Return the lines of all items as the model read them, then those of what was left out.

    `used` is the total of the items' tokens, distributed over the lines; without it, lines have our own count. The
    first `held` items, and those at the places in `produced`, were in the session before this request.
    """
    items = list(items)
    places = find_included_places(items)
    hidden = sorted([where for where in left_out if where not in places], key=lambda where: where & SEQ_MASK)
    wanted = [*(item.place for item in items if item.place), *hidden]
    messages = {**load_messages([where for where in dict.fromkeys(wanted) if where not in known]), **known}
    counted = [item.tokens for item in items]
    tokens = counted if used is None else distribute(used, counted)
    lines = [
        replace(build_included_line(item, sent, taken), sent=index >= held and item.place not in produced)
        for index, ((item, sent), taken) in enumerate(
            zip(render_sent_items(items, messages, fetchable=fetchable), tokens, strict=True)
        )
    ]
    return lines + [build_left_out_line(where, messages.get(where), left_out[where]) for where in hidden]


def find_included_places(items: Iterable[Item]) -> set[int]:
    """Return the places of the messages that are sent. A summary is excluded: its place is that of a message it
    replaces.
    """
    return {item.place for item in items if item.kind != "summary"}


def build_included_line(item: Item, sent: SentItem, tokens: int) -> ManifestLine:
    return ManifestLine(
        seq=item.place & SEQ_MASK,
        kind=item.kind,
        role=item.role,
        shown=True,
        tokens=tokens,
        why=_describe_changes(item),
        text=sent.text,
        original=sent.original_text,
    )


def build_left_out_line(where: int, message: Message | None, why: str) -> ManifestLine:
    return ManifestLine(
        seq=where & SEQ_MASK,
        kind="message",
        role=message.role if message is not None else "",
        shown=False,
        sent=False,
        why=why,
        text=to_plain_text(message),
    )


def is_reduced(item: Item) -> bool:
    """Return True if a result is a stub, or shortened to its head and tail."""
    return item.decayed or bool(item.limit) or item.calls == "short"


REDUCED_CALLS = ("calls without arguments", "only its id, can be fetched")
"""The form of a call and its result as the shortest valid pair."""


def _describe_changes(item: Item) -> str:
    """Return how an item differs from its stored message."""
    notes = [
        f"as {item.prefix.strip()}" if item.prefix else "",
        "result left out, can be fetched" if item.decayed else "",
        REDUCED_CALLS[item.role == "tool"] if item.calls == "short" else "without its calls" if item.calls else "",
        "shortened" if item.limit else "",
        "without its reasoning" if item.bare else "",
        "reasoning joined in" if item.inline else "",
        "broke off" if item.failed else "",
        "media described" if item.blind else "",
    ]
    return ", ".join(note for note in notes if note)


# ── the pass insert_fragments ─────────────────────────────────────────────────────────────────────────────────────────
# Insert the fragments of a turn beside its input, and at the tail, in one block, the dynamic fragments that are due.
#
# A fragment of a turn is sent once, when the turn begins. It stays where it was sent, as a message does: later turns
# neither replace nor withdraw it, and a cut leaves it out before anything else. If a turn goes on with another model,
# that one gets it at the same place.
#
# A fragment is due if this epoch has no copy of its current text. At the start of a turn it is also due if its latest
# copy is far back; a session gets all fragments at every turn. A copy that replaces another one is marked as updated,
# and a fragment that has become empty is withdrawn. Copies are never moved, so the prefix is stable. Runs before the
# budget, so that they are counted.
#
#     Before                              After
#     user       What is left to do?      user       What is left to do?
#                                         system     Todos: 1. write tests (open)


WITHDRAWN_TEXT = "(withdrawn)\nAll earlier versions of this no longer hold."


def insert_fragments(draft: Draft) -> Draft:
    if draft.resume and draft.provider.keeps_static and draft.options.static_change == "update":
        told = draft.prompt.static_hash if draft.prompt.static else ""
        if told != draft.standing.head.static:
            text = write_update(draft.prompt, draft.standing.static_hashes)
            draft = _append_to_tail(draft, [Item(kind="update", text=text)])
    draft = _insert_turn_fragments(draft)
    shown = draft.standing.fragments
    if draft.options.placement == "head" or not (shown or draft.prompt.dynamic):
        return draft
    begins = any(entry.item.opens for entry in draft.tail)
    if not (begins or draft.new or draft.epoch):
        return draft
    now = draft.standing.tokens if draft.kept is None else sum([item.tokens for item in draft.kept])
    now += sum([entry.item.tokens for entry in draft.tail])
    due = _due(draft, begins=begins, now=now)
    if not due:
        return draft
    copies = {**shown, **{item.fragment: FragmentCopy(item.hash, now) for item in due}}
    copies = {name: copy for name, copy in copies.items() if copy.hash}
    return _append_to_tail(replace(draft, standing=replace(draft.standing, fragments=copies, dynamic="")), due)


def _insert_turn_fragments(draft: Draft) -> Draft:
    """Insert the fragments of the turn after the input that opened it, if this channel does not have them."""
    opening = max([index for index, entry in enumerate(draft.tail) if entry.item.opens], default=-1)
    is_due = draft.turn != draft.standing.turn_fragments if draft.turn else opening >= 0
    if not draft.turn_fragments or not draft.new or not is_due:
        return draft
    later = draft.tail[opening + 1 :] if opening >= 0 else ()
    replies = [index for index, entry in enumerate(later, opening + 1) if entry.item.role == "assistant"]
    at = replies[0] if replies else len(draft.tail)
    items = [
        Item(kind="turn", text=f"## {each.heading}\n{each.text}", fragment=each.id, hash=each.hash)
        for each in draft.turn_fragments
    ]
    rest = draft.tail[at:]
    draft = _append_to_tail(replace(draft, tail=draft.tail[:at]), items)
    standing = replace(draft.standing, turn_fragments=draft.turn)
    return replace(draft, tail=(*draft.tail, *rest), standing=standing)


def _due(draft: Draft, *, begins: bool, now: int) -> list[Item]:
    """Return the copies and withdrawals that are due. `now` is the number of tokens before them."""
    shown, every = draft.standing.fragments, begins and draft.provider.session_resumption
    due: list[Item] = []
    for fragment in draft.prompt.dynamic:
        copy = shown.get(fragment.id)
        is_same = copy is not None and copy.hash == fragment.hash
        is_far = begins and copy is not None and now - copy.position > draft.options.refresh
        if is_same and not every and not is_far:
            continue
        title = f"## {fragment.heading}"
        if (copy is not None or draft.standing.dynamic) and not (is_same and every):
            title = f"{title} {UPDATED_TEXT}"
        due.append(Item(kind="dynamic", text=f"{title}\n{fragment.text}", fragment=fragment.id, hash=fragment.hash))
    gone = shown.keys() - {fragment.id for fragment in draft.prompt.dynamic}
    due += [
        Item(kind="dynamic", text=f"## {heading_of(name)} {WITHDRAWN_TEXT}", fragment=name)
        for name in shown
        if name in gone
    ]
    return due


def _append_to_tail(draft: Draft, items: Sequence[Item]) -> Draft:
    """Append inserted texts to the tail, marked as ours if a session accepts no system message."""
    marked = draft.resume and not draft.provider.system_in_session
    entries: list[DraftEntry] = []
    for item in items:
        text = SYSTEM_CONTEXT + item.text if marked else item.text
        role = "user" if marked else "system"
        message = Message(role=role, parts=(Text(text),))
        tokens = draft.counter.count_text(SEPARATOR + item.text) if entries else draft.counter.count_message(message)
        entries.append(DraftEntry(replace(item, role=role, text=text, tokens=tokens), message))
    return replace(draft, tail=(*draft.tail, *entries))


# ── the pass cache_breakpoints ────────────────────────────────────────────────────────────────────────────────────────
# Set cache breakpoints: after the head, after the end of the previous request, and at the end.
#
# A provider's cache checks these positions first, and they are stable from step to step. There are never more than the
# provider allows, and none if the request is too short to be cached. Runs after the budget, because marks are
# positions.
#
#     Before                     After
#     system     You are …       system     You are …   ●
#     user       Find the bug.   user       Find the bug.
#     assistant  calls read      assistant  calls read
#     tool       print(1)        tool       print(1)    ●   (the request before ended here)
#     assistant  calls test      assistant  calls test
#     tool       2 failed        tool       2 failed    ●


def set_cache_breakpoints(draft: Draft) -> Draft:
    if draft.resume:
        return draft
    sent = draft.standing.tokens if draft.kept is None and draft.rows else None
    return replace(draft, marks=_place_marks(draft.provider, draft.budget, draft.ttl, draft.breakpoints_left, sent))


def _place_marks(
    provider: Provider, budget: Budget, ttl: str | None, breakpoints_left: int, sent: int | None
) -> tuple[CacheMark, ...]:
    """Return the positions of cache breakpoints. `sent` are the tokens of the previous request's messages, if this one
    extends it.
    """
    least = provider.model.cache_minimum
    if ttl is None or breakpoints_left <= 0 or budget.input < least:
        return ()
    marks: list[CacheMark] = ["end"]
    head = budget.system + budget.tools
    if sent is not None and head + sent >= least:
        marks.append("previous")
    if head >= least:
        marks.append("head")
    return tuple(marks[:breakpoints_left])


# ── compile ───────────────────────────────────────────────────────────────────────────────────────────────────────────
# One compilation: load the channel, new messages, summaries and token counts, then build the request. Writes nothing.
#
# All reads use one consistent snapshot of the store. The next step of a channel that this handle used last takes a
# fast path with one statement (`ledger.load_next`).


OTHER_HEAD = (EpochReason.SYSTEM_PROMPT_CHANGED, EpochReason.TOOLS_CHANGED, EpochReason.NEW_ENCODER)


def compile_request(ask: CompileInput, renew_terms: Callable[[], RequestTerms]) -> Compiled:
    """Compile a request. If it begins an epoch, it gets the terms with today's tools, unless they do not fit."""
    compiled = _compile(ask)
    draft, terms = compiled.draft, ask.terms
    if terms.is_frozen and (draft.epoch or not has_changes(draft)) and not _continues_prefix(draft):
        why = draft.epoch or reason_for(draft.changes)
        renewed = replace(ask, terms=renew_terms(), renews_tools=terms.tools.plan is not None, forced=why)
        return _compile(renewed)
    if terms.tools.is_former and draft.epoch and not terms.is_frozen:
        with suppress(ContextOverflow):
            return _compile(replace(ask, terms=renew_terms(), renews_tools=True))
    return compiled


def _continues_prefix(draft: Draft) -> bool:
    """Return True if an epoch begins only because messages at the end are gone, so that the head may stay as it is."""
    return has_changes(draft) and draft.epoch in BRANCH_REASONS and draft.changed > 0 and not draft.budget.wanted


def _compile(ask: CompileInput) -> Compiled:
    """Decide whether a new epoch begins, run the passes, and assemble the rows."""
    if ask.shortcuts and (extended := _extend(ask)) is not None:
        return _compiled(ask, extended, None)
    if ask.shortcuts and ask.unsent is not None and (compiled := _extend_unsent(ask, ask.unsent)) is not None:
        return compiled
    sight = ask.snapshot
    standing = sight.state
    why, resume, revert = _session(ask)
    if standing.requests and not standing.layout and standing.lost:
        why = standing.lost
    changed, compacted = -1, _is_newer(ask.summary, standing)
    if standing.requests or standing.layout or standing.held:
        is_known = bool(standing.head.encoder) or not standing.held  # a session that was adopted has an unknown head
        breaks = find_prefix_change(ask, standing.head, resume) if is_known else ""
        why = (
            why
            or sight.reason
            or ask.forced
            or breaks
            or (EpochReason.PREVIOUS_REPLACED if standing.replaced else "")
            or (EpochReason.COMPACTED if compacted else "")
        )
        is_other_head = breaks in OTHER_HEAD or ask.renews_tools or bool(ask.terms.broken)
        changed = 0 if why == EpochReason.PREVIOUS_REPLACED or is_other_head else -1
    else:
        why = why or EpochReason.FIRST_REQUEST
    resume = resume and not why
    draft = _draft(ask, why=why, resume=resume, changed=changed, compacted=compacted)
    if not (why or resume) and (repeated := _find_repeated(ask)):
        draft = replace(draft, repeated=repeated, log=(), standing=replace(standing, produced=()))
    passed = _run_passes(draft)
    if resume and passed.epoch:  # a pass began an epoch, so the whole context is sent into a new session
        why, resume, revert = passed.epoch, False, None
        passed = _run_passes(_draft(ask, why=why, resume=False, changed=-1, compacted=compacted))
    return _compiled(ask, passed, revert if resume else None)


def _extend(ask: CompileInput) -> Draft | None:
    """Return the finished draft of the usual step of an agent, without the passes: its reply, and plain results of all
    its calls, after everything that was sent. None if the step may be any other.

    A condition here that is too strict costs time only. The passes give the same draft.
    """
    sight, terms, options, provider = ask.snapshot, ask.terms, ask.options, ask.provider
    standing = sight.state
    if (
        not (standing.requests and standing.layout)
        or sight.reason
        or sight.remaining is not None
        or sight.revealed
        or sight.unread_until
        or sight.missing
        or standing.replaced
        or standing.container is not None
        or terms.changes
        or terms.is_frozen
        or terms.broken
        or ask.turn_fragments
        or ask.forced
        or ask.renews_tools
        or ask.compacts
        or options.slides
        or provider.session_resumption
        or terms.formatter.repeats_request
        or (standing.head is not terms.head and standing.head != terms.head)
        or (ask.summary is not None and _is_newer(ask.summary, standing))
        or not _has_fragments(terms.prompt.dynamic, standing.fragments, options.placement)
    ):
        return None
    counter, counts = ask.counter, ask.counts

    def count(where: int, message: Message) -> int:
        return counts.get(where) or counter.count_message(message)

    oversized = _epochs_budget(terms.budget, standing.reserve).oversized(options)
    tail = view_results(standing, sight.log, ask.channel.author, ask.run, count, oversized)
    if tail is None:
        return None
    reply, said = tail[0]
    if reply.media or reply.texts or reply.compacts or terms.formatter.read_continuation(said) is not None:
        return None
    budget = _measure_untrimmed(ask, sum([entry.item.tokens for entry in tail]), reply.tokens)
    if budget is None:
        return None
    ttl = terms.cache.ttl
    marks = _place_marks(provider, budget, ttl, terms.breakpoints_left, standing.tokens)
    return _draft(ask, tail=tuple(tail), new=len(tail) - 1, budget=budget, marks=marks)


def _measure_untrimmed(ask: CompileInput, tail: int, replayed: int, *, is_epoch: bool = False) -> Budget | None:
    """Return the budget of a request without trimming; None if it has to be trimmed.

    `tail` are the tokens of what is new, in an epoch those of all messages, and `replayed` those of the last reply.
    """
    standing, options = ask.snapshot.state, ask.options
    budget = ask.terms.budget if is_epoch or options.slides else _epochs_budget(ask.terms.budget, standing.reserve)
    budget = replace(budget, overhead=standing.overhead)
    last, before = (0, 0) if is_epoch else (standing.input, standing.tokens)
    budget = measure(budget, last, before, tail, replayed, ask.factor, ask.provider)
    return None if budget.used + ask.headroom > budget.available * options.high else budget


class UnsentRequest(Struct, frozen=True, kw_only=True):
    """A request that was compiled. If it is not sent, and nothing follows, or only messages of people after one of a
    person, the next one extends it.

    It has no reference to the loaders of its compilation: each would keep the request before it in memory.
    """

    terms: RequestTerms
    snapshot: ChannelSnapshot
    summary: Summary | None
    new_counts: Mapping[bytes, int]
    runs: str
    factor: float
    draft: Draft
    rows: AssembledRows
    state: ChannelState
    chain: str
    """Hash of the rows before the last one; empty if it is not known yet."""
    is_whole: bool
    """True if each message of the log is in the request, none of them in a shorter form."""
    ends_with_person: bool

    @property
    def memory_bytes(self) -> int:
        """Estimated bytes of memory: the messages, the rows as plain data, and as bytes."""
        return 4 * self.state.size + ROW_BYTES * len(self.snapshot.log)

    @property
    def has_instructions(self) -> bool:
        """True if the caller gave instructions. System messages at the start of the conversation are none then."""
        return bool(self.terms.prompt.static) and not self.snapshot.leading

    def reads_all(self, snapshot: ChannelSnapshot, counts: Mapping[int, int], window: int) -> bool:
        """Return True if so many new messages leave no doubt that the window has room for the whole log.

        A long log is read backwards, and the count of what was read then is not exactly that of the request.
        """
        if snapshot.tip.seq - snapshot.state.seen <= BLOCK_SIZE:
            return True
        tokens = self.state.above + self.state.tokens + sum(counts.values())
        return self.is_whole and tokens * 10 <= window * 9


def _as_unsent(ask: CompileInput, draft: Draft, rows: AssembledRows, state: ChannelState) -> UnsentRequest | None:
    """Return a request as one that the next can extend; None if the next one has to run all passes."""
    terms, sight, options = ask.terms, ask.snapshot, ask.options
    tail, new = draft.tail, rows.new_rows
    if (
        not (tail and new)
        or (rows.order is not None and rows.order[-1] != len(new) - 1)
        or (
            ask.provider.session_resumption
            or ask.dry_run
            or ask.for_summary
            or ask.compacts
            or ask.forced
            or ask.renews_tools
            or ask.turn_fragments
        )
        or (terms.is_frozen or terms.broken or terms.changes or terms.tools.is_former)
        or (options.placement != "head" and (terms.prompt.dynamic or draft.standing.fragments))
        or (sight.attempt is not None or sight.unread_until or sight.missing or sight.revealed)
        or (draft.compaction or draft.compacted or draft.standing.waiting or state.container is not None)
    ):
        return None
    if draft.kept is not None:  # as many as before the epoch began, and not trimmed, so nothing was left out of it
        remaining = sight.remaining
        before = sum([len(each.row.items) for each in draft.rows]) if remaining is None else len(remaining)
        if not draft.epoch or draft.budget.wanted or len(draft.kept) != before + len(tail):
            return None
    if _measure_extended(ask, draft, state.tokens) is None:
        return None
    return UnsentRequest(
        terms=terms,
        snapshot=sight,
        summary=ask.summary,
        new_counts=ask.new_counts,
        runs=ask.runs,
        factor=ask.factor,
        draft=replace(draft, load_messages=_load_nothing, load_earlier=_load_nothing),
        rows=rows,
        state=state,
        chain="",
        is_whole=not draft.left and not any([_is_shorter(entry.item) for entry in tail]),
        ends_with_person=_ends_with_person(tail[-1].item, new[-1]),
    )


def _load_nothing(*_: object) -> Mapping[int, Message]:
    return {}


def _ends_with_person(item: Item, row: NewRow) -> bool:
    """Return True if a row ends with a message of a person, that the next one may follow in the same row."""
    return item.role == row.row.end == "user" and item.kind == "message" and row.row.items[-1] is item


def _is_shorter(item: Item) -> bool:
    return bool(is_reduced(item) or item.bare or item.blind or item.texts or item.only or item.inline)


def _measure_extended(ask: CompileInput, draft: Draft, tokens: int) -> Budget | None:
    """Return the budget of a request with so many tokens of messages; None if it has to be trimmed."""
    if draft.epoch:
        return _measure_untrimmed(ask, tokens, 0, is_epoch=True)
    own = {item.place for item in draft.standing.produced}
    replayed = sum([item.tokens for item, _ in draft.tail if item.place in own]) if own else 0
    return _measure_untrimmed(ask, tokens - ask.snapshot.state.tokens, replayed)


def _extend_unsent(ask: CompileInput, before: UnsentRequest) -> Compiled | None:
    """Return a request that differs from one before it, which was not sent, at most by messages of people at its end.
    None if it may differ otherwise.

    A condition here that is too strict costs time only. The passes give the same request.
    """
    terms, sight, draft, rows = ask.terms, ask.snapshot, before.draft, before.rows
    log = sight.log[len(draft.log) :]
    if (
        before.terms is not terms
        or before.summary is not ask.summary
        or (before.runs, before.factor, before.state.cache_key) != (ask.runs, ask.factor, ask.cache_key)
        or (ask.turn_fragments or ask.forced or ask.renews_tools or ask.compacts or ask.for_summary)
        or (log and not before.ends_with_person)
        or not all([message.role == "user" and message.run is None for _, message in log])
        or not all([type(part) is Text for _, message in log for part in message.parts])
    ):
        return None
    seen = select_agent_view(replace(draft, log=log, tail=(), new=0, left=(), token_counts=ask.counts))
    items = tuple([entry.item for entry in seen.tail])
    if seen.standing.waiting or not all([item.role == "user" for item in items]):
        return None
    if draft.remarks and seen.left:  # results without a call are the last ones that are left out
        return None
    added = sum([item.tokens for item in items])
    budget = _measure_extended(ask, draft, before.state.tokens + added)
    if budget is None:
        return None
    sent = sight.state.tokens if draft.kept is None and draft.rows else None
    draft = replace(
        draft,
        log=sight.log,
        standing=seen.standing,
        tail=(*draft.tail, *seen.tail),
        new=draft.new + seen.new,
        left=(*draft.left, *seen.left),
        remarks=seen.remarks,
        kept=None if draft.kept is None else (*draft.kept, *items),
        budget=budget,
        marks=_place_marks(ask.provider, budget, draft.ttl, draft.breakpoints_left, sent),
        headroom=ask.headroom,
        turn=ask.turn,
    )
    head = build_head(ask, budget, resume=False, marked="head" in draft.marks)
    *earlier, former = rows.new_rows
    if (added_to := add_to_last_row(draft, terms.formatter, head.settings, former, seen.tail)) is None:
        return None
    (row, notes), order = added_to, rows.order
    chain = before.chain
    if not chain and order is None:
        chain = hash_chunks(sight.state.chain, [each.chunk for each in earlier])
    elif not chain and order is not None:
        chain = hash_chunks("", [earlier[each].chunk if isinstance(each, int) else each.chunk for each in order[:-1]])
    rows = AssembledRows((*earlier, row), order, (*rows.notes, *notes))
    standing = seen.standing
    state = replace(
        before.state,
        humans=standing.humans,
        going=standing.going,
        pending=standing.pending,
        answered=standing.answered,
        turn=standing.turn,
        chain=hash_chunks(chain, [row.chunk]),
        size=before.state.size + len(row.chunk) - len(former.chunk),
        tokens=before.state.tokens + added,
        seen=sight.tip.seq,
    )
    unsent = replace(
        before,
        snapshot=sight,
        new_counts=ask.new_counts,
        draft=draft,
        rows=rows,
        state=state,
        chain=chain,
        is_whole=before.is_whole and not draft.left and not any([_is_shorter(item) for item in items]),
    )
    return _as_compiled(ask, draft, rows, state, head, unsent)


def _has_fragments(
    dynamic: Sequence[RenderedFragment], copies: Mapping[str, FragmentCopy], placement: Literal["tail", "head"]
) -> bool:
    """Return True if the channel has the current copy of each dynamic fragment, and of no other."""
    if placement == "head" or not (dynamic or copies):
        return True
    return len(dynamic) == len(copies) and all(
        [each.id in copies and copies[each.id].hash == each.hash for each in dynamic]
    )


def _find_repeated(ask: CompileInput) -> str:
    """Return the value with which a request continues the last reply, if nothing came after it; "" if there is none."""
    log, formatter = ask.snapshot.log, ask.terms.formatter
    if not formatter.repeats_request or not log:
        return ""
    own = {item.place for item in ask.snapshot.state.produced}
    if any([where not in own for where, _ in log]):
        return ""
    found = formatter.read_continuation(log[-1][1])
    return found.value if found is not None else ""


def _find_container(draft: Draft) -> Container | None:
    """Return the container that the request names: that of the last reply that named one."""
    found, formatter = draft.standing.container, draft.provider.formatter
    if formatter.repeats_request:
        return None
    for item, message in draft.tail:
        if item.role == "assistant" and (named := formatter.read_continuation(message)) is not None:
            found = Container(item.place, named.value, named.expires)
    return found


def _session(ask: CompileInput) -> tuple[str, bool, str | None]:
    """Return why a stateful provider needs a new session, whether one is resumed, and the cursor it must go back to
    first.
    """
    provider, sight = ask.provider, ask.snapshot
    if not provider.session_resumption:
        return "", False, None
    session = sight.state.session
    if session is None:
        shown = sight.state.requests or sight.state.layout
        why = EpochReason.PREVIOUS_REPLACED if sight.state.replaced else sight.state.lost or EpochReason.NO_SESSION
        return (why if shown else ""), False, None
    if sight.attempt is None:
        return "", True, None
    if provider.reverts:
        return "", True, session.cursor or session.id
    return EpochReason.UNSURE_SESSION, False, None


def _is_newer(summary: Summary | None, standing: ChannelState) -> bool:
    if summary is None or summary.waits:
        return False
    return summary.anchor & SEQ_MASK > standing.summary & SEQ_MASK


def _draft(
    ask: CompileInput,
    *,
    why: str = "",
    resume: bool = False,
    changed: int = -1,
    compacted: bool = False,
    tail: tuple[DraftEntry, ...] = (),
    new: int = 0,
    budget: Budget | None = None,
    marks: tuple[CacheMark, ...] = (),
) -> Draft:
    """Return the draft as the passes begin with it; with a `tail` and its `budget` as they end with it."""
    sight, terms = ask.snapshot, ask.terms
    standing, kept = sight.state, sight.remaining
    if why:
        standing = replace(standing, epoch=standing.epoch + 1, input=0)
        if kept is None:
            kept = tuple([item for each in sight.cached.rows for item in each.row.items])
    if budget is None:
        budget = terms.budget if why or ask.options.slides else _epochs_budget(terms.budget, standing.reserve)
    return Draft(
        provider=ask.provider,
        counter=ask.counter,
        options=ask.options,
        agent=ask.channel.author,
        run=ask.run,
        running=ask.running,
        audiences=terms.audiences,
        resume=resume,
        prompt=terms.prompt,
        turn_fragments=ask.turn_fragments,
        turn=ask.turn,
        fetchable=terms.fetchable,
        searchable=terms.searchable,
        changes=terms.changes,
        renews_head=not terms.is_frozen,
        rows=sight.cached.rows,
        standing=standing,
        log=sight.log,
        unread_until=sight.unread_until,
        turn_opening=sight.turn_opening,
        load_messages=lambda places: ask.fetch(places, ()).messages,
        load_earlier=lambda upto, tokens: ask.load_earlier(sight, upto, tokens),
        revealed=sight.revealed,
        text_files={} if tail else _load_text_files(ask),
        token_counts=ask.counts,
        unanswered_calls=sight.unanswered_calls,
        pins=sight.pins,
        summary=ask.summary,
        compacted=compacted,
        breakpoints_left=terms.breakpoints_left,
        ttl=terms.cache.ttl,
        reencode=standing.head.encoder not in ("", terms.head.encoder),
        factor=ask.factor,
        headroom=ask.headroom,
        for_summary=ask.for_summary,
        budget=budget,
        epoch=why,
        kept=kept,
        changed=changed,
        remarks=(f"{sight.missing} of its messages are missing from the store",) if sight.missing else (),
        tail=tail,
        new=new,
        marks=marks,
    )


def _load_text_files(ask: CompileInput) -> Mapping[str, bytes]:
    messages = [*(message for _, message in ask.snapshot.log), *ask.snapshot.revealed.values()]
    files = [media for message in messages for media in list_media(message) if media.blob and may_be_text(media)]
    return ask.fetch((), [Message(role="user", parts=tuple(files))]).blobs if files else {}


def _epochs_budget(budget: Budget, shrunk: int) -> Budget:
    return replace(budget, reserve=min(budget.reserve, shrunk)) if shrunk else budget


def _run_passes(draft: Draft) -> Draft:
    for each in PASSES:
        draft = each(draft)
    return draft


PASSES: tuple[Callable[[Draft], Draft], ...] = (
    select_agent_view,
    find_compaction,
    insert_fragments,
    append_changes,
    fit_budget,
    set_cache_breakpoints,
    verify_draft,
)


def _compiled(ask: CompileInput, draft: Draft, revert: str | None) -> Compiled:
    """Assemble the rows of a finished draft."""
    sight, resume = ask.snapshot, draft.resume
    container, continues = _find_container(draft), draft.repeated
    if container is not None and 0 < container.expires <= ask.now:
        draft = replace(draft, remarks=(*draft.remarks, CONTAINER_EXPIRED.format(container.id)))
        container = None
    elif container is not None:
        continues = container.id
    head = build_head(ask, draft.budget, resume=resume, marked="head" in draft.marks, continues=continues)
    assembled = assemble_rows(draft, ask.terms.formatter, sight.cached.used, head.settings, ask.fetch)
    standing = _next_state(ask, draft, assembled)
    if standing.container != container:
        standing = replace(standing, container=container)
    return _as_compiled(ask, draft, assembled, standing, head, _as_unsent(ask, draft, assembled, standing), revert)


def _as_compiled(
    ask: CompileInput,
    draft: Draft,
    assembled: AssembledRows,
    standing: ChannelState,
    head: HeadParts,
    unsent: UnsentRequest | None,
    revert: str | None = None,
) -> Compiled:
    sight, resume = ask.snapshot, draft.resume
    session = sight.state.session
    session_id = session.id if resume and session is not None else None
    is_new = bool(draft.new) or ask.retry or sight.state.again or _is_unanswered(draft)
    if resume and not any(row.chunk for row in assembled.new_rows):
        is_new = _ends_with_result(sight.state)  # an empty delta tells a program to go on, and is never sent otherwise
    return Compiled(
        channel=ask.channel,
        provider=ask.provider,
        formatter=ask.terms.formatter,
        draft=draft,
        snapshot=sight,
        state=standing,
        rows=assembled,
        head=head,
        build_account=lambda: build_account(ask, draft, standing, assembled, head, session_id or ""),
        build_session_head=lambda: build_head(ask, draft.budget, resume=False, marked=False) if resume else head,
        session_id=session_id,
        revert_to=revert,
        dry_run=ask.dry_run,
        is_new=is_new,
        tools=ask.terms.tools.offered,
        request_kind=ask.terms.kind,
        new_token_counts=ask.new_counts,
        unsent=unsent,
    )


def _is_unanswered(draft: Draft) -> bool:
    """Return True if a new epoch ends with input whose answer is on another branch."""
    said = (item for item in reversed(draft.kept or ()) if item.kind in ("message", "late"))
    last = next(said, None)
    return last is not None and last.role != "assistant"


def _ends_with_result(standing: ChannelState) -> bool:
    """Return True if the last reply of a session was ended before the model answered the results in it."""
    return bool(standing.produced) and standing.produced[-1].role == "tool"


def _next_state(ask: CompileInput, draft: Draft, assembled: AssembledRows) -> ChannelState:
    """Return the state of the channel after this request is committed."""
    standing, sight = draft.standing, ask.snapshot
    epoch = standing.epoch
    if draft.epoch and not sight.reason and epoch == sight.state.epoch:
        epoch += 1
    if assembled.order is None:
        chunks = [row.chunk for row in assembled.new_rows]
        chain, size = hash_chunks(standing.chain, chunks), standing.size + sum([len(chunk) for chunk in chunks])
        tokens = standing.tokens + sum([row.row.tokens for row in assembled.new_rows])
    else:
        rows = [
            assembled.new_rows[each][:2] if isinstance(each, int) else (each.row, each.chunk)
            for each in assembled.order
        ]
        chain = hash_chunks("", [chunk for _, chunk in rows])
        size, tokens = sum([len(chunk) for _, chunk in rows]), sum([row.tokens for row, _ in rows])
    is_extended = draft.kept is None and not draft.changes
    after = replace(
        standing,
        epoch=epoch,
        head=ask.terms.head,
        tools=ask.terms.tools.names,
        tool_hashes=ask.terms.tools.hashes,
        effort=ask.terms.effort,
        head_static=_head_static(ask, standing),
        chain=chain,
        size=size,
        above=ask.terms.budget.system + ask.terms.budget.tools,
        tokens=tokens,
        seen=sight.state.seen if draft.repeated else sight.tip.seq,
        runs=ask.runs,
        summary=standing.summary if is_extended else _summary_place(ask, draft, standing),
        reserve=standing.reserve if is_extended and not ask.options.slides else _shrunk_reserve(ask, draft, standing),
        input=0,
        held=0,
        cache_key=ask.cache_key,
    )
    return after if is_extended and not draft.epoch else after.with_changes(_changes(ask, draft, standing))


def _changes(ask: CompileInput, draft: Draft, standing: ChannelState) -> HeadChanges:
    """Return what the changes in the epoch add up to after this request."""
    before = NO_CHANGES if draft.epoch and not ask.terms.is_frozen else standing.changes
    for entry in draft.changes if has_changes(draft) else ():
        before = before.with_item(entry.item)
    return before


def _head_static(ask: CompileInput, standing: ChannelState) -> dict[str, str]:
    """Return the static fragments in the head, with hashes, if a change of them may be appended."""
    if ask.terms.instructions.is_frozen:
        return standing.head_static
    provider = ask.provider
    is_possible = ask.options.static_change == "update" and not ask.snapshot.leading
    if not is_possible or not (provider.keeps_static or provider.has_system_between):
        return {}
    return ask.terms.prompt.static_hashes


def _summary_place(ask: CompileInput, draft: Draft, standing: ChannelState) -> int:
    """Return the place up to which a summary was used, or was considered and rejected."""
    if draft.kept is None:
        return standing.summary
    if draft.compacted and ask.summary is not None:
        return ask.summary.anchor
    return max((item.place for item in draft.kept if item.kind == "summary"), default=0)


def _shrunk_reserve(ask: CompileInput, draft: Draft, standing: ChannelState) -> int:
    """Return the reserve if it had to shrink for this epoch, else 0. Later requests of the epoch do not exceed it.

    The policy `sliding_window` computes the reserve of each request by itself.
    """
    if ask.options.slides:
        return 0
    if draft.kept is None:
        return standing.reserve
    return draft.budget.reserve if draft.budget.reserve < ask.terms.budget.reserve else 0


MAX_UNSENT_BYTES = 16_000_000


class LoadedContext(NamedTuple):
    """The loaded channel, its summary, and the tokens of new messages."""

    snapshot: ChannelSnapshot
    summary: Summary | None
    counts: Mapping[int, int]
    new_counts: dict[bytes, int]
    unsent: UnsentRequest | None = None
    """The request that was compiled before and not sent, if only appends followed."""

    def with_pending(self, entries: Sequence[message_log.PendingMessage]) -> "LoadedContext":
        """Return the same as it will be when these messages are the next ones of the conversation."""
        at, log = self.snapshot.tip, list(self.snapshot.log)
        for entry in entries:
            message, row = message_log.build_row(at, entry)
            log.append((row[0], message))
            at = at.followed_by(message)
        return self._replace(snapshot=replace(self.snapshot, tip=at, log=tuple(log)))

    def with_appended(self, messages: Sequence[Message]) -> "LoadedContext":
        """Return the same with unsaved messages appended."""
        at, log = self.snapshot.tip, list(self.snapshot.log)
        for seq, message in enumerate(messages, at.seq + 1):
            log.append(
                (
                    make_place(at.branch, seq),
                    replace(validate_message(replace(message, uid="", time=0)).message, seq=seq),
                )
            )
        return self._replace(snapshot=replace(self.snapshot, log=tuple(log)))


class ContextLoader:
    """Reads a store for one provider. `calibrations`, by kind of request, is None until the first read."""

    def __init__(self, store: Store, provider: Provider, counter: TokenCounter, cache: ChannelCache) -> None:
        self.store, self.provider, self.counter, self._cache = store, provider, counter, cache
        self.calibrations: dict[str, Calibration] | None = None
        self.skip_summarized = False
        """True if messages that the latest summary covers are not read."""
        self.assumed_summary: Summary | None = None
        """A summary that is not stored, and is used as if it were the latest one."""
        self._unsent = RecentChannels[UnsentRequest](MAX_UNSENT_BYTES)

    def factor(self, kind: str) -> float:
        """Return the calibration factor for this kind of request, 1 if none has been measured."""
        return (self.calibrations or {}).get(kind, Calibration()).factor

    def is_calibrated(self, kind: str) -> bool:
        """Return True if a calibration for this kind of request is stored."""
        return (self.calibrations or {}).get(kind, Calibration()).samples > 0

    def load(
        self,
        channel: Channel,
        runs: str,
        edit: tuple[Reference, Message] | None,
        rewind: Reference | None,
        *,
        has_instructions: bool,
        pending: Sequence[message_log.PendingMessage] = (),
    ) -> LoadedContext:
        """Load a channel as it is now, or as it would be after an edit or a rewind."""
        is_plain = edit is None and rewind is None
        seen = self._load_next(channel, has_instructions, may_be_empty=bool(pending)) if is_plain else None
        seen = seen or self._load_snapshot(channel, runs, edit, rewind, has_instructions)
        if pending:
            seen = seen.with_pending(pending)
        return seen if self.assumed_summary is None else seen._replace(summary=self.assumed_summary)

    def _load_next(self, channel: Channel, has_instructions: bool, *, may_be_empty: bool) -> LoadedContext | None:
        """Load the next step of a channel by the fast path; None if the full load is needed."""
        if self.calibrations is None:
            return None
        if (seen := self._load_unsent(channel, has_instructions)) is not None:
            return seen
        if (sight := load_next(self.store, self._cache, channel, may_be_empty=may_be_empty)) is None:
            return None
        if sight.leading and has_instructions:
            return None
        counts, fresh = dict[int, int](), dict[bytes, int]()
        if self.counter.exact:
            counts, fresh = self.store.read(lambda tx: self._counts(tx, sight))
        since = sight.cached.since
        return LoadedContext(sight, since.summary if since else None, counts, fresh)

    def keep_unsent(self, channel: Channel, unsent: UnsentRequest | None) -> None:
        """Keep a request for the next load of its channel, or remove the one before it."""
        if unsent is None:
            return self._unsent.remove(channel)
        at, cached = unsent.snapshot.tip, unsent.snapshot.cached
        if not cached.number:  # nothing was sent on the channel
            if at.branch != at.tree or channel.agent != channel.author:  # it may begin with the rows of another one
                return self._unsent.remove(channel)
            self._cache.put(channel, cached)
        return self._unsent.put(channel, unsent)

    def _load_unsent(self, channel: Channel, has_instructions: bool) -> LoadedContext | None:
        """Load what followed the last request of a channel, if that was not sent; None if the full load is needed."""
        unsent = self._unsent.get_last(channel)
        if unsent is None or self.skip_summarized or unsent.has_instructions != has_instructions:
            return None
        if self._cache.get_last(channel) is not unsent.snapshot.cached:  # another request was stored meanwhile
            return None
        if (sight := load_appended(self.store, channel, unsent.snapshot)) is None:
            return None
        new = replace(sight, log=sight.log[len(unsent.snapshot.log) :])
        if self.counter.exact:
            counts, fresh = self.store.read(lambda tx: self._counts(tx, new))
        else:
            counts, fresh = {where: self.counter.count_message(message) for where, message in new.log}, {}
        if not unsent.reads_all(sight, counts, self.provider.model.window):
            return None
        return LoadedContext(sight, unsent.summary, counts, {**unsent.new_counts, **fresh}, unsent)

    def _load_snapshot(
        self,
        channel: Channel,
        runs: str,
        edit: tuple[Reference, Message] | None,
        rewind: Reference | None,
        has_instructions: bool,
    ) -> LoadedContext:
        room, read, counter, agent = self.provider.model.window, 0, self.counter, channel.author
        counted: dict[int, int] = {}

        def seen_tokens(where: int, message: Message) -> int:
            """Return the tokens that a message may take, as far as known before all messages are read."""
            if message.redacted or message.status != "sent" or message.audience not in (None, agent):
                return 0
            if message.author in (None, agent) or message.role == "user":
                tokens = counted[where] = derive(message, counter.count_message)
                return tokens
            return counter.count_text(message.text) if message.role == "assistant" else 0

        def enough(block: Sequence[tuple[int, Message]]) -> bool:
            nonlocal read
            read += sum([seen_tokens(where, message) for where, message in block])
            return read > room

        def work(tx: Transaction) -> LoadedContext:
            nonlocal read
            read, upto = 0, None
            counted.clear()
            if edit is not None or rewind is not None:
                at = load_tip(tx, channel.conversation)
                where = find_message(
                    tx, channel.conversation, at, edit[0] if edit is not None else cast(Reference, rewind)
                )
                upto = where.seq - 1 if edit is not None else where.seq
            since = None
            if self.skip_summarized and may_have_summaries(at := load_tip(tx, channel.conversation)):
                since = load_latest_summary(tx, channel.author, at, counter.count_system)
            sight = load_snapshot(
                tx,
                self._cache,
                channel,
                window=room,
                runs=runs,
                is_full=enough,
                until=upto,
                since=since,
                has_instructions=has_instructions,
            )
            if self.calibrations is None:
                self.calibrations = load_calibrations(tx, self.provider.model_id)
            counts, fresh = self._counts(tx, sight, counted)
            summary = None
            if may_have_summaries(sight.tip):
                summary = load_latest_summary(tx, channel.author, sight.tip, counter.count_system)
            if summary is not None and summary.anchor & SEQ_MASK <= sight.state.edge:
                summary = None  # the context was cleared after it
            if self.skip_summarized and summary is not None:
                summary = summary._replace(waits=False)
            return LoadedContext(sight, summary, counts, fresh)

        seen = self.store.read(work)
        return seen if edit is None else seen.with_appended([edit[1]])

    def load_other_channel_state(self, channel: Channel, sight: ChannelSnapshot) -> ChannelState | None:
        """Return the state of the channel that this agent used last, if it never used this one."""
        if sight.state.requests or sight.state.layout:
            return None
        channels = self.store.read(lambda tx: ledger.load_channels(tx, channel.conversation))
        others = [
            standing for _, other, standing, _ in channels if other.author == channel.author and standing.requests
        ]
        return max(others, key=lambda standing: standing.seen, default=None)

    def _counts(
        self, tx: Transaction, sight: ChannelSnapshot, counted: Mapping[int, int] = {}
    ) -> tuple[Mapping[int, int], dict[bytes, int]]:
        """Return the tokens of new messages by place, and newly counted tokens by content hash.

        `counted` are counts made while reading. Estimates are not cached: computing one is cheaper than looking it up.
        """
        if not self.counter.exact or not sight.log:
            return counted, {}
        names = {where: hash_content(message) for where, message in sight.log}
        found = load_counts(tx, self.counter.tokenizer, list(names.values()))
        fresh: dict[bytes, int] = {}
        for where, message in sight.log:
            if (name := names[where]) not in found:
                found[name] = fresh[name] = counted.get(where) or self.counter.count_message(message)
        return {where: found[name] for where, name in names.items()}, fresh

    def load_earlier(self, sight: ChannelSnapshot, upto: int, tokens: int) -> Mapping[int, Message]:
        """Return the latest messages after the context edge and up to a seq, by place, and of people so many tokens."""
        edge, count = sight.state.edge, self.counter.count_text

        def work(tx: Transaction) -> Mapping[int, Message]:
            found, wanted = load_latest(tx, sight.tip, edge, upto), tokens
            block = {where: message for where, message in found.items() if message.role == "user"}
            last = min([where & SEQ_MASK for where in found], default=0) - 1
            while True:
                wanted -= sum([derive(message, _count_own_text, count) for message in block.values()])
                if wanted <= 0 or last <= edge:
                    return found
                block = load_latest(tx, sight.tip, edge, last, "user")
                found |= block
                last = min([where & SEQ_MASK for where in block], default=0) - 1

        return self.store.read(work)

    def fetch_messages(self, places: Sequence[int], also: Sequence[Message]) -> FetchedMessages:
        """Return messages by place, and the bytes of their media and of the media of `also`."""

        def work(tx: Transaction) -> FetchedMessages:
            messages = load_messages_by_place(tx, places)
            names = list_blob_names([*messages.values(), *also])
            blobs: dict[str, bytes] = {}
            for name in names:
                row = tx.row("SELECT data FROM main.blob WHERE name = ?", name)
                if row is not None:
                    blobs[name] = bytes(row[0])
            return FetchedMessages(messages, blobs)

        return self.store.read(work)


def _count_own_text(message: Message, count: Callable[[str], int]) -> int:
    return count(message.text)


def may_begin_turn(sight: ChannelSnapshot, channel: Channel, turn: str) -> bool:
    """Return True if fragments of a turn may be due: it is another turn than that of the last request, or, if no
    executor names it, there is input that may open one.
    """
    if turn:
        return turn != sight.state.turn_fragments
    messages = [*(message for _, message in sight.log), *sight.revealed.values()]
    return any(message.role == "user" or message.is_addressed_to(channel.author) for message in messages)


def load_turn_input(tx: Transaction, channel: Channel, opening: int = 0) -> tuple[Message, ...]:
    """Return the messages that opened a turn: that with the seq `opening`, by default the last one of a user, and the
    user's messages before it that have no answer either.
    """
    at = find_tip(tx, channel.conversation, False)
    if at is None:
        return ()
    edge = load_context_start(tx, at.branch, at.seq)
    if not opening:
        said = [
            message for message in load_latest(tx, at, edge, at.seq, "user").values() if _is_input(message, channel)
        ]
        opening = max([message.seq for message in said], default=0)
    before = sorted(load_latest(tx, at, edge, opening).values(), key=lambda message: -message.seq) if opening else []
    found = before[:1]
    for message in before[1:]:
        if message.role not in ("user", "system"):
            break
        found += [message] if message.role == "user" and _is_input(message, channel) else []
    return tuple(reversed(found))


def _is_input(message: Message, channel: Channel) -> bool:
    is_seen = message.audience is None or message.audience in channel.audiences
    return is_seen and message.status == "sent" and not message.redacted
