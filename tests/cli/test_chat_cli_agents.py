"""`contextc chat` with the real Claude Code and Codex, in temporary homes, with a strict fake API."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import contextc as cc
from contextc._json import JSONObject
from contextc.providers.availability import known_cli_agents as known_programs
from tests.cli.chat_terminal import Terminal
from tests.cli.conftest import Run
from tests.cli.test_chat import STORE, chat, stored
from tests.fake_vendors import KEY, AcceptedRequest, FakeVendors, Fault, Reply, ScriptedCall, faults
from tests.sessions.cli_agents import (
    CLAUDE,
    CODEX,
    PROGRAMS,
    Marked,
    ProgramUnderTest,
    answered,
    marks,
    with_program,
)

VARIABLE = "CONTEXTC_STANDIN_KEY"
at_a_terminal = pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """The folder that is worked in; the programs have theirs beside it."""
    for name in ("work", "claude", "codex"):
        (tmp_path / name).mkdir()
    return tmp_path / "work"


def around(place: Path, **more: str) -> dict[str, str]:
    """Return the environment of the programs: no login, and only the key of the fake."""
    return {
        "CLAUDE_CONFIG_DIR": str(place.parent / "claude"),
        "CODEX_HOME": str(place.parent / "codex"),
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_TELEMETRY": "1",
        "DISABLE_AUTOUPDATER": "1",
        "ANTHROPIC_API_KEY": "",
        "OPENAI_API_KEY": "",
        VARIABLE: KEY,
        **more,
    }


def model_options(program: ProgramUnderTest, standin: FakeVendors) -> tuple[str, ...]:
    url = standin.url(program.format)
    return ("--model", f"{program.name}:{program.model}", "--url", url, "--key", VARIABLE)


def sitting(place: Path, program: ProgramUnderTest, standin: FakeVendors) -> Terminal:
    return Terminal(place, *model_options(program, standin), "-c", "talk", *STORE, more=around(place))


class Using(Marked):
    """Uses a tool where it is asked to, and says something with a mark else."""

    def __init__(self, **calls: ScriptedCall) -> None:
        super().__init__()
        self.calls = calls

    def __call__(self, ask: AcceptedRequest) -> Reply:
        last = ask.request.messages[-1]
        for text, call in self.calls.items():
            if last.role == "user" and last.text.endswith(text):
                return Reply("I do it.", [call])
        return super().__call__(ask)


def command(program: ProgramUnderTest, line: str) -> ScriptedCall:
    if program is CLAUDE:
        return ScriptedCall("Bash", {"command": line, "description": "Do it"})
    return ScriptedCall(
        "exec_command", {"cmd": line, "sandbox_permissions": "require_escalated", "justification": "I want it"}
    )


def running(program: ProgramUnderTest, line: str) -> ScriptedCall:
    """Return a command call that needs no approval."""
    return command(program, line) if program is CLAUDE else ScriptedCall("exec_command", {"cmd": line})


@with_program(CODEX)
def test_a_conversation_continues_in_another_process(program: ProgramUnderTest, place: Path) -> None:
    """Guarantees 9.2, 12.1: in a pipe; the session is resumed, nothing is doubled, and the manifest reports it."""
    with FakeVendors(Using(list=running(program, "echo out$((1+1))"))) as standin:
        first = chat(place, *model_options(program, standin), "-c", "talk", "«u1» Hello.", **around(place))
        assert (first.returncode, first.stdout) == (0, "«a1» I have read it.\n")
        assert f"{program.name}:{program.model} at http://127.0.0.1" in first.stderr
        assert "its own tools in" in first.stderr
        more = ("--continue", "--json", "«u2» list")
        second = chat(place, *model_options(program, standin), *more, **around(place))
        result = chat(place, *model_options(program, standin), "--continue", "/explain", **around(place)).stdout
    assert second.returncode == 0
    events: list[JSONObject] = [json.loads(line) for line in second.stdout.splitlines()]
    by_type = {event["type"]: event for event in events}
    assert (by_type["step-start"]["mode"], by_type["turn-finish"]["tool_calls"]) == ("resume", 1)
    assert "echo out$((1+1))" in by_type["tool-call-delta"]["arguments"]
    assert by_type["tool-result"]["text"].strip() == "out2"
    assert marks(answered(standin)[-1]) == dict.fromkeys(("«u1»", "«a1»", "«u2»"), 1)
    assert not standin.refused
    assert "mode resume, epoch 1, session " in result

    # What was measured is what the program sends, its own prompt and all; the figures of a turn go on from there.
    usage, before = by_type["usage"], by_type["step-start"]
    assert 1_000 < before["used"] < usage["used"] < before["used"] + 500
    assert f"input {before['used'] // 1000}," in result


@at_a_terminal
@with_program(CODEX)
def test_the_programs_own_commands_are_shown_and_asked_for(program: ProgramUnderTest, place: Path) -> None:
    """Guarantee 12.2: the call, the question with the whole command, and a no with its reason."""
    with (
        FakeVendors(Using(touch=command(program, "touch made && echo ok"))) as standin,
        sitting(place, program, standin) as terminal,
    ):
        terminal.wait_for("> ")
        terminal.type("«u1» touch")
        shown = terminal.wait_for("Do it? y/n, always, or why not: ")
        content, call, question = (shown.index(text) for text in ("I do it.", "\n→ ", "\n? "))
        assert content < call < question, "what came before the question is shown before it"
        assert ": run a command in " in shown[question:]
        assert "touch made && echo ok" in shown[question:].split("\n")[2]
        terminal.type("not before noon")
        assert "✗" in terminal.wait_for("«a1»")
        assert not (place / "made").exists()
        terminal.wait_for("\n> ")
        terminal.type("«u2» touch")
        terminal.wait_for("Do it?")
        terminal.type("y")
        assert "✓ ok" in terminal.wait_for("«a2»")
        assert (place / "made").exists()
        terminal.wait_for("\n> ")
        terminal.type("/quit")
        assert terminal.leave() == 0
    refused, done = (message.tool_results[0] for message in stored(place, "talk") if message.role == "tool")
    assert (refused.is_error, done.is_error) == (True, False)
    if program is CLAUDE:  # Codex takes a no, and no reason
        assert "not before noon" in refused.text
        assert "not before noon" in answered(standin)[1].raw.decode()
    assert not standin.refused


@at_a_terminal
def test_a_change_of_a_file_is_shown_as_a_difference(place: Path) -> None:
    """Guarantee 12.2: also where the file is changed by Claude Code."""
    path = place / "a.txt"
    path.write_text("one\ntwo\nthree\n")
    calls = {
        "read": ScriptedCall("Read", {"file_path": str(path)}),
        "edit": ScriptedCall("Edit", {"file_path": str(path), "old_string": "two", "new_string": "zwei"}),
    }
    with (
        FakeVendors(Using(**calls)) as standin,
        sitting(place, CLAUDE, standin) as terminal,
    ):
        terminal.wait_for("> ")
        terminal.type("«u1» read")
        terminal.wait_for("«a1»")
        terminal.wait_for("\n> ")
        terminal.type("«u2» edit")
        shown = terminal.wait_for("Do it?").replace("\r", "")
        assert f"? Edit: change {path}\n" in shown
        assert "│  one\n│ -two\n│ +zwei\n│  three\n" in shown
        terminal.type("y")
        terminal.wait_for("«a2»")
    assert path.read_text() == "one\nzwei\nthree\n"


@at_a_terminal
@with_program(CODEX)
def test_ctrl_c_stops_the_programs_turn_and_the_next_one_continues(program: ProgramUnderTest, place: Path) -> None:
    """Guarantees 9.8, 12.2: the cancelled turn is removed from the session before the next message."""

    def slowly(ask: AcceptedRequest) -> Fault | None:
        answer = ask.raw.decode()
        return faults.stalled(0.6) if "«u4»" in answer and "«u5»" not in answer else None

    def stop() -> None:
        terminal.interrupt()
        terminal.wait_for("stopped.")
        terminal.wait_for("\n> ")

    with (
        FakeVendors(Using(wait=running(program, "sleep 29.125; echo late")), faults=slowly) as standin,
        sitting(place, program, standin) as terminal,
    ):
        terminal.wait_for("> ")
        terminal.type("«u1» Hello.")
        terminal.wait_for("\n> ")
        terminal.type("«u2» wait")
        terminal.wait_for("→ ")
        stop()
        terminal.type("«u3» Go on.")
        assert "«a2»" in terminal.wait_for("\n> ")
        terminal.type("«u4» Slowly?")
        terminal.wait_for("«a")
        stop()
        terminal.type("«u5» And now?")
        assert "I have read it." in terminal.wait_for("\n> ")
        terminal.type("/quit")
        assert terminal.leave() == 0
    expected = ("«u1»", "«a1»", "«u2»", "«u3»", "«a2»", "«u4»", "«u5»")
    assert marks(answered(standin)[-1]) == dict.fromkeys(expected, 1)
    assert not standin.refused
    texts = [message for message in stored(place, "talk") if message.role == "assistant"]
    assert [message.status for message in texts[-3:]] == ["sent", "cancelled", "sent"]
    (result,) = [result for message in stored(place, "talk") for result in message.tool_results]
    assert result.text.startswith("Interrupted")
    assert not at_work("sleep 29.125"), "nothing runs on"


def at_work(command: str) -> list[str]:
    """Processes with this in their command line."""
    shown = subprocess.run(["ps", "-eo", "args="], capture_output=True, text=True, check=True).stdout
    return [line for line in shown.splitlines() if command in line]


@pytest.mark.thorough
def test_another_model_is_chosen_in_the_middle(place: Path) -> None:
    """Guarantee 9.10: each is given what it has not seen, and Codex goes on in the thread it had."""
    with FakeVendors(Using(list=running(CODEX, "echo «out$((1+1))»"))) as standin:
        tables = [
            f'[providers.{program.name}]\nurl = "{standin.url(program.format)}"\nkey = "{VARIABLE}"\n'
            for program in PROGRAMS
        ]
        (place.parent / "contextc").mkdir()
        (place.parent / "contextc" / "contextc.toml").write_text("".join(tables))
        claude, codex = (f"{program.name}:{program.model}" for program in PROGRAMS)
        lines = f"«u1» list\n/model {claude}\n«u2» And you?\n/model {codex}\n«u3» Back again.\n/explain\n/models\n"
        more = around(place, XDG_CONFIG_HOME=str(place.parent), COLUMNS="200")
        asked = chat(place, "-m", codex, "-c", "talk", lines=lines, **more)
    assert asked.returncode == 0
    last = {record.format: marks(record) for record in answered(standin)}
    assert {mark: last["anthropic"][mark] for mark in ("«u1»", "«out2»", "«a1»", "«u2»")} == dict.fromkeys(
        ("«u1»", "«out2»", "«a1»", "«u2»"), 1
    )
    assert {mark: last["openai_responses"][mark] for mark in ("«u1»", "«out2»", "«a1»", "«u2»", "«a2»", "«u3»")} == (
        dict.fromkeys(("«u1»", "«out2»", "«a1»", "«u2»", "«a2»", "«u3»"), 1)
    )
    assert not standin.refused
    assert f"talk: request 2 for assistant on {codex}" in asked.stdout
    assert "mode resume" in asked.stdout
    for expected in (f"{codex}, 2 requests here", f"{claude}, 1 request here"):
        assert expected in asked.stdout


def test_a_yes_to_everything_is_warned_of(place: Path) -> None:
    """Guarantee 12.2: also where the commands are the program's own."""
    with FakeVendors(Using(touch=command(CODEX, "touch made"))) as standin:
        asked = chat(place, *model_options(CODEX, standin), "--yes", "touch", **around(place))
        assert (asked.returncode, "--yes: commands" in asked.stderr) == (0, True)
        (place / "made").unlink()
        asked = chat(place, *model_options(CODEX, standin), "touch", **around(place))
    assert (asked.returncode, (place / "made").exists()) == (0, False), "nobody was there to be asked"


