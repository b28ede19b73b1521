"""The containers of this process that grow, named by the attributes that hold them."""

import gc
from asyncio import TimerHandle
from collections import OrderedDict
from collections.abc import Generator
from itertools import chain
from typing import Any, cast  # anything may be in a container

BOUNDED = {
    "ArgumentCache._instructions",
    "ArgumentCache._terms",
    "ChannelCache._kept",
    "IdentifierCodec.known_unchanged",
    "MessageCache._by_body",
    "MessageCache._by_identity",
    "MessageCompiler._heads_stored",
    "Store._tips",
    "VerifiedRanges._known",
}
"""The containers that may get an entry for each conversation, because they have a limit."""
KINDS = {dict, set, list, OrderedDict}


def count_entries() -> dict[int, int]:
    """Return the number of entries of each container, by its id."""
    return {number: _count(each) for number, each in all_containers().items()}


def _count(container: Any) -> int:
    """Return the number of entries, without the cancelled timers that an event loop keeps until they are due."""
    entries = cast(list[Any], container)
    if type(container) is list and entries and isinstance(entries[0], TimerHandle):
        return sum(not each.cancelled() for each in entries)
    return len(entries)


def all_containers() -> dict[int, Any]:
    """Return all containers of this process, also those without references that the garbage collector must follow."""
    gc.collect()
    tracked = gc.get_objects()
    found = chain(tracked, gc.get_referents(*tracked))
    return {id(each): each for each in found if type(each) in KINDS}


def grown_containers(before: dict[int, int], by: int) -> set[str]:
    """Return the names of the containers that have at least so many entries more than before."""
    found = all_containers()
    grown = [each for number, each in found.items() if _count(each) - before.get(number, len(each)) >= by]
    return {*_owners(grown, found)}


def _owners(containers: list[Any], seen: dict[int, Any]) -> Generator[str]:
    """Yield the attributes and globals that are one of the containers.

    All are looked for at once, because that goes through every object of the process.
    """
    wanted = {id(each) for each in containers}
    named: list[tuple[dict[Any, Any], list[str]]] = []
    holder: Any
    for holder in gc.get_referrers(*containers):
        if holder is seen or holder is containers:
            continue
        kind = cast(type[Any], type(holder))
        if hasattr(holder, "__dict__") or hasattr(kind, "__slots__"):
            slots = [name for each in kind.__mro__ for name in getattr(each, "__slots__", ())]
            values = {**getattr(holder, "__dict__", {}), **{name: getattr(holder, name, None) for name in slots}}
            yield from [f"{kind.__name__}.{name}" for name, value in values.items() if id(value) in wanted]
        elif type(holder) is dict:
            attributes = cast(dict[Any, Any], holder)
            named.append((attributes, [name for name, value in attributes.items() if id(value) in wanted]))
    for owner in gc.get_referrers(*[each for each, _ in named]):
        own = getattr(owner, "__dict__", None)
        yield from [f"{type(owner).__name__}.{name}" for each, names in named if each is own for name in names]
