"""The cost of each part of a request, and how long it stays in the requests of a channel.

A provider charges the beginning of a request as a cache read, what follows as a cache write, and the rest as input. So
the price of an element depends on its position. Positions and tokens here are by our own count.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import NamedTuple, TypeVar, cast

from msgspec import Struct

from contextc._json import JSON, JSONObject, as_object, decode_json
from contextc._sequence_comparison import count_common_prefix
from contextc.analysis.request_elements import Element, RequestView, Section, classify
from contextc.inspection.line_details import InputPrices, PricedTokens
from contextc.inspection.request_timeline import KeepsResults

FILE_ARGUMENTS = ("file_path", "path", "filePath", "filename", "file", "notebook_path", "target_file", "uri")
MEDIA_WORDS = (
    *(b'"image"', b'"document"', b'"input_image"', b'"image_url"', b'"inlineData"', b'"inline_data"', b'"input_audio"'),
    *(b'"input_file"', b'"video"', b'"audio"', b'"fileData"'),
)
T = TypeVar("T")
RESULT_FIELDS = ("content", "output", "toolResult", "functionResponse", "parts")


class RequestPrices(InputPrices):
    """The prices of the positions of one request. Nothing is known of a request without reported usage.

    `total` are its input tokens as they were charged. `overhead` are tokens that the provider adds to what is sent;
    they come first.
    """

    def __init__(self, request: RequestView) -> None:
        self.request, self.usage = request, request.usage
        usage = self.usage
        super().__init__(request.model if usage is not None else None, usage)
        self.total = int(max(usage.input, self.written_end)) if usage is not None else request.input
        self._head = request.head_totals[2]
        rows = request.rows.totals[-1] if request.rows.totals else 0
        self._counted = self._head + rows
        budget = request.record.counted_budget
        self.overhead = min(budget.overhead, self.total) if self._counted else self.total
        self.head_factor, self.row_factor = self._factors(rows)

    def _factors(self, rows: int) -> tuple[float, float]:
        """Return the factors from our own count to what was charged, for the head and for messages.

        They differ, because the budget of a request has calibrated figures, and rows of the ledger do not.
        """
        budget, whole = self.request.record.counted_budget, self.total - self.overhead
        head = budget.system + budget.tools if self._head else 0
        messages = max(0, budget.used - budget.overhead) if rows else 0
        if (self._head and not head) or (rows and not messages) or not head + messages:
            same = whole / self._counted if self._counted else 0.0
            return same, same
        each = whole / (head + messages)
        return each * head / self._head if self._head else 0.0, each * messages / rows if rows else 0.0

    def _charged_before(self, position: float) -> float:
        """Return the charged tokens before a position."""
        in_head = min(position, self._head)
        return self.overhead + in_head * self.head_factor + (position - in_head) * self.row_factor

    def _position(self, charged: float) -> float:
        """Return the position before which some tokens were charged."""
        left = charged - self.overhead
        head = self._head * self.head_factor
        if left <= head or not self.row_factor:
            return max(0.0, min(left / self.head_factor, self._head)) if self.head_factor else 0.0
        return min(self._head + (left - head) / self.row_factor, self._counted)

    def split_at(self, start: float, tokens: float) -> PricedTokens:
        """Return how tokens at a position, by our own count, were charged."""
        return self.split(self._charged_before(start), self._charged_before(start + tokens))

    def boundaries(self) -> tuple[float, float, float]:
        """Return the positions up to which input was read, read or written, and sent."""
        return self._position(self.read_end), self._position(self.written_end), self._counted

    def cost(self, start: float, tokens: float) -> float:
        """Return the cost of tokens at a position; 0 if it is unknown."""
        return self.dollars(self.split_at(start, tokens)) if self.price is not None else 0.0


class Stay(Struct, eq=False):
    """A section that stays at its place in consecutive requests of a channel.

    `first` and `last` are indexes of requests of the channel. `row` is the index of the ledger row; -1 for the system
    prompt. `start` are the tokens before it: within the messages, or within the system prompt. A stay is open while
    the last request of the channel has it: then `last` grows with the channel.
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


