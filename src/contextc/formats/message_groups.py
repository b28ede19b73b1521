"""Groups of messages: segments of a history, and tool results in the order of their calls."""

import sys
from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Generic, TypeVar

from msgspec.structs import replace

from contextc.messages import PLACED_KEY, Message, Role

APART_KEY = "apart"
"""Key in the `extra` of a message: it was read next to a message of the same role, or as the first message."""
OUT_OF_ORDER = sys.maxsize
"""Position of a result that is out of order. No other position is greater."""


def merge_unordered_results(messages: list[Message]) -> list[Message]:
    """Return the messages of a request, with results that are out of call order merged into one message.

    Results in separate messages are sent in the order of their calls. Results of one message keep their own order.
    Messages marked `APART_KEY` are not merged.
    """
    groups: list[list[Message]] = []
    places: dict[str, list[int]] = {}  # call id -> indexes of calls in the last reply, the first one at the end
    asked = 0
    size, place, known = 0, OUT_OF_ORDER, False  # last group: number of parts, last position, all ids known
    for message in messages:
        if message.role != "tool":
            calls = message.tool_calls if message.role == "assistant" else ()
            asked, places, known = len(calls), {}, False
            for index in range(asked - 1, -1, -1):
                places.setdefault(calls[index].id, []).append(index)
            groups.append([message])
            continue
        ids = [result.call_id for result in message.tool_results]
        found = [places[each].pop() if places.get(each) else OUT_OF_ORDER for each in ids]
        all_asked = all(each in places for each in ids)
        disordered = asked > 1 and known and all_asked and size < asked and _last_in_order(found, place) == OUT_OF_ORDER
        if disordered and not is_apart(message):
            groups[-1].append(message)
            size, place = size + len(message.parts), OUT_OF_ORDER
        else:
            groups.append([message])
            size, place, known = len(message.parts), _last_in_order(found, -1), all_asked
    return [merge_messages(group) for group in groups]


def mark_positions(messages: Sequence[Message], extra_key: str) -> list[Message]:
    """Return the messages of a request, with `PLACED_KEY` on those that pairing would change.

    These are tool messages that it would move or merge, and replies that use the id of an answered call again.
    """
    found: list[Message] = []
    asked_before: set[str] = set()
    answered: set[str] = set()
    for is_tool, group in groupby(messages, lambda message: message.role == "tool"):
        run = list(group)
        if is_tool:
            asked = [call.id for call in found[-1].tool_calls] if found else []
            ids = [result.call_id for message in run for result in message.tool_results]
            in_order = ids == asked and not any(map(is_apart, run[1:]))
            if not (in_order or (len(run) == 1 and sorted(ids) == sorted(asked))):
                run = [_with_mark(message, extra_key) for message in run]
        for message in run:
            ids = {call.id for call in message.tool_calls}
            again = ids & asked_before
            found.append(_with_mark(message, extra_key) if again and again <= answered else message)
            asked_before |= ids
            answered -= ids
            answered.update([result.call_id for result in message.tool_results])
    return found


def _with_mark(message: Message, extra_key: str) -> Message:
    extra = message.extra or {}
    return replace(message, extra={**extra, extra_key: {**extra.get(extra_key, {}), PLACED_KEY: True}})


def is_apart(message: Message) -> bool:
    return message.extra is not None and any(said.get(APART_KEY) for said in message.extra.values())


def _last_in_order(places: list[int], before: int) -> int:
    """Return the last of these positions if they ascend from `before`, else `OUT_OF_ORDER`."""
    for place in places:
        if place <= before or place == OUT_OF_ORDER:
            return OUT_OF_ORDER
        before = place
    return before


def merge_messages(group: Sequence[Message]) -> Message:
    """Return the first of these messages with the parts of all of them."""
    first = group[0]
    return first if len(group) == 1 else replace(first, parts=tuple([part for each in group for part in each.parts]))


def merge_neighbours(messages: Iterable[Message], role: Role) -> list[Message]:
    """Return the messages with neighbours of one role merged."""
    groups: list[list[Message]] = []
    for message in messages:
        if groups and groups[-1][0].role == message.role == role:
            groups[-1].append(message)
        else:
            groups.append([message])
    return [merge_messages(group) for group in groups]


def split_segments(history: Sequence[Message]) -> Iterator[list[Message]]:
    """Split a paired history before each reply of the model."""
    segment: list[Message] = []
    for message in history:
        if message.role == "assistant" and segment:
            yield segment
            segment = []
        segment.append(message)
    if segment:
        yield segment


# ── calls that wait for a result ──────────────────────────────────────────────────────────────────────────────────────
# Calls without results, indexed by what a result may identify them with: an id, a name, or their order.


T = TypeVar("T")


class _Entry(Generic[T]):
    __slots__ = ("is_open", "number", "value")

    def __init__(self, number: int, value: T) -> None:
        self.number, self.value, self.is_open = number, value, True


class OpenCalls(Generic[T]):
    """Values in insertion order, each under several keys, until they are taken."""

    def __init__(self) -> None:
        self._entries: list[_Entry[T]] = []
        self._queues: dict[Hashable, deque[_Entry[T]]] = {}
        self._taken = 0

    def __len__(self) -> int:
        return len(self._entries) - self._taken

    def add(self, value: T, *keys: Hashable) -> None:
        entry = _Entry(len(self._entries), value)
        self._entries.append(entry)
        for key in keys:
            self._queues.setdefault(key, deque()).append(entry)

    def pop(self, *keys: Hashable) -> T | None:
        """Remove and return the first remaining value with one of these keys, or None."""
        first: _Entry[T] | None = None
        for key in keys:
            queue = self._queues.get(key)
            while queue and not queue[0].is_open:
                queue.popleft()
            if queue and (first is None or queue[0].number < first.number):
                first = queue[0]
        if first is None:
            return None
        first.is_open = False
        self._taken += 1
        return first.value

    def remaining(self) -> Iterable[T]:
        """Return the values that were not taken, in order."""
        return [entry.value for entry in self._entries if entry.is_open]
