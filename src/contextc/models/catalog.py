"""The catalog of models in the package: one TOML file per vendor, loaded on first use.

`[defaults]` applies to every model of a vendor, `[new]` to models that are not in its file. `like` copies the facts of
another entry, `also` lists aliases. `open` marks open weights, which other providers may serve too. `weights` lists
aliases that also name open weights, although the vendor serves a model under the same name. A `price` discards a long
price that was copied with `like`. `long_write_factor` of a vendor is the price of cache writes that are kept
longer than by default, as a multiple of the input price.
"""

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from contextc._json import JSONObject
from contextc._plugins import data_files

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo, TieredPrices


# ── names ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
# Aliases of models: match the names that providers use to the entries of a table.
#
# One model has many names: dated (`gpt-4.1-2025-04-14`), with a vendor prefix (`anthropic/claude-sonnet-4.5`,
# `us.anthropic.claude-opus-4-5-20251101-v1:0`), with a path (`models/gemini-2.5-pro`), with a tag (`gpt-oss:20b`,
# `…:free`). Dots, colons and similar signs compare as dashes. An entry matches a name that continues only with dates,
# versions, sizes and tags; the longest entry wins. `claude-opus-5-7` therefore does not match `claude-opus-5`: a wrong
# window is worse than none. If the table has a dated alias of an entry (`mistral-large-2512` for `mistral-large`), the
# entry matches no other month (`mistral-large-2402`).


_SEPARATORS = re.compile(r"[._:@\s]+")
_REGION = re.compile(r"(?:us-gov|us|eu|apac|global|jp|au|ca|sa)-")
_SUFFIXES = tuple(
    re.compile(rf"-(?:{each})(?![^-])")
    for each in (
        r"\d{8}|\d{3,4}"  # 20251101, 0613, 001
        r"|v\d+|latest|preview|beta|exp|experimental"
        r"|\d+[bm]|instruct|it|fp\d+|bf16|awq|cloud"  # sizes and packings
        r"|free|thinking|extended|nitro|floor|online|exacto",  # a router's tags
        r"\d\d-\d\d(?:\d\d)?|v\d+-\d+|\d+-\d+[bm]",  # 05-20, 09-2025
        r"\d{4}-\d\d-\d\d",  # 2025-04-14
        r"q\d[a-z0-9-]*",
    )
)
"""What may follow the name of an entry: one, two or three words, and one with all that follows."""
MAX_LENGTH = 200
"""No name of a model is longer. Names come from requests of other programs, too."""
_MONTH = re.compile(r"-\d{4}(?![^-])")


def normalize_name(name: str) -> str:
    return _SEPARATORS.sub("-", name.strip().lower())


def iter_name_variants(name: str, vendors: Iterable[str]) -> Iterator[str]:
    """Yield the name without its path, then without its vendor prefix."""
    whole = normalize_name(name.rsplit("/", 1)[-1])
    yield whole
    bare = _REGION.sub("", whole, count=1) if _REGION.match(whole) else whole
    for vendor in vendors:
        if bare.startswith(f"{vendor}-"):
            yield bare[len(vendor) + 1 :]


def match_entry(name: str, entries: Mapping[str, object], vendors: Iterable[str] = ()) -> str | None:
    """Return the longest entry, in dashed form, that matches this name."""
    if len(name) > MAX_LENGTH:
        return None
    for spelling in iter_name_variants(name, vendors):
        end = len(spelling)
        while end > 0:
            if spelling[:end] in entries and _has_suffixes_only(spelling, end):
                return None if _is_of_another_month(spelling, end, entries) else spelling[:end]
            end = spelling.rfind("-", 0, end)
    return None


def _has_suffixes_only(spelling: str, start: int) -> bool:
    """Return True if all words from a position on are suffixes. Each position is examined once."""
    reached = {start}
    while start not in (-1, len(spelling)):
        if start in reached:
            reached |= {match.end() for each in _SUFFIXES if (match := each.match(spelling, start))}
        start = spelling.find("-", start + 1)
    return len(spelling) in reached


