"""Requests of a channel: sent ones with their lines, body, reply and differences; the next one; and the ledger."""

from typing import Annotated, Literal, NamedTuple, TypeAlias

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType, field
from msgspec.structs import replace

from contextc._json import decode
from contextc.analysis.cache_misses import expect_cache
from contextc.analysis.conversation_loader import load_request_views
from contextc.analysis.request_comparison import (
    ConversationComparison,
    RequestComparison,
    compare_conversations,
    compare_two_requests,
)
from contextc.app import agent_factory
from contextc.app.agent_factory import build_prompt, build_tools, choose_tools
from contextc.compiler.manifest import RequestRecord
from contextc.compiler.past_requests import (
    find_request,
    load_channel_formatter,
    load_channel_provider,
    rebuild,
    rebuild_session_view,
    was_answered,
)
from contextc.config import read_settings
from contextc.errors import InvalidRequest, InvalidSetting
from contextc.inspection.diff import RequestDiff, diff_requests
from contextc.inspection.line_details import LineCause
from contextc.inspection.prefix_break import find_break, load_compared_record, preview_break
from contextc.inspection.preview import (
    ChannelEpoch,
    bill_lost_cache,
    build_item_lines,
    find_channels,
    load_epochs,
    load_knowledge,
    load_last_budget,
    load_last_request,
    preview_request,
)
from contextc.inspection.raw_reply import RawReplyView, find_raw_reply, view_raw_reply
from contextc.inspection.request_details import (
    LineFilter,
    LinePage,
    RequestDetails,
    RequestLine,
    SelectedState,
    load_lines,
    load_request_details,
    page_lines,
    preview_request_details,
    select_lines,
)
from contextc.inspection.request_timeline import RequestOfMessage, RequestReply, find_request_of_message, load_reply
from contextc.linting import lint
from contextc.prompts import PromptContext
from contextc.providers import Provider
from contextc.providers.snippets import as_curl, as_python
from contextc.store.ledger_schema import Channel
from contextc.store.message_log import now_ms
from contextc.store.transaction_engine import Transaction
from contextc.tools.definitions import Tool
from contextc.web.app_state import AppState
from contextc.web.request_view import (
    CacheLoss,
    FindingView,
    InspectedRequest,
    LineTextOptions,
    NextRequestView,
    SelectionView,
    as_view,
    expected_cache_view,
    find_channel,
    finding_views,
    next_request_view,
    request_view,
    selection_view,
    shorten_lines,
)
from contextc.web.router import RawResponse, endpoint

# ── lines as a query selects them ─────────────────────────────────────────────────────────────────────────────────────


MAX_LINES = 1_000
MAX_NUMBER = 1 << 31
Number = Annotated[int, Meta(ge=1, le=MAX_NUMBER)]
After = Annotated[int, Meta(ge=0, le=MAX_NUMBER)]
Limit = Annotated[int, Meta(ge=1, le=1_000)]
StateFilter: TypeAlias = SelectedState
CauseFilter: TypeAlias = Literal[""] | LineCause
LineOrder: TypeAlias = Literal["", "size"]


class LinesQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """`after` is how many lines to skip. `only` filters lines: "shown" are those that were sent, "left" those that were
    left out, sent as a stub, or shortened.

    `search` selects lines that contain a text. `width` is the maximum number of characters per text; 0 means all. With
    `parts`, each line has its message parts.

    `state`, `role`, `tool`, `cause` and `error` select lines that match all of them; `sort=size` returns the largest
    first. With `detailed`, the system prompt and each tool are lines too, and lines have their causes, calls and
    results. With `selection`, the answer has the indexes of all selected lines, and the number of lines per value. `at`
    returns the lines with these indexes instead: `-2..10,15`.
    """

    after: After = 0
    limit: Limit = 200
    only: Literal["", "shown", "left"] = ""
    search: str = ""
    width: After = 0
    parts: bool = False
    state: StateFilter = ""
    role: str = ""
    tool: str = ""
    cause: CauseFilter = ""
    error: bool = False
    sort: LineOrder = ""
    detailed: bool = False
    selection: bool = False
    at: str = ""


