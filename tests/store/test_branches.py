"""Forks, rewinds, edits, resets and deletion: no accidental loss of history. Every test runs on every store."""

import pytest

import contextc as cc


def fill(store: cc.Store, *texts: str, conversation: str = "demo") -> list[cc.Message]:
    return store.extend(conversation, [cc.user(text) for text in texts])


def texts(store: cc.Store, conversation: str = "demo", branch: int | None = None) -> list[str]:
    return [message.text for message in store.load(conversation, branch=branch)]


def counts(store: cc.Store) -> dict[str, int]:
    tables = ("message", "branch", "conversation", "blob", "blob_use", "append_key", "edge", "early_uid", "stream")
    found = {name: store.read(lambda tx, n=name: tx.row(f"SELECT count(*) FROM main.{n}")) for name in tables}
    return {name: row[0] for name, row in found.items() if row and row[0]}


def test_a_fork_shares_the_past_and_has_its_own_future(store: cc.Store) -> None:
    """Guarantee 3.5."""
    shared = fill(store, "a", "b", "c")
    fork = store.fork("demo", "other", at=2)
    assert (fork.name, fork.length, fork.tip) == ("other", 2, shared[1].id)
    store.append("other", cc.user("x"))
    store.append("demo", cc.user("d"))
    assert (texts(store), texts(store, "other")) == (["a", "b", "c", "d"], ["a", "b", "x"])
    assert store.load("other")[:2] == shared[:2]
    assert store.load("other", last=2) == store.load("other")[1:]


def test_a_fork_writes_no_message(store: cc.Store) -> None:
    """Guarantee 3.5: constant in the length of the history."""
    fill(store, *map(str, range(200)))
    before = counts(store)
    store.fork("demo", "other", at=150)
    after = counts(store)
    assert after.pop("message") == before.pop("message") == 200
    assert (after["branch"] - before["branch"], after["conversation"] - before["conversation"]) == (1, 1)


def test_forks_of_forks_run_through_every_line(store: cc.Store) -> None:
    fill(store, "a")
    for number in range(1, 6):
        store.fork("demo" if number == 1 else f"f{number - 1}", f"f{number}")
        store.append(f"f{number}", cc.user(str(number)))
    assert texts(store, "f5") == ["a", "1", "2", "3", "4", "5"]
    assert [message.text for message in store.load("f5", after=2, until=4)] == ["2", "3"]
    store.fork("f5", "early", at=store.load("f5")[2].id)
    assert texts(store, "early") == ["a", "1", "2"]


def test_a_fork_at_the_root_is_empty(store: cc.Store) -> None:
    fill(store, "a")
    assert store.fork("demo", "empty", at=0).length == 0
    assert texts(store, "empty") == []
    store.append("empty", cc.user("x"))
    assert texts(store, "empty") == ["x"]


def test_a_fork_needs_a_free_name_and_a_known_message(store: cc.Store) -> None:
    fill(store, "a")
    fill(store, "z", conversation="taken")
    with pytest.raises(cc.errors.ConversationExists, match="'taken' already exists"):
        store.fork("demo", "taken")
    with pytest.raises(cc.errors.UnknownMessage):
        store.fork("demo", "other", at=5)
    with pytest.raises(cc.errors.UnknownConversation):
        store.fork("nope", "other")
    assert [each.name for each in store.conversations()] == ["demo", "taken"]


def test_rewinding_continues_from_an_earlier_message_and_keeps_the_rest(store: cc.Store) -> None:
    """Guarantees 3.4, 3.5."""
    messages = fill(store, "a", "b", "c")
    store.rewind("demo", messages[0])
    assert texts(store) == ["a"]
    store.append("demo", cc.user("x"))
    assert texts(store) == ["a", "x"]
    old, new = store.branches("demo")
    assert (old.length, old.current, new.base, new.length, new.current) == (3, False, 1, 2, True)
    assert texts(store, branch=old.number) == ["a", "b", "c"]


def test_rewinding_to_the_tip_changes_nothing(store: cc.Store) -> None:
    fill(store, "a", "b")
    assert store.rewind("demo", 2).revision == 0
    assert len(store.branches("demo")) == 1


def test_editing_puts_another_message_in_its_place_on_a_new_branch(store: cc.Store) -> None:
    """Guarantee 3.4: the original and its answers stay."""
    messages = fill(store, "a", "b", "c")
    edited = store.edit("demo", 2, cc.user("B"))
    assert (edited.seq, texts(store)) == (2, ["a", "B"])
    assert edited.uid != messages[1].uid
    assert edited.id != messages[1].id
    assert store.conversation("demo").revision == 1
    assert texts(store, branch=store.branches("demo")[0].number) == ["a", "b", "c"]
    with pytest.raises(cc.errors.InvalidInput, match="root"):
        store.edit("demo", 0, cc.user("x"))


def test_editing_the_first_message_starts_over_from_the_same_root(store: cc.Store) -> None:
    fill(store, "a", "b")
    root = store.conversation("demo").root
    store.edit("demo", 1, cc.user("A"))
    assert (texts(store), store.conversation("demo").root) == (["A"], root)


