"""Failures known from practice: broken call pairs, and trimming that breaks them."""

import pytest

import contextc as cc
from contextc._json import JSONObject
from contextc.formats import formatter
from contextc.formats.base import Request
from contextc.messages import SYNTHETIC_RESULTS
from tests.formats.field import (
    LOOK,
    call,
    codes,
    every_format,
    every_format_in_two,
    outline,
    result,
    sent,
    sound,
    without,
)
from tests.formats.known import having, known

INTERLEAVED = [
    cc.user("What is in these?"),
    cc.assistant("Both at once.", tool_calls=[call("a"), call("b")]),
    result("b", "2"),
    cc.user("and hurry"),
    result("a", "1"),
    cc.assistant("One more.", tool_calls=[call("c")]),
    cc.assistant("And one.", tool_calls=[call("d")]),
    result("d", "4"),
    result("c", "3"),
    cc.system("Be brief."),
    cc.assistant("They print."),
    cc.user("Thanks."),
]


@every_format
def test_a_history_cut_at_any_two_places_makes_a_sound_request(name: str) -> None:
    """litellm#10696, langchain#29637; Guarantees 5.1, 5.3: trimming kept a result without its call, or the reverse."""
    for begin in range(len(INTERLEAVED)):
        for end in range(begin + 1, len(INTERLEAVED) + 1):
            part = INTERLEAVED[begin:end]
            if all(message.role == "tool" for message in part):
                assert formatter(name).format(part) == []  # there is nothing to say
            else:
                sent(name, part)


@every_format
def test_a_cut_takes_out_the_half_it_left_and_nothing_else(name: str) -> None:
    """litellm#10696, langchain#29637; Guarantee 5.3."""
    assert outline(name, sent(name, INTERLEAVED[8:])) == ["Be brief.", "They print.", "Thanks."]
    assert outline(name, sent(name, INTERLEAVED[:3])) == [
        "What is in these?",
        "Both at once.",
        "call a",
        "call b",
        f"result a: {SYNTHETIC_RESULTS['interrupted']}",
        "result b: 2",
    ]


@every_format
def test_a_cut_among_interleaved_calls_leaves_no_orphan(name: str) -> None:
    """langchain#38352; Guarantees 5.1, 5.2: a "safe" place to cut was not safe where results come in another order."""
    assert outline(name, sent(name, INTERLEAVED[6:])) == [
        "And one.",
        "call d",
        "result d: 4",
        "Be brief.",
        "They print.",
        "Thanks.",
    ]


@every_format_in_two
@pytest.mark.parametrize("kind", ["call", "result"])
def test_a_trimmed_request_is_reported_and_fixed(name: str, kind: str) -> None:
    """litellm#10696, langchain#29637; Guarantee 10.6: as another framework's trimming leaves it."""
    history = [cc.user("hi"), cc.assistant("Hm.", tool_calls=[call("a")]), result("a", "found it"), cc.user("and?")]
    broken = without(name, history, kind)
    assert (known(name).ORPHAN if kind == "call" else known(name).UNANSWERED) in codes(name, broken)
    fixed, _ = cc.fix(broken, format=name)
    sound(name, fixed)
    assert ("found it" in str(fixed)) == (kind == "call")


@every_format
def test_the_last_items_of_a_history_hold_no_unmatched_result(name: str) -> None:
    """openai-agents-python#4322; Guarantee 5.3: a limit of items passed a `function_call_output` on alone."""
    history = [
        cc.user("hi"),
        cc.assistant(tool_calls=[call("a")]),
        result("a"),
        cc.assistant("It prints."),
        cc.user("?"),
    ]
    assert [outline(name, sent(name, history[-limit:])) for limit in range(1, 6)] == [
        ["?"],
        ["It prints.", "?"],
        ["It prints.", "?"],
        ["call a", "result a: print(1)", "It prints.", "?"],
        ["hi", "call a", "result a: print(1)", "It prints.", "?"],
    ]


