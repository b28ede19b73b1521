"""A stored conversation in Anthropic's and in OpenAI's chat shape, at 10 to 10,000 messages, in one run, as ratios.

Everybody holds the same conversation as messages of its own, made beforehand: a question, an answer with two calls, two
results, and so on. What is timed ends where a list of plain dicts is ready for the vendor's client. A peer has two
rows: what one of its requests does to the messages (`litellm.completion` checks them and copies them before it
converts, an agent of pydantic-ai prepares them), and its converter alone. contextc pairs calls and results and builds
the whole body. *Sealed* is what the next step of a history costs that only grows: its last segment is encoded, and
joined to those that were encoded before.

litellm and openai-agents begin with OpenAI's own dicts and text as arguments, so that there is little for them to
convert; the others hold the arguments as objects. Before anything is timed, each output is counted: a peer whose calls,
results or characters are not those of contextc is named.

All take turns (`measure.py`), each after a run that is not timed; litellm does so in a Python of its own, which is told
when. CPU time is compared, because nothing here waits. The collector is on, as in a program that does other things;
what the conversations themselves hold is frozen, so that nobody pays for the objects of others.
"""

import argparse
import gc
import json
import platform
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console
from rich.table import Table

from converters import (
    ALONE,
    BLOCK,
    FASTER,
    GOAL_LENGTH,
    OURS,
    SEALED,
    SHAPES,
    Content,
    LangChain,
    LiteLLM,
    OpenAIAgents,
    Ours,
    PydanticAI,
    Spot,
    Subject,
    Wire,
    Work,
    content_of,
    conversation,
)
from measure import Cost, Goal, cpu, in_turn, ratio, show_goals, timed, typical
from peers import interpreter, version
from tables import duration, times

# ── the measuring ─────────────────────────────────────────────────────────────────────────────────────────────────────


class Bench(Protocol):
    contents: dict[Spot, Content]

    def measure(self, spot: Spot) -> Cost: ...


