"""Calls and their results as groups: one algorithm for everybody who sends, cuts or checks a history.

Whatever order a log has them in, every call is followed at once by its result. Matching is by id, never by name or
position. An id may be used again once it was answered, as some providers do; a result belongs to the oldest call of
its id that still waits for one.

    Before                          After
    assistant  calls a, b           assistant  calls a, b
    user       "and hurry"          tool       results of a, b
    tool       result of b          user       "and hurry"
    tool       result of a
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from contextc.messages import AnyPart, Message, ToolCall, ToolResult

Reason: TypeAlias = Literal["interrupted", "cancelled", "still running"]
Kind: TypeAlias = Literal["synthetic", "orphan", "duplicate", "moved"]

SAID: dict[Reason, str] = {
    "interrupted": "Interrupted: this call has no result. Whether the tool ran is not known.",
    "cancelled": "Cancelled: the tool was not run to its end.",
    "still running": "Still running: the result is not here yet, and will follow in a later message.",
}


class Repair(Struct, frozen=True):
    """Something that was put right: a result made up, left out, or brought to its call."""

    kind: Kind
    call_id: str
    message: int  # the index of the message it was found in


class Paired(NamedTuple):
    messages: list[Message]
    repairs: list[Repair]


def pair(messages: Sequence[Message], *, unanswered: Reason = "interrupted") -> Paired:
    """The same history with every call followed at once by a tool message that answers it.

    A call without a result gets one that says so; `unanswered` is what it says for calls of the last message that has
    any. A result without a call is left out, that part alone, and of two results for one call the first is taken.
    """
    answers, repairs = _match(messages)
    last = max((index for index, message in enumerate(messages) if message.tool_calls), default=-1)
    found: list[Message] = []
    for index, message in enumerate(messages):
        if message.role == "tool":
            if rest := tuple(part for part in message.parts if not isinstance(part, ToolResult)):
                found.append(replace(message, parts=rest))
            continue
        found.append(message)
        if calls := message.tool_calls:
            results: list[AnyPart] = []
            for order, call in enumerate(calls):
                answer = answers.get((index, order))
                if answer is None:
                    reason = _reason(message, unanswered if index == last else "interrupted")
                    answer = synthetic(call, reason)
                    repairs.append(Repair("synthetic", call.id, index))
                results.append(answer)
            found.append(Message(role="tool", parts=tuple(results), author=message.author))
    return Paired(found, repairs)


def synthetic(call: ToolCall, reason: Reason) -> ToolResult:
    """A result for a call that has none: providers demand one, and the model should know."""
    return ToolResult(call_id=call.id, name=call.name, content=SAID[reason], is_error=True)


def _match(messages: Sequence[Message]) -> tuple[dict[tuple[int, int], ToolResult], list[Repair]]:
    """Each call, as (message, order in it), with its result; and what is wrong with the others."""
    waiting: dict[str, list[tuple[int, int]]] = defaultdict(list)
    answers: dict[tuple[int, int], ToolResult] = {}
    answered: set[str] = set()
    repairs: list[Repair] = []
    for index, message in enumerate(messages):
        for order, call in enumerate(message.tool_calls):
            waiting[call.id].append((index, order))
        for result in message.tool_results:
            if calls := waiting[result.call_id]:
                place = calls.pop(0)
                answers[place] = result
                answered.add(result.call_id)
                if not _follows(messages, place[0], index):
                    repairs.append(Repair("moved", result.call_id, index))
            else:
                kind: Kind = "duplicate" if result.call_id in answered else "orphan"
                repairs.append(Repair(kind, result.call_id, index))
    return answers, repairs


def _follows(messages: Sequence[Message], call: int, result: int) -> bool:
    """Whether nothing but other results stands between a call and its result."""
    return all(message.role == "tool" for message in messages[call + 1 : result])


def _reason(message: Message, default: Reason) -> Reason:
    return "cancelled" if message.status == "cancelled" else default
