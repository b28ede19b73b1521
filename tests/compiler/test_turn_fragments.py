"""Fragments for one turn: rendered for its input, sent once beside it, and the first to be trimmed."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

import contextc as cc
from contextc.errors import FragmentFailed, InvalidInput
from contextc.prompts import PromptContext

CHAT, SESSION = "openai-chat:gpt-4o", "openai-session:gpt-5"
LOOK = cc.Tool(name="look", description="Looks.", parameters={"type": "object", "properties": {}})


class Search:
    """A renderer that notes what it was asked for."""

    def __init__(self, length: int = 1) -> None:
        self.length, self.asked = length, list[str]()

    def __call__(self, context: PromptContext) -> str:
        self.asked.append(context.input_text)
        return f"{len(self.asked)} found for {context.input_text}" + " and more" * (self.length - 1)


class Conversation:
    """A conversation of a compiler without an executor."""

    def __init__(self, model: cc.Provider | str = CHAT, search: Search | None = None, **options: Any) -> None:
        self.store, self.search = cc.open_store("memory:"), search or Search()
        self.compiler = cc.MessageCompiler(self.store, model, fetch=False, **options)
        self.fragments = [cc.PromptFragment("rules", "Be brief."), cc.PromptFragment("passages", self.search, "turn")]

    def compile(self, *messages: cc.Message, model: str | None = None, **arguments: Any) -> cc.Compiled:
        self.store.extend("c", messages)
        compiler = self.compiler if model is None else cc.MessageCompiler(self.store, model, fetch=False)
        given: dict[str, Any] = {"instructions": self.fragments, "tools": [LOOK], **arguments}
        return compiler.compile("c", **given)

    def step(self, *messages: cc.Message, reply: cc.Message | None = None, session: str | None = None) -> cc.Compiled:
        compiled = self.compile(*messages)
        with self.compiler.attempt(compiled) as attempt:
            attempt.commit(reply or cc.assistant("Good."), session_id=session)
        return compiled

    def turn(self, question: str, *results: str) -> list[cc.Compiled]:
        """Run a turn with one step for each result, and one for the answer."""
        sent, given = list[cc.Compiled](), [cc.user(question)]
        for number, result in enumerate(results):
            name = f"{question} {number}"
            sent.append(self.step(*given, reply=cc.assistant([cc.tool_call(name, "look", {})])))
            given = [cc.tool_result(name, "look", result)]
        return [*sent, self.step(*given)]


def texts(compiled: cc.Compiled, role: str = "system") -> list[str]:
    return [message.text for message in compiled.messages if message.role == role]


def roles(compiled: cc.Compiled) -> list[str]:
    return [message.role for message in compiled.messages]


def test_it_is_rendered_once_for_what_opened_the_turn_and_stays_beside_it() -> None:
    """Guarantee 8.6: the steps of the turn extend the same bytes."""
    talk = Conversation()
    first, second, third = talk.turn("Bread?", "some", "more")
    assert talk.search.asked == ["Bread?"]
    assert roles(third) == ["user", "system", "assistant", "tool", "assistant", "tool"]
    assert texts(third) == ["## Passages\n1 found for Bread?"]
    for before, after in ((first, second), (second, third)):
        assert after.params["messages"][: len(before.params["messages"])] == before.params["messages"]
        assert (after.manifest.epoch, after.manifest.why) == (1, "")


def test_later_turns_neither_replace_nor_withdraw_it() -> None:
    """Guarantee 8.6: in later requests it is history, at its place, in its bytes."""
    talk = Conversation()
    (first,) = talk.turn("Bread?")
    (second,) = talk.turn("Milk?")
    talk.fragments = talk.fragments[:1]
    (third,) = talk.turn("Eggs?")
    assert texts(third) == ["## Passages\n1 found for Bread?", "## Passages\n2 found for Milk?"]
    assert "updated" not in str(third.params)
    assert "withdrawn" not in str(third.params)
    assert second.params["messages"][: len(first.params["messages"])] == first.params["messages"]
    assert roles(third) == ["user", "system", "assistant", "user", "system", "assistant", "user"]
    assert third.manifest.epoch == 1


def test_nothing_found_adds_nothing() -> None:
    talk = Conversation()
    talk.fragments = [cc.PromptFragment("passages", lambda _: None, "turn")]
    (first,) = talk.turn("Bread?")
    assert roles(first) == ["user"]


def test_it_comes_before_dynamic_fragments_which_keep_their_rules() -> None:
    """Guarantees 8.3 and 8.6."""
    talk = Conversation()
    mood = "calm"
    talk.fragments += [cc.PromptFragment("mood", lambda _: mood, "dynamic")]
    (first,) = talk.turn("Bread?")
    assert texts(first) == ["## Passages\n1 found for Bread?\n\n## Mood\ncalm"]
    (second,) = talk.turn("Milk?")
    assert texts(second)[1:] == ["## Passages\n2 found for Milk?"]
    mood = "cross"
    (third,) = talk.turn("Eggs?")
    assert texts(third)[2:] == [
        "## Passages\n3 found for Eggs?\n\n## Mood (updated: this replaces all earlier versions)\ncross"
    ]


def test_a_fragment_that_is_placed_in_the_head_does_not_take_it_there() -> None:
    """Guarantee 8.6: `placement="head"` is for dynamic fragments. Another head each turn would cost the cache."""
    talk = Conversation(placement="head")
    talk.fragments += [cc.PromptFragment("mood", "calm", "dynamic")]
    (first,) = talk.turn("Bread?")
    assert (first.system_prompt, texts(first)) == ("Be brief.\n\n## Mood\ncalm", ["## Passages\n1 found for Bread?"])
    (second,) = talk.turn("Milk?")
    assert second.manifest.epoch == 1


def test_a_session_gets_it_once() -> None:
    """Guarantee 8.6: with the input of its turn, and never again while the session lasts."""
    talk = Conversation(SESSION)
    call = cc.assistant([cc.tool_call("c1", "look", {})])
    first = talk.step(cc.user("Bread?"), reply=call, session="s")
    second = talk.step(cc.tool_result("c1", "look", "some"), session="s")
    third = talk.step(cc.user("Milk?"), session="s")
    assert [each.mode for each in (first, second, third)] == ["full", "resume", "resume"]
    assert [str(each.params).count("## Passages") for each in (first, second, third)] == [1, 0, 1]
    assert "2 found for Milk?" in str(third.params)
    lost = talk.compile(cc.user("Eggs?"), model=CHAT)
    assert texts(lost) == ["## Passages\n3 found for Eggs?"]


def test_a_session_that_is_lost_in_the_middle_of_a_turn_gets_what_was_sent_again() -> None:
    """Guarantee 8.6: from the ledger, not rendered again."""
    talk = Conversation(SESSION)
    talk.step(cc.user("Bread?"), reply=cc.assistant([cc.tool_call("c1", "look", {})]))
    again = talk.compile(cc.tool_result("c1", "look", "some"))
    assert (again.mode, texts(again), talk.search.asked) == ("full", ["## Passages\n1 found for Bread?"], ["Bread?"])
    assert roles(again) == ["user", "system", "assistant", "tool"]


def test_a_request_without_an_answer_is_compiled_for_the_same_input() -> None:
    talk = Conversation()
    failed = talk.compile(cc.user("Bread?"))
    with pytest.raises(OSError, match="no network"), talk.compiler.attempt(failed):
        raise OSError("no network")
    again = talk.compile()
    assert roles(again) == ["user", "system"]
    assert texts(again) == ["## Passages\n2 found for Bread?"]


def test_another_model_gets_it_beside_the_input_in_the_middle_of_a_turn() -> None:
    """Guarantee 8.6: not after the steps that followed."""
    talk = Conversation()
    talk.turn("Bread?")
    talk.step(cc.user("Milk?"), reply=cc.assistant([cc.tool_call("c1", "look", {})]))
    other = talk.compile(cc.tool_result("c1", "look", "some"), model="anthropic:claude-sonnet-4-5")
    assert [message.role for message in other.messages[-3:]] == ["user", "assistant", "tool"]
    assert "found for Milk?" in str(other.params["messages"][2])
    assert str(other.params).count("## Passages") == 1


def test_input_is_what_opened_the_turn() -> None:
    """Guarantee 8.7: all messages of users since the last answer, that this agent may see, and an edit."""
    seen: list[list[str]] = []

    def note(context: PromptContext) -> str:
        seen.append([message.text for message in context.input])
        return context.input_text

    talk = Conversation()
    talk.fragments = [cc.PromptFragment("note", note, "dynamic")]
    talk.step(cc.system("A rule."), cc.user("One?"), cc.user("Two?"))
    talk.step(cc.user("Three?"), reply=cc.assistant([cc.tool_call("c1", "look", {})]))
    talk.step(cc.tool_result("c1", "look", "some"))
    hidden = cc.Message(role="user", parts=(cc.Text("For another one."),), audience="tester")
    talk.step(cc.user("Four?"), hidden)
    assert seen == [["One?", "Two?"], ["Three?"], ["Three?"], ["Four?"]]
    talk.compile(dry_run=True, edit=(9, cc.user("Five?")))
    assert seen[-1] == ["Five?"]
    assert PromptContext(input=(cc.user("a"), cc.system("b"), cc.user("c"))).input_text == "a\n\nc"
    assert PromptContext(input=(cc.system("b"),)).input_text == "b"


# ── trimming ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def small(**options: Any) -> Conversation:
    model = cc.provider("openai-chat:gpt-4o", window=4_000, output=500)
    return Conversation(model, Search(150), keep_index=0.0, **options)


def fill(talk: Conversation, words: int) -> cc.Compiled:
    """Run turns until context is trimmed, and return the first request that is."""
    for number in range(40):
        for sent in talk.turn(f"Question {number}?", "word " * words):
            if sent.manifest.epoch > 1:
                return sent
    raise AssertionError("it was never trimmed")


@pytest.mark.parametrize("words", [5, 150])
def test_it_is_the_first_to_be_trimmed(words: int) -> None:
    """Guarantee 8.6: those of earlier turns go before results and texts; that of the current turn stays."""
    talk = small()
    sent = fill(talk, words)
    current = talk.search.asked[-1]
    assert [text.partition(" and")[0].partition("found for ")[2] for text in texts(sent)] == [current]
    assert "left out: the fragment 'passages' of earlier turns" in sent.record.remarks
    if words == 5:  # they were enough
        assert not sent.record.left
        assert "was left out" not in str(sent.params)
        assert texts(sent, "user") == talk.search.asked
    assert sent.budget.used <= sent.budget.available
    (following,) = talk.turn("And then?")
    assert following.manifest.epoch == sent.manifest.epoch, "the cut went deep enough"


@pytest.mark.parametrize("options", [{"strategy": "oldest"}, {"policy": "sliding_window"}])
def test_other_strategies_leave_out_as_many_as_it_takes(options: dict[str, Any]) -> None:
    """Guarantee 8.6: oldest first, and no message while one of them could go."""
    talk = small(**options)
    sent = fill(talk, 5)
    kept = [text.partition(" and")[0].partition("found for ")[2] for text in texts(sent)]
    assert 1 < len(kept) < len(talk.search.asked)
    assert kept == talk.search.asked[-len(kept) :]
    assert texts(sent, "user") == talk.search.asked
    assert not sent.record.left


def test_that_of_the_current_turn_goes_where_the_request_would_not_fit() -> None:
    """Guarantee 8.6: a question without its passages can be sent; no request cannot."""
    talk = small()
    talk.search.length = 3_000
    (sent,) = talk.turn("Bread?")
    assert (roles(sent), texts(sent, "user")) == (["user"], ["Bread?"])
    assert "left out: the fragment 'passages' of this turn, which does not fit" in sent.record.remarks


def test_that_of_the_current_turn_outlives_its_steps() -> None:
    """Guarantee 8.6: it belongs to the input, which stays as long as the turn."""
    talk = small()
    *_, sent = talk.turn("Bread?", *["word " * 300] * 12)
    assert sent.manifest.epoch > 1
    assert texts(sent)[0].startswith("## Passages\n1 found for Bread?")
    assert talk.search.asked == ["Bread?"]


# ── the manifest, and rendering ───────────────────────────────────────────────────────────────────────────────────────


def test_the_manifest_names_it_and_past_requests_are_rebuilt_with_it() -> None:
    talk = Conversation()
    first, second = talk.turn("Bread?", "some")
    (fragment,) = [each for each in first.manifest.fragments if each.lifecycle == "turn"]
    assert (fragment.id, fragment.shown) == ("passages", True)
    assert [(line.kind, line.text) for line in second.manifest.lines][1] == ("turn", "## Passages\n1 found for Bread?")
    for number, sent in enumerate((first, second), 1):
        assert talk.compiler.rebuild("c", number) == sent.body


def test_a_fork_keeps_it() -> None:
    talk = Conversation()
    talk.turn("Bread?")
    talk.store.fork("c", "fork")
    talk.store.append("fork", cc.user("Milk?"))
    forked = talk.compiler.compile("fork", instructions=talk.fragments, tools=[LOOK])
    assert texts(forked) == ["## Passages\n1 found for Bread?", "## Passages\n2 found for Milk?"]


def test_an_async_renderer_is_refused_by_compile_with_a_way_that_works() -> None:
    """Guarantee 8.7: compiling is synchronous."""

    async def search(context: PromptContext) -> str:
        await asyncio.sleep(0)
        return f"found for {context.input_text}"

    talk = Conversation()
    builder = cc.PromptBuilder([cc.PromptFragment("passages", search, "turn"), cc.PromptFragment("a", "One.")])
    talk.store.append("c", cc.user("Bread?"))
    for fragments in (builder, builder.fragments):
        with pytest.raises(InvalidInput, match=r"'passages': its renderer is async .*render_async\(context\)"):
            talk.compile(instructions=fragments)
    context = talk.compiler.prompt_context("c")
    prompt = asyncio.run(builder.render_async(context))
    assert (prompt.static_text, [each.text for each in prompt.turn]) == ("One.", ["found for Bread?"])
    compiled = talk.compile(instructions=prompt)
    assert texts(compiled) == ["## Passages\nfound for Bread?"]


@pytest.mark.parametrize("failing", [True, False])
def test_an_async_renderer_that_fails_names_its_fragment(failing: bool) -> None:
    async def search(context: PromptContext) -> Any:
        if failing:
            raise OSError("no index")
        return 5

    builder = cc.PromptBuilder([cc.PromptFragment("passages", search, "turn")])
    problem = "raised OSError: no index" if failing else "must return a string or None, got int"
    with pytest.raises(FragmentFailed, match=f"'passages': its renderer {problem}"):
        asyncio.run(builder.render_async())


def test_fragments_of_a_turn_come_last_in_their_order() -> None:
    def listed(*fragments: cc.PromptFragment) -> Sequence[str]:
        return [each.id for each in cc.PromptBuilder(fragments).fragments]

    of_turn = cc.PromptFragment("t", "t", "turn", priority=0)
    assert listed(of_turn, cc.PromptFragment("d", "d", "dynamic"), cc.PromptFragment("s", "s")) == ["s", "d", "t"]
    with pytest.raises(InvalidInput, match='lifecycle must be "static", "dynamic" or "turn", got \'once\''):
        cc.PromptFragment("a", "a", "once")  # pyright: ignore[reportArgumentType]
