"""Pinned messages are never trimmed: Guarantee 7.3."""

import pytest

import contextc as cc


def test_a_call_is_pinned_with_its_results_and_a_result_with_its_call(store: cc.Store) -> None:
    """Guarantees 5.4, 7.3: neither is kept alone."""
    store.append("demo", cc.user("go"))
    calls = [cc.ToolCall(id=name, name="read", arguments={}) for name in ("a", "b")]
    store.append("demo", cc.assistant(tool_calls=calls))
    store.append("demo", cc.tool_result("a", "read", "1"))
    store.append("demo", cc.user("hurry"))
    store.append("demo", cc.tool_result("b", "read", "2"))
    assert store.pin("demo", 5) == [2, 3, 5]
    assert store.pinned("demo") == [2, 3, 5]
    assert store.pin("demo", 1) == [1]
    assert store.unpin("demo", 2) == [2, 3, 5]
    assert store.pinned("demo") == [1]


def test_pinning_is_a_revision_and_forks_share_it(store: cc.Store) -> None:
    """A pin is not an append, so what was compiled is looked at again."""
    store.extend("demo", [cc.user("a"), cc.user("b")])
    before = store.conversation("demo").revision
    store.pin("demo", 1)
    assert store.conversation("demo").revision > before
    store.fork("demo", "other")
    assert store.pinned("other") == [1]
    store.delete("demo")
    assert store.pinned("other") == [1]
    store.delete("other")
    assert store.read(lambda tx: tx.rows("SELECT * FROM main.pin")) == []


def test_a_missing_message_cannot_be_pinned(store: cc.Store) -> None:
    store.append("demo", cc.user("a"))
    for wrong in (0, 2, "nothing"):
        with pytest.raises(cc.errors.UnknownMessage):
            store.pin("demo", wrong)
    with pytest.raises(cc.errors.UnknownConversation):
        store.pin("none", 1)
