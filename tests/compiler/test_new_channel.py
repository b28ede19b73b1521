"""The first request of a new channel in a long conversation: it reads the window, not the history."""

from collections.abc import Sequence
from random import Random

import pytest

import contextc as cc
from contextc.compiler import ledger
from contextc.store.transaction_engine import Transaction

TOOL = cc.Tool(name="look_up")
LOOKS_LIKE_A_CALL = 'He wrote {"type":"tool_call","id":"x"}],"author":"tester" there.'


def compiler(store: cc.Store, window: int = 3_000) -> cc.MessageCompiler:
    return cc.MessageCompiler(store, cc.provider("anthropic:claude-sonnet-4-5", window=window, output=500))


def long_turn(random: Random, length: int) -> list[cc.Message]:
    """Return messages of which few end a turn: calls, results, messages of others, texts that look like stored rows."""
    found: list[cc.Message] = []
    while len(found) < length:
        name, kind = f"c{len(found)}", random.random()
        if kind < 0.01:
            found.append(cc.user(f"task {len(found)}"))
        elif kind < 0.02:
            found.append(
                cc.assistant(random.choice(("Done.", LOOKS_LIKE_A_CALL)), author=random.choice((None, "assistant")))
            )
        elif kind < 0.2:
            found.append(cc.assistant("Green.", author="tester"))
        else:
            text = random.choice(("", "I look.", LOOKS_LIKE_A_CALL))
            found.append(cc.assistant(text, tool_calls=[cc.tool_call(name, "look_up", {"author": "x"})]))
            found.append(cc.tool_result(name, "look_up", "found " * 10))
    return found


def opening(messages: Sequence[cc.Message], upto: int) -> int:
    """The seq of the first thing a person said after the last answer, of what was not read; 0 where that is nothing."""
    before = messages[:upto]
    ends = [m.seq for m in before if m.role == "assistant" and m.author in (None, "assistant") and not m.tool_calls]
    return next((m.seq for m in before[ends[-1] if ends else 0 :] if m.role == "user"), 0)


@pytest.mark.parametrize("seed", range(6))
def test_what_opened_a_long_turn_is_found_without_reading_the_turn(store: cc.Store, seed: int) -> None:
    """The task of a turn that is longer than the window is never dropped, on any branch."""
    random = Random(seed)
    store.extend("demo", long_turn(random, 300))
    if seed % 2:
        store.rewind("demo", random.randrange(250, 290))
    store.extend("demo", [message for message in long_turn(random, 800) if message.role != "user"])
    if seed % 3 == 0:
        store.fork("demo", "fork")
    name = "fork" if seed % 3 == 0 else "demo"
    store.extend(name, [message for message in long_turn(random, 600) if message.role != "user"])
    snapshot = compiler(store).compile(name, tools=[TOOL]).snapshot
    stored = store.load(name)
    assert snapshot.unread_until
    rest = stored[snapshot.unread_until :]
    ends = [m.seq for m in rest if m.role == "assistant" and m.author in (None, "assistant") and not m.tool_calls]
    assert (snapshot.turn_opening & 0xFFFFFFFF) == opening(stored, snapshot.unread_until)
    assert snapshot.turn_opening or ends or not any(m.role == "user" for m in stored)


@pytest.mark.parametrize(
    "expected",
    [
        [cc.user("question " * 20)],
        [cc.user("question " * 20), cc.assistant("answer " * 20, author="tester")],
        [
            cc.assistant("I look.", tool_calls=[cc.tool_call("c", "look_up", {})]),
            cc.tool_result("c", "look_up", "found " * 20),
        ],
    ],
)
def test_a_new_channel_reads_the_window_and_not_the_history(
    expected: list[cc.Message], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many messages are read at 6,000 as at 1,200, also where no turn ever ended for the agent that asks."""
    read = 0
    real = ledger.decode_message_rows

    def counted(tx: Transaction, rows: Sequence[tuple[int, bytes]]) -> list[tuple[int, cc.Message]]:
        nonlocal read
        read += len(rows)
        return real(tx, rows)

    def first(length: int) -> int:
        nonlocal read
        with cc.open_store("memory:") as store:
            store.extend("demo", [cc.user("the task"), *(expected * (length // len(expected)))])
            read = 0
            compiled = compiler(store).compile("demo", tools=[TOOL])
        assert b"the task" in compiled.body
        return read

    monkeypatch.setattr(ledger, "decode_message_rows", counted)
    few, many = first(1_200), first(6_000)
    assert few == many
    assert many < 600


def test_pinned_messages_before_the_window_open_and_begin_nothing(store: cc.Store) -> None:
    """A pinned call of an old run is shown; it does not extend that run, and the next message still opens a turn."""
    call = cc.assistant("I look.", tool_calls=[cc.tool_call("c", "look_up", {})], run="old")
    store.extend(
        "demo", [cc.user("first"), call, cc.tool_result("c", "look_up", "found"), cc.assistant("So.", run="old")]
    )
    store.pin("demo", 2)
    store.extend("demo", [cc.user("question " * 20), cc.assistant("answer " * 20)] * 400)
    store.append("demo", cc.user("and now?"))
    compiled = compiler(store).compile("demo", tools=[TOOL])
    shown = [message for _, message in compiled.snapshot.log[:2]]
    assert [message.seq for message in shown] == [2, 3]
    assert compiled.state.going == ()
    kept = compiled.draft.kept or ()
    assert all(item.opens for item in kept if item.role == "user" and item.kind == "message")


def test_texts_in_a_turn_that_began_before_the_window_open_no_other(store: cc.Store) -> None:
    """The person's task opens the turn; what the person adds while it runs belongs to it."""
    steps = [
        message
        for number in range(400)
        for message in (
            cc.assistant("I look.", tool_calls=[cc.tool_call(f"c{number}", "look_up", {})]),
            cc.tool_result(f"c{number}", "look_up", "found " * 10),
        )
    ]
    store.extend("demo", [cc.user("the task"), *steps[:-6], cc.user("and mind this"), *steps[-6:]])
    compiled = compiler(store).compile("demo", tools=[TOOL])
    assert compiled.snapshot.unread_until
    assert compiled.snapshot.turn_opening
    opens = {
        item.place & 0xFFFFFFFF: item.opens for item in compiled.draft.kept or () if item.role == "user" and item.place
    }
    assert opens == {1: True, 796: False}
