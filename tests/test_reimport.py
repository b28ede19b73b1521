"""Repeated imports of a file: the target conversation, new messages, and refusals."""

import json
import sqlite3
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import msgspec
import pytest

import contextc as cc
from contextc._json import JSONObject
from contextc.compiler.ledger import load_rows
from contextc.doctor import repair_conversations, scan_store
from contextc.inspection.request_timeline import load_timeline
from contextc.interchange import import_files
from contextc.interchange.sources.langgraph import LEAF_QUERY
from contextc.store.ledger_schema import RowRange
from contextc.store.message_log import SEQ_MASK


def user(text: str) -> JSONObject:
    return {"role": "user", "content": text}


def reply(text: str) -> JSONObject:
    return {"role": "assistant", "content": text}


def exchange(answer: str, *messages: JSONObject, session: str = "") -> JSONObject:
    body = {"model": "gpt-6", "messages": list(messages)}
    choice = {"index": 0, "finish_reason": "stop", "message": reply(answer)}
    return {"request": body, "response": {"choices": [choice]}, **({"session_id": session} if session else {})}


def talk(turns: int, session: str = "") -> list[JSONObject]:
    """Exchanges that each hold those before."""
    texts: list[JSONObject] = []
    found: list[JSONObject] = []
    for number in range(turns):
        texts = [*texts, user(f"q{number}")]
        found.append(exchange(f"a{number}", *texts, session=session))
        texts = [*texts, reply(f"a{number}")]
    return found


def written(path: Path, values: Iterable[object]) -> Path:
    path.write_text("".join(json.dumps(value) + "\n" for value in values))
    return path


def chat(path: Path, *texts: str, id: str = "garden") -> Path:
    parts = [[{"type": "text", "text": text}] for text in texts]
    roles = ("user", "assistant")
    messages = [{"id": f"m{at}", "role": roles[at % 2], "parts": each} for at, each in enumerate(parts)]
    path.write_text(json.dumps({"id": id, "messages": messages} if id else messages))
    return path


def chats(path: Path, **turns: int) -> Path:
    """Chats with a number of turns each."""
    found: list[JSONObject] = []
    for id, count in turns.items():
        texts = [text for number in range(count) for text in (f"q{number}", f"a{number}")]
        messages = [
            {"id": f"{id}-{at}", "role": ("user", "assistant")[at % 2], "parts": [{"type": "text", "text": text}]}
            for at, text in enumerate(texts)
        ]
        found.append({"id": id, "messages": messages})
    return written(path, found)


def threads(path: Path, **said: str) -> Path:
    """A file of LangGraph with threads of one message each."""
    path.unlink(missing_ok=True)
    with sqlite3.connect(path) as connection:
        connection.execute(
            "CREATE TABLE checkpoints (thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, checkpoint)"
        )
        for thread, text in said.items():
            value = {"channel_values": {"messages": [{"type": "human", "content": text}]}}
            row = (thread, "", "1", None, "msgpack", msgspec.msgpack.encode(value))
            connection.execute("INSERT INTO checkpoints VALUES (?, ?, ?, ?, ?, ?)", row)
    connection.close()
    return path


def texts(store: cc.Store, conversation: str, branch: int | None = None) -> list[str]:
    return [message.text for message in store.load(conversation, branch=branch)]


def named(store: cc.Store) -> dict[str, list[str]]:
    return {each.name: texts(store, each.name) for each in store.conversations()}


def test_ids_that_look_alike_as_names_are_two_conversations(store: cc.Store, tmp_path: Path) -> None:
    """Guarantee 3.8: the name is a short form of the id; which one is meant, the id itself says."""
    path = tmp_path / "threads.sqlite"
    ids = ("00000000-0000-4000-8000-000000000001", "00000000-0000-4000-8000-000000000002")
    import_files(store, [threads(path, **{ids[0]: "Hi."})])
    (taken,) = import_files(store, [threads(path, **{ids[1]: "Hi."})]).conversations
    assert taken.new == 1
    assert len(store.conversations()) == 2
    again = import_files(store, [threads(path, **{ids[1]: "Hi."})])
    assert [(each.name, each.new) for each in again.conversations] == [(taken.name, 0)]


def test_logs_that_begin_alike_are_not_mixed(store: cc.Store, tmp_path: Path) -> None:
    """A hash of what was asked is not an identity: both say hi, and are two people."""
    path = tmp_path / "log.jsonl"
    import_files(store, [written(path, [exchange("Hello!", user("hi"))])])
    other = [exchange("Hey.", user("hi")), exchange("4711", user("hi"), reply("Hey."), user("My number?"))]
    for new in (4, 0):
        assert import_files(store, [written(path, other)]).total("new") == new
    assert sorted(named(store).values()) == [["hi", "Hello!"], ["hi", "Hey.", "My number?", "4711"]]


