"""Tool calls and results: whatever the order in the log, each call is directly followed by its result."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import contextc as cc
from contextc.messages import SYNTHETIC_RESULTS, PairingRepair, find_open_calls, pair_tool_calls
from tests.stress.format_growth import lines


def asks(*ids: str, text: str = "") -> cc.Message:
    return cc.assistant(text, tool_calls=[cc.ToolCall(id=each, name=f"tool_{each}", arguments={}) for each in ids])


def answers(call_id: str, content: str = "ok") -> cc.Message:
    return cc.tool_result(call_id, f"tool_{call_id}", content)


def shape(messages: list[cc.Message]) -> list[str]:
    """A history in short: `a?` asks for a, `a=ok` answers it, anything else is what was said."""
    return [
        " ".join(
            [
                *([message.text] if message.text else []),
                *[f"{call.id}?" for call in message.tool_calls],
                *[f"{result.call_id}={result.text}" for result in message.tool_results],
            ]
        )
        for message in messages
    ]


def test_a_history_in_order_stays_as_it_is() -> None:
    history = [cc.user("hi"), asks("a", "b"), answers("a"), answers("b"), cc.assistant("done")]
    paired = pair_tool_calls(history)
    assert shape(paired.messages) == ["hi", "a? b?", "a=ok b=ok", "done"]
    assert paired.repairs == []


def test_a_result_anywhere_later_is_brought_to_its_call() -> None:
    """Guarantee 5.2: texts between keep their order, after the group."""
    history = [asks("a", "b"), cc.user("and hurry"), answers("b"), cc.system("low memory"), answers("a"), cc.user("!")]
    paired = pair_tool_calls(history)
    assert shape(paired.messages) == ["a? b?", "a=ok b=ok", "and hurry", "low memory", "!"]
    assert paired.repairs == [PairingRepair("moved", "b", 2), PairingRepair("moved", "a", 4)]


def test_a_call_without_a_result_gets_one_that_is_reported() -> None:
    """Guarantee 5.3, pydantic-ai#4728: a dangling call must not make every later request fail."""
    history = [asks("a", "b"), answers("b"), cc.user("next"), asks("c")]
    paired = pair_tool_calls(history, unanswered="still running")
    assert shape(paired.messages) == [
        "a? b?",
        f"a={SYNTHETIC_RESULTS['interrupted']} b=ok",
        "next",
        "c?",
        f"c={SYNTHETIC_RESULTS['still running']}",
    ]
    assert [repair.kind for repair in paired.repairs] == ["synthetic", "synthetic"]
    assert all(result.is_error for result in paired.messages[-1].tool_results)


def test_a_cancelled_call_reports_that_it_was_cancelled() -> None:
    """Guarantees 5.3, 11.10."""
    history = [cc.assistant(tool_calls=[cc.ToolCall(id="a", name="f", arguments={})], status="cancelled")]
    assert shape(pair_tool_calls(history).messages)[1] == f"a={SYNTHETIC_RESULTS['cancelled']}"


def test_a_result_without_a_call_is_left_out_that_part_alone() -> None:
    """Guarantee 5.3, openai-agents-python#4322, #4827: also one that came before its call."""
    both = cc.Message(
        role="tool", parts=(*answers("ghost").parts, *answers("a").parts, cc.messages.UserNotice("for people"))
    )
    paired = pair_tool_calls([answers("a", "too early"), asks("a"), both, cc.user("hi")])
    assert shape(paired.messages) == ["a?", "a=ok", "", "hi"]
    assert paired.repairs == [PairingRepair("orphan", "a", 0), PairingRepair("orphan", "ghost", 2)]


def test_of_two_results_for_one_call_the_first_wins() -> None:
    """Guarantee 5.3."""
    paired = pair_tool_calls([asks("a"), answers("a", "first"), answers("a", "second")])
    assert shape(paired.messages) == ["a?", "a=first"]
    assert paired.repairs == [PairingRepair("duplicate", "a", 2)]


def test_an_empty_result_is_a_result() -> None:
    """Guarantee 5.3."""
    assert pair_tool_calls([asks("a"), cc.tool_result("a", "f", None)]).repairs == []


def test_an_id_that_is_used_again_is_another_call() -> None:
    """Some providers number their calls again in every reply."""
    history = [asks("0"), answers("0", "one"), asks("0"), answers("0", "two")]
    assert shape(pair_tool_calls(history).messages) == ["0?", "0=one", "0?", "0=two"]


def test_names_and_positions_do_not_count() -> None:
    """Guarantee 5.1."""
    history = [asks("a", "b"), cc.tool_result("b", "tool_a", "for b"), cc.tool_result("a", "tool_b", "for a")]
    assert shape(pair_tool_calls(history).messages) == ["a? b?", "a=for a b=for b"]


