"""Files of other programs: detection, naming and errors."""

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import contextc as cc
from contextc.interchange import import_files
from contextc.interchange.file_import import detect_source, is_own_format
from contextc.interchange.input_files import InputFile
from contextc.interchange.sources import load_source, source_names
from tests.transcript_files import GARDEN, claude_lines, codex_lines

IMPORTS = Path(__file__).parent / "data" / "imports"


def test_every_source_reports_what_it_reads_and_is_found_by_its_file() -> None:
    """One more source is one more file, and no line elsewhere."""
    assert source_names() == [
        "claude-code",
        "codex",
        "deepchat",
        "har",
        "langgraph",
        "lhar",
        "llm",
        "openai-agents",
        "openinference",
        "opentelemetry",
        "request-log",
        "vercel",
    ]
    assert all(load_source(name).ABOUT for name in source_names())


def test_each_file_is_known_as_what_it_is(tmp_path: Path) -> None:
    """By what is in it, whatever it is called; of two sources never both."""
    exchange = {"request": {"model": "gpt-6", "messages": [{"role": "user", "content": "hi"}]}, "response": {}}
    page = {"id": "m1", "role": "user", "parts": [{"type": "text", "text": "hi"}]}
    files = {
        "claude-code": "\n".join(map(json.dumps, claude_lines(GARDEN, "/somewhere"))),
        "codex": "\n".join(map(json.dumps, codex_lines(GARDEN, "/somewhere"))),
        "deepchat": json.dumps({"session_id": "s", "role": "user", "content": '{"text": "hi"}', "status": "sent"}),
        "har": json.dumps({"log": {"entries": [{"request": {}}]}}),
        "lhar": json.dumps({"type": "entry", "trace_id": "t", "gen_ai": {}, "http": {}, "raw": {}}),
        "openinference": json.dumps({"span_id": "s", "attributes": {"openinference.span.kind": "LLM"}}),
        "opentelemetry": json.dumps({"span_id": "s", "attributes": {"gen_ai.request.model": "gpt-6"}}),
        "request-log": json.dumps(exchange),
        "vercel": json.dumps(page),
    }
    for name, text in files.items():
        path = tmp_path / "any.txt"
        path.write_text(text)
        assert detect_source(InputFile(path)) == name
        assert not is_own_format(InputFile(path))
    for path in sorted(IMPORTS.glob("*.*[bqe]")):
        expected = path.stem.partition("_old")[0].partition("_branches")[0].replace("_", "-")
        assert detect_source(InputFile(path)) == expected


@pytest.mark.parametrize(
    "text",
    [
        '{"type": "contextc", "version": 1}\n',
        '{"role": "user", "parts": [{"type": "text", "text": "hi"}]}\n',
        "",
    ],
)
def test_files_of_ours_are_known_too(text: str) -> None:
    file = InputFile(data=text.encode())
    assert is_own_format(file)
    assert detect_source(file) is None or text.startswith('{"role"')


def test_an_import_that_is_cut_off_leaves_whole_conversations_and_can_continue(store: cc.Store, tmp_path: Path) -> None:
    """Guarantee 3.2: each is one transaction; the next import brings the rest, and nothing twice."""
    seen = 0

    def stop(done: int, total: int) -> None:
        nonlocal seen
        seen = done
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        import_files(store, [IMPORTS / "llm.db"], progress=stop)
    assert [each.length for each in store.conversations()] == [5, 4]
    again = import_files(store, [IMPORTS / "llm.db"])
    assert [each.new for each in again.conversations] == [0, 0, 2]


KILLED = """
import os, sys, signal
import contextc as cc
from contextc.interchange import import_files

def tell(done, total):
    if done > 4_000:
        os.kill(os.getpid(), signal.SIGKILL)

with cc.open_store(sys.argv[1]) as store:
    import_files(store, [sys.argv[2]], progress=tell)
"""


def test_a_process_that_is_killed_in_the_middle_of_a_conversation_leaves_nothing_of_it(tmp_path: Path) -> None:
    """Guarantee 3.2: nothing half-written."""
    parts = [{"type": "text", "text": "Thyme."}]
    chat = [{"id": f"m{number}", "role": "user", "parts": parts} for number in range(9_000)]
    path = tmp_path / "chats.jsonl"
    path.write_text(
        json.dumps({"id": "short", "messages": chat[:9]}) + "\n" + json.dumps({"id": "long", "messages": chat})
    )
    address = f"sqlite:///{tmp_path}/chat.db"
    ended = subprocess.run([sys.executable, "-c", KILLED, address, str(path)], check=False, env=dict(os.environ))
    assert ended.returncode == -9
    with cc.open_store(address) as store:
        assert [(each.name, each.length) for each in store.conversations()] == [("vercel-short", 9)]
        assert import_files(store, [path]).total("new") == 9_000


