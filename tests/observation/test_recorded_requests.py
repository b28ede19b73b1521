"""Observed requests are read as they are recorded, by any handle of the store."""

import contextc as cc
from contextc.observation.new_requests import NewRequestReader
from tests.observation.test_conversation_match import see


def test_requests_are_read_once_in_their_order(store: cc.Store) -> None:
    store.append("own", cc.user("hi"))
    see(store, "before", reply="a", conversation="x")
    requests = NewRequestReader(store)
    assert requests.read_new() == []
    see(store, "before", "a", "c", reply="d", conversation="x", time=2_000)
    see(store, "first", reply="e", conversation="y", time=1_000)
    see(store, "first", "e", "second", conversation="y", time=3_000)
    found = requests.read_new()
    assert [(each.conversation, each.request, each.status) for each in found] == [
        ("y", 1, "ok"), ("x", 2, "ok"), ("y", 2, "unanswered"),
    ]  # fmt: skip
    assert found[0].usage is not None
    assert requests.read_new() == []
