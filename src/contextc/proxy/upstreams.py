"""Upstreams: the servers that the proxy forwards to, by name. upstreams.toml has the facts."""

import re
import tomllib
from collections.abc import Iterable
from functools import cache, lru_cache
from urllib.parse import urlsplit

from msgspec import Struct

from contextc._json import JSONObject
from contextc._plugins import data_files
from contextc.errors import InvalidSetting

NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,40}")
RESERVED_NAMES = ("contextc", "t", "u")
"""First segments of the proxy's own paths."""
SCHEMES = {"http": 80, "https": 443}
VERSION = re.compile(rb"/v\d\w*/")
"""A version at the beginning of a path, such as /v1/ or /v1beta/."""


class Upstream(Struct, frozen=True, kw_only=True):
    """A server that requests are forwarded to. `path` precedes the path of each request.

    `base` is the path that clients expect at the end of a base URL. `known_as` is the usual address of the provider.
    `version` precedes model requests that do not begin with one.
    """

    name: str
    scheme: str
    host: str
    port: int
    path: str = ""
    base: str = ""
    known_as: str = ""
    version: str = ""

    @property
    def authority(self) -> str:
        """The value of the Host header."""
        name = f"[{self.host}]" if ":" in self.host else self.host
        return name if self.port == SCHEMES[self.scheme] else f"{name}:{self.port}"

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.authority}{self.path}"

    @property
    def is_vendor(self) -> bool:
        """True if this is the usual address of the provider."""
        return self.url == self.known_as

    def find_target(self, path: bytes) -> bytes:
        """Return the path of a request at this upstream."""
        if self.version and not VERSION.match(path) and find_format(path.decode("latin-1")) is not None:
            path = self.version.encode() + path
        return self.path.encode() + path or b"/"

    def record_url(self, path: str) -> str:
        """Return the address of a request as it is recorded: without its query, at the provider's usual host."""
        return f"{self.known_as or f'{self.scheme}://{self.authority}'}{self.path}{path}"


@cache
def _tables() -> JSONObject:
    return tomllib.loads(data_files("contextc.proxy", ".toml")["upstreams.toml"])


def known_upstreams() -> dict[str, dict[str, str]]:
    """Return the facts about the upstreams that have a name."""
    return {name: dict(facts) for name, facts in _tables()["upstreams"].items()}


@cache
def _recorded_paths() -> tuple[tuple[re.Pattern[str], str], ...]:
    return tuple([(re.compile(each["path"]), each["format"]) for each in _tables()["record"]])


@lru_cache(1024)
def find_format(path: str) -> str | None:
    """Return the format of requests to a path: "" if it must be detected, None if they are not recorded."""
    return next((format for pattern, format in _recorded_paths() if pattern.search(path)), None)


def parse_upstream(name: str, url: str, *, label: str = "upstream") -> Upstream:
    """Return an upstream from its name and URL."""
    if not NAME.fullmatch(name) or name in RESERVED_NAMES:
        raise InvalidSetting(
            f"{label}: a name must consist of lower-case letters, digits, '.', '_' and '-'", got=name, fix=USAGE
        )
    if "://" not in url:
        url = f"http://{url}"
    try:
        found = urlsplit(url)
        port = found.port
    except ValueError:
        found, port = urlsplit(""), None
    if found.scheme not in SCHEMES or not found.hostname:
        raise InvalidSetting(f"{label} {name}: expected an http or https URL", got=url, fix=USAGE)
    if found.username or found.password or found.query or found.fragment:
        raise InvalidSetting(
            f"{label} {name}: a URL must have no login, query or fragment", fix="Set the key in the client."
        )
    facts, path = known_upstreams().get(name, {}), found.path.rstrip("/")
    base = facts.get("base", "")
    return Upstream(
        name=name,
        scheme=found.scheme,
        host=found.hostname,
        port=port or SCHEMES[found.scheme],
        path=path,
        base="" if base and path.endswith(base) else base,
        known_as=facts.get("url", ""),
        version=facts.get("version", "") if url.rstrip("/") == facts.get("url") else "",
    )


USAGE = "Write it as NAME=URL, for example openai=https://api.openai.com."


def load_upstreams(given: Iterable[str] = ()) -> dict[str, Upstream]:
    """Return all upstreams by name: the known ones that have a URL, then those that the user gave as NAME=URL."""
    found = {name: parse_upstream(name, facts["url"]) for name, facts in known_upstreams().items() if "url" in facts}
    for each in given:
        name, separator, url = each.partition("=")
        if not separator:
            raise InvalidSetting("upstream: expected NAME=URL", got=each, fix=USAGE)
        found[name.strip()] = parse_upstream(name.strip(), url.strip())
    return found
