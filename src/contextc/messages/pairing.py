"""Pairing of tool calls with their results, used wherever a history is sent, trimmed or checked.

In the output every call is directly followed by its result, whatever the order in the log. Matching is by id, never by
name or position. Some providers reuse an id after it was answered; a result belongs to the oldest unanswered call
with its id. Results that were read from a request stay where they were if their provider accepts them there.

    Before                          After
    assistant  calls a, b           assistant  calls a, b
    user       "and hurry"          tool       results of a, b
    tool       result of b          user       "and hurry"
    tool       result of a
"""

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from contextc.messages import AnyPart, Extra, Message, Text, ToolCall, ToolResult

UnansweredReason: TypeAlias = Literal["interrupted", "cancelled", "still running"]
PairingRepairKind: TypeAlias = Literal["synthetic", "orphan", "duplicate", "moved", "renamed"]

ResultPlacement: TypeAlias = Literal["after call", "after replies", "later"]
"""Where a provider accepts results: directly after their call, after the replies that follow it, or anywhere later."""

PLACED_KEY = "placed"
"""Key in the `extra` of a message of a request that pairing would have written in another way.

It marks tool messages in another position, and replies that reuse call ids.
"""

SYNTHETIC_RESULTS: dict[UnansweredReason, str] = {
    "interrupted": "Interrupted: this call has no result. Whether the tool ran is not known.",
    "cancelled": "Cancelled: the tool was not run to its end.",
    "still running": "Still running: the result is not here yet, and will follow in a later message.",
}


class PairingRepair(Struct, frozen=True):
    """A repair of a history: a result that was synthesized, dropped or moved, or an id that was renamed."""

    kind: PairingRepairKind
    call_id: str
    message_index: int  # the index of the message it was found in


class PairedHistory(NamedTuple):
    messages: list[Message]
    repairs: list[PairingRepair]


def pair_tool_calls(
    messages: Sequence[Message],
    *,
    unanswered: UnansweredReason = "interrupted",
    orphans_as_text: bool = False,
    unique_ids: bool = False,
    encode_id: Callable[[str], str] = str,
    used_ids: Collection[str] = (),
    placement: ResultPlacement = "after call",
    placed_by: str = "",
) -> PairedHistory:
    """Return the history with every call directly followed by a tool message that answers it.

    A call without a result gets a synthetic one; `unanswered` is its reason for calls of the last message with calls. A
    result without a call is dropped, and of two results for one call the first is used. With `orphans_as_text` dropped
    results become user text. Of two calls in one message with the same id, the second gets a new id. With
    `unique_ids` so does every call whose id was used before. `encode_id` maps ids to their wire form, which must be
    unique. `used_ids` are the wire ids of calls before these messages. Tool messages that were read in the format
    `placed_by` (a key of `extra`) keep their position if `placement` allows it.
    """
    if (ordered := _pair_without_repair(messages, unique_ids, encode_id, used_ids, placed_by)) is not None:
        return PairedHistory(ordered, [])
    answers, places, strays, repairs = _match_results(messages)
    stay = _find_staying(messages, places, strays, placement, placed_by) if placed_by else {}
    repairs = [each for each in repairs if each.message_index not in stay]
    last = max((index for index, _ in answers), default=-1)
    known = {answer.call_id for answer in answers.values() if answer is not None}
    used: set[str] = {*used_ids}
    numbers: dict[str, int] = {}
    found: list[Message] = []
    for index, message in enumerate(messages):
        if index in stay:
            found.append(replace(message, parts=tuple([stay[index][at] for at in range(len(message.parts))])))
            continue
        if message.role == "tool":
            if orphans_as_text:
                found += [_orphan_as_text(stray, message, stray.call_id in known) for stray in strays.get(index, ())]
            if rest := tuple([part for part in message.parts if not isinstance(part, ToolResult)]):
                found.append(replace(message, parts=rest))
            continue
        calls = message.tool_calls
        others = used if unique_ids and not is_placed(message, placed_by) else set[str]()
        if calls and not _are_new(calls, others, encode_id):
            message = _with_new_ids(message, others, encode_id, numbers)
            repairs += [
                PairingRepair("renamed", before.id, index)
                for before, now in zip(calls, message.tool_calls, strict=True)
                if before.id != now.id
            ]
        found.append(message)
        if not calls:
            continue
        results: list[AnyPart] = []
        positions: list[tuple[int, int] | None] = []
        for order, call in enumerate(message.tool_calls):
            used.add(encode_id(call.id))
            answer = answers[index, order]
            if answer is None:
                answer = make_synthetic_result(call, _reason(message, unanswered if index == last else "interrupted"))
                repairs.append(PairingRepair("synthetic", call.id, index))
            if answer.call_id != call.id or answer.name != call.name:
                answer = replace(answer, call_id=call.id, name=call.name)
            place = places.get((index, order))
            if place is not None and place[0] in stay:
                stay[place[0]][place[1]] = answer
                continue
            results.append(answer)
            positions.append(place)
        if not results:
            continue
        extra: Extra | None = None
        if (
            len({place[0] if place else None for place in positions}) == 1 and positions[0]
        ):  # all results were in one message
            extra = messages[positions[0][0]].extra
            results = [
                result for _, result in sorted(zip(positions, results, strict=True), key=lambda each: each[0] or (0, 0))
            ]
        found.append(Message(role="tool", parts=tuple(results), author=message.author, extra=extra))
    return PairedHistory(found, repairs)


