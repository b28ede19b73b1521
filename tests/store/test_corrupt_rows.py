"""Missing rows and rows changed outside of the store: reported, never read as empty. On every store."""

from collections.abc import Callable

import pytest

import contextc as cc
from contextc.doctor import repair_conversations, scan_store
from contextc.interchange import export_lines
from contextc.store.message_log import SEQ_BITS, load_lineage


@pytest.fixture
def filled(store: cc.Store) -> cc.Store:
    for number in range(1, 6):
        store.append("demo", cc.user(f"m{number}", uid="given" if number == 3 else ""), key=f"k{number}")
    return store


def run(store: cc.Store, sql: str, *values: object) -> None:
    store.write(lambda tx: tx.run(sql, *values))


def without_message_3(store: cc.Store) -> None:
    run(store, "DELETE FROM main.message WHERE place = ?", place_of(store, 3))


def place_of(store: cc.Store, seq: int) -> int:
    return store.conversation("demo").branch << SEQ_BITS | seq


def changed(store: cc.Store, seq: int, before: bytes, after: bytes) -> None:
    """Change bytes of a stored message, as a flipped bit or another program does."""
    place = place_of(store, seq)
    [(body,)] = store.read(lambda tx: tx.rows("SELECT body FROM main.message WHERE place = ?", place))
    assert before in body
    run(store, "UPDATE main.message SET body = ? WHERE place = ?", body.replace(before, after), place)


USES: dict[str, Callable[[cc.Store], object]] = {
    "fork": lambda store: store.fork("demo", "other", at=3),
    "rewind": lambda store: store.rewind("demo", 3),
    "edit": lambda store: store.edit("demo", 4, cc.user("another")),
    "load": lambda store: store.load("demo"),
    "load after": lambda store: store.load("demo", after=3),
    "load up to": lambda store: store.load("demo", until=3),
    "the uid": lambda store: store.load("demo", until="given"),
    "append by key": lambda store: store.append("demo", cc.user("m3"), key="k3"),
    "append after": lambda store: store.append("demo", cc.user("m4"), parent=3),
    "sync": lambda store: store.sync("demo", [cc.user("m1")]),
    "redact": lambda store: store.redact("demo", 3),
}


def test_a_missing_message_is_an_error_and_changes_nothing(filled: cc.Store) -> None:
    """Read as the root, it would empty the conversation; read as nothing, it would be stored twice or left out."""
    without_message_3(filled)
    before = filled.conversation("demo")
    for name, use in USES.items():
        with pytest.raises(cc.errors.StoreCorrupt, match=r"essage (3|'given').* missing .*contextc doctor"):
            use(filled)
        assert filled.conversation("demo") == before, name
    assert [each.name for each in filled.conversations()] == ["demo"]
    assert [each.code for each in scan_store(filled)] == ["gap"]


def test_what_does_not_run_through_a_missing_message_is_read(filled: cc.Store) -> None:
    """A fault of one message leaves the rest usable."""
    without_message_3(filled)
    assert [each.text for each in filled.load("demo", until=2)] == ["m1", "m2"]
    assert [each.text for each in filled.load("demo", last=1)] == ["m5"]
    assert filled.append("demo", cc.user("m6")).seq == 6


def test_a_conversation_whose_branch_is_missing_is_corrupt_not_unknown(filled: cc.Store) -> None:
    """Reported as unknown, it would be taken for deleted."""
    run(filled, "DELETE FROM main.branch")
    for use in (filled.overview, filled.conversation, filled.load):
        with pytest.raises(cc.errors.StoreCorrupt, match="contextc doctor"):
            use("demo")


def test_the_line_of_a_branch_that_is_missing_is_not_an_empty_one(filled: cc.Store) -> None:
    """Read as empty, everything on it would be taken for something that was never said."""
    with pytest.raises(cc.errors.StoreCorrupt, match=r"Branch 99 is missing.*contextc doctor"):
        filled.read(lambda tx: load_lineage(tx, 99))


