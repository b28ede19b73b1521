"""`contextc explain`: print the manifest of a committed request."""

from collections.abc import Container, Sequence
from typing import Annotated, NamedTuple

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table

from contextc._json import JSONObject
from contextc.cli.command_line import Argument, Option
from contextc.cli.console import JSONOption, escape_markup, format_dollars, out, print_json, replace_control_characters
from contextc.cli.inputs import RequestOption, StoreOption, open_configured_store, parse_request, write_output
from contextc.compiler import Cost
from contextc.compiler.draft import Budget
from contextc.compiler.ledger import KnownSession, SessionManager
from contextc.compiler.manifest import (
    Manifest,
    ManifestLine,
    RequestRecord,
    describe_epoch,
    describe_mode,
    describe_observed,
    shorten,
)
from contextc.compiler.past_requests import (
    compute_usage_bill,
    explain,
    find_request,
    load_channel_formatter,
    load_records,
    rebuild,
)
from contextc.errors import ContextOverflow, InvalidInput, InvalidSetting
from contextc.inspection.request_timeline import UnansweredRequest, load_unanswered_requests
from contextc.messages import remove_client_context
from contextc.models import Bill
from contextc.store import Store
from contextc.store.approvals import load_ruled
from contextc.store.ledger_schema import Channel, channel_id
from contextc.store.message_log import FIRST_UNANSWERED

# ── tables ────────────────────────────────────────────────────────────────────────────────────────────────────────────
# Manifest of a request as text: figures, a bar of the budget, a row for each message.
#
# `compile` and `explain` share it. The bar has another character for each kind, so that it is readable without
# colours. On a narrow terminal, message texts are cut first. Numbers and roles are never cut, and reasons wrap between
# words.


BAR, MIN_BAR, MAX_ROWS, MAX_RULED = 72, 20, 200, 20
MIN_TEXT_WIDTH, MIN_REASON_WIDTH = 12, 16
CELL_PADDING = 2  # spaces of rich around a cell
EPOCH_COLUMN, IN_SESSION = "reason for new epoch", "in the session"
FIGURES = ("needed", "available", "window", "system", "tools", "reserve", "margin", "pinned")


def print_manifest(manifest: Manifest, *, is_failed: bool = False) -> None:
    record, channel = manifest.record, manifest.channel
    number = f"{record.request}{' (failed)' if is_failed else ''}"
    out.print(
        f"[bold]{escape_markup(channel.conversation)}[/]: request {number} for {escape_markup(str(channel))}",
        soft_wrap=True,
    )
    begins = f" [yellow](a new epoch: {escape_markup(describe_epoch(record.why))})[/]" if record.why else ""
    session = f", session {escape_markup(record.session)}" if record.session else ""
    out.print(f"mode {record.mode}, epoch {record.epoch}{begins}{session}", soft_wrap=True)
    if record.observed is not None:
        out.print(escape_markup(describe_observed(record.observed)), soft_wrap=True)
    _show_budget(manifest.budget)
    if manifest.budget.input != record.budget.input:
        out.print(f"estimated before sending: {record.budget.input:,} tokens", soft_wrap=True)
    shared = f"shared with the previous request: {record.shared_tokens:,} tokens, {record.shared_bytes:,} bytes"
    out.print(shared, soft_wrap=True)
    for remark in record.remarks:
        out.print(f"[yellow]! {escape_markup(remark)}[/]", soft_wrap=True)
    out.print()
    rows = [
        ManifestRow(
            each.shown,
            "",
            "system",
            _figure(each.tokens),
            f"static fragment {each.id}",
            "" if each.shown else IN_SESSION,
        )
        for each in manifest.fragments
        if each.lifecycle == "static"
    ]
    rows += [
        ManifestRow(
            line.sent,
            str(line.seq or ""),
            line.role,
            _figure(line.tokens),
            _describe(line),
            line.why if line.sent or not line.shown else IN_SESSION,
        )
        for line in manifest.lines
    ]
    half = MAX_ROWS // 2
    if len(rows) > MAX_ROWS:
        more = ManifestRow(True, "", "", "", f"… {len(rows) - MAX_ROWS:,} more (--json prints all)", "")
        rows = [*rows[:half], more, *rows[-half:]]
    out.print(_table(rows), crop=False)


class ManifestRow(NamedTuple):
    """A row of the table. `what` and `why` are raw text, which is sanitized when it is printed."""

    sent: bool
    seq: str
    role: str
    tokens: str
    what: str
    why: str


