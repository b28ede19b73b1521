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

from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import Literal, NamedTuple, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from contextc.messages import AnyPart, Message, Text, ToolCall, ToolResult

Reason: TypeAlias = Literal["interrupted", "cancelled", "still running"]
Kind: TypeAlias = Literal["synthetic", "orphan", "duplicate", "moved", "renamed"]

SAID: dict[Reason, str] = {
    "interrupted": "Interrupted: this call has no result. Whether the tool ran is not known.",
    "cancelled": "Cancelled: the tool was not run to its end.",
    "still running": "Still running: the result is not here yet, and will follow in a later message.",
}


class Repair(Struct, frozen=True):
    """Something that was put right: a result made up, left out or brought to its call, an id that was taken."""

    kind: Kind
    call_id: str
    message: int  # the index of the message it was found in


class Paired(NamedTuple):
    messages: list[Message]
    repairs: list[Repair]


def pair(
    messages: Sequence[Message],
    *,
    unanswered: Reason = "interrupted",
    strays_as_text: bool = False,
    unique_ids: bool = False,
    spelled: Callable[[str], str] = str,
    taken: Collection[str] = (),
) -> Paired:
    """The same history with every call followed at once by a tool message that answers it.

    A call without a result gets one that says so; `unanswered` is what it says for calls of the last message that has
    any. A result without a call is left out, that part alone, and of two results for one call the first is taken;
    with `strays_as_text` the others become text of the user. Of two calls in one message with the same id the second
    gets another, and with `unique_ids` so does every call whose id was used before; `spelled` says how ids will be
    written, because they must differ then. `taken` are those, so written, of calls before these messages.
    """
    if (ordered := _in_order(messages, unique_ids, spelled, taken)) is not None:
        return Paired(ordered, [])
    answers, places, strays, repairs = _match(messages)
    last = max((index for index, _ in answers), default=-1)
    known = {answer.call_id for answer in answers.values() if answer is not None}
    used: set[str] = {*taken} if unique_ids else set()
    numbers: dict[str, int] = {}
    found: list[Message] = []
    for index, message in enumerate(messages):
        if message.role == "tool":
            if strays_as_text:
                found += [_as_text(stray, message, stray.call_id in known) for stray in strays.get(index, ())]
            if rest := tuple([part for part in message.parts if not isinstance(part, ToolResult)]):
                found.append(replace(message, parts=rest))
            continue
        calls = message.tool_calls
        if not unique_ids:
            used.clear()
        if calls and not _are_new(calls, used, spelled):
            message = _renamed(message, used, spelled, numbers)
            repairs += [
                Repair("renamed", before.id, index)
                for before, now in zip(calls, message.tool_calls, strict=True)
                if before.id != now.id
            ]
        found.append(message)
        if not calls:
            continue
        results: list[AnyPart] = []
        for order, call in enumerate(message.tool_calls):
            used.add(spelled(call.id))
            answer = answers[index, order]
            if answer is None:
                answer = synthetic(call, _reason(message, unanswered if index == last else "interrupted"))
                repairs.append(Repair("synthetic", call.id, index))
            if answer.call_id != call.id or answer.name != call.name:
                answer = replace(answer, call_id=call.id, name=call.name)
            results.append(answer)
        stood = [places.get((index, order)) for order in range(len(results))]
        if len({place[0] if place else None for place in stood}) == 1 and stood[0]:  # one message had them all
            results = [
                result for _, result in sorted(zip(stood, results, strict=True), key=lambda each: each[0] or (0, 0))
            ]
        found.append(Message(role="tool", parts=tuple(results), author=message.author))
    return Paired(found, repairs)


def _in_order(
    messages: Sequence[Message], unique_ids: bool, spelled: Callable[[str], str], taken: Collection[str]
) -> list[Message] | None:
    """The paired history, where nothing has to be put right, as is usual; None where something might have to.

    `type(part) is …` and not `isinstance`, here and in the encoders: asking a struct what it is not costs five times
    as much, and this is asked of every part.
    """
    found: list[Message] = []
    asked: list[ToolCall] = []
    answers: dict[str, ToolResult] = {}
    used: set[str] = set()
    author: str | None = None
    several = 0
    for message in messages:
        if message.role == "tool":
            several += 1
            for part in message.parts:
                if type(part) is not ToolResult or part.call_id in answers:
                    return None
                answers[part.call_id] = part
            continue
        if asked or answers:
            if (results := _answers(asked, answers, several > 1)) is None:
                return None
            found.append(Message(role="tool", parts=results, author=author))
            asked, answers, several = [], {}, 0
        found.append(message)
        for part in message.parts:
            if type(part) is ToolCall:
                name = spelled(part.id)
                if name in used or (unique_ids and name in taken):
                    return None
                used.add(name)
                asked.append(part)
                author = message.author
            elif type(part) is ToolResult:
                return None
        if not unique_ids:
            used.clear()
    if asked or answers:
        if (results := _answers(asked, answers, several > 1)) is None:
            return None
        found.append(Message(role="tool", parts=results, author=author))
    return found