@pytest.mark.parametrize("seq", [1, 5])
def test_a_changed_message_is_not_loaded_as_if_it_were_the_stored_one(filled: cc.Store, seq: int) -> None:
    """A flipped bit must not change what a model, or a person, is shown."""
    changed(filled, seq, b"m%d" % seq, b"n%d" % seq)
    with pytest.raises(
        cc.errors.StoreCorrupt, match=rf"Message {seq} .*'demo' does not match its hash.*contextc doctor"
    ):
        filled.load("demo")
    with pytest.raises(cc.errors.StoreCorrupt, match="does not match its hash"):
        filled.load("demo", until=seq, last=1)
    with pytest.raises(cc.errors.StoreCorrupt, match="does not match its hash"):
        filled.sync("demo", [cc.user("m1")])
    findings = list(scan_store(filled))
    assert [(each.code, each.where.rpartition(" ")[2]) for each in findings] == [("broken-link", str(seq))]
    repair_conversations(filled, findings)
    assert [each.text for each in filled.load("demo")][seq - 1] == f"n{seq}", "healing accepts it, on a new branch"


@pytest.mark.parametrize("is_current", [True, False])
def test_a_changed_message_is_not_exported(filled: cc.Store, is_current: bool) -> None:
    """An export that holds it would be refused by every import, when the store may be gone."""
    filled.redact("demo", 2)
    assert len(list(export_lines(filled, "demo"))) == 6, "a redacted message keeps its id, and is exported"
    changed(filled, 4, b"m4", b"n4")
    if not is_current:
        filled.rewind("demo", 1)
    with pytest.raises(cc.errors.StoreCorrupt, match=r"Message 4 .*'demo' does not match its hash.*contextc doctor"):
        list(export_lines(filled, "demo"))


def test_a_changed_blob_is_not_exported(store: cc.Store) -> None:
    """The bytes of a picture are part of what an import verifies."""
    store.append("demo", cc.user([cc.Media(mime_type="image/png", data=b"\x89PNG")]))
    run(store, "UPDATE main.blob SET data = ?", b"other")
    with pytest.raises(cc.errors.StoreCorrupt, match=r"Blob .* do not match its hash"):
        list(export_lines(store, "demo"))


def test_a_message_with_the_id_of_another_is_not_loaded(filled: cc.Store) -> None:
    """Rows that were exchanged are each sound in themselves."""
    here, there = place_of(filled, 2), place_of(filled, 4)
    [(identity, body)] = filled.read(lambda tx: tx.rows("SELECT id, body FROM main.message WHERE place = ?", there))
    run(filled, "UPDATE main.message SET id = ?, body = ? WHERE place = ?", identity, body, here)
    with pytest.raises(cc.errors.StoreCorrupt, match=r"Message 2 .*does not match its hash"):
        filled.load("demo")


def test_redacted_messages_and_forks_are_loaded(filled: cc.Store) -> None:
    """A redacted message keeps the id of what it held, and a fork begins in the middle of another branch."""
    filled.redact("demo", 2)
    filled.fork("demo", "other", at=3)
    filled.append("other", cc.user("m4"))
    assert [each.text for each in filled.load("other")] == ["m1", "", "m3", "m4"]
    assert [each.text for each in filled.load("other", after=3)] == ["m4"]
    filled.rewind("demo", 2)
    filled.append("demo", cc.user("m3 again"))
    assert [each.text for each in filled.load("demo", after=2)] == ["m3 again"]


def test_each_row_is_verified_once_by_an_open_store(filled: cc.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Verifying costs as much as reading, so that a second load does not pay again."""
    from contextc.store import message_log

    seen: list[int] = []

    def content_of(message: cc.Message) -> bytes:
        seen.append(message.seq)
        return original(message)

    original = message_log.canonical_content
    monkeypatch.setattr(message_log, "canonical_content", content_of)
    filled.load("demo", after=1, until=3)
    filled.load("demo")
    filled.load("demo")
    filled.append("demo", cc.user("m6"))
    filled.load("demo")
    assert seen[:2] == [2, 3]
    assert set(seen) == {1, 2, 3, 4, 5, 6}
    assert len(seen) <= 8, "a row in the middle may be verified twice, never each time"
