"""Conversations of DeepChat: databases in its older and its current schema, and its records as JSON Lines."""

import json
import re
import sqlite3
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import pytest

import contextc as cc
from contextc._json import JSONObject
from contextc.doctor import scan_store
from contextc.errors import InvalidImport
from contextc.interchange import ImportSummary, import_files


@pytest.fixture
def store() -> Iterator[cc.Store]:
    """A store in memory: how messages are written is tested for all stores elsewhere."""
    with cc.open_store("memory:") as opened:
        yield opened


PIXEL = b"\x89PNG\r\n\x1a\n" + b"0" * 8
MESSAGES = """CREATE TABLE deepchat_messages (id TEXT PRIMARY KEY, session_id TEXT NOT NULL, order_seq INTEGER NOT NULL,
    role TEXT NOT NULL, content TEXT NOT NULL, status TEXT DEFAULT 'pending', is_context_edge INTEGER DEFAULT 0,
    metadata TEXT DEFAULT '{}', created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL)"""
CURRENT = """
    CREATE TABLE new_sessions (id TEXT PRIMARY KEY, title TEXT NOT NULL);
    CREATE TABLE deepchat_user_messages (message_id TEXT PRIMARY KEY, text TEXT NOT NULL);
    CREATE TABLE deepchat_user_message_files (message_id TEXT, ordinal INTEGER, name TEXT, path TEXT, mime_type TEXT,
        size INTEGER, metadata_json TEXT);
    CREATE TABLE deepchat_user_message_links (message_id TEXT, ordinal INTEGER, url TEXT);
    CREATE TABLE deepchat_assistant_blocks (message_id TEXT, block_index INTEGER, block_type TEXT, status TEXT,
        text_content TEXT, tool_call_id TEXT, tool_name TEXT, tool_params TEXT, tool_response TEXT, action_type TEXT,
        image_mime_type TEXT, extra_json TEXT, updated_at INTEGER);
    INSERT INTO new_sessions VALUES ('s1', 'Herbs');
    INSERT INTO deepchat_user_messages VALUES ('m1', 'What grows here?');
    INSERT INTO deepchat_user_message_files VALUES
        ('m1', 0, 'a.md', '/home/ann/a.md', 'text/markdown', 4, '{"content": "# Bed"}');
    INSERT INTO deepchat_user_message_links VALUES ('m1', 0, 'https://example.org');
    INSERT INTO deepchat_assistant_blocks VALUES
        ('m2', 0, 'content', 'success', 'Thyme.', NULL, NULL, NULL, NULL, NULL, NULL, '{}', 1),
        ('m2', 1, 'tool_call', 'success', '', 'c1', 'look', '{"at": 1}', 'Moss too.', NULL, NULL, '{}', 1);
"""


def user(text: str, **more: object) -> JSONObject:
    return {"text": text, "files": [], "links": [], "search": False, "think": False, **more}


def block(kind: str, content: str = "", **more: object) -> JSONObject:
    return {"type": kind, "content": content, "status": "success", "timestamp": 1, **more}


def record(
    id: str, role: str, content: object, status: str = "sent", session: str = "s1", **more: object
) -> JSONObject:
    return {"id": id, "session_id": session, "role": role, "content": json.dumps(content), "status": status, **more}


TALK = [
    record("m1", "user", user("hello")),
    record("m2", "assistant", [block("reasoning_content", "Hm. "), block("content", "Hi there.")]),
    record("m3", "user", user("more")),
    record("m4", "assistant", [block("content", "Half"), block("error", "overloaded")], "error"),
    record("m5", "user", user("again")),
    record("m6", "assistant", [block("content", "Being wri")], "pending"),
]


def write_lines(path: Path, records: list[JSONObject]) -> Path:
    path.write_text("".join(json.dumps(each) + "\n" for each in records))
    return path


def write_database(path: Path, records: list[JSONObject], script: str = "") -> Path:
    with sqlite3.connect(path) as database:
        database.execute(MESSAGES)
        for number, each in enumerate(records):
            fields = [each[name] for name in ("id", "session_id", "role", "content", "status")]
            row = (
                *fields[:2],
                len(records) - number,
                *fields[2:],
                each.get("metadata", "{}"),
                1_700_000_000_000 + number,
            )
            columns = "id, session_id, order_seq, role, content, status, metadata, created_at, updated_at"
            database.execute(f"INSERT INTO deepchat_messages ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0)", row)
        database.executescript(script)
    database.close()
    return path


def statuses(store: cc.Store, name: str) -> list[tuple[str, str, str | None]]:
    return [(message.text, message.status, message.error) for message in store.load(name)]


