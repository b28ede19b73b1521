"""Rendering of events in the terminal: streamed text, dimmed reasoning, a line for each call and each result.

The model's text goes to standard output. Other output goes there too in a terminal, and to standard error in a pipe, so
that a pipe contains only the answer. Text is printed literally, never as markup.
"""

import sys
from typing import Protocol, assert_never

from rich.console import Console
from rich.text import Text

from contextc._json import parse_object
from contextc.app.sanitize import sanitize
from contextc.cli.chat.formatting import format_call, render_meter, to_one_line
from contextc.cli.console import escape_at_terminal, pluralize
from contextc.events import (
    AnyEvent,
    ApprovalAnswered,
    ApprovalRequest,
    CompactionFinished,
    ErrorOccurred,
    InputDequeued,
    InputQueued,
    ReasoningDelta,
    RetryScheduled,
    StepFinish,
    StepStart,
    SystemMessageCreated,
    TextDelta,
    ToolCallDelta,
    ToolFailed,
    ToolFinished,
    ToolProgress,
    ToolStart,
    TriggerFailed,
    TurnFinish,
    TurnInterrupted,
    TurnStart,
    TurnWaiting,
    UsageReport,
    UserNoticeCreated,
    encode_event,
)

EVENT_TEXT_LIMIT = 2_000  # characters of a result in an event
MIN_WIDTH = 40
PROGRESS_INTERVAL = 2_000  # milliseconds
NORMAL_FINISHES = {"stop", "tool_calls", "end_turn"}


class EventOutput(Protocol):
    """An output for events and for notices of the chat."""

    error_shown: bool
    """True if the error that ended the last turn was shown."""

    def show(self, event: AnyEvent) -> None: ...

    def note(self, text: str) -> None: ...

    def warn(self, text: str) -> None: ...

    def error(self, text: str) -> None: ...


