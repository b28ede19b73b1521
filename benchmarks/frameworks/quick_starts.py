"""Time to a first answer with a tool: the programs of the first topic of docs/side-by-side.md.

Usage: python benchmarks/frameworks/quick_starts.py [--python NAME=PATH] [--rounds 5]

Each runs in an environment of its own and calls a stand-in of OpenAI on loopback: a request, a call of the tool, a
second request. CPU time is that of the whole process, with all imports. The rounds are taken in turns, and the table
has medians.
"""

import argparse
import os
import resource
import subprocess
import sys
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import NamedTuple, cast

from rich.console import Console
from rich.table import Table

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parent.parent
sys.path[:0] = [str(ROOT), str(FOLDER)]

from tests.fake_vendors import KEY, FakeVendors  # noqa: E402
from tests.side_by_side import LIBRARIES, answer, count_lines, programs  # noqa: E402

TOPIC = "A tool"
DISTRIBUTIONS = {"pydantic-ai": "pydantic-ai-slim", "OpenAI Agents": "openai-agents", "Mirascope": "mirascope"}


class Timing(NamedTuple):
    """Seconds of CPU time and on the clock."""

    cpu: float
    wall: float


def run(name: str, python: str, url: str) -> Timing:
    """Run a program once. It must print the answer."""
    code, output = programs(name)[TOPIC]
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), perf_counter()
    with TemporaryDirectory() as folder:
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": folder,
            "OPENAI_API_KEY": KEY,
            "OPENAI_BASE_URL": url,
            "OPENAI_AGENTS_DISABLE_TRACING": "1",
        }
        command = [python, "-c", code]
        done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)
    wall, after = perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.stdout != output:
        sys.exit(f"{name} did not answer:\n{done.stdout[-500:]}{done.stderr[-2000:]}")
    return Timing(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall)


def version(name: str, python: str) -> str:
    code = f"import importlib.metadata; print(importlib.metadata.version('{DISTRIBUTIONS.get(name, name)}'))"
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=False).stdout.strip()


def interpreter(name: str, given: dict[str, str]) -> str | None:
    made = ROOT / ".cache" / "frameworks" / LIBRARIES[name] / "bin" / "python"
    found = sys.executable if name == "contextc" else str(made) if made.exists() else None
    return given.get(name, found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", action="append", default=[], metavar="NAME=PATH")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    console = Console(width=120)
    given = dict(cast(tuple[str, str], tuple(each.split("=", 1))) for each in options.python)
    pythons = {name: python for name in LIBRARIES if (python := interpreter(name, given)) is not None}
    for name in LIBRARIES:
        if name not in pythons:
            console.print(f"{name}: not installed. Pass --python {name}=PATH.")
    timings: dict[str, list[Timing]] = {name: [] for name in pythons}
    with FakeVendors(answer, strict=False) as fakes:
        url = fakes.url("openai_responses")
        for name, python in pythons.items():
            run(name, python, url)  # compiles the modules
        for _ in range(options.rounds):
            for name, python in pythons.items():
                timings[name].append(run(name, python, url))
    table = Table(title="A first answer with a tool", title_justify="left")
    for column in ("library", "version", "lines", "CPU time", "wall time"):
        table.add_column(column, justify="left" if column in ("library", "version") else "right")
    for name, taken in timings.items():
        cpu, wall = median([each.cpu for each in taken]), median([each.wall for each in taken])
        found = version(name, pythons[name]) if name != "contextc" else "this one"
        table.add_row(name, found, str(count_lines(programs(name)[TOPIC][0])), f"{cpu:.2f} s", f"{wall:.2f} s")
    console.print(table)


if __name__ == "__main__":
    main()
