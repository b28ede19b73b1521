"""The cost of a call: what the provider bills for it, by the usage that its reply reports.

The factors for tiers, speeds and regions and the fees of tools are in `billing.toml`. A reply that reports its own
dollars costs these, and all prices of that call are scaled to them. A cost is a lower bound if a part of it is unknown:
a word or a tool without a row, a model without a price beside the one that answered, or long cache writes without one.
"""

from collections.abc import Iterable
from operator import attrgetter
from typing import NamedTuple

from msgspec.structs import replace

from contextc.errors import UnknownModel
from contextc.messages import BilledCall, Usage
from contextc.models.billing_table import find_factor, find_fee
from contextc.models.model_info import MILLION, Model, Price, model

PRICE_NAMES = ("input", "output", "cache_read", "cache_write", "cache_write_long")
FACTOR_FIELDS = ("tier", "speed", "region")
_get_factors = attrgetter(*FACTOR_FIELDS)
REPLY_FIELDS = ("tier", "region")
"""Fields that hold for all calls of a reply. The speed is that of the model that answered."""


class Bill(NamedTuple):
    """A cost in US dollars. `is_lower_bound` is True if an unknown part is missing from it."""

    dollars: float
    is_lower_bound: bool = False

    def __str__(self) -> str:
        return f"{'at least ' if self.is_lower_bound else ''}${self.dollars:,.4f}"


class AppliedPrice(NamedTuple):
    """The price at which a call was billed, with all its factors. Its `long` is None."""

    price: Price
    is_lower_bound: bool = False


def cost(model: Model, usage: Usage) -> float | None:
    """Return the cost of a call in US dollars, or None if it is unknown. `bill` also tells a lower bound."""
    found = bill(model, usage)
    return found.dollars if found is not None else None


def bill(model: Model, usage: Usage) -> Bill | None:
    """Return what a provider bills for a call, or None if it is unknown. `model` is the one that was requested."""
    if usage.dollars is not None:
        return Bill(usage.dollars)
    applied = _list_price(model, usage)
    if applied is None:
        return None
    bills: list[Bill | None] = [_bill_tokens(applied, usage)]
    return add_bills([*bills, *[bill_call(model, usage, each) for each in usage.calls]])


def bill_next(model: Model, usage: Usage, last: Usage | None) -> Bill | None:
    """Return what a provider would bill for a call that is not sent yet, or None if it is unknown.

    `last` is the usage of the request before: the next one is likely to have its tier, speed and region, too.
    """
    facts: dict[str, str] = {field: getattr(last, field) for field in FACTOR_FIELDS} if last is not None else {}
    return bill(model, replace(usage, **facts))


class Surcharge(NamedTuple):
    """The amount beyond list prices. `words` are the tier, the speed and the region, and `factor` is their product."""

    words: str
    factor: float
    dollars: float


def find_surcharge(model: Model, usage: Usage) -> Surcharge | None:
    """Return what a call cost beyond list prices; None if it cost no more, or if that is unknown."""
    if not any(_get_factors(usage)):
        return None
    words = {field: getattr(usage, field) for field in FACTOR_FIELDS if getattr(usage, field)}
    listed = replace(usage, tier="", speed="", region="")
    applied, list_price = apply_price(model, usage), apply_price(model, listed)
    paid, without = bill(model, usage), bill(model, listed)
    if applied is None or list_price is None or paid is None or without is None:
        return None
    if not list_price.price.output or paid.dollars <= without.dollars:
        return None
    factor = applied.price.output / list_price.price.output
    text = ", ".join([f"{field} {word}" for field, word in words.items()])
    return Surcharge(text, factor, paid.dollars - without.dollars)


def add_bills(bills: Iterable[Bill | None]) -> Bill | None:
    """Return the sum of costs; None if none is known. Unknown ones make it a lower bound."""
    some = list(bills)
    known = [each for each in some if each is not None]
    if not known:
        return None
    is_lower_bound = len(known) < len(some) or any([each.is_lower_bound for each in known])
    return Bill(sum([each.dollars for each in known]), is_lower_bound)


