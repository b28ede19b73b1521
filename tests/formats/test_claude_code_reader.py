"""Streamed replies of Claude Code: the part of each line, and the final messages."""

from collections.abc import Iterable

import pytest

import contextc as cc
from contextc._json import JSON, JSONObject
from contextc.formats.claude_code.codec import TOOL_PREFIX
from contextc.formats.streams import Delta, StreamReader, make_note_event
from contextc.messages import AnyPart
from contextc.store.turn_records import drop_incomplete_call, join_deltas, may_have_run
from tests.formats.claude_code_samples import FORM, STREAMS, assistant, outline, result, sample, text, use, user

Substance = tuple[str, str, list[tuple[str, str, JSONObject]], list[tuple[str, str, str, bool]]]
ANSWER = [
    "assistant thinks: A file.",
    "assistant: I will look.",
    "assistant calls Read as toolu_01",
    "tool answers Read as toolu_01: 1\thello\n2\t",
    "assistant: It says hello.",
]


def read(events: Iterable[JSONObject]) -> tuple[StreamReader, list[Delta]]:
    reader = FORM.create_reader()
    return reader, [delta for event in events for delta in reader.read(event)]


def substance(parts: Iterable[AnyPart]) -> Substance:
    """Text, reasoning, calls and results, in whatever parts they come."""
    given = list(parts)
    return (
        "".join(part.text for part in given if isinstance(part, cc.Text)),
        "".join(part.text for part in given if isinstance(part, cc.Reasoning)),
        [(part.id, part.name, part.arguments) for part in given if isinstance(part, cc.ToolCall)],
        [(part.call_id, part.name, part.text, part.is_error) for part in given if isinstance(part, cc.ToolResult)],
    )


def stored(reader: StreamReader) -> Substance:
    return substance(part for message in reader.messages() for part in message.parts)


def event(given: JSONObject, **more: JSON) -> JSONObject:
    return {"type": "stream_event", "event": given, "session_id": "s", **more}


@pytest.mark.parametrize("name", STREAMS)
def test_streamed_parts_equal_the_stored_message(name: str) -> None:
    """Guarantee 12.1: calls, results and text, once each, streamed or not."""
    reader, deltas = read(sample(name))
    assert substance(join_deltas(deltas)) == stored(reader)
    assert FORM.decode_stream(sample(name)) == reader.message() == reader.messages()[-1]


@pytest.mark.parametrize("name", STREAMS)
def test_the_same_is_true_wherever_it_breaks_off(name: str) -> None:
    """Guarantee 11.10: after every line."""
    lines = sample(name)
    for number in range(len(lines)):
        reader, deltas = read(lines[:number])
        assert substance(join_deltas(deltas)) == stored(reader)
        assert not reader.finished


def test_whole_lines_are_the_answer_where_no_partial_ones_came() -> None:
    """Guarantee 9.7: messages in order, with the session and its cursor."""
    reader, _ = read(sample("stdout-tool"))
    assert outline(reader.messages()) == ANSWER
    assert (reader.finished, reader.error, reader.compacted) == (True, None, False)
    assert reader.session == "11111111-1111-4111-8111-111111111111"
    assert reader.cursor == "21bdd9fd-b0a1-44a6-884b-8dcce8ba4e23"  # of the last reply


def test_a_partial_message_and_its_lines_are_shown_once() -> None:
    """Guarantee 12.1: and tools that ran at once answer as they end."""
    reader, deltas = read(sample("stdout-partial"))
    assert [delta.text for delta in deltas if isinstance(delta, cc.Text)] == ["I will", " look.", "It says", " hello."]
    results = [delta.call_id for delta in deltas if isinstance(delta, cc.ToolResult)]
    assert results == ["toolu_02", "toolu_01"]
    assert outline(reader.messages())[:4] == [*ANSWER[:3], "assistant calls Read as toolu_02"]
    assert reader.messages()[0].parts[0] == cc.Reasoning(
        text="A file.", signature="c2lnbmVkIGJ5IG5vYm9keQ==", provider="claude-code", model="claude-opus-5-5"
    )


