"""Events filtered by kind, with the message that they follow. Every test runs on every store."""

from collections.abc import Sequence

import contextc as cc
from contextc.events import (
    AnyEvent,
    ErrorOccurred,
    InputDequeued,
    RetryScheduled,
    StepFinish,
    StepStart,
    SystemMessageCreated,
    TextDelta,
    ToolFailed,
    ToolFinished,
    TurnStart,
    UserNoticeCreated,
)
from contextc.store import turn_records
from contextc.store.message_log import load_tip
from contextc.store.transaction_engine import Row, Transaction
from contextc.store.turn_records import TurnRecord, load_events_of_types

KINDS = (UserNoticeCreated, ErrorOccurred)


def append_events(store: cc.Store, *events: AnyEvent, name: str = "demo") -> list[AnyEvent]:
    return store.write(lambda tx: turn_records.append_events(tx, load_tip(tx, name).conversation, events))


def found(
    store: cc.Store, *, before: int | None = None, limit: int = 100, name: str = "demo"
) -> list[tuple[str, int, str]]:
    """Return the texts of the notices, and their positions."""
    some = store.read(
        lambda tx: load_events_of_types(tx, load_tip(tx, name).conversation, KINDS, before=before, limit=limit)
    )
    return [
        (each.event.text if isinstance(each.event, UserNoticeCreated) else each.event.error, *each[1:]) for each in some
    ]


def delta(text: str = "so ") -> TextDelta:
    return TextDelta(uid="u", text=text)


def test_a_notice_is_after_the_message_that_was_reported_of_before_it(store: cc.Store) -> None:
    """Guarantee 12.2: hints where they happened, whichever kind of event named the message."""
    store.append("demo", cc.user("hi"))
    assert found(store) == []
    named: list[AnyEvent] = [
        StepFinish(seq=2, uid="reply"),
        ToolFinished(id="a", name="look", seq=3, uid="result"),
        ToolFailed(id="b", name="look", seq=4, uid="failed"),
        SystemMessageCreated(seq=5, uid="spoken", text="Go on.", trigger="idle"),
        InputDequeued(queued=1, seq=6, uid="steered"),
    ]
    append_events(store, UserNoticeCreated(text="before all"))
    for number, event in enumerate(named, 2):
        append_events(store, event, delta(), StepStart(provider="p", model="m", request=1, mode="stateless"), delta())
        append_events(
            store, UserNoticeCreated(text=f"hint {number}"), ErrorOccurred(kind="internal", error=f"error {number}")
        )
    uids = enumerate(["reply", "result", "failed", "spoken", "steered"], 2)
    placed = [(f"{what} {seq}", seq, uid) for seq, uid in uids for what in ("hint", "error")]
    assert found(store) == [("before all", 0, ""), *placed]


def test_a_turn_names_the_message_that_opened_it_unless_it_continues(store: cc.Store) -> None:
    """Guarantees 12.1, 12.2: the start of a turn has no uid; its record has. One that is resumed is further along."""
    message = store.append("demo", cc.user("hi"))
    store.write(
        lambda tx: turn_records.insert_turn(
            tx,
            load_tip(tx, "demo").conversation,
            TurnRecord(number=0, agent="assistant", opened=1, opening=message.uid),
        )
    )
    append_events(store, TurnStart(turn=1, seq=1), UserNoticeCreated(turn=1, text="at once"))
    append_events(store, StepFinish(turn=1, seq=2, uid="reply"), TurnStart(turn=1, seq=1, resumed=True))
    append_events(
        store, UserNoticeCreated(turn=1, text="again"), TurnStart(turn=7, seq=3), UserNoticeCreated(text="of no record")
    )
    assert found(store) == [("at once", 1, message.uid), ("again", 2, "reply"), ("of no record", 3, "")]


def test_only_the_kinds_that_are_wanted_come_and_only_of_this_conversation(store: cc.Store) -> None:
    """Message text is not mistaken for a kind, nor is a kind with the same prefix as another one."""
    for name in ("other", "demo", "third"):
        store.append(name, cc.user("hi"))
        append_events(store, StepFinish(seq=1, uid=name), UserNoticeCreated(text=f"of {name}"), name=name)
    append_events(
        store,
        delta('{"type":"system-hint","text":"no"}'),
        SystemMessageCreated(seq=2, uid="x", text="no", trigger="t"),
        RetryScheduled(kind="rate", seconds=1, attempt=1, error="no"),
    )
    assert found(store) == [("of demo", 1, "demo")]
    assert found(store, name="third") == [("of third", 1, "third")]


def test_the_last_ones_come_in_order_and_those_before_them_on_demand(store: cc.Store) -> None:
    """A page at a time, from the end: no gap, nothing twice."""
    store.append("demo", cc.user("hi"))
    for number in range(1, 8):
        append_events(store, StepFinish(seq=number, uid=f"u{number}"), delta(), UserNoticeCreated(text=str(number)))
    pages: list[list[tuple[str, int, str]]] = []
    before: int | None = None
    while page := found(store, before=before, limit=3):
        pages.append(page)
        before = 3 * int(page[0][0])  # the number of its event
    assert [[text for text, _, _ in page] for page in pages] == [["5", "6", "7"], ["2", "3", "4"], ["1"]]
    assert all((seq, uid) == (int(text), f"u{text}") for page in pages for text, seq, uid in page)


def test_notices_are_found_in_redacted_conversations(store: cc.Store) -> None:
    """Guarantee 3.4: redaction writes events again; they still begin with their kind, and keep their place."""
    message = store.append("demo", cc.user("a secret"))
    append_events(
        store,
        StepFinish(turn=1, step=1, seq=1, uid=message.uid),
        UserNoticeCreated(turn=1, step=1, text="a secret of 1"),
    )
    store.redact("demo", 1)
    assert found(store) == [("", 1, message.uid)]


class Counting:
    """A transaction that counts what it is asked."""

    def __init__(self, tx: Transaction) -> None:
        self._tx, self.asked, self.is_retry, self.locked = tx, 0, tx.is_retry, tx.locked
        self.dialect, self.schema = tx.dialect, tx.schema

    def run(self, sql: str, *values: object) -> int:
        raise AssertionError("nothing is written")

    def run_many(self, sql: str, rows: object) -> None:
        raise AssertionError("nothing is written")

    def send(self, sql: str, *values: object) -> None:
        raise AssertionError("nothing is written")

    def prefetch(self, sql: str, *values: object) -> None:
        raise AssertionError("both queries need the result of another one")

    def rows(self, sql: str, *values: object) -> list[Row]:
        self.asked += 1
        return self._tx.rows(sql, *values)

    def row(self, sql: str, *values: object) -> Row | None:
        self.asked += 1
        return self._tx.row(sql, *values)


def test_a_page_is_asked_for_at_once(store: cc.Store) -> None:
    """However many there are on it: a database that is far away is asked twice."""
    store.append("demo", cc.user("hi"))
    some: Sequence[AnyEvent] = [
        event
        for number in range(1, 101)
        for event in (TurnStart(turn=number, seq=number), UserNoticeCreated(text=str(number)))
    ]
    append_events(store, *some)

    def work(tx: Transaction) -> tuple[int, int]:
        number, counting = load_tip(tx, "demo").conversation, Counting(tx)
        return len(load_events_of_types(counting, number, KINDS, limit=100)), counting.asked

    assert store.read(work) == (100, 2)
