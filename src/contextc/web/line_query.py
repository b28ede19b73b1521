"""Lines of a request as a query selects them: by page, by filter, or by their indexes."""

from typing import Literal, NamedTuple, Protocol, TypeAlias

from msgspec import UNSET, UnsetType

from contextc.errors import InvalidSetting
from contextc.inspection.line_details import LineCause
from contextc.inspection.line_selection import LineFilter, SelectedState, load_lines, select_lines
from contextc.inspection.request_details import LinePage, RequestDetails, page_lines
from contextc.web.request_view import SelectionView, selection_view

MAX_LINES = 1_000
StateFilter: TypeAlias = SelectedState
CauseFilter: TypeAlias = Literal[""] | LineCause
LineOrder: TypeAlias = Literal["", "size"]


class LineQueryFields(Protocol):
    """The fields of a query that select lines."""

    @property
    def after(self) -> int: ...
    @property
    def limit(self) -> int: ...
    @property
    def only(self) -> Literal["", "shown", "left"]: ...
    @property
    def search(self) -> str: ...
    @property
    def state(self) -> StateFilter: ...
    @property
    def role(self) -> str: ...
    @property
    def tool(self) -> str: ...
    @property
    def cause(self) -> CauseFilter: ...
    @property
    def error(self) -> bool: ...
    @property
    def sort(self) -> LineOrder: ...
    @property
    def detailed(self) -> bool: ...
    @property
    def selection(self) -> bool: ...
    @property
    def at(self) -> str: ...


class QueriedLines(NamedTuple):
    page: LinePage
    selection: SelectionView | UnsetType = UNSET


def query_lines(request: RequestDetails, query: LineQueryFields) -> QueriedLines:
    """Return the lines that a query selects."""
    if query.at:
        return QueriedLines(LinePage(load_lines(request, parse_indexes(query.at), head=query.detailed), False, 0))
    wanted = LineFilter(
        state=query.state,
        role=query.role,
        tool=query.tool,
        cause=query.cause,
        error=query.error,
        only=query.only,
        search=query.search,
        sort=query.sort,
        head=query.detailed,
    )
    if not (query.detailed or query.selection or wanted._replace(only="", search="").is_filter):
        found = page_lines(request, after=query.after, limit=query.limit, only=query.only, search=query.search)
        return QueriedLines(found)
    selected = select_lines(request, wanted)
    last = min(len(selected.numbers), query.after + query.limit)
    lines = load_lines(request, selected.numbers[query.after : last], head=query.detailed)
    page = LinePage(lines, last < len(selected.numbers), last)
    if not query.selection:
        return QueriedLines(page)
    return QueriedLines(page, selection_view(selected, request.budget.input, is_plain=not wanted.is_filter))


def parse_indexes(text: str) -> list[int]:
    """Return the indexes of a text such as `-2..10,15`. Raises `InvalidSetting`."""
    found: list[int] = []
    for piece in text.split(","):
        first, _, last = piece.partition("..")
        try:
            start, end = int(first), int(last or first)
        except ValueError:
            raise InvalidSetting("at must have indexes of lines", got=text[:80], fix="Send at=0..199,205.") from None
        if end - start >= MAX_LINES or len(found) + end - start >= MAX_LINES:
            raise InvalidSetting(f"at must have at most {MAX_LINES} lines", got=text[:80], fix="Send several queries.")
        found += range(start, end + 1)
    return found
