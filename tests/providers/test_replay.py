"""Replies from recordings, and the recorder."""

import asyncio
import json
from contextlib import aclosing
from pathlib import Path

import pytest

import contextc as cc
from contextc._json import JSONObject, encode
from contextc.errors import InvalidSetting
from contextc.providers import Endpoint, ProviderCall
from contextc.providers.replay import Recorder, Replay, read_recordings, request_hash

PROVIDER = cc.provider("anthropic:claude-opus-5-5", client="replay")
EVENTS: list[JSONObject] = [
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hello"}},
    {"type": "message_stop"},
]
WHOLE: JSONObject = {"type": "message", "content": [{"type": "text", "text": "Whole"}], "stop_reason": "end_turn"}
BUSY: JSONObject = {"status": 529, "body": {"error": {"type": "overloaded_error", "message": "Busy"}}}


def ask(line: Endpoint, body: bytes = b"{}", *, stream: bool = True) -> list[JSONObject]:
    async def asked() -> list[JSONObject]:
        return [event async for event in line.stream(ProviderCall(provider=PROVIDER, body=body, stream=stream))]

    return asyncio.run(asked())


def test_recordings_answer_in_their_order(tmp_path: Path) -> None:
    """Guarantee 10.1: a stream, a whole reply and a refusal."""
    path = tmp_path / "answers.jsonl"
    path.write_bytes(b"\n".join(encode(each) for each in [{"events": EVENTS}, {"reply": WHOLE}, {"error": BUSY}]))
    line = cc.endpoint(PROVIDER, recordings=path)
    assert ask(line) == EVENTS
    assert ask(line) == [WHOLE]
    with pytest.raises(cc.errors.ProviderFailed, match="Busy") as caught:
        ask(line)
    assert (caught.value.kind, caught.value.status) == ("transient", 529)
    with pytest.raises(cc.errors.ProviderFailed, match="Busy"):
        ask(line)
    with pytest.raises(cc.errors.ProviderFailed, match="no recording left"):
        ask(line, b"another")


@pytest.mark.parametrize(
    ("recording", "expected"),
    [
        (1, "recording 2: expected a JSON object, got int"),
        ({}, "recording 2: must have `reply`"),
        ({"reply": {}}, "recording 2: `reply` must be"),
        ({"reply": "hello"}, "recording 2: `reply` must be"),
        ({"events": [1]}, "recording 2: `events` must be"),
        ({"events": None}, "recording 2: `events` must be"),
        ({"error": "x"}, "recording 2: `error` must have"),
        ({"error": {}}, "recording 2: `error` must have"),
    ],
    ids=str,
)
def test_an_invalid_recording_is_refused_with_its_number(recording: JSONObject, expected: str) -> None:
    """Guarantee 15.1: when it is given, and not when its turn comes."""
    with pytest.raises(InvalidSetting, match=expected):
        Replay([{"reply": WHOLE}, recording])


def test_a_reply_of_another_format_is_not_tried_again() -> None:
    """Guarantee 15.1: the error states the problem, and not that no recording is left."""
    with pytest.raises(cc.errors.ProviderFailed, match="recording 1: This is not a reply of anthropic") as caught:
        ask(Replay([{"reply": {"choices": []}}]))
    assert not caught.value.may_retry


def test_a_whole_reply_is_read_like_a_stream() -> None:
    reader = PROVIDER.formatter.create_reader()
    assert [delta for event in ask(Replay([{"reply": WHOLE}])) for delta in reader.read(event)] == [cc.Text("Whole")]
    assert reader.finished
    assert reader.message() == PROVIDER.formatter.decode_reply(WHOLE)


def test_a_recording_that_names_a_request_answers_that_one_alone() -> None:
    line = Replay([{"request": request_hash(b"b"), "reply": WHOLE}, {"events": EVENTS}])
    assert ask(line, b"a") == EVENTS
    assert ask(line, b"b") == [WHOLE]
    assert [call.body for call in line.calls] == [b"a", b"b"]


