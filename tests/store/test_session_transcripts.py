"""A provider's own session transcripts: stored unchanged, and removed with their messages. On every store."""

import multiprocessing
import os
import random
import signal
import threading
import time
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

import contextc as cc
from contextc._json import JSONObject
from contextc.interchange import export_lines
from contextc.store import session_transcripts
from contextc.store.session_transcripts import EntryBatch, TranscriptKey
from contextc.store.store import drop_transcript
from contextc.store.transaction_engine import Transaction
from tests.conftest import often

PROCESSES = multiprocessing.get_context("forkserver")
MAIN = TranscriptKey("home", "session-1")
HELPER = TranscriptKey("home", "session-1", "subagents/agent-1")
SECRET = "card 4242 4242 4242 4242"
KEEPER = cc.provider(
    "keeper:one",
    format="anthropic",
    window=20_000,
    output=1_000,
    session_resumption=True,
    keeps_static=True,
    reverts=True,
)


def entry(name: str, **more: object) -> JSONObject:
    return {"type": "user", "uuid": name, **more}


def append(store: cc.Store, *entries: JSONObject, key: TranscriptKey = MAIN, conversation: str = "") -> int:
    batch = EntryBatch(entries)
    return store.write(lambda tx: session_transcripts.append_entries(tx, key, batch, conversation), repeatable=True)


def load(store: cc.Store, key: TranscriptKey = MAIN) -> list[JSONObject] | None:
    return store.read(lambda tx: session_transcripts.load_entries(tx, key))


def names(store: cc.Store, key: TranscriptKey = MAIN) -> list[object]:
    return [each.get("uuid") for each in load(store, key) or []]


def rows(store: cc.Store) -> int:
    return store.read(lambda tx: len(tx.rows("SELECT 1 FROM main.transcript_entry")))


def test_entries_come_back_in_order_and_once(store: cc.Store) -> None:
    """Guarantee 3.2: an entry with a uuid is stored once, however often it is sent; one without is new each time."""
    title: JSONObject = {"type": "title", "title": "Garden"}
    assert append(store, entry("b"), entry("a"), title) == 3
    assert append(store, entry("a", changed=True), title, entry("c"), entry("c")) == 2
    assert load(store) == [entry("b"), entry("a"), title, title, entry("c")]
    assert append(store) == 0
    assert load(store, HELPER) is None


def test_every_json_comes_back_as_it_was(store: cc.Store) -> None:
    """Half an emoji, a file's name that is not text, NUL, numbers beyond 64 bits, keys of any kind."""
    odd = entry(
        "\udc80-\ud83d",
        text="\ud83d and \udcff and \0 and \u2028 and ä 日本",
        number=1 << 80,
        small=1e-300,
        nested={"": [None, True, {"\ud800": 0}]},
    )
    append(store, odd, entry("next"))
    append(store, odd)
    assert load(store) == [odd, entry("next")]


def test_invalid_json_is_refused_and_nothing_is_stored(store: cc.Store) -> None:
    """Guarantee 15.1."""
    with pytest.raises(cc.errors.InvalidInput, match="transcript entry must be JSON"):
        append(store, entry("a"), entry("b", when=object()))
    with pytest.raises(cc.errors.InvalidInput, match="session name must be"):
        append(store, entry("a"), key=TranscriptKey("home", ""))
    assert load(store) is None


def test_the_time_of_a_transcript_grows_with_every_append(store: cc.Store) -> None:
    seen: list[int] = []
    for name in ("a", "b", "c"):
        append(store, entry(name))
        seen += [time for _, time, _ in store.read(lambda tx: session_transcripts.list_sessions(tx, "home"))]
    assert seen == sorted(set(seen))
    assert seen[0] > 1e12


def test_a_conversation_takes_its_transcripts_along_when_it_is_deleted(store: cc.Store) -> None:
    """Guarantee 3.4: `delete` deletes; a fork owns nothing of its parent, and nothing of others goes."""
    store.append("demo", cc.user("hi"))
    store.fork("demo", "other")
    other, nobodys = TranscriptKey("home", "session-2"), TranscriptKey("home", "session-3")
    append(store, entry("a"), conversation="demo")
    append(store, entry("a"), key=HELPER, conversation="demo")
    append(store, entry("a"), key=other, conversation="other")
    append(store, entry("a"), key=nobodys)
    store.delete("demo")
    assert (load(store), load(store, HELPER), names(store, other), names(store, nobodys)) == (None, None, ["a"], ["a"])
    assert rows(store) == 2


def test_texts_of_a_deleted_conversation_do_not_come_back(store: cc.Store) -> None:
    """Guarantee 3.4: a program may still be running when its conversation is deleted."""
    store.append("demo", cc.user("hi"))
    append(store, entry("a"), conversation="demo")
    store.delete("demo")
    with pytest.raises(cc.errors.UnknownConversation):
        append(store, entry("b", text=SECRET), conversation="demo")
    assert rows(store) == 0


