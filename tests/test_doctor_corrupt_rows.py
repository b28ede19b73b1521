"""Stores with inconsistent rows: reported, and repaired where that needs no guess."""

from collections.abc import Callable

import pytest

import contextc as cc
from contextc.doctor import repair_conversations, scan_store

MAIN, FORK, EDIT, OTHER = 1, 2, 3, 4
"""The branches of the store below: `demo` begins on MAIN and goes on with EDIT; the others have one each."""


@pytest.fixture
def ill() -> cc.Store:
    store = cc.open_store("memory:")
    store.extend("demo", [cc.user(f"m{number}") for number in range(1, 9)])
    store.fork("demo", "fork", at=4)
    store.append("fork", cc.user("f5"))
    store.rewind("demo", 6)
    store.extend("demo", [cc.user("e7"), cc.user("e8")])
    store.append("other", cc.user("o1"))
    assert [branch.number for branch in store.branches("demo")] == [MAIN, EDIT]
    return store


def texts_of(store: cc.Store, name: str = "demo") -> list[str]:
    return [message.text for message in store.load(name)]


def damaged(store: cc.Store, *statements: str) -> list[tuple[str, str | None, str]]:
    """Return the findings after direct changes to the tables."""
    store.write(lambda tx: [tx.run(each) for each in statements])
    return [(each.code, each.conversation, each.healing) for each in scan_store(store) if each.kind == "fault"]


def compiles(store: cc.Store, name: str) -> object:
    return cc.MessageCompiler(store, cc.provider("openai:gpt-5")).compile(name)


def loads(store: cc.Store, name: str) -> object:
    return store.load(name)


def forks(store: cc.Store, name: str) -> object:
    return store.fork(name, "new", at=7)


def pins(store: cc.Store, name: str) -> object:
    return store.pin(name, 7)


def redacts(store: cc.Store, name: str) -> object:
    return store.redact(name, 1)


def asks_for_events(store: cc.Store, name: str) -> object:
    return store.events(name)


def asks_for_queue(store: cc.Store, name: str) -> object:
    return store.queued(name)


WHOLE = ["m1", "m2", "m3", "m4", "m5", "m6", "e7", "e8"]


@pytest.mark.parametrize(
    ("damage", "code"),
    [
        (f"UPDATE main.conversation SET branch = {OTHER} WHERE name = 'demo'", "lost-branch"),
        (f"UPDATE main.conversation SET branch = {FORK} WHERE name = 'demo'", "lost-branch"),
        ("UPDATE main.conversation SET branch = 99 WHERE name = 'demo'", "lost-branch"),
        ("UPDATE main.conversation SET branch = 'x' WHERE name = 'demo'", "lost-branch"),
        (f"UPDATE main.conversation SET tree = {OTHER} WHERE name = 'demo'", "lost-branch"),
        ("DELETE FROM main.conversation WHERE name = 'demo'", "lost-conversation"),
        (f"UPDATE main.branch SET base_seq = 50 WHERE number = {EDIT}", "lost-base"),
        (f"UPDATE main.branch SET base_seq = 'x' WHERE number = {EDIT}", "lost-base"),
        (f"UPDATE main.branch SET parent = {EDIT} WHERE number = {EDIT}", "lost-base"),
        (f"UPDATE main.branch SET parent = {FORK} WHERE number = {EDIT}", "lost-base"),
        (f"UPDATE main.branch SET parent = {OTHER} WHERE number = {EDIT}", "lost-base"),
        (f"UPDATE main.branch SET parent = 99 WHERE number = {EDIT}", "lost-base"),
        (f"UPDATE main.branch SET parent = NULL WHERE number = {EDIT}", "lost-base"),
    ],
)
def test_rows_that_lead_elsewhere_are_found_and_repaired(ill: cc.Store, damage: str, code: str) -> None:
    """Guarantee 3.4: what was said is there, and the row that leads to it is wrong. Nothing said is lost by repair."""
    assert [each[0] for each in damaged(ill, damage)] == [code]
    (repaired,) = repair_conversations(ill, list(scan_store(ill)))
    assert (repaired.conversation, repaired.outcome) == ("demo", "healed"), repaired.text
    assert (texts_of(ill), texts_of(ill, "fork"), texts_of(ill, "other")) == (
        WHOLE,
        ["m1", "m2", "m3", "m4", "f5"],
        ["o1"],
    )
    assert list(scan_store(ill)) == []
    ill.append("demo", cc.user("goes on"))
    assert [message.text for message in ill.sync("demo", [cc.user("another page")])] == ["another page"]