class Occurrences:
    """The chosen elements of the stays of a run: those of system prompts, of rows whose stay has ended, and of the rows
    of the last request. The first two only grow at their ends.
    """

    def __init__(self, least: int, accepts: Callable[[Element], bool]) -> None:
        self.systems: list[Occurrence] = []
        self.ended: list[Occurrence] = []
        self.open: list[Occurrence] = []
        self._choose = partial(_choose, least=least, accepts=accepts)
        self._chosen: dict[int, list[tuple[int, int, int]]] = {}
        self._counts = 0, 0
        self._still_open: list[Stay] = []
        self._open_ends: list[int] = []

    def update(self, systems: Sequence[Stay], ended: Sequence[Stay], still_open: Sequence[Stay]) -> None:
        """Add the stays that are new. Each element is examined once, however many stays it has."""
        self.systems += self._find(systems[self._counts[0] :])
        self.ended += self._find(ended[self._counts[1] :])
        same = count_common_prefix(self._still_open, still_open)
        del self.open[self._open_ends[same - 1] if same else 0 :]
        del self._open_ends[same:]
        for stay in still_open[same:]:
            self.open += self._find((stay,))
            self._open_ends.append(len(self.open))
        self._still_open = list(still_open)
        self._counts = len(systems), len(ended)

    def _find(self, stays: Iterable[Stay]) -> list[Occurrence]:
        found: list[Occurrence] = []
        chosen = self._chosen
        for stay in stays:
            if (some := chosen.get(id(stay.section))) is None:
                some = chosen[id(stay.section)] = self._choose(stay.section)
            for index, start, tokens in some:
                found.append(Occurrence(stay, index, stay.start + start, tokens))
        return found


class ToolUse(NamedTuple):
    """A call of a tool: the name, and the file that it reads or writes; "" if there is none."""

    name: str
    file: str


