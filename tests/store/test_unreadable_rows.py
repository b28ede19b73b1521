"""One row that cannot be read does not stop what is done for all rows: retention, redaction and lists."""

from datetime import timedelta

import pytest

import contextc as cc
from contextc.doctor import scan_store
from contextc.events import TextDelta
from contextc.observation import limit_observed
from contextc.store.approvals import Approval, insert_approvals
from contextc.store.message_log import SEQ_BITS, load_tip
from contextc.store.transaction_engine import Transaction
from contextc.store.turn_records import (
    StepRecord,
    TurnRecord,
    append_events,
    insert_step,
    insert_turn,
)
from tests.store.stored_text import find_secrets

BROKEN = b'{"role":"user","parts":[{"type":"text","text":"old secret'
AGE = timedelta(days=90)
MODEL = "claude-opus-4-5"


def damage(store: cc.Store, table: str, column: str = "body", where: str = "1 = 1") -> None:
    """Damage rows, as a flipped bit or another program does."""
    assert store.write(lambda tx: tx.run(f"UPDATE main.{table} SET {column} = ? WHERE {where}", BROKEN))


def holds_secret(store: cc.Store) -> bool:
    return bool(find_secrets(store, {"text": "old secret"}))


def number_of(store: cc.Store, conversation: str) -> int:
    return store.read(lambda tx: load_tip(tx, conversation)).conversation


def observe(store: cc.Store, conversation: str) -> None:
    cc.observe(
        store,
        request={
            "model": MODEL,
            "max_tokens": 9,
            "messages": [{"role": "user", "content": f"old secret {conversation}"}],
        },
        reply={"type": "message", "role": "assistant", "content": [{"type": "text", "text": "ok"}], "model": MODEL},
        time=1_000,
        format="anthropic",
        conversation=conversation,
    )


def test_retention_empties_an_unreadable_message_and_goes_on(
    shared_address: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Guarantee 2.8: one damaged row must not keep all others beyond their age."""
    with cc.open_store(shared_address) as store:
        ids = [store.append("a", cc.user(f"old secret {number}", time=1_000)).id for number in range(3)]
        store.append("b", cc.user("old secret of another", time=1_000))
        damage(store, "message", where=f"place = {store.conversation('a').branch << SEQ_BITS | 2}")
    with cc.open_store(shared_address, retention=AGE) as store:
        assert not holds_secret(store)
        assert [(each.id, each.redacted) for each in store.load("a")] == [(id, True) for id in ids]
        assert store.load("b")[0].redacted
        assert [each for each in scan_store(store) if each.kind == "fault"] == []
        assert store.append("a", cc.user("goes on")).seq == 4
    assert "message 2 on branch" in caplog.text


@pytest.mark.parametrize("erase", ["expire", "redact"])
@pytest.mark.parametrize("table", ["event", "turn", "step", "approval", "manifest", "shown", "channel"])
def test_unreadable_records_do_not_stop_a_redaction(table: str, erase: str) -> None:
    """They are emptied: what they hold is unknown, and may be the text."""
    with cc.open_store("memory:") as store:
        store.append("a", cc.user("hello", time=1_000))
        observe(store, "c")
        number = number_of(store, "c")
        delta = TextDelta(number=1, turn=1, step=1, uid=store.load("c")[0].uid, text="old secret")
        asked = Approval(id="x", agent="assistant", turn=1, step=1, call="c1", name="f", reason="old secret")

        def write(tx: Transaction) -> None:
            append_events(tx, number, [delta])
            insert_turn(tx, number, TurnRecord(number=1, agent="assistant", error="old secret"))
            insert_step(tx, number, StepRecord(number=1, turn=1, index=1, error="old secret"))
            insert_approvals(tx, number, [asked])

        store.write(write)
        damage(store, table, {"shown": "items", "channel": "state"}.get(table, "body"))
        if erase == "expire":
            assert store.expire(AGE) == 3
        else:
            store.redact("c", 1)
        assert not holds_secret(store)
        assert len(store.events("c")) == len(store.turns("c")) == len(store.steps("c")) == 1
        observe(store, "c")


def test_lists_of_the_store_leave_out_what_cannot_be_read(store: cc.Store, caplog: pytest.LogCaptureFixture) -> None:
    """A person must be able to open the other conversations."""
    for name in ("a", "b"):
        store.append(name, cc.user("hello"))
        number = number_of(store, name)
        step = StepRecord(number=1, turn=1, index=1, provider="p", model="m")
        asked = Approval(id=name, agent="assistant", turn=1, step=1, call="c1", name="f")
        store.write(lambda tx, number=number, step=step: insert_step(tx, number, step))
        store.write(lambda tx, number=number, asked=asked: insert_approvals(tx, number, [asked]))
    damage(store, "step", where=f"place = {number_of(store, 'a') << SEQ_BITS | 1}")
    damage(store, "approval", where=f"conversation = {number_of(store, 'a')}")
    assert {each.name: each.model for each in store.overviews().found} == {"a": "", "b": "p:m"}
    assert [each.conversation for each in store.approvals()] == ["b"]
    store.write(lambda tx: tx.run("UPDATE main.conversation SET branch = 99 WHERE name = 'a'"))
    assert [each.name for each in store.conversations()] == ["b"]
    assert "Conversation 'a'" in caplog.text


def test_observed_traffic_is_limited_beside_a_conversation_that_cannot_be_read() -> None:
    """Guarantee 16.2: it may hold content of our own, so it is kept; the others are deleted."""
    with cc.open_store("memory:") as store:
        for name in ("a", "b", "c"):
            observe(store, name)
        store.write(lambda tx: tx.run("UPDATE main.message SET time = 1000"))
        first = "place = (SELECT min(place) FROM main.manifest)"
        store.write(lambda tx: tx.run(f"UPDATE main.manifest SET body = ? WHERE {first}", b'{"request":"one"}'))
        assert limit_observed(store, age=AGE).conversations == 2
        assert [each.name for each in store.conversations()] == ["a"]
