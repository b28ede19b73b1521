"""Content sent to a session: each guarantee of section 9 as the requests before and after."""

import pytest

import contextc as cc
from contextc._json import JSONObject
from contextc.compiler.ledger import get_channel_cache
from tests.compiler.session_conversation import IDENTITY, TOOL, Talk, call, keeper, plain, sent_texts
from tests.compiler.simulated_providers import blocks


@pytest.fixture
def talk(store: cc.Store) -> Talk:
    return Talk(store, keeper())


def test_first_request_is_the_whole_context_in_a_new_session(talk: Talk) -> None:
    """Guarantee 9.4: no valid session, so all fragments and everything that was said."""
    talk.store.append("demo", cc.user("Hello."))
    compiled = talk.compile()
    assert (compiled.mode, compiled.session_id, compiled.manifest.why) == ("full", None, "first request")
    assert compiled.params["system"] == [{"type": "text", "text": "You are a coder."}]
    assert sent_texts(compiled) == ["user: Hello."]


def test_resuming_sends_only_what_the_session_has_not_received(talk: Talk) -> None:
    """Guarantee 9.4: the items after the cursor; neither the prompt, nor the model's own answer."""
    talk.store.append("demo", cc.user("Hello."))
    talk.step(cc.assistant("Good day."))
    talk.store.append("demo", cc.user("And now?"))
    compiled = talk.compile()
    assert (compiled.mode, compiled.session_id, compiled.revert_to, compiled.manifest.why) == (
        "resume",
        "session1",
        None,
        "",
    )
    assert sent_texts(compiled) == ["user: And now?"]
    assert "system" not in compiled.params


def test_channel_defaults_to_the_assistant_and_no_directory(store: cc.Store) -> None:
    """Guarantee 9.1: a directory counts only where the provider is bound to one."""
    store.append("demo", cc.user("Hello."))
    free = cc.MessageCompiler(store, keeper(directory_bound=False)).compile("demo", directory="/one")
    bound = cc.MessageCompiler(store, keeper()).compile("demo", directory="/one")
    assert free.channel == ("demo", "assistant", "keeper", "one", "")
    assert bound.channel == ("demo", "assistant", "keeper", "one", "/one")


def test_tool_results_are_sent_without_the_call_the_session_made_itself(talk: Talk) -> None:
    """Guarantees 9.4, 5.4: pairs are whole, counting what the session holds."""
    talk.store.append("demo", cc.user("Look."))
    talk.step(call("c1"), tools=[TOOL])
    talk.store.append("demo", cc.tool_result("c1", "look", "a tree"))
    assert sent_texts(talk.compile(tools=[TOOL])) == ["user: a tree"]


def test_what_the_session_did_with_its_own_tools_is_not_sent_back(talk: Talk) -> None:
    """Guarantee 9.7: what the provider produced is acknowledged, results included."""
    talk.store.append("demo", cc.user("Look."))
    compiled = talk.compile()
    own = (call("c1"), cc.tool_result("c1", "look", "a tree"), cc.assistant("A tree."))
    answer = talk.end.send(compiled, own)
    talk.compiler.commit(compiled, produced=own, session_id=answer.session_id, cursor=answer.cursor)
    talk.store.append("demo", cc.user("How tall?"))
    resumed = talk.compile()
    assert (resumed.mode, sent_texts(resumed)) == ("resume", ["user: How tall?"])


def test_own_texts_from_another_provider_are_sent_to_the_session(talk: Talk) -> None:
    """Guarantee 9.10: each channel is given what it has not been shown, from any author; and back again."""
    other = cc.MessageCompiler(talk.store, plain())
    talk.store.append("demo", cc.user("One."))
    talk.step(cc.assistant("First."))
    talk.store.append("demo", cc.user("Two."))
    there = other.compile("demo")
    assert sent_texts(there) == ["user: One.", "assistant: First.", "user: Two."]
    other.commit(there, cc.assistant("Second."))
    talk.store.append("demo", cc.user("Three."))
    back = talk.compile()
    assert back.mode == "resume"
    assert [line for line in sent_texts(back) if line.partition(": ")[2] in ("Two.", "Second.", "Three.")] == [
        "user: Two.",
        "assistant: Second.",
        "user: Three.",
    ]
    assert not [line for line in sent_texts(back) if "First." in line or "One." in line]


def test_dynamic_text_is_marked_on_resume(talk: Talk) -> None:
    """Guarantee 9.4: where a session has no system channel, so that it answers the user and not the context."""
    todos = cc.PromptFragment("todos", "1. write tests", lifecycle="dynamic")
    talk.store.append("demo", cc.user("Hello."))
    talk.step(cc.assistant("Good day."), instructions=[IDENTITY, todos])
    talk.store.append("demo", cc.user("What is left?"))
    compiled = talk.compile(instructions=[IDENTITY, todos])
    assert sent_texts(compiled) == ["user: What is left?", "user: [System Context]: ## Todos\n1. write tests"]
    assert len(compiled.params["messages"]) == 1


