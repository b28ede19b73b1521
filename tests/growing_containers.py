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
    return {name for each in grown for name in _owners(each, found)}


def _owners(container: Any, seen: dict[int, Any]) -> Generator[str]:
    """Yield the attributes and globals that are a container."""
    holder: Any
    for holder in gc.get_referrers(container):
        if holder is seen:
            continue
        kind = cast(type[Any], type(holder))
        if hasattr(holder, "__dict__") or hasattr(kind, "__slots__"):
            slots = [name for each in kind.__mro__ for name in getattr(each, "__slots__", ())]
            values = {**getattr(holder, "__dict__", {}), **{name: getattr(holder, name, None) for name in slots}}
            yield from [f"{kind.__name__}.{name}" for name, value in values.items() if value is container]
        elif type(holder) is dict:
            for name, value in cast(dict[Any, Any], holder).items():
                if value is container:
                    yield from [
                        f"{type(owner).__name__}.{name}"
                        for owner in gc.get_referrers(holder)
                        if getattr(owner, "__dict__", None) is holder
                    ]
