"""The properties of a model, and the cost of a call.

Other modules depend on the properties of a model, never on its name, so that a new model only needs a table entry. A
flag is False if the capability is unknown.
"""

from typing import Literal, TypeAlias

from msgspec import Struct

from contextc._deprecation import warn_renamed
from contextc.messages import Usage

MediaKind: TypeAlias = Literal["image", "audio", "video", "document"]
MILLION = 1_000_000


class Price(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """US dollars per million tokens. A call with more than `above` input tokens is charged entirely at `long`."""

    input: float
    output: float
    cache_read: float
    cache_write: float
    above: int = 0
    long: "Price | None" = None


class Model(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The properties of one model.

    `window` limits input and output together, `output` limits one reply. `tokenizer` is an exact tokenizer, or the name
    of a vendor, whose tokens are estimated. `system_between`: accepts a system role between other messages.
    `binds_reasoning`: signatures of its reasoning cover everything before them, so nothing there may change.
    `cache_minimum`: a shorter prefix is not cached. `cache_points`: the number of cache breakpoints, 0 for an implicit
    cache. `prefill`: continues a final assistant message. `tools_in_chat`: Chat Completions accepts tools while it
    reasons.
    """

    name: str
    vendor: str
    window: int
    output: int
    tokenizer: str = "unknown"
    media: tuple[MediaKind, ...] = ()
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

    @property
    def house(self) -> str:
        """Deprecated: `vendor`."""
        warn_renamed("Model.house", "Model.vendor")
        return self.vendor


def cost(model: Model, usage: Usage) -> float | None:
    """Return the cost of a call in US dollars, or None if the price of the model is unknown."""
    if model.price is None:
        return None
    price = model.price
    if price.long is not None and usage.input > price.above:
        price = price.long
    fresh = max(0, usage.input - usage.cache_read - usage.cache_write)
    dollars = fresh * price.input + usage.cache_read * price.cache_read + usage.cache_write * price.cache_write
    return (dollars + usage.output * price.output) / MILLION
