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

from contextc._json import JSONObject, encode_canonical, hash_blob
from contextc.messages import Media, Message, Text, ToolCall, ToolResult
from contextc.triggers.base import Trigger, TriggerContext, TriggerMessage

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
