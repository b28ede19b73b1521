"""`contextc import` of files of other programs, as a process."""

import json
import shutil
import sqlite3
from pathlib import Path

import pytest

import contextc as cc
from tests.cli.conftest import Run

IMPORTS = Path(__file__).parent.parent / "data" / "imports"
U1, A1 = {"role": "user", "content": "What grows here?"}, {"role": "assistant", "content": "Thyme does."}
U2 = {"role": "user", "content": "And in winter?"}


def completion(text: str) -> dict[str, object]:
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
    return {"object": "chat.completion", "choices": [choice], "usage": {"prompt_tokens": 1_000, "completion_tokens": 5}}


def test_a_database_is_known_and_summed_up(run: Run, tmp_path: Path) -> None:
    """Guarantee 3.8: what came in, in a table; again, that nothing is new."""
    shown = run("import", str(IMPORTS / "langgraph.sqlite"), "--store", "sqlite:///chat.db")
    assert (shown.returncode, shown.stderr) == (0, "")
    lines = [line.split() for line in shown.stdout.splitlines()]
    assert lines[:5] == [
        ["imported", "2", "conversations", "from", "langgraph"],
        ["conversation", "messages", "new", "calls", "branches", "tokens", "title"],
        ["langgraph-garden", "7", "of", "9", "9", "2", "2", "40", "/", "10", "What", "grows", "here?"],
        ["langgraph-kitchen", "2", "2", "0", "1", "Lunch?"],
        ["total", "9", "of", "11", "11", "2", "3", "40", "/", "10"],
    ]
    assert shown.stdout.splitlines()[5].endswith(" s, nothing was left out")
    again = run("import", str(IMPORTS / "langgraph.sqlite"), "--store", "sqlite:///chat.db")
    assert (again.returncode, again.stderr) == (0, "0 messages new, the others already exist\n")


def test_the_summary_is_json_for_machines(run: Run) -> None:
    shown = run("import", str(IMPORTS / "llm.db"), "--json", "--store", "sqlite:///chat.db")
    summary = json.loads(shown.stdout)
    assert (summary["source"], summary["left_out"]) == ("llm", [])
    assert summary["seconds"] > 0
    first = summary["conversations"][0]
    assert (first["title"], first["messages"], first["new"]) == ("A bed of herbs. What grows here?", 5, 5)
    assert (first["branches"], first["input_tokens"], first["output_tokens"], first["error"]) == (1, 24, 6, None)


def test_a_log_becomes_one_conversation_of_the_name_asked_for(run: Run, tmp_path: Path) -> None:
    lines = [
        {"request": {"model": "gpt-6", "messages": [U1]}, "response": completion("Thyme does.")},
        {"request": {"model": "gpt-6", "messages": [U1, A1, U2]}, "response": completion("Moss.")},
    ]
    log = "".join(json.dumps(line) + "\n" for line in lines) + '{"request": {'
    for option in ([], ["--format", "openai_chat"], ["--from", "request-log"]):
        name = f"talk{len(option)}{option[:1]}"
        shown = run("import", "-", "--as", name, *option, "--store", "sqlite:///chat.db", text=log)
        assert shown.returncode == 0, shown.stderr
        assert shown.stdout.startswith(f"imported {name}: 4 messages, tip 00000004")
        assert "2,000" in shown.stdout
        assert shown.stderr == "left out: line 3, the last, which is truncated\n"
    with cc.open_store(f"sqlite:///{tmp_path}/chat.db") as store:
        assert [each.length for each in store.conversations()] == [4, 4, 4]


def test_a_conversation_that_is_refused_among_others_is_reported_and_the_command_fails(
    run: Run, tmp_path: Path
) -> None:
    """Guarantee 15.1."""
    with cc.open_store(f"sqlite:///{tmp_path}/chat.db") as store:
        store.append("openai-agents-garden", cc.user("Mine."))
    shown = run("import", str(IMPORTS / "openai_agents.db"), "--store", "sqlite:///chat.db")
    assert shown.returncode == 1
    assert "not imported: openai-agents-garden: Conversation 'openai-agents-garden' already exists" in shown.stderr
    assert shown.stdout.startswith("imported openai-agents-kitchen: 2 messages")


