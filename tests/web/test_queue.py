"""Queued input, and its removal. Guarantee 11.9."""

from starlette.testclient import TestClient

import contextc as cc

DEMO = "/api/conversations/demo"


def test_what_waits_can_be_taken_back(client: TestClient, store: cc.Store) -> None:
    """Guarantee 11.9: it is gone for good, and what waits beside it stays."""
    store.append("demo", cc.user("hi"))
    first, second = [store.enqueue("demo", cc.user(text), kind="follow-up") for text in ("one", "two")]
    assert client.delete(f"{DEMO}/queue/{first.number}").json() == {}
    waits = client.get(DEMO).json()["queued"]
    assert [(each["number"], each["text"]) for each in waits] == [(second.number, "two")]
    again = client.delete(f"{DEMO}/queue/{first.number}")
    assert (again.status_code, again.json()["error"]["kind"]) == (409, "NotWaiting")


def test_only_the_owner_can_take_back_input(client: TestClient, store: cc.Store) -> None:
    """Guarantee 11.9: not what waits in another conversation, nor for another agent."""
    store.append("demo", cc.user("hi"))
    elsewhere = store.enqueue("other", cc.user("one"))
    somebody = store.enqueue("demo", cc.user("two"), agent="somebody")
    for each in (elsewhere, somebody):
        assert client.delete(f"{DEMO}/queue/{each.number}").status_code == 409
    assert client.delete("/api/conversations/nowhere/queue/1").status_code == 404
    assert [each["text"] for each in client.get("/api/conversations/other").json()["queued"]] == ["one"]
