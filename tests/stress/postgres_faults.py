"""Turns on a PostgreSQL under load and faults: one line of figures a scenario.

`python -m tests.stress.postgres_faults load down5` runs these alone. `pooled-` before a name puts pgbouncer in between,
in transaction mode. A scenario fails where something that was acknowledged is not stored, a tool ran twice, or a chain
is broken, and where turns failed that should have finished.
"""

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import contextc as cc
from contextc.doctor import scan_store
from tests.conftest import in_schema
from tests.pgbouncer_server import find_pgbouncer, running_pgbouncer
from tests.stress.postgres_server import Server, running_server

LONGEST = 180
"""Seconds after which a scenario is broken off."""
Fault = Callable[[Server, "list[subprocess.Popen[bytes]]"], None]


class Scenario(NamedTuple):
    processes: int
    conversations: int
    fault: Fault
    all_finish: bool = True
    seconds: float = 10
    turns: int = 10**9
    pieces: int = 4
    gap: float = 0.02
    lease: float = 30
    repeats: int = 1


def _nothing(server: Server, workers: "list[subprocess.Popen[bytes]]") -> None:
    """Leave everything as it is."""


def _restart(seconds: float) -> Fault:
    return lambda server, workers: server.restart(seconds)


def _terminate(server: Server, workers: "list[subprocess.Popen[bytes]]") -> None:
    server.terminate_sessions()


def _kill(server: Server, workers: "list[subprocess.Popen[bytes]]") -> None:
    server.kill()


def _freeze(server: Server, workers: "list[subprocess.Popen[bytes]]") -> None:
    frozen = workers[0]
    frozen.send_signal(signal.SIGSTOP)
    time.sleep(4.5)
    frozen.send_signal(signal.SIGCONT)


def _end(server: Server, workers: "list[subprocess.Popen[bytes]]") -> None:
    workers[0].kill()


LONG: dict[str, Any] = {"turns": 1, "pieces": 25, "gap": 0.2, "seconds": 60}
SCENARIOS: dict[str, Scenario] = {
    "load": Scenario(4, 50, _nothing),
    "restart": Scenario(2, 24, _restart(0), **LONG),
    "down5": Scenario(2, 24, _restart(5), **LONG),
    "terminate": Scenario(4, 12, _terminate, seconds=14, repeats=4),
    "crash": Scenario(4, 12, _kill, all_finish=False, seconds=14, repeats=2),
    "freeze": Scenario(4, 12, _freeze, all_finish=False, seconds=14, lease=3),
    "end": Scenario(4, 12, _end, seconds=8, lease=3),
}


def main() -> int:
    names = [*SCENARIOS, *(f"pooled-{name}" for name in SCENARIOS)]
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("scenarios", nargs="*", metavar="scenario", help=f"of {', '.join(names)} (default: all)")
    given = asked.parse_args()
    if strange := [name for name in given.scenarios if name not in names]:
        asked.error(f"there is no scenario {strange[0]!r}. There are: {', '.join(names)}.")
    program = find_pgbouncer()
    failed = 0
    for name in given.scenarios or names:
        if name.startswith("pooled-") and program is None:
            _report(f"{name}: NOT RUN, pgbouncer is not installed")
            failed += 1
            continue
        with ExitStack() as stack:
            server = stack.enter_context(running_server())
            address = server.address
            if name.startswith("pooled-"):
                address = stack.enter_context(running_pgbouncer(program or "", server.address, sessions=20))
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="contextc-stress-"))
            failed += not _run(name, SCENARIOS[name.removeprefix("pooled-")], server, address, Path(folder))
    return 1 if failed else 0


def _run(name: str, scenario: Scenario, server: Server, address: str, folder: Path) -> bool:
    began = time.monotonic()
    store = in_schema(address, "stress")
    cc.open_store(in_schema(server.address, "stress")).close()
    workers = [_worker(scenario, f"p{number}", store, folder) for number in range(scenario.processes)]
    try:
        _wait_until_all_begin(folder, len(workers))
        time.sleep(3)
        for _ in range(scenario.repeats):
            scenario.fault(server, workers)
            time.sleep(2)
        for worker in workers:
            worker.wait(max(1.0, began + LONGEST - time.monotonic()))
    except subprocess.TimeoutExpired:
        _report(f"{name}: broken off after {LONGEST} s")
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    notes = [json.loads(line) for file in folder.glob("*.out") for line in file.read_text().splitlines()]
    turns = Counter(note[1] for note in notes if note[0] == "turn")
    reasons = Counter(note[2] for note in notes if note[0] == "turn" and note[1] != "stop")
    time.sleep(scenario.lease if scenario.lease < 10 else 0)  # until what a dead process held has ended
    wrong = _wrong(in_schema(server.address, "stress"), notes)
    other = sum(turns.values()) - turns["stop"]
    result = sum(note[0] == "told" for note in notes)
    _report(
        f"{name}: {turns['stop']} turns finished, {other} did not, {result} acknowledged,"
        f" wrong: {dict(wrong) or 'nothing'}, {time.monotonic() - began:.0f} s"
        + "".join(f"\n    {count} times: {reason}" for reason, count in reasons.most_common(4))
    )
    return not wrong and bool(turns["stop"]) and not (scenario.all_finish and other)


def _report(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _wait_until_all_begin(folder: Path, count: int) -> None:
    end = time.monotonic() + 60
    while sum("begins" in file.read_text() for file in folder.glob("*.out")) < count and time.monotonic() < end:
        time.sleep(0.05)


def _worker(scenario: Scenario, name: str, address: str, folder: Path) -> "subprocess.Popen[bytes]":
    given = {key: value for key, value in scenario._asdict().items() if key != "fault"}
    given |= {"name": name, "out": str(folder / f"{name}.out")}
    with (folder / f"{name}.err").open("wb") as errors:
        command = [sys.executable, "-m", "tests.stress.turn_worker", address, json.dumps(given)]
        return subprocess.Popen(command, stderr=errors)


def _wrong(address: str, notes: list[list[Any]]) -> Counter[str]:
    """What does not agree between what was acknowledged and what is stored."""
    wrong: Counter[str] = Counter()
    began = Counter(note[1] for note in notes if note[0] == "tool")
    wrong["tools that ran twice"] = sum(count > 1 for count in began.values())
    with cc.open_store(address) as store:
        names = [each.name for each in store.conversations()]
        events = {name: {event.number: event for event in store.events(name)} for name in names}
        messages = {name: {message.seq: message for message in store.load(name)} for name in names}
        wrong["findings"] = len([*scan_store(store)])
    for name in names:
        wrong["gaps"] += [*events[name]] != [*range(1, len(events[name]) + 1)]
        wrong["gaps"] += [*messages[name]] != [*range(1, len(messages[name]) + 1)]
        calls = [call.id for message in messages[name].values() for call in message.tool_calls]
        results = Counter(each.call_id for message in messages[name].values() for each in message.tool_results)
        wrong["calls without one result"] += sum(results[call] != 1 for call in calls)
        wrong["doubled calls"] += len(calls) - len({*calls})
        texts = [message.uid for message in messages[name].values()]
        wrong["doubled messages"] += len(texts) - len({*texts})
    for note in notes:
        if note[0] != "told":
            continue
        _, name, number, kind, seq, uid = note
        event = events.get(name, {}).get(number)
        wrong["lost events"] += event is None or type(event).__name__ != kind
        stored = messages.get(name, {}).get(seq)
        wrong["lost messages"] += bool(seq) and (stored is None or stored.uid != uid)
    return Counter({what: count for what, count in wrong.items() if count})


if __name__ == "__main__":
    sys.exit(main())
