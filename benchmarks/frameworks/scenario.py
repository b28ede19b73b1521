"""A scripted agent of 60 tool steps in each framework, with and without the adapter, in a window of 32,000 tokens.

Usage: python benchmarks/frameworks/scenario.py [NAME …] [--turns 1,5] [--python NAME=PATH] [--json FILE]

Every framework runs in an environment of its own (`.cache/frameworks/NAME`, or `--python`), as `NAME_agent.py` with
the variants that it names. It calls a strict stand-in of the vendor on loopback. That one refuses what the vendor
refuses, with the vendor's error texts, and every input above the window. The model is a script: it makes the same calls
in all of them, and the results are the same. Requests without tools are those of a summarizer, and get a summary.

*Refused* are requests that the vendor answers with an error. *Orphans* are requests with a call without its result, or
a result without its call. *Task lost* are requests that no longer contain the user's message of the turn. The cache is
that of `prefix_cache.py`, and the bill is for input and output by the prices of the model. A run that did not finish
its steps is cheaper for that reason only, so its bill is in parentheses.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import Any, cast

from msgspec import Struct, to_builtins
from rich.console import Console
from rich.table import Table

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parent.parent
sys.path[:0] = [str(ROOT), str(FOLDER)]

from prefix_cache import PrefixCacheMeter  # noqa: E402
from scenario_steps import STEPS, WINDOW, Assignment, step, task  # noqa: E402
from tests.fake_vendors import KEY, AcceptedRequest, FakeVendors, Reply, RequestRecord, ScriptedCall  # noqa: E402
from tests.fake_vendors.gemini_calls import list_gemini_calls  # noqa: E402

import contextc as cc  # noqa: E402
from contextc.models import cost  # noqa: E402

UNLIMITED = "unlimited"
"""Variants whose name begins with this get the model's own window."""
SUMMARY = "Summary of the work so far: " + "the parser was checked, an index was fixed, tests passed. " * 20
THOUGHT = "The call before this one did not show the cause, so the next place has to be checked."
WIDTH = 150
TIMEOUT = 600


class Figures(Struct, frozen=True, kw_only=True):
    """One run. Tokens are those of accepted requests."""

    framework: str
    variant: str
    turns: int
    requests: int
    refused: int
    orphans: int
    task_lost: int
    steps: int
    input: int
    cached: int
    output: int
    dollars: float
    errors: tuple[str, ...] = ()
    """The different reasons of refusals, and the failures of turns."""

    @property
    def cached_share(self) -> float:
        return self.cached / self.input if self.input else 0.0

    @property
    def is_complete(self) -> bool:
        return self.steps == STEPS


class Script:
    """The model. It takes the next step of the turn whose task is the last one that the request contains."""

    def __init__(self, turns: int) -> None:
        self._turns, self._turn, self._number = turns, 0, 0
        self._given: dict[str, Reply] = {}
        self._lock = Lock()
        self.taken: set[tuple[int, int]] = set()
        """The steps with calls that were taken: turn and number."""

    def __call__(self, ask: AcceptedRequest) -> Reply:
        with self._lock:
            if ask.identity not in self._given:
                self._given[ask.identity] = self._reply(ask)
            return self._given[ask.identity]

    @staticmethod
    def _reasons(ask: AcceptedRequest) -> bool:
        """Return True if the model returns reasoning: with OpenAI's Responses always, elsewhere if it is asked for."""
        return ask.vendor.format == "openai_responses" or ask.vendor.must_reason(ask)

    def _reply(self, ask: AcceptedRequest) -> Reply:
        if not ask.request.tools:
            return Reply(SUMMARY)
        text = ask.raw.decode()
        for turn in range(self._turn + 1, self._turns):
            if task(turn)[:40] in text:
                self._turn, self._number = turn, 0
        done = step(self._turn, self._number, self._turns)
        if done.calls:
            self.taken.add((self._turn, self._number))
        self._number += 1
        calls = [ScriptedCall(call.name, cast(Any, call.arguments)) for call in done.calls]
        return Reply(done.text, calls, reasoning=THOUGHT if self._reasons(ask) else "")


# ── one run ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def run(framework: str, variant: str, turns: int, python: str) -> Figures:
    """Run a variant of a framework in its own process, against a stand-in of its own."""
    script = Script(turns)
    fakes = FakeVendors(script, window=None if variant.startswith(UNLIMITED) else WINDOW)
    fakes.desk.tally = PrefixCacheMeter()
    with TemporaryDirectory() as folder, fakes:
        assignment = Assignment(variant, fakes.url(), KEY, turns, WINDOW, folder)
        said = _process(framework, python, json.dumps(assignment._asdict()))
    return _figures(framework, variant, turns, script, fakes.records, cast(list[str], json.loads(said)["failures"]))


