"""Parsing of Host headers, for every server of this package."""

from collections.abc import Collection
from urllib.parse import urlsplit

ANY_HOST = "*"


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
