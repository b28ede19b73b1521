"""The arguments of a compilation, resolved against the store.

`RequestTerms` depend on the caller's arguments only: hashes, tokens of head and tools, the budget. The arguments rarely change
from step to step, so `prepared.py` caches the terms.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from msgspec import Struct

from contextc._json import JSONObject
from contextc.compiler.assembly import FetchMessages
from contextc.compiler.compiled import HeadParts
from contextc.draft import Budget, CompilerOptions
from contextc.errors import InvalidInput
from contextc.formats.base import Formatter
from contextc.ledger.items import Item
from contextc.ledger.look import ChannelSnapshot
from contextc.ledger.overlays import Summary
from contextc.ledger.standing import Channel, ChannelState, HeadHashes
from contextc.models import Model
from contextc.prompts import Prompt
from contextc.providers import Provider
from contextc.tokens import TokenCounter
from contextc.tools import NativeTool, Tool

AnyTool: TypeAlias = Tool | NativeTool

OUTPUT, LONGEST_OUTPUT = 8_000, 32_000
SMALL_WINDOW, MARGIN = 1_024, 256


class PreparedTools(NamedTuple):
    """The tools of a request as they are sent, including `fetch_result`; their hash and their tokens."""

    tools: tuple[AnyTool, ...]
    hash: str
    tokens: int
    given: tuple[AnyTool, ...]
    """The tools as the caller passed them."""
    marks: int = 0
    """Number of cache breakpoints that the caller's tools contain."""


class RequestTerms(Struct, frozen=True, kw_only=True):
    """Values that all requests with the same arguments share."""

    prompt: Prompt
    tools: PreparedTools
    names: tuple[str, ...]
    """Names of the tools, in the order they are sent."""
    fetchable: bool
    settings: JSONObject
    given: bytes
    """The caller's settings as canonical JSON."""
    output: int | None
    formatter: Formatter
    head: HeadHashes
    budget: Budget
    audiences: frozenset[str]
    points: int
    """Number of cache breakpoints that may still be set."""


class CompileInput(Struct, frozen=True, kw_only=True):
    """The input of one compilation: arguments, terms, and the loaded channel."""

    provider: Provider
    counter: TokenCounter
    options: CompilerOptions
    channel: Channel
    terms: RequestTerms
    run: str | None = None
    running: frozenset[str] | None = None
    runs: str = ""
    sight: ChannelSnapshot
    summary: Summary | None = None
    counts: Mapping[int, int] = {}
    factor: float = 1.0
    fetch: FetchMessages
    heads: dict[object, HeadParts]
    again: bool = False
    dry_run: bool = False
    left_out: Callable[[ChannelSnapshot, Sequence[Item]], Mapping[int, str]]
    """Return what earlier requests left out, by place, with the reason."""
    elsewhere: ChannelState | None = None
    """State of the channel that this agent used last, if this channel has no request yet. Set for dry runs only."""


def get_tool_name(tool: AnyTool) -> str:
    return tool.name if isinstance(tool, Tool) else str(tool.data.get("name") or tool.data.get("type") or "")


def compute_budget(
    model: Model,
    options: CompilerOptions,
    *,
    system: int,
    tools: int,
    budget: int | None,
    output: int | None,
    exact: bool,
) -> Budget:
    """Return the budget before any message is counted. `budget` is the caller's limit for the whole input."""
    window = model.window
    wanted = output if output is not None else min(model.output, OUTPUT)
    reserve = min(wanted, LONGEST_OUTPUT, window // 2)
    if options.policy == "seed_b":
        reserve = min(output or model.output, window)
    margin = max(MARGIN, window // 100) if window > SMALL_WINDOW and options.policy != "seed_b" else 0
    limit = None
    if budget is not None:
        if budget <= 0:
            raise InvalidInput(
                "budget must be a positive number of tokens", got=budget, fix="Pass the limit for the whole input."
            )
        limit, reserve, margin = min(budget, window), 0, 0
    return Budget(window=window, system=system, tools=tools, reserve=reserve, margin=margin, limit=limit, exact=exact)