def test_dynamic_text_is_a_system_message_where_the_session_takes_one(store: cc.Store) -> None:
    """Guarantee 9.4: the mark is for providers without a system channel of their own."""
    provider = cc.provider(
        "thread:one", window=20_000, output=1_000, format="openai_responses", session_resumption=True,
        system_in_session=True, resends_head=True, reverts=True,
    )  # fmt: skip
    talk = Talk(store, provider)
    todos = cc.PromptFragment("todos", "1. write tests", lifecycle="dynamic")
    store.append("demo", cc.user("Hello."))
    talk.step(cc.assistant("Good day."), instructions=[IDENTITY, todos])
    store.append("demo", cc.user("What is left?"))
    compiled = talk.compile(instructions=[IDENTITY, todos])
    sent: list[JSONObject] = compiled.params["input"]
    assert [message["role"] for message in sent] in (["user", "developer"], ["user", "system"])
    assert compiled.params["instructions"] == "You are a coder."
    assert "[System Context]" not in compiled.body.decode()


def test_changed_instructions_are_an_update_in_a_session_that_keeps_its_own(talk: Talk) -> None:
    """Guarantee 9.3: stateful, an update; and only once."""
    poet = cc.PromptFragment("identity", "You are a poet.")
    talk.store.append("demo", cc.user("Hello."))
    talk.step(cc.assistant("Good day."))
    talk.store.append("demo", cc.user("Sing."))
    compiled = talk.step(cc.assistant("La."), instructions=[poet])
    assert compiled.mode == "resume"
    assert sent_texts(compiled)[0] == "user: Sing."
    assert sent_texts(compiled)[1].startswith("user: [System Context]: The instructions you were given")
    assert sent_texts(compiled)[1].endswith("You are a poet.")
    talk.store.append("demo", cc.user("More."))
    assert sent_texts(talk.compile(instructions=[poet])) == ["user: More."]


def test_instructions_that_come_late_or_go_are_updates_too(talk: Talk) -> None:
    """Guarantee 9.3: a session that began without instructions is updated, and one whose instructions end."""
    talk.store.append("demo", cc.user("Hello."))
    talk.step(cc.assistant("Good day."), instructions=[])
    talk.store.append("demo", cc.user("Code."))
    assert sent_texts(talk.step(cc.assistant("Yes."), instructions=[IDENTITY]))[-1].endswith("You are a coder.")
    talk.store.append("demo", cc.user("Rest."))
    assert sent_texts(talk.compile(instructions=[]))[-1].endswith("no longer hold.")


def test_a_new_session_reports_the_new_instructions_once(talk: Talk) -> None:
    """Guarantee 9.3: its head says what an update had said; the update itself stays behind."""
    poet = cc.PromptFragment("identity", "You are a poet.")
    talk.store.append("demo", cc.user("Hello."))
    talk.step(cc.assistant("Good day."))
    talk.store.append("demo", cc.user("Sing."))
    compiled = talk.step(cc.assistant("La."), instructions=[poet])
    cc.SessionManager(talk.store).invalidate(compiled.channel, "expired")
    talk.store.append("demo", cc.user("More."))
    fresh = talk.compile(instructions=[poet])
    assert (fresh.mode, fresh.manifest.why) == ("full", "expired")
    assert sent_texts(fresh) == ["user: Hello.", "assistant: Good day.", "user: Sing.", "assistant: La.", "user: More."]
    assert fresh.params["system"] == [{"type": "text", "text": "You are a poet."}]


def test_changed_instructions_are_a_new_session_on_request_of_the_caller(store: cc.Store) -> None:
    """Guarantee 9.3: a setting."""
    talk = Talk(store, keeper(), static_change="new session")
    store.append("demo", cc.user("Hello."))
    talk.step(cc.assistant("Good day."))
    store.append("demo", cc.user("Sing."))
    compiled = talk.compile(instructions=[cc.PromptFragment("identity", "You are a poet.")])
    assert (compiled.mode, compiled.session_id, compiled.manifest.why) == ("full", None, "system prompt changed")


def test_stateless_provider_with_changed_tools_begins_an_epoch(store: cc.Store) -> None:
    """Guarantee 9.3: and without a change none begins."""
    compiler = cc.MessageCompiler(store, plain())
    store.append("demo", cc.user("Hello."))
    compiler.commit(compiler.compile("demo", tools=[TOOL]), cc.assistant("Good day."))
    store.append("demo", cc.user("More."))
    assert compiler.compile("demo", tools=[TOOL]).manifest.why == ""
    assert compiler.compile("demo", tools=[]).manifest.why == "tools changed"


