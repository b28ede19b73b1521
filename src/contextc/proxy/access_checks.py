"""Access checks of the proxy: Host, Origin, Sec-Fetch-Site and the token. They precede everything else.

Any website in a local browser can send requests to a local server. So the `Host` header must be an accepted name, which
prevents DNS rebinding, and requests of web pages are refused. The token is a path segment, `/t/TOKEN/…`, or the header
`x-contextc-token`. Neither is forwarded: `Authorization` belongs to the provider. Under `/u/…` no token is required,
but the client must be a process of the proxy's own user, on this machine.
"""

import hmac
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from contextc._http_access import is_accepted_host, split_host
from contextc.proxy.http1_framing import HTTPHead

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


def check_access(rules: AccessRules, head: HTTPHead, target: bytes, is_own_user: Callable[[], bool]) -> bytes:
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


# ── the user of a client ──────────────────────────────────────────────────────────────────────────────────────────────
# Processes that use the proxy: the user of the one at the other end of a connection, and those that may still call.
#
# Some programs take the proxy's address as an argument only, and every user of a machine can list arguments. So such
# an address has no token: the proxy accepts connections of its own user there.


TABLES = {socket.AF_INET: Path("/proc/net/tcp"), socket.AF_INET6: Path("/proc/net/tcp6")}
ESTABLISHED = "01"
LSOF_SECONDS = 5.0
Address = tuple[str, int]
"""Host and port."""


def find_processes(text: str) -> list[int]:
    """Return the other processes of this user with a text in their environment. Only Linux shows it."""
    found: list[int] = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):  # it is of another user, or has ended
            if text.encode() in path.read_bytes() and int(path.parent.name) != os.getpid():
                found.append(int(path.parent.name))
    return found


def can_find_users() -> bool:
    """Return True if this system has a way to find the user of a connection."""
    return hasattr(os, "getuid") and (TABLES[socket.AF_INET].exists() or shutil.which("lsof") is not None)


def is_own_connection(peer: Address, own: Address) -> bool:
    """Return True if a process of this user is at the other end of a connection. `own` is the end of this process."""
    if not can_find_users():
        return False
    try:
        table = TABLES[_address_family(peer)]
        if table.exists():
            return find_connection_user(table.read_text(), peer, own) == os.getuid()
        return find_with_lsof(peer, own)
    except (OSError, subprocess.SubprocessError):
        return False


def find_connection_user(table: str, local: Address, remote: Address) -> int | None:
    """Return the user of a connection in a table of Linux; None if it is not there. Ended ones have no user."""
    places = [_table_address(local), _table_address(remote)]
    for line in table.splitlines()[1:]:
        columns = line.split()
        if columns[1:3] == places and columns[3] == ESTABLISHED:
            return int(columns[7])
    return None


def _address_family(address: Address) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address[0] else socket.AF_INET


def _table_address(address: Address) -> str:
    """Return an address as tables of Linux have it: words of four bytes in the order of the machine."""
    raw = socket.inet_pton(_address_family(address), address[0])
    words = [int.from_bytes(raw[at : at + 4], sys.byteorder) for at in range(0, len(raw), 4)]
    return f"{''.join([f'{word:08X}' for word in words])}:{address[1]:04X}"


def find_with_lsof(local: Address, remote: Address) -> bool:
    """Return True if a process of this user has a connection, on systems without such tables."""
    ends = [f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in (local, remote)]
    done = subprocess.run(
        ["lsof", "-nP", "-a", "-u", str(os.getuid()), f"-iTCP@{ends[0]}", "-Fn"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        timeout=LSOF_SECONDS,
        check=False,
    )
    return f"n{ends[0]}->{ends[1]}" in done.stdout.decode(errors="replace").splitlines()
