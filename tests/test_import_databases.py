"""Databases of other libraries, written by those libraries (tests/data/imports), as conversations."""

import json
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

import contextc as cc
from contextc.doctor import scan_store
from contextc.interchange import ImportSummary, import_files

IMPORTS = Path(__file__).parent / "data" / "imports"
GARDEN = ["user: What grows here?", "assistant: Thyme.", "user: And in winter?", "assistant: Moss."]


def texts_of(store: cc.Store, conversation: str, branch: int | None = None) -> list[str]:
    """What a conversation says, in one line a message."""
    return [
        f"{message.role}: {message.text}"
        + "".join(f"{call.id} {call.name}({call.raw or call.arguments})" for call in message.tool_calls)
        + "".join(f"{result.call_id} {result.name}: {result.text}" for result in message.tool_results)
        for message in store.load(conversation, branch=branch)
    ]


def figures(summary: ImportSummary) -> list[tuple[str, int, int, int, int]]:
    return [(each.name, each.messages, each.new, each.tool_calls, each.branches) for each in summary.conversations]


def test_a_session_of_openai_agents_comes_in_with_its_calls_and_reasoning(store: cc.Store) -> None:
    """Guarantee 3.8: parallel calls of one reply are one message."""
    summary = import_files(store, [IMPORTS / "openai_agents.db"])
    assert summary.source == "openai-agents"
    assert figures(summary) == [("openai-agents-garden", 7, 7, 2, 1), ("openai-agents-kitchen", 2, 2, 0, 1)]
    assert texts_of(store, "openai-agents-garden") == [
        "user: What grows here?",
        'assistant: c1 look({"at": "bed 1"})c2 look({"at": "bed 2"})',
        "tool: c1 look: Thyme grows in bed 1.",
        "tool: c2 look: Thyme grows in bed 2.",
        "assistant: Thyme does.",
        "user: And in winter?",
        "assistant: Moss.",
    ]
    first, reply, *_ = store.load("openai-agents-garden")
    assert first.at.isoformat().startswith("2026-11-15T18:07")
    assert reply.parts[0] == cc.Reasoning(text="I should look.", id="rs_1", provider="openai")
    assert list(scan_store(store)) == []


def test_branches_of_openai_agents_are_branches(store: cc.Store) -> None:
    """Guarantee 3.5: what they share is stored once; the one that was written last is the current one."""
    summary = import_files(store, [IMPORTS / "openai_agents_branches.db"])
    assert figures(summary) == [("openai-agents-garden", 6, 6, 0, 2)]
    one, two = store.branches("openai-agents-garden")
    assert texts_of(store, "openai-agents-garden", one.number) == GARDEN
    assert texts_of(store, "openai-agents-garden") == [*GARDEN[:2], "user: And in spring?", "assistant: Crocus."]
    assert (two.base, two.current) == (2, True)


def test_a_thread_of_langgraph_comes_in_with_every_way_it_went(store: cc.Store) -> None:
    """Guarantee 3.8: LangChain's messages, in their provider's blocks."""
    summary = import_files(store, [IMPORTS / "langgraph.sqlite"])
    assert figures(summary) == [("langgraph-garden", 9, 9, 2, 2), ("langgraph-kitchen", 2, 2, 0, 1)]
    assert (summary.total("input_tokens"), summary.total("output_tokens")) == (40, 10)
    shared = [
        "system: Be brief.",
        "user: What grows here?",
        "assistant: Let me see.c1 look({'at': 'bed 1'})",
        "tool: c1 look: Thyme grows in bed 1.",
        "assistant: Thyme does.",
    ]
    winter, spring = store.branches("langgraph-garden")
    assert texts_of(store, "langgraph-garden", winter.number) == [
        *shared,
        "user: And in winter?",
        'assistant: Moss.c2 look({"at": )',
    ]
    assert texts_of(store, "langgraph-garden") == [*shared, "user: And in spring?", "assistant: Crocus."]
    assert spring.current
    _, asked, reply, *_ = store.load("langgraph-garden")
    assert asked.author == "ada"
    assert isinstance(picture := asked.parts[1], cc.Media)
    assert store.blob(picture.blob or "").startswith(b"\x89PNG")
    assert reply.parts[0] == cc.Reasoning(
        text="I should look.", signature="c2lnbmVk", provider="anthropic", model="claude-sonnet-4-5"
    )
    assert (reply.finish, reply.usage) == ("tool_calls", cc.Usage(input=20, output=5, cache_read=4))
    assert store.load("langgraph-garden", branch=winter.number)[-1].tool_calls[0].malformed


