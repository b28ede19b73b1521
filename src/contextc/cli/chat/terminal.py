"""The terminal of a chat: texts for it, lines that are typed, events as they arrive, and approval of tool calls."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, assert_never

from rich.cells import chop_cells
from rich.console import Console
from rich.text import Text

from contextc._json import JSONObject, as_object, encode, parse_object
from contextc._worker_threads import run_blocking
from contextc.app.approval_preview import preview_call
from contextc.app.display_text import sanitize
from contextc.cli.console import DEFAULT_WIDTH, escape_at_terminal, format_dollars, pluralize, to_one_line
from contextc.errors import InvalidInput
from contextc.events import (
    AgentCallStart,
    AgentEvent,
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
    StreamEvent,
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
from contextc.messages import ToolCall, Usage
from contextc.store.approval_rules import Always, make_rule
from contextc.tools import FunctionTool


def wrap_lines(text: str, width: int) -> list[str]:
    """Return the lines of a text, wrapped to `width`."""
    return [piece for line in text.split("\n") for piece in (chop_cells(line, max(8, width)) or [""])]


def format_call(name: str, arguments_json: str, width: int = DEFAULT_WIDTH) -> str:
    """Return a call in one line: `read_file(path="a.py")`."""
    arguments: JSONObject | None = parse_object(arguments_json) if arguments_json.strip() else {}
    if arguments is None:
        text = arguments_json
    else:
        text = ", ".join([f"{key}={encode(value).decode()}" for key, value in arguments.items()])
    return to_one_line(f"{name}({text})", width)


METER_WIDTH = 20
FULL_SHARE, HIGH_SHARE = 0.9, 0.7


def render_meter(
    used: int,
    available: int,
    *,
    usage: Usage | None = None,
    cost: float | None = None,
    cost_is_lower_bound: bool = False,
    suffix: str = "",
) -> Text:
    """Return the context meter in one line: a bar with used and available tokens, usage and cost.

    It is readable without colours too.
    """
    share = used / available if available else 1.0
    filled = min(METER_WIDTH, max(1 if used else 0, round(share * METER_WIDTH)))
    style = "red" if share >= FULL_SHARE else "yellow" if share >= HIGH_SHARE else "green"
    facts = [f"context {share:.0%}", f"{used:,} of {available:,} tokens"]
    if usage is not None and (usage.input or usage.output):  # else it was not reported
        cached = f" ({usage.cache_read:,} cached)" if usage.cache_read else ""
        facts.append(f"{usage.input:,} in{cached}, {usage.output:,} out")
    if cost:
        facts.append(format_dollars(cost, is_lower_bound=cost_is_lower_bound))
    facts += [suffix] if suffix else []
    return Text.assemble(
        ("█" * filled, style), ("░" * (METER_WIDTH - filled), "dim"), (" " + " · ".join(facts), "dim"), end=""
    )


# ── input ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
# Terminal input: a line at the prompt, a line during a turn, an answer to a question, Ctrl-C.
#
# At the prompt nothing else runs, so `input` reads the line, with its editing and history. During a turn, the terminal
# collects a line, and the event loop reads it. A pending question gets the next line; otherwise it goes to the turn.


PROMPT, MORE = "> ", "… "


class TerminalInput:
    """Input of an interactive terminal."""

    def __init__(self) -> None:
        self._answer: asyncio.Future[str] | None = None
        self._rest = b""
        self._ended = False
        with suppress(ImportError):
            import readline  # pyright: ignore[reportUnusedImport]  # noqa: F401  # `input` then edits lines

    def read_prompt(self) -> str:
        """Read a line at the prompt. A backslash at its end continues it. Raise KeyboardInterrupt and EOFError."""
        with _python_interrupts():
            line = input(PROMPT)
            while line.endswith("\\"):
                line = line[:-1] + "\n" + input(MORE)
            return line

    @contextmanager
    def reading_lines(self, on_line: Callable[[str], None]) -> Generator[None]:
        """Pass each typed line to `on_line`, until the context ends."""
        loop, place = asyncio.get_running_loop(), sys.stdin.fileno()
        self._ended = False

        def readable() -> None:
            try:
                piece = os.read(place, 1 << 14)
            except OSError:
                piece = b""
            if not piece:  # Ctrl-D: no more input in this turn
                loop.remove_reader(place)
                self._ended = True
                self._dispatch("", on_line)
                return
            *lines, self._rest = (self._rest + piece).split(b"\n")
            for line in lines:
                self._dispatch(line.decode(errors="replace").strip(), on_line)

        try:
            loop.add_reader(place, readable)
        except (NotImplementedError, OSError):  # not supported on this system
            yield
            return
        try:
            yield
        finally:
            loop.remove_reader(place)

    def flush_input(self) -> None:
        """Drop unread input, which is not an answer to a new question."""
        with suppress(ImportError, OSError):
            import termios

            termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
        self._rest = b""

    @property
    def has_ended(self) -> bool:
        """True after Ctrl-D, until the next turn."""
        return self._ended

    async def read_answer(self) -> str:
        """Return the next line during a turn; "" after Ctrl-D."""
        if self._ended:
            return ""
        self._answer = asyncio.get_running_loop().create_future()
        try:
            return await self._answer
        finally:
            self._answer = None

    def _dispatch(self, line: str, on_line: Callable[[str], None]) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(line)
        elif line:
            on_line(line)


@contextmanager
def on_interrupt(stop: Callable[[], object]) -> Generator[None]:
    """Call `stop` on Ctrl-C, until the context ends."""
    loop = asyncio.get_running_loop()
    try:
        loop.add_signal_handler(signal.SIGINT, stop)
    except (
        NotImplementedError,
        RuntimeError,
        ValueError,
    ):  # then Ctrl-C ends the program, and the store recovers the turn
        yield
        return
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)


def read_line() -> str | None:
    """Read a line of standard input that is not a terminal; None at its end."""
    with _python_interrupts():
        line = sys.stdin.readline()
    return line.rstrip("\r\n") if line else None


@contextmanager
def _python_interrupts() -> Generator[None]:
    """Raise KeyboardInterrupt on Ctrl-C, as without an event loop."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


