"""Changes of recently active conversations, as a reader finds them that compares with what it saw last."""

import contextc as cc
from contextc.store.conversation_list import load_changes, load_states
from tests.observation.test_observe import answer, chat


def test_changes_of_a_store(store: cc.Store) -> None:
    """New, changed, replaced and deleted conversations, and those that are no longer among the recent ones."""
    for name in ("a", "b", "c"):
        store.append(name, cc.user("hi"))
    before = store.read(lambda tx: load_states(tx, 3))
    assert len(before) == 3
    store.delete("a")
    store.append("a", cc.user("another one"))
    store.append("b", cc.assistant("hello"))
    found = store.read(lambda tx: load_changes(tx, before, 3))
    assert ({each.name for each in found.changed}, found.removed) == ({"a", "b"}, [])
    after = store.read(lambda tx: load_changes(tx, found.states, 3))
    assert (after.changed, after.removed, after.states) == ([], [], found.states)
    store.delete("c")
    assert store.read(lambda tx: load_changes(tx, found.states, 3)).removed == ["c"]


def test_requests_branches_and_turns_are_changes(store: cc.Store) -> None:
    states = store.read(load_states)

    def changed() -> list[tuple[str, bool]]:
        nonlocal states
        found = store.read(lambda tx: load_changes(tx, states))
        states = found.states
        return [(each.name, each.running) for each in found.changed]

    store.begin("x")
    assert changed() == [("x", False)]
    cc.observe(store, request=chat("a"), reply=answer("b"), format="openai_chat", conversation="x")
    assert changed() == [("x", False)]
    cc.observe(store, request=chat("a"), format="openai_chat", conversation="x")  # nothing new, and no answer
    assert changed() == [("x", False)]
    store.rewind("x", 1)
    assert changed() == [("x", False)]
    store.set_title("x", "A better name")
    assert changed() == [("x", False)]
    with store.lease("x", "agent"):
        assert changed() == [("x", True)]
        assert changed() == []
    assert changed() == [("x", False)]
