"""Workers under random faults: kill -9, SIGSTOP for longer than the lease, cut connections, restarts of PostgreSQL.

Each worker has a PID namespace of its own where that is permitted, so that nothing is known of a dead one but its
silence. At the end every input must have its turn, no tool was begun twice, no message is lost or doubled, and events
have no gaps. Prints the time from the death of a worker to the continuation of its turns.
"""

import argparse
import json
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import contextc as cc
from contextc.doctor import scan_store
from contextc.errors import ContextcError
from contextc.events import TurnFinish, TurnInterrupted, TurnStart
from contextc.worker import submit_sync
from tests.conftest import in_schema
from tests.stress.postgres_server import Server, running_server

LEASE_LOST = re.compile(r"Conversation ('\S+'), agent '\w+': expected the current lease, got lease (\d+)")
"""The text of `LeaseLost`. Several log lines may report one loss."""
NAMESPACE = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]


class Worker:
    """A worker, and what was done to it."""

    def __init__(self, name: str, address: str, folder: Path, settings: dict[str, object], namespace: bool) -> None:
        self.name, self.silent_since = name, list[float]()
        mine = {**settings, "name": name, "out": str(folder / "tools.txt"), "log": str(folder / "log.txt")}
        command = [sys.executable, "-m", "tests.stress.fleet_worker", address, json.dumps(mine)]
        self._outer = subprocess.Popen(
            [*NAMESPACE, *command] if namespace else command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self._namespace = namespace

    @property
    def pid(self) -> int:
        """The process of the worker itself, as it is seen from here. 0 if it has not started, or has ended."""
        if not self._namespace:
            return self._outer.pid
        with suppress(OSError, IndexError, ValueError):
            return int(Path(f"/proc/{self._outer.pid}/task/{self._outer.pid}/children").read_text().split()[0])
        return 0

    def send(self, number: signal.Signals) -> bool:
        pid = self.pid
        if not pid or self._outer.poll() is not None:
            return False
        if number in (signal.SIGKILL, signal.SIGSTOP):
            self.silent_since.append(time.time())
        with suppress(ProcessLookupError):
            os.kill(pid, number)
        return True

    def end(self) -> None:
        self.send(signal.SIGKILL)
        self._outer.kill()
        self._outer.wait()


class Run:
    """One run with all its faults."""

    def __init__(self, options: argparse.Namespace, server: Server, folder: Path) -> None:
        self.options, self.server, self.folder = options, server, folder
        self.chance = random.Random(options.seed)
        self.address = in_schema(server.address, "fleet")
        self.settings: dict[str, object] = {
            "lease": options.lease,
            "heartbeat": options.heartbeat,
            "steps": options.steps,
            "gap": options.gap,
        }
        self.workers: list[Worker] = []
        self.all: list[Worker] = []
        self.faults: Counter[str] = Counter()
        self.resuming: list[threading.Timer] = []

    def start_worker(self) -> Worker:
        name = f"w{len(self.all)}"
        worker = Worker(name, self.address, self.folder, self.settings, self.options.namespaces)
        self.all.append(worker)
        return worker

    def fault(self) -> None:
        kind = self.chance.choices(["kill", "stop", "cut", "restart"], weights=[5, 4, 2, 1])[0]
        index = self.chance.randrange(len(self.workers))
        if kind == "kill":
            if not self.workers[index].send(signal.SIGKILL):
                return
            self.workers[index].end()
            self.workers[index] = self.start_worker()
        elif kind == "stop":
            worker = self.workers[index]
            if not worker.send(signal.SIGSTOP):
                return
            seconds = self.options.lease * self.chance.uniform(1.2, 2.5)
            timer = threading.Timer(seconds, worker.send, [signal.SIGCONT])
            timer.start()
            self.resuming.append(timer)
        elif kind == "cut":
            self.server.terminate_sessions()
        else:
            self.server.restart(self.chance.uniform(0, 1))
        self.faults[kind] += 1

    def run(self) -> bool:
        turns, conversations = self.options.turns, self.options.conversations
        with cc.open_store(self.address) as store:
            inputs = [(f"c{number % conversations}", f"input {number}") for number in range(turns)]
            self.workers = [self.start_worker() for _ in range(self.options.workers)]
            began = time.monotonic()
            submitting = threading.Thread(target=self._submit, args=(store, inputs), daemon=True)
            submitting.start()
            end = began + self.options.longest
            next_fault = began + 5
            while (left := self._unfinished(store, turns)) and time.monotonic() < end:
                if time.monotonic() >= next_fault and left > turns * 0.05:
                    self.fault()
                    next_fault = time.monotonic() + self.chance.expovariate(1 / self.options.pause)
                time.sleep(0.2)
            took = time.monotonic() - began
            for timer in self.resuming:
                timer.join()
            submitting.join(60)
            time.sleep(self.options.lease)  # workers that were resumed last try to write
            for worker in self.workers:
                worker.end()
            return self._check(store, inputs, took)

    def _submit(self, store: cc.Store, inputs: list[tuple[str, str]]) -> None:
        for name, text in inputs:
            while True:
                try:
                    submit_sync(store, name, text, key=text)
                    break
                except ContextcError:
                    time.sleep(0.2)

    def _unfinished(self, store: cc.Store, turns: int) -> int:
        try:
            rows = store.read(
                lambda tx: tx.row(
                    "SELECT count(*) FROM main.turn WHERE convert_from(body, 'UTF8') LIKE '%\"finished\"%'"
                )
            )
        except ContextcError:
            return turns
        return turns - (rows[0] if rows else 0)

    def _check(self, store: cc.Store, inputs: list[tuple[str, str]], took: float) -> bool:
        lines = [json.loads(line) for line in (self.folder / "tools.txt").read_text().splitlines()]
        begun = Counter(call for kind, call, *_ in lines if kind == "begins")
        problems = [f"tool call {call} was begun {count} times" for call, count in begun.items() if count > 1]
        steps = interrupted = 0
        delays: list[tuple[float, float, str]] = []
        for name in sorted({name for name, _ in inputs}):
            messages, events, turns = store.load(name), store.events(name), store.turns(name)
            wanted = [text for conversation, text in inputs if conversation == name]
            if [each.text for each in messages if each.role == "user"] != wanted:
                problems.append(f"{name}: inputs are lost, doubled or in another order")
            if [(each.state, each.finish) for each in turns] != [("finished", "stop")] * len(wanted):
                problems.append(f"{name}: turns ended as {[(each.state, each.finish, each.error) for each in turns]}")
            calls = Counter(call.id for each in messages for call in each.tool_calls)
            results = Counter(result.call_id for each in messages for result in each.tool_results)
            if calls != results or max(calls.values(), default=1) > 1:
                problems.append(f"{name}: calls and results differ")
            if [each.number for each in events] != [*range(1, len(events) + 1)]:
                problems.append(f"{name}: events have gaps")
            if sum(isinstance(each, TurnFinish) for each in events) != len(wanted):
                problems.append(f"{name}: not one end for each turn")
            steps += len(store.steps(name))
            dead_since, found = 0.0, 0.0
            for event in events:
                if isinstance(event, TurnInterrupted):
                    interrupted, found = interrupted + 1, event.time / 1000
                    dead_since = self._silence(lines, name, found)
                elif isinstance(event, TurnStart) and event.resumed and dead_since:
                    where = f"{name} turn {event.turn}"
                    delays.append((event.time / 1000 - dead_since, found - dead_since, where))
                    dead_since = 0.0
        problems += [f"doctor: {finding}" for finding in scan_store(store) if finding.kind == "fault"]
        log = (self.folder / "log.txt").read_text()
        parallel = f"{self.options.workers} workers{' in PID namespaces' if self.options.namespaces else ''}"
        print(f"   {len(inputs)} turns, {steps} steps, {len(begun)} tools in {took:.0f} s on {parallel}")
        lost = len(set(LEASE_LOST.findall(log)))
        print(f"   faults: {dict(self.faults)}; interrupted turns: {interrupted}; lost leases: {lost}")
        if delays:
            median, (worst, *_) = statistics.median([each for each, *_ in delays]), max(delays)
            print(f"   from death to going on: median {median:.1f} s, worst {worst:.1f} s, of {len(delays)}")
            for took, noticed, where in sorted(delays, reverse=True)[:3]:
                print(f"   slowest: {where}: noticed after {noticed:.1f} s, continued after {took:.1f} s")
            print(f"   (lease {self.options.lease:g} s, heartbeat {self.options.heartbeat:g} s)")
        for problem in problems[:20]:
            print(f"   PROBLEM {problem}")
        return not problems

    def _silence(self, lines: list[list[object]], name: str, moment: float) -> float:
        """Return when the worker that ran a conversation's turn at a moment went silent, or 0."""
        ran = [line for line in lines if line[2] == name and float(str(line[4])) <= moment]
        if not ran:
            return 0.0
        found = [each for each in self.all if each.name == ran[-1][3]]
        return max([each for worker in found for each in worker.silent_since if each <= moment], default=0.0)


def can_unshare() -> bool:
    try:
        return subprocess.run([*NAMESPACE, "true"], check=False, capture_output=True).returncode == 0
    except OSError:
        return False


def main() -> int:
    asked = argparse.ArgumentParser(prog="python -m tests.stress.fleet_faults", description=__doc__)
    asked.add_argument("--turns", type=int, default=500)
    asked.add_argument("--steps", type=int, default=10)
    asked.add_argument("--workers", type=int, default=4)
    asked.add_argument("--conversations", type=int, default=100)
    asked.add_argument("--lease", type=float, default=5)
    asked.add_argument("--heartbeat", type=float, default=1)
    asked.add_argument("--gap", type=float, default=0.01, help="seconds between two pieces of a reply")
    asked.add_argument("--pause", type=float, default=3, help="mean seconds between two faults")
    asked.add_argument("--longest", type=float, default=3600, help="seconds after which the run is broken off")
    asked.add_argument("--seed", type=int, default=20261117)
    options = asked.parse_args()
    options.namespaces = can_unshare()
    with running_server() as server, tempfile.TemporaryDirectory(prefix="contextc-fleet-") as folder:
        return 0 if Run(options, server, Path(folder)).run() else 1


if __name__ == "__main__":
    sys.exit(main())
