"""Who holds a lease, in a form another process can check: is that process still there?

A lease ends by itself when its time runs out. That is enough everywhere, but slow after a crash, so on Linux a
process of the same machine is looked up at once. The machine is the kernel's boot id and the process namespace: two
containers that share a file do not see each other's processes, and must not take them for dead. The start time tells
a process from a later one that was given the same number. A process that cannot be seen is not a dead one.
"""

import os
from functools import cache

PROC = "/proc"


def current_holder() -> str:
    pid = os.getpid()
    return f"{_machine()} {pid} {_started(pid) or ''}"


def is_gone(holder: str) -> bool:
    """True only where it is certain: a process of this machine that has ended."""
    pid, started = _local(holder)
    if not pid:
        return False
    found = _started(pid)
    return not _exists(pid) if found is None else found != started


def is_alive(holder: str) -> bool:
    """True only where it is certain: a process of this machine that still runs, or is suspended."""
    pid, started = _local(holder)
    return bool(pid) and _started(pid) == started


def _local(holder: str) -> tuple[int, str]:
    """Number and start time of a process of this machine; 0 where it is of another, or cannot be looked up here."""
    machine, _, process = holder.partition(" ")
    pid, _, started = process.partition(" ")
    return (int(pid), started) if started and machine == _machine() and pid.isdigit() else (0, "")


@cache
def _machine() -> str:
    try:
        with open(f"{PROC}/sys/kernel/random/boot_id", encoding="ascii") as file:
            return f"{file.read().strip()}/{os.readlink(f'{PROC}/self/ns/pid')}"
    except OSError:
        return "unknown"


def _started(pid: int) -> str | None:
    """When a process began, in the kernel's ticks; empty for what is left of a dead one; None where it cannot be read.

    That is so where there is no such process, and where `/proc` hides the processes of other users (`hidepid`).
    """
    try:
        with open(f"{PROC}/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return None
    return "" if fields[0] in ("Z", "X") else fields[19]


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # not permitted: it is another user's
        return True
    return True


def described(holder: str) -> str:
    """Name the process of a holder, for an error message."""
    if not holder:
        return "unknown"
    machine, _, process = holder.partition(" ")
    where = "this machine" if machine == current_holder().partition(" ")[0] else "another machine"
    return f"process {process.partition(' ')[0]} on {where}"