def test_what_cannot_be_read_gives_the_reason_and_the_way_out(run: Run, tmp_path: Path) -> None:
    """Guarantee 15.1: never a traceback, and no store is begun for nothing."""
    shutil.copy(IMPORTS / "llm.db", tmp_path / "whole.db")
    (tmp_path / "half.db").write_bytes((IMPORTS / "llm.db").read_bytes()[:2_000])
    (tmp_path / "odd.json").write_text('{"weather": "fine"}')
    (tmp_path / "diary.txt").write_text("Dear diary")
    (tmp_path / "empty.jsonl").write_text("")
    for arguments, problem in (
        (["half.db"], "half.db cannot be read as a database"),
        (["odd.json"], "the kind of file cannot be recognised"),
        (["diary.txt"], "diary.txt: the kind of file cannot be recognised"),
        (["empty.jsonl"], "empty.jsonl, line 1: the file is empty"),
        (["gone.json"], "gone.json cannot be read: No such file"),
        (["--from", "llm"], "Name the file: contextc import --from llm FILE"),
        (["--from", "langgraph", "whole.db"], "It is a file of llm: leave --from out."),
        (
            ["--from", "weather", "odd.json"],
            "Source 'weather' not found. Known sources: claude-code, codex, deepchat, har",
        ),
        (["whole.db", "odd.json"], "odd.json: the kind of file cannot be recognised"),
    ):
        refused = run("import", *arguments, "--store", "sqlite:///chat.db")
        assert refused.returncode == 2, arguments
        assert problem in " ".join(refused.stderr.split())
        assert "Traceback" not in refused.stderr
    with cc.open_store(f"sqlite:///{tmp_path}/chat.db") as store:
        assert store.conversations() == []


def test_a_narrow_terminal_shows_titles_too(run: Run) -> None:
    """Figures without information are dropped first; if that is not enough, titles are on a line below."""
    for name in ("", "m" * 60):
        asked = ["--as", name] if name else []
        file = str(IMPORTS / "llm.db")
        shown = run("import", file, *asked, "--store", "sqlite:///chat.db", COLUMNS="80").stdout
        lines = shown.splitlines()
        assert any("A bed of" in line for line in lines)
        assert all(len(line.rstrip()) <= 80 for line in lines if "mmm" not in line)


@pytest.mark.parametrize("columns", ["80", "48"])
def test_a_narrow_terminal_cuts_no_figure(run: Run, tmp_path: Path, columns: str) -> None:
    """A long name wraps; 1,234 stays 1,234."""
    with sqlite3.connect(tmp_path / "sessions.db") as connection:
        connection.execute("CREATE TABLE agent_messages (id INTEGER PRIMARY KEY, session_id, message_data, created_at)")
        for name in ("a conversation with a name that is longer than that of others " * 2, "short"):
            rows = [(name, json.dumps({"role": "user", "content": f"{number}"})) for number in range(1_234)]
            connection.executemany("INSERT INTO agent_messages (session_id, message_data) VALUES (?, ?)", rows)
    connection.close()
    shown = run("import", "sessions.db", "--store", "sqlite:///chat.db", COLUMNS=columns).stdout
    assert shown.count("1,234 ") == 4, shown  # messages and new ones
    assert shown.count("2,468 ") == 2, shown
    assert all(len(line.rstrip()) <= int(columns) for line in shown.splitlines()), shown


def test_an_import_that_stops_in_the_middle_reports_what_is_stored(run: Run, tmp_path: Path) -> None:
    """Guarantee 15.1."""
    path = tmp_path / "sessions.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE agent_messages (id INTEGER PRIMARY KEY, session_id, message_data, created_at)")
        connection.execute("CREATE INDEX by_session ON agent_messages (session_id, id)")
        rows = [(f"s{number:03}", json.dumps({"role": "user", "content": "x" * 3000})) for number in range(40)]
        connection.executemany("INSERT INTO agent_messages (session_id, message_data) VALUES (?, ?)", rows)
    connection.close()
    data = bytearray(path.read_bytes())
    data[20 * 4096 : 21 * 4096] = bytes(4096)
    path.write_bytes(data)
    shown = run("import", "sessions.db", "--store", "sqlite:///chat.db")
    assert shown.returncode == 1
    with cc.open_store(f"sqlite:///{tmp_path}/chat.db") as store:
        stored = len(store.conversations())
    assert f"imported {stored} conversations from openai-agents" in shown.stdout
    assert "The import stopped: sessions.db cannot be read as a database" in shown.stderr
    assert f"Stored before that: {stored} conversations. Import the file again to continue." in shown.stderr


def test_the_messages_of_all_branches_and_of_the_current_one_are_distinguished(run: Run) -> None:
    """What `contextc list` counts are those of the current branch."""
    shown = run("import", str(IMPORTS / "openai_agents_branches.db"), "--store", "sqlite:///chat.db")
    assert "imported openai-agents-garden: 6 messages, 4 of them on the current branch, tip" in shown.stdout
    assert "4 of 6" in shown.stdout
