"""Groups of messages: segments of a history, and tool results in the order of their calls."""

import sys
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from contextc.messages import Message

APART = "apart"
"""In the `extra` of a message: its provider took it beside a neighbour of the same role, or as the first."""
NOWHERE = sys.maxsize
"""The place of a result that is not in the order of the calls: none comes after it."""


def in_their_order(messages: list[Message]) -> list[Message]:
    """The messages of a request, where results that are not in the order of their calls are one message.

    Results that were logged one by one go out in the order of their calls; those of one message in their own. Messages
    that stood apart stay apart.
    """
    groups: list[list[Message]] = []
    places: dict[str, list[int]] = {}  # of each id, which calls of the last reply have it, the first one at the end
    asked = 0
    size, place, known = 0, NOWHERE, False  # of the last group: parts, the call that was answered last, all ids asked
    for message in messages:
        if message.role != "tool":
            calls = message.tool_calls if message.role == "assistant" else ()
            asked, places, known = len(calls), {}, False
            for index in range(asked - 1, -1, -1):
                places.setdefault(calls[index].id, []).append(index)
            groups.append([message])
            continue
        ids = [result.call_id for result in message.tool_results]
        found = [places[each].pop() if places.get(each) else NOWHERE for each in ids]
        all_asked = all(each in places for each in ids)
        disordered = asked > 1 and known and all_asked and size < asked and _last_of(found, place) == NOWHERE
        if disordered and not is_apart(message):
            groups[-1].append(message)
            size, place = size + len(message.parts), NOWHERE
        else:
            groups.append([message])
            size, place, known = len(message.parts), _last_of(found, -1), all_asked
    return [together(group) for group in groups]


def is_apart(message: Message) -> bool:
    return message.extra is not None and any(said.get(APART) for said in message.extra.values())


def _last_of(places: list[int], before: int) -> int:
    """The last of these places, where they and the one before are in order; else `NOWHERE`."""
    for place in places:
        if place <= before or place == NOWHERE:
            return NOWHERE
        before = place
    return before


def together(group: Sequence[Message]) -> Message:
    """The first of these messages, with the parts of all of them."""
    first = group[0]
    return first if len(group) == 1 else replace(first, parts=tuple([part for each in group for part in each.parts]))


def segments(history: Sequence[Message]) -> Iterator[list[Message]]:
    """A paired history, cut before each reply of the model."""
    segment: list[Message] = []
    for message in history:
        if message.role == "assistant" and segment:
            yield segment
            segment = []
        segment.append(message)
    if segment:
        yield segment
