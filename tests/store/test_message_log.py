"""The message chain: append, address and load messages. Every test runs on every store."""

from contextlib import suppress
from typing import cast

import pytest

import contextc as cc
from contextc.messages import canonical_content, make_chain_id, validate_message
from contextc.store import message_log
from contextc.store.transaction_engine import Row, Transaction


def texts(messages: list[cc.Message]) -> list[str]:
    return [message.text for message in messages]


def fill(store: cc.Store, count: int, conversation: str = "demo") -> list[cc.Message]:
    return store.extend(conversation, [cc.user(f"m{n}") for n in range(1, count + 1)])


def test_what_is_appended_is_what_is_loaded(store: cc.Store) -> None:
    """Guarantee 3.2: and `append` returns the message as it is stored."""
    asked = store.append("demo", cc.user("Help me build a feature", author="ann", meta={"b": 1, "a": 2}))
    call = cc.ToolCall(id="c1", name="read_file", arguments={"path": "a.py"})
    answered = store.append("demo", cc.assistant("Let me look.", tool_calls=[call], usage=cc.Usage(input=3)))
    returned = store.append("demo", cc.tool_result("c1", "read_file", "print(1)"))
    assert store.load("demo") == [asked, answered, returned]
    assert [message.seq for message in (asked, answered, returned)] == [1, 2, 3]


def test_an_id_is_the_hash_of_the_content_and_the_id_before(store: cc.Store) -> None:
    """Guarantee 2.7: equal ids mean equal histories."""
    messages = fill(store, 3)
    before = store.conversation("demo").root
    for message in messages:
        assert message.id == make_chain_id(bytes.fromhex(before), canonical_content(message)).hex()
        before = message.id
    assert store.conversation("demo").tip == before


def test_two_conversations_that_state_the_same_have_different_ids(store: cc.Store) -> None:
    """Guarantee 2.7: the root is random."""
    assert store.append("a", cc.user("hi")).id != store.append("b", cc.user("hi")).id


def test_two_plain_appends_are_two_messages_however_alike(store: cc.Store) -> None:
    """Guarantee 2.7: a person may say "yes" twice."""
    one, two = store.append("demo", cc.user("yes")), store.append("demo", cc.user("yes"))
    assert one.uid != two.uid
    assert texts(store.load("demo")) == ["yes", "yes"]


def test_an_append_with_a_key_made_again_changes_nothing(store: cc.Store) -> None:
    """Guarantees 2.7, 3.2: a client that lost our answer may ask again."""
    one = store.append("demo", cc.user("pay"), key="order-1")
    store.append("demo", cc.assistant("Paid."))
    assert store.append("demo", cc.user("pay"), key="order-1") == one
    assert texts(store.load("demo")) == ["pay", "Paid."]


def test_a_key_used_for_something_else_is_refused(store: cc.Store) -> None:
    """Guarantee 15.1: silence here would lose the second message."""
    store.append("demo", cc.user("pay 1"), key="order-1")
    with pytest.raises(cc.errors.KeyReused, match=r"'order-1'.*already belongs to message 1"):
        store.append("demo", cc.user("pay 2"), key="order-1")
    assert texts(store.load("demo")) == ["pay 1"]


def test_a_key_belongs_to_its_conversation(store: cc.Store) -> None:
    store.append("a", cc.user("hi"), key="k")
    store.append("b", cc.user("ho"), key="k")
    assert texts(store.load("b")) == ["ho"]


def test_an_append_after_a_stated_parent_made_again_changes_nothing(store: cc.Store) -> None:
    """Guarantee 2.7."""
    first = store.append("demo", cc.user("hi"))
    one = store.append("demo", cc.assistant("hello"), parent=first)
    assert store.append("demo", cc.assistant("hello"), parent=first) == one
    assert store.append("demo", cc.assistant("hello"), parent=first.id) == one
    assert len(store.load("demo")) == 2


def test_a_parent_that_is_no_longer_the_tip_is_refused(store: cc.Store) -> None:
    """Guarantee 15.1: the writer has not seen what came after, and must decide again."""
    first, _, last = fill(store, 3)
    with pytest.raises(cc.errors.StaleParent, match="has 2 message") as caught:
        store.append("demo", cc.user("late"), parent=first)
    assert (caught.value.behind, caught.value.tip) == (2, last.id)
    assert len(store.load("demo")) == 3


def test_the_root_may_be_stated_as_the_parent(store: cc.Store) -> None:
    first = store.append("demo", cc.user("hi"))
    root = store.conversation("demo").root
    assert store.append("demo", cc.user("hi"), parent=root) == first
    with pytest.raises(cc.errors.StaleParent):
        store.append("demo", cc.user("other"), parent=0)


def test_extend_appends_all_or_nothing(store: cc.Store) -> None:
    """Guarantee 15.1: bad input leaves nothing half-written."""
    with pytest.raises(cc.errors.InvalidMessage, match=r"conversation 'demo', messages\[1\], parts: a user") as caught:
        store.extend("demo", [cc.user("good"), cc.user(" ")])
    assert caught.value.index == 1
    with pytest.raises(cc.errors.UnknownConversation):
        store.load("demo")
    assert store.extend("demo", []) == []