def _process(framework: str, python: str, *arguments: str) -> str:
    command = [python, str(FOLDER / f"{framework}_agent.py"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT, cwd=FOLDER)
    if done.returncode:
        sys.exit(f"{framework}_agent.py {' '.join(arguments)} failed:\n{done.stderr[-4000:]}")
    return done.stdout.strip().splitlines()[-1]


def _figures(
    framework: str, variant: str, turns: int, script: Script, records: Sequence[RequestRecord], failures: list[str]
) -> Figures:
    input = cached = output = orphans = lost = 0
    dollars = 0.0
    turn = 0
    for record in records:
        body = json.loads(record.raw)
        text = record.raw.decode()
        orphans += bool(_orphans(body))
        if body.get("tools"):
            turn = max([number for number in range(turns) if task(number)[:40] in text], default=turn)
            lost += task(turn)[:40] not in text
        if record.tokens is None:
            continue
        used = record.tokens
        input, cached, output = input + used.input, cached + used.read, output + used.output
        usage = cc.Usage(input=used.input, output=used.output, cache_read=used.read, cache_write=used.written)
        dollars += cost(cc.models.model(record.model), usage) or 0.0
    refused = [record for record in records if record.refused]
    return Figures(
        framework=framework,
        variant=variant,
        turns=turns,
        requests=len(records),
        refused=len(refused),
        orphans=orphans,
        task_lost=lost,
        steps=len(script.taken),
        input=input,
        cached=cached,
        output=output,
        dollars=dollars,
        errors=(*dict.fromkeys(record.refused for record in refused), *failures),
    )


def _orphans(body: dict[str, Any]) -> set[str]:
    """Return the ids that only a call or only a result has."""
    calls, results = set[str](), set[str]()
    for kind, name in _call_ids(body):
        (calls if kind == "call" else results).add(name)
    return calls ^ results


def _call_ids(body: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Return the ids of calls and results of a request in any of the formats that frameworks send."""
    yield from list_gemini_calls(body.get("contents") or ())
    listed = body.get("input", body.get("messages"))
    for item in cast(list[dict[str, Any]], listed if isinstance(listed, list) else []):
        match item.get("type"):
            case "function_call":
                yield "call", item["call_id"]
            case "function_call_output":
                yield "result", item["call_id"]
            case _:
                for call in item.get("tool_calls") or ():
                    yield "call", call["id"]
                if item.get("role") == "tool":
                    yield "result", item["tool_call_id"]
        content: Any = item.get("content")
        for block in cast(list[dict[str, Any]], content if isinstance(content, list) else []):
            if block.get("type") == "tool_use":
                yield "call", block["id"]
            elif block.get("type") == "tool_result":
                yield "result", block["tool_use_id"]


# ── what is shown ─────────────────────────────────────────────────────────────────────────────────────────────────────


def table(turns: int, rows: Sequence[Figures]) -> Table:
    title = f"{STEPS} tool steps in {turns} turn{'s' * (turns > 1)}, window {WINDOW:,}"
    found = Table(title=title, title_justify="left")
    found.add_column("framework", no_wrap=True)
    found.add_column("variant", no_wrap=True)
    for column in ("steps", "requests", "refused", "orphans", "task lost", "input tokens", "cached", "bill"):
        found.add_column(column, justify="right", no_wrap=True)
    for row in rows:
        bill = f"${row.dollars:.3f}"
        figures = (row.steps, row.requests, row.refused, row.orphans, row.task_lost)
        found.add_row(
            row.framework,
            row.variant,
            *(f"{each:,}" for each in figures),
            f"{row.input:,}",
            f"{row.cached_share:.1%}",
            bill if row.is_complete else f"({bill})",
        )
    return found


def frameworks() -> list[str]:
    return sorted(path.stem.removesuffix("_agent") for path in FOLDER.glob("*_agent.py"))


def interpreter(framework: str, given: dict[str, str]) -> str | None:
    """Return the Python of a framework's environment; None if there is none."""
    if framework in given:
        return given[framework]
    if framework == "contextc":
        return sys.executable
    made = ROOT / ".cache" / "frameworks" / framework / "bin" / "python"
    return str(made) if made.exists() else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="frameworks; all by default")
    parser.add_argument("--turns", default="1,5", help="numbers of turns, separated by commas")
    parser.add_argument("--python", action="append", default=[], metavar="NAME=PATH")
    parser.add_argument("--variant", action="append", default=[], help="variants; all by default")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    console = Console(width=WIDTH)
    given = dict(cast(tuple[str, str], tuple(each.split("=", 1))) for each in options.python)
    found: list[Figures] = []
    for turns in [int(each) for each in options.turns.split(",")]:
        rows: list[Figures] = []
        for name in options.names or frameworks():
            python = interpreter(name, given)
            if python is None:
                console.print(f"{name}: not installed. Make .cache/frameworks/{name}, or pass --python {name}=PATH.")
                continue
            variants = cast(list[str], json.loads(_process(name, python)))
            rows += [run(name, each, turns, python) for each in variants if each in (options.variant or variants)]
        console.print(table(turns, rows))
        for row in rows:
            for error in row.errors:
                console.print(f"  {row.framework}, {row.variant}: {error[:300]}", highlight=False, soft_wrap=True)
        found += rows
    if options.json:
        options.json.write_text(json.dumps(to_builtins(found), indent=2) + "\n")


if __name__ == "__main__":
    main()
