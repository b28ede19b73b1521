"""The server and its whole store: overview by cost, search over all conversations, and information on the server."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Annotated, Literal, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType

import contextc
from contextc.analysis import Finding, findings
from contextc.analysis.conversation_findings import CauseSummary, group_by_cause, is_loss, list_losses, sum_costs
from contextc.analysis.finding import RequestLoss
from contextc.app.agent_factory import LOCAL_CLIENT, ModelChoice, choose_tools, resolve_model
from contextc.config import mask_secrets, read_settings
from contextc.errors import ContextcError, InvalidSetting, UnknownConversation, UnknownModel
from contextc.formats.registry import format_names
from contextc.models import model as find_model
from contextc.providers.availability import ProviderStatus, list_providers
from contextc.store.conversation_list import (
    MAX_HITS,
    ConversationOverview,
    list_rows_by_number,
    load_details,
    search_messages,
)
from contextc.store.transaction_engine import Transaction
from contextc.web.app_state import AppState
from contextc.web.request_view import as_view
from contextc.web.router import endpoint
from contextc.web.store_overview import (
    ConversationFigures,
    Figures,
    FindingsCount,
    Selection,
    add_up,
    add_up_models,
    add_up_times,
    find_zone,
)

# ── overview ──────────────────────────────────────────────────────────────────────────────────────────────────────────


MAX_PAGE_SIZE = 200
MAX_HOURLY_DAYS = 3
"""The number of days whose hours are listed."""
DAY_LENGTH = len("2026-03-01")
MAX_CHECKED = 50
MAX_LOSSES = 200
"""The number of requests that are listed for one cause in one conversation."""
MILLISECONDS = 1 << 53
Time = Annotated[int, Meta(ge=0, le=MILLISECONDS)]
SortName: TypeAlias = Literal["cost", "cache", "tokens", "requests", "time", "name", "source", "model", "findings"]


class OverviewQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`since` and `until` select requests by time, in Unix milliseconds. `source` is a client, `own` or `observed`.

    `search` is a text in the name or the title. `zone` is the time zone of the days, such as Europe/Berlin. The page
    has `limit` conversations after the first `skip` ones. Sorting by `findings` is by the cost of
    the most expensive cause, and puts unchecked conversations last.
    """

    since: Time | None = None
    until: Time | None = None
    source: str = ""
    model: str = ""
    search: str = ""
    sort: SortName = "cost"
    order: Literal["up", "down"] = "down"
    skip: Annotated[int, Meta(ge=0, le=1 << 31)] = 0
    limit: Annotated[int, Meta(ge=1, le=MAX_PAGE_SIZE)] = 50
    zone: str = "UTC"


class OverviewEntry(Struct, frozen=True, kw_only=True):
    """A conversation with the figures of its selected requests. `findings` is absent while they are not checked."""

    conversation: ConversationOverview
    source: str
    models: tuple[str, ...]
    figures: Figures
    findings: FindingsCount | UnsetType = UNSET


class DayFigures(Struct, frozen=True, kw_only=True):
    """The figures of one day, such as 2026-03-01."""

    day: str
    figures: Figures


class HourFigures(Struct, frozen=True, kw_only=True):
    """The figures of one hour, such as 2026-03-01T14."""

    hour: str
    figures: Figures


class ModelFigures(Struct, frozen=True, kw_only=True):
    """The figures of the requests to one model."""

    model: str
    figures: Figures


class FilterOption(Struct, frozen=True, kw_only=True):
    """A source or model of the store, and the number of its conversations."""

    name: str
    conversations: int


class OverviewPage(Struct, frozen=True, kw_only=True):
    """A page of the overview. `found` is the number of selected conversations, `totals` and `days` are about all of
    them. `hours` are those of the last three days with requests, and `by_model` has the most expensive model first.
    `pending` is the number of conversations that are not counted yet: ask again.
    """

    conversations: list[OverviewEntry]
    found: int
    pending: int
    totals: Figures
    days: list[DayFigures]
    zone: str
    sources: list[FilterOption]
    models: list[FilterOption]
    hours: list[HourFigures] = []
    by_model: list[ModelFigures] = []


class CheckBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Names of conversations. Names that do not exist any more are skipped."""

    names: Annotated[list[str], Meta(max_length=MAX_CHECKED)]


class CheckedCause(Struct, frozen=True, kw_only=True):
    """The findings of one cause in one conversation. `request` is the most expensive one on `channel`, 0 if none.

    `requests` is the number of requests with this cause. `losses` has tokens and cost of each, in their order; of more
    than 200 the most expensive ones. Its `request` is 0 for a finding about all requests.
    """

    code: str
    cause: str
    title: str
    count: int
    tokens: int
    cost: float | None
    cost_is_lower_bound: bool = False
    channel: str
    request: int
    requests: int
    losses: list[RequestLoss]


class CheckedConversation(Struct, frozen=True, kw_only=True):
    """The findings of a conversation by cause, the most expensive first. `error` is why it could not be read."""

    name: str
    findings: FindingsCount
    causes: list[CheckedCause]
    error: str = ""


class CheckedPage(Struct, frozen=True, kw_only=True):
    """The findings of some conversations."""

    conversations: list[CheckedConversation]


@endpoint("GET", "/overview", tag="overview")
def show_overview(app: AppState, query: OverviewQuery) -> OverviewPage:
    """Return the conversations of the store with their figures, sorted; totals and costs per day."""
    pending = app.overview.refresh(with_titles=bool(query.search.strip()))
    wanted = Selection(query.since, query.until, query.source, query.model, query.search)
    selected, portions = app.overview.select(wanted)
    selected.sort(key=lambda each: (each.state.last_active, each.state.number), reverse=True)
    selected = _sort(selected, query.sort, reverse=query.order == "down")
    shown = selected[query.skip : query.skip + query.limit]
    zone_name, zone = find_zone(query.zone)

    def load_entries(tx: Transaction) -> dict[int, ConversationOverview]:
        rows = list_rows_by_number(tx, [each.state.number for each in shown]) if shown else []
        return {row.number: entry for row, entry in zip(rows, load_details(tx, rows), strict=True)}

    entries = app.store.read(load_entries)
    days = add_up_times(portions, zone, "day")
    recent = {day for day, _ in days[-MAX_HOURLY_DAYS:]}
    hours = [each for each in add_up_times(portions, zone, "hour") if each[0][:DAY_LENGTH] in recent]
    return OverviewPage(
        conversations=[
            as_view(OverviewEntry, each, conversation=entries[each.state.number], findings=each.findings or UNSET)
            for each in shown
            if each.state.number in entries
        ],
        found=len(selected),
        pending=pending,
        totals=add_up(portions),
        days=[DayFigures(day=day, figures=each) for day, each in days],
        hours=[HourFigures(hour=hour, figures=each) for hour, each in hours],
        by_model=[ModelFigures(model=model, figures=each) for model, each in add_up_models(portions)],
        zone=zone_name,
        sources=[FilterOption(name=name, conversations=count) for name, count in app.overview.all_sources().items()],
        models=[FilterOption(name=name, conversations=count) for name, count in app.overview.all_models().items()],
    )


@endpoint("POST", "/overview/findings", tag="overview", reads_only=True)
def check_findings(app: AppState, body: CheckBody) -> CheckedPage:
    """Return the findings of some conversations by cause. The overview then sorts by them. Nothing is stored."""
    checked = [_check(app, name) for name in body.names]
    return CheckedPage(conversations=[each for each in checked if each is not None])


def _check(app: AppState, name: str) -> CheckedConversation | None:
    identity = app.overview.key_of(name)
    try:
        found = [each for each in findings(app.store, name) if is_loss(each)] + app.overview.session_starts(name)
    except UnknownConversation:
        return None
    except ContextcError as error:
        none = FindingsCount(count=0, cost=None)
        return CheckedConversation(name=name, findings=none, causes=[], error=str(error))
    causes = group_by_cause(found)
    summary = FindingsCount(
        count=len(found),
        cost=sum_costs(found),
        largest=causes[0].cost if causes else None,
        largest_is_lower_bound=bool(causes) and causes[0].cost_is_lower_bound,
    )
    if identity is not None:
        app.overview.keep_findings(*identity, summary)
    return CheckedConversation(name=name, findings=summary, causes=[_cause(each, found) for each in causes])


def _cause(cause: CauseSummary, found: Sequence[Finding]) -> CheckedCause:
    first: Finding = cause.examples[0]
    losses = list_losses([each for each in found if each.code == cause.code])
    shown = sorted(losses, key=lambda each: (-(each.cost or 0.0), -each.tokens))[:MAX_LOSSES]
    return as_view(
        CheckedCause,
        cause,
        channel=first.channel,
        request=first.request,
        requests=len(losses),
        losses=sorted(shown, key=lambda each: (each.request, each.channel)),
    )


SORT_KEYS: dict[SortName, Callable[[ConversationFigures], float | str | None]] = {
    "cost": lambda each: each.figures.cost,
    "cache": lambda each: each.figures.cache_share,
    "tokens": lambda each: each.figures.input + each.figures.estimated + each.figures.output,
    "requests": lambda each: each.figures.requests,
    "time": lambda each: each.state.last_active,
    "name": lambda each: each.state.name.casefold(),
    "source": lambda each: each.source,
    "model": lambda each: each.models[0] if each.models else None,
    "findings": lambda each: (each.findings.largest or 0.0) + each.findings.count * 1e-12 if each.findings else None,
}


def _sort(selected: list[ConversationFigures], name: SortName, *, reverse: bool) -> list[ConversationFigures]:
    """Return conversations by a column. Those without a value are last in both orders."""
    key = SORT_KEYS[name]
    having = [(key(each), each) for each in selected]
    with_value = [pair for pair in having if pair[0] is not None]
    with_value.sort(key=lambda pair: pair[0], reverse=reverse)  # pyright: ignore[reportArgumentType, reportCallIssue]
    return [each for _, each in with_value] + [each for value, each in having if value is None]


# ── search ────────────────────────────────────────────────────────────────────────────────────────────────────────────


MAX_SEARCH_PAGE = 100


class SearchQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`text` is searched; case is ignored. A blank one finds nothing. `hits` is the maximum per conversation.

    `before` is `next` of the previous page. `tag` selects conversations with a tag.
    """

    text: str = ""
    before: str = ""
    tag: str = ""
    limit: Annotated[int, Meta(ge=1, le=MAX_SEARCH_PAGE)] = 20
    hits: Annotated[int, Meta(ge=1, le=MAX_HITS)] = 5


