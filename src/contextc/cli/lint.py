"""`contextc lint`, `fix` and `convert`: check, repair and convert requests in files."""

import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated, NamedTuple, cast

from rich.table import Table

from contextc._json import JSON, JSONObject, as_objects, decode_json
from contextc.cli.command_line import Argument, Exit, Option
from contextc.cli.console import FormatOption, JSONOption, SarifOption, err, escape_markup, out, pluralize, print_json
from contextc.cli.explain import find_channels
from contextc.cli.inputs import (
    RequestOption,
    StoreOption,
    open_configured_store,
    parse_request,
    read_input,
    write_output,
)
from contextc.compiler.past_requests import load_channel_formatter, rebuild, was_answered
from contextc.errors import InvalidInput, InvalidRequest, InvalidSetting
from contextc.formats import format_names
from contextc.formats.rules_docs import find_rule
from contextc.interchange.log_import import is_request_body
from contextc.interchange.open_any import LabelledRequest, detect_format, is_request_log, recorded_requests
from contextc.interchange.packed_files import unpack_bytes
from contextc.linting import Violation, convert, fix, lint
from contextc.linting.lint_settings import LintSettings, find_request_files, read_lint_settings
from contextc.linting.positions import Position, find_positions_in_file
from contextc.linting.request_reading import (
    RequestFile,
    describe_unreadable_lines,
    detect_session_format,
    layout_for,
    read_requests,
    write_requests,
)
from contextc.linting.sarif import SarifResult, SarifRule, conversation_uri, file_uri, make_sarif
from contextc.store import Store
from contextc.store.ledger_schema import Channel

MAX_VIOLATIONS = 200
MAX_LEFT_OUT = 5
MAX_POSITIONS = 1_000
FILES_HELP = (
    "JSON or JSON Lines: requests, messages, or a session of Claude Code or Codex; a HAR recording; a log of requests; "
    "- for standard input. A folder: the requests in all such files below it. Files may be packed with gzip."
)
FileArgument = Annotated[
    str,
    Argument(
        help="JSON or JSON Lines: requests, messages, or a session of Claude Code or Codex; - for standard input."
    ),
]


class CheckedRequest(NamedTuple):
    """A request that was checked: its file or conversation, its place there, and what was found.

    `positions` are the lines and columns of the paths of the violations, where they are known.
    """

    source: str
    where: str
    violations: list[Violation]
    positions: Mapping[str, Position] = {}

    def position_of(self, violation: Violation) -> Position:
        return self.positions.get(violation.path, Position(1, 1))


