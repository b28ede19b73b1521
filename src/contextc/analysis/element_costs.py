"""The cost of each part of a request, and how long it stays in the requests of a channel.

A provider charges the beginning of a request as a cache read, what follows as a cache write, and the rest as input. So
the price of an element depends on its position. Positions and tokens here are by our own count.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple, cast

from msgspec import Struct

from contextc._common_prefix import count_common_prefix
from contextc._json import JSON, JSONObject, as_object, decode_json
from contextc.analysis.request_elements import Element, Section, classify
from contextc.analysis.request_view import RequestView
from contextc.models.model_info import MILLION, average_write_price

FILE_ARGUMENTS = ("file_path", "path", "filePath", "filename", "file", "notebook_path", "target_file", "uri")
MEDIA_WORDS = (
    *(b'"image"', b'"document"', b'"input_image"', b'"image_url"', b'"inlineData"', b'"inline_data"', b'"input_audio"'),
    *(b'"input_file"', b'"video"', b'"audio"', b'"fileData"'),
)
RESULT_FIELDS = ("content", "output", "toolResult", "functionResponse", "parts")


class PricedTokens(NamedTuple):
    """Tokens as the provider counts them: those read from the cache, written to it, and charged as plain input."""

    read: float = 0.0
    written: float = 0.0
    plain: float = 0.0

    @property
    def total(self) -> float:
        return self.read + self.written + self.plain


class RequestPrices:
    """The prices of the positions of one request. Nothing is known of a request without reported usage.

    `total` are its input tokens as they were charged. `overhead` are tokens that the provider adds to what is sent;
    they come first.
    """

    def __init__(self, request: RequestView) -> None:
        self.request, self.usage = request, request.usage
        usage = self.usage
        self._read = usage.cache_read if usage is not None else 0
        self._written = self._read + (usage.cache_write if usage is not None else 0)
        self.total = max(usage.input, self._written) if usage is not None else request.estimated
        self.counted = request.head_totals[2] + (request.rows.totals[-1] if request.rows.totals else 0)
        self.overhead = min(request.record.budget.overhead, self.total) if self.counted else self.total
        self.factor = (self.total - self.overhead) / self.counted if self.counted else 0.0
        price = request.model.price if request.model is not None and usage is not None else None
        if price is not None and usage is not None and price.long is not None and usage.input > price.above:
            price = price.long
        self.price = price
        self._write_price = average_write_price(price, usage) if price is not None and usage is not None else 0.0

    def split(self, start: float, tokens: float) -> PricedTokens:
        """Return how tokens at a position were charged."""
        first = self.overhead + start * self.factor
        last = first + tokens * self.factor
        read = max(0.0, min(last, self._read) - first)
        written = max(0.0, min(last, self._written) - max(first, self._read))
        return PricedTokens(read, written, last - first - read - written)

    def boundaries(self) -> tuple[float, float, float]:
        """Return the positions up to which input was read, read or written, and sent."""
        ends = (self._read, self._written, self.total)
        factor = self.factor or 1.0
        low, high, last = (min(max(0.0, (each - self.overhead) / factor), self.counted) for each in ends)
        return low, high, last

    def dollars(self, tokens: PricedTokens) -> float:
        """Return the cost of tokens; 0 if the price is unknown."""
        price = self.price
        if price is None:
            return 0.0
        cost = tokens.read * price.cache_read + tokens.written * self._write_price + tokens.plain * price.input
        return cost / MILLION

    def cost(self, start: float, tokens: float) -> float:
        """Return the cost of tokens at a position; 0 if it is unknown."""
        return self.dollars(self.split(start, tokens)) if self.price is not None else 0.0


class Stay(Struct, frozen=True, eq=False):
    """A section that stays at its place in consecutive requests of a channel.

    `first` and `last` are indexes of requests of the channel. `row` is the index of the ledger row; -1 for the system
    prompt. `start` are the tokens before it: within the messages, or after the tools.
    """

    section: Section
    row: int
    start: int
    first: int
    last: int


class Occurrence(Struct, frozen=True, eq=False):
    """One element of a stay. `start` are the tokens before it as in the stay; `tokens` are its own."""

    stay: Stay
    index: int
    start: int
    tokens: int

    @property
    def element(self) -> Element:
        return self.stay.section.elements[self.index]

    @property
    def first(self) -> int:
        return self.stay.first

    @property
    def last(self) -> int:
        return self.stay.last


class ToolUse(NamedTuple):
    """A call of a tool: the name, and the file that it reads or writes; "" if there is none."""

    name: str
    file: str


class ChannelRun:
    """All requests of one channel in their order, with their prices."""

    def __init__(self, requests: Sequence[RequestView]) -> None:
        self.requests = list(requests)
        self.prices = [RequestPrices(each) for each in self.requests]

    @property
    def is_priced(self) -> bool:
        """True if the price of at least one request is known."""
        return any([each.price is not None for each in self.prices])

    @cached_property
    def stays(self) -> list[Stay]:
        """The rows and system prompts, each with the requests in which it stays."""
        return [*self._system_stays(), *self._row_stays()]

    def _system_stays(self) -> Iterator[Stay]:
        begun = 0
        for index, request in enumerate(self.requests):
            following = self.requests[index + 1].system if index + 1 < len(self.requests) else None
            if following is not request.system:
                if request.system.elements:
                    yield Stay(request.system, -1, 0, begun, index)
                begun = index + 1

    def _row_stays(self) -> Iterator[Stay]:
        open: list[tuple[Section, int, int]] = []
        for index, request in enumerate(self.requests):
            sections, totals = request.rows.sections, request.rows.totals
            before = self.requests[index - 1].rows.sections if index else ()
            same = count_common_prefix(before, sections)
            for row in range(same, len(open)):
                yield Stay(open[row][0], row, open[row][1], open[row][2], index - 1)
            del open[same:]
            open += [(sections[row], totals[row - 1] if row else 0, index) for row in range(same, len(sections))]
        for row, (section, start, first) in enumerate(open):
            yield Stay(section, row, start, first, len(self.requests) - 1)

    def occurrences(self, least: int = 0) -> Iterator[Occurrence]:
        """Return the elements of all stays that have at least some tokens, in the order of stays."""
        for stay in self.stays:
            start = stay.start
            for index, tokens in enumerate(stay.section.tokens):
                if tokens >= least:
                    yield Occurrence(stay, index, start, tokens)
                start += tokens

    def position(self, found: Occurrence, request: int) -> int:
        """Return the tokens before an element in a request."""
        totals = self.requests[request].head_totals
        return found.start + (totals[0] if found.stay.row < 0 else totals[2])

    def path(self, found: Occurrence) -> str:
        """Return the path of an element in the body of the first request that has it."""
        element = found.element
        if found.stay.row < 0:
            return element.suffix
        request = self.requests[found.first]
        messages = request.leading.count + (request.rows.messages[found.stay.row - 1] if found.stay.row else 0)
        return f"{request.head.messages_key}[{messages + found.stay.section.messages[found.index]}]{element.suffix}"

    def cost(self, found: Occurrence, first: int, last: int, share: float = 1.0) -> float:
        """Return the cost of an element, or of a share of it, in some requests."""
        return sum(
            [
                self.prices[index].cost(self.position(found, index), found.tokens) * share
                for index in range(first, last + 1)
            ]
        )

    def known(self, cost: float) -> float | None:
        """Return a cost; None if no price is known."""
        return cost if self.is_priced else None

    @cached_property
    def uses(self) -> dict[str, ToolUse]:
        """The calls in all requests, by the id of the call."""
        found: dict[str, ToolUse] = {}
        for section in self.sections:
            for element in section.elements:
                if element.type == "tool_call" and element.call and element.call not in found:
                    found[element.call] = ToolUse(call_name(element), find_file(element))
        return found

    @cached_property
    def sections(self) -> list[Section]:
        """All sections of messages, each once."""
        return list({id(stay.section): stay.section for stay in self.stays if stay.row >= 0}.values())

    def tool_of(self, element: Element) -> ToolUse:
        """Return the tool that a result belongs to."""
        use = self.uses.get(element.call)
        return use if use is not None else ToolUse(element.name, "")


def tool_name(element: Element) -> str:
    """Return the name of a defined tool; for a tool of the provider its type, "" if it has neither."""
    if element.name:
        return element.name
    type = as_object(element.value).get("type")
    return type if isinstance(type, str) and type != "function" else ""


def tool_names(element: Element) -> list[str]:
    """Return the name of a defined tool; for a group of tools also the names of its tools."""
    inside = as_object(element.value).get("tools") if b'"tools"' in element.raw else None
    names = [as_object(each).get("name") for each in cast(list[JSON], inside)] if isinstance(inside, list) else []
    return [tool_name(element), *[each for each in names if isinstance(each, str)]]


def call_name(element: Element) -> str:
    """Return the name of a called tool; for a tool of the provider the type of the call without `_call`."""
    if element.name:
        return element.name
    type = as_object(element.value).get("type")
    return type.removesuffix("_call") if isinstance(type, str) else ""


def read_arguments(element: Element) -> JSONObject:
    """Return the arguments of a call in any format; empty if they are malformed."""
    fields = as_object(element.value)
    for name in ("function", "toolUse", "functionCall"):
        fields = as_object(fields.get(name)) or fields
    value: JSON = next((fields[name] for name in ("input", "arguments", "args") if name in fields), None)
    if isinstance(value, str):
        try:
            value = decode_json(value.encode("utf-8", "surrogatepass"))
        except ValueError:
            return {}
    return as_object(value)


def find_file(element: Element) -> str:
    """Return the file that a call names; "" if it names none."""
    if not any([name.encode() in element.raw for name in FILE_ARGUMENTS]):
        return ""
    arguments = read_arguments(element)
    return next((str(arguments[name]) for name in FILE_ARGUMENTS if isinstance(arguments.get(name), str)), "")


def has_media(element: Element) -> bool:
    """Return True if an element is media, or a result that contains media."""
    if element.type == "media":
        return True
    if element.type != "tool_result" or not any([word in element.raw for word in MEDIA_WORDS]):
        return False
    return _contains_media(element.value)


def _contains_media(value: JSON) -> bool:
    fields = as_object(value)
    for name in RESULT_FIELDS:
        inside = fields.get(name)
        if isinstance(inside, dict) and _contains_media(inside):
            return True
        if isinstance(inside, list) and any([_is_media(as_object(each)) for each in cast(list[JSON], inside)]):
            return True
    return _is_media(fields) if "content" not in fields and "toolResult" not in fields else False


def _is_media(fields: JSONObject) -> bool:
    return bool(fields) and classify(str(fields.get("type") or next(iter(fields))), fields) == "media"
