"""Budget and lines of an opened file or pasted request.

Other software compiled it, so earlier requests are not known: no line counts as new, and all messages count as history.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar, cast

from contextc._json import JSONObject
from contextc.compiler.inspecting import item_costs, parted
from contextc.draft import Budget
from contextc.errors import ContextcError, InvalidRequest
from contextc.formats import formatter
from contextc.formats.base import Request
from contextc.messages import Message
from contextc.messages.words import words
from contextc.models import Model, model
from contextc.tokens import Counter, counter
from contextc.transfer.found import ODD
from contextc.transfer.opening import OWN, Opened
from contextc.web.accounts import BudgetView, LineView

UNKNOWN = "unknown"


T = TypeVar("T")


def understood(work: Callable[[], T]) -> T:
    """Run work on untrusted input, and raise `InvalidRequest` if a parser fails on it."""
    try:
        return work()
    except ContextcError:
        raise
    except ODD as error:
        raise InvalidRequest(f"the input cannot be parsed: {type(error).__name__}: {error}.") from error


class Account:
    """Token counts, budget and lines of an opened request."""

    def __init__(self, opened: Opened, model: str = "") -> None:
        """Count the tokens. `model` sets the context window if the request names no model."""
        request = opened.request
        named, self.length = _settings(opened)
        self.model = named or model.strip()
        self.known = _known(self.model)
        self.counter = _counter(opened, self.known)
        self.prompt, self.messages = _said(request)
        self.system = self.counter.system(self.prompt) + (self.counter.overhead if self.messages else 0)
        self.tools = self.counter.tools(_tools(opened)) if request.tools else 0
        self.tokens = [self.counter.message(message) for message in self.messages]

    @property
    def total(self) -> int:
        return self.system + self.tools + sum(self.tokens)

    def budget(self) -> BudgetView:
        used = sum(self.tokens)
        window = self.known.window if self.known is not None else None
        reserve = min(self.length, window or 0)
        budget = Budget(window=window or 0, system=self.system, tools=self.tools, reserve=reserve, used=used)
        parts = parted(budget, dynamic=0, history=used, new=0)
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

    def lines(self) -> list[LineView]:
        """Return the system prompt, if any, and every message."""
        costs: Sequence[float | None] = [None] * len(self.messages)
        if self.known is not None and self.known.price is not None:
            costs = item_costs(self.known, self.tokens, self.system + self.tools, None)
        lead = [_line(0, 0, "system", "system", self.system, None, self.prompt, "")] if self.prompt else []
        told = [
            _line(
                index + len(lead),
                index + 1,
                "message",
                message.role,
                self.tokens[index],
                costs[index],
                words(message),
                message.uid,
            )
            for index, message in enumerate(self.messages)
        ]
        return lead + told


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


def _settings(opened: Opened) -> tuple[str, int]:
    """Return the model and the output limit. Invalid values are ignored, because the input is not validated."""
    if opened.format == OWN:
        return opened.model, 0
    said = understood(lambda: formatter(opened.format).settings.read(opened.request.settings).settings)
    model, length = cast(object, said.model), cast(object, said.max_output_tokens)
    is_length = isinstance(length, int) and not isinstance(length, bool) and length > 0
    return model if isinstance(model, str) else opened.model, cast(int, length) if is_length else 0


def _known(name: str) -> Model | None:
    if not name.strip():
        return None
    try:
        return model(name)
    except ContextcError:
        return None


def _counter(opened: Opened, known: Model | None) -> Counter:
    whose = "" if opened.format == OWN else formatter(opened.format).provider
    return counter(known.tokenizer if known else UNKNOWN, provider=whose, model=known.name if known else "")


def _said(request: Request) -> tuple[str, tuple[Message, ...]]:
    """Return the system prompt and the messages after it."""
    if request.system is not None:
        return request.system.text, request.messages
    if request.messages and request.messages[0].role == "system":
        return request.messages[0].text, request.messages[1:]
    return "", request.messages


def _tools(opened: Opened) -> list[JSONObject]:
    return formatter(opened.format).encode_tools(opened.request.tools)
