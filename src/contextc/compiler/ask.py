"""What a caller asks for, with what the store says about it.

`Terms` is what follows from the caller's words alone: hashes, tokens of head and tools, the budget. From step to step
they say the same, so their terms are made once and used for many requests (`prepared.py`).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from msgspec import Struct

from contextc._json import JSONObject
from contextc.compiler.assembly import Fetch
from contextc.compiler.compiled import HeadParts
from contextc.draft import Budget, Options
from contextc.errors import InvalidInput
from contextc.formats.base import Formatter
from contextc.ledger.items import Item
from contextc.ledger.look import Sight
from contextc.ledger.overlays import Summary
from contextc.ledger.standing import Channel, Head, Standing
from contextc.models import Model
from contextc.prompts import Prompt
from contextc.providers import Provider
from contextc.tokens import Counter
from contextc.tools import NativeTool, Tool

AnyTool: TypeAlias = Tool | NativeTool

OUTPUT, LONGEST_OUTPUT = 8_000, 32_000
SMALL_WINDOW, MARGIN = 1_024, 256


class Tools(NamedTuple):
    """The tools of a request: ours with the one that fetches results, as they are sent, their hash and their tokens."""

    tools: tuple[AnyTool, ...]
    hash: str
    tokens: int
    given: tuple[AnyTool, ...]
    """As the caller gave them."""
    marks: int = 0
    """How many cache points they came with."""


class Terms(Struct, frozen=True, kw_only=True):
    """What is the same for all requests in which the same is asked for."""

    prompt: Prompt
    tools: Tools
    names: tuple[str, ...]
    """Of the tools, in the order they are shown."""
    fetchable: bool
    settings: JSONObject
    given: bytes
    """The settings in one spelling."""
    output: int | None
    formatter: Formatter
    head: Head
    budget: Budget
    audiences: frozenset[str]
    points: int
    """How many cache points are left to set."""


class Ask(Struct, frozen=True, kw_only=True):
    provider: Provider
    counter: Counter
    options: Options
    channel: Channel
    terms: Terms
    run: str | None = None
    running: frozenset[str] | None = None
    runs: str = ""
    sight: Sight
    summary: Summary | None = None
    counts: Mapping[int, int] = {}
    factor: float = 1.0
    fetch: Fetch
    heads: dict[object, HeadParts]
    again: bool = False
    dry_run: bool = False
    left_out: Callable[[Sight, Sequence[Item]], Mapping[int, str]]
    """What requests before this one left out, by place."""
    elsewhere: Standing | None = None
    """Where the channel stands that this agent's conversation went to last, if nothing was shown on this one yet."""


def tool_name(tool: AnyTool) -> str:
    return tool.name if isinstance(tool, Tool) else str(tool.data.get("name") or tool.data.get("type") or "")


def budget_of(
    model: Model, options: Options, *, system: int, tools: int, budget: int | None, output: int | None, exact: bool
) -> Budget:
    """Where the tokens go before any message is counted. `budget` is what the caller lets the whole input take."""
    window = model.window
    wanted = output if output is not None else min(model.output, OUTPUT)
    reserve = min(wanted, LONGEST_OUTPUT, window // 2)
    if options.policy == "seed_b":
        reserve = min(output or model.output, window)
    margin = max(MARGIN, window // 100) if window > SMALL_WINDOW and options.policy != "seed_b" else 0
    limit = None
    if budget is not None:
        if budget <= 0:
            raise InvalidInput(f"budget={budget}: give the tokens the whole input may take.")
        limit, reserve, margin = min(budget, window), 0, 0
    return Budget(window=window, system=system, tools=tools, reserve=reserve, margin=margin, limit=limit, exact=exact)