def apply_price(model: Model, usage: Usage) -> AppliedPrice | None:
    """Return the price of the model that answered a call, with the factors of its tier, speed and region.

    It is scaled to the dollars that the reply reports.
    """
    applied = _list_price(model, usage)
    computed = _bill_tokens(applied, usage).dollars if applied is not None else 0.0
    if applied is None or usage.dollars is None or not computed:
        return applied
    return AppliedPrice(scale_price(applied.price, usage.dollars / computed))


def _list_price(model: Model, usage: Usage) -> AppliedPrice | None:
    answered = _find_model(model, usage.model)
    if answered is None or answered.price is None:
        return None
    if not usage.iterations or answered.price.long is None:
        return _with_factors(answered, usage.input, usage, FACTOR_FIELDS)
    # The price for long prompts depends on each call: the price of their sum is the one that costs as much.
    short = _with_factors(answered, 0, usage, FACTOR_FIELDS)
    if short is None:
        return None
    dollars = 0.0
    for each in usage.iterations:
        applied = _with_factors(answered, each.input, usage, FACTOR_FIELDS)
        dollars += _bill_tokens(applied, each).dollars if applied is not None else 0.0
    listed = _bill_tokens(short, usage).dollars
    return short._replace(price=scale_price(short.price, dollars / listed)) if listed else short


def bill_call(model: Model, usage: Usage, call: BilledCall) -> Bill | None:
    """Return what a provider bills for a further call of a reply; None if it is unknown."""
    if call.count:
        fee = find_fee(call.kind, model.vendor)
        return Bill(call.count * fee.dollars, fee.lower_bound) if fee is not None else None
    called = _find_model(model, call.model)
    if called is None or not (call.input or call.output):
        return None
    is_main = called.name in (model.name, usage.model)
    applied = _with_factors(called, call.input, usage, FACTOR_FIELDS if is_main else REPLY_FIELDS)
    return _bill_tokens(applied, call) if applied is not None else None


def average_write_price(price: Price, usage: Usage | BilledCall) -> float:
    """Return the price of the cache writes of a call per million tokens, on average of all that it wrote."""
    if price.cache_write_long is None or not usage.cache_write:
        return price.cache_write
    share = min(1.0, usage.cache_write_long / usage.cache_write)
    return price.cache_write + share * (price.cache_write_long - price.cache_write)


def _bill_tokens(applied: AppliedPrice, usage: Usage | BilledCall) -> Bill:
    price = applied.price
    fresh = max(0, usage.input - usage.cache_read - usage.cache_write)
    written = usage.cache_write * average_write_price(price, usage)
    dollars = fresh * price.input + usage.cache_read * price.cache_read + written + usage.output * price.output
    is_unknown = price.cache_write_long is None and usage.cache_write_long > 0
    return Bill(dollars / MILLION, applied.is_lower_bound or is_unknown)


def _with_factors(model: Model, tokens: int, usage: Usage, fields: Iterable[str]) -> AppliedPrice | None:
    price = model.price
    if price is None:
        return None
    factor, is_lower_bound = 1.0, price.varies
    price = price.long if price.long is not None and tokens > price.above else price
    for field in fields:
        word: str = getattr(usage, field)
        if not word:
            continue
        row = find_factor(field, word, model.vendor, model.name)
        if row is None:
            is_lower_bound = True
        elif row.factor is None:
            return None
        else:
            factor, is_lower_bound = factor * row.factor, is_lower_bound or row.lower_bound
    return AppliedPrice(scale_price(price, factor), is_lower_bound)


def scale_price(price: Price, factor: float) -> Price:
    """Return a price times a factor, without the one for long prompts."""
    if factor == 1.0:
        return replace(price, above=0, long=None) if price.long is not None else price
    prices: dict[str, float | None] = {name: getattr(price, name) for name in PRICE_NAMES}
    scaled = {name: each * factor for name, each in prices.items() if each is not None}
    return replace(price, above=0, long=None, **scaled)


def _find_model(requested: Model, name: str) -> Model | None:
    """Return the model with a name; the requested one if it is that, and None if it is unknown."""
    if not name or name == requested.name:
        return requested
    try:
        found = model(name)
    except UnknownModel:
        return None
    return requested if found.name == requested.name else found