def test_a_uid_that_was_given_is_kept_and_cannot_be_given_twice(store: cc.Store) -> None:
    """Guarantee 2.7: streams and pages name a message before it is complete."""
    named = store.append("demo", cc.user("hi", uid="page-7"))
    assert named.uid == "page-7"
    with pytest.raises(cc.errors.InvalidMessage, match="already a message 'page-7'"):
        store.append("demo", cc.user("other", uid="page-7"))
    with pytest.raises(cc.errors.InvalidMessage, match="already a message"):
        store.extend("demo", [cc.user("a", uid="twice"), cc.user("b", uid="twice")])
    with pytest.raises(cc.errors.InvalidMessage, match="already a message"):
        store.append("demo", store.append("demo", cc.user("again")))
    assert texts(store.load("demo")) == ["hi", "again"]


def test_load_gives_all_the_last_those_after_one_and_a_range(store: cc.Store) -> None:
    """The four ways to read a conversation."""
    messages = fill(store, 10)
    assert store.load("demo") == messages
    assert store.load("demo", last=3) == messages[-3:]
    assert store.load("demo", last=0) == []
    assert store.load("demo", last=99) == messages
    assert store.load("demo", after=messages[6].id) == messages[7:]
    assert store.load("demo", after=messages[6].uid, until=9) == messages[7:9]
    assert store.load("demo", after=messages[-1]) == []
    assert store.load("demo", after=2, until=8, last=2) == messages[6:8]
    assert store.load("demo", after=8, until=2) == []


def test_a_message_is_found_by_seq_uid_id_the_start_of_its_id_and_itself(store: cc.Store) -> None:
    messages = fill(store, 20)
    wanted = messages[13]
    for reference in (14, wanted.uid, wanted.id, wanted.id[:12], wanted):
        assert store.load("demo", after=reference)[0].seq == 15


@pytest.mark.parametrize(
    "reference",
    [99, -1, "nobody", "0000000effff", "", "1-1-0000000000000000", "ffffffff-1-0123456789abcdef", True, 1.5, "\0"],
)
def test_an_unknown_message_is_reported_as_unknown(store: cc.Store, reference: cc.Message) -> None:
    fill(store, 3)
    with pytest.raises(cc.errors.UnknownMessage):
        store.load("demo", after=reference)


def test_an_unknown_conversation_is_reported_as_unknown(store: cc.Store) -> None:
    """Guarantee 15.1: a typing error must not look like an empty conversation."""
    for call in (store.load, store.conversation, store.branches, store.reset, store.delete):
        with pytest.raises(cc.errors.UnknownConversation, match="'nope' not found"):
            call("nope")


@pytest.mark.parametrize("name", ["", "a\0b", "line\nbreak", "x" * 513, "\ud800", None, 7])
def test_odd_names_are_refused(store: cc.Store, name: str) -> None:
    with pytest.raises(cc.errors.InvalidInput, match="conversation name must be"):
        store.append(name, cc.user("hi"))
    assert store.conversations() == []


def test_any_printable_name_is_taken(store: cc.Store) -> None:
    for name in ("demo", "日本", "a b/c?d=e&f%g'h\"i;--", "x" * 512):
        store.append(name, cc.user("hi"))
        assert texts(store.load(name)) == ["hi"]


def test_conversations_are_listed_with_where_they_stand(store: cc.Store) -> None:
    fill(store, 2, "b")
    fill(store, 3, "a")
    assert [(each.name, each.length, each.revision) for each in store.conversations()] == [("a", 3, 0), ("b", 2, 0)]


def test_odd_content_comes_back_as_it_was(store: cc.Store) -> None:
    """NUL, every script, a thousand levels as text, a large message: every store can hold what validation accepts."""
    deep = '{"a":' * 1_000 + "1" + "}" * 1_000
    messages = [
        cc.user("a\0b\u2028c\U0001f9d1"),
        cc.assistant(tool_calls=[cc.ToolCall(id="c1", name="f", arguments=deep)]),  # pyright: ignore[reportArgumentType]
        cc.tool_result("c1", "f", deep),
        cc.user("x" * (4 << 20)),
        cc.user("n", meta={"big": 2**200, "tiny": 5e-324, "order": {"z": 1, "a": 2}}),
    ]
    stored = store.extend("demo", messages)
    loaded = store.load("demo")
    assert loaded == stored
    assert [message.parts for message in loaded] == [message.parts for message in messages]
    assert list((loaded[-1].meta or {})["order"]) == ["z", "a"]


