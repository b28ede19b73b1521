"""The programs that are providers: whether each is here, which version, where it keeps its things, how one logs in.

Which there are stands in `providers.toml`. All of it is found by looking at names of files: no program is started, no
SDK loaded, and no credentials are read.
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
from contextc.providers.named import Provider, program_tables

VERSION = re.compile(r"[\"'](\d[\w.+-]*)[\"']")


class Program(Struct, frozen=True, kw_only=True):
    """`package` is the Python package that brings it, and `module` its module; there the program lies at `inside`."""

    provider: str
    command: str
    module: str
    package: str
    inside: str
    log_in: str
    variable: str
    folder: str
    version_in: str = ""
    """A file of the module that holds the program's version, where it is not that of the package."""

    @property
    def path(self) -> str:
        """Where it is, "" where nowhere: the one of the package, else the user's own."""
        return self._bundled() or shutil.which(self.command) or ""

    @property
    def version(self) -> str:
        """Of the one that the package brings."""
        if not self._bundled():
            return ""
        try:
            if not self.version_in:
                return version(self.package)
            found = VERSION.search((self._place() / self.version_in).read_text(encoding="utf-8"))
        except (PackageNotFoundError, OSError, UnicodeDecodeError):
            return ""
        return found[1] if found else ""

    @property
    def home(self) -> Path:
        """The folder that the program keeps its settings and sessions in."""
        return Path(os.environ.get(self.variable) or Path.home() / self.folder)

    @property
    def is_installed(self) -> bool:
        """Whether the package is here, without which nothing is called."""
        return find_spec(self.module) is not None

    def login(self) -> str:
        """The command with which one logs in."""
        command = self.command if shutil.which(self.command) else self._bundled() or self.command
        return f"{shlex.quote(command)} {self.log_in}"

    def _place(self) -> Path:
        found = find_spec(self.module)
        return Path(found.origin or "").parent if found is not None else Path(os.devnull)

    def _bundled(self) -> str:
        found = self._place() / (self.inside + (".exe" if os.name == "nt" else ""))
        return str(found) if found.is_file() else ""


@cache
def programs() -> dict[str, Program]:
    """All there are, by the names of their clients."""
    return msgspec.convert(program_tables(), dict[str, Program])


def with_login(error: ProviderFailed, provider: Provider) -> ProviderFailed:
    """The same failure; where nobody is logged in, and no key is named, with the way to do so."""
    if error.kind != "auth" or provider.key:
        return error
    way_out, login = "Name the variable that holds the key for this address: cc.provider(…, url=…, key=…).", ""
    if not provider.url:
        login = programs()[provider.client].login()
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