def test_every_reply_has_the_usage_of_its_own_call() -> None:
    """Guarantee 3.3: the figures of a session are cumulative, and lines are written before a reply is over."""
    partial, _ = read(sample("stdout-partial"))
    assert [message.usage for message in partial.messages() if message.role == "assistant"] == [
        cc.Usage(input=110, output=21, cache_read=7, cache_write=3),
        cc.Usage(input=210, output=22, cache_read=7, cache_write=3),
    ]
    whole, _ = read(sample("stdout-tool"))
    counted = [message.usage for message in whole.messages() if message.usage is not None]
    assert [(usage.input, usage.output) for usage in counted] == [(110, 1), (210, 42)]  # 43 in all, as it said
    resumed, _ = read(sample("stdout-resumed"))
    assert resumed.message().usage == cc.Usage(input=110, output=21, cache_read=7, cache_write=3)


def test_the_finish_reason_of_a_reply_is_reported() -> None:
    for name in ("stdout-tool", "stdout-partial"):
        ends = [message.finish for message in read(sample(name))[0].messages() if message.role == "assistant"]
        assert ends == ["tool_calls", "stop"]


@pytest.mark.parametrize(
    ("name", "status", "said"),
    [("stdout-overloaded", 529, "API Error: 529 Overloaded."), ("stdout-unauthorized", 401, "Invalid API key")],
)
def test_a_failed_answer_with_status_success_is_an_error(name: str, status: int, said: str) -> None:
    """Guarantee 11.11: and the program's own text is not the model's."""
    reader, deltas = read(sample(name))
    assert (deltas, reader.finished, reader.cursor) == ([], False, "")
    assert reader.error is not None
    assert (reader.error["subtype"], reader.error["api_error_status"]) == ("success", status)
    (message,) = reader.messages()
    assert (message.status, message.parts) == ("error", ())
    assert (message.error or "").startswith(said)


def test_an_answer_that_took_too_many_turns_keeps_what_it_did() -> None:
    """Guarantee 11.10: the result is the last thing that the session holds."""
    reader, _ = read(sample("stdout-too-many-turns"))
    assert [(message.role, message.status) for message in reader.messages()] == [
        ("assistant", "sent"),
        ("tool", "sent"),
        ("assistant", "error"),
    ]
    assert reader.message().error == "Reached maximum number of turns (1)"
    assert reader.cursor == "4f997de4-1bf4-4f1e-a9d4-ba6a894608ed"


def test_a_compaction_is_reported() -> None:
    """Guarantee 9.3: what the session holds is no longer what it was given."""
    reader, _ = read(sample("stdout-compacted"))
    assert (reader.compacted, reader.notes) == (True, [])
    assert outline(reader.messages()) == ["assistant: Two."]


def test_a_recovered_error_is_not_an_error() -> None:
    """Guarantee 11.11: what counts is how it ended."""
    failed = assistant(text("API Error: …"), error="server_error", is_api_error_message=True)
    ended: JSONObject = {"type": "result", "subtype": "success", "is_error": False, "session_id": "s"}
    reader, _ = read([failed, assistant(text("Hello."), uuid="u"), ended])
    assert (reader.error, reader.finished, reader.message().text) == (None, True, "Hello.")


def test_what_was_streamed_of_an_attempt_given_up_is_not_the_answer() -> None:
    """Guarantee 9.7: the session does not hold it."""
    begun: JSONObject = {"type": "message_start", "message": {"id": "msg_1", "role": "assistant"}}
    piece: JSONObject = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hel"}}
    ended: JSONObject = {"type": "result", "subtype": "success", "is_error": False}
    given_up = [event(begun), event(piece)]
    assert outline(read(given_up)[0].messages()) == ["assistant: Hel"]
    assert outline(read([*given_up, assistant(text("Hello.")), ended])[0].messages()) == ["assistant: Hello."]


