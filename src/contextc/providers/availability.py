"""Availability of providers: which have a key set or a program installed, and their known models.

Keys are never returned. A key that is set may be invalid, and a program may lack a login: only a call finds out.
"""

import os
import re
import shlex
import shutil
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

import msgspec
from msgspec import Struct

from contextc.errors import ProviderFailed
from contextc.providers.registry import (
    UNLIMITED_WINDOW,
    Provider,
    aliases_of,
    known_models,
    program_tables,
    provider,
    provider_names,
)

# ── CLI agents ────────────────────────────────────────────────────────────────────────────────────────────────────────
# CLI agents that are providers: path, version, configuration folder and login command of each.
#
# They are listed in `providers.toml`. Everything is found by file names: no program is started, no SDK is imported,
# and no credentials are read.


VERSION_TEXT = re.compile(r"[\"'](\d[\w.+-]*)[\"']")


class CLIAgent(Struct, frozen=True, kw_only=True):
    """A CLI agent. `package` is the Python package that contains it, and `module` the name to import.

    `inside` is the program's path in that module.
    """

    provider: str
    command: str
    module: str
    package: str
    inside: str
    log_in: str
    variable: str
    folder: str
    version_in: str = ""
    """File in the module that holds the program's version. If empty, the version is that of the package."""

    @property
    def path(self) -> str:
        """Path of the program in the package, else of the one on PATH, else ""."""
        return self._bundled() or shutil.which(self.command) or ""

    @property
    def version(self) -> str:
        """Version of the program in the package."""
        if not self._bundled():
            return ""
        try:
            if not self.version_in:
                return version(self.package)
            found = VERSION_TEXT.search((self._place() / self.version_in).read_text(encoding="utf-8"))
        except (PackageNotFoundError, OSError, UnicodeDecodeError):
            return ""
        return found[1] if found else ""

    @property
    def home(self) -> Path:
        """Folder of the program's settings and sessions."""
        return Path(os.environ.get(self.variable) or Path.home() / self.folder)

    @property
    def is_installed(self) -> bool:
        """True if the package is installed, which every call needs."""
        return find_spec(self.module) is not None

    def login_command(self) -> str:
        """Return the command that logs in."""
        command = self.command if shutil.which(self.command) else self._bundled() or self.command
        return f"{shlex.quote(command)} {self.log_in}"

    def _place(self) -> Path:
        found = find_spec(self.module)
        return Path(found.origin or "").parent if found is not None else Path(os.devnull)

    def _bundled(self) -> str:
        found = self._place() / (self.inside + (".exe" if os.name == "nt" else ""))
        return str(found) if found.is_file() else ""


@cache
def known_cli_agents() -> dict[str, CLIAgent]:
    """Return all CLI agents, by the name of their client."""
    return msgspec.convert(program_tables(), dict[str, CLIAgent])


def with_login_fix(error: ProviderFailed, provider: Provider) -> ProviderFailed:
    """Return the failure. If login is missing and no key is named, its fix is the login command."""
    if error.kind != "auth" or provider.key:
        return error
    way_out, login = "Name the environment variable with the key for this URL: cc.provider(…, url=…, key=…).", ""
    if not provider.url:
        login = known_cli_agents()[provider.client].login_command()
        way_out = f"Log in: {login}; or name a variable with a key: cc.provider(…, key=…)."
    return ProviderFailed(
        error.provider,
        error.kind,
        error.said,
        status=error.status,
        code=error.code,
        way_out=way_out,
        case="login",
        detail=login,
    )


# ── providers ─────────────────────────────────────────────────────────────────────────────────────────────────────────


SDK_KEYS = {
    "openai": ("OPENAI_API_KEY",),
    "anthropic": ("ANTHROPIC_API_KEY",),
    "gemini": ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    "bedrock": ("AWS_BEARER_TOKEN_BEDROCK", "AWS_ACCESS_KEY_ID", "AWS_PROFILE"),
}
"""Variables that the SDKs read by default, by client."""
REPLAY = "replay"


class ProviderStatus(Struct, frozen=True, kw_only=True):
    """A provider, its known models, and whether it is available.

    `also` are its aliases. `variables` are the environment variables that may hold its key, without their values.
    """

    name: str
    also: list[str]
    models: list[str]
    needs_key: bool
    is_ready: bool
    variables: list[str]


def key_variables(known: Provider) -> tuple[str, ...]:
    """Return the environment variables that may hold the key. Empty if no key is needed."""
    if known.key:
        return (known.key,)
    return () if known.url else SDK_KEYS.get(known.client, ())


def list_providers() -> list[ProviderStatus]:
    """Return all providers except `replay`, which is named by a file."""
    found: list[ProviderStatus] = []
    for name in provider_names():
        if name == REPLAY:
            continue
        known = provider(f"{name}:any", window=UNLIMITED_WINDOW)
        keys = key_variables(known)
        program = known_cli_agents().get(known.client)
        ready = not keys or any(os.environ.get(variable, "").strip() for variable in keys)
        if program is not None:
            keys, ready = (), program.is_installed and bool(program.path)
        found.append(
            ProviderStatus(
                name=name,
                also=[*aliases_of(name)],
                models=[*known_models(name)],
                needs_key=bool(keys),
                is_ready=ready,
                variables=[*keys],
            )
        )
    return found
