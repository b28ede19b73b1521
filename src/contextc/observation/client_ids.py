"""The ids that clients send with their requests: conversation, sub-agent, side request. clients.toml has the facts."""

import re
import tomllib
from collections.abc import Mapping
from functools import cache
from typing import cast
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from contextc._json import JSON, JSONObject, as_object
from contextc._plugins import data_files

EXPLICIT = "contextc"
IN_BODY = "body."
COUNTING_PATH = re.compile(r"(?:/count_tokens|:countTokens|/input_tokens|/count-tokens)$")
"""Paths that count the tokens of a request."""


class Client(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The places of one client's ids."""

    name: str
    session: tuple[str, ...] = ()
    agent: tuple[str, ...] = ()
    parent: tuple[str, ...] = ()
    agent_mark: str = ""
    attribution: str = ""
    compacted: tuple[str, ...] = ()
    side: tuple[str, ...] = ()
    side_fields: tuple[str, ...] = ()
    side_tools: str = ""
    pattern: str = ""
    one_per_agent: bool = False
    weak: bool = False


class ClientIds(Struct, frozen=True, kw_only=True):
    """The ids of one request. `session` is "" if the client sent none. Several conversations may share a weak one.

    `agent` is "" in the main conversation of the session, and `parent` if that one started the sub-agent. `is_agent` is
    True for a sub-agent, also for one without an id. `is_certain` is True if every request with this session and agent
    is of one conversation, or is a side request.
    """

    client: str = ""
    session: str = ""
    agent: str = ""
    parent: str = ""
    is_agent: bool = False
    is_side: bool = False
    is_certain: bool = False
    is_compacted: bool = False
    is_weak: bool = False


@cache
def known_clients() -> tuple[Client, ...]:
    tables = tomllib.loads(data_files("contextc.observation", ".toml")["clients.toml"])
    return tuple([msgspec.convert(each, Client) for each in tables["client"]])


@cache
def attributions() -> tuple[str, ...]:
    """Return the beginnings of system blocks that differ at each request and are no part of what a provider caches."""
    return tuple([client.attribution for client in known_clients() if client.attribution])


def header_names() -> tuple[str, ...]:
    """Return the names of the headers that ids are read from."""
    places = [
        name
        for client in known_clients()
        for name in (*client.session, *client.agent, *client.parent, *client.compacted, *client.side)
    ]
    return tuple(dict.fromkeys([name for name in places if not name.startswith(IN_BODY)]))


def host_and_path(url: str) -> tuple[str, str]:
    """Return the host and the path of a URL; both are "" if it is invalid."""
    try:
        found = urlsplit(url)
    except ValueError:
        return "", ""
    return found.hostname or "", found.path


def read_ids(headers: Mapping[str, str], body: JSONObject, url: str = "") -> ClientIds:
    """Return the ids in the headers and the body of a request. `body` needs no messages."""
    given = {name.lower(): value for name, value in headers.items()}
    is_counting = COUNTING_PATH.search(host_and_path(url)[1]) is not None
    for client in known_clients():
        session = _session(client, given, body)
        if not session:
            continue
        agent, parent = (_first(given, body, names) for names in (client.agent, client.parent))
        agent = "" if agent == session else agent
        return ClientIds(
            client=client.name,
            session=session,
            agent=agent,
            parent="" if parent == session else parent,
            is_agent=bool(agent) or (bool(client.agent_mark) and client.agent_mark in str(body.get("system"))),
            is_side=is_counting or bool(_first(given, body, client.side)) or _is_side(client, body),
            is_certain=bool(agent) or client.one_per_agent,
            is_compacted=_first(given, body, client.compacted) not in ("", "0", "false"),
            is_weak=client.weak,
        )
    return ClientIds(is_side=is_counting)


def _session(client: Client, given: Mapping[str, str], body: JSONObject) -> str:
    """Return the session. The pattern applies to fields of the body only."""
    for name in client.session:
        value = _first(given, body, (name,))
        if value and client.pattern and name.startswith(IN_BODY):
            found = re.search(client.pattern, value)
            value = found[1] if found else ""
        if value:
            return value
    return ""


def _first(given: Mapping[str, str], body: JSONObject, names: tuple[str, ...]) -> str:
    for name in names:
        value = _field(body, name.removeprefix(IN_BODY)) if name.startswith(IN_BODY) else given.get(name)
        if isinstance(value, str) and value:
            return value
    return ""


def _field(body: JSONObject, path: str) -> JSON:
    value: JSON = body
    for name in path.split("."):
        value = cast(JSONObject, value).get(name) if isinstance(value, dict) else None
    return value


def _is_side(client: Client, body: JSONObject) -> bool:
    """Return True if a request has the form of a client's side requests."""
    tools = body.get("tools")
    if not tools:
        return any(_field(body, path) for path in client.side_fields)
    if not client.side_tools or not isinstance(tools, list):
        return False
    types = [str(as_object(each).get("type") or "") for each in cast(list[JSON], tools)]
    return all(re.fullmatch(client.side_tools, each) for each in types)
