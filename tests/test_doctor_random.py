"""Random histories with random damage: after repair nothing is reported, and intact data is unchanged."""

from typing import Literal

from hypothesis import given, settings
from hypothesis import strategies as st

import contextc as cc
from contextc.doctor import repair_conversations, scan_store
from contextc.store.transaction_engine import Transaction
from tests.conftest import often
from tests.test_doctor_repair import asks, rows

IDS = st.sampled_from(["a", "b", "c"])
AUTHORS = st.sampled_from([None, None, "one", "two"])


def asking(names: list[str], author: str | None) -> cc.Message:
    return asks(*names, author=author)


def answering(name: str, text: str, author: str | None) -> cc.Message:
    return cc.tool_result(name, "f", text, author=author)


def half(status: Literal["sent", "error", "cancelled"]) -> cc.Message:
    return cc.assistant("half", status=status)


MESSAGES = st.one_of(
    st.builds(cc.user, st.sampled_from(["hi", "and hurry"])),
    st.builds(cc.system, st.just("Memory is low.")),
    st.builds(asking, st.lists(IDS, min_size=1, max_size=3), AUTHORS),
    st.builds(answering, IDS, st.sampled_from("xyz"), AUTHORS),
    st.builds(half, st.sampled_from(["sent", "error", "cancelled"])),
    st.just(cc.user(["look", cc.Media(mime_type="image/png", data=b"png")])),
)
DEEDS = st.lists(
    st.tuples(st.sampled_from(["fork", "rewind", "edit", "reset", "redact", "pin"]), st.integers(1, 12)), max_size=4
)
DAMAGES = st.lists(
    st.tuples(st.sampled_from(["tear", "change", "delete", "blob", "base"]), st.integers(1, 12)), max_size=2
)


def do(store: cc.Store, operation: str, at: int) -> None:
    length = store.conversation("demo").length
    at = min(at, length)
    if at == 0:
        return
    if operation == "fork" and not any(each.name == "fork" for each in store.conversations()):
        store.fork("demo", "fork", at=at)
        store.append("fork", cc.user("of the fork"))
    elif operation == "rewind":
        store.rewind("demo", at)
    elif operation == "edit":
        store.edit("demo", at, cc.user("edited"))
    elif operation == "reset":
        store.reset("demo")
    elif operation == "redact":
        store.redact("demo", at)
    elif operation == "pin":
        store.pin("demo", at)


def ruin(store: cc.Store, damage: str, at: int) -> None:
    def work(tx: Transaction) -> None:
        if damage == "tear":
            tx.run("UPDATE main.message SET body = ? WHERE place % 4294967296 = ?", b'{"role"', at)
        elif damage == "change":
            tx.run("UPDATE main.message SET id = ? WHERE place % 4294967296 = ?", b"\0\0\0\1 other", at)
        elif damage == "delete":
            tx.run("DELETE FROM main.message WHERE place % 4294967296 = ?", at)
        elif damage == "blob":
            tx.run("UPDATE main.blob SET data = ?", b"other")
        else:
            tx.run("UPDATE main.branch SET base_id = ? WHERE parent IS NOT NULL AND base_seq > 0", b"other")

    store.write(work)


@given(
    st.lists(MESSAGES, min_size=1, max_size=10),
    DEEDS,
    st.lists(MESSAGES, max_size=4),
    DAMAGES,
)
@settings(max_examples=often(10, 150))
def test_any_damaged_store_is_repaired_by_one_run(
    history: list[cc.Message],
    operations: list[tuple[str, int]],
    more: list[cc.Message],
    damages: list[tuple[str, int]],
) -> None:
    """The old rows stay to the byte; nothing more is found; a second time does nothing; every line can be sent."""
    with cc.open_store("memory:") as store:
        store.extend("demo", history)
        for operation, at in operations:
            do(store, operation, at)
        store.extend("demo", more)
        for damage, at in damages:
            ruin(store, damage, at)
        before, findings = rows(store), list(scan_store(store))
        for finding in findings:
            assert finding.would
            assert finding.why
        repaired = repair_conversations(store, findings)
        assert all(each.outcome == "healed" for each in repaired), repaired
        assert {each.conversation for each in repaired} == {each.conversation for each in findings}
        assert list(scan_store(store)) == []
        after = rows(store)
        assert [row for row in after if row in before] == before
        assert all(each.outcome == "sound" for each in repair_conversations(store, findings))
        assert rows(store) == after
        for conversation in store.conversations():
            sent = [each for each in store.load(conversation.name) if each.status == "sent"]
            body = cc.AnthropicFormatter().format(sent)
            assert body == [] or cc.lint(body, format="anthropic") == []
