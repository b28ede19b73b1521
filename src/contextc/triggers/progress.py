"""Triggers for a turn without progress: equal calls with equal results, or a tool that repeats the same error.

Both use only the replies and results of the last steps. Calls are compared by name, arguments and result; ids and the
order of parallel calls are ignored. An incomplete reply is ignored, because no model sees it. A user message resets the
count, and so does a reply without calls. Tool results are never quoted: they are untrusted, and these are system
messages.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile
from typing import TypeAlias

from contextc._json import JSONObject, blob_name, canonical
from contextc.messages import Media, Message, Text, ToolCall, ToolResult
from contextc.triggers.base import Moment, Say, Trigger

STOP = "no_progress"
GROUP = "progress"
Outcome: TypeAlias = tuple[str, bytes, str | tuple[Text | Media, ...], bool]
"""One call: its tool, its arguments, its result, and True if that is an error."""
_FOREIGN = re.compile(r"[^\w.:/-]+")


class NoProgress(Trigger, frozen=True, kw_only=True):
    """A warning after `correct` equal steps in a row; after `stop` of them the turn ends."""

    correct: int = 2
    stop: int = 4

    def check(self, moment: Moment, state: JSONObject) -> tuple[Say | None, JSONObject]:
        mark, times = _equal_steps(_whole(moment.last))
        if times < max(min(self.correct, self.stop), 2):
            return None, {}
        lead = f"No progress: the last {times} steps made the same calls and got the same results."
        if times >= self.stop:
            say = Say(text=f"{lead} The turn ends here.", level=3, stop=STOP, title="No progress, stopped")
            return say, {"corrected": mark}
        if state.get("corrected") == mark:
            return None, state
        text = (
            f"{lead} Making them again will change nothing. Use what they returned, try another way, or say what is "
            f"missing. After {self.stop} equal steps the turn ends."
        )
        return Say(text=text, level=2, title="No progress"), {"corrected": mark}


class RepeatedError(Trigger, frozen=True, kw_only=True):
    """A message when a tool has failed `times` times in a row with the same error, whatever its arguments."""

    times: int = 3

    def check(self, moment: Moment, state: JSONObject) -> tuple[Say | None, JSONObject]:
        failing = {name: mark for name, (mark, times) in _errors(_whole(moment.last)).items() if times >= self.times}
        known: JSONObject = state.get("failing") or {}
        new = [name for name, mark in failing.items() if known.get(name) != mark]
        kept: JSONObject = {"failing": failing} if failing else {}
        if not new:
            return None, kept
        tools = ", ".join(sorted({_readable(name) for name in new}))
        text = (
            f"Repeated error: the tool{'s' if len(new) > 1 else ''} {tools} failed at least {self.times} times in a "
            "row with the same error. Read the error, and try something else: other arguments, another tool, or a "
            "question to the user."
        )
        return Say(text=text, level=1, title="Repeated tool error"), kept


def progress_triggers() -> list[Trigger]:
    return [
        NoProgress(name="no_progress", group=GROUP, priority=40),
        RepeatedError(name="repeated_error", group=GROUP, priority=41),
    ]


def _whole(messages: Sequence[Message]) -> list[Message]:
    """Return the messages without incomplete replies and the results of their calls."""
    broken = {call.id for message in messages if _broke_off(message) for call in message.tool_calls}
    return [
        message
        for message in messages
        if not _broke_off(message) and not any(result.call_id in broken for result in message.tool_results)
    ]


def _broke_off(message: Message) -> bool:
    return message.role == "assistant" and message.status != "sent"


def _equal_steps(messages: Sequence[Message]) -> tuple[str, int]:
    """Return a hash of the newest step's outcome, if earlier steps equal it, and the number of equal steps in a row."""
    steps = (_came_to(*step) for step in _newest_first(messages))
    newest = next(steps, None)
    if newest is None:
        return "", 0
    times = 1 + sum(1 for _ in takewhile(lambda other: other == newest, steps))
    return blob_name(canonical(newest))[:16] if times > 1 else "", times


def _newest_first(messages: Sequence[Message]) -> Iterator[tuple[tuple[ToolCall, ...], dict[str, ToolResult]]]:
    """Yield each reply's calls with the results by call id, back to the last user message."""
    results: dict[str, ToolResult] = {}
    for message in reversed(messages):
        if message.role == "user":
            return
        results |= {result.call_id: result for result in reversed(message.tool_results)}
        if message.role == "assistant":
            yield message.tool_calls, results
            results = {}


def _came_to(calls: Sequence[ToolCall], results: dict[str, ToolResult]) -> list[Outcome] | None:
    """Return the outcomes of a step; None for a step without calls, or with a call without a result."""
    if not calls or any(call.id not in results for call in calls):
        return None
    outcomes = [
        (call.name, canonical(call.raw if call.malformed else call.arguments), result.content, result.is_error)
        for call in calls
        for result in (results[call.id],)
    ]
    return sorted(outcomes, key=lambda outcome: outcome[:2])


def _errors(messages: Iterable[Message]) -> dict[str, tuple[str, int]]:
    """Return, by tool, its newest error and how many of its newest results in a row are that error."""
    found: dict[str, tuple[str, int]] = {}
    for message in messages:
        if message.role == "user":
            found.clear()
        for result in message.tool_results:
            if not result.is_error:
                found.pop(result.name, None)
                continue
            mark = blob_name(canonical(result.content))[:16]
            before, times = found.get(result.name, (mark, 0))
            found[result.name] = mark, times + 1 if before == mark else 1
    return found


def _readable(name: str) -> str:
    """Return a tool name, as the model wrote it, as one word without special characters."""
    return _FOREIGN.sub("_", name)[:64]
