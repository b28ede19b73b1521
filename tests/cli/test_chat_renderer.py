"""Events in the terminal: what is printed for each, and where."""

import io
import json

import pytest
from rich.console import Console

from contextc.cli.chat.terminal import JSONRenderer, TerminalRenderer
from contextc.events import (
    AnyEvent,
    ApprovalAnswered,
    CompactionFinished,
    ErrorOccurred,
    InputDequeued,
    InputQueued,
    ReasoningDelta,
    StepStart,
    SystemMessageCreated,
    TextDelta,
    ToolProgress,
    TriggerFailed,
    TurnFinish,
    TurnInterrupted,
    TurnStart,
    TurnWaiting,
    UserNoticeCreated,
)


def shown(*events: AnyEvent) -> tuple[str, str, TerminalRenderer]:
    """Return the answer, the notices and the renderer."""
    text, notices = io.StringIO(), io.StringIO()
    renderer = TerminalRenderer(Console(file=text, width=100), Console(file=notices, width=100))
    for event in events:
        renderer.show(event)
    return text.getvalue(), notices.getvalue(), renderer


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (UserNoticeCreated(text="[b]Save."), "· hint: [b]Save."),
        (
            SystemMessageCreated(seq=1, uid="u", text="Be brief.", trigger="length\x1b"),
            "! to the model (length\ufffd): Be brief.",
        ),
        (TriggerFailed(trigger="length", error="KeyError"), "! trigger length failed: KeyError"),
        (InputQueued(queued=1, kind="steer", text="a\nb"), "… queued for the next step: a b"),
        (InputQueued(queued=1, kind="follow-up", text="later"), "… queued for the next turn: later"),
        (InputDequeued(queued=1, seq=2, uid="u"), "… queued input is sent"),
        (
            CompactionFinished(upto=9, before=12_000, after=800),
            "summarized messages 1 to 9: 12,000 tokens became 800",
        ),
        (
            CompactionFinished(upto=9, before=12_000, after=800, fallback="refused"),
            "summarized messages 1 to 9: 12,000 tokens became 800 (without the model: refused)",
        ),
        (TurnStart(resumed=True), "continuing the interrupted turn"),
        (TurnWaiting(approvals=("a",)), "the turn waits for approval"),
        (ApprovalAnswered(id="c", name="pay", approval="a", allowed=True), "pay was allowed"),
        (ApprovalAnswered(id="c", name="pay", approval="a", allowed=False, who="ann"), "pay was denied by ann"),
        (TurnInterrupted(messages=1), "the turn was interrupted; its partial answer is kept"),
        (ErrorOccurred(kind="internal", error="RateLimited: slow down"), "error: slow down"),
        (ErrorOccurred(kind="internal", error="overloaded"), "error: overloaded"),
        (TurnFinish(finish="max_steps"), "the turn ended: max_steps"),
        (ToolProgress(id="a", text="half\ndone", time=5_000), "  … half done"),
    ],
)
def test_an_event_is_one_line_of_notices(event: AnyEvent, line: str) -> None:
    assert shown(event)[:2] == ("", f"{line}\n")


def test_a_line_ends_before_the_next_block() -> None:
    """The text is on its own output; line breaks before a block are left out."""
    text, notices, _ = shown(
        ReasoningDelta(uid="m", text="\n"),
        ReasoningDelta(uid="m", text="Hm."),
        TextDelta(uid="m", text="\n\nYes"),
        TextDelta(uid="m", text=".\n"),
        UserNoticeCreated(text="Saved."),
    )
    assert (text, notices) == ("Yes.\n", "Hm.\n· hint: Saved.\n")


def test_progress_is_shown_every_two_seconds() -> None:
    times = (5_000, 5_500, 6_999, 7_000, 8_000)
    assert shown(*[ToolProgress(id="a", text=str(time), time=time) for time in times])[1] == "  … 5000\n  … 7000\n"


def test_an_error_is_shown_until_the_next_turn_starts() -> None:
    failed = ErrorOccurred(kind="internal", error="down")
    assert shown(failed)[2].error_shown
    assert not shown(failed, TurnStart())[2].error_shown


def test_the_meter_is_shown_once_the_size_is_known() -> None:
    finish = TurnFinish(finish="stop", steps=2, tool_calls=1)
    assert shown(finish)[1] == ""
    notices = shown(StepStart(provider="x", model="y", mode="full", request=1, used=50, available=100), finish)[1]
    assert "2 steps, 1 tool call" in notices


def test_json_goes_to_the_output_and_notices_do_not(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    notices = io.StringIO()
    renderer = JSONRenderer(Console(file=notices, width=100))
    renderer.show(TextDelta(uid="m", text="hi"))
    renderer.show(ErrorOccurred(kind="internal", error="down"))
    assert renderer.error_shown
    renderer.show(TurnStart())
    assert not renderer.error_shown
    renderer.note("one")
    renderer.warn("two")
    renderer.error("three")
    lines = [json.loads(line) for line in capfdbinary.readouterr().out.splitlines()]
    assert [line["type"] for line in lines] == ["text-delta", "error", "turn-start"]
    assert notices.getvalue() == "one\ntwo\nerror: three\n"
