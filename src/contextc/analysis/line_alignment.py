"""Align the elements of a section with the items of the ledger that they were made from: both have the same tokens.

The inspector lists items, and findings and compositions are about elements. The tokens of the elements of an item add
up to those of the item.
"""

from collections.abc import Sequence
from itertools import groupby

from contextc.analysis.request_elements import Element, Section, weigh
from contextc.compiler.options import distribute
from contextc.store.ledger_schema import Item

ROLES = {
    "user": "user", "assistant": "assistant", "model": "assistant", "system": "system", "developer": "system",
    "tool": "tool", "function": "tool",
}  # fmt: skip


def align_items(section: Section, items: Sequence[Item]) -> list[int | None]:
    """Return the index of the item of each element of a section; None if it is not certain.

    Items and elements are compared by role, in their order. Several items may be one message, and one item several
    elements.
    """
    if len(items) <= 1:
        return [0 if items else None] * len(section.elements)
    runs = [(role, list(some)) for role, some in groupby(range(len(items)), lambda index: _item_role(items[index]))]
    found: list[int | None] = []
    at = 0
    elements = list(zip(section.elements, section.messages, strict=True))
    for role, group in groupby(elements, lambda each: _element_role(each[0])):
        some = list(group)
        while at < len(runs) and runs[at][0] != role:
            at += 1
        places = [index for index in runs[at][1] for _ in range(_count(items[index]))] if at < len(runs) else []
        found += _match(some, places)
        at += 1
    return found


def split_item_tokens(section: Section, items: Sequence[Item]) -> tuple[int, ...]:
    """Return the tokens of each element of a section: those of its item, by size if the item has several elements.

    The tokens of the section itself are returned if it is not certain which elements belong to an item.
    """
    places: dict[int, list[int]] = {}
    for number, place in enumerate(align_items(section, items)):
        if place is None:
            return section.tokens
        places.setdefault(place, []).append(number)
    if any([item.tokens and index not in places for index, item in enumerate(items)]):
        return section.tokens
    found = [0] * len(section.elements)
    for index, numbers in places.items():
        shares = distribute(items[index].tokens, [weigh(section.elements[number]) for number in numbers])
        for number, tokens in zip(numbers, shares, strict=True):
            found[number] = tokens
    return tuple(found)


def _match(elements: Sequence[tuple[Element, int]], places: Sequence[int]) -> list[int | None]:
    """Return the place of each element of one role."""
    if not places:
        return [None] * len(elements)
    if len({*places}) == 1:
        return [places[0]] * len(elements)
    for keys in (
        [element.call if element.type == "tool_result" else index for index, (element, _) in enumerate(elements)],
        [message for _, message in elements],
    ):
        order = {key: number for number, key in enumerate(dict.fromkeys(keys))}
        if len(order) == len(places):
            return [places[order[key]] for key in keys]
    return [None] * len(elements)


def _item_role(item: Item) -> str:
    return "user" if item.role == "system" else item.role


def _element_role(element: Element) -> str:
    role = "tool" if element.type == "tool_result" else ROLES.get(element.role, "user")
    return "user" if role == "system" else role


def _count(item: Item) -> int:
    return max(1, len(item.only) or item.results) if item.role == "tool" else 1
