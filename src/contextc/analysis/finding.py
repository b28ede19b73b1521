"""Findings: what a conversation wastes or fails at, where, what it costs, and how to fix it."""

from collections.abc import Callable, Iterable
from functools import cache
from importlib import import_module
from inspect import cleandoc
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct

from contextc.analysis.request_elements import RequestView
from contextc.compiler.manifest import shorten as shorten_line
from contextc.messages import MAX_WORD

if TYPE_CHECKING:
    from contextc.analysis.conversation_loader import StoredConversation


EVIDENCE_WIDTH = 160


class RequestPlace(Struct, frozen=True, kw_only=True):
    """A request of any conversation: its number, and the short id of its channel."""

    conversation: str
    channel: str
    request: int


class Evidence(Struct, frozen=True, kw_only=True):
    """One place that a finding is based on.

    `request` is the number of the request on its channel, `channel` the short id of that channel. `path` is a path in
    the body of the request, such as `system[0].text`, `tools[3]` or `messages[12].content[0]`; "" for the whole
    request. `before` and `after` are the words that changed, shortened. If nothing changed (`is_change` is False), they
    are two facts, or the beginning of what was found. `compared` is the request that it was compared with, unless that
    is the previous one of the same channel. `name` is the name of the tool that changed, was added (`before` is "") or
    was removed (`after` is ""); "" for other changes.

    A request without an answer is kept under a large number. `would_be` is the number that its answer would have given
    it, which people know it by.
    """

    request: int
    channel: str
    path: str = ""
    before: str = ""
    after: str = ""
    is_change: bool = True
    compared: RequestPlace | None = None
    name: str = ""
    would_be: int = 0

    @property
    def words(self) -> tuple[str, ...]:
        """The words before and after a change, or the facts, as far as there are any."""
        return tuple([each for each in (self.before, self.after) if each])


def cite(request: RequestView, path: str = "", *, before: str = "", after: str = "") -> Evidence:
    """Return a place of a request as evidence, with facts about it: nothing changed there."""
    return Evidence(
        request=request.number, channel=request.channel_id, path=path, before=before, after=after, is_change=False
    )


class RequestLoss(Struct, frozen=True, kw_only=True):
    """The loss of one request: tokens that it did not read from the cache, and what they cost more than necessary.

    `would_be` is the number that people know a request without an answer by; 0 for others.
    """

    channel: str
    request: int
    tokens: int
    cost: float | None
    cost_is_lower_bound: bool = False
    would_be: int = 0


class Finding(Struct, frozen=True, kw_only=True):
    """One finding about a conversation.

    `tokens` are the tokens that it concerns; for a cache miss those that could have been read from the cache. `cost` is
    what they cost more than necessary, in dollars; None if it is unknown. With `cost_is_lower_bound` a factor of a
    price is unknown, and they cost at least that. `confidence` is between 0 and 1. `also` are further causes that alone
    would have had the same effect. The first piece of evidence has the request that the
    finding is about. `vendor` is the provider's own word for the cause of a cache miss, "" if it gave none, and
    `vendor_agrees` whether it names the same cause; None if it cannot be compared. `losses` has each request, oldest
    first, if the finding is about several ones that lost little each. `sessions` is the number of conversations of the
    store that it is about; 0 if it is about one.
    """

    code: str
    cause: str
    title: str
    conversation: str
    evidence: tuple[Evidence, ...] = ()
    tokens: int = 0
    cost: float | None = None
    fix: str = ""
    confidence: float = 1.0
    also: tuple[str, ...] = ()
    vendor: str = ""
    vendor_agrees: bool | None = None
    losses: tuple[RequestLoss, ...] = ()
    cost_is_lower_bound: bool = False
    sessions: int = 0

    @property
    def request(self) -> int:
        """The number of the request that the finding is about; 0 if it is about the whole conversation."""
        return self.evidence[0].request if self.evidence else 0

    @property
    def request_label(self) -> str:
        """The number of that request as people know it; "" if there is none."""
        place = self.evidence[0] if self.evidence else None
        if place is not None and place.would_be:
            return f"{place.would_be} (failed)"
        return str(self.request or "")

    @property
    def channel(self) -> str:
        """The short id of the channel of that request; "" if there is none."""
        return self.evidence[0].channel if self.evidence else ""


def sum_costs(found: Iterable[Finding]) -> float | None:
    """Return the sum of the known costs; None if none is known."""
    known = [each.cost for each in found if each.cost is not None]
    return sum(known) if known else None


def cost_order(cost: float | None, tokens: int) -> tuple[bool, float, int]:
    """Return the key by which the most expensive is first, and what has no known cost last; then by tokens."""
    return cost is None, -(cost or 0.0), -tokens


