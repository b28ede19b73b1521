"""`contextc chat` with one question: stored data, exit code and terminal output."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import contextc as cc
from contextc.cli.console import format_error
from contextc.providers.client import endpoint
from tests.cli.chat_terminal import home, recorded, refuses
from tests.cli.conftest import Run
from tests.cli.test_chat import chat, stored
from tests.executor.scripted_provider import says
from tests.forked_commands import run_contextc

GROQ = '[providers.groq]\nurl = "http://127.0.0.1:1/v1"\nkey = "GROQ_API_KEY"\nwindow = 16_000\n'


def names(folder: Path) -> list[str]:
    with cc.open_store(folder / "chat.db") as store:
        return [each.name for each in store.conversations()]


def test_a_question_that_was_never_answered_leaves_no_conversation(tmp_path: Path) -> None:
    """Unless it has a name, or was there before: then the question is kept, and /continue asks again."""
    fails = recorded(tmp_path / "a.jsonl", refuses(401, "no such key"))
    for lines in (None, "hi\n"):
        asked = chat(tmp_path, "-m", fails, *(["hi"] if lines is None else []), lines=lines)
        assert (asked.returncode, "There was no answer, so the conversation is not kept." in asked.stderr) == (1, True)
        assert names(tmp_path) == []
    assert chat(tmp_path, "-m", fails, "-c", "mine", "hi").returncode == 1
    assert chat(tmp_path, "-m", fails, "--continue", "ho").returncode == 1
    assert [message.text for message in stored(tmp_path, "mine")] == ["hi", "ho"]
    half = recorded(tmp_path / "b.jsonl", {**says("Half of").recording(), **refuses(400, "broken")})
    assert chat(tmp_path, "-m", half, "hi").returncode == 1
    assert len(names(tmp_path)) == 2


def test_a_command_can_be_the_question(tmp_path: Path) -> None:
    """What is read from standard input is a question, whatever it begins with."""
    fails = recorded(tmp_path / "a.jsonl", refuses(401, "no such key"))
    works = recorded(tmp_path / "b.jsonl", says("Here."))
    assert chat(tmp_path, "-m", fails, "-c", "demo", "Where?").returncode == 1
    again = chat(tmp_path, "-m", fails, "-c", "demo", "/continue")
    assert again.returncode == 1
    again = chat(tmp_path, "-m", works, "-c", "demo", "-p", "/continue")
    assert (again.returncode, again.stdout) == (0, "Here.\n")
    assert [message.text for message in stored(tmp_path, "demo")] == ["Where?", "Here."]
    assert chat(tmp_path, "-m", works, "-c", "demo", "/cost").stdout.startswith("3 turns: ")
    assert chat(tmp_path, "-m", works, "-c", "demo", "-", lines="/cost").stdout == "Here.\n"
    assert chat(tmp_path, "-m", works, "/continue").returncode == 0
    assert names(tmp_path) == ["demo"]


def test_a_failed_continue_ends_the_pipe(tmp_path: Path) -> None:
    fails = recorded(tmp_path / "a.jsonl", refuses(401, "no such key"), refuses(401, "no such key"))
    asked = chat(tmp_path, "-m", fails, "-c", "demo", "first")
    asked = chat(tmp_path, "-m", fails, "-c", "demo", lines="/continue\nnever asked\n")
    assert asked.returncode == 1
    assert [message.text for message in stored(tmp_path, "demo")] == ["first"]


def test_an_answer_that_was_cut_off_exits_with_1(tmp_path: Path) -> None:
    """In a pipe the lines after it are asked all the same."""
    cut = says("Half of", finish="length")
    model = recorded(tmp_path / "a.jsonl", cut, cut, cut, cut, cut)
    asked = chat(tmp_path, "-m", model, "--steps", "9", "hi")
    assert (asked.returncode, "the turn ended: length" in asked.stderr) == (1, True)
    model = recorded(tmp_path / "b.jsonl", *[cut] * 4, says("Whole."))
    asked = chat(tmp_path, "-m", model, lines="hi\nho\n")
    assert (asked.returncode, asked.stdout.endswith("Whole.\n")) == (1, True)


def test_commands_in_a_new_conversation_report_that_there_is_no_message(tmp_path: Path) -> None:
    model = recorded(tmp_path / "a.jsonl", says("Hello."))
    lines = "/context\n/explain\n/compact\n/clear\n/fork x\nhi\n"
    asked = chat(tmp_path, "-m", model, "-c", "demo", lines=lines)
    assert (asked.returncode, asked.stdout) == (0, "Hello.\n")
    assert asked.stderr.count("demo has no messages yet.") == 5


def test_a_provider_of_ones_own_is_named_in_the_users_file(tmp_path: Path) -> None:
    """Guarantee 9.11: any endpoint with one of the formats, from the command line too."""
    (tmp_path / ".config" / "contextc").mkdir(parents=True)
    (tmp_path / ".config" / "contextc" / "contextc.toml").write_text(GROQ)
    asked = chat(tmp_path, "-m", "groq:some-model", "hi", XDG_CONFIG_HOME=str(tmp_path / ".config"))
    assert asked.returncode == 1
    assert "groq:some-model at http://127.0.0.1:1/v1" in asked.stderr
    assert "the environment variable GROQ_API_KEY is not set" in asked.stderr
    assert "--key VARIABLE" in asked.stderr
    assert "cc." not in asked.stderr
    other = chat(tmp_path, "-m", "groq:m", "--key", "OTHER_KEY", "hi", XDG_CONFIG_HOME=str(tmp_path / ".config"))
    assert "the environment variable OTHER_KEY is not set" in other.stderr


def test_doctor_reports_of_a_key_only_whether_it_is_set(tmp_path: Path, run: Run) -> None:
    folder = tmp_path / "config" / "contextc"
    folder.mkdir(parents=True)
    (folder / "contextc.toml").write_text(GROQ)
    where = {"XDG_CONFIG_HOME": str(tmp_path / "config")}
    assert "GROQ_API_KEY, not set" in run("doctor", **where).stdout
    shown = run("doctor", GROQ_API_KEY="sk-secret", **where)
    assert ("GROQ_API_KEY, set" in shown.stdout, "sk-secret" in shown.stdout) == (True, False)
    report = json.loads(run("doctor", "--json", GROQ_API_KEY="sk-secret", **where).stdout)
    assert report["providers"]["groq"]["key_is_set"] is True
    assert "sk-secret" not in json.dumps(report)


def test_a_conversation_that_is_busy_is_reported_with_command_line_options(tmp_path: Path) -> None:
    """Guarantee 15.1."""
    model = recorded(tmp_path / "a.jsonl", says("Never said."))
    with cc.open_store(tmp_path / "chat.db") as store:
        store.append("demo", cc.user("hi"))
        lease = store.acquire("demo", "assistant", ttl=60)
        asked = chat(tmp_path, "-m", model, "-c", "demo", "hi")
        store.release(lease)
    assert (asked.returncode, "--conversation NAME" in asked.stderr, "wait=" in asked.stderr) == (1, True, False)


def _without_address() -> None:
    endpoint(cc.provider("mine:m", window=9_000))


def _without_window() -> None:
    cc.provider("mine:m", url="http://127.0.0.1:9")


def _misspelt() -> None:
    cc.provider("anthropc:claude-opus-5-5")


def _without_conversation() -> None:
    with cc.open_store("memory:") as store:
        store.load("none")


@pytest.mark.parametrize(
    ("wrong", "advice"),
    [
        (_without_address, "--url https://…/v1 --key"),
        (_without_window, "--window 128000"),
        (_misspelt, "[providers.NAME] in contextc.toml"),
        (_without_conversation, "`contextc list` shows"),
    ],
)
def test_advice_is_for_the_command_line(wrong: Callable[[], None], advice: str) -> None:
    """The library's fix is for a Python caller. The command line replaces it."""
    with pytest.raises(cc.ContextcError) as raised:
        wrong()
    result = format_error(raised.value)
    assert advice in result
    assert not [text for text in ("cc.", "`store.", 'format="', "append") if text in result]


