"""`contextc doctor` as a process: it previews repairs, asks for confirmation, and does only those."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

import contextc as cc
from tests.cli.conftest import Run
from tests.forked_commands import CommandProcess


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
        store.write(lambda tx: tx.run("UPDATE main.message SET body = ? WHERE place = ?", b"{", (branch << 32) + 2))
    return address


def test_doctor_reports_what_repair_would_do_and_changes_nothing(run: Run, ill: str, tmp_path: Path) -> None:
    """A dry run comes first, with the reason of each finding."""
    before = (tmp_path / "chat.db").read_bytes()
    shown = run("doctor", "--store", ill)
    assert shown.returncode == 1
    text = " ".join(shown.stdout.split())
    assert "Call 'c1' of 'read_file' has no result. Every request gets a placeholder result for it." in text
    assert "would append an error result for call 'c1' of 'read_file'" in text
    assert "would start a branch after message 1 with the 2 messages after it, rechained" in text
    assert shown.stderr.endswith(
        "Nothing was changed. --heal repairs faults and open calls, --heal --notes the rest.\n"
    )
    report = json.loads(run("doctor", "--json", "--store", ill).stdout)
    found = [(each["conversation"], each["kind"], each["code"], each["healing"]) for each in report["findings"]]
    assert found == [
        ("open", "note", "open-call", "append"),
        ("stray", "note", "stray-result", "branch"),
        ("torn", "fault", "unreadable", "branch"),
    ]
    assert (tmp_path / "chat.db").read_bytes() == before


def test_repair_repairs_faults_and_open_calls_and_notes_if_requested(run: Run, ill: str) -> None:
    result = run("doctor", "--heal", "--yes", "--store", ill)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "repaired open: Appended 1 result.\n" in result.stdout
    assert (
        "repaired torn: Branch 4, started after message 1, has the repaired messages of branch 3. Branch 3 stays."
        in result.stdout
    )
    left = json.loads(run("doctor", "--json", "--store", ill).stdout)["findings"]
    assert [each["code"] for each in left] == ["stray-result"]
    rest = json.loads(run("doctor", "--heal", "--notes", "--yes", "--json", "--store", ill).stdout)
    assert [(each["conversation"], each["outcome"]) for each in rest["healed"]] == [("stray", "healed")]
    again = run("doctor", "--heal", "--notes", "--yes", "--store", ill)
    assert (again.returncode, again.stdout) == (0, "no faults\nnothing to repair\n")


def test_repair_of_one_conversation_leaves_the_others(run: Run, ill: str) -> None:
    result = run("doctor", "--heal", "-y", "-c", "open", "--store", ill)
    assert (result.returncode, "torn" in result.stdout) == (0, False)
    codes = [each["code"] for each in json.loads(run("doctor", "--json", "--store", ill).stdout)["findings"]]
    assert codes == ["stray-result", "unreadable"]
    assert run("doctor", "-c", "nobody", "--store", ill).returncode == 2


def test_without_a_terminal_repair_needs_a_yes(run: Run, ill: str, tmp_path: Path) -> None:
    """Guarantee 15.1: nothing is changed without a confirmation."""
    before = (tmp_path / "chat.db").read_bytes()
    for more in ([], ["--json"]):
        refused = run("doctor", "--heal", *more, "--store", ill, text="y\n")
        assert refused.returncode == 2
        assert "error: --heal: no terminal to confirm it at. Add --yes." in refused.stderr
    assert run("doctor", "--yes", "--store", ill).returncode == 2
    assert run("doctor", "-c", "demo").returncode == 2, "there is no store where none was named"
    assert run("doctor", "--heal", "--format", "gemini", "--store", ill).returncode == 2
    assert run("doctor", "--format", "nobody", "--store", ill).returncode == 2
    assert (tmp_path / "chat.db").read_bytes() == before


@pytest.mark.parametrize(("answer", "code", "heals"), [("n", 1, False), ("y", 0, True)])
def test_at_a_terminal_the_plan_is_shown_and_asked_about(
    tmp_path: Path, ill: str, answer: str, code: int, heals: bool
) -> None:
    outside, inside = pty.openpty()
    command = ["doctor", "--heal", "--store", ill]
    environment = {**os.environ, "COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"}
    with CommandProcess(*command, stdin=inside, stdout=inside, stderr=inside, cwd=tmp_path, env=environment) as child:
        os.close(inside)
        shown = b""
        while b"Repair 2 conversations? [y/N]" not in shown:
            shown += os.read(outside, 4096)
        assert b"would start a branch after message 1" in shown
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
    assert "cannot be converted: Message 2 on branch 3 of 'torn' cannot be read" in shown.stdout
    assert shown.stdout.splitlines()[-1] == "0 conversations convertible without changes, 3 not"


def test_a_fork_of_what_was_repaired_can_be_exported(run: Run, ill: str) -> None:
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


LONG = "customer-4711/support/2026-11-15T09:30:12Z/escalation-to-billing"


def test_findings_come_first_fit_the_terminal_and_names_can_be_pasted(run: Run, ill: str) -> None:
    """Four findings in eighty columns: no more than six lines each, none cut, and the fault above the notes."""
    with cc.open_store(ill) as store:
        store.extend(LONG, [cc.user("hi"), cc.tool_result("c9", "f", "42")])
    shown = run("doctor", "--store", ill, COLUMNS="80").stdout.splitlines()
    assert len(shown) <= 4 * 6 + 1
    assert shown[0].startswith("fault")
    assert all(len(line) <= 80 for line in shown if LONG not in line)
    assert f"note  stray-result  {LONG}  message 2" in shown
    assert "fault  unreadable  torn  branch 3, message 2" in shown
    assert shown[-1] == "4 conversations, 10 messages: 1 fault, 3 notes"
    assert not any("system_prompt" in line for line in shown)


def test_the_configuration_follows_what_was_found(run: Run, ill: str) -> None:
    shown = run("doctor", "--verbose", "--store", ill, COLUMNS="80").stdout
    assert shown.index("unreadable") < shown.index("system_prompt") < shown.index("program")
    (prompt,) = [line for line in shown.splitlines() if "system_prompt" in line]
    assert "You are a helpful assistant." in prompt
    assert "…" in prompt
    settings = json.loads(run("doctor", "--json", "--store", ill).stdout)["settings"]
    assert settings["system_prompt"]["value"].endswith("guess at what they would tell you.")


def test_keys_of_built_in_providers_are_named_and_never_shown(run: Run) -> None:
    """Guarantee 13.3: of a key there is the name of its variable, and that it is set."""
    keys = {"OPENAI_API_KEY": "sk-secret-1", "OPENROUTER_API_KEY": "sk-secret-2", "GROQ_API_KEY": "sk-secret-3"}
    shown = run("doctor", **keys, XAI_API_KEY="", COLUMNS="80")
    assert "sk-secret" not in shown.stdout + shown.stderr
    rows = [line.split() for line in shown.stdout.splitlines() if line.split()[1:2] == ["set"]]
    assert ["OPENROUTER_API_KEY", "set", "openrouter"] in rows
    assert "OPENAI_API_KEY" in [row[0] for row in rows]
    assert "XAI_API_KEY" not in shown.stdout
    report = json.loads(run("doctor", "--json", **keys).stdout)
    assert "openai" in report["keys"]["OPENAI_API_KEY"]


def test_the_plan_is_shown_once_and_then_what_was_done(run: Run, ill: str) -> None:
    shown = run("doctor", "--heal", "--yes", "--store", ill, COLUMNS="80").stdout
    assert shown.count("would start a branch") == 1
    assert (
        shown.index("would start a branch")
        < shown.index("1 note left unchanged (--notes)")
        < shown.index("repaired torn")
    )
    assert "stray-result" not in shown


@pytest.mark.parametrize(
    "damage", ["UPDATE main.conversation SET branch = 99 WHERE name = 'torn'", "DELETE FROM main.branch"]
)
def test_rows_that_do_not_add_up_are_reported_and_no_command_breaks(run: Run, ill: str, damage: str) -> None:
    with cc.open_store(ill) as store:
        store.write(lambda tx: tx.run(damage))
    for arguments in (
        ["doctor"],
        ["doctor", "--format", "gemini"],
        ["list"],
        ["compile", "torn", "-m", "openai:gpt-5"],
    ):
        shown = run(*arguments, "--store", ill)
        assert "Traceback" not in shown.stderr
        assert shown.returncode == {"doctor": 1, "list": 0}.get(arguments[0], 2), shown.stderr
    assert "Conversation 'torn': current branch" in run("list", "--store", ill).stderr
    assert "lost-branch  torn" in run("doctor", "--store", ill).stdout


@pytest.mark.parametrize("command", ["compile", "export"])
def test_commands_name_the_message_that_cannot_be_read(run: Run, ill: str, command: str) -> None:
    model = [] if command == "export" else ["-m", "openai:gpt-5"]
    shown = run(command, "torn", *model, "--store", ill)
    assert (shown.returncode, "Traceback" in shown.stderr, "`contextc doctor`" in shown.stderr) == (2, False, True)


def test_a_torn_file_is_a_finding_with_what_can_still_be_read(run: Run, tmp_path: Path) -> None:
    """8 KB of noise over the pages of one conversation: the file may not open, and the doctor looks all the same."""
    path, noise = tmp_path / "chat.db", bytes(range(7, 256)) * 40
    with cc.open_store(f"sqlite:///{path}") as store:
        for name in ("alpha", "beta"):
            store.extend(name, [cc.user(f"{name} {number} " + "x" * 300) for number in range(100)])
    whole = path.read_bytes()
    at = whole.index(b"beta 50 ")
    path.write_bytes(whole[:at] + noise[:8192] + whole[at + 8192 :])
    report = json.loads(run("doctor", "--json", "--store", f"sqlite:///{path}").stdout)
    assert {each["code"] for each in report["findings"]} == {"damaged-file"}
    assert [each["conversation"] for each in report["findings"]] == [None, "beta"]
    assert "Readable conversations: 'alpha'." in report["findings"][0]["would"]
    shown = run("doctor", "--store", f"sqlite:///{path}")
    assert (shown.returncode, "fault  damaged-file  database\n" in shown.stdout) == (1, True)
    assert run("export", "alpha", "--store", f"sqlite:///{path}?mode=ro").stdout.count("\n") == 101


def test_a_file_that_cannot_be_opened_is_a_finding_too(run: Run, tmp_path: Path) -> None:
    """The page with the schema's first table: opening it ends in an error, and only there is nothing left to read."""
    path = tmp_path / "chat.db"
    with cc.open_store(f"sqlite:///{path}") as store:
        store.extend("alpha", [cc.user("x" * 300) for _ in range(100)])
    whole = path.read_bytes()
    path.write_bytes(whole[:4096] + bytes(range(256)) * 32 + whole[4096 + 8192 :])
    shown = run("doctor", "--store", f"sqlite:///{path}")
    assert (shown.returncode, "fault  damaged-file  database\n" in shown.stdout) == (1, True)
    other = tmp_path / "other.db"
    other.write_text("no database at all, and never was one" * 200)
    refused = run("doctor", "--store", f"sqlite:///{other}")
    assert (refused.returncode, "not a SQLite file" in refused.stderr) == (2, True)


