"""Variables and options that point a program at the proxy. client_setup.toml has the facts.

Everything is set for the started process only. A base URL that is set already becomes the upstream. Whatever the
program itself reads stays in force: the proxy never leads it to another server than the one it would have called.
"""

import os
import re
import subprocess
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec import Struct

from contextc._plugins import data_files
from contextc.proxy.access_checks import can_find_users
from contextc.proxy.upstreams import Upstream, parse_upstream

PROBE_SECONDS = 5.0
MAX_FILE_BYTES = 1 << 20
NO_PROXY_VARIABLES = ("NO_PROXY", "no_proxy")
PROXY_VARIABLES = ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")
FORWARD_VARIABLES = ("HTTPS_PROXY", "https_proxy")
NODE_VARIABLE = "NODE_USE_ENV_PROXY"
"""Without it, Node's own `fetch` uses no proxy."""
LOOPBACK = ("127.0.0.1", "localhost", "::1")
PROGRAM_SUFFIXES = (".exe", ".cmd", ".ps1")
OPTIONS = ""
"""The options of a program, in place of a variable."""


class Variable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    upstream: str
    used_by: str
    base: str | None = None
    only_if_set: bool = False
    not_for: tuple[str, ...] = ()
    alternatives: tuple[str, ...] = ()