@pytest.mark.parametrize("kind", ["lines", "database", "list"])
def test_records_keep_their_order_status_and_reasoning(store: cc.Store, tmp_path: Path, kind: str) -> None:
    """Guarantee 3.8: the kind is detected. A database is read in the order of its column, not of its rows."""
    if kind == "database":
        file = write_database(tmp_path / "chat.db", TALK[::-1])
    elif kind == "lines":
        file = write_lines(tmp_path / "chat.jsonl", TALK)
    else:
        file = tmp_path / "chat.json"
        file.write_text(json.dumps(TALK))
    summary = import_files(store, [file])
    assert (summary.source, [each.name for each in summary.conversations]) == ("deepchat", ["deepchat-s1"])
    assert statuses(store, "deepchat-s1") == [
        ("hello", "sent", None),
        ("Hi there.", "sent", None),
        ("more", "sent", None),
        ("Half", "error", "overloaded"),
        ("again", "sent", None),
        ("Being wri", "cancelled", None),
    ]
    provider = cc.provider("openai-chat:gpt-4o", window=4_000, output=500)
    request = cc.MessageCompiler(store, provider, policy="sliding_window").compile("deepchat-s1", instructions="S")
    messages: list[JSONObject] = request.params["messages"]
    assert [each["content"] for each in messages] == ["S", "hello", "Hm. Hi there.", "more", "again"]
    assert list(scan_store(store)) == []


@pytest.mark.parametrize("text", ["Being written: done.", "Being wri"], ids=["longer", "same text"])
def test_a_second_import_adds_only_what_is_new(store: cc.Store, tmp_path: Path, text: str) -> None:
    """Guarantee 3.8: a reply that was pending, and is complete now, is where the conversation continues."""
    file = write_lines(tmp_path / "chat.jsonl", TALK)
    import_files(store, [file])
    assert [each.new for each in import_files(store, [file]).conversations] == [0]
    done = record("m6", "assistant", [block("content", text)])
    write_lines(file, [*TALK[:5], done, record("m7", "user", user("thanks"))])
    assert [each.new for each in import_files(store, [file]).conversations] == [2]
    assert statuses(store, "deepchat-s1")[-3:] == [
        ("again", "sent", None),
        (text, "sent", None),
        ("thanks", "sent", None),
    ]


def test_calls_results_files_and_images_come_in_as_parts(store: cc.Store, tmp_path: Path) -> None:
    """Guarantees 2.1, 5.1: each step of a reply is a message with its calls, followed by the results."""
    image = b64encode(PIXEL).decode()
    call = {"id": "c1", "name": "look", "params": '{"at": 1}', "response": "Thyme."}
    failed = {"id": "c2", "name": "look", "params": '{"at": 2}', "response": "No such bed."}
    files = [
        {"name": "a.png", "path": "/a.png", "mimeType": "image/png", "content": f"data:image/png;base64,{image}"},
        {"name": "b.pdf", "path": "/b.pdf", "mimeType": "application/pdf", "content": "its text"},
        {"name": "c.bin", "path": "/c.bin"},
    ]
    records = [
        record("m1", "user", user("look", files=files, links=["https://example.org"]), createdAt=1_700_000_000_000),
        record(
            "m2",
            "assistant",
            [
                block("content", "Let me see."),
                block("tool_call", tool_call=call),
                block("tool_call", tool_call=failed, status="error"),
                block("content", "Thyme grows there."),
                block("image", image_data={"data": image, "mimeType": "image/png"}),
                block("plan", extra={"plan_revision": 1}),
            ],
        ),
        record("m3", "user", user("thanks")),
        record("m4", "assistant", [block("content", "Bye.")], metadata='{"inputTokens": 30, "outputTokens": 4}'),
    ]
    summary = import_files(store, [write_lines(tmp_path / "chat.jsonl", records)])
    assert list(summary.left_out) == ["a file whose content is not in the record"]
    asked, step, results, answer, _, last = store.load("deepchat-s1")
    assert (asked.meta or {})["links"] == ["https://example.org"]
    assert asked.time == 1_700_000_000_000
    kinds = [(part.mime_type, part.name, part.size) for part in asked.parts if isinstance(part, cc.Media)]
    assert kinds == [("image/png", "a.png", 16), ("text/plain", "b.pdf", 8)]
    assert [(made.id, made.arguments) for made in step.tool_calls] == [("c1", {"at": 1}), ("c2", {"at": 2})]
    assert [(made.text, made.is_error) for made in results.tool_results] == [("Thyme.", False), ("No such bed.", True)]
    assert [type(part).__name__ for part in answer.parts] == ["Text", "Media", "ProviderBlock"]
    assert (last.usage, last.finish) == (cc.Usage(input=30, output=4), "stop")


