"""The account of a request as the inspector draws it: its budget, its lines, what it shares with the one before.

One shape for all: a request that was sent, the next one, and whatever somebody pastes.
"""

from collections.abc import Iterable
from typing import Any, Literal, NamedTuple, TypeAlias

from msgspec import Struct

from contextc.compiler.account import model_of
from contextc.compiler.inspecting import Inspected, Paged, PagedLine, Parts, parts_of
from contextc.compiler.prefix import Break
from contextc.draft import Budget
from contextc.formats.checking import Violation
from contextc.manifest import Fragment
from contextc.messages import AnyPart, Usage
from contextc.models import cost
from contextc.web.channels import channel_id

How: TypeAlias = Literal["exact", "measured", "estimated"]
OF_THE_RECORD = ("request", "mode", "epoch", "why", "time", "session", "gave", "remarks", "signed_lost")
State: TypeAlias = Literal["shared", "new", "left", "shown"]
"""Of a line: the request before had it too, or not; it is left out; or there is no request before to compare with."""


class BudgetView(Struct, frozen=True, kw_only=True):
    """Where the tokens go, by kind: from `system` to `free` they add up to `limit`, or to `window` where there is none.

    `used` is what all messages take, `available` what they may; `input` is what the whole request takes, `room` what it
    may. `wanted` is what the messages would have taken, where they were cut down. `how` says whether the figures were
    measured by the provider, counted exactly, or estimated; `estimated` is the whole request as it was foretold.
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
    how: How
    limit: int | None
    wanted: int
    input: int
    room: int | None
    estimated: int


class Broke(Struct, frozen=True, kw_only=True):
    """Where the prefix is another than before, and why. `where` is "system", "tools", "settings", "message 12", or ""
    where it is not; `path` is the same as a path into the request; `line` the first line that is not shared.
    """

    where: str
    path: str
    why: str
    line: int | None


class SharedView(Struct, frozen=True, kw_only=True):
    """The prefix that is the same as in the request before: in tokens of the prompt, the tools and the lines that are
    shared; and in bytes of the messages that are the same.
    """

    tokens: int
    bytes: int
    of_bytes: int
    broke: Broke


class Counts(Struct, frozen=True, kw_only=True):
    """How many lines there are, how many of them were shown, and how many left out. `reduced` is how many of those that
    were shown are a stub or shortened. `tokens` is what those that were shown take.
    """

    lines: int
    shown: int
    left: int
    reduced: int
    tokens: int


class UsageView(Struct, frozen=True, kw_only=True):
    """What the provider counted. `cache_read` and `cache_write` are parts of `input`, `reasoning` of `output`."""

    input: int
    output: int
    cache_read: int
    cache_write: int
    reasoning: int


class Loss(Struct, frozen=True, kw_only=True):
    """What a request would lose of what the one before it had: tokens that a cache held, messages whose signed
    reasoning goes. `dollars` is what it takes to write those tokens again; null where prices are not known.
    """

    cached_lost: int
    cached_kept: int
    signed_lost: int
    dollars: float | None


class AccountView(Struct, frozen=True, kw_only=True):
    """One request, seen from all sides. `time` is when its answer was stored; 0 where it was not sent."""

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
    shared: SharedView
    usage: UsageView | None
    remarks: tuple[str, ...]
    fragments: tuple[Fragment, ...]
    counts: Counts
    signed_lost: int


class RequestView(AccountView, frozen=True, kw_only=True):
    """A request that was sent. `cost` is in dollars, and null where prices or usage are not known.

    `number` is the one it was asked for by: that of the request itself, or one under which a request is kept that was
    not answered.
    """

    cost: float | None
    number: int


class NextView(AccountView, frozen=True, kw_only=True):
    """The next request. `is_new`: there is something to answer. Its lines are the first of them."""

    cost: Loss
    is_new: bool
    lines: list["LineView"]
    more: bool
    next: int


class LineView(Struct, frozen=True, kw_only=True):
    """One message or inserted text of a request. `index` counts from 0: what is shown in its order, then the rest.

    `text` is what the model read, and `original` what is stored, where that is something else. `parts` and
    `original_parts` are the same in parts, where they were asked for.
    """

    index: int
    seq: int
    kind: str
    role: str
    shown: bool
    tokens: int
    cost: float | None
    why: str
    text: str
    state: State
    uid: str
    original: str = ""
    parts: tuple[AnyPart, ...] | None = None
    original_parts: tuple[AnyPart, ...] | None = None


class Finding(Struct, frozen=True, kw_only=True):
    """A rule that a request breaks: where, in our words, in the provider's, and where the rule is explained."""

    code: str
    path: str
    message: str
    provider: str
    docs: str


