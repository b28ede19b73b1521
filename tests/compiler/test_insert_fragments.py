"""Positions of prompt fragments: static ones first and once, dynamic ones at the tail, where they stay."""

from collections.abc import Sequence
from typing import Unpack

import pytest

import contextc as cc
from contextc._json import JSONObject, encode
from contextc.compiler.draft import CompilerOptionArguments

CHAT = cc.provider("openai-chat:gpt-4o")
TAGGED = cc.provider("anthropic:claude-sonnet-4-5")
BETWEEN = cc.provider("anthropic:claude-opus-5-5")
NEW = "(updated: this replaces all earlier versions)"
IDENTITY = cc.PromptFragment("identity", "You are a coder.")
TOOL = cc.Tool(name="read", description="Reads a file.", parameters={"type": "object", "properties": {}})


def state(text: str) -> cc.PromptFragment:
    return cc.PromptFragment("state", text, "dynamic")


class Talk:
    """A conversation on one channel."""

    def __init__(self, provider: cc.Provider = CHAT, **options: Unpack[CompilerOptionArguments]) -> None:
        self.store = cc.open_store("memory:")
        self.compiler = cc.MessageCompiler(self.store, provider, **options)

    def add(self, *log: cc.Message) -> None:
        self.store.extend("demo", log)

    def compile(
        self, *fragments: cc.PromptFragment, tools: Sequence[cc.Tool] = (), dry_run: bool = False
    ) -> cc.Compiled:
        return self.compiler.compile("demo", instructions=fragments, tools=tools, dry_run=dry_run)

    def step(
        self, *fragments: cc.PromptFragment, reply: str | cc.Message = "ok", session: str | None = None
    ) -> list[JSONObject]:
        compiled = self.compile(*fragments)
        answer = cc.assistant(reply) if isinstance(reply, str) else reply
        self.compiler.commit(compiled, answer, session_id=session)
        return compiled.params["messages"]


def asks(id: str) -> cc.Message:
    return cc.assistant(tool_calls=[cc.ToolCall(id=id, name="read", arguments={})])


def sent_contents(messages: Sequence[JSONObject]) -> list[tuple[str, object]]:
    return [(message["role"], message["content"]) for message in messages]


def text(texts: str) -> JSONObject:
    return {"type": "text", "text": texts}


# ── static ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_static_fragments_come_first_in_a_stable_order() -> None:
    """Guarantee 8.2: by priority, then as given, and never between dynamic ones."""
    talk = Talk()
    talk.add(cc.user("hi"))
    rules = cc.PromptFragment("rules", "Be brief.")
    first = cc.PromptFragment("first", "Read this.", priority=1)
    compiled = talk.compile(state("busy"), IDENTITY, rules, first)
    assert sent_contents(compiled.params["messages"]) == [
        ("system", "Read this.\n\nYou are a coder.\n\nBe brief."),
        ("user", "hi"),
        ("system", "## State\nbusy"),
    ]


def test_static_fragments_and_tools_are_hashed_and_a_change_is_announced() -> None:
    """Guarantees 8.2, 9.3."""
    talk = Talk()
    talk.add(cc.user("hi"))
    talk.step(IDENTITY)
    talk.add(cc.user("more"))
    assert talk.compile(IDENTITY).manifest.why == ""
    assert talk.compile(cc.PromptFragment("other_id", "You are a coder.")).manifest.why == ""
    assert talk.compile(cc.PromptFragment("identity", "You are a tester.")).manifest.why == "system prompt changed"
    assert talk.compile(IDENTITY, tools=[TOOL]).manifest.why == "tools changed"