def test_files_of_one_name_are_not_one_chat(store: cc.Store, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    import_files(store, [chat(tmp_path / "chat.json", "hi", "hello", id="")])
    import_files(store, [chat(tmp_path / "other" / "chat.json", "hi", "Something else", "more", id="")])
    assert sorted(named(store).values()) == [["hi", "Something else", "more"], ["hi", "hello"]]


def test_a_log_that_was_turned_over_continues_with_its_conversation(store: cc.Store, tmp_path: Path) -> None:
    """File by file the history is stored once, whatever its first request was."""
    requests = talk(6)
    for number in (0, 2, 4, 0):
        import_files(store, [written(tmp_path / "log.jsonl", requests[number : number + 2])])
    (conversation,) = store.conversations()
    assert (conversation.length, len(store.branches(conversation.name))) == (12, 1)


def test_a_log_that_grew_by_a_shorter_request_is_the_same_log(store: cc.Store, tmp_path: Path) -> None:
    first, *rest = [{**each, "timestamp": 1_800_000_000 + at} for at, each in enumerate(talk(3))]
    import_files(store, [written(tmp_path / "log.jsonl", [*rest, first])])
    assert len(store.conversations()) == 1
    again = import_files(store, [written(tmp_path / "log.jsonl", [first, *rest])])
    assert (again.total("new"), again.total("requests"), again.total("new_requests")) == (0, 3, 0)


def test_a_name_that_was_asked_for_is_not_given_to_another(store: cc.Store, tmp_path: Path) -> None:
    """Guarantee 15.1; an earlier one beside it is found."""
    one, two = talk(1, "one"), talk(2, "two")
    import_files(store, [written(tmp_path / "log.jsonl", [*one, *two])], into="talk")
    assert import_files(store, [written(tmp_path / "log.jsonl", two)], into="talk").conversations[0].name == "talk-two"
    with pytest.raises(cc.errors.ConversationExists, match="'talk' already exists"):
        import_files(store, [written(tmp_path / "log.jsonl", talk(1, "three"))], into="talk")
    assert len(store.conversations()) == 2


def test_a_reply_that_was_stored_before_it_was_whole_comes_in_on_a_branch(store: cc.Store, tmp_path: Path) -> None:
    """Guarantee 3.5: another text under the same id is another version, and the conversation goes on with it."""
    path = tmp_path / "chat.json"
    import_files(store, [chat(path, "hi", "Hel")])
    for new in (1, 0):
        assert import_files(store, [chat(path, "hi", "Hello, world")]).total("new") == new
    assert texts(store, "vercel-garden") == ["hi", "Hello, world"]
    assert [texts(store, "vercel-garden", each.number)[-1] for each in store.branches("vercel-garden")] == [
        "Hel",
        "Hello, world",
    ]
    store.append("vercel-garden", cc.user("Mine."))
    import_files(store, [chat(path, "hi", "Hello, new world")])
    assert texts(store, "vercel-garden")[-1] == "Mine."
    assert len(store.branches("vercel-garden")) == 3


def test_what_was_damaged_and_repaired_can_be_imported_again(tmp_path: Path) -> None:
    """Guarantee 15.1: an unreadable message is known by its id; others are imported, and the repaired
    branch continues.
    """
    address, path = f"sqlite:///{tmp_path}/chat.db", tmp_path / "chats.jsonl"
    with cc.open_store(address) as store:
        import_files(store, [chats(path, one=1, two=1)])
    with sqlite3.connect(tmp_path / "chat.db") as connection:
        connection.execute("UPDATE message SET body = 'xx' WHERE place = (SELECT min(place) FROM message)")
    connection.close()
    with cc.open_store(address) as store:
        log = chats(path, one=1, two=1, three=1)
        assert [each.error for each in import_files(store, [log]).conversations] == [None] * 3
        repair_conversations(store, scan_store(store))
        grown = import_files(store, [chats(path, one=2, two=1)])
        assert [(each.new, each.error) for each in grown.conversations] == [(2, None), (0, None)]
        assert texts(store, "vercel-one")[1:] == ["a0", "q1", "a1"]
        assert import_files(store, [path]).total("new") == 0
        assert [each for each in scan_store(store) if each.kind == "fault"] == []


def test_what_does_not_add_up_in_one_conversation_keeps_no_other_out(tmp_path: Path) -> None:
    """Guarantee 15.1: a chain that lost a message is refused and reported."""
    address, path = f"sqlite:///{tmp_path}/chat.db", tmp_path / "chats.jsonl"
    with cc.open_store(address) as store:
        import_files(store, [chats(path, one=2, two=1)])
    with sqlite3.connect(tmp_path / "chat.db") as connection:
        connection.execute(
            "UPDATE message SET body = 'xx', id = x'00' WHERE place & 4294967295 = 2 AND place < 8589934592"
        )
    connection.close()
    with cc.open_store(address) as store:
        summary = import_files(store, [chats(path, one=3, two=2)])
        assert [each.new for each in summary.conversations] == [0, 2]
        assert summary.refused == 1


def test_a_repaired_line_continues_where_it_was_repaired(store: cc.Store, tmp_path: Path) -> None:
    """Guarantee 3.5: the old branch stays as it is."""
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    asked = {"role": "assistant", "content": None, "tool_calls": [call]}
    messages = [user("a"), asked, user("b"), {"role": "tool", "tool_call_id": "c1", "content": "r"}]
    path = written(tmp_path / "log.jsonl", [exchange("x", *messages)])
    import_files(store, [path])
    repair_conversations(store, scan_store(store))
    written(path, [exchange("x", *messages), exchange("y", *messages, reply("x"), user("more"))])
    for new in (2, 0):
        assert import_files(store, [path]).total("new") == new
    (conversation,) = store.conversations()
    assert texts(store, conversation.name)[-3:] == ["x", "more", "y"]
    assert [each for each in scan_store(store) if each.kind == "fault"] == []


@pytest.mark.parametrize("way", ["edit", "rewind"])
def test_nothing_is_added_to_a_branch_that_was_left(store: cc.Store, tmp_path: Path, way: str) -> None:
    """Guarantee 15.1: the branch is named, and that and another name are the ways out."""
    path, name = chats(tmp_path / "chats.jsonl", one=2), "vercel-one"
    import_files(store, [path])
    if way == "edit":
        store.edit(name, 3, cc.user("edited"))
    else:
        store.rewind(name, 2)
    left = store.branches(name)[0]
    assert import_files(store, [path]).total("new") == 0
    chats(path, one=3)
    with pytest.raises(
        cc.errors.InvalidInput,
        match=rf"after message 2, .* branch {left.number}, which is not the current one\. Switch to",
    ):
        import_files(store, [path])
    assert store.branches(name)[0].length == 4
    store.switch(name, left.number)
    assert import_files(store, [path]).total("new") == 2


def test_nothing_is_added_while_a_turn_is_running(store: cc.Store, tmp_path: Path) -> None:
    """Guarantee 5.1: a turn has its conversation to itself."""
    path = chats(tmp_path / "chats.jsonl", one=1)
    import_files(store, [path])
    with store.lease("vercel-one") as lease:
        assert import_files(store, [path]).total("new") == 0
        with pytest.raises(
            cc.errors.Conflict, match="A turn of agent 'assistant' is running in conversation 'vercel-one'"
        ):
            import_files(store, [chats(path, one=2)])
        store.append("vercel-one", cc.assistant("Mine."), lease=lease)


def test_a_redacted_message_does_not_come_back(store: cc.Store, tmp_path: Path) -> None:
    """Guarantee 2.8."""
    path = written(tmp_path / "log.jsonl", talk(2))
    import_files(store, [path])
    (conversation,) = store.conversations()
    store.redact(conversation.name, 1)
    store.redact(conversation.name, 4)
    for count in (3, 4):
        assert import_files(store, [written(path, talk(count))]).total("new") == 2
    assert texts(store, conversation.name) == ["", "a0", "q1", "", "q2", "a2", "q3", "a3"]
    rows = store.read(lambda tx: load_rows(tx, [RowRange(1, 0, SEQ_MASK)]))
    assert not any(text in row.chunk for row in rows for text in (b'"q0"', b'"a1"'))
    assert any(b'"q3"' in row.chunk for row in rows)
    facts = [entry.record.observed for entry in load_timeline(store, conversation.name)[2:]]
    assert all(each is not None and each.inexact for each in facts)
    assert [each for each in scan_store(store) if each.kind == "fault"] == []


def test_the_cost_of_importing_again_follows_the_size(tmp_path: Path) -> None:
    """Six times as many branches take about six times as many calls, not thirty-six times."""

    def calls(count: int) -> int:
        store, counted = cc.open_store("memory:"), Counter[str]()
        log = [exchange(f"hello {number}", user("hi"), session="s") for number in range(count)]
        path = written(tmp_path / "log.jsonl", log)
        import_files(store, [path])
        sys.setprofile(lambda frame, event, argument: counted.update([event]))
        try:
            assert import_files(store, [path]).total("new") == 0
        finally:
            sys.setprofile(None)
        return counted.total()

    assert calls(300) < 9 * calls(50)


def test_the_ends_of_a_thread_are_found_in_one_pass(tmp_path: Path) -> None:
    """No question is asked again for each checkpoint: a thread may have thousands."""
    connection = sqlite3.connect(threads(tmp_path / "threads.sqlite", one="Hi."))
    plan = [str(row[3]) for row in connection.execute(f"EXPLAIN QUERY PLAN {LEAF_QUERY}", ("one", "one"))]
    connection.close()
    assert any("LIST SUBQUERY" in step for step in plan)
    assert not any("CORRELATED" in step for step in plan)


@pytest.mark.parametrize("way", ["edit", "rewind", "append"])
def test_a_log_leaves_what_was_changed_here_as_it_is(store: cc.Store, tmp_path: Path, way: str) -> None:
    """Guarantee 16.9: its requests go on where the client left the conversation, and the current branch stays."""
    path, name = written(tmp_path / "log.jsonl", talk(2, "one")), "request-log-one"
    import_files(store, [path])
    if way == "edit":
        store.edit(name, 3, cc.user("edited"))
    elif way == "rewind":
        store.rewind(name, 2)
    else:
        store.append(name, cc.user("mine"))
    here, current = texts(store, name), store.conversation(name).branch
    assert import_files(store, [path]).total("new") == 0
    for turns in (3, 4):
        assert import_files(store, [written(path, talk(turns, "one"))]).total("new") == 2
        assert (texts(store, name), store.conversation(name).branch) == (here, current)
    lines = [texts(store, name, branch.number) for branch in store.branches(name)]
    assert [text for number in range(4) for text in (f"q{number}", f"a{number}")] in lines
    store.append(name, cc.user("more"))
    assert texts(store, name) == [*here, "more"]
    assert [each for each in scan_store(store) if each.kind == "fault"] == []


def test_a_log_goes_to_a_branch_while_a_turn_is_running(store: cc.Store, tmp_path: Path) -> None:
    """Guarantees 5.1 and 16.6: a turn has its conversation to itself; what the log has new is stored, and continues."""
    path, name = written(tmp_path / "log.jsonl", talk(1, "one")), "request-log-one"
    import_files(store, [path])
    with store.lease(name) as lease:
        assert import_files(store, [path]).total("new") == 0
        assert import_files(store, [written(path, talk(2, "one"))]).total("new") == 2
        assert texts(store, name) == ["q0", "a0"]
        store.append(name, cc.assistant("Mine."), lease=lease)
    assert texts(store, name) == ["q0", "a0", "Mine."]
    assert import_files(store, [written(path, talk(3, "one"))]).total("new") == 2
    lines = [texts(store, name, branch.number) for branch in store.branches(name)]
    assert lines == [["q0", "a0", "Mine."], ["q0", "a0", "q1", "a1", "q2", "a2"]]
    assert texts(store, name) == ["q0", "a0", "Mine."]


def test_a_damaged_conversation_of_a_log_is_reported_and_goes_on_when_repaired(tmp_path: Path) -> None:
    """Guarantees 15.1 and 16.9: the others come in."""
    address, path = f"sqlite:///{tmp_path}/chat.db", tmp_path / "log.jsonl"
    with cc.open_store(address) as store:
        import_files(store, [written(path, [*talk(1, "one"), *talk(1, "two")])])
    with sqlite3.connect(tmp_path / "chat.db") as connection:
        connection.execute("UPDATE message SET body = 'xx' WHERE place = (SELECT min(place) FROM message)")
    connection.close()
    with cc.open_store(address) as store:
        log = written(path, [*talk(1, "one"), *talk(1, "two"), *talk(1, "three")])
        assert [each.error for each in import_files(store, [log]).conversations] == [None] * 3
        broken = import_files(store, [written(path, [*talk(2, "one"), *talk(2, "two")])])
        assert [each.new for each in broken.conversations] == [0, 2]
        assert broken.refused == 1
        repair_conversations(store, scan_store(store))
        grown = import_files(store, [path])
        assert [(each.new, each.error) for each in grown.conversations] == [(2, None), (0, None)]
        assert texts(store, "request-log-one")[1:] == ["a0", "q1", "a1"]
        assert import_files(store, [path]).total("new") == 0
        assert {each.code for each in scan_store(store) if each.kind == "fault"} == {"changed-request"}
