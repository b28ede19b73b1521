"""Budget and lines of an opened file or pasted request.

Other software compiled it, so earlier requests are not known: no line counts as new, and all messages count as history.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar, cast

from msgspec.structs import replace

from contextc._json import JSONObject
from contextc.compiler.options import Budget, distribute
from contextc.errors import ContextcError, InvalidRequest
from contextc.formats import formatter
from contextc.formats.base import Request
from contextc.inspection.line_details import (
    HeadPart,
    LineDetails,
    compute_item_costs,
    describe_parts,
    pair_details,
    tool_parts,
)
from contextc.inspection.line_selection import head_details
from contextc.inspection.request_details import distribute_window
from contextc.interchange.found_conversation import DATA_ERRORS
from contextc.interchange.open_any import OWN_FORMAT, OpenedInput
from contextc.messages import AnyPart, Message
from contextc.messages.message import to_plain_text
from contextc.models import Model, model
from contextc.models.tokens import TokenCounter, get_counter
from contextc.web.request_view import BudgetView, LineTextOptions, LineView, detail_fields

UNKNOWN_TOKENIZER = "unknown"


T = TypeVar("T")


def parse_untrusted(work: Callable[[], T]) -> T:
    """Run work on untrusted input, and raise `InvalidRequest` if a parser fails on it."""
    try:
        return work()
    except ContextcError:
        raise
    except DATA_ERRORS as error:
        raise InvalidRequest(f"the input cannot be parsed: {type(error).__name__}: {error}.") from error


class OpenedRequest:
    """Token counts, budget and lines of an opened request."""

    def __init__(self, opened: OpenedInput, model: str = "") -> None:
        """Count the tokens. `model` sets the context window if the request names no model."""
        request = opened.request
        named, self.max_output_tokens = _settings(opened)
        self.model = named or model.strip()
        self.model_facts = _find_model(self.model)
        self.counter = _counter(opened, self.model_facts)
        self.prompt, self.messages = _split_system_prompt(request)
        self.system = self.counter.count_system(self.prompt) + (self.counter.overhead if self.messages else 0)
        self.tools = self.counter.count_tools(_tools(opened)) if request.tools else 0
        self.formatter = formatter(opened.format) if opened.format != OWN_FORMAT else None
        self.tool_list = request.tools
        self.tokens = [self.counter.count_message(message) for message in self.messages]

    @property
    def total(self) -> int:
        return self.system + self.tools + sum(self.tokens)

    def budget(self) -> BudgetView:
        used = sum(self.tokens)
        window = self.model_facts.window if self.model_facts is not None else None
        reserve = min(self.max_output_tokens, window or 0)
        budget = Budget(window=window or 0, system=self.system, tools=self.tools, reserve=reserve, used=used)
        parts = distribute_window(budget, dynamic=0, history=used, new=0)
        return BudgetView(
            window=window,
            system=parts.system,
            tools=parts.tools,
            dynamic=0,
            history=parts.history,
            new=parts.new,
            reserve=parts.reserve,
            margin=0,
            free=parts.free if window is not None else None,
            used=used,
            available=budget.available if window is not None else None,
            how="exact" if self.counter.exact else "estimated",
            limit=None,
            wanted=0,
            input=budget.input,
            room=budget.room if window is not None else None,
            estimated=budget.input,
        )

    def lines(self, *, detailed: bool = False) -> list[LineView]:
        """Return the system prompt, if any, and every message. With `detailed`, each tool is a line too."""
        costs: Sequence[float | None] = [None] * len(self.messages)
        if self.model_facts is not None and self.model_facts.price is not None:
            costs = compute_item_costs(self.model_facts, self.tokens, self.system + self.tools, None)
        lead = [_line(0, 0, "system", "system", self.system, None, self.prompt, "")] if self.prompt else []
        found = [
            _line(0, 0, "tool", "tool", tokens, None, part.text, "") for part, tokens in self._tool_parts(detailed)
        ]
        found += [
            _line(0, number, "message", message.role, tokens, cost, to_plain_text(message), message.uid)
            for number, (message, tokens, cost) in enumerate(zip(self.messages, self.tokens, costs, strict=True), 1)
        ]
        views = [replace(each, index=index) for index, each in enumerate(lead + found)]
        return self._with_details(views) if detailed else views

    def _tool_parts(self, detailed: bool) -> list[tuple[HeadPart, int]]:
        parts = tool_parts(self.formatter, self.tool_list) if detailed else ()
        return list(zip(parts, distribute(self.tools, [each.size for each in parts]), strict=True))

    def _with_details(self, views: list[LineView]) -> list[LineView]:
        """Return the lines with causes, calls and results, and with their parts."""
        tools = [head_details(part) for part, _ in self._tool_parts(detailed=True)]
        head = [LineDetails(("system",)) for view in views if view.kind == "system"] + tools
        messages = [describe_parts(message.parts) for message in self.messages]
        details = {**dict(enumerate(head)), **pair_details(enumerate(messages, len(head)))}
        parts: list[tuple[AnyPart, ...]] = [() for _ in head] + [message.parts for message in self.messages]
        options = LineTextOptions(parts=True)
        return [
            replace(view, parts=parts[index], **detail_fields(details[index], options))
            for index, view in enumerate(views)
        ]


def _line(index: int, seq: int, kind: str, role: str, tokens: int, cost: float | None, text: str, uid: str) -> LineView:
    return LineView(
        index=index,
        seq=seq,
        kind=kind,
        role=role,
        shown=True,
        tokens=tokens,
        cost=cost,
        why="",
        text=text,
        state="shown",
        uid=uid,
    )


def _settings(opened: OpenedInput) -> tuple[str, int]:
    """Return the model and the output limit. Invalid values are ignored, because the input is not validated."""
    if opened.format == OWN_FORMAT:
        return opened.model, 0
    settings = parse_untrusted(lambda: formatter(opened.format).settings.read(opened.request.settings).settings)
    model, length = cast(object, settings.model), cast(object, settings.max_output_tokens)
    is_length = isinstance(length, int) and not isinstance(length, bool) and length > 0
    return model if isinstance(model, str) else opened.model, cast(int, length) if is_length else 0


def _find_model(name: str) -> Model | None:
    if not name.strip():
        return None
    try:
        return model(name)
    except ContextcError:
        return None


def _counter(opened: OpenedInput, known: Model | None) -> TokenCounter:
    provider = "" if opened.format == OWN_FORMAT else formatter(opened.format).provider
    return get_counter(
        known.tokenizer if known else UNKNOWN_TOKENIZER, provider=provider, model=known.name if known else ""
    )


def _split_system_prompt(request: Request) -> tuple[str, tuple[Message, ...]]:
    """Return the system prompt and the messages after it."""
    if request.system is not None:
        return request.system.text, request.messages
    if request.messages and request.messages[0].role == "system":
        return request.messages[0].text, request.messages[1:]
    return "", request.messages


def _tools(opened: OpenedInput) -> list[JSONObject]:
    return formatter(opened.format).encode_tools(opened.request.tools)
