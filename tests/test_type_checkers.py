"""Type checkers accept the right uses of an agent and refuse the wrong ones, as docs/reference/type-checkers.md says.

Each row of the table is one statement. It follows the definitions of the block above it, in a function of its own.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.test_docs import ROOT

PAGE = re.compile(r"^```python\n(?P<definitions>.*?)^```\n(?P<tables>.*)", re.M | re.S)
ROW = re.compile(r"^\| `(.+)` \| (\w+) \| (\w+) \| (\w+) \|$", re.M)
CHECKERS = ("basedpyright", "mypy", "pyrefly")
"""The columns of the table."""
SOURCE = str(ROOT / "src")


def run(checker: str, folder: Path, *arguments: str | Path) -> str:
    """Run a checker in a folder, and return its output. The exit code of all is 1 if they found errors."""
    done = subprocess.run(
        [Path(sys.executable).with_name(checker), *arguments],
        cwd=folder,
        env={**os.environ, "MYPYPATH": SOURCE},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout


def basedpyright_errors(folder: Path) -> Iterator[tuple[int, str]]:
    settings = {
        "include": ["cases.py"],
        "extraPaths": [SOURCE],
        "typeCheckingMode": "strict",
        "pythonVersion": "3.11",
        **dict.fromkeys(("reportUnusedExpression", "reportUnusedImport"), False),  # a case uses nothing
    }
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    output = run("basedpyright", folder, "--outputjson", "--pythonpath", sys.executable)
    for found in json.loads(output)["generalDiagnostics"]:
        if found["severity"] == "error":
            yield found["range"]["start"]["line"] + 1, found["message"]


def mypy_errors(folder: Path) -> Iterator[tuple[int, str]]:
    quiet = ("--follow-imports=silent", "--cache-dir", folder / "cache", "--python-executable", sys.executable)
    output = run("mypy", folder, "--strict", "--output", "json", *quiet, "cases.py")
    for found in map(json.loads, output.splitlines()):
        if found["severity"] == "error":
            yield found["line"], found["message"]


def pyrefly_errors(folder: Path) -> Iterator[tuple[int, str]]:
    (folder / "pyrefly.toml").write_text(f'project-includes = ["cases.py"]\nsearch-path = ["{SOURCE}"]\n')
    output = run("pyrefly", folder, "check", "--output-format", "json", "--python-interpreter-path", sys.executable)
    for found in json.loads(output)["errors"]:
        if found["severity"] == "error":
            yield found["line"], found["description"]


@pytest.mark.parametrize(
    ("checker", "find_errors"),
    [
        ("basedpyright", basedpyright_errors),
        pytest.param("mypy", mypy_errors, marks=pytest.mark.thorough),  # three times the CPU time of the others
        ("pyrefly", pyrefly_errors),
    ],
)
def test_a_type_checker_accepts_and_refuses_what_the_table_says(
    checker: str, find_errors: Callable[[Path], Iterator[tuple[int, str]]], tmp_path: Path
) -> None:
    """Wrong annotations would cost users either errors that are not theirs, or the errors that they rely on."""
    page = PAGE.search((ROOT / "docs" / "reference" / "type-checkers.md").read_text())
    assert page is not None
    rows = ROW.findall(page["tables"])
    lines, case_of = page["definitions"].splitlines(), dict[int, str]()
    for number, (case, *_) in enumerate(rows):
        lines += ["", "", f"def case_{number}() -> None:", f"    {case}".replace(r"\|", "|")]
        case_of[len(lines)] = case
    (tmp_path / "cases.py").write_text("\n".join([*lines, ""]))
    errors: dict[int, list[str]] = {}
    for line, text in find_errors(tmp_path):
        errors.setdefault(line, []).append(text)
    assert {line: texts for line, texts in errors.items() if line not in case_of} == {}
    shown = {case: verdicts[CHECKERS.index(checker)] for case, *verdicts in rows}
    assert {case: "refused" if line in errors else "accepted" for line, case in case_of.items()} == shown, errors
