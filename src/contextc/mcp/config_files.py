"""The MCP servers that are configured: in the `contextc.toml` of the user and of a project, and in its `.mcp.json`.

A project's files may come with a cloned repository, and a server is a program that they start. So they are used only
with the content that a person has trusted (`contextc trust`). All tools of configured servers need approval, unless
the table says otherwise.
"""

import json
import os
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import NamedTuple, cast

import msgspec

from contextc._json import JSONObject
from contextc.config import (
    CONFIG_FILE,
    UntrustedFile,
    describe_change,
    find_untrusted_file,
    is_trusted,
    read_mcp_tables,
)
from contextc.errors import InvalidSetting
from contextc.mcp.declaration import MCPServer

PROJECT_FILE = ".mcp.json"
SERVERS = "mcpServers"
AGENTS = "agents"
"""The field of a table with the names of the agents that have the server; without it, all have it."""
FIELDS = ("command", "args", "env", "cwd", "url", "headers")
"""The fields of a server in `.mcp.json` that are read. Other programs have more."""
TRUST_FIX = "`contextc trust` shows it, and asks"


class ConfiguredServers(NamedTuple):
    """The servers of an agent in a folder, the reasons why others are not started, and what waits for approval."""

    servers: tuple[MCPServer, ...] = ()
    skipped: tuple[str, ...] = ()
    pending: tuple[UntrustedFile, ...] = ()
    """Files that `contextc.config.trust_file` lets be used."""


def find_servers(
    folder: str | os.PathLike[str] = ".", *, agent: str = "assistant", environment: Mapping[str, str] = os.environ
) -> ConfiguredServers:
    """Return the MCP servers that are configured for an agent in a folder. Nothing is started.

    A server of the user's own file is not replaced by one of the project with the same name.
    """
    folder = os.fspath(folder)
    found: dict[str, MCPServer] = {}
    skipped: list[str] = []
    pending: list[UntrustedFile] = []
    for path, name, facts in read_mcp_tables(environment=environment, folder=folder):
        server, agents = _read_table(path, name, facts)
        if agents is not None and agent not in agents:
            continue
        _add(found, skipped, server, path)
    file = find_untrusted_file(environment=environment, folder=folder)
    if file is not None and any(change.startswith("mcp.") for change in file.changes):
        pending.append(file)
        skipped.append(f"{CONFIG_FILE}: not approved. {TRUST_FIX}.")
    path = os.path.join(folder, PROJECT_FILE)
    try:
        declared, approval = read_project_file(path)
        if approval is not None and not is_trusted(approval, environment=environment):
            pending.append(approval)
            skipped.append(f"{PROJECT_FILE}: not approved. {TRUST_FIX}.")
            declared = {}
        for name, facts in declared.items():
            try:
                _add(found, skipped, _read_server(path, name, facts), path)
            except InvalidSetting as error:  # it is not the user's file
                skipped.append(str(error))
    except InvalidSetting as error:
        skipped.append(str(error))
    return ConfiguredServers(tuple(found.values()), tuple(skipped), tuple(pending))


def choose_servers(found: ConfiguredServers, chosen: str) -> ConfiguredServers:
    """Return the servers of a choice: `all`, `none`, or names separated by commas."""
    if chosen in ("all", "none"):
        return found if chosen == "all" else ConfiguredServers()
    names, known = [name.strip() for name in chosen.split(",")], {each.name: each for each in found.servers}
    if unknown := [name for name in names if name not in known]:
        raise InvalidSetting(
            f"MCP server {unknown[0]!r} is not configured for this agent, or not approved",
            fix=f"Use {', '.join(['all', 'none', *known])}, or add [mcp.{unknown[0]}] to {CONFIG_FILE}.",
        )
    return ConfiguredServers(tuple([known[name] for name in names]))


def read_project_file(path: str) -> tuple[dict[str, JSONObject], UntrustedFile | None]:
    """Return the servers in a `.mcp.json`, and the file as one to be approved; None if there is none."""
    try:
        with open(path, "rb") as file:
            data = file.read()
        content: object = json.loads(data)
    except (FileNotFoundError, NotADirectoryError):
        return {}, None
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidSetting(f"{path} cannot be read: {error}.") from error
    servers: object = cast(JSONObject, content).get(SERVERS) if isinstance(content, dict) else None
    if not isinstance(servers, dict) or not all(
        [isinstance(each, dict) for each in cast(JSONObject, servers).values()]
    ):
        raise InvalidSetting(f'{path}: expected {{"{SERVERS}": {{"name": {{…}}}}}}')
    named = cast(dict[str, JSONObject], servers)
    pairs = [(f"{SERVERS}.{name}.{fact}", value) for name, facts in named.items() for fact, value in facts.items()]
    changes = tuple([describe_change(fact, value) for fact, value in pairs])
    return named, UntrustedFile(path, sha256(data).hexdigest(), changes, frozenset())


def _add(found: dict[str, MCPServer], skipped: list[str], server: MCPServer, path: str) -> None:
    if server.name.lower() in found:
        skipped.append(f"{path}: {server.name} is declared already, and is not replaced.")
    else:
        found[server.name.lower()] = server


def _read_table(path: str, name: str, facts: Mapping[str, object]) -> tuple[MCPServer, Sequence[str] | None]:
    """Return the server of a table in a `contextc.toml`, and the agents that have it."""
    agents = facts.get(AGENTS)
    if agents is not None and not isinstance(agents, list):
        raise InvalidSetting(
            f"{path}: mcp.{name}.{AGENTS} must be a list of names", fix=f'Write {AGENTS} = ["assistant"].'
        )
    kept = {fact: value for fact, value in facts.items() if fact != AGENTS}
    return _convert(path, name, {"needs_approval": True, **kept}), cast(list[str] | None, agents)


def _read_server(path: str, name: str, facts: JSONObject) -> MCPServer:
    """Return a server of a `.mcp.json`."""
    if facts.get("type") == "sse":
        raise InvalidSetting(f"{path}: {name}: servers with the transport sse are not supported.")
    return _convert(path, name, {**{fact: facts[fact] for fact in FIELDS if fact in facts}, "needs_approval": True})


def _convert(path: str, name: str, facts: Mapping[str, object]) -> MCPServer:
    try:
        return msgspec.convert({**facts, "name": name}, MCPServer)
    except (msgspec.ValidationError, InvalidSetting) as error:  # values are not shown: they may be secrets
        raise InvalidSetting(f"{path}: mcp.{name}: {error}") from error
