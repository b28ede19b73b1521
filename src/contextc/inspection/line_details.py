"""Facts about one line of a request: causes of its tokens, tools, calls with their values, results with their calls."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Literal, NamedTuple, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from contextc._json import JSONObject, encode
from contextc.messages import AnyPart, Media, Message, Reasoning, ToolCall, ToolResult, Usage, UserNotice, to_plain_text
from contextc.models import Model, Price
from contextc.models.billing import apply_price, average_write_price
from contextc.models.model_info import MILLION

LineCause: TypeAlias = Literal["system", "tool", "result", "history", "reasoning", "media"]
CAUSES: tuple[LineCause, ...] = ("system", "tool", "result", "history", "reasoning", "media")
ResultStatus: TypeAlias = Literal["ok", "error", "denied"]
DENIED_TEXTS = (
    "Not run: the user declined",
    "Not run: this tool needs a person's approval",
    "Not run: the call was altered while it waited for approval",
    "The user doesn't want to proceed with this tool use",
    "The user doesn't want to take this action right now",
    "exec command rejected by user",
    "rejected by user",
)
"""Beginnings of results of calls that were not allowed to run: of contextc, Claude Code and Codex."""


class LineToolCall(Struct, frozen=True):
    """A tool call of a line. `text` is the call with its values, and `result` the index of the line with its result."""

    id: str
    name: str
    text: str
    result: int | None


class LineResult(Struct, frozen=True):
    """A tool result of a line. `call` is the index of the line with its call.

    `status` is "ok", "error", or "denied" if the call was not allowed to run.
    """

    call_id: str
    name: str
    status: ResultStatus
    call: int | None


class LineDetails(NamedTuple):
    """Facts about one line. `definition` is the tool definition of a line that is one.

    `is_again` is True if the previous request had the message too, but not in the shared prefix. `is_paid_again` is
    True if it is in the shared prefix, but was not read from the cache. `is_changed` is True for a system prompt or
    tool of which the previous request had another version.
    """

    causes: tuple[LineCause, ...]
    calls: tuple[LineToolCall, ...] = ()
    results: tuple[LineResult, ...] = ()
    is_again: bool = False
    name: str = ""
    definition: JSONObject | None = None
    is_paid_again: bool = False
    is_changed: bool = False

    @property
    def tools(self) -> tuple[str, ...]:
        """Names of the tools that this line defines, calls, or has results of."""
        names = [self.name, *(each.name for each in self.calls), *(each.name for each in self.results)]
        return tuple(dict.fromkeys([each for each in names if each]))

    @property
    def is_error(self) -> bool:
        return any([each.status != "ok" for each in self.results])


def describe_parts(parts: Sequence[AnyPart], is_again: bool = False, *, short: bool = False) -> LineDetails:
    """Return the facts about a message with these parts. Calls and results are not paired yet.

    With `short`, calls have no text.
    """
    calls = [
        LineToolCall(part.id, part.name, "" if short else format_call(part), None)
        for part in parts
        if type(part) is ToolCall
    ]
    results = [
        LineResult(part.call_id, part.name, result_status(part), None) for part in parts if type(part) is ToolResult
    ]
    causes: dict[LineCause, None] = dict.fromkeys([cause_of(part) for part in parts if type(part) is not UserNotice])
    return LineDetails(tuple(causes) or ("history",), tuple(calls), tuple(results), is_again)


def cause_of(part: AnyPart) -> LineCause:
    """Return the cause of the tokens of a part, as the costs by cause name it."""
    if isinstance(part, Media):
        return "media"
    if isinstance(part, ToolResult):
        has_media = not isinstance(part.content, str) and any([isinstance(each, Media) for each in part.content])
        return "media" if has_media else "result"
    return "reasoning" if isinstance(part, Reasoning) else "history"


def result_status(part: ToolResult) -> ResultStatus:
    if part.text.startswith(DENIED_TEXTS):
        return "denied"
    return "error" if part.is_error else "ok"


def format_call(call: ToolCall) -> str:
    """Return a call with its values, such as `read_file(path="a.py", limit=20)`."""
    if call.malformed:
        return f"{call.name}({call.raw or ''})"
    return f"{call.name}({', '.join([f'{name}={encode(value).decode()}' for name, value in call.arguments.items()])})"


def searched_text(message: Message) -> str:
    """Return the text of a message that a search covers: all texts, reasoning, calls and results."""
    if message.redacted:
        return to_plain_text(message)
    extra = [
        part.text if isinstance(part, Reasoning) else format_call(part)
        for part in message.parts
        if isinstance(part, Reasoning | ToolCall)
    ]
    return "\n".join([to_plain_text(message), *extra]) if extra else to_plain_text(message)


def pair_details(lines: Iterable[tuple[int, LineDetails]]) -> Mapping[int, LineDetails]:
    """Return the lines, in order, with calls and results paired. A result belongs to the last call with its id."""
    found: dict[int, LineDetails] = {}
    open_calls: dict[str, tuple[int, int]] = {}
    for number, line in lines:
        if not line.calls and not line.results:
            found[number] = line
            continue
        for place, call in enumerate(line.calls):
            open_calls[call.id] = (number, place)
        results: list[LineResult] = []
        for each in line.results:
            where = open_calls.pop(each.call_id, None)
            if where is None:
                results.append(each)
                continue
            caller = line if where[0] == number else found[where[0]]
            call = caller.calls[where[1]]
            results.append(replace(each, call=where[0], name=each.name or call.name))
            calls = (*caller.calls[: where[1]], replace(call, result=number), *caller.calls[where[1] + 1 :])
            if where[0] == number:
                line = line._replace(calls=calls)
            else:
                found[where[0]] = caller._replace(calls=calls)
        found[number] = line._replace(results=tuple(results))
    return found


# ── costs ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
# The share of each part of a request in the price of its input.


class PricedTokens(NamedTuple):
    """Tokens as the provider counts them: those read from the cache, written to it, and charged as plain input."""

    read: float = 0.0
    written: float = 0.0
    plain: float = 0.0

    @property
    def total(self) -> float:
        return self.read + self.written + self.plain


class InputPrices:
    """The prices of the input of a request by position.

    A provider reports how much it read from its cache and how much it wrote there. Both are prefixes, so what is before
    the end of the one was read, and what is before the end of the other was written. Without usage, all is new. `price`
    is None if it is unknown. `scale` is the factor from reported tokens to those of the positions.
    """

    def __init__(self, model: Model | None, usage: Usage | None, scale: float = 1) -> None:
        applied = apply_price(model, usage or Usage()) if model is not None else None
        price = self.price = applied.price if applied is not None else None
        self.read_end = usage.cache_read * scale if usage is not None else 0
        self.written_end = self.read_end + (usage.cache_write * scale if usage is not None else 0)
        self._write_price = 0.0
        if price is not None:
            self._write_price = average_write_price(price, usage) if usage is not None else price.cache_write

    def split(self, first: float, last: float) -> PricedTokens:
        """Return how the tokens between two positions were charged."""
        read = max(0.0, min(last, self.read_end) - first)
        written = max(0.0, min(last, self.written_end) - max(first, self.read_end))
        return PricedTokens(read, written, last - first - read - written)

    def dollars(self, tokens: PricedTokens) -> float:
        """Return the cost of tokens; 0 if the price is unknown."""
        price = self.price
        if price is None:
            return 0.0
        cost = tokens.read * price.cache_read + tokens.written * self._write_price + tokens.plain * price.input
        return cost / MILLION


def compute_item_costs(
    model: Model | None, tokens: Sequence[int], above: int, usage: Usage | None
) -> Sequence[float | None]:
    """Return the share of each item in the price of the input, in dollars; None if the price is unknown. `above` are
    the tokens before the first item.
    """
    if model is None or model.price is None:
        return [None] * len(tokens)
    ends = list(accumulate(tokens, initial=above))
    prices = InputPrices(model, usage, ends[-1] / usage.input if usage is not None and usage.input else 0.0)
    return [prices.dollars(prices.split(start, end)) for start, end in pairwise(ends)]


def compute_miss_cost(price: Price | None, usage: Usage, tokens: int) -> float | None:
    """Return what tokens cost more than a read from the cache, in dollars; None if the price is unknown."""
    if price is None:
        return None
    paid = average_write_price(price, usage) if usage.cache_write else price.input
    return max(0.0, tokens * (paid - price.cache_read) / MILLION)