def test_a_stream_may_break_off_in_a_recording() -> None:
    line = Replay([{"events": EVENTS[:1], "error": {"body": "connection cut"}}])
    with pytest.raises(cc.errors.ProviderFailed, match="connection cut") as caught:
        ask(line)
    assert caught.value.kind == "transient"


def test_what_was_recorded_is_replayed(tmp_path: Path) -> None:
    """What is written is what came: events, replies, refusals."""
    path = tmp_path / "recorded.jsonl"
    wait: JSONObject = {**BUSY, "retry_after": 3}
    error: JSONObject = {"type": "error", "error": {"type": "api_error", "message": "key sk-abc-0123456789 oops"}}
    first = Replay([{"events": EVENTS}, {"reply": WHOLE}, {"error": wait}, {"events": [*EVENTS[:1], error]}])
    recorder = Recorder(first, path, by_request=True)
    assert ask(recorder, b"1") == EVENTS
    assert ask(recorder, b"2", stream=False) == [WHOLE]
    failures: list[cc.errors.ProviderFailed] = []
    for body in (b"3", b"4"):
        with pytest.raises(cc.errors.ProviderFailed) as caught:
            ask(recorder, body)
        failures.append(caught.value)

    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [sorted(set(line) - {"request"}) for line in lines] == [["events"], ["reply"], ["error"], ["events"]]
    assert "sk-abc" not in path.read_text()

    again = cc.endpoint(PROVIDER, recordings=path)
    for body, failed in ((b"4", failures[1]), (b"3", failures[0])):
        with pytest.raises(cc.errors.ProviderFailed) as caught:
            ask(again, body)
        assert str(caught.value) == str(failed)
    assert ask(again, b"2") == [WHOLE]
    assert ask(again, b"1") == EVENTS


def test_what_was_given_up_is_recorded_as_far_as_it_came(tmp_path: Path) -> None:
    path = tmp_path / "recorded.jsonl"

    async def give_up() -> None:
        line = Recorder(Replay([{"events": EVENTS}]), path)
        async with aclosing(line.stream(ProviderCall(provider=PROVIDER, body=b"{}"))) as events:
            async for _ in events:
                break

    asyncio.run(give_up())
    assert read_recordings(path) == [{"events": EVENTS[:1]}]


def test_a_path_may_stand_in_the_address(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    path.write_bytes(encode({"events": EVENTS}))
    line = cc.endpoint(cc.provider("replay:demo", url=str(path), window=9_000, format="anthropic"))
    assert ask(line) == EVENTS


@pytest.mark.parametrize(
    ("content", "problem"), [(b'{"events": []}\n{oh', "line 2"), (b'{"text": "hi"}', "recording 1: must have `reply`")]
)
def test_an_invalid_recording_is_refused(tmp_path: Path, content: bytes, problem: str) -> None:
    """Guarantee 15.1."""
    path = tmp_path / "answers.jsonl"
    path.write_bytes(content)
    with pytest.raises(InvalidSetting, match=problem):
        cc.endpoint(PROVIDER, recordings=path)
    with pytest.raises(InvalidSetting, match="recordings: must be a path"):
        cc.endpoint(PROVIDER)
    for nowhere in (tmp_path / "nowhere", tmp_path, "/dev/null", "a\0b"):
        with pytest.raises(InvalidSetting, match=r"cannot read the file|must be a regular file"):
            cc.endpoint(PROVIDER, recordings=nowhere)


def test_what_else_is_in_a_file_is_not_reported(tmp_path: Path) -> None:
    """Guarantee 13.3: the named file may be any file."""
    path = tmp_path / "key.txt"
    path.write_text("private-words")
    with pytest.raises(InvalidSetting, match="line 1: expected a JSON object") as refused:
        cc.endpoint(PROVIDER, recordings=path)
    assert "private" not in str(refused.value)
