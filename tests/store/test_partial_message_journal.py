"""Journals of unfinished messages. Every test runs on every store."""

import asyncio
import threading
import time

import pytest

import contextc as cc
from contextc.errors import InvalidInput
from contextc.messages import AnyPart
from contextc.store import leases, turn_records
from contextc.store.store import engine_of
from contextc.store.transaction_engine import Transaction


def deltas(store: cc.Store) -> int:
    row = store.read(lambda tx: tx.row("SELECT count(*) FROM main.stream_delta"))
    return row[0] if row else 0


def test_a_stream_is_outside_the_chain_until_it_ends(store: cc.Store) -> None:
    """Guarantee 2.1: a chain never contains `pending`."""
    store.append("demo", cc.user("hi"))
    with store.lease("demo", "coder") as lease:
        stream = store.stream(lease)
        stream.write("Hel")
        stream.flush()
        assert len(store.load("demo")) == 1
        store.append("demo", cc.user("and another thing"))
        stream.write("lo")
        message = stream.end()
    assert (message.uid, message.seq, message.status, message.author) == (stream.uid, 3, "sent", "coder")
    assert store.load("demo")[-1] == message
    assert message.parts == (cc.Text("Hello"),)
    assert deltas(store) == 0


def test_its_uid_names_it_from_the_first_token_on(store: cc.Store) -> None:
    """Guarantee 2.7."""
    store.append("demo", cc.user("hi"))
    with store.lease("demo") as lease, store.stream(lease, cc.Message(role="assistant", uid="m-7", step=3)) as stream:
        stream.write("Hello")
        assert stream.uid == "m-7"
    assert store.load("demo", after=1, until="m-7")[0].step == 3


def test_deltas_are_journaled_by_themselves_in_batches(store: cc.Store) -> None:
    """Guarantee 3.3: at most 250 ms apart, also when nothing more comes."""
    store.append("demo", cc.user("hi"))
    with store.lease("demo") as lease, store.stream(lease) as stream:
        for _ in range(100):
            stream.write("x")
        end = time.monotonic() + 60
        while not deltas(store) and time.monotonic() < end:
            time.sleep(0.05)
        assert deltas(store) == 1


def test_a_delta_is_journaled_once(store: cc.Store) -> None:
    """Guarantee 3.3: what is written follows what is new."""
    store.append("demo", cc.user("hi"))
    with store.lease("demo") as lease, store.stream(lease) as stream:
        for text in ("one ", "two ", "three"):
            stream.write(text)
            stream.flush()
        rows = store.read(lambda tx: tx.rows("SELECT parts FROM main.stream_delta ORDER BY number"))
        assert [bytes(row[0]).count(b"one") for row in rows] == [1, 0, 0]


def test_pieces_become_whole_parts(store: cc.Store) -> None:
    store.append("demo", cc.user("hi"))
    with store.lease("demo") as lease, store.stream(lease) as stream:
        stream.write(cc.Reasoning(text="Let me "))
        stream.write(cc.Reasoning(text="think.", signature="s1"))
        stream.write(cc.Reasoning(text="And again.", signature="s2"))
        stream.write("I will ")
        stream.flush()
        stream.write("look.")
        for piece in ('{"pa', 'th": "a', '.py"}'):
            stream.write(cc.ToolCall(id="c1", name="read", arguments=piece))  # pyright: ignore[reportArgumentType]
        stream.write(cc.ToolCall(id="c2", name="list", arguments="{}"))  # pyright: ignore[reportArgumentType]
    assert store.load("demo")[-1].parts == (
        cc.Reasoning(text="Let me think.", signature="s1"),
        cc.Reasoning(text="And again.", signature="s2"),
        cc.Text("I will look."),
        cc.ToolCall(id="c1", name="read", arguments={"path": "a.py"}, raw='{"path": "a.py"}'),
        cc.ToolCall(id="c2", name="list", arguments={}, raw="{}"),
    )


def test_pieces_of_several_calls_may_take_turns(store: cc.Store) -> None:
    """Parallel calls stream in turns, with text between, across batches too; a whole call replaces pieces."""
    store.append("demo", cc.user("hi"))
    with store.lease("demo") as lease, store.stream(lease) as stream:
        for id, piece in (("a", '{"x":'), ("b", '{"y":'), ("a", " 1}")):
            stream.write_call(id, "f", piece)
            stream.flush()
        stream.write("meanwhile")
        stream.write_call("b", "f", " 2}")
        stream.write(cc.ToolCall(id="c", name="f", arguments={"z": 0}))
        stream.write(cc.ToolCall(id="c", name="f", arguments={"z": 3}))
    calls = store.load("demo")[-1].tool_calls
    assert [(call.id, call.arguments, call.malformed) for call in calls] == [
        ("a", {"x": 1}, False),
        ("b", {"y": 2}, False),
        ("c", {"z": 3}, False),
    ]


