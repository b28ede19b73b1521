"""Window and price of a model from genai-prices, if that is installed.

It is the last source, only for models that are not in our table, because loading it takes a quarter of a second.
"""

from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING

from contextc._json import JSONObject

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo, TieredPrices


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
        return _facts(info)
    return None


def _facts(info: "ModelInfo") -> JSONObject:
    facts: JSONObject = {"price": _price(info)}
    if info.context_window:
        facts["window"] = info.context_window
    return facts


def _price(info: "ModelInfo") -> JSONObject | None:
    prices = info.get_prices(datetime.now(UTC))
    if prices.input_mtok is None or prices.output_mtok is None:
        return None
    four = {
        "input": prices.input_mtok,
        "output": prices.output_mtok,
        "cache_read": prices.input_mtok if prices.cache_read_mtok is None else prices.cache_read_mtok,
        "cache_write": prices.input_mtok if prices.cache_write_mtok is None else prices.cache_write_mtok,
    }
    price: JSONObject = {name: _short(each) for name, each in four.items()}
    starts = [each.tiers[0].start for each in four.values() if not isinstance(each, Decimal)]
    if starts:
        price |= {"above": min(starts), "long": {name: _long(each) for name, each in four.items()}}
    return price


def _short(price: "Decimal | TieredPrices") -> float:
    return float(price if isinstance(price, Decimal) else price.base)


def _long(price: "Decimal | TieredPrices") -> float:
    return float(price if isinstance(price, Decimal) else price.tiers[0].price)
