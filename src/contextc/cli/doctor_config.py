"""Configuration tables of `contextc doctor`: settings, providers, keys, programs. Keys are never printed."""

import os
from textwrap import shorten

import msgspec
from rich.table import Table

from contextc.cli.console import escape_markup, out
from contextc.config import OBSERVATION_SETTINGS, Settings, mask_secrets, read_providers
from contextc.providers.availability import key_variables
from contextc.providers.cli_agent_discovery import known_cli_agents
from contextc.providers.registry import provider, provider_names

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
    found: dict[str, InstalledProgram] = {}
    for program in known_cli_agents().values():
        install = "" if program.is_installed else f"pip install 'contextc[{program.provider}]'"
        path, version = program.path, program.version
        found[program.provider] = InstalledProgram(
            program=path, version=version, folder=str(program.home), install=install
        )
    return found


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
