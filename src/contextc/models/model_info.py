"""The properties of a model, the cost of a call, and the lookup of a model by name.

Other modules depend on the properties of a model, never on its name, so that a new model only needs a table entry. A
flag is False if the capability is unknown.

The lookup combines several sources: the caller's facts, then `contextc.toml`, our table, genai-prices. Each may have
some of the facts. The window is never guessed: an unknown window raises an error with the fix. A
model that is not in the table gets the defaults of its vendor, if the name identifies the vendor.
"""

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias, TypedDict, Unpack

import msgspec
from msgspec import Struct, field
from msgspec.structs import fields

from contextc._json import JSONObject
from contextc._plugins import data_files
from contextc._sequence_comparison import find_near_names
from contextc.config import read_models
from contextc.errors import InvalidSetting, UnknownModel
from contextc.models.billing_table import find_name_factor

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
"""Words that may follow the name of an entry: one, two or three words, and one with all that follows."""
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
# The catalog of models in the package: one TOML file per vendor, loaded on first use.
#
# `[defaults]` applies to every model of a vendor, `[new]` to models that are not in its file. `like` copies the facts
# of another entry, `also` lists aliases. `open` marks open weights, which other providers may serve too. `weights`
# lists aliases that also name open weights, although the vendor serves a model under the same name. A `price` discards
# a long price that was copied with `like`. `long_write_factor` of a vendor is the price of cache writes that are kept
# longer than by default, as a multiple of the input price. `prices_from` has the source of a vendor's prices, and the
# day on which they were compared with it. Factors for tiers and regions are in `billing.toml`.


TABLE_KEYS = ("also", "like", "open", "weights", "long_price")
"""Keys of the tables that are no facts of a `Model`."""


class CatalogEntry(NamedTuple):
    facts: JSONObject
    open: bool
    weights: tuple[str, ...] = ()


class PriceSource(NamedTuple):
    """The page that prices come from, and the day on which they were compared with it."""

    source: str
    checked: date


class Vendor(NamedTuple):
    name: str
    prefixes: tuple[str, ...]
    defaults: JSONObject
    new: JSONObject
    long_write_factor: float = 0.0
    prices_from: PriceSource | None = None


class ModelCatalog(NamedTuple):
    """The catalog: `entries` and `vendors` by dashed name, `names` as the vendors write them."""

    entries: dict[str, CatalogEntry]
    vendors: dict[str, Vendor]
    vendors_by_prefix: dict[str, Vendor]
    names: dict[str, str]


@cache
def load_catalog() -> ModelCatalog:
    found = ModelCatalog({}, {}, {}, {})
    for text in data_files("contextc.models", ".toml", "vendors").values():
        content = tomllib.loads(text)
        vendor = Vendor(
            content["vendor"],
            tuple(content["prefixes"]),
            content["defaults"],
            content.get("new", {}),
            content.get("long_write_factor", 0.0),
            PriceSource(*content["prices_from"]) if "prices_from" in content else None,
        )
        found.vendors[vendor.name] = vendor
        found.vendors_by_prefix.update({prefix: vendor for prefix in vendor.prefixes})
        for name in content["models"]:
            _add_entry(found, vendor, name, content["models"])
    return found


def _add_entry(found: ModelCatalog, vendor: Vendor, name: str, models: dict[str, JSONObject]) -> None:
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
        facts: JSONObject = {"price": _genai_price(info)}
        if info.context_window:
            facts["window"] = info.context_window
        return facts
    return None


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
    if prices.cache_write_1h_mtok is not None:
        four["cache_write_long"] = prices.cache_write_1h_mtok
    price: JSONObject = {name: _short_price(each) for name, each in four.items()}
    starts = [each.tiers[0].start for each in four.values() if not isinstance(each, Decimal)]
    if starts:
        price |= {"above": min(starts), "long": {name: _long_price(each) for name, each in four.items()}}
    return price


def _short_price(price: "Decimal | TieredPrices") -> float:
    return float(price if isinstance(price, Decimal) else price.base)


def _long_price(price: "Decimal | TieredPrices") -> float:
    return float(price if isinstance(price, Decimal) else price.tiers[0].price)


# ── models, their cost, and their lookup ──────────────────────────────────────────────────────────────────────────────


