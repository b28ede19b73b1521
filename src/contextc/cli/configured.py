"""What is configured, which keys and which programs are here: tables of `contextc doctor`. No key is ever shown."""

import os
from textwrap import shorten

import msgspec
from rich.table import Table

from contextc.cli.terminal import out, plain
from contextc.config import Settings, masked, read_providers
from contextc.providers.named import provider, provider_names
from contextc.providers.programs import programs
from contextc.providers.ready import key_variables

LONGEST = 50


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


def settings_in_force(settings: Settings) -> dict[str, dict[str, str]]:
    return {name: {"value": masked(value), "source": source} for name, (value, source) in settings._asdict().items()}


def configured_providers() -> dict[str, Configured]:
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


def keys_set() -> dict[str, list[str]]:
    """The variables that are set of those that built-in providers have their key in, each with the providers."""
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


def installed_programs() -> dict[str, Installed]:
    found: dict[str, Installed] = {}
    for program in programs().values():
        install = "" if program.is_installed else f"pip install 'contextc[{program.provider}]'"
        path, version = program.path, program.version
        found[program.provider] = Installed(program=path, version=version, folder=str(program.home), install=install)
    return found


def show_settings(settings: dict[str, dict[str, str]]) -> None:
    table = Table("setting", "value", "from", box=None, header_style="bold")
    for name, setting in settings.items():
        value = setting["value"] if name != "system_prompt" else shorten(setting["value"], LONGEST, placeholder=" …")
        table.add_row(name, plain(value) or "-", plain(setting["source"]))
    out.print(table)


def show_providers(providers: dict[str, Configured]) -> None:
    table = Table("provider", "url", "format", "key", box=None, header_style="bold")
    for name, each in providers.items():
        key = f"{plain(each.key)}, {'set' if each.key_is_set else '[yellow]not set[/]'}" if each.key else "-"
        table.add_row(plain(name), plain(each.url) or "-", plain(each.format) or "-", key)
    out.print()
    out.print(table)


def show_keys(keys: dict[str, list[str]]) -> None:
    table = Table("key", "", "of", box=None, header_style="bold")
    for variable, names in keys.items():
        table.add_row(variable, "set", ", ".join(names))
    out.print()
    if keys:
        out.print(table)
    else:
        out.print("no key of a built-in provider is set")


def show_programs(programs: dict[str, Installed]) -> None:
    table = Table("program", "version", "its folder", "where", box=None, header_style="bold")
    for column in table.columns:
        column.overflow = "fold"
    for name, each in programs.items():
        where = f"[yellow]not installed[/]: {plain(each.install)}" if each.install else plain(each.program) or "nowhere"
        table.add_row(name, plain(each.version) or "-", plain(each.folder), where)
    out.print()
    out.print(table)