def test_media_bytes_are_kept_once_and_given_back(store: cc.Store) -> None:
    """Guarantee 2.6."""
    picture = cc.Media(mime_type="image/png", data=b"\x89PNG\0" * 100)
    first = store.append("demo", cc.user([cc.Text("look"), picture]))
    store.append("demo", cc.assistant(tool_calls=[cc.ToolCall(id="c", name="shot", arguments={})]))
    store.append("demo", cc.tool_result("c", "shot", [picture]))
    media = first.parts[1]
    assert isinstance(media, cc.Media)
    assert media.blob is not None
    assert store.blob(media.blob) == picture.data
    assert store.read(lambda tx: tx.row("SELECT count(*) FROM main.blob")) == (1,)
    again = store.append("other", cc.user(media))
    assert again.parts == (media,)


def test_media_that_names_an_unknown_blob_is_refused(store: cc.Store) -> None:
    with pytest.raises(cc.errors.InvalidMessage, match="the store has no blob"):
        store.append("demo", cc.user(cc.Media(mime_type="image/png", blob="0" * 64)))
    with pytest.raises(cc.errors.InvalidInput, match="has no blob"):
        store.blob("0" * 64)
    assert store.conversations() == []


def test_a_closed_store_is_reported(store: cc.Store) -> None:
    store.close()
    with pytest.raises(cc.errors.StoreUnavailable, match="has been closed"):
        store.append("demo", cc.user("hi"))


def test_a_window_is_a_part_of_a_line_from_either_end(store: cc.Store) -> None:
    store.extend("demo", [cc.user(str(number)) for number in range(1, 10)])
    store.rewind("demo", 4)
    store.append("demo", cc.user("other"))

    def seen(*, limit: int, branch: int | None = None, after: int = 0, before: int | None = None) -> list[str]:
        found = store.read(
            lambda tx: message_log.load_window(tx, "demo", after=after, before=before, limit=limit, branch=branch)
        )
        assert found.length == (9 if branch == first else 5)
        return [message.text for message in found.messages]

    first = store.branches("demo")[0].number
    assert seen(limit=2) == ["1", "2"]
    assert seen(limit=3, after=3) == ["4", "other"]
    assert seen(limit=3, before=6) == ["3", "4", "other"]
    assert seen(limit=3, before=3) == ["1", "2"]
    assert seen(limit=2, before=10**6, branch=first) == ["8", "9"]
    assert seen(limit=2, after=50) == seen(limit=2, before=1) == []


def test_an_append_that_is_run_again_takes_no_other_message_for_its_own(store: cc.Store) -> None:
    """If the answer to a commit was lost, no message with the same or a similar uid is returned in its place."""
    store.append("demo", cc.user("first", uid="x-abc"))
    store.append("demo", cc.user("other", uid="abc"))
    entry = message_log.prepare_entry(validate_message(cc.user("second", uid="abc")))
    unnamed = message_log.prepare_entry(validate_message(cc.user("third")))
    store.append("demo", cc.user("fourth", uid=f"mine-{unnamed.random_id:016x}"))
    assert store.read(lambda tx: message_log.find_stored(tx, [entry, unnamed])) == []


def test_an_append_that_is_run_again_takes_no_equal_message_of_another_writer_for_its_own(store: cc.Store) -> None:
    """Two people may say the same in the same millisecond, and the one of them was stored: the other is not lost."""
    store.begin("demo")
    mine, other = (
        message_log.prepare_entry(validate_message(cc.user("yes", time=1_700_000_000_000))) for _ in range(2)
    )
    with suppress(ZeroDivisionError):
        store.write(
            lambda tx: (message_log.append_messages(tx, "demo", [mine]), 1 // 0)
        )  # it is undone, and has tried its place
    (stored,) = store.write(lambda tx: message_log.append_messages(tx, "demo", [other]))
    assert (stored.seq, mine.attempts) == (1, other.attempts)
    assert store.read(lambda tx: message_log.find_stored(tx, [mine])) == []
    assert store.read(lambda tx: message_log.find_stored(tx, [other])) == [stored]


def test_an_append_that_is_run_again_finds_its_messages_at_any_depth_and_on_any_branch(store: cc.Store) -> None:
    """It must be found after any number of other messages, and after the conversation went on elsewhere."""
    entries = [
        message_log.prepare_entry(validate_message(message))
        for message in (cc.user("mine"), cc.user("named", uid="abc"))
    ]
    stored = store.write(lambda tx: message_log.append_messages(tx, "demo", entries))
    store.extend("demo", [cc.user(str(number)) for number in range(20)])
    store.rewind("demo", 1)
    store.append("demo", cc.user("elsewhere"))
    store.rewind("demo", 0)
    asked: list[str] = []

    class Asked:
        def __init__(self, tx: Transaction) -> None:
            self.dialect, self.again, self.tx = tx.dialect, tx.is_retry, tx

        def row(self, sql: str, *values: object) -> Row | None:
            asked.append(sql)
            return self.tx.row(sql, *values)

    assert store.read(lambda tx: message_log.find_stored(cast(Transaction, Asked(tx)), entries)) == stored
    assert len(asked) == len(entries), "one look-up by key for each"
