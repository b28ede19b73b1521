"""Runs the benchmarks one after the other, and writes their figures as a page with charts: `docs/benchmarks.md`.

The page names the machine, the date, the commit and the versions of the peers. A benchmark that fails keeps its place,
with its error.

    python benchmarks/bench_page.py [--only compile,turn] [--quick] [--peers PYTHON] [--output FILE]
"""

import argparse
import ast
import json
import os
import platform
import re
import shlex
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

FOLDER = Path(__file__).parent
ROOT = FOLDER.parent
RECORDER = FOLDER / "record_tables.py"
UNITS = {"µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "kB": 1e3, "MB": 1e6, "GB": 1e9, "%": 0.01}
NUMBER = re.compile(r"^[$x]?\s*(-?[\d,]+(?:\.\d+)?)\s*(µs|ms|s|min|kB|MB|GB|%)?(?=$|[\s(/])")
UNIT = re.compile(r"^\$|(?:µs|ms|\bs|min|kB|MB|GB|%)$")
PEER = re.compile(r"^([a-z][\w.-]*)(?:\[[^\]]*\])?==", re.M)
MAX_BARS = 24
VERSIONS = """
import sys
from importlib.metadata import PackageNotFoundError, version
for name in sys.argv[1:]:
    try:
        print(name, version(name))
    except PackageNotFoundError:
        pass
"""
STYLE = """<style>
text {font-family: sans-serif; fill: #333} .ours {fill: #0f766e} .others {fill: #94a3b8}
@media (prefers-color-scheme: dark) {text {fill: #ddd}}
</style>"""
BAR, LABELS, WIDTH = 18, 300, 760


class Benchmark(NamedTuple):
    """A program, its arguments, and those of a quick run. With `peers` it runs in their environment."""

    name: str
    arguments: str = ""
    quick: str = ""
    peers: bool = False


BENCHMARKS = (
    Benchmark("import", peers=True),
    Benchmark("store", quick="--quick", peers=True),
    Benchmark("convert", quick="--quick", peers=True),
    Benchmark("compile", quick="--quick", peers=True),
    Benchmark("cache", peers=True),
    Benchmark("turn", peers=True),
    Benchmark("changing_tools"),
    Benchmark("mcp_tools"),
    Benchmark("cache_day"),
    Benchmark("sessions"),
    Benchmark("findings"),
    Benchmark("observe"),
    Benchmark("serve"),
    Benchmark("fleet"),
    Benchmark("fleet_scale"),
    Benchmark("remember", "--steps 400 --windows 32 --install --each"),
    Benchmark("compaction_cases"),
)


class Result(NamedTuple):
    benchmark: Benchmark
    command: str
    seconds: float
    tables: list[dict[str, Any]]
    error: str


def run(benchmark: Benchmark, interpreter: str, *, quick: bool) -> Result:
    """Run a benchmark; its output is shown as it comes."""
    program = f"benchmarks/{benchmark.name}.py"
    arguments = shlex.split(benchmark.quick if quick and benchmark.quick else benchmark.arguments)
    with TemporaryDirectory() as folder:
        output = Path(folder, "tables.jsonl")
        output.touch()
        began = time.monotonic()
        code = subprocess.run(
            [interpreter, str(RECORDER), str(output), program, *arguments], cwd=ROOT, check=False
        ).returncode
        seconds = time.monotonic() - began
        tables = [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()]
    error = f"It ended with exit code {code}." if code else "" if tables else "It printed no table."
    return Result(benchmark, shlex.join(["python", program, *arguments]), seconds, tables, error)


# ── the page ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def make_page(results: Sequence[Result], facts: dict[str, str], pictures: Path, link: str) -> str:
    """Return the page, and write its charts to a folder, to which `link` leads from the page."""
    lines = [
        "# Benchmarks",
        "",
        "`make bench` measures contextc beside other libraries, and writes this page. Figures of one table come from",
        "one run on one machine. Compare ratios: times of another machine differ.",
        "",
        "| | |",
        "|---|---|",
        *(f"| {name} | {value} |" for name, value in facts.items()),
        "",
    ]
    for result in results:
        name = result.benchmark.name
        lines += [f"## {name}", "", describe(FOLDER / f"{name}.py"), ""]
        lines += [f"`{result.command}`, {result.seconds:,.0f} s.{' ' + result.error if result.error else ''}", ""]
        for number, table in enumerate(result.tables, 1):
            chart = make_chart(table)
            if chart:
                pictures.mkdir(parents=True, exist_ok=True)
                (pictures / f"{name}-{number}.svg").write_text(chart, encoding="utf-8")
                lines += [f"![{table['title'] or name}]({link}/{name}-{number}.svg)", ""]
            lines += [*markdown_table(table), ""]
    return "\n".join(lines)


def describe(program: Path) -> str:
    """Return the first paragraph of a program's docstring."""
    text = ast.get_docstring(ast.parse(program.read_text(encoding="utf-8"))) or ""
    return " ".join(text.split("\n\n")[0].split())


def markdown_table(table: dict[str, Any]) -> Iterator[str]:
    if table["title"]:
        yield f"**{_cell(table['title'])}**"
        yield ""
    yield f"| {' | '.join(map(_cell, table['columns']))} |"
    yield "|" + "---|" * len(table["columns"])
    for row in table["rows"]:
        yield f"| {' | '.join(map(_cell, row))} |"
    if table["caption"]:
        yield ""
        yield _cell(table["caption"])


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def make_chart(table: dict[str, Any]) -> str:
    """Return bars of the first column of figures with a unit, or else of figures, as SVG; "" for fewer than two."""
    figures = [each for each in range(len(table["columns"])) if _figures(table, each)]
    if not figures:
        return ""
    column = next((each for each in figures if any(UNIT.search(row[each]) for row in table["rows"])), figures[0])
    bars = list(_bars(table, column))[:MAX_BARS]
    most = max(value for _, value, _ in bars)
    if len(bars) < 2 or most <= 0:
        return ""
    height = (len(bars) + 2) * BAR
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-size="12">',
        STYLE,
        f'<text x="0" y="{BAR - 4}" font-weight="bold">{escape(table["columns"][column])}</text>',
    ]
    for number, (label, value, text) in enumerate(bars, 1):
        y, length = number * BAR + 4, max(value, 0) / most * (WIDTH - LABELS - 120)
        kind = "ours" if "contextc" in label else "others"
        parts.append(f'<text x="{LABELS - 8}" y="{y + 11}" text-anchor="end">{escape(label[:46])}</text>')
        parts.append(f'<rect class="{kind}" x="{LABELS}" y="{y}" width="{max(length, 1):.1f}" height="{BAR - 4}"/>')
        parts.append(f'<text x="{LABELS + length + 6:.1f}" y="{y + 11}">{escape(text)}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _figures(table: dict[str, Any], column: int) -> bool:
    """Return True if most cells of a column are figures, and it is not the first."""
    cells = [row[column] for row in table["rows"] if row[column]]
    values = [each for each in cells if parse(each) is not None]
    return column > 0 and len(values) > 1 and 2 * len(values) > len(cells)


def _bars(table: dict[str, Any], column: int) -> Iterator[tuple[str, float, str]]:
    """Yield the label, the value and the text of each figure; only of the most frequent kind: times, or ratios."""
    labels = [each for each in range(column) if each == 0 or not _figures(table, each)]
    kinds = Counter(kind for row in table["rows"] if (kind := _kind(row[column])) is not None)
    held = ["" for _ in labels]
    for row in table["rows"]:
        held = [row[labels[0]] or held[0], *(row[each] for each in labels[1:])]  # some sections begin with their name
        value = parse(row[column])
        if value is not None and _kind(row[column]) == kinds.most_common(1)[0][0]:
            yield " ".join(filter(None, held)), value, row[column]


def _kind(text: str) -> str | None:
    """Return what a figure counts: seconds, bytes, a share, dollars, or "" for a number; None for another text."""
    found = NUMBER.match(text.strip())
    if found is None:
        return None
    unit = found[2] or ""
    return (
        "$" if text.startswith("$") else "bytes" if unit.endswith("B") else "%" if unit == "%" else "s" if unit else ""
    )


def parse(text: str) -> float | None:
    """Return a figure with its unit as a number; None for another text."""
    found = NUMBER.match(text.strip())
    return float(found[1].replace(",", "")) * UNITS.get(found[2] or "", 1.0) if found else None


def list_facts(peers: str) -> dict[str, str]:
    """Return what the figures depend on: the machine, the versions, the day."""
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--tags"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.strip()
    names = PEER.findall((FOLDER / "requirements.txt").read_text(encoding="utf-8"))
    found = subprocess.run([peers, "-c", VERSIONS, *names], capture_output=True, text=True, check=False).stdout
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()} {platform.release()}",
        "Python": platform.python_version(),
        "contextc": commit or "not a checkout",
        "peers": ", ".join(found.splitlines()) or "not installed",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--only", default="", help="names of benchmarks, separated by commas or spaces")
    parser.add_argument("--quick", action="store_true", help="smaller runs, where a benchmark has them")
    parser.add_argument("--peers", default=sys.executable, help="the Python of the environment with the peers")
    parser.add_argument("--output", type=Path, default=ROOT / "docs" / "benchmarks.md")
    options = parser.parse_args()
    only = set(options.only.replace(",", " ").split())
    if unknown := only - {each.name for each in BENCHMARKS}:
        parser.error(f"unknown: {', '.join(sorted(unknown))}. There are {', '.join(each.name for each in BENCHMARKS)}")
    results: list[Result] = []
    for each in BENCHMARKS:
        if not only or each.name in only:
            results.append(run(each, options.peers if each.peers else sys.executable, quick=options.quick))
            pictures = options.output.parent / "pictures" / "benchmarks"
            options.output.parent.mkdir(parents=True, exist_ok=True)
            page = make_page(results, list_facts(options.peers), pictures, "pictures/benchmarks")
            options.output.write_text(page, encoding="utf-8")  # after each one: a run takes an hour
    sys.exit(any(each.error for each in results))


if __name__ == "__main__":
    main()
