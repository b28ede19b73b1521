"""A model by its name: the caller's facts over those in the user's `contextc.toml`, over our table, over genai-prices.

Each of these may hold a part of the facts. Of the window alone there is no guess: a model whose window nobody knows is
an error that says how to give it. For a model that is new to us its house's defaults hold, if the house can be told.
"""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from functools import cache

import msgspec
from msgspec.structs import fields

from contextc._json import JSONObject
from contextc.config import read_models
from contextc.errors import InvalidSetting, UnknownModel
from contextc.models.facts import Model
from contextc.models.names import dashed, entry_for, spellings
from contextc.models.prices import from_genai_prices
from contextc.models.table import Entry, House, table

FACTS = tuple(field.name for field in fields(Model) if field.name != "name")
DEFAULT_OUTPUT = 8_192


def model(
    name: str,
    *,
    house: str | None = None,
    window: int | None = None,
    output: int | None = None,
    open_weights: bool = False,
    **overrides: object,
) -> Model:
    """The facts about a model, by any of its names. What is given here wins over everything that is known.

    `open_weights`: it is served by somebody who has nothing but weights that are open. A model that its house alone
    serves is not the one that is meant there, though it may have the same name.
    """
    if not isinstance(name, str) or not name.strip():
        raise InvalidSetting(f"{name!r} is no name of a model. Write one as its provider does, like claude-opus-5-5.")
    given = {"house": house, "window": window, "output": output}
    said: JSONObject = {key: value for key, value in given.items() if value is not None} | overrides
    written = written_facts(name)
    if written or said:
        return _told(name.strip(), written, said, open_weights=open_weights)
    return _plain(name.strip(), open_weights=open_weights)


def model_names() -> tuple[str, ...]:
    """The models of our own table, as their houses write them."""
    return tuple(sorted({entry.facts["name"] for entry in table().entries.values()}))


def names_of_houses(houses: Iterable[str]) -> tuple[str, ...]:
    """The models of some houses in the order of our table, as they write them."""
    wanted = set(houses)
    found = [entry.facts["name"] for entry in table().entries.values() if entry.facts["house"] in wanted]
    return tuple(dict.fromkeys(found))


def house_names() -> tuple[str, ...]:
    return tuple(sorted(table().houses))


def entry_of(name: str) -> Entry | None:
    """The entry of our own table that answers for this name."""
    found = entry_for(name, table().entries, table().vendors)
    return table().entries[found] if found else None


def _open_entry_of(name: str) -> Entry | None:
    """The entry that answers for this name, where its weights are open."""
    found = entry_for(name, table().entries, table().vendors)
    entry = table().entries[found] if found else None
    return entry if entry is not None and (entry.open or found in entry.weights) else None


def is_open(name: str) -> bool:
    """Whether its weights are open, so that the name alone does not say who serves it."""
    entry = entry_of(name)
    return entry is not None and entry.open


def is_house_name(name: str) -> bool:
    """Whether the name is the house's own, without a vendor or a region in front, as somebody else would have it."""
    bare = name.removeprefix("models/")
    return "/" not in bare and (entry_of(bare) is None or entry_for(bare, table().entries) is not None)


@cache
def _plain(name: str, *, open_weights: bool) -> Model:
    return _told(name, {}, {}, open_weights=open_weights)


def _told(name: str, written: Mapping[str, object], said: JSONObject, *, open_weights: bool) -> Model:
    for key in (*written, *said):
        if key not in FACTS:
            raise InvalidSetting(f"{key} is no fact about a model ({name}). There are: {', '.join(FACTS)}.")
    entry = _open_entry_of(name) if open_weights else entry_of(name)
    known = entry.facts if entry else _guessed(name, said.get("house", written.get("house")), open_weights=open_weights)
    if not entry and not open_weights and "window" not in written and "window" not in said:
        known = {**known, **(from_genai_prices(name) or {})}
    facts: JSONObject = {**known, **written, **said}
    if "window" not in facts:
        raise UnknownModel(name, close=_close(name))
    return _made(name, facts, limited="output" in written or "output" in said)


def _made(name: str, facts: JSONObject, *, limited: bool) -> Model:
    """The model, with every fact checked. An output that was not asked for gives way to a small window."""
    window = facts["window"]
    if isinstance(window, int) and not limited and not 0 < facts.get("output", 0) < window:
        facts = {**facts, "output": min(max(1, window // 4), DEFAULT_OUTPUT)}
    try:
        found = msgspec.convert(msgspec.to_builtins(facts), Model)
    except (msgspec.ValidationError, TypeError) as error:
        raise InvalidSetting(f"model {name}: {error}.") from error
    if not 0 < found.output <= found.window:
        raise InvalidSetting(
            f"model {name}: a window of {found.window:,} tokens with an output of {found.output:,}. Both must be more "
            "than nothing, and the output fits into the window."
        )
    return found


def written_facts(name: str) -> Mapping[str, object]:
    """The user's own facts about this model, if there are any."""
    own = read_models()
    if not own:
        return {}
    entry = entry_for(name, by_name := {dashed(each.rsplit("/", 1)[-1]): facts for each, facts in own.items()})
    return by_name[entry] if entry else {}


def _guessed(name: str, house: object, *, open_weights: bool) -> JSONObject:
    """What can be said of a model that is in no table, from the house it seems to be of. What a house says of all it
    serves need not hold for the weights that it gave away.
    """
    known = table().houses.get(house) if isinstance(house, str) else _house_of(name)
    if known is None:
        return {"name": name, "house": "unknown"}
    if open_weights:
        return {"name": name, "house": known.name, "tokenizer": known.name}
    return {**known.defaults, **known.new, "name": name, "house": known.name}


def _house_of(name: str) -> House | None:
    vendor = dashed(name.split("/")[-2]) if "/" in name else ""
    if vendor in table().vendors:
        return table().vendors[vendor]
    for spelling in spellings(name, table().vendors):
        first = spelling.split("-")[0]
        for each, entry in table().entries.items():
            if each.split("-")[0] == first:
                return table().houses[entry.facts["house"]]
    return None


def _close(name: str) -> tuple[str, ...]:
    names = table().names
    found = (get_close_matches(each, names, n=3) for each in spellings(name, table().vendors))
    return tuple(dict.fromkeys(names[each] for several in found for each in several))[:3]