# ── output ────────────────────────────────────────────────────────────────────────────────────────────────────────────
# Rendering of events in the terminal: streamed text, dimmed reasoning, a line for each call and each result.
#
# The model's text goes to standard output. Other output goes there too in a terminal, and to standard error in a pipe,
# so that a pipe contains only the answer. Text is printed literally, never as markup.


EVENT_TEXT_LIMIT = 2_000  # characters of a result in an event
MIN_WIDTH = 40
PROGRESS_INTERVAL = 2_000  # milliseconds
NORMAL_FINISHES = {"stop", "tool_calls", "end_turn"}


class TerminalRenderer:
    """Output for a terminal."""

    def __init__(self, text: Console, notices: Console) -> None:
        self.text, self.notices = text, notices
        self.error_shown = False  # True if the error that ended the last turn was shown
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

    def show(self, event: StreamEvent) -> None:
        match event:
            case TextDelta():
                self._stream_text("text", event.text)
            case ReasoningDelta():
                self._stream_text("reasoning", event.text)
            case ToolCallDelta():
                self._collect_call(event)
            case ToolStart() | ToolProgress() | ToolFinished() | ToolFailed():
                self._show_tool(event)
            case AgentCallStart():
                self._show_call(event.id)
                self.note(f"  … {to_one_line(event.called)} works in {to_one_line(event.conversation)}")
            case AgentEvent():
                if isinstance(event.event, ToolStart):
                    self.note(f"  … {to_one_line(event.agent)}: {to_one_line(event.event.name)}")
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
                by = f" by rule {event.rule}" if event.rule else f" by {event.who}" if event.who else ""
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
                dropped = "".join([f" without the beta flag {each}" for each in event.dropped_betas])
                self.warn(f"{event.error} Attempt {event.attempt + 1}{dropped} in {event.seconds:.1f} s …")
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
                if event.finish == "cancelled":
                    self.warn("stopped. The partial answer is kept; /continue asks again.")
                elif event.finish not in NORMAL_FINISHES and event.finish != "error":
                    self.warn(f"the turn ended: {event.finish}")
                work = [pluralize(event.steps, "step")] if event.steps > 1 else []
                work += [pluralize(event.tool_calls, "tool call")] if event.tool_calls else []
                if self._available:
                    self.end_line()
                    more = ", ".join(work)
                    meter = render_meter(
                        self._used,
                        self._available,
                        usage=event.usage,
                        cost=event.cost,
                        cost_is_lower_bound=event.cost_is_lower_bound,
                        suffix=more,
                    )
                    self.notices.print(meter, soft_wrap=True)


class JSONRenderer:
    """Output of events as JSON Lines. Notices go to standard error."""

    def __init__(self, notices: Console) -> None:
        self._text_renderer = TerminalRenderer(notices, notices)
        self.error_shown = False

    def show(self, event: StreamEvent) -> None:
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


# ── approval of tool calls ────────────────────────────────────────────────────────────────────────────────────────────
# Approval of tool calls in the terminal: a preview of the exact action, and then the question.
#
# The preview has a bar at the left, is wrapped to the width of the terminal, and shows invisible characters escaped.
# So text of a model cannot imitate the question, or hide a part of a command. A yes applies to the preview only: if a
# file changed in the meantime, the new preview is shown, and the question is asked again.