def test_the_same_tools_in_another_order_are_the_same_prefix() -> None:
    """Guarantee 8.2: a stable order, in whatever order tools are collected."""
    talk = Talk()
    talk.add(cc.user("hi"))
    other = cc.Tool(name="write", description="Writes a file.", parameters={"type": "object", "properties": {}})
    compiled = talk.compile(tools=[TOOL, other])
    talk.compiler.commit(compiled, cc.assistant("ok"))
    talk.add(cc.user("more"))
    again = talk.compile(tools=[other, TOOL])
    assert again.manifest.why == ""
    assert again.params["tools"] == compiled.params["tools"]


@pytest.mark.parametrize("provider", [CHAT, TAGGED, BETWEEN], ids=["chat", "tagged", "between"])
@pytest.mark.parametrize("expected", ["", " \n"], ids=["empty", "blank"])
def test_an_empty_system_prompt_produces_no_system_message(provider: cc.Provider, expected: str) -> None:
    """Guarantee 8.5."""
    talk = Talk(provider)
    talk.add(cc.user("hi"))
    fragments = [cc.PromptFragment("identity", expected), cc.PromptFragment("state", expected, "dynamic")]
    compiled = talk.compiler.compile("demo", instructions=[expected, *fragments])
    assert "system" not in compiled.params
    assert [message["role"] for message in compiled.params["messages"]] == ["user"]


# ── dynamic ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_dynamic_fragments_are_shown_in_one_block_and_stay_where_they_were_shown() -> None:
    """A model that holds the present text is not sent it again, and the prefix stays as it was."""
    talk = Talk()
    fragments = (state("busy"), cc.PromptFragment("clock", "noon", "dynamic"))
    talk.add(cc.user("one"))
    first = talk.step(*fragments)
    talk.add(cc.user("two"))
    second = talk.step(*fragments)
    assert encode(second[:2]) == encode(first)
    assert sent_contents(second) == [
        ("user", "one"),
        ("system", "## State\nbusy\n\n## Clock\nnoon"),
        ("assistant", "ok"),
        ("user", "two"),
    ]


def test_only_the_fragment_that_changed_is_sent_again_and_reports_that_it_replaces_the_earlier_one() -> None:
    """Two copies that contradict each other must not be equal in rank."""
    talk = Talk()
    talk.add(cc.user("one"))
    talk.step(state("busy"), cc.PromptFragment("clock", "noon", "dynamic"))
    talk.add(cc.user("two"))
    second = talk.compile(state("busy"), cc.PromptFragment("clock", "one", "dynamic"))
    assert sent_contents(second.params["messages"])[-2:] == [("user", "two"), ("system", f"## Clock {NEW}\none")]
    assert [(each.id, each.shown) for each in second.manifest.fragments] == [("state", False), ("clock", True)]


def test_a_fragment_that_becomes_empty_is_withdrawn_once_as_text() -> None:
    """Its earlier copy is still in the prefix, and would hold forever."""
    talk = Talk()
    talk.add(cc.user("one"))
    talk.step(state("busy"))
    for text, block in (("", "## State (withdrawn)\nAll earlier versions of this no longer hold."), ("", None)):
        talk.add(cc.user("more"))
        last = sent_contents(talk.step(state(text)))[-1]
        assert last == (("system", block) if block else ("user", "more"))
    talk.add(cc.user("back"))
    assert sent_contents(talk.step(state("busy")))[-1] == ("system", "## State\nbusy")


def test_a_copy_that_lies_far_back_is_refreshed_at_the_start_of_a_turn_only() -> None:
    """A model forgets old content; a step is not a reason to repeat it."""
    talk = Talk(refresh=200)
    talk.add(cc.user("one"))
    talk.step(state("busy"), reply=asks("a"))
    talk.add(cc.tool_result("a", "read", "word " * 300))
    assert sent_contents(talk.step(state("busy")))[-1][0] == "tool"
    talk.add(cc.user("two"))
    assert sent_contents(talk.step(state("busy")))[-1] == ("system", f"## State {NEW}\nbusy")
    talk.add(cc.user("three"))
    assert sent_contents(talk.step(state("busy")))[-1] == ("user", "three")


