"""Host headers and the number of connections, for every server of this package."""

from collections.abc import Collection
from contextlib import suppress
from urllib.parse import urlsplit

ANY_HOST = "*"
MAX_CONNECTIONS = 10_000
SPARE_FILES = 128
"""Files that are reserved for the store, providers and tools."""


def split_host(host: str) -> tuple[str, int | None]:
    """Return the name and port of a Host header; the name is "" if it is invalid."""
    try:
        found = urlsplit(f"//{host}")
        name, port = found.hostname or "", found.port
    except ValueError:
        return "", None
    if found.username is not None or found.path or found.query or found.fragment:
        return "", None
    return f"[{name}]" if ":" in name else name, port


def is_accepted_host(host: str, accepted: Collection[str]) -> bool:
    """Return True if the name in a Host header is an accepted one."""
    return ANY_HOST in accepted or split_host(host)[0] in accepted


def max_connections(*, raises_limit: bool = True) -> int:
    """Return the maximum number of connections by the open-file limit, which is raised first."""
    try:
        import resource
    except ModuleNotFoundError:  # Windows has no such limit
        return MAX_CONNECTIONS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_CONNECTIONS + SPARE_FILES
    if raises_limit and soft != resource.RLIM_INFINITY and soft < wanted:
        limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with suppress(OSError, ValueError):  # macOS has a lower limit of its own
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return MAX_CONNECTIONS
    return max(1, min(MAX_CONNECTIONS, soft - max(SPARE_FILES, soft // 4)))
