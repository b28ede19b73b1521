"""Pairing of calls and results in an agent's view, for any log."""

from collections.abc import Sequence

import pytest

import contextc as cc
from contextc._json import JSONObject, encode
from contextc.compiler.ledger import get_channel_cache
from tests.compiler.agent_views import CHAT, CLAUDE, INTERRUPTED, Talk, calls, result, seen, sent_messages


def test_results_are_matched_by_id_not_by_name_or_position() -> None:
    """Guarantee 5.1."""
    shown = Talk(cc.user("one"), calls("a", "b"), result("b", "B"), result("a", "A")).shown()
    assert [(message["tool_call_id"], message["content"]) for message in shown[2:]] == [("a", "A"), ("b", "B")]


def test_a_result_is_brought_to_its_call_and_nothing_else_moves() -> None:
    """Guarantee 5.2: texts between keep their order, after the group."""
    log = (
        cc.user("one"),
        calls("a", "b"),
        result("b"),
        cc.user("hurry"),
        cc.assistant("All green.", author="tester"),
        cc.system("note"),
        result("a"),
        cc.user("two"),
    )
    assert seen(*log) == [
        ("user", "one"),
        ("assistant", None),
        ("tool", "result of a"),
        ("tool", "result of b"),
        ("user", "hurry"),
        ("user", "[@tester] All green."),
        ("system", "note"),
        ("user", "two"),
    ]


@pytest.mark.parametrize("provider", [CHAT, CLAUDE], ids=["chat", "anthropic"])
def test_one_message_with_the_results_of_two_replies_is_parted(provider: cc.Provider) -> None:
    """Guarantees 5.1, 5.2: each result comes to its own call, also where a new epoch encodes it again."""
    both = cc.Message(role="tool", parts=(*result("b", "B").parts, *result("a", "A").parts))
    talk = Talk(cc.user("one"), calls("a"), calls("b"), both, provider=provider)
    first = talk.step("done")
    assert not cc.lint(talk.compile().params, format=provider.format)
    assert results_of(first) == [("a", "A"), ("b", "B")]
    again = talk.compiler.compile("demo", name="coder", instructions="Another prompt.", retry=True)
    assert again.manifest.why == "system prompt changed"
    assert results_of(again.params["messages"]) == [("a", "A"), ("b", "B")]


def results_of(messages: Sequence[JSONObject]) -> list[tuple[str, str]]:
    """Return the results with the call that each follows, in either format."""
    found: list[tuple[str, str]] = []
    asked: list[str] = []
    for message in messages:
        content: list[JSONObject] | str | None = message["content"]
        blocks = content if isinstance(content, list) else []
        if message["role"] == "assistant":
            calls: list[JSONObject] = [*message.get("tool_calls", ()), *blocks]
            asked = [each["id"] for each in calls if "id" in each]
        for each in (message, *blocks):
            name: str | None = each.get("tool_call_id") or each.get("tool_use_id")
            if name:
                assert name in asked
                found.append((name, each["content"]))
    return found


def test_a_call_without_a_result_gets_one_at_its_place() -> None:
    """Guarantee 5.3."""
    assert seen(cc.user("one"), calls("a", "b"), result("a"), cc.user("two")) == [
        ("user", "one"),
        ("assistant", None),
        ("tool", "result of a"),
        ("tool", INTERRUPTED),
        ("user", "two"),
    ]


def test_a_result_without_a_call_is_left_out_that_part_alone() -> None:
    """Guarantee 5.3."""
    mixed = cc.Message(role="tool", parts=(*result("ghost").parts, *result("a").parts))
    talk = Talk(cc.user("one"), calls("a"), mixed, result("phantom"), cc.user("two"))
    assert sent_messages(talk.shown()) == [
        ("user", "one"),
        ("assistant", None),
        ("tool", "result of a"),
        ("user", "two"),
    ]
    assert talk.left_out() == [(4, "no call asked for it")]
    assert talk.compile().manifest.record.remarks == (
        "left out: a result for ghost that no call asked for",
        "left out: a result for phantom that no call asked for",
    )


