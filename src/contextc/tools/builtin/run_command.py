"""The run_command tool: a shell command in the folder, with a person's approval.

The command leads a process group of its own. When it exits, times out or is cancelled, the whole group is killed,
including background processes. On Linux, processes that left the group are killed, too: they have inherited
a variable that marks the command. Only one that also emptied its environment is not found, and on other systems none
that left the group. Of its output the beginning and the end are kept, up to a fixed size.

A command gets only allowed environment variables, because its output is stored and sent to a model: paths, locale,
terminal, time zone, tool chains. Any other variable may hold a credential (PGPASSWORD, DATABASE_URL, AWS_…), and no
deny-list is complete.
"""

import ctypes
import os
import re
import secrets
import selectors
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Annotated, cast

from msgspec import Meta

from contextc._json import fix_surrogates
from contextc.errors import InvalidInput, InvalidSetting
from contextc.messages import ToolResult
from contextc.tools.builtin.workspace import Workspace
from contextc.tools.context import ToolContext
from contextc.tools.function_tool import FunctionTool, tool

DEFAULT_TIMEOUT = 120.0
MAX_OUTPUT_BYTES = 30_000
SELECT_SECONDS = 0.05
POLL_SECONDS = 0.005
GRACE_SECONDS = 1.0
CANCELLED_GRACE_SECONDS = 0.2
ALLOWED_VARIABLES = frozenset(
    {
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "PWD", "TMPDIR", "TMP", "TEMP", "TZ"),
        *("LANG", "LANGUAGE", "TERM", "COLORTERM", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "CI"),
        *("LC_ALL", "LC_CTYPE", "LC_COLLATE", "LC_MESSAGES", "LC_MONETARY", "LC_NUMERIC", "LC_TIME", "LC_NAME"),
        *("LC_ADDRESS", "LC_TELEPHONE", "LC_MEASUREMENT", "LC_IDENTIFICATION", "LC_PAPER"),
        *("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"),
        *("VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "PYENV_ROOT", "PYENV_VERSION", "PYTHONPATH"),
        *("PYTHONUNBUFFERED", "PYTHONUTF8", "PYTHONDONTWRITEBYTECODE", "PYTHONHASHSEED", "UV_CACHE_DIR"),
        *("NVM_DIR", "NODE_PATH", "NODE_ENV", "PNPM_HOME", "JAVA_HOME", "GRADLE_USER_HOME", "M2_HOME", "MAVEN_HOME"),
        *("GOPATH", "GOROOT", "GOCACHE", "GOMODCACHE", "CARGO_HOME", "RUSTUP_HOME", "RUSTUP_TOOLCHAIN"),
        *("GEM_HOME", "GEM_PATH", "RBENV_ROOT", "ASDF_DIR", "ASDF_DATA_DIR", "HOMEBREW_PREFIX"),
        *("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "LIBRARY_PATH", "CPATH", "PKG_CONFIG_PATH", "MANPATH"),
        *("CC", "CXX", "CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS", "MAKEFLAGS"),
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"),
        *("GIT_SSL_CAINFO", "PIP_CERT", "SYSTEMROOT", "COMSPEC", "PATHEXT", "APPDATA", "LOCALAPPDATA", "USERPROFILE"),
        *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy"),
    }
)
"""Names of the environment variables that a command gets."""
PR_SET_DUMPABLE = 4
MARK = "CONTEXTC_COMMAND"
"""A variable that marks the processes of one command."""
URL_CREDENTIALS = re.compile(r"://[^/\s]*@")
ANSI_SEQUENCES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\))")


def command_tool(
    root: str | Path,
    *,
    timeout: float = DEFAULT_TIMEOUT,
    output: int = MAX_OUTPUT_BYTES,
    environment: Mapping[str, str] | None = None,
    variables: Iterable[str] = (),
    approval: bool = True,
) -> FunctionTool:
    """Return the tool that runs shell commands in `root`, for at most `timeout` seconds and `output` bytes each.

    `environment` is the whole environment of the commands. Without it they get the variables of this process that are
    in PASSED or in `variables`.
    """
    if sys.platform == "win32":
        raise InvalidSetting("run_command requires Linux or macOS", fix="Pass a tool of your own, or run in WSL.")
    folder = Workspace(root)
    visible = dict(environment) if environment is not None else allowed_environment(os.environ, variables)

    @tool(timeout=timeout + 10, approval=approval, parallel=False)
    def run_command(
        command: Annotated[str, "What the shell is to run."],
        context: ToolContext,
        seconds: Annotated[float, Meta(gt=0), "End it after so many seconds."] | None = None,
    ) -> ToolResult:
        """Run a shell command in the top folder of the project, after a person has agreed. The answer is what it
        printed, and its exit code where that is not 0. It gets no input, and what it leaves running is ended."""
        if "\0" in command or not command.strip():
            raise InvalidInput("There is no command to run: it is blank, or holds a NUL character.")
        return ShellCommand(fix_surrogates(command), folder.root, visible, output).run(
            min(seconds or timeout, timeout), context
        )

    return run_command


def allowed_environment(environment: Mapping[str, str], variables: Iterable[str] = ()) -> dict[str, str]:
    """Return the variables that a command gets. URLs with credentials, such as a proxy's, are not passed."""
    asked = frozenset(variables)
    return {
        name: value
        for name, value in environment.items()
        if name in asked or (name in ALLOWED_VARIABLES and not URL_CREDENTIALS.search(value))
    }


