"""`contextc doctor`: what is configured, which programs are here, and whether the store is sound."""

import os

import msgspec
import typer
from rich.table import Table

from contextc.cli.terminal import JSONOption, StoreOption, count, missing_file, opened, out, plain, print_json, progress
from contextc.config import Settings, masked, read_providers, read_settings
from contextc.doctor import Finding, examine
from contextc.providers.programs import programs
from contextc.store import Conversation, Recovered, Store


class Configured(msgspec.Struct, frozen=True, kw_only=True):
    """A provider of the user's own. Of a key there is only the name of its variable, and whether that is set."""

    url: str = ""
    format: str = ""
    key: str = ""
    key_is_set: bool = False


class Installed(msgspec.Struct, frozen=True, kw_only=True):
    """A program that is a provider: where it is ("" is nowhere), and the folder it keeps its own things in."""

    program: str = ""
    version: str = ""
    folder: str = ""
    install: str = ""
    """What to do where it cannot be used yet."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    settings: dict[str, dict[str, str]]
    providers: dict[str, Configured]
    programs: dict[str, Installed]
    conversations: list[Conversation]
    recovered: list[Recovered]
    findings: list[Finding]


def run(store: StoreOption = None, json: JSONOption = False) -> None:
    """Check every conversation link by link. Exit code 1 if a fault was found."""
    settings = read_settings(store)
    settings.retention_age()
    if missing_file(settings) and settings.store.source == "default":
        report = _report(settings)
    else:
        with opened(store) as handle:
            report = _examine(handle, settings)
    if json:
        print_json(report)
    else:
        _show(report)
    raise typer.Exit(1 if any(finding.kind == "fault" for finding in report.findings) else 0)


def _examine(store: Store, settings: Settings) -> Report:
    with progress("checking") as bar:
        findings = list(examine(store, bar))
    conversations, recovered = store.conversations(), list(store.recovered)
    return msgspec.structs.replace(
        _report(settings), conversations=conversations, recovered=recovered, findings=findings
    )


def _report(settings: Settings) -> Report:
    """What there is to say without a store."""
    return Report(
        settings=_shown(settings),
        providers=_providers(),
        programs=_programs(),
        conversations=[],
        recovered=[],
        findings=[],
    )


def _shown(settings: Settings) -> dict[str, dict[str, str]]:
    return {name: {"value": masked(value), "source": source} for name, (value, source) in settings._asdict().items()}


def _providers() -> dict[str, Configured]:
    found: dict[str, Configured] = {}
    for name, facts in read_providers().items():
        key = str(facts.get("key", ""))
        found[name] = Configured(
            url=masked(str(facts.get("url", ""))),
            format=str(facts.get("format", "")),
            key=key,
            key_is_set=bool(os.environ.get(key, "").strip()),
        )
    return found


def _programs() -> dict[str, Installed]:
    found: dict[str, Installed] = {}
    for program in programs().values():
        install = "" if program.is_installed else f"pip install 'contextc[{program.provider}]'"
        path, version = program.path, program.version
        found[program.provider] = Installed(program=path, version=version, folder=str(program.home), install=install)
    return found


def _show_programs(programs: dict[str, Installed]) -> None:
    table = Table("program", "version", "its folder", "where", box=None, header_style="bold")
    for column in table.columns:
        column.overflow = "fold"
    for name, each in programs.items():
        where = f"[yellow]not installed[/]: {plain(each.install)}" if each.install else plain(each.program) or "nowhere"
        table.add_row(name, plain(each.version) or "-", plain(each.folder), where)
    out.print()
    out.print(table)


def _show_providers(providers: dict[str, Configured]) -> None:
    table = Table("provider", "url", "format", "key", box=None, header_style="bold")
    for name, each in providers.items():
        key = f"{plain(each.key)}, {'set' if each.key_is_set else '[yellow]not set[/]'}" if each.key else "-"
        table.add_row(plain(name), plain(each.url) or "-", plain(each.format) or "-", key)
    out.print()
    out.print(table)


def _show(report: Report) -> None:
    table = Table("setting", "value", "from", box=None, header_style="bold")
    for name, setting in report.settings.items():
        table.add_row(name, plain(setting["value"]) or "-", plain(setting["source"]))
    out.print(table)
    if report.providers:
        _show_providers(report.providers)
    _show_programs(report.programs)
    messages = sum(conversation.length for conversation in report.conversations)
    out.print(f"\n{count(len(report.conversations), 'conversation')}, {count(messages, 'message')}")
    for recovered in report.recovered:
        out.print(
            f"recovered [bold]{plain(recovered.conversation)}[/]: a turn of {plain(recovered.agent)} had died; "
            f"{len(recovered.messages)} messages put right"
        )
    if not report.findings:
        out.print("[green]no faults[/]")
        return
    table = Table("", "code", "conversation", "where", "what", box=None, header_style="bold")
    for finding in report.findings:
        mark = "[red]fault[/]" if finding.kind == "fault" else "[yellow]note[/]"
        table.add_row(mark, finding.code, plain(finding.conversation or "-"), finding.where, plain(finding.text))
    out.print(table)
