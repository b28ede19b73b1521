"""What differs between operating systems, simulated: `sys.platform` is set, and modules of Unix are not there.

`docs/install.md` says what was tried on which system.
"""

import asyncio
import io
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import contextc as cc
from contextc.app.agent_factory import build_tools
from contextc.cli import use_utf8
from contextc.cli.worker import call_on_signals, create_loop
from contextc.store.sqlite import sync_to_disk
from contextc.tools.builtin.run_command import command_tool

ROOT = Path(__file__).parent.parent


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setattr(sys, "platform", "win32")
        yield


def test_the_library_and_all_commands_import_without_the_modules_of_unix() -> None:
    """Windows has none of these modules."""
    code = """
import asyncio, concurrent.futures, ctypes, email, http.server, multiprocessing.pool, sqlite3, ssl, subprocess, sys
import rich.console, rich.progress, starlette.applications, types, uvicorn.server, zoneinfo
sys.platform = "win32"  # after what asks for it while it is imported
for name in ("fcntl", "grp", "pwd", "resource", "termios", "tty", "pty", "readline", "syslog"):
    sys.modules[name] = None
sys.modules["msvcrt"] = types.ModuleType("msvcrt")
import contextc as cc
for name in cc.__all__:
    getattr(cc, name)
from contextc.cli import COMMANDS, load_command
for name in COMMANDS:
    load_command(name)
import contextc.web.application, contextc.proxy.proxy_server, contextc.mcp, contextc.doctor
"""
    subprocess.run([sys.executable, "-c", code], check=True)


WITHOUT_FUNCTIONS = """
import os, signal, sys
for module, names in (
    (os, "fork killpg getuid geteuid getpgrp tcgetpgrp setsid waitid register_at_fork O_NOFOLLOW O_NONBLOCK O_CLOEXEC"),
    (signal, "SIGHUP SIGCHLD SIGUSR1 SIGUSR2 SIGKILL setitimer pidfd_send_signal"),
):
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)
import contextc as cc
from contextc.testing import FakeModel
def add(a: int, b: int) -> int:
    return a + b
model = FakeModel(cc.tool_call("c1", "add", {"a": 1, "b": 2}), "3.")
agent = cc.Agent(model, tools=[add], store="sqlite:///turn.db")
print(agent.run_sync("1 + 2?", conversation="sum").text)
with cc.open_store("sqlite:///turn.db") as store:
    print(len(store.load("sum")), cc.lint({"messages": []}, format="openai_chat") is not None)
    store.backup("copy.db")
"""


def test_a_turn_needs_none_of_the_functions_that_windows_has_not(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_FUNCTIONS], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == ["3.", "4", "True"], done.stderr
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "copy.db").exists()


def test_no_file_is_read_or_written_in_the_encoding_of_the_system() -> None:
    """The code page of a Windows machine is not UTF-8. Ruff sees also calls that no test makes."""
    command = ["ruff", "check", "--preview", "--select", "PLW1514", "--ignore-noqa", "--isolated", "src"]
    done = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.usefixtures("windows")
def test_output_into_a_pipe_is_utf_8_on_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The arrows and dashes of our tables are in no Windows code page: printing would fail."""
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="cp1252"))
    use_utf8()
    sys.stdout.write("→ 漢字")
    sys.stdout.flush()
    assert written.getvalue().decode() == "→ 漢字"


@pytest.mark.usefixtures("windows")
def test_windows_syncs_files_that_are_open_for_writing_and_no_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It refuses to open a folder, and to sync what is open for reading. A backup would end with an error."""
    opened: list[tuple[str, int]] = []
    real: Callable[[str, int], int] = os.open

    def open_as_windows(path: str, flags: int) -> int:
        if os.path.isdir(path):
            raise PermissionError(13, "Permission denied", path)
        opened.append((path, flags))
        return real(path, flags)

    file = tmp_path / "copy.db"
    file.write_bytes(b"content")
    monkeypatch.setattr(os, "open", open_as_windows)
    sync_to_disk(str(tmp_path))
    sync_to_disk(str(file))
    assert opened == [(str(file), os.O_RDWR)]


@pytest.mark.usefixtures("windows")
def test_commands_are_neither_offered_nor_built_on_windows(tmp_path: Path) -> None:
    """There are no process groups, so that a command that goes wrong could not be ended with what it started."""
    names = {tool.name for tool in build_tools("all", tmp_path)}
    assert "run_command" not in names
    assert {"read_file", "edit_file", "search_files"} <= names
    with pytest.raises(cc.errors.InvalidSetting, match="run_command requires Linux or macOS"):
        command_tool(tmp_path)


def test_a_worker_stops_on_a_signal_where_the_loop_takes_none() -> None:
    """The loops of Windows have no `add_signal_handler`; psycopg cannot use the usual one."""

    class LoopOfWindows(asyncio.SelectorEventLoop):
        def add_signal_handler(self, sig: int, callback: Callable[..., object], *args: object) -> None:
            raise NotImplementedError

    async def work() -> str:
        stopped = asyncio.Event()
        call_on_signals(stopped.set)
        signal.raise_signal(signal.SIGTERM)
        await asyncio.wait_for(stopped.wait(), 60)
        return "stopped"

    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    try:
        with asyncio.Runner(loop_factory=LoopOfWindows) as runner:
            assert runner.run(work()) == "stopped"
    finally:
        signal.signal(signal.SIGTERM, before[0])
        signal.signal(signal.SIGINT, before[1])


@pytest.mark.usefixtures("windows")
def test_the_loop_of_a_worker_on_windows_waits_for_sockets() -> None:
    loop = create_loop()
    assert isinstance(loop, asyncio.SelectorEventLoop)
    loop.close()