MAX_PREVIEW_LINES = 200
YES, NO, ALL = ("y", "yes"), ("", "n", "no"), ("a", "all")
RULE_WORDS = {"always": True, "never": False}
RULE_OPTIONS: dict[str, tuple[str, object]] = {
    "any": ("arguments", "any"),
    "here": ("scope", "conversation"),
    "agent": ("scope", "agent"),
    "everywhere": ("scope", "store"),
    "1h": ("seconds", 3_600),
    "1d": ("seconds", 86_400),
    "30d": ("seconds", 30 * 86_400),
}
"""The words after `always` and `never`, with the field of the rule and its value."""
WHO = "chat"


def read_rule(answer: str) -> Always | None:
    """Return the rule that an answer asks for, such as `always any agent 1d`; None if it is no rule but a reason.

    At the end, `command=git status` covers all commands that begin so.
    """
    text, separator, prefix = answer.partition("=")
    word, *words = text.split() or [""]
    argument = words.pop() if separator and words else ""
    if word.lower() not in RULE_WORDS or bool(separator) != bool(argument and prefix.strip()):
        return None
    given: dict[str, Any] = {}
    for each in map(str.lower, words):
        name, value = RULE_OPTIONS.get(each, ("", None))
        if not name or name in given or (name == "arguments" and argument):
            return None
        given[name] = value
    return Always(allow=RULE_WORDS[word.lower()], argument=argument, prefix=prefix.strip(), who=WHO, **given)


DIFF_STYLES = {"+": "green", "-": "red", "@": "cyan"}


class TerminalApproval:
    """Approval by questions in the terminal. True is yes. A text is the reason for a no, which the model gets.

    `always` and `never`, with the words of `read_rule`, answer later calls, too.

    With `allows_all`, the answer is always yes.
    """

    takes_questions = True
    """A question of an MCP server suspends the turn. The session asks it."""

    def __init__(
        self, screen: TerminalRenderer, keyboard: TerminalInput, root: Path, *, allows_all: bool = False
    ) -> None:
        self.screen, self.keyboard, self.root, self.allows_all = screen, keyboard, root, allows_all

    async def __call__(self, call: ToolCall, tool: FunctionTool) -> bool | str | Always:
        if self.allows_all:
            return True
        shown, rows = None, list[Text]()
        while True:
            if (now := await run_blocking(preview_call, call, self.root)) != shown:
                if shown is not None:
                    self.screen.warn("The action changed since it was shown. It is now:")
                shown, rows = now, self._rows(now[1])
                self._show(now[0], rows[:MAX_PREVIEW_LINES])
                rows = rows[MAX_PREVIEW_LINES:]
            rest = f"   a shows the other {len(rows):,} lines" if rows else ""
            question = Text.assemble(("Do it? ", "bold yellow"), f"y/n, always, or why not{rest}: ")
            self.keyboard.flush_input()
            self.screen.notices.print(question, end="", soft_wrap=True)
            try:
                answer = (await self.keyboard.read_answer()).strip()
            except asyncio.CancelledError:
                self.screen.notices.print()
                raise
            if answer.lower() in ALL and rows:
                self._show(now[0], self._rows(now[1]))
                rows = []
            elif answer.lower() in YES:
                if await run_blocking(preview_call, call, self.root) == shown:
                    return True
            elif (rule := read_rule(answer)) is not None:
                if problem := self._check_rule(rule, call, tool):
                    self.screen.warn(problem)
                elif not rule.allow or await run_blocking(preview_call, call, self.root) == shown:
                    return rule
            else:
                return False if answer.lower() in NO else answer

    def _check_rule(self, rule: Always, call: ToolCall, tool: FunctionTool) -> str:
        """Print what a rule will answer. Return the problem if it does not hold for the call itself."""
        try:
            made = make_rule(
                rule,
                tool=tool.name,
                arguments=call.arguments if tool.name == call.name else as_object(call.arguments.get("arguments")),
                agent="this agent",
                approval="",
                who=rule.who,
            )
        except InvalidInput as error:
            return str(error)
        until = "" if rule.seconds is None else f", for {rule.seconds / 3_600:g} h"
        self.screen.note(to_one_line(f"{made.describe()}{until}. `contextc approvals` lists and revokes rules."))
        return ""

    def _rows(self, lines: list[str]) -> list[Text]:
        """Return the lines for printing, wrapped to the width of the terminal."""
        width = self.screen.notices.width - 3
        return [
            Text.assemble(("│ ", "yellow"), (piece, DIFF_STYLES.get(line[:1], "")))
            for line in lines
            for piece in wrap_lines(line, width)
        ]

    def _show(self, what: str, rows: list[Text]) -> None:
        self.screen.line(what, "bold yellow", "? ")
        for row in rows:
            self.screen.notices.print(row, soft_wrap=True)
