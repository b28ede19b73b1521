"""Processes that use the proxy: the user of the one at the other end of a connection, and those that may still call.

Some programs take the proxy's address as an argument only, and every user of a machine can list arguments. So such an
address has no token: the proxy accepts connections of its own user there.
"""

import os
import shutil
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

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
        table = TABLES[_family(peer)]
        if table.exists():
            return find_in_table(table.read_text(), peer, own) == os.getuid()
        return find_with_lsof(peer, own)
    except (OSError, subprocess.SubprocessError):
        return False


def find_in_table(table: str, local: Address, remote: Address) -> int | None:
    """Return the user of a connection in a table of Linux; None if it is not there. Ended ones have no user."""
    places = [_place(local), _place(remote)]
    for line in table.splitlines()[1:]:
        columns = line.split()
        if columns[1:3] == places and columns[3] == ESTABLISHED:
            return int(columns[7])
    return None


def _family(address: Address) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address[0] else socket.AF_INET


def _place(address: Address) -> str:
    """Return an address as tables of Linux have it: words of four bytes in the order of the machine."""
    raw = socket.inet_pton(_family(address), address[0])
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
