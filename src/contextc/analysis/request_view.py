"""The requests of a conversation as elements in cache order, for everything that analyses them.

Each row of the ledger and each head is read and parsed once. Requests share sections, so prefixes are compared by
identity. Text is decoded only where it is asked for.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import Literal, NamedTuple, Self, TypeAlias, TypeVar, cast

from msgspec import Struct
from msgspec.structs import replace

from contextc._json import JSONObject, as_object
from contextc.analysis.request_elements import (
    Element,
    ElementParser,
    Head,
    Rows,
    Section,
    weigh,
)
from contextc.compiler.draft import Budget, distribute
from contextc.compiler.manifest import RequestRecord
from contextc.inspection.line_details import SYSTEM_FIRST_FORMATS
from contextc.inspection.request_timeline import SentRequest
from contextc.messages import Usage
from contextc.models import Model, Price
from contextc.store.conversation_list import ObservedSource
from contextc.store.ledger_schema import Channel
from contextc.store.turn_and_event_records import StepRecord

# ── kept results ──────────────────────────────────────────────────────────────────────────────────────────────────────
# Results that are kept with what they were computed from, to be continued when requests are added to it.


T = TypeVar("T")


class KeepsResults:
    """An object with which others keep what they computed. `forget` is called if it changed other than at its end."""

    def __init__(self) -> None:
        self._kept: dict[object, object] = {}

    def keep(self, kind: Callable[[Self], T]) -> T:
        """Return the object that a class made of this one when it was asked for first."""
        if kind not in self._kept:
            self._kept[kind] = kind(self)
        return cast(T, self._kept[kind])

    def forget(self) -> None:
        """Discard everything that is kept."""
        self._kept.clear()


# ── requests ──────────────────────────────────────────────────────────────────────────────────────────────────────────


NO_USAGE = Usage()
MAX_SCALE = 3
UNCERTAIN_TOKENS = 2_000
LONG_TTLS = ("1h", "12h")
"""The times of cache breakpoints that are kept longer than by default, for a higher price."""


HeadPart: TypeAlias = Literal["tools", "system"]


class PlacedElement(NamedTuple):
    """An element of one request: its position in cache order, its path in the body, and its tokens.

    `tokens` are corrected by the provider's own total, if it reported one.
    """

    position: int
    element: Element
    path: str
    tokens: int


class RequestView(SentRequest):
    """A request with its content in cache order. `is_replaced` is True if the body was replaced before it was sent, so
    that it is stored whole.
    """

    def __init__(
        self,
        *,
        channel: "ChannelFacts",
        number: int,
        record: RequestRecord,
        head: Head,
        rows: Rows,
        parser: ElementParser,
        step: StepRecord | None = None,
        is_replaced: bool = False,
    ) -> None:
        super().__init__(channel.channel, number, record, step, channel.model)
        self._facts, self.head, self.rows, self.is_replaced = channel, head, rows, is_replaced
        system, leading = _split_tokens(record.budget.system, head)
        self.tools = parser.sized(head.tools, record.budget.tools)
        self.system = parser.sized(head.system, system)
        self.leading = parser.sized(head.leading, leading)

    def __repr__(self) -> str:
        return f"<request {self.number} of {self.channel}: {self.input:,} tokens, {self.status}>"

    def followed_by(self, record: RequestRecord, rows: Rows, parser: ElementParser) -> "RequestView":
        """Return another request of the same channel with the same head."""
        return RequestView(
            channel=self._facts, number=record.request, record=record, head=self.head, rows=rows, parser=parser
        )

    # ── facts ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def channel_id(self) -> str:
        """The short id of the channel."""
        return self._facts.id

    @property
    def channel_number(self) -> int:
        """The number of the channel in its store. Channels that were recorded later have larger numbers."""
        return self._facts.number

    @property
    def format(self) -> str:
        """The name of the wire format."""
        return self._facts.format

    @property
    def price(self) -> Price | None:
        """The price of this request; None if it is unknown."""
        price = self.model.price if self.model is not None else None
        return price.long if price is not None and price.long is not None and self.input > price.above else price

    @property
    def settings(self) -> JSONObject:
        """All fields of the body but messages, system prompt and tools."""
        return self.head.settings

    @cached_property
    def usage(self) -> Usage | None:
        """The usage as the provider reported it; None if it reported none. If it does not say how long it keeps what it
        wrote, the breakpoints do.
        """
        usage = super().usage
        if usage is None or usage == NO_USAGE:
            return None
        return with_long_writes(usage, self.marks) if usage.cache_write and not usage.cache_write_long else usage

    @cached_property
    def input(self) -> int:
        """Input tokens: as the provider counted them, or else by our own count."""
        usage = self.usage
        if usage is not None and usage.input and not self.record.partial:
            return usage.input
        return self.estimated

    @property
    def estimated(self) -> int:
        """Input tokens by our own count."""
        return self.record.budget.input

    @cached_property
    def scale(self) -> float:
        """The factor from our own count to the provider's; 1 if that includes what the request does not contain, such
        as results of tools that the provider ran. Our own count is that of all elements: the budget of a request of our
        own is calibrated, and its rows are not.
        """
        counted, charged = self.tokens_before(self.count) or self.estimated, self.input - self.overhead
        factor = charged / counted if counted else 1.0
        is_likely = 1 / MAX_SCALE <= factor <= MAX_SCALE or abs(charged - counted) < UNCERTAIN_TOKENS
        return factor if is_likely else 1.0

    @cached_property
    def overhead(self) -> int:
        """The tokens before the first element that the provider counted, and that the request does not contain."""
        return min(self.record.counted_budget.overhead, self.input)

    def charged_before(self, index: int) -> int:
        """Return the tokens before an element as the provider counts them, with the overhead."""
        return self.overhead + round(self.tokens_before(index) * self.scale) if index else 0

    def tokens_in_budget(self, start: int, tokens: int) -> int:
        """Return the tokens of a part of the messages as the inspector lists them: its share of the budget.

        `start` are the tokens of the messages before it, by our own count. Parts add up to what they are parts of.
        """
        first, last = self.tokens_before_ends([start, start + tokens])
        return last - first

    def tokens_before_ends(self, ends: Sequence[int]) -> list[int]:
        """Return the tokens of the messages up to some ends, likewise."""
        whole, total = self.rows.totals[-1] if self.rows.totals else 0, self._budget.messages
        return [total * end // whole for end in ends] if whole else [0] * len(ends)

    @cached_property
    def tool_tokens(self) -> list[int]:
        """The tokens of each tool definition, likewise."""
        return distribute(self._budget.tools, [weigh(each) for each in self.tools.elements])

    @cached_property
    def _budget(self) -> Budget:
        return self.record.corrected_budget

    # ── elements ──────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def head_parts(self) -> tuple[HeadPart, HeadPart, HeadPart]:
        """The part of the request that each of `head_sections` belongs to."""
        is_system_first = self.format in SYSTEM_FIRST_FORMATS
        return ("system", "tools", "system") if is_system_first else ("tools", "system", "system")

    @property
    def head_sections(self) -> tuple[Section, Section, Section]:
        """Tools, system prompt, and leading system messages, in cache order: Gemini has the system prompt first."""
        if self.format in SYSTEM_FIRST_FORMATS:
            return self.system, self.tools, self.leading
        return self.tools, self.system, self.leading

    @cached_property
    def head_ends(self) -> tuple[int, int, int]:
        """The number of elements up to the end of each of `head_sections`."""
        first, second, leading = [len(each.elements) for each in self.head_sections]
        return first, first + second, first + second + leading

    @cached_property
    def head_totals(self) -> tuple[int, int, int]:
        """The same in tokens, by our own count."""
        first, second, leading = [each.total for each in self.head_sections]
        return first, first + second, first + second + leading

    def head_start(self, part: HeadPart) -> int:
        """Return the number of elements before the tools, or before the system prompt."""
        return self.head_ends[0] if self.head_parts[1] == part else 0

    def head_tokens_before(self, part: HeadPart) -> int:
        """Return the same in tokens, by our own count."""
        return self.head_totals[0] if self.head_parts[1] == part else 0

    def head_part_at(self, index: int) -> HeadPart | None:
        """Return the part of the head that an element belongs to; None for messages."""
        return next((part for part, end in zip(self.head_parts, self.head_ends, strict=True) if index < end), None)

    @property
    def sections(self) -> tuple[Section, ...]:
        """All sections in cache order: those of the head, then rows."""
        return (*self.head_sections, *self.rows.sections)

    @property
    def count(self) -> int:
        """The number of elements."""
        return self.head_ends[2] + self.rows.count

    def elements(self, start: int = 0) -> list[Element]:
        """Return the elements in cache order, from one on."""
        if start >= self.head_ends[2]:
            first, skip = self._find_row(start)
            found = list(chain.from_iterable([each.elements for each in self.rows.sections[first:]]))
            return found[skip:] if skip else found
        return list(chain.from_iterable([each.elements for each in self.sections]))[start:]

    def tokens(self, start: int = 0) -> list[int]:
        """Return the tokens of the elements by our own count. Multiply by `scale` for the provider's count."""
        if start >= self.head_ends[2]:
            first, skip = self._find_row(start)
            found = list(chain.from_iterable([each.tokens for each in self.rows.sections[first:]]))
            return found[skip:] if skip else found
        return list(chain.from_iterable([each.tokens for each in self.sections]))[start:]

    def tokens_before(self, index: int) -> int:
        """Return the tokens of the elements before one, by our own count."""
        if index >= self.head_ends[2]:
            row, skip = self._find_row(index)
            before = self.head_totals[2] + (self.rows.totals[row - 1] if row else 0)
            return before + (sum(self.rows.sections[row].tokens[:skip]) if skip else 0)
        return sum([tokens for section in self.head_sections for tokens in section.tokens][:index])

    def placed(self, start: int = 0) -> Iterator[PlacedElement]:
        """Return the elements with their paths and tokens, from one on."""
        scale, (_, head, leading) = self.scale, self.head_ends
        if start < head:
            fixed = [
                each
                for section in self.head_sections[:2]
                for each in zip(section.elements, section.tokens, strict=True)
            ]
            for index, (element, tokens) in enumerate(fixed[start:], start):
                yield PlacedElement(index, element, element.suffix, round(tokens * scale))
        first, skip = self._find_row(max(start, leading))
        sections = self.rows.sections[first:]
        at, messages = leading + (self.rows.ends[first - 1] if first else 0), self._messages_before(first)
        if start < leading:
            sections, at, messages, skip = (self.leading, *self.rows.sections), head, 0, max(0, start - head)
        for section in sections:
            for offset in range(skip, len(section.elements)):
                element, tokens = section.elements[offset], section.tokens[offset]
                path = f"{self.head.messages_key}[{messages + section.messages[offset]}]{element.suffix}"
                yield PlacedElement(at + offset, element, path, round(tokens * scale))
            at, messages, skip = at + len(section.elements), messages + section.count, 0

    def at(self, index: int) -> PlacedElement:
        """Return one element. A negative index counts from the end."""
        return next(self.placed(index if index >= 0 else self.count + index))

    def message_of(self, index: int) -> int:
        """Return the index of the message of an element; -1 for tools, the system prompt, and beyond the end."""
        _, head, leading = self.head_ends
        if index < leading:
            return self.leading.messages[index - head] if index >= head else -1
        row, inside = self._find_row(index)
        if row >= len(self.rows.sections):
            return -1
        return self._messages_before(row) + self.rows.sections[row].messages[inside]

    @property
    def message_count(self) -> int:
        """The number of messages, with leading system messages."""
        return self._messages_before(len(self.rows.sections))

    def _find_row(self, index: int) -> tuple[int, int]:
        """Return the row of an element, and the index of the element in it."""
        inside = index - self.head_ends[2]
        row = bisect_right(self.rows.ends, inside)
        return row, inside - (self.rows.ends[row - 1] if row else 0)

    def _messages_before(self, row: int) -> int:
        return self.leading.count + (self.rows.messages[row - 1] if row else 0)

    @cached_property
    def marks(self) -> dict[int, str]:
        """The cache breakpoints: the index of the last element before each, with its ttl ("" is the default)."""
        found: dict[int, str] = {}
        at = 0
        for section in self.head_sections:
            if section.is_marked:
                found |= {at + n: each.ttl for n, each in enumerate(section.elements) if each.ttl is not None}
            at += len(section.elements)
        facts, own, sections = self.record.observed, self.record.marks, self.rows.sections
        ends = self.rows.ends

        def start(row: int) -> int:
            return at + (ends[row - 1] if row else 0)

        for row in self.rows.marked:
            elements = sections[row].elements
            found |= {start(row) + n: each.ttl for n, each in enumerate(elements) if each.ttl is not None}
        if facts is not None:
            for row, marks in facts.marks.items():
                if row < len(sections) and sections[row].elements:
                    found |= {start(row) + sections[row].index_at(where): _ttl_of_mark(text) for where, text in marks}
        elif own:
            rows = {"end": len(sections), "previous": len(sections) - self.record.added}
            found |= {start(rows[each]) - 1: "" for each in own if rows.get(each, 0) > 0}
        automatic = as_object(self.settings.get("cache_control"))
        if automatic and self.count:
            found[self.count - 1] = str(automatic.get("ttl") or "")
        return dict(sorted(found.items()))


