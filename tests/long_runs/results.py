"""Stored results of the proofs, and the page generated from them."""

from pathlib import Path

import msgspec

from tests.long_runs import Counts, Proof, proof, proof_names

ROOT = Path(__file__).parent.parent.parent
FILE = ROOT / "tests" / "long_runs" / "figures.json"
PAGE = ROOT / "docs" / "long-runs.md"
HEAD = """# Long runs

What `make prove` tried, and how much of it. A run stops at the first failure, so every figure here counts passed
cases. This page is generated from the figures (`tests/long_runs/figures.json`). Each figure has the commit on which it
was measured.

## What `make prove` repeats of `make test`

`make prove` first checks the types of all files, and runs the same tests with `CONTEXTC_THOROUGH=1`:

| | `make test` | `make prove` |
| --- | --- | --- |
| types | `src` and `examples` | also `tests` and `benchmarks` |
| random cases per property | 15, always the same | 200, others each time |
| random operations, faults and kills | the first number of `often(quick, thorough)` | the second number |
| lists of cases in `some(cases, count)` | about `count` of them | all |
| kinds of store of a test that tries all | all in `tests/store`; else one, every second time PostgreSQL | all |
| back-ends of a turn | memory; SQLite and PostgreSQL where storing or locks matter | also SQLite everywhere |
| tests with a real Claude Code or Codex that are the same for both | one of the two | both |
| kill -9 while a real program answers | before the answer is stored | also earlier, in a tool, at random |
| sizes of the page, themes, languages of code blocks | one, or a few | all |
| tests marked `thorough` | none | all |
| optional packages | the versions of `requirements.lock` | also the oldest and newest (`make package-versions`) |
| the wheel | built and compared | also installed in new environments (`make install-trial`) |
| agent frameworks | none | the newest release of each, and the types of its adapter (`make frameworks`) |
"""


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """What was counted of one subject, when, and on which commit."""

    counts: dict[str, int]
    day: str
    commit: str


RunResults = dict[str, dict[str, Figures]]
"""Figures by proof and subject."""


def load() -> RunResults:
    return msgspec.json.decode(FILE.read_bytes(), type=RunResults) if FILE.exists() else {}


def save(results: RunResults) -> None:
    ordered = {
        name: {subject: results[name][subject] for subject in proof(name).subjects() if subject in results[name]}
        for name in proof_names()
        if name in results
    }
    FILE.write_bytes(msgspec.json.format(msgspec.json.encode(ordered), indent=2) + b"\n")
    PAGE.write_text(page(ordered), encoding="utf-8")


def added(results: RunResults, name: str, counts: Counts, *, day: str, commit: str) -> RunResults:
    """The book with the figures of one proof."""
    found = {subject: Figures(counts=dict(each), day=day, commit=commit) for subject, each in counts.items()}
    return {**results, name: {**results.get(name, {}), **found}}


def page(results: RunResults) -> str:
    return "\n".join([HEAD, *(section(proof(name), results[name]) for name in proof_names() if name in results)])


def section(of: Proof, figures: dict[str, Figures]) -> str:
    columns = list(dict.fromkeys(column for each in figures.values() for column in each.counts))
    rows = [
        [subject, *(f"{each.counts.get(column, 0):,}" for column in columns), each.day, each.commit]
        for subject, each in figures.items()
    ]
    return "\n".join(
        [
            f"## {of.TITLE}",
            "",
            of.ABOUT,
            "",
            _row(["", *columns, "on", "commit"]),
            _row(["---", *["---:"] * len(columns), "---", "---"]),
            *map(_row, rows),
            "",
        ]
    )


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |".replace("|  |", "| |")
