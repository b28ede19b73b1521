"""A client that resends its whole history. Every test runs on every store."""

import pytest

import contextc as cc

U1, A1, U2, A2 = cc.user("u1"), cc.assistant("a1"), cc.user("u2"), cc.assistant("a2")


def texts(store: cc.Store) -> list[str]:
    return [message.text for message in store.load("demo")]


def test_a_new_conversation_takes_everything(store: cc.Store) -> None:
    assert [message.seq for message in store.sync("demo", [U1, A1])] == [1, 2]
    assert store.sync("empty", []) == []
    assert [each.name for each in store.conversations()] == ["demo"]


def test_a_client_resending_its_history_adds_only_the_tail(store: cc.Store) -> None:
    """Guarantee 3.5, agent-framework#7211: every round used to store the whole conversation again."""
    history: list[cc.Message] = []
    for number in range(5):
        history += [cc.user(f"question {number}"), cc.assistant(f"answer {number}")]
        assert len(store.sync("demo", history)) == 2
    assert store.sync("demo", history) == []
    assert len(store.load("demo")) == 10


def test_entries_the_client_never_received_are_passed_over(store: cc.Store) -> None:
    """Guarantee 3.5: system messages, and an answer whose connection broke."""
    store.extend("demo", [U1, cc.system("Memory is low."), A1])
    added = store.sync("demo", [U1, A1, U2])
    assert [message.text for message in added] == ["u2"]
    store.append("demo", cc.assistant("the client lost this"))
    store.sync("demo", [U1, A1, U2, cc.user("hello?")])
    assert texts(store) == ["u1", "Memory is low.", "a1", "u2", "the client lost this", "hello?"]
    assert len(store.branches("demo")) == 1


def test_the_same_texts_twice_are_two_messages(store: cc.Store) -> None:
    yes, go_on = cc.user("yes"), cc.assistant("Go on?")
    store.sync("demo", [yes, go_on])
    assert len(store.sync("demo", [yes, go_on, yes, go_on])) == 2
    assert store.sync("demo", [yes, go_on, yes, go_on]) == []


def test_a_uid_is_matched_before_the_text(store: cc.Store) -> None:
    """Guarantee 3.5: uid if sent."""
    store.sync("demo", [cc.user("hi", uid="m1"), cc.assistant("hello", uid="m2"), cc.user("hi", uid="m3")])
    added = store.sync("demo", [cc.user("hi", uid="m1"), cc.assistant("cut sho…", uid="m2"), cc.user("hi", uid="m3")])
    assert added == []
    added = store.sync("demo", [cc.user("hi", uid="m1"), cc.assistant("hello", uid="m2"), cc.user("hi", uid="m9")])
    assert [(message.uid, message.seq) for message in added] == [("m9", 3)]


def test_an_edit_that_keeps_its_uid_is_an_edit(store: cc.Store) -> None:
    """A client that changes a message in place sends the same uid with other text, repeatedly."""
    q1, a1, q2 = cc.user("q1", uid="1"), cc.assistant("a1", uid="2"), cc.user("q2", uid="3")
    better = cc.user("q1, but better", uid="1")
    store.sync("demo", [q1, a1, q2])
    assert [message.uid for message in store.sync("demo", [better])] == ["1~2"]
    assert [message.text for message in store.sync("demo", [better, cc.assistant("b1", uid="4")])] == ["b1"]
    assert texts(store) == ["q1, but better", "b1"]


@pytest.mark.parametrize("named", [True, False])
def test_going_back_to_an_earlier_version_finds_its_branch(store: cc.Store, named: bool) -> None:
    """The arrows of a chat page: nothing is stored again."""
    uids = ["1", "2", "3"] if named else ["", "", ""]
    first = [cc.user("q", uid=uids[0]), cc.assistant("a", uid=uids[1])]
    second = [cc.user("q, but better", uid=uids[2])]
    for version, added in ((first, 2), (second, 1), (first, 0), (second, 0), ([*first, cc.user("next")], 1)):
        assert len(store.sync("demo", version)) == added
        assert texts(store)[: len(version)] == [message.text for message in version]
    assert len(store.branches("demo")) == 2


