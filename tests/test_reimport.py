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
from contextc.doctor import repair_conversations, scan_store
from contextc.interchange import import_files
from contextc.interchange.sources.langgraph import LEAF_QUERY


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
    first, *rest = talk(3)
    import_files(store, [written(tmp_path / "log.jsonl", rest)])
    assert import_files(store, [written(tmp_path / "log.jsonl", [*rest, first])]).total("new") == 0
    assert len(store.conversations()) == 1


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
    address, path = f"sqlite:///{tmp_path}/chat.db", tmp_path / "log.jsonl"
    with cc.open_store(address) as store:
        import_files(store, [written(path, [*talk(1, "one"), *talk(1, "two")])])
    with sqlite3.connect(tmp_path / "chat.db") as connection:
        connection.execute("UPDATE message SET body = 'xx' WHERE place = (SELECT min(place) FROM message)")
    connection.close()
    with cc.open_store(address) as store:
        log = written(path, [*talk(1, "one"), *talk(1, "two"), *talk(1, "three")])
        assert [each.error for each in import_files(store, [log]).conversations] == [None] * 3
        repair_conversations(store, scan_store(store))
        grown = import_files(store, [written(path, [*talk(2, "one"), *talk(1, "two")])])
        assert [(each.new, each.error) for each in grown.conversations] == [(2, None), (0, None)]
        assert texts(store, "request-log-one")[1:] == ["a0", "q1", "a1"]
        assert import_files(store, [path]).total("new") == 0
        assert [each for each in scan_store(store) if each.kind == "fault"] == []


def test_what_does_not_add_up_in_one_conversation_keeps_no_other_out(tmp_path: Path) -> None:
    """Guarantee 15.1: a chain that lost a message is refused and reported."""
    address, path = f"sqlite:///{tmp_path}/chat.db", tmp_path / "log.jsonl"
    with cc.open_store(address) as store:
        import_files(store, [written(path, [*talk(2, "one"), *talk(1, "two")])])
    with sqlite3.connect(tmp_path / "chat.db") as connection:
        connection.execute(
            "UPDATE message SET body = 'xx', id = x'00' WHERE place & 4294967295 = 2 AND place < 8589934592"
        )
    connection.close()
    with cc.open_store(address) as store:
        summary = import_files(store, [written(path, [*talk(3, "one"), *talk(2, "two")])])
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
    path, name = written(tmp_path / "log.jsonl", talk(2, "one")), "request-log-one"
    import_files(store, [path])
    if way == "edit":
        store.edit(name, 3, cc.user("edited"))
    else:
        store.rewind(name, 2)
    left = store.branches(name)[0]
    assert import_files(store, [path]).total("new") == 0
    written(path, talk(3, "one"))
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
    path = written(tmp_path / "log.jsonl", talk(1, "one"))
    import_files(store, [path])
    with store.lease("request-log-one") as lease:
        assert import_files(store, [path]).total("new") == 0
        with pytest.raises(
            cc.errors.Conflict, match="A turn of agent 'assistant' is running in conversation 'request-log-one'"
        ):
            import_files(store, [written(path, talk(2, "one"))])
        store.append("request-log-one", cc.assistant("Mine."), lease=lease)


def test_a_redacted_message_does_not_come_back(store: cc.Store, tmp_path: Path) -> None:
    """Guarantee 2.8."""
    path = written(tmp_path / "log.jsonl", talk(2))
    import_files(store, [path])
    (conversation,) = store.conversations()
    store.redact(conversation.name, 1)
    store.redact(conversation.name, 4)
    assert import_files(store, [written(path, talk(3))]).total("new") == 2
    assert texts(store, conversation.name) == ["", "a0", "q1", "", "q2", "a2"]


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
