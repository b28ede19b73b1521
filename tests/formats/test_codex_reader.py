"""Streamed turns of Codex, recorded from the real program."""

from collections.abc import Iterable
from itertools import pairwise

import pytest

import contextc as cc
from contextc._json import JSONObject
from contextc.formats.codex.codec import CALL_TYPES
from contextc.formats.streams import Delta, StreamReader, make_note_event
from contextc.messages import AnyPart
from contextc.store.turn_records import join_deltas
from tests.formats.codex_samples import FORM, TURNS, answer, called, lines, said

SHOWN_AND_TAKEN_BACK = "retry"
"""Where Codex asked its model again: what was shown of the first answer is in no thread."""


def read(events: Iterable[JSONObject]) -> tuple[StreamReader, list[Delta]]:
    reader = FORM.create_reader()
    return reader, [delta for event in events for delta in reader.read(event)]


def substance(
    parts: Iterable[AnyPart],
) -> tuple[str, str, list[tuple[str, str, JSONObject]], list[tuple[str, str, bool]]]:
    """Text, reasoning, calls and results, in whatever parts they come."""
    given = list(parts)
    return (
        "".join(part.text for part in given if isinstance(part, cc.Text)),
        "".join(part.text for part in given if isinstance(part, cc.Reasoning)),
        [(part.id, part.name, part.arguments) for part in given if isinstance(part, cc.ToolCall)],
        [(part.call_id, part.text, part.is_error) for part in given if isinstance(part, cc.ToolResult)],
    )


def parts_of(reader: StreamReader) -> list[AnyPart]:
    return [part for message in reader.messages() for part in message.parts]


def event(method: str, **params: object) -> JSONObject:
    return {"method": method, "params": {"threadId": "t1", "turnId": "n1", **params}}


def completed(item: JSONObject) -> JSONObject:
    return event("item/completed", item=item)


def ended(status: str = "completed", **turn: object) -> JSONObject:
    return event("turn/completed", turn={"id": "n1", "status": status, "items": [], **turn})


def used(total: int, tokens: int) -> JSONObject:
    last = {"totalTokens": tokens, "inputTokens": tokens, "outputTokens": 1}
    return event("thread/tokenUsage/updated", tokenUsage={"total": {"totalTokens": total}, "last": last})


@pytest.mark.parametrize("name", [name for name in TURNS if name != SHOWN_AND_TAKEN_BACK])
def test_streamed_parts_equal_the_stored_message_at_every_interruption(name: str) -> None:
    """Guarantees 12.1, 11.10: a turn cut anywhere keeps what came, and it is what was seen."""
    events = lines(name)
    for end in range(len(events) + 1):
        reader, deltas = read(events[:end])
        assert substance(join_deltas(deltas)) == substance(parts_of(reader))
        assert reader.message() == FORM.decode_stream(events[:end])
        assert reader.messages()[-1].role in ("assistant", "tool")


@pytest.mark.parametrize("name", TURNS)
def test_a_turn_names_its_thread_and_itself(name: str) -> None:
    """Guarantee 9.1: the session to resume, and its cursor."""
    reader, _ = read(lines(name))
    turn = lines(name)[-1]["params"]
    assert (reader.session, reader.cursor) == (turn["threadId"], turn["turn"]["id"])
    assert reader.finished == (turn["turn"]["status"] == "completed")


def test_a_turn_is_one_message_for_each_answer_of_the_model() -> None:
    """Guarantee 11.3: reasoning, text, a command with its output, and the final text; each with its own tokens."""
    reader, _ = read(lines("turn"))
    asked, answered, final = reader.messages()
    thought, words, call = asked.parts
    assert isinstance(thought, cc.Reasoning)
    assert (thought.text, thought.id, thought.model) == ("**Looking**\n\nI look.\n\nThen I run.", "rs_0001", "gpt-5.4")
    assert (asked.text, words.extra) == (
        "I look first.",
        {"codex": {"item": {"id": "msg_0001", "phase": "commentary"}}},
    )
    assert isinstance(call, cc.ToolCall)
    assert (call.name, call.arguments["command"]) == ("shell", "/bin/bash -lc 'echo hello'")
    assert answered.tool_results[0].text == "hello\n"
    assert final.text == "It says hello."
    assert [message.finish for message in reader.messages()] == ["tool_calls", None, "stop"]


