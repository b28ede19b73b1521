"""What the model saw: one request of a channel, its lines, its bytes, what is new in it, and what is wrong with it."""

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
    """`after` is how many lines to pass over, `only` which of them are wanted: all, if it is not said. "left" are those
    that were left out, and those that were shown as a stub or shortened.

    `search`: those alone that have these words. `width` is how many characters of a text are wanted at most: all, if it
    is 0. With `parts`, each line has its parts too.
    """

    after: After = 0
    limit: Limit = 200
    only: Literal["", "shown", "left"] = ""
    search: str = ""
    width: After = 0
    parts: bool = False


class Form(Struct, frozen=True, forbid_unknown_fields=True):
    """`pretty` prints it for people; `as` makes a command of it, or a program."""

    pretty: bool = False
    shape: Literal["", "curl", "python"] = field(default="", name="as")


class Differences(Struct, frozen=True, kw_only=True):
    """`before` is the number of the request it is compared with, null where there is none. `cut`: there is more."""

    before: int | None
    unchanged_bytes: int
    hunks: list[Hunk]
    cut: bool


class Findings(Struct, frozen=True, kw_only=True):
    format: str
    violations: list[Finding]


class Lines(Struct, frozen=True, kw_only=True):
    """Where there is `more`, it begins with `after=` what `next` says."""

    lines: list[LineView]
    more: bool
    next: int


@endpoint("GET", "/conversations/{name}/requests/{channel}/{number}")
def show_request(desk: Desk, name: str, channel: str, number: int) -> RequestView:
    """One request: its budget by kind, what it shares with the one before and where that ends, what it cost."""
    found = channel_at(desk.store, name, channel)
    formatter = formatter_of(desk.store, found)
    seen = inspected(desk.store, found, number)
    return request_view(seen, formatter.name, break_of(desk.store, found, formatter, number), number)


@endpoint("GET", "/conversations/{name}/requests/{channel}/{number}/lines")
def show_lines(desk: Desk, name: str, channel: str, number: int, query: Page) -> Lines:
    """A page of the messages of a request, in or out: each as the model read it, with its reason, tokens and cost."""
    seen = inspected(desk.store, channel_at(desk.store, name, channel), number)
    found = page(seen, after=query.after, limit=query.limit, only=query.only, search=query.search)
    lines = line_views(found.lines, Shape(query.width, query.search, query.parts))
    return Lines(lines=lines, more=found.more, next=found.next)


@endpoint("GET", "/conversations/{name}/requests/{channel}/{number}/body", media_type="application/json")
def show_body(desk: Desk, name: str, channel: str, number: int, query: Form) -> Content:
    """The request as it went out, to the byte; printed for people; or as something to run, without any key in it."""
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
    """What a request has that the one before it had not, and the other way round. What is the same is folded.

    Where a session is gone on with, compared is what it held.
    """
    found = channel_at(desk.store, name, channel)
    formatter = formatter_of(desk.store, found)
    after = as_held(desk.store, found, formatter, number)
    _, record = desk.store.read(lambda tx: located(tx, found, number))
    previous = record.request - 1 or None
    before = as_held(desk.store, found, formatter, previous) if previous is not None else b"{}"
    told = difference(before, after)
    return Differences(before=previous, unchanged_bytes=told.unchanged, hunks=told.hunks, cut=told.cut)


@endpoint("GET", "/conversations/{name}/requests/{channel}/{number}/lint")
def show_findings(desk: Desk, name: str, channel: str, number: int) -> Findings:
    """What the provider would refuse in a request."""
    found = channel_at(desk.store, name, channel)
    formatter = formatter_of(desk.store, found)
    body = decode(rebuild(desk.store, found, formatter, number))
    return Findings(format=formatter.name, violations=findings(lint(body, format=formatter.name)))
