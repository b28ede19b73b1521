"""The properties of a model, the cost of a call, and the lookup of a model by name.

Other modules depend on the properties of a model, never on its name, so that a new model only needs a table entry. A
flag is False if the capability is unknown.

The lookup combines several sources: the caller's facts, then `contextc.toml`, our table, genai-prices. Each may have
some of the facts. The window is never guessed: an unknown window raises an error with the fix. A
model that is not in the table gets the defaults of its vendor, if the name identifies the vendor.
"""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from functools import cache, lru_cache
from typing import Literal, TypeAlias, TypedDict, Unpack

import msgspec
from msgspec import Struct
from msgspec.structs import fields

from contextc._json import JSONObject
from contextc.config import read_models
from contextc.errors import InvalidSetting, UnknownModel
from contextc.messages import Usage
from contextc.models.catalog import (
    CatalogEntry,
    Vendor,
    iter_name_variants,
    load_catalog,
    load_genai_facts,
    match_entry,
    normalize_name,
)

MediaKind: TypeAlias = Literal["image", "audio", "video", "document"]
MILLION = 1_000_000


class Price(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """US dollars per million tokens. A call with more than `above` input tokens is charged entirely at `long`.

    `cache_write_long` is the price of cache writes that are kept longer than by default; None if they cost the same.
    """

    input: float
    output: float
    cache_read: float
    cache_write: float
    cache_write_long: float | None = None
    above: int = 0
    long: "Price | None" = None


class Model(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The properties of one model.

    `window` limits input and output together, `output` limits one reply. `tokenizer` is an exact tokenizer, or the name
    of a vendor, whose tokens are estimated. `system_between`: accepts a system role between other messages.
    `system_ignored`: a request with that role is accepted, but the role has no effect.
    `binds_reasoning`: signatures of its reasoning cover everything before them, so nothing there may change.
    `cache_minimum`: a shorter prefix is not cached. `cache_points`: the number of cache breakpoints, 0 for an implicit
    cache. `prefill`: continues a final assistant message. `tools`: known to accept tools. `tools_in_chat`: Chat
    Completions accepts them while it reasons.
    """

    name: str
    vendor: str
    window: int
    output: int
    tokenizer: str = "unknown"
    media: tuple[MediaKind, ...] = ()
    system_between: bool = False
    system_ignored: bool = False
    binds_reasoning: bool = False
    cache_minimum: int = 0
    cache_points: int = 0
    price: Price | None = None
    reasoning: bool = False
    temperature: bool = True
    forced_tool_choice: bool = True
    prefill: bool = False
    tools: bool = False
    tools_in_chat: bool = True
    efforts: tuple[str, ...] = ()


def average_write_price(price: Price, usage: Usage) -> float:
    """Return the price of the cache writes of a call per million tokens, on average of all that it wrote."""
    if price.cache_write_long is None or not usage.cache_write:
        return price.cache_write
    share = min(1.0, usage.cache_write_long / usage.cache_write)
    return price.cache_write + share * (price.cache_write_long - price.cache_write)


def cost(model: Model, usage: Usage) -> float | None:
    """Return the cost of a call in US dollars, or None if the price of the model is unknown."""
    if model.price is None:
        return None
    price = model.price
    if price.long is not None and usage.input > price.above:
        price = price.long
    fresh = max(0, usage.input - usage.cache_read - usage.cache_write)
    written = usage.cache_write * average_write_price(price, usage)
    dollars = fresh * price.input + usage.cache_read * price.cache_read + written
    return (dollars + usage.output * price.output) / MILLION


class ModelFacts(TypedDict, total=False):
    """Facts about a model as keyword arguments. `Model` describes them; `None` means unknown."""

    tokenizer: str | None
    media: tuple[MediaKind, ...] | list[MediaKind] | None
    system_between: bool | None
    system_ignored: bool | None
    binds_reasoning: bool | None
    cache_minimum: int | None
    cache_points: int | None
    price: Price | JSONObject | None
    reasoning: bool | None
    temperature: bool | None
    forced_tool_choice: bool | None
    prefill: bool | None
    tools: bool | None
    tools_in_chat: bool | None
    efforts: tuple[str, ...] | list[str] | None


FACT_NAMES = tuple(field.name for field in fields(Model) if field.name != "name")
DEFAULT_OUTPUT = 8_192


def model(
    name: str,
    *,
    vendor: str | None = None,
    window: int | None = None,
    output: int | None = None,
    open_weights: bool = False,
    **overrides: Unpack[ModelFacts],
) -> Model:
    """Return the facts about a model, by any of its names. Arguments override all other sources.

    `open_weights`: the provider serves only models with open weights. A closed model with the same name is then not
    used.
    """
    if not isinstance(name, str) or not name.strip():
        raise InvalidSetting(
            "model name must be text that is not blank", got=name, fix="Pass a name such as claude-opus-5-5."
        )
    limits = {"vendor": vendor, "window": window, "output": output}
    given: JSONObject = {key: value for key, value in limits.items() if value is not None} | overrides
    configured = find_configured_facts(name)
    if configured or given:
        return _resolve(name.strip(), configured, given, open_weights=open_weights)
    return _resolve_cached(name.strip(), open_weights=open_weights)


def list_models() -> tuple[str, ...]:
    """Return the names of all models in our table, as their vendors write them."""
    return tuple(sorted({entry.facts["name"] for entry in load_catalog().entries.values()}))


def list_vendor_models(vendors: Iterable[str]) -> tuple[str, ...]:
    """Return the names of the models of some vendors, in the order of our table."""
    selected = set(vendors)
    found = [entry.facts["name"] for entry in load_catalog().entries.values() if entry.facts["vendor"] in selected]
    return tuple(dict.fromkeys(found))


def list_vendors() -> tuple[str, ...]:
    """Return the names of all vendors with known models, sorted."""
    return tuple(sorted(load_catalog().vendors))


def find_entry(name: str) -> CatalogEntry | None:
    """Return the entry of our table that matches this name."""
    found = match_entry(name, load_catalog().entries, load_catalog().vendors_by_prefix)
    return load_catalog().entries[found] if found else None


def _find_open_entry(name: str) -> CatalogEntry | None:
    """Return the entry that matches this name, if its weights are open."""
    found = match_entry(name, load_catalog().entries, load_catalog().vendors_by_prefix)
    entry = load_catalog().entries[found] if found else None
    return entry if entry is not None and (entry.open or found in entry.weights) else None


def has_open_weights(name: str) -> bool:
    """Return True if the weights are open, so that the name does not identify the provider."""
    entry = find_entry(name)
    return entry is not None and entry.open


def is_vendor_name(name: str) -> bool:
    """Return True if this is the vendor's own name, without the vendor or region prefix of another provider."""
    bare = name.removeprefix("models/")
    return "/" not in bare and (find_entry(bare) is None or match_entry(bare, load_catalog().entries) is not None)


@cache
def _resolve_cached(name: str, *, open_weights: bool) -> Model:
    return _resolve(name, {}, {}, open_weights=open_weights)


def _resolve(name: str, configured: Mapping[str, object], given: JSONObject, *, open_weights: bool) -> Model:
    for key in (*configured, *given):
        if key not in FACT_NAMES:
            raise InvalidSetting(f"model {name}: unknown fact {key}", fix=f"Use one of {', '.join(FACT_NAMES)}.")
    entry = _find_open_entry(name) if open_weights else find_entry(name)
    known = (
        entry.facts
        if entry
        else _vendor_defaults(name, given.get("vendor", configured.get("vendor")), open_weights=open_weights)
    )
    if not entry and not open_weights and "window" not in configured and "window" not in given:
        known = {**known, **(load_genai_facts(name) or {})}
    if entry is None or entry.open or open_weights:  # of models that are not listed nothing is known, and with open
        known = {**known, "tools": False}  # weights it depends on the server
    facts: JSONObject = {**known, **configured, **given}
    if "window" not in facts:
        raise UnknownModel(name, close=find_close_names(name))
    return _build_model(name, facts, limited="output" in configured or "output" in given)


def _build_model(name: str, facts: JSONObject, *, limited: bool) -> Model:
    """Return the validated model. A default output limit is reduced to fit a small window."""
    window = facts["window"]
    if isinstance(window, int) and not limited and not 0 < facts.get("output", 0) < window:
        facts = {**facts, "output": min(max(1, window // 4), DEFAULT_OUTPUT)}
    try:
        found = msgspec.convert(msgspec.to_builtins(facts), Model)
    except (msgspec.ValidationError, TypeError) as error:
        raise InvalidSetting(f"model {name}: {error}.") from error
    if found.window <= 0:
        raise InvalidSetting(f"model {name}: window must be greater than 0", got=found.window)
    if not 0 < found.output <= found.window:
        raise InvalidSetting(
            f"model {name}: require 0 < output <= window, got output={found.output:,}, window={found.window:,}."
        )
    return found


def find_configured_facts(name: str) -> Mapping[str, object]:
    """Return the facts about this model in `contextc.toml`, if any."""
    own = read_models()
    if not own:
        return {}
    entry = match_entry(
        name, by_name := {normalize_name(each.rsplit("/", 1)[-1]): facts for each, facts in own.items()}
    )
    if not entry:
        return {}
    return dict(by_name[entry])


def _vendor_defaults(name: str, vendor: object, *, open_weights: bool) -> JSONObject:
    """Return default facts for a model that is not in the table, by its vendor.

    Defaults for the models that a vendor serves need not apply to its open weights.
    """
    known = load_catalog().vendors.get(vendor) if isinstance(vendor, str) else _guess_vendor(name)
    if known is None:
        return {"name": name, "vendor": "unknown"}
    if open_weights:
        return {"name": name, "vendor": known.name, "tokenizer": known.name}
    return {**known.defaults, **known.new, "name": name, "vendor": known.name}


def _guess_vendor(name: str) -> Vendor | None:
    vendor = normalize_name(name.split("/")[-2]) if "/" in name else ""
    if vendor in load_catalog().vendors_by_prefix:
        return load_catalog().vendors_by_prefix[vendor]
    for spelling in iter_name_variants(name, load_catalog().vendors_by_prefix):
        first = spelling.split("-")[0]
        for each, entry in load_catalog().entries.items():
            if each.split("-")[0] == first:
                return load_catalog().vendors[entry.facts["vendor"]]
    return None


@lru_cache(maxsize=256)
def find_close_names(name: str) -> tuple[str, ...]:
    """Return at most three known model names with a similar spelling."""
    names = load_catalog().names
    found = (get_close_matches(each, names, n=3) for each in iter_name_variants(name, load_catalog().vendors_by_prefix))
    return tuple(dict.fromkeys(names[each] for several in found for each in several))[:3]