def test_nothing_that_a_checkpoint_names_is_imported_or_run(store: cc.Store, tmp_path: Path) -> None:
    """A file of a stranger may name any function there is; its names are data, and its pickles stay closed."""
    trap = tmp_path / "sprung"
    path = tmp_path / "foreign.sqlite"
    shutil.copy(IMPORTS / "langgraph.sqlite", path)
    named = msgspec.msgpack.encode(["os", "mkdir", str(trap)])
    text = msgspec.msgpack.encode(["any.module", "HumanMessage", {"type": "human", "content": "Hello."}, "run"])
    values = {"trap": msgspec.msgpack.Ext(0, named), "messages": [msgspec.msgpack.Ext(5, text)]}
    with sqlite3.connect(path) as connection:
        insert = "INSERT INTO checkpoints (thread_id, checkpoint_id, type, checkpoint) VALUES (?, ?, ?, ?)"
        connection.execute(insert, ("odd", "1", "msgpack", msgspec.msgpack.encode({"channel_values": values})))
        connection.execute(insert, ("pickled", "1", "pickle", b"cos\nmkdir\n."))
        connection.execute(insert, ("torn", "1", "msgpack", b"\x85\xa1"))
    connection.close()
    summary = import_files(store, [path])
    assert texts_of(store, "langgraph-odd") == ["user: Hello."]
    assert not trap.exists()
    assert [note.partition(":")[0] for note in summary.left_out] == [
        "thread 'pickled'",
        "a conversation without messages (2 times)",
        "thread 'torn'",
    ]


