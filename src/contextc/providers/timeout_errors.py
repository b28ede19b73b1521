"""Timeouts: detect which timeout ended a call, and describe it with its limit.

Every HTTP client has its own timeout exceptions. The innermost is often useless ("Cancelled via cancel scope …").
They are detected by class name, so that no client is imported here. A timeout of the operating system has an `errno`
and is not one of our limits.
"""

import re
from collections.abc import Iterator
from typing import Literal, TypeAlias, cast

from contextc._json import JSON
from contextc.formats.request_settings import object_or_empty

TimeoutKind: TypeAlias = Literal["connect", "pool", "write", "read"]
CONNECT_SECONDS, READ_SECONDS = 10.0, 600.0
"""Timeouts to connect, and between two chunks of a response. Used for SDKs without suitable defaults."""
TIMEOUT_KINDS: dict[str, TimeoutKind] = {
    "ConnectTimeout": "connect",
    "ConnectTimeoutError": "connect",
    "PoolTimeout": "pool",
    "WriteTimeout": "write",
    "ReadTimeout": "read",
    "ReadTimeoutError": "read",
}
TIMEOUT_TEXTS: dict[TimeoutKind, str] = {
    "connect": "no connection within",
    "pool": "no free connection within",
    "write": "no data accepted for",
    "read": "no data received for",
}
URLLIB3_TIMEOUT = re.compile(r"\((?:connect|read) timeout=([\d.]+)\)")
"""Timeout in the message of urllib3."""


def describe_timeout(error: BaseException, limit: float | None, *, use_default: bool) -> str:
    """Return a description of the timeout that an exception reports, or "" if it reports none.

    The limit is that of the exception, else `limit`, else the default if `use_default` is True.
    """
    kind = _kind(error)
    if kind is None:
        return ""
    seconds = _limit_of(error, kind) or limit
    if seconds is None and use_default:
        seconds = READ_SECONDS if kind in ("read", "write") else CONNECT_SECONDS
    return f"{TIMEOUT_TEXTS[kind]} {f'{seconds:g} s' if seconds else 'too long'}"


def exception_chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception, then its causes."""
    found: BaseException | None = error
    while found is not None:
        yield found
        found = found.__cause__ or found.__context__


def _kind(error: BaseException) -> TimeoutKind | None:
    for each in exception_chain(error):
        if (kind := TIMEOUT_KINDS.get(type(each).__name__)) is not None:
            return kind
    late = any(isinstance(each, TimeoutError) and each.errno is None for each in exception_chain(error))
    return "read" if late else None


def _limit_of(error: BaseException, kind: TimeoutKind) -> float | None:
    """Return the limit that httpx stores in the request, or that urllib3 states in its message."""
    for each in exception_chain(error):
        limits = object_or_empty(object_or_empty(getattr(_request(each), "extensions", None)).get("timeout"))
        if isinstance(limits.get(kind), int | float):
            return limits[kind]
        if figure := URLLIB3_TIMEOUT.search(str(each)):
            return float(figure[1])
    return None


def _request(error: BaseException) -> JSON:
    try:
        return cast(JSON, getattr(error, "request", None))
    except RuntimeError:  # an httpx exception without a request
        return None
