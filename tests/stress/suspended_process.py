"""A process that is suspended in the middle of a turn, for longer than its lease lasts, goes on when it wakes up.

A child runs a turn on SQLite whose tool waits for a word. It is stopped (SIGSTOP) until its lease has run out, and for
`--seconds` at least; meanwhile the store is opened by another process. Then it is continued, and the turn must end as
if nothing had happened.
"""

import argparse
import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

import contextc as cc
from contextc.events import TurnInterrupted
from tests.executor.scripted_provider import SONNET, Scripted, call, says

ROOT = Path(__file__).parents[2]


def child(address: str, lease_seconds: float) -> None:
    """Run one turn, whose tool ends when a line is given."""

    def wait_for_a_word() -> str:
        """Wait for a word."""
        print("started", flush=True)
        return sys.stdin.readline().strip()

    async def run() -> None:
        with cc.open_store(address) as store:
            executor = cc.AgentExecutor(
                store,
                SONNET,
                tools=[wait_for_a_word],
                endpoint=Scripted(says(call(1, "wait_for_a_word")), says("Done.")),
                lease_seconds=lease_seconds,
                triggers=(),
            )
            result = await executor.start("demo", "go").wait()
            print(result.finish, result.error or "", flush=True)

    asyncio.run(run())


def suspended(address: str, *, lease_seconds: float, seconds: float = 0.0) -> list[str]:
    """Suspend a turn until its lease has expired; return the problems found afterwards, as text."""
    command = [
        sys.executable,
        "-m",
        "tests.stress.suspended_process",
        "--child",
        address,
        "--lease",
        str(lease_seconds),
    ]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            assert process.stdout.readline() == "started\n"
            suspend(process.pid, address)
            end = time.monotonic() + seconds
            with cc.open_store(address) as store:
                while time.monotonic() < end or left(store) > 0:
                    time.sleep(0.02)
            with cc.open_store(address) as store:  # which looks for dead turns
                recovered = store.recovered
            os.kill(process.pid, signal.SIGCONT)
            process.stdin.write("hello\n")
            process.stdin.flush()
            answer = process.stdout.readline().strip()
        finally:
            process.kill()
    with cc.open_store(address) as store:
        results = [result.text for message in store.load("demo") for result in message.tool_results]
        interrupted = any(isinstance(event, TurnInterrupted) for event in store.events("demo"))
        states = [(turn.state, turn.finish) for turn in store.turns("demo")]
    found = {
        f"the turn was taken for dead: {recovered}": bool(recovered),
        f"the turn ended as {answer!r}": answer != "stop",
        f"the result is {results}": results != ["hello"],
        "an event says that it was interrupted": interrupted,
        f"it is stored as {states}": states != [("finished", "stop")],
    }
    return [text for text, is_wrong in found.items() if is_wrong]


def suspend(pid: int, address: str) -> None:
    """Suspend a process that renews its lease; not while it holds the lock of a SQLite file, which all writers need."""
    os.kill(pid, signal.SIGSTOP)
    while address.startswith("sqlite") and _is_locked(address.removeprefix("sqlite:///")):
        os.kill(pid, signal.SIGCONT)
        time.sleep(0.01)
        os.kill(pid, signal.SIGSTOP)


def _is_locked(path: str) -> bool:
    with closing(sqlite3.connect(path, timeout=0)) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return True
        return False


def left(store: cc.Store) -> float:
    """The seconds that the lease has left."""
    row = store.read(lambda tx: tx.row(f"SELECT expires - {tx.dialect.now} FROM main.lease"))
    assert row is not None
    return float(row[0])


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--seconds", type=float, default=60)
    asked.add_argument("--lease", type=float, default=30)
    asked.add_argument("--child", metavar="ADDRESS", help=argparse.SUPPRESS)
    given, _ = asked.parse_known_args()
    if given.child:
        child(given.child, given.lease)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        address = f"sqlite:///{folder}/chat.db"
        found = suspended(address, lease_seconds=given.lease, seconds=given.seconds)
    for each in found:
        print(each)
    print(f"suspended for {given.seconds:g} s with a lease of {given.lease:g} s: {'FAILED' if found else 'it went on'}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
