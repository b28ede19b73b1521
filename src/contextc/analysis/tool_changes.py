"""The tools that two requests do not have in common: added, removed, or defined differently."""

from collections.abc import Iterator
from itertools import zip_longest
from typing import Literal, NamedTuple, TypeAlias

from contextc.analysis.element_costs import tool_name
from contextc.analysis.finding import shorten
from contextc.analysis.request_elements import Element
from contextc.analysis.request_view import RequestView

ToolChangeKind: TypeAlias = Literal["added", "removed", "changed"]


class ToolChange(NamedTuple):
    """A tool that differs. `before` and `after` are its definitions; None where only one request has it."""

    name: str
    before: Element | None
    after: Element | None

    @property
    def kind(self) -> ToolChangeKind:
        return "added" if self.before is None else "removed" if self.after is None else "changed"

    @property
    def path(self) -> str:
        """The path of the tool in the later request. If it was removed, this is the path of the list of tools."""
        if self.after is not None:
            return self.after.suffix
        return self.before.suffix.rpartition("[")[0] if self.before is not None else ""


def find_tool_changes(before: RequestView, now: RequestView) -> list[ToolChange]:
    """Return the tools that differ, in the order of their places. Tools of one name are versions of each other."""
    return list(_iter_changes(before, now))


def _iter_changes(before: RequestView, now: RequestView) -> Iterator[ToolChange]:
    old, new = ({tool_name(each): each for each in view.tools.elements} for view in (before, now))
    for one, other in zip_longest(before.tools.elements, now.tools.elements):
        if one is not None and (name := tool_name(one)) not in new:
            yield ToolChange(name, one, None)
        if other is not None:
            name = tool_name(other)
            if (known := old.get(name)) is None or known.key != other.key:
                yield ToolChange(name, known, other)


def summarize_tool_changes(changes: list[ToolChange]) -> str:
    """Return numbers and names, such as "1 added: fetch; 2 removed: read, write"."""
    kinds: tuple[ToolChangeKind, ...] = ("added", "removed", "changed")
    names = {kind: [each.name for each in changes if each.kind == kind] for kind in kinds}
    return "; ".join(
        [f"{len(some)} {kind}: {shorten(', '.join(sorted(some)), 80)}" for kind, some in names.items() if some]
    )
