"""Server-sent events, split at any place."""

import pytest

from contextc._json import JSONObject, encode
from contextc.providers.http_client import MalformedEvent, SSEParser

EVENTS: list[JSONObject] = [{"n": 1, "text": "Grüße 🙂"}, {"n": 2, "text": "a\nb\u2028c"}, {"n": 3}]


def read(*pieces: bytes) -> list[JSONObject]:
    events = SSEParser()
    return [*(event for piece in pieces for event in events.feed(piece)), *events.end()]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"], ids=["LF", "CRLF", "CR"])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_events_come_out_whole_however_they_were_cut(size: int, end: bytes) -> None:
    lines = [line for event in EVENTS for line in (b"event: x", b": a remark", b"data: " + encode(event), b"")]
    stream = b"".join(line + end for line in lines)
    assert read(*[stream[at : at + size] for at in range(0, len(stream), size)]) == EVENTS


def test_an_event_is_given_as_soon_as_it_is_complete() -> None:
    """Guarantee 12.1: what a person watches must not lag behind by an event."""
    events = SSEParser()
    assert events.feed(b'data: {"n": 1}\n') == []
    assert events.feed(b"\n") == [{"n": 1}]


def test_data_may_take_several_lines_and_need_no_space() -> None:
    assert read(b'data:{"n":\ndata: 1}\n\n') == [{"n": 1}]


def test_the_last_empty_line_may_be_missing() -> None:
    assert read(b'data: {"n": 1}') == [{"n": 1}]
    assert read(b'data: {"n": 1}\n') == [{"n": 1}]


def test_done_is_the_last_text() -> None:
    events = SSEParser()
    assert events.feed(b'data: {"n": 1}\n\ndata: [DONE]\n\n') == [{"n": 1}]
    assert events.done


def test_a_stream_that_was_cut_in_an_event_is_malformed() -> None:
    """Guarantee 11.11: it must not pass for a reply that ended."""
    with pytest.raises(MalformedEvent):
        read(b'data: {"n": 1}\n\ndata: {"n": ')
    with pytest.raises(MalformedEvent):
        read(b"data: [1, 2]\n\n")


def test_half_an_emoji_does_no_harm() -> None:
    """Guarantee 10.3: it is kept, because the other half may come with the next event."""
    wire = b'data: {"text": "\\ud83d"}\n\ndata: {"text": "\\ude00"}\n\n'
    assert read(wire) == [{"text": "\ud83d"}, {"text": "\ude00"}]


def test_an_error_that_only_its_name_reports_is_an_error() -> None:
    assert read(b'event: error\ndata: {"message": "Out of memory"}\n\n') == [{"error": {"message": "Out of memory"}}]
    assert read(b'event: error\ndata: {"type": "error", "error": {}}\n\n') == [{"type": "error", "error": {}}]