def test_results_without_a_call_may_become_text_in_their_place() -> None:
    """Guarantee 5.3 leaves them out; a repair of a request must not lose their content."""
    history = [
        cc.user("hi"),
        answers("ghost", "boo"),
        asks("a"),
        answers("a", "one"),
        answers("a", "two"),
        answers("a", "one"),
    ]
    paired = pair_tool_calls(history, orphans_as_text=True)
    lead = "[a result of tool_{}, whose call is not here:]"
    assert shape(paired.messages) == [
        "hi",
        lead.format("ghost") + "boo",
        "a?",
        "a=one",
        "[another result of tool_a:]two",
    ]
    assert [repair.kind for repair in paired.repairs] == ["orphan", "duplicate", "duplicate"]


def test_an_id_used_again_may_get_another() -> None:
    """Guarantee 10.4: some providers take an id once in a conversation; its result goes with it."""
    history = [asks("0"), answers("0", "one"), asks("0", "1"), answers("1", "three"), answers("0", "two")]
    paired = pair_tool_calls(history, unique_ids=True)
    assert shape(paired.messages) == ["0?", "0=one", "0_2? 1?", "0_2=two 1=three"]
    assert paired.repairs == [PairingRepair("renamed", "0", 2)]


def test_an_id_twice_in_one_message_is_two_calls_everywhere() -> None:
    """Guarantee 5.1: no provider could distinguish them."""
    history = [asks("a", "a"), answers("a", "one"), answers("a", "two")]
    assert shape(pair_tool_calls(history).messages) == ["a? a_2?", "a=one a_2=two"]


def test_ids_are_new_as_they_will_be_written() -> None:
    """Two ids that a provider's letters make one are still two calls."""
    history = [asks("a.b"), answers("a.b"), asks("a-b"), answers("a-b")]
    paired = pair_tool_calls(history, unique_ids=True, encode_id=lambda id: id.replace(".", "-"))
    assert shape(paired.messages) == ["a.b?", "a.b=ok", "a-b_2?", "a-b_2=ok"]


def test_a_result_is_reported_under_the_name_of_its_call() -> None:
    """Guarantee 5.1: matching is by id; some providers compare the names too."""
    (_, answered) = pair_tool_calls([asks("a"), cc.tool_result("a", "another", "ok")]).messages
    assert answered.tool_results[0].name == "tool_a"


IDS = st.sampled_from("abc")
ANYTHING = st.lists(
    st.one_of(
        st.lists(IDS, min_size=1, max_size=3).map(lambda ids: asks(*ids)),
        IDS.map(answers),
        st.sampled_from(["u1", "u2"]).map(cc.user),
        st.just(cc.system("s")),
        st.just(cc.assistant("t")),
    ),
    max_size=12,
)


@given(ANYTHING)
def test_calls_and_results_of_any_log_are_paired(history: list[cc.Message]) -> None:
    """Guarantee 5.1: every call is answered once, right behind it; nothing else moves, is lost or doubled."""
    paired = pair_tool_calls(history)
    waiting: list[str] = []
    for message in paired.messages:
        assert [result.call_id for result in message.tool_results] == waiting
        waiting = [call.id for call in message.tool_calls]
    assert waiting == []
    texts = [message for message in paired.messages if message.role != "tool"]
    assert [(message.role, message.text, len(message.tool_calls)) for message in texts] == [
        (message.role, message.text, len(message.tool_calls)) for message in history if message.role != "tool"
    ]
    again = pair_tool_calls(paired.messages)
    assert [message.parts for message in again.messages] == [message.parts for message in paired.messages]
    assert again.repairs == []


def test_a_call_waits_also_where_its_id_was_answered_before() -> None:
    """Guarantee 5.3; Gemini's older models give calls no ids, so that the same call made twice has one name."""
    history = [asks("a", "b"), answers("a"), cc.user("Go on."), answers("b"), asks("a"), asks("c")]
    assert [(message is history[4], call.id) for message, call in find_open_calls(history)] == [
        (True, "a"),
        (False, "c"),
    ]
    assert find_open_calls([*history, answers("c"), answers("a")]) == []


def test_open_calls_are_found_with_work_in_proportion() -> None:
    """A turn asks for the open calls again and again. Two agents or runs may use the same ids: each answers its own."""
    ids = [f"c{number}" for number in range(400)]

    def history(count: int) -> list[cc.Message]:
        asked = cc.assistant(tool_calls=[cc.tool_call(each, "look", "{}") for each in ids[:count]])
        return [asked, *[cc.tool_result(each, "look", "seen") for each in reversed(ids[1:count])]]

    assert [call.id for _, call in find_open_calls(history(50))] == ["c0"]
    small, large = (lines(lambda count=count: find_open_calls(history(count))) for count in (100, 400))
    assert large < 5 * small
    calls = [cc.tool_call("a", "look", "{}")]
    for own, other in (({"author": "first"}, {"author": "second"}), ({"run": "first"}, {"run": "second"})):
        asked = [replace(cc.assistant(tool_calls=calls), **each) for each in (own, other)]
        answer = replace(cc.tool_result("a", "look", "seen"), **other)
        assert [message for message, _ in find_open_calls([*asked, answer])] == asked[:1]