def test_a_result_before_its_call_does_not_answer_it() -> None:
    """Guarantee 5.2: a result anywhere *later*."""
    assert seen(cc.user("one"), result("a", "too early"), calls("a"))[1:] == [
        ("assistant", None),
        ("tool", INTERRUPTED),
    ]


def test_of_two_results_the_first_wins() -> None:
    """Guarantee 5.3."""
    assert seen(cc.user("one"), calls("a"), result("a", "first"), result("a", "second"))[2:] == [("tool", "first")]


def test_a_later_second_result_is_ignored() -> None:
    """Guarantees 5.3, 9.9: nothing new, no request."""
    talk = Talk(cc.user("one"), calls("a"), result("a"))
    talk.step("done")
    talk.add(result("a", "again"))
    compiled = talk.compile()
    assert not compiled.is_new
    assert "again" not in compiled.body.decode()


@pytest.mark.parametrize("content", ["", None], ids=["empty", "none"])
def test_an_empty_result_is_a_result(content: object) -> None:
    """Guarantee 5.3."""
    empty = cc.tool_result("a", "read", content)
    assert seen(cc.user("one"), calls("a"), empty)[2:] == [("tool", "")]
    blocks = Talk(cc.user("one"), calls("a"), empty, provider=CLAUDE).shown()[2]["content"]
    assert blocks == [{"type": "tool_result", "tool_use_id": "a", "content": ""}]


@pytest.mark.parametrize("provider", [CHAT, CLAUDE], ids=["chat", "anthropic"])
@pytest.mark.parametrize("cold", [False, True], ids=["warm", "cold"])
def test_a_late_result_is_reported_as_a_new_message_and_the_past_is_not_edited(
    provider: cc.Provider, cold: bool
) -> None:
    """Guarantee 5.3: a synthetic result that was shown stays; the real one names its call, once."""
    talk = Talk(cc.user("one"), calls("a"), cc.user("two"), provider=provider)
    first = talk.step("I wait.")
    assert INTERRUPTED in encode(first).decode()
    talk.add(result("a", "the real one"))
    if cold:
        get_channel_cache(talk.store).clear()
    second = talk.step("Thanks.")
    assert encode(second[: len(first)]) == encode(first)
    text = "[The result of read, call a, which was still missing:]\nthe real one"
    assert second[-1]["role"] == "user"
    assert second[-1]["content"] in (text, [{"type": "text", "text": text}])
    talk.add(result("a", "and again"))
    if cold:
        get_channel_cache(talk.store).clear()
    assert not talk.compile().is_new


def test_a_late_result_with_a_picture_reports_that_there_was_one() -> None:
    """Guarantees 5.3, 2.6: nothing is dropped in silence."""
    talk = Talk(cc.user("one"), calls("a"))
    talk.step("I wait.")
    talk.add(result("a", ["see: ", cc.Media(mime_type="image/png", data=b"png")]))
    head = "[The result of read, call a, which was still missing:]"
    assert sent_messages(talk.shown())[-1] == ("user", f"{head}\nsee: [image: image/png, 3 bytes; not shown]")


def test_what_waits_beside_a_late_result_is_paired_as_usual() -> None:
    """Guarantee 5.3: one message with the late result of one call and the result of a new one."""
    talk = Talk(cc.user("one"), calls("a"))
    talk.step(calls("b"))
    talk.add(cc.Message(role="tool", parts=(*result("a", "A").parts, *result("b", "B").parts)))
    assert sent_messages(talk.shown())[3:] == [
        ("assistant", None),
        ("tool", "B"),
        ("user", "[The result of read, call a, which was still missing:]\nA"),
    ]


def test_an_id_that_is_used_again_is_answered_again() -> None:
    """Guarantee 5.1: some models count their calls from one in every reply."""
    log = (cc.user("one"), calls("a"), result("a", "first"), calls("a"), result("a", "second"))
    assert [content for role, content in seen(*log) if role == "tool"] == ["first", "second"]
    wire = Talk(*log, provider=CLAUDE).compile().params
    assert not cc.lint(wire, format="anthropic")
