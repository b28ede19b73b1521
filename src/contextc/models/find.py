"""Lookup of a model by name. Precedence: the caller's facts, `contextc.toml`, our table, genai-prices.

Each source may have some of the facts. The window is never guessed: an unknown window raises an error with the fix. A
model that is not in the table gets the defaults of its vendor, if the name identifies the vendor.
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
    """Return the facts about a model, by any of its names. Arguments override all other sources.

    `open_weights`: the provider serves only models with open weights. A closed model with the same name is then not
    used.
    """
    if not isinstance(name, str) or not name.strip():
        raise InvalidSetting(
            "model name must be text that is not blank", got=name, fix="Pass a name such as claude-opus-5-5."
        )
    given = {"house": house, "window": window, "output": output}
    said: JSONObject = {key: value for key, value in given.items() if value is not None} | overrides
    written = written_facts(name)
    if written or said:
        return _told(name.strip(), written, said, open_weights=open_weights)
    return _plain(name.strip(), open_weights=open_weights)


def model_names() -> tuple[str, ...]:
    """Return the names of all models in our table, as their vendors write them."""
    return tuple(sorted({entry.facts["name"] for entry in table().entries.values()}))


def names_of_houses(houses: Iterable[str]) -> tuple[str, ...]:
    """Return the names of the models of some vendors, in the order of our table."""
    wanted = set(houses)
    found = [entry.facts["name"] for entry in table().entries.values() if entry.facts["house"] in wanted]
    return tuple(dict.fromkeys(found))


def house_names() -> tuple[str, ...]:
    return tuple(sorted(table().houses))


def entry_of(name: str) -> Entry | None:
    """Return the entry of our table that matches this name."""
    found = entry_for(name, table().entries, table().vendors)
    return table().entries[found] if found else None


def _open_entry_of(name: str) -> Entry | None:
    """Return the entry that matches this name, if its weights are open."""
    found = entry_for(name, table().entries, table().vendors)
    entry = table().entries[found] if found else None
    return entry if entry is not None and (entry.open or found in entry.weights) else None


def is_open(name: str) -> bool:
    """Return True if the weights are open, so that the name does not identify the provider."""
    entry = entry_of(name)
    return entry is not None and entry.open


def is_house_name(name: str) -> bool:
    """Return True if this is the vendor's own name, without the vendor or region prefix of another provider."""
    bare = name.removeprefix("models/")
    return "/" not in bare and (entry_of(bare) is None or entry_for(bare, table().entries) is not None)


@cache
def _plain(name: str, *, open_weights: bool) -> Model:
    return _told(name, {}, {}, open_weights=open_weights)


def _told(name: str, written: Mapping[str, object], said: JSONObject, *, open_weights: bool) -> Model:
    for key in (*written, *said):
        if key not in FACTS:
            raise InvalidSetting(f"model {name}: unknown fact {key}", fix=f"Use one of {', '.join(FACTS)}.")
    entry = _open_entry_of(name) if open_weights else entry_of(name)
    known = entry.facts if entry else _guessed(name, said.get("house", written.get("house")), open_weights=open_weights)
    if not entry and not open_weights and "window" not in written and "window" not in said:
        known = {**known, **(from_genai_prices(name) or {})}
    facts: JSONObject = {**known, **written, **said}
    if "window" not in facts:
        raise UnknownModel(name, close=_close(name))
    return _made(name, facts, limited="output" in written or "output" in said)


def _made(name: str, facts: JSONObject, *, limited: bool) -> Model:
    """Return the validated model. A default output limit is reduced to fit a small window."""
    window = facts["window"]
    if isinstance(window, int) and not limited and not 0 < facts.get("output", 0) < window:
        facts = {**facts, "output": min(max(1, window // 4), DEFAULT_OUTPUT)}
    try:
        found = msgspec.convert(msgspec.to_builtins(facts), Model)
    except (msgspec.ValidationError, TypeError) as error:
        raise InvalidSetting(f"model {name}: {error}.") from error
    if not 0 < found.output <= found.window:
        raise InvalidSetting(
            f"model {name}: require 0 < output <= window, got output={found.output:,}, window={found.window:,}."
        )
    return found


def written_facts(name: str) -> Mapping[str, object]:
    """Return the facts about this model in `contextc.toml`, if any."""
    own = read_models()
    if not own:
        return {}
    entry = entry_for(name, by_name := {dashed(each.rsplit("/", 1)[-1]): facts for each, facts in own.items()})
    return by_name[entry] if entry else {}


def _guessed(name: str, house: object, *, open_weights: bool) -> JSONObject:
    """Return default facts for a model that is not in the table, by its vendor.

    Defaults for the models that a vendor serves need not apply to its open weights.
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
