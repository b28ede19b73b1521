"""A sent request of a channel: its summary, lines, body, differences and lint findings."""

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType, field

from contextc._json import decode
from contextc.compiler.past_requests import (
    find_request,
    load_channel_formatter,
    load_channel_provider,
    rebuild,
    rebuild_session_view,
    was_answered,
)
from contextc.inspection.diff import Hunk, diff_requests
from contextc.inspection.prefix_break import find_break
from contextc.inspection.request_details import load_request_details
from contextc.inspection.request_timeline import find_request_of_message
from contextc.linting import lint
from contextc.providers.snippets import as_curl, as_python
from contextc.store.ledger_schema import Channel
from contextc.web.api.comparison import OtherRequestQuery, find_other_request
from contextc.web.app_state import AppState
from contextc.web.channel_list import channel_id, find_channel
from contextc.web.endpoint_registry import RawResponse, endpoint
from contextc.web.line_query import CauseFilter, LineOrder, StateFilter, query_lines
from contextc.web.request_view import (
    FindingView,
    LineTextOptions,
    LineView,
    RequestView,
    SelectionView,
    finding_views,
    line_views,
    request_view,
)

TAG = "requests"
MAX_NUMBER = 1 << 31
Number = Annotated[int, Meta(ge=1, le=MAX_NUMBER)]
After = Annotated[int, Meta(ge=0, le=MAX_NUMBER)]
Limit = Annotated[int, Meta(ge=1, le=1_000)]


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


class BodyQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """`pretty` indents the JSON; `as` returns a curl command or a Python program."""

    pretty: bool = False
    shape: Literal["", "curl", "python"] = field(default="", name="as")


class DiffView(Struct, frozen=True, kw_only=True):
    """`before` is the number of the compared request, null if there is none. `cut` is true if hunks are missing."""

    before: int | None
    unchanged_bytes: int
    hunks: list[Hunk]
    cut: bool


class RequestFindings(Struct, frozen=True, kw_only=True):
    format: str
    violations: list[FindingView]


class LinesPage(Struct, frozen=True, kw_only=True):
    """If there is `more`, the next page has `after` set to `next`."""

    lines: list[LineView]
    more: bool
    next: int
    selection: SelectionView | UnsetType = UNSET


class MessageRequestView(Struct, frozen=True, kw_only=True):
    """The first request that contains a message. `line` is the index of its line; null if the message is the reply.

    `channel` is "" and `request` 0 if no request contains it.
    """

    channel: str
    request: int
    line: int | None


@endpoint("GET", "/conversations/{name}/messages/{number}/request")
def show_request_of_message(app: AppState, name: str, number: int) -> MessageRequestView:
    """Return the first request that contains the message with a seq, or the request whose reply it is."""
    found = find_request_of_message(app.store, name, number)
    if found is None:
        return MessageRequestView(channel="", request=0, line=None)
    return MessageRequestView(channel=channel_id(found.channel), request=found.request, line=found.line)


@endpoint("GET", "/conversations/{name}/requests/{channel}/{number}")
def show_request(app: AppState, name: str, channel: str, number: int) -> RequestView:
    """Return one request: its budget by kind, its shared prefix, and its cost."""
    found = find_channel(app.store, name, channel)
    formatter = load_channel_formatter(app.store, found)
    seen = load_request_details(app.store, found, number)
    return request_view(seen, formatter.name, find_break(app.store, found, formatter, number), number)


@endpoint("GET", "/conversations/{name}/requests/{channel}/{number}/lines")
def show_lines(app: AppState, name: str, channel: str, number: int, query: LinesQuery) -> LinesPage:
    """Return a page of lines of a request, sent or left out, each with its text as sent, reason, tokens and cost."""
    seen = load_request_details(app.store, find_channel(app.store, name, channel), number)
    found = query_lines(seen, query)
    lines = line_views(found.page.lines, LineTextOptions(query.width, query.search, query.parts))
    return LinesPage(lines=lines, more=found.page.more, next=found.page.next, selection=found.selection)


@endpoint("GET", "/conversations/{name}/requests/{channel}/{number}/body", media_type="application/json")
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
    return make(provider, provider.formatter, body, session=record.gave or record.session, directory=channel.directory)


@endpoint("GET", "/conversations/{name}/requests/{channel}/{number}/diff")
def show_difference(app: AppState, name: str, channel: str, number: int, query: OtherRequestQuery) -> DiffView:
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
    found_hunks = diff_requests(before, after)
    return DiffView(
        before=previous[1] if previous is not None else None,
        unchanged_bytes=found_hunks.unchanged,
        hunks=found_hunks.hunks,
        cut=found_hunks.cut,
    )


@endpoint("GET", "/conversations/{name}/requests/{channel}/{number}/lint")
def show_findings(app: AppState, name: str, channel: str, number: int) -> RequestFindings:
    """Return the lint findings of a request. An observed one that was answered has none."""
    found = find_channel(app.store, name, channel)
    formatter = load_channel_formatter(app.store, found)
    body = decode(rebuild(app.store, found, formatter, number))
    violations = lint(body, format=formatter.name, answered=was_answered(app.store, found, number))
    return RequestFindings(format=formatter.name, violations=finding_views(violations))