def test_fifty_turns_with_an_unchanged_list_hold_a_few_copies() -> None:
    """One copy a turn would cost as much as the conversation itself."""
    talk = Talk(refresh=2_000)
    todos = "\n".join(f"{number}. [open] do the thing" for number in range(20))
    before: list[JSONObject] = []
    for number in range(50):
        talk.add(cc.user(f"question {number} " + "word " * 100))
        shown = talk.step(cc.PromptFragment("todos", todos, "dynamic"))
        assert encode(shown[: len(before)]) == encode(before)
        before = shown
    copies = (
        sum(str(content).count("0. [open] do the thing") for _, content in sent_contents(before)) // 2
    )  # 0. and 10.
    assert 2 <= copies <= 6


def test_a_new_epoch_keeps_the_latest_copy_of_each_fragment() -> None:
    """They were last sent at different turns, so no block holds all of them; what was withdrawn is not said again."""
    talk = Talk()
    clock, mood = cc.PromptFragment("clock", "noon", "dynamic"), cc.PromptFragment("mood", "glad", "dynamic")
    for fragments in ([state("a"), clock, mood], [state("b"), clock, mood], [state("b"), clock]):
        talk.add(cc.user("go"))
        talk.step(*fragments)
    talk.add(cc.user("on"))
    compiled = talk.compile(IDENTITY, state("b"), clock)
    assert compiled.manifest.why == "system prompt changed"
    assert [content for role, content in sent_contents(compiled.params["messages"]) if role == "system"] == [
        "You are a coder.",
        "## Clock\nnoon",
        f"## State {NEW}\nb",
    ]


def test_within_a_turn_they_are_shown_again_only_if_they_changed() -> None:
    """Guarantee 8.3: and after tool results, where those end the request."""
    talk = Talk()
    talk.add(cc.user("one"))
    talk.step(state("busy"), reply=asks("a"))
    talk.add(cc.tool_result("a", "read", "A"))
    assert sent_contents(talk.step(state("busy"), reply=asks("b")))[-1] == ("tool", "A")
    talk.add(cc.tool_result("b", "read", "B"))
    assert sent_contents(talk.step(state("bored"), reply=asks("c")))[-2:] == [
        ("tool", "B"),
        ("system", f"## State {NEW}\nbored"),
    ]
    talk.add(cc.tool_result("c", "read", "C"))
    assert sent_contents(talk.step(state("bored")))[-1] == ("tool", "C")


def test_input_that_steers_a_running_turn_opens_none() -> None:
    """Guarantee 8.3: a turn opens at the first human input after a final answer."""
    talk = Talk()
    talk.add(cc.user("one"))
    talk.step(state("busy"), reply=asks("a"))
    talk.add(cc.tool_result("a", "read", "A"), cc.user("and hurry"))
    assert sent_contents(talk.step(state("busy")))[-2:] == [("tool", "A"), ("user", "and hurry")]


def test_where_nothing_is_new_a_changed_fragment_makes_no_request() -> None:
    """Guarantees 8.3, 9.9: state is sent with a request, it is not a reason for one."""
    talk = Talk()
    talk.add(cc.user("one"))
    talk.step(state("busy"))
    compiled = talk.compile(state("bored"))
    assert not compiled.is_new
    assert "bored" not in compiled.body.decode()


def test_where_the_model_takes_no_system_role_they_are_tagged_on_the_last_user_message() -> None:
    """Guarantees 8.3, 10.3: beside what was said, never in its place."""
    talk = Talk(TAGGED)
    talk.add(cc.user("one"))
    assert talk.step(IDENTITY, state("busy"), reply=asks("a")) == [
        {"role": "user", "content": [text("one"), text("<system-reminder>\n## State\nbusy\n</system-reminder>")]}
    ]
    talk.add(cc.tool_result("a", "read", "A"))
    compiled = talk.compile(IDENTITY, state("bored"))
    assert compiled.params["system"] == [text("You are a coder.")]
    assert compiled.params["messages"][-1] == {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "a", "content": "A"},
            text(f"<system-reminder>\n## State {NEW}\nbored\n</system-reminder>"),
        ],
    }
    assert not cc.lint(compiled.params, format="anthropic")