def findings(violations: Iterable[Violation]) -> list[Finding]:
    return [
        Finding(
            code=each.code, path=each.path, message=each.message, provider=each.error, docs=f"/api/rules/{each.code}"
        )
        for each in violations
    ]


def usage_view(usage: Usage | None) -> UsageView | None:
    return None if usage is None else UsageView(**{name: getattr(usage, name) for name in UsageView.__struct_fields__})


def budget_view(budget: Budget, parts: Parts, estimated: int) -> BudgetView:
    return BudgetView(
        window=budget.window,
        system=parts.system,
        tools=parts.tools,
        dynamic=parts.dynamic,
        history=parts.history,
        new=parts.new,
        reserve=parts.reserve,
        margin=parts.margin,
        free=parts.free,
        used=budget.used,
        available=budget.available,
        how="measured" if budget.measured else "exact" if budget.exact else "estimated",
        limit=budget.limit,
        wanted=budget.wanted,
        input=budget.input,
        room=budget.room,
        estimated=estimated,
    )


def request_view(seen: Inspected, format: str, broke: Break, number: int) -> RequestView:
    known, usage = model_of(seen.channel), seen.record.usage
    dollars = cost(known, usage) if known is not None and usage is not None else None
    return RequestView(cost=dollars, number=number, **_account(seen, format, broke))


def next_view(
    seen: Inspected,
    format: str,
    broke: Break,
    *,
    loss: Loss,
    is_new: bool,
    paged: Paged,
    text: "Shape",
    remarks: tuple[str, ...] = (),
) -> NextView:
    account = _account(seen, format, broke)
    account["remarks"] = (*account["remarks"], *remarks)
    lines = line_views(paged.lines, text)
    return NextView(cost=loss, is_new=is_new, lines=lines, more=paged.more, next=paged.next, **account)


def _account(seen: Inspected, format: str, broke: Break) -> dict[str, Any]:
    """What all accounts have, by the names of its fields."""
    channel, record = seen.channel, seen.record
    left = len(seen.hidden)
    line = seen.shared if broke.where and seen.shared < len(seen.items) else None
    same = (record.shared_bytes if broke.same is None else broke.same) if seen.shared else 0
    shared = SharedView(
        tokens=seen.shared_tokens,
        bytes=min(same, seen.size),
        of_bytes=seen.size,
        broke=Broke(where=broke.where, path=broke.path, why=broke.why, line=line),
    )
    return {
        **{name: getattr(record, name) for name in OF_THE_RECORD},
        **{name: getattr(channel, name) for name in ("agent", "provider", "model", "directory")},
        "channel": channel_id(channel),
        "format": format,
        "budget": budget_view(seen.budget, parts_of(seen), record.budget.input),
        "shared": shared,
        "usage": usage_view(record.usage),
        "fragments": seen.fragments,
        "counts": Counts(
            lines=len(seen.items) + left,
            shown=len(seen.items),
            left=left,
            reduced=len(seen.reduced),
            tokens=sum(seen.tokens),
        ),
    }


class Shape(NamedTuple):
    """How much of its text a line carries: at most `width` characters, around what is searched for; 0 is all of it."""

    width: int = 0
    search: str = ""
    parts: bool = False

    def cut(self, text: str) -> str:
        if not self.width or len(text) <= self.width:
            return text
        at = max(0, text.lower().find(self.search.lower()) - self.width // 3) if self.search else 0
        end = at + self.width
        return f"{'…' if at else ''}{text[at:end]}{'…' if end < len(text) else ''}"


WHOLE = Shape()


def line_views(lines: Iterable[PagedLine], shape: Shape = WHOLE) -> list[LineView]:
    return [
        LineView(
            index=each.number,
            seq=each.line.seq,
            kind=each.line.kind,
            role=each.line.role,
            shown=each.line.shown,
            tokens=each.line.tokens,
            cost=each.cost,
            why=each.line.why,
            text=shape.cut(each.line.text),
            state="left" if not each.line.shown else "shared" if each.is_shared else "new",
            uid=each.uid,
            original=shape.cut(each.line.original),
            parts=each.sent if shape.parts else None,
            original_parts=each.original if shape.parts else None,
        )
        for each in lines
    ]
