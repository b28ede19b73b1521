"""pgbouncer in transaction mode, in front of a PostgreSQL: each transaction may run on another session."""

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict

DECOY = "decoy"
"""The schema that sessions of the pooler look for unqualified names in."""


def find_pgbouncer() -> str | None:
    return shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin:/usr/local/sbin")


@contextmanager
def running_pgbouncer(program: str, server: str, *, sessions: int) -> Generator[str]:
    """Start a pooler with so many sessions on the server; the address of the same database through it."""
    to = conninfo_to_dict(server)
    host, user, database = str(to.get("host", "localhost")), str(to["user"]), str(to["dbname"])
    folder = Path(tempfile.mkdtemp(prefix="contextc-pgbouncer-"))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    password = f" password={to['password']}" if to.get("password") else ""
    (folder / "users.txt").write_text(f'"{user}" ""\n')
    (folder / "pgbouncer.ini").write_text(
        f"[databases]\n{database} = host={host} port={to.get('port', 5432)} user={user}{password}"
        f" pool_size={sessions} connect_query='SET search_path TO {DECOY}'\n"
        f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = trust\n"
        f"auth_file = {folder}/users.txt\npool_mode = transaction\nmax_client_conn = 500\n"
        f"ignore_startup_parameters = options\nlogfile = {folder}/log\n"
    )
    as_user: list[str] = []
    if os.getuid() == 0:  # it refuses to run as root; the owner of the server's socket may use that
        owner = os.stat(host).st_uid if os.path.isdir(host) else 0
        name = pwd.getpwuid(owner or pwd.getpwnam("nobody").pw_uid).pw_name
        as_user = ["-u", name]
        for path in (folder, *folder.iterdir()):
            shutil.chown(path, name)
    process = subprocess.Popen(
        [program, "-q", *as_user, str(folder / "pgbouncer.ini")], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        _wait_for(port, process, folder / "log")
        yield f"postgresql://{user}@127.0.0.1:{port}/{database}"
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _wait_for(port: int, process: "subprocess.Popen[bytes]", log: Path) -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 5).close()
        except ConnectionRefusedError:
            time.sleep(0.02)
        else:
            return
    raise RuntimeError(f"pgbouncer did not start: {log.read_text() if log.exists() else process.returncode}")
