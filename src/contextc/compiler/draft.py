"""The content of one model call: a sealed prefix, and a tail that the passes work on.

A pass takes a draft and returns a new one. It changes the tail only. If the prefix cannot be extended, a pass sets
`epoch` to the reason, and `kept` to the items of the prefix that the new epoch keeps.

The last pass, `verify_draft`, checks the invariants and changes nothing. A violation is a defect of contextc and is
raised before anything is sent. It does not use `assert`, which `python -O` removes.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import accumulate, pairwise
from operator import is_
from typing import Literal, NamedTuple, TypeAlias, TypedDict, cast

from msgspec import Struct
from msgspec.structs import replace

from contextc._json import JSONObject
from contextc.compiler.history import FETCH_TOOL, result_id
from contextc.compiler.ledger import Summary, join_messages, split_chunk
from contextc.compiler.prompt_cache import CacheLifetime
from contextc.errors import InternalError
from contextc.formats.base import (
    ConversionNote,
    EncodedSegment,
    Formatter,
    HeadChange,
    note_for_repair,
    split_segments,
)
from contextc.formats.message_preparation import (
    ReasoningPolicy,
    apply_policy_to_message,
    contains_reasoning,
    describe_media,
)
from contextc.formats.request_settings import NativeContext
from contextc.messages import (
    SYSTEM_CONTEXT,
    AnyPart,
    Media,
    Message,
    ProviderBlock,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
    escape_markers,
    may_be_text,
)
from contextc.models.tokens import TokenCounter
from contextc.prompts import SEPARATOR, Prompt, RenderedFragment
from contextc.providers import Provider
from contextc.store.ledger_schema import REMOVED, ChannelState, Item, LedgerRow, StoredRow
from contextc.store.message_log import SEQ_MASK

# ── options and budget ────────────────────────────────────────────────────────────────────────────────────────────────
# The options of a compiler, and the token budget of a request.


TrimStrategy: TypeAlias = Literal["chunked", "oldest"]
TrimPolicy: TypeAlias = Literal["", "sliding_window"]
PolicyArgument: TypeAlias = Literal["", "default", "sliding_window"]
"""A policy as callers name it: `default` is the empty one."""


class CompilerOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of a compiler."""

    strategy: TrimStrategy = "chunked"
    high: float = 1.0
    low: float = 0.7
    """Above `high` of the available tokens, the context is trimmed to `low` of them."""
    decay: bool = True
    recent: float = 0.25
    """Share of the available tokens, at the end, in which results are not replaced by stubs."""
    oversized: float = 0.25
    """A result above this share of the available tokens is shortened to its head and tail."""
    failed: Literal["exclude", "annotate"] = "exclude"
    placement: Literal["tail", "head"] = "tail"
    refresh: int = 20_000
    """At the start of a turn, a dynamic fragment is sent again if its latest copy is more tokens back than this."""
    static_change: Literal["update", "new session"] = "update"
    """`update`: changed instructions are stated in a message, where the provider has such messages and an epoch would
    cost more. `new session`: an epoch begins, and a session, too.
    """
    keep_media: int = 2
    keep_words: float = 0.15
    """Share of the window, or of `native.compact_at`, for earlier messages of people, kept word for word when their
    turns are cut away.
    """
    keep_index: float = 0.03
    """Share of the window for an index of what was cut away: paths, ids, figures, names, each with its message."""
    keep_summarized: int = 20_000
    """Tokens of messages that stay beside the summary that covers them, the latest ones, until their room is needed."""
    fetch: bool | Literal["always"] = True
    """True if `fetch_result` and `search_history` are added to the tools of the caller; `always` if they are offered
    also without any, to models that are known to accept tools.
    """
    summary_share: float = 0.05
    """Share of the available tokens that a summary may take, at least 1,000 tokens."""
    reasoning: ReasoningPolicy = "native"
    reserve: Literal["capped", "full"] = "capped"
    """`full` reserves the whole output: the requested length, else the model's maximum."""
    removed_tools: Literal["drop", "keep"] | None = None
    """The treatment of a tool that is no longer passed, where the provider cannot remove it within an epoch. `drop`: an
    epoch begins. `keep`: it stays declared, and the caller answers a call of it with an error. None: agents keep it,
    because they answer calls so; a compiler drops it.
    """
    cache: CacheLifetime = "auto"
    """The lifetime that the provider's prompt cache is asked for. `auto`: its default. `off`: no cache breakpoints, and
    no key.
    """
    cache_diagnostics: bool = False
    """True if requests ask why the prompt cache missed, where the provider says so for free."""
    policy: PolicyArgument = ""
    """`sliding_window` drops single messages from the front, reserves the whole output, joins reasoning into the text,
    and uses no summaries.
    """
    native: NativeContext | None = None
    """The context management that is left to the provider. Trimming stays, for what still does not fit."""

    @property
    def slides(self) -> bool:
        """True if the policy is `sliding_window`."""
        return self.policy == "sliding_window"

    @property
    def reasoning_policy(self) -> ReasoningPolicy:
        """The reasoning policy that applies: the policy `sliding_window` has one of its own."""
        return "inline" if self.slides else self.reasoning


