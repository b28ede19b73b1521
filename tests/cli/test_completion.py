"""`contextc completion`: what a shell completes, and that it is asked in the right way."""

import subprocess
import sys
from pathlib import Path

import pytest

import contextc as cc
from contextc.cli.completion import complete
from tests.cli.conftest import Run


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("expl", ["explain"]),
        ("--v", ["--version"]),
        ("rule ANT01", [f"ANT01{digit}" for digit in range(10)]),
        ("lint --form", ["--format"]),
        ("lint --format openai_r", ["openai_responses"]),
        ("chat --tools n", ["none"]),
        ("serve --no-o", ["--no-open"]),
        ("completion z", ["zsh"]),
        ("completion zsh b", []),
        ("proxy --until", []),
        ("watch -- claude --r", []),
        ("nothing --r", []),
        ("serve --port 8", []),
    ],
)
def test_words_are_completed(line: str, expected: list[str]) -> None:
    assert complete(line.split(" ")) == expected


@pytest.fixture
def filled(tmp_path: Path) -> str:
    address = f"sqlite:///{tmp_path}/own.db"
    with cc.open_store(address) as store:
        for number, name in enumerate(("review", "release", "ready $(touch x)", "re`id`", "ré", "a:b")):
            store.append(name, cc.user("hi", time=1_700_000_000_000 + number * 60_000))
    return address


def test_conversations_are_offered_unless_a_shell_would_read_more_in_their_names(filled: str) -> None:
    assert sorted(complete(["explain", "--store", filled, "re"])) == ["release", "review"]
    assert sorted(complete(["findings", "--store", filled, "review", "rel"])) == ["release"]
    assert complete(["fork", "--store", filled, "review", "re"]) == []


def test_a_store_that_is_missing_gives_nothing_and_is_not_created(run: Run, tmp_path: Path) -> None:
    shown = run("completion", "bash", "--line", f"contextc explain --store sqlite:///{tmp_path}/none.db r")
    assert (shown.returncode, shown.stdout, shown.stderr) == (0, "", "")
    assert not (tmp_path / "none.db").exists()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("contextc expl", "explain"),
        ("contextc explain --store STORE rel", "release"),
        ("contextc explain --store STORE a:", "b"),
    ],
)
def test_bash_completes(filled: str, tmp_path: Path, run: Run, line: str, expected: str) -> None:
    """A colon ends a word in bash: what is inserted is what follows it."""
    script = run("completion", "bash").stdout
    command = f'contextc() {{ "{sys.executable}" -m contextc "$@"; }}\n{script}\n'
    command += f'COMP_LINE="{line.replace("STORE", filled)}"; COMP_POINT=${{#COMP_LINE}}\n'
    command += '_contextc; printf "%s\\n" "${COMPREPLY[@]}"'
    shown = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert (shown.stdout, shown.stderr) == (f"{expected}\n", "")
