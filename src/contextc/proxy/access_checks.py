"""Access checks of the proxy: Host, Origin, Sec-Fetch-Site and the token. They precede everything else.

Any website in a local browser can send requests to a local server. So the `Host` header must be an accepted name, which
prevents DNS rebinding, and requests of web pages are refused. The token is a path segment, `/t/TOKEN/…`, or the header
`x-contextc-token`. Neither is forwarded: `Authorization` belongs to the provider. Under `/u/…` no token is required,
but the client must be a process of the proxy's own user, on this machine.
"""

import hmac
from collections.abc import Callable
from typing import NamedTuple

from contextc._http_access import is_accepted_host, split_host
from contextc.proxy.http1_framing import Head

TOKEN_HEADER = b"x-contextc-token"
TOKEN_PATH = b"/t/"
USER_PATH = b"/u/"
OWN_PREFIX = b"x-contextc-"
"""Header fields of our own, which are never forwarded."""


class AccessRules(NamedTuple):
    """Accepted host names ("*" accepts all), allowed origins, and the token; "" if none is required."""

    hosts: tuple[str, ...] = ("127.0.0.1", "localhost", "[::1]")
    origins: tuple[str, ...] = ()
    token: str = ""


class Refusal(Exception):
    """A request that is not forwarded: the status and the text of its response."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message


def check_access(rules: AccessRules, head: Head, target: bytes, is_own_user: Callable[[], bool]) -> bytes:
    """Return the target without the token. Raise `Refusal` if the request is not permitted.

    `is_own_user` returns True if the client is a process of this user.
    """
    hosts = head.values(b"host")
    host = hosts[0].decode("latin-1") if len(hosts) == 1 else ""
    if not is_accepted_host(host, rules.hosts):
        accepted = ", ".join(rules.hosts)
        name = split_host(host)[0][:100]
        raise Refusal(421, "unknown_host", f"Host: expected one of {accepted}, got {name!r}. Use one of these names.")
    origin, site = head.value(b"origin").decode("latin-1"), head.value(b"sec-fetch-site")
    if origin and origin not in rules.origins:
        raise Refusal(403, "foreign_page", f"Origin: web pages may not use this proxy, got {origin[:100]!r}.")
    if not origin and site not in (b"", b"none", b"same-origin"):
        raise Refusal(403, "foreign_page", "Sec-Fetch-Site: web pages may not use this proxy.")
    if target.startswith(USER_PATH):
        if not is_own_user():
            raise Refusal(401, "other_user", "/u/…: the client must be a process of the user who runs this proxy.")
        return target[len(USER_PATH) - 1 :]
    given = head.value(TOKEN_HEADER)
    if target.startswith(TOKEN_PATH):
        given, separator, rest = target[len(TOKEN_PATH) :].partition(b"/")
        target = separator + rest
    if rules.token and not hmac.compare_digest(given, rules.token.encode()):
        raise Refusal(
            401, "token_needed", "Token missing or invalid: use /t/TOKEN/… as the path, or send x-contextc-token."
        )
    return target