def _pair_without_repair(
    messages: Sequence[Message], unique_ids: bool, spelled: Callable[[str], str], taken: Collection[str], placed_by: str
) -> list[Message] | None:
    """Return the paired history if it needs no repair, which is usual, otherwise None.

    `type(part) is …` instead of `isinstance`, here and in the encoders: a failing `isinstance` costs five times as
    much, and this runs for every part.
    """
    found: list[Message] = []
    asked: list[ToolCall] = []
    answers: dict[str, ToolResult] = {}
    used: set[str] = set()
    author: str | None = None
    extra: Extra | None = None
    several = 0
    for message in messages:
        if message.role == "tool":
            if is_placed(message, placed_by):
                return None
            several += 1
            extra = message.extra if several == 1 else None
            for part in message.parts:
                if type(part) is not ToolResult or part.call_id in answers:
                    return None
                answers[part.call_id] = part
            continue
        if asked or answers:
            if (results := _collect_results(asked, answers, several > 1)) is None:
                return None
            found.append(Message(role="tool", parts=results, author=author, extra=extra))
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
        if (results := _collect_results(asked, answers, several > 1)) is None:
            return None
        found.append(Message(role="tool", parts=results, author=author, extra=extra))
    return found


def _collect_results(
    asked: list[ToolCall], answers: dict[str, ToolResult], several: bool
) -> tuple[ToolResult, ...] | None:
    """Return the results in the order of their calls if they come from `several` messages, otherwise in their own.

    Return None if one is missing, surplus, or has another name.
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


def is_placed(message: Message, placed_by: str) -> bool:
    """Return True if a tool message was read in this format, in a position that pairing would change."""
    return message.extra is not None and bool(message.extra.get(placed_by, {}).get(PLACED_KEY))


def _find_staying(
    messages: Sequence[Message],
    places: Mapping[tuple[int, int], tuple[int, int]],
    strays: Mapping[int, list[ToolResult]],
    placement: ResultPlacement,
    placed_by: str,
) -> dict[int, dict[int, ToolResult]]:
    """Return the indexes of tool messages that keep their position, each with room for its results by position."""
    calls: dict[int, list[int]] = {}
    for call, place in places.items():
        calls.setdefault(place[0], []).append(call[0])
    stay: dict[int, dict[int, ToolResult]] = {}
    reply, role = -1, ""  # the first of the replies directly before the tool messages; the role of the last message
    for index, message in enumerate(messages):
        if message.role != "tool":
            reply = reply if message.role == role == "assistant" else index
        elif is_placed(message, placed_by) and index in calls and index not in strays:
            first = {"later": 0, "after replies": reply, "after call": index}[placement]
            if min(calls[index]) >= first and len(calls[index]) == len(message.parts):
                stay[index] = {}
        role = message.role
    return stay


def find_open_calls(messages: Sequence[Message]) -> list[tuple[Message, ToolCall]]:
    """Return the calls without a result, each with its message. Two agents may use the same ids at once."""
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


def make_synthetic_result(call: ToolCall, reason: UnansweredReason) -> ToolResult:
    """Return a synthetic error result for a call without one. Providers require a result for every call."""
    return ToolResult(call_id=call.id, name=call.name, content=SYNTHETIC_RESULTS[reason], is_error=True)


def _match_results(
    messages: Sequence[Message],
) -> tuple[
    dict[tuple[int, int], ToolResult | None],
    dict[tuple[int, int], tuple[int, int]],
    dict[int, list[ToolResult]],
    list[PairingRepair],
]:
    """Match calls, as (message index, order in it), with results.

    Return the result and its position for each call, results without a call, and repairs.
    """
    waiting: dict[str, deque[tuple[int, int]]] = {}
    answers: dict[tuple[int, int], ToolResult | None] = {}
    places: dict[tuple[int, int], tuple[int, int]] = {}
    answered: dict[str, ToolResult] = {}
    strays: dict[int, list[ToolResult]] = {}
    repairs: list[PairingRepair] = []
    spoke = -1  # the last message that is not a tool message
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
                    repairs.append(PairingRepair("moved", result.call_id, index))
                continue
            first = answered.get(result.call_id)
            repairs.append(PairingRepair("orphan" if first is None else "duplicate", result.call_id, index))
            if first is None or first.content != result.content:
                strays.setdefault(index, []).append(result)
    return answers, places, strays, repairs


def _orphan_as_text(stray: ToolResult, message: Message, answered: bool) -> Message:
    """Return a result without a call as a user message."""
    content = (Text(stray.content),) if isinstance(stray.content, str) else stray.content
    what = "another result" if answered else "a result"
    why = "" if answered else ", whose call is not here"
    return replace(message, role="user", parts=(Text(f"[{what} of {stray.name}{why}:]"), *content))


def _are_new(calls: Sequence[ToolCall], used: set[str], spelled: Callable[[str], str]) -> bool:
    ids = {spelled(call.id) for call in calls}
    return len(ids) == len(calls) and ids.isdisjoint(used)


def _with_new_ids(message: Message, used: set[str], spelled: Callable[[str], str], numbers: dict[str, int]) -> Message:
    """Return the message with unused ids for its calls; `numbers` holds the last suffix of each id."""
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


def _reason(message: Message, default: UnansweredReason) -> UnansweredReason:
    return "cancelled" if message.status == "cancelled" else default
