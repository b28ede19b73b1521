"""Fragments are collected, ordered and rendered; static and dynamic ones are separated."""

import subprocess
import sys
from typing import Any, cast

import pytest

import contextc as cc
from contextc.errors import FragmentFailed
from contextc.prompts import PromptBuilder, PromptContext, PromptFragment, hash_tools


def shown(*fragments: PromptFragment) -> tuple[str, str]:
    prompt = PromptBuilder(fragments).render()
    return prompt.static_text, prompt.dynamic_text


def test_static_comes_first_and_dynamic_is_one_block_under_headings() -> None:
    """Guarantees 8.1, 8.2, 8.3."""
    prompt = PromptBuilder(
        [
            PromptFragment("open_work", "Two things.", "dynamic"),
            PromptFragment("identity", "You are a coder."),
            PromptFragment("clock", lambda around: f"It is noon for {around.agent}.", "dynamic"),
            PromptFragment("rules", "Be brief."),
        ]
    ).render(PromptContext(agent="coder"))
    assert prompt.static_text == "You are a coder.\n\nBe brief."
    assert prompt.dynamic_text == "## Open work\nTwo things.\n\n## Clock\nIt is noon for coder."
    assert [(each.id, each.lifecycle) for each in prompt.static + prompt.dynamic] == [
        ("identity", "static"),
        ("rules", "static"),
        ("open_work", "dynamic"),
        ("clock", "dynamic"),
    ]


def test_a_lower_priority_comes_first_and_equals_stay_as_given() -> None:
    """Guarantee 8.2: a stable order."""
    fragments = [
        PromptFragment("b", "b"),
        PromptFragment("last", "last", priority=200),
        PromptFragment("a", "a"),
        PromptFragment("first", "first", priority=-1),
    ]
    assert shown(*fragments)[0] == "first\n\nb\n\na\n\nlast"


def test_blank_texts_vanish() -> None:
    """Guarantee 8.5: an empty system prompt produces no system message."""
    blanks = [
        PromptFragment("empty"),
        PromptFragment("blank", " \n"),
        PromptFragment("none", lambda _: None),
        PromptFragment("later", lambda _: "", "dynamic"),
    ]
    prompt = PromptBuilder(blanks).render()
    assert (prompt.static, prompt.dynamic, prompt.static_text, prompt.dynamic_text) == ((), (), "", "")


def test_a_text_is_shown_as_it_was_written() -> None:
    assert shown(PromptFragment("a", "  one\n\ttwo \n"))[0] == "  one\n\ttwo \n"
    assert shown(PromptFragment("a", "half \ud83d"))[0] == "half \ufffd"


def test_equal_static_texts_have_equal_hashes_in_every_process() -> None:
    """Guarantees 8.2, 9.1: the hash is stored in a ledger, for comparison by other processes."""
    code = (
        "from contextc.prompts import *\n"
        "print(PromptBuilder([PromptFragment('a', 'One.'), PromptFragment('b', 'Two.')]).render().static_hash)"
    )
    there = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    builder = PromptBuilder([PromptFragment("a", "One."), PromptFragment("b", "Two.")])
    assert builder.render().static_hash == builder.render().static_hash == there


def test_the_static_hash_follows_static_texts_and_nothing_else() -> None:
    """Guarantee 9.3: changed static fragments begin a new epoch, changed dynamic ones do not."""

    def hashed(*texts: str, dynamic: str = "") -> str:
        fragments = [PromptFragment(str(number), text) for number, text in enumerate(texts)]
        return PromptBuilder([*fragments, PromptFragment("now", dynamic, "dynamic")]).render().static_hash

    assert hashed("a", "b") == hashed("a", "b", dynamic="changed") == hashed("a", "", "b")
    assert len({hashed("a", "b"), hashed("b", "a"), hashed("a"), hashed("a\n\nb"), hashed()}) == 5


def test_a_static_fragment_may_render_differently_another_time() -> None:
    """Guarantee 9.3: that is a new epoch, not an error."""
    builder = PromptBuilder([PromptFragment("project", lambda around: around.project)])
    one, two = (builder.render(PromptContext(project=name)) for name in ("one", "two"))
    assert (one.static_text, two.static_text) == ("one", "two")
    assert one.static_hash != two.static_hash


def test_tool_definitions_are_hashed_as_they_go_out() -> None:
    """Guarantee 8.2; qwen-code#6338: the order of tools is part of the prefix."""
    read, write = cc.Tool(name="read"), cc.Tool(name="write")
    assert hash_tools([read, write]) == hash_tools((cc.Tool(name="read"), write))
    assert len({hash_tools([read, write]), hash_tools([write, read]), hash_tools([read]), hash_tools([])}) == 4