@pytest.mark.parametrize(
    "damage",
    [
        f"UPDATE main.branch SET parent = {MAIN} WHERE number = {MAIN}",
        f"UPDATE main.branch SET base_seq = 7 WHERE number = {MAIN}",
    ],
)
def test_a_root_that_begins_elsewhere_is_repaired_for_all_that_stand_on_it(ill: cc.Store, damage: str) -> None:
    assert damaged(ill, damage)[0][0] == "lost-base"
    repair_conversations(ill, list(scan_store(ill)))
    assert (texts_of(ill), texts_of(ill, "fork")) == (WHOLE, ["m1", "m2", "m3", "m4", "f5"])
    assert list(scan_store(ill)) == []


def test_a_current_branch_that_is_gone_is_reported_with_what_is_lost(ill: cc.Store) -> None:
    """The conversation continues with its remaining messages; unreachable messages are still reported."""
    found = damaged(ill, f"DELETE FROM main.branch WHERE number = {EDIT}")
    assert found == [("lost-branch", "demo", "row"), ("lost-messages", None, "none")]
    with pytest.raises(cc.errors.StoreCorrupt, match=r"'demo': current branch 3 is missing.* `contextc doctor`"):
        ill.load("demo")
    repair_conversations(ill, list(scan_store(ill)))
    assert texts_of(ill) == [f"m{number}" for number in range(1, 9)]
    (left,) = scan_store(ill)
    assert left.text == "2 messages on branch 3, which is missing."
    assert left.would.startswith("cannot be repaired: ")


def test_what_has_nothing_left_to_stand_on_needs_a_copy(ill: cc.Store) -> None:
    found = damaged(
        ill, f"DELETE FROM main.branch WHERE number = {OTHER}", "DELETE FROM main.message WHERE place >> 32 = 4"
    )
    assert found == [("lost-branch", "other", "none")]
    (finding,) = scan_store(ill, conversation="other")
    assert finding.would == "cannot be repaired: no branch belongs to it. Restore a backup of the store"
    assert repair_conversations(ill, [finding]) == []


def test_a_root_that_is_gone_leaves_its_conversations_and_repairs_the_others(ill: cc.Store) -> None:
    """A crash in one conversation must not keep another from being repaired."""
    call = cc.ToolCall(id="c1", name="f", arguments={})
    ill.append("fork", cc.assistant(tool_calls=[call]))
    before = list(scan_store(ill))
    ill.append("other", cc.assistant(tool_calls=[call]))
    found = damaged(ill, f"DELETE FROM main.branch WHERE number = {MAIN}")
    assert {each[0] for each in found} == {"lost-messages", "lost-base"}
    repaired = repair_conversations(ill, [*before, *scan_store(ill)])
    assert [(each.conversation, each.outcome) for each in repaired] == [("fork", "left"), ("other", "healed")]
    assert "Nothing was changed." in repaired[0].text


@pytest.mark.parametrize("value", ["'abc'", "5", "x'00'"])
def test_ids_of_any_type_are_repaired_in_all_conversations(ill: cc.Store, value: str) -> None:
    torn = f"UPDATE main.message SET body = 'xx' WHERE place = {OTHER << 32 | 1}"
    found = damaged(ill, f"UPDATE main.message SET id = {value} WHERE place = {MAIN << 32 | 2}", torn)
    assert {each[0] for each in found} == {"broken-link", "unreadable"}
    assert {each.outcome for each in repair_conversations(ill, list(scan_store(ill)))} == {"healed"}
    assert texts_of(ill) == WHOLE
    assert list(scan_store(ill)) == []


@pytest.mark.parametrize("value", ["'abc'", "5", "1.5"])
def test_a_blob_of_any_type_is_a_changed_blob(ill: cc.Store, value: str) -> None:
    stored = ill.append("other", cc.user(cc.Media(mime_type="image/png", data=b"png")))
    assert damaged(ill, f"UPDATE main.blob SET data = {value}") == [("changed-blob", "other", "branch")]
    (media,) = stored.parts
    assert isinstance(media, cc.Media)
    with pytest.raises(cc.errors.StoreCorrupt, match="is corrupt: expected bytes"):
        ill.blob(media.blob or "")


def test_messages_of_no_branch_are_a_fault(ill: cc.Store) -> None:
    source = f"FROM main.message WHERE place = {1 << 32 | 1}"
    copy = f"INSERT INTO main.message SELECT {77 << 32 | 1}, id, time, redacted, body {source}"
    assert damaged(ill, copy) == [("lost-messages", None, "none")]