def test_an_edit_on_another_branch_leaves_that_branch(store: cc.Store) -> None:
    """The nearest line is the one that shares the most."""
    one = [cc.user("q1", uid="1"), cc.assistant("r1", uid="2")]
    two = [cc.user("Q1", uid="3"), cc.assistant("R1", uid="4"), cc.user("Q2", uid="5")]
    for version in (one, two, one):
        store.sync("demo", version)
    added = store.sync("demo", [*two[:2], cc.user("Q2, but better", uid="5")])
    assert [(message.uid, message.seq) for message in added] == [("5~2", 3)]
    assert texts(store) == ["Q1", "R1", "Q2, but better"]


def test_another_native_block_is_another_message(store: cc.Store) -> None:
    for number in (1, 2):
        assert len(store.sync("demo", [cc.user(cc.messages.ProviderBlock(provider="p", data={"x": number}))])) == 1


def test_a_new_question_is_not_taken_for_redacted_texts(store: cc.Store) -> None:
    """Guarantee 2.8: the id of what was redacted says what it was not."""
    store.extend("demo", [U1, cc.user("secret", author="ann")])
    store.redact("demo", 2)
    assert store.sync("demo", [U1, cc.user("secret")]) == []
    assert [message.text for message in store.sync("demo", [U1, cc.user("a new question")])] == ["a new question"]


def test_another_picture_is_another_message(store: cc.Store) -> None:
    def look(data: bytes) -> cc.Message:
        return cc.user([cc.Text("see"), cc.Media(mime_type="image/png", data=data)])

    assert len(store.sync("demo", [look(b"1")])) == 1
    assert store.sync("demo", [look(b"1")]) == []
    assert len(store.sync("demo", [look(b"1"), look(b"2")])) == 1


def test_two_authors_may_send_the_same_text(store: cc.Store) -> None:
    store.sync("demo", [cc.user("hi", author="ann")])
    assert len(store.sync("demo", [cc.user("hi", author="bob")])) == 1
    assert texts(store) == ["hi", "hi"]


def test_user_messages_are_never_skipped(store: cc.Store) -> None:
    """An edit may say what was said later, too."""
    store.extend("demo", [cc.user("hi"), cc.user("ok"), cc.user("bye")])
    assert len(store.sync("demo", [cc.user("hi"), cc.user("bye")])) == 1
    assert texts(store) == ["hi", "bye"]


def test_a_page_that_has_no_calls_keeps_the_tool_history(store: cc.Store) -> None:
    """The most common client shows only the text."""
    call = cc.ToolCall(id="c1", name="f", arguments={})
    store.extend("demo", [U1, cc.assistant("look", tool_calls=[call]), cc.tool_result("c1", "f", "ok"), A1])
    assert len(store.sync("demo", [U1, cc.assistant("look"), A1, U2])) == 1
    assert (len(store.load("demo")), len(store.branches("demo"))) == (5, 1)


def test_calls_and_results_are_matched_by_their_ids(store: cc.Store) -> None:
    """Guarantee 3.5: role, text and call ids; a page may show a result cut short."""
    call = cc.assistant("", tool_calls=[cc.ToolCall(id="c1", name="f", arguments={"x": 1})])
    store.extend("demo", [U1, call, cc.tool_result("c1", "f", "a very long result")])
    added = store.sync("demo", [U1, call, cc.tool_result("c1", "f", "a very…"), A1])
    assert [message.text for message in added] == ["a1"]


def test_white_space_at_the_ends_does_not_make_a_message_new(store: cc.Store) -> None:
    store.extend("demo", [U1, cc.assistant("a1\n")])
    assert store.sync("demo", [U1, cc.assistant("a1")]) == []


