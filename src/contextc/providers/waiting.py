"""Timeouts: detect which timeout ended a call, and describe it with its limit.

Every HTTP client has its own timeout exceptions. The innermost is often useless ("Cancelled via cancel scope …").
They are detected by class name, so that no client is imported here. A timeout of the operating system has an `errno`
and is not one of our limits.
"""

import re
from collections.abc import Iterator
from typing import Literal, TypeAlias, cast

from contextc._json import JSON
from contextc.formats.settings import inner

Waited: TypeAlias = Literal["connect", "pool", "write", "read"]
CONNECT_SECONDS, READ_SECONDS = 10.0, 600.0
"""Timeouts to connect, and between two chunks of a response. Used for SDKs without suitable defaults."""
KINDS: dict[str, Waited] = {
    "ConnectTimeout": "connect",
    "ConnectTimeoutError": "connect",
    "PoolTimeout": "pool",
    "WriteTimeout": "write",
    "ReadTimeout": "read",
    "ReadTimeoutError": "read",
}
SAID: dict[Waited, str] = {
    "connect": "no connection within",
    "pool": "no free connection within",
    "write": "no data accepted for",
    "read": "no data received for",
}
FIGURE = re.compile(r"\((?:connect|read) timeout=([\d.]+)\)")
"""Timeout in the message of urllib3."""


def waited(error: BaseException, given: float | None, *, usual: bool) -> str:
    """Return a description of the timeout that an exception reports, or "" if it reports none.

    The limit is that of the exception, else `given`, else the default if `usual` is True.
    """
    kind = _kind(error)
    if kind is None:
        return ""
    seconds = _told(error, kind) or given
    if seconds is None and usual:
        seconds = READ_SECONDS if kind in ("read", "write") else CONNECT_SECONDS
    return f"{SAID[kind]} {f'{seconds:g} s' if seconds else 'too long'}"


def chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception, then its causes."""
    found: BaseException | None = error
    while found is not None:
        yield found
        found = found.__cause__ or found.__context__


def _kind(error: BaseException) -> Waited | None:
    for each in chain(error):
        if (kind := KINDS.get(type(each).__name__)) is not None:
            return kind
    late = any(isinstance(each, TimeoutError) and each.errno is None for each in chain(error))
    return "read" if late else None


def _told(error: BaseException, kind: Waited) -> float | None:
    """Return the limit that httpx stores in the request, or that urllib3 states in its message."""
    for each in chain(error):
        limits = inner(inner(getattr(_request(each), "extensions", None)).get("timeout"))
        if isinstance(limits.get(kind), int | float):
            return limits[kind]
        if figure := FIGURE.search(str(each)):
            return float(figure[1])
    return None


def _request(error: BaseException) -> JSON:
    try:
        return cast(JSON, getattr(error, "request", None))
    except RuntimeError:  # an httpx exception without a request
        return None
