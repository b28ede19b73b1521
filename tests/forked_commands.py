"""`contextc` commands as forked processes, without the start time of Python.

A server process has everything imported and forks for each command. The child gets the arguments, folder, environment
and standard files of the command, runs it as `python -m contextc` does, and ends with its exit code. Each worker of a
test run has one such server, which ends with it.
"""

import atexit
import json
import os
import runpy
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Mapping
from functools import cache
from html import unescape
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from contextc._json import JSONObject
from contextc.cli import COMMANDS
from contextc.models.model_info import load_catalog
from contextc.models.tokens import load_vocabulary

SIZE = 4
IMPORTED = (
    *[f"contextc.cli.{module}" for module in {each.partition(":")[0] for each in COMMANDS.values()}],
    "contextc.app", "contextc.executor.agent_executor", "contextc.store.sqlite", "contextc.compiler",
    "rich.table", "rich.markdown", "rich.live", "httpx", "openai",
)  # fmt: skip
"""What commands import as they need it. The server opens no store and starts no thread."""


def run_contextc(
    *arguments: str, cwd: Path, env: Mapping[str, str], text: str | None = None
) -> "subprocess.CompletedProcess[str]":
    """Run `contextc` with these arguments and with `text` as its standard input; without text there is none.

    An environment that changes what Python can import needs a Python that is started with it.
    """
    if "PYTHONPATH" in env:
        return subprocess.run(
            [sys.executable, "-m", "contextc", *arguments],
            input=text or "",
            capture_output=True,
            text=True,
            cwd=cwd,
            env=env,
            check=False,
        )
    return _server().run(arguments, cwd, env, text)


def read_link(line: str) -> str:
    """Return the link with a token from a printed line, which names a file with it if it is not for a terminal."""
    place = line.removesuffix(" (only you can read it)\n").removesuffix(" (only you can read it)").rpartition(" ")[2]
    path = Path(url2pathname(urlsplit(place).path))
    assert path.stat().st_mode & 0o077 == 0, "others can read it"
    return unescape(path.read_text().partition('href="')[2].partition('"')[0])


@cache
def _server() -> "_Server":
    return _Server()


class _Server:
    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair()
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.forked_commands", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            cwd=Path(__file__).parent.parent,
            env={**os.environ, "PYTHONUTF8": "1"},
        )
        theirs.close()
        atexit.register(self._end)

    def run(
        self, arguments: tuple[str, ...], cwd: Path, env: Mapping[str, str], text: str | None
    ) -> "subprocess.CompletedProcess[str]":
        asked = json.dumps({"arguments": arguments, "cwd": str(cwd), "env": dict(env)}).encode()
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, tempfile.TemporaryFile() as given:
            given.write((text or "").encode())
            given.seek(0)
            with self._lock, open(os.devnull, "rb") as nothing:
                standard = [(nothing if text is None else given).fileno(), out.fileno(), err.fileno()]
                socket.send_fds(self._socket, [len(asked).to_bytes(SIZE)], standard)
                self._socket.sendall(asked)
                answer = self._socket.recv(SIZE, socket.MSG_WAITALL)
            assert len(answer) == SIZE, "the server of commands has ended"
            code = int.from_bytes(answer, signed=True)
            out.seek(0)
            err.seek(0)
            return subprocess.CompletedProcess(list(arguments), code, out.read().decode(), err.read().decode())

    def _end(self) -> None:
        self._socket.close()
        self._process.wait()


def _serve(connection: socket.socket) -> None:
    """Run commands until the other side is closed."""
    while True:
        head, standard, _, _ = socket.recv_fds(connection, SIZE, 3)
        if not head:
            return
        asked: JSONObject = json.loads(connection.recv(int.from_bytes(head), socket.MSG_WAITALL))
        child = os.fork()
        if child == 0:
            connection.close()
            _become(asked, standard)
        for each in standard:
            os.close(each)
        _, status = os.waitpid(child, 0)
        connection.sendall(os.waitstatus_to_exitcode(status).to_bytes(SIZE, signed=True))


def _become(asked: JSONObject, standard: list[int]) -> None:
    """Run the command in this process, and end."""
    code: object = 1
    try:
        for target, each in enumerate(standard):
            os.dup2(each, target)
        os.chdir(asked["cwd"])
        os.environ.clear()
        os.environ.update(asked["env"])
        sys.argv = ["contextc", *asked["arguments"]]
        sys.path[0] = asked["cwd"]
        runpy.run_module("contextc", run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as ended:
        code = ended.code
        if isinstance(code, str):
            sys.stderr.write(code + "\n")
    except BaseException:
        traceback.print_exc()
    finally:
        threading._shutdown()  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]  # as at the end of every process
        atexit._run_exitfuncs()  # pyright: ignore[reportPrivateUsage]
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 0 if code is None else 1)


def _main(descriptor: int) -> None:
    for name in IMPORTED:
        __import__(name)
    load_catalog()
    load_vocabulary("o200k_base")
    for name in [name for name in sys.modules if name.startswith("contextc.cli")]:
        del sys.modules[name]  # a command reads its environment as it imports this
    _serve(socket.socket(fileno=descriptor))


if __name__ == "__main__":
    _main(int(sys.argv[1]))
