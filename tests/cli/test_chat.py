"""`contextc chat` in a pipe: the answer on standard output, everything around it on standard error."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest

import contextc as cc
from contextc._json import JSONObject
from contextc.providers.local import check_installed, find_model_file
from contextc.store.conversation_list import list_names_in
from contextc.tools.builtin.file_tools import file_tools
from tests.cli.chat_terminal import home, recorded, refuses
from tests.conftest import give_up
from tests.executor.scripted_provider import SONNET, Scripted, call, says
from tests.forked_commands import CommandProcess, run_contextc

STORE = ("--store", "sqlite:///chat.db")


def chat(folder: Path, *arguments: str, lines: str | None = None, **more: str) -> "subprocess.CompletedProcess[str]":
    return run_contextc("chat", *STORE, *arguments, cwd=folder, env=home(folder, **more), text=lines)


def stored(folder: Path, conversation: str) -> list[cc.Message]:
    with cc.open_store(folder / "chat.db") as store:
        return store.load(conversation)


def read_until(pipe: IO[bytes] | IO[str], text: bytes) -> None:
    seen = b""
    while text not in seen:
        piece = os.read(pipe.fileno(), 1 << 12)
        assert piece, f"it ended after {seen!r}"
        seen += piece


def test_what_is_piped_on_is_the_answer_alone(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("milk")
    model = recorded(
        tmp_path / "a.jsonl",
        says(call(1, "read_file", path="note.txt")),
        says("It says ", "[bold]milk[/].", thinks=("A note.",)),
    )
    asked = chat(tmp_path, "-m", model, "What is in note.txt?")
    assert (asked.returncode, asked.stdout) == (0, "It says [bold]milk[/].\n")
    for expected in ('→ read_file(path="note.txt")', "✓ 1 milk", "A note.", "context ", "2 steps, 1 tool call"):
        assert expected in asked.stderr
    assert "\x1b" not in asked.stdout + asked.stderr


def test_a_conversation_belongs_to_the_folder_of_the_chat(tmp_path: Path) -> None:
    """Guarantee 20.12: `contextc mcp` finds it there. The first folder counts, also if the chat goes on elsewhere."""
    folders = [tmp_path / name for name in ("first", "second")]
    for folder in folders:
        folder.mkdir()
        model = recorded(tmp_path / f"{folder.name}.jsonl", says("Yes."))
        assert chat(tmp_path, "-m", model, "-c", "demo", "--root", folder.name, "Hello.").returncode == 0
    with cc.open_store(tmp_path / "chat.db") as store:
        assert [store.read(lambda tx, at=str(at): list_names_in(tx, at)) for at in folders] == [["demo"], []]


def test_each_line_is_a_turn_of_one_conversation(tmp_path: Path) -> None:
    model = recorded(tmp_path / "a.jsonl", says("One."), says("Two."))
    asked = chat(tmp_path, "-m", model, "-c", "demo", lines="first\n\nsecond\n")
    assert (asked.returncode, asked.stdout) == (0, "One.\nTwo.\n")
    assert [message.text for message in stored(tmp_path, "demo")] == ["first", "One.", "second", "Two."]


def test_a_dash_reads_one_question_of_many_lines(tmp_path: Path) -> None:
    model = recorded(tmp_path / "a.jsonl", says("One."))
    assert chat(tmp_path, "-m", model, "-c", "demo", "-p", "-", lines="first\n/second\n").returncode == 0
    assert stored(tmp_path, "demo")[0].text == "first\n/second\n"


def test_json_is_the_events_as_they_are_stored(tmp_path: Path) -> None:
    """Guarantee 12.1."""
    model = recorded(tmp_path / "a.jsonl", says(call(1, "list_files")), says("Two ", "files."))
    asked = chat(tmp_path, "-m", model, "-c", "demo", "--json", lines="/what is here?\n")
    events: list[JSONObject] = [json.loads(line) for line in asked.stdout.splitlines()]
    assert (asked.returncode, events[0]["type"], events[-1]["type"]) == (0, "turn-start", "turn-finish")
    assert "".join(event["text"] for event in events if event["type"] == "text-delta") == "Two files."
    assert {"step-start", "tool-call-delta", "tool-start", "tool-result", "usage"} <= {
        event["type"] for event in events
    }
    with cc.open_store(tmp_path / "chat.db") as store:
        assert [event.number for event in store.events("demo")] == [event["number"] for event in events]


def test_a_turn_that_fails_ends_the_pipe_with_1(tmp_path: Path) -> None:
    """Guarantee 15.1: what went wrong, and the way out."""
    model = recorded(tmp_path / "a.jsonl", refuses(401, "no such key", "invalid_api_key"), says("Never said."))
    asked = chat(tmp_path, "-m", model, lines="first\nsecond\n")
    assert (asked.returncode, asked.stdout) == (1, "")
    assert "no such key. Check the key" in asked.stderr
    assert "Traceback" not in asked.stderr
    events = chat(tmp_path, "-m", model, "--json", "first")
    assert (events.returncode, '"type":"error"' in events.stdout) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["-m", "anthropc:claude-opus-5-5", "hi"], "Did you mean"),
        (["-m", "myserver:nobody-knows-it", "hi"], "Provider 'myserver' not found."),
        (["-m", "myserver:nobody-knows-it", "--url", "http://127.0.0.1:1/v1", "hi"], "--window 128000"),
        (["-m", "nonsense", "hi"], "the model has no default provider"),
        (["-m", "gtp-5", "hi"], "Did you mean gpt-5?"),
        (["-m", "local:foo", "--window", "8000", "hi"], "the local model is SmolLM2"),
        (["-m", "local", "--url", "http://127.0.0.1:1", "hi"], "--model myserver:MODEL --url"),
        (["--url", "http://127.0.0.1:1/v1", "hi"], "url requires a model, got none"),
        (["--window", "5000", "hi"], "window requires a model, got none"),
        (["--key", "GROQ_API_KEY", "hi"], "key requires a model, got none"),
        (["-m", "replay:empty.jsonl", "--url", "http://127.0.0.1:1/v1", "hi"], "Omit url and key"),
        (["-m", "replay:empty.jsonl", "--window", "-5", "hi"], "--window must be greater than 0, got -5"),
        (["-m", "replay:empty.jsonl", "--output", "0", "hi"], "--output must be greater than 0, got 0"),
        (["-m", "replay:empty.jsonl", "--budget", "0", "hi"], "--budget must be greater than 0, got 0"),
        (["-m", "replay:none.jsonl", "hi"], "cannot read the file"),
        (["-m", "replay:none.jsonl?speed=3", "hi"], "Use format, window"),
        (["-m", "replay:empty.jsonl", "hi", "-p", "ho"], "Pass one of the two"),
        (["-m", "replay:empty.jsonl", "--continue", "-c", "x", "hi"], "Pass one of the two"),
        (["-m", "replay:empty.jsonl", "--continue", "hi"], "the store has no conversation"),
        (["-m", "replay:empty.jsonl", "--root", "nowhere", "hi"], "--root nowhere: directory not found"),
        (["-m", "replay:empty.jsonl", "--steps", "0", "hi"], "greater than 0"),
        (["-m", "replay:empty.jsonl", "--tools", "some", "hi"], "some"),
        (["-m", "replay:empty.jsonl", " "], "question must not be blank"),
    ],
)
def test_a_wrong_call_exits_with_2(tmp_path: Path, arguments: list[str], problem: str) -> None:
    """Guarantee 15.1."""
    recorded(tmp_path / "empty.jsonl", says("One."))
    asked = chat(tmp_path, *arguments, COLUMNS="200")
    assert (asked.returncode, asked.stdout) == (2, "")
    assert problem in asked.stderr
    assert "Traceback" not in asked.stderr
    assert "cc." not in asked.stderr
    if (tmp_path / "chat.db").exists():
        with cc.open_store(tmp_path / "chat.db") as store:
            assert store.conversations() == []


def test_a_literal_key_is_refused_and_not_repeated(tmp_path: Path) -> None:
    """A key belongs in a variable: a key passed as an argument must not appear in a terminal or in a store."""
    for key in ("sk-abc123", "gsk_abc123DEF"):
        asked = chat(tmp_path, "-m", "mine:m", "--url", "http://127.0.0.1:1/v1", "--window", "9000", "--key", key, "hi")
        assert (asked.returncode, "the name of an environment variable" in asked.stderr) == (2, True)
        assert key not in asked.stderr


def test_a_failure_that_passes_is_reported_and_tried_again(tmp_path: Path) -> None:
    """Guarantee 11.11."""
    model = recorded(tmp_path / "a.jsonl", refuses(503, "too busy"), says("At last."))
    asked = chat(tmp_path, "-m", model, "hi")
    assert (asked.returncode, asked.stdout) == (0, "At last.\n")
    assert "too busy" in asked.stderr
    assert "Attempt 2 in " in asked.stderr


def test_with_nothing_configured_it_is_the_local_model_and_it_is_reported(tmp_path: Path) -> None:
    asked = chat(tmp_path, "hi", CONTEXTC_LOCAL_MODEL=str(tmp_path / "none.gguf"))
    assert asked.returncode == 2
    assert "No model is configured: using SmolLM2-135M-Instruct on this machine" in asked.stderr
    assert asked.stdout == ""
    configured = recorded(tmp_path / "a.jsonl", says("Hello."))
    asked = chat(tmp_path, "hi", CONTEXTC_MODEL=configured)
    assert (asked.returncode, asked.stdout) == (0, "Hello.\n")
    assert "No model is configured" not in asked.stderr


def test_without_a_terminal_nothing_is_run_unless_all_is_approved(tmp_path: Path) -> None:
    command = says(call(1, "run_command", command="echo made > made.txt"))
    model = recorded(tmp_path / "a.jsonl", command, says("Done."))
    asked = chat(tmp_path, "-m", model, "make it")
    assert (asked.returncode, (tmp_path / "made.txt").exists()) == (0, False)
    assert "✗ Not run: this tool needs a person's approval" in asked.stderr
    asked = chat(tmp_path, "-m", model, "--yes", "make it")
    assert (tmp_path / "made.txt").read_text() == "made\n"
    assert "run without confirmation" in asked.stderr


@pytest.mark.parametrize(("tools", "offered"), [("all", 7), ("read", 4), ("none", 0)])
def test_tools_and_root_report_what_a_model_may_use_and_where(tmp_path: Path, tools: str, offered: int) -> None:
    (tmp_path / "inside").mkdir()
    (tmp_path / "secret.txt").write_text("outside")
    model = recorded(tmp_path / "a.jsonl", says(call(1, "read_file", path="../secret.txt")), says("Hm."))
    asked = chat(tmp_path, "-m", model, "-c", "demo", "--tools", tools, "--root", "inside", "look")
    assert asked.returncode == 0
    text = "no tools" if tools == "none" else f"{offered} tools in"
    assert text in asked.stderr
    (result,) = [each for message in stored(tmp_path, "demo") for each in message.tool_results]
    assert result.is_error
    assert ("outside the folder" in result.text) == (tools != "none")


def test_the_model_is_switched_in_the_middle_of_a_conversation(tmp_path: Path) -> None:
    """Guarantee 9.10: each is given what it has not been shown, from any author."""
    one = recorded(tmp_path / "one.jsonl", says("I am one."))
    two = recorded(tmp_path / "two.jsonl", says("I am two.")) + "?format=anthropic"
    anthropic = {"type": "message", "content": [{"type": "text", "text": "I am two."}], "stop_reason": "end_turn"}
    (tmp_path / "two.jsonl").write_text(json.dumps({"reply": anthropic}))
    lines = f"first\n/model {two}\nsecond\n/models\n/explain\n"
    asked = chat(tmp_path, "-m", one, "-c", "demo", lines=lines, COLUMNS="200")
    assert asked.returncode == 0, asked.stderr
    assert "I am one.\nreplay:two, anthropic, window 32,000\nI am two.\n" in asked.stdout
    assert "replay:one, 1 request here" in asked.stdout
    assert "demo: request 1 for assistant on replay:two" in asked.stdout
    with cc.open_store(tmp_path / "chat.db") as store:
        channels = {each.channel.model: each.requests for each in cc.SessionManager(store).sessions("demo")}
        provider = cc.provider("replay:two", format="anthropic", window=32_000, output=4_000)
        body = json.loads(cc.MessageCompiler(store, provider).rebuild("demo"))
    assert channels == {"one": 1, "two": 1}
    assert [message["role"] for message in body["messages"]] == ["user", "assistant", "user"]


def test_slash_commands(tmp_path: Path) -> None:
    answers = [says(f"Answer {number}. " + "word " * 700, input=720 * number, output=700) for number in (1, 2, 3)]
    model = recorded(tmp_path / "a.jsonl", *answers, says("They talked."), says("Answer 4."))
    model += "?window=9000&output=1000"
    lines = (
        "first\nsecond\nthird\n/context\n/cost\n/todos\n/compact keep names\n/uncompact\n/fork other\nfourth\n"
        "/list\n/resume demo\n"
        "/clear\n/help\n/quit\nnever asked\n"
    )
    asked = chat(tmp_path, "-m", model, "-c", "demo", "--tools", "none", lines=lines, COLUMNS="200")
    assert asked.returncode == 0, asked.stderr
    for expected in (
        "demo: request 4 for",
        "3 turns: 4,320 tokens in, 2,100 out, $0.0000 as far as prices are known",
        "The todo list is empty.",
        "summarized messages 1 to 2: ",
        "The summary of messages 1 to 2 is no longer used.",
        "other shares 6 messages with demo and is now current",
        "The model no longer sees the 6 messages before this.",
        "/continue",
    ):
        assert expected in asked.stdout, asked.stdout
    assert len(stored(tmp_path, "other")) == 8
    assert len(stored(tmp_path, "demo")) == 6
    with cc.open_store(tmp_path / "chat.db") as store:
        assert store.conversation("demo").context_start == 6


def test_a_command_that_is_not_there_reports_what_there_is(tmp_path: Path) -> None:
    model = recorded(tmp_path / "a.jsonl", says("One."))
    asked = chat(tmp_path, "-m", model, lines="/modle x\nnever asked\n")
    assert (asked.returncode, asked.stdout) == (2, "")
    assert "Did you mean /model?" in asked.stderr
    assert "/explain" in asked.stderr
    asked = chat(tmp_path, "-m", model, "-c", "demo", lines="/etc/hosts is what?\n")
    assert (asked.returncode, stored(tmp_path, "demo")[0].text) == (0, "/etc/hosts is what?")


def test_continue_takes_the_conversation_in_which_a_message_was_stored_last(tmp_path: Path) -> None:
    model = recorded(tmp_path / "a.jsonl", says("Hm."))
    for name in ("old", "new", "old"):
        assert chat(tmp_path, "-m", model, "-c", name, "hi").returncode == 0
    asked = chat(tmp_path, "-m", model, "--continue", "again")
    assert "continuing old: 4 messages" in asked.stderr
    assert len(stored(tmp_path, "old")) == 6


def test_options_reach_the_request(tmp_path: Path) -> None:
    (tmp_path / "system.txt").write_text("Speak like a pirate.")
    model = recorded(tmp_path / "a.jsonl", says(call(1, "list_files")), says("Never said."))
    options = ["--system", "@system.txt", "--output", "77", "--budget", "5000", "--steps", "1", "--agent", "pirate"]
    asked = chat(tmp_path, "-m", model, "-c", "demo", *options, "hi")
    assert (asked.returncode, asked.stdout) == (1, "")
    assert "the turn ended: max_steps" in asked.stderr
    with cc.open_store(tmp_path / "chat.db") as store:
        provider = cc.provider("replay:a", window=32_000, output=4_000)
        body = json.loads(cc.MessageCompiler(store, provider).rebuild("demo", name="pirate"))
        manifest = cc.MessageCompiler(store, provider).explain("demo", name="pirate")
    assert body["messages"][0]["content"].startswith("Speak like a pirate.")
    assert 77 in (body.get("max_tokens"), body.get("max_completion_tokens"))
    assert manifest.budget.limit == 5000


def test_the_policy_is_an_option_or_a_setting(tmp_path: Path) -> None:
    """Guarantee 7.4: with `sliding_window`, the longest answer is reserved as a whole, and there is no margin."""
    model = recorded(tmp_path / "a.jsonl", says("One."))
    for name, options, variable in (
        ("a", (), ""),
        ("b", ("--policy", "sliding_window"), ""),
        ("c", (), "sliding_window"),
    ):
        assert chat(tmp_path, "-m", model, "-c", name, *options, "hi", CONTEXTC_POLICY=variable).returncode == 0
    with cc.open_store(tmp_path / "chat.db") as store:
        compiler = cc.MessageCompiler(store, cc.provider("replay:a", window=32_000, output=4_000))
        assert [compiler.explain(name).budget.margin > 0 for name in ("a", "b", "c")] == [True, False, False]


def test_after_a_crash_it_is_reported_and_continues(tmp_path: Path) -> None:
    """Guarantee 3.6: what a dead process was writing is kept, and a completed tool is not run again."""
    texts = [f"word{number} " for number in range(2_000)]
    slow = recorded(tmp_path / "slow.jsonl", says(call(1, "run_command", command="echo x >> ran.txt")), says(*texts))
    child = subprocess.Popen(
        [sys.executable, "-m", "contextc", "chat", *STORE, "-m", f"{slow}?seconds=0.02", "-c", "demo", "--yes", "talk"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=tmp_path,
        env=home(tmp_path),
    )
    assert child.stdout is not None
    try:
        read_until(child.stdout, b"word9 ")
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
    fresh = recorded(tmp_path / "fresh.jsonl", says("And so on."))
    asked = chat(tmp_path, "-m", fresh, "-c", "demo", lines="/continue\n")
    assert (asked.returncode, asked.stdout) == (0, "And so on.\n")
    assert "The last turn was interrupted" in asked.stderr
    assert (tmp_path / "ran.txt").read_text() == "x\n"
    partial = next(message for message in stored(tmp_path, "demo") if message.status == "error")
    assert partial.text.startswith("word0 word1 ")


def test_a_turn_that_waits_for_approval_is_reported_and_continues(tmp_path: Path) -> None:
    """Guarantee 18.1: a server has suspended it. Input is queued, and /continue asks here."""
    arguments = {"path": "note.txt", "content": "hello"}
    provider = Scripted(says(("c1", "write_file", arguments)))
    with cc.open_store(tmp_path / "chat.db") as store:
        agent = cc.AgentExecutor(
            store, SONNET, tools=file_tools(tmp_path), endpoint=provider, approve=cc.Suspend(), triggers=()
        )

        async def run() -> str:
            return (await agent.start("demo", "Write.").wait()).finish

        assert asyncio.run(run()) == "waiting"
    fresh = recorded(tmp_path / "fresh.jsonl", says("Done."), says("Yes."))
    queued = chat(tmp_path, "-m", fresh, "-c", "demo", "And?")
    assert (queued.returncode, queued.stdout) == (1, "")
    assert "The last turn waits for approval of write_file." in queued.stderr
    assert "your input is queued" in queued.stderr
    assert not (tmp_path / "note.txt").exists()
    refused = chat(tmp_path, "-m", fresh, "-c", "demo", "/continue")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "waits for approval of write_file" in refused.stderr
    asked = chat(tmp_path, "-m", fresh, "-c", "demo", "--yes", "/continue")
    assert (asked.returncode, asked.stdout) == (0, "Done.\nYes.\n")
    assert (tmp_path / "note.txt").read_text() == "hello"


def test_an_interrupted_pipe_keeps_the_partial_answer(tmp_path: Path) -> None:
    """Guarantee 11.10."""
    texts = [f"word{number} " for number in range(2_000)]
    slow = recorded(tmp_path / "slow.jsonl", says(*texts)) + "?seconds=0.05"
    with CommandProcess(
        *["chat", *STORE, "-m", slow, "-c", "demo", "talk"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
        env=home(tmp_path),
    ) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        read_until(child.stdout, b"word3 ")
        child.send_signal(signal.SIGINT)
        child.stdout.read()
        assert "The partial answer is kept" in child.stderr.read()
        assert child.wait(180) == 1
    assert stored(tmp_path, "demo")[-1].status == "cancelled"


@pytest.mark.thorough
def test_the_local_model_answers_and_uses_a_tool(tmp_path: Path) -> None:
    """Guarantee 9.11: no key, no network, and still a working agent."""
    try:
        check_installed()
        find_model_file()
    except cc.errors.InvalidSetting as error:
        give_up(f"the local model: {error}")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a.txt").write_text("hi")
    result = chat(tmp_path, "What is the capital of France?", CONTEXTC_LOCAL_IDLE="20s")
    assert (result.returncode, "Paris" in result.stdout) == (0, True), result.stderr
    assert "No model is configured" in result.stderr
    assert "starting the local model …" in result.stderr
    listed = chat(
        tmp_path, "--tools", "read", "--root", "folder", "List the files in this folder.", CONTEXTC_LOCAL_IDLE="20s"
    )
    assert (listed.returncode, "→ list_files(" in listed.stderr) == (0, True), listed.stderr
    assert "a.txt" in listed.stdout