def sort_by_cost(found: Iterable[Finding]) -> list[Finding]:
    """Return findings with those of the most expensive cause first, and of each cause the most expensive first."""
    by_code: dict[str, list[Finding]] = {}
    for each in found:
        by_code.setdefault(each.code, []).append(each)
    groups = [
        (cost_order(sum_costs(some), sum([each.tokens for each in some])), code) for code, some in by_code.items()
    ]
    return [
        each
        for _, code in sorted(groups)
        for each in sorted(
            by_code[code], key=lambda each: (cost_order(each.cost, each.tokens), each.conversation, each.request)
        )
    ]


def shorten(text: str, width: int = EVIDENCE_WIDTH) -> str:
    """Return a text of a finding on one line, cut to a width between two words."""
    line = shorten_line(text, width)
    cut = line.rfind(" ", max(0, width - MAX_WORD)) if line.endswith("…") and len(line) == width else -1
    return f"{line[:cut].rstrip()}…" if cut > 0 else line


# ── codes, and the functions that find them ───────────────────────────────────────────────────────────────────────────
# The codes of all findings, and the functions that find them.
#
# A function is registered with its code, cause, title and fix. Its docstring is the section of that code in the docs.
# A function for a whole conversation takes a `StoredConversation` and returns findings. The causes of cache misses are
# registered in the same way, but one request has at most one of them; `cache_misses.py` calls them in order.


Group: TypeAlias = Literal["cache", "cache_use", "window", "failure", "compaction"]
GROUPS: dict[str, Group] = {
    "CAC": "cache", "USE": "cache_use", "WIN": "window", "FAI": "failure", "CMP": "compaction",
}  # fmt: skip
MODULES = ("cache_miss_causes", "cache_use_findings", "session_starts", "window_findings", "failure_findings")
"""The modules of this package that register functions."""


class FindingCode(Struct, frozen=True, kw_only=True):
    """A code: the cause as one word, a title, the usual fix, and the text of its section in the docs."""

    code: str
    cause: str
    title: str
    fix: str
    description: str

    @property
    def group(self) -> Group:
        """The group that the first letters of the code name."""
        return GROUPS[self.code[:3]]

    def make(
        self,
        conversation: str,
        evidence: Iterable[Evidence],
        *,
        tokens: int = 0,
        cost: float | None = None,
        title: str = "",
        fix: str = "",
        confidence: float = 1.0,
        also: Iterable[str] = (),
        vendor: str = "",
        vendor_agrees: bool | None = None,
        losses: Iterable[RequestLoss] = (),
    ) -> Finding:
        """Return a finding with this code. Title and fix can be more specific than those of the code."""
        return Finding(
            code=self.code,
            cause=self.cause,
            title=title or self.title,
            conversation=conversation,
            evidence=tuple(evidence),
            tokens=tokens,
            cost=cost,
            fix=fix or self.fix,
            confidence=confidence,
            also=tuple(also),
            vendor=vendor,
            vendor_agrees=vendor_agrees,
            losses=tuple(losses),
        )


FindFunction: TypeAlias = "Callable[[StoredConversation], Iterable[Finding]]"
_CodedFunction: TypeAlias = "Callable[[StoredConversation, FindingCode], Iterable[Finding]]"
_codes: dict[str, FindingCode] = {}
_functions: dict[str, FindFunction] = {}


def register_code(code: str, cause: str, *, title: str, fix: str, description: str | None) -> FindingCode:
    """Register a code and return it. `description` is the docstring of the function that finds it."""
    entry = FindingCode(code=code, cause=cause, title=title, fix=fix, description=cleandoc(description or ""))
    if _codes.setdefault(code, entry) != entry:
        raise ValueError(f"{code} is registered twice")
    return entry


def conversation_finding(code: str, cause: str, *, title: str, fix: str) -> Callable[[_CodedFunction], FindFunction]:
    """Register a function that finds something in a conversation. It gets the view and its own code."""

    def register(function: _CodedFunction) -> FindFunction:
        entry = register_code(code, cause, title=title, fix=fix, description=function.__doc__)

        def find(view: "StoredConversation") -> Iterable[Finding]:
            return function(view, entry)

        _functions[code] = find
        return find

    return register


def all_codes() -> list[FindingCode]:
    """Return all codes in the order of their groups: cache misses first."""
    _load_modules()
    return sorted(_codes.values(), key=lambda each: ([*GROUPS].index(each.code[:3]), each.code))


def get_code(code_or_cause: str) -> FindingCode:
    """Return a code by its name or by its cause. Raises `KeyError`."""
    _load_modules()
    found = _codes.get(code_or_cause)
    return found or {each.cause: each for each in _codes.values()}[code_or_cause]


def conversation_functions() -> list[FindFunction]:
    """Return the functions that find something in a whole conversation, in the order of their codes."""
    _load_modules()
    return [_functions[code] for code in sorted(_functions)]


@cache
def _load_modules() -> None:
    for name in MODULES:
        import_module(f"contextc.analysis.{name}")