class TerminalRenderer:
    """Output for a terminal."""

    def __init__(self, text: Console, notices: Console) -> None:
        self.text, self.notices = text, notices
        self.error_shown = False
        self._block = ""  # kind of the current block
        self._line_is_over = True
        self._progress_shown = 0
        self._calls: dict[str, tuple[str, str]] = {}
        self._used = self._available = 0
        self.provider_runs_tools = False
        """True if the provider runs tools itself. Then a call is shown as soon as it is complete."""

    # ── notices ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def note(self, text: str) -> None:
        self.line(text, "dim")

    def warn(self, text: str) -> None:
        self.line(text, "yellow")

    def error(self, text: str) -> None:
        self.line(text, "bold red", "error: ")

    def line(self, text: str, style: str = "", lead: str = "") -> None:
        """Print a line. The style applies to the lead, if there is one."""
        self.end_line()
        parts = [(lead, style), sanitize(text)] if lead else [(sanitize(text), style)]
        self.notices.print(Text.assemble(*parts), soft_wrap=True)

    def end_line(self) -> None:
        if self._block and not self._line_is_over:
            (self.text if self._block == "text" else self.notices).print()
        self._block = ""

    # ── events ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def show(self, event: AnyEvent) -> None:
        match event:
            case TextDelta():
                self._stream_text("text", event.text)
            case ReasoningDelta():
                self._stream_text("reasoning", event.text)
            case ToolCallDelta():
                self._collect_call(event)
            case ToolStart() | ToolProgress() | ToolFinished() | ToolFailed():
                self._show_tool(event)
            case StepStart() | StepFinish() | UsageReport() | RetryScheduled() | CompactionFinished():
                self._show_step(event)
            case TurnStart() | TurnFinish() | TurnInterrupted() | ErrorOccurred():
                self._show_turn(event)
            case SystemMessageCreated():
                self.line(event.text, "yellow", f"! to the model ({sanitize(event.trigger)}): ")
            case UserNoticeCreated():
                self.line(event.text, "cyan", "· hint: ")
            case TriggerFailed():
                self.line(event.error, "red", f"! trigger {sanitize(event.trigger)} failed: ")
            case InputQueued():
                self.note(
                    f"… queued for the {'next step' if event.kind == 'steer' else 'next turn'}: "
                    f"{to_one_line(event.text)}"
                )
            case InputDequeued():
                self.note("… queued input is sent")
            case ApprovalRequest():
                pass  # the approval itself shows it
            case ApprovalAnswered():
                by = f" by {event.who}" if event.who else ""
                self.note(to_one_line(f"{event.name} was {'allowed' if event.allowed else 'denied'}{by}"))
            case TurnWaiting():
                self.note("the turn waits for approval")
            case _:
                assert_never(event)

    def _stream_text(self, block: str, text: str) -> None:
        """Print the next piece of a streamed text."""
        if block != self._block:
            text = text.lstrip("\n")
            if not text:
                return
            self.end_line()
            self._block = block
        self._line_is_over = text.endswith("\n")
        where = self.text if block == "text" else self.notices
        where.print(Text(sanitize(text), "" if block == "text" else "dim italic"), end="", soft_wrap=True)

    def _collect_call(self, event: ToolCallDelta) -> None:
        """Collect the next piece of a call. A call that the provider runs has no start event, so it is shown when it is
        complete.
        """
        name, written = self._calls.get(event.id, (event.name, ""))
        name, written = name or event.name, written + event.arguments
        self._calls[event.id] = name, written
        if self.provider_runs_tools and written.rstrip().endswith("}") and parse_object(written) is not None:
            self._show_call(event.id)

    def _show_call(self, id: str) -> None:
        if (call := self._calls.pop(id, None)) is not None:
            self.line(format_call(*call, max(MIN_WIDTH, self.notices.width - 4)), "cyan", "→ ")

    def _show_tool(self, event: ToolStart | ToolProgress | ToolFinished | ToolFailed) -> None:
        width = max(MIN_WIDTH, self.notices.width - 4)
        if isinstance(event, ToolProgress):
            if event.time - self._progress_shown >= PROGRESS_INTERVAL:
                self._progress_shown = event.time
                self.note(f"  … {to_one_line(event.text, width)}")
            return
        self._show_call(event.id)
        if isinstance(event, ToolFinished):
            self.line(_result_line(event, width), "green", "  ✓ ")
        elif isinstance(event, ToolFailed):
            self.line(_result_line(event, width), "red", "  ✗ ")

    def _show_step(self, event: StepStart | StepFinish | UsageReport | RetryScheduled | CompactionFinished) -> None:
        if isinstance(event, StepStart | UsageReport) and (event.used or not self._used):
            self._used, self._available = event.used, event.available  # 0 after another value: not known
        match event:
            case StepStart():
                why = f": new epoch, {to_one_line(event.why)}" if event.why and event.request > 1 else ""
                cut = ", old messages are left out" if event.cut else ""
                if event.step > 1 or why or cut:
                    self.note(f"── step {event.step}{why}{cut}")
            case UsageReport():
                pass  # shown in the meter
            case StepFinish():
                self.end_line()
            case RetryScheduled():
                self.warn(f"{event.error} Attempt {event.attempt + 1} in {event.seconds:.1f} s …")
            case CompactionFinished() if event.undone:
                self.warn(f"the summary of messages 1 to {event.upto} was taken back")
            case CompactionFinished():
                digest = f" (without the model: {event.fallback})" if event.fallback else ""
                figures = f"{event.before:,} tokens became {event.after:,}"
                lost = f"; {event.missing:,} names, figures and sentences are gone" if event.missing else ""
                self.warn(f"summarized messages 1 to {event.upto}: {figures}{digest}{lost}")

    def _show_turn(self, event: TurnStart | TurnFinish | TurnInterrupted | ErrorOccurred) -> None:
        match event:
            case TurnStart():
                self.error_shown = False
                self._calls = {}
                if event.resumed:
                    self.note("continuing the interrupted turn")
            case TurnInterrupted():
                self.warn("the turn was interrupted; its partial answer is kept")
            case ErrorOccurred():
                self.error_shown = True
                self.error(event.error.partition(": ")[2] or event.error)
            case TurnFinish():
                self._show_finish(event)

    def _show_finish(self, event: TurnFinish) -> None:
        if event.finish == "cancelled":
            self.warn("stopped. The partial answer is kept; /continue asks again.")
        elif event.finish not in NORMAL_FINISHES and event.finish != "error":
            self.warn(f"the turn ended: {event.finish}")
        work = [pluralize(event.steps, "step")] if event.steps > 1 else []
        work += [pluralize(event.tool_calls, "tool call")] if event.tool_calls else []
        self.show_meter(self._used, self._available, event, ", ".join(work))

    def show_meter(self, used: int, available: int, event: TurnFinish | None = None, more: str = "") -> None:
        if not available:
            return
        self.end_line()
        usage, cost = (event.usage, event.cost) if event is not None else (None, None)
        usage = usage if usage is not None and (usage.input or usage.output) else None  # not reported
        self.notices.print(render_meter(used, available, usage=usage, cost=cost, suffix=more), soft_wrap=True)


class JSONRenderer:
    """Output of events as JSON Lines. Notices go to standard error."""

    def __init__(self, notices: Console) -> None:
        self._text_renderer = TerminalRenderer(notices, notices)
        self.error_shown = False

    def show(self, event: AnyEvent) -> None:
        if isinstance(event, TurnStart | ErrorOccurred):
            self.error_shown = isinstance(event, ErrorOccurred)
        sys.stdout.buffer.write(escape_at_terminal(encode_event(event)) + b"\n")
        sys.stdout.buffer.flush()

    def note(self, text: str) -> None:
        self._text_renderer.note(text)

    def warn(self, text: str) -> None:
        self._text_renderer.warn(text)

    def error(self, text: str) -> None:
        self._text_renderer.error(text)


def _result_line(event: ToolFinished | ToolFailed, width: int) -> str:
    """Return the first line of a result, and its size."""
    lines = event.text.strip().split("\n")
    beyond = " and more" if len(event.text) >= EVENT_TEXT_LIMIT else ""
    figures = [f"{len(lines):,} lines{beyond}"] if len(lines) > 1 else []
    figures += [f"{event.milliseconds / 1000:.1f} s"] if event.milliseconds >= 1_000 else []
    after = f" ({', '.join(figures)})" if figures else ""
    return to_one_line(lines[0], max(MIN_WIDTH, width - len(after))) + after
