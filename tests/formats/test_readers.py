"""Streamed replies: the part of each event, and the final message."""

from collections.abc import Iterable

import pytest

import contextc as cc
from contextc._json import JSONObject
from contextc.formats import formatter as named
from contextc.formats.base import Formatter
from contextc.formats.streams import Delta, StreamReader
from contextc.messages import AnyPart
from contextc.store.turn_records import join_deltas
from tests.formats import traffic
from tests.formats.known import having, known
from tests.formats.test_streams import END, chunk, piece

FORMATS = having("VENDOR")
CHAT, ANTHROPIC, RESPONSES = map(named, ("openai_chat", "anthropic", "openai_responses"))
EXCHANGES = [(api, exchange) for api in FORMATS for exchange in traffic.accepted(api)]
STREAMS = [(named(api), known(api).events(given.reply)) for api, given in EXCHANGES if isinstance(given.reply, str)]
REPLIES = [(named(api), given.reply) for api, given in EXCHANGES if not isinstance(given.reply, str)]


def read(formatter: Formatter, events: Iterable[JSONObject]) -> tuple[StreamReader, list[Delta]]:
    reader = formatter.create_reader()
    return reader, [delta for event in events for delta in reader.read(event)]


def substance(parts: Iterable[AnyPart]) -> tuple[str, str, list[tuple[str, str, JSONObject, bool]]]:
    """Text, reasoning, and calls, in whatever parts they come."""
    given = list(parts)
    return (
        "".join(part.text for part in given if isinstance(part, cc.Text)),
        "".join(part.text for part in given if isinstance(part, cc.Reasoning)),
        [(part.id, part.name, part.arguments, part.malformed) for part in given if isinstance(part, cc.ToolCall)],
    )


def test_there_are_recorded_streams_of_every_format() -> None:
    """So that what follows is about something."""
    assert {formatter.name for formatter, _ in STREAMS} == {formatter.name for formatter, _ in REPLIES} == set(FORMATS)


@pytest.mark.parametrize(("formatter", "events"), STREAMS)
def test_streamed_parts_equal_the_stored_message(formatter: Formatter, events: list[JSONObject]) -> None:
    """Guarantee 12.1: a page that followed the deltas and one that loads the message show the same."""
    reader, deltas = read(formatter, events)
    assert substance(join_deltas(deltas)) == substance(reader.message().parts)
    assert reader.message() == formatter.decode_stream(events)
    assert reader.finished
    assert reader.error is None