def test_a_limit_of_items_is_reported_and_fixed() -> None:
    """openai-agents-python#4322; Guarantee 10.6: the items as that session keeps them, the last two."""
    items: list[JSONObject] = [
        {"type": "function_call_output", "call_id": "a", "output": "print(1)"},
        {"role": "user", "content": "and?"},
    ]
    assert codes("openai_responses", items) == ["OAR005"]
    fixed, _ = cc.fix(items, format="openai_responses")
    sound("openai_responses", fixed)
    assert outline("openai_responses", fixed) == [
        "[a result of unknown, whose call is not here:]",
        "print(1)",
        "and?",
    ]


@every_format
def test_what_goes_to_be_counted_is_as_sound_as_what_goes_to_be_answered(name: str) -> None:
    """inspect_ai#3108; Guarantee 5.1: messages, system prompt and tools, and none of the settings of an answer."""
    form = formatter(name)
    for begin in range(len(INTERLEAVED)):
        messages = tuple(INTERLEAVED[begin:])
        body = form.encode_request(Request(messages=messages, system=cc.system("Be good."), tools=(LOOK,)))
        assert cc.lint(body, format=name) == []
        head = 1 if form.system_among_messages else 0
        assert body[form.messages_key][head:] == form.format(messages)
        assert not {"max_tokens", "max_output_tokens", "max_completion_tokens"} & body.keys()


@every_format_in_two
def test_a_token_count_request_is_fixed_without_unsupported_settings(name: str) -> None:
    """inspect_ai#3108; Guarantee 10.6."""
    key = formatter(name).messages_key
    broken: JSONObject = {key: without(name, [cc.user("hi"), cc.assistant(tool_calls=[call("a")])], "result")}
    assert known(name).UNANSWERED in codes(name, broken)
    fixed, _ = cc.fix(broken, format=name)
    assert cc.lint(fixed, format=name) == []
    assert fixed.keys() == {key, *known(name).ADDS}


@every_format
def test_a_history_of_tools_only_can_be_cut_at_every_step(name: str) -> None:
    """strands harness-sdk#2173; Guarantees 5.4, 10.4: it has no plain user turn, and must not grow forever."""
    steps = [message for id in "abc" for message in (cc.assistant(tool_calls=[call(id)]), result(id))]
    for step, id in enumerate("abc"):
        wire = sent(name, steps[2 * step :])
        assert outline(name, wire)[:2] == [f"call {id}", f"result {id}: print(1)"]


@pytest.mark.parametrize("name", having("OPENED"))
def test_a_window_that_starts_with_the_assistant_is_sound(name: str) -> None:
    """strands harness-sdk#2087; Guarantee 10.4: where the provider wants the user first, a line is put before it."""
    wire = sent(name, [cc.assistant("Hello!"), cc.user("hi")])
    assert wire[0] == known(name).OPENED
    assert outline(name, wire) == ["Hello!", "hi"]


@pytest.mark.parametrize("name", having("USER_FIRST"))
def test_a_window_that_starts_with_a_call_is_reported_and_fixed(name: str) -> None:
    """strands harness-sdk#2087; Guarantee 10.6: as it is cut by others."""
    window = formatter(name).format([cc.assistant(tool_calls=[call("a")]), result("a")])
    assert codes(name, window[1:]) == [known(name).USER_FIRST]
    assert cc.fix(window[1:], format=name)[0] == window


@every_format
def test_a_dead_call_and_a_late_result_hinder_nothing(name: str) -> None:
    """adk-python#7236, #5602; Guarantees 5.2, 5.3: the dead call is closed, and the late result is brought to its
    call.
    """
    history = [
        cc.user("hi"),
        cc.assistant(tool_calls=[call("dead")]),
        cc.user("go on"),
        cc.assistant(tool_calls=[call("late")]),
        cc.user("meanwhile"),
        cc.assistant("I wait."),
        result("late"),
    ]
    assert outline(name, sent(name, history)) == [
        "hi",
        "call dead",
        f"result dead: {SYNTHETIC_RESULTS['interrupted']}",
        "go on",
        "call late",
        "result late: print(1)",
        "meanwhile",
        "I wait.",
    ]
