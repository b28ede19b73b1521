"""`contextc lint`, `fix` and `convert`: check, repair and convert requests in files."""

from contextlib import suppress
from typing import Annotated, cast

from rich.table import Table

from contextc._json import JSON, JSONObject, decode_json
from contextc.cli.command_line import Argument, Exit, Option
from contextc.cli.console import FormatOption, JSONOption, err, escape_markup, out, pluralize, print_json
from contextc.cli.explain import find_channels
from contextc.cli.inputs import (
    RequestOption,
    StoreOption,
    open_configured_store,
    parse_request,
    read_input,
    write_output,
)
from contextc.cli.sarif import SarifOption, SarifResult, SarifRule, conversation_uri, file_uri, make_sarif
from contextc.compiler.past_requests import load_channel_formatter, rebuild, was_answered
from contextc.errors import InvalidInput, InvalidRequest, InvalidSetting
from contextc.formats import format_names
from contextc.formats.rules_docs import find_rule
from contextc.interchange.open_any import detect_format, is_request_log, recorded_requests
from contextc.linting import Violation, convert, fix, lint
from contextc.linting.request_reading import (
    RequestFile,
    describe_unreadable_lines,
    detect_session_format,
    layout_for,
    read_requests,
    write_requests,
)
from contextc.store import Store
from contextc.store.ledger_schema import Channel

MAX_VIOLATIONS = 200
MAX_LEFT_OUT = 5
FILE_HELP = (
    "JSON or JSON Lines: requests, messages, or a session of Claude Code or Codex; a HAR recording; a log of requests; "
    "- for standard input."
)
FileArgument = Annotated[
    str,
    Argument(
        help="JSON or JSON Lines: requests, messages, or a session of Claude Code or Codex; - for standard input."
    ),
]


def lint_files(
    file: Annotated[str | None, Argument(help=FILE_HELP)] = None,
    format: FormatOption = None,
    conversation: Annotated[
        str | None, Option("--conversation", "-c", help="Check a stored request of this conversation instead.")
    ] = None,
    request: RequestOption = None,
    model: Annotated[
        str | None, Option("--model", "-m", help="With --conversation: provider and model (default: all).")
    ] = None,
    store: StoreOption = None,
    json: JSONOption = False,
    sarif: SarifOption = False,
) -> None:
    """Report every provider rule that a request violates. Exit code 1 if there is one.

    A recorded request that was answered violates none.
    """
    if json and sarif:
        raise InvalidSetting("--json and --sarif cannot be used together", fix="Pass one of them.")
    if (file is None) == (conversation is None):
        raise InvalidSetting("lint needs a file or --conversation", fix="Pass one of them.")
    if conversation is None and (request, model, store) != (None, None, None):
        raise InvalidSetting("--request, --model and --store need --conversation", fix="Add --conversation.")
    if conversation is not None:
        found = _lint_stored(conversation, request, model, store)
        several = len(found) > 1
    elif (recorded := recorded_requests(data := read_input(file or "-"), format)) is not None:
        several = True
        found = [
            (f"{each.label}, {each.format}", lint(each.body, format=each.format, answered=each.answered))
            for each in recorded.requests
        ]
        err.print(f"{recorded.kind}: {pluralize(len(found), 'model request')}", soft_wrap=True)
        if recorded.left_out:
            some = ", ".join(recorded.left_out[:MAX_LEFT_OUT]) + (
                ", …" if len(recorded.left_out) > MAX_LEFT_OUT else ""
            )
            number = pluralize(len(recorded.left_out), "item")
            err.print(f"left out: {number} without a request: {some}", soft_wrap=True)
    else:
        requests, known = load_requests(file or "-", format, data=data)
        several = requests.layout == "lines"
        found = [
            (requests.position_label(index), lint(body, format=known)) for index, body in enumerate(requests.bodies)
        ]
    if sarif:
        uri = file_uri(file) if file is not None else conversation_uri(conversation or "")
        print_json(_make_sarif(uri, found))
    elif json:
        print_json(
            [{"where": where, "violations": violations} for where, violations in found] if several else found[0][1]
        )
    else:
        total = sum(len(violations) for _, violations in found)
        for where, violations in found:
            if violations:
                _show(where, violations)
        out.print(pluralize(total, "violation") if total else "no violations")
    if any(violations for _, violations in found):
        raise Exit(1)


def _make_sarif(uri: str, found: list[tuple[str, list[Violation]]]) -> JSONObject:
    codes = {each.code for _, violations in found for each in violations}
    rules = [find_rule(code) for code in sorted(codes)]
    return make_sarif(
        [SarifRule(each.code, each.title, each.reason, each.repair) for each in rules],
        [
            SarifResult(each.code, "error", each.message, uri, each.path, {"where": where, "provider": each.error})
            for where, violations in found
            for each in violations
        ],
    )


def _lint_stored(
    conversation: str, request: str | None, model: str | None, store: str | None
) -> list[tuple[str, list[Violation]]]:
    """Check the request as it was sent on each channel: the given one, or the last one."""
    channel, number = parse_request(request)
    with open_configured_store(store) as handle:
        return [
            (where, lint(body, format=format, answered=answered))
            for where, body, format, answered in load_stored_requests(handle, conversation, number, model, channel)
        ]


