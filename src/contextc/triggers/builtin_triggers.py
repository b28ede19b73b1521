"""Built-in triggers: context usage, limits of the turn, open todos, memory and CPU, and a turn without progress."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import takewhile
from pathlib import Path
from typing import TypeAlias

from contextc._json import JSONObject, encode_canonical, hash_blob
from contextc.errors import InvalidSetting
from contextc.messages import Media, Message, Text, ToolCall, ToolResult
from contextc.tools.todos import Todo
from contextc.triggers.base import (
    ResourceUsage,
    ThresholdTrigger,
    Trigger,
    TriggerContext,
    TriggerMessage,
    TriggerTime,
    percent,
)

# ── context usage ─────────────────────────────────────────────────────────────────────────────────────────────────────
# Context usage: warnings at 80 % and 90 % of the available tokens, and a message on recovery. The levels are one
# group, so a rise above both gives one message. Each level warns once, until the share has fallen by a margin below
# its threshold. A compaction resets all levels, so that a later rise is reported again. The share is that of the
# request that contains the message, after trimming.


HYSTERESIS = 0.05
CRITICAL_SHARE = 0.9


def context_triggers(*levels: float, margin: float = HYSTERESIS) -> list[Trigger]:
    """Return one trigger per level, by default 0.8 and 0.9. The lowest level also reports the recovery."""
    marks = sorted(set(levels)) or [0.8, CRITICAL_SHARE]
    return [_level_trigger(mark, margin, lowest=mark == marks[0]) for mark in marks]


def _level_trigger(mark: float, margin: float, *, lowest: bool) -> Trigger:
    return ThresholdTrigger(
        name=f"context_{mark * 100:g}",
        group="context",
        priority=20,
        level=round(mark * 100),
        scope="channel",
        at=("before_step", "after_compaction"),
        reset_at=("after_compaction",),
        value=lambda moment: moment.share,
        enter=mark,
        exit=mark - margin,
        text=_critical_text if mark >= CRITICAL_SHARE else _warning_text,
        title=f"Context {percent(mark)}",
        exit_text=_recovered_text if lowest else "",
        exit_title="Context recovered" if lowest else "",
    )


def _warning_text(moment: TriggerContext) -> str:
    return (
        f"Context warning: {_usage_text(moment)}. Read and print only what is needed, and write down open points and "
        "findings (todos, files) before older content is shortened."
    )


def _critical_text(moment: TriggerContext) -> str:
    return (
        f"Context critical: {_usage_text(moment)}. Older content is about to be shortened, summarized or left "
        "out. Write "
        "down now what must not be lost, finish the current piece of work, and avoid large results."
    )


def _recovered_text(moment: TriggerContext) -> str:
    return (
        f"Context recovered: {_usage_text(moment)}. Older content may have been shortened, summarized or left "
        "out; read "
        "again what is needed. The earlier context warning no longer holds."
    )


def _usage_text(moment: TriggerContext) -> str:
    if not moment.available:
        return f"{percent(moment.share)} of the available tokens are in use"
    return f"{percent(moment.share)} of the available tokens are in use ({moment.used:,} of {moment.available:,})"


# ── limits of the turn ────────────────────────────────────────────────────────────────────────────────────────────────
# Limits of the turn and truncated replies, and a user notice with the number of tool calls. The executor enforces the
# limits. These triggers warn the model at 80 % of a limit, and at the latest before the last step or call. Limits
# count within a turn, so each turn has its own warnings.


WARNING_SHARE = 0.8
NOTICE_EVERY_CALLS = 10
LIMIT_ADVICE = "At the limit the turn ends: do what matters most, and give an answer before that."


def step_limit_trigger() -> Trigger:
    return _limit_trigger(
        "step_limit",
        50,
        lambda moment: _count_share(moment.steps, moment.step_limit),
        lambda moment: f"{moment.steps} of at most {moment.step_limit} steps are made",
    )


def tool_call_limit_trigger() -> Trigger:
    return _limit_trigger(
        "tool_call_limit",
        51,
        lambda moment: _count_share(moment.tool_calls, moment.tool_call_limit),
        lambda moment: f"{moment.tool_calls} of at most {moment.tool_call_limit} tool calls are made",
    )


def cost_limit_trigger() -> Trigger:
    return _limit_trigger(
        "cost_limit",
        52,
        lambda moment: _share(moment.cost, moment.cost_limit),
        lambda moment: f"{moment.cost or 0:.3g} of at most {moment.cost_limit or 0:.3g} dollars are spent",
    )


def time_limit_trigger() -> Trigger:
    return _limit_trigger(
        "time_limit",
        53,
        lambda moment: _share(moment.seconds, moment.seconds_limit),
        lambda moment: f"{moment.seconds:.0f} of at most {moment.seconds_limit or 0:.0f} seconds have passed",
    )


def _limit_trigger(
    name: str, priority: int, value: Callable[[TriggerContext], float | None], figures: Callable[[TriggerContext], str]
) -> Trigger:
    lead = name.replace("_", " ").capitalize()
    return ThresholdTrigger(
        name=name,
        priority=priority,
        value=value,
        enter=WARNING_SHARE,
        exit=WARNING_SHARE,
        text=lambda moment: f"{lead}: {figures(moment)} in this turn. {LIMIT_ADVICE}",
        title=f"{lead} near",
    )


def _count_share(made: int, limit: int | None) -> float | None:
    if made and limit is not None and limit - made <= 1:
        return 1.0
    return _share(made, limit)


def _share(made: float | None, limit: float | None) -> float | None:
    if made is None or limit is None:
        return None
    return made / limit if limit > 0 else None


class OutputTruncatedTrigger(Trigger, frozen=True, kw_only=True):
    """A message after every reply that reached the output limit."""

    def check(self, moment: TriggerContext, state: JSONObject) -> tuple[TriggerMessage | None, JSONObject]:
        if moment.finish != "length":
            return None, state
        text = (
            "Output cut: the last reply reached the output limit and is incomplete. Go on where it stopped, in smaller "
            "pieces. A tool call that was cut did not run as meant: make it again, with less content or in parts."
        )
        return TriggerMessage(text=text, title="Output cut"), state


class ToolCallCountTrigger(Trigger, frozen=True, kw_only=True):
    """A user notice after each `every` tool calls of a turn."""

    every: int = NOTICE_EVERY_CALLS

    def check(self, moment: TriggerContext, state: JSONObject) -> tuple[TriggerMessage | None, JSONObject]:
        turn = [moment.conversation, moment.turn]
        reported: int = state.get("told", 0) if state.get("turn") == turn else 0
        if moment.tool_calls // self.every <= reported // self.every:
            return None, state
        text = (
            f"Tool calls: {moment.tool_calls} so far in this turn, step {moment.step}, context at "
            f"{percent(moment.share)}."
        )
        return TriggerMessage(text=text, title="Tool calls", kind="hint"), {"turn": turn, "told": moment.tool_calls}


def limit_triggers() -> list[Trigger]:
    """Return the triggers that warn before a limit of the turn is reached: steps, calls, cost, time."""
    return [
        step_limit_trigger(),
        tool_call_limit_trigger(),
        cost_limit_trigger(),
        time_limit_trigger(),
        OutputTruncatedTrigger(name="output_cut", priority=45),
        ToolCallCountTrigger(name="call_count", priority=90, kind="hint", at=("mid_step",)),
    ]


# ── open todos ────────────────────────────────────────────────────────────────────────────────────────────────────────
# Open todos, at the start of a session and after a compaction. The list itself is state, and a prompt fragment
# contains it (Guarantee 8.4). The trigger reports the event: at the start of a session or after a compaction there is
# work to continue. The message stays in the log, so it contains the numbers of the todos, which do not change, and not
# their texts, which may.


MAX_LISTED = 20


class OpenTodosTrigger(Trigger, frozen=True, kw_only=True):
    """A message at every evaluation with open todos."""

    intro: Callable[[str], str]

    def check(self, moment: TriggerContext, state: JSONObject) -> tuple[TriggerMessage | None, JSONObject]:
        left = [todo for todo in moment.todos if todo.state in ("open", "doing")]
        if not left:
            return None, state
        count = f"{len(left)} of {len(moment.todos)} todos {'is' if len(left) == 1 else 'are'} not done"
        text = f"{self.intro(count)} ({_listed_numbers(left)}). {_continue_text(left)}"
        return TriggerMessage(text=text, title="Todos left"), state


def todo_triggers() -> list[Trigger]:
    """Return the triggers that remind of open todos."""
    return [
        _open_todos_trigger(
            "todos_at_start", "session_start", lambda count: f"Todos: this session begins with work left, {count}"
        ),
        _open_todos_trigger(
            "todos_after_compaction",
            "after_compaction",
            lambda count: f"Todos: earlier messages were replaced by a summary, and {count}",
        ),
    ]


def _open_todos_trigger(name: str, when: TriggerTime, lead: Callable[[str], str]) -> Trigger:
    return OpenTodosTrigger(name=name, priority=10, at=(when,), intro=lead)


def _listed_numbers(left: Sequence[Todo]) -> str:
    named = ", ".join(str(todo.number) for todo in left[:MAX_LISTED])
    return f"number{'s' if len(left) > 1 else ''} {named}{', …' if len(left) > MAX_LISTED else ''}"


def _continue_text(left: Sequence[Todo]) -> str:
    doing = [todo.number for todo in left if todo.state == "doing"]
    where = f"Number {doing[0]} was being worked on; go on there" if doing else f"Go on with number {left[0].number}"
    return f"{where}, unless the user asks for something else, and keep the list up to date."


# ── memory and CPU ────────────────────────────────────────────────────────────────────────────────────────────────────
# High memory and CPU usage, and the recovery. Off by default. The model's own work can be the cause (a build, a large
# file), and it can reduce it. The trigger context contains the shares; `read_resources` reads them on first use with
# psutil (extra `resources`). In a container with a memory limit the share of that limit is used if it is higher. CPU
# is the share of all processors since the last reading.


CGROUP = Path("/sys/fs/cgroup")


def memory_trigger(enter: float = 0.85, exit: float = 0.75) -> Trigger:
    """Return a trigger that warns of high memory usage, and reports when it is over."""
    return ThresholdTrigger(
        name="memory",
        priority=30,
        value=lambda moment: moment.resources().memory,
        enter=enter,
        exit=exit,
        text=lambda moment: (
            f"Memory warning: {percent(moment.resources().memory)} of this machine's memory is in use. Work in smaller "
            "pieces, start nothing that needs much memory, and end what is no longer needed."
        ),
        title="Memory high",
        exit_text=lambda moment: (
            f"Memory recovered: {percent(moment.resources().memory)} is in use. The earlier memory warning no longer "
            "holds."
        ),
        exit_title="Memory recovered",
    )


def cpu_trigger(enter: float = 0.9, exit: float = 0.7) -> Trigger:
    """Return a trigger that warns of high CPU usage, and reports when it is over."""
    return ThresholdTrigger(
        name="cpu",
        priority=31,
        value=lambda moment: moment.resources().cpu,
        enter=enter,
        exit=exit,
        text=lambda moment: (
            f"CPU warning: {percent(moment.resources().cpu)} of this machine's processor time is in use. Commands take "
            "longer; run one at a time, and allow for more time."
        ),
        title="CPU high",
        exit_text=_cpu_recovered_text,
        exit_title="CPU recovered",
    )


def _cpu_recovered_text(moment: TriggerContext) -> str:
    return f"CPU recovered: {percent(moment.resources().cpu)} is in use. The earlier CPU warning no longer holds."


def resource_triggers() -> list[Trigger]:
    """Return the triggers for memory and CPU usage."""
    return [memory_trigger(), cpu_trigger()]


def read_resources(cgroup: Path = CGROUP) -> ResourceUsage:
    """Return the memory and CPU in use now. The first CPU reading in a process is 0, because it has no reference."""
    try:
        import psutil
    except ImportError as error:
        raise InvalidSetting(
            "Cannot read memory and CPU usage: psutil is not installed",
            fix="Run pip install 'contextc[resources]', or omit these triggers.",
        ) from error
    memory = psutil.virtual_memory().percent / 100
    return ResourceUsage(memory=max(memory, _container_memory_share(cgroup)), cpu=psutil.cpu_percent() / 100)


def _container_memory_share(cgroup: Path) -> float:
    """Return the used share of the container's memory limit, without file caches; 0 if there is no limit.

    Without a limit cgroup v2 reports `max`, and v1 a number near 2^63, so the share is about 0.
    """
    for limit_file, used_file, stat_file, cache in (
        ("memory.max", "memory.current", "memory.stat", "inactive_file"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat", "total_inactive_file"),
    ):
        try:
            limit = (cgroup / limit_file).read_text().strip()
            if not limit.isdigit() or not int(limit):
                continue
            used = int((cgroup / used_file).read_text())
            stat = dict(line.split(maxsplit=1) for line in (cgroup / stat_file).read_text().splitlines())
        except (OSError, ValueError):
            continue
        return min(max(used - int(stat.get(cache, 0)), 0) / int(limit), 1.0)
    return 0.0


# ── a turn without progress ───────────────────────────────────────────────────────────────────────────────────────────
# Triggers for a turn without progress: equal calls with equal results, or a tool that repeats the same error.
#
# Both use only the replies and results of the last steps. Calls are compared by name, arguments and result; ids and
# the order of parallel calls are ignored. An incomplete reply is ignored, because no model sees it. A user message
# resets the count, and so does a reply without calls. Tool results are never quoted: they are untrusted, and these are
# system messages.


NO_PROGRESS = "no_progress"
PROGRESS_GROUP = "progress"
CallOutcome: TypeAlias = tuple[str, bytes, str | tuple[Text | Media, ...], bool]
"""One call: its tool, its arguments, its result, and True if that is an error."""
_FOREIGN = re.compile(r"[^\w.:/-]+")


class NoProgressTrigger(Trigger, frozen=True, kw_only=True):
    """A warning after `warn_after` equal steps in a row; after `stop_after` of them the turn ends.

    Within the reply of a provider that runs its own loop there is only the warning: such a program may ask again and
    again whether something is finished, and ends its loop itself.
    """

    warn_after: int = 2
    stop_after: int = 4

    def check(self, moment: TriggerContext, state: JSONObject) -> tuple[TriggerMessage | None, JSONObject]:
        mark, times = _equal_steps(_complete_messages(moment.last))
        if times < max(min(self.warn_after, self.stop_after), 2):
            return None, {}
        lead = f"No progress: the last {times} steps made the same calls and got the same results."
        if times >= self.stop_after and not moment.within_reply:
            message = TriggerMessage(
                text=f"{lead} The turn ends here.", level=3, stop=NO_PROGRESS, title="No progress, stopped"
            )
            return message, {"corrected": mark}
        if state.get("corrected") == mark:
            return None, state
        text = (
            f"{lead} Making them again will change nothing. Use what they returned, try another way, or say what is "
            "missing."
        )
        if not moment.within_reply:
            text += f" After {self.stop_after} equal steps the turn ends."
        return TriggerMessage(text=text, level=2, title="No progress"), {"corrected": mark}


class RepeatedErrorTrigger(Trigger, frozen=True, kw_only=True):
    """A message when a tool has failed `times` times in a row with the same error, whatever its arguments."""

    times: int = 3

    def check(self, moment: TriggerContext, state: JSONObject) -> tuple[TriggerMessage | None, JSONObject]:
        failing = {
            name: mark
            for name, (mark, times) in _repeated_errors(_complete_messages(moment.last)).items()
            if times >= self.times
        }
        known: JSONObject = state.get("failing") or {}
        new = [name for name, mark in failing.items() if known.get(name) != mark]
        kept: JSONObject = {"failing": failing} if failing else {}
        if not new:
            return None, kept
        tools = ", ".join(sorted({_safe_tool_name(name) for name in new}))
        text = (
            f"Repeated error: the tool{'s' if len(new) > 1 else ''} {tools} failed at least {self.times} times in a "
            "row with the same error. Read the error, and try something else: other arguments, another tool, or a "
            "question to the user."
        )
        return TriggerMessage(text=text, level=1, title="Repeated tool error"), kept


def progress_triggers() -> list[Trigger]:
    """Return the triggers that warn of a turn without progress: repeated calls and repeated errors."""
    return [
        NoProgressTrigger(name="no_progress", group=PROGRESS_GROUP, priority=40),
        RepeatedErrorTrigger(name="repeated_error", group=PROGRESS_GROUP, priority=41),
    ]


def _complete_messages(messages: Sequence[Message]) -> list[Message]:
    """Return the messages without incomplete replies and the results of their calls."""
    broken = {call.id for message in messages if _is_incomplete(message) for call in message.tool_calls}
    return [
        message
        for message in messages
        if not _is_incomplete(message) and not any(result.call_id in broken for result in message.tool_results)
    ]


def _is_incomplete(message: Message) -> bool:
    return message.role == "assistant" and message.status != "sent"


def _equal_steps(messages: Sequence[Message]) -> tuple[str, int]:
    """Return a hash of the newest step's outcome, if earlier steps equal it, and the number of equal steps in a row."""
    steps = (_step_outcomes(*step) for step in _steps_newest_first(messages))
    newest = next(steps, None)
    if newest is None:
        return "", 0
    times = 1 + sum(1 for _ in takewhile(lambda other: other == newest, steps))
    return hash_blob(encode_canonical(newest))[:16] if times > 1 else "", times