def test_two_fragments_of_one_id_are_refused_and_none_is_taken() -> None:
    """Guarantee 15.1."""
    builder = PromptBuilder([PromptFragment("a", "one")])
    with pytest.raises(cc.errors.InvalidInput, match=r"Prompt fragment 'a' already exists\. Use another id"):
        builder.add(PromptFragment("b", "two"), PromptFragment("a", "three"))
    with pytest.raises(cc.errors.InvalidInput, match="Prompt fragment 'b' already exists"):
        builder.add(PromptFragment("b", "two"), PromptFragment("b", "three"))
    assert builder.render().static_text == "one"


def test_an_invalid_fragment_is_refused_where_it_is_made() -> None:
    """Guarantee 15.1."""
    for id in ("", " ", "a\nb", "x" * 129, 5):
        with pytest.raises(cc.errors.InvalidInput, match="id must have 1 to 128 printable characters, got"):
            PromptFragment(id, "text")  # pyright: ignore[reportArgumentType]
    with pytest.raises(
        cc.errors.InvalidInput, match="'a': text must be a string or a function that returns one, got int"
    ):
        PromptFragment("a", 5)  # pyright: ignore[reportArgumentType]
    with pytest.raises(cc.errors.InvalidInput, match=r"'a': lifecycle must be .*, got 'sometimes'"):
        PromptFragment("a", "text", "sometimes")  # pyright: ignore[reportArgumentType]
    with pytest.raises(cc.errors.InvalidInput, match="priority must be an integer, got '1'"):
        PromptFragment("a", "text", priority="1")  # pyright: ignore[reportArgumentType]
    with pytest.raises(cc.errors.InvalidInput, match="must contain only PromptFragment, got str"):
        PromptBuilder().add("text")  # pyright: ignore[reportArgumentType]
    with pytest.raises(cc.errors.InvalidInput, match=r"Pass \[fragment\]"):
        PromptBuilder(PromptFragment("a", "text"))  # pyright: ignore[reportArgumentType]


def test_a_renderer_that_raises_is_named() -> None:
    """Guarantee 15.1: the error says which fragment, and keeps what went wrong in it."""

    def broken(around: PromptContext) -> str:
        raise KeyError(around.agent)

    with pytest.raises(FragmentFailed, match="fragment 'mood': its renderer raised KeyError: 'assistant'") as caught:
        PromptBuilder([PromptFragment("mood", broken)]).render()
    assert isinstance(caught.value.__cause__, KeyError)
    assert caught.value.fragment == "mood"
    assert isinstance(caught.value, cc.ContextcError)
    assert not isinstance(caught.value, cc.errors.InvalidInput)


def test_a_function_without_the_context_is_refused_when_the_fragment_is_made() -> None:
    """The traceback then points to the mistake, and not to the first turn."""

    def mood() -> str:
        return "Be kind."

    with pytest.raises(cc.errors.InvalidInput, match=r"'mood': the function must accept one .* `def name\(context"):
        cc.PromptFragment("mood", cast(Any, mood))


def test_a_renderer_that_returns_no_text_is_named() -> None:
    """Guarantee 15.1."""

    async def late(around: PromptContext) -> str:
        return around.agent

    with pytest.raises(FragmentFailed, match="'a': its renderer must return a string or None, got int"):
        PromptBuilder([PromptFragment("a", lambda _: 5)]).render()  # pyright: ignore[reportArgumentType]
    with pytest.raises(cc.errors.InvalidInput, match="'b': its renderer is async and cannot be awaited here"):
        PromptBuilder([PromptFragment("b", late)]).render()


@pytest.mark.parametrize(
    "text",
    [
        "Started 2026-11-15T08:35:00Z.",
        "Today is 2026-11-15.",
        "Current time: 08:35",
        "Today's date: Nov 15, 2026",
        "The date is Sunday, 15 November 2026.",
        "log at 08:35:01",
        "Be brief.\n\nNow: 1784912262",
    ],
)
def test_a_moment_in_a_static_text_is_warned_of(text: str) -> None:
    """OpenHands software-agent-sdk#3690: a timestamp at the head of the prompt breaks the cache."""
    (warning,) = PromptBuilder([PromptFragment("head", text)]).render().warnings
    assert (warning.fragment, warning.code) == ("head", "moment-in-static")
    assert "Make it a dynamic fragment" in warning.message
    assert PromptBuilder([PromptFragment("head", text, "dynamic")]).render().warnings == ()


@pytest.mark.parametrize(
    "text",
    [
        "Use API version 2023-06-01.",
        "We are open from 9:00 to 17:00.",
        "Pictures are 16:9 or 4:3.",
        "Do it now. Release 2024-01-01 is frozen.",
        "The address is fe80::10:20:30:40.",
        "Take your time. John 3:16",
    ],
)
def test_a_fixed_date_or_hour_is_not_a_timestamp(text: str) -> None:
    """A false alarm costs trust."""
    assert PromptBuilder([PromptFragment("head", text)]).render().warnings == ()