class HitView(Struct, frozen=True, kw_only=True):
    """A message or note that contains the text. `part` is text, call or result, empty if the match spans several. It
    is note for a note, which has no `seq`.

    `tool` is the name of the tool of a call or result.
    """

    seq: int
    role: str
    part: str
    tool: str
    excerpt: str


class ConversationHits(Struct, frozen=True, kw_only=True):
    """A conversation and its hits, newest first. Without hits, its name contains the text.

    `count` is the number of its messages with the text that this page has found. If there are more than `hits`, a
    search with `before` set to `more` and `limit` 1 returns older ones; otherwise `more` is "".
    """

    conversation: ConversationOverview
    hits: list[HitView]
    count: int
    more: str


class SearchResults(Struct, frozen=True, kw_only=True):
    """A page of a search. It reads a limited number of messages, so it may be empty although there is `more`.

    `messages` and `conversations` are the numbers of those that this page has searched. A long conversation may be on
    several pages, with older hits on the later ones.
    """

    found: list[ConversationHits]
    messages: int
    conversations: int
    more: bool
    next: str


@endpoint("GET", "/search", tag="search")
def search(app: AppState, query: SearchQuery) -> SearchResults:
    """Search names, notes, messages, tool calls and results of all conversations, the most recently active first."""
    if not query.text.strip():
        return SearchResults(found=[], messages=0, conversations=0, more=False, next="")
    page = app.store.read(
        lambda tx: search_messages(
            tx, query.text, before=query.before, limit=query.limit, max_hits=query.hits, tag=query.tag
        )
    )
    return SearchResults(
        found=[
            ConversationHits(
                conversation=found.conversation,
                hits=[as_view(HitView, each) for each in found.hits],
                count=found.total,
                more=found.more,
            )
            for found in page.found
        ],
        messages=page.messages,
        conversations=page.conversations,
        more=bool(page.next),
        next=page.next,
    )


# ── information ───────────────────────────────────────────────────────────────────────────────────────────────────────


class ServerInfo(Struct, frozen=True, kw_only=True):
    """`model` is the default model. `remark` is why it was selected, or why it cannot be used.

    `root` is the working directory of tools.
    """

    version: str
    store: str
    agent: str
    model: str
    remark: str
    root: str
    tools: Literal["all", "read", "none"]
    providers: list[ProviderStatus]
    formats: list[str]


class KnownModel(Struct, frozen=True, kw_only=True):
    """The context window of a model in tokens, and its prices in US dollars per million tokens. None is unknown."""

    name: str
    window: int | None
    input_price: float | None = None
    output_price: float | None = None


class KnownModels(Struct, frozen=True, kw_only=True):
    """The models of all providers. The same model may have other prices at a provider that sells it again."""

    models: list[KnownModel]


@endpoint("GET", "/models", tag="info")
def models(app: AppState) -> KnownModels:
    """Return the window and the prices of the models that the providers of `/info` have."""
    names = {name for each in list_providers() for name in each.models}
    return KnownModels(models=[_model_figures(name) for name in sorted(names)])


@cache
def _model_figures(name: str) -> KnownModel:
    try:
        found = find_model(name)
    except UnknownModel:
        return KnownModel(name=name, window=None)
    price = found.price
    return KnownModel(
        name=name,
        window=found.window,
        input_price=price.input if price is not None else None,
        output_price=price.output if price is not None else None,
    )


def _missing_local_model(choice: ModelChoice) -> str:
    """Return what the local model lacks, and how to get it or another model. "" if it can run, or is not chosen."""
    if choice.provider.client != LOCAL_CLIENT or choice.provider.url:
        return ""
    from contextc.providers.local import check_installed, find_model_file  # takes time to import

    try:
        check_installed()
        find_model_file()
    except InvalidSetting as error:
        return f"To chat, choose a model that you have a key for, or use the local one. {error}"
    return ""


@endpoint("GET", "/info", tag="info")
def info(app: AppState) -> ServerInfo:
    """Return information on the server and its providers. It never contains keys."""
    options = app.options
    model = options.model or read_settings().model.value or LOCAL_CLIENT
    try:
        choice = resolve_model(options.model)
        remark, tools = _missing_local_model(choice) or choice.remark, choose_tools(choice.provider, options.tools)
    except ContextcError as error:
        remark, tools = str(error), options.tools or "none"
    return ServerInfo(
        version=str(contextc.__version__),
        store=mask_secrets(app.store.address),
        agent=options.agent,
        model=model,
        remark=remark,
        root=str(options.root.expanduser().resolve()),
        tools=tools,
        providers=list_providers(),
        formats=[*format_names()],
    )
