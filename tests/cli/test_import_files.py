"""`contextc import` of files of other programs, as a person runs it."""

import json
import shutil
from pathlib import Path

import contextc as cc
from tests.cli.conftest import Run

IMPORTS = Path(__file__).parent.parent / "data" / "imports"
U1, A1 = {"role": "user", "content": "What grows here?"}, {"role": "assistant", "content": "Thyme does."}
U2 = {"role": "user", "content": "And in winter?"}


def completion(text: str) -> dict[str, object]:
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
    return {"object": "chat.completion", "choices": [choice], "usage": {"prompt_tokens": 1_000, "completion_tokens": 5}}


def test_a_database_is_known_and_summed_up(run: Run, tmp_path: Path) -> None:
    """SPEC 3.8: what came in, in a table; again, that nothing is new."""
    shown = run("import", str(IMPORTS / "langgraph.sqlite"), "--store", "sqlite:///chat.db")
    assert (shown.returncode, shown.stderr) == (0, "")
    lines = [line.split() for line in shown.stdout.splitlines()]
    assert lines[:5] == [
        ["imported", "2", "conversations", "from", "langgraph"],
        ["conversation", "messages", "new", "calls", "branches", "tokens", "title"],
        ["langgraph-garden", "9", "9", "2", "2", "40", "/", "10", "What", "grows", "here?"],
        ["langgraph-kitchen", "2", "2", "0", "1", "Lunch?"],
        ["in", "all", "11", "11", "2", "3", "40", "/", "10"],
    ]
    assert shown.stdout.splitlines()[5].endswith(" s, nothing was left out")
    again = run("import", str(IMPORTS / "langgraph.sqlite"), "--store", "sqlite:///chat.db")
    assert (again.returncode, again.stderr) == (0, "0 messages new, the others were there\n")


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
        assert shown.stderr == "left out: line 3, the last, which was cut off\n"
    with cc.open_store(f"sqlite:///{tmp_path}/chat.db") as store:
        assert [each.length for each in store.conversations()] == [4, 4, 4]


def test_a_conversation_that_is_refused_among_others_is_told_and_the_command_fails(run: Run, tmp_path: Path) -> None:
    """SPEC 15.1."""
    with cc.open_store(f"sqlite:///{tmp_path}/chat.db") as store:
        store.append("openai-agents-garden", cc.user("Mine."))
    shown = run("import", str(IMPORTS / "openai_agents.db"), "--store", "sqlite:///chat.db")
    assert shown.returncode == 1
    assert "not taken: openai-agents-garden: There is already a conversation" in shown.stderr
    assert shown.stdout.startswith("imported openai-agents-kitchen: 2 messages")


def test_what_cannot_be_read_says_why_and_the_way_out(run: Run, tmp_path: Path) -> None:
    """SPEC 15.1: never a traceback, and no store is begun for nothing."""
    shutil.copy(IMPORTS / "llm.db", tmp_path / "whole.db")
    (tmp_path / "half.db").write_bytes((IMPORTS / "llm.db").read_bytes()[:2_000])
    (tmp_path / "odd.json").write_text('{"weather": "fine"}')
    for arguments, problem in (
        (["half.db"], "half.db cannot be read as a database"),
        (["odd.json"], "what this file is cannot be seen from it"),
        (["gone.json"], "gone.json cannot be read: No such file"),
        (["--from", "llm"], "Say which file: contextc import --from llm FILE"),
        (["--from", "langgraph", "whole.db"], "whole.db cannot be read as a database: no such table: checkpoints"),
        (["--from", "weather", "odd.json"], "'weather' is no source of transcripts. There are claude-code, codex, har"),
        (["whole.db", "odd.json"], "odd.json: what this file is cannot be seen from it"),
    ):
        refused = run("import", *arguments, "--store", "sqlite:///chat.db")
        assert refused.returncode == 2, arguments
        assert problem in " ".join(refused.stderr.split())
        assert "Traceback" not in refused.stderr
    with cc.open_store(f"sqlite:///{tmp_path}/chat.db") as store:
        assert store.conversations() == []