def test_where_the_model_takes_a_system_role_between_others_they_have_it() -> None:
    """Guarantee 8.3: the provider's own mid-conversation system message."""
    talk = Talk(BETWEEN)
    talk.add(cc.user("one"))
    talk.step(state("busy"), reply=asks("a"))
    talk.add(cc.tool_result("a", "read", "A"))
    compiled = talk.compile(state("bored"))
    assert compiled.params["messages"] == [
        {"role": "user", "content": [text("one")]},
        {"role": "system", "content": [text("## State\nbusy")]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "read", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "A"}]},
        {"role": "system", "content": [text(f"## State {NEW}\nbored")]},
    ]
    assert not cc.lint(compiled.params, format="anthropic")


def test_at_the_head_they_are_system_prompts_and_the_manifest_counts_the_cost() -> None:
    """Guarantee 8.3: every change is a new prefix."""
    talk = Talk(placement="head")
    talk.add(cc.user("one"))
    assert sent_contents(talk.step(IDENTITY, state("busy"))) == [
        ("system", "You are a coder.\n\n## State\nbusy"),
        ("user", "one"),
    ]
    talk.add(cc.user("two"))
    same, changed = talk.compile(IDENTITY, state("busy")), talk.compile(IDENTITY, state("bored"))
    assert (same.manifest.why, same.cost.cached_tokens_lost) == ("", 0)
    assert changed.manifest.why == "system prompt changed"
    assert changed.cost.cached_tokens_lost > 0
    assert changed.cost.cached_tokens_kept == 0
    assert sent_contents(changed.params["messages"])[0] == ("system", "You are a coder.\n\n## State\nbored")


def test_a_new_epoch_keeps_the_latest_block_also_where_it_was_in_a_step_that_is_cut_away() -> None:
    """Guarantees 9.3, 8.3: the model must still have the current state."""
    talk = Talk(cc.provider("openai-chat:gpt-4o", window=1_000, output=100), decay=False)
    talk.add(cc.user("go"))
    epochs: list[str] = []
    shown: list[JSONObject] = []
    for number in range(10):
        compiled = talk.compile(state("step one" if number < 2 else "step two"))
        talk.compiler.commit(compiled, asks(f"c{number}"))
        talk.add(cc.tool_result(f"c{number}", "read", "word " * 100))
        epochs.append(compiled.manifest.why)
        shown = compiled.params["messages"]
    assert "over budget" in epochs
    assert [content for role, content in sent_contents(shown) if role == "system"] == [f"## State {NEW}\nstep two"]


# ── on resume ─────────────────────────────────────────────────────────────────────────────────────────────────────────


SESSION = cc.provider("anthropic:claude-sonnet-4-5", session_resumption=True, reverts=True)


def test_on_resume_they_are_marked_inside_the_last_user_message() -> None:
    """Guarantee 9.4: so that the provider answers the user and not the context; static ones do not go again."""
    talk = Talk(SESSION)
    talk.add(cc.user("one"))
    talk.step(IDENTITY, state("busy"), session="s1")
    talk.add(cc.user("two"))
    compiled = talk.compile(IDENTITY, state("busy"))
    assert (compiled.mode, compiled.session_id) == ("resume", "s1")
    assert "system" not in compiled.params
    assert compiled.params["messages"] == [
        {"role": "user", "content": [text("two"), text("[System Context]: ## State\nbusy")]}
    ]