def test_checkpoints_of_older_versions_are_json(store: cc.Store, tmp_path: Path) -> None:
    path = tmp_path / "old.sqlite"
    shutil.copy(IMPORTS / "langgraph.sqlite", path)
    old = {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", "HumanMessage"]}
    value = {"channel_values": {"messages": [{**old, "kwargs": {"content": "Hello.", "type": "human"}}]}}
    with sqlite3.connect(path) as connection:
        connection.execute("DELETE FROM checkpoints")
        insert = "INSERT INTO checkpoints (thread_id, checkpoint_id, type, checkpoint) VALUES ('old', '1', 'json', ?)"
        connection.execute(insert, (msgspec.json.encode(value),))
    connection.close()
    import_files(store, [path])
    assert texts_of(store, "langgraph-old") == ["user: Hello."]


@pytest.mark.parametrize("name", ["llm.db", "llm_old.db"])
def test_conversations_of_llm_come_in_from_either_schema(store: cc.Store, name: str) -> None:
    """Guarantee 3.8: fragments in their texts, attachments as media, titles and times kept."""
    summary = import_files(store, [IMPORTS / name])
    assert summary.source == "llm"
    assert [each[1:] for each in figures(summary)] == [(5, 5, 0, 1), (4, 4, 1, 1), (2, 2, 0, 1)]
    assert [each.title for each in summary.conversations] == [
        "A bed of herbs. What grows here?",
        "And in bed 1?",
        "Lunch?",
    ]
    assert (summary.total("input_tokens"), summary.total("output_tokens")) == (60, 15)
    garden, bed, _ = [each.name for each in summary.conversations]
    assert texts_of(store, garden) == [
        "system: Be brief.",
        "user: A bed of herbs.\nWhat grows here?",
        "assistant: Thyme does.",
        "user: And in winter?",
        "assistant: Moss.",
    ]
    assert texts_of(store, bed) == [
        "user: And in bed 1?",
        "assistant: c1 look({'at': 'bed 1'})",
        "tool: c1 look: Thyme grows in bed 1.",
        "assistant: Thyme, too.",
    ]
    first, asked, *_ = store.load(garden)
    assert isinstance(picture := asked.parts[1], cc.Media)
    assert store.blob(picture.blob or "").startswith(b"\x89PNG")
    assert all(message.at.isoformat().startswith("2026-11-15T18:07") for message in store.load(garden))
    assert first.meta == {
        "imported": {"from": "llm", "id": garden.removeprefix("llm-"), "title": "A bed of herbs. What grows here?"}
    }


def test_an_attachment_that_lies_elsewhere_is_left_out(store: cc.Store, tmp_path: Path) -> None:
    """What a stranger's database names is not opened."""
    (tmp_path / "secret.png").write_bytes(b"secret")
    path = tmp_path / "logs.db"
    shutil.copy(IMPORTS / "llm.db", path)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE attachments SET content = NULL, path = ?", (str(tmp_path / "secret.png"),))
    connection.close()
    summary = import_files(store, [path])
    assert summary.left_out == ("an attachment whose bytes are not in the database",)


@pytest.mark.parametrize("name", ["openai_agents.db", "openai_agents_branches.db", "langgraph.sqlite", "llm.db"])
def test_the_same_file_again_adds_nothing_and_one_that_grew_adds_its_tail(
    store: cc.Store, tmp_path: Path, name: str
) -> None:
    """Guarantee 3.5; and the file stays as it was."""
    before = (IMPORTS / name).read_bytes()
    first = import_files(store, [IMPORTS / name])
    again = import_files(store, [IMPORTS / name])
    assert (again.total("new"), again.total("messages")) == (0, first.total("messages"))
    assert (IMPORTS / name).read_bytes() == before
    assert [path.name for path in IMPORTS.glob(f"{name}-*")] == []


def test_a_session_that_grew_adds_its_tail_and_a_new_branch(store: cc.Store, tmp_path: Path) -> None:
    """Guarantee 3.5: the branch that was current stays it."""
    path = tmp_path / "sessions.db"
    shutil.copy(IMPORTS / "openai_agents_branches.db", path)
    import_files(store, [path])
    with sqlite3.connect(path) as connection:
        item = '{"role": "user", "content": "%s"}'
        add = "INSERT INTO agent_messages (id, session_id, message_data) VALUES (?, 'garden', ?)"
        connection.execute(add, (7, item % "Thanks."))
        connection.execute(add, (8, item % "And in autumn?"))
        link = (
            "INSERT INTO message_structure (session_id, message_id, branch_id, message_type, sequence_number)"
            " VALUES ('garden', ?, ?, 'user', ?)"
        )
        for row in ((7, "spring", 9), (1, "autumn", 10), (2, "autumn", 11), (8, "autumn", 12)):
            connection.execute(link, row)
    connection.close()
    assert import_files(store, [path]).total("new") == 2
    spring = [*GARDEN[:2], "user: And in spring?", "assistant: Crocus.", "user: Thanks."]
    assert texts_of(store, "openai-agents-garden") == spring
    assert [
        texts_of(store, "openai-agents-garden", each.number)[2:] for each in store.branches("openai-agents-garden")
    ] == [
        GARDEN[2:],
        spring[2:],
        ["user: And in autumn?"],
    ]
    assert [finding for finding in scan_store(store) if finding.kind == "fault"] == []


def test_another_session_of_the_same_name_is_not_mixed_in(store: cc.Store) -> None:
    """Guarantee 15.1: both begin alike and are two; the way out is another name."""
    import_files(store, [IMPORTS / "openai_agents.db"])
    with pytest.raises(cc.errors.InvalidInput, match=r"differ after message 1\. .* another name"):
        import_files(store, [IMPORTS / "openai_agents_branches.db"])
    assert len(store.branches("openai-agents-garden")) == 1
    assert import_files(store, [IMPORTS / "openai_agents_branches.db"], into="other").total("new") == 6


def test_a_database_that_is_being_written_is_read_with_its_log(store: cc.Store, tmp_path: Path) -> None:
    """What is committed is in it; and nothing is written beside it, whether its writer lives or has died."""
    path = tmp_path / "sessions.db"
    shutil.copy(IMPORTS / "openai_agents.db", path)
    writer = sqlite3.connect(path)
    writer.execute("PRAGMA journal_mode=WAL")
    writer.execute(
        "INSERT INTO agent_messages (session_id, message_data) VALUES ('kitchen', ?)",
        ('{"role": "user", "content": "More."}',),
    )
    writer.commit()
    died = tmp_path / "died"
    died.mkdir()
    for name in ("sessions.db", "sessions.db-wal"):
        shutil.copy(tmp_path / name, died / name)
    import_files(store, [path])
    assert texts_of(store, "openai-agents-kitchen")[-1] == "user: More."
    writer.close()
    import_files(store, [died / "sessions.db"], into="died")
    assert texts_of(store, "died-kitchen")[-1] == "user: More."
    assert sorted(each.name for each in died.iterdir()) == ["sessions.db", "sessions.db-wal"]


WRITER = """
import os, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute(f"PRAGMA journal_mode={sys.argv[2]}")
connection.execute("PRAGMA cache_size=1")
add = "INSERT INTO agent_messages (session_id, message_data) VALUES ('kitchen', ?)"
connection.execute(add, ('{"role": "user", "content": "More."}',))
connection.execute("BEGIN")
for _ in range(2000):
    connection.execute(add, ('{"role": "user", "content": "Never said."}',))
os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize("mode", ["wal", "delete"])
def test_what_a_killed_writer_left_is_read_and_stays_as_it_is(store: cc.Store, tmp_path: Path, mode: str) -> None:
    """Files are read and never written: neither the database, nor its log, its index or its journal."""
    folder = tmp_path / "theirs"
    folder.mkdir()
    path = folder / "sessions.db"
    shutil.copy(IMPORTS / "openai_agents.db", path)
    subprocess.run([sys.executable, "-c", WRITER, str(path), mode], check=False)
    before = {each.name: each.read_bytes() for each in folder.iterdir()}
    assert (
        sorted(before)[1:] == {"wal": ["sessions.db-shm", "sessions.db-wal"], "delete": ["sessions.db-journal"]}[mode]
    )
    import_files(store, [path])
    assert texts_of(store, "openai-agents-kitchen")[2:] == ["user: More."]
    assert {each.name: each.read_bytes() for each in folder.iterdir()} == before


def test_a_second_table_of_sessions_comes_in_too(store: cc.Store, tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    shutil.copy(IMPORTS / "openai_agents.db", path)
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE aaa AS SELECT id, session_id, message_data, created_at FROM agent_messages")
    connection.close()
    assert [each.name for each in import_files(store, [path]).conversations] == [
        "openai-agents-garden",
        "openai-agents-kitchen",
        "openai-agents-aaa-garden",
        "openai-agents-aaa-kitchen",
    ]


@pytest.mark.parametrize(
    ("name", "change", "error"),
    [
        ("llm.db", "UPDATE threads SET tip_message_hash = 'gone' WHERE rowid = 1", "'gone' not found in the database"),
        ("llm.db", "DELETE FROM messages WHERE rowid = 1", "not found in the database"),
        ("langgraph.sqlite", "UPDATE checkpoints SET checkpoint = x'{}' WHERE thread_id = 'kitchen'", "not a string"),
    ],
)
def test_a_source_that_stumbles_over_one_conversation_finds_the_others(
    store: cc.Store, tmp_path: Path, name: str, change: str, error: str
) -> None:
    """Guarantee 15.1: it is reported, and the others are imported."""
    path = tmp_path / name
    shutil.copy(IMPORTS / name, path)
    call = {"name": "f", "args": {1: 2}, "id": "c1"}
    odd = {"channel_values": {"messages": [{"type": "ai", "content": "x", "tool_calls": [call]}]}}
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA foreign_keys = OFF")
        connection.execute(change.format(msgspec.msgpack.encode(odd).hex()))
    connection.close()
    summary = import_files(store, [path])
    errors = [each.error for each in summary.conversations if each.error is not None]
    assert len(errors) == 1
    assert error in errors[0]
    assert summary.total("new") >= 2


OLD_LLM = """
CREATE TABLE conversations (id, name, model);
CREATE TABLE responses (id, prompt, system, response, conversation_id, datetime_utc, input_tokens, output_tokens);
CREATE TABLE attachments (id, type, path, url, content);
CREATE TABLE prompt_attachments (response_id, attachment_id, "order");
INSERT INTO conversations VALUES ('c1', 'n', 'm'), (7, 'n', 'm');
INSERT INTO responses VALUES ('r1', 5, NULL, x'6f6b', 'c1', 17, 'many', -1), ('r2', 'alone', NULL, 'x', NULL, '', 1, 1);
INSERT INTO responses VALUES ('r3', 'Lunch?', NULL, 'Yes.', 7, '', NULL, NULL);
INSERT INTO attachments VALUES ('a', 'image/png', NULL, NULL, 3000000000), ('b', 'image/png', NULL, NULL, 'text');
INSERT INTO prompt_attachments VALUES ('r1', 'a', 0), ('r1', 'b', 1);
"""


def test_columns_of_llm_may_hold_anything(store: cc.Store, tmp_path: Path) -> None:
    """SQLite checks no types: a number is not a size, and what is of no conversation is counted."""
    path = tmp_path / "logs.db"
    with sqlite3.connect(path) as connection:
        connection.executescript(OLD_LLM)
    connection.close()
    summary = import_files(store, [path])
    assert [(each.name, each.input_tokens) for each in summary.conversations] == [("llm-7", None), ("llm-c1", None)]
    assert texts_of(store, "llm-c1") == ["user: 5", "assistant: ok"]
    assert summary.left_out == (
        "an attachment whose bytes are not in the database (2 times)",
        "a response without a conversation",
    )


def test_what_gives_out_in_the_middle_is_reported_with_what_was_stored(store: cc.Store, tmp_path: Path) -> None:
    """Guarantee 15.1: the summary says what is there."""
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
    summary = import_files(store, [path])
    assert 0 < len(summary.conversations) == len(store.conversations()) < 40
    assert (summary.stopped or "").startswith(f"{path} cannot be read as a database")


def test_a_healthy_file_of_another_program_is_not_called_damaged(store: cc.Store) -> None:
    """Guarantee 15.1: the error states what the file is."""
    with pytest.raises(cc.errors.InvalidInput, match=r"read as llm\. Pass source_name='openai-agents'"):
        import_files(store, [IMPORTS / "openai_agents.db"], source_name="llm")


def test_a_damaged_or_foreign_database_is_reported(store: cc.Store, tmp_path: Path) -> None:
    """Guarantee 15.1: what is wrong, and the way out; nothing is stored."""
    damaged = tmp_path / "damaged.db"
    damaged.write_bytes((IMPORTS / "llm.db").read_bytes()[:3000])
    with pytest.raises(cc.errors.InvalidInput, match=r"damaged\.db cannot be read as a database: .* \.recover"):
        import_files(store, [damaged])
    foreign = tmp_path / "foreign.db"
    with sqlite3.connect(foreign) as connection:
        connection.execute("CREATE TABLE birds (name)")
    connection.close()
    with pytest.raises(cc.errors.InvalidInput, match=r"cannot be recognised.*openai-agents"):
        import_files(store, [foreign])
    with pytest.raises(cc.errors.InvalidInput, match="has no conversation when read as"):
        import_files(store, [foreign], source_name="openai-agents")
    assert store.conversations() == []
