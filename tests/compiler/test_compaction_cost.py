"""A compaction reads only the messages after the last summary, with the same result as reading all."""

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

import contextc as cc
from contextc.compiler import ledger
from contextc.compiler import step as compile_step
from contextc.store.transaction_engine import Transaction
from tests.conftest import some

PROVIDER = cc.provider("anthropic:claude-sonnet-4-5", window=4_000, output=500)


def summary(messages: Sequence[cc.Message], before: str | None) -> str:
    return f"{len(messages)} messages" if before is None else "more"


def talk(random: Random, turns: int, number: int) -> list[cc.Message]:
    """Return the messages of some turns: several users, steps with calls, and notes of another agent."""
    found: list[cc.Message] = []
    for turn in range(number, number + turns):
        person = random.choice((None, None, "ann", "bob")) if number else None
        found.append(cc.user(f"question {turn} " + "word " * random.randrange(40), author=person))
        for step in range(random.choice((0, 0, 1, 3, 12))):
            name = f"c{turn}.{step}"
            found.append(cc.assistant("I look.", tool_calls=[cc.tool_call(name, "look_up", {"id": step})]))
            found.append(cc.tool_result(name, "look_up", "found " * random.randrange(60)))
            if random.random() < 0.1:
                found.append(cc.user(f"meanwhile {turn}.{step}"))
        if random.random() < 0.1:
            found.append(cc.assistant("All green.", author="tester"))
        if random.random() < 0.9:
            found.append(cc.assistant(f"answer {turn} " + "text " * random.randrange(40)))
    return found


def compacted(random: Random) -> list[object]:
    """What each of some compactions is given and leaves."""
    found: list[object] = []
    store, number = cc.open_store("memory:"), 0
    compiler = cc.MessageCompiler(store, PROVIDER)

    def summarize(messages: Sequence[cc.Message], previous: str | None) -> str:
        found.append(([(message.role, message.parts) for message in messages], previous))
        return f"summary {len(found)}"

    for _ in range(4):
        text = talk(random, turns := random.randrange(1, 14), number)
        number += turns
        store.extend("demo", text)
        if random.random() < 0.3:
            store.pin("demo", random.randrange(1, len(text)))
        if random.random() < 0.2:
            store.redact("demo", random.randrange(1, len(text)))
        made = compiler.compact("demo", summarize)
        found.append(made and (made.upto, made.before, made.after, made.fallback))
    return found


def steps(first: int, last: int) -> list[cc.Message]:
    """Steps of one turn, each with a call and its result."""
    return [
        message
        for number in range(first, last)
        for message in (
            cc.assistant("I look.", tool_calls=[cc.tool_call(f"c{number}", "look_up", {})]),
            cc.tool_result(f"c{number}", "look_up", "found " * 30),
        )
    ]


TURNS = [cc.user("question " * 20), cc.assistant("answer " * 20)] * 20
LATE = cc.assistant("I wait.", tool_calls=[cc.tool_call("late", "look_up", {})])
SPLIT = {
    "one turn": [[cc.user("The question."), *steps(0, 60)], steps(60, 120), steps(120, 180)],
    "a late result": [[cc.user("go"), LATE, *TURNS], [cc.tool_result("late", "look_up", "came late"), *TURNS], TURNS],
}
"""What is said between compactions: in a turn that goes on over them, or with a result that comes after its summary."""


@pytest.mark.parametrize("between", SPLIT)
def test_what_a_compaction_splits_is_summed_up_as_if_all_was_read(
    between: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What opened the turn stays in sight, and a result is not summed up without its call."""
    real = compile_step.load_snapshot

    def whole(*given: Any, **named: Any) -> Any:
        return real(*given, **{**named, "since": None})

    found: list[list[object]] = []
    for reads in (real, whole):
        monkeypatch.setattr(compile_step, "load_snapshot", reads)
        store, made = cc.open_store("memory:"), list[object]()
        compiler = cc.MessageCompiler(store, PROVIDER)

        def summarize(messages: Sequence[cc.Message], previous: str | None, made: list[object] = made) -> str:
            made.append(([(message.role, message.parts) for message in messages], previous))
            return f"summary {len(made)}"

        for part in SPLIT[between]:
            store.extend("demo", part)
            done = compiler.compact("demo", summarize)
            assert done is not None
            made.append((done.upto, done.before, done.after))
        found.append([*made, compiler.compile("demo").body])
    assert found[0] == found[1]


@pytest.mark.parametrize("seed", some(range(8, 17), 3))
def test_what_is_summed_up_does_not_depend_on_how_much_is_read(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A summary must not lose or repeat anything because the messages before the last one were not read."""
    found = compacted(Random(seed))
    real = compile_step.load_snapshot

    def whole(*given: Any, **named: Any) -> Any:
        return real(*given, **{**named, "since": None})

    monkeypatch.setattr(compile_step, "load_snapshot", whole)
    assert compacted(Random(seed)) == found


def test_the_cost_of_a_compaction_follows_what_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    """The messages read for the second compaction are as many after 6,000 messages as after 600."""
    read = 0
    real = ledger.decode_message_rows

    def counted(tx: Transaction, rows: Sequence[tuple[int, bytes]]) -> list[tuple[int, cc.Message]]:
        nonlocal read
        read += len(rows)
        return real(tx, rows)

    def second(length: int) -> int:
        nonlocal read
        store = cc.open_store("memory:")
        compiler = cc.MessageCompiler(store, PROVIDER)
        some: list[Any] = [cc.user("question " * 10), cc.assistant("answer " * 10)]
        store.extend("demo", some * (length // 2))
        assert compiler.compact("demo", summary) is not None
        store.extend("demo", some * 50)
        read = 0
        assert compiler.compact("demo", summary) is not None
        return read

    monkeypatch.setattr(ledger, "decode_message_rows", counted)
    few, many = second(600), second(6_000)
    assert few == many
    assert many < 2_500


def test_a_summary_from_before_a_clear_is_not_shown_again(store: cc.Store) -> None:
    """A cleared context stays cleared, also where what came after it is more than the window holds."""
    store.extend("demo", [cc.user("question " * 20), cc.assistant("answer " * 20)] * 50)
    compiler = cc.MessageCompiler(store, PROVIDER)
    assert compiler.compact("demo", lambda messages, before: "the secret plan") is not None
    store.reset("demo")
    store.extend("demo", [cc.user("question " * 20), cc.assistant("answer " * 20)] * 400)
    store.append("demo", cc.user("go on"))
    assert b"the secret plan" not in compiler.compile("demo").body