class EnvironmentSetting(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    value: str
    variable: str


class Program(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    names: tuple[str, ...]
    upstream: str
    arguments: tuple[str, ...]
    if_set: str = ""
    if_argument: tuple[str, ...] = ()
    probe: tuple[str, ...] = ()
    probe_match: str = ""


class AddressFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    paths: tuple[str, ...]
    programs: tuple[str, ...] = ()
    fields: dict[str, str] = {}


class Requirement(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    programs: tuple[str, ...]
    variable: str
    paths: tuple[str, ...]
    field: str
    reason: str


class Hint(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    client: str
    upstream: str
    text: str
    is_argument: bool = False


class Forwarded(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    names: tuple[str, ...]
    unless_set: tuple[str, ...] = ()
    reason: str = ""


class Background(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    names: tuple[str, ...]
    variables: dict[str, str] = {}
    folders: dict[str, tuple[str, ...]] = {}
    unless_set: tuple[str, ...] = ()
    unless_argument: tuple[str, ...] = ()


class CopiedTrust(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    paths: tuple[str, ...]


class TrustVariable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    adds: bool = False
    only_if_set: bool = False


class ClientTables(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    variable: tuple[Variable, ...]
    setting: tuple[EnvironmentSetting, ...]
    program: tuple[Program, ...]
    file: tuple[AddressFile, ...]
    requirement: tuple[Requirement, ...]
    hint: tuple[Hint, ...]
    forwarded: tuple[Forwarded, ...]
    background: tuple[Background, ...]
    trust: tuple[TrustVariable, ...]
    copied: tuple[CopiedTrust, ...]


class ProxyAddresses(NamedTuple):
    """The proxy's address with its token, and one for arguments, which every user of the machine can list."""

    secret: str
    listed: str

    @classmethod
    def make(cls, address: str, token: str) -> "ProxyAddresses":
        """Return the addresses of a proxy. Where the user of a client cannot be found, both have the token."""
        secret = f"{address}/t/{token}" if token else address
        return cls(secret, f"{address}/u" if token and can_find_users() else secret)


class ClientSetup(NamedTuple):
    """The environment and the command of a program that uses the proxy. `changed` has the variables that were set.

    `unrecorded` are reasons why requests may not be recorded.
    """

    environment: dict[str, str]
    command: list[str]
    changed: dict[str, str]
    unrecorded: list[str]


@cache
def client_tables() -> ClientTables:
    text = data_files("contextc.proxy", ".toml")["client_setup.toml"]
    return msgspec.convert(tomllib.loads(text), ClientTables)


def base_url(proxy: str, upstream: Upstream, base: str | None = None) -> str:
    """Return the base URL of an upstream for clients."""
    return f"{proxy}/{upstream.name}{upstream.base if base is None else base}"


def find_set_upstreams(environment: Mapping[str, str], known: Mapping[str, Upstream]) -> dict[str, Upstream]:
    """Return an upstream for each variable that is set, by the variable's name.

    Their names are not those of known upstreams: other variables and options of the program still lead to these.
    """
    found: dict[str, Upstream] = {}
    taken = dict.fromkeys(known, "")
    for variable in client_tables().variable:
        if url := environment.get(variable.name, "").strip():
            made = parse_upstream(variable.upstream, url, label=variable.name)
            made = msgspec.structs.replace(made, base="")
            number, name = 2, made.name
            while taken.get(name, made.url) != made.url:
                name, number = f"{made.name}-{number}", number + 1
            taken[name] = made.url
            found[variable.name] = msgspec.structs.replace(made, name=name)
    return found


def set_up_client(
    command: Sequence[str],
    environment: Mapping[str, str],
    proxy: ProxyAddresses,
    upstreams: Mapping[str, Upstream],
    already_set: Mapping[str, Upstream],
    *,
    is_converted: bool = False,
    folder: Path | None = None,
) -> ClientSetup:
    """Return the environment and the command of a program that is to use the proxy at an address.

    With `is_converted`, another provider answers. Features that only the client's own provider has stay off.
    `folder` is the program's working directory.
    """
    program, tables = program_name(command[0]), client_tables()
    in_files = find_file_addresses(program, environment, folder or Path.cwd())
    missing = {
        each.variable: each.reason
        for each in tables.requirement
        if program in each.programs
        and each.variable not in already_set
        and not any([_sets(_read(path), each.field) for path in _files(each.paths, environment, folder or Path.cwd())])
    }
    changed: dict[str, str] = {}
    used: dict[str, Upstream] = {}
    for variable in tables.variable:
        upstream = already_set.get(variable.name) or upstreams.get(variable.upstream)
        is_set = variable.name in already_set
        others = [*already_set, *in_files]
        is_left = program in variable.not_for or (
            not is_set
            and (
                variable.only_if_set
                or variable.name in in_files
                or variable.name in missing
                or any([each in others for each in variable.alternatives])
            )
        )
        if upstream is not None and not is_left:
            changed[variable.name] = base_url(proxy.secret, upstream, None if is_set else variable.base)
            used[variable.name] = upstream
    for setting in () if is_converted else tables.setting:
        upstream = used.get(setting.variable)
        if upstream is not None and upstream.is_vendor and not environment.get(setting.name):
            changed[setting.name] = setting.value
    if any(environment.get(name) for name in PROXY_VARIABLES):
        for name in NO_PROXY_VARIABLES:
            hosts = [each for each in environment.get(name, "").split(",") if each.strip()]
            changed[name] = ",".join(dict.fromkeys([*hosts, "127.0.0.1", "localhost"]))
    changed |= _without_background(command, environment)
    options = [] if OPTIONS in in_files else _options(command, environment, proxy.listed, upstreams)
    reasons = [each.reason for each in tables.forwarded if program in each.names and each.reason]
    reasons += missing.values()
    for name, (field, path) in in_files.items():
        fix = f"Set {name} in the environment instead." if name else "Leave it out, and set the upstream instead."
        if name not in already_set:
            reasons.append(f"{path} sets {field}, which is left as it is. {fix}")
    return ClientSetup({**environment, **changed}, [command[0], *options, *command[1:]], changed, reasons)


def wants_forward_proxy(command: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Return True if a program is watched through a forward proxy unless another way is asked for."""
    program = program_name(command[0])
    return any(
        [
            program in each.names and not any([environment.get(name) for name in each.unless_set])
            for each in client_tables().forwarded
        ]
    )


def set_up_forwarded_client(
    command: Sequence[str],
    environment: Mapping[str, str],
    proxy: str,
    trust: Mapping[str, str],
    hosts: Iterable[str],
) -> ClientSetup:
    """Return the environment and the command of a program that is to use the forward proxy at a URL.

    `trust` are variables that make it trust the certificates for `hosts`. What the program reaches without a proxy
    stays so, unless it is one of these hosts, or everything.
    """
    ends = [f".{each}" for each in hosts]
    changed = {**trust, **dict.fromkeys(FORWARD_VARIABLES, proxy)}
    for name in NO_PROXY_VARIABLES:
        kept = [
            each.strip()
            for each in environment.get(name, "").split(",")
            if (bare := each.strip().partition(":")[0].lstrip("*.").lower())
            and not any([end.endswith(f".{bare}") or f".{bare}".endswith(end) for end in ends])
        ]
        changed[name] = ",".join(dict.fromkeys([*kept, *LOOPBACK]))
    if not environment.get(NODE_VARIABLE):
        changed[NODE_VARIABLE] = "1"
    changed |= _without_background(command, environment)
    return ClientSetup({**environment, **changed}, list(command), changed, [])


def find_path(paths: Sequence[str], environment: Mapping[str, str]) -> Path | None:
    """Return the first path whose beginning is known: a variable that is set, or the home directory."""
    home = environment.get("HOME") or environment.get("USERPROFILE", "")
    for path in paths:
        first, _, rest = path.partition("/")
        if begin := (home if first == "~" else environment.get(first.removeprefix("$"), "").strip()):
            return Path(begin, rest)
    return None


def _without_background(command: Sequence[str], environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables with which a program sends its requests itself."""
    program, found = program_name(command[0]), dict[str, str]()
    for table in client_tables().background:
        is_set = any([environment.get(each) for each in (*table.variables, *table.folders, *table.unless_set)])
        is_chosen = any([each.partition("=")[0] in table.unless_argument for each in command[1:]])
        if program in table.names and not is_set and not is_chosen:
            folders = {name: find_path(paths, environment) for name, paths in table.folders.items()}
            found |= table.variables
            found |= {name: str(folder) for name, folder in folders.items() if folder is not None}
    return found


def program_name(command: str) -> str:
    name = os.path.basename(command).lower()
    return next((name.removesuffix(suffix) for suffix in PROGRAM_SUFFIXES if name.endswith(suffix)), name)


def _options(
    command: Sequence[str], environment: Mapping[str, str], proxy: str, upstreams: Mapping[str, Upstream]
) -> list[str]:
    name = program_name(command[0])
    for program in client_tables().program:
        if name in program.names and _matches(program, command, environment):
            url = base_url(proxy, upstreams[program.upstream])
            return [each.replace("{url}", url) for each in program.arguments]
    return []


def _matches(program: Program, command: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Return True if all conditions of a table hold."""
    if program.if_set and not environment.get(program.if_set):
        return False
    if program.if_argument and not any([each in program.if_argument for each in command[1:]]):
        return False
    if not program.probe:
        return True
    try:
        printed = subprocess.run(
            [command[0], *program.probe],
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PROBE_SECONDS,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return program.probe_match.encode() in printed.stdout + printed.stderr


# ── files with an address ─────────────────────────────────────────────────────────────────────────────────────────────


def find_file_addresses(program: str, environment: Mapping[str, str], folder: Path) -> dict[str, tuple[str, Path]]:
    """Return the variables that files of a program set, each with the name it has there, and the file.

    The files are not parsed: a name before `=` or `:` outside of a comment counts.
    """
    names = {each.name: each.name for each in client_tables().variable}
    found: dict[str, tuple[str, Path]] = {}
    for table in client_tables().file:
        if table.programs and program not in table.programs:
            continue
        for path in _files(table.paths, environment, folder):
            text = _read(path)
            for field, variable in {**names, **table.fields}.items():
                if _sets(text, field):
                    found.setdefault(variable, (field, path))
    return found


def _sets(text: str, field: str) -> bool:
    pattern = rf'^(?![^\S\n]*+(?:#|//)).*(?<![\w.-]){field}["\']?\s*[=:]'
    return field in text and re.search(pattern, text, re.MULTILINE) is not None


def _files(paths: Sequence[str], environment: Mapping[str, str], folder: Path) -> Iterator[Path]:
    home = environment.get("HOME") or environment.get("USERPROFILE")
    places = [folder, *folder.parents]
    places += [Path(home)] if home and Path(home) not in places else []
    for path in paths:
        first, _, rest = path.partition("/")
        if first.startswith("$"):
            value = environment.get(first[1:])
            yield from sorted(Path(value).glob(rest)) if value else ()
        else:
            for place in places:
                yield from sorted(place.glob(path))


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(MAX_FILE_BYTES).decode(errors="replace")
    except OSError:
        return ""