def _answers(asked: list[ToolCall], answers: dict[str, ToolResult], several: bool) -> tuple[ToolResult, ...] | None:
    """The results, in the order of their calls if they are `several` messages, else in their own; None where one is
    missing, one too many, or under another name.
    """
    results: list[ToolResult] = []
    for call in asked:
        answer = answers.get(call.id)
        if answer is None or answer.name != call.name:
            return None
        results.append(answer)
    if len(results) != len(answers):
        return None
    return tuple(results if several else answers.values())


def open_calls(messages: Sequence[Message]) -> list[tuple[Message, ToolCall]]:
    """The calls that have no result, each with the message it is in. Two agents may use the same ids at once."""
    waiting: dict[int, tuple[Message, ToolCall]] = {}
    places: dict[tuple[str | None, ...], deque[int]] = {}  # by id and author, and by id alone
    count = 0
    for message in messages:
        for result in message.tool_results:
            for key in ((result.call_id, message.author), (result.call_id,)):
                queue = places.get(key, deque())
                while queue and queue[0] not in waiting:
                    queue.popleft()
                if queue:
                    del waiting[queue.popleft()]
                    break
        for call in message.tool_calls:
            waiting[count] = message, call
            for key in ((call.id, message.author), (call.id,)):
                places.setdefault(key, deque()).append(count)
            count += 1
    return list(waiting.values())


def synthetic(call: ToolCall, reason: Reason) -> ToolResult:
    """A result for a call that has none: providers demand one, and the model should know."""
    return ToolResult(call_id=call.id, name=call.name, content=SAID[reason], is_error=True)


def _match(
    messages: Sequence[Message],
) -> tuple[
    dict[tuple[int, int], ToolResult | None],
    dict[tuple[int, int], tuple[int, int]],
    dict[int, list[ToolResult]],
    list[Repair],
]:
    """Each call, as (message, order in it), with its result, and where that stands; the results nobody asked for; what
    is wrong.
    """
    waiting: dict[str, deque[tuple[int, int]]] = {}
    answers: dict[tuple[int, int], ToolResult | None] = {}
    places: dict[tuple[int, int], tuple[int, int]] = {}
    answered: dict[str, ToolResult] = {}
    strays: dict[int, list[ToolResult]] = {}
    repairs: list[Repair] = []
    spoke = -1  # the last message that is no tool's
    for index, message in enumerate(messages):
        spoke = spoke if message.role == "tool" else index
        for order, call in enumerate(message.tool_calls):
            waiting.setdefault(call.id, deque()).append((index, order))
            answers[index, order] = None
        for position, result in enumerate(message.tool_results):
            if calls := waiting.get(result.call_id):
                place = calls.popleft()
                places[place] = (index, position)
                answers[place] = answered[result.call_id] = result
                if spoke > place[0]:
                    repairs.append(Repair("moved", result.call_id, index))
                continue
            first = answered.get(result.call_id)
            repairs.append(Repair("orphan" if first is None else "duplicate", result.call_id, index))
            if first is None or first.content != result.content:
                strays.setdefault(index, []).append(result)
    return answers, places, strays, repairs


def _as_text(stray: ToolResult, message: Message, answered: bool) -> Message:
    """A result nobody asked for, as something the user shows."""
    content = (Text(stray.content),) if isinstance(stray.content, str) else stray.content
    what = "another result" if answered else "a result"
    why = "" if answered else ", whose call is not here"
    return replace(message, role="user", parts=(Text(f"[{what} of {stray.name}{why}:]"), *content))


def _are_new(calls: Sequence[ToolCall], used: set[str], spelled: Callable[[str], str]) -> bool:
    ids = {spelled(call.id) for call in calls}
    return len(ids) == len(calls) and ids.isdisjoint(used)


def _renamed(message: Message, used: set[str], spelled: Callable[[str], str], numbers: dict[str, int]) -> Message:
    """The message with ids for its calls that no call before had; `numbers` is where each id's count stands."""
    here: set[str] = set()
    parts: list[AnyPart] = []
    for part in message.parts:
        if isinstance(part, ToolCall):
            name = part.id
            while spelled(name) in used or spelled(name) in here:
                numbers[part.id] = numbers.get(part.id, 1) + 1
                name = f"{part.id}_{numbers[part.id]}"
            here.add(spelled(name))
            part = part if name == part.id else replace(part, id=name)
        parts.append(part)
    return replace(message, parts=tuple(parts))


def _reason(message: Message, default: Reason) -> Reason:
    return "cancelled" if message.status == "cancelled" else default
