"""Agents of `chat` and `serve` read the AGENTS.md and the skills of their folder, and say so in a line."""

from pathlib import Path

import pytest

from tests.cli.chat_terminal import home, recorded
from tests.cli.conftest import Run
from tests.cli.test_chat import chat
from tests.executor.scripted_provider import says
from tests.forked_commands import run_contextc

READ = "instructions read from AGENTS.md, 1 skill\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project that the command runs in. It imports a file of the home folder beside it."""
    project = tmp_path / "project"
    (project / ".git").mkdir(parents=True)
    (project / "AGENTS.md").write_text("Use tabs.\n@../notes.md\n")
    (tmp_path / "notes.md").write_text("my notes \x1b[2J\n")
    (project / ".agents" / "skills" / "pdf").mkdir(parents=True)
    (project / ".agents" / "skills" / "pdf" / "SKILL.md").write_text("---\ndescription: Fills forms.\n---\n")
    return project


def account_of(folder: Path) -> str:
    found = run_contextc("explain", "demo", "--store", "sqlite:///chat.db", cwd=folder, env=home(folder))
    assert found.returncode == 0
    return found.stdout


def test_chat_reads_them_and_says_so_in_a_line(tmp_path: Path, project: Path) -> None:
    """Guarantees 8.8, 8.9, 8.10."""
    model = recorded(project / "a.jsonl", says("Hello."))
    asked = chat(project, "-m", model, "-c", "demo", "hi", HOME=str(tmp_path))
    assert (asked.returncode, asked.stdout) == (0, "Hello.\n")
    assert asked.stderr.startswith(
        READ + "not read: ../notes.md: AGENTS.md imports it, but it is outside the project and not approved\n"
        "`contextc trust` shows what is outside the project, and asks.\n"
    )
    account = account_of(project)
    assert "static fragment project instructions" in account
    assert "static fragment skills" in account


@pytest.mark.parametrize("how", ["variable", "no tools"])
def test_chat_reads_none_where_they_are_switched_off_or_it_has_no_tools(
    tmp_path: Path, project: Path, how: str
) -> None:
    model = recorded(project / "a.jsonl", says("Hello."))
    options = ["--tools", "none"] if how == "no tools" else []
    more = {"CONTEXTC_INSTRUCTION_FILES": "off"} if how == "variable" else {}
    asked = chat(project, "-m", model, "-c", "demo", *options, "hi", HOME=str(tmp_path), **more)
    assert (asked.returncode, "instructions read" in asked.stderr) == (0, False)
    assert "project instructions" not in account_of(project)


def test_a_wrong_value_of_the_setting_is_an_error(project: Path) -> None:
    model = recorded(project / "a.jsonl", says("Hello."))
    asked = chat(project, "-m", model, "hi", CONTEXTC_INSTRUCTION_FILES="maybe")
    assert asked.returncode == 2
    assert "instruction_files (CONTEXTC_INSTRUCTION_FILES) must be on or off, got 'maybe'." in asked.stderr


def test_trust_shows_what_is_imported_from_elsewhere_and_approves_it(run: Run, tmp_path: Path, project: Path) -> None:
    """Guarantee 8.9: a person sees the text, without control characters, and the approval can be revoked."""
    assert run("trust", str(project)).returncode == 2  # nobody can be asked without a terminal
    done = run("trust", "--yes", str(project))
    assert (done.returncode, done.stdout) == (0, "trusted, until the file changes\n")
    place = tmp_path / "notes.md"
    assert done.stderr.startswith(f"AGENTS.md imports {place} (14 bytes), which is outside the project. Its text:\n")
    assert "  my notes \ufffd[2J\n" in done.stderr
    model = recorded(project / "a.jsonl", says("Hello."))
    asked = chat(project, "-m", model, "hi", HOME=str(tmp_path))
    assert asked.stderr.startswith(f"instructions read from {place}, AGENTS.md, 1 skill\n")
    assert run("trust", "--forget", str(project)).stdout == "trust revoked\n"
    asked = chat(project, "-m", model, "hi", HOME=str(tmp_path))
    assert asked.stderr.startswith(READ)
