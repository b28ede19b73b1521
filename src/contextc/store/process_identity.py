"""The identity of the process that holds a lease, in a form that another process can check.

A lease expires. That is sufficient but slow after a crash, so on Linux a process on the same machine is looked up
directly. The machine is identified by the kernel's boot id and the process namespace, because two containers that share
a file do not see each other's processes. The start time distinguishes a process from a later one with the same
pid. A process that cannot be seen is not assumed dead.
"""

import os
from functools import cache

PROC = "/proc"


def current_process() -> str:
    pid = os.getpid()
    return f"{_machine_id()} {pid} {_read_start_time(pid) or ''}"


def has_ended(holder: str) -> bool:
    """Return True only if it is certain that the process was on this machine and has ended."""
    pid, started = _parse_local(holder)
    if not pid:
        return False
    found = _read_start_time(pid)
    return not _exists(pid) if found is None else found != started


def is_running(holder: str) -> bool:
    """Return True only if it is certain that the process is on this machine and runs, or is suspended."""
    pid, started = _parse_local(holder)
    return bool(pid) and _read_start_time(pid) == started


def _parse_local(holder: str) -> tuple[int, str]:
    """Return pid and start time of a process on this machine; pid 0 for another machine, or if it cannot be checked."""
    machine, _, process = holder.partition(" ")
    pid, _, started = process.partition(" ")
    return (int(pid), started) if started and machine == _machine_id() and pid.isdigit() else (0, "")


@cache
def _machine_id() -> str:
    try:
        with open(f"{PROC}/sys/kernel/random/boot_id", encoding="ascii") as file:
            return f"{file.read().strip()}/{os.readlink(f'{PROC}/self/ns/pid')}"
    except OSError:
        return "unknown"


def _read_start_time(pid: int) -> str | None:
    """Return the start time of a process in kernel ticks, "" for a zombie, None if it cannot be read.

    It cannot be read if the process does not exist, or if `/proc` hides other users' processes (`hidepid`).
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
    except OSError:  # not permitted: another user's process
        return True
    return True


def describe_process(holder: str) -> str:
    """Name the process of a holder, for an error message."""
    if not holder:
        return "unknown"
    machine, _, process = holder.partition(" ")
    where = "this machine" if machine == current_process().partition(" ")[0] else "another machine"
    return f"process {process.partition(' ')[0]} on {where}"
