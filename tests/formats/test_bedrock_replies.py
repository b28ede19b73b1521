"""Replies of Bedrock's Converse, whole and streamed."""

import pytest

from contextc._json import JSONObject
from contextc.formats.bedrock import BedrockFormatter
from contextc.linting import lint
from contextc.messages import (
    Media,
    Reasoning,
    Text,
    ToolCall,
    user,
)
from tests.formats.bedrock_samples import EVENTS, REPLY

BEDROCK = BedrockFormatter()


def test_a_stream_is_the_same_reply() -> None:
    """Guarantee 10.1: whole, and as it comes."""
    assert BEDROCK.decode_stream(EVENTS) == BEDROCK.decode_reply(REPLY)
    reader = BEDROCK.create_reader()
    deltas = [delta for event in EVENTS for delta in reader.read(event)]
    assert [delta.text for delta in deltas if isinstance(delta, Text)] == ["Let me ", "look."]
    assert [delta.raw for delta in deltas if isinstance(delta, ToolCall)] == ["", '{"b"', ": 1}"]
    assert (reader.finished, reader.message()) == (True, BEDROCK.decode_reply(REPLY))


def test_what_boto3_gives_as_bytes_is_read_as_it_is_on_the_wire() -> None:
    """Its events and replies hold bytes; ours hold what JSON can."""
    hidden: JSONObject = {"reasoningContent": {"redactedContent": b"hidden"}}
    expected = Reasoning(data="aGlkZGVu", provider="bedrock")
    reply = {"output": {"message": {"role": "assistant", "content": [hidden]}}, "stopReason": "end_turn"}
    assert BEDROCK.decode_reply(reply).parts == (expected,)
    events: list[JSONObject] = [{"contentBlockDelta": {"contentBlockIndex": 0, "delta": hidden}}, EVENTS[-2]]
    assert BEDROCK.decode_stream(events).parts == (expected,)
    assert BEDROCK.create_reader().read(events[0]) == [expected]


def started(index: int, **start: JSONObject) -> JSONObject:
    return {"contentBlockStart": {"contentBlockIndex": index, "start": start}}


def grown(index: int, **delta: object) -> JSONObject:
    return {"contentBlockDelta": {"contentBlockIndex": index, "delta": delta}}


NOTHING: JSONObject = {}


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([started(0, toolUse={"name": "look"})], ("call_0", "look", NOTHING)),
        ([started(0, toolUse={"toolUseId": "a"})], ("a", "unknown", NOTHING)),
        ([started(0, toolUse={"toolUseId": None, "name": ""})], ("call_0", "unknown", NOTHING)),
        ([grown(0, toolUse={"input": '{"b"'}), grown(0, toolUse={"input": ": 1}"})], ("call_0", "unknown", {"b": 1})),
    ],
    ids=["no id", "no name", "neither", "no start"],
)
def test_a_call_without_an_id_or_a_beginning_is_kept(
    events: list[JSONObject], expected: tuple[str, str, JSONObject]
) -> None:
    """Guarantee 10.1: a reply is as odd as it comes, and nothing of it is lost."""
    message = BEDROCK.decode_stream([*events, EVENTS[-2]])
    (call,) = message.tool_calls
    assert (call.id, call.name, call.arguments) == expected
    reader = BEDROCK.create_reader()
    deltas = [delta for event in events for delta in reader.read(event)]
    assert {(delta.id, delta.name) for delta in deltas if isinstance(delta, ToolCall)} == {expected[:2]}
    assert reader.message() == BEDROCK.decode_stream(events)


@pytest.mark.parametrize("odd", [None, 3, "x", [], {}, {"delta": 3}, {"delta": {"text": None, "toolUse": 3}}])
@pytest.mark.parametrize("name", ["contentBlockStart", "contentBlockDelta", "messageStop", "metadata", "odd"])
def test_odd_events_break_nothing(name: str, odd: object) -> None:
    """Guarantee 10.1."""
    events: list[JSONObject] = [*EVENTS[:7], {name: odd}, *EVENTS[7:]]
    reader = BEDROCK.create_reader()
    for event in events:
        reader.read(event)
    message = reader.message()
    assert message is not None
    assert message.text.startswith("Let me look.")
    assert message == BEDROCK.decode_stream(events)


def test_a_picture_of_a_stream_keeps_its_bytes() -> None:
    """They come in pieces; back it goes as a line, since only a user shows pictures."""
    pieces = [grown(0, image={"source": {"bytes": each}}) for each in (b"\x89P", "Tkc=")]
    message = BEDROCK.decode_stream([started(0, image={"format": "png"}), *pieces, EVENTS[-2]])
    assert message.parts == (Media(mime_type="image/png", data=b"\x89PNG"),)
    bare = BEDROCK.decode_stream([started(0, image={"format": "png"}), EVENTS[-2]])
    for said in (message, bare):
        wire = BEDROCK.format([user("hi"), said, user("And?")])
        assert wire[1]["content"][0]["text"].startswith("[image: ")
        assert lint(wire, format="bedrock") == []
