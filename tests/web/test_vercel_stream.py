"""Our events as chunks of the AI SDK: its schema and its reader accept every stream."""

import re

from hypothesis import given, settings

from contextc._json import JSONObject
from contextc.events import AnyEvent, TextDelta, ToolCallDelta
from contextc.formats.vercel import ui_messages
from contextc.web.api.vercel import DONE_FRAME, VercelEncoder
from tests.conftest import THOROUGH, often
from tests.web.clients.client_process import ClientProcess
from tests.web.event_streams import made_up, recorded_events, tails

EXPECTED = ("The process that ran this turn ended.", "ProviderFailed", "The turn failed.", "x")
"""How an error begins that a stream tells of, and that is none in the stream."""


def taken(events: list[AnyEvent], *, one: bool = True) -> list[JSONObject]:
    chunks = VercelEncoder(one=one)
    found = [each for event in events for each in chunks.encode(event)]
    return [*found, *chunks.end_chunks()]


def wrong(judge: ClientProcess, chunks: list[JSONObject]) -> list[str]:
    """What the SDK has against it."""
    answer = judge.vercel(chunks)
    found = [answer["error"]] if "error" in answer else answer["errors"]
    return [error for error in found if not error.startswith(EXPECTED)]


def test_every_kind_of_turn_is_a_message_that_the_sdk_reads(judge: ClientProcess) -> None:
    """Guarantee 12.2: tools, failures, cancelling, approval, a dead process, two agents at once; from any event on."""
    for name, events in recorded_events().items():
        for at, tail in enumerate(tails(events)):
            for one in (True, False) if THOROUGH else (at % 2 == 0,):
                assert wrong(judge, taken(tail, one=one)) == [], f"{name} from event {tail[0].number}"


@given(events=made_up())
@settings(max_examples=often(15, 300))
def test_no_events_in_any_order_make_a_stream_that_the_sdk_refuses(
    judge: ClientProcess, events: list[AnyEvent]
) -> None:
    """Guarantee 12.2: the state machine holds, whatever a store may hold."""
    assert wrong(judge, taken(events, one=False)) == []


def test_the_sdk_and_we_read_the_same_message_from_it(judge: ClientProcess) -> None:
    """Guarantee 12.2: what we write is what we would read of another's stream."""
    chunks = taken(recorded_events()["answered"])
    theirs = judge.vercel(chunks)["message"]
    ours = ui_messages.collect_events(chunks)
    assert [part["type"] for part in theirs["parts"]] == [part["type"] for part in ours["parts"]]
    calls = [part for part in theirs["parts"] if part["type"] == "dynamic-tool"]
    assert [(part["state"], part["input"]) for part in calls[:2]] == [
        ("output-available", {"a": 1, "b": 2}),
        ("output-available", {"a": 3, "b": 4}),
    ]
    assert calls[2]["state"] == "output-error"
    texts = [part["text"] for part in theirs["parts"] if part["type"] == "text"]
    assert texts == ["I add.", "Seven and more.", "More."]
    assert theirs["id"] == "turn-1"


def test_a_call_that_was_declined_is_reported(judge: ClientProcess) -> None:
    message = judge.vercel(taken(recorded_events()["asked"]))["message"]
    (call,) = [part for part in message["parts"] if part["type"] == "dynamic-tool"]
    assert call["state"] == "output-denied"
    assert re.fullmatch(r"\d+:[\w-]{22}", call["approval"]["id"]), "an id of ours, and not the model's"


def test_arguments_that_are_not_json_are_an_error_of_the_call(judge: ClientProcess) -> None:
    broken = ToolCallDelta(number=1, turn=1, uid="u", id="c", name="add", arguments='{"a": ')
    text = TextDelta(number=2, turn=1, uid="u", text="Oh.")
    message = judge.vercel(taken([broken, text]))["message"]
    assert (message["parts"][0]["state"], message["parts"][0]["input"]) == ("output-error", '{"a": ')


def test_a_stream_ends_as_the_sdk_ends_one() -> None:
    chunks = VercelEncoder(one=True)
    for event in recorded_events()["answered"]:
        chunks.frames(event)
    last = chunks.end_frames()
    assert last.endswith(DONE_FRAME)
    assert b'"finishReason":"stop"' in last