def test_no_request_without_new_input(talk: Talk) -> None:
    """Guarantee 9.9: unless the caller asks again."""
    talk.store.append("demo", cc.user("Hello."))
    talk.step(cc.assistant("Good day."))
    nothing = talk.compile()
    assert not nothing.is_new
    with pytest.raises(cc.errors.NothingNew):
        talk.compiler.begin(nothing)


def test_caller_may_ask_again(store: cc.Store) -> None:
    """Guarantee 9.9."""
    compiler = cc.MessageCompiler(store, plain())
    store.append("demo", cc.user("Hello."))
    compiler.commit(compiler.compile("demo"), cc.assistant("Good day."))
    assert not compiler.compile("demo").is_new
    assert compiler.compile("demo", retry=True).is_new


def test_provider_that_paused_is_asked_to_continue(store: cc.Store) -> None:
    """Guarantee 9.9: `pause_turn` is a request with nothing new in it, and then no more."""
    compiler = cc.MessageCompiler(store, plain())
    store.append("demo", cc.user("Search."))
    compiler.commit(compiler.compile("demo"), cc.assistant("Searching.", finish="pause"))
    going_on = compiler.compile("demo")
    assert going_on.is_new
    assert sent_texts(going_on) == ["user: Search.", "assistant: Searching."]
    compiler.commit(going_on, cc.assistant("Found.", finish="end_turn"))
    assert not compiler.compile("demo").is_new


def test_a_fork_inherits_what_was_shown(store: cc.Store) -> None:
    """Guarantee 9.9a: its first request begins, to the byte, with the last of its parent."""
    compiler = cc.MessageCompiler(store, plain())
    store.append("demo", cc.user("Question 1."))
    compiler.commit(compiler.compile("demo", instructions=[IDENTITY]), cc.assistant("Answer 1."))
    store.append("demo", cc.user("Question 2."))
    last = compiler.compile("demo", instructions=[IDENTITY])
    compiler.commit(last, cc.assistant("Answer 2."))
    store.fork("demo", "branch")
    store.append("branch", cc.user("Another way?"))
    get_channel_cache(store).clear()
    compiled = compiler.compile("branch", instructions=[IDENTITY])
    assert compiled.manifest.why == ""
    before, after = blocks(last.params["messages"]), blocks(compiled.params["messages"])
    assert after[: len(before)] == before
    assert sent_texts(compiled)[-2:] == ["assistant: Answer 2.", "user: Another way?"]
    assert compiled.params["system"] == last.params["system"]


def test_a_fork_of_a_stateful_channel_is_a_session_of_its_own(talk: Talk) -> None:
    """Guarantees 9.9a, 9.6: the parent's session goes on as it was."""
    talk.store.append("demo", cc.user("One."))
    talk.step(cc.assistant("First."))
    talk.store.append("demo", cc.user("Two."))
    talk.step(cc.assistant("Second."))
    talk.store.fork("demo", "branch", at=2)
    talk.store.append("branch", cc.user("Other."))
    fork = talk.step(cc.assistant("Otherwise."), "branch")
    assert (fork.mode, sent_texts(fork)) == ("full", ["user: One.", "assistant: First.", "user: Other."])
    talk.store.append("demo", cc.user("Three."))
    assert (talk.compile().session_id, sent_texts(talk.compile())) == ("session1", ["user: Three."])


def test_a_fork_keeps_pins_and_summaries(store: cc.Store) -> None:
    """Guarantees 7.3, 7.5, 9.9a: what its parent had of both holds for it too, though nothing has happened to it
    yet.
    """
    provider = cc.provider("anthropic:claude-sonnet-4-5", window=2_000, output=200)
    compiler = cc.MessageCompiler(store, provider)
    store.append("demo", cc.user("Keep this."))
    for number in range(4):
        store.append("demo", cc.assistant(f"Answer {number}. " + "And so on. " * 40))
        store.append("demo", cc.user(f"Question {number}?"))
    compiler.commit(compiler.compile("demo"), cc.assistant("Answer 4."))
    store.pin("demo", 1)
    summed = compiler.compact("demo", lambda messages, before: "Much was asked.")
    assert summed is not None
    store.fork("demo", "branch")
    store.append("branch", cc.user("And?"))
    compiled = "\n".join(sent_texts(compiler.compile("branch")))
    assert "Keep this." in compiled
    assert "Much was asked." in compiled


def test_sessions_can_be_listed(talk: Talk) -> None:
    """Guarantee 9.1: a session with its cursor, by channel."""
    talk.store.append("demo", cc.user("One."))
    talk.step(cc.assistant("First."), directory="/one")
    known = cc.SessionManager(talk.store).sessions("demo")
    assert [(each.id, each.cursor, each.channel.directory, each.unanswered) for each in known] == [
        ("session1", "session1/1", "/one", False)
    ]