def _is_of_another_month(spelling: str, end: int, entries: Mapping[str, object]) -> bool:
    """Return True if a name has another month than the dated alias of the entry in the table."""
    if not _MONTH.match(spelling, end):
        return False
    found = entries[spelling[:end]]
    dated = (each for each in entries if each.startswith(spelling[:end]) and _MONTH.fullmatch(each, end))
    return any(entries[each] is found for each in dated)


# ── tables ────────────────────────────────────────────────────────────────────────────────────────────────────────────


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
            _add_entry(found, vendor, name, content["models"])
    return found


def _add_entry(found: Catalog, vendor: Vendor, name: str, models: dict[str, JSONObject]) -> None:
    own = _inherited_facts(name, models)
    facts = _with_factor({**vendor.defaults, **own, "name": name, "vendor": vendor.name}, vendor.long_write_factor)
    entry = CatalogEntry(facts, own.get("open", False), tuple(map(normalize_name, own.get("weights", ()))))
    for each in (name, *models[name].get("also", ())):
        found.entries[normalize_name(each)] = entry
        found.names[normalize_name(each)] = each


def _inherited_facts(name: str, models: dict[str, JSONObject]) -> JSONObject:
    own = models[name]
    other = _inherited_facts(own["like"], models) if "like" in own else {}
    if "price" in own:
        other = {key: value for key, value in other.items() if key != "long_price"}
    return {**other, **own}


def _with_long_write(price: JSONObject, factor: float) -> JSONObject:
    """Return a price with that of long cache writes, which is a multiple of the input price."""
    return {**price, "cache_write_long": price["input"] * factor} if factor else price


def _with_factor(facts: JSONObject, factor: float) -> JSONObject:
    """Return the facts in the shape of `Model`: the long price inside the price, without table-only keys."""
    long = facts.get("long_price")
    price = facts.get("price") or None
    if price:
        more = _with_long_write({key: long[key] for key in price}, factor) if long else None
        price = _with_long_write(price, factor) | ({"above": long["above"], "long": more} if long else {})
    rest = {key: value for key, value in facts.items() if key not in TABLE_KEYS}
    return {**rest, "price": price}


# ── genai-prices ──────────────────────────────────────────────────────────────────────────────────────────────────────
# Window and price of a model from genai-prices, if that is installed.
#
# It is the last source, only for models that are not in our table, because loading it takes a quarter of a second.


@cache
def load_genai_facts(name: str) -> JSONObject | None:
    """Return its facts about a model, or None if the model is unknown or genai-prices is not installed."""
    try:
        from genai_prices.data_snapshot import get_snapshot
    except ImportError:
        return None
    for reference, provider in ((name, None), (name.rsplit("/", 1)[-1], None), (name, "openrouter")):
        try:
            _, info = get_snapshot().find_provider_model(reference, None, provider, None)
        except LookupError:
            continue
        return _genai_facts(info)
    return None


def _genai_facts(info: "ModelInfo") -> JSONObject:
    facts: JSONObject = {"price": _genai_price(info)}
    if info.context_window:
        facts["window"] = info.context_window
    return facts


def _genai_price(info: "ModelInfo") -> JSONObject | None:
    prices = info.get_prices(datetime.now(UTC))
    if prices.input_mtok is None or prices.output_mtok is None:
        return None
    four = {
        "input": prices.input_mtok,
        "output": prices.output_mtok,
        "cache_read": prices.input_mtok if prices.cache_read_mtok is None else prices.cache_read_mtok,
        "cache_write": prices.input_mtok if prices.cache_write_mtok is None else prices.cache_write_mtok,
    }
    price: JSONObject = {name: _short_price(each) for name, each in four.items()}
    starts = [each.tiers[0].start for each in four.values() if not isinstance(each, Decimal)]
    if starts:
        price |= {"above": min(starts), "long": {name: _long_price(each) for name, each in four.items()}}
    return price


def _short_price(price: "Decimal | TieredPrices") -> float:
    return float(price if isinstance(price, Decimal) else price.base)


def _long_price(price: "Decimal | TieredPrices") -> float:
    return float(price if isinstance(price, Decimal) else price.tiers[0].price)
