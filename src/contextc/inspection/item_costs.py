"""The share of each item of a request in the price of its input."""

from collections.abc import Sequence
from itertools import accumulate, pairwise

from contextc.messages import Usage
from contextc.models import Model
from contextc.models.model_info import MILLION, average_write_price


def compute_item_costs(model: Model, tokens: Sequence[int], above: int, usage: Usage | None) -> list[float]:
    """Return the share of each item in the price of the input, in dollars. `above` are the tokens before the first
    item.

    A provider reports how much it read from its cache and how much it wrote there. Both are prefixes, so an item before
    the end of the one was read, and an item before the end of the other was written. Without usage, all is new.
    """
    assert model.price is not None, "checked by the caller"
    price = model.price
    if price.long is not None and usage is not None and usage.input > price.above:
        price = price.long
    ends = list(accumulate(tokens, initial=above))
    scale = ends[-1] / usage.input if usage is not None and usage.input else 0.0
    read = usage.cache_read * scale if usage is not None else 0.0
    written = read + (usage.cache_write * scale if usage is not None else 0.0)
    write_price = average_write_price(price, usage) if usage is not None else price.cache_write
    costs: list[float] = []
    for start, end in pairwise(ends):
        from_cache = max(0.0, min(end, read) - start)
        to_cache = max(0.0, min(end, written) - max(start, read))
        fresh = end - start - from_cache - to_cache
        costs.append((from_cache * price.cache_read + to_cache * write_price + fresh * price.input) / MILLION)
    return costs