class QueriedLines(NamedTuple):
    page: LinePage
    selection: SelectionView | UnsetType = UNSET


def query_lines(request: RequestDetails, query: LinesQuery) -> QueriedLines:
    """Return the lines that a query selects."""
    if query.at:
        return QueriedLines(LinePage(load_lines(request, parse_indexes(query.at), head=query.detailed), False, 0))
    names = [name for name in LineFilter._fields if name != "head"]
    wanted = LineFilter(**{name: getattr(query, name) for name in names}, head=query.detailed)
    if not (query.detailed or query.selection or wanted._replace(only="", search="").is_filter):
        found = page_lines(request, after=query.after, limit=query.limit, only=query.only, search=query.search)
        return QueriedLines(found)
    selected = select_lines(request, wanted)
    last = min(len(selected.numbers), query.after + query.limit)
    lines = load_lines(request, selected.numbers[query.after : last], head=query.detailed)
    page = LinePage(lines, last < len(selected.numbers), last)
    if not query.selection:
        return QueriedLines(page)
    return QueriedLines(page, selection_view(selected, request.budget.input, is_plain=not wanted.is_filter))


def parse_indexes(text: str) -> list[int]:
    """Return the indexes of a text such as `-2..10,15`. Raises `InvalidSetting`."""
    found: list[int] = []
    for piece in text.split(","):
        first, _, last = piece.partition("..")
        try:
            start, end = int(first), int(last or first)
        except ValueError:
            raise InvalidSetting("at must have indexes of lines", got=text[:80], fix="Send at=0..199,205.") from None
        if end - start >= MAX_LINES or len(found) + end - start >= MAX_LINES:
            raise InvalidSetting(f"at must have at most {MAX_LINES} lines", got=text[:80], fix="Send several queries.")
        found += range(start, end + 1)
    return found


# ── comparison of two requests, and of two conversations ──────────────────────────────────────────────────────────────


class OtherRequestQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """The request to compare with, which counts as the earlier one. Default: the last request before it on the same
    channel that was answered.

    `to_conversation` and `to_channel` are by default those of the compared request.
    """

    to_conversation: str = ""
    to_channel: str = ""
    to_request: Annotated[int, Meta(ge=0, le=MAX_NUMBER)] = 0


class ComparedConversationsQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """`a` and `b` are the names of the conversations."""

    a: str
    b: str


def find_other_request(
    app: AppState, channel: Channel, number: int, query: OtherRequestQuery
) -> tuple[Channel, int] | None:
    """Return the channel and the number of the request to compare with; None if there is no previous request."""

    def work(tx: Transaction) -> RequestRecord | None:
        channel_number, record = find_request(tx, channel, number)
        return load_compared_record(tx, channel_number, record.request)

    before = app.store.read(work)
    if not query.to_conversation and not query.to_channel and not query.to_request:
        return (channel, before.request) if before is not None else None
    if not query.to_request:
        raise InvalidRequest("to_request is missing", fix="Pass the number of the request to compare with.")
    if not query.to_channel and query.to_conversation not in ("", channel.conversation):
        raise InvalidRequest("to_channel is missing", fix="Pass the channel of the other conversation's request.")
    conversation = query.to_conversation or channel.conversation
    other = find_channel(app.store, conversation, query.to_channel) if query.to_channel else channel
    return other, query.to_request


@endpoint("GET", "/conversations/{name}/requests/{channel}/{number}/comparison", tag="comparison")
def show_comparison(app: AppState, name: str, channel: str, number: int, query: OtherRequestQuery) -> RequestComparison:
    """Compare a request with the last answered one before it, or with any other, in cache order."""
    found = find_channel(app.store, name, channel)
    other = find_other_request(app, found, number, query)
    *before, after = load_request_views(app.store, [*([other] if other is not None else []), (found, number)])
    return compare_two_requests(app.store, before[0] if before else None, after)


@endpoint("GET", "/compare", tag="comparison")
def show_conversation_comparison(app: AppState, query: ComparedConversationsQuery) -> ConversationComparison:
    """Compare two conversations: figures, costs and findings by cause, and the first request that differs."""
    return compare_conversations(app.store, query.a, query.b)


