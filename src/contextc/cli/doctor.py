"""`contextc doctor`: scan and repair a store, and print the configuration.

Findings come first. If there are faults, the configuration is printed only with --verbose.
"""

import os
import shlex
import sys
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from textwrap import shorten
from typing import Annotated

import msgspec
from rich.table import Table

from contextc.cli.command_line import Exit, Option, confirm
from contextc.cli.console import JSONOption, err, escape_markup, out, pluralize, print_block, print_json, progress_bar
from contextc.cli.console import print_json as print_as_json
from contextc.cli.inputs import StoreOption, missing_store_file, open_configured_store
from contextc.config import OBSERVATION_SETTINGS, Settings, mask_secrets, read_providers, read_settings
from contextc.doctor import Finding, RepairResult, conversation_names, repair_conversations, scan_store
from contextc.errors import ContextcError, InvalidSetting, StoreCorrupt, UnknownConversation
from contextc.formats import formatter
from contextc.interchange import export_request
from contextc.linting import Violation, lint
from contextc.providers.availability import key_variables, known_cli_agents
from contextc.providers.registry import provider, provider_names
from contextc.store import Conversation, Recovered, Store, open_for_inspection
from contextc.store.store import engine_of

# ── configuration ─────────────────────────────────────────────────────────────────────────────────────────────────────
# Configuration tables of `contextc doctor`: settings, providers, keys, programs. Keys are never printed.


MAX_VALUE_WIDTH = 50


class ProviderConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A provider of the configuration. `key` is the name of the variable; `key_is_set` is True if it has a value."""

    url: str = ""
    format: str = ""
    key: str = ""
    key_is_set: bool = False


class InstalledProgram(msgspec.Struct, frozen=True, kw_only=True):
    """A program that is a provider: its path ("" if it is missing), and its data folder."""

    program: str = ""
    version: str = ""
    folder: str = ""
    install: str = ""
    """The command that installs it, if it is missing."""


def effective_settings(settings: Settings) -> dict[str, dict[str, str]]:
    """Return the settings with their sources. Some are left out if they are not set."""
    optional = ("policy", "summary_instructions", *OBSERVATION_SETTINGS.values())
    unset = [name for name in optional if getattr(settings, name).source == "default"]
    return {
        name: {"value": mask_secrets(value), "source": source}
        for name, (value, source) in settings._asdict().items()
        if name not in unset
    }


def list_providers() -> dict[str, ProviderConfig]:
    found: dict[str, ProviderConfig] = {}
    for name, facts in read_providers().items():
        key = str(facts.get("key", ""))
        found[name] = ProviderConfig(
            url=mask_secrets(str(facts.get("url", ""))),
            format=str(facts.get("format", "")),
            key=key,
            key_is_set=bool(os.environ.get(key, "").strip()),
        )
    return found


def list_keys() -> dict[str, list[str]]:
    """Return the set variables that hold keys of built-in providers, each with its providers."""
    found: dict[str, list[str]] = {}
    own = read_providers()
    for name in provider_names():
        if name in own:
            continue
        known = provider(f"{name}:any", window=1 << 20)
        for variable in key_variables(known):
            if os.environ.get(variable, "").strip():
                found.setdefault(variable, []).append(name)
    return found


def list_programs() -> dict[str, InstalledProgram]:
    return {
        each.provider: InstalledProgram(
            program=each.path,
            version=each.version,
            folder=str(each.home),
            install="" if each.is_installed else f"pip install 'contextc[{each.provider}]'",
        )
        for each in known_cli_agents().values()
    }


def print_settings(settings: dict[str, dict[str, str]]) -> None:
    table = Table("setting", "value", "from", box=None, header_style="bold")
    for name, setting in settings.items():
        value = (
            setting["value"]
            if name != "system_prompt"
            else shorten(setting["value"], MAX_VALUE_WIDTH, placeholder=" …")
        )
        table.add_row(name, escape_markup(value) or "-", escape_markup(setting["source"]))
    out.print(table)


def print_providers(providers: dict[str, ProviderConfig]) -> None:
    table = Table("provider", "url", "format", "key", box=None, header_style="bold")
    for name, each in providers.items():
        key = f"{escape_markup(each.key)}, {'set' if each.key_is_set else '[yellow]not set[/]'}" if each.key else "-"
        table.add_row(escape_markup(name), escape_markup(each.url) or "-", escape_markup(each.format) or "-", key)
    out.print()
    out.print(table)


def print_keys(keys: dict[str, list[str]]) -> None:
    table = Table("key", "", "providers", box=None, header_style="bold")
    for variable, names in keys.items():
        table.add_row(variable, "set", ", ".join(names))
    out.print()
    if keys:
        out.print(table)
    else:
        out.print("no key of a built-in provider is set")


def print_programs(programs: dict[str, InstalledProgram]) -> None:
    table = Table("program", "version", "data folder", "path", box=None, header_style="bold")
    for column in table.columns:
        column.overflow = "fold"
    for name, each in programs.items():
        where = (
            f"[yellow]not installed[/]: {escape_markup(each.install)}"
            if each.install
            else escape_markup(each.program) or "not found"
        )
        table.add_row(name, escape_markup(each.version) or "-", escape_markup(each.folder), where)
    out.print()
    out.print(table)


# ── conversion to a format ────────────────────────────────────────────────────────────────────────────────────────────
# `contextc doctor --format`: check whether conversations can be converted to a format.


class FormatCheck(msgspec.Struct, frozen=True, kw_only=True):
    """The result for one conversation: what the conversion changes, and the violations of the converted request."""

    conversation: str
    notes: list[str] = []
    violations: list[Violation] = []
    error: str = ""
    """The reason why it cannot be converted."""


def check_format(store: Store, conversation: str | None, format: str) -> list[FormatCheck]:
    """Convert all conversations of a store, or one, and return the results."""
    formatter(format)  # raises for an unknown format
    names = conversation_names(store)
    if conversation is not None:
        names = [conversation] if conversation in names else [store.conversation(conversation).name]
    found: list[FormatCheck] = []
    with progress_bar("converting") as bar:
        for name in names:
            found.append(_check_conversation(store, name, format))
            bar(len(found), len(names))
    return found


def _check_conversation(store: Store, name: str, format: str) -> FormatCheck:
    try:
        body, warnings = export_request(store, name, format=format)
    except ContextcError as error:
        return FormatCheck(conversation=name, error=str(error))
    if not body.get(formatter(format).messages_key):
        return FormatCheck(conversation=name, notes=[*warnings, "empty: it has no content for this format"])
    return FormatCheck(conversation=name, notes=warnings, violations=lint(body, format=format))


def print_format_checks(checks: list[FormatCheck], format: str, json: bool) -> None:
    if json:
        print_json(checks)
        return
    affected = [each for each in checks if each.notes or each.violations or each.error]
    for each in affected:
        lines = [f"[red]cannot be converted[/]: {escape_markup(each.error)}"] if each.error else []
        lines += [
            f"[red]{one.code}[/] {escape_markup(one.path)}: {escape_markup(one.message)}" for one in each.violations
        ]
        print_block(f"[bold]{escape_markup(each.conversation)}[/]", *lines, *map(escape_markup, each.notes))
    out.print(
        f"{pluralize(len(checks) - len(affected), 'conversation')} convertible without changes, {len(affected):,} not"
    )


# ── the command ───────────────────────────────────────────────────────────────────────────────────────────────────────


MAX_FINDINGS = 200


class DoctorReport(msgspec.Struct, frozen=True, kw_only=True):
    settings: dict[str, dict[str, str]]
    providers: dict[str, ProviderConfig]
    keys: dict[str, list[str]]
    """The set variables with keys of built-in providers, and their providers. Never a key."""
    programs: dict[str, InstalledProgram]
    conversations: list[Conversation]
    recovered: list[Recovered]
    findings: list[Finding]
    healed: list[RepairResult] | None = None


def run(
    store: StoreOption = None,
    conversation: Annotated[
        str | None, Option("--conversation", "-c", help="Check only this conversation (default: all).")
    ] = None,
    healing: Annotated[
        bool, Option("--heal", help="Repair faults and open calls. It shows the plan, and asks first.")
    ] = False,
    notes: Annotated[
        bool, Option("--notes", help="With --heal: repair notes too, although requests do not need it.")
    ] = False,
    yes: Annotated[
        bool, Option("--yes", "-y", help="With --heal: do not ask. Needed with --json, and without a terminal.")
    ] = False,
    format: Annotated[
        str | None,
        Option("--format", "-f", help="Check conversion to this format instead: openai_chat, gemini, …"),
    ] = None,
    verbose: Annotated[
        bool, Option("--verbose", "-v", help="Print the configuration also if there are faults.")
    ] = False,
    json: JSONOption = False,
) -> None:
    """Verify every conversation link by link, and print what a repair would do. Exit code 1 if a fault was found."""
    if format is not None and healing:
        raise InvalidSetting("--format and --heal cannot be used together", fix="Run one after the other.")
    if (notes or yes) and not healing:
        raise InvalidSetting("--notes and --yes need --heal", fix="Add --heal.")
    settings = read_settings(store)
    settings.parse_retention()
    is_check_only = not healing and format is None
    if missing_store_file(settings) and settings.store.source == "default" and is_check_only and conversation is None:
        _show(_report(settings), json, verbose)
        raise Exit(0)
    with _open_for_scan(store, settings, damaged=is_check_only) as handle:
        if format is not None:
            found = check_format(handle, conversation, format)
            print_format_checks(found, format, json)
            raise Exit(1 if any(each.violations or each.error for each in found) else 0)
        report = _scan(handle, settings, conversation)
        if healing:
            report = _repair(handle, report, notes, yes, json)
        else:
            _show(report, json, verbose)
    # 1 if a fault or an unrepaired conversation is left
    repaired = {each.conversation for each in report.healed or () if each.outcome != "left"}
    faults = [each for each in report.findings if each.kind == "fault"]
    left = [each for each in faults if each.healing == "none" or each.conversation not in repaired]
    raise Exit(1 if left or any(each.outcome == "left" for each in report.healed or ()) else 0)


@contextmanager
def _open_for_scan(store: str | None, settings: Settings, *, damaged: bool) -> Generator[Store]:
    """Open the store. With `damaged`, also a damaged file that cannot be opened for writing."""
    with ExitStack() as stack:
        try:
            handle = stack.enter_context(open_configured_store(store))
        except StoreCorrupt as error:
            name = getattr(error.__cause__, "sqlite_errorname", "") or ""
            if not damaged or not name.startswith("SQLITE_CORRUPT"):
                raise
            handle = stack.enter_context(open_for_inspection(settings.store.value))
        yield handle


def _scan(store: Store, settings: Settings, conversation: str | None) -> DoctorReport:
    with progress_bar("checking") as bar:
        findings = list(scan_store(store, bar, conversation=conversation))
    try:
        known = [store.conversation(conversation)] if conversation is not None else store.conversations()
    except (StoreCorrupt, UnknownConversation):  # only the readable ones
        names = [conversation] if conversation is not None else conversation_names(store)
        known = [each for name in names if (each := _find_conversation(store, name)) is not None]
    findings += _check_permissions(store)
    return msgspec.structs.replace(
        _report(settings), conversations=known, recovered=list(store.recovered), findings=findings
    )


def _check_permissions(store: Store) -> list[Finding]:
    """Return a finding for a SQLite file that other users can read, as after a copy."""
    path = str(getattr(engine_of(store), "path", ""))
    mode = os.stat(path).st_mode & 0o777 if os.name == "posix" and os.path.isfile(path) else 0
    if not mode & 0o077:
        return []
    return [
        Finding(
            kind="note",
            code="shared-file",
            conversation=None,
            where="database",
            text=f"The file has mode {mode:04o}.",
            why="Other users of this machine can read the conversations.",
            would=f"is not changed. Run: chmod 600 {shlex.quote(path)}",
        )
    ]


def _find_conversation(store: Store, name: str) -> Conversation | None:
    """Return a conversation; None if its rows are damaged, which is a finding of its own."""
    try:
        return store.conversation(name)
    except (StoreCorrupt, UnknownConversation):
        return None


def _repair(store: Store, report: DoctorReport, notes: bool, yes: bool, json: bool) -> DoctorReport:
    plan = [each for each in report.findings if each.kind == "fault" or each.healing == "append" or notes]
    plan = [each for each in plan if each.healing != "none"]
    names = {each.conversation for each in plan}
    if not json:
        _show_plan(plan, [each for each in report.findings if each not in plan])
    if not plan:
        repaired: list[RepairResult] = []
    elif yes or (not json and _is_terminal() and confirm(f"Repair {pluralize(len(names), 'conversation')}?")):
        with progress_bar("repairing") as bar:
            repaired = repair_conversations(store, plan, bar)
    elif json or not _is_terminal():
        raise InvalidSetting(
            "--heal: no terminal to confirm it at", fix="Add --yes. Without --heal, the plan is printed."
        )
    else:
        out.print("nothing was changed")
        return report
    report = msgspec.structs.replace(report, healed=repaired)
    if json:
        print_as_json(report)
        return report
    for each in repaired:
        mark = {"healed": "[green]repaired[/]", "sound": "[green]sound[/]", "left": "[red]unchanged[/]"}[each.outcome]
        out.print(f"{mark} [bold]{escape_markup(each.conversation)}[/]: {escape_markup(each.text)}", soft_wrap=True)
    if not repaired:
        out.print("nothing to repair")
    return report


def _is_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def _report(settings: Settings) -> DoctorReport:
    """Return a report of the configuration alone."""
    return DoctorReport(
        settings=effective_settings(settings),
        providers=list_providers(),
        keys=list_keys(),
        programs=list_programs(),
        conversations=[],
        recovered=[],
        findings=[],
    )


def _show(report: DoctorReport, json: bool, verbose: bool) -> None:
    if json:
        print_as_json(report)
        return
    _show_findings(report.findings)
    for recovered in report.recovered:
        out.print(
            f"recovered [bold]{escape_markup(recovered.conversation)}[/]: a turn of "
            f"{escape_markup(recovered.agent)} had crashed; "
            f"{pluralize(len(recovered.messages), 'message')} completed"
        )
    messages = sum(conversation.length for conversation in report.conversations)
    faults = len([each for each in report.findings if each.kind == "fault"])
    found = f"[red]{pluralize(faults, 'fault')}[/]" if faults else "[green]no faults[/]"
    notes = f", {pluralize(len(report.findings) - faults, 'note')}" if len(report.findings) > faults else ""
    out.print(
        f"{pluralize(len(report.conversations), 'conversation')}, {pluralize(messages, 'message')}: {found}{notes}"
    )
    if verbose or not faults:
        out.print()
        print_settings(report.settings)
        if report.providers:
            print_providers(report.providers)
        print_keys(report.keys)
        print_programs(report.programs)
    elif faults:
        err.print("--verbose also prints settings, providers and programs.")
    if any(each.healing != "none" for each in report.findings):
        err.print("Nothing was changed. --heal repairs faults and open calls, --heal --notes the rest.", soft_wrap=True)


def _show_plan(plan: list[Finding], others: list[Finding]) -> None:
    """Print the plan. Other faults are printed too, other notes are counted."""
    faults = [each for each in others if each.kind == "fault"]
    if not any(each.kind == "fault" for each in (*plan, *faults)):
        out.print("[green]no faults[/]")
    _show_findings([*plan, *faults])
    if len(others) > len(faults):
        out.print(f"{pluralize(len(others) - len(faults), 'note')} left unchanged (--notes)")


def _show_findings(findings: list[Finding]) -> None:
    for finding in sorted(findings, key=lambda each: each.kind)[:MAX_FINDINGS]:  # faults first
        mark = "[red]fault[/]" if finding.kind == "fault" else "[yellow]note[/]"
        owner = f"[bold]{escape_markup(finding.conversation)}[/]  " if finding.conversation is not None else ""
        print_block(
            f"{mark}  {finding.code}  {owner}{escape_markup(finding.where)}",
            f"{escape_markup(finding.text)} {escape_markup(finding.why)}",
            f"[dim]{escape_markup(finding.would)}[/]",
        )
    if len(findings) > MAX_FINDINGS:
        out.print(f"… and {len(findings) - MAX_FINDINGS:,} more (--json prints all)")