def test_the_tables_of_the_current_schema_come_before_the_records(store: cc.Store, tmp_path: Path) -> None:
    """DeepChat reads them first: the record of a streamed reply may be behind."""
    records = [record("m2", "assistant", [block("content", "Th")]), record("m1", "user", user("old"))]
    import_files(store, [write_database(tmp_path / "agent.db", records, CURRENT)])
    asked, reply, result = store.load("deepchat-s1")
    assert (asked.text, (asked.meta or {})["links"]) == ("What grows here?", ["https://example.org"])
    assert [part.name for part in asked.parts if isinstance(part, cc.Media)] == ["a.md"]
    assert (asked.meta or {})["imported"] == {"from": "deepchat", "id": "s1", "title": "Herbs"}
    assert (reply.text, [call.name for call in reply.tool_calls]) == ("Thyme.", ["look"])
    assert [each.text for each in result.tool_results] == ["Moss too."]


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (record("m9", "assistant", {"text": "x"}, session="s2"), "record m9: content must be a list of blocks, got an"),
        (record("m9", "user", [block("content")], session="s2"), "record m9: content must be an object with a text"),
        ({**record("m9", "user", "", session="s2"), "content": "{"}, "record m9: content must be JSON"),
        (
            {**record("m9", "assistant", [], session="s2"), "content": b"\xff"},
            "record m9: content must be a list of blocks, got bytes. Correct the record",
        ),
        (record("m9", "user", {"text": 5}, session="s2"), "record m9: content.text must be a string, got a number"),
        (
            record("m9", "assistant", [block("content"), 5], session="s2"),
            "record m9: content[1] must be a block, got a number",
        ),
        (
            record("m9", "assistant", [{"type": "content", "content": 7}], session="s2"),
            "record m9: content[0].content must be a string, got a number",
        ),
        (
            record("m9", "assistant", [{"type": "tool_call", "tool_call": "x"}], session="s2"),
            "record m9: content[0].tool_call must be an object, got a string",
        ),
    ],
    ids=["blocks", "text", "JSON", "bytes", "number", "block", "block text", "call"],
)
def test_a_wrong_record_refuses_its_conversation_alone(
    store: cc.Store, tmp_path: Path, wrong: JSONObject, error: str
) -> None:
    """Guarantee 15.1: the error names the record, and nothing of its conversation is stored."""
    records = [*TALK[1::-1], wrong, record("m8", "user", user("kept back"), session="s2")]
    summary: ImportSummary = import_files(store, [write_database(tmp_path / "chat.db", records)])
    assert summary.refused == 1
    assert sum(error in (each.error or "") for each in summary.conversations) == 1
    assert [each.name for each in store.conversations()] == ["deepchat-s1"]


def test_a_line_that_is_no_record_stores_nothing(store: cc.Store, tmp_path: Path) -> None:
    """Guarantee 15.1: the error names the line, before anything is written."""
    file = write_lines(tmp_path / "chat.jsonl", [*TALK, record("m9", "robot", user("x"))])
    with pytest.raises(InvalidImport, match="line 7: expected a record with session_id, role"):
        import_files(store, [file])
    assert store.conversations() == []


@pytest.mark.parametrize("others", [TALK[:1], []], ids=["beside another", "alone"])
def test_a_record_without_a_session_is_named(store: cc.Store, tmp_path: Path, others: list[JSONObject]) -> None:
    """Guarantee 15.1: it is not reported as an empty conversation, and the others are imported."""
    file = tmp_path / "chat.db"
    with sqlite3.connect(file) as database:
        database.execute("CREATE TABLE deepchat_messages (id, session_id, role, content, status)")
        lost = [{**record(id, "user", user("lost")), "session_id": None} for id in ("m8", "m9")]
        rows = [tuple(each.values()) for each in [*others, *lost]]
        database.executemany("INSERT INTO deepchat_messages VALUES (?, ?, ?, ?, ?)", rows)
    database.close()
    problem = "record m8 and 1 more: session_id must be text, got null. Correct the record, or remove it."
    if not others:
        with pytest.raises(cc.errors.InvalidInput, match=re.escape(problem)):
            import_files(store, [file])
        return
    summary = import_files(store, [file])
    assert [each.error for each in summary.conversations] == [problem, None]
    assert (summary.refused, summary.left_out) == (1, ())
    assert [each.name for each in store.conversations()] == ["deepchat-s1"]


def test_the_messages_of_a_summary_are_those_of_the_stored_conversation(store: cc.Store, tmp_path: Path) -> None:
    """Guarantee 3.8: a shorter file, and one whose conversation has continued here, have fewer than the store."""
    file = write_lines(tmp_path / "chat.jsonl", TALK)
    import_files(store, [file])
    store.append("deepchat-s1", cc.user("continued here"))
    for records in (TALK, TALK[:3]):
        (found,) = import_files(store, [write_lines(file, records)]).conversations
        assert (found.messages, found.length, found.new) == (7, 7, 0)
