"""Our events as AG-UI events: AG-UI's models and its client's verifier accept every stream."""

from functools import cache
from typing import Any

import msgspec
from hypothesis import given, settings
from pydantic import TypeAdapter

from contextc._json import JSONObject, decode
from contextc.events import AnyEvent, TextDelta, TurnFinish, TurnInterrupted
from contextc.web.api.agui import AGUIEncoder
from tests.conftest import often
from tests.web.clients.client_process import ClientProcess
from tests.web.event_streams import made_up, recorded_events, tails

DELTAS = ("text-delta", "reasoning-delta", "tool-call-delta")


@cache
def models() -> TypeAdapter[Any]:
    from ag_ui.core import Event

    return TypeAdapter[Any](Event)


def taken(events: list[AnyEvent]) -> list[JSONObject]:
    runs = AGUIEncoder("demo")
    return [each for event in events for each in runs.encode(event)]


def wrong(judge: ClientProcess, events: list[AnyEvent]) -> str:
    """What AG-UI has against it."""
    stream = taken(events)
    for each in stream:
        model = models().validate_python(each)
        assert model.model_extra == {}, f"{model.type} has no {model.model_extra}"
    return judge.agui(stream)


def test_every_kind_of_turn_is_a_stream_that_agui_takes(judge: ClientProcess) -> None:
    """Guarantee 12.2: tools, failures, cancelling, approval, a dead process, two agents at once."""
    assert {*recorded_events()} == {"answered", "failed", "cancelled", "asked", "resumed", "together", "waited"}
    for name, events in recorded_events().items():
        assert wrong(judge, events) == "", name


def test_a_stream_that_begins_anywhere_is_one_too(judge: ClientProcess) -> None:
    """Guarantees 12.1, 12.2: events replay from any number."""
    for name, events in recorded_events().items():
        for tail in tails(events):
            assert wrong(judge, tail) == "", f"{name} from event {tail[0].number}"


@given(events=made_up())
@settings(max_examples=often(15, 300))
def test_no_events_in_any_order_make_a_stream_that_agui_refuses(judge: ClientProcess, events: list[AnyEvent]) -> None:
    """Guarantee 12.2: the state machine holds, whatever a store may hold."""
    assert wrong(judge, events) == ""


def test_nothing_of_an_event_is_lost(judge: ClientProcess) -> None:
    """Guarantee 12.2: events without an AG-UI type are sent whole, and a page needs no other stream."""
    for events in recorded_events().values():
        stream = taken(events)
        whole = [each["value"] for each in stream if each["type"] == "CUSTOM"]
        assert whole == [msgspec.to_builtins(event) for event in events if event.__struct_config__.tag not in DELTAS]
        text = "".join([each["delta"] for each in stream if each["type"] == "TEXT_MESSAGE_CONTENT"])
        assert text == "".join([event.text for event in events if isinstance(event, TextDelta)])


def test_a_turn_is_a_run_that_ends_as_the_turn_did() -> None:
    """Guarantee 12.2."""

    def ends(name: str) -> list[str]:
        stream = taken(recorded_events()[name])
        last = [each for each in stream if each["type"] in ("RUN_FINISHED", "RUN_ERROR")]
        return [each.get("outcome", {}).get("type") or each.get("code") or "" for each in last]

    assert ends("answered") == ["success", "success", "success"]  # what was queued before has a run of its own
    assert ends("failed") == ["transient", "success"]
    assert ends("cancelled") == ["cancelled", "success"]
    assert ends("together") == ["success"]
    assert ends("resumed")[0] == "interrupted"
    assert ends("waited") == ["interrupt", "success", "interrupt", "success", "interrupt", "cancelled"]
    waited = taken(recorded_events()["waited"])
    runs = [each["runId"] for each in waited if each["type"] == "RUN_STARTED"]
    assert len(set(runs)) == len(runs) == 6
    asked = [each["outcome"]["interrupts"] for each in waited if each.get("outcome", {}).get("type") == "interrupt"]
    assert [[each["toolCallId"] for each in found] for found in asked] == [["c1", "c2"], ["c2"], ["c3"]]


def test_the_number_of_an_event_is_on_its_last_frame() -> None:
    """Guarantee 12.1: a client that reconnects gets all of an event, or nothing."""
    runs = AGUIEncoder("demo")
    for event in recorded_events()["answered"]:
        frames = runs.frames(event).decode().removesuffix("\n\n").split("\n\n")
        assert [frame.startswith("id: ") for frame in frames] == [False] * (len(frames) - 1) + [True]
        assert frames[-1].startswith(f"id: {event.number}\ndata: ")
        assert all(decode(frame.partition("data: ")[2])["type"] for frame in frames)


def test_the_context_is_shown_as_an_activity_that_is_replaced() -> None:
    """Guarantee 12.2: the usage of the context, and its model."""
    gauges = [each for each in taken(recorded_events()["answered"]) if each["type"] == "ACTIVITY_SNAPSHOT"]
    assert {each["messageId"] for each in gauges} == {"contextc-context-assistant"}
    assert all(each["content"]["model"] == "claude-sonnet-4-5" for each in gauges)
    assert gauges[1]["content"]["used"] > 0


def test_a_turn_that_a_dead_process_left_ends_with_an_error() -> None:
    lost = TurnInterrupted(number=4, agent="a", turn=1)
    stream = taken([TextDelta(number=3, agent="a", turn=1, step=1, uid="u", text="I am"), lost])
    assert [each["type"] for each in stream] == [
        "RUN_STARTED",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
        "CUSTOM",
        "RUN_ERROR",
    ]


def test_two_agents_at_once_are_one_run_that_ends_with_the_last() -> None:
    begun = ((1, "a"), (2, "b"))
    messages = [TextDelta(number=turn, agent=who, turn=turn, uid=who, text="Hi") for turn, who in begun]
    ends = [TurnFinish(number=turn + 2, agent=who, turn=turn, finish="stop") for turn, who in begun]
    stream = taken([*messages, *ends])
    assert [each["type"] for each in stream].count("RUN_STARTED") == 1
    assert stream[-1]["type"] == "RUN_FINISHED"