@pytest.mark.parametrize(
    ("resent", "result"),
    [
        ([U1, A1, cc.user("u2, but better")], ["u1", "a1", "u2, but better"]),
        ([U1, cc.assistant("another a1")], ["u1", "another a1"]),
        ([cc.user("u1, but better")], ["u1, but better"]),
    ],
    ids=["edited last question", "regenerated answer", "edited first question"],
)
def test_a_rewritten_past_becomes_a_branch(store: cc.Store, resent: list[cc.Message], result: list[str]) -> None:
    """Guarantee 3.5: everything before the change stays as it was, and what was replaced is still there."""
    before = store.extend("demo", [U1, A1, U2, A2])
    store.sync("demo", resent)
    assert texts(store) == result
    old, new = store.branches("demo")
    assert store.load("demo", branch=old.number) == before
    assert store.load("demo")[: new.base] == before[: new.base]


def test_another_persons_message_is_passed_over(store: cc.Store) -> None:
    """Two people in one conversation: ann's page has not seen what bob wrote a moment ago."""
    store.extend("demo", [cc.user("hi", author="ann"), cc.assistant("hello"), cc.user("me too", author="bob")])
    store.sync("demo", [cc.user("hi", author="ann"), cc.assistant("hello"), cc.user("next", author="ann")])
    assert texts(store) == ["hi", "hello", "me too", "next"]


def test_a_shorter_history_rewinds_nothing(store: cc.Store) -> None:
    """Nothing new is nothing to do: rewinding is a call of its own."""
    store.extend("demo", [U1, A1, U2])
    assert store.sync("demo", [U1]) == []
    assert texts(store) == ["u1", "a1", "u2"]


def test_redacted_texts_do_not_come_back(store: cc.Store) -> None:
    """Guarantee 2.8: the client may still have them."""
    store.extend("demo", [cc.user("my card is 4242"), A1])
    store.redact("demo", 1)
    store.sync("demo", [cc.user("my card is 4242"), A1, U2])
    assert texts(store) == ["", "a1", "u2"]


def test_a_bad_entry_stores_nothing(store: cc.Store) -> None:
    """Guarantee 15.1."""
    with pytest.raises(cc.errors.InvalidMessage, match=r"messages\[1\]"):
        store.sync("demo", [U1, cc.user("")])
    assert store.conversations() == []


@pytest.mark.parametrize("uids", [True, False])
@pytest.mark.parametrize("size", [3, 4])
def test_a_client_that_keeps_its_last_messages_adds_only_the_tail(store: cc.Store, size: int, uids: bool) -> None:
    """Guarantee 3.5: nothing is stored twice, and the conversation keeps what the client no longer has."""
    history: list[cc.Message] = []
    for turn in range(5):
        history = [*history, cc.user(f"u{turn}", uid=f"u{turn}" if uids else "")][-size:]
        assert [each.text for each in store.sync("demo", history)] == [f"u{turn}"]
        history.append(store.append("demo", cc.assistant(f"a{turn}", uid=f"a{turn}" if uids else "")))
    assert texts(store) == [f"{who}{turn}" for turn in range(5) for who in "ua"]
    assert (len(store.branches("demo")), store.conversation("demo").context_start) == (1, 0)


def test_an_edit_by_a_client_that_keeps_its_last_messages_is_a_branch(store: cc.Store) -> None:
    store.extend("demo", [U1, A1, U2, A2, cc.user("u3")])
    assert len(store.sync("demo", [U2, A2, cc.user("u3, but better")])) == 1
    assert texts(store) == ["u1", "a1", "u2", "a2", "u3, but better"]
    assert [each.base for each in store.branches("demo")] == [0, 4]


def test_a_question_that_was_asked_before_may_begin_a_history(store: cc.Store) -> None:
    """Without a reply of the conversation, it is not known to be a part of it."""
    store.extend("demo", [U1, A1, U2, A2])
    assert len(store.sync("demo", [U2, cc.user("u3")])) == 2
    assert texts(store) == ["u2", "u3"]