@pytest.mark.parametrize(("formatter", "events"), STREAMS)
def test_the_same_is_true_wherever_it_breaks_off(formatter: Formatter, events: list[JSONObject]) -> None:
    """Guarantee 11.10: partial text is kept, and it is what was seen."""
    for number in range(0, len(events), max(1, len(events) // 12)):
        reader, deltas = read(formatter, events[:number])
        assert substance(join_deltas(deltas)) == substance(reader.message().parts)


@pytest.mark.parametrize("api", FORMATS)
def test_a_whole_reply_is_read_like_a_stream_of_one(api: str) -> None:
    """Some servers do not stream, though they were asked to."""
    for formatter, reply in REPLIES:
        if formatter.name == api:
            reader, deltas = read(formatter, [reply])
            assert substance(join_deltas(deltas)) == substance(reader.message().parts), reply
            assert substance(reader.message().parts) == substance(formatter.decode_reply(reply).parts), reply
            assert reader.finished, reply


@pytest.mark.parametrize(
    "pieces",
    [
        [piece('{"x":', id="a", index=0, name="f"), piece("{}", id="b", index=1, name="g"), piece("1}", index=0)],
        [piece('{"x":', id="a", name="f"), piece("1}"), piece("{}", id="b", name="g")],
        [piece('{"x":', id="a", index=0, name="f"), piece("1}", index=0), piece("{}", id="b", index=0, name="g")],
        [piece('{"x":', index=0, name="f"), piece("1}", id="a", index=0), piece("{}", id="b", index=1, name="g")],
        [piece("", id="a", index=0, name="f"), piece('{"x":1}', index=0), piece("{}", id="b", index=1, name="g")],
    ],
    ids=["taking turns", "without index", "one index for all", "an id that comes late", "named first"],
)
def test_calls_are_shown_live_however_they_were_cut(pieces: list[JSONObject]) -> None:
    """Guarantee 12.1: a piece belongs to the call it belongs to in the message."""
    reader, deltas = read(CHAT, [*(chunk(tool_calls=[each]) for each in pieces), END])
    expected: list[tuple[str, str, JSONObject, bool]] = [("a", "f", {"x": 1}, False), ("b", "g", {}, False)]
    assert substance(join_deltas(deltas))[2] == substance(reader.message().parts)[2] == expected


def test_a_call_is_known_before_its_arguments_come() -> None:
    """A page shows which tool is being called, while its arguments are still being written."""
    start: JSONObject = {
        "type": "content_block_start",
        "index": 1,
        "content_block": {"type": "tool_use", "id": "t", "name": "read_file", "input": {}},
    }
    (first,) = ANTHROPIC.create_reader().read(start)
    assert isinstance(first, cc.ToolCall)
    assert (first.id, first.name, first.arguments) == ("t", "read_file", {})


def test_a_signature_ends_its_thinking() -> None:
    """What is journaled of a crashed turn keeps blocks of signed reasoning apart."""
    events: list[JSONObject] = [
        {"type": "message_start", "message": {"model": "claude-opus-5-5"}},
        *(
            {"type": "content_block_delta", "index": index, "delta": delta}
            for index, text in enumerate(("One", "Two"))
            for delta in (
                {"type": "thinking_delta", "thinking": text},
                {"type": "signature_delta", "signature": f"signed {text}"},
            )
        ),
    ]
    _, deltas = read(ANTHROPIC, events)
    assert join_deltas(deltas) == tuple(
        cc.Reasoning(text=text, signature=f"signed {text}", provider="anthropic", model="claude-opus-5-5")
        for text in ("One", "Two")
    )


def test_items_that_come_whole_are_shown_when_they_come() -> None:
    """Some endpoints of the Responses API send no deltas, or not of everything."""
    call: JSONObject = {"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"x":1}'}
    thought: JSONObject = {"type": "reasoning", "id": "rs", "summary": [{"text": "One"}, {"text": "Two"}]}
    said: JSONObject = {"type": "message", "content": [{"type": "output_text", "text": "Hello"}]}
    events: list[JSONObject] = [
        {"type": "response.output_item.added", "output_index": 0, "item": {"type": "reasoning", "id": "rs"}},
        {"type": "response.reasoning_summary_text.delta", "output_index": 0, "summary_index": 0, "delta": "One"},
        {"type": "response.output_item.done", "output_index": 0, "item": thought},
        {"type": "response.output_item.done", "output_index": 1, "item": call},
        {"type": "response.completed", "response": {"status": "completed", "output": [thought, call, said]}},
    ]
    reader, deltas = read(RESPONSES, events)
    assert substance(join_deltas(deltas)) == ("Hello", "One\n\nTwo", [("c", "f", {"x": 1}, False)])
    assert substance(join_deltas(deltas)) == substance(reader.message().parts)


def test_names_are_shown_as_they_were_before_they_were_spelled() -> None:
    """Guarantee 10.4: what a person sees is the tool's own name."""
    spelled = CHAT.name_codec.names.encode("files.read") if CHAT.name_codec.names else ""
    reader, deltas = read(CHAT, [chunk(tool_calls=[piece('{"a":1}', id="a", index=0, name=spelled)]), END])
    assert spelled != "files.read"
    assert substance(deltas)[2] == substance(reader.message().parts)[2] == [("a", "files.read", {"a": 1}, False)]


@pytest.mark.parametrize(
    ("name", "event"), [(name, event) for name in having("ERRORS") for event in known(name).ERRORS]
)
def test_an_error_event_is_kept_as_it_came(name: str, event: JSONObject) -> None:
    """Guarantee 11.11: the caller decides what it means."""
    reader, deltas = read(named(name), [event])
    assert deltas == []
    assert reader.error is event
    assert reader.message().status == "error"


def test_a_format_without_streaming_raises_an_error() -> None:
    with pytest.raises(cc.errors.InvalidInput, match="no provider streams"):
        cc.formats.VercelFormatter().create_reader()
