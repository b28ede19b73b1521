"""What changes under a session: it moves, is rewound, cleared or redacted, or somebody else is faster. Guarantees 9.3
to 9.7.
"""

from pathlib import Path

import pytest

import contextc as cc
from tests.compiler.session_conversation import TOOL, Talk, call, keeper, plain, sent_texts


@pytest.fixture
def talk(store: cc.Store) -> Talk:
    return Talk(store, keeper())


def test_another_directory_has_no_session(talk: Talk) -> None:
    """Guarantee 9.5: a session belongs to its channel; in the first directory it is still there."""
    talk.store.append("demo", cc.user("Hello."))
    talk.step(cc.assistant("Good day."), directory="/one")
    talk.store.append("demo", cc.user("More."))
    elsewhere = talk.compile(directory="/two")
    assert (elsewhere.mode, elsewhere.session_id) == ("full", None)
    assert sent_texts(elsewhere) == ["user: Hello.", "assistant: Good day.", "user: More."]
    assert (talk.compile(directory="/one").mode, sent_texts(talk.compile(directory="/one"))) == (
        "resume",
        ["user: More."],
    )


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("edit", "edited or branched away"),
        ("rewind", "edited or branched away"),
        ("clear", "cleared"),
        ("redact", "redacted"),
        ("lose", "the provider lost it"),
    ],
)
def test_a_fallback_is_a_new_session_and_gives_the_reason(talk: Talk, change: str, why: str) -> None:
    """Guarantees 9.3, 9.5, 9.6: what a session holds and the record does not, cannot be continued."""
    store = talk.store
    store.append("demo", cc.user("One."))
    talk.step(cc.assistant("First."))
    store.append("demo", cc.user("Two."))
    last = talk.step(cc.assistant("Second."))
    match change:
        case "edit":
            store.edit("demo", 3, cc.user("Two, rather."))
        case "rewind":
            store.rewind("demo", 2)
        case "clear":
            store.reset("demo")
        case "redact":
            store.redact("demo", 1)
        case _:
            cc.SessionManager(store).invalidate(last.channel, "the provider lost it")
    store.append("demo", cc.user("Three."))
    compiled = talk.compile()
    assert (compiled.mode, compiled.session_id, compiled.revert_to, compiled.manifest.why) == ("full", None, None, why)
    whole = {
        "edit": ["user: One.", "assistant: First.", "user: Two, rather.", "user: Three."],
        "rewind": ["user: One.", "assistant: First.", "user: Three."],
        "clear": ["user: Three."],
        "redact": ["user: [This message was removed.]", "assistant: First.", "user: Two.", "assistant: Second.",
                   "user: Three."],
        "lose": ["user: One.", "assistant: First.", "user: Two.", "assistant: Second.", "user: Three."],
    }  # fmt: skip
    assert sent_texts(compiled) == whole[change]


def test_what_was_never_sent_may_be_rewound_without_a_new_session(talk: Talk) -> None:
    """Guarantee 9.5: the cursor's item is in the ledger and unchanged, so the session is valid."""
    talk.store.append("demo", cc.user("One."))
    talk.step(cc.assistant("First."))
    talk.store.append("demo", cc.user("Two."))
    talk.store.rewind("demo", 2)
    talk.store.append("demo", cc.user("Three."))
    compiled = talk.compile()
    assert (compiled.mode, sent_texts(compiled)) == ("resume", ["user: Three."])


def test_clear_taken_back_by_a_rewind_shows_what_was_before_it(talk: Talk) -> None:
    """Guarantees 7.7, 9.3: the edge is not on the line any more, so what it hid is shown again."""
    talk.store.append("demo", cc.user("One."))
    talk.step(cc.assistant("First."))
    talk.store.reset("demo")
    talk.store.append("demo", cc.user("Two."))
    talk.step(cc.assistant("Second."))
    talk.store.rewind("demo", 1)
    talk.store.append("demo", cc.user("Three."))
    assert sent_texts(talk.compile()) == ["user: One.", "user: Three."]