def test_what_is_known_at_the_end_joins_what_was_written(store: cc.Store) -> None:
    """Finish reason and usage come last; what the head said stays."""
    store.append("demo", cc.user("hi"))
    with store.lease("demo") as lease:
        for ending in (None, cc.assistant(meta={"k": 1})):
            stream = store.stream(lease, cc.assistant(turn=1, step=2))
            stream.write("a long answer")
            stream.end(ending, finish="stop", usage=cc.Usage(input=3))
            last = store.load("demo")[-1]
            assert (last.text, last.finish, last.turn, last.step) == ("a long answer", "stop", 1, 2)
            assert last.usage == cc.Usage(input=3)
        assert last.meta == {"k": 1}


def test_an_empty_reply_is_a_reply(store: cc.Store) -> None:
    """Guarantee 2.2: a provider's empty reply is stored with its finish reason."""
    with store.lease("demo") as lease, store.stream(lease):
        pass
    assert [(message.parts, message.finish, message.status) for message in store.load("demo")] == [((), "stop", "sent")]


def test_a_writer_learns_that_its_turn_is_over(store: cc.Store) -> None:
    """An agent must not continue to pay for tokens that are not stored."""
    lease = store.acquire("demo", ttl=0.2)
    stream = store.stream(lease)
    store.write(lambda tx: tx.run("UPDATE main.lease SET number = number + 1"))  # as one who takes the turn over does
    with pytest.raises(cc.errors.LeaseLost):
        write_for_seconds(stream, 60)
    with store.lease("demo") as other:
        ended = store.stream(other)
        ended.end()
        with pytest.raises(cc.errors.InvalidInput, match="This stream has ended"):
            ended.write("more")
        with pytest.raises(cc.errors.InvalidMessage, match="parts: must be empty in a stream"):
            store.stream(other, cc.assistant("text"))


def write_for_seconds(stream: cc.store.Stream, seconds: int) -> None:
    for _ in range(seconds * 20):
        stream.write("token ")
        time.sleep(0.05)


def test_the_final_message_may_know_more_than_its_pieces(store: cc.Store) -> None:
    """Usage and finish reason come last."""
    store.append("demo", cc.user("hi"))
    with store.lease("demo") as lease, store.stream(lease) as stream:
        stream.write("Hel")
        message = stream.end(cc.assistant("Hello", usage=cc.Usage(output=2), finish="stop"))
    assert (message.uid, message.finish, message.text) == (stream.uid, "stop", "Hello")
    assert store.load("demo") == [store.load("demo")[0], message]


def write_and_fail(stream: cc.store.Stream, failure: BaseException) -> None:
    with stream:
        stream.write("I was say")
        raise failure


def test_a_failure_keeps_what_came_and_why(store: cc.Store) -> None:
    """Guarantee 2.1, agent-framework#8157: the partial answer is not lost."""
    store.append("demo", cc.user("hi"))
    with store.lease("demo") as lease:
        for failure in (ConnectionError("cut"), asyncio.CancelledError()):
            with pytest.raises(type(failure)):
                write_and_fail(store.stream(lease), failure)
    failed, cancelled = store.load("demo", last=2)
    assert (failed.text, failed.status, failed.error) == ("I was say", "error", "ConnectionError: cut")
    assert (cancelled.text, cancelled.status) == ("I was say", "cancelled")


def test_a_stream_of_an_outlived_turn_cannot_end(store: cc.Store) -> None:
    """Guarantee 3.2."""
    store.append("demo", cc.user("hi"))
    lease = store.acquire("demo")
    stream = store.stream(lease)
    stream.write("late")
    store.release(lease)
    with pytest.raises(cc.errors.LeaseLost):
        stream.end()
    with pytest.raises(cc.errors.LeaseLost):
        store.stream(lease)
    assert [message.status for message in store.load("demo")] == ["sent", "error"]


def test_a_turn_that_ends_ends_what_it_was_writing(store: cc.Store) -> None:
    """Guarantee 2.1: no stream stays pending after its turn."""
    store.append("demo", cc.user("hi"))
    with store.lease("demo") as lease:
        stream = store.stream(lease)
        stream.write("I was say")
        stream.flush()
    last = store.load("demo")[-1]
    assert (last.uid, last.text, last.status) == (stream.uid, "I was say", "error")
    assert last.error == "The turn ended before this message was complete."
    assert deltas(store) == 0


def test_a_page_that_resends_what_is_being_written_does_no_harm(store: cc.Store) -> None:
    """It knows the uid from the first token on, and may send the half of the answer it has."""
    store.append("demo", cc.user("q"))
    with store.lease("demo") as lease, store.stream(lease, cc.Message(role="assistant", uid="m1")) as stream:
        stream.write("the whole answer")
        assert store.sync("demo", [cc.user("q"), cc.assistant("the wh", uid="m1")]) == []
        added = store.sync("demo", [cc.user("q"), cc.user("and another"), cc.assistant("the wh", uid="m1")])
        assert [message.text for message in added] == ["and another"]
        store.append("demo", cc.assistant("somebody took the name", uid="m1"))
    assert [(message.uid, message.text) for message in store.load("demo", last=2)] == [
        ("m1", "somebody took the name"),
        ("m1~2", "the whole answer"),
    ]