def test_redacting_empties_the_transcripts_of_the_tree(store: cc.Store) -> None:
    """Guarantee 2.8: the text may be anywhere in them. Later output of a running program is not stored."""
    store.append("demo", cc.user(SECRET))
    store.fork("demo", "fork")
    store.append("stranger", cc.user("hi"))
    fork, strangers = TranscriptKey("home", "session-2"), TranscriptKey("home", "session-3")
    append(store, entry("a", text=SECRET), conversation="demo")
    append(store, entry("a", text=SECRET), key=fork, conversation="fork")
    append(store, entry("a"), key=strangers, conversation="stranger")
    store.redact("demo", 1)
    assert append(store, entry("b", text=SECRET), conversation="demo") == 0
    assert append(store, entry("b", text=SECRET), key=HELPER, conversation="demo") == 0
    assert (load(store), load(store, HELPER), load(store, fork), names(store, strangers)) == (None, None, None, ["a"])
    assert store.read(lambda tx: [session for session, *_ in session_transcripts.list_sessions(tx, "home")]) == [
        "session-3"
    ]
    assert rows(store) == 1


def test_a_session_whose_transcript_was_redacted_is_given_up(store: cc.Store) -> None:
    """Guarantees 2.8, 9.5: even where the message was never shown on its channel, because the transcript is gone."""
    compiler = cc.MessageCompiler(store, KEEPER)
    store.append("demo", cc.user("One."))
    compiled = compiler.compile("demo")
    with compiler.attempt(compiled) as attempt:
        attempt.commit(cc.assistant("First."), session_id="session-1", cursor="c1")
    append(store, entry("a"), conversation="demo")
    store.append("demo", cc.user(SECRET))
    assert compiler.compile("demo").mode == "resume"
    store.redact("demo", 3)
    store.append("demo", cc.user("Two."))
    later = compiler.compile("demo")
    assert (later.mode, later.session_id, later.manifest.why) == ("full", None, "redacted")
    (known,) = cc.SessionManager(store).sessions("demo")
    assert (known.id, known.lost) == ("", "redacted")


def test_a_session_with_redacted_texts_in_its_system_prompt_is_given_up(store: cc.Store) -> None:
    """Guarantee 2.8: a system prompt that is changed would go into the session as an update, beside the old one."""
    compiler = cc.MessageCompiler(store, KEEPER)
    store.extend("demo", [cc.system(SECRET), cc.user("One.")])
    compiled = compiler.compile("demo")
    with compiler.attempt(compiled) as attempt:
        attempt.commit(cc.assistant("First."), session_id="session-1")
    store.redact("demo", 1)
    store.append("demo", cc.user("Two."))
    later = compiler.compile("demo")
    assert (later.mode, later.manifest.why) == ("full", "redacted")
    assert SECRET not in later.body.decode()


def test_a_session_that_is_not_concerned_stays(store: cc.Store) -> None:
    """Guarantee 9.5: a session of a provider's own keeping, to which the message was never shown."""
    compiler = cc.MessageCompiler(store, KEEPER)
    store.append("demo", cc.user("One."))
    compiled = compiler.compile("demo")
    with compiler.attempt(compiled) as attempt:
        attempt.commit(cc.assistant("First."), session_id="session-1")
    store.extend("demo", [cc.user(SECRET), cc.user("Two.")])
    store.redact("demo", 3)
    assert compiler.compile("demo").mode == "resume"


def test_retention_takes_what_has_no_owner_when_it_is_old(store: cc.Store) -> None:
    """Guarantee 2.8: retention by age is a setting."""
    append(store, entry("a", text=SECRET))
    assert store.expire(timedelta(days=1)) == 0
    assert names(store) == ["a"]
    time.sleep(0.01)
    assert store.expire(timedelta(microseconds=1)) == 0
    assert (load(store), rows(store)) == (None, 0)


def test_removed_texts_are_not_in_the_files(tmp_path: Path) -> None:
    """Guarantee 2.8."""
    with cc.open_store(tmp_path / "chat.db") as store:
        store.append("demo", cc.user("hi"))
        append(store, *[entry(str(number), text=SECRET) for number in range(50)], conversation="demo")
        append(store, entry("a", text=SECRET), key=TranscriptKey("home", "session-2"))
        store.redact("demo", 1)
        drop_transcript(store, TranscriptKey("home", "session-2"))
        assert not [file.name for file in tmp_path.iterdir() if SECRET.encode() in file.read_bytes()]


def test_an_exported_conversation_carries_no_transcript(store: cc.Store) -> None:
    """Guarantee 3.8: a transcript is a provider's, and of use on this store alone."""
    store.append("demo", cc.user("hi"))
    append(store, entry("a", text=SECRET), conversation="demo")
    assert SECRET.encode() not in b"".join(export_lines(store, "demo"))


