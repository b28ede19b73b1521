"""A sent request of a channel: its summary, lines, body, differences and lint findings."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct, field

from contextc._json import decode
from contextc.compiler.account import as_held, formatter_of, located, provider_of, rebuild
from contextc.compiler.differing import Hunk, difference
from contextc.compiler.inspecting import inspected, page
from contextc.compiler.prefix import break_of
from contextc.ledger.standing import Channel
from contextc.providers.by_hand import as_curl, as_python
from contextc.web.accounts import Finding, LineView, RequestView, Shape, findings, line_views, request_view
from contextc.web.channels import channel_at
from contextc.web.desk import Desk
from contextc.web.endpoint import Content, endpoint
from contextc.wire import lint

MUCH = 1 << 31
Number = Annotated[int, Meta(ge=1, le=MUCH)]
After = Annotated[int, Meta(ge=0, le=MUCH)]
Limit = Annotated[int, Meta(ge=1, le=1_000)]


class Page(Struct, frozen=True, forbid_unknown_fields=True):
    """`after` is how many lines to skip. `only` filters lines: "shown" are those that were sent, "left" those that were
    left out, sent as a stub, or shortened.

    `search` selects lines that contain a text. `width` is the maximum number of characters per text; 0 means all. With
    `parts`, each line has its message parts.
    """

    after: After = 0
    limit: Limit = 200
    only: Literal["", "shown", "left"] = ""
    search: str = ""
    width: After = 0
    parts: bool = False


class Form(Struct, frozen=True, forbid_unknown_fields=True):
    """`pretty` indents the JSON; `as` returns a curl command or a Python program."""

    pretty: bool = False
    shape: Literal["", "curl", "python"] = field(default="", name="as")


class Differences(Struct, frozen=True, kw_only=True):
    """`before` is the number of the compared request, null if there is none. `cut` is true if hunks are missing."""

    before: int | None
    unchanged_bytes: int
    hunks: list[Hunk]
    cut: bool


class Findings(Struct, frozen=True, kw_only=True):
    format: str
    violations: list[Finding]


class Lines(Struct, frozen=True, kw_only=True):
    """If there is `more`, the next page has `after` set to `next`."""

    lines: list[LineView]
    more: bool
    next: int


@endpoint("GET", "/conversations/{name}/requests/{channel}/{number}")
def show_request(desk: Desk, name: str, channel: str, number: int) -> RequestView:
    """Return one request: its budget by kind, its shared prefix, and its cost."""
    found = channel_at(desk.store, name, channel)
    formatter = formatter_of(desk.store, found)
    seen = inspected(desk.store, found, number)
    return request_view(seen, formatter.name, break_of(desk.store, found, formatter, number), number)


@endpoint("GET", "/conversations/{name}/requests/{channel}/{number}/lines")
def show_lines(desk: Desk, name: str, channel: str, number: int, query: Page) -> Lines:
    """Return a page of lines of a request, sent or left out, each with its text as sent, reason, tokens and cost."""
    seen = inspected(desk.store, channel_at(desk.store, name, channel), number)
    found = page(seen, after=query.after, limit=query.limit, only=query.only, search=query.search)
    lines = line_views(found.lines, Shape(query.width, query.search, query.parts))
    return Lines(lines=lines, more=found.more, next=found.next)


@endpoint("GET", "/conversations/{name}/requests/{channel}/{number}/body", media_type="application/json")
def show_body(desk: Desk, name: str, channel: str, number: int, query: Form) -> Content:
    """Return the body of a request exactly as sent, indented, or as a runnable snippet without keys."""
    found = channel_at(desk.store, name, channel)
    body = rebuild(desk.store, found, formatter_of(desk.store, found), number)
    if query.shape:
        return Content(_by_hand(desk, found, number, body, query.shape).encode(), "text/plain; charset=utf-8")
    return Content(msgspec.json.format(body, indent=2) if query.pretty else body, "application/json")


def _by_hand(desk: Desk, channel: Channel, number: int, body: bytes, shape: str) -> str:
    whom = provider_of(desk.store, channel)
    _, record = desk.store.read(lambda tx: located(tx, channel, number))
    make = as_curl if shape == "curl" else as_python
    return make(whom, whom.formatter, body, session=record.gave or record.session, directory=channel.directory)


@endpoint("GET", "/conversations/{name}/requests/{channel}/{number}/diff")
def show_difference(desk: Desk, name: str, channel: str, number: int) -> Differences:
    """Return the differences between a request and the previous one. Unchanged parts are folded.

    For a resumed session, the whole context that it holds is compared.
    """
    found = channel_at(desk.store, name, channel)
    formatter = formatter_of(desk.store, found)
    after = as_held(desk.store, found, formatter, number)
    _, record = desk.store.read(lambda tx: located(tx, found, number))
    previous = record.request - 1 or None
    before = as_held(desk.store, found, formatter, previous) if previous is not None else b"{}"
    found_hunks = difference(before, after)
    return Differences(
        before=previous, unchanged_bytes=found_hunks.unchanged, hunks=found_hunks.hunks, cut=found_hunks.cut
    )


@endpoint("GET", "/conversations/{name}/requests/{channel}/{number}/lint")
def show_findings(desk: Desk, name: str, channel: str, number: int) -> Findings:
    """Return the lint findings of a request."""
    found = channel_at(desk.store, name, channel)
    formatter = formatter_of(desk.store, found)
    body = decode(rebuild(desk.store, found, formatter, number))
    return Findings(format=formatter.name, violations=findings(lint(body, format=formatter.name)))
