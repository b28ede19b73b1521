"""`contextc doctor`: what is configured, whether the store is sound, what healing would do, and the healing itself."""

import sys
from typing import Annotated

import msgspec
import typer
from rich.table import Table

from contextc.cli.configured import (
    Configured,
    Installed,
    configured_providers,
    installed_programs,
    settings_in_force,
    show_programs,
    show_providers,
    show_settings,
)
from contextc.cli.said_there import look, show_look
from contextc.cli.terminal import JSONOption, StoreOption, count, err, missing_file, opened, out, plain, progress
from contextc.cli.terminal import print_json as print_as_json
from contextc.config import Settings, read_settings
from contextc.doctor import Finding, Healed, examine, heal
from contextc.errors import InvalidSetting
from contextc.store import Conversation, Recovered, Store

MOST_SHOWN = 200


class Report(msgspec.Struct, frozen=True, kw_only=True):
    settings: dict[str, dict[str, str]]
    providers: dict[str, Configured]
    programs: dict[str, Installed]
    conversations: list[Conversation]
    recovered: list[Recovered]
    findings: list[Finding]
    healed: list[Healed] | None = None


def run(
    store: StoreOption = None,
    conversation: Annotated[
        str | None, typer.Option("--conversation", "-c", help="Only this one (default: all).")
    ] = None,
    healing: Annotated[
        bool, typer.Option("--heal", help="Heal faults and open calls. It shows the plan, and asks first.")
    ] = False,
    notes: Annotated[
        bool, typer.Option("--notes", help="With --heal: heal notes, too, though no request needs it.")
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="With --heal: do not ask. Needed with --json, and without a terminal.")
    ] = False,
    format: Annotated[
        str | None,
        typer.Option("--format", "-f", help="What could not be said in this format: openai_chat, gemini, …"),
    ] = None,
    json: JSONOption = False,
) -> None:
    """Check every conversation link by link, and say what healing would do. Exit code 1 if a fault was found."""
    if format is not None and healing:
        raise InvalidSetting("Look with --format, or heal with --heal: one after the other.")
    if (notes or yes) and not healing:
        raise InvalidSetting("--notes and --yes say how to heal: they go with --heal.")
    settings = read_settings(store)
    settings.retention_age()
    only_settings = not healing and format is None and conversation is None
    if missing_file(settings) and settings.store.source == "default" and only_settings:
        _show(report := _report(settings), json)
        raise typer.Exit(0)
    with opened(store) as handle:
        if format is not None:
            found = look(handle, conversation, format)
            show_look(found, format, json)
            raise typer.Exit(1 if any(each.violations or each.error for each in found) else 0)
        report = _examined(handle, settings, conversation)
        if not healing:
            _show(report, json)
            raise typer.Exit(_left(report))
        report = _healed(handle, report, notes, yes, json)
    raise typer.Exit(_left(report))


def _left(report: Report) -> int:
    """1 where a fault is left, or a conversation that was to be healed and was not."""
    healed = {each.conversation for each in report.healed or () if each.outcome != "left"}
    faults = [each for each in report.findings if each.kind == "fault"]
    left = [each for each in faults if each.healing == "none" or each.conversation not in healed]
    return 1 if left or any(each.outcome == "left" for each in report.healed or ()) else 0


def _examined(store: Store, settings: Settings, conversation: str | None) -> Report:
    with progress("checking") as bar:
        findings = list(examine(store, bar, conversation=conversation))
    known = [store.conversation(conversation)] if conversation is not None else store.conversations()
    return msgspec.structs.replace(
        _report(settings), conversations=known, recovered=list(store.recovered), findings=findings
    )


def _healed(store: Store, report: Report, notes: bool, yes: bool, json: bool) -> Report:
    plan = [each for each in report.findings if each.kind == "fault" or each.healing == "append" or notes]
    plan = [each for each in plan if each.healing != "none"]
    names = {each.conversation for each in plan}
    if not json:
        _show_findings(report.findings)
    if not plan:
        healed: list[Healed] = []
    elif yes or (not json and _agreed(len(names))):
        with progress("healing") as bar:
            healed = heal(store, plan, bar)
    elif json or not _is_terminal():
        raise InvalidSetting("Nobody can be asked here: add --yes to heal. Without --heal you see what it would do.")
    else:
        out.print("nothing was changed")
        return report
    report = msgspec.structs.replace(report, healed=healed)
    if json:
        print_as_json(report)
        return report
    for each in healed:
        mark = {"healed": "[green]healed[/]", "sound": "[green]sound[/]", "left": "[red]left alone[/]"}[each.outcome]
        out.print(f"{mark} [bold]{plain(each.conversation)}[/]: {plain(each.text)}", soft_wrap=True)
    if not healed:
        out.print("nothing to heal")
    return report


def _is_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def _agreed(conversations: int) -> bool:
    return _is_terminal() and typer.confirm(f"Heal {count(conversations, 'conversation')}?")


def _report(settings: Settings) -> Report:
    """What there is to say without a store."""
    return Report(
        settings=settings_in_force(settings),
        providers=configured_providers(),
        programs=installed_programs(),
        conversations=[],
        recovered=[],
        findings=[],
    )


def _show(report: Report, json: bool) -> None:
    if json:
        print_as_json(report)
        return
    show_settings(report.settings)
    if report.providers:
        show_providers(report.providers)
    show_programs(report.programs)
    messages = sum(conversation.length for conversation in report.conversations)
    out.print(f"\n{count(len(report.conversations), 'conversation')}, {count(messages, 'message')}")
    for recovered in report.recovered:
        out.print(
            f"recovered [bold]{plain(recovered.conversation)}[/]: a turn of {plain(recovered.agent)} had died; "
            f"{len(recovered.messages)} messages put right"
        )
    _show_findings(report.findings)
    if any(each.healing != "none" for each in report.findings):
        err.print("Nothing was changed. --heal heals faults and open calls, --heal --notes the rest.", soft_wrap=True)


def _show_findings(findings: list[Finding]) -> None:
    if not any(finding.kind == "fault" for finding in findings):
        out.print("[green]no faults[/]")
    if not findings:
        return
    table = Table("", "code", "conversation", "where", "what and why; what healing does", box=None, header_style="bold")
    for finding in findings[:MOST_SHOWN]:
        mark = "[red]fault[/]" if finding.kind == "fault" else "[yellow]note[/]"
        what = f"{plain(finding.text)} {plain(finding.why)}\n[dim]{plain(finding.would)}[/]"
        table.add_row(mark, finding.code, plain(finding.conversation or "-"), finding.where, what)
    out.print(table)
    if len(findings) > MOST_SHOWN:
        out.print(f"… and {len(findings) - MOST_SHOWN:,} more (--json prints all)")
