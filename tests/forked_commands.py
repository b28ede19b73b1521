"""`contextc` commands as forked processes, without the start time of Python.

A server process has everything imported and forks for each command. The child gets the arguments, folder, environment
and standard files of the command, runs it as `python -m contextc` does, and ends with its exit code. Each worker of a
test run has one such server, which ends with it.
"""

import atexit
import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from html import unescape
from io import TextIOWrapper
from pathlib import Path
from typing import IO, Self
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
    "contextc.web.application", "contextc.web.server", "rich.table", "rich.markdown", "rich.live", "httpx", "openai",
)  # fmt: skip
"""What commands import as they need it, where it is installed. The server opens no store and starts no thread."""


def run_contextc(
    *arguments: str, cwd: Path, env: Mapping[str, str], text: str | None = None
) -> "subprocess.CompletedProcess[str]":
    """Run `contextc` with these arguments and with `text` as its standard input; without text there is none.

    An environment that changes what Python can import needs a Python that is started with it.
    """
    if not _has_known_path(env):
        return subprocess.run(
            [sys.executable, "-m", "contextc", *arguments],
            input=text or "",
            capture_output=True,
            text=True,
            cwd=cwd,
            env=env,
            check=False,
        )
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, tempfile.TemporaryFile() as given:
        given.write((text or "").encode())
        given.seek(0)
        stdin = subprocess.DEVNULL if text is None else given.fileno()
        process = CommandProcess(*arguments, cwd=cwd, env=env, stdin=stdin, stdout=out.fileno(), stderr=err.fileno())
        code = process.wait()
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(list(arguments), code, out.read().decode(), err.read().decode())


def _has_known_path(env: Mapping[str, str]) -> bool:
    return env.get("PYTHONPATH") in (None, os.environ.get("PYTHONPATH"))


def read_link(line: str) -> str:
    """Return the link with a token from a printed line, which names a file with it if it is not for a terminal."""
    place = line.removesuffix(" (only you can read it)\n").removesuffix(" (only you can read it)").rpartition(" ")[2]
    path = Path(url2pathname(urlsplit(place).path))
    assert path.stat().st_mode & 0o077 == 0, "others can read it"
    return unescape(path.read_text().partition('href="')[2].partition('"')[0])


class CommandProcess:
    """A running command, with the methods of a `subprocess.Popen` that tests need.

    `stdin` is a file or nothing, `stdout` and `stderr` are a file, `subprocess.PIPE` or nothing.
    """

    def __init__(
        self,
        *arguments: str,
        cwd: Path,
        env: Mapping[str, str],
        stdin: int = subprocess.DEVNULL,
        stdout: int = subprocess.DEVNULL,
        stderr: int = subprocess.DEVNULL,
        start_new_session: bool = False,
    ) -> None:
        assert _has_known_path(env), "what Python can import is fixed when it starts"
        self.returncode: int | None = None
        self.stdout, out = _open_pipe(stdout)
        self.stderr, err = _open_pipe(stderr)
        nothing = os.open(os.devnull, os.O_RDWR)
        standard = [nothing if each == subprocess.DEVNULL else each for each in (stdin, out, err)]
        asked = {"arguments": arguments, "cwd": str(cwd), "env": dict(env), "session": start_new_session}
        try:
            self._report = _server().start(json.dumps(asked).encode(), standard)
        finally:
            for each in {nothing, *([out] if self.stdout else []), *([err] if self.stderr else [])}:
                os.close(each)
        self.pid = self._receive()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for stream in (self.stdout, self.stderr):
            if stream is not None:
                stream.close()
        self.wait()

    def poll(self) -> int | None:
        """Return the exit code, or None while the command runs."""
        if self.returncode is None and select.select([self._report], [], [], 0)[0]:
            self.wait()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            self._report.settimeout(timeout)
            self.returncode = self._receive()
            self._report.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _receive(self) -> int:
        answer = self._report.recv(SIZE, socket.MSG_WAITALL)
        assert len(answer) == SIZE, "the server of commands has ended"
        return int.from_bytes(answer, signed=True)


def _open_pipe(wanted: int) -> tuple[IO[str] | None, int]:
    """Return our end of a pipe, if one is wanted, and the file of the command."""
    if wanted != subprocess.PIPE:
        return None, wanted
    ours, theirs = os.pipe()
    return open(ours, encoding="utf-8"), theirs


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

    def start(self, asked: bytes, standard: list[int]) -> socket.socket:
        """Start a command with these standard files; the socket on which its process id and its exit code arrive."""
        ours, theirs = socket.socketpair()
        with self._lock, theirs:
            socket.send_fds(self._socket, [len(asked).to_bytes(SIZE)], [*standard, theirs.fileno()])
            self._socket.sendall(asked)
        return ours

    def _end(self) -> None:
        self._socket.close()
        self._process.wait()


def _serve(connection: socket.socket) -> None:
    """Start commands, and report their ends, until the other side is closed."""
    ended, wake = socket.socketpair()
    ended.setblocking(False)
    wake.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)  # the wakeup is enough
    signal.set_wakeup_fd(wake.fileno())
    running: dict[int, socket.socket] = {}
    while True:
        ready = select.select([connection, ended], [], [])[0]
        if ended in ready:
            ended.recv(1 << 12)
            for child, report in [*running.items()]:
                found, status = os.waitpid(child, os.WNOHANG)
                if found:
                    _report(report, os.waitstatus_to_exitcode(status))
                    running.pop(child).close()
        if connection in ready:
            head, files, _, _ = socket.recv_fds(connection, SIZE, 4)
            if not head:
                return
            asked: JSONObject = json.loads(connection.recv(int.from_bytes(head), socket.MSG_WAITALL))
            report = socket.socket(fileno=files.pop())
            child = os.fork()
            if child == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
                for each in (connection, ended, wake, report, *running.values()):
                    each.close()
                _become(asked, files)
            for each in files:
                os.close(each)
            running[child] = report
            _report(report, child)


def _report(report: socket.socket, number: int) -> None:
    with suppress(OSError):  # nobody waits for it any more
        report.sendall(number.to_bytes(SIZE, signed=True))


def _become(asked: JSONObject, standard: list[int]) -> None:
    """Run the command in this process, and end."""
    code: object = 1
    try:
        if asked["session"]:
            os.setsid()
        for target, each in enumerate(standard):
            os.dup2(each, target)
        for each in standard:
            os.close(each)
        sys.stdin, sys.stdout, sys.stderr = _open_standard(0), _open_standard(1), _open_standard(2)
        sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr  # pyright: ignore[reportAttributeAccessIssue]
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


def _open_standard(number: int) -> TextIOWrapper:
    """Return a standard file as Python opens it: errors and what a terminal shows are written line by line."""
    by_line = number == 2 or os.isatty(number)
    errors = "backslashreplace" if number == 2 else None
    return open(number, "w" if number else "r", buffering=1 if by_line else -1, errors=errors, closefd=False)


def _main(descriptor: int) -> None:
    for name in IMPORTED:
        try:
            __import__(name)
        except ModuleNotFoundError as error:
            if (error.name or "contextc").startswith("contextc"):  # others are of an extra
                raise
    load_catalog()
    load_vocabulary("o200k_base")
    for name in [name for name in sys.modules if name.startswith("contextc.cli")]:
        del sys.modules[name]  # a command reads its environment as it imports this
    gc.collect()
    gc.freeze()  # the commands do not look through what is imported, so that it stays shared memory
    _serve(socket.socket(fileno=descriptor))


if __name__ == "__main__":
    _main(int(sys.argv[1]))
