"""Who holds a lease, in a form another process can check: is that process still there?

A lease ends by itself when its time runs out. That is enough everywhere, but slow after a crash, so on Linux a
process of the same machine is looked up at once. The machine is the kernel's boot id and the process namespace: two
containers that share a file do not see each other's processes, and must not take them for dead. The start time tells
a process from a later one that was given the same number.
"""

import os
from functools import cache

PROC = "/proc"


def current_holder() -> str:
    pid = os.getpid()
    return f"{_machine()} {pid} {_started(pid)}"


def is_gone(holder: str) -> bool:
    """True only where it is certain: a process of this machine that has ended."""
    machine, _, process = holder.partition(" ")
    pid, _, started = process.partition(" ")
    return bool(started) and machine == _machine() and pid.isdigit() and _started(int(pid)) != started


@cache
def _machine() -> str:
    try:
        with open(f"{PROC}/sys/kernel/random/boot_id", encoding="ascii") as file:
            return f"{file.read().strip()}/{os.readlink(f'{PROC}/self/ns/pid')}"
    except OSError:
        return "unknown"


def _started(pid: int) -> str:
    """When a process began, in the kernel's ticks; empty where there is none, or only what is left of a dead one."""
    try:
        with open(f"{PROC}/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in ("Z", "X") else fields[19]


def described(holder: str) -> str:
    """Name the process of a holder, for an error message."""
    if not holder:
        return "unknown"
    machine, _, process = holder.partition(" ")
    where = "this machine" if machine == current_holder().partition(" ")[0] else "another machine"
    return f"process {process.partition(' ')[0]} on {where}"
