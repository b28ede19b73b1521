"""The declaration of an MCP server: a program to start, or an address, and what of it an agent may use.

A declaration is a value. It holds no secret if it names variables: `${GITHUB_TOKEN}` is replaced when the server is
started, and neither the declaration nor its `repr` has what it stands for.
"""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import cast
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import force_setattr

from contextc.errors import InvalidSetting

NAME = re.compile(r"[a-zA-Z](?:[a-zA-Z0-9.-]|_(?!_|$)){0,47}")
SEPARATOR = "__"
"""It stands between the name of a server and that of a tool, and never within the name of a server."""
VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-((?:[^}$]|\$(?!\{))*))?\}")
INHERITED_VARIABLES = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR"),
    *("APPDATA", "LOCALAPPDATA", "HOMEDRIVE", "HOMEPATH", "PATHEXT", "PROCESSOR_ARCHITECTURE", "SYSTEMDRIVE"),
    *("SYSTEMROOT", "TEMP", "TMP", "USERNAME", "USERPROFILE"),
)
"""The variables of this process that a server gets, too. All others have to be declared."""
START_SECONDS = 30.0


class MCPServer(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """An MCP server whose tools an agent may use: a program (`command`), or an address (`url`).

    `name` becomes the first part of the names of its tools: `files__read_file`. In `command`, `args`, `env`, `cwd`,
    `url` and `headers`, `${NAME}` stands for a variable of this process, and `${NAME:-text}` has a default. A program
    gets only the variables in `env`, and a few such as PATH and HOME.

    `tools` are the names of the tools that are offered, as the server spells them; by default all. `needs_approval`
    is True, or the names of the tools that a person must approve. `auth` is a login for a server with a `url`: an
    OAuth provider of `mcp.client.auth`, or another `httpx2.Auth`. `timeout` is the time limit of a call in seconds, by
    default that of the agent's limits. `start_timeout` limits how long the first step waits for the server.
    """

    name: str
    command: str = ""
    args: Sequence[str] = ()
    env: Mapping[str, str] = {}
    cwd: str = ""
    url: str = ""
    headers: Mapping[str, str] = {}
    auth: object = None
    tools: Sequence[str] | None = None
    needs_approval: bool | Sequence[str] = False
    timeout: float | None = None
    start_timeout: float = START_SECONDS

    def __post_init__(self) -> None:
        for field in ("args", "tools", "needs_approval"):
            value = cast(object, getattr(self, field))
            if isinstance(value, Iterable) and not isinstance(value, str | bytes):
                force_setattr(self, field, tuple(cast(Iterable[object], value)))
        if problem := _find_problem(self):
            raise InvalidSetting(f"MCP server {self.name!r}: {problem[0]}", fix=problem[1])

    def __repr__(self) -> str:
        where = self.command or urlsplit(self.url).hostname
        return f"MCPServer(name={self.name!r}, {'command' if self.command else 'host'}={where!r})"

    def requires_approval(self, tool: str) -> bool:
        """Return True if a person must approve calls of this tool. The name is the server's."""
        wanted = self.needs_approval
        return wanted if isinstance(wanted, bool) else tool in wanted

    def offers(self, tool: str) -> bool:
        """Return True if agents may use this tool. The name is the server's."""
        return self.tools is None or tool in self.tools

    def variables(self) -> tuple[str, ...]:
        """Return the names of the variables that the declaration names, sorted."""
        texts = [self.command, *self.args, *self.env.values(), self.cwd, self.url, *self.headers.values()]
        return tuple(sorted({found[1] for text in texts for found in VARIABLE.finditer(text)}))

    def expanded(self, environment: Mapping[str, str] = os.environ) -> "MCPServer":
        """Return the declaration with the values of its variables. Raise `InvalidSetting` if one is not set."""

        def value(found: re.Match[str]) -> str:
            if (known := environment.get(found[1])) or found[2] is not None:
                return known or found[2]
            raise InvalidSetting(
                f"MCP server {self.name!r}: the variable {found[1]} is not set",
                fix=f"Set it, or write ${{{found[1]}:-a default}}.",
            )

        def expand(text: str) -> str:
            return VARIABLE.sub(value, text)

        return MCPServer(
            name=self.name,
            command=expand(self.command),
            args=tuple(map(expand, self.args)),
            env={name: expand(text) for name, text in self.env.items()},
            cwd=expand(self.cwd),
            url=expand(self.url),
            headers={name: expand(text) for name, text in self.headers.items()},
            auth=self.auth,
            tools=self.tools,
            needs_approval=self.needs_approval,
            timeout=self.timeout,
            start_timeout=self.start_timeout,
        )

    def environment(self, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
        """Return the variables that the program gets."""
        inherited = {name: environment[name] for name in INHERITED_VARIABLES if name in environment}
        return {**inherited, **self.env}


def _find_problem(server: MCPServer) -> tuple[str, str] | None:
    """Return what is wrong with a declaration, and the fix."""
    texts = [server.name, server.command, server.cwd, server.url, *server.args, *(server.tools or ())]
    pairs = [each for values in (server.env, server.headers) for pair in values.items() for each in pair]
    if not all([isinstance(each, str) for each in [*texts, *pairs]]):
        return "names, arguments, variables and headers must be text", "Write numbers as text, too."
    if not NAME.fullmatch(server.name):
        return (
            "name must begin with a letter, and have up to 48 letters, digits, `.`, `-` and single `_` between them",
            'Name it for what it gives access to: name="github".',
        )
    if server.name.lower() == "mcp":
        return (
            "this name is reserved: some providers have tools of their own that begin with mcp__",
            "Choose another one.",
        )
    if bool(server.command) == bool(server.url):
        return "it must have a command or a url, and not both", 'Pass command="npx", args=[…], or url="https://…".'
    if server.url and not (server.url.startswith(("https://", "http://", "${"))):
        return "url must start with https:// or http://", "Pass the address of its streamable HTTP endpoint."
    if server.url and (server.args or server.env or server.cwd):
        return "args, env and cwd are for a program", "Pass headers={…} to a server with a url."
    if server.command and server.headers:
        return "headers are for a server with a url", "Pass env={…} to a program."
    if server.auth is not None and not server.url:
        return "auth is for a server with a url", "Pass env={…} to a program."
    if server.auth is not None and not callable(getattr(server.auth, "async_auth_flow", None)):
        return (
            f"auth must be an httpx2.Auth, got {type(server.auth).__name__}",
            "Pass a provider of mcp.client.auth, such as ClientCredentialsOAuthProvider, or use headers={…}.",
        )
    if isinstance(server.needs_approval, str):
        return "needs_approval must be True, False or a list of names", f"Pass [{server.needs_approval!r}]."
    if isinstance(server.tools, str):
        return "tools must be a list of names", f"Pass [{server.tools!r}]."
    for name in ("timeout", "start_timeout"):
        seconds = cast(object, getattr(server, name))
        if seconds is None and name == "timeout":
            continue
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < float("inf"):
            return f"{name} must be a number of seconds above 0", "Omit it for the default."
    return None


def check_servers(servers: object) -> tuple[MCPServer, ...]:
    """Return the servers of an agent. Raise `InvalidSetting` if they are none, or if two have the same name."""
    if servers is None:
        return ()
    listed = cast(Iterable[object], servers) if isinstance(servers, Iterable) else [servers]
    found: dict[str, MCPServer] = {}
    for each in listed:
        if not isinstance(each, MCPServer):
            raise InvalidSetting(
                f"mcp_servers must be declarations of servers, got {type(each).__name__}",
                fix='Pass [cc.MCPServer(name="files", command="npx", args=[…])].',
            )
        if each.name.lower() in found:
            raise InvalidSetting(
                f"mcp_servers: two servers are named {each.name!r}", fix="Their tools need different prefixes."
            )
        found[each.name.lower()] = each
    return tuple(found.values())
