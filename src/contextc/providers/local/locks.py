"""A lock on a file, held by a process and let go by the system when that process ends, however it ends.

This is what tells a server that runs from one that is gone: a process number may belong to somebody else by now.
"""

import os
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

PAUSE = 0.02


def take(path: Path) -> int | None:
    """Take the lock if it is free. It is held until the number that comes back is closed, or the process ends."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        _lock(handle)
    except OSError:
        os.close(handle)
        return None
    return handle


def is_held(path: Path) -> bool:
    """Whether some process holds the lock."""
    if not path.exists():
        return False
    if (handle := take(path)) is None:
        return True
    os.close(handle)
    return False


@contextmanager
def held(path: Path, seconds: float) -> Generator[None]:
    """Hold the lock for a while. Raises `TimeoutError` where somebody else does not let go of it."""
    end = time.monotonic() + seconds
    while (handle := take(path)) is None:
        if time.monotonic() > end:
            raise TimeoutError(f"{path} has been locked for {seconds:g} seconds")
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
