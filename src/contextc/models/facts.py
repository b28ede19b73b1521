"""What one model is like, and what a call of it costs.

A `Model` is a value: facts, and nothing that acts on them. Whoever cuts, places or marks asks the fact and never the
name, so that a new model is a new entry in a table. A flag says what may be done; where nobody knows, it says no.
"""

from typing import Literal, TypeAlias

from msgspec import Struct

from contextc.messages import Usage

Kind: TypeAlias = Literal["image", "audio", "video", "document"]
MILLION = 1_000_000


class Price(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Dollars per million tokens. A call with more than `above` tokens of input is paid at `long`, all of it."""

    input: float
    output: float
    cache_read: float
    cache_write: float
    above: int = 0
    long: "Price | None" = None


class Model(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The facts about one model.

    `window` holds input and output together, `output` is the most it writes in one reply. `tokenizer` is one that
    counts exactly, or the name of a house, whose tokens are estimated. `system_between`: it takes a system role
    between other messages. `binds_reasoning`: signatures of its reasoning hold everything before them, so nothing
    there may change. `cache_minimum`: a shorter prefix is not cached; `cache_points`: how many places may be marked
    for it, 0 where the cache is only implicit. `prefill`: it continues a last message of the assistant's.
    `tools_in_chat`: Chat Completions takes tools for it while it reasons.
    """

    name: str
    house: str
    window: int
    output: int
    tokenizer: str = "unknown"
    media: tuple[Kind, ...] = ()
    system_between: bool = False
    binds_reasoning: bool = False
    cache_minimum: int = 0
    cache_points: int = 0
    price: Price | None = None
    reasoning: bool = False
    temperature: bool = True
    forced_tool_choice: bool = True
    prefill: bool = False
    tools_in_chat: bool = True
    efforts: tuple[str, ...] = ()


def cost(model: Model, usage: Usage) -> float | None:
    """What a call cost, in dollars; None where the model's price is not known."""
    if model.price is None:
        return None
    price = model.price
    if price.long is not None and usage.input > price.above:
        price = price.long
    fresh = max(0, usage.input - usage.cache_read - usage.cache_write)
    dollars = fresh * price.input + usage.cache_read * price.cache_read + usage.cache_write * price.cache_write
    return (dollars + usage.output * price.output) / MILLION
