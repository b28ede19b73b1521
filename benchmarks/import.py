"""What an import costs: CPU time and resident memory above bare Python, for contextc and for its peers.

Every figure comes from fresh processes, started in turns, and is a median. CPU is user and system time of the child
as the system accounts for it, memory is what the child finds resident at its end; the same for `python -c pass` is
taken off both. Bytecode is compiled by a first run into a cache of the benchmark's own, whatever the environment
says. What contextc costs where its own bytecode is missing (a checkout run with PYTHONDONTWRITEBYTECODE) is measured
apart: everything else, the standard library too, is compiled then as well.

litellm fetches a price list over the network when it is imported. It is told to use the one it brings along, so that
the figure is the same everywhere.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from shutil import rmtree
from statistics import median
from tempfile import mkdtemp
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

import contextc
from measure import Goal, show_goals
from peers import WORKPLACE, interpreter, version

CPU_GOAL = 0.060
MEMORY_GOAL = 16 * 1024 * 1024
REPORT = """
with open("/proc/self/status") as status:
    print(next(line.split()[1] for line in status if line.startswith("VmRSS:")))
"""


class Case(NamedTuple):
    label: str
    code: str
    distribution: str = "contextc"


class Sample(NamedTuple):
    """Seconds of CPU and bytes of resident memory."""

    cpu: float
    memory: float


OURS = (
    Case("import contextc", "import contextc"),
    Case("… and touch every public name", "import contextc\nfor name in contextc.__all__: getattr(contextc, name)"),
    Case('… and open_store("memory:")', 'import contextc\nstore = contextc.open_store("memory:")'),
)
PEERS = (
    Case("import agents", "import agents", "openai-agents"),
    Case("import langgraph.graph", "import langgraph.graph", "langgraph"),
    Case("import langchain_core.messages", "import langchain_core.messages", "langchain-core"),
    Case("import litellm", "import litellm", "litellm"),
    Case("import pydantic_ai", "import pydantic_ai", "pydantic-ai-slim"),
)
BARE = Case("python", "pass")


def run(case: Case, python: str, cache: Path, *, compiling: bool = False) -> Sample | None:
    """One fresh process; None where it fails."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment |= {"PYTHONPYCACHEPREFIX": str(cache), "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    if not compiling:
        environment["PYTHONDONTWRITEBYTECODE"] = "1"
    command = [python, "-P", "-c", case.code + REPORT]  # -P: no files of the current folder among the modules
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        assert child.stdout is not None
        output = child.stdout.read()
        # wait4 accounts for this one child alone; Popen learns from us that it is gone.
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        return None
    return Sample(used.ru_utime + used.ru_stime, int(output.split()[-1]) * 1024)


def measure(cases: Sequence[tuple[Case, str]], cache: Path, runs: int) -> dict[Case, Sample]:
    """The median of each case above bare Python of the same environment. Cases that fail are left out."""
    bare = {python: (Case(f"python of {python}", BARE.code), python) for _, python in cases}
    everything = [*bare.values(), *cases]
    samples: dict[Case, list[Sample]] = {case: [] for case, _ in everything}
    for _ in range(runs):
        for case, python in everything:
            if sample := run(case, python, cache):
                samples[case].append(sample)
    return {
        case: _above(typical(samples[case]), typical(samples[bare[python][0]]))
        for case, python in cases
        if samples[case]
    }


def typical(samples: Sequence[Sample]) -> Sample:
    return Sample(median(sample.cpu for sample in samples), median(sample.memory for sample in samples))


def _above(sample: Sample, bare: Sample) -> Sample:
    return Sample(sample.cpu - bare.cpu, sample.memory - bare.memory)


def without_own_bytecode(cache: Path, runs: int) -> dict[Case, Sample]:
    """contextc alone loses its bytecode. A cache folder mirrors the paths of the sources."""
    assert contextc.__file__ is not None
    package = Path(contextc.__file__).parent
    rmtree(cache.joinpath(*package.parts[1:]))
    return measure([(case, sys.executable) for case in OURS], cache, runs)


def show(
    console: Console, found: dict[Case, Sample], uncompiled: dict[Case, Sample], versions: dict[Case, str | None]
) -> None:
    table = Table(title="Cost of an import above bare Python", title_justify="left", caption_justify="left")
    table.caption = "In brackets: contextc's own bytecode is missing."
    table.add_column("what", no_wrap=True)
    for column in ("version", "CPU", "memory"):
        table.add_column(column, justify="right", no_wrap=True)
    for case in (*OURS, *PEERS):
        missing = "import fails" if versions[case] else "not installed"
        figures = _figures(found.get(case), missing, uncompiled.get(case))
        table.add_row(case.label, versions[case] or "", *figures)
    console.print(table)


def _figures(sample: Sample | None, missing: str, uncompiled: Sample | None) -> tuple[str, str]:
    if sample is None:
        return missing, ""
    time, memory = _milliseconds(sample), _megabytes(sample)
    if uncompiled is None:
        return time, memory
    return f"{time} ({_milliseconds(uncompiled)})", f"{memory} ({_megabytes(uncompiled)})"


def _milliseconds(sample: Sample) -> str:
    return f"{sample.cpu * 1000:,.1f} ms"


def _megabytes(sample: Sample) -> str:
    return f"{sample.memory / 2**20:.1f} MB"


def goals(found: dict[Case, Sample]) -> list[Goal]:
    cost = found[OURS[0]]
    return [
        Goal("import contextc under 60 ms CPU above bare Python", cost.cpu < CPU_GOAL, _milliseconds(cost)),
        Goal("import contextc under 16 MB above bare Python", cost.memory < MEMORY_GOAL, _megabytes(cost)),
    ]


def save(path: Path, groups: dict[str, dict[Case, Sample]], reached: Sequence[Goal]) -> None:
    figures = {name: {case.label: sample._asdict() for case, sample in group.items()} for name, group in groups.items()}
    path.write_text(json.dumps({**figures, "goals": [goal._asdict() for goal in reached]}, indent=2) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description="CPU time and memory of importing contextc and its peers.")
    parser.add_argument("--quick", action="store_true", help="fewer runs")
    parser.add_argument("--no-install", action="store_true", help="make no environment for a peer that needs its own")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    options = parser.parse_args()
    runs, peer_runs = (5, 2) if options.quick else (21, 5)
    console = Console()
    WORKPLACE.mkdir(parents=True, exist_ok=True)
    cache = Path(mkdtemp(prefix="bytecode-", dir=WORKPLACE))
    try:
        pythons = {case: interpreter(case.distribution, install=not options.no_install) for case in (*OURS, *PEERS)}
        versions = {case: python and version(case.distribution, python) for case, python in pythons.items()}
        present = [(case, python) for case, python in pythons.items() if python and versions[case]]
        for case, python in present:
            run(case, python, cache, compiling=True)
        found = measure([pair for pair in present if pair[0] in OURS], cache, runs)
        found |= measure([pair for pair in present if pair[0] in PEERS], cache, peer_runs)
        uncompiled = without_own_bytecode(cache, runs)
    finally:
        rmtree(cache)
    show(console, found, uncompiled, versions)
    reached = goals(found)
    show_goals(console, reached)
    if options.json:
        save(options.json, {"compiled": found, "without own bytecode": uncompiled}, reached)


if __name__ == "__main__":
    main()