class ChannelFacts(Struct, frozen=True):
    """The facts that all requests of a channel have in common."""

    channel: Channel
    number: int
    id: str
    format: str
    messages_key: str
    model: Model | None


class ConversationView(KeepsResults):
    """All requests of a conversation, in the order in which they began.

    `source` is the client of an observed conversation, with its kind (main, agent or side) and its parent; None for a
    conversation of our own. `overlapping` are requests of other conversations that were still being answered when the
    first request of one of its channels began. `continued` is a request of another conversation whose messages the
    first request has: the client has no ids, and changed an earlier message, so that it was recorded as a new
    conversation.
    """

    def __init__(
        self,
        name: str,
        requests: Sequence[RequestView] = (),
    ) -> None:
        super().__init__()
        self.name, self.requests = name, list(requests)
        self.source: ObservedSource | None = None
        self.overlapping: list[RequestView] = []
        self.continued: RequestView | None = None


def _split_tokens(tokens: int, head: Head) -> tuple[int, int]:
    """Return the tokens of the system prompt and of the leading system messages."""
    if not head.leading.elements or not head.system.elements:
        return (0, tokens) if head.leading.elements else (tokens, 0)
    sizes = [sum([len(each.raw) for each in section.elements]) for section in (head.system, head.leading)]
    system = tokens * sizes[0] // max(1, sum(sizes))
    return system, tokens - system


def with_long_writes(usage: Usage, marks: Mapping[int, str]) -> Usage:
    """Return usage whose cache writes are long ones, if all breakpoints of the request ask for that."""
    is_long = bool(marks) and all([ttl in LONG_TTLS for ttl in marks.values()])
    return replace(usage, cache_write_long=usage.cache_write) if is_long else usage


def _ttl_of_mark(text: str) -> str:
    """Return the ttl in the text of a cache breakpoint; "" if it has the default one."""
    _, found, rest = text.partition('"ttl"')
    return rest.split('"')[1] if found and rest.count('"') > 1 else ""
