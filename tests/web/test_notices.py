"""Notices between messages over HTTP: pages, and the position of each notice."""

import asyncio
from typing import Any

from starlette.testclient import TestClient

import contextc as cc
from contextc.events import CompactionFinished, ErrorOccurred, RetryScheduled, StepFinish, TextDelta, UserNoticeCreated
from contextc.store import turn_records
from contextc.store.message_log import load_tip
from tests.executor.scripted_provider import SONNET, Scripted, add, call, fails, says


def asked(client: TestClient, **query: int) -> list[Any]:  # JSON
    answer = client.get("/api/conversations/demo/notices", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_notices_are_events_as_they_were_reported_and_where_they_happened(store: cc.Store, client: TestClient) -> None:
    """Guarantee 12.2: hints, summaries, retries and errors, whatever an event has for names of its own."""
    store.append("demo", cc.user("hi"))
    events = [
        UserNoticeCreated(time=5, turn=1, step=1, text="ten calls", trigger="calls"),
        CompactionFinished(upto=2, before=900, after=30),
        RetryScheduled(kind="rate", seconds=1.5, attempt=1, error="slowly"),
        ErrorOccurred(kind="internal", error="no"),
    ]
    messages = [StepFinish(seq=1, uid="u"), TextDelta(uid="v", text="so"), *events]
    store.write(lambda tx: turn_records.append_events(tx, load_tip(tx, "demo").conversation, messages))
    found = asked(client)
    assert [(each["after"], each["uid"]) for each in found] == [(1, "u")] * 4
    assert [each["event"] for each in found] == [
        {
            "type": "system-hint",
            "number": 3,
            "time": 5,
            "turn": 1,
            "step": 1,
            "text": "ten calls",
            "trigger": "calls",
        },
        {"type": "compaction", "number": 4, "upto": 2, "before": 900, "after": 30},
        {"type": "retry", "number": 5, "kind": "rate", "seconds": 1.5, "attempt": 1, "error": "slowly"},
        {"type": "error", "number": 6, "kind": "internal", "error": "no"},
    ]
    assert asked(client, before=6, limit=2) == found[1:3]
    assert asked(client, before=3) == []


def test_what_a_turn_reports_is_at_messages_that_are_there(store: cc.Store, client: TestClient) -> None:
    """Guarantees 15.1, 12.2: as in a real turn: retried before any output, and failed after a result."""
    script = [
        fails("transient"),
        says(call(1, a=1, b=2)),
        fails("invalid", "It is late."),
    ]
    executor = cc.AgentExecutor(store, SONNET, endpoint=Scripted(*script), tools=[add], triggers=())

    async def run() -> None:
        await executor.start("demo", "Add.").wait()

    asyncio.run(run())
    uids = {message.seq: message.uid for message in store.load("demo")}
    found = asked(client)
    assert [(each["event"]["type"], each["after"]) for each in found] == [("retry", 1), ("error", 3)]
    assert [each["uid"] for each in found] == [uids[1], uids[3]]


def test_a_compaction_of_messages_without_events_is_at_the_last_one(store: cc.Store, client: TestClient) -> None:
    """Guarantee 12.2: an imported conversation can be compacted, too."""
    store.extend("demo", [cc.user("hi"), cc.assistant("Good.")])
    events = [CompactionFinished(upto=1, before=900, after=30, seq=2)]
    store.write(lambda tx: turn_records.append_events(tx, load_tip(tx, "demo").conversation, events))
    assert [each["after"] for each in asked(client)] == [2]


def test_an_invalid_page_is_refused(store: cc.Store, client: TestClient) -> None:
    store.append("demo", cc.user("hi"))
    for query in ({"limit": 0}, {"limit": 1_001}, {"before": 0}, {"before": 1 << 32}):
        assert client.get("/api/conversations/demo/notices", params=query).status_code == 400
    assert client.get("/api/conversations/nobody/notices").status_code == 404
