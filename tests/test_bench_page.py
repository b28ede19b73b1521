"""The page that `make bench` writes: tables and charts of what the benchmarks print."""

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[1]
BENCHMARKS = ROOT / "benchmarks"
TABLE: dict[str, Any] = {
    "title": "One <step>",
    "caption": "Idle.",
    "columns": ["messages", "library", "number", "time"],
    "rows": [
        ["100", "contextc | ours", "1", "1.5 ms"],
        ["", "<peer>", "12", "30 ms"],
        ["", "none", "", "not installed"],
    ],
}


@pytest.fixture
def bench_page(monkeypatch: pytest.MonkeyPatch) -> Any:  # the benchmarks are programs, and no package
    monkeypatch.setattr("sys.path", [str(BENCHMARKS), *sys.path])
    return import_module("bench_page")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1.5 ms", 0.0015), ("850 µs", 0.00085), ("12,345", 12345), ("$0.151", 0.151), ("32%", 0.32),
        ("0.81 (0.84)", 0.81), ("3 of 29", 3), ("not installed", None), ("", None), ("-", None), ("2026-11-19", None),
    ],
)  # fmt: skip
def test_a_cell_is_a_figure_or_a_text(bench_page: Any, text: str, value: float | None) -> None:
    found = bench_page.parse(text)
    assert found == (None if value is None else pytest.approx(value))


def test_a_chart_has_a_bar_for_each_figure_with_a_unit(bench_page: Any) -> None:
    chart = ElementTree.fromstring(bench_page.make_chart(TABLE))
    texts = [each.text for each in chart if each.tag.endswith("text")]
    assert texts == ["time", "100 contextc | ours", "1.5 ms", "100 <peer>", "30 ms"]
    bars = [(each.get("class"), float(each.get("width", "0"))) for each in chart if each.tag.endswith("rect")]
    assert [kind for kind, _ in bars] == ["ours", "others"]
    assert bars[0][1] == pytest.approx(bars[1][1] * 1.5 / 30, rel=0.01)
    ratio = {**TABLE, "rows": [*TABLE["rows"], ["", "other", "2", "0.9"]]}
    assert bench_page.make_chart(ratio) == bench_page.make_chart(TABLE), "a ratio is no bar beside times"
    assert bench_page.make_chart({**TABLE, "rows": TABLE["rows"][:1]}) == ""


def test_a_page_has_every_table_and_says_what_failed(bench_page: Any, tmp_path: Path) -> None:
    kind = bench_page.Benchmark
    results = [
        bench_page.Result(kind("turn"), "python benchmarks/turn.py", 3.2, [TABLE], ""),
        bench_page.Result(kind("serve"), "python benchmarks/serve.py", 1.0, [], "It ended with exit code 1."),
    ]
    page = bench_page.make_page(results, {"date": "today"}, tmp_path / "charts", "charts")
    assert "| 100 | contextc \\| ours | 1 | 1.5 ms |" in page
    assert "**One &lt;step>**" in page
    assert "![One <step>](charts/turn-1.svg)" in page
    assert (tmp_path / "charts" / "turn-1.svg").is_file()
    assert "`python benchmarks/serve.py`, 1 s. It ended with exit code 1." in page


def test_the_tables_of_a_program_are_recorded(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import sys\nfrom rich.console import Console\nfrom rich.table import Table\n"
        "table = Table('a', 'b', title='[bold]T[/]')\ntable.add_row(sys.argv[1], '2')\nConsole().print(table, 'text')\n"
    )
    output = tmp_path / "tables.jsonl"
    recorder = BENCHMARKS / "record_tables.py"
    ran = subprocess.run([sys.executable, recorder, output, program, "one"], capture_output=True, text=True, check=True)
    assert "one" in ran.stdout
    (line,) = output.read_text().splitlines()
    assert json.loads(line) == {"title": "T", "caption": "", "columns": ["a", "b"], "rows": [["one", "2"]]}


def test_every_listed_benchmark_exists_and_takes_its_arguments(bench_page: Any) -> None:
    for each in bench_page.BENCHMARKS:
        program = BENCHMARKS / f"{each.name}.py"
        text = program.read_text(encoding="utf-8")
        assert bench_page.describe(program), each.name
        for word in f"{each.arguments} {each.quick}".split():
            assert not word.startswith("--") or f'"{word}"' in text, (each.name, word)