def lint_files(
    files: Annotated[list[str] | None, Argument(help=FILES_HELP, metavar="[FILE]...")] = None,
    format: FormatOption = None,
    conversation: Annotated[
        str | None, Option("--conversation", "-c", help="Check a stored request of this conversation instead.")
    ] = None,
    request: RequestOption = None,
    model: Annotated[
        str | None, Option("--model", "-m", help="With --conversation: provider and model (default: all).")
    ] = None,
    store: StoreOption = None,
    select: Annotated[
        list[str] | None,
        Option("--select", help="Check these rules alone: codes or their beginnings, such as ANT,OAC."),
    ] = None,
    ignore: Annotated[list[str] | None, Option("--ignore", help="Leave out these rules.")] = None,
    skip_unknown: Annotated[
        bool,
        Option("--skip-unknown", help="Pass over named files without a request, and those that the settings exclude."),
    ] = False,
    exit_zero: Annotated[bool, Option("--exit-zero", help="Exit with 0 even if a rule is violated.")] = False,
    json: JSONOption = False,
    sarif: SarifOption = False,
    github: Annotated[bool, Option("--github", help="Print annotations of GitHub Actions.")] = False,
) -> None:
    """Report every provider rule that a request violates. Exit code 1 if there is one.

    A recorded request that was answered violates none. The table [tool.contextc.lint] of pyproject.toml can choose the
    rules and files.
    """
    if json + sarif + github > 1:
        raise InvalidSetting("--json, --sarif and --github cannot be used together", fix="Pass one of them.")
    if bool(files) == (conversation is not None):
        raise InvalidSetting("lint needs a file or --conversation", fix="Pass one of them.")
    if conversation is None and (request, model, store) != (None, None, None):
        raise InvalidSetting("--request, --model and --store need --conversation", fix="Add --conversation.")
    settings = read_lint_settings().changed(select or [], ignore or [])
    one_file = files is not None and len(files) == 1 and not skip_unknown and not os.path.isdir(files[0])
    if conversation is not None:
        found = _lint_stored(conversation, request, model, store)
        several, number = len(found) > 1, None
    else:
        found, several, number = _lint_files(files or [], format, settings, skip_unknown=skip_unknown, alone=one_file)
    found = [
        each._replace(violations=[one for one in each.violations if settings.is_checked(one.code, each.source)])
        for each in found
    ]
    total = sum(len(each.violations) for each in found)
    if sarif:
        print_json(_make_sarif(found, is_file=conversation is None))
    elif github:
        for each in found:
            for violation in each.violations:
                out.print(escape_markup(_annotation(each, violation)), soft_wrap=True, highlight=False)
    elif json:
        named = [{} if one_file or conversation is not None else {"file": each.source} for each in found]
        entries = [
            {**name, "where": each.where, "violations": each.violations}
            for name, each in zip(named, found, strict=True)
        ]
        print_json(entries if several else entries[0]["violations"] if entries else [])
    else:
        for each in found:
            if each.violations:
                title = each.where if one_file or conversation is not None else ": ".join(filter(None, each[:2]))
                _show(title, each)
        broken = f"{len({each.source for each in found if each.violations}):,} of " if total else ""
        among = f" in {broken}{pluralize(number, 'file')}" if number is not None else ""
        out.print((pluralize(total, "violation") if total else "no violations") + among)
    if total and not exit_zero:
        raise Exit(1)


def _lint_files(
    files: list[str], format: str | None, settings: LintSettings, *, skip_unknown: bool, alone: bool
) -> tuple[list[CheckedRequest], bool, int | None]:
    """Check files and folders. Return the requests, whether there may be several, and unless it is one file alone, the
    number of files.
    """
    if alone:
        return *_lint_file(files[0], format, is_quiet=False), None
    checked: list[CheckedRequest] = []
    number, left_out = 0, 0
    for file in files:
        named = not os.path.isdir(file)
        for path in [file] if named else find_request_files(file, settings):
            if named and not skip_unknown:
                requests = _lint_file(path, format, is_quiet=True)[0]
            else:
                requests = _lint_if_recognized(path, format, settings)
            checked += requests
            number += bool(requests)
            left_out += not requests
    if left_out:
        err.print(f"passed over: {pluralize(left_out, 'file')} without a request", soft_wrap=True)
    return checked, True, number


def _lint_if_recognized(file: str, format: str | None, settings: LintSettings) -> list[CheckedRequest]:
    """Check a file; none if it has no request, is not JSON, or is excluded."""
    if settings.is_excluded(file):
        return []
    try:
        return _lint_file(file, format, is_quiet=True, is_request=True)[0]
    except InvalidInput:
        return []


def _lint_file(
    file: str, format: str | None, *, is_quiet: bool, is_request: bool = False
) -> tuple[list[CheckedRequest], bool]:
    """Check the requests of a file, and return whether it may have several. Raise a ContextcError if it has none.

    With `is_request`, what has a known format must be a whole request.
    """
    data = unpack_bytes(read_input(file), _display_name(file))
    if (recorded := recorded_requests(data, format)) is not None:
        found = [_check_recorded(file, each) for each in recorded.requests]
        if not is_quiet:
            err.print(f"{recorded.kind}: {pluralize(len(found), 'model request')}", soft_wrap=True)
        if recorded.left_out and not is_quiet:
            some = ", ".join(recorded.left_out[:MAX_LEFT_OUT]) + (
                ", …" if len(recorded.left_out) > MAX_LEFT_OUT else ""
            )
            number = pluralize(len(recorded.left_out), "item")
            err.print(f"left out: {number} without a request: {some}", soft_wrap=True)
        return found, True
    requests, known = load_requests(file, format, data=data, is_quiet=is_quiet)
    if is_request and requests.layout != "session" and not all(map(_is_request, requests.bodies)):
        return [], False
    checked: list[CheckedRequest] = []
    for index, body in enumerate(requests.bodies):
        violations = lint(body, format=known)
        paths = [each.path for each in violations[:MAX_POSITIONS]]
        positions = find_positions_in_file(data, requests, index, paths) if paths else {}
        checked.append(CheckedRequest(file, requests.position_label(index), violations, positions))
    return checked, requests.layout == "lines"


