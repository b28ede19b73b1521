"""The codes of all findings, and the functions that find them.

A function is registered with its code, cause, title and fix. Its docstring is the section of that code in the docs. A
function for a whole conversation takes a `StoredConversation` and returns findings. The causes of cache misses are
registered in the same way, but one request has at most one of them; `cache_misses.py` calls them in order.
"""

from collections.abc import Callable, Iterable
from importlib import import_module
from inspect import cleandoc
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct

from contextc.analysis.finding import Evidence, Finding, RequestLoss

if TYPE_CHECKING:
    from contextc.analysis.stored_conversation import StoredConversation

Group: TypeAlias = Literal["cache", "window", "failure", "compaction"]
GROUPS: dict[str, Group] = {"CAC": "cache", "WIN": "window", "FAI": "failure", "CMP": "compaction"}
MODULES = ("cache_miss_causes", "window_findings", "failure_findings", "compaction_findings")
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
    """Return all codes: cache misses first, then the window, then failures."""
    _load()
    return sorted(_codes.values(), key=lambda each: ([*GROUPS].index(each.code[:3]), each.code))


def get_code(code_or_cause: str) -> FindingCode:
    """Return a code by its name or by its cause. Raises `KeyError`."""
    _load()
    found = _codes.get(code_or_cause)
    return found or {each.cause: each for each in _codes.values()}[code_or_cause]


def conversation_functions() -> list[FindFunction]:
    """Return the functions that find something in a whole conversation, in the order of their codes."""
    _load()
    return [_functions[code] for code in sorted(_functions)]


def _load() -> None:
    for name in MODULES:
        import_module(f"contextc.analysis.{name}")