def test_results_of_a_rewound_step_join_their_calls_again(talk: Talk) -> None:
    """Guarantees 5.2, 9.3: the call stays, its first results are branched away, and new ones come."""
    talk.store.append("demo", cc.user("Look."))
    talk.step(call("c1"), tools=[TOOL])
    talk.store.append("demo", cc.tool_result("c1", "look", "a tree"))
    talk.step(cc.assistant("A tree."), tools=[TOOL])
    talk.store.rewind("demo", 2)
    talk.store.append("demo", cc.tool_result("c1", "look", "a house"))
    assert sent_texts(talk.compile(tools=[TOOL])) == ["user: Look.", "assistant: look", "user: a house"]


def test_another_process_that_was_first_makes_a_request_stale(tmp_path: Path) -> None:
    """Guarantee 9.7: a commit is against the ledger's version; the other's reply is there, this one's is not."""
    address = f"sqlite:///{tmp_path}/chat.db"
    with cc.open_store(address) as mine, cc.open_store(address) as theirs:
        here, there = cc.MessageCompiler(mine, plain()), cc.MessageCompiler(theirs, plain())
        mine.append("demo", cc.user("Hello."))
        first, second = here.compile("demo"), there.compile("demo")
        there.commit(second, cc.assistant("Theirs."))
        with pytest.raises(cc.errors.StaleCompile, match="another request was committed"):
            here.commit(first, cc.assistant("Mine."))
        assert [message.text for message in mine.load("demo")] == ["Hello.", "Theirs."]
        mine.append("demo", cc.user("And?"))
        assert sent_texts(here.compile("demo")) == ["user: Hello.", "assistant: Theirs.", "user: And?"]


def test_message_that_comes_while_the_model_answers_stays_outstanding(talk: Talk) -> None:
    """Guarantee 9.7: exactly what was compiled is acknowledged."""
    talk.store.append("demo", cc.user("One."))
    compiled = talk.compile()
    answer = talk.end.send(compiled, [cc.assistant("First.")])
    talk.store.append("demo", cc.user("Wait!"))
    talk.compiler.commit(compiled, produced=answer.produced, session_id=answer.session_id, cursor=answer.cursor)
    assert [message.text for message in talk.store.load("demo")] == ["One.", "Wait!", "First."]
    assert sent_texts(talk.compile()) == ["user: Wait!"]


def test_clear_while_the_model_answers_holds_for_the_next_request(store: cc.Store) -> None:
    """Guarantees 7.7, 9.7: what was compiled before is acknowledged, and the edge counts from then on."""
    compiler = cc.MessageCompiler(store, plain())
    store.append("demo", cc.user("One."))
    compiled = compiler.compile("demo")
    store.reset("demo")
    compiler.commit(compiled, cc.assistant("First."))
    store.append("demo", cc.user("Two."))
    following = compiler.compile("demo")
    assert following.manifest.why == "cleared"
    assert "One." not in following.body.decode()


def test_message_redacted_while_the_model_answers_does_not_reach_the_ledger(store: cc.Store) -> None:
    """Guarantees 2.8, 9.7: content that is gone from the record is not written into what was shown."""
    compiler = cc.MessageCompiler(store, plain())
    store.append("demo", cc.user("My password is tulip."))
    compiled = compiler.compile("demo")
    store.redact("demo", 1)
    with pytest.raises(cc.errors.StaleCompile, match="redacted"):
        compiler.commit(compiled, cc.assistant("Thanks."))
    store.append("demo", cc.user("Two."))
    assert b"tulip" not in compiler.compile("demo").body


def test_redacting_reaches_what_a_fork_took_over(store: cc.Store) -> None:
    """Guarantees 2.8, 9.9a: a fork goes on from the rows of its parent, and forgets with it."""
    compiler = cc.MessageCompiler(store, plain())
    store.append("demo", cc.user("My password is tulip."))
    compiler.commit(compiler.compile("demo"), cc.assistant("Thanks."))
    store.fork("demo", "branch")
    store.append("branch", cc.user("Two."))
    compiler.commit(compiler.compile("branch"), cc.assistant("Yes."))
    store.redact("demo", 1)
    store.append("branch", cc.user("Three."))
    assert b"tulip" not in compiler.compile("branch").body
