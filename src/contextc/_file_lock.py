"""File lock of a process. The operating system releases it when the process ends, however it ends.

A held lock shows that a server or a proxy is running. A process id would not, because the system reuses process ids.
"""

import os
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

PAUSE = 0.02


def try_lock(path: Path) -> int | None:
    """Acquire the lock if it is free and return its file descriptor, else None. Closing it releases the lock."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        _lock(handle)
    except OSError:
        os.close(handle)
        return None
    return handle


def is_locked(path: Path) -> bool:
    """Return True if a process holds the lock."""
    if not path.exists():
        return False
    if (handle := try_lock(path)) is None:
        return True
    os.close(handle)
    return False


@contextmanager
def hold_lock(path: Path, seconds: float) -> Generator[None]:
    """Hold the lock inside the context. Raise `TimeoutError` if it cannot be acquired within `seconds`."""
    end = time.monotonic() + seconds
    while (handle := try_lock(path)) is None:
        if time.monotonic() > end:
            raise TimeoutError(f"lock {path}: still held by another process after {seconds:g} s")
        time.sleep(PAUSE)
    try:
        yield
    finally:
        with suppress(OSError):
            os.close(handle)


if sys.platform == "win32":
    import msvcrt

    def _lock(handle: int) -> None:
        msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def _lock(handle: int) -> None:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