def _steps_newest_first(messages: Sequence[Message]) -> Iterator[tuple[tuple[ToolCall, ...], dict[str, ToolResult]]]:
    """Yield each reply's calls with the results by call id, back to the last user message."""
    results: dict[str, ToolResult] = {}
    for message in reversed(messages):
        if message.role == "user":
            return
        results |= {result.call_id: result for result in reversed(message.tool_results)}
        if message.role == "assistant":
            yield message.tool_calls, results
            results = {}


def _step_outcomes(calls: Sequence[ToolCall], results: dict[str, ToolResult]) -> list[CallOutcome] | None:
    """Return the outcomes of a step; None for a step without calls, or with a call without a result."""
    if not calls or any(call.id not in results for call in calls):
        return None
    outcomes = [
        (call.name, encode_canonical(call.raw if call.malformed else call.arguments), result.content, result.is_error)
        for call in calls
        for result in (results[call.id],)
    ]
    return sorted(outcomes, key=lambda outcome: outcome[:2])


def _repeated_errors(messages: Iterable[Message]) -> dict[str, tuple[str, int]]:
    """Return, by tool, its newest error and how many of its newest results in a row are that error."""
    found: dict[str, tuple[str, int]] = {}
    for message in messages:
        if message.role == "user":
            found.clear()
        for result in message.tool_results:
            if not result.is_error:
                found.pop(result.name, None)
                continue
            mark = hash_blob(encode_canonical(result.content))[:16]
            before, times = found.get(result.name, (mark, 0))
            found[result.name] = mark, times + 1 if before == mark else 1
    return found


def _safe_tool_name(name: str) -> str:
    """Return a tool name, as the model wrote it, as one word without special characters."""
    return _FOREIGN.sub("_", name)[:64]