def test_of_a_reply_that_was_cut_the_lines_count_where_claude_code_went_on() -> None:
    """Guarantee 9.7: the session holds the text that had ended, and not the incomplete call."""
    begun: JSONObject = {"type": "message_start", "message": {"id": "msg_1", "role": "assistant"}}
    words: JSONObject = {"type": "content_block_start", "index": 0, "content_block": text("Let me see.")}
    half: JSONObject = {"type": "content_block_start", "index": 1, "content_block": use("a")}
    said = {"role": "assistant", "id": "msg_1", "content": [text("Let me see.")]}
    cut = [event(begun), event(words), {"type": "assistant", "message": said}, event(half)]
    assert outline(read(cut)[0].messages()) == ["assistant: Let me see.", "assistant calls look as a"]
    given_up = event({"type": "message_stop"}, abandoned_blocks={"from_block_index": 1})
    assert outline(read([*cut, given_up])[0].messages()) == ["assistant: Let me see."]
    again: JSONObject = {"type": "message_start", "message": {"id": "msg_2", "role": "assistant"}}
    ended: JSONObject = {"type": "result", "subtype": "success", "is_error": False}
    for before in (cut, [*cut, given_up]):
        reader, _ = read([*before, event(again), assistant(text("Here it is.")), ended])
        assert outline(reader.messages()) == ["assistant: Let me see.", "assistant: Here it is."]


def test_output_of_subagents_is_not_the_answer() -> None:
    piece: JSONObject = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hel"}}
    aside = [
        event(piece, parent_tool_use_id="toolu_1"),
        assistant(text("Aside."), parent_tool_use_id="toolu_1"),
        user([result("a")], parent_tool_use_id="toolu_1"),
    ]
    reader, deltas = read(aside)
    assert (deltas, reader.message().parts, reader.cursor) == ([], (), "")


def test_our_tools_are_shown_by_their_own_names() -> None:
    """Guarantee 10.4: live and stored, in calls and in results; a name is read back once."""
    name = TOOL_PREFIX + "_x5F_x2E_"
    reader, deltas = read([assistant(use("a", name)), user([result("a")])])
    assert substance(deltas)[2:] == stored(reader)[2:] == ([("a", "_x2E_", {})], [("a", "_x2E_", "1", False)])


def test_a_result_may_come_before_its_reply_is_over() -> None:
    """Guarantee 5.1: it stays one reply."""
    first = {"role": "assistant", "id": "msg_1", "content": [use("a")]}
    second = {"role": "assistant", "id": "msg_1", "content": [use("b")]}
    reader, _ = read(
        [
            {"type": "assistant", "message": first},
            user([result("a")]),
            {"type": "assistant", "message": second},
            user([result("b")]),
        ]
    )
    assert [message.role for message in reader.messages()] == ["assistant", "tool", "tool"]
    assert [call.id for call in reader.messages()[0].tool_calls] == ["a", "b"]


def test_notes_of_ours_are_taken_along() -> None:
    reader, deltas = read([make_note_event("went back"), assistant(text("Hello."))])
    assert reader.notes == ["went back"]
    assert len(deltas) == 1


def test_an_incomplete_call_cannot_have_run() -> None:
    """Guarantees 9.7, 11.10: beside one that was written to its end it is left out; alone it ends with its reply."""
    begun: JSONObject = {"type": "message_start", "message": {"id": "msg_1", "role": "assistant"}}
    first: JSONObject = {"type": "content_block_start", "index": 0, "content_block": use("a")}
    second: JSONObject = {"type": "content_block_start", "index": 1, "content_block": use("b")}
    events = [event(begun), event(first), event({"type": "content_block_stop", "index": 0}), event(second)]
    (message,) = read(events)[0].messages()
    assert [call.raw for call in message.tool_calls] == [None, ""]
    assert [call.id for call in drop_incomplete_call(message.parts) if isinstance(call, cc.ToolCall)] == ["a"]
    assert may_have_run("tool_calls", drop_incomplete_call(message.parts))
    (alone,) = read(events[:2])[0].messages()
    assert drop_incomplete_call(alone.parts) == alone.parts
    assert not may_have_run("tool_calls", alone.parts)


def test_a_complete_call_without_arguments_has_an_arguments_piece() -> None:
    """Guarantee 11.10: its journal distinguishes it from one whose arguments had not arrived."""
    first: JSONObject = {"type": "content_block_start", "index": 0, "content_block": use("a")}
    ended: JSONObject = {"type": "content_block_stop", "index": 0}
    assert not may_have_run("tool_calls", join_deltas(read([event(first)])[1]))
    assert may_have_run("tool_calls", join_deltas(read([event(first), event(ended)])[1]))
