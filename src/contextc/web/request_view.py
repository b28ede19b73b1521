"""JSON views of a request for the inspector: its budget, its lines, and the prefix shared with the previous request.

Sent requests, the next request, and opened files use the same types.
"""

from collections.abc import Iterable
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import asdict, replace

from contextc.analysis.cache_misses import ExpectedCache
from contextc.compiler import ledger
from contextc.compiler.draft import Budget
from contextc.compiler.manifest import Fragment, ObservedFacts, RequestRecord
from contextc.compiler.past_requests import compute_usage_bill
from contextc.errors import UnknownChannel
from contextc.formats.lint_engine import Violation
from contextc.inspection.prefix_break import PrefixBreak
from contextc.inspection.request_details import (
    LinePage,
    LineSelection,
    RequestDetails,
    RequestLine,
    TokenDistribution,
    compute_distribution,
    count_read_tokens,
)
from contextc.inspection.request_timeline import ReportedUsage, to_reported_usage
from contextc.messages import extend_to_words
from contextc.providers.registry import has_sessions
from contextc.store import Store
from contextc.store.ledger_schema import Channel, channel_id

T = TypeVar("T", bound=Struct)
_SHARED_FIELDS: dict[tuple[object, ...], list[str]] = {}
"""The fields of a type of the API that a class has too, by both and by the names of the other fields."""


def as_view(kind: type[T], source: object, **others: object) -> T:
    """Return a type of the API with the attributes of an object that have the names of its fields, and with others."""
    key = (kind, type(source), *others)
    if (names := _SHARED_FIELDS.get(key)) is None:
        names = [name for name in kind.__struct_fields__ if name not in others and hasattr(source, name)]
        _SHARED_FIELDS[key] = names
    return kind(**{name: getattr(source, name) for name in names}, **others)


# ── the channels of a conversation, each with a short id for URLs ─────────────────────────────────────────────────────


class ChannelView(Struct, frozen=True, kw_only=True):
    """A channel of a conversation and its state. `mode` is "stateful" if the provider keeps a session.

    `lost` is why the session no longer exists. `unanswered` is true if a request was sent, or was about to be, and no
    reply is stored; `error` is the reason, if known.
    """

    id: str
    agent: str
    provider: str
    model: str
    directory: str
    requests: int
    epoch: int
    mode: Literal["stateless", "stateful"]
    session: str
    lost: str
    unanswered: bool
    error: str


def find_channel(store: Store, conversation: str, id: str) -> Channel:
    """Return the channel with an id. Raises `UnknownConversation` and `UnknownChannel`."""
    store.conversation(conversation)  # raises if it does not exist
    for _, channel, *_ in store.read(lambda tx: ledger.load_channels(tx, conversation)):
        if channel_id(channel) == id:
            return channel
    raise UnknownChannel(conversation, id)


def channel_views(store: Store, conversation: str) -> list[ChannelView]:
    """Return the channels of a conversation, oldest first. Raises `UnknownConversation`."""
    store.conversation(conversation)
    found: list[ChannelView] = []
    for _, channel, state, attempt in store.read(lambda tx: ledger.load_channels(tx, conversation)):
        session = state.session.id if state.session else ""
        stateful = bool(session or state.lost) or has_sessions(channel.provider)
        found.append(
            as_view(
                ChannelView,
                channel,
                id=channel_id(channel),
                requests=state.requests,
                epoch=state.epoch,
                mode="stateful" if stateful else "stateless",
                session=session,
                lost=state.lost,
                unanswered=attempt is not None,
                error=attempt.error if attempt else "",
            )
        )
    return found


# ── what a request would lose, and what the cache should have of it ───────────────────────────────────────────────────


class RepeatedMissView(Struct, frozen=True, kw_only=True):
    """The last `count` requests missed the cache, each of them. The others are code, cause and title of the finding."""

    count: int
    code: str
    cause: str
    title: str