def test_one_conversation_that_cannot_be_taken_does_not_keep_out_the_others(store: cc.Store) -> None:
    """Guarantee 15.1: it is reported with its reason."""
    store.append("openai-agents-garden", cc.user("Mine."))
    summary = import_files(store, [IMPORTS / "openai_agents.db"])
    garden, kitchen = summary.conversations
    assert (garden.new, kitchen.new, summary.refused) == (0, 2, 1)
    assert (garden.error or "").startswith("Conversation 'openai-agents-garden' already exists")
    assert store.conversation("openai-agents-garden").length == 1


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("Dear diary", "the kind of file cannot be recognised"),
        ('{"weather": "fine"}', "the kind of file cannot be recognised"),
        ('{"weather": "fine"}\n{"weather": "foul"}\n', "Pass source_name if it is one of claude-code"),
    ],
)
def test_a_file_of_unknown_origin_reports_what_there_is(
    store: cc.Store, tmp_path: Path, text: str, problem: str
) -> None:
    """Guarantee 15.1."""
    path = tmp_path / "notes.txt"
    path.write_text(text)
    with pytest.raises(cc.errors.InvalidInput, match=problem):
        import_files(store, [path])
    assert store.conversations() == []


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (
            gzip.compress(gzip.compress(b'{"request": {}}')),
            r"log\.jsonl is packed with gzip, twice\. Unpack it first: gunzip -k .*log\.jsonl",
        ),
        ('{"request": {}}'.encode("utf-16"), r"log\.jsonl is text in UTF-16\. Make it UTF-8 first: iconv"),
        (
            b'[{"type": "message", "role": "user", "content": []}]',
            "items of .* Read them with .*format='openai_responses'",
        ),
        (b'{"type": "message", "role": "user", "content": "hi"}\n', "format='openai_responses'"),
        (b'[{"role": "user", "content": "hi"}]', "format='openai_chat'"),
    ],
    ids=["gzip", "utf-16", "items", "lines of items", "messages"],
)
def test_a_file_that_holds_something_else_reports_what(
    store: cc.Store, tmp_path: Path, data: bytes, problem: str
) -> None:
    """Guarantee 15.1: what it is, and the way out."""
    path = tmp_path / "log.jsonl"
    path.write_bytes(data)
    assert not path.read_bytes().startswith(b"{") or not is_own_format(InputFile(path))
    with pytest.raises(cc.errors.InvalidInput, match=problem):
        import_files(store, [path])


def test_invalid_utf8_is_imported_in_files_of_one_value_too(store: cc.Store, tmp_path: Path) -> None:
    """Another encoding costs its own characters, and nothing else."""
    for number, data in enumerate(
        (
            b'[{"id": "1", "role": "user", "parts": [{"type": "text", "text": "caf\xe9"}]}]',
            b'{"request": {"model": "gpt-6", "messages": [{"role": "user", "content": "caf\xe9"}]}, "response": {}}',
        )
    ):
        path = tmp_path / f"{number}.json"
        path.write_bytes(data)
        (taken,) = import_files(store, [path]).conversations
        assert store.load(taken.name)[0].text == "caf\ufffd"


def test_usage_is_unknown_where_none_came(store: cc.Store, tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    choice = {"index": 0, "message": {"role": "assistant", "content": "Hello."}}
    request = {"model": "gpt-6", "messages": [{"role": "user", "content": "hi"}]}
    path.write_text(json.dumps({"request": request, "response": {"choices": [choice]}}))
    (taken,) = import_files(store, [path]).conversations
    assert (taken.input_tokens, taken.output_tokens) == (None, None)
    assert [message.usage for message in store.load(taken.name)] == [None, None]


def test_a_source_that_is_written_almost_right_is_named() -> None:
    """Guarantee 15.1."""
    with pytest.raises(cc.errors.InvalidInput, match=r"Source 'langraph' not found\. Did you mean langgraph\?"):
        load_source("langraph")


def test_files_of_two_programs_are_not_read_as_one(store: cc.Store) -> None:
    with pytest.raises(cc.errors.InvalidInput, match=r"different sources: langgraph, llm\. Import the files"):
        import_files(store, [IMPORTS / "langgraph.sqlite", IMPORTS / "llm.db"])
