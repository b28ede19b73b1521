"""The catalog of models in the package: one TOML file per vendor, loaded on first use.

`[defaults]` applies to every model of a vendor, `[new]` to models that are not in its file. `like` copies the facts of
another entry, `also` lists aliases. `open` marks open weights, which other providers may serve too. `weights` lists
aliases that also name open weights, although the vendor serves a model under the same name. A `price` discards a long
price that was copied with `like`. `long_write_factor` of a vendor is the price of cache writes that are kept
longer than by default, as a multiple of the input price.
"""

import tomllib
from functools import cache
from typing import NamedTuple

from contextc._json import JSONObject
from contextc._plugins import data_files
from contextc.models.aliases import normalize_name

TABLE_KEYS = ("also", "like", "open", "weights", "long_price")
"""Keys of the tables that are no facts of a `Model`."""


class CatalogEntry(NamedTuple):
    facts: JSONObject
    open: bool
    weights: tuple[str, ...] = ()


class Vendor(NamedTuple):
    name: str
    prefixes: tuple[str, ...]
    defaults: JSONObject
    new: JSONObject
    long_write_factor: float = 0.0


class Catalog(NamedTuple):
    """The catalog: `entries` and `vendors` by dashed name, `names` as the vendors write them."""

    entries: dict[str, CatalogEntry]
    vendors: dict[str, Vendor]
    vendors_by_prefix: dict[str, Vendor]
    names: dict[str, str]


@cache
def load_catalog() -> Catalog:
    found = Catalog({}, {}, {}, {})
    for text in data_files("contextc.models", ".toml", "vendors").values():
        content = tomllib.loads(text)
        vendor = Vendor(
            content["vendor"],
            tuple(content["prefixes"]),
            content["defaults"],
            content.get("new", {}),
            content.get("long_write_factor", 0.0),
        )
        found.vendors[vendor.name] = vendor
        found.vendors_by_prefix.update({prefix: vendor for prefix in vendor.prefixes})
        for name in content["models"]:
            _add(found, vendor, name, content["models"])
    return found


def _add(found: Catalog, vendor: Vendor, name: str, models: dict[str, JSONObject]) -> None:
    own = _facts(name, models)
    facts = _priced({**vendor.defaults, **own, "name": name, "vendor": vendor.name}, vendor.long_write_factor)
    entry = CatalogEntry(facts, own.get("open", False), tuple(map(normalize_name, own.get("weights", ()))))
    for each in (name, *models[name].get("also", ())):
        found.entries[normalize_name(each)] = entry
        found.names[normalize_name(each)] = each


def _facts(name: str, models: dict[str, JSONObject]) -> JSONObject:
    own = models[name]
    other = _facts(own["like"], models) if "like" in own else {}
    if "price" in own:
        other = {key: value for key, value in other.items() if key != "long_price"}
    return {**other, **own}


def _with_long_write(price: JSONObject, factor: float) -> JSONObject:
    """Return a price with that of long cache writes, which is a multiple of the input price."""
    return {**price, "cache_write_long": price["input"] * factor} if factor else price


def _priced(facts: JSONObject, factor: float) -> JSONObject:
    """Return the facts in the shape of `Model`: the long price inside the price, without table-only keys."""
    long = facts.get("long_price")
    price = facts.get("price") or None
    if price:
        more = _with_long_write({key: long[key] for key in price}, factor) if long else None
        price = _with_long_write(price, factor) | ({"above": long["above"], "long": more} if long else {})
    rest = {key: value for key, value in facts.items() if key not in TABLE_KEYS}
    return {**rest, "price": price}