def test_a_tool_that_is_made_up_is_reported_for_the_format_that_needs_it(run: Run, tmp_path: Path) -> None:
    """Guarantee 10.4: Bedrock wants tools where there are calls, so one is added, which is a change."""
    address = f"sqlite:///{tmp_path}/calls.db"
    with cc.open_store(address) as store:
        call = cc.ToolCall(id="c1", name="look", arguments={})
        store.extend("calls", [cc.user("hi"), cc.assistant(tool_calls=[call]), cc.tool_result("c1", "look", "42")])
        store.append("plain", cc.user("hi"))
    shown = run("doctor", "--format", "bedrock", "--store", address).stdout
    assert "made up: a tool no_tools, because there are calls and no tools" in shown
    assert shown.splitlines()[-1] == "1 conversation convertible without changes, 1 not"


def test_one_message_that_was_put_right_is_counted_as_one(run: Run, tmp_path: Path) -> None:
    """A turn whose process died is recovered by the first command that opens the store."""
    dies = (
        "import os, contextc as cc\n"
        "store = cc.open_store('sqlite:///chat.db')\n"
        "store.append('demo', cc.user('hi'))\n"
        "stream = store.stream(store.acquire('demo', 'helper', ttl=300))\n"
        "stream.write('I would')\n"
        "stream.flush()\n"
        "os._exit(9)\n"
    )
    subprocess.run([sys.executable, "-c", dies], cwd=tmp_path, check=False)
    shown = run("doctor", "--store", "sqlite:///chat.db").stdout
    assert "recovered demo: a turn of helper had crashed; 1 message completed" in shown