# ── a sent request ────────────────────────────────────────────────────────────────────────────────────────────────────


class BodyQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """`pretty` indents the JSON; `as` returns a curl command or a Python program."""

    pretty: bool = False
    shape: Literal["", "curl", "python"] = field(default="", name="as")


class RequestFindings(Struct, frozen=True, kw_only=True):
    format: str
    violations: list[FindingView]


class LinesPage(Struct, frozen=True, kw_only=True):
    """If there is `more`, the next page has `after` set to `next`."""

    lines: list[RequestLine]
    more: bool
    next: int
    selection: SelectionView | UnsetType = UNSET


@endpoint("GET", "/conversations/{name}/messages/{number}/request", tag="requests")
def show_request_of_message(app: AppState, name: str, number: int) -> RequestOfMessage:
    """Return the first request that contains the message with a seq, or the request whose reply it is."""
    return find_request_of_message(app.store, name, number)


@endpoint("GET", "/conversations/{name}/requests/{channel}/{number}", tag="requests")
def show_request(app: AppState, name: str, channel: str, number: int) -> InspectedRequest:
    """Return one request: its budget by kind, its shared prefix, and its cost."""
    found = find_channel(app.store, name, channel)
    formatter = load_channel_formatter(app.store, found)
    seen = load_request_details(app.store, found, number)
    return request_view(seen, formatter.name, find_break(app.store, found, formatter, number), number)


@endpoint("GET", "/conversations/{name}/requests/{channel}/{number}/lines", tag="requests")
def show_lines(app: AppState, name: str, channel: str, number: int, query: LinesQuery) -> LinesPage:
    """Return a page of lines of a request, sent or left out, each with its text as sent, reason, tokens and cost."""
    seen = load_request_details(app.store, find_channel(app.store, name, channel), number)
    found = query_lines(seen, query)
    lines = shorten_lines(found.page.lines, LineTextOptions(query.width, query.search, query.parts))
    return LinesPage(lines=lines, more=found.page.more, next=found.page.next, selection=found.selection)


@endpoint(
    "GET", "/conversations/{name}/requests/{channel}/{number}/body", media_type="application/json", tag="requests"
)
def show_body(app: AppState, name: str, channel: str, number: int, query: BodyQuery) -> RawResponse:
    """Return the body of a request exactly as sent, indented, or as a runnable snippet without keys."""
    found = find_channel(app.store, name, channel)
    body = rebuild(app.store, found, load_channel_formatter(app.store, found), number)
    if query.shape:
        return RawResponse(_snippet(app, found, number, body, query.shape).encode(), "text/plain; charset=utf-8")
    return RawResponse(msgspec.json.format(body, indent=2) if query.pretty else body, "application/json")


def _snippet(app: AppState, channel: Channel, number: int, body: bytes, shape: str) -> str:
    provider = load_channel_provider(app.store, channel)
    _, record = app.store.read(lambda tx: find_request(tx, channel, number))
    make = as_curl if shape == "curl" else as_python
    session = record.gave or record.session
    return make(provider, provider.formatter, body, session=session, directory=channel.directory, betas=record.betas)


@endpoint("GET", "/conversations/{name}/requests/{channel}/{number}/diff", tag="requests")
def show_difference(app: AppState, name: str, channel: str, number: int, query: OtherRequestQuery) -> RequestDiff:
    """Return the differences between a request and the previous one, or any other, line by line in the order of their
    JSON. Unchanged parts are folded.

    For a resumed session, the whole context that it holds is compared.
    """
    found = find_channel(app.store, name, channel)
    after = rebuild_session_view(app.store, found, load_channel_formatter(app.store, found), number)
    previous = find_other_request(app, found, number, query)
    before = b"{}"
    if previous is not None:
        form = load_channel_formatter(app.store, previous[0])
        before = rebuild_session_view(app.store, previous[0], form, previous[1])
    return diff_requests(before, after, previous[1] if previous is not None else None)