def test_two_writers_at_once_lose_and_double_nothing(store: cc.Store) -> None:
    """Guarantee 3.2: each one's entries in its own order; what both give is there once."""
    begin = threading.Barrier(2)

    def write(writer: str) -> None:
        begin.wait(60)
        for number in range(20):
            append(store, entry(f"{writer}{number}"), entry(f"both{number}"))

    writers = [threading.Thread(target=write, args=(writer,)) for writer in "ab"]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(120)
    found = [str(name) for name in names(store)]
    assert len(found) == len(set(found)) == 60
    for writer in "ab":
        assert [name for name in found if name[0] == writer and name[1] != "o"] == [f"{writer}{n}" for n in range(20)]


def append_until_killed(address: str, run: int, pipe: Connection) -> None:
    store, number = cc.open_store(address), 0
    while True:
        number += 1
        append(store, *[entry(f"{run}:{number}:{part}", of=3, text="x" * 2_000) for part in range(3)])
        pipe.send(f"{run}:{number}")


RUNS = often(2, 8)


def test_every_append_that_returned_is_there_after_a_kill(shared_address: str) -> None:
    """Guarantee 3.2: no acknowledged entry is lost, and no batch is half there."""
    chance = random.Random(20261115)
    promised: set[str] = set()
    cc.open_store(shared_address).close()
    for run in range(RUNS):
        ours, theirs = PROCESSES.Pipe(duplex=False)
        child = PROCESSES.Process(target=append_until_killed, args=(shared_address, run, theirs))
        child.start()
        theirs.close()
        promised |= {ours.recv()} if ours.poll(60) else set()
        time.sleep(chance.uniform(0, 0.02))
        assert child.pid is not None
        os.kill(child.pid, signal.SIGKILL)
        child.join()
        try:
            while True:
                promised.add(ours.recv())
        except EOFError:
            ours.close()
    with cc.open_store(shared_address) as store:
        batches: dict[str, list[str]] = {}
        for name in names(store):
            batch, _, part = str(name).rpartition(":")
            batches.setdefault(batch, []).append(part)
    assert len(promised) >= RUNS
    assert promised <= set(batches)
    assert {tuple(parts) for parts in batches.values()} == {("0", "1", "2")}


def test_a_summary_is_replaced_together_with_new_entries(store: cc.Store) -> None:
    """Guarantee 21.1: entries are found by uuid, in one transcript or in all of a project, and read from the end."""
    key = TranscriptKey("framework", "s1")
    store.begin("demo")
    entries: list[JSONObject] = [{"uuid": f"e{number}", "text": str(number)} for number in range(5)]

    def save(tx: Transaction) -> int:
        row = session_transcripts.open_transcript(tx, key, "demo")
        session_transcripts.save_transcript(tx, row, {"head": "e2"}, entries[:3])
        again = session_transcripts.open_transcript(tx, key, "demo")
        assert (again.entries, again.is_redacted, again.summary) == (3, False, {"head": "e2"})
        session_transcripts.save_transcript(tx, again, {"head": "e4"}, entries[3:])
        return row.number

    number = store.write(save)
    row = store.read(lambda tx: session_transcripts.find_transcript(tx, key))
    assert row == session_transcripts.TranscriptRow(number, 5, False, {"head": "e4"})
    found = store.read(lambda tx: session_transcripts.find_entry(tx, "framework", "e3"))
    assert found == (number, entries[3])
    assert store.read(lambda tx: session_transcripts.find_entry(tx, "framework", "e3", number + 1)) is None
    assert store.read(lambda tx: session_transcripts.find_entry(tx, "another", "e3")) is None
    last = store.read(lambda tx: session_transcripts.load_entries_before(tx, number, 5, 2))
    assert last == [(4, entries[3]), (3, entries[2])]


def test_a_transcript_that_a_redaction_emptied_accepts_new_entries(store: cc.Store) -> None:
    """Guarantee 21.1: nothing of the old content is left, and the numbers of entries are not used again."""
    key = TranscriptKey("framework", "s1")
    store.append("demo", cc.user("secret"))

    def save(tx: Transaction) -> None:
        row = session_transcripts.open_transcript(tx, key, "demo")
        session_transcripts.save_transcript(tx, row, {"head": "e1"}, [{"uuid": "e1", "text": "secret"}])

    store.write(save)
    store.redact("demo", 1)
    row = store.read(lambda tx: session_transcripts.find_transcript(tx, key))
    assert row is not None
    assert (row.is_redacted, row.summary) == (True, None)
    assert store.read(lambda tx: session_transcripts.find_entry(tx, "framework", "e1")) is None
    store.write(save)
    row = store.read(lambda tx: session_transcripts.find_transcript(tx, key, lock=False))
    assert row is not None
    assert (row.entries, row.is_redacted) == (2, False)