class ChannelRun(KeepsResults):
    """All requests of one channel in their order, with their prices. Requests can be added at the end.

    `sections` are all sections of messages, `uses` all calls by their id, in the order in which they appear first, and
    `called` the names of all called tools.
    """

    def __init__(self, requests: Iterable[RequestView] = ()) -> None:
        super().__init__()
        self.requests: list[RequestView] = []
        self.prices: list[RequestPrices] = []
        self.is_priced = False
        """True if the price of at least one request is known."""
        self.sections: dict[int, Section] = {}
        self.uses: dict[str, ToolUse] = {}
        self.called: set[str] = set()
        self._system_stays: list[Stay] = []
        self._ended_rows: list[Stay] = []
        self._open_rows: list[Stay] = []
        self._costs: dict[tuple[int, ...], tuple[int, float]] = {}
        self._unknown_calls: set[str] = set()
        self._memo: dict[object, dict[int, object]] = {}
        self._occurrences: dict[tuple[int, Callable[[Element], bool]], Occurrences] = {}
        self._accepted: dict[Callable[[RequestView], bool], tuple[int, list[RequestView]]] = {}
        self.extend(requests)

    def extend(self, requests: Iterable[RequestView]) -> None:
        """Add requests."""
        for request in requests:
            index, before = len(self.requests), self.requests[-1] if self.requests else None
            self.requests.append(request)
            self.prices.append(RequestPrices(request))
            self.is_priced = self.is_priced or self.prices[-1].price is not None
            if before is not None and before.system.elements:
                self._system_stays[-1].last = index - (before.system is not request.system)
            if request.system.elements and (before is None or before.system is not request.system):
                self._system_stays.append(Stay(request.system, -1, 0, index, index))
            sections, totals = request.rows.sections, request.rows.totals
            same = count_common_prefix(before.rows.sections, sections) if before is not None else 0
            for stay in self._open_rows[same:]:
                stay.last = index - 1
                self._ended_rows.append(stay)
            del self._open_rows[same:]
            self._open_rows += [
                Stay(sections[row], row, totals[row - 1] if row else 0, index, index)
                for row in range(same, len(sections))
            ]
            for section in sections[same:]:
                self._add_section(section)
        for stay in self._open_rows:
            stay.last = len(self.requests) - 1

    def _add_section(self, section: Section) -> None:
        if id(section) in self.sections:
            return
        self.sections[id(section)] = section
        for element in section.elements:
            if element.type != "tool_call":
                continue
            name = call_name(element)
            self.called.add(name)
            if element.call and element.call not in self.uses:
                self.uses[element.call] = ToolUse(name, find_file(element))
                if element.call in self._unknown_calls:  # its result came first
                    self.forget()

    def occurrences(self, least: int, accepts: Callable[[Element], bool]) -> Iterator[Occurrence]:
        """Return the elements of all stays that are accepted and have at least some tokens: first those of system
        prompts, then those of rows, both in the order in which they end.
        """
        found = self.find_occurrences(least, accepts)
        return chain(found.systems, found.ended, found.open)

    def find_occurrences(self, least: int, accepts: Callable[[Element], bool]) -> Occurrences:
        """Return the same in three parts."""
        if (found := self._occurrences.get((least, accepts))) is None:
            found = self._occurrences[least, accepts] = Occurrences(least, accepts)
        found.update(self._system_stays, self._ended_rows, self._open_rows)
        return found

    def accepted(self, accepts: Callable[[RequestView], bool]) -> list[RequestView]:
        """Return the requests that a function accepts. It is called once for each request."""
        count, found = self._accepted.get(accepts, (0, []))
        found += [each for each in self.requests[count:] if accepts(each)]
        self._accepted[accepts] = len(self.requests), found
        return found

    def once(self, function: Callable[[Element], T], element: Element) -> T:
        """Return what a function returns for an element. It is called once for each element."""
        known = cast(dict[int, T], self._memo.setdefault(function, {}))
        if (found := known.get(id(element))) is None:
            found = known[id(element)] = function(element)
        return found

    def position(self, found: Occurrence, request: int) -> int:
        """Return the tokens before an element in a request."""
        view = self.requests[request]
        return found.start + (view.head_tokens_before("system") if found.stay.row < 0 else view.head_totals[2])

    def path(self, found: Occurrence) -> str:
        """Return the path of an element in the body of the first request that has it."""
        element = found.element
        if found.stay.row < 0:
            return element.suffix
        request = self.requests[found.first]
        messages = request.leading.count + (request.rows.messages[found.stay.row - 1] if found.stay.row else 0)
        return f"{request.head.messages_key}[{messages + found.stay.section.messages[found.index]}]{element.suffix}"

    def cost(self, found: Occurrence, first: int, last: int, share: float = 1.0) -> float:
        """Return the cost of an element, or of a share of it, in some requests. Sums are kept, to be continued."""
        stay = found.stay
        key = (id(stay.section), found.index, stay.row, stay.start, first)
        index, cost = self._costs.get(key, (first, 0.0))
        if index > last + 1:
            index, cost = first, 0.0
        while index <= last:
            cost += self.prices[index].cost(self.position(found, index), found.tokens)
            index += 1
        self._costs[key] = index, cost
        return cost * share

    def known(self, cost: float) -> float | None:
        """Return a cost; None if no price is known."""
        return cost if self.is_priced else None

    def tool_of(self, element: Element) -> ToolUse:
        """Return the tool that a result belongs to."""
        if (use := self.uses.get(element.call)) is not None:
            return use
        self._unknown_calls.add(element.call)
        return ToolUse(element.name, "")


def _choose(section: Section, least: int, accepts: Callable[[Element], bool]) -> list[tuple[int, int, int]]:
    """Return the accepted elements of a section: index, tokens before it in the section, and its tokens."""
    found: list[tuple[int, int, int]] = []
    start = 0
    for index, (element, tokens) in enumerate(zip(section.elements, section.tokens, strict=True)):
        if tokens >= least and accepts(element):
            found.append((index, start, tokens))
        start += tokens
    return found


def is_appended_tool(element: Element) -> bool:
    """Return True for the definition of a tool among the messages."""
    return element.type == "tool" and element.kind != "tool"


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