@endpoint("GET", "/conversations/{name}/requests/{channel}/{number}/lint", tag="requests")
def show_findings(app: AppState, name: str, channel: str, number: int) -> RequestFindings:
    """Return the lint findings of a request. An observed one that was answered has none."""
    found = find_channel(app.store, name, channel)
    formatter = load_channel_formatter(app.store, found)
    body = decode(rebuild(app.store, found, formatter, number))
    violations = lint(body, format=formatter.name, answered=was_answered(app.store, found, number))
    return RequestFindings(format=formatter.name, violations=finding_views(violations))


# ── the reply to a request ────────────────────────────────────────────────────────────────────────────────────────────


@endpoint("GET", "/conversations/{name}/requests/{channel}/{number}/reply", tag="replies")
def show_reply(app: AppState, name: str, channel: str, number: int) -> RequestReply:
    """Return the reply to a request: its messages, stop reason, latency, error, events, and other attempts."""
    return load_reply(app.store, find_channel(app.store, name, channel), number)


@endpoint("GET", "/conversations/{name}/requests/{channel}/{number}/raw", tag="replies")
def show_raw_reply(app: AppState, name: str, channel: str, number: int) -> RawReplyView:
    """Return the response to a request as it arrived, event by event, if it was recorded from other software."""
    found = find_channel(app.store, name, channel)
    app.store.read(lambda tx: find_request(tx, found, number))  # raises if there is none
    return view_raw_reply(find_raw_reply(app.store, found, number))


# ── the next request ──────────────────────────────────────────────────────────────────────────────────────────────────


DYNAMIC_NOT_INCLUDED = "dynamic prompt fragments are not part of this preview"


class NextQuery(LinesQuery, frozen=True, forbid_unknown_fields=True):
    """`channel` is an existing channel and `model` a provider and a model; without either, the last channel is used.

    `edit` and `text` preview an edit of that message. `rewind` previews a rewind to that message. All other fields
    select lines, as for a sent request.
    """

    channel: str = ""
    model: str = ""
    edit: Number | None = None
    text: str | None = None
    rewind: Annotated[int, Meta(ge=0, le=MAX_NUMBER)] | None = None


@endpoint("GET", "/conversations/{name}/next", tag="next")
def show_next(app: AppState, name: str, query: NextQuery) -> NextRequestView:
    """Return the next request without storing or sending anything."""
    if (query.edit is None) != (query.text is None):
        raise InvalidSetting("edit and text must be given together", fix="Send both: the message and its new text.")
    if query.channel and query.model:
        raise InvalidSetting("channel and model cannot be combined", fix="Send one of them: a channel has a model.")
    provider, before = _provider_and_channel(app, name, query.channel, query.model)
    last = load_last_budget(app.store, before) if before is not None else None
    system, tools = _first_prompt_and_tools(app, provider) if before is None else (None, None)
    compiled = preview_request(
        app.store,
        provider,
        name,
        agent=before.agent if before is not None else app.options.agent,
        directory=(before.directory or None) if before is not None else str(app.options.root),
        system_prompt=system,
        tools=tools,
        output=app.options.output if before is None else None,
        budget=last.limit if last is not None else app.options.budget,
        edit=None if query.edit is None else (query.edit, query.text or ""),
        rewind=query.rewind,
        policy=app.options.policy or read_settings().parse_policy(),
    )
    expected = expect_cache(app.store, compiled, now_ms())
    seen = replace(preview_request_details(app.store, compiled), expected=expected.usage if expected else None)
    queried = query_lines(seen, query)
    cost, lost = compiled.cost, bill_lost_cache(app.store, compiled)
    loss = CacheLoss(
        cached_lost=cost.cached_tokens_lost,
        cached_kept=cost.cached_tokens_kept,
        signed_lost=cost.signed_reasoning_lost,
        dollars=lost.dollars if lost is not None else None,
        cost_is_lower_bound=lost is not None and lost.is_lower_bound,
        cache=expected_cache_view(expected),
    )
    return next_request_view(
        seen,
        compiled.formatter.name,
        preview_break(app.store, compiled),
        loss=loss,
        is_new=compiled.is_new,
        page=queried.page,
        selection=queried.selection,
        text_options=LineTextOptions(query.width, query.search, query.parts),
        remarks=(DYNAMIC_NOT_INCLUDED,) if before is not None else (),
    )