class ExpectedCacheView(Struct, frozen=True, kw_only=True):
    """The part of the next request that the provider's cache should have, by its rules. Lines have prices by it.

    `read` and `written` are tokens. `expired` is true if the cache has expired since: it was used `idle` milliseconds
    ago, and is kept for `life`. `missed` is present if the last requests missed it each time. Then, `paid_again` are
    tokens that were cached, and are paid again, and `dollars` is what they cost more than reading them; null if prices
    are not known. With `cost_is_lower_bound` a factor of a price is unknown.
    """

    read: int
    written: int
    expired: bool
    idle: int
    life: int
    paid_again: int
    dollars: float | None
    cost_is_lower_bound: bool = False
    missed: RepeatedMissView | UnsetType = UNSET


class CacheLoss(Struct, frozen=True, kw_only=True):
    """Losses of a request against the previous one: cached tokens, and messages whose signed reasoning becomes invalid.

    `dollars` is the cost of writing those tokens to the cache again, at the tier of the last request; null if prices
    are not known. With `cost_is_lower_bound` a factor of a price is unknown. `cache` is present if the rules of the
    provider's cache are known, and there is a previous request.
    """

    cached_lost: int
    cached_kept: int
    signed_lost: int
    dollars: float | None
    cost_is_lower_bound: bool = False
    cache: ExpectedCacheView | UnsetType = UNSET


def expected_cache_view(expected: ExpectedCache | None) -> ExpectedCacheView | UnsetType:
    if expected is None:
        return UNSET
    return as_view(
        ExpectedCacheView,
        expected,
        read=expected.usage.cache_read,
        written=expected.usage.cache_write,
        expired=expected.is_expired,
        missed=UNSET if expected.missed is None else as_view(RepeatedMissView, expected.missed),
    )


# ── a request and its lines ───────────────────────────────────────────────────────────────────────────────────────────


CountOrigin: TypeAlias = Literal["exact", "measured", "estimated"]
RECORD_FIELDS = ("request", "mode", "epoch", "why", "time", "session", "gave", "remarks", "signed_lost")


class BudgetView(Struct, frozen=True, kw_only=True):
    """Tokens by kind. With `overhead`, those up to `free` add up to `limit`, or to `window` if there is no limit.

    `overhead` was counted by the provider, and is not in what was recorded. `used` are the tokens of all messages, with
    the overhead, and `available` is their limit. `input` are the tokens of the whole request and `room` their limit.
    `wanted` are the tokens of the messages before trimming. If `wanted_is_lower_bound`, some of them were not read,
    because they are too far back to fit. `how` is the origin of the counts: measured by the provider, counted exactly,
    or estimated. `estimated` is the estimate of `input` before sending.
    """

    window: int | None
    system: int
    tools: int
    dynamic: int
    history: int
    new: int
    reserve: int
    margin: int
    free: int | None
    used: int
    available: int | None
    how: CountOrigin
    limit: int | None
    wanted: int
    wanted_is_lower_bound: bool = False
    input: int
    room: int | None
    estimated: int
    overhead: int = 0


class PrefixBreakView(Struct, frozen=True, kw_only=True):
    """The first difference from the prefix of the previous request, and its reason.

    `where` is "system", "tools", "settings", "message 12", or "" if the prefix is unchanged. `path` is the same place
    as a path into the request. `line` is the first line that is not shared.
    """

    where: str
    path: str
    why: str
    line: int | None


class SharedPrefixView(Struct, frozen=True, kw_only=True):
    """The prefix shared with the previous request.

    `tokens` counts the prompt, the tools and the shared lines; `bytes` counts the unchanged messages. `listed` are the
    tokens that these have among the lines: more than `tokens`, if the provider counted fewer for the whole previous
    request. `read` are the tokens of it that the provider read from its cache; null if that is unknown. The rest was
    paid again.
    """

    tokens: int
    listed: int = 0
    read: int | None = None
    bytes: int
    of_bytes: int
    broke: PrefixBreakView


class LineCounts(Struct, frozen=True, kw_only=True):
    """Numbers of lines: all, sent and left out.

    `reduced` are the sent lines that are a stub or shortened. `tokens` are the tokens of the sent lines.
    """

    lines: int
    shown: int
    left: int
    reduced: int
    tokens: int


