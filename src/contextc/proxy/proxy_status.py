"""The status of running proxies, in a file beside each spool, so that other processes of this user can show it."""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread

import msgspec
from msgspec import Struct

from contextc._file_lock import is_locked
from contextc.proxy.spool_folder import find_spool_folder
from contextc.proxy.spool_frames import LOCK_FILE

STATUS_FILE = "status.json"
WRITE_SECONDS = 0.5
CLOSE_SECONDS = 2.0


class ProxyStatus(Struct, frozen=True, kw_only=True):
    """A proxy and its figures. `gaps` are requests that passed and were not recorded, by reason.

    `address` has no token. `error` is why the recorder does not work at the moment.
    """

    address: str
    started: int
    requests: int = 0
    recorded: int = 0
    open: int = 0
    gaps: dict[str, int] = {}
    error: str = ""


_decode = msgspec.json.Decoder(ProxyStatus).decode


class StatusWriter:
    """Writes the status of a proxy to its file while it changes, on a thread of its own: the relay never waits."""

    def __init__(self, folder: Path, describe: Callable[[], ProxyStatus]) -> None:
        self._path, self._describe = folder / STATUS_FILE, describe
        self._written: ProxyStatus | None = None
        self._closing = Event()
        self._thread = Thread(target=self._run, name="contextc-proxy-status", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Stop, and remove the file."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join(CLOSE_SECONDS)
        with suppress(OSError):
            self._path.unlink()

    def _run(self) -> None:
        while True:
            self._write(self._describe())
            if self._closing.wait(WRITE_SECONDS):
                return

    def _write(self, status: ProxyStatus) -> None:
        if status == self._written:
            return
        fresh = self._path.with_suffix(".new")
        with suppress(OSError):
            handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(handle, "wb") as file:
                file.write(msgspec.json.encode(status))
            os.replace(fresh, self._path)
            self._written = status


def read_statuses(store: str) -> list[ProxyStatus]:
    """Return the status of each proxy of this user that records to a store, oldest first."""
    folders = {find_spool_folder(store, in_memory=is_private) for is_private in (False, True)}
    found: list[ProxyStatus] = []
    for path in [path for folder in folders for path in folder.glob(f"*/{STATUS_FILE}")]:
        with suppress(OSError, msgspec.DecodeError):  # it has just ended
            if is_locked(path.with_name(LOCK_FILE)):  # the file of a proxy that was killed stays
                found.append(_decode(path.read_bytes()))
    return sorted(found, key=lambda each: (each.started, each.address))