def _first_prompt_and_tools(app: AppState, provider: Provider) -> tuple[str, list[Tool]]:
    """Return the system prompt and tools that this server's agent would send to a new channel."""
    options = app.options
    found = build_tools(choose_tools(provider, options.tools), options.root)
    tools = [each.tool for each in found]
    seen = PromptContext(
        agent=options.agent,
        provider=provider.name,
        model=provider.model.name,
        directory=str(options.root),
        tools=tuple(tools),
    )
    prompt = build_prompt(provider, found, options.system).render(seen)
    return "\n\n".join([each.text for each in prompt.static]), tools


def _provider_and_channel(app: AppState, name: str, channel: str, model: str) -> tuple[Provider, Channel | None]:
    """Return the provider, and the existing channel if there is one."""
    if channel:
        before = find_channel(app.store, name, channel)
        return load_channel_provider(app.store, before), before
    asked = find_channels(app.store, name)
    if not model:
        found = load_last_request(app.store, name)
        if found is None:
            return agent_factory.resolve_model(app.options.model).provider, None
        return load_channel_provider(app.store, found[0]), found[0]
    for each in reversed(asked):
        named = model in (each.model, f"{each.provider}:{each.model}")
        if named and each.agent == app.options.agent and load_last_budget(app.store, each) is not None:
            return load_channel_provider(app.store, each), each
    return agent_factory.resolve_model(model).provider, None


# ── the ledger of a channel ───────────────────────────────────────────────────────────────────────────────────────────


MAX_UNSENT = 1_000
MAX_TEXT_LENGTH = 1_000  # characters of a text


class LedgerQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """The page of sent messages: `after` is how many to skip."""

    after: After = 0
    limit: Limit = 200


class LedgerEntry(Struct, frozen=True, kw_only=True):
    """A message or an inserted text. `tokens` is an estimate."""

    seq: int
    kind: str
    role: str
    tokens: int
    text: str


class UnsentEntry(LedgerEntry, frozen=True, kw_only=True):
    """An entry that the last request did not have. `before` is true if an earlier request on another branch had it."""

    before: bool


class SentEntry(LedgerEntry, frozen=True, kw_only=True):
    """An entry that was sent.

    `acknowledged` is true if the session has it, or if the provider keeps no session and gets everything each time.
    `counted` are its tokens in the last request, as its lines have them; absent if the last request did not have it.
    """

    acknowledged: bool
    counted: int | UnsetType = UNSET


class LedgerView(Struct, frozen=True, kw_only=True):
    """`session` is the provider's session id, and `lost` why it no longer exists.

    `unanswered` is true if a request is running or failed, and the session may contain it. `total` is the number of
    sent messages. `request` is the last request.
    """

    session: str
    lost: str
    unanswered: bool
    epochs: list[ChannelEpoch]
    known: list[SentEntry]
    total: int
    more: bool
    new: list[UnsentEntry]
    request: int = 0


@endpoint("GET", "/conversations/{name}/channels/{channel}/ledger", tag="ledgers")
def show_ledger(app: AppState, name: str, channel: str, query: LedgerQuery) -> LedgerView:
    """Return what was sent on a channel, by epoch, and what was not sent yet."""
    found = find_channel(app.store, name, channel)
    knowledge = load_knowledge(app.store, found)
    news = knowledge.news[:MAX_UNSENT]
    shown = build_item_lines(app.store, knowledge.known[query.after : query.after + query.limit])
    counted = dict(enumerate(knowledge.last.tokens))
    return as_view(
        LedgerView,
        knowledge,
        epochs=load_epochs(app.store, found),
        known=[
            as_view(
                SentEntry,
                line,
                text=line.text[:MAX_TEXT_LENGTH],
                acknowledged=knowledge.acknowledged,
                counted=counted.get(index, UNSET),
            )
            for index, line in enumerate(shown, query.after)
        ],
        total=len(knowledge.known),
        more=query.after + query.limit < len(knowledge.known),
        new=[
            as_view(
                UnsentEntry,
                line,
                text=line.text[:MAX_TEXT_LENGTH],
                before=item.place in knowledge.sent_on_other_branch,
            )
            for item, line in zip(news, build_item_lines(app.store, news), strict=True)
        ],
        request=knowledge.last.record.request,
    )
