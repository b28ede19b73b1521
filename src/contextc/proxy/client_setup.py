"""Variables and options that point a program at the proxy. client_setup.toml has the facts.

Everything is set for the started process only. A base URL that is set already becomes the upstream.
"""

import os
import subprocess
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from typing import NamedTuple

import msgspec
from msgspec import Struct

from contextc._plugins import data_files
from contextc.proxy.upstreams import Upstream, parse_upstream

PROBE_SECONDS = 5.0
NO_PROXY_VARIABLES = ("NO_PROXY", "no_proxy")
PROXY_VARIABLES = ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy")
PROGRAM_SUFFIXES = (".exe", ".cmd", ".ps1")


class Variable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    upstream: str
    used_by: str
    only_if_set: bool = False
    not_for: tuple[str, ...] = ()


class EnvironmentSetting(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    value: str
    unless_set: tuple[str, ...] = ()


class Program(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    names: tuple[str, ...]
    upstream: str
    arguments: tuple[str, ...]
    probe: tuple[str, ...] = ()
    probe_match: str = ""


class Hint(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    client: str
    upstream: str
    text: str


class ClientTables(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    variable: tuple[Variable, ...]
    setting: tuple[EnvironmentSetting, ...]
    program: tuple[Program, ...]
    hint: tuple[Hint, ...]


class ClientSetup(NamedTuple):
    """The environment and the command of a program that uses the proxy. `changed` has the variables that were set."""

    environment: dict[str, str]
    command: list[str]
    changed: dict[str, str]


@cache
def client_tables() -> ClientTables:
    text = data_files("contextc.proxy", ".toml")["client_setup.toml"]
    return msgspec.convert(tomllib.loads(text), ClientTables)


def base_url(proxy: str, upstream: Upstream) -> str:
    """Return the base URL of an upstream for clients."""
    return f"{proxy}/{upstream.name}{upstream.base}"


def find_set_upstreams(environment: Mapping[str, str], known: Mapping[str, Upstream]) -> dict[str, Upstream]:
    """Return an upstream for each variable that is set, by the variable's name."""
    found: dict[str, Upstream] = {}
    for variable in client_tables().variable:
        if url := environment.get(variable.name, "").strip():
            made = parse_upstream(variable.upstream, url, label=variable.name)
            made = msgspec.structs.replace(made, base="")
            taken = {each.name: each for each in found.values()}
            number = 2
            name = made.name
            while name in taken and taken[name].url != made.url:
                name, number = f"{made.name}-{number}", number + 1
            found[variable.name] = msgspec.structs.replace(made, name=name)
    return found


def set_up_client(
    command: Sequence[str],
    environment: Mapping[str, str],
    proxy: str,
    upstreams: Mapping[str, Upstream],
    already_set: Mapping[str, Upstream],
    *,
    is_converted: bool = False,
) -> ClientSetup:
    """Return the environment and the command of a program that is to use the proxy at an address.

    With `is_converted`, another provider answers. Features that only the client's own provider has stay off.
    """
    program = program_name(command[0])
    changed: dict[str, str] = {}
    for variable in client_tables().variable:
        upstream = already_set.get(variable.name) or upstreams.get(variable.upstream)
        is_left = program in variable.not_for or (variable.only_if_set and variable.name not in already_set)
        if upstream is not None and not is_left:
            changed[variable.name] = base_url(proxy, upstream)
    for setting in () if is_converted else client_tables().setting:
        if not any(environment.get(name) for name in (setting.name, *setting.unless_set)):
            changed[setting.name] = setting.value
    if any(environment.get(name) for name in PROXY_VARIABLES):
        for name in NO_PROXY_VARIABLES:
            hosts = [each for each in environment.get(name, "").split(",") if each.strip()]
            changed[name] = ",".join(dict.fromkeys([*hosts, "127.0.0.1", "localhost"]))
    return ClientSetup(
        {**environment, **changed},
        [command[0], *_options(command, environment, proxy, upstreams), *command[1:]],
        changed,
    )


def program_name(command: str) -> str:
    name = os.path.basename(command).lower()
    return next((name.removesuffix(suffix) for suffix in PROGRAM_SUFFIXES if name.endswith(suffix)), name)


def _options(
    command: Sequence[str], environment: Mapping[str, str], proxy: str, upstreams: Mapping[str, Upstream]
) -> list[str]:
    name = program_name(command[0])
    for program in client_tables().program:
        if name in program.names and _matches(program, command[0], environment):
            url = base_url(proxy, upstreams[program.upstream])
            return [each.replace("{url}", url) for each in program.arguments]
    return []


def _matches(program: Program, executable: str, environment: Mapping[str, str]) -> bool:
    """Return True if a program has no probe, or if its probe prints what is expected."""
    if not program.probe:
        return True
    try:
        printed = subprocess.run(
            [executable, *program.probe],
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PROBE_SECONDS,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return program.probe_match.encode() in printed.stdout + printed.stderr