MediaKind: TypeAlias = Literal["image", "audio", "video", "document"]
MILLION = 1_000_000


class Price(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """US dollars per million tokens. A call with more than `above` input tokens is charged entirely at `long`.

    `cache_write_long` is the price of cache writes that are kept longer than by default. If it is None, they are priced
    like the others, and a cost with such writes is a lower bound. `varies`: calls cost more at some hours, so that all
    costs are lower bounds.
    """

    input: float
    output: float
    cache_read: float
    cache_write: float
    cache_write_long: float | None = None
    above: int = 0
    long: "Price | None" = None
    varies: bool = False


class Model(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The properties of one model.

    `window` limits input and output together, `output` limits one reply. `tokenizer` is an exact tokenizer, or the name
    of a vendor, whose tokens are estimated. `system_between`: accepts a system role between other messages.
    `system_ignored`: a request with that role is accepted, but the role has no effect.
    `binds_reasoning`: signatures of its reasoning cover everything before them, so nothing there may change.
    `cache_minimum`: a shorter prefix is not cached. `cache_points`: the number of cache breakpoints, 0 for an implicit
    cache. `prefill`: continues a final assistant message. `tools`: known to accept tools. `tools_in_chat`: Chat
    Completions accepts them while it reasons. `features`: what requests for it may contain where the provider has it,
    by the names in `providers.toml`.
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
    features: tuple[str, ...] = ()


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
    features: tuple[str, ...] | list[str] | None


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


def find_price_source(found: Model) -> PriceSource | None:
    """Return the source of a model's price; None if the price is not that of our table."""
    entry = load_catalog().entries.get(normalize_name(found.name))
    if entry is None or found.price is None or msgspec.convert(entry.facts["price"], Price | None) != found.price:
        return None
    return load_catalog().vendors[entry.facts["vendor"]].prices_from


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
    elif (factor := find_name_factor(name, known["name"])) != 1.0 and known["price"]:
        known = {**known, "price": _scaled_price(known["price"], factor)}
    facts: JSONObject = {**known, **configured, **given}
    if "window" not in facts:
        raise UnknownModel(name, close=find_close_names(name))
    return _build_model(name, facts, limited="output" in configured or "output" in given)


def _scaled_price(price: JSONObject, factor: float) -> JSONObject:
    """Return a price times a factor, also the one for long prompts."""
    scaled: JSONObject = {name: each * factor for name, each in price.items() if isinstance(each, int | float)}
    long = {"above": price["above"], "long": _scaled_price(price["long"], factor)} if price.get("long") else {}
    return scaled | long


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
    found = (find_near_names(each, names) for each in iter_name_variants(name, load_catalog().vendors_by_prefix))
    return tuple(dict.fromkeys(names[each] for several in found for each in several))[:3]


# ── figures of a cache ────────────────────────────────────────────────────────────────────────────────────────────────
# The figures of a prompt cache over many calls: the share of the input that was read, and the rewrite factor.


class _Thread(Struct):
    """The calls of one conversation to one model."""

    largest: int = 0
    written: int = 0
    uncached: int = 0


class CacheFigures(Struct):
    """Sums over calls. `add` takes them in any order."""

    input: int = 0
    cache_read: int = 0
    cache_write: int = 0
    _threads: dict[tuple[str, str], _Thread] = field(default_factory=dict[tuple[str, str], _Thread])

    def add(self, conversation: str, model: str, *, input: int, cache_read: int, cache_write: int) -> None:
        """Add the tokens of one call. `input` includes cache reads and writes."""
        self.input += input
        self.cache_read += cache_read
        self.cache_write += cache_write
        thread = self._threads.setdefault((conversation, model), _Thread())
        thread.largest = max(thread.largest, input)
        thread.written += cache_write
        thread.uncached += input - cache_read

    @property
    def cache_share(self) -> float | None:
        """The share of the input that was read from a cache; None without input."""
        return self.cache_read / self.input if self.input else None

    @property
    def rewrite_factor(self) -> float | None:
        """Tokens written to caches, divided by the largest context of each conversation. 1.0 is ideal.

        Where a provider does not report cache writes, uncached input counts. None without input.
        """
        threads = [each for each in self._threads.values() if each.largest]
        largest = sum([each.largest for each in threads])
        return sum([each.written or each.uncached for each in threads]) / largest if largest else None
