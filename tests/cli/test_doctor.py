"""`contextc doctor`, run as a person runs it: what it would do, that it asks first, and that it does just that."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

import contextc as cc
from tests.cli.conftest import Run


@pytest.fixture
def ill(tmp_path: Path) -> str:
    """An open call, a stray result and a broken message, each in a conversation of its own."""
    address = f"sqlite:///{tmp_path}/chat.db"
    call = cc.ToolCall(id="c1", name="read_file", arguments={})
    with cc.open_store(address) as store:
        store.extend("open", [cc.user("hi"), cc.assistant(tool_calls=[call])])
        store.extend("stray", [cc.user("hi"), cc.tool_result("c9", "f", "42"), cc.assistant("so")])
        store.extend("torn", [cc.user("m1"), cc.user("m2"), cc.user("m3")])
        branch = store.conversation("torn").branch
        store.write(lambda tx: tx.run("UPDATE message SET body = ? WHERE place = ?", b"{", (branch << 32) + 2))
    return address


def test_doctor_says_what_healing_would_do_and_changes_nothing(run: Run, ill: str, tmp_path: Path) -> None:
    """A dry run comes first, with the reason of each finding."""
    before = (tmp_path / "chat.db").read_bytes()
    shown = run("doctor", "--store", ill)
    assert shown.returncode == 1
    words = " ".join(shown.stdout.split())
    assert "Call 'c1' of 'read_file' has no result. Every request has a result made up for it." in words
    assert "would append an error result for call 'c1' of 'read_file'" in words
    assert "would begin a branch after message 1 that holds the 2 messages behind it, rechained" in words
    assert shown.stderr.endswith("Nothing was changed. --heal heals faults and open calls, --heal --notes the rest.\n")
    report = json.loads(run("doctor", "--json", "--store", ill).stdout)
    found = [(each["conversation"], each["kind"], each["code"], each["healing"]) for each in report["findings"]]
    assert found == [
        ("open", "note", "open-call", "append"),
        ("stray", "note", "stray-result", "branch"),
        ("torn", "fault", "unreadable", "branch"),
    ]
    assert (tmp_path / "chat.db").read_bytes() == before


def test_heal_heals_faults_and_open_calls_and_notes_if_told(run: Run, ill: str) -> None:
    healed = run("doctor", "--heal", "--yes", "--store", ill)
    assert healed.returncode == 0, healed.stdout + healed.stderr
    assert "healed open: Appended 1 result.\n" in healed.stdout
    assert (
        "healed torn: Branch 4, begun after message 1, holds what branch 3 held, repaired; branch 3 stays."
        in healed.stdout
    )
    left = json.loads(run("doctor", "--json", "--store", ill).stdout)["findings"]
    assert [each["code"] for each in left] == ["stray-result"]
    rest = json.loads(run("doctor", "--heal", "--notes", "--yes", "--json", "--store", ill).stdout)
    assert [(each["conversation"], each["outcome"]) for each in rest["healed"]] == [("stray", "healed")]
    again = run("doctor", "--heal", "--notes", "--yes", "--store", ill)
    assert (again.returncode, again.stdout) == (0, "no faults\nnothing to heal\n")


def test_heal_of_one_conversation_leaves_the_others(run: Run, ill: str) -> None:
    healed = run("doctor", "--heal", "-y", "-c", "open", "--store", ill)
    assert (healed.returncode, "torn" in healed.stdout) == (0, False)
    codes = [each["code"] for each in json.loads(run("doctor", "--json", "--store", ill).stdout)["findings"]]
    assert codes == ["stray-result", "unreadable"]
    assert run("doctor", "-c", "nobody", "--store", ill).returncode == 2


def test_without_a_terminal_healing_needs_a_yes(run: Run, ill: str, tmp_path: Path) -> None:
    """SPEC 15.1: nothing happens because nobody could be asked."""
    before = (tmp_path / "chat.db").read_bytes()
    for more in ([], ["--json"]):
        refused = run("doctor", "--heal", *more, "--store", ill, text="y\n")
        assert refused.returncode == 2
        assert "error: Nobody can be asked here: add --yes to heal." in refused.stderr
    assert run("doctor", "--yes", "--store", ill).returncode == 2
    assert run("doctor", "-c", "demo").returncode == 2, "there is no store where none was named"
    assert run("doctor", "--heal", "--format", "gemini", "--store", ill).returncode == 2
    assert run("doctor", "--format", "nobody", "--store", ill).returncode == 2
    assert (tmp_path / "chat.db").read_bytes() == before


@pytest.mark.parametrize(("answer", "code", "heals"), [("n", 1, False), ("y", 0, True)])
def test_at_a_terminal_the_plan_is_shown_and_asked_about(ill: str, answer: str, code: int, heals: bool) -> None:
    outside, inside = pty.openpty()
    command = [sys.executable, "-m", "contextc", "doctor", "--heal", "--store", ill]
    environment = {**os.environ, "COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"}
    with subprocess.Popen(command, stdin=inside, stdout=inside, stderr=inside, env=environment) as child:
        os.close(inside)
        shown = b""
        while b"Heal 2 conversations? [y/N]" not in shown:
            shown += os.read(outside, 4096)
        assert b"would begin a branch after message 1" in shown
        os.write(outside, answer.encode() + b"\n")
        try:
            while more := os.read(outside, 4096):
                shown += more
        except OSError:  # the other end is closed
            pass
    os.close(outside)
    assert child.returncode == code
    assert (b"nothing was changed" in shown) is not heals
    with cc.open_store(ill) as store:
        assert (len(store.load("open")) == 3) is heals


def test_a_conversation_that_cannot_be_made_a_request_is_named(run: Run, ill: str) -> None:
    shown = run("doctor", "--format", "anthropic", "--store", ill)
    assert shown.returncode == 1
    assert "torn" in shown.stdout
    assert "cannot be sent: A message of branch 3 between 1 and 3 cannot be read" in shown.stdout
    assert shown.stdout.splitlines()[-1] == "0 conversations said in full, 3 not"


def test_a_fork_of_what_was_healed_can_be_exported(run: Run, ill: str) -> None:
    """The old branch is damaged for good, and an export holds every branch; a fork leaves it behind."""
    run("doctor", "--heal", "--yes", "--store", ill)
    refused = run("export", "torn", "--store", ill)
    assert (refused.returncode, refused.stdout.count("\n")) == (2, 1)
    assert "Run `contextc doctor`" in refused.stderr
    assert run("fork", "torn", "whole", "--store", ill).returncode == 0
    lines = run("export", "whole", "--store", ill)
    assert lines.returncode == 0
    taken = run("import", "-", "--as", "copy", "--store", ill, text=lines.stdout)
    assert taken.stdout.startswith("imported copy: 3 messages")
