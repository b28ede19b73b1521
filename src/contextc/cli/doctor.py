"""`contextc doctor`: whether the store is sound, what healing would do, the healing itself; then what is configured.

What is wrong comes first. Where something is, the configuration is shown only if it is asked for.
"""

import os
import shlex
import sys
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from typing import Annotated

import msgspec
import typer

from contextc.cli.blocks import print_block
from contextc.cli.configured import (
    Configured,
    Installed,
    configured_providers,
    installed_programs,
    keys_set,
    settings_in_force,
    show_keys,
    show_programs,
    show_providers,
    show_settings,
)
from contextc.cli.said_there import look, show_look
from contextc.cli.terminal import JSONOption, StoreOption, count, err, missing_file, opened, out, plain, progress
from contextc.cli.terminal import print_json as print_as_json
from contextc.config import Settings, read_settings
from contextc.doctor import Finding, Healed, conversation_names, examine, heal
from contextc.errors import InvalidSetting, StoreCorrupt, UnknownConversation
from contextc.store import Conversation, Recovered, Store, open_to_look

MOST_SHOWN = 200


class Report(msgspec.Struct, frozen=True, kw_only=True):
    settings: dict[str, dict[str, str]]
    providers: dict[str, Configured]
    keys: dict[str, list[str]]
    """The variables with keys of built-in providers that are set, and whose they are. Never a key."""
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
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show the configuration, too, where there are faults.")
    ] = False,
    json: JSONOption = False,
) -> None:
    """Check every conversation link by link, and say what healing would do. Exit code 1 if a fault was found."""
    if format is not None and healing:
        raise InvalidSetting("Look with --format, or heal with --heal: one after the other.")
    if (notes or yes) and not healing:
        raise InvalidSetting("--notes and --yes say how to heal: they go with --heal.")
    settings = read_settings(store)
    settings.retention_age()
    only_a_look = not healing and format is None
    if missing_file(settings) and settings.store.source == "default" and only_a_look and conversation is None:
        _show(_report(settings), json, verbose)
        raise typer.Exit(0)
    with _looking(store, settings, damaged=only_a_look) as handle:
        if format is not None:
            found = look(handle, conversation, format)
            show_look(found, format, json)
            raise typer.Exit(1 if any(each.violations or each.error for each in found) else 0)
        report = _examined(handle, settings, conversation)
        if healing:
            report = _healed(handle, report, notes, yes, json)
        else:
            _show(report, json, verbose)
    raise typer.Exit(_left(report))


@contextmanager
def _looking(store: str | None, settings: Settings, *, damaged: bool) -> Generator[Store]:
    """The store; for somebody who only looks, also one whose file is so `damaged` that it cannot be opened."""
    with ExitStack() as stack:
        try:
            handle = stack.enter_context(opened(store))
        except StoreCorrupt as error:
            name = getattr(error.__cause__, "sqlite_errorname", "") or ""
            if not damaged or not name.startswith("SQLITE_CORRUPT"):
                raise
            handle = stack.enter_context(open_to_look(settings.store.value))
        yield handle


def _left(report: Report) -> int:
    """1 where a fault is left, or a conversation that was to be healed and was not."""
    healed = {each.conversation for each in report.healed or () if each.outcome != "left"}
    faults = [each for each in report.findings if each.kind == "fault"]
    left = [each for each in faults if each.healing == "none" or each.conversation not in healed]
    return 1 if left or any(each.outcome == "left" for each in report.healed or ()) else 0


def _examined(store: Store, settings: Settings, conversation: str | None) -> Report:
    with progress("checking") as bar:
        findings = list(examine(store, bar, conversation=conversation))
    try:
        known = [store.conversation(conversation)] if conversation is not None else store.conversations()
    except (StoreCorrupt, UnknownConversation):  # those that can be described
        names = [conversation] if conversation is not None else conversation_names(store)
        known = [each for name in names if (each := _described(store, name)) is not None]
    findings += _permissions(store)
    return msgspec.structs.replace(
        _report(settings), conversations=known, recovered=list(store.recovered), findings=findings
    )


def _permissions(store: Store) -> list[Finding]:
    """A SQLite file that others can read: one that an earlier version made, or that was copied."""
    path = str(getattr(store, "path", ""))
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
            would=f"is left as it is. Run: chmod 600 {shlex.quote(path)}",
        )
    ]


def _described(store: Store, name: str) -> Conversation | None:
    """Where a conversation stands; None where its rows do not say so: then there is a finding that does."""
    try:
        return store.conversation(name)
    except (StoreCorrupt, UnknownConversation):
        return None


def _healed(store: Store, report: Report, notes: bool, yes: bool, json: bool) -> Report:
    plan = [each for each in report.findings if each.kind == "fault" or each.healing == "append" or notes]
    plan = [each for each in plan if each.healing != "none"]
    names = {each.conversation for each in plan}
    if not json:
        _show_plan(plan, [each for each in report.findings if each not in plan])
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
        keys=keys_set(),
        programs=installed_programs(),
        conversations=[],
        recovered=[],
        findings=[],
    )


def _show(report: Report, json: bool, verbose: bool) -> None:
    if json:
        print_as_json(report)
        return
    _show_findings(report.findings)
    for recovered in report.recovered:
        out.print(
            f"recovered [bold]{plain(recovered.conversation)}[/]: a turn of {plain(recovered.agent)} had died; "
            f"{count(len(recovered.messages), 'message')} put right"
        )
    messages = sum(conversation.length for conversation in report.conversations)
    faults = len([each for each in report.findings if each.kind == "fault"])
    found = f"[red]{count(faults, 'fault')}[/]" if faults else "[green]no faults[/]"
    notes = f", {count(len(report.findings) - faults, 'note')}" if len(report.findings) > faults else ""
    out.print(f"{count(len(report.conversations), 'conversation')}, {count(messages, 'message')}: {found}{notes}")
    if verbose or not faults:
        _show_configuration(report)
    elif faults:
        err.print("--verbose shows settings, providers and programs, too.")
    if any(each.healing != "none" for each in report.findings):
        err.print("Nothing was changed. --heal heals faults and open calls, --heal --notes the rest.", soft_wrap=True)


def _show_configuration(report: Report) -> None:
    out.print()
    show_settings(report.settings)
    if report.providers:
        show_providers(report.providers)
    show_keys(report.keys)
    show_programs(report.programs)


def _show_plan(plan: list[Finding], others: list[Finding]) -> None:
    """What is about to be done; what is left as it is, is named where it is a fault, and else counted."""
    faults = [each for each in others if each.kind == "fault"]
    if not any(each.kind == "fault" for each in (*plan, *faults)):
        out.print("[green]no faults[/]")
    _show_findings([*plan, *faults])
    if len(others) > len(faults):
        out.print(f"{count(len(others) - len(faults), 'note')} left as found (--notes)")


def _show_findings(findings: list[Finding]) -> None:
    for finding in sorted(findings, key=lambda each: each.kind)[:MOST_SHOWN]:  # a fault before a note
        mark = "[red]fault[/]" if finding.kind == "fault" else "[yellow]note[/]"
        whose = f"[bold]{plain(finding.conversation)}[/]  " if finding.conversation is not None else ""
        print_block(
            f"{mark}  {finding.code}  {whose}{plain(finding.where)}",
            f"{plain(finding.text)} {plain(finding.why)}",
            f"[dim]{plain(finding.would)}[/]",
        )
    if len(findings) > MOST_SHOWN:
        out.print(f"… and {len(findings) - MOST_SHOWN:,} more (--json prints all)")