def test_on_resume_a_system_channel_is_used_where_there_is_one() -> None:
    """Guarantee 9.4."""
    talk = Talk(cc.provider("openai-chat:gpt-4o", session_resumption=True, system_in_session=True))
    talk.add(cc.user("one"))
    talk.step(state("busy"), session="s1")
    talk.add(cc.user("two"))
    assert sent_contents(talk.compile(state("busy")).params["messages"]) == [
        ("user", "two"),
        ("system", "## State\nbusy"),
    ]


def test_on_resume_an_own_reply_from_elsewhere_is_sent_with_the_dynamic_block() -> None:
    """Guarantees 9.4, 9.10: a block at the tail is not taken for what the session produced."""
    talk = Talk(cc.provider("openai-chat:gpt-4o", session_resumption=True))
    talk.add(cc.user("one"))
    talk.step(state("busy"), reply="in the session", session="s1")
    talk.add(cc.assistant("from elsewhere"), cc.user("two"))
    assert sent_contents(talk.compile(state("busy")).params["messages"]) == [
        ("assistant", "from elsewhere"),
        ("user", "two"),
        ("user", "[System Context]: ## State\nbusy"),
    ]


def test_on_resume_tools_that_the_session_ran_itself_are_not_sent_again() -> None:
    """Guarantees 9.4, 9.7: what the provider produced, it holds; calls and results too."""
    talk = Talk(SESSION)
    talk.add(cc.user("one"))
    ran = [asks("a"), cc.tool_result("a", "read", "A"), cc.assistant("done")]
    talk.compiler.commit(talk.compile(), produced=ran, session_id="s1")
    talk.add(cc.user("two"))
    assert talk.compile().params["messages"] == [{"role": "user", "content": [text("two")]}]


def test_a_session_that_keeps_its_prompt_receives_a_change_once_and_a_new_one_is_not() -> None:
    """Guarantee 9.3: an update, in the provider's own append-only form; a new session begins with the prompt as it
    is.
    """
    provider = cc.provider("openai-chat:gpt-4o", session_resumption=True, keeps_static=True)
    talk = Talk(provider)
    talk.add(cc.user("one"))
    talk.step(IDENTITY, session="s1")
    talk.add(cc.user("two"))
    tester = cc.PromptFragment("identity", "You are a tester.")
    update = (
        "[System Context]: The instructions you were given at the start have changed. From now on these hold:\n\n"
        "You are a tester."
    )
    assert sent_contents(talk.step(tester, session="s1")) == [("user", "two"), ("user", update)]
    talk.add(cc.user("three"))
    compiled = talk.compile(tester)
    assert sent_contents(compiled.params["messages"]) == [("user", "three")]
    cc.SessionManager(talk.store).invalidate(compiled.channel, "the provider forgot it")
    fresh = talk.compile(tester)
    assert (fresh.mode, fresh.manifest.why) == ("full", "the provider forgot it")
    assert sent_contents(fresh.params["messages"]) == [
        ("system", "You are a tester."),
        ("user", "one"),
        ("assistant", "ok"),
        ("user", "two"),
        ("assistant", "ok"),
        ("user", "three"),
    ]


# ── state and events ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_todos_from_the_store_reach_the_model_and_change_with_it() -> None:
    """Guarantee 8.4: state is rendered by a fragment, from the current list."""
    store = cc.open_store("memory:")
    compiler = cc.MessageCompiler(store, CHAT)
    prompt = cc.PromptBuilder().with_builtin("todos")
    store.append("demo", cc.user("one"))
    store.add_todo("demo", "write tests")
    store.add_todo("demo", "for somebody else", agent="tester")
    compiled = compiler.compile("demo", instructions=prompt)
    assert sent_contents(compiled.params["messages"]) == [
        ("user", "one"),
        ("system", "## Todos\n1. [open] write tests"),
    ]
    compiler.commit(compiled, asks("a"))
    store.append("demo", cc.tool_result("a", "read", "A"))
    store.set_todo("demo", 1, state="done")
    compiled = compiler.compile("demo", instructions=prompt)
    assert sent_contents(compiled.params["messages"])[-1] == (
        "system",
        f"## Todos {NEW}\nNothing is left to do: 1 done.",
    )