class ObservedView(Struct, frozen=True, kw_only=True):
    """Facts of a request that other software sent.

    `status` is ok, error, unfinished (the reply broke off), unanswered or unrecorded. `code` is the HTTP status,
    `error` the text of an error reply, and `error_type` its type or code. `began` and `ended` are Unix milliseconds,
    and `latency` the milliseconds between them; null if unknown. `inexact` is true if the stored body is not the
    one that was sent: it was put together from a transcript, or text was `redacted` before it was stored.
    """

    status: str
    code: int | None
    error: str
    error_type: str = ""
    began: int | None
    ended: int | None
    latency: int | None
    inexact: bool
    redacted: bool = False


class RequestSummary(Struct, frozen=True, kw_only=True):
    """Common fields of a request. `time` is when its answer was stored; 0 if it was not sent, or if that was
    not recorded."""

    channel: str
    agent: str
    provider: str
    model: str
    directory: str
    request: int
    mode: str
    epoch: int
    why: str
    time: int
    session: str
    gave: str
    format: str
    budget: BudgetView
    shared: SharedPrefixView
    usage: ReportedUsage | None
    remarks: tuple[str, ...]
    fragments: tuple[Fragment, ...]
    counts: LineCounts
    signed_lost: int


class InspectedRequest(RequestSummary, frozen=True, kw_only=True):
    """A sent request. `cost` is in dollars, and null if prices or usage are not known. With `cost_is_lower_bound` a
    factor of a price is not known.

    `number` is the number in the URL: of the request itself, or of a stored request without an answer. `observed` is
    present if other software sent the request.
    """

    cost: float | None
    cost_is_lower_bound: bool = False
    number: int
    observed: ObservedView | UnsetType = UNSET


class NextRequestView(RequestSummary, frozen=True, kw_only=True):
    """The next request, with its first lines. `is_new` is true if there is a message to answer."""

    cost: CacheLoss
    is_new: bool
    lines: list["RequestLine"]
    more: bool
    next: int
    selection: "SelectionView | UnsetType" = UNSET


class SelectionView(Struct, frozen=True, kw_only=True):
    """The lines that a query selects. `indexes` are their indexes in order; absent if it selects all lines in order.

    `total` is the number of all lines, and `head` the number of those before the messages: they have the indexes from
    -head to -1. `prefix_end` is the index of the first line that is not in the shared prefix. `tokens` are the tokens
    of the selected lines, and `input` those of the whole request. `states`, `roles`, `tools` and `causes` have the
    number of lines per value, among the lines that match all other fields of the query; `errors` likewise.
    """

    selected: int
    total: int
    head: int
    prefix_end: int | None
    tokens: int
    input: int
    states: dict[str, int]
    roles: dict[str, int]
    tools: dict[str, int]
    causes: dict[str, int]
    errors: int
    indexes: list[int] | UnsetType = UNSET


class FindingView(Struct, frozen=True, kw_only=True):
    """A lint finding: rule code, path, message, the provider's error text, and the URL of the rule."""

    code: str
    path: str
    message: str
    provider: str
    docs: str


def finding_views(violations: Iterable[Violation]) -> list[FindingView]:
    return [as_view(FindingView, each, provider=each.error, docs=f"/api/rules/{each.code}") for each in violations]


def observed_view(facts: ObservedFacts | None) -> ObservedView | UnsetType:
    if facts is None:
        return UNSET
    began, ended = facts.stated_began or None, facts.ended or None
    return as_view(ObservedView, facts, code=facts.code or None, began=began, ended=ended)


def count_origin(budget: Budget) -> CountOrigin:
    return "measured" if budget.measured else "exact" if budget.exact else "estimated"


def budget_view(budget: Budget, parts: TokenDistribution, record: RequestRecord) -> BudgetView:
    return as_view(
        BudgetView,
        budget,
        **asdict(parts),
        how=count_origin(budget),
        estimated=record.budget.input,
        wanted_is_lower_bound=bool(budget.wanted and record.skipped),
    )