def _table(rows: Sequence[ManifestRow]) -> Table:
    """Return the table, fitted to the width of the terminal. A terminal too narrow for all columns wraps the lines."""
    seq, role, tokens, what, why = (
        max([len(name), *(cell_len(row[1:][column]) for row in rows)])
        for column, name in enumerate(("seq", "role", "tokens", "what", "why"))
    )
    taken = 1 + seq + role + tokens + 6 * CELL_PADDING
    what, why = _column_widths(out.width - taken, what, why)
    table = Table("", box=None, header_style="bold", width=taken + what + why)
    table.add_column("seq", justify="right", width=seq, no_wrap=True)
    table.add_column("role", width=role, no_wrap=True)
    table.add_column("tokens", justify="right", width=tokens, no_wrap=True)
    table.add_column("what", width=what, no_wrap=True, overflow="ellipsis")
    table.add_column("why", width=why, overflow="fold")
    for row in rows:
        mark = ("[green]+[/]" if row.sent else "=" if row.why == IN_SESSION else "[red]-[/]") if row.role else ""
        table.add_row(mark, *row[1:4], escape_markup(row.what), escape_markup(row.why), style="" if row.sent else "dim")
    return table


def _column_widths(room: int, what: int, why: int) -> tuple[int, int]:
    """Return the widths of texts and reasons: texts shrink first, reasons down to half of the width."""
    if what + why > room:
        why = min(why, max(MIN_REASON_WIDTH, room - what, room // 2))
        what = min(what, max(MIN_TEXT_WIDTH, room - why))
    return what, why


def _figure(tokens: int) -> str:
    return f"{tokens:,}" if tokens else ""


def _describe(line: ManifestLine) -> str:
    """Return the beginning of a line's text. In messages of users, the context of their client is left out."""
    if line.kind != "message":
        return f"{line.kind}: {shorten(line.text)}"
    return shorten((remove_client_context(line.text) if line.role == "user" else "") or line.text)


def _show_budget(budget: Budget) -> None:
    how = "measured" if budget.measured else "exact" if budget.exact else "estimated"
    out.print(
        f"input {budget.input:,} tokens ({how}); messages take {budget.share:.0%} of {budget.available:,} available",
        soft_wrap=True,
    )
    room = budget.limit or budget.window
    kinds = [
        ("system", "█", "magenta", budget.system),
        ("tools", "▓", "blue", budget.tools),
        ("added by the provider or program", "▚", "cyan", budget.used - budget.messages),
        ("messages", "▒", "green", budget.messages),
        ("reserve", "░", "yellow", budget.reserve),
        ("margin", "-", "dim", budget.margin),
    ]
    free = max(0, room - sum(tokens for *_, tokens in kinds))
    kinds.append(("free", "·", "dim", free))
    bar = max(MIN_BAR, min(BAR, out.width - len(f" {room:,}")))
    widths = _bar_widths([tokens for *_, tokens in kinds], bar)
    cells = [f"[{style}]{sign * width}[/]" for (_, sign, style, _), width in zip(kinds, widths, strict=True)]
    out.print("".join(cells) + f" {room:,}", soft_wrap=True)
    _show_legend([(f"{sign} {name} {tokens:,}", style) for name, sign, style, tokens in kinds if tokens])


def _show_legend(kinds: Sequence[tuple[str, str]]) -> None:
    """Print the legend of the bar, wrapped to the width of the terminal."""
    used, line = 0, ""
    for label, style in kinds:
        if used and used + CELL_PADDING + len(label) > out.width:
            out.print(line, soft_wrap=True)
            used, line = 0, ""
        line += " " * (CELL_PADDING if used else 0) + f"[{style}]{label[0]}[/]{label[1:]}"
        used += len(label) + (CELL_PADDING if used else 0)
    out.print(line, soft_wrap=True)


def _bar_widths(sizes: Sequence[int], width: int) -> list[int]:
    """Return the number of cells of each size: at least one if it is not 0, and `width` in total."""
    total = sum(sizes) or 1
    cells = [max(1, size * width // total) if size else 0 for size in sizes]
    largest = cells.index(max(cells))
    cells[largest] += width - sum(cells)
    return cells


def print_cost(cost: Cost, lost: Bill | None) -> None:
    about = "" if lost is None or lost.is_lower_bound else "about "
    dollars = f", {about}{lost} to cache them again" if lost is not None and lost.dollars else ""
    out.print(
        f"\ncost: {cost.cached_tokens_lost:,} tokens of the cached prefix are lost{dollars}, "
        f"{cost.cached_tokens_kept:,} are kept; {cost.signed_reasoning_lost:,} messages lose their signed reasoning",
        soft_wrap=True,
    )


def print_overflow(error: ContextOverflow, console: Console) -> None:
    console.print(f"[bold red]does not fit:[/] {escape_markup(str(error))}", soft_wrap=True)
    table = Table("tokens", box=None, header_style="bold")
    table.add_column("", justify="right")
    for name, value in overflow_figures(error).items():
        table.add_row(name, f"{value:,}")
    console.print(table)


def overflow_figures(error: ContextOverflow) -> dict[str, int]:
    return {name: getattr(error, name) for name in FIGURES}


def print_requests(records: Sequence[tuple[RequestRecord, Bill | None]], failed: Container[int] = ()) -> None:
    """Print requests as a table, with known costs. Reasons that do not fit are printed below. `failed` are the indexes
    of those without an answer.
    """
    rows = [_request_row(record, bill, is_failed=at in failed) for at, (record, bill) in enumerate(records)]
    names = ("request", "mode", "epoch", "input", "shared", "output", "cost")
    widths = [max([len(name), *(len(row[index]) for row in rows)]) for index, name in enumerate(names)]
    room = out.width - sum(widths) - CELL_PADDING * (len(names) + 1)
    beside = room >= MIN_REASON_WIDTH
    why = (
        min(room, max([len(EPOCH_COLUMN), *(cell_len(describe_epoch(record.why)) for record, _ in records)]))
        if beside
        else -CELL_PADDING
    )
    table = Table(box=None, header_style="bold", width=out.width - room + why)
    for name, width in zip(names, widths, strict=True):
        table.add_column(name, justify="left" if name == "mode" else "right", width=width, no_wrap=True)
    if beside:
        table.add_column(EPOCH_COLUMN, width=why, overflow="fold")
    for row, (record, _) in zip(rows, records, strict=True):
        table.add_row(*row, *([escape_markup(describe_epoch(record.why))] if beside else []))
    out.print(table, crop=False)
    for record, _ in () if beside else records:
        if record.why:
            out.print(
                f"request {record.request} starts epoch {record.epoch}: {escape_markup(describe_epoch(record.why))}",
                soft_wrap=True,
            )


def _cost_fields(bill: Bill | None) -> JSONObject:
    bound: JSONObject = {"cost_is_lower_bound": True} if bill is not None and bill.is_lower_bound else {}
    return {"cost": bill.dollars if bill is not None else None, **bound}


def _request_row(record: RequestRecord, bill: Bill | None, *, is_failed: bool) -> tuple[str, ...]:
    usage = record.usage
    reported = " reported" if usage is not None and usage.dollars is not None else ""
    return (
        f"{record.request} (failed)" if is_failed else str(record.request),
        record.mode if record.observed is None else describe_mode(record.observed),
        str(record.epoch),
        f"{record.corrected_budget.input:,}",
        f"{record.shared_tokens:,}",
        f"{usage.output:,}" if usage else "",
        format_dollars(bill.dollars, is_lower_bound=bill.is_lower_bound) + reported if bill is not None else "",
    )


# ── the command ───────────────────────────────────────────────────────────────────────────────────────────────────────


NO_REQUESTS = (
    "{name!r} has no committed request. A program commits one with `attempt.commit(reply)`. "
    "Preview the next request with `contextc compile`."
)


def run(
    conversation: Annotated[str, Argument(help="The conversation's name.")],
    number: Annotated[int | None, Argument(help="The same as --request.", metavar="NUMBER")] = None,
    request: RequestOption = None,
    model: Annotated[str | None, Option("--model", "-m", help="Provider and model, to select a channel.")] = None,
    agent: Annotated[str | None, Option("--agent", help="The agent, to select a channel.")] = None,
    directory: Annotated[str | None, Option("--directory", help="The directory, to select a channel.")] = None,
    requests: Annotated[bool, Option("--requests", help="List all requests instead.")] = False,
    failed: Annotated[
        bool, Option("--failed", help="The request without an answer, which --requests lists as failed.")
    ] = False,
    body: Annotated[bool, Option("--body", help="Print the exact request that was sent.")] = False,
    store: StoreOption = None,
    json: JSONOption = False,
) -> None:
    """Show the content of a request: what was sent, what was left out, and why. Without --request, of the last one."""
    if number is not None and request is not None:
        raise InvalidSetting("explain: two requests are given", fix="Pass the number or --request.")
    named, asked = parse_request(request)
    asked = number if request is None else asked
    with open_configured_store(store) as handle:
        found = find_channels(handle, conversation, model, agent, directory, named)
        if requests and (len(found) == 1 or not json):
            for each in found:
                _print_requests(handle, each.channel, json=json)
            return
        if len(found) > 1:
            _print_channels(found, json=json)
            return
        channel = found[0].channel
        asked = _find_failed(handle, channel, asked) if failed else asked
        if body:
            write_output("-", rebuild(handle, channel, load_channel_formatter(handle, channel), asked))
        else:
            manifest = explain(handle, channel, asked)
            if json:
                print_json(manifest.as_json())
            else:
                print_manifest(manifest, is_failed=asked is not None and asked > FIRST_UNANSWERED)
                _print_ruled(handle, manifest)


def _print_ruled(store: Store, manifest: Manifest) -> None:
    """Print which calls in the request rules have answered, the last ones."""
    seqs = {line.seq for line in manifest.lines if line.seq}
    ruled = [
        (each, text)
        for each, text in store.read(lambda tx: load_ruled(tx, manifest.channel.conversation))
        if each.seq in seqs or not each.seq
    ]
    for each, text in ruled[-MAX_RULED:]:
        where = f"message {each.seq}" if each.seq else f"turn {each.turn}"
        out.print(replace_control_characters(f"{where}: {each.name}: {text}"), soft_wrap=True, markup=False)


def _load_failed(store: Store, channel: Channel) -> list[UnansweredRequest]:
    """Return the stored requests of a channel that have no answer, oldest first."""
    return [each for each in load_unanswered_requests(store, channel.conversation, channel) if each.number is not None]


def _find_failed(store: Store, channel: Channel, request: int | None) -> int:
    """Return the number to inspect a failed request by: the last one, or the last one of a number."""
    found = _load_failed(store, channel)
    chosen = [each.number for each in found if each.number is not None and request in (None, each.request)]
    if not chosen:
        there = ", ".join(dict.fromkeys([str(each.request) for each in found])) or "none"
        raise InvalidInput(
            f"{channel.conversation!r} has no failed request{'' if request is None else f' {request}'}",
            fix=f"Failed requests: {there}.",
        )
    return chosen[-1]


def _print_requests(store: Store, channel: Channel, *, json: bool) -> None:
    """Print the requests of a channel. One without an answer is before the one that was sent in its place, and not in
    JSON, where a number has one record.
    """
    lost = [
        (store.read(lambda tx, number=each.number: find_request(tx, channel, number))[1], each)
        for each in _load_failed(store, channel)
    ]
    rows = [(record, compute_usage_bill(channel, record.usage), False) for record in load_records(store, channel)]
    rows += [(record, _to_bill(each), True) for record, each in lost]
    rows.sort(key=lambda row: (row[0].request, not row[2]))
    if json:
        print_json([{"record": record, **_cost_fields(bill)} for record, bill, is_failed in rows if not is_failed])
    else:
        out.print(f"[bold]{escape_markup(channel.conversation)}[/]: {escape_markup(str(channel))}")
        failed = {at for at, (*_, is_failed) in enumerate(rows) if is_failed}
        print_requests([(record, bill) for record, bill, _ in rows], failed)
        if failed:
            out.print("[dim]Failed requests have no answer. Show one with --failed and its number.[/]", soft_wrap=True)


def _to_bill(request: UnansweredRequest) -> Bill | None:
    return Bill(request.cost, request.cost_is_lower_bound) if request.cost is not None else None


def find_channels(
    store: Store,
    conversation: str,
    model: str | None,
    agent: str | None,
    directory: str | None,
    channel: str = "",
) -> list[KnownSession]:
    """Return the matching channels of a conversation that have committed requests. `channel` is the id of one."""
    store.conversation(conversation)  # raises if it does not exist
    found = [each for each in SessionManager(store).sessions(conversation) if each.requests]
    if not found:
        raise InvalidInput(NO_REQUESTS.format(name=conversation))
    chosen = [
        each
        for each in found
        if _matches(each.channel, model, agent, directory) and channel in ("", channel_id(each.channel))
    ]
    if not chosen:
        there = "; ".join(str(each.channel) for each in found)
        raise InvalidSetting(f"{conversation!r} has no matching channel", fix=f"Select one of: {there}.")
    return chosen


def _matches(channel: Channel, model: str | None, agent: str | None, directory: str | None) -> bool:
    named = model is None or model in (channel.model, f"{channel.provider}:{channel.model}")
    return named and agent in (None, channel.agent) and directory in (None, channel.directory)


def _print_channels(found: list[KnownSession], *, json: bool) -> None:
    if json:
        print_json([{**each.channel._asdict(), "requests": each.requests, "epoch": each.epoch} for each in found])
        return
    out.print("several channels; select one with --model, --agent or --directory, or list all with --requests")
    table = Table(box=None, header_style="bold")
    for name in ("agent", "model", "directory", "requests", "epoch", "session"):
        figure = name in ("requests", "epoch")
        table.add_column(name, justify="right" if figure else "left", no_wrap=figure, overflow="fold")
    for each in found:
        channel = each.channel
        table.add_row(
            escape_markup(channel.agent),
            escape_markup(f"{channel.provider}:{channel.model}"),
            escape_markup(channel.directory),
            f"{each.requests:,}",
            f"{each.epoch:,}",
            escape_markup(each.id or each.lost),
        )
    out.print(table)