def test_a_stored_message_can_be_edited_from_itself(store: cc.Store) -> None:
    """The natural way: load, change, edit."""
    from msgspec.structs import replace

    fill(store, "a", "b")
    loaded = store.load("demo")[1]
    edited = store.edit("demo", loaded, replace(loaded, parts=(cc.Text("B"),)))
    assert (texts(store), edited.uid != loaded.uid) == (["a", "B"], True)


def test_switching_goes_back_to_another_branch(store: cc.Store) -> None:
    fill(store, "a", "b", "c")
    store.edit("demo", 2, cc.user("B"))
    old = store.branches("demo")[0].number
    assert store.switch("demo", old).tip == store.load("demo")[-1].id
    store.append("demo", cc.user("d"))
    assert texts(store) == ["a", "b", "c", "d"]
    with pytest.raises(cc.errors.UnknownBranch, match="has no branch 999"):
        store.switch("demo", 999)


def test_a_message_on_another_branch_is_named_as_such(store: cc.Store) -> None:
    """Guarantee 15.1: the way out is in the error."""
    gone = fill(store, "a", "b")[1]
    store.rewind("demo", 1)
    with pytest.raises(cc.errors.UnknownMessage, match=r"It is on branch \d+: `switch` to that, or fork there"):
        store.load("demo", after=gone)
    store.fork("demo", "rescued", at=gone)
    assert texts(store, "rescued") == ["a", "b"]


def test_an_append_never_follows_a_branch_that_was_left(store: cc.Store) -> None:
    """The short way of appending must notice rewinds, edits and switches."""
    for round_ in range(3):
        store.append("demo", cc.user(f"keep {round_}"))
        store.append("demo", cc.user("drop"))
        store.rewind("demo", round_ + 1)
    assert texts(store) == ["keep 0", "keep 1", "keep 2"]


def test_another_handle_sees_the_rewind(shared_address: str) -> None:
    """Guarantee 3.2: also in another process, which has its own idea of where the conversation ends."""
    with cc.open_store(shared_address) as one, cc.open_store(shared_address) as two:
        one.append("demo", cc.user("a"))
        one.append("demo", cc.user("b"))
        two.rewind("demo", 1)
        one.append("demo", cc.user("c"))
        assert texts(two) == ["a", "c"]
        two.append("demo", cc.user("d"))
        one.append("demo", cc.user("e"))
        assert texts(one) == ["a", "c", "d", "e"]


def test_reset_sets_an_edge_and_keeps_the_history(store: cc.Store) -> None:
    """Guarantees 3.4, 7.7: `reset` clears the context, `delete` deletes; two calls."""
    fill(store, "a", "b")
    assert store.reset("demo").context_start == 2
    assert store.reset("demo").revision == 1
    assert texts(store) == ["a", "b"]
    fill(store, "c")
    assert store.conversation("demo").context_start == 2
    assert store.reset("demo").context_start == 3


def test_a_fork_inherits_the_edge_and_a_rewind_before_it_loses_it(store: cc.Store) -> None:
    fill(store, "a", "b")
    store.reset("demo")
    fill(store, "c")
    assert store.fork("demo", "after").context_start == 2
    assert store.fork("demo", "before", at=1).context_start == 0
    store.reset("after")
    assert store.conversation("demo").context_start == 2
    store.reset("demo")
    assert (store.conversation("after").context_start, store.conversation("demo").context_start) == (3, 3)
    assert store.rewind("demo", 2).context_start == 2
    assert store.rewind("demo", 1).context_start == 0


def test_deleting_leaves_nothing_of_a_conversation(store: cc.Store) -> None:
    """Guarantee 3.4."""
    fill(store, "keep", conversation="other")
    before = counts(store)
    store.append("demo", cc.user(cc.Media(mime_type="image/png", data=b"x"), uid="named"), key="k")
    store.edit("demo", 1, cc.user("edited"))
    store.reset("demo")
    with store.lease("demo") as lease:
        store.stream(lease)
        store.delete("demo")
    assert counts(store) == before
    with pytest.raises(cc.errors.UnknownConversation):
        store.load("demo")
    assert texts(store, "other") == ["keep"]


def test_deleting_spares_what_a_fork_is_on(store: cc.Store) -> None:
    """Guarantee 3.5: shared means shared."""
    fill(store, "a", "b", "c", "d")
    store.fork("demo", "other", at=2)
    store.fork("other", "third", at=1)
    store.append("other", cc.user("x"))
    store.delete("demo")
    assert (texts(store, "other"), counts(store)["message"]) == (["a", "b", "x"], 3)
    store.delete("other")
    assert (texts(store, "third"), counts(store)["message"]) == (["a"], 1)
    store.append("third", cc.user("y"))
    store.delete("third")
    assert counts(store) == {}


def test_a_deleted_name_can_be_used_again(store: cc.Store) -> None:
    old = fill(store, "a")[0]
    store.delete("demo")
    assert store.append("demo", cc.user("a")).id != old.id
    assert texts(store) == ["a"]