def load_stored_requests(
    store: Store, conversation: str, request: int | None, model: str | None, channel: str = ""
) -> list[tuple[str, JSON, str, bool]]:
    """Return the request of each channel: the channel, the body, its format, and whether it was answered."""
    found: list[tuple[str, JSON, str, bool]] = []
    for each in find_channels(store, conversation, model, None, None, channel):
        form = load_channel_formatter(store, each.channel)
        body = rebuild(store, each.channel, form, request)
        answered = was_answered(store, each.channel, request)
        found.append((str(each.channel), _decode_body(body, each.channel), form.name, answered))
    return found


def _decode_body(body: bytes, channel: Channel) -> JSONObject:
    try:
        found = decode_json(body)
    except ValueError as error:
        raise InvalidInput(f"the body of the request to {channel.model} is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise InvalidInput(f"the body of the request to {channel.model} is not a JSON object")
    return cast(JSONObject, found)


def _show(where: str, violations: list[Violation]) -> None:
    table = Table(title=where or None, box=None)
    table.add_column("code", no_wrap=True)
    for heading in ("where", "problem, and error of the provider"):
        table.add_column(heading, overflow="fold")  # a cut text cannot be searched for
    for each in violations[:MAX_VIOLATIONS]:
        error = f"\n[dim]{escape_markup(each.error)}[/]" if each.error else ""
        table.add_row(each.code, escape_markup(each.path), escape_markup(each.message) + error)
    out.print(table)
    if len(violations) > MAX_VIOLATIONS:
        out.print(f"… and {len(violations) - MAX_VIOLATIONS:,} more (--json prints all)")


def load_requests(
    file: str, format: str | None, option: str = "--format", *, data: bytes | None = None
) -> tuple[RequestFile, str]:
    """Return the requests in a file, and their format: the given one, or else the recognised one.

    `data` is the content of the file, if it was read already.
    """
    data = read_input(file) if data is None else data
    try:
        known = format or _detect_format(data, option)
        if not known and is_request_log(data):
            raise InvalidSetting(
                f"{_display_name(file)} is a log of requests, and this command needs the requests alone",
                fix="Check the log with `contextc lint`, or import it with `contextc import`.",
            )
        if not known:
            raise InvalidSetting(
                f"{_display_name(file)}: the format cannot be recognised",
                fix=f"Pass {option}, one of {', '.join(format_names())}.",
            )
        found = read_requests(data, known)
    except InvalidRequest as error:
        raise InvalidRequest(
            error.problem, path=", ".join(filter(None, [_display_name(file), error.path])), fix=error.fix
        ) from error
    if found.unreadable_lines:
        err.print(f"left out: {describe_unreadable_lines(found.unreadable_lines)}", soft_wrap=True)
    return found, known


def _detect_format(data: bytes, option: str) -> str:
    """Return the format of a program's session, or of the requests in a file; "" if it cannot be recognised."""
    with suppress(InvalidSetting):
        return detect_session_format(data)
    bodies = read_requests(data).bodies
    try:
        formats = {detect_format(body) for body in bodies}
    except InvalidRequest:
        return ""
    if len(formats) != 1:
        return ""
    (found,) = formats
    err.print(f"format: {found} (recognised; override it with {option})", soft_wrap=True)
    return found


def _display_name(file: str) -> str:
    return "standard input" if file == "-" else file


# ── fix ───────────────────────────────────────────────────────────────────────────────────────────────────────────────
# `contextc fix`: repair a request, so that its provider accepts it.


OutputOption = Annotated[str, Option("--output", "-o", help="A file, or - for standard output.")]


def fix_files(
    file: FileArgument, format: FormatOption = None, output: OutputOption = "-", json: JSONOption = False
) -> None:
    """Repair violations of provider rules, and report the repairs. Exit code 1 if violations remain."""
    requests, known = load_requests(file, format)
    fixed = [fix(body, format=known) for body in requests.bodies]
    left = [violation for body, _ in fixed for violation in lint(body, format=known)]
    if json:
        print_json([{"body": body, "repairs": repairs} for body, repairs in fixed])
    else:
        for index, (_, repairs) in enumerate(fixed):
            for repair in repairs:
                place = " ".join(filter(None, [requests.position_label(index), repair.path or "request"]))
                text = f"{place}: {repair.message} Repair: {repair.repair}"
                err.print(f"[bold]{repair.code}[/] {escape_markup(text)}", soft_wrap=True)
        for violation in left:
            err.print(f"[bold red]{violation.code}[/] remains: {escape_markup(violation.message)}", soft_wrap=True)
        write_output(output, write_requests([body for body, _ in fixed], requests.layout))
    if left:
        raise Exit(1)


# ── convert ───────────────────────────────────────────────────────────────────────────────────────────────────────────
# `contextc convert`: convert a request to another format.


def convert_files(
    file: FileArgument,
    target: Annotated[str, Option("--to", "-t", help="The target format.")],
    source: Annotated[
        str | None,
        Option("--from", "-s", help="The source format: openai_chat, anthropic, … (default: recognised)."),
    ] = None,
    output: OutputOption = "-",
    json: JSONOption = False,
) -> None:
    """Convert a request to the format of another provider, and report what was lost."""
    requests, known = load_requests(file, source, "--from")
    made = [convert(body, source=known, target=target) for body in requests.bodies]
    if json:
        print_json([{"body": each, "warnings": each.warnings} for each in made])
        return
    for index, each in enumerate(made):
        for warning in each.warnings:
            err.print(escape_markup(" ".join(filter(None, [requests.position_label(index), warning]))), soft_wrap=True)
    write_output(output, write_requests(made, layout_for(requests.layout, target)))