def hide_environment() -> None:
    """Prevent commands from reading the environment of this process, with its keys, through `/proc` (Linux, not root).

    Afterwards only root can attach a debugger to this process, and it writes no core dumps.
    """
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)


class ShellCommand:
    """A running shell command."""

    def __init__(self, command: str, folder: Path, environment: Mapping[str, str], most: int) -> None:
        shell = shutil.which("bash") or "/bin/sh"
        self.output = _OutputBuffer(most)
        self.mark = f"{MARK}={secrets.token_hex(16)}"
        self.process = subprocess.Popen(
            [shell, "-c", command],
            cwd=folder,
            env={**environment, **dict([self.mark.split("=")])},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self.stdout = cast(IO[bytes], self.process.stdout)
        self.closed = False
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.stdout, selectors.EVENT_READ)

    def run(self, seconds: float, context: ToolContext) -> ToolResult:
        deadline = time.monotonic() + seconds
        stopped = ""
        try:
            while not stopped and not self.has_ended():
                self.read_output(context)
                if context.cancelled.is_set():
                    stopped = "cancelled"
                elif time.monotonic() >= deadline:
                    stopped = f"stopped after {seconds:g} seconds"
        finally:
            self.terminate(CANCELLED_GRACE_SECONDS if context.cancelled.is_set() else GRACE_SECONDS)
            with self.stdout, self.selector:
                self.drain()
        text = self.output.result_text(stopped, self.process.returncode)
        return ToolResult(call_id=context.call.id, name=context.call.name, content=text, is_error=bool(stopped))

    def read_output(self, context: ToolContext) -> None:
        """Read available output, or wait briefly."""
        if self.closed:
            time.sleep(POLL_SECONDS)
        elif self.selector.select(SELECT_SECONDS):
            piece = os.read(self.stdout.fileno(), 1 << 16)
            self.closed = not piece
            self.output.append(piece)
            self.output.report_progress(context)

    def drain(self) -> None:
        """Read the remaining output. A process that left the group may keep the pipe open, so there is a deadline."""
        deadline = time.monotonic() + GRACE_SECONDS
        os.set_blocking(self.stdout.fileno(), False)
        with suppress(BlockingIOError):
            while time.monotonic() < deadline and (piece := os.read(self.stdout.fileno(), 1 << 16)):
                self.output.append(piece)

    def has_ended(self) -> bool:
        """Return True if the shell has exited. It is not reaped, so its process id cannot be reused."""
        if self.process.returncode is not None:
            return True
        if not hasattr(os, "waitid"):
            return self.process.poll() is not None
        return os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def terminate(self, patience: float) -> None:
        """Terminate the whole process group: SIGTERM if it still runs, then SIGKILL. Then what has left the group."""
        if not self.has_ended():
            self.send_signal(signal.SIGTERM)
            deadline = time.monotonic() + patience
            while not self.has_ended() and time.monotonic() < deadline:
                time.sleep(POLL_SECONDS)
        self.send_signal(signal.SIGKILL)
        self.process.wait()
        deadline = time.monotonic() + GRACE_SECONDS
        while _kill_marked(self.mark.encode()) and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)

    def send_signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)


def _kill_marked(mark: bytes) -> bool:
    """Kill the processes with a mark in their environment. Return True if there were any."""
    if sys.platform != "linux":
        return False
    found = False
    for name in os.listdir("/proc"):
        with suppress(OSError):  # it has ended, or belongs to somebody else
            if name.isdecimal() and mark in Path(f"/proc/{name}/environ").read_bytes().split(b"\0"):
                handle = os.pidfd_open(int(name))
                try:  # read again: the number may belong to another process by now
                    if mark in Path(f"/proc/{name}/environ").read_bytes().split(b"\0"):
                        signal.pidfd_send_signal(handle, signal.SIGKILL)
                        found = True
                finally:
                    os.close(handle)
    return found


class _OutputBuffer:
    """The beginning and the end of the output."""

    def __init__(self, most: int) -> None:
        self.first, self.last = most // 3, most - most // 3
        self.head, self.tail, self.size = bytearray(), bytearray(), 0
        self.shown = 0.0

    def append(self, piece: bytes) -> None:
        self.size += len(piece)
        room = self.first - len(self.head)
        self.head += piece[: max(0, room)]
        self.tail += piece[max(0, room) :]
        if len(self.tail) > 2 * self.last:
            del self.tail[: -self.last]

    def report_progress(self, context: ToolContext) -> None:
        """Report the last line as progress, at most four times a second."""
        if time.monotonic() - self.shown >= 0.25:
            self.shown = time.monotonic()
            lines = _decode_output(bytes((self.tail or self.head)[-400:])).split("\n")
            context.progress(next((line for line in reversed(lines) if line.strip()), ""))

    def result_text(self, stopped: str, code: int) -> str:
        tail = self.tail[-self.last :]
        hidden = self.size - len(self.head) - len(tail)
        middle = f"\n[{hidden:,} bytes left out]\n".encode() if hidden else b""
        lines = [_decode_output(bytes(self.head) + middle + bytes(tail)).rstrip("\n")]
        if stopped:
            lines.append(f"[The command was {stopped}, with everything it had started.]")
        elif code:
            lines.append(f"[Exit code {code}.]" if code > 0 else f"[Ended by signal {-code}.]")
        return "\n".join(filter(None, lines)) or "[It printed nothing. Exit code 0.]"


def _decode_output(printed: bytes) -> str:
    return ANSI_SEQUENCES.sub("", printed.decode(errors="replace"))
