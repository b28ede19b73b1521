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
    Usage,
    tool_result,
    user,
)
from tests.formats.bedrock_samples import EVENTS, REPLY, REQUEST

BEDROCK = BedrockFormatter()


def test_a_reply_is_read() -> None:
    """Input tokens are those beside the cache; what type a call is of, no request may say."""
    message = BEDROCK.decode_reply(REPLY)
    assert message.usage == Usage(input=155, output=7, cache_read=100, cache_write=50)
    assert (message.text, message.finish) == ("Let me look.", "tool_calls")
    assert message.parts[0] == Reasoning(text="Hm.", signature="c2ln", provider="bedrock")
    assert message.parts[2] == ToolCall(id="tooluse_1", name="look", arguments={"b": 1})


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("guardrail_intervened", "content_filter"),
        ("content_filtered", "content_filter"),
        ("malformed_tool_use", "malformed_tool_use"),
    ],
)
def test_why_a_reply_ended(reason: str, finish: str) -> None:
    assert BEDROCK.decode_reply({**REPLY, "stopReason": reason}).finish == finish


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


def test_a_whole_reply_may_lack_as_much() -> None:
    content: list[JSONObject] = [{"toolUse": {"name": "look", "input": {"b": 1}}}, {"toolUse": {}}]
    calls = BEDROCK.decode_reply({**REPLY, "output": {"message": {"content": content}}}).tool_calls
    assert [(call.id, call.name, call.arguments) for call in calls] == [
        ("call_0", "look", {"b": 1}),
        ("call_1", "unknown", {}),
    ]


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


def test_citations_of_a_stream_stay_with_their_text() -> None:
    delta = [{"text": "It is."}, {"citation": {"title": "Doc 1"}}]
    events: list[JSONObject] = [{"contentBlockDelta": {"contentBlockIndex": 0, "delta": each}} for each in delta]
    message = BEDROCK.decode_stream([*events, {"messageStop": {"stopReason": "end_turn"}}])
    assert message.text == "It is."
    assert BEDROCK.format([user("hi"), message])[1]["content"] == [REQUEST["messages"][1]["content"][1]]


@pytest.mark.parametrize("blank", ["", " ", "\n"])
def test_blank_text_of_a_reply_is_not_sent_back(blank: str) -> None:
    """A model reports it before a call, and every later request would be refused."""
    call: JSONObject = {"toolUse": {"toolUseId": "a", "name": "look", "input": {}}}
    reply: JSONObject = {**REPLY, "output": {"message": {"role": "assistant", "content": [{"text": blank}, call]}}}
    wire = BEDROCK.format([user("hi"), BEDROCK.decode_reply(reply), tool_result("a", "look", "1")])
    assert wire[1]["content"] == [call]
    assert lint(wire, format="bedrock") == []
