"""`contextc import` of sessions of other programs: written transcripts, and those of the real programs."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from codex_cli_bin import bundled_codex_path  # pyright: ignore[reportMissingTypeStubs]

import contextc as cc
from tests.cli.conftest import Run
from tests.fake_vendors import KEY, FakeVendors
from tests.fake_vendors.scripts import Scripted
from tests.transcript_files import CLAUDE_ID, GARDEN, claude_file, claude_lines, codex_file, codex_lines, written

QUIET = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_TELEMETRY": "1", "DISABLE_AUTOUPDATER": "1"}


@pytest.fixture
def homes(tmp_path: Path) -> dict[str, str]:
    """Where both programs keep their files, for commands."""
    return {
        "CLAUDE_CONFIG_DIR": str(tmp_path / "claude"),
        "CODEX_HOME": str(tmp_path / "codex"),
        "CONTEXTC_STORE": f"sqlite:///{tmp_path}/chat.db",
    }


def texts_of(tmp_path: Path, conversation: str) -> list[str]:
    with cc.open_store(tmp_path / "chat.db") as store:
        return [f"{message.role}: {message.text}" for message in store.load(conversation)]


def test_sessions_are_listed_and_one_is_taken(run: Run, homes: dict[str, str], tmp_path: Path) -> None:
    """Guarantee 3.8, on the command line: those of this directory, in a table; then one by its listed id."""
    here = str(tmp_path)
    written(claude_file(tmp_path / "claude", here), claude_lines(GARDEN, here), time=1_800_000_000)
    shown = run("import", "--from", "claude-code", **homes)
    assert shown.stdout.splitlines() == [
        "session        when              messages  title",
        "3d7dca91       2027-01-15 08:00         4  What grows here?",
    ]
    (listed,) = json.loads(run("import", "--from", "claude-code", "--json", **homes).stdout)
    assert (listed["id"], listed["messages"], listed["directory"]) == (CLAUDE_ID, 4, here)
    taken = run("import", "--from", "claude-code", "3d7dca91", **homes)
    assert (taken.returncode, taken.stderr) == (0, "")
    assert taken.stdout.startswith("imported claude-code-3d7dca91: 4 messages, tip 00000004")
    again = run("import", "--from", "claude-code", "--last", **homes)
    assert again.stderr == "0 messages new, the others already exist\n"


def test_sessions_of_other_directories_are_asked_for(run: Run, homes: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "garden").mkdir()
    garden = str(tmp_path / "garden")
    written(codex_file(tmp_path / "codex"), codex_lines(GARDEN, garden), time=1_800_000_000)
    none = run("import", "--from", "codex", **homes)
    assert (none.returncode, none.stdout) == (0, "")
    assert none.stderr.startswith("No session of codex found in ")
    row = "01a1dfb0-8cf9  2027-01-15 08:00         4  What grows here?"
    assert run("import", "--from", "codex", "--directory", "garden", **homes).stdout.splitlines()[1:] == [row]
    everywhere = run("import", "--from", "codex", "--all", **homes).stdout.splitlines()
    assert [line.strip() for line in everywhere[1:]] == [row, garden]
    assert run("import", "--from", "codex", "--last", **homes).returncode == 2
    assert run("import", "--from", "codex", "--last", "--all", "--as", "bed", **homes).returncode == 0
    assert texts_of(tmp_path, "bed")[-1] == "assistant: Thyme does."


def test_a_transcript_is_imported_from_a_file_or_a_pipe(run: Run, homes: dict[str, str], tmp_path: Path) -> None:
    """Known by what is in it; naming the format changes nothing."""
    path = written(tmp_path / "any name.jsonl", claude_lines(GARDEN, "/somewhere"))
    assert run("import", path.name, **homes).stdout.startswith("imported claude-code-3d7dca91: 4 messages")
    piped = run("import", "-", "--as", "piped", "--format", "claude_code", text=path.read_text(), **homes)
    assert piped.stdout.startswith("imported piped: 4 messages")
    assert texts_of(tmp_path, "piped") == texts_of(tmp_path, "claude-code-3d7dca91")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Nothing to import is named. Pass a file, or --from claude-code, or --from codex."),
        (["--from", "codex", "0", "--last"], "A session and --last cannot be used together. Pass one of the two."),
    ],
)
def test_what_cannot_be_done_is_reported(run: Run, homes: dict[str, str], arguments: list[str], message: str) -> None:
    """Guarantee 15.1."""
    refused = run("import", *arguments, **homes)
    assert refused.returncode == 2
    assert message in refused.stderr


def program(command: list[str], directory: Path, **environment: str) -> None:
    """Run the real program in a home of its own."""
    clean = {"PATH": os.environ["PATH"], "HOME": str(directory.parent), **QUIET}
    ended = subprocess.run(
        command,
        cwd=directory,
        env=clean | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_a_session_of_the_real_claude_code(run: Run, homes: dict[str, str], tmp_path: Path) -> None:
    """Guarantee 3.8: where it keeps its files, and what it writes; a second turn adds two messages."""
    import claude_agent_sdk

    claude = Path(claude_agent_sdk.__file__).parent / "_bundled" / "claude"
    work = tmp_path / "söme där.x"
    work.mkdir()
    with FakeVendors(Scripted(["Thyme does.", "Moss."]), strict=False) as standin:
        address = {"ANTHROPIC_BASE_URL": standin.url("anthropic"), "ANTHROPIC_API_KEY": KEY}
        ask = [str(claude), "-p", "--tools", "", "--system-prompt", "Be brief.", "--model", "claude-opus-5-5"]
        for more in (["What grows here?"], ["--continue", "And in winter?"]):
            program([*ask, *more], work, **address, **homes)
            taken = run("import", "--from", "claude-code", "--last", "--directory", str(work), "--as", "bed", **homes)
            assert taken.returncode == 0, taken.stderr
    assert texts_of(tmp_path, "bed") == [
        "user: What grows here?",
        "assistant: Thyme does.",
        "user: And in winter?",
        "assistant: Moss.",
    ]


@pytest.mark.thorough
def test_a_session_of_the_real_codex(run: Run, homes: dict[str, str], tmp_path: Path) -> None:
    """Guarantee 3.8."""
    work = tmp_path / "söme där.x"
    work.mkdir()
    (tmp_path / "codex").mkdir()
    with FakeVendors(Scripted(["Thyme does.", "Moss."]), strict=False) as standin:
        (tmp_path / "codex" / "config.toml").write_text(
            'model = "gpt-6.1-terra"\nmodel_provider = "local"\n[features]\nplugins = false\n'
            '[model_providers.local]\nname = "local"\nwire_api = "responses"\nenv_key = "LOCAL_KEY"\n'
            f'base_url = "{standin.url("openai_responses")}"\n'
        )
        ask = [str(bundled_codex_path()), "exec"]
        for more in (["What grows here?"], ["resume", "--last", "And in winter?"]):
            program([*ask, "--skip-git-repo-check", *more], work, LOCAL_KEY=KEY, **homes)
            taken = run("import", "--from", "codex", "--last", "--directory", str(work), "--as", "bed", **homes)
            assert taken.returncode == 0, taken.stderr
    assert texts_of(tmp_path, "bed") == [
        "user: What grows here?",
        "assistant: Thyme does.",
        "user: And in winter?",
        "assistant: Moss.",
    ]
