"""A call that ended because nothing came: what was waited for, and for how long.

Every HTTP client has its own exceptions for it, and the innermost of them is an accident of its event loop ("Cancelled
via cancel scope …"). They are known by the names of their classes, so that no client is loaded here. A system that
gives up by itself has an `errno`, and is no limit of ours.
"""

import re
from collections.abc import Iterator
from typing import Literal, TypeAlias, cast

from contextc._json import JSON
from contextc.formats.settings import inner

Waited: TypeAlias = Literal["connect", "pool", "write", "read"]
CONNECT_SECONDS, READ_SECONDS = 10.0, 600.0
"""Of the clients whose SDK has no such limits, or none that would do: until there is a connection, and between two
pieces of an answer."""
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
    "pool": "no connection was free within",
    "write": "nothing was taken for",
    "read": "nothing came for",
}
FIGURE = re.compile(r"\((?:connect|read) timeout=([\d.]+)\)")
"""Where urllib3 says its limit."""


def waited(error: BaseException, given: float | None, *, usual: bool) -> str:
    """What was waited for in vain; "" where it was something else that failed.

    The limit is the one that the exception tells, or that was `given`, or, where those are in force, the `usual` one.
    """
    kind = _kind(error)
    if kind is None:
        return ""
    seconds = _told(error, kind) or given
    if seconds is None and usual:
        seconds = READ_SECONDS if kind in ("read", "write") else CONNECT_SECONDS
    return f"{SAID[kind]} {f'{seconds:g} s' if seconds else 'too long'}"


def chain(error: BaseException) -> Iterator[BaseException]:
    """An exception, and what it came from."""
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
    """The limit of the request, as httpx keeps it, or in the words of urllib3."""
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
    except RuntimeError:  # an exception of httpx's that belongs to none
        return None