class Here:
    """Subjects in this process."""

    def __init__(self, subjects: Sequence[Subject], lengths: Sequence[int]) -> None:
        self._works: dict[Spot, Work] = {
            (name, shape, length): work
            for length in lengths
            for shape in SHAPES
            for subject in subjects
            for name, work in subject.works(shape, conversation(length)).items()
        }
        self.contents = {spot: content_of(work()) for spot, work in self._works.items()}
        gc.collect()
        gc.freeze()

    def measure(self, spot: Spot) -> Cost:
        work, count = self._works[spot], max(1, BLOCK // spot[2])
        work()

        def several() -> Wire:
            for _ in range(count - 1):
                work()
            return work()

        return timed(several, per=count)


class Apart:
    """litellm in its own Python, which answers each line with a line: what there is, then the cost of a spot."""

    def __init__(self, python: str, lengths: Sequence[int]) -> None:
        command = [python, __file__, "--serve", *map(str, lengths)]
        self._child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self.contents = {(name, shape, length): Content(*found) for name, shape, length, found in self._answer()}

    def measure(self, spot: Spot) -> Cost:
        assert self._child.stdin is not None
        print(json.dumps(spot), file=self._child.stdin, flush=True)
        return Cost(*self._answer())

    def _answer(self) -> Any:  # Any: JSON
        assert self._child.stdout is not None
        line = self._child.stdout.readline()
        if not line:
            raise ChildProcessError(f"litellm's Python ended with {self._child.wait()}.")
        return json.loads(line)

    def close(self) -> None:
        self._child.communicate()


def serve(lengths: Sequence[int]) -> None:
    """The other end of `Apart`. What the package prints must not stand between the answers."""
    answers, sys.stdout = sys.stdout, sys.stderr
    bench = Here([LiteLLM()], lengths)
    print(json.dumps([(*spot, found) for spot, found in bench.contents.items()]), file=answers, flush=True)
    for line in sys.stdin:
        name, shape, length = json.loads(line)
        print(json.dumps(bench.measure((name, shape, length))), file=answers, flush=True)


def measure_all(benches: Sequence[Bench], rounds: int) -> dict[Spot, list[Cost]]:
    turns = [(bench, spot) for bench in benches for spot in bench.contents]
    turns.sort(key=lambda turn: (turn[1][2], turn[1][1]))  # who is compared is measured one after the other
    costs: dict[Spot, list[Cost]] = {spot: [] for _, spot in turns}
    for number in range(rounds):
        for bench, spot in in_turn(turns, number * len(turns) // rounds):
            costs[spot].append(bench.measure(spot))
    return costs


# ── what is shown ─────────────────────────────────────────────────────────────────────────────────────────────────────


def table(shape: str, costs: dict[Spot, list[Cost]], lengths: Sequence[int]) -> Table:
    found = Table(title=f"To the {shape} shape: CPU time, and how many times contextc's", title_justify="left")
    found.add_column("messages", no_wrap=True)
    for length in lengths:
        found.add_column(f"{length:,}", justify="right", no_wrap=True)
    for row in dict.fromkeys(name for name, _, _ in costs):
        cells = [cell(row, costs.get((row, shape, length)), costs[OURS, shape, length]) for length in lengths]
        found.add_row(row, *cells, end_section=row == SEALED)
    return found


def cell(row: str, own: Sequence[Cost] | None, ours: Sequence[Cost]) -> str:
    if own is None:
        return "-"
    return duration(typical(own).cpu) if row in (OURS, SEALED) else times(ratio(cpu(own), cpu(ours)).median)


def differences(contents: dict[Spot, Content]) -> list[str]:
    """Outputs that do not hold what ours holds."""
    return [
        f"{name}, {shape}, {length:,}: {found}, contextc has {contents[OURS, shape, length]}"
        for (name, shape, length), found in contents.items()
        if found != contents[OURS, shape, length]
    ]


def goals(costs: dict[Spot, list[Cost]]) -> list[Goal]:
    reached: list[Goal] = []
    for shape in SHAPES:
        ours = cpu(costs[OURS, shape, GOAL_LENGTH])
        peers = {
            name: ratio(cpu(own), ours).median
            for (name, own_shape, length), own in costs.items()
            if (own_shape, length) == (shape, GOAL_LENGTH) and name not in (OURS, SEALED)
        }
        for what, alone in (("request", False), ("converter alone", True)):
            shares = {name: share for name, share in peers.items() if name.endswith(ALONE) == alone}
            if shares:
                least = min(shares, key=lambda name: shares[name])
                text = f"{shape}, {GOAL_LENGTH:,} messages: {FASTER:.0f} times as fast as every peer's {what}"
                figure = f"{times(shares[least])} ({least.removesuffix(ALONE)})"
                reached.append(Goal(text, shares[least] >= FASTER, figure))
    return reached


def save(path: Path, costs: dict[Spot, list[Cost]], reached: Sequence[Goal]) -> None:
    figures = {", ".join(map(str, spot)): [cost._asdict() for cost in each] for spot, each in costs.items()}
    path.write_text(json.dumps({"costs": figures, "goals": [goal._asdict() for goal in reached]}, indent=2) + "\n")


PEERS: dict[str, tuple[Callable[[], Subject], tuple[str, ...]]] = {
    "langchain": (LangChain, ("langchain-core", "langchain-anthropic", "langchain-openai")),
    "pydantic-ai": (PydanticAI, ("pydantic-ai-slim",)),
    "openai-agents": (OpenAIAgents, ("openai-agents",)),
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Conversations in a provider's shape, by contextc and by its peers.")
    parser.add_argument("--quick", action="store_true", help="up to 1k messages only, fewer rounds")
    parser.add_argument("--no-install", action="store_true", help="make no environment for a peer that needs its own")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every measurement there too")
    parser.add_argument("--serve", type=int, nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve)
        return
    lengths, rounds = ((10, 100, 1000), 5) if options.quick else ((10, 100, 1000, 10_000), 7)
    console = Console()
    python = interpreter("litellm", install=not options.no_install)
    versions = {name: version(name) for name in ("contextc", *(each for _, names in PEERS.values() for each in names))}
    versions["litellm"] = python and version("litellm", python)
    shown = ", ".join(f"{name} {found or 'not installed'}" for name, found in versions.items())
    console.print(f"Python {platform.python_version()}, {shown}", highlight=False)
    present = [make() for make, names in PEERS.values() if all(versions[name] for name in names)]
    benches: list[Bench] = [Here([Ours(), *present], lengths)]
    apart = Apart(python, lengths) if python and versions["litellm"] else None
    try:
        benches += [apart] if apart else []
        costs = measure_all(benches, rounds)
    finally:
        if apart:
            apart.close()
    for shape in SHAPES:
        console.print(table(shape, costs, lengths))
    contents = {spot: found for bench in benches for spot, found in bench.contents.items()}
    for difference in differences(contents) or ["Every output holds the same calls, results and characters of text."]:
        console.print(f"  {difference}", highlight=False, soft_wrap=True)
    reached = goals(costs)
    show_goals(console, reached)
    if options.json:
        save(options.json, costs, reached)


if __name__ == "__main__":
    main()