@pytest.mark.parametrize("name", TURNS)
def test_tokens_are_those_of_each_call_and_never_those_of_the_thread(name: str) -> None:
    """Guarantee 11.7: added up they are what the thread has used, but for what is noted."""
    events = lines(name)
    reader, _ = read(events)
    told = [each["params"]["tokenUsage"] for each in events if each["method"] == "thread/tokenUsage/updated"]
    counted = [message.usage for message in reader.messages() if message.usage is not None]
    total = told[-1]["total"]["inputTokens"] if told else 0
    noted = 102 if name == "auto" else 0
    assert sum(usage.input for usage in counted) == total - noted
    assert all(usage.output <= 20 for usage in counted)


def test_tools_of_ours_are_calls_with_results_and_a_failure_is_one() -> None:
    """Guarantees 9.10, 2.3: the model made both calls at once, and Codex reports one after the other."""
    reader, deltas = read(lines("dynamic"))
    results = [delta for delta in deltas if isinstance(delta, cc.ToolResult)]
    assert [(result.name, result.text, result.is_error) for result in results] == [
        ("weather", "rain in Oslo", False),
        ("weather", "rain in Rome", True),
    ]
    roles = [message.role for message in reader.messages()]
    assert roles == ["assistant", "tool", "assistant", "tool", "assistant"]
    assert [message.usage is None for message in reader.messages() if message.role == "assistant"] == [
        True,
        False,
        False,
    ]


def test_calls_that_run_side_by_side_are_one_message() -> None:
    """Guarantee 5.1: results belong to their calls, whenever they come."""
    events = [
        event("item/started", item=called("inProgress", "a")),
        event("item/started", item=called("inProgress", "b")),
        completed(called("completed", "b", "sun")),
        completed(called("completed", "a", "rain")),
        completed(answer("Mixed.")),
        ended(),
    ]
    reader, deltas = read(events)
    asked, answered, final = reader.messages()
    assert [call.id for call in asked.tool_calls] == ["a", "b"]
    assert [result.text for result in answered.tool_results] == ["rain", "sun"]
    assert final.text == "Mixed."
    assert [delta.text for delta in deltas if isinstance(delta, cc.ToolResult)] == ["sun", "rain"]


def test_a_failed_turn_reports_the_reason() -> None:
    """Guarantee 11.10: what went wrong is the event that reported it, and the message that is kept."""
    reader, deltas = read(lines("failed"))
    assert not reader.finished
    assert deltas == []
    assert reader.error is not None
    assert reader.error["params"]["error"]["codexErrorInfo"] == {"httpConnectionFailed": {"httpStatusCode": 529}}
    (message,) = reader.messages()
    assert (message.status, message.finish) == ("error", "error")
    assert message.error is not None
    assert message.error.startswith("unexpected status 529")


def test_what_a_turn_did_before_it_failed_is_whole() -> None:
    """Guarantee 11.10: the tool has run, and the next model has to know."""
    reader, _ = read([completed(called("completed", "a", "sun")), ended("failed", error={"message": "overloaded"})])
    asked, answered, last = reader.messages()
    assert (asked.status, asked.finish) == ("sent", "tool_calls")
    assert [result.text for result in answered.tool_results] == ["sun"]
    assert (last.parts, last.status, last.error) == ((), "error", "overloaded")


def test_an_interrupted_turn_keeps_its_text_and_is_not_finished() -> None:
    """Guarantee 11.10: Codex itself forgets it."""
    reader, _ = read(lines("interrupted"))
    assert (reader.message().text, reader.message().finish) == ("A long answer t", None)
    assert (reader.finished, reader.error) == (False, None)


def test_a_call_that_was_interrupted_has_no_result() -> None:
    """Guarantee 5.3: what pairing makes up for it is not the reader's to say."""
    reader, _ = read([event("item/started", item=called("inProgress")), ended("interrupted")])
    (message,) = reader.messages()
    assert [call.name for call in message.tool_calls] == ["weather"]


def test_a_codex_compaction_is_reported_and_its_tokens_are_not_counted() -> None:
    """Guarantee 9.3: the session no longer holds what the ledger says."""
    reader, _ = read(lines("auto"))
    assert reader.compacted
    assert reader.notes == ["Codex asked its model to shorten the history: 102 tokens in, 20 out"]
    assert [message.usage.input for message in reader.messages() if message.usage is not None] == [101, 50]