def request_view(details: RequestDetails, format: str, prefix_break: PrefixBreak, number: int) -> InspectedRequest:
    dollars, is_lower_bound = compute_usage_bill(details.channel, details.record.usage) or (None, False)
    observed = observed_view(details.record.observed)
    return InspectedRequest(
        cost=dollars,
        cost_is_lower_bound=is_lower_bound,
        number=number,
        observed=observed,
        **_summary_fields(details, format, prefix_break),
    )


def next_request_view(
    details: RequestDetails,
    format: str,
    prefix_break: PrefixBreak,
    *,
    loss: CacheLoss,
    is_new: bool,
    page: LinePage,
    text_options: "LineTextOptions",
    remarks: tuple[str, ...] = (),
    selection: SelectionView | UnsetType = UNSET,
) -> NextRequestView:
    account = _summary_fields(details, format, prefix_break)
    account["remarks"] = (*account["remarks"], *remarks)
    lines = shorten_lines(page.lines, text_options)
    return NextRequestView(
        cost=loss, is_new=is_new, lines=lines, more=page.more, next=page.next, selection=selection, **account
    )


def _summary_fields(seen: RequestDetails, format: str, broke: PrefixBreak) -> dict[str, Any]:
    """Return the fields of `RequestSummary`, by name."""
    channel, record = seen.channel, seen.record
    left = len(seen.left_out_places)
    line = seen.shared if broke.where and seen.shared < len(seen.items) else None
    same = (record.shared_bytes if broke.same is None else broke.same) if seen.shared else 0
    shared = SharedPrefixView(
        tokens=seen.shared_tokens,
        listed=record.listed_shared_tokens,
        read=count_read_tokens(seen),
        bytes=min(same, seen.size),
        of_bytes=seen.size,
        broke=as_view(PrefixBreakView, broke, line=line),
    )
    return {
        **{name: getattr(record, name) for name in RECORD_FIELDS},
        **{name: getattr(channel, name) for name in ("agent", "provider", "model", "directory")},
        "time": 0 if record.observed is not None and record.observed.untimed else record.time,
        "channel": channel_id(channel),
        "format": format,
        "budget": budget_view(seen.budget, compute_distribution(seen), record),
        "shared": shared,
        "usage": to_reported_usage(record.usage),
        "fragments": seen.fragments,
        "counts": LineCounts(
            lines=len(seen.items) + left,
            shown=len(seen.items),
            left=left,
            reduced=len(seen.reduced_lines),
            tokens=sum(seen.tokens),
        ),
    }


class LineTextOptions(NamedTuple):
    """Options for the text of a line: at most `width` characters around the search term; 0 means the full text."""

    width: int = 0
    search: str = ""
    parts: bool = False

    def shorten(self, text: str) -> str:
        if not self.width or len(text) <= self.width:
            return text
        at = max(0, text.lower().find(self.search.lower()) - self.width // 3) if self.search else 0
        at, end = extend_to_words(text, at, at + self.width) if self.search else (at, at + self.width)
        return f"{'…' if at else ''}{text[at:end]}{'…' if end < len(text) else ''}"


def shorten_lines(lines: Iterable[RequestLine], options: LineTextOptions) -> list[RequestLine]:
    """Return lines with their texts as the options say, and without parts and definitions unless they include these."""
    return [
        replace(
            each,
            text=options.shorten(each.text),
            original=options.shorten(each.original),
            parts=each.parts if options.parts else None,
            original_parts=each.original_parts if options.parts else None,
            calls=UNSET
            if each.calls is UNSET
            else tuple([replace(call, text=options.shorten(call.text)) for call in each.calls]),
            definition=each.definition if options.parts else UNSET,
        )
        for each in lines
    ]


def selection_view(found: LineSelection, input: int, *, is_plain: bool) -> SelectionView:
    """Return a selection. `input` are the tokens of the whole request; `is_plain`: it has all lines in order."""
    return as_view(
        SelectionView,
        found,
        selected=len(found.numbers),
        input=input,
        **found.counts._asdict(),
        indexes=UNSET if is_plain else found.numbers,
    )