def test_the_lines_of_explain_add_up_to_what_the_messages_take(tmp_path: Path) -> None:
    """The whole input is the provider's figure, and each line has its share of the difference to our own count."""
    model = recorded(tmp_path / "a.jsonl", says("One.", input=3_000, output=20), says("Two.", input=3_100, output=20))
    asked = chat(tmp_path, "-m", model, "-c", "demo", lines="first\nsecond\n/explain\n", COLUMNS="200")
    assert asked.returncode == 0
    shown = asked.stdout
    assert "input 3,100 tokens (measured)" in shown
    lines = [line.split() for line in shown.splitlines() if line.startswith(" + ") and line.split()[1].isdecimal()]
    counted = sum(int(line[3].replace(",", "")) for line in lines)
    assert len(lines) == 3
    assert f"▒ messages {counted:,} " in shown


def test_a_model_that_is_not_configured_is_reported_on_standard_error(tmp_path: Path) -> None:
    """In a terminal too: it is no part of the conversation."""
    environment = home(tmp_path, CONTEXTC_LOCAL_MODEL=str(tmp_path / "none.gguf"))
    asked = run_contextc("chat", "--store", "sqlite:///chat.db", "hi", cwd=tmp_path, env=environment)
    (line,) = [line for line in asked.stderr.splitlines() if "No model is configured" in line]
    assert len(line) < 130