def test_an_answer_that_codex_asked_for_again_is_stored_once() -> None:
    """Guarantee 11.11: the half that broke off is in no thread; that it was shown is noted."""
    reader, deltas = read(lines("retry"))
    assert substance(deltas)[0] == "cutWhole."
    assert reader.message().text == "Whole."
    assert reader.notes == ["Codex tried again: Reconnecting... 1/1"]
    assert (reader.finished, reader.error) == (True, None)


def test_usage_that_is_reported_twice_is_counted_once() -> None:
    """Guarantee 11.7: Codex repeats the last figures, on a resumed thread even those of an earlier turn."""
    earlier = {**used(500, 400), "params": {**used(500, 400)["params"], "turnId": "n0"}}
    begun = event("turn/started", turn={"id": "n1"})
    events = [begun, earlier, completed(answer("Hi.")), used(600, 100), used(600, 100), ended()]
    reader, _ = read(events)
    assert reader.message().usage == cc.Usage(input=100, output=1)
    assert reader.notes == []


def test_a_call_of_the_model_that_shows_nothing_is_noted() -> None:
    """Guarantee 11.7: its tokens were paid for."""
    reader, _ = read([event("turn/started", turn={"id": "n1"}), used(108, 108), completed(answer("Planned.")), ended()])
    assert reader.notes == ["Codex asked its model for something that it did not show: 108 tokens in, 1 out"]


def test_output_of_other_threads_and_turns_is_not_part_of_the_reply() -> None:
    """Guarantee 9.1: a sub-agent has a thread of its own, on the same line."""
    other = {"method": "item/completed", "params": {"threadId": "t2", "turnId": "x", "item": answer("Mine.", "z")}}
    late = {"method": "item/completed", "params": {"threadId": "t1", "turnId": "n2", "item": answer("Later.", "y")}}
    asked = {"id": 7, **event("item/tool/call", callId="c1", tool="weather", arguments={})}
    begun = event("turn/started", turn={"id": "n1"})
    reader, _ = read([begun, other, asked, completed(said("hi")), completed(answer("Yours.")), ended(), late])
    assert [message.text for message in reader.messages()] == ["Yours."]
    assert (reader.session, reader.cursor) == ("t1", "n1")


def test_raw_reasoning_is_shown_if_there_is_no_summary() -> None:
    """Guarantee 2.4: open models have none. Where both come, the one that came first is what was shown."""
    both: JSONObject = {"type": "reasoning", "id": "r", "summary": ["Short."], "content": ["Long and", "winding."]}
    pieces = [
        event("item/reasoning/textDelta", itemId="r", contentIndex=0, delta="Long and"),
        event("item/reasoning/summaryTextDelta", itemId="r", summaryIndex=0, delta="Short."),
        event("item/reasoning/textDelta", itemId="r", contentIndex=1, delta="winding."),
        completed(both),
    ]
    for end in range(1, len(pieces) + 1):
        reader, deltas = read(pieces[:end])
        assert substance(deltas) == substance(parts_of(reader))
    assert substance(read(pieces)[1])[1] == "Long and\n\nwinding."
    assert substance(read([completed(both)])[1])[1] == "Short."


def test_our_notes_are_not_codex_events() -> None:
    """An endpoint may say something of its own among them."""
    reader, deltas = read([make_note_event("brought back"), completed(answer("Hi.")), ended()])
    assert (reader.notes, len(deltas), reader.finished) == (["brought back"], 1, True)


def test_the_lines_of_exec_are_read_like_notifications() -> None:
    """Its usage is that of the whole thread, and is not taken."""
    reader, _ = read(lines("exec"))
    asked, answered, final = reader.messages()
    assert (asked.tool_calls[0].name, answered.tool_results[0].is_error, final.text) == (
        "shell",
        True,
        "It says hello.",
    )
    assert (reader.finished, reader.session, final.usage) == (True, lines("exec")[0]["thread_id"], None)
    failed, _ = read(lines("exec_failed"))
    assert (failed.finished, failed.message().status) == (False, "error")
    assert failed.error is not None


def test_every_delta_of_a_call_comes_before_its_result() -> None:
    """Guarantee 12.1: whatever kind of item it was."""
    for name in TURNS:
        _, deltas = read(lines(name))
        seen = [delta for delta in deltas if isinstance(delta, cc.ToolCall | cc.ToolResult)]
        for before, after in pairwise(seen):
            if isinstance(after, cc.ToolResult):
                assert isinstance(before, cc.ToolResult) or before.id == after.call_id
    assert {"webSearch", "imageGeneration", "functionCallOutput"} == {
        name for name, kind in CALL_TYPES.items() if kind.arguments_late
    }
