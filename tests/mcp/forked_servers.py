"""MCP servers written in Python as forked processes, without a second of imports for each.

A process that has everything imported forks for each server. The program that a client starts is this file: it hands
its arguments, folder, environment and standard files over, ends as the server does, and the server ends with it. Each
worker of a test run has one process that forks, which ends with it.
"""

import atexit
import gc
import json
import os
import runpy
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from functools import cache
from pathlib import Path
from select import select

SIZE = 4
IMPORTED = (
    "anyio._backends._asyncio", "jsonschema", "mcp.server.caching", "mcp.server.mcpserver", "mcp.server.request_state",
    "mcp.server.stdio",
)  # fmt: skip
"""What servers import. The process that forks starts no thread."""


def forked(*program: str) -> list[str]:
    """Return the command, without the interpreter, that runs a file or `-m` and a module with these arguments."""
    return ["-I", "-S", __file__, _start(), *program]


@cache
def _start() -> str:
    """Start the process that forks; return the address at which it is asked to."""
    folder = Path(tempfile.mkdtemp(prefix="contextc-mcp-"))
    address = str(folder / "fork")
    alive, ours = os.pipe()  # ours is closed as this process ends, however that is
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen(64)
        command = [sys.executable, __file__, str(listener.fileno()), str(alive)]
        process = subprocess.Popen(command, pass_fds=[listener.fileno(), alive], cwd=folder)
    os.close(alive)

    def end() -> None:
        os.close(ours)
        process.wait()
        shutil.rmtree(folder)

    atexit.register(end)
    return address


def _serve(listener: socket.socket, alive: int) -> None:
    for name in IMPORTED:
        __import__(name)
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # their ends are reported by themselves
    while alive not in select([listener, alive], [], [])[0]:
        connection, _ = listener.accept()
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            listener.close()
            os.close(alive)
            _become(connection)
        connection.close()


def _become(connection: socket.socket) -> None:
    """Run the server in this process, and end."""
    code: object = 1
    try:
        head, files, _, _ = socket.recv_fds(connection, SIZE, 3)
        asked = json.loads(connection.recv(int.from_bytes(head), socket.MSG_WAITALL))
        for target, each in enumerate(files):
            os.dup2(each, target)
            os.close(each)
        threading.Thread(target=_end_with, args=(connection,), daemon=True).start()
        os.chdir(asked["cwd"])
        os.environ.clear()
        os.environ.update(asked["env"])
        first, *sys.argv = asked["program"] if asked["program"][0] == "-m" else ["", *asked["program"]]
        sys.path[:0] = [each for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each]
        if first:
            runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        else:
            sys.path.insert(0, str(Path(sys.argv[0]).parent))
            runpy.run_path(sys.argv[0], run_name="__main__")
        code = 0
    except SystemExit as ended:
        code = ended.code
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        code = code if isinstance(code, int) else 0 if code is None else 1
        connection.sendall(code.to_bytes(SIZE, signed=True))
        os._exit(code)


def _end_with(connection: socket.socket) -> None:
    """End this process as soon as the program that a client started is killed."""
    if not connection.recv(1):
        os.kill(os.getpid(), signal.SIGKILL)


def _ask(address: str, program: list[str]) -> int:
    """Let the server have the files of this process; return its exit code."""
    asked = json.dumps({"program": program, "cwd": os.getcwd(), "env": dict(os.environ)}).encode()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        socket.send_fds(connection, [len(asked).to_bytes(SIZE)], [0, 1, 2])
        connection.sendall(asked)
        answer = connection.recv(SIZE, socket.MSG_WAITALL)
    return int.from_bytes(answer, signed=True) if len(answer) == SIZE else 1


if __name__ == "__main__":
    if sys.argv[1].isdigit():
        _serve(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2]))
    else:
        sys.exit(_ask(sys.argv[1], sys.argv[2:]))