def test_the_response_context_comes_from_the_surroundings() -> None:
    """Guarantees 8.1, 8.4."""
    store = cc.open_store("memory:")
    store.append("demo", cc.user("one"))
    prompt = cc.PromptBuilder().with_builtin("response", "delegations")
    around = cc.PromptContext(responding_to="ann", delegations=(cc.prompts.Delegation(to="tester", task="run it"),))
    compiled = cc.MessageCompiler(store, CHAT).compile("demo", instructions=prompt, context=around)
    (block,) = [content for role, content in sent_contents(compiled.params["messages"]) if role == "system"]
    assert "Your response will be sent to @ann." in str(block)
    assert "@tester" in str(block)


def test_an_event_is_a_log_entry_and_delivered_once() -> None:
    """Guarantee 8.4: a trigger message is in the log, at its position, and is not shown again with the next turn."""
    talk = Talk()
    talk.add(cc.user("one"), cc.system("Remember to run the tests.", audience="assistant"))
    talk.step()
    talk.add(cc.user("two"))
    assert sent_contents(talk.compile().params["messages"]) == [
        ("user", "one"),
        ("system", "Remember to run the tests."),
        ("assistant", "ok"),
        ("user", "two"),
    ]


# ── on a branch ───────────────────────────────────────────────────────────────────────────────────────────────────────


def turns(talk: Talk, count: int) -> list[JSONObject]:
    """So many turns, each with its block; what the last request held."""
    shown: list[JSONObject] = []
    for number in range(1, count + 1):
        talk.add(cc.user(f"question {number}"))
        thought = cc.Reasoning(text="hm", signature=f"signature {number}", provider="anthropic")
        shown = talk.step(state("busy"), reply=cc.assistant(f"answer {number}", reasoning=thought))
    return shown


@pytest.mark.parametrize("forked", [False, True], ids=["edit", "fork"])
def test_blocks_before_a_branch_stay_and_those_behind_it_go(forked: bool) -> None:
    """Guarantees 9.9a, 3.5: the cache and reasoning that is bound to its prefix survive."""
    talk = Talk(BETWEEN, refresh=0)
    last = turns(talk, 3)
    if forked:
        talk.store.fork("demo", "other", at=4)
        talk.store.append("other", cc.user("another question"))
    else:
        talk.store.edit("demo", 5, cc.user("another question"))
    compiled = talk.compiler.compile("other" if forked else "demo", instructions=[state("busy")])
    assert compiled.manifest.why == ("forked" if forked else "edited or branched away")
    shown = compiled.params["messages"]
    assert encode(shown[:6]) == encode(last[:6])
    assert shown[6:] == [
        {"role": "user", "content": [text("another question")]},
        {"role": "system", "content": [text(f"## State {NEW}\nbusy")]},
    ]
    assert compiled.cost.signed_reasoning_lost == 0


def test_asking_again_after_a_rewind_shows_the_same_as_the_first_time() -> None:
    """Guarantee 3.5: regenerating leaves everything before it as it was."""
    talk = Talk(BETWEEN, refresh=0)
    last = turns(talk, 3)
    talk.store.rewind("demo", 5)
    compiled = talk.compiler.compile("demo", instructions=[state("busy")], retry=True)
    assert encode(compiled.params["messages"]) == encode(last)


def test_a_fragment_that_moves_to_the_head_leaves_no_copy_at_the_tail() -> None:
    """The copy would say, further down and with more weight, what held when the placement was changed."""
    talk = Talk()
    talk.add(cc.user("one"))
    assert encode(talk.step(state("open"))).count(b"open") == 1
    talk.compiler = cc.MessageCompiler(talk.store, CHAT, placement="head")
    for text in ("two", "three"):
        talk.add(cc.user(text))
        assert encode(talk.step(state("open"))).count(b"open") == 1