class CompilerOptionArguments(TypedDict, total=False):
    """The options of a compiler as keyword arguments. `CompilerOptions` describes them."""

    strategy: TrimStrategy
    high: float
    low: float
    decay: bool
    recent: float
    oversized: float
    failed: Literal["exclude", "annotate"]
    placement: Literal["tail", "head"]
    refresh: int
    static_change: Literal["update", "new session"]
    keep_media: int
    keep_words: float
    keep_index: float
    keep_summarized: int
    fetch: bool | Literal["always"]
    summary_share: float
    reasoning: ReasoningPolicy
    reserve: Literal["capped", "full"]
    removed_tools: Literal["drop", "keep"] | None
    cache: CacheLifetime
    cache_diagnostics: bool
    policy: PolicyArgument
    native: NativeContext | None


class Budget(Struct, frozen=True, kw_only=True):
    """The token budget of a request. `used` are the tokens of the messages. `measured` is True if they are based on a
    provider's own figure.
    """

    window: int
    system: int = 0
    tools: int = 0
    reserve: int = 0
    margin: int = 0
    limit: int | None = None
    used: int = 0
    exact: bool = False
    measured: bool = False
    overhead: int = 0
    """Tokens that the provider counts on this channel beyond what calibration explains; part of `used`."""
    wanted: int = 0
    """Tokens of the messages before they were trimmed, if they were."""

    @property
    def available(self) -> int:
        """Tokens available for messages."""
        return max(0, (self.limit or self.window) - self.system - self.tools - self.reserve - self.margin)

    @property
    def room(self) -> int:
        """Tokens available for the whole input: system prompt, tools and messages."""
        return max(0, (self.limit or self.window) - self.reserve - self.margin)

    @property
    def input(self) -> int:
        """Tokens of the whole request."""
        return self.system + self.tools + self.used

    @property
    def messages(self) -> int:
        """Tokens of the messages, without the overhead."""
        return self.used - min(self.overhead, self.used)

    def with_total(self, total: int) -> "Budget":
        """Return the budget of a request that takes `total` tokens by the provider's own figure.

        Every part gets its share of the difference to our own count, except for the overhead, which the provider's
        figure has set.
        """
        overhead = min(self.overhead, total)
        system, tools, used = distribute(total - overhead, (self.system, self.tools, max(0, self.used - overhead)))
        return replace(self, system=system, tools=tools, used=used + overhead, measured=True)

    def oversized(self, options: CompilerOptions) -> int:
        """Return the tokens above which a result or a text file is shortened. A reserve counts for at most half of the
        window.
        """
        available = self.available
        if options.slides or options.reserve == "full":
            available = max(available, ((self.limit or self.window) - self.system - self.tools) // 2)
        return int(available * options.oversized)

    @property
    def share(self) -> float:
        """Used share of the available tokens; 1.0 is full."""
        return self.used / self.available if self.available else 1.0


def distribute(total: int, counted: Sequence[int]) -> list[int]:
    """Divide `total` in proportion to `counted`. The parts add up to `total`."""
    whole = sum(counted)
    if not whole:
        return [*[0] * (len(counted) - 1), total] if counted else []
    ends = [total * end // whole for end in accumulate(counted, initial=0)]
    return [end - start for start, end in pairwise(ends)]


CacheMark: TypeAlias = Literal["head", "previous", "end"]
"""Position of a cache breakpoint: after the head, after the end of the previous request, or at the end."""


class DraftEntry(NamedTuple):
    """An item, and the message rendered for it."""

    item: Item
    message: Message


class LeftOutMessage(Struct, frozen=True):
    """A message of the log that is left out, and why."""

    place: int
    why: str


class Draft(Struct, frozen=True, kw_only=True):
    """The content of one model call while it is compiled."""

    provider: Provider
    counter: TokenCounter
    options: CompilerOptions
    agent: str
    run: str | None = None
    running: frozenset[str] | None = None
    audiences: frozenset[str]
    resume: bool = False
    prompt: Prompt
    turn_fragments: tuple[RenderedFragment, ...] = ()
    """The fragments of the turn that may begin with this request."""
    turn: str = ""
    """The turn, as an executor names it."""
    fetchable: bool = True
    searchable: bool = True

    rows: Sequence[StoredRow]
    standing: ChannelState
    log: tuple[tuple[int, Message], ...]
    """Messages that were not sent yet, with their places; the model's own last reply comes first."""
    unread_until: int = 0
    """The seq up to which the log was not read, because it is too far back to fit."""
    turn_opening: int = 0
    """Place of the message that opened the turn, if the log contains it although it is in the unread part."""
    load_messages: Callable[[Sequence[int]], Mapping[int, Message]] = lambda places: {}
    """Loads messages by place. Used only where an epoch begins."""
    load_earlier: Callable[[int, int], Mapping[int, Message]] = lambda upto, tokens: {}
    """Loads the latest messages up to a seq, by place, of people so many tokens. Used only where an epoch begins."""
    revealed: Mapping[int, Message] = {}
    """Messages that were hidden when they arrived, by place."""
    text_files: Mapping[str, bytes] = {}
    """The bytes of files in the log that may be text, by blob name."""
    repeated: str = ""
    """The value with which this request continues the reply of the one before it: that is repeated, without the reply.
    """
    for_summary: bool = False
    """True if it is read for a summary, also what the provider's own compaction stands for."""
    compaction: int = 0
    """Place of the provider's own compaction, if this request is the first without what it stands for."""
    token_counts: Mapping[int, int] = {}
    """Known token counts of messages in the log, by place."""
    unanswered_calls: Mapping[str, int] = {}
    """Calls whose results were removed while the calls remain, with the places of their messages."""
    pins: frozenset[int] = frozenset()
    summary: Summary | None = None
    compacted: bool = False
    """True if the summary is newer than the one that was sent, and must be used now."""
    factor: float = 1.0
    headroom: int = 0
    """Tokens that must be left; otherwise the context is trimmed."""

    breakpoints_left: int = 0
    """Number of cache breakpoints that may still be set: the model's maximum minus those of the caller."""
    ttl: str | None = None
    """The lifetime of the cache breakpoints that are set: "" for the provider's default, None to set none."""
    reencode: bool = False
    """True if the encoder has changed, so no encoded row can be reused."""
    changes: tuple[DraftEntry, ...] = ()
    """Changes of instructions, tools or effort that this request has to state."""
    renews_head: bool = True
    """True if an epoch that begins with this request has all tools and settings in its head, and states no changes."""
    tail: tuple[DraftEntry, ...] = ()
    new: int = 0
    """Number of entries of the tail that are input, without the agent's own messages and dynamic blocks."""
    left: tuple[LeftOutMessage, ...] = ()
    remarks: tuple[str, ...] = ()
    budget: Budget
    marks: tuple[CacheMark, ...] = ()
    epoch: str = ""
    kept: tuple[Item, ...] | None = None
    changed: int = -1
    """Index in `kept` from which the prefix differs from the previous one; -1 if not determined yet."""

    @property
    def held_places(self) -> frozenset[int]:
        """Places of the messages in the tail that the resumed session has already."""
        held = self.standing.held
        known = [item.place for item in self.standing.produced]
        if held:
            known += [item.place for item, _ in self.tail if item.place and item.place & SEQ_MASK <= held]
        return frozenset(known)

    @property
    def waiting_summary(self) -> Summary | None:
        """The summary that waited until the context is trimmed, if this request uses it."""
        summary, kept = self.summary, self.kept or ()
        if summary is None or not summary.waits:
            return None
        return summary if any(item.kind == "summary" and item.place == summary.anchor for item in kept) else None

    @property
    def oversized(self) -> int:
        """Tokens above which a result or a text file is shortened."""
        return self.budget.oversized(self.options)


def verify_draft(draft: Draft) -> Draft:
    _check_once([entry.item for entry in draft.tail])
    if draft.kept is not None:
        _check_once(draft.kept)
    budget = draft.budget
    if budget.used > budget.available and not draft.resume:
        raise InternalError(f"Draft: its messages must fit in {budget.available:,} tokens, got {budget.used:,}")
    return draft


def _check_once(items: Sequence[Item]) -> None:
    shown = [(item.place, item.only) for item in items if item.place and item.kind == "message"]
    if len(shown) != len(set(shown)):
        raise InternalError("Draft: each message must occur once, got a duplicate")


# ── items as rows ─────────────────────────────────────────────────────────────────────────────────────────────────────
# Encode a draft into ledger rows, one segment at a time, and join them to the sealed rows.
#
# Without a new epoch only the tail is encoded. A new epoch reuses its unchanged rows and encodes the others again.
# Rendering an item and its message as the message that a model gets is deterministic: the item determines the form.


REMOVED_TEXT = "[This message was removed.]"
RESULT_CONTENT_FIELDS = ("content", "output", "response")
"""The fields of a result that have its content, in any format."""


def render_item(item: Item, message: Message | None, *, fetchable: bool = True) -> Message:
    """Return the message for an item: its text, or its stored message in the item's role and form."""
    if message is None or item.kind != "message":
        return Message(role=item.role, parts=(Text(item.text),))
    if item.verbatim and not message.redacted:
        return message
    if message.redacted:
        return replace(message, role=item.role, parts=(Text(REMOVED_TEXT),) if item.role != "tool" else ())
    if (
        item.role == message.role
        and not (item.prefix or item.limit or item.decayed or item.bare or item.blind or item.failed or item.only)
        and not (item.inline or item.calls)
        and (message.role != "user" or needs_no_escaping(message))
    ):
        return message
    parts = message.parts
    if message.role == "assistant" and (item.role != "assistant" or item.prefix):  # a prefix marks another agent
        parts = tuple([part for part in parts if type(part) is Text or type(part) is Media])
    if item.calls:
        parts = _reduce_calls(parts, item, message.seq)
    if item.inline or item.bare or item.calls == "none":
        policy: ReasoningPolicy = "inline" if item.inline and item.calls != "none" else "drop"
        message = apply_policy_to_message(replace(message, parts=parts), policy)
        parts = message.parts
    if (item.decayed or item.limit) and not item.calls:
        results = 0
        shorter: list[AnyPart] = []
        for part in parts:
            if type(part) is ToolResult:
                results += 1
                part = _shorten_result(part, item, result_id(message.seq, results), fetchable)
            elif type(part) is Text and message.trigger:
                name = result_id(message.seq, 1) if fetchable else ""
                part = replace(part, text=shorten_text(part.text, item.limit, name))
            shorter.append(part)
        parts = tuple(shorter)
    if item.only:
        parts = select_results(parts, item.only)
    if item.blind:
        parts = tuple([_described(part, item.texts) for part in parts])
    if message.role == "user" or (item.role == "user" and message.role == "assistant"):
        parts = tuple([replace(part, text=escape_markers(part.text)) if type(part) is Text else part for part in parts])
    if item.failed:
        why = message.error or ("it was cancelled" if message.status == "cancelled" else "an error")
        parts = (*parts, Text(f"\n[This message broke off: {why}]"))
    if item.prefix:
        parts = _prefixed(parts, item.prefix)
    return replace(message, role=item.role, parts=parts)


def _reduce_calls(parts: tuple[AnyPart, ...], item: Item, seq: int) -> tuple[AnyPart, ...]:
    """Return the parts with calls without their arguments, and results as their ids; or without calls."""
    if item.calls == "none":
        return tuple([part for part in parts if type(part) is not ToolCall])
    shorter, results = list[AnyPart](), 0
    for part in parts:
        if type(part) is ToolCall and not part.extra:  # a provider may have signed it
            part = replace(part, arguments={}, raw=None, malformed=False)
        elif type(part) is ToolResult:
            results += 1
            part = _with_content(part, f"[{result_id(seq, results)}]")
        shorter.append(part)
    return tuple(shorter)


def render_change(item: Item, formatter: Formatter) -> Message:
    """Return the message that states a change of tools or effort."""
    spell = formatter.name_codec.encode_name
    defined = {str(each.get("name") or each.get("type") or "") for each in item.definitions}
    removed = [name for name, value in item.tools.items() if value.startswith(REMOVED)]
    returned = [name for name in item.tools if name not in removed and spell(name) not in defined]
    change = HeadChange(
        added=item.definitions,
        returned=tuple(map(spell, returned)),
        removed=tuple(map(spell, removed)),
        effort=item.effort,
    )
    encoded = formatter.encode_change(change, item.features)
    return encoded.message if encoded is not None else Message(role="system", parts=())


def needs_no_escaping(message: Message) -> bool:
    """Return True if no text of a message needs escaping."""
    return all([type(part) is not Text or escape_markers(part.text) == part.text for part in message.parts])


def _prefixed(parts: tuple[AnyPart, ...], prefix: str) -> tuple[AnyPart, ...]:
    for index, part in enumerate(parts):
        if type(part) is Text:
            return (*parts[:index], replace(part, text=prefix + part.text), *parts[index + 1 :])
    return (Text(prefix.rstrip()), *parts)


def _described(part: AnyPart, texts: bool) -> AnyPart:
    """Return a part with its media described. With `texts`, `write_text_files` decides about what may be text."""
    if type(part) is Media:
        return part if texts and may_be_text(part) else Text(describe_media(part))
    if isinstance(part, ToolResult) and not isinstance(part.content, str):
        content = tuple([cast(Text | Media, _described(each, texts)) for each in part.content])
        return replace(part, content=content)
    return part


def write_text_files(
    item: Item, message: Message, formatter: Formatter, blobs: Mapping[str, bytes], *, documents: bool, fetchable: bool
) -> tuple[Message, list[ConversionNote]]:
    """Return the rendered message of an item with its text files as text, and notes on them."""
    if not item.texts or message.redacted:
        return message, []

    def shorten(text: str, number: int) -> str:
        return shorten_text(text, item.limit, result_id(message.seq, number) if fetchable and number else "")

    return formatter.with_text_files(
        message, blobs=blobs, documents=documents, describe_others=item.blind, shorten=shorten
    )


def _shorten_result(result: ToolResult, item: Item, name: str, fetchable: bool) -> ToolResult:
    text = result.text
    if item.decayed:
        how = f' Call {FETCH_TOOL.name} with id "{name}" to read it.' if fetchable else ""
        line = (
            f"[The result of {result.name}, {len(text):,} characters{_media(result)}, was left out to save room.{how}]"
        )
        return result if type(result.content) is str and len(text) <= len(line) else _with_content(result, line)
    if len(text) <= item.limit:
        return result
    short = shorten_text(text, item.limit, name if fetchable else "")
    if type(result.content) is str:
        return _with_content(result, short)
    return _with_content(result, (Text(short), *(part for part in result.content if type(part) is Media)))


def _with_content(result: ToolResult, content: str | tuple[Text | Media, ...]) -> ToolResult:
    """Return a result with other content, without the provider's own form of the content that it had."""
    extra = {provider: _without_result_content(own) for provider, own in (result.extra or {}).items()}
    return replace(result, content=content, extra={name: own for name, own in extra.items() if own} or None)


def _without_result_content(fields: JSONObject) -> JSONObject:
    return {
        name: _without_result_content(cast(JSONObject, value)) if isinstance(value, dict) else value
        for name, value in fields.items()
        if name not in RESULT_CONTENT_FIELDS
    }


def shorten_text(text: str, limit: int, name: str) -> str:
    """Return the head and the tail of a text above the limit. `name` is the id to fetch the rest with, if it can be."""
    if not limit or len(text) <= limit:
        return text
    head, tail = limit * 3 // 4, limit // 4
    gone = len(text) - head - tail
    how = f' Call {FETCH_TOOL.name} with id "{name}" and offset {head} to read on.' if name else ""
    return f"{text[:head]}\n[… {gone:,} characters were left out.{how} …]\n{text[-tail:]}"


def _media(result: ToolResult) -> str:
    shown = [] if type(result.content) is str else [part.kind for part in result.content if type(part) is Media]
    return f" and {len(shown)} {shown[0]}{'s' if len(shown) > 1 else ''}" if shown else ""


def apply_reasoning_policy(item: Item, message: Message, policy: ReasoningPolicy) -> Item:
    """Return the item with the reasoning policy applied."""
    if policy == "native" or item.role != "assistant" or not contains_reasoning(message):
        return item
    return replace(item, inline=policy == "inline", bare=policy == "drop", signed=False)


def select_results(parts: tuple[AnyPart, ...], ids: Collection[str]) -> tuple[AnyPart, ...]:
    """Return the parts, restricted to results for these call ids."""
    return tuple([part for part in parts if type(part) is not ToolResult or part.call_id in ids])


def list_media(message: Message) -> list[Media]:
    """Return the media of a message, including those in tool results."""
    found: list[Media] = []
    for part in message.parts:
        if type(part) is Media:
            found.append(part)
        elif type(part) is ToolResult and type(part.content) is not str:
            found += [each for each in part.content if type(each) is Media]
    return found


def has_signed_reasoning(message: Message, provider: str) -> bool:
    """Return True if a message has reasoning that this provider signed and expects back unchanged."""
    for part in message.parts:
        if type(part) is Reasoning and part.provider == provider and (part.signature or part.data):
            return True
    return False


def read_compaction(message: Message, formatter: Formatter) -> str:
    """Return the feature that the compaction in a reply needs, by this format's provider; "" if there is none."""
    found = [
        formatter.read_compaction(part.data)
        for part in message.parts
        if type(part) is ProviderBlock and part.provider == formatter.provider
    ]
    return next((feature for feature in found if feature), "")


REPLIES = ("assistant", "model")
NO_PLACES: frozenset[int] = frozenset()
HELD = "held"  # role of a placeholder for the session's content, so that nothing is merged into it


# ── rows ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


class NewRow(NamedTuple):
    """A row that is not stored yet, with its wire messages."""

    row: LedgerRow
    chunk: bytes
    messages: list[JSONObject]


class FetchedMessages(NamedTuple):
    """Messages by place, and the bytes of their media by blob name."""

    messages: Mapping[int, Message]
    blobs: Mapping[str, bytes]


FetchMessages: TypeAlias = Callable[[Sequence[int], Sequence[Message]], FetchedMessages]
"""Loads messages by place, and the bytes of their media and of the media of the given messages."""


class AssembledRows(Struct, frozen=True):
    """The rows that a request adds to the ledger."""

    new_rows: tuple[NewRow, ...]
    order: tuple[StoredRow | int, ...] | None = None
    """All rows of a new epoch, in order; an integer is an index into `new_rows`.

    None if `new_rows` follows the sealed rows.
    """
    notes: tuple[ConversionNote, ...] = ()


class _RowEncoder:
    """Encodes slices of entries one after the other, and joins each to the one before."""

    def __init__(
        self,
        formatter: Formatter,
        settings: JSONObject,
        used: set[str],
        end: str,
        ending: Callable[[], list[JSONObject]],
        *,
        draft: Draft,
    ) -> None:
        self.formatter, self.settings, self.fetchable = formatter, settings, draft.fetchable
        self.documents = "document" in draft.provider.model.media
        self.ours = draft.provider.model.cache_points > 0 and (draft.ttl is not None or draft.options.cache == "off")
        """True if contextc decides on the cache breakpoints, so those in the messages are removed."""
        self.used, self.end, self.ending = used, end, ending
        self.notes: list[ConversionNote] = []

    def add(
        self, entries: Sequence[DraftEntry], blobs: Mapping[str, bytes], held: frozenset[int] = NO_PLACES
    ) -> NewRow:
        """Encode entries as one row. `held` are places of messages that a session has already: part of the row, but not
        sent.
        """
        formatter, spelled = self.formatter, self.formatter.name_codec.encode_id
        paired = formatter.pair_calls(
            merge_adjacent_fragments(self._with_text_files(entries, blobs)), used_ids=self.used
        )
        messages = paired.messages
        ids = [spelled(part.id) for message in messages for part in message.parts if type(part) is ToolCall]
        open_calls: dict[str, str] = {}
        for repair in paired.repairs:
            if repair.kind == "synthetic":
                open_calls[repair.call_id] = _tool_name(messages, repair.call_id)
            if (note := note_for_repair(repair)) is not None:
                self.notes.append(note)
        known = [message for item, message in entries if item.place in held] if held else []
        if known:
            messages = _without(messages, known)
        encoded = [formatter.encode(segment, blobs=blobs) for segment in split_segments(messages)]
        for each in encoded:
            self.notes += each.notes
        drop, wire = self._joined(encoded)
        wire = formatter.apply_settings(wire, self.settings)
        if self.ours:
            wire = formatter.without_cache_breakpoints(wire)
        if wire:
            last = wire[-1]
            self.end = str(last.get("role", last.get("type", "")))
            self.ending = lambda: wire
        items = tuple([item for item, _ in entries])
        row = LedgerRow(
            items, sum([item.tokens for item in items]), drop, tuple(ids), open_calls, self.end, bool(known)
        )
        return NewRow(row, join_messages(wire), wire)

    def _with_text_files(self, entries: Sequence[DraftEntry], blobs: Mapping[str, bytes]) -> list[DraftEntry]:
        if not any([item.texts for item, _ in entries]):
            return [*entries]
        found: list[DraftEntry] = []
        for item, message in entries:
            written, notes = write_text_files(
                item, message, self.formatter, blobs, documents=self.documents, fetchable=self.fetchable
            )
            found.append(DraftEntry(item, written))
            self.notes += notes
        return found

    def _joined(self, encoded: Sequence[EncodedSegment]) -> tuple[int, list[JSONObject]]:
        """Return the number of preceding wire messages that are replaced, and the wire messages that follow."""
        formatter = self.formatter
        first = next((each.messages[0] for each in encoded if each.messages), None)
        if first is None:
            return 0, []
        if not formatter.merges_neighbours:
            return 0, formatter.join(encoded)
        if self.end and self.end not in REPLIES and first.get("role") in REPLIES:
            return 0, formatter.join(encoded, [{"role": self.end}])[1:]
        before = self.ending() if self.end else []
        wire = formatter.join(encoded, before)
        same = next((index for index, each in enumerate(before) if wire[index] is not each), len(before))
        return len(before) - same, wire[same:]


def merge_adjacent_fragments(entries: Sequence[DraftEntry]) -> list[Message]:
    """Return the messages of entries, with adjacent fragments merged into one message."""
    messages: list[Message] = []
    before = None
    for item, message in entries:
        if item.fragment and before is not None and before.fragment and before.role == item.role:
            text = f"{messages[-1].text}{SEPARATOR}{item.text.removeprefix(SYSTEM_CONTEXT)}"
            messages[-1] = replace(messages[-1], parts=(Text(text),))
        else:
            messages.append(message)
        before = item
    return messages


def _without(messages: Iterable[Message], held: Sequence[Message]) -> list[Message]:
    """Return the paired messages without the held ones, and without the results in them."""
    uids = {message.uid for message in held}
    ids = {result.call_id for message in held for result in message.tool_results}
    found: list[Message] = []
    for message in messages:
        if message.role == "tool" and ids:
            if rest := tuple(
                [part for part in message.parts if type(part) is not ToolResult or part.call_id not in ids]
            ):
                found.append(replace(message, parts=rest))
        elif message.uid not in uids:
            found.append(message)
    return found


def _tool_name(messages: Iterable[Message], call_id: str) -> str:
    return next((call.name for message in messages for call in message.tool_calls if call.id == call_id), "")


def slice_at_replies(entries: Sequence[DraftEntry]) -> Iterator[Sequence[DraftEntry]]:
    """Yield the entries in slices that start at each reply of the model."""
    start = 0
    for index, entry in enumerate(entries):
        if index > start and entry.item.role == "assistant":
            yield entries[start:index]
            start = index
    if start < len(entries):
        yield entries[start:]


def assemble_rows(
    draft: Draft, formatter: Formatter, used: set[str], settings: JSONObject, fetch: FetchMessages
) -> AssembledRows:
    """Return the rows of a draft. `used` are the call ids in the sealed rows."""
    if draft.kept is None:
        return _tail(draft, formatter, used, settings, fetch)
    return _epoch(draft, formatter, settings, fetch)


def add_to_last_row(
    draft: Draft, formatter: Formatter, settings: JSONObject, last: NewRow, entries: Sequence[DraftEntry]
) -> tuple[NewRow, list[ConversionNote]] | None:
    """Return the last row of a request with messages of people after it, which its segment continues with, and notes
    on them. None if the whole row has to be encoded again.
    """
    if not entries:
        return last, []
    rows = _RowEncoder(formatter, settings, set(), last.row.end, lambda: last.messages, draft=draft)
    row, chunk, messages = rows.add(entries, {})
    if not messages or row.drop > len(last.messages):
        return None
    whole = [*last.messages[: len(last.messages) - row.drop], *messages]
    chunk = join_messages(whole) if row.drop else b"%b,%b" % (last.chunk, chunk)
    row = replace(last.row, items=last.row.items + row.items, tokens=last.row.tokens + row.tokens, end=row.end)
    return NewRow(row, chunk, whole), rows.notes


def _tail(
    draft: Draft, formatter: Formatter, used: set[str], settings: JSONObject, fetch: FetchMessages
) -> AssembledRows:
    sealed = draft.rows
    rows = _RowEncoder(
        formatter,
        settings,
        used,
        _end(sealed),
        lambda: _ending(sealed),
        draft=draft,
    )
    held = NO_PLACES
    if draft.resume:
        rows.end, rows.ending = HELD, lambda: [{"role": HELD}]
        held = draft.held_places
    blobs: Mapping[str, bytes] = {}
    if any([item.media or item.texts for item, _ in draft.tail]):
        blobs = fetch((), [message for _, message in draft.tail]).blobs
    new: list[NewRow] = []
    for entries in slice_at_replies(draft.tail):
        if len(new) == 1:  # copy: `used` is shared with the cache entry of the channel
            rows.used = {*used, *new[0].row.ids}
        new.append(rows.add(entries, blobs, held))
        if len(new) > 1:
            rows.used.update(new[-1].row.ids)
    return AssembledRows(tuple(new), None, tuple(rows.notes))


def _epoch(draft: Draft, formatter: Formatter, settings: JSONObject, fetch: FetchMessages) -> AssembledRows:
    items = draft.kept or ()
    whole = {
        id(each.row.items[0]): each
        for each in draft.rows
        if each.row.items and each.chunk and not each.row.drop and not each.row.held and not draft.reencode
    }
    plan: list[StoredRow | Sequence[Item]] = []
    end = ""
    for part in _item_slices(items):
        found = whole.get(id(part[0]))
        if found is not None and _is_same(found.row.items, part) and _may_follow(found, end, first=not plan):
            plan.append(found)
            end = found.row.end
        else:
            plan.append(part)
            end = part[-1].role
    wanted = [item for part in plan if not isinstance(part, StoredRow) for item in part]
    known = {where: message for where, message in draft.log} | dict(draft.revealed)
    missing = [item.place for item in wanted if item.place and item.kind == "message" and item.place not in known]
    files = [known[item.place] for item in wanted if (item.media or item.texts) and item.place in known]
    fetched = fetch(missing, files) if missing or files else FetchedMessages({}, {})
    known |= fetched.messages
    rows = _RowEncoder(formatter, settings, set(), "", list, draft=draft)
    new: list[NewRow] = []
    order: list[StoredRow | int] = []
    for part in plan:
        if isinstance(part, StoredRow):
            if (order and isinstance(order[-1], StoredRow)) or _may_follow(part, rows.end, first=not order):
                order.append(part)
                rows.used.update(part.row.ids)
                rows.end, rows.ending = part.row.end, lambda part=part: split_chunk(part.chunk)
                continue
            part = part.row.items  # the part before it was encoded to nothing, so the row cannot be reused
            known |= fetch([item.place for item in part if item.kind == "message" and item.place], ()).messages
        entries = [
            DraftEntry(
                item,
                render_change(item, formatter)
                if item.kind == "change"
                else render_item(item, known.get(item.place), fetchable=draft.fetchable),
            )
            for item in part
        ]
        order.append(len(new))
        new.append(rows.add(entries, fetched.blobs))
        rows.used.update(new[-1].row.ids)
    return AssembledRows(tuple(new), tuple(order), tuple(rows.notes))


def _item_slices(items: tuple[Item, ...]) -> Iterator[tuple[Item, ...]]:
    start = 0
    for index, item in enumerate(items):
        if index > start and item.role == "assistant":
            yield items[start:index]
            start = index
    if start < len(items):
        yield items[start:]


def _is_same(own: tuple[Item, ...], items: tuple[Item, ...]) -> bool:
    """Return True if these are the identical items of a row. Equality is not enough: in a dry run, an edited message
    has the place of the message that it replaces.
    """
    return len(own) == len(items) and all(map(is_, own, items))


def _may_follow(sealed: StoredRow, end: str, *, first: bool) -> bool:
    """Return True if a row can follow a wire message of role `end` without being merged into it."""
    if sealed.row.items[0].role != "assistant":
        return first
    return bool(end) and end not in REPLIES


def _end(sealed: Sequence[StoredRow]) -> str:
    return next((each.row.end for each in reversed(sealed) if each.row.end), "")


def _ending(sealed: Sequence[StoredRow]) -> list[JSONObject]:
    return split_chunk(next((each.chunk for each in reversed(sealed) if each.chunk), b""))


def list_blob_names(messages: Iterable[Message]) -> list[str]:
    return sorted({media.blob for message in messages for media in list_media(message) if media.blob is not None})


def hash_chunks(before: str, chunks: Iterable[bytes]) -> str:
    """Return the hash of a sequence of chunks, starting from the hash of the preceding ones."""
    for chunk in chunks:
        before = blake2b(before.encode() + blake2b(chunk, digest_size=16).digest(), digest_size=16).hexdigest()
    return before