def _check_recorded(file: str, request: LabelledRequest) -> CheckedRequest:
    violations = lint(request.body, format=request.format, answered=request.answered)
    word, _, number = request.label.partition(" ")
    line = int(number) if word == "line" and number.isdigit() else 1
    positions = {each.path: Position(line, 1) for each in violations}
    return CheckedRequest(file, f"{request.label}, {request.format}", violations, positions)


def _is_request(body: JSON) -> bool:
    """Return True for the body of a request, or a list of messages."""
    return any("role" in each for each in as_objects(body)) if isinstance(body, list) else is_request_body(body)


def _annotation(request: CheckedRequest, violation: Violation) -> str:
    """Return a violation as an annotation of GitHub Actions."""
    line, column = request.position_of(violation)
    message = ": ".join(filter(None, [request.where, violation.path, violation.message]))
    properties = {"file": request.source, "line": line, "col": column, "title": violation.code}
    written = ",".join(f"{name}={_escape_annotation(str(value), ':,')}" for name, value in properties.items())
    return f"::error {written}::{_escape_annotation(message)}"


def _escape_annotation(text: str, others: str = "") -> str:
    """Return a text of an annotation, so that no text of a request can end it and begin another command."""
    return "".join(f"%{ord(each):02X}" if each in f"%\r\n{others}" else each for each in text)


def _make_sarif(found: list[CheckedRequest], *, is_file: bool) -> JSONObject:
    codes = {violation.code for each in found for violation in each.violations}
    rules = [find_rule(code) for code in sorted(codes)]
    return make_sarif(
        [SarifRule(each.code, each.title, each.reason, each.repair) for each in rules],
        [
            SarifResult(
                violation.code,
                "error",
                violation.message,
                file_uri(each.source) if is_file else conversation_uri(each.source),
                violation.path,
                {"where": each.where, "provider": violation.error},
                *each.position_of(violation),
            )
            for each in found
            for violation in each.violations
        ],
    )


def _lint_stored(conversation: str, request: str | None, model: str | None, store: str | None) -> list[CheckedRequest]:
    """Check the request as it was sent on each channel: the given one, or the last one."""
    channel, number = parse_request(request)
    with open_configured_store(store) as handle:
        return [
            CheckedRequest(conversation, where, lint(body, format=format, answered=answered))
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


def _show(title: str, request: CheckedRequest) -> None:
    violations = request.violations
    table = Table(title=title or None, box=None)
    table.add_column("code", no_wrap=True)
    for heading in ("where", "problem, and error of the provider"):
        table.add_column(heading, overflow="fold")  # a cut text cannot be searched for
    for each in violations[:MAX_VIOLATIONS]:
        error = f"\n[dim]{escape_markup(each.error)}[/]" if each.error else ""
        line = request.position_of(each).line
        place = escape_markup(each.path) + (f"\n[dim]line {line:,}[/]" if line > 1 else "")
        table.add_row(each.code, place, escape_markup(each.message) + error)
    out.print(table)
    if len(violations) > MAX_VIOLATIONS:
        out.print(f"… and {len(violations) - MAX_VIOLATIONS:,} more (--json prints all)")


def load_requests(
    file: str, format: str | None, option: str = "--format", *, data: bytes | None = None, is_quiet: bool = False
) -> tuple[RequestFile, str]:
    """Return the requests in a file, and their format: the given one, or else the recognised one.

    `data` is the content of the file, if it was read already.
    """
    data = unpack_bytes(read_input(file), _display_name(file)) if data is None else data
    try:
        known = format or _detect_format(data, option, is_quiet=is_quiet)
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
    if found.unreadable_lines and not is_quiet:
        err.print(f"left out: {describe_unreadable_lines(found.unreadable_lines)}", soft_wrap=True)
    return found, known


def _detect_format(data: bytes, option: str, *, is_quiet: bool) -> str:
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
    if not is_quiet:
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