def test_reasoning_and_extras_survive_joining(store: cc.Store) -> None:
    """Guarantee 2.4: redacted blocks are two, and a signature's provider comes with it."""
    store.append("demo", cc.user("q"))
    parts = [
        cc.Reasoning(data="A", provider="p"),
        cc.Reasoning(data="B", provider="p"),
        cc.Text("a", extra={"f": {"x": 1}}),
        cc.Text("b", extra={"f": {"x": 2}}),
    ]
    with store.lease("demo") as lease, store.stream(lease) as stream:
        for part in parts:
            stream.write(part)
        stream.write(cc.Reasoning(text="t"))
        stream.write(cc.Reasoning(text="u", signature="s", provider="p", model="m"))
    joined = cc.Reasoning(text="tu", signature="s", provider="p", model="m")
    assert store.load("demo")[-1].parts == (*parts, joined)


def test_ended_streams_leave_nothing_running(store: cc.Store) -> None:
    """A service opens thousands of them."""
    for _ in range(5):
        with store.lease("demo") as lease:
            store.stream(lease).end()
            store.stream(lease)
    assert engine_of(store).scheduler._tasks == {}  # pyright: ignore[reportPrivateUsage]


def test_what_cannot_be_stored_is_refused_before_it_is_journaled(store: cc.Store) -> None:
    """Guarantee 15.1: the repair of a dead turn must never stumble over what it finds."""
    store.append("demo", cc.user("hi", uid="taken"))
    with store.lease("demo") as lease:
        with pytest.raises(cc.errors.InvalidMessage, match="already a message 'taken'"):
            store.stream(lease, cc.Message(role="assistant", uid="taken"))
        with pytest.raises(cc.errors.InvalidMessage, match="step"):
            store.stream(lease, cc.Message(role="assistant", step="1"))  # pyright: ignore[reportArgumentType]
        with pytest.raises(cc.errors.InvalidMessage, match="role: only assistant messages are streamed, got 'user'"):
            store.stream(lease, cc.Message(role="user"))
        stream = store.stream(lease, cc.Message(role="assistant", uid="open"))
        with pytest.raises(cc.errors.InvalidMessage, match="already a message 'open'"):
            store.stream(lease, cc.Message(role="assistant", uid="open"))
        for bad in (5, cc.messages.UserNotice("x"), cc.ToolCall(id="", name="f", arguments={}), cc.Text(5)):  # pyright: ignore[reportArgumentType]
            with pytest.raises(cc.errors.InvalidMessage):
                stream.write(bad)  # pyright: ignore[reportArgumentType]
        stream.write("half \ud83d")
        stream.flush()
        assert stream.end().text == "half \ufffd"


def test_ending_twice_is_ending_once(store: cc.Store) -> None:
    store.append("demo", cc.user("hi"))
    with store.lease("demo") as lease, store.stream(lease) as stream:
        stream.write("Hello")
        assert stream.end() == stream.end()
    assert len(store.load("demo")) == 2


def test_writing_never_waits_for_the_disk(store: cc.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Deltas are written on the event loop: one that waits for a slow disk holds up every other conversation."""
    reached, go_on = threading.Event(), threading.Event()
    original = turn_records.save_deltas

    def journal(tx: Transaction, uid: str, number: int, parts: list[AnyPart]) -> None:
        reached.set()
        assert go_on.wait(60)
        original(tx, uid, number, parts)

    with store.lease("demo") as lease:
        stream = store.stream(lease)
        engine_of(store).scheduler.stop()  # this test flushes itself
        stream.write("one ")
        monkeypatch.setattr(turn_records, "save_deltas", journal)
        flushing = threading.Thread(target=stream.flush)
        flushing.start()
        assert reached.wait(60)
        writing = threading.Thread(target=stream.write, args=("two",))
        writing.start()
        writing.join(60)
        waited = writing.is_alive()
        go_on.set()
        flushing.join()
        writing.join()
        assert not waited
        assert stream.end().text == "one two"


def test_what_is_written_while_a_stream_ends_is_refused(store: cc.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be in no message; and an end that failed can be tried again with all that was written."""
    original = leases.close_stream

    def close_stream(tx: Transaction, conversation: str, uid: str, final: cc.Message) -> list[cc.Message]:
        with pytest.raises(InvalidInput, match="has ended"):
            stream.write("too late")
        raise cc.errors.StoreFull("no room")

    with store.lease("demo") as lease:
        stream = store.stream(lease)
        stream.write("all of it")
        monkeypatch.setattr(leases, "close_stream", close_stream)
        with pytest.raises(cc.errors.StoreFull):
            stream.end()
        monkeypatch.setattr(leases, "close_stream", original)
        stream.write(", and more")
        assert stream.end().text == "all of it, and more"