@with_program(CODEX)
def test_a_missing_login_is_reported_with_instructions(program: ProgramUnderTest, place: Path) -> None:
    """Guarantee 15.1: at once, and with the very command."""
    asked = chat(place, "--model", program.name, "hi", **around(place))
    assert (asked.returncode, asked.stdout) == (1, "")
    assert f"{program.name} failed (auth)" in asked.stderr
    installed = known_programs()[cc.provider(program.name).client]
    assert (
        f"Log in: {installed.login_command()}; or name the variable that holds a key: --key VARIABLE." in asked.stderr
    )


@with_program(CLAUDE)
def test_a_program_whose_package_cannot_be_loaded_gets_instructions(program: ProgramUnderTest, place: Path) -> None:
    """Guarantee 15.1: the error says how to install the package again."""
    module = known_programs()[cc.provider(program.name).client].module
    hidden = place.parent / "hidden" / module
    hidden.mkdir(parents=True)
    (hidden / "__init__.py").write_text("raise ImportError")
    asked = chat(place, "--model", program.name, "hi", **around(place, PYTHONPATH=str(hidden.parent)))
    assert (asked.returncode, f"pip install --force-reinstall 'contextc[{program.name}]'" in asked.stderr) == (1, True)


def test_doctor_lists_the_programs(place: Path, run: Run) -> None:
    """Guarantee 15.1: found by the names of files; nothing is started, and nothing is made."""
    report = json.loads(run("doctor", "--json", **around(place)).stdout)["programs"]
    assert list(report) == [CLAUDE.name, CODEX.name]
    for name, folder in ((CLAUDE.name, "claude"), (CODEX.name, "codex")):
        found = report[name]
        assert (found["folder"], found["install"]) == (str(place.parent / folder), "")
        assert Path(found["program"]).is_file()
        assert found["version"][0].isdecimal()
        assert list((place.parent / folder).iterdir()) == []
    shown = run("doctor", **around(place, COLUMNS="300")).stdout
    assert f"{CODEX.name} {report[CODEX.name]['version']}" in " ".join(shown.split())