def test_a_damaged_conversation_with_a_dead_turn_can_be_repaired(ill: cc.Store) -> None:
    """A turn that cannot be put right, because nothing can be read, is not a reason not to put that right first."""
    lease = ill.acquire("other")
    found = damaged(
        ill,
        f"UPDATE main.message SET body = 'xx' WHERE place = {OTHER << 32 | 1}",
        "UPDATE main.lease SET expires = 0, seq = 0",
    )
    assert found == [("unreadable", "other", "branch")]
    (repaired,) = repair_conversations(ill, list(scan_store(ill)))
    assert repaired.outcome == "healed", repaired.text
    assert len(texts_of(ill, "other")) == 1
    ill.release(lease)


def test_a_running_turn_keeps_its_row_from_being_put_right(ill: cc.Store) -> None:
    with ill.lease("demo"):
        damaged(ill, "UPDATE main.conversation SET branch = 99 WHERE name = 'demo'")
        (repaired,) = repair_conversations(ill, list(scan_store(ill)))
        assert repaired.outcome == "left"
        row = ill.read(lambda tx: tx.row("SELECT branch FROM main.conversation WHERE name = 'demo'"))
        assert row == (99,)
        ill.write(lambda tx: tx.run(f"UPDATE main.conversation SET branch = {EDIT} WHERE name = 'demo'"))


@pytest.mark.parametrize("read", [loads, forks, pins, compiles])
def test_a_branch_that_begins_on_itself_is_an_error_and_no_circle(
    ill: cc.Store, read: Callable[[cc.Store, str], object]
) -> None:
    ill.write(lambda tx: tx.run(f"UPDATE main.branch SET parent = {EDIT} WHERE number = {EDIT}"))
    with pytest.raises(cc.errors.StoreCorrupt, match=r"Branch 3: its parent, branch 3, is missing.* `contextc doctor`"):
        read(ill, "demo")


@pytest.mark.parametrize("body", ["x'7b'", "x'ff'", "5", "'[]'"])
@pytest.mark.parametrize("read", [loads, compiles])
def test_an_unreadable_message_is_named_by_any_reader(
    ill: cc.Store, read: Callable[[cc.Store, str], object], body: str
) -> None:
    """Guarantee 15.1: an error says what, where and the way out; no decoder's own exception comes through."""
    ill.write(lambda tx: tx.run(f"UPDATE main.message SET body = {body} WHERE place = {OTHER << 32 | 1}"))
    with pytest.raises(
        cc.errors.StoreCorrupt, match=r"Message 1 on branch 4 of 'other' cannot be read: .* `contextc doctor`"
    ):
        read(ill, "other")


@pytest.mark.parametrize("body", ["x'7b'", "x'ff'", "5", "'[]'"])
def test_an_unreadable_message_can_be_redacted(ill: cc.Store, body: str) -> None:
    """Guarantee 2.8: what is left of it goes, and the conversation can be read again."""
    ill.write(lambda tx: tx.run(f"UPDATE main.message SET body = {body} WHERE place = {OTHER << 32 | 1}"))
    assert ill.redact_text("other", "some text") == []
    redacts(ill, "other")
    assert [message.redacted for message in ill.load("other")] == [True]
    assert [each for each in scan_store(ill) if each.kind == "fault"] == []


def test_the_next_request_of_a_channel_names_it_too(ill: cc.Store) -> None:
    """The short way for the next step reads what is new by itself."""
    compiler = cc.MessageCompiler(ill, cc.provider("openai:gpt-5"))
    with compiler.attempt(compiler.compile("other")) as attempt:
        attempt.commit(cc.assistant("yes"))
    ill.append("other", cc.user("more"))
    ill.write(lambda tx: tx.run(f"UPDATE main.message SET body = x'7b' WHERE place = {OTHER << 32 | 3}"))
    with pytest.raises(cc.errors.StoreCorrupt, match="Message 3 on branch 4 of 'other' cannot be read"):
        compiler.compile("other")


@pytest.mark.parametrize(
    ("table", "column", "read"),
    [
        ("channel", "state", compiles),
        ("shown", "items", compiles),
        ("event", "body", asks_for_events),
        ("queue", "body", asks_for_queue),
    ],
)
def test_other_rows_that_cannot_be_read_are_store_corrupt(
    ill: cc.Store, table: str, column: str, read: Callable[[cc.Store, str], object]
) -> None:
    compiler = cc.MessageCompiler(ill, cc.provider("openai:gpt-5"))
    with compiler.attempt(compiler.compile("other")) as attempt:
        attempt.commit(cc.assistant("yes"))
    ill.append("other", cc.user("more"))
    ill.enqueue("other", cc.user("later"))
    for value in ("x'7b'", "5"):
        assert ill.write(lambda tx, value=value: tx.run(f"UPDATE main.{table} SET {column} = {value}")) > 0
        ill.write(lambda tx: tx.run("UPDATE main.channel SET version = version + 1"))  # nobody remembers it
        with pytest.raises(cc.errors.StoreCorrupt, match="cannot be read"):
            read(ill, "other")
